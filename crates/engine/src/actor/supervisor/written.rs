//! The files that tasks write: no task overwrites the file of another one. What the names of files follow from
//! inputs alone is compared before a run begins; names that follow from outputs are compared here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::id::Name;
use crate::tool::workspace::normalised;

/// The files that tasks of this process have written.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenFiles(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    writers: HashMap<PathBuf, Name>,
    files: HashMap<Name, PathBuf>,
}

impl WrittenFiles {
    /// Notes that a task writes a file, in place of the one that an earlier attempt of it wrote.
    ///
    /// # Errors
    /// Returns the task whose file it is.
    pub(super) fn claim(&self, path: &str, task: &Name) -> Result<(), Name> {
        let path = normalised(Path::new(path));
        let mut all = self.0.lock();
        if let Some(writer) = all.writers.get(&path).filter(|writer| *writer != task) {
            return Err(writer.clone());
        }
        if let Some(before) =
            all.files.insert(task.clone(), path.clone()).filter(|old| *old != path)
        {
            all.writers.remove(&before);
        }
        all.writers.insert(path, task.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_writer() {
        let files = WrittenFiles::default();
        let name = |text: &str| Name::new(text).expect("a name");
        let (a, b) = (name("a"), name("b"));
        assert_eq!(files.claim("out/x.md", &a), Ok(()));
        assert_eq!(files.claim("./out//y/../x.md", &b), Err(a.clone()));
        assert_eq!(files.claim("out/x.md", &a), Ok(()), "another attempt");
        assert_eq!(files.claim("out/z.md", &a), Ok(()));
        assert_eq!(files.claim("out/x.md", &b), Ok(()), "it is free again");
        assert_eq!(files.claim("out/x.md", &a), Err(b));
    }
}
