//! Tables and properties of questions to people.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{Event, PauseCause, RunStatus};
use crate::failure::FailureKind;
use crate::id::AgentId;
use crate::plan::TaskState;
use crate::run_machine::testing::{Script, Step, World, name, task};
use crate::run_machine::tests::{random_rules, timeless};
use crate::run_machine::{CancelTarget, Finish};
use crate::spec::{Approval, Join, Limits, OnTimeout, TaskSpec, Work};
use crate::turn::question::{AnswerOutcome, BY_TIMEOUT};

fn keep_going() -> Limits {
    Limits { fail_fast: false, max_concurrency: 2, ..Limits::default() }
}

/// Makes a task that asks a person after these dependencies.
fn gate(task: &str, depends_on: &[&str], approval: Approval) -> TaskSpec {
    let message = format!("go on with {task}?");
    let work = Work::Approval(Approval { message, ..approval });
    let depends_on = depends_on.iter().map(|before| name(before)).collect();
    TaskSpec { depends_on, ..TaskSpec::new(name(task), work) }
}

fn within(seconds: u64, on_timeout: OnTimeout) -> Approval {
    Approval { timeout: Some(Duration::from_secs(seconds)), on_timeout, ..Approval::default() }
}

/// A script in which the agents of the tasks `asks` ask a person, and those of `kids` delegate to
/// agents that do.
fn by_name(_: &World, id: &AgentId) -> Vec<Step> {
    match id.as_str() {
        id if id.starts_with("asks") || id.contains('/') => vec![Step::Ask, Step::Answer],
        id if id.starts_with("kids") => vec![Step::Delegate(2), Step::Answer],
        _ => vec![Step::Answer],
    }
}

fn paused(finish: &Finish) -> PauseCause {
    match finish {
        Finish::Paused(paused) => paused.cause,
        other => panic!("{other:?}"),
    }
}

fn state(world: &World, task: &str) -> TaskState {
    world.state.task(&name(task)).expect("a task").state
}

/// Plays until the run asks, without an answer of the simulated person.
fn until_asked(world: &mut World, count: usize) {
    for _ in 0..10_000 {
        if world.state.questions().open().len() == count {
            return;
        }
        world.step_without_people();
    }
    panic!("nothing is asked:\n{}", world.story());
}

#[test]
fn the_answer_or_its_absence_decides_by_the_table() {
    use FailureKind::{Rejected, Timeout};
    use TaskState::{Completed, Failed, Skipped};
    let table = [
        (Some(true), OnTimeout::Reject, Completed, None, Completed),
        (Some(false), OnTimeout::Approve, Failed, Some(Rejected), Skipped),
        (None, OnTimeout::Approve, Completed, None, Completed),
        (None, OnTimeout::Reject, Failed, Some(Rejected), Skipped),
        (None, OnTimeout::Fail, Failed, Some(Timeout), Skipped),
    ];
    for (answer, on_timeout, gate_ends, kind, after_ends) in table {
        // Answered or timed out by this process, or by a later one.
        for restarts in [false, true] {
            let tasks = vec![gate("gate", &[], within(3600, on_timeout)), task("after", &["gate"])];
            let mut world = World::new(tasks, keep_going(), by_name, 1);
            world.settings.attended = true;
            world.kill_process();
            until_asked(&mut world, 1);
            let id = world.open_questions().remove(0);
            match (answer, restarts) {
                (Some(allowed), false) => drop(world.answer(&id, allowed)),
                (Some(allowed), true) => {
                    let answer = world.make_answer(&id, allowed);
                    world.answers.push(answer);
                    // The answer was given in time, although the process comes later.
                    world.now += Duration::from_secs(7200);
                    world.kill_process();
                }
                (None, false) => {}
                (None, true) => {
                    world.now += Duration::from_secs(3599);
                    world.kill_process();
                    assert_eq!(state(&world, "gate"), TaskState::Waiting, "one second is left");
                }
            }
            let begun = world.now;
            while world.finish.is_none() && world.step_without_people() {}
            assert_eq!(state(&world, "gate"), gate_ends, "{answer:?} {on_timeout:?} {restarts}");
            assert_eq!(state(&world, "after"), after_ends);
            let failure = world.state.task(&name("gate")).and_then(|task| task.failure.clone());
            assert_eq!(failure.map(|failure| failure.kind), kind);
            let answered = world.state.questions().answer(&id).expect("an answer");
            assert_eq!(answered.answer.by.as_deref() == Some(BY_TIMEOUT), answer.is_none());
            if let (None, true) = (answer, restarts) {
                assert!(world.now - begun <= Duration::from_secs(1), "the wall clock counts");
            }
        }
    }
}

#[test]
fn the_first_answer_counts_and_the_others_are_told_of_it() {
    let mut world =
        World::new(vec![gate("gate", &[], Approval::default())], keep_going(), by_name, 1);
    world.settings.attended = true;
    world.kill_process();
    until_asked(&mut world, 1);
    let id = world.open_questions().remove(0);
    let unknown = world.answer("nothing", true);
    assert_eq!(world.answer_outcomes.remove(&unknown), Some(AnswerOutcome::Unknown));
    let first = world.answer(&id, true);
    // On its way, and then durable.
    let second = world.answer(&id, false);
    assert!(world.answer_outcomes.is_empty(), "nobody is told before it is durable");
    while world.step_without_people() {}
    let third = world.answer(&id, false);
    assert_eq!(world.answer_outcomes[&first], AnswerOutcome::Counted);
    for late in [second, third] {
        let AnswerOutcome::Late { by, allowed, .. } = &world.answer_outcomes[&late] else {
            panic!("{late}")
        };
        assert_eq!((by.as_str(), *allowed), (&*format!("person {first}"), true));
    }
    assert_eq!(state(&world, "gate"), TaskState::Completed);
}

#[test]
fn a_run_goes_on_with_all_else_and_then_pauses_for_people() {
    for seed in 0..200 {
        let tasks = || {
            vec![
                gate("gate", &[], Approval::default()),
                task("after", &["gate"]),
                task("asks", &[]),
                task("kids", &[]),
                task("other", &[]),
                task("more", &["other"]),
            ]
        };
        let mut world = World::new(tasks(), keep_going(), by_name, seed);
        while world.finish.is_none() {
            assert!(world.step_without_people(), "{}", world.story());
        }
        assert_eq!(paused(world.finish.as_ref().expect("an end")), PauseCause::Person);
        assert_eq!(world.state.questions().open().len(), 4, "{seed}\n{}", world.story());
        assert_eq!(state(&world, "more"), TaskState::Completed, "nothing else is left");
        // A new process without answers pauses again and asks nothing twice.
        let asked = world.records.iter().filter(|r| r.event.kind() == "approval.asked").count();
        world.kill_process();
        while world.finish.is_none() {
            assert!(world.step_without_people(), "{}", world.story());
        }
        let again = world.records.iter().filter(|r| r.event.kind() == "approval.asked").count();
        assert_eq!((asked, again), (4, 4), "{seed}");
        let end = world.play_with_people();
        let Finish::Completed(completed) = end else { panic!("{end:?}") };
        let gate_holds = state(&world, "gate") == TaskState::Completed;
        let status = if gate_holds { RunStatus::Completed } else { RunStatus::Partial };
        assert_eq!(completed.status, status);
    }
}

#[test]
fn whoever_waits_for_a_person_holds_no_slot() {
    let limits = Limits { max_concurrency: 1, ..keep_going() };
    let tasks = vec![task("asks", &[]), task("asks-2", &[]), task("kids", &[]), task("other", &[])];
    let mut world = World::new(tasks, limits, by_name, 3);
    world.settings.attended = true;
    world.kill_process();
    until_asked(&mut world, 4);
    while world.step_without_people() {}
    assert_eq!(state(&world, "other"), TaskState::Completed);
    assert!(world.finish.is_none(), "a run that is watched stays open");
    while let Some(id) = world.open_questions().pop() {
        world.answer(&id, true);
        while world.step_without_people() {}
    }
    assert!(matches!(world.finish, Some(Finish::Completed(_))), "{}", world.story());
}

#[test]
fn a_cancelled_task_or_run_withdraws_its_questions() {
    for target in [CancelTarget::Run, CancelTarget::Task(name("gate"))] {
        let tasks = vec![gate("gate", &[], Approval::default())];
        let mut world = World::new(tasks, keep_going(), by_name, 1);
        world.settings.attended = true;
        world.kill_process();
        until_asked(&mut world, 1);
        let id = world.open_questions().remove(0);
        world.cancel(&target);
        while world.step_without_people() {}
        assert_eq!(state(&world, "gate"), TaskState::Cancelled);
        assert!(world.state.questions().is_empty());
        let late = world.answer(&id, true);
        assert_eq!(world.answer_outcomes[&late], AnswerOutcome::Closing, "the run has ended");
    }
}

#[test]
fn a_gate_that_begins_again_asks_anew() {
    let tasks = vec![gate("gate", &[], Approval::default())];
    let mut world = World::new(tasks, keep_going(), by_name, 1);
    world.settings.attended = true;
    world.kill_process();
    until_asked(&mut world, 1);
    let first = world.open_questions().remove(0);
    world.answer(&first, false);
    while world.step_without_people() {}
    assert_eq!(state(&world, "gate"), TaskState::Failed);
    world.retry(&["gate"]);
    until_asked(&mut world, 1);
    let second = world.open_questions().remove(0);
    assert_ne!(first, second);
    world.answer(&second, true);
    while world.step_without_people() {}
    assert_eq!(state(&world, "gate"), TaskState::Completed);
}

/// Makes a random graph of gates and agents.
fn random_tasks(rng: &mut fastrand::Rng) -> Vec<TaskSpec> {
    let mut tasks: Vec<TaskSpec> = Vec::new();
    for at in 0..rng.usize(1..8) {
        let mut before: Vec<String> = Vec::new();
        for _ in 0..rng.usize(..3).min(at) {
            before.push(tasks[rng.usize(..at)].name.to_string());
        }
        before.sort();
        before.dedup();
        let before: Vec<_> = before.iter().map(String::as_str).collect();
        let join = [Join::AllSuccess, Join::AllDone, Join::NoneFailed, Join::AnySuccess];
        let join = join[rng.usize(..join.len())];
        let spec = match rng.u32(..3) {
            0 => {
                let on_timeout = [OnTimeout::Reject, OnTimeout::Approve, OnTimeout::Fail];
                let on_timeout = on_timeout[rng.usize(..3)];
                let approval = match rng.bool() {
                    true => within(rng.u64(1..100), on_timeout),
                    false => Approval::default(),
                };
                let notify = if rng.bool() { vec!["tell".to_owned()] } else { Vec::new() };
                gate(&format!("g{at}"), &before, Approval { notify, ..approval })
            }
            1 => {
                // Its checks may ask too, and work in its slot.
                let (acceptance, output) = random_rules(rng);
                let acceptance = timeless(acceptance);
                TaskSpec { acceptance, output, ..task(&format!("t{at}"), &before) }
            }
            _ => task(&format!("t{at}"), &before),
        };
        tasks.push(TaskSpec { join, ..spec });
    }
    tasks
}

/// A script from the id alone.
fn by_hash(_: &World, id: &AgentId) -> Vec<Step> {
    let hash = id
        .as_str()
        .bytes()
        .fold(11u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut rng = fastrand::Rng::with_seed(hash);
    let mut steps = Vec::new();
    for _ in 0..rng.usize(..4) {
        steps.push(match rng.u32(..5) {
            0 => Step::Crash,
            1 if !id.as_str().contains('/') => Step::Delegate(rng.u32(1..4)),
            2 | 3 => Step::Ask,
            4 if id.as_str().starts_with('t') => Step::Propose,
            _ => continue,
        });
    }
    steps.push(if rng.u32(..6) == 0 { Step::Fail } else { Step::Answer });
    steps
}

#[test]
fn whatever_happens_each_question_is_answered_once_and_the_run_ends() {
    const SCRIPT: Script = by_hash;
    for seed in 0..3_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tasks = random_tasks(&mut rng);
        let limits = Limits {
            max_concurrency: rng.usize(1..4),
            fail_fast: rng.bool(),
            cancel_running: rng.u32(..4) == 0,
            ..Limits::default()
        };
        let mut world = World::new(tasks, limits, SCRIPT, seed);
        for _ in 0..rng.u32(..4) {
            world.steps(rng.usize(..60));
            if world.finish.is_some() {
                break;
            }
            match rng.u32(..4) {
                0 => world.interrupt(),
                1 => {
                    let at = rng.usize(..world.settings.plan.tasks().len());
                    let task = world.settings.plan.tasks()[at].name.clone();
                    world.cancel(&CancelTarget::Task(task));
                }
                _ => world.kill_process(),
            }
        }
        let mut end = world.play_with_people();
        while let Finish::Paused(_) = end {
            world.kill_process();
            end = world.play_with_people();
        }
        assert!(matches!(end, Finish::Completed(_)), "{seed}: {end:?}\n{}", world.story());
        assert!(world.state.questions().is_empty(), "{seed}\n{}", world.story());
        // Each request is told once, and one of each question counted, if any did.
        let mut counted: BTreeMap<&str, u32> = BTreeMap::new();
        for record in &world.records {
            if let Event::ApprovalAnswered(answer) = &record.event {
                *counted.entry(&answer.id).or_default() += 1;
            }
        }
        assert!(counted.values().all(|count| *count == 1), "{seed}");
    }
}
