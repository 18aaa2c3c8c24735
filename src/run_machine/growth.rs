//! Decides about the tasks that agents propose during a run, and adds them to the plan.

use super::facts::{Facts, Growing};
use super::request::{Proposal, Refused, Reply};
use super::{Action, RunMachine};
use crate::event::{Draft, PlanExtended, PlannedTask};
use crate::id::{AgentId, CallKey};
use crate::plan::PlanError;
use crate::spec::TaskSpec;

/// The most bytes of all their texts, which every later process reads again: as many as a
/// configuration file may have.
const BYTES: usize = 4 << 20;

/// The most tasks that agents may add to a run. Plans that somebody reads stay far below it; it stops
/// agents whose proposals propose.
const MOST: usize = 1000;

impl Facts {
    /// Returns the reason why tasks cannot be added, in words for the model that proposed them.
    fn may_grow_by(&self, tasks: &[TaskSpec], text: &str) -> Result<(), String> {
        if self.is_finishing || self.stopped.is_some() {
            return Err("the run is being stopped".to_owned());
        }
        let coming = || self.growing.values().flat_map(|growing| &growing.tasks);
        let before = self.state.proposed_plans().iter().map(|plan| plan.tasks.len());
        let all = before.sum::<usize>() + coming().count() + tasks.len();
        if all > MOST {
            return Err(format!("the run would have {all} proposed tasks, more than {MOST}"));
        }
        let before = self.state.proposed_plans().iter().map(|plan| plan.text.len());
        if before.sum::<usize>() + text.len() > BYTES {
            let most = BYTES >> 20;
            return Err(format!("the texts of all proposed tasks would have more than {most} MiB"));
        }
        if let Some(same) = tasks.iter().find(|task| coming().any(|other| other.name == task.name))
        {
            return Err(PlanError::Duplicate(same.name.clone()).to_string());
        }
        let found = self.settings.plan.extension(tasks);
        found.map(drop).map_err(|problem| match problem {
            PlanError::Duplicate(name) => {
                let state = self.state.task(&name).map(|status| status.state.as_str());
                format!("task `{name}` exists already ({})", state.unwrap_or("pending"))
            }
            other => other.to_string(),
        })
    }
}

impl RunMachine {
    /// Handles a proposal, or the same proposal again.
    pub(super) fn proposed(&mut self, agent: AgentId, proposal: Proposal) {
        let Proposal { call, text, tasks, agents, files, unasked } = proposal;
        if self.facts.state.proposed_plans().iter().any(|plan| plan.key == call) {
            return self.answer_proposal(agent, call, Ok(()));
        }
        // An interrupted agent proposes again when the run is resumed.
        if self.facts.interrupted.is_some() || self.facts.growing.contains_key(&call) {
            return;
        }
        if let Err(reason) = self.facts.may_grow_by(&tasks, &text) {
            return self.answer_proposal(agent, call, Err(Refused(reason)));
        }
        if let Some(reason) = unasked.then(|| self.facts.too_many(&agent, &tasks)).flatten() {
            return self.answer_proposal(agent, call, Err(Refused(reason)));
        }
        let planned = tasks.iter().map(PlannedTask::from).collect();
        self.facts
            .growing
            .insert(call.clone(), Growing { by: agent.clone(), tasks, agents, unasked });
        let extended = PlanExtended { key: call, by: agent, text, files, tasks: planned, unasked };
        self.record(vec![Draft::run(extended)]);
    }

    /// Adds the tasks of a recorded proposal to the plan.
    ///
    /// # Errors
    /// Returns an error if they cannot be added, although that was checked.
    pub(super) fn extended(&mut self, extended: &PlanExtended) -> Result<(), String> {
        let Some(growing) = self.facts.growing.remove(&extended.key) else { return Ok(()) };
        let Growing { tasks, agents, .. } = growing;
        if !agents.is_empty() {
            let by_name = agents.iter().map(|agent| (agent.name.clone(), agent.clone()));
            self.facts.settings.agents.extend(by_name);
            self.actions.push_back(Action::Define(agents));
        }
        let added =
            self.facts.settings.plan.extend(tasks).map_err(|problem| problem.to_string())?;
        self.facts.agenda.extend(&self.facts.settings.plan, &self.facts.state, added.clone());
        self.facts.share_children(added.start);
        for place in added {
            self.facts.spare_added(place);
        }
        self.answer_proposal(extended.by.clone(), extended.key.clone(), Ok(()));
        Ok(())
    }

    fn answer_proposal(&mut self, agent: AgentId, call: CallKey, answer: Result<(), Refused>) {
        self.reply(agent, call.as_str(), Reply::Tasks(answer));
    }
}
