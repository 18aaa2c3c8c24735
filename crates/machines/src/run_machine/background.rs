//! Decides about children that work in the background: when their parent hears of their end, how long it waits for
//! them, and when it may end.
//!
//! The end of such a child is a message, so its parent reads it once, whatever crashes. An agent that has given its
//! answer while children still work is told of them once; when it answers again they are stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use ahash::{HashMap, HashSet};
use serde_json::json;

use super::Facts;
use super::decision::Decision;
use super::desk::Desk;
use super::request::{ChildResult, ChildStop, ChildWait, Leave, Refused, Reply, Waited};
use super::timers::Timer;
use crate::id::AgentId;
use crate::messages::{About, MessageSent};
use crate::run_state::AgentStatus;
use crate::turn::Outcome;

/// The most names of agents that a text lists.
const MOST_NAMES: usize = 20;

/// The waits for children in the background, and the messages about them that are on their way to the journal.
#[derive(Clone, Debug, Default)]
pub(super) struct Background {
    /// The waits of each agent, by the id of the request.
    waits: HashMap<AgentId, BTreeMap<String, Waiting>>,
    /// The agents that want to end, with the id of the request.
    leaving: HashMap<AgentId, String>,
    /// The children whose end is on its way as a message.
    reporting: HashSet<AgentId>,
    /// The agents that are about to be told that children still work.
    telling: HashSet<AgentId>,
}

/// A wait for children.
#[derive(Clone, Debug)]
struct Waiting {
    children: Vec<AgentId>,
    all: bool,
    /// When its time is over.
    until: Duration,
    /// True if its time is over. The agent may ask again, if it got no reply: one that rested gets up first.
    is_late: bool,
}

impl Background {
    /// Returns true if an agent waits for children.
    pub(super) fn waits(&self, agent: &AgentId) -> bool {
        let waits = self.waits.get(agent);
        waits.is_some_and(|waits| waits.values().any(|waiting| !waiting.is_late))
    }
}

impl Facts {
    /// Returns the children that were delegated to by an agent.
    fn children_of(&self, agent: &AgentId) -> impl Iterator<Item = (&AgentId, &AgentStatus)> {
        let children = self.state.agents().get(agent).map(|agent| agent.children.as_slice());
        let known = children.unwrap_or_default().iter();
        known
            .filter_map(|id| self.state.agents().get_key_value(id))
            .filter(|(_, child)| child.is_delegated())
    }

    /// Returns the children in the background whose end their parent has not been told.
    fn untold_children(&self, agent: &AgentId) -> Vec<AgentId> {
        let children = self.children_of(agent);
        let untold = children.filter(|(_, child)| child.background && !child.is_told);
        untold.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the child with this id, or with this last part of its id.
    pub(super) fn child_called(&self, agent: &AgentId, name: &str) -> Option<AgentId> {
        let is_meant = |child: &AgentId| {
            let last = child.as_str().rsplit_once('/').map(|(_, last)| last);
            child.as_str() == name || last == Some(name)
        };
        let mut children = self.children_of(agent).map(|(id, _)| id);
        children.find(|child| is_meant(child)).cloned()
    }

    /// Returns the child that an agent means, or why there is none, in words for the model.
    pub(super) fn child_named(&self, agent: &AgentId, name: &str) -> Result<AgentId, String> {
        let bare = name.trim().trim_start_matches('@');
        self.child_called(agent, bare).ok_or_else(|| {
            let shown: String = bare.chars().take(100).collect();
            let names: Vec<_> = self.children_of(agent).take(MOST_NAMES).collect();
            let names: Vec<_> = names.iter().map(|(id, _)| format!("@{id}")).collect();
            match names.is_empty() {
                true => format!("there is no `{shown}`: you have started no agent"),
                false => format!("you have started no `{shown}`; you started {}", names.join(", ")),
            }
        })
    }

    fn is_told(&self, child: &AgentId) -> bool {
        let status = self.state.agents().get(child);
        status.is_none_or(|child| match child.background {
            true => child.is_told,
            false => child.has_subtree_ended(),
        })
    }

    /// Returns what has come of a wait by now; `None` if it goes on.
    fn come_of(&self, agent: &AgentId, waiting: &Waiting) -> Option<Waited> {
        let (ended, working): (Vec<_>, Vec<_>) =
            waiting.children.iter().cloned().partition(|child| self.is_told(child));
        let is_of_others =
            |message: &MessageSent| !matches!(&message.about, Some(About::ChildEnded { .. }));
        let mail = self.state.messages().waiting_for(agent).any(is_of_others);
        let is_over = working.is_empty() || (!waiting.all && !ended.is_empty()) || mail;
        (is_over || waiting.is_late).then_some(Waited {
            ended,
            working,
            mail,
            late: waiting.is_late && !is_over,
        })
    }

    /// Returns the children for which an agent wants to wait.
    fn wait_of(&self, agent: &AgentId, names: &[String]) -> Result<Vec<AgentId>, String> {
        if !names.is_empty() {
            return names.iter().map(|name| self.child_named(agent, name)).collect();
        }
        // One that has ended since the agent last read its messages is one of those that it waits for.
        let unread = self.state.messages().waiting_for(agent).filter_map(|it| match &it.about {
            Some(About::ChildEnded { child }) => Some(child.clone()),
            Some(About::ChildrenAtWork) | None => None,
        });
        let all: Vec<_> = unread.chain(self.untold_children(agent)).collect();
        match all.is_empty() && self.state.messages().waiting_for(agent).len() == 0 {
            true => Err("no agent works for you in the background".to_owned()),
            false => Ok(all),
        }
    }
}

impl Desk<'_, Background> {
    /// Takes up the ends of children that no message tells of yet.
    pub(super) fn take_up(&mut self) {
        let untold =
            self.state.agents().iter().filter(|(_, child)| {
                child.background && !child.is_told && child.has_subtree_ended()
            });
        let untold: Vec<_> = untold.map(|(id, _)| id.clone()).collect();
        untold.into_iter().for_each(|child| self.post(Decision::GiveResult(child)));
    }

    /// Sends the result of a child to its parent.
    pub(super) fn report(&mut self, result: ChildResult) {
        let Some(child) = self.state.agents().get(&result.agent) else { return };
        let Some(parent) = child.parent.clone().filter(|_| !child.is_told) else { return };
        // A resumed run sends it.
        if self.pauses.is_interrupted() || self.agents.is_over(&parent) {
            return;
        }
        if self.own().reporting.insert(result.agent.clone()) {
            let text = text_of(&result, self.most_bytes(&parent));
            let about = About::ChildEnded { child: result.agent };
            self.post(Decision::Inform(parent, about, text));
        }
    }

    /// Handles the wish of an agent to wait for children.
    pub(super) fn waited(&mut self, agent: AgentId, id: String, wait: ChildWait) {
        if self.pauses.is_interrupted() || self.agents.is_over(&agent) {
            return;
        }
        let known = self.background.waits.get(&agent).and_then(|waits| waits.get(&id)).cloned();
        let waiting = match known.map_or_else(|| self.begin_wait(&agent, &wait), Ok) {
            Ok(waiting) => waiting,
            Err(reason) => return self.reply(agent, &id, Reply::Wait(Err(Refused(reason)))),
        };
        if let Some(come) = self.come_of(&agent, &waiting) {
            return self.reply(agent, &id, Reply::Wait(Ok(come)));
        }
        self.post(Decision::Release(agent.clone()));
        self.post(Decision::SetTimer(waiting.until, Timer::Wait(agent.clone(), id.clone())));
        let waits = self.own().waits.entry(agent).or_default();
        // Those of earlier turns have their replies.
        waits.retain(|its, waiting| *its == id || !waiting.is_late);
        waits.insert(id, waiting);
    }

    fn begin_wait(&self, agent: &AgentId, wait: &ChildWait) -> Result<Waiting, String> {
        let children = self.wait_of(agent, &wait.names)?;
        let until = self.now.since.saturating_add(wait.timeout);
        Ok(Waiting { children, all: wait.all, until, is_late: false })
    }

    /// Handles that the time of a wait is over.
    pub(super) fn wait_is_over(&mut self, agent: &AgentId, id: &str) {
        let waiting = self.own().waits.get_mut(agent).and_then(|waits| waits.get_mut(id));
        let Some(waiting) = waiting.map(|waiting| {
            waiting.is_late = true;
            waiting.clone()
        }) else {
            return;
        };
        if let Some(waited) = self.come_of(agent, &waiting) {
            self.end_wait(agent, id, waited);
        }
    }

    fn end_wait(&mut self, agent: &AgentId, id: &str, waited: Waited) {
        // An agent without an actor asks again.
        if self.agents.is_live(agent) {
            self.post(Decision::NoteLoose(agent.clone()));
            self.reply(agent.clone(), id, Reply::Wait(Ok(waited)));
        }
    }

    /// Handles a recorded message, once its recipient has it.
    pub(super) fn sent(&mut self, message: &MessageSent) {
        let agent = &message.to;
        match &message.about {
            Some(About::ChildEnded { child }) => drop(self.own().reporting.remove(child)),
            Some(About::ChildrenAtWork) => drop(self.own().telling.remove(agent)),
            None => {}
        }
        if let Some(id) = self.background.leaving.get(agent).cloned() {
            self.leaves(agent.clone(), id);
        }
        let Some(waits) = self.background.waits.get(agent) else { return };
        let come: Vec<_> = waits
            .iter()
            .filter(|(_, waiting)| !waiting.is_late)
            .filter_map(|(id, waiting)| Some((id.clone(), self.come_of(agent, waiting)?)))
            .collect();
        for (id, waited) in come {
            self.own().waits.entry(agent.clone()).or_default().remove(&id);
            self.post(Decision::CancelTimer(Timer::Wait(agent.clone(), id.clone())));
            self.end_wait(agent, &id, waited);
        }
    }

    /// Handles the wish of an agent that a child ends.
    pub(super) fn stopped(&mut self, agent: AgentId, id: &str, stop: &ChildStop) {
        let child = self.child_named(&agent, &stop.name).and_then(|child| {
            match (self.is_subtree_over(&child), self.is_final(&child)) {
                (false, _) => Ok(child),
                (true, true) => Err(format!("@{child} has ended")),
                (true, false) => Err(format!("@{child} is between two answers: try it again")),
            }
        });
        if let Ok(child) = &child {
            let reason = format!("stopped by @{agent}: {}", stop.reason);
            self.post(Decision::EndAgent(child.clone(), Outcome::Cancelled { reason }));
        }
        self.reply(agent, id, Reply::Stop(child.map_err(Refused)));
    }

    /// Handles the wish of an agent that has answered to end.
    pub(super) fn asked_to_leave(&mut self, agent: AgentId, id: String, _: Leave) {
        if !self.pauses.is_interrupted() {
            self.leaves(agent, id);
        }
    }

    /// Lets an agent end, unless a message of its children is on its way, or it has to be told of them.
    fn leaves(&mut self, agent: AgentId, id: String) {
        let untold = self.untold_children(&agent);
        let knows = self.state.agents().get(&agent).is_none_or(|agent| agent.knows_of_children);
        if untold.is_empty() || knows {
            self.own().leaving.remove(&agent);
            return self.reply(agent, &id, Reply::Leave(()));
        }
        let working: Vec<_> = untold.into_iter().filter(|child| !self.is_final(child)).collect();
        if !working.is_empty() && self.own().telling.insert(agent.clone()) {
            let text = self.text_of_working(&working);
            self.post(Decision::Inform(agent.clone(), About::ChildrenAtWork, text));
        }
        self.own().leaving.insert(agent, id);
    }

    fn text_of_working(&self, working: &[AgentId]) -> String {
        let one = |child: &AgentId| {
            let turn = self.state.agents().get(child).map_or(0, |child| child.turn);
            let cost = self.state.inclusive(child).cost_usd();
            match cost {
                Some(cost) => format!("@{child} (turn {turn}, ${cost:.4})"),
                None => format!("@{child} (turn {turn})"),
            }
        };
        let mut names: Vec<_> = working.iter().take(MOST_NAMES).map(one).collect();
        if let more @ 1.. = working.len() - names.len() {
            names.push(format!("{more} more"));
        }
        format!(
            "Still working for you: {}. Wait for them with `wait`, or go on. If you answer now, they are stopped, and \
             what they have not reported is lost.",
            names.join(", ")
        )
    }

    /// Forgets what an agent waits for that has ended.
    pub(super) fn agent_ended(&mut self, agent: &AgentId) {
        self.own().leaving.remove(agent);
        for (id, _) in self.own().waits.remove(agent).into_iter().flatten() {
            self.post(Decision::CancelTimer(Timer::Wait(agent.clone(), id)));
        }
    }
}

/// Returns the message that tells a parent of the end of a child, in at most so many bytes: the form of the result of
/// a `delegate` call, with as much of the text as fits.
fn text_of(result: &ChildResult, most: usize) -> String {
    let (status, output, failure) = result.outcome.as_of_child();
    let whole = output.map_or("", |output| output.text.as_str());
    let is_cut = output.is_some_and(|output| output.stored.is_some());
    let with = |chars: usize| {
        let end = whole.char_indices().nth(chars).map_or(whole.len(), |(end, _)| end);
        let mut message = json!({
            "status": status,
            "agent": result.agent,
            "error": failure,
            "text": &whole[..end],
            "turns": result.turns,
            "usage": result.usage,
        });
        if is_cut || end < whole.len() {
            message["rest"] = "`check_child` gives more of the text".into();
        }
        message.to_string()
    };
    // Escapes make a text longer, at most sixfold.
    let mut chars = whole.chars().count();
    loop {
        let text = with(chars);
        if text.len() <= most || chars == 0 {
            return text;
        }
        chars /= 2;
    }
}

#[cfg(test)]
mod tests;
