//! What holds up a task or an agent that has not ended. Decides the relation, never the words.

use super::{Link, Relation, Subject, Why, link};
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::own_tool;
use crate::plan::{Standing, TaskState};
use crate::run_machine::lines::Need;
use crate::run_state::questions::Question;
use crate::run_state::scope_pauses::ScopePause;
use crate::run_state::{AgentStatus, AgentUse, Doing, ModelPause, Moment, Reading, TaskStatus};
use crate::spec::budget::Scope;
use crate::spec::spawn_rate::SpawnRate;

/// The most agents that a wait for a slot names.
const NAMED: usize = 8;

/// Returns the link of something that a person paused, which waits since then or since later.
fn paused(subject: Subject, since: Moment, (scope, pause): (&Scope, &ScopePause)) -> Link {
    let since = since.max(Moment { seq: pause.seq, ms: pause.ts_ms });
    let (by, reason) = (pause.by.clone(), pause.reason.clone());
    link(subject, Relation::PausedByPerson { scope: scope.clone(), by, reason }, since)
}

impl Why<'_> {
    pub(super) fn open_task(&self, name: &Name, task: &TaskStatus) -> Vec<Link> {
        let of_task = |relation| vec![link(Subject::Task(name.clone()), relation, task.since)];
        match task.state {
            TaskState::Pending => self.pending(name, task),
            TaskState::Ready => self.ready(name, task),
            TaskState::Waiting if task.question.is_some() => {
                match self.state.question_of_task(name) {
                    Some(question) => of_task(person(question)),
                    None => match self.state.pause_of_task(name) {
                        Some(pause) => vec![paused(Subject::Task(name.clone()), task.since, pause)],
                        None => of_task(Relation::BeingDecided),
                    },
                }
            }
            TaskState::Waiting => match (task.retry_ms, &task.failure) {
                (Some(until_ms), Some(failure)) if until_ms > self.now_ms => {
                    of_task(retry(failure.kind, task.attempt + 1, until_ms))
                }
                (Some(_), _) => self.ready(name, task),
                (None, Some(failure)) => {
                    of_task(Relation::WaitsForResume { failure: failure.kind })
                }
                (None, None) => of_task(Relation::BeingDecided),
            },
            TaskState::Running if !task.instances.is_empty() => self.fanned_out(name, task),
            TaskState::Running => self.running(name, task),
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => Vec::new(),
        }
    }

    /// Returns the causes of a task that waits for others: those that its `join` still needs.
    fn pending(&self, name: &Name, task: &TaskStatus) -> Vec<Link> {
        let of_task = |relation| link(Subject::Task(name.clone()), relation, task.since);
        let mut open = self.open_before(name);
        if open.is_empty() {
            return vec![of_task(Relation::BeingDecided)];
        }
        // What runs again is decided once all tasks before it have ended, whatever its join.
        let planned = self.planned(name).filter(|_| !task.again);
        let wanted = planned.and_then(|planned| Some((planned, planned.join.wanted()?)));
        if let Some((planned, wanted)) = wanted {
            let is_done = |name: &&Name| self.state.standing(name) == Standing::Done;
            let done = planned.depends_on.iter().filter(is_done).count();
            // The nearest to its end is what the task will start with.
            open.sort_by_key(|name| self.weight(name));
            let all = planned.depends_on.len();
            let of = |next: &Name| {
                of_task(Relation::WaitsForJoin { done, wanted, all, next: next.clone() })
            };
            return open.into_iter().map(of).collect();
        }
        self.heaviest_first(&mut open);
        let of = |of: &Name| of_task(Relation::WaitsForDependency { of: of.clone() });
        open.into_iter().map(of).collect()
    }

    /// Returns the cause of a task that could start, but for locks and slots.
    fn ready(&self, name: &Name, task: &TaskStatus) -> Vec<Link> {
        let of_task = |relation| vec![link(Subject::Task(name.clone()), relation, task.since)];
        if let Some((scope, pause)) = self.state.pause_of_task(name) {
            return vec![paused(Subject::Task(name.clone()), task.since, (scope, pause))];
        }
        match self.lines().need(name) {
            None => of_task(Relation::BeingDecided),
            Some(Need::Lock { lock, holder, ahead }) => {
                of_task(Relation::WaitsForLock { lock, holder, ahead })
            }
            Some(Need::Turn { of, holders, ahead }) => {
                let mut holders: Vec<_> = holders.iter().collect();
                self.heaviest_first(&mut holders);
                let Some(next) = holders.last().map(|name| (*name).clone()) else {
                    return of_task(Relation::BeingDecided);
                };
                of_task(Relation::WaitsForTurn { of, next, ahead })
            }
            Some(Need::Slot { ahead, waiting }) => {
                let working = self.working();
                let (running, taken) =
                    (working.iter().take(NAMED).cloned().collect(), working.len());
                of_task(Relation::WaitsForSlot { ahead, waiting, running, taken })
            }
        }
    }

    /// Returns the causes of a task whose instances are at work: each that is open.
    fn fanned_out(&self, name: &Name, task: &TaskStatus) -> Vec<Link> {
        let of_task = |relation| link(Subject::Task(name.clone()), relation, task.since);
        let all = task.instances.len();
        let instances = task.instances.iter().map(|(name, _)| name);
        let mut left: Vec<_> = instances.filter(|name| self.is_open(name)).collect();
        if left.is_empty() {
            return vec![of_task(Relation::WaitsForJudgement)];
        }
        self.heaviest_first(&mut left);
        let open = left.len();
        let of =
            |next: &Name| of_task(Relation::WaitsForInstances { open, all, next: next.clone() });
        left.into_iter().map(of).collect()
    }

    /// Returns the causes of an attempt: those of its agent, or what follows its answer.
    fn running(&self, name: &Name, task: &TaskStatus) -> Vec<Link> {
        let of_task = |relation| link(Subject::Task(name.clone()), relation, task.since);
        let main = task.agent.as_ref().and_then(|id| self.state.agents().get_key_value(id));
        if let Some((id, agent)) = main.filter(|(_, agent)| agent.outcome.is_none()) {
            return self.open_agent(id, agent);
        }
        let checks = self.state.checks_of_task(name).filter(|(_, check)| check.outcome.is_none());
        let checks = checks.map(|(id, _)| of_task(Relation::WaitsForCheck { check: id.clone() }));
        let mut found: Vec<_> = checks.collect();
        if let Some((_, agent)) = main.filter(|_| found.is_empty()) {
            let open = self.open_children(agent);
            let calls = open.len();
            let of = |child: AgentId| of_task(Relation::WaitsForChild { child, calls });
            found.extend(open.into_iter().map(of));
        }
        if found.is_empty() {
            found.push(match self.state.pause_of_task(name) {
                Some(pause) => paused(Subject::Task(name.clone()), task.since, pause),
                None => of_task(Relation::WaitsForJudgement),
            });
        }
        found
    }

    pub(super) fn open_agent(&self, id: &AgentId, agent: &AgentStatus) -> Vec<Link> {
        let of_agent = |relation| link(Subject::Agent(id.clone()), relation, agent.since);
        let asked = agent.asked.iter().filter_map(|id| self.state.questions().get(id));
        let found: Vec<_> = asked.map(|question| of_agent(person(question))).collect();
        if !found.is_empty() {
            return found;
        }
        if self.state.agent_use(id) == AgentUse::Held {
            return vec![of_agent(Relation::WaitsForContent { of: agent.task.clone() })];
        }
        let pause = self.state.pause_of_agent(id).filter(|_| self.is_about_to_call(agent));
        if let Some(pause) = pause {
            return vec![paused(Subject::Agent(id.clone()), agent.since, pause)];
        }
        let budgets = self.budgets(id, agent);
        if !budgets.is_empty() {
            return budgets;
        }
        match &agent.doing {
            // A fold of the records by which a run decides knows of children, and not of the calls behind them.
            Doing::Starting if self.has_open_children(agent) => self.children(id, agent, 0),
            // The answer is recorded, and the agent has not gone on yet.
            Doing::Person | Doing::Starting | Doing::Nothing => {
                vec![of_agent(Relation::AboutToAct)]
            }
            Doing::Model => {
                let (model, turn) = (agent.model_called().cloned(), agent.turn);
                vec![of_agent(Relation::InModelCall { model, turn })]
            }
            Doing::Retrying(ModelPause { until_ms, .. }) if *until_ms <= self.now_ms => {
                let (model, turn) = (None, agent.turn);
                vec![of_agent(Relation::InModelCall { model, turn })]
            }
            Doing::Retrying(ModelPause { until_ms, kind, attempt }) => {
                vec![of_agent(retry(*kind, *attempt, *until_ms))]
            }
            Doing::Compaction => vec![of_agent(Relation::InCompaction)],
            Doing::Children => self.children(id, agent, 1),
            Doing::Tools(tools) => self.tools(id, agent, tools),
        }
    }

    /// Returns the causes of an agent whose calls are under way: tools that run come before children.
    fn tools(&self, id: &AgentId, agent: &AgentStatus, tools: &[String]) -> Vec<Link> {
        let (waits, run): (Vec<_>, Vec<_>) =
            tools.iter().cloned().partition(|tool| own_tool::waits_for_children(tool));
        let mut found = Vec::new();
        if !run.is_empty() {
            let relation = Relation::InTool { tools: run };
            found.push(link(Subject::Agent(id.clone()), relation, agent.since));
        }
        if !waits.is_empty() {
            found.extend(self.children(id, agent, waits.len()));
        }
        found
    }

    /// Returns the causes of an agent of which this many calls wait for children.
    fn children(&self, id: &AgentId, agent: &AgentStatus, calls: usize) -> Vec<Link> {
        let of_agent = |relation| link(Subject::Agent(id.clone()), relation, agent.since);
        let open = self.open_children(agent);
        let (begun, calls) = (open.len(), calls.max(open.len()));
        let of = |child: AgentId| of_agent(Relation::WaitsForChild { child, calls });
        let mut found: Vec<_> = open.into_iter().map(of).collect();
        // The answer of a child that has ended may be on its way to the journal instead.
        let children = calls - begun;
        let ended = agent.children.len() > begun;
        if children > 0 {
            match self.spawn_rate() {
                Some((rate, until_ms)) => {
                    let relation = Relation::WaitsForSpawnRate { children, rate, until_ms };
                    found.push(of_agent(relation));
                }
                None if begun > 0 || !ended => {
                    found.push(of_agent(Relation::WaitsForStart { children }));
                }
                None => {}
            }
        }
        if found.is_empty() {
            found.push(of_agent(Relation::AboutToAct));
        }
        found
    }

    /// Returns the limit on children that begin in a time, and when another one may begin, if none may now.
    fn spawn_rate(&self) -> Option<(SpawnRate, i64)> {
        let rate = self.state.max_spawn_rate()?;
        let at = rate.next(self.state.children_began().into_iter())?;
        let left = at.checked_sub(self.state.reading().since(Reading::default()))?;
        // The clock of the run stood at the last record; since then the one on the wall went on.
        let until_ms = self.state.last_ms() + i64::try_from(left.as_millis()).ok()?;
        (until_ms > self.now_ms).then_some((rate, until_ms))
    }

    /// Returns true if an agent waits for children, as far as the records tell that know of no calls.
    pub(super) fn has_open_children(&self, agent: &AgentStatus) -> bool {
        // Itself is one of those that are open.
        agent.open > 1 && self.begun_children(agent).any(|(_, child)| !child.background)
    }

    fn begun_children<'b>(
        &'b self,
        agent: &'b AgentStatus,
    ) -> impl Iterator<Item = (&'b AgentId, &'b AgentStatus)> {
        let known = agent.children.iter().filter_map(|id| self.state.agents().get_key_value(id));
        known.filter(|(_, child)| child.open > 0 && child.check.is_none())
    }

    /// Returns the children of an agent that have not ended, those first that wait for a person.
    fn open_children(&self, agent: &AgentStatus) -> Vec<AgentId> {
        let mut open: Vec<_> = self.begun_children(agent).collect();
        open.sort_by_key(|(id, child)| child.asked.is_empty() && !self.rests(id, child));
        open.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// Returns the agents that have a slot, as far as records tell: those that have begun and wait neither for
    /// children nor for a person. Those that began first come first.
    fn working(&self) -> &[AgentId] {
        self.working.get_or_init(|| {
            let agents = self.state.agents().iter();
            let works = |agent: &AgentStatus| match &agent.doing {
                Doing::Starting => !self.has_open_children(agent),
                Doing::Model | Doing::Retrying(_) | Doing::Compaction => true,
                Doing::Tools(tools) => !tools.iter().all(|tool| own_tool::waits_for_children(tool)),
                Doing::Person | Doing::Children | Doing::Nothing => false,
            };
            let open = agents.filter(|(id, agent)| {
                agent.outcome.is_none()
                    && works(agent)
                    && !self.rests(id, agent)
                    && self.state.agent_use(id) == AgentUse::Current
            });
            let mut open: Vec<_> = open.collect();
            open.sort_by_key(|(_, agent)| agent.since);
            open.into_iter().map(|(id, _)| id.clone()).collect()
        })
    }
}

fn person(question: &Question) -> Relation {
    let asked = &question.asked;
    Relation::WaitsForPerson {
        id: asked.id.clone(),
        asked: asked.kind,
        message: asked.message.clone(),
    }
}

fn retry(failure: FailureKind, attempt: u32, until_ms: i64) -> Relation {
    match failure {
        FailureKind::RateLimit => Relation::WaitsForRateLimit { attempt, until_ms },
        _ => Relation::WaitsForRetry { failure, attempt, until_ms },
    }
}
