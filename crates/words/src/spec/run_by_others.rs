//! The table of what other programs run or trust: the files through which what a model wrote is run
//! later, by somebody who only opens an editor, looks at the work or builds it.
//!
//! Pure. A path is relative to the workspace, and a row of the table holds at any depth below it.
//! Rows are of two classes. No tool changes a *protected* path. A *reported* one is a part of honest
//! work (a Makefile, a package.json), so it may be changed, and who changed it is told.

mod reported;
mod stores;

use std::ffi::OsStr;
use std::path::{Component, Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::reported::REPORTED;
use self::stores::begins;
pub use self::stores::{STORES, Store, store};
use crate::id::{AgentId, RunId};
use crate::output::Stored;

/// What is there in place of a protected path that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A folder.
    Folder,
    /// A file.
    File,
}

/// A protected path with a fixed name: it can be masked where it does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The path, relative to any folder of the workspace.
    pub path: &'static str,
    /// Its usual shape. An empty one does no harm to the programs that look for it.
    pub shape: Shape,
    /// The program that runs or trusts it.
    pub program: &'static str,
}

const fn folder(path: &'static str, program: &'static str) -> Named {
    Named { path, shape: Shape::Folder, program }
}

const fn file(path: &'static str, program: &'static str) -> Named {
    Named { path, shape: Shape::File, program }
}

const GIT: &str = "git";
const CI: &str = "the CI service";
const EDITOR: &str = "an editor";
const AGENT: &str = "a coding agent";
const SHELL: &str = "a shell";
const HOOKS: &str = "a hook of git";

/// The protected paths with a fixed name, beside those of git.
pub const PROTECTED: &[Named] = &[
    folder(".vscode", EDITOR),
    folder(".idea", EDITOR),
    folder(".zed", EDITOR),
    folder(".fleet", EDITOR),
    folder(".vs", EDITOR),
    folder(".nvim", EDITOR),
    file(".nvim.lua", EDITOR),
    file(".nvimrc", EDITOR),
    file(".vimrc", EDITOR),
    file(".exrc", EDITOR),
    file(".dir-locals.el", EDITOR),
    file(".dir-locals-2.el", EDITOR),
    folder(".devcontainer", "an editor that opens a container"),
    file(".devcontainer.json", "an editor that opens a container"),
    file(".gitpod.yml", "an editor that opens a container"),
    folder(".claude", AGENT),
    folder(".codex", AGENT),
    folder(".agents", AGENT),
    folder(".cursor", AGENT),
    folder(".gemini", AGENT),
    folder(".windsurf", AGENT),
    folder(".continue", AGENT),
    folder(".roo", AGENT),
    folder(".kiro", AGENT),
    folder(".amp", AGENT),
    folder(".opencode", AGENT),
    folder(".goose", AGENT),
    file(".aider.conf.yml", AGENT),
    file(".mcp.json", AGENT),
    file("opencode.json", AGENT),
    file(".ripgreprc", "ripgrep"),
    // `.hg/hgrc`: nothing else has this name.
    file("hgrc", "hg"),
    file("hgrc-not-shared", "hg"),
    folder(".fossil-settings", "fossil"),
    file(".p4config", "p4"),
    folder(".github", CI),
    folder(".gitlab", CI),
    file(".gitlab-ci.yml", CI),
    folder(".circleci", CI),
    folder(".buildkite", CI),
    folder(".forgejo", CI),
    folder(".gitea", CI),
    folder(".tekton", CI),
    folder(".teamcity", CI),
    folder(".azure-pipelines", CI),
    folder(".woodpecker", CI),
    file(".woodpecker.yml", CI),
    file(".woodpecker.yaml", CI),
    file(".travis.yml", CI),
    file(".drone.yml", CI),
    file(".drone.jsonnet", CI),
    file(".cirrus.yml", CI),
    file(".cirrus.star", CI),
    file(".appveyor.yml", CI),
    file("appveyor.yml", CI),
    file("azure-pipelines.yml", CI),
    file("azure-pipelines.yaml", CI),
    file("bitbucket-pipelines.yml", CI),
    file("Jenkinsfile", CI),
    file("cloudbuild.yaml", CI),
    file("buildspec.yml", CI),
    folder(".semaphore", CI),
    folder(".husky", HOOKS),
    folder(".lefthook", HOOKS),
    folder(".githooks", HOOKS),
    file(".huskyrc", HOOKS),
    file(".pre-commit-config.yaml", HOOKS),
    file(".pre-commit-hooks.yaml", HOOKS),
    file("lefthook.yml", HOOKS),
    file("lefthook.yaml", HOOKS),
    file(".lefthook.yml", HOOKS),
    file(".lintstagedrc", HOOKS),
    file(".overcommit.yml", HOOKS),
    file(".envrc", "direnv"),
    file("mise.toml", "mise"),
    file(".mise.toml", "mise"),
    file(".bashrc", SHELL),
    file(".bash_profile", SHELL),
    file(".bash_login", SHELL),
    file(".bash_logout", SHELL),
    file(".profile", SHELL),
    file(".zshrc", SHELL),
    file(".zshenv", SHELL),
    file(".zprofile", SHELL),
    file(".zlogin", SHELL),
    file(".gdbinit", "a debugger"),
    file(".lldbinit", "a debugger"),
];

/// The protected paths that have no fixed name: a `*` stands for any characters.
const PROTECTED_PATTERNS: [(&str, &str); 5] = [
    ("lefthook-local.*", HOOKS),
    ("*.code-workspace", EDITOR),
    (".lintstagedrc.*", HOOKS),
    ("lint-staged.config.*", HOOKS),
    (".huskyrc.*", HOOKS),
];

/// The parts of a folder of git that decide which programs git runs and where it looks. The other
/// parts are written by every commit.
const GIT_PARTS: [&str; 15] = [
    "config",
    "config.worktree",
    "hooks",
    "info/attributes",
    "info/grafts",
    "commondir",
    "gitdir",
    "worktrees",
    "config.lock",
    "sequencer",
    "rebase-merge",
    "rebase-apply",
    // Where Sapling works in a repository of git, these are its settings.
    "sl/config",
    "sl/config-not-shared",
    "sl/sharedpath",
];

/// The parts of a folder of git that can be masked where they do not exist. `commondir` is not one:
/// git takes an empty one for an error.
pub const GIT_MASKED: &[Named] =
    &[folder("hooks", GIT), file("config.worktree", GIT), file("info/attributes", GIT)];

/// The names in a folder by which git takes it for a repository, whatever it is called.
pub const GIT_MARKS: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// The files of git in a work tree that may be changed, and whose changes are told.
const REPORTED_GIT: [&str; 3] = [".gitattributes", ".gitmodules", ".gitconfig"];

/// The usual folder of the records of runs: they say what was done, and a resume believes them.
pub const RECORDS: &str = ".transcripts";

/// The journal in the folder of a run. A folder without one is none, whatever its name.
pub const JOURNAL: &str = "journal.jsonl";

/// Returns true for a name that the folder of a run may have.
#[must_use]
pub fn is_run(name: impl AsRef<OsStr>) -> bool {
    name.as_ref().to_str().is_some_and(|name| RunId::parse(name).is_some())
}

/// Returns the folder of a run that a path lies in, or that it would make one. `exists` tells what there is before.
pub fn within_run(path: &Path, exists: impl Fn(&Path) -> bool) -> Option<&Path> {
    let is_one = |folder: &&Path| {
        let journal = folder.join(JOURNAL);
        folder.file_name().is_some_and(is_run) && (path.starts_with(&journal) || exists(&journal))
    };
    path.ancestors().skip(1).find(is_one)
}

/// The folder, or the file, of a git repository.
pub const GIT_FOLDER: &str = ".git";

/// A program that runs or trusts a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunBy {
    /// The program, in words that end "is run or trusted by ...".
    pub program: &'static str,
    /// True if no tool changes the path.
    pub protected: bool,
}

/// A file that other programs run or trust, and that changed while a run worked, as the end of an agent
/// or a hook records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedForOthers {
    /// The path, relative to the workspace.
    pub path: String,
    /// The program that runs or trusts it.
    pub program: String,
    /// What became of it.
    pub change: ChangeOfFile,
    /// Other agents that were at work too: any of them, or the one of the record, changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub or_by: Vec<AgentId>,
    /// The content before, if it is small and shows no sign of a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Stored>,
    /// The content after, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Stored>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeOfFile {
    /// It did not exist before.
    Made,
    /// It has another content, another mode, or leads elsewhere.
    Changed,
    /// It no longer exists.
    Removed,
}

/// Returns true if git takes a folder for a repository that has these of [`GIT_MARKS`]. Objects and refs may
/// lie where `commondir` says.
#[must_use]
pub fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

/// Returns the folder that git would take for a repository once a path exists, if the path is then one of its
/// marks or decides what git runs. `exists` tells what there is before: so it is the last mark that is found,
/// in whatever order they come, and all that decides from then on.
pub fn within_repository(path: &Path, exists: impl Fn(&Path) -> bool) -> Option<&Path> {
    let is_one = |folder: &&Path| {
        let inner = parts(path.strip_prefix(folder).unwrap_or(path));
        let Some(name) = inner.first() else { return false };
        let is_mark = GIT_MARKS.iter().any(|mark| same(name, mark));
        (is_mark || decides_for_git(&inner))
            && is_repository(|mark| same(name, mark) || exists(&folder.join(mark)))
    };
    path.ancestors().skip(1).find(is_one)
}

/// Returns the program that runs or trusts a path that no command may change, if it is one. The path
/// is relative to the workspace and without `..`. In a folder of git only the parts that decide what
/// git runs are such paths: a commit writes the others.
#[must_use]
pub fn protected(path: &Path) -> Option<&'static str> {
    let parts = parts(path);
    (0..parts.len()).find_map(|at| protected_from(&parts[at..]))
}

/// Returns the program that runs or trusts a path that no file tool may change, if it is one:
/// everything of git is, and of other systems, because nobody writes it by hand.
#[must_use]
pub fn kept_from_file_tools(path: &Path) -> Option<&'static str> {
    let parts = parts(path);
    if parts.iter().any(|part| same(part, GIT_FOLDER)) {
        return Some(GIT);
    }
    if parts.iter().any(|part| same(part, RECORDS)) {
        return Some("callsheet");
    }
    if let Some(store) = parts.iter().find_map(|part| store(part)) {
        return Some(store.program);
    }
    protected(path)
}

/// Returns the program that runs or trusts a path, whether it is protected or only reported.
#[must_use]
pub fn run_by(path: &Path) -> Option<RunBy> {
    if let Some(program) = protected(path) {
        return Some(RunBy { program, protected: true });
    }
    let parts = parts(path);
    let program = parts.iter().enumerate().find_map(|(at, part)| {
        let is_last = at + 1 == parts.len();
        let row = |(pattern, program): &(&str, &'static str)| {
            // Below a folder only a plain name holds: `.env.d/x` is nothing of the pattern `.env.*`.
            let fits = if is_last { matches(pattern, part) } else { same(part, pattern) };
            fits.then_some(*program)
        };
        let of_git = REPORTED_GIT.iter().any(|name| is_last && same(part, name)).then_some(GIT);
        of_git.or_else(|| REPORTED.iter().find_map(row))
    })?;
    Some(RunBy { program, protected: false })
}

/// Returns the program that runs or trusts whatever has this name, in any folder outside of those of
/// git: what a walk asks for each name that it meets.
#[must_use]
pub fn named(name: &OsStr) -> Option<RunBy> {
    if let Some(program) = protected_from(&[name]) {
        return Some(RunBy { program, protected: true });
    }
    let of_git = REPORTED_GIT.iter().any(|other| same(name, other)).then_some(GIT);
    let row = || REPORTED.iter().find(|(pattern, _)| matches(pattern, name));
    let program = of_git.or_else(|| row().map(|(_, program)| *program))?;
    Some(RunBy { program, protected: false })
}

/// Returns true if something protected can lie at or below the path, or the path lies in something
/// that is: whoever names it for writing lifts a protection.
#[must_use]
pub fn lifts(path: &Path) -> bool {
    let is_git = parts(path).iter().any(|part| same(part, GIT_FOLDER));
    protected(path).is_some() || (is_git && protected_below_git(path))
}

/// Returns true if a path in a folder of git holds parts that are protected.
fn protected_below_git(path: &Path) -> bool {
    let parts = parts(path);
    let Some(at) = parts.iter().rposition(|part| same(part, GIT_FOLDER)) else { return false };
    let inner: std::path::PathBuf = parts[at + 1..].iter().collect();
    let holds = |part: &&str| Path::new(part).starts_with(&inner);
    parts.len() == at + 1 || GIT_PARTS.iter().any(holds) || inner.starts_with("modules")
}

/// Returns the program of a row that begins with the first of the parts.
fn protected_from(parts: &[&OsStr]) -> Option<&'static str> {
    let first = parts.first()?;
    if same(first, GIT_FOLDER) {
        return is_part_of_git(&parts[1..]).then_some(GIT);
    }
    if let Some(store) = store(first).filter(|store| store.decides(&parts[1..])) {
        return Some(store.program);
    }
    let named = PROTECTED.iter().find(|named| same(first, named.path));
    let pattern = || PROTECTED_PATTERNS.iter().find(|(pattern, _)| matches(pattern, first));
    named.map(|named| named.program).or_else(|| pattern().map(|(_, program)| *program))
}

/// Returns true if a path in a folder of git is the folder itself or decides what git runs.
fn is_part_of_git(inner: &[&OsStr]) -> bool {
    match inner.first() {
        None => true,
        // A submodule's name may have slashes, so that its folder lies at any depth.
        Some(first) if same(first, "modules") => {
            (1..inner.len()).any(|at| decides_for_git(&inner[at..]))
        }
        Some(_) => decides_for_git(inner),
    }
}

/// Returns true if a path in a folder of git begins with a part that decides what git runs.
fn decides_for_git(inner: &[&OsStr]) -> bool {
    GIT_PARTS.iter().any(|part| begins(part, inner))
}

/// Returns the path's names. A path that is relative to the workspace has nothing else.
fn parts(path: &Path) -> Vec<&OsStr> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    names.collect()
}

/// Compares a name as file systems do that do not distinguish case: programs find it there.
fn same(name: &OsStr, other: &str) -> bool {
    name.as_encoded_bytes().eq_ignore_ascii_case(other.as_bytes())
}

/// Returns true if a name fits a pattern in which each `*` stands for any characters.
fn matches(pattern: &str, name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    // Most names fit no row: a walk asks for many thousands of them.
    let first = |bytes: &[u8]| bytes.first().map(u8::to_ascii_lowercase);
    if !pattern.starts_with('*') && first(name) != first(pattern.as_bytes()) {
        return false;
    }
    let Some((head, rest)) = pattern.split_once('*') else {
        return name.eq_ignore_ascii_case(pattern.as_bytes());
    };
    let begins = name.get(..head.len()).is_some_and(|n| n.eq_ignore_ascii_case(head.as_bytes()));
    if !begins {
        return false;
    }
    // Patterns are short, and have at most two stars.
    (head.len()..=name.len()).any(|at| {
        std::str::from_utf8(&name[at..]).is_ok_and(|tail| matches(rest, OsStr::new(tail)))
    })
}

/// The protected paths with a fixed name, relative to the workspace.
pub const TRUSTED: [&str; PROTECTED.len() + GIT_AT_ROOT.len()] = {
    let mut paths = [""; PROTECTED.len() + GIT_AT_ROOT.len()];
    let mut at = 0;
    while at < PROTECTED.len() {
        paths[at] = PROTECTED[at].path;
        at += 1;
    }
    while at < paths.len() {
        paths[at] = GIT_AT_ROOT[at - PROTECTED.len()];
        at += 1;
    }
    paths
};

/// The protected parts of the folder of git in the workspace.
const GIT_AT_ROOT: [&str; 6] = [
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/info/attributes",
    ".git/commondir",
    ".git/worktrees",
];

#[cfg(test)]
mod tests;
