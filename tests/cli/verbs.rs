//! `show`, `graph`, `cost`, `version`, `completions` and the helps.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use crate::support::desk::{Desk, Done, keys, wait};
use crate::support::pty::Terminal;

const GRAPH: &str = r#"
[models.default.cost_per_mtok]
input = 1000.0
output = 2000.0
[agents.lead]
model = "default"
instructions = "x"
tools = ["bash"]
sub_agents = ["hand"]
[agents.hand]
model = "default"
instructions = "x"
[tasks.ask]
agent = "lead"
prompt = "go"
[tasks.end]
run = "echo first; echo done; exit $(cat code)"
depends_on = ["ask"]
[tasks.after]
run = "true"
depends_on = ["end"]
"#;

const SCRIPT: &str = r#"
[[rules]]
agent = "lead"
turn = 1
say = "I ask around."
[[rules.calls]]
tool = "delegate"
for_each = "[1, 2]"
input = { agent = "hand", prompt = "job" }
[[rules]]
agent = "lead"
turn = 2
[[rules.calls]]
tool = "bash"
input = { command = "printf 'a\\033[31mb'" }
[[rules]]
agent = "hand"
say = "{{ prompt }} is done"
[[rules]]
say = "All is done."
"#;

/// A finished run; the second task exits with this code.
fn ran(code: i32) -> (Desk, Done) {
    let desk = Desk::offline(GRAPH, SCRIPT);
    desk.write("code", &code.to_string());
    let done = desk.call(&["run"]);
    (desk, done)
}

fn id(desk: &Desk) -> String {
    let run = desk.runs().pop().expect("a run");
    run.file_name().expect("a name").to_string_lossy().into_owned()
}

/// The part of an id that commands for people name.
fn short(id: &str) -> &str {
    &id[id.len() - 8..]
}

/// A text with what differs from run to run replaced by words of the same width.
fn redacted(desk: &Desk, text: &str) -> String {
    let root = desk.path().canonicalize().expect("it exists");
    let text = text.replace(&*root.to_string_lossy(), "DIR").replace(&id(desk), "RUN");
    let text = text.replace(short(&id(desk)), "RUN");
    let varies = [
        (r"\d+\.\d s", "0.0 s"),
        (r"[\d.]+k? tokens in, [\d.]+k? out, \$[\d.]+", "1 tokens in, 2 out, $3"),
        (r"--- \d+ ", "--- N "),
        (r"RUN@\d+", "RUN@N"),
    ];
    varies.iter().fold(text, |text, (what, word)| {
        let what = regex::Regex::new(what).expect("an expression");
        what.replace_all(&text, regex::NoExpand(word)).into_owned()
    })
}

#[test]
fn a_good_run_ends_with_its_result_and_where_to_look() {
    let (desk, done) = ran(0);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_snapshot!(redacted(&desk, &done.out), @r"
    ask    completed     0.0 s  All is done.
    end    completed     0.0 s  done
    after  completed     0.0 s

    run completed after 0.0 s: 2 child agents, 1 tokens in, 2 out, $3
    its parts:    callsheet ps --tree
    its results:  callsheet show RUN
    its events:   callsheet tail RUN
    ");
    let talk: Vec<_> = done.err.lines().map(|line| redacted(&desk, line)).collect();
    assert_eq!(talk[1], "run RUN in DIR/.transcripts/RUN");
    // The story of the run: what its tasks and children did, line by line.
    let story: Vec<_> = talk[2..].iter().map(|line| line[13..].to_owned()).collect();
    let begins = |what: &str| story.iter().any(|line| line.starts_with(what));
    assert!(begins("ask              | task started"), "{story:?}");
    assert!(begins("ask/hand-2       | done after 1 turn"), "{story:?}");
    assert!(begins("after            | task completed"), "{story:?}");
    assert!(!begins("ask              | calling"), "{story:?}");
}

#[test]
fn a_failed_run_says_what_failed_and_where_to_look() {
    let (desk, done) = ran(3);
    assert_eq!(done.code, 1, "{}", done.err);
    assert_snapshot!(redacted(&desk, &done.out), @r"
    ask    completed     0.0 s  All is done.
    end    failed        0.0 s  command_failed: the command ended with exit code 3
        | first
        | done
    after  skipped              task `end` did not succeed

    run failed after 0.0 s: 2 child agents, 1 tokens in, 2 out, $3
    what failed:  callsheet show RUN/end
    try again:    callsheet resume RUN --retry-failed
    with changes: callsheet resume RUN --accept-changes
    rewind:       callsheet fork RUN@N
    its parts:    callsheet ps --tree
    its results:  callsheet show RUN
    its events:   callsheet tail RUN
    ");
}

#[test]
fn more_is_told_when_more_is_asked_for() {
    let desk = Desk::offline(GRAPH, SCRIPT);
    desk.write("code", "0");
    let done = desk.call(&["run", "-v"]);
    assert!(done.err.contains("| calling default"), "{}", done.err);
    assert!(done.err.contains("> All is done."), "the text of the model: {}", done.err);
    done.assert_plain();
}

#[test]
fn only_a_scripted_model_in_use_is_announced() {
    let desk = Desk::offline(GRAPH, SCRIPT);
    desk.write("code", "0");
    let announced = |done: &Done| done.err.contains("scripted model");
    assert!(announced(&desk.call(&["run", "end"])));
    let desk = Desk::offline("[tasks.one]\nrun = 'true'\n", SCRIPT);
    let other = "[profiles.live]\nmodels.default = { provider = 'live', model = 'm' }\n\
                 [profiles.live.providers.live]\nkind = 'openai'\n\
                 base_url = 'http://127.0.0.1:1/v1'\n";
    desk.write("agents.toml", &(desk.read("agents.toml") + other));
    assert!(announced(&desk.call(&["run"])));
    let live = desk.call(&["run", "--profile", "live"]);
    assert_eq!((live.code, announced(&live)), (0, false), "{}", live.err);
}

#[test]
fn a_run_goes_by_id_by_prefix_and_by_name() {
    let (desk, _) = ran(0);
    let id = id(&desk);
    let whole = desk.good(&["show"]);
    for name in [id.as_str(), &id.to_uppercase(), &id[..13], &id[id.len() - 4..], "desk"] {
        assert_eq!(desk.good(&["show", name]), whole, "{name}");
    }
    assert_eq!(desk.good(&["show", "--state-dir", ".transcripts"]), whole);
    desk.good(&["run"]);
    // Both ids begin with the same time; fewer digits could be the end of one of them.
    let done = desk.call(&["show", &id[..6]]);
    assert_eq!(done.code, 1);
    assert!(done.err.contains("matches several runs"), "{}", done.err);
    assert_ne!(desk.good(&["show", "desk"]), whole);
}

#[test]
fn what_does_not_exist_is_one_and_named() {
    let (desk, _) = ran(0);
    for (arguments, wanted) in [
        (&["show", "nosuch"][..], "error: there is no run `nosuch` in "),
        (&["show", "desk/nosuch"], "error: the run has no task `nosuch`"),
        (&["show", "desk/@nosuch"], "error: the run has no agent `nosuch`"),
        (&["show", "desk", "--result", "abc123"], "error: "),
        (&["tail", "nosuch"], "error: there is no run `nosuch` in "),
        (&["graph", "nosuch"], "error: there is no run `nosuch` in "),
        (&["cost", "nosuch"], "error: there is no run `nosuch` in "),
    ] {
        let done = desk.call(arguments);
        assert_eq!((done.code, done.out.as_str()), (1, ""), "{arguments:?}");
        assert!(done.err.starts_with(wanted), "{arguments:?}: {}", done.err);
    }
}

#[test]
fn one_thing_is_shown_in_full() {
    let (desk, _) = ran(0);
    let shown = desk.good(&["show", "desk"]);
    assert!(shown.contains("of desk: completed"), "{shown}");
    let task = desk.good(&["show", "desk/end"]);
    // Their names depend on where the test runs.
    let task = task.lines().filter(|line| !line.starts_with("variables of all commands: "));
    let task = task.map(|line| format!("{line}\n")).collect::<String>();
    let root = desk.path().canonicalize().unwrap().display().to_string();
    assert_snapshot!(task.replace(&root, "ROOT"), @r"
    task end: completed, attempt 1
    shell: /bin/sh -c
    folder: ROOT

    | first
    | done
    ");
    let transcript = desk.good(&["show", "desk/@ask/hand-2", "--transcript"]);
    assert_snapshot!(redacted(&desk, &transcript), @r"
    --- N user
    | job
    --- N assistant
    | job is done
    ");
    // What a tool printed cannot steer the terminal.
    let transcript = desk.call(&["show", "@ask", "--transcript"]);
    transcript.assert_plain();
    assert!(transcript.out.contains(r"a\u{1b}[31mb"), "{}", transcript.out);
    let messages = desk.json(&["show", "@ask", "--transcript", "--json"]);
    assert!(messages.iter().all(|line| keys(line) == ["seq", "ts", "message"]));
    // Names are globs where no literal name fits.
    let agents = desk.json(&["show", "@ask/*", "--json"]);
    let names: Vec<_> = agents.iter().map(|agent| agent["agent"].as_str().unwrap()).collect();
    assert_eq!(names, ["ask/hand-1", "ask/hand-2"]);
    let run = desk.json(&["show", "--json"]).pop().unwrap();
    assert_eq!(run["state"], "completed");
    assert_eq!(run["tasks"]["end"]["output"]["text"].as_str().unwrap().trim(), "first\ndone");
    let task = desk.json(&["show", "desk/ask", "--json"]).pop().unwrap();
    assert_eq!((&task["task"], &task["agent"]), (&json!("ask"), &json!("ask")));
}

#[test]
fn a_large_output_is_stored_and_shown_whole() {
    let desk = Desk::commands("[tasks.big]\nrun = 'seq 1 100000'\n");
    desk.good(&["run"]);
    let task = desk.json(&["show", "/big", "--json"]).pop().unwrap();
    let hash = task["output"]["stored"]["hash"].as_str().unwrap();
    let whole = desk.good(&["show", "--result", hash]);
    assert_eq!(whole.lines().count(), 100_000);
    assert!(desk.good(&["show", "/big"]).ends_with(&format!("show --result {hash}\n")));
    assert_eq!(desk.call(&["show", "--result", "../LOCK"]).code, 2);
}

#[test]
fn the_graph_is_drawn_in_four_forms() {
    let (desk, _) = ran(3);
    assert_snapshot!(desk.good(&["graph"]), @r"
    ask    agent lead
    end    command     <- ask
    after  command     <- end
    ");
    assert_snapshot!(desk.good(&["graph", "desk"]), @r"
    ask    agent lead  completed
    end    command     failed     <- ask
    after  command     skipped    <- end
    ");
    assert_snapshot!(desk.good(&["graph", "--format", "mermaid"]), @r#"
    flowchart TD
      t0["ask"]
      t1["end"]
      t0 --> t1
      t2["after"]
      t1 --> t2
    "#);
    assert_snapshot!(desk.good(&["graph", "desk", "--format", "dot"]), @r##"
    digraph plan {
      "ask" [label="ask\ncompleted", style=filled, fillcolor="#b7e1b0"];
      "end" [label="end\nfailed", style=filled, fillcolor="#f2b8b5"];
      "ask" -> "end";
      "after" [label="after\nskipped", style=filled, fillcolor="#e4e4e4"];
      "end" -> "after";
    }
    "##);
    let document = desk.json(&["graph", "desk", "--format", "json"]);
    let wanted = json!([{"tasks": [
        {"name": "ask", "agent": "lead", "depends_on": [], "state": "completed"},
        {"name": "end", "agent": null, "depends_on": ["ask"], "state": "failed"},
        {"name": "after", "agent": null, "depends_on": ["end"], "state": "skipped"},
    ]}]);
    assert_eq!(json!(document), wanted);
}

/// A graph with everything that is marked.
fn marked() -> Desk {
    let desk = Desk::commands(
        "[tasks.plan]\nrun = 'echo plan'\n\
         [tasks.each]\ndepends_on = ['plan']\nforeach = \"['a', 'b']\"\nrun = 'echo one'\n\
         [tasks.maybe]\ndepends_on = ['plan']\nwhen = 'false'\nrun = 'echo never'\n\
         [tasks.inner]\ndepends_on = ['each']\nworkflow = 'inner.toml'\n\
         [tasks.end]\ndepends_on = ['maybe', 'inner', 'plan']\nrun = 'echo end'\n",
    );
    desk.write("inner.toml", "version = 1\n[tasks.one]\nrun = 'echo one'\n");
    desk
}

#[test]
fn the_graph_is_drawn_as_boxes_and_lines() {
    let desk = marked();
    assert_snapshot!(desk.good(&["graph", "--format", "boxes"]), @r"
                  ┌─────────┐
                  │  each   │  ┌───────────┐  ┌───────────┐
                ┌▶│ command ├─▶│ inner/one │  │   inner   │
                │ │ foreach │  │  command  ├─▶│ sub-graph ├─┐
                │ └─────────┘  └───────────┘  └───────────┘ │
    ┌─────────┐ │ ┌─────────┐                               │ ┌─────────┐
    │  plan   │ │ │  maybe  │                               └▶│   end   │
    │ command ├─┼▷│ command ├────────────────────────────────▶│ command │
    └─────────┘ │ │  when   │                               ┌▶│         │
                │ └─────────┘                               │ └─────────┘
                │                                           │
                └───────────────────────────────────────────┘
    ▷ may be skipped (when)
    ");
    desk.good(&["run"]);
    assert_snapshot!(desk.good(&["graph", "desk", "--format", "boxes"]), @r"
                    ┌───────────┐
                    │   each    │  ┌───────────┐  ┌───────────┐
                    │  command  │  │ inner/one │  │   inner   │
                  ┌▶│ foreach 2 ├─▶│  command  ├─▶│ sub-graph ├─┐
                  │ │ completed │  │ completed │  │ completed │ │
                  │ └───────────┘  └───────────┘  └───────────┘ │
    ┌───────────┐ │ ┌───────────┐                               │  ┌───────────┐
    │   plan    │ │ │   maybe   │                               └─▶│    end    │
    │  command  ├─┼▷│  command  │                                ┌▶│  command  │
    │ completed │ │ │   when    ├────────────────────────────────│▶│ completed │
    └───────────┘ │ │  skipped  │                                │ └───────────┘
                  │ └───────────┘                                │
                  │                                              │
                  └──────────────────────────────────────────────┘
    ▷ may be skipped (when)
    ");
    // What goes to a pipe without a format is the list.
    assert_eq!(desk.good(&["graph"]), desk.good(&["graph", "--format", "ascii"]));
}

#[test]
fn the_graph_is_drawn_at_terminals_of_any_size() {
    let desk = marked();
    for (rows, columns) in [(24, 80), (8, 40), (8, 10)] {
        let terminal = Terminal::start_sized(&desk, (rows, columns), &["graph"]);
        let last = if columns == 10 { "end" } else { "may be" };
        terminal.until(last);
        let drawn = terminal.written();
        assert_eq!(drawn.contains("┌"), columns > 10, "{drawn}");
        assert_eq!(drawn.contains("so this is a list"), columns == 10, "{drawn}");
    }
}

#[test]
fn many_tasks_share_boxes_or_are_a_list_and_a_picture_has_all() {
    let mut tasks = String::from("[tasks.begin]\nrun = 'true'\n");
    for n in 0..300 {
        tasks.push_str(&format!("[tasks.part{n:03}]\ndepends_on = ['begin']\nrun = 'true'\n"));
    }
    let all: Vec<_> = (0..300).map(|n| format!("'part{n:03}'")).collect();
    tasks.push_str(&format!("[tasks.end]\ndepends_on = [{}]\nrun = 'true'\n", all.join(", ")));
    let desk = Desk::commands(&tasks);
    assert_snapshot!(desk.good(&["graph", "--format", "boxes"]), @r"
                 ┌───────────────────┐
    ┌─────────┐  │ part000 … part299 │  ┌─────────┐
    │  begin  │  │     300 tasks     ├─▶│   end   │
    │ command ├─▶│      command      │  │ command │
    └─────────┘  └───────────────────┘  └─────────┘
    ");
    let picture = desk.good(&["graph", "--format", "svg"]);
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert_eq!(picture.matches("<g>").count(), 302);
    assert!(!picture.contains("<script") && !picture.contains("href"), "{picture}");
    // Each with a task of its own behind it: no two are alike, and none of it fits.
    let mut tasks = String::new();
    for n in 0..300 {
        tasks.push_str(&format!(
            "[tasks.a{n}]\nrun = 'true'\n[tasks.b{n}]\ndepends_on = ['a{n}']\nrun = 'true'\n"
        ));
    }
    let desk = Desk::commands(&tasks);
    let list = desk.call(&["graph", "--format", "boxes"]);
    assert!(
        list.err.contains("600 boxes") && list.err.contains("so this is a list"),
        "{}",
        list.err
    );
    assert_eq!((list.code, list.out), (0, desk.good(&["graph"])));
}

#[test]
fn words_of_other_programs_lead_on() {
    let desk = Desk::commands(
        "[tasks.work]\nrun = 'cat here'\n[tasks.waits]\nrun = 'until test -e go; do sleep 0.05; done'\n",
    );
    desk.write("go", "");
    assert_eq!(desk.call(&["run", "--keep-going"]).code, 8);
    assert!(desk.good(&["logs", "desk"]).contains("task failed"));
    assert!(desk.good(&["status", "-a"]).contains("desk"));
    // A word that is no verb names the one that is, which does it.
    let retried = desk.call(&["retry", "desk"]);
    assert_eq!(retried.code, 2);
    assert!(retried.err.contains("`callsheet resume RUN --retry-failed`"), "{}", retried.err);
    desk.write("here", "found");
    desk.good(&["resume", "desk", "--retry-failed"]);
    std::fs::remove_file(desk.path().join("go")).expect("removed");
    let run = desk.start(&["run"]);
    // The first run has such an event too.
    wait("a second run", || (desk.runs().len() == 2).then_some(()));
    desk.wait_for_event("task.started", |event| event["task"] == "waits");
    let stopped = desk.call(&["stop", "desk"]);
    assert_eq!(stopped.code, 2);
    assert!(stopped.err.contains("`callsheet cancel RUN`"), "{}", stopped.err);
    desk.good(&["cancel", "desk"]);
    assert_ne!(run.end().code, 0);
}

#[test]
fn costs_are_summed_by_agent_task_and_model() {
    let (desk, _) = ran(0);
    let by_agent = desk.json(&["cost", "--by", "agent", "--json"]);
    for row in &by_agent {
        assert_eq!(keys(row), ["by", "name", "own", "inclusive"]);
        let wanted = [
            "input",
            "output",
            "cache_read",
            "cache_write",
            "cost_usd",
            "unsettled_usd",
            "requests",
            "unsettled_requests",
        ];
        assert_eq!(keys(&row["own"]), wanted);
        assert_eq!(keys(&row["inclusive"]), wanted);
        let part = |key: &str| row["own"][key].as_f64().unwrap();
        let cost = (part("input") * 1000.0 + part("output") * 2000.0) / 1e6;
        assert!((part("cost_usd") - cost).abs() < 1e-9, "{row}");
    }
    let names: Vec<_> = by_agent.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ask", "ask/hand-1", "ask/hand-2"]);
    let sum = |key: &str| by_agent.iter().map(|row| row["own"][key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(by_agent[0]["inclusive"]["input"], sum("input"));

    let by_task = desk.json(&["cost", "--json"]);
    assert_eq!((&by_task[0]["by"], &by_task[0]["name"]), (&json!("task"), &json!("ask")));
    assert_eq!(by_task[0]["own"], by_agent[0]["own"]);
    assert_eq!(by_task[0]["inclusive"], by_agent[0]["inclusive"]);
    let by_model = desk.json(&["cost", "--by", "model", "--json"]);
    assert_eq!((by_model.len(), &by_model[0]["name"]), (1, &json!("default")));
    assert_eq!(by_model[0]["own"], by_agent[0]["inclusive"]);

    let table = desk.good(&["cost", "--by", "agent"]);
    let widths: Vec<_> = table.lines().map(str::len).collect();
    assert!(widths.windows(2).all(|two| two[0] == two[1]), "{table}");
}

#[test]
fn costs_are_summed_over_runs() {
    let (desk, _) = ran(0);
    let cost = |arguments: &[&str]| -> (Vec<serde_json::Value>, f64) {
        let rows = desk.json(&[&["cost", "--json"], arguments].concat());
        let sum = rows.iter().filter_map(|row| row["own"]["cost_usd"].as_f64()).sum();
        (rows, sum)
    };
    let (_, one) = cost(&["--by", "agent"]);
    assert!(one > 0.0);
    // A fork before the last record of the run spends nothing itself, whatever its parent spent.
    let events = desk.json(&["tail", "--json"]);
    let last = events.last().expect("events")["seq"].as_u64().expect("a number");
    desk.good(&["fork", &format!("desk@{}", last - 1)]);
    desk.good(&["run"]);
    let (rows, sum) = cost(&["--all"]);
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows.iter().all(|row| row["by"] == "run"), "{rows:?}");
    assert!((sum - 2.0 * one).abs() < 1e-9, "{sum} of {one}");
    assert_eq!(rows.iter().filter(|row| row["own"]["requests"] == 0).count(), 1, "{rows:?}");
    let (models, by_model) = cost(&["--all", "--by", "model"]);
    assert!((by_model - sum).abs() < 1e-9 && models.len() == 1, "{models:?}");
    assert_eq!(cost(&["--since", "1h"]).0.len(), 3);
    // The newest began before it ran, ended and was summed.
    assert_eq!(cost(&["--since", "1ms"]).0.len(), 0);
    for wrong in [&["cost", "--since", "soon"][..], &["cost", "--all", "--by", "task"]] {
        assert_eq!(desk.call(wrong).code, 2, "{wrong:?}");
    }
    assert_eq!(desk.call(&["cost", "desk", "--all"]).code, 2);
}

#[test]
fn colours_are_for_terminals_or_on_request() {
    let (desk, _) = ran(0);
    let done = Done::of(desk.command(&["ps"]).env("CLICOLOR_FORCE", "1"));
    assert!(done.out.contains("\x1b[32m"), "{}", done.out);
    for verb in ["ps", "tail", "graph", "show", "--help", "nonsense"] {
        let plain = desk.call(&[verb]);
        plain.assert_plain();
        let done = Done::of(desk.command(&[verb]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1"));
        done.assert_plain();
    }
}

#[test]
fn the_folder_of_runs_can_be_elsewhere() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    let done = Done::of(desk.command(&["run"]).env("CALLSHEET_STATE_DIR", "elsewhere"));
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(!desk.path().join(".transcripts").exists());
    assert!(desk.good(&["ps", "--state-dir", "elsewhere"]).contains("completed"));
    // An empty variable is none.
    let done = Done::of(desk.command(&["ps"]).env("CALLSHEET_STATE_DIR", ""));
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{}", done.err);
    let done = desk.call(&["run", "-f", "agents.toml", "--state-dir", "a b"]);
    assert!(done.out.contains("callsheet ps --state-dir 'a b' --tree"), "{}", done.out);
}

#[test]
fn version_and_completions_are_data() {
    let desk = Desk::empty();
    let version = format!("callsheet {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(desk.good(&["version"]), version);
    assert_eq!(desk.good(&["--version"]), version);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = desk.good(&["completions", shell]);
        assert!(script.contains("CALLSHEET_COMPLETE"), "{shell}: {script}");
    }
}

/// What bash offers for the last of these words.
fn offered(desk: &Desk, words: &[&str]) -> Vec<String> {
    let mut command = desk.command(&[&["--", "callsheet"], words].concat());
    command.env("CALLSHEET_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    let done = Done::of(command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()));
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{words:?}");
    // Options are offered too.
    done.out.lines().filter(|line| !line.starts_with("--")).map(str::to_owned).collect()
}

#[test]
fn the_shell_is_offered_what_is_there() {
    let desk = Desk::commands(
        "[profiles.ci.limits]\nfail_fast = false\n[tasks.good]\nrun = 'true'\n\
         [tasks.bad]\nrun = 'false'\ndepends_on = ['good']\n",
    );
    // Nothing is there yet, and nothing is said about it.
    assert_eq!(offered(&desk, &["show", ""]), [""; 0]);
    assert_eq!(desk.call(&["run"]).code, 1);
    let id = desk.runs()[0].file_name().expect("an id").to_string_lossy().into_owned();
    let short = &id[id.len() - 4..];
    assert_eq!(offered(&desk, &["resume", ""]), [short]);
    assert_eq!(offered(&desk, &["resume", &id[..5]]), [id.as_str()]);
    assert_eq!(offered(&desk, &["run", "b"]), ["bad"]);
    assert_eq!(offered(&desk, &["run", "--profile", ""]), ["ci"]);
    assert_eq!(offered(&desk, &["man", "do"]), ["doctor"]);
    assert_eq!(offered(&desk, &["show", "/g"]), ["/good"]);
    assert_eq!(offered(&desk, &["show", "@"]), ["@bad", "@good"]);
    let part = format!("{short}/@b");
    assert_eq!(offered(&desk, &["show", &part]), [format!("{short}/@bad")]);
    assert_eq!(offered(&desk, &["tail", "--agent", "g"]), ["good"]);
    assert_eq!(offered(&desk, &["tail", "--task", ""]), ["good", "bad"]);
    // An id may begin with the same letter.
    let mut tasks = offered(&desk, &["resume", "--retry-failed", "b"]);
    tasks.retain(|word| word != short);
    assert_eq!(tasks, ["bad"]);
    // The flags of the command line tell where to look.
    std::fs::rename(desk.path().join(".transcripts"), desk.path().join("there")).expect("moved");
    assert_eq!(offered(&desk, &["resume", ""]), [""; 0]);
    assert_eq!(offered(&desk, &["--state-dir", "there", "resume", ""]), [short]);
    assert_eq!(offered(&desk, &["show", "nothing/"]), [""; 0]);
}

/// What stands on the command line is read by the shell: a name from a file, from a record or of a file that
/// is more than a name is not offered.
#[test]
fn the_shell_is_offered_names_only() {
    let desk = Desk::commands(
        "[profiles.'$(touch${IFS}PWNED)'.limits]\nfail_fast = false\n[profiles.ci]\n\
         [tasks.good]\nrun = 'true'\n[tasks.'`id`']\nrun = 'true'\n[tasks.'a;id']\nrun = 'true'\n\
         [tasks.--trust]\nrun = 'true'\n[tasks.'~root']\nrun = 'true'\n[tasks.UP]\nrun = 'true'\n",
    );
    for name in
        ["$(id)", "`id`", "a b", "a;id", "a&id", "a|id", "a'id", "a>id", "plain", "-x", "!1"]
    {
        desk.write(&format!("{name}.toml"), "");
        desk.write(&format!("folder/{name}/x"), "");
    }
    assert_eq!(offered(&desk, &["run", "--profile", ""]), ["ci"]);
    assert_eq!(offered(&desk, &["run", ""]), ["good"]);
    let mut files = offered(&desk, &["check", "-f", ""]);
    files.retain(|file| file.ends_with(".toml"));
    assert_eq!(files, ["agents.toml", "plain.toml"]);
    assert_eq!(offered(&desk, &["ps", "--state-dir", "folder/"]), ["folder/-x/", "folder/plain/"]);
    // A record with agents of any name.
    desk.write(
        "agents.toml",
        "version = 1\n[tasks.good]\nrun = 'true'\n[tasks.two]\nrun = 'true'\n",
    );
    assert_eq!(desk.call(&["run"]).code, 0);
    let journal = desk.runs()[0].join("journal.jsonl");
    let records = fs::read_to_string(&journal).expect("a journal");
    let records = records.lines().map(|line| {
        let (front, _) = line.rsplit_once(",\"crc\":").expect("a sum");
        front.replace("\"agent\":\"good\"", "\"agent\":\"$(id)\"")
    });
    let records: Vec<String> = records.collect();
    assert!(records.iter().any(|line| line.contains("$(id)")), "{records:#?}");
    fs::write(&journal, crate::support::desk::sealed(records.iter().map(String::as_str)))
        .expect("written");
    assert_eq!(offered(&desk, &["tail", "--agent", ""]), ["two"]);
    assert_eq!(offered(&desk, &["show", "@"]), ["@two"]);
}

#[test]
fn the_help_names_every_verb() {
    assert_snapshot!(Desk::empty().good(&["--help"]), @r"
    Runs teams of LLM agents from one file, agents.toml, as supervised actors

    Usage: callsheet [OPTIONS] [COMMAND]

    Commands:
      run          Launch the graph, or the named tasks and what they need
      attach       Follow a live run as if this terminal had started it; Ctrl-C only detaches
      resume       Resume a run that was stopped, from the end of its journal
      check        Find every mistake in the configuration before anything is spent
      trust        Review and approve what a configuration does outside its own directory
      tail         Print the agents' logs, live or after the fact [alias: logs]
      ps           List runs, tasks and agents [alias: status]
      show         Show one run, task or agent in full
      why          Explain why a run, a task or an agent waits, failed or was skipped, down to the root
      report       Report what a run did, with the evidence for each task
      graph        Draw the task graph
      cost         Print tokens and money by agent, task or model
      prune        Remove old runs that have ended, and keep what they cost
      budget       Show what a run, a task or an agent has spent of its budget, or set its limits
      cancel       Stop a run, a task or an agent with its children
      pending      List what waits for a person: approvals, permissions, questions of agents
      approve      Approve what a run asks for, from any terminal
      reject       Reject what a run asks for
      answer       Answer the question of an agent
      compact      Ask a live agent to compact its context now
      say          Send a message to a running agent, which reads it before its next step
      pause        Pause a run, a task or an agent, with everything below it
      unpause      Continue what was paused
      fork         Start a new run from an event of another run, with changed configuration keys
      rebuild      Write the transcripts and logs of a run again from its journal
      service      Install a systemd user service that resumes stopped runs at login and after a crash
      context      Try the compaction pipeline, and explain an agent's next request
      init         Write a commented agents.toml that runs at once, offline
      explain      Explain a diagnostic, a kind of failure or an exit code, at length
      schema       Print the JSON Schema of agents.toml or of the events
      doctor       Check whether this machine has what runs need
      man          Print the manual page of the program or of a verb
      completions  Print the completion script for a shell
      version      Print the version
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Everywhere:
          --state-dir <DIR>  The folder of the run directories [default: .transcripts beside the
                             configuration; env: CALLSHEET_STATE_DIR]
      -v, --verbose...       Print more on stderr: every event of a run, and more of the program's log
                             (-vv for all of it)
          --utc              Print times in UTC instead of the time zone of this machine
    ");
}

#[test]
fn the_help_of_run_is_readable() {
    assert_snapshot!(Desk::empty().good(&["run", "--help"]), @r"
    Launch the graph, or the named tasks and what they need

    Usage: callsheet run [OPTIONS] [TASK]...

    Arguments:
      [TASK]...  The tasks to run, with their dependencies [default: the tasks of `entry`, or else all]

    Options:
      -f, --file <FILE>         The configuration file [default: agents.toml]
          --input <NAME=VALUE>  The value of an input of the run
          --profile <NAME>      The profile of the configuration to use
          --set <KEY=VALUE>     Set a key of the configuration for this run, by its path and its value
                                as in TOML, such as limits.max_concurrency=2. What would need trust in
                                the file needs it here too
          --model <NAME>        Use another model in place of the default one: a name of [models], or
                                else what its provider calls it
          --plan <FILE>         A file of tasks that are added to the run, behind the approval of a
                                person
          --dry-run             Print what would run, in which order, with which models and effects, and
                                what could stop it. Nothing is started or written, and no model is
                                called
          --json                Print events as JSON, one a line
          --plain               Draw no status area and print no lines of commands while they run
          --keep-going          Continue with tasks that do not depend on a failed one
          --strict              End with exit code 8 if anything was left undone: a call was denied, the
                                outcome of a call is unknown, a result was cut, a limit refused a call,
                                or a child agent or an item failed
          --sandbox <MODE>      The files that commands can write, whatever the configuration says:
                                `read-only`, `workspace-write`, or `danger-full-access` for no sandbox
                                [possible values: read-only, workspace-write, danger-full-access]
          --reuse               Reuse results that the newest run of this workflow made from the same
                                prompt, agents, models, tools and inputs
      -d, --detach              Run without this terminal: print the id of the run as soon as it has
                                begun, and return
          --trust               Trust what the configuration wants beyond its directory: keys sent to
                                other addresses, files outside, a loosened sandbox. It is remembered for
                                this content of the file
          --also                Start it even if a run of this file is running in this folder
          --run-id <ID>         The id of the new run, a UUID
      -h, --help                Print help
      -V, --version             Print version

    Limits:
          --max-cost <USD>   The most money in US dollars; 0 allows nothing
          --max-tokens <N>   The most tokens, input and output
          --max-calls <N>    The most requests to models
          --max-time <TIME>  The most time for which the run is open, like 90m

    Everywhere:
          --state-dir <DIR>  The folder of the run directories [default: .transcripts beside the
                             configuration; env: CALLSHEET_STATE_DIR]
      -v, --verbose...       Print more on stderr: every event of a run, and more of the program's log
                             (-vv for all of it)
          --utc              Print times in UTC instead of the time zone of this machine

    Examples:
      callsheet run                                   # everything in agents.toml
      callsheet run --dry-run                         # what that would do
      callsheet run write --input path=scripts --set limits.max_concurrency=2
      callsheet run --profile live -d                 # a real model, without this terminal
    ");
}

#[test]
fn a_second_run_beside_one_at_work_is_named_and_refused_where_the_file_says_so() {
    let desk = Desk::commands("[tasks.long]\nrun = 'test -e go || { touch begun; sleep 60; }'\n");
    let live = desk.start(&["run"]);
    wait("its command", || desk.path().join("begun").exists().then_some(()));
    desk.write("go", "");
    // Scripts go on working, and read of it.
    let second = desk.call(&["run"]);
    assert_eq!(second.code, 0, "{}", second.err);
    assert!(second.err.contains("`desk` is already running: run "), "{}", second.err);
    assert!(!desk.call(&["run", "--also"]).err.contains("already running"));
    let text = desk.read("agents.toml");
    desk.write("agents.toml", &format!("{text}[limits]\none_at_a_time = true\n"));
    let refused = desk.call(&["run"]);
    assert_eq!(refused.code, 75, "{}", refused.err);
    assert!(refused.err.contains("`--also` starts another one"), "{}", refused.err);
    assert_eq!(desk.call(&["run", "--also"]).code, 0);
    drop(live);
    assert_eq!(desk.call(&["run"]).code, 0, "nothing is at work any more");
}

#[test]
fn of_runs_that_start_at_once_one_works_where_the_file_wants_one() {
    let desk = Desk::commands(
        "[limits]\none_at_a_time = true\n\
         [tasks.one]\nrun = 'echo x >> ran; until test -e go; do sleep 0.05; done'\n",
    );
    let mut started: Vec<_> = (0..5).map(|_| desk.start(&["run"])).collect();
    wait("all but one to be refused", || {
        (started.iter_mut().filter_map(|live| live.has_ended().then_some(())).count() == 4)
            .then_some(())
    });
    wait("the command of the one", || desk.path().join("ran").exists().then_some(()));
    desk.write("go", "");
    let mut codes: Vec<_> = started.into_iter().map(|live| live.end().code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 75, 75, 75, 75]);
    assert_eq!(desk.read("ran"), "x\n");
    // Nothing is left behind that would keep the next one out, also a detached one.
    desk.good(&["run", "-d"]);
}

#[test]
fn show_tells_what_a_command_was_given() {
    let desk = Desk::commands(
        "[secrets]\nkey = { env = 'SHOWN_KEY' }\n[sandbox]\nenv = ['SHOWN_KEY']\n\
         [inputs.base]\ndefault = 'main'\n\
         [tasks.first]\nrun = 'printf %s \"$SHOWN_KEY\"'\n\
         [tasks.one]\nrun = 'true'\ncwd = 'sub'\ndepends_on = ['first']\n\
         env = { KEY = '{{ tasks.first.output }}', LEVEL = '3' }\n",
    );
    std::fs::create_dir(desk.path().join("sub")).expect("a folder");
    // The name looks like that of a credential.
    let mut command = desk.command(&["run", "--trust"]);
    let done = Done::of(command.env("SHOWN_KEY", "very-secret-value-1188").env("EDITOR", "none"));
    assert_eq!(done.code, 0, "{}", done.err);
    // From the records, whatever the file says by then.
    desk.write("agents.toml", &desk.read("agents.toml").replace("LEVEL = '3'", "LEVEL = '4'"));
    let shown = desk.good(&["show", "/one"]);
    let root = desk.path().canonicalize().expect("a path");
    for wanted in [
        "shell: /bin/sh -c\n".to_owned(),
        format!("folder: {}\n", root.join("sub").display()),
        "  LEVEL=3\n".to_owned(),
        "  INPUT_BASE=main\n".to_owned(),
        "  KEY=".to_owned(),
    ] {
        assert!(shown.contains(&wanted), "{wanted}: {shown}");
    }
    assert!(!shown.contains("very-secret"), "{shown}");
    let all = shown.lines().find(|line| line.starts_with("variables of all commands: "));
    let all: Vec<_> = all.expect("a line").split(' ').collect();
    assert!(all.contains(&"PATH") && all.contains(&"SHOWN_KEY"), "{all:?}");
    assert!(!all.contains(&"EDITOR"), "{all:?}");
    let command = &desk.json(&["show", "/one", "--json"])[0]["command"];
    assert_eq!(command["cwd"], "sub");
    assert_eq!(command["env"]["LEVEL"], "3");
    assert_eq!(command["shell"], serde_json::json!(["/bin/sh", "-c"]));
    assert!(command["env_of_all"].as_array().is_some_and(|names| names.contains(&"PATH".into())));
}

#[test]
fn verbs_of_other_programs_are_known_or_lead_on() {
    let (desk, _) = ran(0);
    assert_eq!(desk.good(&["status", "-a"]), desk.good(&["ps", "-a"]));
    assert_eq!(desk.good(&["logs"]), desk.good(&["tail"]));
    for (verb, says) in [
        ("retry", "callsheet resume RUN --retry-failed"),
        ("stop", "callsheet cancel RUN"),
        ("continue", "callsheet resume RUN"),
        ("list", "callsheet ps -a"),
        ("validate", "callsheet check"),
        ("dry-run", "callsheet run --dry-run"),
        ("exec", "callsheet run"),
        ("rnu", "did you mean `run`?"),
    ] {
        let refused = desk.call(&[verb]);
        assert_eq!(refused.code, 2, "{verb}: {}", refused.err);
        assert!(refused.err.contains(says) && !refused.err.contains("similar"), "{}", refused.err);
    }
    // One that nobody knows gets the advice of the parser.
    assert!(desk.call(&["shwo"]).err.contains("similar"));
}
