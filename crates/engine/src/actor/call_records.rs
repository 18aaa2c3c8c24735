//! The records of one model call of an agent. Each request is announced before it leaves, and each one that
//! was announced is settled: by the reply, which the step records, by a failure, or by the cut that ended it.

use std::time::Duration;

use tokio::sync::oneshot;

use super::meter::spent;
use super::reserving;
use super::step::StepContext;
use crate::call_machine::{Broken, Failed, Then};
use crate::event::{Event, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::journal::JournalError;
use crate::message::{Usage, UsageSource};
use crate::model::{ModelError, Request};
use crate::run_machine::{Purpose, Reservation};
use crate::spec::ModelSpec;
use crate::spending::{Rest, Usd};
use crate::turn::{ModelFailed, ModelRequested};
use crate::turn_machine::Counted;

/// The reason of a cut, for people.
const CUT: &str = "its agent had to end, or its run to stop";

/// The reason of a cut after which the agent goes on, for people.
const CUT_FOR_MESSAGE: &str = "a person had something to say";

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
    /// What the provider has counted of the request to the agent's own model.
    pub(super) counted: Option<Counted>,
    /// True if the reply hands over what there is.
    pub(super) hand_over: bool,
    /// The most that the request that was announced last can cost.
    pub(super) most: Option<Rest>,
    /// What is recorded with the first announcement.
    pub(super) before: Vec<Event>,
    /// Gets a signal when that is durable.
    pub(super) durable: Option<oneshot::Sender<()>>,
    /// The records so far.
    pub(super) made: Vec<SharedRecord>,
}

impl CallRecords<'_> {
    /// Announces the request of this number to this model.
    pub(super) async fn announce(
        &mut self,
        number: u32,
        spec: &ModelSpec,
        request: &Request,
    ) -> Result<(), JournalError> {
        let most = self.most(spec, request);
        self.most = Some(most);
        let requested = ModelRequested {
            turn: self.turn,
            attempt: number,
            model: spec.name.clone(),
            stands_in_for: (spec.name != *self.own).then(|| self.own.clone()),
            messages: request.pieces.len(),
            bytes: request.pieces.iter().map(|piece| piece.bytes.len()).sum(),
            head_tokens: self.head_tokens,
            expected_tokens: self.expected_tokens,
            most_tokens: most.tokens,
            most_usd: most.cost.map(Usd::dollars),
        };
        let events = std::mem::take(&mut self.before).into_iter().chain([requested.into()]);
        self.made.extend(self.context.record(events).await?);
        if let Some(durable) = self.durable.take() {
            // The summary's announcement is durable, so its writing may begin.
            let _ = durable.send(());
        }
        Ok(())
    }

    /// Returns the most that a request to this model can cost.
    fn most(&self, spec: &ModelSpec, request: &Request) -> Rest {
        let counted = self.counted.filter(|_| spec.name == *self.own);
        let input = reserving::most_input(spec, request, counted);
        let output = request.max_output_tokens;
        let cost = spec.price.map(|price| Usd::at_most_dollars(price.most(input, output)));
        Rest { tokens: input.saturating_add(output), cost }
    }

    /// Returns the most that the request may have cost beyond what is known of it.
    fn rest(&self, spec: &ModelSpec, known: Option<&Usage>) -> Option<Rest> {
        let known = known.copied().unwrap_or_default();
        self.most?.beyond(&known, spec.price.map(|price| price.cost(&known)))
    }

    /// Asks for a reservation for a request, if spending is limited. Returns the most tokens that its reply may have,
    /// or `None` if the agent must end meanwhile.
    ///
    /// # Errors
    /// Returns the failure for which the agent must end, if a budget is used up.
    pub(super) async fn reserve(
        &self,
        spec: &ModelSpec,
        request: &Request,
    ) -> Result<Option<u64>, Failure> {
        if !reserving::is_needed(self.context) {
            return Ok(Some(request.max_output_tokens));
        }
        let counted = self.counted.filter(|_| spec.name == *self.own);
        let reservation = Reservation {
            purpose: if self.hand_over { Purpose::HandOver } else { Purpose::Turn },
            model: spec.name.clone(),
            input_tokens: reserving::most_input(spec, request, counted),
            max_output_tokens: reserving::output(request, self.hand_over),
            price: spec.price,
            requests: 1,
        };
        reserving::reserve(self.context, reservation).await
    }

    /// Records a failed attempt at this model. `next` is the model that is called instead.
    pub(super) async fn failed(
        &mut self,
        spec: &ModelSpec,
        failed: &Failed,
        next: Option<&Name>,
    ) -> Result<(), JournalError> {
        let Failed { attempt, error, usage_source, then, .. } = failed;
        let pause = match then {
            Then::Nothing => None,
            Then::Again(pause) => Some(*pause),
            Then::Other(_) => Some(Duration::ZERO),
        };
        let failed = ModelFailed {
            next_model: next.cloned(),
            spent: error.usage.as_deref().map(|usage| spent(spec, usage)),
            usage_source: *usage_source,
            unsettled: error
                .may_have_cost()
                .then(|| self.rest(spec, error.usage.as_deref()))
                .flatten(),
            ..with_error(self.turn, *attempt, error, pause)
        };
        self.record(failed).await
    }

    async fn record(&mut self, failed: ModelFailed) -> Result<(), JournalError> {
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
        let goes_on = !self.context.cancel.is_cancelled();
        let why = if goes_on { CUT_FOR_MESSAGE } else { CUT };
        let failure = Failure::new(FailureKind::Cancelled, why);
        let failed = ModelFailed {
            spent: cost.map(|(usage, _)| spent(spec, &usage)),
            usage_source: cost.map(|(_, source)| source).unwrap_or_default(),
            unsettled: cost.and_then(|(usage, _)| self.rest(spec, Some(&usage))),
            // Nobody waits for the next attempt, and the call has not failed for good.
            retry_in_ms: Some(0),
            cut: true,
            ..failure_of(self.turn, attempt, failure)
        };
        self.record(failed).await
    }
}

/// Returns the record of a reply that broke after a part of it, with the pause before the next call.
pub(super) fn broken(turn: u32, broken: &Broken<'_>, pause: Option<Duration>) -> ModelFailed {
    // The reply has the tokens.
    with_error(turn, broken.number, broken.error, pause)
}

/// Returns the record of an error without its tokens.
fn with_error(turn: u32, attempt: u32, error: &ModelError, pause: Option<Duration>) -> ModelFailed {
    let (context_tokens, window_tokens) = error.class.context();
    ModelFailed {
        retry_in_ms: pause.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)),
        context_tokens,
        window_tokens,
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
        unsettled: None,
        cut: false,
    }
}
