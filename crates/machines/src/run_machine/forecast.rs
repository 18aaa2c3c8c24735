//! A forecast: simulates the actions of a run machine until only agents could continue.
//!
//! Pure. It uses the same decisions as a live run, so a forecast cannot differ from a resume.
//! Records are applied as if they were durable. Agents that start or resume do nothing more, except
//! those whose end is already certain. Slots and time limit nothing.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Action, Now, RunMachine, Settings, Start};
use crate::event::{Draft, Event, Record, SharedRecord};
use crate::failure::Failure;
use crate::id::AgentId;
use crate::message::Usage;
use crate::output::Output;
use crate::run_state::RunState;
use crate::spec::TaskSpec;
use crate::spec::hooks::HookFinished;
use crate::spec::notices::NoticePolicy;
use crate::template::Known;
use crate::turn::{AgentEnded, Outcome, Program};

/// Looks up the data that a forecast needs and the records do not hold.
pub trait Lookup {
    /// The error of a failed lookup.
    type Error;

    /// Reads the value of an output for templates, or returns the failure if it is not what the
    /// task requires.
    ///
    /// # Errors
    /// Returns an error if the output is stored and cannot be read.
    fn value(
        &mut self,
        task: &TaskSpec,
        output: &Output,
    ) -> Result<Result<Value, Failure>, Self::Error>;

    /// Returns the outcome of an agent that has not ended, if it is already certain.
    fn outcome(&mut self, agent: &AgentId) -> Option<Outcome>;
}

/// The end of a forecast.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The machine; its state is that of the run at the end of the forecast.
    pub machine: RunMachine,
    /// The programs of the attempts that would start, by the task's place in the plan.
    pub begins: HashMap<usize, Program>,
    /// The agents that would resume and whose end is not certain.
    pub goes_on: Vec<AgentId>,
}

/// Simulates a run from its start.
///
/// # Errors
/// Returns the first error of `lookup`.
pub fn forecast<L: Lookup>(
    mut settings: Settings,
    start: Start,
    now: Now,
    lookup: &mut L,
) -> Result<Forecast, L::Error> {
    settings.limits.max_concurrency = usize::MAX;
    settings.limits.max_children = usize::MAX;
    settings.plan.unlock();
    // Nobody answers in a forecast, and a pause would end it.
    settings.attended = true;
    // And nobody is told of what only may happen.
    settings.notices = NoticePolicy::default();
    let mut forecast = Forecast {
        machine: RunMachine::new(settings, start),
        begins: HashMap::new(),
        goes_on: Vec::new(),
    };
    forecast.machine.begin(now);
    while let Some(action) = forecast.machine.next_action() {
        forecast.perform(action, now, lookup)?;
    }
    Ok(forecast)
}

impl Forecast {
    /// Returns the state of the run at the end of the forecast.
    #[must_use]
    pub fn state(&self) -> &RunState {
        self.machine.state()
    }

    fn perform<L: Lookup>(
        &mut self,
        action: Action,
        now: Now,
        lookup: &mut L,
    ) -> Result<(), L::Error> {
        match action {
            Action::Record(drafts) => {
                self.note_beginnings(&drafts);
                self.commit(now, drafts);
            }
            Action::Fold(agent) => self.machine.agent_folded(now, &agent),
            Action::Start(agent) => match lookup.outcome(&agent) {
                Some(outcome) => self.end(now, &agent, outcome),
                None => self.goes_on.push(agent),
            },
            Action::EndIdle(ends) => {
                for (agent, outcome) in ends {
                    self.end(now, &agent, outcome);
                }
            }
            Action::End { agent, outcome } => {
                self.goes_on.retain(|going| *going != agent);
                self.end(now, &agent, outcome);
            }
            Action::Evaluate(evaluation) => {
                let result = evaluation.evaluate();
                self.machine.evaluated(now, &evaluation.task, evaluation.number, result);
            }
            Action::CheckOutput { task, output, .. } => {
                let output = output.output();
                if let Some(spec) = self.machine.plan().task(&task).cloned() {
                    let checked = lookup.value(&spec, &output)?;
                    let checked = checked.map(|value| (Known::of(&value), output));
                    self.machine.output_checked(now, &task, checked);
                }
            }
            // What an agent that is not at work would do to it is not foretold.
            Action::CompareAnswer { agent, .. } => {
                self.machine.answer_compared(now, &agent, Ok(()));
            }
            Action::RunHook { hook, .. } => {
                self.machine.hook_ended(now, HookFinished::new(hook, None));
            }
            // A forecast tells nobody anything: its machine has no channel for notices.
            Action::SendNotice(_) => {}
            // No agent works in a forecast, so these actions have no receiver.
            Action::Spawn { .. }
            | Action::Kill(_)
            | Action::Interrupt(..)
            | Action::Reply { .. }
            | Action::Deliver(_)
            | Action::Define(_)
            | Action::LimitSpending
            | Action::EndHook
            | Action::TellAnswerer { .. }
            | Action::Notify { .. }
            | Action::HoldSteps
            | Action::AllowSteps
            | Action::Finish(_) => {}
        }
        Ok(())
    }

    fn note_beginnings(&mut self, drafts: &[Draft]) {
        for draft in drafts {
            let place = draft.task.as_ref().and_then(|task| self.machine.plan().place(task));
            if let (Some(place), Event::AgentSpawned(spawned)) = (place, &draft.event)
                && spawned.check.is_none()
            {
                self.begins.insert(place, spawned.program.clone());
            }
        }
    }

    fn end(&mut self, now: Now, agent: &AgentId, outcome: Outcome) {
        let Some(status) = self.state().agents().get(agent) else { return };
        let ended = AgentEnded {
            outcome,
            turns: status.turn,
            usage: Usage::default(),
            shortfalls: Default::default(),
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        };
        let draft = Draft::agent(&status.task.clone(), agent, ended);
        self.commit(now, vec![draft]);
    }

    fn commit(&mut self, now: Now, drafts: Vec<Draft>) {
        let state = self.state();
        let (first, epoch, ts_ms) = (state.last_seq() + 1, state.epoch(), state.last_ms());
        let record = |(seq, draft)| {
            let Draft { task, agent, event } = draft;
            Arc::new(Record { seq, epoch, ts_ms, task, agent, event })
        };
        let records: Vec<SharedRecord> = (first..).zip(drafts).map(record).collect();
        self.machine.committed(now, &records);
    }
}
