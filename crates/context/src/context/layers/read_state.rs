//! The files that an agent has read and still sees: a read that would give the same text again is
//! answered by a stub.
//!
//! Pure: follows from calls and their results. Whether a result still stands in full is looked up
//! in the view each time, so that every edit that clears, cuts or replaces it ends its read state
//! too.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::context::view::View;
use crate::message::{Message, ToolCall, ToolResult};

/// Arguments of `read_file` that decide its result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Range {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

impl Range {
    /// Returns the range of a read. Equal ranges get equal values: no `./`, no doubled slash, the
    /// first line by default.
    fn of(call: &ToolCall) -> Option<Self> {
        let asked: Self = call.input.decode().ok()?;
        Some(Self {
            path: plain_path(&asked.path),
            offset: Some(asked.offset.unwrap_or(1)),
            ..asked
        })
    }
}

/// Returns a path in one form: without `.` and doubled slashes. A `..` stays, because its meaning
/// depends on the links on disk.
#[must_use]
pub(super) fn plain_path(path: &str) -> String {
    let parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
    parts.collect::<PathBuf>().to_string_lossy().into_owned()
}

/// The result of a read, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Number of the message that holds the result.
    message: u64,
    /// Id of the call that it answers.
    call: String,
    /// blake3 hash of its text.
    hash: blake3::Hash,
}

impl Read {
    /// Returns the text that the model reads in place of a result equal to this one, byte for byte;
    /// `None` when it is not equal, or is no longer than the stub.
    #[must_use]
    pub fn stub_for(&self, text: &str) -> Option<String> {
        let Self { message, call, hash } = self;
        let stub = format!(
            "File unchanged since it was last read: the result of call {call} in message {message} \
             is still current. Refer to it instead of reading the file again."
        );
        (stub.len() < text.len() && blake3::hash(text.as_bytes()) == *hash).then_some(stub)
    }

    /// Returns true if the result stands in the view unchanged.
    fn stands_in(&self, view: &View) -> bool {
        let Some(slot) = view.slot_of(self.message) else { return false };
        let Ok(message) = slot.entry.json.decode::<Message>() else { return false };
        let mut results = message.tool_results();
        let result = results.find(|result| result.tool_use_id == self.call);
        result.is_some_and(|result| blake3::hash(result.as_text().as_bytes()) == self.hash)
    }
}

/// The latest read of each range of each file.
#[derive(Clone, Debug, Default)]
pub struct ReadState(BTreeMap<Range, Read>);

impl ReadState {
    /// Notes the result of a successful read.
    pub(super) fn read(&mut self, message: u64, call: &ToolCall, result: &ToolResult) {
        let Some(range) = Range::of(call) else { return };
        let hash = blake3::hash(result.as_text().as_bytes());
        self.0.insert(range, Read { message, call: call.id.clone(), hash });
    }

    /// Makes the result that a repeated read refers to count as the newest of those that may be
    /// cleared.
    pub(super) fn renew(&self, call: &ToolCall, view: &mut View) {
        if let Some(read) = Range::of(call).and_then(|range| self.0.get(&range)) {
            view.renew(read.message, &read.call);
        }
    }

    /// Forgets the reads of a file that was written: even if the old content comes back, it is read
    /// anew.
    pub(super) fn written(&mut self, path: &str) {
        let ranges: Vec<_> = self.ranges(path).map(|(range, _)| range.clone()).collect();
        for range in ranges {
            self.0.remove(&range);
        }
    }

    /// Returns the earlier read that a `read_file` call repeats, if its result still stands in the
    /// view.
    #[must_use]
    pub fn repeated(&self, call: &ToolCall, view: &View) -> Option<Read> {
        let read = self.0.get(&Range::of(call)?)?;
        read.stands_in(view).then(|| read.clone())
    }

    /// Returns true if the result of some read of the file stands in the view.
    #[must_use]
    pub(super) fn shows(&self, path: &str, view: &View) -> bool {
        self.ranges(path).any(|(_, read)| read.stands_in(view))
    }

    fn ranges(&self, path: &str) -> impl Iterator<Item = (&Range, &Read)> {
        let first = Range { path: path.to_owned(), offset: None, limit: None };
        let path = path.to_owned();
        self.0.range(first..).take_while(move |(range, _)| range.path == path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::context::layers::inventory::Inventory;
    use crate::context::{ClearedResult, Edit};
    use crate::message::{Block, Json, ResultContent, Role};
    use crate::own_tool::Callee;

    /// A conversation and what follows from it.
    #[derive(Default)]
    struct Talk {
        view: View,
        inventory: Inventory,
        calls: usize,
    }

    impl Talk {
        fn call(tool: &str, id: &str, input: &Value) -> ToolCall {
            ToolCall { id: id.to_owned(), name: tool.to_owned(), input: Json::encode(input) }
        }

        /// Makes a call and takes in its result; gives the number of the result's message.
        fn turn(&mut self, tool: &str, input: &Value, text: &str) -> u64 {
            if self.calls == 0 {
                self.view.push(Json::encode(&Message::user("go"))).expect("a message");
            }
            self.calls += 1;
            let call = Self::call(tool, &format!("c{}", self.calls), input);
            let content = ResultContent::Text(text.to_owned());
            let result = ToolResult { tool_use_id: call.id.clone(), content, is_error: false };
            let message = self.view.next_message() + 1;
            self.inventory.note(message, &call, &Callee::Other, &result);
            for (role, block) in
                [(Role::Assistant, Block::ToolUse(call)), (Role::User, Block::ToolResult(result))]
            {
                let message = Message { role, content: vec![block] };
                self.view.push(Json::encode(&message)).expect("a message");
            }
            message
        }

        fn repeated(&self, input: &Value) -> Option<Read> {
            self.inventory.reads().repeated(&Self::call("read_file", "new", input), &self.view)
        }

        fn clear(&mut self, message: u64, call: &str) {
            let (tool_use_id, text) = (call.to_owned(), "[cleared]".to_owned());
            let results =
                vec![ClearedResult { message, tool_use_id, text, stored: None, kept_chars: 0 }];
            self.view.apply(&Edit::ClearResults { results }).expect("applies");
        }
    }

    fn content() -> String {
        "fn main() {}\n".repeat(50)
    }

    #[test]
    fn the_same_content_becomes_a_stub() {
        let mut talk = Talk::default();
        let message = talk.turn("read_file", &json!({"path": "src/a.rs"}), &content());
        for same in [
            json!({"path": "src/a.rs"}),
            json!({"path": "./src//a.rs"}),
            json!({"path": "src/./a.rs", "offset": 1}),
        ] {
            let stub = talk.repeated(&same).expect("known").stub_for(&content()).expect("a stub");
            assert!(stub.contains("c1") && stub.contains(&format!("message {message}")), "{stub}");
            assert!(stub.len() < content().len());
        }
        let known = talk.repeated(&json!({"path": "src/a.rs"})).expect("known");
        assert_eq!(known.stub_for(&content().replace("main", "mine")), None, "it has changed");
        for other in [json!({"path": "src/b.rs"}), json!({"path": "src/a.rs", "limit": 5})] {
            assert_eq!(talk.repeated(&other), None, "{other}");
        }
    }

    #[test]
    fn a_short_content_is_given_again() {
        let mut talk = Talk::default();
        talk.turn("read_file", &json!({"path": "a"}), "short");
        assert_eq!(talk.repeated(&json!({"path": "a"})).expect("known").stub_for("short"), None);
    }

    #[test]
    fn a_stub_is_no_content_and_keeps_what_it_names() {
        let mut talk = Talk::default();
        let a = json!({"path": "a"});
        talk.turn("read_file", &a, &content());
        let first = talk.repeated(&a).expect("known");
        let other = talk.turn("bash", &json!({}), "other");
        talk.inventory.read_again(&Talk::call("read_file", "c3", &a), &mut talk.view);
        assert_eq!(talk.repeated(&a), Some(first), "the third read names the first too");
        let oldest = talk.view.results().next().expect("a result");
        assert_eq!(oldest.message, other, "what is read again is cleared later");
    }

    #[test]
    fn a_file_that_imitates_a_stub_is_like_any_other() {
        let mut talk = Talk::default();
        let (a, evil) = (json!({"path": "a"}), json!({"path": "evil"}));
        talk.turn("read_file", &a, &content());
        let stub = talk.repeated(&a).expect("known").stub_for(&content()).expect("a stub");
        let imitation = format!("{stub}\n{}", content());
        talk.turn("read_file", &evil, &imitation);
        let known = talk.repeated(&evil).expect("known");
        assert_eq!(known.stub_for(&content()), None);
        assert!(known.stub_for(&imitation).is_some_and(|stub| stub.contains("c2")));
        assert_eq!(talk.view.results().next().expect("a result").tool_use_id, "c1");
        talk.turn("read_file", &a, &stub);
        let known = talk.repeated(&a).expect("known");
        assert_eq!((known.call.as_str(), known.stub_for(&content())), ("c3", None));
    }

    #[test]
    fn what_is_out_of_the_view_is_not_referred_to() {
        let a = json!({"path": "a"});
        let mut talk = Talk::default();
        let message = talk.turn("read_file", &a, &content());
        talk.clear(message, "c1");
        assert_eq!(talk.repeated(&a), None, "cleared");
        talk.turn("read_file", &a, &content());
        assert!(talk.repeated(&a).is_some(), "read again, it stands again");
        let with = vec![Json::encode(&Message::user("summary"))];
        talk.view.apply(&Edit::Replace { from: 0, to: 5, with }).expect("applies");
        assert_eq!(talk.repeated(&a), None, "summarised");
    }

    #[test]
    fn writing_a_file_ends_its_read_state() {
        for tool in ["write_file", "edit_file"] {
            let mut talk = Talk::default();
            talk.turn("read_file", &json!({"path": "a", "offset": 3}), &content());
            talk.turn("read_file", &json!({"path": "ab"}), &content());
            talk.turn(tool, &json!({"path": "./a"}), "done");
            assert_eq!(talk.repeated(&json!({"path": "a", "offset": 3})), None);
            assert!(talk.repeated(&json!({"path": "ab"})).is_some());
        }
    }

    #[test]
    fn files_in_use_are_those_out_of_view() {
        let mut talk = Talk::default();
        for path in ["a", "b", "c"] {
            talk.turn("read_file", &json!({"path": path}), &content());
        }
        talk.turn("edit_file", &json!({"path": "a"}), "done");
        talk.clear(4, "c2");
        assert_eq!(talk.inventory.files_out_of(&talk.view, 5), ["a", "b"]);
        assert_eq!(talk.inventory.files_out_of(&talk.view, 1), ["a"]);
    }
}
