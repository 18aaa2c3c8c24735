//! The pipeline: which layer is due before the next model call, and what it would change.
//!
//! Pure: it proposes edits and summaries; the agent records and applies them.

use super::preset::{ClearOld, KeepUnit, Preset, Summarise};
use super::view::View;
use super::{ClearedResult, CompactionTrigger, ContextEdited, Edit};
use crate::message::{Json, Message, Role};

/// The layer name under which cleared results are recorded.
pub const CLEAR_LAYER: &str = "micro";
/// The layer name under which summaries are recorded.
pub const SUMMARY_LAYER: &str = "summary";

/// A summary that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRequest {
    /// Why.
    pub trigger: CompactionTrigger,
    /// The first message covered.
    pub from: u64,
    /// The first message not covered.
    pub to: u64,
    /// What to preserve, if somebody said.
    pub focus: Option<String>,
    /// The size of what it replaces, in characters: a summary that is no shorter is none.
    pub covers_chars: usize,
    /// The one user message for the summariser.
    pub prompt: String,
    /// The most tokens of the summary.
    pub max_tokens: u64,
}

impl SummaryRequest {
    /// Adds instructions of somebody's own.
    pub fn instruct(&mut self, instructions: &str) {
        self.prompt.push_str(&format!("\n\nAdditional instructions:\n{instructions}"));
    }
}

/// Clears the results that have grown old and are worth it; the others of their age are struck off
/// the list, so that no later turn looks at them again.
fn clear_old(view: &mut View, layer: &ClearOld) -> Option<ContextEdited> {
    let old = match layer.keep_unit {
        KeepUnit::Blocks => view.clearable().len().saturating_sub(layer.keep_recent),
        KeepUnit::Turns => {
            let mut kept = std::collections::BTreeSet::new();
            let newest = view.clearable().iter().rev().take_while(|result| {
                kept.insert(result.message);
                kept.len() <= layer.keep_recent
            });
            view.clearable().len() - newest.count()
        }
    };
    let worth = |chars: Option<usize>| chars.is_some_and(|chars| chars > layer.min_chars);
    let results: Vec<_> = view
        .clearable()
        .iter()
        .take(old)
        .filter(|result| worth(result.chars) && !layer.preserve_tools.contains(&result.tool))
        .map(|result| ClearedResult {
            message: result.message,
            tool_use_id: result.tool_use_id.clone(),
            text: format!("[Previous: used {}]", result.tool),
        })
        .collect();
    view.settle(old);
    if results.is_empty() {
        return None;
    }
    let before_tokens = view.tokens();
    let edit = Edit::ClearResults { results };
    view.apply(&edit).ok()?;
    let after_tokens = view.tokens();
    Some(ContextEdited { layer: CLEAR_LAYER.to_owned(), edit, before_tokens, after_tokens })
}

/// The summary that is due, if one is: the view is over the threshold, or somebody asked.
///
/// What the model has not read yet stays outside the range: the last user message, and the call
/// that it answers.
#[must_use]
pub fn summary_due(
    view: &View,
    layer: &Summarise,
    asked: Option<(CompactionTrigger, Option<String>)>,
) -> Option<SummaryRequest> {
    let (trigger, focus) = match asked {
        Some(asked) => asked,
        None if view.tokens() > layer.threshold_tokens => (CompactionTrigger::Auto, None),
        None => return None,
    };
    let (from, to) = summarised_range(view)?;
    // A range that is nearly empty cannot pay: what is too large then is the unread tail, and
    // another summary before every call would only repeat this one.
    let covered: usize = covered(view, from, to).map(|slot| slot.entry.chars).sum();
    if trigger == CompactionTrigger::Auto && (covered as u64 / 4) < layer.threshold_tokens / 10 {
        return None;
    }
    let mut prompt = String::from(
        "Summarize this conversation for continuity. Include: 1) What was accomplished, \
         2) Current state, 3) Key decisions made. Be concise but preserve critical details.",
    );
    if let Some(focus) = &focus {
        prompt.push_str(&format!(" Pay special attention to preserving details about: {focus}."));
    }
    prompt.push_str("\n\n");
    prompt.push_str(&serialised(view, from, to, layer.input_chars));
    Some(SummaryRequest {
        trigger,
        from,
        to,
        focus,
        covers_chars: covered,
        prompt,
        max_tokens: layer.max_tokens,
    })
}

/// The edit that puts a summary in the place of the range it covers. `path` is the transcript.
#[must_use]
pub fn summary_edit(view: &View, from: u64, to: u64, path: &str, summary: &str) -> Edit {
    let opening =
        Message::user(format!("[Conversation compressed. Transcript: {path}]\n\n{summary}"));
    let reply = "Understood. I have the context from the summary. Continuing.";
    let mut with = vec![Json::encode(&opening), Json::encode(&Message::assistant(reply))];
    // What an earlier edit left at `to` has no messages of its own and is covered too.
    let tail = || view.slots().filter(|slot| slot.to > to);
    let tail_speaks = tail().next().map(|slot| slot.entry.role);
    // The active request stays word for word, as the last of what replaces the range.
    if !tail().any(|slot| slot.entry.is_request)
        && let Some(request) = covered(view, from, to).filter(|s| s.entry.is_request).last()
    {
        with.extend(request_only(&request.entry.json));
    }
    if with.len() == 2 && tail_speaks == Some(Role::Assistant) {
        // Roles alternate: an assistant message may not follow the acknowledgement.
        with.push(Json::encode(&Message::user("Continue.")));
    }
    Edit::Replace { from, to, with }
}

/// The text blocks of a message, without the tool results that stood before them.
fn request_only(json: &Json) -> Option<Json> {
    let mut message: Message = json.decode().ok()?;
    message.content.retain(|block| matches!(block, crate::message::Block::Text(_)));
    Some(Json::encode(&message))
}

/// From the view's first message to the exchange that the model has not read yet, or to an answer
/// of its own that it is about to continue.
pub(super) fn summarised_range(view: &View) -> Option<(u64, u64)> {
    let from = view.slots().next()?.from;
    let mut slots = view.slots().rev();
    let last = slots.next()?;
    let to = match last.entry.role {
        Role::User if last.entry.answers.is_empty() => last.from,
        Role::User => slots.next()?.from,
        Role::Assistant => last.from,
    };
    (from < to).then_some((from, to))
}

fn covered(view: &View, from: u64, to: u64) -> impl Iterator<Item = &super::view::Slot> {
    view.slots().filter(move |slot| slot.from >= from && slot.to <= to)
}

/// The messages of the range, one a line, cut at a message's end where the limit allows: the first
/// third of the room goes to the beginning, which holds the goal, the rest to the newest messages.
fn serialised(view: &View, from: u64, to: u64, limit: usize) -> String {
    let all: Vec<_> = covered(view, from, to).collect();
    let total: usize = all.iter().map(|slot| slot.entry.chars + 1).sum();
    let line = |slot: &&super::view::Slot| format!("{}\n", slot.entry.json.as_str());
    if total <= limit {
        return all.iter().map(line).collect();
    }
    let take = |slots: &mut dyn Iterator<Item = &&super::view::Slot>, room: usize| {
        let mut left = room;
        let fitting = slots.take_while(|slot| {
            let fits = slot.entry.chars < left;
            left = left.saturating_sub(slot.entry.chars + 1);
            fits
        });
        fitting.count()
    };
    let head = take(&mut all.iter(), limit / 3);
    let tail = take(&mut all[head..].iter().rev(), limit - limit / 3);
    let mut text: String = all[..head].iter().map(line).collect();
    let cut = all.len() - head - tail;
    if cut > 0 {
        text.push_str(&format!("... {cut} messages left out ...\n"));
    }
    let tail: String = all[all.len() - tail..].iter().map(line).collect();
    text + &tail
}

/// Runs the layers of `preset` that need no model, in order; gives what they changed.
pub fn run_cheap_layers(view: &mut View, preset: &Preset) -> Vec<ContextEdited> {
    let clear = preset.clear_old.as_ref().and_then(|layer| clear_old(view, layer));
    clear.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Block, ResultContent, ToolCall, ToolResult};

    fn exchange(view: &mut View, turn: usize, sizes: &[usize]) {
        let id = |n: usize| format!("{turn}.{n}");
        let calls = (0..sizes.len()).map(|n| {
            let input = Json::encode(&serde_json::json!({}));
            Block::ToolUse(ToolCall { id: id(n), name: "bash".to_owned(), input })
        });
        let calls = Message { role: Role::Assistant, content: calls.collect() };
        let results = sizes.iter().enumerate().map(|(n, size)| {
            let content = ResultContent::Text("y".repeat(*size));
            Block::ToolResult(ToolResult { tool_use_id: id(n), content, is_error: false })
        });
        let results = Message { role: Role::User, content: results.collect() };
        view.push(Json::encode(&calls)).expect("a message");
        view.push(Json::encode(&results)).expect("a message");
    }

    fn texts(view: &View) -> Vec<String> {
        let messages = view.slots().map(|slot| slot.entry.json.decode::<Message>().expect("one"));
        let results =
            messages.flat_map(|m| m.tool_results().map(ToolResult::text).collect::<Vec<_>>());
        results.collect()
    }

    #[test]
    fn clearing_follows_the_documented_rule() {
        let preset = Preset::three_layer();
        let mut view = View::default();
        view.push(Json::encode(&Message::user("go"))).expect("a message");
        for (turn, size) in [101, 100, 101, 101].into_iter().enumerate() {
            exchange(&mut view, turn, &[size]);
        }
        let edits = run_cheap_layers(&mut view, &preset);
        assert_eq!(edits.len(), 1);
        assert!(edits[0].after_tokens < edits[0].before_tokens);
        assert_eq!(texts(&view)[0], "[Previous: used bash]");
        assert_eq!(texts(&view)[1].len(), 100);
        exchange(&mut view, 9, &[7]);
        assert!(run_cheap_layers(&mut view, &preset).is_empty(), "100 characters stay for ever");
        exchange(&mut view, 10, &[7, 7]);
        assert_eq!(run_cheap_layers(&mut view, &preset).len(), 1);
        assert_eq!(texts(&view)[2], "[Previous: used bash]");
        assert_eq!(texts(&view)[3], "[Previous: used bash]");
    }

    #[test]
    fn turns_can_be_kept_instead_of_blocks() {
        let mut preset = Preset::three_layer();
        let clear = preset.clear_old.as_mut().expect("clears");
        (clear.keep_unit, clear.keep_recent) = (KeepUnit::Turns, 1);
        let mut view = View::default();
        view.push(Json::encode(&Message::user("go"))).expect("a message");
        exchange(&mut view, 0, &[200, 200]);
        exchange(&mut view, 1, &[200, 200]);
        run_cheap_layers(&mut view, &preset);
        let cleared = texts(&view).iter().filter(|text| text.starts_with('[')).count();
        assert_eq!(cleared, 2);
    }

    #[test]
    fn a_summary_keeps_what_is_unread_and_the_request() {
        let layer = Preset::three_layer().summarise.expect("summarises");
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        for turn in 0..8 {
            exchange(&mut view, turn, &[30_000]);
        }
        assert!(view.tokens() > layer.threshold_tokens);
        let request = summary_due(&view, &layer, None).expect("due");
        assert_eq!((request.from, request.to), (0, 15));
        assert!(request.prompt.chars().count() < layer.input_chars + 400);
        let edit = summary_edit(&view, request.from, request.to, "t.jsonl", "done so far");
        view.apply(&edit).expect("applies");
        let messages: Vec<Message> =
            view.slots().map(|slot| slot.entry.json.decode().expect("one")).collect();
        let roles: Vec<_> = messages.iter().map(|m| m.role).collect();
        use Role::{Assistant as A, User as U};
        assert_eq!(roles, [U, A, U, A, U]);
        assert_eq!(
            messages[0].text(),
            "[Conversation compressed. Transcript: t.jsonl]\n\ndone so far"
        );
        assert_eq!(messages[2].text(), "the goal");
        assert_eq!(messages[4].tool_results().count(), 1);
        assert!(summary_due(&view, &layer, None).is_none());
    }

    #[test]
    fn a_large_unread_tail_is_not_summarised_again_and_again() {
        let layer = Preset::three_layer().summarise.expect("summarises");
        let mut view = View::default();
        view.push(Json::encode(&Message::user("the goal"))).expect("a message");
        exchange(&mut view, 0, &[300_000]);
        assert!(summary_due(&view, &layer, None).is_none());
        let asked = Some((CompactionTrigger::Manual, Some("names".to_owned())));
        let request = summary_due(&view, &layer, asked).expect("asked for");
        assert!(request.prompt.contains("preserving details about: names."));
    }
}
