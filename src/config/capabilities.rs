//! What the pipeline can do beside its layers: keys of `[compaction]` that any preset may have.

use std::collections::BTreeMap;
use std::path::Path;

use super::diagnostic::Problems;
use super::raw::{Entry, Table};
use crate::context::preset::Preset;
use crate::tool::hook::{Hooks, TIME_LIMIT};

/// What the file says of capabilities; what it does not say is for the preset to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a repeated read is answered by a stub while the view still shows what it gave.
    pub unchanged_stub: Option<bool>,
    /// The constants of the recovery that the file overrides, when it has the section: `files` is a
    /// count, the others are tokens.
    pub recovery: Option<BTreeMap<String, u64>>,
    /// The commands that are asked before and told after a compaction.
    pub hooks: Hooks,
}

impl Capabilities {
    /// Puts what the file says over what the preset lists.
    pub fn apply(&self, preset: &mut Preset) {
        preset.unchanged_stub = self.unchanged_stub.unwrap_or(preset.unchanged_stub);
        let Some(constants) = &self.recovery else { return };
        let recovery = preset.recovery.get_or_insert_default();
        let constant = |name: &str, listed: u64| constants.get(name).copied().unwrap_or(listed);
        let files = constants.get("files").and_then(|files| usize::try_from(*files).ok());
        recovery.files = files.unwrap_or(recovery.files);
        recovery.file_tokens = constant("file_tokens", recovery.file_tokens);
        recovery.all_files_tokens = constant("all_files_tokens", recovery.all_files_tokens);
        recovery.skill_tokens = constant("skill_tokens", recovery.skill_tokens);
        recovery.all_skills_tokens = constant("all_skills_tokens", recovery.all_skills_tokens);
    }
}

/// Reads the capabilities in `[compaction]`.
pub(super) fn capabilities(table: &Table, root: &Path, problems: &mut Problems) -> Capabilities {
    let recovery = table.get("recovery").and_then(|entry| entry.node.table());
    let constants = |table: &Table| {
        let number = |entry: &Entry| Some((entry.key.clone(), table.whole(&entry.key)?));
        table.0.iter().filter_map(number).collect()
    };
    Capabilities {
        unchanged_stub: table.truth("unchanged_stub"),
        recovery: recovery.map(constants),
        hooks: hooks(table.section("hooks"), root, problems),
    }
}

fn hooks(table: &Table, root: &Path, problems: &mut Problems) -> Hooks {
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
        timeout: table.duration("timeout").unwrap_or(TIME_LIMIT),
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
