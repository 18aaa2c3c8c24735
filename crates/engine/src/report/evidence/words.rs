//! Evidence in words for people: one line for a summary, several for `show`.
//!
//! Pure. Texts of models and names of files are shortened and made safe to show.

use super::{Artifact, FileEvidence, TaskEvidence, TestRun, Warning};
use crate::show::log_line::{cut, in_one_line};

/// The most files that a summary names.
const NAMED: usize = 3;

/// The most files that `show` lists; its JSON has all.
const LISTED: usize = 200;

/// The most characters of a path or a command: a model may have written it.
const TEXT: usize = 80;

impl TaskEvidence {
    /// Returns the evidence in one line; `None` if no file was changed, nothing was tested or
    /// checked, and nothing speaks against the task.
    #[must_use]
    pub fn brief(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.files.is_empty() {
            let names: Vec<_> = self.files.iter().map(|file| cut(&file.path, TEXT)).collect();
            let more = if names.len() > NAMED { ", …" } else { "" };
            let named = names[..names.len().min(NAMED)].join(", ");
            parts.push(format!("{}: {named}{more}", self.changed()));
        }
        parts.extend(self.last_test.as_ref().map(last_test));
        if !self.checks.is_empty() {
            let passed = self.checks.iter().filter(|check| check.passed == Some(true)).count();
            parts.push(format!("{passed} of {} checks passed", self.checks.len()));
        }
        let warnings = self.warnings.iter().filter(|warning| !is_told(warning));
        parts.extend(warnings.map(|warning| format!("warning: {}", warning.text)));
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Returns the evidence in lines, each with its newline; empty if there is none.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut lines = Vec::new();
        if !self.files.is_empty() {
            lines.push(self.changed());
            lines.extend(self.files.iter().take(LISTED).map(|file| {
                let name = cut(&file.path, TEXT);
                format!("  {name}  {}", of_file(file))
            }));
            if self.files.len() > LISTED {
                lines.push(format!("  and {} more", self.files.len() - LISTED));
            }
        }
        if self.commands > 0 {
            let noun = if self.commands == 1 { "command" } else { "commands" };
            let tests = match self.test_runs {
                0 => String::new(),
                runs => format!(", {runs} with tests"),
            };
            lines.push(format!(
                "ran {} {noun}{tests}; files that commands change are not known",
                self.commands
            ));
        }
        lines.extend(self.last_test.as_ref().map(last_test));
        for check in &self.checks {
            let word = match check.passed {
                Some(true) => "passed",
                Some(false) => "failed",
                None => "did not end",
            };
            // A reason is read to its end, so it is not cut; its lines become one.
            let reason = check.reason.as_deref().map(|reason| format!(": {}", in_one_line(reason)));
            let agent = cut(&check.shown, TEXT);
            lines.push(format!("check {agent} {word}{}", reason.unwrap_or_default()));
        }
        // The text of the others is shown in full, and JSON has their hashes.
        for Artifact { kind, bytes, hash, .. } in self.artifacts.iter().filter(|a| a.stored) {
            lines.push(format!("{kind}: {bytes} bytes, stored as {hash}"));
        }
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {}", warning.text)));
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// Returns the number of changed files and of their lines.
    fn changed(&self) -> String {
        let noun = if self.files.len() == 1 { "file" } else { "files" };
        let sum = |of: fn(&FileEvidence) -> Option<u64>| self.files.iter().map(of).sum();
        let (added, removed): (Option<u64>, Option<u64>) =
            (sum(|file| file.added), sum(|file| file.removed));
        let lines = match (added, removed) {
            (Some(added), Some(removed)) => format!(" (+{added} -{removed} lines)"),
            _ => String::new(),
        };
        format!("changed {} {noun}{lines}", self.files.len())
    }
}

/// Returns true if the line about the last test says the same.
fn is_told(warning: &Warning) -> bool {
    warning.code == "test_failed"
}

fn of_file(file: &FileEvidence) -> String {
    let lines = match (file.added, file.removed) {
        (Some(added), Some(removed)) => format!("+{added} -{removed}"),
        _ => "lines not known".to_owned(),
    };
    let new = if file.created { ", new" } else { "" };
    let unknown = match file.unknown {
        0 => String::new(),
        calls => format!(", {calls} calls of unknown outcome"),
    };
    format!("{lines}{new}{unknown}")
}

/// Returns the last test in words.
fn last_test(test: &TestRun) -> String {
    let word = match (test.passed, test.exit_code) {
        (Some(true), _) => "passed".to_owned(),
        (Some(false), Some(code)) => format!("failed (exit code {code})"),
        (_, None) => "did not finish".to_owned(),
        (None, Some(code)) => format!("ended, and its line with exit code {code} hides the result"),
    };
    let order = match test.after_last_edit {
        Some(true) => ", after the last edit",
        Some(false) => ", before the last edit",
        None => "",
    };
    format!("last test {word}{order}: {}", cut(&test.command, TEXT))
}
