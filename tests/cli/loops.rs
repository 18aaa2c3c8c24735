//! Agents that go in circles, in the real program: its end, its report, and a kill amid the circles.

use callsheet::message::Usage;
use serde_json::json;

use crate::support::answer::Answer;
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, lines};
use crate::support::provider::Provider;

const LOOKER: &str = r#"
[agents.a]
model = "default"
instructions = "x"
tools = ["glob"]
[tasks.one]
agent = "a"
prompt = "go"
"#;

const LOOKS: &str =
    "[[rules]]\nsay = 'again'\n[[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*.txt' }\n";

#[test]
fn fifty_equal_calls_end_after_eight() {
    let desk = Desk::offline(LOOKER, LOOKS);
    let done = desk.call(&["run", "--json"]);
    let events = lines(&done.out);
    let replies = events.iter().filter(|event| event["type"] == "model.responded").count();
    assert_eq!((done.code, replies), (4, 8), "{}", done.err);
    let error = &events.last().expect("an event")["data"]["tasks"]["one"]["error"];
    assert_eq!(error["kind"], "no_progress");
    let report = desk.good(&["report"]);
    assert!(report.contains("Went in circles"), "{report}");
    let json: serde_json::Value =
        serde_json::from_str(&desk.good(&["report", "--format", "json"])).expect("JSON");
    assert_eq!(json["circles"][0]["step"], "broken");
    assert_eq!(json["circles"][0]["rule"], "repeat");
    assert_eq!(json["circles"][0]["calls"], 4);
}

#[test]
fn a_kill_amid_the_circles_changes_nothing() {
    let slow = LOOKS.replace("say = 'again'\n", "say = 'again'\ndelay_ms = 150\n");
    let desk = Desk::offline(LOOKER, &slow);
    let live = desk.start(&["run"]);
    desk.wait_for_event("tool.finished", |event| event["data"]["turn"] == 3);
    live.signal("KILL");
    live.end();
    let done = desk.call(&["resume", "--json"]);
    assert_eq!(done.code, 4, "{}", done.err);
    let run = desk.runs().remove(0);
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    let events = lines(&journal);
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(of("model.responded"), 8);
    assert_eq!((of("loop.noticed"), of("loop.held"), of("loop.broken")), (1, 1, 1));
}

/// A boss that gives the same eight jobs in every turn to children that read one file again and again, at the prices
/// of a dear model. Returns what it cost, as the provider counts, with the place of the run.
async fn boss(rest: &str) -> (Desk, f64) {
    let usage = |asked: &Asked| Usage {
        input: asked.body.len() as u64 / 4,
        output: 60,
        ..Usage::default()
    };
    let answer = move |asked: &Asked| {
        let text = String::from_utf8_lossy(&asked.body).into_owned();
        let answer = if asked.tools().is_empty() || text.contains("No tool can be called") {
            Answer::text("Half of it is done.")
        } else if asked.tools().iter().any(|tool| tool == "delegate") {
            let job = |n: u32| json!({"agent": "worker", "prompt": format!("Look at {n}.")});
            (1..8).fold(Answer::tool("delegate", job(0)), |answer, n| {
                answer.and_tool("delegate", job(n))
            })
        } else {
            Answer::tool("read_file", json!({"path": "notes.txt"}))
        };
        answer.costing(usage(asked))
    };
    let provider = Provider::start(answer).await;
    let desk = Desk::empty();
    let url = provider.url_for(Wire::Anthropic);
    let head = format!(
        "version = 1\nname = \"desk\"\n[providers.main]\nkind = \"anthropic\"\nbase_url = \"{url}\"\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\nmax_output_tokens = 1000\n\
         cost_per_mtok = {{ input = 3.0, output = 15.0 }}\n"
    );
    let agents = "[agents.boss]\nmodel = \"main\"\ninstructions = \"Lead.\"\nsub_agents = [\"worker\"]\n\
        [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"read_file\"]\n\
        [tasks.one]\nagent = \"boss\"\nprompt = \"Go.\"\n";
    desk.write("agents.toml", &format!("{head}{agents}{rest}"));
    desk.write("notes.txt", &"a line of notes\n".repeat(44));
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 4, "{}", done.err);
    let requests = provider.requests();
    let price = |u: Usage| u.input as f64 * 3e-6 + u.output as f64 * 15e-6;
    let bill = requests.iter().map(usage).map(price).sum();
    (desk, bill)
}

fn failure_of_task(desk: &Desk) -> serde_json::Value {
    let run = desk.runs().remove(0);
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    let failed = lines(&journal).into_iter().find(|event| event["type"] == "task.failed");
    failed.expect("the task failed")["data"]["failure"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boss_that_gives_the_same_jobs_costs_less_than_five_dollars() {
    let (desk, bill) = boss("").await;
    let failure = failure_of_task(&desk);
    assert_eq!(failure["kind"], "no_progress", "{failure}");
    assert!(bill < 5.0 && bill > 0.1, "{bill}");
    let report = desk.good(&["report"]);
    assert!(report.contains("Went in circles"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boss_with_a_budget_of_a_dollar_stays_below_it_and_says_who_spent_it() {
    let budget = "[budget]\nmax_cost = 1.0\non_exceed = \"stop\"\n";
    // With both, either may end it first: eight children reserve at once what they may spend.
    let either = ["no_progress", "budget"];
    for (loops, kinds) in [("", &either[..]), ("[loops]\nenabled = false\n", &either[1..])] {
        let (desk, bill) = boss(&format!("{budget}{loops}")).await;
        let failure = failure_of_task(&desk);
        let kind = failure["kind"].as_str().expect("a kind");
        assert!(kinds.contains(&kind), "{failure}");
        assert!(bill <= 1.0 && bill > 0.1, "{kind}: {bill}");
        let rows = desk.json(&["cost", "--by", "agent", "--json"]);
        let spent = |row: &serde_json::Value| row["own"]["cost_usd"].as_f64().unwrap_or_default();
        let all: f64 = rows.iter().map(spent).sum();
        assert!((all - bill).abs() < 1e-6, "{kind}: {all} of {bill}");
        let is_child = |row: &&serde_json::Value| row["name"].as_str() != Some("one");
        let of_children: f64 = rows.iter().filter(is_child).map(spent).sum();
        assert!(rows.len() > 8 && of_children > all / 2.0, "{kind}: {rows:?}");
    }
}
