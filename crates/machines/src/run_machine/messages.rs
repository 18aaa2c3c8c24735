//! Decides about messages to agents: who may send one to whom, which are queued, and which are returned.
//!
//! A message waits from its record on. The recipient itself records that a turn's request holds it. One whose
//! recipient has ended for good is returned, so that each is delivered once or returned once.

use std::collections::BTreeMap;

use ahash::{HashMap, HashSet};
use serde::{Deserialize, Serialize};

use super::desk::Desk;
use super::request::{Letter, Listed, Refused, Reply};
use super::{Action, Facts};
use crate::event::Draft;
use crate::id::AgentId;
use crate::messages::{
    About, MESSAGE_BYTES, MOST_WAITING, MOST_WAITING_BYTES, MessageId, MessageReturned,
    MessageSent, Queued, Sender,
};
use crate::plan::TaskState;
use crate::run_state::AgentStatus;
use crate::run_state::messages::Sent;
use crate::spec::Reach;
use crate::turn::question::{AnswerOutcome, PersonsAnswer, bounded};
use crate::turn_machine::turn_chars;

/// The beginning of the id under which a person sends a message. No question has such an id: theirs are hashes.
const ID: &str = "say-";

/// The most names of agents that an error lists.
const MOST_NAMES: usize = 20;

/// The most agents that `list_agents` lists.
const MOST_LISTED: usize = 200;

/// The messages that are on their way to the journal.
#[derive(Clone, Debug, Default)]
pub(super) struct Messages {
    /// Number of the latest id that was given out.
    given: u64,
    /// The messages whose record is not durable, by the key of the request.
    coming: BTreeMap<String, Coming>,
    /// All messages whose record is not durable, those of the run too.
    sending: HashSet<MessageId>,
    /// The messages whose return is not durable.
    returning: HashSet<MessageId>,
    /// What comes for each recipient: the number of messages, and their bytes.
    loads: HashMap<AgentId, (usize, usize)>,
}

/// A message whose record is not durable.
#[derive(Clone, Debug)]
struct Coming {
    to: AgentId,
    bytes: usize,
    /// The requests of people that want to know what became of it.
    people: Vec<u64>,
}

/// A message of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The recipient.
    pub agent: AgentId,
    /// The text.
    pub text: String,
    /// True if a call of the recipient's model is cut for it.
    #[serde(default)]
    pub now: bool,
}

/// Makes the answer by which a person sends a message. `unique` is a word that no other message has: of two with the
/// same one, the second counts as the first.
#[must_use]
pub fn say(said: &Said, unique: &str, by: String) -> PersonsAnswer {
    let text = serde_json::to_string(said).unwrap_or_default();
    PersonsAnswer { id: format!("{ID}{unique}"), allowed: true, text: Some(text), by }
}

/// Returns true if this is the id of a person's message, and not that of a question.
#[must_use]
pub fn is_said(id: &str) -> bool {
    id.starts_with(ID)
}

/// Reads such an answer; `None` if it is none.
#[must_use]
pub fn read_said(answer: &PersonsAnswer) -> Option<Said> {
    let text = answer.text.as_deref().filter(|_| is_said(&answer.id))?;
    serde_json::from_str(text).ok()
}

impl Messages {
    /// Returns true if no record of a message is on its way to the journal. Until then the run does not end: one
    /// whose recipient has ended is returned first.
    pub(super) fn are_quiet(&self) -> bool {
        self.sending.is_empty() && self.returning.is_empty()
    }
}

impl Facts {
    /// Returns why an agent reads no message, in words that follow its name, if it reads none.
    fn reads_nothing(&self, id: &AgentId) -> Option<String> {
        let Some(agent) = self.state.agents().get(id) else {
            return Some("is no agent of this run".to_owned());
        };
        if agent.definition.is_none() {
            return Some("is a command, which reads no messages".to_owned());
        }
        match &agent.outcome {
            Some(_) if self.may_have_another_round(id, agent) => None,
            Some(_) => Some("has ended".to_owned()),
            None if self.agents.must_end(id) || self.sentence(id).is_some() => {
                Some("is about to end".to_owned())
            }
            None => None,
        }
    }

    /// Returns true if the answer of an agent that has ended may be sent back to it: its attempt is not over.
    fn may_have_another_round(&self, id: &AgentId, agent: &AgentStatus) -> bool {
        let task = self.state.task(&agent.task);
        task.is_some_and(|task| task.state == TaskState::Running && task.agent.as_ref() == Some(id))
    }

    fn reach_of(&self, agent: &AgentId) -> Reach {
        let definition = self.state.agents().get(agent).and_then(|it| it.definition.as_ref());
        definition
            .and_then(|name| self.settings.agents.get(name))
            .map_or(Reach::Nobody, |s| s.messages)
    }

    fn parent_of(&self, agent: &AgentId) -> Option<&AgentId> {
        let status = self.state.agents().get(agent).filter(|agent| agent.is_delegated())?;
        status.parent.as_ref()
    }

    /// Returns true if an agent may send a message to another one.
    fn reaches(&self, from: &AgentId, to: &AgentId) -> bool {
        // Whoever judges an answer hears nothing from the one who gave it.
        let judges = self.state.agents().get(to).is_some_and(|agent| agent.check.is_some());
        let is_near = || self.parent_of(from) == Some(to) || self.parent_of(to) == Some(from);
        from != to
            && !judges
            && match self.reach_of(from) {
                Reach::Nobody => false,
                Reach::Parent => is_near(),
                Reach::Run => true,
            }
    }

    /// Returns the agents that read messages of this one, in the order of their ids. The work is that of the agents
    /// that have not ended, and with the reach of a parent that of its children.
    fn reached_by(&self, from: &AgentId) -> Vec<AgentId> {
        let near = || {
            let children = self.state.agents().get(from).map(|agent| agent.children.as_slice());
            self.parent_of(from).into_iter().chain(children.unwrap_or_default()).collect()
        };
        let all: Vec<&AgentId> = match self.reach_of(from) {
            Reach::Nobody => Vec::new(),
            Reach::Parent => near(),
            Reach::Run => self.agents.open().map(|(id, _)| id).collect(),
        };
        let reads = |to: &&AgentId| self.reaches(from, to) && self.reads_nothing(to).is_none();
        let mut reached: Vec<_> = all.into_iter().filter(reads).cloned().collect();
        reached.sort_unstable();
        reached
    }

    /// Returns the agent that another one means.
    fn address(&self, from: &AgentId, to: &str) -> Result<AgentId, String> {
        let bare = to.trim().trim_start_matches('@');
        let exact = AgentId::from_text(bare);
        if bare == "parent" && !self.state.agents().contains_key(&exact) {
            let parent = self.parent_of(from).cloned();
            return parent
                .ok_or_else(|| format!("no agent delegated to you; {}", self.names(from)));
        }
        if self.state.agents().contains_key(&exact) {
            return Ok(exact);
        }
        self.child_called(from, bare).ok_or_else(|| {
            let shown: String = bare.chars().take(100).collect();
            format!("there is no agent `{shown}`; {}", self.names(from))
        })
    }

    /// Returns the names that an agent may write to, in words.
    fn names(&self, from: &AgentId) -> String {
        let reached = self.reached_by(from);
        let names: Vec<_> = reached.iter().take(MOST_NAMES).map(|id| format!("@{id}")).collect();
        match (names.is_empty(), reached.len() - names.len()) {
            (true, _) => "there is nobody whom you can write to now".to_owned(),
            (false, 0) => format!("you can write to {}", names.join(", ")),
            (false, more) => format!("you can write to {} and {more} more", names.join(", ")),
        }
    }

    /// Returns the most bytes of a message to an agent: no more than its window shows.
    pub(super) fn most_bytes(&self, to: &AgentId) -> usize {
        let definition = self.state.agents().get(to).and_then(|agent| agent.definition.as_ref());
        let spec = definition.and_then(|name| self.settings.agents.get(name));
        let model = spec.and_then(|spec| self.settings.models.get(&spec.model));
        let shown = model.map_or(u64::MAX, |model| turn_chars(model.context_window));
        usize::try_from(shown).unwrap_or(usize::MAX).min(MESSAGE_BYTES)
    }

    /// Returns why a message does not fit, in words.
    fn is_too_much(&self, to: &AgentId, text: &str) -> Option<String> {
        if text.trim().is_empty() {
            return Some("the text is blank".to_owned());
        }
        let most = self.most_bytes(to);
        if text.len() > most {
            return Some(format!(
                "the text has more than {most} bytes; write it to a file and name that"
            ));
        }
        let waiting = self.state.messages().waiting_for(to);
        let (coming, coming_bytes) = self.messages.loads.get(to).copied().unwrap_or_default();
        let count = waiting.len() + coming;
        let bytes = waiting.map(|message| message.text.len()).sum::<usize>() + coming_bytes;
        let is_full = count >= MOST_WAITING || bytes + text.len() > MOST_WAITING_BYTES;
        is_full.then(|| {
            format!("the inbox of @{to} is full ({count} messages, {bytes} bytes); send it later")
        })
    }

    /// Returns the recipient of an agent's message, or why it cannot be sent.
    fn recipient(&self, from: &AgentId, letter: &Letter) -> Result<AgentId, String> {
        let to = self.address(from, &letter.to)?;
        if to == *from {
            return Err("that is you".to_owned());
        }
        if !self.reaches(from, &to) {
            return Err(format!("you may not write to @{to}; {}", self.names(from)));
        }
        if let Some(reason) = self.reads_nothing(&to) {
            return Err(format!("@{to} {reason}; {}", self.names(from)));
        }
        self.is_too_much(&to, &letter.text).map_or(Ok(to), Err)
    }
}

impl Desk<'_, Messages> {
    /// Handles the message of an agent, or the same one again.
    pub(super) fn asked(&mut self, from: AgentId, id: String, letter: Letter) {
        if let Some(sent) = self.state.messages().of_agent(&from, &id) {
            let to =
                self.address(&from, &letter.to).unwrap_or_else(|_| AgentId::from_text(&letter.to));
            let queued = queued(sent, to);
            return self.answer(from, &id, Ok(queued));
        }
        // An interrupted agent sends it when the run is resumed.
        if self.pauses.is_interrupted() || self.messages.coming.contains_key(&id) {
            return;
        }
        match self.recipient(&from, &letter) {
            Err(reason) => self.answer(from, &id, Err(Refused(reason))),
            Ok(to) => {
                let Letter { text, reply_to, .. } = letter;
                let from = Sender::Agent { agent: from };
                self.send(MessageSent { reply_to, request: id, ..self.message(to, from, text) });
            }
        }
    }

    /// Handles the wish of an agent to know whom it can write to.
    pub(super) fn listed(&mut self, from: &AgentId, id: &str) {
        let listed = |to: &AgentId| {
            let agent = self.state.agents().get(to)?;
            Some(Listed {
                agent: to.clone(),
                definition: agent.definition.clone()?,
                turn: agent.turn,
                waiting: self.state.messages().waiting_for(to).len(),
            })
        };
        let reached = self.reached_by(from);
        let all = reached.iter().take(MOST_LISTED).filter_map(listed).collect();
        self.reply(from.clone(), id, Reply::Agents(all));
    }

    /// Handles the message of a person. `request` is the one who wants to know what became of it.
    pub(super) fn said(&mut self, request: Option<u64>, answer: PersonsAnswer) {
        let Some(Said { agent, text, now }) = read_said(&answer) else {
            return self
                .tell_giver(request, AnswerOutcome::NotSent("it is not a message".to_owned()));
        };
        let PersonsAnswer { id, by, .. } = answer;
        if let Some(sent) = self.state.messages().of_person(&id) {
            let queued = queued(sent, agent);
            return self.tell_giver(request, AnswerOutcome::Queued(queued));
        }
        if self.pauses.is_finishing() {
            return self.tell_giver(request, AnswerOutcome::Closing);
        }
        if let Some(coming) = self.own().coming.get_mut(&id) {
            return coming.people.extend(request);
        }
        let refusal = self.reads_nothing(&agent).map(|reason| format!("@{agent} {reason}"));
        let refusal = refusal.or_else(|| self.is_too_much(&agent, &text));
        if let Some(reason) = refusal.as_ref().filter(|_| request.is_some()) {
            return self.tell_giver(request, AnswerOutcome::NotSent(reason.clone()));
        }
        let (text, _) = bounded(&text, MESSAGE_BYTES);
        let message = self.message(agent, Sender::Person { by }, text);
        let message = MessageSent { request: id.clone(), now, ..message };
        // One that was left is recorded in any case, so that it is seen what became of it.
        let returned = refusal.map(|reason| MessageReturned {
            id: message.id,
            to: message.to.clone(),
            reason,
        });
        self.send_with(message, returned);
        if let Some(coming) = self.own().coming.get_mut(&id) {
            coming.people.extend(request);
        }
    }

    /// Handles a recorded message.
    pub(super) fn sent(&mut self, message: &MessageSent) {
        self.own().sending.remove(&message.id);
        let coming = self.own().coming.remove(&message.request);
        if let Some(Coming { to, bytes, .. }) = &coming {
            let (to, bytes) = (to.clone(), *bytes);
            self.unload(&to, bytes);
        }
        let status = self.state.agents().get(&message.to);
        // One that is about to end may be reading what waits: its end says what it has not read. Another round may
        // begin with it.
        let is_at_work = status.is_some_and(|agent| agent.outcome.is_none())
            || self.agents.begins_below(&message.to);
        let returned = self.reads_nothing(&message.to).filter(|_| !is_at_work);
        match &returned {
            _ if self.messages.returning.contains(&message.id) => {}
            Some(reason) => self.give_back(&message.to, reason, Some(message.id)),
            None => self.act(Action::Deliver(Box::new(message.clone()))),
        }
        let Some(Coming { people, .. }) = coming else { return };
        let of_agent = |agent: &AgentId| self.state.messages().of_agent(agent, &message.request);
        let sent = match message.from.agent() {
            Some(agent) => of_agent(agent),
            None => self.state.messages().of_person(&message.request),
        };
        let sent = sent.cloned().unwrap_or(Sent { id: message.id, before: 0, returned: None });
        let returned = returned.map(|reason| format!("@{} {reason}", message.to));
        let queued = Queued { returned, ..queued(&sent, message.to.clone()) };
        match &message.from {
            Sender::Agent { agent } => self.answer(agent.clone(), &message.request, Ok(queued)),
            Sender::Person { .. } | Sender::Run => {
                for request in people {
                    self.tell_giver(Some(request), AnswerOutcome::Queued(queued.clone()));
                }
            }
        }
    }

    /// Handles a recorded return.
    pub(super) fn returned(&mut self, returned: &MessageReturned) {
        self.own().returning.remove(&returned.id);
    }

    /// Returns the messages of an agent that has ended, unless it may have another round.
    pub(super) fn agent_ended(&mut self, id: &AgentId) {
        if let Some(reason) = self.reads_nothing(id) {
            self.give_back(id, &reason, None);
        }
    }

    /// Returns the messages of the agent of an attempt that is over.
    pub(super) fn attempt_over(&mut self, id: &AgentId) {
        if !self.agents.is_open(id) {
            self.agent_ended(id);
        }
    }

    /// Returns the messages whose recipients had ended when the last process stopped.
    pub(super) fn take_up(&mut self) {
        let recipients: Vec<_> = self.state.messages().recipients().cloned().collect();
        recipients.iter().for_each(|to| self.attempt_over(to));
    }

    /// Returns all messages that wait: the run ends.
    pub(super) fn run_ends(&mut self) {
        let recipients: Vec<_> = self.state.messages().recipients().cloned().collect();
        for to in recipients {
            self.give_back(&to, "will not read it: the run has ended", None);
        }
    }

    /// Returns all messages that wait for an agent, and tells the agents that sent them, each once. The sender of
    /// `told` reads of that one in its reply.
    fn give_back(&mut self, to: &AgentId, reason: &str, told: Option<MessageId>) {
        let is_new = |message: &&MessageSent| !self.messages.returning.contains(&message.id);
        let waiting = self.state.messages().waiting_for(to).filter(is_new);
        let waiting: Vec<_> = waiting.map(|it| (it.id, it.from.clone())).collect();
        let reason = format!("@{to} {reason}");
        let (mut drafts, mut of_senders) = (Vec::new(), BTreeMap::<AgentId, Vec<String>>::new());
        for (id, from) in waiting {
            self.own().returning.insert(id);
            let returned = MessageReturned { id, to: to.clone(), reason: reason.clone() };
            drafts.push(self.draft(to, returned));
            if let Some(sender) = from.agent().filter(|_| told != Some(id)) {
                of_senders.entry(sender.clone()).or_default().push(id.to_string());
            }
        }
        for (sender, ids) in of_senders {
            if self.reads_nothing(&sender).is_none() {
                let which = if ids.len() == 1 { "message" } else { "messages" };
                let text = format!("Not read: your {which} {}, because {reason}.", ids.join(", "));
                let notice = self.message(sender, Sender::Run, text);
                drafts.push(self.going(notice));
            }
        }
        // In one batch: a sender hears of what was returned, also if the process dies.
        if !drafts.is_empty() {
            self.record(drafts);
        }
    }

    fn message(&self, to: AgentId, from: Sender, text: String) -> MessageSent {
        let id = MessageId(self.messages.given.max(self.state.messages().last()) + 1);
        let (request, reply_to, now, about) = Default::default();
        MessageSent { id, to, from, text, request, reply_to, now, about }
    }

    /// Sends a message of the run for which its recipient goes on.
    pub(super) fn inform(&mut self, to: AgentId, about: About, text: String) {
        let message = self.message(to, Sender::Run, text);
        self.send(MessageSent { about: Some(about), ..message });
    }

    fn send(&mut self, message: MessageSent) {
        self.send_with(message, None);
    }

    /// Records a message, and in the same batch its return, if it is returned at once.
    fn send_with(&mut self, message: MessageSent, returned: Option<MessageReturned>) {
        let to = message.to.clone();
        let mut drafts = vec![self.going(message)];
        if let Some(returned) = returned {
            self.own().returning.insert(returned.id);
            drafts.push(self.draft(&to, returned));
        }
        self.record(drafts);
    }

    /// Notes that a message is on its way to the journal, and returns its record.
    fn going(&mut self, message: MessageSent) -> Draft {
        let (to, bytes) = (message.to.clone(), message.text.len());
        self.own().given = message.id.0;
        self.own().sending.insert(message.id);
        if !message.request.is_empty() {
            let load = self.own().loads.entry(to.clone()).or_default();
            *load = (load.0 + 1, load.1 + bytes);
            let coming = Coming { to: to.clone(), bytes, people: Vec::new() };
            self.own().coming.insert(message.request.clone(), coming);
        }
        self.draft(&to, message)
    }

    fn unload(&mut self, to: &AgentId, bytes: usize) {
        if let Some(load) = self.own().loads.get_mut(to) {
            *load = (load.0.saturating_sub(1), load.1.saturating_sub(bytes));
            if load.0 == 0 {
                self.own().loads.remove(to);
            }
        }
    }

    /// Makes a record that belongs to an agent, or to the run if there is no such agent.
    fn draft(&self, agent: &AgentId, event: impl Into<crate::event::Event>) -> Draft {
        match self.state.agents().get(agent) {
            Some(status) => Draft::agent(&status.task, agent, event),
            None => Draft::run(event),
        }
    }

    fn answer(&mut self, agent: AgentId, id: &str, answer: Result<Queued, Refused>) {
        self.reply(agent, id, Reply::Message(answer));
    }
}

fn queued(sent: &Sent, to: AgentId) -> Queued {
    Queued { id: sent.id, to, before: sent.before, returned: sent.returned.clone() }
}

#[cfg(test)]
mod tests;
