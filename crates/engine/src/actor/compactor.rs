//! The compactor: has summaries written for all agents of a run.
//!
//! It owns the queue of requests, the workers and the circuit breakers. It never touches a context:
//! it returns the summary, and the agent applies or drops it. Its books outlive it: a compactor
//! that was restarted knows which agents wait, its workers continue, and no summary is paid for
//! twice.

mod queue;
mod writing;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::queue::Queue;
use super::gateway::Permits;
use super::mail::{AgentMsg, Caller, CompactorMsg};
use super::services::Services;
use super::summary::{SummaryAnswer, SummaryError, SummaryJob};
use super::work::{Helper, Work};
use crate::context::{CompactionBreaker, CompactionTrigger};
use crate::event::Draft;
use crate::foreign::Panicked;
use crate::id::{AgentId, Name};
use crate::policy::{Breaker, BreakerState};

/// The key of a summary: the agent that asked for it, and the number of its request.
type Key = (AgentId, u64);

/// The state of the compactor that its successor takes over after a crash.
#[derive(Debug)]
pub struct Books {
    queue: Queue<Box<SummaryJob>>,
    under_way: HashMap<Key, UnderWay>,
    /// Results of workers that no compactor has handled yet.
    finished: Vec<Finished>,
    breakers: HashMap<Name, Breaker>,
    born: Instant,
    workers: Work,
    permits: Arc<Permits>,
}

impl Default for Books {
    fn default() -> Self {
        Self {
            queue: Queue::new(),
            under_way: HashMap::new(),
            finished: Vec::new(),
            breakers: HashMap::new(),
            born: Instant::now(),
            workers: Work::default(),
            permits: Arc::new(Permits::new(Caller::Compactor)),
        }
    }
}

/// A summary that is being written.
#[derive(Debug)]
struct UnderWay {
    model: Name,
    /// True if it is the one summary that tests a half-open breaker.
    is_probe: bool,
    worker: AbortHandle,
}

/// The result of a worker.
#[derive(Debug)]
struct Finished {
    key: Key,
    answer: SummaryAnswer,
    /// True if there is a summary; `None` if the result says nothing about the model that writes
    /// summaries.
    success: Option<bool>,
}

/// The configuration of the compactor.
#[derive(Debug)]
pub struct Compactor {
    /// The values and handles that the run's actors share.
    pub services: Arc<Services>,
    /// Its books, shared with its workers and its successor.
    pub books: Arc<Mutex<Books>>,
}

/// The state of the compactor beside its books.
#[derive(Debug, Default)]
pub struct State {
    records: Work,
}

impl Actor for Compactor {
    type Msg = CompactorMsg;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<CompactorMsg>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        // Workers may have ended while there was no compactor to receive their mail.
        myself.send_message(CompactorMsg::WorkerEnded)?;
        Ok(State::default())
    }

    async fn handle(
        &self,
        _myself: ActorRef<CompactorMsg>,
        message: CompactorMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let mut changes = Vec::new();
        {
            let mut books = self.books.lock();
            match message {
                CompactorMsg::Summarise(job) => books.ask(job),
                CompactorMsg::Withdraw(agent, number) => {
                    changes.extend(books.withdraw(&(agent, number)));
                }
                CompactorMsg::Hurry(agent) => books.queue.hurry(&agent),
                CompactorMsg::WorkerEnded => self.take_in(&mut books, &mut changes),
                CompactorMsg::Admitted(number) => books.permits.admit(number),
                CompactorMsg::IsUnderWay(call, provider) => {
                    books.permits.tell_end(&self.services, call, &provider);
                }
            }
            self.start_workers(&mut books, &mut changes);
        }
        // After the lock is released: recording needs only the state of this actor.
        changes.into_iter().for_each(|breaker| self.record(breaker, state));
        Ok(())
    }
}

impl Books {
    /// Puts a request into the queue. A request that is sent again, because the compactor crashed,
    /// keeps its one place.
    fn ask(&mut self, job: Box<SummaryJob>) {
        let key = (job.agent.clone(), job.number);
        let is_known = |waiting: &SummaryJob| waiting.agent == key.0 && waiting.number == key.1;
        if !self.under_way.contains_key(&key) && !self.queue.any(|job| is_known(job)) {
            let (agent, (urgency, fullness)) = (job.agent.clone(), job.rank());
            self.queue.push(agent, urgency, fullness, job);
        }
    }

    /// Ends a summary that nobody waits for. Returns the breaker's new state if it changed.
    fn withdraw(&mut self, key: &Key) -> Option<BreakerState> {
        self.queue.remove(|job| job.agent == key.0 && job.number == key.1);
        let under_way = self.under_way.remove(key)?;
        under_way.worker.abort();
        self.judge(&under_way, None)
    }

    /// Reports the end of a summary to the breaker of its model. Returns the breaker's new state if
    /// it changed.
    fn judge(&mut self, under_way: &UnderWay, success: Option<bool>) -> Option<BreakerState> {
        let now = self.born.elapsed();
        let breaker = self.breakers.get_mut(&under_way.model)?;
        let changed = match success {
            Some(true) => breaker.succeed(),
            Some(false) => breaker.fail(now),
            None if under_way.is_probe => {
                breaker.abandon();
                true
            }
            None => false,
        };
        changed.then(|| breaker.state())
    }
}

impl Compactor {
    fn start_workers(&self, books: &mut Books, changes: &mut Vec<BreakerState>) {
        let settings = &self.services.compaction;
        while books.under_way.len() < settings.max_concurrency {
            let Some(job) = books.queue.pop() else { return };
            let now = books.born.elapsed();
            let breaker = books.breakers.entry(job.model.clone());
            let breaker = breaker
                .or_insert_with(|| Breaker::new(settings.failure_threshold, settings.cooldown));
            // The breaker stops only automatic summaries. Those that a person or the agent asked
            // for, and those that are the last resort for a request that is too long, are tried
            // even when it is open; a success closes it.
            let is_auto = job.due.trigger == CompactionTrigger::Auto;
            if is_auto && !breaker.admit(now) {
                self.answer(&(job.agent, job.number), Err(SummaryError::BreakerOpen.into()));
                continue;
            }
            let is_probe = is_auto && breaker.state() == BreakerState::HalfOpen;
            if is_probe {
                changes.push(BreakerState::HalfOpen);
            }
            self.start_worker(books, *job, is_probe);
        }
    }

    fn start_worker(&self, books: &mut Books, job: SummaryJob, is_probe: bool) {
        let (key, model) = ((job.agent.clone(), job.number), job.model.clone());
        let (services, shelf, permits) =
            (self.services.clone(), Arc::downgrade(&self.books), books.permits.clone());
        let of_worker = key.clone();
        let writer = services.clone();
        let write = async move { writing::work(&writer, job, &permits).await };
        let worker = books.workers.start(Helper::Summary, write, move |end| {
            let crashed = |panic: Panicked| {
                (Err(SummaryError::Crashed(panic.to_string()).into()), Some(false))
            };
            let (answer, success) = end.unwrap_or_else(crashed);
            // The books are held weakly: they own the workers, and a cycle would keep both alive
            // after the run. If they are gone, the run is over and nobody wants the summary.
            let Some(books) = shelf.upgrade() else { return };
            books.lock().finished.push(Finished { key: of_worker, answer, success });
            if let Some(compactor) = services.addresses.compactor.get() {
                // A compactor that is being restarted finds the result in its books.
                let _ = compactor.send_message(CompactorMsg::WorkerEnded);
            }
        });
        books.under_way.insert(key, UnderWay { model, is_probe, worker });
    }

    /// Handles the results of workers: reports them to the breakers and answers the agents.
    fn take_in(&self, books: &mut Books, changes: &mut Vec<BreakerState>) {
        for Finished { key, answer, success } in std::mem::take(&mut books.finished) {
            if let Some(under_way) = books.under_way.remove(&key) {
                changes.extend(books.judge(&under_way, success));
                self.answer(&key, answer);
            }
        }
    }

    fn answer(&self, (agent, number): &Key, answer: SummaryAnswer) {
        let message = AgentMsg::SummaryEnded { number: *number, answer: Box::new(answer) };
        // An agent that has ended needs no answer.
        self.services.addresses.mail_agent(agent, message);
    }

    /// Records the breaker's state in a task beside the mailbox: the handler must not wait for the
    /// disk.
    fn record(&self, breaker: BreakerState, state: &mut State) {
        let services = self.services.clone();
        state.records.leave(Helper::CompactorRecord, async move {
            // A journal that fails stops the run by itself.
            let event = CompactionBreaker { state: breaker };
            let _ = services.journal.append(vec![Draft::run(event)]).await;
        });
    }
}
