//! The end of an agent that has answered. One whose children may work in the background asks its run first.

use ractor::ActorRef;

use super::{Agent, State};
use crate::actor::children;
use crate::actor::mail::AgentMsg;
use crate::turn::Outcome;

impl Agent {
    /// Ends the agent with this outcome, once it may.
    pub(super) fn conclude(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        outcome: Outcome,
    ) {
        let may_have_children =
            state.talk.as_ref().is_some_and(|talk| talk.briefing.spec.background);
        let has_answered = matches!(outcome, Outcome::Completed { .. });
        // It asks once for each answer: what it was told of may open another turn.
        let answer = Some(state.machine.turn());
        if !may_have_children || !has_answered || state.asked_to_leave == answer {
            return self.finish(myself, state, outcome);
        }
        state.asked_to_leave = answer;
        let context = self.context(state);
        self.start(myself, state, async move {
            children::leave(&context).await;
            Ok(Vec::new())
        });
    }
}
