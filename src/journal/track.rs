//! The fold of a journal with the places of what is needed again: the records of agents that have
//! not ended.
//!
//! Pure. The same fold whether it begins with the journal or with a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::{Event, SharedRecord};
use crate::id::{AgentId, CallKey};
use crate::journal::agent_records::{AgentRecords, BatchPlace};
use crate::run_state::{IllegalRecord, RunState};

/// What a journal tells so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tracker {
    state: RunState,
    open: BTreeMap<AgentId, Track>,
}

/// An agent that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Track {
    /// The batches with records of it.
    batches: Vec<BatchPlace>,
    /// The calls without a result that give a job to a child.
    delegations: BTreeSet<CallKey>,
}

/// What is needed to bring an agent back.
#[derive(Clone, Debug)]
pub struct Left {
    /// The number of the first record of its first batch.
    pub first: u64,
    /// Whether it waits for children.
    pub waits: bool,
    /// Its records.
    pub records: AgentRecords,
}

impl Tracker {
    /// The run so far.
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Takes in the records of a batch that begins at `offset`.
    ///
    /// # Errors
    /// When one cannot follow what was recorded before it.
    pub fn apply(&mut self, offset: u64, records: &[SharedRecord]) -> Result<(), IllegalRecord> {
        let Some(first) = records.first() else { return Ok(()) };
        let place = (offset, first.seq);
        for record in records {
            self.state.apply(record)?;
            let Some(id) = &record.agent else { continue };
            if matches!(record.event, Event::AgentEnded(_)) {
                self.open.remove(id);
                continue;
            }
            let track = self
                .open
                .entry(id.clone())
                .or_insert_with(|| Track { batches: Vec::new(), delegations: BTreeSet::new() });
            if track.batches.last() != Some(&place) {
                track.batches.push(place);
            }
            match &record.event {
                Event::ToolIntended(intended) if intended.name == "delegate" => {
                    track.delegations.insert(intended.key.clone());
                }
                Event::ToolFinished(finished) => {
                    track.delegations.remove(&finished.key);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What is needed to bring the agents back that have not ended.
    #[must_use]
    pub fn left(&self, journal: &Path) -> BTreeMap<AgentId, Left> {
        let left = self.open.iter().map(|(id, track)| {
            let (path, agent, batches) = (journal.to_owned(), id.clone(), track.batches.clone());
            let left = Left {
                first: batches.first().map_or(0, |(_, seq)| *seq),
                waits: !track.delegations.is_empty(),
                records: AgentRecords::Stored { path, agent, batches },
            };
            (id.clone(), left)
        });
        left.collect()
    }
}
