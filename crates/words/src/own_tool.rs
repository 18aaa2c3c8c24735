//! The tools that are steps of an agent itself, because they need its state or its run.
//!
//! Owns the one table of them: their names, arguments, effects, permissions and waits. A call gets
//! its [`Callee`] where the reply that made it is taken in; everywhere else asks that type. Performs
//! nothing.

mod arguments;

use std::sync::Arc;

use serde_json::Value;

pub use self::arguments::{
    AskPerson, CheckChild, ChildBudget, Compact, Delegate, GiveUp, ListAgents, ProposeTasks,
    Recall, SendMessage, Snip, StopChild, TodoWrite, Wait, Wording,
};
pub use self::arguments::{CompactTool, SnipTool};
use crate::id::Name;
use crate::message::{Json, ToolCall};
use crate::tool_spec::{Effect, ToolSpec};

macro_rules! own_tools {
    ($($(#[doc = $doc:literal])*
        $tool:ident = $name:literal: $effect:ident, $permission:ident, $waits:ident;)*) => {
        /// A tool of the agent's own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OwnTool { $($(#[doc = $doc])* $tool,)* }

        /// A call of such a tool, with its arguments.
        #[derive(Clone, Debug, PartialEq)]
        pub enum OwnCall { $($(#[doc = $doc])* $tool($tool),)* }

        impl OwnTool {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$tool),*];

            /// Returns the name by which models call it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$tool => $name,)* }
            }

            /// Returns the tool with this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$tool),)* _ => None }
            }

            /// Returns the effect of a repeated call.
            #[must_use]
            pub const fn effect(self) -> Effect {
                match self { $(Self::$tool => Effect::$effect,)* }
            }

            /// Returns what permission rules have to say of its calls.
            #[must_use]
            pub const fn permission(self) -> Permission {
                match self { $(Self::$tool => Permission::$permission,)* }
            }

            /// Returns for whom a call waits.
            #[must_use]
            pub const fn waits_for(self) -> WaitsFor {
                match self { $(Self::$tool => WaitsFor::$waits,)* }
            }

            fn read(self, input: &Json) -> Result<OwnCall, serde_json::Error> {
                match self { $(Self::$tool => input.decode().map(OwnCall::$tool),)* }
            }

            fn describe(self, wording: &Wording<'_>) -> Option<(String, Value)> {
                match self { $(Self::$tool => $tool::describe(wording),)* }
            }
        }
    };
}

// Each tool with its name, the effect of a repeated call, its permission, and for whom it waits. The
// order is that of the default rules, which the keys of kept results depend on: add at the end.
own_tools! {
    /// Replaces the agent's todo list.
    TodoWrite = "todo_write": Pure, Given, Nobody;
    /// Gives a job to a child agent. The run knows each child by the key of the call, so a repeated
    /// call finds the child that it started before.
    Delegate = "delegate": Keyed, Given, Children;
    /// Has the conversation summarised.
    Compact = "compact": Pure, Given, Nobody;
    /// Gives back what has left the view.
    Recall = "recall": Pure, Given, Nobody;
    /// Ends the task as failed. An agent that is denied everything must still be able to say so.
    GiveUp = "give_up": Pure, NotNeeded, Nobody;
    /// Drops the middle of the view.
    Snip = "snip": Pure, Needed, Nobody;
    /// Asks a person. The question is known by the key of the call, so a repeated call finds its
    /// answer.
    AskPerson = "ask_person": Keyed, Needed, Person;
    /// Adds tasks to the run. The run knows them by the key of the call, so a repeated call adds
    /// them once.
    ProposeTasks = "propose_tasks": Keyed, Needed, Person;
    /// Sends a message to another agent. The key `messages` of the agent's definition is the permission. The run
    /// knows a message by the key of the call, so a repeated call sends it once.
    SendMessage = "send_message": Keyed, ByKey, Nobody;
    /// Lists the agents to which messages can be sent.
    ListAgents = "list_agents": Pure, ByKey, Nobody;
    /// Waits for children in the background. The key `background` of the agent's definition is the permission, as for
    /// the two below.
    Wait = "wait": Pure, ByKey, Children;
    /// Says how far a child is.
    CheckChild = "check_child": Pure, ByKey, Nobody;
    /// Stops a child. One that is stopped again is stopped.
    StopChild = "stop_child": Pure, ByKey, Nobody;
}

/// What permission rules have to say of an own tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Its calls are not judged.
    NotNeeded,
    /// Its calls are not judged: another key of the configuration permits them, so the default rules do not name it.
    ByKey,
    /// A configuration without rules allows it.
    Given,
    /// A rule must allow it, or a person.
    Needed,
}

impl Permission {
    /// Returns true if rules decide about the calls.
    #[must_use]
    pub const fn is_judged(self) -> bool {
        match self {
            Self::NotNeeded | Self::ByKey => false,
            Self::Given | Self::Needed => true,
        }
    }
}

/// For whom the call of an own tool waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// For nobody.
    Nobody,
    /// For child agents. The agent gives its slot back meanwhile.
    Children,
    /// For a person, whom the call asks by itself: a rule that asks adds no question.
    Person,
}

impl OwnTool {
    /// Returns true if a configuration without rules allows its calls.
    #[must_use]
    pub fn is_given(self) -> bool {
        match self.permission() {
            Permission::NotNeeded | Permission::Given => true,
            Permission::ByKey | Permission::Needed => false,
        }
    }

    /// Returns its description for a model; `None` if the agent is not offered it.
    ///
    /// # Panics
    /// Panics if the table has a name that cannot be a tool's.
    #[must_use]
    pub fn spec(self, wording: &Wording<'_>) -> Option<ToolSpec> {
        let (description, schema) = self.describe(wording)?;
        Some(ToolSpec {
            name: Name::new(self.name()).expect("the names of the table are names"),
            description,
            input_schema: Json::encode(&schema),
            effect: self.effect(),
            reads_only: true,
        })
    }

    /// Returns the texts by which permission rules may name a call. Other arguments may be wrong: a
    /// rule must see what the model wrote.
    #[must_use]
    pub fn rule_texts(self, input: &Json) -> Vec<String> {
        match self {
            // A rule names the agent to which a job is delegated.
            Self::Delegate => {
                input.to_value()["agent"].as_str().map(str::to_owned).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The tool that a call names.
#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    /// A tool of the agent's own, with its arguments, or the reason why they cannot be used.
    Own(OwnTool, Result<Arc<OwnCall>, String>),
    /// A tool that works outside the agent, or none: only who offers the tools knows.
    Other,
}

impl Callee {
    /// Reads the name and the arguments of a call.
    #[must_use]
    pub fn of(call: &ToolCall) -> Self {
        let Some(tool) = OwnTool::named(&call.name) else { return Self::Other };
        Self::Own(tool, tool.read(&call.input).map(Arc::new).map_err(|error| error.to_string()))
    }

    /// Returns the own tool that the call names, whatever its arguments.
    #[must_use]
    pub fn own(&self) -> Option<OwnTool> {
        match self {
            Self::Own(tool, _) => Some(*tool),
            Self::Other => None,
        }
    }

    /// Returns the call of an own tool whose arguments can be used.
    #[must_use]
    pub fn call(&self) -> Option<&OwnCall> {
        match self {
            Self::Own(_, call) => call.as_deref().ok(),
            Self::Other => None,
        }
    }
}

/// Returns true if the tool with this name waits for child agents.
#[must_use]
pub fn waits_for_children(name: &str) -> bool {
    OwnTool::named(name).is_some_and(|tool| tool.waits_for() == WaitsFor::Children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_typed_whatever_a_model_writes() {
        let callee = |name: &str, input: String| {
            let input = Json::parse(input).expect("JSON");
            Callee::of(&ToolCall { id: "c".to_owned(), name: name.to_owned(), input })
        };
        let deep =
            format!("{}{}", r#"{"agent":"a","prompt":"b","output_schema":"#, "[".repeat(120));
        let deep = format!("{deep}{}}}", "]".repeat(120));
        for (name, input, expected) in [
            ("grep", "{}".to_owned(), None),
            ("Delegate", "{}".to_owned(), None),
            ("delegate", "{}".to_owned(), Some(Err("missing field `agent` at line 1 column 2"))),
            ("delegate", deep, Some(Ok(()))),
            (
                "snip",
                r#"{"keep":-1}"#.to_owned(),
                Some(Err("invalid value: integer `-1`, expected usize at line 1 column 10")),
            ),
            (
                "snip",
                r#"{"keep":4,"then":1}"#.to_owned(),
                Some(Err("unknown field `then`, expected `keep` at line 1 column 16")),
            ),
            (
                "give_up",
                "[1]".to_owned(),
                Some(Err("invalid type: integer `1`, expected a string at line 1 column 2")),
            ),
            ("compact", "{}".to_owned(), Some(Ok(()))),
        ] {
            let found = match callee(name, input) {
                Callee::Own(tool, call) => {
                    assert_eq!(tool.name(), name);
                    Some(call.map(drop))
                }
                Callee::Other => None,
            };
            let expected = expected.map(|result: Result<(), &str>| result.map_err(str::to_owned));
            assert_eq!(found, expected, "{name}");
        }
    }
}
