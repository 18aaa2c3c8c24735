//! A run that goes on with another configuration: what was made from the same content stands.

use std::sync::Arc;

use callsheet::event::{Event, RunStatus, SharedRecord};
use callsheet::journal::file::RunDir;
use callsheet::journal::recovery::Cut;
use callsheet::report;
use callsheet::run::{Reopened, Run};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::faults::{Act, Ended, Fake, Setup, fold, gate, open, records, until};
use crate::resume::{batch_ends, files, set_back};

/// Four tasks: one, two after it, three after that, and another by itself.
fn chain(one: &str, two: &str, helper: &str) -> String {
    format!(
        r#"
[agents.a]
model = "main"
instructions = "Work."
sub_agents = ["b"]
[agents.b]
model = "main"
instructions = "{helper}"
[agents.c]
model = "main"
instructions = "Alone."
[tasks.one]
agent = "a"
prompt = "{one}"
[tasks.two]
agent = "c"
prompt = "{two} {{{{ tasks.one.output }}}}"
depends_on = ["one"]
[tasks.three]
agent = "c"
prompt = "three {{{{ tasks.two.output }}}}"
depends_on = ["two"]
output_file = "three.txt"
[tasks.other]
agent = "c"
prompt = "other"
"#
    )
}

fn model(last: &Arc<Semaphore>) -> Arc<Fake> {
    let last = last.clone();
    Fake::new(move |request| {
        let prompt = request.messages()[0].text();
        match (request.agent.as_str(), request.turn) {
            ("a", 1) => Act::tool("delegate", json!({"agent": "b", "prompt": "help"})),
            ("a", _) => Act::say(prompt),
            ("b", _) => Act::say("helped"),
            // It says the same whatever it is asked to shout.
            _ if prompt.starts_with("shout ") => Act::say("two one"),
            _ if prompt.starts_with("three") => Act::say(prompt).after(&last),
            _ => Act::say(prompt),
        }
    })
}

async fn stop(run: Run) -> RunDir {
    run.remote().interrupt("a test");
    let dir = run.dir().clone();
    run.wait().await;
    dir
}

/// The states of the tasks, in order.
fn states(ended: &Ended) -> Vec<String> {
    let state = fold(&ended.records);
    state.tasks().map(|(_, task)| task.state.as_str().to_owned()).collect()
}

fn prospects(setup: &Setup, dir: &RunDir, text: &str) -> Vec<String> {
    let reopened = Reopened::open(dir, Cut::Torn).expect("taken up");
    let before = reopened.config(setup.sources()).expect("recorded");
    let prospects = reopened.outlook(&before, &setup.config(text)).expect("a plan");
    prospects.iter().map(|p| format!("{} {}: {}", p.task, p.verdict.as_str(), p.why)).collect()
}

#[tokio::test]
async fn only_what_is_made_from_something_else_is_run_again() {
    let last = gate();
    open(&last);
    let fake = model(&last);
    let setup = Setup::new().model("main", &fake);
    let old = setup.run(&chain("one", "two", "Help.")).await;
    assert_eq!((old.output("three").as_str(), fake.count()), ("three two one", 6));
    let dir = old.dir.clone();

    // A prompt: the first stands, the second is another, and so the third.
    let text = chain("one", "2", "Help.");
    let said = prospects(&setup, &dir, &text);
    assert_eq!(
        said,
        [
            "one reused: nothing that it was made from has changed",
            "two runs: changed: prompt",
            "three runs: `two` comes first; what stays as it was is reused then",
            "other reused: nothing that it was made from has changed",
        ]
    );
    let ended = Ended::of(setup.accept(&dir, &text).await).await;
    assert_eq!(states(&ended), ["reused", "completed", "completed", "reused"]);
    assert_eq!((ended.completed().status, fake.count()), (RunStatus::Completed, 8));
    assert_eq!(ended.completed().tasks["three"]["output"], "three 2 one");
    assert_eq!(ended.completed().tasks["one"]["output"], "one");
    let agents: Vec<_> = ended.agents().iter().map(ToString::to_string).collect();
    assert_eq!(
        agents.iter().filter(|agent| agent.contains('~')).collect::<Vec<_>>(),
        ["two~2", "three~2"]
    );

    // Back again: everything was made before.
    let ended = Ended::of(setup.accept(&dir, &chain("one", "two", "Help.")).await).await;
    assert_eq!((states(&ended), fake.count()), (vec!["reused".to_owned(); 4], 8));
    assert_eq!(ended.completed().tasks["three"]["output"], "three two one");
    let file = std::fs::read_to_string(setup.root.path().join("three.txt")).expect("a file");
    assert_eq!(file, "three two one");

    // It gives what was given before: what follows stands.
    let ended = Ended::of(setup.accept(&dir, &chain("one", "shout", "Help.")).await).await;
    assert_eq!(states(&ended), ["reused", "completed", "reused", "reused"]);
    assert_eq!(fake.count(), 9);

    // An agent that it may delegate to counts.
    let text = chain("one", "shout", "Help well.");
    assert_eq!(prospects(&setup, &dir, &text)[0], "one runs: changed: agents.b.instructions");
    let ended = Ended::of(setup.accept(&dir, &text).await).await;
    assert_eq!(states(&ended), ["completed", "reused", "reused", "reused"]);
    assert_eq!(fake.count(), 12);
    // What is recorded is what was accepted last.
    let reopened = Reopened::open(&dir, Cut::Torn).expect("taken up");
    assert!(reopened.created().config.contains("Help well."));
}

#[tokio::test]
async fn what_is_at_work_goes_on_if_nothing_that_it_is_made_from_has_changed() {
    for (prompt, going_on) in [("two", true), ("2", false)] {
        let last = gate();
        let fake = model(&last);
        let setup = Setup::new().model("main", &fake);
        let run = setup.start(&chain("one", "two", "Help.")).await;
        until(|| fake.count() == 6 && fake.under_way() == 1).await;
        let dir = stop(run).await;
        open(&last);
        let text = format!(
            "{}[tasks.more]\nagent = 'c'\nprompt = 'more'\n",
            chain("one", prompt, "Help.")
        );
        let said = prospects(&setup, &dir, &text);
        assert_eq!(said[4], "more runs: it is new");
        assert_eq!(
            said[2].starts_with("three goes on: agent `three` is in turn 1"),
            going_on,
            "{said:?}"
        );
        let ended = Ended::of(setup.accept(&dir, &text).await).await;
        assert_eq!(ended.completed().tasks["more"]["output"], "more");
        let three = format!("three {prompt} one");
        assert_eq!(ended.completed().tasks["three"]["output"], three);
        let ids: Vec<_> = ended.agents().iter().map(ToString::to_string).collect();
        assert_eq!(ids.iter().any(|id| id == "three~2"), !going_on);
        // Six before, then the third task and the new one, and if it changed the second.
        assert_eq!(fake.count(), 6 + 2 + usize::from(!going_on));
    }
}

#[tokio::test]
async fn a_task_that_failed_or_is_gone_is_no_obstacle() {
    let fake = Fake::new(|request| match request.messages()[0].text().as_str() {
        "bad" => Act::say(""),
        other => Act::say(other.to_owned()),
    });
    let setup = Setup::new().model("main", &fake);
    let text = |second: &str, gone: &str| {
        format!(
            "[agents.a]\nmodel = 'main'\ninstructions = 'x'\n[tasks.first]\nagent = 'a'\nprompt = 'first'\n\
             [tasks.second]\nagent = 'a'\nprompt = '{second}'\ndepends_on = ['first']\n{gone}"
        )
    };
    let gone = "[tasks.gone]\nagent = 'a'\nprompt = 'gone'\n";
    let old = setup.run(&text("bad", gone)).await;
    assert_eq!(old.completed().status, RunStatus::Failed);
    let said = prospects(&setup, &old.dir, &text("good", ""));
    assert_eq!(said[1], "second runs: it failed");
    let ended = Ended::of(setup.accept(&old.dir, &text("good", "")).await).await;
    assert_eq!(ended.completed().status, RunStatus::Completed);
    assert_eq!(states(&ended), ["reused", "completed"]);
    assert_eq!(ended.completed().tasks.len(), 2);
    let rows = report::rows(&fold(&ended.records), false, 0);
    let names: Vec<_> = rows[1..].iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["first", "first", "second", "second", "second~2"]);
}

#[tokio::test]
async fn a_run_with_another_configuration_is_taken_up_after_any_batch() {
    let last = gate();
    open(&last);
    let fake = model(&last);
    let setup = Setup::new().model("main", &fake);
    let old = setup.run(&chain("one", "two", "Help.")).await;
    let before = batch_ends(&old.dir).len();
    let wanted = Ended::of(setup.accept(&old.dir, &chain("one", "2", "Help.")).await).await;
    let (dir, files, ends) =
        (wanted.dir.clone(), files(wanted.dir.path()), batch_ends(&wanted.dir));
    for end in &ends[before..ends.len() - 1] {
        set_back(&dir, &files, *end);
        let (fake, answered) = (model(&last), replies(&records(&dir)));
        let setup = Setup::new().model("main", &fake).at(&setup);
        let ended = Ended::of(setup.resume(&dir).await).await;
        assert_eq!(states(&ended), states(&wanted));
        assert_eq!(ended.completed().tasks, wanted.completed().tasks);
        assert_eq!(fake.count(), replies(&wanted.records) - answered);
    }
}

fn replies(records: &[SharedRecord]) -> usize {
    records.iter().filter(|record| matches!(record.event, Event::ModelResponded(_))).count()
}
