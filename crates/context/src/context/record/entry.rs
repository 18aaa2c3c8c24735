//! Entries of a record, and how they are written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::LINE_CHARS;
use super::{one_line, quoted};

/// Label before the names at the end of a record.
pub(super) const NAMES: &str = "names: ";
/// Label before the values at the end of a record.
pub(super) const VALUES: &str = "values: ";
const ASKED: &str = "asked: ";
const RULE: &str = "rule: ";
const QUESTION: &str = "question to the person: ";
const SAID: &str = "said: ";
const FILES: &str = "changed in ";
const OUTCOME: &str = "=> ";
const LEFT: &str = "[#";
const PART: &str = "--- ";

/// Arguments that name a file; such a value needs no label to be understood.
pub(super) const PATHS: [&str; 4] = ["file_path", "path", "filename", "notebook_path"];

/// An entry of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Entry {
    /// The beginning of a request.
    Asked {
        /// Number of the message.
        at: u64,
        /// Text.
        text: String,
    },
    /// A sentence of a request that binds, word for word.
    Rule {
        /// Number of the message.
        at: u64,
        /// Text.
        text: String,
    },
    /// A question with which the agent ended its work on a request.
    Question {
        /// Number of the message.
        at: u64,
        /// Text.
        text: String,
    },
    /// A sentence in which the agent states a decision, a finding or a plan.
    Said {
        /// Number of the message.
        at: u64,
        /// Text.
        text: String,
    },
    /// A call, word for word, with how it ended.
    Work(Work),
    /// A marker in the place of calls that were left out.
    Left(LeftOut),
    /// The files that calls changed, in a request that is closed.
    Files {
        /// Number of the message with the newest change.
        at: u64,
        /// The files.
        changed: Vec<Changed>,
    },
    /// A line of a record that an earlier version of the program made.
    #[serde(alias = "tool", alias = "call", alias = "failed")]
    Line {
        /// Number of the message.
        at: u64,
        /// Text.
        text: String,
    },
}

/// What a call does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Deed {
    /// Writes a file.
    Write,
    /// Changes a part of a file.
    Edit,
    /// Tests or builds.
    Check,
    /// Runs another command.
    Command,
    /// Writes a todo list.
    Todo,
    /// Anything else: reads, searches, asks a service.
    #[default]
    Other,
}

/// A call in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// Number of the message that made the call.
    pub at: u64,
    /// Name of the tool.
    pub tool: String,
    /// What the call does.
    pub deed: Deed,
    /// Files that it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Short arguments, with their keys.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Long arguments, word for word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Lines of the result that tell how the call ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcome: Vec<String>,
    /// Number of times that the same call was made, this one included; 0 stands for 1.
    #[serde(default, skip_serializing_if = "is_none")]
    pub runs: u32,
    /// The line that told how the same call ended the time before, if it ended in another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// A long argument of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Key of the argument; empty where the call has no other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Text; its beginning where lines are left out.
    pub text: String,
    /// Number of lines that are left out behind `text`.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left: u32,
    /// The end of the text behind the lines that are left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
}

/// A file that calls changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changed {
    /// Path.
    pub path: String,
    /// Numbers of the messages that changed it: the first and the last ones.
    pub by: Vec<u64>,
}

/// Calls that were left out of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Left")]
pub struct LeftOut {
    /// Number of the message with the first of them.
    pub at: u64,
    /// Number of the message with the last of them.
    pub last: u64,
    /// Number of calls.
    pub calls: u32,
    /// Files that they changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl Entry {
    /// Returns the number of the entry's message.
    #[must_use]
    pub fn at(&self) -> u64 {
        match self {
            Self::Asked { at, .. }
            | Self::Rule { at, .. }
            | Self::Question { at, .. }
            | Self::Said { at, .. }
            | Self::Files { at, .. }
            | Self::Line { at, .. } => *at,
            Self::Work(work) => work.at,
            Self::Left(left) => left.at,
        }
    }

    /// Returns the call, if the entry is one.
    #[must_use]
    pub fn work(&self) -> Option<&Work> {
        if let Self::Work(work) = self { Some(work) } else { None }
    }

    /// Returns the texts of the entry, without labels.
    pub fn texts(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Asked { text, .. }
            | Self::Rule { text, .. }
            | Self::Question { text, .. }
            | Self::Said { text, .. }
            | Self::Line { text, .. } => Box::new(std::iter::once(text.as_str())),
            Self::Files { changed, .. } => Box::new(changed.iter().map(|file| file.path.as_str())),
            Self::Left(left) => Box::new(left.paths.iter().map(String::as_str)),
            Self::Work(work) => Box::new(work.texts()),
        }
    }

    /// Returns the size of the entry in characters.
    #[must_use]
    pub fn chars(&self) -> usize {
        let mut text = String::new();
        self.write(&mut text);
        text.chars().count()
    }

    /// Writes the entry as the model reads it.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Asked { text, .. } => line(out, ASKED, text),
            Self::Rule { text, .. } => line(out, RULE, text),
            Self::Question { text, .. } => line(out, QUESTION, text),
            Self::Said { text, .. } => line(out, SAID, text),
            Self::Files { changed, .. } => {
                for Changed { path, by } in changed {
                    let by = by.iter().map(|at| format!(" #{at}")).collect::<String>();
                    line(out, FILES, by.trim_start());
                    raw(out, path);
                }
            }
            Self::Line { text, .. } => raw(out, text),
            Self::Work(work) => work.write(out),
            Self::Left(left) => left.write(out),
        }
    }
}

impl Work {
    /// Returns the texts of the call and of its outcome, without labels.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let paths = self.paths.iter().map(String::as_str);
        let parts = self.parts.iter().map(|part| part.text.as_str());
        let outcome = self.outcome.iter().map(String::as_str);
        paths.chain([self.arguments.as_str()]).chain(parts).chain(outcome)
    }

    /// Returns the long arguments as one text: what tells one call from another.
    #[must_use]
    pub fn body(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns true if both calls do the same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.tool == other.tool && self.arguments == other.arguments && self.parts == other.parts
    }

    fn write(&self, out: &mut String) {
        let arguments = if self.arguments.is_empty() { "" } else { " " };
        line(out, "", &format!("#{} {}{arguments}{}", self.at, self.tool, self.arguments));
        for part in &self.parts {
            if !part.key.is_empty() && !PATHS.contains(&part.key.as_str()) {
                line(out, PART, &part.key);
            }
            raw(out, &part.text);
            if part.left > 0 {
                line(out, LEFT, &format!("{}: {} lines left out]", self.at, part.left));
                raw(out, &part.tail);
            }
        }
        let runs = self.runs.max(1);
        for told in &self.outcome {
            line(out, OUTCOME, told);
        }
        match &self.before {
            Some(before) => line(out, OUTCOME, &format!("run {runs} times; before: {before}")),
            None if runs > 1 => line(out, OUTCOME, &format!("run {runs} times")),
            None => {}
        }
    }
}

impl Part {
    /// Creates a part whose text is whole.
    #[must_use]
    pub fn whole(key: &str, text: String) -> Self {
        Self { key: key.to_owned(), text, left: 0, tail: String::new() }
    }

    /// Leaves out lines in the middle, so that about so many bytes are left; a longer single line is
    /// left out whole.
    pub(super) fn cut(&mut self, bytes: usize) {
        if self.text.len() <= bytes || self.left > 0 {
            return;
        }
        let lines: Vec<&str> = self.text.lines().collect();
        let fitting = |lines: &mut dyn Iterator<Item = &&str>, mut room: usize| {
            lines
                .take_while(|line| {
                    let fits = line.len() < room;
                    room = room.saturating_sub(line.len() + 1);
                    fits
                })
                .count()
        };
        let head = fitting(&mut lines.iter(), bytes / 3 * 2);
        let tail = fitting(&mut lines[head..].iter().rev(), bytes / 3);
        let left = lines.len() - head - tail;
        let (head, tail) = (lines[..head].join("\n"), lines[lines.len() - tail..].join("\n"));
        (self.left, self.tail, self.text) = (u32::try_from(left).unwrap_or(u32::MAX), tail, head);
    }
}

impl LeftOut {
    /// Adds the calls of a later marker.
    pub(super) fn join(&mut self, next: &Self) {
        self.last = self.last.max(next.last);
        self.calls = self.calls.saturating_add(next.calls);
        for path in &next.paths {
            if !self.paths.contains(path) {
                self.paths.push(path.clone());
            }
        }
    }

    fn write(&self, out: &mut String) {
        let Self { at, last, calls, paths } = self;
        let to = if last > at { format!(" to #{last}") } else { String::new() };
        let calls = if *calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
        let changed = if paths.is_empty() { "" } else { "; changed: " };
        let text = format!("{LEFT}{at}{to}: {calls} left out{changed}{}]", paths.join(" "));
        line(out, "", &text);
    }
}

/// Writes a list: each long item, as a path, on a line of its own, and short ones between them.
pub(super) fn write_list(out: &mut String, label: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let is_long = |item: &&String| item.chars().take(LINE_CHARS).count() == LINE_CHARS;
    let (long, short): (Vec<&String>, Vec<&String>) = items.iter().partition(is_long);
    let chunk = (short.len() / (long.len() + 1)).max(1);
    let mut short = short
        .chunks(chunk)
        .map(|chunk| chunk.iter().map(|item| item.as_str()).collect::<Vec<_>>().join(" "));
    line(out, label, &short.next().unwrap_or_default());
    let mut long = long.into_iter();
    for item in long.by_ref() {
        raw(out, &one_line(item));
        // Long items one below the other would look like lines of a file.
        let Some(between) = short.next() else { break };
        raw(out, &one_line(&between));
    }
    let rest: Vec<&str> = long.map(String::as_str).collect();
    let between: Vec<String> = short.collect();
    let rest = [rest.join(" "), between.join(" ")].join(" ");
    if !rest.trim().is_empty() {
        raw(out, &one_line(rest.trim()));
    }
}

/// Writes a line of the record's own.
fn line(out: &mut String, label: &str, text: &str) {
    out.push_str(label);
    out.push_str(&one_line(&quoted(text)));
    out.push('\n');
}

/// Writes quoted lines; one that looks like a line of the record's own gets a backslash.
fn raw(out: &mut String, text: &str) {
    for line in quoted(text).lines() {
        if imitates(line) {
            out.push('\\');
        }
        out.push_str(line);
        out.push('\n');
    }
}

/// Returns true if a quoted line looks like a line that the record writes itself.
fn imitates(line: &str) -> bool {
    let own = [ASKED, RULE, QUESTION, SAID, FILES, OUTCOME, LEFT, PART, NAMES, VALUES];
    let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    own.iter().any(|own| line.starts_with(own)) || line.strip_prefix('#').is_some_and(is_number)
}
