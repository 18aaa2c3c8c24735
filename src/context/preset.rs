//! The presets: tables of named constants and the layers that they list.
//!
//! A reader sees on one screen how two presets differ. The constants of `three-layer` are those of
//! the teaching design that it reproduces; each can be overridden in `[compaction]`.

use serde::{Deserialize, Serialize};

/// What counts as one when recent tool results are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepUnit {
    /// One tool result.
    #[default]
    Blocks,
    /// All tool results of one message.
    Turns,
}

/// Clears old tool results before every model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearOld {
    /// How many of the newest are kept.
    pub keep_recent: usize,
    /// What counts as one.
    pub keep_unit: KeepUnit,
    /// Content of at most this many characters stays.
    pub min_chars: usize,
    /// Tools whose results are never cleared.
    pub preserve_tools: Vec<String>,
}

/// Replaces the view by a summary that a model writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summarise {
    /// The summary is due when the view has more estimated tokens than this.
    pub threshold_tokens: u64,
    /// How many characters of the serialised messages the summariser reads.
    pub input_chars: usize,
    /// The most tokens of the summary.
    pub max_tokens: u64,
}

/// Makes a request fit the window that would not, without a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// How much of the room an edit fills, in hundredths: the next turns are to fit as well.
    pub target_percent: u64,
}

/// A preset: its layers in the order in which they run, cheap first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preset {
    /// Its name in the configuration.
    pub name: String,
    /// Clearing, if it does any.
    pub clear_old: Option<ClearOld>,
    /// Summarising, if it does any.
    pub summarise: Option<Summarise>,
    /// The guard of the window; absent: a request that does not fit is sent as it is.
    pub guard: Option<Guard>,
}

impl Preset {
    /// The presets of this version.
    pub const NAMES: [&str; 2] = ["three-layer", "off"];

    /// Clear, then summarise, then the `compact` tool.
    #[must_use]
    pub fn three_layer() -> Self {
        Self {
            name: "three-layer".to_owned(),
            clear_old: Some(ClearOld {
                keep_recent: 3,
                keep_unit: KeepUnit::Blocks,
                min_chars: 100,
                preserve_tools: Vec::new(),
            }),
            summarise: Some(Summarise {
                threshold_tokens: 50_000,
                input_chars: 80_000,
                max_tokens: 2_000,
            }),
            guard: Some(Guard { target_percent: 80 }),
        }
    }

    /// Nothing: the conversation is sent as it is.
    #[must_use]
    pub fn off() -> Self {
        Self { name: "off".to_owned(), clear_old: None, summarise: None, guard: None }
    }

    /// The preset of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "three-layer" => Some(Self::three_layer()),
            "off" => Some(Self::off()),
            _ => None,
        }
    }
}
