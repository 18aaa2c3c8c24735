//! Removes runs from a folder of this machine, and keeps a line about each in a file beside them.
//!
//! Owns the order in which that happens: first the line is durable, then the run goes at once, by a new name, and only
//! then its files are removed. So a process that dies in between leaves a run with its line, of which the run counts, or
//! files that nobody takes for a run. Knows nothing of what a line says.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::crash::{self, Point};
use crate::disk;
use crate::id::RunId;
use crate::journal::JournalError;

/// The name of the file with a line about each run that was removed.
const LINES: &str = "pruned.jsonl";

/// What stands before the id in the name of a run that is being removed. No run has such a name.
const GOING: &str = ".pruned-";

/// Keeps a line about a run, and removes the run. The caller has the right to write to it.
///
/// # Errors
/// Returns an error if the line cannot be made durable, and then the run is still there; or if the run cannot be
/// removed.
pub(super) fn remove(run: &Path, line: &str) -> Result<(), JournalError> {
    let folder = run.parent().unwrap_or(run);
    let lines = folder.join(LINES);
    keep(&lines, line).map_err(|error| JournalError::cannot("write", &lines, &error))?;
    crash::pass(Point::AfterBill);
    let cannot = |error: io::Error| JournalError::cannot("remove", run, &error);
    let name =
        run.file_name().ok_or(io::ErrorKind::InvalidInput).map_err(|kind| cannot(kind.into()))?;
    let going = folder.join(format!("{GOING}{}", name.to_string_lossy()));
    fs::rename(run, &going).map_err(cannot)?;
    // Without this, a power cut could bring back the name of a run whose journal is gone.
    File::open(folder).and_then(|folder| disk::sync(&folder)).map_err(cannot)?;
    crash::pass(Point::AfterRename);
    gone(fs::remove_dir_all(&going)).map_err(cannot)
}

/// Appends a line to the file and makes it durable.
fn keep(path: &Path, line: &str) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = disk::open_to_write(path, OFlags::CREATE | OFlags::APPEND)?;
    // Two processes may remove different runs at the same time.
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    let mut text = String::with_capacity(line.len() + 2);
    if !ends_a_line(&mut file)? {
        // The process before died within its line; its run is still there.
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
    let (half, rest) = text.as_bytes().split_at(text.len() / 2);
    disk::write_all(&mut file, half)?;
    crash::pass(Point::HalfBill);
    disk::write_all(&mut file, rest)?;
    disk::sync(&file)?;
    match (is_new, path.parent()) {
        (true, Some(folder)) => disk::sync(&File::open(folder)?),
        _ => Ok(()),
    }
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    io::Read::read_exact(file, &mut last)?;
    Ok(last == *b"\n")
}

/// Returns the lines about the runs of a folder that were removed, the oldest first.
pub(super) fn lines(folder: &Path) -> io::Result<Vec<String>> {
    let file = match disk::open(&folder.join(LINES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let (mut input, mut lines) = (BufReader::new(file), Vec::new());
    let mut line = Vec::new();
    while disk::read_line(&mut input, &mut line)? > 0 {
        // A line without its end was never acknowledged.
        if let Some(whole) = line.strip_suffix(b"\n").filter(|whole| !whole.is_empty()) {
            lines.push(String::from_utf8_lossy(whole).into_owned());
        }
        line.clear();
    }
    Ok(lines)
}

/// Removes what is left of runs that a process was removing when it died.
pub(super) fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(GOING)).and_then(RunId::parse);
        if id.is_none() || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(going) = rustix::fs::open(entry.path(), flags, Mode::empty()) else { continue };
        // Whoever is still at it holds the lock of the run.
        if rustix::fs::flock(&going, FlockOperation::NonBlockingLockExclusive).is_ok() {
            gone(fs::remove_dir_all(entry.path()))?;
        }
    }
    Ok(())
}

/// Takes a removal of what is already gone for one that succeeded.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01a20364-6522-7695-a2bf-6563ec9bbe45";

    fn run_in(folder: &Path) -> std::path::PathBuf {
        let run = folder.join(ID);
        fs::create_dir_all(run.join("agents")).unwrap();
        fs::write(run.join("journal.jsonl"), "x").unwrap();
        run
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_run_goes_and_its_line_stays() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(lines(folder.path()).unwrap(), Vec::<String>::new());
        remove(&run_in(folder.path()), "one").unwrap();
        remove(&run_in(folder.path()), "two").unwrap();
        assert_eq!(names(folder.path()), [LINES]);
        assert_eq!(lines(folder.path()).unwrap(), ["one", "two"]);
    }

    #[test]
    fn a_torn_line_spoils_no_other_and_a_run_stays_without_its_line() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LINES), "one\ntw").unwrap();
        assert_eq!(lines(folder.path()).unwrap(), ["one"]);
        remove(&run_in(folder.path()), "three").unwrap();
        assert_eq!(lines(folder.path()).unwrap(), ["one", "tw", "three"]);
        fs::remove_file(folder.path().join(LINES)).unwrap();
        fs::create_dir(folder.path().join(LINES)).unwrap();
        let run = run_in(folder.path());
        assert!(remove(&run, "four").is_err());
        assert!(run.join("journal.jsonl").exists());
    }

    #[test]
    fn what_a_process_left_is_swept_unless_it_is_still_at_it() {
        let folder = tempfile::tempdir().unwrap();
        let going = folder.path().join(format!("{GOING}{ID}"));
        fs::rename(run_in(folder.path()), &going).unwrap();
        fs::create_dir(folder.path().join(format!("{GOING}mine"))).unwrap();
        let held = File::open(&going).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        sweep(folder.path()).unwrap();
        assert!(going.join("journal.jsonl").exists());
        drop(held);
        sweep(folder.path()).unwrap();
        assert_eq!(names(folder.path()), [format!("{GOING}mine")]);
    }
}
