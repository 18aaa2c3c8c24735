//! Decides whether a call may run, and asks a person where the rules say so.

use std::ffi::OsString;

use serde_json::json;

use super::asked::Asked;
use super::hooks;
use super::questions::{self, Here};
use super::step::StepContext;
use super::waits::Wait;
use super::work::{self, Helper};
use crate::message::Json;
use crate::output::Output;
use crate::own_tool::{OwnTool, WaitsFor};
use crate::permission::{NonInteractive, PermissionDecision, Rule, Subject};
use crate::person::{AskedCall, Question};
use crate::run_state::questions::Answered;
use crate::spec::AgentSpec;
use crate::tool::basis::{Basis, Before, Script};
use crate::tool::hook::Answer;
use crate::tool::sandbox::Sandbox;
use crate::tool::workspace::Workspace;
use crate::tool::{Change, ToolError, bash};
use crate::turn::question::{ApprovalAsked, ApprovalKind};
use crate::turn_machine::PendingCall;

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// It may, as long as things are as they were when it was decided.
    Allowed(Basis),
    /// It may not, for a reason in words for the model.
    Denied(String),
}

/// The decision of the rules on a call.
struct Judged<'a> {
    decision: PermissionDecision,
    /// The rule that gave it, if one did.
    rule: Option<&'a Rule>,
    /// The place to which the path of the call led, if a rule looked at it.
    place: Option<String>,
}

/// Returns true if the rules allow a call without asking a person.
pub(super) fn is_allowed(context: &StepContext, name: &str, input: &Json) -> bool {
    let own = OwnTool::named(name);
    if own.is_some_and(|own| !own.permission().is_judged()) {
        return true;
    }
    let Some(spec) = &context.spec else { return true };
    match judged(context, spec, name, input).decision {
        PermissionDecision::Allow => true,
        PermissionDecision::Deny => false,
        PermissionDecision::Ask if asks_by_itself(own) => true,
        PermissionDecision::Ask => {
            let nobody = context.services.asker.is_none();
            nobody && spec.permissions.non_interactive == NonInteractive::Allow
        }
    }
}

/// Returns true for a tool that asks a person, whatever the rules say.
fn asks_by_itself(own: Option<OwnTool>) -> bool {
    own.is_some_and(|own| own.waits_for() == WaitsFor::Person)
}

/// Returns the decision of the rules on a call.
fn judged<'a>(context: &StepContext, spec: &'a AgentSpec, name: &str, input: &Json) -> Judged<'a> {
    // Resolving a path costs file system calls, so it is done only if a rule depends on it. A
    // command may write files, which the rules for another tool are about.
    let is_weighed = name == bash::NAME || spec.permissions.depends_on_arguments(name);
    let subject =
        if is_weighed { subject(context, name, input) } else { Subject::of(name, vec![]) };
    let is_on = matches!(context.surroundings.sandbox, Sandbox::On(_));
    let subject = Subject { sandboxed: is_on && name == bash::NAME, ..subject };
    let place = subject.deeds.first().and_then(|deed| deed.texts.last()).cloned();
    let (decision, rule) = spec.permissions.judge(name, &subject);
    Judged { decision, rule, place }
}

/// Returns what a call does, as the rules see it.
fn subject(context: &StepContext, name: &str, input: &Json) -> Subject {
    match context.services.tools.get(name) {
        Some(tool) if name == bash::NAME => {
            let path = context.surroundings.env.get("PATH").map(OsString::from);
            let path = path.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
            let workspace = &context.surroundings.workspace;
            bash::locate(tool.subject(input, workspace), &path, workspace.root_path())
        }
        Some(tool) if OwnTool::named(name).is_none() => {
            tool.subject(input, &context.surroundings.workspace)
        }
        Some(_) | None => Subject::of(name, rule_texts(context, name, input)),
    }
}

/// Returns the texts by which rules may name a call.
fn rule_texts(context: &StepContext, name: &str, input: &Json) -> Vec<String> {
    if let Some(own) = OwnTool::named(name) {
        return own.rule_texts(input);
    }
    let tool = context.services.tools.get(name);
    let texts = tool.map(|tool| tool.permission_arguments(input, &context.surroundings.workspace));
    texts.unwrap_or_default()
}

/// Decides whether a call may run. Asks a person where the rules say so.
///
/// # Errors
/// Returns an error if the agent must end before a person has answered. The call has not begun then.
pub(super) async fn decide(
    context: &StepContext,
    call: &PendingCall,
) -> Result<Decision, ToolError> {
    let (name, input) = (call.call.name.as_str(), &call.call.input);
    let Some(spec) = &context.spec else { return Ok(Decision::Allowed(Basis::default())) };
    let Judged { decision, rule, place } = judged(context, spec, name, input);
    let allowed = Decision::Allowed(Basis { place, ..Basis::default() });
    // What is denied anyway needs no hook; a hook can only take away from what the rules allow.
    let asking = match decision {
        PermissionDecision::Deny => None,
        PermissionDecision::Allow | PermissionDecision::Ask => {
            match hooks::pre_tool_use(context, call).await? {
                Answer::GoOn(_) => None,
                Answer::Ask(reason) => Some(reason),
                Answer::Block(reason) => {
                    let reason = format!("Denied by the hook pre_tool_use: {reason}");
                    return Ok(Decision::Denied(reason));
                }
            }
        }
    };
    let decision = if asking.is_some() { PermissionDecision::Ask } else { decision };
    let because = || match &asking {
        Some(reason) => format!("the hook pre_tool_use wants a person to decide ({reason})"),
        None => because(context, rule, name, input),
    };
    Ok(match decision {
        PermissionDecision::Allow => allowed,
        PermissionDecision::Deny => Decision::Denied(format!("Permission denied: {}.", because())),
        // A person who does not want the question need not answer it.
        PermissionDecision::Ask if asks_by_itself(call.callee.own()) => allowed,
        PermissionDecision::Ask => {
            match (&context.services.asker, spec.permissions.non_interactive) {
                (None, NonInteractive::Allow) => allowed,
                (None, NonInteractive::Deny) => Decision::Denied(format!(
                    "Permission denied: {}, a person would have to be asked, and this run cannot \
                     ask one.",
                    because()
                )),
                (Some(_), _) | (None, NonInteractive::Pause) => {
                    let rule = rule.filter(|_| asking.is_none()).map(ToString::to_string);
                    asked(context, call, Asked::of_rule(rule)).await?
                }
            }
        }
    })
}

/// Returns why the rules do not allow a call.
fn because(context: &StepContext, rule: Option<&Rule>, name: &str, input: &Json) -> String {
    if let Some(rule) = rule {
        return format!("the rule `{rule}` says so");
    }
    let texts = rule_texts(context, name, input);
    let subject = subject(context, name, input);
    let why = subject.why().map(|why| format!(" ({why})")).unwrap_or_default();
    match texts.first() {
        Some(text) => format!("no rule allows `{name}({text})`{why}"),
        None => format!("no rule allows `{name}`"),
    }
}

/// Returns the answer of a person who said no, in words for the model.
fn refusal(reason: Option<String>) -> String {
    let reason = reason.map(|reason| format!(" The reason: {reason}"));
    format!("Permission denied: the person who was asked said no.{}", reason.unwrap_or_default())
}

/// Asks a person whether a call may run, whatever the rules say and whether or not somebody is at the terminal.
/// Asks again if the call would do something else by then than what was shown: the file has changed, a path leads
/// elsewhere, or another script would run.
///
/// # Errors
/// Returns an error if the agent must end before a person has answered.
pub(super) async fn asked(
    context: &StepContext,
    call: &PendingCall,
    mut asked: Asked,
) -> Result<Decision, ToolError> {
    let rule = asked.rule.clone();
    let (mut question, _) = look(context, call, rule.clone()).await;
    let mut effect = effect(context, &question).await;
    loop {
        let Answered { answer, effect: shown, .. } =
            ask(context, (call, &asked), effect.clone(), question.clone()).await?;
        if !answer.allowed {
            return Ok(Decision::Denied(match answer.is_by_timeout() {
                true => "Permission denied: nobody answered in time.".to_owned(),
                false => refusal(answer.text),
            }));
        }
        // Where a path leads by now may be denied, and then nobody is asked about it.
        if let Some(denial) = denied_by_now(context, call) {
            return Ok(Decision::Denied(denial));
        }
        let basis;
        (question, basis) = look(context, call, rule.clone()).await;
        effect = self::effect(context, &question).await;
        // An answer that an earlier version recorded does not tell what was shown.
        let now = effect.hash();
        if shown.is_some_and(|shown| shown == now)
            || was_allowed(context, call, &asked, &now).await?
        {
            return Ok(Decision::Allowed(basis));
        }
        asked.number += 1;
    }
}

/// Returns true if a question before the last one was answered with yes, and was about this effect: things are again
/// as they were then.
async fn was_allowed(
    context: &StepContext,
    call: &PendingCall,
    last: &Asked,
    effect: &str,
) -> Result<bool, ToolError> {
    for number in 1..last.number {
        // It has its answer: there was a next question. Asking again gives it at once, and records nothing.
        let id = Asked { number, ..last.clone() }.id(&call.key);
        let asked = ApprovalAsked::new(id, ApprovalKind::Permission, "");
        let Answered { answer, effect: shown, .. } =
            questions::ask(context, asked, None, None).await?;
        if answer.allowed && shown.as_deref() == Some(effect) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns why the rules deny a call that they only asked about before.
fn denied_by_now(context: &StepContext, call: &PendingCall) -> Option<String> {
    let (name, input) = (call.call.name.as_str(), &call.call.input);
    let spec = context.spec.as_ref()?;
    let Judged { decision, rule, .. } = judged(context, spec, name, input);
    (decision == PermissionDecision::Deny)
        .then(|| format!("Permission denied: {}.", because(context, rule, name, input)))
}

/// Looks at what a call would do as things are now. Returns the question about it, and what a yes rests on.
async fn look(
    context: &StepContext,
    call: &PendingCall,
    rule: Option<String>,
) -> (Question, Basis) {
    let (name, input) = (call.call.name.clone(), call.call.input.clone());
    let texts = rule_texts(context, &name, &input);
    let subject = subject(context, &name, &input);
    let place = texts.last().cloned();
    let Seen { change, before, scripts, unbound } = seen(context, &name, &input).await;
    let basis = Basis { place, before, scripts: Some(scripts.clone()) };
    let agent = context.agent.clone();
    let tool = name;
    (Question { agent, tool, input, texts, subject, rule, change, scripts, unbound }, basis)
}

/// The files that a call would change and run, as they are now.
#[derive(Debug, Default)]
struct Seen {
    change: Option<Change>,
    before: Before,
    scripts: Vec<Script>,
    unbound: Vec<String>,
}

async fn seen(context: &StepContext, name: &str, input: &Json) -> Seen {
    let Some(tool) = context.services.tools.get(name).cloned() else { return Seen::default() };
    let (input, workspace) = (input.clone(), context.surroundings.workspace.clone());
    let look = move || {
        let change = tool.preview(&input, &workspace);
        let before = change.as_ref().map(|change| before(change, &workspace)).unwrap_or_default();
        let scripts = tool.scripts(&input, &workspace);
        Seen { change, before, scripts, unbound: tool.unbound(&input, &workspace) }
    };
    work::blocking(Helper::Preview, look).await.unwrap_or_default()
}

/// Returns the content that a call would change: the one that is shown, or that of a file that cannot be shown.
fn before(change: &Change, workspace: &Workspace) -> Before {
    match &change.before {
        Some(text) => Before::Hash(blake3::hash(text.as_bytes()).to_hex().to_string()),
        None => match workspace.fingerprint(&change.path) {
            Ok(Some(hash)) => Before::Hash(hash),
            Ok(None) => Before::Absent,
            Err(_) => Before::Any,
        },
    }
}

/// Asks a person, at this terminal if there is one, or wherever somebody answers first.
async fn ask(
    context: &StepContext,
    (call, about): (&PendingCall, &Asked),
    effect: Output,
    question: Question,
) -> Result<Answered, ToolError> {
    let message = format!("{} {}", question.tool, question.texts.first().map_or("", |t| t));
    let id = about.id(&call.key);
    let asked = ApprovalAsked::new(id, ApprovalKind::Permission, message.trim_end());
    let (tool, rule) = (question.tool.clone(), question.rule.clone());
    let asked = ApprovalAsked { tool, rule, effect: Some(effect), ..asked };
    let asker = context.services.asker.as_deref();
    let here = asker.map(|asker| Here { answer: asker.consent(question), who: asker.who() });
    // Whoever is asked here keeps the agent up: what is on the screen belongs to its step.
    let waits = asker.is_none().then_some(&context.answers.waits);
    let waiting = waits.map(|waits| waits.enter(&call.key, Wait::undecided(about.clone())));
    let answered = questions::ask(context, asked, here, waiting).await?;
    if let Some(asker) = asker.filter(|asker| answered.answer.by != Some(asker.who())) {
        asker.answered_elsewhere(&context.agent, &answered.answer);
    }
    Ok(answered)
}

/// Returns all that a call would do, as it is recorded: whoever answers is shown it.
async fn effect(context: &StepContext, question: &Question) -> Output {
    let mut effect = json!(AskedCall::of(question));
    context.services.secrets.redact_value(&mut effect);
    context.services.bounded(Output::whole(effect.to_string())).await
}
