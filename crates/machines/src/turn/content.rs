//! The content of a task, from which its result is made, and the key of that content.
//!
//! Pure. Two results with one key were made from the same prompt or command, by the same agents
//! with the same models and tools. The names of tasks, their order and their number do not count.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::Program;
use crate::id::Name;
use crate::message::Json;
use crate::message::media::Media;
use crate::permission::Permissions;
use crate::schema::Schema;
use crate::spec::acceptance::{Check, CheckWork, Loop};
use crate::spec::tool::CommandTool;
use crate::spec::{AgentSpec, ModelSpec, TaskSpec, ThinkingMode};
use crate::spec::{OutputFormat, Reach};

/// Everything that a task's result is made from.
#[derive(Clone, Debug, Serialize)]
pub struct Content<'a> {
    program: &'a Program,
    output: OutputFormat,
    env: &'a BTreeMap<String, String>,
    agents: BTreeMap<&'a Name, VisibleAgent<'a>>,
    models: BTreeMap<&'a Name, VisibleModel<'a>>,
    /// The tools of the configuration that these agents have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tools: BTreeMap<&'a Name, VisibleTool<'a>>,
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
    /// The folder whose place does not count.
    #[serde(skip)]
    results: Option<&'a Path>,
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
    #[serde(skip_serializing_if = "Reach::is_nobody")]
    messages: Reach,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    background: bool,
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

/// The part of a tool's definition that can affect a result.
#[derive(Clone, Debug, Serialize)]
struct VisibleTool<'a> {
    description: &'a str,
    command: &'a [String],
    input: &'a Schema,
    folder: &'a Path,
    env: &'a BTreeMap<String, String>,
    max_output_bytes: usize,
}

/// Where the definitions that a task names are found.
pub trait Definitions<'a> {
    /// Returns the definition of an agent.
    fn agent(&self, name: &Name) -> Option<&'a AgentSpec>;
    /// Returns the definition of a model.
    fn model(&self, name: &Name) -> Option<&'a ModelSpec>;
    /// Returns the definition of a tool of the configuration.
    fn tool(&self, name: &Name) -> Option<&'a CommandTool>;
}

impl<'a> Content<'a> {
    /// Collects the content of a task's program with these environment variables. Includes every agent
    /// that checks the answer, and all that these agents can reach by delegation, with their models, those
    /// that stand in for them, and their tools.
    pub fn of(
        program: &'a Program,
        task: &'a TaskSpec,
        env: &'a BTreeMap<String, String>,
        definitions: &impl Definitions<'a>,
    ) -> Self {
        let (mut agents, mut models, mut tools) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
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
            let known = definitions.agent(name).filter(|_| !agents.contains_key(name));
            let Some(spec) = known else { continue };
            open.extend(&spec.sub_agents);
            agents.insert(&spec.name, VisibleAgent::of(spec));
            if let Some(spec) = definitions.model(&spec.model) {
                models.insert(&spec.name, VisibleModel::of(spec));
                let others = spec.fallbacks.iter().filter_map(|name| definitions.model(name));
                models.extend(others.map(|spec| (&spec.name, VisibleModel::of(spec))));
            }
            let own = spec.tools.iter().filter_map(|name| definitions.tool(name));
            tools.extend(own.map(|tool| (&tool.name, VisibleTool::of(tool))));
        }
        Self {
            program,
            output: task.output,
            env,
            agents,
            models,
            tools,
            output_schema: rules.schema.as_ref(),
            checks: &rules.checks,
            repeat: rules.repeat.as_ref(),
            waited: Vec::new(),
            results: None,
        }
    }

    /// Adds how the tasks ended for which the task waited.
    #[must_use]
    pub fn after(self, waited: Vec<String>) -> Self {
        Self { waited, ..self }
    }

    /// Sets the folder of the run's stored results. A path into it tells only what it names, which is the hash
    /// of an output: where the folder lies differs from run to run.
    #[must_use]
    pub fn with_results(self, results: &'a Path) -> Self {
        Self { results: Some(results), ..self }
    }

    /// Returns the key of this content: 32 hexadecimal digits of its blake3 hash.
    #[must_use]
    pub fn key(&self) -> String {
        // The text of the document, without the tree: it is made for every task.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        if let Some(folder) = self.results.and_then(Path::to_str).filter(|path| path.len() > 1) {
            let written = serde_json::to_string(&format!("{folder}/")).unwrap_or_default();
            let written = written.trim_matches('"');
            if text.contains(written) {
                // A character that no text of JSON holds as it is, so no other content has this key.
                text = text.replace(written, "\u{1}");
            }
        }
        // 32 digits of 4 bits are 128 bits: no collision within anything one run can make.
        blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
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
            messages: spec.messages,
            background: spec.background,
        }
    }
}

impl<'a> VisibleTool<'a> {
    fn of(tool: &'a CommandTool) -> Self {
        Self {
            description: &tool.description,
            command: &tool.command,
            input: &tool.input_schema,
            folder: &tool.folder,
            env: &tool.env,
            max_output_bytes: tool.max_output_bytes,
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

    /// Definitions to be found.
    #[derive(Default)]
    struct Known {
        agents: Vec<AgentSpec>,
        models: Vec<ModelSpec>,
        tools: Vec<CommandTool>,
    }

    impl<'a> Definitions<'a> for &'a Known {
        fn agent(&self, name: &Name) -> Option<&'a AgentSpec> {
            self.agents.iter().find(|agent| agent.name == *name)
        }
        fn model(&self, name: &Name) -> Option<&'a ModelSpec> {
            self.models.iter().find(|model| model.name == *name)
        }
        fn tool(&self, name: &Name) -> Option<&'a CommandTool> {
            self.tools.iter().find(|tool| tool.name == *name)
        }
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
            let none = Known::default();
            let content = Content::of(&program, &task, &env, &&none);
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
            let known = Known { agents: vec![a.clone(), b.clone()], ..Known::default() };
            let task = TaskSpec::new(name("t"), Work::Command { run: String::new() });
            let content = Content::of(&program, &task, &env, &&known);
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

    #[test]
    fn where_the_results_lie_does_not_count_and_what_a_path_names_does() {
        let key = |prompt: &str, results: &str| {
            let program = Program::Model { agent: name("a"), prompt: prompt.into() };
            let (task, env) =
                (TaskSpec::new(name("t"), Work::Command { run: String::new() }), BTreeMap::new());
            Content::of(&program, &task, &env, &&Known::default())
                .with_results(Path::new(results))
                .key()
        };
        let one = key("read /w/runs/1/results/ab12", "/w/runs/1/results");
        assert_eq!(one, key("read /w/runs/2/results/ab12", "/w/runs/2/results"));
        assert_eq!(key("read /w \"2\"/ab12", "/w \"2\""), one);
        for other in
            ["read /w/runs/2/results/ab13", "read /w/runs/1/results/ab12", "read \u{1}ab12"]
        {
            assert_ne!(one, key(other, "/w/runs/2/results"), "{other}");
        }
        assert_eq!(key("go", "/w/runs/1/results"), key("go", "/"));
    }

    #[test]
    fn the_tools_of_an_agent_and_the_models_that_stand_in_count() {
        let tool = |called: &str, description: &str| CommandTool {
            name: name(called),
            description: description.to_owned(),
            command: vec!["sh".to_owned(), "my.sh".to_owned()],
            input_schema: Schema::new(json!({ "type": "object" })).expect("a schema"),
            idempotent: false,
            on_unknown: None,
            timeout: std::time::Duration::from_secs(1),
            max_output_bytes: 1_000,
            folder: Default::default(),
            env: BTreeMap::new(),
        };
        let user = AgentSpec { tools: vec![name("mine")], ..agent("a", &[]) };
        let model = |called: &str, fallbacks: &[&str]| ModelSpec {
            name: name(called),
            provider: name("p"),
            model: called.to_owned(),
            context_window: 1_000,
            max_output_tokens: 100,
            temperature: None,
            top_p: None,
            reasoning_effort: None,
            seed: None,
            price: None,
            thinking: Default::default(),
            thinking_mode: None,
            media: Vec::new(),
            fallbacks: fallbacks.iter().map(|model| name(model)).collect(),
            fallback_cooldown: std::time::Duration::ZERO,
            capabilities: Default::default(),
            extra_body: None,
        };
        let known = || Known {
            agents: vec![user.clone()],
            models: vec![model("m", &["spare"]), model("spare", &[])],
            tools: vec![tool("mine", "x"), tool("other", "x")],
        };
        let program = Program::Model { agent: name("a"), prompt: "go".into() };
        let (task, env) =
            (TaskSpec::new(name("t"), Work::Command { run: String::new() }), BTreeMap::new());
        let key = |known: &Known| Content::of(&program, &task, &env, &known).key();
        let before = key(&known());
        type Change = fn(&mut Known);
        let changes: [(Change, bool); 7] = [
            (|known| known.tools[0].description.push('y'), true),
            (|known| known.tools[0].command = vec!["echo".to_owned()], true),
            (|known| known.tools[0].input_schema = Schema::new(json!({})).expect("one"), true),
            (|known| drop(known.tools[0].env.insert("A".to_owned(), "b".to_owned())), true),
            (|known| known.models[1].model = "three".to_owned(), true),
            (|known| known.tools[1].description.push('y'), false),
            (|known| known.tools[0].timeout *= 2, false),
        ];
        for (number, (change, counts)) in changes.into_iter().enumerate() {
            let mut changed = known();
            change(&mut changed);
            assert_eq!(key(&changed) != before, counts, "change {number}");
        }
    }
}
