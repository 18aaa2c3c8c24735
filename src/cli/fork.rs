//! `fork`: starts a new run that shares the journal of another run up to an event, with changed
//! configuration keys.

use super::args;
use super::ask::asker;
use super::drive::{self, Shown};
use super::locate::Project;
use super::{complain, mistakes, refusal, say, stopped_run, trust};
use crate::config::{self, Missing, Outside, Sources};
use crate::exit::Exit;
use crate::journal::cut::Cut;
use crate::journal::source::RecordedRun;
use crate::journal::stamp;
use crate::run::fork_points::{ForkEvent, ForkPoint, fork_points};
use crate::run::unused_keys::{UnusedKey, unused_keys};
use crate::run::{ForkError, Options, Run, fork};
use crate::show::names::Names;

pub(super) fn run(project: &Project, verb: &args::Fork, verbose: u8) -> Exit {
    forked(project, verb, verbose).unwrap_or_else(|exit| exit)
}

fn forked(project: &Project, verb: &args::Fork, verbose: u8) -> Result<Exit, Exit> {
    let (name, seq) = match verb.what.rsplit_once('@') {
        None => return list(project, &verb.what),
        Some((run, seq)) => (run, seq.parse().ok()),
    };
    let Some(seq) = seq else {
        complain(&format!(
            "error: `{}` is not RUN@SEQ: `callsheet fork{} {name}` lists the numbers",
            verb.what,
            project.flags()
        ));
        return Err(Exit::Usage);
    };
    let from = project.run(Some(name))?;
    let trusting = (&verb.trusting).into();
    // The run that is forked is judged first, so that nothing is made where it is not trusted.
    // What is wrong with its journal is reported by the fork, if it concerns that part.
    if let Some(created) = from.state(|_| {}).0.created() {
        let sources = Sources {
            missing_keys: Missing::Allow,
            ..project.sources().of_run(created, &from.place())
        };
        let read =
            |outside| config::load_text(&created.config, &Sources { outside, ..sources.clone() });
        // Its mistakes may be what the fork changes.
        if read(Outside::LeaveOut).is_ok() {
            trust::load(project, trusting, &sources, read)?;
        }
    }
    let overrides = verb.set.iter().cloned().collect();
    let stopped = fork(&*from, seq, overrides, project.sources())
        .map_err(|error| refused(project, &from, error))?;
    let mut typed = project.sources();
    let set = verb.set.iter().map(|(key, text)| (key.clone(), config::as_toml(text)));
    typed.overrides.extend(set);
    let sources = stopped.sources(typed.clone());
    let read = |outside| stopped.config(Sources { outside, ..typed.clone() });
    let config = trust::load(project, trusting, &sources, read)?;
    for UnusedKey { key, why } in
        unused_keys(stopped.state(), &config, verb.set.iter().map(|(key, _)| key.as_str()))
    {
        complain(&format!("note: `{key}` has no effect here: {why}"));
    }
    drive::note_scripts(&config);
    let screen = verb.progress.screen();
    let shown = Shown { json: verb.json, verbose, screen: screen.clone(), stays_open: false };
    let options = Options { asker: asker(&screen), ..Options::default() };
    let run = stopped.recorded().clone();
    Ok(drive::drive(project, shown, Some(&run), Run::resume(stopped, config, options)))
}

/// Prints the events at which a fork can begin.
fn list(project: &Project, name: &str) -> Result<Exit, Exit> {
    let from = project.run(Some(name))?;
    let points = fork_points(&*from)
        .map_err(|error| refusal::refused(&project.flags(), Some(&from), &error))?;
    let names = Names::of(&project.state(&from)?);
    let widest = points.iter().map(|point| point.seq.to_string().len()).max().unwrap_or(0);
    let line = |ForkPoint { seq, ts_ms, task, event }: &ForkPoint| {
        let task = names.shown(task.as_str());
        let what = match event {
            ForkEvent::Started(attempt) => format!("{task} started, attempt {attempt}"),
            ForkEvent::Turn(agent, turn) => {
                format!("{} has the results of turn {turn}", names.shown(agent.as_str()))
            }
            ForkEvent::Completed => format!("{task} completed"),
        };
        format!("@{seq:<widest$}  {}  {what}\n", stamp::text(*ts_ms))
    };
    complain(&format!(
        "`callsheet fork{} {}@SEQ` makes a new run that continues from the end of one of these \
         events:",
        project.flags(),
        project.short(&from)
    ));
    Ok(say(&points.iter().map(line).collect::<String>()))
}

fn refused(project: &Project, from: &RecordedRun, error: ForkError) -> Exit {
    match error {
        ForkError::Config(problems) => match mistakes::shown(Err(problems), &project.sources()) {
            Err(exit) => exit,
            Ok(_) => Exit::Usage,
        },
        ForkError::Start(error) => drive::refused(project, Some(from), &error),
        ForkError::Outside(_) | ForkError::Ended(_) => {
            complain(&format!("error: {error}"));
            Exit::Usage
        }
        ForkError::Journal(error) => refusal::refused(&project.flags(), Some(from), &error),
        ForkError::Open { run, error } => stopped_run::refused(project, &run, Cut::Torn, &error),
    }
}
