//! A conversation many times as long as its window: every request fits.

use crate::support::endless::{Endless, Look, Subject, WINDOW, launch, verdict};
use crate::support::provider::Provider;

/// Some ten windows of messages by the count of the provider.
const TURNS: usize = 300;

async fn requests_fit(subject: Subject) {
    let provider = Provider::start(Endless::new(TURNS)).await;
    provider.forget_requests();
    let root = tempfile::tempdir().expect("a directory");
    let look = Look::new(|_| ());
    let launch = launch(subject, TURNS, &provider.base_url(), root.path()).tool(look);
    let end = launch.start().await.unwrap_or_else(|error| panic!("{error}")).wait().await;
    let [largest, requests] = verdict(end.output("look").expect("it is short").as_deref());
    // What is far under the window was not put to the test.
    assert!(largest > WINDOW / 2 && largest <= WINDOW, "{largest}");
    assert!(requests > TURNS as u64, "{requests}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_a_long_conversation_fits_by_records() {
    requests_fit(Subject::ALL[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_of_a_long_conversation_fits_by_summaries() {
    requests_fit(Subject::ALL[1]).await;
}
