//! The instances of fan-outs in the fold of a run: they begin with the fan-out of their task and end
//! with it at the latest.

use super::{Moment, RunState, TaskStatus};
use crate::id::{AgentId, Name};
use crate::plan::{Instances, TaskState};

/// Reason for the end of an instance that its task no longer needs.
const TASK_ENDED: &str = "its task has ended";

impl RunState {
    /// Adds the instances of a task that fans out. If it has fanned out before over the same items,
    /// its instances stay as they are; otherwise all of them begin anew, and their results can be
    /// reused by the content that they were made from.
    pub(super) fn fan_out(&mut self, name: &Name, instances: &Instances, at: Moment) {
        let Some(task) = self.tasks.get_mut(name) else { return };
        let is_same = task.items.as_ref() == Some(&instances.hash);
        let names = (0..instances.keys.len()).map(|number| name.instance(number));
        let names: Vec<_> = names.zip(instances.keys.iter().cloned()).collect();
        let before = std::mem::replace(&mut task.instances, names.clone());
        task.items = Some(instances.hash.clone());
        if !is_same {
            before.iter().for_each(|(name, _)| self.drop_instance(name));
        }
        for (name, _) in &names {
            if !self.tasks.contains_key(name) {
                let fresh = TaskStatus { since: at, ..self.fresh_instance(name) };
                self.tasks.insert(name.clone(), fresh);
                self.open_tasks = self.open_tasks.saturating_add(1);
            }
        }
    }

    fn drop_instance(&mut self, name: &Name) {
        let Some(status) = self.tasks.swap_remove(name) else { return };
        self.open_tasks -= usize::from(!status.state.is_end());
        let result = status.result().map(|(key, output)| (key.to_owned(), output.clone()));
        self.earlier.extend(result);
    }

    /// Returns the first state of an instance. Its attempt numbers continue, because an id of an
    /// agent is never given twice.
    fn fresh_instance(&self, name: &Name) -> TaskStatus {
        let agents = self.agents.range(AgentId::main(name, 1)..);
        let own = agents.take_while(|(id, _)| id.as_str().starts_with(name.as_str()));
        let mut fresh = TaskStatus::default();
        for (_, agent) in own {
            fresh.attempt += u32::from(agent.parent.is_none());
            fresh.open_agents += u32::from(agent.outcome.is_none());
        }
        fresh.earlier = fresh.attempt;
        fresh
    }

    /// Removes the instances of a task that was opened again and has ended without fanning out. Their
    /// results can be reused by the content that they were made from.
    pub(super) fn drop_instances(&mut self, name: &Name) {
        let Some(task) = self.tasks.get_mut(name) else { return };
        task.items = None;
        let before = std::mem::take(&mut task.instances);
        before.iter().for_each(|(name, _)| self.drop_instance(name));
    }

    /// Ends the instances of a task that has ended before them.
    pub(super) fn end_instances(&mut self, name: &Name, at: Moment) {
        let Some(task) = self.tasks.get(name).filter(|task| !task.instances.is_empty()) else {
            return;
        };
        for (instance, _) in task.instances.clone() {
            let Some(status) = self.tasks.get_mut(&instance) else { continue };
            if !status.state.is_end() {
                status.state = TaskState::Cancelled;
                status.since = at;
                status.reason = Some(TASK_ENDED.to_owned());
                self.open_tasks = self.open_tasks.saturating_sub(1);
            }
        }
    }

    /// Returns the task that fanned out to this instance; `None` if the name is that of no
    /// instance.
    #[must_use]
    pub fn fan_out_of(&self, name: &Name) -> Option<(&Name, &TaskStatus)> {
        self.tasks.get_key_value(name.of_instance()?)
    }
}
