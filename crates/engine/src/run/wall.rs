//! Resolves what the commands of a run may reach: each path of the policy, once, before anything runs.
//!
//! A project ships links, and a command makes them. So a path that leads out through a link which one of
//! them can write is an error, or, if only the environment of the person names it, left out; and nothing
//! that lies in a folder which commands can write is a place of its own: another could be put there.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::gathered::{Gathered, gather};
use super::others;
use crate::config::Config;
use crate::disk;
use crate::spec::sandbox::SandboxMode;
use crate::tool::environment;
use crate::tool::sandbox::place::{Held, Identity, Place, Resolved, resolve};
use crate::tool::sandbox::{Policy, toolchains};
use crate::trust;

/// Name of the folder of caches, beside the records of runs.
const CACHE: &str = ".cache";

/// Files by which a workspace shows that tools with such caches work in it.
const CACHING: [&str; 7] = [
    "go.mod",
    "go.work",
    "package.json",
    "pyproject.toml",
    "requirements.txt",
    "setup.py",
    ".pre-commit-config.yaml",
];

/// Open files that this process needs beside those that a policy holds: journals, logs, pipes, sockets.
const OTHER_FILES: u64 = 512;

/// The most paths that are made read-only for each command: a few microseconds each.
const MOST_PROTECTED: usize = 10_000;

/// The most folders that a warning names.
const TOLD: usize = 5;

/// What no tool changes.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Paths that stay as they are: absolute, without `..`.
    pub(super) paths: Vec<PathBuf>,
    /// Folders that stay at their place, because such a path leads through them.
    pub(super) pinned: Vec<PathBuf>,
    /// Paths in the workspace that commands write although such a path may lie around them.
    pub(super) open: Vec<PathBuf>,
    /// Those of the paths that other programs run here, whatever their names: settings of git name them, or links.
    pub(super) found: HashSet<PathBuf>,
}

/// Which folders may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Making {
    /// None: somebody only looks.
    Nothing,
    /// That of the records and that of the caches.
    Folders,
}

/// Returns what the commands of a run may reach, and may not change.
///
/// # Errors
/// Returns the path that cannot be resolved safely, and the reason.
pub(super) fn policy(config: &Config, kept: Kept, making: Making) -> Result<Policy, String> {
    let mut wall = Wall::around(config)?;
    wall.writable_roots(config)?;
    wall.records(config, making)?;
    wall.readable_roots(config)?;
    wall.toolchains(config);
    wall.temporary()?;
    wall.store(config, making)?;
    wall.hold()?;
    let real = wall.policy.root.as_ref().map(|root| root.path().to_owned()).unwrap_or_default();
    let in_place = |path: PathBuf| match path.strip_prefix(&config.root) {
        Ok(below) => real.join(below),
        Err(_) => path,
    };
    let kept = bounded(config, kept)?;
    let spec = &config.sandbox;
    let places =
        |paths: Vec<PathBuf>| paths.into_iter().map(|path| Place::from(in_place(path))).collect();
    let (protected, pinned) = (places(kept.paths), places(kept.pinned));
    let (network, hosts, limits) = (spec.network, spec.hosts.clone(), spec.limits.clone());
    Ok(Policy { protected, pinned, network, hosts, limits, ..wall.policy })
}

/// Returns what is kept, in no more paths than each command can take. Folders stand for those of which there are
/// too many, and it is said which.
fn bounded(config: &Config, kept: Kept) -> Result<Kept, String> {
    let Kept { paths, mut pinned, mut open, found } = kept;
    let most = MOST_PROTECTED.saturating_sub(pinned.len());
    open.push(config.state_dir.join(CACHE));
    let count = paths.len();
    let Gathered { paths, folders } = gather(paths, &config.root, &open, most);
    if !folders.is_empty() {
        let named: Vec<_> = folders.iter().take(TOLD).map(|folder| format!("{folder:?}")).collect();
        let more = match folders.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!(" and {more} more folders"),
        };
        tracing::warn!(
            "commands may change nothing in {}{more}: the workspace holds {count} paths that other programs \
             run or trust, over {MOST_PROTECTED}, and most of them there. Remove repositories that nobody needs",
            named.join(", ")
        );
        pinned.retain(|path| !folders.iter().any(|folder| path.starts_with(folder)));
    }
    let count = paths.len() + pinned.len();
    if count > MOST_PROTECTED {
        return Err(format!(
            "the workspace holds {count} paths that are protected, over {MOST_PROTECTED}: each command would \
             take a second to make them read-only; move some of its repositories elsewhere"
        ));
    }
    Ok(Kept { paths, pinned, open, found })
}

/// A policy in the making.
struct Wall {
    policy: Policy,
    /// The folders in which the project or a command can write.
    owned: Vec<Identity>,
    held: Vec<OwnedFd>,
}

impl Wall {
    /// Begins with the workspace.
    fn around(config: &Config) -> Result<Self, String> {
        let root = resolve(&config.root, &[]);
        let root = root.map_err(|error| format!("{}: {error}", config.root.display()))?;
        let mut wall =
            Self { policy: Policy::default(), owned: Vec::new(), held: vec![root.handle] };
        wall.owned.extend(root.place.identity());
        wall.policy.root = Some(root.place.clone());
        wall.policy.homes = homes();
        match config.sandbox.mode {
            SandboxMode::WorkspaceWrite => wall.policy.write.push(root.place),
            SandboxMode::ReadOnly | SandboxMode::DangerFullAccess => {
                wall.policy.read.push(root.place);
            }
        }
        Ok(wall)
    }

    /// Resolves a path that may not lead out through a link. Returns `None` if nothing is there.
    fn safely(&self, key: &str, path: &Path) -> Result<Option<Resolved>, String> {
        match resolve(path, &self.owned) {
            Ok(Resolved { link: Some(link), place, is_owned: false, .. }) => Err(format!(
                "{key}: {} leads to {} through {}, a link that the project or a command can change: \
                 name what it leads to",
                path.display(),
                place.path().display(),
                link.display()
            )),
            Ok(resolved) => Ok(Some(resolved)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(format!("{key}: {}: {error}", path.display())),
        }
    }

    fn writable_roots(&mut self, config: &Config) -> Result<(), String> {
        if config.sandbox.mode != SandboxMode::WorkspaceWrite {
            return Ok(());
        }
        for path in &config.sandbox.writable_roots {
            match self.safely("writable_roots", path)? {
                // It is written with the workspace.
                Some(root) if root.is_owned => {}
                Some(root) => {
                    self.policy.write.push(root.place);
                    self.held.push(root.handle);
                }
                None => left_out("writable_roots", path),
            }
        }
        // What one of them holds is resolved by those that come later as what commands can write.
        self.owned.extend(self.policy.write.iter().filter_map(Place::identity));
        Ok(())
    }

    /// Resolves the folder of the records, which commands read, and that of the caches of tools: a
    /// command cannot write those in the user's home, and with an empty cache each `go build` would
    /// compile the standard library.
    fn records(&mut self, config: &Config, making: Making) -> Result<(), String> {
        let key = "the folder of the records";
        let folder = &config.state_dir;
        // Before it is made: no link on the way to it may lead out.
        for above in folder.ancestors() {
            if let Some(found) = self.safely(key, above)? {
                if found.link.is_some() {
                    return Err(format!("{key}: {} leads through a link", folder.display()));
                }
                break;
            }
        }
        if making == Making::Folders {
            // If it cannot be made, the journal that should be in it says so.
            let _unmade = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
        let Some(records) = self.safely(key, folder)? else { return Ok(()) };
        // The records come with the project if they lie in it, links and all.
        self.owned.extend(records.place.identity());
        self.cache(config, &records, making)?;
        if !records.is_owned {
            self.policy.read.push(records.place);
        }
        self.held.push(records.handle);
        Ok(())
    }

    fn cache(&mut self, config: &Config, records: &Resolved, making: Making) -> Result<(), String> {
        let folder = records.place.path().join(CACHE);
        let is_used = CACHING.iter().any(|file| config.root.join(file).exists());
        if config.sandbox.mode != SandboxMode::WorkspaceWrite {
            return Ok(());
        }
        if is_used && making == Making::Folders {
            let mode = rustix::fs::Mode::RWXU;
            match rustix::fs::mkdirat(&records.handle, CACHE, mode) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(format!("{}: {error}", folder.display())),
            }
        }
        let Some(cache) = self.safely("the folder of caches", &folder)? else { return Ok(()) };
        if cache.link.is_some() || !cache.place.path().is_dir() {
            return Err(format!("the folder of caches: {} is no folder", folder.display()));
        }
        self.policy.write.push(cache.place.clone());
        self.policy.cache = Some(cache.place);
        self.held.push(cache.handle);
        Ok(())
    }

    fn readable_roots(&mut self, config: &Config) -> Result<(), String> {
        let inputs = config.read_only_roots.iter().map(|path| ("an input", path));
        let named = config.sandbox.readable_roots.iter().map(|path| ("readable_roots", path));
        for (key, path) in inputs.chain(named) {
            match self.safely(key, path)? {
                // It is read with the workspace.
                Some(root) if root.is_owned => {}
                Some(root) => self.policy.read.push(root.place.by_name()),
                None => left_out(key, path),
            }
        }
        Ok(())
    }

    /// Adds the toolchains that the environment of the person names. What they have in the workspace is
    /// read with it.
    fn toolchains(&mut self, config: &Config) {
        let variables = environment::passed(&config.sandbox.env);
        let real = |path: &Path| self.of_person(path).map(|place| place.path().to_owned());
        let found = toolchains::readable(&variables, real);
        let found: Vec<_> = found.iter().filter_map(|path| self.of_person(path)).collect();
        self.policy.read.extend(found);
    }

    /// Resolves a path that only the environment of the person names. `None` if it lies in the workspace,
    /// leads out of it through a link, or holds a home.
    fn of_person(&self, path: &Path) -> Option<Place> {
        let Resolved { place, is_owned, link, .. } = resolve(path, &self.owned).ok()?;
        if let Some(link) = link.filter(|_| !is_owned) {
            let (place, link) = (place.path().display(), link.display());
            tracing::warn!(
                "commands do not read {place}: a command could change the link {link} to it"
            );
            return None;
        }
        let is_wide = self.policy.homes.iter().any(|home| home.path().starts_with(place.path()));
        (!is_owned && !is_wide).then(|| place.by_name())
    }

    /// Chooses the folder of temporary folders: none in which a command of another agent writes. One in which
    /// another user could put something else in their place is an error.
    fn temporary(&mut self) -> Result<(), String> {
        let named = std::env::temp_dir();
        let usual = ["/tmp", "/var/tmp"].map(PathBuf::from);
        for path in std::iter::once(named).chain(usual).filter(|path| path.is_absolute()) {
            let Ok(found) = resolve(&path, &self.owned) else { continue };
            if !found.is_owned && found.link.is_none() && found.place.path().is_dir() {
                others::check_temporary(found.place.path(), rustix::process::geteuid().as_raw())?;
                self.policy.temporary_root = Some(found.place.by_name());
                return Ok(());
            }
        }
        Err("there is no folder for temporary files outside of what commands write".to_owned())
    }

    /// Makes the store of what a person trusts where commands could make one of their own, so that there is
    /// something to protect.
    fn store(&self, config: &Config, making: Making) -> Result<(), String> {
        let Some(folder) = trust::folder() else { return Ok(()) };
        if config.sandbox.mode != SandboxMode::WorkspaceWrite {
            return Ok(());
        }
        let told = |reason: &str| {
            format!(
                "{}, where it is kept what you trust, {reason}; set XDG_STATE_HOME to a folder that \
                 commands cannot write",
                folder.display()
            )
        };
        // What cannot be looked into cannot be written either.
        let found = folder.ancestors().find_map(|above| match resolve(above, &self.owned) {
            Ok(found) => Some(Some((above, found))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some(None),
        });
        let Some((above, found)) = found.flatten() else { return Ok(()) };
        if let Some(link) = found.link {
            let link = link.display();
            return Err(told(&format!(
                "is reached through {link}, a link that commands can change"
            )));
        }
        if found.is_owned && above != folder && making == Making::Folders {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|error| told(&format!("cannot be made: {error}")))?;
        }
        Ok(())
    }

    /// Holds the objects, and drops what is given twice.
    fn hold(&mut self) -> Result<(), String> {
        let read = &mut self.policy.read;
        read.sort_by(|a, b| a.path().cmp(b.path()));
        let mut kept: Vec<Place> = Vec::new();
        for place in std::mem::take(read) {
            if !kept.iter().any(|around| place.path().starts_with(around.path())) {
                kept.push(place);
            }
        }
        *read = kept;
        let needed = self.held.len() as u64 + OTHER_FILES;
        let limits = getrlimit(Resource::Nofile);
        if limits.current.is_some_and(|now| now < needed) {
            if limits.maximum.is_some_and(|most| most < needed) {
                return Err(format!(
                    "its {} paths need {needed} open files, over the limit of this machine (`ulimit \
                     -Hn`)",
                    self.held.len()
                ));
            }
            let raised = Rlimit { current: Some(needed), ..limits };
            setrlimit(Resource::Nofile, raised)
                .map_err(|error| format!("the limit of open files cannot be raised: {error}"))?;
        }
        self.policy.held = Held::new(std::mem::take(&mut self.held));
        Ok(())
    }
}

fn left_out(key: &str, path: &Path) {
    tracing::warn!("{key}: {} does not exist: this run goes without it", path.display());
}

/// Returns the homes of the person: the one that the environment names and the one that the system has.
fn homes() -> Vec<Place> {
    let named = std::env::var_os("HOME").map(PathBuf::from);
    let users = disk::read_text_of(Path::new("/etc/passwd"), MOST_OF_USERS).unwrap_or_default();
    let number = rustix::process::getuid().as_raw();
    let mut found: Vec<Place> = Vec::new();
    for home in named.into_iter().chain(home_of(&users, number)) {
        let Ok(resolved) = resolve(&home, &[]) else { continue };
        // A service user may have `/`, which is nobody's.
        if home.is_absolute() && resolved.place.path() != Path::new("/") {
            found.push(resolved.place.by_name());
        }
    }
    found.sort_by(|a, b| a.path().cmp(b.path()));
    found.dedup();
    found
}

/// The most bytes that are read of the table of users.
const MOST_OF_USERS: u64 = 16 << 20;

/// Returns the home of a user from the table of users.
fn home_of(users: &str, number: u32) -> Option<PathBuf> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_user = fields.nth(2)? == number.to_string();
        let home = fields.nth(2)?;
        is_user.then(|| PathBuf::from(OsStr::from_bytes(home.as_bytes())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_users_has_homes() {
        let users = "root:x:0:0:root:/root:/bin/bash\nodd\nci:x:107:111::/var/lib/ci:/bin/sh\n";
        assert_eq!(home_of(users, 0), Some("/root".into()));
        assert_eq!(home_of(users, 107), Some("/var/lib/ci".into()));
        assert_eq!(home_of(users, 10), None);
    }
}
