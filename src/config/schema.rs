//! The keys that `agents.toml` may have: their shapes, and which are not built yet.
//!
//! A plain table of the documented configuration. What the values must agree on between each
//! other is not its business.

pub(super) mod compaction;

use self::compaction::COMPACTION;

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A string.
    Text,
    /// A string among those of the first list; those of the second are known but not built. One
    /// that ends in `:` stands for all strings that begin so.
    Word(&'static [&'static str], &'static [&'static str]),
    /// `true` or `false`.
    Truth,
    /// An integer from the first number to the second.
    Integer(i64, i64),
    /// A number from the first to the second.
    Number(f64, f64),
    /// A duration; zero is allowed.
    Pause,
    /// A duration above zero.
    Time,
    /// A count per duration, as `5/10s`.
    Rate,
    /// A list.
    List(&'static Self),
    /// A table with these keys.
    Table(&'static [Field]),
    /// A table from keys of one's own to values of one shape.
    Map(Keys, &'static Self),
    /// Where a key is found, never the key itself.
    Key,
    /// A whole configuration, laid over the file.
    Profile,
    /// Anything.
    Any,
}

/// What the keys of a [`Shape::Map`] must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// `[a-z0-9_-]+`.
    Names,
    /// A letter or `_`, then letters, digits, `_` or `-`: inputs, secrets.
    Words,
    /// The name of an environment variable.
    Variables,
    /// The name of an HTTP header.
    Headers,
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) key: &'static str,
    pub(super) shape: Shape,
    pub(super) built: Built,
}

/// Whether a key does anything in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Built {
    Yes,
    Later,
}

const fn key(key: &'static str, shape: Shape) -> Field {
    Field { key, shape, built: Built::Yes }
}

const fn later(key: &'static str) -> Field {
    Field { key, shape: Shape::Any, built: Built::Later }
}

const TEXTS: Shape = Shape::List(&Shape::Text);
const COUNT: Shape = Shape::Integer(1, u32::MAX as i64);
/// Tokens: up to 2^40 keeps every sum far from overflow.
const TOKENS: Shape = Shape::Integer(1, 1 << 40);
/// A part of a whole.
const SHARE: Shape = Shape::Number(0.0, 1.0);
const PRICE: Shape = Shape::Number(0.0, 1e9);

/// Keys that a profile, a variable or a flag cannot set: they decide how the file is read.
pub(super) const FILE_ONLY: [&str; 4] = ["version", "requires", "include", "profiles"];

/// The top level.
pub(super) static ROOT: &[Field] = &[
    key("version", Shape::Any),
    key("name", Shape::Text),
    key("description", Shape::Text),
    key("requires", Shape::Text),
    key("include", TEXTS),
    key("entry", TEXTS),
    key("inputs", Shape::Map(Keys::Words, &Shape::Table(INPUT))),
    key("env", Shape::Map(Keys::Variables, &Shape::Text)),
    key("secrets", Shape::Map(Keys::Words, &Shape::Table(SECRET))),
    key("limits", Shape::Table(LIMITS)),
    later("budget"),
    key("defaults", Shape::Table(DEFAULTS)),
    key("providers", Shape::Map(Keys::Names, &Shape::Table(PROVIDER))),
    key("models", Shape::Map(Keys::Names, &Shape::Table(MODEL))),
    key("compaction", Shape::Table(COMPACTION)),
    later("mcp_servers"),
    later("tools"),
    key("permissions", Shape::Table(PERMISSIONS)),
    later("sandbox"),
    key("agents", Shape::Map(Keys::Names, &Shape::Table(AGENT))),
    key("tasks", Shape::Map(Keys::Names, &Shape::Table(TASK))),
    later("hooks"),
    key("state", Shape::Table(&[key("dir", Shape::Text), later("keep_runs"), later("keep_for")])),
    key("logs", Shape::Table(&[key("level", Shape::Word(&LEVELS, &[]))])),
    later("transcripts"),
    later("telemetry"),
    key("profiles", Shape::Map(Keys::Words, &Shape::Profile)),
    later("tests"),
];

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The types that an input may have.
pub(super) const INPUT_TYPES: [&str; 7] =
    ["string", "integer", "number", "boolean", "array", "object", "path"];

static INPUT: &[Field] = &[
    key("type", Shape::Word(&INPUT_TYPES, &[])),
    key("default", Shape::Any),
    key("description", Shape::Text),
    key("pattern", Shape::Text),
    key("enum", Shape::List(&Shape::Any)),
];

static SECRET: &[Field] =
    &[key("env", Shape::Text), key("file", Shape::Text), key("required", Shape::Truth)];

/// Where a provider's key is found.
pub(super) static KEY: &[Field] =
    &[key("env", Shape::Text), key("secret", Shape::Text), key("file", Shape::Text)];

static LIMITS: &[Field] = &[
    key("max_concurrency", COUNT),
    key("max_depth", Shape::Integer(0, u32::MAX as i64)),
    key("max_children", COUNT),
    key("max_descendants", Shape::Integer(0, u32::MAX as i64)),
    Field { key: "max_spawn_rate", shape: Shape::Rate, built: Built::Later },
    key("timeout", Shape::Time),
    key("fail_fast", Shape::Truth),
    key("cancel_running", Shape::Truth),
    key("grace_period", Shape::Pause),
];

static DEFAULTS: &[Field] = &[
    key("model", Shape::Text),
    key("timeout", Shape::Time),
    key("idle_timeout", Shape::Time),
    key("max_turns", COUNT),
    key("retry", Shape::Table(RETRY)),
];

static RETRY: &[Field] = &[
    key("max_attempts", Shape::Integer(1, 100)),
    key("initial_interval", Shape::Pause),
    key("backoff_factor", Shape::Number(1.0, 100.0)),
    key("max_interval", Shape::Pause),
    key("jitter", Shape::Truth),
    key("retry_on", TEXTS),
];

static PROVIDER: &[Field] = &[
    key("kind", Shape::Word(&["anthropic", "openai", "scripted"], &["replay"])),
    key("base_url", Shape::Text),
    key("api_key", Shape::Key),
    key("headers", Shape::Map(Keys::Headers, &Shape::Text)),
    key("connect_timeout", Shape::Time),
    key("request_timeout", Shape::Time),
    key("script", Shape::Text),
    key(
        "rate_limit",
        Shape::Table(&[
            key("max_concurrency", COUNT),
            later("requests_per_minute"),
            later("tokens_per_minute"),
            key("respect_retry_after", Shape::Truth),
            later("adaptive"),
        ]),
    ),
];

const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

static MODEL: &[Field] = &[
    key("provider", Shape::Text),
    key("model", Shape::Text),
    key("temperature", Shape::Number(0.0, 2.0)),
    key("top_p", Shape::Number(0.0, 1.0)),
    key("max_output_tokens", TOKENS),
    key("context_window", TOKENS),
    key("reasoning_effort", Shape::Word(&EFFORTS, &[])),
    key("seed", Shape::Integer(0, i64::MAX)),
    key("thinking", Shape::Word(&["bound", "free"], &[])),
    later("fallbacks"),
    key("capabilities", Shape::Any),
    key(
        "cost_per_mtok",
        Shape::Table(&[
            key("input", PRICE),
            key("output", PRICE),
            key("cache_read", PRICE),
            key("cache_write", PRICE),
        ]),
    ),
];

static RECOVERY: &[Field] = &[
    key("files", Shape::Integer(0, 1_000)),
    key("file_tokens", TOKENS),
    key("all_files_tokens", TOKENS),
    key("skill_tokens", TOKENS),
    key("all_skills_tokens", TOKENS),
];

static HOOKS: &[Field] = &[
    key("pre_compact", TEXTS),
    key("post_compact", TEXTS),
    key("after_compact_context", TEXTS),
    key("timeout", Shape::Time),
];

static PERMISSIONS: &[Field] = &[
    key("default", Shape::Word(&["allow", "ask", "deny"], &[])),
    key("allow", TEXTS),
    key("ask", TEXTS),
    key("deny", TEXTS),
    key("non_interactive", Shape::Word(&["deny", "allow"], &["pause"])),
];

static AGENT: &[Field] = &[
    key("description", Shape::Text),
    key("model", Shape::Text),
    key("instructions", Shape::Text),
    key("instructions_file", Shape::Text),
    key("tools", TEXTS),
    key("sub_agents", TEXTS),
    key("max_turns", COUNT),
    key("context_files", TEXTS),
    key("skills", TEXTS),
    key("permissions", Shape::Table(&[key("allow", TEXTS)])),
    key(
        "restart",
        Shape::Table(&[
            key("strategy", Shape::Word(&["permanent", "transient", "temporary"], &[])),
            key("max_restarts", Shape::Integer(0, 1000)),
            key("window", Shape::Time),
        ]),
    ),
    later("mcp_servers"),
    later("sandbox"),
    later("budget"),
    later("output_schema"),
    later("output_retries"),
    later("workspace"),
    later("a2a_url"),
];

static TASK: &[Field] = &[
    key("description", Shape::Text),
    key("agent", Shape::Text),
    key("prompt", Shape::Text),
    key("run", Shape::Text),
    key("depends_on", TEXTS),
    key(
        "join",
        Shape::Word(&["all_success", "all_done", "any_success", "none_failed"], &["at_least:"]),
    ),
    key("when", Shape::Text),
    key("timeout", Shape::Time),
    key("retry", Shape::Table(RETRY)),
    key("output", Shape::Word(&["text", "json", "jsonl"], &[])),
    key("output_file", Shape::Text),
    key("env", Shape::Map(Keys::Variables, &Shape::Text)),
    key("on_failure", Shape::Word(&["fail"], &["continue", "skip_dependents", "pause"])),
    later("model"),
    later("idle_timeout"),
    later("max_turns"),
    later("output_schema"),
    later("cache"),
    later("foreach"),
    later("foreach_as"),
    later("foreach_key"),
    later("max_concurrency"),
    later("min_success"),
    later("context"),
    later("context_budget"),
    later("loop"),
    later("checks"),
    later("approval"),
    later("idempotency_key"),
    later("workflow"),
    later("with"),
    later("enabled"),
];
