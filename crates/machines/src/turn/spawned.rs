//! The beginning of an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CheckPlace, Program};
use crate::id::{AgentId, CallKey, Name};
use crate::message::Json;
use crate::spec::budget::Caps;

/// `agent.spawned`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentSpawned {
    /// Program that the agent runs.
    pub program: Program,
    /// Delegation depth; a task's main agent is at 0.
    pub depth: u32,
    /// Agent that delegated to this one, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
    /// Call of the parent that asked for this agent, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallKey>,
    /// Definitions of the agents for which it works, from its parent upwards: what they may not do
    /// binds it too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<Name>,
    /// The check that it makes of its parent's answer, if it makes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckPlace>,
    /// JSON Schema that its answer must fit, for providers that hold the model to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_schema: Option<Json>,
    /// The longest time that a child may take, in milliseconds, if its parent set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The most that a child may spend, with all that works for it, if its parent set limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Caps>,
    /// True if its parent does not wait for it: its result is a message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
}

impl AgentSpawned {
    /// Creates the record of a task's own agent.
    #[must_use]
    pub fn main(program: Program) -> Self {
        let (parent, call, check, answer_schema, timeout_ms, budget) = Default::default();
        let (depth, lineage, background) = Default::default();
        Self {
            program,
            depth,
            parent,
            call,
            lineage,
            check,
            answer_schema,
            timeout_ms,
            budget,
            background,
        }
    }
}
