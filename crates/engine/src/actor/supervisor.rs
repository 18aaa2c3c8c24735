//! The supervisor: performs the actions of the run machine, and supervises the agents, the gateways
//! and the compactor.
//!
//! It reports events to the machine (durable records, mail, ended actors, time) and performs the
//! actions that come back, so no effect precedes its record. The machine decides what happens to
//! tasks and agents. The supervisor itself decides only when a crashed gateway or compactor is
//! started again, and that the run ends when it crashes too often or the journal fails.
//!
//! It never calls a model. Tasks that it starts read and write files; its handlers do not, because
//! a slow disk would then delay the whole run. One exception: the handler that starts the first
//! agent of a definition reads the descriptions of the definition's skills (`briefing.rs`).

mod evaluations;
mod outputs;
mod perform;
mod proposals;
mod resting;
mod written;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::evaluations::{Evaluations, Order};
use self::perform::Folding;
use self::resting::Resting;
use self::written::WrittenFiles;
use super::agent::Folded;
use super::compactor::{self, Compactor};
use super::gateway::{self, Gateway, GatewaySettings};
use super::mail::{AgentMsg, SupervisorMsg};
use super::pulse::Subject;
use super::record_right::RecordRight;
use super::run_end::RunEnd;
use super::services::Services;
use super::transcript_writer::Feed;
use super::work::{Helper, Work};
use crate::event::Draft;
use crate::fault;
use crate::foreign::Panicked;
use crate::id::{AgentId, Name};
use crate::journal::disk_space::DiskSpace;
use crate::journal::{stamp, track};
use crate::policy::{RestartPolicy, RestartWindow};
use crate::run_machine::{Now, RunMachine};

/// The reason that ractor gives for the end of an actor that was killed.
const KILLED: &str = "killed";

/// The configuration of a supervisor.
#[derive(Debug)]
pub struct Supervisor {
    /// The values and handles that the run's actors share.
    pub services: Arc<Services>,
    /// The settings of the gateways.
    pub gateways: Vec<GatewaySettings>,
}

/// The agents that had not ended when the last process left a run, with the places of their
/// records.
pub type UnfinishedAgents = BTreeMap<AgentId, track::ResumeData>;

/// The arguments of a supervisor.
#[derive(Debug)]
pub struct Start {
    /// The machine that decides for the run; `begin` was not called yet. In a box: it is moved several times while
    /// the actor starts.
    pub machine: Box<RunMachine>,
    /// The agents that had not ended when the last process left the run.
    pub unfinished: UnfinishedAgents,
    /// The feed of records that become durable.
    pub feed: Feed,
    /// Receives the end of the run.
    pub end: oneshot::Sender<RunEnd>,
}

/// The state of a supervisor: the machine, and handles to perform its actions by.
#[derive(Debug)]
pub struct State {
    machine: Box<RunMachine>,
    /// The time at which the machine was made: the machine counts its time from here.
    born: Instant,
    feed: Feed,
    end: Option<oneshot::Sender<RunEnd>>,
    /// Events that wait to be recorded, in the order in which they were decided. At most one change
    /// of each task and one of each agent waits here, so the queue needs no bound of its own.
    proposals: mpsc::UnboundedSender<Vec<Draft>>,
    unfinished: UnfinishedAgents,
    agents: HashMap<AgentId, ActorRef<AgentMsg>>,
    /// The agents that wait for others without an actor, or are about to.
    resting: HashMap<AgentId, Resting>,
    /// The rights of agents' steps to record, kept until the ends of the agents are recorded.
    rights: HashMap<AgentId, RecordRight>,
    agents_by_actor: HashMap<ActorId, AgentId>,
    /// The serving actors: the gateways and the compactor.
    serving: Vec<Serving>,
    /// Places in `serving`, by actor.
    serving_by_actor: HashMap<ActorId, usize>,
    folding: HashMap<AgentId, Folding>,
    evaluations: Evaluations,
    written: WrittenFiles,
    order: Order,
    /// Ends the hook of the run that is at work.
    hook: CancellationToken,
    /// The timer for the machine's next wake.
    timer: Option<(tokio::time::Duration, AbortHandle)>,
    /// Tasks that run beside the mailbox; dropping the set aborts them, so they end with the
    /// supervisor.
    work: Work,
}

impl State {
    fn now(&self) -> Now {
        Now { since: self.born.elapsed(), wall_ms: stamp::now_ms() }
    }

    /// Passes all records in the feed to the machine.
    fn take_in(&mut self) {
        while let Some(records) = self.feed.next() {
            let now = self.now();
            self.machine.committed(now, &records);
        }
    }
}

/// An actor that serves the whole run, with its books: the state that its successor takes over
/// after a crash.
#[derive(Clone, Debug)]
enum Service {
    Gateway(Name, Arc<Mutex<gateway::Books>>),
    Compactor(Arc<Mutex<compactor::Books>>),
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(provider, _) => write!(f, "the gateway of provider `{provider}`"),
            Self::Compactor(_) => f.write_str("the compactor"),
        }
    }
}

/// A serving actor and its restarts.
#[derive(Debug)]
struct Serving {
    service: Service,
    restarts: RestartWindow,
    /// Number of its restarts so far.
    count: u32,
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
        let (proposals, queue) = mpsc::unbounded_channel();
        let mut state = State {
            machine: start.machine,
            born: Instant::now(),
            feed: start.feed,
            end: Some(start.end),
            proposals,
            unfinished: start.unfinished,
            agents: HashMap::new(),
            resting: HashMap::new(),
            rights: HashMap::new(),
            agents_by_actor: HashMap::new(),
            serving: Vec::new(),
            serving_by_actor: HashMap::new(),
            folding: HashMap::new(),
            evaluations: Evaluations::new(self.services.under_way.clone()),
            written: WrittenFiles::default(),
            order: Order::default(),
            hook: CancellationToken::new(),
            timer: None,
            work: Work::default(),
        };
        let recorder = proposals::record_in_order(self.services.clone(), myself.clone(), queue);
        state.work.start(Helper::Recorder, recorder, needed(&myself, Helper::Recorder));
        let watch = tell_of_disk(self.services.journal.disk_space(), myself.clone());
        state.work.start(Helper::DiskWatch, watch, needed(&myself, Helper::DiskWatch));
        // The address is known before the first agent exists. A batch that is committed before
        // `listen` is not announced: it waits in the feed until `post_start` takes it in.
        let _ = self.services.addresses.supervisor.set(myself.clone());
        state.feed.listen(myself.clone());
        let gateways = self.gateways.iter().map(|settings| {
            Service::Gateway(settings.provider.clone(), gateway::Books::new(settings))
        });
        for service in gateways.chain([Service::Compactor(Arc::default())]) {
            let (restarts, count) = (RestartWindow::default(), 0);
            state.serving.push(Serving { service, restarts, count });
            let place = state.serving.len() - 1;
            self.start_service(&myself, &mut state, place).await?;
        }
        Ok(state)
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMsg>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        self.services.pulse.begins(Subject::Other("the beginning of the run"));
        let now = state.now();
        state.machine.begin(now);
        state.take_in();
        self.perform(&myself, state).await;
        self.services.pulse.rests();
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMsg>,
        message: SupervisorMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let subject = message.subject();
        let fault = fault::of_work(Helper::Handler, subject.work());
        self.services.pulse.begins(subject);
        if let Some(fault) = fault {
            fault.happen();
        }
        let now = state.now();
        match message {
            SupervisorMsg::News => state.take_in(),
            SupervisorMsg::Request(request) => state.machine.requested(now, *request),
            SupervisorMsg::Answer { request, mut answer } => {
                answer.text.iter_mut().for_each(|text| self.services.secrets.redact(text));
                state.machine.person_answered(now, request, answer);
            }
            SupervisorMsg::Notified => state.machine.notified(now),
            SupervisorMsg::NoticeSent { id, sent } => state.machine.notice_sent(now, &id, sent),
            SupervisorMsg::OutputChecked { task, checked } => {
                state.machine.output_checked(now, &task, checked);
            }
            SupervisorMsg::Evaluated { task, number, result } => {
                state.machine.evaluated(now, &task, number, *result);
            }
            SupervisorMsg::AnswerCompared { agent, fits } => {
                state.machine.answer_compared(now, &agent, fits);
            }
            SupervisorMsg::HookEnded(finished) => state.machine.hook_ended(now, finished),
            SupervisorMsg::Folded(agent) => self.folded(&myself, state, &agent),
            SupervisorMsg::WantsRest(agent) => Self::wants_rest(state, agent),
            SupervisorMsg::StaysUp(agent) => Self::stays_up(state, &agent),
            SupervisorMsg::StartService(place) => {
                if let Err(error) = self.start_service(&myself, state, place).await {
                    self.finish(&myself, state, RunEnd::Broken(error.to_string()));
                }
            }
            SupervisorMsg::Cancel { request, target, reason } => {
                let found = state.machine.cancel(now, &target, &reason);
                self.services.requests.answer(&request, found);
            }
            SupervisorMsg::Compact { request, agent, focus } => {
                let is_there =
                    state.agents.contains_key(&agent) || state.resting.contains_key(&agent);
                // It needs no actor for that: it compacts at its next turn boundary.
                drop(Self::mail(state, &agent, AgentMsg::Compact { focus }));
                self.services.requests.answer(&request, is_there);
            }
            SupervisorMsg::Interrupt { reason } => state.machine.interrupt(now, reason),
            SupervisorMsg::Disk(DiskSpace::Scarce) => {
                tracing::warn!("the disk is full: nothing new begins until there is room");
                state.machine.disk_full(now);
            }
            SupervisorMsg::Disk(DiskSpace::Enough) => state.machine.disk_has_space(now),
            SupervisorMsg::Wake => {
                state.timer = None;
                state.machine.wake(now);
            }
            SupervisorMsg::HelperCrashed(reason) => return Err(reason.into()),
            SupervisorMsg::JournalFailed(error) => {
                self.finish(&myself, state, RunEnd::JournalFailed(error));
            }
        }
        self.perform(&myself, state).await;
        self.services.pulse.rests();
        Ok(())
    }

    // ractor's default would stop the supervisor when any child ends, even normally.
    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMsg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        self.services.pulse.begins(Subject::Other("the end of an actor"));
        match event {
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
            SupervisionEvent::ActorTerminated(cell, left, reason) => {
                // A killed agent did not end by itself: its end counts as a crash.
                let killed = reason.filter(|reason| reason == KILLED);
                let rests = Folded::of_resting(left).filter(|_| killed.is_none());
                self.actor_gone(&myself, state, cell.get_id(), killed.map_or(Ok(rests), Err)).await;
            }
            SupervisionEvent::ActorFailed(cell, error) => {
                self.actor_gone(&myself, state, cell.get_id(), Err(error.to_string())).await;
            }
        }
        self.perform(&myself, state).await;
        self.services.pulse.rests();
        Ok(())
    }
}

impl Supervisor {
    /// Handles the end of an actor: an error means that it crashed, and what is left of an agent that the agent
    /// rests.
    async fn actor_gone(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        actor: ActorId,
        end: Result<Option<Box<Folded>>, String>,
    ) {
        let (rests, error) = match end {
            Ok(rests) => (rests, None),
            Err(error) => (None, Some(error)),
        };
        if let Some(place) = state.serving_by_actor.remove(&actor) {
            return self.service_gone(myself, state, place, error);
        }
        let Some(id) = state.agents_by_actor.remove(&actor) else { return };
        if let Some(error) = &error {
            tracing::warn!(agent = %id, error, "an agent crashed");
        }
        state.agents.remove(&id);
        self.services.addresses.agents.remove(&id);
        if let Some(folded) = rests {
            return self.rests(myself, state, id, folded).await;
        }
        state.resting.remove(&id);
        if error.is_none() {
            // It ended by itself or was interrupted, so nobody else will record its end.
            state.rights.remove(&id);
        }
        let now = state.now();
        state.machine.agent_gone(now, &id, error);
    }

    /// Handles the end of a serving actor. After a crash it is started again after a pause, unless
    /// it has crashed too often: then the run ends as broken.
    fn service_gone(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        place: usize,
        error: Option<String>,
    ) {
        let Some(error) = error else { return };
        let now = state.born.elapsed();
        let Serving { service, restarts, count } = &mut state.serving[place];
        if !restarts.admit(&RestartPolicy::default(), now) {
            let reason = format!("{service} crashed again and again: {error}");
            return self.finish(myself, state, RunEnd::Broken(reason));
        }
        *count += 1;
        tracing::error!(%service, error, restart = *count, "a serving actor crashed");
        let (pause, myself) = (RestartPolicy::pause(*count), myself.clone());
        let paused = tokio::time::sleep(pause);
        state.work.start(Helper::ServicePause, paused, move |_| {
            let _ = myself.send_message(SupervisorMsg::StartService(place));
        });
    }

    /// Ends the run for this process. Actors that still work are killed with the supervisor.
    fn finish(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State, end: RunEnd) {
        if let Some(reply) = state.end.take() {
            // The receiver may be gone: nobody may be waiting for the run.
            let _ = reply.send(end);
        }
        for actor in state.agents.values() {
            actor.kill();
        }
        myself.stop_children(None);
        myself.stop(None);
    }

    async fn start_service(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        place: usize,
    ) -> Result<(), ActorProcessingErr> {
        let (services, cell) = (self.services.clone(), myself.get_cell());
        let addresses = &self.services.addresses;
        let id = match state.serving[place].service.clone() {
            Service::Gateway(provider, books) => {
                let gateway = Gateway { provider: provider.clone(), books, services };
                let (actor, _) = Actor::spawn_linked(None, gateway, (), cell).await?;
                let id = actor.get_id();
                if let Some(address) = addresses.gateways.get(&provider) {
                    address.set(actor);
                }
                id
            }
            Service::Compactor(books) => {
                let compactor = Compactor { services, books };
                let (actor, _) = Actor::spawn_linked(None, compactor, (), cell).await?;
                let id = actor.get_id();
                addresses.compactor.set(actor);
                id
            }
        };
        state.serving_by_actor.insert(id, place);
        Ok(())
    }
}

/// Tells the supervisor that work has crashed that it cannot do without: it crashes too.
fn needed<T>(
    supervisor: &ActorRef<SupervisorMsg>,
    helper: Helper,
) -> impl FnOnce(Result<T, Panicked>) + Send + 'static {
    let supervisor = supervisor.clone();
    move |ended| {
        if let Err(panic) = ended {
            let reason = format!("its helper `{}` crashed ({panic})", helper.name());
            // A supervisor that has ended needs no helpers.
            let _ = supervisor.send_message(SupervisorMsg::HelperCrashed(reason));
        }
    }
}

/// Reports to the supervisor when the disk becomes full and when it has space again.
async fn tell_of_disk(
    mut disk_space: watch::Receiver<DiskSpace>,
    supervisor: ActorRef<SupervisorMsg>,
) {
    // The sender is dropped with the journal. A supervisor that has ended needs no report.
    while disk_space.changed().await.is_ok() {
        let now = *disk_space.borrow_and_update();
        let _ = supervisor.send_message(SupervisorMsg::Disk(now));
    }
}
