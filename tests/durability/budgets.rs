//! Budgets over a real provider: nothing is spent beyond a limit, a pause is raised from another terminal, an agent that
//! ends hands over, and what a killed process may have spent stays on the bill.
//!
//! The provider bills every request that it receives. callsheet sees only what it reports.

use callsheet::message::Usage;
use serde_json::{Value, json};

use crate::support::answer::Answer;
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, lines, wait};
use crate::support::provider::Provider;

/// What the provider bills: a token for four bytes of the request, and ten of output.
fn usage(asked: &Asked) -> Usage {
    Usage { input: asked.body.len() as u64 / 4, output: 10, cache_read: 0, cache_write: 0 }
}

fn desk(provider: &Provider, rest: &str) -> Desk {
    let desk = Desk::empty();
    let url = provider.url_for(Wire::Anthropic);
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = \"desk\"\n[permissions]\nallow = [\"bash\", \"delegate\"]\n\
             [providers.main]\nkind = \"anthropic\"\nbase_url = \"{url}\"\n\
             [models.main]\nprovider = \"main\"\nmodel = \"m\"\nmax_output_tokens = 1000\n\
             cost_per_mtok = {{ input = 100.0, output = 200.0 }}\n\
             [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"bash\"]\n{rest}"
        ),
    );
    desk
}

/// Appends a line to a file in each of so many turns, and is done then.
async fn appender(turns: usize) -> Provider {
    let answer = move |asked: &Asked| {
        let done = asked.messages().len() / 2;
        let step = || json!({"command": format!("echo {done} >> effects")});
        let answer =
            if done >= turns { Answer::text("done") } else { Answer::tool("bash", step()) };
        answer.costing(usage(asked))
    };
    Provider::start(answer).await
}

/// What the provider bills for all that it received, at the prices of [`desk`].
fn bill(provider: &Provider) -> f64 {
    let requests = provider.requests();
    requests.iter().map(usage).map(|u| u.input as f64 * 1e-4 + u.output as f64 * 2e-4).sum()
}

fn pending(desk: &Desk) -> Vec<Value> {
    desk.json(&["pending", "--json"])
}

fn spent(desk: &Desk) -> (f64, f64) {
    let rows = desk.json(&["cost", "--json"]);
    let own = |key: &str| rows.iter().filter_map(|row| row["own"][key].as_f64()).sum();
    (own("cost_usd"), own("unsettled_usd"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_is_used_up_is_raised_and_no_effect_happens_twice() {
    let provider = appender(30).await;
    let desk = desk(
        &provider,
        "[budget]\nmax_cost = 3.0\n[tasks.one]\nagent = \"worker\"\nprompt = \"Go.\"\n",
    );
    let paused = desk.call(&["run"]);
    assert_eq!(paused.code, 6, "{}", paused.err);
    assert!(paused.err.contains("the run may cost $3.0000"), "{}", paused.err);
    assert!(bill(&provider) <= 3.0 && provider.count() > 3, "{}", provider.count());
    let rows = pending(&desk);
    assert_eq!((rows.len(), &rows[0]["kind"]), (1, &json!("budget")), "{rows:?}");
    let text = desk.good(&["pending"]);
    assert!(text.contains("callsheet budget") && text.contains("--max-cost USD"), "{text}");

    // The chain ends at the budget, and every verb says so.
    let why = &desk.json(&["why", "desk/one", "--json"])[0];
    let link = &why["chain"][0];
    assert_eq!(
        (&link["relation"], &link["scope"]),
        (&json!("waits_for_budget"), &json!("/")),
        "{why}"
    );
    assert_eq!(
        (&link["message"], &link["most_by"]),
        (&rows[0]["message"], &json!(["one"])),
        "{why}"
    );
    assert_eq!(link["since"]["time"], rows[0]["since"], "{why}");
    assert_eq!(why["ends_when"], "the budget is raised");
    let command = why["command"].as_str().expect("a command");
    assert!(text.contains(&format!("> {command}\n")), "{command} in {text}");
    let shown = desk.json(&["ps", "--json"]);
    assert!(shown.iter().any(|row| row["waiting_for"] == "the budget of the run"), "{shown:?}");

    // Nobody raised it: it is used up still.
    let calls = provider.count();
    assert_eq!((desk.call(&["resume"]).code, provider.count()), (6, calls));
    let run = desk.runs()[0].file_name().expect("a name").to_string_lossy().into_owned();
    desk.good(&["budget", &run, "--max-cost", "3.1"]);
    // The newest limits count.
    desk.good(&["budget", &run, "--max-cost", "90"]);
    assert!(pending(&desk).is_empty(), "it is raised");
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let effects: Vec<_> = desk.read("effects").lines().map(str::to_owned).collect();
    let wanted: Vec<_> = (0..30).map(|n| n.to_string()).collect();
    assert_eq!(effects, wanted);
    let (settled, unsettled) = spent(&desk);
    assert!((settled - bill(&provider)).abs() < 1e-6 && unsettled < 1e-9, "{settled} {unsettled}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_run_goes_on_when_another_terminal_raises_its_budget() {
    let provider = appender(12).await;
    let desk = desk(
        &provider,
        "[tasks.one]\nagent = \"worker\"\nprompt = \"Go.\"\n[tasks.one.budget]\nmax_calls = 5\n",
    );
    desk.good(&["run", "-d"]);
    let row = wait("the pause", || pending(&desk).pop());
    assert_eq!((&row["kind"], &row["task"]), (&json!("budget"), &json!("one")));
    assert_eq!(provider.count(), 5);
    let shown = desk.good(&["budget", "/one"]);
    assert!(shown.contains("5 calls") && shown.contains("used up"), "{shown}");
    desk.good(&["budget", "/one", "--max-calls", "13"]);
    desk.wait_for_event("run.completed", |event| event["data"]["status"] == "completed");
    assert_eq!(provider.count(), 13);
    let unknown = desk.call(&["budget", "/nobody", "--max-calls", "13"]);
    assert_eq!(unknown.code, 1, "{}", unknown.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boss_that_delegates_without_end_hands_over_within_its_budget() {
    // The boss asks for the same eight children in every turn; each child reads and answers.
    let answer = |asked: &Asked| {
        let text = String::from_utf8_lossy(&asked.body).into_owned();
        let answer = if asked.tools().is_empty() || text.contains("No tool can be called") {
            Answer::text("Half of it is done.")
        } else if asked.tools().iter().any(|tool| tool == "delegate") {
            let job = |n: u32| json!({"agent": "worker", "prompt": format!("Look at {n}.")});
            (1..8).fold(Answer::tool("delegate", job(0)), |answer, n| {
                answer.and_tool("delegate", job(n))
            })
        } else if asked.messages().len() < 5 {
            Answer::tool("bash", json!({"command": "true"}))
        } else {
            Answer::text("Nothing new.")
        };
        answer.costing(usage(asked))
    };
    let provider = Provider::start(answer).await;
    let desk = desk(
        &provider,
        "[agents.boss]\nmodel = \"main\"\ninstructions = \"Lead.\"\nsub_agents = [\"worker\"]\n\
         [budget]\nmax_cost = 40.0\non_exceed = \"stop\"\n[loops]\nenabled = false\n\
         [limits]\nmax_spawn_rate = \"1000/1s\"\n\
         [tasks.one]\nagent = \"boss\"\nprompt = \"Go.\"\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 4, "{}", done.err);
    assert!(bill(&provider) <= 40.0 && provider.count() > 20, "{} calls", provider.count());
    let last = provider.requests().pop().expect("a request");
    let said = String::from_utf8_lossy(&last.body).into_owned();
    assert!(said.contains("No tool can be called any more") && said.contains("may cost"), "{said}");
    let run = desk.runs().pop().expect("a run");
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    let events = lines(&journal);
    let failed = events.iter().find(|event| event["type"] == "task.failed").expect("it failed");
    assert_eq!(failed["data"]["failure"]["kind"], "budget");
    let ended = events.iter().rfind(|event| event["type"] == "agent.ended").expect("it ended");
    assert!(ended.to_string().contains("Half of it is done."), "{ended}");
    let exceeded = events.iter().filter(|event| event["type"] == "budget.exceeded").count();
    assert_eq!(exceeded, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_limits_what_its_child_may_spend() {
    // The boss gives one child three calls and another one none; a child works as long as it may.
    let answer = |asked: &Asked| {
        let text = String::from_utf8_lossy(&asked.body).into_owned();
        let job = |budget: Value| json!({"agent": "worker", "prompt": "Look.", "budget": budget});
        let is_boss = text.contains("Lead.");
        let answer = match (is_boss, asked.messages().len()) {
            (true, 1) => Answer::tool("delegate", job(json!({"max_calls": 3})))
                .and_tool("delegate", job(json!({"max_calls": 0}))),
            (true, _) => Answer::text("done"),
            (false, _) if text.contains("No tool can be called") => Answer::text("Half of it."),
            (false, turn) => Answer::tool("bash", json!({"command": format!("echo {turn}")})),
        };
        answer.costing(usage(asked))
    };
    let provider = Provider::start(answer).await;
    let desk = desk(
        &provider,
        "[agents.boss]\nmodel = \"main\"\ninstructions = \"Lead.\"\nsub_agents = [\"worker\"]\n\
         [tasks.one]\nagent = \"boss\"\nprompt = \"Go.\"\n",
    );
    desk.good(&["run"]);
    // Two of the boss, and three of the child, of which the last is its hand-over.
    let last = provider.requests().pop().expect("a request");
    let said = String::from_utf8_lossy(&last.body).into_owned();
    assert_eq!(provider.count(), 5, "{said}");
    assert!(said.contains("Half of it.") && said.contains("3 calls"), "{said}");
    assert!(said.contains("`budget.max_calls` must be above 0"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hook_of_a_budget_is_told_once_of_each_share_and_of_its_end() {
    let provider = appender(60).await;
    let desk = desk(
        &provider,
        "[hooks]\non_budget = [\"sh\", \"note.sh\"]\n\
         [tasks.one]\nagent = \"worker\"\nprompt = \"Go.\"\n\
         [tasks.one.budget]\nmax_calls = 10\nwarn_at = [0.5]\n",
    );
    desk.write("note.sh", "cat >> .told; echo >> .told\n");
    // The process dies once the share is told.
    let mut live = desk.start(&["run"]);
    let told = || std::fs::read_to_string(desk.path().join(".told")).unwrap_or_default();
    wait("the warning", || (live.has_ended() || told().ends_with('\n')).then_some(()));
    live.signal("KILL");
    live.end();
    let calls = |told: &str| -> Vec<(Value, Value)> {
        let told = lines(told);
        told.iter().map(|t| (t["budget"]["state"].clone(), t["budget"]["share"].clone())).collect()
    };
    for _ in 0..2 {
        assert_eq!(desk.call(&["resume"]).code, 6);
    }
    let warned = (json!("warned"), json!(0.5));
    assert_eq!(calls(&told()), [warned.clone(), (json!("paused"), Value::Null)]);
    let last = lines(&told()).pop().expect("one");
    assert_eq!(last["hook_event_name"], "OnBudget");
    let budget = &last["budget"];
    assert_eq!((&budget["scope"], &budget["of"]), (&json!("/one"), &json!("task `one`")));
    assert_eq!((&budget["measure"], &budget["limits"]["max_calls"]), (&json!("calls"), &json!(10)));
    assert!(budget["settled"]["cost_usd"].as_f64().expect("a cost") > 0.0, "{budget}");
    assert_eq!(budget["message"], pending(&desk)[0]["message"]);
    // A limit that a person sets is another one.
    let run = desk.runs()[0].file_name().expect("a name").to_string_lossy().into_owned();
    desk.good(&["budget", &format!("{run}/one"), "--max-calls", "14"]);
    assert_eq!(desk.call(&["resume"]).code, 6);
    let ends: Vec<_> = calls(&told()).into_iter().filter(|(state, _)| state == "paused").collect();
    assert_eq!((ends.len(), calls(&told()).len()), (2, 4), "{}", told());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_nothing_can_pay_is_not_started() {
    let answer = |asked: &Asked| {
        let job = || json!({"agent": "dear", "prompt": "Look."});
        let answer = match asked.messages().len() {
            1 => Answer::tool("delegate", job()),
            _ => Answer::text("I did it myself."),
        };
        answer.costing(usage(asked))
    };
    let provider = Provider::start(answer).await;
    let desk = desk(
        &provider,
        "[models.dear]\nprovider = \"main\"\nmodel = \"d\"\nmax_output_tokens = 1000\n\
         cost_per_mtok = { input = 100000.0, output = 200000.0 }\n\
         [agents.dear]\nmodel = \"dear\"\ninstructions = \"Work.\"\n\
         [agents.boss]\nmodel = \"main\"\ninstructions = \"Lead.\"\nsub_agents = [\"dear\"]\n\
         [budget]\nmax_cost = 20.0\n[tasks.one]\nagent = \"boss\"\nprompt = \"Go.\"\n",
    );
    assert_eq!(desk.call(&["run"]).code, 0);
    let requests = provider.requests();
    assert_eq!(requests.len(), 2, "both are the boss's");
    // What a provider has in its cache stays as it is.
    assert_eq!(requests[0].tools(), requests[1].tools());
    assert!(requests[0].tools().iter().any(|tool| tool == "delegate"));
    let said = String::from_utf8_lossy(&requests[1].body).into_owned();
    let told = "left of its budget, and one call of `dear` may take $";
    // The run may hear of what the boss's own turn cost just after its call.
    let left = ["the run has $19.", "the run has $20.0000 "].iter().any(|left| said.contains(left));
    assert!(left && said.contains(told), "{said}");
    assert_eq!(desk.good(&["show", "/one", "--output"]).trim(), "I did it myself.");
    let cost = desk.json(&["cost", "--by", "agent", "--json"]);
    assert_eq!(cost.len(), 1, "{cost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_killed_processes_may_have_spent_counts() {
    // No answer ever comes, so each process dies in a call of which nobody knows what it cost.
    let provider = Provider::start(|asked: &Asked| {
        let pause = std::time::Duration::from_millis(20);
        Answer::text("word ".repeat(100_000)).paced(4, pause).costing(usage(asked))
    })
    .await;
    let desk = desk(
        &provider,
        "[budget]\nmax_cost = 1.5\n[tasks.one]\nagent = \"worker\"\nprompt = \"Go.\"\n",
    );
    let mut kills = 0;
    let end = loop {
        let calls = provider.count();
        let mut live = desk.start(&[if kills == 0 { "run" } else { "resume" }]);
        let is_asked = wait("a request or the end", || {
            if live.has_ended() { Some(false) } else { (provider.count() > calls).then_some(true) }
        });
        if !is_asked {
            break live.end();
        }
        kills += 1;
        assert!(kills < 20, "the budget is never used up");
        live.signal("KILL");
        wait("the end", || live.has_ended().then_some(()));
    };
    assert_eq!(end.code, 6, "{}", end.err);
    let (settled, unsettled) = spent(&desk);
    assert!(
        settled <= bill(&provider) && bill(&provider) <= settled + unsettled,
        "{settled} {unsettled}"
    );
    assert!(settled + unsettled <= 1.5 && kills >= 2, "{settled} {unsettled} {kills}");
}
