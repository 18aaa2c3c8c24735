//! The agent: one conversation, one turn machine, one step at a time.
//!
//! Owns its context. The handler folds recorded events and starts the next step in a `JoinSet`;
//! the step works off the mailbox and mails back what it recorded. A result of an earlier step is
//! dropped. The agent never writes the journal from its handler and never blocks its mailbox.

mod past;
mod sending;
mod summaries;

use std::sync::Arc;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::past::{FoldError, Folded};
use self::sending::Talk;
use self::summaries::SummaryAhead;
use super::agent_steps;
use super::compaction_step;
use super::lost_calls::{self, Lost};
use super::mail::{AgentMsg, Caller, StepError, SupervisorMsg};
use super::panic::panic_text;
use super::record_right::RecordRight;
use super::services::Services;
use super::step::{Answers, Past, StepContext};
use super::summarise;
use super::summary::SummaryError;
use crate::context::CompactionTrigger;
use crate::event::{Event, SharedRecord};
use crate::id::{AgentId, Name};
use crate::turn::{AgentEnded, Outcome};
use crate::turn_boundary::{self, Action, Ahead, Terms};
use crate::turn_machine::Machine;

/// One agent at work: what never changes about it.
#[derive(Clone, Debug)]
pub struct Agent {
    /// What it shares with the run's other actors.
    pub services: Arc<Services>,
    /// Its id.
    pub id: AgentId,
    /// The task that it works for.
    pub task: Name,
    /// The right of its steps to record.
    pub right: RecordRight,
}

/// What an agent keeps.
#[derive(Debug)]
pub struct State {
    machine: Machine,
    past: Past,
    talk: Option<Talk>,
    step: u64,
    /// Whether a step is under way.
    busy: bool,
    /// Whether that step records the end: it is never given up, or there might be two ends.
    finishing: bool,
    /// Whether a step was given up because it did not end within its grace.
    gave_up: bool,
    steps: JoinSet<()>,
    /// The answers that its steps wait for.
    answers: Arc<Answers>,
    /// The summary that is written ahead, if one is.
    ahead: Option<SummaryAhead>,
    /// How many were.
    aheads: u64,
    /// What waits for it beside the steps.
    beside: JoinSet<()>,
    cancel: CancellationToken,
    ending: Option<Ending>,
    /// Whether the view was looked over since it was rebuilt from records of whatever version.
    looked_over: bool,
    /// When its last request was made, in milliseconds since the Unix epoch.
    requested_ms: Option<i64>,
    /// The calls that had no result when it was lost: looked up before all else.
    lost: Vec<Lost>,
}

/// How the agent was told to end.
#[derive(Clone, Debug)]
enum Ending {
    With(Outcome),
    Interrupted,
}

impl Actor for Agent {
    type Msg = AgentMsg;
    type State = State;
    type Arguments = Folded;

    async fn pre_start(
        &self,
        myself: ActorRef<AgentMsg>,
        folded: Folded,
    ) -> Result<State, ActorProcessingErr> {
        let Folded { machine, talk, past, requested_ms, lost } = folded;
        self.services.addresses.agents.insert(self.id.clone(), myself.clone());
        myself.send_message(AgentMsg::Go)?;
        Ok(State {
            machine,
            past,
            talk,
            step: 0,
            busy: false,
            finishing: false,
            gave_up: false,
            steps: JoinSet::new(),
            answers: Arc::new(Answers::new(Caller::Agent(self.id.clone()))),
            ahead: None,
            aheads: 0,
            beside: JoinSet::new(),
            cancel: CancellationToken::new(),
            ending: None,
            looked_over: false,
            requested_ms,
            lost,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<AgentMsg>,
        message: AgentMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AgentMsg::Go => self.advance(&myself, state),
            AgentMsg::StepDone { step, result } if step == state.step => {
                self.step_done(&myself, state, result)?;
            }
            AgentMsg::StepDone { .. } => {}
            AgentMsg::End(outcome) => self.end(&myself, state, Ending::With(outcome)),
            AgentMsg::Interrupt => self.end(&myself, state, Ending::Interrupted),
            AgentMsg::ChildEnded { call, answer } => {
                // An agent that was restarted meanwhile asks again.
                state.answers.children.answer(&call, answer);
            }
            AgentMsg::SlotGranted => drop(state.answers.slot.answer(&(), ())),
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
            AgentMsg::Summarised { number, answer } => {
                self.summarised(&myself, state, number, *answer);
            }
            AgentMsg::GraceOver { step } if step == state.step && !state.finishing => {
                state.steps.abort_all();
                state.busy = false;
                state.gave_up = true;
                state.step += 1;
                self.advance(&myself, state);
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
        while state.steps.try_join_next().is_some() {}
        match result {
            Ok(records) => {
                for record in &records {
                    state.past.note(&state.machine, record);
                    state.requested_ms = requested_ms(record).or(state.requested_ms);
                    state.machine.apply(&record.event)?;
                }
                if let Some(talk) = &state.talk {
                    sending::warn_of_doubt(&talk.briefing, &state.machine);
                }
            }
            Err(StepError::Cancelled) => {}
            Err(StepError::Crashed(reason)) => return Err(reason.into()),
            Err(StepError::Journal(error)) => {
                // The run stops: the supervisor is told by the writer as well, but may not be
                // told first.
                self.services.tell_supervisor(SupervisorMsg::JournalFailed(error));
                myself.stop(None);
                return Ok(());
            }
        }
        self.advance(myself, state);
        Ok(())
    }

    fn end(&self, myself: &ActorRef<AgentMsg>, state: &mut State, ending: Ending) {
        if state.ending.is_some() {
            return;
        }
        state.ending = Some(ending);
        state.cancel.cancel();
        let step = state.step;
        if !state.busy {
            return self.advance(myself, state);
        }
        // Tools get the grace that the limits allow, and a moment to report.
        let grace = self.services.limits.grace_period + std::time::Duration::from_secs(1);
        myself.send_after(grace, move || AgentMsg::GraceOver { step });
    }

    /// Starts what follows from the records.
    fn advance(&self, myself: &ActorRef<AgentMsg>, state: &mut State) {
        if state.machine.is_ended() {
            self.services.addresses.agents.remove(&self.id);
            return myself.stop(None);
        }
        match &state.ending {
            Some(Ending::Interrupted) => {
                self.services.addresses.agents.remove(&self.id);
                return myself.stop(None);
            }
            Some(Ending::With(outcome)) => {
                let outcome = outcome.clone();
                return self.finish(myself, state, outcome);
            }
            None => {}
        }
        if !state.lost.is_empty() {
            let lost = std::mem::take(&mut state.lost);
            let context = self.context(state);
            return self.start(myself, state, lost_calls::look_up(context, lost));
        }
        match self.next(state) {
            Action::LookedOver(events) => {
                state.looked_over = true;
                match events.is_empty() {
                    true => self.advance(myself, state),
                    false => self.record(myself, state, events),
                }
            }
            Action::Record(events) => self.record(myself, state, events),
            Action::TakeAhead => self.take_ahead(myself, state),
            Action::AwaitAhead => summarise::hurry(&self.services, &self.id),
            Action::Summarise(summarise) => self.summarise(myself, state, *summarise),
            Action::Defer => {
                state.machine.defer_summary();
                self.advance(myself, state);
            }
            Action::NothingToSummarise(requested) => {
                let failed = compaction_step::failed(&SummaryError::NothingToCover, None);
                self.record(myself, state, vec![requested.into(), failed]);
            }
            Action::Send(sending) => self.call_model(myself, state, *sending),
            Action::RunTools(calls) => {
                let context = self.context(state);
                self.start(myself, state, agent_steps::run_tools(context, calls));
            }
            Action::RunCommand(announced) => {
                let context = self.context(state);
                let program = state.machine.spawned().program.clone();
                self.start(myself, state, agent_steps::run_command(context, program, announced));
            }
            Action::Finish(outcome) => self.finish(myself, state, outcome),
            Action::Rest => {}
        }
    }

    /// What the agent does next, by its records.
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
            capabilities: &briefing.model.known_capabilities.now(),
            tools: &briefing.tool_names,
            summariser: self.services.summariser().map(|service| &service.spec),
            transcript: &transcript.to_string_lossy(),
            results: &self.services.store.results_dir().to_string_lossy(),
            idle: sending::since(state.requested_ms),
        };
        let ahead = SummaryAhead::stage(state.ahead.as_ref());
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
        // A step that was given up may have recorded results that did not arrive here.
        let closings = if state.gave_up { Vec::new() } else { state.machine.closings() };
        let mut closings: Vec<_> = closings.into_iter().map(Event::from).collect();
        let mut usage = state.machine.usage();
        if let Some(spent) = Self::drop_ahead(state) {
            usage += spent.usage;
            closings.push(compaction_step::failed(&SummaryError::TooLate, Some(spent)));
        }
        let ended = AgentEnded { outcome, turns: state.machine.replies(), usage };
        let context = self.context(state);
        self.start(myself, state, agent_steps::finish(context, closings, ended));
    }

    fn context(&self, state: &State) -> StepContext {
        StepContext {
            services: self.services.clone(),
            task: self.task.clone(),
            agent: self.id.clone(),
            turn: state.machine.turn(),
            depth: state.machine.spawned().depth,
            past: state.past,
            spec: state.talk.as_ref().map(|talk| talk.briefing.spec.clone()),
            tools: state.talk.as_ref().map(|talk| talk.briefing.tools.clone()).unwrap_or_default(),
            answers: state.answers.clone(),
            right: self.right.clone(),
            cancel: state.cancel.clone(),
        }
    }

    /// Starts a step off the mailbox. A panic in it is caught and mailed: the agent then fails as
    /// a whole, and its restart policy decides.
    fn start(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        body: impl Future<Output = Result<Vec<SharedRecord>, StepError>> + Send + 'static,
    ) {
        state.step += 1;
        state.busy = true;
        let (step, myself) = (state.step, myself.clone());
        state.steps.spawn(async move {
            let result = std::panic::AssertUnwindSafe(body).catch_unwind().await;
            let result =
                result.unwrap_or_else(|panic| Err(StepError::Crashed(panic_text(panic.as_ref()))));
            // An agent that is gone needs no result: its successor starts from the journal.
            let _ = myself.send_message(AgentMsg::StepDone { step, result });
        });
    }
}

/// When a request was made, if the record tells of one.
fn requested_ms(record: &SharedRecord) -> Option<i64> {
    matches!(record.event, Event::ModelRequested(_)).then_some(record.ts_ms)
}
