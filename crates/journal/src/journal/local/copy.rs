//! Copies the beginning of a journal into a new run: the same batches under another first record.
//!
//! Owns the checksum chain of the copy. Records are copied as bytes and not decoded, so record
//! types that this program does not know are copied too.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use crate::disk;
use crate::event::Draft;
use crate::journal::JournalError;
use crate::journal::file::RunDir;
use crate::journal::line::{self, Batch, Framer, Position};
use crate::journal::source::{Cursor, RunSource};

/// Copies the batches before the position `end` into the journal of a new run, with `first` in
/// place of the first record. The copy is durable when this returns; until then the new run has no
/// journal.
///
/// # Errors
/// Returns an error if a journal cannot be read or written.
pub(super) fn copy(
    from: &RunDir,
    to: &RunDir,
    end: Position,
    first: Draft,
) -> Result<(), JournalError> {
    let mut batches = from.batches(Cursor::START)?;
    let created = batches.next_batch()?.and_then(|records| Some(records.first()?.ts_ms));
    let head = batches.cursor().place();
    let (first_seq, last) = (Position::START.seq, head.seq - 1);
    let ts_ms = created.unwrap_or_default();
    let batch = Batch { first: first_seq, last, epoch: head.epoch, ts_ms };
    let written = write(from, to, end.offset, batch, first);
    written.map_err(|error| JournalError::cannot("write", &to.journal(), &error))
}

fn write(from: &RunDir, to: &RunDir, end: u64, batch: Batch, mut first: Draft) -> io::Result<()> {
    let mut lines = JournalLines { input: BufReader::new(disk::open(&from.journal())?.take(end)) };
    let path = to.path().join("journal.new");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let mut out = BufWriter::new(file);
    lines.next()?;
    let (mut body, mut bytes) = (Vec::new(), Vec::new());
    line::write_body(&mut first, &mut body);
    let mut framer = Framer::new(batch, Position::START.crc);
    framer.write(&body, &mut bytes);
    out.write_all(&bytes)?;
    let mut crc = framer.crc();
    while let Some(line) = lines.next()? {
        bytes.clear();
        crc = line::chain(&line, crc, &mut bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a line has no checksum"))?;
        out.write_all(&bytes)?;
    }
    // Rename only after the sync, so that a journal under its own name is always whole.
    disk::sync(&out.into_inner().map_err(io::IntoInnerError::into_error)?)?;
    std::fs::rename(&path, to.journal())?;
    disk::sync(&File::open(to.path())?)
}

struct JournalLines<R> {
    input: R,
}

impl<R: io::BufRead> JournalLines<R> {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = disk::read_line(&mut self.input, &mut line)?;
        Ok((read > 0).then_some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SharedRecord;
    use crate::journal::samples::turn;

    async fn run(root: &std::path::Path) -> RunDir {
        let dir = RunDir::at(root.join("old"));
        let journal = dir.create().unwrap().start_writer(Position::START, Vec::new()).unwrap();
        for number in 0..4 {
            journal.append(vec![turn("a", number), turn("b", number)]).await.unwrap();
        }
        journal.close().await;
        dir
    }

    fn records(dir: &RunDir) -> Vec<SharedRecord> {
        let mut batches = dir.batches(Cursor::START).unwrap();
        let mut all = Vec::new();
        while let Some(batch) = batches.next_batch().unwrap() {
            all.extend(batch);
        }
        assert_eq!(batches.cursor().place().offset, dir.journal().metadata().unwrap().len());
        all
    }

    #[tokio::test]
    async fn a_copy_has_another_beginning_and_the_same_rest() {
        let root = tempfile::tempdir().unwrap();
        let old = run(root.path()).await;
        let whole = records(&old);
        let run: &dyn RunSource = &old;
        assert_eq!(run.end_of(9), Ok(None));
        for (upto, last) in [(1, 2), (2, 2), (3, 2), (6, 6), (7, 6), (8, 8)] {
            let new = RunDir::at(root.path().join(format!("new-{upto}")));
            drop(new.create().unwrap());
            let end = run.end_of(upto).unwrap().unwrap();
            copy(&old, &new, end, turn("c", 7)).unwrap();
            let copied = records(&new);
            assert_eq!(copied[0].event, turn("c", 7).event);
            assert_eq!(copied[0].ts_ms, whole[0].ts_ms);
            assert_eq!(copied[1..], whole[1..last], "up to {upto}");
        }
        // Damage behind the last shared record must not matter.
        let mut bytes = std::fs::read(old.journal()).unwrap();
        let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        bytes[lines[..4].iter().sum::<usize>() + 20] ^= 1;
        std::fs::write(old.journal(), bytes).unwrap();
        assert_eq!(run.end_of(4).unwrap().map(|end| end.seq), Some(5));
        assert!(run.end_of(5).is_err());
    }
}
