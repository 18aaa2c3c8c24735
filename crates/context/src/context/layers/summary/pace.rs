//! The pace of summaries: how full a view must be, how much a summary must free, how often one may
//! come.
//!
//! Pure. Shares are of the usable room: the window less the reply, the system prompt and the tools.

use serde::{Deserialize, Serialize};

use crate::context::layers::{Surroundings, Window};

/// Conditions for writing summaries and for giving up on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Share of the room above which a summary is due, in place of a threshold in tokens.
    pub trigger: Option<f64>,
    /// Share above which one is written while the agent continues; absent: never.
    pub soft_trigger: Option<f64>,
    /// Share that an edit must reach; the newest messages up to half of it may stay as they are.
    /// Absent: everything that the model has read is summarised.
    pub target: Option<f64>,
    /// Number of the newest messages that stay beside a summary which nobody asked for, as long as they take at
    /// most half of the size above which one is due. Messages of one exchange stay together.
    pub summary_tail: u64,
    /// Least gain of a summary, as a share of the size above which it is due: a summary that frees
    /// less does not count.
    pub min_headroom_gain: f64,
    /// Least number of turns between two summaries that nobody asked for.
    pub summary_spacing: u32,
    /// Most times in a row that the view may be full again within that many turns of a summary.
    pub refill_limit: u32,
    /// Reaction when that limit is reached.
    pub on_refill: OnRefill,
    /// Most times in a row that a request refused as too long is made smaller and sent again.
    pub reactive_retries: u32,
}

/// Reaction when summaries do not help for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRefill {
    /// The view is made smaller without a model.
    Digest,
    /// The agent ends.
    Stop,
}

/// Urgency of a summary. A later value is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// The agent continues in the meantime.
    Soon,
    /// The agent waits for the summary.
    Now,
}

impl Default for Pace {
    /// Returns one retry and three refills, as in the documented designs, and no work in advance.
    fn default() -> Self {
        Self {
            trigger: None,
            soft_trigger: None,
            target: None,
            summary_tail: 0,
            min_headroom_gain: 0.10,
            summary_spacing: 3,
            refill_limit: 3,
            on_refill: OnRefill::Digest,
            reactive_retries: 1,
        }
    }
}

impl Pace {
    /// Returns the shares of the documented configuration: a soft trigger early enough that a
    /// summary is ready before it is needed, and a target so low that one is rarely needed.
    #[must_use]
    pub fn ahead() -> Self {
        Self {
            trigger: Some(0.80),
            soft_trigger: Some(0.60),
            target: Some(0.40),
            // Attempts in order: a summary, then half of the size, then a quarter, then an eighth.
            reactive_retries: 4,
            ..Self::default()
        }
    }

    /// Returns the size in tokens to which a view is made smaller: the target, or half of `limit`
    /// where there is no target, so that the view is not full again at once.
    #[must_use]
    pub fn goal(&self, limit: u64, window: &Window) -> u64 {
        self.target.map_or(limit / 2, |target| share(target, window.free_tokens()))
    }

    /// Returns the tokens of the newest messages that may stay as they are.
    pub(super) fn tail(&self, around: &Surroundings<'_>) -> u64 {
        self.target.map_or(0, |target| share(target / 2.0, around.window.free_tokens()))
    }
}

/// Returns a share of this many tokens.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "windows are far below 2^52 tokens, and no share is negative"
)]
pub(super) fn share(share: f64, tokens: u64) -> u64 {
    (share * tokens as f64) as u64
}
