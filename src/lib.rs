//! callsheet runs teams of LLM agents from one file, `agents.toml`, as supervised actors.
//!
//! A *run* is one execution of a *plan*: tasks, and what each waits for. A task is given to an
//! *agent*, which talks with a model and runs tools, turn by turn, and may delegate to child
//! agents. Everything that happens is an *event* in the run's *journal*; what is shown, decided
//! and resumed is a fold of it.
//!
//! The layers, from bottom to top; imports point down only:
//!
//! - words: [`id`], [`message`], [`output`], [`spending`],
//!   [`failure`];
//! - decisions, pure and synchronous: [`policy`], [`permission`], [`redaction`], [`spec`], [`template`],
//!   [`plan`], [`context`], [`turn`], [`event`], [`turn_machine`], [`turn_boundary`],
//!   [`run_state`], [`admission`], [`run_machine`];
//! - ports and their implementations: [`crash`], [`journal`], [`conversation`], [`tool`], [`model`];
//! - [`actor`]: supervisor, agent, compactor, transcript writer, gateway;
//! - application: [`config`], [`run`], [`report`];
//! - the command line: [`cli`], [`exit`].
//!
//! ```no_run
//! use callsheet::config::{self, Sources};
//! use callsheet::run::{Options, Run};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = config::load(&Sources::new("agents.toml").with_process_environment())?;
//! let run = Run::start(config, Options::default()).await?;
//! println!("run {} ended: {:?}", run.id(), run.wait().await);
//! # Ok(())
//! # }
//! ```

pub mod failure;
pub mod id;
pub mod message;
pub mod output;
pub mod spending;

pub mod permission;
pub mod policy;
pub mod redaction;

pub mod spec;

pub mod template;

pub mod plan;

pub mod context;

pub mod turn;

pub mod event;

pub mod turn_machine;

pub mod turn_boundary;

pub mod run_state;

pub mod admission;
pub mod run_machine;

pub mod crash;
pub mod disk;
pub mod store;

pub mod conversation;
pub mod journal;
pub mod model;
pub mod tool;

pub mod actor;

pub mod config;
pub mod report;
pub mod run;

pub mod cli;
pub mod exit;
