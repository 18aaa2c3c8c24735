//! Tables and properties of messages to agents.

use std::sync::Arc;

use super::*;
use crate::event::Event;
use crate::id::Name;
use crate::run_machine::testing::{Script, Step, World, name, task};
use crate::run_machine::{CancelTarget, Request, Wish};
use crate::spec::acceptance::{Acceptance, Check, CheckWork};
use crate::spec::{AgentSpec, Limits, TaskSpec};

fn limits() -> Limits {
    Limits { fail_fast: false, max_concurrency: 8, ..Limits::default() }
}

/// A world whose agents may write to those that `reach` allows.
fn world(tasks: Vec<TaskSpec>, script: Script, reach: Reach, seed: u64) -> World {
    let mut world = World::new(tasks, limits(), script, seed);
    let spec = |definition: &str| -> (Name, Arc<AgentSpec>) {
        let spec = AgentSpec { messages: reach, ..AgentSpec::new(name(definition), name("m")) };
        (name(definition), Arc::new(spec))
    };
    world.settings.agents = [spec("worker"), spec("helper")].into();
    world.kill_process();
    world
}

fn hangs(_: &World, id: &AgentId) -> Vec<Step> {
    match id.as_str() {
        "boss" => vec![Step::Delegate(2), Step::Answer],
        _ => vec![Step::Hang],
    }
}

fn ask(world: &mut World, from: &str, to: &str, text: &str, id: &str) -> Result<Queued, String> {
    let from = AgentId::from_text(from);
    let task = world.state.agents()[&from].task.clone();
    let letter = Letter { to: to.to_owned(), text: text.to_owned(), reply_to: None };
    let now = world.now();
    let (id, wish) = (id.to_owned(), Wish::Message(letter));
    let (before, refused) = (world.mail.acknowledged.clone(), world.mail.refused.len());
    world.machine.requested(now, Request { from, task, id, wish });
    world.settle_actions();
    if let Some(reason) = world.mail.refused.get(refused) {
        return Err(reason.clone());
    }
    let new = world.mail.acknowledged.difference(&before).next().copied();
    let id = new.expect("it is told");
    let message = world.records.iter().find_map(|record| match &record.event {
        Event::MessageSent(message) if message.id == id => Some(message.clone()),
        _ => None,
    });
    Ok(Queued { id, to: message.expect("it is recorded").to, before: 0, returned: None })
}

#[test]
fn who_may_write_to_whom_by_the_table() {
    let tasks = || vec![task("boss", &[]), task("other", &[])];
    for (reach, from, to, expected) in [
        (
            Reach::Nobody,
            "boss",
            "other",
            Err("you may not write to @other; there is nobody whom you can write to now"),
        ),
        (
            Reach::Parent,
            "boss",
            "other",
            Err("you may not write to @other; you can write to @boss/helper-1, @boss/helper-2"),
        ),
        (Reach::Parent, "boss", "helper-1", Ok("boss/helper-1")),
        (Reach::Parent, "boss", "@boss/helper-2", Ok("boss/helper-2")),
        (Reach::Parent, "boss/helper-1", "parent", Ok("boss")),
        (
            Reach::Parent,
            "boss/helper-1",
            "boss/helper-2",
            Err("you may not write to @boss/helper-2; you can write to @boss"),
        ),
        (
            Reach::Parent,
            "boss",
            "parent",
            Err("no agent delegated to you; you can write to @boss/helper-1, @boss/helper-2"),
        ),
        (Reach::Run, "boss/helper-1", "other", Ok("other")),
        (Reach::Run, "other", "@boss/helper-1 ", Ok("boss/helper-1")),
        (
            Reach::Run,
            "other",
            "helper-1",
            Err(
                "there is no agent `helper-1`; you can write to @boss, @boss/helper-1, @boss/helper-2",
            ),
        ),
        (Reach::Run, "other", "other", Err("that is you")),
        (
            Reach::Run,
            "other",
            "",
            Err("there is no agent ``; you can write to @boss, @boss/helper-1, @boss/helper-2"),
        ),
    ] {
        let mut world = world(tasks(), hangs, reach, 1);
        world.settle();
        let sent = ask(&mut world, from, to, "hello", "c1");
        let sent = sent.map(|queued| queued.to.to_string());
        assert_eq!(
            sent,
            expected.map(str::to_owned).map_err(str::to_owned),
            "{reach:?} {from} {to}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_evicted() {
    let tasks = vec![task("a", &[]), task("b", &[])];
    let mut world = world(tasks, hangs, Reach::Run, 1);
    world.settle();
    let long = "x".repeat(MESSAGE_BYTES);
    assert_eq!(ask(&mut world, "a", "b", " \n", "c"), Err("the text is blank".to_owned()));
    let more = format!("{long}y");
    assert!(
        ask(&mut world, "a", "b", &more, "c")
            .is_err_and(|why| why.contains("more than 16384 bytes"))
    );
    for place in 0..MOST_WAITING_BYTES / MESSAGE_BYTES {
        let sent = ask(&mut world, "a", "b", &long, &format!("l{place}"));
        assert_eq!(sent.map(|queued| queued.id), Ok(MessageId(place as u64 + 1)));
    }
    let full = ask(&mut world, "a", "b", "y", "c").expect_err("it is full");
    assert_eq!(full, "the inbox of @b is full (16 messages, 262144 bytes); send it later");
    for place in 0..MOST_WAITING {
        ask(&mut world, "b", "a", "x", &format!("s{place}")).expect("it fits");
    }
    assert!(ask(&mut world, "b", "a", "x", "c").is_err_and(|why| why.contains("64 messages")));
    // The same request sends nothing, whatever waits.
    let sent = world.records.len();
    let again = Letter { to: "a".to_owned(), text: "x".to_owned(), reply_to: None };
    let (from, now) = (AgentId::from_text("b"), world.now());
    let (task, id) = (name("b"), "s7".to_owned());
    world.machine.requested(now, Request { from, task, id, wish: Wish::Message(again) });
    world.settle_actions();
    assert_eq!(world.records.len(), sent);
}

#[test]
fn a_person_writes_to_every_agent_and_hears_of_what_cannot_be() {
    let tasks = vec![task("a", &[]), task("b", &["a"]), task("c", &[])];
    let mut world = world(tasks, hangs, Reach::Nobody, 1);
    world.settle();
    let a = AgentId::from_text("a");
    let said = world.say(&a, "use tabs");
    world.settle();
    let queued = Queued { id: MessageId(1), to: a.clone(), before: 0, returned: None };
    assert_eq!(world.answer_outcomes[&said], AnswerOutcome::Queued(queued));
    let unknown = world.say(&AgentId::from_text("b"), "hello");
    let reason = "@b is no agent of this run".to_owned();
    assert_eq!(world.answer_outcomes[&unknown], AnswerOutcome::NotSent(reason));
    // What waits is returned with the end of its recipient.
    assert!(world.cancel(&CancelTarget::Agent(a.clone())));
    world.settle();
    let ended = world.say(&a, "hello");
    assert!(matches!(&world.answer_outcomes[&ended], AnswerOutcome::NotSent(why)
        if why.starts_with("@a has ended") || why.starts_with("@a is about to end")));
    world.check_messages();
}

#[test]
fn a_message_that_was_left_is_recorded_and_returned_if_nobody_reads_it() {
    for (to, returns) in [("a", false), ("gone", true)] {
        let mut world = world(vec![task("a", &[])], hangs, Reach::Nobody, 1);
        world.settle();
        let agent = AgentId::from_text(to);
        let said = Said { agent: agent.clone(), text: "hello".to_owned(), now: false };
        let answer = say(&said, "one", "a person".to_owned());
        for _ in 0..2 {
            // Left twice, it counts once.
            world.answers = vec![answer.clone()];
            world.kill_process();
            world.settle();
        }
        let count = |kind: &str| world.records.iter().filter(|it| it.event.kind() == kind).count();
        assert_eq!((count("message.sent"), count("message.returned")), (1, usize::from(returns)));
        assert_eq!(world.state.messages().waiting_for(&agent).len(), usize::from(!returns));
    }
}

/// Agents that write to each other, with children, and read before they act.
fn writers(world: &World, id: &AgentId) -> Vec<Step> {
    let depth = id.as_str().matches('/').count();
    let hash = blake3::hash(format!("{id} {}", world.settings.workflow).as_bytes());
    let mut rng = fastrand::Rng::with_seed(u64::from_le_bytes(
        hash.as_bytes()[..8].try_into().expect("eight bytes"),
    ));
    let mut steps = Vec::new();
    for _ in 0..rng.usize(1..5) {
        steps.push(match rng.u32(..8) {
            0 if depth == 0 => Step::Delegate(2),
            1 => Step::Ask,
            2 => Step::Crash,
            _ => Step::Write,
        });
    }
    steps.push(match rng.u32(..8) {
        0 => Step::Fail,
        _ => Step::Answer,
    });
    steps
}

/// Plays a run in which agents and people write, processes die, and parts are cancelled.
fn play(seed: u64) -> World {
    let checked = |mut task: TaskSpec| {
        let work = CheckWork::Agent { agent: name("worker"), prompt: "is it good?".to_owned() };
        let check = Check { work, timeout: None };
        task.acceptance = Acceptance { checks: vec![check], ..Acceptance::default() };
        task
    };
    let tasks = vec![task("a", &[]), task("b", &[]), checked(task("c", &[])), task("d", &["a"])];
    let mut world = world(tasks, writers, Reach::Run, seed);
    world.settings.workflow = seed.to_string();
    world.settings.attended = true;
    world.kill_process();
    world.play_through(|world, drawn| {
        let speaks = (3..=5).contains(&drawn);
        if speaks && let Some(agent) = world.any_agent() {
            world.say(&agent, "go on");
        }
        speaks
    })
}

/// Plays so many runs.
fn each_is_read_or_returned(seeds: std::ops::Range<u64>) {
    let mut seen = [0_usize; 3];
    for seed in seeds {
        let world = play(seed);
        world.check_messages();
        for record in &world.records {
            match record.event {
                Event::MessageSent(_) => seen[0] += 1,
                Event::MessageDelivered(_) => seen[1] += 1,
                Event::MessageReturned(_) => seen[2] += 1,
                _ => {}
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 100), "nothing is tried: {seen:?}");
}

#[test]
fn whatever_happens_each_message_is_read_once_or_returned_once() {
    each_is_read_or_returned(0..300);
}

#[test]
#[ignore = "takes two minutes"]
fn whatever_happens_each_message_is_read_once_or_returned_once_in_10_000_runs() {
    each_is_read_or_returned(0..10_000);
}
