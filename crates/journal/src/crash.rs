//! Crash points: the steps of the protocol at which a debug build can be made to crash.
//!
//! `CALLSHEET_CRASH_AT=point:n` ends the process when it passes that point for the n-th time, so
//! that tests can resume a run from every half-done step. `CALLSHEET_SNAPSHOT_GROWTH=bytes` gives small runs
//! snapshots to crash at. A release build contains neither.

/// Declares the crash points in one table.
macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A step of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point {
            $($(#[$doc])* $point,)*
        }

        impl Point {
            /// All points, in the order in which a call passes them, and those of snapshots and removals.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Returns the point's name, as `CALLSHEET_CRASH_AT` gives it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

points! {
    /// A batch is about to be written.
    BeforeWrite = "before-write",
    /// Half of the batch's bytes are written.
    HalfWrite = "half-write",
    /// The batch is written but not synced.
    AfterWrite = "after-write",
    /// The batch is synced, but nothing is acknowledged.
    AfterSync = "after-sync",
    /// A model's reply is recorded together with its tool calls, or a task's command is recorded.
    AfterIntent = "after-intent",
    /// A wrapper is started but not recorded.
    AfterSpawn = "after-spawn",
    /// The start of a call is recorded, but the call has not begun.
    AfterStart = "after-start",
    /// The wrapper was told to begin its command.
    AfterGo = "after-go",
    /// The command has ended; the wrapper crashes.
    WrapperAfterEffect = "wrapper-after-effect",
    /// The command has ended; the wrapper's parent is killed.
    ParentAfterEffect = "parent-after-effect",
    /// The result is in the spool; the wrapper crashes.
    WrapperAfterSpool = "wrapper-after-spool",
    /// The result is in the spool; the wrapper's parent is killed.
    ParentAfterSpool = "parent-after-spool",
    /// A call has done its work, but its result is not recorded.
    AfterEffect = "after-effect",
    /// The result is recorded, but may still be in the spool.
    AfterResult = "after-result",
    /// The results of lost calls are known but not recorded.
    BeforeRepair = "before-repair",
    /// Half of a snapshot's bytes are written.
    HalfSnapshot = "half-snapshot",
    /// The snapshot has its name, and those that it replaces are still there.
    AfterSnapshot = "after-snapshot",
    /// Half of the line about a run that is to be removed is written.
    HalfBill = "half-bill",
    /// The line is durable, and the run is still there.
    AfterBill = "after-bill",
    /// The run has no name any more, but its files are still there.
    AfterRename = "after-rename",
}

/// Crashes here if `CALLSHEET_CRASH_AT` says so.
#[inline]
pub fn pass(point: Point) {
    after(point, || {});
}

#[cfg(debug_assertions)]
pub use debug::{after, for_wrapper, is_asked, pass_parent, snapshot_growth};

#[cfg(debug_assertions)]
mod debug {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Point;

    const VARIABLE: &str = "CALLSHEET_CRASH_AT";

    static ASKED: LazyLock<Option<(Point, u64)>> = LazyLock::new(|| {
        let asked = std::env::var(VARIABLE).ok()?;
        let (name, number) = asked.split_once(':')?;
        let point = Point::ALL.iter().find(|point| point.name() == name)?;
        Some((*point, number.parse().ok()?))
    });

    static PASSED: AtomicU64 = AtomicU64::new(0);

    fn is_due(point: Point) -> bool {
        let Some((wanted, number)) = *ASKED else { return false };
        wanted == point && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == number
    }

    /// Runs `work` and crashes here, if `CALLSHEET_CRASH_AT` says so; otherwise does nothing.
    pub fn after(point: Point, work: impl FnOnce()) {
        if is_due(point) {
            work();
            std::process::abort();
        }
    }

    /// Returns true if this process is to die: its death says nothing about the calls that are under way.
    #[must_use]
    pub fn is_asked() -> bool {
        std::env::var_os(VARIABLE).is_some()
    }

    /// Kills the parent process here if `CALLSHEET_CRASH_AT` says so.
    pub fn pass_parent(point: Point) {
        if is_due(point)
            && let Some(parent) = rustix::process::getppid()
        {
            // A parent that is already gone is as good as killed.
            let _gone = rustix::process::kill_process(parent, rustix::process::Signal::KILL);
        }
    }

    /// Returns the environment variable for the next wrapper, with its value if that wrapper is the
    /// one to crash. A process counts only the points that it passes itself, so its parent counts
    /// for it.
    pub fn for_wrapper() -> Option<(&'static str, Option<String>)> {
        use Point::{ParentAfterEffect, ParentAfterSpool, WrapperAfterEffect, WrapperAfterSpool};
        let points = [WrapperAfterEffect, ParentAfterEffect, WrapperAfterSpool, ParentAfterSpool];
        let due = points.into_iter().find(|point| is_due(*point));
        Some((VARIABLE, due.map(|point| format!("{}:1", point.name()))))
    }

    /// Returns the growth of a journal between two snapshots, in bytes, if `CALLSHEET_SNAPSHOT_GROWTH` says it.
    pub fn snapshot_growth() -> Option<u64> {
        std::env::var("CALLSHEET_SNAPSHOT_GROWTH").ok()?.parse().ok()
    }
}

#[cfg(not(debug_assertions))]
pub use release::{after, for_wrapper, is_asked, pass_parent, snapshot_growth};

#[cfg(not(debug_assertions))]
mod release {
    use super::Point;

    /// Does nothing in a release build.
    #[inline]
    pub fn after(_: Point, _: impl FnOnce()) {}

    /// No release build is asked to die.
    #[inline]
    #[must_use]
    pub fn is_asked() -> bool {
        false
    }

    /// Does nothing in a release build.
    #[inline]
    pub fn pass_parent(_: Point) {}

    /// Sets no variable in a release build.
    #[inline]
    pub fn for_wrapper() -> Option<(&'static str, Option<String>)> {
        None
    }

    /// Asks for nothing in a release build.
    #[inline]
    pub fn snapshot_growth() -> Option<u64> {
        None
    }
}
