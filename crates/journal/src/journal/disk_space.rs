//! Disk space of a run: the amount that is kept free, and the reaction to a full disk.
//!
//! Owns the sizes and the keeper of one journal's reserve. The keeper only watches the free space
//! and releases the reserve; the code that watches the keeper must prevent new work.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::disk::{FIRST_LOOK, LONGEST_LOOK, longer};
use crate::journal::storage::Storage;

/// Bytes kept in reserve on a disk that has enough space: 64 MiB, enough for the results of a
/// thousand calls in flight.
const RESERVE: u64 = 64 << 20;

/// Free bytes below which no new work begins, on a large disk: 1 GiB.
const WATERMARK: u64 = 1 << 30;

/// The same limit for the smallest disk: 256 KiB, space for the records of a few calls.
const LEAST_WATERMARK: u64 = 256 << 10;

/// Time after which an append to a full disk gives up, where no caller can wait for space. The
/// reserve makes space for the record, so an append takes this long only if the reserve is used up
/// too.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The state of the disk: enough space for new work, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    /// There is space for new work.
    Enough,
    /// There is space only for calls in flight.
    Scarce,
}

/// Sizes of the space that is kept free, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// Bytes kept in reserve, released when the disk is full.
    reserve: u64,
    /// Free bytes below which no new work begins.
    watermark: u64,
}

impl Sizes {
    /// Returns the sizes for a disk with this many free bytes. A small disk is no reason to refuse
    /// a run: the run pauses only when half of the free space is used up. On a disk with no free
    /// space at all, the run waits.
    fn of(free: u64) -> Self {
        let watermark = WATERMARK.min(free / 2).max(LEAST_WATERMARK);
        Self { reserve: RESERVE.min(free / 16), watermark }
    }

    /// Returns the free bytes at which work resumes after this many pauses: an eighth above the watermark, and
    /// with each pause twice as much, up to twice the watermark. So a file that comes and goes does not pause
    /// and resume the run again and again, however large it is.
    fn resume(&self, held: bool, pauses: u32) -> u64 {
        let reserve = if held { 0 } else { self.reserve };
        let margin = (self.watermark / 8) << pauses.saturating_sub(1).min(3);
        self.watermark + margin + reserve
    }
}

/// Keeps the reserve of one journal and reports the state of the disk.
#[derive(Debug)]
pub(super) struct Keeper {
    sizes: Sizes,
    /// True while the reserve is in place.
    held: bool,
    room: watch::Sender<DiskSpace>,
    /// The time of the next check while nothing is written.
    next_look: Instant,
    /// While space is scarce: the pause that follows the next check.
    pause: Option<Duration>,
    /// Number of times that space was scarce.
    pauses: u32,
}

impl Keeper {
    /// Measures the disk and sets the reserve aside.
    pub(super) fn new(storage: &mut impl Storage) -> Self {
        let mut sizes = Sizes::of(storage.free().unwrap_or_else(|error| {
            tracing::warn!(%error, "the free space of the run's disk is not known");
            0
        }));
        let kept = storage.reserve(sizes.reserve);
        if let Err(error) = &kept {
            tracing::warn!(%error, "no room can be kept aside for a full disk");
            sizes.reserve = 0;
        }
        let (room, _) = watch::channel(DiskSpace::Enough);
        let next_look = Instant::now() + LONGEST_LOOK;
        Self { sizes, held: kept.is_ok(), room, next_look, pause: None, pauses: 0 }
    }

    /// Returns a watch on the state of the disk.
    pub(super) fn watch(&self) -> watch::Receiver<DiskSpace> {
        self.room.subscribe()
    }

    /// Returns the time of the next check.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Checks the free space, to notice a nearly full disk before a write fails. Below a quarter of
    /// the reserve's size it releases the reserve, because other writers need the space for their
    /// results in flight.
    pub(super) fn check(&mut self, storage: &mut impl Storage) {
        let Ok(free) = storage.free() else { return };
        if free < self.sizes.watermark {
            self.scarce();
        }
        if free < self.sizes.reserve / 4 {
            self.give_up_reserve(storage);
        }
    }

    /// Releases the reserve after a write found the disk full. Returns false if there is no reserve
    /// to release.
    pub(super) fn give_up_reserve(&mut self, storage: &mut impl Storage) -> bool {
        self.scarce();
        if self.sizes.reserve == 0 || !std::mem::take(&mut self.held) {
            return false;
        }
        let given = storage.reserve(0);
        if let Err(error) = &given {
            tracing::warn!(%error, "the room that was kept aside cannot be had");
        }
        given.is_ok()
    }

    /// Checks if work must stop or can resume. It can resume once there is free space and the
    /// reserve is in place again.
    pub(super) fn look(&mut self, storage: &mut impl Storage) {
        self.check(storage);
        let Some(pause) = self.pause else {
            self.next_look = Instant::now() + LONGEST_LOOK;
            return;
        };
        if storage.free().is_ok_and(|free| free >= self.sizes.resume(self.held, self.pauses)) {
            // The reserve is made before work resumes: without it the next full disk could not be
            // recorded.
            self.held = self.held || storage.reserve(self.sizes.reserve).is_ok();
            if self.held {
                self.pause = None;
                self.room.send_replace(DiskSpace::Enough);
            }
        }
        self.next_look = Instant::now() + pause;
        self.pause = self.pause.map(longer);
    }

    fn scarce(&mut self) {
        if self.pause.is_none() {
            self.next_look = Instant::now() + FIRST_LOOK;
            self.pause = Some(longer(FIRST_LOOK));
            self.pauses = self.pauses.saturating_add(1);
            self.room.send_replace(DiskSpace::Scarce);
        }
    }
}

/// Completes once space has been scarce for [`PATIENCE`]. A slow disk is not a reason to give up.
pub(super) async fn out_of_patience(room: &mut watch::Receiver<DiskSpace>) {
    if room.wait_for(|room| *room == DiskSpace::Scarce).await.is_err() {
        // The journal is closed: the waiting append reports that itself.
        return std::future::pending().await;
    }
    tokio::time::sleep(PATIENCE).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_disks_keep_less_aside() {
        let large = Sizes { reserve: RESERVE, watermark: WATERMARK };
        assert_eq!(Sizes::of(1 << 40), large);
        assert_eq!(Sizes::of(1 << 31), large);
        let small = Sizes { reserve: 128 << 10, watermark: 1 << 20 };
        assert_eq!(Sizes::of(2 << 20), small);
        for free in [1 << 20, 1 << 30, 1 << 31, u64::MAX / 4] {
            let sizes = Sizes::of(free);
            assert!(sizes.resume(true, 1) >= sizes.watermark, "{free}");
            assert!(free - sizes.reserve >= sizes.watermark, "a run can begin with {free}");
        }
        assert!(Sizes::of(100_000).watermark > 100_000, "a run waits for room");
    }

    /// A disk whose free space somebody else changes.
    struct Shared(u64);

    impl Storage for Shared {
        fn append(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }
        fn sync(&mut self) -> std::io::Result<()> {
            Ok(())
        }
        fn truncate(&mut self, _len: u64) -> std::io::Result<()> {
            Ok(())
        }
        fn len(&self) -> std::io::Result<u64> {
            Ok(0)
        }
        fn presence(&self) -> std::io::Result<crate::journal::storage::Presence> {
            Ok(crate::journal::storage::Presence::Kept)
        }
        fn free(&self) -> std::io::Result<u64> {
            Ok(self.0)
        }
        fn reserve(&mut self, _bytes: u64) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_comes_and_goes_pauses_a_run_a_few_times_only() {
        let mut disk = Shared(1 << 40);
        let mut keeper = Keeper::new(&mut disk);
        let room = keeper.watch();
        let mut pauses = 0;
        // Half a watermark is used and freed by somebody, all night long.
        for _ in 0..1_000 {
            let was = *room.borrow();
            disk.0 = WATERMARK - 1;
            keeper.look(&mut disk);
            pauses += usize::from(was == DiskSpace::Enough && *room.borrow() == DiskSpace::Scarce);
            disk.0 = WATERMARK + WATERMARK / 2;
            keeper.look(&mut disk);
        }
        assert_eq!((pauses, *room.borrow()), (3 + 1, DiskSpace::Scarce));
        disk.0 = 3 * WATERMARK;
        keeper.look(&mut disk);
        assert_eq!(*room.borrow(), DiskSpace::Enough);
    }
}
