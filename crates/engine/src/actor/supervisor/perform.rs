//! Performs the actions of the run machine: sends mail, starts actors, sets timers, and starts the
//! tasks that touch files. Decides nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ractor::{Actor, ActorRef};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::evaluations::CRASHED;
use super::outputs::{self, Check};
use super::{State, Supervisor, SupervisorMsg, needed};
use crate::actor::agent::{Agent, FoldError, Folded};
use crate::actor::ends::{self, Idle};
use crate::actor::hooks;
use crate::actor::mail::AgentMsg;
use crate::actor::notify::notify;
use crate::actor::record_right::RecordRight;
use crate::actor::run_end::{Completed, RunEnd};
use crate::actor::services::Services;
use crate::actor::teller;
use crate::actor::work::{self, Helper};
use crate::event::SharedRecord;
use crate::foreign::Panicked;
use crate::id::{AgentId, Name};
use crate::journal::agent_records::AgentRecords;
use crate::journal::disk_space::DiskSpace;
use crate::journal::{JournalError, JournalHandle};
use crate::run_machine::{Action, Finish, NotSent, Reply};
use crate::spec::hooks::HookFinished;
use crate::spec::notices::NoticeIntended;
use crate::turn::Outcome;

/// The fold of an agent's records: in progress, or done.
#[derive(Debug)]
pub(super) enum Folding {
    Running(oneshot::Receiver<Result<Folded, FoldError>>),
    Done(Box<Folded>),
}

impl Supervisor {
    /// Performs all actions that are due, and sets the timer for the machine's next wake.
    pub(super) async fn perform(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        while let Some(action) = state.machine.next_action() {
            if state.end.is_none() {
                return;
            }
            self.perform_one(myself, state, action).await;
        }
        Self::set_timer(myself, state);
    }

    async fn perform_one(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        action: Action,
    ) {
        match action {
            Action::Record(drafts) => {
                // The receiver lives as long as the state; it stops earlier only if the journal
                // failed, and then the run ends anyway.
                let _ = state.proposals.send(drafts);
            }
            // In boxes, as what a handler holds by value is copied with each message of its actor.
            Action::Spawn { agent, born } => {
                Box::pin(self.spawn_new(myself, state, agent, born)).await;
            }
            Action::Fold(agent) => self.fold(myself, state, agent),
            Action::Start(agent) => {
                if let Some(Folding::Done(folded)) = state.folding.remove(&agent) {
                    Box::pin(self.spawn(myself, state, agent, folded)).await;
                }
            }
            Action::End { agent, outcome } => {
                if let Some(woken) = Self::mail(state, &agent, AgentMsg::End(outcome)) {
                    Box::pin(self.wake(myself, state, woken)).await;
                }
            }
            Action::Kill(agent) => {
                tracing::warn!(%agent, "an agent did not end in time and is killed");
                if let Some(actor) = state.agents.get(&agent) {
                    actor.kill();
                }
                Self::drop_resting(state, &agent);
            }
            Action::EndIdle(ends) => self.end_idle(myself, state, ends),
            // None is started to be interrupted.
            Action::Interrupt(agent, haste) => {
                drop(Self::mail(state, &agent, AgentMsg::Interrupt(haste)));
            }
            Action::Reply { to, id, reply } => {
                if let Reply::Tasks(Ok(())) = reply {
                    // Here, because the agent may never hear of it.
                    self.tell_planner(state, &id);
                }
                let message = AgentMsg::Reply { id, reply: Box::new(reply) };
                if let Some(woken) = Self::mail(state, &to, message) {
                    Box::pin(self.wake(myself, state, woken)).await;
                }
            }
            Action::Deliver(message) => {
                let to = message.to.clone();
                // It wakes nobody: an agent that rests reads it when it goes on.
                drop(Self::mail(state, &to, AgentMsg::Message(message)));
            }
            Action::Define(agents) => {
                let by_name = agents.into_iter().map(|agent| (agent.name.clone(), agent));
                self.services.agents.write().extend(by_name);
            }
            Action::CheckOutput { task, output, path, is_last } => {
                let plan = state.machine.plan();
                let Some(spec) = plan.task(&task).cloned() else { return };
                let is_read = plan.place(&task).is_some_and(|place| plan.is_read_as_file(place));
                let check = Check {
                    services: self.services.clone(),
                    evaluations: state.evaluations.clone(),
                    written: state.written.clone(),
                    task: task.clone(),
                    spec,
                    is_read,
                    is_last,
                };
                let (check, myself) = (check.of(output, path), myself.clone());
                state.work.start(Helper::OutputCheck, check, move |checked| {
                    let message = match checked {
                        Ok(Ok(checked)) => SupervisorMsg::OutputChecked { task, checked },
                        // A stored output that was acknowledged is lost. No decision may be made
                        // without it, so the run stops.
                        Ok(Err(error)) => SupervisorMsg::JournalFailed(error),
                        Err(panic) => {
                            let failure = outputs::crashed(&panic);
                            SupervisorMsg::OutputChecked { task, checked: Err(failure) }
                        }
                    };
                    // A supervisor that has ended needs no result.
                    let _ = myself.send_message(message);
                });
            }
            Action::Evaluate(evaluation) => {
                let (task, number) = (evaluation.task.clone(), evaluation.number);
                let (crashed, myself) = (evaluation.failure(CRASHED), myself.clone());
                let evaluate = state.evaluations.clone().evaluate(evaluation);
                let (turn, reported) = state.order.next();
                let evaluate = async move {
                    let result = evaluate.await;
                    turn.await;
                    result
                };
                state.work.start(Helper::EvaluationWait, evaluate, move |result| {
                    let result = Box::new(result.unwrap_or(Err(crashed)));
                    // A supervisor that has ended needs no result.
                    let _ = myself.send_message(SupervisorMsg::Evaluated { task, number, result });
                    drop(reported);
                });
            }
            Action::CompareAnswer { agent, output, schema } => {
                let (services, myself) = (self.services.clone(), myself.clone());
                let of = agent.clone();
                let compare =
                    async move { outputs::compare(&services, &of, &output, schema).await };
                state.work.start(Helper::OutputCheck, compare, move |fits| {
                    let message = match fits {
                        Ok(Ok(fits)) => SupervisorMsg::AnswerCompared { agent, fits },
                        Ok(Err(error)) => SupervisorMsg::JournalFailed(error),
                        Err(panic) => {
                            let fits = Err(outputs::crashed(&panic));
                            SupervisorMsg::AnswerCompared { agent, fits }
                        }
                    };
                    // A supervisor that has ended needs no result.
                    let _ = myself.send_message(message);
                });
            }
            Action::RunHook { hook, input } => {
                let (services, myself) = (self.services.clone(), myself.clone());
                state.hook = CancellationToken::new();
                let cancel = state.hook.clone();
                let run = async move { hooks::of_run(&services, hook, input, cancel).await };
                state.work.start(Helper::RunHook, run, move |finished| {
                    let crashed = |panic: Panicked| {
                        HookFinished::new(hook, Some(format!("it crashed ({panic})")))
                    };
                    let finished = finished.unwrap_or_else(crashed);
                    // A supervisor that has ended needs no result.
                    let _ = myself.send_message(SupervisorMsg::HookEnded(finished));
                });
            }
            Action::EndHook => state.hook.cancel(),
            Action::TellAnswerer { request, outcome } => {
                self.services.answer_outcomes.answer(&request, outcome);
            }
            Action::Notify { command, question } => {
                let (services, myself) = (self.services.clone(), myself.clone());
                let task = state.machine.plan().task(&question.task);
                let confinement = task.map(|task| task.confinement).unwrap_or_default();
                let notify = async move {
                    notify(&services, &command, &question, confinement).await;
                };
                state.work.start(Helper::Notification, notify, move |ended| {
                    if let Err(panic) = ended {
                        tracing::warn!(%panic, "a notification command did not work");
                    }
                    // A supervisor that has ended needs no result.
                    let _ = myself.send_message(SupervisorMsg::Notified);
                });
            }
            Action::SendNotice(notice) => self.send_notice(myself, state, *notice),
            Action::LimitSpending => {
                self.services.limits_spending.store(true, Ordering::Release);
            }
            Action::HoldSteps => drop(self.services.disk_space.send_replace(DiskSpace::Scarce)),
            Action::AllowSteps => drop(self.services.disk_space.send_replace(DiskSpace::Enough)),
            Action::Finish(finish) => {
                let end = self.end_of(state, finish);
                self.finish(myself, state, end);
            }
        }
    }

    /// Sends a notice beside the mailbox.
    fn send_notice(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        notice: NoticeIntended,
    ) {
        let open = state.machine.state().notices().get(&notice.id);
        let attempt = open.map_or(1, |open| open.attempts.saturating_add(1));
        let (services, myself, id) = (self.services.clone(), myself.clone(), notice.id.clone());
        let send = async move { teller::tell(&services, &notice, attempt).await };
        state.work.start(Helper::Notice, send, move |sent| {
            let crashed = |panic: Panicked| {
                Err(NotSent { error: format!("it crashed ({panic})"), is_final: false })
            };
            let sent = sent.unwrap_or_else(crashed);
            // A supervisor that has ended needs no result.
            let _ = myself.send_message(SupervisorMsg::NoticeSent { id, sent });
        });
    }

    /// Tells the planner that the tasks of a proposal are part of the plan.
    fn tell_planner(&self, state: &State, call: &str) {
        let plans = state.machine.state().proposed_plans();
        if let Some(plan) = plans.iter().find(|plan| plan.key.as_str() == call)
            && let Some(planner) = &self.services.planner
        {
            planner.added(&plan.key, &plan.by, &plan.text);
        }
    }

    /// Returns the end of the run for whoever waits for it.
    fn end_of(&self, state: &State, finish: Finish) -> RunEnd {
        match finish {
            Finish::Completed(record) => {
                let results = self.services.store.results_dir().to_owned();
                let run = state.machine.state().clone();
                RunEnd::Completed(Box::new(Completed::new(run, *record, results)))
            }
            Finish::Paused(paused) => RunEnd::Paused(paused),
            Finish::DiskFull => RunEnd::JournalFailed(JournalError::Full),
            Finish::Broken(reason) => RunEnd::Broken(reason),
        }
    }

    /// Starts the actor of an agent whose only record is its first.
    async fn spawn_new(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        agent: AgentId,
        born: SharedRecord,
    ) {
        // The record is in memory, so the journal is not read. The first agent of a definition
        // still reads the descriptions of its skills from the disk.
        match Folded::of(&self.services, &agent, &vec![born].into()) {
            Ok(folded) => self.spawn(myself, state, agent, Box::new(folded)).await,
            Err(error) => Self::not_started(state, &agent, error.to_string()),
        }
    }

    pub(super) async fn spawn(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        id: AgentId,
        folded: Box<Folded>,
    ) {
        let run = state.machine.state();
        let Some(status) = run.agents().get(&id) else { return };
        let (task, right) = (status.task.clone(), RecordRight::default());
        let judged = status.parent.as_ref().filter(|_| status.check.is_some());
        let judged = judged.and_then(|main| match &run.agents().get(main)?.outcome {
            Some(Outcome::Completed { output }) => Some(output.clone()),
            _ => None,
        });
        let spec = state.machine.plan().task(&task);
        let agent = Agent {
            services: self.services.clone(),
            id: id.clone(),
            form: spec.map(|spec| spec.output).unwrap_or_default(),
            confinement: spec.map(|spec| spec.confinement).unwrap_or_default(),
            time_limit: spec.and_then(|spec| spec.timeout),
            // A check only looks: what it may have done is not asked about.
            on_unknown: spec.filter(|_| judged.is_none()).map(|s| s.on_unknown).unwrap_or_default(),
            task,
            right: right.clone(),
            judged,
        };
        match Actor::spawn_linked(None, agent, folded, myself.get_cell()).await {
            // The right is kept here too: if the actor is killed, its aborted step may still be
            // appending, and the right must be withdrawn before somebody else records the end.
            Ok((actor, _)) => {
                // Those that came while its records were read are not in its fold.
                for message in state.machine.state().messages().waiting_for(&id) {
                    let message = AgentMsg::Message(Box::new(message.clone()));
                    // If the actor has ended, its supervision event reports that.
                    let _ = actor.send_message(message);
                }
                state.agents_by_actor.insert(actor.get_id(), id.clone());
                state.rights.insert(id.clone(), right);
                state.agents.insert(id, actor);
            }
            Err(error) => Self::not_started(state, &id, error.to_string()),
        }
    }

    /// Reports an actor that could not be started to the machine, as one that crashed.
    fn not_started(state: &mut State, agent: &AgentId, error: String) {
        let now = state.now();
        state.machine.agent_gone(now, agent, Some(error));
    }

    /// Starts a task that folds an agent's records: reading them waits for the disk.
    fn fold(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State, agent: AgentId) {
        let records = state.unfinished.remove(&agent).map(|data| data.records);
        // The last actor of an agent that begins its next round may not be gone: its end was recorded,
        // and it stops by itself. It is no longer the agent's actor.
        let last = state.agents.remove(&agent);
        if let Some(last) = &last {
            state.agents_by_actor.remove(&last.get_id());
        }
        let (services, myself, id) = (self.services.clone(), myself.clone(), agent.clone());
        let (folded, running) = oneshot::channel();
        state.folding.insert(agent, Folding::Running(running));
        let of = id.clone();
        let work = async move {
            if let Some(last) = last {
                // Without a time limit, the wait cannot fail.
                let _ = last.wait(None).await;
            }
            fold(services, &of, records).await
        };
        state.work.start(Helper::Fold, work, move |end| {
            let end = end.unwrap_or_else(|panic| Err(FoldError::Records(panic.to_string())));
            // The result is sent before the mail, so that it is there when the mail is handled. A
            // supervisor that has ended needs neither.
            let _ = folded.send(end);
            let _ = myself.send_message(SupervisorMsg::Folded(id));
        });
    }

    /// Handles the result of folding an agent's records.
    pub(super) fn folded(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        agent: &AgentId,
    ) {
        let Some(Folding::Running(mut running)) = state.folding.remove(agent) else { return };
        match running.try_recv() {
            Ok(Ok(folded)) => {
                state.folding.insert(agent.clone(), Folding::Done(Box::new(folded)));
                let now = state.now();
                state.machine.agent_folded(now, agent);
            }
            Ok(Err(FoldError::Journal(error))) => {
                self.finish(myself, state, RunEnd::JournalFailed(error));
            }
            Ok(Err(FoldError::Records(error))) => Self::not_started(state, agent, error),
            // The result is sent before the mail.
            Err(_) => Self::not_started(state, agent, "its records were not folded".to_owned()),
        }
    }

    /// Starts a task that records the ends of agents without an actor.
    fn end_idle(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        ends: Vec<(AgentId, Outcome)>,
    ) {
        let mut idle = Vec::with_capacity(ends.len());
        for (id, outcome) in ends {
            state.folding.remove(&id);
            let Some(status) = state.machine.state().agents().get(&id) else { continue };
            let place = (status.task.clone(), status.depth);
            let records = state.unfinished.remove(&id).map(|data| data.records);
            idle.push(Ending { right: state.rights.remove(&id), records, id, place, outcome });
        }
        let services = self.services.clone();
        let record = async move {
            if let Err(error) = record_ends(&services, idle).await {
                services.tell_supervisor(SupervisorMsg::JournalFailed(error));
            }
        };
        state.work.start(Helper::IdleEnds, record, needed(myself, Helper::IdleEnds));
    }

    fn set_timer(myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        let next = state.machine.next_wake();
        if next == state.timer.as_ref().map(|(at, _)| *at) {
            return;
        }
        if let Some((_, timer)) = state.timer.take() {
            timer.abort();
        }
        if let Some(at) = next {
            let (myself, at_instant) = (myself.clone(), state.born + at);
            let sleep = tokio::time::sleep_until(at_instant);
            let timer = state.work.start(Helper::Timer, sleep, move |_| {
                let _ = myself.send_message(SupervisorMsg::Wake);
            });
            state.timer = Some((at, timer));
        }
    }
}

async fn fold(
    services: Arc<Services>,
    agent: &AgentId,
    records: Option<AgentRecords>,
) -> Result<Folded, FoldError> {
    let records = match records {
        Some(records) => records,
        None => records_of(&services.journal, agent).await?,
    };
    let id = agent.clone();
    let fold = move || Folded::of(&services, &id, &records);
    let folded = work::blocking(Helper::FoldRecords, fold).await;
    folded.unwrap_or_else(|error| Err(FoldError::Records(error.to_string())))
}

/// Returns the records of an agent whose actor has ended, including those that the actor gave to
/// the journal last.
async fn records_of(
    journal: &JournalHandle,
    agent: &AgentId,
) -> Result<AgentRecords, JournalError> {
    // Appends that are still in the queue are not among the agent's records yet.
    journal.flush().await?;
    journal.agent_records(agent).await.map(AgentRecords::Held)
}

/// An agent without an actor whose end is to be recorded.
struct Ending {
    /// The right of its last actor's steps to record; `None` if it never had an actor in this
    /// process.
    right: Option<RecordRight>,
    records: Option<AgentRecords>,
    id: AgentId,
    /// Its task and its delegation depth.
    place: (Name, u32),
    outcome: Outcome,
}

async fn record_ends(services: &Services, agents: Vec<Ending>) -> Result<(), JournalError> {
    let mut idle = Vec::with_capacity(agents.len());
    for Ending { right, records, id, place: (task, depth), outcome } in agents {
        if let Some(right) = right {
            // Waits for appends that have begun: the records read below must include them.
            right.withdraw().await;
        }
        let records = match records {
            Some(records) => records,
            None => records_of(&services.journal, &id).await?,
        };
        idle.push(Idle::new(id, task, depth, records, outcome));
    }
    ends::record(services, idle).await
}
