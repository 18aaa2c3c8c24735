//! The guard: makes a view fit its window without a model, whatever it holds.
//!
//! Pure. It runs only when a request would not fit: first it takes long tool results out, those
//! that the model has read before those that it has not, then it replaces the older part of the
//! conversation by a list of what was done. Each marker names the transcript, which has it all.

use super::measure::estimate;
use super::pipeline::{summarised_range, summary_edit};
use super::preset::Guard;
use super::view::View;
use super::{ClearedResult, ContextEdited, Edit};
use crate::message::{Block, Message, ResultContent};

/// The layer name under which the guard's edits are recorded.
pub const GUARD_LAYER: &str = "guard";

/// Results shorter than this are left: their marker would be no shorter.
const LEAST_RESULT_CHARS: usize = 400;

/// How much of an unread result stays, so that the model can go on from it.
const UNREAD_PREVIEW_CHARS: usize = 1_000;

/// A line of the digest is cut here: the beginning of a command or a path says what it was.
const LINE_CHARS: usize = 120;

/// Makes the messages shrink to `room` estimated tokens if they can, and gives what it changed.
pub fn make_fit(view: &mut View, guard: &Guard, room: u64, transcript: &str) -> Vec<ContextEdited> {
    let mut edits = Vec::new();
    if view.extent().held <= room {
        return edits;
    }
    let target = room.saturating_mul(guard.target_percent) / 100;
    let spill = spill(view, target, transcript);
    apply(view, spill, &mut edits);
    if view.extent().held > room {
        let digest = digest(view, target / 4, transcript);
        apply(view, digest, &mut edits);
    }
    edits
}

fn apply(view: &mut View, edit: Option<Edit>, edits: &mut Vec<ContextEdited>) {
    let Some(edit) = edit else { return };
    let before_tokens = view.tokens();
    if view.apply(&edit).is_ok() {
        let after_tokens = view.tokens();
        let layer = GUARD_LAYER.to_owned();
        edits.push(ContextEdited { layer, edit, before_tokens, after_tokens });
    }
}

/// Takes long results out, oldest first and the unread ones last, until the target is met.
fn spill(view: &View, target: u64, transcript: &str) -> Option<Edit> {
    let mut excess = view.extent().held.saturating_sub(target);
    let unread = view.slots().next_back().map(|slot| slot.from);
    let mut results = Vec::new();
    for slot in view.slots().filter(|slot| !slot.entry.answers.is_empty()) {
        let Ok(message) = slot.entry.json.decode::<Message>() else { continue };
        for result in message.tool_results() {
            let ResultContent::Text(content) = &result.content else { continue };
            let chars = content.chars().count();
            if excess == 0 || chars < LEAST_RESULT_CHARS {
                continue;
            }
            let text = if Some(slot.from) == unread {
                let end: usize =
                    content.chars().take(UNREAD_PREVIEW_CHARS).map(char::len_utf8).sum();
                format!("{}\n[{chars} characters in all; the rest: {transcript}]", &content[..end])
            } else {
                format!("[{chars} characters, cleared; they stand in {transcript}]")
            };
            excess = excess.saturating_sub(estimate(content).saturating_sub(estimate(&text)));
            let tool_use_id = result.tool_use_id.clone();
            results.push(ClearedResult { message: slot.from, tool_use_id, text });
        }
    }
    (!results.is_empty()).then_some(Edit::ClearResults { results })
}

/// Replaces what the model has read by a list of what was asked and done.
fn digest(view: &View, most_tokens: u64, transcript: &str) -> Option<Edit> {
    let (from, to) = summarised_range(view)?;
    let mut lines = Vec::new();
    for slot in view.slots().filter(|slot| slot.from >= from && slot.to <= to) {
        let Ok(message) = slot.entry.json.decode::<Message>() else { continue };
        for block in &message.content {
            let line = match block {
                Block::Text(text) if slot.entry.is_request => format!("asked: {text}"),
                Block::Text(text) => format!("said: {text}"),
                Block::ToolUse(call) => format!("called {} {}", call.name, call.input.as_str()),
                Block::ToolResult(_) | Block::Other(_) => continue,
            };
            let line: String = line.split_whitespace().collect::<Vec<_>>().join(" ");
            lines.push(line.chars().take(LINE_CHARS).collect::<String>());
        }
    }
    // The newest lines are worth most.
    let mut room = most_tokens;
    let kept = lines.iter().rev().take_while(|line| {
        let tokens = estimate(line) + 1;
        let fits = tokens <= room;
        room = room.saturating_sub(tokens);
        fits
    });
    let kept = kept.count();
    let left_out = lines.len() - kept;
    let mut text = String::from("What was done so far, oldest first, each cut to one line:\n");
    if left_out > 0 {
        text.push_str(&format!("({left_out} earlier lines left out)\n"));
    }
    text.push_str(&lines[left_out..].join("\n"));
    Some(summary_edit(view, from, to, transcript, &text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Json, Role, ToolCall, ToolResult};

    const GUARD: Guard = Guard { target_percent: 80 };

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
        assert!(make_fit(&mut view, &GUARD, 2_000, "t.jsonl").is_empty());
    }

    #[test]
    fn read_results_go_before_unread_ones() {
        let mut view = view(10, 1_000);
        let edits = make_fit(&mut view, &GUARD, 1_500, "t.jsonl");
        assert_eq!(edits.len(), 1);
        assert!(view.extent().held <= 1_500);
        let last = view.slots().next_back().expect("a message").entry.json.as_str().to_owned();
        assert!(last.contains(&"some text ".repeat(100)), "the unread result stays whole");
    }

    #[test]
    fn one_giant_unread_result_is_cut() {
        let mut view = view(1, 500_000);
        make_fit(&mut view, &GUARD, 1_000, "t.jsonl");
        assert!(view.extent().held <= 1_000, "{:?}", view.extent());
    }

    #[test]
    fn a_long_conversation_of_short_results_becomes_a_digest() {
        let mut view = view(500, 10);
        let edits = make_fit(&mut view, &GUARD, 2_000, "t.jsonl");
        assert!(view.extent().held <= 2_000, "{:?}", view.extent());
        assert!(edits.iter().all(|edit| edit.layer == GUARD_LAYER));
        let first: Message = view.slots().next().expect("one").entry.json.decode().expect("one");
        assert!(first.text().contains("called read_file {\"path\":\"src/498.rs\"}"));
        let roles: Vec<_> = view.slots().map(|slot| slot.entry.role).collect();
        assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
        let whole: String = view.slots().map(|slot| slot.entry.json.as_str().to_owned()).collect();
        assert!(whole.contains("the goal"));
    }
}
