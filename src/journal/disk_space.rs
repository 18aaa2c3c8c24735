//! DiskSpace on the run's disk: how much is kept free, and what happens when it runs out.
//!
//! Owns the sizes and the keeper of one journal's reserve. The keeper only finds out and makes
//! room; that nothing new is begun meanwhile is the business of whoever watches.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::disk::{FIRST_LOOK, LONGEST_LOOK, longer};
use crate::journal::storage::Storage;

/// The reserve on a disk that has room for it: enough for the results of a thousand calls that are
/// in flight.
const RESERVE: u64 = 64 << 20;

/// The free space below which nothing new is begun on a disk that has more.
const WATERMARK: u64 = 1 << 30;

/// The same on the smallest disk: room for the records of some calls.
const LEAST_WATERMARK: u64 = 256 << 10;

/// How long a record may take on a full disk that nobody could wait for room with. The reserve
/// makes room for it, so that it takes this long only when that is used up too.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the disk has room for new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    /// It has.
    Enough,
    /// Only for what is in flight.
    Scarce,
}

/// What is kept free, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// Kept aside, to be given up when the disk is full.
    reserve: u64,
    /// Nothing new is begun with less free space than this.
    watermark: u64,
}

impl Sizes {
    /// The sizes for a disk with this much free space. A small disk is no reason to refuse a run:
    /// half of it can be used up before the run pauses. One without any room is waited for.
    fn of(free: u64) -> Self {
        let watermark = WATERMARK.min(free / 2).max(LEAST_WATERMARK);
        Self { reserve: RESERVE.min(free / 16), watermark }
    }

    /// The free space from which work goes on: a little over what stopped it, so that the run does
    /// not stop and go for every file that comes and goes.
    fn go_on(&self, held: bool) -> u64 {
        let reserve = if held { 0 } else { self.reserve };
        self.watermark + self.watermark / 8 + reserve
    }
}

/// Keeps the reserve of one journal and tells how much room there is.
#[derive(Debug)]
pub(super) struct Keeper {
    sizes: Sizes,
    /// Whether the reserve stands.
    held: bool,
    room: watch::Sender<DiskSpace>,
    /// When to look next while nothing is written.
    next_look: Instant,
    /// While room is scarce: the pause before the look after that.
    pause: Option<Duration>,
}

impl Keeper {
    /// Sets the reserve aside.
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
        Self { sizes, held: kept.is_ok(), room, next_look, pause: None }
    }

    /// How much room there is, as it changes.
    pub(super) fn watch(&self) -> watch::Receiver<DiskSpace> {
        self.room.subscribe()
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Notices a disk that is nearly full, before it is. One that is full is so for others too,
    /// whose results are in flight.
    pub(super) fn check(&mut self, storage: &mut impl Storage) {
        let Ok(free) = storage.free() else { return };
        if free < self.sizes.watermark {
            self.scarce();
        }
        if free < self.sizes.reserve / 4 {
            self.give_up_reserve(storage);
        }
    }

    /// Somebody met a full disk: gives up the reserve. False when there is none any more.
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

    /// Looks whether work has to stop or can go on: there is room, and the reserve stands again.
    pub(super) fn look(&mut self, storage: &mut impl Storage) {
        self.check(storage);
        let Some(pause) = self.pause else {
            self.next_look = Instant::now() + LONGEST_LOOK;
            return;
        };
        if storage.free().is_ok_and(|free| free >= self.sizes.go_on(self.held)) {
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
            self.room.send_replace(DiskSpace::Scarce);
        }
    }
}

/// Ends when room has been scarce for too long. A slow disk is another matter.
pub(super) async fn out_of_patience(room: &mut watch::Receiver<DiskSpace>) {
    if room.wait_for(|room| *room == DiskSpace::Scarce).await.is_err() {
        // The journal is closed: whoever waits for it hears that from it.
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
            assert!(sizes.go_on(true) >= sizes.watermark, "{free}");
            assert!(free - sizes.reserve >= sizes.watermark, "a run can begin with {free}");
        }
        assert!(Sizes::of(100_000).watermark > 100_000, "a run waits for room");
    }
}
