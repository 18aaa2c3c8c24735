//! Gives a task that sets `model` or `max_turns` a variant of its agent of its own.
//!
//! The variant is a definition with the name `TASK/AGENT`, so everything that looks a definition up by
//! its name finds it. Scripts see the name of the agent.

use std::collections::BTreeMap;

use super::Setting;
use super::agents::known_model;
use super::diagnostic::NO_HELP;
use crate::id::Name;
use crate::spec::{AgentSpec, ModelSpec, TaskSpec, Work};

/// Adds the variants, and gives them to their tasks.
pub(super) fn apply(
    setting: Setting<'_>,
    models: &BTreeMap<Name, ModelSpec>,
    agents: &mut BTreeMap<Name, AgentSpec>,
    tasks: &mut [TaskSpec],
) {
    for task in tasks {
        let Some(raw) = setting.raw.tasks.value(task.name.as_str()) else { continue };
        if !raw.model.is_set() && !raw.max_turns.is_set() {
            continue;
        }
        known_model(&raw.model, models, setting);
        let Work::Agent { agent, .. } = &mut task.work else {
            for at in [raw.model.at(), raw.max_turns.at()].into_iter().flatten() {
                let message = "`model` and `max_turns` are for agents, and this task has none";
                setting.problems.error("conflict", &at.key, message, NO_HELP);
            }
            continue;
        };
        let Some(spec) = agents.get(&*agent) else { continue };
        let mut spec = spec.clone();
        if let Some(Ok(model)) = raw.model.as_deref().map(Name::new) {
            spec.model = model;
        }
        spec.max_turns = raw.max_turns.unwrap_or(spec.max_turns);
        *agent = task.name.inner(agent);
        spec.name = agent.clone();
        agents.insert(agent.clone(), spec);
    }
}
