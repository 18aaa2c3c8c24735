//! What was acknowledged, in two small files beside the journal: the last record, with its place and its
//! checksum, and the calls that began. A journal that ends before that record has lost records (an older copy
//! was put back, or a disk lost writes that it had confirmed), one with another record there is another's, and
//! the second file tells of effects that must not happen twice.
//!
//! The files are written after each batch and never synced: a power cut may leave them older, which only
//! means that less is noticed. They cost one write for each batch, and one for each batch in which a call began.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::event::{Event, SharedRecord};
use crate::id::{AgentId, CallKey};
use crate::journal::Observer;
use crate::journal::line::{self, Position};

/// Name of the file with the record.
const NAME: &str = "acknowledged";

/// The most bytes of the file: a line, and what is left of a longer one.
const MOST_BYTES: u64 = 4096;

/// Name of the file with the calls.
pub(super) const STARTED: &str = "started";

/// A call that began, as a line of the second file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) agent: AgentId,
    /// Turn of the call; 0 if it was announced to an earlier process.
    pub(super) turn: u32,
    pub(super) key: CallKey,
    pub(super) name: String,
}

/// The last acknowledged record.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Acknowledged {
    /// Its number.
    pub seq: u64,
    /// Offset of the end of its line, in bytes, if that is known.
    #[serde(default)]
    end: Option<u64>,
    /// The checksum of its line, in the digits of the line.
    #[serde(default)]
    crc: Option<String>,
}

impl Acknowledged {
    /// Returns true if a journal that reaches so far has this record in its place. As its checksum continues
    /// those of the lines before, the records before it are the same too.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub fn is_in(&self, journal: &Path) -> io::Result<bool> {
        let (Some(end), Some(crc)) = (self.end, &self.crc) else { return Ok(true) };
        let mut tail = [0; line::TAIL];
        let Some(from) = end.checked_sub(tail.len() as u64) else { return Ok(self.seq == 0) };
        match disk::open(journal)?.read_exact_at(&mut tail, from) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| {
                line::recorded_crc(&tail).is_some_and(|found| format!("{found:08x}") == *crc)
            }),
        }
    }
}

/// Returns the last acknowledged record; `None` if that is not known.
#[must_use]
pub fn last(dir: &Path) -> Option<Acknowledged> {
    let text = disk::read_text_within(&dir.join(NAME), MOST_BYTES).ok()?;
    // An older version writes a shorter line over the one that stands there.
    serde_json::from_str(text.lines().next()?).ok()
}

/// Notes that everything before `end` is acknowledged and nothing behind it, and makes that durable: the
/// journal is about to be cut there.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn cut(dir: &Path, end: Position) -> io::Result<()> {
    let file = open(dir)?;
    write(&file, end)?;
    disk::sync(&file)
}

fn open(dir: &Path) -> io::Result<File> {
    disk::open_to_write(&dir.join(NAME), OFlags::CREATE)
}

/// Writes the record in the place of the one before, which has as many characters.
fn write(file: &File, end: Position) -> io::Result<()> {
    let Position { seq, crc, offset, .. } = end;
    let seq = seq.saturating_sub(1);
    let text =
        format!("{{\"v\":1,\"seq\":{seq:>20},\"end\":{offset:>20},\"crc\":\"{crc:08x}\"}}\n");
    match disk::retried(|| file.write_at(text.as_bytes(), 0))? {
        written if written == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Keeps the files up to date while the journal is written.
#[derive(Debug)]
pub(super) struct Keeper {
    /// `None` once one could not be written: what they say then is too old and still true.
    files: Option<(File, File)>,
    end: Option<Position>,
    /// The calls that were announced and have no result, with their turns and tools.
    announced: HashMap<CallKey, (u32, String)>,
    /// Lines that are not written yet.
    started: Vec<u8>,
}

impl Keeper {
    pub(super) fn new(dir: &Path) -> Self {
        let started = || disk::open_to_write(&dir.join(STARTED), OFlags::APPEND | OFlags::CREATE);
        let open = || -> io::Result<(File, File)> { Ok((open(dir)?, started()?)) };
        let files = open().map_err(|error| tracing::warn!(%error, "{NAME} cannot be written")).ok();
        Self { files, end: None, announced: HashMap::new(), started: Vec::new() }
    }
}

impl Observer for Keeper {
    fn batch(&mut self, _from: Position, to: Position) {
        self.end = Some(to);
    }

    fn committed(&mut self, record: &SharedRecord) {
        match &record.event {
            Event::ToolIntended(intended) => {
                let call = (intended.turn, intended.name.clone());
                self.announced.insert(intended.key.clone(), call);
            }
            Event::ToolStarted(started) => {
                let Some(agent) = record.agent.clone() else { return };
                let (turn, name) = self.announced.get(&started.key).cloned().unwrap_or_default();
                let line = Started { agent, turn, key: started.key.clone(), name };
                if serde_json::to_writer(&mut self.started, &line).is_ok() {
                    self.started.push(b'\n');
                }
            }
            Event::ToolFinished(finished) => {
                self.announced.remove(&finished.key);
            }
            _ => {}
        }
    }

    fn batch_end(&mut self) {
        let (Some((number, calls)), Some(end)) = (&mut self.files, self.end.take()) else { return };
        let mut written = write(number, end);
        if !self.started.is_empty() {
            written = written.and_then(|()| disk::write_all(calls, &self.started));
            self.started.clear();
        }
        if written.is_err() {
            self.files = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::journal::samples::turn;
    use crate::journal::testing::NewRun;

    #[tokio::test]
    async fn the_file_names_the_last_record() {
        let (dir, _owned, journal) = NewRun::written(Vec::new());
        let known = || last(dir.path()).map(|known| known.seq);
        assert_eq!(known(), None);
        for seq in 1..=3 {
            journal.append(vec![turn("a", 1)]).await.unwrap();
            // It is written after the answer; the next answer comes after that.
            journal.flush().await.unwrap();
            assert_eq!(known(), Some(seq));
            assert!(last(dir.path()).unwrap().is_in(&dir.journal()).unwrap());
        }
        journal.close().await;
        let third = last(dir.path()).unwrap();
        cut(dir.path(), Position { seq: 2, ..Position::START }).unwrap();
        assert_eq!(known(), Some(1));
        for nonsense in ["", "{}", "7", "{\"seq\":-1}"] {
            fs::write(dir.path().join(NAME), nonsense).unwrap();
            assert_eq!(known(), None);
        }
        // An older version writes no more than the number.
        fs::write(dir.path().join(NAME), "{\"v\":1,\"seq\":  7}\n 20,\"crc\"").unwrap();
        assert_eq!(known(), Some(7));
        assert!(last(dir.path()).unwrap().is_in(&dir.journal()).unwrap());
        // Any other journal has another checksum there, or ends before.
        let written = fs::read(dir.journal()).unwrap();
        let (other, _owned, journal) = NewRun::written(Vec::new());
        for _ in 0..3 {
            journal.append(vec![turn("b", 1)]).await.unwrap();
        }
        journal.close().await;
        assert!(!third.is_in(&other.journal()).unwrap());
        for len in 0..written.len() {
            fs::write(dir.journal(), &written[..len]).unwrap();
            assert!(!third.is_in(&dir.journal()).unwrap(), "{len}");
        }
    }
}
