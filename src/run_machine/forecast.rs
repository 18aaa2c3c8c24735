//! A forecast: the actions of a run machine performed in thought, until only agents could go on.
//!
//! Pure. The same decisions as in a live run, so a forecast cannot differ from what a resume does.
//! Records are applied as if they were durable; agents that begin or go on do nothing more, but for
//! those whose end is known already. Slots and time are no obstacle.

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
use crate::turn::{AgentEnded, Outcome, Program};

/// What a forecast has to look up outside the records.
pub trait Lookup {
    /// Why a look can fail.
    type Error;

    /// Reads the value of an output for templates, or why it is not what the task asks for.
    ///
    /// # Errors
    /// When the output is stored and cannot be read.
    fn value(
        &mut self,
        task: &TaskSpec,
        output: &Output,
    ) -> Result<Result<Value, Failure>, Self::Error>;

    /// The outcome of an agent that has not ended, where it is certain by now.
    fn outcome(&mut self, agent: &AgentId) -> Option<Outcome>;
}

/// The end of a forecast.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The machine: its state is that of the run by then.
    pub machine: RunMachine,
    /// The programs of the attempts that begin, by the task's place in the plan.
    pub begins: HashMap<usize, Program>,
    /// The agents that go on.
    pub goes_on: Vec<AgentId>,
}

/// Plays a run on from its start in thought.
///
/// # Errors
/// The first error of `lookup`.
pub fn forecast<L: Lookup>(
    mut settings: Settings,
    start: Start,
    now: Now,
    lookup: &mut L,
) -> Result<Forecast, L::Error> {
    settings.limits.max_concurrency = usize::MAX;
    settings.limits.max_children = usize::MAX;
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
    /// The state of the run by then.
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
            Action::CheckOutput { task, output, .. } => {
                if let Some(spec) = self.machine.plan().task(&task).cloned() {
                    let checked = lookup.value(&spec, &output)?;
                    self.machine.output_checked(now, &task, checked);
                }
            }
            // Nobody works in thought, so nobody is told anything.
            Action::Spawn { .. }
            | Action::Kill(_)
            | Action::Interrupt(_)
            | Action::GrantSlot(_)
            | Action::AnswerDelegation { .. }
            | Action::HoldSteps
            | Action::AllowSteps
            | Action::Finish(_) => {}
        }
        Ok(())
    }

    fn note_beginnings(&mut self, drafts: &[Draft]) {
        for draft in drafts {
            let place = draft.task.as_ref().and_then(|task| self.machine.plan().place(task));
            if let (Some(place), Event::AgentSpawned(spawned)) = (place, &draft.event) {
                self.begins.insert(place, spawned.program.clone());
            }
        }
    }

    fn end(&mut self, now: Now, agent: &AgentId, outcome: Outcome) {
        let Some(status) = self.state().agents().get(agent) else { return };
        let ended = AgentEnded { outcome, turns: status.turn, usage: Usage::default() };
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
