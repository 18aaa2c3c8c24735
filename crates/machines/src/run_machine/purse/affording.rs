//! Decides whether what is left of the budgets can pay a child at all, before it is started.
//!
//! A child is refused only if its first call could not be granted however little the calls under way take: what is
//! spent, or may be, does not become less. The tools of its parent stay as they are, because a provider has them in its
//! cache.

use super::judging::LEAST_OUTPUT_TOKENS;
use crate::id::AgentId;
use crate::run_machine::Facts;
use crate::run_machine::request::{Delegation, Purpose, Reservation};
use crate::spec::budget::{Amount, Budget, Caps, Measure, OnExceed, Scope};
use crate::spending::Usd;

/// Tokens that a provider may add to a request unseen, as each first call reserves them.
const UNSEEN_TOKENS: usize = 1_024;

impl Facts {
    /// Returns why the budgets cannot pay a call of a child, in words for the model; `None` if they may.
    pub(in crate::run_machine) fn unaffordable(
        &self,
        parent: &AgentId,
        delegation: &Delegation,
    ) -> Option<String> {
        let spec = self.settings.agents.get(&delegation.agent)?;
        let model = self.settings.models.get(&spec.model)?;
        // What stands in every first request of the child, beside the definitions of its tools.
        let bytes = spec.instructions.len() + delegation.prompt.len() + UNSEEN_TOKENS;
        let first = Reservation {
            purpose: Purpose::Turn,
            model: model.name.clone(),
            input_tokens: (bytes as u64).min(model.context_window),
            max_output_tokens: model.max_output_tokens,
            price: model.price,
            requests: 1,
        };
        let factor = self.state.budgets().factor(&model.name);
        let output = LEAST_OUTPUT_TOKENS.min(model.max_output_tokens);
        let around = self.binding_around(parent);
        let own = spec.budget.clone().filter(|budget| budget.on_exceed != OnExceed::Warn);
        let mut own = own.map(|budget| budget.caps).into_iter().chain(delegation.budget);
        // Where only one call fits, it is the one in which the child hands over.
        let needs = first.takes(output, factor, false);
        let refused = |whose: &str, caps: Caps, spent: Amount| {
            let measure = caps.passed_by(spent + needs)?;
            let (left, needs) = (left(caps, spent, measure), words(needs, measure));
            Some(format!(
                "{whose} has {left} left of its budget, and one call of `{}` may take {needs}: it was not started; \
                 do the work yourself, or finish with what there is",
                delegation.agent
            ))
        };
        let of_child = own.find_map(|caps| refused("the child", caps, Amount::default()));
        of_child.or_else(|| {
            around.iter().find_map(|(scope, budget)| {
                refused(&scope.words(), budget.caps, self.surely_spent(scope, parent))
            })
        })
    }

    /// Returns the scopes around an agent whose budget binds and is not used up: where it is, the next call decides.
    fn binding_around(&self, agent: &AgentId) -> Vec<(Scope, Budget)> {
        let binds = |scope: Scope| {
            let budget = self.budget(&scope)?;
            let binds = budget.on_exceed != OnExceed::Warn;
            (binds && self.state.budgets().exceeded(&scope).is_none()).then_some((scope, budget))
        };
        self.scopes_of(agent).into_iter().filter_map(binds).collect()
    }

    /// Returns what a scope has spent or may have, with what is held back for the agents that wait for the child.
    fn surely_spent(&self, scope: &Scope, parent: &AgentId) -> Amount {
        let book = self.purse.books.get(scope).copied().unwrap_or_default();
        let mut spent = book.settled + book.unsettled;
        for waits in self.line_of(parent) {
            if self.scopes_of(&waits).contains(scope) {
                spent += self.held_for(&waits);
            }
        }
        spent
    }
}

fn left(caps: Caps, spent: Amount, measure: Measure) -> String {
    let unlimited = Amount { cost: Usd::MOST, tokens: u64::MAX, calls: u64::MAX };
    let cap = Amount {
        cost: caps.max_cost.unwrap_or(unlimited.cost),
        tokens: caps.max_tokens.unwrap_or(unlimited.tokens),
        calls: caps.max_calls.unwrap_or(unlimited.calls),
    };
    words(cap.without(spent), measure)
}

fn words(amount: Amount, measure: Measure) -> String {
    match measure {
        Measure::Cost if amount.cost == Usd::MOST => "an amount that nobody knows".to_owned(),
        Measure::Cost => format!("${:.4}", amount.cost.dollars()),
        Measure::Tokens => format!("{} tokens", amount.tokens),
        Measure::Calls | Measure::Time if amount.calls == 1 => "1 call".to_owned(),
        Measure::Calls | Measure::Time => format!("{} calls", amount.calls),
    }
}
