//! The steps `wait`, `check_child` and `stop_child`: an agent goes on while its children work.

use serde_json::json;

use super::step::StepContext;
use super::tool_run::child_output;
use super::waits::Wait;
use crate::own_tool;
use crate::run_machine::{ChildLook, ChildStop, ChildWait, Leave, Refused, Seen};
use crate::run_state::Doing;
use crate::tool::{ToolError, ToolOutput};
use crate::turn_machine::PendingCall;

/// Waits for children in the background, and returns what came of it. The agent needs no slot meanwhile, and no actor.
///
/// # Errors
/// Returns an error if the arguments are wrong, or if the agent must end first.
pub(super) async fn wait(
    context: &StepContext,
    call: &PendingCall,
    wait: &own_tool::Wait,
) -> Result<ToolOutput, ToolError> {
    let timeout = wait.time_limit().map_err(ToolError::Arguments)?;
    let asked = ChildWait { names: wait.names.clone(), all: wait.all, timeout };
    let waited = context.request(call.key.as_str(), asked);
    let waiting = context.answers.waits.enter(&call.key, Wait::decided());
    let waited = tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Cancelled),
        waited = waited => waited,
    };
    drop(waiting);
    Ok(match waited {
        Some(Ok(waited)) => ToolOutput::ok(
            json!({
                "ended": waited.ended,
                "working": waited.working,
                "messages": waited.mail,
                "timed_out": waited.late,
            })
            .to_string(),
        ),
        Some(Err(refused)) => error(refused),
        // This cannot happen: no other task waits for the same call.
        None => return Err(ToolError::Unanswered),
    })
}

/// Returns how far a child is, for the model of its parent.
///
/// # Errors
/// Returns an error if the agent must end first.
pub(super) async fn check(
    context: &StepContext,
    call: &PendingCall,
    asked: &own_tool::CheckChild,
) -> Result<ToolOutput, ToolError> {
    let look = ChildLook { name: asked.name.clone() };
    let seen = tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
        seen = context.request(call.key.as_str(), look) => seen,
    };
    Ok(match seen {
        Some(Ok(Seen::Ended(result))) => return child_output(context, &result).await,
        Some(Ok(Seen::Working { agent, turn, doing, usage })) => {
            let seen = json!({
                "status": "working",
                "agent": agent,
                "turn": turn,
                "doing": words(&doing),
                "usage": usage,
            });
            ToolOutput::ok(seen.to_string())
        }
        Some(Err(refused)) => error(refused),
        None => return Err(ToolError::Unanswered),
    })
}

/// Returns what an agent does, in words.
fn words(doing: &Doing) -> String {
    match doing {
        Doing::Starting | Doing::Nothing => "about to act".to_owned(),
        Doing::Model => "waits for a reply of its model".to_owned(),
        Doing::Retrying(pause) => format!("waits to call its model again: {}", pause.kind),
        Doing::Person => "waits for the answer of a person".to_owned(),
        Doing::Tools(tools) => format!("runs {}", tools.join(", ")),
        Doing::Children => "waits for its own children".to_owned(),
        Doing::Compaction => "waits for a summary of its conversation".to_owned(),
    }
}

/// Stops a child.
///
/// # Errors
/// Returns an error if the agent must end first.
pub(super) async fn stop(
    context: &StepContext,
    call: &PendingCall,
    asked: &own_tool::StopChild,
) -> Result<ToolOutput, ToolError> {
    let stop = ChildStop { name: asked.name.clone(), reason: asked.reason.clone() };
    let stopped = tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
        stopped = context.request(call.key.as_str(), stop) => stopped,
    };
    Ok(match stopped {
        Some(Ok(child)) => {
            ToolOutput::ok(format!("@{child} is asked to end; a message says when it has."))
        }
        Some(Err(refused)) => error(refused),
        None => return Err(ToolError::Unanswered),
    })
}

/// Waits until an agent that has answered may end: until it has all messages about its children that have ended, and
/// was told of those that work.
pub(super) async fn leave(context: &StepContext) {
    tokio::select! {
        () = context.cancel.cancelled() => {}
        _ = context.request("", Leave) => {}
    }
}

fn error(Refused(reason): Refused) -> ToolOutput {
    ToolOutput::error(format!("Error: {reason}"))
}
