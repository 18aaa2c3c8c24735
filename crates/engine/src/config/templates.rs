//! Checks the templates and expressions of a task: every name in them must exist when the task
//! runs.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::diagnostic::{Code, NO_HELP, Place, Problems};
use super::raw::{Settings, Task};
use super::{Setting, hints, names};
use crate::template::{self, TemplateError};

/// Fields that a template can use of a task that it depends on.
pub const TASK_FIELDS: [&str; 5] = ["output", "output_path", "partial", "state", "error"];

/// Fields that a template can use of the run.
pub const RUN_FIELDS: [&str; 1] = ["id"];

/// Names of the functions that are built into the template language.
const FUNCTIONS: [&str; 4] = ["range", "dict", "namespace", "debug"];

/// A name in brackets, which the parser does not report: `tasks["my-task"].output`.
static BRACKETS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"\b(tasks|inputs)\s*\[\s*['"]([^'"]+)['"]\s*\](?:\s*\.\s*([A-Za-z_]\w*))?"#;
    Regex::new(pattern).expect("the pattern is constant and valid")
});

/// The language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// A text with `{{ }}` and `{% %}`.
    Template,
    /// The part between the braces, without them, and the key that has it.
    Expression(&'static str),
}

/// The names that a text may use.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    raw: &'a Settings,
    problems: &'a Problems,
    /// The task that the text belongs to; absent for a text that is rendered before any task.
    task: Option<(&'a str, &'a Task)>,
    /// Names of the tasks on which this task depends.
    depends_on: HashSet<&'a str>,
    /// What the text may name of one instance of a fan-out.
    of_instance: OfInstance,
    /// The answer of the task, where it is judged.
    answer: Option<Answer>,
}

/// What a text may name of an instance of a fan-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfInstance {
    /// Nothing: the text is rendered once.
    Nothing,
    /// The item: its instance is not made yet.
    Item,
    /// The item, and the number and the key of the instance.
    All,
}

/// The answer that a text may use.
#[derive(Clone, Copy, Debug)]
struct Answer {
    is_text: bool,
}

impl<'a> Scope<'a> {
    /// Returns the scope of a task's texts.
    pub(super) fn of_task(setting: Setting<'a>, name: &'a str, task: &'a Task) -> Self {
        let depends_on = task.depends_on.iter().map(|item| item.value.as_str()).collect();
        Self { task: Some((name, task)), depends_on, ..Self::of_inputs(setting) }
    }

    /// Returns the scope of the texts that judge a task's answer.
    pub(super) fn of_answer(
        setting: Setting<'a>,
        name: &'a str,
        task: &'a Task,
        is_text: bool,
    ) -> Self {
        Self { answer: Some(Answer { is_text }), ..Self::of_task(setting, name, task).with_item() }
    }

    /// Returns the scope of texts that are rendered before any task.
    pub(super) fn of_inputs(setting: Setting<'a>) -> Self {
        let Setting { raw, problems, .. } = setting;
        let (depends_on, of_instance, answer) = (HashSet::new(), OfInstance::Nothing, None);
        Self { raw, problems, task: None, depends_on, of_instance, answer }
    }

    /// Checks one text; `place` is the place at which it is written.
    pub(super) fn check(&self, text: &str, place: &Place, language: Language) {
        let found = match language {
            Language::Template => template::names_in_template(text),
            Language::Expression(_) => template::names_in_expression(text),
        };
        let check = Check { scope: self, text, place };
        match found {
            Ok(found) => check.names(found),
            Err(error) => {
                let advice = match language {
                    Language::Template => hints::template(&error),
                    Language::Expression(key) => hints::expression(key, text, &error),
                };
                let plain = || (format!("not a valid template: {error}"), NO_HELP.to_owned());
                let (message, help) = advice.unwrap_or_else(plain);
                let place = check.syntax_place(&error);
                self.problems.error("bad_template", &place, message, help);
            }
        }
    }

    /// Returns the scope of texts that are rendered for each instance, if the task fans out.
    pub(super) fn with_item(&self) -> Self {
        self.with(OfInstance::All)
    }

    /// Returns the scope of a text that is rendered for each item, before there are instances.
    pub(super) fn with_item_alone(&self) -> Self {
        self.with(OfInstance::Item)
    }

    fn with(&self, of_instance: OfInstance) -> Self {
        let Self { raw, problems, task, answer, .. } = *self;
        let fans_out = task.is_some_and(|(_, task)| task.foreach.is_set());
        let of_instance = if fans_out { of_instance } else { OfInstance::Nothing };
        Self { raw, problems, task, depends_on: self.depends_on.clone(), of_instance, answer }
    }

    /// Returns true if a template gives the same text for all instances of the task, which fans out.
    /// False if it is not valid.
    pub(super) fn is_same_for_all(&self, template: &str) -> bool {
        let fans_out = self.task.is_some_and(|(_, task)| task.foreach.is_set());
        let Ok(names) = template::names_in_template(template) else { return false };
        let mut roots = names.iter().filter_map(|name| name.split('.').next());
        fans_out && !roots.any(|root| self.is_item(root))
    }

    /// Returns true if a name stands for the item of a fan-out, or for its place.
    fn is_item(&self, name: &str) -> bool {
        let is_item = || self.task.is_some_and(|(_, task)| name == *task.foreach_as);
        match self.of_instance {
            OfInstance::Nothing => false,
            OfInstance::Item => is_item(),
            OfInstance::All => is_item() || name == "instance",
        }
    }
}

/// The check of one text.
struct Check<'a> {
    scope: &'a Scope<'a>,
    text: &'a str,
    place: &'a Place,
}

impl Check<'_> {
    fn names(&self, mut found: BTreeSet<String>) {
        let bare: Vec<&str> =
            ["tasks", "inputs"].into_iter().filter(|root| found.contains(*root)).collect();
        for capture in BRACKETS.captures_iter(self.text) {
            if bare.contains(&&capture[1]) {
                self.bracketed(&capture);
            }
        }
        if self.dashed(&found) {
            return;
        }
        found.retain(|name| !bare.contains(&name.as_str()));
        let in_task = self.scope.task.is_some();
        let mut blamed = BTreeSet::new();
        for name in found {
            let mut parts = name.split('.');
            match (parts.next().unwrap_or_default(), parts.next()) {
                ("inputs", Some(input)) => self.input(&name, input),
                ("tasks", Some(task)) => {
                    let rest: Vec<&str> = parts.collect();
                    self.task_name(&name, task, &rest, &mut blamed);
                }
                ("run", Some(field)) if RUN_FIELDS.contains(&field) && in_task => {}
                ("run", None) if in_task => {}
                ("secrets", _) => {
                    let message = format!("`{name}` cannot be used in a template in this version");
                    self.report("not_built", &name, message, NO_HELP);
                }
                (function, None) if FUNCTIONS.contains(&function) => {}
                (item, _) if self.scope.is_item(item) => {}
                ("output", field) if self.scope.answer.is_some() => self.answer(&name, field),
                ("iteration", None) if self.scope.answer.is_some() => {}
                _ => self.undefined(&name),
            }
        }
    }

    fn bracketed(&self, capture: &regex::Captures<'_>) {
        let (whole, name) = (&capture[0], &capture[2]);
        match &capture[1] {
            "inputs" => self.input(whole, name),
            _ => {
                let field = capture.get(3).map(|field| field.as_str());
                self.task_name(whole, name, field.as_slice(), &mut BTreeSet::new());
            }
        }
    }

    /// Returns true if the text writes `tasks.my-task`, which the language reads as a subtraction.
    fn dashed(&self, found: &BTreeSet<String>) -> bool {
        let Settings { tasks, inputs, .. } = self.scope.raw;
        let mut any = false;
        for name in found {
            let Some((root, rest)) = name.split_once('.') else { continue };
            let start = format!("{rest}-");
            let meant = match root {
                "tasks" if !tasks.has(rest) => tasks.beginning_with(&start),
                "inputs" if !inputs.has(rest) => inputs.beginning_with(&start),
                _ => None,
            };
            let Some(meant) = meant else { continue };
            any = true;
            let message = format!("`{root}.{meant}` is read as a subtraction");
            self.report("undefined_name", name, message, &format!("write `{root}[\"{meant}\"]`"));
        }
        any
    }

    fn input(&self, name: &str, input: &str) {
        let known = &self.scope.raw.inputs;
        if known.has(input) {
            return;
        }
        let help = match names::nearest(input, known.names()) {
            Some(near) => format!("did you mean `inputs.{near}`?"),
            None => format!("add [inputs.{input}]"),
        };
        self.report("undefined_name", name, format!("`{name}` is not defined"), &help);
    }

    fn task_name(&self, name: &str, task: &str, rest: &[&str], blamed: &mut BTreeSet<String>) {
        let tasks = &self.scope.raw.tasks;
        let Some(entry) = tasks.get(task) else {
            let help = names::suggest(task, tasks.names());
            let message = format!("`{name}` names a task that does not exist");
            return self.report("unknown_task", name, message, &help);
        };
        let Some((own, raw)) = self.scope.task else { return self.undefined(name) };
        if own == task {
            let message = format!("`{name}`: a task cannot use its own output");
            let help = "remove it, or name a task that runs before this one";
            return self.report("undefined_name", name, message, help);
        }
        if !self.scope.depends_on.contains(task) && blamed.insert(task.to_owned()) {
            let is_good = |name: &&str| *name != own && tasks.has(name);
            let all = raw.depends_on.iter().map(|item| item.value.as_str()).filter(is_good);
            let all = all.chain([task]);
            let all: Vec<String> = all.map(|name| format!("\"{name}\"")).collect();
            let message = format!("`{name}` is used, but `{task}` is not in `depends_on`");
            let help = format!("add it: `depends_on = [{}]`", all.join(", "));
            self.report("missing_dependency", name, message, &help);
        }
        let fans_out = entry.value.as_ref().is_some_and(|task| task.foreach.is_set());
        match rest {
            [] => {}
            ["outputs", ..] if fans_out => {}
            ["output", ..] if fans_out => {
                let message = format!("`{name}`: `{task}` fans out and has several outputs");
                let help = format!("use `tasks.{task}.outputs`, a list");
                self.report("undefined_name", name, message, &help);
            }
            ["outputs", ..] => {
                let message = format!("`{name}`: `{task}` does not fan out and has one output");
                self.report("undefined_name", name, message, &format!("use `tasks.{task}.output`"));
            }
            [field, ..] if TASK_FIELDS.contains(field) => {}
            [field, ..] => {
                let help = match names::nearest(field, TASK_FIELDS) {
                    Some(near) => format!("did you mean `tasks.{task}.{near}`?"),
                    None => format!("a task has {}", names::list(&TASK_FIELDS)),
                };
                self.report("undefined_name", name, format!("`{name}` is not defined"), &help);
            }
        }
    }

    /// Warns of a field of an answer that is a text.
    fn answer(&self, name: &str, field: Option<&str>) {
        if field.is_some() && self.scope.answer.is_some_and(|answer| answer.is_text) {
            let message = format!("`{name}` is never there: the output of the task is text");
            let help = "add `output = \"json\"`, or an `output_schema`";
            self.scope.problems.warning("undefined_name", &self.name_place(name), message, help);
        }
    }

    fn undefined(&self, name: &str) {
        let root = name.split('.').next().unwrap_or_default();
        let near = names::nearest(root, ["inputs", "tasks", "run"]).filter(|near| *near != root);
        let help = match (self.scope.task, near) {
            _ if root == "instance" && self.scope.of_instance == OfInstance::Item => {
                "an instance is made from its key, so the key cannot name it: name the item"
            }
            (Some(_), Some(near)) => &format!("did you mean `{near}`?"),
            (Some(_), None) => "there is `inputs.NAME`, `tasks.NAME.output` and `run.id`",
            (None, _) => "there is `inputs.NAME`",
        };
        self.report("undefined_name", name, format!("`{name}` is not defined"), help);
    }

    /// Reports a mistake at a name. The place is searched only here, after a mistake: a text can
    /// name as many tasks as it has words.
    fn report(&self, code: Code, name: &str, message: String, help: &str) {
        if self.scope.problems.is_full() {
            return;
        }
        self.scope.problems.error(code, &self.name_place(name), message, help);
    }

    /// Returns the place of a name in the text, or the start of the text if the name is written in
    /// another form.
    fn name_place(&self, name: &str) -> Place {
        let written = self.place.written();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut found = written.match_indices(name).filter(|(at, _)| {
            let (before, after) = (&written[..*at], &written[at + name.len()..]);
            !before.ends_with(|c: char| is_word(c) || c == '.') && !after.starts_with(is_word)
        });
        let at = found.next().map(|(at, _)| at);
        at.map_or_else(|| self.place.clone(), |at| self.place.part(at..at + name.len()))
    }

    fn syntax_place(&self, error: &TemplateError) -> Place {
        let line = || {
            let lines = self.text.split_inclusive('\n').take(error.line.saturating_sub(1));
            let at = lines.map(str::len).sum();
            at..at
        };
        let range = error.range.clone().filter(|range| self.text.get(range.clone()).is_some());
        within(self.place, self.text, &range.unwrap_or_else(line))
    }
}

/// Returns the place of a range of bytes of a text that is written at a place; all of it if the text is
/// written in another form.
pub(super) fn within(place: &Place, text: &str, range: &Range<usize>) -> Place {
    let start = place.written().find(text).filter(|_| text.get(range.clone()).is_some());
    match start.filter(|_| !text.is_empty()) {
        Some(start) => place.part(start + range.start..start + range.end),
        None => place.clone(),
    }
}

/// Reports `{{` in a command: nothing is inserted into the text that the shell reads, since an
/// inserted value could be executed.
pub(super) fn command(text: &str, place: &Place, problems: &Problems) {
    if !text.contains("{{") {
        return;
    }
    let at = place.written().find("{{");
    let place = at.map_or_else(|| place.clone(), |at| place.part(at..at + 2));
    let message = "`run` is not a template: `{{` would be handed to the shell";
    let help = "inputs arrive as $INPUT_NAME; pass other values through `env`";
    problems.error("template_in_run", &place, message, help);
}
