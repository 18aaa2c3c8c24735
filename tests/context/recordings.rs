//! Recordings as people have them: folders, sub-agents, lost links, attachments, own constants.

use serde_json::{Value, json};

use crate::support::desk::Desk;

/// Entries of Claude Code: a request, and this many calls with their results.
fn session(id: &str, calls: usize, sidechain: bool) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "You must never touch the index."})];
    for n in 0..calls {
        let call = format!("{id}-{n}");
        let input = json!({"command": format!("cat part{n}.rs")});
        let block = json!({"type": "tool_use", "id": call, "name": "Bash", "input": input});
        let usage = json!({"input_tokens": 10, "output_tokens": 100});
        messages.push(json!({
            "id": format!("msg-{call}"), "role": "assistant", "content": [block], "usage": usage,
        }));
        let text = format!("line {n} of it\n").repeat(100);
        let block = json!({"type": "tool_result", "tool_use_id": call, "content": text});
        messages.push(json!({"role": "user", "content": [block]}));
    }
    let mut parent = Value::Null;
    let entries = messages.into_iter().enumerate().map(|(n, message)| {
        let entry = json!({
            "type": message["role"], "uuid": format!("{id}{n}"), "parentUuid": parent,
            "isSidechain": sidechain, "sessionId": id, "message": message,
        });
        parent = entry["uuid"].clone();
        entry
    });
    entries.collect()
}

fn lines(entries: &[Value]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

/// The row of a preset for a file.
fn row<'a>(rows: &'a [Value], file: &str, preset: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["file"] == file && row["preset"] == preset);
    found.unwrap_or_else(|| panic!("{file} {preset}: {rows:?}"))
}

#[test]
fn a_folder_is_compared_file_by_file_with_the_spending_of_sub_agents() {
    let desk = Desk::empty();
    desk.write("in/s1.jsonl", &lines(&session("s1", 20, false)));
    desk.write("in/s1/subagents/agent-1.jsonl", &lines(&session("s1", 12, true)));
    desk.write("in/deep/er/s2.jsonl", &lines(&session("s2", 6, false)));
    desk.write("in/agent-2.jsonl", &lines(&session("s1", 4, true)));
    // Child agents in the file itself.
    let both = [session("s3", 6, false), session("x", 5, true)].concat();
    desk.write("in/s3.jsonl", &lines(&both));
    desk.write("in/settings.json", "{\"model\": \"m\"}");
    let rows = desk.json(&["context", "replay", "--compare", "--json", "in"]);
    let alone = |name: &str, entries: &[Value]| {
        desk.write(name, &lines(entries));
        let rows = desk.json(&["context", "replay", "--compare", "--json", name]);
        row(&rows, name, "off")["billed"].as_f64().expect("a cost")
    };
    let own = alone("own.jsonl", &session("own", 20, false));
    let first = row(&rows, "in/s1.jsonl", "off");
    let theirs =
        alone("one.jsonl", &session("s1", 12, true)) + alone("two.jsonl", &session("s1", 4, true));
    assert_eq!(first["sub_agents"], json!({"conversations": 2, "turns": 16, "billed": theirs}));
    assert_eq!(first["turns"], json!(36));
    let difference = first["billed"].as_f64().expect("a cost") - own - theirs;
    assert!(difference.abs() < 40.0, "{difference}: the ids of the calls differ in length");
    let recorded = rows.iter().find(|row| row["kind"] == "recorded").expect("a row");
    assert_eq!(recorded["file"], "in/deep/er/s2.jsonl", "sorted by name");
    let third = row(&rows, "in/s3.jsonl", "adaptive");
    assert_eq!((&third["turns"], &third["sub_agents"]["turns"]), (&json!(11), &json!(5)));
    assert!(
        !rows.iter().any(|row| row["file"].as_str().is_some_and(|name| name.contains("agent-")))
    );
    assert!(row(&rows, "in/s1.jsonl", "off")["constraints"]["of"].as_u64() > Some(0));
    // For people: a table for each file and one for all.
    let done = desk.call(&["context", "replay", "--compare", "in"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(done.err, "note: in: files of JSON that are no conversations were left out: 1\n");
    for text in [
        "in/s1.jsonl: 36 replies, 16 of them of 2 sub-agents\n",
        "SUB-AGENTS   LARGEST   EDITS  SUMMARIES  CONSTRAINTS  FILES  WHOLE  OUTCOMES  VALUES  ORDER",
        "in/deep/er/s2.jsonl: 6 replies\n",
        "all: 53 replies, 21 of them of 3 sub-agents\n",
        "SUB-AGENTS: the part of the cost that is theirs.",
    ] {
        assert!(done.out.contains(text), "{text}: {}", done.out);
    }
    // One that cannot be read does not prevent the others, and the exit code tells.
    desk.write("in/broken.json", "{\"messages\": [");
    desk.write("in/s1/subagents/agent-3.jsonl", "not of any form\n");
    for verb in [&["context", "replay", "--compare"][..], &["context", "score", "--preset", "off"]]
    {
        let done = desk.call(&[verb, &["in"]].concat());
        assert_eq!(done.code, 1);
        assert!(
            done.err.contains("error: in/broken.json: line 1, byte 13: the file ends"),
            "{}",
            done.err
        );
        assert!(done.err.contains("error: in/s1/subagents/agent-3.jsonl: line 1"), "{}", done.err);
        assert!(done.out.contains("all: 53 replies"), "{}", done.out);
    }
    assert_eq!(desk.call(&["context", "replay", "--preset", "off", "in"]).code, 2);
    desk.write("none/x.txt", "x");
    let none = desk.call(&["context", "replay", "--compare", "none"]);
    assert_eq!((none.code, none.out.as_str()), (1, ""));
    assert!(none.err.contains("no conversation is in the folder; name one"), "{}", none.err);
}

#[test]
fn the_child_agents_of_a_run_count() {
    let call = "[[rules]]\nagent = 'a'\nturn = 1\n[[rules.calls]]\ntool = 'delegate'\n\
                input = { agent = 'b', prompt = 'go' }\n[[rules]]\nsay = 'done'\n";
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\nsub_agents = ['b']\n\
                [agents.b]\nmodel = 'default'\ninstructions = 'x'\n\
                [tasks.one]\nagent = 'a'\nprompt = 'go'\n";
    let desk = Desk::offline(rest, call);
    desk.good(&["run"]);
    let run = desk.runs().pop().expect("a run").to_string_lossy().into_owned();
    for name in ["@one", &run] {
        let rows = desk.json(&["context", "replay", "--compare", "--json", name]);
        let presets: Vec<_> = rows.iter().filter(|row| row["kind"] == "preset").collect();
        assert_eq!(presets.len(), 6, "{name}: {rows:?}");
        for row in presets {
            let theirs = (&row["sub_agents"]["conversations"], &row["sub_agents"]["turns"]);
            assert_eq!((&row["turns"], theirs), (&json!(3), (&json!(1), &json!(1))), "{name}");
        }
        let recorded = rows.iter().find(|row| row["kind"] == "recorded");
        let turns = recorded.map(|row| (row["turns"].clone(), row["sub_agents"]["turns"].clone()));
        // A folder has no journal that is read.
        assert_eq!(turns, (name == "@one").then(|| (json!(3), json!(1))), "{name}");
    }
}

#[test]
fn what_has_no_links_is_read_in_its_order_and_what_is_empty_is_refused() {
    let desk = Desk::empty();
    let good = session("s", 12, false);
    desk.write("good.jsonl", &lines(&good));
    let mut bare = good.clone();
    for entry in &mut bare {
        entry.as_object_mut().expect("an object").remove("parentUuid");
    }
    let attachment = json!({"type": "nested_memory", "content": "x".repeat(4_000)});
    bare.insert(1, json!({"type": "attachment", "uuid": "t", "attachment": attachment}));
    desk.write("bare.jsonl", &lines(&bare));
    let views = |name: &str| desk.call(&["context", "replay", "--preset", "three-layer", name]);
    let (expected, done) = (views("good.jsonl"), views("bare.jsonl"));
    assert_eq!((expected.code, expected.err.as_str()), (0, ""));
    assert_eq!((done.code, &done.out), (0, &expected.out), "{}", done.err);
    for text in [
        "note: bare.jsonl: attachments (CLAUDE.md, named files, reminders; about 1.0k tokens) are no \
         messages and were skipped: 1\n",
        "note: bare.jsonl: entries that do not name the entry of the file before them were read in \
         the order of the file: 24\n",
    ] {
        assert!(done.err.contains(text), "{text}: {}", done.err);
    }
    desk.write("empty.json", "{\"messages\": []}");
    desk.write("unanswered.jsonl", &lines(&good[..1]));
    for name in ["empty.json", "unanswered.jsonl"] {
        for verb in [
            &["context", "replay", "--compare"][..],
            &["context", "replay", "--preset", "off"],
            &["context", "score"],
        ] {
            let done = desk.call(&[verb, &[name]].concat());
            assert_eq!((done.code, done.out.as_str()), (1, ""), "{verb:?} {name}");
            let told = format!("error: {name}: no reply of an agent is in the conversation");
            assert!(done.err.starts_with(&told) && done.err.contains("give one"), "{}", done.err);
        }
    }
}

#[test]
fn own_constants_are_tried_on_a_recording() {
    let desk = Desk::empty();
    desk.write("talk.jsonl", &lines(&session("s", 30, false)));
    let models = |text: &str| {
        format!(
            "version = 1\n[providers.p]\nkind = 'scripted'\nscript = 'x.toml'\n[models.m]\nprovider = 'p'\nmodel = 'm'\n\
             context_window = 30_000\nmax_output_tokens = 1_000\n\
             cost_per_mtok = {{ input = 2.0, output = 10.0, cache_read = 0.2, cache_write = 2.5 }}\n\
             [agents.a]\nmodel = 'm'\ninstructions = 'x'\n[tasks.t]\nagent = 'a'\nprompt = 'go'\n{text}"
        )
    };
    desk.write("x.toml", "[[rules]]\nsay = 'done'\n");
    desk.write(
        "own/agents.toml",
        &models("[compaction]\npreset = 'three-layer'\nkeep_recent = 1\n"),
    );
    desk.write("own/x.toml", "[[rules]]\nsay = 'done'\n");
    let three = desk.json(&["context", "replay", "--preset", "three-layer", "talk.jsonl"]);
    let mine = desk.json(&["context", "replay", "--config", "own/agents.toml", "talk.jsonl"]);
    let cleared =
        |views: &[Value]| views[11]["messages"].to_string().matches("[Previous: used").count();
    assert_eq!(
        (cleared(&three), cleared(&mine)),
        (8, 10),
        "the newest one stays, and the others go"
    );
    let rows =
        desk.json(&["context", "replay", "--compare", "--json", "--config", "own", "talk.jsonl"]);
    let presets: Vec<_> = rows.iter().filter(|row| row["kind"] == "preset").collect();
    assert_eq!(presets.len(), 7);
    let own = presets[0];
    assert_eq!(
        (&own["preset"], &own["config"]),
        (&json!("three-layer"), &json!("own/agents.toml"))
    );
    let billed = own["billed"].as_f64().expect("tokens");
    let usd = own["cost_usd"].as_f64().expect("the prices of the agent's model");
    assert!((billed * 2e-6 - usd).abs() < 2e-6, "{own}");
    assert!(
        own["largest"].as_f64() < row(&rows[1..], "talk.jsonl", "three-layer")["largest"].as_f64()
    );
    let scored = desk.good(&[
        "context",
        "score",
        "--preset",
        "off",
        "--config",
        "own",
        "--agent",
        "a",
        "talk.jsonl",
    ]);
    assert!(scored.contains("\nagents.toml ") && scored.contains("\noff "), "{scored}");
    // The window is that of the model, unless a flag says otherwise.
    let text = models("[compaction]\npreset = 'production'\n");
    desk.write("own/agents.toml", &text.replace("30_000", "6_000"));
    let largest = |more: &[&str]| {
        let fixed = ["context", "replay", "--compare", "--json", "--config", "own"];
        let rows = desk.json(&[&fixed[..], more, &["talk.jsonl"]].concat());
        rows[0]["largest"].as_f64().expect("tokens")
    };
    assert!(largest(&[]) <= 5_000.0 && largest(&["--context-window", "200000"]) > 5_000.0);
    for (arguments, told) in [
        (vec!["--config", "own", "--agent", "b"], "there is no agent `b`"),
        (vec!["--config", "nowhere.toml"], "nowhere.toml"),
        (vec!["--config", "own", "--preset", "off"], "cannot be used with"),
        (vec!["--preset", "off", "--agent", "a"], "--config"),
    ] {
        let arguments = [&["context", "replay", "talk.jsonl"], arguments.as_slice()].concat();
        let done = desk.call(&arguments);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{arguments:?}: {}", done.err);
        assert!(done.err.contains(told), "{arguments:?}: {}", done.err);
    }
}
