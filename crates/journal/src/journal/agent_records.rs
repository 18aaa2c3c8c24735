//! The records of one agent: held in memory, or read from the journal batch by batch.
//!
//! Reading batch by batch keeps memory small: an agent with a long past needs only the memory of
//! the state that its records fold to.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::disk::NamedFile;
use crate::event::SharedRecord;
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::line::{self, Fault, Position};
use crate::journal::reader::batch_of;
use crate::journal::refusal::Refusal;

/// Bytes read from the journal at once: enough for several neighbouring batches of one agent.
const CHUNK: usize = 64 * 1024;

/// The place of a batch in a journal: its offset in bytes, and the number of its first record.
pub type BatchPlace = (u64, u64);

/// All records of one agent.
#[derive(Clone, Debug)]
pub enum AgentRecords {
    /// The records are in memory.
    Held(Vec<SharedRecord>),
    /// The records are in these batches of this journal.
    Stored {
        /// The path of the journal.
        path: PathBuf,
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
    /// Gives the records to `each`, oldest first. Stored records are read from disk, which blocks
    /// the thread.
    ///
    /// # Errors
    /// Returns the first error of `each`, or an error if the journal cannot be read.
    pub fn for_each<E: From<JournalError>>(
        &self,
        mut each: impl FnMut(&SharedRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Held(records) => records.iter().try_for_each(each),
            Self::Stored { path, agent, batches } => {
                let file = NamedFile::open(path);
                let file = file.map_err(|error| JournalError::cannot("open", path, &error))?;
                let mut input = BufReader::with_capacity(CHUNK, file);
                let mut at = 0;
                for place in batches {
                    let (records, end) = read(&mut input, at, *place, agent)?;
                    at = end;
                    records.iter().try_for_each(&mut each)?;
                }
                Ok(())
            }
        }
    }
}

/// Reads and verifies the agent's records of one batch. `at` is the current offset of `input`; the
/// number returned is its offset after the read.
fn read(
    input: &mut BufReader<NamedFile>,
    at: u64,
    (offset, seq): BatchPlace,
    agent: &AgentId,
) -> Result<(Vec<SharedRecord>, u64), JournalError> {
    let io = JournalError::read;
    let before = offset.saturating_sub(line::TAIL as u64);
    // Within the read buffer `seek_relative` only moves an index, while `seek` would drop the
    // buffer.
    match i64::try_from(before).ok().zip(i64::try_from(at).ok()) {
        Some((to, from)) => input.seek_relative(to - from).map_err(io)?,
        None => drop(input.seek(SeekFrom::Start(before)).map_err(io)?),
    }
    let mut crc = 0;
    if offset > 0 {
        let mut tail = [0; line::TAIL];
        input.read_exact(&mut tail).map_err(io)?;
        let recorded = line::recorded_crc(&tail);
        crc = recorded.ok_or_else(|| {
            let line = seq.saturating_sub(1);
            Refusal { offset: before, line, why: Fault::Unsealed.into() }
        })?;
    }
    let from = Position { seq, crc, epoch: 0, offset };
    let (records, end) = batch_of(&mut *input, from, agent)?;
    Ok((records, end.offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::file::RunDir;
    use crate::journal::reader::{Reader, agent_records};
    use crate::journal::samples::turn;

    #[tokio::test]
    async fn stored_records_are_those_of_the_whole_journal() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let journal = dir.create().unwrap().start_writer(Position::START, Vec::new()).unwrap();
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
            let (path, mut given) = (dir.journal(), Vec::new());
            let mut stored = AgentRecords::Stored { path, agent: agent.clone(), batches };
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
