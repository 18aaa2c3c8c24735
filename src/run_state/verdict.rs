//! The verdict of a check, read from its outcome.

use super::AgentStatus;
use crate::failure::{Failure, FailureKind};
use crate::turn::Outcome;

/// The most bytes of a check's output or reasons that are told: the end of a compiler's or a test's
/// output, with room for a long message.
const TOLD_BYTES: usize = 8 * 1024;

/// The verdict of a check that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer passed.
    Passed,
    /// The answer did not pass. The failure holds what the check printed, or its reasons.
    Failed(Failure),
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

/// Reads the answer of an agent that makes a check.
fn read_verdict(answer: &str) -> Verdict {
    let answer = answer.trim();
    let (first, rest) = answer.split_once('\n').unwrap_or((answer, ""));
    let failed = |message: &str, output: &str| {
        let output = Some(end_of(output.trim()).to_owned()).filter(|output| !output.is_empty());
        Verdict::Failed(Failure { output, ..Failure::new(FailureKind::CheckFailed, message) })
    };
    match first.trim().to_ascii_lowercase().as_str() {
        "pass" => Verdict::Passed,
        "fail" => failed("it answered `fail`", rest),
        _ => failed("it answered neither `pass` nor `fail` in its first line", answer),
    }
}

/// Returns the end of a text that is too long to be told whole.
fn end_of(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(TOLD_BYTES))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_an_answer_is_a_verdict() {
        for passed in ["pass", "Pass\nIt is good.", " pass \n\nfail"] {
            assert_eq!(read_verdict(passed), Verdict::Passed, "{passed}");
        }
        for (answer, told, output) in [
            ("fail\nThe end is missing.\n", "it answered `fail`", Some("The end is missing.")),
            ("FAIL", "it answered `fail`", None),
            ("pass.", "neither", Some("pass.")),
            ("The verdict:\npass", "neither", Some("The verdict:\npass")),
            ("**pass**", "neither", Some("**pass**")),
        ] {
            let Verdict::Failed(failure) = read_verdict(answer) else { panic!("{answer}") };
            assert!(failure.message.contains(told), "{failure}");
            assert_eq!(failure.output.as_deref(), output);
        }
        let Verdict::Failed(long) = read_verdict(&"é".repeat(TOLD_BYTES)) else { panic!() };
        assert_eq!(long.output.map(|output| output.len()), Some(TOLD_BYTES));
    }
}
