//! Records the ends of agents that have no actor, without starting anything.
//!
//! The caller decides which agents end and with which outcome. Calls that had begun are looked up
//! as for an agent that resumes; calls that are still open then are closed without a result of
//! their own.

use std::cmp::Reverse;

use super::lost_calls::{self, Begun, Traces};
use super::services::Services;
use super::step::forget_results;
use super::work::{self, Helper};
use crate::crash::{self, Point};
use crate::event::{Draft, Event};
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::agent_records::AgentRecords;
use crate::tool::survey::watch::Watch;
use crate::turn::{AgentEnded, Outcome};
use crate::turn_machine::Machine;

/// An agent without an actor, whose end is not recorded yet.
#[derive(Clone, Debug)]
pub struct Idle {
    agent: AgentId,
    task: Name,
    depth: u32,
    records: AgentRecords,
    outcome: Outcome,
}

impl Idle {
    /// Makes the entry of an agent that works for `task` at this delegation depth, with its records
    /// and the outcome that is to be recorded.
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

    /// Makes the events that end the agent: first the results of its open calls, then its end.
    fn end(mut self, traces: &Traces) -> Result<Vec<Draft>, JournalError> {
        let mut events = Vec::new();
        let (mut turns, mut usage, mut shortfalls) = Default::default();
        if let Some((mut machine, begun)) = fold(&self.records)? {
            if machine.is_ended() {
                // Its actor gave its end to the journal before it was gone.
                return Ok(Vec::new());
            }
            let lost = begun.lost(&machine);
            let found = lost_calls::results(traces, &self.agent, machine.turn(), lost);
            for event in found.into_iter().map(Event::from) {
                // The machine refuses a result only if the records contradict each other.
                if machine.apply(&event).is_ok() {
                    events.push(event);
                }
            }
            events.extend(machine.closings().into_iter().map(Event::from));
            (turns, usage) = (machine.replies(), machine.usage());
            shortfalls = machine.shortfalls().clone();
            self.outcome = machine.salvaged(self.outcome);
        }
        let ended = AgentEnded {
            outcome: self.outcome,
            turns,
            usage,
            shortfalls,
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        };
        events.push(ended.into());
        let draft = |event| Draft::agent(&self.task, &self.agent, event);
        Ok(events.into_iter().map(draft).collect())
    }
}

/// Makes the events that end these agents, children first: an agent has ended only when every agent
/// below it has. Blocks: waits for processes and reads files.
///
/// # Errors
/// Returns an error if the records of an agent cannot be read.
pub fn ends(traces: &Traces, mut idle: Vec<Idle>) -> Result<Vec<Draft>, JournalError> {
    idle.sort_by_key(|idle| Reverse(idle.depth));
    let mut drafts = Vec::new();
    for idle in idle {
        drafts.extend(idle.end(traces)?);
    }
    crash::pass(Point::BeforeRepair);
    Ok(drafts)
}

/// Records the ends of these agents, children first, as one batch.
///
/// # Errors
/// Returns an error if the journal failed.
pub(super) async fn record(services: &Services, idle: Vec<Idle>) -> Result<(), JournalError> {
    let (traces, watch) = (Traces::of(services), services.surroundings.watch.clone());
    let drafts = work::blocking(Helper::IdleCalls, move || {
        let mut drafts = ends(&traces, idle)?;
        tell_of_changes(&watch, &mut drafts);
        Ok(drafts)
    });
    let drafts = drafts.await;
    let drafts = drafts.unwrap_or(Err(JournalError::Closed))?;
    let records = services.journal.append(drafts).await?;
    forget_results(services.store.clone(), &records);
    Ok(())
}

/// Adds to the ends of agents what changed while they worked. Nobody knows which of them changed it, so
/// the first end that is recorded tells of it.
fn tell_of_changes(watch: &Watch, drafts: &mut [Draft]) {
    for draft in drafts {
        let Some(agent) = draft.agent.as_ref().filter(|agent| watch.concerns(agent)) else {
            continue;
        };
        if let Event::AgentEnded(ended) = &mut draft.event {
            ended.run_by_others = watch.ended(Some(agent));
            ended.run_by_others_incomplete = watch.is_incomplete();
        }
    }
}

/// Folds an agent's records up to the first one that cannot follow the others: such an agent must
/// end all the same. Returns `None` if it has no `agent.spawned` record.
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
