//! The spans of diagnostics: one for a run, an agent, a turn and a tool call.
//!
//! Names and fields follow the OpenTelemetry conventions for generative AI, plus `run_id`, `task_id`
//! and the turn's number. At the default level nobody listens, and a span costs one comparison.

use tracing::Span;
use tracing::field::{self, Empty};

use crate::id::{AgentId, Name, RunId};
use crate::message::{ToolCall, Usage};

/// Makes the span of a run, the parent of its agents' spans.
pub(crate) fn run(run: RunId, workflow: &str) -> Span {
    tracing::info_span!(
        parent: None,
        "invoke_workflow",
        run_id = %run,
        gen_ai.workflow.name = workflow,
    )
}

/// Makes the span of an agent's actor.
pub(super) fn agent(run: &Span, task: &Name, agent: &AgentId, definition: Option<&Name>) -> Span {
    // An agent is spawned by the supervisor, whatever span is current there.
    tracing::info_span!(
        parent: run,
        "invoke_agent",
        task_id = %task,
        gen_ai.agent.id = %agent,
        gen_ai.agent.name = definition.map(field::display),
    )
}

/// Makes the span of a turn: one model call with its retries.
pub(super) fn turn(turn: u32, model: &Name) -> Span {
    tracing::info_span!(
        "chat",
        turn,
        gen_ai.request.model = %model,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
    )
}

/// Adds the tokens of its reply to the span of a turn.
pub(super) fn reply(turn: &Span, usage: &Usage) {
    turn.record("gen_ai.usage.input_tokens", usage.context());
    turn.record("gen_ai.usage.output_tokens", usage.output);
}

/// Makes the span of a tool call.
pub(super) fn tool(call: &ToolCall) -> Span {
    tracing::info_span!("execute_tool", gen_ai.tool.name = call.name, gen_ai.tool.call.id = call.id,)
}
