//! Where runs are, and which one is meant.

use std::path::{Path, PathBuf};

use globset::Glob;

use super::{complain, refusal};
use crate::config::Sources;
use crate::event::{Event, SharedRecord};
use crate::exit::Exit;
use crate::id::{AgentId, RunId};
use crate::journal::file::RunDir;
use crate::journal::reader::agent_records;
use crate::journal::{JournalError, snapshot, walk};
use crate::report::next_request::{NextRequest, next_request};
use crate::run_state::{AgentStatus, RunState};

/// The configuration file and the folder of runs that the arguments mean.
#[derive(Clone, Debug)]
pub(super) struct Project {
    pub file: PathBuf,
    /// As given by `--state-dir` or CALLSHEET_STATE_DIR.
    pub state_dir: Option<PathBuf>,
}

/// A run, or a part of one, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    Run,
    Task(String),
    Agent(String),
}

impl Project {
    pub(super) fn new(file: PathBuf, state_dir: Option<PathBuf>) -> Self {
        Self { file, state_dir }
    }

    /// Where the configuration comes from: the file, the environment and the flags.
    pub(super) fn sources(&self) -> Sources {
        let mut sources = Sources::new(&self.file).with_process_environment();
        let folder = self.state_dir.as_ref().map(|folder| {
            // A flag is relative to where the user stands, a key to the configuration.
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
            folder.to_string_lossy().into_owned()
        });
        sources.overrides.extend(folder.map(|dir| ("state.dir".to_owned(), dir.into())));
        sources
    }

    /// The flags, with a space before each, by which another verb finds the same runs.
    pub(super) fn flags(&self) -> String {
        let mut flags = String::new();
        if self.file != Path::new("agents.toml") {
            flags.push_str(&format!(" -f {}", quoted(&self.file)));
        }
        if let Some(folder) = &self.state_dir {
            flags.push_str(&format!(" --state-dir {}", quoted(folder)));
        }
        flags
    }

    /// How a run that was stopped goes on.
    pub(super) fn resume_command(&self, run: &str) -> String {
        format!("callsheet resume{} {run}", self.flags())
    }

    /// The folder of the run directories.
    pub(super) fn runs_folder(&self) -> PathBuf {
        match &self.state_dir {
            Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
            None => crate::config::state_dir(&self.sources()),
        }
    }

    /// All run directories, the newest first: their ids sort by time.
    pub(super) fn runs(&self) -> Vec<RunDir> {
        let entries = std::fs::read_dir(self.runs_folder());
        let names = entries.into_iter().flatten().flatten();
        let mut paths: Vec<_> = names
            .filter(|entry| RunId::parse(&entry.file_name().to_string_lossy()).is_some())
            .map(|entry| entry.path())
            .collect();
        paths.sort_unstable_by(|a, b| b.cmp(a));
        paths.into_iter().map(RunDir::at).collect()
    }

    /// The run of that id, of an id that begins so, or the newest of the workflow of that name;
    /// without a name the newest of all that have begun.
    pub(super) fn run(&self, name: Option<&str>) -> Result<RunDir, Exit> {
        let runs = self.runs();
        let Some(name) = name else {
            return runs.into_iter().find(walk::has_begun).ok_or_else(|| {
                complain(&format!("error: there is no run in {}", self.runs_folder().display()));
                Exit::Failed
            });
        };
        if name.is_empty() {
            complain("error: an empty name names no run: leave it out for the newest one");
            return Err(Exit::Usage);
        }
        let lower = name.to_lowercase();
        if let Some(run) = runs.iter().find(|run| refusal::name(run) == lower) {
            return Ok(run.clone());
        }
        let workflow = runs.iter().find(|run| workflow_of(run).as_deref() == Some(name));
        if let Some(run) = workflow {
            return Ok(run.clone());
        }
        let begins: Vec<_> =
            runs.iter().filter(|run| refusal::name(run).starts_with(&lower)).collect();
        match begins.as_slice() {
            [run] => Ok((*run).clone()),
            [] => {
                complain(&format!(
                    "error: there is no run `{name}` in {}",
                    self.runs_folder().display()
                ));
                Err(Exit::Failed)
            }
            several => {
                let ids: Vec<_> = several.iter().map(|run| refusal::name(run)).collect();
                complain(&format!(
                    "error: `{name}` is the beginning of several runs: {}",
                    ids.join(", ")
                ));
                Err(Exit::Failed)
            }
        }
    }

    /// Reads RUN, RUN/TASK or RUN/@AGENT; RUN may be left out.
    pub(super) fn part(&self, text: Option<&str>) -> Result<(RunDir, Selector), Exit> {
        let Some(text) = text else { return Ok((self.run(None)?, Selector::Run)) };
        // `@survey/reader-1`: an agent of the newest run.
        if let Some(agent) = text.strip_prefix('@') {
            return Ok((self.run(None)?, Selector::Agent(agent.to_owned())));
        }
        let (run, part) = match text.split_once('/') {
            None => (Some(text), Selector::Run),
            Some((run, rest)) => {
                let part = match rest.strip_prefix('@') {
                    Some(agent) => Selector::Agent(agent.to_owned()),
                    None => Selector::Task(rest.to_owned()),
                };
                // `/survey`: a task of the newest run.
                (Some(run).filter(|run| !run.is_empty()), part)
            }
        };
        Ok((self.run(run)?, part))
    }

    /// How a run stands. One that is just beginning has no records.
    pub(super) fn state(&self, run: &RunDir) -> Result<RunState, Exit> {
        self.read(run, snapshot::fold(run, |_| {}))
    }

    /// As [`Project::state`]; `each` sees every record.
    pub(super) fn fold(
        &self,
        run: &RunDir,
        each: impl FnMut(&SharedRecord),
    ) -> Result<RunState, Exit> {
        self.read(run, walk::fold(run, None, each))
    }

    fn read(
        &self,
        run: &RunDir,
        (state, read): (RunState, Result<(), JournalError>),
    ) -> Result<RunState, Exit> {
        match read {
            Err(JournalError::NeverBegan) if run.is_live() => Ok(state),
            Err(error) => Err(refusal::refused(&self.flags(), Some(run), &error)),
            Ok(()) => Ok(state),
        }
    }

    /// What the next request of an agent would hold.
    pub(super) fn view(&self, run: &RunDir, id: &AgentId) -> Result<NextRequest, Exit> {
        let records = agent_records(&run.journal(), id)
            .map_err(|error| refusal::refused(&self.flags(), Some(run), &error))?;
        let next = next_request(&records).map_err(|error| {
            complain(&format!("error: {}: {error}", run.journal().display()));
            Exit::Disk
        })?;
        next.ok_or_else(|| {
            complain(&format!("error: agent `{id}` runs a command: it has no context"));
            Exit::Failed
        })
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

fn workflow_of(run: &RunDir) -> Option<String> {
    match &walk::first(run).ok()?.first()?.event {
        Event::RunCreated(created) => Some(created.workflow.clone()),
        _ => None,
    }
}

/// The agent of that name, or those that it fits as a glob.
pub(super) fn agents<'a>(
    state: &'a RunState,
    name: &str,
) -> Result<Vec<(&'a AgentId, &'a AgentStatus)>, Exit> {
    if let Some(found) = state.agents().get_key_value(&AgentId::from_text(name)) {
        return Ok(vec![found]);
    }
    let glob = Glob::new(name).ok().map(|glob| glob.compile_matcher());
    let fits = |id: &AgentId| glob.as_ref().is_some_and(|glob| glob.is_match(id.as_str()));
    let found: Vec<_> = state.agents().iter().filter(|(id, _)| fits(id)).collect();
    if found.is_empty() {
        complain(&format!("error: the run has no agent `{name}`"));
        return Err(Exit::Failed);
    }
    Ok(found)
}
