//! Decides the next actions of a run, from its state, its plan and the data that is open now.
//!
//! Pure: no clock, no mailbox, no disk. The Supervisor reports events to it and performs the
//! actions; a forecast (`resume --explain`) uses the same machine and only simulates the actions.
//! So each rule of the plan exists once, as a function that a table test can call.
//!
//! # Desks
//!
//! Each rule of the plan has a desk: a struct with private fields in the file of the rule. A rule reads everything,
//! changes the data of its own desk alone, and posts decisions (`desk`, `decision`). To change the data of another
//! desk it posts a decision that this one carries out; to ask for them it calls a method of the owner that takes
//! `&self`. An input is given to one desk, or to some in the order that stands here. Then the machine carries out
//! what was posted, in the order in which it was posted and each with all that follows from it, until nothing is left,
//! and decides about what was touched.
//! A new desk is a file, and a line of the table below.
//!
//! - `agents`: how agents start, crash and end; `children`: the deadline of a child, and its schema; `background`:
//!   children that no parent waits for;
//! - `tasks`: which task becomes ready, starts, is skipped or cancelled; `fan_out`: the instances of a task;
//! - `attempts`: whether the answer of an attempt is accepted, and how the attempt ends;
//! - `evaluating`: the templates that are evaluated outside of a machine; `values`: what they may name;
//! - `scarce`: who has slots and locks; `sharing`: how many children are left to whom;
//! - `stopping`: what still starts after a failure, a timeout or a cancellation;
//! - `limits`: time limits, and the deadlines of agents that must end;
//! - `pauses`: interruption, a full disk, the end of the run; `quotas`: providers that take no calls;
//! - `purse`: what calls of models may cost; `scope_pauses`: the parts of the run that a person paused;
//! - `questions`: what waits for people, and which answer counts; `hooks`: the hooks of the run and its states;
//! - `messages`: which messages agents get, and which are returned;
//! - `notices`: who is told of which state of the run, and when again;
//! - `growth`: the tasks that agents propose, and `unasked`: how many of them.
//!
//! Beside the desks:
//!
//! - [`forecast`]: the same decisions, with simulated actions;
//! - [`evaluation`]: what is evaluated, and the results; [`scope`]: values and templates of tasks; `items`: those of a
//!   fan-out;
//! - `carrying`: the order in which decisions are made and carried out;
//! - [`lines`]: who stands in which line, for those who have only the records;
//! - `facts`: what all rules ask of the records and the plan; `start`: what a machine begins with;
//! - `validity`: whether a result from before still holds; [`reopening`]: the first records of a run opened again;
//! - `request`: what agents ask of their run, and the replies; `action`: what goes out;
//! - `agenda`, `slots`, `locks`, `turns`, `shares`, `timers`: data structures.
//!
//! The work per input depends only on what the input touches: the end of a task leads to its
//! dependants, the end of an agent to its parent and children. Only an event that stops the whole
//! run leads to every task.

mod action;
mod agenda;
mod agents;
mod attempts;
mod background;
mod carrying;
mod children;
mod decision;
mod desk;
mod errand;
mod evaluating;
pub mod evaluation;
mod facts;
mod fan_out;
pub mod forecast;
mod growth;
mod hooks;
mod items;
mod limits;
pub mod lines;
mod locks;
pub mod messages;
mod notices;
mod pauses;
pub mod purse;
mod questions;
mod quotas;
pub mod reopening;
mod request;
mod scarce;
pub mod scope;
pub mod scope_pauses;
mod shares;
mod sharing;
mod slots;
mod start;
mod stopping;
mod tasks;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
mod unasked;
mod validity;
mod values;

use std::time::Duration;

use ahash::HashSet;

pub use self::action::CancelTarget;
pub use self::action::{Action, Finish, Haste, Made};
use self::agenda::Agenda;
use self::agents::Agents;
use self::attempts::Attempts;
use self::background::Background;
use self::children::Children;
use self::decision::Decision;
pub use self::errand::Errand;
use self::evaluating::Evaluating;
use self::evaluation::Evaluated;
use self::fan_out::FanOuts;
use self::growth::Growth;
use self::hooks::Hooks;
use self::messages::Messages;
pub use self::notices::NotSent;
use self::notices::Notices;
use self::pauses::Pauses;
use self::purse::Purse;
use self::questions::Questions;
use self::quotas::Quotas;
pub use self::request::{
    Allowance, Ask, Asks, ChildLook, ChildReply, ChildResult, ChildStop, ChildWait, Delegation,
    Kind, LAST_OUTPUT_TOKENS, Leave, Letter, ListAgents, Listed, Proposal, Purpose, Refused, Reply,
    Request, Reservation, Seen, SlotBack, Waited, Wish,
};
use self::scarce::Scarce;
use self::scope_pauses::ScopePauses;
use self::sharing::Sharing;
pub use self::start::GivenUp;
pub use self::start::{Now, Settings, Start, UnfinishedAgent};
use self::stopping::Stopping;
use self::tasks::Tasks;
use self::timers::Timers;
use self::values::Values;
use crate::event::{Event, PauseCause, SharedRecord};
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::output::Output;
use crate::plan::Plan;
use crate::run_state::RunState;
use crate::spec::hooks::HookFinished;
use crate::template::Known;
use crate::turn::question::PersonsAnswer;

desk::desks! {
    (settings: Settings, start: Start)
    facts {
        /// The moment of the input that is handled.
        now: Now = Now::default(),
        /// The moment of the latest record, from which the run's clock continues.
        recorded_at: Duration = Duration::ZERO,
        /// The tasks that need a decision.
        agenda: Agenda = Agenda::new(&settings.plan, &start.state),
        /// The tasks with a change on its way to the journal, by place in the plan.
        proposed: HashSet<usize> = HashSet::default(),
        /// The fold of the run's records so far.
        state: RunState = start.state,
        settings: Settings = settings,
    }
    desks {
        agents: Agents = Agents::new(start.unfinished),
        attempts: Attempts = Attempts::new(start.seed),
        background: Background = Background::default(),
        children: Children = Children::default(),
        evaluating: Evaluating = Evaluating::default(),
        fan_outs: FanOuts = FanOuts::default(),
        growth: Growth = Growth::default(),
        hooks: Hooks = Hooks::default(),
        messages: Messages = Messages::default(),
        notices: Notices = Notices::default(),
        pauses: Pauses = Pauses::default(),
        purse: Purse = Purse::default(),
        questions: Questions = Questions::default(),
        quotas: Quotas = Quotas::default(),
        scarce: Scarce = Scarce::new(&settings.limits),
        scope_pauses: ScopePauses = ScopePauses::default(),
        sharing: Sharing = Sharing::new(settings.limits.max_descendants),
        stopping: Stopping = Stopping::default(),
        tasks: Tasks = Tasks::default(),
        /// The desk of `limits`.
        timers: Timers = Timers::default(),
        values: Values = Values::new(settings.inputs.clone(), &start.outputs),
    }
}

/// The state machine that makes the decisions of one run.
#[derive(Clone, Debug)]
pub struct RunMachine {
    facts: Facts,
    out: desk::Out,
    /// The answers that were left for this process, until it begins.
    left_answers: Vec<PersonsAnswer>,
    /// The reason why the run is cancelled when this process begins, if it is.
    left_cancel: Option<String>,
    left_given_up: Option<GivenUp>,
}

impl RunMachine {
    /// Makes the machine of a run. [`begin`](Self::begin) must be its first input.
    #[must_use]
    pub fn new(settings: Settings, mut start: Start) -> Self {
        Self {
            left_answers: std::mem::take(&mut start.answers),
            left_cancel: start.cancelled.take(),
            left_given_up: start.given_up.take(),
            facts: Facts::new(settings, start),
            out: desk::Out::default(),
        }
    }

    /// Returns the fold of the run's records so far.
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.facts.state
    }

    /// Returns the tasks with their dependencies.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.facts.settings.plan
    }

    /// Takes the next action to perform. Returns `None` if there is nothing to do before the next
    /// input.
    pub fn next_action(&mut self) -> Option<Action> {
        self.out.actions.pop_front()
    }

    /// Returns the moment at which [`wake`](Self::wake) must be called, if a timer is set.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        self.facts.timers.next()
    }

    /// Starts a new run, or resumes one from the end of its records. This is the first input.
    pub fn begin(&mut self, now: Now) {
        self.facts.now = now;
        self.facts.recorded_at = now.since;
        self.purse().take_up();
        let written = self.plan().tasks().len();
        self.agents().take_up();
        self.values().take_up();
        self.tasks().take_up(0);
        self.carry_out_all();
        self.fan_outs().take_up();
        self.carry_out_all();
        // The instances of what had fanned out are in the plan behind the tasks that were written.
        self.tasks().take_up(written);
        self.sharing().take_up();
        self.scarce().take_up();
        self.stopping().take_up(written);
        self.carry_out_all();
        // Stops come before resumed attempts: an agent that must end must not get an actor first.
        self.stopping().fail_as_before();
        let cancel = self.left_cancel.take();
        self.out.decided.extend(cancel.map(|why| Decision::Cancel(CancelTarget::Run, why)));
        self.out.decided.extend(self.left_given_up.take().map(Decision::GiveUp));
        self.carry_out_all();
        self.timers().start_limits();
        self.carry_out_all();
        self.agents().resume_agents();
        self.carry_out_all();
        for answer in std::mem::take(&mut self.left_answers) {
            self.take_answer(None, answer);
        }
        self.questions().resume();
        self.messages().take_up();
        self.background().take_up();
        self.notices().take_up();
        self.hooks().take_up();
        self.decide();
    }

    /// Takes in durable records, in order. Skips records that it has taken in before.
    pub fn committed(&mut self, now: Now, records: &[SharedRecord]) {
        self.facts.now = now;
        for record in records {
            if record.seq <= self.facts.state.last_seq() {
                continue;
            }
            if let Err(error) = self.take_in(record) {
                return self.pauses().finish(Finish::Broken(error));
            }
        }
        self.decide();
    }

    /// Takes in the request of an agent, or the same request again. [`Action::Reply`] replies to it.
    pub fn requested(&mut self, now: Now, request: Request) {
        self.facts.now = now;
        self.wished(request);
        self.decide();
    }

    /// Takes in a person's answer to a question. [`Action::TellAnswerer`] with this `request` says
    /// what became of it.
    pub fn person_answered(&mut self, now: Now, request: Option<u64>, answer: PersonsAnswer) {
        self.facts.now = now;
        self.take_answer(request, answer);
        self.decide();
    }

    /// Takes in that a notification command has ended.
    pub fn notified(&mut self, now: Now) {
        self.facts.now = now;
        self.questions().notification_ended();
        self.decide();
    }

    /// Takes in what became of an attempt to send a notice.
    pub fn notice_sent(&mut self, now: Now, id: &str, sent: Result<(), NotSent>) {
        self.facts.now = now;
        self.notices().sent(id, sent);
        self.decide();
    }

    /// Takes in the end of a hook that the performer ran.
    pub fn hook_ended(&mut self, now: Now, finished: HookFinished) {
        self.facts.now = now;
        self.hooks().finished(finished);
        self.decide();
    }

    /// Takes in the result of a check of a task's output: its value for templates with the output
    /// as it is recorded, or the failure if it is not what the task requires.
    pub fn output_checked(
        &mut self,
        now: Now,
        task: &Name,
        checked: Result<(Known, Output), Failure>,
    ) {
        self.facts.now = now;
        self.attempts().checked(task, checked);
        self.decide();
    }

    /// Takes in the result of [`Action::Evaluate`], or the failure of the task if it has none.
    pub fn evaluated(
        &mut self,
        now: Now,
        task: &Name,
        number: u64,
        result: Result<Evaluated, Failure>,
    ) {
        self.facts.now = now;
        self.evaluating().take(task, number, result);
        self.decide();
    }

    /// Takes in whether the answer of a child fits the schema that its parent wants of it.
    pub fn answer_compared(&mut self, now: Now, child: &AgentId, fits: Result<(), Failure>) {
        self.facts.now = now;
        self.children().compared(child, fits);
        self.decide();
    }

    /// Takes in that the records of an agent were folded, so its actor can be started.
    pub fn agent_folded(&mut self, now: Now, agent: &AgentId) {
        self.facts.now = now;
        self.agents().folded(agent);
        self.decide();
    }

    /// Takes in that the actor of an agent has ended. An error means that it crashed or could not
    /// be started.
    pub fn agent_gone(&mut self, now: Now, agent: &AgentId, error: Option<String>) {
        self.facts.now = now;
        self.agents().gone(agent, error);
        self.decide();
    }

    /// Cancels the run, a task, or an agent with all agents that work for it. Returns false if
    /// there is no such target; a target that has ended stays as it is.
    pub fn cancel(&mut self, now: Now, target: &CancelTarget, reason: &str) -> bool {
        self.facts.now = now;
        let found = self.stopping().cancel(target, reason);
        self.decide();
        found
    }

    /// Stops the run so that it can be resumed.
    pub fn interrupt(&mut self, now: Now, reason: String) {
        self.facts.now = now;
        self.pauses().interrupt(reason, PauseCause::Interrupted, Haste::WithinGrace);
        self.decide();
    }

    /// Takes in that the disk has no space for new work.
    pub fn disk_full(&mut self, now: Now) {
        self.facts.now = now;
        self.pauses().disk_full();
        self.decide();
    }

    /// Takes in that the disk has space again.
    pub fn disk_has_space(&mut self, now: Now) {
        self.facts.now = now;
        self.pauses().disk_has_space();
        self.decide();
    }

    /// Fires the timers whose moment has come.
    pub fn wake(&mut self, now: Now) {
        self.facts.now = now;
        while let Some(timer) = self.timers().pop_due() {
            self.fired(timer);
            self.carry_out_all();
        }
        self.decide();
    }

    /// Applies a record and performs its immediate consequences.
    fn take_in(&mut self, record: &SharedRecord) -> Result<(), String> {
        let place = record.task.as_ref().filter(|_| record.agent.is_none());
        let place = place.and_then(|task| self.facts.settings.plan.place(task));
        let before = place.map(|place| self.facts.standing(place));
        let taken = self.facts.taken_by(record.agent.as_ref());
        self.facts.state.apply(record).map_err(|error| error.to_string())?;
        self.facts.recorded_at = self.facts.now.since;
        if let (Some(place), Some(before)) = (place, before) {
            // An answer is no change of the task: the change follows from it.
            if !matches!(record.event, Event::ApprovalAnswered(_)) {
                self.facts.proposed.remove(&place);
            }
            self.facts.agenda.changed(
                &self.facts.settings.plan,
                place,
                before,
                self.facts.standing(place),
            );
            self.tasks().changed(place, &record.event);
        }
        if let Some((agent, taken)) = record.agent.as_ref().zip(taken) {
            self.purse().settled(agent, &taken, &record.event);
        }
        match (&record.agent, &record.event) {
            (Some(agent), Event::AgentSpawned(spawned)) => {
                self.purse().spawned(spawned.budget.is_some());
                self.scarce().child_is_recorded(agent);
                self.agents().spawned(agent, record);
            }
            (Some(agent), Event::AgentRestarted(restarted)) => match &restarted.feedback {
                Some(_) => self.agents().round_begins(agent, restarted.asked.as_ref()),
                None => {
                    self.purse().gone(agent, false);
                    self.agents().restarted(agent, restarted.restart);
                }
            },
            (Some(agent), Event::AgentEnded(_)) => {
                self.purse().gone(agent, true);
                self.messages().agent_ended(agent);
                self.background().agent_ended(agent);
                self.agents().ended(agent);
            }
            (_, Event::MessageSent(sent)) => {
                self.messages().sent(sent);
                self.background().sent(sent);
            }
            (_, Event::MessageReturned(returned)) => self.messages().returned(returned),
            (None, Event::BudgetExceeded(exceeded)) => self.purse().exceeded(exceeded),
            (None, Event::BudgetWarned(warned)) => self.purse().warned(warned),
            (None, Event::BudgetChanged(_)) => self.purse().changed(),
            (None, Event::ScopePaused(_) | Event::ScopeUnpaused(_)) => {
                self.scope_pauses().changed();
            }
            (_, Event::ApprovalAsked(asked)) => self.questions().is_asked(asked),
            (_, Event::ApprovalAnswered(answer)) => self.questions().is_answered(record, answer),
            (None, Event::RunCompleted(completed)) => {
                self.pauses().finish(Finish::Completed(Box::new(completed.clone())));
            }
            (None, Event::RunPaused(paused)) => match paused.cause {
                PauseCause::Interrupted | PauseCause::Failure | PauseCause::Person => {
                    self.pauses().finish(Finish::Paused(paused.clone()));
                }
                PauseCause::DiskFull | PauseCause::Quota => self.timers().stop_limits(),
            },
            (None, Event::RunOpened(_)) => self.pauses().opened(),
            (None, Event::GatewayParked(parked)) => self.quotas().exhausted(parked),
            (None, Event::GatewayResumed(_)) => self.quotas().reset(),
            (None, Event::HookStarted(started)) => self.hooks().started(started.hook),
            (None, Event::HookFinished(_)) => self.hooks().ended(),
            (None, Event::PlanExtended(extended)) => self.growth().extended(extended),
            _ => {}
        }
        self.notices().taken_in(record);
        self.hooks().taken_in(record);
        self.carry_out_all();
        Ok(())
    }
}
