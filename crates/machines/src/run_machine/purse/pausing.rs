//! The agents that rest because a budget is used up, until a person raises it.

use serde::{Deserialize, Serialize};

use super::Purse;
use crate::id::AgentId;
use crate::run_machine::Facts;
use crate::run_machine::decision::Decision;
use crate::run_machine::desk::Desk;
use crate::run_state::budgets::Exceeded;
use crate::spec::budget::{Caps, OnExceed, Scope};
use crate::turn::question::PersonsAnswer;

/// The beginning of the id under which a person changes a budget. No question has such an id: theirs are hashes.
const ID: &str = "budget-";

/// The limits that a person sets for a scope.
#[derive(Serialize, Deserialize)]
struct Change {
    scope: Scope,
    caps: Caps,
}

impl Facts {
    /// Returns true if no record of a budget is on its way to the journal.
    pub(in crate::run_machine) fn purse_is_quiet(&self) -> bool {
        self.purse.ending.is_empty() && self.purse.changing.is_empty()
    }

    /// Returns true if calls wait for a person, or are under way with a reservation.
    pub(in crate::run_machine) fn any_money_is_awaited(&self) -> bool {
        !self.purse.resting.is_empty() || self.purse.open > 0
    }

    /// Returns true if calls wait for a person to raise a limit.
    pub(in crate::run_machine) fn any_rests_for_money(&self) -> bool {
        self.purse.resting.iter().any(|waiting| !self.is_agent_paused(&waiting.agent))
    }

    /// Returns true if a call of an agent waits for money, or for the end of a pause.
    pub(in crate::run_machine) fn waits_for_money(&self, agent: &AgentId) -> bool {
        let mut all = self.purse.resting.iter().chain(&self.purse.line);
        all.any(|waiting| waiting.agent == *agent)
    }

    /// Returns the first budget that a person must raise, in words.
    pub(in crate::run_machine) fn first_pause_for_money(&self) -> Option<&Exceeded> {
        let pauses = |exceeded: &&Exceeded| exceeded.event.on_exceed == OnExceed::Pause;
        self.state.budgets().all_exceeded().find(pauses)
    }
}

impl Desk<'_, Purse> {
    /// Puts the calls that rest in line again, before all others: they asked first.
    pub(super) fn wake_resting(&mut self) {
        let resting = std::mem::take(&mut self.own().resting);
        for waiting in resting.into_iter().rev() {
            self.own().line.push_front(waiting);
        }
    }

    /// Returns true if an agent gave up its slot, and must ask for it before it goes on.
    pub(super) fn note_without_slot(&mut self, agent: &AgentId) -> bool {
        let is_without = !self.scarce.holds(agent);
        if is_without {
            self.post(Decision::NoteLoose(agent.clone()));
        }
        is_without
    }
}

/// Returns the id under which the limits of a scope are changed, and under which a pause for it is listed.
#[must_use]
pub fn id_of(scope: &Scope) -> String {
    let hash = blake3::hash(scope.to_string().as_bytes()).to_hex();
    format!("{ID}{}", &hash[..16])
}

/// Makes the answer by which a person sets the limits of a scope.
#[must_use]
pub fn change(scope: &Scope, caps: &Caps, by: String) -> PersonsAnswer {
    let change = Change { scope: scope.clone(), caps: *caps };
    let text = serde_json::to_string(&change).unwrap_or_default();
    PersonsAnswer { id: id_of(scope), allowed: true, text: Some(text), by }
}

/// Returns true if this is the id of a change, and not that of a question.
#[must_use]
pub fn is_change(id: &str) -> bool {
    id.starts_with(ID)
}

/// Reads such an answer; `None` if it is an answer to a question.
#[must_use]
pub fn read_change(answer: &PersonsAnswer) -> Option<(Scope, Caps)> {
    let text = answer.text.as_deref().filter(|_| is_change(&answer.id))?;
    let Change { scope, caps } = serde_json::from_str(text).ok()?;
    (!caps.is_empty() && answer.id == id_of(&scope)).then_some((scope, caps))
}
