//! Runs in folders of this machine, behind the port through which runs are read.
//!
//! Owns which folders of a folder are runs. Never writes, and needs no lock.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::disk;
use crate::event::SharedRecord;
use crate::id::{AgentId, RunId};
use crate::journal::file::RunDir;
use crate::journal::line::{Line, Position};
use crate::journal::reader::Reader;
use crate::journal::refusal::{Objection, Refusal, Why};
use crate::journal::source::{Archive, Batches, Cursor, Label, RecordedRun, RunSource};
use crate::journal::{JournalError, snapshot, walk, witness};
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
#[must_use]
pub fn next_id(folder: &Path) -> RunId {
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
        RunDir::at(self.folder.join(id.to_string())).into()
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
        let reader = walk::open(self, from.0)?;
        Ok(Box::new(LocalBatches { reader, before: from.0, looked_at: None }))
    }

    fn without_record(&self) -> JournalError {
        walk::without_record(self)
    }

    fn saved(&self) -> Option<(Cursor, RunState)> {
        let saved = snapshot::newest(self)?;
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

    fn local(&self) -> Option<&RunDir> {
        Some(self)
    }
}

/// The batches of a journal file.
#[derive(Debug)]
struct LocalBatches {
    reader: Reader,
    /// The place at which the last batch begins.
    before: Position,
    /// Size and modification time of the file when the last read found no whole batch.
    looked_at: Option<(u64, SystemTime)>,
}

impl Batches for LocalBatches {
    fn next_of(
        &mut self,
        wanted: &dyn Fn(Label<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        let io = JournalError::read;
        let file = self.reader.file().metadata().map_err(io)?;
        let looks = (file.len(), file.modified().map_err(io)?);
        let at = self.reader.position();
        if file.len() == at.offset || self.looked_at == Some(looks) {
            return Ok(None);
        }
        if file.len() < at.offset {
            return Err(Refusal::at(at, Why::Gone).into());
        }
        let wanted =
            |line: &Line<'_>| wanted(Label { kind: &line.kind, agent: line.agent.as_deref() });
        let batch = self.reader.next_batch_of(wanted)?;
        match &batch {
            Some(_) => (self.before, self.looked_at) = (at, None),
            None => self.looked_at = Some(looks),
        }
        Ok(batch)
    }

    fn cursor(&self) -> Cursor {
        Cursor(self.reader.position())
    }

    fn objected(&mut self, objection: Objection) -> JournalError {
        self.reader.objected(self.before, objection)
    }
}
