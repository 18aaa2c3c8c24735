//! The data of a summary: the request to the compactor, and its answer.

use std::sync::Arc;
use std::time::Duration;

use super::meter::Meter;
use crate::call_machine::summary::NoText;
pub use crate::call_machine::summary::Written;
use crate::context::Spent;
use crate::context::layers::summary::{SummaryRequest, Urgency};
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::model::Request;
use crate::spending::Rest;

/// A request for a summary.
#[derive(Clone, Debug)]
pub struct SummaryJob {
    /// The agent that asks.
    pub agent: AgentId,
    /// The number that the answer repeats.
    pub number: u64,
    /// The range to summarise, and how.
    pub due: SummaryRequest,
    /// The model that writes it.
    pub model: Name,
    /// The definition and the delegation depth of the agent, if the summary is written on the
    /// prefix of its requests: the messages are then sent as they are, behind the same front.
    pub prefix: Option<(Name, u32)>,
    /// The request for a provider that writes summaries itself; tried first.
    pub by_provider: Option<Request>,
    /// Counts what it costs.
    pub(super) meter: Arc<Meter>,
}

impl SummaryJob {
    /// Returns its rank in the queue; the largest is written first.
    pub(super) fn rank(&self) -> (Urgency, u64) {
        (self.due.urgency, self.due.fullness)
    }
}

/// A summary, or why there is none.
pub type SummaryAnswer = Result<Summary, NoSummary>;

/// A summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The content.
    pub written: Written,
    /// Its cost.
    pub spent: Spent,
}

/// The answer when there is no summary.
#[derive(Clone, Debug)]
pub struct NoSummary {
    /// The reason.
    pub error: SummaryError,
    /// The cost of its calls, if there were any.
    pub spent: Option<Box<Spent>>,
    /// The most that its calls can have cost, if that is known.
    pub most: Option<Box<Rest>>,
}

impl NoSummary {
    /// Returns the most that its calls may have cost beyond what is known.
    pub(super) fn unsettled(&self) -> Option<Rest> {
        let most = self.most.as_deref().filter(|_| self.error.may_have_cost())?;
        let known = self.spent.as_ref();
        let usage = known.map(|spent| spent.usage).unwrap_or_default();
        most.beyond(&usage, known.and_then(|spent| spent.cost_usd))
    }
}

impl From<SummaryError> for NoSummary {
    fn from(error: SummaryError) -> Self {
        Self { error, spent: None, most: None }
    }
}

/// The reason why there is no summary. The view stays as it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SummaryError {
    /// The circuit breaker is open: too many summaries failed in a row, and none is tried until the
    /// pause is over.
    #[error("the breaker is open: too many summaries failed in a row")]
    BreakerOpen,
    /// The model failed.
    #[error("{0}")]
    Model(String),
    /// The reply cannot be used as a summary.
    #[error("the reply is no summary: {0}")]
    Unusable(&'static str),
    /// The model has read nothing yet that could be summarised.
    #[error("there is nothing to summarise")]
    NothingToCover,
    /// The summary would make the context no smaller, or not enough.
    #[error("the summary frees too little")]
    FreesTooLittle,
    /// A hook of the user blocked the compaction.
    #[error("blocked by the pre_compact hook: {0}")]
    Blocked(String),
    /// The range that it covers has changed meanwhile.
    #[error("stale: what it covers has changed since it was asked for")]
    Stale,
    /// The agent ended before the summary was finished.
    #[error("the agent ended first")]
    TooLate,
    /// The run stopped before the summary was finished.
    #[error("the run stopped first")]
    Stopped,
    /// The summary was not finished within its time limit.
    #[error("no summary after {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The worker that wrote it crashed.
    #[error("the summary crashed ({0})")]
    Crashed(String),
    /// The compactor has no actor now.
    #[error("the compactor is restarting")]
    Gone,
    /// The journal failed.
    #[error(transparent)]
    Journal(JournalError),
    /// A budget does not hold its calls.
    #[error("{0}")]
    OverBudget(String),
}

impl SummaryError {
    /// Returns true if a call may have been made whose tokens nobody counted.
    fn may_have_cost(&self) -> bool {
        match self {
            Self::Model(_)
            | Self::TooLate
            | Self::Stopped
            | Self::Timeout(_)
            | Self::Crashed(_)
            | Self::Gone
            | Self::Journal(_) => true,
            Self::BreakerOpen
            | Self::Unusable(_)
            | Self::NothingToCover
            | Self::FreesTooLittle
            | Self::Blocked(_)
            | Self::Stale
            | Self::OverBudget(_) => false,
        }
    }
}

impl From<NoText> for SummaryError {
    fn from(none: NoText) -> Self {
        match none {
            NoText::Unusable(reason) => Self::Unusable(reason),
            NoText::FreesTooLittle => Self::FreesTooLittle,
            NoText::Model(error) => Self::Model(error),
        }
    }
}
