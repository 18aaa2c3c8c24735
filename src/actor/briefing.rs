//! What all agents of one definition have in common: made once, shared by thousands.
//!
//! The system prompt, the tools and their rendering for the wire are the larger part of an idle
//! agent; sharing them keeps one at a few kilobytes, and the head of every request byte-identical.

use std::collections::HashMap;
use std::sync::{Arc, Once};

use parking_lot::Mutex;

use super::{ModelService, Services};
use crate::context::measure;
use crate::id::Name;
use crate::model::Head;
use crate::spec::AgentSpec;
use crate::tool::{ToolSpec, skills, steps};

/// A definition made ready to talk.
#[derive(Debug)]
pub struct Briefing {
    /// The definition.
    pub spec: Arc<AgentSpec>,
    /// Its model.
    pub model: Arc<ModelService>,
    /// The tools that its requests name, sorted.
    pub tools: Arc<[ToolSpec]>,
    /// The front of its requests.
    pub head: Head,
    /// The tokens of that front, by estimate.
    pub head_tokens: u64,
    /// The warning that its provider counts far fewer tokens than are sent: once is enough.
    pub(super) doubt: Once,
}

/// The briefings of a run, by definition and by whether the agent may delegate where it stands.
#[derive(Debug, Default)]
pub struct Briefings(Mutex<HashMap<(Name, bool), Arc<Briefing>>>);

/// The briefing of an agent of this definition at this delegation depth.
///
/// # Errors
/// When the definition or its model does not exist.
pub fn of(services: &Services, definition: &Name, depth: u32) -> Result<Arc<Briefing>, String> {
    let spec = services.agents.get(definition).ok_or_else(|| format!("no agent `{definition}`"))?;
    // At the depth limit the tool is absent, so that no model tries in vain.
    let delegates = !spec.sub_agents.is_empty() && depth < services.limits.max_depth;
    let key = (definition.clone(), delegates);
    let mut briefings = services.briefings.0.lock();
    if let Some(known) = briefings.get(&key) {
        return Ok(known.clone());
    }
    let model = services.models.get(&spec.model);
    let model = model.ok_or_else(|| format!("no model `{}`", spec.model))?.clone();
    let tools: Arc<[ToolSpec]> = offered_tools(services, spec, delegates).into();
    let known_skills = skills::describe(&services.workspace, &spec.skills);
    let head = model.model.head(&model.spec, &system_prompt(spec, &known_skills), &tools);
    let head_tokens = measure::estimate(&String::from_utf8_lossy(&head.0));
    let (spec, doubt) = (spec.clone(), Once::new());
    let briefing = Arc::new(Briefing { spec, model, tools, head, head_tokens, doubt });
    briefings.insert(key, briefing.clone());
    Ok(briefing)
}

/// The tools that a request names, sorted, so that the prefix is stable.
fn offered_tools(services: &Services, spec: &AgentSpec, delegates: bool) -> Vec<ToolSpec> {
    let named = spec.tools.iter().filter_map(|name| match services.tools.get(name.as_str()) {
        Some(tool) => Some(tool.spec().clone()),
        None => steps::named(name.as_str()),
    });
    let mut tools: Vec<_> = named.collect();
    if delegates {
        let known = spec.sub_agents.iter().filter_map(|name| services.agents.get(name));
        let helpers: Vec<_> = known.map(|a| (a.name.as_str(), a.description.as_str())).collect();
        tools.push(steps::delegate(&helpers));
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    tools
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
