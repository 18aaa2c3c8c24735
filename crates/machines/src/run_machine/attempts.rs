//! Decides how an attempt of a task ends: its output is checked, or its failure leads to another
//! attempt, to a pause or to the end of the task. `answers`: whether the answer of an attempt is accepted.

mod answers;

use ahash::HashMap;

use super::decision::Decision;
use super::desk::Desk;
use super::{Facts, Made, scope};
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::output::Output;
use crate::plan::{TaskCancelled, TaskCompleted, TaskRetrying, TaskReused};
use crate::spec::{OnFailure, Work};
use crate::template::Known;
use crate::turn::{Cause, Outcome};

/// The answers of attempts that have no agent at work.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    /// The tasks whose output is being checked, by place in the plan.
    checking: HashMap<usize, Checking>,
    /// The answers that are judged, by the task's place in the plan.
    judged: HashMap<usize, Judged>,
    /// The chance in the length of pauses.
    chance: fastrand::Rng,
}

/// An output that is being checked.
#[derive(Clone, Debug)]
struct Checking {
    /// The key of the earlier result, if the output is one.
    reused: Option<String>,
    /// True if the task is completed when it passes.
    is_last: bool,
}

/// An answer whose form is right, and which is judged by checks and by the condition of a loop.
#[derive(Clone, Debug)]
struct Judged {
    /// Its value for templates.
    value: Known,
    /// True if it has passed.
    is_accepted: bool,
}

impl Attempts {
    /// Makes the attempts of a run whose chance has this seed.
    pub(super) fn new(seed: u64) -> Self {
        let chance = fastrand::Rng::with_seed(seed);
        Self { checking: HashMap::default(), judged: HashMap::default(), chance }
    }

    /// Returns true if the output of a task is being checked.
    pub(super) fn is_checking(&self, place: usize) -> bool {
        self.checking.contains_key(&place)
    }

    /// Returns true if the output of some task is being checked.
    pub(super) fn any_checking(&self) -> bool {
        !self.checking.is_empty()
    }

    /// Returns the value of an answer that is judged.
    pub(super) fn judged(&self, place: usize) -> Option<&Known> {
        self.judged.get(&place).map(|judged| &judged.value)
    }
}

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

impl Desk<'_, Attempts> {
    /// Concludes an attempt once its agent and every agent that worked for it have ended.
    pub(super) fn conclude_when_quiet(&mut self, place: usize) {
        let Some(status) = self.status(place).filter(|status| status.open_agents == 0) else {
            return;
        };
        let Some(main) = status.agent.clone() else { return };
        let outcome = self.state.agents().get(&main).and_then(|agent| agent.outcome.clone());
        let Some(outcome) = outcome.filter(|_| !self.agents.begins_below(&main)) else {
            return;
        };
        match outcome {
            Outcome::Completed { output } => self.judge(place, &main, output),
            Outcome::Failed { failure, .. } => {
                let failure = self.cause_of(place, failure);
                self.fail(place, failure);
            }
            Outcome::Cancelled { reason } => {
                self.record_task(place, TaskCancelled { reason }.into());
            }
        }
    }

    /// Handles the result of an output check.
    pub(super) fn checked(&mut self, task: &Name, checked: Result<(Known, Output), Failure>) {
        let place = self.settings.plan.place(task);
        let Some((place, checking)) =
            place.and_then(|place| Some((place, self.own().checking.remove(&place)?)))
        else {
            return;
        };
        let Checking { reused, is_last } = checking;
        let (value, output) = match checked {
            Ok(checked) => checked,
            Err(failure) if reused.is_some() => return self.fail(place, failure),
            Err(failure) => return self.form_is_wrong(place, failure),
        };
        if !is_last {
            self.own().judged.insert(place, Judged { value, is_accepted: false });
            return self.post(Decision::Touch(place));
        }
        let value = scope::value_of(self.spec(place), value);
        self.post(Decision::KeepValue(place, value));
        let attempt = self.status(place).map_or(1, |status| status.attempt);
        let event = match reused {
            Some(key) => TaskReused { key, output }.into(),
            None => TaskCompleted { attempt, output }.into(),
        };
        self.record_task(place, event);
    }

    /// Completes a task that stands for a sub-graph, all of whose tasks have ended. Its output has the
    /// outputs of the last of them by their names.
    pub(super) fn complete_graph(&mut self, place: usize) {
        let Work::Graph { outputs } = &self.spec(place).work else { return };
        let stands = self.name(place);
        let output = |name: &Name| {
            let value = self.values.get(name);
            let value = value.and_then(|value| value.get("outputs").or(value.get("output")));
            let local = name.as_str().strip_prefix(stands.as_str()).unwrap_or_default();
            (local.trim_start_matches('/').to_owned(), value.unwrap_or_default())
        };
        let outputs = Known::object(outputs.iter().map(output));
        self.check_output(place, Made::Parts(outputs), None);
    }

    /// Handles the failure of an attempt: the task's retry policy decides if another one follows.
    pub(super) fn fail(&mut self, place: usize, failure: Failure) {
        let (attempt, earlier) =
            self.status(place).map_or((1, 0), |status| (status.attempt, status.earlier));
        let is_ending = (self.stopping.is_stopped() && !self.cleans_up(place))
            || self.pauses.is_interrupted()
            || self.stopping.cancelled(place).is_some();
        let chance = self.own().chance.f64();
        let retry = &self.spec(place).retry;
        let pause = retry.pause(attempt.saturating_sub(earlier), failure.kind, chance);
        let event: Event = match pause.filter(|_| !is_ending && !failure.was_tried_out()) {
            Some(pause) => {
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                TaskRetrying { attempt, failure, pause_ms, on_resume: false }.into()
            }
            None if !is_ending && self.pauses_after(place, &failure) => {
                TaskRetrying { attempt, failure, pause_ms: 0, on_resume: true }.into()
            }
            None => self.failed(place, attempt, failure),
        };
        self.record_task(place, event);
    }

    /// Forgets the answer of an attempt that is over.
    pub(super) fn attempt_over(&mut self, place: usize) {
        self.own().judged.remove(&place);
    }
}
