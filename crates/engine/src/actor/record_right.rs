//! The right of an agent's steps to record. It is withdrawn before somebody else records the
//! agent's end.
//!
//! A step that was aborted may run until its next await, and may append events in that time. Events
//! after the recorded end of their agent would make the records contradict each other.

use std::sync::Arc;

use tokio::sync::{RwLock, RwLockReadGuard};

/// The right to record events of one agent. Clones share it.
///
/// A lock and not a flag: withdrawing the right waits for the appends that have begun.
#[derive(Clone, Debug, Default)]
pub struct RecordRight(Arc<RwLock<Withdrawn>>);

/// True if the right was withdrawn.
#[derive(Debug, Default)]
struct Withdrawn(bool);

/// An append in progress.
#[derive(Debug)]
pub(super) struct Recording<'a>(
    #[expect(dead_code, reason = "held")] RwLockReadGuard<'a, Withdrawn>,
);

impl RecordRight {
    /// Begins an append. Returns `None` if the right was withdrawn.
    pub(super) async fn begin(&self) -> Option<Recording<'_>> {
        let withdrawn = self.0.read().await;
        (!withdrawn.0).then_some(Recording(withdrawn))
    }

    /// Withdraws the right. Returns when no append is in progress any longer.
    pub(super) async fn withdraw(&self) {
        self.0.write().await.0 = true;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_append_that_has_begun_is_waited_for_and_none_follows() {
        let right = RecordRight::default();
        let recording = right.begin().await.expect("it has the right");
        let withdrawal = right.withdraw();
        tokio::pin!(withdrawal);
        let early = tokio::time::timeout(Duration::from_secs(1), &mut withdrawal).await;
        assert!(early.is_err(), "an append is under way");
        drop(recording);
        withdrawal.await;
        assert!(right.begin().await.is_none());
    }
}
