//! What a call is, what its machine wants done, and what the machine is told.

use std::time::Duration;

use super::error::ModelError;
use super::standing::{Lost, Models};
use crate::message::UsageSource;

/// What a call is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A turn of an agent.
    Turn,
    /// A summary of its conversation.
    Summary,
}

/// A call that is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What it is for.
    pub purpose: Purpose,
    /// The tokens that the request is expected to hold.
    pub expected_tokens: u64,
    /// Number of messages in the request: a prompt alone cannot be made smaller.
    pub messages: usize,
    /// True if the request before was refused as too long, and this one is smaller.
    pub made_smaller: bool,
    /// Number of requests that the turn has announced before.
    pub announced: u32,
    /// The request, as it was made for the agent's own model.
    pub form: Form,
}

/// What of a request changes from attempt to attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The place of the model that it is for.
    pub place: usize,
    /// The most tokens that the reply may have.
    pub max_output_tokens: u64,
    /// True if it has a schema for the answer.
    pub has_schema: bool,
    /// True if it asks the provider to edit the context.
    pub has_edits: bool,
}

impl Form {
    /// Returns the form of the same request for the model at this place.
    pub(super) fn at(self, place: usize, models: &impl Models) -> Self {
        if place == self.place {
            return self;
        }
        Self {
            place,
            max_output_tokens: self.max_output_tokens.min(models.rules(place).max_output_tokens),
            has_schema: self.has_schema && models.with(place, |other| other.holds_to_schema()),
            has_edits: false,
        }
    }
}

/// What an actor does next for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Record that this request of the turn is made. Then [`Input::Recorded`].
    Announce {
        /// Number of the request in its turn, from 1.
        number: u32,
    },
    /// Let another call with the same front go ahead, so that this one reads it from the provider's cache. Then
    /// [`Input::Woke`].
    LetAhead,
    /// Ask the gateway for a permit to start after this pause. Then [`Input::Admitted`] or
    /// [`Input::OutOfPatience`].
    Permit {
        /// The time before which the call does not start.
        pause: Duration,
        /// How long it waits for the gateway after that.
        patience: Patience,
    },
    /// Send the request in its [`Form`]. Then [`Input::Replied`] or [`Input::Failed`].
    Send,
    /// Record a failed attempt. Then [`Input::Recorded`].
    Failed(Box<Failed>),
    /// Record that the request that was announced last was cut. Then [`Input::Recorded`].
    Cut {
        /// Number of the attempt that was cut, from 1.
        attempt: u32,
    },
    /// Wait. Then [`Input::Woke`].
    Wait(Duration),
    /// The call has ended.
    End(End),
}

/// How long a call waits for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// However long it takes.
    Endless,
    /// Until the model is given up once more than so often.
    UntilFall(u64),
    /// For this time.
    For(Duration),
}

/// A failed attempt, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The place of the model that failed.
    pub place: usize,
    /// Number of the attempt at that model, from 1.
    pub attempt: u32,
    /// What the model answered, or did not.
    pub error: ModelError,
    /// The source of the tokens in the error.
    pub usage_source: UsageSource,
    /// What follows.
    pub then: Then,
    /// True if the model is given up for now.
    pub gave_up: bool,
    /// What the provider turned out not to do.
    pub lost: Option<Lost>,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The call fails.
    Nothing,
    /// Another attempt, after this pause.
    Again(Duration),
    /// A request to the model at this place, at once.
    Other(usize),
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// There is a reply.
    Replied,
    /// The last attempt failed.
    Failed(ModelError),
    /// The caller was cancelled.
    Cancelled,
}

/// What came of a step.
#[derive(Clone, Debug)]
pub enum Input {
    /// What was to be recorded is durable.
    Recorded,
    /// An announcement is durable, and the permit for it was given back: it waited for its reservation.
    RecordedLate,
    /// The wait is over.
    Woke,
    /// The gateway gave a permit.
    Admitted,
    /// The [`Patience`] with the gateway is at its end.
    OutOfPatience,
    /// The call has a reply.
    Replied,
    /// The attempt failed. `chance` is a number from 0 to 1.
    Failed {
        /// What the model answered, or did not.
        error: ModelError,
        /// The random part of the pause that follows.
        chance: f64,
    },
    /// The caller was cancelled, whatever was to be done.
    Cancelled,
}
