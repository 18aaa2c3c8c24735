//! The records of one agent: held in memory, or read from the journal batch by batch.
//!
//! Reading batch by batch keeps memory small: an agent with a long past needs only the memory of
//! the state that its records fold to.

use crate::event::SharedRecord;
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::source::{BatchPlace, RecordedRun};

/// All records of one agent.
#[derive(Clone, Debug)]
pub enum AgentRecords {
    /// The records are in memory.
    Held(Vec<SharedRecord>),
    /// The records are in these batches of this run.
    Stored {
        /// The run.
        run: RecordedRun,
        /// The agent.
        agent: AgentId,
        /// The batches that hold records of the agent, in order.
        batches: Vec<BatchPlace>,
    },
}

impl From<Vec<SharedRecord>> for AgentRecords {
    fn from(records: Vec<SharedRecord>) -> Self {
        Self::Held(records)
    }
}

impl AgentRecords {
    /// Gives the records to `each`, oldest first. Reading stored records blocks the thread.
    ///
    /// # Errors
    /// Returns the first error of `each`, or an error if the records cannot be read.
    pub fn for_each<E: From<JournalError>>(
        &self,
        mut each: impl FnMut(&SharedRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Held(records) => records.iter().try_for_each(each),
            Self::Stored { run, agent, batches } => {
                for records in run.batches_at(agent, batches)? {
                    records?.iter().try_for_each(&mut each)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::reader::{Reader, agent_records};
    use crate::journal::samples::turn;
    use crate::journal::testing::NewRun;

    #[tokio::test]
    async fn stored_records_are_those_of_the_whole_journal() {
        let (dir, _owned, journal) = NewRun::written(Vec::new());
        for number in 0..60 {
            let drafts = match number % 3 {
                0 => vec![turn("a", number)],
                1 => (0..40).map(|part| turn("b", part)).collect(),
                _ => vec![turn("b", number), turn("a", number), turn("a", number + 1)],
            };
            journal.append(drafts).await.unwrap();
        }
        journal.close().await;
        for agent in ["a", "b"].map(AgentId::from_text) {
            let mut reader = Reader::open(&dir.journal()).unwrap();
            let mut batches = Vec::new();
            loop {
                let at = reader.position();
                let Some(records) = reader.next_batch().unwrap() else { break };
                if records.iter().any(|record| record.agent.as_ref() == Some(&agent)) {
                    batches.push((at.offset, at.seq));
                }
            }
            let (run, mut given) = ((&*dir).into(), Vec::new());
            let mut stored = AgentRecords::Stored { run, agent: agent.clone(), batches };
            let give = |record: &SharedRecord| {
                given.push(record.clone());
                Ok::<_, JournalError>(())
            };
            stored.for_each(give).unwrap();
            assert_eq!(given, agent_records(&dir.journal(), &agent).unwrap());

            let AgentRecords::Stored { batches, .. } = &mut stored else { unreachable!() };
            batches[1].0 += 1;
            let refused = stored.for_each(|_| Ok::<_, JournalError>(()));
            assert!(matches!(refused, Err(JournalError::Refused(_))), "{refused:?}");
        }
    }
}
