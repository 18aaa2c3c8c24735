//! The agent: one conversation, one turn machine, one step at a time.
//!
//! Owns its context. The handler folds recorded events and starts the next step in a `JoinSet`;
//! the step works off the mailbox and mails back what it recorded. A result of an earlier step is
//! dropped. The agent never writes the journal from its handler and never blocks its mailbox.

use std::sync::Arc;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Services;
use super::agent_steps;
use super::briefing::{self, Briefing};
use super::fit;
use super::mail::SupervisorMsg;
use super::panic::panic_text;
use super::step::{StepContext, StepError};
use crate::context::CompactionTrigger;
use crate::context::pipeline::{self, SummaryRequest};
use crate::event::{Event, SharedRecord};
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::message::Json;
use crate::model::{Piece, Request};
use crate::turn::{AgentEnded, Outcome, Program};
use crate::turn_machine::{Machine, Step};

/// What an agent is told.
#[derive(Debug)]
pub enum AgentMsg {
    /// Begin, or go on where the records end.
    Go,
    /// A step has ended.
    StepDone {
        /// Which step; an older one is ignored.
        step: u64,
        /// What it recorded, or why it could not.
        result: Result<Vec<SharedRecord>, StepError>,
    },
    /// End with this outcome as soon as the step under way has let go.
    End(Outcome),
    /// Stop without an outcome: the run is to be resumed later.
    Interrupt,
    /// Compact at the next turn boundary.
    Compact {
        /// What to preserve.
        focus: Option<String>,
    },
    /// The step under way had its grace.
    GraceOver {
        /// Which step.
        step: u64,
    },
}

/// One agent at work: what never changes about it.
#[derive(Debug)]
pub struct Agent {
    /// What it shares with the run's other actors.
    pub services: Arc<Services>,
    /// Its id.
    pub id: AgentId,
    /// The task that it works for.
    pub task: Name,
}

/// What an agent keeps.
#[derive(Debug)]
pub struct State {
    machine: Machine,
    talk: Option<Talk>,
    step: u64,
    /// Whether a step is under way.
    busy: bool,
    /// Whether that step records the end: it is never given up, or there might be two ends.
    finishing: bool,
    /// Whether a step was given up because it did not end within its grace.
    gave_up: bool,
    steps: JoinSet<()>,
    cancel: CancellationToken,
    ending: Option<Ending>,
}

/// How the agent was told to end.
#[derive(Clone, Debug)]
enum Ending {
    With(Outcome),
    Interrupted,
}

/// What an agent that talks with a model needs for it.
#[derive(Debug)]
struct Talk {
    briefing: Arc<Briefing>,
    /// The view rendered for the wire: each entry once, keyed by the serial of its slot.
    pieces: Vec<(u64, Piece)>,
}

impl Talk {
    /// Brings the rendered pieces in line with the view; renders only what is new or changed.
    fn sync(&mut self, machine: &Machine) {
        let slots = machine.view().slots();
        self.pieces.truncate(slots.len());
        for (at, slot) in slots.enumerate() {
            match self.pieces.get(at) {
                Some((serial, _)) if *serial == slot.serial => {}
                known => {
                    let piece = self.briefing.model.model.piece(&slot.entry.json);
                    let fresh = (slot.serial, piece);
                    if known.is_some() {
                        self.pieces[at] = fresh;
                    } else {
                        self.pieces.push(fresh);
                    }
                }
            }
        }
    }
}

impl Actor for Agent {
    type Msg = AgentMsg;
    type State = State;
    /// The agent's records so far; the first is its `agent.spawned`.
    type Arguments = Vec<SharedRecord>;

    async fn pre_start(
        &self,
        myself: ActorRef<AgentMsg>,
        records: Vec<SharedRecord>,
    ) -> Result<State, ActorProcessingErr> {
        let state = self.rebuild(&records)?;
        self.services.addresses.agents.insert(self.id.clone(), myself.clone());
        myself.send_message(AgentMsg::Go)?;
        Ok(state)
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
            AgentMsg::Compact { focus } => {
                state.machine.ask_to_compact(CompactionTrigger::Manual, focus);
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
    /// Folds the records; the same fold as while the agent works.
    fn rebuild(&self, records: &[SharedRecord]) -> Result<State, ActorProcessingErr> {
        let first = records.first().map(|record| &record.event);
        let Some(Event::AgentSpawned(spawned)) = first else {
            return Err(format!("agent `{}` has no agent.spawned record", self.id).into());
        };
        let talk = match &spawned.program {
            Program::Model { agent, .. } => {
                let briefing = briefing::of(&self.services, agent, spawned.depth)?;
                Some(Talk { briefing, pieces: Vec::new() })
            }
            Program::Command { .. } => None,
        };
        let max_turns = talk.as_ref().map_or(1, |talk| talk.briefing.spec.max_turns);
        let mut machine = Machine::new(spawned.clone(), max_turns);
        for record in &records[1..] {
            machine.apply(&record.event)?;
        }
        if let Some(Talk { briefing, .. }) = &talk {
            machine.begin_with(&briefing.model.spec.name, briefing.head_tokens);
        }
        Ok(State {
            machine,
            talk,
            step: 0,
            busy: false,
            finishing: false,
            gave_up: false,
            steps: JoinSet::new(),
            cancel: CancellationToken::new(),
            ending: None,
        })
    }

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
                    // An edit was applied when it was proposed; the record made it durable.
                    if !matches!(record.event, Event::ContextEdited(_)) {
                        state.machine.apply(&record.event)?;
                    }
                }
                if let Some(talk) = &state.talk {
                    fit::warn_of_doubt(&talk.briefing, &state.machine);
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
        let repairs = state.machine.repairs();
        if state.step == 0 && !repairs.is_empty() {
            let context = self.context(state);
            return self.start(myself, state, agent_steps::record(context, repairs));
        }
        match state.machine.next() {
            Step::CallModel { turn, message } => self.call_model(myself, state, turn, message),
            Step::RunTools(calls) => {
                let context = self.context(state);
                self.start(myself, state, agent_steps::run_tools(context, calls));
            }
            Step::RunCommand => {
                let context = self.context(state);
                let program = state.machine.spawned().program.clone();
                self.start(myself, state, agent_steps::run_command(context, program));
            }
            Step::Compact { trigger, focus } => {
                self.compact(myself, state, Some((trigger, focus)));
            }
            Step::Finish(outcome) => self.finish(myself, state, outcome),
            Step::Rest => {}
        }
    }

    fn finish(&self, myself: &ActorRef<AgentMsg>, state: &mut State, outcome: Outcome) {
        if std::mem::replace(&mut state.finishing, true) {
            return;
        }
        // A step that was given up may have recorded results that did not arrive here.
        let closings = if state.gave_up { Vec::new() } else { state.machine.closings() };
        let ended =
            AgentEnded { outcome, turns: state.machine.replies(), usage: state.machine.usage() };
        let context = self.context(state);
        self.start(myself, state, agent_steps::finish(context, closings, ended));
    }

    fn call_model(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        turn: u32,
        message: Option<Json>,
    ) {
        if self.summary_due(state, None).is_some() && !state.machine.compacted_this_turn() {
            return self.compact(myself, state, None);
        }
        let Some(briefing) = state.talk.as_ref().map(|talk| talk.briefing.clone()) else {
            return self.give_up(myself, state, "an agent without a model cannot call one");
        };
        let preset = &self.services.compaction.preset;
        let mut edits = pipeline::run_cheap_layers(state.machine.view_mut(), preset);
        edits.extend(fit::guard(&self.services, &self.id, &briefing, &mut state.machine));
        if let Some(reason) = fit::too_large(&self.services, &briefing, &state.machine) {
            let outcome = state.machine.failed(FailureKind::ContextOverflow, reason);
            return self.finish(myself, state, outcome);
        }
        let Some(request) = self.request(state, turn, message.as_ref()) else {
            return self.give_up(myself, state, "an agent without a model cannot call one");
        };
        let context = self.context(state);
        let expected_tokens = state.machine.context_tokens();
        let call =
            agent_steps::ModelTurn { turn, message, edits, request, briefing, expected_tokens };
        self.start(myself, state, agent_steps::call_model(context, call));
    }

    fn request(&self, state: &mut State, turn: u32, message: Option<&Json>) -> Option<Request> {
        let talk = state.talk.as_mut()?;
        talk.sync(&state.machine);
        let mut pieces: Vec<_> = talk.pieces.iter().map(|(_, piece)| piece.clone()).collect();
        pieces.extend(message.map(|json| talk.briefing.model.model.piece(json)));
        Some(Request {
            agent: talk.briefing.spec.name.clone(),
            agent_id: self.id.clone(),
            turn,
            head: talk.briefing.head.clone(),
            pieces,
            max_output_tokens: fit::output_limit(&talk.briefing, &state.machine),
        })
    }

    fn summary_due(
        &self,
        state: &State,
        asked: Option<(CompactionTrigger, Option<String>)>,
    ) -> Option<SummaryRequest> {
        let layer = self.services.compaction.preset.summarise.as_ref()?;
        pipeline::summary_due(state.machine.view(), layer, asked)
    }

    fn compact(
        &self,
        myself: &ActorRef<AgentMsg>,
        state: &mut State,
        asked: Option<(CompactionTrigger, Option<String>)>,
    ) {
        let Some(due) = self.summary_due(state, asked) else {
            let context = self.context(state);
            let reason = "there is nothing to summarise".to_owned();
            let failed = crate::context::CompactionFailed { reason, spent: None };
            return self.start(myself, state, agent_steps::record(context, vec![failed]));
        };
        let model = state.talk.as_ref().map(|talk| talk.briefing.model.spec.name.clone());
        let Some(model) = self.services.compaction.model.clone().or(model) else {
            return self.give_up(myself, state, "an agent without a model cannot compact");
        };
        let view = state.machine.view().clone();
        let context = self.context(state);
        self.start(myself, state, agent_steps::compact(context, due, view, model));
    }

    fn give_up(&self, myself: &ActorRef<AgentMsg>, state: &mut State, reason: &str) {
        let outcome = state.machine.failed(FailureKind::Internal, reason);
        self.finish(myself, state, outcome);
    }

    fn context(&self, state: &State) -> StepContext {
        StepContext {
            services: self.services.clone(),
            task: self.task.clone(),
            agent: self.id.clone(),
            turn: state.machine.turn(),
            depth: state.machine.spawned().depth,
            spec: state.talk.as_ref().map(|talk| talk.briefing.spec.clone()),
            tools: state.talk.as_ref().map(|talk| talk.briefing.tools.clone()).unwrap_or_default(),
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
