//! Asks for evaluations of a task's templates, and keeps the results until a rule takes them.

use super::evaluation::{Evaluated, Evaluating, Evaluation, Wanted, mixed_up};
use super::facts::Facts;
use super::items::Items;
use crate::failure::Failure;
use crate::id::Name;
use crate::turn::Program;
use crate::turn::question::Shown;

impl Facts {
    /// Returns true if the program of a task that holds its slot is there.
    pub(super) fn is_prepared(&self, place: usize) -> bool {
        self.preparing.contains_key(&place)
            && self.evaluating.get(&place).is_none_or(|asked| asked.result.is_some())
    }

    /// Returns the result of an evaluation for a task; without one it is asked for, and the task is decided
    /// again when it is there. A result is given once.
    pub(super) fn evaluation(
        &mut self,
        place: usize,
        wanted: Wanted,
    ) -> Option<Result<Evaluated, Failure>> {
        if let Some(asked) = self.evaluating.remove(&place)
            && asked.wanted == wanted
        {
            if asked.result.is_none() {
                self.evaluating.insert(place, asked);
                return None;
            }
            return asked.result;
        }
        let evaluation = self.snapshot(place, wanted);
        if evaluation.is_plain() {
            return Some(evaluation.evaluate());
        }
        let asked = Evaluating { number: evaluation.number, wanted, result: None };
        self.evaluating.insert(place, asked);
        self.wanted.push(evaluation);
        None
    }

    /// Returns an evaluation with what is known at this moment.
    pub(super) fn snapshot(&mut self, place: usize, wanted: Wanted) -> Evaluation {
        self.evaluations += 1;
        let spec = self.spec(place);
        let known = spec.depends_on.iter().filter_map(|name| {
            let _ended = self.state.task(name).filter(|status| status.state.is_end())?;
            Some((name.to_string(), self.values.get(name.as_str())?.clone()))
        });
        Evaluation {
            task: self.name(place).clone(),
            number: self.evaluations,
            wanted,
            spec: spec.clone(),
            run: self.settings.run,
            workflow: self.settings.workflow.clone(),
            inputs: self.inputs.clone(),
            ended: known.collect(),
            item: self.item(place),
            answer: self.judged.get(&place).map(|judged| judged.value.clone()),
            most_instances: self.settings.limits.max_instances,
            seen: self.state.last_seq(),
        }
    }

    /// Returns the truth of an expression, in the same way.
    pub(super) fn truth(&mut self, place: usize, wanted: Wanted) -> Option<Result<bool, Failure>> {
        self.evaluated_as(place, wanted, |evaluated| match evaluated {
            Evaluated::Truth(truth) => Some(truth),
            _ => None,
        })
    }

    /// Returns a program, in the same way.
    pub(super) fn program(
        &mut self,
        place: usize,
        wanted: Wanted,
    ) -> Option<Result<Program, Failure>> {
        self.evaluated_as(place, wanted, |evaluated| match evaluated {
            Evaluated::Program(program) => Some(program),
            _ => None,
        })
    }

    /// Returns the question of an approval, in the same way.
    pub(super) fn question(
        &mut self,
        place: usize,
    ) -> Option<Result<(String, Vec<Shown>), Failure>> {
        self.evaluated_as(place, Wanted::Question, |evaluated| match evaluated {
            Evaluated::Question(message, shown) => Some((message, shown)),
            _ => None,
        })
    }

    /// Returns the items of a fan-out, in the same way.
    pub(super) fn items(&mut self, place: usize) -> Option<Result<Items, Failure>> {
        self.evaluated_as(place, Wanted::Items, |evaluated| match evaluated {
            Evaluated::Items(items) => Some(items),
            _ => None,
        })
    }

    fn evaluated_as<T>(
        &mut self,
        place: usize,
        wanted: Wanted,
        of: impl FnOnce(Evaluated) -> Option<T>,
    ) -> Option<Result<T, Failure>> {
        let result = self.evaluation(place, wanted)?;
        Some(result.and_then(|evaluated| of(evaluated).ok_or_else(mixed_up)))
    }

    /// Takes the result of an evaluation, if it is still wanted.
    pub(super) fn take_evaluation(
        &mut self,
        task: &Name,
        number: u64,
        result: Result<Evaluated, Failure>,
    ) {
        let Some(place) = self.settings.plan.place(task) else { return };
        if let Some(asked) = self.evaluating.get_mut(&place)
            && asked.number == number
        {
            asked.result = Some(result);
            self.agenda.touch(place);
        }
    }

    /// Forgets a result that the decision about a task did not use: the next one may need another.
    pub(super) fn forget_result(&mut self, place: usize) {
        if !self.preparing.contains_key(&place)
            && self.evaluating.get(&place).is_some_and(|asked| asked.result.is_some())
        {
            self.evaluating.remove(&place);
        }
    }

    /// Takes back the slot that a task holds for an attempt that does not begin.
    pub(super) fn give_back(&mut self, place: usize) {
        if let Some(agent) = self.preparing.remove(&place) {
            self.evaluating.remove(&place);
            self.slots.release(&agent);
        }
    }
}
