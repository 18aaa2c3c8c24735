//! Recorded conversations: reads files that people have on disk, message by message.
//!
//! Owns the file formats and the positions in a file. Decides nothing about contexts, and never
//! holds more than one message in memory: it reads a file once to find the positions of its parts,
//! and then again when messages are requested. An input that cannot be read twice (a pipe) is
//! copied to a temporary file first.
//!
//! The format is recognised by the beginning of the file, never by its name: see [`Format`].

mod check;
mod claude_code;
mod document;
mod scan;
mod transcript;

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use crate::message::{Json, Role, Usage};
pub use claude_code::Attachments;
use claude_code::ClaudeCode;
use document::Document;
use scan::Scanner;
use transcript::Transcript;

/// The most bytes of one message. A request to a provider has at most 32 MB, so no message that was
/// ever sent is longer, even where a file repeats a result beside it. Tests use less.
const MOST_BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// The most bytes of a pipe that stay in memory; the rest goes to a temporary file.
const PIPE_BYTES_IN_MEMORY: usize = 8 << 20;

/// The file format of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `{"system", "messages"}`, keys in any order, or a bare array of messages, in the Anthropic
    /// wire format.
    Document,
    /// A transcript of this program: `{"seq", "ts", "message"}`, one message a line.
    Transcript,
    /// A session of Claude Code: one entry a line, linked by `uuid` and `parentUuid`.
    ClaudeCode,
}

/// The part of a Claude Code recording that is read. The other formats contain no compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The conversation that a resumed session holds: from the latest compaction on, with its
    /// summary first.
    SinceCompaction,
    /// The whole conversation, without the summaries that replaced parts of it.
    Whole,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// `{"role", "content"}` as in the file, without insignificant whitespace.
    pub json: Json,
    /// The author of the message.
    pub role: Role,
    /// The sequence number of the journal record; only in a transcript.
    pub seq: Option<u64>,
    /// The tokens that the provider billed for the reply, if the recording has them.
    pub billed: Option<Billed>,
}

/// The billed tokens of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Billed {
    /// All tokens.
    pub usage: Usage,
    /// The part of `usage.cache_write` that was written to the cache for an hour, which costs more.
    pub cache_write_1h: u64,
}

impl std::ops::AddAssign for Billed {
    fn add_assign(&mut self, other: Self) {
        self.usage += other.usage;
        self.cache_write_1h += other.cache_write_1h;
    }
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// Number of bytes before this place in the file.
    pub byte: u64,
}

impl Position {
    const START: Self = Self { line: 1, byte: 0 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, byte {}", self.line, self.byte)
    }
}

/// An error in a conversation, with its place.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {kind}")]
pub struct ConversationError {
    /// The place of the mistake, or the beginning of the part that has it.
    pub place: Position,
    /// The mistake, with advice.
    pub kind: ConversationErrorKind,
}

/// The kinds of mistakes in a conversation.
#[derive(Debug, thiserror::Error)]
pub enum ConversationErrorKind {
    /// The operating system reported an error.
    #[error("not readable: {0}")]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("nothing is there; a conversation is needed")]
    Empty,
    /// The file begins like no known format.
    #[error(
        "{found} is no conversation that can be read; give {{\"system\", \"messages\"}}, an array \
         of messages, a transcript of a run, or the JSONL of Claude Code"
    )]
    Unknown {
        /// The beginning of the file.
        found: String,
        /// True if it begins with an object of JSON, which is whole: something else, and not a broken
        /// conversation.
        is_json: bool,
    },
    /// The file ends too early.
    #[error(
        "the file ends inside of what begins here; it was cut off or is still being written: \
         copy it again"
    )]
    CutOff,
    /// The text is not JSON.
    #[error("not JSON: {0}; correct it there")]
    Syntax(String),
    /// The bytes are not UTF-8.
    #[error("not UTF-8; convert the file first")]
    NotUtf8,
    /// A message is longer than any that a provider takes.
    #[error("longer than {MOST_BYTES} bytes, which no provider takes; shorten or leave it out")]
    TooLong,
    /// A key that may be there only once is there twice.
    #[error("`{0}` is there a second time; keep one")]
    Twice(&'static str),
    /// There is no `messages`.
    #[error("there is no `messages`; a conversation is {{\"system\", \"messages\"}}")]
    NoMessages,
    /// `messages` is not a list.
    #[error("`messages` is not a list; give the messages in `[...]`")]
    NotAList,
    /// `system` is neither a text nor a list of text blocks.
    #[error("`system` is neither a text nor a list of text blocks; make it one")]
    System,
    /// More text follows the end of the conversation.
    #[error("something follows the conversation's end; one file holds one conversation")]
    Trailing,
    /// A message has an unknown role.
    #[error(
        "a message of role `{0}`; roles are `user` and `assistant`, and a system prompt goes into \
         `system`"
    )]
    Role(String),
    /// A value that should be a message is not one.
    #[error("not a message: {0}; a message is {{\"role\", \"content\"}}")]
    NotAMessage(String),
    /// A Claude Code file has no entry of a user or an assistant.
    #[error("no user or assistant entry is in the file; is it the right one?")]
    NobodySpeaks,
}

impl ConversationErrorKind {
    fn at(self, place: Position) -> ConversationError {
        ConversationError { place, kind: self }
    }
}

type Result<T> = std::result::Result<T, ConversationError>;

/// An input from which a conversation is read; it is read twice, so it can seek.
trait Input: Read + Seek + Send {}
impl<T: Read + Seek + Send> Input for T {}

/// A recorded conversation: its system prompt, and an iterator over its messages.
///
/// After an error the iterator returns no more messages.
#[derive(Debug)]
pub struct Conversation {
    source: Source,
    ended: bool,
}

#[derive(Debug)]
enum Source {
    Document(Document),
    Transcript(Transcript),
    ClaudeCode(ClaudeCode),
}

impl Conversation {
    /// Opens the conversation in the file at `path`, which may be a pipe.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, has no known format, or is cut off.
    pub fn open(path: &Path, history: History) -> Result<Self> {
        let file = File::open(path).map_err(|error| at_start(error.into()))?;
        let metadata = file.metadata().map_err(|error| at_start(error.into()))?;
        if metadata.is_file() { Self::read(file, history) } else { Self::copy(file, history) }
    }

    /// Recognises the format of the file at `path`, which is read only as far as that needs.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has no known format.
    pub fn format_of(path: &Path) -> Result<Format> {
        let file = File::open(path).map_err(|error| at_start(error.into()))?;
        check::format(&mut Scanner::new(Box::new(file)))
    }

    /// Reads a conversation from an input that can be read only once.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::open`].
    pub fn copy(mut pipe: impl Read, history: History) -> Result<Self> {
        let mut copy = tempfile::SpooledTempFile::new(PIPE_BYTES_IN_MEMORY);
        let copied = io::copy(&mut pipe, &mut copy).and_then(|_| copy.rewind());
        copied.map_err(|error| at_start(error.into()))?;
        Self::read(copy, history)
    }

    /// Reads a conversation from an input that can be read twice.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::open`].
    pub fn read(input: impl Read + Seek + Send + 'static, history: History) -> Result<Self> {
        let mut scanner = Scanner::new(Box::new(input));
        let format = check::format(&mut scanner)?;
        scanner.go_to(Position::START)?;
        let source = match format {
            Format::Document => Source::Document(Document::open(scanner)?),
            Format::Transcript => Source::Transcript(Transcript::open(scanner)),
            Format::ClaudeCode => Source::ClaudeCode(ClaudeCode::open(scanner, history)?),
        };
        Ok(Self { source, ended: false })
    }

    /// Returns the format of the file.
    #[must_use]
    pub fn format(&self) -> Format {
        match self.source {
            Source::Document(_) => Format::Document,
            Source::Transcript(_) => Format::Transcript,
            Source::ClaudeCode(_) => Format::ClaudeCode,
        }
    }

    /// Returns the number and size of the attachments in the JSONL of Claude Code, which are no messages and
    /// are left out.
    #[must_use]
    pub fn attachments(&self) -> Attachments {
        match &self.source {
            Source::Document(_) | Source::Transcript(_) => Attachments::default(),
            Source::ClaudeCode(entries) => entries.attachments(),
        }
    }

    /// Returns the number of entries in the JSONL of Claude Code that do not say which entry of the file comes
    /// before them, so that they were read in the order of the file.
    #[must_use]
    pub fn relinked(&self) -> u64 {
        match &self.source {
            Source::Document(_) | Source::Transcript(_) => 0,
            Source::ClaudeCode(entries) => entries.relinked(),
        }
    }

    /// Goes on to the conversation of the next child agent in the same file, whose messages the iterator then
    /// returns. Returns false if there is none; only the JSONL of Claude Code has any.
    pub fn next_side(&mut self) -> bool {
        let is_one = match &mut self.source {
            Source::Document(_) | Source::Transcript(_) => false,
            Source::ClaudeCode(entries) => entries.next_side(),
        };
        self.ended = !is_one;
        is_one
    }

    /// Returns the system prompt as in the file, a text or a list of text blocks, if there is one.
    #[must_use]
    pub fn system(&self) -> Option<&Json> {
        match &self.source {
            Source::Document(document) => document.system(),
            Source::Transcript(_) | Source::ClaudeCode(_) => None,
        }
    }

    /// Returns the number of broken lines that were skipped so far. In the JSONL of Claude Code
    /// these are any lines; in a transcript only the last line, if its writer was stopped.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        match &self.source {
            Source::Document(_) => 0,
            Source::Transcript(transcript) => transcript.skipped(),
            Source::ClaudeCode(entries) => entries.skipped(),
        }
    }
}

impl Iterator for Conversation {
    type Item = Result<Recorded>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match &mut self.source {
            Source::Document(document) => document.next_message(),
            Source::Transcript(transcript) => transcript.next_message(),
            Source::ClaudeCode(entries) => entries.next_message(),
        };
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

fn at_start(kind: ConversationErrorKind) -> ConversationError {
    kind.at(Position::START)
}

#[cfg(test)]
mod tests;
