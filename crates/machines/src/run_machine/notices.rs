//! Decides who is told of which state of a run: a question, a pause, a failure, the end, a stall.
//!
//! A notice is recorded before it is sent, and what became of an attempt after it. So each state is told of once,
//! over retries and resumes, under one id. Whether an attempt that a crash cut short was made, nobody knows: it is
//! made again under the same id, and the receiver can drop the second. No notice makes a run fail; the end of a
//! process waits for the last ones, for a bounded time.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::decision::Decision;
use super::desk::Desk;
use super::timers::Timer;
use super::{Action, Facts};
use crate::event::{Draft, Event, PauseCause, RunCompleted, SharedRecord};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::run_state::{Notice, RunPhase};
use crate::spec::notices::{
    ERROR_BYTES, NoticeDelivered, NoticeFailed, NoticeIntended, NoticeKind, TEXT_BYTES,
};
use crate::turn::question::bounded;
use words::{kind_of, word, words_of};

/// The most notices that are sent at the same time: a burst of questions is no attack on the server.
const MOST_AT_ONCE: usize = 4;

/// The longest sleep towards a moment of wall time, because the clock of timers stands still while the machine
/// sleeps.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The longest wait for notices if somebody has asked the process to stop.
const HASTY_WAIT: Duration = Duration::from_secs(5);

/// The most agents that the notice of a stall names.
const NAMED: usize = 5;

/// The reason of notices that the end of the run leaves undelivered.
const ENDED: &str = "the run ended before it was delivered";

/// The reason of notices whose channel is gone.
const NO_CHANNEL: &str = "the configuration has its channel no longer";

/// Why an attempt to send a notice failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSent {
    /// The reason, for people.
    pub error: String,
    /// True if another attempt cannot succeed.
    pub is_final: bool,
}

/// The notices that are due or under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    /// The states that are told of once they have lasted long enough, by the beginning of their notices' ids.
    watched: BTreeMap<String, Watched>,
    /// The notices of which a record is on its way to the journal.
    recording: BTreeSet<String>,
    sending: BTreeSet<String>,
    /// The moment until which the end of the process waits.
    until: Option<Duration>,
    /// True if something may be due that was not when it was last looked for.
    is_touched: bool,
}

/// A state that may be told of.
#[derive(Clone, Debug)]
enum Watched {
    /// A question, by its id.
    Question(String),
    Failure(Name),
    /// A pause that ends by itself, with its beginning and its reason.
    Quota(i64, String),
}

/// What is told of a state.
struct Told {
    kind: NoticeKind,
    /// What the state is, as no other state of the run: the ids of its notices begin with it.
    about: String,
    state: String,
    text: String,
    task: Option<Name>,
    agent: Option<AgentId>,
    question: Option<String>,
    since_ms: i64,
}

impl Facts {
    /// Returns true if nobody is told of anything, and no notice of an earlier process is open.
    fn has_none(&self) -> bool {
        self.settings.notices.channels.is_empty() && self.state.notices().open().next().is_none()
    }

    /// Returns what is told of the run as a whole.
    fn told_of_run(&self, kind: NoticeKind, state: &str, text: String) -> Told {
        let parts = [kind.as_str(), state].into_iter().filter(|part| !part.is_empty());
        let seq = self.state.notices().progress_seq();
        Told {
            kind,
            about: format!("{}-{seq}", parts.collect::<Vec<_>>().join("-")),
            state: state.to_owned(),
            text,
            task: None,
            agent: None,
            question: None,
            since_ms: self.now.wall_ms,
        }
    }

    /// Returns what is told of a watched state and the time from which it is due, if it still lasts.
    fn told(&self, about: &str, watched: &Watched) -> Option<(Told, i64)> {
        let after = i64::try_from(self.settings.notices.after.as_millis()).unwrap_or(i64::MAX);
        let told = match watched {
            Watched::Question(id) => {
                let question = self.state.questions().get(id)?;
                let asked = &question.asked;
                Told {
                    kind: kind_of(asked.kind),
                    about: about.to_owned(),
                    state: String::new(),
                    text: asked.message.clone(),
                    task: Some(question.task.clone()),
                    agent: question.agent.clone(),
                    question: Some(id.clone()),
                    since_ms: question.since_ms,
                }
            }
            Watched::Failure(task) => {
                let status = self.state.task(task).filter(|t| t.state == TaskState::Failed)?;
                let failure = status.failure.as_ref()?;
                let since_ms = status.ended_ms.unwrap_or(self.now.wall_ms);
                let told = Told {
                    about: about.to_owned(),
                    task: Some(task.clone()),
                    since_ms,
                    ..self.told_of_run(
                        NoticeKind::Failed,
                        failure.kind.as_str(),
                        format!("task `{task}` failed: {failure}"),
                    )
                };
                return Some((told, since_ms));
            }
            Watched::Quota(since_ms, reason) => {
                if self.state.paused_cause() != Some(PauseCause::Quota) {
                    return None;
                }
                let told = self.told_of_run(NoticeKind::Paused, "quota", reason.clone());
                Told { about: about.to_owned(), since_ms: *since_ms, ..told }
            }
        };
        let due = told.since_ms.saturating_add(after);
        Some((told, due))
    }

    /// Returns the first records of the notices of a state, one for each channel; none if it is not told of or was.
    fn notices_of(&self, told: &Told) -> Vec<NoticeIntended> {
        let policy = &self.settings.notices;
        if !policy.tells_of(told.kind) {
            return Vec::new();
        }
        let made = policy.channels.iter().map(|channel| NoticeIntended {
            id: format!("{}-{channel}", told.about),
            kind: told.kind,
            channel: *channel,
            state: told.state.clone(),
            text: match bounded(&told.text, TEXT_BYTES) {
                (text, 0) => text,
                (text, left_out) => format!("{text} [{left_out} bytes more]"),
            },
            task: told.task.clone(),
            agent: told.agent.clone(),
            question: told.question.clone(),
            since_ms: told.since_ms,
        });
        let is_new = |notice: &NoticeIntended| {
            let id = &notice.id;
            !self.state.notices().knows(id) && !self.notices.recording.contains(id)
        };
        made.filter(is_new).collect()
    }

    /// Returns the notices of a full disk. They are recorded with the pause: nothing is after it.
    pub(super) fn notices_of_full_disk(&self, reason: &str) -> Vec<Draft> {
        let told = self.told_of_run(NoticeKind::Paused, "disk_full", reason.to_owned());
        self.notices_of(&told).into_iter().map(Draft::run).collect()
    }

    /// Returns the time at which the run counts as stalled unless it comes further, if it is at work.
    fn stalls_at(&self) -> Option<i64> {
        let is_at_work = self.state.phase() == RunPhase::Open
            && self.state.open_tasks() > 0
            && self.state.questions().is_empty()
            && !self.pauses.is_interrupted()
            && self.settings.notices.tells_of(NoticeKind::Stalled);
        let after = self.settings.notices.stalled_after;
        let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        is_at_work.then(|| self.state.notices().moved_ms().saturating_add(after))
    }

    /// Returns what is told of a stall. Takes time proportional to the agents that are open.
    fn told_of_stall(&self) -> Told {
        let agents: BTreeSet<&AgentId> = self.agents.open().map(|(id, _)| id).collect();
        let named: Vec<_> = agents.iter().take(NAMED).map(|id| format!("`{id}`")).collect();
        let others = match agents.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let seconds = self.settings.notices.stalled_after.as_secs_f64();
        let text = format!(
            "nothing has come further for {seconds} s; agents that have not ended: {}{others}",
            if named.is_empty() { "none".to_owned() } else { named.join(", ") }
        );
        let since_ms = self.state.notices().moved_ms();
        Told { since_ms, ..self.told_of_run(NoticeKind::Stalled, "", text) }
    }

    /// Returns the wall time at which a notice that is under way is sent next.
    fn sent_at(&self, notice: &Notice) -> i64 {
        let pause = self.settings.notices.pause_after(notice.attempts);
        match notice.attempts {
            0 => i64::MIN,
            _ => notice
                .failed_ms
                .saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    /// Returns the moment of a wall time, or an earlier one at which to look again.
    fn moment(&self, wall_ms: i64) -> Duration {
        let left = u64::try_from(wall_ms.saturating_sub(self.now.wall_ms)).unwrap_or(0);
        self.now.since + Duration::from_millis(left).min(LOOK_AGAIN)
    }

    /// Returns true if an end that waits until this moment may hear of a notice that is under way.
    fn may_be_sent_until(&self, until: Duration) -> bool {
        let is_near = |notice: &Notice| {
            self.notices.sending.contains(&notice.intended.id)
                || self.moment(self.sent_at(notice)) < until
        };
        !self.notices.recording.is_empty() || self.state.notices().open().any(is_near)
    }
}

impl Desk<'_, Notices> {
    /// Finds what the last process left untold.
    pub(super) fn take_up(&mut self) {
        let open: Vec<_> = self.state.questions().by_id().map(|(id, _)| id.to_owned()).collect();
        open.into_iter().for_each(|id| self.watch_question(id));
        // What failed before a fork is told of by the run in which it failed.
        let shared = self.state.shared_seq();
        let failed = self.state.tasks();
        let failed =
            failed.filter(|(_, task)| task.state == TaskState::Failed && task.ended_seq > shared);
        let failed: Vec<_> = failed.map(|(name, task)| (name.clone(), task.ended_seq)).collect();
        failed.into_iter().for_each(|(task, seq)| self.watch_failure(task, seq));
        // Whoever resumes a run at a terminal knows. A run that dies again before it came further is in the same state.
        if self.state.has_died() && !self.settings.attended && !self.has_none() {
            let text =
                "the process that drove the run died; another one goes on with it".to_owned();
            let told = self.told_of_run(NoticeKind::Died, "", text);
            self.intend(&told);
        }
        self.own().is_touched = true;
    }

    /// Looks at a record that was applied.
    pub(super) fn taken_in(&mut self, record: &SharedRecord) {
        if self.state.notices().progress_seq() == record.seq {
            // The end that was waited with has not come.
            self.own().until = None;
        }
        // A run that tells nobody watches nothing.
        if self.has_none() {
            return;
        }
        match &record.event {
            Event::ApprovalAsked(asked) => self.watch_question(asked.id.clone()),
            Event::TaskFailed(_) => {
                record.task.iter().for_each(|task| self.watch_failure(task.clone(), record.seq));
            }
            Event::RunPaused(paused) if paused.cause == PauseCause::Quota => {
                let about = self.told_of_run(NoticeKind::Paused, "quota", String::new()).about;
                let watched = Watched::Quota(record.ts_ms, paused.reason.clone());
                self.own().watched.insert(about, watched);
            }
            Event::NoticeIntended(NoticeIntended { id, .. })
            | Event::NoticeDelivered(NoticeDelivered { id, .. })
            | Event::NoticeFailed(NoticeFailed { id, .. }) => drop(self.own().recording.remove(id)),
            _ => return,
        }
        self.own().is_touched = true;
    }

    fn watch_question(&mut self, id: String) {
        let Some(question) = self.state.questions().get(&id) else { return };
        let about = format!("{}-{}", kind_of(question.asked.kind), question.seq);
        self.own().watched.insert(about, Watched::Question(id));
    }

    /// Watches the failure of a task. The failures of instances are told of by their task.
    fn watch_failure(&mut self, task: Name, seq: u64) {
        if task.of_instance().is_none() {
            let about = format!("{}-{seq}", NoticeKind::Failed);
            self.own().watched.insert(about, Watched::Failure(task));
        }
    }

    /// Handles the timer.
    pub(super) fn look_again(&mut self) {
        self.own().is_touched = true;
    }

    /// Records what is due, and sends what is recorded.
    pub(super) fn send_what_is_due(&mut self) {
        let is_idle = self.pauses.is_finishing() || self.has_none();
        if is_idle || !std::mem::take(&mut self.own().is_touched) {
            return;
        }
        let mut next: Vec<Duration> = self.own().until.into_iter().collect();
        next.extend(self.intend_what_is_due());
        next.extend(self.start_sending());
        match next.into_iter().min() {
            Some(at) => self.post(Decision::SetTimer(at, Timer::Notice)),
            None => self.post(Decision::CancelTimer(Timer::Notice)),
        }
    }

    /// Records the notices of states that have lasted long enough. Returns the moment at which the next is due.
    fn intend_what_is_due(&mut self) -> Option<Duration> {
        if self.pauses.is_disk_full() {
            return None;
        }
        let mut next = None::<i64>;
        for (about, watched) in std::mem::take(&mut self.own().watched) {
            match self.told(&about, &watched) {
                None => {}
                Some((told, due)) if due <= self.now.wall_ms => self.intend(&told),
                Some((_, due)) => {
                    next = Some(next.map_or(due, |next| next.min(due)));
                    self.own().watched.insert(about, watched);
                }
            }
        }
        if let Some(due) = self.stalls_at() {
            let told = self.told_of_stall();
            match due <= self.now.wall_ms {
                true => self.intend(&told),
                false => next = Some(next.map_or(due, |next| next.min(due))),
            }
        }
        next.map(|due| self.moment(due))
    }

    fn intend(&mut self, told: &Told) {
        let notices = self.notices_of(told);
        if notices.is_empty() {
            return;
        }
        self.own().recording.extend(notices.iter().map(|notice| notice.id.clone()));
        self.record(notices.into_iter().map(Draft::run).collect());
    }

    /// Sends the notices whose turn has come. Returns the moment of the next attempt.
    fn start_sending(&mut self) -> Option<Duration> {
        let is_idle = |notice: &&Notice| {
            let id = &notice.intended.id;
            !self.notices.sending.contains(id) && !self.notices.recording.contains(id)
        };
        let idle: Vec<Notice> = self.state.notices().open().filter(is_idle).cloned().collect();
        let mut next = None::<i64>;
        for notice in idle {
            let at = self.sent_at(&notice);
            if !self.settings.notices.channels.contains(&notice.intended.channel) {
                self.give_up(&notice, NO_CHANNEL);
            } else if at > self.now.wall_ms {
                next = Some(next.map_or(at, |next| next.min(at)));
            } else if self.notices.sending.len() < MOST_AT_ONCE {
                self.own().sending.insert(notice.intended.id.clone());
                self.act(Action::SendNotice(Box::new(notice.intended)));
            }
        }
        next.map(|at| self.moment(at))
    }

    /// Records what became of an attempt.
    pub(super) fn sent(&mut self, id: &str, sent: Result<(), NotSent>) {
        if !self.own().sending.remove(id) || self.pauses.is_finishing() {
            return;
        }
        self.own().is_touched = true;
        let Some(attempts) = self.state.notices().get(id).map(|notice| notice.attempts) else {
            return;
        };
        let (id, attempt) = (id.to_owned(), attempts.saturating_add(1));
        let event: Event = match sent {
            Ok(()) => NoticeDelivered { id: id.clone(), attempt }.into(),
            Err(NotSent { error, is_final }) => {
                let error = bounded(&error, ERROR_BYTES).0;
                let gives_up = is_final || attempt >= self.settings.notices.attempts;
                NoticeFailed { id: id.clone(), attempt, error, gives_up }.into()
            }
        };
        self.own().recording.insert(id);
        self.record(vec![Draft::run(event)]);
    }

    fn give_up(&mut self, notice: &Notice, why: &str) {
        let (id, attempt) = (notice.intended.id.clone(), notice.attempts);
        let error = match notice.error.is_empty() {
            true => why.to_owned(),
            false => bounded(&format!("{why}: {}", notice.error), ERROR_BYTES).0,
        };
        self.own().recording.insert(id.clone());
        self.record(vec![Draft::run(NoticeFailed { id, attempt, error, gives_up: true })]);
    }

    /// Tells of a pause with which the process ends, and has it recorded.
    pub(super) fn tell_of_pause(&mut self, reason: String, cause: PauseCause) {
        let limit = match cause {
            PauseCause::Interrupted => self.settings.notices.wait.min(HASTY_WAIT),
            PauseCause::Failure | PauseCause::Person => self.settings.notices.wait,
            PauseCause::DiskFull | PauseCause::Quota => Duration::ZERO,
        };
        let told = self.told_of_run(NoticeKind::Paused, word(cause), reason.clone());
        if !self.waits_for_last(&told, limit) {
            self.post(Decision::RecordPause(reason, cause));
        }
    }

    /// Tells of the end of the run, and has it recorded.
    pub(super) fn tell_of_end(&mut self, result: Box<RunCompleted>) {
        self.post(Decision::CancelTimer(Timer::RunLimit));
        let (state, text) = words_of(&result);
        let told = self.told_of_run(NoticeKind::Finished, state, text);
        if self.waits_for_last(&told, self.settings.notices.wait) {
            return;
        }
        // Nothing stands behind the end of a run, so nothing of it can be told later, and what became of the last
        // attempts stands before it.
        if !self.pauses.is_disk_full() {
            if !self.notices.recording.is_empty() {
                return;
            }
            let open: Vec<Notice> = self.state.notices().open().cloned().collect();
            open.iter().for_each(|notice| self.give_up(notice, ENDED));
        }
        self.post(Decision::RecordEnd(result));
    }

    /// Tells of the end of the process, and of all that is not told yet: nobody will be there when its time has come.
    /// Returns true while the end waits for its notices.
    fn waits_for_last(&mut self, told: &Told, limit: Duration) -> bool {
        // On a full disk nothing can be recorded.
        if self.settings.notices.channels.is_empty() || self.pauses.is_disk_full() {
            return false;
        }
        if self.notices.until.is_none() {
            self.own().until = Some(self.now.since + limit);
            self.own().is_touched = true;
            self.intend(told);
            for (about, watched) in std::mem::take(&mut self.own().watched) {
                if let Some((told, _)) = self.told(&about, &watched) {
                    self.intend(&told);
                }
            }
        }
        let until = self.notices.until.unwrap_or_default();
        self.now.since < until && self.may_be_sent_until(until)
    }
}

#[cfg(test)]
mod tests;
