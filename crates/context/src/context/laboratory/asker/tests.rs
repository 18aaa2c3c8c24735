//! Answers of small views, against the facts of one conversation.

use serde_json::{Value, json};

use super::*;
use crate::context::Edit;

fn call(id: &str, input: Value) -> Value {
    let block = json!({"type": "tool_use", "id": id, "name": "x", "input": input});
    json!({"role": "assistant", "content": [block]})
}

fn result(id: &str, text: &str) -> Value {
    let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
    json!({"role": "user", "content": [block]})
}

/// A request with a rule, a file, a failing test and a value, then six calls about nothing.
fn conversation() -> Vec<Json> {
    let file = "first line of it\nsecond line of it\nthird line of it\nfourth line of it";
    let mut messages = vec![
        json!({"role": "user", "content": "Do it. You must not touch the schema."}),
        call("w", json!({"path": "src/deep/a.rs", "content": file})),
        result("w", "written"),
        call("t", json!({"command": "cargo test --all"})),
        result("t", "build 987654\ntest result: FAILED. 1 failed"),
    ];
    for n in 0..6 {
        let id = format!("n{n}");
        messages.push(call(&id, json!({"command": "ls"})));
        messages.push(result(&id, "nothing"));
    }
    messages.iter().map(Json::encode).collect()
}

/// The answers of a view in which this text stands for all but the last message.
fn asked_after(text: &str) -> Answers {
    let messages = conversation();
    let (mut view, mut facts) = (View::default(), Facts::default());
    for message in &messages {
        facts.push(message);
        view.push(message.clone()).expect("a message");
    }
    if !text.is_empty() {
        let record = json!({"role": "user", "content": text});
        let (to, with) = (messages.len() as u64 - 2, vec![Json::encode(&record)]);
        view.apply(&Edit::Replace { from: 0, to, with }).expect("an edit");
    }
    let reply = json!({"role": "assistant", "content": "The build 987654 failed."});
    let mut asker = Asker::default();
    // The second request asks the same again: what is remembered answers as what is read.
    for _ in 0..2 {
        asker.request(&view, "", &facts, &Json::encode(&reply));
    }
    asker.answers()
}

#[test]
fn the_facts_of_a_view_are_found_and_missed() {
    let order = |answers: &Answers| answers.order.of;
    let all = |answers: &Answers| answers.all().map(|(_, share)| share.held).to_vec();
    let off = asked_after("");
    assert!(off.all()[..5].iter().all(|(_, share)| (share.held, share.of) == (2, 2)), "{off:?}");
    assert_eq!(order(&off), 0, "what is recorded is no quotation");
    let none = asked_after("Much was done.");
    assert!(none.all()[..5].iter().all(|(_, share)| (share.held, share.of) == (0, 2)), "{none:?}");
    let whole = "You must not touch the schema.\nwrote deep/a.rs:\n+ first line of it\n\
                 + second line of it\n+ third line of it\n+ fourth line of it\n\
                 $ cargo test --all\ntest result: FAILED. 1 failed\nbuild 987654";
    let kept = asked_after(whole);
    assert_eq!(all(&kept)[..5], [2, 2, 2, 2, 2], "{kept:?}");
    assert_eq!((kept.order.held, order(&kept)), (6, 6), "{kept:?}");
    // With a hole in it the file is not whole, and its lines are no neighbours.
    let holes = asked_after(&whole.replace("+ second line of it\n", ""));
    assert_eq!((holes.files.held, holes.files_whole.held), (2, 0), "{holes:?}");
    assert_eq!((holes.order.held, order(&holes)), (2, 4), "{holes:?}");
    // The outcome of another command behind it is not its own.
    let other = asked_after("$ cargo test --all\n... and much later\n".to_owned().as_str());
    assert_eq!(other.outcomes.held, 0, "{other:?}");
}
