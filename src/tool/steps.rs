//! Descriptions of the tools that are steps of the agent itself: `delegate`, `compact`, `snip`,
//! `recall`, `todo_write`, `give_up`, `ask_person` and `propose_tasks`.
//!
//! Owns their specs, arguments and answers, and performs nothing: that needs the agent's own state
//! or the supervisor. Imports from `context` what the presets say of `compact` and `snip`, and the
//! query of `recall`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolError, ToolOutput, ToolSpec};
use crate::context::layers::preset::{CompactTool, Preset, SnipTool};
use crate::context::recall::{Query, RECALL_TOOL, Wanted};
use crate::duration;
use crate::id::Name;
use crate::message::Json;
use crate::schema::Schema;
use crate::turn::{ASK_PERSON_TOOL, Effect, GIVE_UP_TOOL, PROPOSE_TASKS_TOOL};

/// The arguments of `delegate`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegateInput {
    /// Agent definition for the child agent.
    pub agent: Name,
    /// Task for the child agent, as its first user message.
    pub prompt: String,
    /// Three to five words for people.
    #[serde(default)]
    pub description: Option<String>,
    /// The longest time that the child may take, as in `agents.toml`: `90s`, `5m`.
    #[serde(default)]
    pub timeout: Option<String>,
    /// JSON Schema that its answer must fit.
    #[serde(default)]
    pub output_schema: Option<Value>,
}

/// The most bytes of a schema for the answer of a child: its prompt repeats it.
const SCHEMA_BYTES: usize = 32 * 1024;

impl DelegateInput {
    /// Returns the longest time that the child may take.
    ///
    /// # Errors
    /// Returns an error if it is not a duration above zero.
    pub fn time_limit(&self) -> Result<Option<Duration>, ToolError> {
        let Some(text) = &self.timeout else { return Ok(None) };
        let limit = duration::parse(text).filter(|limit| !limit.is_zero());
        let bad =
            || format!("`timeout` cannot be `{text}`: write a duration such as `90s` or `5m`");
        limit.map(Some).ok_or_else(|| ToolError::Arguments(bad()))
    }

    /// Returns the schema that the answer must fit.
    ///
    /// # Errors
    /// Returns an error if it is no JSON Schema of the draft 2020-12, or too long.
    pub fn schema(&self) -> Result<Option<Json>, ToolError> {
        let Some(document) = &self.output_schema else { return Ok(None) };
        let bad = |why: String| ToolError::Arguments(format!("`output_schema`: {why}"));
        let encoded = Json::encode(document);
        if encoded.as_str().len() > SCHEMA_BYTES {
            let bytes = encoded.as_str().len();
            return Err(bad(format!("it has {bytes} bytes, more than {SCHEMA_BYTES}")));
        }
        Schema::new(document.clone()).map_err(bad)?;
        Ok(Some(encoded))
    }
}

/// One item of a todo list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoItem {
    /// The work to do.
    pub content: String,
    /// State of the work.
    pub status: TodoStatus,
}

/// The state of a todo item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Completed,
}

/// The arguments of `todo_write`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoInput {
    /// The whole list; it replaces the previous one.
    pub todos: Vec<TodoItem>,
}

impl TodoInput {
    /// Returns the text that the model reads in answer.
    #[must_use]
    pub fn answer(&self) -> String {
        let count = |status| self.todos.iter().filter(|item| item.status == status).count();
        format!(
            "{} pending, {} in progress, {} completed",
            count(TodoStatus::Pending),
            count(TodoStatus::InProgress),
            count(TodoStatus::Completed)
        )
    }
}

/// The arguments of `give_up`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveUpInput {
    /// The reason why the work cannot be done.
    pub reason: String,
}

impl GiveUpInput {
    /// Returns the answer, which the model does not read unless the task is retried.
    ///
    /// # Errors
    /// Returns an error if the reason is blank.
    pub fn answer(&self) -> Result<ToolOutput, ToolError> {
        match self.reason.trim() {
            "" => Err(ToolError::Arguments("`reason` is blank".to_owned())),
            _ => Ok(ToolOutput::ok("The task ends as failed, with this reason.")),
        }
    }
}

/// The arguments of `ask_person`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskPersonInput {
    /// The question.
    pub question: String,
    /// Answers that the person may choose from.
    #[serde(default)]
    pub choices: Vec<String>,
}

/// The arguments of `propose_tasks`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposeTasksInput {
    /// The tasks as TOML: tables `[tasks.NAME]`, as in `agents.toml`.
    pub tasks: String,
}

/// The arguments of `compact`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactInput {
    /// Things to preserve in the summary.
    #[serde(default)]
    pub focus: Option<String>,
}

/// The arguments of `snip`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnipInput {
    /// Number of the newest messages that stay.
    pub keep: usize,
}

/// The arguments of `recall`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallInput {
    /// Id of a call, or hash of a stored result.
    #[serde(default)]
    pub id: Option<String>,
    /// Text that the wanted lines contain, word for word.
    #[serde(default)]
    pub text: Option<String>,
    /// Regular expression that the wanted lines match.
    #[serde(default)]
    pub regex: Option<String>,
    /// Number of the first message, from 0.
    #[serde(default)]
    pub from: Option<u64>,
    /// Number of the first message after the range.
    #[serde(default)]
    pub to: Option<u64>,
    /// Number of the first character of the answer to return.
    #[serde(default)]
    pub offset: usize,
}

impl RecallInput {
    /// Checks the arguments and returns the query.
    ///
    /// # Errors
    /// Returns an error if the arguments contradict each other, or name nothing to look for.
    pub fn query(self) -> Result<Query, ToolError> {
        let bad = |problem: &str| Err(ToolError::Arguments(problem.to_owned()));
        let regex = |pattern: &str| {
            let regex = regex::Regex::new(pattern);
            regex.map_err(|error| ToolError::Arguments(format!("`regex`: {error}")))
        };
        let has_range = self.from.is_some() || self.to.is_some();
        let wanted = match (self.id, self.text, self.regex) {
            (Some(id), None, None) => Wanted::Result(id),
            (None, Some(text), None) if text.is_empty() => return bad("`text` is empty"),
            (None, Some(text), None) if text.contains('\n') => {
                return bad("`text` has several lines: lines are looked at one by one");
            }
            (None, Some(text), None) => Wanted::Lines(regex(&regex::escape(&text))?),
            (None, None, Some(pattern)) => Wanted::Lines(regex(&pattern)?),
            (None, None, None) if has_range => Wanted::Messages,
            (None, None, None) => return bad("one of `id`, `text`, `regex` and `from` is needed"),
            (Some(_), ..) | (_, Some(_), Some(_)) => {
                return bad("`id`, `text` and `regex` exclude each other");
            }
        };
        let (from, to) = (self.from.unwrap_or(0), self.to.unwrap_or(u64::MAX));
        if from >= to {
            return bad("the range is empty: `to` is the first message after it");
        }
        Ok(Query { wanted, from, to, offset: self.offset })
    }
}

/// Returns the spec of the step tool with this name, if its description needs no list of agents.
/// The preset words those of `compact` and `snip`.
#[must_use]
pub fn named(name: &str, preset: &Preset) -> Option<ToolSpec> {
    match name {
        "compact" => Some(compact(&preset.compact_tool)),
        "snip" => preset.snip_tool.as_ref().map(snip),
        RECALL_TOOL => Some(recall()),
        "todo_write" => Some(todo_write()),
        GIVE_UP_TOOL => Some(give_up()),
        ASK_PERSON_TOOL => Some(ask_person()),
        PROPOSE_TASKS_TOOL => Some(propose_tasks()),
        _ => None,
    }
}

/// Returns the spec of `delegate` for an agent that may delegate to these agents, each a name and a
/// description.
#[must_use]
pub fn delegate(helpers: &[(&str, &str)]) -> ToolSpec {
    let mut description = String::from(
        "Gives a bounded job to another agent, which works with a fresh context and answers with \
         its result. Several calls in one message run at the same time. Put everything that the \
         agent needs to know into the prompt. Agents:",
    );
    for (name, what) in helpers {
        description.push_str(&format!("\n- {name}: {what}"));
    }
    let names: Vec<_> = helpers.iter().map(|(name, _)| *name).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": names, "description": "Who is to do it"},
            "prompt": {"type": "string", "description": "What is to be done"},
            "description": {"type": "string", "description": "Three to five words for people"},
            "timeout": {"type": "string", "description": "The longest time it may take, like 90s or 5m"},
            "output_schema": {
                "type": "object",
                "description": "JSON Schema (draft 2020-12) that its answer, a JSON document, must fit",
            },
        },
        "required": ["agent", "prompt"],
        "additionalProperties": false,
    });
    // The supervisor knows each child by the key of the call, so a repeated call finds the child
    // that it started before.
    spec("delegate", &description, &schema, Effect::Keyed)
}

fn give_up() -> ToolSpec {
    let description = "Ends the task as failed. Use it when the task cannot be done as asked: \
                       something that it needs is missing or denied, or its conditions \
                       contradict each other. Say what is missing, so that a person can mend it.";
    let schema = json!({
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "Why it cannot be done, and what would help"},
        },
        "required": ["reason"],
        "additionalProperties": false,
    });
    spec(GIVE_UP_TOOL, description, &schema, Effect::Pure)
}

fn ask_person() -> ToolSpec {
    let description = "Asks a person a question and waits for the answer, which may take hours. Use \
                       it only for what you can neither find out nor decide yourself. Put into the \
                       question what the person needs to know: they have not followed your work.";
    let choices = json!({
        "type": "array",
        "items": {"type": "string"},
        "description": "Answers to choose from, if there are few; the person may give another one",
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The question"},
            "choices": choices,
        },
        "required": ["question"],
        "additionalProperties": false,
    });
    // The question is known by the key of the call, so a repeated call finds its answer.
    spec(ASK_PERSON_TOOL, description, &schema, Effect::Keyed)
}

fn propose_tasks() -> ToolSpec {
    let description = "Adds tasks to the run that you work in. Other agents and commands do them after \
        your answer or beside you; you do not wait for them. A person may have to approve them first, \
        which may take hours. Write them as TOML, a table for each task:\n\
        [tasks.NAME]\nagent = \"AGENT\"\nprompt = \"\"\"What is to be done, with all that the agent needs to \
        know.\"\"\"\ndepends_on = [\"OTHER\"]\n\
        A prompt may hold {{ tasks.OTHER.output }} of a task that it depends on. For a list of things of \
        the same kind write one task with foreach = \"tasks.OTHER.output\" (a task whose output is a JSON \
        list) and {{ item }} in its prompt; {{ tasks.NAME.outputs }} is then the list of its results. Let \
        one task that depends on the others put their results together.";
    let tasks = json!({"type": "string", "description": "The tasks as TOML"});
    let schema = json!({
        "type": "object",
        "properties": {"tasks": tasks},
        "required": ["tasks"],
        "additionalProperties": false,
    });
    // The supervisor knows the tasks by the key of the call, so a repeated call adds them once.
    spec(PROPOSE_TASKS_TOOL, description, &schema, Effect::Keyed)
}

fn compact(tool: &CompactTool) -> ToolSpec {
    let properties = match tool.compact_focus.as_str() {
        "" => json!({}),
        focus => json!({"focus": {"type": "string", "description": focus}}),
    };
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    spec("compact", &tool.compact_description, &schema, Effect::Pure)
}

fn snip(tool: &SnipTool) -> ToolSpec {
    let keep = json!({"type": "integer", "minimum": 1, "description": tool.snip_keep});
    let schema = json!({
        "type": "object",
        "properties": {"keep": keep},
        "required": ["keep"],
        "additionalProperties": false,
    });
    spec("snip", &tool.snip_description, &schema, Effect::Pure)
}

/// Returns the spec of `recall`.
#[must_use]
pub fn recall() -> ToolSpec {
    let number = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
    let text = |what: &str| json!({"type": "string", "description": what});
    let schema = json!({
        "type": "object",
        "properties": {
            "id": text("The id of a tool call, or the hash of a stored result"),
            "text": text("What the lines to be found hold, word for word"),
            "regex": text("A regular expression that the lines to be found match"),
            "from": number("The first message"),
            "to": number("The first message after the range; without it, to the end"),
            "offset": number("The first character of the answer to give, for its later pages"),
        },
        "additionalProperties": false,
    });
    let description = "Gives back, byte for byte, what has left your view. Your conversation is \
        kept whole, its messages numbered from 0. With `id`: the result of that tool call as it \
        was, or the stored result of that hash. With `from` and `to`: these messages, one JSON \
        document a line. With `text` or `regex`: the lines of your conversation that match, with \
        the numbers of their messages; `from` and `to` narrow the search. A long answer comes in \
        pages, and the last line of a page says how to get the next.";
    spec(RECALL_TOOL, description, &schema, Effect::Pure)
}

fn todo_write() -> ToolSpec {
    let item = json!({
        "type": "object",
        "properties": {
            "content": {"type": "string"},
            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
        },
        "required": ["content", "status"],
        "additionalProperties": false,
    });
    let schema = json!({
        "type": "object",
        "properties": {"todos": {"type": "array", "items": item}},
        "required": ["todos"],
        "additionalProperties": false,
    });
    spec("todo_write", "Replaces your todo list by this one.", &schema, Effect::Pure)
}

fn spec(name: &str, description: &str, schema: &serde_json::Value, effect: Effect) -> ToolSpec {
    ToolSpec {
        name: Name::new(name).expect("the names of our own tools are names"),
        description: description.to_owned(),
        input_schema: Json::encode(schema),
        effect,
        reads_only: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::arguments;

    fn problem(input: &serde_json::Value) -> String {
        let input = arguments::<RecallInput>(&Json::encode(input)).and_then(RecallInput::query);
        input.expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_wrong_recall_is_told_what_is_wrong() {
        for (input, expected) in [
            (json!({}), "one of `id`, `text`, `regex` and `from` is needed"),
            (json!({"id": "a", "text": "b"}), "`id`, `text` and `regex` exclude each other"),
            (json!({"text": "a", "regex": "b"}), "`id`, `text` and `regex` exclude each other"),
            (json!({"text": ""}), "`text` is empty"),
            (json!({"text": "a\nb"}), "`text` has several lines: lines are looked at one by one"),
            (json!({"from": 3, "to": 3}), "the range is empty: `to` is the first message after it"),
            (json!({"from": -1}), "invalid value: integer `-1`, expected u64"),
            (json!({"regex": "("}), "`regex`: regex parse error"),
            (json!({"range": 1}), "unknown field `range`"),
        ] {
            let problem = problem(&input);
            assert!(problem.starts_with(&format!("bad arguments: {expected}")), "{problem}");
        }
        let range = RecallInput { to: Some(2), ..RecallInput::default() };
        let query = range.query().expect("a range");
        assert_eq!((query.from, query.to), (0, 2));
    }

    /// Returns the specs of all built-in tools as Markdown, for the documentation.
    fn reference(tools: &[ToolSpec]) -> String {
        let mut page = String::from(
            "# Tools\n\nThe built-in tools, with their arguments as a script or a model writes them; those \
             of [your own](#tools-of-your-own) come last. An agent may call those that it lists in `tools`; `delegate` follows from `sub_agents`, \
             `load_skill` from `skills`, and `recall` and `compact` from the preset of compaction. The \
             effect tells what happens to a call that a crash cut short: a pure or a keyed one is made \
             again, the state of its file decides about a checked one, and the outcome of one that must \
             happen once is told as unknown.\n",
        );
        for tool in tools {
            let schema = tool.input_schema.to_value();
            let effect = format!("{:?}", tool.effect).to_lowercase();
            page.push_str(&format!("\n## `{}`\n\n", tool.name));
            page.push_str(&format!("{}\n\nEffect: {effect}.\n\n", tool.description));
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty())
            else {
                page.push_str("No arguments.\n");
                continue;
            };
            page.push_str("| argument | type | needed | meaning |\n| --- | --- | --- | --- |\n");
            for (name, property) in properties {
                let kind = property["type"].as_str().unwrap_or("any");
                let is_needed = required.iter().any(|needed| needed == name);
                let meaning = property["description"].as_str().unwrap_or_default();
                let needed = if is_needed { "yes" } else { "no" };
                let meaning = meaning.replace('|', "\\|");
                page.push_str(&format!("| `{name}` | {kind} | {needed} | {meaning} |\n"));
            }
        }
        page
    }

    #[test]
    fn the_page_in_the_documentation_is_this_one() {
        let preset = Preset::production();
        let own = crate::tool::bash::tools().into_iter().chain(crate::tool::files::tools());
        let own = own.chain(crate::tool::search::tools()).chain(crate::tool::skills::tools());
        let mut specs: Vec<ToolSpec> = own.map(|tool| tool.spec().clone()).collect();
        let steps =
            ["ask_person", "propose_tasks", "compact", "snip", "recall", "todo_write", "give_up"];
        specs.extend(steps.iter().filter_map(|name| named(name, &preset)));
        specs.push(delegate(&[("helper", "what its `description` says")]));
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tools.md");
        // The rest of the page is written by hand.
        const OWN: &str = "\n## Tools of your own\n";
        let page = std::fs::read_to_string(path).expect("a page");
        let own = page.find(OWN).map_or("", |at| &page[at..]);
        let whole = reference(&specs) + own;
        if std::env::var_os("CALLSHEET_WRITE_DOCS").is_some() {
            std::fs::write(path, &whole).expect("written");
        }
        let same = std::fs::read_to_string(path).is_ok_and(|page| page == whole);
        assert!(same, "stale: CALLSHEET_WRITE_DOCS=1 cargo test --lib steps writes {path}");
    }
}
