//! What a person gives a run: the answer of a question, the limits of a budget, a pause, or a message.
//!
//! All of them travel as an answer does, over the control socket or left for the next process, under an id that says
//! which it is.

use super::scope_pauses::PauseChange;
use super::{messages, purse};
use crate::run_state::RunState;
use crate::turn::question::PersonsAnswer;

/// What a person gives a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// The answer of a question.
    Answer,
    /// The limits of a budget.
    Limits,
    /// A pause of a part of the run, or its end.
    Pause,
    /// A message to an agent.
    Message,
}

impl Errand {
    /// Returns what is given under this id.
    #[must_use]
    pub fn of(id: &str) -> Self {
        match id {
            id if purse::is_change(id) => Self::Limits,
            id if PauseChange::is_id(id) => Self::Pause,
            id if messages::is_said(id) => Self::Message,
            _ => Self::Answer,
        }
    }

    /// Returns true if, of two that are left for the next process under one id, the newer one counts.
    #[must_use]
    pub fn is_replaced(self) -> bool {
        matches!(self, Self::Limits | Self::Pause)
    }

    /// Returns true if what was left for the next process at this time is recorded, or if something newer is in its
    /// place, so that it must not be taken up again.
    #[must_use]
    pub fn is_done(answer: &PersonsAnswer, at_ms: i64, state: &RunState) -> bool {
        match Self::of(&answer.id) {
            Self::Answer => false,
            Self::Limits => purse::read_change(answer)
                .is_some_and(|(scope, _)| state.budgets().changed_ms(&scope) >= at_ms),
            Self::Pause => PauseChange::read(answer)
                .is_some_and(|change| state.scope_pauses().changed_ms(&change.scope) >= at_ms),
            Self::Message => state.messages().of_person(&answer.id).is_some(),
        }
    }
}
