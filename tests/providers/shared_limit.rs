//! A limit that many agents share: what a provider allows is used, by all alike.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callsheet::event::{Event, RunStatus};
use parking_lot::Mutex;
use serde_json::json;

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::faults::{FakeTool, Setup};
use crate::support::provider::Provider;

/// The requests that the provider takes in a second.
const ALLOWED: u32 = 10;

/// Taken and refused requests, by second since the first one.
#[derive(Default)]
struct Windows {
    began: Option<Instant>,
    taken: BTreeMap<u64, u32>,
    refused: BTreeMap<u64, u32>,
}

impl Windows {
    /// Returns the time until the next second if a request is refused.
    fn refuses(&mut self) -> Option<Duration> {
        let since = self.began.get_or_insert_with(Instant::now).elapsed();
        let second = since.as_secs();
        let taken = self.taken.entry(second).or_default();
        let takes = *taken < ALLOWED;
        let counter = if takes { taken } else { self.refused.entry(second).or_default() };
        *counter += 1;
        (!takes).then(|| Duration::from_secs(second + 1).saturating_sub(since))
    }
}

/// Lets 32 agents make two calls each. `wait` makes the `Retry-After` of a refusal from the time to the
/// next second.
async fn share(wire: Wire, case: &str, wait: fn(Duration) -> Option<String>) {
    let windows = Arc::new(Mutex::new(Windows::default()));
    let counted = windows.clone();
    let provider = Provider::start(move |asked: &Asked| match counted.lock().refuses() {
        Some(rest) => Answer::fault(Fault::RateLimited(wait(rest))),
        None if asked.messages().len() > 1 => Answer::text("ok"),
        None => Answer::tool("dump", json!({"size": 5})),
    })
    .await;
    let kind = if wire == Wire::Anthropic { "anthropic" } else { "openai" };
    // On a busy machine the second attempt of a call may be late and refused too; a third one is not.
    let mut graph = format!(
        "[limits]\nmax_concurrency = 32\n\
         [defaults.retry]\nmax_attempts = 3\n\
         [providers.main]\nkind = \"{kind}\"\nbase_url = \"{}\"\n\
         [providers.main.rate_limit]\nmax_concurrency = 32\n\
         [models.main]\nprovider = \"main\"\nmodel = \"m\"\n\
         [agents.worker]\nmodel = \"main\"\ninstructions = \"Work.\"\ntools = [\"dump\"]\n",
        provider.url_for(wire)
    );
    for task in 1..=32 {
        graph.push_str(&format!("[tasks.t{task}]\nagent = \"worker\"\nprompt = \"Go {task}.\"\n"));
    }
    let ended = Setup::new().tool(&FakeTool::dump()).run(&graph).await;
    let windows = windows.lock();
    let case = format!("{wire:?} {case} {:?} {:?}", windows.taken, windows.refused);
    assert_eq!(ended.completed().status, RunStatus::Completed, "{case}");
    let asked = provider.requests();
    let taken: u32 = windows.taken.values().sum();
    assert_eq!(taken, 64, "no answer was asked for twice: {case}");
    // The last second is not full. On a busy machine calls are late, so half is enough here; that nine tenths are used
    // is tested where time is no machine's: `admission::tests::a_shared_limit_is_used_and_fair`.
    let last = *windows.taken.keys().last().expect("a window");
    let full: u32 = windows.taken.range(..last).map(|(_, taken)| *taken).sum();
    let allowed = ALLOWED * u32::try_from(last).expect("some seconds");
    assert!(full * 2 >= allowed, "{full} of {allowed}: {case}");
    let later = windows.refused.range(1..);
    // Where the pace that was learned first is met too early, or the machine is late, two calls ask once more.
    let most = later.clone().map(|(_, refused)| *refused).max().unwrap_or(0);
    let many = later.clone().filter(|(_, refused)| **refused > 1).count();
    assert!(most <= 1 + 2 && many <= 2, "{case}");
    // What was under way, and the three calls that ask whether it is a limit.
    assert!(windows.refused.get(&0).is_none_or(|refused| *refused <= 8 + 3), "{case}");
    // The first calls of all agents come before the second ones.
    let first = asked.iter().filter(|asked| asked.messages().len() == 1);
    let first = first.map(|asked| asked.at).max().expect("a first call");
    let second = asked.iter().filter(|asked| asked.messages().len() > 1);
    let early = second.filter(|asked| asked.at + Duration::from_secs(1) < first).count();
    assert!(early <= 8, "{early} second calls before a first one: {case}");
    let refusals = ended.records.iter().filter_map(|record| match &record.event {
        Event::ModelFailed(failed) => Some(failed.retry_in_ms),
        _ => None,
    });
    assert!(refusals.clone().all(|pause| pause.is_some()), "{case}");
    let refused: u32 = windows.refused.values().sum();
    assert_eq!(refusals.count(), refused as usize, "{case}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_32_agents_share_is_used_by_all_alike() {
    let runs = Wire::BOTH.into_iter().flat_map(|wire| {
        [
            tokio::spawn(share(wire, "without a time", |_| None)),
            tokio::spawn(share(wire, "a whole second", |_| Some("1".to_owned()))),
            tokio::spawn(share(wire, "exact", |rest| Some(rest.as_secs_f64().to_string()))),
        ]
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.expect("it holds");
    }
}
