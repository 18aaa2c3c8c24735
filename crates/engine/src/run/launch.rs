//! Builds a run step by step, for programs that use callsheet as a library.
//!
//! Passes each name that the program gives to the configuration, which must know it, and to the
//! run, which must use it: so the program gives it once.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Options, Run, StartError, StoppedRun};
use crate::config::{self, Sources};
use crate::id::{BadName, Name};
use crate::journal::source::RecordedRun;
use crate::model::Model;
use crate::person::{Asker, Watcher};
use crate::tool::Tool;

/// Builder of a run: a configuration, and what the program provides for it.
///
/// ```
/// # mod callsheet { pub use callsheet_engine::run::Launch; pub use callsheet_models::model::{script::Script, scripted::Scripted}; }
/// use callsheet::{Launch, Script, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let agents = r#"
///     version = 1
///     [agents.greeter]
///     instructions = "You greet people."
///     [tasks.greet]
///     agent = "greeter"
///     prompt = "Greet Ada."
/// "#;
/// let script = Script::parse("[[rules]]\nsay = 'Good morning, Ada.'")?;
/// let launch = Launch::text(agents, directory.path()).model("default", Scripted::new(script))?;
/// let end = launch.start().await?.wait().await;
/// assert_eq!(end.output("greet")?.as_deref(), Some("Good morning, Ada."));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Launch {
    sources: Sources,
    text: Option<String>,
    options: Options,
}

impl Launch {
    /// Takes the configuration from a file. Reads nothing from the environment unless
    /// [`Launch::with_process_environment`] is called.
    #[must_use]
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self { sources: Sources::new(file), text: None, options: Options::default() }
    }

    /// Takes the configuration from a text, as if it were `agents.toml` in `directory`. That
    /// directory is the workspace, and the run directories are made in it.
    #[must_use]
    pub fn text(text: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self { text: Some(text.into()), ..Self::file(directory.into().join("agents.toml")) }
    }

    /// Takes keys and `CALLSHEET_*` settings from the environment variables of this process.
    #[must_use]
    pub fn with_process_environment(mut self) -> Self {
        self.sources = self.sources.with_process_environment();
        self
    }

    /// Gives an input its value.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.sources.inputs.push((name.into(), value.into()));
        self
    }

    /// Runs this task and its dependencies, instead of the tasks that the configuration names.
    #[must_use]
    pub fn task(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.sources.targets.push(name.clone());
        self.options.tasks.push(name);
        self
    }

    /// Uses `model` as the model of this name, which then needs no provider and no `[models]`
    /// section. Agents that name no model use `default`.
    ///
    /// # Errors
    /// Returns an error if `name` is not a valid name.
    pub fn model(mut self, name: &str, model: impl Model + 'static) -> Result<Self, BadName> {
        let name = Name::new(name)?;
        self.sources.custom_models.push(name.clone());
        self.options.models.insert(name, Arc::new(model));
        Ok(self)
    }

    /// Adds a tool, which agents name like a built-in one.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.sources.extra_tools.push(tool.spec().name.clone());
        self.options.tools.push(Arc::new(tool));
        self
    }

    /// Asks this person whether a call of a tool may run, where the rules of `[permissions]` ask. A run with a
    /// person stays open while nothing but people is left to wait for.
    #[must_use]
    pub fn asker(mut self, asker: impl Asker + 'static) -> Self {
        self.options.asker = Some(Arc::new(asker));
        self
    }

    /// Gives the replies of models to `watcher` while they arrive.
    #[must_use]
    pub fn watcher(mut self, watcher: impl Watcher + 'static) -> Self {
        self.options.watcher = Some(Arc::new(watcher));
        self
    }

    /// Keeps the run open while it waits for people, who answer through a client ([`Client::answer`](crate::client::Client::answer));
    /// otherwise it pauses.
    #[must_use]
    pub fn stays_open(mut self) -> Self {
        self.options.stays_open = true;
        self
    }

    /// Runs what does not depend on a failed task too.
    #[must_use]
    pub fn keep_going(mut self) -> Self {
        self.options.keep_going = true;
        self
    }

    /// Reuses the results of an earlier run for tasks that are made from the same content.
    #[must_use]
    pub fn reuse(mut self, run: impl Into<RecordedRun>) -> Self {
        self.options.reuse = Some(run.into());
        self
    }

    /// Runs commands through this program; see [`Options::wrapper`].
    #[must_use]
    pub fn wrapper(mut self, program: impl Into<PathBuf>) -> Self {
        self.options.wrapper = Some(program.into());
        self
    }

    /// Resumes a run of this configuration that was stopped; see [`Run::resume`]. The run uses the
    /// configuration that it recorded.
    ///
    /// # Errors
    /// Returns an error if the run cannot be resumed.
    pub async fn resume(self, run: StoppedRun) -> Result<Run, StartError> {
        let config = run.config(self.sources)?;
        Run::resume(run, config, self.options).await
    }

    /// Checks the configuration and starts the run; see [`Run::start`].
    ///
    /// # Errors
    /// Returns an error if the run cannot be started; nothing was spent then.
    pub async fn start(self) -> Result<Run, StartError> {
        let config = match &self.text {
            Some(text) => config::load_text(text, &self.sources)?,
            None => config::load(&self.sources)?,
        };
        Run::start(config, self.options).await
    }
}
