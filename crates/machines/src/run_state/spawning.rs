//! Takes new agents into the fold of a run: below their task and the agents that they work for.

use super::{AgentStatus, RunState};
use crate::event::Record;
use crate::id::AgentId;
use crate::turn::{AgentSpawned, Program};

impl RunState {
    /// Takes in an agent that was created.
    pub(super) fn spawned(
        &mut self,
        record: &Record,
        id: &AgentId,
        spawned: &AgentSpawned,
    ) -> Result<(), String> {
        let task = record.task.clone().ok_or("an agent works for a task")?;
        if self.agents.contains_key(id) {
            return Err("the agent exists already".to_owned());
        }
        let definition = match &spawned.program {
            Program::Model { agent, .. } => Some(agent.clone()),
            Program::Command(_) => None,
        };
        // Whoever waits for it would never hear of it.
        if spawned.call.is_some() && spawned.parent.is_none() {
            return Err("a call asked for it, and nobody made that call".to_owned());
        }
        if let Some(parent) = &spawned.parent {
            let status = self.agents.get_mut(parent).ok_or("its parent does not exist")?;
            if status.task != task {
                return Err("its parent works for another task".to_owned());
            }
            status.children.push(id.clone());
            status.knows_of_children &= !spawned.background;
            self.for_each_ancestor(parent, |agent| agent.open = agent.open.saturating_add(1));
        }
        // A check was started by the plan.
        let is_child = spawned.parent.is_some() && spawned.check.is_none();
        self.descendants += usize::from(is_child || self.is_unasked(&task));
        if let Some(call) = &spawned.call {
            self.by_call.insert(call.clone(), id.clone());
        }
        if let Some(task) = self.tasks.get_mut(&task) {
            task.open_agents = task.open_agents.saturating_add(1);
            if is_child {
                task.child_seq = record.seq;
            }
        }
        self.open_agents = self.open_agents.saturating_add(1);
        let status =
            AgentStatus::new(task, definition, spawned, (record.into(), self.clock.reading()));
        self.agents.insert(id.clone(), status);
        Ok(())
    }

    /// Applies a change to an agent, its parent, and so on up to the task's own agent.
    pub(super) fn for_each_ancestor(&mut self, id: &AgentId, change: impl Fn(&mut AgentStatus)) {
        let mut next = Some(id.clone());
        while let Some(status) = next.and_then(|id| self.agents.get_mut(&id)) {
            change(status);
            next = status.parent.clone();
        }
    }
}
