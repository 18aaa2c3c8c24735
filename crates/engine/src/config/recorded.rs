//! The configuration that a run recorded, as sources of a configuration.
//!
//! Owns the choice of what a run records: the text, the profile, the inputs, the tasks and the
//! variables that set keys. Providers, secrets and environment variables for commands are not
//! recorded, because they may hold keys: they come from the environment in which the run is
//! resumed.

use std::path::Path;

use serde_json::Value as Json;

use super::compared::keys;
use super::diagnostic::Giver;
use super::sources::ProposedPlan;
use super::{Sources, files, layers, root};
use crate::event::RunCreated;

/// The key of the folder of runs, which the command line can set.
const STATE_DIR: &str = "state.dir";

impl Sources {
    /// Returns who gave the inputs and the plan: a record may come with the project.
    pub(super) fn giver(&self) -> Giver {
        match self.run {
            Some(_) => Giver::Record,
            None => Giver::PersonForRun,
        }
    }

    /// Replaces the given sources by those that a run recorded. `dir` is the run directory: if it
    /// is in the workspace, the workspace's file is used, even if both were moved.
    #[must_use]
    pub fn of_run(mut self, created: &RunCreated, dir: &Path) -> Self {
        let here = root(&self.file);
        if let Some(name) = created.file.file_name() {
            let lies_here = dir.canonicalize().is_ok_and(|dir| dir.starts_with(&here));
            self.file = if lies_here { here.join(name) } else { created.file.clone() };
            // Whoever names the folder of runs means the run and its workspace.
            let names_folder = self.overrides.iter().any(|(key, _)| key == STATE_DIR)
                || self.environment.get("CALLSHEET_STATE_DIR").is_some_and(|dir| !dir.is_empty());
            self.recorded_elsewhere = !names_folder && root(&self.file) != here;
        }
        self.recorded = Some(created.files.clone());
        self.run = Some(created.run);
        self.profile.clone_from(&created.profile);
        self.plan.clone_from(&created.plan);
        let proposed = created.proposed.iter();
        self.proposed = proposed.map(|plan| ProposedPlan::new(&plan.by, &plan.text)).collect();
        self.environment.retain(|variable, _| !layers::is_recorded(variable));
        // Others in a record would pass for what the person says now.
        self.environment.extend(layers::recorded(&created.settings));
        self.recorded_overrides = created.overrides.clone().into_iter().collect();
        let inputs = created.inputs.to_value();
        let inputs = inputs.as_object().into_iter().flatten();
        self.inputs = inputs.map(|(name, value)| (name.clone(), as_given(value))).collect();
        self.targets = created.tasks.iter().map(|task| task.name.to_string()).collect();
        self
    }
}

impl Sources {
    /// Returns the sources of a run that resumes with the current text of the file. It keeps the
    /// run's profile, and those inputs that were given to the run and that the file still declares.
    #[must_use]
    pub fn accepting(self, created: &RunCreated, dir: &Path) -> Self {
        let environment = self.environment.clone();
        let mut sources = self.of_run(created, dir);
        sources.environment = environment;
        sources.recorded = None;
        sources.targets = Vec::new();
        let now = files::text_of(&sources.file).unwrap_or_default();
        // A text that cannot be read is reported when the file is loaded.
        let of = |text: &str| keys(text, &sources.file).unwrap_or_default();
        let (before, now) = (of(&created.config), of(&now));
        let values = created.inputs.to_value();
        sources.inputs.retain(|(name, _)| {
            let default = before.get(&format!("inputs.{name}.default"));
            let value = values[name].to_string();
            let was_given = default.is_none_or(|default| *default != value);
            let section = format!("inputs.{name}");
            let is_asked_for = |key: &String| {
                key.strip_prefix(&section)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            was_given && now.keys().any(is_asked_for)
        });
        sources
    }
}

/// Returns an input's value as the command line gives it.
fn as_given(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
