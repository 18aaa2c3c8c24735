//! The pace of summaries: how full a view must be, what one must free, how often one may be asked.
//!
//! Pure. Shares are of the usable room: the window without the reply, the system prompt and tools.

use serde::{Deserialize, Serialize};

use crate::context::layers::{Surroundings, Window};

/// When summaries are written, and when no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// The share of the room from which on a summary is due, in the place of a threshold in tokens.
    pub trigger: Option<f64>,
    /// The share from which on one is written while the agent goes on; absent: never.
    pub soft_trigger: Option<f64>,
    /// The share that an edit must reach; half of it may stay as it is, newest first. Absent: all
    /// that was read is summarised.
    pub target: Option<f64>,
    /// What a summary must free, as a share of the size from which on it is due: one that frees
    /// less is none.
    pub min_headroom_gain: f64,
    /// The turns from one summary that nobody asked for to the next.
    pub summary_spacing: u32,
    /// How often in a row the view may be full again within so many turns of a summary.
    pub refill_limit: u32,
    /// What happens then.
    pub on_refill: OnRefill,
    /// How often in a row a request that was refused as too long is made smaller and sent again.
    pub reactive_retries: u32,
}

/// What happens when summaries do not help for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRefill {
    /// The view is made smaller without a model.
    Digest,
    /// The agent ends.
    Stop,
}

/// How soon a summary is wanted. A later one is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// The agent goes on meanwhile.
    Soon,
    /// The agent waits for it.
    Now,
}

impl Default for Pace {
    /// One retry and three refills as the documented designs have them, no work in advance.
    fn default() -> Self {
        Self {
            trigger: None,
            soft_trigger: None,
            target: None,
            min_headroom_gain: 0.10,
            summary_spacing: 3,
            refill_limit: 3,
            on_refill: OnRefill::Digest,
            reactive_retries: 1,
        }
    }
}

impl Pace {
    /// The shares of the documented configuration: early enough that a summary is there before it
    /// is needed, and a target so far below that one is rarely needed.
    #[must_use]
    pub fn ahead() -> Self {
        Self {
            trigger: Some(0.80),
            soft_trigger: Some(0.60),
            target: Some(0.40),
            // A summary, then half of the size, then a quarter, then an eighth.
            reactive_retries: 4,
            ..Self::default()
        }
    }

    /// The size to which a view is made smaller, in tokens, where `limit` is what it may have: half
    /// of that where no target is given, so that it is not full again at once.
    #[must_use]
    pub fn goal(&self, limit: u64, window: &Window) -> u64 {
        self.target.map_or(limit / 2, |target| share(target, window.room()))
    }

    /// The tokens of the newest messages that may stay as they are.
    pub(super) fn tail(&self, around: &Surroundings<'_>) -> u64 {
        self.target.map_or(0, |target| share(target / 2.0, around.window.room()))
    }
}

/// A share of so many tokens.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "windows are far below 2^52 tokens, and no share is negative"
)]
pub(super) fn share(share: f64, tokens: u64) -> u64 {
    (share * tokens as f64) as u64
}
