//! A simulated disk in memory that refuses, fails and loses power, and tests of the writer on it.
//!
//! Unsynced bytes are kept apart. A power cut leaves a random part of them, in pieces and in any
//! order, as a disk with a cache does. A failed sync loses for good the bytes that it could not
//! write, although the process can still read them, as on Linux. Everything follows from a seed.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::event::{Draft, Record};
use crate::journal::line::{self, Position};
use crate::journal::reader::{Tail, judge};
use crate::journal::samples::turn;
use crate::journal::storage::{Presence, Storage};
use crate::journal::writer::start;
use crate::journal::{JournalError, JournalHandle};

/// The largest piece that survives as a whole, in bytes: a sector, made smaller so that a line has
/// several.
const PIECE: usize = 64;

/// The faults of a disk, each with the number of the operation at which it happens.
#[derive(Clone, Debug, Default)]
struct Fate {
    power_cut: Option<u64>,
    write_fails: Option<u64>,
    sync_fails: Option<u64>,
    short_write: Option<u64>,
    /// Bytes of disk space for the journal and the reserve.
    capacity: Option<usize>,
    /// Number of refused writes after which there is space again, or after which the power is cut.
    patience: u64,
    room_again: bool,
    /// True if a sync returns success without making anything durable.
    lies: bool,
}

/// Clones share one disk.
#[derive(Clone, Debug)]
struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    rng: fastrand::Rng,
    fate: Fate,
    /// The bytes that survive a power cut.
    synced: Vec<u8>,
    /// The bytes that a reader sees.
    seen: Vec<u8>,
    unsynced: Vec<DiskOp>,
    reserve: usize,
    operations: u64,
    refusals: u64,
    /// The bytes left after the power cut.
    remains: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum DiskOp {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
}

impl DiskOp {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => {
                // A hole reads as zeros.
                to.resize(to.len().max(at + bytes.len()), 0);
                to[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Cut(len) => to.truncate(*len),
        }
    }
}

impl State {
    /// Counts an operation. Returns an error if the power is off.
    fn operation(&mut self) -> io::Result<u64> {
        self.operations += 1;
        match self.remains {
            Some(_) => Err(io::Error::other("no power")),
            None => Ok(self.operations),
        }
    }

    /// Ends an operation. Returns an error if the power was cut during it.
    fn done<T>(&mut self, at: u64, result: io::Result<T>) -> io::Result<T> {
        if self.fate.power_cut.is_some_and(|cut| cut <= at) {
            self.cut_power();
            return Err(io::Error::other("no power"));
        }
        result
    }

    /// Writes a random part of the unsynced bytes, in random order, over the synced ones.
    fn torn(&mut self) -> Vec<u8> {
        let keep = [0.0, 0.1, 0.5, 0.9, 1.0][self.rng.usize(..5)];
        let mut pieces = Vec::new();
        for change in self.unsynced.drain(..) {
            match change {
                DiskOp::Cut(_) => pieces.push(change),
                DiskOp::Write { at, bytes } => {
                    let mut from = 0;
                    while from < bytes.len() {
                        let to = bytes.len().min(from + self.rng.usize(1..=PIECE));
                        let piece = bytes[from..to].to_vec();
                        pieces.push(DiskOp::Write { at: at + from, bytes: piece });
                        from = to;
                    }
                }
            }
        }
        if self.rng.bool() {
            self.rng.shuffle(&mut pieces);
        }
        let mut left = self.synced.clone();
        for piece in pieces {
            if self.rng.f64() < keep {
                piece.apply(&mut left);
            }
        }
        left
    }

    fn cut_power(&mut self) {
        if self.remains.is_none() {
            let left = self.torn();
            self.remains = Some(left);
        }
    }

    fn left(&self) -> usize {
        let used = self.seen.len() + self.reserve;
        self.fate.capacity.map_or(1 << 40, |capacity| capacity.saturating_sub(used))
    }
}

impl Storage for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let at = state.operation()?;
        if state.fate.write_fails == Some(at) {
            return state.done(at, Err(io::Error::other("bad sector")));
        }
        let mut taken = bytes.len().min(state.left());
        if state.fate.short_write == Some(at) {
            taken = state.rng.usize(..=taken);
        }
        if taken < bytes.len() {
            state.refusals += 1;
            if state.refusals > state.fate.patience {
                match state.fate.room_again {
                    true => state.fate.capacity = None,
                    false => state.cut_power(),
                }
            }
        }
        if taken == 0 {
            return state.done(at, Err(io::ErrorKind::StorageFull.into()));
        }
        let change = DiskOp::Write { at: state.seen.len(), bytes: bytes[..taken].to_vec() };
        change.apply(&mut state.seen);
        state.unsynced.push(change);
        state.done(at, Ok(taken))
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.lock();
        let at = state.operation()?;
        if state.fate.sync_fails == Some(at) {
            // The pages count as clean from now on: they are never written again.
            state.synced = state.torn();
            return state.done(at, Err(io::Error::other("bad disk")));
        }
        // The power may be cut during the sync.
        if state.done(at, Ok(())).is_ok() && !state.fate.lies {
            let state = &mut *state;
            state.unsynced.drain(..).for_each(|change| change.apply(&mut state.synced));
        }
        state.done(at, Ok(()))
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let at = state.operation()?;
        let change = DiskOp::Cut(len as usize);
        change.apply(&mut state.seen);
        state.unsynced.push(change);
        state.done(at, Ok(()))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().seen.len() as u64)
    }

    fn presence(&self) -> io::Result<Presence> {
        Ok(Presence::Kept)
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.0.lock().left() as u64)
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let before = std::mem::take(&mut state.reserve);
        if bytes as usize > state.left() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // A reserve is never replaced by another size: it is released first.
        assert!(before == 0 || bytes == 0);
        state.reserve = bytes as usize;
        Ok(())
    }
}

impl Disk {
    fn new(content: Vec<u8>, fate: Fate, seed: u64) -> Self {
        let (rng, seen, synced) = (fastrand::Rng::with_seed(seed), content.clone(), content);
        Self(Arc::new(Mutex::new(State {
            rng,
            fate,
            synced,
            seen,
            unsynced: Vec::new(),
            reserve: 0,
            operations: 0,
            refusals: 0,
            remains: None,
        })))
    }

    /// Returns the bytes that are found when the machine is on again.
    fn after_power_cut(&self) -> Vec<u8> {
        let mut state = self.0.lock();
        state.cut_power();
        state.remains.clone().expect("the power is cut")
    }
}

/// Returns the records of whole batches, and the position at which they end.
fn recover(bytes: &[u8]) -> (Vec<Record>, Position, Tail) {
    let (end, tail) = judge(bytes, Position::START).expect("memory can be read");
    let (mut records, mut crc) = (Vec::new(), 0);
    for line in bytes[..end.offset as usize].split_inclusive(|byte| *byte == b'\n') {
        let line = line::decode(line, crc).expect("it was judged to be whole");
        crc = line.crc;
        records.push(line.record().expect("a record").expect("a known type"));
    }
    (records, end, tail)
}

/// Appends to the journal until the work is done or the disk fails. Returns the acknowledged
/// records.
async fn work(journal: &JournalHandle, rng: &mut fastrand::Rng) -> Vec<Arc<Record>> {
    let mut acknowledged = Vec::new();
    for _ in 0..rng.u32(1..8) {
        let callers = (0..rng.u32(1..5)).map(|caller| {
            let lines = rng.u32(1..4);
            let drafts: Vec<Draft> = (0..lines).map(|n| turn(&format!("a-{caller}"), n)).collect();
            journal.append(drafts)
        });
        let answers = futures_util::future::join_all(callers.collect::<Vec<_>>()).await;
        let failed = answers.iter().any(Result::is_err);
        acknowledged.extend(answers.into_iter().flatten().flatten());
        if failed {
            break;
        }
    }
    acknowledged
}

fn fate(rng: &mut fastrand::Rng) -> Fate {
    let mut some = |chance: f64| (rng.f64() < chance).then(|| rng.u64(1..24));
    let (power_cut, write_fails) = (some(0.6), some(0.2));
    let (sync_fails, short_write) = (some(0.2), some(0.3));
    let capacity = (rng.f64() < 0.15).then(|| rng.usize(..4096));
    let (patience, room_again) = (rng.u64(..3), rng.bool());
    let lies = false;
    Fate { power_cut, write_fails, sync_fails, short_write, capacity, patience, room_again, lies }
}

/// Survives some power cuts. Returns an error if an acknowledged record was lost.
async fn live(seed: u64, adapt: fn(&mut Fate)) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut acknowledged, mut remains): (Vec<Arc<Record>>, _) = (Vec::new(), Vec::new());
    for epoch in 1..=rng.u64(2..5) {
        let (found, end, tail) = recover(&remains);
        if !matches!(tail, Tail::Clean | Tail::Torn { .. }) {
            return Err(format!("epoch {epoch}: {tail:?}"));
        }
        for record in &acknowledged {
            let kept = found.get(record.seq as usize - 1);
            if kept != Some(&**record) {
                return Err(format!("epoch {epoch}: {record:?} is {kept:?}"));
            }
        }
        let mut fate = fate(&mut rng);
        fate.capacity = fate.capacity.map(|capacity| capacity + end.offset as usize);
        adapt(&mut fate);
        let mut disk = Disk::new(remains, fate, rng.u64(..));
        // Cut the torn end as a resume does; the power may be cut here too.
        let cut = disk.truncate(end.offset).and_then(|()| disk.sync());
        if cut.is_ok() {
            let at = Position { epoch, ..end };
            let journal = start(disk.clone(), at, None, Vec::new()).expect("a writer");
            acknowledged.extend(work(&journal, &mut rng).await);
            journal.close().await;
        }
        remains = disk.after_power_cut();
    }
    Ok(())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

#[test]
fn nothing_acknowledged_is_ever_lost() {
    const SEEDS: u64 = 2_000;
    block_on(async {
        for seed in 0..SEEDS {
            live(seed, |_| {}).await.unwrap_or_else(|lost| panic!("seed {seed}: {lost}"));
        }
    });
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    block_on(async {
        let mut lost = 0;
        for seed in 0..100 {
            lost += u32::from(live(seed, |fate| fate.lies = true).await.is_err());
        }
        assert!(lost > 20, "the simulated disk loses too little: {lost}");
    });
}

#[test]
fn a_full_disk_is_waited_for_and_loses_nothing() {
    block_on(async {
        let fate =
            Fate { capacity: Some(40_000), patience: 3, room_again: true, ..Fate::default() };
        let disk = Disk::new(Vec::new(), fate, 1);
        let journal = start(disk.clone(), Position::START, None, Vec::new()).expect("a writer");
        let mut room = journal.disk_space();
        assert_eq!(*room.borrow_and_update(), crate::journal::disk_space::DiskSpace::Enough);
        let mut numbers = Vec::new();
        for number in 0..400 {
            let records = journal.append(vec![turn("a", number)]).await.expect("room in the end");
            numbers.extend(records.iter().map(|record| record.seq));
        }
        assert!(numbers.into_iter().eq(1..=400));
        assert!(disk.0.lock().refusals > 3);
        assert!(room.has_changed().expect("the writer lives"), "it told of it");
        room.wait_for(|room| *room == crate::journal::disk_space::DiskSpace::Enough)
            .await
            .expect("room again");
        assert!(disk.0.lock().reserve > 0, "the reserve is back");
        journal.close().await;
        assert_eq!(recover(&disk.after_power_cut()).0.len(), 400);
    });
}

#[test]
fn who_waits_for_room_is_told_when_the_journal_is_closed() {
    block_on(async {
        let fate = Fate { capacity: Some(2_000), patience: u64::MAX, ..Fate::default() };
        let disk = Disk::new(Vec::new(), fate, 1);
        let journal = start(disk.clone(), Position::START, None, Vec::new()).expect("a writer");
        let many = (0..50).map(|number| turn("a", number)).collect::<Vec<_>>();
        let appended = journal.append(many);
        let closed = async {
            while disk.0.lock().refusals < 3 {
                tokio::task::yield_now().await;
            }
            assert!(journal.report_full());
            journal.close().await;
        };
        let (appended, ()) = tokio::join!(appended, closed);
        assert_eq!(appended, Err(JournalError::Full));
        assert_eq!(journal.append(vec![turn("a", 1)]).await, Err(JournalError::Full));
        assert!(!journal.report_full());
        let (records, _, tail) = recover(&disk.after_power_cut());
        assert!(records.is_empty() && matches!(tail, Tail::Clean | Tail::Torn { offset: 0 }));
    });
}
