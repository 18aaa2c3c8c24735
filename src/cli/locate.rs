//! Finds the run, task or agent that the command line names, and reads its state from the journal.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::short_id::ShortIds;
use super::times::Times;
use super::{complain, refusal};
use crate::config::{self, Outside, Sources, suggest};
use crate::event::{Event, SharedRecord};
use crate::exit::Exit;
use crate::glob::{self, Wildcards};
use crate::id::{AgentId, Name, RunId};
use crate::journal::driving::Drivable;
use crate::journal::local::LocalArchive;
use crate::journal::source::{Archive, RecordedRun};
use crate::journal::{JournalError, results};
use crate::report::next_request::{NextRequest, next_request};
use crate::report::{self, RemovedRun};
use crate::run::prune::{self, Found};
use crate::run_state::{AgentStatus, RunState};
use crate::show::names::Names;
use crate::spec::keeping::Keeping;

/// Returns the name of the configuration file where none is given.
pub(super) fn default_file() -> PathBuf {
    PathBuf::from(DEFAULT_FILE)
}

/// The name of the configuration file. It is searched for in the working directory and in the
/// folders above it.
pub(super) const DEFAULT_FILE: &str = "agents.toml";

/// The configuration file and the folder of runs that the arguments mean.
#[derive(Clone, Debug)]
pub(super) struct Project {
    pub file: PathBuf,
    /// True if no file was named and the file was found in a folder above.
    is_above: bool,
    /// The folder of the run directories that `--state-dir` gives, as typed.
    pub state_dir: Option<PathBuf>,
    /// The time zone in which times are shown.
    pub times: Times,
}

/// A run, or a part of one, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    Run,
    Task(String),
    Agent(String),
}

impl Project {
    pub(super) fn new(file: PathBuf, state_dir: Option<PathBuf>, times: Times) -> Self {
        let above = (file == Path::new(DEFAULT_FILE) && !file.exists()).then(found_above).flatten();
        Self { is_above: above.is_some(), file: above.unwrap_or(file), state_dir, times }
    }

    /// Says which file is used if it was found in a folder above.
    pub(super) fn note_file(&self) {
        if self.is_above {
            complain(&format!("note: using {}", self.file.display()));
        }
    }

    /// Says where the runs are if the file chose a folder outside its own.
    pub(super) fn note_records(&self) {
        if let Some(folder) = self.lent_folder() {
            complain(&format!(
                "note: the runs are those in {}, as `state.dir` of {} says",
                folder.display(),
                self.file.display()
            ));
        }
    }

    /// Returns the folder of the run directories if the file chose it and it lies outside the file's own folder.
    pub(super) fn lent_folder(&self) -> Option<PathBuf> {
        config::records_outside(&self.sources())
    }

    /// Returns the sources of the configuration: the file, the environment and the flags. Files
    /// outside the directory are left out: `trust::load` reads them.
    pub(super) fn sources(&self) -> Sources {
        let mut sources = Sources::new(&self.file).with_process_environment();
        sources.outside = Outside::LeaveOut;
        let folder = self.state_dir.as_ref().map(|folder| {
            // The flag is relative to the working directory, but the key `state.dir` to the
            // configuration file: so the path becomes absolute here.
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            folder.to_string_lossy().into_owned()
        });
        sources.overrides.extend(folder.map(|run| ("state.dir".to_owned(), run.into())));
        sources
    }

    /// Returns the file, or the directory of a file of the usual name, for a command that names it.
    pub(super) fn quoted_file(&self) -> String {
        let has_usual_name = self.file.file_name().is_some_and(|name| name == DEFAULT_FILE);
        let folder = self.file.parent().filter(|_| has_usual_name);
        match folder {
            Some(folder) if folder.as_os_str().is_empty() => ".".to_owned(),
            Some(folder) => quoted(folder),
            None => quoted(&self.file),
        }
    }

    /// Returns the flags by which another verb finds the same runs, with a space before each.
    pub(super) fn flags(&self) -> String {
        let mut flags = String::new();
        if !self.is_above && self.file != Path::new(DEFAULT_FILE) {
            flags.push_str(&format!(" -f {}", quoted(&self.file)));
        }
        if let Some(folder) = &self.state_dir {
            flags.push_str(&format!(" --state-dir {}", quoted(folder)));
        }
        flags
    }

    /// Returns the id of a run as commands for people name it: the part that no other run here has.
    pub(super) fn short(&self, run: &RecordedRun) -> String {
        ShortIds::to_type(self.runs().iter().map(|run| run.name())).of(&run.name())
    }

    /// Returns the command that resumes a run.
    pub(super) fn resume_command(&self, run: &str) -> String {
        format!("callsheet resume{} {run}", self.flags())
    }

    /// Returns the folder of the run directories.
    pub(super) fn runs_folder(&self) -> PathBuf {
        match &self.state_dir {
            Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
            None => config::state_dir(&self.sources()),
        }
    }

    /// Returns the place of the runs.
    fn archive(&self) -> LocalArchive {
        match &self.state_dir {
            Some(_) => LocalArchive::named(self.runs_folder()),
            None => LocalArchive::of(self.runs_folder()),
        }
    }

    /// Returns all runs, the newest first; none if they cannot be listed.
    pub(super) fn runs(&self) -> Vec<RecordedRun> {
        self.archive().runs().unwrap_or_default()
    }

    /// Returns the run with this id, which need not be there.
    pub(super) fn run_with(&self, id: RunId) -> RecordedRun {
        self.archive().run(id)
    }

    /// Returns why the runs cannot be listed, if their folder is there and cannot be read: then
    /// nobody knows that there is no run.
    pub(super) fn unlisted(&self) -> Option<String> {
        let error = self.archive().runs().err()?;
        Some(format!("the runs in {} cannot be listed: {error}", self.runs_folder().display()))
    }

    /// Returns all runs, the newest first, or prints why they cannot be listed.
    pub(super) fn listed(&self) -> Result<Vec<RecordedRun>, Exit> {
        match self.unlisted() {
            Some(reason) => {
                complain(&format!("error: {reason}"));
                Err(Exit::Disk)
            }
            None => Ok(self.runs()),
        }
    }

    /// Returns the runs that a rule lets go, or prints why the runs cannot be listed.
    pub(super) fn old_runs(&self, rule: Keeping) -> Result<Found, Exit> {
        prune::find(&self.archive(), rule, None).map_err(|error| {
            complain(&format!("error: the runs cannot be listed: {error}"));
            Exit::Disk
        })
    }

    /// Removes what is left of runs whose removal was cut short; returns why it cannot.
    pub(super) fn sweep(&self) -> Option<std::io::Error> {
        self.archive().sweep().err()
    }

    /// Returns what was kept of the runs that were removed, except of those that are still there.
    pub(super) fn removed(&self, runs: &[RecordedRun]) -> Result<Vec<RemovedRun>, Exit> {
        let lines = self.archive().removed().map_err(|error| {
            complain(&format!("error: what removed runs cost cannot be read: {error}"));
            Exit::Disk
        })?;
        let is_there = |removed: &RemovedRun| {
            let run = runs.iter().find(|run| run.name() == removed.run.to_string());
            run.is_some_and(|run| began_ms(run) == Some(removed.started_ms()))
        };
        let removed = report::removed_runs(&lines).into_iter();
        Ok(removed.filter(|removed| !is_there(removed)).collect())
    }

    /// Finds a run by its id, by the name of its workflow (its newest run), or by the beginning of
    /// its id. Without a name, finds the newest run that has begun.
    pub(super) fn run(&self, name: Option<&str>) -> Result<RecordedRun, Exit> {
        self.find(name).map_err(|(reason, exit)| {
            complain(&format!("error: {reason}"));
            exit
        })
    }

    /// Does the same, but returns the reason of a failure instead of printing it.
    pub(super) fn find(&self, name: Option<&str>) -> Result<RecordedRun, (String, Exit)> {
        let runs = self.runs();
        if let Some(reason) = self.unlisted().filter(|_| runs.is_empty()) {
            return Err((reason, Exit::Disk));
        }
        let Some(name) = name else {
            return runs.into_iter().find(|run| run.has_begun()).ok_or_else(|| {
                (format!("there is no run in {}", self.runs_folder().display()), Exit::Failed)
            });
        };
        if name.is_empty() {
            let reason = "the name of the run is empty: leave it out for the newest run";
            return Err((reason.to_owned(), Exit::Usage));
        }
        let lower = name.to_lowercase();
        if let Some(run) = runs.iter().find(|run| run.name() == lower) {
            return Ok(run.clone());
        }
        let workflow = runs.iter().find(|run| workflow_of(run).as_deref() == Some(name));
        if let Some(run) = workflow {
            return Ok(run.clone());
        }
        // Any part that only one id has: people type a beginning, and commands print an end, which another id may
        // hold further in front.
        let ends: Vec<_> = runs.iter().filter(|run| run.name().ends_with(&lower)).collect();
        let found = match ends.len() {
            1 => ends,
            _ => runs.iter().filter(|run| run.name().contains(&lower)).collect(),
        };
        match found.as_slice() {
            [run] => Ok((*run).clone()),
            [] => {
                let removed = report::removed_runs(&self.archive().removed().unwrap_or_default());
                let is_it = |run: &&RemovedRun| run.run.to_string().contains(&lower);
                let reason = match removed.iter().find(is_it) {
                    Some(run) => format!("run {} was removed; `cost --all` counts it", run.run),
                    None => self.no_run(name, &runs),
                };
                Err((reason, Exit::Failed))
            }
            several => {
                let ids: Vec<_> = several.iter().map(|run| run.name()).collect();
                let reason = format!("`{name}` matches several runs: {}", ids.join(", "));
                Err((reason, Exit::Failed))
            }
        }
    }

    /// Says that there is no run of this name, and whether the newest one has a task or an agent of it.
    fn no_run(&self, name: &str, runs: &[RecordedRun]) -> String {
        let newest = runs.iter().find(|run| run.has_begun());
        let part = newest.and_then(|run| {
            let (state, _) = run.state(|_| {});
            let is_task = Name::of_record(name).is_ok_and(|task| state.task(&task).is_some());
            let is_agent = state.agents().contains_key(&AgentId::from_text(name));
            let run = self.short(run);
            match (is_task, is_agent) {
                (true, _) => {
                    Some(format!("its newest run has a task of this name: `{run}/{name}`"))
                }
                (_, true) => Some(format!("its newest run has such an agent: `{run}/@{name}`")),
                _ => None,
            }
        });
        let help = part.unwrap_or_else(|| "`callsheet ps -a` lists the runs".to_owned());
        format!("there is no run `{name}` in {}; {help}", self.runs_folder().display())
    }

    /// Reads RUN, RUN/TASK or RUN/@AGENT. If RUN is left out, the newest run is meant.
    pub(super) fn part(&self, text: Option<&str>) -> Result<(RecordedRun, Selector), Exit> {
        let Some(text) = text else { return Ok((self.run(None)?, Selector::Run)) };
        // `@survey/reader-1`: an agent of the newest run.
        if let Some(agent) = text.strip_prefix('@') {
            let run = self.run(None)?;
            let agent = recorded(&run, agent);
            return Ok((run, Selector::Agent(agent)));
        }
        let Some((run, rest)) = text.split_once('/') else {
            return Ok((self.run(Some(text))?, Selector::Run));
        };
        // `/survey`: a task of the newest run.
        let run = self.run(Some(run).filter(|run| !run.is_empty()))?;
        let part = match rest.strip_prefix('@') {
            Some(agent) => Selector::Agent(recorded(&run, agent)),
            None => Selector::Task(recorded(&run, rest)),
        };
        Ok((run, part))
    }

    /// Does the same for what is only shown: a name that no run has may be that of a task of the newest run.
    pub(super) fn shown(&self, text: Option<&str>) -> Result<(RecordedRun, Selector), Exit> {
        // The key of an instance may hold any character.
        let is_whole = |text: &&str| !text.split('[').next().unwrap_or(text).contains(['/', '@']);
        if let Some(name) = text.filter(is_whole)
            && let Err((_, Exit::Failed)) = self.find(Some(name))
            && let Ok(newest) = self.find(None)
            && let Ok(task) = Name::of_record(&recorded(&newest, name))
            && newest.state(|_| {}).0.task(&task).is_some()
        {
            return Ok((newest, Selector::Task(task.to_string())));
        }
        self.part(text)
    }

    /// Reads the state of a run. It is empty while the run's first records are being written.
    pub(super) fn state(&self, run: &RecordedRun) -> Result<RunState, Exit> {
        self.read(run, run.state(|_| {}))
    }

    /// Reads the state as [`Project::state`] does, but without a snapshot, so that `each` sees
    /// every record.
    pub(super) fn fold(
        &self,
        run: &RecordedRun,
        each: impl FnMut(&SharedRecord),
    ) -> Result<RunState, Exit> {
        self.read(run, run.fold(each))
    }

    fn read(
        &self,
        run: &RecordedRun,
        (mut state, read): (RunState, Result<(), JournalError>),
    ) -> Result<RunState, Exit> {
        let live = run.is_live();
        state.lose_requests_unless(live);
        match read {
            Err(JournalError::NeverBegan) if live => Ok(state),
            Err(error) => Err(refusal::refused(&self.flags(), Some(run), &error)),
            Ok(()) => Ok(state),
        }
    }

    /// Rebuilds what the next request of an agent would contain.
    pub(super) fn view(&self, run: &RecordedRun, id: &AgentId) -> Result<NextRequest, Exit> {
        let refused = |error: JournalError| refusal::refused(&self.flags(), Some(run), &error);
        let mut records = run.agent_records(id).map_err(refused)?;
        if let Some(first) = records.first_mut() {
            let whole = results::whole(run, first);
            *first = whole.map_err(|error| refused(error.into()))?.into_owned();
        }
        let next = next_request(&records).map_err(|error| {
            complain(&format!("error: {}: {error}", run.records_place().display()));
            Exit::Disk
        })?;
        next.ok_or_else(|| {
            complain(&format!("error: agent `{id}` runs a command: it has no context"));
            Exit::Failed
        })
    }
}

/// Returns the time at which a run was created.
pub(super) fn began_ms(run: &RecordedRun) -> Option<i64> {
    run.first().ok()?.first().map(|record| record.ts_ms)
}

/// Returns the recorded name of a task or an agent that was typed, perhaps with the key of an instance.
fn recorded(run: &RecordedRun, typed: &str) -> String {
    match typed.contains('[') {
        true => Names::of(&run.state(|_| {}).0).recorded(typed).into_owned(),
        false => typed.to_owned(),
    }
}

/// Searches for the configuration file in the folders above the working directory.
fn found_above() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let above = here.ancestors().skip(1).map(|folder| folder.join(DEFAULT_FILE));
    let found = above.into_iter().find(|file| file.is_file())?;
    match whose(&found) {
        None => Some(found),
        Some(reason) => {
            complain(&format!(
                "note: {} is not used: {reason}; `-f` names it all the same",
                found.display()
            ));
            None
        }
    }
}

/// Returns why a file is not the person's own alone: somebody else of the machine could have put it there, or change
/// what lies beside it. The folder in which it lies is the workspace. A file that nobody named is not used then.
pub(super) fn whose(file: &Path) -> Option<String> {
    let me = rustix::process::geteuid().as_raw();
    let is_mine = |owner: u32| owner == me || owner == 0;
    let folder = file.parent()?;
    for path in [file, folder] {
        let Ok(meta) = path.metadata() else { return Some("it cannot be looked at".to_owned()) };
        if !is_mine(meta.uid()) {
            return Some(format!("{} belongs to user {}", path.display(), meta.uid()));
        }
        if meta.mode() & 0o002 != 0 {
            return Some(format!("every user can write {}", path.display()));
        }
        // Many systems give each user a group of their own.
        if meta.mode() & 0o020 != 0 && meta.gid() != rustix::process::getegid().as_raw() {
            return Some(format!("the group {} can write {}", meta.gid(), path.display()));
        }
    }
    None
}

/// Returns what drives a run, for what can be done only where it is driven from.
pub(super) fn drivable(run: &RecordedRun) -> Result<&dyn Drivable, Exit> {
    run.drivable().ok_or_else(|| {
        let (id, place) = (run.name(), run.place());
        complain(&format!(
            "error: run {id} is kept in {}: it is not driven from here",
            place.display()
        ));
        Exit::Usage
    })
}

/// Quotes a path for a shell, if it needs quotes.
pub(super) fn quoted(path: &Path) -> String {
    word(&path.display().to_string())
}

/// Quotes a word for a shell, if it needs quotes.
pub(super) fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%~".contains(c);
    match !text.is_empty() && !text.starts_with('~') && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Reads the name of a run's workflow from the first record of its journal.
pub(super) fn workflow_of(run: &RecordedRun) -> Option<String> {
    match &run.first().ok()?.first()?.event {
        Event::RunCreated(created) => Some(created.workflow.clone()),
        _ => None,
    }
}

/// The most names among which a miss is compared and that a message lists.
pub(super) const SUGGESTED: usize = 30;

/// Returns the agent with this name, or else the only child whose name ends so, or else all agents that match the name as a glob.
pub(super) fn agents<'a>(
    state: &'a RunState,
    name: &str,
) -> Result<Vec<(&'a AgentId, &'a AgentStatus)>, Exit> {
    if let Some(found) = state.agents().get_key_value(&AgentId::from_text(name)) {
        return Ok(vec![found]);
    }
    // `reader-1` is a child, named as `ps --tree` prints it.
    let below = format!("/{name}");
    let is_child = |id: &AgentId| id.as_str().ends_with(&below);
    let children: Vec<_> = state.agents().iter().filter(|(id, _)| is_child(id)).collect();
    match children.as_slice() {
        [] => {}
        [one] => return Ok(vec![*one]),
        several => {
            let names: Vec<_> = several.iter().map(|(id, _)| format!("@{id}")).collect();
            complain(&format!("error: `@{name}` matches several agents: {}", names.join(", ")));
            return Err(Exit::Failed);
        }
    }
    let glob = glob::compile(name, Wildcards::Any).ok();
    let fits = |id: &AgentId| glob.as_ref().is_some_and(|glob| glob.is_match(id.as_str()));
    let found: Vec<_> = state.agents().iter().filter(|(id, _)| fits(id)).collect();
    if found.is_empty() {
        complain(&format!("error: the run has no agent `{name}`"));
        let names = Names::of(state);
        let known = state.agents().keys().take(SUGGESTED).map(|id| names.shown(id.as_str()));
        let known: Vec<_> = known.collect();
        match suggest(name, known.iter().map(AsRef::as_ref)) {
            help if help.is_empty() => complain("help: no agent has begun"),
            help => complain(&format!("help: {help}")),
        }
        return Err(Exit::Failed);
    }
    Ok(found)
}
