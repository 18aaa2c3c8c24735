//! Where the money of a run, a task or an agent went: by agent, and by what it was spent on.
//!
//! Pure. Folds the records of calls; the state of the run says whose subtree an agent belongs to and what was lost.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Subject;
use crate::context::Spent;
use crate::event::{Event, Record};
use crate::id::AgentId;
use crate::run_state::{AgentStatus, RunState};
use crate::spending::Spending;

/// What money was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Replies.
    Replies,
    /// Calls that failed or were cut.
    FailedCalls,
    /// Summaries of contexts.
    Summaries,
    /// Everything that an attempt cost which was given up.
    EarlierAttempt,
    /// Requests whose end nobody knows: the most that they can have cost is in `unsettled`.
    Unsettled,
}

impl Purpose {
    /// Returns the purpose as JSON has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replies => "replies",
            Self::FailedCalls => "failed_calls",
            Self::Summaries => "summaries",
            Self::EarlierAttempt => "earlier_attempt",
            Self::Unsettled => "unsettled",
        }
    }
}

/// One item of a bill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The agent that spent it.
    pub agent: AgentId,
    /// What it was spent on.
    pub purpose: Purpose,
    /// Number of calls.
    pub calls: u64,
    /// What they cost.
    pub spending: Spending,
}

/// What the calls of each agent cost, by purpose.
#[derive(Clone, Debug, Default)]
pub struct Bill(BTreeMap<(AgentId, Purpose), (u64, Spending)>);

impl Bill {
    /// Takes in a record.
    pub fn note(&mut self, record: &Record) {
        let Some(agent) = &record.agent else { return };
        let of = |spent: &Spent| Spending::of_call(spent.usage, spent.cost_usd);
        let (purpose, spending) = match &record.event {
            Event::ModelResponded(reply) => {
                (Purpose::Replies, Some(Spending::of_call(reply.usage, reply.cost_usd)))
            }
            Event::ModelFailed(failed) => (Purpose::FailedCalls, failed.spent.as_ref().map(of)),
            Event::CompactionFinished(summary) => {
                (Purpose::Summaries, Some(Spending::of_call(summary.usage, summary.cost_usd)))
            }
            Event::CompactionFailed(failed) => (Purpose::Summaries, failed.spent.as_ref().map(of)),
            _ => return,
        };
        let Some(spending) = spending else { return };
        let (calls, sum) = self.0.entry((agent.clone(), purpose)).or_default();
        *calls += 1;
        *sum += spending;
    }

    /// Returns the items of a subject and of everything below it, the dearest first.
    #[must_use]
    pub fn of(&self, state: &RunState, subject: &Subject) -> Vec<Item> {
        let mut items: BTreeMap<(AgentId, Purpose), (u64, Spending)> = BTreeMap::new();
        let known = |agent: &AgentId| state.agents().get(agent);
        let mut add = |agent: &AgentId, purpose, calls, spending| {
            let item = items.entry((agent.clone(), purpose)).or_default();
            item.0 += calls;
            item.1 += spending;
        };
        for ((agent, purpose), (calls, spending)) in &self.0 {
            let Some(status) = known(agent).filter(|s| is_below(subject, agent, s)) else {
                continue;
            };
            let is_given_up = is_given_up(state, agent, status);
            let purpose = if is_given_up { Purpose::EarlierAttempt } else { *purpose };
            add(agent, purpose, *calls, *spending);
        }
        for (agent, status) in state.agents().iter().filter(|(id, s)| is_below(subject, id, s)) {
            let unsettled = status.own.unsettled;
            if unsettled.requests > 0 {
                let spending = Spending { unsettled, ..Spending::default() };
                add(agent, Purpose::Unsettled, unsettled.requests, spending);
            }
        }
        let items = items.into_iter().map(|((agent, purpose), (calls, spending))| Item {
            agent,
            purpose,
            calls,
            spending,
        });
        let mut items: Vec<_> = items.collect();
        items.sort_by_key(|item| {
            let Spending { cost, usage, unsettled, .. } = item.spending;
            // What was lost counts with the most that it can have cost.
            let cost = cost.max(unsettled.most);
            Reverse((cost, usage.context() + usage.output))
        });
        items
    }
}

/// Returns true for an agent whose bill is part of that of a subject.
fn is_below(subject: &Subject, id: &AgentId, agent: &AgentStatus) -> bool {
    match subject {
        Subject::Run => true,
        Subject::Task(name) => agent.task.is_part_of(name),
        Subject::Agent(top) => id.is_within(top),
    }
}

/// Returns true if the task of an agent has made another attempt since.
fn is_given_up(state: &RunState, id: &AgentId, agent: &AgentStatus) -> bool {
    let latest = state.task(&agent.task).and_then(|task| task.agent.as_ref());
    latest.is_some_and(|main| !id.is_within(main))
}
