//! Parses a script from TOML into checked rules.
//!
//! Refuses unknown keys and every template that cannot work, with the place, so that a mistake is
//! found before the first call.

use std::collections::BTreeSet;
use std::time::Duration;

use globset::Glob;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Call, Input, Position, Rule, Script, ScriptError, Text, values};
use crate::glob::{self, Wildcards};
use crate::message::StopReason;
use crate::template::{self, TemplateError};

/// Functions of the template language, which are not values of a script.
const FUNCTIONS: [&str; 5] = ["range", "dict", "namespace", "debug", "loop"];

const RULE_KEYS: [&str; 9] =
    ["agent", "turn", "last_tool", "when", "let", "say", "calls", "stop", "delay_ms"];
const CALL_KEYS: [&str; 4] = ["tool", "input", "for_each", "as"];

/// Reads the whole file. Returns the first mistake of each rule, in the order of the text; at least
/// one.
pub(super) fn script(text: &str) -> Result<Script, Vec<ScriptError>> {
    let begins = text.match_indices('\n').map(|(at, _)| at + 1);
    let reader = Reader { text, lines: std::iter::once(0).chain(begins).collect() };
    let table = DeTable::parse(text).map_err(|error| {
        let place = reader.place(error.span().map_or(0, |span| span.start));
        vec![place.error(error.message().trim())]
    })?;
    let table = table.get_ref();
    let mut mistakes = Vec::new();
    mistakes.extend(reader.check_keys(table, &["rules"], "a script").err());
    let listed = match table.get("rules") {
        Some(rules) => reader.list(rules, "rules"),
        None => Err(Position { line: 1, column: 1 }.error("a script needs `[[rules]]`")),
    };
    let mut rules = Vec::new();
    match listed {
        Err(mistake) => mistakes.push(mistake),
        Ok(listed) => {
            for rule in listed {
                match reader.rule(rule) {
                    Ok(rule) => rules.push(rule),
                    Err(mistake) => mistakes.push(mistake),
                }
            }
        }
    }
    if mistakes.is_empty() { Ok(Script { rules }) } else { Err(mistakes) }
}

type Node<'i> = Spanned<DeValue<'i>>;

struct Reader<'t> {
    text: &'t str,
    /// The offsets at which the lines begin: they are counted once, and not for each rule.
    lines: Vec<usize>,
}

impl Reader<'_> {
    fn rule(&self, node: &Node<'_>) -> Result<Rule, ScriptError> {
        let table = self.table(node, "a rule")?;
        self.check_keys(table, &RULE_KEYS, "a rule")?;
        let mut known: BTreeSet<String> = values::NAMES.map(str::to_owned).into();
        let mut lets = Vec::new();
        if let Some(node) = table.get("let") {
            for (name, node) in self.entries(self.table(node, "`let`")?) {
                self.check_name(name, node, &known)?;
                lets.push((name.to_owned(), self.template(node, &known)?));
                known.insert(name.to_owned());
            }
        }
        let when = table.get("when").map(|node| self.expression(node, &known)).transpose()?;
        let when_uses_lets = match &when {
            None => false,
            Some(when) => {
                let names = heads(template::names_in_expression(&when.source))
                    .map_err(|error| when.place.template_error(&error))?;
                lets.iter().any(|(name, _)| names.contains(name))
            }
        };
        let calls = match table.get("calls") {
            None => Vec::new(),
            Some(node) => {
                let calls = self.list(node, "calls")?.into_iter();
                calls.map(|call| self.call(call, &known)).collect::<Result<_, _>>()?
            }
        };
        Ok(Rule {
            agent: table.get("agent").map(|node| self.glob(node)).transpose()?,
            turns: table.get("turn").map(|node| self.turns(node)).transpose()?,
            last_tool: table.get("last_tool").map(|node| self.owned(node)).transpose()?,
            when,
            when_uses_lets,
            lets,
            say: table.get("say").map(|node| self.template(node, &known)).transpose()?,
            calls,
            stop: table.get("stop").map(|node| self.stop(node)).transpose()?,
            delay: table
                .get("delay_ms")
                .map(|node| self.delay(node))
                .transpose()?
                .unwrap_or_default(),
        })
    }

    fn call(&self, node: &Node<'_>, known: &BTreeSet<String>) -> Result<Call, ScriptError> {
        let table = self.table(node, "a call")?;
        self.check_keys(table, &CALL_KEYS, "a call")?;
        let place = self.place(node.span().start);
        let each = match (table.get("for_each"), table.get("as")) {
            (None, None) => None,
            (None, Some(node)) => return Err(self.at(node).error("`as` needs `for_each`")),
            (Some(list), None) => Some((self.expression(list, known)?, "item".to_owned())),
            (Some(list), Some(name)) => {
                let text = self.owned(name)?;
                self.check_name(&text, name, known)?;
                Some((self.expression(list, known)?, text))
            }
        };
        let mut known = known.clone();
        known.extend(each.iter().map(|(_, name)| name.clone()));
        let tool = table.get("tool").ok_or_else(|| place.error("a call needs `tool`"))?;
        let tool = self.template(tool, &known)?;
        let input = table.get("input").map(|node| self.input(node, &known)).transpose()?;
        match &input {
            None | Some(Input::Table(_)) => {}
            Some(Input::Text(text)) if text.is_expression => {}
            Some(_) => {
                let message = "`input` is a table, or one `{{ expression }}` that gives a table";
                return Err(table.get("input").map_or(place, |node| self.at(node)).error(message));
            }
        }
        Ok(Call { tool, input, each, place })
    }

    fn input(&self, node: &Node<'_>, known: &BTreeSet<String>) -> Result<Input, ScriptError> {
        Ok(match node.get_ref() {
            DeValue::String(_) => Input::Text(self.template(node, known)?),
            DeValue::Boolean(value) => Input::Plain(Value::Bool(*value)),
            DeValue::Integer(_) => Input::Plain(self.integer(node)?.into()),
            DeValue::Float(number) => {
                let number = number.as_str().parse::<f64>().ok().map(Value::from);
                Input::Plain(number.unwrap_or(Value::Null))
            }
            DeValue::Datetime(time) => Input::Plain(Value::String(time.to_string())),
            DeValue::Array(items) => {
                let items = items.iter().map(|item| self.input(item, known));
                Input::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => {
                let entry =
                    |(key, node): (&str, &Node<'_>)| Ok((key.to_owned(), self.input(node, known)?));
                let entries = self.entries(table).into_iter().map(entry);
                Input::Table(entries.collect::<Result<_, ScriptError>>()?)
            }
        })
    }

    fn template(&self, node: &Node<'_>, known: &BTreeSet<String>) -> Result<Text, ScriptError> {
        let source = self.str(node)?;
        let place = self.content(node);
        let inner = source.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        if let Some(inner) = inner
            && let Ok(names) = heads(template::names_in_expression(inner))
        {
            check_names(&names, known, place)?;
            return Ok(Text { source: inner.to_owned(), is_expression: true, place });
        }
        let names = heads(template::names_in_template(source));
        check_names(&names.map_err(|error| place.template_error(&error))?, known, place)?;
        Ok(Text { source: source.to_owned(), is_expression: false, place })
    }

    fn expression(&self, node: &Node<'_>, known: &BTreeSet<String>) -> Result<Text, ScriptError> {
        let source = self.str(node)?.to_owned();
        let place = self.content(node);
        let names = heads(template::names_in_expression(&source));
        check_names(&names.map_err(|error| place.template_error(&error))?, known, place)?;
        Ok(Text { source, is_expression: true, place })
    }

    fn glob(&self, node: &Node<'_>) -> Result<globset::GlobMatcher, ScriptError> {
        let text = self.str(node)?;
        let wrong = |error: String| self.at(node).error(error);
        // What is too large to be compiled is an error here, and a panic of the matcher.
        glob::compile(text, Wildcards::Any).map_err(wrong)?;
        let glob = Glob::new(text).map_err(|error| wrong(error.to_string()))?;
        Ok(glob.compile_matcher())
    }

    /// Reads a range of turns: `3`, `"3"`, `"2.."`, `"2..5"` (both ends included).
    fn turns(&self, node: &Node<'_>) -> Result<(u32, u32), ScriptError> {
        let text = match node.get_ref() {
            DeValue::Integer(number) => number.to_string(),
            _ => self.str(node)?.trim().to_owned(),
        };
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|turn| *turn > 0);
        let range = match text.split_once("..") {
            None => number(&text).map(|turn| (turn, turn)),
            Some((from, "")) => number(from).map(|from| (from, u32::MAX)),
            Some((from, to)) => number(from).zip(number(to)).filter(|(from, to)| from <= to),
        };
        range.ok_or_else(|| {
            let message = format!("`{text}` is no turn: write 1, \"2..\" or \"2..5\"");
            self.at(node).error(message)
        })
    }

    fn stop(&self, node: &Node<'_>) -> Result<StopReason, ScriptError> {
        Ok(match self.str(node)? {
            "end_turn" => StopReason::EndTurn,
            "tool_use" => StopReason::ToolUse,
            "max_tokens" => StopReason::MaxTokens,
            "stop_sequence" => StopReason::StopSequence,
            "refusal" => StopReason::Refusal(None),
            other => {
                let message = format!(
                    "`{other}` is no stop reason: one of end_turn, tool_use, max_tokens, \
                     stop_sequence, refusal"
                );
                return Err(self.at(node).error(message));
            }
        })
    }

    fn delay(&self, node: &Node<'_>) -> Result<Duration, ScriptError> {
        let ms = u64::try_from(self.integer(node)?);
        let ms = ms.map_err(|_| self.at(node).error("`delay_ms` is negative"))?;
        Ok(Duration::from_millis(ms))
    }

    fn integer(&self, node: &Node<'_>) -> Result<i64, ScriptError> {
        let number = node.get_ref().as_integer();
        let number = number.and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        number.ok_or_else(|| self.at(node).error("a whole number is needed"))
    }

    fn str<'n>(&self, node: &'n Node<'_>) -> Result<&'n str, ScriptError> {
        node.get_ref().as_str().ok_or_else(|| self.at(node).error("a text is needed"))
    }

    fn owned(&self, node: &Node<'_>) -> Result<String, ScriptError> {
        self.str(node).map(str::to_owned)
    }

    fn table<'n, 'i>(
        &self,
        node: &'n Node<'i>,
        what: &str,
    ) -> Result<&'n DeTable<'i>, ScriptError> {
        let table = node.get_ref().as_table();
        table.ok_or_else(|| self.at(node).error(format!("{what} is a table")))
    }

    fn list<'n, 'i>(
        &self,
        node: &'n Node<'i>,
        key: &str,
    ) -> Result<Vec<&'n Node<'i>>, ScriptError> {
        let list = node.get_ref().as_array();
        let list = list.ok_or_else(|| self.at(node).error(format!("`{key}` is a list")))?;
        Ok(list.iter().collect())
    }

    /// Returns the entries of a table in the order in which they are written.
    fn entries<'n, 'i>(&self, table: &'n DeTable<'i>) -> Vec<(&'n str, &'n Node<'i>)> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries.into_iter().map(|(key, node)| (key.get_ref().as_ref(), node)).collect()
    }

    fn check_keys(
        &self,
        table: &DeTable<'_>,
        keys: &[&str],
        what: &str,
    ) -> Result<(), ScriptError> {
        let unknown = table.keys().filter(|key| !keys.contains(&key.get_ref().as_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let known = keys.join(", ");
                let message = format!("{what} has no key `{}`: it knows {known}", key.get_ref());
                Err(self.place(key.span().start).error(message))
            }
        }
    }

    fn check_name(
        &self,
        name: &str,
        node: &Node<'_>,
        known: &BTreeSet<String>,
    ) -> Result<(), ScriptError> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
            || !name.chars().all(word)
        {
            return Err(self.at(node).error(format!("`{name}` cannot be the name of a value")));
        }
        if known.contains(name) || FUNCTIONS.contains(&name) {
            return Err(self.at(node).error(format!("the name `{name}` is taken")));
        }
        Ok(())
    }

    fn at(&self, node: &Node<'_>) -> Position {
        self.place(node.span().start)
    }

    /// Returns the position of a text's first line: TOML drops a line break right after the opening
    /// quotes.
    fn content(&self, node: &Node<'_>) -> Position {
        let start = node.span().start;
        let place = self.place(start);
        let raw = self.text.get(start..).unwrap_or_default();
        let opened = raw.strip_prefix("'''").or_else(|| raw.strip_prefix("\"\"\""));
        match opened {
            Some(rest) if rest.starts_with('\n') || rest.starts_with("\r\n") => {
                Position { line: place.line + 1, column: 1 }
            }
            _ => place,
        }
    }

    fn place(&self, offset: usize) -> Position {
        let line = self.lines.partition_point(|start| *start <= offset);
        let from = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(from..offset).unwrap_or_default();
        Position { line, column: before.chars().count() + 1 }
    }
}

/// Returns the first parts of dotted names.
fn heads(
    names: Result<BTreeSet<String>, TemplateError>,
) -> Result<BTreeSet<String>, TemplateError> {
    let head = |name: String| name.split('.').next().unwrap_or_default().to_owned();
    Ok(names?.into_iter().map(head).collect())
}

fn check_names(
    names: &BTreeSet<String>,
    known: &BTreeSet<String>,
    place: Position,
) -> Result<(), ScriptError> {
    match names.iter().find(|name| !known.contains(*name) && !FUNCTIONS.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<&str> = known.iter().map(String::as_str).collect();
            let message = format!("there is no value `{name}`: there are {}", names.join(", "));
            Err(place.error(message))
        }
    }
}
