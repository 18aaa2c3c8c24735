//! The gateway of a provider: tells callers when their calls to the provider may start.
//!
//! One actor for each provider. The admission (`crate::admission`) decides; the gateway receives
//! mail, answers by mail, records events and sets the timer. Its books outlive it: a gateway that
//! was restarted knows which calls are in progress, how long all callers must pause and the state
//! of the circuit breaker. It then asks the callers which of their calls are still in progress.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::watch;
use tokio::time::Instant;

use super::mail::{AgentMsg, CallId, Caller, CompactorMsg, GatewayMsg};
use super::replies::Replies;
use super::services::Services;
use super::work::{Helper, Work};
use crate::admission::{Action, Admission, Allowance, CallEnd};
pub use crate::admission::{OnQuota, PerMinute, QuotaRule, Rules};
use crate::event::{Draft, Event};
use crate::id::Name;

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The provider.
    pub provider: Name,
    /// The rules of its calls.
    pub rules: Rules,
    /// The time until the quota is reset, if an earlier process of the run learned that it is used up.
    pub closed_for: Option<Duration>,
}

/// The state of a gateway that its successor takes over after a crash.
#[derive(Debug)]
pub struct Books {
    admission: Admission<CallId>,
    born: Instant,
}

impl Books {
    /// Makes the books of a gateway that has no calls yet.
    #[must_use]
    pub fn new(settings: &GatewaySettings) -> Arc<Mutex<Self>> {
        let mut admission = Admission::new(settings.provider.clone(), settings.rules);
        settings.closed_for.iter().for_each(|left| admission.close_for(*left));
        Arc::new(Mutex::new(Self { admission, born: Instant::now() }))
    }
}

/// The configuration of a gateway.
#[derive(Debug)]
pub struct Gateway {
    /// The provider.
    pub provider: Name,
    /// Its books, shared with its successor.
    pub books: Arc<Mutex<Books>>,
    /// The journal and the addresses of the callers.
    pub services: Arc<Services>,
}

/// The state of a gateway beside its books.
#[derive(Debug, Default)]
pub struct State {
    timer: Option<JoinHandle<Result<(), ractor::MessagingErr<GatewayMsg>>>>,
    records: Work,
}

impl Actor for Gateway {
    type Msg = GatewayMsg;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<GatewayMsg>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        self.ask_for_lost_ends();
        myself.send_message(GatewayMsg::Wake)?;
        Ok(State::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<GatewayMsg>,
        message: GatewayMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // The lock is held for the decision only, and never across an await or while mail is sent.
        let (actions, now) = {
            let mut books = self.books.lock();
            let now = books.born.elapsed();
            let actions = match message {
                GatewayMsg::Ask(call, tokens, pause) => {
                    books.admission.ask(now, call, tokens, pause)
                }
                GatewayMsg::Taken(call, allowance) => books.admission.taken(now, &call, allowance),
                GatewayMsg::Done(call, end) => books.admission.done(now, &call, end),
                GatewayMsg::Wake => books.admission.wake(now),
            };
            (actions, now)
        };
        self.perform(&myself, actions, now, state);
        Ok(())
    }
}

impl Gateway {
    /// Asks the callers of all calls in progress whether they still are: mail that reported an end
    /// may have been lost with the gateway's predecessor.
    fn ask_for_lost_ends(&self) {
        let out: Vec<CallId> = self.books.lock().admission.out().cloned().collect();
        for call in out {
            self.mail(call.clone(), |services, provider| match &call.caller {
                Caller::Agent(agent) => {
                    let message = AgentMsg::IsUnderWay(call.clone(), provider);
                    services.addresses.mail_agent(agent, message)
                }
                Caller::Compactor => services.addresses.compactor.get().is_some_and(|compactor| {
                    let message = CompactorMsg::IsUnderWay(call.clone(), provider);
                    compactor.send_message(message).is_ok()
                }),
            });
        }
    }

    /// Sends mail to a caller. A call whose caller has ended counts as ended.
    fn mail(&self, call: CallId, send: impl FnOnce(&Services, Name) -> bool) {
        if !send(&self.services, self.provider.clone())
            && let Some(gateway) =
                self.services.addresses.gateways.get(&self.provider).and_then(|a| a.get())
        {
            // The gateway sends this to itself instead of changing the books here: mail that is
            // already in its mailbox is handled first.
            let _ = gateway.send_message(GatewayMsg::Done(call, CallEnd::Abandoned));
        }
    }

    fn perform(
        &self,
        myself: &ActorRef<GatewayMsg>,
        actions: Vec<Action<CallId>>,
        now: Duration,
        state: &mut State,
    ) {
        for action in actions {
            match action {
                Action::Admit(call) => self.admit(myself, call),
                Action::Record(event) => self.record(*event, state),
            }
        }
        if let Some(timer) = state.timer.take() {
            timer.abort();
        }
        let next = self.books.lock().admission.next_wake(now);
        state.timer = next.map(|at| myself.send_after(at.saturating_sub(now), || GatewayMsg::Wake));
    }

    fn admit(&self, myself: &ActorRef<GatewayMsg>, call: CallId) {
        let is_delivered = match &call.caller {
            Caller::Agent(agent) => {
                self.services.addresses.mail_agent(agent, AgentMsg::Admitted(call.number))
            }
            Caller::Compactor => self.services.addresses.compactor.get().is_some_and(|compactor| {
                compactor.send_message(CompactorMsg::Admitted(call.number)).is_ok()
            }),
        };
        if !is_delivered {
            // The caller has ended and will not make the call: its permit is given back at once.
            let _ = myself.send_message(GatewayMsg::Done(call, CallEnd::Abandoned));
        }
    }

    /// Records an event in a task beside the mailbox: waiting for the disk here would delay every
    /// caller. Finished tasks are removed when the next event is recorded.
    fn record(&self, event: Event, state: &mut State) {
        let services = self.services.clone();
        state.records.leave(Helper::GatewayRecord, async move {
            // A journal that fails stops the run by itself.
            let _ = services.journal.append(vec![Draft::run(event)]).await;
        });
    }
}

/// The calls of one caller that wait for a permit or hold one.
#[derive(Debug)]
pub struct Permits {
    caller: Caller,
    admitted: Replies<u64, ()>,
    held: Mutex<HashSet<u64>>,
}

impl Permits {
    /// Makes an empty table for this caller.
    #[must_use]
    pub fn new(caller: Caller) -> Self {
        Self { caller, admitted: Replies::default(), held: Mutex::default() }
    }

    /// Passes on the permit for a call. If the call was dropped meanwhile, nobody waits for the
    /// permit; dropping the call has given it back already.
    pub(super) fn admit(&self, number: u64) {
        self.admitted.answer(&number, ());
    }

    /// Answers a gateway that was restarted: reports the end of a call that is no longer in
    /// progress.
    pub(super) fn tell_end(&self, services: &Services, call: CallId, provider: &Name) {
        let gateway = services.addresses.gateways.get(provider).and_then(|address| address.get());
        if let Some(gateway) = gateway.filter(|_| !self.held.lock().contains(&call.number)) {
            let _ = gateway.send_message(GatewayMsg::Done(call, CallEnd::Abandoned));
        }
    }
}

/// The permit to make one call. Dropping it gives it back.
#[derive(Debug)]
pub struct Permit<'a> {
    permits: &'a Permits,
    gateway: watch::Receiver<Option<ActorRef<GatewayMsg>>>,
    call: CallId,
    end: Option<CallEnd>,
}

impl Permit<'_> {
    /// Reports that the provider has taken the call, with what its headers tell of its limits.
    pub fn taken(&self, allowance: Allowance) {
        if let Some(gateway) = self.gateway.borrow().as_ref() {
            // A gateway that is being restarted learns it from the end of the call.
            let _ = gateway.send_message(GatewayMsg::Taken(self.call.clone(), allowance));
        }
    }

    /// Gives the permit back with the end of the call.
    pub fn finish(mut self, end: CallEnd) {
        self.end = Some(end);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.permits.held.lock().remove(&self.call.number);
        let end = self.end.take().unwrap_or(CallEnd::Abandoned);
        if let Some(gateway) = self.gateway.borrow().as_ref() {
            // A gateway that is being restarted misses this, but asks for the calls in progress
            // when it starts.
            let _ = gateway.send_message(GatewayMsg::Done(self.call.clone(), end));
        }
    }
}

/// The size of a call, and its place among those that wait.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Number of the call's first attempt, as [`first_attempt`] gives it.
    pub since: u64,
    /// An estimate of its tokens.
    pub tokens: u64,
    /// The pause of its own before it starts, after a refusal that does not make all calls wait.
    pub pause: Duration,
}

/// Returns the number of a new call.
pub fn first_attempt(services: &Services) -> u64 {
    services.calls.fetch_add(1, Ordering::Relaxed)
}

/// Waits for a permit to call a provider, without a time limit: callers select on their
/// cancellation. Returns `None` if there is no such provider.
pub async fn acquire<'a>(
    services: &Services,
    provider: &Name,
    permits: &'a Permits,
    wanted: Wanted,
) -> Option<Permit<'a>> {
    let gateway = services.addresses.gateways.get(provider)?.follow();
    let number = services.calls.fetch_add(1, Ordering::Relaxed);
    let Wanted { since, tokens, pause } = wanted;
    let call = CallId { since, number, caller: permits.caller.clone() };
    // Both come before the question is sent: a gateway that is restarted asks whether the call is
    // in progress, and the answer must not be no; and if this future is dropped, the permit's
    // `Drop` withdraws the call.
    permits.held.lock().insert(number);
    let admitted = permits.admitted.expect(number);
    let mut permit = Permit { permits, gateway, call, end: None };
    let from = Instant::now() + pause;
    let mut admitted = std::pin::pin!(admitted.wait());
    loop {
        let now = permit.gateway.borrow_and_update().clone();
        if let Some(gateway) = now {
            // A gateway that is being restarted is asked again when its successor has an address.
            let pause = from.saturating_duration_since(Instant::now());
            let _ = gateway.send_message(GatewayMsg::Ask(permit.call.clone(), tokens, pause));
        }
        tokio::select! {
            _ = &mut admitted => return Some(permit),
            changed = permit.gateway.changed() => changed.ok()?,
        }
    }
}
