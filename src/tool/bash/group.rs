//! Process groups: signalled as a whole, killed when nobody waits for them any more.
//!
//! Owns the one list of the groups that live in this program.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

/// How often a group is looked at while it has time to end: much shorter than any grace period
/// that a person would set.
const POLL: Duration = Duration::from_millis(20);

static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Kills every process group that tools have running: for the end of the program, when there is
/// no time to wait for the calls.
pub fn kill_all_groups() {
    for id in LIVE.lock().iter().copied().filter_map(Pid::from_raw) {
        signal(id, Signal::KILL);
    }
}

/// A process group of ours. Dropping it kills whatever is left of it.
#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    gone: bool,
}

impl Group {
    /// The group that the process `leader` was started in, which has the same number.
    pub(super) fn led_by(leader: u32) -> Option<Self> {
        let id = Pid::from_raw(i32::try_from(leader).ok()?)?;
        LIVE.lock().insert(id.as_raw_nonzero().get());
        Some(Self { id, gone: false })
    }

    /// Whether any process of the group is at work. Once it is known that none is, the group is
    /// never signalled again: its number may be given to others.
    pub(super) async fn is_alive(&mut self) -> bool {
        let id = self.id;
        if !self.gone {
            let alive = tokio::task::spawn_blocking(move || has_members(id)).await;
            self.gone = !alive.unwrap_or(true);
        }
        !self.gone
    }

    /// Asks the group to end, and kills it when the grace is over.
    pub(super) async fn end(&mut self, grace: Duration) {
        signal(self.id, Signal::TERM);
        // A stopped process would not get the signal before.
        signal(self.id, Signal::CONT);
        let ended = async {
            while self.is_alive().await {
                tokio::time::sleep(POLL).await;
            }
        };
        if tokio::time::timeout(grace, ended).await.is_err() {
            signal(self.id, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.gone {
            signal(self.id, Signal::KILL);
        }
        LIVE.lock().remove(&self.id.as_raw_nonzero().get());
    }
}

/// A group that is gone already cannot be signalled, and need not be.
fn signal(group: Pid, signal: Signal) {
    let _gone = rustix::process::kill_process_group(group, signal);
}

/// Whether the group has a process that is no zombie: zombies wait for whoever adopted them, and
/// in a container that may be for ever.
fn has_members(group: Pid) -> bool {
    if rustix::process::test_kill_process_group(group).is_err() {
        return false;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let mut looked = false;
    for process in processes.filter_map(Result::ok) {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        // `pid (name) state parent group ...`; the name may hold anything.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut fields = rest.split_whitespace();
        let (state, in_group) = (fields.next(), fields.nth(1));
        looked = true;
        let same = in_group.and_then(|id| id.parse().ok()) == Some(group.as_raw_nonzero().get());
        if same && !matches!(state, Some("Z" | "X")) {
            return true;
        }
    }
    !looked
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
        assert!(!has_members(Pid::from_raw(id).unwrap()));
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
