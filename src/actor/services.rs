//! The values and handles that the actors of a run share.
//!
//! Made once before the run begins and never changed; nothing here decides.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::watch;

use super::addresses::Addresses;
use super::briefing::{Briefing, Briefings, Stock};
use super::mail::SupervisorMsg;
use super::model_service::ModelService;
use super::replies::Replies;

use crate::context::compaction::CompactionSpec;
use crate::id::{AgentId, Name, RunId};
use crate::journal::disk_space::DiskSpace;
use crate::journal::{JournalError, JournalHandle};
use crate::output::Output;
use crate::redaction::Secrets;
use crate::spec::{AgentSpec, Limits};
use crate::store;
use crate::store::Store;
use crate::tool::Toolbox;
use crate::tool::workspace::Workspace;
use crate::tool::wrapper::Wrapper;

/// What the actors of one run share: values, and handles to send mail by.
#[derive(Debug)]
pub struct Services {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// The run's inputs.
    pub inputs: serde_json::Map<String, serde_json::Value>,
    /// The agent definitions.
    pub agents: BTreeMap<Name, Arc<AgentSpec>>,
    /// What agents of one definition have in common.
    pub briefings: Briefings,
    /// The models.
    pub models: HashMap<Name, Arc<ModelService>>,
    /// The tools that do work outside the agents.
    pub tools: Toolbox,
    /// The files that tools may touch.
    pub workspace: Arc<Workspace>,
    /// Where large outputs go.
    pub store: Arc<Store>,
    /// Environment variables for processes.
    pub env: BTreeMap<String, String>,
    /// Variables of this program that processes must not see: those that hold keys.
    pub hidden_env: Arc<[String]>,
    /// Keys and secrets, which no record may hold.
    pub secrets: Secrets,
    /// What runs commands; absent: this process does.
    pub wrapper: Option<Arc<Wrapper>>,
    /// The ceilings.
    pub limits: Limits,
    /// How summaries are made.
    pub compaction: CompactionSpec,
    /// The journal.
    pub journal: JournalHandle,
    /// Whether new work may begin, as the supervisor last said: it may not while the disk is full.
    pub room: watch::Sender<DiskSpace>,
    /// The folder of the transcripts, as markers name it.
    pub transcripts: PathBuf,
    /// Who answers a permission question; absent when nobody is at a terminal.
    pub asker: Option<Arc<dyn Asker>>,
    /// The addresses of the run's actors.
    pub addresses: Addresses,
    /// The answers to requests that came from outside the actors, by the number of the request:
    /// whether the part of the run exists that was meant.
    pub requests: Replies<u64, bool>,
    /// The number of the next model call.
    pub calls: AtomicU64,
}

/// Asks a person whether a tool call may run.
pub trait Asker: Send + Sync + std::fmt::Debug {
    /// Asks, and waits for the answer. `what` names the tool and its argument.
    fn ask(&self, agent: &AgentId, what: &str) -> crate::model::BoxFuture<'_, bool>;
}

impl Services {
    /// The transcript of an agent.
    #[must_use]
    pub fn transcript(&self, agent: &AgentId) -> PathBuf {
        self.transcripts.join(format!("{}.jsonl", agent.file_stem()))
    }

    /// The briefing of an agent of this definition at this delegation depth.
    ///
    /// # Errors
    /// When the definition or its model does not exist.
    pub fn briefing(&self, definition: &Name, depth: u32) -> Result<Arc<Briefing>, String> {
        let stock = Stock {
            agents: &self.agents,
            tools: &self.tools,
            workspace: &self.workspace,
            preset: &self.compaction.preset,
            limits: &self.limits,
        };
        self.briefings.of(&stock, &self.models, definition, depth)
    }

    /// The model that is configured for summaries, if there is one.
    #[must_use]
    pub fn summariser(&self) -> Option<&Arc<ModelService>> {
        self.models.get(self.compaction.model.as_ref()?)
    }

    /// The whole text of an output.
    pub(crate) async fn whole_text(&self, output: &Output) -> Result<String, JournalError> {
        let (folder, output) = (self.store.results_dir().to_owned(), output.clone());
        let read = move || store::whole_text(&folder, &output);
        // A task of the blocking pool is lost only when the runtime shuts down.
        Ok(tokio::task::spawn_blocking(read).await.map_err(|_| JournalError::Closed)??)
    }

    /// Mails the supervisor. It outlives whoever calls this, so a refusal only means that the run
    /// is over.
    pub(crate) fn tell_supervisor(&self, message: SupervisorMsg) {
        if let Some(supervisor) = self.addresses.supervisor.get() {
            let _ = supervisor.send_message(message);
        }
    }
}
