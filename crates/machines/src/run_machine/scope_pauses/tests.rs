//! Runs whose parts people pause and let go on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{PauseChange, REASON_CHARS};
use crate::event::Event;
use crate::id::AgentId;
use crate::plan::TaskState;
use crate::policy::RetryPolicy;
use crate::run_machine::testing::{Ledger, Step, World, name, task};
use crate::run_machine::{CancelTarget, Errand, Finish};
use crate::run_state::RunState;
use crate::spec::acceptance::{Acceptance, Check, CheckWork};
use crate::spec::budget::{Budget, Caps, OnExceed, Scope};
use crate::spec::{Limits, Price, TaskSpec};
use crate::turn::question::{AnswerOutcome, PersonsAnswer};

const PRICE: Price = Price { input: 1.0, output: 5.0, cache_read: 0.1, cache_write: 1.25 };

fn callers(world: &World, agent: &AgentId) -> Vec<Step> {
    let calls = std::iter::repeat_n(Step::Call, 4);
    match world.state.agents()[agent].depth {
        0 => {
            [Step::Call, Step::Delegate(2)].into_iter().chain(calls).chain([Step::Answer]).collect()
        }
        _ => calls.chain([Step::Answer]).collect(),
    }
}

fn world(seed: u64) -> World {
    let limits =
        Limits { max_concurrency: 3, max_children: 2, max_descendants: 64, ..Limits::default() };
    let tasks =
        vec![task("one", &[]), task("two", &["one"]), task("three", &[]), task("four", &["two"])];
    let mut world = World::new(tasks, limits, callers, seed);
    world.ledger =
        Some(Ledger { price: PRICE, input: 500, output: 500, takes: (50, 100), faults: (5, 0, 0) });
    world.kill_process();
    world
}

fn change(scope: Scope, paused: bool) -> PersonsAnswer {
    let reason = paused.then(|| "I look".to_owned());
    PauseChange { scope, paused, reason }.answer("a person".to_owned())
}

fn of_task(task: &str) -> Scope {
    Scope::Task(name(task))
}

fn of_agent(agent: &str) -> Scope {
    Scope::Agent(AgentId::from_text(agent))
}

/// Lets everything happen until nothing can, and checks that only a pause holds it up.
fn until_it_rests(world: &mut World) {
    for _ in 0..100_000 {
        if world.finish.is_some() || !world.step_without_people() {
            return;
        }
    }
    panic!("it does not rest\n{}", world.story());
}

/// Returns the number of calls of each agent that were announced.
fn calls(world: &World) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for record in &world.records {
        if let (Some(agent), Event::ModelRequested(_)) = (&record.agent, &record.event) {
            *calls.entry(agent.to_string()).or_default() += 1;
        }
    }
    calls
}

/// Checks that nothing began in a scope after its pause, but calls that had been allowed before it.
fn check(world: &World, seed: u64) {
    let mut state = RunState::default();
    let mut since: BTreeMap<AgentId, u32> = BTreeMap::new();
    for record in &world.records {
        match (&record.agent, &record.task, &record.event) {
            (Some(agent), _, Event::ModelRequested(_)) if state.pause_of_agent(agent).is_some() => {
                let count = since.entry(agent.clone()).or_default();
                *count += 1;
                assert!(*count <= 1, "seed {seed}: {agent} calls\n{}", world.story());
            }
            (Some(agent), Some(task), Event::AgentSpawned(spawned)) if spawned.check.is_some() => {
                let pause = state.pause_of_task(task);
                assert_eq!(pause, None, "seed {seed}: {agent} begins\n{}", world.story());
            }
            (None, Some(task), Event::TaskStarted(_)) => {
                let pause = state.pause_of_task(task);
                assert_eq!(pause, None, "seed {seed}: {task} starts\n{}", world.story());
            }
            // No process allowed anything before.
            (_, _, Event::RunOpened(_)) => {
                since = state.agents().keys().map(|agent| (agent.clone(), 1)).collect();
            }
            (_, _, Event::ScopePaused(_) | Event::ScopeUnpaused(_)) => since.clear(),
            _ => {}
        }
        state.apply(record).expect("legal");
    }
}

#[test]
fn an_agent_rests_before_its_next_call_with_all_below_it_and_others_go_on() {
    let mut world = world(1);
    while !calls(&world).contains_key("one/helper-1") {
        assert!(world.step());
    }
    world.give(change(of_agent("one"), true));
    until_it_rests(&mut world);
    assert_eq!(world.finish, None, "a person is there");
    let states: BTreeMap<_, _> = world.states().into_iter().collect();
    assert_eq!(states["three"], TaskState::Completed);
    assert_eq!((states["one"], states["two"]), (TaskState::Running, TaskState::Pending));
    let before = calls(&world);
    assert!(before["one/helper-1"] < 4, "{before:?}");
    let paused = world.state.agents()[&AgentId::from_text("one")].paused;
    // A month later it goes on where it was.
    world.now += Duration::from_secs(30 * 86_400);
    world.give(change(of_agent("one"), false));
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert!(paused != Default::default());
    assert!(world.states().iter().all(|(_, state)| *state == TaskState::Completed));
    check(&world, 1);
}

#[test]
fn the_time_of_what_is_paused_stands_still() {
    let limit = Duration::from_secs(3_600);
    for scope in [of_agent("one"), of_task("one"), Scope::Run] {
        let timed = TaskSpec { timeout: Some(limit), ..task("one", &[]) };
        let limits = Limits { timeout: Some(limit * 2), ..Limits::default() };
        let mut world = World::new(vec![timed], limits, |_, _| vec![Step::Hang], 3);
        while world.state.agents().is_empty() {
            assert!(world.step());
        }
        world.settle();
        world.wait_until(limit / 2);
        world.give(change(scope.clone(), true));
        world.settle();
        let most = if scope == Scope::Run { limit * 100 } else { limit };
        world.wait_until(limit / 2 + most);
        assert_eq!(world.finish, None, "{scope}");
        world.give(change(scope.clone(), false));
        world.settle();
        assert_eq!(world.states()[0].1, TaskState::Running, "{scope}");
        let task = world.state.task(&name("one")).expect("a task");
        let taken = task.latest.taken(world.state.reading());
        assert!(taken <= limit / 2 + Duration::from_secs(60), "{scope}: {taken:?}");
        // Then it counts again.
        let now = world.now;
        world.wait_until(now + limit);
        let failed = world.play();
        assert!(matches!(failed, Finish::Completed(_)), "{scope}");
        assert_eq!(world.states()[0].1, TaskState::Failed, "{scope}");
    }
}

#[test]
fn a_pause_outlives_the_process_and_one_that_was_left_is_taken_up() {
    let mut world = world(5);
    world.give(change(of_task("one"), true));
    until_it_rests(&mut world);
    assert_eq!(world.states()[0].1, TaskState::Ready, "{}", world.story());
    assert_eq!(calls(&world).get("one"), None);
    world.kill_process();
    until_it_rests(&mut world);
    assert_eq!(calls(&world).get("one"), None);
    assert_eq!(world.finish, None);
    // Left for the next process: the first goes on, and the third rests.
    world.answers.push(change(of_task("one"), false));
    world.kill_process();
    assert!(matches!(world.play(), Finish::Completed(_)));
    check(&world, 5);
}

#[test]
fn who_raises_a_budget_does_not_end_a_pause_and_the_other_way_round() {
    let mut world = world(7);
    let caps = Caps { max_calls: Some(3), ..Caps::default() };
    world.settings.budget = Some(Budget { caps, on_exceed: OnExceed::Pause, ..Budget::default() });
    world.settings.attended = true;
    world.kill_process();
    world.give(change(Scope::Run, true));
    until_it_rests(&mut world);
    let none = calls(&world);
    let more = Caps { max_calls: Some(1_000), ..Caps::default() };
    world.give(crate::run_machine::purse::change(&Scope::Run, &more, "a person".to_owned()));
    until_it_rests(&mut world);
    assert_eq!(calls(&world), none);
    world.give(change(Scope::Run, false));
    assert!(matches!(world.play(), Finish::Completed(_)));
}

#[test]
fn whatever_people_pause_nothing_begins_there_and_the_run_comes_to_its_end() {
    for seed in 0..120 {
        let mut world = world(seed);
        let mut rng = fastrand::Rng::with_seed(seed ^ 99);
        let mut changes = 0;
        while !matches!(world.finish, Some(Finish::Completed(_))) {
            let agents = world.state.agents().keys().map(|id| Scope::Agent(id.clone()));
            let tasks = ["one", "two", "three", "four"].map(of_task);
            let all: Vec<_> = [Scope::Run].into_iter().chain(tasks).chain(agents).collect();
            if rng.u32(..25) == 0 && changes < 60 {
                changes += 1;
                let scope = all[rng.usize(..all.len())].clone();
                let answer = change(scope, rng.bool());
                match rng.u32(..6) {
                    0 => {
                        world.answers.push(answer);
                        world.kill_process();
                    }
                    _ => drop(world.give(answer)),
                }
            } else if rng.u32(..200) == 0 {
                world.kill_process();
            }
            if !world.step() {
                let paused: Vec<_> =
                    world.state.scope_pauses().iter().map(|(scope, _)| scope.clone()).collect();
                assert!(!paused.is_empty(), "seed {seed}: nothing can happen\n{}", world.story());
                let scope = paused[rng.usize(..paused.len())].clone();
                world.give(change(scope, false));
            }
        }
        assert!(changes > 0, "seed {seed}");
        check(&world, seed);
        let states = world.states();
        assert!(states.iter().all(|(_, state)| *state == TaskState::Completed), "seed {seed}");
    }
}

#[test]
fn a_run_of_which_something_is_paused_does_not_pause_for_people() {
    let script = |_: &World, agent: &AgentId| match agent.as_str() {
        "one" => vec![Step::Ask, Step::Answer],
        _ => vec![Step::Call, Step::Call, Step::Answer],
    };
    let mut world =
        World::new(vec![task("one", &[]), task("two", &[])], Limits::default(), script, 4);
    world.ledger =
        Some(Ledger { price: PRICE, input: 500, output: 500, takes: (50, 100), faults: (0, 0, 0) });
    world.kill_process();
    world.give(change(of_task("two"), true));
    until_it_rests(&mut world);
    assert_eq!((world.open_questions().len(), world.finish.clone()), (1, None));
    world.give(change(of_task("two"), false));
    let finish = world.play_without_people();
    assert!(matches!(finish, Finish::Paused(_)), "{finish:?}");
    let states: BTreeMap<_, _> = world.states().into_iter().collect();
    assert_eq!(states["two"], TaskState::Completed);
}

#[test]
fn a_cancelled_run_cleans_up_although_it_was_paused() {
    let clean = TaskSpec { always: true, ..task("clean", &["one"]) };
    let script = |_: &World, agent: &AgentId| match agent.as_str() {
        "clean" => vec![Step::Call, Step::Answer],
        _ => [Step::Call; 9].to_vec(),
    };
    let mut world = World::new(vec![task("one", &[]), clean], Limits::default(), script, 6);
    world.ledger =
        Some(Ledger { price: PRICE, input: 500, output: 500, takes: (50, 100), faults: (0, 0, 0) });
    world.kill_process();
    while !calls(&world).contains_key("one") {
        assert!(world.step());
    }
    world.give(change(Scope::Run, true));
    until_it_rests(&mut world);
    world.cancel(&CancelTarget::Run);
    assert!(matches!(world.play(), Finish::Completed(_)));
    let states: BTreeMap<_, _> = world.states().into_iter().collect();
    assert_eq!(states["clean"], TaskState::Completed, "{}", world.story());
    assert!(world.state.scope_pauses().is_empty(), "a run that has ended has no pauses");
}

#[test]
fn other_pauses_do_not_lengthen_the_time_of_a_check() {
    let work = CheckWork::Agent { agent: name("judge"), prompt: "right?".to_owned() };
    let limit = Duration::from_secs(600);
    let checks = vec![Check { work, timeout: Some(limit) }];
    let judged =
        TaskSpec { acceptance: Acceptance { checks, ..Acceptance::default() }, ..task("one", &[]) };
    let script = |world: &World, agent: &AgentId| match world.state.agents()[agent].check {
        Some(_) => vec![Step::Hang],
        None => vec![Step::Answer],
    };
    let mut world = World::new(vec![judged, task("two", &["one"])], Limits::default(), script, 8);
    while !world.state.agents().values().any(|agent| agent.check.is_some()) {
        assert!(world.step());
    }
    world.settle();
    let began = world.now;
    for minute in 1..9 {
        world.wait_until(began + minute * Duration::from_secs(60));
        world.give(change(of_task("two"), minute % 2 == 1));
        world.settle();
    }
    world.wait_until(began + limit + Duration::from_secs(60));
    world.settle();
    let check = world.state.agents().values().find(|agent| agent.check.is_some());
    assert!(check.expect("a check").outcome.is_some(), "it took its time again and again");
}

#[test]
fn the_next_attempt_of_an_agent_that_is_paused_waits() {
    let retry = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    let tasks = vec![TaskSpec { retry, ..task("one", &[]) }];
    let script = |_: &World, _: &AgentId| vec![Step::Fail];
    let mut world = World::new(tasks, Limits::default(), script, 9);
    while world.states()[0].1 != TaskState::Waiting {
        assert!(world.step(), "{}", world.story());
    }
    world.give(change(of_agent("one"), true));
    until_it_rests(&mut world);
    assert_eq!((world.states()[0].1, world.state.agents().len()), (TaskState::Waiting, 1));
    world.give(change(of_agent("one"), false));
    world.play();
    assert!(world.state.agents().len() > 1);
}

#[test]
fn what_is_not_there_is_not_paused_and_a_change_travels_whole() {
    let mut world = world(2);
    for scope in [of_task("nobody"), of_agent("nobody")] {
        let request = world.give(change(scope, true));
        assert_eq!(world.answer_outcomes[&request], AnswerOutcome::Unknown);
    }
    let long = PauseChange { scope: Scope::Run, paused: true, reason: Some("ä".repeat(9_000)) };
    let answer = long.answer("a person".to_owned());
    assert_eq!(Errand::of(&answer.id), Errand::Pause);
    let read = PauseChange::read(&answer).expect("a change");
    assert_eq!(read.reason.expect("a reason").chars().count(), REASON_CHARS);
    // The id is that of its scope, and nothing else is one.
    let other = PersonsAnswer { id: PauseChange::id_of(&of_task("one")), ..answer.clone() };
    assert_eq!(PauseChange::read(&other), None);
    assert_eq!(PauseChange::read(&PersonsAnswer { text: Some("{}".to_owned()), ..answer }), None);
}
