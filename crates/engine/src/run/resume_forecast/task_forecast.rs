//! The forecast of one task, in words: its fate in a resume, and why.

use serde::Serialize;

use crate::id::Name;
use crate::run_state::{RunState, TaskStatus};
use crate::show::names::Names;
use crate::show::why::column;
use crate::why::{Relation, Subject, Why};

/// The fate of a task in a resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskFate {
    /// Its result is kept, and nothing is paid for it.
    Reused,
    /// It waits for the answer of a person.
    Waits,
    /// It continues where its agents were stopped.
    GoesOn,
    /// It runs from its beginning.
    Runs,
    /// The output of another task decides.
    Depends,
    /// It fails: what it did is unknown and cannot be done again.
    Fails,
    /// It stays as it ended.
    Stays,
    /// It is no longer a task of the run.
    Removed,
}

impl TaskFate {
    /// Returns the words of the fate.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reused => "reused",
            Self::Waits => "waits",
            Self::GoesOn => "goes on",
            Self::Runs => "runs",
            Self::Depends => "depends",
            Self::Fails => "fails",
            Self::Stays => "stays",
            Self::Removed => "removed",
        }
    }
}

/// The fate of one task in a resume, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskForecast {
    /// The task.
    pub task: Name,
    /// Its fate.
    #[serde(rename = "verdict")]
    pub fate: TaskFate,
    /// The reason, for people.
    pub why: String,
    /// The thing that it waits for before it can begin or go on, in the words of `ps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// True if its result is kept and may be written to another file than before.
    #[serde(skip)]
    pub is_moved: bool,
}

impl TaskForecast {
    /// Creates the forecast of a task whose output is not written again.
    pub(super) fn new(task: &Name, (fate, why): (TaskFate, String)) -> Self {
        Self { task: task.clone(), fate, why, waiting_for: None, is_moved: false }
    }

    /// Adds what the task waits for once a process drives the run again, at the wall time `now_ms` in milliseconds since
    /// the Unix epoch.
    pub(super) fn with_wait(self, why: &Why<'_>, names: &Names, now_ms: i64) -> Self {
        let subject = Subject::Task(self.task.clone());
        // The first in a line for slots of which none is taken begins at once.
        let begins_at_once = why.first(&subject).is_some_and(|first| {
            matches!(first.relation, Relation::WaitsForSlot { ahead: 0, taken: 0, .. })
        });
        let waiting_for = column(why, &subject, names, now_ms).filter(|_| !begins_at_once);
        Self { waiting_for, ..self }
    }

    /// Returns the forecast of a task that is no longer in the configuration.
    pub(super) fn removed(state: &RunState, name: &Name, status: &TaskStatus) -> Self {
        let open = state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
        let open: Vec<_> =
            open.filter(|(_, agent)| agent.task == *name).map(|(id, _)| id).collect();
        let state = status.state.as_str();
        let becomes = match (open.as_slice(), status.state.is_end()) {
            ([], true) => format!("it stays recorded as {state}"),
            ([], false) => "it is dropped".to_owned(),
            ([one], _) => format!("agent `{one}` is cancelled"),
            ([one, _], _) => format!("agent `{one}` is cancelled with 1 child"),
            ([one, more @ ..], _) => {
                format!("agent `{one}` is cancelled with {} children", more.len())
            }
        };
        let why = format!("it is no longer in the file: {becomes}");
        Self::new(name, (TaskFate::Removed, why))
    }

    /// Returns true if the resume changes nothing of the task.
    #[must_use]
    pub fn stands(&self) -> bool {
        let is_same = matches!(self.fate, TaskFate::Reused | TaskFate::Stays | TaskFate::Removed);
        is_same && !self.is_moved
    }
}
