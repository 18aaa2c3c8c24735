//! The last lines of the command that a task is, for one that did not end by itself: a failure has them in its record,
//! a cancellation has not.

use super::{Evidence, EvidenceFold};
use crate::id::{AgentId, Name};
use crate::turn::{Outcome, ToolFinished};
use crate::turn_machine::{RUN, command_outcome};

impl Evidence {
    /// Returns the last lines that the command of a task printed in its newest attempt, as many as a failure shows; `None`
    /// if the task runs no command, if its command ended well or if it printed nothing.
    #[must_use]
    pub fn last_lines(&self, task: &Name) -> Option<&str> {
        self.tasks.get(task)?.last_lines.as_deref()
    }
}

impl EvidenceFold {
    /// Notes the last lines of a command that has ended, if it is that of its task.
    pub(super) fn note_lines(&mut self, task: &Name, id: &AgentId, finished: &ToolFinished) {
        if finished.name != RUN || !id.is_main_of(task) {
            return;
        }
        self.of(task).evidence.last_lines = match command_outcome(finished) {
            Outcome::Failed { failure, .. } => failure.output,
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
        };
    }

    /// Forgets those of the attempt before, when the next one begins.
    pub(super) fn forget_lines(&mut self, task: &Name, id: &AgentId) {
        if let Some(gathered) = self.tasks.get_mut(task).filter(|_| id.is_main_of(task)) {
            gathered.evidence.last_lines = None;
        }
    }
}
