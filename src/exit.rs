//! The exit codes of the program, in one table.

use crate::event::{RunCompleted, RunStatus};
use crate::failure::{FailureClass, FailureKind};
use crate::run_state::failure_kinds;

/// An exit code. The numbers are a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The run, or the command, succeeded.
    Done = 0,
    /// A task failed, the named run, task or agent does not exist, or something hinders runs on this machine.
    Failed = 1,
    /// The usage or the configuration was wrong.
    Usage = 2,
    /// The provider could not be reached, or refused the key or the request.
    Provider = 3,
    /// A limit ended the run, such as the number of turns.
    Limit = 4,
    /// A task timed out.
    TimedOut = 5,
    /// The run waits for a person.
    Waiting = 6,
    /// A permission was denied.
    Denied = 7,
    /// Some tasks completed and some failed.
    Partial = 8,
    /// The program has a bug: an internal failure.
    Bug = 70,
    /// The disk or the journal failed.
    Disk = 74,
    /// Another process holds the run.
    Held = 75,
    /// Interrupted by Ctrl-C.
    Interrupted = 130,
    /// Ended by SIGTERM, or because the terminal was closed.
    Terminated = 143,
}

/// The exit codes by precedence: where several apply, the first one in this list wins.
const PRECEDENCE: [Exit; 14] = [
    Exit::Interrupted,
    Exit::Terminated,
    Exit::Disk,
    Exit::Bug,
    Exit::Held,
    Exit::Usage,
    Exit::Waiting,
    Exit::Provider,
    Exit::Limit,
    Exit::TimedOut,
    Exit::Denied,
    Exit::Partial,
    Exit::Failed,
    Exit::Done,
];

impl Exit {
    /// Returns the exit code of a run that ended, computed from its recorded result alone.
    #[must_use]
    pub fn of(completed: &RunCompleted) -> Self {
        let status = match completed.status {
            RunStatus::Completed => return Self::Done,
            RunStatus::Partial => Self::Partial,
            RunStatus::Failed | RunStatus::Cancelled => Self::Failed,
        };
        let causes = failure_kinds(completed);
        let codes: Vec<_> = causes.into_iter().map(Self::of_failure).chain([status]).collect();
        PRECEDENCE.into_iter().find(|code| codes.contains(code)).unwrap_or(Self::Failed)
    }

    /// Returns the exit code of this number.
    #[must_use]
    pub fn of_code(code: i32) -> Option<Self> {
        PRECEDENCE.into_iter().find(|exit| *exit as i32 == code)
    }

    /// Returns the one of two exit codes that comes first by precedence.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let place = |exit: Self| PRECEDENCE.iter().position(|known| *known == exit);
        if place(other) < place(self) { other } else { self }
    }

    fn of_failure(kind: FailureKind) -> Self {
        match kind.class() {
            FailureClass::Provider | FailureClass::Request => Self::Provider,
            FailureClass::Limit => Self::Limit,
            FailureClass::Time => Self::TimedOut,
            FailureClass::Denied => Self::Denied,
            FailureClass::Bug => Self::Bug,
            FailureClass::Crash | FailureClass::Work => Self::Failed,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id::Name;
    use crate::message::Usage;

    fn completed(status: RunStatus, kinds: &[&str]) -> RunCompleted {
        let ends = kinds.iter().enumerate().map(|(n, kind)| {
            let error = json!({"kind": kind, "message": "x"});
            let end = json!({"state": "failed", "error": error});
            let name = Name::new(&format!("t{n}")).expect("a name");
            (name, serde_json::from_value(end).expect("an end"))
        });
        let tasks = ends.collect();
        RunCompleted {
            status,
            tasks,
            usage: Usage::default(),
            cost_usd: None,
            shortfalls: Default::default(),
        }
    }

    #[test]
    fn the_strongest_cause_wins() {
        let code = |status, kinds: &[&str]| Exit::of(&completed(status, kinds));
        assert_eq!(code(RunStatus::Completed, &[]), Exit::Done);
        assert_eq!(code(RunStatus::Failed, &["command_failed"]), Exit::Failed);
        assert_eq!(code(RunStatus::Failed, &["command_failed", "auth"]), Exit::Provider);
        assert_eq!(code(RunStatus::Failed, &["timeout", "max_turns"]), Exit::Limit);
        assert_eq!(code(RunStatus::Partial, &["refusal"]), Exit::Partial);
        assert_eq!(code(RunStatus::Partial, &["timeout"]), Exit::TimedOut);
        assert_eq!(code(RunStatus::Failed, &["crashed"]), Exit::Failed);
    }
}
