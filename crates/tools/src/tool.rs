//! The port to tools: the description of a tool, the context of a call and the output of a call.
//!
//! Implementations live in `tool/`. A tool may use plain data, decisions, the result store, the
//! disk and the crash points; it never imports an actor or the journal. Tools that need the agent's
//! own state or its run are steps of the agent, and stand in `own_tool.rs`.

pub mod bash;
pub mod basis;
mod blocking;
mod command;
pub mod environment;
pub mod files;
pub mod hook;
pub mod outside;
pub mod own;
pub mod printing;
pub mod process;
pub mod process_capacity;
pub mod sandbox;
pub mod search;
pub mod skills;
pub mod so_far;
pub mod spool;
pub mod survey;
mod toolbox;
pub mod under_way;
pub mod workspace;
pub mod wrapper;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::toolbox::Toolbox;
use crate::id::CallKey;
use crate::message::Json;
use crate::message::media::Media;
use crate::output::{Output, Stored};
use crate::permission::{Subject, Unseen};
use crate::spec::OnUnknown;
use crate::store::{INLINE_CHARS, Store};
use crate::tool::basis::{Basis, Script};
use crate::tool::environment::Environment;
use crate::tool::printing::Printing;
use crate::tool::sandbox::Sandbox;
use crate::tool::workspace::Workspace;
use crate::tool::wrapper::Wrapper;
pub use crate::tool_spec::ToolSpec;
use crate::turn::{FileChange, FileUse, Process};

/// Time limit of a call whose tool names no other: the limit of the documented shell tool.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The longest time limit that a call may ask for in a task that has none: enough for a large build.
pub const LONGEST_TIME_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Context of a call: what the call may use.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// Files that the call may touch.
    #[doc(hidden)]
    pub workspace: Arc<Workspace>,
    /// Result store for the full output of the call.
    #[doc(hidden)]
    pub store: Arc<Store>,
    /// The identity of the call.
    #[doc(hidden)]
    pub key: CallKey,
    /// Environment variables for the processes of the call.
    #[doc(hidden)]
    pub env: Environment,
    /// What the agent's model reads besides text.
    #[doc(hidden)]
    pub media: Arc<[Media]>,
    /// What the decision rested on that the call may run.
    #[doc(hidden)]
    pub basis: Basis,
    /// Skill folders that the agent may load.
    #[doc(hidden)]
    pub skills: Arc<[String]>,
    /// Time limit of the call.
    pub timeout: Duration,
    /// The longest one that a call may ask for instead.
    pub longest: Duration,
    /// Time that a process has to end after the polite signal (SIGTERM).
    #[doc(hidden)]
    pub grace_period: Duration,
    /// Time that a command in a wrapper has to end after this process has died.
    #[doc(hidden)]
    pub orphan_grace: Duration,
    /// Token that fires when the call has to end.
    #[doc(hidden)]
    pub cancel: CancellationToken,
    /// Receiver of the announcement that the effect begins, for tools that announce themselves.
    #[doc(hidden)]
    pub announce: Arc<dyn Announce>,
    /// The files that searches must not find.
    #[doc(hidden)]
    pub unseen: Unseen,
    /// The sandbox of commands.
    #[doc(hidden)]
    pub sandbox: Sandbox,
    /// True if the call may change no files of the workspace.
    #[doc(hidden)]
    pub read_only: bool,
    /// Program that runs commands as a wrapper. If absent, this process runs them.
    #[doc(hidden)]
    pub wrapper: Option<Arc<Wrapper>>,
    /// Takes what a command prints while it runs, if anything does.
    #[doc(hidden)]
    pub printing: Option<Arc<dyn Printing>>,
}

impl ToolContext {
    /// Returns the key of the call, which no other call has. A call that is made again after a crash has
    /// it too, so it serves as a key that keeps an effect from happening twice.
    #[must_use]
    pub fn call(&self) -> String {
        self.key.to_string()
    }

    /// Returns the folder in which the run works, without links.
    #[must_use]
    pub fn workspace_path(&self) -> &Path {
        self.workspace.root_path()
    }

    /// Returns true if the call may change no files of the workspace.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Waits until the call is cancelled. A tool that does not look is dropped after the grace period, and any whose
    /// time is over is dropped at once.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

/// Receives the announcement that a call begins.
pub trait Announce: Send + Sync + std::fmt::Debug {
    /// Records that the call begins, with its process group if it has one. The record is durable
    /// when this returns, and only then may the call have its effect.
    fn announce(&self, process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>>;
}

/// Ignores announcements, for calls that need no record.
impl Announce for () {
    fn announce(&self, _process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async { Ok(()) })
    }
}

/// The way in which a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The call did its work.
    #[default]
    Done,
    /// The call could not do its work; the output gives the reason.
    Failed,
    /// A permission rule or a person forbade the call; the output gives the reason.
    Denied,
    /// A limit of the run refused the call; the output gives the reason.
    Refused,
    /// The process ended by itself with this exit code; 128 + n if signal n ended it.
    Exited(i32),
    /// The call reached its time limit, and its process was asked to end. It has an exit code if
    /// the process and all of its group ended within the grace period, and none if any of them had
    /// to be killed.
    TimedOut(Option<i32>),
    /// The call was cancelled, and its process was asked to end, with an exit code under the same
    /// condition. Without an exit code, nobody knows how much of the work was done.
    Cancelled(Option<i32>),
}

/// Output of a call, in one form on the whole way from the process, or the tool, to the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// Text for the model: the whole output, or a preview that names the place of the whole.
    pub text: String,
    /// Stored result that holds the whole output, if `text` is a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
    /// The way in which the call ended.
    #[serde(default)]
    pub ending: Ending,
    /// Text of stderr, if it was kept apart from stdout: all of it, or a preview.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub errors: String,
    /// Stored result that holds all of stderr, if `errors` is a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_stored: Option<Stored>,
    /// The last lines of stdout and stderr in the order in which they came, if they were kept apart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_lines: String,
    /// What the sandbox refused, or may have refused, a command of a task, and the key that would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The image or the PDF that stands behind the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Json>,
    /// The file that the call read or changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Box<FileUse>>,
    /// True if the command left processes behind, which had to be ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_behind: bool,
}

impl ToolOutput {
    /// A successful output that is given whole.
    #[must_use]
    pub fn ok(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A failed output that is given whole.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), ending: Ending::Failed, ..Self::default() }
    }

    /// The output of a call that was denied, with the reason.
    #[must_use]
    pub fn denied(reason: impl Into<String>) -> Self {
        Self { text: reason.into(), ending: Ending::Denied, ..Self::default() }
    }

    /// The output of a call that a limit of the run refused, with the reason.
    #[must_use]
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { text: reason.into(), ending: Ending::Refused, ..Self::default() }
    }

    /// Makes a successful output of a text of any length: a long text is stored and previewed.
    /// Blocks.
    ///
    /// # Errors
    /// Returns an error if the disk refuses the output.
    pub fn of_text(store: &Store, text: &str) -> Result<Self, ToolError> {
        let output = store.present(text.as_bytes(), INLINE_CHARS);
        let what = "store the output".to_owned();
        let Output { text, stored } = output.map_err(|source| ToolError::Io { what, source })?;
        Ok(Self { stored, ..Self::ok(text) })
    }

    /// Returns true if the model reads that the call failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !matches!(self.ending, Ending::Done | Ending::Exited(0))
    }

    /// Returns the exit code of the process, if it had one.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        match self.ending {
            Ending::Exited(code) => Some(code),
            Ending::TimedOut(code) | Ending::Cancelled(code) => code,
            Ending::Done | Ending::Failed | Ending::Denied | Ending::Refused => None,
        }
    }

    /// Returns true if the call was cancelled while it was at work, whatever its exit code.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        matches!(self.ending, Ending::Cancelled(_))
    }

    /// Returns the text and the stored result.
    #[must_use]
    pub fn into_output(self) -> Output {
        Output { text: self.text, stored: self.stored }
    }
}

/// The change of a file by a call that has not run yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path, as the model wrote it.
    pub path: String,
    /// The content now; `None` if there is no such file, or if it is no text.
    pub before: Option<String>,
    /// The content after the call.
    pub after: String,
}

/// Error of a call that could not do its work; the model reads its text as an error result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The arguments do not fit the schema.
    #[error("bad arguments: {0}")]
    Arguments(String),
    /// The path leads out of the workspace.
    #[error("`{0}` is outside the workspace")]
    Outside(String),
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The call took longer than its time limit.
    #[error("timed out after {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The call was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The agent had to end before a person had answered whether the call may run.
    #[error("nobody has answered whether it may run")]
    Unanswered,
    /// The process that ran the call is gone, and nobody knows how much of the call was done; with what its command had
    /// printed, if anything is left of it.
    #[error("the process that ran the call is gone")]
    Lost(Option<Box<ToolOutput>>),
    /// The file has another content than the one that the decision on the call rests on.
    #[error(
        "`{0}` was changed after it was decided whether the call may run; nothing was written. Read the \
         file before you change it"
    )]
    Changed(String),
    /// Any other failure that the model can act on.
    #[error("{0}")]
    Failed(String),
}

impl ToolError {
    /// Returns the text of the error result that a model reads.
    #[must_use]
    pub fn message_for_model(&self) -> String {
        format!("Error: {self}")
    }
}

/// A tool that a model can call.
///
/// ```
/// # mod callsheet {
/// #     pub use callsheet_tools::tool::*;
/// #     pub use callsheet_words::{id::Name, message::Json, tool_spec::Effect};
/// # }
/// use callsheet::{
///     BoxFuture, Effect, Json, Name, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments,
/// };
///
/// /// Adds numbers.
/// struct Sum(ToolSpec);
///
/// impl Sum {
///     fn new() -> Self {
///         let schema = r#"{"type":"array","items":{"type":"number"}}"#;
///         Self(ToolSpec {
///             name: Name::new("sum").expect("a name"),
///             description: "Adds numbers.".to_owned(),
///             input_schema: Json::parse(schema.to_owned()).expect("JSON"),
///             effect: Effect::Pure,
///             reads_only: true,
///         })
///     }
/// }
///
/// impl Tool for Sum {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     fn call(&self, input: Json, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
///         Box::pin(async move {
///             let numbers: Vec<f64> = arguments(&input)?;
///             Ok(ToolOutput::ok(numbers.iter().sum::<f64>().to_string()))
///         })
///     }
/// }
/// ```
pub trait Tool: Send + Sync {
    /// Returns the description of the tool.
    fn spec(&self) -> &ToolSpec;

    /// Checks the arguments of a call before it is decided whether the call may run.
    ///
    /// # Errors
    /// Returns [`ToolError::Arguments`] if they cannot be used, whoever may allow the call.
    fn check(&self, _input: &Json) -> Result<(), ToolError> {
        Ok(())
    }

    /// Returns the texts by which permission rules may name a call, such as a command and its
    /// parts, or a path. A rule that allows must fit all of them; a rule that asks or denies, any
    /// of them.
    fn permission_arguments(&self, _input: &Json, _workspace: &Workspace) -> Vec<String> {
        Vec::new()
    }

    /// Returns what a call does, as permission rules see it: by default one thing, with the texts of
    /// [`Tool::permission_arguments`].
    fn subject(&self, input: &Json, workspace: &Workspace) -> Subject {
        Subject::of(self.spec().name.as_str(), self.permission_arguments(input, workspace))
    }

    /// Returns the change that a call would make to a file, for a person who is asked to allow it;
    /// `None` if the call changes no file or the change is not known. May block.
    fn preview(&self, _input: &Json, _workspace: &Workspace) -> Option<Change> {
        None
    }

    /// Returns the files of the workspace that a call would run, as they are now, for a person who is asked
    /// to allow it. May block.
    fn scripts(&self, _input: &Json, _workspace: &Workspace) -> Vec<Script> {
        Vec::new()
    }

    /// Returns what else decides what a call would run, which is not among [`Tool::scripts`] and may change
    /// before it runs, in words for a person who is asked to allow it. May block.
    fn unbound(&self, _input: &Json, _workspace: &Workspace) -> Vec<String> {
        Vec::new()
    }

    /// Returns the time limit of a call. The caller drops the call at the limit, and also when its
    /// agent has to end and the call has not ended within the grace period. A tool that returns
    /// `None` keeps to both limits itself, because it has something to clean up.
    fn time_limit(&self) -> Option<Duration> {
        Some(TIME_LIMIT)
    }

    /// Returns what becomes of a call whose outcome nobody knows; `None` if the task decides.
    fn on_unknown(&self) -> Option<OnUnknown> {
        None
    }

    /// Returns true if a call reports by [`ToolContext::announce`] that its effect begins. For any
    /// other tool the caller records the beginning before it makes the call.
    fn announces_itself(&self) -> bool {
        false
    }

    /// Returns the change that a call of an [`Effect::Checked`](crate::tool_spec::Effect::Checked) tool would make now, without making
    /// it, or `None` if the change cannot be known. After a crash it shows if the call has
    /// happened. Blocks.
    fn foresee(&self, _input: &Json, _workspace: &Workspace) -> Option<FileChange> {
        None
    }

    /// Does the work. The input is a JSON object that was not checked against the schema yet.
    ///
    /// # Errors
    /// Returns an error if the work could not be done; the model reads the error.
    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;
}

/// Decodes the arguments of a call.
///
/// # Errors
/// Returns [`ToolError::Arguments`] with the place and the reason if the input does not decode.
pub fn arguments<T: serde::de::DeserializeOwned>(input: &Json) -> Result<T, ToolError> {
    input.decode().map_err(|error| ToolError::Arguments(error.to_string()))
}

#[cfg(test)]
mod tests;
