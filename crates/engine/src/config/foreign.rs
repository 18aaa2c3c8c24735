//! The words of other tools: the key or the tool of callsheet that does the same.
//!
//! Pure. A suggestion by likeness cannot find these, because the words look different.

use super::hints;
use crate::own_tool::OwnTool;

/// Words for limits of money, of calls and of time, and the keys for them.
const MONEY: &[&str] = &[
    "usd",
    "max_usd",
    "dollars",
    "cost",
    "cost_limit",
    "price",
    "money",
    "max_cost",
    "max_cost_usd",
    "max_budget",
    "max_budget_usd",
];
const MAX_COST: &str = "did you mean `max_cost`? it is in US dollars";
const CALLS: &[&str] = &["calls", "requests", "max_requests", "turns", "max_turns"];
const MAX_CALLS: &str = "did you mean `max_calls`?";
const TIME: &[&str] = &["time", "max_duration", "duration", "max_seconds"];
const MAX_TIME: &str = "did you mean `max_time`?";

/// Keys of other orchestrators, by the section in which they are written. A section is the path of
/// a table with `NAME` for each name that the user chose.
const KEYS: &[(&str, &[&str], &str)] = &[
    (
        "tasks.NAME",
        &["command", "cmd", "exec", "script", "shell", "start", "sh", "bash"],
        "a command is written as `run`",
    ),
    (
        "tasks.NAME",
        &["needs", "after", "depends", "dependencies", "requires", "upstream", "wait_for"],
        "dependencies are written as `depends_on`",
    ),
    ("tasks.NAME", &["if", "condition", "only_if"], "a condition is written as `when`"),
    (
        "tasks.NAME",
        &["temperature", "top_p", "max_tokens", "max_output_tokens", "reasoning_effort"],
        "a model's settings are keys of its `[models.NAME]`",
    ),
    (
        "tasks.NAME",
        &["system_prompt", "system", "instructions", "tools"],
        "an agent's instructions and tools are keys of its `[agents.NAME]`; the task has `prompt`",
    ),
    (
        "tasks.NAME",
        &["message", "input", "task", "goal", "description_for_agent", "expected_output"],
        "the message to the agent is written as `prompt`",
    ),
    ("tasks.NAME", &["retries", "max_retries", "attempts"], "write `retry = { max_attempts = 3 }`"),
    (
        "tasks.NAME.retry",
        &["attempts", "max", "count", "times", "retries", "max_retries", "limit"],
        "did you mean `max_attempts`?",
    ),
    ("tasks.NAME", &["matrix", "for_each", "map"], "a fan-out is written as `foreach`"),
    (
        "agents.NAME",
        &["system_prompt", "system", "prompt", "backstory", "role", "goal", "persona"],
        "an agent's system prompt is written as `instructions`; a task has the `prompt`",
    ),
    (
        "agents.NAME",
        &["env", "environment"],
        "commands get the variables of `[env]`; a `run` task has an `env` of its own",
    ),
    (
        "agents.NAME",
        &["temperature", "top_p", "max_tokens", "max_output_tokens", "reasoning_effort"],
        "a model's settings are keys of its `[models.NAME]`",
    ),
    ("agents.NAME", &["llm", "model_name", "engine"], "an agent's model is written as `model`"),
    (
        "agents.NAME",
        &["subagents", "agents", "handoffs", "delegates", "allow_delegation", "team"],
        "the agents to which an agent may delegate are written as `sub_agents`",
    ),
    ("agents.NAME", &["max_iter", "max_iterations", "max_steps"], "write `max_turns`"),
    (
        "agents.NAME",
        &["allowed_tools", "disallowed_tools", "permission_mode"],
        "tools are written as `tools`, rules as `[permissions]`",
    ),
    ("models.NAME", &["max_tokens"], "write `max_output_tokens`"),
    ("models.NAME", &["name", "id", "model_name"], "the provider's name of a model is `model`"),
    ("models.NAME", &["api_key", "base_url"], "keys and addresses belong to `[providers.NAME]`"),
    ("providers.NAME", &["type", "api", "provider"], "write `kind`"),
    ("providers.NAME", &["url", "endpoint", "api_base", "host"], "write `base_url`"),
    (
        "providers.NAME",
        &["key", "token", "api_key_env"],
        "write `api_key = { env = \"VARIABLE\" }`",
    ),
    ("tools.NAME", &["args", "arguments", "argv", "cmd", "run"], "write all in `command`"),
    (
        "tools.NAME",
        &["parameters", "schema", "inputs", "inputSchema"],
        "the arguments of a call are written as `input_schema`",
    ),
    ("budget", MONEY, MAX_COST),
    ("tasks.NAME.budget", MONEY, MAX_COST),
    ("agents.NAME.budget", MONEY, MAX_COST),
    ("budget", CALLS, MAX_CALLS),
    ("tasks.NAME.budget", CALLS, MAX_CALLS),
    ("agents.NAME.budget", CALLS, MAX_CALLS),
    ("budget", TIME, MAX_TIME),
    ("tasks.NAME.budget", TIME, MAX_TIME),
    ("agents.NAME.budget", TIME, MAX_TIME),
    ("limits", MONEY, "spending is limited by `max_cost` of [budget]"),
    ("tasks.NAME", MONEY, "spending is limited by `max_cost` of [tasks.NAME.budget]"),
    ("agents.NAME", MONEY, "spending is limited by `max_cost` of [agents.NAME.budget]"),
    ("", &["jobs", "steps", "stages", "nodes"], "tasks are written as `[tasks.NAME]`"),
    ("", &["agent"], "agents are written as `[agents.NAME]`"),
    ("", &["task"], "tasks are written as `[tasks.NAME]`"),
    ("", &["model", "llm"], "models are written as `[models.NAME]`"),
    ("", &["on", "triggers", "schedule"], "a run is started by `callsheet run`, such as from cron"),
    ("", &["vars", "variables", "params", "parameters"], "values are typed as `[inputs.NAME]`"),
    ("", &["environment"], "variables of commands are written as `[env]`"),
];

/// Tools of other programs, with the tool that does the same.
const TOOLS: &[(&[&str], &str)] = &[
    (&["Bash", "shell", "sh", "exec", "run_command", "terminal", "execute_command"], "bash"),
    (&["Read", "read", "cat", "open_file", "view"], "read_file"),
    (&["Write", "write", "create_file"], "write_file"),
    (&["Edit", "MultiEdit", "edit", "str_replace", "apply_patch", "patch"], "edit_file"),
    (&["Glob", "LS", "ls", "list_files", "find", "list_directory"], "glob"),
    (&["Grep", "search", "rg", "search_files"], "grep"),
    (&["Task", "Agent", "task", "spawn_agent", "handoff"], OwnTool::Delegate.name()),
    (&["TodoWrite", "todo", "TodoRead"], OwnTool::TodoWrite.name()),
    (&["Skill", "skill"], "load_skill"),
];

/// Returns what a key of another tool is here. `path` is the path of the table that holds it.
pub(super) fn key(path: &str, name: &str) -> Option<&'static str> {
    let (section, snake) = (section(path), hints::snake(name));
    let is_one = |names: &[&str]| names.contains(&name) || names.contains(&&*snake);
    let found = KEYS.iter().find(|(at, names, _)| *at == section && is_one(names));
    found.map(|(_, _, help)| *help)
}

/// Returns the path of a table as the reference has it: with `NAME` for each name that the user chose, without the
/// numbers of items, and without the profile that holds it.
pub(super) fn section(path: &str) -> String {
    let mut steps: Vec<&str> = path.split('.').collect();
    if steps[0] == "profiles" {
        steps.drain(..steps.len().min(2));
    }
    if let [
        "tasks" | "agents" | "models" | "providers" | "tools" | "inputs" | "secrets",
        chosen,
        ..,
    ] = &mut steps[..]
    {
        *chosen = "NAME";
    }
    let bare = |step: &&str| step.split('[').next().unwrap_or_default().to_owned();
    steps.iter().map(bare).collect::<Vec<_>>().join(".")
}

/// Words of other tools for a value, with the word that means the same here.
const VALUES: &[(&str, &[&str], &str)] = &[
    ("on_failure", &["ignore", "proceed", "keep_going", "continue_on_error"], "continue"),
    ("on_failure", &["stop", "abort", "error", "fail_fast"], "fail"),
    ("on_failure", &["skip", "skip_downstream"], "skip_dependents"),
];

/// What to use in place of a key that is not there yet, by the last part of its path.
const INSTEAD: &[(&str, &str)] =
    &[("mcp_servers", "write the calls that are needed as commands of your own: `[tools.NAME]`")];

/// Returns the word that means the same as a value of another tool.
pub(super) fn value(path: &str, word: &str) -> Option<&'static str> {
    let key = path.rsplit('.').next().unwrap_or_default();
    let found = VALUES.iter().find(|(at, words, _)| *at == key && words.contains(&word));
    found.map(|(_, _, here)| *here)
}

/// Returns what to use in place of a key that is not there yet.
pub(super) fn instead(path: &str) -> Option<&'static str> {
    let key = path.rsplit('.').next().unwrap_or_default();
    INSTEAD.iter().find(|(at, _)| *at == key).map(|(_, help)| *help)
}

/// Returns the tool that does the same as a tool of another program.
pub(super) fn tool(name: &str) -> Option<&'static str> {
    TOOLS.iter().find(|(names, _)| names.contains(&name)).map(|(_, tool)| *tool)
}

/// Returns a permission rule of another program in the form of callsheet: `Bash(rm:*)` is
/// `bash(rm*)`.
pub(super) fn rule(text: &str) -> Option<String> {
    let (name, argument) = match text.split_once('(') {
        Some((name, argument)) => (name, argument.strip_suffix(')')),
        None => (text, None),
    };
    let tool = tool(name.trim())?;
    Some(match argument {
        Some(argument) => format!("{tool}({})", argument.replace(":*", "*")),
        None => tool.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_tools_are_known() {
        for (path, name, says) in [
            ("tasks.build", "start", "`run`"),
            ("tasks.build", "temperature", "`[models.NAME]`"),
            ("agents.a", "system_prompt", "`instructions`"),
            ("agents.a", "env", "`[env]`"),
            ("", "agent", "`[agents.NAME]`"),
        ] {
            assert!(key(path, name).is_some_and(|help| help.contains(says)), "{path} {name}");
        }
        assert_eq!(key("agents.a", "allowedTools"), key("agents.a", "allowed_tools"));
        for (path, name, says) in [
            ("budget", "usd", "`max_cost`"),
            ("budget", "maxRequests", "`max_calls`"),
            ("tasks.t.budget", "duration", "`max_time`"),
            ("profiles.night.agents.a.budget", "cost", "`max_cost`"),
            ("limits", "max_cost", "[budget]"),
        ] {
            assert!(key(path, name).is_some_and(|help| help.contains(says)), "{path} {name}");
        }
        for (path, wanted) in [
            ("", ""),
            ("profiles.night", ""),
            ("tasks.a.checks[1]", "tasks.NAME.checks"),
            ("compaction.hooks", "compaction.hooks"),
        ] {
            assert_eq!(section(path), wanted, "{path}");
        }
        assert_eq!(key("limits", "start"), None);
        assert_eq!(key("tasks.a.retry", "start"), None);
        assert_eq!(rule("Bash(rm:*)").as_deref(), Some("bash(rm*)"));
        assert_eq!(rule("Read").as_deref(), Some("read_file"));
        assert_eq!((rule("bash(x)"), tool("read_file")), (None, None));
    }
}
