//! The handle by which a process steers a run that it drives: cancels, compacts, answers, interrupts. Programs use
//! it through a [`Client`](crate::client::Client).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use ractor::{ActorRef, ActorStatus};
use tokio::time::Instant;

use crate::actor::mail::SupervisorMsg;
use crate::actor::pulse::Busy;
use crate::actor::services::Services;
use crate::id::AgentId;
use crate::run_machine::CancelTarget;
use crate::turn::question::{AnswerOutcome, PersonsAnswer};

/// The time within which a supervisor takes in what is durable, also on a busy machine.
const TAKEN_IN: Duration = Duration::from_secs(2);

/// The pause between two tries of an answer.
const LOOK: Duration = Duration::from_millis(10);

/// A handle that steers a run. It is cheap to clone, and has no effect once the run has ended.
#[derive(Clone, Debug)]
pub struct Remote {
    supervisor: ActorRef<SupervisorMsg>,
    services: Arc<Services>,
    /// The number of the next request.
    requests: Arc<AtomicU64>,
}

impl Remote {
    pub(super) fn new(supervisor: ActorRef<SupervisorMsg>, services: Arc<Services>) -> Self {
        Self { supervisor, services, requests: Arc::default() }
    }

    pub(super) fn actors(&self) -> (ActorRef<SupervisorMsg>, Arc<Services>) {
        (self.supervisor.clone(), self.services.clone())
    }

    /// Stops the run, a task, or an agent with its children. Returns false if there is no such
    /// target.
    pub async fn cancel(&self, target: CancelTarget, reason: &str) -> bool {
        let reason = reason.to_owned();
        self.ask(|request| SupervisorMsg::Cancel { request, target, reason }).await
    }

    /// Asks an agent to compact at its next turn boundary. Returns false if the agent is not at
    /// work.
    pub async fn compact(&self, agent: AgentId, focus: Option<String>) -> bool {
        self.ask(|request| SupervisorMsg::Compact { request, agent, focus }).await
    }

    /// Answers a question of the run. Returns `None` if the supervisor is gone. Who follows the records may read a
    /// question before the supervisor has taken it in, so one that is not known is asked about again for a while.
    pub async fn answer(&self, answer: PersonsAnswer) -> Option<AnswerOutcome> {
        let begun = Instant::now();
        loop {
            let outcome = self.answer_once(answer.clone()).await;
            if outcome != Some(AnswerOutcome::Unknown) || begun.elapsed() >= TAKEN_IN {
                return outcome;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Answers a question, which may not have been taken in yet: then it is unknown.
    pub(super) async fn answer_once(&self, answer: PersonsAnswer) -> Option<AnswerOutcome> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut outcome = pin!(self.services.answer_outcomes.expect(request).wait());
        let message = SupervisorMsg::Answer { request: Some(request), answer };
        self.supervisor.send_message(message).ok()?;
        tokio::select! {
            outcome = &mut outcome => outcome,
            () = self.supervisor_gone() => outcome.now_or_never().flatten(),
        }
    }

    /// Sends a request to the supervisor and waits for its answer. Returns false if it is gone.
    async fn ask(&self, question: impl FnOnce(u64) -> SupervisorMsg) -> bool {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut answer = pin!(self.services.requests.expect(request).wait());
        if self.supervisor.send_message(question(request)).is_err() {
            return false;
        }
        let answered = tokio::select! {
            answer = &mut answer => answer,
            // A supervisor that has ended sends no answer, but it may have sent one just before: a
            // cancellation can be the last thing that it does.
            () = self.supervisor_gone() => answer.now_or_never().flatten(),
        };
        answered.unwrap_or(false)
    }

    /// Returns with what the supervisor of the run is busy, and for how long; `None` if it waits for mail.
    #[must_use]
    pub fn busy(&self) -> Option<Busy> {
        self.services.pulse.busy()
    }

    /// Returns the longest that the supervisor of the run was busy with one thing.
    #[must_use]
    pub fn longest(&self) -> Option<Busy> {
        self.services.pulse.longest()
    }

    async fn supervisor_gone(&self) {
        // The wait fails only when the actor is gone already.
        let _ = self.supervisor.wait(None).await;
    }

    /// Stops the run so that it can be resumed: nothing new begins, and running calls get the grace
    /// period to end. Returns false if the run is over.
    pub fn interrupt(&self, reason: &str) -> bool {
        let reason = reason.to_owned();
        self.supervisor.send_message(SupervisorMsg::Interrupt { reason }).is_ok()
    }

    /// Returns true if the supervisor of the run has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.supervisor.get_status(), ActorStatus::Stopping | ActorStatus::Stopped)
    }
}
