//! The place where a simulation puts a journal of its own: the next one that its thread opens is wrapped,
//! and the sizes on the disk of its runs are small.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use super::JournalHandle;

/// Takes the journal of a run directory, and returns the one that the run uses in its place.
pub type Wrap = Rc<dyn Fn(JournalHandle, &Path) -> JournalHandle>;

/// The most bytes of a snapshot's growth, and of the reserve, in a simulation: its runs have some kilobytes.
const SMALL: u64 = 4096;

thread_local! {
    static HERE: RefCell<Option<Wrap>> = const { RefCell::new(None) };
}

/// Wraps each journal that this thread opens from now on; `None` ends that.
pub fn put_in(wrap: Option<Wrap>) {
    HERE.set(wrap);
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
