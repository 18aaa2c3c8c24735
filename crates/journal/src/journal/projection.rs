//! The agents' transcripts and logs: files that are derived from the records as these become
//! durable.
//!
//! Owns the files under `agents/`, but not their content. They can be made again from the journal
//! at any time, so they are not synced, and a write error never stops a run: it is reported once
//! and the file stays as it is. A full disk is the exception: the write is tried again later. New
//! lines of an agent are written a moment later, several at once; its files exist from its first
//! record on.

mod resumed;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use ahash::{HashMap, HashMapExt};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::event::{Event, Record, SharedRecord};
use crate::id::AgentId;
use crate::journal::agent_files::AgentFiles;
use crate::journal::source::{RecordedRun, RunSource};
use crate::journal::transcript::Transcript;
use crate::journal::{Observer, results, stand_in};

/// Number of agents whose two files stay open. These 400 files leave more than half of the usual
/// limit of 1024 open files per process for connections and tools.
const OPEN_AGENTS: usize = 200;

/// Puts a record into words for its agent's log: one line or more, each with its newline.
pub type LogText = fn(&Record) -> String;

/// Writes `agents/<agent>.jsonl` and `agents/<agent>.log`.
#[derive(Debug)]
pub struct Projection {
    /// The run of the records, for the texts that it stores.
    run: RecordedRun,
    paths: AgentFiles,
    log_text: LogText,
    boot: String,
    agents: HashMap<AgentId, View>,
    /// The agents with something to write, in the order of their records.
    touched: Vec<AgentId>,
    /// The agents whose files may not exist yet.
    fresh: Vec<AgentId>,
    /// Number of agents whose files are open.
    open: usize,
    /// The files of the agents that have ended since the last call of [`files`](Self::files).
    ended: BTreeMap<AgentId, Option<Lengths>>,
    /// The first agent whose files could not be written, with the error.
    failed: Option<(AgentId, io::Error)>,
}

/// The lengths of an agent's transcript and log, in bytes.
pub type Lengths = [u64; 2];

/// The state of the agents' files at a place of the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// The boot of the machine in which they were written. They are never synced, so after another one their
    /// lengths say nothing of what they hold. Empty if it is not known.
    #[serde(default)]
    boot: String,
    /// The files of agents that had not ended.
    pub open: BTreeMap<AgentId, OpenFiles>,
    /// The files of agents that had ended.
    pub ended: BTreeMap<AgentId, Option<Lengths>>,
}

/// The files of an agent that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// The state from which the transcript continues.
    transcript: Transcript,
    /// Their lengths; absent if the files do not match the journal.
    lengths: Option<Lengths>,
}

/// One agent's files, with the lines that still have to be written.
#[derive(Debug, Default)]
struct View {
    transcript: Transcript,
    messages: Vec<u8>,
    log: Vec<u8>,
    /// The open files, if they stay open.
    files: Option<Pair>,
    touched: bool,
    stale: bool,
    ended: bool,
}

#[derive(Debug)]
struct Pair {
    transcript: File,
    log: File,
}

impl Projection {
    /// Makes the projection of a new run, which has no records.
    #[must_use]
    pub fn new(run: impl Into<RecordedRun>, paths: AgentFiles, log_text: LogText) -> Self {
        let boot = stand_in::boot_id(paths.folder());
        Self {
            run: run.into(),
            paths,
            log_text,
            boot,
            agents: HashMap::new(),
            touched: Vec::new(),
            fresh: Vec::new(),
            open: 0,
            ended: BTreeMap::new(),
            failed: None,
        }
    }

    /// Returns the agents' files as they are after [`Observer::catch_up`]. Agents that have ended are
    /// listed only if they ended since the last call.
    pub fn files(&mut self) -> Files {
        let open = self.agents.iter().map(|(id, view)| {
            let transcript = view.transcript.clone();
            (id.clone(), OpenFiles { transcript, lengths: view.lengths(&self.paths, id) })
        });
        let (boot, ended) = (self.boot.clone(), std::mem::take(&mut self.ended));
        Files { boot, open: open.collect(), ended }
    }

    /// Marks an agent's files to be written at the next [`Observer::catch_up`].
    fn touch(&mut self, agent: &AgentId) {
        let Some(view) = self.agents.get_mut(agent) else { return };
        if !view.touched {
            view.touched = true;
            self.touched.push(agent.clone());
        }
    }

    /// Writes the new lines of one agent.
    fn flush(&mut self, agent: &AgentId) {
        let Some(view) = self.agents.get_mut(agent) else { return };
        if !view.stale
            && let Err(error) = view.write(&self.paths, agent, &mut self.open)
        {
            if disk::is_full(&error) {
                // Little more comes while the run waits for room.
                return self.touch(agent);
            }
            tracing::warn!(%agent, %error, "the transcript and the log are stale from here on");
            view.stale = true;
            self.failed.get_or_insert((agent.clone(), error));
        }
        // Most agents are idle most of the time: then they hold no buffers.
        (view.messages, view.log) = (Vec::new(), Vec::new());
        if view.ended {
            self.open -= usize::from(view.files.is_some());
            self.ended.insert(agent.clone(), view.lengths(&self.paths, agent));
            self.agents.remove(agent);
        }
    }
}

/// Returns a record with its stored texts. Where they are lost, the transcript has what the record
/// still holds.
fn whole<'a>(run: &dyn RunSource, record: &'a SharedRecord) -> Cow<'a, SharedRecord> {
    results::whole(run, record).unwrap_or_else(|error| {
        tracing::warn!(seq = record.seq, %error, "a transcript lacks a part of a prompt");
        Cow::Borrowed(record)
    })
}

impl Observer for Projection {
    fn committed(&mut self, record: &SharedRecord) {
        let Some(agent) = &record.agent else { return };
        if !self.agents.contains_key(agent) {
            self.agents.insert(agent.clone(), View::default());
            self.fresh.push(agent.clone());
        }
        self.touch(agent);
        let Some(view) = self.agents.get_mut(agent) else { return };
        view.transcript.fold(&whole(&*self.run, record), &mut view.messages);
        view.log.extend_from_slice((self.log_text)(record).as_bytes());
        view.ended = matches!(record.event, Event::AgentEnded(_));
    }

    /// Creates the files of new agents now, so that an observer that hears of an agent later finds
    /// them.
    fn batch_end(&mut self) {
        for agent in std::mem::take(&mut self.fresh) {
            self.flush(&agent);
        }
    }

    fn catch_up(&mut self) {
        for agent in std::mem::take(&mut self.touched) {
            if let Some(view) = self.agents.get_mut(&agent) {
                view.touched = false;
            }
            self.flush(&agent);
        }
    }
}

impl View {
    /// Returns the lengths of the files if they hold everything that the journal gives.
    fn lengths(&self, paths: &AgentFiles, agent: &AgentId) -> Option<Lengths> {
        if self.stale || !self.log.is_empty() || !self.messages.is_empty() {
            return None;
        }
        match &self.files {
            Some(Pair { transcript, log }) => {
                Some([transcript.metadata().ok()?.len(), log.metadata().ok()?.len()])
            }
            None => lengths_of(paths, agent),
        }
    }

    /// Appends the new lines. When [`OPEN_AGENTS`] agents have open files, another agent opens and
    /// closes its files at each write. Closing another agent's files instead would be worse: with a
    /// few too many busy agents, every agent would open its files at each write.
    fn write(&mut self, paths: &AgentFiles, agent: &AgentId, open: &mut usize) -> io::Result<()> {
        if self.log.is_empty() && self.messages.is_empty() {
            return Ok(());
        }
        let mut pair = match self.files.take() {
            Some(pair) => pair,
            None => {
                let transcript = append_to(&paths.transcript(agent))?;
                let pair = Pair { transcript, log: append_to(&paths.log(agent))? };
                *open += 1;
                pair
            }
        };
        let messages = write_some(&mut pair.transcript, &mut self.messages);
        let log = write_some(&mut pair.log, &mut self.log);
        if *open <= OPEN_AGENTS {
            self.files = Some(pair);
        } else {
            *open -= 1;
        }
        messages.and(log)
    }
}

/// Reads the lengths of an agent's files from the disk.
fn lengths_of(paths: &AgentFiles, agent: &AgentId) -> Option<Lengths> {
    let length = |path| fs::metadata(path).ok().map(|found| found.len());
    Some([length(paths.transcript(agent))?, length(paths.log(agent))?])
}

fn append_to(path: &Path) -> io::Result<File> {
    disk::open_to_write(path, OFlags::APPEND | OFlags::CREATE)
}

/// Writes the bytes, and removes those that were written from the buffer.
fn write_some(file: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        match disk::retried(|| file.write(bytes))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => drop(bytes.drain(..written)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;
    use crate::event::Draft;
    use crate::journal::held::HeldRun;
    use crate::journal::samples::log_text;
    use crate::journal::samples::{finished, intended, responded, spawned};
    use crate::journal::samples::{record, turn};
    use crate::output::{Output, Stored, Text};
    use crate::turn::{AgentEnded, Outcome, Program, ToolStatus};

    fn folder() -> (tempfile::TempDir, AgentFiles) {
        let root = tempfile::tempdir().unwrap();
        let files = AgentFiles::at(root.path());
        (root, files)
    }

    /// Makes the projection of a run in memory.
    fn projected(files: &AgentFiles) -> Projection {
        Projection::new(HeldRun::new("run"), files.clone(), log_text)
    }

    fn give(projection: &mut Projection, drafts: Vec<Draft>) {
        for (seq, draft) in (1..).zip(drafts) {
            projection.committed(&Arc::new(record(seq, draft)));
        }
        projection.batch_end();
        projection.catch_up();
    }

    fn lines_of(files: &AgentFiles, agent: &str) -> usize {
        lines(files.log(&AgentId::from_text(agent)))
    }

    fn lines(path: std::path::PathBuf) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn an_agent_has_its_two_files() {
        let (_root, files) = folder();
        let mut projection = projected(&files);
        give(&mut projection, vec![spawned("Hello")]);
        let agent = AgentId::from_text("work/helper-1");
        assert_eq!(files.transcript(&agent), files.folder().join("work.helper-1.jsonl"));
        assert_eq!((lines(files.transcript(&agent)), lines(files.log(&agent))), (1, 1));
        let mode = fs::metadata(files.log(&agent)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        give(&mut projection, vec![responded(1), intended(1, 0, "bash", "{}")]);
        give(&mut projection, vec![finished(1, 0, ToolStatus::Ok, "x\ny")]);
        assert_eq!((lines(files.transcript(&agent)), lines(files.log(&agent))), (3, 4));
    }

    #[test]
    fn a_stored_prompt_is_read_from_the_run_wherever_it_is_kept() {
        let (_root, files) = folder();
        let (run, prompt) = (HeldRun::new("run"), "Look at everything.");
        let (hash, bytes) = (run.store(prompt.as_bytes()), prompt.len() as u64);
        let stored = Some(Stored { hash, bytes, dropped: 0 });
        let prompt_of = |stored: Option<Stored>| {
            let mut draft = spawned("");
            let Event::AgentSpawned(agent) = &mut draft.event else { panic!("an agent") };
            let Program::Model { prompt, .. } = &mut agent.program else { panic!("a model") };
            *prompt = Text::Stored(Output { text: "Look".to_owned(), stored });
            give(&mut Projection::new(run.clone(), files.clone(), log_text), vec![draft]);
            let transcript = files.transcript(&AgentId::from_text("work/helper-1"));
            let text = fs::read_to_string(&transcript).unwrap();
            fs::remove_file(transcript).unwrap();
            text
        };
        assert!(prompt_of(stored.clone()).contains(prompt));
        let lost = stored.map(|stored| Stored { hash: "0".repeat(64), ..stored });
        assert!(!prompt_of(lost).contains(prompt));
    }

    #[test]
    fn a_command_has_an_empty_transcript() {
        let (_root, files) = folder();
        let program = Program::Command(crate::turn::Command::default());
        let spawned = crate::turn::AgentSpawned::main(program);
        let mut draft = turn("work", 1);
        draft.event = spawned.into();
        give(&mut projected(&files), vec![draft]);
        assert_eq!(fs::read(files.folder().join("work.jsonl")).unwrap(), b"");
        assert_eq!(lines(files.folder().join("work.log")), 1);
    }

    #[test]
    fn files_are_there_at_once_and_filled_soon() {
        let (_root, files) = folder();
        let mut projection = projected(&files);
        projection.committed(&Arc::new(record(1, spawned("Hello"))));
        projection.batch_end();
        let agent = AgentId::from_text("work/helper-1");
        assert_eq!((lines(files.transcript(&agent)), lines(files.log(&agent))), (1, 1));
        projection.committed(&Arc::new(record(2, responded(1))));
        projection.batch_end();
        assert_eq!((lines(files.transcript(&agent)), lines(files.log(&agent))), (1, 1));
        projection.catch_up();
        assert_eq!((lines(files.transcript(&agent)), lines(files.log(&agent))), (2, 2));
    }

    #[test]
    fn many_agents_share_a_bounded_number_of_files() {
        const AGENTS: usize = OPEN_AGENTS + 50;
        let (_root, files) = folder();
        let mut projection = projected(&files);
        let held = |projection: &Projection| {
            projection.agents.values().filter(|view| view.files.is_some()).count()
        };
        for round in 0..3 {
            let drafts = (0..AGENTS).map(|agent| turn(&format!("a-{agent}"), round)).collect();
            give(&mut projection, drafts);
            assert_eq!((projection.open, held(&projection)), (OPEN_AGENTS, OPEN_AGENTS));
        }
        for agent in 0..AGENTS {
            assert_eq!(lines(files.folder().join(format!("a-{agent}.log"))), 3);
        }
        let outcome = Outcome::Cancelled { reason: "enough".to_owned() };
        let ended = AgentEnded {
            outcome,
            turns: 3,
            usage: Default::default(),
            shortfalls: Default::default(),
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        };
        let mut draft = turn("a-0", 3);
        draft.event = ended.into();
        give(&mut projection, vec![draft]);
        assert_eq!((projection.open, projection.agents.len()), (OPEN_AGENTS - 1, AGENTS - 1));
        assert_eq!(lines(files.folder().join("a-0.log")), 4);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_left_alone() {
        let (_root, files) = folder();
        fs::create_dir(files.folder().join("a.log")).unwrap();
        let mut projection = projected(&files);
        give(&mut projection, vec![turn("a", 1), turn("b", 1)]);
        assert!(projection.agents[&AgentId::from_text("a")].stale);
        fs::remove_dir(files.folder().join("a.log")).unwrap();
        give(&mut projection, vec![turn("a", 2), turn("b", 2)]);
        assert!(!files.folder().join("a.log").exists(), "a gap would not be seen");
        assert_eq!(lines(files.folder().join("b.log")), 2);
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_kept() {
        let mut lines = b"a line\n".to_vec();
        let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let refused = write_some(&mut full, &mut lines).unwrap_err();
        assert!(disk::is_full(&refused) && lines == b"a line\n");
        let mut small = [0u8; 4];
        write_some(&mut &mut small[..], &mut lines).unwrap_err();
        assert_eq!((&small, lines.as_slice()), (b"a li", &b"ne\n"[..]));

        let (_root, files) = folder();
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let pair = Pair { transcript: full(), log: full() };
        let mut projection = projected(&files);
        let view = View { files: Some(pair), ..View::default() };
        projection.agents.insert(AgentId::from_text("a"), view);
        give(&mut projection, vec![turn("a", 1)]);
        projection.agents.values_mut().for_each(|view| view.files = None);
        give(&mut projection, vec![turn("b", 1)]);
        assert_eq!(lines_of(&files, "a"), lines_of(&files, "b"));
    }
}
