//! The guard: makes a view fit its window without a model, whatever it holds.
//!
//! Pure. It runs when a request would not fit, or when a summary was wanted and cannot help. It
//! takes one step after the other until the view fits: it clears long tool results that the model
//! has read; replaces the older part of the conversation by a record; shortens and cuts what the
//! model has not read; and at last puts that into the record too. Each marker names the transcript,
//! which holds everything. The active request is never touched.

use std::borrow::Cow;

use crate::context::layers::Surroundings;
use crate::context::layers::gather::gather_within;
use crate::context::layers::shorten;
use crate::context::measure::estimate;
use crate::context::record::Record;
use crate::context::view::range;
use crate::context::view::{Entry, Slot, Standing, View, instead};
use crate::context::{ClearedResult, ContextEdited, Edit};
use crate::message::{Block, Json, Message, ResultContent};

/// Layer name under which the guard's edits are recorded.
pub const GUARD_LAYER: &str = "guard";

/// Least characters of a result that is cleared: the marker for a shorter one would be no shorter.
const LEAST_RESULT_CHARS: usize = 400;

/// Characters of an unread result that stay, so that the model can continue from it.
const UNREAD_PREVIEW_CHARS: usize = 1_000;

/// Characters of a token in a record in prose; other scripts have fewer.
const MOST_CHARS_PER_TOKEN: usize = 4;

/// Unit in which the guard measures sizes.
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

    /// Returns about how many characters of this view this many units have.
    fn in_chars(self, view: &View, units: u64) -> usize {
        let chars = match self {
            Self::Char => u128::from(units),
            Self::Token => {
                u128::from(units) * view.chars() as u128 / u128::from(view.extent().held.max(1))
            }
        };
        usize::try_from(chars).unwrap_or(usize::MAX)
    }

    fn of_entry(self, entry: &Entry) -> u64 {
        match self {
            Self::Char => entry.chars as u64,
            Self::Token => entry.tokens,
        }
    }

    fn of_text(self, text: &str) -> u64 {
        match self {
            Self::Char => text.chars().count() as u64,
            Self::Token => estimate(text),
        }
    }
}

/// Part of the view that the guard may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Messages that the model has read.
    Read,
    /// Everything.
    All,
}

/// Makes the view fit this many tokens if it can, and returns its edits. An edit aims at four
/// fifths of the room, so that the next turns fit as well. When it is the window that must be kept,
/// the measured room counts.
pub fn make_fit(
    view: &mut View,
    around: &Surroundings<'_>,
    tokens: u64,
    reach: Reach,
) -> Vec<ContextEdited> {
    let measured = around.measured_room.filter(|_| tokens >= around.window.free_tokens());
    let (room, unit) = match measured {
        Some(tokens) => (tokens, Unit::Token),
        None => {
            let beside = view.system().map_or(0, |system| system.chars().count());
            (around.chars(tokens).saturating_sub(beside) as u64, Unit::Char)
        }
    };
    let mut edits = Vec::new();
    if unit.of_view(view) <= room {
        return edits;
    }
    let target = room / 5 * 4;
    let read = spill(view, Results::Read, target, unit, around.transcript);
    apply(view, read, unit, &mut edits);
    if unit.of_view(view) > room {
        let read = range::consumed(view).and_then(|range| without_task(view, range, unit, target));
        let digest = read.map(|read| digest(view, read, target / 4, unit, around.state));
        apply(view, digest, unit, &mut edits);
    }
    if reach == Reach::Read {
        return edits;
    }
    if unit.of_view(view) > room {
        let unread = spill(view, Results::Unread, target, unit, around.transcript);
        apply(view, unread, unit, &mut edits);
    }
    if unit.of_view(view) > room {
        for cut in cut_unread(view, unit.in_chars(view, target), around.transcript) {
            apply(view, Some(cut), unit, &mut edits);
        }
    }
    if unit.of_view(view) > room {
        let whole = (0, view.next_message());
        let digest = Some(digest(view, whole, target / 4, unit, around.state));
        apply(view, digest, unit, &mut edits);
    }
    edits
}

fn apply(view: &mut View, edit: Option<Edit>, unit: Unit, edits: &mut Vec<ContextEdited>) {
    let Some(edit) = edit else { return };
    let mut after = view.clone();
    // A step that frees nothing is skipped.
    if after.apply(&edit).is_ok() && unit.of_view(&after) < unit.of_view(view) {
        let (before_tokens, after_tokens) = (view.tokens(), after.tokens());
        *view = after;
        let layer = GUARD_LAYER.to_owned();
        edits.push(ContextEdited { layer, edit, before_tokens, after_tokens });
    }
}

/// Returns the range without the task prompt at its beginning, if the prompt takes at most a
/// quarter of the target.
fn without_task(
    view: &View,
    (from, to): (u64, u64),
    unit: Unit,
    target: u64,
) -> Option<(u64, u64)> {
    let task = view.task().filter(|task| unit.of_entry(&task.entry) <= target / 4);
    let from = task.map_or(from, |task| task.to.max(from));
    (from < to).then_some((from, to))
}

/// Selection of the results that are shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    /// Results that the model has read.
    Read,
    /// Results that the model is about to read: their beginning stays.
    Unread,
}

/// Clears or shortens long results, oldest first, until the target is met.
fn spill(view: &View, which: Results, target: u64, unit: Unit, transcript: &str) -> Option<Edit> {
    let mut excess = unit.of_view(view).saturating_sub(target);
    let unread = view.slots().next_back().map(|slot| slot.from);
    let mut results = Vec::new();
    let is_wanted = |slot: &&Slot| {
        !slot.entry.answers.is_empty() && (Some(slot.from) == unread) == (which == Results::Unread)
    };
    for slot in view.slots().filter(is_wanted) {
        let Ok(message) = slot.entry.json.decode::<Message>() else { continue };
        for result in message.tool_results() {
            let Some(content) = plain(&result.content) else { continue };
            let chars = content.chars().count();
            if excess == 0 || chars < LEAST_RESULT_CHARS {
                continue;
            }
            let text = if which == Results::Unread {
                let end: usize =
                    content.chars().take(UNREAD_PREVIEW_CHARS).map(char::len_utf8).sum();
                format!("{}\n[{chars} characters in all; the rest: {transcript}]", &content[..end])
            } else {
                match slot.standing {
                    Standing::Verbatim => {
                        format!("[{chars} characters, cleared; they stand in {transcript}]")
                    }
                    // After an earlier edit the size of the original is not known here.
                    Standing::Cleared | Standing::Instead => {
                        format!("[cleared; the whole stands in {transcript}]")
                    }
                }
            };
            excess =
                excess.saturating_sub(unit.of_text(&content).saturating_sub(unit.of_text(&text)));
            let tool_use_id = result.tool_use_id.clone();
            let (message, stored, kept_chars) = (slot.from, None, 0);
            results.push(ClearedResult { message, tool_use_id, text, stored, kept_chars });
        }
    }
    (!results.is_empty()).then_some(Edit::ClearResults { results })
}

/// Returns the text of a result that is nothing but text.
fn plain(content: &ResultContent) -> Option<Cow<'_, str>> {
    match content {
        ResultContent::Text(text) => Some(Cow::Borrowed(text)),
        ResultContent::Blocks(blocks) => {
            let blocks = blocks.decode::<Vec<Block>>().ok()?;
            let texts = blocks.iter().map(|block| match block {
                Block::Text(text) => Some(text.as_str()),
                Block::ToolUse(_) | Block::ToolResult(_) | Block::Other(_) => None,
            });
            Some(Cow::Owned(texts.collect::<Option<Vec<_>>>()?.join("\n")))
        }
    }
}

/// Cuts the long texts of the messages that the model has not read yet.
///
/// Each message is replaced by its shorter self, so that it keeps its place among the others.
fn cut_unread(view: &View, target: usize, transcript: &str) -> Vec<Edit> {
    let unread = range::consumed(view).map_or(0, |(_, to)| to);
    // Skips slots that an edit put before the unread exchange: they stand for no messages there.
    let slots = view.slots().skip_while(|slot| slot.to <= unread);
    let slots: Vec<_> = slots.filter(|slot| !slot.entry.is_request).collect();
    let chars: usize = slots.iter().map(|slot| slot.entry.chars).sum();
    let room = target.saturating_sub(view.chars() - chars);
    let place = format!("; the whole stands in {transcript}");
    let shorter = slots.iter().filter_map(|slot| {
        let mut message = slot.entry.json.decode::<Message>().ok()?;
        let most = room as u128 * slot.entry.chars as u128 / chars as u128;
        shorten::message(&mut message, usize::try_from(most).ok()?, &place);
        // The edit removes the filler between a record and this message, if there is one.
        let with = instead(view, slot.from, slot.to, vec![message]);
        let with = with.iter().map(Json::encode).collect();
        Some(Edit::Replace { from: slot.from, to: slot.to, with })
    });
    shorter.collect()
}

/// Replaces a range by a record of it, of at most so many units if possible.
fn digest(view: &View, (from, to): (u64, u64), most: u64, unit: Unit, state: Option<&str>) -> Edit {
    let most_chars = usize::try_from(most).unwrap_or(usize::MAX);
    let mut most_chars = match unit {
        Unit::Char => most_chars,
        Unit::Token => most_chars.saturating_mul(MOST_CHARS_PER_TOKEN),
    };
    // As it is sent: a control character takes six.
    let size = |record: &Record| unit.of_text(Json::encode(&record.message()).as_str());
    loop {
        let record = gather_within(view, from, to, most_chars);
        if most_chars == 0 || size(&record) <= most {
            let with_state = Record { state: state.map(str::to_owned), ..record.clone() };
            let fits = size(&with_state) <= most;
            return Edit::Record(if fits { with_state } else { record });
        }
        // The characters of a token were only estimated: fewer are tried until the record fits.
        most_chars /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::layers::Window;
    use crate::context::testing::assert_sendable;
    use crate::message::{Block, Json, Role, ToolCall, ToolResult};

    /// Room for this many tokens of three characters.
    fn fit(view: &mut View, tokens: u64) -> Vec<ContextEdited> {
        let window = Window { tokens, output: 0, overhead: 0 };
        let mut around = Surroundings::new("t.jsonl", "results", window);
        around.tokens_per_char = 1.0 / 3.0;
        make_fit(view, &around, tokens, Reach::All)
    }

    /// Room for this many estimated tokens.
    fn fit_measured(view: &mut View, tokens: u64) -> Vec<ContextEdited> {
        let window = Window { tokens: 0, output: 0, overhead: 0 };
        let mut around = Surroundings::new("t.jsonl", "results", window);
        around.measured_room = Some(tokens);
        make_fit(view, &around, window.free_tokens(), Reach::All)
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
        let goal = Message::user("the goal");
        view.push_task(Json::encode(&goal), &goal);
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

    /// An exchange of so many calls, each with so long an input and so long a result.
    fn push_wide(view: &mut View, calls: usize, input: usize, result: usize) {
        let id = |n: usize| format!("w{n}");
        let block = |n: usize| {
            let input = Json::encode(&serde_json::json!({ "content": "i".repeat(input) }));
            Block::ToolUse(ToolCall { id: id(n), name: "write_file".to_owned(), input })
        };
        let content = (0..calls).map(block).collect();
        view.push(Json::encode(&Message { role: Role::Assistant, content })).expect("a message");
        let block = |n: usize| {
            let content = ResultContent::Text("r".repeat(result));
            Block::ToolResult(ToolResult { tool_use_id: id(n), content, is_error: false })
        };
        let content = (0..calls).map(block).collect();
        view.push(Json::encode(&Message { role: Role::User, content })).expect("a message");
    }

    #[test]
    fn every_rung_hands_over_to_the_next_until_it_fits() {
        // An input that was not read, more results than previews have room for, and both.
        for (calls, input, result) in [(1, 400_000, 10), (40, 10, 9_000), (120, 10, 600)] {
            let mut view = view(20, 1_000);
            push_wide(&mut view, calls, input, result);
            let edits = fit(&mut view, 6_000);
            assert!(view.chars() <= 18_000, "{calls}: {}", view.chars());
            assert!(edits.iter().all(|edit| edit.after_tokens < edit.before_tokens));
            let messages: Vec<Message> =
                view.slots().map(|slot| slot.entry.json.decode().expect("one")).collect();
            assert!(messages.iter().any(|message| message.text() == "the goal"), "{messages:?}");
            assert_sendable(&view);
            // Once it fits, nothing is left to do.
            assert!(fit(&mut view, 6_000).is_empty());
        }
    }

    /// It took time quadratic in the number of calls: 46 s for as many, optimised.
    #[test]
    fn two_thousand_results_of_one_turn_are_read_and_written_once() {
        let mut view = view(1, 10);
        push_wide(&mut view, 2_000, 100, 2_000);
        let began = std::time::Instant::now();
        assert!(!fit(&mut view, 180_000).is_empty());
        assert!(view.chars() <= 540_000, "{}", view.chars());
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
        assert_sendable(&view);
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
        let read = range::consumed(&view).expect("a range");
        let Edit::Record(record) = digest(&view, read, 500, Unit::Token, None) else { panic!() };
        assert_eq!((record.from, record.to), (from, to));
        assert!(estimate(&record.render()) <= 500);
    }

    #[test]
    fn a_long_conversation_of_short_results_becomes_a_digest() {
        let mut view = view(500, 10);
        let edits = fit(&mut view, 2_000);
        assert!(view.chars() <= 6_000, "{}", view.chars());
        assert!(edits.iter().all(|edit| edit.layer == GUARD_LAYER));
        assert!(view.task().is_some());
        let record = view.slots().find_map(|slot| slot.record.as_ref()).expect("a record");
        assert!(record.render().contains("src/498.rs"), "{}", record.render());
        assert_sendable(&view);
        let whole: String = view.slots().map(|slot| slot.entry.json.as_str().to_owned()).collect();
        assert!(whole.contains("the goal"));
    }

    /// The model is to continue an answer that was cut, and the request is refused as too long.
    #[test]
    fn a_message_that_is_cut_keeps_its_place_behind_a_record() {
        for room in 1..=200 {
            let mut view = view(1, 303);
            view.push(Json::encode(&Message::assistant("an answer that is "))).expect("a message");
            let asked = Json::encode(&Message::user("Continue from there."));
            view.push_continuation(asked).expect("a message");
            fit(&mut view, room);
            assert_sendable(&view);
        }
    }
}
