//! Warns of commands whose programs are known to need the network while the sandbox gives them none.
//!
//! `tool::bash` knows the programs. Here is what the file gives: `[sandbox]`, the `sandbox` of a task, and the
//! variables that send programs to a server of the machine itself, of which nothing more is known.

use serde_json::Value as Json;

use super::diagnostic::Place;
use super::raw::{Check, Task, Tool};
use super::sandbox::has_network;
use super::shape::{Item, Named};
use super::{Setting, names};
use crate::spec::sandbox::SandboxMode;
use crate::tool::bash::{NetworkNeed, network_needs, network_needs_of, redirects};

/// What keeps a command from the network.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// `[sandbox]` gives nobody one.
    ByRun,
    /// The task has none of its own.
    ByTask,
}

/// Warns of the command of a task.
pub(super) fn of_task(setting: Setting<'_>, task: &Task) {
    if let (Some((run, place)), Some(kept)) = (task.run.placed(), kept(setting, Some(task)))
        && !is_redirected(setting, &task.env)
    {
        warn(setting, place, &network_needs(run), kept);
    }
}

/// Warns of the command of a check of a task.
pub(super) fn of_check(setting: Setting<'_>, task: &Task, check: &Check) {
    if let (Some((run, place)), Some(kept)) = (check.run.placed(), kept(setting, Some(task)))
        && !is_redirected(setting, &check.env)
    {
        warn(setting, place, &network_needs(run), kept);
    }
}

/// Warns of the command of a tool. Whether the agents that have it are kept from the network is not looked at.
pub(super) fn of_tool(setting: Setting<'_>, tool: &Tool) {
    let (Some(first), Some(kept)) = (tool.command.first(), kept(setting, None)) else { return };
    if !is_redirected(setting, &tool.env) {
        warn(setting, &first.at.value, &network_needs_of(&words(&tool.command)), kept);
    }
}

/// Warns of the command of a hook.
pub(super) fn of_hook(setting: Setting<'_>, command: &[Item<String>]) {
    let (Some(first), Some(kept)) = (command.first(), kept(setting, None)) else { return };
    if !is_redirected(setting, &Named::default()) {
        warn(setting, &first.at.value, &network_needs_of(&words(command)), kept);
    }
}

fn words(command: &[Item<String>]) -> Vec<String> {
    command.iter().map(|word| word.value.clone()).collect()
}

/// Returns what keeps commands from the network; `None` if they have one, or some hosts of it.
fn kept(setting: Setting<'_>, task: Option<&Task>) -> Option<Kept> {
    let run = &setting.raw.sandbox;
    if *run.mode == SandboxMode::DangerFullAccess {
        None
    } else if !has_network(run) {
        Some(Kept::ByRun)
    } else {
        task.filter(|task| !*task.sandbox.network).map(|_| Kept::ByTask)
    }
}

/// Returns true if a variable that the commands get may name another server, or say that there is none.
fn is_redirected(setting: Setting<'_>, own: &Named<String>) -> bool {
    let passed = setting.raw.sandbox.env.iter().map(|name| name.value.as_str());
    own.names().chain(setting.raw.env.names()).chain(passed).any(redirects)
}

fn warn(setting: Setting<'_>, place: &Place, needs: &[NetworkNeed], kept: Kept) {
    let Some(first) = needs.first() else { return };
    let mut commands: Vec<&str> = needs.iter().map(|need| need.command.as_str()).collect();
    commands.dedup();
    let (verb, reaches) = match commands.len() {
        1 => ("needs", format!("the network ({})", first.reaches)),
        _ => ("need", "the network".to_owned()),
    };
    let message = format!(
        "{} {verb} {reaches}, and {}",
        names::list(&commands),
        match kept {
            Kept::ByRun => "the sandbox gives commands none",
            Kept::ByTask => "`sandbox.network = false` gives this task none",
        }
    );
    setting.problems.warning("no_network", place, message, help(needs, first, kept));
}

fn help(needs: &[NetworkNeed], first: &NetworkNeed, kept: Kept) -> String {
    if needs.iter().all(|need| need.by_daemon) {
        return "the sandbox keeps the socket of that daemon away, also with a network: run it outside of callsheet, or \
                with `callsheet run --sandbox danger-full-access`"
            .to_owned();
    }
    let key = match kept {
        Kept::ByTask => "remove `network = false` from the `sandbox` of the task".to_owned(),
        Kept::ByRun => {
            let mut hosts: Vec<String> = needs
                .iter()
                .filter_map(|need| {
                    need.host.as_ref().map(|host| Json::from(host.as_str()).to_string())
                })
                .collect();
            hosts.sort();
            hosts.dedup();
            match hosts.is_empty() {
                true => "name the hosts that it reaches: `network = [\"HOST:443\"]` in [sandbox]"
                    .to_owned(),
                false => format!(
                    "add `network = [{}]` to [sandbox], and the other hosts that it reaches",
                    hosts.join(", ")
                ),
            }
        }
    };
    match (needs.len(), first.offline) {
        (1, offline) if !offline.is_empty() => {
            format!("{key}; or write `{offline}` if all that it wants is here already")
        }
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{BASE, Workspace};

    /// The warnings about the network of a file with these lines.
    fn found(lines: &str) -> Vec<String> {
        let workspace = Workspace::new();
        let all = workspace.problems(&format!("{BASE}{lines}\n"), &workspace.sources());
        all.into_iter().filter(|line| line.contains(" no_network ")).collect()
    }

    #[test]
    fn commands_without_the_network_that_they_need_are_named_with_the_key() {
        let task = "[tasks.x]\nrun = 'npm ci'\n";
        let [warning] = &found(task)[..] else { panic!("{:?}", found(task)) };
        assert!(
            warning.ends_with(
                ":7 warning no_network `npm ci` needs the network (a registry of packages), and the sandbox gives \
                 commands none | add `network = [\"registry.npmjs.org:443\"]` to [sandbox], and the other hosts that \
                 it reaches; or write `--offline` if all that it wants is here already"
            ),
            "{warning}"
        );
        let key = "add `network = [\"pypi.org:443\", \"registry.npmjs.org:443\"]` to [sandbox]";
        for (lines, wanted) in [
            ("[tasks.x]\nrun = 'npm ci && pip install x'", key),
            (
                "[tasks.x]\nrun = 'git push'",
                "name the hosts that it reaches: `network = [\"HOST:443\"]`",
            ),
            ("[tasks.x]\nrun = 'docker build .'", "--sandbox danger-full-access"),
            (
                "[sandbox]\nnetwork = true\n[tasks.x]\nrun = 'npm ci'\nsandbox = { network = false }",
                "remove `network = false` from the `sandbox` of the task",
            ),
            (
                "[tasks.x]\nrun = 'x'\nchecks = [{ run = 'curl https://example.com/x' }]",
                "\"example.com:443\"",
            ),
            (
                "[tools.x]\ndescription = 'x'\ncommand = ['git', 'push']",
                "`git push` needs the network",
            ),
            ("[hooks]\non_exit = ['curl', 'https://example.com/x']", "\"example.com:443\""),
        ] {
            let all = found(lines);
            assert!(all.len() == 1 && all[0].contains(wanted), "{lines}: {all:?}");
        }
    }

    #[test]
    fn there_is_no_warning_where_there_is_a_network_or_another_server() {
        for lines in [
            "[sandbox]\nnetwork = true\n[tasks.x]\nrun = 'npm ci'",
            "[sandbox]\nnetwork = ['registry.npmjs.org:443']\n[tasks.x]\nrun = 'npm ci'",
            "[tasks.x]\nrun = 'npm ci --offline'",
            "[tasks.x]\nrun = 'npm ci'\nenv = { npm_config_registry = 'http://localhost:4873' }",
            "[env]\nPIP_NO_INDEX = '1'\n[tasks.x]\nrun = 'pip install x'",
            "[sandbox]\nenv = ['CARGO_NET_OFFLINE']\n[tasks.x]\nrun = 'cargo fetch'",
            "[tools.x]\ndescription = 'x'\ncommand = ['git', '{{ args.x }}']",
            "[tasks.x]\nrun = 'echo npm ci'",
        ] {
            assert_eq!(found(lines), [""; 0], "{lines}");
        }
        // Whoever starts the run without a sandbox has the network.
        let workspace = Workspace::new();
        let mut sources = workspace.sources();
        let variable = ("CALLSHEET_SANDBOX__MODE".to_owned(), "danger-full-access".to_owned());
        sources.environment.extend([variable]);
        let all = workspace.problems(&format!("{BASE}[tasks.x]\nrun = 'npm ci'\n"), &sources);
        assert!(!all.iter().any(|line| line.contains("no_network")), "{all:?}");
    }
}
