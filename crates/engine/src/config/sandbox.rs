//! Builds the settings of the sandbox.

use std::path::PathBuf;

use serde_json::Value as Json;

use super::Setting;
use super::diagnostic::{Giver, NO_HELP, Problems};
use super::raw::{OwnSandbox, Sandbox};
use super::shape::{Item, List, ListOr};
use super::tree::Written;
use crate::spec::sandbox::{CommandLimits, Confinement, SandboxMode, SandboxSpec, host_of};

/// Returns what commands may reach.
pub(super) fn sandbox(setting: Setting<'_>) -> SandboxSpec {
    let raw = &setting.raw.sandbox;
    if let (SandboxMode::DangerFullAccess, Some(at)) = (*raw.mode, raw.mode.at())
        && at.value.giver() == Giver::Project
    {
        let message = "the file cannot turn the sandbox off for the commands that it holds";
        let help = "remove it; whoever runs the file can say `callsheet run --sandbox \
                    danger-full-access`";
        setting.problems.error("loose_sandbox", &at.value, message, help);
    }
    let paths = |list: &List<String>| -> Vec<PathBuf> {
        list.iter().map(|path| setting.root.join(&path.value)).collect()
    };
    let (network, hosts) = network(raw, setting.problems);
    SandboxSpec {
        mode: *raw.mode,
        network,
        hosts,
        writable_roots: paths(&raw.writable_roots),
        readable_roots: paths(&raw.readable_roots),
        env: raw.env.iter().map(|name| name.value.clone()).collect(),
        require: *raw.require,
        limits: CommandLimits {
            memory: raw.limits.memory.map(|size| size.0),
            file_size: raw.limits.file_size.0,
            cpu_time: *raw.limits.cpu_time,
            processes: *raw.limits.processes,
            open_files: *raw.limits.open_files,
        },
    }
}

/// Returns true if commands may use the whole network, and the hosts that they may reach otherwise.
fn network(raw: &Sandbox, problems: &Problems) -> (bool, Vec<String>) {
    let one = |Item { value, at }: &Item<Json>| {
        let Some(text) = value.as_str() else {
            let message = format!("a host must be a string, not {}", at.kind);
            problems.error("wrong_type", &at.value, message, NO_HELP);
            return None;
        };
        let found = host_of(text);
        if found.is_none() {
            let help = "write a name or an address with its port, like `crates.io:443` or `[::1]:8080`; there \
                        are no patterns";
            problems.error(
                "bad_value",
                &at.value,
                format!("`{text}` is not a host with its port"),
                help,
            );
        }
        found
    };
    match raw.network.placed() {
        None => (false, Vec::new()),
        Some((ListOr::Other(Json::Bool(all)), _)) => (*all, Vec::new()),
        Some((ListOr::List(items), _)) => (false, items.iter().filter_map(one).collect()),
        Some((ListOr::Other(_), place)) => {
            let message = "`sandbox.network` must be true, false or an array of hosts";
            let help = "write it like `network = [\"crates.io:443\"]`";
            problems.error("wrong_type", place, message, help);
            (false, Vec::new())
        }
    }
}

/// Returns true if `[sandbox]` gives commands a network, or some hosts of it.
pub(super) fn has_network(raw: &Sandbox) -> bool {
    raw.network.placed().is_some_and(|(network, _)| match network {
        ListOr::Other(network) => *network == Json::Bool(true),
        ListOr::List(hosts) => !hosts.is_empty(),
    })
}

/// Returns what an agent or a task is kept from.
pub(super) fn confinement(setting: Setting<'_>, own: &OwnSandbox) -> Confinement {
    let run = &setting.raw.sandbox;
    let loose = |at: Option<&Written>, message: &str, help: &str| {
        if let Some(at) = at {
            setting.problems.error("loose_sandbox", &at.value, message, help);
        }
    };
    let is_wider = match (*run.mode, *own.mode) {
        (_, SandboxMode::DangerFullAccess) => true,
        (SandboxMode::ReadOnly, mode) => mode != SandboxMode::ReadOnly,
        (SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess, _) => false,
    };
    if is_wider {
        let help = "write `mode = \"read-only\"`, or leave it out";
        loose(own.mode.at(), "an agent or a task may not write more than `[sandbox]` says", help);
    }
    if *own.network && !has_network(run) {
        let help = "set `network = true` in `[sandbox]`, and `false` for those that need none";
        loose(own.network.at(), "`[sandbox]` gives nobody a network", help);
    }
    let read_only = [*run.mode, *own.mode].contains(&SandboxMode::ReadOnly);
    Confinement { read_only, offline: !*own.network }
}
