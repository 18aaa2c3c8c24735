//! What follows an attempt, by its end: for the call, for its model, and for the other calls to the provider.

use std::time::Duration;

use super::error::{ErrorClass, ModelError};
use super::standing::{Admitted, Rules};
use super::{Form, Purpose};
use crate::admission::CallEnd;
use crate::failure::FailureKind;
use crate::message::{StopReason, Usage, UsageSource};
use crate::policy::RetryPolicy;
use crate::turn_boundary::LEAST_OUTPUT_TOKENS;

/// Attempts after which a model that has a fallback is given up: the official clients make three.
const ATTEMPTS: u32 = 3;

/// Most attempts of a call that writes a summary. An agent can go on without it: a record that needs no
/// model stands in its place, while an agent that waits for attempt after attempt stands still.
const SUMMARY_ATTEMPTS: u32 = 2;

/// The longest pause before the second attempt of such a call, also where the provider asks for more.
const SUMMARY_PAUSE: Duration = Duration::from_secs(5);

/// What the call does after a failed attempt, if it does not go to another model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GiveUp,
    /// Try again after a pause of its own.
    Again(Duration),
    /// Try again once the gateway admits it, about this much later.
    Parked(Duration),
    /// Try again once the gateway admits it, after the reset of a quota.
    QuotaClosed(Duration),
    /// Try again at once, with this smaller output limit in tokens.
    Smaller(u64),
    /// Try again at once, without work on the context by the provider.
    Plain,
    /// Try again at once, without a schema for the answer.
    WithoutSchema,
}

impl Next {
    /// Returns the pause that is recorded; `None` if no attempt follows.
    pub(super) fn pause(self) -> Option<Duration> {
        match self {
            Self::GiveUp => None,
            Self::Again(pause) | Self::Parked(pause) | Self::QuotaClosed(pause) => Some(pause),
            Self::Smaller(_) | Self::Plain | Self::WithoutSchema => Some(Duration::ZERO),
        }
    }
}

/// An attempt that failed, with what its call is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'a> {
    pub(super) error: &'a ModelError,
    pub(super) rules: Rules<'a>,
    pub(super) form: Form,
    pub(super) purpose: Purpose,
    /// Number of the attempt, from 1.
    pub(super) number: u32,
    /// True if a refusal says nothing of this call: the provider takes others, or the gateway only asked it
    /// whether all must wait.
    pub(super) is_no_attempt: bool,
    /// A number from 0 to 1.
    pub(super) chance: f64,
}

impl Attempt<'_> {
    /// Returns what the call does next.
    pub(super) fn next(&self) -> Next {
        let (error, rules) = (self.error, self.rules);
        let is_agent = self.purpose == Purpose::Turn;
        // A quota is waited for, however often its end is tried in vain.
        if is_agent && error.class == ErrorClass::QuotaExhausted && rules.waits_for_quota {
            return Next::QuotaClosed(error.retry_after.unwrap_or(rules.retry.max_interval));
        }
        match self.other_form().unwrap_or_else(|| self.again()) {
            Next::Again(pause) if !is_agent => {
                match self.number >= SUMMARY_ATTEMPTS || pause > SUMMARY_PAUSE {
                    true => Next::GiveUp,
                    false => Next::Again(pause),
                }
            }
            // The gateway makes everybody wait, and lets the oldest call go first.
            Next::Again(pause) if self.is_parked() => Next::Parked(pause),
            Next::GiveUp if is_agent && self.is_no_attempt && self.is_parked() => {
                Next::Parked(error.retry_after.unwrap_or(rules.retry.initial_interval))
            }
            next => next,
        }
    }

    /// Returns how the request is changed, if that can mend the error.
    fn other_form(&self) -> Option<Next> {
        match self.error.class {
            ErrorClass::ContextPlusOutput { input: Some(input), limit: Some(limit) } => {
                let free_tokens = limit.saturating_sub(input);
                let fits =
                    (LEAST_OUTPUT_TOKENS..self.form.max_output_tokens).contains(&free_tokens);
                fits.then_some(Next::Smaller(free_tokens))
            }
            ErrorClass::SchemaRefused => self.form.has_schema.then_some(Next::WithoutSchema),
            ErrorClass::Unsupported(_) => self.form.has_edits.then_some(Next::Plain),
            _ => None,
        }
    }

    /// Returns whether the retry policy allows the same request again.
    fn again(&self) -> Next {
        let (error, retry) = (self.error, self.rules.retry);
        let is_last = error.most_attempts.is_some_and(|most| self.number >= most);
        if !error.is_retryable() || is_last {
            return Next::GiveUp;
        }
        // `x-should-retry` may ask for a retry of a class that the policy does not list.
        let kind = match (error.should_retry, error.class.kind()) {
            (Some(true), kind) if !retry.retry_on.contains(&kind) => FailureKind::ServerError,
            (_, kind) => kind,
        };
        let pause = retry.pause(self.number, kind, self.chance);
        pause.map_or(Next::GiveUp, |pause| Next::Again(error.retry_after.unwrap_or(pause)))
    }

    /// Returns true if the refusal makes all calls to the provider wait.
    fn is_parked(&self) -> bool {
        self.error.class == ErrorClass::RateLimited
            && self.rules.shares_pauses
            && self.error.is_retryable()
            && self.rules.retry.retry_on.contains(&FailureKind::RateLimit)
    }
}

/// Returns true if a model that has fallbacks is given up after this error. What a request is refused for would be
/// refused by the others too. A call that tries a model again makes one attempt.
pub(super) fn is_due(error: &ModelError, attempt: u32, admitted: Admitted) -> bool {
    match error.class {
        ErrorClass::QuotaExhausted | ErrorClass::Auth | ErrorClass::NotFound => true,
        ErrorClass::Connection if error.should_retry == Some(false) => true,
        ErrorClass::RateLimited
        | ErrorClass::Overloaded
        | ErrorClass::ServerError
        | ErrorClass::Connection
        | ErrorClass::IdleTimeout => {
            let tries = if admitted == Admitted::AsProbe { ATTEMPTS } else { attempt };
            tries >= ATTEMPTS || error.most_attempts.is_some_and(|most| tries >= most)
        }
        ErrorClass::ContextTokens { .. }
        | ErrorClass::ContextPlusOutput { .. }
        | ErrorClass::RequestBytes
        | ErrorClass::Pairing
        | ErrorClass::ThinkingChanged
        | ErrorClass::ReplyTooLarge
        | ErrorClass::Unsupported(_)
        | ErrorClass::SchemaRefused
        | ErrorClass::Fatal => false,
    }
}

/// Completes the tokens of an attempt that failed, and returns the source of its input. A provider that had begun
/// to write has read the request; one that never said anything is not taken to have charged for it.
pub(super) fn estimated(error: &mut ModelError, expected: u64) -> UsageSource {
    let Some(usage) = &mut error.usage else { return UsageSource::Reported };
    let (complete, source) = usage.or_expected(expected);
    **usage = complete;
    source
}

/// Returns an error that may mean that the request is too long as one that says so: status 400 or 422 in words
/// that nobody knows, and half of the window or more is full. Sizes are estimates, often a third too small, so
/// the request may be larger than the window. It is made smaller and sent again once.
pub(super) fn suspected(error: ModelError, expected: u64, window: u64) -> ModelError {
    let is_unknown = error.class == ErrorClass::Fatal && matches!(error.status, Some(400 | 422));
    if !is_unknown || expected < window / 2 {
        return error;
    }
    let message = format!(
        "{} (perhaps it is too long: it has about {expected} of {window} tokens)",
        error.message
    );
    let class = ErrorClass::ContextTokens { have: None, max: None };
    ModelError { class, message, ..error }
}

/// Returns what a reply means for the other calls to the provider.
pub(super) fn end_of_reply(stop: &StopReason, usage: &Usage) -> CallEnd {
    match stop {
        StopReason::Interrupted(_) => CallEnd::Failed,
        _ => {
            let tokens = usage.input.saturating_add(usage.cache_write).saturating_add(usage.output);
            CallEnd::Succeeded { tokens }
        }
    }
}

/// Returns what an error means for the other calls to the provider.
pub(super) fn end_of_error(error: &ModelError) -> CallEnd {
    match error.class {
        ErrorClass::RateLimited => CallEnd::RateLimited {
            retry_after: error.retry_after,
            left: error.limit_left,
            reason: error.message.clone(),
        },
        ErrorClass::QuotaExhausted => {
            CallEnd::QuotaExhausted { resets_in: error.retry_after, reason: error.message.clone() }
        }
        ErrorClass::Overloaded => CallEnd::Overloaded,
        _ if error.is_retryable() => CallEnd::Failed,
        _ => CallEnd::Refused,
    }
}

/// A reply whose stream broke after some blocks were complete.
#[derive(Clone, Copy, Debug)]
pub struct Broken<'a> {
    /// The error that broke it.
    pub error: &'a ModelError,
    /// Number of such replies in a row.
    pub number: u32,
    /// True if it holds calls: their results are new, so the agent goes on, however many replies broke.
    pub has_calls: bool,
}

impl Broken<'_> {
    /// Returns the pause before the next call; `None` if the turn fails. `chance` is a number from 0 to 1.
    pub fn pause(&self, retry: &RetryPolicy, chance: f64) -> Option<Duration> {
        let pause = retry.pause(self.number, self.error.class.kind(), chance);
        let pause = pause.map(|pause| self.error.retry_after.unwrap_or(pause));
        pause.or(self.has_calls.then_some(retry.max_interval))
    }

    /// Returns true if a model that has fallbacks is given up after it.
    pub fn gives_up(&self) -> bool {
        is_due(self.error, self.number, Admitted::Freely)
    }
}
