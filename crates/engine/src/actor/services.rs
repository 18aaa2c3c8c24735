//! The values and handles that the actors of a run share.
//!
//! Made once before the run begins. The values never change, but for the
//! agent definitions that proposed tasks add; the addresses, the answers, the
//! counter and the disk state are handles that actors use together. Nothing here decides.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, watch};

use super::addresses::Addresses;
use super::briefing::{Briefing, Briefings, Stock};
use super::mail::SupervisorMsg;
use super::model_service::ModelService;
use super::pulse::Pulse;
use super::replies::Replies;
use super::surroundings::Surroundings;
use super::work::{self, Helper};

use crate::context::compaction::CompactionSpec;
use crate::id::{AgentId, CallKey, Name, RunId};
use crate::journal::disk_space::DiskSpace;
use crate::journal::{JournalError, JournalHandle};
use crate::model::webhook::Webhook;
use crate::output::Output;
use crate::person::{Asker, Watcher};
use crate::redaction::Secrets;
use crate::run_state::files::Files;
use crate::spec::hooks::HookSpec;
use crate::spec::{AgentSpec, Limits, TaskSpec};
use crate::store::{self, INLINE_BYTES, Store};
use crate::tool::Toolbox;
use crate::tool::under_way::UnderWay;
use crate::turn::question::AnswerOutcome;
use crate::turn_machine::lost::LostCalls;

/// The values that the actors of one run share, and the handles by which they send mail.
#[derive(Debug)]
pub struct Services {
    /// The id of the run.
    pub run: RunId,
    /// The name of the workflow.
    pub workflow: String,
    /// The run's inputs.
    pub inputs: serde_json::Map<String, serde_json::Value>,
    /// The agent definitions. Tasks that agents propose add to them.
    pub agents: RwLock<BTreeMap<Name, Arc<AgentSpec>>>,
    /// The briefings: the parts that agents of one definition share.
    pub briefings: Briefings,
    /// The models.
    pub models: HashMap<Name, Arc<ModelService>>,
    /// The tools that do work outside the agents.
    pub tools: Toolbox,
    /// Where the calls of the run happen, unless an agent has a place of its own.
    pub surroundings: Arc<Surroundings>,
    /// The files that the agents of the run have changed.
    pub changed_files: Mutex<Files>,
    /// The result store, for large outputs.
    pub store: Arc<Store>,
    /// The calls at work, by which the next process knows of which calls this one died.
    pub under_way: Arc<UnderWay>,
    /// Keys and secrets, which no record may contain.
    pub secrets: Secrets,
    /// The calls of which the journal lost the records.
    pub lost: Arc<LostCalls>,
    /// The limits of the run.
    pub limits: Limits,
    /// True if each call of a model needs a reservation, because spending is limited.
    pub limits_spending: AtomicBool,
    /// The hooks of the run and of its tool calls.
    pub hooks: HookSpec,
    /// Who is told of the run, outside of it.
    pub teller: Teller,
    /// The settings of compaction.
    pub compaction: CompactionSpec,
    /// Checks the tasks that agents propose; `None`: none can be proposed.
    pub planner: Option<Arc<dyn Planner>>,
    /// The journal.
    pub journal: JournalHandle,
    /// The state of the disk as the supervisor last set it: no new work begins while it is full.
    pub disk_space: watch::Sender<DiskSpace>,
    /// The folder of the transcripts, as the markers in views name it.
    pub transcripts: PathBuf,
    /// Asks a person permission questions; `None` if nobody is at a terminal.
    pub asker: Option<Arc<dyn Asker>>,
    /// Watches the replies of models while they arrive.
    pub watcher: Arc<dyn Watcher>,
    /// The addresses of the run's actors.
    pub addresses: Addresses,
    /// The answers to requests from outside the actors, by the number of the request: true if the
    /// part of the run that the request names exists.
    pub requests: Replies<u64, bool>,
    /// What the supervisor is at.
    pub pulse: Pulse,
    /// The processors that agents with long contexts may keep busy at a time: others wait, so that what is
    /// due in the run is not late.
    pub processors: Arc<Semaphore>,
    /// The outcomes of answers to questions, by the number of the request.
    pub answer_outcomes: Replies<u64, AnswerOutcome>,
    /// The number of the next model call or summary.
    pub calls: AtomicU64,
    /// The span of the run, the parent of the spans of its agents.
    pub span: tracing::Span,
}

/// Whom a run tells, and how.
#[derive(Debug, Default)]
pub struct Teller {
    /// The program, with its arguments; empty for none.
    pub command: Vec<String>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// The environment of the program that shows notices on the desktop.
    pub desktop_env: BTreeMap<String, String>,
    /// The server.
    pub webhook: Option<Webhook>,
    /// The longest time that one attempt may take.
    pub timeout: Duration,
}

/// Checks the tasks that agents propose against the configuration of the run.
pub trait Planner: Send + Sync + std::fmt::Debug {
    /// Reads the tasks that `by`, an agent of this definition, proposes as TOML. Blocks while it reads
    /// the files that they name.
    ///
    /// # Errors
    /// Returns what is wrong with them, in words for the model that wrote them.
    fn read(&self, by: &AgentId, definition: &Name, text: &str) -> Result<Proposed, String>;

    /// Takes that the tasks of a call were added: later ones may depend on them.
    fn added(&self, call: &CallKey, by: &AgentId, text: &str);

    /// Returns true if the tasks of this call were added.
    fn has(&self, call: &CallKey) -> bool;
}

/// Tasks that an agent proposes and that pass the check of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Proposed {
    /// The tasks.
    pub tasks: Vec<TaskSpec>,
    /// The agent definitions that are theirs alone.
    pub agents: Vec<Arc<AgentSpec>>,
    /// The texts of the files that they name and that were not recorded before, by path.
    pub files: BTreeMap<String, String>,
    /// True if they may be added without the approval of a person.
    pub is_allowed: bool,
}

impl Services {
    /// Returns the path of an agent's transcript.
    #[must_use]
    pub fn transcript(&self, agent: &AgentId) -> PathBuf {
        self.transcripts.join(format!("{}.jsonl", agent.file_stem()))
    }

    /// Returns the briefing of an agent of this definition at this delegation depth, which works for
    /// agents of the definitions in `lineage`, from its parent upwards.
    ///
    /// # Errors
    /// Returns an error if a definition or its model does not exist.
    pub fn briefing(
        &self,
        definition: &Name,
        depth: u32,
        lineage: &[Name],
    ) -> Result<Arc<Briefing>, String> {
        let agents = self.agents.read();
        let stock = Stock {
            agents: &agents,
            tools: &self.tools,
            workspace: &self.surroundings.workspace,
            preset: &self.compaction.preset,
            limits: &self.limits,
        };
        self.briefings.of(&stock, &self.models, definition, depth, lineage)
    }

    /// Returns the model that is configured for summaries, if there is one.
    #[must_use]
    pub fn summariser(&self) -> Option<&Arc<ModelService>> {
        self.models.get(self.compaction.model.as_ref()?)
    }

    /// Returns the whole text of an output, from the result store if necessary.
    pub(crate) async fn whole_text(&self, output: &Output) -> Result<String, JournalError> {
        // Most outputs are short: a thread of the blocking pool would cost more than the rest.
        if output.stored.is_none() {
            return Ok(output.text.clone());
        }
        let (folder, output) = (self.store.results_dir().to_owned(), output.clone());
        let read = move || store::whole_text(&folder, &output);
        let crashed = |_| JournalError::Closed;
        let mut text = work::blocking(Helper::StoredText, read).await.map_err(crashed)??;
        // A result of an earlier version was stored as it came.
        self.secrets.redact(&mut text);
        Ok(text)
    }

    /// Stores an output that is too large for a record, and keeps its beginning in the record.
    pub(crate) async fn bounded(&self, output: Output) -> Output {
        if output.stored.is_some() || output.text.len() <= INLINE_BYTES {
            return output;
        }
        let (store, text) = (self.store.clone(), output.text.clone());
        let stored = work::blocking(Helper::OutputStore, move || store.store(text)).await;
        match stored {
            Ok(Ok(stored)) => {
                let end = output.text.floor_char_boundary(INLINE_BYTES);
                Output { text: output.text[..end].to_owned(), stored: Some(stored) }
            }
            // Then the whole text is put into the record: it is large, but nothing is lost.
            Ok(Err(error)) => {
                tracing::warn!(%error, "an output could not be stored");
                output
            }
            Err(error) => {
                tracing::warn!(%error, "an output could not be stored");
                output
            }
        }
    }

    /// Sends mail to the supervisor. The supervisor lives longer than every caller of this
    /// function, so an undelivered message only means that the run is over.
    pub(crate) fn tell_supervisor(&self, message: SupervisorMsg) {
        if let Some(supervisor) = self.addresses.supervisor.get() {
            let _ = supervisor.send_message(message);
        }
    }
}
