//! What `run` does if another run of the same file is running in the folder: it says so and asks, or refuses.
//!
//! With `one_at_a_time` the process that drives a run holds a lock on the file, so that of two that start at the same
//! moment one is refused. The lock alone does not decide: an editor that saves by a rename leaves a file without it, and
//! a resumed run has none. So the live runs are looked at too, while the lock is held.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::args;
use super::ask;
use super::complain;
use super::locate::Project;
use crate::config::Config;
use crate::exit::Exit;
use crate::journal::source::RecordedRun;
use crate::printable;

/// The right of this process to drive the only run of a file, until it is dropped.
#[derive(Debug)]
pub(super) struct OnlyOne {
    _locked: File,
}

/// Says which run of the same file is already running, and asks whether to start another one. Without a terminal it
/// starts, as scripts expect, unless the file says `one_at_a_time`. Then the process that is to drive the run gets a
/// lock; one that detaches it looks, and leaves that to the other.
pub(super) fn check(
    project: &Project,
    config: &Config,
    verb: &args::Run,
) -> Result<Option<OnlyOne>, Exit> {
    let name = printable::line(&config.name).into_owned();
    if !config.limits.one_at_a_time {
        // The process that detaches a run has asked already.
        let other = if verb.detached { None } else { other(project, config) };
        let Some(other) = other else { return Ok(None) };
        let at_work = format!("`{name}` is already running: run {}", project.short(&other));
        return asked(project, &at_work, verb.json).map(|()| None);
    }
    let locked = if verb.detach && !verb.detached { Ok(None) } else { lock(config) };
    let reason = match (locked, other(project, config)) {
        (Ok(locked), None) => return Ok(locked),
        (Ok(_) | Err(Held), Some(other)) => {
            format!("`{name}` is already running: run {}", project.short(&other))
        }
        // It has no records yet.
        (Err(Held), None) => format!("another process is about to run `{name}`"),
    };
    let flags = project.flags();
    complain(&format!("error: {reason}, and `one_at_a_time` allows no other"));
    complain(&format!("help: `callsheet attach{flags}` follows it; `--also` starts another one"));
    Err(Exit::Held)
}

/// Returns a running run of the same file.
fn other(project: &Project, config: &Config) -> Option<RecordedRun> {
    let is_same = |run: &RecordedRun| run.is_live() && run.is_of(&config.file);
    project.runs().into_iter().find(is_same)
}

/// Another process holds the lock.
struct Held;

/// Takes the lock of the file. Returns none on a file system that has no locks: there the live runs decide.
fn lock(config: &Config) -> Result<Option<OnlyOne>, Held> {
    let Ok(file) = File::open(&config.file) else { return Ok(None) };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(OnlyOne { _locked: file })),
        Err(Errno::WOULDBLOCK) => Err(Held),
        Err(_) => Ok(None),
    }
}

/// Asks whether to start another run beside one that is running.
fn asked(project: &Project, at_work: &str, json: bool) -> Result<(), Exit> {
    if json || !ask::has_terminal() {
        complain(&format!("note: {at_work}; this one works in the same folder beside it"));
        return Ok(());
    }
    let text = [format!("{at_work}."), "Both would work in the same folder.".to_owned()];
    if ask::confirm(&text, "start another one?") {
        return Ok(());
    }
    let flags = project.flags();
    complain(&format!("help: `callsheet attach{flags}` follows it; `--also` does not ask"));
    Err(Exit::Held)
}
