//! The settings of the run machine, from the configuration and the flags of a run.

use std::path::PathBuf;
use std::sync::Arc;

use super::Options;
use crate::config::Config;
use crate::event::RunCreated;
use crate::id::{Name, RunId};
use crate::plan::Plan;
use crate::run_machine;
use crate::spec::tool::CommandTool;
use crate::spec::{AgentSpec, Limits, ModelSpec};
use crate::turn::content::Definitions;

/// Returns the settings of the run machine, which makes a run's decisions.
pub(super) fn machine_settings(
    (run, results): (RunId, PathBuf),
    plan: Plan,
    config: &Config,
    flags: Flags,
) -> run_machine::Settings {
    let agents = config.agents.iter().map(|(name, spec)| (name.clone(), Arc::new(spec.clone())));
    run_machine::Settings {
        run,
        workflow: config.name.clone(),
        inputs: config.inputs.clone(),
        plan,
        limits: flags.limits(config),
        budget: config.budget.clone(),
        agents: agents.collect(),
        models: config.models.clone(),
        tools: config.tools.clone(),
        env: config.env.clone(),
        hooks: config.hooks.set(),
        ask_timeout: config.ask_timeout,
        notices: config.notify.policy.clone(),
        results,
        grows: config.grows(),
        attended: false,
        pid: std::process::id(),
    }
}

impl<'a> Definitions<'a> for &'a Config {
    fn agent(&self, name: &Name) -> Option<&'a AgentSpec> {
        self.agents.get(name)
    }
    fn model(&self, name: &Name) -> Option<&'a ModelSpec> {
        self.models.get(name)
    }
    fn tool(&self, name: &Name) -> Option<&'a CommandTool> {
        self.tools.get(name)
    }
}

/// The flags of a run that overrule limits of its configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    pub(super) keep_going: bool,
    pub(super) strict: bool,
}

impl From<&Options> for Flags {
    fn from(options: &Options) -> Self {
        Self { keep_going: options.keep_going, strict: options.strict }
    }
}

impl From<&RunCreated> for Flags {
    fn from(created: &RunCreated) -> Self {
        Self { keep_going: created.keep_going, strict: created.strict }
    }
}

impl Flags {
    /// Returns the limits of a run.
    pub(super) fn limits(self, config: &Config) -> Limits {
        Limits {
            fail_fast: config.limits.fail_fast && !self.keep_going,
            strict: config.limits.strict || self.strict,
            ..config.limits
        }
    }
}
