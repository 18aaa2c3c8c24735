//! An agent's inventory: files and skills in use, agents that it started, and its todo list.
//!
//! Pure: follows from the agent's tool calls and their results. It lists what a compaction must not
//! lose; `attachments` brings those things back.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::context::layers::read_state::{ReadState, plain_path};
use crate::context::view::View;
use crate::message::{Json, ToolCall, ToolResult};
use crate::own_tool::{Callee, Delegate, OwnCall, OwnTool};

/// Most characters of a job's description in the list of children: enough to tell two jobs apart
/// and not to give out the same job twice.
const JOB_CHARS: usize = 120;

/// An agent that was started, as the result of its `delegate` call reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Child {
    /// Id of the agent.
    pub agent: String,
    /// Name of its definition.
    pub definition: String,
    /// End state: `completed`, `failed` or `cancelled`.
    pub status: String,
    /// Id of the call that asked for it, by which its result can be found again.
    pub call: String,
    /// Beginning of its job description.
    pub job: String,
}

/// Names in the order of their last use, so that the newest of many are found at once.
#[derive(Clone, Debug, Default)]
struct Recent {
    last: BTreeMap<String, u64>,
    order: BTreeMap<u64, String>,
    uses: u64,
}

impl Recent {
    fn touch(&mut self, name: String) {
        self.uses += 1;
        if let Some(before) = self.last.insert(name.clone(), self.uses) {
            self.order.remove(&before);
        }
        self.order.insert(self.uses, name);
    }

    fn newest_first(&self) -> impl Iterator<Item = &str> {
        self.order.values().rev().map(String::as_str)
    }
}

/// Files, skills, child agents and the todo list of an agent.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    reads: ReadState,
    files: Recent,
    skills: Recent,
    children: Vec<Child>,
    todos: Option<Json>,
    state: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct PathInput {
    path: String,
}

#[derive(Deserialize)]
struct SkillInput {
    name: String,
}

/// The fields of a child's result that are needed here.
#[derive(Deserialize)]
struct ChildOutput {
    agent: String,
    status: String,
}

impl Inventory {
    /// Returns true if such a call changes the inventory.
    #[must_use]
    pub fn follows(call: &ToolCall, callee: &Callee) -> bool {
        match callee.own() {
            Some(own) => [OwnTool::TodoWrite, OwnTool::Delegate].contains(&own),
            None => ["read_file", "write_file", "edit_file", "load_skill"].contains(&&*call.name),
        }
    }

    /// Takes a call and its result, which stands in this message of the conversation.
    pub fn note(&mut self, message: u64, call: &ToolCall, callee: &Callee, result: &ToolResult) {
        match (callee.call(), result.is_error) {
            // A child that failed was started all the same.
            (Some(OwnCall::Delegate(job)), _) => {
                self.children.extend(child(call, job, result));
                self.state = state_block(self.todos.as_ref(), &self.children);
            }
            (Some(OwnCall::TodoWrite(_)), false) => {
                self.todos = Some(call.input.clone());
                self.state = state_block(self.todos.as_ref(), &self.children);
            }
            (None, false) => self.note_use(message, call, result),
            (Some(_) | None, _) => {}
        }
    }

    /// Takes a call of a tool that works outside the agent.
    fn note_use(&mut self, message: u64, call: &ToolCall, result: &ToolResult) {
        match call.name.as_str() {
            "read_file" => {
                if let Ok(PathInput { path }) = call.input.decode() {
                    self.reads.read(message, call, result);
                    self.files.touch(plain_path(&path));
                }
            }
            "write_file" | "edit_file" => {
                if let Ok(PathInput { path }) = call.input.decode() {
                    let path = plain_path(&path);
                    self.reads.written(&path);
                    self.files.touch(path);
                }
            }
            "load_skill" => {
                if let Ok(SkillInput { name }) = call.input.decode() {
                    self.skills.touch(name);
                }
            }
            _ => {}
        }
    }

    /// Takes a read that was answered by a stub: the earlier result that it names counts as new
    /// again.
    pub fn read_again(&mut self, call: &ToolCall, view: &mut View) {
        if let Ok(PathInput { path }) = call.input.decode() {
            self.reads.renew(call, view);
            self.files.touch(plain_path(&path));
        }
    }

    /// Returns the reads whose results may still be in the view.
    #[must_use]
    pub fn reads(&self) -> &ReadState {
        &self.reads
    }

    /// Returns those of the `most` files last read or written that the view no longer shows, newest
    /// first.
    #[must_use]
    pub fn files_out_of(&self, view: &View, most: usize) -> Vec<String> {
        let files = self.files.newest_first().take(most);
        files.filter(|path| !self.reads.shows(path, view)).map(str::to_owned).collect()
    }

    /// Returns the skills that were loaded, the one used last first.
    #[must_use]
    pub fn skills(&self) -> Vec<String> {
        self.skills.newest_first().map(str::to_owned).collect()
    }

    /// Returns the agents that were started, in the order of their calls.
    #[must_use]
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// Returns the todo list as it was last written and the agents that were started, as text:
    /// facts that no summary may paraphrase. The same state gives the same bytes; `None` when there
    /// is neither.
    #[must_use]
    pub fn state(&self) -> Option<Arc<str>> {
        self.state.clone()
    }
}

fn state_block(todos: Option<&Json>, children: &[Child]) -> Option<Arc<str>> {
    let mut lines = Vec::new();
    lines.extend(todos.map(|todos| format!("Your todo list: {}", todos.as_str())));
    if !children.is_empty() {
        lines.push("The agents that you started, one a line:".to_owned());
        lines.extend(children.iter().map(|child| Json::encode(child).as_str().to_owned()));
    }
    (!lines.is_empty()).then(|| lines.join("\n").into())
}

/// Returns the child that a `delegate` call started; `None` when the call was refused.
fn child(call: &ToolCall, asked: &Delegate, result: &ToolResult) -> Option<Child> {
    let output: ChildOutput = serde_json::from_str(&result.text()).ok()?;
    let job = asked.description.as_ref().unwrap_or(&asked.prompt);
    Some(Child {
        agent: output.agent,
        definition: asked.agent.to_string(),
        status: output.status,
        call: call.id.clone(),
        job: job.chars().take(JOB_CHARS).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::ResultContent;

    fn note(inventory: &mut Inventory, tool: &str, input: &serde_json::Value, text: &str) {
        let (id, name) = (format!("c-{text}"), tool.to_owned());
        let call = ToolCall { id, name, input: Json::encode(input) };
        let content = ResultContent::Text(text.to_owned());
        let is_error = text.contains("rror");
        let result = ToolResult { tool_use_id: call.id.clone(), content, is_error };
        let callee = Callee::of(&call);
        assert!(Inventory::follows(&call, &callee));
        inventory.note(1, &call, &callee, &result);
    }

    #[test]
    fn children_are_those_that_were_started() {
        let mut inventory = Inventory::default();
        let job = json!({"agent": "helper", "prompt": "p".repeat(500)});
        note(&mut inventory, "delegate", &job, "Error: the delegation depth of 3 is reached");
        note(&mut inventory, "delegate", &job, r#"{"status":"completed","agent":"work/helper-1"}"#);
        let failed = r#"{"status":"failed","agent":"work/helper-2","error":"Error"}"#;
        note(&mut inventory, "delegate", &job, failed);
        let known: Vec<_> = inventory.children().iter().map(|c| (&*c.agent, &*c.status)).collect();
        assert_eq!(known, [("work/helper-1", "completed"), ("work/helper-2", "failed")]);
        assert_eq!(inventory.children()[0].job.len(), JOB_CHARS);
    }

    #[test]
    fn the_newest_of_a_name_counts_and_failures_do_not() {
        let mut inventory = Inventory::default();
        for (name, text) in [("a", "A"), ("b", "B"), ("c", "Error: no"), ("a", "A")] {
            note(&mut inventory, "load_skill", &json!({"name": name}), text);
        }
        assert_eq!(inventory.skills(), ["a", "b"]);
        for text in ["1 pending", "Error: bad arguments"] {
            let todos = json!({"todos": [{"content": text, "status": "pending"}]});
            note(&mut inventory, "todo_write", &todos, text);
        }
        assert!(inventory.state().is_some_and(|state| state.contains("1 pending")));
    }

    fn children(count: usize) -> Vec<Child> {
        let child = |n| Child {
            agent: format!("work/helper-{n}"),
            definition: "helper".to_owned(),
            status: "completed".to_owned(),
            call: format!("toolu_{n}"),
            job: "say \"hi\"\nand go".to_owned(),
        };
        (1..=count).map(child).collect()
    }

    #[test]
    fn the_same_state_gives_the_same_bytes() {
        let todos = Json::encode(&serde_json::json!({"todos": [{"content": "a", "status": "x"}]}));
        let block = state_block(Some(&todos), &children(2));
        assert_eq!(block, state_block(Some(&todos.clone()), &children(2)));
        let block = block.expect("a block");
        let lines: Vec<_> = block.lines().collect();
        assert_eq!(lines.len(), 4, "a name with a line break is still one line: {block}");
        assert_eq!(lines[0], format!("Your todo list: {}", todos.as_str()));
        // One child more changes no line before it.
        assert!(state_block(Some(&todos), &children(3)).expect("a block").starts_with(&*block));
    }
}
