//! Makes the calls of tools that work outside the agents, and keeps an agent from writing over what others made.
//!
//! Where a tool foresees the file that it changes, that file's content is looked at first, and the call writes only if
//! the content is still there when it does. So of two agents that write at once, the second one reads what the first
//! one made.

use std::path::Path;
use std::sync::Arc;

use super::step::StepContext;
use super::tool_context::{record_start, tool_context};
use super::work::{self, Helper};
use crate::id::AgentId;
use crate::journal::stamp;
use crate::tool::basis::{Basis, Before};
use crate::tool::under_way::Mark;
use crate::tool::{Tool, ToolContext, ToolError, ToolOutput};
use crate::turn::files::{self, Stale};
use crate::turn::{Effect, FileChange, FileUse, ToolStarted};
use crate::turn_machine::PendingCall;

/// How often the file of a call may change under it before the call fails.
const LOOKS: u32 = 3;

/// Most paths that a parent reads of the files that a child changed: enough to see which part of a tree it was.
const MOST_CHANGED: usize = 50;

/// Calls a tool that works outside the agent.
pub(super) async fn work(
    context: &StepContext,
    call: &PendingCall,
    basis: Basis,
) -> Result<ToolOutput, ToolError> {
    let name = call.call.name.as_str();
    let Some(tool) = context.services.tools.get(name).cloned() else {
        return Ok(ToolOutput::error(format!("Unknown tool: {name}")));
    };
    let _under_way = under_way(context, call)?;
    let mut looks = 0;
    loop {
        looks += 1;
        let change = Box::pin(foreseen(context, call, &tool)).await?;
        // What a person was shown binds the call already.
        let is_ours = basis.before == Before::Any;
        let before = change.as_ref().filter(|_| is_ours).map(|change| match &change.pre {
            Some(hash) => Before::Hash(hash.clone()),
            None => Before::Absent,
        });
        let basis = Basis { before: before.unwrap_or(basis.before.clone()), ..basis.clone() };
        begin(context, call, &tool, change.clone()).await?;
        match Box::pin(make(context, call, &tool, basis)).await {
            Err(ToolError::Changed(_)) if is_ours && looks < LOOKS => {}
            Ok(output) => return Ok(with_change(output, change.as_ref())),
            Err(error) => return Err(error),
        }
    }
}

/// Makes a call within its time limit.
async fn make(
    context: &StepContext,
    call: &PendingCall,
    tool: &Arc<dyn Tool>,
    basis: Basis,
) -> Result<ToolOutput, ToolError> {
    let tool_context = ToolContext { basis, ..tool_context(context, call.key.clone()) };
    let work = tool.call(call.call.input.clone(), tool_context);
    let Some(limit) = tool.time_limit() else { return work.await };
    let mut work = std::pin::pin!(work);
    tokio::select! {
        result = tokio::time::timeout(limit, work.as_mut()) => {
            return result.unwrap_or(Err(ToolError::Timeout(limit)));
        }
        // The work is not dropped here: a command that receives the signal to end may
        // report its result within the grace period.
        () = context.cancel.cancelled() => {}
    }
    let grace = context.services.limits.grace_period;
    let result = tokio::time::timeout(grace, work).await;
    result.unwrap_or(Err(ToolError::Cancelled))
}

/// Marks a call that would be made again if the process died, and refuses it if the process has died of it
/// too often.
fn under_way(context: &StepContext, call: &PendingCall) -> Result<Option<Mark>, ToolError> {
    match call.effect {
        Effect::Once => Ok(None),
        Effect::Pure | Effect::Keyed | Effect::Checked => {
            context.services.under_way.begin(&call.key)
        }
    }
}

/// Returns the change that a call will make, with the answer that its model reads; `None` if nobody can know.
///
/// # Errors
/// Returns an error if the file holds what somebody else made and the call would write over it.
async fn foreseen(
    context: &StepContext,
    call: &PendingCall,
    tool: &Arc<dyn Tool>,
) -> Result<Option<FileChange>, ToolError> {
    if call.effect != Effect::Checked {
        return Ok(None);
    }
    let (tool, input) = (tool.clone(), call.call.input.clone());
    let workspace = context.surroundings.workspace.clone();
    let foreseen = work::blocking(Helper::Foresight, move || tool.foresee(&input, &workspace));
    let foreseen = foreseen.await.map_err(|error| ToolError::Failed(error.to_string()))?;
    let Some(change) = foreseen else { return Ok(None) };
    let Some(stale) = stale(context, &change) else { return Ok(Some(change)) };
    let words = stale.words(&change.path, stamp::text);
    if !change.in_place {
        return Err(ToolError::Failed(format!(
            "{words}; nothing was written. Read the file, then make the change to what it holds now"
        )));
    }
    let answer = format!("{}\nNote: {words}; the rest of it was kept", change.answer);
    Ok(Some(FileChange { answer, ..change }))
}

/// Returns why the file of a call holds what its agent does not know, if it does.
fn stale(context: &StepContext, change: &FileChange) -> Option<Stale> {
    let now = change.pre.as_deref()?;
    let known = context.files.lock().content(&change.place).map(str::to_owned);
    if known.as_deref() == Some(now) {
        return None;
    }
    let changed = context.services.changed_files.lock();
    let changes = changed.changes(&change.place, now, &context.agent, &context.task);
    files::stale(known.as_deref(), Some(now), changes)
}

/// Records that a call begins. Does nothing if a repetition does no harm, or if the tool announces
/// the beginning itself.
async fn begin(
    context: &StepContext,
    call: &PendingCall,
    tool: &Arc<dyn Tool>,
    change: Option<FileChange>,
) -> Result<(), ToolError> {
    match call.effect {
        Effect::Pure | Effect::Keyed => return Ok(()),
        Effect::Once if tool.announces_itself() => return Ok(()),
        Effect::Once | Effect::Checked => {}
    }
    let started = ToolStarted { key: call.key.clone(), pgid: None, starttime: None, change };
    record_start(context, started).await
}

/// Adds to the output of a call the change that was foreseen, and made.
fn with_change(output: ToolOutput, change: Option<&FileChange>) -> ToolOutput {
    match change {
        Some(change) if !output.is_error() => {
            let file = FileUse::changed(change).map(Box::new);
            ToolOutput { file, text: change.answer.clone(), ..output }
        }
        _ => output,
    }
}

/// Returns the paths of those files that its parent has read and that a child changed, or those that work for it, as
/// the parent names them.
pub(super) fn changed_under(context: &StepContext, child: &AgentId) -> Vec<String> {
    let (files, changed) = (context.files.lock(), context.services.changed_files.lock());
    let read = files.places().filter(|place| changed.is_changed_under(place, child));
    let workspace = &context.surroundings.workspace;
    let mut paths: Vec<_> = read.map(|place| workspace.named(Path::new(place))).collect();
    paths.sort_unstable();
    if paths.len() > MOST_CHANGED {
        let more = paths.len() - MOST_CHANGED;
        paths.truncate(MOST_CHANGED);
        paths.push(format!("... and {more} more"));
    }
    paths
}
