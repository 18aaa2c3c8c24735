//! Tests of the whole way from a text to a configuration or to its diagnostics.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::raw::File;
use super::shape::{Kind, named};
use super::*;
use crate::failure::FailureKind;
use crate::permission::{NonInteractive, PermissionDecision, Subject};
use crate::policy::RestartStrategy;
use crate::spec::{Join, OutputFormat, Work};

/// A configuration without a mistake: what follows it begins at line 14.
pub(super) const BASE: &str = r#"version = 1
[providers.p]
kind = "scripted"
script = "s.toml"
[models.m]
provider = "p"
model = "x"
[agents.a]
instructions = "I"
model = "m"
[tasks.t]
agent = "a"
prompt = "P"
"#;

/// A workspace with a script in it.
pub(super) struct Workspace(tempfile::TempDir);

impl Workspace {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let workspace = Self(dir);
        workspace.write("s.toml", "[[rules]]\nsay = 'done'\n");
        workspace
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        std::fs::write(path, text).expect("written");
    }

    pub(super) fn sources(&self) -> Sources {
        Sources::new(self.0.path().join("agents.toml"))
    }

    fn root(&self) -> PathBuf {
        self.0.path().canonicalize().expect("it exists")
    }

    pub(super) fn good(&self, text: &str, sources: &Sources) -> Config {
        load_text(text, sources).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The problems as `line:column code message | help`, the file named when it is another one.
    pub(super) fn problems(&self, text: &str, sources: &Sources) -> Vec<String> {
        let all = match load_text(text, sources) {
            Ok(config) => config.warnings,
            Err(errors) => errors.0,
        };
        let here = sources.file.display().to_string();
        all.iter().filter(|d| d.file == here).for_each(|d| is_declared(text, d));
        all.iter().map(|d| self.show(d)).collect()
    }

    fn show(&self, d: &Diagnostic) -> String {
        let root = self.0.path().display().to_string();
        let file = d.file.replace(&format!("{root}/"), "");
        let file = if file == "agents.toml" { String::new() } else { format!("{file}:") };
        let severity = if d.severity == Severity::Warning { "warning " } else { "" };
        let help = d.help.as_ref().map(|help| format!(" | {help}")).unwrap_or_default();
        let message = d.message.replace(&format!("{root}/"), "");
        format!("{file}{}:{} {severity}{} {message}{help}", d.line, d.column, d.code)
    }
}

/// Checks that a diagnostic is declared for the key at which it is given, or for its section: what
/// the reference says of keys must be true.
fn is_declared(text: &str, found: &Diagnostic) {
    let mut places = Places::default();
    let Ok(tree) = places.parse(&Arc::new(NamedSource::new("text", text.to_owned()))) else {
        return;
    };
    let path = path_to(&tree, found.span.start, &places);
    let (mut kind, mut key) = (Kind::Table(File::KEYS), None);
    for step in &path {
        kind = match kind {
            Kind::Table(keys) | Kind::Key(keys) | Kind::Header(keys) => {
                match keys.iter().copied().flatten().find(|k| k.name == *step) {
                    Some(known) => key.insert(known).kind,
                    None => break,
                }
            }
            Kind::Profile => match Settings::KEYS[0].iter().find(|k| k.name == *step) {
                Some(known) => key.insert(known).kind,
                None => break,
            },
            Kind::Map(_, inner) => *inner,
            _ => break,
        };
    }
    let of_the_file = ["missing_version", "no_tasks", "unknown_key", "unknown_profile"];
    let of_the_key = key.map(reference::codes).unwrap_or_default();
    let is_declared = of_the_key.contains(found.code) || of_the_file.contains(&found.code);
    assert!(is_declared, "`{}` is not declared at {path:?}", found.code);
}

/// Returns the path of keys to the value at a byte of the text.
fn path_to(table: &Dict, at: usize, places: &Places) -> Vec<String> {
    let step = |(key, value): (&String, &figment::value::Value)| {
        let inner = value.as_dict().map(|inner| path_to(inner, at, places)).unwrap_or_default();
        let written = places.of(value);
        let is_here = written.key.span.contains(&at) || written.value.span.contains(&at);
        (is_here || !inner.is_empty()).then(|| [vec![key.clone()], inner].concat())
    };
    table.iter().find_map(step).unwrap_or_default()
}

fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Checks `BASE` with each snippet appended.
fn table(cases: &[(&str, &[&str])]) {
    let workspace = Workspace::new();
    for (snippet, want) in cases {
        let text = format!("{BASE}{snippet}");
        let mut found = workspace.problems(&text, &workspace.sources());
        // A snippet has an agent for its keys alone.
        found.retain(|line| !line.contains(" warning unused_agent "));
        assert_eq!(found, *want, "{snippet}");
    }
}

/// Checks whole files.
fn whole(cases: &[(&str, &[&str])]) {
    let workspace = Workspace::new();
    for (text, want) in cases {
        assert_eq!(workspace.problems(text, &workspace.sources()), *want, "{text}");
    }
}

#[test]
fn the_base_of_these_tests_has_no_mistake() {
    table(&[("", &[])]);
}

#[test]
fn texts_that_are_not_this_file() {
    whole(&[
        (
            "version = 1\nname = \n",
            &["2:8 bad_toml not valid TOML: string values must be quoted, expected literal string"],
        ),
        (
            "version = 1\nversion = 1\n",
            &["2:1 bad_toml not valid TOML: duplicate key (it is set in line 1 already)"],
        ),
        (
            "agents = ['claude']\n",
            &[
                "1:1 foreign_file this file belongs to another tool: its `agents` is an array | name \
             the file of callsheet with `-f FILE`",
            ],
        ),
        (
            "[[agents]]\nname = 'x'\n",
            &[
                "1:3 foreign_file this file belongs to another tool: its `agents` is an array | name \
             the file of callsheet with `-f FILE`",
            ],
        ),
        (
            "",
            &[
                "1:1 missing_version the file has no `version` | add `version = 1` as the first line",
                "1:1 no_tasks the file has no tasks | add a [tasks.NAME]",
            ],
        ),
        (
            "version = 2\n[tasks.a]\nrun = 'x'\n",
            &["1:11 unknown_version this program reads version 1 of the configuration"],
        ),
        (
            "version = 1\nrequires = '>=99.1'\n[tasks.a]\nrun = 'x'\n",
            &[concat!(
                "2:12 requires the file asks for callsheet >=99.1; this is ",
                env!("CARGO_PKG_VERSION")
            )],
        ),
        (
            "version = 1\nrequires = 'new'\n[tasks.a]\nrun = 'x'\n",
            &["2:12 bad_value `new` is not a minimum version | write it like `>=0.1`"],
        ),
    ]);
}

#[test]
fn a_file_that_is_not_there() {
    let errors = load(&Sources::new("/nowhere/agents.toml")).expect_err("no file");
    assert_eq!(errors.0.len(), 1);
    assert_eq!((errors.0[0].code, errors.0[0].line, errors.0[0].column), ("unreadable_file", 1, 1));
    assert_eq!(
        errors.0[0].help.as_deref(),
        Some("name another file with `-f FILE`, or write one with `callsheet init`")
    );
}

#[test]
fn unknown_keys_and_wrong_types() {
    table(&[
        (
            "[limit]\n",
            &["14:2 unknown_key unknown key `limit` at the top level | did you mean `limits`?"],
        ),
        (
            "[tasks.u]\nagent = 'a'\npromt = 'x'\nprompt = 'y'\n",
            &["16:1 unknown_key unknown key `promt` in [tasks.u] | did you mean `prompt`?"],
        ),
        (
            "[limits]\nmax_concurrency = 'two'\nfail_fast = 1\nmax_depth = -1\n",
            &[
                "15:19 wrong_type `limits.max_concurrency` must be an integer, not a string | \
             write it like `max_concurrency = 10`",
                "16:13 wrong_type `limits.fail_fast` must be true or false, not an integer | \
             write it like `fail_fast = true`",
                "17:13 bad_value `limits.max_depth` must be at least 0",
            ],
        ),
        (
            "[sandbox]\nnetwork = ['a.b:1', '*.b:1', 5]\n",
            &[
                "15:21 bad_value `*.b:1` is not a host with its port | write a name or an address with its \
             port, like `crates.io:443` or `[::1]:8080`; there are no patterns",
                "15:30 wrong_type a host must be a string, not an integer",
            ],
        ),
        (
            "[sandbox]\nnetwork = 'all'\nlimits = { memory = '1MiB', file_size = '1GB', cpu_time = '0s' }\n",
            &[
                "15:11 wrong_type `sandbox.network` must be true, false or an array of hosts | write it like \
             `network = [\"crates.io:443\"]`",
                "16:21 bad_value `sandbox.limits.memory` must be 64MiB or more",
                "16:41 bad_value `1GB` is not a size | write a number and a unit, like `512MiB` or `8GiB`",
                "16:59 bad_duration `sandbox.limits.cpu_time` must be above 0",
            ],
        ),
        (
            "[limits]\ntimeout = '10 minutes'\ngrace_period = 5\n",
            &[
                "15:11 bad_duration `10 minutes` is not a duration | did you mean \"10m\"?",
                "16:16 wrong_type `limits.grace_period` must be a duration, not an integer | did you mean \
             \"5s\"?",
            ],
        ),
        ("[limits]\ntimeout = '0s'\n", &["15:11 bad_duration `limits.timeout` must be above 0"]),
        (
            "[agents.b]\ninstructions = 'x'\ntools = ['glob', 7]\n",
            &["16:18 wrong_type `agents.b.tools[1]` must be a string, not an integer | \
             write it like `\"read_file\"`"],
        ),
        (
            "[tasks]\nnew = 'x'\n",
            &["15:7 wrong_type `tasks.new` must be a table, not a string | \
             write it like `new = { agent = \"name\" }`"],
        ),
        (
            "[tasks.'Big Task']\nrun = 'x'\n[models.'x.y']\nmodel = 'q'\nprovider = 'p'\n",
            &[
                "14:8 bad_name `Big Task` is not a name | use one or more of a-z, 0-9, `_` and `-`",
                "16:9 bad_name `x.y` is not a name | use one or more of a-z, 0-9, `_` and `-`",
            ],
        ),
        (
            "[env]\n'A B' = 'x'\n",
            &[
                "15:1 bad_name `A B` is not a name | use letters, digits and `_`, and a letter or `_` \
             first",
            ],
        ),
        (
            "[compaction]\nstrategy = 'clint'\n",
            &["15:12 bad_value `clint` is not a value of `compaction.strategy` | did you mean \
             `client`?"],
        ),
        (
            "[models.n]\nprovider = 'p'\nmodel = 'n'\ntemperature = 3\n",
            &["17:15 bad_value `models.n.temperature` must be from 0 to 2"],
        ),
        (
            "[models.n]\nprovider = 'p'\nmodel = 'n'\ncontext_window = 10\n",
            &[
                "17:18 bad_value `models.n.context_window` must be at least 256 | below that, no request with a \
             tool and a reply fits",
            ],
        ),
    ]);
}

#[test]
fn what_is_documented_but_not_built() {
    let later = |path: &str| format!("not_built `{path}` is not available in this version");
    table(&[
        ("[limits]\nmax_spawn_rate = '5/10s'\n", &[]),
        (
            "[limits]\nmax_spawn_rate = '5 per 10s'\n",
            &["15:18 bad_value `max_spawn_rate` must be a count per time | write it like `5/10s`"],
        ),
        ("[logs]\nlevel = 'debug'\n", &[&format!("15:1 {}", later("logs.level"))]),
        ("[compaction]\npin = ['x']\n", &[&format!("15:1 {}", later("compaction.pin"))]),
        ("[compaction]\npreset = 'four-layer'\nimproved = true\nlayers = ['budget', 'fit']\n", &[]),
        (
            "[compaction]\npreset = 'three-layer'\nimproved = true\n",
            &["16:1 warning unused_key the preset `three-layer` has no `improved`"],
        ),
        (
            "[compaction]\npreset = 'four-layer'\nvariant = 'short'\nlayers = ['fit']\n",
            &[
                "16:1 warning unused_key the preset `four-layer` has no `variant`",
                "17:10 bad_value the preset `four-layer` cannot take `layers`: it has no layer `fit`",
            ],
        ),
        (
            "[providers.r]\nkind = 'replay'\n",
            &["15:8 not_built `providers.r.kind = \"replay\"` is not available in this version | \
             available: `anthropic`, `openai`, `openai-responses` and `scripted`"],
        ),
    ]);
}

#[test]
fn graphs_are_checked() {
    table(&[
        (
            "[tasks.u]\nrun = 'x'\njoin = 'at_least:2'\non_failure = 'continue'\n\
             depends_on = ['t', 'v']\n[tasks.v]\nrun = 'x'\n",
            &[],
        ),
        (
            "[tasks.u]\nrun = 'x'\njoin = 'at_least:5'\ndepends_on = ['t', 'v']\n\
             [tasks.v]\nrun = 'x'\n",
            &[
                "16:8 bad_value `at_least:5` can never hold: the task depends on 2 others | ask for \
               fewer, or name more",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\njoin = 'at_least:2'\ndepends_on = ['t', 't']\n",
            &[
                "16:8 bad_value `at_least:2` can never hold: the task depends on one other | ask for \
               fewer, or name more",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\njoin = 'at_least:0'\ndepends_on = ['t']\n",
            &[
                "16:8 bad_value `at_least:0` can never hold: it asks for no task at all | ask for at \
               least one",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\njoin = 'any_success'\n",
            &[
                "16:8 bad_value `any_success` can never hold: the task depends on none | name tasks in \
               `depends_on`",
            ],
        ),
        ("[tasks.u]\nrun = 'x'\nalways = true\njoin = 'all_done'\nlocks = ['db']\n", &[]),
        (
            "[tasks.u]\nrun = 'x'\njoin = 'at_least:x'\nalways = true\n",
            &["16:8 bad_value `at_least:x` is not a join | did you mean `at_least:N`?"],
        ),
        (
            "[tasks.u]\nrun = 'x'\njoin = 'any_success'\nalways = true\ndepends_on = ['t']\n\
             locks = ['a b']\n",
            &[
                "16:1 conflict `always` and this `join` exclude each other | a task that always runs \
                 waits until all its dependencies have ended",
                "19:10 bad_value `a b` is not a name: use one or more of a-z, 0-9, `_` and `-`",
            ],
        ),
        (
            "[tasks.u]\nagent = 'a'\nprompt = '{{ file }} {{ instance.key }}'\n\
             foreach = 'range(3)'\nforeach_as = 'file'\nforeach_key = '{{ file }}'\nmin_success = 0.9\n",
            &[],
        ),
        (
            "[tasks.u]\nagent = 'a'\nprompt = '{{ item }}'\nforeach = 'tasks.t.output'\n",
            &[
                "17:12 missing_dependency `tasks.t.output` is used, but `t` is not in `depends_on` | \
               add it: `depends_on = [\"t\"]`",
            ],
        ),
        (
            "[tasks.u]\nagent = 'a'\nprompt = 'x'\nforeach = 'item'\nforeach_as = 'tasks'\n",
            &[
                "17:12 undefined_name `item` is not defined | there is `inputs.NAME`, \
                 `tasks.NAME.output` and `run.id`",
                "18:14 bad_value `tasks` has a meaning of its own in templates",
            ],
        ),
        (
            "[tasks.u]\nagent = 'a'\nprompt = 'x'\nmax_concurrency = 2\nforeach_key = 'y'\n",
            &[
                "17:1 conflict this key needs `foreach` | add `foreach`, an expression that gives a list",
                "18:1 conflict this key needs `foreach` | add `foreach`, an expression that gives a list",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\nforeach = '[1]'\n[tasks.v]\nagent = 'a'\n\
             depends_on = ['u', 't']\nprompt = '{{ tasks.u.output }} {{ tasks.t.outputs }}'\n",
            &[
                "20:14 undefined_name `tasks.u.output`: `u` fans out and has several outputs | use \
                 `tasks.u.outputs`, a list",
                "20:35 undefined_name `tasks.t.outputs`: `t` does not fan out and has one output | use \
                 `tasks.t.output`",
            ],
        ),
    ]);
}

#[test]
fn what_earlier_versions_took_is_forgiven_in_what_a_run_recorded() {
    let workspace = Workspace::new();
    let text = format!("{BASE}[logs]\nlevel = 'debug'\n[telemetry]\nx = 1\n");
    let sources = Sources { recorded: Some(BTreeMap::new()), ..workspace.sources() };
    assert_eq!(
        workspace.problems(&text, &sources),
        [
            "15:1 warning not_built `logs.level` is not available in this version",
            "16:2 not_built `telemetry` is not available in this version",
        ]
    );
}

#[test]
fn a_name_has_a_bound() {
    let longest = "n".repeat(200);
    let task = |name: &str| format!("[tasks.{name}]\nrun = 'x'\n");
    let want = "14:8 bad_name a name of 201 bytes is too long | use at most 200";
    table(&[(&task(&longest), &[]), (&task(&format!("{longest}n")), &[want])]);
}

#[test]
fn names_that_lead_nowhere() {
    table(&[
        (
            "[agents.b]\ninstructions = 'x'\nmodel = 'n'\nsub_agents = ['aa', 'z']\ntools = ['raed_file']\n",
            &[
                "16:9 unknown_model there is no model `n` | did you mean `m`?",
                "17:15 unknown_agent there is no agent `aa` | did you mean `a`?",
                "17:21 unknown_agent there is no agent `z` | did you mean `a`?",
                "18:10 unknown_tool there is no tool `raed_file` | did you mean `read_file`?",
            ],
        ),
        (
            "[models.n]\nprovider = 'main'\nmodel = 'x'\n",
            &["15:12 unknown_provider there is no provider `main` | there is `p`"],
        ),
        (
            "[tasks.u]\nagent = 'writer'\nprompt = 'x'\ndepends_on = ['t', 'tt']\n",
            &[
                "15:9 unknown_agent there is no agent `writer` | there is `a`",
                "17:20 unknown_task there is no task `tt` | did you mean `t`?",
            ],
        ),
        (
            "[defaults]\nmodel = 'big'\n",
            &["15:9 unknown_model there is no model `big` | there is `m`"],
        ),
        (
            "[compaction]\nmodel = 'big'\n",
            &["15:9 unknown_model there is no model `big` | there is `m`"],
        ),
        (
            "[compaction.hooks]\npre_compact = []\npost_compact = ['./gone', 'x']\n",
            &[
                "15:1 bad_value `pre_compact` names no command | write a program and its \
             arguments: [\"./hook\", \"--flag\"]",
                "16:17 unreadable_file there is no file `./gone`",
            ],
        ),
        (
            "[tools.bash]\ndescription = 'x'\ncommand = ['sh', '-c', 'echo {{ args.x }}']\n\
             [tools.empty]\ndescription = ' '\n[tools.Wrong]\n[tools.own]\ndescription = 'x'\n\
             command = ['{{ args.x }}', '{{ args.pat }}', '{{ inputs.x }}', '{{ args.x | nope }}']\n\
             input_schema = { type = 'object', properties = { path = {} } }\ncwd = '/etc'\n\
             [tools.refers]\ndescription = 'x'\ncommand = ['./gone', '-x']\n\
             input_schema = { '$ref' = 'https://x.example/s.json', type = 'object' }\n\
             [tools.list]\ndescription = 'x'\ncommand = ['/bin/sh', 'x', '{{ args.any }}']\n\
             input_schema = { type = 'array' }\n",
            &[
                "14:8 conflict `bash` is the name of a tool that is there already | choose another \
                 name",
                "16:24 template_in_run `sh` would execute what a model gives | write the code out and \
                 give it the value as an argument: [\"sh\", \"-c\", \"grep \\\"$1\\\" log\", \"sh\", \
                 \"{{ args.pattern }}\"]",
                "16:24 undefined_name `args.x` is no argument of this tool | add `x` to the \
                 `properties` of `input_schema`",
                "17:8 missing_field tool `empty` has no `description` | say what it does: a model \
                 chooses its tools by that",
                "17:8 missing_field tool `empty` has no `command` | write a program and its \
                 arguments: `command = [\"./tool\", \"{{ args.x }}\"]`",
                "19:8 bad_name `Wrong` is not a name | use one or more of a-z, 0-9, `_` and `-`",
                "19:8 missing_field tool `Wrong` has no `description` | say what it does: a model \
                 chooses its tools by that",
                "19:8 missing_field tool `Wrong` has no `command` | write a program and its \
                 arguments: `command = [\"./tool\", \"{{ args.x }}\"]`",
                "22:12 bad_value the program must be written out: a model gives only its arguments",
                "22:28 undefined_name `args.pat` is no argument of this tool | did you mean `path`?",
                "22:46 undefined_name `inputs.x` is not defined | there is `args.NAME`",
                "22:64 bad_template not a valid template: there is no filter `nope`",
                "24:7 outside_workspace `/etc` is outside the workspace",
                "27:12 warning missing_program there is no file `./gone` | calls of the tool will \
                 fail until it is there",
                "28:16 bad_schema `input_schema` cannot be used: `https://x.example/s.json` is no \
                 part of it; a reference is written like `#/$defs/NAME` | write a JSON Schema, like `{ type = \"object\", required = \
                 [\"path\"], properties = { path = { type = \"string\" } } }`",
                "32:16 bad_schema `input_schema` cannot be used: its type is not `object` | write a JSON Schema, like `{ type = \"object\", required = \
                 [\"path\"], properties = { path = { type = \"string\" } } }`",
            ],
        ),
        (
            "[agents.b]\ninstructions_file = 'gone.md'\ncontext_files = ['docs/*.md']\n",
            &[
                "15:21 unreadable_file cannot read `gone.md`: No such file or directory (os error 2)",
                "16:18 warning no_match no file fits `docs/*.md`",
            ],
        ),
        (
            "[providers.q]\nkind = 'scripted'\n[providers.r]\nkind = 'scripted'\nscript = 'r'\n",
            &[
                "14:12 missing_field provider `q` is scripted but has no `script` | add `script = \
             \"FILE\"`",
                "18:10 unreadable_file cannot read `r`: No such file or directory (os error 2)",
            ],
        ),
        (
            "[providers.q]\nkind = 'openai'\nbase_url = 'localhost:1'\napi_key = { secret = 'K' }\n",
            &[
                "16:12 bad_value `localhost:1` is not an address | write it like \
             `https://api.example.com/v1`",
                "17:22 unknown_secret there is no secret `K`",
            ],
        ),
    ]);
    let entry = BASE.replacen('\n', "\nentry = ['tee']\n", 1);
    whole(&[(&entry, &["2:10 unknown_task there is no task `tee` | there is `t`"])]);
}

#[test]
fn approvals() {
    table(&[
        (
            "[tasks.u.approval]\nmessage = 'go?'\nshow = ['inputs']\ntimeout = '1h'\n\
             on_timeout = 'approve'\nnotify = { command = ['true'] }\n",
            &[],
        ),
        (
            "[tasks.u.approval]\n",
            &["14:10 missing_field task `u` asks nothing | add `message` to its approval"],
        ),
        (
            "[tasks.u]\nrun = 'x'\ntimeout = '1s'\napproval = { message = 'go?' }\n",
            &[
                "15:1 conflict task `u` asks a person, so `run` has no meaning",
                "16:1 conflict task `u` asks a person, so `timeout` has no meaning | write it below \
             [tasks.NAME.approval]",
            ],
        ),
        (
            "[tasks.u.approval]\nmessage = '{{ tasks.t.output }}'\nshow = ['tasks.t.output']\n",
            &[
                "15:15 missing_dependency `tasks.t.output` is used, but `t` is not in `depends_on` | add it: \
             `depends_on = [\"t\"]`",
                "16:10 missing_dependency `tasks.t.output` is used, but `t` is not in `depends_on` | add it: \
             `depends_on = [\"t\"]`",
            ],
        ),
        (
            "[tasks.u.approval]\nmessage = 'go?'\nnotify = { command = ['./no-such'] }\n",
            &["16:23 unreadable_file there is no file `./no-such`"],
        ),
        (
            "[tasks.u]\napproval = { message = 'go?' }\n[tasks.v]\nagent = 'a'\ndepends_on = ['u']\n\
             prompt = '{{ tasks.u.output.by }}'\n",
            &[],
        ),
    ]);
}

#[test]
fn agents_and_tasks_that_are_not_whole() {
    table(&[
        ("[agents.b]\ndescription = 'x'\n", &[]),
        (
            "[agents.b]\ninstructions = 'x'\ninstructions_file = 's.toml'\n",
            &["16:1 conflict `instructions` and `instructions_file` exclude each other"],
        ),
        (
            "[agents.b]\ninstructions = 'x'\ntools = ['delegate']\n",
            &[
                "16:10 warning no_sub_agents `delegate` is listed, but there is nobody to delegate to \
             | name them in `sub_agents`",
            ],
        ),
        (
            "[agents.b]\ninstructions = 'x'\ntools = ['list_agents']\n",
            &[
                "16:10 warning unused_key `list_agents` is listed, but the agent may write to nobody \
             | set `messages = \"parent\"` or `messages = \"run\"`",
            ],
        ),
        (
            "[agents.b]\ninstructions = 'x'\ntools = ['wait']\nbackground = true\n",
            &[
                "16:10 warning unused_key `wait` is listed, but no child of the agent works in the background \
                 | set `background = true`, and name its children in `sub_agents`",
                "17:1 warning unused_key `background` has no effect, because the agent has no children \
                 | name those to which it may delegate in `sub_agents`",
            ],
        ),
        (
            "[tasks.u]\n[tasks.v]\nagent = 'a'\nrun = 'x'\n[tasks.w]\nagent = 'a'\n",
            &[
                "14:8 missing_field task `u` does nothing | add `agent` and `prompt`, `run`, or `approval`",
                "17:1 conflict task `v` has both `agent` and `run`",
                "18:8 missing_field task `w` gives its agent no `prompt`",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\nmodel = 'm'\ncontext = ['t']\n[tasks.v]\nagent = 'a'\nprompt = 'x'\n\
             cwd = 'x'\nmodel = 'nn'\ncontext = ['tt', 't']\nstdin = 'y'\n",
            &[
                "16:1 conflict `model` and `max_turns` are for agents, and this task has none",
                "17:1 conflict outputs are added to a prompt, and this task runs a command | use \
                 `stdin` or `env`",
                "17:12 missing_dependency `context` names `t`, which is not in `depends_on` | add \
                 \"t\" to `depends_on`",
                "21:1 conflict `cwd` is for commands, and task `v` has an agent",
                "22:9 unknown_model there is no model `nn` | there is `m`",
                "23:12 unknown_task there is no task `tt` | did you mean `t`?",
                "23:18 missing_dependency `context` names `t`, which is not in `depends_on` | add \
                 \"t\" to `depends_on`",
                "24:1 conflict `stdin` is for commands, and task `v` has an agent",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\nenabled = false\n[tasks.v]\nrun = 'x'\ndepends_on = ['u']\n\
             [tasks.w]\nrun = 'x'\ndepends_on = ['u']\nenabled = false\n",
            &[
                "19:15 disabled_task task `u` is not enabled, so it never runs | remove `u` here, or \
               set `enabled = true` in [tasks.u]",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\nprompt = 'y'\n",
            &["16:1 conflict task `u` runs a command, which takes no `prompt`"],
        ),
        (
            "[tasks.u]\nrun = \"cat '{{ inputs.x }}'\"\noutput_file = '../x'\n",
            &[
                "15:13 template_in_run `run` is not a template: `{{` would be handed to the shell | \
             inputs arrive as $INPUT_NAME; pass other values through `env`",
                "16:15 outside_workspace `../x` leads out of the workspace",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\nretry = { retry_on = ['timeout', 'ratelimit'] }\n",
            &["16:34 bad_value `ratelimit` is not a failure that can be retried | did you mean \
             `rate_limit`?"],
        ),
        (
            "[permissions]\nallow = ['bash(ls', 'bahs(ls)']\n",
            &[
                "15:10 bad_rule `bash(ls` is not a permission rule: the bracket is not closed",
                "15:21 warning unmatched_rule the rule `bahs(ls)` matches no tool | did \
             you mean `bash`?",
            ],
        ),
        (
            "[permissions]\nallow = ['bash(deploy *)', 'bash(deploy x)', 'bash(ls*)', 'bash']\n",
            &["15:10 warning loose_rule `bash(deploy *)` allows everything that `deploy` can do, \
             with other files and programs too | name the arguments that are needed, without `*` \
             where that is possible"],
        ),
        (
            "[models.n]\nprovider = 'p'\ncontext_window = 8000\nmax_output_tokens = 8000\n",
            &[
                "14:9 missing_field model `n` does not say what the provider calls it | add `model = \
             \"...\"`",
                "17:21 bad_value `max_output_tokens` leaves no room in a window of 8000 tokens",
            ],
        ),
        (
            "[models.n]\nprovider = 'p'\nmodel = 'n'\ncost_per_mtok = { input = 1 }\n",
            &["17:1 missing_field `cost_per_mtok` has no `output`"],
        ),
    ]);
}

#[test]
fn circles_are_named() {
    table(&[
        (
            "[tasks.u]\nrun = 'x'\ndepends_on = ['u']\n",
            &[
                "16:15 cycle dependency cycle: u -> u | remove `u` from its `depends_on`; what repeats itself has \
                 [tasks.u.loop]",
            ],
        ),
        (
            "[tasks.u]\nagent = 'a'\nprompt = 'x'\ncontext = ['u']\n",
            &[
                "17:12 conflict `context` of task `u` names the task itself | remove it: a task has no output before it \
               has run",
            ],
        ),
        (
            "[tasks.u]\nrun = 'x'\ndepends_on = ['t', 'w']\n[tasks.v]\nrun = 'x'\ndepends_on = \
             ['u']\n[tasks.w]\nrun = 'x'\ndepends_on = ['v']\n",
            &[
                "19:15 cycle dependency cycle: u -> w -> v -> u | remove `u` from `depends_on` of [tasks.v], or another of \
               these dependencies",
            ],
        ),
    ]);
}

#[test]
fn a_long_chain_of_tasks_is_no_problem() {
    let mut text = BASE.to_owned();
    for n in 0..2_000 {
        text.push_str(&format!("[tasks.n{n}]\nrun = 'x'\ndepends_on = ['n{}']\n", n + 1));
    }
    text.push_str("[tasks.n2000]\nrun = 'x'\n");
    let workspace = Workspace::new();
    assert_eq!(workspace.good(&text, &workspace.sources()).tasks.len(), 2_002);
}

/// A value of a kind.
fn sample(kind: Kind) -> figment::value::Value {
    let table = |keys: shape::Keys| -> figment::value::Value {
        let keys = keys.iter().copied().flatten();
        keys.map(|key| (key.name.to_owned(), sample(key.kind))).collect::<Dict>().into()
    };
    match kind {
        Kind::Any | Kind::Text(..) | Kind::Header(_) => "x".into(),
        Kind::Words(words, _) => words()[0].into(),
        Kind::Truth => true.into(),
        Kind::Only(n) | Kind::Whole(n, ..) | Kind::Number(n, ..) => n.into(),
        Kind::Pause | Kind::Time => "1s".into(),
        Kind::Rate => "5/10s".into(),
        Kind::Size(_) => "8GiB".into(),
        Kind::List(inner) => vec![sample(*inner)].into(),
        Kind::Map(_, inner) => Dict::from([("x".to_owned(), sample(*inner))]).into(),
        Kind::Table(keys) | Kind::Key(keys) => table(keys),
        Kind::Profile => Dict::new().into(),
        Kind::Either(kinds) => sample(kinds[0]),
    }
}

#[test]
fn the_type_of_every_field_can_take_what_its_kind_allows() {
    let tree = sample(Kind::Table(File::KEYS));
    let tree = tree.as_dict().expect("a table");
    let places = Places::default();
    let read = format!("{:?}", (File::read_keys(tree, &places), &places));
    for trouble in ["is_wrong: true", "value: None"] {
        let at = read.find(trouble).map(|at| &read[at.saturating_sub(200)..at]);
        assert_eq!(at, None, "{trouble}");
    }
    let problems = Problems::default();
    Check::new(&places, &problems, Severity::Error).file(tree);
    let found = problems.sorted(&[]).found;
    assert!(found.iter().all(|found| found.code == "not_built"), "{found:?}");
}

/// Maps the number of a task, and the number of all tasks, to the numbers of its dependencies.
type Graph = fn(usize, usize) -> Vec<usize>;

#[test]
fn work_grows_with_tasks_and_dependencies_and_no_faster() {
    let graphs: [(&str, Graph); 4] = [
        ("independent", |_, _| Vec::new()),
        ("chain", |task, _| task.checked_sub(1).into_iter().collect()),
        ("fan-in", |task, count| if task + 1 == count { (0..task).collect() } else { Vec::new() }),
        ("fan-out", |task, _| if task > 0 { vec![0] } else { Vec::new() }),
    ];
    let workspace = Workspace::new();
    let looks = |graph: Graph, count: usize| {
        let mut text = BASE.to_owned();
        for task in 0..count {
            let needs = graph(task, count);
            let names: String = needs.iter().map(|need| format!("'n{need}',")).collect();
            let outputs: String =
                needs.iter().map(|need| format!("{{{{ tasks.n{need}.output }}}}")).collect();
            text.push_str(&format!(
                "[tasks.n{task}]\nagent = 'a'\nprompt = 'P {outputs}'\ndepends_on = [{names}]\n"
            ));
        }
        named::looks::take();
        assert_eq!(workspace.good(&text, &workspace.sources()).tasks.len(), count + 1);
        named::looks::take()
    };
    for (name, graph) in graphs {
        let (few, many) = (looks(graph, 100), looks(graph, 1_000));
        assert!(many < 12 * few, "{name}: {few} looks at entries for 100 tasks, {many} for 1000");
    }
}

#[test]
fn names_in_templates() {
    let inputs = "[inputs.path]\ndefault = '.'\n";
    let case = |text: &str| format!("{BASE}{inputs}{text}");
    let task = |body: &str| case(&format!("[tasks.u]\nagent = 'a'\n{body}"));
    whole(&[
        (
            &task("prompt = '''\nRead\n{{ inputs.paht }}'''\n"),
            &["20:4 undefined_name `inputs.paht` is not defined | did you mean `inputs.path`?"],
        ),
        (
            &task("prompt = '{{ nobody }} {{ input.path }}'\n"),
            &[
                "18:14 undefined_name `nobody` is not defined | there is `inputs.NAME`, \
             `tasks.NAME.output` and `run.id`",
                "18:27 undefined_name `input.path` is not defined | did you mean `inputs`?",
            ],
        ),
        (
            &task("prompt = '''\n{{ tasks.t.output }}\n{{ tasks.x.output }}'''\n"),
            &[
                "19:4 missing_dependency `tasks.t.output` is used, but `t` is not in `depends_on` | \
             add it: `depends_on = [\"t\"]`",
                "20:4 unknown_task `tasks.x.output` names a task that does not exist | did you mean \
             `t`?",
            ],
        ),
        (
            &task("prompt = '{{ tasks.t.outptu }} {{ tasks.u.output }}'\ndepends_on = ['t']\n"),
            &[
                "18:14 undefined_name `tasks.t.outptu` is not defined | did you mean `tasks.t.output`?",
                "18:35 undefined_name `tasks.u.output`: a task cannot use its own output | remove it, or name a task \
                 that runs before this one",
            ],
        ),
        (
            &task("prompt = '{{ tasks.t.output.files }}'\ndepends_on = ['t']\n"),
            &["18:14 undefined_name `tasks.t.output` is text and has no `files` | add `output = \
             \"json\"` to [tasks.t]"],
        ),
        (
            &task("prompt = \"\"\"\nA\n{{ inputs.path\nB\"\"\"\n"),
            &[
                "21:1 bad_template not a valid template: syntax error: unexpected identifier, expected \
             end of variable block | close `{{` with `}}`",
            ],
        ),
        (
            &task("prompt = 'x'\nwhen = 'inputs.path and nobody'\n"),
            &["19:25 undefined_name `nobody` is not defined | there is `inputs.NAME`, \
             `tasks.NAME.output` and `run.id`"],
        ),
        (
            &task("prompt = '{{ secrets.KEY }}'\n"),
            &["18:14 not_built `secrets.KEY` cannot be used in a template in this version"],
        ),
        (&task("prompt = 'x'\noutput_file = 'out/{{ run.id }}/{{ inputs.path }}'\n"), &[]),
        (&task("prompt = 'x'\nforeach = '[1, 2]'\noutput_file = 'out/{{ instance.key }}'\n"), &[]),
        (
            &task("prompt = 'x'\nforeach = '[1, 2]'\noutput_file = '{{ run.id }}'\n"),
            &["20:15 same_file all instances write `{{ run.id }}`, so that it holds the \
             output of the last | name `item`, `instance.index` or `instance.key` in it"],
        ),
        (
            &task("prompt = 'x'\nforeach = '[1, 2]'\nforeach_key = '{{ instance.index }}'\n"),
            &[
                "20:19 undefined_name `instance.index` is not defined | an instance is made from its \
               key, so the key cannot name it: name the item",
            ],
        ),
        (
            &task("prompt = 'x'\nforeach = '[1, 2]'\nforeach_key = 'instance.index'\n"),
            &["20:15 bad_value `instance.index` gives all items the same key | name the item: \
               `{{ item }}`, or a part of it"],
        ),
        (
            &case(
                "[tasks.u]\nrun = 'x'\noutput_file = 'out/a.md'\n\
                 [tasks.v]\nrun = 'x'\noutput_file = './out//a.md'\n\
                 [tasks.w]\nrun = 'x'\noutput_file = 'out/b.md'\n",
            ),
            &[
                "21:15 same_file `u` and `v` both write `./out//a.md` | give each a file of its own: \
               the one that ends last would overwrite the other",
            ],
        ),
        (
            &case(
                "[tasks.u]\nrun = 'x'\noutput_file = 'x/y/z'\n\
                 [tasks.v]\nrun = 'x'\noutput_file = 'x'\n\
                 [tasks.w]\nrun = 'x'\noutput_file = './x//y/z/a'\n",
            ),
            &[
                "21:15 same_file `u` and `v` cannot both be written: what is a file for one of them \
                 is a folder for the other | rename one of the files",
                "24:15 same_file `u` and `w` cannot both be written: what is a file for one of them \
                 is a folder for the other | rename one of the files",
            ],
        ),
        (
            &task("prompt = 'x'\noutput_file = '.'\n"),
            &["19:15 bad_value `.` names no file | name one: `out/report.md`"],
        ),
        (
            &task("prompt = 'x'\noutput_file = ''\n"),
            &["19:15 bad_value `` names no file | name one: `out/report.md`"],
        ),
        (&task("prompt = 'x'\noutput_file = 'out/'\n"), &["19:15 bad_value `out/` is a folder"]),
        (
            &task("prompt = 'x'\noutput_file = './agents.toml'\n"),
            &[
                "19:15 bad_value `./agents.toml` is protected: other programs run or trust it | name \
               another file, and move it by hand",
            ],
        ),
        (
            &task("prompt = 'x'\noutput_file = '.git/hooks/pre-push'\n"),
            &[
                "19:15 bad_value `.git/hooks/pre-push` is protected: other programs run or trust it | \
               name another file, and move it by hand",
            ],
        ),
        (
            &task("prompt = 'x'\noutput_file = '.transcripts/x'\n"),
            &[
                "19:15 bad_value `.transcripts/x` lies in the records of runs, which no task writes | \
               name a file beside them",
            ],
        ),
        (
            &case("[tasks.u]\nrun = \"echo a\\u0000b\"\nenv = { A = \"\\u0000\" }\n"),
            &[
                "17:7 bad_value a NUL character ends a text for a command | remove it; what holds such \
                 a character goes to a command by `stdin`",
                "18:13 bad_value a NUL character ends a text for a command | remove it; what holds such \
                 a character goes to a command by `stdin`",
            ],
        ),
        (
            &case("[tasks.u.approval]\nmessage = ' '\non_timeout = 'approve'\n"),
            &[
                "16:10 missing_field task `u` asks nothing | add `message` to its approval",
                "18:1 missing_field `on_timeout` never answers without a `timeout` | add `timeout = \
                 \"8h\"`, or remove it",
            ],
        ),
        (
            &case("[hooks]\non_start = ['']\n"),
            &["17:1 bad_value `on_start` names no command | write a program and its arguments: \
               [\"./hook\", \"--flag\"]"],
        ),
        (
            &case("[limits]\ncancel_running = true\nfail_fast = false\n"),
            &[
                "17:1 warning unused_key `cancel_running` has no effect, because no failure stops the run | set \
               `fail_fast = true`, or `on_failure = \"fail\"` of a task",
            ],
        ),
        (
            &case(
                "[limits]\ncancel_running = true\nfail_fast = false\n[tasks.u]\nrun = 'x'\non_failure = 'fail'\n",
            ),
            &[],
        ),
        (
            &case(
                "[tasks.u]\nrun = 'x'\ndepends_on = ['t']\nenv = { A = '{{ tasks.t.output }}', B = \
                '{{ tasks.v.output }}' }\n",
            ),
            &[
                "19:45 unknown_task `tasks.v.output` names a task that does not exist | did you mean \
             `t`?",
            ],
        ),
        (
            &case("[env]\nA = '{{ inputs.path }}'\nB = '{{ run.id }}'\n"),
            &["18:9 undefined_name `run.id` is not defined | there is `inputs.NAME`"],
        ),
    ]);
}

#[test]
fn names_with_a_dash_are_written_in_brackets() {
    let text = |prompt: &str| {
        format!(
            "{BASE}[tasks.a-b]\nrun = 'x'\n[tasks.u]\nagent = 'a'\ndepends_on = []\nprompt = \
             '{prompt}'\n"
        )
    };
    whole(&[
        (
            &text("{{ tasks.a-b.output }}"),
            &["19:14 undefined_name `tasks.a-b` is read as a subtraction | write `tasks[\"a-b\"]`"],
        ),
        (
            &text("{{ tasks[\"a-b\"].output }}"),
            &["19:14 missing_dependency `tasks[\"a-b\"].output` is used, but `a-b` is not in \
             `depends_on` | add it: `depends_on = [\"a-b\"]`"],
        ),
    ]);
}

#[test]
fn several_problems_are_reported_together_and_in_order() {
    let workspace = Workspace::new();
    let text = "version = 1\n[agents.a]\ntools = ['bsh']\n[tasks.t]\nagent = 'b'\nprompt = '{{ \
                inputs.x }}'\ntimeout = 'soon'\n[colour]\n";
    let codes: Vec<_> = load_text(text, &workspace.sources())
        .expect_err("many mistakes")
        .0
        .iter()
        .map(|d| (d.line, d.column, d.code))
        .collect();
    assert_eq!(
        codes,
        [
            (2, 9, "no_model"),
            (2, 9, "unused_agent"),
            (3, 10, "unknown_tool"),
            (5, 9, "unknown_agent"),
            (6, 14, "undefined_name"),
            (7, 11, "bad_duration"),
            (8, 2, "unknown_key"),
        ]
    );
}

#[test]
fn included_files_are_merged_and_keep_their_places() {
    let workspace = Workspace::new();
    workspace.write("agents/b.toml", "[agents.b]\ninstructions = 'B'\nmodle = 'm'\n");
    workspace.write("agents/c.toml", "[agents.a]\ninstructions = 'C'\n[limits]\nmax_depth = 1\n");
    workspace.write("agents/d.toml", "[x\n");
    let text = BASE.replacen('\n', "\ninclude = ['agents/*.toml', 'gone.toml']\n", 1);
    let text = format!("{text}[limits]\nmax_depth = 2\n");
    assert_eq!(
        workspace.problems(&text, &workspace.sources()),
        [
            "2:29 unreadable_file cannot read `gone.toml`: No such file or directory (os error 2)",
            "agents/b.toml:3:1 unknown_key unknown key `modle` in [agents.b] | did you mean `model`?",
            "agents/c.toml:1:9 duplicate_key `a` is already set in agents.toml, line 9",
            "agents/c.toml:4:1 duplicate_key `max_depth` is already set in agents.toml, line 16",
            "agents/d.toml:1:3 bad_toml not valid TOML: unclosed table, expected `]`",
        ]
    );
    let workspace = Workspace::new();
    workspace.write("more.toml", "[agents.b]\ninstructions = 'B'\n[limits]\nmax_depth = 1\n");
    let text = BASE.replacen('\n', "\ninclude = ['more.toml']\n", 1);
    let config = workspace.good(&text, &workspace.sources());
    assert_eq!((config.agents.len(), config.limits.max_depth), (2, 1));
    assert_eq!(config.text, text);
}

#[test]
fn layers_win_in_their_order() {
    let workspace = Workspace::new();
    let text = format!(
        "{BASE}[limits]\nmax_concurrency = 1\nmax_depth = 1\nmax_children = 1\n[profiles.ci.limits]\n\
         max_depth = 2\nmax_children = 2\ntimeout = '5m'\n[profiles.ci.agents.a]\nmax_turns = 7\n"
    );
    let mut sources = workspace.sources();
    sources.profile = Some("ci".to_owned());
    sources.environment = environment(&[("CALLSHEET_LIMITS__MAX_CHILDREN", "3")]);
    sources.overrides = vec![("limits.max_descendants".to_owned(), toml::Value::Integer(4))];
    let config = workspace.good(&text, &sources);
    let limits = config.limits;
    assert_eq!(
        (limits.max_concurrency, limits.max_depth, limits.max_children, limits.max_descendants),
        (1, 2, 3, 4)
    );
    assert_eq!(limits.timeout, Some(Duration::from_secs(300)));
    assert_eq!(limits.grace_period, Limits::default().grace_period);
    assert_eq!(config.agents["a"].max_turns, 7);
    assert_eq!(config.agents["a"].instructions, "I");
    let plain = workspace.good(&text, &workspace.sources());
    assert_eq!((plain.limits.max_depth, plain.limits.timeout), (1, None));
    assert_eq!(plain.agents["a"].max_turns, 50);
    sources.overrides = vec![("limits.max_children".to_owned(), toml::Value::Integer(9))];
    assert_eq!(workspace.good(&text, &sources).limits.max_children, 9);
}

#[test]
fn diagnostics_name_the_layer_they_come_from() {
    let workspace = Workspace::new();
    let text = format!("{BASE}[profiles.ci.agents.a]\nmodel = 'none'\n[profiles.live]\n");
    let mut sources = workspace.sources();
    sources.environment = environment(&[
        ("CALLSHEET_LIMITS__MAX_CONCURENCY", "2"),
        ("CALLSHEET_LIMITS__TIMEOUT", "soon"),
        ("CALLSHEET_TASK", "t"),
        ("CALLSHEET_VERSION", "7"),
    ]);
    sources.overrides = vec![("limits.max_depth".to_owned(), toml::Value::String("x".to_owned()))];
    sources.profile = Some("ci".to_owned());
    assert_eq!(
        workspace.problems(&text, &sources),
        [
            "15:9 unknown_model there is no model `none` (from profile `ci`) | there is `m`",
            "command line:1:18 wrong_type `limits.max_depth` must be an integer, not a string (from \
         the command line) | write it like `max_depth = 10`",
            "environment:1:1 unknown_key unknown key `max_concurency` in [limits] (from \
         CALLSHEET_LIMITS__MAX_CONCURENCY) | did you mean `max_concurrency`?",
            "environment:1:27 bad_duration `soon` is not a duration (from \
         CALLSHEET_LIMITS__TIMEOUT) | write a number and a unit, like `250ms`, `10s`, `5m`, `2h` \
         or `1m30s`",
        ]
    );
    let sources = Sources { profile: Some("lve".to_owned()), ..workspace.sources() };
    assert_eq!(
        workspace.problems(&text, &sources),
        ["1:1 unknown_profile there is no profile `lve` (from --profile) | did you mean `live`? \
         there is `ci` and `live`",]
    );
}

#[test]
fn inputs_are_typed_checked_and_filled_in() {
    let workspace = Workspace::new();
    workspace.write("src/main.rs", "");
    let other = tempfile::tempdir().expect("a directory");
    let outside = other.path().canonicalize().expect("it exists");
    let text = format!(
        "{BASE}[inputs.base]\npattern = '^[a-z]+$'\ndefault = 'main'\n[inputs.n]\ntype = \
         'integer'\nenum = [1, 2]\n[inputs.ratio]\ntype = 'number'\ndefault = 1\n[inputs.on]\ntype \
         = 'boolean'\ndefault = false\n[inputs.list]\ntype = 'array'\ndefault = \
         ['a']\n[inputs.map]\ntype = 'object'\ndefault = {{ a = 1 }}\n[inputs.here]\ntype = \
         'path'\ndefault = 'src'\n[inputs.there]\ntype = 'path'\ndefault = '.'\n[env]\nBASE = '{{{{ \
         inputs.base }}}}!'\n"
    );
    let given = |pairs: &[(&str, &str)]| Sources {
        inputs: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..workspace.sources()
    };
    let there = outside.display().to_string();
    let sources = given(&[("n", "2"), ("list", "[1, 2]"), ("there", &there), ("on", "true")]);
    let config = workspace.good(&text, &sources);
    let want = json!({
        "base": "main", "n": 2, "ratio": 1, "on": true, "list": [1, 2], "map": {"a": 1},
        "here": "src", "there": there,
    });
    assert_eq!(serde_json::Value::Object(config.inputs), want);
    assert_eq!(config.read_only_roots, [outside]);
    assert_eq!(config.env["BASE"], "main!");
    let absolute = workspace.root().join("src/main.rs").display().to_string();
    let config = workspace.good(&text, &given(&[("n", "1"), ("here", &absolute)]));
    assert_eq!(config.inputs["here"], json!("src/main.rs"));
    assert!(config.read_only_roots.is_empty());

    let bad = given(&[("bse", "x"), ("base", "A1"), ("n", "3"), ("on", "yes"), ("here", "gone")]);
    let mut found = workspace.problems(&text, &bad);
    found.sort();
    assert_eq!(found, [
        "command line:1:12 bad_input input `on` must be `true` or `false` (from the command line)",
        "command line:1:14 bad_input cannot find `gone`: No such file or directory (os error 2) \
         (from the command line)",
        "command line:1:14 bad_input input `base` does not match `^[a-z]+$` (from the command \
         line)",
        "command line:1:11 bad_input input `n` must be one of 1, 2 (from the command line)",
        "command line:1:9 unknown_input there is no input `bse` (from the command line) | did you \
         mean `base`?",
    ].map(str::to_owned).into_iter().collect::<std::collections::BTreeSet<_>>()
        .into_iter().collect::<Vec<_>>());
    assert_eq!(
        workspace.problems(&text, &workspace.sources()),
        ["17:9 missing_input input `n` has no value and no default | give it with `--input n=...`",]
    );
    let look = Sources { missing_inputs: Missing::Allow, ..workspace.sources() };
    assert!(!workspace.good(&text, &look).inputs.contains_key("n"));
}

#[test]
fn inputs_that_are_declared_wrongly() {
    table(&[
        (
            "[inputs.a]\ntype = 'text'\ndefault = 'x'\n",
            &["15:8 bad_value `text` is not a value of `inputs.a.type` | use one of `string`, \
             `integer`, `number`, `boolean`, `array`, `object` and `path`"],
        ),
        (
            "[inputs.a]\ntype = 'integer'\ndefault = 'x'\nenum = [1, 'b']\n",
            &[
                "16:11 bad_input input `a` must be an integer",
                "17:12 bad_input input `a` must be an integer",
            ],
        ),
        (
            "[inputs.a]\npattern = '('\ndefault = 'x'\n",
            &["15:11 bad_pattern `pattern` is not a regular expression: unclosed group"],
        ),
        (
            "[inputs.a]\nenum = ['x', 'y']\ndefault = 'z'\n",
            &["16:11 bad_input input `a` must be one of \"x\", \"y\""],
        ),
    ]);
}

/// A file that sets the keys of every section.
const FULL: &str = r#"version = 1
name = "survey"
description = "Reads and reports"
requires = ">=0.1"
entry = ["report"]

[inputs.path]
type = "path"
default = "src"

[env]
RUST_BACKTRACE = "1"
[secrets]
PROVIDER_KEY = { env = "THE_KEY" }
TOKEN = { file = "token", required = false }

[limits]
max_concurrency = 4
cancel_running = true

[defaults]
timeout = "15m"
idle_timeout = "1m"
max_turns = 40
[defaults.retry]
max_attempts = 5
retry_on = ["overloaded"]

[providers.main]
kind = "openai"
base_url = "http://127.0.0.1:1/v1/"
api_key = { secret = "PROVIDER_KEY" }
headers = { "x-team" = "platform-word" }
connect_timeout = "3s"
[providers.main.rate_limit]
max_concurrency = 2
requests_per_minute = 300
tokens_per_minute = 400_000
respect_retry_after = false
adaptive = false

[models.default]
provider = "main"
model = "big-1"
temperature = 0.2
reasoning_effort = "medium"
seed = 7
[models.default.cost_per_mtok]
input = 3
output = 15.0
[models.small]
provider = "main"
model = "small-1"
context_window = 32_000
max_output_tokens = 2048

[compaction]
preset = "three-layer"
model = "small"
threshold = 20_000
keep_recent_results = 5
keep_unit = "turns"
preserve_tools = ["read_file"]
unchanged_stub = true
[compaction.circuit_breaker]
cooldown = "1m"
[compaction.recovery]
files = 3
[compaction.hooks]
pre_compact = ["guard", "--all"]
timeout = "5s"

[permissions]
default = "deny"
allow = ["read_file", "glob", "compact"]
ask = ["bash(git push*)"]
deny = ["bash(rm -rf *)"]
non_interactive = "allow"

[agents.reader]
description = "Reads"
instructions_file = "reader.md"
tools = ["read_file", "glob", "compact"]
sub_agents = ["writer", "reader"]
context_files = ["AGENTS.md"]
skills = ["review"]
permissions = { allow = ["write_file"] }
restart = { strategy = "temporary", max_restarts = 1, window = "10s" }
[agents.writer]
instructions = "Write."
model = "small"
max_turns = 3

[tasks.survey]
agent = "reader"
prompt = "Read {{ inputs.path }}"
[tasks.count]
run = "ls \"$INPUT_PATH\" | wc -l"
output = "json"
timeout = "1m30s"
retry = { max_attempts = 2 }
[tasks.report]
agent = "writer"
depends_on = ["survey", "count"]
join = "none_failed"
when = "tasks.count.output > 0"
prompt = "Write a report from: {{ tasks.survey.output }}"
output_file = "out/{{ run.id }}.md"

[state]
dir = "runs"
"#;

fn full() -> (Workspace, Sources) {
    let workspace = Workspace::new();
    workspace.write("src/x", "");
    workspace.write("reader.md", "Read well.\n");
    workspace.write("AGENTS.md", "House rules\n");
    workspace.write("token", "tok-1\n");
    workspace.write(".agents/skills/review/SKILL.md", "---\n");
    let key = environment(&[("THE_KEY", "key-value-1")]);
    let sources = Sources { environment: key, ..workspace.sources() };
    (workspace, sources)
}

#[test]
fn every_field_that_is_built_arrives() {
    let (workspace, sources) = full();
    let config = workspace.good(FULL, &sources);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    assert_eq!(config.name, "survey");
    assert_eq!(config.root, workspace.root());
    assert_eq!(config.file, workspace.root().join("agents.toml"));
    assert_eq!(config.state_dir, workspace.root().join("runs"));
    assert_eq!(config.entry, [Name::new("report").expect("a name")]);
    assert_eq!(config.limits.max_concurrency, 4);
    assert!(config.limits.cancel_running && config.limits.fail_fast);
    assert_eq!(config.secrets["TOKEN"].expose(), "tok-1");

    let main = &config.providers["main"];
    assert_eq!(main.kind, ProviderKind::OpenAi);
    assert_eq!(main.base_url, "http://127.0.0.1:1/v1");
    assert_eq!(main.key.as_ref().map(Secret::expose), Some("key-value-1"));
    assert_eq!(main.headers["x-team"].expose(), "platform-word");
    let rules = main.rules;
    assert_eq!((rules.max_concurrency, rules.shares_pauses, rules.is_adaptive), (2, false, false));
    assert_eq!((rules.per_minute.requests, rules.per_minute.tokens), (Some(300), Some(400_000)));
    assert_eq!(main.connect_timeout, Duration::from_secs(3));
    assert_eq!(main.request_timeout, Duration::from_secs(600));
    assert_eq!(main.idle_timeout, Duration::from_secs(60));
    assert_eq!((main.retry.max_attempts, main.retry.retry_on.len()), (5, 1));

    let model = &config.models["default"];
    let price = model.price.expect("a price");
    assert_eq!((price.input, price.cache_read, price.cache_write), (3.0, 3.0, 3.75));
    assert_eq!((model.context_window, model.max_output_tokens), (200_000, 8192));
    assert_eq!((model.temperature, model.seed), (Some(0.2), Some(7)));
    assert_eq!(config.models["small"].context_window, 32_000);

    let compaction = &config.compaction;
    let constants = compaction.preset.constants();
    assert_eq!((&constants["keep_recent"], &constants["threshold"]), (&json!(5), &json!(20_000)));
    assert_eq!(constants["keep_unit"], json!("turns"));
    assert_eq!(compaction.model.as_ref().map(Name::as_str), Some("small"));
    assert_eq!((compaction.failure_threshold, compaction.max_concurrency), (3, 2));
    assert_eq!(compaction.cooldown, Duration::from_secs(60));
    assert_eq!(compaction.hooks.pre_compact, ["guard", "--all"]);
    assert_eq!(compaction.hooks.timeout, Duration::from_secs(5));
    let preset = &compaction.preset;
    let recovery = preset.recovery.expect("the section brings it in");
    assert_eq!((recovery.files, recovery.file_tokens, preset.unchanged_stub), (3, 5_000, true));

    let reader = &config.agents["reader"];
    assert_eq!(
        reader.instructions,
        "Read well.\n\n\n<file path=\"AGENTS.md\">\nHouse rules\n</file>"
    );
    let tools: Vec<&str> = reader.tools.iter().map(Name::as_str).collect();
    assert_eq!(tools, ["compact", "delegate", "glob", "load_skill", "read_file"]);
    let sub: Vec<&str> = reader.sub_agents.iter().map(Name::as_str).collect();
    assert_eq!(sub, ["reader", "writer"]);
    assert_eq!((reader.model.as_str(), reader.max_turns), ("default", 40));
    assert_eq!(reader.restart.strategy, RestartStrategy::Temporary);
    assert_eq!(reader.permissions.default, PermissionDecision::Deny);
    assert_eq!(reader.permissions.non_interactive, NonInteractive::Allow);
    assert_eq!(
        reader.permissions.judge("bash", &Subject::of("bash", vec!["rm -rf x".to_owned()])).0,
        PermissionDecision::Deny
    );
    assert_eq!(reader.permissions.own_allow.len(), 1);
    let writer = &config.agents["writer"];
    assert!(writer.tools.is_empty() && writer.permissions.own_allow.is_empty());
    assert_eq!(writer.max_turns, 3);

    let names: Vec<&str> = config.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["survey", "count", "report"]);
    let count = &config.tasks[1];
    assert_eq!(count.work, Work::Command { run: "ls \"$INPUT_PATH\" | wc -l".to_owned() });
    assert_eq!((count.output, count.timeout), (OutputFormat::Json, Some(Duration::from_secs(90))));
    assert_eq!(count.retry.max_attempts, 2);
    assert!(count.retry.retry_on.contains(&FailureKind::CommandFailed));
    let report = &config.tasks[2];
    assert_eq!((report.join, report.depends_on.len()), (Join::NoneFailed, 2));
    assert_eq!((report.retry.max_attempts, report.timeout), (1, Some(Duration::from_secs(900))));
}

#[test]
fn secrets_do_not_appear_in_debug_output() {
    let (workspace, sources) = full();
    let config = workspace.good(FULL, &sources);
    for shown in [format!("{config:?}"), format!("{config:#?}"), format!("{sources:?}")] {
        for secret in ["key-value-1", "tok-1", "platform-word"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
    assert!(format!("{config:?}").contains("***"));
    let literal = FULL.replace("{ secret = \"PROVIDER_KEY\" }", "\"sk-literal\"");
    let errors = load_text(&literal, &sources).expect_err("a literal key");
    assert_eq!(
        workspace.problems(&literal, &sources),
        [
            "32:11 literal_key `providers.main.api_key` must say where the key is found, not hold it \
         | write `{ env = \"NAME_OF_A_VARIABLE\" }`",
        ]
    );
    let variables = [
        ("CALLSHEET_PROVIDERS__MAIN__API_KEY", "sk-literal"),
        ("CALLSHEET_PROVIDERS__MAIN__APIKEY", "sk-literal"),
    ];
    let set = Sources { environment: environment(&variables), ..sources };
    let more = load_text(FULL, &set).expect_err("literal keys");
    assert_eq!(more.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["unknown_key", "literal_key"]);
    for diagnostic in errors.0.iter().chain(&more.0) {
        let mut rendered = String::new();
        let handler = miette::NarratableReportHandler::new();
        handler.render_report(&mut rendered, diagnostic).expect("renders");
        assert!(!rendered.contains("sk-literal"), "{rendered}");
        assert!(!format!("{diagnostic:?}").contains("sk-literal"));
    }
}

#[test]
fn keys_are_needed_only_for_what_is_used() {
    let workspace = Workspace::new();
    let text = format!(
        "{BASE}[providers.live]\nkind = 'anthropic'\n[models.big]\nprovider = 'live'\nmodel = \
         'b'\n[agents.b]\ninstructions = 'x'\nmodel = 'big'\n[profiles.on.agents.a]\nmodel = \
         'big'\n[profiles.sub.agents.a]\nsub_agents = ['b']\n"
    );
    assert_eq!(workspace.good(&text, &workspace.sources()).providers["live"].key, None);
    let missing = "14:12 missing_key the environment variable `ANTHROPIC_API_KEY` is not set | set \
                   it, or say with `api_key` where the key is found";
    for profile in ["on", "sub"] {
        let mut sources = Sources { profile: Some(profile.to_owned()), ..workspace.sources() };
        assert_eq!(workspace.problems(&text, &sources), [missing]);
        sources.missing_keys = Missing::Allow;
        assert!(workspace.problems(&text, &sources).is_empty());
        sources.missing_keys = Missing::Refuse;
        sources.environment = environment(&[("ANTHROPIC_API_KEY", "k")]);
        let live = workspace.good(&text, &sources).providers.remove(&*"live".to_owned());
        let live = live.expect("the provider");
        assert_eq!(live.key.as_ref().map(Secret::expose), Some("k"));
        assert_eq!(live.base_url, "https://api.anthropic.com");
    }
}

#[test]
fn a_public_key_is_not_sent_to_a_server_of_ones_own() {
    let workspace = Workspace::new();
    let text = BASE.replace(
        "kind = \"scripted\"\nscript = \"s.toml\"",
        "kind = 'openai'\nbase_url = 'http://127.0.0.1:9'",
    );
    let key = environment(&[("OPENAI_API_KEY", "k")]);
    let sources = Sources { environment: key, ..workspace.sources() };
    assert_eq!(workspace.good(&text, &sources).providers["p"].key, None);
}

#[test]
fn a_model_without_a_provider_takes_the_one_whose_key_is_set() {
    let workspace = Workspace::new();
    let text = BASE.replace("provider = \"p\"\n", "");
    let with = |pairs: &[(&str, &str)]| {
        let sources = Sources { environment: environment(pairs), ..workspace.sources() };
        let config = workspace.good(&text, &sources);
        let provider = config.models["m"].provider.clone();
        let spec = &config.providers[&provider];
        (provider.to_string(), spec.base_url.clone(), spec.key.clone().expect("a key"))
    };
    let both = [("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o")];
    let anthropic = ("anthropic".to_owned(), "https://api.anthropic.com".to_owned());
    let openai = ("openai".to_owned(), "https://api.openai.com/v1".to_owned());
    assert_eq!(with(&both), (anthropic.0, anthropic.1, Secret::new("a")));
    assert_eq!(with(&both[1..]), (openai.0.clone(), openai.1.clone(), Secret::new("o")));
    let empty = [("ANTHROPIC_API_KEY", ""), ("OPENAI_API_KEY", "o")];
    assert_eq!(with(&empty), (openai.0, openai.1, Secret::new("o")));
    assert_eq!(
        workspace.problems(&text, &workspace.sources()),
        ["5:9 no_provider model `m` names no provider, and neither ANTHROPIC_API_KEY nor \
         OPENAI_API_KEY is set | set one of the two variables, or name one with `provider`: `p`",]
    );
}

#[test]
fn a_budget_that_binds_nothing_is_reported() {
    table(&[
        (
            "[budget]\nmax_requests = 5\n",
            &[
                "15:1 unknown_key unknown key `max_requests` in [budget] | did you mean `max_calls`?",
            ],
        ),
        (
            "[budget]\nusd = 3\n",
            &[
                "15:1 unknown_key unknown key `usd` in [budget] | did you mean `max_cost`? it is in US dollars",
            ],
        ),
        (
            "[tasks.t.budget]\nbananas = 3\n",
            &[
                "15:1 unknown_key unknown key `bananas` in [tasks.t.budget] | the keys here are `max_cost`, \
                 `max_tokens`, `max_calls`, `max_time`, `warn_at`, `on_exceed` and `hand_over`",
            ],
        ),
        (
            "[budget]\nwarn_at = [0.5]\n",
            &[
                "14:2 warning unused_key the budget has no limit, so nothing limits spending | set `max_cost`, \
                 `max_tokens`, `max_calls` or `max_time`",
            ],
        ),
        (
            "[budget]\nmax_calls = 5\n[tasks.t.budget]\nmax_calls = 6\n",
            &[
                "16:10 warning budget_never_reached a limit of the budget is higher than that of the run, and is never \
               reached | lower it, or raise that of the run",
            ],
        ),
        ("[budget]\nmax_calls = 5\n[tasks.t.budget]\nmax_tokens = 6\n", &[]),
        ("[budget]\nmax_calls = 5\non_exceed = 'warn'\n[tasks.t.budget]\nmax_calls = 6\n", &[]),
    ]);
}

#[test]
fn money_needs_prices() {
    let workspace = Workspace::new();
    let mut sources = workspace.sources();
    sources.overrides = vec![("budget.max_cost".to_owned(), toml::Value::Float(1.0))];
    let found = workspace.problems(BASE, &sources);
    assert!(
        found.contains(
            &"5:9 missing_price `max_cost` is set, but model `m` has no price | add \
              [models.m.cost_per_mtok]"
                .to_owned()
        ),
        "{found:?}"
    );
}

#[test]
fn a_program_brings_its_own_tools_and_models() {
    let workspace = Workspace::new();
    let text = "version = 1\n[agents.a]\ninstructions = 'x'\nmodel = 'mine'\ntools = \
                ['look']\n[tasks.t]\nagent = 'a'\nprompt = 'x'\n";
    let name = |text| Name::new(text).expect("a name");
    let sources = Sources {
        extra_tools: vec![name("look")],
        custom_models: vec![name("mine")],
        ..workspace.sources()
    };
    let config = workspace.good(text, &sources);
    assert_eq!(config.models["mine"].provider, name("custom"));
    assert_eq!(config.agents["a"].tools, [name("look")]);
    assert!(config.providers.is_empty());
}

#[test]
fn the_place_of_runs_can_be_moved() {
    let workspace = Workspace::new();
    let text = format!("{BASE}[state]\ndir = 'runs'\n");
    workspace.write("agents.toml", &text);
    let mut sources = workspace.sources();
    assert_eq!(state_dir(&sources), workspace.root().join("runs"));
    sources.environment = environment(&[("CALLSHEET_STATE_DIR", "/elsewhere")]);
    assert_eq!(workspace.good(&text, &sources).state_dir, Path::new("/elsewhere"));
    sources.overrides = vec![("state.dir".to_owned(), toml::Value::String("/flag".to_owned()))];
    assert_eq!(state_dir(&sources), Path::new("/flag"));
    assert_eq!(workspace.good(&text, &sources).state_dir, Path::new("/flag"));
    workspace.write("agents.toml", "not toml");
    assert_eq!(state_dir(&workspace.sources()), workspace.root().join(".transcripts"));
}

#[test]
fn built_in_prices_are_used_where_they_are_wanted_and_known() {
    let workspace = Workspace::new();
    let priced = |model: &str, keys: &str, defaults: &str| {
        let text = format!(
            "version = 1\n[defaults]\n{defaults}\n[providers.p]\nkind = 'openai'\n\
             base_url = 'http://127.0.0.1:9/v1'\n[models.m]\nprovider = 'p'\nmodel = '{model}'\n\
             {keys}\n[agents.a]\ninstructions = 'x'\nmodel = 'm'\n[tasks.t]\nagent = 'a'\nprompt = 'x'\n"
        );
        let config = workspace.good(&text, &workspace.sources());
        let found = config.warnings.iter().map(|d| format!("{}:{} {}", d.line, d.column, d.code));
        let price = config.models["m"].price.map(|price| (price.input, price.cache_write));
        let is_builtin = matches!(
            config.price_sources.get("m"),
            Some(PriceSource::Builtin { checked: "2026-10-24", .. })
        );
        (price, is_builtin, found.collect::<Vec<_>>().join(" "))
    };
    let (builtin, none) = ("prices = 'builtin'", "prices = 'none'");
    let (sonnet, known) = ("claude-sonnet-4-5-20250929", Some((3.0, 3.75)));
    let told = |text: &str| text.to_owned();
    assert_eq!(priced(sonnet, "", ""), (None, false, told("")));
    assert_eq!(priced(sonnet, builtin, ""), (known, true, told("")));
    assert_eq!(priced(sonnet, "", builtin), (known, true, told("")));
    assert_eq!(priced(sonnet, none, builtin), (None, false, told("")));
    let own = "prices = 'builtin'\ncost_per_mtok = { input = 1.0, output = 2.0 }";
    assert_eq!(priced(sonnet, own, builtin), (Some((1.0, 1.25)), false, told("")));
    assert_eq!(priced("other", "", builtin), (None, false, told("3:10 unknown_price")));
    assert_eq!(priced("other", builtin, ""), (None, false, told("10:10 unknown_price")));
    // Long requests cost more, and would be counted as if they were short.
    let long = "context_window = 1_000_000";
    assert_eq!(priced(sonnet, long, builtin), (None, false, told("3:10 unknown_price")));
    assert_eq!(priced("gpt-4.1", long, builtin), (Some((2.0, 2.0)), false, told("")));
    // Where nobody asks for prices, a slip in the name of a known model is told at that name.
    assert_eq!(priced("claude-sonet-4-5", "", ""), (None, false, told("9:9 unknown_price")));
    assert_eq!(priced("other", "", ""), (None, false, told("")));
}
