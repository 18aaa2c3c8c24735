//! The verdict of a check, read from its outcome.

use super::AgentStatus;
use crate::failure::{Failure, FailureKind};
use crate::turn::Outcome;

/// The most bytes of a check's output or reasons that are quoted: the end of a compiler's or a test's
/// output, with room for a long message.
const QUOTED_BYTES: usize = 8 * 1024;

/// The verdict of a check that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer passed.
    Passed,
    /// The answer did not pass. The failure holds what the check printed, or its reasons.
    Failed(Failure),
    /// There is no verdict yet: the answer of an agent gives none (the failure holds it), or a command was
    /// killed. It is asked once more.
    Unclear(Failure),
    /// The check could not judge.
    Undecided(Failure),
    /// The check was cancelled, for this reason.
    Cancelled(String),
}

impl AgentStatus {
    /// Returns the verdict of an agent that makes a check, once it has ended.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.check?;
        self.outcome.as_ref().map(|outcome| verdict_of(outcome, self.definition.is_some()))
    }
}

/// Returns the verdict of a check that ended in this way; `is_agent` is false for a command.
#[must_use]
pub fn verdict_of(outcome: &Outcome, is_agent: bool) -> Verdict {
    match outcome {
        Outcome::Completed { output } if is_agent => read_verdict(&output.text),
        Outcome::Completed { .. } => Verdict::Passed,
        Outcome::Failed { failure, .. } if failure.was_killed() => {
            Verdict::Unclear(failure.clone())
        }
        Outcome::Failed { failure, partial }
            if matches!(failure.kind, FailureKind::CommandFailed | FailureKind::CheckFailed) =>
        {
            let printed = partial.as_ref().map(|output| end_of(output.text.trim_end()).to_owned());
            let output = printed.filter(|printed| !printed.is_empty());
            Verdict::Failed(Failure { output, ..failure.clone() })
        }
        Outcome::Failed { failure, .. } => Verdict::Undecided(failure.clone()),
        Outcome::Cancelled { reason } => Verdict::Cancelled(reason.clone()),
    }
}

/// Reads the answer of an agent that makes a check. Marks around the word and the label `Verdict` before
/// it are no part of it: models write `**PASS**`, `Pass.` and `Verdict: pass`.
fn read_verdict(answer: &str) -> Verdict {
    let answer = answer.trim();
    let (first, rest) = answer.split_once('\n').unwrap_or((answer, ""));
    let failure = |message: &str, output: &str| {
        let output = Some(end_of(output.trim()).to_owned()).filter(|output| !output.is_empty());
        Failure { output, ..Failure::new(FailureKind::CheckFailed, message) }
    };
    let first = first.to_ascii_lowercase();
    let bare = |text: &str| text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let first = bare(&first);
    let word = first.strip_prefix("verdict").map_or_else(|| first.clone(), bare);
    match word.as_str() {
        "pass" | "passed" => Verdict::Passed,
        "fail" | "failed" => Verdict::Failed(failure("it answered `fail`", rest)),
        _ => Verdict::Unclear(failure(
            "it answered neither `pass` nor `fail` in its first line",
            answer,
        )),
    }
}

/// Returns the end of a text that is too long to be quoted whole.
fn end_of(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(QUOTED_BYTES))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_killed_has_not_judged() {
        let ended = |exit_code: i32| {
            let failure = Failure::new(FailureKind::CommandFailed, "it ended");
            let failure = Failure { exit_code: Some(exit_code), ..failure };
            verdict_of(&Outcome::Failed { failure, partial: None }, false)
        };
        for killed in [129, 130, 137, 143] {
            assert!(matches!(ended(killed), Verdict::Unclear(_)), "{killed}");
        }
        // A program that crashed, or used up its time, has judged.
        for failed in [1, 101, 126, 127, 134, 139, 152] {
            assert!(matches!(ended(failed), Verdict::Failed(_)), "{failed}");
        }
    }

    #[test]
    fn only_the_first_line_of_an_answer_is_a_verdict() {
        for passed in [
            "pass",
            "Pass\nIt is good.",
            " pass \n\nfail",
            "Pass.",
            "**PASS**",
            "Verdict: pass",
            "**Verdict:** `pass`\nIt is good.",
            "passed!",
        ] {
            assert_eq!(read_verdict(passed), Verdict::Passed, "{passed}");
        }
        for (answer, output) in [
            ("fail\nThe end is missing.\n", Some("The end is missing.")),
            ("FAIL", None),
            ("Verdict: **fail**\nx", Some("x")),
        ] {
            let Verdict::Failed(failure) = read_verdict(answer) else { panic!("{answer}") };
            assert_eq!(failure.message, "it answered `fail`");
            assert_eq!(failure.output.as_deref(), output);
        }
        for answer in ["The verdict:\npass", "pass or fail", "not a pass", "Passable", "It passes."]
        {
            let Verdict::Unclear(failure) = read_verdict(answer) else { panic!("{answer}") };
            assert!(failure.message.contains("neither"), "{failure}");
            assert_eq!(failure.output.as_deref(), Some(answer));
        }
        let Verdict::Unclear(long) = read_verdict(&"é".repeat(QUOTED_BYTES)) else { panic!() };
        assert_eq!(long.output.map(|output| output.len()), Some(QUOTED_BYTES));
    }
}
