//! The steps `send_message` and `list_agents`: an agent writes to other agents of its run.

use serde_json::json;

use super::step::StepContext;
use super::ticket::Ticket;
use crate::messages::{MessageId, NotAMessageId, Queued};
use crate::own_tool::SendMessage;
use crate::run_machine::{Letter, ListAgents, Listed, Refused};
use crate::tool::{ToolError, ToolOutput};
use crate::turn_machine::PendingCall;

/// Sends the message of a call, and returns what became of it once it is durable.
///
/// # Errors
/// Returns an error if the arguments are wrong, or if the agent must end first.
pub(super) async fn send(
    context: &StepContext,
    call: &PendingCall,
    SendMessage { to, text, reply_to }: &SendMessage,
    mut ticket: Ticket,
) -> Result<ToolOutput, ToolError> {
    let reply_to = reply_to.as_deref().map(|id| id.trim().parse::<MessageId>()).transpose();
    let reply_to = reply_to.map_err(|NotAMessageId| {
        ToolError::Arguments("`reply_to` is the id of a message, like `m17`".to_owned())
    })?;
    // Calls of one reply are sent in their order.
    tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
        () = ticket.wait() => {}
    }
    let letter = Letter { to: to.clone(), text: text.clone(), reply_to };
    let answer = context.request(call.key.as_str(), letter);
    drop(ticket);
    let answer = tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
        answer = answer => answer,
    };
    Ok(match answer {
        Some(Ok(Queued { id, returned: Some(reason), .. })) => {
            ToolOutput::error(format!("{id} was returned: {reason}."))
        }
        Some(Ok(Queued { id, to, before, .. })) => {
            ToolOutput::ok(format!("{id} is queued for @{to} ({before} before it)."))
        }
        Some(Err(Refused(reason))) => ToolOutput::error(format!("Not sent: {reason}.")),
        // This cannot happen: no other task waits for the same call.
        None => return Err(ToolError::Unanswered),
    })
}

/// Returns the agents to which the agent can send messages, for its model.
///
/// # Errors
/// Returns an error if the agent must end first.
pub(super) async fn list(
    context: &StepContext,
    call: &PendingCall,
) -> Result<ToolOutput, ToolError> {
    let listed = tokio::select! {
        () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
        listed = context.request(call.key.as_str(), ListAgents) => listed,
    };
    let listed = listed.unwrap_or_default();
    if listed.is_empty() {
        return Ok(ToolOutput::ok("There is nobody to whom you can write now."));
    }
    let row = |agent: &Listed| {
        json!({
            "name": agent.agent,
            "agent": agent.definition,
            "turns": agent.turn,
            "waiting": agent.waiting,
        })
    };
    let rows: Vec<_> = listed.iter().map(|agent| row(agent).to_string()).collect();
    Ok(ToolOutput::ok(rows.join("\n")))
}
