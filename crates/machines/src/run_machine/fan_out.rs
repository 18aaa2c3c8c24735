//! Decides about fan-outs: the items and their keys, the start of the instances, and the end of their
//! task once all of them have ended.

use std::collections::HashMap;
use std::sync::Arc;

use super::decision::Decision;
use super::desk::Desk;
use super::items::{Items, bad};
use super::scope::{Item, Scope};
use super::{Facts, Made};
use crate::failure::{Failure, FailureKind};
use crate::id::Name;
use crate::plan::{Standing, TaskCancelled, TaskStarted, TaskState};
use crate::spec::FanOut;
use crate::template::Known;

/// The most failed instances that a message names.
const NAMED: usize = 3;

/// The tasks that have fanned out, by place in the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct FanOuts {
    /// The items of those that have not ended.
    items: HashMap<usize, Arc<Items>>,
    /// Those whose items cannot be read again, with the failure.
    lost: HashMap<usize, Failure>,
}

impl Facts {
    /// Returns true if an agent of a task's instances has not ended.
    pub(super) fn has_agents_of_instances(&self, place: usize) -> bool {
        let instances = self.status(place).map_or(&[][..], |status| &status.instances);
        instances
            .iter()
            .any(|(name, _)| self.state.task(name).is_some_and(|status| status.open_agents > 0))
    }

    fn items_as_before(&self, place: usize) -> Result<Items, Failure> {
        let (task, status) = (self.spec(place), self.status(place));
        let seen = status.map_or(0, |status| status.items_seen.unwrap_or(status.began_seq));
        let known = task.depends_on.iter().filter_map(|name| {
            // One that ended later was not read.
            self.state.task(name).filter(|before| before.ended_seq <= seen)?;
            Some((name.to_string(), self.values.get(name)?.clone()))
        });
        let super::Settings { run, workflow, .. } = &self.settings;
        let (inputs, ended) = (self.values.inputs(), &known.collect());
        let values = Scope { run: *run, workflow, inputs, ended, item: None }.values(task);
        let lost = |why: &str| {
            bad(format!(
                "the items over which the task fanned out cannot be read again: {why}; \
                 `resume --retry-failed` begins it again"
            ))
        };
        let items = Items::read(task, values, self.settings.limits.max_instances)
            .map_err(|failure| lost(&failure.message))?;
        match status.and_then(|status| status.items.as_ref()) == Some(&items.hash) {
            true => Ok(items),
            false => Err(lost("they are not those that were recorded")),
        }
    }

    /// Returns the item of an instance for its templates.
    pub(super) fn item(&self, place: usize) -> Option<Item> {
        let member = self.settings.plan.member(place)?;
        let items = self.fan_outs.items.get(&member.of)?;
        let (key, value) = items.all.get(member.number)?;
        let name = &self.spec(member.of).fan_out.as_ref()?.item;
        let (name, key, value) = (name.clone(), key.clone(), value.clone());
        Some(Item { name, value, key, number: member.number })
    }

    /// Returns true if the run was stopped before every instance had begun: too few of them count as
    /// tried.
    fn never_begun(&self, place: usize) -> bool {
        let is_stopped = self.stopping.is_stopped();
        let mut instances = self.settings.plan.instances(place);
        instances.any(|at| match self.standing(at) {
            Standing::SkippedByFailure => true,
            Standing::Failed if is_stopped => self.status(at).is_some_and(|status| {
                status.state == TaskState::Cancelled && status.attempt == status.earlier
            }),
            _ => false,
        })
    }

    /// Returns the reason why instances were not finished, if some were cancelled or never started.
    fn cut_short(&self, place: usize) -> Option<String> {
        if let Some(reason) = self.stopping.cancelled(place) {
            return Some(reason.clone());
        }
        let mut instances = self.settings.plan.instances(place);
        let is_cut = |at: &usize| {
            let standing = self.standing(*at);
            self.task_state(*at) == TaskState::Cancelled || standing == Standing::SkippedByFailure
        };
        let cut = instances.find(is_cut)?;
        self.status(cut).and_then(|status| status.reason.clone())
    }

    fn too_few(&self, place: usize, done: usize) -> Failure {
        let instances = self.settings.plan.instances(place);
        let all = instances.len();
        let failed = instances.filter(|at| self.standing(*at) != Standing::Done);
        let named = failed.take(NAMED).filter_map(|at| {
            let (status, member) = (self.status(at)?, self.settings.plan.member(at)?);
            let items = self.fan_outs.items.get(&member.of)?;
            let (key, _) = items.all.get(member.number)?;
            let why = status.failure.as_ref().map(ToString::to_string).unwrap_or_default();
            Some(format!("`{key}`: {why}"))
        });
        let named: Vec<_> = named.collect();
        let more = (all - done).saturating_sub(named.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let message =
            format!("{} of {all} instances failed: {}{more}", all - done, named.join("; "));
        Failure::new(FailureKind::InstancesFailed, message)
    }

    /// Returns the ends of the instances of a task as its `outputs` list them, in the order of the
    /// items; `None` if it has not fanned out.
    pub(super) fn ends_of_instances(&self, place: usize) -> Option<Known> {
        let instances = &self.status(place)?.instances;
        let end = |(number, (name, key)): (usize, &(Name, String))| {
            let status = self.state.task(name);
            let output = self.values.get(name).and_then(|value| value.get("output"));
            let error = status.and_then(|status| Some(status.failure.as_ref()?.to_string()));
            Known::object([
                ("index", Known::of(&number)),
                ("key", Known::of(key)),
                ("state", Known::of(&status.map(|status| status.state.as_read()))),
                ("output", output.unwrap_or_default()),
                ("partial", Known::of(&status.and_then(|status| self.state.partial(status)))),
                ("error", Known::of(&error)),
            ])
        };
        (!instances.is_empty()).then(|| Known::list(instances.iter().enumerate().map(end)))
    }
}

impl Desk<'_, FanOuts> {
    /// Starts the instances of a task that fans out. The task needs no slot of its own.
    pub(super) fn start(&mut self, place: usize) {
        let attempt = self.status(place).map_or(0, |status| status.attempt);
        let Some(items) = self.items_of(place) else { return };
        let items = items.and_then(|items| match self.bound(place, items.all.len()) {
            Some(failure) => Err(failure),
            None => Ok(items),
        });
        match items {
            Err(failure) => {
                let failed = self.failed(place, attempt, failure);
                self.post(Decision::EndUnstarted(place, failed));
            }
            Ok(items) => {
                let instances = Some(items.record());
                self.own().items.insert(place, items);
                let attempt = attempt + 1;
                let started =
                    TaskStarted { attempt, agent: None, instances, key: None, item: None };
                self.record_task(place, started.into());
            }
        }
    }

    /// Reads the items of the tasks that had fanned out when the last process stopped, from what was
    /// known when each of them fanned out. A task whose items cannot be read again fails.
    pub(super) fn take_up(&mut self) {
        for place in 0..self.settings.plan.tasks().len() {
            if self.spec(place).fan_out.is_none() || self.task_state(place) != TaskState::Running {
                continue;
            }
            match self.items_as_before(place) {
                Ok(items) => {
                    self.own().items.insert(place, Arc::new(items));
                    self.post(Decision::Expand(place));
                }
                Err(failure) => drop(self.own().lost.insert(place, failure)),
            }
        }
    }

    /// Concludes a task once all its instances have ended.
    pub(super) fn conclude(&mut self, place: usize) {
        if let Some(failure) = self.fan_outs.lost.get(&place).cloned() {
            let attempt = self.status(place).map_or(1, |status| status.attempt);
            let failed = self.failed(place, attempt, failure);
            return self.post(Decision::EndUnstarted(place, failed));
        }
        let tally = self.agenda.instances(place);
        if tally.open() > 0 || self.attempts.is_checking(place) {
            return;
        }
        let (done, all) = (tally.done(), self.settings.plan.instances(place).len());
        let is_cut = self.never_begun(place);
        if !is_cut && is_enough(done, all, self.spec(place).fan_out.as_ref()) {
            let outputs = self.ends_of_instances(place).unwrap_or_else(|| Known::list([]));
            return self.post(Decision::CheckOutput(place, Made::Parts(outputs), None));
        }
        if let Some(reason) = self.cut_short(place) {
            return self.record_task(place, TaskCancelled { reason }.into());
        }
        let attempt = self.status(place).map_or(1, |status| status.attempt);
        let failed = self.failed(place, attempt, self.too_few(place, done));
        self.record_task(place, failed);
    }

    /// Forgets the items of a task that has ended.
    pub(super) fn task_ended(&mut self, place: usize) {
        self.own().items.remove(&place);
    }
}

/// Returns true if enough instances completed.
#[expect(clippy::cast_precision_loss, reason = "a fan-out has far fewer than 2^52 instances")]
fn is_enough(done: usize, all: usize, fan_out: Option<&FanOut>) -> bool {
    let share = fan_out.map_or(1.0, |fan_out| fan_out.min_success);
    // A share like 0.9 of 10 must not ask for 9.000000000000002.
    done as f64 >= share * all as f64 - 1e-9
}

#[cfg(test)]
mod makespan;
#[cfg(test)]
mod tests;
