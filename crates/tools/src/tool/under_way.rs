//! The calls and the other work of which processes of a run died.
//!
//! A call that may be repeated is made again when its process has died. If it was the call of which the process
//! died, such as by its size, every process after it would die too. So a process that goes on with a run whose last
//! process died marks the calls that it makes again, in one file: what still has a mark when the next process
//! comes was there for two deaths. A call that nobody interrupted costs nothing.
//!
//! Work in code of others that no record announces, such as the rendering of a template, has a mark from the first
//! time on. What had one when a process died is done again alone, so that a second death tells which it was; after
//! that it is not done again.
//!
//! The file is not synced: what was written outlives its process, and if the machine dies the work was not the reason.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::ToolError;
use crate::id::CallKey;
use crate::store::make_dir;
use crate::{crash, disk};

/// The number of processes that may die of a call.
const MOST_DEATHS: u8 = 2;

/// The bytes of a place: what it tells, a number of deaths, the process that wrote it, and the name.
const PLACE: usize = 32;

/// The bytes of a name: a part of the blake3 hash of what has the mark. Few enough are marked at a time.
const NAME: usize = 16;

/// The name of what has a mark.
type Hashed = [u8; NAME];

/// Tells this process from others: a run may go on in the process in which its supervisor crashed, where the
/// marks of what is still at work tell of no death.
static PROCESS: LazyLock<[u8; 8]> =
    LazyLock::new(|| (RandomState::new().build_hasher().finish() | 1).to_le_bytes());

/// The most bytes of the file that are read: 65,536 calls at once.
const MOST_BYTES: u64 = 2 << 20;

/// Says that a call is at work.
const AT_WORK: u8 = b'w';

/// Says that processes died of a call that was not made again since.
const DIED: u8 = b'd';

/// The calls and the other work of a run of which processes may have died.
#[derive(Debug)]
pub struct UnderWay {
    path: PathBuf,
    /// True if the last process of the run died. One that was stopped interrupted calls too.
    after_death: bool,
    suspects: Mutex<Suspects>,
    /// Held by the work that had a mark when a process died, so that one such is at work at a time.
    alone: Arc<AsyncMutex<()>>,
}

/// What is made again.
#[derive(Debug, Default)]
struct Suspects {
    /// The calls that were under way when the last process died.
    interrupted: HashSet<CallKey>,
    /// Opened with the first mark.
    book: Option<Book>,
}

#[derive(Debug)]
struct Book {
    file: File,
    /// Places that are not taken.
    free: Vec<u64>,
    /// Number of places.
    count: u64,
    /// That of which earlier processes died: the place, and how many.
    died: HashMap<Hashed, (u64, u8)>,
}

/// The turn of work that is done alone; nothing for any other work.
#[derive(Debug)]
pub struct Turn {
    _alone: Option<OwnedMutexGuard<()>>,
}

/// What is under way. Dropping it takes the mark away: whatever came of it, the process lives.
#[derive(Debug)]
pub struct Mark {
    place: u64,
    all: Arc<UnderWay>,
}

impl UnderWay {
    /// Keeps the calls of a run in this file. Touches no file before a call is made again.
    #[must_use]
    pub fn new(path: PathBuf, after_death: bool) -> Self {
        Self { path, after_death, suspects: Mutex::default(), alone: Arc::default() }
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
        // The first death left no mark.
        match self.book(&mut suspects).and_then(|book| book.mark(hashed(key.as_str()), 1)) {
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

    /// Marks work in code of others that begins: `what` it is for `work`, a task or an agent. Waits for its turn if
    /// a process died while it was at work. Returns no mark if the disk takes none: the work is done without one.
    ///
    /// # Errors
    /// Returns the reason why it is not done, if as many processes as may die of it died while it was at work. The
    /// next time it is done again: a person has asked for that.
    pub async fn work(
        self: &Arc<Self>,
        work: &str,
        what: &str,
    ) -> Result<(Option<Mark>, Turn), String> {
        if crash::is_asked() {
            return Ok((None, Turn { _alone: None }));
        }
        let name = hashed(&format!("{what} of {work}"));
        let is_suspect = match self.book(&mut self.suspects.lock()) {
            Ok(book) => book.died.contains_key(&name),
            Err(_) => false,
        };
        let turn = match is_suspect {
            true => Turn { _alone: Some(self.alone.clone().lock_owned().await) },
            false => Turn { _alone: None },
        };
        let mut suspects = self.suspects.lock();
        match self.book(&mut suspects).and_then(|book| book.mark(name, 0)) {
            Ok((place, deaths)) if deaths >= MOST_DEATHS => {
                suspects.book.iter_mut().for_each(|book| book.clear(place));
                Err(format!(
                    "callsheet ended {deaths} times while it was at this, so it was not tried once more"
                ))
            }
            Ok((place, _)) => Ok((Some(Mark { place, all: self.clone() }), turn)),
            Err(error) => {
                tracing::debug!(work, what, %error, "work is done without a mark");
                Ok((None, turn))
            }
        }
    }

    /// Returns the marks, from the file if they were not read before.
    fn book<'a>(&self, suspects: &'a mut Suspects) -> io::Result<&'a mut Book> {
        Ok(match &mut suspects.book {
            Some(book) => book,
            none => none.insert(Book::open(&self.path, self.after_death)?),
        })
    }
}

/// Returns the name of what has a mark.
fn hashed(text: &str) -> Hashed {
    let mut name = Hashed::default();
    name.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..NAME]);
    name
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.all.suspects.lock().book.iter_mut().for_each(|book| book.clear(self.place));
    }
}

impl Book {
    /// Opens the file, and takes what was at work in it for that of which the last process died, if it died.
    fn open(path: &Path, after_death: bool) -> io::Result<Self> {
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
            let (told, deaths, process, name) = (place[0], place[1], &place[2..10], &place[10..]);
            let deaths = match told {
                // It is still at work, and takes its mark away.
                AT_WORK if process == *PROCESS => continue,
                AT_WORK => deaths.saturating_add(u8::from(after_death)),
                DIED => deaths,
                _ => 0,
            };
            if deaths == 0 {
                book.free.push(at);
                continue;
            }
            let mut of = Hashed::default();
            of.copy_from_slice(&name[..NAME]);
            book.write(at, DIED, deaths, of)?;
            book.died.insert(of, (at, deaths));
        }
        Ok(book)
    }

    /// Marks what is at work. Returns its place, and of how many deaths it was there; `unmarked` are those that left
    /// no mark of what has none.
    fn mark(&mut self, name: Hashed, unmarked: u8) -> io::Result<(u64, u8)> {
        let (place, deaths) = self.died.remove(&name).unwrap_or_else(|| {
            let place = self.free.pop().unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            });
            (place, unmarked)
        });
        self.write(place, AT_WORK, deaths, name).map(|()| (place, deaths))
    }

    fn clear(&mut self, place: u64) {
        // A mark that stays counts at most one death too many.
        let _stays = self.file.write_all_at(&[0; PLACE], place * PLACE as u64);
        self.free.push(place);
    }

    fn write(&self, place: u64, told: u8, deaths: u8, name: Hashed) -> io::Result<()> {
        let mut bytes = [0; PLACE];
        bytes[0] = told;
        bytes[1] = deaths;
        bytes[2..10].copy_from_slice(&*PROCESS);
        bytes[10..10 + NAME].copy_from_slice(&name);
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
        let process = |after_death| {
            of_others(&path);
            Arc::new(UnderWay::new(path.clone(), after_death))
        };
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

    /// Makes the marks those of processes that are gone.
    fn of_others(path: &Path) {
        let Ok(mut bytes) = std::fs::read(path) else { return };
        bytes.chunks_exact_mut(PLACE).for_each(|place| place[2..10].fill(0));
        std::fs::write(path, bytes).unwrap();
    }

    #[tokio::test]
    async fn work_of_which_two_processes_died_is_not_done_a_third_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool/under-way");
        let process = |after_death| {
            of_others(&path);
            Arc::new(UnderWay::new(path.clone(), after_death))
        };
        let die_of = async |all: &Arc<UnderWay>, work: &str| {
            let (mark, turn) = all.work(work, "when").await.unwrap();
            std::mem::forget(mark.unwrap());
            turn
        };
        let first = process(false);
        for _ in 0..3 {
            drop(first.work("good", "when").await.unwrap());
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), PLACE as u64, "a place is used again");
        for work in ["bad", "beside"] {
            die_of(&first, work).await;
        }
        // The supervisor crashed, and its run went on in the same process.
        let same = Arc::new(UnderWay::new(path.clone(), true));
        assert!(
            same.work("new", "when").await.is_ok()
                && same.suspects.lock().book.as_ref().unwrap().died.is_empty()
        );

        let second = process(true);
        let turn = die_of(&second, "bad").await;
        let waits = second.work("beside", "when");
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), waits).await;
        assert!(waits.is_err(), "what may be the reason is done alone");
        assert!(second.work("other", "when").await.is_ok(), "what is not waits for nobody");
        drop(turn);

        let third = process(true);
        let told = third.work("bad", "when").await.unwrap_err();
        assert!(told.starts_with("callsheet ended 2 times while it was at this"), "{told}");
        assert!(third.work("beside", "when").await.is_ok());
        assert!(third.work("bad", "when").await.is_ok(), "a person asked for it again");
        assert!(third.work("bad", "until").await.is_ok());
        // A process that was stopped tells of no death.
        die_of(&third, "bad").await;
        let after_stop = process(false);
        assert!(after_stop.work("bad", "when").await.is_ok());
        assert!(after_stop.suspects.lock().book.as_ref().unwrap().died.is_empty());
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
