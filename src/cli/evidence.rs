//! Reads the evidence of a run for the verbs that show it.

use super::complain;
use crate::journal::file::RunDir;
use crate::report::evidence::{self, Evidence};

/// The size in bytes up to which a journal is read once more for a closing summary: it takes less
/// than a second.
const READ_AT_ONCE: u64 = 64 << 20;

/// Returns the evidence of a run, as far as its journal can be read.
pub(super) fn read(dir: &RunDir) -> Evidence {
    let (evidence, read) = evidence::of_run(dir);
    if let Err(error) = read {
        complain(&format!("note: the evidence is not complete: {error}"));
    }
    evidence
}

/// Returns the same for a summary; `None` if the journal is so large that people would wait.
pub(super) fn for_summary(dir: &RunDir) -> Option<Evidence> {
    let size = std::fs::metadata(dir.journal()).map_or(0, |file| file.len());
    (size <= READ_AT_ONCE).then(|| read(dir))
}
