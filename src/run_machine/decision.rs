//! What the rules decide, and which rule carries it out.
//!
//! No rule calls another one. A rule reads the [`Facts`](super::facts::Facts), changes the data of its own matter and
//! posts decisions. The machine carries them out in the order in which they were posted, each with all that follows from
//! it before the next, until none is left. So a rule sees what it posted only once it has returned.

use super::facts::Stop;
use super::request::{ChildResult, Refused, Reply};
use super::slots::Next;
use super::timers::Timer;
use super::{Action, CancelTarget, Finish, GivenUp, Haste, Made, RunMachine};
use crate::event::{Draft, Event, RunCompleted};
use crate::failure::Failure;
use crate::id::{AgentId, CallKey};
use crate::output::Output;
use crate::turn::Outcome;

/// Something that a rule decided. A `usize` is the place of a task in the plan.
#[derive(Clone, Debug)]
pub(super) enum Decision {
    /// An action is performed.
    Act(Action),

    // Tasks.
    /// A task that has no attempt under way ends with this event, once no agent works for it any more.
    EndUnstarted(usize, Event),
    /// An attempt has failed: another one follows, or the task fails.
    FailAttempt(usize, Failure),
    /// An attempt is settled, if no agent works for it any more.
    SettleAttempt(usize),
    /// The answer of an attempt is judged.
    Judge(usize, AgentId, Output),
    /// The form of an output is checked. The key is that of an earlier result, if it is one.
    CheckOutput(usize, Made, Option<String>),
    /// The form of an answer is wrong.
    RefuseForm(usize, Failure),
    /// The instances of a task are made.
    FanOut(usize),
    /// The instances of a task that has fanned out are added to the plan.
    Expand(usize),
    /// A task that has fanned out is settled, if all its instances have ended.
    SettleFanOut(usize),
    /// A person is asked to approve, or has answered.
    Approve(usize),
    /// A task that stands for a sub-graph is completed.
    CompleteGraph(usize),
    /// The failure of a task may keep others from starting.
    HeedFailure(usize),

    // Agents.
    /// An agent ends, with all that work for it.
    EndAgent(AgentId, Outcome),
    /// The agents of an attempt end: its main agent, or the check that judges it.
    EndAttempt(AgentId, Outcome),
    /// Agents without an actor end, with the outcomes that they were given.
    EndIdle(Vec<AgentId>),
    /// The actor of an agent is killed.
    Kill(AgentId),
    /// The records of an agent are folded, so that it gets an actor.
    Fold(AgentId),
    /// The agents of a running attempt that the last process left are resumed.
    ResumeAgentsOf(usize),
    /// The agents of a task and of its instances that wait to be resumed end, for this reason.
    Dismiss(usize, String),
    /// The agents that the run no longer needs end.
    DismissUnused,

    // Children.
    /// A child has ended, with all that worked for it.
    EndChild(AgentId),
    /// A child that has ended gives its result to its parent.
    GiveResult(AgentId),
    /// A parent has the answer to its call.
    AnswerParent(AgentId, CallKey, Result<ChildResult, Refused>),
    /// A child that has a slot mends its answer.
    MendAnswer(AgentId),
    /// The parent of a child needs its answer no longer.
    ForgetAnswer(AgentId),

    // Time.
    /// The timers of all limits are set.
    StartLimits,
    /// The timer of the limit of a task's running attempt is set.
    LimitTask(usize),
    /// The timer of the limit of a check or a child is set.
    LimitAgent(AgentId),
    /// The timer of the attempt that an agent works for is set, if it has fired before.
    LimitAttemptOf(AgentId),

    // The run.
    /// A part of the run is cancelled, for this reason.
    Cancel(CancelTarget, String),
    /// All agents end and nothing new begins, except what always runs.
    Stop(Stop),
    /// The run stops so that it can be resumed, for this reason.
    Interrupt(String, Haste),
    /// The hook that is at work ends.
    EndHook,
    /// The run waits while the quota of a provider is used up.
    WaitForQuota,
    /// Work that crashed the supervisor again and again is not tried once more.
    GiveUp(GivenUp),
    /// The run ends with this result, after the hooks of its end.
    Complete(Box<RunCompleted>),
}

impl RunMachine {
    /// Decides something, which is carried out when the rule has returned.
    pub(super) fn post(&mut self, decision: Decision) {
        self.decided.push(decision);
    }

    /// Carries out what was decided, and all that follows from it.
    pub(super) fn carry_out_all(&mut self) {
        self.ask_for_evaluations();
        let mut levels = vec![std::mem::take(&mut self.decided).into_iter()];
        while let Some(level) = levels.last_mut() {
            match level.next() {
                None => drop(levels.pop()),
                Some(decision) => {
                    self.carry_out(decision);
                    self.ask_for_evaluations();
                    if !self.decided.is_empty() {
                        levels.push(std::mem::take(&mut self.decided).into_iter());
                    }
                }
            }
        }
    }

    fn ask_for_evaluations(&mut self) {
        let wanted = self.facts.wanted.drain(..).map(|wanted| Action::Evaluate(Box::new(wanted)));
        self.actions.extend(wanted);
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Act(action) => self.actions.push_back(action),
            Decision::EndUnstarted(place, event) => self.end_unstarted(place, event),
            Decision::FailAttempt(place, failure) => self.attempt_failed(place, failure),
            Decision::SettleAttempt(place) => self.settle_when_quiet(place),
            Decision::Judge(place, main, output) => self.judge(place, &main, output),
            Decision::CheckOutput(place, made, reused) => self.check_output(place, made, reused),
            Decision::RefuseForm(place, failure) => self.form_is_wrong(place, failure),
            Decision::FanOut(place) => self.start_fan_out(place),
            Decision::Expand(place) => self.expand(place),
            Decision::SettleFanOut(place) => self.settle_fan_out(place),
            Decision::Approve(place) => self.decide_approval(place),
            Decision::CompleteGraph(place) => self.complete_graph(place),
            Decision::HeedFailure(place) => self.task_failed(place),
            Decision::EndAgent(agent, outcome) => self.end_agent(&agent, outcome),
            Decision::EndAttempt(main, outcome) => self.end_attempt(&main, &outcome),
            Decision::EndIdle(agents) => self.end_idle(agents),
            Decision::Kill(agent) => self.kill(&agent),
            Decision::Fold(agent) => self.fold(&agent),
            Decision::ResumeAgentsOf(place) => self.resume_agents_of(place),
            Decision::Dismiss(place, reason) => self.dismiss_left_of(place, &reason),
            Decision::DismissUnused => self.dismiss_unused(),
            Decision::EndChild(child) => self.child_ended(&child),
            Decision::GiveResult(child) => self.give_result(&child),
            Decision::AnswerParent(parent, call, answer) => self.answer(&parent, &call, answer),
            Decision::MendAnswer(child) => self.mend_answer(&child),
            Decision::ForgetAnswer(child) => self.forget_answer(&child),
            Decision::StartLimits => self.start_limits(),
            Decision::LimitTask(place) => self.start_task_limit(place),
            Decision::LimitAgent(agent) => self.start_agent_limit(&agent),
            Decision::LimitAttemptOf(agent) => self.limit_attempt_of(&agent),
            Decision::Cancel(target, reason) => drop(self.cancelled(&target, &reason)),
            Decision::Stop(stop) => self.stop_everything(stop),
            Decision::Interrupt(reason, haste) => self.interrupted(reason, haste),
            Decision::EndHook => self.end_hook(),
            Decision::WaitForQuota => self.wait_for_quota(),
            Decision::GiveUp(given_up) => self.give_up(given_up),
            Decision::Complete(result) => {
                if !self.waits_for_end(&result) {
                    self.facts.is_finishing = true;
                    self.record(vec![Draft::run(*result)]);
                }
            }
        }
    }

    /// Handles a timer that fired.
    pub(super) fn fired(&mut self, timer: Timer) {
        match timer {
            Timer::Retry(place) => self.facts.agenda.touch(place),
            Timer::TaskLimit(place) => self.task_limit_reached(place),
            Timer::RunLimit => self.run_limit_reached(),
            Timer::AgentLimit(agent) => self.agent_limit_reached(&agent),
            Timer::Restart(agent) => self.restart_agent(&agent),
            Timer::EndOverdue(agent) => self.end_overdue(&agent),
            Timer::KillOverdue(agent) => self.gone(&agent, None),
            Timer::InterruptOverdue => self.interrupt_overdue(),
            Timer::PauseOverdue => self.pause_overdue(),
            Timer::QuotaTried => self.quota_tried(),
            Timer::Question(id) => self.question_overdue(&id),
        }
        self.carry_out_all();
    }

    /// Gives free slots to waiting agents and tasks.
    pub(super) fn fill_slots(&mut self) {
        while let Some(next) = self.facts.next_for_slot() {
            match next {
                Next::Return(agent) => self.slot_granted(agent),
                Next::Child(child) => self.start_child(child),
                Next::Task(place) => self.start_task(place),
            }
            self.carry_out_all();
        }
    }

    /// Asks for events to be recorded, in the order of the decisions.
    pub(super) fn record(&mut self, drafts: Vec<Draft>) {
        self.actions.push_back(Action::Record(drafts));
    }

    /// Replies to a request.
    pub(super) fn reply(&mut self, to: AgentId, id: &str, reply: Reply) {
        self.actions.push_back(Action::Reply { to, id: id.to_owned(), reply });
    }

    /// Asks for a change of a task to be recorded. No further decision is made about the task until
    /// the record is durable.
    pub(super) fn record_task(&mut self, place: usize, event: Event) {
        self.facts.proposed.insert(place);
        let draft = Draft::task(self.facts.name(place), event);
        self.record(vec![draft]);
    }

    /// Ends the run for this process. The performer ends the agents that are still at work.
    pub(super) fn finish(&mut self, finish: Finish) {
        if !self.facts.is_finished {
            self.facts.is_finished = true;
            self.facts.is_finishing = true;
            self.actions.push_back(Action::Finish(finish));
        }
    }
}
