//! Children that work in the background: their parent goes on, and reads of each end once, whatever dies.
//!
//! The provider is the judge: it sees what the parent read, and how often.

use std::time::Duration;

use callsheet::message::Message;
use serde_json::{Value, json};

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, wait};
use crate::support::provider::Provider;

/// A workspace with an agent that may go on while its children work.
fn desk(provider: &Provider, other: &Provider, rest: &str) -> Desk {
    let desk = Desk::empty();
    let [url, other] = [provider, other].map(|provider| provider.url_for(Wire::Anthropic));
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = \"desk\"\n[permissions]\nallow = [\"delegate\"]\nask = [\"bash\"]\nnon_interactive = \"pause\"\n\
             [providers.main]\nkind = \"anthropic\"\nbase_url = \"{url}\"\n\
             [providers.other]\nkind = \"anthropic\"\nbase_url = \"{other}\"\n\
             [models.main]\nprovider = \"main\"\nmodel = \"m\"\ncontext_window = 400000\n\
             [models.other]\nprovider = \"other\"\nmodel = \"o\"\ncontext_window = 400000\n\
             [agents.boss]\nmodel = \"main\"\ninstructions = \"Lead.\"\nmax_turns = 100\nbackground = true\n\
             sub_agents = [\"worker\", \"limited\"]\n\
             [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"bash\"]\nmax_turns = 10\n\
             [agents.limited]\nmodel = \"other\"\ninstructions = \"Work.\"\n\
             [tasks.lead]\nagent = \"boss\"\nprompt = \"You are the boss.\"\n{rest}"
        ),
    );
    desk
}

fn is_boss(asked: &Asked) -> bool {
    asked.messages()[0].text().contains("You are the boss.")
}

/// What the parent reads in its messages, in order: the results of its children, and words of the run.
fn heard(messages: &[Message]) -> String {
    messages.iter().map(Message::text).collect()
}

/// Starts so many jobs in the background.
fn start(agent: &str, jobs: usize) -> Answer {
    (0..jobs).fold(Answer::default(), |answer, job| {
        let input = json!({"agent": agent, "prompt": format!("Job {job}."), "background": true});
        answer.and_tool("delegate", input)
    })
}

/// How often a text stands in the last request of the parent.
fn count(provider: &Provider, text: &str) -> usize {
    let requests = provider.requests();
    let last = requests.iter().rev().find(|asked| is_boss(asked)).expect("a request of the boss");
    heard(&last.messages()).matches(text).count()
}

/// The number of jobs in the trial with kills.
const JOBS: usize = 6;

/// A parent that starts jobs, waits until all have ended, and answers; children that take some time.
fn jobs(asked: &Asked) -> Answer {
    let messages = asked.messages();
    if !is_boss(asked) {
        let prompt = messages[0].text();
        let job = prompt.split("Job ").nth(1).and_then(|rest| rest.chars().next());
        let job = job.expect("the number of the job");
        let pause = Duration::from_millis(100 + 60 * u64::from(job.to_digit(10).expect("a digit")));
        return Answer::text(format!("Result {job}.")).after(pause);
    }
    let heard = heard(&messages);
    let ended = (0..JOBS).filter(|job| heard.contains(&format!("Result {job}."))).count();
    match (messages.len(), ended) {
        (1, _) => start("worker", JOBS),
        (_, JOBS) => Answer::text("all is done"),
        _ => Answer::tool("wait", json!({"all": ended > 2})),
    }
}

fn events(desk: &Desk, kind: &str) -> Vec<Value> {
    let all = desk.json(&["tail", "--json"]);
    all.into_iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_reads_each_result_once_whatever_dies() {
    for kills in [0, 12] {
        let provider = Provider::start(jobs).await;
        let desk = desk(&provider, &provider, "");
        let mut rng = fastrand::Rng::with_seed(kills);
        // A process that dies before the first record leaves a folder without a journal: the next begins anew.
        let has_begun = || {
            desk.runs().last().is_some_and(|run| {
                std::fs::read_to_string(run.join("journal.jsonl"))
                    .is_ok_and(|text| text.contains('\n'))
            })
        };
        let mut killed = 0;
        let end = loop {
            let mut live = desk.start(&[if has_begun() { "resume" } else { "run" }]);
            if killed == kills {
                break live.end_within(Duration::from_secs(60));
            }
            // From before the first record to after the last: a run takes a second.
            let moment = std::time::Instant::now() + Duration::from_millis(rng.u64(20..400));
            while std::time::Instant::now() < moment && !live.has_ended() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if live.has_ended() {
                break live.end();
            }
            live.signal("KILL");
            wait("the end", || live.has_ended().then_some(()));
            killed += 1;
        };
        assert_eq!(end.code, 0, "{}", end.err);
        for job in 0..JOBS {
            assert_eq!(count(&provider, &format!("Result {job}.")), 1, "job {job}");
        }
        assert_eq!(events(&desk, "agent.spawned").len(), JOBS + 1, "none is started twice");
        assert_eq!(desk.good(&["show", "desk/lead", "--output"]).trim(), "all is done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_given_again_by_who_knows_what_still_runs() {
    let provider = Provider::start(|asked: &Asked| {
        if !is_boss(asked) {
            return Answer::text("too late").after(Duration::from_secs(600));
        }
        let messages = asked.messages();
        match (messages.len(), heard(&messages).contains("Still working for you: @lead/worker-1")) {
            (1, _) => start("worker", 1),
            (_, false) => Answer::text("my first answer"),
            (_, true) => Answer::text("my last answer"),
        }
    })
    .await;
    let desk = desk(&provider, &provider, "");
    let end = desk.start(&["run"]).end_within(Duration::from_secs(60));
    assert_eq!(end.code, 0, "{}", end.err);
    assert_eq!(desk.good(&["show", "desk/lead", "--output"]).trim(), "my last answer");
    assert_eq!(count(&provider, "Still working for you"), 1);
    let ended = events(&desk, "agent.ended");
    let worker = ended.iter().find(|event| event["agent"] == "lead/worker-1").expect("it ended");
    assert_eq!(worker["data"]["outcome"]["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_stopped_or_looked_at_and_its_parent_goes_on() {
    let provider = Provider::start(|asked: &Asked| {
        if !is_boss(asked) {
            return Answer::text("too late").after(Duration::from_secs(600));
        }
        let all = serde_json::to_string(&asked.messages()).expect("JSON");
        let name = json!({"name": "worker-1"});
        match () {
            () if !all.contains("begun") => start("worker", 1),
            () if !all.contains("\\\"doing\\\":\\\"works\\\"") => Answer::tool("check_child", name),
            () if !all.contains("is asked to end") => {
                Answer::tool("stop_child", json!({"name": "worker-1", "reason": "not needed"}))
            }
            () if !all.contains("stopped by @lead: not needed") => Answer::tool("wait", json!({})),
            () => Answer::text("without it"),
        }
    })
    .await;
    let desk = desk(&provider, &provider, "");
    let end = desk.start(&["run"]).end_within(Duration::from_secs(60));
    assert_eq!(end.code, 0, "{}", end.err);
    assert_eq!(count(&provider, "Still working"), 0, "nobody works when it answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_waits_for_hours_is_named_and_its_siblings_results_arrive() {
    let provider = Provider::start(|asked: &Asked| {
        if !is_boss(asked) {
            return Answer::text("The sibling's result.");
        }
        let messages = asked.messages();
        match (messages.len(), heard(&messages).contains("The sibling's result.")) {
            (1, _) => {
                let job =
                    |agent: &str| json!({"agent": agent, "prompt": "Job.", "background": true});
                Answer::tool("delegate", job("limited")).and_tool("delegate", job("worker"))
            }
            (_, false) => Answer::tool("wait", json!({})),
            (_, true) => Answer::tool("wait", json!({"all": true})),
        }
    })
    .await;
    let limited =
        Provider::start(|_: &Asked| Answer::fault(Fault::RateLimited(Some("3600".to_owned()))))
            .await;
    let desk = desk(&provider, &limited, "");
    let live = desk.start(&["run"]);
    wait("the sibling's result", || {
        let requests = provider.requests();
        let read = |asked: &Asked| heard(&asked.messages()).contains("The sibling's result.");
        requests.iter().any(read).then_some(())
    });
    let mut why = String::new();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !(why.contains("@lead/limited-1") && why.contains("other")) {
        assert!(std::time::Instant::now() < deadline, "{why}{}", desk.good(&["tail"]));
        why = desk.good(&["why", "desk/@lead"]);
    }
    assert!(!why.contains("worker-1"), "{why}");
    let tree = desk.good(&["ps", "--tree"]);
    assert!(tree.contains("limited-1"), "{tree}");
    desk.good(&["cancel", "desk"]);
    assert_ne!(live.end_within(Duration::from_secs(60)).code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_asks_for_a_permission_ends_a_run_without_a_terminal_with_the_question() {
    let provider = Provider::start(|asked: &Asked| {
        let messages = asked.messages();
        match (is_boss(asked), messages.len()) {
            (false, 1) => Answer::tool("bash", json!({"command": "echo permitted"})),
            (false, _) => Answer::text("It ran."),
            (true, 1) => start("worker", 1),
            (true, _) if heard(&messages).contains("It ran.") => Answer::text("done"),
            (true, _) => Answer::tool("wait", json!({"timeout": "2h"})),
        }
    })
    .await;
    let desk = desk(&provider, &provider, "");
    let end = desk.start(&["run"]).end_within(Duration::from_secs(60));
    assert_eq!(end.code, 6, "{}", end.err);
    assert!(end.err.contains("echo permitted"), "{}", end.err);
    let pending = desk.json(&["pending", "--json"]);
    assert_eq!(pending[0]["agent"], "lead/worker-1");
    let id = pending[0]["id"].as_str().expect("an id").to_owned();
    desk.good(&["approve", &id]);
    let end = desk.start(&["resume"]).end_within(Duration::from_secs(60));
    assert_eq!(end.code, 0, "{}", end.err);
    assert_eq!(count(&provider, "It ran."), 1);
}
