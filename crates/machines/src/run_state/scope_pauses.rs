//! The parts of a run that a person paused, as its records tell, and the time that they take.
//!
//! A pause holds for a scope and all below it. Time in which a task or an agent is paused counts against no limit: for
//! a task or an agent its stopwatch stands still, for the whole run the clock does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{Event, Record};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::spec::budget::Scope;

/// The parts of a run that a person paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopePauses {
    paused: BTreeMap<Scope, ScopePause>,
    /// When each scope was last paused or let go on, in milliseconds since the Unix epoch.
    changed_ms: BTreeMap<Scope, i64>,
}

/// A pause of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopePause {
    /// Why, in the words of the person.
    pub reason: Option<String>,
    /// Who paused it, as `user@host/pid`.
    pub by: String,
    /// Number of the record.
    pub seq: u64,
    /// Time of the record, in milliseconds since the Unix epoch.
    pub ts_ms: i64,
}

impl ScopePauses {
    fn note(&mut self, record: &Record) {
        let scope = match &record.event {
            Event::ScopePaused(paused) => {
                let (reason, by) = (paused.reason.clone(), paused.by.clone());
                let pause = ScopePause { reason, by, seq: record.seq, ts_ms: record.ts_ms };
                // Who pauses again what is paused changes nothing.
                self.paused.entry(paused.scope.clone()).or_insert(pause);
                &paused.scope
            }
            Event::ScopeUnpaused(unpaused) => {
                self.paused.remove(&unpaused.scope);
                &unpaused.scope
            }
            _ => return,
        };
        self.changed_ms.insert(scope.clone(), record.ts_ms);
    }

    /// Returns true if nothing is paused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paused.is_empty()
    }

    /// Returns the pause of a scope itself.
    #[must_use]
    pub fn get(&self, scope: &Scope) -> Option<&ScopePause> {
        self.paused.get(scope)
    }

    /// Returns all pauses: that of the run first, then by task and by agent.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, &ScopePause)> {
        self.paused.iter()
    }

    /// Returns when a scope was last paused or let go on, in milliseconds since the Unix epoch; 0 for never.
    #[must_use]
    pub fn changed_ms(&self, scope: &Scope) -> i64 {
        self.changed_ms.get(scope).copied().unwrap_or(0)
    }
}

/// Returns true if a task belongs to a scope.
#[must_use]
pub fn is_task_in(scope: &Scope, name: &Name) -> bool {
    match scope {
        Scope::Run => true,
        Scope::Task(of) => name.is_part_of(of),
        Scope::Agent(_) => false,
    }
}

impl RunState {
    /// Returns the parts of the run that a person paused.
    #[must_use]
    pub fn scope_pauses(&self) -> &ScopePauses {
        &self.scope_pauses
    }

    /// Returns true if an agent belongs to a scope.
    #[must_use]
    pub fn is_agent_in(&self, scope: &Scope, id: &AgentId) -> bool {
        match scope {
            Scope::Run => true,
            Scope::Task(name) => {
                self.agents.get(id).is_some_and(|agent| agent.task.is_part_of(name))
            }
            Scope::Agent(of) => {
                let parent =
                    |id: &&AgentId| self.agents.get(*id).and_then(|agent| agent.parent.as_ref());
                // No agent has more ancestors than there are agents, whatever a journal says.
                let mut around = std::iter::successors(Some(id), parent).take(self.agents.len());
                around.any(|one| one == of)
            }
        }
    }

    /// Returns a pause that holds for an agent, the widest if there are several.
    #[must_use]
    pub fn pause_of_agent(&self, id: &AgentId) -> Option<(&Scope, &ScopePause)> {
        self.scope_pauses.iter().find(|(scope, _)| self.is_agent_in(scope, id))
    }

    /// Returns a pause that holds for a task, the widest if there are several.
    #[must_use]
    pub fn pause_of_task(&self, name: &Name) -> Option<(&Scope, &ScopePause)> {
        self.scope_pauses.iter().find(|(scope, _)| is_task_in(scope, name))
    }

    /// Returns true if a pause holds for a task or for its main agent: its time does not count.
    #[must_use]
    pub fn is_task_paused(&self, name: &Name) -> bool {
        let main = || self.tasks.get(name).and_then(|task| task.agent.as_ref());
        !self.scope_pauses.is_empty()
            && (self.pause_of_task(name).is_some()
                || main().is_some_and(|id| self.pause_of_agent(id).is_some()))
    }

    /// Takes in a record, and stops or starts the stopwatches of what it pauses or lets go on.
    pub(super) fn note_pause(&mut self, record: &Record) {
        let is_change = matches!(record.event, Event::ScopePaused(_) | Event::ScopeUnpaused(_));
        let begins = matches!(record.event, Event::TaskStarted(_) | Event::AgentSpawned(_));
        if !is_change && !(begins && !self.scope_pauses.is_empty()) {
            return;
        }
        self.scope_pauses.note(record);
        let now = self.clock.reading();
        let running = self.tasks.iter().filter(|(_, task)| task.state == TaskState::Running);
        let tasks: Vec<_> =
            running.map(|(name, _)| (name.clone(), self.is_task_paused(name))).collect();
        for (name, is_paused) in tasks {
            let Some(task) = self.tasks.get_mut(&name) else { continue };
            match is_paused {
                true => [&mut task.whole, &mut task.latest].map(|watch| watch.stop(now)),
                false => [&mut task.whole, &mut task.latest].map(|watch| watch.resume(now)),
            };
        }
        let open = self.agents.iter().filter(|(_, agent)| agent.outcome.is_none());
        let agents: Vec<_> =
            open.map(|(id, _)| (id.clone(), self.pause_of_agent(id).is_some())).collect();
        for (id, is_paused) in agents {
            let Some(agent) = self.agents.get_mut(&id) else { continue };
            match is_paused {
                true => agent.paused.resume(now),
                false => agent.paused.stop(now),
            }
        }
    }
}
