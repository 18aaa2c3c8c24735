//! Builds the tools that are commands of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::agents::given_tools;
use super::concern::leads_outside;
use super::diagnostic::{NO_HELP, Place};
use super::raw::Tool;
use super::shape::{Entry, Item};
use super::{Setting, env, names, network};
use crate::id::Name;
use crate::schema::Schema;
use crate::spec::tool::{CommandTool, places_of_code};
use crate::template::{self, argument};
use crate::tool::own::{self, Startable};

/// Keywords by which a schema may allow properties that it does not list under `properties`.
const OPEN: [&str; 7] = [
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
];

/// Turns `[tools]` into tools.
pub(super) fn tools(
    setting: Setting<'_>,
    inputs: &Map<String, Value>,
) -> BTreeMap<Name, CommandTool> {
    let tool = |(entry, raw): (&Entry<Tool>, &Tool)| {
        let tool = tool(setting, entry, raw, inputs)?;
        Some((tool.name.clone(), tool))
    };
    setting.raw.tools.values().filter_map(tool).collect()
}

fn tool(
    setting: Setting<'_>,
    entry: &Entry<Tool>,
    raw: &Tool,
    inputs: &Map<String, Value>,
) -> Option<CommandTool> {
    let problems = setting.problems;
    let name = &entry.name;
    if given_tools(setting).any(|taken| taken == name) {
        let message = format!("`{name}` is the name of a tool that is there already");
        problems.error("conflict", &entry.at.key, message, "choose another name");
    }
    if raw.description.as_ref().is_none_or(|text| text.trim().is_empty()) {
        let message = format!("tool `{name}` has no `description`");
        let help = "say what it does: a model chooses its tools by that";
        problems.error("missing_field", &entry.at.key, message, help);
    }
    let schema = schema(setting, raw);
    command(setting, entry, raw, schema.as_ref());
    Some(CommandTool {
        name: Name::new(name).ok()?,
        description: raw.description.clone().unwrap_or_default(),
        command: raw.command.iter().map(|word| word.value.clone()).collect(),
        input_schema: schema?,
        idempotent: *raw.idempotent,
        on_unknown: *raw.on_unknown,
        timeout: *raw.timeout,
        max_output_bytes: *raw.max_output_bytes,
        folder: folder(setting, raw),
        env: env::rendered(setting, &raw.env, inputs),
    })
}

/// Returns the schema of a tool's arguments. One that lists properties and does not say if there may
/// be others allows none.
fn schema(setting: Setting<'_>, raw: &Tool) -> Option<Schema> {
    let written = raw.input_schema.placed();
    let mut document =
        written.map_or_else(|| json!({"type": "object"}), |(schema, _)| schema.clone());
    let bad = |reason: String| {
        if let Some((_, place)) = written {
            let message = format!("`input_schema` cannot be used: {reason}");
            let help = "write a JSON Schema, like `{ type = \"object\", required = [\"path\"], \
                        properties = { path = { type = \"string\" } } }`";
            setting.problems.error("bad_schema", place, message, help);
        }
        None
    };
    let Some(fields) =
        document.as_object_mut().filter(|fields| fields.get("type") == Some(&json!("object")))
    else {
        return bad("its type is not `object`".to_owned());
    };
    if !OPEN.iter().any(|keyword| fields.contains_key(*keyword)) {
        fields.entry("properties").or_insert_with(|| json!({}));
        fields.insert("additionalProperties".to_owned(), false.into());
    }
    Schema::new(document).map_or_else(bad, Some)
}

/// Checks the command of a tool.
fn command(setting: Setting<'_>, entry: &Entry<Tool>, raw: &Tool, schema: Option<&Schema>) {
    let (name, problems) = (&entry.name, setting.problems);
    let Some((program, arguments)) = raw.command.split_first() else {
        let message = format!("tool `{name}` has no `command`");
        let help = "write a program and its arguments: `command = [\"./tool\", \"{{ args.x }}\"]`";
        return problems.error("missing_field", &entry.at.key, message, help);
    };
    let words: Vec<String> = raw.command.iter().map(|word| word.value.clone()).collect();
    if program.value.trim().is_empty() || argument::is_template(&program.value) {
        let message = "the program must be written out: a model gives only its arguments";
        problems.error("bad_value", &program.at.value, message, NO_HELP);
    } else {
        warn_of_missing(setting, program);
    }
    let code = places_of_code(&words).filter_map(|at| raw.command.get(at));
    for code in code.filter(|word| argument::is_template(&word.value)) {
        let message = format!("`{}` would execute what a model gives", program.value);
        let help = "write the code out and give it the value as an argument: [\"sh\", \"-c\", \
                    \"grep \\\"$1\\\" log\", \"sh\", \"{{ args.pattern }}\"]";
        problems.error("template_in_run", &code.at.value, message, help);
    }
    network::of_tool(setting, raw);
    for Item { value: word, at } in raw.command.iter() {
        env::check_nul(word, &at.value, problems);
    }
    for Item { value: template, at } in arguments {
        template_of(setting, template, &at.value, schema);
    }
}

/// Checks the template of an argument: the names in it must be those of arguments of a call.
fn template_of(setting: Setting<'_>, template: &str, place: &Place, schema: Option<&Schema>) {
    let problems = setting.problems;
    let found = match template::names_in_template(template) {
        Ok(found) => found,
        Err(error) => {
            let message = format!("not a valid template: {error}");
            return problems.error("bad_template", place, message, NO_HELP);
        }
    };
    let document = schema.map(Schema::document);
    let properties = document.and_then(|document| document["properties"].as_object());
    let is_closed =
        document.is_some_and(|document| document["additionalProperties"] == json!(false));
    for name in found {
        let mut parts = name.split('.');
        let message = match (parts.next(), parts.next()) {
            (Some("args"), None) => continue,
            (Some("args"), Some(field)) => {
                let is_known = properties.is_some_and(|properties| properties.contains_key(field));
                if is_known || !is_closed {
                    continue;
                }
                let known = properties.into_iter().flat_map(|known| known.keys());
                let near = names::did_you_mean(field, known.map(String::as_str));
                let help = match near.is_empty() {
                    true => format!("add `{field}` to the `properties` of `input_schema`"),
                    false => near,
                };
                let message = format!("`{name}` is no argument of this tool");
                problems.error("undefined_name", place, message, help);
                continue;
            }
            _ => format!("`{name}` is not defined"),
        };
        problems.error("undefined_name", place, message, "there is `args.NAME`");
    }
}

/// Warns of a program that is not there: else the first call would tell, hours into a run.
fn warn_of_missing(setting: Setting<'_>, program: &Item<String>) {
    let Item { value: program, at } = program;
    let is_path = program.contains('/');
    let path = setting.sources.environment.get("PATH");
    let may_look = match is_path {
        true => leads_outside(setting.root, program).is_none() || setting.shelf.touches(&at.value),
        // A program that embeds this one may keep its environment to itself.
        false => path.is_some(),
    };
    let path = path.map(String::as_str).unwrap_or_default();
    let found = match may_look {
        true => own::startable(program, setting.root, path),
        false => Startable::Yes,
    };
    let (message, help) = match (found, is_path) {
        (Startable::Yes, _) => return,
        (Startable::NotExecutable, _) => {
            (format!("`{program}` is not executable"), format!("run `chmod +x {program}`"))
        }
        (Startable::Missing, is_path) => {
            let message = match is_path {
                true => format!("there is no file `{program}`"),
                false => format!("there is no program `{program}` in `PATH`"),
            };
            (message, "calls of the tool will fail until it is there".to_owned())
        }
    };
    setting.problems.warning("missing_program", &at.value, message, help);
}

/// Returns the folder in which a tool runs, relative to the workspace root.
fn folder(setting: Setting<'_>, raw: &Tool) -> PathBuf {
    let Some((cwd, place)) = raw.cwd.placed() else { return PathBuf::new() };
    if leads_outside(setting.root, cwd).is_some() {
        let message = format!("`{cwd}` is outside the workspace");
        setting.problems.error("outside_workspace", place, message, NO_HELP);
    }
    cwd.into()
}
