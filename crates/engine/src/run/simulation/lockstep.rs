//! A journal for simulations: the real writer and the real file, in step with a runtime whose time is
//! paused, and the deaths of a process at its writes.
//!
//! A sync takes simulated time; what is appended meanwhile shares the next batch. The runtime's thread
//! waits for the writer's, so that nothing depends on which of them is quicker. A death leaves the run
//! directory as a crash would: before the write, amid it, or after the sync and before anybody hears of it.
//! Some are power cuts, which take from the files that are never synced.

use std::fs;
use std::future::Future;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::event::{Draft, SharedRecord};
use crate::id::AgentId;
use crate::journal::disk_space::DiskSpace;
use crate::journal::{Journal, JournalError, JournalFuture, JournalHandle, stand_in};

/// A place in the protocol at which a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// Nothing of the batch is written.
    BeforeWrite,
    /// A part of its bytes is.
    AmidWrite,
    /// It is durable, and nobody hears of it.
    AfterSync,
}

/// The simulated disk of one life of a process. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    died: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the batch at which the process dies, and how.
    fate: Option<(u64, Death)>,
    batches: u64,
    is_dead: bool,
    acknowledged: Vec<SharedRecord>,
    /// The directory before the last write, if that was torn.
    before: Option<tempfile::TempDir>,
    journal: Option<(JournalHandle, PathBuf)>,
}

impl Disk {
    pub(super) fn new(fate: Option<(u64, Death)>) -> Self {
        let state = Mutex::new(State { fate, ..State::default() });
        Self(Arc::new(Shared { state, died: Notify::new() }))
    }

    /// Makes the next journal that this thread opens one on this disk.
    pub(super) fn put_in(&self) {
        let disk = self.clone();
        stand_in::put_in(Some(Rc::new(move |journal, dir| wrapped(journal, disk.clone(), dir))));
    }

    /// Waits for the death of the process at a write.
    pub(super) async fn died(&self) {
        self.0.died.notified().await;
    }

    /// Returns the records that were acknowledged.
    pub(super) fn acknowledged(&self) -> Vec<SharedRecord> {
        self.0.state.lock().acknowledged.clone()
    }

    /// Leaves the directory as the end of the process does. Its runtime is gone.
    pub(super) fn bury(self, has_died: bool) {
        stand_in::put_in(None);
        let (journal, before) = {
            let mut state = self.0.state.lock();
            (state.journal.take(), state.before.take())
        };
        let Some((journal, dir)) = journal else { return };
        wait_for(journal.close());
        if let Some(before) = before {
            let written = fs::read(dir.join("journal.jsonl")).expect("a journal");
            fs::remove_dir_all(&dir).expect("removed");
            copy(before.path(), &dir);
            let path = dir.join("journal.jsonl");
            let kept = fs::read(&path).expect("a journal").len();
            let torn = fastrand::usize(kept + 1..written.len());
            fs::write(path, &written[..torn]).expect("torn");
        }
        tear_snapshot(&dir.join("snapshots"));
        if has_died && fastrand::u8(..4) == 0 {
            cut_power(&dir);
        }
    }

    /// Counts a batch. Returns how the process dies at it, if it does.
    fn next(&self) -> Option<Death> {
        let mut state = self.0.state.lock();
        state.batches += 1;
        state.fate.filter(|(at, _)| *at == state.batches).map(|(_, death)| death)
    }

    fn die(&self) {
        self.0.state.lock().is_dead = true;
        self.0.died.notify_one();
    }
}

/// Returns the journal on the simulated disk.
fn wrapped(journal: JournalHandle, disk: Disk, dir: &Path) -> JournalHandle {
    disk.0.state.lock().journal = Some((journal.clone(), dir.to_owned()));
    let queue = Arc::default();
    JournalHandle::new(Lockstep { journal, disk, dir: dir.to_owned(), queue })
}

type Reply = Result<Vec<SharedRecord>, JournalError>;

#[derive(Debug, Default)]
struct Queue {
    is_syncing: bool,
    waiting: Vec<(Vec<Draft>, oneshot::Sender<Reply>)>,
}

#[derive(Clone, Debug)]
struct Lockstep {
    journal: JournalHandle,
    disk: Disk,
    dir: PathBuf,
    queue: Arc<Mutex<Queue>>,
}

impl Lockstep {
    /// Writes what waits, batch after batch.
    async fn write(self) {
        loop {
            // A sync of a disk, from a quick one to one that is busy.
            let most = if fastrand::u8(..16) == 0 { 2_000 } else { 8 };
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=most))).await;
            let batch = {
                let mut queue = self.queue.lock();
                queue.is_syncing = !queue.waiting.is_empty();
                std::mem::take(&mut queue.waiting)
            };
            if batch.is_empty() {
                return;
            }
            if self.disk.0.state.lock().is_dead {
                return std::future::pending().await;
            }
            let death = self.disk.next();
            if death == Some(Death::BeforeWrite) {
                self.disk.die();
                return std::future::pending().await;
            }
            if death == Some(Death::AmidWrite) {
                let before = tempfile::tempdir_in(self.dir.parent().expect("a parent"));
                let before = before.expect("a directory");
                copy(&self.dir, before.path());
                self.disk.0.state.lock().before = Some(before);
            }
            let drafts = batch.iter().flat_map(|(drafts, _)| drafts).cloned().collect();
            let mut written = wait_for(self.journal.append(drafts));
            // The writer takes the next item when its observers have had this batch.
            wait_for(self.journal.flush()).expect("flushed");
            if death.is_some() {
                self.disk.die();
                return std::future::pending().await;
            }
            for (drafts, reply) in batch {
                let own = written.as_mut().map_err(|error| error.clone());
                let own = own.map(|records| records.drain(..drafts.len()).collect::<Vec<_>>());
                if let Ok(records) = &own {
                    self.disk.0.state.lock().acknowledged.extend(records.iter().cloned());
                }
                let _ = reply.send(own);
            }
        }
    }
}

impl Journal for Lockstep {
    fn append(&self, drafts: Vec<Draft>) -> JournalFuture<'_, Reply> {
        let (reply, answer) = oneshot::channel();
        if drafts.is_empty() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        Box::pin(async {
            let is_idle = {
                let mut queue = self.queue.lock();
                queue.waiting.push((drafts, reply));
                !std::mem::replace(&mut queue.is_syncing, true)
            };
            if is_idle {
                tokio::spawn(self.clone().write());
            }
            answer.await.unwrap_or(Err(JournalError::Closed))
        })
    }

    fn flush(&self) -> JournalFuture<'_, Result<(), JournalError>> {
        Box::pin(async {
            while self.queue.lock().is_syncing {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    }

    fn agent_records<'a>(&'a self, agent: &'a AgentId) -> JournalFuture<'a, Reply> {
        self.journal.agent_records(agent)
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.journal.committed()
    }

    fn disk_space(&self) -> watch::Receiver<DiskSpace> {
        self.journal.disk_space()
    }

    fn report_full(&self) -> bool {
        self.journal.report_full()
    }

    fn close(&self) -> JournalFuture<'_, ()> {
        Box::pin(async {
            self.flush().await.expect("it cannot fail");
            wait_for(self.journal.close());
        })
    }
}

/// Waits for a future of the real writer. The runtime's thread stands still meanwhile.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    // A task that may use up its share would wait for itself here.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Leaves the newest snapshot as a death amid its writing does, or as a power cut does, or whole.
fn tear_snapshot(folder: &Path) {
    let entries =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let numbered = entries.filter_map(|path| Some((number(&path)?, path)));
    let Some((_, newest)) = numbered.max() else { return };
    let whole = fs::read(&newest).expect("a snapshot");
    let part = &whole[..fastrand::usize(..=whole.len())];
    match fastrand::u8(..4) {
        0 => fs::write(folder.join("new"), part).expect("torn"),
        1 => fs::write(newest, part).expect("torn"),
        _ => (),
    }
}

/// Leaves each file that is never synced as a power cut does: whole, as a part, with zeros at its end or within
/// it, or not at all. The run's machine is restarted.
fn cut_power(dir: &Path) {
    stand_in::restart_machine(dir);
    let agents = fs::read_dir(dir.join("agents")).into_iter().flatten();
    let agents = agents.map(|entry| entry.expect("an entry").path());
    let own = ["acknowledged", "started"].map(|name| dir.join(name));
    let mut files: Vec<_> = agents.chain(own).filter(|path| path.is_file()).collect();
    files.sort();
    for path in files {
        let mut bytes = fs::read(&path).expect("a file");
        let kept = fastrand::usize(..=bytes.len());
        let after = fastrand::usize(kept..=bytes.len());
        match fastrand::u8(..5) {
            0 => bytes.truncate(kept),
            1 => bytes[kept..].fill(0),
            2 => bytes[kept..after].fill(0),
            3 => {
                fs::remove_file(path).expect("removed");
                continue;
            }
            _ => continue,
        }
        fs::write(path, bytes).expect("written");
    }
}

/// Copies a directory with all that is below it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            match fs::copy(entry.path(), to) {
                // The thread of the snapshots renames one that is whole.
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                copied => drop(copied.expect("copied")),
            }
        }
    }
}
