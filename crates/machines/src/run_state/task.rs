//! The state of one task according to the journal: its attempts, its result, its times.

use serde::{Deserialize, Serialize};

use super::Moment;
use super::clock::{Reading, Stopwatch};
use crate::event::Event;
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::output::Output;
use crate::plan::{Consequence, Standing, TaskState};
use crate::turn::Cause;

/// A result from before its task was opened again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The key of the content that it was made from.
    pub key: String,
    /// The result.
    pub output: Output,
    /// Id of the question that a person answered, if the result is that answer. It counts for its
    /// own task alone.
    pub question: Option<String>,
}

/// The state of a task according to the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Its state.
    pub state: TaskState,
    /// The moment since which it is in this state.
    #[serde(default)]
    pub since: Moment,
    /// Number of attempts made so far.
    pub attempt: u32,
    /// Number of those attempts that were made under an earlier configuration.
    pub earlier: u32,
    /// The agent of the latest attempt.
    pub agent: Option<AgentId>,
    /// Number of agents of the task, over all attempts, that have not ended.
    pub open_agents: u32,
    /// The causes of the rounds of its latest attempt after the first, in their order.
    #[serde(default)]
    pub rounds: Vec<Cause>,
    /// The key of the content that its result, or its latest attempt, is made from.
    pub key: Option<String>,
    /// Its output, once it completed.
    pub output: Option<Output>,
    /// The failure of the task or of its latest attempt.
    pub failure: Option<Failure>,
    /// The reason why it was skipped or cancelled.
    pub reason: Option<String>,
    /// The task because of which it was skipped, if it was skipped for a failure.
    pub because: Option<Name>,
    /// The consequence of its failure for other tasks, if it is not left to `limits.fail_fast`.
    #[serde(default)]
    pub consequence: Option<Consequence>,
    /// Hash of the items of its latest fan-out.
    #[serde(default)]
    pub items: Option<String>,
    /// The instances of its latest fan-out, in the order of the items: the name and the key of each.
    #[serde(default)]
    pub instances: Vec<(Name, String)>,
    /// Time at which its first attempt began, in milliseconds since the Unix epoch.
    pub started_ms: Option<i64>,
    /// Time at which it ended, in milliseconds since the Unix epoch.
    pub ended_ms: Option<i64>,
    /// Time at which the pause before its next attempt ends, in milliseconds since the Unix epoch.
    pub retry_ms: Option<i64>,
    /// Length of that pause in milliseconds; absent in snapshots of earlier versions.
    #[serde(default)]
    pub pause_ms: Option<u64>,
    /// Id of the question that the task asks in its latest attempt, answered or not.
    #[serde(default)]
    pub question: Option<String>,
    /// Its result from before it was opened again. The task takes it again if it would be made from
    /// the same content.
    #[serde(default)]
    pub kept: Option<Kept>,
    /// True if a task before it was opened again with it: it is decided once all tasks before it have
    /// ended, also where its `join` could do with some of them.
    #[serde(default)]
    pub again: bool,
    /// True if it runs although a result of the same content is known: it was named for a retry.
    #[serde(default)]
    pub anew: bool,
    /// Number of the record that added it to the plan; 0 if the run was created with it.
    #[serde(default)]
    pub added_seq: u64,
    /// Number of the record since which it could start, or since which its next attempt is due.
    #[serde(default)]
    pub ready_seq: u64,
    /// Number of the record with which the latest child of its agents began.
    #[serde(default)]
    pub child_seq: u64,
    /// Number of the record with which its latest attempt, or its fan-out, began.
    #[serde(default)]
    pub began_seq: u64,
    /// Number of the last record that was known when the items of its fan-out were read; absent if that
    /// is the record with which it began.
    #[serde(default)]
    pub items_seen: Option<u64>,
    /// Number of the record of its end.
    #[serde(default)]
    pub ended_seq: u64,
    /// The time taken since its first attempt began, with the pauses between attempts.
    pub whole: Stopwatch,
    /// The time taken by its latest attempt. It is not stopped when the task ends, so it is right
    /// only while the attempt runs or is held.
    pub latest: Stopwatch,
}

impl TaskStatus {
    /// Returns its result with the key of the content that it was made from, if it has ended with
    /// both, or the one that it had before it was opened again. An answer of a person is none: it
    /// counts for its own task alone.
    #[must_use]
    pub fn result(&self) -> Option<(&str, &Output)> {
        let own = self.key.as_deref().zip(self.output.as_ref());
        let own = own.filter(|_| self.state.is_end() && self.question.is_none());
        let kept = self.kept.as_ref().filter(|kept| kept.question.is_none());
        own.or(kept.map(|kept| (kept.key.as_str(), &kept.output)))
    }

    /// Returns its result, or the answer of a person, as it is kept while the task is decided again.
    pub(super) fn keep(&self) -> Option<Kept> {
        let own = self.key.clone().zip(self.output.clone()).filter(|_| self.state.is_end());
        let question = self.question.clone();
        let own = own.map(|(key, output)| Kept { key, output, question });
        own.or_else(|| self.kept.clone())
    }

    /// Returns the number of the round of its latest attempt, from 1.
    #[must_use]
    pub fn round(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Returns true if its latest attempt is held: it was under way when another configuration was
    /// accepted, and it is not known yet if the content is still the same.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.state, TaskState::Pending | TaskState::Ready) && self.agent.is_some()
    }

    /// Returns the task with its attempt held, or `None` if no attempt is under way.
    pub(super) fn held(mut self, now: Reading) -> Option<Self> {
        if self.agent.is_none() || (self.state != TaskState::Running && !self.is_held()) {
            return None;
        }
        self.state = TaskState::Pending;
        self.whole.stop(now);
        self.latest.stop(now);
        Some(self)
    }

    /// Returns true if the task failed and its next attempt begins when the run is resumed.
    #[must_use]
    pub fn waits_for_resume(&self) -> bool {
        self.state == TaskState::Waiting && self.retry_ms.is_none() && self.question.is_none()
    }

    /// Returns the task in its first state, after the attempts that were made. If it had completed,
    /// it runs again whatever it is made from.
    pub(super) fn begin_again(&self) -> Self {
        let anew = self.is_complete();
        Self {
            attempt: self.attempt,
            earlier: self.attempt,
            open_agents: self.open_agents,
            key: self.key.clone(),
            items: self.items.clone(),
            instances: self.instances.clone(),
            kept: self.kept.clone().filter(|_| !anew),
            anew,
            added_seq: self.added_seq,
            child_seq: self.child_seq,
            began_seq: self.began_seq,
            ..Self::default()
        }
    }

    /// Returns the task as it is when a task before it runs again: an attempt under way is held, and
    /// a result is kept, until the content that they would be made from now is known.
    pub(super) fn decide_again(&self, now: Reading) -> Self {
        let held = self.clone().held(now);
        let kept = self.keep();
        let fresh = || Self { kept, anew: false, ..self.begin_again() };
        Self { again: true, ..held.unwrap_or_else(fresh) }
    }

    /// Makes the agent of the latest attempt continue when the task starts, if the task is about
    /// to begin again. The attempt counts as the first of the retry.
    pub(super) fn hold(&mut self, id: &AgentId) -> Result<(), String> {
        if self.state != TaskState::Pending || self.agent.is_some() {
            return Err("its task does not begin again".to_owned());
        }
        self.agent = Some(id.clone());
        self.earlier = self.attempt.saturating_sub(1);
        self.open_agents = self.open_agents.saturating_add(1);
        Ok(())
    }

    /// Returns true if the task has a result of its own: it completed, and did not fan out.
    pub(super) fn is_complete(&self) -> bool {
        self.standing() == Standing::Done && self.instances.is_empty()
    }

    /// Returns true if the task is done: it completed, or was skipped by its own `when`.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state != TaskState::Failed
            && matches!(self.standing(), Standing::Done | Standing::Passed)
    }

    /// Returns the standing of the task as a dependency of others.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.state {
            TaskState::Pending | TaskState::Ready | TaskState::Running | TaskState::Waiting => {
                Standing::Open
            }
            TaskState::Completed | TaskState::Reused => Standing::Done,
            TaskState::Failed if self.consequence == Some(Consequence::Continue) => {
                Standing::Passed
            }
            TaskState::Failed | TaskState::Cancelled => Standing::Failed,
            TaskState::Skipped if self.because.is_none() => Standing::Passed,
            TaskState::Skipped => Standing::SkippedByFailure,
        }
    }

    /// Applies an event that was recorded at the wall time `ts_ms`, when the reading of the run's
    /// clock was `now`.
    pub(super) fn apply(&mut self, event: &Event, ts_ms: i64, now: Reading) -> Result<(), String> {
        let next = match event {
            Event::TaskReady(_) => TaskState::Ready,
            Event::TaskStarted(_) => TaskState::Running,
            Event::TaskRetrying(_) => TaskState::Waiting,
            Event::TaskCompleted(_) => TaskState::Completed,
            Event::TaskReused(_) => TaskState::Reused,
            Event::TaskFailed(_) => TaskState::Failed,
            Event::TaskSkipped(_) => TaskState::Skipped,
            Event::TaskCancelled(_) => TaskState::Cancelled,
            Event::ApprovalAsked(_) => TaskState::Waiting,
            _ => return Ok(()),
        };
        if !may_follow(self.state, next) {
            return Err(format!("the task is {} already", self.state.as_str()));
        }
        let was_held = self.is_held();
        self.state = next;
        if next.is_end() {
            self.ended_ms = Some(ts_ms);
            self.whole.stop(now);
            (self.again, self.anew) = (false, false);
        }
        match event {
            Event::TaskStarted(started) => {
                let goes_on = self.agent.is_some() && self.agent == started.agent;
                if was_held && !goes_on {
                    self.earlier = self.attempt;
                }
                self.attempt = started.attempt;
                self.agent.clone_from(&started.agent);
                self.key.clone_from(&started.key);
                self.started_ms.get_or_insert(ts_ms);
                self.retry_ms = None;
                (self.again, self.anew) = (false, false);
                self.whole.resume(now);
                match goes_on {
                    true => self.latest.resume(now),
                    false => {
                        self.latest = Stopwatch::started(now);
                        self.rounds.clear();
                    }
                }
            }
            Event::TaskRetrying(retrying) => {
                self.failure = Some(retrying.failure.clone());
                self.question = None;
                let pause = i64::try_from(retrying.pause_ms).unwrap_or(i64::MAX);
                let next = ts_ms.saturating_add(pause);
                self.retry_ms = Some(next).filter(|_| !retrying.on_resume);
                self.pause_ms = Some(retrying.pause_ms);
            }
            Event::ApprovalAsked(asked) => {
                self.attempt += 1;
                self.question = Some(asked.id.clone());
                self.key.clone_from(&asked.content);
                (self.again, self.anew) = (false, false);
                self.started_ms.get_or_insert(ts_ms);
                self.whole.resume(now);
            }
            Event::TaskCompleted(completed) => {
                self.output = Some(completed.output.clone());
                self.failure = None;
                self.kept = None;
            }
            Event::TaskReused(reused) => {
                self.output = Some(reused.output.clone());
                self.key = Some(reused.key.clone());
                self.failure = None;
                // A kept answer stays that of a person.
                self.question = self.kept.take().and_then(|kept| kept.question);
            }
            Event::TaskFailed(failed) => {
                self.failure = Some(failed.failure.clone());
                self.consequence = failed.consequence;
            }
            Event::TaskSkipped(skipped) => {
                self.reason = Some(skipped.reason.clone());
                self.because = skipped.because.clone();
            }
            Event::TaskCancelled(cancelled) => self.reason = Some(cancelled.reason.clone()),
            _ => {}
        }
        Ok(())
    }
}

/// Returns true if a task may change from the state `now` to the state `next`. This is the only
/// table of these transitions.
fn may_follow(now: TaskState, next: TaskState) -> bool {
    use TaskState::{
        Cancelled, Completed, Failed, Pending, Ready, Reused, Running, Skipped, Waiting,
    };
    match now {
        Pending => matches!(next, Ready | Skipped | Cancelled | Failed | Reused),
        // A task that stands for a sub-graph has no work of its own.
        Ready => {
            matches!(next, Running | Waiting | Skipped | Cancelled | Failed | Reused | Completed)
        }
        Running => matches!(next, Completed | Failed | Cancelled | Waiting),
        Waiting => matches!(next, Running | Completed | Failed | Cancelled | Skipped | Reused),
        Completed | Failed | Skipped | Cancelled | Reused => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{TaskReady, TaskStarted};
    use crate::run_state::clock::Clock;

    #[test]
    fn a_held_attempt_goes_on_or_belongs_to_an_earlier_configuration() {
        let agent = |attempt| AgentId::from_text(&format!("t~{attempt}"));
        let started = |attempt| -> Event {
            let (agent, key) = (Some(agent(attempt)), Some("k".to_owned()));
            TaskStarted { attempt, agent, instances: None, key, item: None }.into()
        };
        // Each row: the attempt that starts after the hold, the number of attempts of an earlier
        // configuration, and the time of the latest one from the 5 ms before the hold and the 3 ms
        // after.
        for (attempt, earlier, taken) in [(2, 0, 8), (3, 2, 3)] {
            let mut clock = Clock::default();
            let mut task = TaskStatus::default();
            for event in [TaskReady {}.into(), started(2)] {
                task.apply(&event, 0, clock.reading()).expect("legal");
            }
            clock.passed(5);
            let held = task.held(clock.reading()).expect("it was at work");
            assert!(held.is_held() && held.state == TaskState::Pending);
            clock.passed(100);
            let mut task = held.clone().held(clock.reading()).expect("it is held");
            assert_eq!(task, held, "to hold it twice is to hold it");
            for event in [TaskReady {}.into(), started(attempt)] {
                task.apply(&event, 0, clock.reading()).expect("legal");
            }
            clock.passed(3);
            assert!(!task.is_held());
            assert_eq!((task.attempt, task.earlier), (attempt, earlier));
            assert_eq!(task.latest.taken(clock.reading()), Duration::from_millis(taken));
        }
        assert_eq!(TaskStatus::default().held(Reading::default()), None);
    }

    #[test]
    fn no_end_is_followed_and_every_task_can_end() {
        use TaskState::{
            Cancelled, Completed, Failed, Pending, Ready, Reused, Running, Skipped, Waiting,
        };
        let all = [Pending, Ready, Running, Waiting, Completed, Failed, Skipped, Cancelled, Reused];
        for now in all {
            let followers = all.iter().filter(|next| may_follow(now, **next)).count();
            assert_eq!(followers == 0, now.is_end(), "{now:?}");
            assert!(!may_follow(now, Pending), "{now:?}");
        }
    }
}
