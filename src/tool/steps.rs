//! The tools that are steps of the agent itself: `delegate`, `compact`, `todo_write`.
//!
//! Only their specs and texts: what they do needs the agent's own state or the supervisor.

use serde::Deserialize;
use serde_json::json;

use super::ToolSpec;
use crate::context::preset::CompactTool;
use crate::id::Name;
use crate::message::Json;
use crate::turn::Effect;

/// The arguments of `delegate`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegateInput {
    /// The agent definition that is to do it.
    pub agent: Name,
    /// What it is to do.
    pub prompt: String,
    /// Three to five words for people.
    #[serde(default)]
    pub description: Option<String>,
}

/// One item of a todo list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoItem {
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress` or `completed`.
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
    /// The whole list; it replaces the one before.
    pub todos: Vec<TodoItem>,
}

impl TodoInput {
    /// What the model reads in answer.
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

/// The arguments of `compact`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactInput {
    /// What to preserve in the summary.
    #[serde(default)]
    pub focus: Option<String>,
}

/// The step tool of that name, if it is one that needs nothing else to be described. `compact` is
/// worded by the preset.
#[must_use]
pub fn named(name: &str, compact_tool: &CompactTool) -> Option<ToolSpec> {
    match name {
        "compact" => Some(compact(compact_tool)),
        "todo_write" => Some(todo_write()),
        _ => None,
    }
}

/// `delegate`, for an agent that may delegate to these agents: name and description.
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
        },
        "required": ["agent", "prompt"],
        "additionalProperties": false,
    });
    // The supervisor knows each child by the key of the call, so a repeated call finds the child
    // that it started before.
    spec("delegate", &description, &schema, Effect::Keyed)
}

fn compact(tool: &CompactTool) -> ToolSpec {
    let properties = match tool.compact_focus.as_str() {
        "" => json!({}),
        focus => json!({"focus": {"type": "string", "description": focus}}),
    };
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    spec("compact", &tool.compact_description, &schema, Effect::Pure)
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
