//! Checks the types in the templates and expressions of tasks: a field that an output never has, a list that
//! is none, a condition that is always true.
//!
//! What is not known has any type, so each finding is a mistake. Knows nothing of names that do not exist:
//! `templates` reports them.

use std::collections::{BTreeMap, BTreeSet};

use super::diagnostic::{Place, Problems};
use super::raw::{InputKind, Task};
use super::shape::{Field, Item};
use super::templates::within;
use super::{Setting, names};
use crate::spec::{OnFailure, OutputFormat, TaskSpec, Work};
use crate::template::typing::{self, Misfit, MisfitKind, Roots, Typed};
use crate::template::value_type::{Field as OfField, Fields, Type};

/// The types of the outputs of sub-graphs, by the names of their tasks.
type OfGraphs<'a> = BTreeMap<&'a str, Type>;

/// Checks the tasks of a file; `tasks` are those that could be built.
pub(super) fn check<'t>(
    setting: Setting<'_>,
    tasks: impl Iterator<Item = &'t TaskSpec> + Clone,
    graphs: &OfGraphs<'_>,
) {
    let of_tasks = tasks.clone().map(|task| (task.name.as_str(), of_task(task, graphs)));
    let of_tasks: BTreeMap<&str, Type> = of_tasks.collect();
    let inputs = of_inputs(setting);
    for spec in tasks {
        let Some(raw) = setting.raw.tasks.value(spec.name.as_str()) else { continue };
        let named = spec.depends_on.iter().filter_map(|name| {
            let of = of_tasks.get(name.as_str())?;
            Some((name.to_string(), OfField { of: of.clone(), is_required: true }))
        });
        // Others are reported as names that do not exist.
        let of_tasks = Fields { known: named.collect(), rest: Some(Type::Unknown) };
        let roots = Roots::from([
            ("inputs".to_owned(), inputs.clone()),
            ("tasks".to_owned(), Type::Object(of_tasks.into())),
        ]);
        OfTask { problems: setting.problems, spec, raw }.check(roots);
    }
}

/// Returns the type of the output of a sub-graph with these tasks, all of which could be built: an object with the
/// outputs of those on which no other depends.
pub(super) fn of_graph(tasks: &[TaskSpec], graphs: &OfGraphs<'_>) -> Type {
    let awaited: BTreeSet<&str> =
        tasks.iter().flat_map(|task| &task.depends_on).map(|name| name.as_str()).collect();
    let last = tasks.iter().filter(|task| !awaited.contains(task.name.as_str()));
    Type::object(last.map(|task| {
        let (_, of) = of_answer(task, graphs);
        // A task that does not run has none, and neither has one whose failure the others do not wait for.
        let may_miss = task.when.is_some() || task.on_failure == Some(OnFailure::Continue);
        let of = if may_miss { or_none(of) } else { of };
        (task.name.to_string(), of)
    }))
}

fn or_none(of: Type) -> Type {
    Type::one_of([of, Type::Null])
}

/// Returns the field in which templates see the answers of a task, with its type.
fn of_answer(task: &TaskSpec, graphs: &OfGraphs<'_>) -> (&'static str, Type) {
    let output = of_output(task, graphs);
    match task.fan_out {
        None => ("output", output),
        Some(_) => {
            let end = Type::object([
                ("index", Type::Number),
                ("key", Type::Text),
                ("state", or_none(Type::Text)),
                ("output", or_none(output)),
                ("partial", or_none(Type::Text)),
                ("error", or_none(Type::Text)),
            ]);
            ("outputs", end.list())
        }
    }
}

/// Returns what templates see of a task.
fn of_task(task: &TaskSpec, graphs: &OfGraphs<'_>) -> Type {
    let output = of_answer(task, graphs);
    let others = ["output_path", "partial", "state", "error"];
    let all = others.into_iter().map(|name| (name, Type::Unknown)).chain([output]);
    Type::object(all)
}

/// Returns the type of a task's answer.
fn of_output(task: &TaskSpec, graphs: &OfGraphs<'_>) -> Type {
    match (&task.work, &task.acceptance.schema, task.output) {
        (Work::Approval(_), ..) => Type::object([
            ("approved", Type::Bool),
            ("text", Type::one_of([Type::Text, Type::Null])),
            ("by", Type::Unknown),
            ("at_ms", Type::Number),
        ]),
        (Work::Graph { .. }, ..) => graphs.get(task.name.as_str()).cloned().unwrap_or_default(),
        (_, Some(schema), _) => Type::of_schema(schema.document()),
        (_, None, OutputFormat::Text | OutputFormat::Raw) => Type::Text,
        (_, None, OutputFormat::Json) => Type::Unknown,
        (_, None, OutputFormat::Jsonl) => Type::Unknown.list(),
    }
}

fn of_inputs(setting: Setting<'_>) -> Type {
    let of = |input: &super::raw::Input| match *input.r#type {
        _ if input.r#type.is_wrong() => Type::Unknown,
        InputKind::String | InputKind::Path => Type::Text,
        InputKind::Integer | InputKind::Number => Type::Number,
        InputKind::Boolean => Type::Bool,
        InputKind::Array => Type::Unknown.list(),
        InputKind::Object => Type::any_object(),
    };
    let inputs = setting.raw.inputs.values();
    Type::object(inputs.map(|(entry, input)| (entry.name.clone(), of(input))))
}

/// The check of one task.
struct OfTask<'a> {
    problems: &'a Problems,
    spec: &'a TaskSpec,
    raw: &'a Task,
}

impl OfTask<'_> {
    fn check(&self, roots: Roots) {
        let raw = self.raw;
        if let Some((when, place)) = raw.when.placed() {
            self.report(when, place, typing::of_condition(when, &roots));
        }
        let mut own = roots.clone();
        if let Some((list, place)) = raw.foreach.placed() {
            let found = typing::of_expression(list, &roots);
            let of = found.as_ref().map_or(Type::Unknown, |found| found.of.clone());
            self.report(list, place, found);
            self.list(list, place, &of);
            own.insert((*raw.foreach_as).clone(), of.item());
            if let Some((key, place)) = raw.foreach_key.placed() {
                self.template(key, place, &own);
            }
            let instance = Type::object([("index", Type::Number), ("key", Type::Text)]);
            own.insert("instance".to_owned(), instance);
        }
        let texts = [&raw.prompt, &raw.output_file, &raw.stdin, &raw.cwd, &raw.idempotency_key];
        let env = raw.env.values().map(|(variable, text)| (text, &variable.at.value));
        for (text, place) in texts.into_iter().filter_map(Field::placed).chain(env) {
            self.template(text, place, &own);
        }
        if let Some(approval) = raw.approval.as_ref() {
            if let Some((message, place)) = approval.message.placed() {
                self.template(message, place, &own);
            }
            for Item { value, at } in approval.show.iter() {
                self.report(value, &at.value, typing::of_expression(value, &own));
            }
        }
        self.answer(own);
    }

    /// Checks the texts that judge the answer.
    fn answer(&self, mut roots: Roots) {
        // A sub-graph has nothing that judges its answer.
        let output = of_output(self.spec, &OfGraphs::new());
        // The fields of a text are reported where its name is.
        let output = if output == Type::Text { Type::Unknown } else { output };
        roots.insert("output".to_owned(), output);
        roots.insert("iteration".to_owned(), Type::Number);
        for check in self.raw.checks.iter() {
            let env = check.value.env.values();
            let env = env.map(|(variable, text)| (text, &variable.at.value));
            for (text, place) in check.value.prompt.placed().into_iter().chain(env) {
                self.template(text, place, &roots);
            }
        }
        if let Some((until, place)) = self.raw.r#loop.until.placed() {
            self.report(until, place, typing::of_condition(until, &roots));
        }
    }

    /// Reports a `foreach` that never gives a list.
    fn list(&self, list: &str, place: &Place, of: &Type) {
        if of.may_be_list() {
            return;
        }
        let list = list.trim();
        let help = match (of, task_of(list)) {
            (Type::Text, Some(task)) => {
                format!("add `output = \"json\"` to [tasks.{task}], or write `{list} | lines`")
            }
            (Type::Text, None) => format!("write `{list} | lines`, or `{list} | from_json`"),
            (Type::Object(fields), _) => {
                let is_list = |(_, field): &(&String, &OfField)| matches!(field.of, Type::List(_));
                let mut lists = fields.known.iter().filter(is_list);
                let first = lists.next().filter(|_| lists.next().is_none());
                first.map(|(name, _)| format!("did you mean `{list}.{name}`?")).unwrap_or_default()
            }
            _ => String::new(),
        };
        let message = format!("`foreach` needs a list, but `{list}` is {of}");
        self.problems.error("wrong_type", place, message, help);
    }

    fn template(&self, text: &str, place: &Place, roots: &Roots) {
        if text.contains('{') {
            self.report(text, place, typing::of_template(text, roots));
        }
    }

    fn report(
        &self,
        text: &str,
        place: &Place,
        found: Result<Typed, crate::template::TemplateError>,
    ) {
        // A text that cannot be parsed is reported already.
        for misfit in found.into_iter().flat_map(|found| found.misfits) {
            let is_error = matches!(misfit.kind, MisfitKind::Never { .. }) && !misfit.is_foreseen;
            if !is_error || !self.problems.is_full() {
                misfit_at(&misfit, &within(place, text, &misfit.range), self.problems);
            }
        }
    }
}

/// Reports a place that does not fit its type.
fn misfit_at(misfit: &Misfit, place: &Place, problems: &Problems) {
    let (message, path) = (misfit.message(), &misfit.path);
    match &misfit.kind {
        // Whether an input is given is asked in this way.
        MisfitKind::Truth if path.starts_with("inputs") => {}
        MisfitKind::Truth => {
            let help = format!(
                "`false` and `0` are true too: compare it, `{path} == \"true\"`, or ask if there is \
                 any, `{path} != \"\"`"
            );
            problems.warning("always_true", place, message, help);
        }
        MisfitKind::Never { owner, .. }
        | MisfitKind::Perhaps { owner, .. }
        | MisfitKind::Unlisted { owner, .. }
            if is_name(owner) => {}
        MisfitKind::Never { owner, of, field } => {
            let help = match names::nearest(field, misfit.names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => what_then(misfit, owner, of),
            };
            match misfit.is_foreseen {
                false => problems.error("undefined_name", place, message, help),
                true => {
                    let message = format!("`{path}` is never there: {message}");
                    problems.warning("undefined_name", place, message, help);
                }
            }
        }
        MisfitKind::Perhaps { field, .. } => {
            let help = format!(
                "write `{path} | default('...')`, ask `is defined` first, or let the schema require \
                 `{field}`"
            );
            problems.warning("undefined_name", place, message, help);
        }
        MisfitKind::Unlisted { field, .. } => {
            if let Some(near) = names::nearest(field, misfit.names()) {
                let help = format!("did you mean `{near}`?");
                problems.warning("undefined_name", place, message, help);
            }
        }
    }
}

/// Returns what to do about a field that is not there and looks like none that is.
fn what_then(misfit: &Misfit, owner: &str, of: &Type) -> String {
    match (of, task_of(owner)) {
        (Type::Text, Some(task)) => format!("add `output = \"json\"` to [tasks.{task}]"),
        (Type::List(_), _) => format!("name an item, `{owner}[0]`, or go through them with `for`"),
        _ => misfit.what_is_there().unwrap_or_default(),
    }
}

/// Returns the task whose whole output a text names.
fn task_of(text: &str) -> Option<&str> {
    let task = text.strip_prefix("tasks.")?.strip_suffix(".output")?;
    (!task.contains(['.', '['])).then_some(task)
}

/// Returns true if a text is one of the values whose fields are checked as names: `inputs`, `tasks.NAME`.
fn is_name(text: &str) -> bool {
    let parts = text.matches(['.', '[']).count();
    let is_task = || text.strip_prefix("tasks").is_some_and(|rest| rest.starts_with(['.', '[']));
    match parts {
        0 => ["inputs", "tasks", "run"].contains(&text),
        1 => is_task(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
