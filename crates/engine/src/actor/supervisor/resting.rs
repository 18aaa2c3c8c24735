//! The agents that wait for others without an actor. What is left of each stands here, until mail for it comes.
//!
//! For the run machine they are agents like any other: whatever it has to tell them, they get, by an actor that
//! is started for it. Only what needs no actor is done without one.

use ractor::ActorRef;

use super::{State, Supervisor};
use crate::actor::agent::Folded;
use crate::actor::mail::{AgentMsg, SupervisorMsg};
use crate::id::AgentId;

/// An agent that rests, or is about to.
#[derive(Debug)]
pub(super) enum Resting {
    /// Its actor was told to rest, and has the last word. This mail came meanwhile: at most an answer for each
    /// of its calls, and the wish that it ends.
    Going(Vec<AgentMsg>),
    /// It has no actor.
    Gone(Box<Folded>),
}

/// An agent that rests no longer: what is left of it, and the mail for which it gets up.
pub(super) struct Woken {
    agent: AgentId,
    folded: Box<Folded>,
    mail: Option<AgentMsg>,
}

impl Supervisor {
    /// Tells an agent to rest, as its step wants.
    pub(super) fn wants_rest(state: &mut State, agent: AgentId) {
        if let Some(actor) = state.agents.get(&agent)
            && !state.resting.contains_key(&agent)
            && actor.send_message(AgentMsg::Rest).is_ok()
        {
            state.resting.insert(agent, Resting::Going(Vec::new()));
        }
    }

    /// Handles that an agent that was told to rest does not.
    pub(super) fn stays_up(state: &mut State, agent: &AgentId) {
        if let Some(Resting::Going(mail)) = state.resting.remove(agent) {
            mail.into_iter().for_each(|message| drop(Self::mail(state, agent, message)));
        }
    }

    /// Handles the end of the actor of an agent that rests now.
    pub(super) async fn rests(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        agent: AgentId,
        folded: Box<Folded>,
    ) {
        let mail = match state.resting.insert(agent.clone(), Resting::Gone(folded)) {
            Some(Resting::Going(mail)) => mail,
            Some(Resting::Gone(_)) | None => Vec::new(),
        };
        for message in mail {
            if let Some(woken) = Self::mail(state, &agent, message) {
                self.wake(myself, state, woken).await;
            }
        }
    }

    /// Mails an agent. Returns the agent if an actor must be started for the mail.
    #[must_use]
    pub(super) fn mail(state: &mut State, agent: &AgentId, message: AgentMsg) -> Option<Woken> {
        match state.resting.get_mut(agent) {
            None => {
                if let Some(actor) = state.agents.get(agent) {
                    // If the actor has ended, its supervision event reports that.
                    let _ = actor.send_message(message);
                }
                return None;
            }
            Some(Resting::Going(mail)) => {
                mail.push(message);
                return None;
            }
            Some(Resting::Gone(_)) => {}
        }
        match message {
            AgentMsg::Interrupt(_) => {
                Self::drop_resting(state, agent);
                None
            }
            AgentMsg::Compact { focus } => {
                if let Some(Resting::Gone(folded)) = state.resting.get_mut(agent) {
                    folded.compact(focus);
                }
                None
            }
            AgentMsg::Message(message) => {
                if let Some(Resting::Gone(folded)) = state.resting.get_mut(agent) {
                    folded.receive(&message);
                }
                None
            }
            message => match state.resting.remove(agent) {
                Some(Resting::Gone(mut folded)) => {
                    let mail = match message {
                        // By mail it would come after the first step had begun.
                        AgentMsg::End(outcome) => {
                            folded.end(outcome);
                            None
                        }
                        message => Some(message),
                    };
                    Some(Woken { agent: agent.clone(), folded, mail })
                }
                Some(Resting::Going(_)) | None => None,
            },
        }
    }

    /// Starts an actor for an agent that rested, and gives it its mail.
    pub(super) async fn wake(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        Woken { agent, folded, mail }: Woken,
    ) {
        self.spawn(myself, state, agent.clone(), folded).await;
        if let Some(message) = mail {
            drop(Self::mail(state, &agent, message));
        }
    }

    /// Forgets what is left of an agent that rests, as if its actor had been interrupted.
    pub(super) fn drop_resting(state: &mut State, agent: &AgentId) {
        if let Some(Resting::Gone(_)) = state.resting.get(agent) {
            state.resting.remove(agent);
            state.rights.remove(agent);
            let now = state.now();
            state.machine.agent_gone(now, agent, None);
        }
    }
}
