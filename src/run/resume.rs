//! A run that goes on: from what its journal recorded, in a process of its own.

use super::opening::{Opening, StoppedRun};
use super::outlook::{self, Prospect, changed_plan};
use super::{Options, Run, StartError, accepted, blocking, fork, plan_of, services};
use crate::config::{self, Config, Diagnostics, Sources};
use crate::journal::results;

impl StoppedRun {
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

    /// What becomes of each task if the run goes on with `now` in place of `before`, which is what
    /// [`StoppedRun::config`] gives.
    ///
    /// # Errors
    /// When the plan of `now` has no such tasks, or a stored output is not what was recorded.
    pub fn outlook(&self, before: &Config, now: &Config) -> Result<Vec<Prospect>, StartError> {
        outlook::accepting(self.dir(), self.state(), before, now)
    }

    /// Lets the run go on with `now`: when it is a task's turn, its result stands if it was made from
    /// the same content, and an attempt that was under way goes on if it was; else it begins anew.
    ///
    /// # Errors
    /// As [`StoppedRun::outlook`].
    pub fn accept(self, before: &Config, now: &Config) -> Result<Self, StartError> {
        let plan = changed_plan(self.created(), before, now)?;
        Ok(self.accepting(accepted(now, &plan)))
    }

    /// The sources with what the run recorded of its own.
    #[must_use]
    pub fn sources(&self, sources: Sources) -> Sources {
        sources.of_run(self.created(), self.dir().path())
    }
}

impl Run {
    /// Goes on with a run where its journal ends; `config` is what [`StoppedRun::config`] gives.
    /// When this returns, `run.opened` is durable.
    ///
    /// A run that has come to its end would only come to it again: look at
    /// [`StoppedRun::completed`] first.
    ///
    /// # Errors
    /// When the run cannot go on; nothing but `run.opened` was appended then.
    pub async fn resume(
        stopped: StoppedRun,
        config: Config,
        options: Options,
    ) -> Result<Self, StartError> {
        let (tasks, keep_going) = (stopped.tasks(), stopped.created().keep_going);
        let options = Options { tasks, keep_going, ..options };
        let plan = plan_of(&config, &options)?;
        let parts = services::Prepared::prepare(&config, &options).await?;
        let tasks = plan.tasks().to_vec();
        let opening = blocking(move || {
            if !results::has_folder(stopped.dir())? {
                stopped.dir().make_results()?;
            }
            let values = stopped.values(&tasks)?;
            let answers = fork::answers(&stopped)?;
            let mut opening = Opening { values, ..stopped.into_opening()? };
            opening.drafts.extend(answers);
            Ok::<_, StartError>(opening)
        });
        let opening = opening.await?;
        Self::launch(config, options, plan, parts, opening).await
    }
}
