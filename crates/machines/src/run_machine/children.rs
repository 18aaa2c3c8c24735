//! Decides about what a parent wants of a child: that its answer fits a schema, and that it has one in
//! time.
//!
//! The answer of a child that has ended is compared with the schema before its parent has it. One that
//! does not fit goes back to the child, in the same conversation, as that of a task does. Everything
//! follows from the records: a resumed run compares again the answers that no parent has.

use std::time::Duration;

use ahash::HashMap;

use super::decision::{self, Decision};
use super::desk::Desk;
use super::request::{ChildLook, ChildReply, Delegation, Refused, Reply, Seen};
use super::{Action, ChildResult, Facts};
use crate::event::Draft;
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::message::Json;
use crate::run_state::{AgentStatus, Doing};
use crate::spec::acceptance::RETRIES;
use crate::turn::{AgentRestarted, AskedAgain, Cause, Feedback, Outcome};

/// What is known of the answers of children that must fit a schema, once they have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    answers: HashMap<AgentId, Answer>,
}

/// What is known of the answer of a child that has ended.
#[derive(Clone, Debug)]
enum Answer {
    /// It is being compared with the schema.
    Compared,
    /// It does not fit, and the child mends it once it has a slot.
    IsMended(Failure),
    /// It has another job, and begins once it has a slot.
    Continues(Box<Delegation>),
    /// It fits.
    Fits,
    /// It does not fit, and the child may not mend it.
    Fails(Failure),
}

impl Children {
    /// Returns true if an answer is being compared with its schema.
    pub(super) fn any_is_compared(&self) -> bool {
        self.answers.values().any(|answer| matches!(answer, Answer::Compared))
    }

    /// Returns true if a child that has ended is to begin another round: it mends its answer, or has another job.
    pub(super) fn begins_again(&self, child: &AgentId) -> bool {
        matches!(self.answers.get(child), Some(Answer::IsMended(_) | Answer::Continues(_)))
    }
}

impl Facts {
    /// Returns the schema that the answer of a child must fit: that of the call, or else that of its
    /// definition.
    pub(super) fn schema_of_child(&self, delegation: &super::request::Delegation) -> Option<Json> {
        let of_agent = || {
            let schema = self.settings.agents.get(&delegation.agent)?.output_schema.as_ref()?;
            Some(Json::encode(schema.document()))
        };
        delegation.output_schema.clone().or_else(of_agent)
    }

    /// Returns the time limit of a child, if its parent has set one.
    pub(super) fn limit_of_child(&self, id: &AgentId) -> Option<Duration> {
        self.state.agents().get(id)?.wanted.as_ref()?.timeout_ms.map(Duration::from_millis)
    }

    /// Returns the time that a child has left of its limit.
    pub(super) fn time_of_child(&self, id: &AgentId) -> Option<Duration> {
        let agent = self.state.agents().get(id)?;
        let since = agent.wanted.as_ref()?.since;
        let taken = self.open_time().saturating_sub(since.since(Default::default()));
        let taken = taken.saturating_sub(agent.paused.taken(self.state.reading()));
        Some(self.limit_of_child(id)?.saturating_sub(taken))
    }

    /// Returns true if a child has ended, with all that worked for it, and begins no other round by itself.
    pub(super) fn is_final(&self, child: &AgentId) -> bool {
        let answer = self.children.answers.get(child);
        let is_open = matches!(answer, Some(Answer::Compared)) || self.children.begins_again(child);
        self.is_subtree_over(child) && !is_open
    }

    fn is_late(&self, id: &AgentId) -> bool {
        self.time_of_child(id) == Some(Duration::ZERO)
    }
}

impl Desk<'_, Children> {
    /// Returns the result of a child once every agent that worked for it has ended too and its answer
    /// was compared with the schema, if there is one.
    fn result_of(&mut self, child: &AgentId) -> Option<ChildResult> {
        let status = self.state.agents().get(child)?;
        let outcome = status.outcome.clone().filter(|_| self.is_subtree_over(child))?;
        let schema = status.wanted.as_ref().and_then(|wanted| wanted.schema.clone());
        let parent = status.parent.clone();
        let outcome = match (outcome, schema) {
            (Outcome::Completed { output }, Some(schema)) => match self.children.answers.get(child)
            {
                Some(Answer::Fits) => Outcome::Completed { output },
                Some(Answer::Fails(failure)) => {
                    Outcome::Failed { failure: failure.clone(), partial: Some(output) }
                }
                Some(Answer::Compared | Answer::IsMended(_) | Answer::Continues(_)) => return None,
                // Nobody waits for it: an entry is made only while somebody does, and goes with them.
                None if parent.is_none_or(|parent| self.agents.is_over(&parent)) => return None,
                None => {
                    self.own().answers.insert(child.clone(), Answer::Compared);
                    let agent = child.clone();
                    self.act(Action::CompareAnswer { agent, output, schema });
                    return None;
                }
            },
            (outcome, _) => outcome,
        };
        Some(self.result(child, outcome))
    }

    /// Handles the comparison of a child's answer with its schema.
    pub(super) fn compared(&mut self, child: &AgentId, fits: Result<(), Failure>) {
        let Some(Answer::Compared) = self.children.answers.get(child) else { return };
        if self.pauses.is_interrupted() {
            // A resumed run compares it again.
            return self.forget(child);
        }
        let Some(status) = self.state.agents().get(child) else { return };
        let place = self.settings.plan.place(&status.task);
        let answer = match fits {
            Ok(()) => Answer::Fits,
            Err(_) if self.is_late(child) => Answer::Fails(self.too_late(child)),
            Err(failure) if may_be_mended(status, &failure) => {
                match place.and_then(|place| self.bound(place, 1)) {
                    Some(failure) => Answer::Fails(failure),
                    None => Answer::IsMended(failure),
                }
            }
            Err(failure) => Answer::Fails(failure),
        };
        let is_mended = matches!(answer, Answer::IsMended(_));
        self.own().answers.insert(child.clone(), answer);
        match is_mended {
            false => {
                self.post(Decision::Release(child.clone()));
                self.give_result(child);
            }
            true if self.scarce.holds(child) => self.begin_again(child),
            true => self.post(Decision::ReturnTo(child.clone())),
        }
    }

    /// Handles the end of a child with all that worked for it. Its slot is released once it is known whether it must
    /// mend its answer.
    pub(super) fn ended(&mut self, child: &AgentId) {
        self.give_result(child);
        if !self.children.answers.contains_key(child) {
            self.post(Decision::Release(child.clone()));
        }
    }

    /// Gives the result of a child to its parent, if it has one.
    pub(super) fn give_result(&mut self, child: &AgentId) {
        let status = self.state.agents().get(child);
        let is_background = status.is_some_and(|status| status.background);
        let asked = status.and_then(|status| status.parent.clone().zip(status.call.clone()));
        if let Some((parent, call)) = asked
            && let Some(result) = self.result_of(child)
        {
            self.post(match is_background {
                true => Decision::ReportEnd(Box::new(result)),
                false => Decision::AnswerParent(parent, call, Ok(ChildReply::Ended(result))),
            });
        }
    }

    /// Handles the wish of an agent to know how far a child is.
    pub(super) fn looked(&mut self, from: AgentId, id: &str, look: &ChildLook) {
        let seen = self.child_named(&from, &look.name).map(|child| self.see(&child));
        self.reply(from, id, Reply::Look(seen.map_err(Refused)));
    }

    fn see(&self, child: &AgentId) -> Seen {
        let status = self.state.agents().get(child);
        let ended = status.and_then(|status| status.outcome.clone());
        let is_told = status.is_some_and(|status| status.is_told || !status.background);
        match ended.filter(|_| is_told && self.is_final(child)) {
            Some(outcome) => {
                let outcome = match (self.children.answers.get(child), outcome) {
                    (Some(Answer::Fails(failure)), Outcome::Completed { output }) => {
                        Outcome::Failed { failure: failure.clone(), partial: Some(output) }
                    }
                    (_, outcome) => outcome,
                };
                Seen::Ended(self.result(child, outcome))
            }
            None => {
                let (turn, doing) = status
                    .map_or((0, Doing::Starting), |status| (status.turn, status.doing.clone()));
                let usage = self.state.inclusive(child).usage;
                Seen::Working { agent: child.clone(), turn, doing, usage }
            }
        }
    }

    fn result(&self, child: &AgentId, outcome: Outcome) -> ChildResult {
        let turns = self.state.agents().get(child).map_or(0, |status| status.turn);
        let usage = self.state.inclusive(child).usage;
        ChildResult { agent: child.clone(), outcome, turns, usage }
    }

    /// Takes up the wish of a parent that a child goes on which has ended.
    pub(super) fn continued(&mut self, parent: &AgentId, job: Delegation) {
        if self.pauses.is_interrupted() || self.agents.is_over(parent) {
            return;
        }
        match self.may_continue(parent, &job) {
            Err(reason) => {
                let refused = Err(Refused(reason));
                self.post(Decision::AnswerParent(parent.clone(), job.call, refused));
            }
            // The same call again, before its record is durable.
            Ok(child) if self.children.begins_again(&child) => {}
            Ok(child) => {
                self.own().answers.insert(child.clone(), Answer::Continues(Box::new(job)));
                self.post(Decision::ReturnTo(child));
            }
        }
    }

    /// Returns the child that goes on, or why it does not, in words for the model.
    fn may_continue(&self, parent: &AgentId, job: &Delegation) -> Result<AgentId, String> {
        let child = self.child_named(parent, job.continues.as_deref().unwrap_or_default())?;
        let Some(status) = self.state.agents().get(&child) else {
            return Err(format!("there is no @{child}"));
        };
        if status.definition.as_ref() != Some(&job.agent) {
            let definition = status.definition.as_ref().map_or("command", Name::as_str);
            return Err(format!("@{child} is a `{definition}`, and no `{}`", job.agent));
        }
        let is_other = match self.children.answers.get(&child) {
            Some(Answer::Continues(begun)) => begun.call != job.call,
            Some(Answer::Compared | Answer::IsMended(_)) => true,
            Some(Answer::Fits | Answer::Fails(_)) | None => false,
        };
        if status.outcome.is_none() || !self.is_subtree_over(&child) || is_other {
            return Err(format!("@{child} still works: wait until it has ended"));
        }
        if !status.may_go_on {
            return Err(format!("@{child} did not begin in the background"));
        }
        if status.background && !status.is_told {
            return Err(format!("the result of @{child} is about to come: read it first"));
        }
        let place = self.settings.plan.place(&status.task);
        match place.and_then(|place| self.bound(place, 1)) {
            Some(failure) => Err(failure.message),
            None => Ok(child),
        }
    }

    /// Lets a child that has a slot begin another round: it mends its answer, or has another job.
    pub(super) fn begin_again(&mut self, child: &AgentId) {
        let (cause, text, asked) = match self.children.answers.get(child) {
            Some(Answer::IsMended(failure)) => {
                let cause = match failure.kind {
                    FailureKind::OutputFormat => Cause::Format,
                    _ => Cause::Schema,
                };
                (cause, decision::ask_to_mend(failure), None)
            }
            Some(Answer::Continues(job)) => {
                let asked = AskedAgain { call: job.call.clone(), background: job.background };
                (Cause::Parent, job.prompt.clone(), Some(asked))
            }
            Some(Answer::Compared | Answer::Fits | Answer::Fails(_)) | None => return,
        };
        let Some(status) = self.state.agents().get(child) else { return };
        let (task, restart, round) = (status.task.clone(), status.restarts, status.round);
        self.own().answers.remove(child);
        self.post(Decision::BeginsSoonBelow(child.clone()));
        if let Some(place) = self.settings.plan.place(&task) {
            self.post(Decision::CountFromNow(place));
        }
        let reason = format!("round {}: {}", round.saturating_add(1), cause.words());
        let feedback = Some(Feedback { cause, text });
        let restarted = AgentRestarted { asked, ..AgentRestarted::new(restart, reason, feedback) };
        self.record(vec![Draft::agent(&task, child, restarted)]);
    }

    /// Forgets the answer of a child whose parent needs it no longer.
    pub(super) fn forget(&mut self, child: &AgentId) {
        if self.own().answers.remove(child).is_some() {
            self.post(Decision::Release(child.clone()));
        }
    }
}

/// Returns true if a child may mend an answer that was not accepted for this reason.
fn may_be_mended(status: &AgentStatus, failure: &Failure) -> bool {
    let is_form = matches!(failure.kind, FailureKind::OutputFormat | FailureKind::OutputSchema);
    is_form && status.round <= RETRIES
}
