//! The ends of agents that have no actor: recorded for them, with nothing started.
//!
//! Decides nothing: who is meant, and how each ends, is said by the caller. What became of calls
//! that had begun is found out as when an agent comes back; what is open then has no result.

use std::cmp::Reverse;

use super::lost_calls::{self, Begun, Traces};
use super::services::Services;
use super::step::forget_results;
use crate::crash::{self, Point};
use crate::event::{Draft, Event};
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::agent_records::AgentRecords;
use crate::turn::{AgentEnded, Outcome};
use crate::turn_machine::Machine;

/// An agent without an end and without an actor.
#[derive(Clone, Debug)]
pub struct Idle {
    agent: AgentId,
    task: Name,
    depth: u32,
    records: AgentRecords,
    outcome: Outcome,
}

impl Idle {
    /// An agent that works for `task` at this delegation depth, with its records and the outcome
    /// that is to be recorded.
    #[must_use]
    pub fn new(
        agent: AgentId,
        task: Name,
        depth: u32,
        records: AgentRecords,
        outcome: Outcome,
    ) -> Self {
        Self { agent, task, depth, records, outcome }
    }

    /// Its end, after what answers the calls that it leaves open.
    fn end(self, traces: &Traces) -> Result<Vec<Draft>, JournalError> {
        let mut events = Vec::new();
        let (mut turns, mut usage) = Default::default();
        if let Some((mut machine, begun)) = fold(&self.records)? {
            if machine.is_ended() {
                // The last thing that its actor gave to the journal.
                return Ok(Vec::new());
            }
            let lost = begun.lost(&machine);
            let found = lost_calls::results(traces, machine.turn(), lost);
            for event in found.into_iter().map(Event::from) {
                // It is refused only where the records make no sense.
                if machine.apply(&event).is_ok() {
                    events.push(event);
                }
            }
            events.extend(machine.closings().into_iter().map(Event::from));
            (turns, usage) = (machine.replies(), machine.usage());
        }
        events.push(AgentEnded { outcome: self.outcome, turns, usage }.into());
        let draft = |event| Draft::agent(&self.task, &self.agent, event);
        Ok(events.into_iter().map(draft).collect())
    }
}

/// The ends of these agents, children first. Waits for processes and reads files.
///
/// # Errors
/// When their records cannot be read.
pub fn ends(traces: &Traces, mut idle: Vec<Idle>) -> Result<Vec<Draft>, JournalError> {
    idle.sort_by_key(|idle| Reverse(idle.depth));
    let mut drafts = Vec::new();
    for idle in idle {
        drafts.extend(idle.end(traces)?);
    }
    crash::pass(Point::BeforeRepair);
    Ok(drafts)
}

/// Records the ends of these agents, children first.
///
/// # Errors
/// When the journal failed.
pub(super) async fn record(services: &Services, idle: Vec<Idle>) -> Result<(), JournalError> {
    let traces = Traces::of(services);
    let drafts = tokio::task::spawn_blocking(move || ends(&traces, idle)).await;
    // Lost only when the runtime shuts down.
    let drafts = drafts.unwrap_or(Err(JournalError::Closed))?;
    let records = services.journal.append(drafts).await?;
    forget_results(services.store.clone(), &records);
    Ok(())
}

/// What an agent's records fold to, as far as they make sense: it ends all the same.
fn fold(records: &AgentRecords) -> Result<Option<(Machine, Begun)>, JournalError> {
    let mut folded: Option<(Machine, Begun)> = None;
    let mut makes_sense = true;
    records.for_each(|record| -> Result<(), JournalError> {
        match (&mut folded, &record.event) {
            (None, Event::AgentSpawned(spawned)) => {
                folded = Some((Machine::new(spawned.clone(), u32::MAX), Begun::default()));
            }
            (Some((machine, begun)), event) if makes_sense => {
                begun.note(record);
                makes_sense = machine.apply(event).is_ok();
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(folded)
}
