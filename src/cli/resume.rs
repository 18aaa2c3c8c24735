//! `resume`: goes on with a run that was stopped, where its journal ends.

use super::args;
use super::ask::asker;
use super::drive::{self, Shown};
use super::locate::{Place, fold};
use super::reopen::reopen;
use super::{check, complain, say};
use crate::config::{self, Sources};
use crate::event::RunCompleted;
use crate::exit::Exit;
use crate::journal::file::RunDir;
use crate::journal::recovery::Cut;
use crate::report;
use crate::run::{Options, Reopened, Run};

/// The most keys that a note of changes lists.
const LISTED: usize = 10;

pub(super) fn run(place: &Place, verb: &args::Resume, verbose: u8) -> Exit {
    resume(place, verb, verbose).unwrap_or_else(|exit| exit)
}

fn resume(place: &Place, verb: &args::Resume, verbose: u8) -> Result<Exit, Exit> {
    let dir = place.run(verb.run.as_deref())?;
    let reopened = reopen(place, &dir, verb.truncate_at.map_or(Cut::Torn, Cut::From))?;
    if let Some(completed) = reopened.completed() {
        return Ok(finished(place, &dir, completed, verb));
    }
    let sources = reopened.sources(place.sources());
    note_changes(&reopened, &sources);
    let config = check::shown(reopened.config(place.sources()), &sources)?;
    drive::note_scripts(&config);
    let options = Options { asker: asker(), ..Options::default() };
    let shown = Shown { json: verb.json, verbose };
    Ok(drive::drive(place, shown, Run::resume(reopened, config, options)))
}

/// A run that has come to its end is left alone.
fn finished(place: &Place, dir: &RunDir, completed: &RunCompleted, verb: &args::Resume) -> Exit {
    complain("the run has come to its end: nothing is left to do");
    if !verb.json {
        return drive::ended(place, dir, completed);
    }
    let mut last = None;
    if let Err(exit) = fold(dir, |record| last = Some(record.clone())) {
        return exit;
    }
    let line = last.map(|record| report::event_json(&record) + "\n").unwrap_or_default();
    match say(&line) {
        Exit::Done => Exit::of(completed),
        disk => disk,
    }
}

/// Says in which keys the file differs from the configuration that the run goes on with.
fn note_changes(run: &Reopened, sources: &Sources) {
    let file = sources.file.display();
    let mut changes = match std::fs::read_to_string(&sources.file) {
        Ok(text) => config::changes(&run.created().config, &text),
        Err(error) => {
            complain(&format!("note: {file}: {error}: the run goes on with what it recorded"));
            return;
        }
    };
    changes.extend(config::changed_files(&run.created().files, &sources.file));
    if changes.is_empty() {
        return;
    }
    complain(&format!(
        "note: {file} has changed since the run began, which goes on with what it recorded:"
    ));
    for change in changes.iter().take(LISTED) {
        complain(&format!("  {change}"));
    }
    if changes.len() > LISTED {
        complain(&format!("  and {} more", changes.len() - LISTED));
    }
}
