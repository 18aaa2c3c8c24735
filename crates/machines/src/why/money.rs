//! Waits for a budget that is used up, and ends because of one. Decides the relation, never the words.
//!
//! Only what is recorded counts. A call that does not fit because of reservations of other calls waits as well, but no
//! record tells: reservations belong to the process, and its agent is about to act.

use std::cmp::Reverse;

use ahash::HashMap;

use super::{Link, Relation, Subject, Why, link};
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::run_state::budgets::Exceeded;
use crate::run_state::{AgentStatus, Doing, Moment};
use crate::spec::budget::{Amount, OnExceed, Scope};

/// The most agents that are named as those who spent most.
const NAMED: usize = 3;

/// The agents that spent most of each budget that is used up, the dearest first.
pub(super) type Spenders = HashMap<Scope, Vec<AgentId>>;

impl Why<'_> {
    /// Returns the budgets that an agent waits for, those first that were used up first. A scope that pauses lets no
    /// agent make a call, however small.
    pub(super) fn budgets(&self, id: &AgentId, agent: &AgentStatus) -> Vec<Link> {
        let mut holding: Vec<_> = self.holding(id, agent).collect();
        holding.sort_by_key(|exceeded| exceeded.seq);
        let of = |exceeded: &Exceeded| {
            let Exceeded { event, seq, ts_ms } = exceeded;
            let relation = Relation::WaitsForBudget {
                scope: event.scope.clone(),
                measure: event.measure,
                message: event.words(),
                most_by: self.spenders().get(&event.scope).cloned().unwrap_or_default(),
            };
            let since = agent.since.max(Moment { seq: *seq, ms: *ts_ms });
            link(Subject::Agent(id.clone()), relation, since)
        };
        holding.into_iter().map(of).collect()
    }

    /// Returns true if an agent waits for a budget, or for the end of a pause.
    pub(super) fn rests(&self, id: &AgentId, agent: &AgentStatus) -> bool {
        let is_paused = || self.is_about_to_call(agent) && self.state.pause_of_agent(id).is_some();
        self.holding(id, agent).next().is_some() || is_paused()
    }

    fn holding(&self, id: &AgentId, agent: &AgentStatus) -> impl Iterator<Item = &Exceeded> {
        let all = self.state.budgets().all_exceeded();
        all.filter(move |exceeded| {
            exceeded.event.on_exceed == OnExceed::Pause
                && self.is_about_to_call(agent)
                && self.state.is_agent_in(&exceeded.event.scope, id)
        })
    }

    /// Returns true if what an agent does next is a call of a model: before each, and before each attempt of one, it
    /// asks for money.
    pub(super) fn is_about_to_call(&self, agent: &AgentStatus) -> bool {
        // Commands cost no money.
        agent.definition.is_some()
            && agent.outcome.is_none()
            && match &agent.doing {
                Doing::Starting => !self.has_open_children(agent),
                Doing::Person => agent.asked.is_empty(),
                Doing::Nothing => true,
                Doing::Retrying(pause) => pause.until_ms <= self.now_ms,
                Doing::Model | Doing::Compaction | Doing::Tools(_) | Doing::Children => false,
            }
    }

    /// Returns the budget that ended an agent with this failure, if it is one.
    pub(super) fn budget_of(&self, id: Option<&AgentId>, failure: &Failure) -> Option<Scope> {
        let id = id.filter(|_| failure.kind == FailureKind::Budget)?;
        let all = self.state.budgets().all_exceeded();
        let ended = all.filter(|exceeded| {
            exceeded.event.on_exceed == OnExceed::Stop
                && self.state.is_agent_in(&exceeded.event.scope, id)
        });
        // The words of the failure name the scope, unless a last reply did not fit either.
        let binding =
            ended.min_by_key(|exceeded| (exceeded.event.words() != failure.message, exceeded.seq));
        binding.map(|exceeded| exceeded.event.scope.clone())
    }

    fn spenders(&self) -> &Spenders {
        self.spenders.get_or_init(|| {
            let of = |exceeded: &Exceeded| {
                let scope = &exceeded.event.scope;
                let agents = self.state.agents().iter();
                let spent = agents.filter(|(_, agent)| agent.own.requests > 0);
                let mut spent: Vec<_> =
                    spent.filter(|(id, _)| self.state.is_agent_in(scope, id)).collect();
                spent.sort_by_key(|(_, agent)| {
                    let settled = Amount::settled(&agent.own);
                    Reverse((settled.cost, settled.tokens))
                });
                let names = spent.into_iter().take(NAMED).map(|(id, _)| id.clone());
                (scope.clone(), names.collect())
            };
            self.state.budgets().all_exceeded().map(of).collect()
        })
    }
}
