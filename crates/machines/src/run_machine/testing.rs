//! A simulated world for the run machine: agents with scripts, a journal, a clock, and a seed that
//! decides what happens next.
//!
//! It has no runtime and no disk, so that thousands of runs with failures, crashes of agents and of
//! the process, cancels and limits take only seconds. Every record is checked when it is made.

mod background;
mod calls;
mod messages;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use self::calls::Call;
pub(super) use self::calls::{Bills, Ledger};
use super::evaluation::Evaluation;
use super::{
    Action, Ask, Asks, CancelTarget, ChildReply, Delegation, Finish, GivenUp, NotSent, Now,
    Proposal, Purpose, Refused, Reply, Request, RunMachine, Settings, SlotBack, Start,
    UnfinishedAgent,
};
use crate::event::{
    Accepted, Draft, Event, PauseCause, PlannedTask, Record, RunCreated, SharedRecord,
};
use crate::failure::{Failure, FailureKind};
use crate::id::{AgentId, CallKey, Name, RunId};
use crate::message::{Json, Usage};
use crate::output::Output;
use crate::plan::{Plan, Standing, TaskState};
use crate::run_machine::reopening::Reopening;
use crate::run_state::{AgentStatus, Retry, RunState, TaskStatus};
use crate::schema::Schema;
use crate::spec::acceptance::Acceptance;
use crate::spec::hooks::{Hook, HookFinished};
use crate::spec::{Join, Limits, OutputFormat, TaskSpec, Work};
use crate::template::Known;
use crate::turn::question::{AnswerOutcome, ApprovalAsked, ApprovalKind, PersonsAnswer};
use crate::turn::{AgentEnded, Cause, CheckPlace, Outcome};

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Makes a task of an agent after these dependencies.
pub(super) fn task(task: &str, depends_on: &[&str]) -> TaskSpec {
    let work = Work::Agent { agent: name("worker"), prompt: task.to_owned() };
    let depends_on = depends_on.iter().map(|name| self::name(name)).collect();
    TaskSpec { depends_on, ..TaskSpec::new(name(task), work) }
}

/// A step of an agent's script; the last step ends the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It calls its model.
    Call,
    /// It delegates to this many children at once and waits for them.
    Delegate(u32),
    /// It delegates to this many children, which work in the background.
    Background(u32),
    /// It waits for children in the background, for all of them or for the first.
    Wait,
    /// It asks a person and waits for the answer.
    Ask,
    /// It writes to some agent.
    Write,
    /// It proposes the tasks of [`proposed_by`].
    Propose,
    /// It ends with an output.
    Answer,
    /// It ends with a failure of a kind that is retried.
    Fail,
    /// It fails also after the cause is mended.
    FailForGood,
    /// A check of it does not pass.
    Refute,
    /// The agent of a check gives no verdict in its first answer, and passes in its second.
    Mumble,
    /// It crashes the first time it reaches this step.
    Crash,
    /// It does nothing until it is asked to end.
    Hang,
    /// It does nothing, even when it is asked to end: it must be killed.
    Stuck,
}

/// Returns the script of an agent, by its id.
pub(super) type Script = fn(&World, &AgentId) -> Vec<Step>;

/// An actor of the world.
#[derive(Clone, Debug)]
struct Actor {
    task: Name,
    steps: VecDeque<Step>,
    /// The calls whose children have not answered.
    waits: Vec<CallKey>,
    /// The question whose answer it waits for.
    asks: Option<String>,
    /// The proposal whose answer it waits for.
    proposes: Option<CallKey>,
    /// The message whose reply it waits for, with the recipient.
    writes: Option<(String, String)>,
    /// True while it waits for children in the background.
    waits_for_background: bool,
    /// Whether it may end with its answer, once it has asked; false until the reply.
    may_leave: Option<bool>,
    /// True from the last answer of its children until it has its slot again.
    returning: bool,
    has_slot: bool,
    required_outcome: Option<Outcome>,
    /// True if its end is on its way to the journal.
    ending: bool,
    /// The failure for which it must end, because a budget is used up; true if it had its last reply.
    over_budget: Option<(Failure, bool)>,
}

/// An event that will happen, in an order that the seed decides.
#[derive(Clone, Debug)]
enum Pending {
    /// An actor does its next step.
    Step(AgentId),
    Folded(AgentId),
    Checked(Name, Output),
    /// Templates of a task are evaluated.
    Evaluated(Box<Evaluation>),
    /// The answer of a child is compared with the schema that it must fit.
    Compared(AgentId, Output, Json),
    Notified,
    Gone(AgentId, Option<String>),
    /// The end of an agent without an actor is recorded.
    End(AgentId, Outcome),
    /// A hook of the run ends; true if it was told to.
    Hooked(Hook, bool),
    /// An attempt to send a notice ends.
    Sent(String),
    /// A call of a model ends; true if it was refused.
    Called(AgentId, bool),
}

/// A run in a simulated world.
#[derive(Clone)]
pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) machine: RunMachine,
    pub(super) records: Vec<SharedRecord>,
    pub(super) state: RunState,
    /// Appends under way: one queue for the supervisor, under the empty name, and one for each
    /// agent.
    appends: BTreeMap<String, VecDeque<Vec<Draft>>>,
    pending: Vec<Pending>,
    actors: BTreeMap<AgentId, Actor>,
    /// Number of script steps of each agent that are not repeated after a restart.
    done: HashMap<AgentId, usize>,
    pub(super) rng: fastrand::Rng,
    pub(super) now: Duration,
    script: Script,
    pub(super) finish: Option<Finish>,
    /// The most agents with a slot at any one time, and the most children.
    pub(super) most: (usize, usize),
    /// The order in which agents were spawned.
    pub(super) spawned: Vec<AgentId>,
    epoch: u64,
    /// The answers that are left for the next process.
    pub(super) answers: Vec<PersonsAnswer>,
    /// What became of the answers, by the number of the request.
    pub(super) answer_outcomes: BTreeMap<u64, AnswerOutcome>,
    /// True if a person answered or cancelled something while the run was pausing.
    is_late: bool,
    /// Number of answers given so far.
    pub(super) given: u64,
    /// True if the cause of all failures is mended.
    pub(super) is_healed: bool,
    /// The hooks that were run, in order, by all processes.
    pub(super) hooks_run: Vec<Hook>,
    /// The hooks that were told to end while they were at work.
    pub(super) hooks_ended: Vec<Hook>,
    /// The hooks that fail.
    pub(super) failing_hooks: Vec<Hook>,
    /// The ids of the notices that were sent, in order, with the number of the opening; also those of attempts
    /// that failed.
    pub(super) notices_sent: Vec<(u64, String)>,
    /// The number of attempts to send a notice that fail from now on.
    pub(super) failing_notices: u32,
    /// True if no attempt to send a notice comes to an end.
    pub(super) is_receiver_silent: bool,
    /// True if no person is asked about proposals.
    pub(super) unasked: bool,
    /// The failures of children that their parents were told, in order.
    pub(super) reported_failures: Vec<(AgentId, FailureKind)>,
    /// The schema that the answer of the child with this number must fit, if there is one.
    pub(super) wanted: Option<fn(u32) -> Option<Json>>,
    /// The reason for which later processes cancel the run as they begin.
    pub(super) cancel_next: Option<String>,
    /// What later processes do not try again as they begin.
    pub(super) give_up_next: Option<GivenUp>,
    /// True if the answers of agents follow from their prompts.
    pub(super) mirrors: bool,
    /// Number of records at the end of each batch.
    pub(super) batches: Vec<usize>,
    /// The rules by which a provider bills, if agents call models.
    pub(super) ledger: Option<Ledger>,
    /// What the provider has billed.
    pub(super) bills: Bills,
    /// The messages of agents and people.
    pub(super) mail: messages::Mail,
    /// The request whose reply is kept, by its id, and not given to an actor.
    asked: Option<(String, Option<Reply>)>,
    /// The calls of actors.
    calls: BTreeMap<AgentId, Call>,
    /// Number of requests that each agent has announced.
    attempts: BTreeMap<AgentId, u32>,
    /// The tasks that were open when a failure first kept others from starting.
    open_at_failure: Option<BTreeSet<Name>>,
}

impl World {
    pub(super) fn new(tasks: Vec<TaskSpec>, limits: Limits, script: Script, seed: u64) -> Self {
        let plan = Plan::new(tasks).expect("a plan");
        let settings = Settings {
            budget: None,
            run: RunId::from(uuid::Uuid::now_v7()),
            workflow: "test".to_owned(),
            inputs: Map::new(),
            plan,
            limits,
            agents: BTreeMap::new(),
            models: BTreeMap::new(),
            tools: BTreeMap::new(),
            env: BTreeMap::new(),
            results: "/run/results".into(),
            hooks: Default::default(),
            notices: Default::default(),
            ask_timeout: None,
            pid: 1,
            grows: true,
            attended: false,
        };
        let mut world = Self {
            machine: RunMachine::new(settings.clone(), Start::default()),
            settings,
            records: Vec::new(),
            state: RunState::default(),
            appends: BTreeMap::new(),
            pending: Vec::new(),
            actors: BTreeMap::new(),
            done: HashMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            script,
            finish: None,
            most: (0, 0),
            spawned: Vec::new(),
            epoch: 1,
            answers: Vec::new(),
            answer_outcomes: BTreeMap::new(),
            is_late: false,
            given: 0,
            is_healed: false,
            hooks_run: Vec::new(),
            hooks_ended: Vec::new(),
            failing_hooks: Vec::new(),
            notices_sent: Vec::new(),
            failing_notices: 0,
            is_receiver_silent: false,
            unasked: false,
            reported_failures: Vec::new(),
            wanted: None,
            cancel_next: None,
            give_up_next: None,
            mirrors: false,
            batches: Vec::new(),
            ledger: None,
            bills: Bills::new(),
            mail: messages::Mail::default(),
            asked: None,
            calls: BTreeMap::new(),
            attempts: BTreeMap::new(),
            open_at_failure: None,
        };
        let planned = world.settings.plan.tasks().iter().map(PlannedTask::from);
        let created = RunCreated {
            run: world.settings.run,
            workflow: "test".to_owned(),
            program: String::new(),
            file: Default::default(),
            config: Default::default(),
            files: BTreeMap::new(),
            config_hash: String::new(),
            profile: None,
            plan: None,
            proposed: Vec::new(),
            inputs: Json::encode(&serde_json::json!({})),
            settings: BTreeMap::new(),
            overrides: BTreeMap::new(),
            forked: None,
            keep_going: false,
            strict: false,
            earlier: Default::default(),
            tasks: planned.collect(),
        };
        world.commit(vec![Draft::run(created)]);
        world.open(&Reopening::AsRecorded);
        world
    }

    /// Returns the start of a machine, from the records alone.
    pub(super) fn start_of(&self) -> Start {
        let first = |id: &AgentId| {
            let of_agent = |record: &&SharedRecord| record.agent.as_ref() == Some(id);
            self.records.iter().find(of_agent).map_or(0, |record| record.seq)
        };
        let open = self.state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
        let unfinished = open.map(|(id, _)| {
            let waits = self
                .actors
                .get(id)
                .is_some_and(|actor| !actor.waits.is_empty() || actor.waits_for_background);
            (id.clone(), UnfinishedAgent { first: first(id), waits })
        });
        let unfinished = unfinished.collect();
        let outputs = self.state.tasks().filter(|(_, task)| task.state.is_end());
        let outputs = outputs.filter_map(|(name, task)| {
            let text = &task.output.as_ref()?.text;
            let value = match task.instances.is_empty() {
                true => Value::from(text.clone()),
                false => serde_json::from_str(text).expect("a list"),
            };
            Some((name.to_string(), value))
        });
        let (state, outputs) = (self.state.clone(), outputs.collect());
        Start {
            state,
            unfinished,
            outputs,
            answers: self.answers.clone(),
            cancelled: self.cancel_next.clone(),
            given_up: self.give_up_next.clone(),
            seed: self.records.len() as u64,
        }
    }

    /// Opens the run with a new process: it makes a new machine from the records alone.
    fn open(&mut self, reopening: &Reopening) {
        self.commit(reopening.drafts(&self.state, self.epoch));
        let start = self.start_of();
        self.actors.clear();
        self.calls.clear();
        self.pending.clear();
        self.appends.clear();
        self.finish = None;
        self.answers.clear();
        self.is_late = false;
        self.machine = RunMachine::new(self.settings.clone(), start);
        let now = self.now();
        self.machine.begin(now);
        self.perform();
    }

    /// Kills the process: everything that is not in the journal is lost.
    pub(super) fn kill_process(&mut self) {
        self.epoch += 1;
        self.now += Duration::from_secs(1);
        self.open(&Reopening::AsRecorded);
    }

    /// Resumes the run in a new process, with the tasks that failed.
    pub(super) fn retry(&mut self, named: &[&str]) -> Retry {
        let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
        let retry = self.state.retry(&named).expect("they failed");
        self.epoch += 1;
        self.open(&Reopening::Retrying(retry.clone()));
        retry
    }

    /// Resumes the run in a new process that accepts the configuration which it has.
    pub(super) fn accept(&mut self) {
        let created = self.state.created().expect("it was created").clone();
        let RunCreated { config, files, config_hash, inputs, settings, tasks, .. } = created;
        let accepted = Accepted { config, files, config_hash, inputs, settings, tasks };
        self.epoch += 1;
        self.open(&Reopening::Accepting(Box::new(accepted)));
    }

    /// Returns the world of the same run whose journal was cut after this many records, resumed by
    /// a new process.
    pub(super) fn cut_after(&self, count: usize, seed: u64) -> Self {
        let tasks = self.settings.plan.tasks();
        let written = tasks.iter().filter(|task| task.name.of_instance().is_none());
        let mut world =
            Self::new(written.cloned().collect(), self.settings.limits, self.script, seed);
        world.settings.run = self.settings.run;
        world.mirrors = self.mirrors;
        (world.records, world.batches) = (Vec::new(), Vec::new());
        (world.state, world.open_at_failure) = (RunState::default(), None);
        for record in &self.records[..count] {
            world.state.apply(record).expect("it was recorded");
            world.note_failure(&record.event);
            world.records.push(record.clone());
        }
        world.now = self.now;
        world.epoch = world.state.epoch();
        if world.state.completed().is_none() {
            world.kill_process();
        }
        world
    }

    pub(super) fn now(&self) -> Now {
        let wall_ms = i64::try_from(self.now.as_millis()).expect("a short run");
        Now { since: self.now, wall_ms }
    }

    /// Lets one event happen: now and then a person answers. Returns false if nothing can happen any
    /// more.
    pub(super) fn step(&mut self) -> bool {
        let asked = self.open_questions();
        if self.finish.is_none() && !asked.is_empty() && self.rng.u32(..8) == 0 {
            let id = asked[self.rng.usize(..asked.len())].clone();
            let allowed = self.rng.u32(..4) > 0;
            self.answer(&id, allowed);
            return true;
        }
        self.step_without_people()
    }

    /// Lets one event happen that is no answer of a person.
    pub(super) fn step_without_people(&mut self) -> bool {
        if self.finish.is_some() {
            return false;
        }
        let lines: Vec<String> = self.appends.keys().cloned().collect();
        let choices = lines.len() + self.pending.len();
        if choices == 0 {
            return self.advance();
        }
        // Now and then time passes although an event could happen. A kill takes effect without such
        // a wait.
        let is_kill = |pending: &Pending| matches!(pending, Pending::Gone(..));
        let may_wait = !self.pending.iter().any(is_kill) && self.machine.next_wake().is_some();
        if self.rng.u32(..20) == 0 && may_wait {
            return self.advance();
        }
        let choice = self.rng.usize(..choices);
        match lines.get(choice) {
            Some(line) => self.append(line),
            None => {
                let pending = self.pending.swap_remove(choice - lines.len());
                self.happen(pending);
            }
        }
        self.perform();
        true
    }

    /// Lets everything happen that needs neither a person nor time.
    pub(super) fn settle(&mut self) {
        while self.finish.is_none() && !(self.appends.is_empty() && self.pending.is_empty()) {
            let line = self.appends.keys().next().cloned();
            match (line, self.pending.is_empty()) {
                (Some(line), _) => self.append(&line),
                (None, _) => {
                    let pending = self.pending.swap_remove(0);
                    self.happen(pending);
                }
            }
            self.perform();
        }
    }

    /// Plays the run to its end, whatever happens: processes die and are interrupted, and parts are cancelled. `also`
    /// may do something else at a drawn number, and returns false if it does not.
    pub(super) fn play_through(mut self, mut also: impl FnMut(&mut Self, u32) -> bool) -> Self {
        for _ in 0..50_000 {
            if self.finish.is_some() {
                match self.finish {
                    Some(Finish::Completed(_)) => return self,
                    _ => self.kill_process(),
                }
            }
            match self.rng.u32(..60) {
                0 => self.kill_process(),
                1 => self.interrupt(),
                2 if self.rng.u32(..4) == 0 => {
                    if let Some(agent) = self.any_agent() {
                        self.cancel(&CancelTarget::Agent(agent));
                    }
                }
                drawn => {
                    if !also(&mut self, drawn) {
                        self.step();
                    }
                }
            }
        }
        panic!("the run does not end:\n{}", self.story());
    }

    /// Draws an agent, if there is one.
    pub(super) fn any_agent(&mut self) -> Option<AgentId> {
        let agents: Vec<_> = self.state.agents().keys().cloned().collect();
        agents.get(self.rng.usize(..agents.len().max(1))).cloned()
    }

    /// Lets time pass up to a moment, and everything happen that it leads to.
    pub(super) fn wait_until(&mut self, moment: Duration) {
        while self.finish.is_none() && self.machine.next_wake().is_some_and(|at| at <= moment) {
            self.advance();
            self.settle();
        }
        self.now = self.now.max(moment);
    }

    /// Lets an agent that does nothing answer, with what follows. Returns false if it waits for something.
    pub(super) fn release(&mut self, agent: &AgentId) -> bool {
        self.goes_on(agent, [Step::Answer].into())
    }

    /// Lets an agent that does nothing ask a person, so that it gives its slot back and keeps all else. Returns false
    /// if it waits for something.
    pub(super) fn gives_slot_back(&mut self, agent: &AgentId) -> bool {
        self.goes_on(agent, [Step::Ask, Step::Hang].into())
    }

    /// Lets every agent that begins from now on keep its slot.
    pub(super) fn keeps_slots(&mut self) {
        self.script = |_, _| vec![Step::Hang];
    }

    /// Returns true if somebody stands in line for a slot of whom no record tells: an agent that wants its slot
    /// back, or a child that has not begun.
    pub(super) fn has_hidden_lines(&self) -> bool {
        let waits = |id: &AgentId| self.has_hidden_calls(id);
        self.actors.iter().any(|(id, actor)| actor.returning || waits(id))
    }

    /// Returns true if an agent waits for a child that has not begun. No record of this world tells of its calls.
    pub(super) fn has_hidden_calls(&self, agent: &AgentId) -> bool {
        let begun = |call: &CallKey| self.state.child_of_call(call).is_some();
        self.actors.get(agent).is_some_and(|actor| !actor.waits.iter().all(begun))
    }

    fn goes_on(&mut self, agent: &AgentId, steps: VecDeque<Step>) -> bool {
        let Some(actor) = self.actors.get_mut(agent) else { return false };
        let is_idle = actor.waits.is_empty() && actor.asks.is_none() && actor.has_slot;
        if !is_idle || actor.steps.front() != Some(&Step::Hang) {
            return false;
        }
        actor.steps = steps;
        self.pending.push(Pending::Step(agent.clone()));
        self.settle();
        true
    }

    /// Lets up to `count` events happen.
    pub(super) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Lets time pass until the next timer.
    fn advance(&mut self) -> bool {
        let Some(at) = self.machine.next_wake() else { return false };
        self.now = self.now.max(at);
        let now = self.now();
        self.machine.wake(now);
        self.perform();
        true
    }

    /// Plays the run to its end.
    pub(super) fn play(&mut self) -> Finish {
        for _ in 0..200_000 {
            if let Some(finish) = self.finish.clone() {
                return finish;
            }
            assert!(
                self.step(),
                "nothing can happen, and the run has not ended:\n{}",
                self.story()
            );
        }
        panic!("the run does not end:\n{}", self.story());
    }

    /// Plays the run to its end, or to the pause in which it waits for people: nobody answers.
    pub(super) fn play_without_people(&mut self) -> Finish {
        for _ in 0..200_000 {
            if let Some(finish) = self.finish.clone() {
                return finish;
            }
            assert!(self.step_without_people(), "nothing can happen:\n{}", self.story());
        }
        panic!("the run does not end:\n{}", self.story());
    }

    /// Returns the ids of the open questions.
    pub(super) fn open_questions(&self) -> Vec<String> {
        self.state.questions().by_id().map(|(id, _)| id.to_owned()).collect()
    }

    /// Makes an answer of a person, each with a name of its own.
    pub(super) fn make_answer(&mut self, id: &str, allowed: bool) -> PersonsAnswer {
        self.given += 1;
        let by = format!("person {}", self.given);
        PersonsAnswer { id: id.to_owned(), allowed, text: None, by }
    }

    /// Answers a question. Returns the number of the request.
    pub(super) fn answer(&mut self, id: &str, allowed: bool) -> u64 {
        self.is_late |= self.machine.facts.pauses.is_interrupted();
        let answer = self.make_answer(id, allowed);
        self.hand_in(answer)
    }

    /// Gives the run what a person gives. Returns the number of the request.
    pub(super) fn give(&mut self, answer: PersonsAnswer) -> u64 {
        self.given += 1;
        self.hand_in(answer)
    }

    fn hand_in(&mut self, answer: PersonsAnswer) -> u64 {
        let now = self.now();
        self.machine.person_answered(now, Some(self.given), answer);
        self.perform();
        self.given
    }

    /// Plays the run to its end. Whenever it pauses for people, a new process takes up an answer to
    /// one of the open questions.
    pub(super) fn play_with_people(&mut self) -> Finish {
        for _ in 0..1_000 {
            let finish = self.play();
            let Finish::Paused(paused) = &finish else { return finish };
            if paused.cause != PauseCause::Person {
                return finish;
            }
            if !self.is_late {
                self.check_that_only_people_are_left();
            }
            let asked = self.open_questions();
            if let Some(id) = asked.get(self.rng.usize(..asked.len().max(1))).cloned() {
                let allowed = self.rng.bool();
                let answer = self.make_answer(&id, allowed);
                self.answers.push(answer);
            }
            self.kill_process();
        }
        panic!("the run asks without end:\n{}", self.story());
    }

    /// Checks that a run that has paused for people had nothing else to do: no task could begin, and
    /// no agent could act.
    fn check_that_only_people_are_left(&self) {
        let story = || self.story();
        for (name, task) in self.state.tasks() {
            let fits = match task.state {
                TaskState::Ready => false,
                TaskState::Waiting => task.question.is_some(),
                TaskState::Running => task.open_agents > 0,
                TaskState::Pending
                | TaskState::Completed
                | TaskState::Failed
                | TaskState::Skipped
                | TaskState::Cancelled
                | TaskState::Reused => true,
            };
            assert!(fits, "{name} is {:?}\n{}", task.state, story());
        }
        let open = self.state.agents().iter().filter(|(_, agent)| agent.outcome.is_none());
        for (id, agent) in open {
            let is_paused = self.state.budgets().all_exceeded().next().is_some();
            let waits = !agent.asked.is_empty() || agent.open > 1 || is_paused;
            assert!(waits, "{id} could act\n{}", story());
        }
    }

    pub(super) fn cancel(&mut self, target: &CancelTarget) -> bool {
        self.is_late |= self.machine.facts.pauses.is_interrupted();
        let now = self.now();
        let found = self.machine.cancel(now, target, "enough");
        self.perform();
        found
    }

    pub(super) fn fill_disk(&mut self) {
        let now = self.now();
        self.machine.disk_full(now);
        self.perform();
    }

    pub(super) fn interrupt(&mut self) {
        let now = self.now();
        self.machine.interrupt(now, "a signal".to_owned());
        self.perform();
    }

    /// Returns the records as text, one per line.
    pub(super) fn story(&self) -> String {
        let line = |record: &SharedRecord| {
            let place = record.agent.as_ref().map(ToString::to_string);
            let place = place.or(record.task.as_ref().map(ToString::to_string));
            format!("{} {} {}", record.seq, record.event.kind(), place.unwrap_or_default())
        };
        self.records.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn states(&self) -> Vec<(String, TaskState)> {
        self.state.tasks().map(|(name, task)| (name.to_string(), task.state)).collect()
    }

    fn append(&mut self, line: &str) {
        let Some(drafts) = self.appends.get_mut(line).and_then(VecDeque::pop_front) else { return };
        if self.appends[line].is_empty() {
            self.appends.remove(line);
        }
        let records = self.commit(drafts);
        for record in &records {
            if let (Some(agent), Event::ModelRequested(_)) = (&record.agent, &record.event) {
                self.announced(agent);
            }
            if let (Some(agent), Event::AgentEnded(_)) = (&record.agent, &record.event) {
                self.actors.remove(agent);
                // Whoever was about to record its end finds it recorded.
                let ends =
                    |pending: &Pending| matches!(pending, Pending::End(id, _) if id == agent);
                self.pending.retain(|pending| !is_of(pending, agent) && !ends(pending));
            }
        }
        let now = self.now();
        self.machine.committed(now, &records);
    }

    fn queue(&mut self, line: &str, drafts: Vec<Draft>) {
        self.appends.entry(line.to_owned()).or_default().push_back(drafts);
    }

    /// Makes records durable and checks them.
    fn commit(&mut self, drafts: Vec<Draft>) -> Vec<SharedRecord> {
        let mut records = Vec::new();
        for Draft { task, agent, event } in drafts {
            self.check(task.as_ref(), agent.as_ref(), &event);
            let seq = self.records.len() as u64 + 1;
            let (epoch, ts_ms) = (self.epoch, self.now().wall_ms);
            let record = Arc::new(Record { seq, epoch, ts_ms, task, agent, event });
            if let Err(error) = self.state.apply(&record) {
                panic!("{error}: {:?} {:?}\n{}", record.agent, record.event, self.story());
            }
            if let Event::PlanExtended(extended) = &record.event {
                let tasks = proposed_by(&extended.by);
                self.settings.plan.extend(tasks).expect("they were checked");
            }
            self.note_failure(&record.event);
            self.records.push(record.clone());
            records.push(record);
        }
        self.batches.push(self.records.len());
        records
    }

    /// Notes what was open at the first failure that keeps others from starting.
    fn note_failure(&mut self, event: &Event) {
        let limits = &self.settings.limits;
        match event {
            Event::RunOpened(_) if self.state.stopped_since(limits.fail_fast).is_none() => {
                self.open_at_failure = None;
            }
            Event::TaskFailed(_)
                if self.open_at_failure.is_none()
                    && self.state.stopped_since(limits.fail_fast).is_some() =>
            {
                let open = self.state.tasks().filter(|(_, task)| !task.state.is_end());
                self.open_at_failure = Some(open.map(|(name, _)| name.clone()).collect());
            }
            _ => {}
        }
    }

    /// Returns true if docs/graphs.md lets a task start although another one failed: it always runs,
    /// a join before it accepts failures, or such a join after it still needs it.
    fn may_start_after_failure(&self, name: &Name) -> bool {
        let Some(open) = &self.open_at_failure else { return true };
        let plan = &self.settings.plan;
        let place = plan.place(name).expect("a task of the plan");
        let is_open = |at: usize| {
            let task = &plan.tasks()[at].name;
            let was_added = self.state.task(task).is_some_and(|task| task.added_seq > 0);
            open.contains(task) || was_added
        };
        let accepts = |at: usize| {
            let join = plan.tasks()[at].effective_join();
            join.accepts_failure() && !plan.dependencies(at).is_empty() && is_open(at)
        };
        let reach = |next: &dyn Fn(usize) -> Vec<usize>| {
            let (mut found, mut left) = (BTreeSet::from([place]), vec![place]);
            while let Some(at) = left.pop() {
                left.extend(next(at).into_iter().filter(|at| found.insert(*at)));
            }
            found
        };
        let before = reach(&|at| plan.dependencies(at).to_vec());
        let after = reach(&|at| {
            let open = plan.dependents(at).iter().filter(|at| is_open(**at));
            open.copied().collect()
        });
        let wants = |at: usize| plan.tasks()[at].effective_join().wanted().is_some();
        plan.tasks()[place].always
            || before.iter().any(|at| accepts(*at))
            || after.iter().any(|at| *at != place && accepts(*at) && wants(*at))
    }

    /// Returns the task as it is written, also of an instance.
    fn spec(&self, name: &Name) -> &TaskSpec {
        let written = name.as_str().split('[').next().unwrap_or_default();
        self.settings.plan.task(written).expect("a task of the plan")
    }

    /// Checks that the last answer of a task has passed every check.
    fn check_accepted(&self, name: &Name, status: &TaskStatus) {
        if status.agent.is_none() {
            // The outputs of instances are accepted one by one.
            return;
        }
        let rules = &self.spec(name).acceptance;
        let main = status.agent.as_ref().expect("its agent");
        let round = self.state.agents()[main].round;
        for index in 0..u32::try_from(rules.checks.len()).expect("few checks") {
            let check = self.state.check(main, CheckPlace { round, index });
            let outcome = check.and_then(|(_, check)| check.outcome.as_ref());
            let has_passed = matches!(outcome, Some(Outcome::Completed { output })
                if output.text == "pass");
            assert!(has_passed, "{name} is accepted unchecked\n{}", self.story());
        }
    }

    /// Checks the rules of the records with which an answer is judged or its agent asked again.
    fn check_round(
        &self,
        name: &Name,
        (status, agent): (&TaskStatus, Option<&AgentStatus>),
        event: &Event,
    ) {
        let rules = &self.spec(name).acceptance;
        match event {
            Event::AgentSpawned(spawned) if spawned.check.is_some() => {
                let place = spawned.check.expect("a check");
                let main = spawned.parent.as_ref().expect("what it judges");
                let twice = self.state.check(main, place);
                assert!(twice.is_none(), "{name}: {place:?} again\n{}", self.story());
            }
            Event::AgentRestarted(restarted)
                if restarted.feedback.is_some() && agent.is_some_and(|a| a.check.is_some()) =>
            {
                let agent = agent.expect("the agent of a check");
                let is_unclear =
                    matches!(agent.verdict(), Some(crate::run_state::Verdict::Unclear(_)));
                assert!(is_unclear && agent.round == 1, "{name} asks again\n{}", self.story());
            }
            Event::AgentRestarted(restarted)
                if restarted.feedback.is_some() && agent.is_some_and(AgentStatus::is_delegated) =>
            {
                let agent = agent.expect("a child");
                assert!(agent.has_subtree_ended() && agent.round <= 2, "{name} mends too often");
                return;
            }
            Event::AgentRestarted(restarted) if restarted.feedback.is_some() => {
                let cause = restarted.feedback.as_ref().expect("feedback").cause;
                let mended = status.rounds.iter().filter(|cause| **cause != Cause::Until).count();
                let may_mend = cause == Cause::Until || mended < rules.retries as usize;
                assert!(may_mend, "{name} mends too often\n{}", self.story());
                let most = rules.repeat.as_ref().map_or(u32::MAX, |repeat| repeat.max_iterations);
                assert!(status.round() < most, "{name}: too many rounds\n{}", self.story());
            }
            _ => return,
        }
        assert_eq!(status.state, TaskState::Running, "{name}\n{}", self.story());
        let at_work = self.actors.values().filter(|actor| actor.task == *name).count();
        assert_eq!((status.open_agents, at_work), (0, 0), "{name}\n{}", self.story());
    }

    /// Checks the rules that every record must keep, independently of the machine's code.
    fn check(&self, task: Option<&Name>, agent: Option<&AgentId>, event: &Event) {
        if let Event::ApprovalAnswered(answer) = event {
            let known = self.state.questions().answer(&answer.id);
            assert_eq!(known, None, "answered twice\n{}", self.story());
        }
        let Some((name, status)) = task.and_then(|name| Some((name, self.state.task(name)?)))
        else {
            return;
        };
        if agent.is_some() {
            let agent = agent.and_then(|id| self.state.agents().get(id));
            return self.check_round(name, (status, agent), event);
        }
        let at_work = || self.actors.iter().filter(|(_, actor)| actor.task == *name).count();
        match event {
            Event::TaskStarted(started) => {
                self.check_start(name);
                // An agent that continues is open already, unless it ended before the restart.
                let goes_on = started.agent.as_ref().filter(|id| status.agent.as_ref() == Some(id));
                let is_open = |id: &AgentId| self.state.agents()[id].outcome.is_none();
                let own = u32::from(goes_on.is_some_and(is_open));
                assert_eq!(
                    status.open_agents,
                    own,
                    "{name} starts beside others\n{}",
                    self.story()
                );
                assert_eq!(at_work(), 0, "{name} starts beside actors\n{}", self.story());
            }
            Event::TaskSkipped(skipped) if skipped.reason.starts_with("not started") => {
                let is_new = matches!(status.state, TaskState::Pending | TaskState::Ready);
                let may = name.of_instance().is_none() && is_new;
                let may = may && !self.may_start_after_failure(name);
                assert!(may, "{name} was not started\n{}", self.story());
            }
            Event::TaskCompleted(_)
            | Event::TaskFailed(_)
            | Event::TaskCancelled(_)
            | Event::TaskSkipped(_)
            | Event::TaskRetrying(_)
            | Event::TaskReused(_) => {
                assert_eq!(status.open_agents, 0, "{name} ends beside agents\n{}", self.story());
                assert_eq!(at_work(), 0, "{name} ends beside actors\n{}", self.story());
                if let Event::TaskCompleted(_) = event {
                    self.check_accepted(name, status);
                }
            }
            _ => {}
        }
    }

    /// Checks that a task may start now: by its join, its locks and the limit of its fan-out.
    fn check_start(&self, name: &Name) {
        let of = name.of_instance().unwrap_or(name.as_str());
        let spec = self.settings.plan.task(of).expect("a task of the plan");
        let standings = spec.depends_on.iter().map(|name| self.state.standing(name));
        let standings: Vec<_> = standings.collect();
        let count = |wanted: &[Standing]| standings.iter().filter(|s| wanted.contains(s)).count();
        let (open, done) = (count(&[Standing::Open]), count(&[Standing::Done]));
        let good = done + count(&[Standing::Passed]);
        let may = match (spec.always, spec.join) {
            (true, _) | (_, Join::AllDone) => open == 0,
            (_, Join::AllSuccess) => good == standings.len(),
            (_, Join::NoneFailed) => open == 0 && count(&[Standing::Failed]) == 0,
            (_, Join::AnySuccess) => standings.is_empty() || done > 0,
            (_, Join::AtLeast(wanted)) => standings.is_empty() || done >= wanted as usize,
        };
        assert!(may, "{name} started: {standings:?}\n{}", self.story());
        if spec.fan_out.is_some() && name.of_instance().is_none() {
            return;
        }
        let running = self.state.tasks().filter(|(other, status)| {
            *other != name && status.state == TaskState::Running && status.agent.is_some()
        });
        let mut beside = 0;
        for (other, _) in running {
            let of_other = other.of_instance().unwrap_or(other.as_str());
            beside += usize::from(of_other == of && other.of_instance().is_some());
            let locks = &self.settings.plan.task(of_other).expect("a task of the plan").locks;
            let shared = locks.iter().any(|lock| spec.locks.contains(lock));
            assert!(!shared, "{name} starts beside {other}\n{}", self.story());
        }
        if name.of_instance().is_some() {
            assert_eq!(
                self.state.task(&self::name(of)).map(|task| task.state),
                Some(TaskState::Running)
            );
            let most = spec.fan_out.as_ref().and_then(|fan_out| fan_out.max_concurrency);
            assert!(most.is_none_or(|most| beside < most), "{name}\n{}", self.story());
        }
    }

    fn perform(&mut self) {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Record(drafts) => self.queue("", drafts),
                Action::Spawn { agent, .. } => self.start(agent, true),
                Action::Fold(agent) => self.pending.push(Pending::Folded(agent)),
                Action::Start(agent) => {
                    let has_slot = self.machine.facts.scarce.holds(&agent);
                    self.start(agent, has_slot);
                }
                Action::End { agent, outcome } => self.tell_end(&agent, outcome),
                Action::Kill(agent) => {
                    self.pending.retain(|pending| !is_of(pending, &agent));
                    self.pending.push(Pending::Gone(agent, Some("killed".to_owned())));
                }
                Action::EndIdle(ends) => {
                    let ends = ends.into_iter().map(|(id, outcome)| Pending::End(id, outcome));
                    self.pending.extend(ends);
                }
                Action::Interrupt(agent, _) => {
                    if self.actors.get(&agent).is_some_and(|actor| !actor.ending) {
                        self.pending.retain(|pending| !is_of(pending, &agent));
                        self.pending.push(Pending::Gone(agent, None));
                    }
                }
                Action::Reply { to, id, reply: Reply::Child(answer) } => {
                    self.answered(&to, &id, answer);
                }
                Action::Reply { to, id, reply: Reply::Tasks(answer) } => {
                    self.proposal_answered(&to, &id, &answer);
                }
                Action::Reply { to, id, reply: Reply::Person(_) } => {
                    self.person_answered(&to, &id);
                }
                Action::Reply { to: agent, reply: Reply::Slot(()), .. } => {
                    let is_gone =
                        |pending: &Pending| matches!(pending, Pending::Gone(id, _) if *id == agent);
                    if self.pending.iter().any(is_gone) {
                        continue;
                    }
                    if let Some(actor) = self.actors.get_mut(&agent) {
                        actor.has_slot = true;
                        actor.returning = false;
                        self.pending.push(Pending::Step(agent));
                    }
                }
                Action::Define(_) | Action::LimitSpending => {}
                Action::Deliver(message) => self.gets_mail(&message),
                Action::Reply { to, id, reply: Reply::Message(answer) } => {
                    self.wrote(&to, &id, answer);
                }
                Action::Reply {
                    reply: Reply::Agents(_) | Reply::Look(_) | Reply::Stop(_), ..
                } => {}
                Action::Reply { to, id, reply: Reply::Wait(waited) } => {
                    match self.asked.as_mut().filter(|(asked, _)| *asked == id) {
                        Some((_, reply)) => *reply = Some(Reply::Wait(waited)),
                        None => self.waited(&to, waited),
                    }
                }
                Action::Reply { to, reply: Reply::Leave(()), .. } => self.may_leave(&to),
                Action::Reply { to, reply: Reply::Money(allowance), .. } => {
                    self.allowed(&to, allowance);
                }
                Action::TellAnswerer { request, outcome } => {
                    let earlier = self.answer_outcomes.insert(request, outcome);
                    assert_eq!(earlier, None, "{request} was told twice\n{}", self.story());
                }
                Action::Notify { .. } => self.pending.push(Pending::Notified),
                Action::Evaluate(evaluation) => self.pending.push(Pending::Evaluated(evaluation)),
                Action::CheckOutput { task, output, .. } => {
                    self.pending.push(Pending::Checked(task, output.output()));
                }
                Action::CompareAnswer { agent, output, schema } => {
                    self.pending.push(Pending::Compared(agent, output, schema));
                }
                Action::RunHook { hook, .. } => {
                    self.hooks_run.push(hook);
                    self.pending.push(Pending::Hooked(hook, false));
                }
                // One that has begun ends with an error; before, there is nothing to end.
                Action::EndHook => {
                    for pending in &mut self.pending {
                        if let Pending::Hooked(hook, must_end) = pending
                            && !std::mem::replace(must_end, true)
                        {
                            self.hooks_ended.push(*hook);
                        }
                    }
                }
                Action::SendNotice(notice) => {
                    self.notices_sent.push((self.epoch, notice.id.clone()));
                    self.pending
                        .extend((!self.is_receiver_silent).then_some(Pending::Sent(notice.id)));
                }
                Action::HoldSteps | Action::AllowSteps => {}
                Action::Finish(finish) => self.finish = Some(finish),
            }
        }
        for (agent, call) in &self.calls {
            let holds = self.machine.facts.scarce.holds(agent);
            if let Some(actor) = self.actors.get_mut(agent).filter(|_| call.is_waiting()) {
                actor.has_slot = holds;
            }
        }
        let with_slot = |actor: &&Actor| actor.has_slot && !actor.ending;
        let all = self.actors.values().filter(with_slot).count();
        let is_child = |id: &AgentId| self.state.agents()[id].is_delegated();
        let children =
            self.actors.iter().filter(|(id, actor)| with_slot(actor) && is_child(id)).count();
        self.most = (self.most.0.max(all), self.most.1.max(children));
        let limits = &self.settings.limits;
        assert!(all <= limits.max_concurrency, "too many at work\n{}", self.story());
        assert!(children <= limits.max_children, "too many children\n{}", self.story());
    }

    fn start(&mut self, agent: AgentId, has_slot: bool) {
        let task = self.state.agents()[&agent].task.clone();
        let script = (self.script)(self, &agent);
        let done = self.done.get(&agent).copied().unwrap_or(0);
        let steps: VecDeque<Step> = script.into_iter().skip(done).collect();
        // Only an agent that waits for children may begin without a slot.
        let waits_first = matches!(
            steps.front(),
            Some(Step::Delegate(_) | Step::Background(_) | Step::Wait | Step::Ask)
        );
        assert!(has_slot || waits_first, "{agent} works without a slot\n{}", self.story());
        let (waits, asks, proposes, required_outcome) = (Vec::new(), None, None, None);
        let (returning, ending) = (false, false);
        let actor = Actor {
            task,
            steps,
            waits,
            asks,
            proposes,
            writes: None,
            waits_for_background: false,
            may_leave: None,
            returning,
            has_slot,
            required_outcome,
            ending,
            over_budget: None,
        };
        self.actors.insert(agent.clone(), actor);
        self.starts_with_mail(&agent);
        self.spawned.push(agent.clone());
        self.pending.push(Pending::Step(agent));
    }

    fn request(&mut self, from: &AgentId, wish: impl Asks) {
        let task = self.state.agents()[from].task.clone();
        let (from, id, now) = (from.clone(), String::new(), self.now());
        self.machine.requested(now, Request { from, task, id, wish: wish.wish() });
    }

    fn tell_end(&mut self, agent: &AgentId, outcome: Outcome) {
        let Some(actor) = self.actors.get_mut(agent) else { return };
        actor.required_outcome = Some(outcome);
        actor.waits.clear();
        actor.waits_for_background = false;
        (actor.asks, actor.proposes, actor.writes) = (None, None, None);
        self.calls.remove(agent);
        self.pending.retain(|pending| !matches!(pending, Pending::Called(id, _) if id == agent));
        let Some(actor) = self.actors.get_mut(agent) else { return };
        if actor.steps.front() != Some(&Step::Stuck) && !actor.ending {
            self.pending.push(Pending::Step(agent.clone()));
        }
    }

    fn answered(&mut self, parent: &AgentId, call: &str, answer: Result<ChildReply, Refused>) {
        if let Ok(ChildReply::Ended(child)) = &answer {
            if let Outcome::Failed { failure, .. } = &child.outcome {
                self.reported_failures.push((child.agent.clone(), failure.kind));
            }
            let status = &self.state.agents()[&child.agent];
            assert!(status.has_subtree_ended(), "{} answers early", child.agent);
            let below = self.actors.keys().filter(|id| id.is_within(&child.agent)).count();
            assert_eq!(below, 0, "{} answers before its actors are gone", child.agent);
        }
        let Some(actor) = self.actors.get_mut(parent) else { return };
        let waited = !actor.waits.is_empty();
        actor.waits.retain(|waits| waits.as_str() != call);
        if waited && actor.waits.is_empty() && actor.required_outcome.is_none() {
            actor.returning = true;
            // The answers are recorded before the agent asks for its slot.
            self.pass(parent);
            self.request(parent, SlotBack);
            // It may crash before it has it.
            if self.rng.u32(..10) == 0 {
                self.pending.retain(|pending| !is_of(pending, parent));
                self.pending.push(Pending::Gone(parent.clone(), Some("crashed".to_owned())));
            }
        }
    }

    fn person_answered(&mut self, agent: &AgentId, id: &str) {
        let Some(actor) =
            self.actors.get_mut(agent).filter(|actor| actor.required_outcome.is_none())
        else {
            return;
        };
        if actor.asks.take_if(|asks| asks == id).is_some() {
            actor.returning = true;
            self.pass(agent);
            self.request(agent, SlotBack);
        }
    }

    fn proposal_answered(&mut self, agent: &AgentId, call: &str, answer: &Result<(), Refused>) {
        let plans = self.state.proposed_plans();
        let is_added = plans.iter().filter(|plan| plan.key.as_str() == call).count();
        assert_eq!(is_added, usize::from(answer.is_ok()), "{agent}: {answer:?}\n{}", self.story());
        let Some(actor) =
            self.actors.get_mut(agent).filter(|actor| actor.required_outcome.is_none())
        else {
            return;
        };
        if actor.proposes.take_if(|proposes| proposes.as_str() == call).is_some() {
            self.pass(agent);
            self.pending.push(Pending::Step(agent.clone()));
        }
    }

    fn happen(&mut self, pending: Pending) {
        let now = self.now();
        match pending {
            Pending::Step(agent) => self.act(&agent),
            Pending::Folded(agent) => self.machine.agent_folded(now, &agent),
            Pending::Checked(task, output) => {
                let read = self.machine.plan().task(&task).expect("a task").read(&output.text);
                let read = read.map(|value| (Known::of(&value), output));
                self.machine.output_checked(now, &task, read);
            }
            Pending::Evaluated(evaluation) => {
                let (task, number) = (&evaluation.task, evaluation.number);
                self.machine.evaluated(now, task, number, evaluation.evaluate());
            }
            Pending::Compared(agent, output, schema) => {
                let schema = Some(Schema::new(schema.to_value()).expect("a schema"));
                let rules = Acceptance { schema, ..Acceptance::default() };
                let fits = rules.read(OutputFormat::Json, &output.text).map(drop);
                self.machine.answer_compared(now, &agent, fits);
            }
            Pending::Hooked(hook, must_end) => {
                let fails = must_end || self.failing_hooks.contains(&hook);
                let error = fails.then(|| "exit code 1".to_owned());
                self.machine.hook_ended(now, HookFinished::new(hook, error));
            }
            Pending::Called(agent, is_refused) => self.called(&agent, is_refused),
            Pending::Notified => self.machine.notified(now),
            Pending::Sent(id) => {
                let fails = self.failing_notices > 0;
                self.failing_notices -= u32::from(fails);
                let error = "connection refused".to_owned();
                let sent = if fails { Err(NotSent { error, is_final: false }) } else { Ok(()) };
                self.machine.notice_sent(now, &id, sent);
            }
            Pending::Gone(agent, error) => {
                // Appends that the agent made before are recorded all the same.
                self.actors.remove(&agent);
                self.calls.remove(&agent);
                self.machine.agent_gone(now, &agent, error);
            }
            Pending::End(agent, outcome) => {
                // The agent's own appends are recorded first: its end may be among them.
                if self.appends.contains_key(agent.as_str()) {
                    return self.pending.push(Pending::End(agent, outcome));
                }
                let status = &self.state.agents()[&agent];
                if status.outcome.is_none() {
                    let draft = end(&status.task.clone(), &agent, outcome);
                    self.queue(agent.as_str(), vec![draft]);
                }
            }
        }
    }

    /// Performs an actor's next step.
    fn act(&mut self, agent: &AgentId) {
        let Some(actor) = self.actors.get_mut(agent).filter(|actor| !actor.ending) else { return };
        if let Some(outcome) = actor.required_outcome.clone() {
            if actor.steps.front() != Some(&Step::Stuck) {
                actor.ending = true;
                let draft = end(&actor.task, agent, outcome);
                self.queue(agent.as_str(), vec![draft]);
            }
            return;
        }
        let is_answered = actor.waits.is_empty() && actor.asks.is_none();
        let waits =
            actor.proposes.is_some() || actor.writes.is_some() || actor.waits_for_background;
        if !is_answered || waits || actor.returning {
            return;
        }
        let step = actor.steps.front().copied();
        if messages::is_boundary(step) {
            self.reads(agent, false);
        }
        if self.go_on_calling(agent) || self.hand_over(agent) {
            return;
        }
        let actor = self.actors.get_mut(agent).expect("it acts");
        match step {
            Some(Step::Call) => self.call(agent, Purpose::Turn),
            Some(Step::Wait) => self.waits_for_background(agent),
            Some(step @ (Step::Delegate(count) | Step::Background(count))) => {
                // The step is repeated if the agent resumes before all answers are recorded.
                let depth = self.state.agents()[agent].depth + 1;
                let done = self.done.get(agent).copied().unwrap_or(0);
                for index in 0..count {
                    let call = call_of(agent, done, index);
                    let wanted = self.wanted.as_ref().and_then(|wanted| wanted(index));
                    let actor = self.actors.get_mut(agent).expect("it acts");
                    actor.waits.push(call.clone());
                    actor.has_slot = false;
                    let delegation = Delegation {
                        budget: None,
                        depth,
                        call,
                        agent: name("helper"),
                        prompt: "help".to_owned(),
                        timeout: None,
                        output_schema: wanted,
                        background: step == Step::Background(count),
                        name: None,
                        continues: None,
                    };
                    self.request(agent, delegation);
                }
            }
            Some(Step::Fail | Step::Refute) if self.is_healed => self.end_with_answer(agent),
            Some(Step::Ask) => {
                let done = self.done.get(agent).copied().unwrap_or(0);
                let id = call_of(agent, done, 99).to_string();
                actor.asks = Some(id.clone());
                actor.has_slot = false;
                let asked = ApprovalAsked::new(id, ApprovalKind::Question, "well?");
                self.request(agent, Ask(asked));
            }
            Some(Step::Propose) => {
                let done = self.done.get(agent).copied().unwrap_or(0);
                let call = call_of(agent, done, 98);
                actor.proposes = Some(call.clone());
                let (text, files) = (String::new(), BTreeMap::new());
                let (mut tasks, unasked) = (proposed_by(agent), self.unasked);
                let like = &self.settings.plan.tasks()[0];
                for task in tasks.iter_mut().filter(|_| unasked) {
                    task.acceptance = like.acceptance.clone();
                    task.output = like.output;
                }
                let proposal = Proposal { call, text, tasks, agents: vec![], files, unasked };
                self.request(agent, proposal);
            }
            Some(Step::Write) => self.writes(agent),
            Some(Step::Answer) | None if self.reads(agent, true) => {
                self.pending.push(Pending::Step(agent.clone()));
            }
            Some(Step::Answer) | None if self.asks_to_leave(agent) => {}
            Some(Step::Answer) | None => self.end_with_answer(agent),
            Some(Step::Refute) if self.state.agents()[agent].definition.is_some() => {
                let output = Output::whole("fail\nIt is wrong.");
                self.end_by_itself(agent, Outcome::Completed { output });
            }
            Some(Step::Mumble) if self.gives_no_verdict(agent) => {
                let output = Output::whole("It depends.");
                self.end_by_itself(agent, Outcome::Completed { output });
            }
            Some(Step::Mumble) => self.end_with_answer(agent),
            Some(Step::Refute) => {
                let failure = Failure::new(FailureKind::CommandFailed, "exit code 1");
                let partial = Some(Output::whole("It is wrong."));
                self.end_by_itself(agent, Outcome::Failed { failure, partial });
            }
            Some(Step::Fail | Step::FailForGood) => {
                let failure = Failure::new(FailureKind::Overloaded, "busy");
                self.end_by_itself(agent, Outcome::Failed { failure, partial: None });
            }
            Some(Step::Crash) => {
                self.pass(agent);
                self.pending.retain(|pending| !is_of(pending, agent));
                self.pending.push(Pending::Gone(agent.clone(), Some("crashed".to_owned())));
            }
            Some(Step::Hang | Step::Stuck) => {}
        }
    }

    /// Ends an actor with an answer: a check passes, an output in JSON tells the round.
    fn end_with_answer(&mut self, agent: &AgentId) {
        let status = &self.state.agents()[agent];
        let spec = self.spec(&status.task);
        let text = match (status.check, spec.output) {
            (Some(_), _) => "pass".to_owned(),
            _ if status.wanted.is_some() => format!("{{\"round\":{}}}", status.round),
            (None, OutputFormat::Json) => format!("{{\"round\":{}}}", status.round),
            (None, _) if self.mirrors => self.mirrored(agent),
            (None, _) => "done".to_owned(),
        };
        self.end_by_itself(agent, Outcome::Completed { output: Output::whole(text) });
    }

    /// Returns true if an agent makes a check and was not asked for its verdict again.
    fn gives_no_verdict(&self, agent: &AgentId) -> bool {
        let status = &self.state.agents()[agent];
        status.check.is_some() && status.definition.is_some() && status.round == 1
    }

    /// Returns the answer of an agent that follows from its prompt.
    fn mirrored(&self, agent: &AgentId) -> String {
        let prompt = self.records.iter().find_map(|record| match &record.event {
            Event::AgentSpawned(spawned) if record.agent.as_ref() == Some(agent) => {
                Some(format!("{:?}", spawned.program))
            }
            _ => None,
        });
        let prompt = prompt.unwrap_or_default();
        blake3::hash(prompt.as_bytes()).to_hex()[..8].to_owned()
    }

    fn pass(&mut self, agent: &AgentId) {
        *self.done.entry(agent.clone()).or_default() += 1;
        if let Some(actor) = self.actors.get_mut(agent) {
            actor.steps.pop_front();
        }
    }

    fn end_by_itself(&mut self, agent: &AgentId, outcome: Outcome) {
        let Some(actor) = self.actors.get_mut(agent) else { return };
        actor.ending = true;
        let draft = end(&actor.task, agent, outcome);
        self.queue(agent.as_str(), vec![draft]);
    }
}

/// Returns the tasks that an agent proposes: one that depends on nothing, and one that depends on it and
/// on the task of the agent, unless that is an instance.
fn proposed_by(agent: &AgentId) -> Vec<TaskSpec> {
    let main = agent.as_str().split(['/', '~']).next().unwrap_or_default();
    let first = format!("p-{}", main.replace(['[', ']'], "-"));
    let second = format!("{first}-then");
    let before = if main.contains('[') { vec![&*first] } else { vec![&*first, main] };
    let always = main.len().is_multiple_of(2);
    vec![task(&first, &[]), TaskSpec { join: Join::AllDone, always, ..task(&second, &before) }]
}

fn is_of(pending: &Pending, agent: &AgentId) -> bool {
    matches!(pending, Pending::Step(id) | Pending::Folded(id) | Pending::Gone(id, _) | Pending::Called(id, _)
        if id == agent)
}

fn end(task: &Name, agent: &AgentId, outcome: Outcome) -> Draft {
    Draft::agent(
        task,
        agent,
        AgentEnded {
            outcome,
            turns: 1,
            usage: Usage::default(),
            shortfalls: Default::default(),
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        },
    )
}

/// Returns the key of a delegation: the same one for the same step of the same agent.
fn call_of(agent: &AgentId, step: usize, index: u32) -> CallKey {
    let run = RunId::parse("00000000-0000-7000-8000-000000000000").expect("an id");
    let turn = u32::try_from(step).expect("few steps");
    CallKey::derive(run, agent, turn, index, "delegate", "{}")
}
