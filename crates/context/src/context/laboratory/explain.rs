//! Explains a view: lists the parts that it consists of, and the edits that made each of its slots.
//!
//! Pure. The code that folds an agent's records notes each edit here when it applies it to the
//! view.

use std::collections::{BTreeMap, HashMap};

use crate::context::Edit;
use crate::context::view::{Slot, Standing, View};
use crate::message::{Block, Json, Message, Role};

/// An edit, with its position in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEdit {
    /// Number of its record in the journal.
    pub seq: u64,
    /// Time of the record, in milliseconds since the Unix epoch.
    pub ts_ms: i64,
    /// Name of the layer that made it.
    pub layer: String,
    /// The edit.
    pub edit: Edit,
    /// Estimated tokens of the view before the edit.
    pub before_tokens: u64,
    /// Estimated tokens of the view after the edit.
    pub after_tokens: u64,
}

impl RecordedEdit {
    /// Returns the ranges of messages that it changed, each as its first message and the first one
    /// after it.
    #[must_use]
    pub fn covers(&self) -> Vec<(u64, u64)> {
        self.edit.covers()
    }
}

/// All edits of one agent's view, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    edits: Vec<RecordedEdit>,
    /// The latest edit that cleared the result of a call, by message and call.
    cleared: HashMap<(u64, String), usize>,
    /// The latest edit that replaced a range, by the end of the range: its replacement has that
    /// end, and a later edit with the same end has replaced it.
    replaced: HashMap<u64, usize>,
    /// The latest edit of the system prompt.
    system: Option<usize>,
}

impl History {
    /// Notes the next edit.
    pub fn note(&mut self, recorded: RecordedEdit) {
        let place = self.edits.len();
        match &recorded.edit {
            Edit::ClearResults { results } => {
                let results = results.iter().map(|r| ((r.message, r.tool_use_id.clone()), place));
                self.cleared.extend(results);
            }
            Edit::Replace { to, .. } => {
                self.replaced.insert(*to, place);
            }
            Edit::Record(record) => {
                self.replaced.insert(record.to, place);
            }
            Edit::Window { .. } => self.system = Some(place),
            Edit::DropThinking { .. } => {}
        }
        self.edits.push(recorded);
    }

    /// Returns all edits.
    #[must_use]
    pub fn edits(&self) -> &[RecordedEdit] {
        &self.edits
    }

    /// Returns the edits that made a slot of the view what it is.
    #[must_use]
    pub fn of_slot(&self, slot: &Slot) -> Vec<&RecordedEdit> {
        let mut places: Vec<usize> = slot.apart().flat_map(|slot| self.places_of(slot)).collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| &self.edits[place]).collect()
    }

    fn places_of(&self, slot: &Slot) -> Vec<usize> {
        match slot.standing {
            Standing::Verbatim => Vec::new(),
            Standing::Cleared => {
                let answers = slot.entry.answers.iter();
                let of = |id: &String| self.cleared.get(&(slot.from, id.clone())).copied();
                answers.filter_map(of).collect()
            }
            Standing::Instead => self.replaced.get(&slot.to).copied().into_iter().collect(),
        }
    }

    /// Returns the edit that cleared the result of a call in a slot of the view.
    #[must_use]
    pub fn cleared_by(&self, slot: &Slot, tool_use_id: &str) -> Option<&RecordedEdit> {
        let place = self.cleared.get(&(slot.from, tool_use_id.to_owned()));
        place.filter(|_| slot.standing == Standing::Cleared).map(|place| &self.edits[*place])
    }

    /// Returns the edit that added the last block of the system prompt.
    #[must_use]
    pub fn of_system(&self) -> Option<&RecordedEdit> {
        self.system.map(|place| &self.edits[place])
    }
}

/// Part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestPart {
    /// The system prompt.
    System,
    /// The tools with their descriptions and schemas.
    Tools,
    /// The requests to the agent, word for word.
    Requests,
    /// Messages that an edit put in the place of others.
    Summaries,
    /// Tool results that were not cleared.
    ToolResults,
    /// Texts in the place of cleared results.
    Placeholders,
    /// Text of the model's replies.
    Text,
    /// The model's tool calls.
    ToolCalls,
    /// Thinking, images, prompts to continue, and the JSON around all of these.
    Other,
}

impl RequestPart {
    /// Returns the name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Tools => "tools",
            Self::Requests => "requests",
            Self::Summaries => "summaries",
            Self::ToolResults => "tool_results",
            Self::Placeholders => "placeholders",
            Self::Text => "text",
            Self::ToolCalls => "tool_calls",
            Self::Other => "other",
        }
    }
}

/// Returns the characters of the view by part, without empty parts. Of the system prompt only the
/// text that an edit added counts: the rest of a request's front is not part of the view.
#[must_use]
pub fn parts(view: &View, history: &History) -> BTreeMap<RequestPart, usize> {
    let mut sizes = BTreeMap::new();
    let mut add = |part, chars| {
        if chars > 0 {
            *sizes.entry(part).or_insert(0) += chars;
        }
    };
    add(RequestPart::System, view.system().map_or(0, |text| text.chars().count()));
    for slot in view.slots() {
        let mut rest = slot.entry.chars;
        for slot in slot.apart() {
            // Every entry was decoded when it joined the view; one that could not be decoded would
            // count as `Other`.
            let message = Message::read(slot.entry.json.as_str());
            for block in message.iter().flat_map(|message| &message.content) {
                let chars = Json::encode(block).as_str().chars().count().min(rest);
                add(part_of(slot, block, history), chars);
                rest -= chars;
            }
        }
        add(RequestPart::Other, rest);
    }
    sizes
}

fn part_of(slot: &Slot, block: &Block, history: &History) -> RequestPart {
    if slot.standing == Standing::Instead && !slot.entry.is_request {
        return RequestPart::Summaries;
    }
    match block {
        Block::Text(_) if slot.entry.is_request => RequestPart::Requests,
        Block::Text(_) if slot.entry.role == Role::Assistant => RequestPart::Text,
        Block::ToolUse(_) => RequestPart::ToolCalls,
        Block::ToolResult(result) => match history.cleared_by(slot, &result.tool_use_id) {
            Some(_) => RequestPart::Placeholders,
            None => RequestPart::ToolResults,
        },
        Block::Text(_) | Block::Other(_) => RequestPart::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ClearedResult;
    use crate::message::{ResultContent, ToolCall, ToolResult};

    fn exchange(view: &mut View, ids: &[&str]) {
        let call = |id: &&str| {
            let input = Json::encode(&serde_json::json!({"path": "x"}));
            Block::ToolUse(ToolCall { id: (*id).to_owned(), name: "read_file".to_owned(), input })
        };
        let said = Block::Text("Looking.".to_owned());
        let content = std::iter::once(said).chain(ids.iter().map(call)).collect();
        view.push(Json::encode(&Message { role: Role::Assistant, content })).expect("a message");
        let result = |id: &&str| {
            let content = ResultContent::Text("r".repeat(200));
            let tool_use_id = (*id).to_owned();
            Block::ToolResult(ToolResult { tool_use_id, content, is_error: false })
        };
        let content = ids.iter().map(result).collect();
        view.push(Json::encode(&Message { role: Role::User, content })).expect("a message");
    }

    struct Fold {
        view: View,
        history: History,
    }

    impl Fold {
        fn edit(&mut self, layer: &str, edit: Edit) {
            let before_tokens = self.view.tokens();
            self.view.apply(&edit).expect("applies");
            let seq = self.history.edits().len() as u64 + 1;
            self.history.note(RecordedEdit {
                seq,
                ts_ms: 0,
                layer: layer.to_owned(),
                edit,
                before_tokens,
                after_tokens: self.view.tokens(),
            });
        }

        fn clear(&mut self, results: &[(u64, &str)]) {
            let results = results.iter().map(|(message, id)| ClearedResult {
                message: *message,
                tool_use_id: (*id).to_owned(),
                text: "[gone]".to_owned(),
                stored: None,
                kept_chars: 0,
            });
            self.edit("micro", Edit::ClearResults { results: results.collect() });
        }

        fn made_by(&self) -> Vec<Vec<u64>> {
            let seqs = |slot| self.history.of_slot(slot).iter().map(|edit| edit.seq).collect();
            self.view.parts().map(seqs).collect()
        }
    }

    fn fold() -> Fold {
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        exchange(&mut view, &["a", "b"]);
        exchange(&mut view, &["c"]);
        exchange(&mut view, &["d"]);
        Fold { view, history: History::default() }
    }

    #[test]
    fn every_place_knows_the_edits_that_made_it() {
        let mut fold = fold();
        fold.clear(&[(2, "a"), (4, "c")]);
        fold.clear(&[(2, "b")]);
        assert_eq!(fold.history.edits()[0].covers(), [(2, 3), (4, 5)]);
        let none = Vec::new;
        let both = vec![1, 2];
        assert_eq!(fold.made_by(), [none(), none(), both, none(), vec![1], none(), none()]);
        let with = ["s", "t"].map(|text| Json::encode(&Message::user(text))).to_vec();
        fold.edit("summary", Edit::Replace { from: 0, to: 3, with: with.clone() });
        assert_eq!(fold.made_by(), [vec![3], vec![3], none(), vec![1], none(), none()]);
        fold.edit("summary", Edit::Replace { from: 0, to: 5, with });
        assert_eq!(fold.made_by(), [vec![4], vec![4], none(), none()]);
        fold.edit("window", Edit::Window { to: 5, system: "context".to_owned() });
        assert_eq!(fold.made_by(), [none(), none()]);
        assert_eq!(fold.history.of_system().map(|edit| edit.seq), Some(5));
        assert_eq!(parts(&fold.view, &fold.history)[&RequestPart::System], 7);
    }

    #[test]
    fn the_parts_are_the_whole() {
        let mut fold = fold();
        let parts_of = |fold: &Fold| parts(&fold.view, &fold.history);
        let before = parts_of(&fold);
        assert_eq!(before.values().sum::<usize>(), fold.view.chars());
        let known: Vec<_> = before.keys().copied().collect();
        use RequestPart::{Other, Placeholders, Requests, Summaries, Text, ToolCalls, ToolResults};
        assert_eq!(known, [Requests, ToolResults, Text, ToolCalls, Other]);
        fold.clear(&[(2, "a")]);
        let cleared = parts_of(&fold);
        assert_eq!(cleared.values().sum::<usize>(), fold.view.chars());
        assert!(cleared[&Placeholders] > 0 && cleared[&ToolResults] < before[&ToolResults]);
        let with =
            vec![Json::encode(&Message::user("short")), Json::encode(&Message::user("goal"))];
        fold.edit("summary", Edit::Replace { from: 0, to: 7, with });
        let summarised = parts_of(&fold);
        let known: Vec<_> = summarised.keys().copied().collect();
        assert_eq!(known, [Requests, Summaries, Other], "the request stands for itself");
        assert_eq!(summarised.values().sum::<usize>(), fold.view.chars());
    }
}
