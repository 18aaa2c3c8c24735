//! Summaries: what the compactor is asked for and what it answers. Plain data.

use std::time::Duration;

use crate::context::Spent;
use crate::context::layers::summary::{SummaryRequest, Urgency};
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::message::Block;
use crate::model::Request;

/// A summary that an agent asks for.
#[derive(Clone, Debug)]
pub struct SummaryJob {
    /// The agent.
    pub agent: AgentId,
    /// The number by which the answer is known.
    pub number: u64,
    /// What is asked for.
    pub due: SummaryRequest,
    /// The model that writes it.
    pub model: Name,
    /// The definition and the delegation depth of the agent on whose requests the messages ride, if
    /// they are sent as they are.
    pub prefix: Option<(Name, u32)>,
    /// The request for a provider that writes summaries by itself; tried first.
    pub by_provider: Option<Request>,
}

impl SummaryJob {
    /// Its place among those that wait.
    pub(super) fn rank(&self) -> (Urgency, u64) {
        (self.due.urgency, self.due.fullness)
    }
}

/// A summary, or why there is none.
pub type SummaryAnswer = Result<Summary, NoSummary>;

/// A summary as it came.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// A text, by a prompt of ours.
    Text(String),
    /// A block of the provider's own, which stands in the view as it is.
    Block {
        /// The block.
        summary: Block,
        /// What it says.
        text: String,
    },
}

impl Written {
    /// What it says.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Block { text, .. } => text,
        }
    }
}

/// A summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What was written.
    pub written: Written,
    /// What it cost.
    pub spent: Spent,
}

/// No summary.
#[derive(Clone, Debug)]
pub struct NoSummary {
    /// Why.
    pub error: SummaryError,
    /// What it cost all the same, if a model replied.
    pub spent: Option<Spent>,
}

impl From<SummaryError> for NoSummary {
    fn from(error: SummaryError) -> Self {
        Self { error, spent: None }
    }
}

/// Why there is no summary. The view stays as it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SummaryError {
    /// Too many failed in a row; nothing is tried until the pause is over.
    #[error("the breaker is open: too many summaries failed in a row")]
    BreakerOpen,
    /// The model failed.
    #[error("{0}")]
    Model(String),
    /// The reply is no summary.
    #[error("the reply is no summary: {0}")]
    Unusable(&'static str),
    /// The model has read nothing yet that could be summarised.
    #[error("there is nothing to summarise")]
    NothingToCover,
    /// It would make the context no smaller, or by too little.
    #[error("the summary frees too little")]
    FreesTooLittle,
    /// A hook of the user's own said no.
    #[error("blocked by the pre_compact hook: {0}")]
    Blocked(String),
    /// What it was about has changed meanwhile.
    #[error("stale: what it covers has changed since it was asked for")]
    Stale,
    /// The agent ended before it was there.
    #[error("the agent ended first")]
    TooLate,
    /// It took too long.
    #[error("no summary after {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The worker crashed.
    #[error("the summary crashed ({0})")]
    Crashed(String),
    /// The compactor is not there.
    #[error("the compactor is restarting")]
    Gone,
    /// The journal failed.
    #[error(transparent)]
    Journal(JournalError),
}
