//! The hooks of a run: commands of the configuration that run at certain moments, and the records of
//! their ends.

use super::run_by_others::ChangedForOthers;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The moment at which a hook runs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// Before the first task of a run.
    OnStart,
    /// After all tasks of a run have completed.
    OnSuccess,
    /// After the end of a run in which tasks did not complete.
    OnFailure,
    /// After every end of a run.
    OnExit,
    /// Before a pause of a run is recorded, or while it waits for the quota of a provider.
    RunPaused,
    /// After a run was opened again, or goes on after such a wait.
    RunResumed,
    /// When a run asks a person something.
    Question,
    /// When a share of a budget is spent, or a budget is used up.
    OnBudget,
    /// Before a call of a tool.
    PreToolUse,
    /// After a call of a tool.
    PostToolUse,
}

impl Hook {
    /// Returns the key of the hook in the configuration.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::OnStart => "on_start",
            Self::OnSuccess => "on_success",
            Self::OnFailure => "on_failure",
            Self::OnExit => "on_exit",
            Self::RunPaused => "run_paused",
            Self::RunResumed => "run_resumed",
            Self::Question => "question",
            Self::OnBudget => "on_budget",
            Self::PreToolUse => "pre_tool_use",
            Self::PostToolUse => "post_tool_use",
        }
    }

    /// Returns the name of the event that the hook reads as `hook_event_name`.
    #[must_use]
    pub fn event(self) -> &'static str {
        match self {
            Self::OnStart => "OnStart",
            Self::OnSuccess => "OnSuccess",
            Self::OnFailure => "OnFailure",
            Self::OnExit => "OnExit",
            Self::RunPaused => "RunPaused",
            Self::RunResumed => "RunResumed",
            Self::Question => "Question",
            Self::OnBudget => "OnBudget",
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
        }
    }

    /// Returns true if the hook is run once for each end of a run.
    #[must_use]
    pub fn is_of_end(self) -> bool {
        matches!(self, Self::OnSuccess | Self::OnFailure | Self::OnExit)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// What follows for a call when the hook that judges it does not work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnHookError {
    /// The call is denied.
    #[default]
    Deny,
    /// The rules decide, as without the hook.
    Allow,
}

/// The hooks of a configuration. Each is a program with its arguments; an empty one is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSpec {
    /// See [`Hook::OnStart`].
    pub on_start: Vec<String>,
    /// See [`Hook::OnSuccess`].
    pub on_success: Vec<String>,
    /// See [`Hook::OnFailure`].
    pub on_failure: Vec<String>,
    /// See [`Hook::OnExit`].
    pub on_exit: Vec<String>,
    /// See [`Hook::RunPaused`].
    pub run_paused: Vec<String>,
    /// See [`Hook::RunResumed`].
    pub run_resumed: Vec<String>,
    /// See [`Hook::Question`].
    pub question: Vec<String>,
    /// See [`Hook::OnBudget`].
    pub on_budget: Vec<String>,
    /// See [`Hook::PreToolUse`].
    pub pre_tool_use: Vec<String>,
    /// See [`Hook::PostToolUse`].
    pub post_tool_use: Vec<String>,
    /// See [`OnHookError`].
    pub on_error: OnHookError,
    /// Time limit of each hook.
    pub timeout: Duration,
}

impl HookSpec {
    /// Returns the command of a hook; empty if it is not set.
    #[must_use]
    pub fn command(&self, hook: Hook) -> &[String] {
        match hook {
            Hook::OnStart => &self.on_start,
            Hook::OnSuccess => &self.on_success,
            Hook::OnFailure => &self.on_failure,
            Hook::OnExit => &self.on_exit,
            Hook::RunPaused => &self.run_paused,
            Hook::RunResumed => &self.run_resumed,
            Hook::Question => &self.question,
            Hook::OnBudget => &self.on_budget,
            Hook::PreToolUse => &self.pre_tool_use,
            Hook::PostToolUse => &self.post_tool_use,
        }
    }

    /// Returns the hooks that are set.
    #[must_use]
    pub fn set(&self) -> BTreeSet<Hook> {
        use Hook::{OnBudget, Question, RunPaused, RunResumed};
        use Hook::{OnExit, OnFailure, OnStart, OnSuccess, PostToolUse, PreToolUse};
        let of_ends = [OnStart, OnSuccess, OnFailure, OnExit];
        let others = [RunPaused, RunResumed, Question, OnBudget, PreToolUse, PostToolUse];
        of_ends.into_iter().chain(others).filter(|hook| !self.command(*hook).is_empty()).collect()
    }
}

/// A part of a hook's command that may name a file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// The path as it is written.
    pub path: String,
    /// True if it stands in a text of a shell, of which any word may be a program.
    pub in_shell_text: bool,
}

/// Returns all that a command may name: its words, the values of its options and variables, the modules
/// that Python runs, and the words of a text for a shell, in their order.
#[must_use]
pub fn named_paths(argv: &[String]) -> Vec<NamedPath> {
    let mut found = Vec::new();
    let mut add = |path: &str, in_shell_text| {
        if !path.is_empty() {
            found.push(NamedPath { path: path.to_owned(), in_shell_text });
        }
    };
    for (at, word) in argv.iter().enumerate() {
        if at > 0 && argv[at - 1] == "-m" {
            let module = word.replace('.', "/");
            add(&format!("{module}.py"), false);
            add(&format!("{module}/__main__.py"), false);
        }
        // A name with blanks is possible too.
        add(word, false);
        let in_shell_text = word.contains(char::is_whitespace);
        let ends = |c: char| c.is_whitespace() || "'\"`;|&()<>=".contains(c);
        word.split(ends)
            .filter(|part| part.len() < word.len())
            .for_each(|part| add(part, in_shell_text));
    }
    found
}

/// Payload of `hook.started`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookStarted {
    /// The hook.
    pub hook: Hook,
    /// The state for which it runs, as no other state of the run: a pause, an opening, a question or a budget. Empty for a hook
    /// that runs once for the beginning or an end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
}

/// Payload of `hook.finished`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookFinished {
    /// The hook.
    pub hook: Hook,
    /// The state for which it ran, as in `hook.started`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The reason why it did not do its work, or why that is not known; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if a pause of the run has ended it: it runs again when the run goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The end of what it printed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// Its duration in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
    /// The files that other programs run and that changed since the end of the last agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_by_others: Vec<ChangedForOthers>,
    /// True if the workspace held more than is looked at, so that more may have changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub run_by_others_incomplete: bool,
}

impl HookFinished {
    /// Makes the record of a hook that printed nothing.
    #[must_use]
    pub fn new(hook: Hook, error: Option<String>) -> Self {
        Self {
            hook,
            about: String::new(),
            error,
            paused: false,
            output: String::new(),
            took_ms: 0,
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_command_may_name_is_found() {
        let named = |argv: &[&str]| {
            let argv: Vec<_> = argv.iter().map(ToString::to_string).collect();
            let found = named_paths(&argv).into_iter();
            found.map(|named| (named.path, named.in_shell_text)).collect::<Vec<_>>()
        };
        let has = |argv: &[&str], path: &str, in_shell_text| {
            let found = named(argv);
            assert!(found.contains(&(path.to_owned(), in_shell_text)), "{path}: {found:?}");
        };
        has(&["./hooks/policy"], "./hooks/policy", false);
        has(&["python3", "hooks/policy.py", "--rules=a/b.json"], "a/b.json", false);
        has(&["env", "PYTHONPATH=lib", "x"], "lib", false);
        has(&["python3", "-m", "hooks.policy"], "hooks/policy.py", false);
        has(&["python3", "-m", "hooks"], "hooks/__main__.py", false);
        has(&["sh", "-c", "cat r.txt|'hooks/policy' -v"], "hooks/policy", true);
        has(&["sh", "-c", "cat r.txt|'hooks/policy' -v"], "r.txt", true);
        has(&["my hooks/policy"], "my hooks/policy", false);
        assert_eq!(named(&[]), []);
        assert_eq!(named(&["=", ""]), [("=".to_owned(), false)]);
    }
}
