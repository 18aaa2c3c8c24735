//! The place of a task in a sub-graph: the names and inputs that its templates see.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::Name;

/// The sub-graph to which a task belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubGraph {
    /// The name of the task that stands for the sub-graph.
    pub name: Name,
    /// The inputs of the sub-graph, which its templates and commands see in place of those of the run.
    pub inputs: Map<String, Value>,
}

impl SubGraph {
    /// Returns the name of a task by which the templates of the sub-graph name it; `None` for a task
    /// outside.
    #[must_use]
    pub fn local<'a>(&self, task: &'a Name) -> Option<&'a str> {
        task.as_str().strip_prefix(self.name.as_str())?.strip_prefix('/')
    }
}
