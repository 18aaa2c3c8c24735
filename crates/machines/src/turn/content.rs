//! The content of a task, from which its result is made, and the key of that content.
//!
//! Pure. Two results with one key were made from the same prompt or command, by the same agents
//! with the same models and tools. The names of tasks, their order and their number do not count.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Program;
use crate::id::Name;
use crate::message::Json;
use crate::message::media::Media;
use crate::permission::Permissions;
use crate::schema::Schema;
use crate::spec::OutputFormat;
use crate::spec::acceptance::{Check, CheckWork, Loop};
use crate::spec::{AgentSpec, ModelSpec, TaskSpec, ThinkingMode};

/// Everything that a task's result is made from.
#[derive(Clone, Debug, Serialize)]
pub struct Content<'a> {
    program: &'a Program,
    output: OutputFormat,
    env: &'a BTreeMap<String, String>,
    agents: BTreeMap<&'a Name, VisibleAgent<'a>>,
    models: BTreeMap<&'a Name, VisibleModel<'a>>,
    // Only where a task has such rules, so that the keys of earlier runs stay valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Schema>,
    #[serde(skip_serializing_if = "<[Check]>::is_empty")]
    checks: &'a [Check],
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    repeat: Option<&'a Loop>,
    /// How the tasks ended for which the task waited, as far as the program does not say it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waited: Vec<String>,
}

/// The part of an agent's definition that can affect a result.
#[derive(Clone, Debug, Serialize)]
struct VisibleAgent<'a> {
    description: &'a str,
    model: &'a Name,
    instructions: &'a str,
    tools: &'a [Name],
    sub_agents: &'a [Name],
    max_turns: u32,
    permissions: &'a Permissions,
    skills: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Schema>,
}

/// The part of a model's definition that can affect a result.
#[derive(Clone, Debug, Serialize)]
struct VisibleModel<'a> {
    provider: &'a Name,
    model: &'a str,
    max_output_tokens: u64,
    temperature: Option<f64>,
    top_p: Option<f64>,
    reasoning_effort: Option<&'a str>,
    seed: Option<u64>,
    // Left out where they are not set, so that what was recorded before they existed stays the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_mode: Option<ThinkingMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_body: Option<&'a Json>,
    #[serde(skip_serializing_if = "<[Name]>::is_empty")]
    fallbacks: &'a [Name],
    #[serde(skip_serializing_if = "<[Media]>::is_empty")]
    media: &'a [Media],
}

impl<'a> Content<'a> {
    /// Collects the content of a task's program with these environment variables, where definitions
    /// and models are found by name. Includes every agent that checks the answer, and all that these
    /// agents can reach by delegation.
    pub fn of(
        program: &'a Program,
        task: &'a TaskSpec,
        env: &'a BTreeMap<String, String>,
        agent: impl Fn(&Name) -> Option<&'a AgentSpec>,
        model: impl Fn(&Name) -> Option<&'a ModelSpec>,
    ) -> Self {
        let (mut agents, mut models) = (BTreeMap::new(), BTreeMap::new());
        let mut open = match program {
            Program::Model { agent, .. } => vec![agent],
            Program::Command(_) => Vec::new(),
        };
        let rules = &task.acceptance;
        open.extend(rules.checks.iter().filter_map(|check| match &check.work {
            CheckWork::Agent { agent, .. } => Some(agent),
            CheckWork::Command { .. } => None,
        }));
        while let Some(name) = open.pop() {
            let Some(spec) = agent(name).filter(|_| !agents.contains_key(name)) else { continue };
            open.extend(&spec.sub_agents);
            agents.insert(&spec.name, VisibleAgent::of(spec));
            if let Some(spec) = model(&spec.model) {
                models.insert(&spec.name, VisibleModel::of(spec));
            }
        }
        Self {
            program,
            output: task.output,
            env,
            agents,
            models,
            output_schema: rules.schema.as_ref(),
            checks: &rules.checks,
            repeat: rules.repeat.as_ref(),
            waited: Vec::new(),
        }
    }

    /// Adds how the tasks ended for which the task waited.
    #[must_use]
    pub fn after(self, waited: Vec<String>) -> Self {
        Self { waited, ..self }
    }

    /// Returns the key of this content: 32 hexadecimal digits of its blake3 hash.
    #[must_use]
    pub fn key(&self) -> String {
        // The text of the document, without the tree: it is made for every task.
        let text = serde_json::to_vec(self).unwrap_or_default();
        // 32 digits of 4 bits are 128 bits: no collision within anything one run can make.
        blake3::hash(&text).to_hex()[..32].to_owned()
    }

    /// Returns the paths, in dots, of the values that differ from those of another content.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        compare(&self.document(), &other.document(), "", &mut found);
        found
    }

    fn document(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl<'a> VisibleAgent<'a> {
    fn of(spec: &'a AgentSpec) -> Self {
        Self {
            description: &spec.description,
            model: &spec.model,
            instructions: &spec.instructions,
            tools: &spec.tools,
            sub_agents: &spec.sub_agents,
            max_turns: spec.max_turns,
            permissions: &spec.permissions,
            skills: &spec.skills,
            output_schema: spec.output_schema.as_ref(),
        }
    }
}

impl<'a> VisibleModel<'a> {
    fn of(spec: &'a ModelSpec) -> Self {
        Self {
            provider: &spec.provider,
            model: &spec.model,
            max_output_tokens: spec.max_output_tokens,
            temperature: spec.temperature,
            top_p: spec.top_p,
            reasoning_effort: spec.reasoning_effort.as_deref(),
            seed: spec.seed,
            thinking_mode: spec.thinking_mode,
            extra_body: spec.extra_body.as_ref(),
            fallbacks: &spec.fallbacks,
            media: &spec.media,
        }
    }
}

fn compare(one: &Value, other: &Value, path: &str, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                compare(&of(a), &of(b), &path, found);
            }
        }
        _ if one != other => found.push(path.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::RestartPolicy;
    use crate::spec::Work;
    use crate::spec::acceptance::Acceptance;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn agent(text: &str, sub_agents: &[&str]) -> AgentSpec {
        let sub_agents = sub_agents.iter().map(|agent| name(agent)).collect();
        let instructions = "x".to_owned();
        AgentSpec { instructions, sub_agents, ..AgentSpec::new(name(text), name("m")) }
    }

    #[test]
    fn the_rules_for_an_answer_count_only_where_there_are_some() {
        let program =
            Program::Command(crate::turn::Command { run: "x".to_owned(), ..Default::default() });
        let task = TaskSpec::new(name("t"), Work::Command { run: "x".to_owned() });
        let text = |acceptance: Acceptance| {
            let (task, env) = (TaskSpec { acceptance, ..task.clone() }, BTreeMap::new());
            let content = Content::of(&program, &task, &env, |_| None, |_| None);
            serde_json::to_string(&content).expect("JSON")
        };
        let plain = text(Acceptance::default());
        let before = r#"{"program":{"command":{"run":"x","env":{}}},"output":"text","env":{},"agents":{},"models":{}}"#;
        assert_eq!(plain, before, "keys of earlier runs stay valid");
        let judged = |n: u32| Acceptance {
            schema: (n == 1).then(|| Schema::new(json!({})).expect("a schema")),
            checks: Vec::from_iter((n == 2).then(|| Check {
                work: CheckWork::Command { run: "true".to_owned(), env: BTreeMap::new() },
                timeout: None,
            })),
            repeat: (n == 3).then(|| Loop { until: "output".to_owned(), max_iterations: 2 }),
            retries: n,
        };
        let texts: std::collections::BTreeSet<_> = (0..4).map(|n| text(judged(n))).collect();
        assert!(texts.len() == 4 && texts.contains(&plain), "retries do not count: {texts:?}");
    }

    #[test]
    fn a_helper_counts_and_who_has_nothing_to_do_with_it_does_not() {
        let (a, b) = (agent("a", &["b"]), agent("b", &["a"]));
        let other = AgentSpec { instructions: "y".to_owned(), ..b.clone() };
        let restarted =
            AgentSpec { restart: RestartPolicy { max_restarts: 99, ..b.restart }, ..b.clone() };
        let (program, env) =
            (Program::Model { agent: name("a"), prompt: "go".into() }, BTreeMap::new());
        let content = |b: &AgentSpec| {
            let find = |name: &Name| [&a, b].into_iter().find(|agent| agent.name == *name).cloned();
            let found: BTreeMap<_, _> =
                [&a.name, &b.name].map(|n| (n.clone(), find(n).expect("there"))).into();
            let task = TaskSpec::new(name("t"), Work::Command { run: String::new() });
            let content = Content::of(&program, &task, &env, |n| found.get(n), |_| None);
            let text = serde_json::to_string(&content).expect("JSON");
            assert_eq!(text, content.document().to_string(), "keys of earlier runs stay valid");
            (content.key(), content.document())
        };
        assert_eq!(content(&b).0, content(&restarted).0);
        assert_ne!(content(&b).0, content(&other).0);
        let mut found = Vec::new();
        compare(&content(&b).1, &content(&other).1, "", &mut found);
        assert_eq!(found, ["agents.b.instructions"]);
        let (some, more) =
            (json!({ "a": { "x": 1 } }), json!({ "a": { "x": 1, "y": [] }, "b": {} }));
        for (one, other) in [(&some, &more), (&more, &some)] {
            let mut found = Vec::new();
            compare(one, other, "", &mut found);
            assert_eq!(found, ["a.y", "b"]);
        }
    }
}
