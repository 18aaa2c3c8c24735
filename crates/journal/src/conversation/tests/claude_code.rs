//! Recordings of Claude Code.

use serde_json::{Value, json};

use super::*;

/// An entry of the main chain.
fn entry(uuid: &str, parent: Option<&str>, kind: &str, message: Value) -> Value {
    json!({
        "parentUuid": parent, "isSidechain": false, "userType": "external", "cwd": "/w",
        "sessionId": "s", "version": "2.0.1", "gitBranch": "", "type": kind, "message": message,
        "uuid": uuid, "timestamp": "2026-01-01T00:00:00.000Z", "toolUseResult": {"message": [1]},
    })
}

fn user(uuid: &str, parent: Option<&str>, content: Value) -> Value {
    entry(uuid, parent, "user", json!({"role": "user", "content": content}))
}

fn result(uuid: &str, parent: &str, call: &str) -> Value {
    let block =
        json!({"tool_use_id": call, "type": "tool_result", "content": format!("of {call}")});
    user(uuid, Some(parent), json!([block]))
}

fn reply(uuid: &str, parent: &str, id: &str, block: Value, output: u64) -> Value {
    let message = json!({
        "id": id, "type": "message", "role": "assistant", "model": "m", "content": [block],
        "stop_reason": null, "usage": {
            "input_tokens": 4, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000,
            "cache_creation": {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 60},
            "output_tokens": output, "service_tier": "standard",
        },
    });
    entry(uuid, Some(parent), "assistant", message)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "Bash", "input": {"command": id}})
}

fn with(mut entry: Value, key: &str, value: impl Into<Value>) -> Value {
    entry[key] = value.into();
    entry
}

fn lines(entries: &[Value]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

/// Two parallel calls; only one of their results is on the chain.
fn parallel() -> Vec<Value> {
    vec![
        json!({"type": "summary", "summary": "S", "leafUuid": "zzz"}),
        user("u1", None, json!("do é")),
        reply("a1", "u1", "msg_1", text("both"), 1),
        reply("a2", "a1", "msg_1", call("A"), 2),
        reply("a3", "a2", "msg_1", call("B"), 30),
        result("r1", "a2", "A"),
        result("r2", "a3", "B"),
        json!({"type": "system", "subtype": "note", "uuid": "s1", "parentUuid": "r2"}),
        reply("a4", "s1", "msg_2", text("done"), 5),
        json!({"type": "system", "subtype": "turn_duration", "uuid": "s2", "parentUuid": "a4"}),
    ]
}

pub(super) fn sample() -> String {
    lines(&parallel())
}

/// Each message as `role: blocks`, short.
fn short(text: &str) -> Vec<String> {
    short_of(text, History::SinceCompaction)
}

fn short_of(text: &str, history: History) -> Vec<String> {
    let input = Cursor::new(text.as_bytes().to_vec());
    let read = Conversation::read(input, history).expect("opens");
    assert_eq!(read.format(), Format::ClaudeCode);
    let messages = read.map(|message| message.expect("a message").json.to_value());
    let short = messages.map(|message| {
        let blocks = match &message["content"] {
            Value::String(text) => text.clone(),
            list => {
                let blocks = list.as_array().expect("a list").iter().map(|block| {
                    ["text", "id", "tool_use_id"]
                        .iter()
                        .find_map(|key| block[key].as_str())
                        .unwrap_or("?")
                        .to_owned()
                });
                blocks.collect::<Vec<_>>().join(" ")
            }
        };
        format!("{}: {blocks}", &message["role"].as_str().expect("a role")[..1])
    });
    short.collect()
}

#[test]
fn the_entries_of_a_reply_are_joined_and_so_are_its_results() {
    let text = sample();
    assert_eq!(short(&text), ["u: do é", "a: both A B", "u: A B", "a: done"]);
    let messages = texts(&text);
    assert_eq!(messages[0], r#"{"role":"user","content":"do é"}"#);
    assert_eq!(
        messages[2],
        r#"{"role":"user","content":[{"tool_use_id":"A","type":"tool_result","content":"of A"},{"tool_use_id":"B","type":"tool_result","content":"of B"}]}"#
    );
    let billed: Vec<_> = all(&text).0.into_iter().map(|message| message.billed).collect();
    let usage = Usage { input: 4, output: 30, cache_read: 1000, cache_write: 100 };
    assert_eq!(billed[1], Some(Billed { usage, cache_write_1h: 60 }));
    assert_eq!(billed.iter().flatten().count(), 2);
}

#[test]
fn the_latest_branch_of_the_person_is_taken() {
    let mut entries = parallel();
    entries.push(user("u2", Some("a4"), json!("first try")));
    entries.push(reply("a5", "u2", "msg_3", text("left"), 5));
    entries.push(user("u3", Some("a4"), json!("second try")));
    entries.push(with(reply("a6", "u3", "msg_4", text("taken"), 5), "extra", 1));
    let aside = with(user("x1", None, json!("aside")), "isSidechain", true);
    entries.push(aside);
    entries.push(with(reply("x2", "x1", "msg_5", text("aside"), 5), "isSidechain", true));
    entries.push(with(user("x3", Some("a6"), json!("note")), "isMeta", true));
    entries.push(with(user("x4", Some("a1"), json!("mail")), "teamName", "t"));
    let expected = ["u: do é", "a: both A B", "u: A B", "a: done", "u: second try", "a: taken"];
    assert_eq!(short(&lines(&entries)), expected);
}

#[test]
fn a_note_within_the_conversation_was_sent_and_stays() {
    let mut entries = parallel();
    entries.push(with(user("n", Some("a4"), json!("caveat")), "isMeta", true));
    entries.push(user("u2", Some("n"), json!([text("go on")])));
    entries.push(with(reply("e", "u2", "err", text("API Error"), 0), "isApiErrorMessage", true));
    entries.push(user("u3", Some("e"), json!("again")));
    let read = short(&lines(&entries));
    assert_eq!(read[4..], ["u: caveat go on again"]);
}

#[test]
fn a_recording_of_a_side_agent_alone_is_read() {
    let entries: Vec<_> =
        parallel().into_iter().skip(1).map(|entry| with(entry, "isSidechain", true)).collect();
    assert_eq!(short(&lines(&entries)).len(), 4);
}

#[test]
fn broken_lines_are_counted_and_bridged() {
    let whole = sample();
    let mut broken: Vec<_> = whole.lines().map(str::to_owned).collect();
    broken[3].truncate(40);
    broken.insert(0, "\u{0}\u{0} not JSON".to_owned());
    broken.push(r#"{"type":"user","uuid":"b","parentUuid":"s2","message":{"role":"user"}}"#.into());
    let text = broken.join("\n");
    let read = open(&text).expect("opens");
    assert_eq!(read.skipped(), 3);
    assert_eq!(short(&text), ["u: do é", "a: both B", "u: B", "a: done"]);
}

#[test]
fn copies_of_an_entry_count_once() {
    let text = sample();
    assert_eq!(texts(format!("{text}{text}")), texts(&text));
}

#[test]
fn circles_end() {
    let mut entries = parallel();
    entries[1]["parentUuid"] = json!("a4");
    entries.pop();
    assert_eq!(short(&lines(&entries)).len(), 4);
    let alone = user("u1", Some("u1"), json!("x"));
    assert_eq!(short(&lines(&[alone])), ["u: x"]);
    let links = [("l1", "l2"), ("l2", "l1")]
        .map(|(uuid, parent)| json!({"type": "progress", "uuid": uuid, "parentUuid": parent}));
    assert!(mistake(lines(&links)).contains("no user or assistant entry"));
}

/// A compaction after `parallel`, with `metadata`, and a turn after it.
fn compacted(metadata: Value) -> String {
    let mut entries = parallel();
    entries.push(json!({
        "type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": null,
        "logicalParentUuid": "s2", "compactMetadata": metadata,
    }));
    entries.push(with(user("sum", Some("b"), json!("summary")), "isCompactSummary", true));
    entries.push(user("u5", Some("sum"), json!("next")));
    entries.push(reply("a9", "u5", "msg_9", text("ok"), 1));
    lines(&entries)
}

#[test]
fn a_compaction_is_the_root_unless_all_is_wanted() {
    let text = compacted(json!({"trigger": "auto", "preTokens": 9}));
    assert_eq!(short(&text), ["u: summary next", "a: ok"]);
    let whole = short_of(&text, History::Whole);
    assert_eq!(whole, ["u: do é", "a: both A B", "u: A B", "a: done", "u: next", "a: ok"]);
}

#[test]
fn preserved_messages_stand_after_the_summary() {
    let expected = ["u: summary", "a: done", "u: next", "a: ok"];
    let listed = json!({"preservedMessages": {"anchorUuid": "sum", "uuids": ["a4", "gone"]}});
    assert_eq!(short(&compacted(listed)), expected);
    let segment = json!({"headUuid": "s1", "anchorUuid": "sum", "tailUuid": "s2"});
    assert_eq!(short(&compacted(json!({"preservedSegment": segment.clone()}))), expected);
    let snake = json!({
        "preserved_messages": {"anchor_uuid": "sum", "uuids": ["a2", "a3", "r1", "r2", "a4"]},
        "preserved_segment": {"head_uuid": "u1", "anchor_uuid": "sum", "tail_uuid": "s2"},
    });
    let all = ["u: summary", "a: both A B", "u: A B", "a: done", "u: next", "a: ok"];
    assert_eq!(short(&compacted(snake)), all);
    let strange = json!({"preservedMessages": 7, "preservedSegment": segment});
    assert_eq!(short(&compacted(strange)), ["u: summary next", "a: ok"]);
}

/// The conversations of child agents, as `short` shows messages.
fn sides(text: &str) -> Vec<Vec<String>> {
    let input = Cursor::new(text.as_bytes().to_vec());
    let mut read = Conversation::read(input, History::Whole).expect("opens");
    read.by_ref().for_each(drop);
    let mut sides = Vec::new();
    while read.next_side() {
        let texts = read.by_ref().map(|message| message.expect("a message").json.to_value());
        let texts = texts.map(|message| match &message["content"] {
            Value::String(text) => text.clone(),
            list => list[0]["text"].as_str().unwrap_or("?").to_owned(),
        });
        sides.push(texts.collect());
    }
    sides
}

#[test]
fn child_agents_in_the_file_are_conversations_of_their_own() {
    let side = |entry: Value| with(entry, "isSidechain", true);
    let mut entries = parallel();
    entries.push(side(user("x1", None, json!("first"))));
    entries.push(side(user("y1", None, json!("second"))));
    entries.push(side(reply("x2", "x1", "msg_5", text("one"), 5)));
    // One that hangs on the entry that started it, and a branch that was left.
    entries.push(side(user("z1", Some("a3"), json!("third"))));
    entries.push(side(reply("y2", "y1", "msg_6", text("two"), 5)));
    entries.push(side(reply("z2", "z1", "msg_7", text("left"), 5)));
    entries.push(side(reply("z3", "z1", "msg_8", text("three"), 5)));
    entries.push(side(user("w1", None, json!("no reply came"))));
    let text = lines(&entries);
    assert_eq!(short(&text).len(), 4, "the main conversation is as before");
    assert_eq!(sides(&text), [["first", "one"], ["second", "two"], ["third", "three"]]);
    let alone: Vec<_> = parallel().into_iter().skip(1).map(side).collect();
    assert_eq!(sides(&lines(&alone)), [[""; 0]; 0], "it is the main one of its file");
}

#[test]
fn without_links_the_order_of_the_file_counts() {
    let relinked = |text: &str| open(text).expect("opens").relinked();
    let expected = short(&sample());
    assert_eq!(relinked(&sample()), 0);
    let null = |mut entry: Value| {
        entry["parentUuid"] = Value::Null;
        entry
    };
    let without = |keys: &[&str]| {
        let entries = parallel().into_iter().map(|mut entry| {
            let fields = entry.as_object_mut().expect("an object");
            keys.iter().for_each(|key| drop(fields.remove(*key)));
            entry
        });
        lines(&entries.collect::<Vec<_>>())
    };
    for text in [
        lines(&parallel().into_iter().map(null).collect::<Vec<_>>()),
        without(&["parentUuid"]),
        without(&["parentUuid", "uuid"]),
    ] {
        assert_eq!(short(&text), expected, "{text}");
        assert_eq!(short_of(&text, History::Whole), expected);
        assert_eq!(relinked(&text), 6);
    }
    // A link in the middle is lost: the entry before it in the file is the one before it.
    let mut broken = parallel();
    broken[8]["parentUuid"] = json!("gone");
    assert_eq!(short(&lines(&broken)), expected);
    assert_eq!(relinked(&lines(&broken)), 1);
    // A person who goes back to the first prompt begins a new conversation.
    let mut again = parallel();
    again.push(user("v1", None, json!("anew")));
    again.push(reply("v2", "v1", "msg_9", text("other"), 5));
    assert_eq!(short(&lines(&again)), ["u: anew", "a: other"]);
    // A compaction between them.
    let compacted = compacted(json!({})).replace("parentUuid", "parent").replace("logicalP", "p");
    assert_eq!(short(&compacted), ["u: summary next", "a: ok"]);
    assert_eq!(short_of(&compacted, History::Whole).len(), 6);
}

#[test]
fn a_session_printed_to_a_pipe_is_read_with_its_child_agents() {
    let line = |kind: &str, of: Value, content: Value| {
        let message = json!({"role": kind, "content": content});
        json!({"type": kind, "message": message, "parent_tool_use_id": of, "session_id": "s"})
    };
    let entries = [
        json!({"type": "system", "subtype": "init", "session_id": "s", "tools": []}),
        line("user", Value::Null, json!("do it")),
        line("assistant", Value::Null, json!([call("A")])),
        line("user", json!("A"), json!("look for it")),
        line("assistant", json!("A"), json!([text("found")])),
        line(
            "user",
            Value::Null,
            json!([{"type": "tool_result", "tool_use_id": "A", "content": "x"}]),
        ),
        line("assistant", Value::Null, json!([text("done")])),
        json!({"type": "result", "subtype": "success", "session_id": "s"}),
    ];
    let text = lines(&entries);
    assert_eq!(short(&text), ["u: do it", "a: A", "u: A", "a: done"]);
    assert_eq!(sides(&text), [["look for it", "found"]]);
}

#[test]
fn attachments_are_counted() {
    let mut entries = parallel();
    let attachment = json!({"type": "nested_memory", "path": "/w/CLAUDE.md", "content": "rules"});
    let bytes = attachment.to_string().len() as u64;
    entries.insert(
        2,
        json!({"type": "attachment", "uuid": "t1", "parentUuid": "u1", "attachment": attachment}),
    );
    entries[3]["parentUuid"] = json!("t1");
    let text = lines(&entries);
    assert_eq!(short(&text), short(&sample()), "they are links of the chain");
    assert_eq!(open(&text).expect("opens").attachments(), Attachments { count: 1, bytes });
}
