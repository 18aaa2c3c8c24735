//! An agent that gives up its actor because all that it waits for comes from others.
//!
//! The supervisor keeps what is left of it, and starts an actor from that when mail comes. The mail that tells
//! the agent to rest is the last that its actor gets: what is for the agent from then on, the supervisor keeps.
//! So nothing is lost in between, and an answer that came before keeps the agent up.
//!
//! Three kinds of agents stay up: one whose question is on the screen of this process, one with a call that is made
//! again, and one with a summary that is written ahead, also once it is written: it belongs to the actor.

use ractor::ActorRef;
use ractor::actor::messages::BoxedState;

use super::{Agent, Folded, State};
use crate::actor::mail::{AgentMsg, SupervisorMsg};
use crate::context::CompactionTrigger;
use crate::messages::MessageSent;
use crate::turn::Outcome;

impl Agent {
    /// Lets the step end whose calls all wait for others, if they still do.
    pub(super) fn rest(&self, state: &mut State) {
        let is_idle = state.ending.is_none() && state.ahead.is_none();
        let unanswered = state.answers.requests.open();
        state.rests = is_idle && state.answers.waits.grant(unanswered);
        if !state.rests {
            self.services.tell_supervisor(SupervisorMsg::StaysUp(self.id.clone()));
        }
    }

    /// Ends the actor of an agent that rests.
    pub(super) fn lie_down(&self, myself: &ActorRef<AgentMsg>) {
        self.services.addresses.agents.remove(&self.id);
        myself.stop(None);
    }
}

impl Folded {
    /// Returns what an actor left that ended so that its agent can rest; `None` if it ended otherwise.
    pub(in crate::actor) fn of_resting(state: Option<BoxedState>) -> Option<Box<Self>> {
        let state = state?
            .take::<Box<State>>()
            .ok()
            .filter(|state| state.rests && state.ending.is_none())?;
        let waited = state.answers.waits.take();
        let State { machine, past, talk, requested_ms, looked_over, .. } = *state;
        // No call of it had begun.
        let (lost, ending) = (Vec::new(), None);
        Some(Box::new(Self {
            machine,
            talk,
            past,
            requested_ms,
            lost,
            waited,
            looked_over,
            ending,
        }))
    }

    /// Notes that the agent is to end, before it does anything else.
    pub(in crate::actor) fn end(&mut self, outcome: Outcome) {
        self.ending.get_or_insert(outcome);
    }

    /// Notes that the agent is to compact its context at its next turn boundary.
    pub(in crate::actor) fn compact(&mut self, focus: Option<String>) {
        self.machine.ask_to_compact(CompactionTrigger::Manual, focus);
    }

    /// Takes in a message for the agent, which it reads at its next turn boundary.
    pub(in crate::actor) fn receive(&mut self, message: &MessageSent) {
        self.machine.receive(message);
    }
}
