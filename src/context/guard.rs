//! The guard: makes a view fit its window without a model, whatever it holds.
//!
//! Pure. It runs only when a request would not fit: first it takes long tool results out that the
//! model has read, then it replaces the older part of the conversation by a list of what was done.
//! Results that the model has not read are shortened only where they would not fit beside that
//! list. Each marker names the transcript, which has it all.

use std::borrow::Cow;

use super::layer::Surroundings;
use super::measure::estimate;
use super::view::{Slot, View};
use super::{ClearedResult, ContextEdited, Edit};
use super::{range, record};
use crate::message::{Block, Json, Message, ResultContent};

/// The layer name under which the guard's edits are recorded.
pub const GUARD_LAYER: &str = "guard";

/// Results shorter than this are left: their marker would be no shorter.
const LEAST_RESULT_CHARS: usize = 400;

/// How much of an unread result stays, so that the model can go on from it.
const UNREAD_PREVIEW_CHARS: usize = 1_000;

/// A record in prose has about this many characters a token; one in other scripts has fewer.
const MOST_CHARS_PER_TOKEN: usize = 4;

/// What the guard counts in.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// Characters of the view, where nothing is measured.
    Char,
    /// Tokens by the estimate that knows scripts.
    Token,
}

impl Unit {
    fn of_view(self, view: &View) -> u64 {
        match self {
            Self::Char => view.chars() as u64,
            Self::Token => view.extent().held,
        }
    }

    fn of_slot(self, slot: &Slot) -> u64 {
        match self {
            Self::Char => slot.entry.chars as u64,
            Self::Token => slot.entry.tokens,
        }
    }

    fn of_text(self, text: &str) -> u64 {
        match self {
            Self::Char => Json::encode(&text).as_str().chars().count() as u64,
            Self::Token => estimate(text),
        }
    }
}

/// The results that are taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    /// Those that the model has read.
    Read,
    /// Those that it is about to read.
    Unread,
}

/// Makes the view fit its window if it can, and gives what it changed. An edit reaches for four
/// fifths of the room, so that the next turns fit as well.
pub fn make_fit(view: &mut View, around: &Surroundings<'_>) -> Vec<ContextEdited> {
    let (room, unit) = match around.measured_room {
        Some(tokens) => (tokens, Unit::Token),
        None => (around.chars(around.window.room()) as u64, Unit::Char),
    };
    let mut edits = Vec::new();
    if unit.of_view(view) <= room {
        return edits;
    }
    let target = room / 5 * 4;
    let spill = |view: &View, results| spill(view, results, target, unit, around.transcript);
    let digest = |view: &View| digest(view, target / 4, unit);
    let read = spill(view, Results::Read);
    apply(view, read, unit, &mut edits);
    let pinned_fits = pinned(view, unit) + target / 4 <= room;
    for is_digest in [pinned_fits, !pinned_fits] {
        if unit.of_view(view) > room {
            let edit = if is_digest { digest(view) } else { spill(view, Results::Unread) };
            apply(view, edit, unit, &mut edits);
        }
    }
    edits
}

/// What no record takes in: the active request, and what the model has not read.
fn pinned(view: &View, unit: Unit) -> u64 {
    let end = range::consumed(view).map_or(0, |(_, to)| to);
    let active = view.slots().rfind(|slot| slot.entry.is_request).map(|slot| slot.serial);
    let is_pinned = |slot: &&Slot| slot.to > end || Some(slot.serial) == active;
    view.slots().filter(is_pinned).map(|slot| unit.of_slot(slot)).sum()
}

/// Applies an edit if it makes the view smaller.
fn apply(view: &mut View, edit: Option<Edit>, unit: Unit, edits: &mut Vec<ContextEdited>) {
    let Some(edit) = edit else { return };
    let before_tokens = view.tokens();
    let mut after = view.clone();
    if after.apply(&edit).is_ok() && unit.of_view(&after) < unit.of_view(view) {
        *view = after;
        let after_tokens = view.tokens();
        let layer = GUARD_LAYER.to_owned();
        edits.push(ContextEdited { layer, edit, before_tokens, after_tokens });
    }
}

/// Takes long results out, oldest first, until the target is met.
fn spill(view: &View, which: Results, target: u64, unit: Unit, transcript: &str) -> Option<Edit> {
    let mut excess = unit.of_view(view).saturating_sub(target);
    let unread = view.slots().next_back().map(|slot| slot.serial);
    let is_meant = |slot: &&Slot| {
        let is_unread = Some(slot.serial) == unread;
        !slot.entry.answers.is_empty() && is_unread == (which == Results::Unread)
    };
    let least = match which {
        Results::Read => LEAST_RESULT_CHARS,
        Results::Unread => UNREAD_PREVIEW_CHARS + LEAST_RESULT_CHARS,
    };
    let mut results = Vec::new();
    for slot in view.slots().filter(is_meant) {
        let Ok(message) = slot.entry.json.decode::<Message>() else { continue };
        for result in message.tool_results() {
            let Some(content) = plain(&result.content) else { continue };
            let chars = content.chars().count();
            if excess == 0 || chars < least {
                continue;
            }
            let text = if which == Results::Unread {
                let end: usize =
                    content.chars().take(UNREAD_PREVIEW_CHARS).map(char::len_utf8).sum();
                format!("{}\n[{chars} characters in all; the rest: {transcript}]", &content[..end])
            } else {
                format!("[{chars} characters, cleared; they stand in {transcript}]")
            };
            excess =
                excess.saturating_sub(unit.of_text(&content).saturating_sub(unit.of_text(&text)));
            let tool_use_id = result.tool_use_id.clone();
            results.push(ClearedResult { message: slot.from, tool_use_id, text, stored: None });
        }
    }
    (!results.is_empty()).then_some(Edit::ClearResults { results })
}

/// The content of a result that is text only.
fn plain(content: &ResultContent) -> Option<Cow<'_, str>> {
    match content {
        ResultContent::Text(text) => Some(Cow::Borrowed(text)),
        ResultContent::Blocks(json) => {
            let blocks: Vec<Block> = json.decode().ok()?;
            let texts = blocks.into_iter().map(|block| match block {
                Block::Text(text) => Some(text),
                _ => None,
            });
            Some(Cow::Owned(texts.collect::<Option<Vec<_>>>()?.join("\n")))
        }
    }
}

/// Replaces what the model has read by a record of it, of at most so many units if it can be.
fn digest(view: &View, most: u64, unit: Unit) -> Option<Edit> {
    let (from, to) = range::consumed(view)?;
    let most_chars = usize::try_from(most).unwrap_or(usize::MAX);
    let mut most_chars = match unit {
        Unit::Char => most_chars,
        Unit::Token => most_chars.saturating_mul(MOST_CHARS_PER_TOKEN),
    };
    loop {
        let record = record::digest(view, from, to, most_chars);
        if most_chars == 0 || unit.of_text(&record.render()) <= most {
            return Some(Edit::Record(record));
        }
        most_chars /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::layer::Window;
    use crate::message::{Role, ToolCall, ToolResult};

    /// Room for this many tokens of three characters.
    fn fit(view: &mut View, tokens: u64) -> Vec<ContextEdited> {
        let window = Window { tokens, output: 0, overhead: 0 };
        let mut around = Surroundings::new("t.jsonl", "results", window);
        around.tokens_per_char = 1.0 / 3.0;
        make_fit(view, &around)
    }

    /// Room for this many estimated tokens.
    fn fit_measured(view: &mut View, tokens: u64) -> Vec<ContextEdited> {
        let window = Window { tokens: 0, output: 0, overhead: 0 };
        let mut around = Surroundings::new("t.jsonl", "results", window);
        around.measured_room = Some(tokens);
        make_fit(view, &around)
    }

    fn push(view: &mut View, turn: usize, chars: usize) {
        let id = turn.to_string();
        let input = Json::encode(&serde_json::json!({ "path": format!("src/{turn}.rs") }));
        let call = ToolCall { id: id.clone(), name: "read_file".to_owned(), input };
        let calls = Message { role: Role::Assistant, content: vec![Block::ToolUse(call)] };
        let content = ResultContent::Text("some text ".repeat(chars / 10));
        let result = ToolResult { tool_use_id: id, content, is_error: false };
        let results = Message { role: Role::User, content: vec![Block::ToolResult(result)] };
        view.push(Json::encode(&calls)).expect("a message");
        view.push(Json::encode(&results)).expect("a message");
    }

    fn view(turns: usize, chars: usize) -> View {
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        (0..turns).for_each(|turn| push(&mut view, turn, chars));
        view
    }

    #[test]
    fn what_fits_is_left_alone() {
        let mut view = view(3, 1_000);
        assert!(fit(&mut view, 2_000).is_empty());
    }

    #[test]
    fn read_results_go_before_unread_ones() {
        let mut view = view(10, 1_000);
        let edits = fit(&mut view, 3_000);
        assert_eq!(edits.len(), 1);
        assert!(view.chars() <= 9_000);
        let last = view.slots().next_back().expect("a message").entry.json.as_str().to_owned();
        assert!(last.contains(&"some text ".repeat(100)), "the unread result stays whole");
    }

    #[test]
    fn one_giant_unread_result_is_cut() {
        let mut view = view(1, 500_000);
        fit(&mut view, 1_000);
        assert!(view.chars() <= 3_000, "{}", view.chars());
    }

    #[test]
    fn where_tokens_are_estimated_they_count() {
        for (turns, chars, room) in [(10, 1_000, 1_500), (1, 500_000, 1_000), (500, 10, 2_000)] {
            let mut view = view(turns, chars);
            let whole = view.extent().held;
            assert!(fit_measured(&mut view.clone(), whole).is_empty());
            assert!(!fit_measured(&mut view, room).is_empty());
            assert!(view.extent().held <= room, "{:?}", view.extent());
        }
    }

    #[test]
    fn a_record_in_dense_script_is_shorter() {
        let mut view = view(100, 10);
        let said = "监督者拥有整个运行。".repeat(30);
        for _ in 0..20 {
            view.push(Json::encode(&Message::assistant(said.as_str()))).expect("a message");
            view.push(Json::encode(&Message::user(said.as_str()))).expect("a message");
        }
        let (from, to) = range::consumed(&view).expect("a range");
        let Some(Edit::Record(record)) = digest(&view, 500, Unit::Token) else { panic!() };
        assert_eq!((record.from, record.to), (from, to));
        assert!(estimate(&record.render()) <= 500);
    }

    #[test]
    fn a_long_conversation_of_short_results_becomes_a_digest() {
        let mut view = view(500, 10);
        let edits = fit(&mut view, 2_000);
        assert!(view.chars() <= 6_000, "{}", view.chars());
        assert!(edits.iter().all(|edit| edit.layer == GUARD_LAYER));
        let first: Message = view.slots().next().expect("one").entry.json.decode().expect("one");
        assert!(first.text().contains("src/498.rs"), "{}", first.text());
        let roles: Vec<_> = view.slots().map(|slot| slot.entry.role).collect();
        assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
        let whole: String = view.slots().map(|slot| slot.entry.json.as_str().to_owned()).collect();
        assert!(whole.contains("the goal"));
    }
}
