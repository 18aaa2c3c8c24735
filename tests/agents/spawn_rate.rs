//! `limits.max_spawn_rate`: children beyond it wait, and everybody is told why.

use serde_json::{Value, json};

use crate::support::desk::{Desk, wait};

const SCRIPT: &str = r#"
[[rules]]
agent = "lead"
turn = 1
calls = [{ tool = "delegate", for_each = "range(5) | list", as = "n", input = { agent = "hand", prompt = "part {{ n }}" } }]
[[rules]]
agent = "lead"
say = "{% for result in results %}{{ '-' if result.is_error else '+' }}{% endfor %}"
[[rules]]
agent = "hand"
say = "{{ prompt }} is done"
"#;

fn desk(rate: &str) -> Desk {
    let graph = format!(
        "[limits]\nmax_spawn_rate = \"{rate}\"\n\
         [agents.lead]\nmodel = \"default\"\ninstructions = \"x\"\nsub_agents = [\"hand\"]\n\
         [agents.hand]\nmodel = \"default\"\ninstructions = \"x\"\n\
         [tasks.job]\nagent = \"lead\"\nprompt = \"go\"\n[tasks.beside]\nrun = \"touch beside\"\n"
    );
    Desk::offline(&graph, SCRIPT)
}

fn spawned(desk: &Desk) -> Vec<i64> {
    let children = desk.json(&["tail", "--json"]).into_iter().filter(|event| {
        event["type"] == "agent.spawned" && event["data"]["parent"] == json!("job")
    });
    let at = |event: &Value| {
        let text = event["ts"].as_str().expect("a time");
        text.parse::<jiff::Timestamp>().expect("a time").as_millisecond()
    };
    children.map(|event| at(&event)).collect()
}

#[test]
fn children_beyond_the_rate_wait_and_all_begin() {
    let desk = desk("2/700ms");
    desk.good(&["run"]);
    assert_eq!(desk.good(&["show", "/job", "--output"]).trim(), "+++++");
    let at = spawned(&desk);
    assert_eq!(at.len(), 5);
    for (first, third) in at.iter().zip(&at[2..]) {
        // Milliseconds are cut off.
        assert!(third - first >= 699, "{at:?}");
    }
}

#[test]
fn who_waits_for_the_rate_is_told_so_over_a_kill() {
    let desk = desk("2/1h");
    let mut live = desk.start(&["run"]);
    for _ in 0..2 {
        let chain = wait("the wait", || {
            let why = desk.call(&["why", "/@job", "--json"]);
            let why: Value = serde_json::from_str(&why.out).ok()?;
            let first = why["chain"][0].clone();
            // Until the results of those that have ended are recorded, nobody can tell them from those that wait.
            let is_told = first["relation"] == "waits_for_spawn_rate" && first["children"] == 3;
            is_told.then_some(why)
        });
        let first = &chain["chain"][0];
        assert_eq!(first["rate"], "2/1h", "{chain}");
        assert_eq!(chain["ends_when"], "another child may begin");
        let text = desk.good(&["why", "/@job"]);
        assert!(text.contains("2/1h may begin (`max_spawn_rate`), the next in 60 min"), "{text}");
        let rows = desk.json(&["ps", "--tree", "--json"]);
        let row = rows.iter().find(|row| row["kind"] == "agent" && row["name"] == "job");
        let row = row.expect("the lead");
        assert_eq!(row["waiting_for"], "the start of 3 children: 2/1h may begin", "{row}");
        // Other work is not held up, and the two that began have ended.
        wait("the other task", || desk.path().join("beside").exists().then_some(()));
        assert_eq!(spawned(&desk).len(), 2);
        live.signal("KILL");
        live.end();
        live = desk.start(&["resume"]);
    }
    // The process that was started last may be about to open its socket.
    wait("the cancel", || (desk.call(&["cancel", "desk"]).code == 0).then_some(()));
    live.end();
    let rows = desk.json(&["ps", "-a", "--json"]);
    assert!(rows.iter().any(|row| row["state"] == "cancelled"), "{rows:?}");
}
