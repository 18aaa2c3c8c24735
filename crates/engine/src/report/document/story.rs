//! The story of a run: what its state does not keep, folded from its records. The prompts, the
//! attempts that failed, and what waited for how long.
//!
//! Pure. Bounded: long prompts are cut, and waits beyond a number are counted.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::circles::{Circles, Circling};
use crate::event::{Event, PauseCause, Record, RunOpened};
use crate::failure::Failure;
use crate::id::{AgentId, Name};
use crate::journal::stamp;
use crate::turn::Program;

/// The most characters of a prompt or a command that are kept.
const ASKED: usize = 2_000;

/// The most waits that are kept: a day of retries every ten seconds.
const WAITS: usize = 10_000;

/// An attempt that failed and was followed by another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Number of the attempt.
    pub attempt: u32,
    /// Time of its failure.
    pub at: String,
    /// The failure.
    pub error: Failure,
}

/// A time in which something waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// `pause` of the run, `death` of its process, `provider`, `person`, `retry` of a task or `call` of a model.
    pub kind: &'static str,
    /// The task, the agent or the provider that waited; empty for the run.
    pub who: String,
    /// The reason.
    pub why: String,
    /// Time of its beginning.
    pub from: String,
    /// Its length in milliseconds, up to now if it has not ended.
    pub ms: i64,
    /// True if it had not ended with the last record.
    pub open: bool,
    /// Who ended a pause or a death by a resume, or answered: `user@host/pid`. Absent if nobody did.
    pub by: Option<String>,
}

/// The story of a run.
#[derive(Clone, Debug, Default)]
pub struct Story {
    began_ms: Option<i64>,
    last_ms: i64,
    /// True after a record of its end, until it is opened again.
    has_ended: bool,
    cause: Option<PauseCause>,
    tasks: HashMap<Name, Told>,
    waits: Vec<(i64, Wait)>,
    left_out: u64,
    circles: Circles,
    /// The places of waits that have not ended, by what will end them.
    open: HashMap<(&'static str, String), usize>,
    /// The ids of the questions of each that asked one.
    asked: HashMap<Asker, Vec<String>>,
}

/// Who waits for the answer of a person.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asker {
    Task(Name),
    Agent(AgentId),
}

#[derive(Clone, Debug, Default)]
struct Told {
    asked: Option<String>,
    retries: Vec<Retry>,
}

impl Story {
    /// Folds a record.
    pub fn apply(&mut self, record: &Record) {
        self.circles.apply(record);
        let now = record.ts_ms;
        let had_begun = self.began_ms.is_some();
        self.began_ms.get_or_insert(now);
        let last_ms = std::mem::replace(&mut self.last_ms, now);
        let task = record.task.as_ref();
        let who = record.agent.as_ref().map(ToString::to_string);
        match &record.event {
            Event::RunPaused(paused) => {
                self.cause = Some(paused.cause);
                self.begin("pause", String::new(), String::new(), &paused.reason, now);
            }
            Event::RunCompleted(_) => {
                self.has_ended = true;
                self.end_all(now);
            }
            Event::RunOpened(opened) => {
                // The first opening follows the first record of the run.
                let has_stopped = self.cause.take().is_some() | std::mem::take(&mut self.has_ended);
                let died = !has_stopped && had_begun && record.epoch > 1;
                if died {
                    let why = "the process that drove the run ended without a record";
                    self.begin("death", String::new(), String::new(), why, last_ms);
                }
                let kind = if died { "death" } else { "pause" };
                self.end_by(kind, "", now, opened.by.as_deref());
                self.decide_anew(opened, now);
            }
            Event::AgentSpawned(spawned) if spawned.parent.is_none() => {
                let text = match &spawned.program {
                    Program::Model { prompt, .. } => prompt.beginning(),
                    Program::Command(command) => &command.run,
                };
                let told = task.map(|task| self.tasks.entry(task.clone()).or_default());
                if let Some(told) = told {
                    told.asked.get_or_insert_with(|| text.chars().take(ASKED).collect());
                }
            }
            Event::TaskRetrying(retrying) => {
                let Some(task) = task else { return };
                let (attempt, error) = (retrying.attempt, retrying.failure.clone());
                self.begin("retry", task.to_string(), task.to_string(), &error.to_string(), now);
                let told = self.tasks.entry(task.clone()).or_default();
                told.retries.push(Retry { attempt, at: stamp::text(now), error });
            }
            Event::TaskStarted(_)
            | Event::TaskCompleted(_)
            | Event::TaskFailed(_)
            | Event::TaskSkipped(_)
            | Event::TaskCancelled(_)
            | Event::TaskReused(_) => {
                let Some(task) = task else { return };
                self.end("retry", task.as_str(), now);
                self.end_questions(&Asker::Task(task.clone()), now);
            }
            Event::AgentEnded(_) => {
                let asker = record.agent.clone().map(Asker::Agent);
                asker.iter().for_each(|asker| self.end_questions(asker, now));
            }
            Event::ApprovalAsked(asked) => {
                let of_task = task.map(|task| (Asker::Task(task.clone()), task.to_string()));
                let of_agent = record.agent.clone();
                let of_agent = of_agent.map(|id| (Asker::Agent(id.clone()), id.to_string()));
                let Some((asker, who)) = of_agent.or(of_task) else { return };
                self.begin("person", asked.id.clone(), who, &asked.message, now);
                self.asked.entry(asker).or_default().push(asked.id.clone());
            }
            Event::ApprovalAnswered(answered) => {
                self.end_by("person", &answered.id, now, answered.by.as_deref());
            }
            Event::GatewayParked(parked) => {
                let provider = parked.provider.to_string();
                self.begin("provider", provider.clone(), provider, &parked.reason, now);
            }
            Event::GatewayResumed(resumed) => self.end("provider", resumed.provider.as_str(), now),
            Event::ModelFailed(failed) if !failed.cut => {
                let Some(pause) = failed.retry_in_ms else { return };
                let who = who.unwrap_or_default();
                let why = failed.failure.to_string();
                let place = self.begin("call", who.clone(), who.clone(), &why, now);
                // It is over when the time has passed, whatever comes then.
                let pause = i64::try_from(pause).unwrap_or(i64::MAX);
                self.end("call", &who, now.saturating_add(pause));
                debug_assert!(place.is_none_or(|place| !self.waits[place].1.open));
            }
            _ => {}
        }
    }

    /// Returns the cause of the pause in which the run is, if it is paused.
    #[must_use]
    pub fn pause(&self) -> Option<PauseCause> {
        self.cause
    }

    /// Returns the attempts of a task that failed, and what was asked of it.
    pub(super) fn of(&self, task: &Name) -> (Vec<Retry>, Option<String>) {
        let told = self.tasks.get(task).cloned().unwrap_or_default();
        (told.retries, told.asked)
    }

    /// Returns the agents that went in circles, and the number of steps of those left out.
    pub(super) fn take_circles(&mut self) -> (Vec<Circling>, u64) {
        std::mem::take(&mut self.circles).into_all()
    }

    /// Returns the waits, the number of those left out, and the time of the first record.
    pub(super) fn into_waits(mut self, now_ms: i64) -> (Vec<Wait>, u64, Option<i64>) {
        for place in self.open.into_values() {
            let (from, wait) = &mut self.waits[place];
            wait.ms = (now_ms - *from).max(0);
        }
        let waits = self.waits.into_iter().map(|(_, wait)| wait).collect();
        (waits, self.left_out, self.began_ms)
    }

    /// Ends what waits for tasks that are decided anew, or that are no longer in the plan.
    fn decide_anew(&mut self, opened: &RunOpened, now_ms: i64) {
        let again = opened.retried.iter().chain(&opened.reopened).cloned();
        again.for_each(|task| self.end_questions(&Asker::Task(task), now_ms));
        let Some(accepted) = &opened.accepted else { return };
        let gates = self.asked.keys().filter(|asker| matches!(asker, Asker::Task(_)));
        let gates: Vec<_> = gates.cloned().collect();
        gates.iter().for_each(|gate| self.end_questions(gate, now_ms));
        let planned: HashSet<_> = accepted.tasks.iter().map(|task| task.name.as_str()).collect();
        // The instances of a fan-out are not in the plan: their task is.
        let is_planned = |name: &str| name.split('[').next().is_some_and(|of| planned.contains(of));
        let retries = self.open.keys().filter(|(kind, _)| *kind == "retry");
        let gone = retries.filter(|(_, task)| !is_planned(task));
        let gone: Vec<_> = gone.map(|(_, task)| task.clone()).collect();
        gone.iter().for_each(|task| self.end("retry", task, now_ms));
    }

    /// Ends the waits for answers that an asker needs no more.
    fn end_questions(&mut self, asker: &Asker, now_ms: i64) {
        for id in self.asked.remove(asker).unwrap_or_default() {
            self.end("person", &id, now_ms);
        }
    }

    /// Ends everything that waits: the run has ended.
    fn end_all(&mut self, now_ms: i64) {
        let open: Vec<_> = self.open.keys().cloned().collect();
        for (kind, key) in open {
            self.end(kind, &key, now_ms);
        }
        self.asked.clear();
    }

    fn begin(
        &mut self,
        kind: &'static str,
        key: String,
        who: String,
        why: &str,
        from_ms: i64,
    ) -> Option<usize> {
        // The same thing waits again: the time before it is over.
        self.end(kind, &key, from_ms);
        if self.waits.len() >= WAITS {
            self.left_out += 1;
            return None;
        }
        let (from, why) = (stamp::text(from_ms), why.chars().take(ASKED).collect());
        let place = self.waits.len();
        self.waits.push((from_ms, Wait { kind, who, why, from, ms: 0, open: true, by: None }));
        self.open.insert((kind, key), place);
        Some(place)
    }

    fn end(&mut self, kind: &'static str, key: &str, now_ms: i64) {
        self.end_by(kind, key, now_ms, None);
    }

    fn end_by(&mut self, kind: &'static str, key: &str, now_ms: i64, by: Option<&str>) {
        let Some(place) = self.open.remove(&(kind, key.to_owned())) else { return };
        let (from, wait) = &mut self.waits[place];
        wait.ms = now_ms.saturating_sub(*from).max(0);
        wait.open = false;
        wait.by = by.map(str::to_owned);
    }
}
