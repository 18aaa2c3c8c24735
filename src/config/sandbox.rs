//! Builds the settings of the sandbox.

use super::Setting;
use crate::spec::sandbox::SandboxSpec;

/// Returns what commands may reach.
pub(super) fn sandbox(setting: Setting<'_>) -> SandboxSpec {
    let raw = &setting.raw.sandbox;
    SandboxSpec { env: raw.env.iter().map(|name| name.value.clone()).collect() }
}
