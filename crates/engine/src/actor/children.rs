//! The steps `delegate`, `wait`, `check_child` and `stop_child`: an agent and its children.

use serde_json::json;

use super::mail::SupervisorMsg;
use super::outside;
use super::step::StepContext;
use super::ticket::Ticket;
use super::waits::Wait;
use crate::own_tool::{self, Delegate};
use crate::run_machine::{
    ChildLook, ChildReply, ChildResult, ChildStop, ChildWait, Delegation, Leave, Refused, Seen,
};
use crate::run_state::Doing;
use crate::spec::budget::Caps;
use crate::tool::{ToolError, ToolOutput};
use crate::turn_machine::PendingCall;

/// Most characters of a child's answer that its parent reads: the documented limit of sub-agent
/// results. The child's transcript holds the whole answer.
const CHILD_TEXT_CHARS: usize = 32_000;

/// Delegates a job to a child agent, and waits for its result, or until it has begun if it works in the background.
pub(super) async fn delegate(
    context: &StepContext,
    call: &PendingCall,
    job: &Delegate,
    mut ticket: Ticket,
) -> Result<ToolOutput, ToolError> {
    let helpers = context.spec.as_ref().map(|spec| spec.sub_agents.as_slice()).unwrap_or_default();
    if !helpers.contains(&job.agent) {
        let names: Vec<_> = helpers.iter().map(crate::id::Name::as_str).collect();
        let problem = format!("agent `{}` is not one of: {}", job.agent, names.join(", "));
        return Err(ToolError::Arguments(problem));
    }
    if job.prompt.trim().is_empty() {
        // No provider accepts a message without text.
        return Err(ToolError::Arguments("`prompt` is blank".to_owned()));
    }
    let timeout = job.time_limit().map_err(ToolError::Arguments)?;
    let output_schema = job.schema().map_err(ToolError::Arguments)?;
    job.check_continuing().map_err(ToolError::Arguments)?;
    let wants_more = job.background || job.name.is_some() || job.continues.is_some();
    if wants_more && !context.spec.as_ref().is_some_and(|spec| spec.background) {
        let problem = "`background`, `name` and `continue` are not permitted to this agent";
        return Err(ToolError::Arguments(problem.to_owned()));
    }
    ticket.wait().await;
    let delegation = Delegation {
        budget: Caps::of_child(job.budget.as_ref()).map_err(ToolError::Arguments)?,
        depth: context.depth + 1,
        call: call.key.clone(),
        agent: job.agent.clone(),
        prompt: job.prompt.clone(),
        timeout,
        output_schema,
        background: job.background,
        name: job.name.clone(),
        continues: job.continues.clone(),
    };
    let result = context.request(call.key.as_str(), delegation);
    let waiting = context.answers.waits.enter(&call.key, Wait::decided());
    // The next call asks as soon as this one has asked; it does not wait for this child's result.
    drop(ticket);
    let result = tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Cancelled),
        result = result => result,
    };
    drop(waiting);
    match result {
        Some(Ok(ChildReply::Ended(child))) => child_output(context, &child).await,
        Some(Ok(ChildReply::Begun(agent))) => {
            let begun = serde_json::json!({"status": "begun", "agent": agent});
            Ok(ToolOutput::ok(begun.to_string()))
        }
        Some(Err(Refused(reason))) => Ok(ToolOutput::refused(format!("Error: {reason}"))),
        // This cannot happen: no other task waits for the same call.
        None => until_cancelled(context).await,
    }
}

/// Waits until the agent is cancelled.
async fn until_cancelled<T>(context: &StepContext) -> Result<T, ToolError> {
    context.cancel.cancelled().await;
    Err(ToolError::Cancelled)
}

/// Makes the result that a parent reads of its child: a JSON object whose text has a bounded
/// length.
async fn child_output(context: &StepContext, child: &ChildResult) -> Result<ToolOutput, ToolError> {
    let (status, output, failure) = child.outcome.as_of_child();
    let text = match output {
        Some(output) => context.services.whole_text(output).await,
        None => Ok(String::new()),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            // The stored answer of the child is lost. The run stops, so that nobody takes the
            // preview for the whole.
            context.services.tell_supervisor(SupervisorMsg::JournalFailed(error));
            return until_cancelled(context).await;
        }
    };
    let transcript = context.services.transcript(&child.agent);
    let changed = outside::changed_under(context, &child.agent);
    let mut result = serde_json::json!({
        "status": status,
        "agent": child.agent,
        "error": &failure,
        "text": shortened(&text),
        "turns": child.turns,
        "usage": child.usage,
        "transcript": transcript,
    });
    if failure.is_some() {
        result["result"] = child.outcome.word().into();
        result["partial"] = (!text.is_empty()).into();
    }
    if !changed.is_empty() {
        result["changed_since_you_read"] = changed.into();
    }
    let text = result.to_string();
    Ok(if status == "completed" { ToolOutput::ok(text) } else { ToolOutput::error(text) })
}

/// Returns a text unchanged, or the beginning and the end of a text that is too long.
fn shortened(text: &str) -> String {
    let total = text.chars().count();
    if total <= CHILD_TEXT_CHARS {
        return text.to_owned();
    }
    let half = CHILD_TEXT_CHARS / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(total - half).collect();
    format!("{head}\n... {} characters left out; see the transcript ...\n{tail}", total - 2 * half)
}

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
        // The run hears of a call only when it has ended.
        Doing::Starting | Doing::Nothing | Doing::Model => "works".to_owned(),
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
