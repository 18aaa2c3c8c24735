//! The rows of `cost`: spending by agent, by task, by model and by run.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::agents_in_order;
use super::inclusive::of_fan_outs;
use crate::id::Name;
use crate::journal::JournalError;
use crate::journal::source::RunSource;
use crate::run_state::RunState;
use crate::show::names::Names;
use crate::spending::{Spending, Unsettled};

/// One row of `cost`.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRow {
    /// `agent`, `task`, `model` or `run`.
    pub by: &'static str,
    /// The name of the agent, the task or the model, or the id of the run.
    pub name: String,
    /// The key of the instance of a fan-out that it is or works for.
    pub key: Option<String>,
    /// The name as people read it, safe to show in one line: an instance of a fan-out by its key.
    pub shown: String,
    /// The spending of its own calls.
    pub own: Spending,
    /// The spending of all agents below it, its own calls included.
    pub inclusive: Spending,
}

impl CostRow {
    /// Returns the row as `cost --json` prints it. Only an instance of a fan-out has a `key`.
    #[must_use]
    pub fn json(&self) -> Value {
        let part = |spending: &Spending| {
            let mut value = json!(spending.usage);
            value["cost_usd"] = json!(spending.cost_usd());
            value["unsettled_usd"] = json!(spending.unsettled.most_usd());
            value["requests"] = json!(spending.requests);
            value["unsettled_requests"] = json!(spending.unsettled.requests);
            value
        };
        let mut row = json!({
            "by": self.by,
            "name": self.name,
            "own": part(&self.own),
            "inclusive": part(&self.inclusive),
        });
        if let Some(key) = &self.key {
            row["key"] = json!(key);
        }
        row
    }
}

/// Says how many requests are in no sum because nobody knows their end, and what they can have cost; `None`
/// if there are none.
#[must_use]
pub fn unsettled(spending: &Spending) -> Option<String> {
    let Unsettled { requests, .. } = spending.unsettled;
    let noun = if requests == 1 { "request" } else { "requests" };
    let most = spending.unsettled.most_usd().filter(|most| *most > 0.0);
    let most = most.map(|most| format!(", at most about ${most:.4} more")).unwrap_or_default();
    (requests > 0).then(|| format!("not included: the unknown cost of {requests} {noun}{most}"))
}

/// Returns the cost of each agent that calls a model.
#[must_use]
pub fn cost_by_agent(state: &RunState) -> Vec<CostRow> {
    let (agents, names) = (agents_in_order(state), Names::of(state));
    let rows = agents.into_iter().filter(|(_, agent)| agent.definition.is_some());
    let rows = rows.map(|(id, agent)| CostRow {
        by: "agent",
        name: id.to_string(),
        key: names.key(agent.task.as_str()).map(str::to_owned),
        shown: names.shown(id.as_str()).into_owned(),
        own: agent.own,
        inclusive: agent.inclusive,
    });
    rows.collect()
}

/// Returns the cost of each task. Its own calls are those of its main agents; a task that fans out has those of its
/// instances below it.
#[must_use]
pub fn cost_by_task(state: &RunState) -> Vec<CostRow> {
    let mut sums: HashMap<&Name, (Spending, Spending)> = HashMap::new();
    for agent in state.agents().values().filter(|agent| agent.parent.is_none()) {
        let (own, inclusive) = sums.entry(&agent.task).or_default();
        *own += agent.own;
        *inclusive += agent.inclusive;
    }
    let (names, fan_outs) = (Names::of(state), of_fan_outs(state));
    let rows = state.tasks().map(|(name, _)| {
        let (own, inclusive) = sums.get(name).copied().unwrap_or_default();
        let inclusive = fan_outs.get(name.as_str()).map_or(inclusive, |all| all.spending);
        let (key, shown) = (names.key(name.as_str()), names.shown(name.as_str()));
        let (key, shown) = (key.map(str::to_owned), shown.into_owned());
        CostRow { by: "task", name: name.to_string(), key, shown, own, inclusive }
    });
    rows.collect()
}

/// Returns the cost of each model.
#[must_use]
pub fn cost_by_model(state: &RunState) -> Vec<CostRow> {
    rows_by_model(by_model(state))
}

/// Returns the cost of each model in several runs.
#[must_use]
pub fn cost_of_runs_by_model(runs: &[RunCost]) -> Vec<CostRow> {
    let mut sums: BTreeMap<Name, Spending> = BTreeMap::new();
    for (model, spending) in runs.iter().flat_map(|run| &run.by_model) {
        *sums.entry(model.clone()).or_default() += *spending;
    }
    rows_by_model(sums)
}

fn by_model(state: &RunState) -> BTreeMap<Name, Spending> {
    let mut sums: BTreeMap<Name, Spending> = BTreeMap::new();
    for (model, spending) in state.agents().values().flat_map(|agent| agent.by_model.iter()) {
        *sums.entry(model.clone()).or_default() += *spending;
    }
    sums
}

fn rows_by_model(sums: BTreeMap<Name, Spending>) -> Vec<CostRow> {
    let row = |(name, sum): (Name, Spending)| CostRow {
        by: "model",
        name: name.to_string(),
        key: None,
        shown: name.to_string(),
        own: sum,
        inclusive: sum,
    };
    sums.into_iter().map(row).collect()
}

/// What one run of several cost. The part of a fork that it shares with its parent is in the bill of the parent.
#[derive(Clone, Debug, Default)]
pub struct RunCost {
    /// The spending of the run itself.
    pub own: Spending,
    pub(super) by_model: BTreeMap<Name, Spending>,
}

impl RunCost {
    /// Reads what a run cost, with its state.
    ///
    /// # Errors
    /// Returns an error if the run cannot be read.
    pub fn read(run: &dyn RunSource) -> Result<(RunState, Self), JournalError> {
        let (mut state, read) = run.state(|_| {});
        read?;
        state.lose_requests_unless(run.is_live());
        let shared_seq = state.shared_seq();
        let mut shared = RunState::default();
        if shared_seq > 0 {
            let (_, read) = run.fold(|record| {
                if record.seq <= shared_seq {
                    // What does not fit is an error of the fold itself.
                    let _ = shared.apply(record);
                }
            });
            read?;
        }
        let cost = Self::of(&state, &shared);
        Ok((state, cost))
    }

    /// Returns what a run cost; `shared` is the state of a fork at the place where it was forked.
    #[must_use]
    pub fn of(state: &RunState, shared: &RunState) -> Self {
        let before = by_model(shared);
        let since = |(model, sum): (Name, Spending)| {
            let less = before.get(&model).copied().unwrap_or_default();
            (model, sum.since(less))
        };
        let by_model = by_model(state).into_iter().map(since).collect();
        Self { own: state.spending().since(shared.spending()), by_model }
    }

    /// Returns its row under the name by which people know the run.
    #[must_use]
    pub fn row(&self, run: String, shown: String) -> CostRow {
        CostRow { by: "run", name: run, key: None, shown, own: self.own, inclusive: self.own }
    }
}
