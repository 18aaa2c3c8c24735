//! Sends the events that were decided to the journal, in the order of the decisions.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::sync::mpsc;

use super::SupervisorMsg;
use crate::actor::services::Services;
use crate::event::Draft;

/// Most proposals in one append: enough for a whole fan-out, and normally far less than the 1 MiB
/// that a commit batch takes.
const PROPOSALS: usize = 256;

/// Appends events in order. Events that arrive during an append share the next one.
pub(super) async fn record_in_order(
    services: Arc<Services>,
    supervisor: ActorRef<SupervisorMsg>,
    mut queue: mpsc::UnboundedReceiver<Vec<Draft>>,
) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, PROPOSALS).await > 0 {
        let drafts = waiting.drain(..).flatten().collect();
        if let Err(error) = services.journal.append(drafts).await {
            // A supervisor that has ended already knows of it.
            let _ = supervisor.send_message(SupervisorMsg::JournalFailed(error));
            return;
        }
    }
}
