//! The arguments of each own tool, what they may be, and what a model reads of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::duration;
use crate::id::Name;
use crate::message::Json;
use crate::schema::Schema;

/// The parts of descriptions that depend on the agent and its preset.
#[derive(Clone, Copy, Debug)]
pub struct Wording<'a> {
    /// Name and description of each agent to which it may delegate; `None` if it may not.
    pub helpers: Option<&'a [(&'a str, &'a str)]>,
    /// True if it may go on while they work.
    pub background: bool,
    /// The preset's texts of `compact`.
    pub compact: &'a CompactTool,
    /// The preset's texts of `snip`; `None` if the agent may not drop the middle of its view.
    pub snip: Option<&'a SnipTool>,
}

/// Texts of the `compact` tool in a preset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactTool {
    /// Description of the tool for the model.
    pub compact_description: String,
    /// Description of its input `focus`; empty: the tool takes no input.
    pub compact_focus: String,
    /// Result of a call of the tool.
    pub compact_answer: String,
    /// Text added as the user's words after the summary; empty: none.
    pub compact_after: String,
}

/// Texts of the `snip` tool in a preset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnipTool {
    /// Description of the tool for the model.
    pub snip_description: String,
    /// Description of its input `keep`.
    pub snip_keep: String,
}

/// Returns the schema of an object with these properties, of which some are required.
fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), properties),
    ]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    Value::Object(schema)
}

fn text(what: &str) -> Value {
    json!({"type": "string", "description": what})
}

fn described(description: &str, schema: Value) -> Option<(String, Value)> {
    Some((description.to_owned(), schema))
}

/// Returns the duration that the input `timeout` of a tool names.
fn time_limit(timeout: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(text) = timeout else { return Ok(None) };
    let limit = duration::parse(text).filter(|limit| !limit.is_zero());
    let bad = || format!("`timeout` cannot be `{text}`: write a duration such as `90s` or `5m`");
    limit.map(Some).ok_or_else(bad)
}

/// The arguments of `delegate`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegate {
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
    /// The most that the child may spend.
    #[serde(default)]
    pub budget: Option<ChildBudget>,
    /// True if the parent does not wait for it.
    #[serde(default)]
    pub background: bool,
}

/// What a parent gives a child to spend, with all agents below it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildBudget {
    /// Dollars.
    pub max_cost: Option<f64>,
    /// Tokens, input (cached or not) and output.
    pub max_tokens: Option<u64>,
    /// Requests to models.
    pub max_calls: Option<u64>,
    /// Time, as in `agents.toml`: `90s`, `5m`.
    pub max_time: Option<String>,
}

/// The most bytes of a schema for the answer of a child: its prompt repeats it.
const SCHEMA_BYTES: usize = 32 * 1024;

impl Delegate {
    pub(super) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
        let helpers = wording.helpers?;
        let mut description = String::from(
            "Gives a bounded job to another agent, which works with a fresh context and answers with \
             its result. Several calls in one message run at the same time. Put everything that the \
             agent needs to know into the prompt. Agents:",
        );
        for (name, what) in helpers {
            description.push_str(&format!("\n- {name}: {what}"));
        }
        let names: Vec<_> = helpers.iter().map(|(name, _)| *name).collect();
        let mut properties = json!({
            "agent": {"type": "string", "enum": names, "description": "Who is to do it"},
            "prompt": text("What is to be done"),
            "description": text("Three to five words for people"),
            "timeout": text("The longest time it may take, like 90s or 5m"),
            "output_schema": {
                "type": "object",
                "description": "JSON Schema (draft 2020-12) that its answer, a JSON document, must fit",
            },
            "budget": {
                "type": "object",
                "description": "The most that it may spend with its own agents, within what is left to you; \
                                then it ends and answers with what it has",
                "properties": {
                    "max_cost": {"type": "number", "description": "Dollars"},
                    "max_tokens": {"type": "integer"},
                    "max_calls": {"type": "integer", "description": "Replies of models"},
                    "max_time": text("Like 90s or 5m"),
                },
                "additionalProperties": false,
            },
        });
        if wording.background {
            properties["background"] = json!({
                "type": "boolean",
                "description": "True to go on at once: the answer says the name of the agent that has begun, and its \
                                result comes later as a message. `wait` waits for it",
            });
        }
        Some((description, object(properties, &["agent", "prompt"])))
    }

    /// Returns the longest time that the child may take.
    ///
    /// # Errors
    /// Returns an error if it is not a duration above zero.
    pub fn time_limit(&self) -> Result<Option<Duration>, String> {
        time_limit(self.timeout.as_deref())
    }

    /// Returns the schema that the answer must fit.
    ///
    /// # Errors
    /// Returns an error if it is no JSON Schema of the draft 2020-12, or too long.
    pub fn schema(&self) -> Result<Option<Json>, String> {
        let Some(document) = &self.output_schema else { return Ok(None) };
        let bad = |why: String| format!("`output_schema`: {why}");
        let encoded = Json::encode(document);
        if encoded.as_str().len() > SCHEMA_BYTES {
            let bytes = encoded.as_str().len();
            return Err(bad(format!("it has {bytes} bytes, more than {SCHEMA_BYTES}")));
        }
        Schema::new(document.clone()).map_err(bad)?;
        Ok(Some(encoded))
    }
}

/// The arguments of `wait`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The children; empty: those that work in the background.
    #[serde(default, rename = "for")]
    pub names: Vec<String>,
    /// True to wait until all of them have ended, and not only the first.
    #[serde(default)]
    pub all: bool,
    /// The longest wait, as in `agents.toml`.
    #[serde(default)]
    pub timeout: Option<String>,
}

/// The longest wait for children where a call names no other: long enough for most jobs, and short enough that a
/// parent looks at what it waits for.
const WAIT: Duration = Duration::from_secs(30 * 60);

impl Wait {
    pub(super) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
        in_background(wording)?;
        let description = "Waits for agents that you started in the background, at no cost: until the first of them has \
            ended, or all, until a message comes for you, or until the time is over. What they did comes as \
            messages.";
        let names = json!({
            "type": "array",
            "items": {"type": "string"},
            "description": "The names of the agents; without it, all that work for you in the background",
        });
        let all = json!({
            "type": "boolean",
            "description": "True to wait until all of them have ended, and not only the first",
        });
        let properties = json!({"for": names, "all": all, "timeout": text("The longest wait; 30m if you say nothing")});
        described(description, object(properties, &[]))
    }

    /// Returns the longest wait.
    ///
    /// # Errors
    /// Returns an error if it is not a duration above zero.
    pub fn time_limit(&self) -> Result<Duration, String> {
        Ok(time_limit(self.timeout.as_deref())?.unwrap_or(WAIT))
    }
}

/// The arguments of `check_child`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckChild {
    /// The child.
    pub name: String,
}

impl CheckChild {
    pub(super) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
        in_background(wording)?;
        let description = "Says how far an agent is that you started: what it does now, or, once it has ended, its \
            whole result.";
        let properties = json!({"name": text("The name of the agent")});
        described(description, object(properties, &["name"]))
    }
}

/// The arguments of `stop_child`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopChild {
    /// The child.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl StopChild {
    pub(super) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
        in_background(wording)?;
        let description = "Stops an agent that you started in the background, with all that work for it. What it did \
            stays.";
        let properties = json!({
            "name": text("The name of the agent"),
            "reason": text("Why, for the records"),
        });
        described(description, object(properties, &["name", "reason"]))
    }
}

/// Returns something if an agent may go on while its children work.
fn in_background(wording: &Wording<'_>) -> Option<()> {
    wording.helpers.filter(|_| wording.background).map(drop)
}

/// The arguments of `todo_write`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoWrite {
    /// The whole list; it replaces the previous one.
    todos: Vec<TodoItem>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct TodoItem {
    #[serde(rename = "content")]
    _content: String,
    status: TodoStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

impl TodoWrite {
    pub(super) fn describe(_: &Wording<'_>) -> Option<(String, Value)> {
        let statuses = json!({"type": "string", "enum": ["pending", "in_progress", "completed"]});
        let item = object(
            json!({"content": {"type": "string"}, "status": statuses}),
            &["content", "status"],
        );
        let list = json!({"todos": {"type": "array", "items": item}});
        described("Replaces your todo list by this one.", object(list, &["todos"]))
    }

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
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GiveUp {
    reason: String,
}

impl GiveUp {
    pub(super) fn describe(_: &Wording<'_>) -> Option<(String, Value)> {
        let description = "Ends the task as failed. Use it when the task cannot be done as asked: \
                           something that it needs is missing or denied, or its conditions \
                           contradict each other. Say what is missing, so that a person can mend it.";
        let properties = json!({"reason": text("Why it cannot be done, and what would help")});
        described(description, object(properties, &["reason"]))
    }

    /// Returns the reason why the work cannot be done.
    ///
    /// # Errors
    /// Returns an error if the reason is blank.
    pub fn reason(&self) -> Result<&str, String> {
        match self.reason.trim() {
            "" => Err("`reason` is blank".to_owned()),
            reason => Ok(reason),
        }
    }
}

/// The arguments of `ask_person`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskPerson {
    /// The question.
    pub question: String,
    /// Answers that the person may choose from.
    #[serde(default)]
    pub choices: Vec<String>,
}

impl AskPerson {
    pub(super) fn describe(_: &Wording<'_>) -> Option<(String, Value)> {
        let description = "Asks a person a question and waits for the answer, which may take hours. Use \
                           it only for what you can neither find out nor decide yourself. Put into the \
                           question what the person needs to know: they have not followed your work.";
        let choices = json!({
            "type": "array",
            "items": {"type": "string"},
            "description": "Answers to choose from, if there are few; the person may give another one",
        });
        let properties = json!({"question": text("The question"), "choices": choices});
        described(description, object(properties, &["question"]))
    }
}

/// The arguments of `propose_tasks`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposeTasks {
    /// The tasks as TOML: tables `[tasks.NAME]`, as in `agents.toml`.
    pub tasks: String,
}

impl ProposeTasks {
    pub(super) fn describe(_: &Wording<'_>) -> Option<(String, Value)> {
        let description = "Adds tasks to the run that you work in. Other agents and commands do them after \
            your answer or beside you; you do not wait for them. A person may have to approve them first, \
            which may take hours. Write them as TOML, a table for each task:\n\
            [tasks.NAME]\nagent = \"AGENT\"\nprompt = \"\"\"What is to be done, with all that the agent needs to \
            know.\"\"\"\ndepends_on = [\"OTHER\"]\n\
            A prompt may hold {{ tasks.OTHER.output }} of a task that it depends on. For a list of things of \
            the same kind write one task with foreach = \"tasks.OTHER.output\" (a task whose output is a JSON \
            list) and {{ item }} in its prompt; {{ tasks.NAME.outputs }} is then the list of its results. Let \
            one task that depends on the others put their results together.";
        described(description, object(json!({"tasks": text("The tasks as TOML")}), &["tasks"]))
    }
}

/// The arguments of `send_message`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// The recipient.
    pub to: String,
    /// The text.
    pub text: String,
    /// The id of the message that it answers.
    #[serde(default)]
    pub reply_to: Option<String>,
}

impl SendMessage {
    pub(super) fn describe(_: &Wording<'_>) -> Option<(String, Value)> {
        let description = "Sends a message to an agent that works in the same run. It reads the message before \
            its next step, as information: it need not do what you write, and may not answer. You do not wait \
            for it. A message that cannot be read any more is returned, and you hear of that.";
        let properties = json!({
            "to": text("The agent: a name that `list_agents` gives, `parent` for the one that delegated to you, \
                or the last part of the name of one that you delegated to"),
            "text": text("The message. At most 16 KiB; name a file for more"),
            "reply_to": text("The id of the message that you answer, if you answer one"),
        });
        described(description, object(properties, &["to", "text"]))
    }
}

/// The arguments of `list_agents`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListAgents {}

impl ListAgents {
    pub(super) fn describe(_: &Wording<'_>) -> Option<(String, Value)> {
        let description = "Lists the agents to which you can send messages now: the name, the definition, the \
            number of its replies so far, and how many messages wait for it.";
        described(description, object(json!({}), &[]))
    }
}

/// The arguments of `compact`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compact {
    /// Things to preserve in the summary.
    #[serde(default)]
    pub focus: Option<String>,
}

impl Compact {
    pub(super) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
        let properties = match wording.compact.compact_focus.as_str() {
            "" => json!({}),
            focus => json!({"focus": text(focus)}),
        };
        described(&wording.compact.compact_description, object(properties, &[]))
    }
}

/// The arguments of `snip`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snip {
    /// Number of the newest messages that stay.
    pub keep: usize,
}

impl Snip {
    pub(super) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
        let SnipTool { snip_description, snip_keep } = wording.snip?;
        let keep = json!({"type": "integer", "minimum": 1, "description": snip_keep});
        described(snip_description, object(json!({"keep": keep}), &["keep"]))
    }
}

/// The arguments of `recall`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recall {
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

impl Recall {
    pub(super) fn describe(_: &Wording<'_>) -> Option<(String, Value)> {
        let number = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
        let properties = json!({
            "id": text("The id of a tool call, or the hash of a stored result"),
            "text": text("What the lines to be found hold, word for word"),
            "regex": text("A regular expression that the lines to be found match"),
            "from": number("The first message"),
            "to": number("The first message after the range; without it, to the end"),
            "offset": number("The first character of the answer to give, for its later pages"),
        });
        let description = "Gives back, byte for byte, what has left your view. Your conversation is \
            kept whole, its messages numbered from 0. With `id`: the result of that tool call as it \
            was, or the stored result of that hash. With `from` and `to`: these messages, one JSON \
            document a line. With `text` or `regex`: the lines of your conversation that match, with \
            the numbers of their messages; `from` and `to` narrow the search. A long answer comes in \
            pages, and the last line of a page says how to get the next.";
        described(description, object(properties, &[]))
    }
}
