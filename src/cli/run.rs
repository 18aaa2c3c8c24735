//! `run`: starts a run of the task graph and prints its progress.

use super::args;
use super::ask::asker;
use super::drive::{self, Shown};
use super::locate::Project;
use super::screen::Screen;
use super::{check, complain, detach};
use crate::config::{Sources, suggest};
use crate::exit::Exit;
use crate::id::RunId;
use crate::run::{Options, Run};

pub(super) fn run(project: &Project, verb: args::Run, verbose: u8) -> Exit {
    let run_id = match verb.run_id.as_deref().map(|text| (text, RunId::parse(text))) {
        Some((text, None)) => {
            complain(&format!("error: `{text}` is not a run id: a UUID is needed"));
            return Exit::Usage;
        }
        Some((_, id)) => id,
        None => None,
    };
    if verb.detached {
        detach::leave_session();
    } else if verb.detach {
        return detach::run(project, run_id.unwrap_or_else(|| RunId::from(uuid::Uuid::now_v7())));
    }
    let sources = Sources {
        profile: verb.profile.clone(),
        inputs: verb.inputs.clone(),
        targets: verb.tasks.clone(),
        ..project.sources()
    };
    let config = match check::load(&sources) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    let known = || config.tasks.iter().map(|task| task.name.as_str());
    if let Some(unknown) = verb.tasks.iter().find(|name| known().all(|task| task != **name)) {
        complain(&format!("error: there is no task `{unknown}`"));
        complain(&format!("help: {}", suggest(unknown, known())));
        return Exit::Usage;
    }
    drive::note_scripts(&config);
    let screen = Screen::new();
    let options = Options {
        tasks: verb.tasks,
        run_id,
        keep_going: verb.keep_going,
        strict: verb.strict,
        asker: asker(&screen),
        ..Options::default()
    };
    let shown = Shown { json: verb.json, verbose, screen };
    drive::drive(project, shown, None, Run::start(config, options))
}
