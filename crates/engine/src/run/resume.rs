//! Resumes a run from its journal, in a new process.

use super::opening::{Opening, StoppedRun};
use super::resume_forecast::{self, TaskForecast, changed_plan};
use super::{
    Options, Run, StartError, accepted, attempts_are_whole, blocking, fork, recorded_plan, services,
};
use crate::config::{self, Config, Diagnostics, Sources};

impl StoppedRun {
    /// Loads the configuration that the run recorded, with its inputs, profile and tasks. `sources`
    /// gives the place of its files, the keys, and the models and tools of the program.
    ///
    /// # Errors
    /// Returns every mistake that it has here and now, such as a key that is not set.
    pub fn config(&self, sources: Sources) -> Result<Config, Diagnostics> {
        let created = self.created();
        let mut config = config::load_text(&created.config, &self.sources(sources))?;
        if let Some(folder) = self.recorded().place().parent() {
            config.state_dir = folder.to_owned();
        }
        Ok(config)
    }

    /// Returns what a resume would do with each task under the configuration `now` in place of
    /// `before`, which is what [`StoppedRun::config`] returns.
    ///
    /// # Errors
    /// Returns an error if the plan of `now` has no such tasks, or if a stored output is not what
    /// was recorded.
    pub fn forecast(&self, before: &Config, now: &Config) -> Result<Vec<TaskForecast>, StartError> {
        resume_forecast::accepting(&**self.recorded(), self.state(), before, now)
    }

    /// Makes the run resume with `now`. When a task's turn comes, its result is kept, or its
    /// half-done attempt continues, if it was made from the same content; otherwise the task begins
    /// anew.
    ///
    /// # Errors
    /// Returns an error if the plan of `now` has no such tasks.
    pub fn accept(self, before: &Config, now: &Config) -> Result<Self, StartError> {
        let plan = changed_plan(self.created(), before, now)?;
        Ok(self.accepting(accepted(now, &plan)))
    }

    /// Returns the sources with what the run recorded of its own.
    #[must_use]
    pub fn sources(&self, sources: Sources) -> Sources {
        sources.of_run(self.created(), &self.recorded().place())
    }
}

impl Run {
    /// Resumes a run where its journal ends; `config` is what [`StoppedRun::config`] returns. When
    /// this returns, `run.opened` is durable.
    ///
    /// A run that has ended would only end again: check [`StoppedRun::completed`] first.
    ///
    /// # Errors
    /// Returns an error if the run cannot be resumed; at most the first batch of its opening was
    /// appended then.
    pub async fn resume(
        stopped: StoppedRun,
        config: Config,
        options: Options,
    ) -> Result<Self, StartError> {
        let super::settings::Flags { keep_going, strict } = stopped.created().into();
        let options = Options { tasks: stopped.tasks(), keep_going, strict, ..options };
        let plan = recorded_plan(&config, &options)?;
        attempts_are_whole(stopped.state())?;
        let parts = services::Prepared::prepare(&config, &options).await?;
        let (tasks, grows) = (plan.tasks().to_vec(), config.grows());
        let secrets = services::redacted(&config);
        let opening = blocking(move || {
            stopped.make_results()?;
            let mut values = stopped.values(&tasks, grows)?;
            // Results of an earlier version were stored as they came.
            values.values_mut().for_each(|value| {
                secrets.redact_value(value);
            });
            let answers = fork::answers(&stopped)?;
            let mut opening = Opening { values, ..stopped.into_opening()? };
            opening.drafts.extend(answers);
            for text in opening.answers.iter_mut().filter_map(|answer| answer.text.as_mut()) {
                secrets.redact(text);
            }
            Ok::<_, StartError>(opening)
        });
        let opening = opening.await?;
        Self::launch(config, options, plan, parts, opening).await
    }
}
