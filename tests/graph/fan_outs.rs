//! Graphs through the program: fan-outs, their instances in every verb, cleanup.

use serde_json::{Value, json};

use crate::support::desk::{Desk, wait};

/// A list from a command, an agent for each item, and a task that reads all outputs.
const REVIEW: &str = r#"
[agents.reviewer]
[tasks.files]
run = 'cat list.json'
output = "json"
[tasks.review]
agent = "reviewer"
depends_on = ["files"]
foreach = "tasks.files.output"
foreach_as = "file"
max_concurrency = 2
prompt = "Review {{ file }} as {{ instance.index }}, {{ instance.key }}."
[tasks.report]
depends_on = ["review"]
run = 'printf "%s" "$ALL"'
env = { ALL = "{% for r in tasks.review.outputs %}{{ r.index }} {{ r.key }} {{ r.state }} {{ r.output }}|{% endfor %}" }
"#;

const ECHO: &str = "[[rules]]\nsay = \"{{ prompt }}\"";

#[test]
fn each_item_of_a_list_gets_a_task_of_its_own() {
    let desk = Desk::offline(REVIEW, ECHO);
    desk.write("list.json", r#"["src/b.rs", "src/a.rs", "c d"]"#);
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let report = desk.good(&["show", "desk/report", "--output"]);
    let line =
        |n: usize, file: &str| format!("{n} {file} completed Review {file} as {n}, {file}.|");
    assert_eq!(report, [line(0, "src/b.rs"), line(1, "src/a.rs"), line(2, "c d")].concat());
    let outputs: Value =
        serde_json::from_str(&desk.good(&["show", "desk/review", "--output"])).expect("JSON");
    let keys: Vec<_> = outputs.as_array().expect("a list").iter().map(|o| &o["key"]).collect();
    assert_eq!(keys, ["src/b.rs", "src/a.rs", "c d"]);
    // Every verb that takes a task or an agent takes an instance.
    let one = desk.good(&["show", "desk/review[1]", "--output"]);
    assert_eq!(one.trim_end(), "Review src/a.rs as 1, src/a.rs.");
    assert!(desk.good(&["show", "desk/@review[1]", "--transcript"]).contains("src/a.rs"));
    let tail = desk.good(&["tail", "--task", "review[2]"]);
    assert!(tail.contains("c d") && !tail.contains("src/b.rs"), "{tail}");
    let rows = desk.json(&["ps", "-a", "--json"]);
    let names: Vec<_> = rows.iter().filter(|r| r["kind"] == "task").map(|r| &r["name"]).collect();
    assert_eq!(names, ["files", "review", "review[0]", "review[1]", "review[2]", "report"]);
    assert!(done.err.contains("attempt 1, for src/a.rs\n"), "{}", done.err);
    let line = done.out.lines().find(|line| line.starts_with("review  ")).expect("a line");
    assert!(line.contains("  3 instances: 3 turns, ") && line.contains(" tokens in, "), "{line}");
    the_parent_shows_what_its_instances_used(&desk);
    // People read the keys, and may type them; programs read the numbers, and the key beside.
    for text in [&done.out, &done.err, &desk.good(&["ps", "--tree", "-a"]), &desk.good(&["cost"])] {
        assert!(text.contains("review[src/a.rs]") && !text.contains("review[1] "), "{text}");
    }
    for verb in [&["report"][..], &["cost", "--by", "agent"], &["show"], &["resume", "--explain"]] {
        let text = desk.good(verb);
        assert!(text.contains("review[c d]") || text.contains("review\\[c d\\]"), "{text}");
    }
    let one = ["show", "desk/review[src/a.rs]", "--output"];
    assert_eq!(desk.good(&one).trim_end(), "Review src/a.rs as 1, src/a.rs.");
    assert!(
        desk.good(&["show", "review[src/a.rs]"]).starts_with("task review[src/a.rs]: completed")
    );
    assert!(desk.good(&["show", "@review[src/a.rs]", "--transcript"]).contains("src/a.rs"));
    for filter in ["--task", "--agent"] {
        let tail = desk.good(&["tail", filter, "review[c d]"]);
        assert!(tail.contains("review[c d]") && !tail.contains("src/b.rs"), "{tail}");
    }
    let keys = |rows: Vec<Value>| {
        let keys =
            rows.iter().filter(|row| row["name"] == "review[1]").map(|row| row["key"].clone());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(keys(rows), ["src/a.rs", "src/a.rs"]);
    assert_eq!(keys(desk.json(&["cost", "--json"])), ["src/a.rs"]);
    let shown = desk.json(&["show", "desk", "--json"]).remove(0);
    assert_eq!(shown["tasks"]["review[1]"]["key"], "src/a.rs");
    let report = desk.json(&["report", "--format", "json"]).remove(0);
    assert_eq!(
        (&report["tasks"][3]["task"], &report["tasks"][3]["key"]),
        (&json!("review[1]"), &json!("src/a.rs"))
    );
    desk.good(&["cancel", "desk/review[src/b.rs]"]);
    let log = desk.runs()[0].join("agents/review[0].log");
    assert!(log.exists(), "{}", log.display());
    desk.good(&["cancel", "desk/review[0]"]);
}

/// The fan-out `review` calls no model itself; what its instances used counts once in every total.
fn the_parent_shows_what_its_instances_used(desk: &Desk) {
    let used = |part: &Value| {
        let usage = part.get("usage").unwrap_or(part);
        let sum = |keys: &[&str]| keys.iter().filter_map(|key| usage[*key].as_u64()).sum::<u64>();
        (sum(&["input", "cache_read", "cache_write"]), sum(&["output"]))
    };
    let costs = desk.json(&["cost", "--json"]);
    let cost = |name: &str| costs.iter().find(|row| row["name"] == name).expect("a row").clone();
    let instances = ["review[0]", "review[1]", "review[2]"].map(|name| used(&cost(name)["own"]));
    let all = instances.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(all.0 > 0 && all.1 > 0, "{costs:?}");
    let parent = cost("review");
    assert_eq!((used(&parent["own"]), used(&parent["inclusive"])), ((0, 0), all));
    let rows = desk.json(&["ps", "-a", "--json"]);
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).expect("a row").clone();
    assert_eq!((used(&row("desk")), used(&row("review"))), (all, (0, 0)));
    assert_eq!(used(&row("review")["inclusive"]), all);
    assert_eq!(row("review")["inclusive"]["turns"], 3);
    let report = desk.json(&["report", "--format", "json"]).remove(0);
    assert_eq!((used(&report), used(&report["tasks"][1]["inclusive"])), (all, all));
    let tree = desk.good(&["ps", "-a", "--tree"]);
    let line = tree.lines().find(|line| line.trim().starts_with("review ")).expect("a line");
    let cells: Vec<_> = line.split_whitespace().collect();
    assert_eq!(cells[..5], ["review", "completed", "3", &all.0.to_string(), &all.1.to_string()]);
    let text = desk.good(&["cost"]);
    let total = text.lines().find(|line| line.starts_with("total")).expect("a total");
    assert_eq!(total.split_whitespace().nth(1), Some(&*all.0.to_string()), "{text}");
    assert!(desk.good(&["report"]).contains("its instances used 3 turns, "));
}

#[test]
fn only_failed_instances_begin_again_and_reordered_items_keep_their_results() {
    let desk = Desk::commands(
        "[tasks.list]\nrun = 'cat list.json'\noutput = 'json'\n\
         [tasks.work]\ndepends_on = ['list']\nforeach = 'tasks.list.output'\n\
         run = 'echo $ITEM >> starts; test $ITEM != b || test -e mended || exit 1; echo done $ITEM'\n\
         env = { ITEM = '{{ item }}' }\nretry = { max_attempts = 2, initial_interval = '1ms' }\n\
         [tasks.after]\ndepends_on = ['work']\nrun = 'echo after >> starts'\n",
    );
    desk.write("list.json", r#"["a", "b", "c"]"#);
    let starts = || {
        let mut all: Vec<_> = desk.read("starts").lines().map(str::to_owned).collect();
        std::fs::remove_file(desk.path().join("starts")).expect("removed");
        all.sort();
        all.join(" ")
    };
    let failed = desk.call(&["run"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let says = "instances_failed: 1 of 3 instances failed: `b`: command_failed";
    assert!(failed.out.contains(says) || failed.err.contains(says), "{}{}", failed.out, failed.err);
    assert_eq!(starts(), "a b b c");
    desk.write("mended", "");
    let explained = desk.good(&["resume", "--explain", "--retry-failed"]);
    assert!(explained.contains("work[b]"), "{explained}");
    let show = failed.out.lines().find_map(|line| line.strip_prefix("what failed:"));
    assert!(show.is_some_and(|line| line.trim_end().ends_with("/work[b]'")), "{}", failed.out);
    desk.good(&["resume", "--retry-failed", "work[b]"]);
    assert_eq!(starts(), "after b");
    // The command that makes the list is changed, so it runs again and gives another order.
    desk.write("list.json", r#"["c", "d", "a", "b"]"#);
    let file = desk.read("agents.toml").replace("cat list.json", "cat ./list.json");
    desk.write("agents.toml", &file);
    desk.good(&["resume", "--accept-changes"]);
    // What waits for all items runs again too: one of them is new.
    assert_eq!(starts(), "after d");
    let outputs: Value =
        serde_json::from_str(&desk.good(&["show", "desk/work", "--output"])).expect("JSON");
    let outputs = outputs.as_array().expect("a list");
    let all: Vec<_> = outputs.iter().map(|o| (o["key"].clone(), o["output"].clone())).collect();
    let done = |key: &str| (json!(key), json!(format!("done {key}")));
    assert_eq!(all, ["c", "d", "a", "b"].map(done));
}

#[test]
fn the_outputs_of_a_fan_out_that_failed_name_each_item_also_after_a_resume() {
    let outputs = "env = { ALL = '{{ tasks.work.outputs }}' }\nrun = 'printf %s \"$ALL\"'\n\
                   join = 'all_done'\n";
    let desk = Desk::commands(&format!(
        "[tasks.work]\nforeach = \"['a', 'b']\"\nenv = {{ ITEM = '{{{{ item }}}}' }}\n\
         run = 'printf %s $ITEM; test $ITEM != b'\non_failure = 'continue'\n\
         [tasks.now]\ndepends_on = ['work']\n{outputs}\
         [tasks.gate]\napproval = {{ message = 'Go on?' }}\n\
         [tasks.later]\ndepends_on = ['work', 'gate']\n{outputs}\
         [tasks.never]\nwhen = 'false'\nforeach = '[1]'\nrun = 'true'\n\
         [tasks.none]\ndepends_on = ['never']\nrun = 'true'\n\
         env = {{ ALL = '{{{{ tasks.never.outputs | default([]) }}}}' }}\n"
    ));
    assert_eq!(desk.call(&["run"]).code, 6);
    let question = desk.json(&["pending", "--json"]).remove(0);
    desk.good(&["approve", question["id"].as_str().expect("an id")]);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 8, "{}{}", resumed.out, resumed.err);
    for task in ["desk/now", "desk/later"] {
        let ends: Value =
            serde_json::from_str(&desk.good(&["show", task, "--output"])).expect("JSON");
        assert_eq!(
            (&ends[0], &ends[1]["key"], &ends[1]["state"], &ends[1]["output"]),
            (
                &json!({ "index": 0, "key": "a", "state": "completed", "output": "a", "partial": null, "error": null }),
                &json!("b"),
                &json!("failed"),
                &Value::Null
            ),
            "{task}"
        );
        let error = ends[1]["error"].as_str().expect("a reason");
        assert!(error.starts_with("command_failed"), "{error}");
    }
}

#[test]
fn a_cleanup_runs_after_a_cancellation_from_another_terminal() {
    let desk = Desk::commands(
        "[tasks.work]\nrun = 'touch begun; sleep 60'\n[tasks.after]\nrun = 'touch after'\n\
         depends_on = ['work']\n[tasks.clean]\nrun = 'touch cleaned'\nalways = true\n\
         depends_on = ['work', 'after']\n",
    );
    let run = desk.start(&["run"]);
    wait("the work to begin", || desk.path().join("begun").exists().then_some(()));
    desk.good(&["cancel", "desk"]);
    assert_eq!(run.end().code, 1);
    let at = |name: &str| desk.path().join(name).exists();
    assert_eq!((at("cleaned"), at("after")), (true, false));
}

#[test]
fn a_plan_of_somebody_else_waits_for_a_person_before_anything_of_it_runs() {
    let file = "[tasks.base]\nrun = 'echo base'\n";
    let desk = Desk::commands(file);
    desk.write("plan.toml", "[tasks.extra]\nrun = 'touch ran; echo {}'\ndepends_on = ['base']\n");
    assert!(desk.good(&["check", "--plan", "plan.toml"]).contains("3 tasks"));
    let waits = desk.call(&["run", "--plan", "plan.toml"]);
    assert_eq!(waits.code, 6, "{}", waits.err);
    assert!(waits.err.contains("Run 1 task (`extra`)"), "{}", waits.err);
    // The record has the plan: what the file says later does not count.
    desk.write("plan.toml", "[tasks.extra]\nrun = 'touch other'\n");
    let question = desk.json(&["pending", "--json"]).remove(0);
    assert!(question["shown"][0]["text"].as_str().expect("a text").contains("touch ran"));
    assert!(!desk.path().join("ran").exists());
    // The plan is shown once, as it is written.
    let pending = desk.good(&["pending"]);
    assert!(pending.contains("\n  |   [tasks.extra]\n") && !pending.contains("\\n"), "{pending}");
    desk.good(&["approve", question["id"].as_str().expect("an id")]);
    desk.good(&["resume"]);
    assert!(desk.path().join("ran").exists() && !desk.path().join("other").exists());
    // What is no task is refused, and the file can allow or deny plans.
    desk.write("plan.toml", "[permissions]\ndefault = 'allow'\n[tasks.extra]\nrun = 'true'\n");
    let refused = desk.call(&["run", "--plan", "plan.toml"]);
    let checked = desk.call(&["check", "--plan", "plan.toml"]);
    assert_eq!((checked.code, checked.err.lines().next()), (2, refused.err.lines().next()));
    assert!(refused.code == 2 && refused.err.contains("a plan has only tasks"), "{}", refused.err);
    desk.write("plan.toml", "[tasks.extra]\nrun = 'true'\n");
    for (verdict, code) in [("allow", 0), ("deny", 2)] {
        let text = format!("version = 1\n{file}[permissions]\nplan = '{verdict}'\n");
        desk.write("agents.toml", &text);
        assert_eq!(desk.call(&["run", "--plan", "plan.toml"]).code, code, "{verdict}");
    }
}

#[test]
fn a_fan_out_says_for_how_many_instances_it_waits() {
    let desk = Desk::commands(
        "[tasks.each]\nforeach = '[1, 2]'\nidempotent = true\n\
         run = 'until test -e go; do sleep 0.02; done'\n",
    );
    let run = desk.start(&["run"]);
    desk.wait_for_event("task.started", |event| event["task"] == "each[1]");
    let tree = desk.good(&["ps", "--tree"]);
    assert!(tree.contains("2 of 2 instances"), "{tree}");
    desk.write("go", "");
    assert_eq!(run.end().code, 0);
}
