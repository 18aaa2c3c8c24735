//! Decides how an attempt of a task ends: its output is checked, or its failure leads to another
//! attempt, to a pause or to the end of the task.

use super::decision::Decision;
use super::facts::{Checking, Facts, Judged};
use super::{Made, RunMachine, scope};
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::output::Output;
use crate::plan::{TaskCancelled, TaskCompleted, TaskRetrying, TaskReused};
use crate::spec::{OnFailure, Work};
use crate::template::Known;
use crate::turn::{Cause, Outcome};

impl Facts {
    /// Returns the failure of an agent that ran out of turns while it mended its answer as a failure of
    /// that answer: more turns alone would not help.
    fn cause_of(&self, place: usize, failure: Failure) -> Failure {
        let last = self.status(place).and_then(|status| status.rounds.last().copied());
        match last.filter(|cause| *cause != Cause::Until) {
            Some(cause) if failure.kind == FailureKind::MaxTurns => {
                let (what, turns) = (cause.words(), failure.message);
                Failure::new(cause.kind(), format!("{what}, and then: {turns}"))
            }
            _ => failure,
        }
    }

    /// Returns true if a task stands for a sub-graph.
    pub(super) fn is_graph(&self, place: usize) -> bool {
        matches!(self.spec(place).work, Work::Graph { .. })
    }

    /// Returns true if a failure makes the task wait until a person has mended the cause and resumes
    /// the run.
    fn pauses_after(&self, place: usize, failure: &Failure) -> bool {
        self.spec(place).on_failure == Some(OnFailure::Pause) && failure.kind.may_heal()
    }
}

impl RunMachine {
    /// Settles an attempt once its agent and every agent that worked for it have ended.
    pub(super) fn settle_when_quiet(&mut self, place: usize) {
        let Some(status) = self.facts.status(place).filter(|status| status.open_agents == 0) else {
            return;
        };
        let Some(main) = status.agent.clone() else { return };
        let outcome = self.facts.state.agents().get(&main).and_then(|agent| agent.outcome.clone());
        let Some(outcome) = outcome.filter(|_| !self.facts.spawning.contains_key(&main)) else {
            return;
        };
        match outcome {
            Outcome::Completed { output } => self.post(Decision::Judge(place, main, output)),
            Outcome::Failed { failure, .. } => {
                let failure = self.facts.cause_of(place, failure);
                self.attempt_failed(place, failure);
            }
            Outcome::Cancelled { reason } => {
                self.record_task(place, TaskCancelled { reason }.into());
            }
        }
    }

    /// Handles the result of an output check.
    pub(super) fn checked(&mut self, task: &Name, checked: Result<(Known, Output), Failure>) {
        let place = self.facts.settings.plan.place(task);
        let Some((place, checking)) =
            place.and_then(|place| Some((place, self.facts.checking.remove(&place)?)))
        else {
            return;
        };
        self.facts.proposed.remove(&place);
        let Checking { reused, is_last } = checking;
        let (value, output) = match checked {
            Ok(checked) => checked,
            Err(failure) if reused.is_some() => return self.attempt_failed(place, failure),
            Err(failure) => return self.post(Decision::RefuseForm(place, failure)),
        };
        if !is_last {
            self.facts.judged.insert(place, Judged { value, is_accepted: false });
            return self.facts.agenda.touch(place);
        }
        let value = scope::value_of(self.facts.spec(place), value);
        self.facts.values.insert(task.to_string(), value);
        let attempt = self.facts.status(place).map_or(1, |status| status.attempt);
        let event = match reused {
            Some(key) => TaskReused { key, output }.into(),
            None => TaskCompleted { attempt, output }.into(),
        };
        self.record_task(place, event);
    }

    /// Completes a task that stands for a sub-graph, all of whose tasks have ended. Its output has the
    /// outputs of the last of them by their names.
    pub(super) fn complete_graph(&mut self, place: usize) {
        let Work::Graph { outputs } = &self.facts.spec(place).work else { return };
        let stands = self.facts.name(place);
        let output = |name: &Name| {
            let value = self.facts.values.get(name.as_str());
            let value = value.and_then(|value| value.get("outputs").or(value.get("output")));
            let local = name.as_str().strip_prefix(stands.as_str()).unwrap_or_default();
            (local.trim_start_matches('/').to_owned(), value.unwrap_or_default())
        };
        let outputs = Known::object(outputs.iter().map(output));
        self.post(Decision::CheckOutput(place, Made::Parts(outputs), None));
    }

    /// Handles the failure of an attempt: the task's retry policy decides if another one follows.
    pub(super) fn attempt_failed(&mut self, place: usize, failure: Failure) {
        let (attempt, earlier) =
            self.facts.status(place).map_or((1, 0), |status| (status.attempt, status.earlier));
        let is_ending = (self.facts.stopped.is_some() && !self.facts.cleans_up(place))
            || self.facts.interrupted.is_some()
            || self.facts.cancelled.contains_key(&place);
        let chance = self.chance.f64();
        let retry = &self.facts.spec(place).retry;
        let pause = retry.pause(attempt.saturating_sub(earlier), failure.kind, chance);
        let event: Event = match pause.filter(|_| !is_ending && !failure.was_tried_out()) {
            Some(pause) => {
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                TaskRetrying { attempt, failure, pause_ms, on_resume: false }.into()
            }
            None if !is_ending && self.facts.pauses_after(place, &failure) => {
                TaskRetrying { attempt, failure, pause_ms: 0, on_resume: true }.into()
            }
            None => self.facts.failed(place, attempt, failure),
        };
        self.record_task(place, event);
    }
}
