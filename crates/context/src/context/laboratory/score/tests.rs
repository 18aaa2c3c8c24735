//! Scores of small conversations, as the documented scorer gives them.

use serde_json::json;

use super::*;
use crate::context::laboratory::replay::Replay;
use crate::context::layers::preset::Preset;
use crate::context::layers::{Surroundings, Window};

const SYSTEM: &str = "Work on the_whole_module with care.";

/// Sixteen calls; from the seventh on each repeats a line and a name of a result seven before.
fn conversation() -> Vec<Json> {
    let mut messages = vec![
        json!({"role": "user", "content": "Rename every handler_ to worker_ in src/module_0/file_0.rs é"}),
    ];
    for n in 0..16 {
        let mut command = format!("grep -n handler_{n} src/module_{}/file_{n}.rs", n % 5);
        if let Some(old) = (n as usize).checked_sub(7) {
            let line = format!("  fn found_{old}() is long enough ");
            command.push_str(&format!("\n{line}\nuse token_{old}/value_{old}."));
        }
        let text = json!({"type": "text", "text": format!("Now handler_{n}.")});
        let input = json!({"command": command, "limit": n});
        let id = format!("t{n}");
        let call = json!({"type": "tool_use", "id": id, "name": "bash", "input": input});
        messages.push(json!({"role": "assistant", "content": [text, call]}));
        let mut found = format!("fn found_{n}() is long enough\ntoken_{n}/value_{n}\n");
        for at in n..n + 12 {
            found.push_str(&format!("src/module_{}/file_{at}.rs: fn handler_{at}() é\n", at % 5));
        }
        let text = |text: &str| json!({"type": "text", "text": text});
        let content = match n % 4 {
            0 => json!([text(&found), text(&format!("more_of_{n}"))]),
            _ => json!(found),
        };
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
        messages.push(json!({"role": "user", "content": [result]}));
    }
    messages.push(json!({"role": "assistant", "content": "Done."}));
    messages.iter().map(Json::encode).collect()
}

fn score(preset: &Preset) -> Score {
    let window = Window { tokens: 200_000, output: 0, overhead: 0 };
    let mut replay = Replay::new(preset, Surroundings::new("t.jsonl", "results", window));
    let (mut scorer, mut said) = (Scorer::new(RelativePrice::default()), Said::default());
    for (number, message) in conversation().into_iter().enumerate() {
        if number % 2 == 1 {
            let used = said.used_by(&message);
            let turn = replay.before_call();
            let done = (turn.edits.len(), turn.summary_calls.as_slice());
            scorer.request(replay.view(), SYSTEM, done, &said, &used);
        }
        said.push(&message);
        replay.push(message).expect("a message");
    }
    scorer.score()
}

#[test]
fn the_numbers_are_those_of_the_documented_scorer() {
    let off = score(&Preset::off());
    assert_eq!((off.turns, off.billed.round(), off.largest), (17, 9_754.0, 3_578.5));
    assert_eq!(off.names, Share { held: 58, of: 58 });
    assert_eq!(off.lines_old, Share { held: 9, of: 9 });
    let three = score(&Preset::three_layer());
    assert_eq!((three.turns, three.billed.round(), three.largest.round()), (17, 16_905.0, 2_351.0));
    assert_eq!((three.edits, three.summary_calls), (9, 0));
    assert_eq!(three.names, Share { held: 46, of: 58 });
    assert_eq!(three.names_old, Share { held: 6, of: 18 });
    assert_eq!(
        (three.lines, three.lines_old),
        (Share { held: 3, of: 9 }, Share { held: 3, of: 9 })
    );
}

#[test]
fn summaries_are_billed_by_what_they_share() {
    let mut view = View::default();
    // Around the text are 28 characters.
    let message = Json::encode(&json!({"role": "user", "content": "x".repeat(16_000 - 28)}));
    assert_eq!(message.as_str().len(), 16_000);
    view.push(message.clone()).expect("a message");
    let (mut said, used) = (Said::default(), Used::default());
    said.push(&message);
    let mut scorer = Scorer::new(RelativePrice { write: 2.0, read: 0.5, output: 10.0 });
    let mut cost = |system: &str, calls: &[SummaryCall]| {
        let before = scorer.score().billed;
        scorer.request(&view, system, (0, calls), &said, &used);
        scorer.score().billed - before
    };
    assert_eq!(cost("four", &[]), 2.0 * 4_001.0);
    assert_eq!(cost("four", &[]), 0.5 * 4_001.0);
    assert_eq!(cost("five", &[]), 2.0 * 4_001.0, "the prompt stands before all");
    let call = SummaryCall { input_tokens: 5_001, output_tokens: 7, shares_prefix: false };
    assert_eq!(cost("five", &[call]), 0.5 * 4_001.0 + 5_001.0 + 70.0);
    let call = SummaryCall { shares_prefix: true, ..call };
    assert_eq!(cost("five", &[call]), 0.5 * 4_001.0 + 0.5 * 4_001.0 + 2.0 * 1_000.0 + 70.0);
}

#[test]
fn a_short_prefix_is_not_cached() {
    let mut view = View::default();
    let message = Json::encode(&json!({"role": "user", "content": "short"}));
    view.push(message.clone()).expect("a message");
    let (mut said, used) = (Said::default(), Used::default());
    said.push(&message);
    let mut scorer = Scorer::new(RelativePrice::default());
    scorer.request(&view, "", (0, &[]), &said, &used);
    let once = scorer.score().billed;
    scorer.request(&view, "", (0, &[]), &said, &used);
    assert_eq!(scorer.score().billed, 2.0 * once);
}

#[test]
fn names_and_lines_are_found_as_documented() {
    let found: Vec<_> =
        names("9abcdefg a_b.c/d-- ab_cd é/usr/lib/x.rs. 12345_ ./-./- Zé_abcde").collect();
    assert_eq!(found, ["abcdefg", "a_b.c/d", "usr/lib/x.rs", "_abcde"]);
    let found: Vec<_> = lines("  1234567890123456\t\n123456789012345\né234567890123456").collect();
    assert_eq!(found, ["1234567890123456", "é234567890123456"]);
}

#[test]
fn what_cannot_be_decoded_is_measured_as_it_stands() {
    let half = r#"{"role":"user","content":[{"type":"text","text":"a_name_of \ud83d"}]}"#;
    let measured = Measured::of(&Json::parse(half.to_owned()).expect("JSON"));
    assert_eq!(measured.tokens, half.len() as f64 / 4.0);
    assert!(measured.words.names.contains(&word("a_name_of")));
}
