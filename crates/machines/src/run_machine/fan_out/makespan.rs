//! Tests that a run with slots for all of its tasks takes as long as its critical path: no task waits
//! for one that it does not depend on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::super::testing::task;
use super::super::{Action, Now, RunMachine, Settings, Start};
use crate::event::{Draft, Record, RunOpened, SharedRecord};
use crate::id::{Name, RunId};
use crate::message::{Json, Usage};
use crate::output::Output;
use crate::plan::Plan;
use crate::spec::{FanOut, Limits, TaskSpec};
use crate::template::Known;
use crate::turn::{AgentEnded, Outcome};

/// Plays a run in which each agent takes the time that `takes` gives it and records take none, and
/// returns the time of its end.
fn makespan(tasks: Vec<TaskSpec>, takes: &dyn Fn(&str) -> u64) -> Duration {
    makespan_in(10_000, tasks, takes)
}

/// Does the same with so many slots.
fn makespan_in(slots: usize, tasks: Vec<TaskSpec>, takes: &dyn Fn(&str) -> u64) -> Duration {
    let limits = Limits { max_concurrency: slots, ..Limits::default() };
    let settings = Settings {
        budget: None,
        run: RunId::from(uuid::Uuid::nil()),
        workflow: "test".to_owned(),
        inputs: Map::new(),
        plan: Plan::new(tasks.clone()).expect("a plan"),
        limits,
        agents: BTreeMap::new(),
        models: BTreeMap::new(),
        tools: BTreeMap::new(),
        env: BTreeMap::new(),
        results: Default::default(),
        hooks: Default::default(),
        notices: Default::default(),
        ask_timeout: None,
        pid: 1,
        grows: false,
        attended: false,
    };
    let planned = tasks.iter().map(|task| json!({ "name": task.name }));
    let created = json!({
        "run": settings.run, "workflow": "test", "program": "", "file": "", "config": "",
        "config_hash": "", "inputs": {}, "tasks": planned.collect::<Vec<_>>(),
    });
    let created: crate::event::RunCreated = serde_json::from_value(created).expect("a record");
    let created = crate::event::RunCreated { inputs: Json::encode(&json!({})), ..created };
    let mut machine = RunMachine::new(settings, Start::default());
    let (mut seq, mut now) = (0, Duration::ZERO);
    let mut ends = BinaryHeap::new();
    let at = |since: Duration| Now { since, wall_ms: 0 };
    let mut record = |draft: Draft| -> SharedRecord {
        seq += 1;
        let Draft { task, agent, event } = draft;
        Arc::new(Record { seq, epoch: 1, ts_ms: 0, task, agent, event })
    };
    let first = [Draft::run(created), Draft::run(RunOpened::by_this_process(1))];
    let first: Vec<_> = first.into_iter().map(&mut record).collect();
    machine.committed(at(now), &first);
    machine.begin(at(now));
    loop {
        while let Some(action) = machine.next_action() {
            match action {
                Action::Record(drafts) => {
                    let records: Vec<_> = drafts.into_iter().map(&mut record).collect();
                    machine.committed(at(now), &records);
                }
                Action::Spawn { agent, .. } => {
                    let end = now + Duration::from_millis(takes(agent.as_str()));
                    ends.push(Reverse((end, agent)));
                }
                Action::Evaluate(evaluation) => {
                    let (task, number) = (&evaluation.task, evaluation.number);
                    machine.evaluated(at(now), task, number, evaluation.evaluate());
                }
                Action::CheckOutput { task, output, .. } => {
                    let output = output.output();
                    let value = serde_json::from_str(&output.text).unwrap_or(Value::Null);
                    machine.output_checked(at(now), &task, Ok((Known::of(&value), output)));
                }
                Action::Finish(_) => return now,
                _ => {}
            }
        }
        let Reverse((end, agent)) = ends.pop().expect("something is at work");
        now = end;
        let ended = AgentEnded {
            outcome: Outcome::Completed { output: Output::whole("done") },
            turns: 1,
            usage: Usage::default(),
            shortfalls: Default::default(),
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        };
        let task = machine.state().agents()[&agent].task.clone();
        let ended = record(Draft::agent(&task, &agent, ended));
        machine.committed(at(now), &[ended]);
    }
}

/// Returns the length of the longest chain of tasks that depend on each other.
fn critical_path(tasks: &[TaskSpec], takes: &dyn Fn(&str) -> u64) -> Duration {
    let mut ends: HashMap<&Name, u64> = HashMap::new();
    for task in tasks {
        let start = task.depends_on.iter().map(|before| ends[before]).max().unwrap_or(0);
        let own = match &task.fan_out {
            None => takes(task.name.as_str()),
            Some(fan_out) => {
                let count: usize =
                    fan_out.list.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("n");
                let instances = (0..count).map(|n| takes(task.name.instance(n).as_str()));
                instances.max().unwrap_or(0)
            }
        };
        ends.insert(&task.name, start + own);
    }
    Duration::from_millis(ends.values().copied().max().unwrap_or(0))
}

#[test]
fn with_slots_for_all_a_run_takes_as_long_as_its_critical_path() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut tasks: Vec<TaskSpec> = Vec::new();
        for number in 0..rng.usize(1..60) {
            let depends_on: Vec<_> = (0..rng.usize(..4).min(number))
                .map(|_| tasks[rng.usize(..number)].name.clone())
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect();
            let fan_out = (rng.u32(..5) == 0).then(|| FanOut {
                list: format!("range({})", rng.usize(..30)),
                item: "item".to_owned(),
                key: None,
                max_concurrency: None,
                min_success: 1.0,
            });
            let plain = task(&format!("t{number}"), &[]);
            tasks.push(TaskSpec { depends_on, fan_out, ..plain });
        }
        let takes = |id: &str| {
            let hash = blake3::hash(format!("{seed} {id}").as_bytes());
            1 + u64::from(hash.as_bytes()[0])
        };
        assert_eq!(makespan(tasks.clone(), &takes), critical_path(&tasks, &takes), "{seed}");
    }
}

#[test]
fn a_slow_branch_of_a_diamond_does_not_delay_what_follows_the_fast_one() {
    let tasks = vec![
        task("root", &[]),
        task("slow", &["root"]),
        task("fast", &["root"]),
        task("follower", &["fast"]),
        task("end", &["slow", "follower"]),
    ];
    let takes = |id: &str| if id == "slow" { 1000 } else { 10 };
    assert_eq!(makespan(tasks.clone(), &takes), critical_path(&tasks, &takes));
}

#[test]
fn a_chain_beside_a_long_fan_out_takes_its_turns() {
    let fan_out = FanOut {
        list: "range(600)".to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: None,
        min_success: 1.0,
    };
    for (limit, begins_first) in [(None, true), (None, false), (Some(8), true)] {
        let fan_out = FanOut { max_concurrency: limit, ..fan_out.clone() };
        let mut tasks = vec![TaskSpec { fan_out: Some(fan_out), ..task("each", &[]) }];
        for number in 0..20_u32 {
            let before = number.checked_sub(1).map(|before| format!("c{before}"));
            let before: Vec<&str> = before.iter().map(String::as_str).collect();
            tasks.push(task(&format!("c{number}"), &before));
        }
        if !begins_first {
            tasks.rotate_left(1);
        }
        // The chain takes nearly as long as everything together in eight slots.
        let takes = |id: &str| if id.starts_with('c') { 300 } else { 80 };
        let bound = Duration::from_millis((600 * 80 + 20 * 300) / 8);
        let took = makespan_in(8, tasks, &takes);
        assert!(took <= bound * 102 / 100, "{took:?} of {bound:?}");
    }
}

#[test]
fn a_task_with_two_locks_is_not_overtaken_by_those_with_one() {
    let locks =
        |names: &[&str]| names.iter().map(|name| super::super::testing::name(name)).collect();
    let mut tasks = vec![TaskSpec { locks: locks(&["x"]), ..task("first", &[]) }];
    tasks.push(TaskSpec { locks: locks(&["x", "y"]), ..task("big", &[]) });
    for number in 0..20 {
        let lock = if number % 2 == 0 { "x" } else { "y" };
        tasks.push(TaskSpec { locks: locks(&[lock]), ..task(&format!("s{number}"), &[]) });
    }
    tasks.push(task("after", &["big"]));
    // `big` begins when `first` has ended, so what follows from it ends with the others.
    let takes = |id: &str| if id == "after" { 1000 } else { 100 };
    assert_eq!(makespan_in(4, tasks, &takes), Duration::from_millis(1200));
}

#[test]
fn a_fan_out_that_needs_a_lock_leaves_it_to_others_in_turn() {
    let lock: Vec<Name> = vec![super::super::testing::name("x")];
    let fan_out = FanOut {
        list: "range(50)".to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: None,
        min_success: 1.0,
    };
    let mut tasks = vec![TaskSpec {
        fan_out: Some(fan_out),
        locks: lock.clone().into_iter().collect(),
        ..task("each", &[])
    }];
    tasks.push(task("before", &[]));
    tasks.push(TaskSpec { locks: lock.into_iter().collect(), ..task("one", &["before"]) });
    tasks.push(task("after", &["one"]));
    // `one` is ready amid an instance, has the lock after it, and ends with `after` before the others.
    let takes = |id: &str| match id {
        "before" => 150,
        "after" => 4700,
        _ => 100,
    };
    assert_eq!(makespan_in(4, tasks, &takes), Duration::from_millis(5100));
}

#[test]
fn of_tasks_that_are_ready_that_one_begins_first_for_which_the_longest_path_waits() {
    let mut tasks: Vec<_> = (0..8).map(|number| task(&format!("lone{number}"), &[])).collect();
    for number in 0..5_u32 {
        let before = number.checked_sub(1).map(|before| format!("c{before}"));
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        tasks.push(task(&format!("c{number}"), &before));
    }
    // Thirteen tasks in two slots: with the chain at its end they would take nine steps.
    assert_eq!(makespan_in(2, tasks, &|_| 100), Duration::from_millis(700));
}
