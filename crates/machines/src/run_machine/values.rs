//! Keeps the values that templates of tasks may name, as long as a later task may name them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Facts;
use super::desk::Desk;
use super::scope::{self, Inputs};
use crate::id::Name;
use crate::template::Known;

/// The values for templates.
#[derive(Clone, Debug)]
pub(super) struct Values {
    inputs: Inputs,
    /// The values of ended tasks.
    ended: BTreeMap<String, Known>,
}

impl Values {
    /// Makes the values of a run with these inputs and with the outputs of these tasks.
    pub(super) fn new(inputs: Map<String, Value>, outputs: &Map<String, Value>) -> Self {
        let ended = outputs.iter().map(|(name, value)| (name.clone(), Known::of(value)));
        Self { inputs: Inputs::new(inputs), ended: ended.collect() }
    }

    /// Returns the inputs of the run.
    pub(super) fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Returns the value of a task, if it is kept.
    pub(super) fn get(&self, task: &Name) -> Option<&Known> {
        self.ended.get(task.as_str())
    }
}

impl Facts {
    /// Returns true if a later task may name the value of a task.
    fn may_be_named(&self, place: usize) -> bool {
        let by_proposed = self.settings.grows && self.settings.plan.member(place).is_none();
        by_proposed || self.agenda.is_awaited(place)
    }
}

impl Desk<'_, Values> {
    /// Makes values of the outputs that the run has from before.
    pub(super) fn take_up(&mut self) {
        let outputs = std::mem::take(&mut self.own().ended);
        let value = |(task, output): (String, Known)| {
            let value = match self.settings.plan.task(&task) {
                Some(task) => scope::value_of(task, output),
                // An instance: the plan learns of it later.
                None => Known::object([("output", output)]),
            };
            (task, value)
        };
        let values = outputs.into_iter().map(value).collect();
        self.own().ended = values;
    }

    /// Keeps the value of a task that is about to end.
    pub(super) fn keep(&mut self, place: usize, value: Known) {
        let name = self.name(place).to_string();
        self.own().ended.insert(name, value);
    }

    /// Keeps the value of a task that has ended, and drops those that only it waited for.
    pub(super) fn task_ended(&mut self, place: usize) {
        self.note(place);
        for dependency in self.settings.plan.dependencies(place).to_vec() {
            self.drop_unused(dependency);
        }
    }

    /// Keeps the value of a task that has ended.
    pub(super) fn note(&mut self, place: usize) {
        let name = self.name(place).clone();
        // The output of a completed task was kept when it was checked.
        let known = self.own().ended.remove(name.as_str());
        let known = known.unwrap_or_else(|| {
            // The instances of a fan-out that did not complete have their ends nevertheless.
            let ends = self.agenda.is_awaited(place).then(|| self.ends_of_instances(place));
            scope::value_of(self.spec(place), ends.flatten().unwrap_or_default())
        });
        if let Some(status) = self.state.task(&name) {
            let results = self.settings.plan.is_read_as_file(place);
            let results = results.then_some(self.settings.results.as_path());
            let value = scope::ended(status, &known, self.state.partial(status), results);
            for (instance, _) in status.instances.clone() {
                self.own().ended.remove(instance.as_str());
            }
            self.own().ended.insert(name.to_string(), value);
        }
        self.drop_unused(place);
    }

    /// Drops the value of a task that no later task may name: outputs can be large.
    fn drop_unused(&mut self, place: usize) {
        if !self.may_be_named(place) {
            let name = self.name(place).clone();
            self.own().ended.remove(name.as_str());
        }
    }
}
