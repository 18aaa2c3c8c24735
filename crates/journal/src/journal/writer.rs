//! The writer: one thread that turns queued appends into batches.
//!
//! It is a thread of its own, neither an actor nor a job of the blocking pool, because a sync may
//! take long and nothing else may wait behind it. It takes the queued appends, writes them as one
//! batch with one write and one sync, and acknowledges them. While the disk is full it keeps the
//! batch and retries. Any other failure stops it: a failed sync must not be repeated, because the
//! system may then report lost pages as clean.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::crash::{self, Point};
use crate::disk;
use crate::event::{Draft, Record, SharedRecord};
use crate::id::AgentId;
use crate::journal::disk_space::{DiskSpace, Keeper};
use crate::journal::line::{self, Batch, Framer, Position};
use crate::journal::reader;
use crate::journal::storage::{Presence, Storage};
use crate::journal::{Journal, JournalError, JournalFuture, JournalHandle, Observer, stamp};

/// Appends that may wait in the queue. The next caller waits outside, which slows callers down to
/// the disk's pace. A thousand busy agents have about one append each under way.
const QUEUE: usize = 1024;

/// The most appends in one batch.
const BATCH_ITEMS: usize = 256;

/// Bytes from which a batch takes no more appends: 1 MiB.
const BATCH_BYTES: usize = 1 << 20;

/// Number of appends in a batch from which the writer expects many more, and waits a moment for
/// them before the next batch.
const CROWD: usize = 8;

/// The longest time for which the writer then lets appends gather. On a quick disk it is half the
/// time of a sync, so that an append waits hardly longer, and fewer syncs are needed. Without this
/// pause the callers woken by one batch would miss the next one and share only every second one.
const GATHER: Duration = Duration::from_millis(1);

/// The pause between two checks, during that time, if as many appends have come as in the last
/// batch. A thread can hardly sleep for a shorter time.
const GLANCE: Duration = Duration::from_micros(50);

/// The longest time for which observers may put off work that is not urgent: too short to be
/// noticed by the reader of a log, and long enough that several batches share one write of a busy
/// agent's files.
pub const CATCH_UP_AFTER: Duration = Duration::from_millis(200);

type Reply = Result<Vec<SharedRecord>, JournalError>;

struct Append {
    drafts: Vec<Draft>,
    /// The drafts' bodies, joined without a separator.
    bodies: Vec<u8>,
    /// The offset in `bodies` at which each body ends.
    ends: Vec<usize>,
    reply: oneshot::Sender<Reply>,
}

enum Item {
    Append(Append),
    /// A caller reports that the disk is full.
    Full,
    Close,
}

/// The callers' side of a writer.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: mpsc::Sender<Item>,
    failure: Arc<OnceLock<JournalError>>,
    committed: watch::Receiver<u64>,
    room: watch::Receiver<DiskSpace>,
    closing: CancellationToken,
    ended: CancellationToken,
    path: Option<PathBuf>,
}

impl Mailbox {
    /// Queues drafts and waits until they are durable. Without drafts, waits until all earlier ones
    /// are.
    async fn queue(&self, mut drafts: Vec<Draft>) -> Reply {
        // Encode on the caller's thread: the writer has only one thread, the callers have many.
        let (mut bodies, mut ends) = (Vec::new(), Vec::with_capacity(drafts.len()));
        for draft in &mut drafts {
            line::write_body(draft, &mut bodies);
            ends.push(bodies.len());
        }
        let (reply, answer) = oneshot::channel();
        let item = Item::Append(Append { drafts, bodies, ends, reply });
        if self.queue.send(item).await.is_err() {
            return Err(self.failure());
        }
        answer.await.unwrap_or_else(|_| Err(self.failure()))
    }

    fn failure(&self) -> JournalError {
        self.failure.get().cloned().unwrap_or(JournalError::Closed)
    }
}

impl Journal for Mailbox {
    fn append(&self, drafts: Vec<Draft>) -> JournalFuture<'_, Reply> {
        match drafts.is_empty() {
            true => Box::pin(std::future::ready(Ok(Vec::new()))),
            false => Box::pin(self.queue(drafts)),
        }
    }

    fn flush(&self) -> JournalFuture<'_, Result<(), JournalError>> {
        Box::pin(async { self.queue(Vec::new()).await.map(drop) })
    }

    fn agent_records<'a>(&'a self, agent: &'a AgentId) -> JournalFuture<'a, Reply> {
        Box::pin(async move {
            let Some(path) = self.path.clone() else {
                return Err(JournalError::Io("this journal cannot be read back".to_owned()));
            };
            let agent = agent.clone();
            let read = move || reader::agent_records(&path, &agent);
            // A task of the blocking pool is lost only when the runtime shuts down.
            tokio::task::spawn_blocking(read).await.unwrap_or(Err(JournalError::Closed))
        })
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.committed.clone()
    }

    fn disk_space(&self) -> watch::Receiver<DiskSpace> {
        self.room.clone()
    }

    fn report_full(&self) -> bool {
        // If the queue has no place, the writer is busy writing and finds out by itself.
        !matches!(self.queue.try_send(Item::Full), Err(TrySendError::Closed(_)))
    }

    fn close(&self) -> JournalFuture<'_, ()> {
        Box::pin(async {
            self.closing.cancel();
            // A closed queue means that the writer is already ending.
            let _ = self.queue.send(Item::Close).await;
            self.ended.cancelled().await;
        })
    }
}

/// Starts a writer that appends from the position `at`. `path` is the file from which the records
/// can be read back, if there is one.
///
/// # Errors
/// Returns an error if the storage does not end at `at`, or if the thread cannot be started.
pub fn start<S: Storage + 'static>(
    mut storage: S,
    at: Position,
    path: Option<PathBuf>,
    observers: Vec<Box<dyn Observer>>,
) -> Result<JournalHandle, JournalError> {
    let len = storage.len().map_err(|error| JournalError::io("journal: length", &error))?;
    if len != at.offset {
        let reason = format!("journal: {len} bytes long, expected {}", at.offset);
        return Err(JournalError::Io(reason));
    }
    let (queue, items) = mpsc::channel(QUEUE);
    let (committed_to, committed) = watch::channel(at.seq.saturating_sub(1));
    let failure = Arc::new(OnceLock::new());
    let (closing, ended) = (CancellationToken::new(), CancellationToken::new());
    let keeper = Keeper::new(&mut storage);
    let room = keeper.watch();
    let writer = Writer {
        storage,
        keeper,
        closing: closing.clone(),
        at,
        items,
        observers,
        failure: failure.clone(),
        committed: committed_to,
        batch: Vec::new(),
        bytes: Vec::new(),
        waiting: Vec::new(),
        observed: Vec::new(),
        last_batch: 0,
        last_sync: GATHER,
        catch_up_at: None,
        _ended: ended.clone().drop_guard(),
    };
    let thread = std::thread::Builder::new().name("journal".to_owned());
    let spawned = thread.spawn(move || writer.run());
    spawned.map_err(|error| JournalError::io("journal: thread", &error))?;
    Ok(JournalHandle::new(Mailbox { queue, failure, committed, room, closing, ended, path }))
}

struct Writer<S> {
    storage: S,
    keeper: Keeper,
    /// Cancelled when the journal is being closed: then no caller waits for disk space any more.
    closing: CancellationToken,
    /// The position of the next batch: everything before it is durable.
    at: Position,
    items: mpsc::Receiver<Item>,
    observers: Vec<Box<dyn Observer>>,
    failure: Arc<OnceLock<JournalError>>,
    committed: watch::Sender<u64>,
    batch: Vec<Append>,
    bytes: Vec<u8>,
    waiting: Vec<(oneshot::Sender<Reply>, Vec<SharedRecord>)>,
    observed: Vec<SharedRecord>,
    /// Number of appends in the last batch.
    last_batch: usize,
    /// Duration of the last sync.
    last_sync: Duration,
    /// The time at which the observers must do the work that they put off.
    catch_up_at: Option<Instant>,
    /// Wakes the callers of `close`. It is a guard, so that it fires however the thread ends.
    _ended: DropGuard,
}

impl<S: Storage> Writer<S> {
    fn run(mut self) {
        while self.collect() {
            match self.commit() {
                Ok(next) => self.acknowledge(next),
                Err(error) => {
                    self.catch_up();
                    return self.fail(error);
                }
            }
        }
        self.catch_up();
    }

    /// Waits for an append and takes what else is queued. Returns false when no more can come.
    fn collect(&mut self) -> bool {
        loop {
            match self.next_item() {
                Some(Item::Append(append)) => {
                    self.batch.push(append);
                    break;
                }
                Some(Item::Full) => self.met_full(),
                Some(Item::Close) => self.items.close(),
                None => return false,
            }
        }
        if self.last_batch >= CROWD {
            self.gather();
        }
        let mut bytes = self.batch.iter().map(|append| append.bodies.len()).sum::<usize>();
        while bytes < BATCH_BYTES && self.batch.len() < BATCH_ITEMS {
            match self.items.try_recv() {
                Ok(Item::Append(append)) => {
                    bytes += append.bodies.len();
                    self.batch.push(append);
                }
                Ok(Item::Full) => self.met_full(),
                Ok(Item::Close) => self.items.close(),
                Err(_) => break,
            }
        }
        self.last_batch = self.batch.len();
        true
    }

    /// Lets appends gather: for half the time of a sync, at most [`GATHER`], or until as many have
    /// come as the last batch had.
    fn gather(&mut self) {
        let until = Instant::now() + GATHER.min(self.last_sync / 2);
        while self.items.len() + self.batch.len() < self.last_batch {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // Sleep, because a wait on the queue would wake this thread for every append.
            std::thread::sleep(left.min(GLANCE));
        }
    }

    /// Waits for an item, and meanwhile does the work whose time has come. Returns `None` when no
    /// more items can come.
    fn next_item(&mut self) -> Option<Item> {
        loop {
            let (catch_up_at, look_at) = (self.catch_up_at, self.keeper.next_look());
            let limit = catch_up_at.map_or(look_at, |catch_up_at| catch_up_at.min(look_at));
            if let Some(item) = receive_until(&mut self.items, limit) {
                return item;
            }
            if catch_up_at == Some(limit) {
                self.catch_up();
            }
            if look_at == limit {
                self.keeper.look(&mut self.storage);
            }
        }
    }

    /// Releases the reserve after another writer found the disk full, so that it can use that
    /// space.
    fn met_full(&mut self) {
        self.keeper.give_up_reserve(&mut self.storage);
    }

    fn catch_up(&mut self) {
        if self.catch_up_at.take().is_some() {
            self.observers.iter_mut().for_each(|observer| observer.catch_up());
        }
    }

    /// Makes the collected appends durable as one batch. Returns the position after it. On a full
    /// disk it waits for disk space: no append is lost, and none is acknowledged before it is
    /// written.
    fn commit(&mut self) -> Result<Position, JournalError> {
        let next = self.frame();
        if next.seq == self.at.seq {
            // The batch is a flush only: everything before it is durable already.
            return Ok(next);
        }
        self.keeper.check(&mut self.storage);
        let mut pauses = disk::pauses();
        while let Err(error) = self.write() {
            if error != JournalError::Full || self.closing.is_cancelled() {
                return Err(error);
            }
            if !self.keeper.give_up_reserve(&mut self.storage) {
                self.catch_up();
                pauses.next().into_iter().for_each(std::thread::sleep);
            }
        }
        crash::pass(Point::AfterWrite);
        let began = Instant::now();
        self.storage.sync().map_err(|error| JournalError::io("journal: sync", &error))?;
        self.last_sync = began.elapsed();
        crash::pass(Point::AfterSync);
        Ok(next)
    }

    /// Writes the whole batch, or leaves nothing of it in the journal.
    fn write(&mut self) -> Result<(), JournalError> {
        let lost = |how: &str| Err(JournalError::Io(format!("journal: the file was {how}")));
        match self.storage.presence() {
            Ok(Presence::Kept) => {}
            Ok(Presence::Removed) => return lost("removed"),
            Ok(Presence::Replaced) => return lost("replaced by another"),
            Err(error) => return Err(JournalError::io("journal: look at the file", &error)),
        }
        // If the length changed, the batch would follow foreign bytes or a gap.
        match self.storage.len() {
            Ok(len) if len == self.at.offset => {}
            Ok(_) => return lost("changed by somebody else"),
            Err(error) => return Err(JournalError::io("journal: length", &error)),
        }
        crash::pass(Point::BeforeWrite);
        let half = &self.bytes[..self.bytes.len() / 2];
        crash::after(Point::HalfWrite, || drop(self.storage.append(half)));
        let error = match self.storage.append(&self.bytes) {
            Ok(written) if written == self.bytes.len() => return Ok(()),
            Ok(_) => JournalError::Full,
            Err(error) if disk::is_full(&error) => JournalError::Full,
            // A limit of this process, which whoever set it may lift.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => JournalError::Full,
            Err(error) => JournalError::io("journal: write", &error),
        };
        // Readers and a later resume must not meet half a batch, and nothing may follow one.
        match (self.storage.truncate(self.at.offset), error) {
            (Ok(()), error) => Err(error),
            (Err(cut), JournalError::Full) => Err(JournalError::io("journal: cut", &cut)),
            // A resume cuts the torn end that is left.
            (Err(_), error) => Err(error),
        }
    }

    /// Turns the collected appends into bytes and records. Returns the position after them.
    fn frame(&mut self) -> Position {
        let lines = self.batch.iter().map(|append| append.drafts.len() as u64).sum::<u64>();
        let (first, epoch, ts_ms) = (self.at.seq, self.at.epoch, stamp::now_ms());
        let batch = Batch { first, last: (first + lines).saturating_sub(1), epoch, ts_ms };
        let mut framer = Framer::new(batch, self.at.crc);
        self.bytes.clear();
        for append in self.batch.drain(..) {
            let mut records = Vec::with_capacity(append.drafts.len());
            let mut begin = 0;
            for (draft, end) in append.drafts.into_iter().zip(append.ends) {
                let seq = framer.write(&append.bodies[begin..end], &mut self.bytes);
                begin = end;
                let Draft { task, agent, event } = draft;
                records.push(Arc::new(Record { seq, epoch, ts_ms, task, agent, event }));
            }
            if !self.observers.is_empty() {
                self.observed.extend(records.iter().cloned());
            }
            self.waiting.push((append.reply, records));
        }
        let offset = self.at.offset + self.bytes.len() as u64;
        Position { seq: first + lines, crc: framer.crc(), epoch, offset }
    }

    fn acknowledge(&mut self, next: Position) {
        let before = std::mem::replace(&mut self.at, next);
        self.committed.send_replace(next.seq - 1);
        for (reply, records) in self.waiting.drain(..) {
            // The caller may be gone; the record is durable all the same.
            let _ = reply.send(Ok(records));
        }
        if self.observed.is_empty() {
            return;
        }
        for observer in &mut self.observers {
            observer.batch(before, next);
            for record in &self.observed {
                observer.committed(record);
            }
            observer.batch_end();
        }
        self.observed.clear();
        self.catch_up_at.get_or_insert_with(|| Instant::now() + CATCH_UP_AFTER);
        // One huge append must not hold its memory for the rest of the run.
        self.bytes.clear();
        self.bytes.shrink_to(4 * BATCH_BYTES);
    }

    /// Fails all appends that wait now or come later.
    fn fail(mut self, error: JournalError) {
        // Set the reason before the queue closes: a caller that finds the queue closed looks for
        // the reason.
        let error = self.failure.get_or_init(|| error).clone();
        self.items.close();
        for (reply, _) in self.waiting.drain(..) {
            let _ = reply.send(Err(error.clone()));
        }
        while let Some(item) = self.items.blocking_recv() {
            match item {
                // The caller may be gone.
                Item::Append(append) => drop(append.reply.send(Err(error.clone()))),
                Item::Full | Item::Close => {}
            }
        }
    }
}

/// Waits for the queue's next item until `limit`. Returns `None` when the time is up, and
/// `Some(None)` when no more items can come.
fn receive_until(items: &mut mpsc::Receiver<Item>, limit: Instant) -> Option<Option<Item>> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    if Instant::now() >= limit {
        return None;
    }
    if let Ok(item) = items.try_recv() {
        return Some(Some(item));
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(item) = items.poll_recv(&mut context) {
            return Some(item);
        }
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::{Condvar, Mutex};

    use super::*;
    use crate::journal::reader::{Tail, judge};
    use crate::journal::samples::turn;

    /// A disk in memory that counts, can fail, and can hold a sync until the test releases it.
    #[derive(Clone, Default)]
    struct Disk(Arc<DiskState>);

    #[derive(Default)]
    struct DiskState {
        bytes: Mutex<Vec<u8>>,
        syncs: AtomicU64,
        sync_fails: Mutex<bool>,
        unlinked: Mutex<bool>,
        held: Mutex<bool>,
        resume: Condvar,
    }

    impl Disk {
        fn release(&self) {
            *self.0.held.lock() = false;
            self.0.resume.notify_all();
        }
        fn syncs(&self) -> u64 {
            self.0.syncs.load(Ordering::SeqCst)
        }
        fn start(&self) -> JournalHandle {
            start(self.clone(), Position::START, None, Vec::new()).unwrap()
        }
    }

    impl Storage for Disk {
        fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.bytes.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn sync(&mut self) -> io::Result<()> {
            self.0.syncs.fetch_add(1, Ordering::SeqCst);
            let mut held = self.0.held.lock();
            self.0.resume.wait_while(&mut held, |held| *held);
            if *self.0.sync_fails.lock() { Err(io::Error::other("bad disk")) } else { Ok(()) }
        }
        fn truncate(&mut self, len: u64) -> io::Result<()> {
            self.0.bytes.lock().truncate(len as usize);
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.bytes.lock().len() as u64)
        }
        fn presence(&self) -> io::Result<Presence> {
            Ok(if *self.0.unlinked.lock() { Presence::Removed } else { Presence::Kept })
        }
        fn free(&self) -> io::Result<u64> {
            Ok(1 << 40)
        }
        fn reserve(&mut self, _bytes: u64) -> io::Result<()> {
            Ok(())
        }
    }

    fn two(turns: u32) -> Vec<Draft> {
        vec![turn("a", turns), turn("b", turns)]
    }

    #[tokio::test]
    async fn appends_are_numbered_and_kept_whole() {
        let disk = Disk::default();
        let journal = disk.start();
        assert_eq!(*journal.committed().borrow(), 0);
        let first = journal.append(two(1)).await.unwrap();
        let second = journal.append(two(2)).await.unwrap();
        let numbers = first.iter().chain(&second).map(|record| record.seq).collect::<Vec<_>>();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert_eq!(*journal.committed().borrow(), 4);
        assert_eq!(journal.append(Vec::new()).await, Ok(Vec::new()));
        journal.close().await;
        assert_eq!(journal.append(two(3)).await, Err(JournalError::Closed));
        let bytes = disk.0.bytes.lock().clone();
        let (end, tail) = judge(&bytes[..], Position::START).unwrap();
        assert_eq!((end.seq, end.offset, tail), (5, bytes.len() as u64, Tail::Clean));
    }

    #[tokio::test]
    async fn what_waits_behind_a_sync_becomes_one_batch() {
        let disk = Disk::default();
        *disk.0.held.lock() = true;
        let journal = disk.start();
        let mut appends = Vec::new();
        for number in 0..200 {
            let journal = journal.clone();
            let append = async move { journal.append(two(number)).await };
            // Without tokio's budget, which would make a poll give up before it has queued.
            let mut append = Box::pin(tokio::task::unconstrained(append));
            // One poll queues the append, so that all stand there before the first sync ends.
            assert!(futures_util::poll!(&mut append).is_pending());
            appends.push(append);
        }
        disk.release();
        for (number, append) in appends.into_iter().enumerate() {
            let records = append.await.unwrap();
            let numbers = records.iter().map(|record| record.seq).collect::<Vec<_>>();
            assert_eq!(numbers, [2 * number as u64 + 1, 2 * number as u64 + 2]);
        }
        // The first batch holds the appends found when the thread woke up, the second one all
        // others.
        assert!(disk.syncs() <= 2, "{}", disk.syncs());
    }

    #[tokio::test]
    async fn a_failed_sync_is_never_tried_again_or_acknowledged() {
        let disk = Disk::default();
        let journal = disk.start();
        journal.append(two(1)).await.unwrap();
        *disk.0.sync_fails.lock() = true;
        let error = journal.append(two(2)).await.unwrap_err();
        assert_eq!(error, JournalError::Io("journal: sync: bad disk".to_owned()));
        *disk.0.sync_fails.lock() = false;
        assert_eq!(journal.append(two(3)).await, Err(error));
        assert_eq!((disk.syncs(), *journal.committed().borrow()), (2, 2));
    }

    #[tokio::test]
    async fn a_removed_file_stops_the_journal() {
        let disk = Disk::default();
        let journal = disk.start();
        *disk.0.unlinked.lock() = true;
        assert!(matches!(journal.append(two(1)).await, Err(JournalError::Io(_))));
        assert_eq!((disk.syncs(), disk.0.bytes.lock().len()), (0, 0));
    }

    #[tokio::test]
    async fn a_writer_goes_on_where_it_is_told() {
        let disk = Disk::default();
        let journal = disk.start();
        journal.append(two(1)).await.unwrap();
        journal.close().await;
        let (end, _) = judge(&disk.0.bytes.lock()[..], Position::START).unwrap();
        assert!(start(disk.clone(), Position { offset: 3, ..end }, None, Vec::new()).is_err());
        let at = Position { epoch: 2, ..end };
        let journal = start(disk.clone(), at, None, Vec::new()).unwrap();
        assert_eq!(*journal.committed().borrow(), 2);
        let records = journal.append(two(2)).await.unwrap();
        assert_eq!((records[0].seq, records[0].epoch), (3, 2));
        let (end, tail) = judge(&disk.0.bytes.lock()[..], Position::START).unwrap();
        assert_eq!((end.seq, end.epoch, tail), (5, 2, Tail::Clean));
    }

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<u64>>>);
    impl Observer for Seen {
        fn committed(&mut self, record: &SharedRecord) {
            self.0.lock().push(record.seq);
        }
        fn batch_end(&mut self) {
            self.0.lock().push(0);
        }
        fn catch_up(&mut self) {
            self.0.lock().push(u64::MAX);
        }
    }

    fn observed() -> (Seen, JournalHandle) {
        let seen = Seen::default();
        let observers: Vec<Box<dyn Observer>> = vec![Box::new(seen.clone())];
        (seen, start(Disk::default(), Position::START, None, observers).unwrap())
    }

    #[tokio::test]
    async fn observers_hear_everything_before_close_returns() {
        let (seen, journal) = observed();
        journal.append(two(1)).await.unwrap();
        journal.append(two(2)).await.unwrap();
        journal.close().await;
        let seen = seen.0.lock();
        // Between the two a slow machine may have had the time to catch up.
        let heard: Vec<_> = seen.iter().copied().filter(|seq| *seq != u64::MAX).collect();
        assert_eq!((heard, seen.last()), (vec![1, 2, 0, 3, 4, 0], Some(&u64::MAX)));
    }

    #[tokio::test]
    async fn observers_catch_up_once_after_a_while_without_news() {
        let (seen, journal) = observed();
        journal.append(two(1)).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while seen.0.lock().last() != Some(&u64::MAX) {
            assert!(Instant::now() < deadline, "{:?}", seen.0.lock());
            tokio::task::yield_now().await;
        }
        journal.close().await;
        assert_eq!(*seen.0.lock(), [1, 2, 0, u64::MAX]);
    }
}
