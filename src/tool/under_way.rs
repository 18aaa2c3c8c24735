//! The mark of a call that is under way, by which the next process knows of which calls this one died.
//!
//! A call that may be repeated is made again when its process has died. If it was the call of which the process
//! died, such as by its size, every process after it would die too. The mark is not synced: it outlives its
//! process, and if the machine dies the call was not the reason.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ToolError;
use crate::crash;
use crate::id::CallKey;
use crate::store::{Store, make_dir};

/// The number of processes that may die of a call.
const MOST_DEATHS: u64 = 2;

/// A call under way. Dropping it takes the mark away: whatever came of the call, the process lives.
#[derive(Debug)]
pub struct UnderWay(PathBuf);

impl UnderWay {
    /// Marks a call that begins. Returns nothing if the disk takes no mark: the call is made without one.
    /// Blocks.
    ///
    /// # Errors
    /// Returns an error, for the model, if as many processes as may die of a call died while it was under way.
    pub fn begin(store: &Store, key: &CallKey) -> Result<Option<Self>, ToolError> {
        if crash::is_asked() {
            return Ok(None);
        }
        let path = store.scratch_dir().join(format!("{key}.begun"));
        let marked = match mark(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_dir(store.scratch_dir()).and_then(|()| mark(&path))
            }
            marked => marked,
        };
        match marked {
            Ok(deaths) if deaths >= MOST_DEATHS => {
                drop(Self(path));
                Err(ToolError::Failed(format!(
                    "the program ended {deaths} times while this call was under way; it was not made \
                     again. Ask for less at a time, or do it in another way"
                )))
            }
            Ok(_) => Ok(Some(Self(path))),
            Err(error) => {
                tracing::warn!(%key, %error, "a call is made without a mark");
                Ok(None)
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // A mark that stays counts at most one death too many.
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// Makes the mark, or makes it longer. Returns how many processes left it behind. In the usual case no byte is
/// written.
fn mark(path: &Path) -> io::Result<u64> {
    match File::options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|_| 0),
    }
    let mut file = File::options().append(true).open(path)?;
    let deaths = 1 + file.metadata()?.len();
    file.write_all(b"x").map(|()| deaths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AgentId, RunId};

    #[test]
    fn a_call_of_which_two_processes_died_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("spool"), dir.path().join("results"));
        let run = RunId::from(uuid::Uuid::nil());
        let key = CallKey::derive(run, &AgentId::from_text("a"), 1, 0, "grep", "{}");
        for _ in 0..5 {
            assert!(UnderWay::begin(&store, &key).unwrap().is_some());
        }
        assert_eq!(std::fs::read_dir(dir.path().join("spool")).unwrap().count(), 0);
        // A process that dies drops nothing.
        for _ in 0..2 {
            std::mem::forget(UnderWay::begin(&store, &key).unwrap());
        }
        let told = UnderWay::begin(&store, &key).unwrap_err().to_string();
        assert!(told.starts_with("the program ended 2 times"), "{told}");
        assert!(UnderWay::begin(&store, &key).unwrap().is_some(), "told once");
    }
}
