//! Asks a person on behalf of an agent, and waits for the answer without a slot.
//!
//! The run machine records the question and the answer that counts, wherever it was given. So a
//! question outlives its process: a resumed agent asks again and finds the answer.

use std::pin::pin;
use std::sync::atomic::Ordering;

use super::mail::SupervisorMsg;
use super::step::{SlotReturn, StepContext, take_slot};
use super::waits::{Wait, Waiting};
use crate::model::BoxFuture;
use crate::own_tool::AskPerson;
use crate::person::Consent;
use crate::run_machine::Ask;
use crate::run_state::questions::Answered;
use crate::tool::{ToolError, ToolOutput};
use crate::turn::question::{ApprovalAsked, ApprovalKind, CHOICES, MESSAGE_BYTES, PersonsAnswer};
use crate::turn_machine::PendingCall;

/// A person at this terminal, who may answer too.
pub(super) struct Here<'a> {
    /// Whether the call may run.
    pub(super) answer: BoxFuture<'a, Consent>,
    /// The person's name for the records.
    pub(super) who: String,
}

/// Asks, and waits until somebody has answered and the answer is durable. The agent may rest while its call is
/// `waiting`.
///
/// # Errors
/// Returns an error if the agent must end before. The question stays open for its successor.
pub(super) async fn ask(
    context: &StepContext,
    asked: ApprovalAsked,
    here: Option<Here<'_>>,
    waiting: Option<Waiting<'_>>,
) -> Result<Answered, ToolError> {
    let (id, services) = (asked.id.clone(), &context.services);
    let mut answered = pin!(context.request(&id, Ask(asked)));
    let (mut asking, who) = match here {
        Some(here) => (Some(here.answer), here.who),
        None => (None, String::new()),
    };
    let answered = loop {
        let at_terminal = async {
            match &mut asking {
                Some(answer) => answer.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answered = &mut answered => break answered,
            () = context.cancel.cancelled() => return Err(ToolError::Unanswered),
            Consent { allowed, reason } = at_terminal => {
                asking = None;
                let text = reason.filter(|_| !allowed);
                let answer = PersonsAnswer { id: id.clone(), allowed, text, by: who.clone() };
                services.tell_supervisor(SupervisorMsg::Answer { request: None, answer });
            }
        }
    };
    drop(waiting);
    // This cannot be missing: no other task waits for the same question.
    let answered = answered.ok_or(ToolError::Unanswered)?;
    match &context.slot_return {
        SlotReturn::AtOnce => take_slot(context).await,
        SlotReturn::AfterGroup(has_waited) => has_waited.store(true, Ordering::Relaxed),
    }
    match context.cancel.is_cancelled() {
        true => Err(ToolError::Unanswered),
        false => Ok(answered),
    }
}

/// Asks what a call of `ask_person` asks, and returns the answer for the model.
pub(super) async fn ask_person(
    context: &StepContext,
    call: &PendingCall,
    AskPerson { question, choices }: &AskPerson,
) -> Result<ToolOutput, ToolError> {
    if question.trim().is_empty() {
        return Err(ToolError::Arguments("`question` is blank".to_owned()));
    }
    let (most, longest) = CHOICES;
    if question.len() > MESSAGE_BYTES {
        let problem = format!("`question` has more than {MESSAGE_BYTES} bytes");
        return Err(ToolError::Arguments(problem));
    }
    if choices.len() > most || choices.iter().any(|choice| choice.len() > longest) {
        let problem = format!("`choices` may be {most}, of {longest} bytes each");
        return Err(ToolError::Arguments(problem));
    }
    let asked = ApprovalAsked::new(call.key.as_str(), ApprovalKind::Question, question);
    let asked = ApprovalAsked { tool: call.call.name.clone(), choices: choices.clone(), ..asked };
    let waiting = context.answers.waits.enter(&call.key, Wait::decided());
    let Answered { answer, .. } = ask(context, asked, None, Some(waiting)).await?;
    Ok(match (answer.allowed, answer.text) {
        (true, text) => ToolOutput::ok(text.unwrap_or_default()),
        (false, None) => ToolOutput::error("The person declined to answer."),
        (false, Some(reason)) => {
            ToolOutput::error(format!("The person declined to answer: {reason}"))
        }
    })
}
