//! The keys of `agents.toml`, each written down once: its field, its type, its default, its kind
//! with bounds and unit, its meaning, and whether it is built yet.
//!
//! To add a key, add one line with its doc comment here, and use the field. The check, the built-in
//! layer, the reference page and the JSON Schema follow from the line. A field that nobody uses does
//! not compile (`dead_code`), so no key is accepted in vain; keys that only people read stand under
//! `notes`.
//!
//! The declaration is a `macro_rules!` and not a serde derive over a deserializer of our own: a
//! derive stops at the first mistake unless each field is wrapped, knows neither bounds nor units nor
//! keys that are not built, and needs a second derive for the schema. One macro gives all of it from
//! one line for each key, compiles as fast as what it expands to, and that is plain: a struct, a
//! table, and a list of calls. `check` walks the table, so that it finds all mistakes in one go;
//! the struct is read from the tree that figment has merged.
//!
//! A default that lower code has of its own, for use without a file, is named here and not repeated.

mod compaction;
mod models;
mod work;

use std::time::Duration;

use figment::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub(super) use self::compaction::{Compaction, CompactionHooks, CompactionKeys, ContextEditing};
pub(super) use self::models::{KeySource, Model, Prices, Provider, Wire};
pub(super) use self::work::{Agent, Permissions, Retry, Task};
use super::shape::kinds::{
    COUNT, COUNT_OR_NONE, FILES, INPUT_TEMPLATE, KEY_FILE, MODEL, NAMES, TASKS, TEXT, VARIABLE,
    VARIABLES, WORDS, words_of,
};
use super::shape::{Kind, List, Named, sections, words};

/// The version of this schema that the program reads.
pub(super) const VERSION: i64 = 1;

/// A whole file.
pub(super) type File = (Header, Settings);

sections! {
    /// The keys that decide how the file is read; only the file itself can have them.
    Header {
        /// The version of this schema. The one that there is, 1, must stand in every file.
        version: i64, Kind::Only(VERSION), gives "missing_version", "unknown_version", "bad_value";
        /// The least version of the program that can run the file, like `">=0.1"`.
        requires: String, TEXT, gives "bad_value", "requires";
        /// More files, as paths or globs like `"agents/*.toml"`, relative to this one. Their
        /// sections join those of this file; a key may stand in one of them only.
        include: List<String> = Vec::new(), FILES, gives "duplicate_key";
        /// Sets of keys that `--profile NAME` lays over the file.
        profiles: Named<Value> = Named::default(), Kind::Map(&WORDS, &Kind::Profile),
            gives "unknown_profile", "bad_value";
    }

    /// All other keys.
    Settings {
        /// The name of the workflow, under which its runs are found.
        name: String, TEXT => "the name of the directory";
        /// The purpose of the workflow, for people.
        description: String, TEXT;
        /// The tasks that `run` is for when none is named on the command line, with all that they
        /// depend on.
        entry: List<String> = Vec::new(), TASKS => "all tasks";
        /// The values that a run is given: `run --input NAME=VALUE`, `{{ inputs.NAME }}` in
        /// templates, `$INPUT_NAME` in commands.
        inputs: Named<Input> = Named::default(), Kind::Map(&WORDS, &Input::KIND),
            gives "missing_input", "unknown_input";
        /// Variables of the environment for commands, by name. Never sent to a model.
        env: Named<String> = Named::default(), Kind::Map(&VARIABLES, &INPUT_TEMPLATE);
        /// Texts that must stay secret, by name: they are read when a run begins, and no record
        /// shows them.
        secrets: Named<Secret> = Named::default(), Kind::Map(&WORDS, &Secret::KIND),
            gives "missing_field";
        /// Ceilings of the whole run. A task or an agent can only tighten them.
        limits: Limits = Limits::default(), Limits::KIND;
        /// The settings of all agents, tasks and providers that say nothing else.
        defaults: Defaults = Defaults::default(), Defaults::KIND;
        /// The servers that are called, by name.
        providers: Named<Provider> = Named::default(), Kind::Map(&NAMES, &Provider::KIND),
            gives "missing_field", "missing_key";
        /// The models that agents use, by name.
        models: Named<Model> = Named::default(), Kind::Map(&NAMES, &Model::KIND),
            gives "missing_field", "no_provider", "missing_price";
        /// The ways to keep conversations within the window of their model.
        compaction: Compaction = Default::default(), Compaction::KIND;
        /// The rules for the calls of tools: `deny` beats `ask` beats `allow`.
        permissions: Permissions, Permissions::KIND => "reading is allowed, everything else asks";
        /// The agents, by name.
        agents: Named<Agent> = Named::default(), Kind::Map(&NAMES, &Agent::KIND),
            gives "foreign_file", "no_model";
        /// The tasks, by name.
        tasks: Named<Task> = Named::default(), Kind::Map(&NAMES, &Task::KIND),
            gives "no_tasks", "missing_field";
        /// Where runs are kept.
        state: State = State::default(), State::KIND;
    }
    notes {
        /// The readable logs of agents.
        logs, Logs::KIND;
    }
    later {
        /// Ceilings in money, tokens and requests.
        budget: Budget, Budget::KIND;
        /// Servers that offer tools by the Model Context Protocol.
        mcp_servers;
        /// Tools that are commands of one's own.
        tools: Named<Json>, Kind::Map(&WORDS, &Kind::Any);
        /// The files and hosts that commands can reach.
        sandbox;
        /// Commands that are told of what happens.
        hooks;
        /// The patterns that are redacted from records.
        transcripts;
        /// Traces and metrics for other programs.
        telemetry;
        /// Tests of the workflow, without a model.
        tests;
    }
}

words! { InputKind }

/// The type of an input, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum InputKind {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    Path,
}

sections! {
    /// One input.
    Input {
        /// The type that its value must have: `string`, `integer`, `number`, `boolean`, or `path`,
        /// a file or directory that exists (one outside the workspace may then be read), or `array`
        /// or `object`, which are given as JSON on the command line.
        r#type: InputKind = InputKind::String, words_of::<InputKind>(&[]);
        /// Its value when none is given.
        default: Json, Kind::Any => "a value must be given", gives "bad_input";
        /// The regular expression that a string or a path must match.
        pattern: String, TEXT, gives "bad_pattern", "bad_value";
        /// The values that are allowed.
        r#enum: List<Json>, Kind::List(&Kind::Any), gives "bad_input";
    }
    notes {
        /// The purpose of the input, for people.
        description, TEXT;
    }

    /// Where a secret is found: in exactly one of `env` and `file`.
    Secret {
        /// The variable of the environment that holds it.
        env: String, VARIABLE;
        /// The file that holds it and nothing else; white space around it does not count.
        file: String, KEY_FILE;
        /// Without it, a run that needs the secret does not begin; `false` lets the run begin.
        required: bool = true, Kind::Truth;
    }

    /// Ceilings of the whole run.
    Limits {
        /// The tasks and delegated children that are at work at once. An agent that waits for its
        /// children does not count. Eight busy agents keep two cores and one provider key occupied
        /// without tripping the request limits of an entry-level account.
        max_concurrency: usize = 8, COUNT;
        // The three numbers that Claude Code documents for its sub-agents follow.
        /// The depth to which agents delegate; the main agent of a task is at depth 0. With 0
        /// nobody delegates.
        max_depth: u32 = 3, COUNT_OR_NONE;
        /// The delegated children that are at work at once.
        max_children: usize = 20, COUNT;
        /// The children, and children of children, of the whole run.
        max_descendants: usize = 100, COUNT_OR_NONE;
        /// The longest that the run may be open.
        timeout: Duration, Kind::Time => "no limit";
        /// The first failure keeps new tasks from starting.
        fail_fast: bool = true, Kind::Truth;
        /// The first failure also cancels the tasks that are at work, under `fail_fast`.
        cancel_running: bool = false, Kind::Truth;
        /// The time that a cancelled tool or command has to end before its processes are killed.
        grace_period: Duration = Duration::from_secs(10), Kind::Pause;
    }
    later {
        /// The most children that may be started in a time, like `"5/10s"`.
        max_spawn_rate, Kind::Rate;
    }

    /// Ceilings that count what has been spent.
    Budget {
        /// In US dollars.
        max_cost_usd: Json, Kind::Any, gives "missing_price";
    }

    /// Settings of all agents, tasks and providers that say nothing else.
    Defaults {
        /// The model of agents that name none.
        model: String, MODEL => "the model `default`, or the only one";
        /// The longest that one attempt of a task may take.
        timeout: Duration, Kind::Time => "no limit";
        /// The longest silence within a reply: above what a model at work needs, below what one
        /// that hangs should cost.
        idle_timeout: Duration = Duration::from_secs(120), Kind::Time;
        /// The most model calls of an agent: above what one at work needs, below what one that is
        /// stuck should cost.
        max_turns: u32 = 50, COUNT;
        /// The retries of failed calls to models.
        retry: Retry, Retry::KIND;
    }

    /// Where runs are kept.
    State {
        /// The directory of run directories, relative to this file. `--state-dir` and
        /// CALLSHEET_STATE_DIR, which are relative to the current directory, beat it.
        dir: String = ".transcripts".to_owned(), TEXT;
    }
    later {
        /// The number of runs that are kept.
        keep_runs;
        /// The time for which runs are kept.
        keep_for;
    }

    /// The readable logs of agents.
    Logs {}
    idle {
        /// The least important lines that are written to the logs.
        level;
    }
}
