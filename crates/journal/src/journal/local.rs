//! Runs in folders of this machine, behind the port through which runs are read.
//!
//! Owns which folders of a folder are runs, and the error for a journal without a record. Writes nothing, and needs no
//! lock: `local/driven.rs` does.

mod batches;
mod copy;
mod driven;
mod removal;
mod shelf;

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::batches::LocalBatches;
use crate::disk;
use crate::id::{AgentId, RunId};
use crate::journal::driving::Drivable;
use crate::journal::file::RunDir;
use crate::journal::line::Position;
use crate::journal::reader::Reader;
use crate::journal::source::{
    AgentBatches, Archive, BatchPlace, Batches, Cursor, RecordedRun, RunSource,
};
use crate::journal::{JournalError, snapshot, witness};
use crate::run_state::RunState;
use crate::store::{Checked, StoreError, StoredResults};

/// The runs of a folder. A run is a folder in it that has the id of a run for a name.
#[derive(Clone, Debug)]
pub struct LocalArchive {
    folder: PathBuf,
    follows_link: bool,
}

impl LocalArchive {
    /// Takes a folder that nobody named on the command line: it may be no link, which could lead to the records
    /// of another project.
    #[must_use]
    pub fn of(folder: PathBuf) -> Self {
        Self { folder, follows_link: false }
    }

    /// Takes the folder that a person named.
    #[must_use]
    pub fn named(folder: PathBuf) -> Self {
        Self { folder, follows_link: true }
    }

    /// Opens the folder; `None` if there is none.
    fn entries(&self) -> io::Result<Option<fs::ReadDir>> {
        if !self.follows_link && self.folder.is_symlink() {
            let reason = "it is a link; name the folder itself (`--state-dir` or `state.dir`)";
            return Err(io::Error::other(reason));
        }
        match fs::read_dir(&self.folder) {
            Ok(entries) => Ok(Some(entries)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the id of a new run in this folder. It sorts behind all that are there, so that the newest run is the one
/// that began last, also if the clock went back.
fn next_id(folder: &Path) -> RunId {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| RunId::parse(&entry.file_name().to_string_lossy()));
    let newest = ids.filter(|id| id.has_time()).max();
    RunId::after(newest, uuid::Uuid::now_v7())
}

impl Archive for LocalArchive {
    /// Ids sort by time. None of the runs is a link, nor lies behind one: it may lead to the records of another
    /// project. What is no folder is no run.
    fn runs(&self) -> io::Result<Vec<RecordedRun>> {
        let entries = self.entries()?.into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries
            .filter(|entry| RunId::parse(&entry.file_name().to_string_lossy()).is_some())
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        paths.sort_unstable_by(|a, b| b.cmp(a));
        Ok(paths.into_iter().map(|path| RunDir::at(path).into()).collect())
    }

    fn run(&self, id: RunId) -> RecordedRun {
        run_at(self.folder.join(id.to_string()))
    }

    fn next_id(&self) -> RunId {
        next_id(&self.folder)
    }

    fn removed(&self) -> io::Result<Vec<String>> {
        match self.entries()? {
            Some(_) => removal::lines(&self.folder),
            None => Ok(Vec::new()),
        }
    }

    fn sweep(&self) -> io::Result<()> {
        match self.entries()? {
            Some(_) => removal::sweep(&self.folder),
            None => Ok(()),
        }
    }
}

/// Returns the run in a folder.
#[must_use]
pub fn run_at(folder: impl Into<PathBuf>) -> RecordedRun {
    RunDir::at(folder).into()
}

impl From<RunDir> for RecordedRun {
    fn from(dir: RunDir) -> Self {
        Arc::new(dir)
    }
}

impl From<&RunDir> for RecordedRun {
    fn from(dir: &RunDir) -> Self {
        Arc::new(dir.clone())
    }
}

impl StoredResults for RunDir {
    fn open(&self, hash: &str) -> Result<Checked, StoreError> {
        self.results().open(hash)
    }
}

impl RunSource for RunDir {
    fn name(&self) -> String {
        let name = self.path().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn place(&self) -> PathBuf {
        self.path().to_owned()
    }

    fn records_place(&self) -> PathBuf {
        self.journal()
    }

    fn results_place(&self) -> PathBuf {
        self.results()
    }

    fn is_live(&self) -> bool {
        Self::is_live(self)
    }

    fn size(&self) -> u64 {
        fs::metadata(self.journal()).map_or(0, |file| file.len())
    }

    fn batches(&self, from: Cursor) -> Result<Box<dyn Batches>, JournalError> {
        Ok(Box::new(LocalBatches::of(open(self, from.0)?)))
    }

    fn batches_at<'a>(
        &self,
        agent: &'a AgentId,
        places: &'a [BatchPlace],
    ) -> Result<AgentBatches<'a>, JournalError> {
        batches::of_agent(&self.journal(), agent, places)
    }

    fn without_record(&self) -> JournalError {
        without_record(self)
    }

    fn saved(&self) -> Option<(Cursor, RunState)> {
        let saved = snapshot::newest(&*self.saved_folds())?;
        Some((Cursor(saved.at), saved.tracker.into_state()))
    }

    fn refuse_unsound(&self, state: &RunState) -> Result<(), JournalError> {
        witness::refuse_unsound(self, state)
    }

    fn transcript_place(&self, agent: &AgentId) -> PathBuf {
        Self::transcript(self, agent)
    }

    fn transcript(&self, agent: &AgentId) -> io::Result<Box<dyn BufRead>> {
        Ok(Box::new(BufReader::new(disk::open(&Self::transcript(self, agent))?)))
    }

    fn beside(&self, id: RunId) -> RecordedRun {
        let above = self.path().parent().unwrap_or(self.path());
        run_at(above.join(id.to_string()))
    }

    fn drivable(&self) -> Option<&dyn Drivable> {
        Some(self)
    }
}

/// Opens the journal of a run at the end of a batch that was read before.
fn open(dir: &RunDir, at: Position) -> Result<Reader, JournalError> {
    if is_missing(dir) {
        let told = without_record(dir);
        // A run that is just being created may have made its journal in the meantime.
        if is_missing(dir) {
            return Err(told);
        }
    }
    Reader::open_at(&dir.journal(), at)
}

fn is_missing(dir: &RunDir) -> bool {
    fs::metadata(dir.journal()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Decides if a journal without a record was lost or never began.
fn without_record(dir: &RunDir) -> JournalError {
    // These folders are created empty, and filled only after the first record.
    let mut folders = vec![dir.agents(), dir.spool(), dir.snapshots()];
    if !dir.journal().exists() {
        // A fork has the results of its origin before it has a record, but then its journal file
        // exists.
        folders.push(dir.results());
    }
    let is_filled =
        |folder: &PathBuf| fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    match folders.into_iter().find(is_filled) {
        Some(folder) => JournalError::Lost { folder },
        None => JournalError::NeverBegan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SharedRecord;
    use crate::journal::refusal::Objection;
    use crate::journal::samples::turn;

    #[tokio::test]
    async fn a_run_that_begins_while_it_is_looked_at_was_not_lost() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let owned = dir.create().unwrap();
        let run: &dyn RunSource = &dir;
        let mut batches = run.batches(Cursor::START).unwrap();
        assert_eq!(run.first(), Err(JournalError::NeverBegan));
        assert_eq!(batches.next_batch(), Ok(None));
        // Both come before the folders are looked at.
        let journal = owned.start_writer(Position::START, Vec::new()).unwrap();
        journal.append(vec![turn("one", 1)]).await.unwrap();
        journal.close().await;
        fs::write(dir.agents().join("one.jsonl"), "x").unwrap();
        let mut seen = 0;
        let each = |_: Position, records: &[SharedRecord]| -> Result<(), Objection> {
            seen += records.len();
            Ok(())
        };
        assert_eq!(run.fold_next(&mut *batches, each), Ok(true));
        assert_eq!(seen, 1);
        fs::write(dir.journal(), "").unwrap();
        assert_eq!(run.first(), Err(JournalError::Lost { folder: dir.agents() }));
    }
}
