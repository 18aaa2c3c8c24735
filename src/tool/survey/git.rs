//! Finds what git runs in a workspace: the parts of its folders, and the programs and files that their
//! settings name. Settings are read as text, at most 256 KiB of each; git is never run.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::Survey;
use crate::spec::run_by_others::RunBy;

/// The program that runs what is found here.
pub(super) const BY: RunBy = RunBy { program: "git", protected: true };

/// The parts of a folder of git that decide what git runs.
const PARTS: [&str; 9] = [
    "config",
    "config.worktree",
    "hooks",
    "info/attributes",
    "commondir",
    "gitdir",
    "worktrees",
    // What an interrupted rebase goes on with: lines of it may be commands.
    "rebase-merge",
    "rebase-apply",
];

/// The most bytes of a file of settings that are read.
const READ: u64 = 256 << 10;

/// The most files of settings that are read.
const SETTINGS: usize = 20_000;

/// How far settings that include others, and folders that name others, are followed.
const STEPS: usize = 16;

/// The deepest folder of a submodule.
const DEPTH: usize = 16;

/// Notes the parts of a folder of git whose work tree is `tree`, and of its submodules.
pub(super) fn folder(survey: &mut Survey, root: &Path, git: &Path, tree: &Path) {
    one(survey, root, git, tree, STEPS);
    let mut open = vec![(git.join("modules"), 0)];
    while let Some((folder, depth)) = open.pop() {
        let entries = survey.entries(root, &folder, false);
        let is = |name: &str| entries.iter().any(|(entry, _)| entry == name);
        if is("config") || is("HEAD") || is("hooks") {
            one(survey, root, &folder, tree, STEPS);
        }
        for (name, kind) in entries {
            let bulk = matches!(name.to_str(), Some("objects" | "refs" | "logs" | "hooks"));
            // A submodule can have one of these names too; then it has a file HEAD.
            let inner = folder.join(&name);
            if kind.is_dir() && (!bulk || root.join(&inner).join("HEAD").exists()) {
                match depth < DEPTH {
                    true => open.push((inner, depth + 1)),
                    false => survey.leave_out(&inner, false),
                }
            }
        }
    }
}

/// Notes the parts that the workspace itself has, or would have as a repository without a work tree.
pub(super) fn bare_root(survey: &mut Survey, root: &Path, marks: usize) {
    // `config` and `hooks` are common names: they are git's only beside all that makes a repository.
    if marks == 3 {
        one(survey, root, Path::new(""), Path::new(""), STEPS);
    }
}

/// Notes the repository that a file `.git` names.
pub(super) fn file(survey: &mut Survey, root: &Path, path: &Path) {
    let Some(text) = read(&root.join(path)) else { return };
    let Some(named) = text.trim().strip_prefix("gitdir:").map(str::trim) else { return };
    let tree = super::parent(path);
    if let Some(git) = inside(root, &tree, named) {
        one(survey, root, &git, &tree, STEPS);
    }
}

/// Notes the parts of one folder, and what its settings name.
fn one(survey: &mut Survey, root: &Path, git: &Path, tree: &Path, steps: usize) {
    for part in PARTS {
        let path = git.join(part);
        if root.join(&path).symlink_metadata().is_ok() {
            survey.note(path, BY);
        }
    }
    for name in ["config", "config.worktree"] {
        settings(survey, root, &git.join(name), tree, STEPS);
    }
    let common = read(&root.join(git.join("commondir")));
    let common = common.and_then(|text| inside(root, git, text.trim()));
    if let Some(common) = common.filter(|common| common != git && steps > 0) {
        one(survey, root, &common, tree, steps - 1);
    }
}

/// Notes the files in the workspace that a file of settings names: settings that it includes, folders of
/// hooks, and programs.
fn settings(survey: &mut Survey, root: &Path, file: &Path, tree: &Path, steps: usize) {
    if survey.settings.len() >= SETTINGS {
        survey.complete = false;
        return;
    }
    // Files that include each other would be read again and again.
    if !survey.settings.insert((file.to_owned(), tree.to_owned())) {
        return;
    }
    let Some(text) = read(&root.join(file)) else { return };
    let mut section = String::new();
    // A backslash at the end of a line continues the value.
    for line in text.replace("\\\n", "").lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((head, rest)) = rest.split_once(']') else { continue };
            section = head.split(['"', ' ', '.']).next().unwrap_or_default().to_ascii_lowercase();
            line = rest.trim();
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().to_ascii_lowercase();
        match (section.as_str(), key.as_str()) {
            ("include" | "includeif", "path") => {
                let Some(path) = inside(root, &super::parent(file), &plain(value)) else {
                    continue;
                };
                survey.note(path.clone(), BY);
                if steps > 0 {
                    settings(survey, root, &path, tree, steps - 1);
                }
            }
            ("core", "hookspath" | "attributesfile") => {
                let path = inside(root, tree, &plain(value));
                path.into_iter().for_each(|path| survey.note(path, BY));
            }
            (
                "core" | "filter" | "diff" | "merge" | "gpg" | "credential" | "alias" | "mergetool"
                | "difftool" | "sequence" | "remote" | "submodule" | "trailer" | "man" | "browser"
                | "interactive" | "pager" | "uploadpack" | "tar",
                _,
            ) => {
                programs(survey, root, tree, value);
            }
            _ => {}
        }
    }
}

/// Returns a value as git reads it: without quotes wherever they stand, without a comment, and with a home
/// in place of `~/`.
fn plain(value: &str) -> String {
    let (mut plain, mut is_quoted, mut chars) = (String::new(), false, value.trim().chars());
    while let Some(char) = chars.next() {
        match char {
            '"' => is_quoted = !is_quoted,
            '#' | ';' if !is_quoted => break,
            '\\' => plain.extend(chars.next()),
            char => plain.push(char),
        }
    }
    let plain = plain.trim();
    match (plain.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => plain.to_owned(),
    }
}

/// Notes the words of a command that are files in the workspace.
fn programs(survey: &mut Survey, root: &Path, tree: &Path, value: &str) {
    for word in value.split([' ', '\t', '"', '\'', ';', '|', '&', '!', '(', ')', '`', '\\']) {
        let path = inside(root, tree, word).filter(|_| !word.is_empty());
        if let Some(path) = path.filter(|path| root.join(path).is_file()) {
            survey.note(path, BY);
        }
    }
}

/// Returns a path that a setting names, relative to the root, if it lies below it.
fn inside(root: &Path, base: &Path, named: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in root.join(base).join(named).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    let inner = path.strip_prefix(root).ok()?;
    (!inner.as_os_str().is_empty()).then(|| inner.to_owned())
}

/// Reads the beginning of a regular file that is no link. A pipe is not waited for.
fn read(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(READ).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
