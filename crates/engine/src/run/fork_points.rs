//! The places at which a run can be forked: the ends of events after which the work of a task
//! stands whole.
//!
//! Reads the journal and writes nothing.

use std::collections::{HashMap, HashSet};

use crate::event::{Event, Record, SharedRecord};
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::journal::source::{Cursor, RunSource};
use crate::own_tool::OwnTool;
use crate::turn::{Outcome, Program};

/// The event at which a fork can begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkEvent {
    /// An attempt of the task began.
    Started(u32),
    /// An agent has the results of all tools of a turn.
    Turn(AgentId, u32),
    /// The task completed.
    Completed,
}

/// A place at which a run can be forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkPoint {
    /// Number of the last record that both runs share.
    pub seq: u64,
    /// Time of that record, in milliseconds since the Unix epoch.
    pub ts_ms: i64,
    /// The task.
    pub task: Name,
    /// The event that the record ends.
    pub event: ForkEvent,
}

/// Returns the places at which a run can be forked, oldest first. Blocks.
///
/// # Errors
/// Returns an error if the journal cannot be read.
pub fn fork_points(run: &dyn RunSource) -> Result<Vec<ForkPoint>, JournalError> {
    let (mut points, mut turns) = (Vec::<ForkPoint>::new(), HashMap::new());
    each_batch(run, |records| {
        // Batches are shared whole, so a fork begins behind the last record of one.
        let Some(last) = records.last().map(|record| record.seq) else { return };
        for record in records {
            let Some((task, event)) = point_of(record) else { continue };
            // Of the results of a turn, the last one counts.
            if let ForkEvent::Turn(agent, turn) = &event
                && let Some(at) = turns.insert((agent.clone(), *turn), points.len())
            {
                points[at].seq = 0;
            }
            points.push(ForkPoint { seq: last, ts_ms: record.ts_ms, task, event });
        }
    })?;
    points.retain(|point| point.seq > 0);
    Ok(points)
}

/// Returns the number of the last record before the failure of a task after which the work of its
/// latest attempt stands whole. Blocks.
///
/// # Errors
/// Returns an error if the journal cannot be read.
pub fn before_failure(run: &dyn RunSource, task: &Name) -> Result<Option<u64>, JournalError> {
    let (mut good, mut failed, mut commands) = (HashMap::new(), None, HashSet::new());
    each_batch(run, |records| {
        let Some(last) = records.last().map(|record| record.seq) else { return };
        for record in records.iter().filter(|record| record.task.as_ref() == Some(task)) {
            let agent = record.agent.as_ref();
            match (&record.event, agent) {
                (Event::AgentSpawned(spawned), Some(agent)) => {
                    if let Program::Command(_) = spawned.program {
                        commands.insert(agent.clone());
                    }
                    good.insert(agent.clone(), last);
                }
                // The end of a command, or the giving up, is the failure itself.
                (Event::ToolFinished(finished), Some(agent))
                    if finished.name != OwnTool::GiveUp.name() && !commands.contains(agent) =>
                {
                    good.insert(agent.clone(), last);
                }
                (Event::AgentEnded(ended), Some(agent)) if agent.is_main_of(task) => {
                    failed = match ended.outcome {
                        Outcome::Completed { .. } => None,
                        Outcome::Failed { .. } | Outcome::Cancelled { .. } => {
                            good.get(agent).copied().filter(|seq| *seq < last)
                        }
                    };
                }
                _ => {}
            }
        }
    })?;
    Ok(failed)
}

fn point_of(record: &Record) -> Option<(Name, ForkEvent)> {
    let task = record.task.clone()?;
    let event = match (&record.event, &record.agent) {
        (Event::TaskStarted(started), None) => ForkEvent::Started(started.attempt),
        (Event::TaskCompleted(_), None) => ForkEvent::Completed,
        (Event::ToolFinished(finished), Some(agent)) if agent.is_main_of(&task) => {
            ForkEvent::Turn(agent.clone(), finished.turn)
        }
        _ => return None,
    };
    Some((task, event))
}

fn each_batch(
    run: &dyn RunSource,
    mut each: impl FnMut(&[SharedRecord]),
) -> Result<(), JournalError> {
    let mut batches = run.batches(Cursor::START)?;
    while let Some(records) = batches.next_batch()? {
        each(&records);
    }
    Ok(())
}
