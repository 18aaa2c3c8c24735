//! A quota that is used up in the middle of a run: the run waits for its reset, also over the end of the
//! program, and goes on in the middle of its turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, lines};
use crate::support::provider::Provider;

/// Requests that the first window allows.
const ALLOWED: u32 = 20;

/// Time until the first reset: longer than the program takes to be killed and to resume.
const CLOSED: Duration = Duration::from_secs(4);

/// Time from the first try after it to the second reset.
const CLOSED_AGAIN: Duration = Duration::from_secs(1);

/// The account of a provider: open, closed, open for nobody, open.
#[derive(Default)]
struct Account {
    taken: u32,
    closed_until: Option<Instant>,
    was_closed_again: bool,
    /// The times of the refusals.
    refused: Vec<Instant>,
}

impl Account {
    /// Returns the time until the reset if a request is refused.
    fn refuses(&mut self) -> Option<Duration> {
        let now = Instant::now();
        match self.closed_until {
            None if self.taken == ALLOWED => self.closed_until = Some(now + CLOSED),
            Some(until) if until <= now && !self.was_closed_again => {
                self.was_closed_again = true;
                self.closed_until = Some(now + CLOSED_AGAIN);
            }
            _ => {}
        }
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            self.refused.push(now);
            return Some(until - now);
        }
        self.taken += 1;
        None
    }
}

fn no_quota(left: Duration) -> Answer {
    let error = json!({
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "resets_in_seconds": left.as_secs_f64(),
    });
    let body = json!({"type": "error", "error": error}).to_string();
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Answer::fault(Fault::Http { status: 429, headers, body })
}

fn desk(provider: &Provider, wire: Wire, rate_limit: &str, tasks: u32) -> Desk {
    let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    let mut text = format!(
        "version = 1\nname = \"desk\"\n[limits]\nmax_concurrency = 16\n\
         [providers.main]\nkind = \"{kind}\"\nbase_url = \"{}\"\n\
         [providers.main.rate_limit]\n{rate_limit}\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\n\
         [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"glob\"]\n",
        provider.url_for(wire)
    );
    for task in 1..=tasks {
        text.push_str(&format!("[tasks.t{task}]\nagent = \"worker\"\nprompt = \"Go {task}.\"\n"));
    }
    let desk = Desk::empty();
    desk.write("agents.toml", &text);
    desk
}

async fn account(wait: fn(Duration) -> Answer) -> (Arc<Mutex<Account>>, Provider) {
    let account = Arc::new(Mutex::new(Account::default()));
    let counted = account.clone();
    let provider = Provider::start(move |asked: &Asked| match counted.lock().refuses() {
        Some(left) => wait(left),
        None if asked.messages().len() > 1 => Answer::text("ok"),
        None => Answer::tool("glob", json!({"pattern": "*.toml"})),
    });
    (account, provider.await)
}

fn records(desk: &Desk) -> Vec<Value> {
    let run = desk.runs().pop().expect("a run");
    lines(&std::fs::read_to_string(run.join("journal.jsonl")).expect("a journal"))
}

fn waits_for_quota(event: &Value) -> bool {
    event["data"]["cause"] == "quota"
}

/// Lets 64 tasks pass through both windows, with a kill of the program in the first.
async fn pass(wire: Wire) {
    let (account, provider) = account(no_quota).await;
    let desk = desk(&provider, wire, "", 64);
    let running = desk.start(&["run"]);
    let desk = tokio::task::spawn_blocking(move || {
        let paused = desk.wait_for_event("run.paused", waits_for_quota);
        let reason = paused["data"]["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains("quota of provider `main` until 20"), "{reason}");
        running.signal("KILL");
        running.end();
        let resumed = desk.call(&["resume"]);
        assert_eq!(resumed.code, 0, "{}", resumed.err);
        desk
    });
    let desk = desk.await.expect("it ends");
    let account = account.lock();
    // Two requests for each task, none of them twice.
    assert_eq!(account.taken, 128, "{wire:?}");
    let first = account.refused[0];
    let late = account.refused.iter().filter(|at| **at > first + CLOSED);
    assert_eq!(late.count(), 1, "{wire:?}: one try tells that the window is closed again");
    assert!(account.refused.len() <= 9, "{wire:?}: only what was under way: {:?}", account.refused);

    let records = records(&desk);
    let is = |record: &Value, kind: &str| record["type"] == kind;
    let place = |kind: &str, nth: usize| {
        let mut found = records.iter().enumerate().filter(|(_, record)| is(record, kind));
        found.nth(nth).map(|(place, _)| place)
    };
    let parked = place("gateway.parked", 0).expect("parked");
    let resumed = place("gateway.resumed", 0).expect("resumed");
    let spawned = records[parked..resumed].iter().filter(|record| is(record, "agent.spawned"));
    // Each takes the place of an agent whose end was recorded before: at most all of them at once, and on an
    // idle machine hardly one.
    assert!(spawned.count() <= 16, "{wire:?}: only what was decided before the refusal was known");
    let failed = records.iter().filter(|record| is(record, "task.failed")).count();
    assert_eq!((failed, place("gateway.resumed", 1)), (0, None));
    let kinds: Vec<_> = records.iter().filter(|record| is(record, "model.failed")).collect();
    assert!(kinds.iter().all(|record| record["data"]["failure"]["kind"] == "quota"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_waited_for_also_over_a_kill() {
    let runs = Wire::BOTH.into_iter().map(|wire| tokio::spawn(pass(wire)));
    for run in runs.collect::<Vec<_>>() {
        run.await.expect("it holds");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_too_long_ends_the_program_and_is_resumed() {
    let day = |_| no_quota(Duration::from_secs(24 * 3_600));
    for rule in ["max_wait = \"1h\"", "on_quota = \"pause\""] {
        let (account, provider) = account(day).await;
        let desk = desk(&provider, Wire::Anthropic, rule, 24);
        let desk = tokio::task::spawn_blocking(move || {
            let paused = desk.call(&["run"]);
            assert_eq!(paused.code, 3, "{rule}: {}", paused.err);
            assert!(
                paused.err.contains("the quota of provider `main` is used up"),
                "{}",
                paused.err
            );
            desk
        });
        let desk = desk.await.expect("it ends");
        // Somebody has bought more.
        {
            let mut account = account.lock();
            (account.closed_until, account.was_closed_again) = (Some(Instant::now()), true);
        }
        let code = tokio::task::spawn_blocking(move || desk.call(&["resume"]).code);
        assert_eq!(code.await.expect("it ends"), 0, "{rule}");
        assert_eq!(account.lock().taken, 48, "{rule}: nothing is asked for twice");
    }
}

/// The spend limit of a month comes with status 400.
fn spent_up(_: Duration) -> Answer {
    let text = "You have reached your specified API usage limits. You will regain access on \
                2099-12-01 at 00:00 UTC.";
    let error = json!({"type": "invalid_request_error", "message": text});
    let body = json!({"type": "error", "error": error}).to_string();
    Answer::fault(Fault::Http { status: 400, headers: Vec::new(), body })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spend_limit_that_is_told_as_a_bad_request_pauses_the_run_and_nothing_is_bought_again() {
    let (account, provider) = account(spent_up).await;
    let desk = desk(&provider, Wire::Anthropic, "max_wait = \"1s\"", 24);
    let paused = tokio::task::spawn_blocking(move || (desk.call(&["run"]), desk));
    let (paused, desk) = paused.await.expect("it ends");
    assert_eq!(paused.code, 3, "{}", paused.err);
    assert!(paused.err.contains("the quota of provider `main` is used up"), "{}", paused.err);
    let failed = records(&desk).iter().filter(|record| record["type"] == "task.failed").count();
    assert_eq!(failed, 0, "no task has lost its conversation");
    {
        let mut account = account.lock();
        (account.closed_until, account.was_closed_again) = (Some(Instant::now()), true);
    }
    let resumed = tokio::task::spawn_blocking(move || desk.call(&["resume"]));
    assert_eq!(resumed.await.expect("it ends").code, 0);
    assert_eq!(account.lock().taken, 48, "nothing is asked for twice");
}

/// Who stops the run and gets more of the quota need not wait for a reset of tomorrow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_one_call_is_tried_at_once() {
    let day = |_| no_quota(Duration::from_secs(24 * 3_600));
    let (account, provider) = account(day).await;
    let desk = desk(&provider, Wire::OpenAi, "", 24);
    let bought = account.clone();
    let ended = tokio::task::spawn_blocking(move || {
        let running = desk.start(&["run"]);
        desk.wait_for_event("run.paused", waits_for_quota);
        running.signal("INT");
        let stopped = running.end();
        {
            let mut account = bought.lock();
            (account.closed_until, account.was_closed_again) = (Some(Instant::now()), true);
        }
        (stopped.code, desk.call(&["resume"]))
    });
    let (stopped, resumed) = ended.await.expect("it ends");
    assert_eq!((stopped, resumed.code), (130, 0), "{}", resumed.err);
    assert_eq!(account.lock().taken, 48, "nothing is asked for twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_is_not_waited_for_fails_by_its_kind() {
    let (_, provider) = account(no_quota).await;
    let desk = desk(&provider, Wire::OpenAi, "on_quota = \"fail\"", 24);
    let done = tokio::task::spawn_blocking(move || (desk.call(&["run"]), desk));
    let (done, desk) = done.await.expect("it ends");
    assert_eq!(done.code, 3, "{}", done.err);
    let failed = records(&desk).into_iter().filter(|record| record["type"] == "task.failed");
    let kinds: Vec<_> = failed.map(|record| record["data"]["failure"]["kind"].clone()).collect();
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| kind == "quota"), "{kinds:?}");
}
