//! Builds the settings of the sandbox.

use std::path::PathBuf;

use super::Setting;
use super::diagnostic::Giver;
use super::raw::OwnSandbox;
use super::shape::List;
use super::tree::Written;
use crate::spec::sandbox::{CommandLimits, Confinement, SandboxMode, SandboxSpec};

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
    SandboxSpec {
        mode: *raw.mode,
        network: *raw.network,
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
    if *own.network && !*run.network {
        let help = "set `network = true` in `[sandbox]`, and `false` for those that need none";
        loose(own.network.at(), "`[sandbox]` gives nobody a network", help);
    }
    let read_only = [*run.mode, *own.mode].contains(&SandboxMode::ReadOnly);
    Confinement { read_only, offline: !*own.network }
}
