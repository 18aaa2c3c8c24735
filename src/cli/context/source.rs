//! Reads the conversation that the user named: a file, stdin, or an agent of a run.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use super::shown::System;
use crate::cli::complain;
use crate::cli::locate::{Project, Selector};
use crate::cli::paint::{Progress, Watched};
use crate::conversation::{Billed, Conversation, ConversationError, History, Recorded};
use crate::event::Event;
use crate::exit::Exit;
use crate::id::AgentId;

/// A conversation that is being read.
#[derive(Debug)]
pub(super) struct Source {
    /// Name of the conversation, as the user gave it.
    pub name: String,
    pub system: System,
    conversation: Conversation,
    /// Billed usage of an agent's replies, by the numbers of their records.
    billed: HashMap<u64, Billed>,
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
        let path = Path::new(name);
        if name == "-" {
            let conversation = Conversation::copy(io::stdin().lock(), history);
            return Self::of("stdin", conversation, HashMap::new());
        }
        if name.contains('@') && !path.exists() {
            return Self::agent(project, name, history, progress);
        }
        let conversation = conversation(path, history, progress);
        Self::of(name, conversation, HashMap::new())
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
        let state = project.fold(&dir, |record| {
            if let Event::ModelResponded(responded) = &record.event
                && record.agent.as_ref() == Some(&agent)
            {
                let usage = responded.usage;
                billed.insert(record.seq, Billed { usage, cache_write_1h: 0 });
            }
        })?;
        if !state.agents().contains_key(&agent) {
            complain(&format!("error: the run has no agent `{agent}`"));
            return Err(Exit::Failed);
        }
        let conversation = conversation(&dir.transcript(&agent), history, progress);
        Self::of(name, conversation, billed)
    }

    fn of(
        name: &str,
        conversation: Result<Conversation, ConversationError>,
        billed: HashMap<u64, Billed>,
    ) -> Result<Self, Exit> {
        let conversation = conversation.map_err(|error| wrong(name, &error))?;
        let system = System::new(conversation.system());
        Ok(Self { name: name.to_owned(), system, conversation, billed })
    }

    /// Reads the next message. At the end, prints how many lines were skipped.
    pub(super) fn next(&mut self) -> Result<Option<Recorded>, Exit> {
        let Some(message) = self.conversation.next() else {
            let skipped = self.conversation.skipped();
            if skipped > 0 {
                let name = &self.name;
                complain(&format!("note: {name}: {skipped} broken lines were skipped"));
            }
            return Ok(None);
        };
        let mut message = message.map_err(|error| wrong(&self.name, &error))?;
        let by_record = message.seq.and_then(|seq| self.billed.get(&seq));
        message.billed = message.billed.or(by_record.copied());
        Ok(Some(message))
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
