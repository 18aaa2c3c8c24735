//! The files that tools may touch: one root to work in, and roots that are only read.
//!
//! Opens every path relative to a directory handle that no `..`, symbolic link or race can leave.
//! Knows nothing of tools. Everything here blocks: call it off the runtime. Processes are not
//! confined by it.

mod landing;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions, OpenOptionsExt};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use self::landing::Landing;
use super::ToolError;
use super::basis::Basis;
use crate::spec::run_by_others;

/// Handle of a directory tree or of a single file.
#[derive(Debug)]
struct Root {
    dir: Dir,
    /// Path of the directory with all links resolved.
    path: PathBuf,
    /// Path of the root as it was named, made absolute.
    named: PathBuf,
    /// Name of the one file that may be reached, if the root is a file.
    only: Option<OsString>,
}

impl Root {
    fn open(path: &Path) -> io::Result<Self> {
        let named = std::path::absolute(path)?;
        let real = path.canonicalize()?;
        let (path, only) = match (real.is_dir(), real.parent(), real.file_name()) {
            (false, Some(parent), Some(name)) => (parent.to_owned(), Some(name.to_owned())),
            _ => (real, None),
        };
        let dir = Dir::open_ambient_dir(&path, ambient_authority())?;
        Ok(Self { dir, path, named, only })
    }

    /// Returns the part of an absolute path below this root; `..` may still be in it.
    fn relative(&self, absolute: &Path) -> Option<PathBuf> {
        if let Some(only) = &self.only {
            let same = absolute == self.named || absolute == self.path.join(only);
            return same.then(|| PathBuf::from(only));
        }
        let below = absolute.strip_prefix(&self.named);
        below.or_else(|_| absolute.strip_prefix(&self.path)).ok().map(Path::to_owned)
    }
}

/// The roots of a run: the workspace root and the roots that are only read.
#[derive(Debug)]
pub struct Workspace {
    root: Root,
    read_only: Vec<Root>,
    /// Paths relative to the root at or below which nothing is written, and which searches skip.
    protected: Vec<PathBuf>,
    /// Paths relative to the root at or below which nothing is written.
    kept: Vec<PathBuf>,
    /// Protected paths relative to the root that are written all the same; `None` if nothing is
    /// protected for what other programs run.
    lifted: Option<Vec<PathBuf>>,
    /// Lock that is held while a file is read, changed and replaced, so that no edit of another
    /// agent is lost.
    writing: Mutex<()>,
}

/// A path within a root, as far as its text tells. It need not exist.
#[derive(Debug)]
pub struct WorkspacePath<'a> {
    root: &'a Root,
    relative: PathBuf,
    text: String,
    in_workspace: bool,
}

impl Workspace {
    /// Opens the root that tools work in.
    ///
    /// # Errors
    /// Returns an error if it is not a directory that can be opened.
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = Root::open(root)?;
        if root.only.is_some() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let (read_only, protected, kept, lifted) = Default::default();
        Ok(Self { root, read_only, protected, kept, lifted, writing: Mutex::new(()) })
    }

    /// Adds a directory or a file that may be read.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened.
    pub fn with_read_only_root(mut self, path: &Path) -> io::Result<Self> {
        self.read_only.push(Root::open(path)?);
        Ok(self)
    }

    /// Refuses writes to a path and everything below it, and hides it from searches. The path is
    /// relative to the root or absolute; outside the root nothing is written anyway.
    #[must_use]
    pub fn protect(mut self, path: &Path) -> Self {
        let inside =
            if path.is_absolute() { self.root.relative(path) } else { Some(path.to_owned()) };
        self.protected.extend(inside.map(|path| normalised(&path)));
        self
    }

    /// Refuses writes to these paths and everything below them, and to what other programs run or
    /// trust, at any depth. In `except` are the paths that stay writable; one folder of git there
    /// stands for all. All paths are absolute.
    #[must_use]
    pub fn keep(mut self, paths: &[PathBuf], except: &[PathBuf]) -> Self {
        let is_except = |path: &PathBuf| except.iter().any(|other| path.starts_with(other));
        let kept = paths.iter().filter(|path| !is_except(path));
        let inside = kept.filter_map(|path| self.root.relative(path));
        self.kept.extend(inside.map(|path| normalised(&path)).collect::<Vec<_>>());
        let lifted = except.iter().filter_map(|path| self.root.relative(path));
        self.lifted = Some(lifted.map(|path| normalised(&path)).collect());
        self
    }

    /// Returns why a path, relative to the root and without links, is not written; `None` if it is.
    fn objection(&self, target: &Path) -> Option<String> {
        let absolute = self.root.path.join(target);
        if self.protected_paths().iter().any(|path| absolute.starts_with(path)) {
            return Some("belongs to the records of the run and is not written".to_owned());
        }
        let real = |kept: &PathBuf| self.root.dir.canonicalize(kept).map(|real| normalised(&real));
        let is_kept = |kept: &PathBuf| {
            target.starts_with(kept) || real(kept).is_ok_and(|real| target.starts_with(real))
        };
        let exists = |path: &Path| self.root.dir.symlink_metadata(path).is_ok();
        let becomes = self.lifted.as_ref().and(run_by_others::within_repository(target, exists));
        if let Some(folder) = becomes.filter(|_| !self.lifts_git()) {
            return Some(format!(
                "is protected: git takes `{}` for a repository by its HEAD, objects and refs, and runs what the \
                 settings in it name; a command (`git init`) makes a repository",
                self.named(&self.root.path.join(folder)),
            ));
        }
        if self.lifted.is_some() && run_by_others::within_run(target, exists).is_some() {
            return Some("belongs to the records of a run and is not written".to_owned());
        }
        let program = self.run_by(target);
        if program.is_none() && !self.kept.iter().any(is_kept) {
            return None;
        }
        Some(format!(
            "is protected: {} run or trust it; a person can name it in `[sandbox] writable_roots`",
            program.map_or("other programs".to_owned(), |program| format!("programs ({program})")),
        ))
    }

    /// Returns the program that runs or trusts a path, unless a person has lifted its protection.
    fn run_by(&self, target: &Path) -> Option<&'static str> {
        let lifted = self.lifted.as_ref()?;
        let program = run_by_others::kept_from_file_tools(target)?;
        // A root that names nothing protected, such as `src`, lifts nothing below it.
        let is_lifted = |root: &PathBuf| {
            let all_of_git = is_all_of_git(root)
                && target.components().any(|part| part.as_os_str() == run_by_others::GIT_FOLDER);
            all_of_git || (run_by_others::lifts(root) && target.starts_with(root))
        };
        (!lifted.iter().any(is_lifted)).then_some(program)
    }

    /// Returns true if a person has lifted the protection of all repositories.
    fn lifts_git(&self) -> bool {
        self.lifted.iter().flatten().any(|root| is_all_of_git(root))
    }

    /// Returns the root with all links resolved, the working directory of processes.
    #[must_use]
    pub fn root_path(&self) -> &Path {
        &self.root.path
    }

    /// Returns the protected paths, absolute; those that exist also with all links resolved.
    #[must_use]
    pub fn protected_paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for protected in &self.protected {
            paths.push(self.root.path.join(protected));
            if let Ok(real) = self.root.dir.canonicalize(protected) {
                paths.push(self.root.path.join(normalised(&real)));
            }
        }
        paths
    }

    /// Returns the texts by which a permission rule may name a path: the path without detours,
    /// relative to the workspace if it lies in it; and, if links lead elsewhere, also the place
    /// they lead to.
    #[must_use]
    pub fn rule_arguments(&self, text: &str) -> Vec<String> {
        let shown = |path: &Path| self.named(path);
        let named = match self.place(text) {
            Ok(place) if place.in_workspace => shown(&normalised(&place.relative)),
            _ => shown(&normalised(Path::new(text))),
        };
        let place = self.place(text).ok();
        let real = place.as_ref().and_then(|place| place.real_path().ok());
        // A file that is not there yet lands where its folder really lies.
        let lands = || {
            let landing = self.landing(place.as_ref()?).ok()?;
            Some(self.root.path.join(landing.real(self).ok()?))
        };
        let real = real.or_else(lands).map(|path| shown(&path)).filter(|real| *real != named);
        std::iter::once(named).chain(real).collect()
    }

    /// Returns an absolute path as rules name it: relative to the workspace if it lies in it.
    #[must_use]
    pub fn named(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root.path).unwrap_or(path).display().to_string();
        if path.is_empty() { ".".to_owned() } else { path }
    }

    /// Refuses a place to which a path leads now if another was decided on.
    ///
    /// # Errors
    /// Returns an error that names both.
    pub fn agree(&self, text: &str, path: &Path, basis: &Basis) -> Result<(), ToolError> {
        basis.agree(text, &self.named(path))
    }

    /// Finds the root that a path belongs to: relative paths belong to the workspace, absolute
    /// ones to the innermost root that they name.
    ///
    /// # Errors
    /// Returns [`ToolError::Outside`] if an absolute path is in no root. The use of the place finds
    /// out where `..` and links lead.
    pub fn place(&self, text: &str) -> Result<WorkspacePath<'_>, ToolError> {
        let path = Path::new(text);
        let found = if path.is_absolute() {
            let roots = std::iter::once(&self.root).chain(&self.read_only);
            let found = roots.filter_map(|root| Some((root, root.relative(path)?)));
            found.min_by_key(|(_, relative)| relative.components().count())
        } else {
            Some((&self.root, path.to_owned()))
        };
        let (root, relative) = found.ok_or_else(|| ToolError::Outside(text.to_owned()))?;
        let relative = if relative.as_os_str().is_empty() { ".".into() } else { relative };
        let in_workspace = std::ptr::eq(root, &self.root);
        Ok(WorkspacePath { root, relative, text: text.to_owned(), in_workspace })
    }

    /// Writes a whole file, and makes the directories that it needs. Readers see the old or the new
    /// content, never a part.
    ///
    /// # Errors
    /// Returns an error if the path is outside the workspace, protected, not a regular file or
    /// read-only, or if the disk refuses.
    pub fn write(&self, text: &str, content: &[u8]) -> Result<(), ToolError> {
        self.write_on(&Basis::default(), text, content)
    }

    /// Does the same if the place and its content are still those that were decided on.
    ///
    /// # Errors
    /// Returns the errors of [`Workspace::write`], and one if anything has changed.
    pub fn write_on(&self, basis: &Basis, text: &str, content: &[u8]) -> Result<(), ToolError> {
        let _alone = self.writing.lock();
        let place = self.place(text)?;
        let mut landing = self.landing(&place)?;
        // Before any folder is made.
        landing.agree(&place, self, basis)?;
        landing.make(&place, self)?;
        landing.replace(&place, self, basis, content)
    }

    /// Returns the blake3 hash of a file's content in hexadecimal; `None` if there is no such file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn fingerprint(&self, text: &str) -> Result<Option<String>, ToolError> {
        let place = self.place(text)?;
        let (mut file, _) = match place.open() {
            Ok(opened) => opened,
            Err(ToolError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut hash = blake3::Hasher::new();
        io::copy(&mut file, &mut hash).map_err(|error| place.refused("read", error))?;
        Ok(Some(hash.finalize().to_hex().to_string()))
    }

    /// Replaces a file's content by the one that `change` makes of it, if the place and the content are still
    /// those that were decided on. No other call of this workspace writes in between.
    ///
    /// # Errors
    /// Returns the errors of [`Workspace::write_on`], the error of `change`, and an error if the file
    /// cannot be read or has more than `most` bytes.
    pub fn edit<T>(
        &self,
        basis: &Basis,
        text: &str,
        most: u64,
        change: impl FnOnce(Vec<u8>) -> Result<(Vec<u8>, T), ToolError>,
    ) -> Result<T, ToolError> {
        let _alone = self.writing.lock();
        let place = self.place(text)?;
        let landing = self.landing(&place)?;
        landing.agree(&place, self, basis)?;
        let file = landing.open(&place)?;
        let size = file.metadata().map_err(|error| place.refused("read", error))?.len();
        let (content, answer) = change(whole(&place, file, size, most)?)?;
        landing.replace(&place, self, basis, &content)?;
        Ok(answer)
    }

    /// Finds where a write to a place lands.
    fn landing(&self, place: &WorkspacePath<'_>) -> Result<Landing, ToolError> {
        if !place.in_workspace {
            return Err(ToolError::Failed(format!("`{}` is read-only", place.text)));
        }
        Landing::find(place, self)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or has more than `most` bytes.
    pub fn read(&self, text: &str, most: u64) -> Result<Vec<u8>, ToolError> {
        let place = self.place(text)?;
        let (file, size) = place.open()?;
        whole(&place, file, size, most)
    }
}

/// Returns true for a root that stands for all folders of git.
fn is_all_of_git(root: &Path) -> bool {
    root.ends_with(run_by_others::GIT_FOLDER)
}

/// Reads a whole file of this size.
fn whole(
    place: &WorkspacePath<'_>,
    file: File,
    size: u64,
    most: u64,
) -> Result<Vec<u8>, ToolError> {
    if size > most {
        return Err(ToolError::Failed(format!("`{}` has {size} bytes, over {most}", place.text)));
    }
    let mut content = Vec::new();
    let read = io::copy(&mut io::Read::take(file, most), &mut content);
    read.map_err(|error| place.refused("read", error))?;
    Ok(content)
}

impl WorkspacePath<'_> {
    /// Returns the metadata of the file or directory, with links followed.
    ///
    /// # Errors
    /// Returns an error if nothing is there or the path leads out of its root.
    pub fn metadata(&self) -> Result<Metadata, ToolError> {
        self.root.dir.metadata(&self.relative).map_err(|error| self.refused("read", error))
    }

    /// Opens a regular file and returns it with its size in bytes.
    ///
    /// # Errors
    /// Returns an error if it is not a regular file, cannot be read, or the path leads out of its
    /// root.
    pub fn open(&self) -> Result<(File, u64), ToolError> {
        // Opening a pipe would wait for its other end, and opening a terminal would take it.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits().cast_signed());
        match self.root.dir.open_with(&self.relative, &options) {
            Ok(file) => {
                let metadata = file.metadata().map_err(|error| self.refused("read", error))?;
                self.regular(&metadata)?;
                Ok((file.into_std(), metadata.len()))
            }
            Err(error) => {
                // A socket and the like cannot be opened at all: the kind of the file says more
                // than the error.
                self.regular(&self.metadata()?)?;
                Err(self.refused("read", error))
            }
        }
    }

    /// Opens a file by its absolute path in the same root, as [`WorkspacePath::real_path`] or a
    /// walk of the root returned it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or is not in this root.
    pub fn open_beside(&self, path: &Path) -> io::Result<File> {
        let relative = path.strip_prefix(&self.root.path).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        // Another kind of file may have been put there.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = self.root.dir.open_with(relative, &options)?.into_std();
        // A link that was put on the way since leads to a file that nobody has judged.
        if landing::below(&self.root.dir, &file)? != relative {
            return Err(io::Error::other("it was moved, or a link leads elsewhere"));
        }
        Ok(file)
    }

    /// Returns the absolute path at which the kernel knows an open file of this root.
    ///
    /// # Errors
    /// Returns an error if it lies outside of the root, or nobody knows where.
    pub fn lies(&self, file: &File) -> Result<PathBuf, ToolError> {
        let below = landing::below(&self.root.dir, file);
        Ok(self.root.path.join(below.map_err(|error| self.refused("read", error))?))
    }

    /// Returns the absolute path with all links resolved.
    ///
    /// # Errors
    /// Returns an error if nothing is there or the path leads out of its root.
    pub fn real_path(&self) -> Result<PathBuf, ToolError> {
        let real = self.root.dir.canonicalize(&self.relative);
        Ok(self.root.path.join(normalised(&real.map_err(|error| self.refused("read", error))?)))
    }

    /// Returns the path as the model wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the root of the path, with all links resolved.
    #[must_use]
    pub fn root_path(&self) -> &Path {
        &self.root.path
    }

    /// Returns the text by which a model reads an absolute path in the same root: relative to the
    /// workspace, or absolute in a read-only root.
    #[must_use]
    pub fn shown(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root.path).ok().filter(|_| self.in_workspace);
        relative.unwrap_or(path).display().to_string()
    }

    /// Converts an error of the system; a path that leads out of its root has an error of its own.
    #[must_use]
    pub fn refused(&self, what: &str, source: io::Error) -> ToolError {
        // cap-std reports an escape as a denial that did not come from the system.
        if source.kind() == io::ErrorKind::PermissionDenied && source.raw_os_error().is_none() {
            return ToolError::Outside(self.text.clone());
        }
        ToolError::Io { what: format!("{what} `{}`", self.text), source }
    }

    fn regular(&self, metadata: &Metadata) -> Result<(), ToolError> {
        let text = &self.text;
        if metadata.is_dir() {
            return Err(ToolError::Failed(format!("`{text}` is a directory; use glob to list it")));
        }
        if !metadata.is_file() {
            return Err(ToolError::Failed(format!("`{text}` is not a regular file")));
        }
        Ok(())
    }
}

/// Returns a path without `.` and with every `a/..` taken out, as far as the text alone tells.
#[must_use]
pub fn normalised(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match (part, clean.components().next_back()) {
            (Component::CurDir, _) | (Component::ParentDir, Some(Component::RootDir)) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                clean.pop();
            }
            (part, _) => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::tool::basis::Before;

    /// `ws` with `a/file`, beside `other` with `secret`.
    fn set_up() -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("ws/a")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        std::fs::write(dir.path().join("ws/a/file"), "inside").unwrap();
        std::fs::write(dir.path().join("other/secret"), "outside").unwrap();
        let workspace = Workspace::open(&dir.path().join("ws")).unwrap();
        (dir, workspace)
    }

    fn read(workspace: &Workspace, path: &str) -> Result<String, ToolError> {
        let (file, _) = workspace.place(path)?.open()?;
        Ok(io::read_to_string(file).unwrap())
    }

    #[test]
    fn paths_inside_are_found() {
        let (dir, workspace) = set_up();
        let absolute = dir.path().join("ws/a/file").display().to_string();
        for path in ["a/file", "./a/../a/file", &absolute] {
            assert_eq!(read(&workspace, path).unwrap(), "inside", "{path}");
        }
    }

    #[test]
    fn nothing_leads_out() {
        let (dir, workspace) = set_up();
        let ws = dir.path().join("ws");
        symlink("/etc", ws.join("etc")).unwrap();
        symlink("/etc/passwd", ws.join("passwd")).unwrap();
        symlink("../other", ws.join("sideways")).unwrap();
        symlink("../../other/secret", ws.join("a/secret")).unwrap();
        symlink("../other/new", ws.join("dangling")).unwrap();
        let other = dir.path().join("other/secret").display().to_string();
        let dotted = format!("{}/../other/secret", ws.display());
        let paths = [
            "../other/secret",
            "a/../../other/secret",
            "/etc/passwd",
            "etc/passwd",
            "passwd",
            "sideways/secret",
            "a/secret",
            "dangling",
            "sideways/new/deep",
            &other,
            &dotted,
        ];
        for path in paths {
            let outcome = read(&workspace, path);
            assert!(matches!(outcome, Err(ToolError::Outside(_))), "read {path}: {outcome:?}");
            let outcome = workspace.write(path, b"broken");
            assert!(matches!(outcome, Err(ToolError::Outside(_))), "write {path}: {outcome:?}");
        }
        let left: Vec<_> = std::fs::read_dir(dir.path().join("other")).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(std::fs::read_to_string(other).unwrap(), "outside");
    }

    #[test]
    fn read_only_roots_are_read_only() {
        let (dir, workspace) = set_up();
        let other = dir.path().join("other");
        std::fs::write(other.join("single"), "one").unwrap();
        let secret = other.join("secret").display().to_string();
        let single = other.join("single").display().to_string();
        let workspace = workspace.with_read_only_root(&other.join("single")).unwrap();
        assert_eq!(read(&workspace, &single).unwrap(), "one");
        assert!(matches!(read(&workspace, &secret), Err(ToolError::Outside(_))));
        let workspace = workspace.with_read_only_root(&other).unwrap();
        assert_eq!(read(&workspace, &secret).unwrap(), "outside");
        for path in [&secret, &single] {
            assert!(matches!(workspace.write(path, b"x"), Err(ToolError::Failed(_))));
        }
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "outside");
    }

    #[test]
    fn protected_paths_are_read_but_not_written() {
        let (dir, workspace) = set_up();
        let records = dir.path().join("ws/.transcripts");
        let workspace = workspace.protect(&records);
        assert!(workspace.write(".transcripts/run/x", b"x").is_err());
        assert!(!records.exists());
        std::fs::create_dir_all(records.join("run/results")).unwrap();
        std::fs::write(records.join("run/results/hash"), "result").unwrap();
        symlink(".transcripts/run", dir.path().join("ws/alias")).unwrap();
        symlink("../.transcripts", dir.path().join("ws/a/alias")).unwrap();
        assert_eq!(read(&workspace, ".transcripts/run/results/hash").unwrap(), "result");
        for path in [
            ".transcripts/run/results/hash",
            "alias/results/hash",
            "alias/new",
            "a/alias/run/new",
            "a/../.transcripts/x/y",
            ".transcripts",
        ] {
            let outcome = workspace.write(path, b"x");
            assert!(matches!(outcome, Err(ToolError::Failed(_))), "{path}: {outcome:?}");
        }
        assert_eq!(read(&workspace, "alias/results/hash").unwrap(), "result");
    }

    #[test]
    fn what_other_programs_trust_is_not_written_unless_the_file_names_it() {
        let (dir, workspace) = set_up();
        let root = dir.path().join("ws");
        let kept = [".github", "agents.toml", "hooks/own.sh", "ci"].map(|path| root.join(path));
        let workspace = workspace.keep(&kept, &[root.join("ci")]);
        symlink(".github", root.join("alias")).unwrap();
        std::fs::create_dir_all(root.join(".github")).unwrap();
        for path in [
            ".github/workflows/x.yml",
            "alias/new.yml",
            "a/../agents.toml",
            "hooks/own.sh",
            ".git/hooks/pre-commit",
            "a/.git/config",
            ".git",
            "a/b/.vscode/tasks.json",
            "ci/.claude/settings.json",
            "a/.envrc",
        ] {
            let outcome = workspace.write(path, b"x");
            assert!(matches!(outcome, Err(ToolError::Failed(_))), "{path}: {outcome:?}");
        }
        for path in ["ci/run", "hooks/other.sh", ".gitignore", "agents.toml.md", "a/Makefile"] {
            workspace.write(path, b"x").unwrap();
        }
        let refused = workspace.write("a/.idea/x", b"x").unwrap_err().to_string();
        assert!(refused.contains("programs (an editor) run or trust it"), "{refused}");
        let workspace = Workspace::open(&root).unwrap();
        let workspace = workspace.keep(&[], &[root.join("a/.vscode"), root.join(".git")]);
        for path in ["a/.vscode/tasks.json", "b/.git/x"] {
            workspace.write(path, b"x").unwrap();
        }
        assert!(workspace.write("b/.vscode/tasks.json", b"x").is_err());
    }

    #[test]
    fn no_order_of_writes_makes_a_repository() {
        let parts = ["HEAD", "objects/x", "refs/x", "config", "commondir"];
        let (dir, workspace) = set_up();
        let workspace = workspace.keep(&[], &[]);
        symlink("linked", dir.path().join("ws/alias")).unwrap();
        std::fs::create_dir(dir.path().join("ws/linked")).unwrap();
        for first in 0..parts.len() {
            for step in 1..parts.len() {
                for folder in [format!("sub{first}{step}"), "alias".to_owned()] {
                    let order = (0..parts.len()).map(|at| parts[(first + at * step) % parts.len()]);
                    let write = |part| workspace.write(&format!("{folder}/{part}"), b"x");
                    let refused: Vec<_> = order.filter_map(|part| write(part).err()).collect();
                    assert!(!refused.is_empty(), "{folder}");
                    let there =
                        |mark: &str| dir.path().join("ws").join(&folder).join(mark).exists();
                    assert!(!run_by_others::is_repository(there), "{folder}");
                    let told = refused[0].to_string();
                    assert!(told.contains("git takes `"), "{told}");
                }
            }
        }
        // One that a command made: nothing that decides is written, by an edit neither.
        for part in ["HEAD", "objects/x", "refs/x", "config"] {
            let file = dir.path().join("ws/made").join(part);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "x").unwrap();
        }
        let change = |_| Ok((b"y".to_vec(), ()));
        assert!(workspace.edit(&Basis::default(), "made/config", 9, change).is_err());
        assert!(workspace.write("made/hooks/post-checkout", b"x").is_err());
        workspace.write("made/description", b"x").unwrap();
    }

    #[test]
    fn the_records_of_no_run_are_written_and_a_name_alone_makes_none() {
        let (dir, workspace) = set_up();
        let workspace = workspace.keep(&[], &[]);
        let run = "data/01a216e9-9168-7131-9669-04c9ebaadfe2";
        // Many things have such names: objects of a service, caches, examples.
        workspace.write(&format!("{run}/answers/1.json"), b"x").unwrap();
        let told = workspace.write(&format!("{run}/journal.jsonl"), b"x").unwrap_err().to_string();
        assert!(told.contains("belongs to the records of a run"), "{told}");
        std::fs::write(dir.path().join("ws").join(run).join("journal.jsonl"), "").unwrap();
        assert!(workspace.write(&format!("{run}/answers/2.json"), b"x").is_err());
        workspace.write("data/other", b"x").unwrap();
    }

    #[test]
    fn a_write_replaces_the_file_and_keeps_its_mode() {
        let (dir, workspace) = set_up();
        let file = dir.path().join("ws/a/file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o750)).unwrap();
        symlink("a/file", dir.path().join("ws/link")).unwrap();
        workspace.write("link", b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o750);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o7751)).unwrap();
        workspace.write("link", b"new").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o751);
        assert!(dir.path().join("ws/link").is_symlink());
        workspace.write("deep/er/file", b"x").unwrap();
        workspace.write("./top", b"y").unwrap();
        let names = std::fs::read_dir(dir.path().join("ws/a")).unwrap();
        assert_eq!(names.count(), 1);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o444)).unwrap();
        assert!(matches!(workspace.write("a/file", b"x"), Err(ToolError::Failed(_))));
        for path in ["a", ".", "", "a/file/below"] {
            assert!(workspace.write(path, b"x").is_err(), "{path}");
        }
    }

    #[test]
    fn a_decision_holds_for_the_place_and_the_content_that_it_was_about() {
        let (dir, workspace) = set_up();
        let root = dir.path().join("ws");
        std::fs::create_dir_all(root.join("docs")).unwrap();
        std::fs::create_dir_all(root.join("src")).unwrap();
        let place = workspace.rule_arguments("docs/deep/new").pop();
        let basis = Basis { place, before: Before::Absent, ..Basis::default() };
        // Folder and link change places after the decision.
        std::fs::rename(root.join("docs"), root.join("before")).unwrap();
        symlink("src", root.join("docs")).unwrap();
        let told = workspace.write_on(&basis, "docs/deep/new", b"x").unwrap_err().to_string();
        assert!(told.contains("leads to `src/deep/new` now, and to `docs/deep/new`"), "{told}");
        assert_eq!(std::fs::read_dir(root.join("src")).unwrap().count(), 0, "no folder is made");
        std::fs::write(root.join("src/file"), "x").unwrap();
        let place = workspace.rule_arguments("before/file").pop();
        let elsewhere = Basis { place, ..Basis::default() };
        let keep = |content: Vec<u8>| Ok((content, ()));
        assert!(workspace.edit(&elsewhere, "docs/file", 100, keep).is_err());
        // Back again, but somebody has made the file meanwhile.
        std::fs::remove_file(root.join("docs")).unwrap();
        std::fs::rename(root.join("before"), root.join("docs")).unwrap();
        workspace.write("docs/deep/new", b"of somebody").unwrap();
        let told = workspace.write_on(&basis, "docs/deep/new", b"x").unwrap_err().to_string();
        assert!(told.contains("was changed after it was decided"), "{told}");
        assert_eq!(read(&workspace, "docs/deep/new").unwrap(), "of somebody");
        let hash = blake3::hash(b"of somebody").to_hex().to_string();
        let basis = Basis { before: Before::Hash(hash), ..basis };
        let told = |content: &[u8]| workspace.write_on(&basis, "docs/deep/new", content).is_ok();
        assert_eq!([told(b"x"), told(b"y")], [true, false]);
        assert_eq!(std::fs::read_dir(root.join("docs/deep")).unwrap().count(), 1, "no rest");
    }

    #[test]
    fn what_a_walk_found_is_not_opened_through_a_link() {
        let (dir, workspace) = set_up();
        let root = dir.path().join("ws").canonicalize().unwrap();
        let place = workspace.place(".").unwrap();
        let mut text = String::new();
        let mut found = place.open_beside(&root.join("a/file")).unwrap();
        io::Read::read_to_string(&mut found, &mut text).unwrap();
        assert_eq!(text, "inside");
        // A file that is replaced while it is read lies where it lay.
        workspace.write("a/file", b"new").unwrap();
        assert_eq!(place.lies(&found).unwrap(), root.join("a/file"));
        std::fs::create_dir(root.join("b")).unwrap();
        std::fs::write(root.join("b/file"), "hidden").unwrap();
        std::fs::rename(root.join("a"), root.join("c")).unwrap();
        symlink("b", root.join("a")).unwrap();
        assert!(place.open_beside(&root.join("a/file")).is_err());
        std::fs::remove_file(root.join("c/file")).unwrap();
        symlink("../b/file", root.join("c/file")).unwrap();
        assert!(place.open_beside(&root.join("c/file")).is_err());
    }

    #[test]
    fn parallel_edits_are_all_kept() {
        let (_dir, workspace) = set_up();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let add = |mut content: Vec<u8>| {
                        content.push(b'+');
                        Ok((content, ()))
                    };
                    workspace.edit(&Basis::default(), "a/file", 100, add).unwrap();
                });
            }
        });
        assert_eq!(read(&workspace, "a/file").unwrap(), "inside++++++++");
    }

    #[test]
    fn rules_name_a_path_in_one_form_and_what_it_leads_to() {
        let (dir, workspace) = set_up();
        let inside = dir.path().join("ws/a/file").display().to_string();
        assert_eq!(workspace.rule_arguments("a/./file"), ["a/file"]);
        assert_eq!(workspace.rule_arguments("b/../a//file"), ["a/file"]);
        assert_eq!(workspace.rule_arguments(&inside), ["a/file"]);
        assert_eq!(workspace.rule_arguments("new/file"), ["new/file"]);
        assert_eq!(workspace.rule_arguments("../a"), ["../a"]);
        assert_eq!(workspace.rule_arguments(""), ["."]);
        symlink("a", dir.path().join("ws/alias")).unwrap();
        assert_eq!(workspace.rule_arguments("alias/file"), ["alias/file", "a/file"]);
    }
}
