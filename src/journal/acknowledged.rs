//! What was acknowledged, in two small files beside the journal: the number of the last record, and the calls
//! that began. A journal that ends before that number has lost records (an older copy was put back, or a
//! disk lost writes that it had confirmed), and the second file tells of effects that must not happen twice.
//!
//! The files are written after each batch and never synced: a power cut may leave them older, which only
//! means that less is noticed. They cost one write for each batch, and one for each batch in which a call began.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::{Event, SharedRecord};
use crate::id::{AgentId, CallKey};
use crate::journal::Observer;
use crate::journal::line::Position;

/// Name of the file with the number.
const NAME: &str = "acknowledged";

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Its number.
    pub seq: u64,
}

/// Returns the number of the last acknowledged record; `None` if that is not known.
#[must_use]
pub fn last(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join(NAME)).ok()?;
    serde_json::from_str::<Acknowledged>(&text).ok().map(|known| known.seq)
}

/// Notes that everything before `end` is acknowledged and nothing behind it, and makes that durable: the
/// journal is about to be cut there.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn cut(dir: &Path, end: Position) -> io::Result<()> {
    let file = open(dir)?;
    write(&file, end)?;
    file.sync_all()
}

fn open(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    options.open(dir.join(NAME))
}

/// Writes the number in the place of the one before, which has as many characters.
fn write(file: &File, end: Position) -> io::Result<()> {
    let text = format!("{{\"v\":1,\"seq\":{:>20}}}\n", end.seq.saturating_sub(1));
    file.write_all_at(text.as_bytes(), 0)
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
        let open = || -> io::Result<(File, File)> {
            let mut options = OpenOptions::new();
            let options = options.append(true).create(true).mode(0o600);
            Ok((open(dir)?, options.open(dir.join(STARTED))?))
        };
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
            written = written.and_then(|()| calls.write_all(&self.started));
            self.started.clear();
        }
        if written.is_err() {
            self.files = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::file::RunDir;
    use crate::journal::testing::turn;

    #[tokio::test]
    async fn the_file_names_the_last_record() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let owned = dir.create().unwrap();
        let journal = owned.start_writer(Position::START, Vec::new()).unwrap();
        assert_eq!(last(dir.path()), None);
        for seq in 1..=3 {
            journal.append(vec![turn("a", 1)]).await.unwrap();
            // It is written after the answer; the next answer comes after that.
            journal.flush().await.unwrap();
            assert_eq!(last(dir.path()), Some(seq));
        }
        journal.close().await;
        cut(dir.path(), Position { seq: 2, ..Position::START }).unwrap();
        assert_eq!(last(dir.path()), Some(1));
        for nonsense in ["", "{}", "7", "{\"seq\":-1}"] {
            fs::write(dir.path().join(NAME), nonsense).unwrap();
            assert_eq!(last(dir.path()), None);
        }
    }
}
