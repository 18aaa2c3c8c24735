//! The agent: an actor with one conversation and one turn machine, which runs one step at a time.
//!
//! It owns its context. Its handler folds recorded events into the machine and starts the next step
//! as a task in a `JoinSet`. The task runs beside the mailbox and mails back the records that it
//! made; the result of an earlier step is dropped. The handler never writes the journal and never
//! waits. A decision about a long context takes long: the agent waits for a processor beside its mailbox, and
//! then decides while another thread does what its own would have done. An agent that waits for others for long gives
//! up its actor (`resting`).

mod grace;
mod leaving;
mod past;
mod resting;
mod sending;
mod summaries;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

pub use self::past::{FoldError, Folded};
use self::sending::Talk;
use self::summaries::SummaryAhead;
use tracing::{Instrument, Span};

use super::agent_steps::{self, CommandStep};
use super::compaction_step;
use super::given::Given;
use super::lost_calls::{self, Lost};
use super::mail::{AgentMsg, Caller, StepError, SupervisorMsg};
use super::record_right::RecordRight;
use super::services::Services;
use super::spans;
use super::step::{Answers, Cut, Past, SlotReturn, StepContext};
use super::summarise;
use super::summary::{NoSummary, SummaryError};
use super::work::{self, Helper, Work};
use crate::context::CompactionTrigger;
use crate::event::{Event, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::messages::MessageSent;
use crate::output::Output;
use crate::spec::sandbox::Confinement;
use crate::spec::{OnUnknown, OutputFormat};
use crate::turn::{AgentEnded, Outcome};
use crate::turn_boundary::{self, Action, Ahead, Terms};
use crate::turn_machine::Machine;

/// One agent: the part of it that never changes.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The values and handles that it shares with the run's other actors.
    pub services: Arc<Services>,
    /// Its id.
    pub id: AgentId,
    /// The task that it works for.
    pub task: Name,
    /// The right of its steps to record.
    pub right: RecordRight,
    /// The form of its task's output.
    pub form: OutputFormat,
    /// What its task is kept from.
    pub confinement: Confinement,
    /// The longest time that an attempt of its task may take, if there is one.
    pub time_limit: Option<Duration>,
    /// What its task says of calls whose outcome nobody knows.
    pub on_unknown: OnUnknown,
    /// The answer that it judges, if it makes a check.
    pub judged: Option<Output>,
}

/// The characters of a view from which on the agent waits for a processor before it decides: with fewer a
/// decision takes a few milliseconds at most.
const LONG: usize = 128 * 1024;

/// The most steps of an agent in a row that record nothing: its records, which may be of somebody else, would
/// lead nowhere.
const MOST_IDLE_STEPS: u32 = 1_000;

/// The state of an agent.
#[derive(Debug)]
pub struct State {
    machine: Machine,
    past: Past,
    talk: Option<Talk>,
    step: u64,
    /// True while a step is in progress.
    busy: bool,
    /// Number of steps since the last one that recorded anything.
    idle_steps: u32,
    /// True while that step records the agent's end. Such a step is never given up, because there
    /// might then be two ends.
    finishing: bool,
    /// True if a step was given up because it did not end within its grace period.
    gave_up: bool,
    steps: Work,
    /// The table of answers that its steps wait for.
    answers: Arc<Answers>,
    /// The summary that is written ahead of need, if there is one.
    ahead: Option<Box<SummaryAhead>>,
    /// Number of summaries written ahead so far.
    aheads: u64,
    /// The task that waits for that summary beside the steps.
    beside: Work,
    cancel: CancellationToken,
    /// Cancelled when not even a reply that is on its way is waited for.
    abandon: CancellationToken,
    /// Cancelled when the call of the model that is under way is cut, and the agent goes on.
    cut: Cut,
    /// True if the step under way calls the model.
    is_calling: bool,
    ending: Option<Ending>,
    /// True if the actor ends because all that the agent waits for comes from others.
    rests: bool,
    /// The turn with whose answer it has asked whether it may end.
    asked_to_leave: Option<u32>,
    /// True if the view was checked and repaired since it was rebuilt from records, which may be of
    /// an older version.
    looked_over: bool,
    /// The span of its steps.
    span: Span,
    /// The time of its last request, in milliseconds since the Unix epoch.
    requested_ms: Option<i64>,
    /// The right to keep a processor busy with a long context, from the end of the step that waited for it
    /// to the next decision.
    processor: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    /// The calls without a result when the last actor of this agent ended: looked up before
    /// anything else.
    lost: Vec<Lost>,
}

/// The way in which the agent must end.
#[derive(Clone, Debug)]
enum Ending {
    With(Outcome),
    Interrupted,
}

impl Actor for Agent {
    type Msg = AgentMsg;
    // Both in boxes: ractor moves them several times while it starts an actor.
    type State = Box<State>;
    type Arguments = Box<Folded>;

    async fn pre_start(
        &self,
        myself: ActorRef<AgentMsg>,
        folded: Box<Folded>,
    ) -> Result<Box<State>, ActorProcessingErr> {
        let Folded { machine, talk, past, requested_ms, lost, waited, looked_over, ending } =
            *folded;
        let definition = talk.as_ref().map(|talk| &talk.briefing.spec.name);
        let span = spans::agent(&self.services.span, &self.task, &self.id, definition);
        // The address comes before `Go`: an answer to the first step must find the agent.
        self.services.addresses.agents.insert(self.id.clone(), myself.clone());
        myself.send_message(AgentMsg::Go)?;
        let [cancel, abandon] = [(); 2].map(|()| CancellationToken::new());
        if ending.is_some() {
            cancel.cancel();
            abandon.cancel();
        }
        Ok(Box::new(State {
            machine,
            past,
            talk,
            step: 0,
            busy: false,
            idle_steps: 0,
            finishing: false,
            gave_up: false,
            steps: Work::default(),
            answers: Arc::new(Answers::new(Caller::Agent(self.id.clone()), waited)),
            ahead: None,
            aheads: 0,
            beside: Work::default(),
            cut: Cut::of(&cancel, &abandon),
            cancel,
            abandon,
            is_calling: false,
            ending: ending.map(Ending::With),
            rests: false,
            asked_to_leave: None,
            looked_over,
            span,
            requested_ms,
            processor: Arc::default(),
            lost,
        }))
    }

    async fn handle(
        &self,
        myself: ActorRef<AgentMsg>,
        message: AgentMsg,
        state: &mut Box<State>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AgentMsg::Go => self.advance(&myself, state),
            AgentMsg::StepDone { step, result } if step == state.step => {
                self.step_done(&myself, state, result)?;
            }
            AgentMsg::StepDone { .. } => {}
            AgentMsg::End(outcome) => self.end(&myself, state, Ending::With(outcome)),
            AgentMsg::Interrupt(haste) => self.interrupt(&myself, state, haste),
            AgentMsg::Reply { id, reply } => {
                // Nobody waits if the agent was restarted meanwhile: its next step asks again.
                state.answers.requests.answer(&(reply.kind(), id), *reply);
            }
            AgentMsg::Rest => self.rest(state),
            AgentMsg::Admitted(call) => state.answers.permits.admit(call),
            AgentMsg::IsUnderWay(call, provider) => {
                state.answers.permits.tell_end(&self.services, call, &provider);
            }
            AgentMsg::SummaryEnded { number, answer } => {
                state.answers.summaries.answer(&number, *answer);
            }
            AgentMsg::Compact { focus } => {
                state.machine.ask_to_compact(CompactionTrigger::Manual, focus);
            }
            AgentMsg::Message(message) => Self::receive(state, &message),
            AgentMsg::Summarised { number, answer } => {
                self.summarised(&myself, state, number, *answer);
            }
            AgentMsg::GraceOver { step } if step == state.step && !state.finishing => {
                self.grace_over(&myself, state);
            }
            AgentMsg::GraceOver { .. } => {}
        }
        Ok(())
    }
}

impl Agent {
    fn step_done(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        result: Result<Vec<SharedRecord>, StepError>,
    ) -> Result<(), ActorProcessingErr> {
        state.busy = false;
        match result {
            Ok(records) => {
                state.idle_steps = if records.is_empty() { state.idle_steps + 1 } else { 0 };
                for record in &records {
                    state.past.note(&state.machine, record);
                    state.requested_ms = requested_ms(record).or(state.requested_ms);
                    state.machine.apply(&record.event)?;
                }
                if let Some(failure) = state.answers.take_must_end() {
                    state.idle_steps = 0;
                    state.machine.must_end(failure);
                }
                if let Some(talk) = &state.talk {
                    sending::warn_of_doubt(&talk.briefing, &state.machine);
                }
            }
            Err(StepError::Cancelled) => {}
            Err(StepError::Crashed(reason)) => return Err(reason.into()),
            Err(StepError::Journal(error)) => {
                // The run stops. The writer reports its failure to the supervisor as well, but this
                // mail may arrive first.
                self.services.tell_supervisor(SupervisorMsg::JournalFailed(error));
                myself.stop(None);
                return Ok(());
            }
        }
        if state.idle_steps > MOST_IDLE_STEPS && state.ending.is_none() {
            let message =
                "its records contradict each other, so that it comes no further".to_owned();
            let failure = Failure::new(FailureKind::Internal, message);
            self.finish(myself, state, Outcome::Failed { failure, partial: None });
            return Ok(());
        }
        self.advance(myself, state);
        Ok(())
    }

    /// Starts the next step, as the records and a pending end demand.
    fn advance(&self, myself: &ActorRef<AgentMsg>, state: &mut State) {
        if state.machine.is_ended() {
            self.services.addresses.agents.remove(&self.id);
            return myself.stop(None);
        }
        match &state.ending {
            Some(Ending::Interrupted) => {
                if let Some(dropped) = Self::drop_ahead(state) {
                    let stopped = NoSummary { error: SummaryError::Stopped, ..dropped };
                    let cut = compaction_step::cut(&stopped);
                    return self.record(myself, state, vec![cut]);
                }
                self.services.addresses.agents.remove(&self.id);
                return myself.stop(None);
            }
            Some(Ending::With(outcome)) => {
                let outcome = outcome.clone();
                return self.finish(myself, state, outcome);
            }
            None if state.rests => return self.lie_down(myself),
            None => {}
        }
        if !state.lost.is_empty() {
            let lost = std::mem::take(&mut state.lost);
            let context = self.context(state);
            return self.start(myself, state, lost_calls::look_up(context, lost));
        }
        if state.processor.lock().is_some() {
            work::long(Helper::Context, || self.decide(myself, state));
            drop(state.processor.lock().take());
        } else if state.machine.view().chars() > LONG {
            self.wait_for_processor(myself, state);
        } else {
            self.decide(myself, state);
        }
    }

    /// Waits beside the mailbox until the agent may keep a processor busy.
    fn wait_for_processor(&self, myself: &ActorRef<AgentMsg>, state: &mut State) {
        let (processors, right) = (self.services.processors.clone(), state.processor.clone());
        let cancel = state.cancel.clone();
        self.start(myself, state, async move {
            tokio::select! {
                () = cancel.cancelled() => Err(StepError::Cancelled),
                processor = processors.acquire_owned() => {
                    *right.lock() = processor.ok();
                    Ok(Vec::new())
                }
            }
        });
    }

    /// Decides what the agent does next, and starts it.
    fn decide(&self, myself: &ActorRef<AgentMsg>, state: &mut State) {
        match self.next(state) {
            Action::LookedOver(events) => {
                state.looked_over = true;
                match events.is_empty() {
                    true => self.decide(myself, state),
                    false => self.record(myself, state, events),
                }
            }
            Action::Record(events) => self.record(myself, state, events),
            Action::TakeAhead => self.take_ahead(myself, state),
            Action::AwaitAhead => summarise::hurry(&self.services, &self.id),
            Action::Summarise(summarise) => self.summarise(myself, state, *summarise),
            Action::Defer => {
                state.machine.defer_summary();
                self.decide(myself, state);
            }
            Action::NothingToSummarise(requested) => {
                let failed = compaction_step::failed(&SummaryError::NothingToCover.into());
                self.record(myself, state, vec![requested.into(), failed]);
            }
            Action::Send(sending) => self.call_model(myself, state, *sending),
            Action::RunTools(calls) => {
                let context = self.context(state);
                self.start(myself, state, agent_steps::run_tools(context, calls));
            }
            Action::RunCommand(announced) => {
                let context = self.context(state);
                let spawned = state.machine.spawned();
                let (program, last) = (spawned.program.clone(), state.machine.last_output());
                let last = last.map(|last| ("LAST_OUTPUT", last));
                let given = last.or(self.judged.as_ref().map(|judged| ("OUTPUT", judged)));
                let form = self.form;
                let given =
                    given.map(|(name, output)| Given { name, output: output.clone(), form });
                let command = CommandStep { program, given, announced };
                self.start(myself, state, agent_steps::run_command(context, command));
            }
            Action::Finish(outcome) => self.conclude(myself, state, outcome),
            Action::Rest => {}
        }
    }

    /// Returns the next action of the agent, decided from its records.
    fn next(&self, state: &State) -> Action {
        let Some(Talk { briefing, .. }) = &state.talk else {
            return turn_boundary::next(&state.machine, None, Ahead::None, false);
        };
        let (compaction, transcript) =
            (&self.services.compaction, self.services.transcript(&self.id));
        let terms = Terms {
            preset: &compaction.preset,
            strategy: &compaction.strategy,
            model: &briefing.model.spec,
            capabilities: &briefing.model.capabilities(),
            tools: &briefing.tool_names,
            summariser: self.services.summariser().map(|service| &service.spec),
            transcript: &transcript.to_string_lossy(),
            results: &self.services.store.results_dir().to_string_lossy(),
            idle: sending::since(state.requested_ms),
        };
        let ahead = SummaryAhead::stage(state.ahead.as_deref());
        turn_boundary::next(&state.machine, Some(&terms), ahead, !state.looked_over)
    }

    fn record(&self, myself: &ActorRef<AgentMsg>, state: &mut State, events: Vec<Event>) {
        let context = self.context(state);
        self.start(myself, state, agent_steps::record(context, events));
    }

    fn finish(&self, myself: &ActorRef<AgentMsg>, state: &mut State, outcome: Outcome) {
        if std::mem::replace(&mut state.finishing, true) {
            return;
        }
        // The results of a step that was given up may be recorded without being known here, so its
        // open calls are not closed: a call must not have two results.
        let closings = if state.gave_up { Vec::new() } else { state.machine.closings() };
        let mut closings: Vec<_> = closings.into_iter().map(Event::from).collect();
        let mut usage = state.machine.usage();
        if let Some(dropped) = Self::drop_ahead(state) {
            usage += dropped.spent.as_ref().map(|spent| spent.usage).unwrap_or_default();
            closings.push(compaction_step::failed(&dropped));
        }
        let (turns, shortfalls) = (state.machine.replies(), state.machine.shortfalls().clone());
        let outcome = state.machine.salvaged(outcome);
        let ended = AgentEnded {
            outcome,
            turns,
            usage,
            shortfalls,
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        };
        let context = self.context(state);
        self.start(myself, state, agent_steps::finish(context, closings, ended));
    }

    fn context(&self, state: &State) -> StepContext {
        StepContext {
            services: self.services.clone(),
            surroundings: self.services.surroundings.clone(),
            task: self.task.clone(),
            confinement: self.confinement,
            time_limit: self.time_limit,
            on_unknown: self.on_unknown,
            begun: Arc::default(),
            agent: self.id.clone(),
            turn: state.machine.turn(),
            depth: state.machine.spawned().depth,
            past: state.past,
            spec: state.talk.as_ref().map(|talk| talk.briefing.spec.clone()),
            files: Arc::new(Mutex::new(state.machine.files().clone())),
            tools: state.talk.as_ref().map(|talk| talk.briefing.tools.clone()).unwrap_or_default(),
            answers: state.answers.clone(),
            right: self.right.clone(),
            slot_return: SlotReturn::default(),
            cancel: state.cancel.clone(),
            abandon: state.abandon.clone(),
        }
    }

    /// Takes in a message, and cuts the call of the model that is under way if the message says so.
    fn receive(state: &mut State, message: &MessageSent) {
        if state.machine.receive(message) && state.busy && state.is_calling {
            state.cut.call.cancel();
            state.cut.reply.cancel();
        }
    }

    /// Starts a step beside the mailbox. A panic in it is caught and mailed: the agent then fails
    /// as a whole, and its restart policy decides.
    fn start(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        body: impl Future<Output = Result<Vec<SharedRecord>, StepError>> + Send + 'static,
    ) {
        state.step += 1;
        (state.busy, state.is_calling) = (true, false);
        let (step, myself) = (state.step, myself.clone());
        let body = body.instrument(state.span.clone());
        // The work is dropped with the state and then aborts the step, also when the actor is killed. A
        // spawned task would outlive the actor.
        state.steps.start(Helper::Step, body, move |result| {
            let result = result.unwrap_or_else(|panic| Err(StepError::Crashed(panic.to_string())));
            // An agent that has ended needs no result: its successor starts from the journal.
            let _ = myself.send_message(AgentMsg::StepDone { step, result });
        });
    }
}

/// Returns the time of a request, if the record announces one.
fn requested_ms(record: &SharedRecord) -> Option<i64> {
    matches!(record.event, Event::ModelRequested(_)).then_some(record.ts_ms)
}
