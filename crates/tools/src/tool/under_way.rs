//! The calls of which processes of a run died.
//!
//! A call that may be repeated is made again when its process has died. If it was the call of which the process
//! died, such as by its size, every process after it would die too. So a process that goes on with a run whose last
//! process died marks the calls that it makes again, in one file: what still has a mark when the next process
//! comes was there for two deaths. A call that nobody interrupted costs nothing. The file is not synced: what was
//! written outlives its process, and if the machine dies the call was not the reason.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::ToolError;
use crate::id::CallKey;
use crate::store::make_dir;
use crate::{crash, disk};

/// The number of processes that may die of a call.
const MOST_DEATHS: u8 = 2;

/// The bytes of a place: what it tells, a number of deaths, and the key, filled up with zeros.
const PLACE: usize = 64;

/// The most bytes of the file that are read: 65,536 calls at once.
const MOST_BYTES: u64 = 4 << 20;

/// Says that a call is at work.
const AT_WORK: u8 = b'w';

/// Says that processes died of a call that was not made again since.
const DIED: u8 = b'd';

/// The calls of a run of which processes may have died.
#[derive(Debug)]
pub struct UnderWay {
    path: PathBuf,
    /// True if the last process of the run died. One that was stopped interrupted calls too.
    after_death: bool,
    suspects: Mutex<Suspects>,
}

/// What is made again.
#[derive(Debug, Default)]
struct Suspects {
    /// The calls that were under way when the last process died.
    interrupted: HashSet<CallKey>,
    /// Opened with the first of them.
    book: Option<Book>,
}

#[derive(Debug)]
struct Book {
    file: File,
    /// Places that are not taken.
    free: Vec<u64>,
    /// Number of places.
    count: u64,
    /// The calls of which earlier processes died: the place, and how many.
    died: HashMap<String, (u64, u8)>,
}

/// A call under way. Dropping it takes the mark away: whatever came of the call, the process lives.
#[derive(Debug)]
pub struct Mark {
    place: u64,
    all: Arc<UnderWay>,
}

impl UnderWay {
    /// Keeps the calls of a run in this file. Touches no file before a call is made again.
    #[must_use]
    pub fn new(path: PathBuf, after_death: bool) -> Self {
        Self { path, after_death, suspects: Mutex::default() }
    }

    /// Notes a call that was under way when the last process ended, and that is made again.
    pub fn suspect(&self, key: &CallKey) {
        if self.after_death {
            self.suspects.lock().interrupted.insert(key.clone());
        }
    }

    /// Marks a call that begins, if it is made again after a death. Returns nothing if it is not, or if the disk
    /// takes no mark: the call is made without one.
    ///
    /// # Errors
    /// Returns an error, for the model, if as many processes as may die of a call died while it was under way.
    pub fn begin(self: &Arc<Self>, key: &CallKey) -> Result<Option<Mark>, ToolError> {
        let mut suspects = self.suspects.lock();
        if crash::is_asked() || !suspects.interrupted.remove(key) {
            return Ok(None);
        }
        let marked = match &mut suspects.book {
            Some(book) => book.mark(key),
            none => Book::open(&self.path).and_then(|book| none.insert(book).mark(key)),
        };
        match marked {
            Ok((place, deaths)) if deaths >= MOST_DEATHS => {
                suspects.book.iter_mut().for_each(|book| book.clear(place));
                Err(ToolError::Failed(format!(
                    "the program ended {deaths} times while this call was under way; it was not made \
                     again. Ask for less at a time, or do it in another way"
                )))
            }
            Ok((place, _)) => Ok(Some(Mark { place, all: self.clone() })),
            Err(error) => {
                tracing::warn!(%key, %error, "a call is made without a mark");
                Ok(None)
            }
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.all.suspects.lock().book.iter_mut().for_each(|book| book.clear(self.place));
    }
}

impl Book {
    /// Opens the file, and takes the calls that were at work in it for those of which the last process died.
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            make_dir(folder)?;
        }
        let mut file = disk::open_to_write(path, OFlags::CREATE)?;
        let mut bytes = Vec::new();
        (&mut file).take(MOST_BYTES).read_to_end(&mut bytes)?;
        let mut book = Self { file, free: Vec::new(), count: 0, died: HashMap::new() };
        for place in bytes.chunks_exact(PLACE) {
            let at = book.count;
            book.count += 1;
            let [told, deaths, key @ ..] = place else { continue };
            let deaths = match *told {
                AT_WORK => deaths.saturating_add(1),
                DIED => *deaths,
                _ => {
                    book.free.push(at);
                    continue;
                }
            };
            let key = String::from_utf8_lossy(key).trim_end_matches('\0').to_owned();
            book.write(at, DIED, deaths, &key)?;
            book.died.insert(key, (at, deaths));
        }
        Ok(book)
    }

    /// Marks a call as at work. Returns its place, and of how many deaths it was there: the first left no mark.
    fn mark(&mut self, key: &CallKey) -> io::Result<(u64, u8)> {
        let key = key.to_string();
        let (place, deaths) = self.died.remove(&key).unwrap_or_else(|| {
            let place = self.free.pop().unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            });
            (place, 1)
        });
        self.write(place, AT_WORK, deaths, &key).map(|()| (place, deaths))
    }

    fn clear(&mut self, place: u64) {
        // A mark that stays counts at most one death too many.
        let _stays = self.file.write_all_at(&[0; PLACE], place * PLACE as u64);
        self.free.push(place);
    }

    fn write(&self, place: u64, told: u8, deaths: u8, key: &str) -> io::Result<()> {
        let mut bytes = [0; PLACE];
        bytes[0] = told;
        bytes[1] = deaths;
        bytes[2..].iter_mut().zip(key.bytes()).for_each(|(to, from)| *to = from);
        self.file.write_all_at(&bytes, place * PLACE as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AgentId, RunId};

    fn key(index: u32) -> CallKey {
        let run = RunId::from(uuid::Uuid::nil());
        CallKey::derive(run, &AgentId::from_text("a"), 1, index, "grep", "{}")
    }

    #[test]
    fn a_call_of_which_two_processes_died_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("under-way");
        let process = |after_death| Arc::new(UnderWay::new(path.clone(), after_death));
        assert!(key(1).to_string().len() <= PLACE - 2);
        let first = process(false);
        assert!(first.begin(&key(0)).unwrap().is_none() && !path.exists(), "it costs nothing");
        // One that was stopped interrupts calls too.
        let after_stop = process(false);
        after_stop.suspect(&key(0));
        assert!(after_stop.begin(&key(0)).unwrap().is_none() && !path.exists());
        let second = process(true);
        for index in 0..5 {
            second.suspect(&key(index));
            drop(second.begin(&key(index)).unwrap().unwrap());
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), PLACE as u64, "a place is used again");
        second.suspect(&key(0));
        // A process that dies drops nothing. One in between does not come so far.
        std::mem::forget(second.begin(&key(0)).unwrap().unwrap());
        let between = process(true);
        between.suspect(&key(0));
        between.suspect(&key(1));
        assert!(between.begin(&key(1)).unwrap().is_some());
        let last = process(true);
        last.suspect(&key(0));
        let told = last.begin(&key(0)).unwrap_err().to_string();
        assert!(told.starts_with("the program ended 2 times"), "{told}");
        assert!(last.begin(&key(0)).unwrap().is_none(), "told once");
    }

    #[test]
    fn an_odd_file_costs_the_mark_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("under-way");
        let begin = || {
            let calls = Arc::new(UnderWay::new(path.clone(), true));
            calls.suspect(&key(0));
            calls.begin(&key(0)).unwrap()
        };
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(begin().is_none());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [AT_WORK; 1000]).unwrap();
        assert!(begin().is_some());
    }
}
