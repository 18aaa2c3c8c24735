//! Every fault of a provider on both wires: once, always, and once for each of twenty agents.
//!
//! In none is an answer lost that was paid for, a turn used up, a wrong kind named, or a second call
//! made without a pause; and what the provider bills is what the run counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::message::Usage;
use callsheet::tool::ToolOutput;
use callsheet::turn::Effect;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::answer::{Answer, Fault, FaultAt};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{Ended, FakeTool, Setup, transcript, unsendable};
use crate::support::provider::Provider;

/// The pause before the second attempt.
const PAUSE: Duration = Duration::from_millis(60);

/// The most attempts of a call.
const ATTEMPTS: usize = 3;

/// The time for which a provider is ill when twenty agents call it: no longer than the attempts of a call
/// take, which begin at 0 and 60 ms.
const ILL: Duration = Duration::from_millis(100);

/// The silence after which a call is given up.
const SILENCE: &str = "5s";
/// Where no silence is the fault: a busy machine is not one.
const PATIENCE: &str = "60s";

/// What follows a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// The reply is whole: nothing failed.
    Whole,
    /// The same request is made again, after a pause.
    Again(FailureKind),
    /// The text that had come is kept, and the agent goes on after it, after a pause.
    Continued(FailureKind),
    /// A reply without words is asked for once more.
    AskedAgain(FailureKind),
    /// The same request would fail again, and is not made again.
    Fails(FailureKind),
}

/// How often the fault comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Often {
    Once,
    Always,
    /// Twenty agents at work, for each of which it comes once, or as long as the provider is ill.
    Twenty,
}

impl Often {
    fn agents(self) -> usize {
        if self == Self::Twenty { 20 } else { 1 }
    }
}

/// The faults, with what follows each on either wire.
fn faults() -> Vec<(Fault, [Then; 2])> {
    use FailureKind as Kind;
    use FaultAt::{InFirstBlock, InSecondBlock};
    use Then::{Again, AskedAgain, Continued, Fails, Whole};
    let both = |then| [then, then];
    let page = |status, body: &str| Fault::Http {
        status,
        headers: vec![("content-type".to_owned(), "text/html".to_owned())],
        body: body.to_owned(),
    };
    let moved = Fault::Http {
        status: 308,
        headers: vec![("location".to_owned(), "http://127.0.0.1:1/".to_owned())],
        body: String::new(),
    };
    // On the second wire a text is not known to be complete before something follows it.
    let broken = |kind| [Continued(kind), Continued(kind)];
    vec![
        (Fault::RateLimited(None), both(Again(Kind::RateLimit))),
        (Fault::RateLimited(Some("0.1".to_owned())), both(Again(Kind::RateLimit))),
        (Fault::NoQuota, both(Fails(Kind::Quota))),
        (Fault::Overloaded, [Again(Kind::Overloaded), Again(Kind::ServerError)]),
        (Fault::ServerError, both(Again(Kind::ServerError))),
        (page(502, "<html>proxy</html>"), both(Again(Kind::ServerError))),
        (page(404, "<html>nothing</html>"), both(Fails(Kind::InvalidRequest))),
        (page(200, "<html>welcome</html>"), both(Fails(Kind::InvalidRequest))),
        (moved, both(Fails(Kind::InvalidRequest))),
        (Fault::Pairing, both(Fails(Kind::InvalidRequest))),
        (Fault::BadKey, both(Fails(Kind::Auth))),
        (Fault::StallBeforeHead, both(Again(Kind::IdleTimeout))),
        (Fault::StallBeforeFirstByte, both(Again(Kind::IdleTimeout))),
        (Fault::Stall(InFirstBlock), both(Again(Kind::IdleTimeout))),
        (Fault::Stall(InSecondBlock), broken(Kind::IdleTimeout)),
        (Fault::Cut(InFirstBlock), both(Again(Kind::Connection))),
        (Fault::Cut(InSecondBlock), broken(Kind::Connection)),
        (Fault::Junk(InFirstBlock), both(Again(Kind::ServerError))),
        (Fault::Junk(InSecondBlock), broken(Kind::ServerError)),
        (Fault::ErrorEvent(InFirstBlock), both(Again(Kind::Overloaded))),
        (Fault::ErrorEvent(InSecondBlock), broken(Kind::Overloaded)),
        (Fault::Empty, both(AskedAgain(Kind::EmptyAnswer))),
        (Fault::Refusal("no".to_owned()), both(Fails(Kind::Refusal))),
        (Fault::NoEnd, both(Whole)),
        (Fault::NoUsage, both(Whole)),
        (Fault::Noise, both(Whole)),
        (Fault::Crlf, both(Whole)),
    ]
}

/// A provider's account: what it has billed, and the faults that it has made.
#[derive(Default)]
struct Ledger {
    billed: Usage,
    ill_until: Option<Instant>,
    agents: HashMap<String, Faults>,
}

/// The faults in the calls of one agent.
#[derive(Clone, Copy, Default)]
struct Faults {
    count: usize,
    last: Option<Instant>,
    /// The shortest time from a fault to the agent's next request.
    pause: Option<Duration>,
}

impl Ledger {
    /// Notes a request, and returns true if it meets the fault.
    fn meets_fault(&mut self, agent: &str, is_due: bool, often: Often, then: Then) -> bool {
        let faults = self.agents.entry(agent.to_owned()).or_default();
        if let Some(at) = faults.last.take() {
            let pause = at.elapsed();
            faults.pause = Some(faults.pause.map_or(pause, |least| least.min(pause)));
        }
        let heals = matches!(then, Then::Again(_) | Then::Continued(_));
        let is_ill = match often {
            Often::Always => true,
            Often::Twenty if heals => {
                *self.ill_until.get_or_insert_with(|| Instant::now() + ILL) > Instant::now()
            }
            Often::Once | Often::Twenty => faults.count == 0,
        };
        if is_due && is_ill {
            faults.count += 1;
            faults.last = Some(Instant::now());
        }
        is_due && is_ill
    }
}

/// The tokens that a provider bills for an answer.
fn bill(asked: &Asked, answer: &Answer) -> Usage {
    let read = asked.body.len() as u64 / 4;
    let output = match &answer.fault {
        // The status tells that nothing was read, or the client left before anything was written.
        Some(
            Fault::RateLimited(_)
            | Fault::NoQuota
            | Fault::Overloaded
            | Fault::ServerError
            | Fault::Http { .. }
            | Fault::Pairing
            | Fault::BadKey
            | Fault::StallBeforeHead
            | Fault::StallBeforeFirstByte,
        ) => return Usage::default(),
        Some(Fault::Stall(at) | Fault::Cut(at) | Fault::Junk(at) | Fault::ErrorEvent(at)) => {
            if *at == FaultAt::InFirstBlock { 2 } else { 12 }
        }
        Some(Fault::Empty | Fault::Refusal(_)) => 0,
        _ => answer.parts.len() as u64 * 10,
    };
    Usage { input: read, output, ..Usage::default() }
}

/// A provider that makes the fault in the second turn of each agent.
async fn provider(fault: Fault, then: Then, often: Often) -> (Arc<Mutex<Ledger>>, Provider) {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let account = ledger.clone();
    let provider = Provider::start(move |asked: &Asked| {
        let messages = asked.messages();
        let mut ledger = account.lock();
        let results = messages.iter().flat_map(|message| message.tool_results()).count();
        let answer = match results {
            0 => Answer::tool("note", json!({"text": "first"})),
            _ if ledger.meets_fault(&messages[0].text(), results == 1, often, then) => {
                let answer = Answer::text("one, ").and_tool("note", json!({"text": "second"}));
                answer.with(fault.clone()).paced(3, Duration::from_millis(1))
            }
            _ => Answer::text("two"),
        };
        let billed = bill(asked, &answer);
        ledger.billed += billed;
        answer
    })
    .await;
    (ledger, provider)
}

fn graph(provider: &Provider, wire: Wire, agents: usize, silence: &str) -> String {
    let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    let mut text = format!(
        r#"
[limits]
max_concurrency = 20
fail_fast = false
[defaults.retry]
max_attempts = {ATTEMPTS}
initial_interval = "{pause}ms"
max_interval = "{pause}ms"
jitter = false
[providers.main]
kind = "{kind}"
base_url = "{url}"
api_key = {{ env = "TEST_KEY" }}
first_byte_timeout = "{silence}"
idle_timeout = "{silence}"
[providers.main.rate_limit]
max_concurrency = 20
on_quota = "fail"
[models.main]
provider = "main"
model = "m"
[agents.worker]
model = "main"
instructions = "Work."
tools = ["note"]
max_turns = 3
"#,
        pause = PAUSE.as_millis(),
        url = provider.url_for(wire)
    );
    for task in 1..=agents {
        text.push_str(&format!("[tasks.t{task}]\nagent = \"worker\"\nprompt = \"Go {task}.\"\n"));
    }
    text
}

/// The kinds and pauses of all failed attempts of an agent.
fn failures(ended: &Ended, agent: &str) -> Vec<(FailureKind, Option<u64>)> {
    let events = ended.of_agent(agent).into_iter();
    let failed = events.filter_map(|event| match event {
        Event::ModelFailed(failed) => Some((failed.failure.kind, failed.retry_in_ms)),
        _ => None,
    });
    failed.collect()
}

/// Returns true if the numbers differ by so much at most.
fn agree(counted: u64, billed: u64, most: u64) -> bool {
    counted.abs_diff(billed) <= most
}

async fn case(fault: Fault, then: Then, wire: Wire, often: Often) {
    let (ledger, provider) = provider(fault.clone(), then, often).await;
    let note = FakeTool::new("note", Effect::Once, |_, _| async { Ok(ToolOutput::ok("noted")) });
    let agents = often.agents();
    let is_silent =
        matches!(fault, Fault::StallBeforeHead | Fault::StallBeforeFirstByte | Fault::Stall(_));
    let silence = if is_silent { SILENCE } else { PATIENCE };
    let ended = Setup::new().tool(&note).run(&graph(&provider, wire, agents, silence)).await;
    let ledger = ledger.lock();
    let case = format!("{wire:?} {often:?} {fault:?}");
    let always = often == Often::Always;
    let succeeds = match then {
        Then::Whole => true,
        Then::Again(_) | Then::Continued(_) | Then::AskedAgain(_) => !always,
        Then::Fails(_) => false,
    };
    let mut earliest = Vec::new();
    for task in 1..=agents {
        let agent = format!("t{task}");
        let faults = ledger.agents[&format!("Go {task}.")];
        let (state, output, kind) = ended.task(&agent);
        assert_eq!(state == "completed", succeeds, "{case} {state} {kind:?}");
        let failures = failures(&ended, &agent);
        match then {
            Then::Whole => assert_eq!(failures, [], "{case}"),
            Then::Again(named) | Then::Continued(named) => {
                assert_eq!(failures.len(), faults.count, "{case} {failures:?}");
                assert!(failures.iter().all(|(kind, _)| *kind == named), "{case} {failures:?}");
                let is_last = failures.last().is_some_and(|(_, pause)| pause.is_none());
                assert_eq!(is_last, always, "no attempt follows the last: {case}");
                assert_eq!(kind, always.then_some(named), "{case}");
                assert!(!always || faults.count == ATTEMPTS, "{case}: {}", faults.count);
                // Of twenty that are refused, the gateway lets one begin before its pause is over, to ask whether
                // all must wait.
                let may_ask = often == Often::Twenty && named == FailureKind::RateLimit;
                assert!(
                    may_ask || faults.pause.is_none_or(|pause| pause >= PAUSE),
                    "{case} {:?}",
                    faults.pause
                );
                earliest.extend(faults.pause);
            }
            Then::AskedAgain(named) => {
                assert_eq!(kind, always.then_some(named), "{case}");
                assert_eq!(faults.count, if always { 2 } else { 1 }, "{case}");
            }
            Then::Fails(named) => {
                assert_eq!(kind, Some(named), "{case}");
                assert_eq!(faults.count, 1, "{case}");
            }
        }
        let kept = match then {
            Then::Continued(_) => "one, ".repeat(faults.count),
            _ => String::new(),
        };
        assert_eq!(output, succeeds.then(|| kept + "two"), "{case}");
        let path = ended.dir.transcript(&crate::support::faults::id(&agent));
        assert_eq!(crate::support::faults::defect(&transcript(&path)), None, "{case}");
    }
    let early = earliest.iter().filter(|pause| **pause < PAUSE).count();
    assert!(early <= agents / 2, "most wait for their pause: {case} {earliest:?}");
    let status = if succeeds { RunStatus::Completed } else { RunStatus::Failed };
    assert_eq!(ended.completed().status, status, "{case}");
    // Each call of a tool that came whole has run once.
    let calls = agents * if then == Then::Whole { 2 } else { 1 };
    assert_eq!(note.calls(), calls, "{case}");
    // No answer was asked for again that had come.
    let faults: usize = ledger.agents.values().map(|faults| faults.count).sum();
    let ends = if succeeds { agents } else { 0 };
    assert_eq!(provider.count(), agents + faults + ends, "{case}");
    for asked in provider.requests() {
        assert_eq!(unsendable(&asked.messages()), None, "{case}");
    }
    let (counted, billed) = (ended.completed().usage, ledger.billed);
    let broke = matches!(
        fault,
        Fault::Stall(_) | Fault::Cut(_) | Fault::Junk(_) | Fault::ErrorEvent(_) | Fault::NoUsage
    );
    // Of a stream that breaks, the first wire has told the input.
    let told = !broke || (wire == Wire::Anthropic && !matches!(fault, Fault::NoUsage));
    let sums = format!("{case}: counted {counted:?}, billed {billed:?}");
    assert!(
        agree(counted.context(), billed.context(), if told { 0 } else { billed.context() / 8 }),
        "{sums}"
    );
    // The output of each is estimated to some tokens.
    assert!(
        agree(counted.output, billed.output, if broke { faults as u64 * 20 } else { 0 }),
        "{sums}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_on_both_wires_once_always_and_for_twenty_agents() {
    let at_once = Arc::new(Semaphore::new(30));
    let mut cases = Vec::new();
    // Those that wait longest first.
    for often in [Often::Twenty, Often::Always, Often::Once] {
        for (fault, thens) in faults() {
            for (wire, then) in Wire::BOTH.into_iter().zip(thens) {
                let (fault, at_once) = (fault.clone(), at_once.clone());
                // No more agents at once than are answered within the silence on a busy machine.
                let weight = if often == Often::Twenty { 5 } else { 1 };
                cases.push(tokio::spawn(async move {
                    let all = at_once.acquire_many_owned(weight);
                    let _some = all.await.expect("it is open");
                    case(fault, then, wire, often).await;
                }));
            }
        }
    }
    let mut failed = 0;
    for case in cases {
        failed += usize::from(case.await.is_err());
    }
    assert_eq!(failed, 0, "cases that failed");
}
