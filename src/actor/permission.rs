//! Decides whether a call may run, and asks a person where the rules say so.

use std::ffi::OsString;

use serde_json::json;

use super::hooks;
use super::mail::SupervisorMsg;
use super::questions::{self, Here};
use super::services::{Effect, Question};
use super::step::StepContext;
use crate::message::Json;
use crate::output::Output;
use crate::permission::{NonInteractive, Rule, Subject, Verdict};
use crate::run_state::questions::Answered;
use crate::spec::AgentSpec;
use crate::tool::hook::Answer;
use crate::tool::sandbox::Sandbox;
use crate::tool::{Change, ToolError, bash};
use crate::turn::question::{ApprovalAsked, ApprovalKind, PersonsAnswer};
use crate::turn::{ASK_PERSON_TOOL, GIVE_UP_TOOL, PROPOSE_TASKS_TOOL};
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
        // They ask by themselves.
        Verdict::Ask if name == ASK_PERSON_TOOL || name == PROPOSE_TASKS_TOOL => true,
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
        Some(tool) if name == bash::NAME => {
            let path = context.services.env.get("PATH").map(OsString::from);
            let path = path.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
            let workspace = &context.services.workspace;
            bash::locate(tool.subject(input, workspace), &path, workspace.root_path())
        }
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
                let subject = subject(context, name, input);
                let why = subject.why().map(|why| format!(" ({why})")).unwrap_or_default();
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
        // A person who does not want the question need not answer it.
        Verdict::Ask if name == ASK_PERSON_TOOL || name == PROPOSE_TASKS_TOOL => None,
        Verdict::Ask => match (&context.services.asker, spec.permissions.non_interactive) {
            (None, NonInteractive::Allow) => None,
            (None, NonInteractive::Deny) => {
                deny_open_question(context, call);
                Some(format!(
                    "Permission denied: {}, a person would have to be asked, and nobody is at a \
                     terminal.",
                    because()
                ))
            }
            (Some(_), _) | (None, NonInteractive::Pause) => {
                let question = Question {
                    agent: context.agent.clone(),
                    tool: name.to_owned(),
                    input: input.clone(),
                    texts: rule_texts(context, name, input),
                    subject: subject(context, name, input),
                    rule: rule.filter(|_| asking.is_none()).map(ToString::to_string),
                    change: change(context, name, input).await,
                };
                asked(context, call, question).await?.map(refusal)
            }
        },
    })
}

/// Returns the answer of a person who said no, in words for the model.
fn refusal(reason: Option<String>) -> String {
    let reason = reason.map(|reason| format!(" The reason: {reason}"));
    format!("Permission denied: the person who was asked said no.{}", reason.unwrap_or_default())
}

/// Asks a person whether a call may run, whatever the rules say and whether or not somebody is at the
/// terminal. Returns the reason why it may not, in words for the model.
///
/// # Errors
/// Returns an error if the agent must end before a person has answered.
pub(super) async fn approval(
    context: &StepContext,
    call: &PendingCall,
) -> Result<Option<String>, ToolError> {
    let question = Question {
        agent: context.agent.clone(),
        tool: call.call.name.clone(),
        input: call.call.input.clone(),
        texts: Vec::new(),
        subject: Subject::of(&call.call.name, Vec::new()),
        rule: None,
        change: None,
    };
    Ok(asked(context, call, question).await?.map(refusal))
}

/// Denies a question that an earlier process left open, when a person was at its terminal: nobody
/// waits for the answer any more.
fn deny_open_question(context: &StepContext, call: &PendingCall) {
    let (id, by) = (call.key.to_string(), "non_interactive".to_owned());
    let answer = PersonsAnswer { id, allowed: false, text: None, by };
    context.services.tell_supervisor(SupervisorMsg::Answer { request: None, answer });
}

/// Asks a person, and again if the file has changed meanwhile, so that the call would do something
/// else than what was shown. Returns `None` if the call may run, else the reason if one was given.
async fn asked(
    context: &StepContext,
    call: &PendingCall,
    mut question: Question,
) -> Result<Option<Option<String>>, ToolError> {
    let mut id = call.key.to_string();
    let mut effect = effect(context, &question).await;
    for number in 2_u32.. {
        let Answered { answer, effect: shown, .. } =
            ask(context, id, effect.clone(), question.clone()).await?;
        if !answer.allowed {
            return Ok(Some(answer.text));
        }
        question.change = change(context, &question.tool, &question.input).await;
        effect = self::effect(context, &question).await;
        // An answer that an earlier version recorded does not tell what was shown.
        if shown.is_some_and(|shown| shown == effect.hash()) {
            return Ok(None);
        }
        id = format!("{}-{number}", call.key);
    }
    Ok(Some(None))
}

/// Asks a person, at this terminal if there is one, or wherever somebody answers first.
async fn ask(
    context: &StepContext,
    id: String,
    effect: Output,
    question: Question,
) -> Result<Answered, ToolError> {
    let message = format!("{} {}", question.tool, question.texts.first().map_or("", |t| t));
    let asked = ApprovalAsked::new(id, ApprovalKind::Permission, message.trim_end());
    let asked = ApprovalAsked { tool: question.tool.clone(), effect: Some(effect), ..asked };
    let asker = context.services.asker.as_deref();
    let here = asker.map(|asker| Here { answer: asker.ask(question), who: asker.who() });
    let answered = questions::ask(context, asked, here).await?;
    if let Some(asker) = asker.filter(|asker| answered.answer.by != Some(asker.who())) {
        asker.answered_elsewhere(&context.agent, &answered.answer);
    }
    Ok(answered)
}

/// Returns all that a call would do, as it is recorded: whoever answers is shown it.
async fn effect(context: &StepContext, question: &Question) -> Output {
    let mut effect = json!(Effect::of(question));
    context.services.secrets.redact_value(&mut effect);
    context.services.bounded(Output::whole(effect.to_string())).await
}

/// Returns the change that a call would make to a file, if its tool can tell.
async fn change(context: &StepContext, name: &str, input: &Json) -> Option<Change> {
    let tool = context.services.tools.get(name).cloned()?;
    let (input, workspace) = (input.clone(), context.services.workspace.clone());
    tokio::task::spawn_blocking(move || tool.preview(&input, &workspace)).await.ok().flatten()
}
