//! Tables and properties of children in the background.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::id::{CallKey, Name, RunId};
use crate::message::Usage;
use crate::output::{Output, Stored};
use crate::run_machine::testing::{Script, Step, World, name, task};
use crate::run_machine::{CancelTarget, ChildLook, Delegation, Finish, Request, Seen, Wish};
use crate::run_state::RunPhase;
use crate::spec::acceptance::{Check, CheckWork};
use crate::spec::{AgentSpec, Limits, TaskSpec};

fn world(tasks: Vec<TaskSpec>, slots: usize, script: Script, seed: u64) -> World {
    let limits = Limits { fail_fast: false, max_concurrency: slots, ..Limits::default() };
    let mut world = World::new(tasks, limits, script, seed);
    let spec = |definition: &str| -> (Name, Arc<AgentSpec>) {
        let spec = AgentSpec { background: true, ..AgentSpec::new(name(definition), name("m")) };
        (name(definition), Arc::new(spec))
    };
    world.settings.agents = [spec("worker"), spec("helper")].into();
    world.kill_process();
    world
}

fn id(text: &str) -> AgentId {
    AgentId::from_text(text)
}

/// Returns the messages of the run about children: the recipient, and the child or a sign that some work.
fn told(world: &World) -> Vec<String> {
    let messages = world.records.iter().filter_map(|record| match &record.event {
        Event::MessageSent(message) => Some(message),
        _ => None,
    });
    messages
        .map(|message| match &message.about {
            Some(About::ChildEnded { child }) => format!("{} <- {child}", message.to),
            Some(About::ChildrenAtWork) => format!("{} <- at work", message.to),
            None => format!("{} <- {}", message.to, message.text),
        })
        .collect()
}

fn ask(world: &mut World, from: &str, wish: Wish) {
    let from = id(from);
    let task = world.state.agents()[&from].task.clone();
    let now = world.now();
    world.machine.requested(now, Request { from, task, id: "asked".to_owned(), wish });
}

/// Returns the replies that come next, without performing anything.
fn replies(world: &mut World) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some(action) = world.machine.next_action() {
        if let crate::run_machine::Action::Reply { id, reply, .. } = action
            && id == "asked"
        {
            replies.push(reply);
        }
    }
    replies
}

#[test]
fn a_parent_goes_on_and_hears_of_each_end_once() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(2), Step::Wait, Step::Wait, Step::Answer],
            _ => vec![Step::Answer],
        }
    }
    // One slot is enough: who waits needs none.
    for slots in [1, 2, 8] {
        let mut world = world(vec![task("boss", &[])], slots, script, 1);
        assert!(matches!(world.play(), Finish::Completed(_)), "{}", world.story());
        let mut told = told(&world);
        told.retain(|it| !it.ends_with("at work"));
        told.sort();
        assert_eq!(told, ["boss <- boss/helper-1", "boss <- boss/helper-2"], "{slots} slots");
        world.check_background();
        world.check_messages();
    }
}

#[test]
fn an_agent_that_answers_is_told_once_who_still_works_and_then_they_end_with_it() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(1), Step::Answer],
            _ => vec![Step::Hang],
        }
    }
    let mut world = world(vec![task("boss", &[])], 4, script, 1);
    world.settle();
    assert!(matches!(world.state.phase(), RunPhase::Completed(_)), "{}", world.story());
    assert_eq!(told(&world), ["boss <- at work"]);
    let child = &world.state.agents()[&id("boss/helper-1")];
    assert!(matches!(&child.outcome, Some(Outcome::Cancelled { reason })
        if reason == "its parent has ended"));
    world.check_background();
}

#[test]
fn what_ended_before_the_answer_is_read_before_the_end() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(1), Step::Answer],
            _ => vec![Step::Answer],
        }
    }
    // In whatever order the child's end, its message and the answer come.
    for seed in 0..300 {
        let mut world = world(vec![task("boss", &[])], 4, script, seed);
        assert!(matches!(world.play(), Finish::Completed(_)), "{}", world.story());
        world.check_background();
        world.check_messages();
        let ends = told(&world).iter().filter(|it| it.ends_with("helper-1")).count();
        let child = &world.state.agents()[&id("boss/helper-1")];
        let did_answer = matches!(&child.outcome, Some(Outcome::Completed { .. }));
        assert!(ends == 1 || !did_answer || told(&world).iter().any(|it| it.ends_with("at work")));
    }
}

#[test]
fn a_wait_ends_with_a_child_a_message_or_its_time() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(2), Step::Hang],
            _ => vec![Step::Hang],
        }
    }
    let begun = || {
        let mut world = world(vec![task("boss", &[])], 4, script, 1);
        world.settle();
        world
    };
    let timeout = Duration::from_secs(60);
    let wait = |names: &[&str], all| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Wish::Wait(ChildWait { names, all, timeout })
    };
    let (first, second) = (id("boss/helper-1"), id("boss/helper-2"));
    // A name that is none of its children.
    let mut world = begun();
    ask(&mut world, "boss", wait(&["helper-3"], false));
    let names = "you have started no `helper-3`; you started @boss/helper-1, @boss/helper-2";
    assert_eq!(replies(&mut world), [Reply::Wait(Err(Refused(names.to_owned())))]);
    ask(&mut world, "boss/helper-1", wait(&[], false));
    let none = "no agent works for you in the background".to_owned();
    assert_eq!(replies(&mut world), [Reply::Wait(Err(Refused(none)))]);
    // The first end, by the message that tells of it.
    for (names, all, ends) in [
        (&[][..], false, Some(vec![first.clone()])),
        (&["helper-1"], true, Some(vec![first.clone()])),
        (&["@boss/helper-2"], false, None),
        (&[], true, None),
    ] {
        let mut world = begun();
        ask(&mut world, "boss", wait(names, all));
        assert!(!world.machine.facts.scarce.holds(&id("boss")), "who waits needs no slot");
        assert!(world.cancel(&CancelTarget::Agent(first.clone())));
        let ended = world.settle_until_reply("asked");
        let ended = ended.map(|reply| match reply {
            Reply::Wait(Ok(Waited { ended, mail: false, late: false, .. })) => ended,
            reply => panic!("{reply:?}"),
        });
        assert_eq!(ended, ends, "{names:?}, {all}");
    }
    // A person's words.
    let mut world = begun();
    ask(&mut world, "boss", wait(&[], true));
    world.say(&id("boss"), "hurry");
    let reply = world.settle_until_reply("asked");
    let working = vec![first.clone(), second.clone()];
    let waited = Waited { working: working.clone(), mail: true, ..Waited::default() };
    assert_eq!(reply, Some(Reply::Wait(Ok(waited))));
    // Its time.
    let mut world = begun();
    ask(&mut world, "boss", wait(&[], true));
    world.now += timeout;
    let now = world.now();
    world.machine.wake(now);
    let waited = Waited { working, late: true, ..Waited::default() };
    assert_eq!(replies(&mut world), [Reply::Wait(Ok(waited))]);
}

#[test]
fn a_child_is_looked_at_and_stopped_by_its_parent_alone() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(1), Step::Hang],
            _ => vec![Step::Hang],
        }
    }
    let look = |name: &str| Wish::Look(ChildLook { name: name.to_owned() });
    let stop =
        |name: &str| Wish::Stop(ChildStop { name: name.to_owned(), reason: "enough".to_owned() });
    let child = id("boss/helper-1");
    let mut world = world(vec![task("boss", &[]), task("other", &[])], 4, script, 1);
    world.settle();
    for wish in [look("boss/helper-1"), stop("helper-1")] {
        ask(&mut world, "other", wish);
        let none = "there is no `boss/helper-1`: you have started no agent";
        let short = "there is no `helper-1`: you have started no agent";
        let replies = replies(&mut world);
        let refused = |text: &str| Refused(text.to_owned());
        assert!(
            replies == [Reply::Look(Err(refused(none)))]
                || replies == [Reply::Stop(Err(refused(short)))],
            "{replies:?}"
        );
    }
    ask(&mut world, "boss", look("helper-1"));
    assert!(matches!(&replies(&mut world)[..], [Reply::Look(Ok(Seen::Working { agent, .. }))]
        if *agent == child));
    ask(&mut world, "boss", stop("helper-1"));
    world.settle_actions();
    world.settle();
    let ended = &world.state.agents()[&child].outcome;
    assert!(
        matches!(ended, Some(Outcome::Cancelled { reason })
        if reason == "stopped by @boss: enough"),
        "{ended:?}"
    );
    assert_eq!(told(&world), ["boss <- boss/helper-1"]);
    ask(&mut world, "boss", look("helper-1"));
    assert!(matches!(&replies(&mut world)[..], [Reply::Look(Ok(Seen::Ended(_)))]));
}

#[test]
fn a_child_that_has_ended_goes_on_with_another_job_under_its_name() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(1), Step::Hang],
            _ => vec![Step::Answer, Step::Answer],
        }
    }
    let job = |call: u32, agent: &str, continues: Option<&str>, called: Option<&str>| {
        Wish::Child(Delegation {
            depth: 1,
            call: CallKey::derive(
                RunId::parse("00000000-0000-7000-8000-000000000000").expect("an id"),
                &id("boss"),
                call,
                0,
                "delegate",
                "{}",
            ),
            agent: name(agent),
            prompt: "and this".to_owned(),
            timeout: None,
            output_schema: None,
            budget: None,
            background: true,
            name: called.map(name),
            continues: continues.map(str::to_owned),
        })
    };
    let begun = |world: &World| {
        let spawned = world.state.agents().keys().map(ToString::to_string);
        spawned.filter(|id| id.contains('/')).collect::<Vec<_>>()
    };
    let child = id("boss/helper-1");
    let mut world = world(vec![task("boss", &[])], 4, script, 1);
    world.settle();
    assert_eq!(told(&world), ["boss <- boss/helper-1"]);
    for (agent, continues, reason) in [
        ("helper", "helper-9", "you have started no `helper-9`; you started @boss/helper-1"),
        ("worker", "helper-1", "@boss/helper-1 is a `helper`, and no `worker`"),
    ] {
        ask(&mut world, "boss", job(7, agent, Some(continues), None));
        let refused = |action| match action {
            crate::run_machine::Action::Reply {
                reply: Reply::Child(Err(Refused(why))), ..
            } => Some(why),
            _ => None,
        };
        let actions = std::iter::from_fn(|| world.machine.next_action());
        assert_eq!(actions.filter_map(refused).collect::<Vec<_>>(), [reason]);
    }
    // Asked twice under one key, as after a crash, it goes on once.
    for _ in 0..2 {
        ask(&mut world, "boss", job(8, "helper", Some("@boss/helper-1"), None));
    }
    world.settle_actions();
    world.settle();
    let status = &world.state.agents()[&child];
    assert_eq!((status.round, status.is_told), (2, true), "{}", world.story());
    assert_eq!(told(&world), ["boss <- boss/helper-1", "boss <- boss/helper-1"]);
    world.kill_process();
    world.settle();
    assert_eq!(told(&world).len(), 2, "nothing is told again");
    // A name is used once.
    for call in [9, 10] {
        ask(&mut world, "boss", job(call, "helper", None, Some("scout")));
        world.settle_actions();
        world.settle();
    }
    assert_eq!(begun(&world), ["boss/helper-1", "boss/scout", "boss/scout-2"]);
}

#[test]
fn a_wait_that_is_over_is_over_for_whoever_asks_again() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(1), Step::Hang],
            _ => vec![Step::Hang],
        }
    }
    let mut world = world(vec![task("boss", &[])], 4, script, 1);
    world.settle();
    let wait = || {
        let timeout = Duration::from_secs(60);
        Wish::Wait(ChildWait { names: Vec::new(), all: false, timeout })
    };
    ask(&mut world, "boss", wait());
    world.now += Duration::from_secs(50);
    // One that rested, or was started anew, asks under the same key: its time goes on.
    ask(&mut world, "boss", wait());
    assert_eq!(replies(&mut world), []);
    world.now += Duration::from_secs(10);
    let now = world.now();
    world.machine.wake(now);
    let late = Waited { working: vec![id("boss/helper-1")], late: true, ..Waited::default() };
    assert_eq!(replies(&mut world), [Reply::Wait(Ok(late.clone()))]);
    ask(&mut world, "boss", wait());
    assert_eq!(replies(&mut world), [Reply::Wait(Ok(late))], "the reply may have found nobody");
}

#[test]
fn no_two_children_get_one_name_whoever_chooses_it() {
    fn script(_: &World, _: &AgentId) -> Vec<Step> {
        vec![Step::Hang]
    }
    let mut world = world(vec![task("boss", &[])], 8, script, 1);
    world.settle();
    let job = |call: u32, called: Option<&str>| {
        let run = RunId::parse("00000000-0000-7000-8000-000000000000").expect("an id");
        Wish::Child(Delegation {
            depth: 1,
            call: CallKey::derive(run, &id("boss"), call, 0, "delegate", "{}"),
            agent: name("helper"),
            prompt: "go".to_owned(),
            timeout: None,
            output_schema: None,
            budget: None,
            background: true,
            name: called.map(name),
            continues: None,
        })
    };
    // In one reply: none of them is durable when the next is asked for.
    for (call, called) in [(1, Some("helper-1")), (2, None), (3, Some("helper-2")), (4, None)] {
        ask(&mut world, "boss", job(call, called));
    }
    world.settle_actions();
    world.settle();
    let spawned = world.state.agents().keys().map(ToString::to_string);
    let spawned: Vec<_> = spawned.filter(|id| id.contains('/')).collect();
    let names = ["boss/helper-1", "boss/helper-2", "boss/helper-2-2", "boss/helper-3"];
    assert_eq!(spawned, names);
    assert!(world.finish.is_none(), "{:?}", world.finish);
}

#[test]
fn a_parent_that_begins_another_round_has_no_children_of_the_last_one() {
    fn script(_: &World, id: &AgentId) -> Vec<Step> {
        match id.as_str() {
            "boss" => vec![Step::Background(1), Step::Answer],
            id if id.contains("check") => vec![Step::Refute],
            _ => vec![Step::Hang],
        }
    }
    let mut boss = task("boss", &[]);
    let work = CheckWork::Command { run: "false".to_owned(), env: Default::default() };
    boss.acceptance.checks = vec![Check { work, timeout: None }];
    boss.acceptance.retries = 1;
    let mut world = world(vec![boss], 4, script, 1);
    world.settle();
    let agents = world.state.agents();
    assert_eq!(agents[&id("boss")].round, 2, "{}", world.story());
    assert_eq!(told(&world), ["boss <- at work"], "it was stopped with the first answer");
    assert!(agents[&id("boss/helper-1")].is_told, "nobody waits for it any more");
}

#[test]
fn a_result_is_cut_to_what_its_parent_can_read() {
    let result =
        |outcome| ChildResult { agent: id("a/b-1"), outcome, turns: 2, usage: Usage::default() };
    let whole = Outcome::Completed { output: Output::whole("done") };
    let text: serde_json::Value =
        serde_json::from_str(&text_of(&result(whole), 16_000)).expect("JSON");
    assert_eq!((&text["status"], &text["text"]), (&json!("completed"), &json!("done")));
    assert_eq!((&text["agent"], &text["rest"]), (&json!("a/b-1"), &json!(null)));
    let failure = Failure::new(FailureKind::Overloaded, "busy");
    let failed = Outcome::Failed { failure, partial: Some(Output::whole("half")) };
    let text: serde_json::Value =
        serde_json::from_str(&text_of(&result(failed), 16_000)).expect("JSON");
    assert_eq!((&text["status"], &text["text"]), (&json!("failed"), &json!("half")));
    assert!(text["error"].as_str().is_some_and(|error| error.contains("busy")));
    // Whatever escapes it needs, it fits, and says that there is more.
    for piece in ["x", "\u{1}", "\"", "\u{1f600}"] {
        let long = Outcome::Completed { output: Output::whole(piece.repeat(50_000)) };
        let text = text_of(&result(long), 16_000);
        assert!((5_000..=16_000).contains(&text.len()) || piece == "\u{1}", "{}", text.len());
        assert!(text.len() <= 16_000);
        let text: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(text["rest"].is_string());
    }
    let stored = Stored { hash: "h".to_owned(), bytes: 9, dropped: 0 };
    let output = Output { text: "beginning".to_owned(), stored: Some(stored) };
    let text = text_of(&result(Outcome::Completed { output }), 16_000);
    assert!(text.contains("check_child"), "{text}");
}

/// Agents with children in the background, which have some too, and wait for them or do not.
fn bosses(world: &World, id: &AgentId) -> Vec<Step> {
    let depth = id.as_str().matches('/').count();
    let hash = blake3::hash(format!("{id} {}", world.settings.workflow).as_bytes());
    let mut rng = fastrand::Rng::with_seed(u64::from_le_bytes(
        hash.as_bytes()[..8].try_into().expect("eight bytes"),
    ));
    let mut steps = Vec::new();
    for _ in 0..rng.usize(1..5) {
        steps.push(match rng.u32(..10) {
            0..=3 if depth < 2 => Step::Background(rng.u32(1..3)),
            4 if depth == 0 => Step::Delegate(2),
            5 | 6 => Step::Wait,
            7 => Step::Ask,
            8 => Step::Crash,
            _ => Step::Write,
        });
    }
    steps.push(if rng.u32(..8) == 0 { Step::Fail } else { Step::Answer });
    steps
}

/// Plays a run in which processes die, people answer and write, and parts are cancelled.
fn play(seed: u64) -> World {
    let slots = [1, 2, 4][usize::try_from(seed % 3).expect("small")];
    let tasks = vec![task("a", &[]), task("b", &[]), task("c", &["a"])];
    let mut world = world(tasks, slots, bosses, seed);
    world.settings.workflow = seed.to_string();
    world.settings.attended = true;
    world.kill_process();
    world.play_through(|_, _| false)
}

fn each_end_is_told(seeds: std::ops::Range<u64>) {
    let mut seen = [0_usize; 2];
    for seed in seeds {
        let world = play(seed);
        world.check_background();
        world.check_messages();
        for told in told(&world) {
            seen[usize::from(told.ends_with("at work"))] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "nothing is tried: {seen:?}");
}

#[test]
fn whatever_happens_each_end_of_a_child_is_told_once() {
    each_end_is_told(0..300);
}

#[test]
#[ignore = "takes a minute"]
fn whatever_happens_each_end_of_a_child_is_told_once_in_10_000_runs() {
    each_end_is_told(0..10_000);
}
