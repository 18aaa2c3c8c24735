//! Tells which files that other programs run were changed while a run worked, whoever changed them: a
//! file tool, a command, or what a command started.
//!
//! Costs nothing before the first call that may change files: the workspace is walked before that call,
//! and again when an agent that made such calls ends. A later walk reads only the folders that changed
//! since, and a file whose size, times and place on the disk are as before is not read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::listings::Listings;
use super::{ENTRIES, FOUND, Survey, is_sample};
use crate::disk;
use crate::id::AgentId;
use crate::redaction::Secrets;
use crate::spec::run_by_others::{ChangeOfFile, ChangedForOthers, RunBy};
use crate::store::Store;

/// The largest content that is compared, in bytes; of a larger file only its size and times are.
const HASHED: u64 = 1 << 20;

/// The largest content that is kept for a difference, in bytes.
const KEPT: usize = 64 << 10;

/// The most bytes of contents that one walk keeps.
const KEPT_IN_ALL: usize = 8 << 20;

/// The most bytes of the file with what was last seen.
const MOST_SAVED: usize = 64 << 20;

/// Words, in lower case, by which a text with a secret is told.
const SIGNS: [&str; 9] = [
    "token",
    "password",
    "passwd",
    "secret",
    "authorization",
    "extraheader",
    "api_key",
    "apikey",
    "private key",
];

/// The most changes that one record tells of.
const TOLD: usize = 200;

/// The files of a workspace that other programs run, as they were when they were last looked at.
#[derive(Debug)]
pub struct Watch {
    root: PathBuf,
    /// The file, beside the records of the run, with what was last seen.
    file: PathBuf,
    store: Arc<Store>,
    secrets: Secrets,
    /// What was last seen; `None` before the first call that may change files. Held while somebody looks.
    last: Mutex<Option<Prints>>,
    /// What the folders held at the last walk. Locked only by who holds `last`.
    folders: Mutex<Listings>,
    at_work: Mutex<AtWork>,
    /// True once a look has left something out.
    incomplete: AtomicBool,
}

/// Agents that made calls which may change files.
#[derive(Debug, Default)]
struct AtWork {
    /// True if the workspace was looked at.
    begun: bool,
    /// Those since the last look.
    since: BTreeSet<AgentId>,
    /// Those that have not ended.
    now: BTreeSet<AgentId>,
}

type Prints = BTreeMap<String, Print>;

/// A file as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Print {
    program: String,
    size: u64,
    changed_ns: i128,
    inode: u64,
    mode: u32,
    /// Hash of the content, or of where a link leads; absent for a large file.
    hash: Option<String>,
    /// The content, if it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl Print {
    /// Returns true if the file surely has the content that it had.
    fn is_untouched(&self, now: &Self) -> bool {
        (self.size, self.changed_ns, self.inode, self.mode)
            == (now.size, now.changed_ns, now.inode, now.mode)
    }

    /// Returns true if other programs see no difference.
    fn is_same(&self, now: &Self) -> bool {
        let mode = self.mode == now.mode;
        match (&self.hash, &now.hash) {
            (Some(before), Some(after)) => mode && before == after,
            _ => self.is_untouched(now),
        }
    }
}

impl Watch {
    /// Makes a watch of the workspace of a run, whose records lie in `run`. Looks at nothing yet.
    #[must_use]
    pub fn new(root: PathBuf, run: PathBuf, store: Arc<Store>, secrets: Secrets) -> Self {
        let (file, at_work) = (run.join("run-by-others.json"), Mutex::default());
        Self {
            root,
            file,
            store,
            secrets,
            at_work,
            last: Mutex::default(),
            folders: Mutex::default(),
            incomplete: AtomicBool::new(false),
        }
    }

    /// Notes that an agent is about to make a call that may change files. Returns true if the workspace
    /// was looked at before.
    #[must_use]
    pub fn note(&self, agent: Option<&AgentId>) -> bool {
        let mut at_work = self.at_work.lock();
        if let Some(agent) = agent {
            at_work.since.insert(agent.clone());
            at_work.now.insert(agent.clone());
        }
        at_work.begun
    }

    /// Looks at the workspace before the first call of a run that may change files. A run that resumes
    /// goes on with what its last process saw. Blocks.
    pub fn begin(&self) {
        let mut last = self.last.lock();
        if last.is_none() {
            let seen = self.saved().unwrap_or_else(|| {
                let seen = self.prints(&Prints::new());
                self.save(&seen);
                seen
            });
            *last = Some(seen);
        }
        self.at_work.lock().begun = true;
    }

    /// Returns true if the agent made a call that may have changed files, or if the last process of the
    /// run may have died before it told of changes.
    #[must_use]
    pub fn concerns(&self, agent: &AgentId) -> bool {
        let at_work = self.at_work.lock();
        at_work.now.contains(agent) || (!at_work.begun && self.file.exists())
    }

    /// Returns what changed since the last look, when an agent or a hook has ended. Blocks.
    #[must_use]
    pub fn ended(&self, agent: Option<&AgentId>) -> Vec<ChangedForOthers> {
        let mut seen = self.last.lock();
        let Some(last) = seen.take().or_else(|| self.saved()) else { return Vec::new() };
        let now = self.prints(&last);
        let or_by: Vec<_> = {
            let mut at_work = self.at_work.lock();
            let at_work = &mut *at_work;
            if let Some(agent) = agent {
                at_work.now.remove(agent);
            }
            at_work.begun = true;
            // What an agent that is still at work changes after this look is told by a later one.
            let since = std::mem::replace(&mut at_work.since, at_work.now.clone());
            since.into_iter().filter(|other| Some(other) != agent).collect()
        };
        let changes = self.changes(&last, &now, &or_by);
        if last != now {
            self.save(&now);
        }
        *seen = Some(now);
        changes
    }

    /// Returns true if a look has left something out: the workspace holds more than is looked at, or more
    /// changed than one record tells of.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }

    /// Takes the fingerprints of all files that a walk finds.
    fn prints(&self, last: &Prints) -> Prints {
        let Survey { found, complete, .. } = Survey::again(&self.root, &mut self.folders.lock());
        let leave_out = || self.incomplete.store(true, Ordering::Relaxed);
        if !complete {
            leave_out();
        }
        let (mut prints, mut room) = (Prints::new(), KEPT_IN_ALL);
        let (protected, reported): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, by)| by.protected);
        // What is only reported takes no room from what is protected: anybody makes it by the thousand.
        for class in [protected, reported] {
            let (mut left, most) = (ENTRIES, prints.len() + FOUND);
            for (path, by) in class {
                let mut open = vec![path];
                while let Some(path) = open.pop() {
                    let absolute = self.root.join(&path);
                    let Ok(meta) = absolute.symlink_metadata() else { continue };
                    if is_sample(&path) {
                        continue;
                    }
                    if left == 0 || prints.len() >= most {
                        leave_out();
                        continue;
                    }
                    left -= 1;
                    if meta.is_dir() {
                        let mut inner = fs::read_dir(&absolute).into_iter().flatten().flatten();
                        let first = inner.by_ref().take(FOUND);
                        open.extend(first.map(|entry| path.join(entry.file_name())));
                        if inner.next().is_some() {
                            leave_out();
                        }
                        continue;
                    }
                    let name = named(&path);
                    let print = self.print(&absolute, &meta, by, last.get(&name), &mut room);
                    prints.insert(name, print);
                }
            }
        }
        prints
    }

    fn print(
        &self,
        path: &Path,
        meta: &fs::Metadata,
        by: RunBy,
        last: Option<&Print>,
        room: &mut usize,
    ) -> Print {
        let changed_ns = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
        let (size, inode, mode) = (meta.size(), meta.ino(), meta.mode());
        let program = by.program.to_owned();
        let mut print = Print { program, size, changed_ns, inode, mode, hash: None, text: None };
        if let Some(last) = last.filter(|last| last.is_untouched(&print)) {
            return last.clone();
        }
        let content = match meta.is_symlink() {
            true => fs::read_link(path).ok().map(|to| to.into_os_string().into_encoded_bytes()),
            false if meta.is_file() && size <= HASHED => content(path, HASHED as usize),
            false => None,
        };
        let Some(content) = content else { return print };
        print.hash = Some(blake3::hash(&content).to_hex().to_string());
        print.text = self.kept(path, content).filter(|text| text.len() <= *room);
        *room -= print.text.as_ref().map_or(0, String::len);
        print
    }

    /// Returns the content of a small text that shows no sign of a secret: what is kept is read by
    /// everybody who reads the records.
    fn kept(&self, path: &Path, content: Vec<u8>) -> Option<String> {
        let name = path.file_name()?.as_encoded_bytes();
        let mut text = String::from_utf8(content).ok().filter(|text| text.len() <= KEPT)?;
        let lower = text.to_ascii_lowercase();
        if name.starts_with(b".env") || SIGNS.iter().any(|sign| lower.contains(sign)) {
            return None;
        }
        // `https://user:password@host`.
        let has_user = |rest: &str| rest.split(['/', '\n', ' ', '"']).next()?.find('@');
        if lower.split("://").skip(1).any(|rest| has_user(rest).is_some()) {
            return None;
        }
        self.secrets.redact(&mut text);
        Some(text)
    }

    fn saved(&self) -> Option<Prints> {
        let bytes = content(&self.file, MOST_SAVED).filter(|bytes| bytes.len() < MOST_SAVED)?;
        serde_json::from_slice(&bytes).ok()
    }

    fn save(&self, seen: &Prints) {
        let new = self.file.with_extension("new");
        let bytes = serde_json::to_vec(seen).unwrap_or_default();
        let write = || {
            disk::make_anew(&new)?.write_all(&bytes)?;
            fs::rename(&new, &self.file)
        };
        let saved = write();
        if let Err(error) = saved {
            tracing::warn!(%error, "what other programs run could not be noted for a resume");
        }
    }

    /// Compares what a walk found with what the last one did, and stores the contents that differ.
    fn changes(&self, last: &Prints, now: &Prints, or_by: &[AgentId]) -> Vec<ChangedForOthers> {
        let kept = |print: &Print| self.store.store(print.text.as_ref()?).ok();
        let told = |path: &String, before: Option<&Print>, after: Option<&Print>| {
            let change = match (before, after) {
                (None, _) => ChangeOfFile::Made,
                (_, None) => ChangeOfFile::Removed,
                _ => ChangeOfFile::Changed,
            };
            let program = before.or(after).map(|print| print.program.clone()).unwrap_or_default();
            let (before, after) = (before.and_then(kept), after.and_then(kept));
            let (path, or_by) = (path.clone(), or_by.to_vec());
            ChangedForOthers { path, program, change, or_by, before, after }
        };
        let here = now.iter().filter_map(|(path, after)| match last.get(path) {
            Some(before) if before.is_same(after) => None,
            before => Some(told(path, before, Some(after))),
        });
        let gone = last.iter().filter(|(path, _)| !now.contains_key(*path));
        let gone = gone.map(|(path, before)| told(path, Some(before), None));
        let mut all = here.chain(gone);
        let told: Vec<_> = all.by_ref().take(TOLD).collect();
        if all.next().is_some() {
            self.incomplete.store(true, Ordering::Relaxed);
        }
        told
    }
}

/// Returns the name of a path in the records: no two paths have one name, whatever their bytes.
fn named(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return text.to_owned();
    }
    let mut name = String::new();
    for part in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        name.push_str(&part.valid().replace('\\', "\\\\"));
        part.invalid().iter().for_each(|byte| name.push_str(&format!("\\x{byte:02x}")));
    }
    name
}

/// Reads a regular file that is no link, up to a bound. A pipe is not waited for.
fn content(path: &Path, most: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
