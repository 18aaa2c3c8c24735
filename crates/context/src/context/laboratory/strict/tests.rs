//! Checks of small views, each of which lacks one thing.

use serde_json::json;

use super::*;
use crate::context::Edit;

fn call(id: &str) -> Json {
    let block = json!({"type": "tool_use", "id": id, "name": "x", "input": {"command": id}});
    Json::encode(&json!({"role": "assistant", "content": [block]}))
}

fn result(id: &str, text: &str) -> Json {
    let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
    Json::encode(&json!({"role": "user", "content": [block]}))
}

fn user(text: &str) -> Json {
    Json::encode(&json!({"role": "user", "content": [{"type": "text", "text": text}]}))
}

/// A conversation of a request and five calls; the last result is unread.
fn conversation() -> Vec<Json> {
    let calls = (0..5).flat_map(|n| {
        [call(&format!("call {n}")), result(&format!("call {n}"), &format!("got {n}"))]
    });
    std::iter::once(user("fix it")).chain(calls).collect()
}

/// Returns true if the view is valid after an edit of the conversation.
fn is_valid(edit: Option<(u64, u64, Vec<Json>)>) -> bool {
    let (mut view, mut checker) = (View::default(), Checker::default());
    for message in conversation() {
        checker.push(&message);
        view.push(message).expect("a message");
    }
    if let Some((from, to, with)) = edit {
        view.apply(&Edit::Replace { from, to, with }).expect("applies");
    }
    checker.request(&view, "system and more", "system");
    checker.request(&view, "other", "system");
    assert!(checker.invalid() >= 1, "another system prompt is wrong");
    checker.invalid() == 1
}

#[test]
fn what_is_new_must_stand_word_for_word() {
    let said = user("fix it");
    let reply =
        Json::encode(&json!({"role": "assistant", "content": [{"type": "text", "text": "ok"}]}));
    let earlier = vec![user("earlier"), reply, said.clone()];
    assert!(is_valid(None));
    assert!(is_valid(Some((0, 3, earlier.clone()))), "the request stands in another message");
    assert!(!is_valid(Some((0, 3, vec![user("earlier")]))), "no request");
    assert!(!is_valid(Some((0, 7, earlier))), "a call of the last six messages is gone");
    assert!(
        !is_valid(Some((9, 11, vec![call("call 4"), result("call 4", "")]))),
        "an unread result"
    );
    assert!(is_valid(Some((9, 11, vec![call("call 4"), result("call 4", "it: got 4.")]))));
    assert!(!is_valid(Some((0, 3, vec![said, call("a")]))), "a call without a result");
}
