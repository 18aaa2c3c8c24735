//! Permits of the gateway: which call may reach a provider, and when. Over real sockets, and with
//! the gateway alone in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::id::AgentId;
use callsheet::run::RunEnd;
use callsheet::tool::ToolOutput;
use callsheet::turn::{Effect, Outcome};
use serde_json::json;
use tokio::sync::Barrier;

use crate::support::answer::{Answer, Fault, FaultAt};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{
    Ended, FakeTool, Rig, Setup, defect, name, transcript, unsendable, until,
};
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

/// Returns the failure kind of an overload: status 529 names it; the 503 of the other wire has no
/// clear cause.
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
        // While the first is answered, all others come to wait. Then one is refused, and the three that ask
        // whether it is a limit.
        let limited = Answer::fault(Fault::RateLimited(Some("0.3".to_owned())));
        let mut answers = vec![limited; 4];
        answers.insert(0, Answer::text("ok").after(Duration::from_millis(300)));
        answers.push(Answer::text("ok"));
        let provider = Provider::script(answers).await;
        let setup = Setup::new().tool(&FakeTool::dump());
        let ended = setup.run(&graph(&provider, wire, 1, 5)).await;
        assert_eq!(ended.completed().status, RunStatus::Completed);
        let requests = provider.requests();
        assert_eq!(requests.len(), 9);
        let pause = requests[5].at - requests[4].at;
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
        // A call that asks before its time makes no attempt of its own.
        let failures = failures(&ended);
        assert_eq!(failures.len(), 4);
        let all = failures.iter().all(|(attempt, kind, pause)| {
            *attempt <= 2 && *kind == FailureKind::RateLimit && *pause == Some(300)
        });
        assert!(all, "{failures:?}");
    }
}

#[tokio::test]
async fn a_429_by_chance_parks_nobody() {
    for wire in Wire::BOTH {
        // While the first is answered, all others come to wait.
        let first = Answer::text("ok").after(Duration::from_millis(300));
        let limited = Answer::fault(Fault::RateLimited(Some("2".to_owned())));
        let provider = Provider::script(vec![first, limited, Answer::text("ok")]).await;
        let setup = Setup::new().tool(&FakeTool::dump());
        let ended = setup.run(&graph(&provider, wire, 1, 5)).await;
        assert_eq!(ended.completed().status, RunStatus::Completed);
        assert_eq!(provider.count(), 6);
        let is_parked = |event: &Event| matches!(event, Event::GatewayParked(_));
        assert!(!ended.records.iter().any(|record| is_parked(&record.event)));
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
        assert_eq!(ended.count("t1", "model.requested"), 3, "each request is announced");
    }
}

#[tokio::test]
async fn exhausted_retries_fail_with_the_kind_of_the_last() {
    // Which errors are tried again, and how often, is in the tables of the call machine.
    let cases = [
        (Fault::RateLimited(Some("0.01".to_owned())), FailureKind::RateLimit, 3),
        (Fault::BadKey, FailureKind::Auth, 1),
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

/// Returns true if a request asks for a summary of its messages.
fn is_summary(asked: &Asked) -> bool {
    let last = asked.messages().pop();
    last.is_some_and(|message| message.text().contains("Respond with TEXT ONLY"))
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_compacted_once() {
    let too_long =
        || (Fault::TooLong { have: 201_000, max: 200_000 }, FailureKind::ContextOverflow);
    let too_large = || (Fault::TooManyBytes, FailureKind::RequestTooLarge);
    for (wire, helps, (fault, kind)) in [
        (Wire::Anthropic, true, too_long()),
        (Wire::Anthropic, false, too_long()),
        (Wire::OpenAi, true, too_long()),
        (Wire::Anthropic, true, too_large()),
        (Wire::Anthropic, false, too_large()),
        (Wire::OpenAi, true, too_large()),
    ] {
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
                Answer::fault(fault.clone())
            }
        })
        .await;
        let ended = run(&provider, wire).await;
        assert_eq!(provider.requests().iter().filter(|asked| is_summary(asked)).count(), 1);
        if helps {
            assert_eq!(ended.output("t1"), "ok");
        } else {
            assert_eq!(ended.task("t1").2, Some(kind));
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

/// A server whose words nobody knows refuses requests of more than so many bytes of messages.
#[tokio::test]
async fn a_refusal_in_unknown_words_near_the_window_is_tried_smaller_once() {
    let refusal = || {
        let body = json!({"error": {"message": "bad thing 7", "type": "oops"}}).to_string();
        Answer::fault(Fault::Http { status: 400, headers: Vec::new(), body })
    };
    for (wire, helps) in [(Wire::Anthropic, true), (Wire::OpenAi, false)] {
        let refused = AtomicUsize::new(0);
        let provider = Provider::start(move |asked: &Asked| {
            let messages = asked.messages();
            let was_refused = refused.load(Ordering::SeqCst) > 0;
            let results = messages.iter().flat_map(|message| message.tool_results()).count();
            if is_summary(asked) {
                Answer::text("the summary")
            } else if results < 4 && !was_refused {
                Answer::tool("dump", json!({"size": 12_000}))
            } else if was_refused && helps {
                Answer::text("ok")
            } else {
                refused.fetch_add(1, Ordering::SeqCst);
                refusal()
            }
        })
        .await;
        // Four results are over half of the window.
        let text = graph(&provider, wire, 8, 1).replace(
            "model = \"m\"",
            "model = \"m\"\ncontext_window = 24_000\nmax_output_tokens = 2_000",
        );
        let ended = Setup::new().tool(&FakeTool::dump()).run(&text).await;
        let case = format!("{wire:?} {helps} {:?}", failures(&ended));
        let tried = provider.requests().len();
        if helps {
            assert_eq!(ended.output("t1"), "ok", "{case}");
            assert_eq!(failures(&ended)[0].1, FailureKind::ContextOverflow, "{case}");
        } else {
            assert_eq!(ended.task("t1").2, Some(FailureKind::InvalidRequest), "{case}");
        }
        let refusals = failures(&ended).len();
        assert_eq!(refusals, if helps { 1 } else { 2 }, "{case} {tried}");
    }
}

#[tokio::test]
async fn a_stream_cut_after_a_call_has_completed_is_not_sent_again() {
    let cut = Answer::tool("dump", json!({"size": 5}))
        .and_tool("dump", json!({"size": 6}))
        .with(Fault::Cut(FaultAt::InSecondBlock));
    // On the other wire no call is complete before the end, so there the call is made again.
    for (wire, dumps) in [(Wire::Anthropic, 1), (Wire::OpenAi, 0)] {
        let provider = Provider::script(vec![cut.clone(), Answer::text("ok")]).await;
        let dump = FakeTool::dump();
        let setup = Setup::new().tool(&dump);
        let ended = setup.run(&graph(&provider, wire, 8, 1)).await;
        assert_eq!(ended.output("t1"), "ok");
        assert_eq!(provider.count(), 2, "{wire:?}");
        assert_eq!(dump.calls(), dumps, "what completed was run, what did not was not");
        assert_eq!(failures(&ended).len(), 1);
        let second = provider.requests()[1].messages();
        assert_eq!(unsendable(&second), None, "{second:#?}");
        assert_eq!(second.len(), 1 + 2 * dumps);
        assert_eq!(defect(&transcript(&ended.dir.transcript(&AgentId::from_text("t1")))), None);
    }
}

#[tokio::test]
async fn an_answer_cut_after_text_is_continued() {
    let cut = Answer::text("one ").and_text("never").with(Fault::Cut(FaultAt::InSecondBlock));
    let provider = Provider::script(vec![cut, Answer::text("two")]).await;
    let ended = run(&provider, Wire::Anthropic).await;
    assert_eq!(ended.output("t1"), "one two");
    let second = provider.requests()[1].messages();
    assert_eq!(unsendable(&second), None, "{second:#?}");
    assert_eq!(defect(&transcript(&ended.dir.transcript(&AgentId::from_text("t1")))), None);
}

#[tokio::test]
async fn a_stream_that_breaks_after_a_block_again_and_again() {
    const PAUSE: Duration = Duration::from_millis(60);
    for wire in Wire::BOTH {
        // A text is complete on the other wire when a call has begun.
        let cut = match wire {
            Wire::Anthropic => Answer::text("one ").and_text("never"),
            Wire::OpenAi => Answer::text("one ").and_tool("dump", json!({"size": 5})),
        };
        let cut = cut.with(Fault::Cut(FaultAt::InSecondBlock));
        let slow = |provider: &Provider| {
            let graph = graph(provider, wire, 8, 1).replace("\"4ms\"", "\"60ms\"");
            graph.replace("[defaults.retry]", "[defaults.retry]\njitter = false")
        };
        let (dump, always) = (FakeTool::dump(), Provider::script(vec![cut.clone()]).await);
        let ended = Setup::new().tool(&dump).run(&slow(&always)).await;
        assert_eq!(ended.task("t1").2, Some(FailureKind::Connection), "{wire:?}");
        let at: Vec<_> = always.requests().iter().map(|asked| asked.at).collect();
        assert_eq!(at.len(), 3, "{wire:?}");
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= PAUSE), "{wire:?} {at:?}");
        let kinds: Vec<_> = failures(&ended).into_iter().map(|(n, kind, _)| (n, kind)).collect();
        let broke = |attempt| (attempt, FailureKind::Connection);
        assert_eq!(kinds, [broke(1), broke(2), broke(3)], "{wire:?}");
        let Outcome::Failed { partial, .. } = ended.outcome("t1") else { panic!("it failed") };
        assert_eq!(partial.expect("what there was").text, "one one one ");

        // A whole reply ends the row, and what broke took no turn.
        let answers = vec![cut.clone(), cut, Answer::text("two")];
        let provider = Provider::script(answers).await;
        let text = slow(&provider).replace("[agents.worker]", "[agents.worker]\nmax_turns = 1");
        let ended = Setup::new().tool(&dump).run(&text).await;
        assert_eq!(ended.output("t1"), "one one two", "{wire:?}");
        assert_eq!((provider.count(), dump.calls()), (3, 0));
    }
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
    until(stalled).await;
    let target = callsheet::run::CancelTarget::Task(name("t1"));
    assert!(run.remote().cancel(target, "enough").await);
    let ended = Ended::of(run).await;
    assert_eq!(ended.task("t1").0, "cancelled");
    assert_eq!((ended.output("t2"), ended.output("t3")), ("ok".to_owned(), "ok".to_owned()));
}

#[tokio::test]
async fn a_gateway_that_was_restarted_knows_what_is_out() {
    // The first two answers come when the test says so.
    let gate = Arc::new(Barrier::new(3));
    let held = gate.clone();
    let provider = Provider::start(move |asked: &Asked| {
        let gate = (asked.count <= 2).then(|| held.clone());
        Answer { gate, ..Answer::text("ok") }
    })
    .await;
    let setup = Setup::new().tool(&FakeTool::dump());
    let rig = Rig::start(&setup, &graph(&provider, Wire::Anthropic, 2, 6)).await;
    until(|| provider.count() == 2).await;
    let address = &rig.services.addresses.gateways[&name("main")];
    let before = address.get().expect("it is started").get_id();
    address.get().expect("it is started").kill();
    let restarted = || address.get().is_some_and(|gateway| gateway.get_id() != before);
    until(restarted).await;
    // Both permits are out, so nobody else gets one, however often they ask.
    let third = until(|| provider.count() == 3);
    let third = tokio::time::timeout(Duration::from_millis(100), third).await;
    assert!(third.is_err(), "the permits of the lost gateway count");
    gate.wait().await;
    let ended = rig.ended().await;
    for task in 1..=6 {
        assert_eq!(ended.output(&format!("t{task}")), "ok");
    }
    assert_eq!(provider.count(), 6, "no call was made twice");
}

#[tokio::test]
async fn a_gateway_that_crashes_again_and_again_ends_the_run() {
    let provider = Provider::start(|_: &Asked| Answer::fault(Fault::StallBeforeHead)).await;
    let setup = Setup::new().tool(&FakeTool::dump());
    let rig = Rig::start(&setup, &graph(&provider, Wire::Anthropic, 2, 1)).await;
    let services = rig.services.clone();
    let address = &services.addresses.gateways[&name("main")];
    let crashes = async {
        let mut last = None;
        for _ in 0..4 {
            let is_new = || address.get().is_some_and(|actor| Some(actor.get_id()) != last);
            until(is_new).await;
            let actor = address.get().expect("it is there");
            last = Some(actor.get_id());
            actor.kill();
        }
    };
    crashes.await;
    let ended = rig.ended().await;
    let RunEnd::Broken(reason) = &ended.end else { panic!("{:?}", ended.end) };
    assert!(
        reason.starts_with("the gateway of provider `main` crashed again and again"),
        "{reason}"
    );
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

#[tokio::test]
async fn a_deadline_in_a_pause_names_its_cause() {
    let provider = Provider::script(vec![Answer::fault(Fault::Overloaded)]).await;
    let text = graph(&provider, Wire::Anthropic, 8, 1).replace("\"4ms\"", "\"60s\"");
    let text = text.replace(
        "retry = { max_attempts = 1 }",
        "timeout = \"300ms\"\nretry = { max_attempts = 1 }",
    );
    let ended = Setup::new().tool(&FakeTool::dump()).run(&text).await;
    let error = ended.completed().tasks["t1"].error.clone().expect("a failure");
    assert_eq!(error.kind, FailureKind::Timeout);
    let told = "attempt 1 took longer than 0.3 s; its model call had failed (overloaded)";
    assert_eq!(error.message, told);
}

/// Siblings with a long prompt of their definition, at these prices.
fn siblings(provider: &Provider, prices: &str) -> String {
    let text = graph(provider, Wire::Anthropic, 8, 6)
        .replace("[agents.worker]", &format!("{prices}\n[agents.worker]"));
    text.replace("\"Work.\"", &format!("\"{}\"", "Work with great care. ".repeat(400)))
}

#[tokio::test]
async fn of_siblings_with_one_prefix_the_first_goes_ahead() {
    const READING: Duration = Duration::from_millis(300);
    let prices = "cost_per_mtok = { input = 3.0, output = 15.0, cache_read = 0.3 }";
    let answers = |first: Answer| vec![first, Answer::text("ok")];
    // The provider reads the prompt before its first word; a stream's head comes at once.
    let slow = Answer::text("ok").after(READING);
    for (prices, first, waits) in [(prices, slow.clone(), true), ("", slow, false)] {
        let provider = Provider::script(answers(first)).await;
        let ended = Setup::new().tool(&FakeTool::dump()).run(&siblings(&provider, prices)).await;
        assert_eq!(ended.completed().status, RunStatus::Completed);
        let at: Vec<_> = provider.requests().iter().map(|asked| asked.at).collect();
        let early = at.iter().filter(|at| **at - provider.requests()[0].at < READING).count();
        assert_eq!(early, if waits { 1 } else { 6 }, "{prices}");
    }
    // If the first brings nothing, another goes ahead.
    let provider = Provider::script(answers(Answer::fault(Fault::BadKey))).await;
    let ended = Setup::new().tool(&FakeTool::dump()).run(&siblings(&provider, prices)).await;
    let failed = (1..=6).filter(|task| ended.task(&format!("t{task}")).0 == "failed").count();
    assert_eq!((failed, provider.count()), (1, 6));
}
