//! The parts of a run that a person paused, as its records tell, and the time that they take.
//!
//! A pause holds for a scope and all below it. Time in which a task or an agent is paused counts against no limit: for
//! a task or an agent its stopwatch stands still, for the whole run the clock does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{Event, Record};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::spec::budget::Scope;

/// The parts of a run that a person paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopePauses {
    paused: BTreeMap<Scope, ScopePause>,
    /// When each scope was last paused or let go on, in milliseconds since the Unix epoch.
    changed_ms: BTreeMap<Scope, i64>,
}

/// A pause of a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopePause {
    /// Why, in the words of the person.
    pub reason: Option<String>,
    /// Who paused it, as `user@host/pid`.
    pub by: String,
    /// Number of the record.
    pub seq: u64,
    /// Time of the record, in milliseconds since the Unix epoch.
    pub ts_ms: i64,
}

impl ScopePauses {
    fn note(&mut self, record: &Record) {
        let scope = match &record.event {
            Event::ScopePaused(paused) => {
                let (reason, by) = (paused.reason.clone(), paused.by.clone());
                let pause = ScopePause { reason, by, seq: record.seq, ts_ms: record.ts_ms };
                // Who pauses again what is paused changes nothing.
                self.paused.entry(paused.scope.clone()).or_insert(pause);
                &paused.scope
            }
            Event::ScopeUnpaused(unpaused) => {
                self.paused.remove(&unpaused.scope);
                &unpaused.scope
            }
            _ => return,
        };
        self.changed_ms.insert(scope.clone(), record.ts_ms);
    }

    /// Returns true if nothing is paused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paused.is_empty()
    }

    /// Returns the pause of a scope itself.
    #[must_use]
    pub fn get(&self, scope: &Scope) -> Option<&ScopePause> {
        self.paused.get(scope)
    }

    /// Returns all pauses: that of the run first, then by task and by agent.
    pub fn iter(&self) -> impl Iterator<Item = (&Scope, &ScopePause)> {
        self.paused.iter()
    }

    /// Returns when a scope was last paused or let go on, in milliseconds since the Unix epoch; 0 for never.
    #[must_use]
    pub fn changed_ms(&self, scope: &Scope) -> i64 {
        self.changed_ms.get(scope).copied().unwrap_or(0)
    }
}

/// Returns true if a task belongs to a scope.
#[must_use]
pub fn is_task_in(scope: &Scope, name: &Name) -> bool {
    match scope {
        Scope::Run => true,
        Scope::Task(of) => name.is_part_of(of),
        Scope::Agent(_) => false,
    }
}

impl RunState {
    /// Returns the parts of the run that a person paused.
    #[must_use]
    pub fn scope_pauses(&self) -> &ScopePauses {
        &self.scope_pauses
    }

    /// Returns true if an agent belongs to a scope.
    #[must_use]
    pub fn is_agent_in(&self, scope: &Scope, id: &AgentId) -> bool {
        match scope {
            Scope::Run => true,
            Scope::Task(name) => {
                self.agents.get(id).is_some_and(|agent| agent.task.is_part_of(name))
            }
            Scope::Agent(of) => {
                let parent =
                    |id: &&AgentId| self.agents.get(*id).and_then(|agent| agent.parent.as_ref());
                // No agent has more ancestors than there are agents, whatever a journal says.
                let mut around = std::iter::successors(Some(id), parent).take(self.agents.len());
                around.any(|one| one == of)
            }
        }
    }

    /// Returns a pause that holds for an agent, the widest if there are several.
    #[must_use]
    pub fn pause_of_agent(&self, id: &AgentId) -> Option<(&Scope, &ScopePause)> {
        self.scope_pauses.iter().find(|(scope, _)| self.is_agent_in(scope, id))
    }

    /// Returns a pause that holds for a task or for the main agent of its latest attempt, the widest if there are
    /// several.
    #[must_use]
    pub fn pause_of_task(&self, name: &Name) -> Option<(&Scope, &ScopePause)> {
        let of_task = self.scope_pauses.iter().find(|(scope, _)| is_task_in(scope, name));
        let main = || self.tasks.get(name).and_then(|task| task.agent.as_ref());
        match self.scope_pauses.is_empty() {
            true => None,
            false => of_task.or_else(|| main().and_then(|id| self.pause_of_agent(id))),
        }
    }

    /// Returns true if something of a scope has not ended.
    #[must_use]
    pub fn is_scope_open(&self, scope: &Scope) -> bool {
        let is_open = |name: &Name| self.tasks.get(name).is_some_and(|task| !task.state.is_end());
        self.completed.is_none()
            && match scope {
                Scope::Run => true,
                Scope::Task(name) => is_open(name),
                // Its task may begin another attempt, which waits too.
                Scope::Agent(id) => self.agents.get(id).is_some_and(|agent| {
                    let task = self.tasks.get(&agent.task).and_then(|task| task.agent.as_ref());
                    !agent.has_subtree_ended() || (task == Some(id) && is_open(&agent.task))
                }),
            }
    }

    /// Takes in a record, and stops or starts the stopwatches of what it pauses or lets go on.
    pub(super) fn note_pause(&mut self, record: &Record) {
        match &record.event {
            Event::ScopePaused(_) | Event::ScopeUnpaused(_) => {
                self.scope_pauses.note(record);
                let tasks: Vec<_> = self.tasks.keys().cloned().collect();
                tasks.iter().for_each(|name| self.set_task_watches(name));
                let agents: Vec<_> = self.agents.keys().cloned().collect();
                agents.iter().for_each(|id| self.set_agent_watch(id));
            }
            _ if self.scope_pauses.is_empty() => {}
            // Whoever begins it anew begins without.
            Event::RunCompleted(_) => self.scope_pauses.paused.clear(),
            Event::TaskStarted(_) | Event::TaskRetrying(_) | Event::ApprovalAsked(_) => {
                record.task.iter().for_each(|name| self.set_task_watches(name));
            }
            Event::AgentSpawned(_) => {
                record.agent.iter().for_each(|id| self.set_agent_watch(id));
                record.task.iter().for_each(|name| self.set_task_watches(name));
            }
            _ => {}
        }
    }

    /// Lets the stopwatches of a task stand still while it is paused. They run from its start to its end.
    fn set_task_watches(&mut self, name: &Name) {
        let (is_paused, now) = (self.pause_of_task(name).is_some(), self.clock.reading());
        let Some(task) = self.tasks.get_mut(name) else { return };
        let has_begun = task.started_ms.is_some();
        let is_under_way = matches!(task.state, TaskState::Running | TaskState::Waiting);
        if !(has_begun && is_under_way) {
            return;
        }
        match is_paused {
            true => task.whole.stop(now),
            false => task.whole.resume(now),
        }
        match (task.state, is_paused) {
            (TaskState::Running, true) => task.latest.stop(now),
            (TaskState::Running, false) => task.latest.resume(now),
            _ => {}
        }
    }

    /// Lets the stopwatch of an agent's pauses run while it is paused, also when it has ended: it may go on.
    fn set_agent_watch(&mut self, id: &AgentId) {
        let (is_paused, now) = (self.pause_of_agent(id).is_some(), self.clock.reading());
        let Some(agent) = self.agents.get_mut(id) else { return };
        match is_paused {
            true => agent.paused.resume(now),
            false => agent.paused.stop(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    /// A run that is told record by record, each at a second of its own.
    #[derive(Default)]
    struct Story(RunState);

    impl Story {
        fn begin() -> Self {
            let mut story = Self::default();
            let created = json!({
                "run": "00000000-0000-7000-8000-000000000000", "workflow": "w", "program": "", "config": "",
                "config_hash": "", "inputs": {}, "tasks": [{"name": "a", "depends_on": []}],
            });
            story.says(0, "", "run.created", &created);
            story.says(0, "", "run.opened", &json!({"epoch": 1, "pid": 812}));
            story.says(0, "a", "task.ready", &json!({}));
            story.says(0, "a", "task.started", &json!({"attempt": 1, "agent": "a"}));
            let program = json!({"model": {"agent": "worker", "prompt": {"text": "x"}}});
            story.says(
                0,
                "@a",
                "agent.spawned",
                &json!({"program": program, "depth": 0, "parent": null}),
            );
            story
        }

        fn says(&mut self, second: i64, who: &str, kind: &str, data: &Value) {
            let agent = who.strip_prefix('@').map(AgentId::from_text);
            let task = Some(who.trim_start_matches('@')).filter(|task| !task.is_empty());
            let event = Event::decode(kind, &data.to_string()).expect(kind).expect("a known type");
            let (seq, ts_ms) = (self.0.last_seq() + 1, second * 1_000);
            let task = task.map(|task| Name::new(task).expect("a name"));
            let record = Record { seq, epoch: 1, ts_ms, task, agent, event };
            self.0.apply(&record).expect("a legal record");
        }

        fn pauses(&mut self, second: i64, scope: &str, paused: bool) {
            let kind = if paused { "scope.paused" } else { "scope.unpaused" };
            self.says(second, "", kind, &json!({"scope": scope, "by": "me"}));
        }

        /// Lets time pass.
        fn reads(&mut self, second: i64) {
            self.says(second, "", "gateway.resumed", &json!({"provider": "p"}));
        }

        fn whole(&self) -> Duration {
            let task = self.0.task(&Name::new("a").expect("a name")).expect("a task");
            task.whole.taken(self.0.reading())
        }

        fn paused(&self) -> Duration {
            let agent = &self.0.agents()[&AgentId::from_text("a")];
            agent.paused.taken(self.0.reading())
        }

        fn ends(&mut self, second: i64) {
            let outcome = json!({"status": "completed", "output": {"text": "done"}});
            let ended = json!({"outcome": outcome, "turns": 1, "usage": {}});
            self.says(second, "@a", "agent.ended", &ended);
        }

        fn begins_round(&mut self, second: i64) {
            let restarted = json!({
                "restart": 0, "reason": "round 2", "feedback": {"cause": "check", "text": "no"},
            });
            self.says(second, "@a", "agent.restarted", &restarted);
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn the_time_between_attempts_stands_still_too() {
        for scope in ["/a", "/@a"] {
            let mut story = Story::begin();
            let failure = json!({"kind": "overloaded", "message": "busy"});
            let retrying =
                json!({"attempt": 1, "failure": failure, "pause_ms": 5_000, "on_resume": false});
            story.says(10, "a", "task.retrying", &retrying);
            story.pauses(12, scope, true);
            assert!(story.0.pause_of_task(&Name::new("a").expect("a name")).is_some());
            story.pauses(100, scope, false);
            story.reads(103);
            assert_eq!(story.whole(), seconds(15), "{scope}");
        }
        // It fails while it is paused, and is let go on between two attempts.
        let mut story = Story::begin();
        story.pauses(5, "/a", true);
        let failure = json!({"kind": "overloaded", "message": "busy"});
        let retrying =
            json!({"attempt": 1, "failure": failure, "pause_ms": 5_000, "on_resume": false});
        story.says(10, "a", "task.retrying", &retrying);
        story.pauses(20, "/a", false);
        story.reads(24);
        assert_eq!(story.whole(), seconds(9));
    }

    #[test]
    fn an_agent_that_goes_on_after_its_end_was_paused_as_long_as_it_was() {
        let mut story = Story::begin();
        story.pauses(10, "/@a", true);
        story.ends(11);
        story.pauses(20, "/@a", false);
        story.begins_round(21);
        story.reads(40);
        assert_eq!(story.paused(), seconds(10));
        let mut story = Story::begin();
        story.ends(10);
        story.pauses(11, "/a", true);
        story.begins_round(12);
        story.pauses(20, "/a", false);
        story.reads(40);
        assert_eq!(story.paused(), seconds(9));
    }

    #[test]
    fn the_clock_of_a_paused_run_stands_still() {
        let mut story = Story::begin();
        story.pauses(10, "/", true);
        story.pauses(12, "/", true);
        story.reads(500);
        story.pauses(1_000, "/", false);
        story.reads(1_005);
        assert_eq!((story.0.spent(), story.whole()), (seconds(15), seconds(15)));
        assert!(story.0.scope_pauses().is_empty());
    }

    #[test]
    fn a_scope_is_open_as_long_as_something_of_it_may_begin() {
        let mut story = Story::begin();
        let is_open =
            |story: &Story, scope: &str| story.0.is_scope_open(&scope.parse().expect("a scope"));
        story.ends(1);
        // Its answer is judged, and it may begin another round.
        assert!(is_open(&story, "/@a") && is_open(&story, "/a") && is_open(&story, "/"));
        story.says(2, "a", "task.completed", &json!({"attempt": 1, "output": {"text": "done"}}));
        assert!(!is_open(&story, "/@a") && !is_open(&story, "/a") && is_open(&story, "/"));
        assert!(!is_open(&story, "/gone") && !is_open(&story, "/@gone"));
    }
}
