//! Counterfactuals of `why` in simulated runs: whoever waits moves when the named cause is taken away, and stays when
//! any other is. They stand here because they need the simulated world of the run machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::run_machine::testing::{Script, Step, World, name, task};
use crate::run_state::{Doing, RunState};
use crate::spec::{Approval, FanOut, Join, Limits, TaskSpec, Work};
use crate::why::{Link, Relation, Subject, Why};

/// The number of graphs.
const GRAPHS: usize = 200;

/// What a test takes away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// An agent at work answers.
    Agent(AgentId),
    /// An agent at work gives its slot back, and keeps all else.
    Slot(AgentId),
    /// A question is answered with yes.
    Question(String),
    /// Time passes, in milliseconds since the Unix epoch.
    Time(i64),
}

/// Agents that begin as the seed says and then do nothing until they are released.
fn script(world: &World, id: &AgentId) -> Vec<Step> {
    let seed: u64 =
        id.as_str().bytes().fold(world.settings.limits.max_instances as u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
    let is_child = id.as_str().contains('/');
    match fastrand::Rng::with_seed(seed).u32(..10) {
        0..2 if !is_child => vec![Step::Delegate(1), Step::Hang],
        2 if !is_child => vec![Step::Delegate(2), Step::Hang],
        3 => vec![Step::Ask, Step::Hang],
        4 if !is_child => vec![Step::Fail],
        5 => vec![Step::Answer],
        _ => vec![Step::Hang],
    }
}

/// Makes a graph with locks, joins, fan-outs, gates and retries.
fn graph(rng: &mut fastrand::Rng) -> Vec<TaskSpec> {
    let mut tasks: Vec<TaskSpec> = Vec::new();
    for at in 0..rng.usize(4..14) {
        let mut before: BTreeSet<usize> = BTreeSet::new();
        for _ in 0..rng.usize(..3).min(at) {
            before.insert(rng.usize(..at));
        }
        let names: Vec<_> = before.iter().map(|at| tasks[*at].name.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let locks = [name("one"), name("two")].into_iter().filter(|_| rng.u32(..3) == 0).collect();
        let joins = [Join::AllSuccess, Join::AllSuccess, Join::AllDone, Join::AnySuccess];
        let fan_out = (rng.u32(..4) == 0).then(|| FanOut {
            list: format!("range({})", rng.u32(1..4)),
            item: "item".to_owned(),
            key: None,
            max_concurrency: Some(rng.usize(1..3)),
            min_success: 0.0,
        });
        let retry = crate::policy::RetryPolicy { max_attempts: 3, ..Default::default() };
        let mut spec = task(&format!("t{at}"), &names);
        spec = TaskSpec { locks, join: joins[rng.usize(..4)], fan_out, retry, ..spec };
        if rng.u32(..7) == 0 {
            let message = "Go on?".to_owned();
            let work = Work::Approval(Approval { message, ..Approval::default() });
            spec = TaskSpec { work, locks: Vec::new(), fan_out: None, ..spec };
        }
        tasks.push(spec);
    }
    tasks
}

/// Makes a run that stands still: nothing happens in it without a person, time, or an agent that is released.
fn settled(seed: u64) -> World {
    settled_with(script, seed)
}

fn settled_with(script: Script, seed: u64) -> World {
    let mut rng = fastrand::Rng::with_seed(seed);
    let limits = Limits {
        fail_fast: false,
        max_concurrency: rng.usize(1..5),
        // Nothing limits the instances; the scripts are made from it.
        max_instances: 1_000 + usize::try_from(seed).expect("small"),
        ..Limits::default()
    };
    let mut world = World::new(graph(&mut rng), limits, script, seed);
    world.settings.attended = true;
    world.machine.facts.settings.attended = true;
    world.settle();
    // Some of it is over already.
    for _ in 0..rng.usize(..5) {
        let agents: Vec<_> = open_agents(&world.state);
        if let Some(agent) = agents.get(rng.usize(..agents.len().max(1))) {
            world.release(agent);
        }
    }
    world
}

fn open_agents(state: &RunState) -> Vec<AgentId> {
    let open = state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
    open.map(|(id, _)| id.clone()).collect()
}

fn why(world: &World) -> Why<'_> {
    Why::of(&world.state, true, world.now().wall_ms)
}

/// Returns everything that has not ended and is held up.
fn subjects(state: &RunState) -> Vec<Subject> {
    let tasks = state.tasks().filter(|(_, task)| !task.state.is_end());
    let tasks = tasks.map(|(name, _)| Subject::Task(name.clone()));
    tasks.chain(open_agents(state).into_iter().map(Subject::Agent)).collect()
}

/// Takes a cause away in a copy of the world. Returns `None` if it cannot be taken away by itself.
fn without(world: &World, causes: &[Cause]) -> Option<World> {
    let mut world = world.clone();
    for cause in causes {
        match cause {
            Cause::Agent(agent) => {
                if !world.release(agent) {
                    return None;
                }
            }
            Cause::Slot(agent) => {
                if !world.gives_slot_back(agent) {
                    return None;
                }
            }
            Cause::Question(id) => {
                world.answer(id, true);
                world.settle();
            }
            Cause::Time(until_ms) => {
                world.wait_until(Duration::from_millis(until_ms.unsigned_abs()));
            }
        }
    }
    Some(world)
}

/// Returns what must be taken away to end a task that works, if that is one thing.
fn ends(world: &World, name: &Name) -> Option<Cause> {
    let task = world.state.task(name)?;
    let question = || world.state.question_of_task(name).map(|question| question.asked.id.clone());
    match task.state {
        TaskState::Waiting => question().map(Cause::Question),
        TaskState::Running => task.agent.clone().map(Cause::Agent),
        _ => None,
    }
}

/// Returns the causes that a link names; `None` if one of them is not at work itself.
fn named(world: &World, causes: &[Link]) -> Option<Vec<Cause>> {
    let first = causes.first()?;
    let task = |name: &Name| ends(world, name);
    let hides = |subject: &Subject| match subject {
        Subject::Agent(id) => world.has_hidden_calls(id),
        Subject::Run | Subject::Task(_) => false,
    };
    let all = |of: &dyn Fn(&Link) -> Option<Cause>| causes.iter().map(of).collect();
    match &first.relation {
        Relation::WaitsForDependency { .. } => all(&|link| match &link.relation {
            Relation::WaitsForDependency { of } => task(of),
            _ => None,
        }),
        Relation::WaitsForInstances { .. } => all(&|link| match &link.relation {
            Relation::WaitsForInstances { next, .. } => task(next),
            _ => None,
        }),
        Relation::WaitsForChild { .. } if hides(&first.subject) => None,
        Relation::WaitsForChild { .. } => all(&|link| match &link.relation {
            Relation::WaitsForChild { child, .. } => Some(Cause::Agent(child.clone())),
            _ => None,
        }),
        Relation::WaitsForJoin { next, .. } => Some(vec![task(next)?]),
        Relation::WaitsForLock { holder, ahead: 0, .. } => Some(vec![task(holder)?]),
        Relation::WaitsForTurn { next, ahead: 0, .. } => Some(vec![task(next)?]),
        Relation::WaitsForSlot { ahead, running, .. } if !world.has_hidden_lines() => {
            let slots: Vec<_> = running.iter().cloned().map(Cause::Slot).collect();
            (slots.len() > *ahead).then(|| slots[..=*ahead].to_vec())
        }
        Relation::WaitsForPerson { id, .. } => Some(vec![Cause::Question(id.clone())]),
        Relation::WaitsForRetry { until_ms, .. } => Some(vec![Cause::Time(*until_ms)]),
        _ => None,
    }
}

/// Returns every cause that could be taken away.
fn all_causes(world: &World) -> Vec<Cause> {
    let agents = open_agents(&world.state).into_iter().map(Cause::Agent);
    let questions = world.open_questions().into_iter().map(Cause::Question);
    agents.chain(questions).collect()
}

/// What a subject waits for, without numbers and without those who only happen to be named first.
#[derive(Debug, PartialEq, Eq)]
enum Wait {
    /// It has not begun what it waits to begin, for a lock if it waits for one, after so many attempts.
    Still(&'static str, Option<Name>, u32),
    Over,
}

fn wait(world: &World, subject: &Subject) -> Wait {
    let Some(first) = why(world).first(subject) else { return Wait::Over };
    // The causes of an attempt are those of its agent.
    if first.subject != *subject {
        return Wait::Over;
    }
    let lock = match &first.relation {
        Relation::WaitsForLock { lock, .. } => Some(lock.clone()),
        _ => None,
    };
    let attempt = match subject {
        Subject::Task(name) => world.state.task(name).map_or(0, |task| task.attempt),
        Subject::Run | Subject::Agent(_) => 0,
    };
    Wait::Still(first.relation.as_str(), lock, attempt)
}

/// Returns true if a cause beside the named ones may end this wait too: another slot, or another one of many.
fn is_alike(world: &World, causes: &[Link], other: &Cause) -> bool {
    let Some(first) = causes.first() else { return true };
    match (&first.relation, other) {
        // Each agent that works has a slot.
        (Relation::WaitsForSlot { .. }, Cause::Agent(_)) => true,
        (Relation::WaitsForJoin { .. }, other) => causes.iter().any(|link| match &link.relation {
            Relation::WaitsForJoin { next, .. } => ends(world, next).as_ref() == Some(other),
            _ => false,
        }),
        (Relation::WaitsForTurn { of, .. }, Cause::Agent(id)) => {
            world.state.agents()[id].task.of_instance() == Some(of.as_str())
        }
        _ => false,
    }
}

/// What was found out so far.
#[derive(Debug, Default)]
struct Checked {
    /// Number of subjects that moved once their named causes were taken away, by relation.
    moved: BTreeMap<&'static str, usize>,
    /// Number of subjects that stayed while one of several named causes was left.
    needed_each: usize,
    /// Number of subjects that stayed when another cause was taken away.
    stayed: usize,
}

/// Takes away what a subject's first link names, then all but one of it, then each thing that it does not name.
fn counterfactual(world: &World, seed: u64, subject: &Subject, checked: &mut Checked) {
    let causes = why(world).causes(subject);
    let Some(first) = causes.first().filter(|first| first.subject == *subject) else { return };
    let Some(named) = named(world, &causes) else { return };
    let before = wait(world, subject);
    let story = |world: &World, what: &str| {
        format!("{seed}: {subject:?} {what}\n{causes:#?}\n{named:?}\n{}", world.story())
    };
    let Some(after) = without(world, &named) else { return };
    *checked.moved.entry(first.relation.as_str()).or_default() += 1;
    assert_ne!(wait(&after, subject), before, "{}", story(&after, "did not move"));
    // Those ahead in a line for slots could give theirs back at once, to the next in the line.
    let mut keeping = world.clone();
    if matches!(first.relation, Relation::WaitsForSlot { .. }) {
        keeping.keeps_slots();
    }
    for left in (0..named.len()).filter(|_| named.len() > 1) {
        let mut some = named.clone();
        some.remove(left);
        let Some(after) = without(&keeping, &some) else { continue };
        checked.needed_each += 1;
        assert_eq!(wait(&after, subject), before, "{}", story(&after, "moved too early"));
    }
    for other in all_causes(world).iter().filter(|other| !named.contains(other)) {
        let is_own =
            matches!((subject, other), (Subject::Agent(id), Cause::Agent(other)) if id == other);
        if is_own || is_alike(world, &causes, other) {
            continue;
        }
        let Some(after) = without(world, std::slice::from_ref(other)) else { continue };
        checked.stayed += 1;
        let what = format!("moved without its cause: {other:?}");
        assert_eq!(wait(&after, subject), before, "{}", story(&after, &what));
    }
}

#[test]
fn what_is_named_is_what_holds_up() {
    let mut checked = Checked::default();
    let worlds =
        (0..).map(|seed| (seed, settled(seed))).filter(|(_, world)| world.finish.is_none());
    for (seed, world) in worlds.take(GRAPHS) {
        for subject in subjects(&world.state) {
            counterfactual(&world, seed, &subject, &mut checked);
        }
    }
    let wanted = [
        "waits_for_dependency",
        "waits_for_join",
        "waits_for_instances",
        "waits_for_lock",
        "waits_for_turn",
        "waits_for_slot",
        "waits_for_child",
        "waits_for_person",
        "waits_for_retry",
    ];
    for relation in wanted {
        let count = checked.moved.get(relation).copied().unwrap_or_default();
        assert!(count >= 8, "{relation}: {checked:?}");
    }
    assert!(checked.needed_each >= 30 && checked.stayed >= 900, "{checked:?}");
}

/// Where no agent has children, nobody is in the line for slots of whom no record tells.
#[test]
fn a_line_for_slots_is_served_in_its_order() {
    let mut checked = Checked::default();
    for seed in 0..GRAPHS as u64 {
        let world = settled_with(|_, _| vec![Step::Hang], seed);
        for subject in subjects(&world.state) {
            let causes = why(&world).causes(&subject);
            let is_slot = |link: &Link| matches!(link.relation, Relation::WaitsForSlot { .. });
            if causes.first().is_some_and(is_slot) {
                counterfactual(&world, seed, &subject, &mut checked);
            }
        }
    }
    assert!(checked.moved["waits_for_slot"] >= 40 && checked.needed_each >= 15, "{checked:?}");
}

/// In every prefix of a journal each open task and agent has a cause, every question is one, every chain ends, and
/// what is named exists.
#[test]
fn every_prefix_has_an_answer() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = Limits { fail_fast: false, max_concurrency: 2, ..Limits::default() };
        let mut world = World::new(graph(&mut rng), limits, script, seed);
        world.steps(rng.usize(50..200));
        let mut state = RunState::default();
        for record in &world.records {
            state.apply(record).expect("a legal record");
            check_answers(&state, record.ts_ms);
        }
    }
}

fn check_answers(state: &RunState, now_ms: i64) {
    for is_live in [true, false] {
        let why = Why::of(state, is_live, now_ms);
        let mut asked: BTreeSet<String> = BTreeSet::new();
        for subject in subjects(state).into_iter().chain([Subject::Run]) {
            let chain = why.chain(&subject);
            assert!(subject == Subject::Run || !chain.steps.is_empty(), "{subject:?}");
            assert_eq!(chain.cycle, None, "{subject:?}");
            for link in
                chain.steps.iter().flat_map(|step| [&step.link].into_iter().chain(&step.others))
            {
                let exists = match link.relation.object() {
                    Some(Subject::Task(name)) => state.task(&name).is_some(),
                    Some(Subject::Agent(id)) => state.agents().contains_key(&id),
                    Some(Subject::Run) | None => true,
                };
                assert!(exists && link.since <= state.last(), "{link:?}");
                if let Relation::WaitsForPerson { id, .. } = &link.relation {
                    asked.insert(id.clone());
                }
            }
        }
        let open: BTreeSet<String> =
            state.questions().by_id().map(|(id, _)| id.to_owned()).collect();
        assert_eq!(asked, open);
    }
    let idle = |doing: &Doing| matches!(doing, Doing::Nothing);
    assert!(open_agents(state).iter().all(|id| !idle(&state.agents()[id].doing)));
}
