//! Models that stand in for one that cannot be called, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::message::Usage;
use callsheet::model::ErrorClass;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use serde_json::json;

use crate::support::answer::{Answer, Fault, FaultAt};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{Act, Ended, Fake, FakeTool, Setup, unsendable};
use crate::support::provider::Provider;

/// The time after which a model is tried again.
const COOLDOWN: Duration = Duration::from_millis(100);

/// Tasks of one agent whose model is `first`, with `second` as its fallback.
fn graph(first: (&Provider, Wire), second: (&Provider, Wire), tasks: usize, more: &str) -> String {
    let mut text = format!(
        "[limits]\nfail_fast = false\n\
         [defaults.retry]\nmax_attempts = 5\ninitial_interval = \"4ms\"\nmax_interval = \"4ms\"\n{more}\n"
    );
    for (name, (provider, wire)) in [("first", first), ("second", second)] {
        let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
        text.push_str(&format!(
            "[providers.{name}]\nkind = \"{kind}\"\nbase_url = \"{}\"\napi_key = {{ env = \"TEST_KEY\" }}\n\
             [models.{name}]\nprovider = \"{name}\"\nmodel = \"{name}-1\"\n\
             cost_per_mtok = {{ input = 1.0, output = 10.0 }}\n",
            provider.url_for(wire)
        ));
        if name == "first" {
            text.push_str("fallbacks = [\"second\"]\n");
        }
    }
    text.push_str(
        "[agents.worker]\nmodel = \"first\"\ninstructions = \"Work.\"\ntools = [\"note\"]\n",
    );
    for task in 1..=tasks {
        text.push_str(&format!("[tasks.t{task}]\nagent = \"worker\"\nprompt = \"Go {task}.\"\n"));
    }
    text
}

fn note() -> Arc<FakeTool> {
    FakeTool::new("note", Effect::Once, |_, _| async { Ok(ToolOutput::ok("noted")) })
}

/// A refusal with status 400 in these words.
fn bad_request(words: &str) -> Fault {
    let error = json!({"type": "invalid_request_error", "message": words});
    let body = json!({"type": "error", "error": error}).to_string();
    Fault::Http { status: 400, headers: Vec::new(), body }
}

/// The kinds of the failed attempts of all agents, with the model that was called next.
fn failures(ended: &Ended) -> Vec<(FailureKind, Option<String>)> {
    let failed = ended.records.iter().filter_map(|record| match &record.event {
        Event::ModelFailed(failed) => {
            let next = failed.next_model.as_ref().map(ToString::to_string);
            Some((failed.failure.kind, next))
        }
        _ => None,
    });
    failed.collect()
}

/// The models that replied, in order.
fn replied(ended: &Ended) -> Vec<String> {
    let replies = ended.records.iter().filter_map(|record| match &record.event {
        Event::ModelResponded(reply) => Some(reply.model.to_string()),
        _ => None,
    });
    replies.collect()
}

#[tokio::test]
async fn a_conversation_goes_on_with_another_model() {
    let faults = [
        (Fault::Overloaded, 3),
        (Fault::StallBeforeHead, 3),
        (Fault::Cut(FaultAt::InFirstBlock), 3),
        (Fault::BadKey, 1),
        (Fault::NoQuota, 1),
        // What several services answer with status 400.
        (bad_request("The requested model 'first-1' does not exist."), 1),
        (bad_request("API key not valid. Please pass a valid API key."), 1),
        (bad_request("You have reached your specified API usage limits."), 1),
    ];
    for (one, other) in [(Wire::Anthropic, Wire::OpenAi), (Wire::OpenAi, Wire::Anthropic)] {
        for (fault, attempts) in &faults {
            // Only the silence of the first provider is waited for.
            let patience = match fault {
                Fault::StallBeforeHead => "2s",
                _ => "120s",
            };
            let fault = fault.clone();
            let first = Provider::start(move |asked: &Asked| match asked.messages().len() {
                1 => Answer::default().and_thinking("hm", "sig").and_tool("note", json!({"n": 1})),
                _ => Answer::text("a text that is cut")
                    .paced(4, Duration::from_millis(1))
                    .with(fault.clone()),
            })
            .await;
            let usage = Usage { input: 1_000, output: 100, ..Usage::default() };
            let second = Provider::start(move |asked: &Asked| match asked.messages().len() {
                3 => Answer::default()
                    .and_thinking("well", "other")
                    .and_tool("note", json!({"n": 2}))
                    .costing(usage),
                _ => Answer::text("done").costing(usage),
            })
            .await;
            let note = note();
            let more = "[defaults]\nidle_timeout = \"120s\"";
            let text = graph((&first, one), (&second, other), 1, "")
                .replace("[limits]", &format!("{more}\n[limits]"));
            let text = text.replace(
                "[providers.first]",
                &format!("[providers.first]\nfirst_byte_timeout = \"{patience}\""),
            );
            let ended = Setup::new().tool(&note).run(&text).await;
            let case = format!("{one:?} {:?}", failures(&ended));
            assert_eq!(ended.output("t1"), "done", "{case}");
            assert_eq!(note.calls(), 2, "{case}");
            // The model that was given up is not asked again by the next turn.
            assert_eq!((first.count(), second.count()), (1 + attempts, 2), "{case}");
            let failures = failures(&ended);
            assert_eq!(failures.len(), *attempts, "{case}");
            assert_eq!(
                failures.last().and_then(|(_, next)| next.as_deref()),
                Some("second"),
                "{case}"
            );
            assert_eq!(replied(&ended), ["first", "second", "second"], "{case}");
            for asked in second.requests() {
                assert_eq!(unsendable(&asked.messages()), None, "{case}");
                assert_eq!(asked.model(), "second-1");
                let body = String::from_utf8_lossy(&asked.body).into_owned();
                assert!(!body.contains("hm") && !body.contains("well"), "no thinking: {body}");
                assert!(body.contains("noted"), "the conversation is carried over: {body}");
            }
            let paused = ended.records.iter().find_map(|record| match &record.event {
                Event::RunPaused(paused) => Some(paused),
                _ => None,
            });
            assert_eq!(paused, None, "{case}");
            let cost = ended.completed().cost_usd.expect("prices");
            assert!(cost >= 2.0 * (1_000.0 + 1_000.0) / 1e6, "{case}: {cost}");
        }
    }
}

#[tokio::test]
async fn twenty_agents_leave_a_provider_without_quota_at_once() {
    let first = Provider::script(vec![Answer::fault(Fault::NoQuota)]).await;
    let second = Provider::script(vec![Answer::text("done")]).await;
    let text = graph((&first, Wire::OpenAi), (&second, Wire::Anthropic), 20, "");
    let text = text.replace("[limits]", "[limits]\nmax_concurrency = 20");
    let ended = Setup::new().tool(&note()).run(&text).await;
    assert_eq!(ended.completed().status, RunStatus::Completed);
    assert_eq!(second.count(), 20);
    assert!(first.count() <= 8, "only calls that were under way are refused: {}", first.count());
    assert!(failures(&ended).iter().all(|(_, next)| next.as_deref() == Some("second")));
}

#[tokio::test]
async fn the_first_model_is_called_again_when_it_is_well() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let ill = is_ill.clone();
    let first = Fake::new(move |request| match (ill.load(Ordering::SeqCst), request.turn) {
        (true, _) => Act::Fail(ErrorClass::Overloaded),
        (false, 4) => Act::say("done"),
        (false, _) => Act::tool("pass", json!({})),
    });
    let second = Fake::new(|_| Act::tool("pass", json!({})));
    // The cooldown passes in each call of the tool; the model is well again after the second.
    let pass = FakeTool::new("pass", Effect::Pure, move |count, _| {
        let is_ill = is_ill.clone();
        async move {
            tokio::time::sleep(COOLDOWN).await;
            is_ill.store(count < 2, Ordering::SeqCst);
            Ok(ToolOutput::ok("time passed"))
        }
    });
    let text = format!(
        "[models.first]\nfallbacks = [\"second\"]\nfallback_cooldown = \"{}ms\"\n[models.second]\n\
         [agents.worker]\nmodel = \"first\"\ninstructions = \"Work.\"\ntools = [\"pass\"]\n\
         [tasks.t1]\nagent = \"worker\"\nprompt = \"Go.\"\n",
        COOLDOWN.as_millis()
    );
    let setup = Setup::new().model("first", &first).model("second", &second).tool(&pass);
    let ended = setup.run(&text).await;
    assert_eq!(ended.output("t1"), "done");
    assert_eq!(replied(&ended), ["second", "second", "first", "first"]);
    // Three attempts, and one of the call that tried it after the cooldown.
    assert_eq!(failures(&ended).len(), 4, "{:?}", failures(&ended));
}
