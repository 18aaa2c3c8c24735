//! The files of toolchains that commands need to read, wherever they lie: the folders of `PATH`, and
//! what stands behind them in the user's home. Files that hold keys are not among them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
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
    // `credentials.toml` is left out, and [`CARGO_SETTINGS`] are looked at.
    parts("CARGO_HOME", ".cargo", &["bin", "registry", "git", "config", "config.toml"]),
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
    parts("", ".local/share", &["uv/python", "uv/tools", "pipx", "pnpm", "mise", "fnm", "rtx"]),
    // Without settings, which can hold tokens: [`git_variables`] has the harmless ones.
    parts("", "", &[".gitignore", ".gitignore_global"]),
    parts("", ".config/git", &["ignore", "attributes"]),
    parts("", ".terminfo", &[]),
];

/// The names of the files of settings of Cargo, which can hold tokens of registries.
const CARGO_SETTINGS: [&str; 2] = ["config", "config.toml"];

/// Words by which such a file shows that it holds a token.
const CREDENTIALS: [&str; 3] = ["token", "credential", "password"];

/// The most bytes of a file of settings.
const LARGEST: u64 = 1 << 20;

/// The settings of Git that tell commands who the author is and how files are compared: none of them
/// names a program, a file or an address.
const GIT_SETTINGS: [&str; 5] =
    ["user.name", "user.email", "init.defaultbranch", "core.autocrlf", "core.ignorecase"];

/// Reads a file of settings; `None` if it is no file, too large or cannot be read.
fn settings(path: &Path) -> Option<String> {
    let mut text = String::new();
    // Whose home it is may have put the folder on another disk.
    let folder = path.parent()?.canonicalize().ok()?;
    let file = crate::disk::open(&folder.join(path.file_name()?)).ok()?;
    (&file).take(LARGEST + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= LARGEST).then_some(text)
}

/// Returns true if a file of settings of Cargo holds a token, or cannot be looked at.
fn holds_token(path: &Path) -> bool {
    let Some(text) = settings(path) else { return true };
    let text = text.to_ascii_lowercase();
    let holds = CREDENTIALS.iter().any(|word| text.contains(word)) || text.contains('@');
    if holds {
        let path = path.display();
        tracing::warn!(
            "commands cannot read `{path}`, which may hold a token: `cargo login` keeps one elsewhere"
        );
    }
    holds
}

/// Returns the settings of Git of the person with this home that hold no secret, later ones last. Files
/// that the settings include are not read.
#[must_use]
pub fn safe_git_settings(home: &Path) -> Vec<(String, String)> {
    let files = [home.join(".config/git/config"), home.join(".gitconfig")];
    let texts = files.iter().filter_map(|file| settings(file));
    let all = texts.flat_map(|text| git_settings(&text)).collect::<BTreeMap<_, _>>();
    all.into_iter().collect()
}

/// Returns variables that give Git these settings in place of the person's files, which it would try to
/// read. `variables` are those of the commands; what they set for Git stays.
#[must_use]
pub fn git_variables(variables: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let Some(home) = variables.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
    else {
        return BTreeMap::new();
    };
    let mut found = BTreeMap::new();
    if !variables.contains_key("GIT_CONFIG_GLOBAL") {
        found.insert("GIT_CONFIG_GLOBAL".to_owned(), "/dev/null".to_owned());
    }
    if !variables.contains_key("GIT_CONFIG_COUNT") {
        // Git would take settings, which can name commands, from any folder that looks like a repository
        // without a work tree.
        let own = ("safe.bareRepository".to_owned(), "explicit".to_owned());
        let all: Vec<_> = safe_git_settings(&home).into_iter().chain([own]).collect();
        found.insert("GIT_CONFIG_COUNT".to_owned(), all.len().to_string());
        for (number, (name, value)) in all.into_iter().enumerate() {
            found.insert(format!("GIT_CONFIG_KEY_{number}"), name);
            found.insert(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
    }
    found
}

/// Reads the harmless settings from the text of a file of Git. Lines that go on in the next one are left
/// out.
fn git_settings(text: &str) -> Vec<(String, String)> {
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some((name, _)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            section = name.trim().to_ascii_lowercase();
        } else if let Some((name, value)) = line.split_once('=') {
            let name = format!("{section}.{}", name.trim().to_ascii_lowercase());
            if GIT_SETTINGS.contains(&name.as_str())
                && let Some(value) = git_value(value.trim())
            {
                found.push((name, value));
            }
        }
    }
    found
}

/// Reads a value as Git writes it: with quotes, escapes and a comment.
fn git_value(text: &str) -> Option<String> {
    let (mut value, mut is_quoted, mut chars) = (String::new(), false, text.chars());
    while let Some(char) = chars.next() {
        match char {
            '"' => is_quoted = !is_quoted,
            '#' | ';' if !is_quoted => break,
            '\\' => match chars.next()? {
                escaped @ ('"' | '\\') => value.push(escaped),
                _ => return None,
            },
            char if char.is_control() => return None,
            char => value.push(char),
        }
    }
    let value = value.trim().to_owned();
    (!is_quoted && !value.is_empty()).then_some(value)
}

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
            [] => found.push(folder.clone()),
            parts => found.extend(parts.iter().map(|part| folder.join(part))),
        }
        if toolchain.variable == "CARGO_HOME" {
            let settings = CARGO_SETTINGS.map(|name| folder.join(name));
            found.retain(|path| !settings.contains(path) || (path.exists() && !holds_token(path)));
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
        let wanted = [".cargo/bin", ".cargo/registry", ".rustup", "tools/bin", "tools/lib"];
        assert_eq!(inside, wanted);
        assert!(found.contains(&PathBuf::from("/usr/bin")));
        assert!(!found.iter().any(|path| home.starts_with(path)), "{found:?}");
    }

    #[test]
    fn settings_with_tokens_are_not_readable() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for folder in [".cargo", ".local/share/uv/credentials", ".local/share/uv/python"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        std::fs::write(home.join(".cargo/env"), "x").unwrap();
        let variables = BTreeMap::from([("HOME".to_owned(), home.display().to_string())]);
        let inside = || -> Vec<String> {
            let found = readable(&variables, |path| path.canonicalize().ok());
            let inside = found.iter().filter_map(|path| path.strip_prefix(&home).ok()?.to_str());
            inside.map(str::to_owned).collect()
        };
        for (text, is_readable) in [
            ("[source.crates-io]\nreplace-with = 'mirror'\n", true),
            ("[registries.own]\ntoken = 'secret'\n", false),
            ("[source.m]\nregistry = 'https://me:hush@mirror.example/'\n", false),
            ("[registry]\nglobal-Credential-providers = []\n", false),
        ] {
            std::fs::write(home.join(".cargo/config.toml"), text).unwrap();
            let mut wanted = vec![".cargo/config.toml", ".local/share/uv/python"];
            wanted.retain(|path| is_readable || !path.starts_with(".cargo"));
            assert_eq!(inside(), wanted, "{text}");
        }
    }

    #[test]
    fn git_is_told_the_author_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let text = "[user]\n\tname = \"A \\\"B\\\" C\" # me\n email=a@example.com\n signingkey = K\n\
                    [include]\npath = /etc/passwd\n[http \"https://x\"]\nextraHeader = Bearer T\n\
                    [url \"https://t@x\"]\ninsteadOf = x\n[core]\nautocrlf = input\neditor = evil\n\
                    [user \"name\"]\nname = other\n[User]\nEmail = b@example.com\\\n";
        std::fs::write(home.path().join(".gitconfig"), text).unwrap();
        let found = safe_git_settings(home.path());
        let found: Vec<_> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            found,
            [
                ("core.autocrlf", "input"),
                ("user.email", "a@example.com"),
                ("user.name", "A \"B\" C")
            ]
        );
        let mut variables =
            BTreeMap::from([("HOME".to_owned(), home.path().display().to_string())]);
        let given = git_variables(&variables);
        assert_eq!(given["GIT_CONFIG_COUNT"], "4");
        assert_eq!(given["GIT_CONFIG_KEY_3"], "safe.bareRepository");
        assert_eq!(given["GIT_CONFIG_GLOBAL"], "/dev/null");
        variables.insert("GIT_CONFIG_COUNT".to_owned(), "0".to_owned());
        variables.insert("GIT_CONFIG_GLOBAL".to_owned(), "x".to_owned());
        assert_eq!(git_variables(&variables), BTreeMap::new());
        std::fs::write(home.path().join(".gitconfig"), "x".repeat(2 << 20)).unwrap();
        assert_eq!(safe_git_settings(home.path()), []);
    }
}
