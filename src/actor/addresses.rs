//! The addresses of a run's actors.

use std::collections::HashMap;
use std::sync::OnceLock;

use dashmap::DashMap;
use ractor::{ActorRef, Message};
use tokio::sync::watch;

use super::mail::{AgentMsg, CompactorMsg, GatewayMsg, SupervisorMsg};
use crate::id::{AgentId, Name};

/// The address of an actor that is restarted when it crashes.
///
/// A watch rather than a plain cell: whoever asked an actor that crashed asks its successor again,
/// and has to hear of it.
#[derive(Debug)]
pub struct Address<M>(watch::Sender<Option<ActorRef<M>>>);

impl<M> Default for Address<M> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<M: Message> Address<M> {
    /// The actor now; `None` before the first start.
    #[must_use]
    pub fn get(&self) -> Option<ActorRef<M>> {
        self.0.borrow().clone()
    }

    /// Puts a successor in the actor's place.
    pub fn set(&self, actor: ActorRef<M>) {
        self.0.send_replace(Some(actor));
    }

    /// The actor and its successors as they come.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Option<ActorRef<M>>> {
        self.0.subscribe()
    }
}

/// The addresses of a run's actors.
#[derive(Debug, Default)]
pub struct Addresses {
    /// The supervisor, which is never replaced: a run ends with it.
    pub supervisor: OnceLock<ActorRef<SupervisorMsg>>,
    /// The agents that have an actor.
    pub agents: DashMap<AgentId, ActorRef<AgentMsg>>,
    /// The gateways, by provider.
    pub gateways: HashMap<Name, Address<GatewayMsg>>,
    /// The compactor.
    pub compactor: Address<CompactorMsg>,
}

impl Addresses {
    /// Addresses for a run with these providers; no actor is there yet.
    pub fn new(providers: impl IntoIterator<Item = Name>) -> Self {
        let gateways = providers.into_iter().map(|provider| (provider, Address::default()));
        Self { gateways: gateways.collect(), ..Self::default() }
    }

    /// Mails an agent; false when it has no actor.
    pub(super) fn mail_agent(&self, agent: &AgentId, message: AgentMsg) -> bool {
        // The guard of the map is not held while mail is sent.
        let actor = self.agents.get(agent).map(|actor| actor.value().clone());
        actor.is_some_and(|actor| actor.send_message(message).is_ok())
    }
}
