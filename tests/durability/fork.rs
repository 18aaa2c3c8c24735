//! A new run that begins with the first records of another run.

use std::collections::BTreeMap;
use std::sync::Arc;

use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::plan::TaskState;
use callsheet::run::{ForkError, fork};
use serde_json::json;

use crate::durability::resume::set_to_yesterday;
use crate::support::faults::{Act, Ended, Fake, Setup, fold, records, transcript};
use crate::support::test_run::RunFolder;

const CHAIN: &str = r#"
[agents.a]
model = "main"
instructions = "Work."
sub_agents = ["b"]
[agents.b]
model = "main"
instructions = "Help."
[tasks.first]
agent = "a"
prompt = "first"
[tasks.second]
agent = "a"
prompt = "second of {{ tasks.first.output }}"
depends_on = ["first"]
"#;

fn model() -> Arc<Fake> {
    Fake::new(|request| {
        let prompt = request.messages()[0].text();
        match (request.agent.as_str(), request.turn) {
            ("a", 1) => Act::tool("delegate", json!({"agent": "b", "prompt": prompt})),
            ("a", _) => Act::say(format!("[{prompt}]")),
            _ => Act::say("helped"),
        }
    })
}

fn set<const N: usize>(keys: [(&str, &str); N]) -> BTreeMap<String, String> {
    keys.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Returns the number of the record of this event of a task.
fn seq(dir: &RunFolder, task: &str, kind: &str) -> u64 {
    let is = |record: &&callsheet::event::SharedRecord| {
        record.agent.is_none()
            && record.task.as_ref().is_some_and(|name| name.as_str() == task)
            && record.event.kind() == kind
    };
    records(dir).iter().find(is).expect("a record").seq
}

#[tokio::test]
async fn a_fork_pays_for_what_comes_after_it_only() {
    let fake = model();
    let setup = Setup::new().model("main", &fake);
    let old = setup.run(CHAIN).await;
    let (before, calls) = (std::fs::read(old.dir.journal()).expect("read"), fake.count());
    assert_eq!((old.output("second").as_str(), calls), ("[second of [first]]", 6));

    let at = seq(&old.dir, "first", "task.completed");
    let change = set([("tasks.second.prompt", "other of {{ tasks.first.output }}")]);
    let forked = fork(&*old.dir, at, change, setup.sources()).expect("forked");
    let dir = RunFolder::at(forked.recorded().place());
    assert_eq!(forked.state().last_seq(), at);
    drop(forked);
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.output("second"), "[other of [first]]");
    assert_eq!(ended.output("first"), "[first]");
    assert_eq!(fake.count(), calls + 3, "the first task is not paid for again");
    assert_eq!(std::fs::read(old.dir.journal()).expect("read"), before, "the old run stands");
    let created = fold(&ended.records).created().expect("created").clone();
    let origin = created.forked.expect("a fork");
    assert_eq!(
        (origin.run.to_string(), origin.seq),
        (old.dir.path().file_name().unwrap().to_string_lossy().into_owned(), at)
    );
    assert_ne!(created.run, origin.run);
    for agent in ["first", "first/b-1"] {
        let of = |dir: &RunFolder| transcript(&dir.transcript(&crate::support::faults::id(agent)));
        assert_eq!(of(&ended.dir), of(&old.dir));
    }
    // A fork of a fork keeps what was changed.
    let again = fork(&*ended.dir, at, set([]), setup.sources()).expect("forked");
    let dir = RunFolder::at(again.recorded().place());
    drop(again);
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.output("second"), "[other of [first]]");
}

#[tokio::test]
async fn a_run_can_be_forked_at_every_record_before_its_end() {
    let fake = model();
    let setup = Setup::new().model("main", &fake);
    let old = setup.run(CHAIN).await;
    let last = old.records.len() as u64;
    for at in 1..last {
        let forked = fork(&*old.dir, at, set([]), setup.sources()).expect("forked");
        let kept = forked.state().last_seq();
        assert!(kept <= at.max(2), "{at}: the batch of run.created is whole, not {kept}");
        let dir = RunFolder::at(forked.recorded().place());
        drop(forked);
        let ended = Ended::of(setup.resume(&dir).await).await;
        let (completed, kinds) =
            (ended.completed(), || ended.records.iter().map(|r| r.event.kind()));
        let kinds = || kinds().collect::<Vec<_>>().join(" ");
        assert_eq!(completed.status, RunStatus::Completed, "{at}: {completed:?}\n{}", kinds());
        assert_eq!(ended.output("second"), "[second of [first]]", "{at}");
        let replies = ended.records.iter().filter(|r| matches!(r.event, Event::ModelResponded(_)));
        assert_eq!(replies.count(), 6, "{at}: {}", kinds());
    }
    let refused = |seq, keys| fork(&*old.dir, seq, keys, setup.sources()).expect_err("refused");
    assert!(matches!(refused(last, set([])), ForkError::Ended(at) if at == last));
    assert!(matches!(refused(0, set([])), ForkError::Outside(0)));
    assert!(matches!(refused(last + 9, set([])), ForkError::Ended(_)));
    let wrong = refused(5, set([("tasks.second.promt", "x")]));
    assert!(matches!(wrong, ForkError::Config(_)), "{wrong}");
}

#[tokio::test]
async fn a_fork_has_the_time_that_was_left_where_it_begins() {
    let fake = model();
    let setup = Setup::new().model("main", &fake);
    let limit = "[limits]\ntimeout = '30m'\n";
    for worked in [10, 31] {
        let old = setup.run(&format!("{limit}{CHAIN}")).await;
        let at = seq(&old.dir, "first", "task.completed");
        set_to_yesterday(&old.dir, worked, at);
        let forked = fork(&*old.dir, at, set([]), setup.sources()).expect("forked");
        let dir = RunFolder::at(forked.recorded().place());
        drop(forked);
        let ended = Ended::of(setup.resume(&dir).await).await;
        let completed = ended.completed();
        let end = &completed.tasks["second"];
        assert_eq!(end.state == TaskState::Completed, worked < 30, "{completed:?}");
        let kind = end.error.as_ref().map(|error| error.kind);
        assert_eq!(kind == Some(FailureKind::Timeout), worked > 30, "{kind:?}");
    }
}
