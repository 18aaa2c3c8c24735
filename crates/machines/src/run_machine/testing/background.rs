//! Children in the background in the simulated world: agents start them, wait for them, and ask whether they may end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Pending, World};
use crate::event::Event;
use crate::id::AgentId;
use crate::messages::About;
use crate::run_machine::{ChildWait, Leave, Refused, Reply, Request, SlotBack, Waited, Wish};

impl World {
    /// Lets an agent wait for its children in the background.
    pub(super) fn waits_for_background(&mut self, agent: &AgentId) {
        let (all, seconds) = (self.rng.bool(), self.rng.u64(1..100));
        let actor = self.actors.get_mut(agent).expect("it acts");
        actor.waits_for_background = true;
        actor.has_slot = false;
        let task = actor.task.clone();
        let done = self.done.get(agent).copied().unwrap_or(0);
        let id = super::call_of(agent, done, 96).to_string();
        let timeout = Duration::from_secs(seconds);
        let wish = Wish::Wait(ChildWait { names: Vec::new(), all, timeout });
        let now = self.now();
        self.machine.requested(now, Request { from: agent.clone(), task, id, wish });
    }

    /// Takes in the end of a wait. What it names as ended, the agent has as a message.
    pub(super) fn waited(&mut self, agent: &AgentId, waited: Result<Waited, Refused>) {
        for child in waited.iter().flat_map(|waited| &waited.ended) {
            assert!(self.state.agents()[child].is_told, "{child} is not told\n{}", self.story());
        }
        let Some(actor) = self.actors.get_mut(agent) else { return };
        let did_wait = std::mem::take(&mut actor.waits_for_background);
        if did_wait && actor.required_outcome.is_none() {
            actor.returning = true;
            self.pass(agent);
            self.request(agent, SlotBack);
        }
    }

    /// Lets an agent that has answered, and that had children in the background, ask whether it may end. Returns
    /// false if it may.
    pub(super) fn asks_to_leave(&mut self, agent: &AgentId) -> bool {
        let agents = self.state.agents();
        let has_any = agents[agent].children.iter().any(|child| agents[child].background);
        let actor = self.actors.get_mut(agent).expect("it acts");
        match (has_any, actor.may_leave) {
            (false, _) | (true, Some(true)) => false,
            (true, Some(false)) => true,
            (true, None) => {
                actor.may_leave = Some(false);
                self.request(agent, Leave);
                true
            }
        }
    }

    /// Takes in that an agent may end.
    pub(super) fn may_leave(&mut self, agent: &AgentId) {
        let Some(actor) = self.actors.get_mut(agent) else { return };
        if actor.may_leave == Some(false) {
            actor.may_leave = Some(true);
            self.pending.push(Pending::Step(agent.clone()));
        }
    }

    /// Lets everything happen that needs neither a person nor time, until the reply to a request with this id comes.
    pub(in crate::run_machine) fn settle_until_reply(&mut self, id: &str) -> Option<Reply> {
        self.asked = Some((id.to_owned(), None));
        self.settle();
        self.asked.take()?.1
    }

    /// Checks that each parent heard of each end once, that no end before its own answer is missing, and that it was
    /// told of those that still worked.
    pub(in crate::run_machine) fn check_background(&self) {
        let mut told = BTreeMap::<AgentId, u32>::new();
        for record in &self.records {
            if let Event::MessageSent(message) = &record.event
                && let Some(About::ChildEnded { child }) = &message.about
            {
                *told.entry(child.clone()).or_default() += 1;
                let parent = self.state.agents()[child].parent.as_ref();
                assert_eq!(parent, Some(&message.to), "{}", self.story());
            }
        }
        assert!(told.values().all(|count| *count == 1), "{told:?}\n{}", self.story());
        for (id, child) in self.state.agents().iter().filter(|(_, child)| child.background) {
            let parent = child.parent.as_ref().expect("a parent");
            let ended = |of: &AgentId| {
                let ends = self.records.iter().filter(|record| {
                    record.agent.as_ref() == Some(of) && record.event.kind() == "agent.ended"
                });
                ends.map(|record| record.seq).min()
            };
            let parent_answered = self.state.agents()[parent]
                .outcome
                .as_ref()
                .is_some_and(|it| matches!(it, crate::turn::Outcome::Completed { .. }));
            // A parent that ended otherwise reads nothing any more.
            if !parent_answered || told.contains_key(id) {
                continue;
            }
            let knew = self.records.iter().any(|record| {
                matches!(&record.event, Event::MessageSent(message)
                    if message.to == *parent && message.about == Some(About::ChildrenAtWork))
            });
            assert!(
                knew,
                "{parent} ends at {:?}, {id} at {:?}, and nobody says so\n{}",
                ended(parent),
                ended(id),
                self.story()
            );
        }
    }
}
