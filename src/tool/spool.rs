//! The spool: the result of a call, kept durably from the end of the call until it is recorded.
//!
//! Everything here blocks: call it off the runtime.

use std::io::{self, Write};

use crate::disk;
use crate::id::CallKey;
use crate::store::{INLINE_CHARS, Scratch, Store, make_dir};

/// The disk space that is taken for the result of a call before the call begins, in bytes: the longest
/// text that is given whole, each character as JSON at its worst, and what stands around it.
const RESULT_ROOM: u64 = (INLINE_CHARS * 6 + 4096) as u64;

/// Disk space for the result of one call. Dropping it gives it up.
#[derive(Debug)]
pub struct ResultRoom(Scratch);

/// The kept results of a run's calls, each under the key of its call. They stand beside the files in
/// the making of the run's result store.
#[derive(Debug)]
pub struct Spool<'a>(&'a Store);

impl<'a> Spool<'a> {
    /// The spool beside a store.
    #[must_use]
    pub fn of(store: &'a Store) -> Self {
        Self(store)
    }

    /// Takes room for the result of a call that is about to begin, so that it can be kept also when
    /// the disk is full by then.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn take_room(&self, key: &CallKey) -> io::Result<ResultRoom> {
        make_dir(self.0.scratch_dir())?;
        let path = self.0.scratch_dir().join(Self::room_name(key));
        let file = disk::file_of(&path, RESULT_ROOM)?;
        Ok(ResultRoom(Scratch { file, path }))
    }

    /// Keeps the result of a call durably until it is recorded, in the room that was taken for it if
    /// any was. Does not wait for more: whoever asked for the call may live, and then has the result
    /// all the same.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_result(
        &self,
        key: &CallKey,
        bytes: &[u8],
        room: Option<ResultRoom>,
    ) -> io::Result<()> {
        let at_once = self.0.without_patience();
        let mut scratch = match room {
            Some(ResultRoom(scratch)) => scratch,
            None => Scratch::create(&at_once)?,
        };
        scratch.file.write_all(bytes)?;
        // What was taken and is not needed.
        scratch.file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        scratch.keep_as(&at_once, self.0.scratch_dir(), &Self::result_name(key))
    }

    /// The result of a call, if one was kept.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn kept_result(&self, key: &CallKey) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.0.scratch_dir().join(Self::result_name(key))) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the result of a call, if one was kept, and the room of one that was not: it is
    /// recorded.
    pub fn forget_result(&self, key: &CallKey) {
        for name in [Self::result_name(key), Self::room_name(key)] {
            // What stays is removed with the rest when the run ends.
            let _gone = std::fs::remove_file(self.0.scratch_dir().join(name));
        }
    }

    /// Removes what is kept and what was never finished: the run has ended.
    pub fn clear(&self) {
        for entry in
            std::fs::read_dir(self.0.scratch_dir()).into_iter().flatten().filter_map(Result::ok)
        {
            // Nobody reads it any more; what cannot be removed only takes room.
            let _gone = std::fs::remove_file(entry.path());
        }
    }

    fn result_name(key: &CallKey) -> String {
        format!("{key}.json")
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

    fn names(dir: &Path) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_result_is_kept_in_the_room_that_was_taken_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("spool"), dir.path().join("results"));
        let spool = Spool::of(&store);
        let key = CallKey::derive(
            RunId::from(uuid::Uuid::now_v7()),
            &AgentId::from_text("a"),
            1,
            0,
            "bash",
            "{}",
        );
        let room = spool.take_room(&key).unwrap();
        let taken = spool.0.scratch_dir().join(Spool::room_name(&key)).metadata().unwrap();
        assert!(taken.blocks() * 512 >= RESULT_ROOM);
        // The worst that there is: every character is escaped.
        let text = serde_json::to_vec(&"\u{1}".repeat(INLINE_CHARS)).unwrap();
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
