//! The end of a run for the process that drove it.

use crate::event::RunCompleted;
use crate::journal::JournalError;
use crate::run_machine::Finish;

/// The end of a run for the process that drove it.
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// `run.completed` is recorded.
    Completed(RunCompleted),
    /// `run.paused` is recorded with this reason; the run can be resumed.
    Paused(String),
    /// The journal cannot be written or read; nothing after its last batch counts.
    JournalFailed(JournalError),
    /// A bug: the records contradict each other, or an actor of the run crashed again and again.
    Broken(String),
}

impl From<Finish> for RunEnd {
    fn from(finish: Finish) -> Self {
        match finish {
            Finish::Completed(completed) => Self::Completed(completed),
            Finish::Paused(reason) => Self::Paused(reason),
            Finish::DiskFull => Self::JournalFailed(JournalError::Full),
            Finish::Broken(reason) => Self::Broken(reason),
        }
    }
}

impl RunEnd {
    /// Returns the output of a task, if the run came to its end and the task completed.
    #[must_use]
    pub fn output(&self, task: &str) -> Option<&str> {
        match self {
            Self::Completed(completed) => completed.tasks.get(task)?.get("output")?.as_str(),
            Self::Paused(_) | Self::JournalFailed(_) | Self::Broken(_) => None,
        }
    }
}
