//! The supervisor: owns the run.
//!
//! It decides by the fold of the journal and by nothing else: what it wants to happen it proposes
//! as events; when they come back committed it takes them into the state and acts on them. So no
//! effect precedes its record, and the state is the same fold that a resume makes. It never calls
//! a model; files are touched by tasks that it starts, never by its handlers.

mod agents;
mod decide;
mod limits;
pub mod program;
mod proposals;
mod restore;
mod room;
mod settle;

pub use settle::{parse, write_output_file};

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Services;
use super::agent::AgentMsg;
use super::compactor::{self, Compactor};
use super::gateway::Gateway;
pub use super::mail::{
    CancelTarget, ChildReply, ChildResult, Delegation, Refused, RunEnd, SupervisorMsg,
};
use super::slots::Slots;
use crate::event::{Draft, Event, PauseCause, SharedRecord};
use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::journal::room::Room;
use crate::journal::track;
use crate::plan::Plan;
use crate::run_state::{Reading, RunPhase, RunState};
use crate::turn::Outcome;

/// The reason that ractor gives for the end of an actor that was killed.
const KILLED: &str = "killed";

/// What never changes about the supervisor.
#[derive(Debug)]
pub struct Supervisor {
    /// What the run's actors share.
    pub services: Arc<Services>,
    /// The tasks.
    pub plan: Plan,
    /// The gateways' settings.
    pub gateways: Vec<GatewaySettings>,
}

/// The settings of one gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The provider.
    pub provider: Name,
    /// Calls at once.
    pub max_concurrency: usize,
    /// Whether a 429 of one call makes all wait.
    pub respect_retry_after: bool,
}

/// An agent that has an actor.
#[derive(Debug)]
struct Live {
    actor: ActorRef<AgentMsg>,
}

/// What the supervisor keeps.
#[derive(Debug)]
pub struct State {
    run: RunState,
    slots: Slots<oneshot::Sender<()>>,
    /// Tasks with a transition on its way to the journal.
    proposed: HashSet<Name>,
    /// Tasks in the pause before their next attempt.
    resting: HashSet<Name>,
    /// Tasks that were cancelled one by one, and why.
    cancel_requested: HashMap<Name, String>,
    /// Agents whose end is on its way to the journal.
    ending: HashSet<AgentId>,
    /// How agents were told to end: kept until their end is recorded, for one that crashes or has
    /// no actor yet does not know it.
    condemned: HashMap<AgentId, Outcome>,
    /// What is to be recorded, in the order in which it was decided. At most one proposal a task
    /// and one an agent are open, so it needs no bound of its own.
    proposals: mpsc::UnboundedSender<Vec<Draft>>,
    waiting_children: VecDeque<(AgentId, Delegation)>,
    calls: HashMap<CallKey, AgentId>,
    ordinals: HashMap<(AgentId, Name), u32>,
    waiters: HashMap<AgentId, Vec<ChildReply>>,
    live: HashMap<AgentId, Live>,
    by_actor: HashMap<ActorId, AgentId>,
    services_by_actor: HashMap<ActorId, Service>,
    /// What templates see of the tasks that ended.
    values: serde_json::Map<String, serde_json::Value>,
    /// Tasks that are about to take an earlier result, with its key.
    reusing: HashMap<Name, String>,
    first_failed: Option<Name>,
    stopped: Option<Stop>,
    interrupted: Option<String>,
    /// The room on the disk as the journal's writer last told it.
    room: Room,
    finishing: bool,
    end: Option<oneshot::Sender<RunEnd>>,
    /// The agents that had not ended when the run was last left, until they have an actor or end.
    left: Left,
    /// When the latest record was taken in.
    heard: Instant,
    /// The timers of limits.
    clocks: JoinSet<()>,
    work: JoinSet<()>,
}

impl State {
    /// What the run's clock shows this moment: it also goes between records.
    fn open_time(&self) -> Duration {
        let since = match self.run.phase() {
            RunPhase::Open => self.heard.elapsed(),
            RunPhase::Paused | RunPhase::Completed(_) => Duration::ZERO,
        };
        self.run.reading().since(Reading::default()) + since
    }
}

/// Why the run as a whole was stopped before its end.
#[derive(Clone, Debug)]
enum Stop {
    /// A person cancelled it, or a failure did.
    Cancelled(String),
    /// It used up its time.
    TimedOut(Failure),
}

impl Stop {
    /// How the agents end that are at work.
    fn outcome(&self) -> Outcome {
        match self.clone() {
            Self::Cancelled(reason) => Outcome::Cancelled { reason },
            Self::TimedOut(failure) => Outcome::Failed { failure, partial: None },
        }
    }

    /// Why what is not at work does not begin.
    fn reason(&self) -> &str {
        match self {
            Self::Cancelled(reason) => reason,
            Self::TimedOut(failure) => &failure.message,
        }
    }
}

/// An actor that serves the run and is restarted when it crashes.
#[derive(Clone, Debug)]
enum Service {
    Gateway(GatewaySettings),
    Compactor,
}

/// The agents that have not ended.
pub type Left = BTreeMap<AgentId, track::Left>;

/// What the supervisor starts with.
#[derive(Debug)]
pub struct Start {
    /// The run so far: at least `run.created` was folded.
    pub run: RunState,
    /// The agents that were at work when the run was last left.
    pub left: Left,
    /// The outputs that templates of tasks to come may name, by task, as far as tasks have ended.
    pub values: serde_json::Map<String, serde_json::Value>,
    /// Answered when the run is over.
    pub end: oneshot::Sender<RunEnd>,
}

impl Actor for Supervisor {
    type Msg = SupervisorMsg;
    type State = State;
    type Arguments = Start;

    async fn pre_start(
        &self,
        myself: ActorRef<SupervisorMsg>,
        start: Start,
    ) -> Result<State, ActorProcessingErr> {
        let limits = &self.services.limits;
        let (proposals, queue) = mpsc::unbounded_channel();
        let mut state = State {
            run: start.run,
            slots: Slots::new(limits.max_concurrency, limits.max_children),
            proposed: HashSet::new(),
            resting: HashSet::new(),
            cancel_requested: HashMap::new(),
            ending: HashSet::new(),
            condemned: HashMap::new(),
            proposals,
            waiting_children: VecDeque::new(),
            calls: HashMap::new(),
            ordinals: HashMap::new(),
            waiters: HashMap::new(),
            live: HashMap::new(),
            by_actor: HashMap::new(),
            services_by_actor: HashMap::new(),
            values: start.values,
            reusing: HashMap::new(),
            first_failed: None,
            stopped: None,
            interrupted: None,
            room: Room::Enough,
            finishing: false,
            end: Some(start.end),
            left: start.left,
            heard: Instant::now(),
            clocks: JoinSet::new(),
            work: JoinSet::new(),
        };
        state.work.spawn(proposals::record_in_order(self.services.clone(), myself.clone(), queue));
        state.work.spawn(room::tell(self.services.journal.room(), myself.clone()));
        let _ = self.services.addresses.supervisor.set(myself.clone());
        for gateway in &self.gateways {
            self.start_service(&myself, &mut state, Service::Gateway(gateway.clone())).await?;
        }
        self.start_service(&myself, &mut state, Service::Compactor).await?;
        Ok(state)
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMsg>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        self.take_up(&myself, state).await;
        self.decide(&myself, state);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMsg>,
        message: SupervisorMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        while state.work.try_join_next().is_some() {}
        while state.clocks.try_join_next().is_some() {}
        match message {
            SupervisorMsg::Committed(records, _permit) => {
                for record in &records {
                    self.committed(&myself, state, record).await;
                }
                // Replies change the ledger only; nothing in the plan follows from them.
                let replied =
                    |record: &SharedRecord| matches!(record.event, Event::ModelResponded(_));
                if records.iter().all(replied) {
                    return Ok(());
                }
            }
            SupervisorMsg::Delegate(delegation) => self.delegate(state, delegation),
            SupervisorMsg::TakeSlot { agent, reply } => self.take_slot(state, agent, reply),
            SupervisorMsg::Settled { task, result } => {
                self.settled(state, &task, result);
            }
            SupervisorMsg::RetryNow(task) => {
                state.resting.remove(&task);
            }
            SupervisorMsg::TaskDeadline { task, attempt } => {
                self.task_deadline(state, &task, attempt);
            }
            SupervisorMsg::RunDeadline => self.run_deadline(state),
            SupervisorMsg::Rebuilt { agent, records } => {
                self.rebuilt(&myself, state, agent, records).await;
            }
            SupervisorMsg::Cancel { target, reason, reply } => {
                let found = self.cancel(state, &target, &reason);
                let _ = reply.send(found);
            }
            SupervisorMsg::Compact { agent, focus, reply } => {
                let live = state.live.get(&agent);
                let sent = live.map(|live| live.actor.send_message(AgentMsg::Compact { focus }));
                let _ = reply.send(matches!(sent, Some(Ok(()))));
            }
            SupervisorMsg::Interrupt { reason } => self.interrupt(&myself, state, reason),
            SupervisorMsg::Room(room) => self.room_changed(&myself, state, room),
            SupervisorMsg::PauseOverdue => self.pause_overdue(&myself, state),
            SupervisorMsg::JournalFailed(error) => {
                self.finish(&myself, state, RunEnd::JournalFailed(error));
            }
        }
        self.decide(&myself, state);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMsg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                // A kill is no end of one's own: it is treated as a crash.
                let killed = reason.filter(|reason| reason == KILLED);
                self.gone(&myself, state, cell.get_id(), killed).await;
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                self.gone(&myself, state, cell.get_id(), Some(error.to_string())).await;
            }
        }
        self.decide(&myself, state);
        Ok(())
    }
}

impl Supervisor {
    /// Takes a committed record in and acts on it.
    async fn committed(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        record: &SharedRecord,
    ) {
        if record.seq <= state.run.last_seq() {
            return;
        }
        if let Err(error) = state.run.apply(record) {
            return self.finish(myself, state, RunEnd::Broken(error.to_string()));
        }
        state.heard = Instant::now();
        if let (Some(task), None) = (&record.task, &record.agent) {
            state.proposed.remove(task);
            self.task_changed(myself, state, task, &record.event);
            if let Event::TaskStarted(_) = record.event {
                self.go_on_with(myself, state, task).await;
            }
        }
        match (&record.agent, &record.event) {
            (Some(agent), Event::AgentSpawned(_)) => {
                self.spawn(myself, state, agent, vec![record.clone()].into()).await;
            }
            (Some(agent), Event::AgentRestarted(restarted)) => {
                self.rebuild(myself, state, agent, restarted.restart);
            }
            (Some(agent), Event::AgentEnded(ended)) => {
                self.agent_ended(myself, state, agent, ended);
            }
            (None, Event::RunCompleted(completed)) => {
                self.finish(myself, state, RunEnd::Completed(completed.clone()));
            }
            (None, Event::RunPaused(paused)) => match paused.cause {
                PauseCause::Interrupted => {
                    self.finish(myself, state, RunEnd::Paused(paused.reason.clone()));
                }
                PauseCause::DiskFull => Self::stop_clocks(state),
            },
            (None, Event::RunOpened(_)) => self.opened(myself, state),
            _ => {}
        }
    }

    /// Has events recorded, after all that was proposed before; they come back by
    /// [`SupervisorMsg::Committed`].
    fn propose(&self, state: &mut State, drafts: Vec<Draft>) {
        // The other end lives as long as the state: it only stops when the journal has failed.
        let _ = state.proposals.send(drafts);
    }

    /// Mails a message to itself later; the timer ends with the supervisor.
    fn later(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        pause: Duration,
        message: SupervisorMsg,
    ) {
        mail_after(&mut state.work, myself, pause, message);
    }

    /// Ends the run for this process. What is still at work is killed with the supervisor.
    fn finish(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State, end: RunEnd) {
        if let Some(reply) = state.end.take() {
            let _ = reply.send(end);
        }
        for live in state.live.values() {
            live.actor.kill();
        }
        myself.stop_children(None);
        myself.stop(None);
    }

    async fn start_service(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        service: Service,
    ) -> Result<(), ActorProcessingErr> {
        let (services, cell) = (self.services.clone(), myself.get_cell());
        let addresses = &self.services.addresses;
        let id = match &service {
            Service::Gateway(settings) => {
                let gateway = Gateway {
                    provider: settings.provider.clone(),
                    max_concurrency: settings.max_concurrency.max(1),
                    respect_retry_after: settings.respect_retry_after,
                    services,
                };
                let (actor, _) = Actor::spawn_linked(None, gateway, (), cell).await?;
                let id = actor.get_id();
                addresses.gateways.insert(settings.provider.clone(), actor);
                id
            }
            Service::Compactor => {
                let compactor = Compactor { services };
                let (actor, _) = Actor::spawn_linked(None, compactor, (), cell).await?;
                let id = actor.get_id();
                addresses.compactor.insert(compactor::ADDRESS, actor);
                id
            }
        };
        state.services_by_actor.insert(id, service);
        Ok(())
    }
}

/// Mails a message to a supervisor later; the timer ends with the set that it is in.
fn mail_after(
    timers: &mut JoinSet<()>,
    to: &ActorRef<SupervisorMsg>,
    pause: Duration,
    message: SupervisorMsg,
) {
    let to = to.clone();
    timers.spawn(async move {
        tokio::time::sleep(pause).await;
        // One that is gone needs no mail.
        let _ = to.send_message(message);
    });
}
