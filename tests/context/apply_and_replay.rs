//! `context apply` and `context replay` on files, pipes and agents.

use std::io::Write;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::desk::{Desk, Done, keys, lines};

/// A request, and calls whose results have 200 characters.
fn messages(calls: usize) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "the goal é"})];
    for n in 0..calls {
        let id = format!("t{n}");
        let call = json!({"type": "tool_use", "id": id, "name": "bash", "input": {"n": n}});
        messages.push(json!({"role": "assistant", "content": [call]}));
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": "x".repeat(200)});
        messages.push(json!({"role": "user", "content": [result]}));
    }
    messages
}

/// A desk with `messages(6)` and a last reply, as a document.
fn desk() -> Desk {
    let desk = Desk::empty();
    let mut all = messages(6);
    all.push(json!({"role": "assistant", "content": "Done."}));
    desk.write("talk.json", &json!({"messages": all, "system": "Be brief."}).to_string());
    desk
}

/// The program with this stdin.
fn fed(command: &mut Command, stdin: &str) -> Done {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(stdin.as_bytes()).expect("written");
    std::io::Seek::rewind(&mut file).expect("rewound");
    Done::of(command.stdin(Stdio::from(file)))
}

#[test]
fn apply_gives_the_view_and_its_edits() {
    let desk = Desk::empty();
    let input = format!("{:#}", json!({"system": "Be brief.", "messages": messages(4)}));
    let done = fed(&mut desk.command(&["context", "apply", "--preset", "three-layer"]), &input);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    let applied: Value = serde_json::from_str(&done.out).expect("one document");
    assert_eq!(keys(&applied), ["messages", "edits"]);
    let mut expected = messages(4);
    expected[2]["content"][0]["content"] = json!("[Previous: used bash]");
    assert_eq!(applied["messages"], Value::from(expected));
    let edit = &applied["edits"][0];
    assert_eq!(keys(edit), ["layer", "before_tokens", "after_tokens", "covers"]);
    assert_eq!((&edit["layer"], &edit["covers"]), (&json!("micro"), &json!([[2, 3]])));
    assert!(edit["before_tokens"].as_u64() > edit["after_tokens"].as_u64());
    // A second time there is nothing to do.
    let again = applied["messages"].to_string();
    let done = fed(&mut desk.command(&["context", "apply", "--preset", "three-layer"]), &again);
    assert_eq!(done.out, format!("{{\"messages\":{again},\"edits\":[]}}\n"));
}

#[test]
fn apply_takes_one_layer_and_says_when_there_is_none() {
    let desk = Desk::empty();
    let input = Value::from(messages(4)).to_string();
    let call = |layer: &str| {
        let arguments = ["context", "apply", "--preset", "three-layer", "--layer", layer];
        fed(&mut desk.command(&arguments), &input)
    };
    assert_eq!(lines(&call("micro").out)[0]["edits"].as_array().expect("a list").len(), 1);
    let none = call("snip");
    assert_eq!(lines(&none.out)[0], json!({"messages": messages(4), "edits": []}));
    assert_eq!(none.err, "note: the preset `three-layer` has no layer `snip`\n");
    assert_eq!((none.code, call("summary").code), (0, 2));
}

#[test]
fn replay_gives_a_view_for_each_reply() {
    let desk = desk();
    let views = desk.json(&["context", "replay", "--preset", "three-layer", "talk.json"]);
    let upto: Vec<_> = views.iter().map(|view| view["upto"].as_u64().expect("a number")).collect();
    assert_eq!(upto, [1, 3, 5, 7, 9, 11, 13]);
    for (number, view) in views.iter().enumerate() {
        assert_eq!(keys(view), ["turn", "upto", "system", "messages", "edits", "summary_calls"]);
        assert_eq!((&view["turn"], &view["system"]), (&json!(number + 1), &json!("Be brief.")));
        let is_whole = view["messages"] == Value::from(messages(number));
        assert_eq!(is_whole, number < 4, "turn {number}");
        assert_eq!(view["edits"].as_array().expect("a list").is_empty(), number < 4);
        assert_eq!(view["summary_calls"], json!([]));
    }
}

#[test]
fn a_pipe_is_read_and_a_reader_may_leave() {
    let desk = desk();
    let program = env!("CARGO_BIN_EXE_callsheet");
    let script = format!(
        "set -e; cat talk.json | {program} context replay --preset off - > a;
         {program} context replay --preset off /dev/stdin < talk.json > b; cmp a b;
         {program} context replay --preset off talk.json | head -c 9 > c; wc -c < c"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]);
    desk.bare(&mut shell);
    let done = Done::of(&mut shell);
    assert_eq!((done.code, done.out.trim(), done.err.as_str()), (0, "9", ""));
}

#[test]
fn what_was_read_before_a_mistake_stands() {
    let desk = desk();
    let whole = desk.read("talk.json");
    desk.write("broken.json", &whole.replacen("\"t4\",\"name\"", "\"t4\" \"name\"", 1));
    let done = desk.call(&["context", "replay", "--preset", "off", "broken.json"]);
    assert_eq!((done.code, lines(&done.out).len()), (1, 4));
    assert!(done.err.starts_with("error: broken.json: line 1, byte "), "{}", done.err);
    assert!(
        done.err.ends_with("not JSON: expected `,` or `}`; correct it there\n"),
        "{}",
        done.err
    );
    desk.write("cut.json", &whole[..whole.len() / 2]);
    let done = desk.call(&["context", "replay", "--preset", "off", "cut.json"]);
    assert_eq!((done.code, done.out.as_str()), (1, ""));
    assert!(done.err.contains("the file ends inside of what begins here"), "{}", done.err);
    for (arguments, code) in [
        (vec!["--preset", "off", "nowhere.json"], 1),
        (vec!["--preset", "none", "talk.json"], 2),
        (vec!["--preset", "off", "talk.json", "talk.json"], 2),
        (vec!["talk.json"], 2),
        (vec!["--preset", "off", "--compare", "talk.json"], 2),
        (vec!["--preset", "off", "--price", "input=3", "talk.json"], 2),
        (vec!["--compare", "--price", "output=3", "talk.json"], 2),
        (vec!["--preset", "off", "@nobody"], 1),
    ] {
        let arguments = [vec!["context", "replay"], arguments].concat();
        let done = desk.call(&arguments);
        assert_eq!((done.code, done.out.as_str()), (code, ""), "{arguments:?}: {}", done.err);
        assert!(!done.err.is_empty());
    }
}

#[test]
fn an_agent_of_a_run_is_a_conversation() {
    let desk = Desk::offline(
        "[agents.a]\nmodel = \"default\"\ninstructions = \"x\"\ntools = [\"bash\"]\n\
         [tasks.t]\nagent = \"a\"\nprompt = \"go\"\n",
        "[[rules]]\nturn = 1\nsay = \"I look.\"\n[[rules.calls]]\ntool = \"bash\"\n\
         input = { command = \"echo found\" }\n[[rules]]\nsay = \"Done.\"\n",
    );
    desk.good(&["run"]);
    let views = desk.json(&["context", "replay", "--preset", "off", "@t"]);
    assert_eq!(views.len(), 2);
    assert_eq!((&views[1]["upto"], &views[1]["system"]), (&json!(3), &json!("")));
    assert!(views[1]["messages"][2].to_string().contains("found"));
    let applied = desk.json(&["context", "apply", "--preset", "three-layer", "@t"]);
    assert_eq!(applied[0]["messages"].as_array().map(Vec::len), Some(4));
    let run = desk.runs().pop().expect("a run");
    let file = run.join("agents/t.jsonl");
    let same = desk.json(&["context", "replay", "--preset", "off", &file.to_string_lossy()]);
    assert_eq!(same, views);
    let rows = desk.json(&["context", "replay", "--compare", "--json", "@t"]);
    let recorded = rows.last().expect("a row");
    assert_eq!((&recorded["kind"], &recorded["turns"]), (&json!("recorded"), &json!(2)));
}

/// What Claude Code would have written of `messages(6)`.
fn recording() -> String {
    let mut parent = Value::Null;
    let entries = messages(6).into_iter().chain([json!({"role": "assistant", "content": "Done."})]);
    let mut text = String::new();
    for (n, mut message) in entries.enumerate() {
        if message["role"] == "assistant" {
            message["id"] = json!(format!("msg_{n}"));
            message["usage"] = json!({
                "input_tokens": 10, "output_tokens": 100,
                "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 20_000 + n,
            });
        }
        let entry = json!({
            "type": message["role"], "uuid": format!("u{n}"), "parentUuid": parent,
            "isSidechain": false, "message": message,
        });
        parent = entry["uuid"].clone();
        text.push_str(&format!("{entry}\n"));
    }
    text
}

#[test]
fn a_score_asks_the_views_for_facts() {
    let desk = Desk::empty();
    let rule = "Sort the list. You must never touch the index.";
    let mut messages = vec![serde_json::json!({"role": "user", "content": rule})];
    for n in 0..40 {
        let input = serde_json::json!({"command": format!("cat part{n}")});
        let call = serde_json::json!({"type": "tool_use", "id": format!("c{n}"), "name": "bash", "input": input});
        messages.push(serde_json::json!({"role": "assistant", "content": [call]}));
        let text = format!("{n} of the lines\n").repeat(200);
        let result = serde_json::json!({"type": "tool_result", "tool_use_id": format!("c{n}"), "content": text});
        messages.push(serde_json::json!({"role": "user", "content": [result]}));
    }
    desk.write("talk.json", &serde_json::json!({"system": "", "messages": messages}).to_string());
    let arguments = ["context", "score", "talk.json", "--context-window", "20000"];
    let table = desk.good(&arguments);
    for text in [
        "talk.json: 40 replies",
        "CONSTRAINTS",
        "\noff ",
        "\nadaptive ",
        "more than 10 messages back",
    ] {
        assert!(table.contains(text), "{text}: {table}");
    }
    let rows = desk.json(&[&arguments[..], &["--json", "--preset", "off"]].concat());
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    // The sentence is asked for once it stands more than ten messages back.
    assert_eq!(row["constraints"], serde_json::json!({"held": 35, "of": 35}), "{row}");
    assert_eq!(desk.call(&["context", "score", "talk.json", "--preset", "none"]).code, 2);
}

#[test]
fn a_comparison_says_what_each_preset_costs_and_keeps() {
    let desk = desk();
    desk.write("coded.jsonl", &recording());
    let good = desk.good(&["context", "replay", "--compare", "talk.json", "coded.jsonl"]);
    let shown: Vec<_> = good
        .lines()
        .filter(|line| {
            ["PRESET", "off", "three", "recorded", "talk", "coded", "all"]
                .iter()
                .any(|begin| line.starts_with(begin))
        })
        .collect();
    assert_snapshot!(shown.join("\n"), @r"
    talk.json: 7 replies
    PRESET             COST   LARGEST   EDITS  SUMMARIES  CONSTRAINTS  FILES  WHOLE  OUTCOMES  VALUES  ORDER  NAMES  LINES
    three-layer        2.2k       439       3          0            -      -      -         -       -      -      -      -
    off                2.6k       573       0          0            -      -      -         -       -      -      -      -
    coded.jsonl: 7 replies
    PRESET             COST   LARGEST   EDITS  SUMMARIES  CONSTRAINTS  FILES  WHOLE  OUTCOMES  VALUES  ORDER  NAMES  LINES
    three-layer        2.2k       436       3          0            -      -      -         -       -      -      -      -
    off                2.5k       571       0          0            -      -      -         -       -      -      -      -
    recorded          22.8k     21.0k  as 7 replies were billed, tools included; their output: 3.5k
    all: 14 replies
    PRESET             COST   LARGEST   EDITS  SUMMARIES  CONSTRAINTS  FILES  WHOLE  OUTCOMES  VALUES  ORDER  NAMES  LINES
    three-layer        4.4k       439       6          0            -      -      -         -       -      -      -      -
    off                5.1k       573       0          0            -      -      -         -       -      -      -      -
    recorded          22.8k     21.0k  as 7 replies were billed, tools included; their output: 3.5k
    ");
    assert!(good.contains("COST: of the input and the summaries, in input tokens"), "{good}");
    let price = "input=3,output=15,cache_read=0.3,cache_write=3.75";
    let rows =
        desk.json(&["context", "replay", "--compare", "--json", "--price", price, "coded.jsonl"]);
    let recorded = rows.last().expect("a row");
    // Seven replies: (10 + 1000 x 1.25 + 20,000 x 0.1) input tokens each, and 0.1 x 49 for `n`.
    assert_eq!(recorded["billed"], json!(22_825.0));
    assert_eq!(recorded["billed_output"], json!(3_500.0));
    let usd = recorded["cost_usd"].as_f64().expect("dollars");
    assert!((usd - 22_824.9 * 3e-6).abs() < 1e-9, "{usd}");
    let presets: Vec<_> = rows.iter().filter(|row| row["kind"] == "preset").collect();
    for row in presets {
        assert_eq!(row["turns"], json!(7));
        let (tokens, usd) = (row["billed"].as_f64(), row["cost_usd"].as_f64());
        assert!((tokens.expect("tokens") * 3e-6 - usd.expect("dollars")).abs() < 2e-6);
    }
    let done = desk.call(&["context", "replay", "--compare", "nowhere", "talk.json"]);
    assert_eq!(done.code, 1);
    assert!(done.out.contains("talk.json: 7 replies"), "{}", done.out);
}
