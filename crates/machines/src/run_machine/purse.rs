//! Decides what calls of models may cost: each asks before it is announced, and gets a reservation in every scope
//! that it belongs to, or in none.
//!
//! The true bill of a scope lies between what is settled and what is settled or unsettled; a limit is compared with
//! the upper end, and with all that is reserved. A call that does not fit waits, in the order in which calls asked,
//! while reservations of its scope are open: most calls take far less than they could. Then its reply is made
//! shorter. If it does not fit then, the scope pauses, or its agents end.
//!
//! Nothing is given back: not by a retry, a round of a loop, or a resume. What is volatile are the reservations that
//! are open; they are the announced requests of the records, which the next process counts as unsettled.

mod affording;
mod books;
mod judging;
mod pausing;

pub use self::pausing::{change, id_of, is_change, read_change};

use std::collections::VecDeque;

use ahash::{HashMap, HashSet};

use self::books::{Account, Book, Waiting};
use self::judging::Verdict;
use super::Action;
use super::decision::Decision;
use super::desk::Desk;
use super::request::{Allowance, Purpose, Reply, Reservation};
use crate::event::{BudgetBoundBroken, BudgetChanged, BudgetExceeded, BudgetWarned, Draft, Event};
use crate::failure::{Failure, FailureKind};
use crate::id::AgentId;
use crate::spec::budget::{Amount, Caps, Scope};
use crate::spending::Spending;
use crate::turn::question::AnswerOutcome;

/// What a broken bound is multiplied with beyond the factor by which it was broken, in hundredths: the next count may
/// be further off.
const BROKEN_MARGIN: u64 = 110;

/// What is spent, reserved and waited for.
#[derive(Clone, Debug, Default)]
pub(super) struct Purse {
    /// True if anything is limited. If nothing is, agents do not ask.
    is_used: bool,
    books: HashMap<Scope, Book>,
    /// Number of open reservations.
    open: usize,
    accounts: HashMap<AgentId, Account>,
    /// The calls that wait while reservations are open, in the order in which they asked.
    line: VecDeque<Waiting>,
    /// The calls that wait for a person.
    resting: Vec<Waiting>,
    /// The scopes whose end is on its way to the journal.
    ending: HashSet<Scope>,
    /// The requests to change a budget that are on their way to the journal, in their order.
    changing: VecDeque<Option<u64>>,
    /// The warnings that are on their way to the journal.
    warning: HashSet<(Scope, u16)>,
}

impl Desk<'_, Purse> {
    /// Opens the books of a run at the start of a process, or when the first limit is set.
    pub(super) fn take_up(&mut self) {
        if self.purse.is_used || !self.limits_spending() {
            return;
        }
        self.begin_to_limit();
    }

    /// Opens an account for each agent, with what its records say that it has spent.
    fn begin_to_limit(&mut self) {
        let spent = self.state.agents().iter().map(|(id, agent)| {
            let settled = Amount::settled(&agent.own);
            let unsettled = Amount::unsettled(&agent.own);
            (id.clone(), Account { settled, unsettled, ..Account::default() })
        });
        let accounts = spent.collect();
        (self.own().is_used, self.own().accounts) = (true, accounts);
        self.act(Action::LimitSpending);
        self.open_books();
    }

    /// Adds up the accounts by scope: what has a budget now.
    fn open_books(&mut self) {
        self.own().books.clear();
        for (agent, account) in self.purse.accounts.clone() {
            for scope in self.scopes_of(&agent) {
                let book = self.own().books.entry(scope).or_default();
                book.settled += account.settled;
                book.unsettled += account.unsettled;
                account.granted.iter().for_each(|(_, amount)| book.open += *amount);
                book.held += account.held;
            }
        }
    }

    /// Handles the wish of an agent to make a call, or the same wish again.
    pub(super) fn asked(&mut self, agent: AgentId, id: String, wish: Reservation) {
        if !self.purse.is_used || self.agents.is_over(&agent) {
            let max_output_tokens = wish.max_output_tokens;
            let granted = Allowance::Granted { max_output_tokens, without_slot: false };
            return self.reply(agent, &id, Reply::Money(granted));
        }
        self.withdraw(&agent, wish.purpose);
        self.own().line.push_back(Waiting { agent, id, wish });
        self.serve();
    }

    /// Forgets a call of an agent that waits: it asks for another.
    fn withdraw(&mut self, agent: &AgentId, purpose: Purpose) {
        let is_same = |waiting: &Waiting| {
            waiting.agent == *agent && waiting.wish.purpose.is_summary() == purpose.is_summary()
        };
        self.own().line.retain(|waiting| !is_same(waiting));
        self.own().resting.retain(|waiting| !is_same(waiting));
    }

    /// Closes the oldest open reservation of an agent for such a call. Returns what was reserved.
    fn close(&mut self, agent: &AgentId, purpose: Purpose) -> Option<Amount> {
        let granted = self.own().accounts.get_mut(agent)?.take(purpose)?;
        self.own().open -= 1;
        for scope in self.scopes_of(agent) {
            let book = self.own().books.entry(scope).or_default();
            book.open = book.open.without(granted);
        }
        Some(granted)
    }

    /// Decides about the calls that wait, in their order.
    pub(super) fn serve(&mut self) {
        let mut blocked = HashSet::default();
        let mut line = std::mem::take(&mut self.own().line);
        let mut left = VecDeque::new();
        while let Some(waiting) = line.pop_front() {
            match self.judge(&waiting, &blocked) {
                Verdict::Grant(output) => self.grant(waiting, output),
                Verdict::End(failure) => self.refuse(waiting, failure),
                // Nobody waits for a summary: the agent goes on without.
                Verdict::Wait | Verdict::Rest | Verdict::Exceed(_)
                    if waiting.wish.purpose.is_summary() =>
                {
                    let failure = Failure::new(FailureKind::Budget, NO_SUMMARY);
                    self.refuse(waiting, failure);
                }
                Verdict::Rest | Verdict::Pause => self.rest(waiting),
                verdict @ (Verdict::Wait | Verdict::Exceed(_)) => {
                    if let Verdict::Exceed(event) = verdict {
                        self.record_end(*event);
                    }
                    // It needs no slot, and whoever has a reservation may need it.
                    self.post(Decision::Release(waiting.agent.clone()));
                    blocked.extend(self.scopes_of(&waiting.agent));
                    left.push_back(waiting);
                }
            }
        }
        self.own().line = left;
    }

    fn grant(&mut self, waiting: Waiting, output: u64) {
        let Waiting { agent, id, wish } = waiting;
        let scopes = self.scopes_of(&agent);
        let holds_back = wish.purpose == Purpose::Turn
            && scopes.iter().any(|scope| self.budget(scope).is_some_and(|b| b.holds_back()));
        let factor = self.state.budgets().factor(&wish.model);
        let amount = wish.takes(output, factor, false);
        let held = match wish.purpose {
            Purpose::Turn if holds_back => wish.takes(output, factor, true).without(amount),
            Purpose::Turn | Purpose::HandOver => Amount::default(),
            Purpose::Summary => self.held_for(&agent),
        };
        let account = self.own().accounts.entry(agent.clone()).or_default();
        let before = std::mem::replace(&mut account.held, held);
        account.granted.push((wish.purpose, amount));
        account.model = Some(wish.model);
        for scope in scopes {
            let book = self.own().books.entry(scope).or_default();
            book.open += amount;
            book.held = book.held.without(before) + held;
        }
        self.own().open += 1;
        let without_slot = self.note_without_slot(&agent);
        let granted = Allowance::Granted { max_output_tokens: output, without_slot };
        self.reply(agent, &id, Reply::Money(granted));
    }

    fn refuse(&mut self, waiting: Waiting, failure: Failure) {
        let Waiting { agent, id, .. } = waiting;
        let without_slot = self.note_without_slot(&agent);
        let refused = Allowance::Refused { failure, without_slot };
        self.reply(agent, &id, Reply::Money(refused));
    }

    fn record_end(&mut self, event: BudgetExceeded) {
        if self.own().ending.insert(event.scope.clone()) {
            self.record(vec![Draft::run(event)]);
        }
    }

    /// Takes in that an agent has spent something: `before` is what its calls had taken until then.
    pub(super) fn settled(&mut self, agent: &AgentId, before: &Spending, event: &Event) {
        let Some(after) = self.taken_by(Some(agent)) else { return };
        let purpose = match event {
            Event::ModelResponded(_) | Event::ModelFailed(_) => Purpose::Turn,
            Event::CompactionFinished(_) | Event::CompactionFailed(_) => Purpose::Summary,
            _ => return,
        };
        let granted = self.close(agent, purpose);
        let mut settled = Amount::settled(&after).without(Amount::settled(before));
        settled.calls = granted.map_or(0, |granted| granted.calls);
        let unsettled = Amount::unsettled(&after).without(Amount::unsettled(before));
        let account = self.own().accounts.entry(agent.clone()).or_default();
        account.settled += settled;
        account.unsettled += unsettled;
        for scope in self.scopes_of(agent) {
            let book = self.own().books.entry(scope.clone()).or_default();
            book.settled += settled;
            book.unsettled += unsettled;
            self.warn(&scope);
        }
        if let Some(granted) = granted.filter(|granted| settled.tokens > granted.tokens) {
            self.bound_broken(agent, granted.tokens, settled.tokens);
        }
        self.serve();
    }

    /// Records that a share of a budget is spent, once.
    fn warn(&mut self, scope: &Scope) {
        let Some(budget) = self.budget(scope) else { return };
        let book = self.purse.books.get(scope).copied().unwrap_or_default();
        let spent = book.settled + book.unsettled;
        for share in budget.warn_at {
            let is_known = self.state.budgets().is_warned(scope, share);
            if is_known || !budget.caps.is_reached(share, spent) {
                continue;
            }
            if self.own().warning.insert((scope.clone(), share)) {
                let (scope, caps) = (scope.clone(), budget.caps);
                let Book { settled, unsettled, .. } = book;
                self.record(vec![Draft::run(BudgetWarned {
                    scope,
                    share,
                    caps,
                    settled,
                    unsettled,
                })]);
            }
        }
    }

    fn bound_broken(&mut self, agent: &AgentId, reserved: u64, reported: u64) {
        let model = self.purse.accounts.get(agent).and_then(|account| account.model.clone());
        let Some(model) = model else { return };
        let before = u64::from(self.state.budgets().factor(&model));
        let factor = before.saturating_mul(reported).div_ceil(reserved.max(1));
        let factor = u32::try_from(factor * BROKEN_MARGIN / 100).unwrap_or(u32::MAX);
        self.record(vec![Draft::run(BudgetBoundBroken { model, reserved, reported, factor })]);
    }

    /// Takes in that an agent crashed or has ended: what it had announced may have cost all that it could.
    pub(super) fn gone(&mut self, agent: &AgentId, has_ended: bool) {
        if !self.purse.is_used {
            return;
        }
        self.own().line.retain(|waiting| waiting.agent != *agent);
        self.own().resting.retain(|waiting| waiting.agent != *agent);
        let Some(account) = self.purse.accounts.get(agent).cloned() else { return };
        let lost = account.granted.iter().fold(Amount::default(), |sum, (_, one)| sum + *one);
        let held = if has_ended { Amount::default() } else { account.held };
        self.own().open -= account.granted.len();
        for scope in self.scopes_of(agent) {
            let book = self.own().books.entry(scope).or_default();
            book.open = book.open.without(lost);
            book.unsettled += Amount { calls: 0, ..lost };
            book.settled.calls += lost.calls;
            book.held = book.held.without(account.held) + held;
        }
        let account = self.own().accounts.entry(agent.clone()).or_default();
        account.granted.clear();
        (account.held, account.unsettled) = (held, account.unsettled + Amount { calls: 0, ..lost });
        account.settled.calls += lost.calls;
        self.serve();
    }

    /// Takes in that the budget of a scope is recorded as used up.
    pub(super) fn exceeded(&mut self, event: &BudgetExceeded) {
        self.own().ending.remove(&event.scope);
        self.serve();
    }

    /// Takes in that a warning is recorded.
    pub(super) fn warned(&mut self, event: &BudgetWarned) {
        self.own().warning.remove(&(event.scope.clone(), event.share));
    }

    /// Takes in that the limits of a scope were changed: whoever rests for it asks again.
    pub(super) fn changed(&mut self) {
        let request = self.own().changing.pop_front().flatten();
        self.tell_giver(request, AnswerOutcome::Counted);
        if self.purse.is_used {
            self.open_books();
        }
        self.serve_all();
    }

    /// Decides about all calls that wait, those that rest first: what they rest for may be over, or has begun.
    pub(super) fn serve_all(&mut self) {
        self.take_up();
        self.wake_resting();
        self.serve();
    }

    /// Takes in that an agent began. It may be the first that has a limit.
    pub(super) fn spawned(&mut self, has_budget: bool) {
        if has_budget && !self.purse.is_used {
            self.begin_to_limit();
        }
    }

    /// Sets the limits of a scope, as a person wants it. `request` is the one who wants to know what became of it.
    pub(super) fn set(&mut self, request: Option<u64>, scope: Scope, caps: Caps, by: String) {
        if let Some(outcome) = self.refusal_of_change(self.is_scope_known(&scope)) {
            return self.tell_giver(request, outcome);
        }
        self.own().changing.push_back(request);
        self.record(vec![Draft::run(BudgetChanged { scope, caps, by: Some(by) })]);
    }

    /// Lets the agent of a call rest without a slot until a person raises the limit, or ends a pause.
    fn rest(&mut self, waiting: Waiting) {
        self.post(Decision::Release(waiting.agent.clone()));
        self.own().resting.push(waiting);
    }
}

/// The reason why there is no summary.
const NO_SUMMARY: &str = "the budget does not hold a summary";

#[cfg(test)]
mod tests;
