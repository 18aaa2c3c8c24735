//! Settings of the rules by which loops are noticed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::Name;

/// What is done about an agent that goes in circles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLoop {
    /// It is told; then a turn without tools; then it hands over and ends as `no_progress`.
    #[default]
    Steps,
    /// It is told.
    Nudge,
    /// Nothing: nothing is recorded or looked for.
    Off,
}

/// The rules by which loops are noticed, for one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopSpec {
    /// What is done.
    pub on_loop: OnLoop,
    /// Number of the latest calls that are looked at.
    pub window: usize,
    /// The numbers of equal calls with equal results that lead to the three steps, ascending.
    pub repeat: [u32; 3],
    /// Rounds of one cycle of two to six calls that are noticed.
    pub cycle: u32,
    /// Returns of a file to an earlier content that are noticed.
    pub edits: u32,
    /// Turns without anything new that are noticed.
    pub stall: u32,
    /// Equal delegations with equal outcomes before one more is noticed.
    pub spawn: u32,
    /// Rounds with the same failure of a check that are noticed.
    pub rounds: u32,
    /// True if an answer that repeats a text over and over is cut.
    pub text: bool,
    /// How calls of single tools are looked at.
    #[serde(default)]
    pub tools: BTreeMap<Name, LoopTool>,
}

/// How calls of one tool are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopTool {
    /// True if its calls wait for something and are no loop, however often they are made.
    pub poll: bool,
    /// The arguments that tell one call from another; empty for all.
    pub key: Vec<String>,
}

impl Default for LoopSpec {
    fn default() -> Self {
        Self {
            on_loop: OnLoop::default(),
            window: 64,
            repeat: [4, 5, 7],
            cycle: 3,
            edits: 3,
            stall: 12,
            spawn: 2,
            rounds: 3,
            text: true,
            tools: BTreeMap::new(),
        }
    }
}

impl LoopSpec {
    /// Returns true if anything is looked for.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on_loop != OnLoop::Off
    }

    /// Returns the arguments that tell a call of this tool from another; `None` if its calls are not looked at.
    #[must_use]
    pub fn keys_of(&self, tool: &str) -> Option<&[String]> {
        match self.tools.iter().find(|(name, _)| name.as_str() == tool) {
            Some((_, LoopTool { poll: true, .. })) => None,
            Some((_, LoopTool { key, .. })) => Some(key),
            None => Some(&[]),
        }
    }
}
