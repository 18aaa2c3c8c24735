//! Finds out before a runtime starts if there is room for its threads and its open files.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Threads beside the workers that a run needs at the same time: the journal's, that of snapshots, the
/// status area's, and some for blocking work.
const BESIDE_WORKERS: usize = 8;

/// Open files beside those that are open already: enough for the runtime, the journal with its lock and its
/// logs, the control socket and one command with its pipes. A sandbox needs more, and says so itself.
const OPEN_FILES: usize = 48;

/// Opens as many files as a runtime and a run need, and closes them again. The runtime panics where it cannot.
///
/// # Errors
/// Returns an error if one could not be opened.
pub(super) fn can_open_files() -> io::Result<()> {
    let first = File::open("/dev/null")?;
    let others = (1..OPEN_FILES).map(|_| first.try_clone());
    others.collect::<io::Result<Vec<_>>>().map(drop)
}

/// Starts as many threads as a runtime and a run need, and ends them again.
///
/// # Errors
/// Returns an error if one could not be started.
pub(super) fn have_room() -> io::Result<()> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut started = Vec::new();
        let mut all = Ok(());
        while all.is_ok() && started.len() < workers + BESIDE_WORKERS {
            let wait = || {
                while !is_over.load(Ordering::Acquire) {
                    thread::park();
                }
            };
            match thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, wait) {
                Ok(thread) => started.push(thread),
                Err(error) => all = Err(error),
            }
        }
        is_over.store(true, Ordering::Release);
        started.iter().for_each(|started| started.thread().unpark());
        all
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_room_here() {
        super::have_room().expect("room");
        super::can_open_files().expect("files");
    }
}
