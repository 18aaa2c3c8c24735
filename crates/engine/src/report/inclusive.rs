//! What fan-outs used with their instances: a task that fans out calls no model itself.
//!
//! Pure. These sums stand beside the instances; a total counts each agent once.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::short;
use crate::message::Usage;
use crate::run_state::RunState;
use crate::spending::Spending;

/// What all agents of a fan-out used, those of its instances included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Inclusive {
    /// Number of turns.
    pub turns: u64,
    /// Tokens.
    pub usage: Usage,
    /// Their cost in US dollars; absent if a model has no price.
    pub cost_usd: Option<f64>,
    /// The same with the requests whose end nobody knows.
    #[serde(skip)]
    pub spending: Spending,
}

impl Inclusive {
    /// Returns it as the verbs print it.
    #[must_use]
    pub fn json(&self) -> Value {
        json!(self)
    }

    /// Returns it in words; `None` if no model was called.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let Self { turns, usage, cost_usd, .. } = self;
        let noun = if *turns == 1 { "turn" } else { "turns" };
        let cost = cost_usd.filter(|cost| *cost > 0.0);
        let cost = cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
        let (read, made) = (short(usage.context()), short(usage.output));
        (*turns > 0).then(|| format!("{turns} {noun}, {read} tokens in, {made} out{cost}"))
    }
}

/// Returns what each task that has instances used with them.
pub(super) fn of_fan_outs(state: &RunState) -> HashMap<&str, Inclusive> {
    let fanned_out = state.tasks().filter(|(_, task)| !task.instances.is_empty());
    let mut all: HashMap<_, _> =
        fanned_out.map(|(name, _)| (name.as_str(), Inclusive::default())).collect();
    for agent in state.agents().values() {
        let task = agent.task.of_instance().unwrap_or(agent.task.as_str());
        if let Some(sum) = all.get_mut(task) {
            sum.turns = sum.turns.saturating_add(u64::from(agent.turn));
            sum.spending += agent.own;
        }
    }
    for sum in all.values_mut() {
        (sum.usage, sum.cost_usd) = (sum.spending.usage, sum.spending.cost_usd());
    }
    all
}
