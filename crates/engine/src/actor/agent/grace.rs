//! The end of an agent that is at work: which step is waited for, for how long, and what becomes of a call that
//! takes longer.

use std::time::Duration;

use ractor::ActorRef;

use super::{Agent, Ending, State};
use crate::actor::mail::AgentMsg;
use crate::run_machine::Haste;
use crate::tool::process;

/// The time after the grace period in which a step records its results.
const FOR_RECORDS: Duration = Duration::from_secs(1);

impl Agent {
    /// Stops without an outcome, once a reply that is on its way has come: it is paid for.
    pub(super) fn interrupt(&self, myself: &ActorRef<AgentMsg>, state: &mut State, haste: Haste) {
        let waits = state.busy && state.is_calling && state.ending.is_none();
        if !waits {
            return self.end(myself, state, Ending::Interrupted);
        }
        state.ending = Some(Ending::Interrupted);
        state.cancel.cancel();
        match haste {
            Haste::WithinGrace => {
                Self::give(myself, state.step, self.services.limits.grace_period);
            }
            // The supervisor has the patience that the reply needs.
            Haste::AfterReply => {}
        }
    }

    /// Ends the agent in this way once the step at work has ended.
    pub(super) fn end(&self, myself: &ActorRef<AgentMsg>, state: &mut State, ending: Ending) {
        if state.ending.is_some() {
            return;
        }
        state.ending = Some(ending);
        state.cancel.cancel();
        state.abandon.cancel();
        if !state.busy {
            return self.advance(myself, state);
        }
        Self::give(myself, state.step, self.services.limits.grace_period + FOR_RECORDS);
    }

    fn give(myself: &ActorRef<AgentMsg>, step: u64, grace: Duration) {
        myself.send_after(grace, move || AgentMsg::GraceOver { step });
    }

    /// Gives up the step at work. A call of a model is cut first, and the step records what it cost.
    pub(super) fn grace_over(&self, myself: &ActorRef<AgentMsg>, state: &mut State) {
        if state.is_calling && !state.abandon.is_cancelled() {
            state.abandon.cancel();
            return Self::give(myself, state.step, FOR_RECORDS);
        }
        // The number of the step grows, so that a result that the aborted step has already mailed is ignored. The
        // end is recorded only when nothing of the step is at work: its futures are dropped, and with them the
        // process groups of its calls. A step that cannot be dropped keeps the agent, until the supervisor kills
        // it.
        state.gave_up = true;
        let given_up = std::mem::take(&mut state.steps).give_up();
        self.start(myself, state, async move {
            given_up.await;
            process::killed_groups_are_gone().await;
            Ok(Vec::new())
        });
    }
}
