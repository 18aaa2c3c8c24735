//! A run as an application drives it: start, watch, stop, wait for the end.
//!
//! The public entry. Turns a checked configuration into actors, owns nothing that they own, and
//! prints nothing.

mod cancel;
mod commands;
pub mod control;
mod fork;
mod launch;
pub mod no_effect;
mod opening;
pub mod outlook;
mod resume;
mod services;
pub mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorRef};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::opening::Opening;
use uuid::Uuid;

use crate::actor::mail::SupervisorMsg;
use crate::actor::services::{Asker, Services};
use crate::actor::supervisor::{Start, Supervisor};
use crate::actor::transcript_writer::{self, TranscriptWriter, TranscriptWriterMsg};
use crate::config::{Config, Diagnostics};
use crate::event::{Accepted, PlannedTask, RunCreated};
use crate::id::{AgentId, Name, RunId};
use crate::journal::JournalError;
use crate::journal::file::RunDir;
use crate::journal::follow::{Follower, Until};
use crate::journal::line::Position;
use crate::journal::snapshot::Snapshots;
use crate::message::Json;
use crate::model::Model;
use crate::plan::{Plan, PlanError};
use crate::run_machine::{self, RunMachine};
use crate::run_state::IllegalRecord;
use crate::spec::{Limits, Work};
use crate::store::Store;
use crate::tool::Tool;
use crate::tool::spool::Spool;

pub use self::fork::{ForkError, fork};
pub use self::launch::Launch;
pub use self::opening::StoppedRun;
pub use self::services::front;
pub use crate::actor::run_end::RunEnd;
pub use crate::run_machine::CancelTarget;

/// How long the actors may take to end once the run is over, before they are dropped.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What a run is started with.
#[derive(Default)]
pub struct Options {
    /// The tasks to run, with all that they need; empty: the configuration's `entry`, or all.
    pub tasks: Vec<String>,
    /// The run's id, if it is to be a given one.
    pub run_id: Option<RunId>,
    /// Whether a failure leaves tasks that do not need it alone.
    pub keep_going: bool,
    /// Tools beside the built-in ones.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Models of one's own, by their name in the configuration.
    pub models: BTreeMap<Name, Arc<dyn Model>>,
    /// Who answers permission questions.
    pub asker: Option<Arc<dyn Asker>>,
    /// A program that calls [`wrapper::serve_if_asked`](crate::tool::wrapper::serve_if_asked) first
    /// in its `main`, and runs commands for this one; `None`: this program, if it called that.
    /// Without either, commands run in this process: when it is killed, they may run on, and what
    /// they gave is lost, so that a resumed run does not know what became of them.
    pub wrapper: Option<PathBuf>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// A run that could not be started. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Diagnostics),
    /// A task that was asked for does not exist.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The run directory or the journal could not be made.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The records of the run contradict each other.
    #[error(transparent)]
    Illegal(#[from] IllegalRecord),
    /// The workspace could not be opened.
    #[error("{what}: {source}")]
    Workspace {
        /// What was being opened.
        what: String,
        /// Why it could not.
        source: std::io::Error,
    },
    /// An output that tasks to come read does not have the form that is set for it now.
    #[error("task `{task}`: {reason}")]
    Output {
        /// The task that gave it.
        task: Name,
        /// What is wrong with it.
        reason: String,
    },
    /// A provider's client or a script could not be made.
    #[error("provider `{provider}`: {reason}")]
    Provider {
        /// The provider.
        provider: Name,
        /// Why.
        reason: String,
    },
    /// An actor could not be started.
    #[error("an actor could not be started: {0}")]
    Actor(String),
}

impl From<ractor::SpawnErr> for StartError {
    fn from(error: ractor::SpawnErr) -> Self {
        Self::Actor(error.to_string())
    }
}

/// A run at work in this process.
#[derive(Debug)]
pub struct Run {
    id: RunId,
    dir: RunDir,
    /// Where this process began to record.
    began: Position,
    remote: Remote,
    writer: ActorRef<TranscriptWriterMsg>,
    end: oneshot::Receiver<RunEnd>,
    /// The tasks of the supervisor and of the transcript writer.
    tasks: (JoinHandle<()>, JoinHandle<()>),
    control: Option<control::Listener>,
}

/// A way to steer a run: cheap to clone, and harmless once the run is over.
#[derive(Clone, Debug)]
pub struct Remote {
    supervisor: ActorRef<SupervisorMsg>,
    services: Arc<Services>,
    /// The number of the next request.
    requests: Arc<AtomicU64>,
}

impl Run {
    /// Checks the options against the configuration, makes the run directory and starts the
    /// actors. When it returns, `run.created` is durable.
    ///
    /// # Errors
    /// When the run cannot be started; nothing was spent then.
    pub async fn start(config: Config, options: Options) -> Result<Self, StartError> {
        let id = options.run_id.unwrap_or_else(|| RunId::from(Uuid::now_v7()));
        let plan = plan_of(&config, &options)?;
        let parts = services::Prepared::prepare(&config, &options).await?;
        let dir = RunDir::at(config.state_dir.join(id.to_string()));
        let created = created(&config, &options, &plan, id);
        let opening = blocking(move || Opening::create(&dir, created)).await?;
        Self::launch(config, options, plan, parts, opening).await
    }

    async fn launch(
        config: Config,
        options: Options,
        plan: Plan,
        parts: services::Prepared,
        opening: Opening,
    ) -> Result<Self, StartError> {
        let Opening { id, owned, at, tracker, projection, values, drafts } = opening;
        let snapshots = Snapshots::new(owned.dir().clone(), at, tracker.clone(), projection);
        let (dir, began) = (owned.dir().clone(), at);
        let (observer, feed) = transcript_writer::feed();
        let started = transcript_writer::State::start(owned, at, snapshots, observer)?;
        let journal = started.journal();
        let (writer, writer_task) = Actor::spawn(None, TranscriptWriter, started).await?;
        let tracker = opening::record(&journal, drafts, at, tracker).await?;
        let (state, left) = (tracker.state().clone(), tracker.left(&dir.journal()));

        let gateways = parts.gateways.clone();
        let services = parts.into_services(&config, &options, id, &dir, journal)?;
        let services = Arc::new(services);
        let settings = machine_settings(id, plan, &config, options.keep_going);
        let marks = left.iter().map(|(id, left)| (id.clone(), left.mark())).collect();
        let seed = fastrand::u64(..);
        let start = run_machine::Start { state, left: marks, outputs: values, seed };
        let machine = RunMachine::new(settings, start);
        let supervisor = Supervisor { services: services.clone(), gateways };
        let (reply, end) = oneshot::channel();
        let start = Start { machine, left, feed, end: reply };
        let (supervisor, supervisor_task) = Actor::spawn(None, supervisor, start).await?;
        let remote = Remote { supervisor, services, requests: Arc::default() };
        let control = match control::Listener::open(&dir, remote.clone()) {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::warn!(%error, "no control socket: `cancel` and `compact` will not reach this run");
                None
            }
        };
        let tasks = (supervisor_task, writer_task);
        Ok(Self { id, dir, began, remote, writer, end, tasks, control })
    }

    /// The run's id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.id
    }

    /// The run directory.
    #[must_use]
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// The run's supervisor and the handles of its actors, for tests that make them fail.
    #[doc(hidden)]
    #[must_use]
    pub fn actors(&self) -> (ActorRef<SupervisorMsg>, Arc<Services>) {
        (self.remote.supervisor.clone(), self.remote.services.clone())
    }

    /// A way to steer the run.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// The run's events from the first on, as they become durable, until the run has ended.
    ///
    /// # Errors
    /// When the journal cannot be opened.
    pub fn follow(&self) -> Result<Follower, JournalError> {
        Follower::new(self.dir.clone(), Until::RunEnds)
    }

    /// As [`follow`](Self::follow), from the first event on that this process recorded.
    ///
    /// # Errors
    /// When the journal cannot be opened.
    pub fn follow_new(&self) -> Result<Follower, JournalError> {
        Follower::open_at(self.dir.clone(), self.began, Until::RunEnds)
    }

    /// Waits for the end and closes the journal.
    pub async fn wait(self) -> RunEnd {
        let end = self.end.await;
        let end = end.unwrap_or_else(|_| RunEnd::Broken("the supervisor crashed".to_owned()));
        // The supervisor stops its children; what does not end in time ends with the process.
        let (supervisor, writer) = self.tasks;
        let _ = tokio::time::timeout(LAST_WORDS, supervisor).await;
        drop(self.control);
        if self.writer.send_message(TranscriptWriterMsg::Close).is_ok() {
            let _ = tokio::time::timeout(LAST_WORDS, writer).await;
        }
        if let RunEnd::Completed(_) = end {
            // Every result is recorded by now.
            let store = Store::new(self.dir.spool(), self.dir.results());
            let _ = tokio::task::spawn_blocking(move || Spool::of(&store).clear()).await;
        }
        end
    }
}

impl Remote {
    /// Stops the run, a task, or an agent with its children; false when there is no such target.
    pub async fn cancel(&self, target: CancelTarget, reason: &str) -> bool {
        let reason = reason.to_owned();
        self.ask(|request| SupervisorMsg::Cancel { request, target, reason }).await
    }

    /// Asks an agent to compact at its next turn boundary; false when it is not at work.
    pub async fn compact(&self, agent: AgentId, focus: Option<String>) -> bool {
        self.ask(|request| SupervisorMsg::Compact { request, agent, focus }).await
    }

    /// Asks the supervisor; false when it is gone.
    async fn ask(&self, question: impl FnOnce(u64) -> SupervisorMsg) -> bool {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let answer = self.services.requests.expect(request);
        if self.supervisor.send_message(question(request)).is_err() {
            return false;
        }
        tokio::select! {
            answer = answer.wait() => answer.unwrap_or(false),
            // One that ends meanwhile answers nobody.
            () = self.supervisor_gone() => false,
        }
    }

    async fn supervisor_gone(&self) {
        // The wait fails only when the actor is gone already.
        let _ = self.supervisor.wait(None).await;
    }

    /// Stops the run so that it can be resumed: no new work, and what runs gets its grace.
    pub fn interrupt(&self, reason: &str) {
        let reason = reason.to_owned();
        // A run that is over needs no interruption.
        let _ = self.supervisor.send_message(SupervisorMsg::Interrupt { reason });
    }
}

/// The settings of a run's decisions.
fn machine_settings(
    run: RunId,
    plan: Plan,
    config: &Config,
    keep_going: bool,
) -> run_machine::Settings {
    let agents = config.agents.iter().map(|(name, spec)| (name.clone(), Arc::new(spec.clone())));
    run_machine::Settings {
        run,
        workflow: config.name.clone(),
        inputs: config.inputs.clone(),
        plan,
        limits: limits(config, keep_going),
        agents: agents.collect(),
        models: config.models.clone(),
        env: config.env.clone(),
        pid: std::process::id(),
    }
}

/// The ceilings of a run.
fn limits(config: &Config, keep_going: bool) -> Limits {
    Limits { fail_fast: config.limits.fail_fast && !keep_going, ..config.limits }
}

fn plan_of(config: &Config, options: &Options) -> Result<Plan, StartError> {
    let plan = Plan::new(config.tasks.clone()).map_err(|problems| {
        let first = problems.into_iter().next();
        first.map_or(StartError::Actor("no plan".to_owned()), StartError::Plan)
    })?;
    let mut targets = options.tasks.clone();
    if targets.is_empty() {
        targets = config.entry.iter().map(ToString::to_string).collect();
    }
    Ok(if targets.is_empty() { plan } else { plan.only(&targets)? })
}

/// Does what waits for the disk; lost only when the runtime shuts down.
async fn blocking<T: Send + 'static, E: From<JournalError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(JournalError::Closed.into()))
}

fn created(config: &Config, options: &Options, plan: &Plan, run: RunId) -> RunCreated {
    RunCreated {
        run,
        workflow: config.name.clone(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        file: config.file.clone(),
        config: config.text.clone(),
        files: config.files.clone(),
        config_hash: blake3::hash(config.text.as_bytes()).to_hex().to_string(),
        profile: config.profile.clone(),
        inputs: Json::encode(&config.inputs),
        settings: config.settings.clone(),
        keep_going: options.keep_going,
        overrides: BTreeMap::new(),
        forked: None,
        tasks: planned(plan),
    }
}

/// A configuration and a plan as a run records that it goes on with them.
fn accepted(config: &Config, plan: &Plan) -> Accepted {
    Accepted {
        config: config.text.clone(),
        files: config.files.clone(),
        config_hash: blake3::hash(config.text.as_bytes()).to_hex().to_string(),
        inputs: Json::encode(&config.inputs),
        settings: config.settings.clone(),
        tasks: planned(plan),
    }
}

/// The tasks of a plan as they are recorded.
fn planned(plan: &Plan) -> Vec<PlannedTask> {
    let tasks = plan.tasks().iter().map(|task| PlannedTask {
        name: task.name.clone(),
        agent: match &task.work {
            Work::Agent { agent, .. } => Some(agent.clone()),
            Work::Command { .. } => None,
        },
        depends_on: task.depends_on.clone(),
    });
    tasks.collect()
}
