//! Checks the templates and expressions of a task: every name in them must be one that is there
//! when the task runs.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::diagnostic::{Place, Problems};
use super::names;
use super::raw::{Node, Table};
use crate::template::{self, TemplateError};

/// What a template can use of a task that it depends on.
pub const TASK_FIELDS: [&str; 3] = ["output", "state", "error"];

/// What a template can use of the run.
pub const RUN_FIELDS: [&str; 1] = ["id"];

/// The functions that the template language brings along.
const FUNCTIONS: [&str; 4] = ["range", "dict", "namespace", "debug"];

/// A name in brackets, which the parser does not follow: `tasks["my-task"].output`.
static BRACKETS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"\b(tasks|inputs)\s*\[\s*['"]([^'"]+)['"]\s*\](?:\s*\.\s*([A-Za-z_]\w*))?"#;
    Regex::new(pattern).expect("the pattern is constant and valid")
});

/// Which language a text is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// Text with `{{ }}` and `{% %}`.
    Template,
    /// What stands between the braces.
    Expression,
}

/// What a text may name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) inputs: &'a Table,
    pub(super) tasks: &'a Table,
    /// The task that the text belongs to; absent for texts that are rendered before any task.
    pub(super) task: Option<&'a str>,
    pub(super) depends_on: &'a [&'a str],
}

impl Scope<'_> {
    /// Checks one text.
    pub(super) fn check(&self, node: &Node, language: Language, problems: &mut Problems) {
        let Some(text) = node.text() else { return };
        let found = match language {
            Language::Template => template::names_in_template(text),
            Language::Expression => template::names_in_expression(text),
        };
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                let message = format!("not a valid template: {error}");
                return problems.error("bad_template", &syntax_place(node, &error), message);
            }
        };
        let bare: Vec<&str> =
            ["tasks", "inputs"].into_iter().filter(|root| found.contains(*root)).collect();
        for capture in BRACKETS.captures_iter(text) {
            if bare.contains(&&capture[1]) {
                self.bracketed(node, &capture, problems);
            }
        }
        if self.dashed(node, &found, problems) {
            return;
        }
        found.retain(|name| !bare.contains(&name.as_str()));
        let mut blamed = BTreeSet::new();
        for name in found {
            let mut parts = name.split('.');
            match (parts.next().unwrap_or_default(), parts.next()) {
                ("inputs", Some(input)) => self.input(node, &name, input, problems),
                ("tasks", Some(task)) => {
                    let rest: Vec<&str> = parts.collect();
                    self.task_name(node, &name, task, &rest, &mut blamed, problems);
                }
                ("run", Some(field)) if RUN_FIELDS.contains(&field) && self.task.is_some() => {}
                ("run", None) if self.task.is_some() => {}
                ("secrets", _) => {
                    let message = format!("`{name}` cannot be used in a template in this version");
                    problems.error("not_built", &name_place(node, &name), message);
                }
                (function, None) if FUNCTIONS.contains(&function) => {}
                (item, _) if self.is_item(item) => {}
                _ => self.undefined(node, &name, problems),
            }
        }
    }

    fn bracketed(&self, node: &Node, capture: &regex::Captures<'_>, problems: &mut Problems) {
        let (whole, name) = (&capture[0], &capture[2]);
        match &capture[1] {
            "inputs" => self.input(node, whole, name, problems),
            _ => {
                let field = capture.get(3).map(|field| field.as_str());
                let rest: Vec<&str> = field.into_iter().collect();
                self.task_name(node, whole, name, &rest, &mut BTreeSet::new(), problems);
            }
        }
    }

    /// Whether the text writes `tasks.my-task`, which the language reads as a subtraction.
    fn dashed(&self, node: &Node, found: &BTreeSet<String>, problems: &mut Problems) -> bool {
        let mut any = false;
        for name in found {
            let Some((root, rest)) = name.split_once('.') else { continue };
            let known = match root {
                "tasks" => self.tasks,
                "inputs" => self.inputs,
                _ => continue,
            };
            let begins = |key: &&str| key.strip_prefix(rest).is_some_and(|k| k.starts_with('-'));
            let keys = || known.0.iter().map(|entry| entry.key.as_str());
            if keys().any(|key| key == rest) {
                continue;
            }
            let Some(meant) = keys().find(begins) else { continue };
            any = true;
            let message = format!("`{root}.{meant}` is read as a subtraction");
            let help = Some(format!("write `{root}[\"{meant}\"]`"));
            problems.error_help("undefined_name", &name_place(node, name), message, help);
        }
        any
    }

    fn input(&self, node: &Node, name: &str, input: &str, problems: &mut Problems) {
        if self.inputs.get(input).is_some() {
            return;
        }
        let known = self.inputs.0.iter().map(|entry| entry.key.as_str());
        let help = match names::nearest(input, known) {
            Some(near) => format!("did you mean `inputs.{near}`?"),
            None => format!("add [inputs.{input}]"),
        };
        let message = format!("`{name}` is not defined");
        problems.error_help("undefined_name", &name_place(node, name), message, Some(help));
    }

    fn task_name(
        &self,
        node: &Node,
        name: &str,
        task: &str,
        rest: &[&str],
        blamed: &mut BTreeSet<String>,
        problems: &mut Problems,
    ) {
        let place = name_place(node, name);
        let Some(entry) = self.tasks.get(task) else {
            let help = names::suggest(task, self.tasks.0.iter().map(|entry| entry.key.as_str()));
            let message = format!("`{name}` names a task that does not exist");
            return problems.error_help("unknown_task", &place, message, help);
        };
        if self.task == Some(task) {
            let message = format!("`{name}`: a task cannot use its own output");
            return problems.error("undefined_name", &place, message);
        }
        if self.task.is_none() {
            return self.undefined(node, name, problems);
        }
        if !self.depends_on.contains(&task) && blamed.insert(task.to_owned()) {
            let all = self.depends_on.iter().chain([&task]);
            let all: Vec<String> = all.map(|name| format!("\"{name}\"")).collect();
            let message = format!("`{name}` is used, but `{task}` is not in `depends_on`");
            let help = Some(format!("add it: `depends_on = [{}]`", all.join(", ")));
            problems.error_help("missing_dependency", &place, message, help);
        }
        match rest {
            [] => {}
            ["outputs", ..] => {
                let message = format!("`{name}` is not available in this version");
                problems.error("not_built", &place, message);
            }
            ["output", field, ..] if is_text(entry.node.table()) => {
                let message =
                    format!("`{name}`: the output of `{task}` is text, without `{field}`");
                let help = Some(format!("add `output = \"json\"` to [tasks.{task}]"));
                problems.error_help("undefined_name", &place, message, help);
            }
            [field, ..] if TASK_FIELDS.contains(field) => {}
            [field, ..] => {
                let help = match names::nearest(field, TASK_FIELDS) {
                    Some(near) => format!("did you mean `tasks.{task}.{near}`?"),
                    None => format!("a task has {}", names::list(&TASK_FIELDS)),
                };
                let message = format!("`{name}` is not defined");
                problems.error_help("undefined_name", &place, message, Some(help));
            }
        }
    }

    /// Whether a name stands for the item of a fan-out: that it is not built is said at its key.
    fn is_item(&self, name: &str) -> bool {
        let own = self.task.and_then(|task| self.tasks.get(task)?.node.table());
        own.is_some_and(|own| {
            own.get("foreach").is_some() && name == own.text("foreach_as").unwrap_or("item")
        })
    }

    fn undefined(&self, node: &Node, name: &str, problems: &mut Problems) {
        let root = name.split('.').next().unwrap_or_default();
        let help = match (self.task, names::nearest(root, ["inputs", "tasks", "run"])) {
            (Some(_), Some(near)) if near != root => format!("did you mean `{near}`?"),
            (Some(_), _) => "there is `inputs.NAME`, `tasks.NAME.output` and `run.id`".to_owned(),
            (None, _) => "there is `inputs.NAME`".to_owned(),
        };
        let message = format!("`{name}` is not defined");
        problems.error_help("undefined_name", &name_place(node, name), message, Some(help));
    }
}

fn is_text(task: Option<&Table>) -> bool {
    // A schema will mean JSON; that it is not built is said at its key.
    task.is_none_or(|task| {
        task.get("output_schema").is_none() && task.text("output").is_none_or(|it| it == "text")
    })
}

/// Where a name stands in the text; the start of the text when it is written in another way.
fn name_place(node: &Node, name: &str) -> Place {
    let written = node.place.written();
    let inner = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut found = written.match_indices(name).filter(|(at, _)| {
        let (before, after) = (&written[..*at], &written[at + name.len()..]);
        !before.ends_with(inner) && !after.starts_with(|c: char| c.is_alphanumeric() || c == '_')
    });
    match found.next() {
        Some((at, _)) => node.place.part(at..at + name.len()),
        None => node.place.clone(),
    }
}

fn syntax_place(node: &Node, error: &TemplateError) -> Place {
    let text = node.text().unwrap_or_default();
    let Some(start) = node.place.written().find(text).filter(|_| !text.is_empty()) else {
        return node.place.clone();
    };
    let line = || {
        let at = text.split_inclusive('\n').take(error.line.saturating_sub(1)).map(str::len).sum();
        at..at
    };
    let range = error.range.clone().filter(|r| r.end <= text.len() && r.start <= r.end);
    let range = range.unwrap_or_else(line);
    node.place.part(start + range.start..start + range.end)
}
