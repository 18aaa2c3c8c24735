//! The actors of a run and what they share.
//!
//! `Supervisor` owns the run; `Agent` owns one conversation; `Compactor`, `TranscriptWriter` and
//! `Gateway` serve them. Everything between actors is a message. The maps here hold addresses,
//! never a decision.
//!
//! Mailboxes are unbounded in ractor, so each kind of mail has a bound of its own:
//! - an agent has one step under way and one summary written ahead, and each mails one result:
//!   three messages an agent;
//! - a step waits for the reply of each request it makes (permit, summary, child, slot), so at
//!   most as many requests are open as there are steps and children (`max_concurrency`,
//!   `max_descendants`);
//! - the journal's writer holds a permit for each record that it forwards to the supervisor
//!   (`transcript_writer::FORWARD_PERMITS`).

pub mod abilities;
pub mod agent;
pub mod agent_steps;
pub mod briefing;
mod carry_over;
pub mod compaction_step;
pub mod compactor;
pub mod ends;
mod fit;
pub mod gateway;
mod hooks;
pub mod mail;
pub mod model_call;
mod panic;
mod recall;
pub mod record_right;
pub mod recovery;
pub mod replies;
pub mod run_end;
pub mod step;
pub mod supervisor;
pub mod tool_run;
pub mod transcript_writer;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use dashmap::DashMap;
use ractor::ActorRef;
use tokio::sync::watch;

use crate::context::preset::Preset;
use crate::context::strategy::StrategySettings;
use crate::id::{AgentId, Name, RunId};
use crate::journal::room::Room;
use crate::journal::{JournalError, JournalHandle, results};
use crate::model::Model;
use crate::output::Output;
use crate::policy::RetryPolicy;
use crate::redaction::Secrets;
use crate::spec::{AgentSpec, Limits, ModelSpec};
use crate::tool::Toolbox;
use crate::tool::hook::Hooks;
use crate::tool::spool::Spool;
use crate::tool::workspace::Workspace;
use crate::tool::wrapper::Wrapper;

/// A model with everything that a call of it needs.
pub struct ModelService {
    /// What it is.
    pub spec: ModelSpec,
    /// How it is called.
    pub model: Arc<dyn Model>,
    /// How often a call is tried.
    pub retry: RetryPolicy,
    /// What its provider can do with a context.
    pub abilities: abilities::Abilities,
}

impl std::fmt::Debug for ModelService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelService").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// How summaries are made.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The layers and their constants.
    pub preset: Preset,
    /// The model that writes summaries; absent: the agent's own.
    pub model: Option<Name>,
    /// Summaries written at once.
    pub max_concurrency: usize,
    /// Failures in a row that open the breaker.
    pub failure_threshold: u32,
    /// How long it stays open before one probe.
    pub cooldown: std::time::Duration,
    /// The least time that a call of the summariser may take; it grows with what is sent.
    pub summary_timeout: std::time::Duration,
    /// The commands that are asked before and told after.
    pub hooks: Hooks,
    /// What is left to providers.
    pub strategy: StrategySettings,
}

/// The addresses of the actors that serve the whole run. A restarted actor replaces its entry.
#[derive(Debug, Default)]
pub struct Addresses {
    /// The agents at work.
    pub agents: DashMap<AgentId, ActorRef<agent::AgentMsg>>,
    /// The gateways, by provider.
    pub gateways: DashMap<Name, ActorRef<gateway::GatewayMsg>>,
    /// The compactor: one entry, under its own name.
    pub compactor: DashMap<&'static str, ActorRef<compactor::CompactorMsg>>,
    /// The supervisor, which is never replaced; the writer's feed shares the place.
    pub supervisor: transcript_writer::SupervisorAddress,
}

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
    pub briefings: briefing::Briefings,
    /// The models.
    pub models: HashMap<Name, Arc<ModelService>>,
    /// The tools that do work outside the agents.
    pub tools: Toolbox,
    /// The files that tools may touch.
    pub workspace: Arc<Workspace>,
    /// Where large outputs go.
    pub spool: Arc<Spool>,
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
    pub compaction: Compaction,
    /// The journal.
    pub journal: JournalHandle,
    /// Whether new work may begin, as the supervisor last said: it may not while the disk is full.
    pub room: watch::Sender<Room>,
    /// The folder of the transcripts, as markers name it.
    pub transcripts: PathBuf,
    /// Who answers a permission question; absent when nobody is at a terminal.
    pub asker: Option<Arc<dyn Asker>>,
    /// Who is where.
    pub addresses: Addresses,
    /// The answers to requests that came from outside the actors, by the number of the request:
    /// whether the part of the run exists that was meant.
    pub requests: replies::Replies<u64, bool>,
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

    /// Where the run's calls leave traces.
    pub(crate) fn traces(&self) -> recovery::Traces {
        let (spool, workspace) = (self.spool.clone(), Some(self.workspace.clone()));
        recovery::Traces { spool, workspace }
    }

    /// The whole text of an output.
    pub(crate) async fn whole_text(&self, output: &Output) -> Result<String, JournalError> {
        let (folder, output) = (self.spool.results_dir().to_owned(), output.clone());
        let read = move || results::whole_text(&folder, &output);
        // A task of the blocking pool is lost only when the runtime shuts down.
        tokio::task::spawn_blocking(read).await.unwrap_or(Err(JournalError::Closed))
    }

    /// Mails the supervisor. It outlives whoever calls this, so a refusal only means that the run
    /// is over.
    pub(crate) fn tell_supervisor(&self, message: mail::SupervisorMsg) {
        if let Some(supervisor) = self.addresses.supervisor.get() {
            let _ = supervisor.send_message(message);
        }
    }
}
