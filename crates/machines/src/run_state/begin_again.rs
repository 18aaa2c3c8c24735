//! Puts tasks back into their first state: all of them under another configuration, or those that
//! are retried; and the results that are kept.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Moment, RunState, TaskStatus};
use crate::event::{Accepted, PlannedTask, Record};
use crate::id::{AgentId, Name};
use crate::output::Output;

impl RunState {
    /// Returns the result that was made under an earlier configuration from the content with this
    /// key.
    #[must_use]
    pub fn earlier_result(&self, key: &str) -> Option<&Output> {
        self.earlier.get(key)
    }

    /// Returns all results that can be reused, by the key of the content that they were made from:
    /// those of the run's tasks, and those that were made before. The result of a task whose agents
    /// added tasks to the plan counts with these tasks, which another run does not have: so it is none.
    #[must_use]
    pub fn reusable_results(&self) -> BTreeMap<String, Output> {
        let own = self.tasks.values().filter_map(TaskStatus::result);
        let own = own.map(|(key, output)| (key.to_owned(), output.clone()));
        let all = self.earlier.clone().into_iter().chain(own);
        all.filter(|(key, _)| !self.proposers.contains(key)).collect()
    }

    /// Switches to another configuration. Results are kept by the key of the content that they were
    /// made from. Attempts under way are held until the content that they would be made from now is
    /// known.
    pub(super) fn begin_anew(&mut self, accepted: &Accepted, at: Moment) {
        let results = self.tasks.values().filter_map(TaskStatus::result);
        self.earlier.extend(results.map(|(key, output)| (key.to_owned(), output.clone())));
        let mut before = std::mem::take(&mut self.tasks);
        let mut attempts = self.attempts();
        for PlannedTask { name, .. } in &*accepted.tasks {
            let (made, open_agents) = attempts.remove(name).unwrap_or_default();
            let before = before.swap_remove(name);
            let key = before.as_ref().and_then(|status| status.key.clone());
            // What its result was made from may change.
            let again = before.as_ref().is_some_and(|status| status.result().is_some());
            let held = before.and_then(|status| status.held(self.clock.reading()));
            // Attempt numbers continue, because they are part of agent ids and an id is never given
            // twice.
            let fresh = || TaskStatus {
                attempt: made,
                earlier: made,
                open_agents,
                key,
                again,
                ..Default::default()
            };
            let status = TaskStatus { since: at, ..held.unwrap_or_else(fresh) };
            self.tasks.insert(name.clone(), status);
        }
        self.open_tasks = self.tasks.len();
        self.questions.close_those_of_tasks();
        (self.first_failed, self.stopped_by) = (None, None);
        self.order = accepted.tasks.iter().map(|task| task.name.clone()).collect();
        self.completed = None;
        if let Some(created) = &mut self.created {
            let Accepted { config, files, config_hash, inputs, settings, tasks, .. } =
                accepted.clone();
            created.config = config;
            created.files = files;
            created.config_hash = config_hash;
            created.inputs = inputs;
            created.settings = settings;
            created.tasks = tasks;
        }
    }

    /// Opens tasks again that follow from one that begins again. What they are made from may change,
    /// so each of them is decided by its content once the tasks before it have ended.
    pub(super) fn decide_again(&mut self, names: &[Name], at: Moment) -> Result<(), String> {
        let now = self.clock.reading();
        for name in names {
            let task =
                self.tasks.get_mut(name).ok_or_else(|| format!("there is no task `{name}`"))?;
            self.open_tasks += usize::from(task.state.is_end());
            if let Some(id) = &task.question {
                self.questions.close(id);
            }
            *task = TaskStatus { since: at, ..task.decide_again(now) };
        }
        Ok(())
    }

    /// Has each of the tasks that were opened again wait for those of them before it.
    pub(super) fn wait_again<'a>(&mut self, names: impl Iterator<Item = &'a Name>) {
        let opened: HashSet<&Name> = names.collect();
        let planned = self.created.iter().flat_map(|created| created.tasks.iter());
        for task in planned.filter(|task| task.depends_on.iter().any(|on| opened.contains(on))) {
            if let Some(status) =
                self.tasks.get_mut(&task.name).filter(|_| opened.contains(&task.name))
            {
                status.again = true;
            }
        }
    }

    /// Puts tasks back into their first state. The others stay as they are.
    pub(super) fn begin_again(&mut self, names: &[Name], at: Moment) -> Result<(), String> {
        for name in names {
            let Some(task) = self.tasks.get_mut(name) else {
                // Records of earlier versions name instances of a task that did not fan out again.
                match name.of_instance() {
                    Some(_) => continue,
                    None => return Err(format!("there is no task `{name}`")),
                }
            };
            self.open_tasks += usize::from(task.state.is_end());
            if let Some(id) = &task.question {
                self.questions.close(id);
            }
            *task = TaskStatus { since: at, ..task.begin_again() };
        }
        (self.first_failed, self.stopped_by) = (None, None);
        self.completed = None;
        Ok(())
    }

    /// Returns, for each task that has agents, the number of its attempts so far and the number of
    /// its agents that have not ended.
    fn attempts(&self) -> HashMap<Name, (u32, u32)> {
        let mut attempts: HashMap<Name, (u32, u32)> = HashMap::new();
        for agent in self.agents.values() {
            let (made, open) = attempts.entry(agent.task.clone()).or_default();
            *made += u32::from(agent.parent.is_none());
            *open += u32::from(agent.outcome.is_none());
        }
        attempts
    }

    /// Opens an agent that has ended again: its task begins again, and its conversation continues.
    pub(super) fn continues(&mut self, record: &Record, id: &AgentId) -> Result<(), String> {
        let Some(agent) = self.agents.get_mut(id) else { return Ok(()) };
        let task = self.tasks.get_mut(&agent.task).ok_or("its task is gone")?;
        if *id != AgentId::main(&agent.task, task.attempt) {
            return Err("the agent has ended".to_owned());
        }
        task.hold(id)?;
        agent.outcome = None;
        agent.apply(&record.event, record.into(), self.clock.reading());
        // The restart is no crash.
        agent.restarted.pop();
        agent.open = agent.open.saturating_add(1);
        self.open_agents = self.open_agents.saturating_add(1);
        Ok(())
    }
}
