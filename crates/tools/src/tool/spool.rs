//! The spool: the result of a call, kept durably from the end of the call until it is recorded, or a note that
//! the call never began. Beside them, not durable, what the command of a call has printed so far.
//!
//! Everything here blocks: call it off the runtime.

use std::fs::File;
use std::io::{self, Read};

use crate::disk;
use crate::id::CallKey;
use crate::store::{
    INLINE_CHARS, INLINE_CHARS_FAILED, LAST_LINES_BYTES, MAX_STORED_BYTES, Scratch, Store, make_dir,
};

/// Disk space that is taken for the result of a call before the call begins, in bytes: the longest texts of both
/// streams that are given whole and their last lines, with every character as its longest JSON escape (6 bytes), and
/// 4 KiB for the fields around them.
const RESULT_ROOM: u64 =
    ((INLINE_CHARS + INLINE_CHARS_FAILED + LAST_LINES_BYTES) * 6 + 4096) as u64;

/// Disk space for the result of one call. Dropping it releases the space.
#[derive(Debug)]
pub struct ResultRoom(Scratch);

/// What a command has printed so far, in files that are there from its first moments until its end, and after a death of
/// whoever ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoFar {
    /// Its stdout, with stderr where the two are one stream.
    Stdout,
    /// Its stderr, if that is kept apart.
    Stderr,
    /// The last lines of both, in the order in which they came, if they are kept apart.
    LastLines,
}

impl SoFar {
    const ALL: [Self; 3] = [Self::Stdout, Self::Stderr, Self::LastLines];

    /// Returns the name of the file in the scratch directory.
    #[must_use]
    pub fn name(self, key: &CallKey) -> String {
        let what = match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::LastLines => "lines",
        };
        format!("{key}.{what}")
    }
}

/// Kept results of the calls of a run, each under the key of its call. They share the scratch
/// directory of the run's result store.
#[derive(Debug)]
pub struct Spool<'a>(&'a Store);

impl<'a> Spool<'a> {
    /// Returns the spool of this result store.
    #[must_use]
    pub fn of(store: &'a Store) -> Self {
        Self(store)
    }

    /// Takes disk space for the result of a call that is about to begin, so that the result can be
    /// kept even if the disk is full by then. What an earlier attempt of it printed is removed: nobody shall take it
    /// for what this one prints.
    ///
    /// # Errors
    /// Returns an error if the disk refuses the space.
    pub fn take_room(&self, key: &CallKey) -> io::Result<ResultRoom> {
        self.forget_printed(key);
        make_dir(self.0.scratch_dir())?;
        let path = self.0.scratch_dir().join(Self::room_name(key));
        let file = disk::file_of(&path, RESULT_ROOM)?;
        Ok(ResultRoom(Scratch { file, path }))
    }

    /// Keeps the result of a call durably until it is recorded, in the space that was taken for it,
    /// if any was. Does not wait on a full disk: the process that asked for the call may still
    /// live, and then it receives the result without the spool.
    ///
    /// # Errors
    /// Returns an error if the disk refuses the result.
    pub fn keep_result(
        &self,
        key: &CallKey,
        bytes: &[u8],
        room: Option<ResultRoom>,
    ) -> io::Result<()> {
        self.keep(&Self::result_name(key), bytes, room)
    }

    /// Keeps a note durably, like a result, that the process which was to make a call ended without
    /// having begun.
    ///
    /// # Errors
    /// Returns an error if the disk refuses the note.
    pub fn keep_unbegun(
        &self,
        key: &CallKey,
        bytes: &[u8],
        room: Option<ResultRoom>,
    ) -> io::Result<()> {
        self.keep(&Self::unbegun_name(key), bytes, room)
    }

    fn keep(&self, name: &str, bytes: &[u8], room: Option<ResultRoom>) -> io::Result<()> {
        let at_once = self.0.without_patience();
        let mut scratch = match room {
            Some(ResultRoom(scratch)) => scratch,
            None => Scratch::create(&at_once)?,
        };
        disk::write_all(&mut scratch.file, bytes)?;
        // The space that was taken is larger than most results: release the rest.
        scratch.file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        scratch.keep_as(&at_once, self.0.scratch_dir(), name)
    }

    /// Returns the result of a call, if one was kept.
    ///
    /// # Errors
    /// Returns an error if the kept result cannot be read.
    pub fn kept_result(&self, key: &CallKey) -> io::Result<Option<Vec<u8>>> {
        self.kept(&Self::result_name(key))
    }

    /// Returns the note that a call never began, if one was kept.
    ///
    /// # Errors
    /// Returns an error if the kept note cannot be read.
    pub fn kept_unbegun(&self, key: &CallKey) -> io::Result<Option<Vec<u8>>> {
        self.kept(&Self::unbegun_name(key))
    }

    fn kept(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match disk::open(&self.0.scratch_dir().join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        disk::within(file, MAX_STORED_BYTES)?.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Opens what the command of a call has printed so far; `None` if it has printed nothing, has just begun or has
    /// ended.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub fn so_far(&self, key: &CallKey, what: SoFar) -> io::Result<Option<File>> {
        match disk::open(&self.0.scratch_dir().join(what.name(key))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Removes what was kept of a call whose result is recorded now, and the space that was taken for
    /// it.
    pub fn forget_result(&self, key: &CallKey) {
        self.remove([Self::result_name(key), Self::unbegun_name(key), Self::room_name(key)]);
    }

    /// Removes what the command of a call had printed, which is left where whoever ran it was killed.
    pub fn forget_printed(&self, key: &CallKey) {
        self.remove(SoFar::ALL.map(|what| what.name(key)));
    }

    fn remove(&self, names: [String; 3]) {
        for name in names {
            // A file that cannot be removed goes with the others when the run ends.
            let _gone = std::fs::remove_file(self.0.scratch_dir().join(name));
        }
    }

    /// Removes all kept results and unfinished files after the run has ended.
    pub fn clear(&self) {
        for entry in
            std::fs::read_dir(self.0.scratch_dir()).into_iter().flatten().filter_map(Result::ok)
        {
            // Nobody reads the file any more; one that cannot be removed only takes space.
            let _gone = std::fs::remove_file(entry.path());
        }
    }

    fn result_name(key: &CallKey) -> String {
        format!("{key}.json")
    }

    fn unbegun_name(key: &CallKey) -> String {
        format!("{key}.unbegun")
    }

    fn room_name(key: &CallKey) -> String {
        format!("{key}.room")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::id::{AgentId, RunId};
    use crate::tool::ToolOutput;

    fn names(dir: &Path) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn key() -> CallKey {
        let (run, agent) = (RunId::from(uuid::Uuid::now_v7()), AgentId::from_text("a"));
        CallKey::derive(run, &agent, 1, 0, "bash", "{}")
    }

    #[test]
    fn what_a_killed_attempt_printed_is_gone_before_the_next_one_begins() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("spool"), dir.path().join("results"));
        let (spool, key, other) = (Spool::of(&store), key(), key());
        make_dir(store.scratch_dir()).unwrap();
        for name in SoFar::ALL.into_iter().flat_map(|what| [what.name(&key), what.name(&other)]) {
            std::fs::write(store.scratch_dir().join(name), "of the first attempt").unwrap();
        }
        drop(spool.take_room(&key).unwrap());
        for what in SoFar::ALL {
            assert!(spool.so_far(&key, what).unwrap().is_none(), "{what:?}");
            assert!(spool.so_far(&other, what).unwrap().is_some(), "{what:?}");
        }
    }

    #[test]
    fn a_result_is_kept_in_the_room_that_was_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("spool"), dir.path().join("results"));
        let (spool, key) = (Spool::of(&store), key());
        let room = spool.take_room(&key).unwrap();
        let taken = spool.0.scratch_dir().join(Spool::room_name(&key)).metadata().unwrap();
        assert!(taken.blocks() * 512 >= RESULT_ROOM);
        // The worst that there is: every character is escaped.
        let escaped = |count| "\u{1}".repeat(count);
        let output = ToolOutput {
            errors: escaped(INLINE_CHARS_FAILED),
            last_lines: escaped(LAST_LINES_BYTES),
            ..ToolOutput::ok(escaped(INLINE_CHARS))
        };
        let text = serde_json::to_vec(&output).unwrap();
        assert!(text.len() as u64 <= RESULT_ROOM);
        spool.keep_result(&key, &text, Some(room)).unwrap();
        assert_eq!(spool.kept_result(&key).unwrap().unwrap(), text);
        assert_eq!(names(spool.0.scratch_dir()), [Spool::result_name(&key)]);
        drop(spool.take_room(&key).unwrap());
        assert_eq!(names(spool.0.scratch_dir()), [Spool::result_name(&key)]);
        std::mem::forget(spool.take_room(&key).unwrap());
        spool.forget_result(&key);
        assert!(names(spool.0.scratch_dir()).is_empty());
    }
}
