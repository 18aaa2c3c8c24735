//! Templates of tasks: the values that they may name, and the programs that they render to.
//!
//! Pure: a live run and a forecast render the same programs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use crate::context::measure;
use crate::failure::{Failure, FailureKind};
use crate::id::{Name, RunId};
use crate::output::Text;
use crate::plan::TaskState;
use crate::run_state::TaskStatus;
use crate::spec::acceptance::CheckWork;
use crate::spec::{Approval, TaskSpec, Work};
use crate::template::{self, Known, TemplateError, Values};
use crate::turn::question::{self, Shown};
use crate::turn::{Command, Program};

/// Most bytes of an environment variable. Linux takes 128 KiB with the name of the variable.
const VARIABLE_BYTES: usize = 120 * 1024;

/// The variable by which a command gets the key of its task.
const KEY_VARIABLE: &str = "IDEMPOTENCY_KEY";

/// The inputs of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    map: Arc<Map<String, Value>>,
    known: Known,
}

impl Inputs {
    /// Makes them shareable.
    pub fn new(map: Map<String, Value>) -> Self {
        Self { known: Known::of(&map), map: Arc::new(map) }
    }
}

/// The values that the templates of a run's tasks may name.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: &'a str,
    /// The inputs.
    pub inputs: &'a Inputs,
    /// The values of the tasks that have ended, by name, made by [`ended`].
    pub ended: &'a BTreeMap<String, Known>,
    /// The item of an instance of a fan-out.
    pub item: Option<&'a Item>,
}

/// The item on which an instance of a fan-out works.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The name of the item in templates.
    pub name: String,
    /// The item.
    pub value: Known,
    /// The key of the item.
    pub key: String,
    /// The number of the instance, from 0.
    pub number: usize,
}

/// The value of a dependency that has not ended: a task that needs only some of its dependencies
/// may start before the others end.
static NOT_ENDED: LazyLock<Known> = LazyLock::new(|| {
    let state = TaskState::Pending.as_str();
    Known::of(&serde_json::json!({
        "output": null, "outputs": null, "partial": null, "state": state, "error": null,
    }))
});

impl Scope<'_> {
    /// Returns the values for the templates of one task.
    #[must_use]
    pub(crate) fn values(&self, task: &TaskSpec) -> Values {
        // A template may name only the task's dependencies. To copy all outputs for each task would
        // take time quadratic in the number of tasks.
        let within = task.within.as_ref();
        let named = task.depends_on.iter().filter_map(|name| {
            Some((name, within.map_or(Some(name.as_str()), |within| within.local(name))?))
        });
        let value = |name: &Name| self.ended.get(name.as_str()).unwrap_or(&NOT_ENDED).clone();
        let tasks: BTreeMap<_, _> = named.map(|(name, local)| (local, value(name))).collect();
        let run = serde_json::json!({ "id": self.run, "name": self.workflow });
        let mut values = Values::default();
        values.set(
            "inputs",
            match within {
                Some(within) => Known::of(&within.inputs),
                None => self.inputs.known.clone(),
            },
        );
        values.set("tasks", Known::object(tasks));
        values.set("run", Known::of(&run));
        if let Some(item) = self.item {
            values.set(&item.name, item.value.clone());
            values.set("instance", instance(item.number, &item.key));
        }
        values
    }

    /// Renders the program of a task's agent.
    ///
    /// # Errors
    /// Returns the key whose template cannot be rendered, with the error.
    pub fn program(&self, task: &TaskSpec) -> Result<Program, Unrendered> {
        match &task.work {
            Work::Agent { agent, prompt } => {
                // A text without tags needs no values.
                let values = match template::is_plain(prompt) {
                    true => Known::default(),
                    false => self.values(task).known(),
                };
                let mut prompt =
                    template::render(prompt, &values).map_err(|e| unrendered("prompt", e))?;
                if prompt.trim().is_empty() {
                    // Providers refuse a message without text.
                    return Err(unrendered("prompt", wrong("the rendered text is blank")));
                }
                self.attach(task, &mut prompt);
                let prompt = task.acceptance.ask(prompt);
                Ok(Program::Model { agent: agent.clone(), prompt: prompt.into() })
            }
            Work::Command { run } => {
                let values = self.values(task).known();
                Ok(Program::Command(self.command(task, run, &values)?))
            }
            Work::Approval(_) => Err(unrendered("approval", wrong("an approval has no agent"))),
            Work::Graph { .. } => {
                Err(unrendered("workflow", wrong("a sub-graph has no program of its own")))
            }
        }
    }

    /// Adds the outputs that a task names in `context` to its prompt, as far as they fit its budget,
    /// in their order. The others are named by their files.
    fn attach(&self, task: &TaskSpec, prompt: &mut String) {
        let mut left = task.context_budget;
        for name in &task.context {
            let local = task.within.as_ref().and_then(|within| within.local(name));
            let shown = local.unwrap_or(name.as_str());
            let ended = self.ended.get(name.as_str()).unwrap_or(&NOT_ENDED);
            let output = ended.get("outputs").or(ended.get("output")).unwrap_or_default();
            let field = |name: &str| ended.get(name).unwrap_or_default();
            let text = match output.as_str() {
                Some(text) => Cow::Borrowed(text.trim_end()),
                None => Cow::Owned(match output.to_json() {
                    Value::Null => {
                        let state = field("state");
                        let state = state.as_str().unwrap_or_default();
                        prompt
                            .push_str(&format!("\n\n<output task=\"{shown}\" state=\"{state}\"/>"));
                        continue;
                    }
                    value => value.to_string(),
                }),
            };
            if let Some(rest) = left.checked_sub(measure::estimate(&text)) {
                left = rest;
                prompt.push_str(&format!("\n\n<output task=\"{shown}\">\n{text}\n</output>"));
            } else {
                let (path, bytes) = (field("output_path"), text.len());
                let path = path.as_str().unwrap_or_default();
                prompt.push_str(&format!(
                    "\n\n<output task=\"{shown}\" path=\"{path}\" bytes=\"{bytes}\"/>"
                ));
            }
        }
    }

    /// Renders the message of an approval and the values that it shows.
    ///
    /// # Errors
    /// Returns the key whose template cannot be rendered, with the error.
    pub(crate) fn approval(
        &self,
        task: &TaskSpec,
        approval: &Approval,
    ) -> Result<(String, Vec<Shown>), Unrendered> {
        let values = self.values(task).known();
        let message =
            template::render(&approval.message, &values).map_err(|e| unrendered("message", e))?;
        let (mut shown, mut bytes_left) = (Vec::new(), question::ALL_SHOWN_BYTES);
        for (number, expression) in approval.show.iter().enumerate() {
            let value = template::evaluate(expression, &values)
                .map_err(|e| unrendered(format!("show[{number}]"), e))?;
            // For people: JSON on lines of its own.
            let text = value.as_str().map_or_else(|| format!("{value:#}"), str::to_owned);
            let (text, left_out) = question::bounded(&text, question::SHOWN_BYTES.min(bytes_left));
            bytes_left -= text.len();
            shown.push(Shown { expression: expression.clone(), text, left_out });
        }
        Ok((message, shown))
    }

    /// Renders the command of a task.
    fn command(&self, task: &TaskSpec, run: &str, values: &Known) -> Result<Command, Unrendered> {
        let rendered = |key: &'static str, template: Option<&String>| {
            let text = template.map(|template| template::render(template, values)).transpose();
            text.map_err(|error| unrendered(key, error))
        };
        let mut env = self.variables(task, "env", &task.env, values)?;
        if let Some(key) = rendered("idempotency_key", task.idempotency_key.as_ref())? {
            if key.trim().is_empty() {
                return Err(unrendered("idempotency_key", wrong("the rendered text is blank")));
            }
            env.insert(KEY_VARIABLE.to_owned(), key);
            fits_variables(&env).map_err(|error| unrendered("idempotency_key", error))?;
        }
        Ok(Command {
            run: run.to_owned(),
            env,
            stdin: rendered("stdin", task.stdin.as_ref())?.map(Text::from),
            cwd: rendered("cwd", task.cwd.as_ref())?,
            capture: task.capture,
            idempotent: task.idempotent,
        })
    }

    /// Returns the variables of a command: the inputs that its task sees, and these templates, rendered.
    /// `key` is the key that has them.
    ///
    /// # Errors
    /// Returns an error for a template that cannot be rendered and for a value that is too long.
    pub(super) fn variables(
        &self,
        task: &TaskSpec,
        key: &str,
        templates: &BTreeMap<String, String>,
        values: &Known,
    ) -> Result<BTreeMap<String, String>, Unrendered> {
        let mut env = self.input_variables(task);
        for (name, text) in templates {
            let rendered = template::render(text, values);
            let rendered = rendered.map_err(|error| unrendered(format!("{key}.{name}"), error))?;
            env.insert(name.clone(), rendered);
        }
        fits_variables(&env).map_err(|error| unrendered(key.to_owned(), error))?;
        Ok(env)
    }

    /// Returns the inputs that a task sees as `INPUT_NAME` variables: texts as they are, other values as
    /// JSON.
    fn input_variables(&self, task: &TaskSpec) -> BTreeMap<String, String> {
        let variables = self.inputs_of(task).iter().map(|(name, value)| {
            let name = format!("INPUT_{}", name.to_uppercase().replace('-', "_"));
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name, value)
        });
        variables.collect()
    }

    /// Returns the inputs that a task sees.
    fn inputs_of<'a>(&'a self, task: &'a TaskSpec) -> &'a Map<String, Value> {
        task.within.as_ref().map_or(&self.inputs.map, |within| &within.inputs)
    }
}

/// Returns an error if a value is longer than a variable can be.
fn fits_variables(env: &BTreeMap<String, String>) -> Result<(), TemplateError> {
    match env.iter().find(|(_, value)| value.len() > VARIABLE_BYTES) {
        None => Ok(()),
        Some((name, value)) => Err(wrong(&format!(
            "`${name}` would have {} bytes, and a variable takes at most {VARIABLE_BYTES}: give \
             the value by `stdin`, or the path of the file that holds an output, \
             `tasks.NAME.output_path`",
            value.len()
        ))),
    }
}

fn wrong(message: &str) -> TemplateError {
    TemplateError { message: message.to_owned(), line: 1, range: None }
}

/// Returns what templates of an instance may read of it.
pub(super) fn instance(number: usize, key: &str) -> Known {
    Known::of(&serde_json::json!({ "index": number, "key": key }))
}

/// Returns the value of a task's output for templates, from the output in its format.
#[must_use]
pub fn value_of(task: &TaskSpec, output: Known) -> Known {
    Known::object([(if task.fan_out.is_some() { "outputs" } else { "output" }, output)])
}

/// Returns the value of an ended task for templates, made from that of its output and from what it had
/// made when it failed. With the folder of stored results, it names the file that holds the output.
#[must_use]
pub fn ended(
    status: &TaskStatus,
    value: &Known,
    partial: Option<&str>,
    results: Option<&Path>,
) -> Known {
    let error = status.failure.as_ref().map(ToString::to_string);
    let own = ["output", "outputs"].into_iter().filter_map(|name| Some((name, value.get(name)?)));
    let path = results.map(|results| {
        let path = status.output.as_ref().map(|output| results.join(output.file_name()));
        ("output_path", Known::of(&path.map(|path| path.to_string_lossy().into_owned())))
    });
    let state = ("state", Known::of(&status.state.as_read()));
    let partial = ("partial", Known::of(&partial));
    Known::object(own.chain([partial, state, ("error", Known::of(&error))]).chain(path))
}

/// The key of a task that cannot be rendered, and why.
pub type Unrendered = (Cow<'static, str>, TemplateError);

fn unrendered(key: impl Into<Cow<'static, str>>, error: TemplateError) -> Unrendered {
    (key.into(), error)
}

/// Returns the failure of a task whose key `key` cannot be rendered.
pub(super) fn template_failure(task: &TaskSpec, key: &str, error: &TemplateError) -> Failure {
    let place = key_at(task, key, error.line);
    Failure::new(FailureKind::Template, format!("{place}: {}", error.message))
}

/// Returns a key of a task with the place of a line of its text: that in the configuration, or the line of the
/// text where the configuration does not tell.
pub(super) fn key_at(task: &TaskSpec, key: &str, line: usize) -> String {
    let place = task.written.line(key, line).unwrap_or_else(|| format!("line {line}"));
    format!("`{key}`, {place}")
}

/// Returns the tasks that the templates of a task, or of an instance of it, read.
pub(super) fn reads(task: &TaskSpec) -> BTreeSet<String> {
    let mut texts: Vec<&str> = task.env.values().map(String::as_str).collect();
    let own = [&task.output_file, &task.stdin, &task.cwd, &task.idempotency_key];
    texts.extend(own.into_iter().filter_map(|text| text.as_deref()));
    let mut has_expressions = false;
    match &task.work {
        Work::Agent { prompt, .. } => texts.push(prompt),
        Work::Command { .. } | Work::Graph { .. } => {}
        Work::Approval(approval) => {
            texts.push(&approval.message);
            has_expressions = !approval.show.is_empty();
        }
    }
    let rules = &task.acceptance;
    for check in &rules.checks {
        match &check.work {
            CheckWork::Agent { prompt, .. } => texts.push(prompt),
            CheckWork::Command { env, .. } => texts.extend(env.values().map(String::as_str)),
        }
    }
    let until = rules.repeat.as_ref().map(|repeat| format!("{{{{ {} }}}}", repeat.until));
    texts.extend(until.as_deref());
    let all = || task.depends_on.iter().map(ToString::to_string).collect();
    if has_expressions {
        return all();
    }
    let mut read = tasks_read_by(texts).unwrap_or_else(all);
    let local = |name: &Name| {
        let local = task.within.as_ref().and_then(|within| within.local(name));
        local.unwrap_or(name.as_str()).to_owned()
    };
    read.extend(task.context.iter().map(local));
    read
}

/// Returns the tasks whose values these templates read, or `None` if that cannot be told.
pub(super) fn tasks_read_by<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Option<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    // A text that names none need not be parsed.
    for text in texts.into_iter().filter(|text| text.contains("tasks")) {
        for name in template::names_in_template(text).ok()? {
            match name.strip_prefix("tasks.").and_then(|rest| rest.split('.').next()) {
                Some(read) => drop(found.insert(read.to_owned())),
                // `tasks["name"]`, or all of them.
                None if name == "tasks" => return None,
                None => {}
            }
        }
    }
    Some(found)
}
