//! Finds what git runs in a workspace: the parts of its folders, and the programs and files that their
//! settings name, wherever those lie. Settings are read as text; git is never run.
//!
//! A path is relative to the workspace, or absolute outside of it: what lies there is read, never noted.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use super::{Folder, Survey};
use crate::spec::run_by_others::{GIT_FOLDER, RunBy};

/// The program that runs what is found here.
pub(super) const BY: RunBy = RunBy { program: "git", protected: true };

/// The parts of a folder of git that decide what git runs.
const PARTS: [&str; 10] = [
    "config",
    "config.worktree",
    "hooks",
    "info/attributes",
    "commondir",
    "gitdir",
    "worktrees",
    // What an interrupted rebase or merge goes on with: lines of it may be commands.
    "sequencer",
    "rebase-merge",
    "rebase-apply",
];

/// The most bytes of settings that are read: those of a person are read for each repository.
pub(super) const READ: u64 = 256 << 20;

/// The most files that are looked for because words of a command name them: a second of work.
pub(super) const LOOKS: usize = 300_000;

/// Folders of devices and of the kernel: to open what lies there can have an effect.
const NOT_OPENED: [&str; 3] = ["/dev", "/proc", "/sys"];

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
        let (entries, _) =
            survey.entries(root, &Folder { path: folder.clone(), depth, heavy: None });
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
                    false => survey.leave_out(&inner),
                }
            }
        }
    }
}

/// Notes the repository that a file or a link `.git` names.
pub(super) fn file(survey: &mut Survey, root: &Path, path: &Path) {
    let tree = super::parent(path);
    let linked = root.join(path).read_link().ok();
    let named = linked.as_deref().and_then(Path::to_str).map(str::to_owned).or_else(|| {
        let text = read(survey, &root.join(path), &tree)?;
        Some(text.trim().strip_prefix("gitdir:")?.trim().to_owned())
    });
    if let Some(git) = named.and_then(|named| placed(root, &tree, &named)) {
        match git.is_absolute() {
            true => one(survey, root, &git, &tree, STEPS),
            false => folder(survey, root, &git, &tree),
        }
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
    let common = read(survey, &root.join(git.join("commondir")), tree);
    let common = common.and_then(|text| placed(root, git, text.trim()));
    if let Some(common) = common.filter(|common| common != git && steps > 0) {
        one(survey, root, &common, tree, steps - 1);
    }
}

/// Returns the files of settings that hold for all repositories of this machine and person.
fn of_person() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let home = absolute("HOME");
    let folder =
        absolute("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
    let of_home = home.map(|home| home.join(".gitconfig"));
    let of_folder = folder.map(|folder| folder.join("git/config"));
    let named = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].map(absolute);
    let usual = [Some("/etc/gitconfig".into()), of_folder, of_home];
    usual.into_iter().chain(named).flatten().collect()
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
        survey.leave_out(tree);
        return;
    }
    let Some(text) = read(survey, &root.join(file), tree) else { return };
    survey.settings.insert(known);
    let mut section = String::new();
    // A repository whose folder has another name can come with the project: what it names outside is not read.
    let is_shipped = file.is_relative() && !file.iter().any(|part| part == GIT_FOLDER);
    // A backslash at the end of a line continues the value.
    for line in text.replace("\\\r\n", "").replace("\\\n", "").lines() {
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((head, rest)) = rest.split_once(']') else { continue };
            section =
                head.split(['"', ' ', '\t', '.']).next().unwrap_or_default().to_ascii_lowercase();
            line = rest.trim();
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().to_ascii_lowercase();
        match (section.as_str(), key.as_str()) {
            ("include" | "includeif", "path") => {
                let Some(path) = placed(root, &super::parent(file), &plain(value)) else {
                    continue;
                };
                survey.note(path.clone(), BY);
                if steps > 0 && !(is_shipped && path.is_absolute()) {
                    settings(survey, root, &path, tree, steps - 1);
                }
            }
            ("core", "hookspath" | "attributesfile") | ("init", "templatedir") => {
                let path = placed(root, tree, &plain(value));
                path.into_iter().for_each(|path| survey.note(path, BY));
            }
            // Any other value may hold a command: new ones come with each version of git.
            _ => programs(survey, root, tree, value),
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
/// the command goes, and the modules that it has Python run.
fn programs(survey: &mut Survey, root: &Path, tree: &Path, value: &str) {
    // What is no part of a path ends a word: quotes, `;`, `=`, `>`.
    let words = value.split(|sign: char| !sign.is_alphanumeric() && !"/._-+@~%".contains(sign));
    let (mut bases, mut before) = (vec![tree.to_owned()], "");
    for word in words.filter(|word| !word.is_empty()) {
        let base = bases.last().map_or(tree, PathBuf::as_path);
        if before == "cd"
            && bases.len() < STEPS
            && let Some(folder) = placed(root, base, word)
        {
            bases.push(folder);
        }
        for base in &bases {
            let is_file = |path: &PathBuf| root.join(path).is_file();
            for named in readings(word) {
                if survey.looks_left == 0 {
                    return survey.leave_out(tree);
                }
                survey.looks_left -= 1;
                placed(root, base, named)
                    .filter(is_file)
                    .into_iter()
                    .for_each(|path| survey.note(path, BY));
            }
            if before == "-m" {
                let module = word.replace('.', "/");
                let both = [module.clone(), format!("{module}.py")];
                let both = both.iter().filter_map(|named| placed(root, base, named));
                both.filter(|path| root.join(path).exists()).for_each(|path| survey.note(path, BY));
            }
        }
        before = word;
    }
}

/// Returns what a word of a command may name: itself, and, if it begins with a variable or with what another
/// command prints, such as the top of the repository, each end of it.
fn readings(word: &str) -> impl Iterator<Item = &str> {
    let is_open = word.starts_with(['$', '/']);
    let ends = word.match_indices('/').map(|(at, _)| &word[at + 1..]);
    std::iter::once(word).chain(ends.filter(move |end| is_open && !end.is_empty()).take(STEPS))
}

/// Returns a path that a setting names: relative to the root if it lies below it or leads there, else
/// absolute. `None` for the root itself.
fn placed(root: &Path, base: &Path, named: &str) -> Option<PathBuf> {
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
        if let Some((above, real)) = above {
            // To join nothing would add a slash.
            let rest = path.strip_prefix(above).ok().filter(|rest| *rest != Path::new(""));
            path = rest.map_or(real.clone(), |rest| real.join(rest));
        }
    }
    match path.strip_prefix(root) {
        Ok(inner) => (!inner.as_os_str().is_empty()).then(|| inner.to_owned()),
        Err(_) => Some(path),
    }
}

/// Reads a regular file that is no link, for the work tree `tree`, which is left out if it is too much. A pipe
/// is not waited for.
fn read(survey: &mut Survey, path: &Path, tree: &Path) -> Option<String> {
    if NOT_OPENED.iter().any(|folder| path.starts_with(folder)) {
        return None;
    }
    // Only after it is known to be a file: opening a device can have an effect.
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::open(path, look, Mode::empty()).ok()?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found).ok()?.st_mode);
    if kind != FileType::RegularFile {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let read = file.take(survey.text_left + 1).read_to_end(&mut bytes).ok()? as u64;
    if read > survey.text_left {
        survey.leave_out(tree);
        return None;
    }
    survey.text_left -= read;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
