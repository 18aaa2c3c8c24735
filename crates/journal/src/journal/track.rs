//! The fold of a journal, with the places of the records that are needed again: those of the agents
//! that have not ended.
//!
//! Pure. The fold gives the same state whether it starts with the journal or with a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::{Event, SharedRecord};
use crate::id::{AgentId, CallKey, Name};
use crate::journal::agent_records::AgentRecords;
use crate::journal::line::Position;
use crate::journal::source::{BatchPlace, RecordedRun};
use crate::own_tool;
use crate::plan::TaskState;
use crate::run_machine;
use crate::run_state::{IllegalRecord, RunState};

/// The folded state of a journal so far, and its open agents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tracker {
    state: RunState,
    open: BTreeMap<AgentId, Track>,
    /// The agents of tasks that have ended and whose conversation can continue, or whose attempt has
    /// not ended, and their children that may begin another round.
    ended: BTreeMap<AgentId, Track>,
}

/// An agent that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Track {
    /// The batches that hold records of the agent.
    batches: Vec<BatchPlace>,
    /// The calls without a result that delegate a task to a child agent.
    delegations: BTreeSet<CallKey>,
}

/// The data needed to resume an agent.
#[derive(Clone, Debug)]
pub struct ResumeData {
    /// Number of the first record of the first batch that holds a record of it.
    pub first: u64,
    /// True if it waits for child agents.
    pub waits: bool,
    /// Its records.
    pub records: AgentRecords,
}

impl ResumeData {
    /// Returns the part that the run machine needs to decide.
    #[must_use]
    pub fn for_machine(&self) -> run_machine::UnfinishedAgent {
        run_machine::UnfinishedAgent { first: self.first, waits: self.waits }
    }
}

impl Tracker {
    /// Returns the state of the run so far.
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Returns the state of the run so far, and drops the rest.
    #[must_use]
    pub fn into_state(self) -> RunState {
        self.state
    }

    /// Folds the records of the batch that begins at `at`. The position is needed because the first
    /// line of a batch may be one that this program does not know.
    ///
    /// # Errors
    /// Returns an error if a record cannot follow the earlier ones.
    pub fn apply(&mut self, at: Position, records: &[SharedRecord]) -> Result<(), IllegalRecord> {
        let place = (at.offset, at.seq);
        for record in records {
            self.state.apply(record)?;
            let Some(id) = &record.agent else {
                record.task.iter().for_each(|task| self.forget_agent_of(task));
                continue;
            };
            match &record.event {
                Event::AgentEnded(_) => {
                    let agent = self.state.agents().get(id);
                    // A further round may follow any answer, until the attempt ends.
                    let may_go_on = agent.is_some_and(|agent| {
                        let has_form = agent.wanted.as_ref().is_some_and(|it| it.schema.is_some());
                        agent.parent.is_none() || agent.may_go_on || has_form
                    });
                    let mut track = self.open.remove(id).filter(|_| may_go_on);
                    if let Some(track) = &mut track
                        && track.batches.last() != Some(&place)
                    {
                        track.batches.push(place);
                    }
                    self.ended.extend(track.map(|track| (id.clone(), track)));
                    continue;
                }
                Event::AgentRestarted(_) => {
                    self.open.extend(self.ended.remove_entry(id));
                }
                _ => {}
            }
            let track = self
                .open
                .entry(id.clone())
                .or_insert_with(|| Track { batches: Vec::new(), delegations: BTreeSet::new() });
            if track.batches.last() != Some(&place) {
                track.batches.push(place);
            }
            match &record.event {
                Event::ToolIntended(intended) if own_tool::waits_for_children(&intended.name) => {
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

    /// Forgets the agent of a task's latest attempt once that has ended, if its conversation cannot
    /// continue.
    fn forget_agent_of(&mut self, task: &Name) {
        let task = self.state.task(task).filter(|task| task.state != TaskState::Running);
        let Some(id) = task.and_then(|task| task.agent.as_ref()) else { return };
        let below = self.ended.range(AgentId::from_text(&format!("{id}/"))..);
        let below = below.map(|(child, _)| child).take_while(|child| child.is_within(id));
        for child in below.cloned().collect::<Vec<_>>() {
            self.ended.remove(&child);
        }
        let outcome = self.state.agents().get(id).and_then(|agent| agent.outcome.as_ref());
        if outcome.is_some_and(|outcome| !outcome.can_continue()) {
            self.ended.remove(id);
        }
    }

    /// Returns the data needed to resume the agents that have not ended; the records are those of `run`.
    #[must_use]
    pub fn unfinished(&self, run: &RecordedRun) -> BTreeMap<AgentId, ResumeData> {
        let unfinished = self.open.iter().map(|(id, track)| {
            let (run, agent, batches) = (run.clone(), id.clone(), track.batches.clone());
            let data = ResumeData {
                first: batches.first().map_or(0, |(_, seq)| *seq),
                waits: !track.delegations.is_empty(),
                records: AgentRecords::Stored { run, agent, batches },
            };
            (id.clone(), data)
        });
        unfinished.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Draft, RunPaused};
    use crate::journal::JournalError;
    use crate::journal::line::{Batch, Framer, write_body};
    use crate::journal::samples::spawned;
    use crate::journal::samples::turn;
    use crate::journal::source::RunSource;
    use crate::journal::testing::NewRun;

    #[test]
    fn an_agent_is_found_behind_a_line_that_nobody_knows() {
        let dir = NewRun::unmade();
        std::fs::create_dir(dir.path()).unwrap();
        let paused = RunPaused { reason: "x".to_owned(), cause: Default::default() };
        let (mut bytes, mut crc) = (Vec::new(), Position::START.crc);
        let batches =
            [vec![Draft::run(paused)], vec![turn("a", 1), spawned("Hello"), turn("a", 2)]];
        let mut first = Position::START.seq;
        for drafts in batches {
            let last = first + drafts.len() as u64 - 1;
            let mut framer = Framer::new(Batch { first, last, epoch: 1, ts_ms: 5 }, crc);
            for mut draft in drafts {
                let mut body = Vec::new();
                write_body(&mut draft, &mut body);
                let body = String::from_utf8(body).unwrap().replace("turn.started", "later.on");
                framer.write(body.as_bytes(), &mut bytes);
            }
            (first, crc) = (last + 1, framer.crc());
        }
        std::fs::write(dir.journal(), bytes).unwrap();
        let mut tracker = Tracker::default();
        let run: &dyn RunSource = &*dir;
        run.walk(Position::START, None, |at, records| Ok(tracker.apply(at, records)?)).unwrap();
        let unfinished = tracker.unfinished(&(&*dir).into());
        assert_eq!(unfinished.len(), 1);
        let mut seen = Vec::new();
        for data in unfinished.values() {
            let each = |record: &SharedRecord| -> Result<(), JournalError> {
                seen.push(record.seq);
                Ok(())
            };
            data.records.for_each(each).unwrap();
        }
        assert_eq!(seen, [3]);
    }
}
