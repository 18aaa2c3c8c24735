//! The evidence of a run: what stands behind each task that is called done, folded from the
//! journal's records when somebody asks.
//!
//! Pure but for [`of_run`], which reads the journal. Nothing is guessed: a number that the records
//! do not give is absent. Of the files that commands change only those are known that other programs run.

mod changes;
mod printed;
mod test_commands;
mod words;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use self::changes::{Change, Contents};
use super::for_others::{self, ForOthers};
use crate::event::{Event, Record};
use crate::id::{AgentId, CallKey, Name};
use crate::journal::JournalError;
use crate::journal::source::{Cursor, Label, RunSource};
use crate::message::Json;
use crate::output::Output;
use crate::run_state::{Verdict, verdict_of};
use crate::show::names::Names;
use crate::tool::bash::verdict::{self, Found};
use crate::turn::{
    FileChange, Outcome, Program, ToolFinished, ToolIntended, ToolStarted, ToolStatus,
};

/// The most characters of a command line that are kept: more than people write.
const COMMAND: usize = 1_000;

/// The evidence of a run, by task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    tasks: HashMap<Name, TaskEvidence>,
    for_others: Vec<ForOthers>,
    for_others_incomplete: bool,
}

/// The facts behind one task, over all its attempts and all its agents, children included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TaskEvidence {
    /// The files that its agents changed by their own calls, by path.
    pub files: Vec<FileEvidence>,
    /// Number of commands that its agents ran: they may have changed files too.
    pub commands: u64,
    /// Number of commands that ran tests.
    pub test_runs: u64,
    /// The last command that ran tests.
    pub last_test: Option<TestRun>,
    /// The checks of its answer, in the order of their ends.
    pub checks: Vec<CheckEvidence>,
    /// The outputs that were stored or written.
    pub artifacts: Vec<Artifact>,
    /// Facts that speak against what was done.
    pub warnings: Vec<Warning>,
    /// The last lines of its own command, if that did not end well.
    #[serde(skip)]
    last_lines: Option<String>,
    #[serde(skip)]
    last_edit: u64,
    #[serde(skip)]
    last_test_began: u64,
}

/// The changes of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileEvidence {
    /// The path, as the calls name it.
    pub path: String,
    /// Number of lines that the calls added, as their arguments tell; absent if one does not tell.
    pub added: Option<u64>,
    /// Number of lines that the calls removed; absent if one of them does not tell.
    pub removed: Option<u64>,
    /// Number of calls that changed it.
    pub calls: u64,
    /// True if the first of them made the file.
    pub created: bool,
    /// blake3 hash of the content after the last change, if it is recorded.
    pub hash: Option<String>,
    /// Number of calls of which nobody knows if they changed it.
    pub unknown: u64,
}

/// A command that ran tests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestRun {
    /// The command that is known as a test.
    pub command: String,
    /// The whole command line, at most 1,000 characters of it.
    pub line: String,
    /// The agent that ran it.
    pub agent: AgentId,
    /// The exit code of the command line, if it had one.
    pub exit_code: Option<i32>,
    /// True if the tests passed, false if they did not; absent if the exit code does not tell.
    pub passed: Option<bool>,
    /// True if it began after the task's last change of a file had ended; absent if the task
    /// changed none.
    pub after_last_edit: Option<bool>,
    /// Number of the record of its end.
    pub seq: u64,
    /// Time of its end, in milliseconds since the Unix epoch.
    #[serde(skip)]
    pub ts_ms: i64,
}

/// A check of a task's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckEvidence {
    /// The agent or command that judged.
    pub agent: AgentId,
    /// The same by the name that people know: an instance of a fan-out by its key.
    #[serde(skip)]
    pub shown: String,
    /// True if the answer passed; absent if the check did not come to an end.
    pub passed: Option<bool>,
    /// Its reason, if it gave one.
    pub reason: Option<String>,
}

/// An output that is kept under its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Artifact {
    /// `output` of the task, or `partial` output of an agent that failed.
    pub kind: &'static str,
    /// The agent, for a partial output.
    pub agent: Option<AgentId>,
    /// blake3 hash of the whole text, in hexadecimal.
    pub hash: String,
    /// Size in bytes.
    pub bytes: u64,
    /// True if `show --result HASH` prints it; otherwise the record holds the whole text.
    pub stored: bool,
}

/// A fact that speaks against what was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// `stale_test`, `test_failed`, `check_failed` or `change_unknown`.
    pub code: &'static str,
    /// The same in words.
    pub text: String,
}

impl Evidence {
    /// Returns the evidence of a task; `None` if there is nothing to say.
    #[must_use]
    pub fn of(&self, task: &Name) -> Option<&TaskEvidence> {
        self.tasks.get(task).filter(|evidence| !evidence.is_empty())
    }

    /// Returns the files that other programs run and that the run changed, in the order of the records.
    #[must_use]
    pub fn for_others(&self) -> &[ForOthers] {
        &self.for_others
    }

    /// Returns true if the run may have changed more of them: the workspace held more than was looked at.
    #[must_use]
    pub fn is_for_others_incomplete(&self) -> bool {
        self.for_others_incomplete
    }
}

impl TaskEvidence {
    /// Returns true if there is nothing to say about the task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { files, commands, test_runs, checks, artifacts, .. } = self;
        let counts = *commands == 0 && *test_runs == 0;
        counts && files.is_empty() && checks.is_empty() && artifacts.is_empty()
    }

    /// Finds the facts that speak against the task, once all records are folded. `tested` is the
    /// number of the record with which the last test of the whole run began; 0 if there was none.
    fn judge(&mut self, tested: u64) {
        let edited = self.last_edit > 0;
        if let Some(test) = &mut self.last_test {
            test.after_last_edit = edited.then_some(self.last_test_began > self.last_edit);
        }
        let mut warn = |code, text: String| self.warnings.push(Warning { code, text });
        // A later task may have run the tests.
        if edited && tested > 0 && tested < self.last_edit {
            warn("stale_test", "the last test is older than the last edit".to_owned());
        }
        if let Some(test) = self.last_test.as_ref().filter(|test| test.passed == Some(false)) {
            let code = test.exit_code.map(|code| format!(" (exit code {code})"));
            warn("test_failed", format!("the last test failed{}", code.unwrap_or_default()));
        }
        let failed = self.checks.iter().rfind(|check| check.passed.is_some());
        if let Some(check) = failed.filter(|check| check.passed == Some(false)) {
            warn("check_failed", format!("the check {} failed", check.shown));
        }
        let unknown = self.files.iter().filter(|file| file.unknown > 0).count();
        if unknown > 0 {
            warn("change_unknown", format!("changes of unknown outcome in {unknown} files"));
        }
    }
}

/// Folds the evidence of a run from its records.
#[derive(Debug, Default)]
pub struct EvidenceFold {
    tasks: HashMap<Name, Gathered>,
    calls: HashMap<CallKey, OpenCall>,
    contents: Contents,
    for_others: Vec<ForOthers>,
    for_others_incomplete: bool,
    /// The checks at work; true for an agent, false for a command.
    checks: HashMap<AgentId, bool>,
    /// Number of the record with which the last test of the run began.
    tested: u64,
    names: Names,
}

#[derive(Debug, Default)]
struct Gathered {
    evidence: TaskEvidence,
    files: BTreeMap<String, FileEvidence>,
}

/// A call that was announced and has not ended.
#[derive(Debug)]
struct OpenCall {
    /// Number of the record of its beginning.
    began: u64,
    input: Json,
    change: Option<FileChange>,
}

impl EvidenceFold {
    /// The types of the events that the fold reads; others need not be given to it.
    pub const TYPES: [&str; 9] = [
        "hook.finished",
        "task.started",
        "agent.spawned",
        "agent.ended",
        "tool.intended",
        "tool.started",
        "tool.finished",
        "task.completed",
        "task.reused",
    ];

    /// Folds a record. Takes time in proportion to the record.
    pub fn apply(&mut self, record: &Record) {
        self.names.apply(record);
        self.for_others.extend(ForOthers::of(record));
        self.for_others_incomplete |= for_others::is_incomplete(record);
        let Some(task) = &record.task else { return };
        match (&record.event, &record.agent) {
            (Event::TaskCompleted(completed), _) => self.output(task, &completed.output),
            (Event::TaskReused(reused), _) => self.output(task, &reused.output),
            (Event::AgentSpawned(spawned), Some(id)) if spawned.check.is_some() => {
                let is_agent = matches!(spawned.program, Program::Model { .. });
                self.checks.insert(id.clone(), is_agent);
            }
            (Event::AgentSpawned(_), Some(id)) => self.forget_lines(task, id),
            (Event::AgentEnded(ended), Some(id)) => self.ended(task, id, &ended.outcome),
            (Event::ToolIntended(intended), _) => self.intended(record.seq, intended),
            (Event::ToolStarted(started), _) => self.started(record.seq, started),
            (Event::ToolFinished(finished), Some(id)) => self.finished(record, task, id, finished),
            _ => {}
        }
    }

    /// Returns the evidence, once all records are folded.
    #[must_use]
    pub fn finish(self) -> Evidence {
        let tested = self.tested;
        let mut for_others = self.for_others;
        for change in &mut for_others {
            let is_it = |file: &FileEvidence| {
                file.calls > 0 && file.path.trim_start_matches("./") == change.path
            };
            change.by_shown =
                change.by.iter().map(|by| self.names.shown(by).into_owned()).collect();
            change.by_a_call = self.tasks.values().any(|task| task.files.values().any(is_it));
        }
        let judged = |(name, Gathered { mut evidence, files })| {
            evidence.files = files.into_values().collect();
            for check in &mut evidence.checks {
                check.shown = self.names.shown(check.agent.as_str()).into_owned();
            }
            evidence.judge(tested);
            (name, evidence)
        };
        let tasks = self.tasks.into_iter().map(judged).collect();
        Evidence { tasks, for_others, for_others_incomplete: self.for_others_incomplete }
    }

    fn of(&mut self, task: &Name) -> &mut Gathered {
        // Not by `entry`: most records find the task, and need no copy of its name.
        if !self.tasks.contains_key(task) {
            self.tasks.insert(task.clone(), Gathered::default());
        }
        self.tasks.get_mut(task).expect("it was inserted")
    }

    fn output(&mut self, task: &Name, output: &Output) {
        let artifacts = &mut self.of(task).evidence.artifacts;
        // A task that began again has a new one.
        artifacts.retain(|artifact| artifact.kind != "output");
        artifacts.push(artifact("output", None, output));
    }

    fn ended(&mut self, task: &Name, id: &AgentId, outcome: &Outcome) {
        if let Some(is_agent) = self.checks.get(id).copied() {
            let (passed, reason) = match verdict_of(outcome, is_agent) {
                Verdict::Passed => (Some(true), None),
                Verdict::Failed(failure) => (Some(false), Some(failure.message)),
                Verdict::Unclear(failure) | Verdict::Undecided(failure) => {
                    (None, Some(failure.message))
                }
                Verdict::Cancelled(reason) => (None, Some(reason)),
            };
            let check = CheckEvidence { agent: id.clone(), shown: String::new(), passed, reason };
            let checks = &mut self.of(task).evidence.checks;
            // One that gave no verdict is asked again, and its second answer counts.
            checks.retain(|earlier| earlier.agent != *id);
            return checks.push(check);
        }
        if let Outcome::Failed { partial: Some(output), .. } = outcome
            && output.stored.is_some()
        {
            let artifact = artifact("partial", Some(id), output);
            self.of(task).evidence.artifacts.push(artifact);
        }
    }

    fn intended(&mut self, seq: u64, intended: &ToolIntended) {
        if Tool::of(&intended.name).is_some() {
            let call = OpenCall { began: seq, input: intended.input.clone(), change: None };
            self.calls.insert(intended.key.clone(), call);
        }
    }

    fn started(&mut self, seq: u64, started: &ToolStarted) {
        if let Some(call) = self.calls.get_mut(&started.key) {
            call.began = seq;
            call.change.clone_from(&started.change);
        }
    }

    fn finished(&mut self, record: &Record, task: &Name, id: &AgentId, finished: &ToolFinished) {
        let (Some(call), Some(tool)) = (self.calls.remove(&finished.key), Tool::of(&finished.name))
        else {
            return;
        };
        if finished.denied {
            return;
        }
        match tool {
            Tool::Edit if finished.status == ToolStatus::Error => {}
            Tool::Edit => {
                let change = changes::read(&finished.name, &call.input, call.change.as_ref());
                if let Some(change) = change {
                    let is_known = finished.status == ToolStatus::Ok;
                    let counts =
                        is_known.then(|| self.contents.count(&change, call.change.as_ref()));
                    self.changed(record.seq, task, &change, call.change.as_ref(), counts);
                }
            }
            Tool::Command => self.commanded(record, task, id, &call, finished),
        }
    }

    /// Notes a change of a file; `counts` is `None` if nobody knows if it happened.
    fn changed(
        &mut self,
        seq: u64,
        task: &Name,
        change: &Change,
        recorded: Option<&FileChange>,
        counts: Option<Option<(u64, u64)>>,
    ) {
        let Gathered { evidence, files } = self.of(task);
        evidence.last_edit = seq;
        let path = change.path.strip_prefix("./").unwrap_or(&change.path);
        let is_new = !files.contains_key(path);
        let file = files.entry(path.to_owned()).or_default();
        if is_new {
            file.path = path.to_owned();
            (file.added, file.removed) = (Some(0), Some(0));
            file.created = recorded.is_some_and(|recorded| recorded.pre.is_none());
        }
        let Some(counts) = counts else {
            file.unknown += 1;
            (file.added, file.removed, file.hash) = (None, None, None);
            return;
        };
        file.calls += 1;
        file.hash = recorded.map(|recorded| recorded.post.clone());
        let sum = |so_far: Option<u64>, more: Option<u64>| Some(so_far? + more?);
        file.added = sum(file.added, counts.map(|(added, _)| added));
        file.removed = sum(file.removed, counts.map(|(_, removed)| removed));
    }

    fn commanded(
        &mut self,
        record: &Record,
        task: &Name,
        id: &AgentId,
        call: &OpenCall,
        finished: &ToolFinished,
    ) {
        self.note_lines(task, id, finished);
        // The command of a `run` task is the task itself.
        self.of(task).evidence.commands += u64::from(finished.name != "run");
        let input = call.input.to_value();
        let Some(line) = input["command"].as_str() else { return };
        let Some(Found { command, says }) = verdict::last(line, test_commands::runs_tests) else {
            return;
        };
        self.tested = self.tested.max(call.began);
        let evidence = &mut self.of(task).evidence;
        evidence.test_runs += 1;
        evidence.last_test_began = call.began;
        evidence.last_test = Some(TestRun {
            command: shortened(&command),
            line: shortened(line),
            agent: id.clone(),
            exit_code: finished.exit_code,
            passed: finished.exit_code.and_then(|code| says.verdict(code)),
            after_last_edit: None,
            seq: record.seq,
            ts_ms: record.ts_ms,
        });
    }
}

/// The tools whose calls are evidence.
#[derive(Clone, Copy, Debug)]
enum Tool {
    Edit,
    Command,
}

impl Tool {
    fn of(name: &str) -> Option<Self> {
        match name {
            "write_file" | "edit_file" => Some(Self::Edit),
            // The command of a `run` task is recorded as a call of `run`.
            "bash" | "run" => Some(Self::Command),
            _ => None,
        }
    }
}

fn artifact(kind: &'static str, agent: Option<&AgentId>, output: &Output) -> Artifact {
    let (hash, bytes) = match &output.stored {
        Some(stored) => (stored.hash.clone(), stored.bytes),
        None => {
            let hash = blake3::hash(output.text.as_bytes()).to_hex().to_string();
            (hash, output.text.len() as u64)
        }
    };
    Artifact { kind, agent: agent.cloned(), hash, bytes, stored: output.stored.is_some() }
}

fn shortened(text: &str) -> String {
    text.chars().take(COMMAND).collect()
}

/// Reads the evidence of a run from its journal, as far as that can be read, and the error that
/// stopped the read, if any. Blocks.
pub fn of_run(run: &dyn RunSource) -> (Evidence, Result<(), JournalError>) {
    let mut fold = EvidenceFold::default();
    let mut read = || -> Result<(), JournalError> {
        let mut batches = run.batches(Cursor::START)?;
        let wanted = |label: Label<'_>| EvidenceFold::TYPES.contains(&label.kind);
        while let Some(records) = batches.next_of(&wanted)? {
            records.iter().for_each(|record| fold.apply(record));
        }
        Ok(())
    };
    let read = read();
    (fold.finish(), read)
}

#[cfg(test)]
mod tests;
