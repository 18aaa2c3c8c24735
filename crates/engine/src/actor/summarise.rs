//! Asks the compactor for a summary and waits for it.
//!
//! Runs in a step's task or in a task beside the steps, never in a handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ractor::ActorRef;
use tokio::sync::watch;

use super::briefing::Briefing;
use super::mail::CompactorMsg;
use super::meter::Meter;
use super::model_service::ModelService;
use super::reserving;
use super::services::Services;
use super::step::StepContext;
use super::summary::{SummaryAnswer, SummaryError, SummaryJob};
use crate::context::Spent;
use crate::context::layers::summary::SummaryRequest;
use crate::context::provider::strategy;
use crate::id::AgentId;
use crate::model::Request;
use crate::run_machine::Reservation;
use crate::spending::Rest;

/// The model that writes a summary, and the input that it reads.
#[derive(Clone, Debug)]
pub struct Source {
    /// The model.
    pub service: Arc<ModelService>,
    /// The front of the agent's own requests, if the summary is written on their prefix.
    pub prefix: Option<Arc<Briefing>>,
    /// The request for a provider that writes summaries itself; tried first.
    pub by_provider: Option<Request>,
    /// Counts what the summary costs.
    pub(super) meter: Arc<Meter>,
    /// What is reserved for it, if spending is limited.
    pub(super) reservation: Reservation,
}

impl Source {
    /// Returns the most that the summary can cost.
    pub(super) fn most(&self) -> Rest {
        reserving::most(&self.reservation)
    }

    /// Returns the cost of the summary so far, if it has cost anything.
    pub(super) fn cost(&self) -> Option<Spent> {
        self.meter.cost(&self.service.spec)
    }

    /// Adds the instructions of a hook to the request for a provider that writes summaries itself.
    pub(super) fn instruct(&mut self, instructions: &str) {
        if let Some(request) = &mut self.by_provider {
            strategy::instruct(&mut request.context, instructions);
        }
    }
}

/// A request to the compactor. Dropping it ends the wait and withdraws the request.
struct Asked {
    compactor: watch::Receiver<Option<ActorRef<CompactorMsg>>>,
    agent: AgentId,
    number: u64,
}

impl Asked {
    fn mail(&mut self, message: CompactorMsg) {
        if let Some(compactor) = self.compactor.borrow_and_update().as_ref() {
            // A compactor that is being restarted is asked again when its successor has an address.
            let _ = compactor.send_message(message);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let withdraw = CompactorMsg::Withdraw(self.agent.clone(), self.number);
        self.mail(withdraw);
    }
}

/// Asks for a summary and waits for it, also while the compactor is restarted.
///
/// # Errors
/// Returns an error if there is no summary; the view then stays as it is.
pub(super) async fn summarise(
    context: &StepContext,
    due: SummaryRequest,
    source: Source,
) -> SummaryAnswer {
    let services = &context.services;
    let number = services.calls.fetch_add(1, Ordering::Relaxed);
    let Source { service, prefix, by_provider, meter, .. } = source;
    let (agent, model) = (context.agent.clone(), service.spec.name.clone());
    let prefix = prefix.map(|briefing| (briefing.spec.name.clone(), context.depth));
    let job = SummaryJob { agent: agent.clone(), number, due, model, prefix, by_provider, meter };
    // The wait begins before the question is sent. The compactor ignores a request that it has
    // already, so it does no harm to ask its successor again.
    let answer = context.answers.summaries.expect(number);
    let compactor = services.addresses.compactor.follow();
    let mut asked = Asked { compactor, agent, number };
    let mut answer = std::pin::pin!(answer.wait());
    loop {
        asked.mail(CompactorMsg::Summarise(Box::new(job.clone())));
        tokio::select! {
            answer = &mut answer => return answer.unwrap_or(Err(SummaryError::Gone.into())),
            changed = asked.compactor.changed() => {
                changed.map_err(|_| SummaryError::Gone)?;
            }
        }
    }
}

/// Reports to the compactor that an agent now waits for the summary that it asked for ahead of
/// need.
pub(super) fn hurry(services: &Services, agent: &AgentId) {
    if let Some(compactor) = services.addresses.compactor.get() {
        // A compactor that is being restarted misses this: the summary is then only written later.
        let _ = compactor.send_message(CompactorMsg::Hurry(agent.clone()));
    }
}
