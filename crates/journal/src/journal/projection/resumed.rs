//! The agents' files of a resumed run, and files that are made again.
//!
//! Owns how far a file can be trusted: its whole lines, if the journal gives the last of them too.
//! Missing lines are appended; a file that does not match the journal is made again. No line holds a zero byte: a
//! file with one lost a part when the machine lost its power, and is made again too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;

use super::{Files, Lengths, LogText, OpenFiles, Projection, View, append_to, lengths_of, whole};
use crate::disk;
use crate::event::{Event, SharedRecord};
use crate::id::AgentId;
use crate::journal::agent_files::AgentFiles;
use crate::journal::line::Position;
use crate::journal::source::{RecordedRun, RunSource};
use crate::journal::{JournalError, Observer, stand_in};

/// Records that are gathered before the files are written: a few megabytes.
const GATHERED: u64 = 4_096;

/// Bytes read from a file at once.
const CHUNK: usize = 64 * 1024;

/// The longest last line that is looked for from the end of a file.
const LONGEST_LAST: usize = 2 << 20;

/// The largest log whose lines are counted, in bytes; a larger one is made again.
const LARGEST_LOG: u64 = 1 << 30;

/// The content of an agent's files that the journal has not given yet.
#[derive(Debug, Default)]
struct There {
    /// Number of the record of the transcript's last line; 0 if it has no line.
    last: u64,
    /// True once the journal has given that line.
    met: bool,
    /// Lines of the log that the journal has not given yet.
    lines: u64,
}

impl There {
    fn fits(&self) -> bool {
        self.lines == 0 && (self.met || self.last == 0)
    }
}

impl Projection {
    /// Makes the projection of a resumed run. When this returns, every file that can be written
    /// holds exactly what the journal gives.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub fn resume(
        run: impl Into<RecordedRun>,
        paths: AgentFiles,
        log_text: LogText,
    ) -> Result<Self, JournalError> {
        let run = run.into();
        let mut projection = Self::new(run.clone(), paths.clone(), log_text);
        let mut known: HashMap<AgentId, There> = HashMap::new();
        let all = |_: &AgentId| true;
        each_of_agents(&*run, Position::START, all, |_, record, id| {
            let there = known.entry(id.clone()).or_insert_with(|| look_at(&paths, id));
            projection.take_over(record, id, there);
            if record.seq.is_multiple_of(GATHERED) {
                projection.catch_up();
            }
        })?;
        projection.catch_up();
        let stems: HashSet<_> = known.keys().map(AgentId::file_stem).collect();
        remove(&paths, |stem| !stems.contains(stem));
        let wrong = known.into_iter().filter(|(_, there)| !there.fits()).map(|(id, _)| id);
        projection.make_again(&wrong.collect())?;
        Ok(projection)
    }

    /// Makes the same projection as [`resume`](Self::resume) from the known state of the files at
    /// a place of the journal: if the files still match that state, only the records after that
    /// place are read.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read.
    pub fn resume_from(
        run: impl Into<RecordedRun>,
        paths: AgentFiles,
        log_text: LogText,
        (from, files): (Position, Files),
    ) -> Result<Self, JournalError> {
        let run = run.into();
        let boot = stand_in::boot_id(paths.folder());
        if files.boot.is_empty() || files.boot != boot || !files.stand_in(&paths) {
            return Self::resume(run, paths, log_text);
        }
        let mut projection = Self::new(run.clone(), paths.clone(), log_text);
        let stem = |id: &AgentId| id.file_stem();
        let mut stems: HashSet<_> = files.open.keys().chain(files.ended.keys()).map(stem).collect();
        projection.ended = files.ended;
        for (id, OpenFiles { transcript, .. }) in files.open {
            projection.agents.insert(id, View { transcript, ..View::default() });
        }
        each_of_agents(
            &*run,
            from,
            |_| true,
            |_, record, id| {
                if stems.insert(stem(id)) {
                    // The agent's files come from a process whose records were partly cut from the
                    // journal.
                    for path in [paths.transcript(id), paths.log(id)] {
                        let _ = fs::remove_file(path);
                    }
                }
                projection.gather(record);
            },
        )?;
        projection.catch_up();
        remove(&paths, |stem| !stems.contains(stem));
        Ok(projection)
    }

    /// Makes all files again from the journal, as many as possible. The journal is read twice;
    /// `progress` receives the number of bytes read now and then.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read, or if a file could not be removed or
    /// written.
    pub fn rebuild(
        run: &RecordedRun,
        paths: &AgentFiles,
        log_text: LogText,
        mut progress: impl FnMut(u64),
    ) -> Result<(), JournalError> {
        // Read the whole journal before a file is touched: if it cannot be read, the old files
        // stay.
        let whole = run.walk(Position::START, None, |at, _| {
            progress(at.offset);
            Ok(())
        })?;
        let stayed = remove(paths, |_| true);
        let folder = paths.folder();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| JournalError::cannot("make", folder, &error))?;
        let mut projection = Self::new(run.clone(), paths.clone(), log_text);
        let wanted = |id: &AgentId| !stayed.contains_key(&id.file_stem());
        each_of_agents(&**run, Position::START, wanted, |at, record, _| {
            progress(whole.offset + at.offset);
            projection.gather(record);
        })?;
        projection.catch_up();
        // On a full disk the projection would wait for disk space, but nobody waits for it here:
        // that is an error.
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let waiting = projection.touched.first().map(|id| (id.file_stem(), full()));
        let failed = projection.failed.take().map(|(id, error)| (id.file_stem(), error));
        match stayed.into_iter().next().or(failed).or(waiting) {
            Some((stem, error)) => {
                let files = folder.join(stem);
                Err(JournalError::io(format!("{}.*: not made again", files.display()), &error))
            }
            None => Ok(()),
        }
    }

    /// Folds a record, and queues only those of its lines that the files do not hold yet.
    fn take_over(&mut self, record: &SharedRecord, id: &AgentId, there: &mut There) {
        self.agents.entry(id.clone()).or_default();
        self.touch(id);
        let Some(view) = self.agents.get_mut(id) else { return };
        let before = view.messages.len();
        view.transcript.fold(&whole(&*self.run, record), &mut view.messages);
        if view.messages.len() > before && record.seq <= there.last {
            view.messages.truncate(before);
            there.met |= record.seq == there.last;
        }
        let text = (self.log_text)(record);
        match there.lines.checked_sub(text.lines().count() as u64) {
            Some(more) => there.lines = more,
            // A log that holds only a part of these lines is made again.
            None => view.log.extend_from_slice(text.as_bytes()),
        }
        view.ended = matches!(record.event, Event::AgentEnded(_));
    }

    fn make_again(&mut self, wrong: &HashSet<AgentId>) -> Result<(), JournalError> {
        if wrong.is_empty() {
            return Ok(());
        }
        for id in wrong {
            tracing::warn!(agent = %id, "its transcript or log did not fit the journal: made again");
            // The open files are about to be removed; later lines must go into the new ones.
            let files = self.agents.get_mut(id).and_then(|view| view.files.take());
            self.open -= usize::from(files.is_some());
        }
        let stems: HashSet<_> = wrong.iter().map(AgentId::file_stem).collect();
        remove(&self.paths, |stem| stems.contains(stem));
        let mut again = Self::new(self.run.clone(), self.paths.clone(), self.log_text);
        let of_wrong = |id: &AgentId| wrong.contains(id);
        each_of_agents(&*self.run, Position::START, of_wrong, |_, record, _| again.gather(record))?;
        again.catch_up();
        self.ended.append(&mut again.ended);
        Ok(())
    }

    /// Takes a record in as in a live run, and writes the files every [`GATHERED`] records.
    fn gather(&mut self, record: &SharedRecord) {
        self.committed(record);
        self.batch_end();
        if record.seq.is_multiple_of(GATHERED) {
            self.catch_up();
        }
    }
}

impl Files {
    /// Returns true if the files match these lengths and end with a whole line there. Files of
    /// agents that had not ended may be longer: they are cut to their length.
    fn stand_in(&self, paths: &AgentFiles) -> bool {
        let ended = |(id, lengths): (&AgentId, &Option<Lengths>)| {
            lengths.is_some() && lengths_of(paths, id) == *lengths
        };
        let open = |(id, files): (&AgentId, &OpenFiles)| {
            let Some([transcript, log]) = files.lengths else { return false };
            ends_line(&paths.transcript(id), transcript) && ends_line(&paths.log(id), log)
        };
        self.ended.iter().all(ended) && self.open.iter().all(open)
    }
}

/// Cuts a file to this length. Returns true if a line ends there.
fn ends_line(path: &Path, length: u64) -> bool {
    let look = || {
        let mut file = disk::open_to_write(path, OFlags::empty())?;
        let mut last = [b'\n'];
        if let Some(before) = length.checked_sub(1) {
            file.seek(SeekFrom::Start(before))?;
            file.read_exact(&mut last)?;
        }
        cut(&file, length)?;
        Ok::<_, io::Error>(last == [b'\n'])
    };
    look().unwrap_or(false)
}

/// Gives the records of the wanted agents from the position `from` on, in order, each with the
/// position behind its batch.
fn each_of_agents(
    run: &dyn RunSource,
    from: Position,
    wanted: impl Fn(&AgentId) -> bool,
    mut each: impl FnMut(Position, &SharedRecord, &AgentId),
) -> Result<(), JournalError> {
    let mut batches = run.batches(from.into())?;
    let of_wanted =
        |agent: Option<&str>| agent.is_some_and(|agent| wanted(&AgentId::from_text(agent)));
    while let Some(records) = batches.next_of(&|label| of_wanted(label.agent))? {
        for record in &records {
            if let Some(id) = &record.agent {
                each(batches.cursor().place(), record, id);
            }
        }
    }
    Ok(())
}

/// Cuts an agent's files to whole lines and reads how far they go. A file that cannot be read is
/// reported later, when it cannot be written.
fn look_at(paths: &AgentFiles, id: &AgentId) -> There {
    let (transcript, log) = (paths.transcript(id), paths.log(id));
    // The files must exist even while there is nothing to write.
    let made = [&transcript, &log].map(|path| append_to(path));
    drop(made);
    let has_hole = [&transcript, &log].iter().any(|path| has_hole(path).unwrap_or(true));
    let last = last_line(&transcript).ok().flatten();
    // A line without a number matches no journal, so the files are made again.
    let last = last.map_or(0, |line| number_of(&line).unwrap_or(u64::MAX));
    let last = if has_hole { u64::MAX } else { last };
    let lines = lines_of(&log).unwrap_or(0);
    There { last, met: false, lines }
}

/// Returns true if a file holds a zero byte, as where a machine that lost its power had not written yet.
fn has_hole(path: &Path) -> io::Result<bool> {
    let mut file = disk::open_to_write(path, OFlags::empty())?;
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(false),
            got if chunk[..got].contains(&0) => return Ok(true),
            _ => {}
        }
    }
}

fn number_of(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Numbered {
        seq: u64,
    }
    serde_json::from_slice::<Numbered>(line).ok().map(|line| line.seq)
}

/// Cuts the bytes after the last newline, and returns the last whole line.
fn last_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = disk::open_to_write(path, OFlags::empty())?;
    let mut start = file.metadata()?.len();
    let mut tail = Vec::new();
    loop {
        let size = start.min(CHUNK as u64);
        start -= size;
        let mut chunk = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        (&mut file).take(size).read_to_end(&mut chunk)?;
        chunk.append(&mut tail);
        tail = chunk;
        if tail.len() > LONGEST_LAST {
            // The records are in the journal: the file is made again.
            cut(&file, 0)?;
            return Ok(None);
        }
        let mut ends = tail.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
        let (last, before) = (ends.next().map(|(at, _)| at), ends.next().map(|(at, _)| at));
        let begin = before.map(|before| before + 1).or((start == 0).then_some(0));
        match (last, begin) {
            (Some(last), Some(begin)) => {
                cut(&file, start + last as u64 + 1)?;
                return Ok(Some(tail[begin..last].to_vec()));
            }
            (None, Some(_)) => {
                cut(&file, 0)?;
                return Ok(None);
            }
            (_, None) => {}
        }
    }
}

/// Cuts the bytes after the last newline, and returns the number of lines.
fn lines_of(path: &Path) -> io::Result<u64> {
    let mut file = disk::open_to_write(path, OFlags::empty())?;
    if file.metadata()?.len() > LARGEST_LOG {
        cut(&file, 0)?;
        return Ok(0);
    }
    let (mut chunk, mut lines, mut read, mut whole) = (vec![0; CHUNK], 0, 0, 0);
    loop {
        let got = file.read(&mut chunk)?;
        if got == 0 {
            break;
        }
        for (at, _) in chunk[..got].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            lines += 1;
            whole = read + at as u64 + 1;
        }
        read += got as u64;
    }
    cut(&file, whole)?;
    Ok(lines)
}

fn cut(file: &File, len: u64) -> io::Result<()> {
    if file.metadata()?.len() > len { file.set_len(len) } else { Ok(()) }
}

/// Removes the files whose stem `fits`. Returns the stems of the files that could not be removed,
/// with the error.
fn remove(paths: &AgentFiles, fits: impl Fn(&str) -> bool) -> BTreeMap<String, io::Error> {
    let mut stayed = BTreeMap::new();
    let entries = fs::read_dir(paths.folder()).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_ours = path.extension().is_some_and(|end| end == "jsonl" || end == "log");
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if is_ours && fits(&stem) {
            // A file that stays is appended to, and does not match the next time either.
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(file = %path.display(), %error, "a file stays that is stale");
                stayed.insert(stem, error);
            }
        }
    }
    stayed
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::event::Draft;
    use crate::journal::held::HeldRun;
    use crate::journal::samples::log_text;
    use crate::journal::samples::{finished, intended, responded, spawned};
    use crate::journal::samples::{record, turn};
    use crate::turn::ToolStatus;

    const FILES: [&str; 4] = ["work.helper-1.jsonl", "work.helper-1.log", "work.jsonl", "work.log"];

    fn script() -> Vec<Draft> {
        let mut drafts = vec![spawned("Hello")];
        for round in 1..4 {
            drafts.push(responded(round));
            drafts.extend([0, 1].map(|at| intended(round, at, "bash", "{}")));
            drafts.extend([1, 0].map(|at| finished(round, at, ToolStatus::Ok, "some\nlines")));
            drafts.push(turn("work", round));
        }
        drafts
    }

    /// A run in memory, with the files of its agents in a folder.
    struct Kept {
        run: HeldRun,
        files: AgentFiles,
        _root: tempfile::TempDir,
    }

    impl Kept {
        /// Makes a run whose files were written live.
        fn live(drafts: &[Draft]) -> Self {
            let root = tempfile::tempdir().unwrap();
            let files = AgentFiles::at(root.path().join("agents"));
            fs::create_dir(files.folder()).unwrap();
            let kept = Self { run: HeldRun::new("run"), files, _root: root };
            let projection = Projection::new(kept.run.clone(), kept.files.clone(), log_text);
            kept.go_on(projection, 1, drafts);
            kept
        }

        /// Adds records from the number `first` on.
        fn go_on(&self, mut projection: Projection, first: u64, drafts: &[Draft]) {
            for (seq, draft) in (first..).zip(drafts) {
                let record = Arc::new(record(seq, draft.clone()));
                self.run.add(vec![Arc::clone(&record)]);
                projection.committed(&record);
                projection.batch_end();
            }
            projection.catch_up();
        }

        fn resume(&self) -> Projection {
            Projection::resume(self.run.clone(), self.files.clone(), log_text).unwrap()
        }

        fn rebuild(&self) -> Result<(), JournalError> {
            Projection::rebuild(&self.run.clone().into(), &self.files, log_text, |_| {})
        }

        fn path(&self, name: &str) -> PathBuf {
            self.files.folder().join(name)
        }

        fn contents(&self) -> Vec<(String, String)> {
            let entries = fs::read_dir(self.files.folder()).unwrap().map(Result::unwrap);
            let read = |path| fs::read_to_string(path).unwrap();
            let mut files: Vec<_> = entries
                .map(|entry| (entry.file_name().into_string().unwrap(), read(entry.path())))
                .collect();
            files.sort();
            files
        }
    }

    #[test]
    fn files_that_were_cut_anywhere_are_completed() {
        let kept = Kept::live(&script());
        let whole = kept.contents();
        assert_eq!(whole.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), FILES);
        for (name, text) in &whole {
            for length in (0..=text.len()).rev().step_by(17).chain([0]) {
                fs::write(kept.path(name), &text.as_bytes()[..length]).unwrap();
                kept.resume();
                assert_eq!(kept.contents(), whole, "{name} cut at {length}");
            }
            fs::remove_file(kept.path(name)).unwrap();
            kept.resume();
            assert_eq!(kept.contents(), whole, "{name} removed");
        }
    }

    #[test]
    fn a_file_that_lost_a_part_with_the_power_is_made_again() {
        let kept = Kept::live(&script());
        let whole = kept.contents();
        for (name, text) in whole.iter().filter(|(_, text)| !text.is_empty()) {
            let len = text.len();
            for (from, to) in [(0, 1), (3, len / 2), (len / 2, len - 1), (len / 3, len)] {
                let mut bytes = text.clone().into_bytes();
                bytes[from..to].fill(0);
                fs::write(kept.path(name), bytes).unwrap();
                kept.resume();
                assert_eq!(kept.contents(), whole, "{name} without {from}..{to}");
            }
        }
    }

    #[test]
    fn lengths_from_another_boot_of_the_machine_are_not_believed() {
        let kept = Kept::live(&script());
        let whole = kept.contents();
        let known = kept.resume().files();
        let run = RecordedRun::from(kept.run.clone());
        let end = run.walk(Position::START, None, |_, _| Ok(())).unwrap();
        let hole = || {
            let mut bytes = fs::read(kept.path(FILES[0])).unwrap();
            let len = bytes.len();
            bytes[len / 3..len / 2].fill(0);
            fs::write(kept.path(FILES[0]), bytes).unwrap();
        };
        let resume = |known: Files| {
            let base = (end, known);
            Projection::resume_from(kept.run.clone(), kept.files.clone(), log_text, base).unwrap();
        };
        for boot in ["", "another"] {
            hole();
            resume(Files { boot: boot.to_owned(), ..known.clone() });
            assert_eq!(kept.contents(), whole);
        }
        // What was written in this boot is in the memory of the machine, if not on its disk.
        hole();
        resume(known);
        assert_ne!(kept.contents(), whole, "nothing was read again");
    }

    #[test]
    fn what_the_journal_does_not_give_is_not_left() {
        let kept = Kept::live(&script());
        let whole = kept.contents();
        let add = |name: &str, text: &str| {
            let old = fs::read_to_string(kept.path(name)).unwrap_or_default();
            fs::write(kept.path(name), old + text).unwrap();
        };
        add(FILES[0], "{\"seq\":99,\"ts\":\"x\",\"message\":{}}\n");
        add(FILES[3], "one line too many\n");
        add("nobody.log", "a line\n");
        add("notes.md", "a person's");
        kept.resume();
        let mut left = kept.contents();
        left.retain(|(name, _)| name != "notes.md");
        assert_eq!(left, whole);
    }

    #[test]
    fn what_comes_after_joins_on() {
        let all = script();
        let whole = Kept::live(&all).contents();
        for half in 1..all.len() {
            let kept = Kept::live(&all[..half]);
            kept.go_on(kept.resume(), half as u64 + 1, &all[half..]);
            assert_eq!(kept.contents(), whole);
        }
    }

    #[test]
    fn files_are_made_again_as_they_were() {
        let kept = Kept::live(&script());
        let whole = kept.contents();
        for name in FILES {
            fs::write(kept.path(name), "nonsense").unwrap();
        }
        kept.rebuild().unwrap();
        assert_eq!(kept.contents(), whole);
        fs::remove_dir_all(kept.files.folder()).unwrap();
        kept.rebuild().unwrap();
        assert_eq!(kept.contents(), whole);
        fs::remove_dir_all(kept.files.folder()).unwrap();
        fs::write(kept.files.folder(), "in the way").unwrap();
        assert!(kept.rebuild().is_err(), "nothing could be written");
    }
}
