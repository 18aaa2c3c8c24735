//! Capabilities of a provider: the ways in which it can shrink a context by itself.
//!
//! Owns the names. `context::provider::strategy` decides which capability is used.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A way in which a provider can shrink a context by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// The provider clears old tool results and thinking before the model reads them.
    ContextEditing,
    /// The provider summarises during a reply when the input is larger than a threshold.
    CompactThreshold,
    /// The provider summarises the conversation in a request when the request asks for it.
    CompactOnDemand,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Self; 3] =
        [Self::ContextEditing, Self::CompactThreshold, Self::CompactOnDemand];

    /// Returns the capability's name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ContextEditing => "context_editing",
            Self::CompactThreshold => "compact_threshold",
            Self::CompactOnDemand => "compact_on_demand",
        }
    }

    /// Returns the capability with the given name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.name() == name)
    }
}

/// A set of capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(BTreeSet<Capability>);

impl Capabilities {
    /// Returns true if the set holds `capability`.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }

    /// Returns the names of the capabilities in the set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|capability| capability.name())
    }

    /// Removes a capability; returns true if the set held it.
    pub fn lose(&mut self, capability: Capability) -> bool {
        self.0.remove(&capability)
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

/// The source of a model's capabilities: a list in the configuration, or a question to the
/// provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared {
    /// The configuration lists the capabilities.
    Listed(Capabilities),
    /// The provider is asked before the first call.
    Probe,
}

impl Default for Declared {
    fn default() -> Self {
        Self::Listed(Capabilities::default())
    }
}

/// Facts that are known of a model before its first call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// Known capabilities of the model's provider.
    pub capabilities: Capabilities,
    /// The most input tokens that the model reads; absent when the provider does not say.
    pub max_input_tokens: Option<u64>,
}

impl ModelFacts {
    /// Returns the facts that the configuration states: none if the provider is to be asked.
    #[must_use]
    pub fn declared(declared: &Declared) -> Self {
        let capabilities = match declared {
            Declared::Listed(listed) => listed.clone(),
            Declared::Probe => Capabilities::default(),
        };
        Self { capabilities, max_input_tokens: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_capability() {
        for capability in Capability::ALL {
            assert_eq!(Capability::named(capability.name()), Some(capability));
        }
        assert_eq!(Capability::named("context-editing"), None);
    }

    #[test]
    fn one_is_lost_once() {
        let mut all: Capabilities = Capability::ALL.into_iter().collect();
        assert!(all.lose(Capability::CompactOnDemand));
        assert!(!all.lose(Capability::CompactOnDemand));
        assert!(all.has(Capability::ContextEditing) && !all.has(Capability::CompactOnDemand));
    }
}
