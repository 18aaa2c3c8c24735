//! The state of a run: the fold of its journal.
//!
//! Pure, and the same code while the run lives and when its directory is read. The supervisor
//! decides by it; `ps`, `show`, `graph` and `cost` print it.

mod agent;
mod clock;
mod task;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::agent::{AgentStatus, Doing};
use self::clock::Clock;
pub use self::clock::{Reading, Stopwatch};
pub use self::task::TaskStatus;
use crate::event::{
    Accepted, Event, PlannedTask, Record, RunCompleted, RunCreated, RunStatus, TaskEnd,
};
use crate::failure::FailureKind;
use crate::id::{AgentId, CallKey, Name};
use crate::message::Usage;
use crate::output::Output;
use crate::plan::{Standing, TaskState};
use crate::turn::Program;

/// How the run as a whole stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunPhase {
    /// It can go on.
    #[default]
    Open,
    /// It stopped before its end.
    Paused,
    /// It ended.
    Completed(RunStatus),
}

/// What an agent that has not ended is to its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It works at the latest attempt.
    AtWork,
    /// It worked at an attempt of which is not known yet whether it goes on.
    Held,
    /// The task has another attempt, or begins anew.
    Superseded,
    /// The task is gone: another configuration does not have it.
    Gone,
}

/// A run as its journal tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    created: Option<RunCreated>,
    clock: Clock,
    /// When what the run's time limit counts began.
    began: Reading,
    phase: RunPhase,
    order: Vec<Name>,
    tasks: HashMap<Name, TaskStatus>,
    agents: BTreeMap<AgentId, AgentStatus>,
    by_call: HashMap<CallKey, AgentId>,
    /// The results under earlier configurations, by the key of what they were made from.
    earlier: HashMap<String, Output>,
    paused_reason: Option<String>,
    completed: Option<RunCompleted>,
    last_seq: u64,
    last_ms: i64,
    epoch: u64,
}

/// An event that cannot follow what was recorded before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq} ({kind}) cannot follow what stands before it: {reason}")]
pub struct IllegalRecord {
    /// The record's number.
    pub seq: u64,
    /// Its type.
    pub kind: &'static str,
    /// Why it cannot follow.
    pub reason: String,
}

impl RunState {
    /// How the run was created, once it is known.
    #[must_use]
    pub fn created(&self) -> Option<&RunCreated> {
        self.created.as_ref()
    }

    /// What the run's clock shows: it stands while nobody drives the run, and while it is paused.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.clock.reading()
    }

    /// How much of its time limit the run has used: the time for which it was open, since another
    /// configuration was last accepted if one was.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.reading().since(self.began)
    }

    /// How the run stands.
    #[must_use]
    pub fn phase(&self) -> RunPhase {
        self.phase
    }

    /// The result, once there is one.
    #[must_use]
    pub fn completed(&self) -> Option<&RunCompleted> {
        self.completed.as_ref()
    }

    /// Why the run is paused, if it is.
    #[must_use]
    pub fn paused_reason(&self) -> Option<&str> {
        self.paused_reason.as_deref()
    }

    /// The tasks in the order of the plan.
    pub fn tasks(&self) -> impl Iterator<Item = (&Name, &TaskStatus)> {
        self.order.iter().filter_map(|name| self.tasks.get_key_value(name))
    }

    /// The task of that name.
    #[must_use]
    pub fn task(&self, name: &Name) -> Option<&TaskStatus> {
        self.tasks.get(name)
    }

    /// The agents by id.
    #[must_use]
    pub fn agents(&self) -> &BTreeMap<AgentId, AgentStatus> {
        &self.agents
    }

    /// The child that a call asked for.
    #[must_use]
    pub fn child_of_call(&self, call: &CallKey) -> Option<&AgentId> {
        self.by_call.get(call)
    }

    /// The result that was made from this under an earlier configuration.
    #[must_use]
    pub fn earlier_result(&self, key: &str) -> Option<&Output> {
        self.earlier.get(key)
    }

    /// The latest record taken in.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The opening of the run that made the latest record, from 1.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// When the latest record was made, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn last_ms(&self) -> i64 {
        self.last_ms
    }

    /// How a task stands as a dependency.
    #[must_use]
    pub fn standing(&self, name: &Name) -> Standing {
        let Some(task) = self.tasks.get(name) else { return Standing::Open };
        match task.state {
            TaskState::Pending | TaskState::Ready | TaskState::Running | TaskState::Waiting => {
                Standing::Open
            }
            TaskState::Completed | TaskState::Reused => Standing::Done,
            TaskState::Failed | TaskState::Cancelled => Standing::Failed,
            TaskState::Skipped if task.because.is_none() => Standing::Done,
            TaskState::Skipped => Standing::SkippedByFailure,
        }
    }

    /// Tokens of all agents.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.agents.values().map(|agent| agent.usage).sum()
    }

    /// What all agents cost; `None` when some call had no price.
    #[must_use]
    pub fn cost_usd(&self) -> Option<f64> {
        total_cost(self.agents.values())
    }

    /// The agent and its children, and theirs: tokens and cost.
    #[must_use]
    pub fn inclusive(&self, agent: &AgentId) -> (Usage, Option<f64>) {
        let prefix = format!("{agent}/");
        let tree = self
            .agents
            .iter()
            .filter(|(id, _)| *id == agent || id.as_str().starts_with(prefix.as_str()));
        let mut usage = Usage::default();
        let mut cost = Some(0.0);
        for (_, status) in tree {
            usage += status.usage;
            cost = cost.zip(status.cost_usd).map(|(a, b)| a + b);
        }
        (usage, cost)
    }

    /// What becomes of an agent that has not ended when a process takes the run up.
    #[must_use]
    pub fn part(&self, id: &AgentId) -> Part {
        let task = self.agents.get(id).and_then(|agent| self.tasks.get(&agent.task));
        let Some(task) = task else { return Part::Gone };
        let is_of_latest = task.agent.as_ref().is_some_and(|main| id.is_within(main));
        match (is_of_latest, task.is_held()) {
            (true, false) => Part::AtWork,
            (true, true) => Part::Held,
            (false, _) => Part::Superseded,
        }
    }

    /// Whether any task stands in this state.
    #[must_use]
    pub fn any(&self, state: TaskState) -> bool {
        self.tasks.values().any(|task| task.state == state)
    }

    /// The result that `run.completed` records, from the tasks' states; `mixed` is the status of a
    /// run in which some tasks completed and some did not.
    #[must_use]
    pub fn result(&self, mixed: RunStatus) -> RunCompleted {
        let count = |wanted: &[Standing]| {
            self.order.iter().filter(|name| wanted.contains(&self.standing(name))).count()
        };
        let has_output =
            |task: &&TaskStatus| matches!(task.state, TaskState::Completed | TaskState::Reused);
        let done = self.tasks.values().filter(has_output).count();
        let status = if count(&[Standing::Done]) == self.order.len() {
            RunStatus::Completed
        } else if mixed == RunStatus::Cancelled || done > 0 {
            mixed
        } else {
            RunStatus::Failed
        };
        let ends = self.tasks().map(|(name, task)| {
            let end = TaskEnd {
                state: task.state,
                output: task.output.as_ref().map(|output| output.text.clone()),
                error: task.failure.clone().filter(|_| task.state == TaskState::Failed),
            };
            (name.to_string(), serde_json::to_value(end).unwrap_or_default())
        });
        RunCompleted {
            status,
            tasks: ends.collect(),
            usage: self.usage(),
            cost_usd: self.cost_usd(),
        }
    }

    /// Takes a record in.
    ///
    /// # Errors
    /// When it cannot follow what was recorded before it.
    pub fn apply(&mut self, record: &Record) -> Result<(), IllegalRecord> {
        // What belongs to another opening does not follow in time: nobody was at work in between.
        if self.phase == RunPhase::Open && record.epoch == self.epoch {
            self.clock.passed(record.ts_ms - self.last_ms);
        }
        let outcome = match (&record.task, &record.agent, &record.event) {
            (_, Some(id), event) => self.apply_agent(record, id, event),
            (Some(task), None, event) => self.apply_task(record, task, event),
            (None, None, event) => self.apply_run(event),
        };
        outcome.map_err(|reason| {
            let (seq, kind) = (record.seq, record.event.kind());
            IllegalRecord { seq, kind, reason }
        })?;
        self.last_seq = record.seq;
        self.last_ms = record.ts_ms;
        self.epoch = record.epoch;
        Ok(())
    }

    fn apply_run(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::RunCreated(created) => {
                if self.created.is_some() {
                    return Err("the run exists already".to_owned());
                }
                self.order = created.tasks.iter().map(|task| task.name.clone()).collect();
                let fresh = self.order.iter().map(|name| (name.clone(), TaskStatus::default()));
                self.tasks = fresh.collect();
                self.created = Some(created.clone());
            }
            Event::RunOpened(opened) => {
                self.phase = RunPhase::Open;
                self.paused_reason = None;
                if let Some(accepted) = &opened.accepted {
                    self.began = self.clock.reading();
                    self.begin_anew(accepted);
                }
            }
            Event::RunPaused(paused) => {
                self.phase = RunPhase::Paused;
                self.paused_reason = Some(paused.reason.clone());
            }
            Event::RunCompleted(completed) => {
                self.phase = RunPhase::Completed(completed.status);
                self.completed = Some(completed.clone());
            }
            _ => {}
        }
        Ok(())
    }

    /// Goes on with another configuration: what was made is kept by what it was made from, and what
    /// is half done until it is known what it would be made from now.
    fn begin_anew(&mut self, accepted: &Accepted) {
        let results = self.tasks.values().filter_map(TaskStatus::result);
        self.earlier.extend(results.map(|(key, output)| (key.to_owned(), output.clone())));
        let mut before = std::mem::take(&mut self.tasks);
        for PlannedTask { name, .. } in &accepted.tasks {
            let held = before.remove(name).and_then(|status| status.held(self.clock.reading()));
            let status = held.unwrap_or_else(|| {
                // The ids of agents are not given twice.
                let mains = self.agents.values().filter(|agent| agent.parent.is_none());
                let made = mains.filter(|agent| agent.task == *name).count();
                let made = u32::try_from(made).unwrap_or(u32::MAX);
                TaskStatus { attempt: made, earlier: made, ..TaskStatus::default() }
            });
            self.tasks.insert(name.clone(), status);
        }
        self.order = accepted.tasks.iter().map(|task| task.name.clone()).collect();
        self.completed = None;
        if let Some(created) = &mut self.created {
            let Accepted { config, files, config_hash, inputs, settings, tasks, .. } =
                accepted.clone();
            created.config = config;
            created.files = files;
            created.config_hash = config_hash;
            created.inputs = inputs;
            created.settings = settings;
            created.tasks = tasks;
        }
    }

    fn apply_task(&mut self, record: &Record, name: &Name, event: &Event) -> Result<(), String> {
        let task = self.tasks.get_mut(name).ok_or_else(|| format!("there is no task `{name}`"))?;
        task.apply(event, record.ts_ms, self.clock.reading())
    }

    fn apply_agent(&mut self, record: &Record, id: &AgentId, event: &Event) -> Result<(), String> {
        if let Event::AgentSpawned(spawned) = event {
            return self.spawned(record, id, spawned);
        }
        let agent = self.agents.get_mut(id).ok_or_else(|| format!("there is no agent `{id}`"))?;
        if agent.outcome.is_some() {
            return Err("the agent has ended".to_owned());
        }
        agent.apply(event, record.ts_ms, self.clock.reading());
        Ok(())
    }

    fn spawned(
        &mut self,
        record: &Record,
        id: &AgentId,
        spawned: &crate::turn::AgentSpawned,
    ) -> Result<(), String> {
        let task = record.task.clone().ok_or("an agent works for a task")?;
        if self.agents.contains_key(id) {
            return Err("the agent exists already".to_owned());
        }
        let definition = match &spawned.program {
            Program::Model { agent, .. } => Some(agent.clone()),
            Program::Command { .. } => None,
        };
        if let Some(parent) = &spawned.parent {
            let parent = self.agents.get_mut(parent).ok_or("its parent does not exist")?;
            if let Some(definition) = &definition {
                *parent.children.entry(definition.clone()).or_default() += 1;
            }
        }
        if let Some(call) = &spawned.call {
            self.by_call.insert(call.clone(), id.clone());
        }
        let status = AgentStatus::new(task, definition, spawned, record.ts_ms);
        self.agents.insert(id.clone(), status);
        Ok(())
    }
}

/// What these agents cost together, in US dollars; `None` when some call had no price.
#[must_use]
pub fn total_cost<'a>(agents: impl IntoIterator<Item = &'a AgentStatus>) -> Option<f64> {
    // Not `sum`: without any item it is -0.0, and is printed so.
    agents.into_iter().try_fold(0.0, |sum, agent| Some(sum + agent.cost_usd?))
}

/// The failures of a run's tasks by kind: what the exit code is made from.
#[must_use]
pub fn failure_kinds(completed: &RunCompleted) -> Vec<FailureKind> {
    let ends = completed.tasks.values().filter_map(|end| {
        serde_json::from_value::<TaskEnd>(end.clone()).ok()?.error.map(|failure| failure.kind)
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_agents_cost_nothing_without_a_sign() {
        let cost = total_cost([]).expect("no call lacks a price");
        assert_eq!(format!("{cost:.4}"), "0.0000");
    }
}
