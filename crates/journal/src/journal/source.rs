//! The port through which runs are read: which runs there are, and of one run its records from a cursor, its
//! newest saved state, its stored results, its transcripts, and whether a process drives it.
//!
//! Owns the folds over that port, which everybody who reads uses. `local.rs` reads folders of this machine;
//! tests read memory. A place that keeps its records elsewhere implements these traits, and nothing above them
//! changes. Never writes: the port to append is [`JournalHandle`](crate::journal::JournalHandle), and the one to
//! drive a run is `driving.rs`.

use std::fmt;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::event::{Event, RunCreated, SharedRecord};
use crate::id::{AgentId, RunId};
use crate::journal::JournalError;
use crate::journal::driving::Drivable;
use crate::journal::line::Position;
use crate::journal::refusal::{Objection, Refusal, Why};
use crate::run_state::RunState;
use crate::store::StoredResults;

/// A place between two batches of a run's records. It means something only to the run that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(pub(in crate::journal) Position);

impl Cursor {
    /// The place before the first record.
    pub const START: Self = Self(Position::START);

    /// Returns the number of the record that follows.
    #[must_use]
    pub fn next_seq(self) -> u64 {
        self.0.seq
    }

    /// Returns the place for those who write there.
    #[must_use]
    pub fn place(self) -> Position {
        self.0
    }
}

impl From<Position> for Cursor {
    fn from(place: Position) -> Self {
        Self(place)
    }
}

/// What is known of a record before it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// The type of its event.
    pub kind: &'a str,
    /// The agent of which it tells, if it tells of one.
    pub agent: Option<&'a str>,
}

/// The place of a batch in the records of a run, as the fold of its batches saw it: its offset, and the number of
/// its first record.
pub type BatchPlace = (u64, u64);

/// The records of one agent, batch by batch.
pub type AgentBatches<'a> = Box<dyn Iterator<Item = Result<Vec<SharedRecord>, JournalError>> + 'a>;

/// The batches of a run, oldest first, from the cursor at which it was opened. Its calls block.
pub trait Batches: fmt::Debug + Send {
    /// Returns those records of the next whole batch that are `wanted`, so there may be none of them; or `None`
    /// if there is no other whole batch yet. Then the next call looks again, and costs little while nothing came.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read, or if one of them cannot be read past.
    fn next_of(
        &mut self,
        wanted: &dyn Fn(Label<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError>;

    /// Returns the end of the last batch that was returned.
    fn cursor(&self) -> Cursor;

    /// Returns the error for a record of the last batch that does not follow from those before it.
    fn objected(&mut self, objection: Objection) -> JournalError;
}

/// One run, for those who read it.
pub trait RunSource: StoredResults + fmt::Debug + Send + Sync {
    /// Returns the name of the run: the text of its id.
    fn name(&self) -> String;

    /// Returns where the run is, for a person.
    fn place(&self) -> PathBuf;

    /// Returns where its records are, for a person.
    fn records_place(&self) -> PathBuf;

    /// Returns the folder in which its stored results lie, for templates that name them.
    fn results_place(&self) -> PathBuf;

    /// Returns true if a process drives the run.
    fn is_live(&self) -> bool;

    /// Returns the size of the records in bytes, for a display of progress; 0 if it cannot be told.
    fn size(&self) -> u64;

    /// Opens the batches of the run behind a cursor.
    ///
    /// # Errors
    /// Returns an error if there are no records, or if they cannot be opened.
    fn batches(&self, from: Cursor) -> Result<Box<dyn Batches>, JournalError>;

    /// Opens the records of an agent in these batches of the run, in order, without those in between.
    ///
    /// # Errors
    /// Returns an error if the records cannot be opened. A batch that cannot be read is an error of its own.
    fn batches_at<'a>(
        &self,
        agent: &'a AgentId,
        places: &'a [BatchPlace],
    ) -> Result<AgentBatches<'a>, JournalError>;

    /// Returns why the run has no record: it never began, or its records were lost.
    fn without_record(&self) -> JournalError;

    /// Returns the newest state that was saved, and the place up to which it is folded.
    fn saved(&self) -> Option<(Cursor, RunState)>;

    /// Refuses what a resume would refuse of a run that no process drives, and whose records give `state`.
    ///
    /// # Errors
    /// Returns an error for a copy, and for records that end before one that was acknowledged or that have
    /// another in its place.
    fn refuse_unsound(&self, state: &RunState) -> Result<(), JournalError>;

    /// Returns where the transcript of an agent is, for a person.
    fn transcript_place(&self, agent: &AgentId) -> PathBuf;

    /// Opens the transcript of an agent: a JSON object on each line.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it cannot be opened.
    fn transcript(&self, agent: &AgentId) -> io::Result<Box<dyn BufRead>>;

    /// Returns the run with this id in the same place. It need not be there.
    fn beside(&self, id: RunId) -> RecordedRun;

    /// Returns what drives, cuts and answers the run, if that can be done from here.
    fn drivable(&self) -> Option<&dyn Drivable>;
}

/// Returns what drives a run from here.
///
/// # Errors
/// Returns an error for a run that cannot be driven from here.
pub fn drivable(run: &dyn RunSource) -> Result<&dyn Drivable, JournalError> {
    let elsewhere = || JournalError::Io("the run is kept on another machine".to_owned());
    run.drivable().ok_or_else(elsewhere)
}

/// A run that is read. Cloning it is cheap.
pub type RecordedRun = Arc<dyn RunSource>;

/// The runs that are kept in one place.
pub trait Archive: fmt::Debug {
    /// Returns all runs, the newest first.
    ///
    /// # Errors
    /// Returns an error if the place is there and cannot be listed: then nobody knows that there is no run.
    fn runs(&self) -> io::Result<Vec<RecordedRun>>;

    /// Returns the run with this id, which need not be there.
    fn run(&self, id: RunId) -> RecordedRun;

    /// Returns the id of a new run, which sorts behind all that are there.
    fn next_id(&self) -> RunId;

    /// Returns the lines that were kept about runs that are gone ([`Ownership::remove`]), the oldest first. A run
    /// may have several, and may still be there if its removal was cut short.
    ///
    /// [`Ownership::remove`]: crate::journal::driving::Ownership::remove
    ///
    /// # Errors
    /// Returns an error if they cannot be read.
    fn removed(&self) -> io::Result<Vec<String>>;

    /// Removes what is left of runs whose removal was cut short.
    ///
    /// # Errors
    /// Returns an error if something cannot be removed.
    fn sweep(&self) -> io::Result<()>;
}

impl dyn Batches + '_ {
    /// Returns the records of the next whole batch, or `None` if there is none yet. Records of unknown types are
    /// left out, so the list may be empty.
    ///
    /// # Errors
    /// Returns the errors of [`Batches::next_of`].
    pub fn next_batch(&mut self) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        self.next_of(&|_| true)
    }
}

/// What everybody does who reads a run.
impl dyn RunSource + '_ {
    /// Returns the first batch, which holds the creation of the run.
    ///
    /// # Errors
    /// Returns an error if there is no first batch, or if it cannot be read.
    pub fn first(&self) -> Result<Vec<SharedRecord>, JournalError> {
        let first = self.next_or_why_none(&mut *self.batches(Cursor::START)?)?;
        first.ok_or_else(|| self.without_record())
    }

    /// Returns true if the run has a first batch, or had one that was lost.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !matches!(self.first(), Err(JournalError::NeverBegan))
    }

    /// Returns true if the run was made from this configuration file.
    #[must_use]
    pub fn is_of(&self, file: &Path) -> bool {
        let first = self.first().unwrap_or_default();
        matches!(first.first().map(|record| &record.event),
            Some(Event::RunCreated(created)) if created.file == file)
    }

    /// Returns the state of the run from its newest saved state on, and the error that stopped the read, if any.
    /// `each` receives the records after the saved state.
    pub fn state(
        &self,
        mut each: impl FnMut(&SharedRecord),
    ) -> (RunState, Result<(), JournalError>) {
        if let Some((at, saved)) = self.saved()
            && let (state, Ok(())) = self.fold_on((at, None), saved, &mut each)
        {
            return (state, Ok(()));
        }
        // The fault may be in the saved state or in the records: reading all of them decides.
        self.fold(each)
    }

    /// Returns the state of the run, folded from its first record as far as the records can be read, and the
    /// error that stopped the fold, if any. `each` receives every record.
    pub fn fold(&self, each: impl FnMut(&SharedRecord)) -> (RunState, Result<(), JournalError>) {
        self.fold_on((Cursor::START, None), RunState::default(), each)
    }

    /// Does the same up to a place.
    pub fn fold_to(
        &self,
        end: Cursor,
        each: impl FnMut(&SharedRecord),
    ) -> (RunState, Result<(), JournalError>) {
        self.fold_on((Cursor::START, Some(end)), RunState::default(), each)
    }

    fn fold_on(
        &self,
        (from, end): (Cursor, Option<Cursor>),
        mut state: RunState,
        mut each: impl FnMut(&SharedRecord),
    ) -> (RunState, Result<(), JournalError>) {
        let is_before = |at: Cursor| end.is_none_or(|end| at.next_seq() < end.next_seq());
        let mut read = || -> Result<(), JournalError> {
            let mut batches = self.batches(from)?;
            let mut apply = |_: Position, records: &[SharedRecord]| {
                records.iter().try_for_each(|record| {
                    state.apply(record)?;
                    each(record);
                    Ok(())
                })
            };
            while is_before(batches.cursor()) && self.fold_next(&mut *batches, &mut apply)? {}
            created(&state).map(drop)
        };
        let read = read();
        (state, read)
    }

    /// Gives every whole batch from `from` on to `fold`, each with the position at which it begins: the
    /// batches before `end`, or all of them. Returns the position behind the last one.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read, if there is none, if there is one that cannot be read past,
    /// or if `fold` objects to one.
    pub fn walk(
        &self,
        from: Position,
        end: Option<Position>,
        mut fold: impl FnMut(Position, &[SharedRecord]) -> Result<(), Objection>,
    ) -> Result<Position, JournalError> {
        let mut batches = self.batches(Cursor(from))?;
        let is_before = |at: Position| end.is_none_or(|end| at.seq < end.seq);
        while is_before(batches.cursor().0) && self.fold_next(&mut *batches, &mut fold)? {}
        match batches.cursor().0 {
            Position { seq: 1, .. } => Err(self.without_record()),
            end => Ok(end),
        }
    }

    /// Gives the next whole batch to `fold`, with the position at which it begins. Returns false behind
    /// the last one.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`walk`](Self::walk).
    pub(in crate::journal) fn fold_next(
        &self,
        batches: &mut dyn Batches,
        fold: impl FnOnce(Position, &[SharedRecord]) -> Result<(), Objection>,
    ) -> Result<bool, JournalError> {
        let at = batches.cursor().0;
        let Some(records) = self.next_or_why_none(batches)? else { return Ok(false) };
        match fold(at, &records) {
            Ok(()) => Ok(true),
            Err(objection) => Err(batches.objected(objection)),
        }
    }

    /// Returns the end of the last whole batch whose records all have numbers up to `upto`, but never
    /// less than the end of the first batch. Returns `None` if the run has no record `upto`.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read up to there.
    pub fn end_of(&self, upto: u64) -> Result<Option<Position>, JournalError> {
        let mut batches = self.batches(Cursor::START)?;
        let mut end = Position::START;
        while end.seq == Position::START.seq || end.seq <= upto {
            if batches.next_of(&|_| false)?.is_none() {
                return Ok(None);
            }
            let at = batches.cursor().0;
            if end.seq > Position::START.seq && at.seq > upto + 1 {
                break;
            }
            end = at;
        }
        Ok(Some(end))
    }

    /// Returns all records of one agent, oldest first.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read, or if one of them cannot be read past.
    pub fn agent_records(&self, agent: &AgentId) -> Result<Vec<SharedRecord>, JournalError> {
        let mut batches = self.batches(Cursor::START)?;
        let mut all = Vec::new();
        while let Some(batch) = batches.next_of(&|label| label.agent == Some(agent.as_str()))? {
            all.extend(batch);
        }
        Ok(all)
    }

    /// Returns the next batch, or `None` behind the last one. A run without a first batch is an error.
    fn next_or_why_none(
        &self,
        batches: &mut dyn Batches,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        match batches.next_batch()? {
            None if batches.cursor() == Cursor::START => {
                let why = self.without_record();
                // A run that is just being created fills its folders after its first record, which may have
                // come in the meantime. So its records are looked at once more after its folders: only if there
                // is none even then was it lost.
                batches.next_batch()?.map_or(Err(why), |batch| Ok(Some(batch)))
            }
            batch => Ok(batch),
        }
    }
}

/// Returns the creation of the run with this folded state.
///
/// # Errors
/// Returns an error if the first record does not create a run.
pub fn created(state: &RunState) -> Result<&RunCreated, JournalError> {
    let unreadable = || Why::Unreadable("it does not create a run".to_owned());
    state.created().ok_or_else(|| Refusal::at(Position::START, unreadable()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::follow::Follower;
    use crate::journal::held::HeldRun;
    use crate::journal::refusal::Why;
    use crate::journal::samples::{record, turn};

    fn batch(seq: u64, agents: &[&str]) -> Vec<SharedRecord> {
        let numbered = (seq..).zip(agents);
        numbered.map(|(seq, agent)| Arc::new(record(seq, turn(agent, 1)))).collect()
    }

    fn seqs(records: &[SharedRecord]) -> Vec<u64> {
        records.iter().map(|record| record.seq).collect()
    }

    #[test]
    fn batches_are_read_from_any_cursor_and_as_they_come() {
        let held = HeldRun::new("run");
        let run: &dyn RunSource = &held;
        assert_eq!((run.first(), run.has_begun()), (Err(JournalError::NeverBegan), false));
        let mut batches = run.batches(Cursor::START).unwrap();
        assert_eq!(batches.next_batch(), Ok(None));
        let second = held.add(batch(1, &["a", "b"]));
        held.add(batch(3, &["b"]));
        assert!(run.has_begun());
        assert_eq!(seqs(&batches.next_batch().unwrap().unwrap()), [1, 2]);
        assert_eq!(batches.cursor(), second);
        let none = batches.next_of(&|label| label.agent == Some("a")).unwrap();
        assert_eq!(none, Some(Vec::new()));
        assert_eq!(batches.next_batch(), Ok(None));
        assert_eq!(seqs(&run.batches(second).unwrap().next_batch().unwrap().unwrap()), [3]);
        assert_eq!(seqs(&run.agent_records(&AgentId::from_text("b")).unwrap()), [2, 3]);
    }

    #[test]
    fn a_first_batch_that_comes_while_its_absence_is_looked_into_is_read() {
        #[derive(Debug)]
        struct Late(Vec<Option<Vec<SharedRecord>>>);
        impl Batches for Late {
            fn next_of(
                &mut self,
                _: &dyn Fn(Label<'_>) -> bool,
            ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
                Ok(self.0.remove(0))
            }
            fn cursor(&self) -> Cursor {
                Cursor::START
            }
            fn objected(&mut self, objection: Objection) -> JournalError {
                JournalError::Io(objection.seq.to_string())
            }
        }
        let held = HeldRun::new("run");
        let run: &dyn RunSource = &held;
        let mut late = Late(vec![None, Some(batch(1, &["a"]))]);
        assert_eq!(run.next_or_why_none(&mut late).unwrap().map(|batch| batch.len()), Some(1));
        let mut never = Late(vec![None, None]);
        assert_eq!(run.next_or_why_none(&mut never), Err(JournalError::NeverBegan));
    }

    #[test]
    fn a_record_that_cannot_follow_is_refused_where_it_stands() {
        let held = HeldRun::new("run");
        held.add(batch(1, &["a"]));
        let (state, read) = (&held as &dyn RunSource).fold(|_| {});
        let Err(JournalError::Refused(refusal)) = read else { panic!("{read:?}") };
        assert_eq!((refusal.line, state.last_seq()), (1, 0));
        assert!(matches!(refusal.why, Why::Illegal(_)), "{refusal}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_kept_in_memory_is_followed_to_its_end() {
        let held = Arc::new(HeldRun::new("run"));
        held.set_live(true);
        let mut follower = Follower::new(Arc::clone(&held) as RecordedRun).unwrap();
        let writer = tokio::spawn(async move {
            for seq in 1..=20 {
                tokio::time::sleep(std::time::Duration::from_millis(seq * 7)).await;
                held.add(batch(seq, &["a"]));
            }
            held.set_live(false);
        });
        let mut seen = Vec::new();
        while let Some(record) = follower.next().await.unwrap() {
            seen.push(record.seq);
        }
        assert_eq!(seen, (1..=20).collect::<Vec<_>>());
        writer.await.unwrap();
    }
}
