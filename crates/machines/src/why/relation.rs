//! The closed list of relations between a subject and what it waits for, or why it ended: plain data.
//!
//! The words for people are made in `show/why.rs` of the engine.

use serde::Serialize;

use crate::event::PauseCause;
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::run_state::Moment;
use crate::spec::budget::{Measure, Scope};
use crate::spec::hooks::Hook;
use crate::spec::spawn_rate::SpawnRate;
use crate::turn::{ApprovalKind, Shortfalls};

/// The thing of which is asked why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum Subject {
    /// The run as a whole.
    Run,
    /// A task, or an instance of one.
    Task(Name),
    /// An agent.
    Agent(AgentId),
}

/// One link of a chain: a subject, its relation to what comes next, and the moment since which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The subject.
    pub subject: Subject,
    /// The relation.
    pub relation: Relation,
    /// The record since which it holds.
    pub since: Moment,
}

/// The relation of a subject to what it waits for, works at, or ended by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "relation", rename_all = "snake_case")]
pub enum Relation {
    /// A task must end first.
    WaitsForDependency {
        /// That task.
        of: Name,
    },
    /// Some of several tasks must complete first.
    WaitsForJoin {
        /// Number of them that completed.
        done: usize,
        /// Number that is wanted.
        wanted: usize,
        /// Number of all of them.
        all: usize,
        /// The one of the open ones that is nearest to its end.
        next: Name,
    },
    /// Instances of a fan-out must end first.
    WaitsForInstances {
        /// Number of open ones.
        open: usize,
        /// Number of all.
        all: usize,
        /// One of the open ones: the one that holds the others up longest.
        next: Name,
    },
    /// Another task has a lock.
    WaitsForLock {
        /// The lock.
        lock: Name,
        /// The task that has it.
        holder: Name,
        /// Number of tasks that get it first.
        ahead: usize,
    },
    /// A fan-out has as many instances at work as it may.
    WaitsForTurn {
        /// The task that fans out.
        of: Name,
        /// One of those at work.
        next: Name,
        /// Number of instances that come first.
        ahead: usize,
    },
    /// All slots are taken.
    WaitsForSlot {
        /// Number of tasks that come first.
        ahead: usize,
        /// Number of tasks that wait for one.
        waiting: usize,
        /// The agents that have one, those first that began first: the first of them.
        running: Vec<AgentId>,
        /// Number of agents that have one.
        taken: usize,
    },
    /// A delegated child has not begun: it waits for a slot, or for its place among the children.
    WaitsForStart {
        /// Number of such children.
        children: usize,
    },
    /// A delegated child has not begun: as many have begun in a time as may.
    WaitsForSpawnRate {
        /// Number of such children.
        children: usize,
        /// The limit.
        rate: SpawnRate,
        /// Time from which another one may begin, in milliseconds since the Unix epoch.
        until_ms: i64,
    },
    /// A child must end first.
    WaitsForChild {
        /// The child.
        child: AgentId,
        /// Number of calls that wait for children.
        calls: usize,
    },
    /// A check of the answer must end first.
    WaitsForCheck {
        /// The agent that makes it.
        check: AgentId,
    },
    /// A person must answer.
    WaitsForPerson {
        /// Id of the question.
        id: String,
        /// Its kind.
        asked: ApprovalKind,
        /// What is asked.
        message: String,
    },
    /// A pause between attempts is running.
    WaitsForRetry {
        /// The kind of the failure before it.
        failure: FailureKind,
        /// Number of the next attempt.
        attempt: u32,
        /// Time of the next attempt, in milliseconds since the Unix epoch.
        until_ms: i64,
    },
    /// A provider asked for fewer requests.
    WaitsForRateLimit {
        /// Number of the next attempt.
        attempt: u32,
        /// Time of the next attempt, in milliseconds since the Unix epoch.
        until_ms: i64,
    },
    /// The quota of a provider is used up.
    WaitsForQuota {
        /// The provider.
        provider: Name,
        /// Time at which it is called again, in milliseconds since the Unix epoch.
        until_ms: i64,
        /// The words of the pause.
        reason: String,
    },
    /// The disk is full.
    WaitsForDisk {
        /// The words of the pause.
        reason: String,
    },
    /// The next attempt begins when the run is resumed.
    WaitsForResume {
        /// The kind of the failure before it.
        failure: FailureKind,
    },
    /// A budget is used up, and a person must raise it.
    WaitsForBudget {
        /// The part of the run whose budget it is.
        scope: Scope,
        /// The limit that was reached.
        measure: Measure,
        /// The limit and what is spent of it, in words.
        message: String,
        /// The agents that spent most of it, the dearest first: at most three.
        most_by: Vec<AgentId>,
    },
    /// A person paused it, or a part of the run to which it belongs.
    PausedByPerson {
        /// The part of the run that is paused.
        scope: Scope,
        /// Who paused it, as `user@host/pid`.
        by: String,
        /// Why, in the words of the person.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The tasks before it are decided anew, and its attempt goes on only if its content stays the same.
    WaitsForContent {
        /// The task of the attempt.
        of: Name,
    },
    /// The answer has been given and is judged.
    WaitsForJudgement,
    /// Nothing is missing: the next record decides.
    BeingDecided,
    /// The agent is about to act.
    AboutToAct,
    /// A call of a model is under way.
    InModelCall {
        /// The model.
        model: Option<Name>,
        /// The turn.
        turn: u32,
    },
    /// Tools are running.
    InTool {
        /// Their names.
        tools: Vec<String>,
    },
    /// A summary is being written.
    InCompaction,
    /// A hook of the run is at work.
    InHook {
        /// The hook.
        hook: Hook,
    },
    /// The run was paused.
    PausedBy {
        /// The cause.
        cause: PauseCause,
        /// The words of the pause.
        reason: String,
    },
    /// The process that drove the run is gone, and no record says why.
    NoProcessDrives {
        /// Its id.
        pid: u32,
        /// Who it was, as `user@host/pid`, if that is recorded.
        by: Option<String>,
    },
    /// A condition of the task itself is false.
    SkippedBecause {
        /// The condition.
        reason: String,
    },
    /// The failure of another task keeps it from running.
    BlockedByFailure {
        /// That task.
        of: Name,
    },
    /// It failed.
    FailedBecause {
        /// The kind of the failure.
        failure: FailureKind,
        /// Its message.
        message: String,
        /// What failed first.
        of: Option<Subject>,
    },
    /// It was cancelled.
    CancelledBy {
        /// The reason.
        reason: String,
        /// The task or the agent whose end cancelled it.
        of: Option<Subject>,
    },
    /// It completed, and left work undone.
    PartialBecause {
        /// The work.
        undone: Shortfalls,
    },
    /// A limit ended it.
    LimitedBy {
        /// The kind of the failure.
        failure: FailureKind,
        /// Its message.
        message: String,
        /// What failed first.
        of: Option<Subject>,
        /// The part of the run whose budget was used up, if it was a budget.
        #[serde(skip_serializing_if = "Option::is_none")]
        scope: Option<Scope>,
    },
    /// It went in circles and was ended.
    LoopStopped {
        /// The rule by which that was seen.
        rule: String,
    },
}

impl Relation {
    /// Returns the name of the relation, as JSON has it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::WaitsForDependency { .. } => "waits_for_dependency",
            Self::WaitsForJoin { .. } => "waits_for_join",
            Self::WaitsForInstances { .. } => "waits_for_instances",
            Self::WaitsForLock { .. } => "waits_for_lock",
            Self::WaitsForTurn { .. } => "waits_for_turn",
            Self::WaitsForSlot { .. } => "waits_for_slot",
            Self::WaitsForStart { .. } => "waits_for_start",
            Self::WaitsForSpawnRate { .. } => "waits_for_spawn_rate",
            Self::WaitsForChild { .. } => "waits_for_child",
            Self::WaitsForCheck { .. } => "waits_for_check",
            Self::WaitsForPerson { .. } => "waits_for_person",
            Self::WaitsForRetry { .. } => "waits_for_retry",
            Self::WaitsForRateLimit { .. } => "waits_for_rate_limit",
            Self::WaitsForQuota { .. } => "waits_for_quota",
            Self::WaitsForDisk { .. } => "waits_for_disk",
            Self::WaitsForResume { .. } => "waits_for_resume",
            Self::WaitsForBudget { .. } => "waits_for_budget",
            Self::PausedByPerson { .. } => "paused_by_person",
            Self::WaitsForContent { .. } => "waits_for_content",
            Self::WaitsForJudgement => "waits_for_judgement",
            Self::BeingDecided => "being_decided",
            Self::AboutToAct => "about_to_act",
            Self::InModelCall { .. } => "in_model_call",
            Self::InTool { .. } => "in_tool",
            Self::InCompaction => "in_compaction",
            Self::InHook { .. } => "in_hook",
            Self::PausedBy { .. } => "paused_by",
            Self::NoProcessDrives { .. } => "no_process_drives",
            Self::SkippedBecause { .. } => "skipped_because",
            Self::BlockedByFailure { .. } => "blocked_by_failure",
            Self::FailedBecause { .. } => "failed_because",
            Self::CancelledBy { .. } => "cancelled_by",
            Self::PartialBecause { .. } => "partial_because",
            Self::LimitedBy { .. } => "limited_by",
            Self::LoopStopped { .. } => "loop_stopped",
        }
    }

    /// Returns the subject that comes next in a chain; `None` for a root.
    #[must_use]
    pub fn object(&self) -> Option<Subject> {
        let task = |name: &Name| Some(Subject::Task(name.clone()));
        match self {
            Self::WaitsForDependency { of } | Self::BlockedByFailure { of } => task(of),
            Self::WaitsForJoin { next, .. }
            | Self::WaitsForInstances { next, .. }
            | Self::WaitsForTurn { next, .. } => task(next),
            Self::WaitsForLock { holder, .. } => task(holder),
            Self::WaitsForContent { of } => task(of),
            Self::WaitsForSlot { running, .. } => running.first().cloned().map(Subject::Agent),
            Self::WaitsForChild { child, .. } => Some(Subject::Agent(child.clone())),
            Self::WaitsForCheck { check } => Some(Subject::Agent(check.clone())),
            Self::FailedBecause { of, .. }
            | Self::LimitedBy { of, .. }
            | Self::CancelledBy { of, .. } => of.clone(),
            Self::WaitsForStart { .. }
            | Self::WaitsForSpawnRate { .. }
            | Self::WaitsForPerson { .. }
            | Self::WaitsForRetry { .. }
            | Self::WaitsForRateLimit { .. }
            | Self::WaitsForQuota { .. }
            | Self::WaitsForDisk { .. }
            | Self::WaitsForResume { .. }
            | Self::WaitsForBudget { .. }
            | Self::PausedByPerson { .. }
            | Self::WaitsForJudgement
            | Self::BeingDecided
            | Self::AboutToAct
            | Self::InModelCall { .. }
            | Self::InTool { .. }
            | Self::InCompaction
            | Self::InHook { .. }
            | Self::PausedBy { .. }
            | Self::NoProcessDrives { .. }
            | Self::SkippedBecause { .. }
            | Self::PartialBecause { .. }
            | Self::LoopStopped { .. } => None,
        }
    }
}
