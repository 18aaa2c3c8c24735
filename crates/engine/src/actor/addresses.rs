//! The addresses of a run's actors.

use std::collections::HashMap;
use std::sync::OnceLock;

use dashmap::DashMap;
use ractor::{ActorRef, Message};
use tokio::sync::watch;

use super::mail::{AgentMsg, CompactorMsg, GatewayMsg, SupervisorMsg};
use crate::id::{AgentId, Name};

/// A watch and not a plain cell: a task that asked an actor that crashed must ask its successor
/// again, so it has to learn of the new address.
#[derive(Debug)]
pub struct Address<M>(watch::Sender<Option<ActorRef<M>>>);

impl<M> Default for Address<M> {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl<M: Message> Address<M> {
    /// Returns the current actor; `None` before the first start.
    #[must_use]
    pub fn get(&self) -> Option<ActorRef<M>> {
        self.0.borrow().clone()
    }

    /// Sets the address to the actor's successor.
    pub fn set(&self, actor: ActorRef<M>) {
        self.0.send_replace(Some(actor));
    }

    /// Returns a receiver of the actor and of each successor.
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
    /// Makes the addresses of a run with these providers; no actor is there yet.
    pub fn new(providers: impl IntoIterator<Item = Name>) -> Self {
        let gateways = providers.into_iter().map(|provider| (provider, Address::default()));
        Self { gateways: gateways.collect(), ..Self::default() }
    }

    /// Sends mail to an agent. Returns false if the agent has no actor.
    pub(super) fn mail_agent(&self, agent: &AgentId, message: AgentMsg) -> bool {
        // The reference is copied first, so that no lock of the map is held while mail is sent.
        let actor = self.agents.get(agent).map(|actor| actor.value().clone());
        actor.is_some_and(|actor| actor.send_message(message).is_ok())
    }
}
