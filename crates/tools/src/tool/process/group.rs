//! Process groups: each is signalled as a whole, and killed when its owner drops it.
//!
//! Owns the one list of the groups that this program has running.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

use crate::id::CallKey;
use crate::turn::Process;

/// Environment variable that holds the idempotency key of the call, for commands that can use one.
pub(in crate::tool) const KEY_VARIABLE: &str = "CALLSHEET_IDEMPOTENCY_KEY";

/// Pause between two checks of a group that has time to end: much shorter than any grace period
/// that a person would set.
const POLL: Duration = Duration::from_millis(20);

/// Time for a wrapper whose parent is gone to store its result after its grace: a few syncs of a slow
/// disk.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Time for a killed group to be gone: only a process that waits for a broken device takes longer.
const AFTER_KILL: Duration = Duration::from_secs(5);

static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Groups that were killed when their owner dropped them, and that may not be gone yet.
static KILLED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Kills every process group that tools have running, for the end of the program, when there is no
/// time to wait for the calls.
pub fn kill_all_groups() {
    for id in LIVE.lock().iter().copied().filter_map(Pid::from_raw) {
        signal(id, Signal::KILL);
    }
}

/// Waits until the groups are gone that were killed because their calls were given up: a signal
/// takes effect a moment after it was sent. Waits at most five seconds, because a process that
/// waits for a broken device does not end.
pub async fn killed_groups_are_gone() {
    let killed: Vec<i32> = KILLED.lock().iter().copied().collect();
    if killed.is_empty() {
        return;
    }
    let wait = move || {
        let deadline = Instant::now() + AFTER_KILL;
        for number in killed {
            let left = deadline.saturating_duration_since(Instant::now());
            if Pid::from_raw(number).is_none_or(|group| is_gone_within(group, left)) {
                KILLED.lock().remove(&number);
            }
        }
    };
    // A task of the blocking pool is lost only when the runtime shuts down.
    let _ = tokio::task::spawn_blocking(wait).await;
}

/// A process group that this program started or leads. Dropping it kills the processes left in it.
#[derive(Debug)]
pub(in crate::tool) struct Group {
    id: Pid,
    /// This process, if it is itself a member of the group: [`Group::end`] does not kill it.
    spared: Option<Pid>,
    gone: bool,
}

impl Group {
    /// Returns the group that the process `leader` was started in, which has the same number.
    pub(in crate::tool) fn led_by(leader: u32) -> Option<Self> {
        let id = Pid::from_raw(i32::try_from(leader).ok()?)?;
        LIVE.lock().insert(id.as_raw_nonzero().get());
        Some(Self { id, spared: None, gone: false })
    }

    /// Returns the group of this process. Processes that it starts without a group of their own are
    /// members too.
    pub(in crate::tool) fn own() -> Self {
        let spared = Some(rustix::process::getpid());
        Self { id: rustix::process::getpgrp(), spared, gone: false }
    }

    /// Returns the number of the group.
    pub(in crate::tool) fn number(&self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    /// Kills the group, and with it this process if it is a member.
    pub(in crate::tool) fn kill_all(&self) {
        signal(self.id, Signal::KILL);
    }

    /// Returns true if any process of the group is at work. Once a check has found none, the group
    /// is never signalled again: the system may give its number to another group.
    pub(super) async fn is_alive(&mut self) -> bool {
        let (id, spared) = (self.id, self.spared);
        if !self.gone {
            let alive = tokio::task::spawn_blocking(move || has_members(id, spared)).await;
            self.gone = !alive.unwrap_or(true);
        }
        !self.gone
    }

    /// Asks the group to end, and kills it when the grace period is over. Returns true if all its
    /// processes ended within the grace period.
    pub(in crate::tool) async fn end(&mut self, grace: Duration) -> bool {
        signal(self.id, Signal::TERM);
        // A stopped process receives SIGTERM only after it continues.
        signal(self.id, Signal::CONT);
        let ended = async {
            while self.is_alive().await {
                tokio::time::sleep(POLL).await;
            }
        };
        let in_time = tokio::time::timeout(grace, ended).await.is_ok();
        if !in_time {
            self.kill();
        }
        in_time
    }

    fn kill(&self) {
        match self.spared {
            None => signal(self.id, Signal::KILL),
            Some(spared) => kill_others(self.id, spared),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let is_killed = !self.gone;
        if is_killed {
            self.kill();
        }
        if self.spared.is_none() {
            LIVE.lock().remove(&self.number());
            if is_killed {
                let mut killed = KILLED.lock();
                // Those that nobody waited for leave when the next joins, so that the list stays
                // short.
                killed.retain(|number| {
                    let group = Pid::from_raw(*number);
                    group.is_some_and(|group| {
                        rustix::process::test_kill_process_group(group).is_ok()
                    })
                });
                killed.insert(self.number());
            }
        }
    }
}

/// Sends a signal to a group. Ignores errors: a group that is gone cannot be signalled, and need
/// not be.
fn signal(group: Pid, signal: Signal) {
    let _gone = rustix::process::kill_process_group(group, signal);
}

/// Kills a group except for one process. Stops all of them first, because a shell whose command is
/// killed before the shell itself would run its next command.
fn kill_others(group: Pid, spared: Pid) {
    let mut stopped = BTreeSet::new();
    // A process may start another between the listing and the stop, so this repeats until a listing
    // holds nothing new.
    while let Some(others) = members(group, Some(spared)) {
        let found: BTreeSet<_> = others.iter().map(|pid| pid.as_raw_nonzero()).collect();
        if found.is_subset(&stopped) {
            break;
        }
        send(&others, Signal::STOP);
        stopped.extend(found);
    }
    send(&members(group, Some(spared)).unwrap_or_default(), Signal::KILL);
}

/// Sends a signal to processes. Ignores errors: a process that is gone cannot be signalled, and
/// need not be.
fn send(processes: &[Pid], signal: Signal) {
    for process in processes {
        let _gone = rustix::process::kill_process(*process, signal);
    }
}

/// Returns true if the group has a process at work, except for the one that is spared.
fn has_members(group: Pid, spared: Option<Pid>) -> bool {
    let exists = rustix::process::test_kill_process_group(group).is_ok();
    exists && members(group, spared).is_none_or(|members| !members.is_empty())
}

/// Returns the processes of a group without zombies. A zombie waits for the process that adopted
/// it, in a container possibly for ever. Returns `None` if `/proc` cannot be read.
fn members(group: Pid, spared: Option<Pid>) -> Option<Vec<Pid>> {
    let mut members = Vec::new();
    let mut looked = false;
    for process in std::fs::read_dir("/proc").ok()?.filter_map(Result::ok) {
        // Entries that are no number name this process and its threads once more.
        let number = process.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(stat) = number.and_then(Pid::from_raw).and_then(Stat::of) else { continue };
        looked = true;
        if stat.group == group.as_raw_nonzero().get() && stat.is_at_work && Some(stat.pid) != spared
        {
            members.push(stat.pid);
        }
    }
    looked.then_some(members)
}

/// The state of a process, from `/proc/PID/stat`.
struct Stat {
    pid: Pid,
    group: i32,
    is_at_work: bool,
    /// Start time in clock ticks since the machine started.
    start: u64,
}

impl Stat {
    fn of(pid: Pid) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // `pid (name) state parent group ...`; the name may hold any character, also `)`.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_whitespace().collect();
        Some(Self {
            pid,
            group: fields.get(2)?.parse().ok()?,
            is_at_work: !matches!(fields.first(), Some(&"Z" | &"X")),
            start: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns the start time of the group's leader in clock ticks since the machine started.
pub(in crate::tool) fn start_of(group: &Group) -> Option<u64> {
    Stat::of(group.id).map(|stat| stat.start)
}

/// Ends the processes of a call's group that an earlier process of this program left; blocks until
/// none is at work, or a kill had no effect in time. Waits for a wrapper first: when its parent is
/// gone, it ends by itself after `grace`, and may then still be storing a result.
pub fn end_remains(process: Process, key: &CallKey, grace: Duration) -> Remains {
    let Some(group) = led(process) else { return Remains::None };
    if !has_members(group, None) || !is_of_call(group, process, key) {
        return Remains::None;
    }
    let patience =
        if has_wrapper(process) { grace.saturating_add(LAST_WORDS) } else { Duration::ZERO };
    if !is_gone_within(group, patience) {
        signal(group, Signal::KILL);
        if !is_gone_within(group, AFTER_KILL) {
            return Remains::AtWork;
        }
    }
    Remains::Ended
}

/// Returns the group that a record names. A record can be forged: group 1 stands for every process of the user when
/// it is sent a signal, this program's own group is no call's, and negative numbers are none.
fn led(process: Process) -> Option<Pid> {
    let group = Some(process.pgid).filter(|pgid| *pgid > 1).and_then(Pid::from_raw)?;
    (group != rustix::process::getpgrp()).then_some(group)
}

/// Returns true if the wrapper of a call is at work: without it nobody keeps a result.
#[must_use]
pub fn has_wrapper(process: Process) -> bool {
    let leader = led(process).and_then(Stat::of);
    leader.is_some_and(|leader| leader.is_at_work && leader.start == process.starttime)
}

/// The processes that were left of a call's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// There was none.
    None,
    /// There were some, and they have ended now.
    Ended,
    /// There are some that even a kill did not end in time.
    AtWork,
}

fn is_gone_within(group: Pid, patience: Duration) -> bool {
    let began = Instant::now();
    while has_members(group, None) {
        if began.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Returns true if a group is that of the call, and not a later group with the same number. A
/// leader is known by its start time; if the leader is gone, its members are known by the call's
/// key in their environment.
fn is_of_call(group: Pid, process: Process, key: &CallKey) -> bool {
    if let Some(leader) = Stat::of(group) {
        return leader.start == process.starttime;
    }
    let entry = format!("{KEY_VARIABLE}={key}");
    members(group, None).unwrap_or_default().iter().any(|member| {
        let path = format!("/proc/{}/environ", member.as_raw_nonzero());
        let environment = std::fs::read(path).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_group_is_known_while_it_lives_and_killed_when_dropped() {
        let mut child = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
        let mut group = Group::led_by(child.id()).unwrap();
        let id = i32::try_from(child.id()).unwrap();
        assert!(LIVE.lock().contains(&id));
        assert!(group.is_alive().await);
        drop(group);
        assert!(!LIVE.lock().contains(&id));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(!has_members(Pid::from_raw(id).unwrap(), None));
    }

    #[test]
    fn a_forged_group_ends_nothing() {
        let run = crate::id::RunId::from(uuid::Uuid::nil());
        let key = CallKey::derive(run, &crate::id::AgentId::from_text("a"), 1, 0, "bash", "{}");
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        for pgid in [i32::MIN, -5, -1, 0, 1, own] {
            let starttime =
                Pid::from_raw(pgid.max(0)).and_then(Stat::of).map_or(0, |stat| stat.start);
            let process = Process { pgid, starttime };
            assert_eq!(end_remains(process, &key, Duration::ZERO), Remains::None, "{pgid}");
            assert!(!has_wrapper(process), "{pgid}");
        }
    }

    #[tokio::test]
    async fn zombies_do_not_count() {
        let mut child = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
        let mut group = Group::led_by(child.id()).unwrap();
        // Nobody has reaped the child when this returns.
        group.end(Duration::from_secs(60)).await;
        assert!(group.gone);
        assert_eq!(child.wait().unwrap().signal(), Some(15));
    }
}
