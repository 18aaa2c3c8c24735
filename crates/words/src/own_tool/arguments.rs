//! The arguments of each own tool, what they may be, and what a model reads of them.

mod children;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::children::{CheckChild, ChildBudget, Delegate, StopChild, Wait};

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
