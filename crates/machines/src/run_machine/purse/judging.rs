//! Decides about one call: whether it fits the budgets of all scopes that it belongs to.

use std::time::Duration;

use ahash::HashSet;

use super::books::{Book, Waiting};
use crate::event::BudgetExceeded;
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::run_machine::Facts;
use crate::run_machine::request::Purpose;
use crate::run_state::AgentStatus;
use crate::spec::budget::{Amount, Budget, Measure, OnExceed, Scope};
use crate::spending::Spending;

/// The least output, in tokens, to which a reply is shortened: an answer of some 700 words.
pub(super) const LEAST_OUTPUT_TOKENS: u64 = 1_024;

/// What is decided about a call.
pub(super) enum Verdict {
    /// It may be made, with so much output.
    Grant(u64),
    /// It waits until others have ended.
    Wait,
    /// It waits for a person to raise a limit.
    Rest,
    /// It waits for the end of a pause.
    Pause,
    /// Its agent ends.
    End(Failure),
    /// The budget of a scope is used up, and this is to be recorded.
    Exceed(Box<BudgetExceeded>),
}

impl Facts {
    /// Returns the budget of a scope, with what a person changed, if it limits anything.
    pub(super) fn budget(&self, scope: &Scope) -> Option<Budget> {
        let written = match scope {
            Scope::Run => self.settings.budget.clone(),
            Scope::Task(name) => {
                let place = self.settings.plan.place(name)?;
                self.spec(place).budget.clone()
            }
            Scope::Agent(id) => self.budget_of_agent(id),
        };
        let changed = self.state.budgets().changed(scope);
        let mut budget = match written {
            None if changed.is_empty() => return None,
            written => written.unwrap_or_default(),
        };
        budget.caps = budget.caps.changed_to(changed);
        (!budget.caps.is_empty()).then_some(budget)
    }

    /// Returns the budget of one agent: that of its definition, and what its parent gave it.
    fn budget_of_agent(&self, id: &AgentId) -> Option<Budget> {
        let agent = self.state.agents().get(id)?;
        let definition = agent.definition.as_ref().and_then(|name| self.settings.agents.get(name));
        let defined = definition.and_then(|spec| spec.budget.clone());
        match (defined, agent.wanted.as_ref().and_then(|wanted| wanted.budget)) {
            (defined, None) => defined,
            // Its parent waits for an answer, and can give it more.
            (None, Some(caps)) => {
                Some(Budget { caps, on_exceed: OnExceed::Stop, ..Budget::default() })
            }
            (Some(budget), Some(caps)) => {
                Some(Budget { caps: budget.caps.narrowed_to(caps), ..budget })
            }
        }
    }

    /// Returns the scopes with a budget that an agent belongs to, from the inside out.
    pub(super) fn scopes_of(&self, agent: &AgentId) -> Vec<Scope> {
        let agents = self.state.agents();
        let mut scopes = Vec::new();
        let mut task = agents.get(agent).map(|status| status.task.clone());
        let mut next = Some(agent);
        while let Some((id, status)) = next.and_then(|id| Some((id, agents.get(id)?))) {
            scopes.push(Scope::Agent(id.clone()));
            next = status.parent.as_ref();
        }
        while let Some(name) = task {
            task = self.task_around(&name);
            scopes.push(Scope::Task(name));
        }
        scopes.push(Scope::Run);
        scopes.retain(|scope| self.budget(scope).is_some());
        scopes
    }

    /// Returns the task of which this one is a part: the fan-out, or the task that stands for the sub-graph.
    fn task_around(&self, name: &Name) -> Option<Name> {
        let plan = &self.settings.plan;
        if let Some(member) = plan.place(name).and_then(|place| plan.member(place)) {
            return Some(self.name(member.of).clone());
        }
        let (around, _) = name.as_str().rsplit_once('/')?;
        let around = Name::of_record(around).ok()?;
        plan.place(&around).map(|_| around)
    }

    /// Returns the time that a scope has used.
    fn time_of(&self, scope: &Scope) -> Duration {
        let now = self.state.reading();
        match scope {
            Scope::Run => self.open_time(),
            Scope::Task(name) => {
                self.state.task(name).map_or(Duration::ZERO, |task| task.whole.taken(now))
            }
            Scope::Agent(id) => {
                let Some(agent) = self.state.agents().get(id) else { return Duration::ZERO };
                now.since(agent.began).saturating_sub(agent.paused.taken(now))
            }
        }
    }

    /// Returns true if agents ask before each call: the configuration or a person limits anything, or paused
    /// something.
    pub(super) fn limits_spending(&self) -> bool {
        let in_plan = self.settings.plan.tasks().iter().any(|task| task.budget.is_some());
        let is_given = |agent: &AgentStatus| {
            agent.wanted.as_ref().is_some_and(|wanted| wanted.budget.is_some())
        };
        self.settings.budget.is_some()
            || in_plan
            || self.settings.agents.values().any(|agent| agent.budget.is_some())
            || !self.state.budgets().is_unchanged()
            || self.any_scope_paused()
            || self.state.agents().values().any(is_given)
    }

    /// Returns what is held back for the last reply of an agent.
    pub(super) fn held_for(&self, agent: &AgentId) -> Amount {
        self.purse.accounts.get(agent).map(|account| account.held).unwrap_or_default()
    }

    /// Returns what an agent's own calls have taken, if anything is limited.
    pub(in crate::run_machine) fn taken_by(&self, agent: Option<&AgentId>) -> Option<Spending> {
        let agent = agent.filter(|_| self.purse.is_used)?;
        Some(self.state.agents().get(agent)?.own)
    }

    /// Decides about a call that an agent is about to make. `blocked` are the scopes for which an earlier one waits.
    pub(super) fn judge(&self, waiting: &Waiting, blocked: &HashSet<Scope>) -> Verdict {
        let Waiting { agent, wish, .. } = waiting;
        let scopes = self.scopes_of(agent);
        let is_last = wish.purpose == Purpose::HandOver;
        if self.is_agent_paused(agent) {
            return Verdict::Pause;
        }
        let mut binding = Vec::new();
        for scope in &scopes {
            let Some(budget) = self.budget(scope) else { continue };
            let exceeded = self.state.budgets().exceeded(scope);
            match (budget.on_exceed, exceeded) {
                (OnExceed::Warn, Some(_)) => continue,
                (OnExceed::Stop, Some(exceeded)) if !is_last => {
                    let failure = Failure::new(FailureKind::Budget, exceeded.event.words());
                    return Verdict::End(failure);
                }
                (OnExceed::Pause, Some(_)) => return Verdict::Rest,
                (OnExceed::Stop, Some(_)) if !budget.hand_over => {
                    return Verdict::End(Failure::new(FailureKind::Budget, NO_HAND_OVER));
                }
                (OnExceed::Stop, Some(_)) | (_, None) => {}
            }
            if budget.caps.is_over(self.time_of(scope)) && !is_last {
                return self.exceed(scope, &budget, Measure::Time, Amount::default());
            }
            binding.push((scope, budget));
        }
        self.fit(waiting, &binding, blocked)
    }

    /// Decides about a call in scopes that are all open.
    fn fit(
        &self,
        waiting: &Waiting,
        binding: &[(&Scope, Budget)],
        blocked: &HashSet<Scope>,
    ) -> Verdict {
        let Waiting { agent, wish, .. } = waiting;
        let holds_back = wish.purpose != Purpose::HandOver
            && binding.iter().any(|(_, budget)| budget.holds_back());
        let factor = self.state.budgets().factor(&wish.model);
        let needs = |output| wish.takes(output, factor, holds_back);
        let held = self.held_for(agent);
        let passed = |(scope, budget): &(&Scope, Budget), output| {
            let book = self.purse.books.get(scope).copied().unwrap_or_default();
            // What is held back for this agent is for it.
            budget.caps.passed_by(book.taken().without(held) + needs(output))
        };
        // Where calls are under way or wait, there may be more when they have ended.
        let may_grow = |(scope, _): &(&Scope, Budget)| {
            let is_open = self.purse.books.get(scope).is_some_and(Book::is_open);
            is_open || blocked.contains(*scope)
        };
        let most = wish.max_output_tokens;
        let least = LEAST_OUTPUT_TOKENS.min(most);
        let (growing, fixed): (Vec<_>, Vec<_>) = binding.iter().partition(|one| may_grow(one));
        let ended = fixed.iter().find_map(|one| Some((one, passed(one, least)?)));
        if let Some(((scope, budget), measure)) = ended {
            return match wish.purpose {
                Purpose::HandOver => Verdict::End(Failure::new(FailureKind::Budget, NO_HAND_OVER)),
                Purpose::Turn | Purpose::Summary => {
                    self.exceed(scope, budget, measure, needs(least))
                }
            };
        }
        // A smaller call does not overtake one that waits.
        let is_behind = growing.iter().any(|(scope, _)| blocked.contains(*scope));
        if is_behind || growing.iter().any(|one| passed(one, most).is_some()) {
            return Verdict::Wait;
        }
        let fits = |output| fixed.iter().all(|one| passed(one, output).is_none());
        largest(least, most, fits).map_or(Verdict::Wait, Verdict::Grant)
    }

    fn exceed(&self, scope: &Scope, budget: &Budget, measure: Measure, needs: Amount) -> Verdict {
        let book = self.purse.books.get(scope).copied().unwrap_or_default();
        Verdict::Exceed(Box::new(BudgetExceeded {
            scope: scope.clone(),
            measure,
            caps: budget.caps,
            settled: book.settled,
            unsettled: book.unsettled,
            needs,
            on_exceed: budget.on_exceed,
        }))
    }
}

/// The reason why an agent ends without a last reply.
const NO_HAND_OVER: &str = "the budget does not hold a last reply";

/// Returns the largest number up to `most` that fits, if one from `least` upwards does: what fits grows with nothing.
pub(super) fn largest(least: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut beyond) = (least.min(most), most + 1);
    if !fits(low) {
        return None;
    }
    while low + 1 < beyond {
        let middle = low + (beyond - low) / 2;
        match fits(middle) {
            true => low = middle,
            false => beyond = middle,
        }
    }
    Some(low)
}
