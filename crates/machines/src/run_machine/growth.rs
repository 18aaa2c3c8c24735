//! Decides about the tasks that agents propose during a run, and adds them to the plan.

use std::collections::HashMap;
use std::sync::Arc;

use super::decision::Decision;
use super::desk::Desk;
use super::request::{Proposal, Refused, Reply};
use super::{Action, Facts};
use crate::event::{Draft, PlanExtended, PlannedTask};
use crate::id::{AgentId, CallKey};
use crate::plan::PlanError;
use crate::spec::{AgentSpec, TaskSpec};

/// The most bytes of all their texts, which every later process reads again: as many as a
/// configuration file may have.
const BYTES: usize = 4 << 20;

/// The most tasks that agents may add to a run. Plans that somebody reads stay far below it; it stops
/// agents whose proposals propose.
const MOST: usize = 1000;

/// The growth of the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    /// The proposals that are on their way to the journal, by the call.
    coming: HashMap<CallKey, Coming>,
}

/// A proposal that is on its way to the journal.
#[derive(Clone, Debug)]
struct Coming {
    /// The agent that proposed it.
    by: AgentId,
    tasks: Vec<TaskSpec>,
    /// The agent definitions that are theirs alone.
    agents: Vec<Arc<AgentSpec>>,
    unasked: bool,
}

impl Growth {
    /// Returns true if a proposal is on its way to the journal.
    pub(super) fn is_coming(&self) -> bool {
        !self.coming.is_empty()
    }

    /// Returns the number of tasks on their way to the journal about which no person was asked, by these
    /// agents.
    pub(super) fn unasked_by(&self, is_one: impl Fn(&AgentId) -> bool) -> usize {
        let theirs = self.coming.values().filter(|coming| coming.unasked && is_one(&coming.by));
        theirs.map(|coming| coming.tasks.len()).sum()
    }
}

impl Facts {
    /// Returns the reason why tasks cannot be added, in words for the model that proposed them.
    fn may_grow_by(&self, tasks: &[TaskSpec], text: &str) -> Result<(), String> {
        if self.pauses.is_finishing() || self.stopping.is_stopped() {
            return Err("the run is being stopped".to_owned());
        }
        let coming = || self.growth.coming.values().flat_map(|coming| &coming.tasks);
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

impl Desk<'_, Growth> {
    /// Handles a proposal, or the same proposal again.
    pub(super) fn proposed(&mut self, agent: AgentId, proposal: Proposal) {
        let Proposal { call, text, tasks, agents, files, unasked } = proposal;
        if self.state.proposed_plans().iter().any(|plan| plan.key == call) {
            return self.answer(agent, call, Ok(()));
        }
        // An interrupted agent proposes again when the run is resumed.
        if self.pauses.is_interrupted() || self.growth.coming.contains_key(&call) {
            return;
        }
        if let Err(reason) = self.may_grow_by(&tasks, &text) {
            return self.answer(agent, call, Err(Refused(reason)));
        }
        if let Some(reason) = unasked.then(|| self.too_many(&agent, &tasks)).flatten() {
            return self.answer(agent, call, Err(Refused(reason)));
        }
        let planned = tasks.iter().map(PlannedTask::from).collect();
        let coming = Coming { by: agent.clone(), tasks, agents, unasked };
        self.own().coming.insert(call.clone(), coming);
        let extended = PlanExtended { key: call, by: agent, text, files, tasks: planned, unasked };
        self.record(vec![Draft::run(extended)]);
    }

    /// Adds the tasks of a recorded proposal to the plan.
    pub(super) fn extended(&mut self, extended: &PlanExtended) {
        if let Some(Coming { tasks, agents, .. }) = self.own().coming.remove(&extended.key) {
            self.post(Decision::ExtendPlan(tasks, agents));
            let (to, id) = (extended.by.clone(), extended.key.as_str().to_owned());
            self.post(Decision::Act(Action::Reply { to, id, reply: Reply::Tasks(Ok(())) }));
        }
    }

    fn answer(&mut self, agent: AgentId, call: CallKey, answer: Result<(), Refused>) {
        self.reply(agent, call.as_str(), Reply::Tasks(answer));
    }
}
