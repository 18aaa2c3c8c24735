//! The records of one model call of an agent. Each request is announced before it leaves, and each one that
//! was announced is settled: by the reply, which the step records, by a failure, or by the cut that ended it.

use std::time::Duration;

use tokio::sync::oneshot;

use super::meter::spent;
use super::model_service::ModelService;
use super::step::StepContext;
use crate::event::{Event, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::journal::JournalError;
use crate::message::{Usage, UsageSource};
use crate::model::{ModelError, Request};
use crate::spec::ModelSpec;
use crate::turn::{ModelFailed, ModelRequested};

/// The reason of a cut, for people.
const CUT: &str = "its agent had to end, or its run to stop";

/// The records of a call.
#[derive(Debug)]
pub(super) struct CallRecords<'a> {
    /// The step that makes the call.
    pub(super) context: &'a StepContext,
    /// The turn that the call belongs to.
    pub(super) turn: u32,
    /// The agent's own model.
    pub(super) own: &'a Name,
    /// Estimated tokens of the system prompt and the tools.
    pub(super) head_tokens: u64,
    /// The tokens that the request is expected to hold.
    pub(super) expected_tokens: u64,
    /// What is recorded with the first announcement.
    pub(super) before: Vec<Event>,
    /// Told when that is durable.
    pub(super) durable: Option<oneshot::Sender<()>>,
    /// Number of the request that was announced last.
    pub(super) attempt: u32,
    /// True if that one may have been sent.
    pub(super) was_sent: bool,
    /// The records so far.
    pub(super) made: Vec<SharedRecord>,
}

impl CallRecords<'_> {
    /// Announces a request to this model.
    pub(super) async fn announce(
        &mut self,
        spec: &ModelSpec,
        request: &Request,
    ) -> Result<(), JournalError> {
        // A request that was not sent, because another model is asked instead, leaves its number.
        self.attempt += u32::from(std::mem::replace(&mut self.was_sent, false));
        let requested = ModelRequested {
            turn: self.turn,
            attempt: self.attempt,
            model: spec.name.clone(),
            stands_in_for: (spec.name != *self.own).then(|| self.own.clone()),
            messages: request.pieces.len(),
            bytes: request.pieces.iter().map(|piece| piece.bytes.len()).sum(),
            head_tokens: self.head_tokens,
            expected_tokens: self.expected_tokens,
            most_usd: spec
                .price
                .map(|price| price.most(self.expected_tokens, request.max_output_tokens)),
        };
        let events = std::mem::take(&mut self.before).into_iter().chain([requested.into()]);
        self.made.extend(self.context.record(events).await?);
        if let Some(durable) = self.durable.take() {
            // The summary's announcement is durable, so its writing may begin.
            let _ = durable.send(());
        }
        Ok(())
    }

    /// Records a failure.
    pub(super) async fn failed(&mut self, failed: ModelFailed) -> Result<(), JournalError> {
        self.made.extend(self.context.record([failed]).await?);
        Ok(())
    }

    /// Records that the request under way was cut. `cost` is what is known of it; `None` if it was not sent.
    pub(super) async fn cut(
        &mut self,
        spec: &ModelSpec,
        attempt: u32,
        cost: Option<(Usage, UsageSource)>,
    ) -> Result<(), JournalError> {
        let failure = Failure::new(FailureKind::Cancelled, CUT);
        let failed = ModelFailed {
            spent: cost.map(|(usage, _)| spent(spec, &usage)),
            usage_source: cost.map(|(_, source)| source).unwrap_or_default(),
            // Nobody waits for the next attempt, and the call has not failed for good.
            retry_in_ms: Some(0),
            cut: true,
            ..failure_of(self.turn, attempt, failure)
        };
        self.failed(failed).await
    }
}

/// What follows after a failed attempt, for its record.
#[derive(Clone, Copy)]
pub(super) enum Then<'a> {
    Nothing,
    Again(Duration),
    /// Another model is called at once.
    Other(&'a Name),
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
    let then = pause.map_or(Then::Nothing, Then::Again);
    // The reply has the tokens.
    let error = ModelError { usage: None, ..error.clone() };
    failed(turn, &service.spec, attempt, &error, UsageSource::Reported, then)
}

/// Returns the record of an attempt that failed.
pub(super) fn failed(
    turn: u32,
    spec: &ModelSpec,
    attempt: u32,
    error: &ModelError,
    usage_source: UsageSource,
    then: Then<'_>,
) -> ModelFailed {
    let (pause, next_model) = match then {
        Then::Nothing => (None, None),
        Then::Again(pause) => (Some(pause), None),
        Then::Other(name) => (Some(Duration::ZERO), Some(name.clone())),
    };
    let (context_tokens, window_tokens) = error.class.context();
    ModelFailed {
        retry_in_ms: pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        next_model,
        context_tokens,
        window_tokens,
        spent: error.usage.as_deref().map(|usage| spent(spec, usage)),
        usage_source,
        ..failure_of(turn, attempt, Failure::new(error.class.kind(), error.message.as_str()))
    }
}

fn failure_of(turn: u32, attempt: u32, failure: Failure) -> ModelFailed {
    ModelFailed {
        turn,
        attempt,
        failure,
        retry_in_ms: None,
        next_model: None,
        context_tokens: None,
        window_tokens: None,
        spent: None,
        usage_source: UsageSource::Reported,
        cut: false,
    }
}
