//! The agents' transcripts and logs: files made from records as these become durable.
//!
//! Owns the files under `agents/` and nothing of their content. They can be made again from the
//! journal at any time, so there is no sync here, and a file that cannot be written never stops a
//! run: it is reported once and left as it is.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use crate::event::{Event, SharedRecord};
use crate::id::AgentId;
use crate::journal::Observer;
use crate::journal::file::RunDir;
use crate::journal::log_line::line_for;
use crate::journal::transcript::Transcript;

/// Agents whose two files stay open: 64 files, a sixteenth of the usual limit of a process.
const OPEN_AGENTS: usize = 32;

/// Writes `agents/<agent>.jsonl` and `agents/<agent>.log`.
#[derive(Debug)]
pub struct Projection {
    dir: RunDir,
    agents: HashMap<AgentId, View>,
    /// The agents with something to write, in the order in which they were met.
    touched: Vec<AgentId>,
    /// The open files, the least recently used first.
    open: VecDeque<Pair>,
}

/// One agent's files as they are to be.
#[derive(Debug, Default)]
struct View {
    transcript: Transcript,
    messages: Vec<u8>,
    log: Vec<u8>,
    touched: bool,
    stale: bool,
    ended: bool,
}

#[derive(Debug)]
struct Pair {
    agent: AgentId,
    transcript: File,
    log: File,
}

impl Projection {
    /// The projection of a run that starts with no records.
    #[must_use]
    pub fn new(dir: RunDir) -> Self {
        Self { dir, agents: HashMap::new(), touched: Vec::new(), open: VecDeque::new() }
    }

    /// Takes in a record whose lines are already in the files, so that what follows it joins on.
    pub fn skip(&mut self, record: &SharedRecord) {
        if let Some(agent) = &record.agent {
            let view = self.agents.entry(agent.clone()).or_default();
            view.transcript.fold(record, &mut view.messages);
            view.messages.clear();
            if matches!(record.event, Event::AgentEnded(_)) {
                self.agents.remove(agent);
            }
        }
    }

    /// Writes what a batch has brought for one agent.
    fn flush(&mut self, agent: &AgentId) {
        let Some(view) = self.agents.get_mut(agent) else { return };
        view.touched = false;
        if !view.stale
            && let Err(error) = write(&mut self.open, &self.dir, agent, view)
        {
            tracing::warn!(%agent, %error, "the transcript and the log are stale from here on");
            view.stale = true;
        }
        view.messages.clear();
        view.log.clear();
        if view.ended {
            self.agents.remove(agent);
            self.open.retain(|pair| pair.agent != *agent);
        }
    }
}

impl Observer for Projection {
    fn committed(&mut self, record: &SharedRecord) {
        let Some(agent) = &record.agent else { return };
        if !self.agents.contains_key(agent) {
            self.agents.insert(agent.clone(), View::default());
        }
        let Some(view) = self.agents.get_mut(agent) else { return };
        if !view.touched {
            view.touched = true;
            self.touched.push(agent.clone());
        }
        view.transcript.fold(record, &mut view.messages);
        view.log.extend_from_slice(line_for(record).as_bytes());
        view.log.push(b'\n');
        view.ended = matches!(record.event, Event::AgentEnded(_));
    }

    fn batch_end(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for agent in touched.drain(..) {
            self.flush(&agent);
        }
        self.touched = touched;
    }
}

fn write(open: &mut VecDeque<Pair>, dir: &RunDir, agent: &AgentId, view: &View) -> io::Result<()> {
    let pair = match open.iter().position(|pair| pair.agent == *agent) {
        Some(place) => open.remove(place),
        None => None,
    };
    let mut pair = match pair {
        Some(pair) => pair,
        None => {
            // First, so that there are never more than the bound.
            if open.len() >= OPEN_AGENTS {
                open.pop_front();
            }
            let transcript = append_to(dir.transcript(agent))?;
            Pair { agent: agent.clone(), transcript, log: append_to(dir.log(agent))? }
        }
    };
    let messages = write_some(&mut pair.transcript, &view.messages);
    let log = write_some(&mut pair.log, &view.log);
    open.push_back(pair);
    messages.and(log)
}

fn append_to(path: std::path::PathBuf) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn write_some(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() { Ok(()) } else { file.write_all(bytes) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    use super::*;
    use crate::event::Draft;
    use crate::journal::testing::{record, turn};
    use crate::journal::transcript::testing::{finished, intended, responded, spawned};
    use crate::turn::{AgentEnded, Outcome, ToolStatus};

    fn run() -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path());
        fs::create_dir(dir.agents()).unwrap();
        (root, dir)
    }

    fn give(projection: &mut Projection, drafts: Vec<Draft>) {
        for (seq, draft) in (1..).zip(drafts) {
            projection.committed(&Arc::new(record(seq, draft)));
        }
        projection.batch_end();
    }

    fn lines(path: std::path::PathBuf) -> usize {
        fs::read_to_string(path).unwrap().lines().count()
    }

    #[test]
    fn an_agent_has_its_two_files() {
        let (_root, dir) = run();
        let mut projection = Projection::new(dir.clone());
        give(&mut projection, vec![spawned("Hello")]);
        let agent = AgentId::from_text("work/helper-1");
        assert_eq!(dir.transcript(&agent), dir.agents().join("work.helper-1.jsonl"));
        assert_eq!((lines(dir.transcript(&agent)), lines(dir.log(&agent))), (1, 1));
        let mode = fs::metadata(dir.log(&agent)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        give(&mut projection, vec![responded(1), intended(1, 0, "bash", "{}")]);
        give(&mut projection, vec![finished(1, 0, ToolStatus::Ok, "x\ny")]);
        assert_eq!((lines(dir.transcript(&agent)), lines(dir.log(&agent))), (3, 4));
    }

    #[test]
    fn a_command_has_an_empty_transcript() {
        let (_root, dir) = run();
        let program = crate::turn::Program::Command { run: "ls".into(), env: Default::default() };
        let spawned = crate::turn::AgentSpawned { program, depth: 0, parent: None, call: None };
        let mut draft = turn("work", 1);
        draft.event = spawned.into();
        give(&mut Projection::new(dir.clone()), vec![draft]);
        assert_eq!(fs::read(dir.agents().join("work.jsonl")).unwrap(), b"");
        assert_eq!(lines(dir.agents().join("work.log")), 1);
    }

    #[test]
    fn many_agents_share_a_bounded_number_of_files() {
        let (_root, dir) = run();
        let mut projection = Projection::new(dir.clone());
        for round in 0..3 {
            let drafts = (0..100).map(|agent| turn(&format!("a-{agent}"), round)).collect();
            give(&mut projection, drafts);
            assert_eq!(projection.open.len(), OPEN_AGENTS);
        }
        for agent in 0..100 {
            assert_eq!(lines(dir.agents().join(format!("a-{agent}.log"))), 3);
        }
        let outcome = Outcome::Cancelled { reason: "enough".to_owned() };
        let ended = AgentEnded { outcome, turns: 3, usage: Default::default() };
        let mut draft = turn("a-99", 3);
        draft.event = ended.into();
        give(&mut projection, vec![draft]);
        assert_eq!((projection.open.len(), projection.agents.len()), (OPEN_AGENTS - 1, 99));
        assert_eq!(lines(dir.agents().join("a-99.log")), 4);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_left_alone() {
        let (_root, dir) = run();
        fs::create_dir(dir.agents().join("a.log")).unwrap();
        let mut projection = Projection::new(dir.clone());
        give(&mut projection, vec![turn("a", 1), turn("b", 1)]);
        assert!(projection.agents[&AgentId::from_text("a")].stale);
        fs::remove_dir(dir.agents().join("a.log")).unwrap();
        give(&mut projection, vec![turn("a", 2), turn("b", 2)]);
        assert!(!dir.agents().join("a.log").exists(), "a gap would not be seen");
        assert_eq!(lines(dir.agents().join("b.log")), 2);
    }

    #[test]
    fn skipped_records_are_not_written_again() {
        let (_root, dir) = run();
        let mut projection = Projection::new(dir.clone());
        for draft in [spawned("Hello"), intended(1, 0, "bash", "{}"), intended(1, 1, "bash", "{}")]
        {
            projection.skip(&Arc::new(record(1, draft)));
        }
        projection.skip(&Arc::new(record(4, finished(1, 1, ToolStatus::Ok, "second"))));
        give(&mut projection, vec![finished(1, 0, ToolStatus::Ok, "first")]);
        let text = fs::read_to_string(dir.agents().join("work.helper-1.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 1);
        assert!(text.find("first").unwrap() < text.find("second").unwrap());
    }
}
