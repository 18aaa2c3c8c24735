//! Tests of fan-outs: items and keys as tables, the life of instances in a simulated world.

use serde_json::{Value, json};

use super::super::testing::{Script, Step, World, name, task};
use super::super::{CancelTarget, Finish};
use crate::event::RunStatus;
use crate::failure::FailureKind;
use crate::id::Name;
use crate::plan::TaskState;
use crate::run_machine::items::Items;
use crate::run_state::TaskStatus;
use crate::spec::{FanOut, Limits, TaskSpec};
use crate::template::{Known, Values};

fn over(list: &str) -> FanOut {
    FanOut {
        list: list.to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: None,
        min_success: 1.0,
    }
}

fn fanning(task_name: &str, fan_out: FanOut) -> TaskSpec {
    TaskSpec { fan_out: Some(fan_out), ..task(task_name, &[]) }
}

#[test]
fn items_get_keys_that_tell_them_apart() {
    let by_name = |list: &str| FanOut { key: Some("{{ item.name }}".to_owned()), ..over(list) };
    let keys = |fan_out: FanOut| {
        let mut values = Values::default();
        values.set("inputs", Known::of(&json!({ "n": 2 })));
        let items = Items::read(&fanning("t", fan_out), values, 4);
        items.map(|items| items.all.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
    };
    assert_eq!(keys(over("[]")), Ok(vec![]));
    assert_eq!(keys(over("['b', 'a']")), Ok(vec!["b".to_owned(), "a".to_owned()]));
    assert_eq!(keys(over("range(inputs.n)")), Ok(vec!["0".to_owned(), "1".to_owned()]));
    let named = by_name("[{'name': 'x', 'of': 1}, {'name': 'y'}]");
    assert_eq!(keys(named), Ok(vec!["x".to_owned(), "y".to_owned()]));
    let hashes = keys(over("[{'a': 1}, [2]]")).expect("keys");
    assert!(hashes.iter().all(|key| key.len() == 16) && hashes[0] != hashes[1], "{hashes:?}");
    for (fan_out, says) in [
        (
            over("'text'"),
            "`foreach`, line 1: `'text'` is text, not a list; `| lines` or `| from_json` makes a list of",
        ),
        (over("none"), "`foreach`, line 1: `none` is none, not a list"),
        (over("range(5)"), "`foreach`, line 1: it gives 5 items, and `limits.max_instances` is 4"),
        (
            over("['a', 'b', 'a']"),
            "`foreach`, line 1: items 0 and 2 have the same key `a`: \"a\" and \"a\"",
        ),
        (over("['a', ' ']"), "`foreach`, line 1: the key of item 1 is empty: \" \""),
        (over("[none]"), "`foreach`, line 1: the key of item 0 is empty: null"),
        (by_name("[{'name': 'x'}, {}]"), "item 1: `foreach_key`, line 1: `item` has no `name`"),
        (
            by_name("[{'name': 'x' * 600}]"),
            "`foreach_key`, line 1: the key of item 0 has 600 bytes, more than 512",
        ),
        (
            by_name("[{'name': 'x', 'of': 1}, {'name': 'x'}]"),
            "`foreach_key`, line 1: items 0 and 1 have the same key `x`: {\"name\":\"x\",\"of\":1} and \
             {\"name\":\"x\"}",
        ),
    ] {
        let failure = keys(fan_out).expect_err(says);
        assert!(failure.message.starts_with(says), "{failure}");
    }
}

/// Instance 1 of each fan-out fails, and every other agent answers.
fn second_fails(world: &World, id: &crate::id::AgentId) -> Vec<Step> {
    vec![if id.as_str().contains("[1]") && !world.is_healed { Step::Fail } else { Step::Answer }]
}

fn keep_going() -> Limits {
    Limits { fail_fast: false, max_concurrency: 3, ..Limits::default() }
}

fn play(tasks: Vec<TaskSpec>, limits: Limits, script: Script) -> World {
    let mut world = World::new(tasks, limits, script, 1);
    world.play();
    world
}

fn status<'a>(world: &'a World, task: &str) -> &'a TaskStatus {
    world.state.task(&Name::of_record(task).expect("a name")).expect("a task")
}

fn outputs(world: &World, task: &str) -> Value {
    let output = status(world, task).output.clone().expect("an output");
    serde_json::from_str(&output.text).expect("a list")
}

#[test]
fn outputs_are_in_the_order_of_the_items_with_failures_as_values() {
    let some = FanOut { min_success: 0.6, ..over("['a', 'b', 'c']") };
    let tasks = vec![fanning("t", some), task("after", &["t"])];
    // The failure of an instance stops nothing.
    let limits = Limits { fail_fast: true, ..keep_going() };
    let world = play(tasks, limits, second_fails);
    let entry = |index: usize, key: &str| json!({ "index": index, "key": key, "state": "completed", "output": "done", "partial": null, "error": null });
    let failed = json!({
        "index": 1, "key": "b", "state": "failed", "output": null, "partial": null,
        "error": "overloaded: busy",
    });
    assert_eq!(outputs(&world, "t"), json!([entry(0, "a"), failed, entry(2, "c")]));
    assert_eq!(status(&world, "after").state, TaskState::Completed);
    let Some(Finish::Completed(completed)) = &world.finish else { panic!("{:?}", world.finish) };
    assert_eq!(completed.status, RunStatus::Completed);
    assert_eq!(crate::run_state::failure_kinds(completed), []);
    // An empty list completes with an empty list.
    let world = play(vec![fanning("t", over("[]"))], limits, second_fails);
    assert_eq!(outputs(&world, "t"), json!([]));
}

#[test]
fn too_few_instances_fail_the_task_and_only_the_failed_begin_again() {
    let tasks = vec![fanning("t", over("['a', 'b', 'c']")), task("after", &["t"])];
    let mut world = play(tasks, keep_going(), second_fails);
    let failure = status(&world, "t").failure.clone().expect("a failure");
    assert_eq!(
        failure.to_string(),
        "instances_failed: 1 of 3 instances failed: `b`: overloaded: busy"
    );
    let before = world.spawned.len();
    world.is_healed = true;
    world.retry(&[]);
    assert_eq!(world.states().len(), 5);
    world.play();
    let spawned: Vec<_> = world.spawned[before..].iter().map(ToString::to_string).collect();
    assert_eq!(spawned, ["t[1]", "after"], "its conversation continues");
    assert!(world.states().iter().all(|(_, state)| *state == TaskState::Completed));
    // A named instance may have completed: it runs again alone, and what follows is decided again.
    let named = world.state.retry(&["t[0]".to_owned()]).expect("it has ended");
    let texts = |names: &[Name]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&named.tasks), ["t", "t[0]"]);
    assert_eq!(texts(&named.reopened), ["after"]);
}

#[test]
fn an_instance_or_all_of_them_can_be_cancelled() {
    let hang: Script = |_, id| match id.as_str() {
        id if id.starts_with("t[") => vec![Step::Hang],
        _ => vec![Step::Answer],
    };
    for seed in 0..50 {
        let two = FanOut { max_concurrency: Some(2), ..over("range(4)") };
        let tasks = vec![fanning("t", two), task("other", &[])];
        let mut world = World::new(tasks, keep_going(), hang, seed);
        while !world.spawned.iter().any(|id| id.as_str() == "t[0]") {
            world.step();
        }
        let one = Name::of_record("t[0]").expect("a name");
        assert!(world.cancel(&CancelTarget::Task(one)));
        world.steps(20);
        assert!(world.cancel(&CancelTarget::Task(name("t"))));
        world.play();
        for (name, state) in world.states() {
            let expected =
                if name == "other" { TaskState::Completed } else { TaskState::Cancelled };
            assert_eq!(state, expected, "{name} {seed}\n{}", world.story());
        }
    }
}

#[test]
fn a_cleanup_that_fans_out_runs_after_a_stop_and_a_second_one_ends_it() {
    use TaskState::{Cancelled, Completed, Failed};
    let script: Script =
        |_, id| vec![if id.as_str().starts_with("clean") { Step::Answer } else { Step::Hang }];
    for (clean, second, expected) in
        [("clean", false, Completed), ("hang", false, Failed), ("hang", true, Cancelled)]
    {
        for seed in 0..20 {
            let cleanup = fanning(clean, over("[1, 2]"));
            let cleanup = TaskSpec { always: true, depends_on: vec![name("work")], ..cleanup };
            let tasks = vec![task("work", &[]), cleanup];
            let mut world = World::new(tasks, Limits::default(), script, seed);
            world.steps(usize::try_from(seed).expect("small"));
            world.cancel(&CancelTarget::Run);
            let first = name(clean).instance(0);
            if second {
                let is_running = |status: &TaskStatus| status.state == TaskState::Running;
                while !world.state.task(&first).is_some_and(is_running) {
                    assert!(world.step(), "{}", world.story());
                }
                world.cancel(&CancelTarget::Run);
            }
            world.play();
            let state = world.state.task(&first).map(|status| status.state);
            // Time passes as it likes here, and may end what has begun.
            let is_late = |status: &TaskStatus| {
                status.failure.as_ref().is_some_and(|failure| failure.kind == FailureKind::Timeout)
            };
            let is_late = world.state.task(&first).is_some_and(is_late);
            let expected = if is_late { Failed } else { expected };
            assert_eq!(state, Some(expected), "{clean} {second} {seed}: {}", world.story());
        }
    }
}
