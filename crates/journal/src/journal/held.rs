//! A run in memory, behind the port through which runs are read: for tests, and a proof that the port names no
//! file.

use std::collections::HashMap;
use std::io::{self, BufRead, Cursor as Bytes};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::SharedRecord;
use crate::id::{AgentId, RunId};
use crate::journal::JournalError;
use crate::journal::driving::Drivable;
use crate::journal::line::Position;
use crate::journal::refusal::{Objection, Refusal};
use crate::journal::source::{
    AgentBatches, BatchPlace, Batches, Cursor, Label, RecordedRun, RunSource,
};
use crate::run_state::RunState;
use crate::store::{Checked, StoreError, StoredResults};

/// A run in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct HeldRun {
    name: String,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    batches: Vec<Vec<SharedRecord>>,
    is_live: bool,
    saved: Option<(Cursor, RunState)>,
    results: HashMap<String, Vec<u8>>,
}

impl HeldRun {
    /// Makes a run without records.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), held: Arc::default() }
    }

    /// Adds a batch. Returns the place behind it.
    pub fn add(&self, batch: Vec<SharedRecord>) -> Cursor {
        let mut held = lock(&self.held);
        let next = batch.last().map_or(1, |last| last.seq + 1);
        held.batches.push(batch);
        at(next)
    }

    /// Says whether a process drives the run.
    pub fn set_live(&self, is_live: bool) {
        lock(&self.held).is_live = is_live;
    }

    /// Saves a state that is folded up to a place.
    pub fn save(&self, place: Cursor, state: RunState) {
        lock(&self.held).saved = Some((place, state));
    }

    /// Stores a result. Returns its hash.
    pub fn store(&self, content: &[u8]) -> String {
        let hash = blake3::hash(content).to_hex().to_string();
        lock(&self.held).results.insert(hash.clone(), content.to_vec());
        hash
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the place before a record; nothing but its number means anything here.
fn at(seq: u64) -> Cursor {
    Cursor(Position { seq, ..Position::START })
}

impl From<HeldRun> for RecordedRun {
    fn from(run: HeldRun) -> Self {
        Arc::new(run)
    }
}

impl StoredResults for HeldRun {
    fn open(&self, hash: &str) -> Result<Checked, StoreError> {
        let path = self.place().join(hash);
        match lock(&self.held).results.get(hash) {
            Some(content) => {
                let length = content.len() as u64;
                Ok(Checked::new(path, length, Box::new(Bytes::new(content.clone()))))
            }
            None => Err(StoreError { path, reason: "it is missing".to_owned() }),
        }
    }
}

impl RunSource for HeldRun {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn place(&self) -> PathBuf {
        PathBuf::from("memory").join(&self.name)
    }

    fn records_place(&self) -> PathBuf {
        self.place()
    }

    fn results_place(&self) -> PathBuf {
        self.place().join("results")
    }

    fn is_live(&self) -> bool {
        lock(&self.held).is_live
    }

    fn size(&self) -> u64 {
        0
    }

    fn batches(&self, from: Cursor) -> Result<Box<dyn Batches>, JournalError> {
        Ok(Box::new(HeldBatches { held: Arc::clone(&self.held), next: from.next_seq() }))
    }

    fn batches_at<'a>(
        &self,
        agent: &'a AgentId,
        places: &'a [BatchPlace],
    ) -> Result<AgentBatches<'a>, JournalError> {
        let mut batches = HeldBatches { held: Arc::clone(&self.held), next: 1 };
        Ok(Box::new(places.iter().map(move |(_, first)| {
            batches.next = *first;
            let read = batches.next_of(&|label| label.agent == Some(agent.as_str()));
            read.map(Option::unwrap_or_default)
        })))
    }

    fn without_record(&self) -> JournalError {
        JournalError::NeverBegan
    }

    fn saved(&self) -> Option<(Cursor, RunState)> {
        lock(&self.held).saved.clone()
    }

    fn refuse_unsound(&self, _: &RunState) -> Result<(), JournalError> {
        Ok(())
    }

    fn transcript_place(&self, agent: &AgentId) -> PathBuf {
        self.place().join(agent.as_str())
    }

    fn transcript(&self, _: &AgentId) -> io::Result<Box<dyn BufRead>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn beside(&self, id: RunId) -> RecordedRun {
        Arc::new(Self::new(id.to_string()))
    }

    fn drivable(&self) -> Option<&dyn Drivable> {
        None
    }
}

#[derive(Debug)]
struct HeldBatches {
    held: Arc<Mutex<Held>>,
    next: u64,
}

impl Batches for HeldBatches {
    fn next_of(
        &mut self,
        wanted: &dyn Fn(Label<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        let held = lock(&self.held);
        let is_next =
            |batch: &&Vec<SharedRecord>| batch.first().is_some_and(|first| first.seq >= self.next);
        let Some(batch) = held.batches.iter().find(is_next) else { return Ok(None) };
        self.next = batch.last().map_or(self.next, |last| last.seq + 1);
        let is_wanted = |record: &&SharedRecord| {
            let agent = record.agent.as_ref().map(AgentId::as_str);
            wanted(Label { kind: record.event.kind(), agent })
        };
        Ok(Some(batch.iter().filter(is_wanted).cloned().collect()))
    }

    fn cursor(&self) -> Cursor {
        at(self.next)
    }

    fn objected(&mut self, Objection { seq: line, why }: Objection) -> JournalError {
        Refusal { offset: 0, line, why }.into()
    }
}
