//! Summaries that a provider wrote: the edits that bring them to the front of the view.
//!
//! Pure. Such a summary is a block of its own type. It stands first in the view, word for word, in
//! the place of the range that it covers. Text that must not be paraphrased is kept behind it: the
//! active request, and the messages that the model has not read yet.

use crate::context::Edit;
use crate::context::layers::pipeline::{self, AppliedEdit};
use crate::context::view::range;
use crate::context::view::{Slot, View};
use crate::message::{Block, Json, Message, Role};

/// Layer name under which the edits of these summaries are recorded.
pub const SERVER_LAYER: &str = "server";

/// Type of such a block. A message whose JSON does not contain the word has none.
const KIND: &str = "compaction";

/// Returns the text of a summary block; `None` for other blocks and for a summary that failed.
#[must_use]
pub fn summary_text(block: &Block) -> Option<String> {
    let Block::Other(raw) = block else { return None };
    let value = raw.to_value();
    let text = value["content"].as_str().filter(|text| !text.trim().is_empty())?;
    (value["type"] == KIND).then(|| text.to_owned())
}

fn is_compaction(block: &Block) -> bool {
    matches!(block, Block::Other(raw) if raw.to_value()["type"] == KIND)
}

/// Returns true if a block stands for the messages before it: a summary, in words or encrypted.
fn is_summary(block: &Block) -> bool {
    summary_text(block).is_some() || is_sealed(block)
}

/// Returns true for a summary that only the service that wrote it can read.
#[must_use]
pub fn is_sealed(block: &Block) -> bool {
    let Block::Other(raw) = block else { return false };
    let value = raw.to_value();
    let sealed = value["encrypted_content"].as_str();
    value["type"] == KIND && sealed.is_some_and(|sealed| !sealed.is_empty())
}

/// Moves the summary of the newest reply to the front of the view, and returns the edits that did
/// it. A second call changes nothing.
pub fn adopt(view: &mut View) -> Vec<AppliedEdit> {
    let edits = newest_reply(view).map(|(slot, reply)| edits(view, &slot, &reply));
    let edits = edits.unwrap_or_default().into_iter();
    edits.filter_map(|edit| pipeline::apply(view, SERVER_LAYER, edit.into())).collect()
}

/// Returns the newest reply, if it may hold such a block and does not stand first. One message may
/// follow the reply: results, or a prompt to continue.
fn newest_reply(view: &View) -> Option<(Slot, Message)> {
    let first = view.slots().next()?.serial;
    let mut newest = view.slots().rev().take(2).filter(|slot| slot.serial != first);
    let slot = newest.find(|slot| slot.entry.role == Role::Assistant)?;
    let text = slot.entry.json.as_str();
    let message = text.contains(KIND).then(|| Message::read(text).ok())??;
    Some((slot.clone(), message))
}

/// Returns the edits for a reply: its summary goes to the front with the active request, and the
/// blocks behind the summary stay where they are. The front is changed last, so that thinking
/// behind it counts as older than the change.
fn edits(view: &View, slot: &Slot, reply: &Message) -> Vec<Edit> {
    let content = &reply.content;
    let becomes = |with: Vec<Json>| Edit::Replace { from: slot.from, to: slot.to, with };
    let Some(at) = content.iter().rposition(is_summary) else {
        // A summary that failed, and nothing else: as if there had been no reply.
        let is_nothing = content.iter().all(is_compaction);
        return is_nothing.then(|| becomes(Vec::new())).into_iter().collect();
    };
    let from = view.slots().next().map_or(slot.from, |first| first.from);
    let rest = Message { role: reply.role, content: content[at + 1..].to_vec() };
    let (to, rest) = match rest.content.is_empty() {
        // The provider stopped there: the unread messages are put back behind the summary.
        true => (kept_from(view, slot).unwrap_or(slot.from), Vec::new()),
        false => (slot.from, vec![Json::encode(&rest)]),
    };
    vec![becomes(rest), in_front(view, from, to, &content[at])]
}

/// Returns the first message that the model had not read before this reply: the request, or the
/// message with the calls that the unread results answer.
fn kept_from(view: &View, reply: &Slot) -> Option<u64> {
    let mut before = view.slots().rev().skip_while(|slot| slot.to > reply.from);
    let last = before.next()?;
    Some(match (last.entry.role, last.entry.answers.is_empty()) {
        (Role::User, false) => before.next()?.from,
        (Role::User, true) | (Role::Assistant, _) => last.from,
    })
}

/// Returns the edit that puts a summary in the place of a range at the front: in a message of its
/// own, followed by the active request if that stands in the range.
#[must_use]
pub fn in_front(view: &View, from: u64, to: u64, summary: &Block) -> Edit {
    let summary = Message { role: Role::Assistant, content: vec![summary.clone()] };
    range::replacement(view, from, to, vec![summary])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ResultContent, ToolCall, ToolResult};

    const SIGNED: &str =
        r#"{"type":"compaction","content":"so far","signature":"s","tool_changes":[ ]}"#;
    const FAILED: &str = r#"{"type":"compaction","content":null}"#;
    const THINKING: &str = r#"{"type":"thinking","thinking":"hm","signature":"sig"}"#;

    fn other(raw: &str) -> Block {
        Block::Other(Json::parse(raw.to_owned()).expect("JSON"))
    }

    fn call(id: &str) -> Block {
        let input = Json::encode(&serde_json::json!({}));
        Block::ToolUse(ToolCall { id: id.to_owned(), name: "bash".to_owned(), input })
    }

    fn assistant(content: Vec<Block>) -> Message {
        Message { role: Role::Assistant, content }
    }

    fn results(id: &str) -> Message {
        let content = ResultContent::Text(format!("result of {id}"));
        let result = ToolResult { tool_use_id: id.to_owned(), content, is_error: false };
        Message { role: Role::User, content: vec![Block::ToolResult(result)] }
    }

    fn view(messages: &[Message]) -> View {
        let mut view = View::default();
        messages.iter().for_each(|message| view.push(Json::encode(message)).expect("a message"));
        view
    }

    fn shown(view: &View) -> Vec<String> {
        view.slots().map(|slot| slot.entry.json.as_str().to_owned()).collect()
    }

    fn encoded(messages: &[Message]) -> Vec<String> {
        messages.iter().map(|message| Json::encode(message).as_str().to_owned()).collect()
    }

    fn worked() -> Vec<Message> {
        vec![
            Message::user("the goal"),
            assistant(vec![call("0")]),
            results("0"),
            assistant(vec![other(THINKING), call("1")]),
            results("1"),
        ]
    }

    /// The view after adoption, which must come out of the recorded edits as well.
    fn adopted(messages: &[Message]) -> Vec<String> {
        let mut view = view(messages);
        let edits = adopt(&mut view);
        let mut again = self::view(messages);
        edits.iter().for_each(|edit| again.apply(&edit.edited.edit).expect("applies"));
        assert_eq!(shown(&view), shown(&again));
        assert!(edits.iter().all(|edit| edit.edited.layer == SERVER_LAYER));
        assert!(adopt(&mut view).is_empty(), "a second time changes nothing");
        assert_eq!(view.next_message(), messages.len() as u64);
        shown(&view)
    }

    #[test]
    fn the_request_stands_between_a_summary_and_the_reply_that_goes_on_from_it() {
        let rest = vec![other(THINKING), Block::Text("next".to_owned()), call("2")];
        for before in [Vec::new(), vec![Block::Text("old".to_owned())]] {
            let reply = assistant([before, vec![other(SIGNED)], rest.clone()].concat());
            let mut messages = worked();
            messages.push(reply);
            let mut expected = vec![
                assistant(vec![other(SIGNED)]),
                Message::user("the goal"),
                assistant(rest.clone()),
            ];
            assert_eq!(adopted(&messages), encoded(&expected));
            messages.push(results("2"));
            expected.push(results("2"));
            assert_eq!(adopted(&messages), encoded(&expected));
        }
    }

    #[test]
    fn after_a_pause_the_request_and_what_is_unread_follow_the_summary() {
        let mut messages = worked();
        let summary = assistant(vec![other(SIGNED)]);
        messages.push(summary.clone());
        let expected = [
            summary.clone(),
            Message::user("the goal"),
            assistant(vec![other(THINKING), call("1")]),
            results("1"),
        ];
        assert_eq!(adopted(&messages), encoded(&expected));
        let unread = [Message::user("first"), Message::assistant("yes"), Message::user("second")];
        let paused = [unread.as_slice(), std::slice::from_ref(&summary)].concat();
        assert_eq!(adopted(&paused), encoded(&[summary.clone(), Message::user("second")]));
        let alone = [Message::user("huge"), summary.clone()];
        assert_eq!(adopted(&alone), encoded(&[summary, Message::user("huge")]));
    }

    #[test]
    fn a_second_summary_takes_the_place_of_the_first() {
        let summary = assistant(vec![other(SIGNED)]);
        let mut messages = worked();
        messages.push(summary.clone());
        let mut view = view(&messages);
        adopt(&mut view);
        let second = SIGNED.replace("so far", "more");
        let more = [assistant(vec![call("2")]), results("2"), assistant(vec![other(&second)])];
        more.iter().for_each(|message| view.push(Json::encode(message)).expect("a message"));
        adopt(&mut view);
        let expected = [
            assistant(vec![other(&second)]),
            Message::user("the goal"),
            assistant(vec![call("2")]),
            results("2"),
        ];
        assert_eq!(shown(&view), encoded(&expected));
    }

    #[test]
    fn a_summary_that_failed_leaves_the_view_as_it_was() {
        let mut messages = worked();
        messages.push(assistant(vec![other(FAILED)]));
        assert_eq!(adopted(&messages), encoded(&worked()));
        let went_on = [other(FAILED), Block::Text("next".to_owned()), call("2")];
        messages.pop();
        messages.push(assistant(went_on.to_vec()));
        assert_eq!(adopted(&messages), encoded(&messages));
        assert_eq!(adopted(&worked()), encoded(&worked()));
    }

    #[test]
    fn a_summary_on_demand_stands_before_the_request_and_the_unread_tail() {
        let view = &mut view(&worked());
        let edit = in_front(view, 0, 3, &other(SIGNED));
        view.apply(&edit).expect("applies");
        let expected = [
            assistant(vec![other(SIGNED)]),
            Message::user("the goal"),
            assistant(vec![other(THINKING), call("1")]),
            results("1"),
        ];
        assert_eq!(shown(view), encoded(&expected));
    }

    #[test]
    fn a_reply_that_speaks_of_it_is_left_alone() {
        let mut messages = worked();
        messages.push(Message::assistant("compaction, {\"type\":\"compaction\"}"));
        assert_eq!(adopted(&messages), encoded(&messages));
        let spaced = r#"{ "type": "compaction", "content": "so far" }"#;
        messages.pop();
        messages.push(assistant(vec![other(spaced)]));
        assert_eq!(adopted(&messages)[0], encoded(&messages[5..])[0]);
    }

    #[test]
    fn only_a_text_is_a_summary() {
        assert_eq!(summary_text(&other(SIGNED)).as_deref(), Some("so far"));
        for none in [FAILED, r#"{"type":"compaction","content":""}"#, THINKING] {
            assert_eq!(summary_text(&other(none)), None, "{none}");
        }
    }
}
