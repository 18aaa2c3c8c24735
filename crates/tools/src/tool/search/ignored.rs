//! Tells which files of a walk the ignore files of the workspace name: `.ignore`, `.gitignore` and
//! `.git/info/exclude`.
//!
//! A project or a command may put anything in their place. Only a file counts, opened below the start of
//! the walk without following a link, and only so much of it: what is past a bound ignores nothing, so that
//! more is shown, not less. A walk never waits for a pipe, never reads a device, and tells nothing of a file
//! outside.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};

/// The most bytes of an ignore file that are read.
const MOST_BYTES: u64 = 1 << 20;

/// The most patterns that hold at one place, of all the folders above it: some hundred times those of a
/// large project. Each takes some kilobytes when it is compiled.
const MOST_PATTERNS: usize = 10_000;

/// The most patterns that a walk compiles, of all folders: folders that repeat them cost time, not memory.
const MOST_IN_ALL: usize = 50_000;

/// The longest pattern, in bytes: the longest path.
const LONGEST: usize = 4096;

/// The ignore files of a walk from one folder.
#[derive(Debug)]
pub(super) struct Ignored {
    start: PathBuf,
    /// `None` if the start cannot be opened: nothing is ignored then.
    handle: Option<OwnedFd>,
    /// The folders from the start to the one that was asked about last.
    levels: Mutex<Vec<Level>>,
    /// The number of patterns that the walk has compiled.
    compiled: AtomicUsize,
}

/// The ignore files of one folder.
#[derive(Debug)]
struct Level {
    folder: PathBuf,
    ignore: Gitignore,
    git_ignore: Gitignore,
    exclude: Gitignore,
    has_git: bool,
    patterns: usize,
}

/// What the ignore files say of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Ignored,
    /// A pattern with `!` names it.
    Wanted,
}

impl Ignored {
    /// Opens the folder at which a walk starts.
    pub(super) fn below(start: &Path) -> Self {
        let handle = rustix::fs::open(start, FOLDER, Mode::empty()).ok();
        Self {
            start: start.to_owned(),
            handle,
            levels: Mutex::default(),
            compiled: AtomicUsize::new(0),
        }
    }

    /// Returns what the ignore files from the start to the folder of an entry say of it. The nearest folder
    /// decides, and `.ignore` before `.gitignore`; those of git end at the root of a repository.
    pub(super) fn of(&self, path: &Path, is_folder: bool) -> Said {
        let Some(folder) = path.parent().filter(|folder| folder.starts_with(&self.start)) else {
            return Said::Nothing;
        };
        let mut levels = self.levels.lock();
        while levels.last().is_some_and(|level| !folder.starts_with(&level.folder)) {
            levels.pop();
        }
        let known = levels.last().map(|level| level.folder.clone());
        let missing = folder
            .ancestors()
            .take_while(|above| above.starts_with(&self.start) && known.as_deref() != Some(*above));
        for above in missing.collect::<Vec<_>>().into_iter().rev() {
            let here = MOST_PATTERNS.saturating_sub(levels.iter().map(|l| l.patterns).sum());
            let in_all = MOST_IN_ALL.saturating_sub(self.compiled.load(Relaxed));
            let level = self.level(above, here.min(in_all));
            self.compiled.fetch_add(level.patterns, Relaxed);
            levels.push(level);
        }
        said(&levels, path, is_folder)
    }

    /// Reads the ignore files of a folder, at most so many patterns.
    fn level(&self, folder: &Path, mut left: usize) -> Level {
        let most = left;
        let opened = self.open(folder).ok();
        let mut read = |name: &str| {
            let text = opened.as_ref().and_then(|folder| text_of(folder, name).ok());
            text.map_or_else(Gitignore::empty, |text| patterns(folder, &text, &mut left))
        };
        let (ignore, git_ignore) = (read(".ignore"), read(".gitignore"));
        let git = opened.as_ref().is_some_and(|folder| {
            rustix::fs::statat(folder, ".git", AtFlags::SYMLINK_NOFOLLOW).is_ok()
        });
        let exclude = match git {
            true => read(".git/info/exclude"),
            false => Gitignore::empty(),
        };
        let patterns = most - left;
        Level { folder: folder.to_owned(), ignore, git_ignore, exclude, has_git: git, patterns }
    }

    /// Opens a folder below the start; a link on the way is an error.
    fn open(&self, folder: &Path) -> io::Result<OwnedFd> {
        let handle = self.handle.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let below = folder.strip_prefix(&self.start).map_err(io::Error::other)?;
        steps(handle.try_clone()?, below)
    }
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

fn steps(from: OwnedFd, below: &Path) -> io::Result<OwnedFd> {
    below.components().try_fold(from, |at, part| match part {
        Component::Normal(name) => Ok(rustix::fs::openat(at, name, FOLDER, Mode::empty())?),
        _ => Ok(at),
    })
}

/// Reads what counts of an ignore file.
fn text_of(folder: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    let path = Path::new(name);
    let folder = steps(folder.try_clone()?, path.parent().unwrap_or(path))?;
    let name = path.file_name().unwrap_or(OsStr::new(""));
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder.as_fd(), name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text)?;
    if text.len() as u64 == MOST_BYTES {
        // The last line may be the beginning of one, and name more than the whole would.
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    }
    Ok(text)
}

/// Compiles the patterns of an ignore file; one that is wrong is passed over.
fn patterns(folder: &Path, text: &[u8], left: &mut usize) -> Gitignore {
    let mut builder = GitignoreBuilder::new(folder);
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n') {
        if *left == 0 {
            break;
        }
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.len() > LONGEST || line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        *left -= usize::from(builder.add_line(None, line).is_ok());
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn said(levels: &[Level], path: &Path, is_folder: bool) -> Said {
    let (mut ignore, mut git_ignore, mut exclude) = (Said::Nothing, Said::Nothing, Said::Nothing);
    let mut is_in_repository = true;
    let ask = |known: &mut Said, files: &Gitignore| {
        if *known == Said::Nothing {
            *known = match files.matched(path, is_folder) {
                Match::None => Said::Nothing,
                Match::Ignore(_) => Said::Ignored,
                Match::Whitelist(_) => Said::Wanted,
            };
        }
    };
    for level in levels.iter().rev() {
        ask(&mut ignore, &level.ignore);
        if is_in_repository {
            ask(&mut git_ignore, &level.git_ignore);
            ask(&mut exclude, &level.exclude);
        }
        is_in_repository &= !level.has_git;
    }
    let all = [ignore, git_ignore, exclude];
    all.into_iter().find(|said| *said != Said::Nothing).unwrap_or(Said::Nothing)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use super::*;

    fn pipe(path: &Path) {
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
    }

    #[test]
    fn the_nearest_file_decides() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in [".git/info", "a/b", "own/.git", "own/c"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at(".gitignore"), "\u{feff}*.log\r\n# note\n/top\nbuild/\n!keep.log\n[\n")
            .unwrap();
        fs::write(at(".git/info/exclude"), "local\n").unwrap();
        fs::write(at("a/.gitignore"), "!x.log\n").unwrap();
        fs::write(at("a/b/.ignore"), b"x.log\n\xff\nlast").unwrap();
        let ignored = Ignored::below(root.path());
        for (name, is_folder, wanted) in [
            ("a.log", false, Said::Ignored),
            ("keep.log", false, Said::Wanted),
            ("top", false, Said::Ignored),
            ("a/top", false, Said::Nothing),
            ("build", true, Said::Ignored),
            ("build", false, Said::Nothing),
            ("a/b/local", false, Said::Ignored),
            ("a/x.log", false, Said::Wanted),
            ("a/y.log", false, Said::Ignored),
            ("a/b/x.log", false, Said::Ignored),
            ("a/b/last", false, Said::Ignored),
            ("plain", false, Said::Nothing),
            // A repository of its own.
            ("own/x.log", false, Said::Nothing),
            ("own/c/x.log", false, Said::Nothing),
            ("a/b/x.log", false, Said::Ignored),
        ] {
            assert_eq!(ignored.of(&at(name), is_folder), wanted, "{name}");
        }
        assert_eq!(ignored.of(Path::new("/elsewhere/x.log"), false), Said::Nothing);
    }

    #[test]
    fn what_is_no_ignore_file_ignores_nothing_and_is_not_waited_for() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "*\n").unwrap();
        let secret = outside.path().join("secret");
        let began = Instant::now();
        for name in [".gitignore", ".ignore", "sub/.gitignore", "sub/.ignore", ".git/info/exclude"]
        {
            let makers: [&dyn Fn(&Path); 6] = [
                &pipe,
                &|path| symlink("/dev/zero", path).unwrap(),
                &|path| symlink(&secret, path).unwrap(),
                &|path| symlink("/dev/stdin", path).unwrap(),
                &|path| fs::create_dir(path).unwrap(),
                &|path| File::create(path).unwrap().set_len(100 << 30).unwrap(),
            ];
            for (number, make) in makers.iter().enumerate() {
                let root = tempfile::tempdir().unwrap();
                fs::create_dir_all(root.path().join("sub")).unwrap();
                fs::create_dir_all(root.path().join(".git/info")).unwrap();
                make(&root.path().join(name));
                let ignored = Ignored::below(root.path());
                let said = ignored.of(&root.path().join("sub/file"), false);
                assert_eq!(said, Said::Nothing, "{name}, {number}");
            }
        }
        // A folder on the way that leads outside.
        let root = tempfile::tempdir().unwrap();
        fs::write(outside.path().join(".gitignore"), "*\n").unwrap();
        symlink(outside.path(), root.path().join("sub")).unwrap();
        let ignored = Ignored::below(root.path());
        assert_eq!(ignored.of(&root.path().join("sub/file"), false), Said::Nothing);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    #[test]
    fn patterns_are_bounded_over_all_folders() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        let many: String = (0..200_000).map(|n| format!("a*{n}/**/x*y{n}\n")).collect();
        for folder in [root.path(), &deep] {
            fs::write(folder.join(".gitignore"), format!("first\n{many}")).unwrap();
            fs::write(folder.join(".ignore"), &many).unwrap();
        }
        fs::write(root.path().join(".ignore"), "one\n").unwrap();
        let began = Instant::now();
        let ignored = Ignored::below(root.path());
        assert_eq!(ignored.of(&deep.join("first"), false), Said::Ignored);
        let held: usize = ignored.levels.lock().iter().map(|level| level.patterns).sum();
        assert_eq!(held, MOST_PATTERNS);
        // Folders beside each other.
        let root = tempfile::tempdir().unwrap();
        let ignored = Ignored::below(root.path());
        for number in 0..MOST_IN_ALL / MOST_PATTERNS + 3 {
            let folder = root.path().join(format!("{number}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(".gitignore"), &many).unwrap();
            ignored.of(&folder.join("file"), false);
        }
        assert_eq!(ignored.compiled.load(Relaxed), MOST_IN_ALL);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}
