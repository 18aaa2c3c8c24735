//! Runs whose records contradict each other: they end, or are refused, and never wait for ever.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Draft, Event, Record, SharedRecord};
use crate::id::AgentId;
use crate::message::Usage;
use crate::output::Output;
use crate::run_machine::reopening::Reopening;
use crate::run_machine::testing::World;
use crate::run_machine::tests::{by_hash, keep_going, random_tasks};
use crate::run_machine::{Action, Finish, Now, RunMachine, Settings, Start, UnfinishedAgent};
use crate::run_state::RunState;
use crate::spec::hooks::HookFinished;
use crate::spec::{Limits, TaskSpec};
use crate::template::Known;
use crate::turn::{AgentEnded, Outcome};

/// The journals that are made to contradict themselves.
const SEEDS: u64 = 3_000;

/// Most events of a run that is played to its end.
const MOST: usize = 20_000;

/// A process that takes up a journal. Its agents answer as soon as they have an actor.
struct Process {
    machine: RunMachine,
    now: Duration,
    finish: Option<Finish>,
}

/// Returns the state that records lead to, or `None` if they are refused.
fn fold(records: &[SharedRecord]) -> Option<RunState> {
    let mut state = RunState::default();
    for (seq, record) in (1..).zip(records) {
        state.apply(&Record { seq, ..Record::clone(record) }).ok()?;
    }
    Some(state)
}

impl Process {
    /// Takes up a run. Returns `None` if its records are refused or say that it has ended.
    fn new(settings: &Settings, records: &[SharedRecord]) -> Option<Self> {
        let mut state = fold(records).filter(|state| state.completed().is_none())?;
        state.created()?;
        let epoch = state.epoch() + 1;
        for draft in Reopening::AsRecorded.drafts(&state, epoch) {
            state.apply(&record(&state, epoch, draft)).ok()?;
        }
        let open = state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
        let unfinished = open.map(|(id, _)| (id.clone(), UnfinishedAgent::default())).collect();
        let start = Start { state, unfinished, ..Start::default() };
        let machine = RunMachine::new(settings.clone(), start);
        let mut process = Self { machine, now: Duration::ZERO, finish: None };
        let now = process.now();
        process.machine.begin(now);
        Some(process)
    }

    fn now(&self) -> Now {
        Now { since: self.now, wall_ms: i64::try_from(self.now.as_millis()).expect("short") }
    }

    /// Plays the run to its end; `None` if it waits for ever.
    fn play(&mut self) -> Option<Finish> {
        for _ in 0..MOST {
            match self.machine.next_action() {
                Some(action) => self.perform(action),
                None if self.finish.is_some() => return self.finish.clone(),
                None => {
                    self.now = self.now.max(self.machine.next_wake()?);
                    let now = self.now();
                    self.machine.wake(now);
                }
            }
        }
        None
    }

    fn commit(&mut self, drafts: Vec<Draft>) {
        let now = self.now();
        for draft in drafts {
            let state = self.machine.state();
            let record = Arc::new(record(state, state.epoch(), draft));
            self.machine.committed(now, &[record]);
        }
    }

    fn end(&mut self, id: &AgentId, outcome: Outcome) {
        let Some(agent) = self.machine.state().agents().get(id) else { return };
        if agent.outcome.is_none() {
            let ended = AgentEnded {
                outcome,
                turns: 1,
                usage: Usage::default(),
                shortfalls: Default::default(),
                run_by_others: Vec::new(),
                run_by_others_incomplete: false,
            };
            self.commit(vec![Draft::agent(&agent.task.clone(), id, ended)]);
        }
    }

    fn perform(&mut self, action: Action) {
        let now = self.now();
        match action {
            Action::Record(drafts) => self.commit(drafts),
            Action::Spawn { agent, .. } | Action::Start(agent) => {
                self.end(&agent, Outcome::Completed { output: Output::whole("[1, 2]") });
            }
            Action::Fold(agent) => self.machine.agent_folded(now, &agent),
            Action::End { agent, outcome } => self.end(&agent, outcome),
            Action::EndIdle(ends) => {
                ends.into_iter().for_each(|(agent, outcome)| self.end(&agent, outcome));
            }
            Action::Kill(agent) | Action::Interrupt(agent, _) => {
                self.machine.agent_gone(now, &agent, None);
            }
            Action::Evaluate(wanted) => {
                self.machine.evaluated(now, &wanted.task, wanted.number, wanted.evaluate());
            }
            Action::CheckOutput { task, output, .. } => {
                let output = output.output();
                let spec = self.machine.plan().task(&task).expect("a task").clone();
                let read = spec.read(&output.text).map(|value| (Known::of(&value), output));
                self.machine.output_checked(now, &task, read);
            }
            Action::CompareAnswer { agent, .. } => {
                self.machine.answer_compared(now, &agent, Ok(()));
            }
            Action::RunHook { hook, .. } => {
                self.machine.hook_ended(now, HookFinished::new(hook, None));
            }
            Action::Notify { .. } => self.machine.notified(now),
            Action::SendNotice(notice) => self.machine.notice_sent(now, &notice.id, Ok(())),
            Action::Finish(finish) => self.finish = Some(finish),
            Action::Reply { .. }
            | Action::Deliver(_)
            | Action::Define(_)
            | Action::LimitSpending
            | Action::EndHook
            | Action::TellAnswerer { .. }
            | Action::HoldSteps
            | Action::AllowSteps => {}
        }
    }
}

fn record(state: &RunState, epoch: u64, draft: Draft) -> Record {
    let Draft { task, agent, event } = draft;
    Record { seq: state.last_seq() + 1, epoch, ts_ms: state.last_ms(), task, agent, event }
}

/// Makes the journal of a run that was killed at some point, from a random graph.
fn journal(seed: u64, rng: &mut fastrand::Rng) -> World {
    let timeless = |task| TaskSpec { timeout: None, ..task };
    let tasks = random_tasks(rng).into_iter().map(timeless).collect();
    let limits = Limits { timeout: None, ..keep_going() };
    let mut world = World::new(tasks, limits, by_hash, seed);
    world.steps(rng.usize(..200));
    world
}

/// Makes one record say what the others deny: it is gone, comes twice or late, or is of another task or agent.
fn contradict(records: &mut Vec<SharedRecord>, rng: &mut fastrand::Rng) {
    let at = rng.usize(1..records.len());
    let other = records[rng.usize(1..records.len())].clone();
    let mut one = Record::clone(&records[at]);
    match rng.u32(..6) {
        0 | 1 => drop(records.remove(at)),
        2 => records.insert(rng.usize(1..records.len()), Arc::new(one)),
        3 => {
            records.remove(at);
            records.insert(rng.usize(1..=records.len()), Arc::new(one));
        }
        4 => {
            one.task = other.task.clone();
            records[at] = Arc::new(one);
        }
        _ => {
            (one.task, one.agent) = (other.task.clone(), other.agent.clone());
            records[at] = Arc::new(one);
        }
    }
}

#[test]
fn records_that_contradict_each_other_are_refused_or_the_run_ends() {
    let (mut refused, mut ended, mut stalled) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let world = journal(seed, &mut rng);
        let mut records = world.records.clone();
        for _ in 0..=rng.u32(..3) {
            // The first two records say that there is a run.
            if records.len() > 2 {
                contradict(&mut records, &mut rng);
            }
        }
        let Some(mut process) = Process::new(&world.settings, &records) else {
            refused += 1;
            continue;
        };
        match process.play() {
            Some(Finish::Broken(reason)) if reason.contains("nothing is at work") => stalled += 1,
            Some(_) => ended += 1,
            None => panic!("seed {seed} waits for ever:\n{}", world.story()),
        }
    }
    // Each of the three happens, or the test would prove nothing.
    let least = SEEDS / 50;
    let all = [refused, ended, stalled];
    assert!(all.iter().all(|count| *count > least), "refused, ended, stalled: {all:?}");
}

#[test]
fn a_run_that_was_only_killed_does_not_stall() {
    for seed in 0..3_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let world = journal(seed, &mut rng);
        let Some(mut process) = Process::new(&world.settings, &world.records) else { continue };
        let finish = process.play();
        assert!(
            matches!(finish, Some(Finish::Completed(_) | Finish::Paused(_))),
            "{seed} {finish:?}"
        );
    }
}

#[test]
fn a_task_at_work_without_an_agent_ends_the_run_in_words() {
    let mut world =
        World::new(vec![crate::run_machine::testing::task("a", &[])], keep_going(), by_hash, 1);
    while !world.records.iter().any(|record| matches!(record.event, Event::AgentSpawned(_))) {
        assert!(world.step(), "it starts");
    }
    let is_spawned = |record: &SharedRecord| matches!(record.event, Event::AgentSpawned(_));
    let mut records = world.records.clone();
    records.retain(|record| !is_spawned(record));
    let mut process = Process::new(&world.settings, &records).expect("it is read");
    let Some(Finish::Broken(reason)) = process.play() else { panic!("it does not end so") };
    assert!(reason.ends_with("this has not ended: task `a`"), "{reason}");
    assert_eq!(process.now, super::STALL_PATIENCE);
}
