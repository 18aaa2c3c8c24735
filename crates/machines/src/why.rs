//! Why something waits, failed, was skipped or cancelled: a pure function of the fold of a run.
//!
//! It reads the records alone, so the answer is the same for a live run, a dead one, a copy, and for the past (a fold
//! up to an earlier record). `ps`, `show`, `pending`, `report`, `resume --explain` and the status area take the first
//! link from here, so that they cannot differ. The words are made in `show/why.rs` of the engine.
//!
//! - `relation`: the closed list of relations;
//! - `waits`: what holds up a task or an agent that has not ended; `stopped`: what holds up the run as a whole;
//! - `ends`: why something ended as it did; `money`: budgets that are used up;
//! - `weights`: which of several causes binds; `chain`: the links down to the root;
//! - `bill`: where the money went.
//!
//! [`Relation::LoopStopped`] has no rule yet. It belongs in `limited` (`ends.rs`), which reads it from the failure of
//! an agent that went in circles.

mod bill;
mod chain;
mod ends;
mod money;
mod relation;
mod stopped;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod waits;
mod weights;

use std::cell::OnceCell;

use ahash::HashMap;

pub use self::bill::{Bill, Item, Purpose};
pub use self::chain::{Chain, Step};
use self::money::Spenders;
pub use self::relation::{Link, Relation, Subject};
use self::weights::Weights;
use crate::event::PlannedTask;
use crate::id::{AgentId, Name};
use crate::run_machine::lines::Lines;
use crate::run_state::{AgentStatus, Moment, RunState, TaskStatus};

/// Answers why, for one state of a run at one time.
#[derive(Debug)]
pub struct Why<'a> {
    state: &'a RunState,
    is_live: bool,
    now_ms: i64,
    // Each of these reads the whole run, and most questions need none of them.
    planned: OnceCell<HashMap<&'a str, &'a PlannedTask>>,
    lines: OnceCell<Lines>,
    weights: OnceCell<Weights<'a>>,
    working: OnceCell<Vec<AgentId>>,
    spenders: OnceCell<Spenders>,
}

impl<'a> Why<'a> {
    /// Prepares answers about a state. `is_live` tells if a process drives the run; `now_ms` is the wall time, in
    /// milliseconds since the Unix epoch.
    #[must_use]
    pub fn of(state: &'a RunState, is_live: bool, now_ms: i64) -> Self {
        let (planned, lines) = (OnceCell::new(), OnceCell::new());
        let (weights, working, spenders) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { state, is_live, now_ms, planned, lines, weights, working, spenders }
    }

    /// Returns the causes of a subject, the binding one first; none if it has completed, waits for nothing, or does
    /// not exist.
    #[must_use]
    pub fn causes(&self, subject: &Subject) -> Vec<Link> {
        let (found, is_open) = match subject {
            Subject::Run => return self.of_run(),
            Subject::Task(name) => match self.state.task(name) {
                Some(task) => (self.of_task(name, task), !task.state.is_end()),
                None => return Vec::new(),
            },
            Subject::Agent(id) => match self.state.agents().get(id) {
                Some(agent) => (self.of_agent(id, agent), agent.outcome.is_none()),
                None => return Vec::new(),
            },
        };
        match is_open {
            true => self.with_stop(subject, found),
            false => found,
        }
    }

    /// Returns the binding cause of a subject: the first link of its chain.
    #[must_use]
    pub fn first(&self, subject: &Subject) -> Option<Link> {
        self.causes(subject).into_iter().next()
    }

    fn of_task(&self, name: &Name, task: &TaskStatus) -> Vec<Link> {
        match task.state.is_end() {
            true => self.ended_task(name, task),
            false => self.open_task(name, task),
        }
    }

    fn of_agent(&self, id: &AgentId, agent: &AgentStatus) -> Vec<Link> {
        match &agent.outcome {
            Some(outcome) => self.ended_agent(id, agent, outcome),
            None => self.open_agent(id, agent),
        }
    }

    fn planned(&self, name: &Name) -> Option<&'a PlannedTask> {
        let planned = self.planned.get_or_init(|| {
            let planned = self.state.created().map(|created| &*created.tasks).unwrap_or_default();
            planned.iter().map(|task| (task.name.as_str(), task)).collect()
        });
        planned.get(name.of_instance().unwrap_or(name.as_str())).copied()
    }

    fn lines(&self) -> &Lines {
        self.lines.get_or_init(|| Lines::of(self.state, self.now_ms))
    }

    /// Returns the tasks before a task that have not ended.
    fn open_before(&self, name: &Name) -> Vec<&'a Name> {
        if name.of_instance().is_some() {
            // An instance begins with its fan-out.
            return Vec::new();
        }
        let before = self.planned(name).map(|task| task.depends_on.as_slice()).unwrap_or_default();
        before.iter().filter(|name| self.is_open(name)).collect()
    }

    fn is_open(&self, name: &Name) -> bool {
        self.state.task(name).is_some_and(|task| !task.state.is_end())
    }
}

/// Makes a link.
fn link(subject: Subject, relation: Relation, since: Moment) -> Link {
    Link { subject, relation, since }
}
