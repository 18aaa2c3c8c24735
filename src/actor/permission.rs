//! Decides whether a call may run, and asks a person where the rules say so.

use super::hooks;
use super::services::{Asker, Question};
use super::step::StepContext;
use crate::journal::JournalError;
use crate::message::Json;
use crate::permission::{NonInteractive, Rule, Subject, Verdict};
use crate::spec::AgentSpec;
use crate::tool::hook::Answer;
use crate::tool::sandbox::Sandbox;
use crate::tool::{Change, ToolError, bash};
use crate::turn::{ApprovalAnswered, ApprovalAsked, ApprovalKind, GIVE_UP_TOOL};
use crate::turn_machine::PendingCall;

/// Returns true if the rules allow a call without asking a person.
pub(super) fn is_allowed(context: &StepContext, name: &str, input: &Json) -> bool {
    if name == GIVE_UP_TOOL {
        return true;
    }
    let Some(spec) = &context.spec else { return true };
    match judged(context, spec, name, input).0 {
        Verdict::Allow => true,
        Verdict::Deny => false,
        Verdict::Ask => {
            let nobody = context.services.asker.is_none();
            nobody && spec.permissions.non_interactive == NonInteractive::Allow
        }
    }
}

/// Returns the verdict of the rules on a call, and the rule that gave it, if one did.
fn judged<'a>(
    context: &StepContext,
    spec: &'a AgentSpec,
    name: &str,
    input: &Json,
) -> (Verdict, Option<&'a Rule>) {
    // Resolving a path costs file system calls, so it is done only if a rule depends on it. A
    // command may write files, which the rules for another tool are about.
    let is_weighed = name == bash::NAME || spec.permissions.depends_on_arguments(name);
    let subject =
        if is_weighed { subject(context, name, input) } else { Subject::of(name, vec![]) };
    let is_on = matches!(context.services.sandbox, Sandbox::On(_));
    let subject = Subject { sandboxed: is_on && name == bash::NAME, ..subject };
    spec.permissions.judge(name, &subject)
}

/// Returns what a call does, as the rules see it.
fn subject(context: &StepContext, name: &str, input: &Json) -> Subject {
    match context.services.tools.get(name) {
        Some(tool) if name != "delegate" => tool.subject(input, &context.services.workspace),
        Some(_) | None => Subject::of(name, rule_texts(context, name, input)),
    }
}

/// Returns the texts by which rules may name a call.
fn rule_texts(context: &StepContext, name: &str, input: &Json) -> Vec<String> {
    if name == "delegate" {
        // A rule names the agent to which a job is delegated.
        let agent = input.to_value()["agent"].as_str().map(str::to_owned);
        return agent.into_iter().collect();
    }
    let tool = context.services.tools.get(name);
    let texts = tool.map(|tool| tool.permission_arguments(input, &context.services.workspace));
    texts.unwrap_or_default()
}

/// Returns the reason why a call may not run, in words for the model; `None` if it may run. Asks a
/// person where the rules say so.
///
/// # Errors
/// Returns an error if the agent must end before a person has answered. The call has not begun then.
pub(super) async fn denial(
    context: &StepContext,
    call: &PendingCall,
) -> Result<Option<String>, ToolError> {
    let (name, input) = (call.call.name.as_str(), &call.call.input);
    let Some(spec) = &context.spec else { return Ok(None) };
    let (verdict, rule) = judged(context, spec, name, input);
    // What is denied anyway needs no hook; a hook can only take away from what the rules allow.
    let asking = match verdict {
        Verdict::Deny => None,
        Verdict::Allow | Verdict::Ask => match hooks::pre_tool_use(context, call).await? {
            Answer::GoOn(_) => None,
            Answer::Ask(reason) => Some(reason),
            Answer::Block(reason) => {
                return Ok(Some(format!("Denied by the hook pre_tool_use: {reason}")));
            }
        },
    };
    let verdict = if asking.is_some() { Verdict::Ask } else { verdict };
    let because = || {
        if let Some(reason) = &asking {
            return format!("the hook pre_tool_use wants a person to decide ({reason})");
        }
        rule.map_or_else(
            || {
                let texts = rule_texts(context, name, input);
                let why = subject(context, name, input).unclear;
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                match texts.first() {
                    Some(text) => format!("no rule allows `{name}({text})`{why}"),
                    None => format!("no rule allows `{name}`"),
                }
            },
            |rule| format!("the rule `{rule}` says so"),
        )
    };
    Ok(match verdict {
        Verdict::Allow => None,
        Verdict::Deny => Some(format!("Permission denied: {}.", because())),
        Verdict::Ask => match (&context.services.asker, spec.permissions.non_interactive) {
            (Some(asker), _) => {
                let question = Question {
                    agent: context.agent.clone(),
                    tool: name.to_owned(),
                    input: input.clone(),
                    texts: rule_texts(context, name, input),
                    subject: subject(context, name, input),
                    rule: rule.filter(|_| asking.is_none()).map(ToString::to_string),
                    change: change(context, name, input).await,
                };
                let allowed = asked(context, call, asker.as_ref(), question).await?;
                (!allowed)
                    .then(|| "Permission denied: the person who was asked said no.".to_owned())
            }
            (None, NonInteractive::Allow) => None,
            (None, NonInteractive::Deny) => Some(format!(
                "Permission denied: {}, a person would have to be asked, and nobody is at a \
                 terminal.",
                because()
            )),
        },
    })
}

/// Asks a person, and again if the file has changed meanwhile, so that the call would do something
/// else than what was shown.
async fn asked(
    context: &StepContext,
    call: &PendingCall,
    asker: &dyn Asker,
    mut question: Question,
) -> Result<bool, ToolError> {
    loop {
        let shown = question.change.clone();
        if !ask(context, call, asker, question.clone()).await? {
            return Ok(false);
        }
        question.change = change(context, &question.tool, &question.input).await;
        if question.change == shown {
            return Ok(true);
        }
    }
}

/// Asks a person, and records the question before and the answer after, so that other terminals see
/// what the agent waits for.
async fn ask(
    context: &StepContext,
    call: &PendingCall,
    asker: &dyn Asker,
    question: Question,
) -> Result<bool, ToolError> {
    let failed = |error: JournalError| ToolError::Failed(error.to_string());
    let id = call.key.to_string();
    let message = format!("{} {}", question.tool, question.texts.first().map_or("", |t| t));
    let message = message.trim_end().to_owned();
    let (kind, tool) = (ApprovalKind::Permission, question.tool.clone());
    let asked = ApprovalAsked { id: id.clone(), kind, tool, message };
    context.record([asked]).await.map_err(failed)?;
    let allowed = tokio::select! {
        allowed = asker.ask(question) => allowed,
        () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
    };
    context.record([ApprovalAnswered { id, allowed }]).await.map_err(failed)?;
    Ok(allowed)
}

/// Returns the change that a call would make to a file, if its tool can tell.
async fn change(context: &StepContext, name: &str, input: &Json) -> Option<Change> {
    let tool = context.services.tools.get(name).cloned()?;
    let (input, workspace) = (input.clone(), context.services.workspace.clone());
    tokio::task::spawn_blocking(move || tool.preview(&input, &workspace)).await.ok().flatten()
}
