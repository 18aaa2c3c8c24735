//! Removes old runs, and keeps what each of them cost.
//!
//! Owns which runs may go: those that have ended, that no process drives and that can be read. How many and how old, the
//! rule says (`spec::keeping`). A fork is a copy, so no run needs the one that it was forked from.

use std::cmp::Reverse;
use std::path::Path;
use std::time::Duration;

use crate::journal::JournalError;
use crate::journal::source::{Archive, RecordedRun, drivable};
use crate::journal::stamp;
use crate::report::{RemovedRun, RunCost};
use crate::spec::keeping::Keeping;

/// A run that is old enough to go.
#[derive(Clone, Debug)]
pub struct OldRun {
    run: RecordedRun,
    /// What will be kept of it.
    pub bill: RemovedRun,
}

/// Why a run stays although it is old enough.
#[derive(Debug)]
pub enum Stays {
    /// It has not ended: somebody drives it, or it waits to be resumed.
    NotEnded,
    /// It cannot be read, so nobody knows what it cost.
    Unread(JournalError),
}

/// What a rule finds in a place of runs, the newest first.
#[derive(Debug, Default)]
pub struct Found {
    /// The runs that go.
    pub old: Vec<OldRun>,
    /// Those that stay although newer ones go.
    pub stay: Vec<(RecordedRun, Stays)>,
}

/// Looks for runs that a rule lets go. Removes nothing. With a configuration file, only its runs count.
///
/// # Errors
/// Returns an error if the runs cannot be listed.
pub fn find(
    archive: &dyn Archive,
    rule: Keeping,
    of_file: Option<&Path>,
) -> std::io::Result<Found> {
    let (mut found, mut newer, now) = (Found::default(), 0, stamp::now_ms());
    let is_counted = |run: &RecordedRun| match of_file {
        None => run.has_begun(),
        Some(file) => run.is_of(file),
    };
    // The id of a run need not tell its time: a person may have chosen it.
    let mut runs: Vec<RecordedRun> = archive.runs()?.into_iter().filter(is_counted).collect();
    runs.sort_by_cached_key(|run| Reverse(started_ms(run)));
    for run in runs {
        let place = newer;
        newer += 1;
        if !rule.may_go(place) {
            continue;
        }
        match bill_of(&run) {
            _ if run.is_live() => found.stay.push((run, Stays::NotEnded)),
            Err(error) => found.stay.push((run, Stays::Unread(error))),
            Ok(None) => found.stay.push((run, Stays::NotEnded)),
            Ok(Some(bill)) if rule.goes(place, since(&bill, now)) => {
                found.old.push(OldRun { run, bill });
            }
            Ok(Some(_)) => {}
        }
    }
    Ok(found)
}

/// What became of an old run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is removed.
    Removed,
    /// It went on since it was looked at, and is left alone.
    WentOn,
    /// Somebody else has removed it.
    Gone,
}

/// Removes an old run, if it is as it was when it was looked at.
///
/// # Errors
/// Returns an error if what it cost cannot be kept or its files cannot be removed. [`JournalError::Locked`] says that
/// another process has it.
pub fn remove(old: &OldRun) -> Result<Removal, JournalError> {
    let removal = try_to_remove(old);
    match removal {
        Ok(Removal::Removed) => removal,
        _ if !old.run.has_begun() => Ok(Removal::Gone),
        other => other,
    }
}

fn try_to_remove(old: &OldRun) -> Result<Removal, JournalError> {
    let owned = drivable(&*old.run)?.own()?;
    // From here on nobody else writes to it.
    match bill_of(&old.run)? {
        Some(bill) if bill == old.bill => owned.remove(&bill.line()).map(|()| Removal::Removed),
        _ => Ok(Removal::WentOn),
    }
}

/// Does what the configuration file says about old runs of its own, as one of its runs begins. What goes wrong is
/// logged: the run itself has nothing to do with it.
pub(super) fn at_start(archive: &dyn Archive, rule: Keeping, file: &Path) {
    if rule == Keeping::default() {
        return;
    }
    if let Err(error) = archive.sweep() {
        tracing::warn!(%error, "what was left of old runs could not be removed");
    }
    // The run that begins has no record yet, and is one of those that are kept.
    let rule = Keeping { runs: rule.runs.map(|runs| runs.saturating_sub(1)), ..rule };
    let found = match find(archive, rule, Some(file)) {
        Ok(found) => found,
        Err(error) => return tracing::warn!(%error, "old runs could not be listed"),
    };
    let mut removed = 0;
    for old in &found.old {
        match remove(old) {
            Ok(Removal::Removed) => removed += 1,
            Ok(Removal::WentOn | Removal::Gone) | Err(JournalError::Locked { .. }) => {}
            Err(error) => tracing::warn!(%error, run = %old.bill.run, "an old run was not removed"),
        }
    }
    if removed > 0 {
        tracing::info!(removed, "old runs were removed; `callsheet cost --all` still counts them");
    }
}

/// Returns what is to be kept of a run; `None` if it has not ended.
fn bill_of(run: &RecordedRun) -> Result<Option<RemovedRun>, JournalError> {
    let (state, cost) = RunCost::read(&**run)?;
    Ok(RemovedRun::of(&state, &cost, started_ms(run).unwrap_or(0)))
}

fn started_ms(run: &RecordedRun) -> Option<i64> {
    run.first().ok()?.first().map(|record| record.ts_ms)
}

fn since(bill: &RemovedRun, now_ms: i64) -> Duration {
    let ended = stamp::parse(&bill.ended).unwrap_or(now_ms);
    Duration::from_millis(u64::try_from(now_ms.saturating_sub(ended)).unwrap_or(0))
}
