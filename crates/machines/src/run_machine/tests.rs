//! Tables and properties of the run machine.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use serde_json::Value;

use super::forecast::{Lookup, forecast};
use super::testing::{Script, Step, World, name, task};
use super::{CancelTarget, Finish, GivenUp};
use crate::event::{Event, RunStatus};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, Name};
use crate::message::Json;
use crate::output::Output;
use crate::plan::TaskState;
use crate::policy::RetryPolicy;
use crate::run_state::{AgentStatus, HookState, TaskStatus};
use crate::schema::Schema;
use crate::spec::acceptance::{Acceptance, Check, CheckWork, Loop};
use crate::spec::hooks::Hook;
use crate::spec::spawn_rate::SpawnRate;
use crate::spec::{FanOut, Join, Limits, OnFailure, OutputFormat, TaskSpec};
use crate::turn::Outcome;

/// Limits under which a failed task leaves independent tasks alone.
pub(super) fn keep_going() -> Limits {
    Limits { fail_fast: false, max_concurrency: 3, ..Limits::default() }
}

fn retrying(attempts: u32) -> RetryPolicy {
    RetryPolicy { max_attempts: attempts, ..RetryPolicy::default() }
}

/// A script in which every agent answers at once, except those of the tasks `fail`, `crash`,
/// `hang`, `stuck` and `kids`.
fn by_name(_: &World, id: &AgentId) -> Vec<Step> {
    let task = id.as_str().split(['/', '~']).next().unwrap_or_default();
    match task {
        _ if id.as_str().contains('/') => vec![Step::Answer],
        "fail" => vec![Step::Fail],
        "crash" => vec![Step::Crash, Step::Answer],
        "hang" => vec![Step::Hang],
        "stuck" => vec![Step::Stuck],
        "kids" => vec![Step::Delegate(3), Step::Answer],
        _ => vec![Step::Answer],
    }
}

fn with_join(name: &str, depends_on: &[&str], join: Join) -> TaskSpec {
    TaskSpec { join, ..task(name, depends_on) }
}

fn completed(finish: &Finish) -> RunStatus {
    match finish {
        Finish::Completed(completed) => completed.status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_whose_dependency_failed_is_skipped_unless_its_join_allows_it() {
    use TaskState::{Completed, Skipped};
    let table = [
        (Join::AllSuccess, &["fail", "good"][..], Skipped),
        (Join::AllSuccess, &["good"], Completed),
        (Join::NoneFailed, &["fail", "good"], Skipped),
        (Join::NoneFailed, &["behind"], Completed),
        (Join::AllSuccess, &["behind"], Skipped),
        (Join::AllDone, &["fail", "behind"], Completed),
        (Join::AnySuccess, &["fail", "good"], Completed),
        (Join::AnySuccess, &["fail", "behind"], Skipped),
    ];
    for (join, depends_on, state) in table {
        let tasks = vec![
            task("fail", &[]),
            task("good", &[]),
            task("behind", &["fail"]),
            with_join("last", depends_on, join),
        ];
        let mut world = World::new(tasks, keep_going(), by_name, 1);
        assert_eq!(completed(&world.play()), RunStatus::Partial);
        let last = world.state.task(&name("last")).expect("a task");
        assert_eq!(last.state, state, "{join:?} of {depends_on:?}");
        let named = last.because.as_ref().is_some_and(|b| depends_on.contains(&b.as_str()));
        assert_eq!(named, state == Skipped, "a task that is skipped names the reason");
    }
}

/// The page of the documentation with the table of what a failure does.
const PAGE: &str = include_str!("../../../../docs/graphs.md");

/// Returns the rows of the table of what a failure does, as cells.
fn table_of_failures() -> Vec<Vec<String>> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| `on_failure` |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn a_failure_does_what_the_table_in_the_documentation_says() {
    let table = table_of_failures();
    assert_eq!(table.len(), 7, "{table:?}");
    for row in table {
        let on_failure = match row[0].as_str() {
            "absent" => None,
            "fail" => Some(OnFailure::Fail),
            "skip_dependents" => Some(OnFailure::SkipDependents),
            "continue" => Some(OnFailure::Continue),
            other => panic!("{other}"),
        };
        // `--keep-going` sets the limit.
        let fail_fast = row[1] == "no" && row[2] == "true";
        let joins = [Join::AllSuccess, Join::AllDone, Join::AnySuccess, Join::NoneFailed];
        for (join, expected) in joins.into_iter().zip(&row[4..]) {
            let tasks = vec![
                TaskSpec { on_failure, ..task("fail", &[]) },
                task("other", &[]),
                with_join("after", &["fail"], join),
            ];
            let limits = Limits { fail_fast, max_concurrency: 1, ..keep_going() };
            let mut world = World::new(tasks, limits, by_name, 1);
            world.play();
            let state = |task: &str| match world.state.task(&name(task)).map(|task| task.state) {
                Some(TaskState::Completed) => "starts",
                Some(TaskState::Skipped) => "skipped",
                other => panic!("{other:?}"),
            };
            assert_eq!(state("after"), expected, "{row:?} {join:?}");
            let others = if row[3] == "start" { "starts" } else { "skipped" };
            assert_eq!(state("other"), others, "{row:?} {join:?}");
        }
    }
}

#[test]
fn joins_that_can_still_hold_are_not_defeated_by_the_first_failure() {
    use TaskState::{Completed, Failed, Skipped};
    // `first` needs one of `fail` and `late`; `publish` follows from it, and nothing needs `other`.
    let tasks = || {
        vec![
            task("fail", &[]),
            task("late", &["good"]),
            task("good", &[]),
            with_join("first", &["fail", "late"], Join::AnySuccess),
            task("publish", &["first"]),
            task("other", &[]),
            TaskSpec { always: true, ..task("clean", &["publish", "other"]) },
        ]
    };
    let limits = Limits { fail_fast: true, max_concurrency: 1, ..keep_going() };
    let mut world = World::new(tasks(), limits, by_name, 1);
    world.play();
    let states: Vec<_> = world.states().into_iter().map(|(_, state)| state).collect();
    let expected = [Failed, Completed, Completed, Completed, Completed, Skipped, Completed];
    assert_eq!(states, expected, "{}", world.story());
}

#[test]
fn what_always_runs_does_so_after_a_cancellation_and_a_second_one_ends_it() {
    use TaskState::{Cancelled, Completed};
    for (clean, second, expected) in
        [("clean", false, Completed), ("hang", false, TaskState::Failed), ("hang", true, Cancelled)]
    {
        for seed in 0..30 {
            let tasks = vec![
                task("stuck", &[]),
                task("later", &["stuck"]),
                TaskSpec { always: true, ..task(clean, &["later"]) },
            ];
            let mut world = World::new(tasks, keep_going(), by_name, seed);
            world.steps(usize::try_from(seed).expect("small"));
            world.cancel(&CancelTarget::Run);
            if second {
                while world.state.task(&name(clean)).is_none_or(|t| t.state != TaskState::Running) {
                    assert!(world.step(), "{}", world.story());
                }
                world.cancel(&CancelTarget::Run);
            }
            assert_eq!(completed(&world.play()), RunStatus::Cancelled);
            let states: Vec<_> = world.states().into_iter().map(|(_, state)| state).collect();
            assert_eq!(states, [Cancelled, Cancelled, expected], "{clean} {second} {seed}");
        }
    }
}

#[test]
fn what_cleans_up_delegates_and_asks_although_the_run_is_stopped() {
    let script: Script = |world, id| match id.as_str() {
        "clean" => vec![Step::Delegate(2), Step::Ask, Step::Answer],
        _ => by_name(world, id),
    };
    let mut completed = 0;
    for seed in 0..40 {
        let tasks = vec![task("hang", &[]), TaskSpec { always: true, ..task("clean", &["hang"]) }];
        let mut world = World::new(tasks, keep_going(), script, seed);
        world.steps(usize::try_from(seed % 10).expect("small"));
        world.cancel(&CancelTarget::Run);
        world.play_with_people();
        let state = world.state.task(&name("clean")).map(|task| task.state);
        completed += u32::from(state == Some(TaskState::Completed));
    }
    // Time passes at random here, so that the limit of what cleans up is reached now and then.
    assert!(completed > 20, "{completed}");
}

#[test]
fn the_first_failure_keeps_new_tasks_from_starting_unless_told_otherwise() {
    let tasks = || {
        let after = TaskSpec { timeout: None, ..task("other", &["slow"]) };
        vec![
            task("fail", &[]),
            task("slow", &[]),
            after,
            with_join("end", &["fail"], Join::AllDone),
        ]
    };
    for seed in 0..50 {
        let limits = Limits { fail_fast: true, max_concurrency: 1, ..Limits::default() };
        let mut world = World::new(tasks(), limits, by_name, seed);
        assert_eq!(completed(&world.play()), RunStatus::Failed);
        let state = |task: &str| world.state.task(&name(task)).expect("a task").state;
        assert_eq!(state("end"), TaskState::Completed, "what waits for mere ends is meant for it");
        assert_eq!(state("other"), TaskState::Skipped);
    }
}

#[test]
fn a_failed_attempt_is_made_again_as_often_as_the_policy_says() {
    for (attempts, retries) in [(1, 0), (3, 2)] {
        let tasks = vec![TaskSpec { retry: retrying(attempts), ..task("fail", &[]) }];
        let mut world = World::new(tasks, keep_going(), by_name, 1);
        assert_eq!(completed(&world.play()), RunStatus::Failed);
        let count = |kind: &str| world.records.iter().filter(|r| r.event.kind() == kind).count();
        assert_eq!((count("task.retrying"), count("task.started")), (retries, retries + 1));
        assert_eq!(world.state.task(&name("fail")).expect("a task").attempt, attempts);
    }
}

#[test]
fn an_agent_that_crashes_is_restarted_as_often_as_its_policy_forgives() {
    let tasks = vec![task("crash", &[])];
    let mut world = World::new(tasks, keep_going(), by_name, 1);
    assert_eq!(completed(&world.play()), RunStatus::Completed);
    let often: Script = |_, _| vec![Step::Crash, Step::Crash, Step::Crash, Step::Crash];
    let mut world = World::new(vec![task("t", &[])], keep_going(), often, 1);
    assert_eq!(completed(&world.play()), RunStatus::Failed);
    let status = world.state.task(&name("t")).expect("a task");
    assert_eq!(status.failure.as_ref().map(|f| f.kind), Some(FailureKind::Crashed));
    assert_eq!(
        status.failure.as_ref().map(|f| f.message.as_str()),
        Some("crashed (after 3 restarts)")
    );
    assert_eq!(world.now.as_millis(), 50 + 100 + 200, "each restart waits longer");
}

#[test]
fn time_that_is_used_up_is_told_of_whenever_it_comes() {
    let limits = Limits {
        timeout: Some(Duration::from_secs(5)),
        grace_period: Duration::ZERO,
        ..keep_going()
    };
    for seed in 0..200 {
        let tasks = vec![task("hang", &[]), task("later", &["hang"])];
        let mut world = World::new(tasks, limits, by_name, seed);
        // From the moment before the first task is ready to the moment at which it is at work.
        for _ in 0..seed % 8 {
            world.step();
        }
        world.now = Duration::from_secs(5);
        world.play();
        let status = world.state.task(&name("hang")).expect("a task");
        assert_eq!(status.failure.as_ref().map(|f| f.kind), Some(FailureKind::Timeout), "{seed}");
        let later = world.state.task(&name("later")).expect("a task");
        assert!(matches!(later.state, TaskState::Cancelled | TaskState::Skipped), "{later:?}");
    }
}

#[test]
fn an_attempt_that_takes_too_long_fails_and_its_pause_does_not_count() {
    let timeout = Some(Duration::from_secs(7));
    let tasks = vec![TaskSpec { timeout, retry: retrying(2), ..task("hang", &[]) }];
    let mut world = World::new(tasks, keep_going(), by_name, 3);
    assert_eq!(completed(&world.play()), RunStatus::Failed);
    let status = world.state.task(&name("hang")).expect("a task");
    assert_eq!(status.attempt, 2);
    let message = "attempt 2 took longer than 7 s";
    assert_eq!(status.failure.as_ref().map(|f| f.message.as_str()), Some(message));
}

#[test]
fn an_agent_that_does_not_end_is_killed_and_its_end_recorded_without_it() {
    for seed in 0..50 {
        let mut world = World::new(vec![task("stuck", &[])], keep_going(), by_name, seed);
        while world.state.agents().is_empty() {
            world.step();
        }
        assert!(world.cancel(&CancelTarget::Task(name("stuck"))));
        assert_eq!(completed(&world.play()), RunStatus::Failed);
        let state = world.state.task(&name("stuck")).expect("a task").state;
        assert_eq!(state, TaskState::Cancelled);
        let grace = keep_going().grace_period;
        assert!(world.now >= grace && world.now < grace + Duration::from_secs(30));
    }
}

#[test]
fn a_cancelled_agent_takes_its_children_along_and_nobody_else() {
    let script: Script = |_, id| match id.as_str() {
        "kids" => vec![Step::Delegate(3), Step::Answer],
        id if id.contains('/') => vec![Step::Hang],
        _ => vec![Step::Answer],
    };
    for seed in 0..100 {
        let tasks = vec![task("kids", &[]), task("other", &[]), task("after", &["kids"])];
        let limits = Limits { max_concurrency: 8, ..keep_going() };
        let mut world = World::new(tasks, limits, script, seed);
        while world.state.descendants() < 2 {
            world.step();
        }
        let target = CancelTarget::Agent(AgentId::from_text("kids"));
        assert!(world.cancel(&target));
        assert!(!world.cancel(&CancelTarget::Agent(AgentId::from_text("nobody"))));
        world.play();
        let state = |task: &str| world.state.task(&name(task)).expect("a task").state;
        assert_eq!(state("kids"), TaskState::Cancelled);
        assert_eq!(state("other"), TaskState::Completed);
        assert_eq!(state("after"), TaskState::Skipped);
        for (id, agent) in world.state.agents().iter().filter(|(id, _)| id.as_str() != "other") {
            assert!(matches!(agent.outcome, Some(Outcome::Cancelled { .. })), "{id}");
        }
    }
}

#[test]
fn children_of_one_parent_do_not_keep_another_task_waiting() {
    let script: Script = |_, id| match id.as_str() {
        "kids" => vec![Step::Delegate(40), Step::Answer],
        _ => vec![Step::Answer],
    };
    for seed in 0..20 {
        let tasks = vec![task("kids", &[]), task("first", &[]), task("second", &["first"])];
        let limits = Limits { max_concurrency: 2, max_descendants: 100, ..keep_going() };
        let mut world = World::new(tasks, limits, script, seed);
        world.play();
        let at = |wanted: &str| {
            world.spawned.iter().position(|id| id.as_str() == wanted).expect("it was spawned")
        };
        // While "second" was ready only a few children got the slots that came free.
        assert!(at("second") < 20, "{:?}", world.spawned);
    }
}

#[test]
fn children_begin_no_faster_than_they_may_wherever_the_run_is_killed() {
    let script: Script = |_, id| match id.as_str() {
        "kids" => vec![Step::Delegate(9), Step::Delegate(4), Step::Answer],
        _ => vec![Step::Answer],
    };
    let window = Duration::from_secs(10);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let rate = SpawnRate { most: rng.u32(1..5), window };
        let limits = Limits { max_spawn_rate: rate, max_concurrency: 20, ..keep_going() };
        let tasks = vec![task("kids", &[]), task("more", &[])];
        let mut world = World::new(tasks, limits, script, seed);
        let kills = rng.u32(..4);
        for _ in 0..kills {
            world.steps(rng.usize(..60));
            world.kill_process();
        }
        assert_eq!(completed(&world.play()), RunStatus::Completed, "seed {seed}");
        let began = world.state.children_began();
        assert_eq!(began.len(), 13, "seed {seed}");
        let most = rate.most as usize;
        for (first, after) in began.iter().zip(&began[most..]) {
            // The clock of records has milliseconds.
            let apart = *after - *first + Duration::from_millis(1);
            assert!(apart >= window, "seed {seed}: {began:?}\n{}", world.story());
        }
        // It waits no longer than it must, and a record or a new process take a moment.
        let windows = 13_u32.div_ceil(rate.most) - 1;
        assert!(began[12] >= window * windows, "seed {seed}: {began:?}");
        assert!(began[12] <= window * (windows + 2 + 2 * kills), "seed {seed}: {began:?}");
    }
}

#[test]
fn the_limits_of_delegation_are_told_and_kept() {
    let deep: Script = |_, _| vec![Step::Delegate(2), Step::Answer];
    for (max_depth, max_descendants, agents) in [(2, 100, 7), (9, 5, 6), (0, 9, 1)] {
        let limits = Limits { max_depth, max_descendants, max_concurrency: 4, ..keep_going() };
        let mut world = World::new(vec![task("t", &[])], limits, deep, 5);
        assert_eq!(completed(&world.play()), RunStatus::Completed);
        assert_eq!(world.state.agents().len(), agents, "{max_depth} {max_descendants}");
    }
}

#[test]
fn an_answer_of_a_child_that_does_not_fit_is_mended_or_told_as_a_failure_wherever_the_run_is_killed()
 {
    let script: Script = |_, id| match id.as_str() {
        "t" => vec![Step::Delegate(3), Step::Answer],
        _ => vec![Step::Answer],
    };
    for kill_at in 0..80 {
        let limits = Limits { max_concurrency: 2, ..keep_going() };
        let mut world = World::new(vec![task("t", &[])], limits, script, kill_at);
        world.wanted = Some(wanted);
        for _ in 0..kill_at {
            world.step();
        }
        if world.finish.is_none() {
            world.kill_process();
            assert_eq!(completed(&world.play()), RunStatus::Completed);
        }
        let rounds = |id: &str| world.state.agents()[&AgentId::from_text(id)].round;
        let rounds = ["t/helper-1", "t/helper-2", "t/helper-3"].map(rounds);
        assert_eq!(rounds, [1, 2, 3], "{kill_at}\n{}", world.story());
        let failed: Vec<_> = world.reported_failures.iter().map(|(_, kind)| *kind).collect();
        assert!(failed.iter().all(|kind| *kind == FailureKind::OutputSchema), "{failed:?}");
        assert!(!failed.is_empty(), "{kill_at}\n{}", world.story());
    }
}

#[test]
fn proposals_that_nobody_was_asked_about_spend_no_more_than_delegations() {
    let script: Script = |_, id| match id.as_str().contains("/check") {
        true => vec![Step::Answer],
        false => vec![Step::Propose, Step::Delegate(1), Step::Answer],
    };
    let until = "output.round >= 3".to_owned();
    let agent = CheckWork::Agent { agent: name("judge"), prompt: "is it?".to_owned() };
    let acceptance = Acceptance {
        checks: vec![Check { work: agent, timeout: None }],
        repeat: Some(Loop { until, max_iterations: 3 }),
        ..Acceptance::default()
    };
    for max_descendants in 0..12 {
        let limits = Limits { max_descendants, max_concurrency: 4, ..keep_going() };
        let acceptance = acceptance.clone();
        let first = TaskSpec { acceptance, output: OutputFormat::Json, ..task("t", &[]) };
        let mut world = World::new(vec![first], limits, script, max_descendants as u64);
        world.unasked = true;
        world.play();
        let state = &world.state;
        let count = |agent: &AgentStatus| match state.is_unasked(&agent.task) {
            true => agent.round as usize,
            false => usize::from(agent.is_delegated()),
        };
        let spent: usize = state.agents().values().map(count).sum();
        assert_eq!(state.descendants(), spent, "{max_descendants}");
        assert!(spent <= max_descendants, "{spent} > {max_descendants}\n{}", world.story());
        let is_limit = |task: &TaskStatus| {
            task.failure.as_ref().is_some_and(|f| f.kind == FailureKind::LimitReached)
        };
        let plans = state.proposed_plans().len();
        let has_failed = state.tasks().any(|(_, task)| is_limit(task));
        assert_eq!(has_failed, plans > 0, "{max_descendants}: {plans}");
    }
}

/// Makes a random graph: tasks that fail, crash, hang under a limit, retry and delegate, with any
/// join.
pub(super) fn random_tasks(rng: &mut fastrand::Rng) -> Vec<TaskSpec> {
    let count = rng.usize(1..9);
    let mut tasks: Vec<TaskSpec> = Vec::new();
    for at in 0..count {
        let mut depends_on: BTreeSet<usize> = BTreeSet::new();
        for _ in 0..rng.usize(..3).min(at) {
            depends_on.insert(rng.usize(..at));
        }
        let names: Vec<_> = depends_on.iter().map(|at| tasks[*at].name.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let join = [
            Join::AllSuccess,
            Join::AllDone,
            Join::NoneFailed,
            Join::AnySuccess,
            Join::AtLeast(rng.u32(..4)),
        ];
        let on_failure =
            [OnFailure::Fail, OnFailure::Continue, OnFailure::SkipDependents, OnFailure::Pause];
        let on_failure = rng.choice(on_failure).filter(|_| rng.u32(..3) == 0);
        let on_failure = on_failure.filter(|on| *on != OnFailure::Pause);
        let fan_out = (rng.u32(..4) == 0).then(|| FanOut {
            list: format!("range({})", rng.u32(..5)),
            item: "item".to_owned(),
            key: None,
            max_concurrency: rng.bool().then(|| rng.usize(1..3)),
            min_success: rng.choice([0.0, 0.5, 1.0]).expect("a share"),
        });
        let locks = [name("one"), name("two")].into_iter().filter(|_| rng.u32(..4) == 0);
        let locks = locks.collect();
        let timeout = (rng.u32(..4) == 0).then(|| Duration::from_secs(rng.u64(1..20)));
        let (acceptance, output) =
            random_rules(&mut fastrand::Rng::with_seed(!rng.clone().u64(..)));
        tasks.push(TaskSpec {
            acceptance,
            output,
            join: join[rng.usize(..join.len())],
            timeout,
            retry: retrying(rng.u32(1..4)),
            on_failure,
            fan_out,
            locks,
            always: rng.u32(..8) == 0,
            ..task(&format!("t{at}"), &names)
        });
    }
    tasks
}

/// Makes random rules for an answer, in one task of three.
pub(super) fn random_rules(rng: &mut fastrand::Rng) -> (Acceptance, OutputFormat) {
    if rng.u32(..3) > 0 {
        return (Acceptance::default(), OutputFormat::Text);
    }
    let check = |rng: &mut fastrand::Rng| {
        let run = || CheckWork::Command { run: "judge".to_owned(), env: BTreeMap::new() };
        let agent = || CheckWork::Agent {
            agent: name("judge"),
            prompt: "Judge {{ output.round }} of {{ iteration }}.".to_owned(),
        };
        let work = if rng.bool() { run() } else { agent() };
        Check { work, timeout: rng.bool().then(|| Duration::from_secs(rng.u64(1..9))) }
    };
    let checks = (0..rng.u32(..3)).map(|_| check(rng)).collect();
    let least = rng.u32(1..3);
    let until = format!("output.round >= {} and iteration > 0", rng.u32(1..4));
    let repeat = rng.bool().then(|| Loop { until, max_iterations: rng.u32(1..4) });
    let acceptance = Acceptance {
        schema: rng.bool().then(|| rounds_from(least)),
        retries: rng.u32(..3),
        checks,
        repeat,
    };
    (acceptance, OutputFormat::Json)
}

/// Returns the rules with checks that may take any time.
pub(super) fn timeless(rules: Acceptance) -> Acceptance {
    let checks = rules.checks.into_iter().map(|check| Check { timeout: None, ..check }).collect();
    Acceptance { checks, ..rules }
}

/// Returns the rules without those that an answer can never pass.
fn mendable(rules: Acceptance) -> Acceptance {
    Acceptance { schema: None, repeat: None, ..timeless(rules) }
}

/// A schema that only answers from this round on fit.
fn rounds_from(least: u32) -> Schema {
    let rounds = serde_json::json!({ "properties": { "round": { "minimum": least } } });
    Schema::new(rounds).expect("a schema")
}

fn random_limits(rng: &mut fastrand::Rng) -> Limits {
    // Of its own, so that the draws after it stay what they were.
    let mut of_rate = rng.clone();
    let max_spawn_rate = SpawnRate {
        most: of_rate.u32(1..20),
        window: Duration::from_millis(of_rate.u64(1..20_000)),
    };
    Limits {
        max_concurrency: rng.usize(1..5),
        max_children: rng.usize(1..4),
        max_depth: 2,
        max_descendants: rng.usize(1..40),
        max_instances: 100,
        timeout: (rng.u32(..8) == 0).then(|| Duration::from_secs(rng.u64(1..60))),
        fail_fast: rng.bool(),
        cancel_running: rng.u32(..4) == 0,
        strict: false,
        one_at_a_time: false,
        grace_period: Duration::from_secs(rng.u64(..3)),
        orphan_grace: Duration::ZERO,
        max_spawn_rate,
    }
}

/// A script from the id alone, so that the same agent does the same after each restart.
pub(super) fn by_hash(world: &World, id: &AgentId) -> Vec<Step> {
    let hash = id
        .as_str()
        .bytes()
        .fold(7u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut rng = fastrand::Rng::with_seed(hash ^ world.settings.limits.max_descendants as u64);
    let main = id.as_str().split('/').next().unwrap_or_default();
    let task = main.split('~').next().unwrap_or_default();
    let task = task.split('[').next().unwrap_or_default();
    let spec = world.settings.plan.task(task).expect("a task of the plan");
    // What always runs goes on after the run has used up its time.
    let of_run = world.settings.limits.timeout.filter(|_| !spec.always);
    let ends = spec.timeout.or(of_run).or(world.machine.facts.limit_of(id)).is_some();
    let is_check = world.state.agents()[id].check.is_some();
    let mut steps = Vec::new();
    for _ in 0..rng.usize(..3) {
        steps.push(match rng.u32(..7) {
            0 => Step::Crash,
            1 | 2 => Step::Delegate(rng.u32(1..4)),
            3 if id.as_str().starts_with('t') && !is_check => Step::Propose,
            _ => continue,
        });
    }
    steps.push(match rng.u32(..10) {
        0 | 1 => Step::Fail,
        2 if ends => Step::Hang,
        3 if ends => Step::Stuck,
        4 | 5 if is_check => Step::Refute,
        6 | 7 if is_check => Step::Mumble,
        _ => Step::Answer,
    });
    steps
}

/// What parents want of their children: of the first anything, of the next answers that fit only from
/// the second round on, or never.
fn wanted(index: u32) -> Option<Json> {
    let least = [None, Some(2), Some(9)][index as usize % 3];
    least.map(|least| Json::encode(rounds_from(least).document()))
}

#[test]
fn whatever_happens_a_run_ends_and_keeps_its_rules() {
    for seed in 0..12_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (tasks, limits) = (random_tasks(&mut rng), random_limits(&mut rng));
        let mut world = World::new(tasks, limits, by_hash, seed);
        world.wanted = (seed % 2 == 0).then_some(wanted);
        // Up to three disturbances, each after some steps.
        for _ in 0..rng.u32(..4) {
            for _ in 0..rng.u32(..40) {
                world.step();
            }
            if world.finish.is_some() {
                break;
            }
            match rng.u32(..8) {
                0 => {
                    let at = rng.usize(..world.settings.plan.tasks().len());
                    let task = world.settings.plan.tasks()[at].name.clone();
                    world.cancel(&CancelTarget::Task(task));
                }
                1 => drop(world.cancel(&CancelTarget::Run)),
                2 => {
                    let ids: Vec<_> = world.state.agents().keys().cloned().collect();
                    if let Some(id) = rng.choice(&ids) {
                        world.cancel(&CancelTarget::Agent(id.clone()));
                    }
                }
                3 => {
                    world.interrupt();
                    let finish = world.play();
                    if matches!(finish, Finish::Completed(_)) {
                        break;
                    }
                    world.kill_process();
                }
                _ => world.kill_process(),
            }
        }
        match world.finish.clone().unwrap_or_else(|| world.play()) {
            Finish::Completed(_) => {}
            other => panic!("seed {seed}: {other:?}\n{}", world.story()),
        }
        assert_eq!((world.state.open_tasks(), world.state.open_agents()), (0, 0), "seed {seed}");
        let recount = world.state.agents().values().filter(|a| a.is_delegated()).count();
        assert_eq!(world.state.descendants(), recount, "seed {seed}");
        assert!(recount <= limits.max_descendants, "seed {seed}");
    }
}

#[test]
fn a_run_that_is_killed_anywhere_ends_as_one_that_is_not() {
    for seed in 0..3_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tasks: Vec<_> = random_tasks(&mut rng)
            .into_iter()
            .map(|task| {
                let on_failure = unstopping(&task);
                let acceptance = timeless(task.acceptance);
                TaskSpec { timeout: None, on_failure, acceptance, ..task }
            })
            .collect();
        // Time, a first failure and the number of children would make the order count.
        let limits = Limits { timeout: None, max_descendants: 10_000, ..keep_going() };
        let mut calm = World::new(tasks.clone(), limits, by_hash, seed);
        calm.wanted = (seed % 2 == 0).then_some(wanted);
        calm.play();
        let mut disturbed = World::new(tasks, limits, by_hash, seed);
        disturbed.wanted = calm.wanted;
        for _ in 0..3 {
            for _ in 0..rng.u32(..60) {
                disturbed.step();
            }
            if disturbed.finish.is_none() {
                disturbed.kill_process();
            }
        }
        if disturbed.finish.is_none() {
            disturbed.play();
        }
        // Proposed tasks stand in the order in which they came.
        let sorted = |world: &World| BTreeMap::from_iter(world.states());
        assert_eq!(sorted(&calm), sorted(&disturbed), "seed {seed}\n{}", disturbed.story());
    }
}

/// Returns the consequence of a task's failure, unless it keeps other tasks from starting.
fn unstopping(task: &TaskSpec) -> Option<OnFailure> {
    task.on_failure.filter(|on| *on != OnFailure::Fail)
}

/// A lookup for forecasts in which outputs are texts and no agent's end is certain.
struct Texts;

impl Lookup for Texts {
    type Error = Infallible;

    fn value(
        &mut self,
        task: &TaskSpec,
        output: &Output,
    ) -> Result<Result<Value, Failure>, Infallible> {
        Ok(task.read(&output.text))
    }

    fn outcome(&mut self, _: &AgentId) -> Option<Outcome> {
        None
    }
}

#[test]
fn what_is_forecast_happens() {
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tasks: Vec<_> = random_tasks(&mut rng)
            .into_iter()
            .map(|task| TaskSpec { timeout: None, on_failure: unstopping(&task), ..task })
            .collect();
        let limits = Limits { timeout: None, ..random_limits(&mut rng) };
        let mut world = World::new(tasks, limits, by_hash, seed);
        for _ in 0..rng.u32(..80) {
            world.step();
        }
        if world.finish.is_some() {
            continue;
        }
        let forecast = forecast(world.settings.clone(), world.start_of(), world.now(), &mut Texts);
        let Ok(forecast) = forecast;
        world.kill_process();
        world.play();
        for (name, then) in forecast.state().tasks().filter(|(_, task)| task.state.is_end()) {
            let now = world.state.task(name).expect("a task");
            // The first of two failures decides whether what cannot start is skipped or cancelled.
            let not_started = |state| match state {
                TaskState::Skipped | TaskState::Cancelled => TaskState::Skipped,
                other => other,
            };
            let (then, now) = (not_started(then.state), not_started(now.state));
            assert_eq!(then, now, "seed {seed}: {name}\n{}", world.story());
        }
        let began = |at: &usize| {
            let name = &forecast.machine.plan().tasks()[*at].name;
            world.state.task(name).is_some_and(|task| task.agent.is_some())
        };
        // Under `fail_fast`, a first failure may keep a forecast attempt from starting.
        let all_began = forecast.begins.keys().all(began);
        assert!(all_began || limits.fail_fast, "seed {seed}\n{}", world.story());
    }
}

#[test]
fn nothing_is_looked_at_twice_for_each_event() {
    // Twice the tasks take at most about twice the decisions, whatever the shape of the plan.
    let chain = |count: usize| -> Vec<TaskSpec> {
        let depends = |at: usize| at.checked_sub(1).map(|before| format!("t{before}"));
        let of = |at: usize| {
            let before = depends(at);
            task(&format!("t{at}"), &before.as_deref().into_iter().collect::<Vec<_>>())
        };
        (0..count).map(of).collect()
    };
    let fan_in = |count: usize| -> Vec<TaskSpec> {
        let names: Vec<_> = (0..count - 1).map(|at| format!("t{at}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut tasks: Vec<_> = names.iter().map(|name| task(name, &[])).collect();
        tasks.push(task("last", &names));
        tasks
    };
    for shape in [&chain as &dyn Fn(usize) -> Vec<TaskSpec>, &fan_in] {
        let decisions = |count: usize| {
            let mut world = World::new(shape(count), keep_going(), by_name, 1);
            world.play();
            let touches = world.machine.facts.agenda.touches();
            assert!(world.records.iter().any(|r| matches!(r.event, Event::RunCompleted(_))));
            touches
        };
        let (small, large) = (decisions(50), decisions(200));
        assert!(large <= 5 * small, "{small} and {large} decisions");
    }
}

#[test]
fn what_failed_begins_again_and_what_completed_is_kept() {
    use TaskState::{Completed, Failed, Skipped};
    let tasks = || {
        vec![
            task("good", &[]),
            task("fail", &[]),
            task("after", &["good", "fail"]),
            task("last", &["after"]),
            task("kids", &["good"]),
        ]
    };
    let agents = |text: &[&str]| text.iter().map(|id| AgentId::from_text(id)).collect::<Vec<_>>();
    let mut world = World::new(tasks(), keep_going(), by_name, 1);
    world.play();
    let states = |world: &World| world.states().into_iter().map(|(_, s)| s).collect::<Vec<_>>();
    assert_eq!(states(&world), [Completed, Failed, Skipped, Skipped, Completed]);
    assert!(world.state.retry(&["nobody".to_owned()]).is_err());
    // A task that completed takes along what follows.
    let good = world.state.retry(&["good".to_owned()]).expect("it has ended");
    assert_eq!(good.tasks, ["good", "after", "last", "kids"].map(name));
    assert_eq!(good.reopened, []);
    // To name a task that was skipped is to name the failed one too.
    let all = world.state.retry(&[]).expect("some failed");
    for named in ["fail", "after", "last"] {
        assert_eq!(world.state.retry(&[named.to_owned()]), Ok(all.clone()), "{named}");
    }
    assert_eq!(all.tasks, ["fail", "after", "last"].map(name));
    assert_eq!(all.agents, agents(&["fail"]));
    // Nothing is mended: it fails again, and can begin again.
    world.retry(&[]);
    world.play();
    assert_eq!(states(&world), [Completed, Failed, Skipped, Skipped, Completed]);
    world.is_healed = true;
    world.retry(&["last"]);
    assert_eq!(completed(&world.play()), RunStatus::Completed);
    assert_eq!(states(&world), [Completed; 5]);
    let spawned = |id: &str| {
        let is_spawn = |r: &&crate::event::SharedRecord| {
            matches!(r.event, Event::AgentSpawned(_)) && r.agent == Some(AgentId::from_text(id))
        };
        world.records.iter().filter(is_spawn).count()
    };
    assert_eq!(["good", "fail", "after", "kids", "fail~2"].map(spawned), [1, 1, 1, 1, 0]);
}

#[test]
fn whatever_failed_completes_once_it_is_mended() {
    for seed in 0..3_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tasks: Vec<_> = random_tasks(&mut rng)
            .into_iter()
            .map(|task| {
                // No mending makes more dependencies than there are.
                let most = u32::try_from(task.depends_on.len()).expect("few");
                let join = match task.join {
                    Join::AtLeast(count) => Join::AtLeast(count.min(most)),
                    other => other,
                };
                let acceptance = mendable(task.acceptance);
                TaskSpec { timeout: None, join, acceptance, ..task }
            })
            .collect();
        let limits = Limits { timeout: None, max_descendants: 10_000, ..random_limits(&mut rng) };
        let mut world = World::new(tasks, limits, by_hash, seed);
        if rng.u32(..3) == 0 {
            let steps = rng.usize(..60);
            world.steps(steps);
            world.cancel(&CancelTarget::Run);
        }
        if world.finish.is_none() {
            world.play();
        }
        let before = world.state.clone();
        let mark = world.records.len();
        world.is_healed = true;
        let retry = world.retry(&[]);
        for _ in 0..rng.u32(..4) {
            let steps = rng.usize(..40);
            world.steps(steps);
            if world.finish.is_none() {
                world.kill_process();
            }
        }
        if world.finish.is_none() {
            world.play();
        }
        let story = || world.story();
        for (name, task) in before.tasks() {
            let now = world.state.task(name).expect("a task").state;
            let is_done = matches!(now, TaskState::Completed | TaskState::Reused);
            match retry.tasks.contains(name) || retry.reopened.contains(name) {
                true => assert!(is_done, "seed {seed}: {name} is {now:?}\n{}", story()),
                false => assert_eq!(now, task.state, "seed {seed}: {name}\n{}", story()),
            }
        }
        for record in &world.records[mark..] {
            let task = record.task.as_ref().filter(|_| record.agent.is_none());
            let task = task.filter(|task| before.task(task).is_some());
            let begins = |task: &Name| retry.tasks.contains(task) || retry.reopened.contains(task);
            let is_kept = task.is_some_and(|task| !begins(task));
            assert!(!is_kept, "seed {seed}: a kept task has a new record\n{}", story());
        }
        for agent in &retry.agents {
            let task = &before.agents()[agent].task;
            let (then, now) = (before.task(task), world.state.task(task));
            // Unless it is made from something else now.
            if then.map(|task| &task.key) == now.map(|task| &task.key) {
                let last = now.and_then(|task| task.agent.clone());
                assert_eq!(last.as_ref(), Some(agent), "seed {seed}\n{}", story());
            }
        }
    }
}

#[test]
fn a_task_that_pauses_waits_for_the_resume_and_nothing_else_does() {
    let pausing = |name: &str, after: &[&str]| TaskSpec {
        on_failure: Some(crate::spec::OnFailure::Pause),
        ..task(name, after)
    };
    let tasks =
        vec![pausing("fail", &[]), task("after", &["fail"]), task("good", &[]), task("kids", &[])];
    let limits = Limits { fail_fast: true, ..keep_going() };
    for kills in 0..3 {
        let mut world = World::new(tasks.clone(), limits, by_name, kills);
        for _ in 0..kills {
            world.steps(7);
            if world.finish.is_none() {
                world.kill_process();
            }
        }
        let finish = world.finish.clone().unwrap_or_else(|| world.play());
        let Finish::Paused(paused) = finish else { panic!("{finish:?}") };
        assert_eq!(paused.cause, crate::event::PauseCause::Failure);
        assert_eq!(paused.reason, "task `fail` failed: overloaded: busy");
        use TaskState::{Completed, Pending, Waiting};
        let states: Vec<_> = world.states().into_iter().map(|(_, state)| state).collect();
        assert_eq!(states, [Waiting, Pending, Completed, Completed]);
        // The provider is still busy.
        world.kill_process();
        assert!(matches!(world.play(), Finish::Paused(_)));
        world.is_healed = true;
        world.kill_process();
        assert_eq!(completed(&world.play()), RunStatus::Completed);
        let mains = world.state.agents().keys().filter(|id| id.as_str().starts_with("fail"));
        assert_eq!(mains.count(), 1, "its conversation went on");
    }
}

/// A world whose run has all hooks.
fn hooked(tasks: Vec<TaskSpec>, failing: &[Hook], seed: u64) -> World {
    let mut world = World::new(tasks, Limits { timeout: None, ..Limits::default() }, by_name, seed);
    world.settings.hooks =
        [Hook::OnStart, Hook::OnSuccess, Hook::OnFailure, Hook::OnExit].into_iter().collect();
    world.failing_hooks = failing.to_vec();
    world.kill_process();
    world
}

#[test]
fn the_end_of_a_run_decides_which_hooks_run_and_not_the_reverse() {
    use Hook::{OnExit, OnFailure, OnStart, OnSuccess};
    use RunStatus::{Completed, Failed};
    for (only, failing, status, run) in [
        ("good", &[][..], Completed, &[OnStart, OnSuccess, OnExit][..]),
        ("fail", &[], Failed, &[OnStart, OnFailure, OnExit]),
        ("good", &[OnSuccess, OnExit], Completed, &[OnStart, OnSuccess, OnExit]),
        ("fail", &[OnFailure, OnExit], Failed, &[OnStart, OnFailure, OnExit]),
        ("good", &[OnStart], Failed, &[OnStart, OnFailure, OnExit]),
    ] {
        let tasks = vec![task(only, &[]), task("last", &[only])];
        let mut world = hooked(tasks, failing, 1);
        assert_eq!(completed(&world.play()), status, "{only} {failing:?}");
        assert_eq!(world.hooks_run, run, "{only} {failing:?}");
        let failed: Vec<Hook> = world.state.failed_hooks().map(|(hook, _)| hook).collect();
        assert_eq!(failed, failing);
        let no_start = failing.contains(&OnStart);
        assert_eq!(world.spawned.is_empty(), no_start, "nothing is spent before on_start");
        let failure = world.state.task(&name(only)).and_then(|task| task.failure.clone());
        let failed_at_start =
            failure.is_some_and(|failure| failure.message.contains("on_start failed: exit code 1"));
        assert_eq!(failed_at_start, no_start);
    }
    // Whoever cancels a run ends the hook that is at work, also once no task is left; the next hook comes.
    for until in [OnStart, OnFailure, OnExit] {
        let mut world = hooked(vec![task("fail", &[])], &[], 1);
        while world.hooks_run.last() != Some(&until) {
            world.step();
        }
        assert!(world.cancel(&CancelTarget::Run));
        assert_eq!(world.hooks_ended, [until]);
        // Nothing had begun that could have failed, and a person wants no report of a failure.
        let (status, run) = match until {
            OnStart => (RunStatus::Cancelled, &[OnStart, OnExit][..]),
            _ => (Failed, &[OnStart, OnFailure, OnExit][..]),
        };
        assert_eq!(completed(&world.play()), status, "{until}\n{}", world.story());
        assert_eq!(world.hooks_run, run);
    }
    // So it is wherever the process is killed afterwards.
    for steps in 0..12 {
        let mut world = hooked(vec![task("one", &[]), task("two", &["one"])], &[], 1);
        while world.hooks_run.is_empty() {
            world.step();
        }
        assert!(world.cancel(&CancelTarget::Run));
        while world.state.open_tasks() > 0 && world.finish.is_none() {
            world.step();
        }
        world.steps(steps);
        if world.finish.is_none() {
            world.kill_process();
        }
        assert_eq!(completed(&world.play()), RunStatus::Cancelled, "{steps}\n{}", world.story());
    }
    // A person who cancels the run wants no report of a failure.
    let mut world = hooked(vec![task("hang", &[])], &[], 1);
    world.steps(40);
    assert!(world.cancel(&CancelTarget::Run));
    assert_eq!(completed(&world.play()), RunStatus::Cancelled);
    assert_eq!(world.hooks_run, [OnStart, OnExit]);
}

#[test]
fn a_hook_that_a_pause_has_ended_runs_again_when_the_run_goes_on() {
    use Hook::{OnExit, OnStart, OnSuccess};
    // Each row: the hook, and true if its beginning is still on its way to the journal.
    for (paused, is_on_its_way) in
        [(OnStart, true), (OnStart, false), (OnSuccess, false), (OnExit, false)]
    {
        let mut world = hooked(vec![task("good", &[])], &[], 1);
        while !is_on_its_way && world.hooks_run.last() != Some(&paused) {
            world.step();
        }
        world.interrupt();
        world.play();
        assert!(matches!(world.finish, Some(Finish::Paused(_))), "{paused}");
        assert_eq!(world.hooks_ended, [paused]);
        world.kill_process();
        assert_eq!(completed(&world.play()), RunStatus::Completed, "{}", world.story());
        let mut run = vec![OnStart, OnSuccess, OnExit];
        let at = run.iter().position(|hook| *hook == paused).expect("one of them");
        run.insert(at, paused);
        assert_eq!(world.hooks_run, run);
        assert_eq!(world.state.failed_hooks().count(), 0);
    }
}

#[test]
fn a_hook_runs_once_wherever_the_run_is_killed_and_again_when_it_is_retried() {
    for seed in 0..600 {
        let mut world = hooked(vec![task("good", &[]), task("fail", &["good"])], &[], seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..rng.usize(1..4) {
            world.steps(rng.usize(0..25));
            match rng.u8(0..3) {
                _ if world.finish.is_some() => break,
                0 => world.interrupt(),
                _ => world.kill_process(),
            }
        }
        if world.finish.is_none() {
            world.play();
        }
        if !matches!(world.finish, Some(Finish::Completed(_))) {
            world.kill_process();
            world.play();
        }
        let count =
            |world: &World, hook| world.hooks_run.iter().filter(|run| **run == hook).count();
        for hook in [Hook::OnStart, Hook::OnFailure, Hook::OnExit] {
            // Once more after each pause that ended it.
            let ended = world.hooks_ended.iter().filter(|ended| **ended == hook).count();
            assert!(count(&world, hook) <= 1 + ended, "seed {seed}: {hook}\n{}", world.story());
            let known = world.state.hook(hook).is_some_and(|state| *state != HookState::Begun);
            assert!(known, "seed {seed}: {hook}\n{}", world.story());
        }
        assert_eq!(count(&world, Hook::OnSuccess), 0, "seed {seed}");
        let before = count(&world, Hook::OnExit);
        world.retry(&[]);
        world.play();
        assert_eq!(count(&world, Hook::OnExit), before + 1, "seed {seed}\n{}", world.story());
    }
}

#[test]
fn a_judge_without_a_verdict_is_asked_again_and_the_task_keeps_its_rounds() {
    let script: Script = |_, id| match id.as_str().contains("/check") {
        true => vec![Step::Mumble],
        false => vec![Step::Answer],
    };
    let work = CheckWork::Agent { agent: name("judge"), prompt: "is it?".to_owned() };
    let checks = vec![Check { work, timeout: None }];
    let acceptance = Acceptance { checks, ..Acceptance::default() };
    for seed in 0..50 {
        let tasks = vec![TaskSpec { acceptance: acceptance.clone(), ..task("t", &[]) }];
        let mut world = World::new(tasks, keep_going(), script, seed);
        // In one process, and with one that dies on the way.
        if seed % 2 == 1 {
            world.steps(seed as usize / 2);
            if world.finish.is_none() {
                world.kill_process();
            }
        }
        assert_eq!(completed(&world.play()), RunStatus::Completed, "{seed}\n{}", world.story());
        let task = world.state.task(&name("t")).expect("the task");
        assert!(task.rounds.is_empty(), "{seed}: its own agent was not asked again");
        let judge = world.state.agents().values().find(|agent| agent.check.is_some());
        assert_eq!(judge.map(|judge| judge.round), Some(2), "{seed}");
    }
}

#[test]
fn a_failure_that_stops_the_run_makes_it_failed_and_one_that_does_not_makes_it_partial() {
    let fails = |on_failure| TaskSpec { on_failure, ..task("fail", &[]) };
    for (fail_fast, on_failure, status) in [
        (true, None, RunStatus::Failed),
        (false, None, RunStatus::Partial),
        (false, Some(OnFailure::Fail), RunStatus::Failed),
        (true, Some(OnFailure::SkipDependents), RunStatus::Partial),
        (true, Some(OnFailure::Continue), RunStatus::Partial),
    ] {
        // Whatever had begun when it failed, and whatever was kept from starting.
        for (slots, seed) in [(1, 1), (1, 2), (3, 3), (3, 4)] {
            let limits = Limits { fail_fast, max_concurrency: slots, ..Limits::default() };
            let tasks = vec![task("a", &[]), fails(on_failure), task("b", &["a"])];
            let mut world = World::new(tasks, limits, by_name, seed);
            let ended = completed(&world.play());
            assert_eq!(ended, status, "{fail_fast} {on_failure:?} {slots}\n{}", world.story());
        }
    }
}

#[test]
fn items_that_a_completed_fan_out_left_undone_are_shortfalls() {
    let script: Script = |_, id| match id.as_str() {
        "each[1]" | "each[3]" => vec![Step::Fail],
        _ => vec![Step::Answer],
    };
    for (strict, status) in [(false, RunStatus::Completed), (true, RunStatus::Partial)] {
        let fan_out = FanOut {
            list: "range(5)".to_owned(),
            item: "item".to_owned(),
            key: None,
            max_concurrency: None,
            min_success: 0.5,
        };
        let tasks = vec![TaskSpec { fan_out: Some(fan_out), ..task("each", &[]) }];
        let mut world = World::new(tasks, Limits { strict, ..keep_going() }, script, 1);
        let Finish::Completed(ended) = world.play() else { panic!("it ends") };
        assert_eq!(ended.status, status);
        assert_eq!((ended.shortfalls.failed_items, ended.shortfalls.items), (2, 5));
        let short = world.state.tasks_that_fell_short();
        assert!(short.contains(&name("each")), "{short:?}");
    }
}

#[test]
fn a_run_that_is_cancelled_as_it_is_resumed_still_cleans_up() {
    for seed in 0..30 {
        let clean = TaskSpec { always: true, ..task("clean", &["hang", "after"]) };
        let tasks = vec![task("hang", &[]), task("after", &["hang"]), clean];
        let mut world = World::new(tasks, keep_going(), by_name, seed);
        world.settings.hooks.insert(Hook::OnExit);
        world.kill_process();
        while world.spawned.is_empty() {
            world.steps(1);
        }
        world.steps(seed as usize % 7);
        world.cancel_next = Some("enough".to_owned());
        world.kill_process();
        assert_eq!(completed(&world.play()), RunStatus::Cancelled, "{seed}\n{}", world.story());
        let state = |task: &str| world.state.task(&name(task)).expect("a task").state;
        let ended = ["hang", "after"].map(state);
        assert_eq!(ended, [TaskState::Cancelled; 2], "{seed}\n{}", world.story());
        // It ran, or used up the time that a cleanup has.
        let cleaned = matches!(state("clean"), TaskState::Completed | TaskState::Failed);
        let has_begun = world.spawned.iter().any(|agent| agent.as_str() == "clean");
        assert!(cleaned && has_begun, "{seed}\n{}", world.story());
        assert_eq!(world.hooks_run, [Hook::OnExit], "{seed}");
    }
}

#[test]
fn what_is_given_up_fails_wherever_it_stood_and_the_rest_goes_on() {
    for seed in 0..60 {
        let tasks = vec![
            task("first", &[]),
            task("hang", &["first"]),
            TaskSpec { join: Join::AllDone, ..task("after", &["hang"]) },
            task("beside", &[]),
        ];
        let mut world = World::new(tasks, keep_going(), by_name, seed);
        world.steps(seed as usize % 12);
        let failure = Failure::new(FailureKind::Internal, "it crashed");
        let work = if seed % 2 == 0 { "hang" } else { "hang~1" };
        world.give_up_next = Some(GivenUp { work: work.to_owned(), failure: failure.clone() });
        world.kill_process();
        world.give_up_next = None;
        let is_known = world.state.task(&name("hang")).is_some_and(|task| task.state.is_end());
        if seed % 2 == 1 {
            // An agent that nobody knows changes nothing.
            assert!(!is_known, "{}", world.story());
            continue;
        }
        assert_eq!(completed(&world.play()), RunStatus::Partial, "{seed}\n{}", world.story());
        let hang = world.state.task(&name("hang")).expect("a task");
        assert_eq!(hang.failure, Some(failure), "{seed}\n{}", world.story());
        for task in ["after", "beside"] {
            let state = world.state.task(&name(task)).expect("a task").state;
            assert_eq!(state, TaskState::Completed, "{seed}\n{}", world.story());
        }
    }
}
