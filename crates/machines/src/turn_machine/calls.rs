//! The tool calls of one turn: their state, and the results of calls that have none of their own.

use serde::Serialize;

use super::facts::Facts;
use crate::context::layers::inventory::Inventory;
use crate::context::layers::read_state::Read;
use crate::context::view::View;
use crate::failure::{Failure, FailureKind};
use crate::id::CallKey;
use crate::message::{Block, Json, Message, ResultContent, Role, ToolCall, ToolResult};
use crate::output::Output;
use crate::own_tool::Callee;
use crate::spec::sandbox::limit_passed;
use crate::turn::{
    Effect, Outcome, ResultSource, ToolFinished, ToolIntended, ToolStarted, ToolStatus,
};

/// Result of a call that was open when its agent had to end.
const CUT_SHORT: &str = "no result: the agent was told to end before the call had one";

/// Name of the call of a `run` task or of a check, which no model made.
pub const RUN: &str = "run";

/// Returns the failure of an attempt whose command was interrupted.
fn interrupted_because(what: &str) -> Failure {
    let message = format!(
        "the command was interrupted and {what}; it was not run again. Inspect the state before you \
         repeat the task"
    );
    Failure::new(FailureKind::Interrupted, message)
}

/// A tool call of the current turn.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingCall {
    /// Idempotency key of the call.
    pub key: CallKey,
    /// Place of the call in the turn, from 0.
    pub index: u32,
    /// The call as the model wrote it.
    pub call: ToolCall,
    /// The tool that it names.
    pub callee: Callee,
    /// Effect that a repeated call would have.
    pub effect: Effect,
    /// Earlier read that this call repeats and that is still in the view, if repeats are replaced.
    pub repeats: Option<Read>,
    /// Result that the agent itself gives, for a call that only it can answer.
    pub answer: Option<String>,
}

impl PendingCall {
    /// Makes a call of a tool that works outside the agent.
    #[must_use]
    pub fn new(key: CallKey, index: u32, call: ToolCall, effect: Effect) -> Self {
        let (callee, repeats, answer) = (Callee::Other, None, None);
        Self { key, index, call, callee, effect, repeats, answer }
    }
}

/// An open call that had begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupted {
    /// The call.
    pub call: PendingCall,
    /// The record of its beginning.
    pub started: ToolStarted,
}

/// State of a call, folded from its events.
#[derive(Clone, Debug)]
pub(super) struct CallState {
    pub(super) call: ToolCall,
    pub(super) callee: Callee,
    pub(super) intended: Option<(CallKey, Effect)>,
    /// Record of the latest beginning of the call.
    pub(super) started: Option<ToolStarted>,
    pub(super) result: Option<CallResult>,
    /// What its end says of loops.
    pub(super) facts: Option<Facts>,
}

/// The result of a call: its block as it was recorded, and what that says.
#[derive(Clone, Debug)]
pub(super) struct CallResult {
    pub(super) json: Json,
    pub(super) block: Block,
}

impl CallResult {
    pub(super) fn of(json: Json) -> Self {
        Self { block: json.block(), json }
    }
}

impl CallState {
    /// Makes the state of a call that no event has followed yet.
    pub(super) fn asked(call: ToolCall) -> Self {
        let callee = Callee::of(&call);
        Self { call, callee, intended: None, started: None, result: None, facts: None }
    }
}

/// Makes the state of the call of a command agent, which no model asked for.
pub(super) fn announced(intended: &ToolIntended) -> CallState {
    let (id, name) = (intended.id.clone(), intended.name.clone());
    let call = ToolCall { id, name, input: intended.input.clone() };
    CallState::asked(call)
}

/// Notes that a call began.
pub(super) fn note_start(calls: &mut [CallState], started: &ToolStarted) {
    let is_it = |state: &&mut CallState| {
        state.intended.as_ref().is_some_and(|(key, _)| *key == started.key)
    };
    if let Some(state) = calls.iter_mut().find(is_it) {
        state.started = Some(started.clone());
    }
}

/// Returns the calls that were announced and have no result yet, in call order.
pub(super) fn open(calls: &[CallState]) -> Vec<PendingCall> {
    calls.iter().enumerate().filter_map(pending).collect()
}

/// Returns the open calls that had begun.
pub(super) fn interrupted(calls: &[CallState]) -> Vec<Interrupted> {
    let begun = calls.iter().enumerate().filter_map(|(index, state)| {
        Some(Interrupted { call: pending((index, state))?, started: state.started.clone()? })
    });
    begun.collect()
}

fn pending((index, state): (usize, &CallState)) -> Option<PendingCall> {
    if state.result.is_some() {
        return None;
    }
    let (key, effect) = state.intended.clone()?;
    let index = u32::try_from(index).ok()?;
    let callee = state.callee.clone();
    Some(PendingCall { callee, ..PendingCall::new(key, index, state.call.clone(), effect) })
}

/// Returns results for the calls that an agent leaves open when it has to end.
pub(super) fn closings(turn: u32, open: Vec<PendingCall>) -> Vec<ToolFinished> {
    let answer = |call: PendingCall| {
        // A call that may simply be made again has left nothing that anybody must inspect.
        let status = match call.effect.is_repeatable() {
            true => ToolStatus::Error,
            false => ToolStatus::Unknown,
        };
        answer(turn, call, status, CUT_SHORT.to_owned())
    };
    open.into_iter().map(answer).collect()
}

/// Makes a result for a call that has none of its own.
pub(super) fn answer(
    turn: u32,
    call: PendingCall,
    status: ToolStatus,
    text: String,
) -> ToolFinished {
    let result = ToolResult {
        tool_use_id: call.call.id,
        content: ResultContent::Text(text),
        is_error: status != ToolStatus::Ok,
    };
    ToolFinished {
        source: ResultSource::Recovered,
        ..ToolFinished::new(
            call.key,
            turn,
            call.index,
            call.call.name,
            status,
            Json::encode(&Block::ToolResult(result)),
        )
    }
}

/// Adds a call and its result to the inventory.
pub(super) fn take_stock(
    inventory: &mut Inventory,
    view: &mut View,
    (call, callee): (&ToolCall, &Callee),
    (source, block): (ResultSource, &Block),
) {
    if source == ResultSource::Unchanged {
        inventory.read_again(call, view);
    } else if Inventory::follows(call, callee)
        && let Block::ToolResult(result) = block
    {
        // All results of a turn go into the message that comes next.
        inventory.note(view.next_message(), call, callee, result);
    }
}

/// Returns the outcome of an agent that ran one command.
#[must_use]
pub fn command_outcome(finished: &ToolFinished) -> Outcome {
    let text = match finished.block.block() {
        Block::ToolResult(result) => result.text(),
        _ => String::new(),
    };
    let beside = finished.printed.as_deref();
    let output = match beside.and_then(|printed| printed.stdout.clone()) {
        Some(stdout) => stdout,
        None => Output { text, stored: finished.stored.clone() },
    };
    // Where both streams were kept, a failure shows the last lines of both.
    let last = match beside {
        Some(printed) if !printed.last_lines.is_empty() => &printed.last_lines,
        _ => &output.text,
    };
    let failed = |message: String| Failure::new(FailureKind::CommandFailed, message);
    let failure = match (finished.status, finished.exit_code) {
        (ToolStatus::Ok, _) => return Outcome::Completed { output },
        (ToolStatus::Unknown, _) => match beside {
            Some(_) => interrupted_because("may have taken effect").with_output(last),
            // The text is what a model reads, and no output.
            None => interrupted_because("may have taken effect"),
        },
        // A command that caught the signal and ended by itself has not done its work.
        (ToolStatus::Error, Some(code)) if finished.told_to_end => {
            interrupted_because(&format!("ended by itself with exit code {code}")).with_output(last)
        }
        (ToolStatus::Error, Some(code)) => {
            let limit = limit_passed(code).map(|limit| format!(": {limit}"));
            let message = format!("the command ended with exit code {code}");
            let sandbox = beside.and_then(|printed| printed.sandbox.as_deref());
            let sandbox = sandbox.map(|sandbox| format!("; {sandbox}")).unwrap_or_default();
            let failure = failed(message + limit.as_deref().unwrap_or_default() + &sandbox);
            Failure { exit_code: Some(code), ..failure.with_output(last) }
        }
        // Without an exit code, the text is the reason of the failure and not an output.
        (ToolStatus::Error, None) => {
            return Outcome::Failed { failure: failed(output.text), partial: None };
        }
    };
    Outcome::Failed { failure, partial: Some(output) }
}

/// Returns the user message that carries the results of one turn, with their encoded blocks as they
/// are, and what it says: no block is encoded or read again.
pub(super) fn results_message(results: Vec<CallResult>) -> (Json, Message) {
    #[derive(Serialize)]
    struct Results<'a> {
        role: Role,
        content: &'a [Json],
    }
    let (encoded, content): (Vec<_>, Vec<_>) =
        results.into_iter().map(|CallResult { json, block }| (json, block)).unzip();
    let json = Json::encode(&Results { role: Role::User, content: &encoded });
    (json, Message { role: Role::User, content })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AgentId, RunId};

    #[test]
    fn a_command_is_done_when_nobody_had_to_end_it() {
        use ToolStatus::{Error, Ok, Unknown};
        for (status, exit_code, told_to_end, kind) in [
            (Ok, Some(0), false, None),
            (Error, Some(1), false, Some(FailureKind::CommandFailed)),
            (Error, None, false, Some(FailureKind::CommandFailed)),
            (Error, Some(0), true, Some(FailureKind::Interrupted)),
            (Error, Some(143), true, Some(FailureKind::Interrupted)),
            (Unknown, None, false, Some(FailureKind::Interrupted)),
        ] {
            let key = CallKey::derive(
                RunId::from(uuid::Uuid::now_v7()),
                &AgentId::from_text("a"),
                1,
                0,
                "t",
                "{}",
            );
            let input = Json::encode(&serde_json::json!({}));
            let call = ToolCall { id: "run".to_owned(), name: "run".to_owned(), input };
            let call = PendingCall::new(key, 0, call, Effect::Once);
            let finished = answer(1, call, status, "x".to_owned());
            let outcome = command_outcome(&ToolFinished { exit_code, told_to_end, ..finished });
            let failed = match outcome {
                Outcome::Failed { failure, partial } => {
                    let has_output = (status, exit_code) != (Error, None);
                    assert_eq!(partial, has_output.then(|| Output::whole("x")));
                    Some(failure.kind)
                }
                Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
            };
            assert_eq!(failed, kind, "{status:?} {exit_code:?} {told_to_end}");
        }
    }
}
