//! The presets: tables of named constants and the layers that they list.
//!
//! A reader sees on one screen how two presets differ. The constants of the teaching presets are
//! those of the designs that they reproduce; each can be overridden in `[compaction]` by its name.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::layer::micro::KeepUnit;
use super::layer::{Digest, Layer, Micro, Summary};
use super::recovery::Recovery;
use super::strategy::Preference;

/// A preset: its layers in the order in which they run, cheap first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preset {
    /// Its name in the configuration.
    pub name: String,
    /// Its layers with their constants.
    pub layers: Vec<Layer>,
    /// Whether the guard holds the window; without it a request that does not fit is sent as it is.
    pub guard: bool,
    /// Whether a repeated read is answered by a stub while the view still shows what it gave.
    pub unchanged_stub: bool,
    /// What comes back after a summary, if anything does.
    pub recovery: Option<Recovery>,
    /// Who clears where the file does not say.
    pub preference: Preference,
}

/// A constant that a preset does not have, or a value that it cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the preset `{preset}` cannot take `{constant}`: {reason}")]
pub struct UnfitConstant {
    /// The preset.
    pub preset: String,
    /// The constant.
    pub constant: String,
    /// Why.
    pub reason: String,
}

impl Preset {
    /// The presets of this version.
    pub const NAMES: [&str; 3] = ["adaptive", "three-layer", "off"];

    /// A chain of records that follows from prices, with nothing to wait for.
    #[must_use]
    pub fn adaptive() -> Self {
        let digest = Digest {
            whole: 45_000,
            trigger: 0.9,
            target: 0.6,
            keep_tokens: 2_900,
            merge_share: 0.715,
        };
        Self { unchanged_stub: true, ..Self::guarded("adaptive", vec![Layer::Digest(digest)]) }
    }

    /// Clear, then summarise, then the `compact` tool.
    #[must_use]
    pub fn three_layer() -> Self {
        Self::guarded(
            "three-layer",
            vec![
                Layer::Micro(Micro {
                    keep_recent: 3,
                    keep_unit: KeepUnit::Blocks,
                    micro_min_chars: 100,
                    micro_text: "[Previous: used {tool}]".to_owned(),
                    preserve_tools: Vec::new(),
                }),
                Layer::Summary(Summary {
                    threshold: 50_000,
                    summary_input_chars: 80_000,
                    summary_max_tokens: 2_000,
                    summary_prompt: "Summarize this conversation for continuity. Include: 1) What \
                                     was accomplished, 2) Current state, 3) Key decisions made. \
                                     Be concise but preserve critical details."
                        .to_owned(),
                    summary_focus: " Pay special attention to preserving details about: {focus}."
                        .to_owned(),
                    summary_text: "[Conversation compressed. Transcript: {path}]\n\n{summary}"
                        .to_owned(),
                    summary_reply: "Understood. I have the context from the summary. Continuing."
                        .to_owned(),
                }),
            ],
        )
    }

    /// Nothing: the conversation is sent as it is.
    #[must_use]
    pub fn off() -> Self {
        Self { guard: false, ..Self::guarded("off", Vec::new()) }
    }

    /// The preset of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "adaptive" => Some(Self::adaptive()),
            "three-layer" => Some(Self::three_layer()),
            "off" => Some(Self::off()),
            _ => None,
        }
    }

    fn guarded(name: &str, layers: Vec<Layer>) -> Self {
        Self {
            name: name.to_owned(),
            layers,
            guard: true,
            unchanged_stub: false,
            recovery: None,
            preference: Preference::Client,
        }
    }

    /// Its constants by name. A constant that two layers share has one value.
    #[must_use]
    pub fn constants(&self) -> Map<String, Value> {
        let tables = self.layers.iter().filter_map(|layer| serde_json::to_value(layer).ok());
        let mut all = Map::new();
        for table in tables {
            if let Value::Object(table) = table {
                all.extend(table.into_iter().filter(|(name, _)| name != "layer"));
            }
        }
        all
    }

    /// The preset with these constants in the place of its own.
    ///
    /// # Errors
    /// When it has no constant of a name, or the value is of the wrong kind.
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
            for layer in &mut self.layers {
                let Ok(Value::Object(mut table)) = serde_json::to_value(&*layer) else { continue };
                let Some(place) = table.get_mut(name) else { continue };
                *place = value.clone();
                let changed = serde_json::from_value(Value::Object(table));
                *layer = changed.map_err(|error| unfit(&self.name, name, error.to_string()))?;
            }
        }
        Ok(self)
    }
}
