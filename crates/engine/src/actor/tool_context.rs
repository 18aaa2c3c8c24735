//! Everything that a call of a tool may use, and the record of its beginning.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::step::StepContext;
use crate::crash::{self, Point};
use crate::event::Event;
use crate::id::{AgentId, CallKey};
use crate::person::Watcher;
use crate::tool::printing::{Printed, Printing};
use crate::tool::{Announce, BoxFuture, LONGEST_TIME_LIMIT, ToolContext, ToolError};
use crate::turn::{Process, ToolStarted};

/// Records that a call begins.
pub(super) async fn record_start(
    context: &StepContext,
    started: ToolStarted,
) -> Result<(), ToolError> {
    let recorded = context.record([Event::from(started)]).await;
    let records = recorded.map_err(|error| ToolError::Failed(error.to_string()))?;
    let seq = records.last().map_or(0, |record| record.seq);
    // Before the file changes: whoever finds the new content finds out who made it.
    records.iter().for_each(|record| context.services.changed_files.lock().note(record));
    context.begun.store(seq, Ordering::Relaxed);
    crash::pass(Point::AfterStart);
    Ok(())
}

/// Records the beginnings that tools announce themselves.
#[derive(Debug)]
struct Announcer {
    context: StepContext,
    key: CallKey,
}

impl Announce for Announcer {
    fn announce(&self, process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>> {
        let (pgid, starttime) = process.map(|p| (p.pgid, p.starttime)).unzip();
        let started = ToolStarted { key: self.key.clone(), pgid, starttime, change: None };
        Box::pin(record_start(&self.context, started))
    }
}

/// Passes what the commands of an agent print to the watcher of the run.
#[derive(Debug)]
struct Passed {
    agent: AgentId,
    watcher: Arc<dyn Watcher>,
}

impl Passed {
    fn of(context: &StepContext) -> Self {
        Self { agent: context.agent.clone(), watcher: context.services.watcher.clone() }
    }
}

impl Printing for Passed {
    fn is_read(&self) -> bool {
        self.watcher.watches_commands()
    }

    fn take(&self, printed: Printed) {
        if self.is_read() {
            self.watcher.printed(&self.agent, &printed);
        }
    }
}

/// Returns everything that a tool may use in this call.
pub(super) fn tool_context(context: &StepContext, key: CallKey) -> ToolContext {
    let services = &context.services;
    let skills = context.spec.as_ref().map(|spec| spec.skills.as_slice());
    let unseen = context.spec.as_ref().map(|spec| spec.permissions.unseen());
    let announcer = Announcer { context: context.clone(), key: key.clone() };
    let of_agent = context.spec.as_ref().map(|spec| spec.confinement).unwrap_or_default();
    let confinement = of_agent.and(context.confinement);
    let model = context.spec.as_ref().and_then(|spec| services.models.get(&spec.model));
    ToolContext {
        media: model.map(|service| service.spec.media.clone()).unwrap_or_default().into(),
        announce: Arc::new(announcer),
        unseen: unseen.unwrap_or_default(),
        skills: skills.unwrap_or_default().into(),
        grace_period: services.limits.grace_period,
        orphan_grace: services.limits.orphan_grace,
        cancel: context.cancel.clone(),
        longest: context.time_limit.unwrap_or(LONGEST_TIME_LIMIT),
        printing: Some(Arc::new(Passed::of(context))),
        ..context.surroundings.call(&services.store, key, confinement)
    }
}
