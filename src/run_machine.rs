//! Decides what follows for a run: from its state, its plan and what is open now, a list of actions.
//!
//! Pure: no clock, no mailbox, no disk. The Supervisor tells it what happened and performs the
//! actions; a forecast (`resume --explain`) asks the same machine and performs them in thought. So
//! a rule of the plan stands here once, as a function that a table test can call.
//!
//! - [`forecast`]: the same decisions, performed in thought;
//! - [`scope`]: values and templates of tasks;
//! - `tasks`: which task becomes ready, starts, is skipped, retried, settled;
//! - `agents`: delegation, crashes, ends;
//! - `limits`: time limits, and the deadlines of agents that were told to end;
//! - `pauses`: interruption, a full disk, the end of the run;
//! - `restart`: a run that goes on where its records end;
//! - `agenda`, `slots`, `timers`, `open`: the data that these decide by.
//!
//! The work per input is what the input touches: a task that ends looks at its dependents, an agent
//! that ends at its parent and children. Only what stops the whole run looks at every task.

mod action;
mod agenda;
mod agents;
pub mod forecast;
mod limits;
mod open;
mod pauses;
mod restart;
pub mod scope;
mod slots;
mod tasks;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

pub use self::action::{Action, CancelTarget, ChildResult, Delegation, Finish, Refused};
use self::agenda::Agenda;
pub use self::open::Left;
use self::open::Open;
use self::slots::Next;
pub use self::tasks::Beginning;
use crate::event::{Draft, Event, PauseCause, SharedRecord};
use crate::id::{AgentId, Name, RunId};
use crate::plan::{Plan, TaskState};
use crate::run_state::{Reading, RunPhase, RunState};
use crate::spec::{AgentSpec, Limits, ModelSpec};

/// The parts of a run that do not change while a process drives it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// The inputs, checked and with their defaults.
    pub inputs: Map<String, Value>,
    /// The tasks.
    pub plan: Plan,
    /// The ceilings.
    pub limits: Limits,
    /// The agent definitions.
    pub agents: BTreeMap<Name, Arc<AgentSpec>>,
    /// The models.
    pub models: BTreeMap<Name, ModelSpec>,
    /// Environment variables of commands: a part of what results are made from.
    pub env: BTreeMap<String, String>,
    /// The number of the process, for the records.
    pub pid: u32,
}

/// The run as it is when a process begins to drive it.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The fold of its journal: at least `run.created`.
    pub state: RunState,
    /// The agents that have not ended.
    pub left: BTreeMap<AgentId, Left>,
    /// The outputs that templates of tasks to come may name, by task.
    pub outputs: Map<String, Value>,
    /// The seed for the jitter of pauses.
    pub seed: u64,
}

/// A moment, as the driver of a machine tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The time since the machine was made; it never goes back.
    pub since: Duration,
    /// Wall time in milliseconds since the Unix epoch: only for pauses that records name so.
    pub wall_ms: i64,
}

/// The decisions of one run.
#[derive(Clone, Debug)]
pub struct RunMachine {
    settings: Settings,
    state: RunState,
    open: Open,
    agenda: Agenda,
    actions: VecDeque<Action>,
    chance: fastrand::Rng,
    now: Now,
    /// The moment of the latest record: the run's clock goes on from there.
    recorded_at: Duration,
}

impl RunMachine {
    /// The machine of a run that is about to be driven; [`begin`](Self::begin) comes next.
    #[must_use]
    pub fn new(settings: Settings, start: Start) -> Self {
        let Start { state, left, outputs, seed } = start;
        let agenda = Agenda::new(&settings.plan, &state);
        let open = Open::new(&settings, left, outputs);
        Self {
            settings,
            state,
            open,
            agenda,
            actions: VecDeque::new(),
            chance: fastrand::Rng::with_seed(seed),
            now: Now::default(),
            recorded_at: Duration::ZERO,
        }
    }

    /// The fold of the run's records so far.
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The tasks.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.settings.plan
    }

    /// The action that is to be performed next; `None` when there is nothing to do before the next
    /// input.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The moment for which [`wake`](Self::wake) is due, if any.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        self.open.timers.next()
    }

    /// Begins, or goes on where the records end. The first input.
    pub fn begin(&mut self, now: Now) {
        self.now = now;
        self.recorded_at = now.since;
        self.restart();
        self.decide();
    }

    /// Takes in records that are durable, in order. Those that were taken in before are passed over.
    pub fn committed(&mut self, now: Now, records: &[SharedRecord]) {
        self.now = now;
        for record in records {
            if record.seq <= self.state.last_seq() {
                continue;
            }
            if let Err(error) = self.take_in(record) {
                return self.finish(Finish::Broken(error));
            }
        }
        self.decide();
    }

    /// An agent gives a job to a child, or asks again for the child of an earlier call.
    pub fn delegate(&mut self, now: Now, delegation: Delegation) {
        self.now = now;
        self.delegated(delegation);
        self.decide();
    }

    /// An agent whose children have ended wants its slot back.
    pub fn slot_wanted(&mut self, now: Now, agent: AgentId) {
        self.now = now;
        self.wants_slot(agent);
        self.decide();
    }

    /// The output of a task was checked: its value for templates, or why it is not what the task
    /// asks for.
    pub fn output_checked(
        &mut self,
        now: Now,
        task: &Name,
        checked: Result<Value, crate::failure::Failure>,
    ) {
        self.now = now;
        self.checked(task, checked);
        self.decide();
    }

    /// The records of an agent were folded: its actor can be started.
    pub fn agent_folded(&mut self, now: Now, agent: &AgentId) {
        self.now = now;
        self.folded(agent);
        self.decide();
    }

    /// The actor of an agent is gone; with an error it crashed, or could not be started.
    pub fn agent_gone(&mut self, now: Now, agent: &AgentId, error: Option<String>) {
        self.now = now;
        self.gone(agent, error);
        self.decide();
    }

    /// Cancels the run, a task or an agent with all agents that work for it. Returns whether there is
    /// such a target; one that has ended stays as it is.
    pub fn cancel(&mut self, now: Now, target: &CancelTarget, reason: &str) -> bool {
        self.now = now;
        let found = self.cancelled(target, reason);
        self.decide();
        found
    }

    /// Stops the run so that it can be resumed.
    pub fn interrupt(&mut self, now: Now, reason: String) {
        self.now = now;
        self.interrupted(reason);
        self.decide();
    }

    /// The disk has no room for new work.
    pub fn disk_full(&mut self, now: Now) {
        self.now = now;
        self.no_room();
        self.decide();
    }

    /// The disk has room again.
    pub fn disk_has_room(&mut self, now: Now) {
        self.now = now;
        self.room_again();
        self.decide();
    }

    /// Lets the timers fire whose moment has come.
    pub fn wake(&mut self, now: Now) {
        self.now = now;
        while let Some(timer) = self.open.timers.pop_due(now.since) {
            self.fired(timer);
        }
        self.decide();
    }

    /// Applies a record and what follows from it at once.
    fn take_in(&mut self, record: &SharedRecord) -> Result<(), String> {
        let place = record.task.as_ref().filter(|_| record.agent.is_none());
        let place = place.and_then(|task| self.settings.plan.place(task));
        let before = place.map(|place| self.standing(place));
        self.state.apply(record).map_err(|error| error.to_string())?;
        self.recorded_at = self.now.since;
        if let (Some(place), Some(before)) = (place, before) {
            self.open.proposed.remove(&place);
            self.agenda.changed(&self.settings.plan, place, before, self.standing(place));
            self.task_changed(place, &record.event);
        }
        match (&record.agent, &record.event) {
            (Some(agent), Event::AgentSpawned(_)) => self.spawned(agent, record),
            (Some(agent), Event::AgentRestarted(restarted)) => {
                self.restarted(agent, restarted.restart);
            }
            (Some(agent), Event::AgentEnded(_)) => self.ended(agent),
            (None, Event::RunCompleted(completed)) => {
                self.finish(Finish::Completed(completed.clone()));
            }
            (None, Event::RunPaused(paused)) => match paused.cause {
                PauseCause::Interrupted => self.finish(Finish::Paused(paused.reason.clone())),
                PauseCause::DiskFull => self.stop_limits(),
            },
            (None, Event::RunOpened(_)) => self.opened(),
            _ => {}
        }
        Ok(())
    }

    /// Decides all that follows from the inputs so far.
    fn decide(&mut self) {
        if self.open.is_finishing {
            return;
        }
        if self.open.interrupted.is_some() {
            return self.pause_when_quiet();
        }
        while let Some(place) = self.agenda.next_touched() {
            if !self.open.proposed.contains(&place) {
                self.decide_task(place);
            }
        }
        self.fill_slots();
        self.complete_when_done();
    }

    /// Gives out free slots.
    fn fill_slots(&mut self) {
        while let Some(next) = self.next_for_slot() {
            match next {
                Next::Return(agent) => self.slot_granted(agent),
                Next::Child(_, child) => self.start_child(child),
                Next::Task(place) => self.start_task(place),
            }
        }
    }

    fn next_for_slot(&mut self) -> Option<Next<open::Child>> {
        let next = self.open.slots.next_return();
        if next.is_some() || self.open.is_disk_full {
            return next;
        }
        self.open.slots.next_start()
    }

    /// Has events recorded, in the order of the decisions.
    fn record(&mut self, drafts: Vec<Draft>) {
        self.actions.push_back(Action::Record(drafts));
    }

    /// Has a change of a task recorded. Nothing more is decided about the task before that is
    /// durable.
    fn record_task(&mut self, place: usize, event: Event) {
        self.open.proposed.insert(place);
        let draft = Draft::task(&self.settings.plan.tasks()[place].name, event);
        self.record(vec![draft]);
    }

    /// Ends the run for this process. What is still at work is ended by the performer.
    fn finish(&mut self, finish: Finish) {
        if !self.open.is_finished {
            self.open.is_finished = true;
            self.open.is_finishing = true;
            self.actions.push_back(Action::Finish(finish));
        }
    }

    /// The run's clock at this moment: it also goes on between records.
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
