//! A new run that begins as another one did and goes on with something changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;

use super::opening::{ReopenError, Reopened};
use super::{Options, StartError, plan_of, planned};
use crate::config::{self, Diagnostics, Sources};
use crate::event::{Draft, Event, Forked, RunCreated};
use crate::id::RunId;
use crate::journal::file::RunDir;
use crate::journal::reader::Reader;
use crate::journal::recovery::Cut;
use crate::journal::{JournalError, copy};

/// Why a run cannot be forked. Nothing was made then but, maybe, an empty run directory.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// There is no such place in it.
    #[error("the run has records 1 to {last}: it cannot be forked at {seq}")]
    Outside {
        /// The record that was named.
        seq: u64,
        /// The last one at which it can be forked.
        last: u64,
    },
    /// The run had ended there.
    #[error("the run had ended by record {0}: name an earlier one")]
    Ended(u64),
    /// What was changed does not fit.
    #[error(transparent)]
    Config(#[from] Diagnostics),
    /// The new run cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The copy cannot be taken up.
    #[error(transparent)]
    Reopen(#[from] ReopenError),
}

/// Makes a new run that shares the journal of another up to record `seq`, and takes it up: the
/// batch in which that record stands is left out unless it ends there. `overrides` are keys of the
/// configuration with their new values. Blocks while it copies.
///
/// # Errors
/// When there is no such place, or the configuration with the changes is wrong.
pub fn fork(
    from: &RunDir,
    seq: u64,
    overrides: BTreeMap<String, String>,
    sources: Sources,
) -> Result<Reopened, ForkError> {
    let mut created = look(from, seq)?;
    let origin = Forked { run: created.run, seq };
    created.run = RunId::generate();
    created.forked = Some(origin);
    created.overrides.extend(overrides);
    let config = config::load_text(&created.config, &sources.of_run(&created, from.path()))?;
    let tasks = created.tasks.iter().map(|task| task.name.to_string()).collect();
    let plan = plan_of(&config, &Options { tasks, ..Options::default() })?;
    created.tasks = planned(&plan);

    let folder = from.path().parent().unwrap_or(from.path());
    let to = RunDir::at(folder.join(created.run.to_string()));
    let owned = to.create()?;
    let linked = share_results(from, &to);
    linked.map_err(|error| JournalError::io(to.results().display(), &error))?;
    copy::copy(from, &to, seq, Draft::run(created))?;
    drop(owned);
    Ok(Reopened::open(&to, Cut::Torn)?)
}

/// How the run was created, if it can be forked there.
fn look(from: &RunDir, seq: u64) -> Result<RunCreated, ForkError> {
    let mut reader = Reader::open(&from.journal())?;
    let (mut created, mut ended, mut last) = (None, None, 0);
    while let Some(records) = reader.next_batch()? {
        last = reader.position().seq - 1;
        for record in &records {
            match &record.event {
                Event::RunCreated(first) => created = Some(first.clone()),
                Event::RunCompleted(_) => ended = Some(record.seq),
                Event::RunOpened(_) => ended = None,
                _ => {}
            }
        }
        if last >= seq {
            break;
        }
    }
    match (created, ended) {
        (Some(_), Some(end)) if end <= seq => Err(ForkError::Ended(end)),
        (Some(created), _) if (1..=last).contains(&seq) => Ok(created),
        _ => Err(ForkError::Outside { seq, last }),
    }
}

/// Stored results are named by their content and never change: the runs share them.
fn share_results(from: &RunDir, to: &RunDir) -> io::Result<()> {
    for entry in fs::read_dir(from.results())? {
        let entry = entry?;
        let new = to.results().join(entry.file_name());
        // Where links are not possible there is a copy.
        if fs::hard_link(entry.path(), &new).is_err() {
            fs::copy(entry.path(), &new)?;
            File::open(&new)?.sync_all()?;
        }
    }
    File::open(to.results())?.sync_all()
}
