//! Compaction settings: the preset and what overrides its constants.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::agents;
use super::capabilities::{self, Capabilities};
use super::diagnostic::Problems;
use super::raw::Table;
use crate::id::Name;
use crate::spec::ModelSpec;

/// How contexts are kept within their window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionSpec {
    /// The preset: `three-layer` or `off`.
    pub preset: String,
    /// The preset's constants that the file overrides: `threshold` and `summary_max_tokens` in
    /// tokens, `micro_min_chars` and `summary_input_chars` in characters, `keep_recent` in units.
    pub constants: BTreeMap<String, u64>,
    /// What `keep_recent` counts, when the file says.
    pub keep_unit: Option<KeepUnit>,
    /// The tools whose results are never cleared.
    pub preserve_tools: Vec<String>,
    /// The model that summarises; absent: the agent's own.
    pub model: Option<Name>,
    /// The failures in a row that open the breaker.
    pub failure_threshold: u32,
    /// How long it then stays open before one probe.
    pub cooldown: Duration,
    /// Summaries at once.
    pub max_concurrency: usize,
    /// What the pipeline can do beside its layers.
    pub capabilities: Capabilities,
}

/// What `keep_recent` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepUnit {
    /// Tool results.
    Blocks,
    /// Turns with all their results.
    Turns,
}

/// The constants of the preset `three-layer` that are numbers.
const CONSTANTS: [&str; 5] =
    ["threshold", "keep_recent", "micro_min_chars", "summary_input_chars", "summary_max_tokens"];

/// `circuit_breaker.failure_threshold` of the documented configuration.
const FAILURE_THRESHOLD: u32 = 3;
/// `circuit_breaker.cooldown` of the documented configuration.
const COOLDOWN: Duration = Duration::from_secs(300);
/// `max_concurrency` of the documented configuration.
const MAX_CONCURRENCY: usize = 2;

/// Reads `[compaction]`.
pub(super) fn compaction(
    tree: &Table,
    root: &Path,
    models: &BTreeMap<Name, ModelSpec>,
    problems: &mut Problems,
) -> CompactionSpec {
    let table = tree.section("compaction");
    let preset = table.text("preset").unwrap_or_default().to_owned();
    let mut constants = BTreeMap::new();
    for key in CONSTANTS {
        constants.extend(table.whole(key).map(|n: u64| (key.to_owned(), n)));
    }
    if let Some(n) = table.whole("keep_recent_results") {
        constants.insert("keep_recent".to_owned(), n);
    }
    if let (Some(_), Some(again)) = (table.get("keep_recent"), table.get("keep_recent_results")) {
        let message = "`keep_recent` and `keep_recent_results` are the same";
        problems.error("conflict", &again.key_place, message);
    }
    if preset == "off" {
        let own = ["keep_recent_results", "keep_unit", "preserve_tools", "recovery", "hooks"];
        for key in CONSTANTS.into_iter().chain(own) {
            if let Some(entry) = table.get(key) {
                let message = format!("the preset `off` has no `{key}`");
                problems.warning("unused_key", &entry.key_place, message, None);
            }
        }
    }
    if let Some(at) = table.get("model") {
        agents::known_model(at, models, problems);
    }
    let breaker = table.section("circuit_breaker");
    CompactionSpec {
        preset,
        constants,
        keep_unit: match table.text("keep_unit") {
            Some("blocks") => Some(KeepUnit::Blocks),
            Some("turns") => Some(KeepUnit::Turns),
            _ => None,
        },
        preserve_tools: {
            let tools = table.texts("preserve_tools").into_iter();
            tools.map(|(text, _)| text.to_owned()).collect()
        },
        model: table.text("model").and_then(|text| Name::new(text).ok()),
        failure_threshold: breaker.whole("failure_threshold").unwrap_or(FAILURE_THRESHOLD),
        cooldown: breaker.duration("cooldown").unwrap_or(COOLDOWN),
        max_concurrency: table.whole("max_concurrency").unwrap_or(MAX_CONCURRENCY),
        capabilities: capabilities::capabilities(table, root, problems),
    }
}
