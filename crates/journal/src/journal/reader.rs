//! Reads a journal: whole batches only, verified line by line, with memory for one batch.
//!
//! Owns the rule that tells a torn end from damage. Never writes, and needs no lock: a batch
//! without its end mark is not shown yet, whether it is still being written or was cut by a crash.

use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use crate::disk::{self, NamedFile};
use crate::event::{Record, SharedRecord};
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::line::{self, Fault, Line, Position};
use crate::journal::refusal::{Objection, Refusal, Why};

/// Bytes read from a file at once: a few hundred records.
const CHUNK: usize = 256 * 1024;

/// The bytes after the last whole batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// No bytes.
    Clean,
    /// A part of a batch that was never acknowledged. It must be cut before anything is appended.
    Torn {
        /// The offset at which it begins, in bytes.
        offset: u64,
    },
    /// A line that cannot be read although it was acknowledged or written whole.
    Refused(Refusal),
}

/// Verifies a journal from `from` to its end. Returns the end of its last whole batch, and what
/// follows.
///
/// A bad line is a torn end unless a later line says that it belongs to a later batch. Only one
/// batch is ever in flight, so a later batch proves that the bad line had been acknowledged. A line
/// whose checksum is right is never a torn end: it was written whole.
///
/// # Errors
/// Returns an error if the input cannot be read.
pub fn judge(input: impl BufRead, from: Position) -> io::Result<(Position, Tail)> {
    let mut scan = Scan { input, at: from, line: Vec::new() };
    loop {
        if let Some(tail) = scan.batch(|_| Ok(()))? {
            return Ok((scan.at, tail));
        }
    }
}

/// Steps over batches and verifies their lines.
struct Scan<R> {
    input: R,
    /// The end of the last whole batch.
    at: Position,
    line: Vec<u8>,
}

impl<R: BufRead> Scan<R> {
    /// Verifies the next batch and gives its lines to `each`. Returns `None` if the batch was
    /// whole; otherwise the lines given must be discarded.
    fn batch(
        &mut self,
        mut each: impl FnMut(&Line<'_>) -> Result<(), Why>,
    ) -> io::Result<Option<Tail>> {
        let first = self.at.seq;
        let mut next = self.at;
        loop {
            self.line.clear();
            let read = disk::read_line(&mut self.input, &mut self.line)?;
            if read == 0 && next.seq == first {
                return Ok(Some(Tail::Clean));
            }
            let line = match line::decode(&self.line, next.crc) {
                Ok(line) => line,
                // The checksum is right, so no crash caused the fault, and the line must not be
                // cut.
                Err(fault) if fault.is_sound() => return Ok(Some(refused(next, fault))),
                Err(fault) => return self.verdict(next, fault).map(Some),
            };
            let known = if line.seq != next.seq {
                Err(Why::Order(line.seq))
            } else if line.batch != first {
                Err(Why::Amid)
            } else {
                each(&line)
            };
            if let Err(why) = known {
                return Ok(Some(refused(next, why)));
            }
            let (seq, offset) = (next.seq + 1, next.offset + read as u64);
            next = Position { seq, crc: line.crc, epoch: line.epoch, offset };
            if line.ends_batch {
                self.at = next;
                return Ok(None);
            }
        }
    }

    /// Decides if a bad line, the one just read, is a torn end or damage.
    fn verdict(&mut self, bad: Position, fault: Fault) -> io::Result<Tail> {
        // A later format may even compute its checksum in another way, so the first line is checked
        // for one.
        let newer = if bad.seq == 1 { line::newer(&self.line) } else { None };
        if let Some(format) = newer {
            return Ok(refused(bad, Why::Newer(format)));
        }
        loop {
            if line::batch_of(&self.line).is_some_and(|batch| batch > bad.seq) {
                return Ok(refused(bad, fault));
            }
            self.line.clear();
            if disk::read_line(&mut self.input, &mut self.line)? == 0 {
                return Ok(Tail::Torn { offset: self.at.offset });
            }
        }
    }
}

impl<R: BufRead + Seek> Scan<R> {
    /// Returns the wanted records of the next whole batch, or `None` if there is none yet.
    ///
    /// In a live run a batch may be completed while it is read, or cut and replaced by another, and
    /// then the parts that were read do not belong together. A refusal means that a later batch
    /// follows, so by then this batch is whole and a second try can read it. Only a line that is
    /// refused twice is reported.
    fn next(
        &mut self,
        wanted: impl Fn(&Line<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        match self.look(&wanted) {
            Err(JournalError::Refused(_)) => self.look(&wanted),
            looked => looked,
        }
    }

    fn look(
        &mut self,
        wanted: &impl Fn(&Line<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        let mut records = Vec::new();
        let each = |line: &Line<'_>| {
            if wanted(line) {
                records.extend(known(line)?.map(Arc::new));
            }
            Ok(())
        };
        let tail = self.batch(each).map_err(JournalError::read)?;
        let Some(tail) = tail else { return Ok(Some(records)) };
        // Bytes beyond the last whole batch may change before the next read, so they are read
        // again.
        self.input.seek(SeekFrom::Start(self.at.offset)).map_err(JournalError::read)?;
        match tail {
            Tail::Clean | Tail::Torn { .. } => Ok(None),
            Tail::Refused(refusal) => Err(refusal.into()),
        }
    }
}

fn refused(bad: Position, why: impl Into<Why>) -> Tail {
    Tail::Refused(Refusal::at(bad, why))
}

/// Reads the records of a journal file, batch by batch.
pub struct Reader {
    scan: Scan<BufReader<NamedFile>>,
}

impl Reader {
    /// Opens a journal at its beginning.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Self::open_at(path, Position::START)
    }

    /// Opens a journal at the end of a batch that was read before.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub fn open_at(path: &Path, at: Position) -> Result<Self, JournalError> {
        let open = || {
            let mut file = NamedFile::open(path)?;
            file.seek(SeekFrom::Start(at.offset))?;
            Ok(file)
        };
        let file = open().map_err(|error| JournalError::cannot("open", path, &error))?;
        let input = BufReader::with_capacity(CHUNK, file);
        Ok(Self { scan: Scan { input, at, line: Vec::new() } })
    }

    /// Returns the records of the next whole batch, or `None` if there is none yet. Records of
    /// unknown types are left out, so the list may be empty.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or holds a record that cannot be read past.
    pub fn next_batch(&mut self) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        self.next_batch_of(|_| true)
    }

    /// Does the same as [`next_batch`](Self::next_batch), but decodes only the `wanted` lines.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or holds a record that cannot be read past.
    pub fn next_batch_of(
        &mut self,
        wanted: impl Fn(&Line<'_>) -> bool,
    ) -> Result<Option<Vec<SharedRecord>>, JournalError> {
        self.scan.next(wanted)
    }

    /// Gives the records of the next whole batch to `fold`, with the position at which it begins.
    /// Returns false if there is no other whole batch yet.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if it holds a record that cannot be read past,
    /// or if `fold` objects to a record.
    pub fn fold_batch(
        &mut self,
        fold: impl FnOnce(Position, &[SharedRecord]) -> Result<(), Objection>,
    ) -> Result<bool, JournalError> {
        let before = self.position();
        let Some(records) = self.next_batch()? else { return Ok(false) };
        match fold(before, &records) {
            Ok(()) => Ok(true),
            Err(objection) => Err(self.objected(before, objection)),
        }
    }

    /// Returns the error for a record of the batch that begins at `batch`.
    pub(in crate::journal) fn objected(
        &mut self,
        batch: Position,
        Objection { seq: line, why }: Objection,
    ) -> JournalError {
        match self.offset_of(batch, line) {
            Ok(offset) => Refusal { offset, line, why }.into(),
            Err(error) => JournalError::read(error),
        }
    }

    /// Returns the offset of a record's line, in bytes, within the batch that begins at `batch`.
    fn offset_of(&mut self, batch: Position, seq: u64) -> io::Result<u64> {
        let input = &mut self.scan.input;
        input.seek(SeekFrom::Start(batch.offset))?;
        let (mut offset, mut line) = (batch.offset, Vec::new());
        for _ in batch.seq..seq {
            line.clear();
            offset += disk::read_line(input, &mut line)? as u64;
        }
        input.seek(SeekFrom::Start(self.scan.at.offset))?;
        Ok(offset)
    }

    /// Returns the end of the last whole batch.
    #[must_use]
    pub fn position(&self) -> Position {
        self.scan.at
    }

    pub(in crate::journal) fn file(&self) -> &NamedFile {
        self.scan.input.get_ref()
    }
}

/// Decodes the record of a line. Returns `None` if its type is unknown and it may be skipped.
fn known(line: &Line<'_>) -> Result<Option<Record>, Why> {
    match line.record()? {
        None if line.critical => Err(Why::Critical(line.kind.clone().into_owned())),
        record => Ok(record),
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("at", &self.scan.at).finish_non_exhaustive()
    }
}

/// Returns all records of one agent, oldest first.
///
/// # Errors
/// Returns an error if the file cannot be read, or holds a record that cannot be read past.
pub fn agent_records(path: &Path, agent: &AgentId) -> Result<Vec<SharedRecord>, JournalError> {
    let mut reader = Reader::open(path)?;
    let mut all = Vec::new();
    let wanted = |line: &Line<'_>| line.agent.as_deref() == Some(agent.as_str());
    while let Some(records) = reader.next_batch_of(wanted)? {
        all.extend(records);
    }
    Ok(all)
}

/// Returns one agent's records of the batch at `from`, and the end of that batch.
///
/// # Errors
/// Returns an error if no whole batch can be read there.
pub fn batch_of(
    input: impl BufRead,
    from: Position,
    agent: &AgentId,
) -> Result<(Vec<SharedRecord>, Position), JournalError> {
    let mut scan = Scan { input, at: from, line: Vec::new() };
    let mut records = Vec::new();
    let each = |line: &Line<'_>| {
        if line.agent.as_deref() == Some(agent.as_str()) {
            records.extend(known(line)?.map(Arc::new));
        }
        Ok(())
    };
    let tail = scan.batch(each).map_err(JournalError::read)?;
    match tail {
        None => Ok((records, scan.at)),
        Some(Tail::Refused(refusal)) => Err(refusal.into()),
        // The batch was whole when its place was noted, so the journal has been changed since.
        Some(Tail::Clean | Tail::Torn { .. }) => Err(Refusal::at(from, Why::Gone).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;
    use crate::journal::line::{Batch, Framer, write_body};
    use crate::journal::samples::turn;

    /// Batches of one to four lines, and where each line and each batch ends.
    fn journal(batches: u64) -> (Vec<u8>, Vec<usize>, Vec<usize>) {
        let (mut bytes, mut lines, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = Position::START;
        for number in 0..batches {
            let last = at.seq + number % 4;
            let batch = Batch { first: at.seq, last, epoch: 1, ts_ms: 5 };
            let mut framer = Framer::new(batch, at.crc);
            for _ in batch.first..=batch.last {
                let mut body = Vec::new();
                let agent = if number % 2 == 0 { "even" } else { "odd" };
                write_body(&mut turn(agent, number as u32), &mut body);
                framer.write(&body, &mut bytes);
                lines.push(bytes.len());
            }
            at = Position { seq: last + 1, crc: framer.crc(), ..at };
            ends.push(bytes.len());
        }
        (bytes, lines, ends)
    }

    fn tail_of(bytes: &[u8]) -> (Position, Tail) {
        judge(bytes, Position::START).unwrap()
    }

    #[test]
    fn every_cut_recovers_exactly_the_whole_batches() {
        let (bytes, lines, ends) = journal(12);
        for cut in 0..=bytes.len() {
            let whole = ends.iter().rev().find(|end| **end <= cut).copied().unwrap_or(0);
            let (at, tail) = tail_of(&bytes[..cut]);
            assert_eq!(at.offset, whole as u64);
            assert_eq!(at.seq, 1 + lines.iter().filter(|end| **end <= whole).count() as u64);
            let torn = Tail::Torn { offset: whole as u64 };
            assert_eq!(tail, if cut == whole { Tail::Clean } else { torn });
        }
    }

    #[test]
    fn every_flipped_bit_before_the_last_batch_is_refused() {
        let (mut bytes, lines, ends) = journal(8);
        let last_batch = ends[ends.len() - 2];
        for at in 0..last_batch {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                let (good, tail) = tail_of(&bytes);
                let bad = lines.iter().filter(|end| **end <= at).count() as u64 + 1;
                match tail {
                    Tail::Refused(Refusal { line, why, .. }) => {
                        assert_eq!(line, bad);
                        let newer = matches!(why, Why::Newer(_));
                        assert!(!newer || bad == 1, "only the first line is believed");
                    }
                    Tail::Clean | Tail::Torn { .. } => panic!("byte {at}, bit {bit}: {tail:?}"),
                }
                assert!(good.offset <= at as u64);
                bytes[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_the_last_batch_looks_torn() {
        let (mut bytes, _, ends) = journal(8);
        let offset = ends[ends.len() - 2];
        for at in offset..bytes.len() {
            bytes[at] ^= 1;
            let (_, tail) = tail_of(&bytes);
            assert_eq!(tail, Tail::Torn { offset: offset as u64 }, "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn a_missing_line_is_refused() {
        let (bytes, lines, _) = journal(8);
        let mut cut = bytes[..lines[2]].to_vec();
        cut.extend_from_slice(&bytes[lines[3]..]);
        let (_, tail) = tail_of(&cut);
        assert!(matches!(tail, Tail::Refused(Refusal { line: 4, .. })), "{tail:?}");
    }

    proptest! {
        #[test]
        fn an_overwritten_last_batch_is_cut(
            place: prop::sample::Index, junk in prop::collection::vec(any::<u8>(), 1..300),
        ) {
            let (mut bytes, _, ends) = journal(8);
            let offset = ends[ends.len() - 2];
            let from = offset + place.index(bytes.len() - offset);
            let changed = junk.iter().zip(&bytes[from..]).any(|(new, old)| new != old);
            for (old, new) in bytes[from..].iter_mut().zip(&junk) {
                *old = *new;
            }
            prop_assume!(changed);
            prop_assert_eq!(tail_of(&bytes).1, Tail::Torn { offset: offset as u64 });
        }
    }

    /// A file that is being written: each time a reader reaches its end, it gets its next content.
    struct Written {
        contents: VecDeque<Vec<u8>>,
        at: u64,
    }

    impl Read for Written {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let now = &self.contents[0];
            let mut rest = now.get(self.at as usize..).unwrap_or_default();
            let read = rest.read(buffer)?;
            self.at += read as u64;
            if read == 0 && self.contents.len() > 1 {
                self.contents.pop_front();
            }
            Ok(read)
        }
    }

    impl Seek for Written {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            let SeekFrom::Start(at) = to else { panic!("only from the start") };
            self.at = at;
            Ok(at)
        }
    }

    /// Returns the numbers of the records that a reader gets from a journal with these contents.
    fn read_while_written(contents: [&[u8]; 2]) -> Vec<u64> {
        let contents = contents.map(<[u8]>::to_vec).into();
        let input = BufReader::with_capacity(100, Written { contents, at: 0 });
        let mut scan = Scan { input, at: Position::START, line: Vec::new() };
        let (mut seen, mut nothing) = (Vec::new(), 0);
        // The end of the first content counts at most once as nothing, so two such results end the
        // loop.
        while nothing < 2 {
            match scan.next(|_| true).unwrap() {
                Some(records) => seen.extend(records.iter().map(|record| record.seq)),
                None => nothing += 1,
            }
        }
        seen
    }

    #[test]
    fn a_batch_that_is_finished_while_it_is_read_is_no_damage() {
        let (bytes, lines, ends) = journal(9);
        let all: Vec<_> = (1..=lines.len() as u64).collect();
        for cut in ends[2]..ends[4] {
            assert_eq!(read_while_written([&bytes[..cut], &bytes]), all, "{cut}");
        }
    }

    #[test]
    fn a_torn_batch_that_is_cut_and_written_anew_while_it_is_read_is_no_damage() {
        let (bytes, lines, ends) = journal(9);
        let all: Vec<_> = (1..=lines.len() as u64).collect();
        let (before, first) =
            (&bytes[..ends[3]], 1 + lines.iter().filter(|e| **e <= ends[3]).count() as u64);
        let batch = Batch { first, last: first + 2, epoch: 1, ts_ms: 5 };
        let mut framer = Framer::new(batch, line::recorded_crc(before).unwrap());
        let mut torn = Vec::new();
        for number in 0..3 {
            let mut body = Vec::new();
            write_body(&mut turn("a-long-name-of-an-agent", number), &mut body);
            framer.write(&body, &mut torn);
        }
        for cut in 1..torn.len() {
            let first = [before, &torn[..cut]].concat();
            assert_eq!(read_while_written([&first, &bytes]), all, "{cut}");
        }
    }

    #[test]
    fn a_reader_gives_whole_batches_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (bytes, lines, ends) = journal(8);
        std::fs::write(&path, &bytes[..ends[2] + 5]).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        for number in 0..3 {
            assert_eq!(reader.next_batch().unwrap().unwrap().len(), number % 4 + 1);
        }
        assert_eq!(reader.next_batch().unwrap(), None);
        let at = reader.position();
        assert_eq!(at.offset, ends[2] as u64);
        std::fs::write(&path, &bytes).unwrap();
        let next = reader.next_batch().unwrap().unwrap();
        assert_eq!((next.len(), next[0].seq), (4, at.seq));
        let mut other = Reader::open_at(&path, at).unwrap();
        assert_eq!(other.next_batch().unwrap().unwrap(), next);

        let even = agent_records(&path, &AgentId::from_text("even")).unwrap();
        assert_eq!(even.len(), 1 + 3 + 1 + 3);
        let mut damaged = bytes.clone();
        damaged[lines[0] + 20] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let error = agent_records(&path, &AgentId::from_text("even")).unwrap_err();
        let offset = lines[0] as u64;
        let why = Why::Damaged(Fault::Checksum);
        assert_eq!(error, Refusal { offset, line: 2, why }.into());
    }

    /// Appends a line of this front, with a checksum that is right.
    fn seal(front: &str, crc: u32, bytes: &mut Vec<u8>) -> u32 {
        let crc = crc32c::crc32c_append(crc, front.as_bytes());
        bytes.extend_from_slice(format!("{front},\"crc\":\"{crc:08x}\"}}\n").as_bytes());
        crc
    }

    const LATER: &str = r#"{"v":1,"seq":1,"bt":1,"be":true,"ep":1,"ts":"2026-11-18T02:14:05.123Z","type":"later.on","data":{}"#;

    #[test]
    fn unknown_types_are_passed_over_unless_they_are_critical() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut bytes = Vec::new();
        let crc = seal(LATER, 0, &mut bytes);
        let mut body = Vec::new();
        write_body(&mut turn("a", 1), &mut body);
        let batch = Batch { first: 2, last: 2, epoch: 1, ts_ms: 5 };
        Framer::new(batch, crc).write(&body, &mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(reader.next_batch().unwrap().map(|records| records.len()), Some(0));
        assert_eq!(reader.next_batch().unwrap().map(|records| records[0].seq), Some(2));

        bytes.clear();
        seal(&format!("{LATER},\"crit\":true"), 0, &mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        let refused = Reader::open(&path).unwrap().next_batch().unwrap_err();
        let why = Why::Critical("later.on".to_owned());
        assert_eq!(refused, Refusal { offset: 0, line: 1, why }.into());
    }

    #[test]
    fn a_last_line_that_was_written_whole_is_never_torn() {
        let (whole, lines, _) = journal(8);
        let (last, bytes) = (lines.len() as u64 + 1, whole.len() as u64);
        let crc = line::recorded_crc(&whole).unwrap();
        let sound = format!(
            r#"{{"v":1,"seq":{last},"bt":{last},"be":true,"ep":1,"ts":"2026-11-18T02:14:05.123Z","type":"turn.started","data":{{"turn":1}}"#
        );
        type Fits = fn(&Why) -> bool;
        let unreadable: Fits = |why| matches!(why, Why::Unreadable(_));
        let cases: [(&str, &str, Fits); 9] = [
            ("\"v\":1", "\"v\":2", |why| *why == Why::Newer(2)),
            ("2026-11-18T02", "2026-11-18 02", unreadable),
            ("\"ep\":1", "\"ep\":-1", unreadable),
            ("\"be\":true,", "", unreadable),
            ("{\"v\"", "[\"v\"", unreadable),
            ("\"turn\":1", "\"turn\":\"one\"", unreadable),
            ("\"data\":{\"turn\":1}", "\"data\":7", unreadable),
            ("turn.started", "x\",\"crit\":true,\"y\":\"", |why| *why == Why::Critical("x".into())),
            ("\"seq\":", "\"seq\":9", |why| matches!(why, Why::Order(_))),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        for (from, to, fits) in cases {
            let mut bytes_now = whole.clone();
            seal(&sound.replace(from, to), crc, &mut bytes_now);
            std::fs::write(&path, &bytes_now).unwrap();
            let mut reader = Reader::open(&path).unwrap();
            let refused = loop {
                match reader.next_batch() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{to}: taken for torn"),
                    Err(JournalError::Refused(refusal)) => break refusal,
                    Err(error) => panic!("{error}"),
                }
            };
            assert_eq!((refused.line, refused.offset), (last, bytes), "{to}: {refused}");
            assert!(fits(&refused.why), "{to}: {refused}");
            // Cut anywhere, it is torn.
            for cut in whole.len() + 1..bytes_now.len() {
                assert_eq!(tail_of(&bytes_now[..cut]).1, Tail::Torn { offset: bytes });
            }
        }
    }

    #[test]
    fn a_record_that_cannot_follow_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (bytes, lines, _) = journal(4);
        std::fs::write(&path, &bytes).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        assert!(reader.fold_batch(|_, _| Ok(())).unwrap());
        let why = Why::Illegal("x".to_owned());
        let objection = Objection { seq: 3, why: why.clone() };
        let refused = reader.fold_batch(|_, _| Err(objection)).unwrap_err();
        assert_eq!(refused, Refusal { offset: lines[1] as u64, line: 3, why }.into());
        assert_eq!(reader.next_batch().unwrap().map(|records| records[0].seq), Some(4));
    }
}
