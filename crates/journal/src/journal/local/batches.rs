//! The batches of a journal file: one after the other as they are written, or those of one agent alone.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use crate::disk::NamedFile;
use crate::event::SharedRecord;
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::line::{self, Fault, Line, Position};
use crate::journal::reader::{Reader, batch_of};
use crate::journal::refusal::{Objection, Refusal, Why};
use crate::journal::source::{AgentBatches, BatchPlace, Batches, Cursor, Label};

/// Bytes read from the journal at once: enough for several neighbouring batches of one agent.
const CHUNK: usize = 64 * 1024;

/// The batches of a journal file.
#[derive(Debug)]
pub(super) struct LocalBatches {
    reader: Reader,
    /// The place at which the last batch begins.
    before: Position,
    /// Size of the file when it was last looked at: up to there it is read without another look.
    known: u64,
    /// Size and modification time of the file when the last read found no whole batch.
    looked_at: Option<(u64, SystemTime)>,
}

impl LocalBatches {
    pub(super) fn of(reader: Reader) -> Self {
        let before = reader.position();
        Self { reader, before, known: 0, looked_at: None }
    }

    /// Reads a batch if the file has grown since the last time that there was none.
    fn look(
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
        let batch = self.read(wanted)?;
        match &batch {
            Some(_) => (self.known, self.looked_at) = (file.len(), None),
            None => self.looked_at = Some(looks),
        }
        Ok(batch)
    }

    fn read(
        &mut self,
        wanted: &dyn Fn(Label<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        let at = self.reader.position();
        let wanted =
            |line: &Line<'_>| wanted(Label { kind: &line.kind, agent: line.agent.as_deref() });
        let batch = self.reader.next_batch_of(wanted)?;
        if batch.is_some() {
            self.before = at;
        }
        Ok(batch)
    }
}

impl Batches for LocalBatches {
    fn next_of(
        &mut self,
        wanted: &dyn Fn(Label<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        // A look costs as much as a small batch.
        if self.reader.position().offset < self.known
            && let Some(batch) = self.read(wanted)?
        {
            return Ok(Some(batch));
        }
        self.known = 0;
        self.look(wanted)
    }

    fn cursor(&self) -> Cursor {
        Cursor(self.reader.position())
    }

    fn objected(&mut self, objection: Objection) -> JournalError {
        self.reader.objected(self.before, objection)
    }
}

/// Opens the records of one agent in these batches of a journal.
pub(super) fn of_agent<'a>(
    journal: &Path,
    agent: &'a AgentId,
    places: &'a [BatchPlace],
) -> Result<AgentBatches<'a>, JournalError> {
    let file = NamedFile::open(journal);
    let file = file.map_err(|error| JournalError::cannot("open", journal, &error))?;
    let (mut input, mut at) = (BufReader::with_capacity(CHUNK, file), 0);
    Ok(Box::new(places.iter().map(move |place| {
        let (records, end) = read(&mut input, at, *place, agent)?;
        at = end;
        Ok(records)
    })))
}

/// Reads and verifies the agent's records of one batch. `at` is the current offset of `input`; the
/// number returned is its offset after the read.
fn read(
    input: &mut BufReader<NamedFile>,
    at: u64,
    (offset, seq): BatchPlace,
    agent: &AgentId,
) -> Result<(Vec<SharedRecord>, u64), JournalError> {
    let io = JournalError::read;
    let before = offset.saturating_sub(line::TAIL as u64);
    // Within the read buffer `seek_relative` only moves an index, while `seek` would drop the
    // buffer.
    match i64::try_from(before).ok().zip(i64::try_from(at).ok()) {
        Some((to, from)) => input.seek_relative(to - from).map_err(io)?,
        None => drop(input.seek(SeekFrom::Start(before)).map_err(io)?),
    }
    let mut crc = 0;
    if offset > 0 {
        let mut tail = [0; line::TAIL];
        input.read_exact(&mut tail).map_err(io)?;
        let recorded = line::recorded_crc(&tail);
        crc = recorded.ok_or_else(|| {
            let line = seq.saturating_sub(1);
            Refusal { offset: before, line, why: Fault::Unsealed.into() }
        })?;
    }
    let from = Position { seq, crc, epoch: 0, offset };
    let (records, end) = batch_of(&mut *input, from, agent)?;
    Ok((records, end.offset))
}
