//! Decides the next actions of a run, from its state, its plan and the data that is open now.
//!
//! Pure: no clock, no mailbox, no disk. The Supervisor reports events to it and performs the
//! actions; a forecast (`resume --explain`) uses the same machine and only simulates the actions.
//! So each rule of the plan exists once, as a function that a table test can call.
//!
//! - [`forecast`]: the same decisions, with simulated actions;
//! - [`evaluation`]: the templates that are evaluated outside of a machine, and their results;
//!   `evaluating`: those that are asked for;
//! - [`scope`]: values and templates of tasks;
//! - `facts`: what is known of a run, which each rule reads; `start`: what it begins with;
//! - `decision`: what the rules decide, and which rule carries it out: none calls another;
//! - `tasks`: decides which task becomes ready, starts, is skipped or cancelled;
//! - `answers`: whether the answer of an attempt is accepted, or its agent asked again;
//! - `validity`: whether a result from before still holds;
//! - `attempts`: how an attempt ends, and whether another one follows;
//! - `fan_out`: the instances of a task, one for each item of a list; `items`: the list and its keys;
//! - `stopping`: what still starts after a failure, a timeout or a cancellation;
//! - `agents`: delegation, crashes, ends;
//! - `children`: the deadline of a child, and the schema that its answer must fit;
//! - `hooks`: the hooks of the run itself;
//! - `limits`: time limits, and the deadlines of agents that must end;
//! - `pauses`: interruption, a full disk, the end of the run;
//! - `questions`: what waits for people, and which answer counts;
//! - `request`: what agents ask of their run, and the replies;
//! - [`reopening`]: the first records of a run that is opened again;
//! - `restart`: resumes a run from the end of its records;
//! - `shares`: how many children each task may have; `sharing`: how many are left; `claims`: the locks of tasks;
//! - `agenda`, `slots`, `locks`, `turns`, `asking`, `timers`: the data for these decisions.
//!
//! The work per input depends only on what the input touches: the end of a task leads to its
//! dependants, the end of an agent to its parent and children. Only an event that stops the whole
//! run leads to every task.

mod action;
mod agenda;
mod agents;
mod answers;
mod asking;
mod attempts;
mod children;
mod claims;
mod decision;
mod evaluating;
pub(crate) mod evaluation;
mod facts;
mod fan_out;
pub(crate) mod forecast;
mod growth;
mod hooks;
mod items;
mod limits;
mod locks;
mod pauses;
mod questions;
mod quotas;
pub(crate) mod reopening;
mod request;
mod restart;
pub(crate) mod scope;
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

use std::collections::VecDeque;
use std::time::Duration;

pub use self::action::CancelTarget;
pub(crate) use self::action::{Action, Finish, Haste, Made};
use self::decision::Decision;
use self::evaluation::Evaluated;
use self::facts::Facts;
pub(crate) use self::request::{
    Ask, Asks, ChildResult, Delegation, Kind, Proposal, Refused, Reply, Request, SlotBack, Wish,
};
pub use self::start::GivenUp;
pub(crate) use self::start::{Left, Now, Settings, Start};
use crate::event::{Draft, Event, PauseCause, SharedRecord};
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::output::Output;
use crate::plan::{Plan, TaskState};
use crate::run_state::{Reading, RunPhase, RunState};
use crate::spec::hooks::HookFinished;
use crate::template::Known;
use crate::turn::question::PersonsAnswer;

/// The state machine that makes the decisions of one run.
#[derive(Clone, Debug)]
pub struct RunMachine {
    facts: Facts,
    /// The answers that were left for this process, until it begins.
    left_answers: Vec<PersonsAnswer>,
    /// The reason why the run is cancelled when this process begins, if it is.
    left_cancel: Option<String>,
    left_given_up: Option<GivenUp>,
    /// What the rules have decided and is not carried out yet.
    decided: Vec<Decision>,
    actions: VecDeque<Action>,
    chance: fastrand::Rng,
}

impl Facts {
    /// Returns the run's open time at this moment. Unlike the state's reading, it also advances
    /// between records.
    fn open_time(&self) -> Duration {
        let since = match self.state.phase() {
            RunPhase::Open => self.now.since.saturating_sub(self.recorded_at),
            RunPhase::Paused | RunPhase::Completed(_) => Duration::ZERO,
        };
        self.state.reading().since(Reading::default()) + since
    }

    fn name(&self, place: usize) -> &Name {
        &self.settings.plan.tasks()[place].name
    }

    fn task_state(&self, place: usize) -> TaskState {
        self.state.task(self.name(place)).map_or(TaskState::Pending, |status| status.state)
    }

    fn standing(&self, place: usize) -> crate::plan::Standing {
        self.state.standing(self.name(place))
    }
}

impl RunMachine {
    /// Makes the machine of a run. [`begin`](Self::begin) must be its first input.
    #[must_use]
    pub fn new(settings: Settings, start: Start) -> Self {
        let Start { state, left, outputs, answers, cancelled, given_up, seed } = start;
        Self {
            facts: Facts::new(settings, state, left, outputs),
            left_answers: answers,
            left_cancel: cancelled,
            left_given_up: given_up,
            decided: Vec::new(),
            actions: VecDeque::new(),
            chance: fastrand::Rng::with_seed(seed),
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
        self.actions.pop_front()
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
        let written = self.facts.settings.plan.tasks().len();
        self.take_up_written();
        self.expand_as_before();
        self.carry_out_all();
        self.take_up_instances(written);
        // Stops come before resumed attempts: an agent that must end must not get an actor first.
        self.stop_as_before();
        self.carry_out_all();
        self.start_limits();
        self.carry_out_all();
        self.resume_agents();
        self.carry_out_all();
        for answer in std::mem::take(&mut self.left_answers) {
            self.answered_by(None, answer);
        }
        self.resume_questions();
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
                return self.finish(Finish::Broken(error));
            }
        }
        self.decide();
    }

    /// Takes in the request of an agent, or the same request again. [`Action::Reply`] replies to it.
    pub fn requested(&mut self, now: Now, request: Request) {
        self.facts.now = now;
        let Request { from, task, wish, .. } = request;
        match wish {
            Wish::Child(delegation) => self.delegated(from, task, delegation),
            Wish::Person(ask) => self.asked(from, &task, ask),
            Wish::Tasks(proposal) => self.proposed(from, proposal),
            Wish::Slot(SlotBack) => self.wants_slot(from),
        }
        self.decide();
    }

    /// Takes in a person's answer to a question. [`Action::TellAnswerer`] with this `request` says
    /// what became of it.
    pub fn person_answered(&mut self, now: Now, request: Option<u64>, answer: PersonsAnswer) {
        self.facts.now = now;
        self.answered_by(request, answer);
        self.decide();
    }

    /// Takes in that a notification command has ended.
    pub fn notified(&mut self, now: Now) {
        self.facts.now = now;
        self.notification_ended();
        self.decide();
    }

    /// Takes in the end of a hook that the performer ran.
    pub fn hook_ended(&mut self, now: Now, finished: HookFinished) {
        self.facts.now = now;
        self.record(vec![Draft::run(finished)]);
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
        self.checked(task, checked);
        self.decide();
    }

    /// Takes in the result of [`Action::Evaluate`], or the failure of the task if it has none.
    pub(crate) fn evaluated(
        &mut self,
        now: Now,
        task: &Name,
        number: u64,
        result: Result<Evaluated, Failure>,
    ) {
        self.facts.now = now;
        self.facts.take_evaluation(task, number, result);
        self.decide();
    }

    /// Takes in whether the answer of a child fits the schema that its parent wants of it.
    pub fn answer_compared(&mut self, now: Now, child: &AgentId, fits: Result<(), Failure>) {
        self.facts.now = now;
        self.compared(child, fits);
        self.decide();
    }

    /// Takes in that the records of an agent were folded, so its actor can be started.
    pub fn agent_folded(&mut self, now: Now, agent: &AgentId) {
        self.facts.now = now;
        self.folded(agent);
        self.decide();
    }

    /// Takes in that the actor of an agent has ended. An error means that it crashed or could not
    /// be started.
    pub fn agent_gone(&mut self, now: Now, agent: &AgentId, error: Option<String>) {
        self.facts.now = now;
        self.gone(agent, error);
        self.decide();
    }

    /// Cancels the run, a task, or an agent with all agents that work for it. Returns false if
    /// there is no such target; a target that has ended stays as it is.
    pub fn cancel(&mut self, now: Now, target: &CancelTarget, reason: &str) -> bool {
        self.facts.now = now;
        let found = self.cancelled(target, reason);
        self.decide();
        found
    }

    /// Stops the run so that it can be resumed.
    pub fn interrupt(&mut self, now: Now, reason: String) {
        self.facts.now = now;
        self.interrupted(reason, Haste::WithinGrace);
        self.decide();
    }

    /// Takes in that the disk has no space for new work.
    pub fn disk_full(&mut self, now: Now) {
        self.facts.now = now;
        self.no_room();
        self.decide();
    }

    /// Takes in that the disk has space again.
    pub fn disk_has_room(&mut self, now: Now) {
        self.facts.now = now;
        self.room_again();
        self.decide();
    }

    /// Fires the timers whose moment has come.
    pub fn wake(&mut self, now: Now) {
        self.facts.now = now;
        while let Some(timer) = self.facts.timers.pop_due(now.since) {
            self.fired(timer);
        }
        self.decide();
    }

    /// Applies a record and performs its immediate consequences.
    fn take_in(&mut self, record: &SharedRecord) -> Result<(), String> {
        let place = record.task.as_ref().filter(|_| record.agent.is_none());
        let place = place.and_then(|task| self.facts.settings.plan.place(task));
        let before = place.map(|place| self.facts.standing(place));
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
            self.task_changed(place, &record.event);
        }
        match (&record.agent, &record.event) {
            (Some(agent), Event::AgentSpawned(_)) => self.spawned(agent, record),
            (Some(agent), Event::AgentRestarted(restarted)) => match restarted.feedback {
                Some(_) => self.round_begins(agent),
                None => self.restarted(agent, restarted.restart),
            },
            (Some(agent), Event::AgentEnded(_)) => self.ended(agent),
            (_, Event::ApprovalAsked(asked)) => self.question_asked(asked),
            (_, Event::ApprovalAnswered(answer)) => self.question_answered(record, answer),
            (None, Event::RunCompleted(completed)) => {
                self.finish(Finish::Completed(Box::new(completed.clone())));
            }
            (None, Event::RunPaused(paused)) => match paused.cause {
                PauseCause::Interrupted | PauseCause::Failure | PauseCause::Person => {
                    self.finish(Finish::Paused(paused.clone()));
                }
                PauseCause::DiskFull | PauseCause::Quota => self.stop_limits(),
            },
            (None, Event::RunOpened(_)) => self.opened(),
            (None, Event::GatewayParked(parked)) => {
                parked.quota.iter().for_each(|wait| self.quota_exhausted(parked, *wait));
            }
            (None, Event::GatewayResumed(_)) => self.quota_reset(),
            (None, Event::HookStarted(started)) => self.hook_started(started.hook),
            (None, Event::HookFinished(_)) => self.facts.hook = None,
            (None, Event::PlanExtended(extended)) => self.extended(extended)?,
            _ => {}
        }
        self.carry_out_all();
        Ok(())
    }

    /// Makes all decisions that follow from the inputs so far, in this order: what the rules have posted; the beginning of
    /// the run; each task that was touched; locks, then slots; the pause for people; the end of the run.
    fn decide(&mut self) {
        self.carry_out_all();
        if self.facts.is_finishing {
            return;
        }
        if self.facts.interrupted.is_some() {
            return self.pause_when_quiet();
        }
        let waits = self.waits_for_start();
        self.carry_out_all();
        if waits {
            return;
        }
        loop {
            while let Some(place) = self.facts.agenda.next_touched() {
                if !self.facts.proposed.contains(&place) {
                    self.decide_task(place);
                    self.carry_out_all();
                    self.facts.forget_result(place);
                }
            }
            // Only once all that could start has its place in line.
            self.facts.grant_locks();
            if !self.facts.agenda.is_due() {
                self.fill_slots();
            }
            // Whoever has its locks wants a slot, and an attempt that got its slot back is decided with it.
            if !self.facts.agenda.is_due() {
                break;
            }
        }
        self.pause_for_people();
        self.carry_out_all();
        match self.facts.interrupted.is_some() {
            true => self.pause_when_quiet(),
            false => self.complete_when_done(),
        }
        self.carry_out_all();
    }
}
