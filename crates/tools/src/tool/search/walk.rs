//! Walks the files below a directory of the workspace in sorted order, without those that ignore files
//! name.

use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use tokio_util::sync::CancellationToken;

use super::Searched;
use super::ignored::{Ignored, Said};
use crate::permission::Unseen;
use crate::tool::ToolError;
use crate::tool::workspace::WorkspacePath;

/// Callback for each file, with its absolute path and its path below the start. It returns false to
/// end the walk.
pub(super) type Visit<'a> = &'a mut dyn FnMut(&Path, &Path) -> Result<bool, ToolError>;

/// A walk through the files below one directory.
#[derive(Debug)]
pub(super) struct Walk {
    root: PathBuf,
    start: PathBuf,
    hidden: bool,
    skipped: Vec<PathBuf>,
    unseen: Unseen,
    tool: &'static str,
    /// Path of the workspace root, to which the paths of rules are relative.
    workspace: PathBuf,
}

impl Walk {
    /// Prepares a walk from `place`, which must exist; `hidden` includes files whose names begin
    /// with a dot. Skips protected directories unless the walk begins inside one.
    pub(super) fn new(
        searched: &Searched,
        place: &WorkspacePath<'_>,
        hidden: bool,
        tool: &'static str,
    ) -> Result<Self, ToolError> {
        let start = place.real_path()?;
        let Searched { workspace, unseen, basis } = searched;
        workspace.agree(place.text(), &start, basis)?;
        let mut skipped = workspace.protected_paths();
        skipped.retain(|path| !start.starts_with(path));
        let root = place.root_path().to_owned();
        let (unseen, workspace) = (unseen.clone(), workspace.root_path().to_owned());
        Ok(Self { root, start, hidden, skipped, unseen, tool, workspace })
    }

    /// Visits the files in order, and returns how many were left out because a rule hides them. A start that is itself ignored or hidden is walked too, because
    /// the call names it on purpose.
    pub(super) fn files(
        &self,
        stop: &CancellationToken,
        visit: Visit<'_>,
    ) -> Result<u64, ToolError> {
        let mut kept = 0;
        let mut visit = |path: &Path, below: &Path| {
            if self.is_unseen(path) {
                kept += 1;
                return Ok(true);
            }
            visit(path, below)
        };
        self.visit_all(stop, &mut visit)?;
        Ok(kept)
    }

    /// Returns true if a rule hides this file.
    fn is_unseen(&self, path: &Path) -> bool {
        if self.unseen.is_empty() {
            return false;
        }
        let shown = path.strip_prefix(&self.workspace).unwrap_or(path);
        self.unseen.hides(self.tool, &shown.to_string_lossy())
    }

    fn visit_all(&self, stop: &CancellationToken, visit: Visit<'_>) -> Result<(), ToolError> {
        if self.start.is_file() {
            if stop.is_cancelled() {
                return Err(ToolError::Cancelled);
            }
            return visit(&self.start, Path::new("")).map(|_| ());
        }
        // The walk begins at the root, so that it reads the ignore files on the way to the start.
        if !self.files_from(&self.root, stop, visit)? {
            self.files_from(&self.start, stop, visit)?;
        }
        Ok(())
    }

    /// Walks from `from` and visits the files below the start. Returns true if the start was
    /// reached.
    fn files_from(
        &self,
        from: &Path,
        stop: &CancellationToken,
        visit: Visit<'_>,
    ) -> Result<bool, ToolError> {
        let mut reached = false;
        // A directory that may not be read is left out.
        for entry in self.builder(from).build().filter_map(Result::ok) {
            if stop.is_cancelled() {
                return Err(ToolError::Cancelled);
            }
            let Ok(below) = entry.path().strip_prefix(&self.start) else { continue };
            reached = true;
            // Links are neither followed nor listed.
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if is_file && !visit(entry.path(), below)? {
                break;
            }
        }
        Ok(reached)
    }

    fn builder(&self, from: &Path) -> WalkBuilder {
        let (start, skipped) = (self.start.clone(), self.skipped.clone());
        let (ignored, shows_hidden) = (Ignored::below(from), self.hidden);
        let wanted = move |entry: &DirEntry| {
            let path = entry.path();
            (path.starts_with(&start) || start.starts_with(path))
                && !skipped.iter().any(|skipped| path.starts_with(skipped))
                && (entry.depth() == 0
                    || entry.file_name() != ".git" && is_shown(&ignored, shows_hidden, entry))
        };
        let mut builder = WalkBuilder::new(from);
        builder
            // The walk would read whatever stands in the place of an ignore file. Ignore files above
            // the root are outside the workspace and have no effect.
            .standard_filters(false)
            .follow_links(false)
            .sort_by_file_name(std::cmp::Ord::cmp)
            .filter_entry(wanted);
        builder
    }
}

/// Returns true if neither an ignore file nor a dot at the beginning of its name hides an entry.
fn is_shown(ignored: &Ignored, shows_hidden: bool, entry: &DirEntry) -> bool {
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    match ignored.of(entry.path(), is_folder) {
        Said::Ignored => false,
        Said::Wanted => true,
        Said::Nothing => shows_hidden || !entry.file_name().as_encoded_bytes().starts_with(b"."),
    }
}
