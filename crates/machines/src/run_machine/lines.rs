//! The lines before locks and slots as the records tell of them: what a task that could start lacks, who has it, and
//! how many come first.
//!
//! Pure. The machine of a live run keeps its lines in memory; a reader has the fold of the records alone. So the claims
//! since the run was opened are replayed here, in the queues of the machine itself. No record tells when an agent
//! wants its slot back, or that the program of an attempt is being rendered: such work is not in the lines.

use std::collections::BTreeMap;

use ahash::{HashMap, HashSet, HashSetExt};

use super::locks::{Lock, Locks};
use super::turns::{Owner, Precedence, Turns};
use crate::event::PlannedTask;
use crate::id::Name;
use crate::plan::TaskState;
use crate::run_state::{RunState, TaskStatus};

/// The thing that a task lacks before it can start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A lock.
    Lock {
        /// Its name.
        lock: Name,
        /// The task that has it.
        holder: Name,
        /// Number of tasks that get it before this one.
        ahead: usize,
    },
    /// A place among the instances of a fan-out that may be at work at the same time.
    Turn {
        /// The task that fans out.
        of: Name,
        /// The instances that have a place.
        holders: Vec<Name>,
        /// Number of instances that get one before this one.
        ahead: usize,
    },
    /// A slot.
    Slot {
        /// Number of tasks that get one before this one.
        ahead: usize,
        /// Number of tasks that wait for one.
        waiting: usize,
    },
}

/// The lines of a run.
#[derive(Debug, Default)]
pub struct Lines {
    names: Vec<Name>,
    places: HashMap<Name, usize>,
    locks: Locks,
    /// The tasks that have each lock, in the order of the plan, those at work first.
    holders: HashMap<Lock, Vec<usize>>,
    /// For each task that waits for a lock or a slot, the number of those that come first.
    ahead: HashMap<usize, usize>,
    /// Number of tasks that wait for a slot.
    for_slots: usize,
}

/// What happened to a claim, in the order in which it counts within one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Hold,
    Release,
    Claim,
    Begin,
}

/// A task of the run with what its claims follow from.
struct Claimant<'a> {
    place: usize,
    status: &'a TaskStatus,
    owner: Owner,
    precedence: Precedence,
    locks: Vec<Lock>,
    /// True if it begins an attempt of its own: it neither fans out nor asks a person.
    works: bool,
}

impl Lines {
    /// Derives the lines of a run at the wall time `now_ms`, in milliseconds since the Unix epoch. Takes time
    /// proportional to the run.
    #[must_use]
    pub fn of(state: &RunState, now_ms: i64) -> Self {
        let mut lines = Self::default();
        // Instances stand behind the tasks of the file, as in the plan of a machine.
        let (written, instances): (Vec<_>, Vec<_>) =
            state.tasks().partition(|(name, _)| name.of_instance().is_none());
        for (name, _) in written.into_iter().chain(instances) {
            lines.places.insert(name.clone(), lines.names.len());
            lines.names.push(name.clone());
        }
        let claimants = lines.claimants(state);
        lines.replay_locks(state, &claimants, now_ms);
        lines.note_holders(state);
        lines.count_ahead_at_locks();
        lines.count_ahead_at_slots(&claimants, now_ms);
        lines
    }

    /// Returns what a task that could start lacks; `None` if it stands in no line.
    #[must_use]
    pub fn need(&self, task: &Name) -> Option<Need> {
        let place = *self.places.get(task)?;
        let ahead = self.ahead.get(&place).copied();
        let Some(lock) = self.locks.missing(place) else {
            return ahead.map(|ahead| Need::Slot { ahead, waiting: self.for_slots });
        };
        let holders = self.holders.get(lock).into_iter().flatten();
        let mut holders = holders.map(|place| self.names[*place].clone());
        let ahead = ahead.unwrap_or_default();
        match lock {
            Lock::Named(name) => {
                let (lock, holder) = (name.clone(), holders.next()?);
                Some(Need::Lock { lock, holder, ahead })
            }
            Lock::FanOut { place, .. } => {
                let of = self.names[*place].clone();
                Some(Need::Turn { of, holders: holders.collect(), ahead })
            }
        }
    }

    fn claimants<'a>(&self, state: &'a RunState) -> Vec<Claimant<'a>> {
        let planned = state.created().map(|created| &*created.tasks).unwrap_or_default();
        let paths = self.paths(state, planned);
        let planned: HashMap<&str, &PlannedTask> =
            planned.iter().map(|task| (task.name.as_str(), task)).collect();
        let claimant = |(place, name): (usize, &Name)| {
            let fan_out = name.of_instance();
            let planned = *planned.get(fan_out.unwrap_or(name.as_str()))?;
            let of = fan_out.map(|_| self.places.get(&planned.name).copied());
            let limit = of.flatten().zip(planned.at_once);
            let limit = limit.map(|(place, most)| Lock::FanOut { place, most });
            let named = planned.locks.iter().cloned().map(Lock::Named);
            let mut locks: Vec<_> = named.chain(limit).collect();
            locks.sort_unstable();
            locks.dedup();
            let status = state.task(name)?;
            let needs_several = planned.locks.len() > 1;
            let precedence = Precedence::new(place, paths[place], status.ready_seq, needs_several);
            Some(Claimant {
                place,
                status,
                owner: of.flatten().map_or(Owner::Graph, Owner::Task),
                precedence,
                locks,
                works: !planned.approval && (fan_out.is_some() || !planned.fans_out),
            })
        };
        self.names.iter().enumerate().filter_map(claimant).collect()
    }

    /// Returns, by place, the number of tasks on the longest path of open tasks that waits for each.
    fn paths(&self, state: &RunState, planned: &[PlannedTask]) -> Vec<u32> {
        let mut dependencies: Vec<Vec<usize>> = vec![Vec::new(); self.names.len()];
        let mut left = vec![0_usize; self.names.len()];
        let is_open = |name: &Name| state.task(name).is_some_and(|task| !task.state.is_end());
        for task in planned.iter().filter(|task| is_open(&task.name)) {
            let Some(place) = self.places.get(&task.name) else { continue };
            let before = task.depends_on.iter().filter(|name| is_open(name));
            for before in before.filter_map(|name| self.places.get(name)) {
                dependencies[*place].push(*before);
                left[*before] += 1;
            }
        }
        let mut paths = vec![0; self.names.len()];
        let mut last: Vec<usize> = (0..left.len()).filter(|place| left[*place] == 0).collect();
        while let Some(place) = last.pop() {
            for before in &dependencies[place] {
                paths[*before] = paths[*before].max(paths[place] + 1);
                left[*before] -= 1;
                last.extend((left[*before] == 0).then_some(*before));
            }
        }
        paths
    }

    fn replay_locks(&mut self, state: &RunState, claimants: &[Claimant<'_>], now_ms: i64) {
        let opened = state.opening().at.seq;
        let mut changes: BTreeMap<(u64, Change), Vec<usize>> = BTreeMap::new();
        let mut had: Vec<(u64, usize)> = Vec::new();
        for (at, claimant) in claimants.iter().enumerate() {
            if claimant.locks.is_empty() || !claimant.works {
                continue;
            }
            let began = claimant.status.began_seq;
            had.extend((began > 0 && began < opened).then_some((began, at)));
            for (seq, change) in claimant.changes(opened, now_ms) {
                changes.entry((seq, change)).or_default().push(at);
            }
        }
        had.sort_unstable();
        for (_, at) in had {
            self.locks.had(claimants[at].owner, claimants[at].locks.clone());
        }
        let mut begun: HashSet<usize> = HashSet::new();
        // They are in the order of their places.
        let of_place = |place: usize| {
            let found = claimants.binary_search_by_key(&place, |one| one.place);
            found.ok().map(|at| &claimants[at])
        };
        for ((seq, change), of) in changes {
            for at in of {
                let claimant = &claimants[at];
                match change {
                    Change::Hold => {
                        claimant.hold(&mut self.locks);
                        begun.insert(claimant.place);
                    }
                    Change::Release => self.locks.release(claimant.place),
                    Change::Claim => claimant.claim(&mut self.locks),
                    Change::Begin => {
                        self.locks.release(claimant.place);
                        claimant.hold(&mut self.locks);
                        begun.insert(claimant.place);
                        // The replay may have given a lock to one that has not begun.
                        for over in self.locks.overdrawn(&claimant.locks) {
                            if let (false, Some(other)) = (begun.contains(&over), of_place(over)) {
                                self.locks.release(over);
                                other.claim(&mut self.locks);
                            }
                        }
                    }
                }
            }
            // At the opening all that could start claims before anything is given.
            if seq > opened || change == Change::Claim {
                self.locks.grant();
            }
        }
        self.locks.grant();
    }

    fn note_holders(&mut self, state: &RunState) {
        for (lock, task) in self.locks.held() {
            self.holders.entry(lock.clone()).or_default().push(task);
        }
        let is_at_work = |place: usize| {
            state.task(&self.names[place]).is_some_and(|task| task.state == TaskState::Running)
        };
        for tasks in self.holders.values_mut() {
            tasks.sort_unstable_by_key(|place| (!is_at_work(*place), *place));
        }
    }

    fn count_ahead_at_locks(&mut self) {
        let lines = self.locks.lines_in_order();
        for line in lines {
            self.ahead.extend(line.into_iter().enumerate().map(|(ahead, place)| (place, ahead)));
        }
    }

    fn count_ahead_at_slots(&mut self, claimants: &[Claimant<'_>], now_ms: i64) {
        let mut turns: Turns<(), Precedence> = Turns::default();
        let mut had: Vec<(u64, Owner)> = Vec::new();
        for Claimant { status, owner, place, .. } in claimants {
            let of_children = if *owner == Owner::Graph { Owner::Task(*place) } else { *owner };
            had.extend(status.agent.as_ref().map(|_| (status.began_seq, *owner)));
            had.push((status.child_seq, of_children));
        }
        had.retain(|(seq, _)| *seq > 0);
        had.sort_unstable();
        for (_, owner) in had {
            turns.had(owner);
        }
        let waits = |one: &&Claimant<'_>| {
            one.works && one.could_start(now_ms) && self.locks.missing(one.place).is_none()
        };
        for one in claimants.iter().filter(waits) {
            turns.insert((), one.owner, one.precedence);
        }
        for task in turns.in_order() {
            self.ahead.insert(task.task, self.for_slots);
            self.for_slots += 1;
        }
    }
}

impl Claimant<'_> {
    /// Returns true if it could start, but for locks and slots.
    fn could_start(&self, now_ms: i64) -> bool {
        match self.status.state {
            TaskState::Ready => true,
            TaskState::Waiting => self.status.retry_ms.is_some_and(|until| until <= now_ms),
            TaskState::Pending
            | TaskState::Running
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => false,
        }
    }

    /// Returns what happened to its claim since the run was opened, each with the number of the record.
    fn changes(&self, opened: u64, now_ms: i64) -> Vec<(u64, Change)> {
        let status = self.status;
        // After a pause between attempts no record tells when it claimed again.
        let claims = if status.pause_ms.is_some() { u64::MAX } else { status.ready_seq };
        let claims = claims.max(opened);
        let begins = match status.began_seq {
            0 => Vec::new(),
            began if began < opened => vec![(opened, Change::Hold)],
            began => vec![(claims.min(began), Change::Claim), (began, Change::Begin)],
        };
        match status.state {
            TaskState::Pending => Vec::new(),
            TaskState::Ready | TaskState::Waiting if self.could_start(now_ms) => {
                vec![(claims, Change::Claim)]
            }
            TaskState::Ready | TaskState::Waiting => Vec::new(),
            TaskState::Running => begins,
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Reused => match status.ended_seq > opened && status.ready_seq > 0 {
                true if begins.is_empty() => {
                    let claims = claims.min(status.ended_seq);
                    vec![(claims, Change::Claim), (status.ended_seq, Change::Release)]
                }
                true => begins.into_iter().chain([(status.ended_seq, Change::Release)]).collect(),
                false => Vec::new(),
            },
        }
    }

    fn claim(&self, locks: &mut Locks) {
        locks.claim(self.owner, self.precedence, self.locks.clone());
    }

    fn hold(&self, locks: &mut Locks) {
        locks.hold(self.owner, self.precedence, self.locks.clone());
    }
}

#[cfg(test)]
mod tests;
