//! Finds the files of a workspace that other programs run or trust, at any depth.
//!
//! One bounded walk, folders that are near the root first and folders of installed packages last, so that
//! a bound leaves out what matters least. It follows no link and runs nothing: settings of git are read
//! as text (`survey/git.rs`). `survey/watch.rs` compares two walks. Blocks.

mod git;
mod listings;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::FileType;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::listings::Listings;
use crate::spec::run_by_others::{self, GIT_FOLDER, GIT_MARKS, JOURNAL, RECORDS, RunBy, Store};

/// The most entries of folders that a walk looks at, beside those of installed packages.
const ENTRIES: usize = 500_000;

/// How many times as many a walk looks at in folders of installed packages, which take nothing from the others.
const OF_PACKAGES: usize = 2;

/// The most files that a walk finds that are only reported. What is protected has a bound of its own:
/// files that a model made by the thousand must not take the place of what they would hide.
const FOUND: usize = 20_000;

/// The most protected paths that a walk finds.
const PROTECTED: usize = 20_000;

/// The most folders that were left out which a message names.
const TOLD: usize = 5;

/// The deepest folder that a walk looks into.
const DEPTH: usize = 64;

/// Folders with what package managers and builds put there. They come last, and what is only reported
/// is not looked for in them: each package has a package.json or a Makefile of its own.
const HEAVY: [&str; 7] =
    ["node_modules", "target", ".venv", "venv", "vendor", "__pycache__", ".tox"];

/// What a walk found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Paths relative to the root, with the programs that run or trust them. A folder stands for all
    /// that is in it.
    pub found: BTreeMap<PathBuf, RunBy>,
    /// The folders, relative to the root, that were not looked into as a whole: they cannot be read, or
    /// come after the bound. What they hold is unknown. A folder of installed packages stands for what was
    /// left out in it.
    pub unseen: BTreeSet<PathBuf>,
    /// The folders of records: each project in a workspace has its own.
    records: Vec<PathBuf>,
    /// True if nothing was left out because there was too much, or because it cannot be read.
    pub complete: bool,
    /// The files that may still be looked for because words of a command name them.
    looks_left: usize,
    /// The numbers of paths that are protected and of those that are only reported.
    counts: (usize, usize),
    /// What folders held at the walk before, and what they hold at this one.
    old: Listings,
    new: Listings,
    /// The entries that may still be looked at.
    left: usize,
    /// The bytes of settings of git that may still be read.
    text_left: u64,
    /// The files of settings of git that were read, each with the work tree that it was read for.
    settings: BTreeSet<(PathBuf, PathBuf)>,
}

/// The paths of a workspace that no command changes.
#[derive(Debug)]
pub struct Protected {
    /// They are absolute. A folder stands for all that is in it.
    pub paths: Vec<PathBuf>,
    /// The folders that were not looked into as a whole. They are protected too.
    pub unseen: Vec<PathBuf>,
    /// What was left out, and what became of it, in words; `None` if the walk was whole.
    pub left_out: Option<String>,
}

/// Finds the protected paths that a workspace has at any depth, and those that settings of git in it name
/// although they do not exist. In folders of installed packages only repositories count: nobody opens one
/// with an editor, and packages must be removable. A folder that was not looked into is protected as a
/// whole: who makes it too large, or closes it, hides nothing in it.
#[must_use]
pub fn find_protected(root: &Path) -> Protected {
    protected_in(root, Survey::of(root))
}

fn protected_in(root: &Path, survey: Survey) -> Protected {
    let Survey { found, unseen, complete, records, .. } = survey;
    let left_out = (!complete).then(|| left_out(&unseen));
    let found = found.into_iter().filter(|(path, by)| is_kept(path, *by));
    let all = found.map(|(path, _)| path).chain(records);
    let absolute = |path: PathBuf| root.join(path);
    let unseen = unseen.into_iter().map(absolute).collect();
    Protected { paths: all.map(absolute).collect(), unseen, left_out }
}

/// Returns true if no command changes the path: it is protected, and in a folder of installed packages it is a
/// part of a repository.
fn is_kept(path: &Path, by: RunBy) -> bool {
    let is_heavy = || path.iter().any(is_heavy);
    by.protected && (path.iter().any(|part| part == GIT_FOLDER) || by == git::BY || !is_heavy())
}

/// Returns true for the name of a folder of installed packages.
fn is_heavy(name: &OsStr) -> bool {
    HEAVY.iter().any(|heavy| name == *heavy)
}

/// Tells what a walk left out.
fn left_out(unseen: &BTreeSet<PathBuf>) -> String {
    let named: Vec<_> = unseen.iter().take(TOLD).map(|path| format!("{path:?}")).collect();
    let more = match unseen.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let kept = match named.is_empty() {
        true => String::new(),
        false => format!("; commands may change nothing in {}{more}", named.join(", ")),
    };
    format!(
        "not all of the workspace was looked at for files that other programs run: it holds more than \
         {ENTRIES} entries, or twice as many in folders of packages, is over {DEPTH} folders deep, or has \
         folders that cannot be read{kept}. Remove or open them, or name them in `[sandbox] writable_roots`"
    )
}

/// A folder that a walk has still to look into.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    depth: usize,
    /// The outermost folder of installed packages around it, or itself.
    heavy: Option<Arc<Path>>,
}

impl Survey {
    /// Walks a workspace. What cannot be read is passed over.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        Self::within(root, &mut Listings::default(), ENTRIES)
    }

    /// Walks a workspace again: reads only the folders that changed since the walk that left `known`,
    /// and leaves there what this one read.
    fn again(root: &Path, known: &mut Listings) -> Self {
        Self::within(root, known, ENTRIES)
    }

    /// Does the same, and looks at no more than `most` entries.
    fn within(root: &Path, known: &mut Listings, most: usize) -> Self {
        let old = std::mem::take(known);
        let (complete, left, text_left, looks_left) = (true, most, git::READ, git::LOOKS);
        let mut survey = Self { complete, old, left, text_left, looks_left, ..Self::default() };
        let first = Folder { path: PathBuf::new(), depth: 0, heavy: None };
        let (mut near, mut last) = (VecDeque::from([first]), VecDeque::new());
        let mut left_for_packages = Some(most.saturating_mul(OF_PACKAGES));
        while let Some(folder) = near.pop_front().or_else(|| {
            // No folder of packages leads to one that is none.
            survey.left = left_for_packages.take().unwrap_or(survey.left);
            last.pop_front()
        }) {
            for inner in survey.look_into(root, &folder) {
                if inner.depth > DEPTH {
                    survey.leave_out(inner.heavy.as_deref().unwrap_or(&inner.path));
                } else if inner.heavy.is_some() {
                    last.push_back(inner);
                } else {
                    near.push_back(inner);
                }
            }
        }
        *known = std::mem::take(&mut survey.new);
        survey
    }

    /// Notes what a folder holds. Returns the folders in it.
    fn look_into(&mut self, root: &Path, folder: &Folder) -> Vec<Folder> {
        let (mut inner, mut marks) = (Vec::new(), Vec::new());
        let (entries, count) = self.entries(root, folder);
        let mut runs = Vec::new();
        for (name, kind) in entries {
            let path = folder.path.join(&name);
            if kind.is_dir() && run_by_others::is_run(&name) && has_journal(&root.join(&path)) {
                runs.push(path.clone());
            }
            marks.extend(GIT_MARKS.into_iter().filter(|mark| name == *mark));
            if let Some(store) = run_by_others::store(&name).filter(|_| kind.is_dir()) {
                self.store(root, &path, store);
            }
            if name == GIT_FOLDER {
                self.git(root, &path, kind);
                continue;
            }
            match run_by_others::named(&name).filter(|by| by.protected || folder.heavy.is_none()) {
                Some(by) => self.note(path, by),
                // Records are protected as a whole, and grow with each run.
                None if name == RECORDS && kind.is_dir() && folder.path.as_os_str().is_empty() => {
                    self.record(path);
                }
                None if kind.is_dir() => {
                    if name == RECORDS {
                        self.record(path.clone());
                    }
                    let own = || is_heavy(&name).then(|| path.as_path().into());
                    let heavy = folder.heavy.clone().or_else(own);
                    inner.push(Folder { path, depth: folder.depth + 1, heavy });
                }
                None => {}
            }
        }
        // Where nothing else lies, records of later runs will.
        match runs.len() == count && !folder.path.as_os_str().is_empty() && count > 0 {
            true => self.record(folder.path.clone()),
            false => runs.into_iter().for_each(|run| self.record(run)),
        }
        // A folder that git takes for a repository, whatever its name.
        let is_repository = run_by_others::is_repository(|mark| marks.contains(&mark));
        if is_repository && !folder.path.as_os_str().is_empty() {
            git::folder(self, root, &folder.path, &parent(&folder.path));
            // They may be decoys around another repository, and hold very much: they come last.
            for Folder { path, heavy, .. } in &mut inner {
                if path.ends_with("objects") || path.ends_with("refs") {
                    heavy.get_or_insert_with(|| path.as_path().into());
                }
            }
        } else if is_repository {
            // `config` and `hooks` are common names: they are git's only beside all that makes one.
            git::one(self, root, Path::new(""), Path::new(""), git::STEPS);
        }
        inner
    }

    /// Notes the parts of a repository: of a folder, or of what a file names.
    fn git(&mut self, root: &Path, path: &Path, kind: FileType) {
        if kind.is_dir() && is_closed(&root.join(path)) {
            self.leave_out(path);
        } else if kind.is_dir() {
            git::folder(self, root, path, &parent(path));
        } else {
            self.note(path.to_owned(), git::BY);
            git::file(self, root, path);
        }
    }

    /// Notes the parts of a folder of another version-control system.
    fn store(&mut self, root: &Path, path: &Path, store: &Store) {
        let parts = store.parts.iter().map(|part| (part, false));
        for (part, is_file) in parts.chain(store.files.iter().map(|file| (file, true))) {
            let path = path.join(part);
            let found = root.join(&path).symlink_metadata();
            if found.is_ok_and(|found| !is_file || !found.is_dir()) {
                self.note(path, RunBy { program: store.program, protected: true });
            }
        }
    }

    /// Notes a path. One outside is nobody's here.
    fn note(&mut self, path: PathBuf, by: RunBy) {
        if path.is_absolute() {
            return;
        }
        if let Some(known) = self.found.get_mut(&path) {
            known.protected |= by.protected;
            return;
        }
        let (count, most) = match is_kept(&path, by) {
            true => (&mut self.counts.0, PROTECTED),
            false => (&mut self.counts.1, FOUND),
        };
        if *count >= most {
            // What is only reported takes nothing from what is protected, nor do the names in packages.
            self.complete = false;
            // A path that is protected is so with all that lies beside it in the root.
            if is_kept(&path, by) && path.components().count() > 1 {
                self.unseen.extend(path.iter().next().map(PathBuf::from));
            }
            return;
        }
        *count += 1;
        self.found.insert(path, by);
    }

    /// Notes a folder of records.
    fn record(&mut self, path: PathBuf) {
        match self.records.len() < PROTECTED {
            true => self.records.push(path),
            false => self.complete = false,
        }
    }

    /// Notes that a folder was not looked into as a whole.
    fn leave_out(&mut self, folder: &Path) {
        self.complete = false;
        // The workspace itself cannot be protected: that there is more is told.
        if !folder.as_os_str().is_empty() {
            self.unseen.insert(folder.to_owned());
        }
    }

    /// Returns the folders and the names of interest in a folder, as far as the bound allows, and the number of
    /// all its entries.
    fn entries(&mut self, root: &Path, folder: &Folder) -> (Vec<(OsString, FileType)>, usize) {
        let Folder { path, heavy, .. } = folder;
        let listing = match self.old.take(root, path, self.left, is_sought) {
            Ok(listing) => listing,
            Err(error) => {
                let is_gone =
                    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                if !is_gone {
                    self.leave_out(path);
                }
                return (Vec::new(), 0);
            }
        };
        if is_closed(&root.join(path)) {
            self.leave_out(path);
            return (Vec::new(), 0);
        }
        if listing.is_cut || listing.count > self.left {
            self.leave_out(heavy.as_deref().unwrap_or(path));
        }
        self.left = self.left.saturating_sub(listing.count);
        let seen = (listing.entries.clone(), listing.count);
        self.new.keep(path.clone(), listing);
        seen
    }
}

/// Returns true for a folder with a journal, which a resume would believe.
fn has_journal(folder: &Path) -> bool {
    folder.join(JOURNAL).symlink_metadata().is_ok()
}

/// Returns true for a folder whose names can be read but not what is behind them, or neither: `chmod`
/// takes a moment, and gives back what it hid.
fn is_closed(folder: &Path) -> bool {
    use rustix::fs::Access;
    let opened = rustix::fs::access(folder, Access::READ_OK | Access::EXEC_OK);
    opened == Err(rustix::io::Errno::ACCESS)
}

/// Returns true for a name that a walk looks for, beside folders.
fn is_sought(name: &OsStr) -> bool {
    let is_of_git = name == GIT_FOLDER || GIT_MARKS.iter().any(|mark| name == *mark);
    is_of_git || run_by_others::named(name).is_some()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

/// Returns true for the samples that `git init` puts beside hooks: git does not run them.
fn is_sample(path: &Path) -> bool {
    let is_of_hooks = path.parent().is_some_and(|folder| folder.ends_with("hooks"));
    is_of_hooks && path.extension() == Some(OsStr::new("sample"))
}

#[cfg(test)]
mod tests;
