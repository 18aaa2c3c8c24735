//! Reads the conversation that the user named, a file, stdin, or an agent of a run, and those of its
//! sub-agents.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{self, Found};
use super::shown::System;
use crate::cli::complain;
use crate::cli::locate::{Project, Selector};
use crate::cli::paint::{Progress, Watched};
use crate::context::measure::CHARS_PER_TOKEN;
use crate::conversation::{
    Attachments, Billed, Conversation, ConversationError, History, Recorded,
};
use crate::event::Event;
use crate::exit::Exit;
use crate::id::AgentId;
use crate::report::short;

/// A conversation that is being read.
#[derive(Debug)]
pub(super) struct Source {
    /// Name of the conversation, as the user gave it.
    pub name: String,
    pub system: System,
    conversation: Conversation,
    /// Billed usage of the replies of an agent and its child agents, by the numbers of their records.
    billed: HashMap<u64, Billed>,
    /// The files of the sub-agents that have not been read yet.
    sub_agents: VecDeque<PathBuf>,
    skipped: Skipped,
}

/// What was left out of a conversation and its sub-agents, or put elsewhere.
#[derive(Clone, Copy, Debug, Default)]
struct Skipped {
    lines: u64,
    attachments: Attachments,
    relinked: u64,
}

impl Source {
    /// Opens the conversation that the user named. A file takes precedence over an agent.
    ///
    /// `progress` is told how much of it has been read.
    pub(super) fn open(
        project: &Project,
        name: &str,
        history: History,
        progress: &Progress,
    ) -> Result<Self, Exit> {
        let found = Found { name: name.to_owned(), sub_agents: Vec::new() };
        Self::open_with(project, &found, history, progress)
    }

    /// Opens a conversation with those of its sub-agents.
    pub(super) fn open_with(
        project: &Project,
        found: &Found,
        history: History,
        progress: &Progress,
    ) -> Result<Self, Exit> {
        let name = found.name.as_str();
        let path = Path::new(name);
        if name == "-" {
            let conversation = Conversation::copy(io::stdin().lock(), history);
            return Self::of("stdin", conversation, HashMap::new());
        }
        if name.contains('@') && !path.exists() {
            return Self::agent(project, name, history, progress);
        }
        let conversation = conversation(path, history, progress);
        let source = Self::of(name, conversation, HashMap::new())?;
        Ok(Self { sub_agents: found.sub_agents.clone().into(), ..source })
    }

    fn agent(
        project: &Project,
        name: &str,
        history: History,
        progress: &Progress,
    ) -> Result<Self, Exit> {
        let (dir, part) = project.part(Some(name))?;
        let Selector::Agent(agent) = part else {
            complain(&format!("error: `{name}` is neither a file nor RUN/@AGENT"));
            return Err(Exit::Usage);
        };
        let agent = AgentId::from_text(&agent);
        let mut billed = HashMap::new();
        let below = format!("{agent}/");
        let is_own = |id: &AgentId| *id == agent || id.as_str().starts_with(&below);
        let state = project.fold(&dir, |record| {
            if let Event::ModelResponded(responded) = &record.event
                && record.agent.as_ref().is_some_and(is_own)
            {
                let usage = responded.usage;
                billed.insert(record.seq, Billed { usage, cache_write_1h: 0 });
            }
        })?;
        if !state.agents().contains_key(&agent) {
            complain(&format!("error: the run has no agent `{agent}`"));
            return Err(Exit::Failed);
        }
        let path = dir.transcript_place(&agent);
        let source = Self::of(name, conversation(&path, history, progress), billed)?;
        Ok(Self { sub_agents: files::sub_agents_of(&path).into(), ..source })
    }

    fn of(
        name: &str,
        conversation: Result<Conversation, ConversationError>,
        billed: HashMap<u64, Billed>,
    ) -> Result<Self, Exit> {
        let conversation = conversation.map_err(|error| wrong(name, &error))?;
        let system = System::new(conversation.system());
        let (name, sub_agents) = (name.to_owned(), VecDeque::new());
        Ok(Self { name, system, conversation, billed, sub_agents, skipped: Skipped::default() })
    }

    /// Goes on to the next sub-agent, whose messages [`Source::next`] then returns: first those in the same
    /// file, then those in files of their own. `None` if there is none.
    pub(super) fn next_sub_agent(&mut self) -> Option<Result<(), Exit>> {
        if self.conversation.next_side() {
            return Some(Ok(()));
        }
        let path = self.sub_agents.pop_front()?;
        self.count_skipped();
        let name = path.to_string_lossy();
        let opened =
            Conversation::open(&path, History::Whole).map_err(|error| wrong(&name, &error));
        Some(opened.map(|conversation| self.conversation = conversation))
    }

    /// Prints what was left out. To be called at the end.
    pub(super) fn tell_skipped(&mut self) {
        self.count_skipped();
        let Skipped { lines, attachments, relinked } = std::mem::take(&mut self.skipped);
        let name = &self.name;
        if lines > 0 {
            complain(&format!("note: {name}: {lines} broken lines were skipped"));
        }
        if attachments.count > 0 {
            let Attachments { count, bytes } = attachments;
            let tokens = short(bytes.div_ceil(CHARS_PER_TOKEN));
            complain(&format!(
                "note: {name}: attachments (CLAUDE.md, named files, reminders; about {tokens} \
                 tokens) are no messages and were skipped: {count}"
            ));
        }
        if relinked > 0 {
            complain(&format!(
                "note: {name}: entries that do not name the entry of the file before them were \
                 read in the order of the file: {relinked}"
            ));
        }
    }

    /// Adds what was left out of the present file.
    fn count_skipped(&mut self) {
        let (conversation, sum) = (&self.conversation, &mut self.skipped);
        sum.lines += conversation.skipped();
        sum.attachments.count += conversation.attachments().count;
        sum.attachments.bytes += conversation.attachments().bytes;
        sum.relinked += conversation.relinked();
    }

    /// Reads the next message.
    pub(super) fn next(&mut self) -> Result<Option<Recorded>, Exit> {
        let Some(message) = self.conversation.next() else { return Ok(None) };
        let mut message = message.map_err(|error| wrong(&self.name, &error))?;
        let by_record = message.seq.and_then(|seq| self.billed.get(&seq));
        message.billed = message.billed.or(by_record.copied());
        Ok(Some(message))
    }

    /// Prints that no agent has answered in the conversation, and returns the exit code.
    pub(super) fn unanswered(&self) -> Exit {
        complain(&format!(
            "error: {}: no reply of an agent is in the conversation, so no request would be made: \
             give one in which an agent has answered",
            self.name
        ));
        Exit::Failed
    }

    /// Prints why the pipeline cannot use a message, and returns the exit code.
    pub(super) fn unfit(&self, number: u64, error: &serde_json::Error) -> Exit {
        complain(&format!("error: {}: message {number}: {error}", self.name));
        Exit::Failed
    }
}

/// Returns what a person is shown while a conversation is replayed.
pub(super) fn replaying(name: &str) -> String {
    let file = Path::new(name).file_name().unwrap_or_default();
    format!("replaying {}", file.to_string_lossy())
}

/// Opens a file as [`Conversation::open`] does, and tells how much of it has been read.
fn conversation(
    path: &Path,
    history: History,
    progress: &Progress,
) -> Result<Conversation, ConversationError> {
    // A pipe must be opened only once.
    let opened = path.is_file().then(|| File::open(path).and_then(|f| Watched::new(f, progress)));
    match opened {
        Some(Ok(file)) => Conversation::read(file, history),
        Some(Err(_)) | None => Conversation::open(path, history),
    }
}

fn wrong(name: &str, error: &ConversationError) -> Exit {
    complain(&format!("error: {name}: {error}"));
    Exit::Failed
}
