//! A run that resumes with another configuration keeps the results whose content did not change.

use std::sync::Arc;

use callsheet::event::{Event, RunStatus, SharedRecord};
use callsheet::journal::cut::Cut;
use callsheet::report;
use callsheet::run::{Run, StoppedRun};
use callsheet::turn::Outcome;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::durability::resume::{batch_ends, files, set_back};
use crate::support::faults::{
    Act, Ended, Fake, Setup, defect, fold, gate, id, open, records, transcript, until,
};
use crate::support::test_run::RunFolder;

/// A plan of tasks that depend on each other, and one that stands alone.
fn chain(one: &str, two: &str, helper: &str) -> String {
    format!(
        r#"
[limits]
grace_period = "20ms"
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

async fn stop(run: Run) -> RunFolder {
    run.remote().interrupt("a test");
    let dir = RunFolder::of(&run);
    run.wait().await;
    dir
}

/// The states of the tasks, in order.
fn states(ended: &Ended) -> Vec<String> {
    let state = fold(&ended.records);
    state.tasks().map(|(_, task)| task.state.as_str().to_owned()).collect()
}

fn forecasts(setup: &Setup, dir: &RunFolder, text: &str) -> Vec<String> {
    let stopped = StoppedRun::open(dir, Cut::Torn).expect("taken up");
    let before = stopped.config(setup.sources()).expect("recorded");
    let forecasts = stopped.forecast(&before, &setup.config(text)).expect("a plan");
    forecasts.iter().map(|p| format!("{} {}: {}", p.task, p.fate.as_str(), p.why)).collect()
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
    let said = forecasts(&setup, &dir, &text);
    assert_eq!(
        said,
        [
            "one reused: nothing that it was made from has changed",
            "two runs: changed: prompt",
            "three depends: on the output of `two`: if that is unchanged its result is reused, \
             else it runs",
            "other reused: nothing that it was made from has changed",
        ]
    );
    let ended = Ended::of(setup.accept(&dir, &text).await).await;
    assert_eq!(states(&ended), ["reused", "completed", "completed", "reused"]);
    assert_eq!((ended.completed().status, fake.count()), (RunStatus::Completed, 8));
    assert_eq!(ended.completed().tasks["three"].output.as_deref(), Some("three 2 one"));
    assert_eq!(ended.completed().tasks["one"].output.as_deref(), Some("one"));
    let agents: Vec<_> = ended.agents().iter().map(ToString::to_string).collect();
    assert_eq!(
        agents.iter().filter(|agent| agent.contains('~')).collect::<Vec<_>>(),
        ["two~2", "three~2"]
    );

    // Back again: everything was made before.
    let ended = Ended::of(setup.accept(&dir, &chain("one", "two", "Help.")).await).await;
    assert_eq!((states(&ended), fake.count()), (vec!["reused".to_owned(); 4], 8));
    assert_eq!(ended.completed().tasks["three"].output.as_deref(), Some("three two one"));
    let file = std::fs::read_to_string(setup.root.path().join("three.txt")).expect("a file");
    assert_eq!(file, "three two one");

    // It gives what was given before: what follows stands.
    let ended = Ended::of(setup.accept(&dir, &chain("one", "shout", "Help.")).await).await;
    assert_eq!(states(&ended), ["reused", "completed", "reused", "reused"]);
    assert_eq!(fake.count(), 9);

    // An agent that it may delegate to counts.
    let text = chain("one", "shout", "Help well.");
    assert_eq!(forecasts(&setup, &dir, &text)[0], "one runs: changed: agents.b.instructions");
    let ended = Ended::of(setup.accept(&dir, &text).await).await;
    assert_eq!(states(&ended), ["completed", "reused", "reused", "reused"]);
    assert_eq!(fake.count(), 12);
    // What is recorded is what was accepted last.
    let stopped = StoppedRun::open(&dir, Cut::Torn).expect("taken up");
    assert!(stopped.created().config.contains("Help well."));
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
        let said = forecasts(&setup, &dir, &text);
        assert_eq!(said[4], "more runs: it is new");
        assert_eq!(
            said[2].starts_with("three goes on: agent `three` is in turn 1"),
            going_on,
            "{said:?}"
        );
        assert_eq!(said[2].starts_with("three depends: on the output of `two`"), !going_on);
        let ended = Ended::of(setup.accept(&dir, &text).await).await;
        assert_eq!(ended.completed().tasks["more"].output.as_deref(), Some("more"));
        let three = format!("three {prompt} one");
        assert_eq!(ended.completed().tasks["three"].output.as_deref(), Some(three.as_str()));
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
    let said = forecasts(&setup, &old.dir, &text("good", ""));
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

/// A plan with a finished task, a half-done task that uses its output, and a half-done task that
/// stands alone.
fn half_done(make: &str, rest: &str) -> String {
    format!(
        r#"
[limits]
grace_period = "20ms"
[agents.a]
model = "main"
instructions = "Work."
sub_agents = ["b"]
[agents.b]
model = "main"
instructions = "Help."
[tasks.make]
agent = "b"
prompt = "make {make}"
[tasks.use]
agent = "a"
prompt = "use {{{{ tasks.make.output }}}}"
depends_on = ["make"]
{rest}
"#
    )
}

const ASIDE: &str = "[tasks.aside]\nagent = \"a\"\nprompt = \"aside\"";

/// A model whose agents of kind `a` delegate two jobs: one is done at once, the other waits at the
/// gate.
fn jobs(gate: &Arc<Semaphore>) -> Arc<Fake> {
    let gate = gate.clone();
    Fake::new(move |request| {
        let prompt = request.messages()[0].text();
        let job = |prompt: &str| ("delegate", json!({"agent": "b", "prompt": prompt}));
        match (request.agent.as_str(), request.turn) {
            ("a", 1) => Act::Call(vec![job("quick"), job("slow")]),
            ("a", _) => Act::say(format!("did {prompt}")),
            _ if prompt == "slow" => Act::say("helped").after(&gate),
            _ if prompt == "make it" || prompt == "make it again" => Act::say("it"),
            _ => Act::say(prompt),
        }
    })
}

/// Runs until two tasks are half done and stops the run there; the gate is open from then on.
async fn stopped_half_way() -> (Setup, Arc<Fake>, RunFolder) {
    let slow = gate();
    let fake = jobs(&slow);
    let setup = Setup::new().model("main", &fake);
    let run = setup.start(&half_done("it", ASIDE)).await;
    // One made it; each of two gave two jobs away, of which one is under way.
    until(|| fake.count() == 7 && fake.under_way() == 2).await;
    let dir = stop(run).await;
    open(&slow);
    (setup, fake, dir)
}

fn ids(ended: &Ended) -> Vec<String> {
    let mut ids: Vec<_> = ended.agents().iter().map(ToString::to_string).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn what_is_half_done_goes_on_once_its_dependencies_have_given_the_same() {
    let before = ["aside", "aside/b-1", "aside/b-2", "make", "use", "use/b-1", "use/b-2"];
    for (make, same) in [("it again", true), ("that", false)] {
        let (setup, fake, dir) = stopped_half_way().await;
        let text = half_done(make, ASIDE);
        let said = forecasts(&setup, &dir, &text);
        assert_eq!(
            said[1],
            "use depends: on the output of `make`: if that is unchanged it continues (agent `use` \
             is in turn 1), else it begins anew"
        );
        assert!(said[2].starts_with("aside goes on: agent `aside` is in turn 1"), "{said:?}");
        let ended = Ended::of(setup.accept(&dir, &text).await).await;
        assert_eq!(ended.completed().status, RunStatus::Completed);
        let made = if same { "it" } else { "make that" };
        assert_eq!(ended.output("use"), format!("did use {made}"));
        let mut wanted: Vec<_> = before.iter().map(ToString::to_string).collect();
        wanted.push("make~2".to_owned());
        if !same {
            wanted.extend(["use~2", "use~2/b-1", "use~2/b-2"].map(ToString::to_string));
        }
        wanted.sort();
        assert_eq!(ids(&ended), wanted);
        // Made anew, the slow job of `aside` and its parent; the same of `use`, or all of it.
        assert_eq!(fake.count(), 7 + 1 + 2 + if same { 2 } else { 4 });
        for agent in ["use", "use/b-2"] {
            let cancelled = matches!(
                ended.outcome(agent),
                Outcome::Cancelled { reason } if reason == "what its task is made from has changed"
            );
            assert_eq!(cancelled, !same, "{agent}");
            let messages = transcript(&ended.dir.transcript(&id(agent)));
            assert_eq!(defect(&messages), None, "{agent}");
        }
    }
}

#[tokio::test]
async fn what_is_half_done_is_held_over_any_number_of_openings() {
    for (make, same) in [("it again", true), ("that", false)] {
        let (setup, _, dir) = stopped_half_way().await;
        let before = batch_ends(&dir).len();
        let wanted = Ended::of(setup.accept(&dir, &half_done(make, ASIDE)).await).await;
        let (files, ends) = (files(dir.path()), batch_ends(&dir));
        for end in &ends[before..ends.len() - 1] {
            set_back(&dir, &files, *end);
            let free = gate();
            open(&free);
            let (fake, answered) = (jobs(&free), replies(&records(&dir)));
            let setup = Setup::new().model("main", &fake).at(&setup);
            let ended = Ended::of(setup.resume(&dir).await).await;
            assert_eq!(ended.completed().tasks, wanted.completed().tasks);
            assert_eq!(fake.count(), replies(&wanted.records) - answered, "none is paid for twice");
            assert_eq!(ids(&ended).contains(&"use~2".to_owned()), !same, "{:#?}", ended.kinds());
            let state = fold(&ended.records);
            assert!(state.agents().values().all(|agent| agent.outcome.is_some()));
        }
    }
}

/// Returns the reasons for the ends of the agents that were at work for the second task.
fn reasons(ended: &Ended, agents: [&str; 2]) -> [String; 2] {
    agents.map(|agent| match ended.outcome(agent) {
        Outcome::Cancelled { reason } => reason,
        other => panic!("{agent}: {other:?}"),
    })
}

#[tokio::test]
async fn agents_of_a_held_task_end_because_of_what_ended_it() {
    // It cannot be made any more.
    let (setup, _, dir) = stopped_half_way().await;
    let text = half_done("it", "").replace("make.output }}", "make.output | int }}");
    let ended = Ended::of(setup.accept(&dir, &text).await).await;
    let message = ended.completed().tasks["use"].error.clone().expect("it failed").message;
    assert!(message.starts_with("`prompt`, agents.toml:"), "{message}");
    assert_eq!(reasons(&ended, ["use", "use/b-2"]), [message.as_str(), message.as_str()]);

    // It was made before: first as it is wanted in the end, then otherwise, but not to its end.
    let free = gate();
    open(&free);
    let setup = Setup::new().model("main", &jobs(&free));
    let dir = setup.run(&half_done("it", "")).await.dir;
    let slow = gate();
    let fake = jobs(&slow);
    let setup = Setup::new().model("main", &fake).at(&setup);
    let run = setup.accept(&dir, &half_done("that", "")).await;
    until(|| fake.count() == 4 && fake.under_way() == 1).await;
    let dir = stop(run).await;
    open(&slow);
    let ended = Ended::of(setup.accept(&dir, &half_done("it again", "")).await).await;
    assert_eq!(states(&ended), ["completed", "reused"]);
    let expected = "its task reuses an earlier result";
    assert_eq!(reasons(&ended, ["use~2", "use~2/b-2"]), [expected; 2]);
}

#[tokio::test]
async fn a_task_that_is_gone_is_cancelled_with_its_children() {
    let (setup, fake, dir) = stopped_half_way().await;
    let text = half_done("it", "");
    let said = forecasts(&setup, &dir, &text);
    assert_eq!(
        said[2],
        "aside removed: it is no longer in the file: agent `aside` is cancelled with 1 child"
    );
    let ended = Ended::of(setup.accept(&dir, &text).await).await;
    assert_eq!(ended.completed().tasks.len(), 2);
    assert_eq!(ended.output("use"), "did use it");
    assert_eq!(fake.count(), 7 + 2);
    for agent in ["aside", "aside/b-2"] {
        let outcome = ended.outcome(agent);
        let reason = "its task was removed from the configuration".to_owned();
        assert_eq!(outcome, Outcome::Cancelled { reason });
        assert_eq!(defect(&transcript(&ended.dir.transcript(&id(agent)))), None, "{agent}");
    }
}

#[tokio::test]
async fn another_preset_is_no_other_task() {
    let (setup, fake, dir) = stopped_half_way().await;
    let preset = format!("{ASIDE}\n[compaction]\npreset = \"turn-window\"");
    let text = half_done("it", &preset);
    let said = forecasts(&setup, &dir, &text);
    assert!(said[0].starts_with("make reused"), "{said:?}");
    assert_eq!(
        said[1],
        "use goes on: agent `use` is in turn 1, from here on with the changed [compaction]"
    );
    let ended = Ended::of(setup.accept(&dir, &text).await).await;
    assert_eq!((ended.output("use").as_str(), fake.count()), ("did use it", 7 + 4));
}

#[tokio::test]
async fn a_fan_out_whose_instances_may_be_reused_does_not_wait() {
    let text = |first: &str, last: &str| {
        format!(
            "[tasks.first]\nrun = \"{first}\"\n\
             [tasks.each]\nrun = \"echo x\"\nforeach = \"[1, 2, 3]\"\ndepends_on = [\"first\"]\n\
             [tasks.some]\nrun = \"test $N != 3 {last}\"\nforeach = \"[1, 2, 3]\"\n\
             env = {{ N = \"{{{{ item }}}}\" }}\n[tasks.then]\nrun = \"true\"\n\
             depends_on = [\"first\", \"each\"]\n[limits]\nfail_fast = false\n"
        )
    };
    let setup = Setup::new();
    let old = setup.run(&text("echo 1", "")).await;
    let said = forecasts(&setup, &old.dir, &text("echo 2", "")).join("\n");
    let expected = "first runs: changed: run\n\
        each depends: on the output of `first`: instances that are made from the same are reused\n\
        some runs: `some[2]` runs, its other instances are reused\n\
        then depends: on the output of `first`: if that is unchanged its result is reused, else it runs";
    assert_eq!(said, expected);
}
