//! Failures: the recorded reasons why a task, an agent or a call did not succeed.
//!
//! A failure is data, never a text that another task could mistake for an answer. Owns the table of
//! kinds; `exit` decides which exit code a cause leads to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! failure_kinds {
    ($($(#[$attribute:meta])* $kind:ident = $name:literal: $class:ident, $remedy:ident;)*) => {
        /// The kind of a failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum FailureKind { $($(#[$attribute])* $kind,)* }

        impl FailureKind {
            /// Every kind, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the kind as it is written in records and in the configuration.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Returns the cause, which decides the exit code and the word for an outcome.
            pub fn class(self) -> FailureClass {
                match self { $(Self::$kind => FailureClass::$class,)* }
            }

            /// Returns what can mend the failure.
            pub(crate) fn remedy(self) -> Remedy {
                match self { $(Self::$kind => Remedy::$remedy,)* }
            }
        }
    };
}

// Each kind with its name in records, its cause, and what can mend it.
failure_kinds! {
    /// The provider asked for fewer requests (HTTP 429).
    RateLimit = "rate_limit": Provider, Time;
    /// The provider has no capacity (HTTP 529).
    Overloaded = "overloaded": Provider, Time;
    /// The time limit of a task or of the run passed.
    Timeout = "timeout": Time, Time;
    /// No data arrived from the provider for too long.
    IdleTimeout = "idle_timeout": Provider, Time;
    /// The provider could not be reached or the connection broke.
    Connection = "connection": Provider, Time;
    /// The provider reported an error of its own (HTTP 5xx).
    ServerError = "server_error": Provider, Time;
    /// The provider refused the API key.
    Auth = "auth": Provider, Nothing;
    /// The quota or the credit of the account is used up.
    Quota = "quota": Provider, Nothing;
    /// The provider refused the request as invalid.
    InvalidRequest = "invalid_request": Request, Nothing;
    /// The request does not fit the context window.
    ContextOverflow = "context_overflow": Work, Nothing;
    /// The request does not fit the provider's byte limit.
    RequestTooLarge = "request_too_large": Work, Nothing;
    /// The model refused to answer.
    Refusal = "refusal": Work, Nothing;
    /// The model's answer was empty.
    EmptyAnswer = "empty_answer": Work, Attempt;
    /// The answer was cut at the output limit and could not be continued.
    OutputTruncated = "output_truncated": Work, Attempt;
    /// The answer does not have the form that the task's `output` asks for.
    OutputFormat = "output_format": Work, Attempt;
    /// The answer does not fit the task's output schema.
    OutputSchema = "output_schema": Work, Attempt;
    /// A check of the answer failed, and the agent could not mend it within its rounds.
    CheckFailed = "check_failed": Work, Attempt;
    /// The loop of a task reached its last round and its condition still does not hold.
    MaxIterations = "max_iterations": Limit, Attempt;
    /// A person rejected what the task asked for.
    Rejected = "rejected": Denied, Nothing;
    /// The list of a fan-out, or a key of its items, cannot be used.
    BadItems = "bad_items": Work, Nothing;
    /// Fewer instances of a fan-out completed than the task needs.
    InstancesFailed = "instances_failed": Work, Nothing;
    /// A command ended with an exit code other than zero.
    CommandFailed = "command_failed": Work, Attempt;
    /// A command was interrupted, so its effect is unknown. It is retried only if `retry_on` names
    /// this kind.
    Interrupted = "interrupted": Work, Named;
    /// A tool failed in a way that no result can express.
    ToolError = "tool_error": Work, Attempt;
    /// The agent gave up after calls of it had been denied.
    #[serde(alias = "permission_denied")]
    Denied = "denied": Denied, Nothing;
    /// The agent said that it cannot do the work.
    GaveUp = "gave_up": Work, Nothing;
    /// The agent used up its turns.
    MaxTurns = "max_turns": Limit, Nothing;
    /// The agent went in circles and did not stop when it was told.
    NoProgress = "no_progress": Limit, Nothing;
    /// A limit on delegation was reached.
    LimitReached = "limit_reached": Limit, Nothing;
    /// A budget of money, tokens, calls or time is used up.
    Budget = "budget": Limit, Nothing;
    /// The agent crashed more often than its restart policy allows.
    Crashed = "crashed": Crash, Attempt;
    /// A template could not be rendered.
    Template = "template": Work, Nothing;
    /// The work was cancelled.
    Cancelled = "cancelled": Work, Nothing;
    /// An error in callsheet itself.
    Internal = "internal": Bug, Nothing;
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// The provider; a person or time can mend it.
    Provider,
    /// A request that the provider does not take.
    Request,
    /// A limit that is no time limit.
    Limit,
    /// A time limit.
    Time,
    /// A person or a rule said no.
    Denied,
    /// An agent that crashed.
    Crash,
    /// An error in callsheet.
    Bug,
    /// The work itself.
    Work,
}

/// What can mend a failure, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Time: calls and tasks are tried again by default.
    Time,
    /// A new attempt of the whole task.
    Attempt,
    /// A new attempt, but only if `retry_on` names the kind: the interrupted work may have taken
    /// effect.
    Named,
    /// No attempt: each would fail alike, as with a refused key, a bad template or a limit.
    Nothing,
}

impl FailureKind {
    /// Returns true if the failure may pass with time and is retried by default.
    #[must_use]
    pub fn is_transient(self) -> bool {
        self.remedy() == Remedy::Time
    }

    /// Returns the kinds that need no more than this remedy, in the order of the table.
    pub fn mended_by(most: Remedy) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |kind| kind.remedy() <= most)
    }

    /// Returns true if the provider caused the failure and a person or time can mend the cause.
    #[must_use]
    pub fn may_heal(self) -> bool {
        self.class() == FailureClass::Provider
    }

    /// Returns true if a conversation that ended with this failure is sound and can continue.
    #[must_use]
    pub fn keeps_conversation(self) -> bool {
        self.may_heal() || matches!(self, Self::Timeout | Self::EmptyAnswer | Self::Cancelled)
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The recorded reason why something failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: FailureKind,
    /// Description for a person: a lower-case fragment without a full stop.
    pub message: String,
    /// The end of the output of a command that failed: at most [`OUTPUT_LINES`] lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Exit code of the command that failed: 128 + n if signal n ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Number of attempts of the model call that ended with this failure, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// The most lines of a command's output in its failure: a compiler's or a test's last message fits.
pub const OUTPUT_LINES: usize = 20;

/// The most bytes of a command's output in its failure: 20 lines of 200 characters. Many failures
/// may stand in one record.
const OUTPUT_BYTES: usize = 4_000;

/// The exit codes of commands that were ended from outside: by SIGHUP, SIGINT, SIGKILL and SIGTERM.
const KILLED: [i32; 4] = [129, 130, 137, 143];

impl Failure {
    /// Creates a failure.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), output: None, exit_code: None, attempts: None }
    }

    /// Returns true if a model call has tried again until its own attempts were used up: to try the
    /// whole task again would only multiply them.
    #[must_use]
    pub fn was_tried_out(&self) -> bool {
        self.attempts.is_some_and(|attempts| attempts > 1)
    }

    /// Returns true if somebody else ended the command, such as the kernel for want of memory: it says nothing
    /// of its work. A program that crashed has ended itself.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.kind == FailureKind::CommandFailed
            && self.exit_code.is_some_and(|code| KILLED.contains(&code))
    }

    /// Adds the end of the output of the command that failed.
    #[must_use]
    pub fn with_output(self, output: &str) -> Self {
        let output = output.trim_end();
        let mut from = output.len().saturating_sub(OUTPUT_BYTES);
        while !output.is_char_boundary(from) {
            from += 1;
        }
        let lines = output[from..].rmatch_indices('\n').nth(OUTPUT_LINES - 1);
        let from = lines.map_or(from, |(at, _)| from + at + 1);
        Self { output: (from < output.len()).then(|| output[from..].to_owned()), ..self }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_end_of_an_output() {
        let kept =
            |output: &str| Failure::new(FailureKind::CommandFailed, "x").with_output(output).output;
        let lines = |range: std::ops::RangeInclusive<u32>| {
            range.map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!((kept(""), kept(" \n")), (None, None));
        assert_eq!(kept("one\n").as_deref(), Some("one"));
        assert_eq!(kept(&lines(1..=20)), Some(lines(1..=20)));
        assert_eq!(kept(&(lines(1..=50) + "\n\n")), Some(lines(31..=50)));
        // Cut between characters, not within one.
        let long = kept(&"é".repeat(OUTPUT_BYTES)).expect("an output");
        assert_eq!(long.len(), OUTPUT_BYTES);
        assert_eq!(
            kept(&("x".to_owned() + &"é".repeat(OUTPUT_BYTES))).map(|k| k.len()),
            Some(OUTPUT_BYTES)
        );
    }

    #[test]
    fn records_hold_the_names_of_the_table() {
        for kind in FailureKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("a name"), kind.as_str());
        }
    }

    #[test]
    fn the_former_name_of_a_kind_is_read() {
        let read = |text: &str| serde_json::from_str::<FailureKind>(text).expect("a kind");
        assert_eq!(read("\"permission_denied\""), FailureKind::Denied);
        assert_eq!(read("\"denied\""), FailureKind::Denied);
    }
}
