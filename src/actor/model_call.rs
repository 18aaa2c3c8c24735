//! Makes one model call with its retries: waits for a permit, tries, judges the error, pauses,
//! tries again.
//!
//! Runs inside a step's task, never in a handler. Agents and the compactor both use it, so that the
//! same limits and the same rules for retries apply to all of them.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fallback::{self, Source, Use};
use super::gateway::{self, Permits, Wanted};
use super::model_attempt::{Attempt, Cancelled, Try, one_attempt};
use super::model_service::ModelService;
use super::services::Services;
use super::step::StepContext;
use super::warm_up::Prefix;
use crate::context::Spent;
use crate::context::provider::server::ContextWork;
use crate::event::SharedRecord;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::journal::JournalError;
use crate::message::Usage;
use crate::model::{ErrorClass, ModelError, Reply, Request};
use crate::turn::ModelFailed;
use crate::turn_boundary::LEAST_OUTPUT_TOKENS;

/// Most attempts of a call that writes a summary. An agent can go on without it: a record that needs no
/// model stands in its place, while an agent that waits for attempt after attempt stands still.
const SUMMARY_ATTEMPTS: u32 = 2;

/// The longest pause before the second attempt of such a call, also where the provider asks for more.
const SUMMARY_PAUSE: Duration = Duration::from_secs(5);

/// Bytes of a request that are about one token.
const BYTES_PER_TOKEN: u64 = 4;

/// The agent that makes a call, for the records.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The step that makes the call.
    pub context: &'a StepContext,
    /// The turn that the call belongs to.
    pub turn: u32,
    /// The tokens that the request is expected to hold.
    pub expected_tokens: u64,
    /// True if the request before was refused as too long, and this one is smaller.
    pub made_smaller: bool,
    /// What the request was rendered from, if the model has fallbacks.
    pub source: Option<&'a Source>,
    /// The front of the request as an entry of the provider's cache.
    pub prefix: &'a Prefix,
}

/// A reply, and the model that gave it.
#[derive(Debug)]
pub struct Answered<'a> {
    /// The reply.
    pub reply: Reply,
    /// The model, which is another if it stood in.
    pub by: &'a ModelService,
}

/// The reason why a call gave no reply after all its attempts.
#[derive(Debug)]
pub enum CallError {
    /// The model failed.
    Model {
        /// The error of the last attempt.
        error: ModelError,
        /// The record of the last attempt, if the attempts of this caller are recorded.
        record: Option<SharedRecord>,
        /// The tokens of all attempts, if they are not recorded.
        lost: Usage,
    },
    /// The caller was cancelled.
    Cancelled,
    /// The journal failed.
    Journal(JournalError),
}

impl From<Cancelled> for CallError {
    fn from(Cancelled: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<JournalError> for CallError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// The decision after a failed attempt.
enum Next<'a> {
    GiveUp,
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
    /// Try another model at once.
    Other(Use<'a>),
}

/// Makes a call, and makes it again as long as the retry policy allows, to a fallback of the model if it
/// cannot be called. Failed attempts are recorded for the caller, if one is given. A call without one
/// writes a summary: it is tried twice at most, and its failures do not count against the provider.
///
/// # Errors
/// Returns the last attempt's error, the cancellation, or the journal's error.
pub async fn call<'a>(
    services: &'a Services,
    own: &'a ModelService,
    mut request: Request,
    permits: &Permits,
    caller: Option<Caller<'_>>,
    cancel: &CancellationToken,
) -> Result<Answered<'a>, CallError> {
    let mut attempt = 1;
    // The tokens of failed attempts, for a caller whose attempts are not recorded.
    let mut lost = Usage::default();
    let agent = caller.map(|caller| &caller.context.agent);
    let expected = caller.map_or_else(|| tokens(&request), |caller| caller.expected_tokens);
    let source = caller.and_then(|caller| caller.source);
    let since = gateway::first_attempt(services);
    let mut using = match source {
        Some(_) => fallback::first(services, own, expected),
        None => Use::force(own),
    };
    let original = source.map(|source| (source, request.clone()));
    if let Some((source, original)) = original.as_ref().filter(|_| !using.is_of(own)) {
        request = source.request(using.service, original);
    }
    // The calls that the provider had taken when this one began, or was refused last.
    let mut taken = using.service.taken();
    // The end of the call's own pause after a refusal.
    let mut ready = Instant::now();
    loop {
        let service = using.service;
        let has_next = source.is_some() && fallback::has_next(services, own, service, expected);
        let pause = ready.saturating_duration_since(Instant::now());
        let wanted = Wanted { since, tokens: tokens(&request), pause };
        let prefix = caller.map(|caller| caller.prefix).filter(|_| using.is_of(own));
        let abandon = caller.map_or(cancel, |caller| &caller.context.abandon);
        let one =
            Try { request: &request, attempt, permits, wanted, cancel, abandon, agent, prefix };
        let attempted = match one_attempt(services, &mut using, has_next, one).await? {
            Attempt::Ended(attempted) => attempted,
            Attempt::GivenUp => {
                let other = fallback::next(services, own, service, expected);
                if let Some((other, (source, original))) = other.zip(original.as_ref()) {
                    request = source.request(other.service, original);
                    (taken, attempt, using) = (other.service.taken(), 1, other);
                }
                continue;
            }
        };
        let mut error = match attempted {
            Ok(reply) => {
                using.is_well();
                let usage = match lost == Usage::default() {
                    true => reply.usage,
                    false => reply.usage.or_expected(expected).0 + lost,
                };
                return Ok(Answered { reply: Reply { usage, ..reply }, by: service });
            }
            Err(error) => error,
        };
        // A provider that had begun to write has read the request.
        error.usage.iter_mut().for_each(|usage| **usage = usage.or_expected(expected).0);
        // A prompt alone cannot be made smaller.
        if caller.is_some_and(|caller| !caller.made_smaller) && request.pieces.len() > 1 {
            error = suspected(error, expected, service.spec.context_window);
        }
        note_what_is_missing(&error, service);
        let taken_before = std::mem::replace(&mut taken, service.taken());
        // While the provider takes other calls, to be refused is no attempt. Nor is it when the gateway let the
        // call start before its time, to ask whether all calls must wait.
        let is_no_attempt = taken > taken_before || Instant::now() < ready;
        let other = match using.is_over() {
            true => fallback::next(services, own, service, expected),
            false => None,
        };
        let next = match next(&error, service, attempt, &request) {
            _ if let Some(other) = other => Next::Other(other),
            // A quota is waited for, however often its end is tried in vain.
            _ if caller.is_some() && waits_for_quota(&error, service) => {
                Next::QuotaClosed(error.retry_after.unwrap_or(service.retry.max_interval))
            }
            Next::Again(pause) if caller.is_none() => match attempt >= SUMMARY_ATTEMPTS {
                true => Next::GiveUp,
                false if pause > SUMMARY_PAUSE => Next::GiveUp,
                false => Next::Again(pause),
            },
            // The gateway makes everybody wait, and lets the oldest call go first.
            Next::Again(pause) if is_parked(&error, service) => Next::Parked(pause),
            Next::GiveUp if caller.is_some() && is_parked(&error, service) && is_no_attempt => {
                Next::Parked(error.retry_after.unwrap_or(service.retry.initial_interval))
            }
            next => next,
        };
        let then = match &next {
            Next::GiveUp => Then::Nothing,
            Next::Again(pause) | Next::Parked(pause) | Next::QuotaClosed(pause) => {
                Then::Again(*pause)
            }
            Next::Smaller(_) | Next::Plain | Next::WithoutSchema => Then::Again(Duration::ZERO),
            Next::Other(other) => Then::Other(&other.service.spec.name),
        };
        let record = match caller {
            Some(caller) => record(caller, service, attempt, &error, then).await?,
            None => {
                lost += error.usage.as_deref().copied().unwrap_or_default();
                None
            }
        };
        match next {
            Next::GiveUp => return Err(CallError::Model { error, record, lost }),
            Next::Again(pause) => {
                tokio::select! {
                    () = cancel.cancelled() => return Err(CallError::Cancelled),
                    () = tokio::time::sleep(pause) => {}
                }
            }
            Next::QuotaClosed(_) => continue,
            Next::Parked(pause) => {
                ready = Instant::now() + pause;
                if is_no_attempt {
                    continue;
                }
            }
            Next::Smaller(tokens) => request.max_output_tokens = tokens,
            Next::Plain => request.context = ContextWork::Nothing,
            Next::WithoutSchema => request.answer_schema = None,
            Next::Other(other) => {
                if let Some((source, original)) = &original {
                    request = source.request(other.service, original);
                }
                (taken, attempt, using) = (other.service.taken(), 1, other);
                continue;
            }
        }
        attempt += 1;
    }
}

/// What follows after a failed attempt, for its record.
#[derive(Clone, Copy)]
enum Then<'a> {
    Nothing,
    Again(Duration),
    /// Another model is called at once.
    Other(&'a Name),
}

/// Returns an estimate of the tokens of a request, its reply included.
fn tokens(request: &Request) -> u64 {
    let bytes: usize = request.pieces.iter().map(|piece| piece.bytes.len()).sum();
    (request.head.0.len() + bytes) as u64 / BYTES_PER_TOKEN
}

/// Returns true if the refusal of a call makes all calls to the provider wait.
fn is_parked(error: &ModelError, service: &ModelService) -> bool {
    error.class == ErrorClass::RateLimited
        && service.shares_pauses
        && error.is_retryable()
        && service.retry.retry_on.contains(&FailureKind::RateLimit)
}

/// Returns true if the call waits until the quota is reset.
fn waits_for_quota(error: &ModelError, service: &ModelService) -> bool {
    error.class == ErrorClass::QuotaExhausted && service.waits_for_quota
}

/// Returns an error that may mean that the request is too long as one that says so: status 400 or 422 in words
/// that nobody knows, and half of the window or more is full. Sizes are estimates, often a third too small, so
/// the request may be larger than the window. It is made smaller and sent again once.
fn suspected(error: ModelError, expected: u64, window: u64) -> ModelError {
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

/// Removes a capability that the provider refused from its known capabilities, so that no later
/// call asks for it.
fn note_what_is_missing(error: &ModelError, service: &ModelService) {
    if error.class == ErrorClass::SchemaRefused && service.set_holds_to_schema(false) {
        let model = &service.spec.name;
        tracing::warn!(%model, %error, "the provider holds no answer to this schema: going on without");
    }
    let ErrorClass::Unsupported(capability) = error.class else { return };
    if service.known_capabilities.lose(capability) {
        let (model, capability) = (&service.spec.name, capability.name());
        tracing::warn!(%model, capability, %error, "refused by the provider: going on without");
    }
}

/// The choice of what follows after as many attempts as the retry policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// The call failed.
    Allowed,
    /// The agent goes on, after the longest pause.
    Never,
}

/// Returns the record of a reply that broke after a part of it, with the pause before the next call.
/// `attempt` is the number of such replies in a row.
pub(super) fn broken(
    service: &ModelService,
    turn: u32,
    attempt: u32,
    error: &ModelError,
    last: Last,
) -> ModelFailed {
    let pause = service.retry.pause(attempt, error.class.kind(), fastrand::f64());
    let pause = pause.map(|pause| error.retry_after.unwrap_or(pause));
    let pause = match last {
        Last::Allowed => pause,
        Last::Never => Some(pause.unwrap_or(service.retry.max_interval)),
    };
    // The reply has the tokens.
    let error = ModelError { usage: None, ..error.clone() };
    failed(turn, service, attempt, &error, pause.map_or(Then::Nothing, Then::Again))
}

async fn record(
    caller: Caller<'_>,
    service: &ModelService,
    attempt: u32,
    error: &ModelError,
    then: Then<'_>,
) -> Result<Option<SharedRecord>, JournalError> {
    let failed = failed(caller.turn, service, attempt, error, then);
    Ok(caller.context.record([failed]).await?.pop())
}

fn failed(
    turn: u32,
    service: &ModelService,
    attempt: u32,
    error: &ModelError,
    then: Then<'_>,
) -> ModelFailed {
    let (pause, next_model) = match then {
        Then::Nothing => (None, None),
        Then::Again(pause) => (Some(pause), None),
        Then::Other(name) => (Some(Duration::ZERO), Some(name.clone())),
    };
    let (context_tokens, window_tokens) = error.class.context();
    let spec = &service.spec;
    let spent = error.usage.as_deref().map(|usage| Spent {
        model: spec.name.clone(),
        usage: *usage,
        cost_usd: spec.price.map(|price| price.cost(usage)),
    });
    ModelFailed {
        turn,
        attempt,
        failure: Failure::new(error.class.kind(), error.message.as_str()),
        retry_in_ms: pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        next_model,
        context_tokens,
        window_tokens,
        spent,
    }
}

fn next<'a>(
    error: &ModelError,
    service: &ModelService,
    attempt: u32,
    request: &Request,
) -> Next<'a> {
    if let ErrorClass::ContextPlusOutput { input: Some(input), limit: Some(limit) } = error.class {
        let room = limit.saturating_sub(input);
        if (LEAST_OUTPUT_TOKENS..request.max_output_tokens).contains(&room) {
            return Next::Smaller(room);
        }
    }
    if error.class == ErrorClass::SchemaRefused && request.answer_schema.is_some() {
        return Next::WithoutSchema;
    }
    if matches!(error.class, ErrorClass::Unsupported(_))
        && matches!(request.context, ContextWork::Edit(_))
    {
        return Next::Plain;
    }
    let is_last = error.most_attempts.is_some_and(|most| attempt >= most);
    if !error.is_retryable() || is_last {
        return Next::GiveUp;
    }
    // `x-should-retry` may ask for a retry of a class that the policy does not list.
    let kind = match (error.should_retry, error.class.kind()) {
        (Some(true), kind) if !service.retry.retry_on.contains(&kind) => FailureKind::ServerError,
        (_, kind) => kind,
    };
    match (service.retry.pause(attempt, kind, fastrand::f64()), error.retry_after) {
        (None, _) => Next::GiveUp,
        (Some(_), Some(asked)) => Next::Again(asked),
        (Some(pause), None) => Next::Again(pause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_in_unknown_words_near_the_window_may_be_about_the_size() {
        let refused = |status, class| {
            let error = ModelError::new(class, "no");
            ModelError { status: Some(status), ..error }
        };
        let too_long = ErrorClass::ContextTokens { have: None, max: None };
        for status in [400, 422] {
            let found = suspected(refused(status, ErrorClass::Fatal), 50, 100);
            assert_eq!(found.class, too_long);
            assert!(found.message.starts_with("no (perhaps it is too long: "), "{found}");
        }
        let same = |error: ModelError, expected| {
            assert_eq!(suspected(error.clone(), expected, 100), error);
        };
        same(refused(400, ErrorClass::Fatal), 49);
        for status in [200, 403, 415] {
            same(refused(status, ErrorClass::Fatal), 99);
        }
        for class in [ErrorClass::Pairing, ErrorClass::NotFound, ErrorClass::Auth] {
            same(refused(400, class), 99);
        }
    }
}
