//! The actors of a run.
//!
//! [`supervisor`] owns the run; an [`agent`] owns one conversation; [`compactor`],
//! [`transcript_writer`] and [`gateway`] serve them. Actors communicate by mail only ([`mail`]).
//! [`services`] holds the values and handles that they share, [`addresses`] the table by which they
//! find each other.
//!
//! Mailboxes are unbounded in ractor, so each kind of mail has a bound of its own:
//! - An agent has one step in progress and at most one summary that is written ahead; each of them
//!   mails one result. A step asks at most one question of each other actor at a time; only for
//!   delegations it asks one for each `delegate` call of its turn. While all its calls wait for others, the
//!   step wishes to rest at most once a second.
//! - For each commit batch the supervisor receives one message without content. The records wait in
//!   a bounded feed ([`transcript_writer::feed`]), and the journal waits when the feed is full.

pub mod addresses;
pub mod agent;
pub mod agent_steps;
mod asked;
pub mod briefing;
mod call_records;
mod carry_over;
mod children;
pub mod compaction_step;
pub mod compactor;
pub mod ends;
mod fallback;
pub mod gateway;
mod given;
mod hooks;
pub mod lost_calls;
pub mod mail;
mod messages;
mod meter;
mod model_attempt;
pub mod model_call;
pub mod model_service;
mod notify;
mod outside;
pub mod permission;
mod proposing;
pub mod pulse;
pub mod questions;
mod recall;
pub mod record_right;
pub mod replies;
mod reserving;
pub mod run_end;
pub mod services;
pub(crate) mod spans;
pub mod step;
mod summarise;
pub mod summary;
pub mod supervisor;
pub mod surroundings;
mod teller;
mod ticket;
pub mod tool_context;
mod tool_run;
pub mod transcript_writer;
mod unknown;
pub mod waits;
mod warm_up;
mod work;
