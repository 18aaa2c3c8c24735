//! The environment variables of commands: a short list of those of this program, and those that the
//! configuration names. Everything else stays with this program, because any variable may hold a
//! key.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Variables that every command gets: those that programs need to find their files, to name their
/// user and to write in the user's language.
const PASSED: [&str; 9] =
    ["PATH", "HOME", "LANG", "TERM", "TZ", "TMPDIR", "USER", "SHELL", "LOGNAME"];

/// Beginning of the names of the variables of a language, which every command gets too.
const LOCALE: &str = "LC_";

/// Variables by which toolchains find their own folders. They hold paths.
const TOOLCHAINS: [&str; 9] = [
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
];

/// Beginnings of the names of variables that the loader of programs and the allocator obey.
const OBEYED: [&str; 4] = ["LD_", "GLIBC_", "MALLOC_", "MIMALLOC_"];

/// Beginning of the name under which such a variable is handed to the wrapper and to the process that
/// enters the sandbox: it must change the command, not them.
const HELD: &str = "CALLSHEET_HELD_";

/// Sets variables on a process that starts the command later.
pub(super) fn hold(command: &mut tokio::process::Command, variables: &BTreeMap<String, String>) {
    for (name, value) in variables {
        let is_obeyed = OBEYED.iter().any(|obeyed| name.starts_with(obeyed));
        let name = if is_obeyed { format!("{HELD}{name}") } else { name.clone() };
        command.env(name, value);
    }
}

/// Gives the command the variables of this process that were held.
pub(super) fn restore(command: &mut std::process::Command) {
    for (name, value) in std::env::vars_os() {
        let Some(own) = name.to_str().and_then(|name| name.strip_prefix(HELD)) else { continue };
        command.env(own, value);
        command.env_remove(&name);
    }
}

/// Environment variables for the processes of a call.
#[derive(Clone, Debug, Default)]
pub enum Environment {
    /// Those of this process, which was started with exactly what the call needs.
    #[default]
    Inherited,
    /// These and no others.
    Only(Arc<BTreeMap<String, String>>),
}

impl Environment {
    /// Returns these variables and no others.
    #[must_use]
    pub fn only(variables: BTreeMap<String, String>) -> Self {
        Self::Only(Arc::new(variables))
    }

    /// Returns these variables with others added or changed. What a process was started with is
    /// exactly what its call needs, and stays as it is.
    #[must_use]
    pub fn with(&self, others: &BTreeMap<String, String>) -> Self {
        match self {
            Self::Only(variables) if !others.is_empty() => {
                let others = others.iter().map(|(name, value)| (name.clone(), value.clone()));
                Self::only((**variables).clone().into_iter().chain(others).collect())
            }
            Self::Only(_) | Self::Inherited => self.clone(),
        }
    }
}

/// Returns true for a variable that every command gets.
#[must_use]
pub fn is_passed_to_all(name: &str) -> bool {
    PASSED.contains(&name) || TOOLCHAINS.contains(&name) || name.starts_with(LOCALE)
}

/// Returns those of this process's variables that a command gets: the ones that every command gets,
/// and the ones with the names `also`.
#[must_use]
pub fn passed(also: &[String]) -> BTreeMap<String, String> {
    // A value that is not UTF-8 is no path or name that a command could need.
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let is_passed = |name: &str| is_passed_to_all(name) || also.iter().any(|other| other == name);
    std::env::vars_os().filter_map(text).filter(|(name, _)| is_passed(name)).collect()
}
