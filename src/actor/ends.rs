//! The ends of agents that have no actor: recorded for them, with nothing started.
//!
//! Reads their records and decides nothing: who is meant, and why, is said by the caller. Blocks.

use std::collections::BTreeMap;

use crate::event::{Draft, Event, SharedRecord};
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::track::Left;
use crate::run_state::{AgentStatus, RunState};
use crate::turn::{AgentEnded, Outcome};
use crate::turn_machine::Machine;

/// An agent without an end and without an actor.
#[derive(Clone, Debug)]
pub struct Idle {
    /// The task it worked for.
    pub task: Name,
    /// The agent.
    pub agent: AgentId,
    /// Its records, if they are at hand.
    pub left: Option<Left>,
}

/// The ends of those agents that have none, children first.
#[must_use]
pub fn ends_of_agents(
    state: &RunState,
    left: &BTreeMap<AgentId, Left>,
    reason: &str,
    is_meant: impl Fn(&AgentId, &AgentStatus) -> bool,
) -> Vec<Draft> {
    let open = state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
    let mut meant: Vec<_> = open.filter(|(id, agent)| is_meant(id, agent)).collect();
    meant.sort_by_key(|(_, agent)| std::cmp::Reverse(agent.depth));
    let idle = meant.into_iter().map(|(id, agent)| Idle {
        task: agent.task.clone(),
        agent: id.clone(),
        left: left.get(id).cloned(),
    });
    idle.flat_map(|idle| idle.end(reason)).collect()
}

impl Idle {
    /// Its end, after what answers the calls that it leaves open.
    #[must_use]
    pub fn end(&self, reason: &str) -> Vec<Draft> {
        let events = ended(self.left.as_ref(), reason).into_iter();
        events.map(|event| Draft::agent(&self.task, &self.agent, event)).collect()
    }
}

fn ended(left: Option<&Left>, reason: &str) -> Vec<Event> {
    let mut machine = None;
    let fold = |record: &SharedRecord| -> Result<(), Unfit> {
        match (&mut machine, &record.event) {
            (None, Event::AgentSpawned(spawned)) => {
                machine = Some(Machine::new(spawned.clone(), u32::MAX));
                Ok(())
            }
            (None, _) => Err(Unfit),
            (Some(machine), event) => machine.apply(event).map_err(|_| Unfit),
        }
    };
    // An agent whose records stop to make sense ends all the same.
    let _ = left.map(|left| left.records.for_each(fold));
    let outcome = Outcome::Cancelled { reason: reason.to_owned() };
    let Some(machine) = machine else {
        let ended = AgentEnded { outcome, turns: 0, usage: Default::default() };
        return vec![ended.into()];
    };
    let mut events: Vec<Event> = machine.closings().into_iter().map(Event::from).collect();
    let (turns, usage) = (machine.replies(), machine.usage());
    events.push(AgentEnded { outcome, turns, usage }.into());
    events
}

/// The records of an agent cannot be folded further.
struct Unfit;

impl From<JournalError> for Unfit {
    fn from(_: JournalError) -> Self {
        Self
    }
}
