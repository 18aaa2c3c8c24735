//! Asks for evaluations of a task's templates, and keeps the results until a rule takes them.

use std::sync::Arc;

use ahash::HashMap;

use super::decision::Decision;
use super::desk::{Data, Desk};
use super::evaluation::{Evaluated, Evaluation, Wanted, mixed_up};
use super::items::Items;
use super::{Action, Facts};
use crate::failure::Failure;
use crate::id::Name;
use crate::turn::Program;
use crate::turn::question::Shown;

/// The tasks for which something is evaluated.
#[derive(Clone, Debug, Default)]
pub(super) struct Evaluating {
    /// What was asked for, by place in the plan.
    asked: HashMap<usize, Asked>,
    /// Number of evaluations so far.
    count: u64,
}

/// An evaluation that was asked for.
#[derive(Clone, Debug)]
struct Asked {
    number: u64,
    wanted: Wanted,
    /// The result, until a decision uses it.
    result: Option<Result<Evaluated, Failure>>,
}

impl Evaluating {
    /// Returns true if something is evaluated, or has a result that no decision has used.
    pub(super) fn is_at_work(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Returns true if nothing is being evaluated for a task.
    pub(super) fn is_done(&self, place: usize) -> bool {
        self.asked.get(&place).is_none_or(|asked| asked.result.is_some())
    }
}

impl Facts {
    /// Returns an evaluation with what is known at this moment.
    pub(super) fn snapshot(&self, place: usize, wanted: Wanted, number: u64) -> Evaluation {
        let spec = self.spec(place);
        let known = spec.depends_on.iter().filter_map(|name| {
            let _ended = self.state.task(name).filter(|status| status.state.is_end())?;
            Some((name.to_string(), self.values.get(name)?.clone()))
        });
        Evaluation {
            task: self.name(place).clone(),
            number,
            wanted,
            spec: spec.clone(),
            run: self.settings.run,
            workflow: self.settings.workflow.clone(),
            inputs: self.values.inputs().clone(),
            ended: known.collect(),
            item: self.item(place),
            answer: self.attempts.judged(place).cloned(),
            most_instances: self.settings.limits.max_instances,
            seen: self.state.last_seq(),
        }
    }
}

/// What each rule may ask to have evaluated.
impl<D: Data> Desk<'_, D> {
    /// Returns the result of an evaluation for a task; without one it is asked for, and the task is decided
    /// again when it is there. A result is given once.
    fn evaluated<T>(
        &mut self,
        place: usize,
        wanted: Wanted,
        of: impl FnOnce(Evaluated) -> Option<T>,
    ) -> Option<Result<T, Failure>> {
        let asked = self.evaluating.asked.get(&place).filter(|asked| asked.wanted == wanted);
        let result = match asked {
            Some(asked) => asked.result.clone()?,
            None if wanted.is_plain(self.spec(place)) => self.snapshot(place, wanted, 0).evaluate(),
            None => {
                self.post(Decision::Evaluate(place, wanted));
                return None;
            }
        };
        self.post(Decision::ForgetEvaluation(place));
        Some(result.and_then(|evaluated| of(evaluated).ok_or_else(mixed_up)))
    }

    /// Returns the truth of an expression.
    pub(super) fn truth(&mut self, place: usize, wanted: Wanted) -> Option<Result<bool, Failure>> {
        self.evaluated(place, wanted, |evaluated| match evaluated {
            Evaluated::Truth(truth) => Some(truth),
            _ => None,
        })
    }

    /// Returns a program.
    pub(super) fn program(
        &mut self,
        place: usize,
        wanted: Wanted,
    ) -> Option<Result<Program, Failure>> {
        self.evaluated(place, wanted, |evaluated| match evaluated {
            Evaluated::Program(program) => Some(program),
            _ => None,
        })
    }

    /// Returns the question of an approval.
    pub(super) fn words(&mut self, place: usize) -> Option<Result<(String, Vec<Shown>), Failure>> {
        self.evaluated(place, Wanted::Question, |evaluated| match evaluated {
            Evaluated::Question(message, shown) => Some((message, shown)),
            _ => None,
        })
    }

    /// Returns the items of a fan-out.
    pub(super) fn items_of(&mut self, place: usize) -> Option<Result<Arc<Items>, Failure>> {
        self.evaluated(place, Wanted::Items, |evaluated| match evaluated {
            Evaluated::Items(items) => Some(items),
            _ => None,
        })
    }
}

impl Desk<'_, Evaluating> {
    /// Asks for an evaluation.
    pub(super) fn ask(&mut self, place: usize, wanted: Wanted) {
        self.own().count += 1;
        let number = self.evaluating.count;
        let evaluation = self.snapshot(place, wanted, number);
        self.own().asked.insert(place, Asked { number, wanted, result: None });
        self.act(Action::Evaluate(Box::new(evaluation)));
    }

    /// Takes the result of an evaluation, if it is still wanted.
    pub(super) fn take(&mut self, task: &Name, number: u64, result: Result<Evaluated, Failure>) {
        let Some(place) = self.settings.plan.place(task) else { return };
        if let Some(asked) = self.own().asked.get_mut(&place)
            && asked.number == number
        {
            asked.result = Some(result);
            self.post(Decision::Touch(place));
        }
    }

    /// Forgets what was asked for a task.
    pub(super) fn forget(&mut self, place: usize) {
        self.own().asked.remove(&place);
    }

    /// Forgets a result that the decision about a task did not use: the next one may need another.
    pub(super) fn forget_unused(&mut self, place: usize) {
        let has_result = |asked: &Asked| asked.result.is_some();
        if !self.scarce.is_preparing(place)
            && self.evaluating.asked.get(&place).is_some_and(has_result)
        {
            self.forget(place);
        }
    }
}
