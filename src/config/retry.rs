//! Retry settings of model calls and of task attempts.

use super::diagnostic::Problems;
use super::names;
use super::raw::Table;
use crate::failure::FailureKind;
use crate::policy::RetryPolicy;

/// The failures that another attempt of a whole task can mend. What stays wrong however often it
/// is tried (a refused key, a bad template, a limit) is not among them.
const MENDABLE: [FailureKind; 12] = [
    FailureKind::RateLimit,
    FailureKind::Overloaded,
    FailureKind::Timeout,
    FailureKind::IdleTimeout,
    FailureKind::Connection,
    FailureKind::ServerError,
    FailureKind::EmptyAnswer,
    FailureKind::OutputTruncated,
    FailureKind::OutputFormat,
    FailureKind::CommandFailed,
    FailureKind::ToolError,
    FailureKind::Crashed,
];

/// What `retry_on` can name: also what may have taken effect, which is tried again only where that
/// is asked for by name.
fn nameable() -> impl Iterator<Item = FailureKind> {
    MENDABLE.into_iter().chain([FailureKind::Interrupted])
}

/// The retries of model calls.
pub(super) fn of_calls(table: Option<&Table>, problems: &mut Problems) -> RetryPolicy {
    settings(table, RetryPolicy::default(), problems)
}

/// The retries of a task: one attempt unless the file says more, and then after any failure that
/// another attempt can mend.
pub(super) fn of_task(table: Option<&Table>, problems: &mut Problems) -> RetryPolicy {
    let base = RetryPolicy { retry_on: MENDABLE.to_vec(), ..RetryPolicy::never() };
    settings(table, base, problems)
}

fn settings(table: Option<&Table>, base: RetryPolicy, problems: &mut Problems) -> RetryPolicy {
    let Some(table) = table else { return base };
    let retry_on = match table.get("retry_on") {
        None => base.retry_on,
        Some(_) => kinds(table, problems),
    };
    RetryPolicy {
        max_attempts: table.whole("max_attempts").unwrap_or(base.max_attempts),
        initial_interval: table.duration("initial_interval").unwrap_or(base.initial_interval),
        backoff_factor: table.number("backoff_factor").unwrap_or(base.backoff_factor),
        max_interval: table.duration("max_interval").unwrap_or(base.max_interval),
        jitter: table.truth("jitter").unwrap_or(base.jitter),
        retry_on,
    }
}

fn kinds(table: &Table, problems: &mut Problems) -> Vec<FailureKind> {
    let mut kinds = Vec::new();
    for (text, place) in table.texts("retry_on") {
        match nameable().find(|kind| kind.as_str() == text) {
            Some(kind) => kinds.push(kind),
            None => {
                let help = names::suggest(text, nameable().map(FailureKind::as_str));
                let message = format!("`{text}` is not a failure that can be retried");
                problems.error_help("bad_value", place, message, help);
            }
        }
    }
    kinds
}
