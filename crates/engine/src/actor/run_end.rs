//! The end of a run for the process that drove it.

use std::borrow::Cow;
use std::path::PathBuf;

use crate::event::{RunCompleted, RunPaused};
use crate::journal::JournalError;
use crate::plan::TaskState;
use crate::run_state::RunState;
use crate::store::{self, StoreError};

/// The end of a run for the process that drove it.
///
/// ```no_run
/// # mod callsheet { pub use callsheet_engine::{actor::run_end::RunEnd, run::Run}; pub use callsheet_journal::store::StoreError; }
/// # async fn example(run: callsheet::Run) -> Result<(), callsheet::StoreError> {
/// use callsheet::RunEnd;
///
/// let end = run.wait().await;
/// match &end {
///     RunEnd::Completed(completed) => println!("{:?}", completed.record().status),
///     RunEnd::Paused(paused) => println!("paused: {}", paused.reason),
///     RunEnd::JournalFailed(error) => eprintln!("the disk failed: {error}"),
///     RunEnd::Broken(reason) => eprintln!("a bug: {reason}"),
/// }
/// if let Some(output) = end.output("review")? {
///     println!("{output}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// `run.completed` is recorded.
    Completed(Box<Completed>),
    /// `run.paused` is recorded; the run can be resumed.
    Paused(RunPaused),
    /// The journal cannot be written or read; nothing after its last batch counts.
    JournalFailed(JournalError),
    /// A bug: the records contradict each other, or an actor of the run crashed again and again.
    Broken(String),
}

/// The state and the results of a run that has come to its end.
#[derive(Clone, Debug)]
pub struct Completed {
    state: RunState,
    record: RunCompleted,
    results: PathBuf,
}

impl Completed {
    /// The end of a run with this state and this last record, whose results are in `results`.
    #[must_use]
    pub(crate) fn new(state: RunState, record: RunCompleted, results: PathBuf) -> Self {
        Self { state, record, results }
    }

    /// Returns the payload of `run.completed`. An output in it is cut after 64 KiB; see
    /// [`RunEnd::output`] for the whole.
    #[must_use]
    pub fn record(&self) -> &RunCompleted {
        &self.record
    }

    /// Returns the state of the run, its tasks and its agents.
    #[doc(hidden)]
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.state
    }

    fn output(&self, task: &str) -> Result<Option<Cow<'_, str>>, StoreError> {
        let found = self.state.tasks().find(|(name, _)| name.as_str() == task);
        let has_output = |state| matches!(state, TaskState::Completed | TaskState::Reused);
        let output = found.filter(|(_, task)| has_output(task.state));
        match output.and_then(|(_, task)| task.output.as_ref()) {
            None => Ok(None),
            Some(output) if output.stored.is_none() => Ok(Some(output.text.as_str().into())),
            Some(output) => Ok(Some(store::whole_text(&self.results, output)?.into())),
        }
    }
}

impl RunEnd {
    /// Returns the whole output of a task; `None` unless the run came to its end and the task
    /// completed. Reads a file if the output is larger than 64 KiB.
    ///
    /// # Errors
    /// Returns an error if the output is in the result store and cannot be read back.
    pub fn output(&self, task: &str) -> Result<Option<Cow<'_, str>>, StoreError> {
        match self {
            Self::Completed(completed) => completed.output(task),
            Self::Paused(_) | Self::JournalFailed(_) | Self::Broken(_) => Ok(None),
        }
    }
}
