//! The truth of the bill: a request whose process is killed is counted, and a call that is cut costs what its
//! stream had told.

use std::time::Duration;

use callsheet::message::Usage;
use serde_json::Value;

use crate::support::answer::Answer;
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, Live, lines, wait};
use crate::support::provider::Provider;

/// The tokens of the request, as the provider counts them.
const READ: Usage = Usage { input: 50_000, output: 10, cache_read: 0, cache_write: 0 };

/// An answer that begins and never comes to its end.
fn endless() -> Answer {
    let pause = Duration::from_millis(20);
    Answer { usage: Some(READ), delta_chars: 4, pause, ..Answer::text("word ".repeat(100_000)) }
}

/// A provider that ends only the answers from this one on.
async fn provider(ends_from: usize) -> Provider {
    let answer = move |asked: &Asked| match asked.count >= ends_from {
        true => Answer { usage: Some(READ), ..Answer::text("done") },
        false => endless(),
    };
    Provider::start(answer).await
}

fn desk(provider: &Provider, wire: Wire, task: &str) -> Desk {
    let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    let desk = Desk::empty();
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = \"desk\"\n[limits]\ngrace_period = \"200ms\"\n\
             [providers.main]\nkind = \"{kind}\"\nbase_url = \"{}\"\n\
             [models.main]\nprovider = \"main\"\nmodel = \"m\"\nmax_output_tokens = 1000\n\
             cost_per_mtok = {{ input = 1.0, output = 2.0 }}\n\
             [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\n\
             [tasks.one]\nagent = \"worker\"\nprompt = \"Go.\"\n{task}",
            provider.url_for(wire)
        ),
    );
    desk
}

fn of(desk: &Desk, kind: &str) -> Vec<Value> {
    let run = desk.runs().pop().expect("a run");
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).expect("a journal");
    lines(&journal).into_iter().filter(|event| event["type"] == kind).collect()
}

/// The own sums of the only agent.
fn bill(desk: &Desk) -> Value {
    desk.json(&["cost", "--by", "agent", "--json"])[0]["own"].clone()
}

/// Waits until the program has read a part of the text.
fn wait_for_text(desk: &Desk) {
    let path = desk.path().join("text");
    let out = std::fs::File::create(&path).expect("a file");
    let mut follow = desk.command(&["tail", "-f", "--deltas", "-n", "0"]);
    let follower = Live::of(follow.stdout(out).spawn().expect("it starts"));
    wait("text of the model", || {
        std::fs::read_to_string(&path).ok()?.contains("word").then_some(())
    });
    drop(follower);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_of_a_killed_process_is_counted() {
    let provider = provider(4).await;
    let desk = desk(&provider, Wire::Anthropic, "");
    for killed in 1..=3 {
        let mut live = desk.start(&[if killed == 1 { "run" } else { "resume" }]);
        wait("the request", || (provider.count() == killed).then_some(()));
        assert_eq!(bill(&desk)["unsettled_requests"], killed - 1, "one is under way");
        live.signal("KILL");
        wait("the end", || live.has_ended().then_some(()));
        let bill = bill(&desk);
        assert_eq!(
            (&bill["requests"], &bill["unsettled_requests"]),
            (&killed.into(), &killed.into())
        );
    }
    let resumed = desk.call(&["resume"]);
    assert_eq!((resumed.code, provider.count()), (0, 4), "{}", resumed.err);

    let requested = of(&desk, "model.requested");
    let attempts: Vec<_> = requested.iter().map(|event| &event["data"]["attempt"]).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    assert_eq!(of(&desk, "model.responded").len(), 1);
    let most: f64 = requested[..3].iter().filter_map(|e| e["data"]["most_usd"].as_f64()).sum();
    let bill = bill(&desk);
    assert_eq!((&bill["requests"], &bill["unsettled_requests"]), (&4.into(), &3.into()));
    assert_eq!((&bill["input"], &bill["cost_usd"]), (&50_000.into(), &0.050_02.into()));
    let unsettled = bill["unsettled_usd"].as_f64().expect("a price");
    assert!(unsettled > 3.0 * 0.002 && (unsettled - most).abs() < 1e-9, "{unsettled} {most}");

    for by in ["agent", "task", "model"] {
        let rows = desk.json(&["cost", "--by", by, "--json"]);
        let sums: Vec<_> = rows.iter().map(|row| &row["inclusive"]["unsettled_requests"]).collect();
        assert_eq!(sums, [3], "{by}");
    }
    let told = "not included: the unknown cost of 3 requests";
    for verb in [&["cost"][..], &["show"], &["show", "/@one"], &["show", "@one"], &["report"]] {
        let Some(text) = Some(desk.call(verb)).filter(|done| done.code == 0) else { continue };
        assert!(text.out.contains(told), "{verb:?}: {}", text.out);
    }
    assert!(desk.good(&["cost"]).contains("UNSETTLED"));
    assert!(desk.good(&["ps"]).contains("$0.0500+"), "{}", desk.good(&["ps"]));
    for row in desk.json(&["ps", "--json"]) {
        assert_eq!(row["unsettled_usd"].as_f64(), Some(unsettled), "{row}");
    }
}

/// How a call is cut, and the exit code of the program.
const CUTS: [(&str, i32); 4] = [("cancel", 1), ("timeout", 5), ("INT", 130), ("TERM", 143)];

/// Cuts a call after a part of its stream; returns what settled it.
fn cut(desk: &Desk, how: &str, code: i32) -> Value {
    let live = desk.start(&["run"]);
    if how != "timeout" {
        desk.wait_for_event("model.requested", |_| true);
        wait_for_text(desk);
    }
    match how {
        "cancel" => drop(desk.good(&["cancel", "desk"])),
        "timeout" => {}
        signal => live.signal(signal),
    }
    let done = live.end();
    assert_eq!(done.code, code, "{how}: {}", done.err);
    let failed = of(desk, "model.failed");
    let [failed] = failed.as_slice() else { panic!("{how}: {failed:?}") };
    assert_eq!(
        (&failed["data"]["cut"], of(desk, "model.responded").len()),
        (&true.into(), 0),
        "{how}"
    );
    let bill = bill(desk);
    // What it may have cost beyond stays on the bill, unless the provider had counted more than it could cost.
    let is_open = u64::from(!failed["data"]["unsettled"].is_null());
    let requests = (&bill["requests"], &bill["unsettled_requests"]);
    assert_eq!(requests, (&1.into(), &is_open.into()), "{how}");
    let spent = &failed["data"]["spent"];
    assert_eq!((&bill["input"], &bill["cost_usd"]), (&spent["usage"]["input"], &spent["cost_usd"]));
    assert!(
        spent["usage"]["output"].as_u64() > Some(0),
        "{how}: what was written counts: {failed}"
    );
    failed["data"].clone()
}

async fn cuts(wire: Wire) {
    let provider = provider(usize::MAX).await;
    for (how, code) in CUTS {
        let task = if how == "timeout" { "timeout = \"4s\"\n" } else { "" };
        let desk = desk(&provider, wire, task);
        let desk = tokio::task::spawn_blocking(move || {
            let failed = cut(&desk, how, code);
            let input = &failed["spent"]["usage"]["input"];
            match wire {
                Wire::Anthropic => {
                    assert_eq!(
                        (input, failed.get("usage_source")),
                        (&50_000.into(), None),
                        "{how}"
                    );
                }
                // It tells its count at the end only.
                Wire::OpenAi => {
                    let expected = &of(&desk, "model.requested")[0]["data"]["expected_tokens"];
                    assert_eq!((input, &failed["usage_source"]), (expected, &"expected".into()));
                    let open = &failed["unsettled"]["tokens"];
                    assert!(open.as_u64() > Some(0), "{how}: nobody counted it: {failed}");
                }
            }
            (desk, failed)
        });
        let (desk, failed) = desk.await.expect("it is cut");
        if how == "TERM" {
            // The same request sent again is another one, and the cut one stays on the bill.
            let paid = failed["spent"]["cost_usd"].as_f64().expect("a price");
            let live = desk.start(&["resume"]);
            wait("another request", || (of(&desk, "model.requested").len() == 2).then_some(()));
            assert_eq!(of(&desk, "model.requested")[1]["data"]["attempt"], 2);
            assert_eq!(bill(&desk)["cost_usd"].as_f64(), Some(paid));
            drop(live);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_cut_costs_what_its_stream_had_told() {
    cuts(Wire::Anthropic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_cut_costs_an_estimate_where_nothing_was_told() {
    cuts(Wire::OpenAi).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_under_way_at_the_place_of_a_fork_is_in_the_bill_of_the_other_run() {
    let provider = provider(1).await;
    let desk = desk(&provider, Wire::Anthropic, "");
    let run = desk.call(&["run"]);
    assert_eq!((run.code, provider.count()), (0, 1), "{}", run.err);
    let seq = of(&desk, "model.requested")[0]["seq"].clone();
    let fork = desk.call(&["fork", &format!("desk@{seq}")]);
    assert_eq!((fork.code, provider.count()), (0, 2), "{}", fork.err);
    for by in ["agent", "task", "model"] {
        let bill = desk.json(&["cost", "--by", by, "--json"])[0]["inclusive"].clone();
        assert_eq!(
            (&bill["requests"], &bill["unsettled_requests"]),
            (&1.into(), &0.into()),
            "{by}"
        );
    }
    assert!(!desk.good(&["cost"]).contains("not included"), "{}", desk.good(&["cost"]));
}
