//! `fork`: a new run that begins as another one did and goes on with something changed.

use super::args;
use super::ask::asker;
use super::drive::{self, Shown};
use super::locate::Place;
use super::{check, complain, refusal, reopen};
use crate::exit::Exit;
use crate::journal::file::RunDir;
use crate::journal::recovery::Cut;
use crate::run::no_effect::{NoEffect, no_effect};
use crate::run::{ForkError, Options, Run, fork};

pub(super) fn run(place: &Place, verb: &args::Fork, verbose: u8) -> Exit {
    forked(place, verb, verbose).unwrap_or_else(|exit| exit)
}

fn forked(place: &Place, verb: &args::Fork, verbose: u8) -> Result<Exit, Exit> {
    let parts = verb.what.rsplit_once('@').and_then(|(run, seq)| Some((run, seq.parse().ok()?)));
    let Some((name, seq)) = parts else {
        complain(&format!(
            "error: `{}` is not RUN@SEQ: `callsheet tail --json RUN` shows the numbers",
            verb.what
        ));
        return Err(Exit::Usage);
    };
    let from = place.run(Some(name))?;
    let overrides = verb.set.iter().cloned().collect();
    let reopened = fork(&from, seq, overrides, place.sources())
        .map_err(|error| refused(place, &from, error))?;
    let sources = reopened.sources(place.sources());
    let config = check::shown(reopened.config(place.sources()), &sources)?;
    for NoEffect { key, why } in
        no_effect(reopened.state(), &config, verb.set.iter().map(|(key, _)| key.as_str()))
    {
        complain(&format!("note: `{key}` has no effect here: {why}"));
    }
    drive::note_scripts(&config);
    let options = Options { asker: asker(), ..Options::default() };
    let shown = Shown { json: verb.json, verbose };
    let dir = reopened.dir().clone();
    Ok(drive::drive(place, shown, Some(&dir), Run::resume(reopened, config, options)))
}

fn refused(place: &Place, from: &RunDir, error: ForkError) -> Exit {
    match error {
        ForkError::Config(problems) => match check::shown(Err(problems), &place.sources()) {
            Err(exit) => exit,
            Ok(_) => Exit::Usage,
        },
        ForkError::Start(error) => drive::refused(place, Some(from), &error),
        ForkError::Outside(_) | ForkError::Ended(_) => {
            complain(&format!("error: {error}"));
            Exit::Usage
        }
        ForkError::Journal(error) => refusal::refused(&place.flags(), Some(from), &error),
        ForkError::Recovery { dir, error } => reopen::refused(place, &dir, Cut::Torn, &error),
    }
}
