//! `why`, and what `ps`, `show`, `pending` and `resume --explain` say of the same.

use serde_json::Value;

use crate::support::desk::{Desk, wait};

/// `fix` has the lock until the file `go` is there; `review` waits for it, and `report` for `review`. Both have as many
/// tasks behind them, so the one that is written first gets the lock first.
const LOCKED: &str = r#"
[tasks.fix]
run = "until [ -e go ]; do sleep 0.02; done"
locks = ["repo"]
[tasks.review]
run = "true"
locks = ["repo"]
[tasks.report]
run = "true"
depends_on = ["review"]
[tasks.publish]
run = "true"
depends_on = ["fix"]
"#;

/// Starts the run, and returns once a task has the lock and the other one waits.
fn locked(desk: &Desk) -> crate::support::desk::Live {
    let run = desk.start(&["run"]);
    wait("a wait for the lock", || {
        // The run may have no records yet.
        let said = desk.call(&["why", "desk/review", "--json"]);
        let document: Value = serde_json::from_str(said.out.trim()).ok()?;
        (document["chain"][1]["relation"] == "in_tool").then_some(())
    });
    run
}

fn relations(document: &Value) -> Vec<&str> {
    let chain = document["chain"].as_array().expect("a list").iter();
    chain.map(|link| link["relation"].as_str().expect("a name")).collect()
}

#[test]
fn a_wait_for_a_lock_names_its_holder_everywhere() {
    let desk = Desk::commands(LOCKED);
    let run = locked(&desk);
    let document = &desk.json(&["why", "desk/report", "--json"])[0];
    assert_eq!(relations(document), ["waits_for_dependency", "waits_for_lock", "in_tool"]);
    assert_eq!(document["chain"][1]["lock"], "repo");
    assert_eq!(document["chain"][1]["holder"], "fix");
    assert_eq!(document["live"], true);
    assert!(document["command"].as_str().is_some_and(|c| c.starts_with("callsheet cancel ")));
    let text = desk.good(&["why", "desk/report"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("report  waits for task review, since "), "{text}");
    assert!(lines[1].starts_with("review  waits for lock repo, held by fix, since "), "{text}");
    assert!(lines[2].starts_with("@fix    runs "), "{text}");
    assert!(lines[3].starts_with("ends when: the tool ends (by the tool); 0 of 4 tasks"), "{text}");
    // The others say the same.
    let held = "lock repo, held by fix";
    let rows = desk.json(&["ps", "--json"]);
    let row = rows.iter().find(|row| row["name"] == "review").expect("its row");
    assert_eq!(row["waiting_for"], held);
    assert!(desk.good(&["show", "desk/review"]).contains(&format!("waits for {held}\n")));
    assert_eq!(desk.json(&["show", "desk/review", "--json"])[0]["waiting_for"], held);
    assert!(desk.good(&["show", "desk"]).contains(held));
    assert!(desk.good(&["report"]).contains(held));
    let forecasts = desk.json(&["resume", "--explain", "--json"]);
    let forecast = forecasts.iter().find(|one| one["task"] == "review").expect("its forecast");
    assert_eq!(forecast["waiting_for"], held);
    desk.write("go", "");
    assert_eq!(run.end().code, 0);
    let text = desk.good(&["why", "desk/review"]);
    assert_eq!(text, "review is completed: nothing holds it up\n");
}

#[test]
fn the_past_is_answered_and_so_is_a_run_without_a_process() {
    let desk = Desk::commands(LOCKED);
    let run = locked(&desk);
    let at = desk.json(&["why", "desk/review", "--json"])[0]["at"]["seq"].to_string();
    run.signal("KILL");
    assert_ne!(run.end().code, 0);
    let document = &desk.json(&["why", "desk/report", "--json"])[0];
    assert_eq!(relations(document), ["no_process_drives"]);
    assert_eq!(document["live"], false);
    assert_eq!(document["ends_when"], "the run is resumed");
    assert!(document["command"].as_str().is_some_and(|c| c.starts_with("callsheet resume ")));
    let text = desk.good(&["why"]);
    assert!(text.starts_with("the run  stands still: no process drives the run (pid "), "{text}");
    desk.write("go", "");
    desk.good(&["resume"]);
    // As of that record it waited, whatever came later.
    let document = &desk.json(&["why", "desk/report", "--at", &at, "--json"])[0];
    assert_eq!(relations(document)[..2], ["waits_for_dependency", "waits_for_lock"]);
    assert_eq!((&document["command"], document["at"]["seq"].to_string()), (&Value::Null, at));
    let done = desk.call(&["why", "--at", "2000-01-01T00:00:00Z"]);
    assert_eq!((done.code, done.err.contains("no records yet")), (1, true), "{}", done.err);
}

#[test]
fn a_failure_leads_to_the_record_that_made_it_inevitable() {
    let desk = Desk::commands(
        "[tasks.build]\nrun = 'exit 3'\n[tasks.test]\nrun = 'true'\ndepends_on = ['build']\n\
         [tasks.ship]\nrun = 'true'\ndepends_on = ['test']\nwhen = '1 > 2'\n",
    );
    assert_eq!(desk.call(&["run", "--keep-going"]).code, 1);
    let document = &desk.json(&["why", "desk/test", "--json"])[0];
    let wanted = ["blocked_by_failure", "failed_because", "failed_because"];
    assert_eq!(relations(document), wanted);
    let seq = |at: usize| document["chain"][at]["since"]["seq"].as_u64().expect("a number");
    assert!(seq(2) < seq(1) && seq(1) < seq(0), "{document}");
    let command = document["command"].as_str().expect("a command");
    assert!(command.ends_with("--retry-failed test"), "{command}");
    let document = &desk.json(&["why", "--json"])[0];
    assert_eq!(relations(document)[0], "blocked_by_failure");
}

#[test]
fn a_question_is_the_root_and_the_command_answers_it() {
    let desk = Desk::commands(
        "[tasks.gate]\napproval = { message = 'Publish?' }\n\
         [tasks.publish]\nrun = 'true'\ndepends_on = ['gate']\n",
    );
    assert_eq!(desk.call(&["run"]).code, 6);
    let document = &desk.json(&["why", "desk/publish", "--json"])[0];
    assert_eq!(relations(document), ["waits_for_dependency", "waits_for_person"]);
    let pending = &desk.json(&["pending", "--json"])[0];
    assert_eq!(document["chain"][1]["id"], pending["id"]);
    assert_eq!(document["chain"][1]["message"], pending["message"]);
    assert_eq!(document["chain"][1]["since"]["time"], pending["since"]);
    let command = document["command"].as_str().expect("a command").to_owned();
    let arguments: Vec<_> = command.split(' ').skip(1).collect();
    desk.good(&arguments);
    desk.good(&["resume"]);
    assert_eq!(desk.good(&["why"]), "the run is completed: nothing holds it up\n");
}

#[test]
fn the_bill_of_a_subtree_names_its_dearest_items() {
    let team = r#"
[agents.lead]
model = "default"
instructions = "x"
sub_agents = ["hand"]
[agents.hand]
model = "default"
instructions = "x"
[tasks.one]
agent = "lead"
prompt = "go"
"#;
    let script = r#"
[[rules]]
agent = "lead"
turn = 1
[[rules.calls]]
tool = "delegate"
input = { agent = "hand", prompt = "help" }
[[rules]]
say = "done"
"#;
    let priced = format!("{team}\n[models.default.cost_per_mtok]\ninput = 3.0\noutput = 15.0\n");
    let desk = Desk::offline(&priced, script);
    desk.good(&["run"]);
    let document = &desk.json(&["why", "desk/one", "--cost", "--json"])[0];
    let items = document["bill"].as_array().expect("a list");
    let cost: f64 = items.iter().filter_map(|item| item["cost_usd"].as_f64()).sum();
    let rows = desk.json(&["cost", "--by", "task", "--json"]);
    let whole = rows[0]["inclusive"]["cost_usd"].as_f64().expect("a price");
    assert!((cost - whole).abs() < 1e-9 && cost > 0.0, "{cost} {whole}");
    assert_eq!(items.len(), 2, "{document}");
    let text = desk.good(&["why", "desk/one", "--cost"]);
    assert!(text.starts_with("one spent $"), "{text}");
    assert!(text.contains("@one: 2 calls, answered"), "{text}");
}

#[test]
fn a_time_that_is_none_is_wrong_usage() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    desk.good(&["run"]);
    let done = desk.call(&["why", "--at", "yesterday"]);
    assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
    assert_eq!(desk.call(&["why", "--at", "9999"]).code, 1);
    assert_eq!(desk.call(&["why", "desk/nosuch"]).code, 1);
    assert_eq!(desk.call(&["why", "desk/@nosuch"]).code, 1);
}
