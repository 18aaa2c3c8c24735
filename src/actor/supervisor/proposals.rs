//! Events that were decided, on their way to the journal in the order of the decisions.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::sync::mpsc;

use super::SupervisorMsg;
use crate::actor::services::Services;
use crate::event::Draft;

/// The most proposals in one append: a whole fan-out, and far less than a commit batch holds.
const PROPOSALS: usize = 256;

/// Appends events in order; those that came in meanwhile share one append.
pub(super) async fn record_in_order(
    services: Arc<Services>,
    supervisor: ActorRef<SupervisorMsg>,
    mut queue: mpsc::UnboundedReceiver<Vec<Draft>>,
) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, PROPOSALS).await > 0 {
        let drafts = waiting.drain(..).flatten().collect();
        if let Err(error) = services.journal.append(drafts).await {
            // A supervisor that is gone has heard of it already.
            let _ = supervisor.send_message(SupervisorMsg::JournalFailed(error));
            return;
        }
    }
}
