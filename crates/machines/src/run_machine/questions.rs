//! Decides about questions to people: when a task asks for an approval, who waits without a slot,
//! which answer counts, and when nothing but people is left to wait for.
//!
//! Tasks, permissions and agents ask by the same records. The machine is the only one that records
//! an answer, so the first that it accepts is the one that counts.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::json;

use super::action::Haste;
use super::decision::{CHANGED, Decision};
use super::desk::Desk;
use super::request::{Ask, Reply};
use super::timers::Timer;
use super::{Action, Facts, Made};
use crate::event::{Draft, PauseCause, SharedRecord};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, CallKey, Name};
use crate::output::Output;
use crate::run_state::questions::{Answered, Question};
use crate::spec::{Approval, OnTimeout, Work};
use crate::turn::question::{
    ANSWER_BYTES, AnswerOutcome, ApprovalAnswered, ApprovalAsked, ApprovalKind, BY_TIMEOUT,
    PersonsAnswer, bounded,
};

/// The longest sleep towards the end of a question's time. That time is wall time, and the clock of
/// timers stands still while the machine sleeps.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The questions and answers that are on their way, and the agents between a wait and their slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions {
    /// The questions of agents that are on their way to the journal, by id, with the answers that
    /// have come already: a terminal may remember one.
    asking: HashMap<String, Vec<(Option<u64>, PersonsAnswer)>>,
    /// The answers that are on their way to the journal, by the id of the question.
    answering: HashMap<String, Waiting>,
    /// Agents that have an actor and no slot, and may be about to ask for it. One that waits for
    /// somebody else is dropped when it is looked at.
    loose: HashSet<AgentId>,
    /// Number of notification commands at work.
    notifying: usize,
}

/// The requests that wait until an answer is durable.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// The request whose answer counts; `None` if nobody waits for that.
    first: Option<u64>,
    late: Vec<u64>,
}

impl Questions {
    /// Returns true if nothing is on its way and no notification command is at work.
    fn is_quiet(&self) -> bool {
        self.asking.is_empty() && self.answering.is_empty() && self.notifying == 0
    }
}

impl Facts {
    /// Returns the approval that a task asks for, if that is its work.
    fn approval(&self, place: usize) -> Option<&Approval> {
        match &self.spec(place).work {
            Work::Approval(approval) => Some(approval),
            Work::Agent { .. } | Work::Command { .. } | Work::Graph { .. } => None,
        }
    }

    pub(super) fn is_approval(&self, place: usize) -> bool {
        self.approval(place).is_some()
    }

    /// Returns the failure of an approval that was not given.
    fn refusal_of(&self, place: usize, answer: &ApprovalAnswered) -> Failure {
        let approval = self.approval(place);
        if answer.is_by_timeout() {
            let limit = approval.and_then(|a| a.timeout).unwrap_or_default().as_secs_f64();
            let kind = match approval.map(|approval| approval.on_timeout) {
                Some(OnTimeout::Fail) => FailureKind::Timeout,
                Some(OnTimeout::Reject | OnTimeout::Approve) | None => FailureKind::Rejected,
            };
            return Failure::new(kind, format!("nobody answered within {limit} s"));
        }
        let by = answer.by.as_deref().unwrap_or("a person");
        let reason = answer.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        Failure::new(FailureKind::Rejected, format!("{by} rejected it{reason}"))
    }

    /// Returns true if an agent has asked a person and has no answer.
    pub(super) fn has_open_question(&self, id: &AgentId) -> bool {
        self.state.agents().get(id).is_some_and(|agent| !agent.asked.is_empty())
    }

    /// Returns true if nothing is on its way to the journal or begins, and no timer will begin anything.
    pub(super) fn nothing_is_under_way(&self) -> bool {
        !self.pauses.is_disk_full()
            && self.questions.is_quiet()
            && self.proposed.is_empty()
            && !self.attempts.any_checking()
            && !self.evaluating.is_at_work()
            && !self.growth.is_coming()
            && self.agents.none_is_under_way()
            && self.purse_is_quiet()
            && self.messages.are_quiet()
            && !self.timers.any_for_work()
    }

    /// Returns true if an agent is about to ask for its slot.
    pub(super) fn any_loose(&self) -> bool {
        self.questions.loose.iter().any(|id| self.may_ask_for_slot(id))
    }

    fn may_ask_for_slot(&self, id: &AgentId) -> bool {
        let waits_for_others = self.waits_for_children(id) || self.background.waits(id);
        let waits = self.has_open_question(id) || self.waits_for_money(id);
        self.agents.is_live(id) && !waits_for_others && !waits
    }
}

impl Desk<'_, Questions> {
    /// Asks the question of an approval whose turn has come, or ends the task with the answer.
    pub(super) fn approve(&mut self, place: usize) {
        let id = self.status(place).and_then(|status| status.question.clone());
        match id.map(|id| self.state.questions().answer(&id).cloned()) {
            None => self.ask_for_approval(place),
            Some(Some(answered)) => self.resolve_approval(place, &answered),
            Some(None) => {}
        }
    }

    fn ask_for_approval(&mut self, place: usize) {
        let attempt = self.status(place).map_or(0, |status| status.attempt);
        let Some(question) = self.words(place) else { return };
        let (message, shown) = match question {
            Ok(rendered) => rendered,
            Err(failure) => {
                let failed = self.failed(place, attempt, failure);
                return self.post(Decision::EndUnstarted(place, failed));
            }
        };
        let content = self.content_of_question(place, &message, &shown);
        if let Some(output) = self.kept_answer(place, &content) {
            return self.post(Decision::CheckOutput(place, Made::Whole(output), Some(content)));
        }
        let Some(approval) = self.approval(place) else { return };
        let limit = approval.timeout.map(|limit| i64::try_from(limit.as_millis()));
        let until_ms =
            limit.map(|limit| self.now.wall_ms.saturating_add(limit.unwrap_or(i64::MAX)));
        // The number of the record makes the id new, also when a task asks again.
        let id = CallKey::derive(
            self.settings.run,
            &AgentId::main(self.name(place), attempt + 1),
            0,
            0,
            ApprovalKind::Approval.as_str(),
            &self.state.last_seq().to_string(),
        );
        let asked = ApprovalAsked::new(id.as_str(), ApprovalKind::Approval, &message);
        let asked = ApprovalAsked { shown, until_ms, content: Some(content), ..asked };
        match self.has_agents(place) {
            true => self.post(Decision::Dismiss(place, CHANGED.to_owned())),
            false => self.record_task(place, asked.into()),
        }
    }

    fn resolve_approval(&mut self, place: usize, answered: &Answered) {
        let Answered { answer, at_ms, .. } = answered;
        if !answer.allowed {
            let attempt = self.status(place).map_or(1, |status| status.attempt);
            let failed = self.failed(place, attempt, self.refusal_of(place, answer));
            return self.record_task(place, failed);
        }
        let value = json!({
            "approved": true,
            "text": answer.text,
            "by": answer.by,
            "at_ms": at_ms,
        });
        let output = Made::Whole(Output::whole(value.to_string()));
        self.post(Decision::CheckOutput(place, output, None));
    }

    /// Handles the question of an agent, or the same question again.
    pub(super) fn asked(&mut self, agent: AgentId, task: &Name, Ask(asked): Ask) {
        if let Some(answered) = self.state.questions().answer(&asked.id).cloned() {
            return self.tell_agent(&agent, &asked.id, answered);
        }
        // An agent that waits for a person needs no slot.
        self.post(Decision::Release(agent.clone()));
        let is_ending = self.pauses.is_interrupted() || self.sentence(&agent).is_some();
        let is_asked = self.state.questions().get(&asked.id).is_some()
            || self.questions.asking.contains_key(&asked.id);
        if is_asked || is_ending || self.agents.is_over(&agent) {
            // An agent that was asked to end waits until then: the question would outlive it.
            return;
        }
        self.own().asking.insert(asked.id.clone(), Vec::new());
        let asked = self.with_limit(asked);
        self.record(vec![Draft::agent(task, &agent, asked)]);
    }

    /// Returns a question as it is recorded: one for a permission may have a time after which it is denied.
    fn with_limit(&self, asked: ApprovalAsked) -> ApprovalAsked {
        let limit = self.settings.ask_timeout.filter(|_| asked.kind == ApprovalKind::Permission);
        let Some(limit) = limit else { return asked };
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        ApprovalAsked { until_ms: Some(self.now.wall_ms.saturating_add(limit)), ..asked }
    }

    /// Handles a recorded question.
    pub(super) fn is_asked(&mut self, asked: &ApprovalAsked) {
        let early = self.own().asking.remove(&asked.id).unwrap_or_default();
        for (request, answer) in early {
            self.answered_by(request, answer);
        }
        let Some(question) = self.state.questions().get(&asked.id).cloned() else { return };
        self.set_question_timer(&question.asked);
        let place = self.settings.plan.place(&question.task).filter(|_| question.agent.is_none());
        let command = place.and_then(|place| self.approval(place)).map(|a| a.notify.clone());
        if let Some(command) = command.filter(|command| !command.is_empty()) {
            self.own().notifying += 1;
            let question = Box::new(question);
            self.act(Action::Notify { command, question });
        }
    }

    /// Handles the end of a notification command.
    pub(super) fn notification_ended(&mut self) {
        self.own().notifying -= 1;
    }

    /// Sets the timers of all open questions at the start of a process, and answers those whose time
    /// was over before: the run must not pause for them.
    pub(super) fn resume(&mut self) {
        let open: Vec<_> = self.state.questions().by_id().map(|(id, _)| id.to_owned()).collect();
        open.iter().for_each(|id| self.overdue(id));
    }

    fn set_question_timer(&mut self, asked: &ApprovalAsked) {
        if let Some(until) = asked.until_ms {
            let left = u64::try_from(until.saturating_sub(self.now.wall_ms)).unwrap_or(0);
            let at = self.now.since + Duration::from_millis(left).min(LOOK_AGAIN);
            self.post(Decision::SetTimer(at, Timer::Question(asked.id.clone())));
        }
    }

    /// Answers a question whose time is over.
    pub(super) fn overdue(&mut self, id: &str) {
        let Some(question) = self.state.questions().get(id) else { return };
        if question.asked.until_ms.is_none_or(|until| until > self.now.wall_ms) {
            let asked = question.asked.clone();
            return self.set_question_timer(&asked);
        }
        if self.pauses.is_finishing() || self.questions.answering.contains_key(id) {
            return;
        }
        let place = self.settings.plan.place(&question.task);
        let on_timeout = place.and_then(|place| self.approval(place)).map(|a| a.on_timeout);
        let allowed = on_timeout == Some(OnTimeout::Approve);
        let by = Some(BY_TIMEOUT.to_owned());
        self.record_answer(ApprovalAnswered { id: id.to_owned(), allowed, text: None, by }, None);
    }

    /// Handles the answer of a person. `request` is the one who wants to know what became of it.
    pub(super) fn answered_by(&mut self, request: Option<u64>, answer: PersonsAnswer) {
        let PersonsAnswer { id, allowed, text, by } = answer;
        let outcome = if let Some(first) = self.state.questions().answer(&id) {
            late(first)
        } else if self.pauses.is_finishing() {
            AnswerOutcome::Closing
        } else if let Some(waiting) = self.own().answering.get_mut(&id) {
            waiting.late.extend(request);
            return;
        } else if let Some(early) = self.own().asking.get_mut(&id) {
            early.push((request, PersonsAnswer { id, allowed, text, by }));
            return;
        } else if self.state.questions().get(&id).is_none() {
            AnswerOutcome::Unknown
        } else {
            let text = text.map(|text| bounded(&text, ANSWER_BYTES).0);
            let answer = ApprovalAnswered { id, allowed, text, by: Some(by) };
            return self.record_answer(answer, request);
        };
        self.tell_giver(request, outcome);
    }

    fn record_answer(&mut self, answer: ApprovalAnswered, first: Option<u64>) {
        let Some(Question { task, agent, .. }) = self.state.questions().get(&answer.id) else {
            return;
        };
        let (task, agent) = (Some(task.clone()), agent.clone());
        let waiting = Waiting { first, late: Vec::new() };
        self.own().answering.insert(answer.id.clone(), waiting);
        self.record(vec![Draft { task, agent, event: answer.into() }]);
    }

    /// Handles a recorded answer.
    pub(super) fn is_answered(&mut self, record: &SharedRecord, answer: &ApprovalAnswered) {
        self.post(Decision::CancelTimer(Timer::Question(answer.id.clone())));
        let known = self.state.questions().answer(&answer.id).cloned();
        let waiting = self.own().answering.remove(&answer.id).unwrap_or_default();
        // Without an answer in the state, whoever asked had ended before this record.
        let counted = known.as_ref().map_or(AnswerOutcome::Unknown, |_| AnswerOutcome::Counted);
        self.tell_giver(waiting.first, counted);
        let too_late = known.as_ref().map_or(AnswerOutcome::Unknown, late);
        for request in waiting.late {
            self.tell_giver(Some(request), too_late.clone());
        }
        if let (Some(agent), Some(answered)) = (&record.agent, known) {
            self.tell_agent(agent, &answer.id, answered);
        }
    }

    /// Passes an answer to the agent that asked. One without an actor asks again when it has one.
    fn tell_agent(&mut self, agent: &AgentId, id: &str, answered: Answered) {
        if self.agents.is_live(agent) {
            if !self.scarce.holds(agent) {
                self.note_loose(agent.clone());
            }
            self.reply(agent.clone(), id, Reply::Person(answered));
        }
    }

    /// Pauses the run if nothing is left to do but what waits for people. A run that stays open for
    /// their answers does not, nor does one of which something is paused.
    pub(super) fn pause_for_people(&mut self) {
        let any_waits = !self.state.questions().is_empty() || self.any_rests_for_money();
        // Whoever paused something is there, and lets it go on.
        let waits = !self.settings.attended && any_waits && !self.any_scope_paused();
        if !waits || !self.nothing_is_under_way() || !self.scarce.is_idle() {
            return;
        }
        self.forget_what_waits();
        if self.any_loose() {
            return;
        }
        let open = self.state.questions().open();
        let Some(first) = open.first() else {
            let budget = self.first_pause_for_money().map(|exceeded| exceeded.event.words());
            let reason = format!("a budget is used up: {}", budget.unwrap_or_default());
            let haste = Haste::WithinGrace;
            return self.post(Decision::Interrupt(reason, PauseCause::Person, haste));
        };
        let who = first.agent.as_ref().map_or(first.task.as_str(), AgentId::as_str);
        let message = first.asked.message.lines().next().unwrap_or_default();
        let others = match open.len() - 1 {
            0 => String::new(),
            1 => ", and 1 more question is open".to_owned(),
            more => format!(", and {more} more questions are open"),
        };
        let reason = format!("`{who}` waits for a person: {message}{others}");
        self.post(Decision::Interrupt(reason, PauseCause::Person, Haste::WithinGrace));
    }

    /// Notes that an agent has no slot and may be about to ask for it.
    pub(super) fn note_loose(&mut self, agent: AgentId) {
        self.own().loose.insert(agent);
    }

    /// Notes that an agent has asked for its slot.
    pub(super) fn forget_loose(&mut self, agent: &AgentId) {
        self.own().loose.remove(agent);
    }

    /// Forgets the agents that cannot be about to ask for their slot.
    fn forget_what_waits(&mut self) {
        let mut loose = std::mem::take(&mut self.own().loose);
        loose.retain(|id| self.may_ask_for_slot(id));
        self.own().loose = loose;
    }
}

fn late(first: &Answered) -> AnswerOutcome {
    let Answered { answer, at_ms, .. } = first;
    let by = answer.by.clone().unwrap_or_else(|| "a person".to_owned());
    AnswerOutcome::Late { by, at_ms: *at_ms, allowed: answer.allowed }
}

#[cfg(test)]
mod tests;
