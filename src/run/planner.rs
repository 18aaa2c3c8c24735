//! Checks the tasks that agents propose, by making the configuration of the run again with them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::actor::services::{self, Proposed};
use crate::config::{Config, ProposedPlan};
use crate::event::PlanExtended;
use crate::id::{AgentId, CallKey, Name};

/// The configuration of a run, and the plans that were added to it.
#[derive(Debug)]
pub(super) struct Planner {
    config: Config,
    added: Mutex<Vec<(CallKey, ProposedPlan)>>,
}

impl Planner {
    /// Creates a planner for a run whose plan was extended by these before.
    pub(super) fn new(config: &Config, before: &[PlanExtended]) -> Self {
        let plan = |of: &PlanExtended| (of.key.clone(), ProposedPlan::new(&of.by, &of.text));
        Self { config: config.clone(), added: Mutex::new(before.iter().map(plan).collect()) }
    }
}

impl services::Planner for Planner {
    fn read(&self, by: &AgentId, definition: &Name, text: &str) -> Result<Proposed, String> {
        let mut plans: Vec<_> = self.added.lock().iter().map(|(_, plan)| plan.clone()).collect();
        plans.push(ProposedPlan::new(by, text));
        let added = self.config.extended(plans, definition)?;
        Ok(Proposed {
            tasks: added.tasks,
            agents: added.agents.into_iter().map(Arc::new).collect(),
            files: added.files,
            is_allowed: added.is_allowed,
        })
    }

    fn added(&self, call: &CallKey, by: &AgentId, text: &str) {
        let mut added = self.added.lock();
        if !added.iter().any(|(known, _)| known == call) {
            added.push((call.clone(), ProposedPlan::new(by, text)));
        }
    }

    fn has(&self, call: &CallKey) -> bool {
        self.added.lock().iter().any(|(known, _)| known == call)
    }
}
