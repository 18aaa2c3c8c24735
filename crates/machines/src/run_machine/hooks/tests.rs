//! Tables and properties of the hooks of states.

use std::collections::BTreeSet;

use crate::event::{Event, RunStatus};
use crate::id::AgentId;
use crate::run_machine::Finish;
use crate::run_machine::testing::{Step, World, task};
use crate::spec::Limits;
use crate::spec::hooks::Hook::{self, OnExit, Question, RunPaused, RunResumed};

fn by_name(_: &World, id: &AgentId) -> Vec<Step> {
    match id.as_str() {
        id if id.starts_with("asks") => vec![Step::Ask, Step::Answer],
        _ => vec![Step::Answer],
    }
}

/// A world with hooks of states and of the end. Its first process has died, so the run goes on from the beginning.
fn hooked(tasks: &[&str], seed: u64) -> World {
    let tasks = tasks.iter().map(|name| task(name, &[])).collect();
    let mut world = World::new(tasks, Limits { timeout: None, ..Limits::default() }, by_name, seed);
    world.settings.hooks = [RunPaused, RunResumed, Question, OnExit].into_iter().collect();
    world.kill_process();
    world
}

/// The states for which hooks began, in order.
fn begun(world: &World) -> Vec<String> {
    let about = |event: &Event| match event {
        Event::HookStarted(started) if !started.about.is_empty() => Some(started.about.clone()),
        _ => None,
    };
    world.records.iter().filter_map(|record| about(&record.event)).collect()
}

#[test]
fn a_pause_for_people_runs_its_hooks_before_it_is_recorded_and_the_next_process_says_so() {
    let mut world = hooked(&["asks"], 1);
    assert!(matches!(world.play_without_people(), Finish::Paused(_)));
    assert_eq!(world.hooks_run, [RunResumed, Question, RunPaused]);
    assert!(world.hooks_ended.is_empty(), "whoever is asked must hear of it");
    assert!(matches!(world.records.last().expect("records").event, Event::RunPaused(_)));
    // The question is the same, the pause is another one.
    world.kill_process();
    assert!(matches!(world.play_without_people(), Finish::Paused(_)));
    assert_eq!(world.hooks_run[3..], [RunResumed, RunPaused]);
    world.kill_process();
    let id = world.open_questions()[0].clone();
    world.answer(&id, true);
    assert!(matches!(world.play_with_people(), Finish::Completed(_)));
    assert_eq!(world.hooks_run[5..], [RunResumed, OnExit]);
    assert_eq!(world.state.failed_hooks().count(), 0);
}

#[test]
fn a_run_that_never_rests_runs_none_but_that_of_its_opening() {
    let mut world = hooked(&["good"], 1);
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert_eq!(world.hooks_run, [RunResumed, OnExit]);
}

#[test]
fn an_interrupted_run_calls_the_hook_of_its_pause() {
    let mut world = hooked(&["good", "other"], 1);
    world.steps(6);
    world.interrupt();
    assert!(matches!(world.play(), Finish::Paused(_)));
    assert_eq!(world.hooks_run, [RunResumed, RunPaused]);
    // One that fails is named, and changes nothing.
    world.failing_hooks = vec![RunResumed];
    world.kill_process();
    let Finish::Completed(completed) = world.play() else { panic!("{}", world.story()) };
    assert_eq!(completed.status, RunStatus::Completed);
    assert_eq!(world.hooks_run[2..], [RunResumed, OnExit]);
    let failed: Vec<(Hook, String)> = world.state.failed_hooks().collect();
    assert_eq!(failed, [(RunResumed, "exit code 1".to_owned())]);
}

#[test]
fn each_state_runs_its_hook_once_wherever_the_run_is_killed() {
    for seed in 0..300 {
        let mut world = hooked(&["asks", "asks-too", "good"], seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..rng.usize(1..6) {
            for _ in 0..rng.usize(0..30) {
                world.step_without_people();
            }
            match rng.u8(0..3) {
                _ if world.finish.is_some() => world.kill_process(),
                0 => world.interrupt(),
                _ => world.kill_process(),
            }
        }
        for _ in 0..4 {
            if world.finish.is_none() {
                world.play_with_people();
            }
            if !matches!(world.finish, Some(Finish::Completed(_))) {
                world.kill_process();
            }
        }
        let completed = matches!(world.finish, Some(Finish::Completed(_)));
        assert!(completed, "seed {seed}\n{}", world.story());
        let all = begun(&world);
        let different: BTreeSet<_> = all.iter().collect();
        // Once more after each that a pause has ended.
        let ended = world.hooks_ended.len();
        assert!(all.len() <= different.len() + ended, "seed {seed}: {all:?}\n{}", world.story());
        let asked = world.records.iter().filter(|r| matches!(r.event, Event::ApprovalAsked(_)));
        let questions = different.iter().filter(|about| about.starts_with("question-")).count();
        assert!(questions <= asked.count(), "seed {seed}: {all:?}");
        assert_eq!(world.state.hook_of_state(), None, "seed {seed}\n{}", world.story());
        // Each pause with which a process ended had one before it.
        let pauses = world.records.iter().filter(|r| matches!(r.event, Event::RunPaused(_)));
        let hooks = different.iter().filter(|about| about.starts_with("paused-")).count();
        assert!(hooks >= pauses.count(), "seed {seed}: {all:?}\n{}", world.story());
    }
}
