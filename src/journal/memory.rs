//! A journal in memory, for tests and for library users that want no files.
//!
//! Appends take effect at once and on the caller's thread, so that tests with paused time see no
//! thread that tokio does not know of. Nothing survives the process.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::event::{Draft, Record, SharedRecord};
use crate::id::AgentId;
use crate::journal::room::Room;
use crate::journal::{JournalError, JournalHandle, Observer, stamp};

/// The records of a run, in memory. Clones share them.
#[derive(Clone)]
pub struct MemoryJournal(Arc<Mutex<State>>);

struct State {
    records: Vec<SharedRecord>,
    observers: Vec<Box<dyn Observer>>,
    failure: Option<JournalError>,
    committed: watch::Sender<u64>,
    room: watch::Sender<Room>,
}

impl MemoryJournal {
    /// An empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self::observed(Vec::new())
    }

    /// An empty journal whose records are also given to observers.
    #[must_use]
    pub fn observed(observers: Vec<Box<dyn Observer>>) -> Self {
        let (committed, room) = (watch::Sender::new(0), watch::Sender::new(Room::Enough));
        let state = State { records: Vec::new(), observers, failure: None, committed, room };
        Self(Arc::new(Mutex::new(state)))
    }

    /// The handle that appends to it.
    #[must_use]
    pub fn handle(&self) -> JournalHandle {
        JournalHandle::of_memory(self.clone())
    }

    /// Everything recorded so far.
    #[must_use]
    pub fn records(&self) -> Vec<SharedRecord> {
        self.0.lock().records.clone()
    }

    /// Everything recorded of one agent so far.
    #[must_use]
    pub fn agent_records(&self, agent: &AgentId) -> Vec<SharedRecord> {
        let state = self.0.lock();
        state
            .records
            .iter()
            .filter(|record| record.agent.as_ref() == Some(agent))
            .cloned()
            .collect()
    }

    /// Makes every later append fail, as a broken disk would.
    pub fn fail(&self, error: JournalError) {
        self.0.lock().failure.get_or_insert(error);
    }

    pub(crate) fn append(&self, drafts: Vec<Draft>) -> Result<Vec<SharedRecord>, JournalError> {
        if drafts.is_empty() {
            return Ok(Vec::new());
        }
        let mut state = self.0.lock();
        if let Some(error) = &state.failure {
            return Err(error.clone());
        }
        let (before, ts_ms) = (state.records.len() as u64, stamp::now_ms());
        let made = (before + 1..).zip(drafts).map(|(seq, draft)| {
            let Draft { task, agent, event } = draft;
            Arc::new(Record { seq, epoch: 1, ts_ms, task, agent, event })
        });
        let made = made.collect::<Vec<_>>();
        state.records.extend(made.iter().cloned());
        for observer in &mut state.observers {
            made.iter().for_each(|record| observer.committed(record));
            observer.batch_end();
            observer.settle();
        }
        state.committed.send_replace(before + made.len() as u64);
        Ok(made)
    }

    pub(crate) fn committed(&self) -> watch::Receiver<u64> {
        self.0.lock().committed.subscribe()
    }

    /// Says from now on that there is this much room, as a disk that fills up would.
    pub fn set_room(&self, room: Room) {
        self.0.lock().room.send_replace(room);
    }

    pub(crate) fn room(&self) -> watch::Receiver<Room> {
        self.0.lock().room.subscribe()
    }

    pub(crate) fn report_full(&self) -> bool {
        self.set_room(Room::Scarce);
        self.0.lock().failure.is_none()
    }

    pub(crate) fn close(&self) {
        self.fail(JournalError::Closed);
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryJournal").field("records", &self.0.lock().records.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::turn;

    #[tokio::test]
    async fn memory_behaves_like_the_disk() {
        let memory = MemoryJournal::new();
        let journal = memory.handle();
        let made = journal.append(vec![turn("a", 1), turn("b", 1)]).await.unwrap();
        assert_eq!(made.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(*journal.committed().borrow(), 2);
        assert_eq!(memory.records(), made);
        let of_b = journal.agent_records(&AgentId::from_text("b")).await.unwrap();
        assert_eq!(of_b, made[1..]);
        memory.fail(JournalError::Full);
        assert_eq!(journal.append(vec![turn("a", 2)]).await, Err(JournalError::Full));
        let other = MemoryJournal::default().handle();
        other.close().await;
        assert_eq!(other.append(vec![turn("a", 2)]).await, Err(JournalError::Closed));
    }
}
