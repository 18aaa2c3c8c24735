//! Note to an agent that asked for a summary and got none: the reason, and what stands instead.
//!
//! Pure. The answer of the tool `compact` stands before its summary is tried, so a failure can only be told
//! afterwards. The note joins the newest user message, as an edit like any other.

use crate::context::Edit;
use crate::context::view::View;
use crate::message::{Json, Message};

/// Layer name under which the note is recorded.
pub const NAME: &str = "compact";

/// Most characters of the reason that are told: it may quote what a server answered.
const REASON_CHARS: usize = 300;

/// Returns the edit that adds the note behind the newest message. `changes` are the edits that were made
/// instead of the summary.
#[must_use]
pub fn note(view: &View, reason: &str, changes: &[&Edit]) -> Edit {
    // One line, so that a text of a server cannot look like a paragraph of its own.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason: String = reason.chars().take(REASON_CHARS).collect();
    let text = format!(
        "[`compact` has failed, no summary was written. Reason: {reason}. {}]",
        instead(changes)
    );
    let end = view.next_message();
    Edit::Replace { from: end, to: end, with: vec![Json::encode(&Message::user(text))] }
}

/// Returns what stands in the place of the summary.
fn instead(changes: &[&Edit]) -> &'static str {
    if changes.is_empty() {
        "Your view of the conversation stands as it was."
    } else if changes.iter().any(|edit| matches!(edit, Edit::Record(_))) {
        "A record that was made without a model stands in the place of the older messages instead."
    } else if changes.iter().all(|edit| matches!(edit, Edit::ClearResults { .. })) {
        "All messages stand; only results of earlier calls were made shorter, without a model."
    } else {
        "Older messages were made shorter or left out without a model, as before any request."
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::context::view::Standing;

    fn view() -> View {
        let mut view = View::default();
        let call = json!({"type": "tool_use", "id": "c", "name": "compact", "input": {}});
        let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "later"});
        for message in [
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": [call]}),
            json!({"role": "user", "content": [result]}),
        ] {
            view.push(Json::encode(&message)).expect("a message");
        }
        view
    }

    #[test]
    fn the_note_joins_the_results_and_is_no_request() {
        let mut view = view();
        let edit = note(&view, &format!("503:\n\n{}", "x".repeat(999)), &[]);
        view.apply(&edit).expect("applies");
        let last = view.slots().next_back().expect("a slot");
        let message: Message = last.entry.json.decode().expect("a message");
        assert_eq!(message.tool_results().count(), 1);
        let text = message.text();
        assert!(text.starts_with("[`compact` has failed"), "{text}");
        assert!(text.contains("Reason: 503: xxx") && text.chars().count() < 500, "{text}");
        assert!(text.ends_with("stands as it was.]"), "{text}");
        assert_eq!(view.slots().count(), 3, "roles alternate");
        assert_eq!((view.next_message(), last.standing), (3, Standing::Cleared));
        assert!(!last.entry.is_request);
        let request = view.request().expect("the active request");
        assert!(request.json.as_str().contains("\"go\""));
        // What follows stands behind it.
        let reply = json!({"role": "assistant", "content": "on"});
        view.push(Json::encode(&reply)).expect("a message");
        assert_eq!(view.slots().next_back().map(|slot| slot.from), Some(3));
    }

    #[test]
    fn the_note_says_what_stands_instead() {
        let clear = Edit::ClearResults { results: Vec::new() };
        let with = vec![Json::encode(&Message::user("short"))];
        let replace = Edit::Replace { from: 0, to: 1, with };
        assert!(instead(&[]).contains("stands as it was"));
        assert!(instead(&[&clear]).contains("All messages stand"));
        assert!(instead(&[&clear, &replace]).contains("left out"));
    }
}
