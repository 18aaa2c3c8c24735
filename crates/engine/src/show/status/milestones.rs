//! What a person wants to read of a run between the start and the end of its tasks: that some work for long, and how
//! far a large fan-out is. Retries, fallbacks and compactions have lines of their own, from their records.
//!
//! Pure. Folded from the same records as the status. A record costs the same whatever the size of the run, and an agent
//! is looked at only when its time has come.

use std::collections::{BTreeSet, HashMap};

use super::{Status, long};
use crate::event::{Event, Record};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::run_state::AgentStatus;
use crate::show::why::column;
use crate::why::Subject;

/// The time after which a task is said to be still running, in milliseconds. The next times are twice as long each.
const FIRST_MS: i64 = 5 * 60_000;

/// The time without a record from which that is said too, in milliseconds.
const QUIET_MS: i64 = 2 * 60_000;

/// The most agents that one line describes.
const DESCRIBED: usize = 3;

/// The least instances of a fan-out whose quarters are said: of fewer, each has a line.
const LEAST_INSTANCES: usize = 20;

/// A line of the log that belongs to no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// The recorded name of the agent or task; `None` for the run.
    pub name: Option<String>,
    /// The line.
    pub text: String,
}

/// What is known for the next milestones.
#[derive(Clone, Debug, Default)]
pub(super) struct Milestones {
    /// The main agents at work, each with the time of its next line, in milliseconds since the Unix epoch.
    due: BTreeSet<(i64, AgentId)>,
    /// When each of them began in this process, and the time of its next line.
    began: HashMap<AgentId, (i64, i64)>,
    /// The instances of each fan-out that have ended, once one of them has.
    quarters: HashMap<Name, Quarters>,
    /// The lines about fan-outs that were not taken yet.
    passed: Vec<Milestone>,
}

#[derive(Clone, Copy, Debug)]
struct Quarters {
    all: usize,
    ended: usize,
    failed: usize,
}

impl Milestones {
    fn begins(&mut self, agent: &AgentId, now_ms: i64) {
        self.ends(agent);
        let due = now_ms.saturating_add(FIRST_MS);
        self.began.insert(agent.clone(), (now_ms, due));
        self.due.insert((due, agent.clone()));
    }

    fn ends(&mut self, agent: &AgentId) {
        if let Some((_, due)) = self.began.remove(agent) {
            self.due.remove(&(due, agent.clone()));
        }
    }

    /// Takes the agents whose time has come, with the time since they began. The next time is twice as far.
    fn take_due(&mut self, now_ms: i64) -> Vec<(AgentId, i64)> {
        let mut taken = Vec::new();
        while let Some((due, _)) = self.due.first()
            && *due <= now_ms
            && let Some((_, agent)) = self.due.pop_first()
            && let Some((began, next)) = self.began.get_mut(&agent)
        {
            let since = now_ms - *began;
            *next = now_ms.saturating_add(since);
            self.due.insert((*next, agent.clone()));
            taken.push((agent, since));
        }
        taken
    }
}

impl Status {
    /// Takes from a record what milestones need. The state has the record already.
    pub(super) fn note_milestones(&mut self, record: &Record) {
        match (&record.event, &record.agent, &record.task) {
            (Event::RunOpened(_), ..) => {
                // What worked before this process does so again from here on.
                let open = self.open().filter(|(_, agent)| agent.parent.is_none());
                let open: Vec<_> = open.map(|(id, _)| id.clone()).collect();
                open.iter().for_each(|id| self.milestones.begins(id, record.ts_ms));
            }
            (Event::AgentSpawned(spawned), Some(id), _) if spawned.parent.is_none() => {
                self.milestones.begins(id, record.ts_ms);
            }
            (Event::AgentEnded(_), Some(id), _) => self.milestones.ends(id),
            (Event::TaskStarted(started), _, Some(task)) if started.instances.is_some() => {
                self.milestones.quarters.remove(task);
            }
            (
                Event::TaskCompleted(_)
                | Event::TaskReused(_)
                | Event::TaskFailed(_)
                | Event::TaskSkipped(_)
                | Event::TaskCancelled(_),
                _,
                Some(task),
            ) => self.note_instance(task),
            _ => {}
        }
    }

    /// Counts an instance that has ended, and says it if that completes a quarter.
    fn note_instance(&mut self, instance: &Name) {
        let Some(task) = instance.of_instance().and_then(|task| Name::of_record(task).ok()) else {
            return;
        };
        let has_failed = |name: &Name| {
            self.state.task(name).is_some_and(|status| status.state == TaskState::Failed)
        };
        let counted = match self.milestones.quarters.get(&task) {
            Some(Quarters { all, ended, failed }) => {
                let failed = failed + usize::from(has_failed(instance));
                Quarters { all: *all, ended: ended + 1, failed }
            }
            // The first that is seen of this fan-out: once for each of them all are looked at.
            None => {
                let Some(status) = self.state.task(&task) else { return };
                let names = || status.instances.iter().map(|(name, _)| name);
                let has_ended =
                    |name: &&Name| self.state.task(name).is_some_and(|of| of.state.is_end());
                Quarters {
                    all: names().count(),
                    ended: names().filter(has_ended).count(),
                    failed: names().filter(|name| has_failed(name)).count(),
                }
            }
        };
        let Quarters { all, ended, failed } = counted;
        self.milestones.quarters.insert(task.clone(), counted);
        let quarter = |ended: usize| 4 * ended / all.max(1);
        let is_passed = quarter(ended) > quarter(ended.saturating_sub(1));
        if all >= LEAST_INSTANCES && ended < all && is_passed {
            let percent = 25 * quarter(ended);
            let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            let text = format!("{ended} of {all} instances have ended ({percent} %){failed}");
            self.milestones.passed.push(Milestone { name: Some(task.to_string()), text });
        }
    }

    /// Takes the lines about fan-outs since the last call.
    pub fn take_passed(&mut self) -> Vec<Milestone> {
        std::mem::take(&mut self.milestones.passed)
    }

    /// Takes the line about tasks that have been running for long, if the time of any has come: after 5 minutes, 10,
    /// 20 and so on, for several of them in one line. Children are not named: their tasks are.
    pub fn take_still_running(&mut self, now_ms: i64) -> Option<Milestone> {
        let mut due = self.milestones.take_due(now_ms);
        due.sort_by_key(|(_, since)| std::cmp::Reverse(*since));
        let why = self.why(now_ms);
        let words = |id: &AgentId| {
            let agent = self.state.agents().get(id);
            agent.map_or_else(Vec::new, |agent| {
                let subject = Subject::Agent(id.clone());
                let waits_for = column(&why, &subject, &self.names, now_ms);
                parts(agent, waits_for, now_ms)
            })
        };
        match &due[..] {
            [] => None,
            [(id, since)] => {
                let mut text = format!("still running after {}", long(*since));
                let parts = words(id);
                if !parts.is_empty() {
                    text.push_str(&format!(": {}", parts.join(", ")));
                }
                Some(Milestone { name: Some(id.to_string()), text })
            }
            [(_, longest), ..] => {
                let described = due.iter().take(DESCRIBED).map(|(id, _)| {
                    let (name, parts) = (self.names.shown(id.as_str()), words(id));
                    match parts.is_empty() {
                        true => name.into_owned(),
                        false => format!("{name} ({})", parts.join(", ")),
                    }
                });
                let mut all: Vec<_> = described.collect();
                if due.len() > DESCRIBED {
                    all.push(format!("and {} more", due.len() - DESCRIBED));
                }
                let (count, longest) = (due.len(), long(*longest));
                let text = format!(
                    "{count} tasks are still running, the longest for {longest}: {}",
                    all.join(", ")
                );
                Some(Milestone { name: None, text })
            }
        }
    }
}

/// Returns the turn, the activity and the cost of an agent, and how long nothing has come of it.
fn parts(agent: &AgentStatus, waits_for: Option<String>, now_ms: i64) -> Vec<String> {
    let mut parts = Vec::new();
    if agent.turn > 0 {
        parts.push(format!("turn {}", agent.turn));
    }
    parts.extend(waits_for.map(|what| format!("waits for {what}")));
    let cost = agent.inclusive.cost_usd().filter(|cost| *cost > 0.0);
    parts.extend(cost.map(|cost| format!("${cost:.2}")));
    let quiet = now_ms - agent.last_ms;
    if quiet >= QUIET_MS {
        parts.push(format!("nothing new for {}", long(quiet)));
    }
    parts
}
