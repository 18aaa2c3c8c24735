//! The place where a simulation puts a journal of its own: the next one that its thread opens is wrapped,
//! the sizes on the disk of its runs are small, and the machine of a run can be restarted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use parking_lot::Mutex;

use super::JournalHandle;

/// Takes the journal of a run directory, and returns the one that the run uses in its place.
pub type Wrap = Rc<dyn Fn(JournalHandle, &Path) -> JournalHandle>;

/// The most bytes of a snapshot's growth, and of the reserve, in a simulation: its runs have some kilobytes.
const SMALL: u64 = 4096;

thread_local! {
    static HERE: RefCell<Option<Wrap>> = const { RefCell::new(None) };
}

/// Number of restarts of the simulated machine of each run directory. A run is opened on several threads.
static RESTARTS: Mutex<BTreeMap<PathBuf, u64>> = Mutex::new(BTreeMap::new());

/// Wraps each journal that this thread opens from now on; `None` ends that.
pub fn put_in(wrap: Option<Wrap>) {
    HERE.set(wrap);
}

/// Restarts the simulated machine of a run directory: its boots have another id from now on.
pub fn restart_machine(dir: &Path) {
    *RESTARTS.lock().entry(dir.to_owned()).or_default() += 1;
}

/// Returns the id that the kernel gave to this boot of the machine on which these files are; empty if it is not
/// known.
pub(super) fn boot_id(files: &Path) -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let restarts = RESTARTS.lock();
    match files.ancestors().find_map(|dir| restarts.get(dir)) {
        None => id.trim().to_owned(),
        Some(restarts) => format!("{}-{restarts}", id.trim()),
    }
}

/// Returns the journal to use in place of this one.
pub(super) fn wrapped(journal: JournalHandle, dir: &Path) -> JournalHandle {
    match HERE.with_borrow(Clone::clone) {
        Some(wrap) => wrap(journal, dir),
        None => journal,
    }
}

/// Returns a size on the disk for the runs of this thread.
pub(super) fn scaled(bytes: u64) -> u64 {
    HERE.with_borrow(|here| if here.is_some() { bytes.min(SMALL) } else { bytes })
}
