//! The arguments of the tools by which an agent works with others: `delegate`, `wait`, `check_child`, `stop_child`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Wording, described, object, text};
use crate::duration;
use crate::id::Name;
use crate::message::Json;
use crate::schema::Schema;

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
    /// The name by which the parent calls it.
    #[serde(default)]
    pub name: Option<Name>,
    /// A child that has ended and goes on with this prompt.
    #[serde(default, rename = "continue")]
    pub continues: Option<String>,
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
    pub(in crate::own_tool) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
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
            properties["name"] = text("A short name for the agent, by which you call it later");
            properties["continue"] = text(
                "The name of an agent that you started in the background and that has ended: it goes on, with all that \
                 it knows, with this prompt. `agent` is what it was",
            );
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

    /// Checks the name of an agent, and that one that goes on is given nothing that holds from its beginning.
    ///
    /// # Errors
    /// Returns an error that says what cannot be.
    pub fn check_continuing(&self) -> Result<(), String> {
        let from_the_beginning = [
            ("name", self.name.is_some()),
            ("timeout", self.timeout.is_some()),
            ("output_schema", self.output_schema.is_some()),
            ("budget", self.budget.is_some()),
        ];
        if let Some(name) = &self.name
            && (Name::new(name.as_str()).is_err()
                || name.as_str().len() > NAME_BYTES
                || name.as_str() == "parent")
        {
            return Err(format!(
                "`name` cannot be `{name}`: write at most {NAME_BYTES} lower-case letters, digits, `-` and `_`"
            ));
        }
        let set = from_the_beginning.iter().find(|(_, is_set)| *is_set);
        match set.filter(|_| self.continues.is_some()) {
            Some((key, _)) => {
                Err(format!("`{key}` is what an agent begins with: leave it out with `continue`"))
            }
            None => Ok(()),
        }
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

/// The most bytes of a name that a parent gives: it is a part of the names of files.
const NAME_BYTES: usize = 40;

/// The longest wait for children where a call names no other: long enough for most jobs, and short enough that a
/// parent looks at what it waits for.
const WAIT: Duration = Duration::from_secs(30 * 60);

impl Wait {
    pub(in crate::own_tool) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
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
    pub(in crate::own_tool) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
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
    pub(in crate::own_tool) fn describe(wording: &Wording<'_>) -> Option<(String, Value)> {
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
