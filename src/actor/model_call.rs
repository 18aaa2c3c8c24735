//! Makes one model call with its retries: waits for a permit, tries, judges the error, pauses,
//! tries again.
//!
//! Runs inside a step's task, never in a handler. Agents and the compactor both use it, so that the
//! same limits and the same rules for retries apply to all of them.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call_records::{self, CallRecords, Then};
use super::fallback::{self, Source, Use};
use super::gateway::{self, Permits, Wanted};
use super::meter::Meter;
use super::model_attempt::{Granted, Try, permit, send};
use super::model_service::ModelService;
use super::services::Services;
use super::warm_up::Prefix;
use crate::context::provider::server::ContextWork;
use crate::event::SharedRecord;
use crate::failure::FailureKind;
use crate::journal::JournalError;
use crate::message::UsageSource;
use crate::model::{ErrorClass, ModelError, Reply, Request};
use crate::turn_boundary::LEAST_OUTPUT_TOKENS;

/// Most attempts of a call that writes a summary. An agent can go on without it: a record that needs no
/// model stands in its place, while an agent that waits for attempt after attempt stands still.
const SUMMARY_ATTEMPTS: u32 = 2;

/// The longest pause before the second attempt of such a call, also where the provider asks for more.
const SUMMARY_PAUSE: Duration = Duration::from_secs(5);

/// Bytes of a request that are about one token.
const BYTES_PER_TOKEN: u64 = 4;

/// Who makes a call, and pays for it.
#[derive(Debug)]
pub enum Payer<'a> {
    /// An agent.
    Agent(Box<Caller<'a>>),
    /// The agent that a summary is written for.
    Summary {
        /// Counts what the calls of the summary cost.
        meter: &'a Meter,
        /// The tokens that the request is expected to hold.
        expected_tokens: u64,
    },
}

/// The agent that makes a call.
#[derive(Debug)]
pub struct Caller<'a> {
    /// The records of the call.
    pub(super) records: CallRecords<'a>,
    /// True if the request before was refused as too long, and this one is smaller.
    pub(super) made_smaller: bool,
    /// What the request was rendered from, if the model has fallbacks.
    pub(super) source: Option<&'a Source>,
    /// The front of the request as an entry of the provider's cache.
    pub(super) prefix: &'a Prefix,
}

impl<'a> Payer<'a> {
    fn caller(&self) -> Option<&Caller<'a>> {
        match self {
            Self::Agent(caller) => Some(caller),
            Self::Summary { .. } => None,
        }
    }

    /// Returns the records of the call.
    pub(super) fn into_records(self) -> Vec<SharedRecord> {
        match self {
            Self::Agent(caller) => caller.records.made,
            Self::Summary { .. } => Vec::new(),
        }
    }

    fn records(&mut self) -> Option<&mut CallRecords<'a>> {
        match self {
            Self::Agent(caller) => Some(&mut caller.records),
            Self::Summary { .. } => None,
        }
    }
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
    /// The model failed, with the error of the last attempt.
    Model(ModelError),
    /// The caller was cancelled.
    Cancelled,
    /// The journal failed.
    Journal(JournalError),
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
/// cannot be called. Each request of an agent is announced and settled by its records. A call for a summary is
/// tried twice at most, and its failures do not count against the provider.
///
/// # Errors
/// Returns the last attempt's error, the cancellation, or the journal's error.
pub async fn call<'a>(
    services: &'a Services,
    own: &'a ModelService,
    mut request: Request,
    permits: &Permits,
    payer: &mut Payer<'_>,
    cancel: &CancellationToken,
) -> Result<Answered<'a>, CallError> {
    let mut attempt = 1;
    let own_meter = Meter::default();
    let (meter, expected, source, made_smaller, prefix) = match payer {
        Payer::Agent(caller) => {
            let expected = caller.records.expected_tokens;
            (&own_meter, expected, caller.source, caller.made_smaller, Some(caller.prefix))
        }
        Payer::Summary { meter, expected_tokens } => (*meter, *expected_tokens, None, false, None),
    };
    let agent = payer.caller().map(|caller| &caller.records.context.agent).cloned();
    let abandon = payer.caller().map_or(cancel, |caller| &caller.records.context.abandon).clone();
    let since = gateway::first_attempt(services);
    let mut using = match source {
        Some(_) => fallback::first(services, own, expected),
        None => Use::force(own),
    };
    let original = source.map(|source| (source, request.clone()));
    if let Some((source, original)) = original.as_ref().filter(|_| !using.is_of(own)) {
        request = source.request(using.service, original);
    }
    // The first announcement shares the batch of the turn, so it comes before the permit.
    if let Some(records) = payer.records() {
        records.announce(&using.service.spec, &request).await?;
    }
    let mut is_announced = true;
    let ahead = match prefix {
        Some(prefix) => tokio::select! {
            () = cancel.cancelled() => None,
            ahead = prefix.ready() => Some(ahead),
        },
        None => None,
    };
    // The calls that the provider had taken when this one began, or was refused last.
    let mut taken = using.service.taken();
    // The end of the call's own pause after a refusal.
    let mut ready = Instant::now();
    let answered = loop {
        let service = using.service;
        let has_next = source.is_some() && fallback::has_next(services, own, service, expected);
        let pause = ready.saturating_duration_since(Instant::now());
        let wanted = Wanted { since, tokens: tokens(&request), pause };
        let permit = match permit(services, &mut using, has_next, permits, wanted, cancel).await {
            Granted::Permit(permit) => permit,
            Granted::GivenUp => {
                let other = fallback::next(services, own, service, expected);
                if let Some((other, (source, original))) = other.zip(original.as_ref()) {
                    request = source.request(other.service, original);
                    (taken, attempt, using) = (other.service.taken(), 1, other);
                    is_announced = false;
                }
                continue;
            }
            Granted::Cancelled => {
                if let Some(records) = payer.records().filter(|_| is_announced) {
                    records.cut(&service.spec, attempt, None).await?;
                }
                return Err(CallError::Cancelled);
            }
        };
        if let Some(records) = payer.records().filter(|_| !is_announced) {
            records.announce(&service.spec, &request).await?;
        }
        is_announced = false;
        let prefix = prefix.filter(|_| using.is_of(own));
        let abandon = &abandon;
        let one = Try {
            request: &request,
            attempt,
            abandon,
            agent: agent.as_ref(),
            prefix,
            meter,
            expected,
        };
        let sent = send(services, &mut using, has_next, permit, one).await;
        if let Some(records) = payer.records() {
            records.was_sent = true;
        }
        let mut error = match sent {
            Some(Ok(reply)) => {
                using.is_well();
                meter.end(reply.usage.or_expected(expected).0);
                break Answered { reply, by: service };
            }
            Some(Err(error)) => error,
            None => {
                if let Some(records) = payer.records() {
                    records.cut(&service.spec, attempt, meter.open()).await?;
                }
                return Err(CallError::Cancelled);
            }
        };
        let usage_source = estimated(&mut error, expected);
        meter.end(error.usage.as_deref().copied().unwrap_or_default());
        // A prompt alone cannot be made smaller.
        if payer.caller().is_some() && !made_smaller && request.pieces.len() > 1 {
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
        let is_agent = payer.caller().is_some();
        let next = match next(&error, service, attempt, &request) {
            _ if let Some(other) = other => Next::Other(other),
            // A quota is waited for, however often its end is tried in vain.
            _ if is_agent && waits_for_quota(&error, service) => {
                Next::QuotaClosed(error.retry_after.unwrap_or(service.retry.max_interval))
            }
            Next::Again(pause) if !is_agent => match attempt >= SUMMARY_ATTEMPTS {
                true => Next::GiveUp,
                false if pause > SUMMARY_PAUSE => Next::GiveUp,
                false => Next::Again(pause),
            },
            // The gateway makes everybody wait, and lets the oldest call go first.
            Next::Again(pause) if is_parked(&error, service) => Next::Parked(pause),
            Next::GiveUp if is_agent && is_parked(&error, service) && is_no_attempt => {
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
        if let Some(records) = payer.records() {
            let spec = &service.spec;
            let failed =
                call_records::failed(records.turn, spec, attempt, &error, usage_source, then);
            records.failed(failed).await?;
        }
        match next {
            Next::GiveUp => return Err(CallError::Model(error)),
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
    };
    drop(ahead);
    Ok(answered)
}

/// Completes the tokens of an attempt that failed, and returns the source of its input. A provider that had begun
/// to write has read the request; one that never said anything is not taken to have charged for it.
fn estimated(error: &mut ModelError, expected: u64) -> UsageSource {
    let Some(usage) = &mut error.usage else { return UsageSource::Reported };
    let (complete, source) = usage.or_expected(expected);
    **usage = complete;
    source
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
