//! Reads the retry settings of model calls and of task attempts.

use super::diagnostic::Problems;
use super::names;
use super::raw::Retry;
use super::shape::Item;
use crate::failure::{FailureKind, Remedy};
use crate::policy::RetryPolicy;

/// Returns the retry policy of model calls.
pub(super) fn of_calls(raw: Option<&Retry>, problems: &Problems) -> RetryPolicy {
    settings(raw, RetryPolicy::default(), problems)
}

/// Returns the retry policy of a task. Without settings it has one attempt; with more attempts it
/// retries every failure after which a new attempt can succeed.
pub(super) fn of_task(raw: Option<&Retry>, problems: &Problems) -> RetryPolicy {
    let retry_on = FailureKind::mended_by(Remedy::Attempt).collect();
    let base = RetryPolicy { retry_on, ..RetryPolicy::never() };
    settings(raw, base, problems)
}

fn settings(raw: Option<&Retry>, base: RetryPolicy, problems: &Problems) -> RetryPolicy {
    let Some(raw) = raw else { return base };
    RetryPolicy {
        max_attempts: raw.max_attempts.unwrap_or(base.max_attempts),
        initial_interval: *raw.initial_interval,
        backoff_factor: *raw.backoff_factor,
        max_interval: *raw.max_interval,
        jitter: *raw.jitter,
        retry_on: raw.retry_on.as_ref().map_or(base.retry_on, |items| kinds(items, problems)),
    }
}

fn kinds(items: &[Item<String>], problems: &Problems) -> Vec<FailureKind> {
    let nameable = || FailureKind::mended_by(Remedy::Named);
    let kind = |Item { value: name, at }: &Item<String>| {
        let found = nameable().find(|kind| kind.as_str() == name);
        if found.is_none() {
            let help = names::suggest(name, nameable().map(FailureKind::as_str));
            let message = format!("`{name}` is not a failure that can be retried");
            problems.error("bad_value", &at.value, message, help);
        }
        found
    };
    items.iter().filter_map(kind).collect()
}
