//! `resume`: resumes a run that was stopped, where its journal ends.

use std::borrow::Cow;
use std::path::Path;

use super::ask::asker;
use super::drive::{self, Shown, refused};
use super::locate::{Project, drivable};
use super::stopped_run::{self, open};
use super::stream::Stream;
use super::trust::{self, Trust};
use super::{args, budget};
use super::{complain, mistakes, refusal, resume_all, say, say_json};
use crate::config::{self, Config, Missing, NotCompared, Sources};
use crate::event::{RunCompleted, RunCreated};
use crate::exit::Exit;
use crate::journal::cut::{Cut, CutError};
use crate::journal::source::RecordedRun;
use crate::printable;
use crate::report;
use crate::run::resume_forecast::{self, TaskFate, TaskForecast};
use crate::run::{Options, Run, values};
use crate::run_state::{RetryError, RunState};
use crate::show::log_line::{cut, in_one_line};
use crate::show::names::Names;
use crate::spec::budget::Scope;

/// Maximum number of keys that the note about changes lists.
const LISTED: usize = 10;

/// The most characters of a reason in a forecast on a screen; models may have written it.
const WIDEST: usize = 1_000;

pub(super) fn run(project: &Project, verb: &args::Resume, verbose: u8) -> Exit {
    match verb.all {
        true => all(project, verb, verbose),
        false => project
            .run(verb.run.as_deref())
            .and_then(|run| raised(project, run, verb))
            .and_then(|run| match verb.explain {
                true => explain(project, &run, verb),
                false => resume(project, &run, verb, verbose),
            })
            .unwrap_or_else(|exit| exit),
    }
}

/// Sets the limits of the run's budget that were typed, for the process that resumes it.
fn raised(project: &Project, run: RecordedRun, verb: &args::Resume) -> Result<RecordedRun, Exit> {
    let caps = verb.limits.caps();
    if caps.is_empty() || verb.explain {
        return Ok(run);
    }
    match budget::left(project, &run, &Scope::Run, &caps) {
        Exit::Done => Ok(run),
        exit => Err(exit),
    }
}

/// Resumes every run that was stopped before its end.
fn all(project: &Project, verb: &args::Resume, verbose: u8) -> Exit {
    let runs = match project.listed() {
        Ok(runs) => runs,
        Err(exit) => return exit,
    };
    let (stopped, unread) = resume_all::stopped(project, runs);
    let exit = match stopped.as_slice() {
        [] => {
            complain(&format!("no run in {} was stopped", project.runs_folder().display()));
            Exit::Done
        }
        [one] => resume(project, one, verb, verbose).unwrap_or_else(|exit| exit),
        several => resume_all::run(project, several, verb.json),
    };
    exit.or(unread)
}

fn resume(
    project: &Project,
    run: &RecordedRun,
    verb: &args::Resume,
    verbose: u8,
) -> Result<Exit, Exit> {
    let run = run.clone();
    let mut stopped = open(project, &run, verb.truncate_at.map_or(Cut::Torn, Cut::From))?;
    let (created, sources) = (stopped.created(), stopped.sources(project.sources()));
    let mut config = None;
    if verb.accept_changes && is_changed(project, created, &sources) {
        let (before, now) = both(project, created, &run, (&verb.trusting).into())?;
        let forecasts = stopped
            .forecast(&before, &now)
            .map_err(|error| refused(project, Some(&run), &error))?;
        if stopped.completed().is_none() || !forecasts.iter().all(TaskForecast::stands) {
            stopped = stopped
                .accept(&before, &now)
                .map_err(|error| refused(project, Some(&run), &error))?;
            config = Some(now);
        }
    }
    if let (Some(named), None) = (&verb.retry_failed, &config) {
        let before = stopped.state().clone();
        stopped = stopped
            .retry(&recorded(&before, named))
            .map_err(|error| not_retried(&before, &error))?;
    }
    let begins_again = config.is_some() || !stopped.retried().is_empty();
    if let (Some(completed), false) = (stopped.completed(), begins_again) {
        if let Err(error) = stopped.complete_files() {
            complain(&format!("note: transcripts and logs may lack their last lines: {error}"));
        }
        return Ok(finished(project, &run, stopped.state(), completed, verb));
    }
    let config = match config {
        Some(config) => config,
        None => {
            let read = |outside| stopped.config(Sources { outside, ..project.sources() });
            let loaded = trust::load(project, (&verb.trusting).into(), &sources, read);
            let config = loaded.inspect_err(|_| {
                advise_to_accept(project, &run, stopped.created(), &sources);
            })?;
            // Only now: the record may name any file.
            note_changes(project, stopped.created(), &sources, Some(&config));
            config
        }
    };
    drive::note_scripts(&config);
    let screen = verb.progress.screen();
    let shown = Shown { json: verb.json, verbose, screen: screen.clone(), stays_open: false };
    let options = Options { asker: asker(&screen), ..Options::default() };
    Ok(drive::drive(project, shown, Some(&run), Run::resume(stopped, config, options)))
}

/// Prints what a resume would do with each task, and what would prevent the resume. Only reads, so
/// it needs no lock.
fn explain(project: &Project, run: &RecordedRun, verb: &args::Resume) -> Result<Exit, Exit> {
    let state = match verb.truncate_at {
        Some(seq) => state_before(project, run, seq)?,
        None => project.state(run)?,
    };
    let Some(created) = state.created() else {
        complain("error: the run has no records yet");
        return Err(Exit::Failed);
    };
    if verb.truncate_at.is_none() && !run.is_live() {
        let sound = run.refuse_unsound(&state);
        sound.map_err(|error| refusal::refused(&project.flags(), Some(run), &error))?;
    }
    let sources = project.sources().of_run(created, &run.place());
    let mut able = Exit::Done;
    let forecasts = if verb.accept_changes && is_changed(project, created, &sources) {
        let (before, now) = both(project, created, run, (&verb.trusting).into())?;
        resume_forecast::accepting(&**run, &state, &before, &now)
            .map_err(|error| refused(project, Some(run), &error))?
    } else {
        let retry = verb.retry_failed.as_ref().map(|named| state.retry(&recorded(&state, named)));
        let retry = retry.transpose();
        let retry = retry.map_err(|error| not_retried(&state, &error))?;
        // A run that has ended needs no configuration any more.
        let mut config = None;
        if state.completed().is_none() || retry.is_some() {
            (config, able) = able_to_resume(project, run, created, &state, &sources);
        }
        let trusted = config.as_ref().filter(|config| trust::is_trusted(config));
        note_changes(project, created, &sources, trusted);
        resume_forecast::as_recorded(&**run, &state, config.as_ref(), retry.as_ref())
            .map_err(|error| refused(project, Some(run), &error))?
    };
    let names = Names::of(&state);
    let shown: Vec<_> = forecasts.iter().map(|p| names.shown(p.task.as_str())).collect();
    let widest = shown.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |(p, name): (&TaskForecast, &Cow<'_, str>)| match verb.json {
        true => serde_json::to_string(p).unwrap_or_default() + "\n",
        false => {
            let waits = p.waiting_for.as_ref().filter(|_| p.fate == TaskFate::Runs);
            let waits = waits.map(|what| format!("; waits for {what}")).unwrap_or_default();
            let why = format!("{}{waits}", p.why);
            let why = match Stream::Out.is_terminal() {
                true => cut(&why, WIDEST),
                false => in_one_line(&why),
            };
            let task = printable::padded(name, widest);
            format!("{task}  {:7}  {why}\n", p.fate.as_str())
        }
    };
    let lines: String = forecasts.iter().zip(&shown).map(line).collect();
    match if verb.json { say_json(&lines) } else { say(&lines) } {
        Exit::Done => Ok(able),
        disk => Ok(disk),
    }
}

/// Loads the recorded configuration with the files and keys of this machine, and checks that the
/// run can resume with it. Returns [`Exit::Done`] if it can; otherwise prints why not.
fn able_to_resume(
    project: &Project,
    run: &RecordedRun,
    created: &RunCreated,
    state: &RunState,
    sources: &Sources,
) -> (Option<Config>, Exit) {
    let read =
        |outside| config::load_text(&created.config, &Sources { outside, ..sources.clone() });
    let config = match mistakes::shown(trust::look(read), sources) {
        Ok(config) => config,
        Err(exit) => {
            complain("note: the run cannot be resumed until that is corrected");
            advise_to_accept(project, run, created, sources);
            return (None, exit);
        }
    };
    let able = match values::of_ended(&**run, state, &config.tasks, config.grows()) {
        Ok(_) => Exit::Done,
        Err(error) => refused(project, Some(run), &error),
    };
    (Some(config), able)
}

/// Returns the state that the run would have with its journal cut at record `seq`, and prints what
/// would be lost.
fn state_before(project: &Project, run: &RecordedRun, seq: u64) -> Result<RunState, Exit> {
    let here = drivable(run)?;
    let look = || -> Result<_, CutError> {
        let end = here.place_to_cut(seq)?;
        let (state, read) = run.fold_to(end.into(), |_| {});
        read?;
        Ok((state, here.loss(end)?))
    };
    let (state, loss) =
        look().map_err(|error| stopped_run::refused(project, run, Cut::From(seq), &error))?;
    complain(&format!(
        "note: the run would resume without what is recorded {}",
        refusal::loss_in_words(&loss)
    ));
    Ok(state)
}

/// Loads the recorded configuration, and that of the file as it is now.
fn both(
    project: &Project,
    created: &RunCreated,
    run: &RecordedRun,
    trust: Trust,
) -> Result<(Config, Config), Exit> {
    let recorded =
        Sources { missing_keys: Missing::Allow, ..project.sources().of_run(created, &run.place()) };
    let read =
        |outside| config::load_text(&created.config, &Sources { outside, ..recorded.clone() });
    let before = trust::load(project, trust, &recorded, read)?;
    let accepting = project.sources().accepting(created, &run.place());
    let read = |outside| config::load(&Sources { outside, ..accepting.clone() });
    let now = trust::load(project, trust, &accepting, read)?;
    let state_dir = run.place().parent().map_or_else(|| now.state_dir.clone(), Path::to_owned);
    Ok((before, Config { state_dir, ..now }))
}

/// Returns true if the configuration file, a file that it names, or an environment variable that
/// sets a key differs from what was recorded, or may differ because nobody trusts it yet.
fn is_changed(project: &Project, created: &RunCreated, sources: &Sources) -> bool {
    let found = config::compared(created, sources, &project.sources().environment, None);
    found.map_or(true, |found| found.has_unseen || !found.changes.is_empty())
}

/// Returns the recorded names of tasks that were typed, perhaps with keys of instances.
fn recorded(state: &RunState, typed: &[String]) -> Vec<String> {
    let names = Names::of(state);
    typed.iter().map(|name| names.recorded(name).into_owned()).collect()
}

/// Prints why tasks cannot be retried.
fn not_retried(state: &RunState, error: &RetryError) -> Exit {
    complain(&format!("error: {error}"));
    let failed = state.retry(&[]).map(|retry| retry.tasks).unwrap_or_default();
    let names = Names::of(state);
    let failed: Vec<_> = failed.iter().map(|name| names.shown(name.as_str())).collect();
    complain(&match failed.is_empty() {
        true => "help: no task of the run failed".to_owned(),
        false => format!("help: these can be retried: {}", failed.join(", ")),
    });
    if let RetryError::NoTask(_) = error {
        complain("help: a run is named before the flag: resume RUN --retry-failed TASK");
    }
    match error {
        RetryError::NoTask(_) => Exit::Failed,
        RetryError::NotEnded(..) => Exit::Usage,
    }
}

/// Says how to resume with the file as it is now, if it differs from the recorded configuration.
fn advise_to_accept(project: &Project, run: &RecordedRun, created: &RunCreated, sources: &Sources) {
    if is_changed(project, created, sources) {
        complain(&format!(
            "help: this is the configuration that the run recorded; `{} --accept-changes` resumes \
             with {} as it is now",
            project.resume_command(&project.short(run)),
            sources.file.display()
        ));
    }
}

/// Prints the result of a run that has ended. The run is not changed.
fn finished(
    project: &Project,
    run: &RecordedRun,
    state: &RunState,
    completed: &RunCompleted,
    verb: &args::Resume,
) -> Exit {
    complain(&match state.retry(&[]).is_ok_and(|retry| !retry.tasks.is_empty()) {
        true => format!(
            "the run has ended; `{} --retry-failed` reruns what failed",
            project.resume_command(&project.short(run))
        ),
        false => "the run has ended: nothing is left to do".to_owned(),
    });
    if !verb.json {
        return drive::ended(project, run, state, completed, None);
    }
    let mut last = None;
    let _ = run.state(|record| last = Some(record.clone()));
    // A snapshot may reach to the last record: then the fold behind it sees no record.
    if last.is_none()
        && let Err(exit) = project.fold(run, |record| last = Some(record.clone()))
    {
        return exit;
    }
    let line = last.map(|record| report::event_json(&record) + "\n").unwrap_or_default();
    match say_json(&line) {
        Exit::Done => Exit::of(completed),
        disk => disk,
    }
}

/// Prints the keys in which the file differs from the configuration with which the run resumes.
fn note_changes(
    project: &Project,
    created: &RunCreated,
    sources: &Sources,
    trusted: Option<&Config>,
) {
    let file = sources.file.display();
    let environment = project.sources().environment;
    let found = match config::compared(created, sources, &environment, trusted) {
        Ok(found) => found,
        Err(error) => {
            let error = match error {
                NotCompared::Unreadable(error) => format!("{file}: {error}"),
                NotCompared::NotToml(found) => mistakes::plain(&found),
            };
            complain(&format!("note: {error}: the run resumes with the recorded configuration"));
            return;
        }
    };
    if found.has_unseen {
        complain(
            "note: files outside of the directory were not compared with the record, because this \
             machine does not trust them",
        );
    }
    if found.changes.is_empty() {
        return;
    }
    complain(&format!(
        "note: {file} has changed since the run began; the run resumes with the recorded \
         configuration:"
    ));
    for change in found.changes.iter().take(LISTED) {
        complain(&format!("  {change}"));
    }
    if found.changes.len() > LISTED {
        complain(&format!("  and {} more", found.changes.len() - LISTED));
    }
}
