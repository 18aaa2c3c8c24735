//! The messages of a run that wait for their agents.
//!
//! Pure. A message waits from its record until a turn's request holds it or it is returned.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{Event, Record};
use crate::id::AgentId;
use crate::messages::{About, MessageId, MessageReturned, MessageSent};

/// The messages of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// Number of the latest message.
    last: u64,
    /// Those that wait, by recipient, in the order in which they were sent.
    waiting: BTreeMap<AgentId, VecDeque<MessageSent>>,
    /// Those that an agent has sent since its last reply, by the key of the request: the calls that may be made
    /// again after a crash.
    by_agents: BTreeMap<AgentId, BTreeMap<String, Sent>>,
    /// Those of people, by the key of the request. It may be left for a process to come, so it is kept.
    by_people: BTreeMap<String, Sent>,
}

/// What is known of a message that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its id.
    pub id: MessageId,
    /// Number of the messages that waited before it.
    pub before: usize,
    /// The reason why it was returned, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<String>,
}

impl Messages {
    /// Returns the number of the latest message, 0 before there is one.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the messages that wait for an agent, the oldest first.
    pub fn waiting_for(&self, agent: &AgentId) -> impl ExactSizeIterator<Item = &MessageSent> {
        self.waiting.get(agent).map(VecDeque::iter).unwrap_or_default()
    }

    /// Returns the agents for which messages wait.
    pub fn recipients(&self) -> impl Iterator<Item = &AgentId> {
        self.waiting.keys()
    }

    /// Returns the message that a request of an agent has sent before.
    #[must_use]
    pub fn of_agent(&self, agent: &AgentId, request: &str) -> Option<&Sent> {
        self.by_agents.get(agent)?.get(request)
    }

    /// Returns the message that a person's request has sent before.
    #[must_use]
    pub fn of_person(&self, request: &str) -> Option<&Sent> {
        self.by_people.get(request)
    }

    fn sent(&mut self, message: &MessageSent) {
        self.last = self.last.max(message.id.0);
        let waiting = self.waiting.entry(message.to.clone()).or_default();
        let sent = Sent { id: message.id, before: waiting.len(), returned: None };
        waiting.push_back(message.clone());
        let request = message.request.clone();
        if let Some(agent) = message.from.agent() {
            self.by_agents.entry(agent.clone()).or_default().insert(request, sent);
        } else if message.from.is_person() {
            self.by_people.insert(request, sent);
        }
    }

    fn returned(&mut self, returned: &MessageReturned) {
        let waiting = self.waiting.get(&returned.to);
        let message = waiting.and_then(|all| all.iter().find(|message| message.id == returned.id));
        let Some(MessageSent { from, request, .. }) = message else { return };
        let sent = match from.agent() {
            Some(agent) => self.by_agents.get_mut(agent).and_then(|all| all.get_mut(request)),
            None => self.by_people.get_mut(request),
        };
        if let Some(sent) = sent {
            sent.returned = Some(returned.reason.clone());
        }
        self.take_out(&returned.to, &[returned.id]);
    }

    fn take_out(&mut self, agent: &AgentId, ids: &[MessageId]) {
        if let Some(waiting) = self.waiting.get_mut(agent) {
            waiting.retain(|message| !ids.contains(&message.id));
            if waiting.is_empty() {
                self.waiting.remove(agent);
            }
        }
    }
}

impl RunState {
    /// Returns the messages of the run.
    #[must_use]
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Notes what a record that was applied means for the messages.
    pub(super) fn note_message(&mut self, record: &Record) {
        let messages = &mut self.messages;
        match (&record.agent, &record.event) {
            (_, Event::MessageSent(sent)) => {
                messages.sent(sent);
                self.note_subject(sent);
            }
            (Some(agent), Event::MessageDelivered(delivered)) => {
                messages.take_out(agent, &delivered.ids);
            }
            (_, Event::MessageReturned(returned)) => messages.returned(returned),
            // Its calls before this reply have their results, and are not made again.
            (Some(agent), Event::ModelResponded(_)) if !messages.by_agents.is_empty() => {
                messages.by_agents.remove(agent);
            }
            _ => {}
        }
    }

    fn note_subject(&mut self, sent: &MessageSent) {
        match &sent.about {
            Some(About::ChildEnded { child }) => {
                self.agents.get_mut(child).into_iter().for_each(|child| child.is_told = true);
            }
            Some(About::ChildrenAtWork) => {
                let agent = self.agents.get_mut(&sent.to);
                agent.into_iter().for_each(|agent| agent.knows_of_children = true);
            }
            None => {}
        }
    }
}
