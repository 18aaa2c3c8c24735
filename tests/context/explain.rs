//! `show --view` and `context explain`: what an agent's next request would hold, and why.

use insta::assert_snapshot;
use serde_json::json;

use crate::support::desk::Desk;

const GRAPH: &str = r#"
[compaction]
preset = "three-layer"
[agents.worker]
instructions = "You read."
tools = ["read_file", "compact"]
[tasks.keep]
agent = "worker"
prompt = "Keep at it."
[tasks.sum]
agent = "worker"
prompt = "Sum it up."
[tasks.end]
run = "true"
"#;

const SCRIPT: &str = r#"
[[rules]]
agent = "compactor"
say = "It read the file five times."
[[rules]]
turn = "1..5"
calls = [{ tool = "read_file", input = { path = "lines", limit = "{{ turn * 40 }}" } }]
[[rules]]
turn = 6
when = "prompt == 'Sum it up.'"
calls = [{ tool = "compact", input = { focus = "the file" } }]
[[rules]]
say = "Done, at last."
"#;

fn ran() -> Desk {
    let desk = Desk::offline(GRAPH, SCRIPT);
    desk.write("lines", &"a line\n".repeat(300));
    desk.good(&["run"]);
    desk
}

/// A text without what differs from run to run.
fn redacted(text: &str) -> String {
    let varies = [
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
        (r"#\d+", "#N"),
        (r"record \d+( to \d+)?", "record N"),
        (r"TIME to TIME", "TIME"),
        (r"Transcript: \S+\]", "Transcript: PATH]"),
    ];
    varies.iter().fold(text.to_owned(), |text, (what, word)| {
        let what = regex::Regex::new(what).expect("an expression");
        what.replace_all(&text, regex::NoExpand(word)).into_owned()
    })
}

#[test]
fn the_view_shows_which_edit_made_what() {
    let desk = ran();
    let view = redacted(&desk.good(&["show", "desk/@keep", "--view"]));
    let heads: Vec<_> = view.lines().filter(|line| !line.starts_with("| a line")).collect();
    assert_snapshot!(heads.join("\n"), @r#"
    agent keep, turn 6: 12 messages in the view, 12 in the conversation
    --- 0 user
    | Keep at it.
    --- 1 call read_file
    | {"path":"lines","limit":40}
    --- 2 result  [micro #N TIME]
    | [Previous: used read_file]
    --- 3 call read_file
    | {"path":"lines","limit":80}
    --- 4 result  [micro #N TIME]
    | [Previous: used read_file]
    --- 5 call read_file
    | {"path":"lines","limit":120}
    --- 6 result
    | ... (180 more lines)
    --- 7 call read_file
    | {"path":"lines","limit":160}
    --- 8 result
    | ... (140 more lines)
    --- 9 call read_file
    | {"path":"lines","limit":200}
    --- 10 result
    | ... (100 more lines)
    --- 11 assistant
    | Done, at last.
    "#);
    assert_snapshot!(redacted(&desk.good(&["show", "desk/@sum", "--view"])), @r#"
    agent sum, turn 7: 6 messages in the view, 14 in the conversation
    --- 0-10 user  [summary #N TIME]
    | [Conversation compressed. Transcript: PATH]
    |
    | It read the file five times.
    --- added assistant  [summary #N TIME]
    | Understood. I have the context from the summary. Continuing.
    --- added user  [summary #N TIME]
    | Sum it up.
    --- 11 call compact
    | {"focus":"the file"}
    --- 12 result
    | Compressing...
    --- 13 assistant
    | Done, at last.
    "#);

    let view = desk.json(&["show", "@keep", "--view", "--json"]).pop().expect("a document");
    let (messages, slots) = (view["messages"].as_array(), view["slots"].as_array());
    let (messages, slots) = (messages.expect("a list"), slots.expect("a list"));
    assert_eq!((messages.len(), slots.len()), (12, 12));
    assert_eq!(messages[2]["content"][0]["content"], "[Previous: used read_file]");
    assert_eq!((&slots[2]["from"], &slots[2]["to"]), (&json!(2), &json!(3)));
    assert_eq!(slots[2]["standing"], "cleared");
    assert_eq!(slots[2]["edits"][0]["layer"], "micro");
    assert_eq!(slots[3], json!({"from": 3, "to": 4, "standing": "verbatim", "edits": []}));
    let whole = desk.json(&["show", "@keep", "--transcript", "--json"]);
    assert_eq!(messages[6], whole[6]["message"], "what no edit touched is as it was");
}

#[test]
fn a_context_is_explained() {
    let desk = ran();
    assert_snapshot!(redacted(&desk.good(&["context", "explain", "desk/@keep"])), @r"
    agent keep, turn 6: 12 messages in the view, 12 in the conversation

    system                 2
    tools                194
    requests               9
    tool results        1.0k
    placeholders          43
    text                   9
    tool calls           113
    other                 91
    total               1.5k of 200.0k tokens
    the provider counted 1.5k in turn 6

    what was changed, oldest first:
    micro: 2 results (2 to 4), 237 tokens less, record N, TIME
    ");
    assert_snapshot!(redacted(&desk.good(&["context", "explain", "@sum"])), @r"
    agent sum, turn 7: 6 messages in the view, 14 in the conversation

    system                 2
    tools                194
    requests               8
    summaries             65
    tool results          18
    text                   9
    tool calls            20
    other                 45
    total                365 of 200.0k tokens
    the provider counted 352 in turn 7

    what was changed, oldest first:
    micro: 2 results (2 to 4), 237 tokens less, record N, TIME
    summary: 11 messages (0 to 10), 1.3k -> 150 tokens, record N, TIME
    ");
    let explained = desk.json(&["context", "explain", "@{keep,sum}", "--json"]);
    assert_eq!(explained.len(), 2);
    let keep = &explained[0];
    assert_eq!((&keep["agent"], &keep["context_window"]), (&json!("keep"), &json!(200_000)));
    let parts = keep["parts"].as_object().expect("a table");
    let chars: u64 = parts.values().filter_map(|part| part["chars"].as_u64()).sum();
    assert_eq!(keep["tokens"], chars / 4);
    assert_eq!(parts["system"]["chars"], "You read.".len());
    let edits = keep["edits"].as_array().expect("a list");
    assert_eq!(edits.len(), 2);
    assert_eq!(edits[0]["covers"], json!([[2, 3]]));
    assert!(edits[0]["seq"].as_u64() < edits[1]["seq"].as_u64());
}

#[test]
fn without_its_configuration_a_context_is_explained_as_far_as_it_goes() {
    let desk = ran();
    desk.write("other/agents.toml", "version = 1\n");
    let runs = desk.path().join(".transcripts");
    let runs = runs.to_str().expect("a path");
    let place = ["--state-dir", runs, "-f", "other/agents.toml"];
    let done = desk.call(&[&["context", "explain", "@keep"][..], &place].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("cannot be read again"), "{}", done.err);
    assert!(!done.out.contains("system") && done.out.contains("placeholders"), "{}", done.out);
}

#[test]
fn what_has_no_context_is_named() {
    let desk = ran();
    for (arguments, code, wanted) in [
        (&["show", "desk", "--view"][..], 2, "error: an agent is needed: RUN/@AGENT"),
        (&["show", "desk/@nosuch", "--view"], 1, "error: the run has no agent `nosuch`"),
        (&["show", "@end", "--view"], 1, "error: agent `end` runs a command: it has no context"),
        (&["context", "explain", "desk"], 2, "error: an agent is needed: RUN/@AGENT"),
        (&["context", "explain", "@nosuch"], 1, "error: the run has no agent `nosuch`"),
    ] {
        let done = desk.call(arguments);
        assert_eq!((done.code, done.out.as_str()), (code, ""), "{arguments:?}");
        assert_eq!(done.err.lines().next(), Some(wanted), "{arguments:?}");
    }
}
