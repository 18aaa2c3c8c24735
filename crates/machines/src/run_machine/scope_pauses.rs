//! The pauses of parts of the run: a person lets the agents of a scope rest before their next call of a model, and lets
//! them go on.
//!
//! What is under way ends: a reply that is on its way, the tools of its turn, a command. A task of the scope that has not
//! started does not start. A pause outlives the process. Nothing that waits for its end ends the run: a person is there.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::Facts;
use super::decision::Decision;
use super::desk::Desk;
use crate::event::{Draft, Event, ScopePaused, ScopeUnpaused};
use crate::id::AgentId;
use crate::run_state::scope_pauses::{ScopePause, is_task_in};
use crate::spec::budget::Scope;
use crate::turn::question::{AnswerOutcome, PersonsAnswer};

/// The beginning of the id under which a person pauses a scope or lets it go on. No question has such an id: theirs are
/// hashes.
const ID: &str = "pause-";

/// The longest reason that is recorded, in characters.
pub const REASON_CHARS: usize = 500;

/// What a person wants of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseChange {
    /// The part of the run.
    pub scope: Scope,
    /// True to pause it, false to let it go on.
    pub paused: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PauseChange {
    /// Returns the id under which a scope is paused and let go on.
    #[must_use]
    pub fn id_of(scope: &Scope) -> String {
        let hash = blake3::hash(scope.to_string().as_bytes()).to_hex();
        format!("{ID}{}", &hash[..16])
    }

    /// Returns true if this is the id of such a change, and not that of a question.
    #[must_use]
    pub fn is_id(id: &str) -> bool {
        id.starts_with(ID)
    }

    /// Makes the answer that carries the change to the run.
    #[must_use]
    pub fn answer(&self, by: String) -> PersonsAnswer {
        let text = serde_json::to_string(self).unwrap_or_default();
        PersonsAnswer { id: Self::id_of(&self.scope), allowed: true, text: Some(text), by }
    }

    /// Reads such an answer; `None` if it is another one.
    #[must_use]
    pub fn read(answer: &PersonsAnswer) -> Option<Self> {
        let text = answer.text.as_deref().filter(|_| Self::is_id(&answer.id))?;
        let mut change: Self = serde_json::from_str(text).ok()?;
        if let Some((end, _)) =
            change.reason.as_ref().and_then(|text| text.char_indices().nth(REASON_CHARS))
        {
            change.reason.iter_mut().for_each(|reason| reason.truncate(end));
        }
        (answer.id == Self::id_of(&change.scope)).then_some(change)
    }
}

/// The changes of pauses that are on their way to the journal, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct ScopePauses {
    changing: VecDeque<Changing>,
}

/// A change on its way to the journal.
#[derive(Clone, Debug)]
struct Changing {
    /// Who wants to know what became of it.
    request: Option<u64>,
    scope: Scope,
    paused: bool,
}

impl Facts {
    /// Returns true if a person paused an agent, or a part of the run to which it belongs. What still works when the
    /// run was stopped cleans up: it does not rest.
    pub(super) fn is_agent_paused(&self, agent: &AgentId) -> bool {
        if self.stopping.is_stopped() {
            return false;
        }
        self.state.pause_of_agent(agent).is_some()
            || self.pauses_to_be().any(|scope| self.state.is_agent_in(scope, agent))
    }

    /// Returns true if a person paused a task, its main agent, or a part of the run to which it belongs.
    pub(super) fn is_task_paused(&self, place: usize) -> bool {
        if self.stopping.is_stopped() {
            return false;
        }
        let name = self.name(place);
        self.state.pause_of_task(name).is_some()
            || self.pauses_to_be().any(|scope| is_task_in(scope, name))
    }

    /// Returns true if a person paused the run as a whole.
    pub(super) fn is_run_paused(&self) -> bool {
        !self.stopping.is_stopped() && self.state.scope_pauses().get(&Scope::Run).is_some()
    }

    /// Returns the scopes whose pause is on its way to the journal: nothing begins in them any more.
    fn pauses_to_be(&self) -> impl Iterator<Item = &Scope> {
        self.scope_pauses.changing.iter().filter(|one| one.paused).map(|one| &one.scope)
    }

    /// Returns true if something is paused, or is about to be: whoever paused it lets it go on.
    pub(super) fn any_scope_paused(&self) -> bool {
        let is_open = |(scope, _): (&Scope, &ScopePause)| self.state.is_scope_open(scope);
        !self.scope_pauses.changing.is_empty() || self.state.scope_pauses().iter().any(is_open)
    }
}

impl Desk<'_, ScopePauses> {
    /// Pauses a scope or lets it go on, as a person wants. `request` is the one who wants to know what became of it.
    pub(super) fn set(&mut self, request: Option<u64>, change: PauseChange, by: String) {
        let PauseChange { scope, paused, reason } = change;
        // What is paused and is there no longer can be let go on.
        let is_known =
            self.is_scope_known(&scope) || self.state.scope_pauses().get(&scope).is_some();
        if let Some(outcome) = self.refusal_of_change(is_known) {
            return self.tell_giver(request, outcome);
        }
        self.own().changing.push_back(Changing { request, scope: scope.clone(), paused });
        let event: Event = match paused {
            true => ScopePaused { scope, reason, by }.into(),
            false => ScopeUnpaused { scope, by }.into(),
        };
        self.record(vec![Draft::run(event)]);
        self.post(Decision::ServeMoney());
        self.post(Decision::TouchAll());
    }

    /// Takes in that a scope is paused or goes on: its agents ask before their next calls, and its limits of time stand
    /// still.
    pub(super) fn changed(&mut self) {
        let request = self.own().changing.pop_front().and_then(|one| one.request);
        self.tell_giver(request, AnswerOutcome::Counted);
        self.post(Decision::ServeMoney());
        self.post(Decision::RestartLimits());
        self.post(Decision::TouchAll());
    }
}

#[cfg(test)]
mod tests;
