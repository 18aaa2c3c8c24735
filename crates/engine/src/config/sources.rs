//! The parts that a configuration is made from, before anything is read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::id::{AgentId, Name, RunId};

/// The treatment of a provider's key or an input that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// It is an error, because something is about to run.
    #[default]
    Refuse,
    /// It is left out, because the configuration is only read.
    Allow,
}

/// The treatment of files outside the directory of the configuration that the configuration itself
/// names. Those that a flag or a variable names are always read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// They are read: whoever loads the configuration trusts it.
    #[default]
    Read,
    /// They are not touched, and the configuration lacks what stands in them.
    LeaveOut,
}

/// The parts that a configuration is made from: a file, flags, inputs and variables.
#[derive(Clone, Default)]
pub struct Sources {
    /// The path of the file.
    pub file: PathBuf,
    /// The profile to merge over the file.
    pub profile: Option<String>,
    /// The file with a plan whose tasks are added behind the approval of a person; an absolute path.
    pub plan: Option<PathBuf>,
    /// The plans that agents proposed during the run, with the words for where each comes from.
    pub proposed: Vec<ProposedPlan>,
    /// Inputs as they were given; the last one of a name counts.
    pub inputs: Vec<(String, String)>,
    /// Values of flags, by dotted keys.
    pub overrides: Vec<(String, toml::Value)>,
    /// The keys that `run --set` sets, with their values as they were typed. They are judged as if the file held
    /// them, and the run records them.
    pub set: Vec<(String, String)>,
    /// The model of `run --model`: a name of `[models]`, or else what the provider of the default model calls it.
    pub model: Option<String>,
    /// The environment: `CALLSHEET_*` variables and variables that hold keys.
    pub environment: BTreeMap<String, String>,
    /// The tasks to run; if empty, the file's `entry`, or all tasks. Unknown names are ignored.
    pub targets: Vec<String>,
    /// Names of the tools that the embedding program adds.
    pub extra_tools: Vec<Name>,
    /// Names of the models that the embedding program adds; these need no provider.
    pub custom_models: Vec<Name>,
    /// The files that the configuration names, as a run recorded them. A file that is not among
    /// them is read from the disk.
    pub recorded: Option<BTreeMap<String, String>>,
    /// The treatment of a provider's key that is not set.
    pub missing_keys: Missing,
    /// The treatment of an input without a value.
    pub missing_inputs: Missing,
    /// The treatment of files outside the directory that the project's file names.
    pub outside: Outside,
    /// The run whose record gave these sources, if one did.
    pub run: Option<RunId>,
    /// True if the record of a run names another workspace than the directory in which it was looked
    /// for.
    pub recorded_elsewhere: bool,
    /// Values of flags that a run recorded, by dotted keys, as they were typed; `overrides` win over them.
    pub recorded_overrides: Vec<(String, String)>,
}

/// A plan that an agent proposed during a run.
#[derive(Clone, Debug)]
pub struct ProposedPlan {
    /// The name of the text in diagnostics.
    pub label: String,
    /// The tasks as TOML.
    pub text: String,
}

impl ProposedPlan {
    /// Creates a plan that was proposed by this agent.
    #[must_use]
    pub fn new(by: &AgentId, text: &str) -> Self {
        Self { label: format!("plan of {by}"), text: text.to_owned() }
    }
}

impl Sources {
    /// Creates the sources with a file and nothing else.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }

    /// Adds the environment variables of this process, except those that are not Unicode.
    #[must_use]
    pub fn with_process_environment(mut self) -> Self {
        let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        self.environment = std::env::vars_os().filter_map(text).collect();
        self
    }
}

impl fmt::Debug for Sources {
    /// Shows only the names of the variables, because their values may be keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("profile", &self.profile)
            .field("inputs", &self.inputs)
            .field("environment", &self.environment.keys())
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}
