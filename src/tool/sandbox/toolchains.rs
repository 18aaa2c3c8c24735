//! The files of toolchains that commands need to read, wherever they lie: the folders of `PATH`, and
//! what stands behind them in the user's home. Files that hold keys are not among them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The home of a toolchain, and the parts of it that hold no keys.
struct Toolchain {
    /// The variable that names its folder; empty if there is none.
    variable: &'static str,
    /// Its folder in the user's home, where the variable is not set.
    folder: &'static str,
    /// The parts that are needed; none: all of it.
    parts: &'static [&'static str],
}

const fn whole(variable: &'static str, folder: &'static str) -> Toolchain {
    Toolchain { variable, folder, parts: &[] }
}

const fn parts(
    variable: &'static str,
    folder: &'static str,
    parts: &'static [&'static str],
) -> Toolchain {
    Toolchain { variable, folder, parts }
}

/// Where toolchains lie that people install without the system's packages.
const TOOLCHAINS: [Toolchain; 24] = [
    whole("RUSTUP_HOME", ".rustup"),
    // `credentials.toml` is left out.
    parts("CARGO_HOME", ".cargo", &["bin", "registry", "git", "config", "config.toml", "env"]),
    whole("GOROOT", ".local/go"),
    parts("GOPATH", "go", &["bin", "pkg", "src"]),
    whole("NVM_DIR", ".nvm"),
    parts("", ".npm", &["_cacache"]),
    whole("", ".volta"),
    whole("", ".bun"),
    parts("", ".deno", &["bin"]),
    whole("", ".fnm"),
    whole("PYENV_ROOT", ".pyenv"),
    whole("VIRTUAL_ENV", ".virtualenvs"),
    whole("JAVA_HOME", ".jdks"),
    parts("", ".sdkman", &["candidates"]),
    // `settings.xml` is left out.
    parts("", ".m2", &["repository", "wrapper"]),
    // `gradle.properties` is left out.
    parts("", ".gradle", &["caches", "wrapper", "native"]),
    whole("", ".asdf"),
    whole("", ".ghcup"),
    whole("", ".opam"),
    parts("", ".local", &["bin", "lib", "libexec", "include"]),
    parts("", ".local/share", &["uv", "pipx", "pnpm", "mise", "fnm", "rtx"]),
    // The name of the author, without `.git-credentials` and `.config/git/credentials`.
    parts("", "", &[".gitconfig", ".gitignore", ".gitignore_global"]),
    parts("", ".config/git", &["config", "ignore", "attributes"]),
    parts("", ".terminfo", &[]),
];

/// Returns the files and folders that commands may read, of those that exist. `variables` are those
/// of the commands; `real` finds the place to which a path leads, if anything is there that may be
/// given. Folders of toolchains are returned as they are named.
#[must_use]
pub fn readable(
    variables: &BTreeMap<String, String>,
    real: impl Fn(&Path) -> Option<PathBuf>,
) -> Vec<PathBuf> {
    let home = variables.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    // A link or `..` on the way must not hide that a folder is the home, or above it.
    let home = home.map(|home| real(&home).unwrap_or(home));
    let mut found: Vec<PathBuf> = Vec::new();
    let path = variables.get("PATH").map(OsStr::new).unwrap_or_default();
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    for folder in folders.filter_map(|folder| real(&folder)) {
        // The home itself, or a folder above it, holds far more than programs.
        let is_wide = home.as_ref().is_some_and(|home| home.starts_with(&folder));
        if !is_wide {
            found.extend(behind(&folder, home.as_deref()));
            found.push(folder);
        }
    }
    for toolchain in &TOOLCHAINS {
        let named = variables.get(toolchain.variable).map(PathBuf::from);
        let Some(folder) = named.or_else(|| Some(home.as_ref()?.join(toolchain.folder))) else {
            continue;
        };
        match toolchain.parts {
            [] => found.push(folder),
            parts => found.extend(parts.iter().map(|part| folder.join(part))),
        }
    }
    found.retain(|path| path.exists() && home.as_ref().is_none_or(|home| !home.starts_with(path)));
    found.sort();
    found.dedup();
    found
}

/// Returns what a folder of programs needs beside it: `lib` beside `bin`. In the user's home only
/// those of a toolchain of its own, never a folder of the home itself.
fn behind(folder: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let is_programs = folder.file_name().is_some_and(|name| name == "bin" || name == "sbin");
    let Some(above) = folder.parent().filter(|_| is_programs) else { return Vec::new() };
    if home.is_some_and(|home| home.starts_with(above)) {
        return Vec::new();
    }
    ["lib", "lib64", "libexec", "share", "include"].map(|name| above.join(name)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_are_readable_and_keys_are_not() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for folder in
            [".cargo/bin", ".cargo/registry", ".rustup", ".ssh", ".aws", "tools/bin", "tools/lib"]
        {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        for file in
            [".cargo/credentials.toml", ".gitconfig", ".git-credentials", ".netrc", ".npmrc"]
        {
            std::fs::write(home.join(file), "x").unwrap();
        }
        let path = format!("{0}/tools/bin:{0}:/:relative:/usr/bin", home.display());
        let variables = BTreeMap::from([
            ("HOME".to_owned(), home.display().to_string()),
            ("PATH".to_owned(), path),
        ]);
        let found = readable(&variables, |path| path.canonicalize().ok());
        let inside: Vec<_> =
            found.iter().filter_map(|path| path.strip_prefix(&home).ok()?.to_str()).collect();
        let wanted =
            [".cargo/bin", ".cargo/registry", ".gitconfig", ".rustup", "tools/bin", "tools/lib"];
        assert_eq!(inside, wanted);
        assert!(found.contains(&PathBuf::from("/usr/bin")));
        assert!(!found.iter().any(|path| home.starts_with(path)), "{found:?}");
    }
}
