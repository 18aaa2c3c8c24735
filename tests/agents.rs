//! Agents at work: their tools, delegation, crashes, proposals, and what an agent leaves that ends without an answer.

mod answered;
mod background;
mod clients;
mod delegation;
mod guests;
mod loops;
mod messages;
pub(crate) mod own_tools;
mod pauses;
pub(crate) mod proposals;
mod resting;
mod results;
mod spawn_rate;
mod stale_writes;
mod supervision;
mod tools;
mod unknown;
