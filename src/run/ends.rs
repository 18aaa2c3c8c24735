//! The ends of agents that no process drives: recorded for them, with nothing started.
//!
//! Reads their records and decides nothing: who is meant, and why, is said by the caller.

use crate::actor::supervisor::Left;
use crate::event::{Draft, Event, SharedRecord};
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::track::Left as LeftAgent;
use crate::run_state::{AgentStatus, RunState};
use crate::turn::{AgentEnded, Outcome};
use crate::turn_machine::Machine;

/// The ends of those agents that have none, children first.
pub(super) fn ends_of_agents(
    state: &RunState,
    left: &Left,
    reason: &str,
    is_meant: impl Fn(&AgentId, &AgentStatus) -> bool,
) -> Vec<Draft> {
    let open = state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
    let mut meant: Vec<_> = open.filter(|(id, agent)| is_meant(id, agent)).collect();
    meant.sort_by_key(|(_, agent)| std::cmp::Reverse(agent.depth));
    let ends = meant.into_iter().flat_map(|(id, agent)| {
        let events = ended(left.get(id), reason);
        events.into_iter().map(|event| Draft::agent(&agent.task, id, event)).collect::<Vec<_>>()
    });
    ends.collect()
}

/// The end of an agent, after what answers the calls that it leaves open.
fn ended(left: Option<&LeftAgent>, reason: &str) -> Vec<Event> {
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
