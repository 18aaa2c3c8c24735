//! Prepares a journal for a resume: reads it to its end, cuts a torn end, and keeps the cut bytes.
//!
//! Owns the decision which bytes may be cut. A batch that was never acknowledged may be cut.
//! Acknowledged records are cut only if the user named the number, and only from the record on at
//! which the journal cannot be continued. The cut bytes are durable in a file of their own before
//! the journal is made shorter.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use super::cut_pieces;
use crate::disk;
use crate::event::{Event, SharedRecord};
use crate::journal::cut::{Cut, CutBack, CutError, Kept, Loss};
use crate::journal::file::{LockedDir, RunDir};
use crate::journal::line::{self, Line, Position};
use crate::journal::refusal::Objection;
use crate::journal::source::{Cursor, RunSource};
use crate::journal::{JournalError, acknowledged, results, stamp, witness};
use crate::run_state::RunState;
use crate::store;

/// Gives every batch of a run's journal from `from` on to `each`, with the position at which it
/// begins, and then cuts the journal behind the last one.
///
/// # Errors
/// Returns an error if the journal cannot be continued; then nothing was cut.
pub fn cut_back(
    owned: &LockedDir,
    from: Position,
    cut: Cut,
    each: impl FnMut(Position, &[SharedRecord]) -> Result<(), Objection>,
) -> Result<CutBack, CutError> {
    let dir = owned.dir();
    let end = match cut {
        Cut::Torn => None,
        Cut::From(seq) => Some(place_to_cut(dir, seq)?),
    };
    let run: &dyn RunSource = dir;
    let at = run.walk(from, end, each)?;
    if end.is_none() {
        // A record is acknowledged once its batch is durable: no crash tears what was acknowledged.
        witness::refuse_rolled_back(dir, at)?;
    }
    let loss = end.map(|end| loss(dir, end)).transpose()?;
    // Some file systems do not allow a colon in a name.
    let time = stamp::text(stamp::now_ms()).replace(':', "-");
    let set_aside = || {
        if end.is_some() {
            // What was acknowledged is evidence of what was done: it must never be overwritten.
            cut_pieces::keep_agents(dir, at, &time)?;
            acknowledged::cut(dir.path(), at)?;
        }
        let torn = || format!("torn-{time}");
        let name = end.map_or_else(torn, |_| cut_pieces::name(at, &time));
        set_rest_aside(dir, at.offset, &name)
    };
    let kept = set_aside().map_err(|error| JournalError::io("journal: cut", &error))?;
    // An epoch beyond the largest number can only come from a foreign writer: saturating is enough.
    Ok(CutBack { at: Position { epoch: at.epoch.saturating_add(1), ..at }, kept, loss })
}

/// Returns the end of the journal once it is cut at record `seq`: the place before the batch of
/// that record, since a batch is whole or absent. A cut is allowed only at a record that cannot be
/// read past, or at the first record that names a stored result that is lost or damaged. To go back
/// from any other record, the user forks the run. Writes nothing.
///
/// # Errors
/// Returns an error if the journal cannot be read, or must not be cut there.
pub fn place_to_cut(dir: &RunDir, seq: u64) -> Result<Position, CutError> {
    let run: &dyn RunSource = dir;
    let mut batches = run.batches(Cursor::START)?;
    let (mut state, mut named, mut known) = (RunState::default(), Vec::new(), HashSet::new());
    let (before, refused) = loop {
        let before = batches.cursor().place();
        let read = run.fold_next(&mut *batches, |_, records| {
            records.iter().try_for_each(|record| {
                let hashes = results::named_by(&record.event).map(|stored| stored.hash.clone());
                let first = hashes.filter(|hash| known.insert(hash.clone()));
                named.extend(first.map(|hash| Named { by: record.seq, before, hash }));
                Ok(state.apply(record)?)
            })
        });
        match read {
            Ok(true) => {}
            Ok(false) => break (before, None),
            Err(JournalError::Refused(refusal)) => break (before, Some(refusal)),
            Err(error) => return Err(error.into()),
        }
    };
    let is_lost = |named: &&Named| store::check(&dir.results(), &named.hash).is_err();
    match refused {
        Some(refusal) if (before.seq..=refusal.line).contains(&seq) => {
            if before.seq == Position::START.seq {
                return Err(CutError::Beginning(refusal));
            }
            Ok(before)
        }
        // Nothing of it is damaged, but what followed is gone.
        None if before.seq == seq && witness::refuse_rolled_back(dir, before).is_err() => {
            Ok(before)
        }
        refused => match named.iter().filter(|named| named.by == seq).find(is_lost) {
            Some(lost) => Ok(lost.before),
            None => Err(refused.map_or_else(|| first_lost(dir, &named), CutError::elsewhere)),
        },
    }
}

/// A stored result, with the first record that names it.
struct Named {
    /// Number of the record.
    by: u64,
    /// The position at which the batch of the record begins.
    before: Position,
    hash: String,
}

/// Returns the place of the first lost result in a journal whose records can all be read.
fn first_lost(dir: &RunDir, named: &[Named]) -> CutError {
    let lost = named.iter().find_map(|named| {
        let error = store::check(&dir.results(), &named.hash).err()?;
        Some(CutError::Elsewhere { seq: named.by, error: error.into() })
    });
    lost.unwrap_or(CutError::Sound)
}

/// Returns the loss if a journal is cut at this place. Writes nothing.
///
/// # Errors
/// Returns an error if the journal cannot be read.
pub fn loss(dir: &RunDir, end: Position) -> Result<Loss, JournalError> {
    let mut loss = Loss { offset: end.offset, ..Loss::default() };
    let mut read = || -> io::Result<()> {
        let mut journal = disk::open(&dir.journal())?;
        journal.seek(SeekFrom::Start(end.offset))?;
        let (mut input, mut text) = (BufReader::new(journal), Vec::new());
        // Each line is verified against the checksum in the line before, whether that line is sound
        // or not.
        let mut before = Some(end.crc);
        while disk::read_line(&mut input, &mut text)? > 0 {
            match before.map(|crc| line::decode(&text, crc)) {
                Some(Ok(line)) => loss.add(&line),
                Some(Err(fault)) if fault.is_sound() => loss.records += 1,
                Some(Err(_)) | None => loss.damaged += text.len() as u64,
            }
            before = line::recorded_crc(&text);
            text.clear();
        }
        Ok(())
    };
    read().map_err(|error| JournalError::cannot("read", &dir.journal(), &error))?;
    Ok(loss)
}

impl Loss {
    fn add(&mut self, line: &Line<'_>) {
        self.records += 1;
        let Ok(Some(record)) = line.record() else { return };
        match record.event {
            Event::TaskCompleted(_)
            | Event::TaskReused(_)
            | Event::TaskFailed(_)
            | Event::TaskSkipped(_)
            | Event::TaskCancelled(_) => self.ended.extend(record.task),
            Event::ToolStarted(started) => drop(self.calls.insert(started.key)),
            Event::ToolFinished(finished) => drop(self.calls.insert(finished.key)),
            Event::ModelResponded(_) => self.replies += 1,
            _ => {}
        }
    }
}

/// Moves the bytes from `offset` on into a file of their own.
fn set_rest_aside(dir: &RunDir, offset: u64, name: &str) -> io::Result<Option<Kept>> {
    let mut journal = disk::open_to_write(&dir.journal(), OFlags::empty())?;
    let bytes = journal.metadata()?.len().saturating_sub(offset);
    if bytes == 0 {
        return Ok(None);
    }
    let path = dir.path().join(name);
    let mut options = OpenOptions::new();
    let mut kept = options.write(true).create_new(true).mode(0o600).open(&path)?;
    journal.seek(SeekFrom::Start(offset))?;
    io::copy(&mut journal.by_ref().take(bytes), &mut kept)?;
    // Both syncs come before the cut: a crash in between leaves the bytes in both files, never in
    // none.
    disk::sync(&kept)?;
    disk::sync(&File::open(dir.path())?)?;
    journal.set_len(offset)?;
    disk::sync(&journal)?;
    Ok(Some(Kept { path, bytes, offset }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Draft, RunPaused};
    use crate::id::Name;
    use crate::journal::line::Fault;
    use crate::journal::refusal::{Refusal, Why};
    use crate::journal::samples::turn;
    use crate::journal::samples::{finished, intended, spawned};
    use crate::output::Stored;
    use crate::plan::{
        TaskCancelled, TaskCompleted, TaskFailed, TaskReady, TaskReused, TaskSkipped,
    };
    use crate::turn::ToolStatus;
    use callsheet_words::failure::{Failure, FailureKind};

    /// Makes a run with this many batches, each of two records.
    async fn run(batches: u32) -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let journal = dir.create().unwrap().start_writer(Position::START, Vec::new()).unwrap();
        for number in 0..batches {
            journal.append(vec![turn("a", number), turn("b", number)]).await.unwrap();
        }
        journal.close().await;
        (root, dir)
    }

    fn resume(dir: &RunDir, cut: Cut) -> Result<(CutBack, u64), CutError> {
        let mut seen = 0;
        let after = cut_back(&dir.own().unwrap(), Position::START, cut, |_, records| {
            for record in records {
                assert_eq!(record.seq, seen + 1);
                seen = record.seq;
            }
            Ok(())
        })?;
        Ok((after, seen))
    }

    #[tokio::test]
    async fn every_cut_is_taken_up_and_what_was_cut_is_kept() {
        let (_root, dir) = run(3).await;
        // As if no more had been acknowledged than is left.
        std::fs::remove_file(dir.path().join("acknowledged")).unwrap();
        let whole = std::fs::read(dir.journal()).unwrap();
        let lines: Vec<_> = whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        let batches = [lines[..2].iter().sum::<usize>(), lines[..4].iter().sum()];
        for cut in batches[0]..=whole.len() {
            std::fs::write(dir.journal(), &whole[..cut]).unwrap();
            let (after, seen) = resume(&dir, Cut::Torn).unwrap();
            let end = [whole.len(), batches[1], batches[0]].into_iter().find(|end| *end <= cut);
            let end = end.unwrap();
            assert_eq!((after.at.offset, after.at.epoch), (end as u64, 2));
            assert_eq!(
                (after.at.seq, std::fs::read(dir.journal()).unwrap().len()),
                (seen + 1, end)
            );
            match after.kept {
                None => assert_eq!(cut, end),
                Some(kept) => {
                    assert_eq!(std::fs::read(&kept.path).unwrap(), whole[end..cut]);
                    std::fs::remove_file(kept.path).unwrap();
                }
            }
        }
        std::fs::write(dir.journal(), &whole[..batches[0] - 1]).unwrap();
        assert_eq!(resume(&dir, Cut::Torn), Err(JournalError::NeverBegan.into()));
    }

    fn spoil(dir: &RunDir, at: usize) -> Vec<u8> {
        let mut bytes = std::fs::read(dir.journal()).unwrap();
        bytes[at] ^= 1;
        std::fs::write(dir.journal(), &bytes).unwrap();
        bytes
    }

    /// Returns the offsets at which the lines of a journal begin.
    fn begins(dir: &RunDir) -> Vec<usize> {
        let bytes = std::fs::read(dir.journal()).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let begin = |at: &mut usize, line: &[u8]| Some(std::mem::replace(at, *at + line.len()));
        lines.scan(0, begin).collect()
    }

    /// Makes a run with this many batches of two records that can follow each other.
    async fn paused(batches: u32) -> (tempfile::TempDir, RunDir) {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let journal = dir.create().unwrap().start_writer(Position::START, Vec::new()).unwrap();
        let pause = || Draft::run(RunPaused { reason: "x".to_owned(), cause: Default::default() });
        for _ in 0..batches {
            journal.append(vec![pause(), pause()]).await.unwrap();
        }
        journal.close().await;
        (root, dir)
    }

    #[tokio::test]
    async fn damage_is_cut_only_where_it_is() {
        let (_root, dir) = paused(5).await;
        for anywhere in [1, 3, 10, 11] {
            assert_eq!(resume(&dir, Cut::From(anywhere)), Err(CutError::Sound));
        }
        let begins = begins(&dir);
        let bytes = spoil(&dir, begins[5] + 20);
        let damage = (bytes[begins[5]..begins[6]].len() as u64, begins[5] as u64);
        let refused = resume(&dir, Cut::Torn).unwrap_err();
        let why = Why::Damaged(Fault::Checksum);
        let refusal = Refusal { offset: damage.1, line: 6, why };
        assert_eq!(refused, JournalError::Refused(refusal.clone()).into());
        for elsewhere in [0, 1, 4, 7, 11] {
            let refused = CutError::elsewhere(refusal.clone());
            assert_eq!(resume(&dir, Cut::From(elsewhere)), Err(refused));
        }
        assert_eq!(std::fs::read(dir.journal()).unwrap(), bytes, "nothing was cut");
        // A batch is whole or absent: its sound record goes too, and the four behind it.
        let (after, seen) = resume(&dir, Cut::From(6)).unwrap();
        assert_eq!((after.at.seq, seen), (5, 4));
        let loss = after.loss.unwrap();
        let lost = (loss.records, loss.damaged, loss.offset);
        assert_eq!(lost, (5, damage.0, begins[4] as u64));
        let kept = after.kept.unwrap();
        assert_eq!(std::fs::read(kept.path).unwrap(), bytes[kept.offset as usize..]);
        assert_eq!(resume(&dir, Cut::Torn).unwrap().1, 4);
    }

    #[tokio::test]
    async fn nothing_is_cut_where_nothing_would_be_left() {
        let (_root, dir) = paused(3).await;
        let begins = begins(&dir);
        let bytes = spoil(&dir, begins[1] + 20);
        let refused = resume(&dir, Cut::From(2)).unwrap_err();
        assert!(matches!(refused, CutError::Beginning(_)), "{refused}");
        assert_eq!(std::fs::read(dir.journal()).unwrap(), bytes);
    }

    #[tokio::test]
    async fn a_record_that_cannot_follow_can_be_cut() {
        // The second batch names an agent that was never spawned.
        let (_root, dir) = paused(1).await;
        let at = resume(&dir, Cut::Torn).unwrap().0.at;
        let journal = dir.own().unwrap().start_writer(at, Vec::new()).unwrap();
        let pause = Draft::run(RunPaused { reason: "x".to_owned(), cause: Default::default() });
        journal.append(vec![pause.clone(), turn("a", 1)]).await.unwrap();
        journal.append(vec![pause]).await.unwrap();
        journal.close().await;
        let refused = place_to_cut(&dir, 5).unwrap_err();
        let CutError::Elsewhere { error: JournalError::Refused(refusal), .. } = refused else {
            panic!("{refused}")
        };
        assert!(matches!(refusal.why, Why::Illegal(_)), "{refusal}");
        assert_eq!((refusal.line, refusal.offset), (4, begins(&dir)[3] as u64));
        let (after, seen) = resume(&dir, Cut::From(4)).unwrap();
        assert_eq!((seen, after.loss.unwrap().records), (2, 3));
    }

    #[tokio::test]
    async fn a_record_whose_result_is_gone_can_be_cut() {
        let (_root, dir) = paused(2).await;
        let at = resume(&dir, Cut::Torn).unwrap().0.at;
        let journal = dir.own().unwrap().start_writer(at, Vec::new()).unwrap();
        let hash = blake3::hash(b"abc").to_hex().to_string();
        let (path, stored) = (dir.results().join(&hash), Stored { hash, bytes: 3, dropped: 0 });
        let mut finished = finished(1, 0, ToolStatus::Ok, "a");
        let Event::ToolFinished(tool) = &mut finished.event else { panic!("a result") };
        tool.stored = Some(stored);
        journal.append(vec![spawned("Hello")]).await.unwrap();
        journal.append(vec![finished]).await.unwrap();
        journal.close().await;
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(place_to_cut(&dir, 6), Err(CutError::Sound));
        std::fs::write(&path, "abd").unwrap();
        let damaged = place_to_cut(&dir, 5).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        for (refused, why) in
            [(damaged, "damaged"), (place_to_cut(&dir, 5).unwrap_err(), "missing")]
        {
            let CutError::Elsewhere { seq: 6, error } = refused else { panic!("{refused}") };
            assert!(matches!(&error, JournalError::BadResult(bad) if bad.reason.contains(why)));
        }
        assert_eq!(place_to_cut(&dir, 6).map(|end| end.seq), Ok(6));
    }

    #[tokio::test]
    async fn a_call_that_talks_of_a_result_names_none() {
        let (_root, dir) = paused(1).await;
        let at = resume(&dir, Cut::Torn).unwrap().0.at;
        let journal = dir.own().unwrap().start_writer(at, Vec::new()).unwrap();
        journal.append(vec![spawned("Hello")]).await.unwrap();
        let talk = r#"{"stored":{"hash":"/dev/zero"}}"#;
        journal.append(vec![intended(1, 0, "bash", talk)]).await.unwrap();
        journal.close().await;
        for anywhere in 1..=4 {
            assert_eq!(place_to_cut(&dir, anywhere), Err(CutError::Sound));
        }
        std::fs::remove_dir(dir.results()).unwrap();
        assert_eq!(results::first(&dir, |_| true), Ok(None));
    }

    #[tokio::test]
    async fn a_lost_result_before_a_damaged_record_can_be_cut() {
        let (_root, dir) = paused(1).await;
        let at = resume(&dir, Cut::Torn).unwrap().0.at;
        let journal = dir.own().unwrap().start_writer(at, Vec::new()).unwrap();
        journal.append(vec![spawned("Hello")]).await.unwrap();
        for number in 0..5 {
            let mut finished = finished(1, number, ToolStatus::Ok, "a");
            let Event::ToolFinished(tool) = &mut finished.event else { panic!("a result") };
            let hash = blake3::hash(format!("{}", number % 2).as_bytes()).to_hex().to_string();
            tool.stored = Some(Stored { hash, bytes: 1, dropped: 0 });
            journal.append(vec![finished]).await.unwrap();
        }
        journal.close().await;
        std::fs::write(dir.results().join(blake3::hash(b"0").to_hex().as_str()), "0").unwrap();
        let lost = place_to_cut(&dir, 4).unwrap_err();
        assert!(matches!(lost, CutError::Elsewhere { seq: 5, .. }), "{lost}");
        spoil(&dir, begins(&dir)[6] + 20);
        for seq in [5, 7] {
            assert_eq!(place_to_cut(&dir, seq).map(|end| end.seq), Ok(seq));
        }
        let refused = place_to_cut(&dir, 6).unwrap_err();
        assert!(matches!(refused, CutError::Elsewhere { seq: 7, .. }), "{refused}");
    }

    #[tokio::test]
    async fn every_end_of_a_task_is_told_as_lost() {
        let (root, _) = paused(1).await;
        let dir = RunDir::at(root.path().join("ends"));
        let journal = dir.create().unwrap().start_writer(Position::START, Vec::new()).unwrap();
        let task = |name: &str, event: Event| Draft::task(&Name::new(name).unwrap(), event);
        let (reason, attempt, output) = ("x".to_owned(), 1, crate::output::Output::whole("x"));
        let failure = Failure::new(FailureKind::Cancelled, "x");
        let ends = vec![
            task("completed", TaskCompleted { attempt, output: output.clone() }.into()),
            task("reused", TaskReused { key: reason.clone(), output }.into()),
            task("failed", TaskFailed { attempt, failure, consequence: None }.into()),
            task("skipped", TaskSkipped { reason: reason.clone(), because: None }.into()),
            task("cancelled", TaskCancelled { reason }.into()),
            task("ready", TaskReady {}.into()),
        ];
        journal.append(ends).await.unwrap();
        journal.close().await;
        let ended = loss(&dir, Position::START).unwrap().ended;
        let ended: Vec<_> = ended.iter().map(Name::as_str).collect();
        assert_eq!(ended, ["cancelled", "completed", "failed", "reused", "skipped"]);
    }
}
