//! The tools of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Tool, bash, files, search, skills};
use crate::id::Name;

/// The tools of a run, by name.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: BTreeMap<Name, Arc<dyn Tool>>,
}

impl Toolbox {
    /// Returns the built-in tools that do work outside the agent.
    #[must_use]
    pub fn built_in() -> Self {
        let mut tools = Self::default();
        let all = bash::tools().into_iter().chain(files::tools()).chain(search::tools());
        for tool in all.chain(skills::tools()) {
            tools.insert(tool);
        }
        tools
    }

    /// Adds a tool, and replaces a tool of the same name.
    pub fn insert(&mut self, tool: Arc<dyn Tool>) {
        self.tools.insert(tool.spec().name.clone(), tool);
    }

    /// Returns the tool with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }

    /// Returns the names of the tools, sorted.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.tools.keys()
    }
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}
