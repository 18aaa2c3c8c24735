//! The order in which the `delegate` calls of a group ask for their children.

use tokio::sync::oneshot;

/// The place of a `delegate` call in the queue of its group. The calls ask for their children in
/// call order: children are numbered in the order in which they are asked for, and a run that is
/// repeated should give them the same names.
#[derive(Debug, Default)]
pub(super) struct Ticket {
    before: Option<oneshot::Receiver<()>>,
    /// Dropping it lets the next call ask.
    _after: Option<oneshot::Sender<()>>,
}

impl Ticket {
    /// Returns a ticket that waits for the last ticket, and puts itself in its place in `last`.
    pub(super) fn after(last: &mut Option<oneshot::Receiver<()>>) -> Self {
        let (done, next) = oneshot::channel();
        Self { before: last.replace(next), _after: Some(done) }
    }

    /// Waits until the call before it has asked, or has ended without asking.
    pub(super) async fn wait(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await;
        }
    }
}
