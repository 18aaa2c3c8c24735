//! One attempt of a model call: waits for a permit, calls, passes the parts of the reply on as they come,
//! and reports the end to the gateway.

use tokio_util::sync::CancellationToken;

use super::fallback::Use;
use super::gateway::{self, Permits, Wanted};
use super::services::Services;
use super::warm_up::Prefix;
use crate::admission::CallEnd;
use crate::id::AgentId;
use crate::message::StopReason;
use crate::model::{Delta, ErrorClass, ModelError, Reply, Request};
use crate::redaction::LiveRedactor;

/// The caller was cancelled.
pub(super) struct Cancelled;

/// The end of an attempt.
pub(super) enum Attempt {
    Ended(Result<Reply, ModelError>),
    /// The model was given up while the call waited for a permit.
    GivenUp,
}

/// The request of an attempt, and who makes it.
#[derive(Clone, Copy)]
pub(super) struct Try<'a> {
    pub(super) request: &'a Request,
    /// Number of the attempt, from 1.
    pub(super) attempt: u32,
    pub(super) permits: &'a Permits,
    pub(super) wanted: Wanted,
    /// Ends a wait for a permit.
    pub(super) cancel: &'a CancellationToken,
    /// Ends a call that was made.
    pub(super) abandon: &'a CancellationToken,
    pub(super) agent: Option<&'a AgentId>,
    pub(super) prefix: Option<&'a Prefix>,
}

/// Makes the attempt. `has_next` says that another model can be called instead of waiting for a permit.
pub(super) async fn one_attempt(
    services: &Services,
    using: &mut Use<'_>,
    has_next: bool,
    one: Try<'_>,
) -> Result<Attempt, Cancelled> {
    let Try { request, attempt, permits, wanted, cancel, abandon, agent, prefix } = one;
    let service = using.service;
    let acquire = gateway::acquire(services, &service.spec.provider, permits, wanted);
    // Each attempt takes a permit of its own, so that a call that pauses before a retry holds none.
    let permit = tokio::select! {
        () = cancel.cancelled() => return Err(Cancelled),
        permit = acquire => permit,
        () = using.given_up(), if has_next => return Ok(Attempt::GivenUp),
    };
    let Some(permit) = permit else {
        let message = "the provider has no gateway";
        return Ok(Attempt::Ended(Err(ModelError::new(ErrorClass::Connection, message))));
    };
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
        } else if let Some(prefix) = unread.take() {
            prefix.begun();
        }
        let Some(agent) = agent else { return };
        let text = match delta {
            Delta::Text(text) => live.push(text),
            Delta::Tool(_) => live.finish(),
            Delta::Taken(_) | Delta::Alive => String::new(),
        };
        if !text.is_empty() {
            services.watcher.arrived(agent, Delta::Text(&text));
        }
        match delta {
            Delta::Text(_) if text.is_empty() => services.watcher.arrived(agent, Delta::Alive),
            Delta::Text(_) => {}
            Delta::Tool(_) | Delta::Alive => services.watcher.arrived(agent, delta),
            Delta::Taken(_) => {}
        }
    };
    let mut result = tokio::select! {
        () = abandon.cancelled() => return Err(Cancelled),
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
    Ok(Attempt::Ended(result))
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
