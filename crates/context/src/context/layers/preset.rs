//! The presets: their layers, and tables of named constants.
//!
//! A reader sees on one screen how two presets differ. The constants of the teaching presets are
//! those of the designs that they reproduce; each can be overridden by its name in `[compaction]`.

mod adaptive;
mod four_layer;
mod production;
#[cfg(test)]
mod tests;
mod three_layer;
mod turn_window;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::three_layer::Variant;
use crate::context::layers::attachments::Recovery;
use crate::context::layers::reactive::Reactive;
use crate::context::layers::{Layer, Snip};
pub use crate::own_tool::{CompactTool, SnipTool};

/// The preferred side for clearing results, where the configuration leaves the choice to the
/// preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// The client.
    #[default]
    Client,
    /// The provider: its cached prefix stays as it is until a clearing pays.
    ContextEditing,
}

/// A preset: its layers in the order in which they run, cheap first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preset {
    /// Name in the configuration.
    pub name: String,
    /// Layers with their constants.
    pub layers: Vec<Layer>,
    /// Handling of a request that was refused as too long; absent: the summary layer alone.
    pub reactive: Option<Reactive>,
    /// The `compact` tool.
    pub compact_tool: CompactTool,
    /// The `snip` tool, if the model may drop the middle of its own view.
    pub snip_tool: Option<SnipTool>,
    /// Text added to an agent's system prompt.
    pub system_addition: String,
    /// True if the guard keeps the view within the window; without it a request that does not fit
    /// is sent as it is.
    pub guard: bool,
    /// True if a repeated read is answered by a stub while the view still shows the earlier result.
    pub unchanged_stub: bool,
    /// Limits of what is attached again after a summary, if anything is.
    pub recovery: Option<Recovery>,
    /// The preferred side for clearing, where the configuration does not choose one.
    pub preference: Preference,
}

/// A constant that a preset does not have, or a value that the constant cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the preset `{preset}` cannot take `{constant}`: {reason}")]
pub struct UnfitConstant {
    /// Name of the preset.
    pub preset: String,
    /// Name of the constant.
    pub constant: String,
    /// Reason.
    pub reason: String,
}

impl Preset {
    /// Names of the presets of this version.
    pub const NAMES: [&str; 6] =
        ["adaptive", "production", "four-layer", "turn-window", "three-layer", "off"];

    /// Returns the preset without layers: the conversation is sent as it is.
    #[must_use]
    pub fn off() -> Self {
        Self { guard: false, ..Self::guarded("off", Vec::new()) }
    }

    /// Returns the preset of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "adaptive" => Some(Self::adaptive()),
            "production" => Some(Self::production()),
            "three-layer" => Some(Self::three_layer()),
            "turn-window" => Some(Self::turn_window()),
            "four-layer" => Some(Self::four_layer()),
            "off" => Some(Self::off()),
            _ => None,
        }
    }

    /// Returns the layer that drops the middle of a view, if the model may ask for that itself.
    #[must_use]
    pub fn snip(&self) -> Option<&Snip> {
        self.snip_tool.as_ref()?;
        self.layers
            .iter()
            .find_map(|layer| if let Layer::Snip(snip) = layer { Some(snip) } else { None })
    }

    /// Creates a preset of these layers and the guard.
    fn guarded(name: &str, layers: Vec<Layer>) -> Self {
        Self {
            name: name.to_owned(),
            layers,
            reactive: None,
            compact_tool: three_layer::compact_tool(),
            snip_tool: None,
            system_addition: String::new(),
            guard: true,
            unchanged_stub: false,
            recovery: None,
            preference: Preference::Client,
        }
    }

    /// Returns the preset with only these of its layers, in this order.
    ///
    /// # Errors
    /// Returns an error if the preset has no layer of a name.
    pub fn with_layers(mut self, names: &[&str]) -> Result<Self, UnfitConstant> {
        let mut all = std::mem::take(&mut self.layers);
        for name in names {
            let (wanted, others): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|layer| layer.name() == *name);
            if wanted.is_empty() {
                let (preset, constant) = (self.name, LAYERS.to_owned());
                let reason = format!("it has no layer `{name}`");
                return Err(UnfitConstant { preset, constant, reason });
            }
            self.layers.extend(wanted);
            all = others;
        }
        Ok(self)
    }

    /// Returns the constants by name. A constant that two layers share has one value.
    #[must_use]
    pub fn constants(&self) -> Map<String, Value> {
        let mut all = Map::new();
        let tables = self.layers.iter().map(serde_json::to_value);
        let reactive = self.reactive.iter().map(serde_json::to_value);
        let snip_tool = self.snip_tool.iter().map(serde_json::to_value);
        let compact_tool = [serde_json::to_value(&self.compact_tool)];
        for table in tables.chain(reactive).chain(snip_tool).chain(compact_tool) {
            spread(table.unwrap_or_default(), &mut all);
        }
        all.remove(LAYER_TAG);
        all.insert(SYSTEM_ADDITION.to_owned(), self.system_addition.clone().into());
        all
    }

    /// Returns the preset with these constants in the place of its own.
    ///
    /// # Errors
    /// Returns an error if the preset has no constant of a name, or the value is of the wrong kind.
    pub fn with_constants(mut self, own: &Map<String, Value>) -> Result<Self, UnfitConstant> {
        let unfit = |preset: &str, constant: &str, reason: String| UnfitConstant {
            preset: preset.to_owned(),
            constant: constant.to_owned(),
            reason,
        };
        let known = self.constants();
        if let Some(unknown) = own.keys().find(|name| !known.contains_key(*name)) {
            return Err(unfit(&self.name, unknown, "it has no such constant".to_owned()));
        }
        for (name, value) in own {
            let mut parts: Vec<_> = self.layers.iter_mut().map(|l| set(l, name, value)).collect();
            parts.extend(self.reactive.iter_mut().map(|reactive| set(reactive, name, value)));
            parts.extend(self.snip_tool.iter_mut().map(|tool| set(tool, name, value)));
            parts.push(set(&mut self.compact_tool, name, value));
            if name == SYSTEM_ADDITION {
                parts.push(serde_json::from_value(value.clone()).map(|t| self.system_addition = t));
            }
            let set: Result<(), _> = parts.into_iter().collect();
            set.map_err(|error| unfit(&self.name, name, error.to_string()))?;
        }
        Ok(self)
    }
}

/// Key of the order of layers.
const LAYERS: &str = "layers";

/// Key of the text added to the system prompt.
const SYSTEM_ADDITION: &str = "system_addition";

/// Key that names a layer in its table; it is not a constant.
const LAYER_TAG: &str = "layer";

/// Collects the constants of a table and of the tables in it.
fn spread(table: Value, all: &mut Map<String, Value>) {
    let Value::Object(table) = table else { return };
    for (name, value) in table {
        match value {
            Value::Object(_) => spread(value, all),
            value => drop(all.insert(name, value)),
        }
    }
}

/// Sets the constant of that name in a part of a preset, if the part has it.
fn set<T: Serialize + DeserializeOwned>(
    part: &mut T,
    name: &str,
    value: &Value,
) -> Result<(), serde_json::Error> {
    let mut table = serde_json::to_value(&*part)?;
    if let Some(place) = find(&mut table, name) {
        *place = value.clone();
        *part = serde_json::from_value(table)?;
    }
    Ok(())
}

/// Returns the place of a constant in a table or in one of the tables in it.
fn find<'a>(table: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let Value::Object(table) = table else { return None };
    if table.contains_key(name) {
        return table.get_mut(name);
    }
    table.values_mut().find_map(|value| find(value, name))
}
