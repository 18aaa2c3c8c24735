//! Tests of what is found by types before a run, and that it is true in a run.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::config::tests::{BASE, Workspace};
use crate::config::{Missing, Sources, load};
use crate::template;

/// A schema that allows no other fields.
const CLOSED: &str = "{ type = 'object', additionalProperties = false, \
    required = ['findings', 'done'], properties = { done = { type = 'boolean' }, \
    note = { type = 'string' }, findings = { type = 'array', items = { type = 'object', \
    additionalProperties = false, required = ['file'], properties = { \
    file = { type = 'string' }, line = { type = 'integer' } } } } } }";

/// Tasks with a closed schema, with a text, with an open schema and with instances, and a task with these lines.
fn graph(body: &str) -> String {
    let open = "{ type = 'object', required = ['findings'], properties = { findings = { type = 'array' } } }";
    format!(
        "{BASE}[tasks.j]\nrun = 'x'\noutput_schema = {CLOSED}\n\
         [tasks.o]\nrun = 'x'\noutput_schema = {open}\n\
         [tasks.f]\nagent = 'a'\nprompt = 'x'\nforeach = '[1]'\noutput_schema = {CLOSED}\n\
         [tasks.u]\nagent = 'a'\ndepends_on = ['t', 'j', 'o', 'f']\n{body}\n"
    )
}

/// The problems of such a graph, without their places.
fn found(body: &str) -> Vec<String> {
    let workspace = Workspace::new();
    let all = workspace.problems(&graph(body), &workspace.sources());
    all.iter().map(|line| line.split_once(' ').expect("a place").1.to_owned()).collect()
}

/// The problems of a graph whose last task has this prompt.
fn of_prompt(prompt: &str) -> Vec<String> {
    found(&format!("prompt = '{prompt}'"))
}

#[test]
fn what_an_output_never_has_is_found() {
    for (prompt, want) in [
        (
            "{{ tasks.j.output.findngs }}",
            "`tasks.j.output` has no `findngs` | did you mean `findings`?",
        ),
        (
            "{{ tasks.j.output.nothing }}",
            "`tasks.j.output` has no `nothing` | it has `done`, `findings` and `note`",
        ),
        (
            "{{ tasks[\"j\"].output.findngs }}",
            "`tasks[\"j\"].output` has no `findngs` | did you mean `findings`?",
        ),
        (
            "{% for f in tasks.j.output.findings %}{{ f.fiel }}{% endfor %}",
            "`f` has no `fiel` | did you mean `file`?",
        ),
        (
            "{{ tasks.f.outputs[0].output.findngs }}",
            "`tasks.f.outputs[0].output` is an object or none and has no `findngs` | did you mean \
             `findings`?",
        ),
        (
            "{{ tasks.f.outputs[0].done }}",
            "`tasks.f.outputs[0]` has no `done` | it has `error`, `index`, `key`, `output`, \
             `partial` and `state`",
        ),
        (
            "{{ tasks.t.output.x }}",
            "`tasks.t.output` is text and has no `x` | add `output = \"json\"` to [tasks.t]",
        ),
        (
            "{{ tasks.j.output.findings.file }}",
            "`tasks.j.output.findings` is a list and has no `file` | name an item, \
             `tasks.j.output.findings[0]`, or go through them with `for`",
        ),
    ] {
        assert_eq!(of_prompt(prompt), [format!("undefined_name {want}")], "{prompt}");
    }
    for (body, want) in [
        (
            "prompt = 'x'\nwhen = 'tasks.j.output.dnoe'",
            "`tasks.j.output` has no `dnoe` | did you mean `done`?",
        ),
        (
            "prompt = '{{ item.fil }}'\nforeach = 'tasks.j.output.findings'",
            "`item` has no `fil` | did you mean `file`?",
        ),
        (
            "prompt = '{{ item.file }}{{ instance.kye }}'\nforeach = 'tasks.j.output.findings'",
            "`instance` has no `kye` | did you mean `key`?",
        ),
        (
            "prompt = 'x'\noutput_schema = { type = 'object', additionalProperties = false, \
             properties = { done = { type = 'boolean' } }, required = ['done'] }\n\
             loop = { until = 'output.dnoe', max_iterations = 2 }",
            "`output` has no `dnoe` | did you mean `done`?",
        ),
    ] {
        assert_eq!(found(body), [format!("undefined_name {want}")], "{body}");
    }
}

#[test]
fn what_may_be_missing_is_a_warning() {
    for (prompt, want) in [
        (
            "{{ tasks.j.output.nope | default(1) }}",
            "`tasks.j.output.nope` is never there: `tasks.j.output` has no `nope` | did you mean `note`?",
        ),
        (
            "{{ tasks.j.output.note }}",
            "`tasks.j.output` may be without `note` | write `tasks.j.output.note | \
             default('...')`, ask `is defined` first, or let the schema require `note`",
        ),
        (
            "{{ tasks.o.output.findngs }}",
            "`tasks.o.output` does not list `findngs` among its fields | did you mean `findings`?",
        ),
    ] {
        assert_eq!(of_prompt(prompt), [format!("warning undefined_name {want}")], "{prompt}");
    }
}

#[test]
fn what_is_right_or_not_known_is_no_mistake() {
    for prompt in [
        "{{ tasks.j.output.findings }}{{ tasks.o.output.other }}{{ tasks.j.state }}",
        "{{ tasks.f.outputs[0].key }}{{ tasks.f.outputs | length }}{{ run.id }}",
        "{% if tasks.j.output.note is defined %}{{ tasks.j.output.note }}{% endif %}",
        "{{ (tasks.t.output | from_json).x }}{{ tasks.j.output_path }}{{ tasks.j.error }}",
        "{% for f in tasks.j.output.findings if f.line is defined %}{{ f.line }}{% endfor %}",
        "{{ tasks.t.output | lines | first }}",
    ] {
        assert_eq!(of_prompt(prompt), [] as [&str; 0], "{prompt}");
    }
}

#[test]
fn what_is_no_list_is_found() {
    for (list, want) in [
        (
            "tasks.t.output",
            "`tasks.t.output` is text | add `output = \"json\"` to [tasks.t], or write \
             `tasks.t.output | lines`",
        ),
        (
            "tasks.j.output",
            "`tasks.j.output` is an object | did you mean `tasks.j.output.findings`?",
        ),
        ("tasks.j.output.done", "`tasks.j.output.done` is a boolean"),
        (
            "run.id ~ 'x'",
            "`run.id ~ 'x'` is text | write `run.id ~ 'x' | lines`, or `run.id ~ 'x' | from_json`",
        ),
    ] {
        let want = format!("wrong_type `foreach` needs a list, but {want}");
        assert_eq!(found(&format!("prompt = 'x'\nforeach = \"{list}\"")), [want], "{list}");
    }
    for list in [
        "tasks.t.output | lines",
        "tasks.j.output.findings",
        "tasks.o.output.findings",
        "range(3)",
        "tasks.o.output.x",
        "tasks.f.outputs",
    ] {
        let found = found(&format!("prompt = 'x'\nforeach = '{list}'"));
        assert_eq!(found, [] as [&str; 0], "{list}");
    }
}

#[test]
fn a_condition_that_is_a_text_is_found() {
    let want = "warning always_true `tasks.t.output` is text, which is true unless it is empty | \
        `false` and `0` are true too: compare it, `tasks.t.output == \"true\"`, or ask if there is \
        any, `tasks.t.output != \"\"`";
    for when in ["tasks.t.output", "not tasks.t.output", "tasks.j.output.done and tasks.t.output"] {
        assert_eq!(found(&format!("prompt = 'x'\nwhen = '{when}'")), [want], "{when}");
    }
    for when in ["tasks.t.output == \"x\"", "tasks.j.output.done", "tasks.t.output | length > 3"] {
        let found = found(&format!("prompt = 'x'\nwhen = '{when}'"));
        assert_eq!(found, [] as [&str; 0], "{when}");
    }
}

#[test]
fn an_agent_that_nothing_uses_is_found() {
    let workspace = Workspace::new();
    let check = |text: &str| workspace.problems(text, &workspace.sources());
    let unused = format!("{BASE}[agents.b]\nmodel = 'm'\n");
    let found = check(&unused);
    assert!(
        found.len() == 1 && found[0].contains("unused_agent no task uses agent `b`"),
        "{found:?}"
    );
    for used in [
        "[tasks.v]\nagent = 'b'\nprompt = 'x'\n",
        "[tasks.v]\nrun = 'x'\n[[tasks.v.checks]]\nagent = 'b'\nprompt = 'x'\n",
        "[agents.c]\nmodel = 'm'\nsub_agents = ['b']\n[tasks.v]\nagent = 'c'\nprompt = 'x'\n",
        "[permissions]\nplan = 'ask'\n",
    ] {
        assert_eq!(check(&format!("{unused}{used}")), [] as [&str; 0], "{used}");
    }
}

#[test]
fn a_tool_that_cannot_start_is_found() {
    let workspace = Workspace::new();
    workspace.write("own/tool", "#!/bin/sh\n");
    for (path, want) in [
        (
            "./own/tool",
            "missing_program `./own/tool` is not executable | run `chmod +x ./own/tool`",
        ),
        ("./own/tol", "missing_program there is no file `./own/tol` | calls of the tool will fail"),
    ] {
        let text = format!("{BASE}[tools.own]\ndescription = 'x'\ncommand = ['{path}']\n");
        let found = workspace.problems(&text, &workspace.sources());
        assert!(found.len() == 1 && found[0].contains(want), "{found:?}");
    }
}

/// The configurations of the repository that a person may copy.
#[test]
fn what_is_shipped_has_no_such_mistake() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = [
        "agents.toml",
        "examples/graphs/nightly/agents.toml",
        "examples/graphs/research/agents.toml",
        "examples/graphs/review/agents.toml",
        "src/cli/init/fix.toml",
        "src/cli/init/research.toml",
        "src/cli/init/review.toml",
        "tests/journals/agents.toml",
    ];
    for file in files {
        let sources = Sources {
            missing_inputs: Missing::Allow,
            missing_keys: Missing::Allow,
            ..Sources::new(root.join(file))
        };
        let found = match load(&sources) {
            Ok(config) => config.warnings,
            // A template of a file names files that are beside it when it is written.
            Err(errors) => errors.0,
        };
        let codes = ["undefined_name", "always_true", "unused_agent", "wrong_type", "bad_template"];
        let found: Vec<_> = found.iter().filter(|d| codes.contains(&d.code)).collect();
        assert!(found.is_empty(), "{file}: {found:#?}");
    }
}

/// A closed schema as TOML, and a value that fits it.
fn schema(depth: u32) -> BoxedStrategy<(String, Value)> {
    let leaf = prop_oneof![
        Just(("{ type = 'string' }".to_owned(), json!("x"))),
        Just(("{ type = 'integer' }".to_owned(), json!(1))),
        Just(("{ type = 'boolean' }".to_owned(), json!(true))),
    ];
    if depth == 0 {
        return leaf.boxed();
    }
    let field = (schema(depth - 1), any::<bool>(), any::<bool>());
    let object = proptest::collection::btree_map("[abc]", field, 0..3).prop_map(|fields| {
        let (mut properties, mut required) = (Vec::new(), Vec::new());
        let mut value = serde_json::Map::new();
        for (name, ((schema, inner), is_required, is_there)) in fields {
            properties.push(format!("{name} = {schema}"));
            if is_required {
                required.push(format!("'{name}'"));
            }
            if is_required || is_there {
                value.insert(name, inner);
            }
        }
        let (properties, required) = (properties.join(", "), required.join(", "));
        let schema = format!(
            "{{ type = 'object', additionalProperties = false, required = [{required}], \
             properties = {{ {properties} }} }}"
        );
        (schema, Value::Object(value))
    });
    let list = schema(depth - 1).prop_map(|(schema, item)| {
        (format!("{{ type = 'array', items = {schema} }}"), json!([item]))
    });
    prop_oneof![1 => leaf, 4 => object, 2 => list].boxed()
}

/// A template that reads a part of an output.
fn reading() -> impl Strategy<Value = String> {
    let step = prop_oneof![Just(".a"), Just(".b"), Just(".c"), Just("[0]")];
    (proptest::collection::vec(step, 0..4), 0..5_u8).prop_map(|(path, form)| {
        let path = format!("tasks.j.output{}", path.concat());
        match form {
            0 => format!("{{{{ {path} }}}}"),
            1 => format!("{{{{ {path} | string }}}}"),
            2 => format!("{{% for r in [{path}] %}}{{{{ r.a }}}}{{% endfor %}}"),
            3 => format!("{{% set v = {path} %}}{{{{ v.b }}}}"),
            _ => format!("{{{{ {path}.c | default('') }}}}"),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// What `check` accepts without a word does not fail for want of a field, and a field of which it says that it is
    /// never there is not there.
    #[test]
    fn what_is_accepted_has_its_fields((schema, value) in schema(3), template in reading()) {
        let workspace = Workspace::new();
        let text = format!(
            "{BASE}[tasks.j]\nrun = 'x'\noutput_schema = {schema}\n[tasks.u]\nagent = 'a'\n\
             depends_on = ['j']\nprompt = \"\"\"{template}\"\"\"\n"
        );
        let found = workspace.problems(&text, &workspace.sources());
        let found: Vec<_> = found.iter().filter(|line| line.contains("undefined_name")).collect();
        let values = json!({"tasks": {"j": {"output": value}}});
        let rendered = template::render(&template, &values);
        let words = ["has no `", "not each has", "may be without"];
        let is_missing = rendered
            .as_ref()
            .is_err_and(|error| words.iter().any(|words| error.message.contains(words)));
        // Whether a list has a first item is no question of fields.
        if found.is_empty() {
            prop_assert!(!is_missing, "{template} of {schema}: {rendered:?}");
        }
        if found.iter().any(|line| !line.contains(" warning ")) {
            prop_assert!(rendered.is_err(), "{template} of {schema}: {found:?} {rendered:?}");
        }
    }
}

/// The problems of a file whose task `s` stands for a sub-graph with these tasks, and whose task `u` has these lines.
fn of_graph(inner: &str, body: &str) -> Vec<String> {
    let workspace = Workspace::new();
    workspace.write("sub.toml", &format!("version = 1\n{inner}\n"));
    workspace.write(
        "deep.toml",
        "version = 1\n[tasks.z]\nrun = 'x'\noutput = 'json'\n[tasks.y]\nrun = 'x'\n",
    );
    let text = format!(
        "{BASE}[tasks.s]\nworkflow = 'sub.toml'\n\
         [tasks.u]\nagent = 'a'\ndepends_on = ['s']\n{body}\n"
    );
    let all = workspace.problems(&text, &workspace.sources());
    all.iter().map(|line| line.split_once(' ').expect("a place").1.to_owned()).collect()
}

#[test]
fn the_output_of_a_sub_graph_has_the_types_of_its_last_tasks() {
    let inner = format!(
        "[tasks.first]\nrun = 'x'\n[tasks.t]\nrun = 'x'\n\
         [tasks.j]\nrun = 'x'\ndepends_on = ['first']\noutput_schema = {CLOSED}\n\
         [tasks.f]\nrun = 'x'\nforeach = '[1]'\noutput_schema = {CLOSED}\n\
         [tasks.w]\nrun = 'x'\nwhen = 'true'\noutput_schema = {CLOSED}\n\
         [tasks.deep]\nworkflow = 'deep.toml'\n"
    );
    let prompt = |text: &str| of_graph(&inner, &format!("prompt = '{text}'"));
    for (text, want) in [
        (
            "{{ tasks.s.output.jj }}",
            "undefined_name `tasks.s.output` has no `jj` | did you mean `j`?",
        ),
        (
            "{{ tasks.s.output.first }}",
            "undefined_name `tasks.s.output` has no `first` | it has `deep`, `f`, `j`, `t` and `w`",
        ),
        (
            "{{ tasks.s.output.j.findngs }}",
            "undefined_name `tasks.s.output.j` has no `findngs` | did you mean `findings`?",
        ),
        (
            "{% for end in tasks.s.output.f %}{{ end.output.findngs }}{% endfor %}",
            "`end.output` is an object or none and has no `findngs` | did you mean `findings`?",
        ),
        ("{{ tasks.s.output.deep.x }}", "undefined_name `tasks.s.output.deep` has no `x`"),
        ("{{ tasks.s.output.t.x }}", "undefined_name `tasks.s.output.t` is text and has no `x`"),
    ] {
        let all = prompt(text);
        assert!(all.len() == 1 && all[0].contains(want), "{text}: {all:?}");
    }
    for text in [
        "{{ tasks.s.output.j.findings[0].file }} {{ tasks.s.output.t }} {{ tasks.s.output.f[0].key }}",
        "{{ tasks.s.output.deep.z.anything }} {{ tasks.s.output.deep.y }} {{ tasks.s.output | tojson }}",
        "{% if tasks.s.output.w %}{{ tasks.s.output.w.done }}{% endif %}",
    ] {
        assert_eq!(prompt(text), [""; 0], "{text}");
    }
    let all = of_graph(&inner, "prompt = 'x'\nforeach = 'tasks.s.output.t'");
    assert!(all.len() == 1 && all[0].contains("`foreach` needs a list"), "{all:?}");
    // Where a task could not be built, its output is not known.
    let all = of_graph("[tasks.t]\nrun = 'x'\n[tasks.k]\n", "prompt = '{{ tasks.s.output.k }}'");
    assert!(all.len() == 1 && all[0].contains("does nothing"), "{all:?}");
}
