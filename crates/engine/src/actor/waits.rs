//! The calls of a step that wait for others: for children, or for a person who answers elsewhere.
//!
//! An agent all of whose open calls wait so needs no actor: what it waits for finds it by mail, and each call
//! may be asked for again. It gives its actor up once it has waited for a while. Nothing is recorded of that:
//! an agent that rests is, for its run and for a resume, one that waits.
//!
//! What a person is asked is kept: a call goes on with that question, whatever the rules or the plan say by then.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::asked::Asked;
use super::mail::SupervisorMsg;
use super::services::Services;
use crate::id::{AgentId, CallKey};

/// The time after which an agent that waits gives up its actor. A new one costs less than a thousandth of it,
/// and what waits for a shorter time, as in tests and for children that answer from a script, pays nothing.
pub(super) const REST_AFTER: Duration = Duration::from_secs(1);

/// The wait of a call.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    since: Instant,
    /// What is asked about the call; `None` if it is decided that it may run.
    pub(super) asked: Option<Asked>,
}

impl Wait {
    /// Begins the wait of a call of which is decided that it may run.
    pub(super) fn decided() -> Self {
        Self { since: Instant::now(), asked: None }
    }

    /// Begins the wait of a call about which a person is asked this.
    pub(super) fn undecided(asked: Asked) -> Self {
        Self { since: Instant::now(), asked: Some(asked) }
    }
}

/// The waits of the calls of one agent, by the key of the call.
pub(super) type Waited = HashMap<CallKey, Wait>;

/// Makes the waits of calls about which a person was asked.
pub(super) fn of_asked(calls: impl IntoIterator<Item = (CallKey, Asked)>) -> Waited {
    calls.into_iter().map(|(call, asked)| (call, Wait::undecided(asked))).collect()
}

/// The waits of an agent that has an actor.
#[derive(Debug, Default)]
pub struct Waits {
    table: Mutex<Table>,
    /// Wakes the step that looks whether all its calls wait: there is one at a time.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    now: Waited,
    /// The waits with which the last actor of the agent gave itself up, or which the records show.
    before: Waited,
    /// The calls that are made again. An agent stays up while one of them waits: only its step knows how often
    /// they were made.
    again: HashSet<CallKey>,
    /// The number of open calls in the group at work.
    open: usize,
    is_granted: bool,
}

impl Table {
    fn all_wait(&self) -> bool {
        self.open > 0 && self.now.len() == self.open
    }
}

impl Waits {
    /// Makes the waits of an agent whose last actor gave itself up with these.
    pub(super) fn after(before: Waited) -> Self {
        Self { table: Mutex::new(Table { before, ..Table::default() }), ..Self::default() }
    }

    fn open(&self, open: usize) -> Open<'_> {
        self.table.lock().open = open;
        Open(self)
    }

    /// Takes that a call waits for others until the guard is dropped.
    pub(super) fn enter(&self, call: &CallKey, wait: Wait) -> Waiting<'_> {
        let mut table = self.table.lock();
        let since = table.before.get(call).map_or(wait.since, |before| before.since);
        if !table.again.contains(call) {
            table.now.insert(call.clone(), Wait { since, ..wait });
        }
        if table.all_wait() {
            self.changed.notify_one();
        }
        Waiting { waits: self, call: call.clone() }
    }

    /// Returns the time since which a call has waited, if it did for the last actor too.
    pub(super) fn since(&self, call: &CallKey) -> Option<Instant> {
        self.table.lock().before.get(call).map(|wait| wait.since)
    }

    /// Returns the wait of a call for the last actor, if it waited then already.
    pub(super) fn before(&self, call: &CallKey) -> Option<Wait> {
        self.table.lock().before.get(call).cloned()
    }

    /// Takes that a call is made again, whatever it waited for before.
    pub(super) fn make_again(&self, call: &CallKey) {
        let mut table = self.table.lock();
        table.before.remove(call);
        table.again.insert(call.clone());
    }

    /// Allows the agent to give up its actor, if all its open calls wait and none of them has its answer.
    /// `unanswered` is the number of requests without one. Returns true if it may.
    pub(super) fn grant(&self, unanswered: usize) -> bool {
        let mut table = self.table.lock();
        table.is_granted = table.all_wait() && table.open == unanswered;
        self.changed.notify_one();
        table.is_granted
    }

    /// Returns true if the agent gives up its actor.
    pub(super) fn is_granted(&self) -> bool {
        self.table.lock().is_granted
    }

    /// Takes out the waits of an agent that gives up its actor.
    pub(super) fn take(&self) -> Waited {
        std::mem::take(&mut self.table.lock().now)
    }

    /// Waits until an agent may give up its actor, which it may once the `open` calls of its step have waited for
    /// others, for some time and all at once.
    pub(super) async fn may_rest(&self, services: &Services, agent: &AgentId, open: usize) {
        let _open = self.open(open);
        while !self.is_granted() {
            if !self.table.lock().all_wait() {
                self.changed.notified().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.changed.notified() => continue,
                () = tokio::time::sleep(REST_AFTER) => {}
            }
            services.tell_supervisor(SupervisorMsg::WantsRest(agent.clone()));
            // The actor decides, or an answer comes first.
            self.changed.notified().await;
        }
    }
}

/// The open calls of a group, as long as nothing is done but to wait for them: an agent whose step has more to
/// do stays up.
struct Open<'a>(&'a Waits);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.table.lock().open = 0;
    }
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    waits: &'a Waits,
    call: CallKey,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut table = self.waits.table.lock();
        // The calls of an agent that gives up its actor are dropped and go on waiting.
        if !table.is_granted {
            let did_all_wait = table.all_wait();
            table.now.remove(&self.call);
            if did_all_wait {
                self.waits.changed.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn key(index: u32) -> CallKey {
        let run = RunId::from(uuid::Uuid::nil());
        CallKey::derive(run, &AgentId::from_text("a"), 1, index, "delegate", "{}")
    }

    #[test]
    fn an_agent_rests_only_while_all_its_calls_wait_for_an_answer() {
        let waits = Waits::default();
        assert!(!waits.grant(0), "no call is open");
        let _open = waits.open(2);
        let first = waits.enter(&key(0), Wait::decided());
        assert!(!waits.grant(1), "a call is at work");
        let asked = Asked { number: 2, ..Asked::of_rule(None) };
        let second = waits.enter(&key(1), Wait::undecided(asked));
        assert!(!waits.grant(1), "an answer is there, and its call has not noticed yet");
        assert!(!waits.is_granted());
        assert!(waits.grant(2));
        drop((first, second));
        let waited = waits.take();
        assert_eq!(waited.len(), 2, "they go on waiting");
        let (since, again) = (waited[&key(0)].since, Waits::after(waited));
        let [first, second, third] = [0, 1, 2].map(|index| again.before(&key(index)));
        assert!(first.expect("it waited").asked.is_none() && third.is_none());
        let asked = second.and_then(|wait| wait.asked).expect("a question");
        assert_eq!(asked.id(&key(1)), format!("{}-2", key(1)), "it goes on with the second one");
        let _first = again.enter(&key(0), Wait::decided());
        assert_eq!(again.since(&key(0)), Some(since));
        assert_eq!(again.table.lock().now[&key(0)].since, since, "a wait is one wait");
    }

    #[test]
    fn an_agent_with_a_call_that_is_made_again_stays_up() {
        let waits = Waits::default();
        let _open = waits.open(1);
        waits.make_again(&key(0));
        let _waiting = waits.enter(&key(0), Wait::undecided(Asked::of_rule(None)));
        assert!(!waits.grant(1));
    }

    #[test]
    fn a_wait_that_is_over_counts_no_more() {
        let waits = Waits::default();
        let open = waits.open(1);
        drop(waits.enter(&key(0), Wait::decided()));
        assert!(!waits.grant(0));
        drop(open);
        let second = waits.enter(&key(1), Wait::decided());
        assert!(!waits.grant(1), "the step has something else to do");
        drop(second);
        assert!(waits.take().is_empty());
    }
}
