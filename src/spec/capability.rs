//! What a provider can do with a context by itself, and how that is known.
//!
//! Owns the names. Who makes use of it is for `context::strategy` to decide.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Something that a provider can do with a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// It clears old tool results and thinking before the model reads them.
    ContextEditing,
    /// It summarises by itself, amid a reply, when the input is larger than a threshold.
    CompactThreshold,
    /// It summarises what it is sent when it is asked to.
    CompactOnDemand,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 3] =
        [Self::ContextEditing, Self::CompactThreshold, Self::CompactOnDemand];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ContextEditing => "context_editing",
            Self::CompactThreshold => "compact_threshold",
            Self::CompactOnDemand => "compact_on_demand",
        }
    }

    /// The capability of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capability| capability.name() == name)
    }
}

/// A set of capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities(BTreeSet<Capability>);

impl Capabilities {
    /// Whether this is one of them.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }

    /// Strikes one off; says whether it was there.
    pub fn lose(&mut self, capability: Capability) -> bool {
        self.0.remove(&capability)
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

/// How it is known what a model's provider can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Declared {
    /// The configuration lists it.
    Listed(Capabilities),
    /// The provider is asked before the first call.
    Probe,
}

impl Default for Declared {
    fn default() -> Self {
        Self::Listed(Capabilities::default())
    }
}

/// What is known of a model before its first call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// What its provider can do.
    pub capabilities: Capabilities,
    /// The most tokens that it reads, if the provider says.
    pub max_input_tokens: Option<u64>,
}

impl ModelFacts {
    /// What the configuration says by itself: nothing where the provider is to be asked.
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
