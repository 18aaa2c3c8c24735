//! The files that the agents of a run have changed, and who did it last.
//!
//! A change is known from the record of its beginning: it is durable before the file changes, so whoever finds the
//! content finds the record too. It counts if the file holds what it was to make, or when it has ended well. The agents at work share the table that the records gave, and add to it before they
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Changed {
    /// The last change that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<Change>,
    /// The last one by somebody else than whoever made that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other: Option<Change>,
    /// Those that have begun, in order. Whether one was made shows in the file: it may be refused still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    begun: Vec<Change>,
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
                let changed = self.changed.entry(change.place.clone()).or_default();
                // The same call looks at the file again, or is made again.
                changed.begun.retain(|begun| begun.call != call);
                changed.begun.push(Change { by: by.clone(), call, at: record.into(), after });
            }
            Event::ToolFinished(finished) => {
                if let Some(place) = self.open.remove(&finished.key) {
                    self.ended(&place, &finished.key, finished.status != ToolStatus::Error);
                }
            }
            _ => {}
        }
    }

    /// Returns who changed a file that holds this content now, as this agent of a task asks it. What an earlier
    /// attempt of the task made is its own.
    #[must_use]
    pub fn changes(&self, place: &str, now: &str, agent: &AgentId, task: &Name) -> Changes {
        let is_main = agent.is_main_of(task);
        let is_own = |by: &AgentId| by == agent || (is_main && by.is_main_of(task));
        let Some(Changed { last, other, begun }) = self.changed.get(place) else {
            return Changes::default();
        };
        let begun = begun.iter().filter(|change| change.after == now);
        let made: Vec<&Change> = other.iter().chain(last).chain(begun).collect();
        let own = made.last().filter(|last| is_own(&last.by)).map(|last| last.after.clone());
        let other = made.iter().rev().find(|change| !is_own(&change.by));
        let other = other.map(|Change { by, at, after, .. }| ChangedBy {
            agent: by.clone(),
            seq: at.seq,
            ms: at.ms,
            after: after.clone(),
        });
        Changes { own, other }
    }

    /// Returns true if one of the last two that changed the file is this agent, or one that works for it.
    #[must_use]
    pub fn is_changed_under(&self, place: &str, top: &AgentId) -> bool {
        let Some(Changed { last, other, .. }) = self.changed.get(place) else { return false };
        last.iter().chain(other).any(|change| change.by.is_within(top))
    }

    /// Takes in that a change has ended: it was made, or it came to nothing.
    fn ended(&mut self, place: &str, call: &CallKey, is_made: bool) {
        let Some(changed) = self.changed.get_mut(place) else { return };
        let Some(at) = changed.begun.iter().position(|begun| begun.call == *call) else { return };
        let change = changed.begun.remove(at);
        if is_made {
            if changed.last.as_ref().is_some_and(|last| last.by != change.by) {
                changed.other = changed.last.take();
            }
            changed.last = Some(change);
        } else if changed.last.is_none() && changed.begun.is_empty() {
            self.changed.remove(place);
        }
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
        let finished = ToolFinished::new(key(of), 1, 0, "write_file", status, block);
        record(seq, agent, finished.into())
    }

    /// Who changed the file that holds `now`, as an agent asks it: what it made itself, and who else made what.
    fn asked(
        records: &[Record],
        now: &str,
        agent: &str,
    ) -> (Option<String>, Option<(String, u64)>) {
        let mut files = Files::default();
        for record in records {
            files.note(record);
        }
        let task = Name::new("a").expect("a name");
        let Changes { own, other } = files.changes("/f", now, &AgentId::from_text(agent), &task);
        (own, other.map(|by| (by.agent.to_string(), by.seq)))
    }

    #[test]
    fn the_last_change_of_somebody_else_is_known_whoever_changed_it_since() {
        use ToolStatus::{Error, Ok, Unknown};
        let own = |text: &str| Some(text.to_owned());
        let by = |agent: &str, seq| Some((agent.to_owned(), seq));
        let begun = |seq, agent: &str, after: &str| vec![started(seq, agent, after)];
        let made = |seq, agent: &str, after: &str| {
            let of = u32::try_from(seq).expect("small");
            vec![started(seq, agent, after), ended(seq + 1, agent, of, Ok)]
        };
        let refused = |seq, agent: &str, after: &str| {
            let of = u32::try_from(seq).expect("small");
            vec![started(seq, agent, after), ended(seq + 1, agent, of, Error)]
        };
        for (records, now, agent, expected) in [
            (vec![], "", "a", (None, None)),
            (made(1, "b", "1"), "1", "a", (None, by("b", 1))),
            (made(1, "b", "1"), "1", "b", (own("1"), None)),
            // It is changed again by the one who asks.
            ([made(1, "b", "1"), made(3, "a", "2")].concat(), "2", "a", (own("2"), by("b", 1))),
            (
                [made(1, "b", "1"), made(3, "a", "2"), made(5, "a", "3")].concat(),
                "3",
                "a",
                (own("3"), by("b", 1)),
            ),
            (
                [made(1, "b", "1"), made(3, "a", "2"), made(5, "c", "3")].concat(),
                "3",
                "a",
                (None, by("c", 5)),
            ),
            // An attempt before, and what works for it.
            (made(1, "a", "1"), "1", "a~2", (own("1"), None)),
            (made(1, "a/b-1", "1"), "1", "a", (None, by("a/b-1", 1))),
            // What has only begun was made if the file holds it.
            (begun(1, "b", "1"), "1", "a", (None, by("b", 1))),
            (begun(1, "b", "1"), "0", "a", (None, None)),
            ([made(1, "b", "1"), begun(3, "a", "2")].concat(), "1", "a", (None, by("b", 1))),
            // What came to nothing.
            (refused(1, "b", "1"), "0", "a", (None, None)),
            (
                [begun(1, "b", "1"), vec![ended(2, "b", 1, Unknown)]].concat(),
                "1",
                "a",
                (None, by("b", 1)),
            ),
            ([made(1, "b", "1"), refused(3, "c", "2")].concat(), "1", "a", (None, by("b", 1))),
            // Many begin at once, one of them makes its change, and the others come to nothing.
            (
                [
                    vec![started(1, "b", "1"), started(2, "c", "2"), started(3, "d", "3")],
                    vec![ended(4, "b", 1, Ok), ended(5, "c", 2, Error), ended(6, "d", 3, Error)],
                ]
                .concat(),
                "1",
                "a",
                (None, by("b", 1)),
            ),
        ] {
            assert_eq!(asked(&records, now, agent), expected, "{records:?}");
        }
        let mut files = Files::default();
        let records = [made(1, "a/b-1/c-1", "1"), made(3, "o", "2"), refused(5, "p", "3")].concat();
        records.iter().for_each(|record| files.note(record));
        let is_under = |top: &str| files.is_changed_under("/f", &AgentId::from_text(top));
        assert!(is_under("a/b-1") && is_under("o"));
        assert!(!is_under("a/b-2") && !is_under("a/b") && !is_under("p"));
    }
}
