//! What the rules decide, and which desk carries it out.
//!
//! No rule calls another one. A rule reads the [`Facts`](super::Facts), changes the data of its own desk and posts
//! decisions. The machine carries them out in the order in which they were posted, each with all that follows from
//! it before the next, until none is left. So a rule sees what it posted only once it has returned.

use std::sync::Arc;
use std::time::Duration;

use super::evaluation::Wanted;
use super::request::{ChildReply, ChildResult, Delegation, Refused};
use super::timers::Timer;
use super::{Action, CancelTarget, GivenUp, Haste, Made, RunMachine};
use crate::event::{Event, PauseCause, RunCompleted};
use crate::failure::Failure;
use crate::id::{AgentId, CallKey, Name};
use crate::messages::About;
use crate::spec::{AgentSpec, TaskSpec};
use crate::template::Known;
use crate::turn::Outcome;

/// Reason for ending an agent whose task is now made from other content.
pub(super) const CHANGED: &str = "what its task is made from has changed";

/// Reason for ending an agent of an earlier attempt.
pub(super) const SUPERSEDED: &str = "its task continues without it";

/// Reason for cancelling agents whose parent has ended.
pub(super) const PARENT_ENDED: &str = "its parent has ended";

/// Returns what an agent is told whose answer does not have the form that is wanted.
pub(super) fn ask_to_mend(failure: &Failure) -> String {
    format!(
        "Your answer was not accepted: {}. Give your whole answer again, as one JSON document and \
         nothing else.",
        failure.message
    )
}

/// A child that waits for its slot.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) agent: AgentId,
    pub(super) parent: AgentId,
    pub(super) task: Name,
    pub(super) delegation: Delegation,
}

/// The reason why the run as a whole was stopped before its end.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// The run was cancelled, by a person or because of a failure.
    Cancelled(String),
    /// The run used up its time, or its beginning failed.
    Failed(Failure),
}

impl Stop {
    /// Returns the outcome of agents that are at work.
    pub(super) fn outcome(&self) -> Outcome {
        match self.clone() {
            Self::Cancelled(reason) => Outcome::Cancelled { reason },
            Self::Failed(failure) => Outcome::Failed { failure, partial: None },
        }
    }

    /// Returns the reason why the other tasks do not start.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Cancelled(reason) => reason,
            Self::Failed(failure) => &failure.message,
        }
    }
}

/// Makes the decisions. A line is what is decided, with its data, and who carries it out.
macro_rules! decisions {
    ($machine:ident: $($(#[doc = $doc:literal])* $name:ident($($arg:ident: $type:ty),*) => $carried_out:expr;)*) => {
        /// Something that a rule decided. A `place` is that of a task in the plan.
        #[derive(Clone, Debug)]
        pub(super) enum Decision { $($(#[doc = $doc])* $name($($type),*),)* }

        impl RunMachine {
            /// Carries out one decision.
            pub(super) fn carry_out(&mut self, decision: Decision) {
                let $machine = self;
                match decision { $(Decision::$name($($arg),*) => $carried_out,)* }
            }
        }
    };
}

decisions! { run:
    /// An action is performed.
    Act(action: Action) => run.out.actions.push_back(action);
    /// A task is decided again.
    Touch(place: usize) => run.facts.agenda.touch(place);
    /// All tasks are decided again.
    TouchAll() => run.facts.agenda.touch_all();

    // Tasks.
    /// A task that has no attempt under way ends with this event, once no agent works for it any more.
    EndUnstarted(place: usize, event: Event) => run.tasks().end_unstarted(place, event);
    /// An attempt has failed: another one follows, or the task fails.
    FailAttempt(place: usize, failure: Failure) => run.attempts().fail(place, failure);
    /// An attempt is concluded, if no agent works for it any more.
    ConcludeAttempt(place: usize) => run.attempts().conclude_when_quiet(place);
    /// The form of an output is checked. The key is that of an earlier result, if it is one.
    CheckOutput(place: usize, made: Made, reused: Option<String>) =>
        run.attempts().check_output(place, made, reused);
    /// A task that stands for a sub-graph is completed.
    CompleteGraph(place: usize) => run.attempts().complete_graph(place);
    /// The instances of a task are made.
    FanOut(place: usize) => run.fan_outs().start(place);
    /// The instances of a task that has fanned out are added to the plan.
    Expand(place: usize) => run.expand(place);
    /// A task that has fanned out is concluded, if all its instances have ended.
    ConcludeFanOut(place: usize) => run.fan_outs().conclude(place);
    /// A person is asked to approve, or has answered.
    Approve(place: usize) => run.questions().approve(place);
    /// The failure of a task may keep others from starting.
    HeedFailure(place: usize) => run.stopping().task_failed(place);
    /// An attempt has ended, with this agent if it had one.
    AttemptOver(place: usize, agent: Option<AgentId>) => {
        run.timers().cancel(&Timer::TaskLimit(place));
        agent.iter().for_each(|agent| run.scarce().release(agent));
        agent.iter().for_each(|agent| run.messages().attempt_over(agent));
        run.scarce().release_locks(place);
        run.attempts().attempt_over(place);
        run.evaluating().forget(place);
    };
    /// A task has ended.
    TaskEnded(place: usize) => {
        run.timers().cancel(&Timer::Retry(place));
        run.sharing().task_ended(place);
        run.values().task_ended(place);
        run.fan_outs().task_ended(place);
    };
    /// The value of an output is kept for templates.
    KeepValue(place: usize, value: Known) => run.values().keep(place, value);
    /// The value of a task that has ended is kept for templates.
    NoteValue(place: usize) => run.values().note(place);
    /// Something is evaluated for a task.
    Evaluate(place: usize, wanted: Wanted) => run.evaluating().ask(place, wanted);
    /// What was evaluated for a task is used, or needed no longer.
    ForgetEvaluation(place: usize) => run.evaluating().forget(place);
    /// Tasks with these agent definitions are added to the plan.
    ExtendPlan(tasks: Vec<TaskSpec>, agents: Vec<Arc<AgentSpec>>) =>
        run.extend_plan(tasks, agents);

    // What is scarce.
    /// An agent gives up its slot.
    Release(agent: AgentId) => run.scarce().release(&agent);
    /// An agent wants its slot back no longer.
    Withdraw(agent: AgentId) => run.scarce().withdraw(&agent);
    /// An agent works in the slot of another.
    HandOver(from: AgentId, to: AgentId) => run.scarce().hand_over(&from, to);
    /// An agent wants its slot back.
    ReturnTo(agent: AgentId) => run.scarce().return_to(agent);
    /// A child wants to start.
    WantChild(place: usize, child: Box<Child>) => run.scarce().want_child(place, *child);
    /// A child starts.
    BeginChild(place: usize, child: AgentId) => run.scarce().begin_child(place, child);
    /// The children of an agent that want to start do not.
    ForgetChildren(place: usize, parent: AgentId) => run.scarce().forget_children(place, &parent);
    /// A task that could start stands in line for its locks and a slot.
    Claim(place: usize) => run.scarce().claim(place);
    /// A task wants no slot.
    Unclaim(place: usize) => run.scarce().unclaim(place);
    /// The task of an attempt that is at work has its locks.
    HoldLocks(place: usize) => run.scarce().hold_locks(place);
    /// A task gives up its locks.
    ReleaseLocks(place: usize) => run.scarce().release_locks(place);
    /// The agent of a task has its slot.
    TakeSlot(place: usize, agent: AgentId) => run.scarce().take_slot(place, agent);
    /// The agent of a task has its slot, and begins once its program is rendered.
    Prepare(place: usize, agent: AgentId) => run.scarce().prepare(place, agent);
    /// The slot of an attempt that does not begin is given back.
    GiveBack(place: usize) => run.scarce().give_back(place);

    // Agents.
    /// An agent ends, with all that work for it.
    EndAgent(agent: AgentId, outcome: Outcome) => run.agents().end_agent(&agent, outcome);
    /// The agents of an attempt end: its main agent, or the check that judges it.
    EndAttempt(main: AgentId, outcome: Outcome) => run.agents().end_attempt(&main, &outcome);
    /// The actor of an agent is killed.
    Kill(agent: AgentId) => run.agents().kill(&agent);
    /// The agents of a running attempt that the last process left are resumed.
    ResumeAgentsOf(place: usize) => run.agents().resume_agents_of(place);
    /// The agents of a task and of its instances that wait to be resumed end, for this reason.
    Dismiss(place: usize, reason: String) => run.agents().dismiss_left_of(place, &reason);
    /// The first record of work below an agent, or of its own next round, is on its way to the journal.
    BeginsSoonBelow(agent: AgentId) => run.agents().begins_soon_below(&agent);
    /// Work that crashed the supervisor again and again is not tried once more.
    GiveUp(given_up: GivenUp) => run.agents().give_up(given_up);

    // Children.
    /// A child that a call asked for does not begin.
    ForgetComing(task: Name, call: CallKey) => run.agents().forget_coming(&task, &call);
    /// A child has ended, with all that worked for it.
    EndChild(child: AgentId) => run.children().ended(&child);
    /// A child that has ended gives its result to its parent.
    GiveResult(child: AgentId) => run.children().give_result(&child);
    /// A parent has the answer to its call.
    AnswerParent(parent: AgentId, call: CallKey, answer: Result<ChildReply, Refused>) =>
        run.agents().answer(&parent, &call, answer);
    /// A child that worked in the background has ended: its parent gets the result as a message.
    ReportEnd(result: Box<ChildResult>) => run.background().report(*result);
    /// An agent gets a message of the run.
    Inform(to: AgentId, about: About, text: String) => run.messages().inform(to, about, text);
    /// A child that has ended goes on with another job.
    ContinueChild(parent: AgentId, job: Box<Delegation>) => run.children().continued(&parent, *job);
    /// A child that has a slot mends its answer, or goes on.
    BeginAgain(child: AgentId) => run.children().begin_again(&child);
    /// The parent of a child needs its answer no longer.
    ForgetAnswer(child: AgentId) => run.children().forget(&child);
    /// A child of a task counts.
    CountChild(place: usize) => run.sharing().count(place, 1);
    /// A child of a task counts no longer.
    TakeBackChild(place: usize) => run.sharing().take_back(place);
    /// An agent of a task, or a further round of it, may count as a child, before its record is durable.
    CountFromNow(place: usize) => run.sharing().count_from_now(place);
    /// The record of an agent, or of its round, is durable.
    IsCounted(agent: AgentId) => run.sharing().is_counted(&agent);

    // People.
    /// An agent has no slot and may be about to ask for it.
    NoteLoose(agent: AgentId) => run.questions().note_loose(agent);
    /// An agent has asked for its slot.
    ForgetLoose(agent: AgentId) => run.questions().forget_loose(&agent);

    /// All calls that wait for money or for the end of a pause are decided about again.
    ServeMoney() => run.purse().serve_all();

    // Time.
    /// A timer is set for this moment.
    SetTimer(at: Duration, timer: Timer) => run.timers().set(at, timer);
    /// A timer is cancelled.
    CancelTimer(timer: Timer) => run.timers().cancel(&timer);
    /// The timers of all limits are set.
    StartLimits() => run.timers().start_limits();
    /// The timers of all limits are set anew.
    RestartLimits() => run.timers().restart_limits();
    /// The timer of the limit of a task's running attempt is set.
    LimitTask(place: usize) => run.timers().start_task_limit(place);
    /// The timer of the limit of a check or a child is set.
    LimitAgent(agent: AgentId) => run.timers().start_agent_limit(&agent);
    /// The timer of the attempt that an agent works for is set, if it has fired before.
    LimitAttemptOf(agent: AgentId) => run.timers().limit_attempt_of(&agent);

    // The run.
    /// A part of the run is cancelled, for this reason.
    Cancel(target: CancelTarget, reason: String) => {
        run.stopping().cancel(&target, &reason);
    };
    /// All agents end and nothing new begins, except what always runs.
    Stop(stop: Stop) => run.stopping().stop(stop);
    /// The run has used up its time.
    TimeIsUp(failure: Failure) => run.stopping().time_is_up(failure);
    /// The beginning of the run has failed.
    FailBeginning(failure: Failure) => run.stopping().fail_beginning(failure);
    /// A task records the failure that one must record.
    FailureRecorded() => run.stopping().failure_recorded();
    /// The run stops so that it can be resumed, for this reason.
    Interrupt(reason: String, cause: PauseCause, haste: Haste) =>
        run.pauses().interrupt(reason, cause, haste);
    /// The hook that is at work ends.
    EndHook() => run.hooks().end();
    /// The run was opened, and waits while the quota of a provider is used up.
    WaitForQuota() => run.quotas().opened();
    /// The run ends with this result, after the hooks of its end.
    Complete(result: Box<RunCompleted>) => run.hooks().complete(result);
    /// The pause of the run is recorded, after its hook and its notices.
    Pause(reason: String, cause: PauseCause) => run.hooks().pause(reason, cause);
    /// The pause of the run is recorded, after its notices.
    TellOfPause(reason: String, cause: PauseCause) => run.notices().tell_of_pause(reason, cause);
    /// The pause of the run is recorded.
    RecordPause(reason: String, cause: PauseCause) => run.pauses().record_pause(reason, cause);
    /// The result of the run is recorded, after its notices.
    TellOfEnd(result: Box<RunCompleted>) => run.notices().tell_of_end(result);
    /// The result of the run is recorded.
    RecordEnd(result: Box<RunCompleted>) => {
        run.messages().run_ends();
        run.pauses().record_end(*result);
    };
}
