//! Runs the hooks of compactions, of tool calls and of the run, and gives them their input.
//!
//! A hook that cannot be run, or that ends with an error of its own, is told of. If it judges a call, the
//! call is denied; else nothing changes (docs/hooks.md). The exception is `on_start`, about which the
//! run machine decides.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::mail::StepError;
use super::services::Services;
use super::step::StepContext;
use super::tool_context::tool_context;
use crate::context::CompactionTrigger;
use crate::id::{AgentId, CallKey};
use crate::message::Json;
use crate::spec::hooks::{Hook, HookFinished, OnHookError};
use crate::spec::sandbox::Confinement;
use crate::tool::hook::{self, Answer};
use crate::tool::{Ending, ToolContext, ToolError, ToolOutput};
use crate::turn_machine::PendingCall;

/// The most characters that a hook adds to what a model reads: the documented limit of a hook's
/// output.
const MOST_SAID: usize = 10_000;

/// The most characters of the output of a hook of the run that are recorded: its end.
const MOST_KEPT: usize = 4_000;

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
        Answer::Block(reason) | Answer::Ask(reason) => {
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
    let timeout = context.services.compaction.hooks.timeout;
    let tool_context = context_of(context, event, &input, timeout);
    match redacted(context, hook::run(argv, &input, &tool_context).await) {
        Ok(answer) => Ok(answer),
        Err(ToolError::Cancelled) => Err(StepError::Cancelled),
        Err(error) => {
            tracing::warn!(agent = %context.agent, hook = event, %error, "a hook did not work");
            Ok(Answer::GoOn(None))
        }
    }
}

/// Returns everything that a hook may use which runs for an agent.
fn context_of(context: &StepContext, event: &str, input: &Json, timeout: Duration) -> ToolContext {
    let (run, input) = (context.services.run, input.as_str());
    let key = CallKey::derive(run, &context.agent, context.turn, 0, event, input);
    ToolContext { timeout, ..tool_context(context, key) }
}

/// Removes secrets from everything that a hook says.
fn redacted(context: &StepContext, answer: Result<Answer, ToolError>) -> Result<Answer, ToolError> {
    let secrets = &context.services.secrets;
    let clean = |mut text: String| {
        secrets.redact(&mut text);
        text
    };
    match answer {
        Ok(Answer::GoOn(text)) => Ok(Answer::GoOn(text.map(clean))),
        Ok(Answer::Ask(reason)) => Ok(Answer::Ask(clean(reason))),
        Ok(Answer::Block(reason)) => Ok(Answer::Block(clean(reason))),
        Err(ToolError::Cancelled) => Err(ToolError::Cancelled),
        Err(error) => Err(ToolError::Failed(clean(error.to_string()))),
    }
}

/// Runs the `pre_tool_use` hook, which may deny the call or have a person asked.
///
/// # Errors
/// Returns an error if the agent must end. The call has not begun then.
pub(super) async fn pre_tool_use(
    context: &StepContext,
    call: &PendingCall,
) -> Result<Answer, ToolError> {
    if context.services.hooks.pre_tool_use.is_empty() {
        return Ok(Answer::GoOn(None));
    }
    of_call(context, call, Hook::PreToolUse, json!({})).await.map_err(|_| ToolError::Unanswered)
}

/// Runs the `post_tool_use` hook, and adds what it says to what the model reads.
pub(super) async fn post_tool_use(
    context: &StepContext,
    call: &PendingCall,
    output: &mut ToolOutput,
) {
    if context.services.hooks.post_tool_use.is_empty() || output.ending == Ending::Denied {
        return;
    }
    let response = json!({
        "text": output.text,
        "is_error": output.is_error(),
        "exit_code": output.exit_code(),
    });
    let own = json!({ "tool_response": response });
    // The call has happened: nothing that the hook says, or that becomes of it, can change that.
    let said = match of_call(context, call, Hook::PostToolUse, own).await {
        Ok(Answer::GoOn(Some(text))) => format!("The hook post_tool_use adds: {text}"),
        Ok(Answer::Block(reason) | Answer::Ask(reason)) => {
            format!("The hook post_tool_use objects: {reason}")
        }
        Ok(Answer::GoOn(None)) | Err(_) => return,
    };
    let end = said.char_indices().nth(MOST_SAID).map_or(said.len(), |(end, _)| end);
    if !output.text.is_empty() && !output.text.ends_with('\n') {
        output.text.push('\n');
    }
    output.text.push_str(&said[..end]);
}

/// Runs a hook of a tool call. That it did not work is recorded; the call is denied then, if the hook
/// judges it and the configuration does not say otherwise.
async fn of_call(
    context: &StepContext,
    call: &PendingCall,
    which: Hook,
    own: Value,
) -> Result<Answer, StepError> {
    let began = Instant::now();
    let mut fields = json!({
        "tool_name": call.call.name,
        "tool_input": call.call.input.to_value(),
        "tool_use_id": call.call.id,
    });
    if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
        fields.extend(own);
    }
    context.services.secrets.redact_value(&mut fields);
    let input = input(context, which.event(), fields);
    let hooks = &context.services.hooks;
    let tool_context = context_of(context, which.event(), &input, hooks.timeout);
    let answer = hook::decide(hooks.command(which), &input, &tool_context).await;
    match redacted(context, answer) {
        // What it prints is meant for people, unless it says so in JSON.
        Ok(Answer::GoOn(Some(_))) if which == Hook::PreToolUse => Ok(Answer::GoOn(None)),
        Ok(answer) => Ok(answer),
        Err(ToolError::Cancelled) => Err(StepError::Cancelled),
        Err(error) => {
            let tool = call.call.name.as_str();
            tracing::warn!(agent = %context.agent, hook = %which, tool, %error, "a hook did not work");
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let recorded = Some(format!("{error} (for a call of {tool})"));
            context
                .record([HookFinished { took_ms, ..HookFinished::new(which, recorded) }])
                .await?;
            let denies = which == Hook::PreToolUse && hooks.on_error == OnHookError::Deny;
            Ok(match denies {
                true => Answer::Block(format!("it did not work, so nothing may run: {error}")),
                false => Answer::GoOn(None),
            })
        }
    }
}

/// Runs a hook of the run itself, and returns the record of its end.
pub(super) async fn of_run(
    services: &Services,
    which: Hook,
    own: Value,
    cancel: CancellationToken,
) -> HookFinished {
    let began = Instant::now();
    let mut fields = json!({
        "session_id": services.run,
        "cwd": services.surroundings.workspace.root_path(),
        "hook_event_name": which.event(),
    });
    if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
        fields.extend(own);
    }
    services.secrets.redact_value(&mut fields);
    let input = Json::encode(&fields);
    let nobody = AgentId::from_text("");
    let key = CallKey::derive(services.run, &nobody, 0, 0, which.key(), input.as_str());
    let context = ToolContext {
        timeout: services.hooks.timeout,
        grace_period: services.limits.grace_period,
        cancel: cancel.clone(),
        ..services.surroundings.call(&services.store, key, Confinement::default())
    };
    services.surroundings.may_change_files(None).await;
    let (mut output, mut error) =
        hook::report(services.hooks.command(which), &input, &context).await;
    if cancel.is_cancelled() {
        error = Some("it was told to end, because the run was stopped".to_owned());
    }
    services.secrets.redact(&mut output);
    error.iter_mut().for_each(|error| services.secrets.redact(error));
    let count = output.chars().count();
    let output = output.chars().skip(count.saturating_sub(MOST_KEPT)).collect();
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let run_by_others = services.surroundings.changed_for_others(None).await;
    let run_by_others_incomplete = services.surroundings.watch.is_incomplete();
    let finished = HookFinished::new(which, error);
    HookFinished { output, took_ms, run_by_others, run_by_others_incomplete, ..finished }
}

/// Makes the input of a hook: the documented fields of all hooks, and those of the event.
fn input(context: &StepContext, event: &str, own: Value) -> Json {
    let services = &context.services;
    let mut fields = json!({
        "session_id": services.run,
        "transcript_path": services.transcript(&context.agent),
        "cwd": context.surroundings.workspace.root_path(),
        "hook_event_name": event,
        "agent_id": context.agent,
        "agent_type": context.spec.as_ref().map(|spec| spec.name.as_str()),
    });
    if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
        fields.extend(own);
    }
    Json::encode(&fields)
}
