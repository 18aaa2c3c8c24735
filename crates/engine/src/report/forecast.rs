//! What a run of a configuration may cost: the least, the likely and the most, by task, by agent and in all, and what
//! bounds the most.
//!
//! Pure: it sees the configuration and what earlier runs cost. The most counts what one run can do by itself: every
//! attempt of every call as if it were billed in full, with the window full. It does not count resumes and retries that
//! a person asks for, nor restarts after crashes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::costs::cost_by_task;
use crate::config::Config;
use crate::context::measure;
use crate::event::RunStatus;
use crate::id::Name;
use crate::plan::TaskState;
use crate::run_state::{RunPhase, RunState};
use crate::spec::acceptance::CheckWork;
use crate::spec::budget::{Amount, Budget, OnExceed};
use crate::spec::{AgentSpec, ModelSpec, TaskSpec, Work};
use crate::spending::{Spending, Usd};

/// Requests that may be made for one summary: a second one where the first fails.
const SUMMARY_REQUESTS: u64 = 2;

/// Replies of an agent beyond its `max_turns`: the one in which it hands over.
const LAST_REPLIES: u64 = 1;

/// The amount that stands for no bound.
const UNBOUNDED: Amount = Amount { cost: Usd::MOST, tokens: u64::MAX, calls: u64::MAX };

/// What an earlier run cost, for a forecast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EarlierRun {
    /// True if it had the same file, to the letter.
    pub is_same: bool,
    total: Amount,
    tasks: BTreeMap<Name, Amount>,
    /// By definition, what each agent cost with all below it.
    agents: BTreeMap<Name, Vec<Amount>>,
}

impl EarlierRun {
    /// Takes what a run cost that completed; `None` for others, which did less than a run does.
    #[must_use]
    pub fn of(state: &RunState, config_hash: &str) -> Option<Self> {
        let RunPhase::Completed(RunStatus::Completed) = state.phase() else { return None };
        let spent = |spending: &Spending| Amount::settled(spending) + Amount::unsettled(spending);
        let mut agents: BTreeMap<Name, Vec<Amount>> = BTreeMap::new();
        for agent in state.agents().values() {
            if let Some(definition) = &agent.definition {
                agents.entry(definition.clone()).or_default().push(spent(&agent.inclusive));
            }
        }
        let done =
            |name: &Name| state.task(name).is_some_and(|task| task.state == TaskState::Completed);
        let rows = cost_by_task(state).into_iter();
        let rows = rows.filter_map(|row| Some((Name::of_record(&row.name).ok()?, row.inclusive)));
        let tasks = rows.filter(|(name, _)| done(name) && name.of_instance().is_none());
        Some(Self {
            is_same: state.created().is_some_and(|created| created.config_hash == config_hash),
            total: spent(&state.spending()),
            tasks: tasks.map(|(name, spending)| (name, spent(&spending))).collect(),
            agents,
        })
    }
}

/// What bounds the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binder {
    /// The budget of the run.
    Run,
    /// The budget of a task.
    Task(Name),
    /// The budget of an agent definition.
    Agent(Name),
    /// `max_turns` and the limits on attempts, children and instances; no budget is reached before them.
    Limits,
    /// Nothing.
    Nothing,
}

impl Binder {
    /// Returns it in words for people.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Run => "the budget of the run".to_owned(),
            Self::Task(name) => format!("the budget of task {name}"),
            Self::Agent(name) => format!("the budget of agent {name}"),
            Self::Limits => "max_turns and other limits".to_owned(),
            Self::Nothing => "nothing".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Run => json!({ "scope": "run" }),
            Self::Task(name) => json!({ "scope": "task", "name": name }),
            Self::Agent(name) => json!({ "scope": "agent", "name": name }),
            Self::Limits => json!({ "scope": "limits" }),
            Self::Nothing => Value::Null,
        }
    }
}

/// The most that something may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Most {
    /// The amount.
    pub amount: Amount,
    /// What bounds it.
    pub by: Binder,
}

/// The forecast for a task, for each agent of a definition, or for the run.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastRow {
    /// `task`, `agent` or `run`.
    pub of: &'static str,
    /// The name of the task or of the definition; empty for the run.
    pub name: String,
    /// The least that it costs if the run completes.
    pub least: Amount,
    /// The median of earlier runs, with the number of times that it was seen.
    pub likely: Option<(Amount, usize)>,
    /// The most.
    pub most: Most,
}

impl ForecastRow {
    /// Returns the row as `check --cost --json` prints it.
    #[must_use]
    pub fn json(&self) -> Value {
        let likely = self.likely.map(|(likely, seen)| {
            let mut value = likely.json();
            value["seen"] = json!(seen);
            value
        });
        let most = match self.most.by {
            Binder::Nothing => Value::Null,
            _ => self.most.amount.json(),
        };
        json!({
            "forecast": self.of,
            "name": self.name,
            "least": self.least.json(),
            "likely": likely,
            "most": most,
            "bound_by": self.most.by.json(),
        })
    }
}

/// Makes the forecast for a run of these tasks: a row for each task that calls models, one for each agent definition
/// that they use, and that of the run.
#[must_use]
pub fn forecast(config: &Config, tasks: &[TaskSpec], earlier: &[EarlierRun]) -> Vec<ForecastRow> {
    // What was made from the same text says more than what was not.
    let same: Vec<_> = earlier.iter().filter(|run| run.is_same).collect();
    let earlier = if same.is_empty() { earlier.iter().collect() } else { same };
    let bounds = Bounds { config };
    let mut rows = Vec::new();
    let (mut least, mut mains, mut wholes) =
        (Amount::default(), Amount::default(), Amount::default());
    for task in tasks {
        let whole = bounds.of_task(task, tasks);
        // A task of a sub-graph is counted with the task that stands for it.
        if task.within.is_none() {
            mains += bounds.without_children(task, tasks);
            wholes += whole.amount;
        }
        let own = least_of(config, task);
        least += own;
        if whole.amount == Amount::default() {
            continue;
        }
        let seen = earlier.iter().filter_map(|run| run.tasks.get(&task.name));
        rows.push(ForecastRow {
            of: "task",
            name: task.name.to_string(),
            least: own,
            likely: median(seen.copied().collect()),
            most: bounds.within_run(whole),
        });
    }
    for (name, agent) in config.team(tasks.iter().flat_map(TaskSpec::agents)) {
        let seen = earlier.iter().filter_map(|run| run.agents.get(name)).flatten();
        rows.push(ForecastRow {
            of: "agent",
            name: name.to_string(),
            least: bounds.first_call(agent, ""),
            likely: median(seen.copied().collect()),
            most: bounds.within_run(bounds.of_agent(agent)),
        });
    }
    let children = bounds.children(tasks.iter().flat_map(TaskSpec::agents));
    let all = match config.grows() {
        true => Most { amount: UNBOUNDED, by: Binder::Nothing },
        false => Most { amount: (mains + children).smaller(wholes), by: Binder::Limits },
    };
    rows.push(ForecastRow {
        of: "run",
        name: String::new(),
        least,
        likely: median(earlier.iter().map(|run| run.total).collect()),
        most: bounds.within_run(all),
    });
    rows
}

/// Returns the median of each part of some amounts, with their number.
fn median(amounts: Vec<Amount>) -> Option<(Amount, usize)> {
    let middle = |part: &dyn Fn(&Amount) -> u64| {
        let mut parts: Vec<_> = amounts.iter().map(part).collect();
        parts.sort_unstable();
        let (low, high) = (parts.get((parts.len().max(1) - 1) / 2)?, parts.get(parts.len() / 2)?);
        Some(low + (high - low) / 2)
    };
    let known = amounts.iter().all(|amount| amount.cost != Usd::MOST);
    let cost = match known {
        true => Usd::from_picodollars(middle(&|amount| amount.cost.picodollars())?),
        false => Usd::MOST,
    };
    let (tokens, calls) = (middle(&|amount| amount.tokens)?, middle(&|amount| amount.calls)?);
    Some((Amount { cost, tokens, calls }, amounts.len()))
}

/// Returns the least that a task costs in a run that completes: a call with its prompt for its work and for each agent
/// that checks it, and nothing if it may be skipped or fan out to nothing.
fn least_of(config: &Config, task: &TaskSpec) -> Amount {
    let may_be_nothing = |task: &TaskSpec| task.when.is_some() || task.fan_out.is_some();
    let within = task.within.is_some();
    if may_be_nothing(task) || within {
        return Amount::default();
    }
    let bounds = Bounds { config };
    let call = |agent: &Name, prompt: &str| {
        config.agents.get(agent).map(|agent| bounds.first_call(agent, prompt)).unwrap_or_default()
    };
    let mut least = match &task.work {
        Work::Agent { agent, prompt } => call(agent, prompt),
        Work::Command { .. } | Work::Approval(_) | Work::Graph { .. } => Amount::default(),
    };
    for check in &task.acceptance.checks {
        if let CheckWork::Agent { agent, prompt } = &check.work {
            least += call(agent, prompt);
        }
    }
    least
}

/// The bounds that a configuration sets.
struct Bounds<'a> {
    config: &'a Config,
}

impl Bounds<'_> {
    fn model(&self, name: &Name) -> Option<&ModelSpec> {
        self.config.models.get(name)
    }

    /// Returns what one call with this prompt costs at least, with a reply of one token: its words as they are
    /// estimated, read from a cache.
    fn first_call(&self, agent: &AgentSpec, prompt: &str) -> Amount {
        let tokens = measure::estimate(&agent.instructions) + measure::estimate(prompt);
        let price = self.model(&agent.model).and_then(|model| model.price);
        let cost = price.map(|price| {
            let input = price.input.min(price.cache_read);
            #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
            Usd::from_dollars((tokens as f64 * input + price.output) / 1e6)
        });
        Amount { cost: cost.unwrap_or(Usd::MOST), tokens: tokens + 1, calls: 1 }
    }

    /// Returns the most that one request to a model can take.
    fn request(&self, model: &ModelSpec) -> Amount {
        let (input, output) = (model.context_window, model.max_output_tokens);
        let cost = model.price.map(|price| Usd::at_most_dollars(price.most(input, output)));
        Amount { cost: cost.unwrap_or(Usd::MOST), tokens: input.saturating_add(output), calls: 1 }
    }

    /// Returns the most that one call of a model can take, with all its attempts and those of its stand-ins.
    fn call(&self, model: &Name) -> Amount {
        let Some(first) = self.model(model) else { return Amount::default() };
        let chain = std::iter::once(first)
            .chain(first.fallbacks.iter().filter_map(|name| self.model(name)));
        chain.fold(Amount::default(), |sum, model| {
            let retry = self.config.providers.get(&model.provider).map(|one| &one.retry);
            let attempts = retry.map_or(1, |retry| u64::from(retry.max_attempts.max(1)));
            sum + self.request(model).times(attempts)
        })
    }

    /// Returns the most that the calls of one agent can take, without those of its children.
    fn own(&self, agent: &AgentSpec) -> Amount {
        let turns = u64::from(agent.max_turns) + LAST_REPLIES;
        let compaction = &self.config.compaction;
        let writer = compaction.model.as_ref().unwrap_or(&agent.model);
        let summary = match (compaction.preset.name.as_str(), self.model(writer)) {
            ("off", _) | (_, None) => Amount::default(),
            (_, Some(model)) => self.request(model).times(SUMMARY_REQUESTS),
        };
        (self.call(&agent.model) + summary).times(turns)
    }

    /// Returns the most that one agent can take without its children, within its own budget.
    fn alone(&self, agent: &AgentSpec) -> Amount {
        self.capped(self.own(agent), agent.budget.as_ref())
    }

    /// Returns the most that the children of these agents can take in a run.
    fn children<'a>(&self, mains: impl Iterator<Item = &'a Name>) -> Amount {
        let limits = &self.config.limits;
        let mains: Vec<_> = mains.collect();
        let below = mains.iter().filter_map(|name| self.config.agents.get(*name));
        let below: Vec<_> = below.flat_map(|agent| &agent.sub_agents).collect();
        if limits.max_depth == 0 {
            return Amount::default();
        }
        let team = self.config.team(below);
        let dearest = team.values().map(|agent| self.alone(agent));
        let dearest = dearest.fold(Amount::default(), Amount::larger);
        dearest.times(limits.max_descendants as u64)
    }

    /// Returns the most that one agent can take with all agents below it.
    fn of_agent(&self, agent: &AgentSpec) -> Most {
        let all = self.own(agent) + self.children(std::iter::once(&agent.name));
        let amount = self.capped(all, agent.budget.as_ref());
        let by = if amount == all { Binder::Limits } else { Binder::Agent(agent.name.clone()) };
        Most { amount, by }
    }

    /// Returns the most that the main agents and the checks of a task can take, within its budget.
    fn without_children(&self, task: &TaskSpec, tasks: &[TaskSpec]) -> Amount {
        let all = match &task.work {
            Work::Graph { .. } => inner(task, tasks)
                .map(|inner| self.without_children(inner, tasks))
                .fold(Amount::default(), |sum, one| sum + one),
            Work::Agent { .. } | Work::Command { .. } | Work::Approval(_) => self.mains(task),
        };
        self.capped(all, task.budget.as_ref())
    }

    fn mains(&self, task: &TaskSpec) -> Amount {
        self.of_attempts(task, &|agent| self.alone(agent))
    }

    /// Returns the sum over all agents that may work for a task or check it, `each` of them at its most.
    fn of_attempts(&self, task: &TaskSpec, each: &dyn Fn(&AgentSpec) -> Amount) -> Amount {
        let rules = &task.acceptance;
        let iterations = rules.repeat.as_ref().map_or(0, |repeat| u64::from(repeat.max_iterations));
        // Each round but the first has a reason: an answer that is to be mended, or one more iteration.
        let rounds = 1 + u64::from(rules.retries) + iterations;
        let most = |name: &Name| self.config.agents.get(name).map(each).unwrap_or_default();
        let mut once = match &task.work {
            // A further round is part of the same conversation.
            Work::Agent { agent, .. } => most(agent),
            Work::Command { .. } | Work::Approval(_) | Work::Graph { .. } => Amount::default(),
        };
        for check in &rules.checks {
            if let CheckWork::Agent { agent, .. } = &check.work {
                once += most(agent).times(rounds);
            }
        }
        let instances =
            task.fan_out.as_ref().map_or(1, |_| self.config.limits.max_instances as u64);
        once.times(u64::from(task.retry.max_attempts.max(1))).times(instances)
    }

    /// Returns the most that a task can take with all agents below it.
    fn of_task(&self, task: &TaskSpec, tasks: &[TaskSpec]) -> Most {
        let all = match &task.work {
            Work::Graph { .. } => {
                let parts = inner(task, tasks).map(|inner| self.of_task(inner, tasks).amount);
                let amount = parts.fold(Amount::default(), |sum, one| sum + one);
                Most { amount, by: Binder::Limits }
            }
            Work::Agent { .. } | Work::Command { .. } | Work::Approval(_) => self.of_agents(task),
        };
        match self.capped(all.amount, task.budget.as_ref()) {
            amount if amount == all.amount => all,
            amount => Most { amount, by: Binder::Task(task.name.clone()) },
        }
    }

    /// Returns the most of a task without its own budget: within those of its agents.
    fn of_agents(&self, task: &TaskSpec) -> Most {
        let by_limits =
            self.of_attempts(task, &|agent| self.own(agent)) + self.children(task.agents());
        let children_apart = self.mains(task) + self.children(task.agents());
        let with_children = self.of_attempts(task, &|agent| self.of_agent(agent).amount);
        let amount = children_apart.smaller(with_children);
        let bound = task.agents().find(|name| {
            let spec = self.config.agents.get(*name);
            spec.is_some_and(|spec| matches!(self.of_agent(spec).by, Binder::Agent(_)))
        });
        match bound.filter(|_| amount != by_limits) {
            Some(name) => Most { amount, by: Binder::Agent(name.clone()) },
            None => Most { amount, by: Binder::Limits },
        }
    }

    fn within_run(&self, most: Most) -> Most {
        let amount = self.capped(most.amount, self.config.budget.as_ref());
        if amount == most.amount { most } else { Most { amount, by: Binder::Run } }
    }

    /// Returns an amount within a budget. A limit of calls or tokens bounds the cost too.
    fn capped(&self, amount: Amount, budget: Option<&Budget>) -> Amount {
        let Some(budget) = budget.filter(|budget| budget.on_exceed != OnExceed::Warn) else {
            return amount;
        };
        let caps = budget.caps;
        let models = self.config.models_in_use.iter().filter_map(|name| self.model(name));
        let (mut call, mut token) = (Amount::default(), Usd::default());
        for model in models {
            call = call.larger(self.request(model));
            token = token.max(model.price.map_or(Usd::MOST, |price| {
                Usd::at_most_dollars(price.most(1, 0).max(price.output / 1e6))
            }));
        }
        let mut most = UNBOUNDED;
        most.cost = caps.max_cost.unwrap_or(most.cost);
        if let Some(calls) = caps.max_calls {
            most = most.smaller(call.times(calls));
        }
        if let Some(tokens) = caps.max_tokens {
            most.tokens = most.tokens.min(tokens);
            most.cost = most.cost.min(token.times(tokens));
        }
        amount.smaller(most)
    }
}

/// Returns the tasks of the sub-graph that a task stands for.
fn inner<'a>(task: &'a TaskSpec, tasks: &'a [TaskSpec]) -> impl Iterator<Item = &'a TaskSpec> {
    let is_inner = |one: &&TaskSpec| {
        one.name.as_str().rsplit_once('/').is_some_and(|(around, _)| around == task.name.as_str())
    };
    tasks.iter().filter(is_inner)
}

#[cfg(test)]
mod tests;
