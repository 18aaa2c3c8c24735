//! callsheet runs teams of LLM agents from one file as supervised actors.

pub mod id;
pub mod message;
pub mod output;

pub mod context;
pub mod event;
pub mod failure;
pub mod permission;
pub mod plan;
pub mod policy;
pub mod spec;
pub mod template;
pub mod turn;

pub mod journal;
pub mod model;
pub mod tool;

pub mod config;
