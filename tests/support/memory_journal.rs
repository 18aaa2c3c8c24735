//! A journal in memory, for tests with paused time. Appends take effect at once on the caller's
//! thread: tokio's paused clock would not wait for a thread of the journal's own.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use callsheet::event::{Draft, Record, SharedRecord};
use callsheet::id::AgentId;
use callsheet::journal::disk_space::DiskSpace;
use callsheet::journal::{Journal, JournalError, JournalFuture, JournalHandle, stamp};

/// The records of a run, in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryJournal(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    records: Vec<SharedRecord>,
    is_closed: bool,
    committed: watch::Sender<u64>,
    room: watch::Sender<DiskSpace>,
}

impl Default for State {
    fn default() -> Self {
        let (committed, room) = (watch::Sender::new(0), watch::Sender::new(DiskSpace::Enough));
        Self { records: Vec::new(), is_closed: false, committed, room }
    }
}

impl MemoryJournal {
    /// The handle that appends to it.
    pub(crate) fn handle(&self) -> JournalHandle {
        JournalHandle::new(self.clone())
    }

    /// Everything recorded so far.
    pub(crate) fn records(&self) -> Vec<SharedRecord> {
        self.0.lock().records.clone()
    }

    fn record(&self, drafts: Vec<Draft>) -> Result<Vec<SharedRecord>, JournalError> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(JournalError::Closed);
        }
        let (before, ts_ms) = (state.records.len() as u64, stamp::now_ms());
        let made = (before + 1..).zip(drafts).map(|(seq, draft)| {
            let Draft { task, agent, event } = draft;
            Arc::new(Record { seq, epoch: 1, ts_ms, task, agent, event })
        });
        let made = made.collect::<Vec<_>>();
        state.records.extend(made.iter().cloned());
        state.committed.send_replace(before + made.len() as u64);
        Ok(made)
    }
}

impl Journal for MemoryJournal {
    fn append(
        &self,
        drafts: Vec<Draft>,
    ) -> JournalFuture<'_, Result<Vec<SharedRecord>, JournalError>> {
        Box::pin(std::future::ready(self.record(drafts)))
    }

    fn flush(&self) -> JournalFuture<'_, Result<(), JournalError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn agent_records<'a>(
        &'a self,
        agent: &'a AgentId,
    ) -> JournalFuture<'a, Result<Vec<SharedRecord>, JournalError>> {
        let mut records = self.records();
        records.retain(|record| record.agent.as_ref() == Some(agent));
        Box::pin(std::future::ready(Ok(records)))
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.0.lock().committed.subscribe()
    }

    fn disk_space(&self) -> watch::Receiver<DiskSpace> {
        self.0.lock().room.subscribe()
    }

    fn report_full(&self) -> bool {
        let state = self.0.lock();
        state.room.send_replace(DiskSpace::Scarce);
        !state.is_closed
    }

    fn close(&self) -> JournalFuture<'_, ()> {
        self.0.lock().is_closed = true;
        Box::pin(std::future::ready(()))
    }
}
