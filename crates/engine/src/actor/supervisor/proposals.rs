//! Sends the events that were decided to the journal, in the order of the decisions, and stores long
//! prompts before.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::sync::mpsc;

use super::SupervisorMsg;
use crate::actor::services::Services;
use crate::actor::work::{self, Helper};
use crate::event::{Draft, Event};
use crate::output::Text;
use crate::store::INLINE_BYTES;
use crate::turn::Program;

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
        let drafts = with_long_texts_stored(&services, drafts).await;
        if let Err(error) = services.journal.append(drafts).await {
            // A supervisor that has ended already knows of it.
            let _ = supervisor.send_message(SupervisorMsg::JournalFailed(error));
            return;
        }
    }
}

/// Stores the texts of programs that are too long for a record.
async fn with_long_texts_stored(services: &Services, mut drafts: Vec<Draft>) -> Vec<Draft> {
    let is_long = |text: &Text| text.beginning().len() > INLINE_BYTES;
    if !drafts.iter().filter_map(program).any(|program| program.texts().any(is_long)) {
        return drafts;
    }
    let (store, kept) = (services.store.clone(), drafts.clone());
    let stored = work::blocking(Helper::Prompts, move || {
        for draft in &mut drafts {
            let Event::AgentSpawned(spawned) = &mut draft.event else { continue };
            for text in spawned.program.texts_mut() {
                if let Err(error) = store.keep_long(text) {
                    // Then the record holds it: it is large, but nothing is lost.
                    tracing::warn!(%error, "a prompt could not be stored");
                }
            }
        }
        drafts
    });
    stored.await.unwrap_or_else(|panic| {
        tracing::warn!(%panic, "a prompt could not be stored");
        kept
    })
}

/// Returns the program that a draft announces, if it announces one.
fn program(draft: &Draft) -> Option<&Program> {
    match &draft.event {
        Event::AgentSpawned(spawned) => Some(&spawned.program),
        _ => None,
    }
}
