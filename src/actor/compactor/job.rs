//! What the compactor is asked for and what it answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{ADDRESS, CompactorMsg};
use crate::actor::briefing::Briefing;
use crate::actor::{ModelService, Services};
use crate::context::layer::summary::SummaryRequest;
use crate::context::{Spent, strategy};
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::message::Block;
use crate::model::Request;

/// A summary that somebody waits for.
#[derive(Debug)]
pub struct Job {
    /// The agent that asks.
    pub(super) agent: AgentId,
    /// What it asks for.
    pub(super) due: SummaryRequest,
    /// Who writes it.
    pub(super) service: Arc<ModelService>,
    /// What the messages are sent under, if they are sent as they are.
    pub(super) prefix: Option<Arc<Briefing>>,
    /// The request for a provider that writes summaries by itself.
    pub(super) by_provider: Option<Request>,
    /// Where the agent waits.
    pub(super) reply: oneshot::Sender<Result<Summary, NoSummary>>,
}

/// Who writes a summary, and what it reads.
#[derive(Clone, Debug)]
pub struct Source {
    /// The model.
    pub service: Arc<ModelService>,
    /// What the agent's own requests begin with, where the summary rides on their prefix.
    pub prefix: Option<Arc<Briefing>>,
    /// The request for a provider that writes summaries by itself; tried first.
    pub by_provider: Option<Request>,
}

impl Source {
    /// Adds instructions of somebody's own for a provider that writes by itself.
    pub(in crate::actor) fn instruct(&mut self, instructions: &str) {
        if let Some(request) = &mut self.by_provider {
            strategy::instruct(&mut request.context, instructions);
        }
    }
}

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

/// Asks for a summary and waits for it.
///
/// # Errors
/// When there is none; the view then stays as it is.
pub async fn summarise(
    services: &Services,
    agent: AgentId,
    due: SummaryRequest,
    source: Source,
) -> Result<Summary, NoSummary> {
    let compactor = services.addresses.compactor.get(ADDRESS).map(|entry| entry.value().clone());
    let compactor = compactor.ok_or(SummaryError::Gone)?;
    let (reply, summary) = oneshot::channel();
    let Source { service, prefix, by_provider } = source;
    let job = Job { agent, due, service, prefix, by_provider, reply };
    let sent = compactor.send_message(CompactorMsg::Summarise(Box::new(job)));
    sent.map_err(|_| SummaryError::Gone)?;
    summary.await.unwrap_or(Err(SummaryError::Gone.into()))
}

/// Says that the agent waits by now for the summary that it asked for in advance.
pub fn hurry(services: &Services, agent: &AgentId) {
    if let Some(compactor) = services.addresses.compactor.get(ADDRESS) {
        // One that is gone has answered by that.
        let _ = compactor.send_message(CompactorMsg::Hurry(agent.clone()));
    }
}
