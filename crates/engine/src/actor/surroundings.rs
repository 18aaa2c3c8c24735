//! Where calls happen: the folder that they may touch, and what their commands find around them.
//!
//! They belong to an agent and not to the run, so that agents of one run can work in folders of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::work::{self, Helper};
use crate::id::{AgentId, CallKey};
use crate::spec::run_by_others::ChangedForOthers;
use crate::spec::sandbox::Confinement;
use crate::store::Store;
use crate::tool::environment::Environment;
use crate::tool::sandbox::Sandbox;
use crate::tool::survey::watch::Watch;
use crate::tool::workspace::Workspace;
use crate::tool::wrapper::Wrapper;
use crate::tool::{LONGEST_TIME_LIMIT, TIME_LIMIT, ToolContext};

/// The surroundings of calls. Cheap to share, and never changed.
#[derive(Debug)]
pub struct Surroundings {
    /// The folder in which tools work.
    pub workspace: Arc<Workspace>,
    /// Tells which files that other programs run are changed in it.
    pub watch: Arc<Watch>,
    /// The environment variables of commands.
    pub env: Arc<BTreeMap<String, String>>,
    /// The program that runs commands for this one.
    pub wrapper: Option<Arc<Wrapper>>,
    /// The sandbox of commands.
    pub sandbox: Sandbox,
}

impl Surroundings {
    /// Returns the context of a call that is confined so. Nobody is told of its beginning, nothing is hidden from
    /// its searches, nothing ends it, and its processes get no time to end; whoever calls says otherwise.
    pub(super) fn call(
        &self,
        store: &Arc<Store>,
        key: CallKey,
        within: Confinement,
    ) -> ToolContext {
        ToolContext {
            workspace: self.workspace.clone(),
            store: store.clone(),
            key,
            env: Environment::Only(self.env.clone()),
            basis: Default::default(),
            skills: Arc::default(),
            media: Arc::default(),
            timeout: TIME_LIMIT,
            longest: LONGEST_TIME_LIMIT,
            grace_period: Duration::ZERO,
            orphan_grace: Duration::ZERO,
            cancel: CancellationToken::new(),
            announce: Arc::new(()),
            printing: None,
            unseen: Default::default(),
            sandbox: self.sandbox.within(within),
            read_only: within.read_only,
            wrapper: self.wrapper.clone(),
        }
    }

    /// Looks at the workspace before the first call of the run that may change files.
    pub(super) async fn may_change_files(&self, agent: Option<&AgentId>) {
        if self.watch.note(agent) {
            return;
        }
        let watch = self.watch.clone();
        if let Err(error) = work::blocking(Helper::Watch, move || watch.begin()).await {
            tracing::warn!(%error, "the workspace was not looked at");
        }
    }

    /// Returns what changed for other programs when an agent or a hook has ended.
    pub(super) async fn changed_for_others(
        &self,
        agent: Option<&AgentId>,
    ) -> Vec<ChangedForOthers> {
        if !agent.is_none_or(|agent| self.watch.concerns(agent)) {
            return Vec::new();
        }
        let (watch, agent) = (self.watch.clone(), agent.cloned());
        let looking = work::blocking(Helper::Watch, move || watch.ended(agent.as_ref()));
        looking.await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the workspace was not looked at");
            Vec::new()
        })
    }
}
