//! `fork`: starts a new run that shares the journal of another run up to an event, with changed
//! configuration keys.

use super::args;
use super::ask::asker;
use super::drive::{self, Shown};
use super::locate::Project;
use super::{check, complain, refusal, stopped_run};
use crate::exit::Exit;
use crate::journal::file::RunDir;
use crate::journal::torn::Cut;
use crate::run::no_effect::{NoEffect, no_effect};
use crate::run::{ForkError, Options, Run, fork};

pub(super) fn run(project: &Project, verb: &args::Fork, verbose: u8) -> Exit {
    forked(project, verb, verbose).unwrap_or_else(|exit| exit)
}

fn forked(project: &Project, verb: &args::Fork, verbose: u8) -> Result<Exit, Exit> {
    let parts = verb.what.rsplit_once('@').and_then(|(run, seq)| Some((run, seq.parse().ok()?)));
    let Some((name, seq)) = parts else {
        complain(&format!(
            "error: `{}` is not RUN@SEQ: `callsheet tail --json RUN` shows the numbers",
            verb.what
        ));
        return Err(Exit::Usage);
    };
    let from = project.run(Some(name))?;
    let overrides = verb.set.iter().cloned().collect();
    let stopped = fork(&from, seq, overrides, project.sources())
        .map_err(|error| refused(project, &from, error))?;
    let sources = stopped.sources(project.sources());
    let config = check::shown(stopped.config(project.sources()), &sources)?;
    for NoEffect { key, why } in
        no_effect(stopped.state(), &config, verb.set.iter().map(|(key, _)| key.as_str()))
    {
        complain(&format!("note: `{key}` has no effect here: {why}"));
    }
    drive::note_scripts(&config);
    let options = Options { asker: asker(), ..Options::default() };
    let shown = Shown { json: verb.json, verbose };
    let dir = stopped.dir().clone();
    Ok(drive::drive(project, shown, Some(&dir), Run::resume(stopped, config, options)))
}

fn refused(project: &Project, from: &RunDir, error: ForkError) -> Exit {
    match error {
        ForkError::Config(problems) => match check::shown(Err(problems), &project.sources()) {
            Err(exit) => exit,
            Ok(_) => Exit::Usage,
        },
        ForkError::Start(error) => drive::refused(project, Some(from), &error),
        ForkError::Outside(_) | ForkError::Ended(_) => {
            complain(&format!("error: {error}"));
            Exit::Usage
        }
        ForkError::Journal(error) => refusal::refused(&project.flags(), Some(from), &error),
        ForkError::Open { dir, error } => stopped_run::refused(project, &dir, Cut::Torn, &error),
    }
}
