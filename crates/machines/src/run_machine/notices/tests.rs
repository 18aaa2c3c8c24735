//! Tables and properties of notices.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{Event, PauseCause};
use crate::id::AgentId;
use crate::run_machine::testing::{Step, World, name, task};
use crate::run_machine::tests::{by_hash, random_tasks};
use crate::run_machine::{CancelTarget, Finish};
use crate::spec::notices::{Channel, NoticeKind, NoticePolicy};
use crate::spec::{Limits, TaskSpec};

fn by_name(_: &World, id: &AgentId) -> Vec<Step> {
    match id.as_str() {
        id if id.starts_with("asks") => vec![Step::Ask, Step::Answer],
        id if id.starts_with("fail") => vec![Step::FailForGood],
        id if id.starts_with("hang") => vec![Step::Hang],
        _ => vec![Step::Answer],
    }
}

/// A policy that tells of everything but of deaths: the worlds here die all the time.
fn policy() -> NoticePolicy {
    let on = NoticeKind::ALL.into_iter().filter(|kind| *kind != NoticeKind::Died).collect();
    NoticePolicy {
        channels: [Channel::Webhook].into_iter().collect(),
        on,
        ..NoticePolicy::default()
    }
}

#[test]
fn a_death_is_told_of_once_until_the_run_comes_further_and_not_to_who_is_there() {
    for attended in [false, true] {
        let all = NoticePolicy { on: NoticeKind::ALL.into_iter().collect(), ..policy() };
        let mut world = told(vec![task("asks", &[]), task("good", &["asks"])], all);
        world.settings.attended = attended;
        while world.open_questions().is_empty() {
            world.step_without_people();
        }
        let deaths = |world: &World| intended(world).iter().filter(|kind| **kind == "died").count();
        let before = deaths(&world);
        for _ in 0..3 {
            world.kill_process();
            for _ in 0..6 {
                world.step_without_people();
            }
        }
        let after = deaths(&world) - before;
        assert_eq!(after, usize::from(!attended), "{}", world.story());
        // A pause is no death.
        if !attended {
            let mut world = told(
                vec![task("asks", &[])],
                NoticePolicy { on: [NoticeKind::Died].into_iter().collect(), ..policy() },
            );
            assert!(matches!(world.play_without_people(), Finish::Paused(_)));
            let before = deaths(&world);
            world.kill_process();
            assert!(matches!(world.play_without_people(), Finish::Paused(_)));
            assert_eq!(deaths(&world), before, "{}", world.story());
        }
    }
}

/// A world whose run tells of everything by one channel.
fn told(tasks: Vec<TaskSpec>, policy: NoticePolicy) -> World {
    let mut world = World::new(tasks, Limits { fail_fast: false, ..Limits::default() }, by_name, 7);
    world.settings.notices = policy;
    world.kill_process();
    world
}

/// The kinds of the notices that were recorded as intended, in order.
fn intended(world: &World) -> Vec<&'static str> {
    let kind = |event: &Event| match event {
        Event::NoticeIntended(intended) => Some(intended.kind.as_str()),
        _ => None,
    };
    world.records.iter().filter_map(|record| kind(&record.event)).collect()
}

/// The number of records of delivered and failed notices.
fn outcomes(world: &World) -> (usize, usize) {
    let count = |is: fn(&Event) -> bool| world.records.iter().filter(|r| is(&r.event)).count();
    let delivered = count(|event| matches!(event, Event::NoticeDelivered(_)));
    (delivered, count(|event| matches!(event, Event::NoticeFailed(_))))
}

/// Checks what no seed may break: a notice is sent only after its record, once for each attempt, and none is told
/// of twice.
fn check(world: &World) {
    let mut known = BTreeMap::new();
    for record in &world.records {
        match &record.event {
            Event::NoticeIntended(intended) => {
                assert_eq!(known.insert(&intended.id, 0), None, "told twice: {}", intended.id);
            }
            Event::NoticeDelivered(delivered) => {
                let attempts = known.remove(&delivered.id).expect("it was intended, and is open");
                assert_eq!(delivered.attempt, attempts + 1);
            }
            Event::NoticeFailed(failed) => {
                let attempts = known.get_mut(&failed.id).expect("it was intended, and is open");
                assert!(failed.attempt == *attempts + 1 || failed.gives_up, "{failed:?}");
                *attempts = failed.attempt;
            }
            _ => {}
        }
    }
    for (_, id) in &world.notices_sent {
        assert!(world.state.notices().knows(id), "sent before it was recorded: {id}");
    }
}

#[test]
fn the_end_and_the_failures_are_told_of_once_and_before_the_end_is_recorded() {
    let mut world = told(vec![task("good", &[]), task("fails", &[])], policy());
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert_eq!(intended(&world), ["failed", "finished"]);
    assert_eq!(outcomes(&world), (2, 0));
    assert!(matches!(world.records.last().expect("records").event, Event::RunCompleted(_)));
    let texts = world.records.iter().filter_map(|record| match &record.event {
        Event::NoticeIntended(intended) => Some(intended.text.clone()),
        _ => None,
    });
    let texts: Vec<_> = texts.collect();
    assert!(texts[0].starts_with("task `fails` failed: "), "{texts:?}");
    assert_eq!(texts[1], "the run has ended (partial): 1 of 2 tasks done, 1 failed");
    check(&world);
}

#[test]
fn a_question_is_told_of_when_it_has_lasted_and_not_if_it_was_answered_before() {
    for answers_early in [false, true] {
        let mut world = told(vec![task("asks", &[])], policy());
        world.settings.attended = true;
        world.kill_process();
        while world.open_questions().is_empty() {
            world.step_without_people();
        }
        let asked_at = world.now;
        let id = world.open_questions()[0].clone();
        if answers_early {
            world.answer(&id, true);
            assert!(matches!(world.play_with_people(), Finish::Completed(_)));
            assert_eq!(intended(&world), ["finished"]);
            continue;
        }
        while intended(&world).is_empty() {
            assert!(world.step_without_people(), "{}", world.story());
        }
        assert_eq!(intended(&world), ["question"]);
        assert!(world.now >= asked_at + Duration::from_secs(60), "{:?}", world.now);
        world.answer(&id, true);
        assert!(matches!(world.play_with_people(), Finish::Completed(_)));
        assert_eq!(intended(&world), ["question", "finished"]);
        assert_eq!(outcomes(&world), (2, 0));
        check(&world);
    }
}

#[test]
fn a_pause_for_a_person_is_told_of_with_its_question_and_a_resume_tells_nothing_new() {
    let mut world = told(vec![task("asks", &[])], policy());
    for _ in 0..3 {
        let Finish::Paused(paused) = world.play_without_people() else { panic!("it pauses") };
        assert_eq!(paused.cause, PauseCause::Person);
        assert!(matches!(world.records.last().expect("records").event, Event::RunPaused(_)));
        assert_eq!(intended(&world), ["paused", "question"]);
        assert_eq!(outcomes(&world), (2, 0));
        world.kill_process();
    }
    assert_eq!(world.notices_sent.len(), 2);
    check(&world);
}

#[test]
fn a_notice_is_tried_again_with_pauses_and_given_up_at_its_bound() {
    let mut world = told(vec![task("good", &[])], NoticePolicy { attempts: 3, ..policy() });
    world.failing_notices = 2;
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert_eq!((outcomes(&world), world.notices_sent.len()), ((1, 2), 3));
    check(&world);
    let mut world = told(vec![task("good", &[])], NoticePolicy { attempts: 3, ..policy() });
    world.failing_notices = u32::MAX;
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert_eq!((outcomes(&world), world.notices_sent.len()), ((0, 3), 3));
    let undelivered = world.state.notices().undelivered();
    assert_eq!(undelivered[&Channel::Webhook].count, 1);
    assert_eq!(undelivered[&Channel::Webhook].error, "connection refused");
    check(&world);
}

#[test]
fn the_end_waits_for_a_receiver_that_never_answers_only_as_long_as_it_may() {
    let wait = Duration::from_secs(9);
    let on = [NoticeKind::Finished].into_iter().collect();
    let mut world = told(vec![task("good", &[])], NoticePolicy { wait, on, ..policy() });
    world.is_receiver_silent = true;
    let begun = world.now;
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert!(world.now >= begun + wait && world.now < begun + 3 * wait, "{:?}", world.now);
    assert_eq!(outcomes(&world), (0, 1));
    assert_eq!(world.state.notices().undelivered()[&Channel::Webhook].count, 1);
    check(&world);
}

#[test]
fn what_was_intended_and_not_delivered_is_sent_again_under_the_same_id_after_a_crash() {
    let mut world = told(vec![task("asks", &[])], policy());
    world.is_receiver_silent = true;
    assert!(matches!(world.play_without_people(), Finish::Paused(_)));
    let first: Vec<_> = world.notices_sent.drain(..).map(|(_, id)| id).collect();
    world.is_receiver_silent = false;
    world.kill_process();
    assert!(matches!(world.play_without_people(), Finish::Paused(_)));
    let mut again: Vec<_> = world.notices_sent.iter().map(|(_, id)| id.clone()).collect();
    again.sort();
    let mut first = first;
    first.sort();
    assert_eq!(again, first);
    assert_eq!(intended(&world).len(), 2);
    check(&world);
}

#[test]
fn a_run_in_which_nothing_happens_is_told_of_once() {
    let mut world = told(vec![task("hangs", &[])], policy());
    for _ in 0..200 {
        world.step_without_people();
    }
    assert_eq!(intended(&world), ["stalled"]);
    world.cancel(&CancelTarget::Run);
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert_eq!(intended(&world), ["stalled", "finished"]);
    check(&world);
}

#[test]
fn only_what_is_named_is_told_of_and_each_channel_gets_it() {
    let on = [NoticeKind::Failed].into_iter().collect();
    let channels = [Channel::Command, Channel::Webhook].into_iter().collect();
    let mut world = told(vec![task("fails", &[])], NoticePolicy { on, channels, ..policy() });
    assert!(matches!(world.play(), Finish::Completed(_)));
    assert_eq!(intended(&world), ["failed", "failed"]);
    let mut quiet = told(vec![task("fails", &[])], NoticePolicy::default());
    assert!(matches!(quiet.play(), Finish::Completed(_)));
    assert_eq!(intended(&quiet), [""; 0]);
}

#[test]
fn a_notice_whose_channel_is_gone_is_given_up() {
    let mut world = told(vec![task("asks", &[])], policy());
    world.is_receiver_silent = true;
    assert!(matches!(world.play_without_people(), Finish::Paused(_)));
    world.settings.notices.channels = [Channel::Command].into_iter().collect();
    world.is_receiver_silent = false;
    world.kill_process();
    assert!(matches!(world.play_without_people(), Finish::Paused(_)));
    assert_eq!(world.state.notices().open().count(), 0);
    check(&world);
}

#[test]
fn a_full_disk_is_told_of_with_its_pause() {
    let mut paused = 0;
    for steps in 20..40 {
        let mut world = told(vec![task("hangs", &[])], policy());
        world.steps(steps);
        world.fill_disk();
        for _ in 0..30 {
            world.step_without_people();
        }
        // Now and then the record takes longer than the machine waits for it: then the process ends without it.
        let at = world.records.iter().position(|r| matches!(r.event, Event::RunPaused(_)));
        let Some(at) = at else { continue };
        paused += 1;
        let next = &world.records[at + 1].event;
        assert!(matches!(next, Event::NoticeIntended(n) if n.state == "disk_full"), "{next:?}");
        check(&world);
    }
    assert!(paused > 0, "it pauses");
}

#[test]
fn over_crashes_and_failing_receivers_each_state_is_told_of_once() {
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut tasks: Vec<_> = random_tasks(&mut rng);
        tasks.push(task("asks", &[]));
        let limits = Limits { fail_fast: false, ..Limits::default() };
        let mut world = World::new(tasks, limits, by_hash, seed);
        world.settings.notices = policy();
        world.kill_process();
        for _ in 0..rng.usize(..4) {
            world.failing_notices = rng.u32(..3);
            world.is_receiver_silent = rng.u32(..4) == 0;
            world.steps(rng.usize(..120));
            if world.state.completed().is_none() {
                world.kill_process();
            }
        }
        world.is_receiver_silent = false;
        world.failing_notices = 0;
        if world.state.completed().is_none() {
            world.kill_process();
            world.play_with_people();
        }
        if world.state.completed().is_some() {
            let last = &world.records.last().expect("records").event;
            assert!(matches!(last, Event::RunCompleted(_)), "seed {seed}: {last:?}");
            assert_eq!(world.state.notices().open().count(), 0, "seed {seed}");
            let finished = intended(&world).iter().filter(|kind| **kind == "finished").count();
            assert!(finished >= 1, "seed {seed}");
        }
        check(&world);
    }
}

#[test]
fn a_cancelled_task_is_no_failure() {
    let mut world = told(vec![task("hangs", &[])], policy());
    world.steps(40);
    world.cancel(&CancelTarget::Task(name("hangs")));
    world.play();
    assert!(!intended(&world).contains(&"failed"), "{:?}", intended(&world));
}
