//! The rules by which the answer of a task is accepted: the schema that it must fit, the checks that
//! it must pass, and the condition that ends its loop.
//!
//! Pure. `run_machine/attempts/answers.rs` applies them, in this order.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::OutputFormat;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::schema::Schema;

/// Number of times that an agent is asked again after an answer that is not accepted, unless the
/// configuration says otherwise.
pub const RETRIES: u32 = 2;

/// The rules for the answer of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acceptance {
    /// The schema that the value of the answer must fit.
    pub schema: Option<Schema>,
    /// The most rounds in which an attempt mends its answer: after one with the wrong form, one that
    /// does not fit the schema, or one that a check did not pass.
    pub retries: u32,
    /// The checks, in their order.
    pub checks: Vec<Check>,
    /// The loop, if the work is repeated.
    pub repeat: Option<Loop>,
}

impl Default for Acceptance {
    fn default() -> Self {
        Self { schema: None, retries: RETRIES, checks: Vec::new(), repeat: None }
    }
}

/// A check of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The work of the check.
    pub work: CheckWork,
    /// The longest time that the check may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// The work of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckWork {
    /// A shell command, which passes if its exit code is 0.
    Command {
        /// The command line, given to `sh -c` unchanged.
        run: String,
        /// Templates of the environment variables of the command, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// An agent, which answers `pass` or `fail`.
    Agent {
        /// Name of the agent definition.
        agent: Name,
        /// Template of its prompt.
        prompt: String,
    },
}

impl CheckWork {
    /// Returns the check in a few words, for people and for the agent that is judged.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Command { run, .. } => format!("`{}`", first_line(run)),
            Self::Agent { agent, .. } => format!("agent `{agent}`"),
        }
    }
}

/// The most characters of a command line where a check is named.
const NAMED_CHARS: usize = 80;

fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(NAMED_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// A loop: the work is repeated until a condition holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loop {
    /// The condition, which sees `output` and `iteration`.
    pub until: String,
    /// The most rounds of one attempt, whatever causes them.
    pub max_iterations: u32,
}

impl Acceptance {
    /// Reads an answer: takes a surrounding code fence away, parses it, and compares it with the
    /// schema.
    ///
    /// # Errors
    /// Returns a failure of the kind `output_format` or `output_schema`.
    pub fn read(&self, format: OutputFormat, text: &str) -> Result<Value, Failure> {
        let value = format.parse(text)?;
        let fits = self.schema.as_ref().map_or(Ok(()), |schema| schema.check(&value));
        fits.map_err(|mistakes| {
            let message = format!("the output does not fit the schema: {mistakes}");
            Failure::new(FailureKind::OutputSchema, message)
        })?;
        Ok(value)
    }

    /// Returns true if an answer that was read is judged before it is accepted.
    #[must_use]
    pub fn judges(&self) -> bool {
        !self.checks.is_empty() || self.repeat.is_some()
    }

    /// Returns a prompt with the form that the answer must have, if there is a schema.
    #[must_use]
    pub fn ask(&self, prompt: String) -> String {
        match &self.schema {
            Some(schema) => format!("{prompt}{}", demand(schema)),
            None => prompt,
        }
    }
}

/// Returns the sentences after a prompt that ask for an answer that fits a schema.
#[must_use]
pub fn demand(schema: &Schema) -> String {
    format!(
        "\n\nYour last message must be one JSON document that fits this JSON Schema, and nothing \
         else:\n{}",
        schema.document()
    )
}

/// Returns a text without the code fence around it, if one fence surrounds all of it.
#[must_use]
pub fn unfenced(text: &str) -> &str {
    let trimmed = text.trim();
    let inner = || {
        let rest = trimmed.strip_prefix("```")?;
        let (info, rest) = rest.split_once('\n')?;
        let body = rest.strip_suffix("```")?;
        let is_plain = !info.contains('`') && (body.is_empty() || body.ends_with('\n'));
        // A second fence inside would make the first one end earlier.
        let is_one = !body.lines().any(|line| line.trim_start().starts_with("```"));
        (is_plain && is_one).then_some(body)
    };
    inner().map_or(trimmed, str::trim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_code_fence_around_all_of_an_answer_is_no_part_of_it() {
        for (text, inner) in [
            ("{}", "{}"),
            (" {} \n", "{}"),
            ("```json\n{\"a\": 1}\n```", "{\"a\": 1}"),
            ("\n```\n[1]\n```\n", "[1]"),
            ("```\n```", ""),
        ] {
            assert_eq!(unfenced(text), inner, "{text}");
        }
        for other in
            ["Here:\n```json\n{}\n```", "```json {}```", "```\n{}\n```\n```\n{}\n```", "```"]
        {
            assert_eq!(unfenced(other), other);
        }
    }

    #[test]
    fn an_answer_is_parsed_and_then_compared_with_the_schema() {
        let schema = Schema::new(json!({"type": "object", "required": ["a"]})).expect("a schema");
        let rules = Acceptance { schema: Some(schema), ..Acceptance::default() };
        let kind =
            |text: &str| rules.read(OutputFormat::Json, text).map_err(|failure| failure.kind);
        assert_eq!(kind("```json\n{\"a\": 1}\n```"), Ok(json!({"a": 1})));
        assert_eq!(kind("{\"b\": 1}"), Err(FailureKind::OutputSchema));
        assert_eq!(kind("a"), Err(FailureKind::OutputFormat));
        assert!(
            rules.ask("Go.".to_owned()).ends_with("\n{\"type\":\"object\",\"required\":[\"a\"]}")
        );
    }
}
