//! Taking a journal up again: reads it to its end, cuts what is torn and keeps what was cut.
//!
//! Owns what may be cut. A batch that was never acknowledged may; what had been acknowledged is cut
//! only where somebody asked for it by number, and only when it cannot be read. What is cut is
//! durable under a name of its own before the journal is made shorter.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::event::SharedRecord;
use crate::journal::file::{OwnedRun, RunDir};
use crate::journal::line::Position;
use crate::journal::reader::Reader;
use crate::journal::{JournalError, stamp};

/// What may be cut from a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What was never acknowledged.
    Torn,
    /// That, and of a damaged journal everything from this record on.
    From(u64),
}

/// Why a journal cannot be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// It cannot be read, or is damaged.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It holds records that must not be passed over.
    #[error(
        "the journal has `{0}` records, which a newer program wrote and without which the run must not go on"
    )]
    Critical(String),
    /// It holds no whole batch.
    #[error("the journal has no record")]
    Empty,
    /// It was to be cut though nothing in it is damaged.
    #[error("the journal is not damaged: nothing of it is cut")]
    Sound,
    /// It was to be cut behind the damage, or so that nothing would be left.
    #[error("the journal can be cut at a record from 2 to {last}")]
    Outside {
        /// The last record at which it can be cut: the damaged one.
        last: u64,
    },
}

/// A journal that can be written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Where it goes on: the epoch is the next one.
    pub at: Position,
    /// What was cut, if anything.
    pub kept: Option<Kept>,
}

/// Bytes that were cut from a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The file that has them now.
    pub path: PathBuf,
    /// How many they are.
    pub bytes: u64,
    /// Where they began.
    pub offset: u64,
}

/// Gives every batch of a run's journal from `from` on to `each`, with its offset, and makes the
/// journal end behind the last one.
///
/// # Errors
/// When the journal cannot be taken up; nothing was cut then.
pub fn recover<E: From<RecoveryError>>(
    owned: &OwnedRun,
    from: Position,
    cut: Cut,
    each: impl FnMut(u64, &[SharedRecord]) -> Result<(), E>,
) -> Result<Recovered, E> {
    let at = walk(owned.dir(), from, cut, each)?;
    if at.seq == Position::START.seq {
        return Err(RecoveryError::Empty.into());
    }
    let kept = set_rest_aside(owned.dir(), at.offset)
        .map_err(|error| RecoveryError::Journal(JournalError::io("journal: torn end", &error)))?;
    // More openings than numbers: whoever wrote the last line did not count.
    Ok(Recovered { at: Position { epoch: at.epoch.saturating_add(1), ..at }, kept })
}

/// Reads up to where the journal is to end.
fn walk<E: From<RecoveryError>>(
    dir: &RunDir,
    from: Position,
    cut: Cut,
    mut each: impl FnMut(u64, &[SharedRecord]) -> Result<(), E>,
) -> Result<Position, E> {
    let failed = |error: JournalError| E::from(RecoveryError::Journal(error));
    let mut reader = Reader::open_at(&dir.journal(), from).map_err(failed)?;
    // Where the journal is to be cut, once that is reached.
    let mut end = None;
    loop {
        let before = reader.position();
        match (reader.next_batch(), cut) {
            (Ok(Some(records)), _) => {
                if matches!(cut, Cut::From(seq) if reader.position().seq > seq) {
                    end.get_or_insert(before);
                }
                if end.is_none() {
                    each(before.offset, &records)?;
                }
            }
            (Ok(None), Cut::Torn) => break,
            (Ok(None), Cut::From(_)) => return Err(RecoveryError::Sound.into()),
            (Err(JournalError::Damaged { line, .. }), Cut::From(seq)) => {
                if !(2..=line).contains(&seq) {
                    return Err(RecoveryError::Outside { last: line }.into());
                }
                end.get_or_insert(before);
                break;
            }
            (Err(error), _) => return Err(failed(error)),
        }
    }
    if let (Some(kind), None) = (reader.unknown_critical(), end) {
        return Err(RecoveryError::Critical(kind.to_owned()).into());
    }
    Ok(end.unwrap_or_else(|| reader.position()))
}

/// Moves what stands from `offset` on into a file of its own.
fn set_rest_aside(dir: &RunDir, offset: u64) -> io::Result<Option<Kept>> {
    let mut journal = OpenOptions::new().read(true).write(true).open(dir.journal())?;
    let bytes = journal.metadata()?.len().saturating_sub(offset);
    if bytes == 0 {
        return Ok(None);
    }
    // A colon cannot stand in a name everywhere.
    let stamp = stamp::text(stamp::now_ms()).replace(':', "-");
    let path = dir.path().join(format!("torn-{stamp}"));
    let mut options = OpenOptions::new();
    let mut kept = options.write(true).create_new(true).mode(0o600).open(&path)?;
    journal.seek(SeekFrom::Start(offset))?;
    io::copy(&mut journal.by_ref().take(bytes), &mut kept)?;
    kept.sync_all()?;
    File::open(dir.path())?.sync_all()?;
    journal.set_len(offset)?;
    journal.sync_all()?;
    Ok(Some(Kept { path, bytes, offset }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::turn;

    /// A run of so many batches, each of two records.
    async fn run(batches: u32) -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let journal = dir.create().unwrap().start_writer(Position::START, Vec::new()).unwrap();
        for number in 0..batches {
            journal.append(vec![turn("a", number), turn("b", number)]).await.unwrap();
        }
        journal.close().await;
        (root, dir)
    }

    fn take_up(dir: &RunDir, cut: Cut) -> Result<(Recovered, u64), RecoveryError> {
        let mut seen = 0;
        let recovered = recover(&dir.own().unwrap(), Position::START, cut, |_, records| {
            for record in records {
                assert_eq!(record.seq, seen + 1);
                seen = record.seq;
            }
            Ok::<_, RecoveryError>(())
        })?;
        Ok((recovered, seen))
    }

    #[tokio::test]
    async fn every_cut_is_taken_up_and_what_was_cut_is_kept() {
        let (_root, dir) = run(3).await;
        let whole = std::fs::read(dir.journal()).unwrap();
        let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        let batches = [lines[..2].iter().sum::<usize>(), lines[..4].iter().sum()];
        for cut in batches[0]..=whole.len() {
            std::fs::write(dir.journal(), &whole[..cut]).unwrap();
            let (recovered, seen) = take_up(&dir, Cut::Torn).unwrap();
            let end = [whole.len(), batches[1], batches[0]].into_iter().find(|end| *end <= cut);
            let end = end.unwrap();
            assert_eq!((recovered.at.offset, recovered.at.epoch), (end as u64, 2));
            assert_eq!(
                (recovered.at.seq, std::fs::read(dir.journal()).unwrap().len()),
                (seen + 1, end)
            );
            match recovered.kept {
                None => assert_eq!(cut, end),
                Some(kept) => {
                    assert_eq!(std::fs::read(&kept.path).unwrap(), whole[end..cut]);
                    std::fs::remove_file(kept.path).unwrap();
                }
            }
        }
        std::fs::write(dir.journal(), &whole[..batches[0] - 1]).unwrap();
        assert_eq!(take_up(&dir, Cut::Torn), Err(RecoveryError::Empty));
    }

    #[tokio::test]
    async fn damage_is_cut_only_where_somebody_says() {
        let (_root, dir) = run(4).await;
        assert_eq!(take_up(&dir, Cut::From(3)), Err(RecoveryError::Sound));
        let mut bytes = std::fs::read(dir.journal()).unwrap();
        let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        let fifth = lines[..4].iter().sum::<usize>();
        bytes[fifth + 20] ^= 1;
        std::fs::write(dir.journal(), &bytes).unwrap();
        let refused = take_up(&dir, Cut::Torn).unwrap_err();
        let at = fifth as u64;
        assert!(
            matches!(refused, RecoveryError::Journal(JournalError::Damaged { offset, line: 5, .. }) if offset == at),
            "{refused}"
        );
        for outside in [0, 1, 6] {
            assert_eq!(take_up(&dir, Cut::From(outside)), Err(RecoveryError::Outside { last: 5 }));
        }
        assert_eq!(std::fs::read(dir.journal()).unwrap(), bytes, "nothing was cut");
        // A batch is whole or absent.
        let (recovered, seen) = take_up(&dir, Cut::From(4)).unwrap();
        assert_eq!((recovered.at.seq, seen), (3, 2));
        let kept = recovered.kept.unwrap();
        assert_eq!(std::fs::read(kept.path).unwrap(), bytes[kept.offset as usize..]);
        assert_eq!(take_up(&dir, Cut::Torn).unwrap().1, 2);
    }
}
