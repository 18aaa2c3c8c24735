//! `show --changes`: prints the files that other programs run and that a run changed, with the
//! differences. Reads the records alone: it runs no git, and nothing of the workspace.

use serde_json::json;

use crate::cli::rows::folded;
use crate::cli::stream::Stream;
use crate::cli::{complain, evidence, say, say_json};
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::output::Stored;
use crate::report::for_others::INCOMPLETE;
use crate::store;

/// Prints the changes of the whole run.
pub(super) fn show(run: &RecordedRun, as_json: bool) -> Exit {
    let evidence = evidence::read(run);
    let changes = evidence.for_others();
    if as_json {
        return say_json(&format!("{}\n", json!(changes)));
    }
    if evidence.is_for_others_incomplete() {
        complain(&format!("note: {INCOMPLETE}"));
    }
    if changes.is_empty() {
        complain("note: the run changed no file that is known to be run by other programs");
    }
    let text = |stored: &Stored| String::from_utf8(store::read(run, stored).ok()?).ok();
    let differences: String = changes.iter().map(|change| change.difference(text)).collect();
    // Contents of files: a line of one must not wrap into a row without its sign.
    say(&folded(&differences, Stream::Out))
}
