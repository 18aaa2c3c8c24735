//! A person lets parts of a run rest, and lets them go on. The provider sees who calls it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callsheet::message::Message;
use serde_json::json;

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, wait};
use crate::support::provider::Provider;

/// A workspace with two agents that work until their file is there, and a command that comes after one.
fn desk(provider: &Provider) -> Desk {
    let desk = Desk::empty();
    let url = provider.url_for(Wire::Anthropic);
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = \"desk\"\n[permissions]\nallow = [\"bash\"]\n\
             [providers.main]\nkind = \"anthropic\"\nbase_url = \"{url}\"\n\
             [models.main]\nprovider = \"main\"\nmodel = \"m\"\n\
             [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"bash\"]\nmax_turns = 100000\n\
             [agents.worker.loops]\nenabled = false\n\
             [tasks.one]\nagent = \"worker\"\nprompt = \"You are number one.\"\n\
             [tasks.two]\nagent = \"worker\"\nprompt = \"You are number two.\"\n\
             [tasks.then]\nrun = \"echo then\"\ndepends_on = [\"two\"]\n"
        ),
    );
    desk
}

/// Works until the file of the agent is there.
fn work(asked: &Asked) -> Answer {
    let messages = asked.messages();
    let me = if messages[0].text().contains("number one") { "one" } else { "two" };
    let heard = messages.iter().map(Message::text).collect::<String>();
    let seen = serde_json::to_string(&messages).expect("JSON");
    match heard.contains("enough") || seen.contains(&format!("{me}-ends")) {
        true => Answer::text(format!("{me} is done")),
        false => {
            Answer::tool("bash", json!({"command": format!("sleep 0.05; ls; date +%N # {me}")}))
        }
    }
}

/// Number of requests of an agent.
fn calls(provider: &Provider, of: &str) -> usize {
    let is_of = |asked: &&Asked| asked.messages()[0].text().contains(of);
    provider.requests().iter().filter(is_of).count()
}

/// Waits until an agent makes no call for half a second while another does.
fn until_it_rests(provider: &Provider, of: &str) -> usize {
    wait("a rest", || {
        let before = calls(provider, of);
        std::thread::sleep(Duration::from_millis(500));
        (calls(provider, of) == before).then_some(before)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_pauses_rests_over_a_kill_and_goes_on_where_it_was() {
    let provider = Provider::start(work).await;
    let desk = desk(&provider);
    let mut live = desk.start(&["run"]);
    wait("both agents", || {
        (calls(&provider, "one") > 2 && calls(&provider, "two") > 2).then_some(())
    });
    let paused = desk.call(&["pause", "desk/@one", "--reason", "I look at it"]);
    assert_eq!(paused.code, 0, "{}", paused.err);
    assert!(
        paused.err.starts_with("agent `one` is paused: what is under way ends"),
        "{}",
        paused.err
    );
    assert!(paused.err.contains("callsheet unpause"), "{}", paused.err);
    let rest = until_it_rests(&provider, "one");
    let others = calls(&provider, "two");
    wait("the other goes on", || (calls(&provider, "two") > others).then_some(()));
    assert_eq!(calls(&provider, "one"), rest);
    let again = desk.call(&["pause", "desk/@one"]);
    assert!(again.code == 0 && again.err.contains("is paused already"), "{}", again.err);

    // Whoever looks sees why, and what ends it.
    let why = desk.good(&["why", "desk/@one"]);
    assert!(why.contains("agent `one` is paused by") && why.contains("I look at it"), "{why}");
    assert!(why.contains("callsheet unpause"), "{why}");
    let pending = desk.good(&["pending"]);
    assert!(
        pending.contains("pause  of agent `one`") && pending.contains("I look at it"),
        "{pending}"
    );
    let rows = desk.json(&["pending", "--json"]);
    assert_eq!((&rows[0]["kind"], &rows[0]["agent"]), (&json!("pause"), &json!("one")));
    let ps = desk.good(&["ps", "--tree"]);
    assert!(ps.contains("paused by"), "{ps}");

    live.signal("KILL");
    wait("the end", || live.has_ended().then_some(()));
    // The other one is paused while nobody drives the run, as a task.
    let left = desk.call(&["pause", "desk/two"]);
    assert!(left.code == 0 && left.err.contains("from the next resume on"), "{}", left.err);
    let live = desk.start(&["resume"]);
    wait("the pause is recorded", || {
        desk.good(&["pending"]).contains("pause  of task `two`").then_some(())
    });
    let two = until_it_rests(&provider, "two");
    assert_eq!(calls(&provider, "one"), rest, "it rests after a kill too");

    // A message waits with it.
    assert_eq!(desk.call(&["say", "desk/@one", "enough"]).code, 0);
    let of_run = desk.call(&["unpause", "desk"]);
    assert!(
        of_run.code == 0 && of_run.err.contains("the run is not paused itself"),
        "{}",
        of_run.err
    );
    assert!(of_run.err.contains("agent `one` is paused too"), "{}", of_run.err);
    let on = desk.call(&["unpause", "desk/@one"]);
    assert!(on.code == 0 && on.err.contains("agent `one` is unpaused: it goes on"), "{}", on.err);
    wait("its answer", || desk.good(&["show", "desk/one"]).contains("completed").then_some(()));
    assert_eq!(calls(&provider, "two"), two);
    desk.write("two-ends", "");
    assert_eq!(desk.call(&["unpause", "desk/two"]).code, 0);
    let end = live.end();
    assert_eq!(end.code, 0, "{}", end.err);
    assert_eq!(desk.good(&["show", "desk/then", "--output"]).trim(), "then");
    let log = desk.good(&["tail"]);
    assert!(log.contains("agent `one` paused by"), "{log}");

    // What has ended, and what there is not, is not paused.
    for (what, why) in [
        ("desk", "the run has ended"),
        ("desk/one", "the run has ended"),
        ("desk/@one", "the run has ended"),
        ("gone/one", "gone"),
    ] {
        let refused = desk.call(&["pause", what]);
        assert!(refused.code != 0 && refused.err.contains(why), "{what}: {}", refused.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_rests_between_two_attempts_keeps_no_permit_of_its_provider() {
    let has_failed = AtomicBool::new(false);
    let provider = Provider::start(move |asked: &Asked| {
        let is_one = asked.messages()[0].text().contains("number one");
        match is_one && !has_failed.swap(true, Ordering::Relaxed) {
            // It waits long enough to be paused meanwhile.
            true => Answer::fault(Fault::Http {
                status: 500,
                headers: vec![("retry-after".to_owned(), "3".to_owned())],
                body: "{}".to_owned(),
            }),
            false => work(asked),
        }
    })
    .await;
    let desk = desk(&provider);
    let text = desk.read("agents.toml");
    let one = "[providers.main.rate_limit]\nmax_concurrency = 1\n[models.main]";
    desk.write("agents.toml", &text.replace("[models.main]", one));
    let live = desk.start(&["run"]);
    wait("the failure", || desk.good(&["ps", "--tree"]).contains("retrying in").then_some(()));
    assert_eq!(desk.call(&["pause", "desk/@one"]).code, 0);
    // Its pause between attempts is over after a few seconds, and the other goes on all the same.
    let before = calls(&provider, "two");
    wait("the other", || (calls(&provider, "two") > before + 100).then_some(()));
    assert_eq!(calls(&provider, "one"), 1);
    for agent in ["one", "two"] {
        desk.write(&format!("{agent}-ends"), "");
    }
    assert_eq!(desk.call(&["unpause", "desk/@one"]).code, 0);
    assert_eq!(live.end().code, 0);
}
