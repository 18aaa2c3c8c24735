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
pub(super) const STEPS: usize = 16;

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
pub(super) fn one(survey: &mut Survey, root: &Path, git: &Path, tree: &Path, steps: usize) {
    for part in PARTS {
        let path = git.join(part);
        if root.join(&path).symlink_metadata().is_ok() {
            survey.note(path, BY);
        }
    }
    for name in ["config", "config.worktree"] {
        settings(survey, root, &git.join(name), tree, STEPS);
    }
    // A path in a person's own settings counts for each repository.
    for file in of_person() {
        settings(survey, root, &file, tree, STEPS);
    }
    let common = read(&root.join(git.join("commondir")));
    let common = common.and_then(|text| inside(root, git, text.trim()));
    if let Some(common) = common.filter(|common| common != git && steps > 0) {
        one(survey, root, &common, tree, steps - 1);
    }
}

/// Returns the files of settings that hold for all repositories of this machine and person.
fn of_person() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let named = named.filter(|folder| folder.is_absolute());
    let folder = named.or_else(|| home.as_ref().map(|home| home.join(".config")));
    let of_home = home.map(|home| home.join(".gitconfig"));
    let of_folder = folder.map(|folder| folder.join("git/config"));
    [Some("/etc/gitconfig".into()), of_folder, of_home].into_iter().flatten().collect()
}

/// Notes the files in the workspace that a file of settings names: settings that it includes, folders of
/// hooks, and programs.
fn settings(survey: &mut Survey, root: &Path, file: &Path, tree: &Path, steps: usize) {
    let known = (file.to_owned(), tree.to_owned());
    // Files that include each other would be read again and again.
    if survey.settings.contains(&known) {
        return;
    }
    if survey.settings.len() >= SETTINGS {
        survey.leave_out(tree, false);
        return;
    }
    let Some(text) = read(&root.join(file)) else { return };
    survey.settings.insert(known);
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
                | "interactive" | "pager" | "uploadpack" | "tar" | "hook",
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

/// Notes the words of a command that are files in the workspace, from its top or from a folder into which
/// the command goes.
fn programs(survey: &mut Survey, root: &Path, tree: &Path, value: &str) {
    let words = value.split([' ', '\t', '"', '\'', ';', '|', '&', '!', '(', ')', '`', '\\']);
    let (mut bases, mut goes) = (vec![tree.to_owned()], false);
    for word in words.filter(|word| !word.is_empty()) {
        let base = bases.last().map_or(tree, PathBuf::as_path);
        if let Some(folder) = inside(root, base, word).filter(|_| goes && bases.len() < STEPS) {
            bases.push(folder);
        }
        goes = word == "cd";
        for base in &bases {
            let path = inside(root, base, word).filter(|path| root.join(path).is_file());
            path.into_iter().for_each(|path| survey.note(path, BY));
        }
    }
}

/// Returns a path that a setting names, relative to the root, if it lies below it or leads there.
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
    if !path.starts_with(root) {
        // A home may hold a link to the workspace. What the path names need not exist.
        let above = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
        let (above, real) = above?;
        path = real.join(path.strip_prefix(above).ok()?);
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
