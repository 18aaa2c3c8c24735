//! Properties of continuations in a simulated world: whatever was retried, named, accepted, killed or
//! cut, a run ends as one from scratch would, and pays for nothing twice that has not changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, PauseCause, RunStatus};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::policy::RetryPolicy;
use crate::run_machine::testing::{Step, World, name, task};
use crate::run_machine::{Finish, Now};
use crate::spec::{Approval, FanOut, Join, Limits, OnFailure, TaskSpec, Work};
use crate::turn::Program;

fn keep_going() -> Limits {
    Limits { fail_fast: false, max_concurrency: 3, max_descendants: 10_000, ..Limits::default() }
}

fn hash(text: &str) -> u64 {
    let mixed = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mixed) >> 7
}

/// Returns the prompt of an agent.
fn prompt_of(world: &World, id: &AgentId) -> String {
    let born = world.records.iter().find_map(|record| match &record.event {
        Event::AgentSpawned(spawned) if record.agent.as_ref() == Some(id) => Some(spawned),
        _ => None,
    });
    match &born.expect("it was spawned").program {
        Program::Model { prompt, .. } => prompt.beginning().to_owned(),
        Program::Command(_) => String::new(),
    }
}

/// An agent whose end follows from its prompt: some fail until the cause is mended, few always.
fn by_prompt(world: &World, id: &AgentId) -> Vec<Step> {
    match hash(&prompt_of(world, id)) % 8 {
        0 | 1 => vec![Step::Fail],
        2 => vec![Step::FailForGood],
        _ => vec![Step::Answer],
    }
}

/// A graph of every feature. The end of an `ordered` one follows from its tasks alone.
fn graph(rng: &mut fastrand::Rng, ordered: bool) -> Vec<TaskSpec> {
    let mut tasks: Vec<TaskSpec> = Vec::new();
    for at in 0..rng.usize(2..9) {
        let before: BTreeSet<usize> =
            (0..rng.usize(..4).min(at)).map(|_| rng.usize(..at)).collect();
        let names: Vec<_> = before.iter().map(|at| format!("t{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let joins = [
            Join::AllSuccess,
            Join::AllDone,
            Join::AllDone,
            Join::NoneFailed,
            Join::AnySuccess,
            Join::AtLeast(1),
        ];
        let join = joins[rng.usize(..joins.len())];
        let always = rng.u32(..8) == 0;
        let join = if always { Join::AllDone } else { join };
        // A task that needs only some of those before it may start at any time.
        let may_read = join.wanted().is_none() || !ordered;
        let mut read = String::new();
        let mut when = None;
        let mut list = format!("range({})", rng.u32(1..4));
        for before in before.iter().map(|at| &tasks[*at]).filter(|_| may_read) {
            let (it, answers) = (&before.name, matches!(before.work, Work::Approval(_)));
            let field = match before.fan_out.is_some() {
                true => "outputs",
                false => "output",
            };
            match rng.u32(..6) {
                0 => read += &format!(" {{{{ tasks.{it}.state }}}}"),
                1 | 2 if !answers => read += &format!(" {{{{ tasks.{it}.{field} }}}}"),
                // Who rejected something is no part of the plan.
                3 if !answers => read += &format!(" {{{{ tasks.{it}.error }}}}"),
                4 if when.is_none() && rng.u32(..3) == 0 => {
                    when = Some(format!("tasks.{it}.state == 'completed'"));
                }
                5 if before.fan_out.is_some() => {
                    list = format!("tasks.{it}.outputs | default([], true) | map(attribute='key')");
                }
                5 => list = format!("[tasks.{it}.state, 'x', 'y']"),
                _ => {}
            }
        }
        let name = format!("t{at}");
        let fan_out = (rng.u32(..3) == 0).then(|| FanOut {
            list,
            item: "item".to_owned(),
            key: None,
            max_concurrency: None,
            min_success: rng.choice([0.0, 0.5, 1.0]).expect("a share"),
        });
        let item = fan_out.iter().map(|_| " {{ item }}").next().unwrap_or_default();
        let plain = task(&name, &names);
        let prompt = format!("{} {name}{item}{read}", rng.u8(..));
        let is_gate = fan_out.is_none() && rng.u32(..7) == 0;
        let work = match plain.work {
            _ if is_gate => Work::Approval(Approval { message: prompt, ..Approval::default() }),
            Work::Agent { agent, .. } => Work::Agent { agent, prompt },
            other => other,
        };
        let ends = [OnFailure::Continue, OnFailure::SkipDependents];
        let on_failure = rng.choice(ends).filter(|_| rng.u32(..4) == 0);
        let retry = RetryPolicy { max_attempts: rng.u32(1..3), ..RetryPolicy::default() };
        tasks.push(TaskSpec { work, join, always, when, fan_out, on_failure, retry, ..plain });
    }
    tasks
}

/// Lets one event happen. A person answers each question as its words say.
fn step(world: &mut World) -> bool {
    let asked = world.open_questions();
    let is_answered = !asked.is_empty() && world.rng.u32(..4) == 0;
    match asked.first().filter(|_| is_answered) {
        Some(id) if world.finish.is_none() => {
            let allowed = would_allow(world, id);
            world.answer(id, allowed);
            true
        }
        _ => world.step_without_people(),
    }
}

fn would_allow(world: &World, id: &str) -> bool {
    let question = world.state.questions().get(id).expect("an open question");
    !hash(&question.asked.message).is_multiple_of(4)
}

/// Plays a run to its end, with answers between processes where it pauses for people. `dies` says after
/// which event the process dies.
fn play(world: &mut World, mut dies: impl FnMut(&mut World) -> bool) {
    for _ in 0..100_000 {
        match world.finish.clone() {
            Some(Finish::Completed(_)) => return,
            Some(Finish::Paused(paused)) => {
                assert_eq!(paused.cause, PauseCause::Person, "{}", world.story());
                for id in world.open_questions() {
                    let allowed = would_allow(world, &id);
                    let answer = world.make_answer(&id, allowed);
                    world.answers.push(answer);
                }
                world.kill_process();
            }
            Some(other) => panic!("{other:?}\n{}", world.story()),
            None if dies(world) => world.kill_process(),
            None => assert!(step(world), "it hangs\n{}", world.story()),
        }
    }
    panic!("it does not end\n{}", world.story());
}

fn calm(_: &mut World) -> bool {
    false
}

/// What is left of a run: the state and the output of each task; of an answer only that it is there.
fn end_of(world: &World) -> BTreeMap<String, (String, Option<String>)> {
    let tasks = world.state.tasks().map(|(name, task)| {
        let written = name.of_instance().unwrap_or(name.as_str());
        let spec = world.settings.plan.task(written).expect("a task");
        let is_answer = matches!(spec.work, Work::Approval(_));
        let output = task.output.as_ref().filter(|_| !is_answer).map(|o| o.text.clone());
        (name.to_string(), (task.state.as_read().to_owned(), output))
    });
    tasks.collect()
}

/// The contents from which each task has completed, before the record with this number.
fn paid(world: &World, until: usize) -> BTreeSet<(String, String)> {
    let (mut keys, mut paid) = (BTreeMap::new(), BTreeSet::new());
    for record in world.records[..until].iter().filter(|record| record.agent.is_none()) {
        let Some(task) = &record.task else { continue };
        match &record.event {
            Event::TaskStarted(started) => drop(keys.insert(task, started.key.clone())),
            Event::TaskCompleted(_) => {
                if let Some(Some(key)) = keys.get(task) {
                    paid.insert((task.to_string(), key.clone()));
                }
            }
            _ => {}
        }
    }
    paid
}

/// Checks that since a record no task ran that had completed from the same content, unless it is
/// `anew` or cleans up.
fn nothing_is_paid_twice(world: &World, mark: usize, anew: &BTreeSet<Name>) {
    let paid = paid(world, mark);
    for record in &world.records[mark..] {
        let (Some(task), Event::TaskStarted(started)) = (&record.task, &record.event) else {
            continue;
        };
        let Some(key) = started.key.clone() else { continue };
        let written = task.of_instance().unwrap_or(task.as_str());
        let cleans_up = world.settings.plan.task(written).expect("a task").always;
        let is_again = paid.contains(&(task.to_string(), key));
        let may = cleans_up || anew.contains(task);
        assert!(!is_again || may, "{task} is paid for twice\n{}", world.story());
    }
}

/// Compares the state after a continuation with that of a run from scratch, in `count` graphs.
fn continuations_end_as_a_run_from_scratch(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tasks = graph(&mut rng, true);
        let new = |seed| {
            let mut world = World::new(tasks.clone(), keep_going(), by_prompt, seed);
            world.mirrors = true;
            world
        };
        let mut scratch = new(seed);
        scratch.is_healed = true;
        play(&mut scratch, calm);
        let mut world = new(seed + 1);
        // Some runs are stopped before their end.
        let mut left = if rng.u32(..3) == 0 { rng.usize(..80) } else { usize::MAX };
        while world.finish.is_none() && left > 0 {
            left -= 1;
            if !step(&mut world) {
                break;
            }
        }
        if left > 0 {
            play(&mut world, calm);
        }
        world.is_healed = true;
        let mark = world.records.len();
        let mut anew = BTreeSet::new();
        let done = |world: &World| -> Vec<Name> {
            let done = world.state.tasks().filter(|(_, task)| task.state.is_end());
            done.map(|(name, _)| name.clone()).collect()
        };
        match rng.u32(..4) {
            0 => world.accept(),
            _ => drop(world.retry(&[])),
        }
        let mut deaths = rng.clone();
        let often = rng.u32(..2) == 0;
        play(&mut world, |_| often && deaths.u32(..12) == 0);
        // What had failed before the cause was mended, and was told only afterwards.
        if left == 0 {
            world.retry(&[]);
            play(&mut world, calm);
        }
        // A task that wants to be named.
        if let Some(named) = rng.choice(done(&world)).filter(|_| rng.bool()) {
            let retry = world.retry(&[named.as_str()]);
            anew.extend(retry.tasks);
            play(&mut world, |_| often && deaths.u32(..12) == 0);
        }
        assert_eq!(end_of(&world), end_of(&scratch), "seed {seed}\n{}", world.story());
        nothing_is_paid_twice(&world, mark, &anew);
        assert_eq!((world.state.open_tasks(), world.state.open_agents()), (0, 0), "seed {seed}");
    }
}

#[test]
fn after_any_continuation_a_run_is_as_one_from_scratch() {
    continuations_end_as_a_run_from_scratch(0..3_000);
}

/// About a minute in a release build.
#[test]
#[ignore = "20,000 graphs: about a minute in a release build, ten in a debug build"]
fn after_any_continuation_a_run_is_as_one_from_scratch_in_20_000_graphs() {
    continuations_end_as_a_run_from_scratch(0..20_000);
}

/// Resumes every prefix of the journals of these runs.
fn every_prefix_ends(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut rng = fastrand::Rng::with_seed(seed);
        let is_ordered = rng.bool();
        let tasks = graph(&mut rng, is_ordered);
        // After a first failure it counts what had begun: then the world's own rules judge.
        let fail_fast = !is_ordered && rng.bool();
        let limits = Limits { fail_fast, ..keep_going() };
        let mut twin = World::new(tasks, limits, by_prompt, seed);
        twin.mirrors = true;
        play(&mut twin, calm);
        for count in twin.batches.clone() {
            let mut world = twin.cut_after(count, seed + count as u64);
            if world.state.completed().is_none() {
                play(&mut world, calm);
            }
            if is_ordered {
                let story = || format!("seed {seed} after {count}\n{}", world.story());
                assert_eq!(end_of(&world), end_of(&twin), "{}", story());
            }
            // What failed can be tried again from there.
            world.is_healed = true;
            world.retry(&[]);
            play(&mut world, calm);
        }
    }
}

#[test]
fn every_prefix_of_a_journal_leads_to_an_end_that_the_plan_allows() {
    every_prefix_ends(0..150);
}

#[test]
#[ignore = "5,000 graphs with all their prefixes: some minutes in a release build"]
fn every_prefix_of_5_000_journals_leads_to_an_end_that_the_plan_allows() {
    every_prefix_ends(0..5_000);
}

fn state(world: &World, task: &str) -> TaskState {
    let task = Name::of_record(task).expect("a name");
    world.state.task(&task).expect("a task").state
}

/// Returns how often a person was asked.
fn questions(world: &World) -> usize {
    let asked = |event: &Event| matches!(event, Event::ApprovalAsked(_));
    world.records.iter().filter(|record| asked(&record.event)).count()
}

/// Makes a task with this prompt.
fn saying(task_name: &str, depends_on: &[&str], join: Join, prompt: &str) -> TaskSpec {
    let work = Work::Agent { agent: name("worker"), prompt: prompt.to_owned() };
    TaskSpec { work, join, ..task(task_name, depends_on) }
}

/// The agents of `bad` fail until it is mended.
fn bad_fails(world: &World, id: &AgentId) -> Vec<Step> {
    let _ = world;
    match id.as_str().starts_with("bad") {
        true => vec![Step::Fail],
        false => vec![Step::Answer],
    }
}

fn attempts(world: &World, task: &str) -> usize {
    let main = |id: &&AgentId| id.as_str().split('~').next() == Some(task);
    world.state.agents().keys().filter(main).count()
}

#[test]
fn what_saw_a_failure_runs_again_once_it_is_mended_and_what_saw_none_of_it_does_not() {
    use TaskState::{Completed, Reused};
    let gate = |task: &str, message: &str| TaskSpec {
        work: Work::Approval(Approval { message: message.to_owned(), ..Approval::default() }),
        join: Join::AllDone,
        ..self::task(task, &["bad", "good"])
    };
    let tasks = vec![
        task("bad", &[]),
        task("good", &[]),
        // It names the state; it only waits; it follows from one that waits; it has nothing to do
        // with it.
        saying("names", &["bad"], Join::AllDone, "{{ tasks.bad.state }}"),
        saying("waits", &["bad"], Join::AllDone, "x"),
        saying("later", &["waits"], Join::AllSuccess, "y"),
        saying("aside", &["good"], Join::AllSuccess, "z"),
        TaskSpec { always: true, ..saying("clean", &["bad"], Join::AllDone, "c") },
        gate("gate", "well?"),
    ];
    let mut world = World::new(tasks, keep_going(), bad_fails, 1);
    play(&mut world, calm);
    // Nothing is mended: nothing but the failed task and the cleanup runs again.
    let retry = world.retry(&[]);
    assert_eq!(retry.tasks, ["bad"].map(name));
    assert_eq!(retry.reopened, ["names", "waits", "later", "clean", "gate"].map(name));
    play(&mut world, calm);
    let all = ["names", "waits", "later", "aside", "clean"];
    assert_eq!(all.map(|task| attempts(&world, task)), [1, 1, 1, 1, 2], "{}", world.story());
    assert_eq!(["names", "gate"].map(|task| state(&world, task)), [Reused; 2]);
    assert_eq!(questions(&world), 1, "a person is not asked twice about the same");
    world.is_healed = true;
    world.retry(&[]);
    play(&mut world, calm);
    // `later` is made from the same answer of `waits`.
    assert_eq!(all.map(|task| attempts(&world, task)), [2, 2, 1, 1, 3], "{}", world.story());
    assert_eq!(["bad", "names", "waits", "gate"].map(|task| state(&world, task)), [Completed; 4]);
    assert_eq!(questions(&world), 2, "the answer was given about a failure");
    // A named task that completed runs again, with all that follows: who knows what it left.
    let retry = world.retry(&["good"]);
    assert_eq!(retry.tasks, ["good", "aside", "gate"].map(name));
    assert_eq!(retry.reopened, []);
    play(&mut world, calm);
    assert_eq!(["good", "aside"].map(|task| attempts(&world, task)), [2, 2]);
    assert_eq!(questions(&world), 3);
}

#[test]
fn a_named_instance_runs_alone_and_the_reader_of_its_fan_out_again() {
    let fan_out = FanOut {
        list: "range(3)".to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: None,
        min_success: 0.0,
    };
    let bad =
        TaskSpec { fan_out: Some(fan_out), ..saying("bad", &[], Join::AllSuccess, "{{ item }}") };
    let sum = saying("sum", &["bad"], Join::AllSuccess, "{{ tasks.bad.outputs }}");
    let order = saying("order", &["bad"], Join::AllSuccess, "o");
    let mut world = World::new(vec![bad, sum, order], keep_going(), bad_fails, 1);
    play(&mut world, calm);
    world.is_healed = true;
    world.retry(&["bad[1]"]);
    play(&mut world, calm);
    let instances = ["bad[0]", "bad[1]", "bad[2]"];
    let states = instances.map(|task| state(&world, task));
    assert_eq!(states, [TaskState::Failed, TaskState::Completed, TaskState::Failed]);
    assert_eq!(["sum", "order"].map(|task| attempts(&world, task)), [2, 2]);
    // Without a name the failed items begin again, although their task completed.
    world.retry(&[]);
    play(&mut world, calm);
    assert_eq!(instances.map(|task| state(&world, task)), [TaskState::Completed; 3]);
    assert_eq!(["sum", "order"].map(|task| attempts(&world, task)), [3, 3]);
}

#[test]
fn what_a_failure_spares_is_the_same_after_a_restart() {
    let fan_out = |list: &str| {
        let (list, item) = (list.to_owned(), "item".to_owned());
        FanOut { list, item, key: None, max_concurrency: Some(1), min_success: 0.5 }
    };
    let tasks = || {
        let each = TaskSpec { fan_out: Some(fan_out("range(4)")), ..task("each", &["report"]) };
        vec![
            task("bad", &[]),
            saying("report", &["bad"], Join::AllDone, "r"),
            each,
            task("after", &["each"]),
            task("other", &["after"]),
        ]
    };
    let limits = Limits { fail_fast: true, ..keep_going() };
    for seed in 0..60 {
        let mut world = World::new(tasks(), limits, bad_fails, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        play(&mut world, |_| rng.u32(..6) == 0);
        let all = ["report", "each", "each[3]", "after", "other"];
        let states = all.map(|task| state(&world, task));
        assert_eq!(states, [TaskState::Completed; 5], "{seed}\n{}", world.story());
    }
}

#[test]
fn what_has_begun_goes_on_after_a_failure_elsewhere() {
    let fan_out = FanOut {
        list: "range(9)".to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: Some(1),
        min_success: 0.1,
    };
    let retry = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    let tasks = || {
        vec![
            task("bad", &[]),
            TaskSpec { fan_out: Some(fan_out.clone()), ..task("each", &[]) },
            TaskSpec { retry: retry.clone(), ..task("bad-twice", &[]) },
        ]
    };
    let limits = Limits { fail_fast: true, max_concurrency: 2, ..keep_going() };
    for seed in 0..60 {
        let mut world = World::new(tasks(), limits, bad_fails, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        play(&mut world, |_| rng.u32(..9) == 0);
        let twice = world.state.task(&name("bad-twice")).expect("a task");
        match twice.attempt {
            0 => assert_eq!(twice.state, TaskState::Skipped),
            _ => assert_eq!((twice.attempt, twice.state), (2, TaskState::Failed)),
        }
        if state(&world, "each") != TaskState::Skipped {
            assert_eq!(state(&world, "each[8]"), TaskState::Completed, "{}", world.story());
        }
    }
}

#[test]
fn what_begins_again_waits_for_what_begins_again_before_it() {
    let mut seen = 0;
    for seed in 0..100 {
        // It needs one of two, and reads one of them.
        let pick = saying("pick", &["a", "b"], Join::AnySuccess, "{{ tasks.a.state }}");
        let tasks = vec![task("a", &[]), task("b", &[]), pick];
        let mut world = World::new(tasks, keep_going(), bad_fails, seed);
        world.mirrors = true;
        play(&mut world, calm);
        let before = end_of(&world);
        let read = world.state.task(&name("pick")).and_then(|pick| pick.agent.clone());
        if prompt_of(&world, &read.expect("an agent")) != "completed" {
            continue;
        }
        seen += 1;
        let mut rng = fastrand::Rng::with_seed(seed);
        world.accept();
        play(&mut world, |_| rng.u32(..9) == 0);
        assert_eq!(end_of(&world), before, "seed {seed}\n{}", world.story());
        assert_eq!(state(&world, "pick"), TaskState::Reused, "seed {seed}\n{}", world.story());
        world.retry(&["a"]);
        play(&mut world, |_| rng.u32(..9) == 0);
        assert_eq!(end_of(&world), before, "seed {seed}\n{}", world.story());
        assert_eq!(attempts(&world, "pick"), 2, "nobody knows what `a` left behind");
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn a_failure_from_before_a_retry_of_something_else_counts_for_the_end() {
    use RunStatus::{Failed, Partial};
    // Each row: what the failure does by itself, by the limits, and the end of the run.
    for (on_failure, fail_fast, status) in [
        (Some(OnFailure::Fail), false, Failed),
        (Some(OnFailure::SkipDependents), true, Partial),
        (None, true, Failed),
        (None, false, Partial),
    ] {
        let tasks = vec![
            TaskSpec { on_failure, ..task("bad", &[]) },
            TaskSpec { on_failure, ..task("bad-too", &[]) },
            task("good", &[]),
        ];
        let limits = Limits { fail_fast, ..keep_going() };
        let mut world = World::new(tasks, limits, bad_fails, 1);
        let end = |world: &World| world.state.completed().expect("it ended").status;
        play(&mut world, calm);
        assert_eq!(end(&world), status, "{on_failure:?} {fail_fast}");
        world.is_healed = true;
        world.retry(&["bad-too"]);
        play(&mut world, |world| world.state.last_seq() % 5 == 0 && world.rng.bool());
        assert_eq!(state(&world, "bad-too"), TaskState::Completed);
        assert_eq!(end(&world), status, "{on_failure:?} {fail_fast}");
    }
}

#[test]
fn a_result_with_which_tasks_came_is_none_for_a_run_without_them() {
    let proposes = |world: &World, id: &AgentId| {
        let mut steps = bad_fails(world, id);
        if id.as_str().starts_with("plan") {
            steps.insert(0, Step::Propose);
        }
        steps
    };
    let tasks = vec![task("early", &[]), task("plan", &["early"]), task("last", &["plan"])];
    let mut world = World::new(tasks, keep_going(), proposes, 1);
    world.unasked = true;
    play(&mut world, calm);
    for _ in 0..2 {
        let results = world.state.reusable_results();
        let is_kept = |task: &str| {
            let key = world.state.task(&name(task)).and_then(|task| task.key.clone());
            results.contains_key(&key.expect("it ran"))
        };
        assert_eq!(["early", "last", "p-plan"].map(is_kept), [true; 3]);
        assert!(!is_kept("plan"));
        // In the run itself it stands.
        world.accept();
        play(&mut world, calm);
        assert_eq!(state(&world, "plan"), TaskState::Reused);
    }
}

#[test]
fn a_fan_out_reads_its_items_again_as_they_were() {
    // The second dependency ends while the instances are at work.
    let fan_out = FanOut {
        list: "[tasks.quick.state, tasks.slow.state, 'x']".to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: Some(1),
        min_success: 1.0,
    };
    let each = TaskSpec {
        fan_out: Some(fan_out),
        ..saying("each", &["quick", "slow"], Join::AnySuccess, "e")
    };
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let tasks = vec![task("quick", &[]), task("slow", &["quick"]), each.clone()];
        let mut world = World::new(tasks, keep_going(), bad_fails, seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        play(&mut world, |_| rng.u32(..9) == 0);
        let each = world.state.task(&name("each")).expect("a task");
        let lost = each.failure.as_ref().is_some_and(|why| why.message.contains("read again"));
        assert!(!lost, "{seed}: {each:?}\n{}", world.story());
        seen.insert((each.state.as_str(), each.instances.get(1).map(|(_, key)| key.clone())));
    }
    assert!(seen.contains(&("completed", Some("pending".to_owned()))), "{seen:?}");
}

#[test]
fn a_fan_out_over_what_failed_is_decided_again_when_that_is_tried_again() {
    let fan_out = FanOut {
        list: "[tasks.bad.state, 'x', 'y']".to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: Some(1),
        min_success: 1.0,
    };
    for seed in 0..60 {
        let each = TaskSpec {
            fan_out: Some(fan_out.clone()),
            ..saying("each", &["bad"], Join::AllDone, "{{ item }}")
        };
        let mut world = World::new(vec![task("bad", &[]), each], keep_going(), bad_fails, seed);
        while world.state.task(&name("each")).is_some_and(|each| each.instances.is_empty()) {
            world.step();
        }
        let steps = world.rng.usize(..20);
        world.steps(steps);
        world.is_healed = seed % 2 == 0;
        world.retry(&[]);
        play(&mut world, calm);
        let first = if world.is_healed { "completed" } else { "failed" };
        let each = world.state.task(&name("each")).expect("a task");
        assert_eq!((each.state.as_read(), &*each.instances[0].1), ("completed", first));
        let own = attempts(&world, "each[2]");
        assert!(own <= 2, "{own}\n{}", world.story());
    }
}

#[test]
fn items_that_cannot_be_read_again_fail_their_task_with_a_way_on() {
    let fan_out = FanOut {
        list: "range(3)".to_owned(),
        item: "item".to_owned(),
        key: None,
        max_concurrency: Some(1),
        min_success: 1.0,
    };
    let each = TaskSpec { fan_out: Some(fan_out), ..task("each", &[]) };
    let mut world = World::new(vec![each, task("after", &["each"])], keep_going(), bad_fails, 3);
    while attempts(&world, "each[0]") == 0 {
        world.step();
    }
    // Whatever made them is not what it was.
    let mut tasks = world.settings.plan.tasks()[..2].to_vec();
    if let Some(fan_out) = &mut tasks[0].fan_out {
        fan_out.list = "range(2)".to_owned();
    }
    world.settings.plan = crate::plan::Plan::new(tasks).expect("a plan");
    world.kill_process();
    play(&mut world, calm);
    let failure = world.state.task(&name("each")).and_then(|each| each.failure.clone());
    let failure = failure.expect("it failed").to_string();
    assert!(failure.contains("`resume --retry-failed` begins it again"), "{failure}");
    world.retry(&[]);
    play(&mut world, calm);
    assert_eq!(["each", "after"].map(|task| state(&world, task)), [TaskState::Completed; 2]);
}

#[test]
fn a_pause_is_no_longer_than_it_was_when_the_clock_has_gone_back() {
    let retry = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    let bad = TaskSpec { retry, ..task("bad", &[]) };
    let mut world = World::new(vec![bad], keep_going(), bad_fails, 1);
    while state(&world, "bad") != TaskState::Waiting {
        world.step();
    }
    let pause = world.state.task(&name("bad")).and_then(|task| task.pause_ms).expect("a pause");
    let day = 86_400_000;
    let mut machine = crate::run_machine::RunMachine::new(world.settings.clone(), world.start_of());
    machine.begin(Now { wall_ms: world.now().wall_ms - day, ..Now::default() });
    let wake = machine.next_wake().expect("a pause");
    assert!(wake.as_millis() <= u128::from(pause), "{wake:?} instead of {pause} ms");
}
