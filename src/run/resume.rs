//! A run that goes on: from what its journal recorded, in a process of its own.

use super::opening::Reopened;
use super::{Options, Run, StartError, blocking, plan_of, services};
use crate::config::{self, Config, Diagnostics, Sources};

impl Reopened {
    /// The configuration that the run recorded, with its inputs, profile and tasks. Where files
    /// are, keys, and what the program brings along come from `sources`.
    ///
    /// # Errors
    /// Everything that is wrong with it here and now: a key that is not set, say.
    pub fn config(&self, sources: Sources) -> Result<Config, Diagnostics> {
        let created = self.created();
        let mut config = config::load_text(&created.config, &self.sources(sources))?;
        if let Some(folder) = self.dir().path().parent() {
            config.state_dir = folder.to_owned();
        }
        Ok(config)
    }

    /// The sources with what the run recorded of its own.
    #[must_use]
    pub fn sources(&self, sources: Sources) -> Sources {
        sources.of_run(self.created(), self.dir().path())
    }
}

impl Run {
    /// Goes on with a run where its journal ends; `config` is what [`Reopened::config`] gives.
    /// When this returns, `run.opened` is durable.
    ///
    /// A run that has come to its end would only come to it again: look at
    /// [`Reopened::completed`] first.
    ///
    /// # Errors
    /// When the run cannot go on; nothing but `run.opened` was appended then.
    pub async fn resume(
        reopened: Reopened,
        config: Config,
        options: Options,
    ) -> Result<Self, StartError> {
        let created = reopened.created();
        let tasks = created.tasks.iter().map(|task| task.name.to_string()).collect();
        let options = Options { tasks, keep_going: created.keep_going, ..options };
        let plan = plan_of(&config, &options)?;
        let parts = services::Parts::prepare(&config, &options).await?;
        let opening = blocking(move || reopened.into_opening()).await?;
        Self::launch(config, options, plan, parts, opening).await
    }
}
