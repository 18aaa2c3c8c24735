//! Compaction settings: the preset and what overrides its constants.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::agents;
use super::capabilities;
use super::diagnostic::Problems;
use super::raw::Table;
use super::strategy;
use crate::context::compaction::CompactionSpec;
use crate::context::preset::{Preset, Variant};
use crate::id::Name;
use crate::spec::ModelSpec;

/// The keys of `[compaction]` that are no constants of a preset.
const OWN_KEYS: [&str; 16] = [
    "preset",
    "model",
    "max_concurrency",
    "summary_timeout",
    "circuit_breaker",
    "unchanged_stub",
    "recovery",
    "hooks",
    "improved",
    "variant",
    "layers",
    "pin",
    "prompt_file",
    "strategy",
    "context_editing",
    "server",
];

/// Keys that mean the same constant: the documented one and the one it stands for.
const ALIASES: [(&str, &str); 1] = [("keep_recent_results", "keep_recent")];

/// The one constant of a preset that stands in `circuit_breaker`.
const HEADROOM_GAIN: &str = "min_headroom_gain";

/// `circuit_breaker.failure_threshold` of the documented configuration.
const FAILURE_THRESHOLD: u32 = 3;
/// `circuit_breaker.cooldown` of the documented configuration.
const COOLDOWN: Duration = Duration::from_secs(300);
/// `max_concurrency` of the documented configuration.
const MAX_CONCURRENCY: usize = 2;

/// The longest silence that a person waits through without asking what is wrong.
const SUMMARY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads `[compaction]`.
pub(super) fn compaction(
    tree: &Table,
    root: &Path,
    models: &BTreeMap<Name, ModelSpec>,
    problems: &mut Problems,
) -> CompactionSpec {
    let table = tree.section("compaction");
    let mut preset = preset(table, problems);
    capabilities::apply(table, &mut preset, problems);
    if let Some(at) = table.get("model") {
        agents::known_model(at, models, problems);
    }
    let breaker = table.section("circuit_breaker");
    CompactionSpec {
        preset,
        model: table.text("model").and_then(|text| Name::new(text).ok()),
        failure_threshold: breaker.whole("failure_threshold").unwrap_or(FAILURE_THRESHOLD),
        cooldown: breaker.duration("cooldown").unwrap_or(COOLDOWN),
        max_concurrency: table.whole("max_concurrency").unwrap_or(MAX_CONCURRENCY),
        summary_timeout: table.duration("summary_timeout").unwrap_or(SUMMARY_TIMEOUT),
        hooks: capabilities::hooks(table.section("hooks"), root, problems),
        strategy: strategy::strategy(table, problems),
    }
}

/// The preset with the constants that the table overrides.
fn preset(table: &Table, problems: &mut Problems) -> Preset {
    // A preset that is not there has its own diagnostic; what belongs to it has none.
    let named = table.text("preset").and_then(Preset::named);
    let Some(named) = named else { return Preset::three_layer() };
    let mut preset = in_form(named, table, problems);
    for (alias, constant) in ALIASES {
        if let (Some(_), Some(again)) = (table.get(constant), table.get(alias)) {
            let message = format!("`{constant}` and `{alias}` are the same");
            problems.error("conflict", &again.key_place, message);
        }
    }
    let known = preset.constants();
    let gain = table.section("circuit_breaker").get(HEADROOM_GAIN);
    for entry in table.0.iter().chain(gain) {
        let key = entry.key.as_str();
        if OWN_KEYS.contains(&key) {
            continue;
        }
        let constant = ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, c)| c);
        if !known.contains_key(constant) {
            let message = format!("the preset `{}` has no `{key}`", preset.name);
            problems.warning("unused_key", &entry.key_place, message, None);
            continue;
        }
        let own = [(constant.to_owned(), entry.node.to_json())].into_iter().collect();
        match preset.clone().with_constants(&own) {
            Ok(with) => preset = with,
            Err(unfit) => {
                problems.error("bad_value", &entry.node.place, unfit.to_string());
            }
        }
    }
    preset
}

/// The preset in the form that the table asks for, with the layers that it names.
fn in_form(named: Preset, table: &Table, problems: &mut Problems) -> Preset {
    let mut preset = match (named.name.as_str(), table.truth("improved"), table.text("variant")) {
        ("four-layer", Some(true), _) => Preset::four_layer_improved(),
        ("three-layer", _, Some(name)) => {
            let variant = Variant::NAMES.iter().find(|(known, _)| *known == name);
            Preset::three_layer_as(variant.map(|(_, variant)| *variant).unwrap_or_default())
        }
        _ => named,
    };
    for (key, of) in [("improved", "four-layer"), ("variant", "three-layer")] {
        if let Some(entry) = table.get(key).filter(|_| preset.name != of) {
            let message = format!("the preset `{}` has no `{key}`", preset.name);
            problems.warning("unused_key", &entry.key_place, message, None);
        }
    }
    if let Some(entry) = table.get("layers") {
        let names: Vec<&str> = table.texts("layers").into_iter().map(|(name, _)| name).collect();
        match preset.clone().with_layers(&names) {
            Ok(with) => preset = with,
            Err(unfit) => {
                problems.error("bad_value", &entry.node.place, unfit.to_string());
            }
        }
    }
    preset
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::schema::compaction::{CONSTANTS, PRESETS};
    use super::*;

    #[test]
    fn every_constant_of_a_preset_is_a_key_and_every_such_key_a_constant() {
        let presets = Preset::NAMES.iter().filter_map(|name| Preset::named(name));
        let constants: BTreeSet<String> = presets
            .chain([Preset::four_layer_improved()])
            .flat_map(|preset| preset.constants().into_iter().map(|(name, _)| name))
            .collect();
        let keys = CONSTANTS.iter().map(|field| field.key).chain([HEADROOM_GAIN]);
        let keys: BTreeSet<String> = keys.map(str::to_owned).collect();
        assert_eq!(constants, keys);
        assert_eq!(keys.len(), CONSTANTS.len() + 1, "each stands once");
    }

    #[test]
    fn the_presets_of_the_file_are_those_that_there_are() {
        assert_eq!(PRESETS, Preset::NAMES);
        assert!(PRESETS.iter().all(|name| Preset::named(name).is_some_and(|p| p.name == *name)));
    }

    #[test]
    fn every_constant_can_be_overridden_by_its_own_value() {
        let presets = Preset::NAMES.iter().filter_map(|name| Preset::named(name));
        for preset in presets.chain([Preset::four_layer_improved()]) {
            let same = preset.clone().with_constants(&preset.constants());
            assert_eq!(same.as_ref(), Ok(&preset));
        }
    }
}
