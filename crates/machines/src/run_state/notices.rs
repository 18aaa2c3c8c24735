//! The notices of a run, as its records tell: those that are under way, and those that were not delivered.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{Event, Record};
use crate::spec::notices::{Channel, NoticeIntended};

/// The notices of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notices {
    /// The ids of all notices that were intended: no state is told of twice.
    ids: BTreeSet<String>,
    /// The notices that are neither delivered nor given up, by the number of their first record.
    open: BTreeMap<u64, Notice>,
    /// Number of those that were delivered.
    delivered: u64,
    given_up: BTreeMap<Channel, GivenUp>,
    /// Number of the latest record by which the run came further.
    progress_seq: u64,
    /// Time of that record, or of the opening after it, in milliseconds since the Unix epoch.
    moved_ms: i64,
}

/// A notice that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What is sent.
    pub intended: NoticeIntended,
    /// Number of attempts that failed.
    pub attempts: u32,
    /// Time of the latest failure, in milliseconds since the Unix epoch.
    pub failed_ms: i64,
    /// The reason of the latest failure.
    pub error: String,
}

/// The notices of one channel that were given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// Their number.
    pub count: u64,
    /// The reason of the latest.
    pub error: String,
}

impl Notices {
    /// Returns true if a notice with this id was intended.
    #[must_use]
    pub fn knows(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Returns the notices that are neither delivered nor given up, in the order in which they were intended.
    pub fn open(&self) -> impl Iterator<Item = &Notice> {
        self.open.values()
    }

    /// Returns the notice with this id, if it is open.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Notice> {
        self.open.values().find(|notice| notice.intended.id == id)
    }

    /// Returns the number of notices that were delivered.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the notices that were not delivered, by channel: those that were given up, or whose last attempt
    /// failed.
    #[must_use]
    pub fn undelivered(&self) -> BTreeMap<Channel, GivenUp> {
        let mut found = self.given_up.clone();
        for notice in self.open().filter(|notice| notice.attempts > 0) {
            let none = GivenUp { count: 0, error: String::new() };
            let of_channel = found.entry(notice.intended.channel).or_insert(none);
            of_channel.count += 1;
            of_channel.error.clone_from(&notice.error);
        }
        found
    }

    /// Returns the number of the latest record by which the run came further.
    #[must_use]
    pub fn progress_seq(&self) -> u64 {
        self.progress_seq
    }

    /// Returns the time since which the run has not come further while it was open, in milliseconds since the Unix
    /// epoch.
    #[must_use]
    pub fn moved_ms(&self) -> i64 {
        self.moved_ms
    }

    /// Takes in a record; `is_own` is false for one that a fork shares with its parent. What the parent told of is no
    /// word about the fork.
    pub(super) fn note(&mut self, record: &Record, is_own: bool) {
        if is_progress(&record.event) {
            self.progress_seq = record.seq;
        }
        match &record.event {
            Event::NoticeIntended(_) | Event::NoticeDelivered(_) | Event::NoticeFailed(_)
                if !is_own => {}
            Event::NoticeIntended(intended) => {
                let (id, intended) = (intended.id.clone(), intended.clone());
                let notice = Notice { intended, attempts: 0, failed_ms: 0, error: String::new() };
                let is_new = self.ids.insert(id);
                self.open.extend(is_new.then_some((record.seq, notice)));
            }
            Event::NoticeDelivered(delivered) => {
                self.delivered += u64::from(self.settle(&delivered.id).is_some());
            }
            Event::NoticeFailed(failed) if failed.gives_up => {
                if let Some(notice) = self.settle(&failed.id) {
                    let none = GivenUp { count: 0, error: String::new() };
                    let of_channel = self.given_up.entry(notice.intended.channel).or_insert(none);
                    of_channel.count += 1;
                    of_channel.error.clone_from(&failed.error);
                }
            }
            Event::NoticeFailed(failed) => {
                let mut open = self.open.values_mut();
                if let Some(notice) = open.find(|notice| notice.intended.id == failed.id) {
                    notice.attempts = failed.attempt;
                    notice.failed_ms = record.ts_ms;
                    notice.error.clone_from(&failed.error);
                }
            }
            event if is_progress(event) || matches!(event, Event::RunOpened(_)) => {
                self.moved_ms = record.ts_ms;
            }
            _ => {}
        }
    }

    fn settle(&mut self, id: &str) -> Option<Notice> {
        let (seq, _) = self.open.iter().find(|(_, notice)| notice.intended.id == id)?;
        let seq = *seq;
        self.open.remove(&seq)
    }
}

/// Returns true if a run comes further by an event. To be opened, paused and told of is no progress: a run that is
/// resumed and pauses at once for the same reason is in the same state.
fn is_progress(event: &Event) -> bool {
    matches!(
        event,
        Event::PlanExtended(_)
            | Event::TaskReady(_)
            | Event::TaskStarted(_)
            | Event::TaskRetrying(_)
            | Event::TaskCompleted(_)
            | Event::TaskFailed(_)
            | Event::TaskSkipped(_)
            | Event::TaskCancelled(_)
            | Event::TaskReused(_)
            | Event::AgentSpawned(_)
            | Event::AgentEnded(_)
            | Event::ModelResponded(_)
            | Event::ApprovalAsked(_)
            | Event::ApprovalAnswered(_)
    )
}

impl RunState {
    /// Returns the notices of the run.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }
}
