//! Tests of the report's document, on records.

use serde_json::{Value, json};

use super::*;
use crate::event::{Event, Record};
use crate::report::evidence::EvidenceFold;

/// Folds events, each with its task, its agent, and a millisecond after the last.
fn document(events: &[(Option<&str>, Option<&str>, &str, Value)]) -> Document {
    let mut state = RunState::default();
    let (mut evidence, mut story) = (EvidenceFold::default(), Story::default());
    for (seq, (task, agent, kind, data)) in (1..).zip(events) {
        let event = Event::decode(kind, &data.to_string()).expect("a payload").expect("a type");
        let task = task.map(|task| Name::of_record(task).expect("a name"));
        let agent = agent.map(AgentId::from_text);
        let ts_ms = 1_700_000_000_000 + i64::try_from(seq).expect("small");
        let record = Record { seq, epoch: 1, ts_ms, task, agent, event };
        state.apply(&record).expect("legal");
        evidence.apply(&record);
        story.apply(&record);
    }
    Document::new(&state, &evidence.finish(), story, false, 1_700_000_100_000)
}

fn created(tasks: &[String]) -> (Option<&'static str>, Option<&'static str>, &'static str, Value) {
    let tasks: Vec<_> = tasks.iter().map(|name| json!({"name": name})).collect();
    let data = json!({"run": uuid::Uuid::nil(), "workflow": "w", "program": "0", "config": "",
                      "config_hash": "", "inputs": {"path": "src"}, "tasks": tasks});
    (None, None, "run.created", data)
}

#[test]
fn ten_thousand_tasks_fit_a_page_and_the_json_has_them_all() {
    let names: Vec<_> = (0..10_000).map(|n| format!("review[{n}]")).collect();
    let mut events = vec![created(&names)];
    for (n, name) in names.iter().enumerate() {
        let started = json!({"attempt": 1, "agent": name});
        let end = match n {
            17 | 4_711 => {
                let failure = json!({"kind": "max_turns", "message": format!("no answer in {n}")});
                ("task.failed", json!({"attempt": 1, "failure": failure}))
            }
            _ => ("task.completed", json!({"attempt": 1, "output": {"text": "fine"}})),
        };
        events.push((Some(name), None, "task.ready", json!({})));
        events.push((Some(name), None, "task.started", started));
        events.push((Some(name), None, end.0, end.1));
    }
    let document = document(&events);
    let page = document.markdown();
    assert!(page.lines().count() < 600, "{} lines", page.lines().count());
    let row = |label: &str| page.lines().find(|line| line.contains(label)).expect("a row");
    assert!(row("`review[17,4711]`").contains("| 2 "), "{page}");
    assert!(row("`review[0..16,18..4710,4712..9999]`").contains("| 9,998 "));
    let failed = page.find("### `review[17]`: **failed**").expect("a section");
    assert!(failed < page.find("### `review[0]`").expect("a section"), "failures come first");
    let whole: Value = serde_json::from_str(&document.json()).expect("JSON");
    assert_eq!(whole["tasks"].as_array().expect("a list").len(), 10_000);
    assert_eq!(whole["counts"], json!({"completed": 9_998, "failed": 2}));
    assert!(document.html().len() < 100_000);
}

#[test]
fn what_waited_is_told_with_its_length() {
    let failure = json!({"kind": "overloaded", "message": "try later"});
    let events = [
        created(&["a".to_owned()]),
        (None, None, "run.opened", json!({"epoch": 1, "pid": 1})),
        (Some("a"), None, "task.ready", json!({})),
        (Some("a"), None, "task.started", json!({"attempt": 1, "agent": "a"})),
        (None, None, "gateway.parked", json!({"provider": "p", "for_ms": 9, "reason": "429"})),
        (None, None, "gateway.resumed", json!({"provider": "p"})),
        (
            Some("a"),
            None,
            "task.retrying",
            json!({"attempt": 1, "failure": failure, "pause_ms": 5}),
        ),
        (Some("a"), None, "task.started", json!({"attempt": 2, "agent": "a~2"})),
        (None, None, "run.paused", json!({"reason": "Ctrl-C"})),
    ];
    let document = document(&events);
    let waits: Vec<_> = document
        .waits
        .iter()
        .map(|wait| (wait.kind, wait.who.as_str(), wait.ms, wait.open))
        .collect();
    let wanted = [("provider", "p", 1, false), ("retry", "a", 1, false), ("pause", "", 0, true)];
    assert_eq!(waits, wanted);
    assert_eq!(document.tasks[0].retries[0].attempt, 1);
    assert_eq!(document.paused.as_deref(), Some("Ctrl-C"));
    assert!(document.markdown().contains("attempt 1 failed at"), "{}", document.markdown());
}

#[test]
fn what_is_no_longer_asked_and_what_a_run_left_behind_wait_no_more() {
    let mut events = vec![
        created(&["gate".to_owned(), "other".to_owned()]),
        (None, None, "run.opened", json!({"epoch": 1, "pid": 1})),
        (Some("gate"), None, "task.ready", json!({})),
        (
            Some("gate"),
            None,
            "approval.asked",
            json!({"id": "q1", "kind": "approval", "message": "Go?"}),
        ),
        (None, None, "gateway.parked", json!({"provider": "p", "for_ms": 9, "reason": "429"})),
        (None, None, "run.paused", json!({"reason": "a person", "cause": "person"})),
    ];
    let waits = |events: &[_]| -> Vec<_> {
        let waits = document(events).waits.into_iter();
        waits.map(|wait| (wait.kind, wait.who, wait.open)).collect()
    };
    let wait = |kind, who: &str, open| (kind, who.to_owned(), open);
    let wanted =
        [wait("person", "gate", true), wait("provider", "p", true), wait("pause", "", true)];
    assert_eq!(waits(&events), wanted);

    // The gate is no longer in the file.
    let accepted =
        json!({"config": "", "config_hash": "", "inputs": {}, "tasks": [{"name": "other"}]});
    let opened = json!({"epoch": 2, "pid": 2, "accepted": accepted});
    events.push((None, None, "run.opened", opened));
    let wanted =
        [wait("person", "gate", false), wait("provider", "p", true), wait("pause", "", false)];
    assert_eq!(waits(&events), wanted);
    assert_eq!(document(&events).waits[0].ms, 3);

    events.push((Some("other"), None, "task.ready", json!({})));
    events.push((Some("other"), None, "task.skipped", json!({"reason": "no"})));
    let ended = json!({"status": "completed", "tasks": {}, "usage": Usage::default()});
    events.push((None, None, "run.completed", ended));
    let page = document(&events).markdown();
    assert!(page.contains("a person was asked") && !page.contains("still waits"), "{page}");
}
