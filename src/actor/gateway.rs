//! The gateway: who may call a provider now.
//!
//! One actor per provider. Owns the permits, the pause that `Retry-After` asks of everybody and
//! the breaker. Knows nothing of tasks; a waiting call holds a reply port, not a running handler.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Services;
use crate::event::{Draft, Event, GatewayBreaker, GatewayParked, GatewayResumed};
use crate::id::Name;
use crate::policy::{Breaker, BreakerState};

/// Failures in a row, over all agents, that open the breaker: more than one unlucky call and its
/// first retries, fewer than a fan-out of twenty makes in one round.
const BREAKER_THRESHOLD: u32 = 8;

/// How long an open breaker waits before it lets one probe through.
const BREAKER_COOLDOWN: Duration = Duration::from_secs(15);

/// The pause after a 429 that names none: the shortest that the official clients make after a
/// second failure.
const DEFAULT_PARK: Duration = Duration::from_secs(1);

/// The longest pause that a provider can impose on everybody: a day, the longest that a quota of
/// the public services lasts. What is beyond it is a mistake, and would overflow the clock.
const LONGEST_PARK: Duration = Duration::from_secs(24 * 60 * 60);

/// What a gateway is told.
#[derive(Debug)]
pub enum GatewayMsg {
    /// A call wants to start.
    Acquire(oneshot::Sender<Permit>),
    /// A call has ended.
    Done {
        /// How.
        end: CallEnd,
        /// Whether it was the breaker's probe.
        is_probe: bool,
    },
    /// A pause may be over.
    Wake,
}

/// How a call ended, as far as other calls are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// With a reply.
    Succeeded,
    /// The provider asked to slow down.
    RateLimited {
        /// How long, if it said.
        retry_after: Option<Duration>,
        /// What it said.
        reason: String,
    },
    /// The provider failed in a way that may concern everybody.
    Failed,
    /// The provider answered, and refused this one request.
    Refused,
    /// Nobody waits for it any more.
    Abandoned,
}

/// The right to make one call. Dropping it gives it back.
#[derive(Debug)]
pub struct Permit {
    gateway: ActorRef<GatewayMsg>,
    end: Option<CallEnd>,
    is_probe: bool,
}

impl Permit {
    /// Gives the permit back and says how the call ended.
    pub fn finish(mut self, end: CallEnd) {
        self.end = Some(end);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or(CallEnd::Abandoned);
        // A gateway that is gone has no permits left to count.
        let _ = self.gateway.send_message(GatewayMsg::Done { end, is_probe: self.is_probe });
    }
}

/// Waits for a permit of the provider's gateway; for ever if need be, so callers select on their
/// cancellation. `None`: the gateway is gone.
pub async fn acquire(services: &Services, provider: &Name) -> Option<Permit> {
    let gateway = services.addresses.gateways.get(provider).map(|entry| entry.value().clone())?;
    let (reply, permit) = oneshot::channel();
    gateway.send_message(GatewayMsg::Acquire(reply)).ok()?;
    permit.await.ok()
}

/// The settings of a gateway.
#[derive(Debug)]
pub struct Gateway {
    /// The provider.
    pub provider: Name,
    /// Calls at once.
    pub max_concurrency: usize,
    /// Whether a 429 of one call makes all wait.
    pub respect_retry_after: bool,
    /// Where events are recorded.
    pub services: Arc<Services>,
}

/// What a gateway keeps.
#[derive(Debug)]
pub struct State {
    in_use: usize,
    queue: VecDeque<oneshot::Sender<Permit>>,
    parked_until: Option<Instant>,
    breaker: Breaker,
    born: Instant,
    timer: Option<JoinHandle<Result<(), ractor::MessagingErr<GatewayMsg>>>>,
    records: JoinSet<()>,
}

impl State {
    fn now(&self) -> Duration {
        self.born.elapsed()
    }
}

impl Actor for Gateway {
    type Msg = GatewayMsg;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<GatewayMsg>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State {
            in_use: 0,
            queue: VecDeque::new(),
            parked_until: None,
            breaker: Breaker::new(BREAKER_THRESHOLD, BREAKER_COOLDOWN),
            born: Instant::now(),
            timer: None,
            records: JoinSet::new(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<GatewayMsg>,
        message: GatewayMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            GatewayMsg::Acquire(reply) => state.queue.push_back(reply),
            GatewayMsg::Done { end, is_probe } => {
                state.in_use = state.in_use.saturating_sub(1);
                self.take_note(end, is_probe, state);
            }
            GatewayMsg::Wake => {}
        }
        self.serve(&myself, state);
        Ok(())
    }
}

impl Gateway {
    fn take_note(&self, end: CallEnd, is_probe: bool, state: &mut State) {
        let now = state.now();
        let changed = match end {
            CallEnd::Succeeded | CallEnd::Refused => state.breaker.succeed(),
            CallEnd::Failed => state.breaker.fail(now),
            CallEnd::RateLimited { retry_after, reason } => {
                if self.respect_retry_after {
                    self.park(retry_after.unwrap_or(DEFAULT_PARK), reason, state);
                }
                // The provider is there: a limit is no outage.
                state.breaker.succeed()
            }
            // Another call that nobody waits for says nothing about the probe under way.
            CallEnd::Abandoned if is_probe => {
                state.breaker.abandon();
                true
            }
            CallEnd::Abandoned => false,
        };
        if changed {
            self.record_breaker(state);
        }
    }

    fn record_breaker(&self, state: &mut State) {
        let breaker = state.breaker.state();
        let event = GatewayBreaker { provider: self.provider.clone(), state: breaker };
        self.record(event.into(), state);
    }

    fn park(&self, pause: Duration, reason: String, state: &mut State) {
        let pause = pause.min(LONGEST_PARK);
        let until = Instant::now() + pause;
        if state.parked_until.is_some_and(|already| already >= until) {
            return;
        }
        state.parked_until = Some(until);
        let for_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let event = GatewayParked { provider: self.provider.clone(), for_ms, reason };
        self.record(event.into(), state);
    }

    /// Gives out permits as long as there are some and nothing forbids it.
    fn serve(&self, myself: &ActorRef<GatewayMsg>, state: &mut State) {
        if let Some(until) = state.parked_until {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Self::wake_in(left, myself, state);
            }
            state.parked_until = None;
            let event = GatewayResumed { provider: self.provider.clone() };
            self.record(event.into(), state);
        }
        while state.in_use < self.max_concurrency {
            // A caller that was cancelled while it waited has dropped its end.
            while state.queue.front().is_some_and(oneshot::Sender::is_closed) {
                state.queue.pop_front();
            }
            if state.queue.is_empty() {
                return;
            }
            let now = state.now();
            if !state.breaker.admit(now) {
                let left = state.breaker.wait(now);
                // A zero wait means that the probe is under way: its end wakes us.
                if !left.is_zero() {
                    Self::wake_in(left, myself, state);
                }
                return;
            }
            let Some(reply) = state.queue.pop_front() else { return };
            let is_probe = state.breaker.state() == BreakerState::HalfOpen;
            if is_probe {
                self.record_breaker(state);
            }
            let permit = Permit { gateway: myself.clone(), end: None, is_probe };
            state.in_use += 1;
            // If the caller left this very moment the permit comes back by its drop.
            let _ = reply.send(permit);
        }
    }

    fn wake_in(pause: Duration, myself: &ActorRef<GatewayMsg>, state: &mut State) {
        if let Some(timer) = state.timer.take() {
            timer.abort();
        }
        state.timer = Some(myself.send_after(pause, || GatewayMsg::Wake));
    }

    /// Records an event off the mailbox; the next ones reap the finished records.
    fn record(&self, event: Event, state: &mut State) {
        while state.records.try_join_next().is_some() {}
        let services = self.services.clone();
        state.records.spawn(async move {
            // A journal that fails stops the run by itself.
            let _ = services.journal.append(vec![Draft::run(event)]).await;
        });
    }
}
