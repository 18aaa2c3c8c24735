//! Finds the tasks, agents and models that a run of this configuration would use.

use std::collections::{BTreeMap, BTreeSet};

use super::Setting;
use super::diagnostic::{Place, Text};
use super::shape::Item;
use super::tasks::report_disabled;
use crate::context::compaction::CompactionSpec;
use crate::id::Name;
use crate::own_tool::OwnTool;
use crate::spec::{AgentSpec, ModelSpec, TaskSpec};

/// Reports a file without a task that runs.
pub(super) fn has_tasks(setting: Setting<'_>, text: &Text) {
    let (message, help) = match setting.raw.tasks.iter().next() {
        // What stands in their place is reported there.
        None if setting.raw.tasks.is_wrong() => return,
        None => ("the file has no tasks", "add a [tasks.NAME]"),
        Some(_) if setting.raw.tasks.values().any(|(_, task)| *task.enabled) => return,
        Some(_) => ("no task of the file is enabled", "remove `enabled = false` from one"),
    };
    setting.problems.error("no_tasks", &Place::start(text), message, help);
}

/// Returns the names in `entry`, and reports unknown ones.
pub(super) fn entry(setting: Setting<'_>) -> Vec<Name> {
    let mut all = Vec::new();
    for Item { value: name, at } in setting.raw.entry.iter() {
        setting.raw.tasks.must_have("unknown_task", name, &at.value, setting.problems);
        if setting.raw.tasks.value(name).is_some_and(|task| !*task.enabled) {
            report_disabled(name, &at.value, setting.problems);
        }
        all.extend(Name::new(name));
    }
    all
}

/// Returns the models of the agents that the plan can start, those that stand in for them, and that of the
/// compactor. The plan is
/// the targets with their dependencies, else `entry` with its dependencies, else all tasks.
pub(super) fn models_in_use(
    setting: Setting<'_>,
    tasks: &[TaskSpec],
    agents: &BTreeMap<Name, AgentSpec>,
    compaction: &CompactionSpec,
    entry: &[Name],
    models: &BTreeMap<Name, ModelSpec>,
) -> BTreeSet<Name> {
    let by_name: BTreeMap<&str, &TaskSpec> = tasks.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut open: Vec<&str> = match (setting.sources.targets.as_slice(), entry) {
        ([], []) => by_name.keys().copied().collect(),
        ([], entry) => entry.iter().map(Name::as_str).collect(),
        (targets, _) => targets.iter().map(String::as_str).collect(),
    };
    let mut seen = BTreeSet::new();
    let mut at_work = Vec::new();
    while let Some(name) = open.pop() {
        let Some(task) = by_name.get(name).filter(|_| seen.insert(name)) else { continue };
        open.extend(task.depends_on.iter().map(Name::as_str));
        at_work.extend(task.agents());
    }
    let mut team = team(agents, at_work);
    if team.values().any(|agent| proposes(agent)) {
        // The tasks that it proposes may name any agent.
        team = agents.iter().collect();
    }
    let mut used: BTreeSet<_> = team.values().map(|agent| agent.model.clone()).collect();
    if !used.is_empty() && compaction.preset.name != "off" {
        used.extend(compaction.model.clone());
    }
    // Those that stand in are called without a question, so they need their keys and prices too.
    let stand_ins = used.iter().filter_map(|name| models.get(name)).flat_map(|m| &m.fallbacks);
    let stand_ins: Vec<Name> = stand_ins.cloned().collect();
    used.extend(stand_ins);
    used
}

/// Returns true if one of the agents may propose tasks during a run.
pub(super) fn grows(agents: &BTreeMap<Name, AgentSpec>) -> bool {
    agents.values().any(proposes)
}

fn proposes(agent: &AgentSpec) -> bool {
    agent.tools.iter().any(|tool| tool.as_str() == OwnTool::ProposeTasks.name())
}

/// Returns the given agents and all agents that they can start, directly or through others.
pub(super) fn team<'a>(
    agents: &'a BTreeMap<Name, AgentSpec>,
    mains: impl IntoIterator<Item = &'a Name>,
) -> BTreeMap<&'a Name, &'a AgentSpec> {
    let (mut found, mut open) = (BTreeMap::new(), mains.into_iter().collect::<Vec<_>>());
    while let Some(name) = open.pop() {
        let Some((name, agent)) = agents.get_key_value(name) else { continue };
        if found.insert(name, agent).is_none() {
            open.extend(&agent.sub_agents);
        }
    }
    found
}
