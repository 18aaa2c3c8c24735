//! The files that other programs run and that a run changed, for people: who changed what, and the
//! difference. Pure.

use std::fmt::Write;

use serde::Serialize;
use similar::TextDiff;

use crate::event::{Event, Record};
use crate::output::Stored;
use crate::printable;
use crate::show::log_line::cut;
use crate::spec::run_by_others::{ChangeOfFile, ChangedForOthers};

/// The most files that a summary names.
const LISTED: usize = 8;

/// The most characters of a path in a summary.
const PATH: usize = 200;

/// A file that other programs run, and that was changed while a run worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForOthers {
    /// The path, relative to the workspace.
    pub path: String,
    /// The program that runs or trusts it.
    pub program: String,
    /// What became of it.
    pub change: ChangeOfFile,
    /// The agent whose end tells of the change, or the hook, and the others at work meanwhile. It was one of
    /// them, or somebody who changed the file beside the run.
    pub by: Vec<String>,
    /// The same by the names that people know: instances of fan-outs by their keys.
    #[serde(skip)]
    pub by_shown: Vec<String>,
    /// True if a call of an agent says that it changed the file.
    #[serde(skip)]
    pub by_a_call: bool,
    /// The content before, if it is stored.
    pub before: Option<Stored>,
    /// The content after, if it is stored.
    pub after: Option<Stored>,
}

impl ForOthers {
    /// Returns the changes of which a record tells.
    pub(super) fn of(record: &Record) -> Vec<Self> {
        let (changes, by) = match (&record.event, &record.agent) {
            (Event::AgentEnded(ended), Some(agent)) => (&ended.run_by_others, agent.to_string()),
            (Event::HookFinished(finished), _) => {
                (&finished.run_by_others, format!("the hook `{}`", finished.hook.key()))
            }
            _ => return Vec::new(),
        };
        let one = |change: &ChangedForOthers| {
            let others = change.or_by.iter().map(ToString::to_string);
            Self {
                path: change.path.clone(),
                program: change.program.clone(),
                change: change.change,
                by: std::iter::once(by.clone()).chain(others).collect(),
                by_shown: Vec::new(),
                by_a_call: false,
                before: change.before.clone(),
                after: change.after.clone(),
            }
        };
        changes.iter().map(one).collect()
    }

    /// Returns the change in words. The path may be a model's.
    #[must_use]
    pub fn line(&self) -> String {
        let change = match self.change {
            ChangeOfFile::Made => "made",
            ChangeOfFile::Changed => "changed",
            ChangeOfFile::Removed => "removed",
        };
        let by = match self.by_shown.as_slice() {
            [one] if self.by_a_call => format!("by {one}"),
            // A person, or any other program, may have changed it as well.
            some => format!("while {} worked", some.join(", ")),
        };
        format!(
            "{}  {change} {by}; run or trusted by {}",
            cut(&printable::line(&self.path), PATH),
            self.program
        )
    }

    /// Returns the change with the difference between the two contents. `text` reads a stored one.
    #[must_use]
    pub fn difference(&self, text: impl Fn(&Stored) -> Option<String>) -> String {
        let one = |stored: &Option<Stored>, is_there: bool| match stored {
            Some(stored) => text(stored),
            // A file that was not there has no content.
            None => (!is_there).then(String::new),
        };
        let before = one(&self.before, self.change != ChangeOfFile::Made);
        let after = one(&self.after, self.change != ChangeOfFile::Removed);
        let mut lines = self.line();
        lines.push('\n');
        let (Some(before), Some(after)) = (before, after) else {
            lines.push_str(
                "  its content is not kept: it is large, no text, or may hold a secret\n\n",
            );
            return lines;
        };
        let diff = TextDiff::from_lines(&before, &after);
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{}", diff.unified_diff().context_radius(3));
        lines
    }
}

/// Says that a list of changes need not be whole.
pub const INCOMPLETE: &str =
    "the workspace holds more than is looked at: other files may have changed too";

/// Says what is known about who changed the files.
const BY_ANYBODY: &str = "changed while it ran: by it, or by another process";

/// Returns true if a record tells that more may have changed than it names.
pub(super) fn is_incomplete(record: &Record) -> bool {
    match &record.event {
        Event::AgentEnded(ended) => ended.run_by_others_incomplete,
        Event::HookFinished(finished) => finished.run_by_others_incomplete,
        _ => false,
    }
}

/// Returns the lines of a summary; empty if nothing of the kind was changed.
#[must_use]
pub fn lines(changes: &[ForOthers], is_incomplete: bool) -> String {
    if changes.is_empty() && !is_incomplete {
        return String::new();
    }
    let noun = if changes.len() == 1 { "change" } else { "changes" };
    let mut text = format!("\nrun by other programs: {} {noun}\n", changes.len());
    if is_incomplete {
        let _ = writeln!(text, "  {INCOMPLETE}");
    }
    if changes.iter().any(|change| !change.by_a_call) {
        let _ = writeln!(text, "  {BY_ANYBODY}");
    }
    for change in changes.iter().take(LISTED) {
        let _ = writeln!(text, "  {}", change.line());
    }
    if changes.len() > LISTED {
        let _ = writeln!(text, "  and {} more", changes.len() - LISTED);
    }
    text.push_str("the differences: callsheet show --changes\n");
    text
}
