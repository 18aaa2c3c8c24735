//! The run directory: its paths, its creation, its lock, and the journal file as storage.
//!
//! Owns the layout of the directory and the right to write to it. Does not know the meaning of a
//! record. The lock frees itself when its holder dies, so a dead process never prevents a resume.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::id::AgentId;
use crate::journal::agent_files::AgentFiles;
use crate::journal::line::Position;
use crate::journal::storage::{Presence, Storage};
use crate::journal::writer;
use crate::journal::{JournalError, JournalHandle, Observer, acknowledged, filesystem, stand_in};
use crate::spec::run_by_others::JOURNAL;
use crate::store::Store;

/// Number of tries to take the lock, and the pause between two of them. A reader that checks if the run is live holds
/// the lock for microseconds, and a child process has it from its fork to its exec: on a busy machine both may be
/// kept from the processor for some tens of milliseconds. Half a second is not long for whoever resumes a run that is
/// open.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The most bytes of the file that tells who holds a run.
const MOST_BYTES: u64 = 4096;

/// The directory of one run. It holds only paths: making one does not touch the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Returns the run directory at `path`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the journal.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// Returns the folder of the agents' transcripts and logs.
    #[must_use]
    pub fn agents(&self) -> PathBuf {
        self.path.join("agents")
    }

    /// Returns the transcripts and logs of the agents.
    #[must_use]
    pub fn agent_files(&self) -> AgentFiles {
        AgentFiles::at(self.agents())
    }

    /// Returns the path of one agent's transcript.
    #[must_use]
    pub fn transcript(&self, agent: &AgentId) -> PathBuf {
        self.agent_files().transcript(agent)
    }

    /// Returns the path of one agent's log.
    #[must_use]
    pub fn log(&self, agent: &AgentId) -> PathBuf {
        self.agent_files().log(agent)
    }

    /// Returns the folder of the stored results, whose names are their hashes.
    #[must_use]
    pub fn results(&self) -> PathBuf {
        self.path.join("results")
    }

    /// Returns the store of its results.
    #[must_use]
    pub fn store(&self) -> Store {
        Store::new(self.spool(), self.results())
    }

    /// Creates the folder of the stored results again.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created.
    pub fn make_results(&self) -> Result<(), JournalError> {
        let made = DirBuilder::new().mode(0o700).create(self.results());
        made.map_err(|error| JournalError::cannot("make", &self.results(), &error))
    }

    /// Returns the folder of tool results that are not recorded yet.
    #[must_use]
    pub fn spool(&self) -> PathBuf {
        self.path.join("spool")
    }

    /// Returns the folder of the snapshots.
    #[must_use]
    pub fn snapshots(&self) -> PathBuf {
        self.path.join("snapshots")
    }

    /// Returns the path of the reserve: disk space kept for a full disk while the run is written.
    #[must_use]
    pub fn reserve(&self) -> PathBuf {
        self.path.join("reserve")
    }

    /// Returns the folder of the answers that were left while no process drove the run.
    #[must_use]
    pub fn answers(&self) -> PathBuf {
        self.path.join("answers")
    }

    /// Returns the path of the lock file.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("LOCK")
    }

    /// Returns true if a process holds the run.
    #[must_use]
    pub fn is_live(&self) -> bool {
        // A shared lock, so that any number of readers can look at the same time.
        let is_held = |opened: io::Result<File>| {
            let Ok(file) = opened else { return false };
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
            locked == Err(rustix::io::Errno::WOULDBLOCK)
        };
        is_held(open_directory(&self.path)) || is_held(disk::open(&self.lock_file()))
    }

    /// Makes the directory of a new run, with an empty journal, and takes its lock. When this
    /// returns, the directory survives a power cut; so the first acknowledged record does too.
    ///
    /// # Errors
    /// Returns an error if the directory exists, cannot be made, or would lie on a network file
    /// system.
    pub fn create(&self) -> Result<LockedDir, JournalError> {
        filesystem::check(&self.path)?;
        self.make().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => JournalError::Exists(self.path.clone()),
            _ => JournalError::cannot("make", &self.path, &error),
        })?;
        let owned = self.lock()?;
        let unsynced = |error| JournalError::cannot("sync", &self.path, &error);
        self.make_durable().map_err(unsynced)?;
        Ok(owned)
    }

    fn make(&self) -> io::Result<()> {
        let folder = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        if let Some(parent) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        folder(&self.path)?;
        for path in [self.agents(), self.results(), self.spool(), self.snapshots()] {
            folder(&path)?;
        }
        let mut options = OpenOptions::new();
        disk::sync(&options.append(true).create_new(true).mode(0o600).open(self.journal())?)
    }

    /// Syncs the new directory entries: those in the run directory, the run directory's own, and
    /// that of the folder above it.
    fn make_durable(&self) -> io::Result<()> {
        disk::sync(&File::open(&self.path)?)?;
        let path = fs::canonicalize(&self.path)?;
        path.ancestors().skip(1).take(2).try_for_each(|above| match File::open(above) {
            Ok(folder) => disk::sync(&folder),
            // We cannot have made an entry in a folder that we may not read, so it needs no sync.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Takes the lock of the run.
    ///
    /// # Errors
    /// Returns [`JournalError::Locked`] if another process holds the lock, and
    /// [`JournalError::NotLocal`] if the file system makes the lock unreliable.
    pub fn own(&self) -> Result<LockedDir, JournalError> {
        filesystem::check(&self.path)?;
        self.lock()
    }

    /// Opens the directory, and looks at the folder above and at everything in it but the files of its spool, which
    /// the tools open themselves: nothing may be a link or a pipe, or of somebody else. Results have their hash for
    /// a name, and forks share them: who owns one does not matter, nor how many names it has.
    fn open_folders(&self) -> Result<File, JournalError> {
        let open = |path: &Path| {
            open_folder(path).map_err(|error| JournalError::cannot("open", path, &error))
        };
        if let Some(above) = self.path.parent().filter(|above| above.is_symlink()) {
            let reason = io::Error::other("it is a link; name the folder itself (`state.dir`)");
            return Err(JournalError::cannot("open", above, &reason));
        }
        for inner in [self.agents(), self.results(), self.spool(), self.snapshots(), self.answers()]
        {
            open(&inner)?;
        }
        let written = [self.path.clone(), self.agents(), self.snapshots()];
        written.iter().try_for_each(|folder| refuse_odd(folder, of_this_user))?;
        // An answer that is being left has two names for a moment. What it says is proven.
        refuse_odd(&self.answers(), only_by_this_user)?;
        refuse_odd(&self.results(), |_| Ok(()))?;
        let missing = || JournalError::cannot("open", &self.path, &io::ErrorKind::NotFound.into());
        open(&self.path)?.ok_or_else(missing)
    }

    /// Looks at the directory before anything in it is written, removed, copied or believed.
    ///
    /// # Errors
    /// Returns an error if the directory is of another user, or if something in it is neither a file nor a
    /// folder: a link leads elsewhere, and a pipe never ends.
    pub fn refuse_unsafe(&self) -> Result<(), JournalError> {
        self.open_folders().map(drop)
    }

    /// Locks the directory, which cannot be removed while it holds a journal, and then the lock file: it
    /// names the holder, and older versions lock nothing else.
    fn lock(&self) -> Result<LockedDir, JournalError> {
        let path = self.lock_file();
        let io = |error: io::Error| JournalError::cannot("lock", &path, &error);
        // Files are opened close-on-exec, so that no tool process inherits the lock.
        let folder = self.open_folders()?;
        let mut file = disk::open_to_write(&path, OFlags::CREATE).map_err(io)?;
        if !(take(&folder).map_err(io)? && take(&file).map_err(io)?) {
            let mut text = String::new();
            let holder = file.take(MOST_BYTES).read_to_string(&mut text).ok();
            let holder = holder.and_then(|_| serde_json::from_str::<Holder>(&text).ok());
            return Err(JournalError::Locked { pid: holder.map(|holder| holder.pid) });
        }
        let holder = serde_json::to_string(&Holder::of(self)).expect("plain data encodes");
        let emptied = file.set_len(0);
        emptied.and_then(|()| disk::write_all(&mut file, holder.as_bytes())).map_err(io)?;
        Ok(LockedDir { dir: self.clone(), lock: Arc::new((folder, file)) })
    }
}

/// Opens a folder, and nothing else: opening a pipe would wait for a writer.
fn open_directory(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty()).map(File::from)?)
}

/// Returns an error if something in the folder is neither a file, a folder nor a socket, or if `look` finds fault
/// with a file.
fn refuse_odd(
    folder: &Path,
    look: impl Fn(&Metadata) -> Result<(), String>,
) -> Result<(), JournalError> {
    let cannot = |path: &Path, error: &io::Error| JournalError::cannot("open", path, error);
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| cannot(folder, &error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| cannot(folder, &error))?;
        let kind = match entry.file_type() {
            // It was removed since: whoever leaves an answer makes and removes a file of its own.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            kind => kind.map_err(|error| cannot(&entry.path(), &error))?,
        };
        if !(kind.is_file() || kind.is_dir() || kind.is_socket()) {
            let what = if kind.is_symlink() { "a link" } else { "a pipe or a device" };
            let reason = format!("it is {what}, and records have none; remove it");
            let reason = io::Error::new(io::ErrorKind::InvalidInput, reason);
            return Err(cannot(&entry.path(), &reason));
        }
        if !kind.is_file() {
            continue;
        }
        let looked_at = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            looked_at => looked_at.map_err(|error| cannot(&entry.path(), &error))?,
        };
        look(&looked_at).map_err(|reason| cannot(&entry.path(), &io::Error::other(reason)))?;
    }
    Ok(())
}

/// Returns why a file or a folder is not this user's alone, if it is not: its records would be believed, and it
/// would be written, although somebody else can change it or put another in its place. What only the group of
/// this user can write is: many systems give each user a group.
fn of_this_user(found: &Metadata) -> Result<(), String> {
    only_by_this_user(found)?;
    match found.nlink() {
        names if found.is_file() && names > 1 => Err(disk::other_names(names)),
        _ => Ok(()),
    }
}

/// Does the same, however many names a file has.
fn only_by_this_user(found: &Metadata) -> Result<(), String> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let by_others = match found.mode() & 0o022 {
        0 => false,
        0o020 => found.gid() != group.as_raw(),
        // In a folder with the sticky bit nobody changes what is another's.
        _ => !(found.is_dir() && found.mode() & 0o1000 != 0),
    };
    if found.uid() != user.as_raw() && found.uid() != 0 {
        let owner = found.uid();
        return Err(format!(
            "it belongs to user {owner}; only the records of this user are gone on with"
        ));
    }
    if by_others {
        return Err("others can write it: look at what it says, then `chmod go-w` it".to_owned());
    }
    Ok(())
}

/// Opens a folder of a run that is about to be written. `None` if there is none.
///
/// # Errors
/// Returns an error for a link, which would lead writes and removals elsewhere, and for the folder of another
/// user, whose records would be believed.
fn open_folder(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(folder) => File::from(folder),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) if path.is_symlink() => {
            let reason = "it is a link; a run is written only where it lies";
            return Err(io::Error::new(io::Error::from(error).kind(), reason));
        }
        Err(error) => return Err(error.into()),
    };
    of_this_user(&folder.metadata()?)
        .map_err(|reason| io::Error::new(io::ErrorKind::PermissionDenied, reason))?;
    Ok(Some(folder))
}

/// Takes the exclusive lock of a file; returns false if another process holds it.
fn take(file: &File) -> io::Result<bool> {
    for left in (0..LOCK_TRIES).rev() {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) if left > 0 => std::thread::sleep(LOCK_PAUSE),
            Err(rustix::io::Errno::WOULDBLOCK) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// The process that holds a run, as written into the lock file. It is for people only: the lock
/// itself decides.
#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    boot_id: String,
    host: String,
}

impl Holder {
    fn of(dir: &RunDir) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (pid, boot_id) = (std::process::id(), stand_in::boot_id(dir.path()));
        Self { pid, boot_id, host: host.trim().to_owned() }
    }
}

/// The locked directory and the locked file in it.
type Lock = (File, File);

/// The right to write to the run of a directory. Its lock is held until the last clone is dropped; a writer holds a
/// clone of its own.
#[derive(Clone, Debug)]
pub struct LockedDir {
    dir: RunDir,
    lock: Arc<Lock>,
}

impl LockedDir {
    /// Returns the run directory.
    #[must_use]
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Starts the writer of the journal, which appends from the position `at`.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be opened or does not end at `at`.
    pub fn start_writer(
        &self,
        at: Position,
        observers: Vec<Box<dyn Observer>>,
    ) -> Result<JournalHandle, JournalError> {
        let path = self.dir.journal();
        let opened = disk::open_to_write(&path, OFlags::APPEND);
        let file = opened.map_err(|error| JournalError::cannot("open", &path, &error))?;
        let id = file.metadata();
        let id = id.map_err(|error| JournalError::cannot("look at", &path, &error))?;
        let storage = JournalFile {
            file,
            path: path.clone(),
            id: (id.dev(), id.ino()),
            reserve: self.dir.reserve(),
            _lock: self.lock.clone(),
        };
        let mut observers = observers;
        observers.push(Box::new(acknowledged::Keeper::new(self.dir.path())));
        let journal = writer::start(storage, at, Some(path), observers)?;
        let journal = super::stand_in::wrapped(journal, self.dir.path());
        Ok(journal)
    }
}

/// The journal file, open for append.
#[derive(Debug)]
struct JournalFile {
    file: File,
    path: PathBuf,
    /// The device and the inode of the file.
    id: (u64, u64),
    /// The path of the reserve file, which is removed when the disk is full.
    reserve: PathBuf,
    /// Keeps the run locked until the writer has ended, however long that takes.
    _lock: Arc<Lock>,
}

impl Storage for JournalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        disk::retried(|| self.file.write(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        disk::sync_data(&self.file)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn presence(&self) -> io::Result<Presence> {
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.id => Ok(Presence::Kept),
            Ok(_) => Ok(Presence::Replaced),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Presence::Removed),
            Err(error) => Err(error),
        }
    }

    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(&self.file)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = super::stand_in::scaled(bytes);
        let made = match bytes {
            0 => Ok(()),
            _ => disk::file_of(&self.reserve, bytes).map(drop),
        };
        if bytes > 0 && made.is_ok() {
            return Ok(());
        }
        // On a failure too the reserve is removed: a file of part of the size would be no reserve.
        match fs::remove_file(&self.reserve) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => made,
        }
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        // A run that nobody writes needs no reserve. A file that cannot be removed is reused by the
        // next writer.
        let _ = self.reserve(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::samples::turn;

    #[tokio::test]
    async fn a_new_run_is_private_locked_and_written() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("state").join("run"));
        assert!(!dir.is_live());
        let owned = dir.create().unwrap();
        assert!(dir.is_live());
        let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
        for folder in [dir.path().to_owned(), dir.agents(), dir.results(), dir.spool()] {
            assert_eq!(mode(folder), 0o700);
        }
        assert_eq!((mode(dir.journal()), mode(dir.lock_file())), (0o600, 0o600));
        assert_eq!(dir.create().unwrap_err(), JournalError::Exists(dir.path().to_owned()));

        let journal = owned.start_writer(Position::START, Vec::new()).unwrap();
        let made = journal.append(vec![turn("a", 1), turn("b", 1)]).await.unwrap();
        let of_a = journal.agent_records(&AgentId::from_text("a")).await.unwrap();
        assert_eq!(of_a, made[..1]);

        drop(owned);
        assert!(dir.is_live(), "the writer still holds the lock");
        journal.close().await;
        assert!(!dir.is_live());
    }

    #[test]
    fn a_second_owner_is_refused_and_told_who_has_it() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let first = dir.create().unwrap();
        let pid = Some(std::process::id());
        assert_eq!(dir.own().unwrap_err(), JournalError::Locked { pid });
        // The name of the lock file is not the lock.
        fs::remove_file(dir.lock_file()).unwrap();
        assert!(dir.is_live());
        assert_eq!(dir.own().unwrap_err(), JournalError::Locked { pid: None });
        drop(first);
        assert!(!dir.is_live() && dir.own().is_ok());
    }

    #[tokio::test]
    async fn a_removed_replaced_or_changed_journal_is_noticed() {
        type Spoil = fn(&RunDir);
        let spoil: [(&str, Spoil); 5] = [
            ("changed", |dir| fs::write(dir.journal(), "").unwrap()),
            ("changed", |dir| {
                let mut file = OpenOptions::new().append(true).open(dir.journal()).unwrap();
                file.write_all(b"garbage\n").unwrap();
            }),
            ("removed", |dir| fs::remove_file(dir.journal()).unwrap()),
            ("removed", |dir| fs::rename(dir.path(), dir.path().with_extension("old")).unwrap()),
            ("replaced", |dir| {
                let copy = dir.path().join("copy");
                fs::copy(dir.journal(), &copy).unwrap();
                fs::rename(copy, dir.journal()).unwrap();
            }),
        ];
        for (how, spoil) in spoil {
            let root = tempfile::tempdir().unwrap();
            let dir = RunDir::at(root.path().join("run"));
            let journal = dir.create().unwrap().start_writer(Position::START, Vec::new()).unwrap();
            journal.append(vec![turn("a", 1)]).await.unwrap();
            spoil(&dir);
            let error = journal.append(vec![turn("a", 2)]).await.unwrap_err();
            assert!(matches!(&error, JournalError::Io(what) if what.contains(how)), "{error}");
        }
    }

    #[tokio::test]
    async fn the_reserve_stands_while_the_run_is_written() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::at(root.path().join("run"));
        let owned = dir.create().unwrap();
        // What a killed process left.
        drop(disk::file_of(&dir.reserve(), 10).unwrap());
        let journal = owned.start_writer(Position::START, Vec::new()).unwrap();
        let reserve = fs::metadata(dir.reserve()).unwrap();
        assert!(reserve.len() > 10 && reserve.blocks() * 512 >= reserve.len(), "{reserve:?}");
        assert_eq!(reserve.mode() & 0o777, 0o600);
        journal.close().await;
        assert!(!dir.reserve().exists());
    }
}
