//! What the pipeline can do beside its layers: keys of `[compaction]` that any preset may have.

use std::path::Path;

use super::diagnostic::Problems;
use super::raw::{Entry, Table};
use crate::context::compaction::Hooks;
use crate::context::layer::Layer;
use crate::context::preset::Preset;

/// Puts what the table says of capabilities over what the preset lists.
pub(super) fn apply(table: &Table, preset: &mut Preset, problems: &mut Problems) {
    preset.unchanged_stub = table.truth("unchanged_stub").unwrap_or(preset.unchanged_stub);
    let summarises = preset.layers.iter().any(|layer| matches!(layer, Layer::Summary(_)));
    for entry in ["recovery", "hooks"].into_iter().filter_map(|key| table.get(key)) {
        if !summarises {
            let message = format!("the preset `{}` has no `{}`", preset.name, entry.key);
            problems.warning("unused_key", &entry.key_place, message, None);
        }
    }
    let Some(own) = table.get("recovery").and_then(|entry| entry.node.table()) else { return };
    let recovery = preset.recovery.get_or_insert_default();
    let tokens = |key: &str, listed: u64| own.whole(key).unwrap_or(listed);
    recovery.files = own.whole("files").unwrap_or(recovery.files);
    recovery.file_tokens = tokens("file_tokens", recovery.file_tokens);
    recovery.all_files_tokens = tokens("all_files_tokens", recovery.all_files_tokens);
    recovery.skill_tokens = tokens("skill_tokens", recovery.skill_tokens);
    recovery.all_skills_tokens = tokens("all_skills_tokens", recovery.all_skills_tokens);
}

/// Reads `[compaction.hooks]`.
pub(super) fn hooks(table: &Table, root: &Path, problems: &mut Problems) -> Hooks {
    let mut argv = |key: &str| {
        if let Some(entry) = table.get(key) {
            check(entry, table, root, problems);
        }
        table.texts(key).into_iter().map(|(text, _)| text.to_owned()).collect()
    };
    Hooks {
        pre_compact: argv("pre_compact"),
        post_compact: argv("post_compact"),
        after_compact_context: argv("after_compact_context"),
        timeout: table.duration("timeout").unwrap_or(Hooks::default().timeout),
    }
}

/// A hook that cannot be run would be missed only after its compaction has happened.
fn check(entry: &Entry, table: &Table, root: &Path, problems: &mut Problems) {
    match table.texts(&entry.key).first() {
        None => {
            let message = format!("`{}` names no command", entry.key);
            let help =
                Some("write a program and its arguments: [\"./hook\", \"--flag\"]".to_owned());
            problems.error_help("bad_value", &entry.key_place, message, help);
        }
        Some((program, place)) if program.contains('/') && !root.join(program).is_file() => {
            let message = format!("there is no file `{program}`");
            problems.error("unreadable_file", place, message);
        }
        Some(_) => {}
    }
}
