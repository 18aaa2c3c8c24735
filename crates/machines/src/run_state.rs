//! The state of a run: the fold of its journal.
//!
//! Pure. The same code folds the records of a live run and those of a run directory. The supervisor
//! makes its decisions from this state; `ps`, `show`, `graph` and `cost` print it. The supervisor
//! folds only the records that it decides by, so its agents show less of their activity than a fold
//! of the whole journal.

mod agent;
mod begin_again;
pub mod budgets;
mod clock;
mod commands;
mod fan_out;
pub mod files;
mod growth;
mod hooks;
pub mod messages;
mod moment;
pub mod notices;
pub mod questions;
pub mod quotas;
mod result;
mod retry;
mod rounds;
pub mod scope_pauses;
mod spawning;
mod stopping;
mod task;
mod unsettled;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use ahash::{HashMap, RandomState};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

pub use self::agent::{AgentStatus, Doing, ModelPause, Wanted};
use self::budgets::Budgets;
use self::clock::Clock;
pub use self::clock::{Reading, Stopwatch};
use self::commands::Commands;
use self::files::Files;
use self::hooks::Hooks;
pub use self::hooks::{BudgetState, HookState};
use self::messages::Messages;
pub use self::moment::{Moment, Opening};
pub use self::notices::Notice;
use self::notices::Notices;
use self::questions::Questions;
use self::quotas::Quotas;
pub use self::result::failure_kinds;
pub use self::retry::{Retry, RetryError};
use self::scope_pauses::ScopePauses;
pub use self::task::{Kept, TaskStatus};
pub use self::verdict::{Verdict, verdict_of};
use crate::event::{Event, PauseCause, Record, RunCompleted, RunCreated, RunStatus};
use crate::id::{AgentId, CallKey, Name};
use crate::output::Output;
use crate::plan::{Standing, TaskStarted, TaskState};
use crate::spec::budget::Scope;
use crate::spending::Spending;

/// The phase of a run as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunPhase {
    /// Work can continue.
    #[default]
    Open,
    /// It stopped before its end and can be resumed.
    Paused,
    /// It ended.
    Completed(RunStatus),
}

/// The use that a run still has for an agent that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentUse {
    /// It works on its task's latest attempt.
    Current,
    /// It worked on an attempt that resumes only if the accepted configuration makes the task from
    /// the same content.
    Held,
    /// It has no use: its task has another attempt, or starts anew.
    Superseded,
    /// It has no use: the configuration no longer has its task.
    TaskRemoved,
}

/// The state of a run, according to its journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    created: Option<RunCreated>,
    clock: Clock,
    /// The reading of the clock from which the run's time limit counts.
    began: Reading,
    phase: RunPhase,
    order: Vec<Name>,
    /// Dense, because a hash table of values as large as these is nearly half air.
    tasks: IndexMap<Name, TaskStatus, RandomState>,
    /// Number of tasks that have not ended.
    open_tasks: usize,
    /// The task that failed first under the configuration in force.
    first_failed: Option<Name>,
    /// The task whose failure was the first that stops others by its own `on_failure`.
    #[serde(default)]
    stopped_by: Option<Name>,
    agents: BTreeMap<AgentId, AgentStatus>,
    /// Number of agents that have not ended.
    open_agents: usize,
    /// Number of agents that were started by agents, and of agents and further rounds of tasks about
    /// which no person was asked.
    descendants: usize,
    /// The spending of all agents.
    spending: Spending,
    by_call: HashMap<CallKey, AgentId>,
    /// The results made under earlier configurations, by the key of the content that they were made
    /// from.
    earlier: HashMap<String, Output>,
    /// The keys of the contents from which tasks were made whose agents added tasks to the plan.
    #[serde(default)]
    proposers: BTreeSet<String>,
    paused_reason: Option<String>,
    /// The cause of the pause, if the run is paused.
    #[serde(default)]
    paused_cause: Option<PauseCause>,
    /// The questions to people.
    #[serde(default)]
    questions: Questions,
    #[serde(default)]
    commands: Commands,
    /// The files that agents have changed.
    #[serde(default)]
    files: Files,
    #[serde(default)]
    hooks: Hooks,
    #[serde(default)]
    quotas: Quotas,
    #[serde(default)]
    budgets: Budgets,
    #[serde(default)]
    scope_pauses: ScopePauses,
    #[serde(default)]
    messages: Messages,
    #[serde(default)]
    notices: Notices,
    completed: Option<RunCompleted>,
    #[serde(default)]
    opening: Opening,
    #[serde(default)]
    created_at: Moment,
    #[serde(default)]
    phase_since: Moment,
    last_seq: u64,
    last_ms: i64,
    epoch: u64,
}

/// An event that cannot follow the earlier records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq} ({kind}) cannot follow what stands before it: {reason}")]
pub struct IllegalRecord {
    /// Number of the record.
    pub seq: u64,
    /// Name of its event type.
    pub kind: &'static str,
    /// The reason why it cannot follow.
    pub reason: String,
}

impl RunState {
    /// Returns the creation of the run, once it is known.
    #[must_use]
    pub fn created(&self) -> Option<&RunCreated> {
        self.created.as_ref()
    }

    /// Returns the result, once the run has ended.
    #[must_use]
    pub fn completed(&self) -> Option<&RunCompleted> {
        self.completed.as_ref()
    }

    /// Returns the reason for the pause, if the run is paused.
    #[must_use]
    pub fn paused_reason(&self) -> Option<&str> {
        self.paused_reason.as_deref()
    }

    /// Returns the cause of the pause, if the run is paused.
    #[must_use]
    pub fn paused_cause(&self) -> Option<PauseCause> {
        self.paused_cause
    }

    /// Returns the providers whose quota is used up while the run waits for its reset.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Takes out the files that agents have changed, for the agents that will share them.
    pub fn take_files(&mut self) -> Files {
        std::mem::take(&mut self.files)
    }

    /// Returns the tasks in the order of the plan. The instances of a fan-out follow their task.
    pub fn tasks(&self) -> impl Iterator<Item = (&Name, &TaskStatus)> {
        self.written_tasks().flat_map(|(name, task)| {
            let instances = task.instances.iter();
            let instances = instances.filter_map(|(name, _)| self.tasks.get_key_value(name));
            std::iter::once((name, task)).chain(instances)
        })
    }

    /// Returns the tasks of the configuration in the order of the plan, without instances.
    pub fn written_tasks(&self) -> impl Iterator<Item = (&Name, &TaskStatus)> {
        self.order.iter().filter_map(|name| self.tasks.get_key_value(name))
    }

    /// Returns the task with this name.
    #[must_use]
    pub fn task(&self, name: &Name) -> Option<&TaskStatus> {
        self.tasks.get(name)
    }

    /// Returns the agents by id.
    #[must_use]
    pub fn agents(&self) -> &BTreeMap<AgentId, AgentStatus> {
        &self.agents
    }

    /// Returns the child that a call asked for.
    #[must_use]
    pub fn child_of_call(&self, call: &CallKey) -> Option<&AgentId> {
        self.by_call.get(call)
    }

    /// Returns the number of the latest record.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Returns the number of the opening that made the latest record, from 1.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the time of the latest record, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn last_ms(&self) -> i64 {
        self.last_ms
    }

    /// Returns the standing of a task as a dependency of others. A task that is not in the plan is
    /// open.
    #[must_use]
    pub fn standing(&self, name: &Name) -> Standing {
        self.tasks.get(name).map_or(Standing::Open, TaskStatus::standing)
    }

    /// Returns the number of tasks that have not ended.
    #[must_use]
    pub fn open_tasks(&self) -> usize {
        self.open_tasks
    }

    /// Returns the number of agents that have not ended.
    #[must_use]
    pub fn open_agents(&self) -> usize {
        self.open_agents
    }

    /// Returns the number of agents that were started by agents, over the whole run.
    #[must_use]
    pub fn descendants(&self) -> usize {
        self.descendants
    }

    /// Returns the spending of all agents.
    #[must_use]
    pub fn spending(&self) -> Spending {
        self.spending
    }

    /// Returns the spending of an agent and of all agents that work for it.
    #[must_use]
    pub fn inclusive(&self, agent: &AgentId) -> Spending {
        self.agents.get(agent).map(|agent| agent.inclusive).unwrap_or_default()
    }

    /// Returns the use that the run still has for an agent that has not ended.
    #[must_use]
    pub fn agent_use(&self, id: &AgentId) -> AgentUse {
        let task = self.agents.get(id).and_then(|agent| self.tasks.get(&agent.task));
        let Some(task) = task else { return AgentUse::TaskRemoved };
        let is_of_latest = task.agent.as_ref().is_some_and(|main| id.is_within(main));
        match (is_of_latest, task.is_held()) {
            (true, false) => AgentUse::Current,
            (true, true) => AgentUse::Held,
            (false, _) => AgentUse::Superseded,
        }
    }

    /// Returns true if any task has this state.
    #[must_use]
    pub fn any(&self, state: TaskState) -> bool {
        self.tasks.values().any(|task| task.state == state)
    }

    /// Applies a record.
    ///
    /// # Errors
    /// Returns an error if the record cannot follow the earlier ones.
    pub fn apply(&mut self, record: &Record) -> Result<(), IllegalRecord> {
        // Records of different openings say nothing about open time: no process drove the run in
        // between.
        let is_paused = self.scope_pauses.get(&Scope::Run).is_some();
        if self.phase == RunPhase::Open && record.epoch == self.epoch && !is_paused {
            self.clock.passed(record.ts_ms.saturating_sub(self.last_ms));
        }
        if record.epoch != self.epoch {
            self.lose_requests();
        }
        if let Event::HookFinished(finished) = &record.event {
            self.hooks.finished(finished);
        }
        let is_own = record.seq > self.shared_seq();
        if is_own {
            self.hooks.note(record, self.phase, self.paused_cause);
        }
        let outcome = match (&record.task, &record.agent, &record.event) {
            (_, Some(id), event) => self.apply_agent(record, id, event),
            (Some(task), None, event) => self.apply_task(record, task, event),
            (None, None, event) => self.apply_run(record.into(), event),
        };
        outcome.map_err(|reason| {
            let (seq, kind) = (record.seq, record.event.kind());
            IllegalRecord { seq, kind, reason }
        })?;
        self.note_question(record);
        self.note_message(record);
        self.quotas.note(record);
        self.budgets.note(record);
        self.note_pause(record);
        self.notices.note(record, is_own);
        self.last_seq = record.seq;
        self.last_ms = record.ts_ms;
        self.epoch = record.epoch;
        Ok(())
    }

    fn apply_run(&mut self, at: Moment, event: &Event) -> Result<(), String> {
        match event {
            Event::RunCreated(created) => {
                if self.created.is_some() {
                    return Err("the run exists already".to_owned());
                }
                self.order = created.tasks.iter().map(|task| task.name.clone()).collect();
                self.open_tasks = self.order.len();
                let fresh = TaskStatus { since: at, ..TaskStatus::default() };
                self.tasks = self.order.iter().map(|name| (name.clone(), fresh.clone())).collect();
                self.created_at = at;
                self.earlier.extend(created.earlier.clone());
                // They are kept once.
                let earlier = Default::default();
                // Nobody has approved what the first record itself says to have been proposed.
                let proposed = Vec::new();
                self.created = Some(RunCreated { earlier, proposed, ..(**created).clone() });
            }
            Event::RunOpened(opened) => {
                self.phase = RunPhase::Open;
                self.opened_by(opened, at);
                self.paused_reason = None;
                self.paused_cause = None;
                // After a pause the same process goes on with the same sandbox.
                if opened.reason.is_none() {
                    self.commands = Commands::of(opened);
                }
                if let Some(accepted) = &opened.accepted {
                    self.began = self.clock.reading();
                    self.hooks.begin_again();
                    self.begin_anew(accepted, at);
                }
                if !opened.retried.is_empty() {
                    self.began = self.clock.reading();
                    self.hooks.begin_again();
                    self.begin_again(&opened.retried, at)?;
                    self.decide_again(&opened.reopened, at)?;
                    self.wait_again(opened.retried.iter().chain(&opened.reopened));
                }
            }
            Event::HookStarted(started) => {
                self.hooks.started(started);
                self.phase_since = at;
            }
            Event::PlanExtended(extended) => self.extend_plan(at, extended),
            Event::RunPaused(paused) => {
                self.phase = RunPhase::Paused;
                self.phase_since = at;
                self.paused_reason = Some(paused.reason.clone());
                self.paused_cause = Some(paused.cause);
            }
            Event::RunCompleted(completed) => {
                self.phase = RunPhase::Completed(completed.status);
                self.phase_since = at;
                self.completed = Some(completed.clone());
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_task(&mut self, record: &Record, name: &Name, event: &Event) -> Result<(), String> {
        let task = self.tasks.get_mut(name).ok_or_else(|| format!("there is no task `{name}`"))?;
        let (was_open, has_begun) = (!task.state.is_end(), task.state == TaskState::Running);
        let before = task.state;
        task.apply(event, record.ts_ms, self.clock.reading())?;
        if task.state != before {
            task.since = record.into();
        }
        let has_ended = was_open && task.state.is_end();
        if has_ended {
            self.open_tasks = self.open_tasks.saturating_sub(1);
            task.ended_seq = record.seq;
        }
        match event {
            Event::TaskStarted(started) => {
                task.began_seq = record.seq;
                task.items_seen = started.instances.as_ref().and_then(|items| items.seen);
            }
            Event::TaskReady(_) | Event::TaskRetrying(_) => task.ready_seq = record.seq,
            _ => {}
        }
        match event {
            Event::TaskFailed(failed) if name.of_instance().is_none() => {
                self.note_failure(name, failed.consequence);
            }
            Event::TaskStarted(TaskStarted { instances: Some(instances), .. }) => {
                self.fan_out(name, instances, record.into());
            }
            _ => {}
        }
        match has_ended {
            true if has_begun => self.end_instances(name, record.into()),
            true => self.drop_instances(name),
            false => {}
        }
        Ok(())
    }

    fn apply_agent(&mut self, record: &Record, id: &AgentId, event: &Event) -> Result<(), String> {
        if let Event::AgentSpawned(spawned) = event {
            return self.spawned(record, id, spawned);
        }
        let agent = self.agents.get_mut(id).ok_or_else(|| format!("there is no agent `{id}`"))?;
        if agent.outcome.is_some() {
            return match event {
                Event::AgentRestarted(restarted) => match &restarted.feedback {
                    Some(feedback) => self.begin_round(record, id, feedback),
                    None => self.continues(record, id),
                },
                // The run records them, and the agent may have ended meanwhile.
                Event::ApprovalAsked(_)
                | Event::ApprovalAnswered(_)
                | Event::MessageSent(_)
                | Event::MessageReturned(_) => Ok(()),
                _ => Err("the agent has ended".to_owned()),
            };
        }
        let spending = agent.apply(event, record.into(), self.clock.reading());
        self.spent_by(id, spending);
        self.files.note(record);
        if let Event::AgentEnded(_) = event {
            let task = self.agents.get(id).map(|agent| agent.task.clone());
            self.for_each_ancestor(id, |agent| agent.open = agent.open.saturating_sub(1));
            self.open_agents = self.open_agents.saturating_sub(1);
            if let Some(task) = task.and_then(|task| self.tasks.get_mut(&task)) {
                // Its task may have been left out of the plan while it worked, and be in it again.
                task.open_agents = task.open_agents.saturating_sub(1);
            }
        }
        Ok(())
    }
}
