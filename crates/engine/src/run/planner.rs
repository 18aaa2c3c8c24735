//! Checks the tasks that agents propose, by making the configuration of the run again with them.

use std::sync::{Arc, Once};

use parking_lot::Mutex;

use crate::actor::services::{self, Proposed};
use crate::config::{Config, ProposedPlan, wanted_of};
use crate::event::PlanExtended;
use crate::id::{AgentId, CallKey, Name, RunId};
use crate::trust::Store;

/// The configuration of a run, and the plans that were added to it.
#[derive(Debug)]
pub(super) struct Planner {
    config: Config,
    run: RunId,
    /// Done once it is remembered that the plans of this run are trusted.
    remembered: Once,
    added: Mutex<Vec<(CallKey, ProposedPlan)>>,
}

impl Planner {
    /// Creates a planner for a run whose plan was extended by these before.
    pub(super) fn new(config: &Config, run: RunId, before: &[PlanExtended]) -> Self {
        let plan = |of: &PlanExtended| (of.key.clone(), ProposedPlan::new(&of.by, &of.text));
        let (added, remembered) = (Mutex::new(before.iter().map(plan).collect()), Once::new());
        Self { config: config.clone(), run, remembered, added }
    }

    /// Remembers that this user began the run, if its file needs trust: a resume cannot tell a record of its own
    /// from one that came with the project.
    fn remember(&self) {
        let Config { root, content_hash, concerns, .. } = &self.config;
        if !concerns.is_empty() {
            self.remembered.call_once(|| {
                let wanted = wanted_of(self.run);
                let remembered = Store::of_user().remember(root, content_hash, [wanted.as_str()]);
                if let Err(error) = remembered {
                    tracing::info!(%error, "a resume will ask for trust");
                }
            });
        }
    }
}

impl services::Planner for Planner {
    fn read(&self, by: &AgentId, definition: &Name, text: &str) -> Result<Proposed, String> {
        let mut plans: Vec<_> = self.added.lock().iter().map(|(_, plan)| plan.clone()).collect();
        plans.push(ProposedPlan::new(by, text));
        let added = self.config.extended(plans, definition)?;
        self.remember();
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
