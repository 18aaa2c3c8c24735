//! The shipped graph, run by the program.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::desk::{Desk, lines};

const AGENTS: &str = include_str!("../../agents.toml");
const SCRIPT: &str = include_str!("../../scripts/survey.toml");
const CHECK: &str = include_str!("../../scripts/check.sh");

/// The shipped files, and two trees of seven modules each.
fn shipped() -> Desk {
    let desk = Desk::empty();
    desk.write("agents.toml", AGENTS);
    desk.write("scripts/survey.toml", SCRIPT);
    desk.write("scripts/check.sh", CHECK);
    for module in 1..=7 {
        desk.write(&format!("crates/m{module}/a.rs"), &"a line\n".repeat(module));
        desk.write(&format!("crates/m{module}/b.rs"), "one\ntwo\n");
        desk.write(&format!("other/n{module}/c.rs"), "one\n");
    }
    desk
}

/// The most agents that were at work at once, by the journal.
fn most_at_once(events: &[Value]) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for event in events {
        let is_child = event["agent"].as_str().is_some_and(|agent| agent.contains('/'));
        match event["type"].as_str() {
            Some("agent.spawned") if is_child => now += 1,
            Some("agent.ended") if is_child => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    most
}

#[test]
fn the_shipped_graph_runs_and_its_report_is_true() {
    let desk = shipped();
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}", done.err);
    done.assert_plain();
    let scripted = done.err.lines().filter(|line| line.contains("scripted")).count();
    assert_eq!(scripted, 1, "{}", done.err);
    // 1 + 2 + ... + 7 lines, and two more in each module.
    let report = desk.read("report.md");
    assert!(report.contains("- Files: 14\n- Lines: 42\n"), "{report}");
    assert!(done.out.contains("check   completed"), "{}", done.out);
    assert!(done.out.contains("callsheet show ") && done.out.contains("callsheet tail "));

    let events = desk.json(&["tail", "--json"]);
    let children = events.iter().filter(|event| {
        event["type"] == "agent.spawned" && event["data"]["parent"].as_str() == Some("survey")
    });
    assert!(children.count() >= 6);
    assert!(most_at_once(&events) >= 3, "{}", most_at_once(&events));
}

#[test]
fn another_tree_gives_another_report() {
    let desk = shipped();
    desk.good(&["run", "--input", "path=other"]);
    let report = desk.read("report.md");
    assert!(report.contains("- Files: 7\n- Lines: 7\n"), "{report}");
}

#[test]
fn events_are_data_and_the_last_one_is_the_result() {
    let desk = shipped();
    let done = desk.call(&["run", "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let events = lines(&done.out);
    for (at, event) in events.iter().enumerate() {
        let keys: Vec<_> = event.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["v", "seq", "ep", "ts", "task", "agent", "type", "data"], "{event}");
        assert_eq!(event["seq"], at as u64 + 1);
        assert_eq!(event["v"], 1);
    }
    assert_eq!(events[0]["type"], "run.created");
    let last = events.last().unwrap();
    assert_eq!(last["type"], "run.completed");
    assert_eq!(last["data"]["status"], "completed");
    let states: BTreeMap<_, _> = last["data"]["tasks"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(task, end)| (task.as_str(), end["state"].as_str().unwrap()))
        .collect();
    let wanted = [("check", "completed"), ("report", "completed"), ("survey", "completed")];
    assert_eq!(states, BTreeMap::from(wanted));
    assert!(last["data"]["tasks"]["check"]["output"].as_str().unwrap().contains("14 files"));
    assert!(last["data"]["usage"]["input"].as_u64().unwrap() > 0);

    assert_eq!(desk.good(&["tail", "--json"]), done.out);
}
