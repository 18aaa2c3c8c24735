//! One attempt of a model call: waits for a permit, calls, passes the parts of the reply on as they come,
//! and reports the end to the gateway.

use tokio_util::sync::CancellationToken;

use super::fallback::Use;
use super::gateway::{self, Permit, Permits, Wanted};
use super::meter::Meter;
use super::services::Services;
use super::warm_up::Prefix;
use crate::admission::CallEnd;
use crate::id::AgentId;
use crate::message::StopReason;
use crate::model::{Delta, ErrorClass, ModelError, Reply, Request};
use crate::redaction::LiveRedactor;

/// What became of the wish for a permit.
pub(super) enum Granted<'a> {
    /// The permit; `None` if the provider has no gateway.
    Permit(Option<Permit<'a>>),
    /// The model was given up while the call waited.
    GivenUp,
    /// The caller was cancelled.
    Cancelled,
}

/// Waits for a permit. `has_next` says that another model can be called instead of waiting.
pub(super) async fn permit<'a>(
    services: &Services,
    using: &mut Use<'_>,
    has_next: bool,
    permits: &'a Permits,
    wanted: Wanted,
    cancel: &CancellationToken,
) -> Granted<'a> {
    let service = using.service;
    let acquire = gateway::acquire(services, &service.spec.provider, permits, wanted);
    // Each attempt takes a permit of its own, so that a call that pauses before a retry holds none.
    tokio::select! {
        () = cancel.cancelled() => Granted::Cancelled,
        permit = acquire => Granted::Permit(permit),
        () = using.given_up(), if has_next => Granted::GivenUp,
    }
}

/// The request of an attempt, and who makes it.
#[derive(Clone, Copy)]
pub(super) struct Try<'a> {
    pub(super) request: &'a Request,
    /// Number of the attempt, from 1.
    pub(super) attempt: u32,
    /// Ends the call.
    pub(super) abandon: &'a CancellationToken,
    pub(super) agent: Option<&'a AgentId>,
    pub(super) prefix: Option<&'a Prefix>,
    pub(super) meter: &'a Meter,
    /// The tokens that the request is expected to hold.
    pub(super) expected: u64,
}

/// Makes the attempt. `has_next` says that another model can be called after it. Returns `None` if it was cut;
/// the meter then knows what it cost.
pub(super) async fn send(
    services: &Services,
    using: &mut Use<'_>,
    has_next: bool,
    permit: Option<Permit<'_>>,
    one: Try<'_>,
) -> Option<Result<Reply, ModelError>> {
    let Try { request, attempt, abandon, agent, prefix, meter, expected } = one;
    let service = using.service;
    let Some(permit) = permit else {
        let message = "the provider has no gateway";
        return Some(Err(ModelError::new(ErrorClass::Connection, message)));
    };
    if abandon.is_cancelled() {
        return None;
    }
    let secrets = &services.secrets;
    let mut live = LiveRedactor::new(secrets);
    let mut is_taken = false;
    // The head of a stream may come before the prompt is read; its first event does not.
    let mut unread = prefix;
    let mut arrived = |delta: Delta<'_>| {
        if let Delta::Taken(told) = delta {
            is_taken = true;
            service.note_taken();
            permit.taken(told);
        } else if let Delta::Spent(usage) = delta {
            return meter.told(usage);
        } else if let Some(prefix) = unread.take() {
            prefix.begun();
        }
        let Some(agent) = agent else { return };
        let text = match delta {
            Delta::Text(text) => live.push(text),
            Delta::Tool(_) => live.finish(),
            Delta::Taken(_) | Delta::Spent(_) | Delta::Alive => String::new(),
        };
        if !text.is_empty() {
            services.watcher.arrived(agent, Delta::Text(&text));
        }
        match delta {
            Delta::Text(_) if text.is_empty() => services.watcher.arrived(agent, Delta::Alive),
            Delta::Text(_) => {}
            Delta::Tool(_) | Delta::Alive => services.watcher.arrived(agent, delta),
            Delta::Taken(_) | Delta::Spent(_) => {}
        }
    };
    meter.begin(expected);
    let mut result = tokio::select! {
        () = abandon.cancelled() => return None,
        result = service.model.call(request.clone(), &mut arrived) => result,
    };
    if result.is_ok() && !is_taken {
        service.note_taken();
    }
    if result.is_err() && is_taken {
        // It was refused after all: only calls that the provider answers show that it takes some.
        service.note_refused();
    }
    if let Some(prefix) = unread.filter(|_| result.is_ok()) {
        prefix.begun();
    }
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
    if let Err(error) = &result
        && has_next
        && using.is_due(error, attempt)
    {
        // Before another call gets the permit.
        let model = &service.spec.name;
        tracing::warn!(%model, %error, "the model is given up for now: another is called");
        using.give_up();
    }
    permit.finish(match end_of(&result) {
        CallEnd::Failed | CallEnd::Overloaded if agent.is_none() => CallEnd::Abandoned,
        // Nobody waits for the quota if another model is called.
        CallEnd::QuotaExhausted { .. } if has_next => CallEnd::Abandoned,
        end => end,
    });
    Some(result)
}

/// Returns what the end of a call means for the other calls to the provider.
fn end_of(result: &Result<Reply, ModelError>) -> CallEnd {
    match result {
        Ok(reply) if matches!(reply.stop, StopReason::Interrupted(_)) => CallEnd::Failed,
        Ok(Reply { usage, .. }) => {
            CallEnd::Succeeded { tokens: usage.input + usage.cache_write + usage.output }
        }
        Err(error) => match error.class {
            ErrorClass::RateLimited => CallEnd::RateLimited {
                retry_after: error.retry_after,
                left: error.limit_left,
                reason: error.message.clone(),
            },
            ErrorClass::QuotaExhausted => CallEnd::QuotaExhausted {
                resets_in: error.retry_after,
                reason: error.message.clone(),
            },
            ErrorClass::Overloaded => CallEnd::Overloaded,
            _ if error.is_retryable() => CallEnd::Failed,
            _ => CallEnd::Refused,
        },
    }
}
