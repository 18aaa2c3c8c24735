//! Crash points: the steps of the protocol at which a debug build can be told to die.
//!
//! `CALLSHEET_CRASH_AT=point:n` ends the process when it passes that point for the n-th time, so
//! that tests can see what a resume makes of every half-done step. A release build has none of it.

/// Names the points, in one table.
macro_rules! points {
    ($($(#[$doc:meta])* $point:ident = $name:literal,)*) => {
        /// A step of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point {
            $($(#[$doc])* $point,)*
        }

        impl Point {
            /// All, in the order in which a call passes them.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Its name.
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
    /// A commit batch is about to be written.
    BeforeWrite = "before-write",
    /// Half of its bytes are written.
    HalfWrite = "half-write",
    /// It is written, and not synced.
    AfterWrite = "after-write",
    /// It is synced, and nobody was told.
    AfterSync = "after-sync",
    /// A reply is recorded with the calls that it makes, or the command of a task.
    AfterIntent = "after-intent",
    /// A wrapper is started, and not recorded.
    AfterSpawn = "after-spawn",
    /// The beginning of a call is recorded, and it has not begun.
    AfterStart = "after-start",
    /// The command was let go.
    AfterGo = "after-go",
    /// The command has ended, and the wrapper dies.
    WrapperAfterEffect = "wrapper-after-effect",
    /// The command has ended, and the wrapper's parent dies.
    ParentAfterEffect = "parent-after-effect",
    /// The result is kept, and the wrapper dies.
    WrapperAfterSpool = "wrapper-after-spool",
    /// The result is kept, and the wrapper's parent dies.
    ParentAfterSpool = "parent-after-spool",
    /// A call has done its work, and its result is not recorded.
    AfterEffect = "after-effect",
    /// The result is recorded, and may still be kept.
    AfterResult = "after-result",
    /// It is known what became of interrupted calls, and not recorded.
    BeforeRepair = "before-repair",
}

/// Dies here, if that was asked for.
#[inline]
pub fn pass(point: Point) {
    after(point, || {});
}

#[cfg(debug_assertions)]
pub use debug::{after, for_wrapper, pass_parent};

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

    /// Dies here after this, if that was asked for.
    pub fn after(point: Point, work: impl FnOnce()) {
        if is_due(point) {
            work();
            std::process::abort();
        }
    }

    /// Lets the parent die here, if that was asked for.
    pub fn pass_parent(point: Point) {
        if is_due(point)
            && let Some(parent) = rustix::process::getppid()
        {
            // One that is gone by now is what was asked for.
            let _gone = rustix::process::kill_process(parent, rustix::process::Signal::KILL);
        }
    }

    /// The variable for the next wrapper, with its value if it is that one's turn: a process counts
    /// only what it passes itself.
    pub fn for_wrapper() -> Option<(&'static str, Option<String>)> {
        use Point::{ParentAfterEffect, ParentAfterSpool, WrapperAfterEffect, WrapperAfterSpool};
        let points = [WrapperAfterEffect, ParentAfterEffect, WrapperAfterSpool, ParentAfterSpool];
        let due = points.into_iter().find(|point| is_due(*point));
        Some((VARIABLE, due.map(|point| format!("{}:1", point.name()))))
    }
}

#[cfg(not(debug_assertions))]
pub use release::{after, for_wrapper, pass_parent};

#[cfg(not(debug_assertions))]
mod release {
    use super::Point;

    /// Nothing in a release build.
    #[inline]
    pub fn after(_: Point, _: impl FnOnce()) {}

    /// Nothing in a release build.
    #[inline]
    pub fn pass_parent(_: Point) {}

    /// Nothing in a release build.
    #[inline]
    pub fn for_wrapper() -> Option<(&'static str, Option<String>)> {
        None
    }
}
