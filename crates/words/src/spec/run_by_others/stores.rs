//! The folders of version-control systems beside git, with the parts of them that decide which programs run.

use std::ffi::OsStr;

use super::same;

/// The folder of a version-control system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Its name.
    pub folder: &'static str,
    /// The program whose folder it is.
    pub program: &'static str,
    /// The parts that name programs, or say where others that do are read. What else is in it is written by
    /// every commit.
    pub parts: &'static [&'static str],
    /// The names in it that decide where such programs are read if they are files, and are written by every
    /// commit if they are folders.
    pub files: &'static [&'static str],
}

/// The folders, beside that of git.
pub const STORES: &[Store] = &[
    // Aliases, editors, tools of merges and `fix` are commands of its settings.
    Store {
        folder: ".jj",
        program: "jj",
        parts: &[
            "repo/config.toml",
            "repo/config-id",
            "repo/store/type",
            "repo/store/git_target",
            "workspace-config.toml",
            "workspace-config-id",
        ],
        // In a second workspace it says where the repository is.
        files: &["repo"],
    },
    Store {
        folder: ".hg",
        program: "hg",
        parts: &["hgrc", "hgrc-not-shared", "sharedpath"],
        files: &[],
    },
    Store {
        folder: ".sl",
        program: "sl",
        parts: &["config", "config-not-shared", "sharedpath"],
        files: &[],
    },
    // Hooks of a record.
    Store { folder: ".pijul", program: "pijul", parts: &["config"], files: &[] },
    // Default options, with `prehook` and `posthook`, and the command of `test`.
    Store {
        folder: "_darcs",
        program: "darcs",
        parts: &["prefs/defaults", "prefs/prefs"],
        files: &[],
    },
    // Commands after a commit, and the branch whose settings are read.
    Store {
        folder: ".bzr",
        program: "bzr",
        parts: &[
            "branch/branch.conf",
            "branch/location",
            "control.conf",
            "repository/shared-storage",
        ],
        files: &[],
    },
    // Scripts that `repo` itself consists of, and the hooks of a manifest.
    Store {
        folder: ".repo",
        program: "repo",
        parts: &["repo", "manifests", "manifest.xml", "local_manifests", "project-objects"],
        files: &[],
    },
];

/// Returns the folder with this name.
#[must_use]
pub fn store(name: &OsStr) -> Option<&'static Store> {
    STORES.iter().find(|store| same(name, store.folder))
}

impl Store {
    /// Returns true if a path in the folder is, or lies in, a part that decides what runs.
    pub(super) fn decides(&self, inner: &[&OsStr]) -> bool {
        let is_file = inner.len() == 1 && self.files.iter().any(|file| begins(file, inner));
        is_file || self.parts.iter().any(|part| begins(part, inner))
    }
}

/// Returns true if the names begin with those of a part.
pub(super) fn begins(part: &str, names: &[&OsStr]) -> bool {
    let mut names = names.iter();
    part.split('/').all(|word| names.next().is_some_and(|name| same(name, word)))
}
