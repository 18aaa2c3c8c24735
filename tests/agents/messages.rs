//! Messages between agents, and from people: each is read once or returned once, whatever dies.
//!
//! The provider is the judge: it sees what the agents read. The records only say what was returned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use callsheet::message::{Block, Message, ResultContent, Role};
use serde_json::json;

use crate::support::answer::Answer;
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, wait};
use crate::support::provider::Provider;

/// A workspace whose agents may write to each other.
fn desk(provider: &Provider, rest: &str) -> Desk {
    let desk = Desk::empty();
    let url = provider.url_for(Wire::Anthropic);
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = \"desk\"\n[permissions]\nallow = [\"bash\", \"delegate\"]\n\
             [providers.main]\nkind = \"anthropic\"\nbase_url = \"{url}\"\n\
             [models.main]\nprovider = \"main\"\nmodel = \"m\"\ncontext_window = 4000000\n\
             [agents.writer]\nmodel = \"main\"\ninstructions = \"Write.\"\nmax_turns = 10000\n\
             messages = \"run\"\n\
             [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"bash\"]\n{rest}"
        ),
    );
    desk
}

/// Returns a number that follows from these ones, and that nobody would guess.
fn drawn(parts: &[usize]) -> usize {
    let text: String = parts.iter().map(|part| format!("{part} ")).collect();
    fastrand::Rng::with_seed(text.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte)))
        .usize(..1 << 20)
}

/// How many messages a writer sends in one reply.
const A_TURN: usize = 5;

/// The number of a writer, from its prompt.
fn number(messages: &[Message]) -> usize {
    let prompt = messages[0].text();
    let number = prompt.split("writer ").nth(1).and_then(|rest| rest.get(..2));
    number.and_then(|number| number.parse().ok()).expect("the prompt has the number")
}

/// Plays a writer that sends so many messages to some of so many others, and to some that there are not.
fn writer(asked: &Asked, writers: usize, sends: usize) -> Answer {
    let messages = asked.messages();
    let me = number(&messages);
    let calls = messages.iter().flat_map(|message| message.tool_calls()).count();
    if calls >= sends {
        return Answer::text("done");
    }
    let mut answer = Answer::default();
    for n in calls..(calls + A_TURN).min(sends) {
        let to = match drawn(&[me, n]) % (writers + 1) {
            none if none == writers => "nobody".to_owned(),
            other => format!("@w{other:02}"),
        };
        let size = [1, 10, 100, 2_000][drawn(&[me, n, 1]) % 4];
        let text = format!("{me:02} says {n} {}", "x".repeat(size));
        answer = answer.and_tool("send_message", json!({"to": to, "text": text}));
    }
    answer
}

/// What the requests of a run say.
#[derive(Default)]
struct Seen {
    /// The place at which each message stands: the reader, and the number of the message of its conversation.
    read: BTreeMap<u64, (usize, usize)>,
    /// The text of each.
    texts: BTreeMap<u64, String>,
    /// The messages that a sender knows to be queued, with their text.
    queued: BTreeMap<u64, String>,
    /// The errors that senders read.
    errors: Vec<String>,
}

impl Seen {
    fn of(requests: &[Asked]) -> Self {
        let mut seen = Self::default();
        for asked in requests {
            seen.take(&asked.messages());
        }
        seen
    }

    fn take(&mut self, messages: &[Message]) {
        let me = number(messages);
        let mut here = BTreeSet::new();
        let mut calls = BTreeMap::new();
        for (place, message) in messages.iter().enumerate() {
            for call in message.tool_calls() {
                let text = call.input.to_value()["text"].as_str().expect("a text").to_owned();
                calls.insert(call.id.clone(), text);
            }
            for block in &message.content {
                match block {
                    Block::Text(text) if message.role == Role::User => {
                        for part in text.split("<message id=\"m").skip(1) {
                            let (id, rest) = part.split_once('"').expect("an id");
                            let id = id.parse().expect("a number");
                            assert!(here.insert(id), "m{id} stands twice in a request of {me}");
                            let text = rest.split_once(">\n").expect("its text").1;
                            let text = text.split("\n</message>").next().expect("its end");
                            let at = self.read.entry(id).or_insert((me, place));
                            assert_eq!(*at, (me, place), "m{id} moved");
                            self.texts.insert(id, text.to_owned());
                        }
                    }
                    Block::ToolResult(result) => {
                        let ResultContent::Text(text) = &result.content else { continue };
                        let sent = calls[&result.tool_use_id].clone();
                        match text.strip_prefix('m').and_then(|rest| rest.split_once(' ')) {
                            Some((id, _)) => {
                                let id = id.parse().expect("a number");
                                let before = self.queued.insert(id, sent.clone());
                                assert!(before.is_none_or(|before| before == sent), "m{id} is two");
                            }
                            None => self.errors.push(text.clone()),
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Lets writers write while their process is killed so often, and checks what they read.
async fn writers_and_kills(writers: usize, sends: usize, kills: usize) {
    let provider = Provider::start(move |asked: &Asked| writer(asked, writers, sends)).await;
    let mut tasks = format!("[limits]\nmax_concurrency = {writers}\n");
    for number in 0..writers {
        tasks += &format!(
            "[tasks.w{number:02}]\nagent = \"writer\"\nprompt = \"You are writer {number:02}.\"\n"
        );
    }
    let desk = desk(&provider, &tasks);
    let mut rng = fastrand::Rng::with_seed(writers as u64);
    // Where a run without kills ends, about: half of a message's journal is its text.
    let most = (writers * sends * 2_500) as u64;
    let written = || {
        let journal = desk.runs().into_iter().next().map(|run| run.join("journal.jsonl"));
        journal.and_then(|file| file.metadata().ok()).map_or(0, |file| file.len())
    };
    let mut killed = 0;
    let end = loop {
        let mut live = desk.start(&[if killed == 0 { "run" } else { "resume" }]);
        if killed == kills {
            break live.end_within(Duration::from_secs(300));
        }
        let at = written() + rng.u64(1..most / kills as u64);
        let has_ended = wait("so many bytes, or the end", || match live.has_ended() {
            true => Some(true),
            false => (written() >= at).then_some(false),
        });
        if has_ended {
            break live.end();
        }
        live.signal("KILL");
        wait("the end", || live.has_ended().then_some(()));
        killed += 1;
    };
    assert_eq!(end.code, 0, "{}", end.err);
    assert!(killed * 2 > kills, "it was killed {killed} times only");

    let seen = Seen::of(&provider.requests());
    let events = desk.json(&["tail", "--json"]);
    let returned = events.iter().filter(|event| event["type"] == "message.returned");
    let returned: Vec<u64> = returned
        .map(|event| event["data"]["id"].as_str().expect("an id")[1..].parse().expect("a number"))
        .collect();
    let unique: BTreeSet<_> = returned.iter().copied().collect();
    assert_eq!(returned.len(), unique.len(), "returned twice");
    let read: BTreeSet<_> = seen.read.keys().copied().collect();
    assert!(read.is_disjoint(&unique), "read and returned");
    // The run's own words, about messages that were returned, have no sender who knows of them.
    let of_run = |id: &u64| seen.texts.get(id).is_some_and(|text| text.starts_with("Not read:"));
    let ends: BTreeSet<_> = read.union(&unique).filter(|id| !of_run(id)).copied().collect();
    let told: BTreeSet<_> = seen.queued.keys().copied().collect();
    let missing: Vec<_> = told.difference(&ends).collect();
    assert!(missing.is_empty(), "lost: {missing:?}");
    let unknown: BTreeSet<_> = ends.difference(&told).copied().collect();
    let by_run: BTreeSet<u64> = events
        .iter()
        .filter(|event| event["type"] == "message.sent" && event["data"]["from"]["kind"] == "run")
        .map(|event| event["data"]["id"].as_str().expect("an id")[1..].parse().expect("a number"))
        .collect();
    assert!(unknown.is_subset(&by_run), "nobody sent {unknown:?}");
    for (id, text) in &seen.texts {
        assert!(of_run(id) || seen.queued[id] == *text, "m{id} is {text:?}");
    }
    for error in &seen.errors {
        let is_known =
            ["there is no agent", "has ended", "is about to end", "is full", "that is you"];
        assert!(is_known.iter().any(|known| error.contains(known)), "{error}");
    }
    // A pair's messages are read in the order in which they were sent.
    let mut last = BTreeMap::new();
    let mut in_order: Vec<_> = seen.read.iter().collect();
    in_order.sort_by_key(|(id, at)| (at.1, **id));
    for (id, (reader, _)) in in_order {
        let Some((sender, rest)) = seen.texts[id].split_once(" says ") else { continue };
        let n: usize = rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        let before = last.insert((sender.to_owned(), *reader), n);
        assert!(before < Some(n), "{sender} to {reader}: {n} after {before:?}");
    }
    assert!(seen.read.len() * 2 > seen.queued.len(), "hardly anything is read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_read_once_or_returned_once_over_kills() {
    writers_and_kills(6, 30, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes about fifteen minutes: 32 agents send 1,000 messages each, over 30 kills"]
async fn thousands_of_messages_are_read_once_or_returned_once_over_kills() {
    writers_and_kills(32, 1_000, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_speaks_to_an_agent_at_work_and_after_a_kill() {
    let provider = Provider::start(|asked: &Asked| {
        let heard = asked.messages().iter().map(Message::text).collect::<String>();
        match heard.contains("stop it") {
            true => Answer::text("I stopped"),
            false => Answer::tool("bash", json!({"command": "sleep 0.05"})),
        }
    })
    .await;
    let tasks =
        "[tasks.one]\nagent = \"worker\"\nprompt = \"Go.\"\n[tasks.two]\nrun = \"sleep 60\"\n";
    let desk = desk(&provider, tasks);
    let mut live = desk.start(&["run"]);
    wait("the agent", || (provider.count() > 2).then_some(()));
    let said = desk.call(&["say", "desk/@one", "use", "tabs"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let begins = said.err.starts_with("m1 is queued for @one of run ");
    assert!(
        begins && said.err.trim().ends_with(": it reads it before its next step"),
        "{}",
        said.err
    );
    let read = "<message id=\"m1\" from=\"person\">\nuse tabs\n</message>";
    wait("its request", || {
        let requests = provider.requests();
        let last = requests.last().expect("requests").messages();
        last.iter().any(|message| message.text().contains(read)).then_some(())
    });

    // Whom it cannot reach is named, and nothing is recorded.
    for (to, text, why) in [
        ("desk/@gone", "x", "the run has no agent `gone`; running: @one"),
        ("desk/@two", "x", "`two` is a command, which reads no messages"),
        ("desk/@one", " ", "the text is blank"),
        ("desk/one", "x", "a message goes to an agent: RUN/@AGENT"),
    ] {
        let refused = desk.call(&["say", to, text]);
        assert!(refused.code != 0 && refused.err.contains(why), "{to}: {}", refused.err);
    }
    live.signal("KILL");
    wait("the end", || live.has_ended().then_some(()));
    let left = desk.call(&["say", "desk/@one", "stop it"]);
    assert_eq!(left.code, 0, "{}", left.err);
    assert!(left.err.contains("recorded for @one; no process drives the run"), "{}", left.err);
    let live = desk.start(&["resume"]);
    wait("the answer", || desk.good(&["show", "desk/one"]).contains("completed").then_some(()));
    assert_eq!(desk.good(&["show", "desk/one", "--output"]).trim(), "I stopped");
    let late = desk.call(&["say", "desk/@one", "more"]);
    assert!(late.code != 0 && late.err.contains("@one has ended"), "{}", late.err);
    let events = desk.json(&["tail", "--json"]);
    let kinds = events.iter().filter_map(|event| event["type"].as_str());
    let kinds: Vec<_> = kinds.filter(|kind| kind.starts_with("message.")).collect();
    assert_eq!(
        kinds,
        ["message.sent", "message.delivered", "message.sent", "message.delivered"],
        "{kinds:?}"
    );
    let tail = desk.good(&["tail"]);
    assert!(tail.contains("use tabs") && tail.contains("reads m1 in turn"), "{tail}");
    desk.good(&["cancel", "desk"]);
    live.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_cut_for_what_a_person_says_now_and_the_bill_has_it() {
    let provider = Provider::start(|asked: &Asked| {
        let heard = asked.messages().iter().map(Message::text).collect::<String>();
        match heard.contains("be brief") {
            true => Answer::text("short"),
            // It would take half an hour.
            false => Answer::text("word ".repeat(100_000)).paced(4, Duration::from_millis(20)),
        }
    })
    .await;
    let desk = desk(&provider, "[tasks.one]\nagent = \"worker\"\nprompt = \"Go.\"\n");
    let live = desk.start(&["run"]);
    wait("the request", || (provider.count() > 0).then_some(()));
    let waits = desk.call(&["say", "desk/@one", "take your time"]);
    assert_eq!(waits.code, 0, "{}", waits.err);
    assert_eq!(provider.count(), 1, "it cuts nothing");
    let said = desk.call(&["say", "desk/@one", "--now", "be", "brief"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(live.end().code, 0);
    assert_eq!(desk.good(&["show", "desk/one", "--output"]).trim(), "short");
    assert_eq!(provider.count(), 2);
    let events = desk.json(&["tail", "--json"]);
    let cut = events.iter().find(|event| event["type"] == "model.failed").expect("it was cut");
    assert_eq!(cut["data"]["cut"], true, "{cut}");
    assert!(cut["data"]["spent"].is_object() || cut["data"]["unsettled"].is_object(), "{cut}");
    let delivered = events.iter().find(|event| event["type"] == "message.delivered");
    assert_eq!(delivered.expect("it is read")["data"]["ids"], json!(["m1", "m2"]));
}
