//! What the end of a call says of loops, kept while other calls of its turn are open.

use crate::own_tool::OwnCall;
use crate::turn::{Prints, ToolFinished, ToolStatus};

/// What is known of a call for the fold of loops, while calls of its turn are open.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) prints: Prints,
    pub(super) is_error: bool,
    /// True if a person answered the agent.
    pub(super) by_person: bool,
}

impl Facts {
    /// Takes the facts from the end of a call; `None` if it is not looked at.
    pub(super) fn of(finished: &ToolFinished, own: Option<&OwnCall>) -> Option<Self> {
        let is_error = finished.status != ToolStatus::Ok;
        let by_person = !is_error && matches!(own, Some(OwnCall::AskPerson(_)));
        finished.prints.map(|prints| Self { prints, is_error, by_person })
    }
}
