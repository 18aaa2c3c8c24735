//! `tail` and `ps`, from other processes, while a run works and after.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::desk::{Desk, Done, keys, lines, wait};

/// Four children at a time, born in three waves.
const TEAM: &str = r#"
[agents.lead]
model = "default"
instructions = "x"
sub_agents = ["hand"]
[agents.hand]
model = "default"
instructions = "x"
tools = ["glob", "bash"]
[tasks.one]
agent = "lead"
prompt = "go"
[tasks.two]
agent = "lead"
prompt = "go"
depends_on = ["one"]
"#;

const WAVES: &str = r#"
[[rules]]
agent = "lead"
turn = "1..3"
delay_ms = 60
[[rules.calls]]
tool = "delegate"
for_each = "[1, 2, 3, 4]"
input = { agent = "hand", prompt = "job {{ item }} of wave {{ turn }}" }

[[rules]]
agent = "hand"
turn = 1
delay_ms = 40
[[rules.calls]]
tool = "glob"
input = { pattern = "*" }

[[rules]]
delay_ms = 20
say = "done"
"#;

fn team() -> Desk {
    Desk::offline(TEAM, WAVES)
}

fn seqs(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
}

#[test]
fn followers_see_every_event_once_across_births_and_end_with_the_run() {
    let desk = team();
    let run = desk.start(&["run", "--json"]);
    desk.wait_for_event("task.started", |_| true);
    let whole = desk.start(&["tail", "-f", "--json"]);
    let globs =
        desk.start(&["logs", "-f", "--json", "--agent", "one/hand-1*", "--agent", "two/*-[2-3]"]);
    let people = desk.start(&["tail", "-f"]);
    let task = desk.start(&["tail", "-f", "--json", "--task", "tw*"]);
    let run = run.end();
    assert_eq!(run.code, 0, "{}", run.err);

    let whole = whole.end();
    assert_eq!(whole.code, 0, "{}", whole.err);
    assert_eq!(whole.out, run.out);
    let events = lines(&whole.out);
    assert_eq!(seqs(&events), (1..=events.len() as u64).collect::<Vec<_>>());

    let wanted =
        ["one/hand-1", "one/hand-10", "one/hand-11", "one/hand-12", "two/hand-2", "two/hand-3"];
    let of_wanted =
        |event: &&Value| event["agent"].as_str().is_some_and(|agent| wanted.contains(&agent));
    let expected: Vec<_> = events.iter().filter(of_wanted).cloned().collect();
    let names: BTreeSet<_> =
        expected.iter().map(|event| event["agent"].as_str().unwrap()).collect();
    assert_eq!(names.len(), wanted.len());
    assert_eq!(lines(&globs.end().out), expected);

    let of_two = |event: &&Value| event["task"] == "two";
    let expected: Vec<_> = events.iter().filter(of_two).cloned().collect();
    assert_eq!(lines(&task.end().out), expected);

    let people = people.end();
    people.assert_plain();
    assert!(people.out.contains("two/hand-12"), "{}", people.out);
    assert_eq!(people.out, desk.good(&["tail"]));
    assert!(people.out.lines().all(|line| line.contains(" |")), "{}", people.out);
}

#[test]
fn parts_of_a_finished_run_are_replayed() {
    let desk = team();
    desk.good(&["run"]);
    let all = desk.json(&["tail", "--json"]);
    assert_eq!(desk.json(&["tail", "--json", "-f"]), all);
    assert_eq!(desk.json(&["tail", "--json", "-n", "3"]), all[all.len() - 3..]);
    assert_eq!(desk.json(&["tail", "--json", "-n", "0"]), Vec::<Value>::new());
    assert_eq!(desk.json(&["tail", "--json", "--since", "10"]), all[10..]);
    assert_eq!(desk.json(&["tail", "--json", "--since", "10", "-n", "2"]), all[all.len() - 2..]);
    let none = desk.json(&["tail", "--json", "--agent", "nobody"]);
    assert_eq!(none, Vec::<Value>::new());
    // Lines for people are counted as they are printed.
    let lines = desk.good(&["tail", "-n", "7"]);
    assert_eq!(lines.lines().count(), 7);
    assert!(desk.good(&["tail"]).ends_with(&lines));
    // A literal name with brackets is a name.
    assert_eq!(desk.good(&["tail", "--agent", "one[3]"]), "");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let desk = team();
    desk.good(&["run"]);
    let program = env!("CARGO_BIN_EXE_callsheet");
    for verb in ["tail --json", "tail", "ps --json", "show @one --transcript", "tail -f"] {
        // The status of the program, not that of `head`, goes to stderr.
        let script = format!("{{ '{program}' {verb}; echo $? >&2; }} | head -n 1");
        let mut shell = std::process::Command::new("sh");
        desk.bare(shell.args(["-c", &script]));
        let done = Done::of(&mut shell);
        assert_eq!(done.err, "0\n", "{verb}");
        assert_eq!(done.out.lines().count(), 1, "{verb}");
    }
}

#[test]
fn a_slow_reader_of_events_gets_them_all_and_does_not_hold_the_run_up() {
    let desk = team();
    let mut command = desk.command(&["run", "--json"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    desk.wait_for_event("run.completed", |_| true);
    // Only now is anything read.
    let mut text = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(lines(&text).last().unwrap()["type"], "run.completed");
    assert_eq!(text, desk.good(&["tail", "--json"]));
}

#[test]
fn ps_shows_a_run_while_it_works_and_after() {
    // The children wait until they are let go.
    let held = WAVES
        .replace("tool = \"glob\"", "tool = \"bash\"")
        .replace("pattern = \"*\"", "command = \"until [ -e go ]; do sleep 0.02; done\"")
        .replace("\"1..3\"", "1");
    let desk = Desk::offline(TEAM, &held);
    let run = desk.start(&["run"]);
    let live = wait("four children at work", || {
        let rows = desk.json(&["ps", "--json"]);
        let waiting = |row: &&Value| row["kind"] == "agent" && row["waiting_for"] == "bash";
        (rows.iter().filter(waiting).count() == 4).then_some(rows)
    });
    desk.write("go", "");
    for row in &live {
        let wanted = [
            "kind",
            "run",
            "name",
            "parent",
            "state",
            "turn",
            "usage",
            "cost_usd",
            "unsettled_usd",
            "age_s",
            "waiting_for",
            "shortfalls",
            "unprotected",
            "untold",
        ];
        assert_eq!(keys(row), wanted);
        assert_eq!(keys(&row["usage"]), ["input", "output", "cache_read", "cache_write"]);
    }
    let row = |rows: &[Value], kind: &str, name: &str| {
        let mut rows = rows.iter();
        rows.find(|row| row["kind"] == kind && row["name"] == name).unwrap().clone()
    };
    assert_eq!(row(&live, "run", "desk")["state"], "running");
    assert_eq!(row(&live, "task", "one")["state"], "running");
    assert_eq!(row(&live, "task", "two")["state"], "pending");
    assert_eq!(row(&live, "task", "two")["waiting_for"], "one");
    let lead = row(&live, "agent", "one");
    assert_eq!((&lead["state"], &lead["parent"]), (&"waiting".into(), &"one".into()));
    assert_eq!(lead["waiting_for"], "4 children");
    let hand = row(&live, "agent", "one/hand-2");
    assert_eq!((&hand["parent"], &hand["turn"]), (&"one".into(), &1.into()));
    assert!(hand["age_s"].as_f64().unwrap() < 60.0);

    assert_eq!(run.end().code, 0);
    let after = desk.json(&["ps", "--json"]);
    assert!(after.iter().all(|row| row["state"] == "completed"), "{after:?}");
    assert!(after.iter().all(|row| row["age_s"].is_null() && row["waiting_for"].is_null()));
    let of_run = row(&after, "run", "desk")["usage"]["output"].as_u64().unwrap();
    let of_agents = after.iter().filter(|row| row["kind"] == "agent");
    let sum: u64 = of_agents.map(|row| row["usage"]["output"].as_u64().unwrap()).sum();
    assert_eq!(of_run, sum);
}

#[test]
fn ps_lists_runs_and_children_in_the_order_of_people() {
    let desk = team();
    desk.good(&["run"]);
    desk.good(&["run"]);
    let newest = desk.runs().pop().unwrap();
    let newest = newest.file_name().unwrap().to_str().unwrap();
    let rows = desk.json(&["ps", "--json"]);
    assert!(rows.iter().all(|row| row["run"] == newest));
    let runs: Vec<_> = desk.json(&["ps", "-a", "--json"]);
    assert_eq!(runs.iter().filter(|row| row["kind"] == "run").count(), 2);

    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let mut wanted = vec!["desk".to_owned()];
    for task in ["one", "two"] {
        wanted.extend([task.to_owned(), task.to_owned()]);
        wanted.extend((1..=12).map(|number| format!("{task}/hand-{number}")));
    }
    assert_eq!(names, wanted);

    let tree = desk.good(&["ps", "--tree"]);
    let children: Vec<_> = tree.lines().filter(|line| line.contains("@hand-")).collect();
    assert_eq!(children.len(), 24);
    assert!(children.iter().all(|line| line.starts_with("      @hand-")), "{tree}");
    // Columns stand below their heads.
    let state = tree.lines().next().unwrap().find("STATE").unwrap();
    assert!(tree.lines().skip(1).all(|line| line[state..].starts_with("completed")), "{tree}");
}

#[test]
fn nothing_to_list_is_no_failure() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    let done = desk.call(&["ps"]);
    assert_eq!((done.code, done.out.as_str()), (0, ""));
    assert!(done.err.contains("no runs in"), "{}", done.err);
    assert_eq!(desk.good(&["ps", "-a", "--json"]), "");
    for verb in ["tail", "show", "cost"] {
        let done = desk.call(&[verb]);
        assert_eq!((done.code, done.out.as_str()), (1, ""), "{verb}");
        assert!(done.err.contains("there is no run in"), "{}", done.err);
    }
}

#[test]
fn a_damaged_run_does_not_hide_the_others() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    desk.good(&["run"]);
    desk.good(&["run"]);
    let old = desk.runs().remove(0).join("journal.jsonl");
    let text = std::fs::read_to_string(&old).unwrap();
    std::fs::write(&old, text.replacen("desk", "disk", 1)).unwrap();
    let done = desk.call(&["ps", "-a", "--json"]);
    assert_eq!(done.code, 74);
    assert!(done.err.contains("damaged"), "{}", done.err);
    let runs = lines(&done.out);
    let states = runs.iter().filter(|row| row["kind"] == "run").map(|row| &row["state"]);
    assert_eq!(states.collect::<Vec<_>>(), ["completed", "damaged"]);
}

#[test]
fn the_text_of_models_is_followed_from_another_terminal() {
    let desk = Desk::offline(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['bash']\nmax_turns = 100000\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n[tasks.two]\nagent = 'a'\nprompt = 'go'\n",
        "[[rules]]\nwhen = \"last and 'went' in last[0].text\"\nsay = 'so it ends'\n\
         [[rules]]\nsay = 'I look again.'\n[[rules.calls]]\ntool = 'bash'\n\
         input = { command = 'test -e go && echo went || sleep 0.02' }\n",
    );
    let run = desk.start(&["run"]);
    desk.wait_for_event("tool.started", |_| true);
    let followers = [vec!["--task", "one"], vec!["--agent", "two"]].map(|only| {
        let arguments = [vec!["tail", "-f", "--deltas", "-n", "0"], only.clone()].concat();
        let path = desk.path().join(only[1]);
        let out = std::fs::File::create(&path).expect("a file");
        let live = desk.command(&arguments).stdout(out).spawn().expect("it starts");
        (path, only[1], live)
    });
    for (path, agent, _) in &followers {
        let line = format!("{agent:<16} > I look again.");
        wait("text of the model", || {
            std::fs::read_to_string(path).ok()?.contains(&line).then_some(())
        });
    }
    desk.write("go", "");
    assert_eq!(run.end().code, 0);
    for (path, agent, mut live) in followers {
        assert!(live.wait().expect("it ends").success());
        let text = std::fs::read_to_string(path).expect("a file");
        let other = if agent == "one" { "two" } else { "one" };
        assert!(!text.contains(&format!("{other}  ")), "{text}");
    }
    let refused = desk.call(&["tail", "--deltas"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn what_needs_a_person_or_a_resume_is_listed_first_and_without_a_flag() {
    let desk = Desk::commands(
        "[inputs]\nask = { type = 'boolean', default = true }\n\
         [tasks.gate]\nwhen = 'inputs.ask'\napproval = { message = 'go on?' }\n\
         [tasks.done]\nrun = 'true'\n",
    );
    for _ in 0..2 {
        assert_eq!(desk.call(&["run"]).code, 6);
    }
    desk.good(&["run", "--input", "ask=false"]);
    let states = |arguments: &[&str]| {
        let rows = desk.json(arguments);
        let rows = rows.into_iter().filter(|row| row["kind"] == "run");
        rows.map(|row| row["state"].as_str().expect("a word").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(&["ps", "--json"]), ["waiting", "waiting"]);
    assert_eq!(states(&["ps", "-a", "--json"]), ["waiting", "waiting", "completed"]);
    let here = desk.good(&[]);
    assert!(here.contains("2 runs wait for you: callsheet ps\n"), "{here}");
    let open: Vec<_> = desk.json(&["pending", "--json"]);
    let ids: Vec<_> = open.iter().map(|row| row["id"].as_str().expect("an id")).collect();
    assert_eq!(desk.call(&["approve", ids[0]]).code, 0);
    let run = open[0]["run"].as_str().expect("a run");
    assert_eq!(desk.call(&["resume", run]).code, 0);
    assert!(desk.good(&[]).contains("1 run waits for you"), "{}", desk.good(&[]));
    // The report says who answered and who resumed.
    let report = desk.good(&["report", run]);
    assert!(report.contains("answered by "), "{report}");
    assert!(report.contains("resumed by "), "{report}");
}

#[test]
fn the_report_says_that_a_run_died_and_who_resumed_it() {
    let desk = Desk::commands(
        "[tasks.long]\nrun = 'test -e go || { touch begun; sleep 60; }'\nidempotent = true\n",
    );
    let live = desk.start(&["run"]);
    wait("its command", || desk.path().join("begun").exists().then_some(()));
    live.signal("KILL");
    live.end();
    desk.write("go", "");
    assert_eq!(desk.call(&["resume"]).code, 0);
    let report: Value =
        serde_json::from_str(&desk.good(&["report", "--format", "json"])).expect("JSON");
    let waits = report["waits"].as_array().expect("waits");
    let died = waits.iter().find(|wait| wait["kind"] == "death").expect("it died");
    assert!(died["by"].as_str().is_some_and(|by| by.contains('@')), "{died}");
}
