//! Reads the script of a scripted provider, and reports its mistakes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use miette::NamedSource;

use super::diagnostic::{NO_HELP, Place};
use super::raw::Provider;
use super::shape::Entry;
use super::{Setting, files, names};
use crate::model::script::Script;

/// Reads the script of a provider and returns its path; `agents` are the names of agents that its rules can match.
pub(super) fn script(
    setting: Setting<'_>,
    entry: &Entry<Provider>,
    raw: &Provider,
    agents: &BTreeSet<&str>,
) -> Option<PathBuf> {
    if !raw.script.is_set() {
        let message = format!("provider `{}` is scripted but has no `script`", entry.name);
        let help = "add `script = \"FILE\"`";
        setting.problems.error("missing_field", &entry.at.key, message, help);
    }
    let (written, place) = raw.script.placed()?;
    let script = setting.root.join(written);
    let Some(read) = setting.shelf.read_unrecorded(&script, place, setting.problems) else {
        // What is left out is read when the file is trusted.
        return setting.shelf.left_out().then_some(script);
    };
    let form = files::Form::of(&read.real, setting.root);
    let text = read.text;
    let parsed = Script::parse_all(&text);
    if let Ok(script) = &parsed {
        for (number, agent) in script.rules_for_nobody(agents.iter().copied()) {
            let message =
                format!("rule {number} of the script is for agent `{agent}`, which does not exist");
            let help = names::suggest(&agent, agents.iter().copied());
            setting.problems.warning("unmatched_agent", place, message, help);
        }
    }
    if let Err(mistakes) = parsed {
        // The name is built like that of the configuration, so that diagnostics of both look alike.
        let shown = setting.sources.file.parent().unwrap_or(Path::new("")).join(written);
        if form == files::Form::Anything {
            let line = mistakes.first().map_or(1, |mistake| mistake.line);
            let message = format!("`{}` is not a script: see line {line}", shown.display());
            let help = "its lines are not shown: a script ends in `.toml`";
            setting.problems.error("bad_script", place, message, help);
            return None;
        }
        let text = Arc::new(NamedSource::new(shown.display().to_string(), text));
        for mistake in mistakes {
            if setting.problems.is_full() {
                continue;
            }
            let place = Place::at(&text, mistake.line, mistake.column);
            setting.problems.error("bad_script", &place, mistake.message, NO_HELP);
        }
        return None;
    }
    Some(script)
}
