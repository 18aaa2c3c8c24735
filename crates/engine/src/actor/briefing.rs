//! Briefings: the parts of an agent that all agents of one definition share.
//!
//! The system prompt, the tools and their rendering for the wire are the larger part of an idle
//! agent. They are made once and shared, so that an idle agent takes only a few kilobytes and the
//! head of every request is the same byte for byte.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Once};

use parking_lot::Mutex;

use super::model_service::ModelService;
use super::warm_up::Prefix;
use crate::context::layers::preset::Preset;
use crate::context::measure;
use crate::id::Name;
use crate::model::Head;
use crate::own_tool::{OwnTool, Wording};
use crate::spec::sandbox::Confinement;
use crate::spec::{AgentSpec, Limits};
use crate::tool::workspace::Workspace;
use crate::tool::{ToolSpec, Toolbox, skills};

/// The presets that offer `recall` to every agent. The presets that reproduce a teaching design
/// keep the tools of that design; there, and under `off`, an agent has `recall` only if it lists
/// it.
const RECALLING: [&str; 2] = ["adaptive", "production"];

/// A definition with everything that its requests begin with.
#[derive(Debug)]
pub struct Briefing {
    /// The definition.
    pub spec: Arc<AgentSpec>,
    /// Its model.
    pub model: Arc<ModelService>,
    /// The tools in its requests, sorted by name.
    pub tools: Arc<[ToolSpec]>,
    /// The names of these tools, in the same order.
    pub tool_names: Vec<Name>,
    /// The system prompt of its requests.
    pub system: String,
    /// The front of its requests (system prompt and tools), rendered for the wire.
    pub head: Head,
    /// Estimated tokens of that front.
    pub head_tokens: u64,
    /// The front as an entry of the provider's cache.
    pub(super) prefix: Prefix,
    /// Makes the warning that the provider counts far fewer tokens than are sent appear only once.
    pub(super) doubt: Once,
}

/// The briefings of a run, by definition and by the agent's position in the tree of agents.
#[derive(Debug, Default)]
pub struct Briefings(Mutex<HashMap<Key, Arc<Briefing>>>);

/// The definition of an agent, its position, and the definitions of the agents that bind it.
type Key = (Name, TreePosition, Vec<Name>);

/// The properties of an agent's position in the tree of agents that its tools depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TreePosition {
    /// True if the agent is offered `delegate`. At the depth limit it is not, so that no model
    /// tries in vain.
    delegates: bool,
    /// True for a task's own agent, which may be offered `snip`.
    is_main: bool,
}

impl Briefings {
    /// Returns the briefing of an agent of this definition at this delegation depth. It is made at
    /// the first request; then the files of its skills are read. `lineage` are the definitions of
    /// the agents for which it works.
    pub(super) fn of(
        &self,
        stock: &Stock<'_>,
        models: &HashMap<Name, Arc<ModelService>>,
        definition: &Name,
        depth: u32,
        lineage: &[Name],
    ) -> Result<Arc<Briefing>, String> {
        let known = |name: &Name| {
            stock.agents.get(name).ok_or_else(|| format!("no agent `{name}`")).cloned()
        };
        let mut spec = known(definition)?;
        let above = lineage.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let binds = |above: &&Arc<AgentSpec>| {
            let confined = above.confinement != Confinement::default();
            confined || !above.permissions.own.deny.is_empty()
        };
        let above: Vec<_> = above.iter().filter(binds).collect();
        let binding = above.iter().map(|above| above.name.clone()).collect();
        let key = (definition.clone(), stock.place(&spec, depth), binding);
        if !above.is_empty() {
            let permissions = spec.permissions.below(above.iter().map(|above| &above.permissions));
            let confinements = above.iter().map(|above| above.confinement);
            let confinement = confinements.fold(spec.confinement, Confinement::and);
            spec = Arc::new(AgentSpec { permissions, confinement, ..(*spec).clone() });
        }
        // Held while the briefing is made, so that many agents that start at once make it only
        // once.
        let mut briefings = self.0.lock();
        if let Some(known) = briefings.get(&key) {
            return Ok(known.clone());
        }
        let model = models.get(&spec.model);
        let model = model.ok_or_else(|| format!("no model `{}`", spec.model))?.clone();
        let Front { system, tools } = stock.front(&spec, depth);
        let head = model.model.head(&model.spec, &system, &tools);
        let tool_names = tools.iter().map(|tool| tool.name.clone()).collect();
        let head_tokens = measure::estimate(&String::from_utf8_lossy(&head.0));
        let (tools, doubt) = (tools.into(), Once::new());
        let prefix = Prefix::new(head_tokens, model.spec.price.as_ref());
        let briefing =
            Briefing { spec, model, tools, tool_names, system, head, head_tokens, prefix, doubt };
        let briefing = Arc::new(briefing);
        briefings.insert(key, briefing.clone());
        Ok(briefing)
    }
}

/// The front of an agent's requests, before it is rendered for a wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// The system prompt.
    pub system: String,
    /// The tools, sorted by name, so that the prefix of the requests does not change.
    pub tools: Vec<ToolSpec>,
}

/// The inputs from which the fronts of a run's agents are made.
#[derive(Clone, Copy, Debug)]
pub struct Stock<'a> {
    /// The agent definitions.
    pub agents: &'a BTreeMap<Name, Arc<AgentSpec>>,
    /// The tools that do work outside the agents.
    pub tools: &'a Toolbox,
    /// The workspace, which contains the skills.
    pub workspace: &'a Workspace,
    /// The preset, which decides about `recall`, `snip` and additions to the system prompt.
    pub preset: &'a Preset,
    /// The limits of the run, which bound the delegation depth.
    pub limits: &'a Limits,
}

impl Stock<'_> {
    fn place(&self, spec: &AgentSpec, depth: u32) -> TreePosition {
        let delegates = !spec.sub_agents.is_empty() && depth < self.limits.max_depth;
        TreePosition { delegates, is_main: depth == 0 }
    }

    /// Makes the front of the requests of an agent of this definition at this delegation depth.
    #[must_use]
    pub fn front(&self, spec: &AgentSpec, depth: u32) -> Front {
        let known_skills = skills::describe(self.workspace, &spec.skills);
        let mut system = system_prompt(spec, &known_skills);
        if !self.preset.system_addition.is_empty() {
            system.push_str("\n\n");
            system.push_str(&self.preset.system_addition);
        }
        Front { system, tools: self.offered_tools(spec, self.place(spec, depth)) }
    }

    /// Returns the tools that an agent is offered, sorted by name. `recall` is added under the
    /// presets that offer it to every agent ([`RECALLING`]), but not for an agent without tools: it
    /// has only one turn, so nothing leaves its view.
    fn offered_tools(&self, spec: &AgentSpec, place: TreePosition) -> Vec<ToolSpec> {
        let known = spec.sub_agents.iter().filter_map(|name| self.agents.get(name));
        let helpers: Vec<_> = known.map(|a| (a.name.as_str(), a.description.as_str())).collect();
        let wording = Wording {
            helpers: place.delegates.then_some(&helpers),
            background: spec.background,
            compact: &self.preset.compact_tool,
            snip: self.preset.snip_tool.as_ref().filter(|_| place.is_main),
        };
        let named = spec.tools.iter().filter_map(|name| match self.tools.get(name.as_str()) {
            Some(tool) => Some(tool.spec().clone()),
            None => OwnTool::named(name.as_str())?.spec(&wording),
        });
        let mut tools: Vec<_> = named.collect();
        tools.extend(OwnTool::Delegate.spec(&wording));
        if !tools.is_empty() && RECALLING.contains(&self.preset.name.as_str()) {
            tools.extend(OwnTool::Recall.spec(&wording));
        }
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools.dedup_by(|a, b| a.name == b.name);
        tools
    }
}

fn system_prompt(spec: &AgentSpec, skills: &[(String, String)]) -> String {
    let mut prompt = spec.instructions.clone();
    if !skills.is_empty() {
        prompt.push_str("\n\nSkills that you can read with load_skill:\n");
        for (name, description) in skills {
            prompt.push_str(&format!("- {name}: {description}\n"));
        }
    }
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(preset: &str, tools: &[&str]) -> Vec<String> {
        offered_at(0, &Preset { name: preset.to_owned(), ..Preset::three_layer() }, tools)
    }

    fn offered_at(depth: u32, preset: &Preset, tools: &[&str]) -> Vec<String> {
        let name = |text: &str| Name::new(text).expect("a name");
        let tools = tools.iter().map(|tool| name(tool)).collect();
        let spec = AgentSpec { tools, ..AgentSpec::new(name("worker"), name("m")) };
        let root = tempfile::tempdir().expect("a directory");
        let stock = Stock {
            agents: &BTreeMap::new(),
            tools: &Toolbox::built_in(),
            workspace: &Workspace::open(root.path()).expect("opens"),
            preset,
            limits: &Limits::default(),
        };
        stock.front(&spec, depth).tools.iter().map(|tool| tool.name.to_string()).collect()
    }

    #[test]
    fn recall_comes_along_where_no_documented_list_of_tools_forbids_it() {
        assert_eq!(offered("adaptive", &["grep"]), ["grep", "recall"]);
        assert_eq!(offered("production", &["recall", "todo_write"]), ["recall", "todo_write"]);
        assert_eq!(offered("adaptive", &[]), [""; 0]);
        assert_eq!(offered("three-layer", &["grep"]), ["grep"]);
        assert_eq!(offered("three-layer", &["grep", "recall"]), ["grep", "recall"]);
        assert_eq!(offered("off", &["grep"]), ["grep"]);
    }

    #[test]
    fn only_a_main_agent_may_drop_the_middle_of_its_view() {
        let preset = Preset::production();
        assert_eq!(offered_at(0, &preset, &["snip"]), ["recall", "snip"]);
        assert_eq!(offered_at(1, &preset, &["snip"]), [""; 0]);
        assert_eq!(offered_at(0, &Preset::four_layer(), &["snip"]), [""; 0]);
    }
}
