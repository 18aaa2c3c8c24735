//! Starts a run, follows it, stops it and waits for its end: the public entry for applications.
//!
//! Turns a checked configuration into actors. Owns no state that the actors own, and prints
//! nothing.

pub mod answers;
mod cancel;
mod commands;
pub mod connect;
pub mod control;
pub mod delta_feed;
mod fork;
pub mod fork_points;
mod gathered;
mod git_folders;
mod included;
mod judging;
mod launch;
mod linked;
mod opening;
mod others;
mod planner;
pub mod prune;
mod remote;
mod resume;
pub mod resume_forecast;
pub mod sandbox;
mod services;
mod settings;
#[cfg(test)]
mod simulation;
pub mod unused_keys;
pub mod values;
mod walked;
mod wall;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::delta_feed::DeltaFeed;
use self::opening::Opening;
use self::settings::{Flags, machine_settings};

use crate::actor::mail::SupervisorMsg;
use crate::actor::services::Services;
use crate::actor::supervisor::{Start, Supervisor};
use crate::actor::transcript_writer::{self, TranscriptWriter, TranscriptWriterMsg};
use crate::config::{Config, Diagnostics};
use crate::event::{Accepted, PlannedTask, RunCreated};
use crate::id::{Name, RunId};
use crate::journal::JournalError;
use crate::journal::follow::Follower;
use crate::journal::line::Position;
use crate::journal::live::Live;
use crate::journal::local::LocalArchive;
use crate::journal::refusal::{Refusal, Why};
use crate::journal::snapshot::Snapshots;
use crate::journal::source::{Archive, Cursor, RecordedRun, drivable};
use crate::message::Json;
use crate::model::Client;
use crate::person::{Asker, Watcher};
use crate::plan::{Plan, PlanError, TaskState};
use crate::run_machine::{self, RunMachine};
use crate::run_state::{IllegalRecord, RunPhase, RunState, TaskStatus};
use crate::spec::sandbox::SandboxProof;
use crate::tool::Tool;
use crate::tool::spool::Spool;
use crate::tool::under_way::UnderWay;

pub use self::fork::{ForkError, fork};
pub use self::launch::Launch;
pub use self::opening::StoppedRun;
pub use self::remote::Remote;
pub use self::services::front;
pub use crate::actor::run_end::{Completed, RunEnd};
pub use crate::run_machine::{CancelTarget, GivenUp};

/// Maximum time that the supervisor, and then the transcript writer, may take to end once the run
/// is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Options of a run that is started or resumed.
#[derive(Default)]
pub struct Options {
    /// The tasks to run, with their dependencies. Empty: the configuration's `entry`, or else all.
    pub tasks: Vec<String>,
    /// Id of the run. `None`: a new id is made.
    pub run_id: Option<RunId>,
    /// True if tasks that do not depend on a failed task still run.
    pub keep_going: bool,
    /// True if a run in which anything was left undone counts as completed only in part.
    pub strict: bool,
    /// The run whose results are reused where a task is made from the same content.
    pub reuse: Option<RecordedRun>,
    /// Tools in addition to the built-in ones.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Models that the program provides, by their name in the configuration.
    pub models: BTreeMap<Name, Arc<dyn Client>>,
    /// Answers permission questions, and a run with one stays open while nothing but people is left
    /// to wait for. `None`: the key `non_interactive` of `[permissions]` decides.
    pub asker: Option<Arc<dyn Asker>>,
    /// True if the run stays open for the answers of people without an asker too.
    pub stays_open: bool,
    /// Cancels the run as it is resumed, for this reason: only what cleans up runs.
    pub cancelled: Option<String>,
    /// What is not tried again as the run is resumed, because the supervisor crashed over it: its task fails.
    pub given_up: Option<GivenUp>,
    /// Watches the replies of models while they arrive.
    pub watcher: Option<Arc<dyn Watcher>>,
    /// Program that runs commands for this one. Its `main` must first call
    /// [`wrapper::serve_if_asked`](crate::tool::wrapper::serve_if_asked). `None`: this program, if
    /// it has made that call. Without either, commands run in this process: if it is killed, they
    /// may keep running and their results are lost, so that a resumed run does not know their
    /// outcome.
    pub wrapper: Option<PathBuf>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

/// Reasons why a run could not be started. Nothing was spent.
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
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The recorded output of a task does not have the format that is set for it now, and a later
    /// task reads it.
    #[error("task `{task}`: {reason}")]
    Output {
        /// The task whose output it is.
        task: Name,
        /// What is wrong with it.
        reason: String,
    },
    /// A provider's client or a script could not be made.
    #[error("provider `{provider}`: {reason}")]
    Provider {
        /// The provider.
        provider: Name,
        /// The reason.
        reason: String,
    },
    /// The configuration requires a sandbox, and there can be none here.
    #[error("no sandbox: {0}")]
    Sandbox(String),
    /// The sandbox could not be tried: a disk is full, for example. Nothing is known about this machine.
    #[error("the sandbox: {0}")]
    Untried(String),
    /// An actor could not be started.
    #[error("an actor could not be started: {0}")]
    Actor(String),
}

impl From<ractor::SpawnErr> for StartError {
    fn from(error: ractor::SpawnErr) -> Self {
        Self::Actor(error.to_string())
    }
}

/// A run that this process drives.
#[derive(Debug)]
pub struct Run {
    id: RunId,
    recorded: RecordedRun,
    /// Position in the journal at which this process began to record.
    began: Position,
    /// The followers in this process.
    live: Live,
    /// The texts of models and lines of commands, for those in this process.
    feed: Arc<DeltaFeed>,
    remote: Remote,
    writer: ActorRef<TranscriptWriterMsg>,
    end: oneshot::Receiver<RunEnd>,
    /// The tokio tasks of the supervisor and of the transcript writer.
    tasks: (JoinHandle<()>, JoinHandle<()>),
    control: Option<control::Listener>,
    sandbox: Option<SandboxProof>,
}

impl Run {
    /// Checks the options against the configuration, makes the run directory and starts the
    /// actors. When it returns, `run.created` is durable.
    ///
    /// # Errors
    /// Returns an error if the run cannot be started; nothing was spent then.
    pub async fn start(config: Config, options: Options) -> Result<Self, StartError> {
        let archive = LocalArchive::named(config.state_dir.clone());
        let id = options.run_id.unwrap_or_else(|| archive.next_id());
        let plan = plan_of(&config, &options)?;
        let parts = services::Prepared::prepare(&config, &options).await?;
        let run = archive.run(id);
        let mut created = created(&config, &options, &plan, id);
        let (keeping, file) = (config.keeping, config.file.clone());
        let reuse = options.reuse.clone();
        let opening = blocking(move || {
            if let Some(from) = &reuse {
                drivable(&**from)?.refuse_unsafe()?;
                let (state, read) = from.state(|_| {});
                read?;
                created.earlier = state.reusable_results();
            }
            let opening = Opening::create(run, created)?;
            if let Some(from) = &reuse {
                opening.owned.take_results(&from.results_place())?;
            }
            prune::at_start(&archive, keeping, &file);
            Ok::<_, StartError>(opening)
        });
        let opening = opening.await?;
        // Boxed, because the future of whoever starts a run holds this one: it grew beyond the stack of a thread.
        Box::pin(Self::launch(config, options, plan, parts, opening)).await
    }

    async fn launch(
        config: Config,
        options: Options,
        plan: Plan,
        parts: services::Prepared,
        opening: Opening,
    ) -> Result<Self, StartError> {
        let Opening { recorded, owned, at, tracker, projection, answers, lost, .. } = opening;
        let Opening { id, values, mut drafts, .. } = opening;
        let here = drivable(&*recorded)?;
        let snapshots = Snapshots::new(here.saved_folds(), at, tracker.clone(), projection);
        // A process that is stopped says so.
        let after_death = tracker.state().phase() == RunPhase::Open;
        let (observer, feed) = transcript_writer::feed();
        let live = Live::default();
        let observers = (snapshots, observer, live.observer());
        let started = transcript_writer::State::start(owned, at, observers)?;
        let journal = started.journal();
        let (writer, writer_task) = Actor::spawn(None, TranscriptWriter, started).await?;
        parts.sandbox.add_to(&mut drafts, &config, &services::variables_of_commands(&config));
        let tracker = opening::record(&journal, drafts, at, tracker).await?;
        let unfinished = tracker.unfinished(&recorded);
        let mut state = tracker.into_state();

        let (mut gateways, sandbox) = (parts.gateways.clone(), parts.sandbox.proof.clone());
        services::close_quotas(&mut gateways, state.quotas());
        let deltas = DeltaFeed::new(options.watcher.clone());
        let watcher = deltas.clone();
        let proposed = state.proposed_plans();
        let services =
            parts.into_services(&config, &options, (id, here), journal, proposed, watcher)?;
        let under_way = UnderWay::new(here.under_way(), after_death);
        let (lost, under_way) = (Arc::new(lost), Arc::new(under_way));
        let changed_files = state.take_files().into();
        let services = Arc::new(Services { lost, under_way, changed_files, ..services });
        let settings =
            machine_settings((id, recorded.results_place()), plan, &config, Flags::from(&options));
        let attended = options.asker.is_some() || options.stays_open;
        let settings = run_machine::Settings { attended, ..settings };
        let for_machine =
            unfinished.iter().map(|(id, data)| (id.clone(), data.for_machine())).collect();
        let seed = fastrand::u64(..);
        let (cancelled, given_up) = (options.cancelled.clone(), options.given_up.clone());
        let start = run_machine::Start {
            state,
            unfinished: for_machine,
            outputs: values,
            answers,
            cancelled,
            given_up,
            seed,
        };
        let machine = Box::new(RunMachine::new(settings, start));
        let supervisor = Supervisor { services: services.clone(), gateways };
        let (reply, end) = oneshot::channel();
        let start = Start { machine, unfinished, feed, end: reply };
        let (supervisor, supervisor_task) = Actor::spawn(None, supervisor, start).await?;
        let remote = Remote::new(supervisor, services);
        let written: Vec<_> =
            [&config.root].into_iter().chain(&config.sandbox.writable_roots).cloned().collect();
        let control = match control::Listener::open(
            here.folder(),
            &written,
            remote.clone(),
            deltas.clone(),
        ) {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::warn!(%error, "no control socket: `cancel` and `compact` will not reach this run");
                None
            }
        };
        let tasks = (supervisor_task, writer_task);
        Ok(Self {
            id,
            recorded,
            began: at,
            live,
            feed: deltas,
            remote,
            writer,
            end,
            tasks,
            control,
            sandbox,
        })
    }

    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Returns the run as its records tell of it.
    #[must_use]
    pub fn recorded(&self) -> &RecordedRun {
        &self.recorded
    }

    /// Returns the run's supervisor and the handles of its actors, for tests that make actors fail.
    #[doc(hidden)]
    #[must_use]
    pub fn actors(&self) -> (ActorRef<SupervisorMsg>, Arc<Services>) {
        self.remote.actors()
    }

    /// Returns the sandbox of the run's commands, if they have one or should have one.
    #[must_use]
    pub fn sandbox(&self) -> Option<&SandboxProof> {
        self.sandbox.as_ref()
    }

    /// Returns a handle that steers the run.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Returns what gives records, texts of models and lines of commands to those in this process.
    pub(crate) fn feeds(&self) -> (Live, Arc<DeltaFeed>) {
        (self.live.clone(), self.feed.clone())
    }

    /// Returns the place at which this process began to record.
    #[doc(hidden)]
    #[must_use]
    pub fn began(&self) -> Cursor {
        self.began.into()
    }

    /// Returns the run's events from the first on, as they become durable, until the run has ended.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be opened.
    pub fn follow(&self) -> Result<Follower, JournalError> {
        Ok(Follower::new(self.recorded.clone())?.listening(&self.live))
    }

    /// Waits for the end of the run, closes the journal, and returns how the run ended.
    pub async fn wait(self) -> RunEnd {
        let end = self.end.await;
        let end = end.unwrap_or_else(|_| RunEnd::Broken("the supervisor crashed".to_owned()));
        // The supervisor stops its children; an actor that does not end in time ends with the
        // process.
        let (supervisor, writer) = self.tasks;
        let _ = tokio::time::timeout(LAST_WORDS, supervisor).await;
        drop(self.control);
        if self.writer.send_message(TranscriptWriterMsg::Close).is_ok() {
            let _ = tokio::time::timeout(LAST_WORDS, writer).await;
        }
        if let RunEnd::Completed(_) = end {
            // Every result is recorded by now.
            let recorded = self.recorded;
            let clear = move || recorded.drivable().map(|run| Spool::of(&run.store()).clear());
            let _ = tokio::task::spawn_blocking(clear).await;
        }
        end
    }
}

/// Returns the plan of the tasks that the options name, or of `entry`, or of all tasks.
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

/// Returns the plan of a run whose record lists these tasks.
///
/// # Errors
/// Returns an error if the list is not whole: a record of somebody else may say anything.
fn recorded_plan(config: &Config, options: &Options) -> Result<Plan, StartError> {
    let plan = plan_of(config, options)?;
    let listed: HashSet<&str> = options.tasks.iter().map(String::as_str).collect();
    match plan.tasks().iter().find(|task| !listed.contains(task.name.as_str())) {
        None => Ok(plan),
        Some(task) => {
            let reason = format!("run.created: its list of tasks lacks `{}`", task.name);
            let why = Why::Illegal(reason);
            Err(JournalError::from(Refusal { offset: 0, line: 1, why }).into())
        }
    }
}

/// Checks that each attempt at work has its agent: both are recorded together, and without one the run would wait
/// for ever.
///
/// # Errors
/// Returns an error that names the record.
fn attempts_are_whole(state: &RunState) -> Result<(), StartError> {
    let lacks = |(_, task): &(&Name, &TaskStatus)| {
        let agent = task.agent.as_ref().filter(|_| task.state == TaskState::Running);
        agent.is_some_and(|agent| state.agents().get(agent).is_none())
    };
    match state.tasks().find(lacks) {
        None => Ok(()),
        Some((name, task)) => {
            let reason = format!("task.started: the agent of `{name}` is not recorded");
            let (line, why) = (task.began_seq, Why::Illegal(reason));
            Err(JournalError::from(Refusal { offset: 0, line, why }).into())
        }
    }
}

/// Does work that waits for the disk on a thread of its own. Returns an error if the work panics or
/// the runtime shuts down.
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
        config: config.text.as_str().into(),
        files: config.files.clone(),
        config_hash: blake3::hash(config.text.as_bytes()).to_hex().to_string(),
        profile: config.profile.clone(),
        plan: config.plan.clone(),
        proposed: Vec::new(),
        inputs: Json::encode(&config.inputs),
        settings: config.settings.clone(),
        keep_going: options.keep_going,
        strict: options.strict,
        earlier: BTreeMap::new(),
        overrides: config.set.clone(),
        forked: None,
        tasks: planned(plan),
    }
}

/// Returns the record of a changed configuration and plan with which a run resumes.
fn accepted(config: &Config, plan: &Plan) -> Accepted {
    Accepted {
        config: config.text.as_str().into(),
        files: config.files.clone(),
        config_hash: blake3::hash(config.text.as_bytes()).to_hex().to_string(),
        inputs: Json::encode(&config.inputs),
        settings: config.settings.clone(),
        tasks: planned(plan),
    }
}

/// Returns the tasks of a plan in the form in which they are recorded.
fn planned(plan: &Plan) -> Arc<[PlannedTask]> {
    plan.tasks().iter().map(PlannedTask::from).collect()
}
