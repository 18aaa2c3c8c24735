//! The keys of `agents.toml`, each declared once: its field, type, default, kind with bounds and
//! unit, meaning, and whether it is available yet.
//!
//! To add a key, add one line with its doc comment here, and use the field. The check, the built-in
//! layer, the reference page and the JSON Schema are made from this line. A field that no code uses
//! does not compile (`dead_code`), so no key is accepted without an effect; keys that only people
//! read are declared under `notes`.
//!
//! The declaration is a `macro_rules!` and not a serde derive with a deserializer of our own. A
//! derive stops at the first mistake unless each field is wrapped; it knows no bounds, no units and
//! no keys that are planned; and the schema would need a second derive. One macro makes all of this
//! from one line for each key, and expands to plain code: a struct, a table and a list of calls.
//! `check` walks the table, so that it finds all mistakes at once; the struct is read from the tree
//! that figment has merged.
//!
//! A default that other code also has, for use without a file, is named here and not repeated.

mod approval;
mod budget;
mod compaction;
mod loops;
mod models;
mod notify;
mod services;
mod tools;
mod work;

use crate::spec::{
    self,
    sandbox::{CommandLimits, SandboxMode},
    spawn_rate::SpawnRate,
};
use std::time::Duration;

use figment::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub(super) use self::approval::Approval;
pub(super) use self::budget::Budget;
pub(super) use self::compaction::{Compaction, CompactionHooks, CompactionKeys, ContextEditing};
pub(super) use self::loops::LoopKeys;
pub(super) use self::models::{
    CacheTime, HeaderValue, KeySource, Model, PriceList, Prices, Provider, RateLimit, Wire,
};
pub(super) use self::notify::RunNotices;
pub use self::services::known_key_variables;
pub(super) use self::services::{BOTH, known};
pub(super) use self::tools::{RunHooks, Tool};
pub(super) use self::work::{Agent, Check, OwnSandbox, Permissions, Retry, Task};
use super::shape::kinds::{
    COUNT, COUNT_OR_NONE, FILES, INPUT_TEMPLATE, KEY_FILE, MODEL, NAME_OF_PEOPLE, NAMES, TASKS,
    TEXT, VARIABLE, VARIABLES, WORDS, words_of,
};
use super::shape::{Kind, List, ListOr, Named, sections, words};
use super::size::Size;

/// Hosts with their ports.
const HOSTS: Kind = Kind::List(&Kind::Text("host:port", &["bad_value"]));

/// The most processes that Linux can number on machines of 64 bits (`PID_MAX_LIMIT`).
const MOST_PROCESSES: i64 = 1 << 22;
/// The most open files of a process unless the administrator allows more (`fs.nr_open`).
const MOST_FILES: i64 = 1 << 20;

/// The version of the file format that the program reads.
pub const VERSION: i64 = 1;

/// All keys of a file.
pub(super) type File = (Header, Settings);

sections! {
    /// The keys that decide how the file is read; a profile, a variable or a flag cannot set them.
    Header {
        /// The version of the file format. Every file must state it; the only version is 1.
        version: i64, Kind::Only(VERSION), gives "missing_version", "unknown_version", "bad_value";
        /// The oldest version of the program that can run the file, like `">=0.1"`.
        requires: String, TEXT, gives "bad_value", "requires";
        /// Other files to include, as paths or globs like `"agents/*.toml"`, relative to this file.
        /// Their sections are joined with those of this file; a key may be in only one of the
        /// files.
        include: List<String> = Vec::new(), FILES, gives "duplicate_key";
        /// Sets of keys by name; `--profile NAME` merges one of them over the file.
        profiles: Named<Value> = Named::default(), Kind::Map(&WORDS, &Kind::Profile),
            gives "unknown_profile", "bad_value";
    }

    /// All other keys.
    Settings {
        /// The name of the workflow, by which its runs are found.
        name: String, NAME_OF_PEOPLE => "the name of the directory";
        /// The purpose of the workflow, for people.
        description: String, TEXT;
        /// The tasks that `run` runs when the command line names none. Tasks that they depend on
        /// run as well.
        entry: List<String> = Vec::new(), TASKS => "all tasks", gives "disabled_task";
        /// The inputs of a run: given with `run --input NAME=VALUE`, used as `{{ inputs.NAME }}` in
        /// templates and as `$INPUT_NAME` in commands.
        inputs: Named<Input> = Named::default(), Kind::Map(&WORDS, &Input::KIND),
            gives "missing_input", "unknown_input";
        /// Environment variables for commands, by name. They are never sent to a model.
        env: Named<String> = Named::default(), Kind::Map(&VARIABLES, &INPUT_TEMPLATE);
        /// Secret texts by name. They are read when a run begins, and are replaced in everything
        /// that is recorded.
        secrets: Named<Secret> = Named::default(), Kind::Map(&WORDS, &Secret::KIND),
            gives "missing_field";
        /// Limits of the whole run. A task or an agent can only set lower ones.
        limits: Limits = Limits::default(), Limits::KIND;
        /// The most that the run may spend.
        budget: Budget, Budget::KIND => "no limit", gives "unused_key";
        /// Settings of all agents, tasks and providers that do not set their own.
        defaults: Defaults = Defaults::default(), Defaults::KIND;
        /// The servers of models, by name.
        providers: Named<Provider> = Named::default(), Kind::Map(&NAMES, &Provider::KIND),
            gives "missing_field", "missing_key";
        /// The models that agents use, by name.
        models: Named<Model> = Named::default(), Kind::Map(&NAMES, &Model::KIND),
            gives "missing_field", "no_provider", "missing_price";
        /// Settings that keep each conversation within the context window of its model.
        compaction: Compaction = Default::default(), Compaction::KIND;
        /// The rules for calls of tools: `deny` beats `ask`, and `ask` beats `allow`.
        permissions: Permissions, Permissions::KIND => "reading is allowed, everything else asks";
        /// What commands can reach.
        sandbox: Sandbox = Sandbox::default(), Sandbox::KIND;
        /// The agents, by name.
        agents: Named<Agent> = Named::default(), Kind::Map(&NAMES, &Agent::KIND),
            gives "foreign_file", "no_model", "unused_agent";
        /// Tools that are commands, by name. Agents list them under `tools`.
        tools: Named<Tool> = Named::default(), Kind::Map(&NAMES, &Tool::KIND),
            gives "conflict", "missing_field";
        /// Commands that run at the beginning and the end of a run, and around calls of tools.
        hooks: RunHooks = RunHooks::default(), RunHooks::KIND;
        /// The rules by which it is noticed that an agent goes in circles.
        loops: LoopKeys = LoopKeys::default(), LoopKeys::KIND;
        /// Notices when a run needs a person, fails or ends.
        notify: RunNotices = RunNotices::default(), RunNotices::KIND;
        /// The tasks, by name.
        tasks: Named<Task> = Named::default(), Kind::Map(&NAMES, &Task::KIND),
            gives "no_tasks", "missing_field";
        /// The place where runs are stored.
        state: State = State::default(), State::KIND;
    }
    notes {
        /// The readable logs of agents. Checked, but without an effect.
        logs, Logs::KIND;
    }
    later {
        /// Servers that offer tools by the Model Context Protocol.
        mcp_servers;
        /// The patterns that are redacted from records.
        transcripts;
        /// Traces and metrics for other programs.
        telemetry;
        /// Tests of the workflow, without a model.
        tests;
    }
}

words! { InputKind SandboxMode }

/// The type of an input as the file writes it.
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
    /// One input of a run.
    Input {
        /// The type of the value: `string`, `integer`, `number`, `boolean`, `path`, `array` or
        /// `object`. A `path` is a file or directory that exists; agents may also read one outside
        /// the workspace. An `array` or `object` is given as JSON on the command line.
        r#type: InputKind = InputKind::String, words_of::<InputKind>(&[]);
        /// The value that is used when none is given.
        default: Json, Kind::Any => "a value must be given", gives "bad_input";
        /// The regular expression that the value of a `string` or `path` must match.
        pattern: String, TEXT, gives "bad_pattern", "bad_value";
        /// The allowed values.
        r#enum: List<Json>, Kind::List(&Kind::Any), gives "bad_input";
    }
    notes {
        /// The purpose of the input, for people.
        description, TEXT;
    }

    /// The source of a secret: exactly one of `env` and `file`.
    Secret {
        /// The environment variable that holds the secret.
        env: String, VARIABLE;
        /// The file that holds only the secret; white space around it is ignored.
        file: String, KEY_FILE;
        /// If `true`, a run that needs the secret does not begin without it; if `false`, the run
        /// begins.
        required: bool = true, Kind::Truth;
    }

    /// What commands of agents, tasks and hooks can reach. The kernel enforces it
    /// (Linux 6.2 or newer); docs/security.md has the details.
    Sandbox {
        /// The files that commands can write: `read-only` (a temporary folder of their own),
        /// `workspace-write` (the workspace too) or `danger-full-access` (no sandbox). The last one
        /// takes effect only from `run --sandbox` or the variable `CALLSHEET_SANDBOX__MODE`.
        mode: SandboxMode = SandboxMode::default(), words_of::<SandboxMode>(&[]),
            gives "loose_sandbox";
        /// The hosts that commands can reach: none (`false`), all (`true`), or some with their ports, like
        /// `["crates.io:443", "static.crates.io:443"]`. Commands reach single hosts by HTTP and by tunnels
        /// of HTTPS, through a proxy that the variables `HTTPS_PROXY` and the like name.
        network: ListOr, Kind::Either(&[Kind::Truth, HOSTS]) => "false", gives "bad_value", "wrong_type";
        /// Folders that commands can write beside the workspace, and protected paths in it that
        /// they can write.
        writable_roots: List<String> = Vec::new(), FILES;
        /// Folders and files that commands can read beside the folders of the system and of toolchains.
        readable_roots: List<String> = Vec::new(), FILES;
        /// Environment variables that commands get with the values that they have outside, beside
        /// `PATH`, `HOME`, `LANG`, `LC_*`, `TERM`, `TZ`, `TMPDIR`, `USER`, `LOGNAME`, `SHELL` and
        /// the folders of toolchains (`CARGO_HOME`, `RUSTUP_HOME`, `GOPATH`, `JAVA_HOME` and the
        /// like). All others stay with the program, because any of them may hold a key: so each name
        /// needs trust once, but for harmless ones such as `CI` and `RUST_LOG`, and a value is replaced
        /// in all records unless it is a path, a number or plain words.
        env: List<String> = Vec::new(), Kind::List(&VARIABLE);
        /// If `true`, nothing runs where the sandbox cannot be had. If `false`, commands that stand
        /// in this file run there if a person has said so for the machine (`callsheet trust
        /// --without-sandbox`), and `bash` is denied.
        require: bool = false, Kind::Truth;
        /// The most that each process of a command can use.
        limits: CommandLimitKeys = CommandLimitKeys::default(), CommandLimitKeys::KIND;
    }

    /// The most that each process of a command can use. The kernel enforces it, and a smaller limit
    /// that callsheet itself runs under stays.
    CommandLimitKeys {
        /// The memory of a process that is its own to write, with heap, stacks of threads and copied
        /// pages. What is only reserved, as by Java, Go and Node, does not count. Without it, the kernel
        /// still ends commands before other programs when memory runs out.
        memory: Size, Kind::Size(64) => "no limit";
        /// The largest file that a process can write. One that writes more is ended (SIGXFSZ).
        file_size: Size = Size(CommandLimits::default().file_size), Kind::Size(1);
        /// The processor time of a process, over all its threads. One that uses more is ended (SIGXCPU).
        cpu_time: Duration = CommandLimits::default().cpu_time, Kind::Time;
        /// The processes and threads of a command; where user namespaces do not work, of the user.
        /// They are not limited for root.
        processes: u64 = CommandLimits::default().processes, Kind::Whole(16, MOST_PROCESSES, "");
        /// The files that a process can have open.
        open_files: u64 = CommandLimits::default().open_files, Kind::Whole(32, MOST_FILES, "");
    }

    /// Limits of the whole run.
    Limits {
        /// The most tasks and delegated children that run at the same time. An agent that waits for
        /// its children does not count. Eight busy agents keep two cores and one provider key
        /// occupied and stay within the request limits of an entry-level account.
        max_concurrency: usize = spec::Limits::default().max_concurrency, COUNT;
        // The next three defaults are those that Claude Code documents for its sub-agents.
        /// The deepest level of delegation; the main agent of a task is at depth 0. With 0 no agent
        /// delegates.
        max_depth: u32 = spec::Limits::default().max_depth, COUNT_OR_NONE;
        /// The delegated children that run at the same time.
        max_children: usize = spec::Limits::default().max_children, COUNT;
        /// The most children in the whole run, children of children included, and the agents of tasks
        /// that were proposed and that no person was asked about (`permissions.plan = "allow"`).
        max_descendants: usize = spec::Limits::default().max_descendants, COUNT_OR_NONE;
        /// The most children that begin in a time, like `"5/10s"`. Those beyond it wait. The default lets
        /// a child begin each second on average: one works for some seconds at least, so 20 at the same
        /// time rarely need more, and a parent that delegates without end is slow enough to be noticed.
        max_spawn_rate: SpawnRate = spec::Limits::default().max_spawn_rate, Kind::Rate;
        /// The most instances of one fan-out (`foreach`). A longer list fails the task before any of
        /// it starts.
        max_instances: usize = spec::Limits::default().max_instances, COUNT;
        /// The longest time that the run may be open.
        timeout: Duration, Kind::Time => "no limit";
        /// If `true`, no new task starts after the first failure.
        fail_fast: bool = spec::Limits::default().fail_fast, Kind::Truth;
        /// If `true`, the first failure also cancels the tasks that are running. It needs
        /// `fail_fast`.
        cancel_running: bool = spec::Limits::default().cancel_running, Kind::Truth, gives "unused_key";
        /// If `true`, a run in which anything was left undone (a call was denied, the outcome of a
        /// call is unknown, a result was cut, a limit refused a call, a child agent or an item of a
        /// fan-out failed) counts as completed only in part, and `run` ends with exit code 8.
        strict: bool = spec::Limits::default().strict, Kind::Truth;
        /// If `true`, `run` refuses while another run of this file is running in this folder, unless it is given
        /// `--also`. Else it asks at a terminal, and says so without one.
        one_at_a_time: bool = spec::Limits::default().one_at_a_time, Kind::Truth;
        /// The time that a cancelled tool or command has to end before its processes are killed.
        grace_period: Duration = spec::Limits::default().grace_period, Kind::Pause;
        /// The time that a running command has to end when callsheet itself is gone, such as after
        /// `kill -9`. `callsheet resume` waits for what is left of it and records the result. A
        /// command that takes longer is killed, and its outcome is unknown.
        orphan_grace: Duration = spec::Limits::default().orphan_grace, Kind::Pause;
    }

    /// Settings of all agents, tasks and providers that do not set their own.
    Defaults {
        /// The model of agents that do not name one.
        model: String, MODEL => "the model `default`, or the only one";
        /// The longest time that one attempt of a task may take.
        timeout: Duration, Kind::Time => "no limit";
        /// The longest time without data within a reply. The default is more than a working model
        /// needs, and less than a hanging one should cost.
        idle_timeout: Duration = Duration::from_secs(120), Kind::Time;
        /// The most model calls of one agent. The default is more than a working agent needs, and
        /// less than a stuck one should cost.
        max_turns: u32 = 50, COUNT;
        /// The retries of failed calls to models.
        retry: Retry, Retry::KIND;
        /// The prices of models that have no `cost_per_mtok`: `builtin` or `none`.
        prices: PriceList = PriceList::None, words_of::<PriceList>(&[]), gives "unknown_price";
    }

    /// The place where runs are stored.
    State {
        /// The directory for run directories, relative to this file. `--state-dir` and
        /// `CALLSHEET_STATE_DIR`, which are relative to the current directory, override it.
        dir: String = ".transcripts".to_owned(), TEXT;
        /// The number of runs of this file that are kept, the newest ones. When one begins, older ones that
        /// have ended are removed; `pruned.jsonl` keeps what they cost.
        keep_runs: usize, COUNT => "all";
        /// The time for which a run of this file is kept after its end. With `keep_runs` as well, a run is
        /// removed only if both let it go.
        keep_for: Duration, Kind::Time => "for ever";
    }

    /// The readable logs of agents.
    Logs {}
    idle {
        /// The lowest level of lines that are written to the logs.
        level;
    }
}
