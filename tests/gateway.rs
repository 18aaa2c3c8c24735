//! Who may call a provider, and when: over real sockets, and the gateway alone in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callsheet::actor::Services;
use callsheet::actor::gateway::{self, CallEnd, Gateway};
use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::id::AgentId;
use callsheet::policy::BreakerState;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use ractor::Actor;
use serde_json::json;
use tokio::sync::Barrier;

use crate::faults::{Ended, FakeTool, Setup, bare_services, defect, name, transcript, unsendable};
use crate::memory_journal::MemoryJournal;
use crate::support::answer::{Answer, Fault, Place};
use crate::support::asked::{Asked, Wire};
use crate::support::provider::Provider;

/// Tasks of one agent against a provider; a failed call is made again at once.
fn graph(provider: &Provider, wire: Wire, concurrency: usize, tasks: usize) -> String {
    let (kind, url) = match wire {
        Wire::Anthropic => ("anthropic", provider.url_for(wire)),
        Wire::OpenAi => ("openai", provider.url_for(wire)),
    };
    let mut text = format!(
        r#"
[limits]
max_concurrency = 50
fail_fast = false
[defaults.retry]
max_attempts = 3
initial_interval = "4ms"
max_interval = "4ms"
[providers.main]
kind = "{kind}"
base_url = "{url}"
api_key = {{ env = "TEST_KEY" }}
[providers.main.rate_limit]
max_concurrency = {concurrency}
[models.main]
provider = "main"
model = "m"
[agents.worker]
model = "main"
instructions = "Work."
tools = ["dump"]
"#
    );
    for task in 1..=tasks {
        text.push_str(&format!(
            "[tasks.t{task}]\nagent = \"worker\"\nprompt = \"Go {task}.\"\n\
             retry = {{ max_attempts = 1 }}\n"
        ));
    }
    text
}

async fn run(provider: &Provider, wire: Wire) -> Ended {
    let setup = Setup::new().tool(&FakeTool::dump());
    setup.run(&graph(provider, wire, 8, 1)).await
}

/// 529 says so; the 503 of the other wire may be anything.
fn overloaded(wire: Wire) -> FailureKind {
    match wire {
        Wire::Anthropic => FailureKind::Overloaded,
        Wire::OpenAi => FailureKind::ServerError,
    }
}

fn failures(ended: &Ended) -> Vec<(u32, FailureKind, Option<u64>)> {
    let failed = ended.records.iter().filter_map(|record| match &record.event {
        Event::ModelFailed(f) => Some((f.attempt, f.failure.kind, f.retry_in_ms)),
        _ => None,
    });
    failed.collect()
}

#[tokio::test]
async fn as_many_calls_at_once_as_there_are_permits() {
    const SLOW: Duration = Duration::from_millis(30);
    // Three wait for each other, so three are at work; a fourth would come while they are.
    let barrier = Arc::new(Barrier::new(3));
    let answer = Answer::text("ok").together(&barrier).after(SLOW);
    let provider = Provider::script(vec![answer]).await;
    let setup = Setup::new().tool(&FakeTool::dump());
    let ended = setup.run(&graph(&provider, Wire::Anthropic, 3, 12)).await;
    assert_eq!(ended.completed().status, RunStatus::Completed);
    let mut at: Vec<_> = provider.requests().iter().map(|asked| asked.at).collect();
    at.sort();
    assert_eq!(at.len(), 12);
    for (first, fourth) in at.iter().zip(&at[3..]) {
        assert!(*fourth - *first >= SLOW, "{:?}", *fourth - *first);
    }
}

#[tokio::test]
async fn a_429_parks_all_agents() {
    for wire in Wire::BOTH {
        let limited = Answer::fault(Fault::RateLimited(Some("0.3".to_owned())));
        let provider = Provider::script(vec![limited, Answer::text("ok")]).await;
        let setup = Setup::new().tool(&FakeTool::dump());
        let ended = setup.run(&graph(&provider, wire, 1, 5)).await;
        assert_eq!(ended.completed().status, RunStatus::Completed);
        let requests = provider.requests();
        assert_eq!(requests.len(), 6);
        let pause = requests[1].at - requests[0].at;
        assert!(pause >= Duration::from_millis(300), "{pause:?}");
        let parked = ended.records.iter().filter_map(|record| match &record.event {
            Event::GatewayParked(parked) => Some(parked),
            _ => None,
        });
        let parked: Vec<_> = parked.collect();
        assert_eq!(parked.len(), 1);
        assert_eq!((parked[0].provider.as_str(), parked[0].for_ms), ("main", 300));
        assert!(parked[0].reason.contains("rate limit"), "{}", parked[0].reason);
        let resumed = ended.records.iter().filter(|r| matches!(r.event, Event::GatewayResumed(_)));
        assert_eq!(resumed.count(), 1);
        assert_eq!(failures(&ended), [(1, FailureKind::RateLimit, Some(300))]);
    }
}

#[tokio::test]
async fn failures_that_may_pass_are_tried_again_and_recorded() {
    for wire in Wire::BOTH {
        let answers = vec![
            Answer::fault(Fault::Overloaded),
            Answer::fault(Fault::ServerError),
            Answer::text("ok"),
        ];
        let provider = Provider::script(answers).await;
        let ended = run(&provider, wire).await;
        assert_eq!(ended.output("t1"), "ok");
        let failures = failures(&ended);
        let kinds: Vec<_> = failures.iter().map(|(n, kind, _)| (*n, *kind)).collect();
        assert_eq!(kinds, [(1, overloaded(wire)), (2, FailureKind::ServerError)]);
        assert!(failures.iter().all(|(_, _, pause)| pause.is_some_and(|ms| ms <= 4)));
        assert_eq!(ended.count("t1", "model.requested"), 1, "one request of the turn");
    }
}

#[tokio::test]
async fn exhausted_retries_fail_with_the_kind_of_the_last() {
    let cases = [
        (Fault::ServerError, FailureKind::ServerError, 3),
        (Fault::RateLimited(Some("0.01".to_owned())), FailureKind::RateLimit, 3),
        (Fault::Cut(Place::InFirstBlock), FailureKind::Connection, 3),
        (Fault::BadKey, FailureKind::Auth, 1),
        (Fault::Pairing, FailureKind::InvalidRequest, 1),
        (Fault::TooManyBytes, FailureKind::RequestTooLarge, 1),
    ];
    for wire in Wire::BOTH {
        let busy = (Fault::Overloaded, overloaded(wire), 3);
        for (fault, kind, calls) in cases.clone().into_iter().chain([busy]) {
            let answer = Answer::text("a text that is cut").paced(4, Duration::from_millis(1));
            let provider = Provider::script(vec![answer.with(fault.clone())]).await;
            let ended = run(&provider, wire).await;
            assert_eq!(ended.task("t1").2, Some(kind), "{wire:?} {fault:?}");
            assert_eq!(provider.count(), calls, "{wire:?} {fault:?}");
            let failures = failures(&ended);
            assert_eq!(failures.len(), calls);
            assert!(failures.iter().all(|(_, recorded, _)| *recorded == kind), "{failures:?}");
            assert_eq!(failures.last().expect("a failure").2, None, "no attempt follows the last");
        }
    }
}

#[tokio::test]
async fn a_reply_limit_that_does_not_fit_is_made_smaller() {
    for wire in Wire::BOTH {
        let fault = Fault::TooLongWithOutput { input: 195_000, output: 8_192, max: 200_000 };
        let provider = Provider::script(vec![Answer::fault(fault), Answer::text("ok")]).await;
        let ended = run(&provider, wire).await;
        assert_eq!(ended.output("t1"), "ok");
        let limit = |asked: &Asked| {
            let body = asked.json();
            let limit = [&body["max_tokens"], &body["max_completion_tokens"]];
            limit.into_iter().find_map(serde_json::Value::as_u64)
        };
        let limits: Vec<_> = provider.requests().iter().map(limit).collect();
        assert_eq!(limits, [Some(8_192), Some(5_000)]);
        assert_eq!(failures(&ended), [(1, FailureKind::ContextOverflow, Some(0))]);
    }
}

/// Whether a request asks for a summary of what it holds.
fn is_summary(asked: &Asked) -> bool {
    let last = asked.messages().pop();
    last.is_some_and(|message| message.text().contains("Respond with TEXT ONLY"))
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_compacted_once() {
    for (wire, helps) in [(Wire::Anthropic, true), (Wire::Anthropic, false), (Wire::OpenAi, true)] {
        let refused = AtomicBool::new(false);
        let provider = Provider::start(move |asked: &Asked| {
            let messages = asked.messages();
            let first = messages[0].text();
            let was_refused = refused.load(Ordering::SeqCst);
            let has_results = messages.iter().any(|m| m.tool_results().next().is_some());
            if is_summary(asked) {
                Answer::text("the summary")
            } else if !has_results && !was_refused {
                Answer::tool("dump", json!({"size": 3_000}))
            } else if first.starts_with("[Conversation compressed") && helps {
                Answer::text("ok")
            } else if messages.len() < 5 && !was_refused {
                Answer::tool("dump", json!({"size": 3_000}))
            } else {
                refused.store(true, Ordering::SeqCst);
                Answer::fault(Fault::TooLong { have: 201_000, max: 200_000 })
            }
        })
        .await;
        let ended = run(&provider, wire).await;
        assert_eq!(provider.requests().iter().filter(|asked| is_summary(asked)).count(), 1);
        if helps {
            assert_eq!(ended.output("t1"), "ok");
        } else {
            assert_eq!(ended.task("t1").2, Some(FailureKind::ContextOverflow));
        }
        let last = provider.requests().pop().expect("a request").messages();
        assert_eq!(unsendable(&last), None, "{last:#?}");
        assert!(last.iter().any(|message| message.text().ends_with("Go 1.")), "{last:#?}");
        let path = ended.dir.transcript(&AgentId::from_text("t1"));
        if helps {
            assert_eq!(defect(&transcript(&path)), None);
        }
    }
}

#[tokio::test]
async fn a_stream_cut_after_a_call_has_completed_is_not_sent_again() {
    let cut = Answer::tool("dump", json!({"size": 5}))
        .and_tool("dump", json!({"size": 6}))
        .with(Fault::Cut(Place::InSecondBlock));
    // On the other wire no call is complete before the end, so there the call is made again.
    for (wire, dumps, failed) in [(Wire::Anthropic, 1, 0), (Wire::OpenAi, 0, 1)] {
        let provider = Provider::script(vec![cut.clone(), Answer::text("ok")]).await;
        let dump = FakeTool::dump();
        let setup = Setup::new().tool(&dump);
        let ended = setup.run(&graph(&provider, wire, 8, 1)).await;
        assert_eq!(ended.output("t1"), "ok");
        assert_eq!(provider.count(), 2, "{wire:?}");
        assert_eq!(dump.calls(), dumps, "what completed was run, what did not was not");
        assert_eq!(failures(&ended).len(), failed);
        let second = provider.requests()[1].messages();
        assert_eq!(unsendable(&second), None, "{second:#?}");
        assert_eq!(second.len(), 1 + 2 * dumps);
        assert_eq!(defect(&transcript(&ended.dir.transcript(&AgentId::from_text("t1")))), None);
    }
}

#[tokio::test]
async fn an_answer_cut_after_text_is_continued() {
    let cut = Answer::text("one ").and_text("never").with(Fault::Cut(Place::InSecondBlock));
    let provider = Provider::script(vec![cut, Answer::text("two")]).await;
    let ended = run(&provider, Wire::Anthropic).await;
    assert_eq!(ended.output("t1"), "one two");
    let second = provider.requests()[1].messages();
    assert_eq!(unsendable(&second), None, "{second:#?}");
    assert_eq!(defect(&transcript(&ended.dir.transcript(&AgentId::from_text("t1")))), None);
}

#[tokio::test]
async fn a_call_that_is_cancelled_gives_its_permit_back() {
    let provider = Provider::start(|asked: &Asked| match asked.messages()[0].text().as_str() {
        "Go 1." => Answer::fault(Fault::StallBeforeHead),
        _ => Answer::text("ok"),
    })
    .await;
    let setup = Setup::new().tool(&FakeTool::dump());
    let run = setup.start(&graph(&provider, Wire::Anthropic, 1, 3)).await;
    let stalled = || provider.requests().iter().any(|a| a.messages()[0].text() == "Go 1.");
    crate::faults::until(stalled).await;
    let target = callsheet::run::CancelTarget::Task(name("t1"));
    assert!(run.remote().cancel(target, "enough").await);
    let ended = Ended::of(run).await;
    assert_eq!(ended.task("t1").0, "cancelled");
    assert_eq!((ended.output("t2"), ended.output("t3")), ("ok".to_owned(), "ok".to_owned()));
}

/// A gateway alone, on a journal in memory.
struct Alone {
    services: Arc<Services>,
    journal: MemoryJournal,
    _root: tempfile::TempDir,
}

impl Alone {
    async fn start(max_concurrency: usize) -> Self {
        let (root, journal) = (tempfile::tempdir().expect("a directory"), MemoryJournal::default());
        let services = Arc::new(bare_services(root.path(), journal.handle()));
        let gateway = Gateway {
            provider: name("main"),
            max_concurrency,
            respect_retry_after: true,
            services: services.clone(),
        };
        let (actor, _) = Actor::spawn(None, gateway, ()).await.expect("starts");
        services.addresses.gateways.insert(name("main"), actor);
        Self { services, journal, _root: root }
    }

    async fn acquire(&self) -> gateway::Permit {
        gateway::acquire(&self.services, &name("main")).await.expect("it lives")
    }

    /// Whether a permit can be had within so many seconds.
    async fn within(&self, seconds: u64) -> Option<gateway::Permit> {
        tokio::time::timeout(Duration::from_secs(seconds), self.acquire()).await.ok()
    }

    fn breaker(&self) -> Vec<BreakerState> {
        let states = self.journal.records().into_iter().filter_map(|record| match &record.event {
            Event::GatewayBreaker(changed) => Some(changed.state),
            _ => None,
        });
        states.collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_breaker_opens_and_lets_exactly_one_probe_through() {
    use BreakerState::{Closed, HalfOpen, Open};
    let alone = Alone::start(64).await;
    for _ in 0..7 {
        alone.acquire().await.finish(CallEnd::Failed);
    }
    alone.acquire().await.finish(CallEnd::Refused);
    for _ in 0..8 {
        assert_eq!(alone.breaker(), [], "failures count in a row only");
        alone.acquire().await.finish(CallEnd::Failed);
    }
    assert!(alone.within(10).await.is_none(), "it is open");
    assert_eq!(alone.breaker(), [Open]);
    let probe = alone.within(10).await.expect("a probe after the pause");
    assert!(alone.within(60).await.is_none(), "one probe only");
    assert_eq!(alone.breaker(), [Open, HalfOpen]);
    probe.finish(CallEnd::Failed);
    assert!(alone.within(14).await.is_none(), "the pause begins anew");
    // A probe that is cancelled says nothing: the next one is let through at once.
    drop(alone.within(2).await.expect("a probe"));
    let probe = alone.within(1).await.expect("another probe");
    probe.finish(CallEnd::Succeeded);
    let many = [alone.acquire().await, alone.acquire().await];
    drop(many);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(alone.breaker(), [Open, HalfOpen, Open, HalfOpen, Open, HalfOpen, Closed]);
}

#[tokio::test(start_paused = true)]
async fn a_call_cancelled_beside_the_probe_lets_no_second_one_through() {
    let alone = Alone::start(64).await;
    let old = alone.acquire().await;
    for _ in 0..8 {
        alone.acquire().await.finish(CallEnd::Failed);
    }
    let probe = alone.within(20).await.expect("a probe");
    drop(old);
    assert!(alone.within(60).await.is_none(), "one probe only");
    probe.finish(CallEnd::Succeeded);
    assert!(alone.within(1).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_everybody_and_the_longest_wins() {
    let alone = Alone::start(2).await;
    let limited = |seconds| CallEnd::RateLimited {
        retry_after: Some(Duration::from_secs(seconds)),
        reason: "slow down".to_owned(),
    };
    let (first, second) = (alone.acquire().await, alone.acquire().await);
    assert!(alone.within(1).await.is_none(), "both permits are out");
    first.finish(limited(30));
    second.finish(limited(5));
    assert!(alone.within(29).await.is_none(), "the shorter pause does not end the longer one");
    let third = alone.within(2).await.expect("the pause is over");
    // However long a provider asks for, the clock stands it.
    third.finish(limited(u64::MAX));
    assert!(alone.within(3_600).await.is_none());
    assert!(alone.within(24 * 3_600).await.is_some());
    let parked = alone.journal.records();
    let parked = parked.iter().filter(|record| matches!(record.event, Event::GatewayParked(_)));
    assert_eq!(parked.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn those_that_stopped_waiting_cost_no_permit() {
    let alone = Alone::start(1).await;
    let held = alone.acquire().await;
    for _ in 0..5 {
        assert!(alone.within(1).await.is_none());
    }
    drop(held);
    for _ in 0..5 {
        alone.within(1).await.expect("the permit came back").finish(CallEnd::Succeeded);
    }
}

#[tokio::test]
async fn a_tool_turn_over_both_wires_does_the_same() {
    for wire in Wire::BOTH {
        let answers = vec![Answer::tool("echo", json!({"text": "hi"})), Answer::text("done")];
        let provider = Provider::script(answers).await;
        let echo = FakeTool::new("echo", Effect::Once, |_, input| async move {
            Ok(ToolOutput::ok(input["text"].as_str().unwrap_or_default()))
        });
        let setup = Setup::new().tool(&echo);
        let text = graph(&provider, wire, 8, 1).replace("\"dump\"", "\"echo\"");
        let ended = setup.run(&text).await;
        assert_eq!(ended.output("t1"), "done");
        let second = provider.requests()[1].messages();
        assert_eq!(second[2].tool_results().next().expect("a result").text(), "hi");
    }
}
