//! Reads the evidence of a run for the verbs that show it.

use super::complain;
use crate::journal::source::RecordedRun;
use crate::report::evidence::{self, Evidence};

/// The size in bytes up to which a journal is read once more for a closing summary: it takes less
/// than a second.
const READ_AT_ONCE: u64 = 64 << 20;

/// Returns the evidence of a run, as far as its journal can be read.
pub(super) fn read(run: &RecordedRun) -> Evidence {
    let (evidence, read) = evidence::of_run(&**run);
    if let Err(error) = read {
        complain(&format!("note: the evidence is not complete: {error}"));
    }
    evidence
}

/// Returns the same for a summary; `None` if the journal is so large that people would wait.
pub(super) fn for_summary(run: &RecordedRun) -> Option<Evidence> {
    (run.size() <= READ_AT_ONCE).then(|| read(run))
}
