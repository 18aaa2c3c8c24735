//! Makes one model call with its retries: waits for a permit, tries, judges the error, pauses,
//! tries again.
//!
//! Runs inside a step's task, never in a handler. Agents and the compactor both use it, so that the
//! same limits and the same rules for retries apply to all of them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::gateway::{self, Permits};
use super::model_service::ModelService;
use super::services::Services;
use super::step::StepContext;
use crate::admission::CallEnd;
use crate::context::Spent;
use crate::context::provider::server::ContextWork;
use crate::event::SharedRecord;
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::message::{StopReason, Usage};
use crate::model::{Delta, ErrorClass, ModelError, Reply, Request};
use crate::redaction::LiveRedactor;
use crate::turn::ModelFailed;
use crate::turn_boundary::LEAST_OUTPUT_TOKENS;

/// Most attempts of a call that writes a summary. An agent can go on without it: a record that needs no
/// model stands in its place, while an agent that waits for attempt after attempt stands still.
const SUMMARY_ATTEMPTS: u32 = 2;

/// The longest pause before the second attempt of such a call, also where the provider asks for more.
const SUMMARY_PAUSE: Duration = Duration::from_secs(5);

/// The agent that makes a call, for the records.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The step that makes the call.
    pub context: &'a StepContext,
    /// The turn that the call belongs to.
    pub turn: u32,
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

impl From<JournalError> for CallError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// The decision after a failed attempt.
enum Next {
    GiveUp,
    Again(Duration),
    /// Try again at once, with this smaller output limit in tokens.
    Smaller(u64),
    /// Try again at once, without work on the context by the provider.
    Plain,
}

/// Makes a call, and makes it again as long as the retry policy allows. Failed attempts are
/// recorded for the caller, if one is given. A call without one writes a summary: it is tried twice at
/// most, and its failures do not count against the provider.
///
/// # Errors
/// Returns the last attempt's error, the cancellation, or the journal's error.
pub async fn call(
    services: &Services,
    service: &ModelService,
    mut request: Request,
    permits: &Permits,
    caller: Option<Caller<'_>>,
    cancel: &CancellationToken,
) -> Result<Reply, CallError> {
    let mut attempt = 1;
    // The tokens of failed attempts, for a caller whose attempts are not recorded.
    let mut lost = Usage::default();
    let agent = caller.map(|caller| &caller.context.agent);
    loop {
        let error = match one_attempt(services, service, &request, permits, cancel, agent).await? {
            Ok(reply) => return Ok(Reply { usage: reply.usage + lost, ..reply }),
            Err(error) => error,
        };
        note_what_is_missing(&error, service);
        let next = match next(&error, service, attempt, &request) {
            Next::Again(pause) if caller.is_none() => match attempt >= SUMMARY_ATTEMPTS {
                true => Next::GiveUp,
                false if pause > SUMMARY_PAUSE => Next::GiveUp,
                false => Next::Again(pause),
            },
            next => next,
        };
        let pause = match next {
            Next::GiveUp => None,
            Next::Again(pause) => Some(pause),
            Next::Smaller(_) | Next::Plain => Some(Duration::ZERO),
        };
        let record = match caller {
            Some(caller) => record(caller, service, attempt, &error, pause).await?,
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
            Next::Smaller(tokens) => request.max_output_tokens = tokens,
            Next::Plain => request.context = ContextWork::Nothing,
        }
        attempt += 1;
    }
}

/// Removes a capability that the provider refused from its known capabilities, so that no later
/// call asks for it.
fn note_what_is_missing(error: &ModelError, service: &ModelService) {
    let ErrorClass::Unsupported(capability) = error.class else { return };
    if service.known_capabilities.lose(capability) {
        let (model, capability) = (&service.spec.name, capability.name());
        tracing::warn!(%model, capability, %error, "refused by the provider: going on without");
    }
}

async fn record(
    caller: Caller<'_>,
    service: &ModelService,
    attempt: u32,
    error: &ModelError,
    pause: Option<Duration>,
) -> Result<Option<SharedRecord>, JournalError> {
    let (context_tokens, window_tokens) = error.class.context();
    let spec = &service.spec;
    let spent = error.usage.as_deref().map(|usage| Spent {
        model: spec.name.clone(),
        usage: *usage,
        cost_usd: spec.price.map(|price| price.cost(usage)),
    });
    let failed = ModelFailed {
        turn: caller.turn,
        attempt,
        failure: Failure::new(error.class.kind(), error.message.as_str()),
        retry_in_ms: pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        context_tokens,
        window_tokens,
        spent,
    };
    Ok(caller.context.record([failed]).await?.pop())
}

async fn one_attempt(
    services: &Services,
    service: &ModelService,
    request: &Request,
    permits: &Permits,
    cancel: &CancellationToken,
    agent: Option<&AgentId>,
) -> Result<Result<Reply, ModelError>, CallError> {
    let acquire = gateway::acquire(services, &service.spec.provider, permits);
    // Each attempt takes a permit of its own, so that a call that pauses before a retry holds none.
    let permit = tokio::select! {
        () = cancel.cancelled() => return Err(CallError::Cancelled),
        permit = acquire => permit,
    };
    let Some(permit) = permit else {
        let message = "the provider has no gateway";
        return Ok(Err(ModelError::new(ErrorClass::Connection, message)));
    };
    let secrets = &services.secrets;
    let mut live = LiveRedactor::new(secrets);
    let mut arrived = |delta: Delta<'_>| {
        let Some(agent) = agent else { return };
        let text = match delta {
            Delta::Text(text) => live.push(text),
            Delta::Tool(_) => live.finish(),
            Delta::Alive => String::new(),
        };
        if !text.is_empty() {
            services.watcher.arrived(agent, Delta::Text(&text));
        }
        match delta {
            Delta::Text(_) if text.is_empty() => services.watcher.arrived(agent, Delta::Alive),
            Delta::Text(_) => {}
            Delta::Tool(_) | Delta::Alive => services.watcher.arrived(agent, delta),
        }
    };
    let mut result = tokio::select! {
        () = cancel.cancelled() => return Err(CallError::Cancelled),
        result = service.model.call(request.clone(), &mut arrived) => result,
    };
    let rest = live.finish();
    if let Some(agent) = agent.filter(|_| !rest.is_empty()) {
        services.watcher.arrived(agent, Delta::Text(&rest));
    }
    // A server knows the key and the headers that it is sent, and may repeat them.
    match &mut result {
        Ok(reply) => reply.redact(secrets),
        Err(error) => secrets.redact(&mut error.message),
    }
    if let Some(agent) = agent {
        services.watcher.ended(agent);
    }
    permit.finish(match end_of(&result) {
        CallEnd::Failed if agent.is_none() => CallEnd::Abandoned,
        end => end,
    });
    Ok(result)
}

/// Returns what the end of a call means for the other calls to the provider.
fn end_of(result: &Result<Reply, ModelError>) -> CallEnd {
    match result {
        Ok(reply) if matches!(reply.stop, StopReason::Interrupted(_)) => CallEnd::Failed,
        Ok(_) => CallEnd::Succeeded,
        Err(error) => match error.class {
            ErrorClass::RateLimited => CallEnd::RateLimited {
                retry_after: error.retry_after,
                reason: error.message.clone(),
            },
            _ if error.is_retryable() => CallEnd::Failed,
            _ => CallEnd::Refused,
        },
    }
}

fn next(error: &ModelError, service: &ModelService, attempt: u32, request: &Request) -> Next {
    if let ErrorClass::ContextPlusOutput { input: Some(input), limit: Some(limit) } = error.class {
        let room = limit.saturating_sub(input);
        if (LEAST_OUTPUT_TOKENS..request.max_output_tokens).contains(&room) {
            return Next::Smaller(room);
        }
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
