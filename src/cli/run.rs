//! `run`: starts a run of the task graph and prints its progress.

use std::path::{Path, PathBuf};

use super::args;
use super::ask::asker;
use super::drive::{self, Shown};
use super::locate::Project;
use super::{beside_others, chosen, complain, detach, dry_run, trust};
use crate::config::{self, Sources};
use crate::event::RunStatus;
use crate::exit::Exit;
use crate::id::RunId;
use crate::journal::local::LocalArchive;
use crate::journal::source::{Archive, RecordedRun};
use crate::run::{Options, Run};

/// The variable that sets `sandbox.mode`.
const SANDBOX_MODE: &str = "CALLSHEET_SANDBOX__MODE";

/// Returns the absolute path of a file that a flag names; a file that does not exist keeps its own.
pub(super) fn absolute(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

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
    }
    let mut sources = Sources {
        profile: verb.profile.clone(),
        plan: verb.plan.as_deref().map(absolute),
        inputs: verb.inputs.clone(),
        targets: verb.tasks.clone(),
        set: verb.set.clone(),
        model: verb.model.clone(),
        ..project.sources()
    };
    if let Some(mode) = &verb.sandbox {
        // As a variable it is recorded with the run, and a resume keeps it.
        sources.environment.insert(SANDBOX_MODE.to_owned(), mode.clone());
    }
    sources.environment.extend(verb.limits.variables());
    if verb.dry_run {
        return dry_run::run(&sources, &verb.tasks);
    }
    let trusting = (&verb.trusting).into();
    let read = |outside| config::load(&Sources { outside, ..sources.clone() });
    let config = match trust::load(project, trusting, &sources, read) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    let beside = match verb.also {
        true => Ok(None),
        false => beside_others::check(project, &config, &verb),
    };
    // Held until the run has ended.
    let _only_one = match beside {
        Ok(held) => held,
        Err(exit) => return exit,
    };
    if verb.detach && !verb.detached {
        // The detached process has no terminal at which it could ask for trust.
        return detach::run(
            project,
            run_id.unwrap_or_else(|| LocalArchive::named(config.state_dir.clone()).next_id()),
        );
    }
    if let Err(exit) = chosen::known_tasks(&config, &verb.tasks) {
        return exit;
    }
    drive::note_scripts(&config);
    chosen::note_facts_of_file(&config, verb.model.as_deref());
    let newest = newest_with_results(project, &config.name);
    if let (Some((run, count, false)), false) = (&newest, verb.reuse) {
        let results = if *count == 1 { "1 result".to_owned() } else { format!("{count} results") };
        complain(&format!(
            "note: run {} did not complete and holds {results}: `--reuse` takes those whose task is \
             unchanged, and `{} --retry-failed` continues that run",
            project.short(run),
            project.resume_command(&project.short(run))
        ));
    }
    let reuse = newest.map(|(run, ..)| run).filter(|_| verb.reuse);
    let reuse = reuse.filter(|run| run.drivable().is_some());
    if verb.reuse && reuse.is_none() {
        complain("note: no run of this workflow holds results to reuse");
    }
    let screen = verb.progress.screen();
    let shown =
        Shown { json: verb.json, verbose, screen: screen.clone(), stays_open: verb.detached };
    let options = Options {
        tasks: verb.tasks,
        run_id,
        keep_going: verb.keep_going,
        strict: verb.strict,
        reuse,
        // Nobody waits for the end of a detached run, and whoever answers wants it to go on.
        stays_open: verb.detached,
        asker: asker(&screen),
        ..Options::default()
    };
    drive::drive(project, shown, None, Run::start(config, options))
}

/// Returns the newest run if it is one of the workflow and holds results, with their number, and
/// true if it completed.
fn newest_with_results(project: &Project, workflow: &str) -> Option<(RecordedRun, usize, bool)> {
    let run = project.runs().into_iter().find(|run| run.has_begun())?;
    let (state, read) = run.state(|_| {});
    let is_same = state.created().is_some_and(|created| created.workflow == workflow);
    let count = state.reusable_results().len();
    (read.is_ok() && is_same && count > 0 && !run.is_live()).then(|| {
        let completed = state.completed().is_some_and(|c| c.status == RunStatus::Completed);
        (run, count, completed)
    })
}
