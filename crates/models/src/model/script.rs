//! Scripts: files of rules that decide the replies of the scripted model.
//!
//! Pure: a scene goes in and a reply comes out, without waiting and without side effects.
//! `docs/scripts.md` describes the format. Knows nothing of providers, so that a test can use a
//! script behind any protocol.

mod parse;
mod values;

use std::cell::LazyCell;
use std::ops::Deref;
use std::time::Duration;

use globset::GlobMatcher;
use serde_json::{Map, Value};

use crate::message::{Block, Json, Message, Role, StopReason, ToolCall};
use crate::template::{self, TemplateError};

/// A script: rules of which the first that matches gives the reply.
///
/// ```
/// # mod callsheet { pub use callsheet_models::model::script::*; pub use callsheet_words::message::Message; }
/// use callsheet::{Message, Scene, Script, ScriptError};
///
/// let script = Script::parse("[[rules]]\nsay = 'You said: {{ prompt }}'")?;
/// let messages = [Message::user("hi")];
/// let scene = Scene {
///     agent: "echo", agent_id: "echo", turn: 1, system: "", messages: &messages, tools: &[],
/// };
/// assert_eq!(script.reply(&scene)?.message.text(), "You said: hi");
/// # Ok::<(), ScriptError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    rules: Vec<Rule>,
}

/// The facts on which a reply may depend.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Name of the agent definition that makes the call.
    pub agent: &'a str,
    /// Id of the agent that makes the call.
    pub agent_id: &'a str,
    /// Number of this call of the agent, from 1.
    pub turn: u32,
    /// The system prompt.
    pub system: &'a str,
    /// The conversation as the model sees it, oldest first.
    pub messages: &'a [Message],
    /// The names of the tools in the request.
    pub tools: &'a [String],
}

/// The reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptReply {
    /// The assistant message; it has no blocks if the rule has neither text nor calls.
    pub message: Message,
    /// The reason for which the model pretends to stop.
    pub stop: StopReason,
    /// The time to wait before the reply is given.
    pub delay: Duration,
}

/// An error in a script, or the lack of a matching rule, with the place in the script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ScriptError {
    /// The line in the script, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Description of the error, as a lower-case fragment.
    pub message: String,
}

/// A position in the script's text.
#[derive(Clone, Copy, Debug)]
struct Position {
    line: usize,
    column: usize,
}

impl Position {
    fn error(self, message: impl Into<String>) -> ScriptError {
        ScriptError { line: self.line, column: self.column, message: message.into() }
    }

    /// Returns the error at its line within a template that begins here.
    fn template_error(self, error: &TemplateError) -> ScriptError {
        let column = if error.line > 1 { 1 } else { self.column };
        let line = self.line + error.line.saturating_sub(1);
        ScriptError { line, column, message: error.message.clone() }
    }
}

#[derive(Clone, Debug)]
struct Rule {
    agent: Option<GlobMatcher>,
    turns: Option<(u32, u32)>,
    last_tool: Option<String>,
    when: Option<Text>,
    /// True if `when` uses a name of `lets`; the values of `lets` are then computed before `when`.
    when_uses_lets: bool,
    lets: Vec<(String, Text)>,
    say: Option<Text>,
    calls: Vec<Call>,
    stop: Option<StopReason>,
    delay: Duration,
}

#[derive(Clone, Debug)]
struct Call {
    tool: Text,
    input: Option<Input>,
    each: Option<(Text, String)>,
    place: Position,
}

/// A template, or an expression whose value keeps its type.
#[derive(Clone, Debug)]
struct Text {
    source: String,
    is_expression: bool,
    place: Position,
}

impl Text {
    fn is_plain(&self) -> bool {
        !self.is_expression && template::is_plain(&self.source)
    }

    fn value(&self, values: &Value) -> Result<Value, ScriptError> {
        let value = if self.is_expression {
            template::evaluate(&self.source, values)
        } else {
            template::render(&self.source, values).map(Value::String)
        };
        value.map_err(|error| self.place.template_error(&error))
    }

    fn text(&self, values: &Value) -> Result<String, ScriptError> {
        Ok(match self.value(values)? {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        })
    }

    fn is_true(&self, values: &Value) -> Result<bool, ScriptError> {
        let truth = template::is_true(&self.source, values);
        truth.map_err(|error| self.place.template_error(&error))
    }
}

/// The arguments of a call; texts in them are templates.
#[derive(Clone, Debug)]
enum Input {
    Text(Text),
    Plain(Value),
    List(Vec<Self>),
    Table(Vec<(String, Self)>),
}

impl Input {
    fn value(&self, values: &Value) -> Result<Value, ScriptError> {
        Ok(match self {
            Self::Text(text) => text.value(values)?,
            Self::Plain(value) => value.clone(),
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.value(values)).collect::<Result<_, _>>()?)
            }
            Self::Table(entries) => {
                let entry = |(key, input): &(String, Self)| Ok((key.clone(), input.value(values)?));
                Value::Object(entries.iter().map(entry).collect::<Result<_, ScriptError>>()?)
            }
        })
    }
}

impl Script {
    /// Reads a script and checks all its templates and expressions.
    ///
    /// # Errors
    /// Returns an error at the first key, template or expression that cannot be used.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        Self::parse_all(text).map_err(|mut mistakes| mistakes.swap_remove(0))
    }

    /// Reads a script like [`Script::parse`], but returns the first mistake of each rule.
    ///
    /// # Errors
    /// Returns at least one mistake, in the order of the text.
    pub fn parse_all(text: &str) -> Result<Self, Vec<ScriptError>> {
        parse::script(text)
    }

    /// Returns true if no rule looks at the conversation, the system prompt or the tools.
    #[must_use]
    pub fn reads_nothing(&self) -> bool {
        self.rules.iter().all(|rule| rule.last_tool.is_none() && rule.reads_nothing())
    }

    /// Returns the rules, numbered from 1, whose `agent` matches none of these names.
    pub fn rules_for_nobody<'a>(
        &self,
        agents: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<(usize, String)> {
        let rules = (1..).zip(&self.rules);
        let agent = |(number, rule): (usize, &Rule)| {
            let glob = rule.agent.as_ref()?;
            let is_for_nobody = !agents.clone().any(|name| glob.is_match(name));
            is_for_nobody.then(|| (number, glob.glob().glob().to_owned()))
        };
        rules.filter_map(agent).collect()
    }

    /// Returns the reply of the first rule that matches the scene.
    ///
    /// # Errors
    /// Returns an error if no rule matches (with the place of the script's first character) or if a
    /// template of the matching rule cannot be rendered.
    pub fn reply(&self, scene: &Scene<'_>) -> Result<ScriptReply, ScriptError> {
        let base = LazyCell::new(|| values::of(scene));
        for rule in &self.rules {
            if !rule.fits(scene, &base) {
                continue;
            }
            if rule.reads_nothing() {
                return rule.reply(scene.turn, Value::Null);
            }
            if let Some(values) = rule.admit(&base)? {
                return rule.reply(scene.turn, values);
            }
        }
        let Scene { agent, turn, .. } = scene;
        let message = format!("no rule of the script matches agent `{agent}` in turn {turn}");
        Err(Position { line: 1, column: 1 }.error(message))
    }
}

impl Rule {
    /// Returns true if the conditions that need no expression hold. The values of the scene are made only for a
    /// rule that looks at them.
    fn fits(&self, scene: &Scene<'_>, base: &impl Deref<Target = Value>) -> bool {
        let is_last = |tool: &str| {
            let last = base["last"].as_array().and_then(|last| last.last());
            last.and_then(|last| last["tool"].as_str()) == Some(tool)
        };
        self.agent.as_ref().is_none_or(|glob| glob.is_match(scene.agent))
            && self.turns.is_none_or(|(from, to)| (from..=to).contains(&scene.turn))
            && self.last_tool.as_deref().is_none_or(is_last)
    }

    /// Returns true if the reply is the same whatever stands in the conversation.
    fn reads_nothing(&self) -> bool {
        let Self { when, lets, say, calls, .. } = self;
        let has_values = when.is_some() || !lets.is_empty() || !calls.is_empty();
        !has_values && say.as_ref().is_none_or(Text::is_plain)
    }

    /// Returns the values for the rule's templates, or `None` if its `when` does not hold.
    fn admit(&self, base: &Value) -> Result<Option<Value>, ScriptError> {
        // A `when` that needs no `let` is decided first: the `let` of a rule that does not match
        // may fail.
        if let Some(when) = self.when.as_ref().filter(|_| !self.when_uses_lets)
            && !when.is_true(base)?
        {
            return Ok(None);
        }
        let mut values = base.clone();
        for (name, text) in &self.lets {
            let value = text.value(&values)?;
            values[name.as_str()] = value;
        }
        match self.when.as_ref().filter(|_| self.when_uses_lets) {
            Some(when) if !when.is_true(&values)? => Ok(None),
            _ => Ok(Some(values)),
        }
    }

    fn reply(&self, turn: u32, mut values: Value) -> Result<ScriptReply, ScriptError> {
        let mut content = Vec::new();
        if let Some(say) = &self.say {
            let text = say.text(&values)?;
            if !text.trim().is_empty() {
                content.push(Block::Text(text));
            }
        }
        let mut calls = 0;
        for call in &self.calls {
            for (name, input) in call.made(&mut values)? {
                calls += 1;
                let id = format!("call_{turn}_{calls}");
                let input = Json::encode(&input);
                content.push(Block::ToolUse(ToolCall { id, name, input }));
            }
        }
        let natural = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        Ok(ScriptReply {
            message: Message { role: Role::Assistant, content },
            stop: self.stop.clone().unwrap_or(natural),
            delay: self.delay,
        })
    }
}

/// The name of a tool, and the arguments of a call.
type Made = (String, Map<String, Value>);

impl Call {
    /// Returns the tool and the arguments of every call that this entry makes.
    fn made(&self, values: &mut Value) -> Result<Vec<Made>, ScriptError> {
        let Some((list, name)) = &self.each else { return Ok(vec![self.one(values)?]) };
        let items = match list.value(values)? {
            Value::Array(items) => items,
            other => {
                let message = format!("`for_each` gave {other} where a list is needed");
                return Err(list.place.error(message));
            }
        };
        let mut made = Vec::with_capacity(items.len());
        for item in items {
            values[name.as_str()] = item;
            made.push(self.one(values)?);
        }
        if let Some(values) = values.as_object_mut() {
            values.remove(name);
        }
        Ok(made)
    }

    fn one(&self, values: &Value) -> Result<Made, ScriptError> {
        let input = match &self.input {
            None => Value::Object(Map::new()),
            Some(input) => input.value(values)?,
        };
        match input {
            Value::Object(input) => Ok((self.tool.text(values)?, input)),
            other => Err(self.place.error(format!("`input` gave {other} where a table is needed"))),
        }
    }
}

#[cfg(test)]
mod tests;
