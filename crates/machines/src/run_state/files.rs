//! The files that the agents of a run have changed, and who did it last.
//!
//! A change counts from the record of its beginning: it is durable before the file changes, so whoever finds the
//! content finds the record too. The agents at work share the table that the records gave, and add to it before they
//! change a file: the mail of the run would come later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Moment;
use crate::event::{Event, Record};
use crate::id::{AgentId, CallKey, Name};
use crate::turn::ToolStatus;
use crate::turn::files::{ChangedBy, Changes};

/// The changes of files by agents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// By place.
    changed: BTreeMap<String, Changed>,
    /// The places of the calls that change a file now.
    open: BTreeMap<CallKey, String>,
}

/// The changes of one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Changed {
    last: Change,
    /// The change before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<Change>,
    /// The last change by somebody else than whoever made the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other: Option<Change>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Change {
    by: AgentId,
    call: CallKey,
    at: Moment,
    after: String,
}

impl Files {
    /// Takes in a record, if it tells of the beginning or the end of a change.
    pub fn note(&mut self, record: &Record) {
        let Some(by) = &record.agent else { return };
        match &record.event {
            Event::ToolStarted(started) => {
                let Some(change) = started.change.as_ref().filter(|c| !c.place.is_empty()) else {
                    return;
                };
                let (call, after) = (started.key.clone(), change.post.clone());
                self.open.insert(call.clone(), change.place.clone());
                let change_by = Change { by: by.clone(), call, at: record.into(), after };
                self.begun(&change.place, change_by);
            }
            Event::ToolFinished(finished) => {
                if let Some(place) = self.open.remove(&finished.key)
                    && finished.status == ToolStatus::Error
                {
                    self.failed(&place, &finished.key);
                }
            }
            _ => {}
        }
    }

    /// Returns who changed a file, as this agent of a task asks it. What an earlier attempt of the task made is its
    /// own.
    #[must_use]
    pub fn changes(&self, place: &str, agent: &AgentId, task: &Name) -> Changes {
        let is_main = agent.is_main_of(task);
        self.changes_but(place, |by| by == agent || (is_main && by.is_main_of(task)))
    }

    /// Returns true if the file was changed last by this agent, or by one that works for it.
    #[must_use]
    pub fn is_changed_under(&self, place: &str, top: &AgentId) -> bool {
        self.changed.get(place).is_some_and(|changed| changed.last.by.is_within(top))
    }

    fn begun(&mut self, place: &str, change: Change) {
        let Some(Changed { last, other, .. }) = self.changed.get_mut(place) else {
            let changed = Changed { last: change, before: None, other: None };
            self.changed.insert(place.to_owned(), changed);
            return;
        };
        if last.call == change.call {
            // The call is made again.
            *last = change;
            return;
        }
        let other = if last.by == change.by { other.take() } else { Some(last.clone()) };
        let before = Some(std::mem::replace(last, change.clone()));
        self.changed.insert(place.to_owned(), Changed { last: change, before, other });
    }

    /// Takes back a change that was not made.
    fn failed(&mut self, place: &str, call: &CallKey) {
        let Some(changed) =
            self.changed.get_mut(place).filter(|changed| changed.last.call == *call)
        else {
            return;
        };
        match changed.before.take() {
            Some(before) => changed.last = before,
            None => drop(self.changed.remove(place)),
        }
    }

    fn changes_but(&self, place: &str, is_own: impl Fn(&AgentId) -> bool) -> Changes {
        let Some(Changed { last, other, .. }) = self.changed.get(place) else {
            return Changes::default();
        };
        let own = is_own(&last.by).then(|| last.after.clone());
        let other = [Some(last), other.as_ref()].into_iter().flatten().find(|c| !is_own(&c.by));
        let other = other.map(|Change { by, at, after, .. }| ChangedBy {
            agent: by.clone(),
            seq: at.seq,
            ms: at.ms,
            after: after.clone(),
        });
        Changes { own, other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::turn::{FileChange, ToolFinished, ToolStarted};

    fn key(number: u32) -> CallKey {
        let run = RunId::from(uuid::Uuid::nil());
        CallKey::derive(run, &AgentId::from_text("a"), number, 0, "write_file", "{}")
    }

    fn record(seq: u64, agent: &str, event: Event) -> Record {
        let agent = Some(AgentId::from_text(agent));
        Record { seq, epoch: 1, ts_ms: 0, task: None, agent, event }
    }

    fn started(seq: u64, agent: &str, after: &str) -> Record {
        let number = u32::try_from(seq).expect("small");
        let (path, place) = ("f".to_owned(), "/f".to_owned());
        let change = FileChange { path, place, post: after.to_owned(), ..FileChange::default() };
        let (pgid, starttime) = (None, None);
        record(
            seq,
            agent,
            ToolStarted { key: key(number), pgid, starttime, change: Some(change) }.into(),
        )
    }

    fn ended(seq: u64, agent: &str, of: u32, status: ToolStatus) -> Record {
        let block = crate::message::Json::encode(&serde_json::json!({}));
        let finished = ToolFinished {
            key: key(of),
            turn: 1,
            index: 0,
            name: "write_file".to_owned(),
            status,
            source: crate::turn::ResultSource::Live,
            block,
            stored: None,
            printed: None,
            exit_code: None,
            told_to_end: false,
            denied: false,
            refused: false,
            fails_agent: false,
            prints: None,
            file: None,
            took_ms: 0,
        };
        record(seq, agent, finished.into())
    }

    /// Who changed the file, as an agent asks it: what it made itself, and who else made what.
    fn asked(records: &[Record], agent: &str) -> (Option<String>, Option<(String, u64)>) {
        let mut files = Files::default();
        for record in records {
            files.note(record);
        }
        let task = Name::new("a").expect("a name");
        let Changes { own, other } = files.changes("/f", &AgentId::from_text(agent), &task);
        (own, other.map(|by| (by.agent.to_string(), by.seq)))
    }

    #[test]
    fn the_last_change_of_somebody_else_is_known_whoever_changed_it_since() {
        use ToolStatus::{Error, Ok, Unknown};
        let own = |text: &str| Some(text.to_owned());
        let by = |agent: &str, seq| Some((agent.to_owned(), seq));
        for (records, agent, expected) in [
            (vec![], "a", (None, None)),
            (vec![started(1, "b", "1")], "a", (None, by("b", 1))),
            (vec![started(1, "b", "1")], "b", (own("1"), None)),
            // It is changed again by the one who asks.
            (vec![started(1, "b", "1"), started(2, "a", "2")], "a", (own("2"), by("b", 1))),
            (
                vec![started(1, "b", "1"), started(2, "a", "2"), started(3, "a", "3")],
                "a",
                (own("3"), by("b", 1)),
            ),
            (
                vec![started(1, "b", "1"), started(2, "a", "2"), started(3, "c", "3")],
                "a",
                (None, by("c", 3)),
            ),
            // An attempt before, and what works for it.
            (vec![started(1, "a", "1")], "a~2", (own("1"), None)),
            (vec![started(1, "a/b-1", "1")], "a", (None, by("a/b-1", 1))),
            // What came to nothing.
            (vec![started(1, "b", "1"), ended(2, "b", 1, Error)], "a", (None, None)),
            (vec![started(1, "b", "1"), ended(2, "b", 1, Unknown)], "a", (None, by("b", 1))),
            (
                vec![
                    started(1, "b", "1"),
                    ended(2, "b", 1, Ok),
                    started(3, "c", "2"),
                    ended(4, "c", 3, Error),
                ],
                "a",
                (None, by("b", 1)),
            ),
        ] {
            assert_eq!(asked(&records, agent), expected, "{records:?}");
        }
        let mut files = Files::default();
        files.note(&started(1, "a/b-1/c-1", "1"));
        let is_under = |top: &str| files.is_changed_under("/f", &AgentId::from_text(top));
        assert!(is_under("a/b-1") && !is_under("a/b-2") && !is_under("a/b"));
    }
}
