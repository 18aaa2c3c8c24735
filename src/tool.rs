//! The port to tools: what a tool declares, what a call gets, what it gives back.
//!
//! Implementations live in `tool/`. A tool never imports an actor or the journal; tools that need
//! the agent's own state (`delegate`, `compact`, `recall`, `todo_write`) are steps of the agent, and only
//! their specs live here.

pub mod bash;
mod blocking;
mod command;
pub mod files;
pub mod hook;
pub mod process;
pub mod search;
pub mod skills;
pub mod spool;
pub mod steps;
pub mod workspace;
pub mod wrapper;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::id::{CallKey, Name};
use crate::message::Json;
use crate::output::{Output, Stored};
use crate::store::{INLINE_CHARS, Store};
use crate::tool::workspace::Workspace;
use crate::tool::wrapper::Wrapper;
use crate::turn::{Effect, FileChange, Process};

/// A future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a model is told of a tool, and what callsheet must know of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: Name,
    /// What it does, for the model.
    pub description: String,
    /// Its arguments: a JSON Schema of type `object`.
    pub input_schema: Json,
    /// What a repeated call would do.
    #[serde(skip)]
    pub effect: Effect,
    /// Whether a call changes nothing: such calls of one turn run in parallel.
    #[serde(skip)]
    pub reads_only: bool,
}

/// The longest that a call may take unless its tool says otherwise: the limit of the documented
/// shell tool.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);

/// What a call may use.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The files it may touch.
    pub workspace: Arc<Workspace>,
    /// Where its full output goes.
    pub store: Arc<Store>,
    /// The identity of the call.
    pub key: CallKey,
    /// Environment variables for processes.
    pub env: Arc<BTreeMap<String, String>>,
    /// Variables of this program that processes must not see: those that hold keys.
    pub hidden_env: Arc<[String]>,
    /// Skill folders that this agent may load.
    pub skills: Arc<[String]>,
    /// The longest the call may take.
    pub timeout: Duration,
    /// How long a process may take to end after the polite signal.
    pub grace_period: Duration,
    /// Fires when the call is to end.
    pub cancel: CancellationToken,
    /// Told before the call has an effect, by tools that announce themselves.
    pub announce: Arc<dyn Announce>,
    /// The program that runs commands as a wrapper; absent: they are run by this one.
    pub wrapper: Option<Arc<Wrapper>>,
}

/// Hears that a call begins.
pub trait Announce: Send + Sync + std::fmt::Debug {
    /// Records that the call begins, in this process group if it has one. When it returns, the
    /// record is durable, and the call may have its effect.
    fn announce(&self, process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>>;
}

/// Nobody has to know.
impl Announce for () {
    fn announce(&self, _process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async { Ok(()) })
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It did its work.
    #[default]
    Done,
    /// It could not do its work, and the output says why.
    Failed,
    /// Its process ended by itself, with this exit code; 128 + n when signal n ended it.
    Exited(i32),
    /// It took too long, and its process was told to end: with this exit code where it and all of
    /// its group did so within the grace period, and with none where something had to be killed.
    TimedOut(Option<i32>),
    /// It was cancelled, and its process was told to end, likewise. With no exit code nobody knows
    /// how far it came.
    Cancelled(Option<i32>),
}

/// The end of a call: the one form from the process, or the tool, to the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The text for the model: the whole output, or a preview that names where the whole is.
    pub text: String,
    /// The stored whole, when `text` is a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<Stored>,
    /// How it ended.
    #[serde(default)]
    pub ending: Ending,
    /// The text of stderr, where that was kept apart.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub errors: String,
    /// Processes were left behind and had to be ended.
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

    /// A successful output of any length, stored and previewed where it is long. Blocks.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn of_text(store: &Store, text: &str) -> Result<Self, ToolError> {
        let output = store.present(text.as_bytes(), INLINE_CHARS);
        let what = "store the output".to_owned();
        let Output { text, stored } = output.map_err(|source| ToolError::Io { what, source })?;
        Ok(Self { stored, ..Self::ok(text) })
    }

    /// True if the model is told that the call failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !matches!(self.ending, Ending::Done | Ending::Exited(0))
    }

    /// The exit code of the process, if it had one.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        match self.ending {
            Ending::Exited(code) => Some(code),
            Ending::TimedOut(code) | Ending::Cancelled(code) => code,
            Ending::Done | Ending::Failed => None,
        }
    }

    /// True if it was cancelled while it was at work, however it ended then.
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        matches!(self.ending, Ending::Cancelled(_))
    }

    /// Its text, and where the whole is stored.
    #[must_use]
    pub fn into_output(self) -> Output {
        Output { text: self.text, stored: self.stored }
    }
}

/// A call that could not do its work; the model reads the text as an error result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The arguments are not what the schema asks for.
    #[error("bad arguments: {0}")]
    Arguments(String),
    /// The path leads out of the workspace.
    #[error("`{0}` is outside the workspace")]
    Outside(String),
    /// The operating system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done to what.
        what: String,
        /// Why it did not work.
        source: std::io::Error,
    },
    /// The call took longer than it may.
    #[error("timed out after {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The call was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// What ran the call is gone, and what became of the call is not known.
    #[error("the process that ran the call is gone")]
    Lost,
    /// Anything else that the model can act on.
    #[error("{0}")]
    Failed(String),
}

impl ToolError {
    /// The text of the error result that a model reads.
    #[must_use]
    pub fn told(&self) -> String {
        format!("Error: {self}")
    }
}

/// A tool.
pub trait Tool: Send + Sync {
    /// What the model is told, and what callsheet must know.
    fn spec(&self) -> &ToolSpec;

    /// The texts by which permission rules may name a call: a command and its parts, a path. A rule
    /// that allows must fit all of them; one that asks or denies, any.
    fn permission_arguments(&self, _input: &Json, _workspace: &Workspace) -> Vec<String> {
        Vec::new()
    }

    /// The longest that a call may take; it is dropped then, and also when it has not ended within
    /// the grace period after its agent was told to end. `None`: the tool sees to both itself,
    /// because it has something to clean up.
    fn time_limit(&self) -> Option<Duration> {
        Some(TIME_LIMIT)
    }

    /// Whether a call tells by [`ToolContext::announce`] when its effect begins; else that is told
    /// for it before it is made.
    fn announces_itself(&self) -> bool {
        false
    }

    /// What a call of a [`Effect::Checked`] tool would change now, without changing it; `None` when
    /// that cannot be told. After a crash it says whether the call has happened. Blocks.
    fn foresee(&self, _input: &Json, _workspace: &Workspace) -> Option<FileChange> {
        None
    }

    /// Does the work. The input is a JSON object but is not checked against the schema yet.
    ///
    /// # Errors
    /// When the work could not be done; the model reads the error.
    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;
}

/// Decodes a call's arguments, and says what is wrong with them.
///
/// # Errors
/// [`ToolError::Arguments`] with the place and the reason.
pub fn arguments<T: serde::de::DeserializeOwned>(input: &Json) -> Result<T, ToolError> {
    input.decode().map_err(|error| ToolError::Arguments(error.to_string()))
}

/// The tools of a run, by name.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<Name, Arc<dyn Tool>>,
}

impl Toolbox {
    /// The built-in tools that do work outside the agent.
    #[must_use]
    pub fn built_in() -> Self {
        let mut tools = Self::default();
        let all = bash::tools().into_iter().chain(files::tools()).chain(search::tools());
        for tool in all.chain(skills::tools()) {
            tools.insert(tool);
        }
        tools
    }

    /// Adds a tool, or replaces the one of that name.
    pub fn insert(&mut self, tool: Arc<dyn Tool>) {
        self.tools.insert(tool.spec().name.clone(), tool);
    }

    /// The tool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.tools.keys()
    }
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}
