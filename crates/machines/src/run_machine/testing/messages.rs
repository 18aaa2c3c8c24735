//! Messages in the simulated world: agents and people write, and agents read what came before their steps.

use std::collections::{BTreeMap, BTreeSet};

use super::{Pending, Step, World};
use crate::event::{Draft, Event};
use crate::id::AgentId;
use crate::messages::{MessageDelivered, MessageId, MessageSent, Queued};
use crate::run_machine::messages::{Said, say};
use crate::run_machine::{Letter, Refused, Request, Wish};
use crate::turn::question::AnswerOutcome;

/// How often an agent that has given its answer reads what came meanwhile.
const MOST_REOPENINGS: u32 = 3;

/// The messages of a world.
#[derive(Clone, Default)]
pub(in crate::run_machine) struct Mail {
    /// What each actor holds that it has not read, with the newest that came.
    held: BTreeMap<AgentId, (u64, Vec<MessageId>)>,
    /// How often each agent read after its answer.
    reopened: BTreeMap<AgentId, u32>,
    /// The messages whose senders know that they are queued.
    pub(in crate::run_machine) acknowledged: BTreeSet<MessageId>,
    /// The errors that senders read.
    pub(in crate::run_machine) refused: Vec<String>,
}

impl World {
    /// Starts an actor with what waits for its agent: what its records hold, with what it gave to the journal last.
    pub(super) fn starts_with_mail(&mut self, agent: &AgentId) {
        let appended = self.appends.get(agent.as_str()).into_iter().flatten().flatten();
        let read: BTreeSet<_> = appended
            .filter_map(|draft| match &draft.event {
                Event::MessageDelivered(delivered) => Some(delivered.ids.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        let waiting = self.state.messages().waiting_for(agent).map(|message| message.id);
        let waiting: Vec<_> = waiting.filter(|id| !read.contains(id)).collect();
        let last = waiting.last().map_or(0, |id| id.0);
        self.mail.held.insert(agent.clone(), (last, waiting));
    }

    /// Gives a message to an actor, if there is one.
    pub(super) fn gets_mail(&mut self, message: &MessageSent) {
        if let Some((last, held)) = self.mail.held.get_mut(&message.to)
            && self.actors.contains_key(&message.to)
            && message.id.0 > *last
        {
            *last = message.id.0;
            held.push(message.id);
        }
    }

    /// Lets an agent read what came. Returns false if there is nothing, or if it has read too often after its
    /// answer.
    pub(super) fn reads(&mut self, agent: &AgentId, after_answer: bool) -> bool {
        let reopened = self.mail.reopened.entry(agent.clone()).or_default();
        let Some((_, held)) = self.mail.held.get_mut(agent) else { return false };
        if held.is_empty() || (after_answer && *reopened >= MOST_REOPENINGS) {
            return false;
        }
        *reopened += u32::from(after_answer);
        let ids = std::mem::take(held);
        if let Some(actor) = self.actors.get_mut(agent) {
            actor.may_leave = None;
        }
        let task = self.actors[agent].task.clone();
        let draft = Draft::agent(&task, agent, MessageDelivered { ids, turn: 1 });
        self.queue(agent.as_str(), vec![draft]);
        true
    }

    /// Lets an agent write to some agent, or to none that there is.
    pub(super) fn writes(&mut self, agent: &AgentId) {
        let known: Vec<_> = self.state.agents().keys().map(ToString::to_string).collect();
        let to = match self.rng.usize(..known.len() + 2) {
            0 => "nobody".to_owned(),
            1 => "parent".to_owned(),
            place => known[place - 2].clone(),
        };
        let done = self.done.get(agent).copied().unwrap_or(0);
        let id = super::call_of(agent, done, 97).to_string();
        let actor = self.actors.get_mut(agent).expect("it acts");
        // The same call has the same recipient: what it wrote is in its reply.
        let to = actor.writes.get_or_insert_with(|| (id.clone(), to)).1.clone();
        let task = actor.task.clone();
        let letter = Letter { to, text: format!("{id} says"), reply_to: None };
        let (from, now) = (agent.clone(), self.now());
        self.machine.requested(now, Request { from, task, id, wish: Wish::Message(letter) });
    }

    /// Takes in the reply to a message.
    pub(super) fn wrote(&mut self, agent: &AgentId, id: &str, answer: Result<Queued, Refused>) {
        match answer {
            Ok(queued) => drop(self.mail.acknowledged.insert(queued.id)),
            Err(Refused(reason)) => self.mail.refused.push(reason),
        }
        let Some(actor) = self.actors.get_mut(agent) else { return };
        if actor.required_outcome.is_none() && actor.writes.take_if(|(its, _)| its == id).is_some()
        {
            self.pass(agent);
            self.pending.push(Pending::Step(agent.clone()));
        }
    }

    /// Lets a person write to an agent. Returns the number of the request.
    pub(in crate::run_machine) fn say(&mut self, agent: &AgentId, text: &str) -> u64 {
        self.given += 1;
        let said = Said { agent: agent.clone(), text: text.to_owned(), now: false };
        let answer = say(&said, &self.given.to_string(), format!("person {}", self.given));
        let now = self.now();
        self.machine.person_answered(now, Some(self.given), answer);
        self.perform();
        self.given
    }

    /// Checks that each message was read once or returned once, in order, and that nobody was told otherwise.
    pub(in crate::run_machine) fn check_messages(&self) {
        let (mut sent, mut ends) = (BTreeSet::new(), BTreeMap::<MessageId, u32>::new());
        let mut newest = BTreeMap::<AgentId, MessageId>::new();
        for record in &self.records {
            match &record.event {
                Event::MessageSent(message) => {
                    assert!(sent.insert(message.id), "{} again\n{}", message.id, self.story());
                }
                Event::MessageDelivered(delivered) => {
                    let agent = record.agent.clone().expect("an agent reads");
                    for id in &delivered.ids {
                        *ends.entry(*id).or_default() += 1;
                        let before = newest.insert(agent.clone(), *id);
                        assert!(before < Some(*id), "{id} after {before:?}\n{}", self.story());
                    }
                }
                Event::MessageReturned(returned) => *ends.entry(returned.id).or_default() += 1,
                _ => {}
            }
        }
        for id in &sent {
            let count = ends.get(id).copied().unwrap_or(0);
            assert_eq!(count, 1, "{id} is read or returned {count} times\n{}", self.story());
        }
        assert!(ends.keys().all(|id| sent.contains(id)), "{}", self.story());
        let told: BTreeSet<_> = self.mail.acknowledged.iter().copied().collect();
        assert!(told.is_subset(&sent), "{told:?}\n{}", self.story());
        for outcome in self.answer_outcomes.values() {
            if let AnswerOutcome::Queued(queued) = outcome {
                assert!(sent.contains(&queued.id), "{queued:?}\n{}", self.story());
            }
        }
        assert!(self.mail.reopened.values().all(|count| *count <= MOST_REOPENINGS));
    }
}

/// Returns true if a step makes an agent do something of its own, before which it reads.
pub(super) fn is_boundary(step: Option<Step>) -> bool {
    matches!(
        step,
        Some(Step::Write | Step::Call | Step::Delegate(_) | Step::Background(_) | Step::Wait)
    )
}

impl World {
    /// Lets all records become durable, and performs what follows, without a step of any agent.
    pub(in crate::run_machine) fn settle_actions(&mut self) {
        self.perform();
        while let Some(line) = self.appends.keys().next().cloned() {
            self.append(&line);
            self.perform();
        }
    }
}
