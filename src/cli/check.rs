//! `check`: finds every mistake in the configuration before anything is spent.

use std::io;

use super::args;
use super::locate::Place;
use super::{complain, paint, say};
use crate::config::{self, Config, Diagnostic, Severity, Sources};
use crate::exit::Exit;

pub(super) fn run(place: &Place, verb: &args::Check) -> Exit {
    let sources = Sources {
        profile: verb.profile.clone(),
        inputs: verb.inputs.clone(),
        missing_inputs: config::Missing::Allow,
        ..place.sources()
    };
    let (found, summary) = match config::load(&sources) {
        Ok(config) => {
            let summary = format!(
                "{}: {} tasks, {} agents, {} models: no mistakes\n",
                sources.file.display(),
                config.tasks.len(),
                config.agents.len(),
                config.models.len()
            );
            (config.warnings, Some(summary))
        }
        Err(problems) => (problems.0, None),
    };
    if verb.json {
        let lines: String = found
            .iter()
            .filter_map(|found| serde_json::to_string(found).ok())
            .map(|line| line + "\n")
            .collect();
        say(&lines);
    } else {
        found.iter().for_each(show);
    }
    match summary {
        Some(summary) if !verb.json => say(&summary),
        Some(_) => Exit::Done,
        None => Exit::Usage,
    }
}

/// Loads the configuration for a verb that works on it, and shows what is wrong with it.
pub(super) fn load(sources: &Sources) -> Result<Config, Exit> {
    match config::load(sources) {
        Ok(config) => {
            config.warnings.iter().for_each(show);
            Ok(config)
        }
        Err(problems) => {
            problems.0.iter().for_each(show);
            let errors =
                problems.0.iter().filter(|found| found.severity == Severity::Error).count();
            complain(&format!("error: {errors} mistake(s) in {}", sources.file.display()));
            Err(Exit::Usage)
        }
    }
}

/// Shows a diagnostic: `file:line:column`, the line with a caret, the reason, a suggestion.
fn show(found: &Diagnostic) {
    let colour = paint::is_on(&io::stderr());
    let theme = match colour {
        true => miette::GraphicalTheme::unicode(),
        false => miette::GraphicalTheme::unicode_nocolor(),
    };
    let handler = miette::GraphicalReportHandler::new_themed(theme).with_links(false);
    let mut text = String::new();
    match handler.render_report(&mut text, found) {
        Ok(()) => complain(&format!("{}:{}:{}\n{text}", found.file, found.line, found.column)),
        Err(_) => {
            complain(&format!("{}:{}:{}: {}", found.file, found.line, found.column, found.message));
        }
    }
}
