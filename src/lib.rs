//! callsheet runs teams of LLM agents from one file, `agents.toml`, as supervised actors.
//!
//! A *run* is one execution of a *plan*: tasks, and what each waits for. A task is given to an
//! *agent*, which talks with a model and runs tools, turn by turn, and may delegate to child
//! agents. Everything that happens is an *event* in the run's *journal*; what is shown, decided
//! and resumed is a fold of it.
//!
//! The names below are all that a program needs that embeds callsheet. [`Launch`] takes a
//! configuration, and the [`Model`]s, [`Tool`]s and people ([`Asker`], [`Watcher`]) of the program; it gives a
//! [`Run`], which can be waited for, and its [`Client`], through which the run is followed, steered and answered; other
//! processes have a client of the same run. [`RunEnd`] has the outputs. What stands
//! in `#[doc(hidden)]` modules serves the program `callsheet`, its tests and its benchmarks, and
//! may change at any time.
//!
//! ```
//! use callsheet::{Launch, Script, Scripted};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let agents = r#"
//!     version = 1
//!     [agents.greeter]
//!     instructions = "You greet people."
//!     [tasks.greet]
//!     agent = "greeter"
//!     prompt = "Greet Ada."
//! "#;
//! let model = Scripted::new(Script::parse("[[rules]]\nsay = 'Good morning, Ada.'")?);
//! let run = Launch::text(agents, directory.path()).model("default", model)?.start().await?;
//! let end = run.wait().await;
//! assert_eq!(end.output("greet")?.as_deref(), Some("Good morning, Ada."));
//! # Ok(())
//! # }
//! ```

// Runs: started, followed, steered, waited for, resumed.
#[doc(inline)]
pub use crate::client::{
    Acknowledgement, Client, ClientError, Given, Operation, Parts, Update, Updates,
};
#[doc(inline)]
pub use crate::journal::cut::{Cut, CutError};
#[doc(inline)]
pub use crate::journal::source::{Cursor, RecordedRun, RunSource};
#[doc(inline)]
pub use crate::run::{
    CancelTarget, Completed, Launch, Run, RunEnd, StartError, StoppedRun, delta_feed::DeltaLine,
};

// People beside a run: they answer its questions and watch its replies.
#[doc(inline)]
pub use crate::person::{Asker, Consent, Question, Watcher};
#[doc(inline)]
pub use crate::tool::Change;
#[doc(inline)]
pub use crate::tool::basis::Script as ScriptFile;
#[doc(inline)]
pub use crate::turn::question::{
    ApprovalAnswered, ApprovalAsked, ApprovalKind, PersonsAnswer, Shown,
};

// Events of a run, and what they say of its end.
#[doc(inline)]
pub use crate::event::{Event, Record, RunCompleted, RunPaused, RunStatus, TaskEnd};
#[doc(inline)]
pub use crate::failure::{Failure, FailureKind};
#[doc(inline)]
pub use crate::journal::JournalError;
#[doc(inline)]
pub use crate::journal::follow::Follower;
#[doc(inline)]
pub use crate::journal::local::run_at;
#[doc(inline)]
pub use crate::plan::TaskState;
#[doc(inline)]
pub use crate::store::StoreError;

// Configuration.
#[doc(inline)]
pub use crate::config::{Config, Diagnostics, Sources, load};

// Models of the program.
#[doc(inline)]
pub use crate::message::{Message, StopReason, Usage};
#[doc(inline)]
pub use crate::model::script::{Script, ScriptError};
#[doc(inline)]
pub use crate::model::scripted::Scripted;
#[doc(inline)]
pub use crate::model::{
    BoxFuture, Delta, DeltaSink, ErrorClass, Model, ModelError, Reply, Request,
};

// Tools of the program.
#[doc(inline)]
pub use crate::id::{AgentId, BadName, Name, RunId};
#[doc(inline)]
pub use crate::message::Json;
#[doc(inline)]
pub use crate::tool::wrapper::serve_if_asked;
#[doc(inline)]
pub use crate::tool::{Ending, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments};
#[doc(inline)]
pub use crate::tool_spec::Effect;

// The crates below, from bottom to top: the program, its tests and its benchmarks name their modules as
// their own. What nothing but the program uses is private.
#[doc(hidden)]
pub use callsheet_context::context;
#[doc(hidden)]
pub use callsheet_engine::{actor, client, config, person, report, run, show, trust};
#[doc(hidden)]
pub use callsheet_journal::{conversation, crash, fault, journal, store};
#[doc(hidden)]
pub use callsheet_machines::call_machine::simulation as governor;
#[doc(hidden)]
pub use callsheet_machines::{event, messages, plan, run_state, template, turn, turn_machine, why};
#[doc(hidden)]
pub use callsheet_models::model;
#[doc(hidden)]
pub use callsheet_tools::tool;
#[doc(hidden)]
pub use callsheet_words::{failure, foreign, id, message, output, policy, redaction, schema, spec};

use callsheet_journal::disk;
use callsheet_machines::run_machine;
use callsheet_words::{duration, glob, printable, spending, tool_spec};

#[doc(hidden)]
pub mod cli;
mod exit;

#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Library;
