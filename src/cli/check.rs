//! `check`: finds every mistake in the configuration before anything is spent.

use std::io;

use super::args;
use super::locate::Project;
use super::{complain, mistakes, paint, say};
use crate::config::{self, Config, Diagnostic, Diagnostics, Severity, Sources};
use crate::exit::Exit;
use crate::run::sandbox;

pub(super) fn run(project: &Project, verb: &args::Check) -> Exit {
    let sources = Sources {
        profile: verb.profile.clone(),
        inputs: verb.inputs.clone(),
        missing_inputs: config::Missing::Allow,
        ..project.sources()
    };
    let (found, summary) = match config::load(&sources) {
        Ok(config) => {
            let count = |number: usize, noun: &str| {
                format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
            };
            let kept = sandbox::proof(&config);
            let kept = kept.map(|kept| format!("sandbox of commands: {kept}\n"));
            let summary = format!(
                "{}: {}, {}, {}: no mistakes\n{}",
                sources.file.display(),
                count(config.tasks.len(), "task"),
                count(config.agents.len(), "agent"),
                count(config.models.len(), "model"),
                kept.unwrap_or_default(),
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
        let exit = say(&lines);
        if exit != Exit::Done {
            return exit;
        }
    } else {
        found.iter().for_each(show);
    }
    match summary {
        Some(summary) if !verb.json => say(&summary),
        Some(_) => Exit::Done,
        None => {
            if !verb.json {
                tally(&found, &sources);
            }
            Exit::Usage
        }
    }
}

/// Loads the configuration for another verb, and prints its diagnostics.
pub(super) fn load(sources: &Sources) -> Result<Config, Exit> {
    shown(config::load(sources), sources)
}

/// Prints the diagnostics of a loaded configuration. Returns the configuration if it has no errors.
pub(super) fn shown(
    loaded: Result<Config, Diagnostics>,
    sources: &Sources,
) -> Result<Config, Exit> {
    match loaded {
        Ok(config) => {
            config.warnings.iter().for_each(show);
            Ok(config)
        }
        Err(problems) => {
            problems.0.iter().for_each(show);
            tally(&problems.0, sources);
            Err(Exit::Usage)
        }
    }
}

fn show(found: &Diagnostic) {
    complain(&mistakes::text(found, paint::is_on(&io::stderr())));
}

/// Prints the number of errors, for people.
fn tally(found: &[Diagnostic], sources: &Sources) {
    let errors = found.iter().filter(|found| found.severity == Severity::Error).count();
    let mistakes = if errors == 1 { "mistake" } else { "mistakes" };
    complain(&format!("error: {errors} {mistakes} in {}", sources.file.display()));
}
