//! The compactor: writes summaries for all agents of a run.
//!
//! Owns the queue of requests, the workers and the breakers. It never touches a context: it gives
//! back what was written, and the agent applies it or not.

mod job;
mod queue;
mod writing;

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use self::job::{Job, NoSummary, Source, Summary, SummaryError, Written, hurry, summarise};
use self::queue::Queue;
use super::Services;
use crate::context::{CompactionBreaker, CompactionTrigger};
use crate::event::Draft;
use crate::id::{AgentId, Name};
use crate::policy::{Breaker, BreakerState};

/// The name under which the compactor's address is kept.
pub const ADDRESS: &str = "compactor";

/// What the compactor is told.
#[derive(Debug)]
pub enum CompactorMsg {
    /// Write a summary.
    Summarise(Box<Job>),
    /// An agent waits by now for what it asked for in advance.
    Hurry(AgentId),
    /// A worker has ended.
    Done {
        /// The model that was used.
        model: Name,
        /// Whether there is a summary; `None` when that says nothing of the summariser.
        success: Option<bool>,
        /// Whether it was the breaker's probe.
        is_probe: bool,
    },
}

/// The compactor's settings.
#[derive(Debug)]
pub struct Compactor {
    /// What it shares with the run's other actors.
    pub services: Arc<Services>,
}

/// What the compactor keeps.
#[derive(Debug)]
pub struct State {
    queue: Queue<Job>,
    busy: usize,
    breakers: HashMap<Name, Breaker>,
    born: Instant,
    workers: JoinSet<()>,
    records: JoinSet<()>,
}

impl Actor for Compactor {
    type Msg = CompactorMsg;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<CompactorMsg>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State {
            queue: Queue::new(),
            busy: 0,
            breakers: HashMap::new(),
            born: Instant::now(),
            workers: JoinSet::new(),
            records: JoinSet::new(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<CompactorMsg>,
        message: CompactorMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CompactorMsg::Summarise(job) => {
                let (agent, urgency) = (job.agent.clone(), job.due.urgency);
                state.queue.push(agent, urgency, job.due.fullness, *job);
            }
            CompactorMsg::Hurry(agent) => state.queue.hurry(&agent),
            CompactorMsg::Done { model, success, is_probe } => {
                state.busy = state.busy.saturating_sub(1);
                while state.workers.try_join_next().is_some() {}
                self.judge(&model, success, is_probe, state);
            }
        }
        self.start_workers(&myself, state);
        Ok(())
    }
}

impl Compactor {
    fn start_workers(&self, myself: &ActorRef<CompactorMsg>, state: &mut State) {
        while state.busy < self.services.compaction.max_concurrency {
            let Some(job) = state.queue.pop() else { return };
            if job.reply.is_closed() {
                continue;
            }
            let now = state.born.elapsed();
            let settings = &self.services.compaction;
            let breaker = state.breakers.entry(job.service.spec.name.clone());
            let breaker = breaker
                .or_insert_with(|| Breaker::new(settings.failure_threshold, settings.cooldown));
            // What a person or the agent asked for, and the last way out of a request that is too
            // long, are tried even so; their success closes the breaker.
            let is_auto = job.due.trigger == CompactionTrigger::Auto;
            if is_auto && !breaker.admit(now) {
                let _ = job.reply.send(Err(SummaryError::BreakerOpen.into()));
                continue;
            }
            let is_probe = is_auto && breaker.state() == BreakerState::HalfOpen;
            if is_probe {
                self.record(BreakerState::HalfOpen, state);
            }
            state.busy += 1;
            let (services, myself) = (self.services.clone(), myself.clone());
            state.workers.spawn(async move {
                let model = job.service.spec.name.clone();
                let success = writing::work(&services, job).await;
                let _ = myself.send_message(CompactorMsg::Done { model, success, is_probe });
            });
        }
    }

    fn judge(&self, model: &Name, success: Option<bool>, is_probe: bool, state: &mut State) {
        let now = state.born.elapsed();
        let Some(breaker) = state.breakers.get_mut(model) else { return };
        let changed = match success {
            Some(true) => breaker.succeed(),
            Some(false) => breaker.fail(now),
            None if is_probe => {
                breaker.abandon();
                true
            }
            None => false,
        };
        if changed {
            let breaker = breaker.state();
            self.record(breaker, state);
        }
    }

    /// Records the breaker's state off the mailbox.
    fn record(&self, breaker: BreakerState, state: &mut State) {
        while state.records.try_join_next().is_some() {}
        let services = self.services.clone();
        state.records.spawn(async move {
            // A journal that fails stops the run by itself.
            let event = CompactionBreaker { state: breaker };
            let _ = services.journal.append(vec![Draft::run(event)]).await;
        });
    }
}
