//! To whom an agent may send messages.
//!
//! Pure. It bounds what an agent does; what a person sends reaches every agent.

use serde::{Deserialize, Serialize};

/// To whom an agent may send messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// To nobody: the agent is not offered `send_message`.
    #[default]
    #[serde(rename = "none")]
    Nobody,
    /// To the agent that delegated to it, and to those to which it delegated.
    Parent,
    /// To every agent of the run.
    Run,
}

impl Reach {
    /// Returns true if the agent may send no message.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        *self == Self::Nobody
    }
}
