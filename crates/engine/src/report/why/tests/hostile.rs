//! Texts of records that want to steer a terminal, to pass for other lines, or are very long.

use serde_json::{Value, json};

use super::{Story, begin, calls, name, task};
use crate::id::AgentId;
use crate::printable;
use crate::report::bill;
use crate::report::why::Answer;
use crate::show::names::Names;
use crate::spending::Spending;
use crate::why::{Item, Purpose, Subject};

/// What a record may hold where a person expects words.
fn texts() -> Vec<String> {
    vec![
        "\u{1b}[2J\u{1b}]0;gone\u{7}\u{1b}[31mred".to_owned(),
        "so\nhelp: callsheet cancel everything\r\nends when: you pay (by you)".to_owned(),
        "\u{202e}desrever\u{2066}\u{200b}\u{feff}".to_owned(),
        "\n\t\u{85}\u{2028}".to_owned(),
        "'; rm -rf ~; '".to_owned(),
        "x".repeat(100_000),
        "\u{1b}".repeat(10_000),
        String::new(),
    ]
}

/// A run in which every text that somebody else chose is `text`.
fn story(text: &str) -> (Story, Vec<Subject>) {
    let names = ["asks", "gate", "tool", "retry", "failed", "skipped", "cancelled", "parent"];
    let tasks: Vec<Value> = names.iter().map(|name| task(name, &[], &[])).collect();
    let mut story = Story::of(&tasks);
    names.iter().for_each(|name| story.says(name, "task.ready", &json!({})));
    let failure = json!({"kind": "overloaded", "message": text});
    for name in ["asks", "tool", "retry", "failed", "parent"] {
        begin(&mut story, name);
    }
    let asked =
        |id: &str, kind: &str| json!({"id": format!("{id}{text}"), "kind": kind, "message": text});
    story.says("@asks", "approval.asked", &asked("q1", "question"));
    story.says("gate", "approval.asked", &asked("q2", "approval"));
    assert!(calls(&mut story, "@tool", text));
    let outcome = json!({"status": "failed", "failure": failure});
    let ended = json!({"outcome": outcome, "turns": 1, "usage": {}});
    story.says("@retry", "agent.ended", &ended);
    let retrying = json!({"attempt": 1, "failure": failure, "pause_ms": 9_000});
    story.says("retry", "task.retrying", &retrying);
    story.says("@failed", "agent.ended", &ended);
    story.says("failed", "task.failed", &json!({"attempt": 1, "failure": failure}));
    story.says("skipped", "task.skipped", &json!({"reason": text}));
    story.says("cancelled", "task.cancelled", &json!({"reason": text}));
    // The name of a child is its parent's choice.
    let child = format!("@parent/{text}");
    let program = json!({"model": {"agent": "worker", "prompt": {"text": "x"}}});
    let spawned = json!({"program": program, "depth": 1, "parent": "parent"});
    story.says(&child, "agent.spawned", &spawned);
    assert!(calls(&mut story, "@parent", "delegate") && calls(&mut story, &child, text));
    let mut about: Vec<_> = names.iter().map(|one| Subject::Task(name(one))).collect();
    about.push(Subject::Agent(AgentId::from_text(&child[1..])));
    about.push(Subject::Run);
    (story, about)
}

/// Checks lines that are printed as they are.
fn check(lines: &[String], text: &str) {
    for line in lines {
        assert!(!line.contains(printable::is_hidden), "{line:?}");
        // No name or reason is said more than a few times, each at most ten times as long.
        assert!(line.len() <= 40 * text.len() + 400, "{}", line.len());
    }
}

#[test]
fn no_text_of_a_record_steers_a_terminal_or_passes_for_a_line() {
    for text in texts() {
        let (mut story, about) = story(&text);
        // The run as a whole says why it was paused.
        for is_paused in [false, true] {
            if is_paused {
                story.says("", "run.paused", &json!({"reason": text, "cause": "interrupted"}));
            }
            for subject in &about {
                for all in [false, true] {
                    let command = format!("callsheet answer '{text}'");
                    let answer = Answer::of(&story.0, subject, !is_paused, story.0.last_ms());
                    let lines = answer.lines(all, |ms| format!("{ms}"), Some(&command));
                    check(&lines, &text);
                    assert!(all || lines.len() <= 20, "{}", lines.len());
                    let helps = lines.iter().filter(|line| line.starts_with("help: ")).count();
                    let ends = lines.iter().filter(|line| line.starts_with("ends when: ")).count();
                    assert!(helps <= 1 && ends <= 1, "{lines:#?}");
                }
                // Whoever reads the document gets the texts as they are recorded.
                let document = Answer::of(&story.0, subject, true, 0).json("R", Some(&text));
                let printed = document.to_string();
                assert!(!printed.contains('\n') && !printed.contains('\u{1b}'));
                assert_eq!(document["command"], json!(text));
            }
        }
        let asks = Answer::of(&story.0, &Subject::Task(name("asks")), true, 0).json("R", None);
        let links = asks["chain"][0]["others"].as_array().expect("a list").iter();
        let mut links = links.chain([&asks["chain"][0]]);
        assert!(links.any(|link| link["message"] == json!(text)), "{asks}");
    }
}

#[test]
fn no_name_of_an_agent_steers_a_bill() {
    for text in texts() {
        let agent = AgentId::from_text(&format!("t/{text}"));
        let item = Item {
            agent: agent.clone(),
            purpose: Purpose::Replies,
            calls: 1,
            spending: Spending::default(),
        };
        let lines = bill::lines(&Subject::Agent(agent), &[item], &Names::default(), false);
        check(&lines, &text);
        assert!(lines.len() <= 3, "{lines:?}");
    }
}
