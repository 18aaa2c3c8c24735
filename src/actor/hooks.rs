//! Runs the hooks of a compaction and gives them their input.
//!
//! A hook that cannot be run, or that ends with an error of its own, is logged and changes nothing:
//! a compaction is blocked only by a hook that says so (docs/hooks.md).

use serde_json::{Value, json};

use super::mail::StepError;
use super::step::StepContext;
use super::tool_run;
use crate::context::CompactionTrigger;
use crate::id::CallKey;
use crate::message::Json;
use crate::tool::ToolError;
use crate::tool::hook::{self, Answer};

/// Returns the word for a trigger in the input of hooks. Hooks know only two: a request that was
/// refused as too long counts as `auto`.
fn word(trigger: CompactionTrigger) -> &'static str {
    match trigger {
        CompactionTrigger::Manual => "manual",
        CompactionTrigger::Auto | CompactionTrigger::Reactive => "auto",
    }
}

/// Runs the `pre_compact` hook, which may block the compaction.
pub(super) async fn pre_compact(
    context: &StepContext,
    trigger: CompactionTrigger,
    focus: Option<&str>,
) -> Result<Answer, StepError> {
    let argv = &context.services.compaction.hooks.pre_compact;
    let own = json!({"trigger": word(trigger), "custom_instructions": focus.unwrap_or_default()});
    run(context, argv, "PreCompact", own).await
}

/// Runs the `post_compact` hook. The compaction is recorded by then, so the hook can change
/// nothing.
pub(super) async fn post_compact(context: &StepContext, trigger: CompactionTrigger, summary: &str) {
    let argv = &context.services.compaction.hooks.post_compact;
    let own = json!({"trigger": word(trigger), "compact_summary": summary});
    // The answer does not matter, not even when the agent is cancelled meanwhile.
    let _ = run(context, argv, "PostCompact", own).await;
}

/// Runs the `after_compact_context` hook, and returns the text that the agent should read after the
/// compaction.
pub(super) async fn added_context(context: &StepContext) -> Result<Option<String>, StepError> {
    let argv = &context.services.compaction.hooks.after_compact_context;
    match run(context, argv, "SessionStart", json!({"source": "compact"})).await? {
        Answer::GoOn(text) => Ok(text),
        Answer::Block(reason) => {
            tracing::warn!(agent = %context.agent, reason, "a compaction has happened already");
            Ok(None)
        }
    }
}

async fn run(
    context: &StepContext,
    argv: &[String],
    event: &str,
    own: Value,
) -> Result<Answer, StepError> {
    if argv.is_empty() {
        return Ok(Answer::GoOn(None));
    }
    let input = input(context, event, own);
    let services = &context.services;
    let key = CallKey::derive(services.run, &context.agent, context.turn, 0, event, input.as_str());
    let mut tool_context = tool_run::tool_context(context, key);
    tool_context.timeout = services.compaction.hooks.timeout;
    let redacted = |mut text: String| {
        services.secrets.redact(&mut text);
        text
    };
    match hook::run(argv, &input, &tool_context).await {
        Ok(Answer::GoOn(text)) => Ok(Answer::GoOn(text.map(redacted))),
        Ok(Answer::Block(reason)) => Ok(Answer::Block(redacted(reason))),
        Err(ToolError::Cancelled) => Err(StepError::Cancelled),
        Err(error) => {
            let error = redacted(error.to_string());
            tracing::warn!(agent = %context.agent, hook = event, error, "a hook did not work");
            Ok(Answer::GoOn(None))
        }
    }
}

/// Makes the input of a hook: the documented fields of all hooks, and those of the event.
fn input(context: &StepContext, event: &str, own: Value) -> Json {
    let services = &context.services;
    let mut fields = json!({
        "session_id": services.run,
        "transcript_path": services.transcript(&context.agent),
        "cwd": services.workspace.root_path(),
        "hook_event_name": event,
        "agent_id": context.agent,
        "agent_type": context.spec.as_ref().map(|spec| spec.name.as_str()),
    });
    if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
        fields.extend(own);
    }
    Json::encode(&fields)
}
