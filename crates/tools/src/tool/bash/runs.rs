//! Finds the files that a command runs: programs and scripts that its words name.
//!
//! A person who allows `sh deploy.sh` allows what `deploy.sh` holds then. So its hash is shown, and compared
//! right before the command starts. What such a file loads by itself is not looked at.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::grammar::pieces::{Piece, pieces};
use crate::tool::basis::{Basis, Script};
use crate::tool::workspace::Workspace;
use crate::tool::{Announce, BoxFuture, ToolContext, ToolError};
use crate::turn::Process;

/// Programs that run a file which an argument names. Digits and dots at the end of a name are its version.
const INTERPRETERS: [&str; 38] = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "ash",
    "busybox",
    "source",
    ".",
    "eval",
    "exec",
    "env",
    "python",
    "pypy",
    "uv",
    "node",
    "nodejs",
    "deno",
    "bun",
    "tsx",
    "ts-node",
    "npx",
    "perl",
    "ruby",
    "php",
    "lua",
    "luajit",
    "Rscript",
    "julia",
    "pwsh",
    "osascript",
    "awk",
    "gawk",
    "mawk",
    "sed",
    "make",
    "java",
];

/// Words after which a folder is named to which the paths of the command are relative.
const INTO_FOLDER: [&str; 4] = ["cd", "pushd", "-C", "--chdir"];

/// The most folders that the paths of a command may be relative to.
const MOST_FOLDERS: usize = 8;

/// The most bytes that are hashed for one command. Of a file beyond them its identity, its length and the time of
/// its last change count, which no program can set.
const MOST_BYTES: u64 = 256 << 20;

/// The words of a command that may name files which it runs.
#[derive(Clone, Debug)]
pub(in crate::tool) struct Runs {
    words: Vec<Piece>,
    /// The folder in which it runs; empty for the root of the workspace.
    folder: PathBuf,
}

impl Runs {
    /// Returns those of a command line.
    pub(in crate::tool) fn of_line(line: &str) -> Self {
        Self { words: pieces(line), folder: PathBuf::new() }
    }

    /// Returns those of a program with its arguments, which no shell reads.
    pub(in crate::tool) fn of_program(argv: &[String], folder: &Path) -> Self {
        let of_words = |(at, word): (usize, &String)| {
            let itself = Piece { text: word.clone(), first: at == 0 };
            let inner = if word.contains(char::is_whitespace) { pieces(word) } else { Vec::new() };
            std::iter::once(itself).chain(inner)
        };
        let words = argv.iter().enumerate().flat_map(of_words).collect();
        Self { words, folder: folder.to_owned() }
    }

    /// Returns the files as they are now, sorted. Blocks.
    pub(in crate::tool) fn find(&self, workspace: &Workspace) -> Vec<Script> {
        let interpreted = self.words.iter().any(|word| is_interpreter(&word.text));
        let folders = self.folders();
        let (mut found, mut left) = (BTreeMap::new(), MOST_BYTES);
        for word in &self.words {
            // A value after `=` may be a path too: `--rcfile=x`.
            let value = word.text.split_once('=').map(|(_, value)| value);
            for text in std::iter::once(word.text.as_str()).chain(value) {
                for folder in &folders {
                    let path = folder.join(text);
                    let runs = interpreted || word.first;
                    if let Some((path, file)) = opened(workspace, &path, runs)
                        && !found.contains_key(&path)
                    {
                        let hash = hash(file, &mut left).unwrap_or_default();
                        found.insert(path, hash);
                    }
                }
            }
        }
        found.into_iter().map(|(path, hash)| Script { path, hash }).collect()
    }

    /// Returns the folders to which paths of the command may be relative.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.folder.clone()];
        for pair in self.words.windows(2) {
            let [before, folder] = pair else { continue };
            if INTO_FOLDER.contains(&before.text.as_str()) {
                let more: Vec<_> = folders.iter().map(|base| base.join(&folder.text)).collect();
                folders.extend(more);
                folders.truncate(MOST_FOLDERS);
            }
        }
        folders
    }
}

fn is_interpreter(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&name) || INTERPRETERS.contains(&bare)
}

/// Opens a file of the workspace if the command may run it, and returns it with its path as rules name it.
fn opened(workspace: &Workspace, path: &Path, runs: bool) -> Option<(String, std::fs::File)> {
    let place = workspace.place(path.to_str()?).ok()?;
    let (file, _) = place.open().ok()?;
    let is_program = file.metadata().is_ok_and(|found| found.mode() & 0o111 != 0);
    (runs || is_program).then_some(())?;
    Some((workspace.named(&place.lies(&file).ok()?), file))
}

/// Returns the hash of a file, as long as there is something left of what may be hashed.
fn hash(file: std::fs::File, left: &mut u64) -> std::io::Result<String> {
    let found = file.metadata()?;
    let mut hash = blake3::Hasher::new();
    match left.checked_sub(found.len()) {
        Some(rest) => {
            *left = rest;
            hash.update_reader(file.take(found.len()))?;
        }
        None => {
            let known = (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec());
            hash.update(format!("{known:?}").as_bytes());
        }
    }
    Ok(hash.finalize().to_hex().to_string())
}

/// Returns the context of a command whose files are compared right before it starts, if a person was shown
/// them.
pub(in crate::tool) fn guarded(context: ToolContext, runs: Runs) -> ToolContext {
    if context.basis.scripts.is_none() {
        return context;
    }
    let (workspace, basis) = (context.workspace.clone(), context.basis.clone());
    let announce = context.announce.clone();
    ToolContext { announce: Arc::new(Guard { announce, workspace, basis, runs }), ..context }
}

/// Compares the files of a command once its beginning is recorded: nothing is nearer to its start.
#[derive(Debug)]
struct Guard {
    announce: Arc<dyn Announce>,
    workspace: Arc<Workspace>,
    basis: Basis,
    runs: Runs,
}

impl Announce for Guard {
    fn announce(&self, process: Option<Process>) -> BoxFuture<'_, Result<(), ToolError>> {
        Box::pin(async move {
            self.announce.announce(process).await?;
            let (runs, workspace) = (self.runs.clone(), self.workspace.clone());
            let now = tokio::task::spawn_blocking(move || runs.find(&workspace)).await;
            let now = now.map_err(|error| ToolError::Failed(error.to_string()))?;
            self.basis.same_scripts(&now)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_files_that_a_command_runs_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["deploy.sh", "sub/x.py", "data.csv", "my script.sh", "bin/tool"] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        fs::set_permissions(dir.path().join("bin/tool"), PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("deploy.sh", dir.path().join("alias")).unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let absolute = format!("sh {}/deploy.sh", dir.path().display());
        for (line, expected) in [
            ("sh deploy.sh", &["deploy.sh"] as &[&str]),
            ("./deploy.sh --now", &["deploy.sh"]),
            ("sh alias", &["deploy.sh"]),
            ("sh < deploy.sh", &["deploy.sh"]),
            ("cat deploy.sh | bash", &["deploy.sh"]),
            ("chmod +x deploy.sh && ./deploy.sh", &["deploy.sh"]),
            ("/usr/bin/python3.12 -W x sub/x.py", &["sub/x.py"]),
            ("cd sub && python3 x.py", &["sub/x.py"]),
            ("env -C sub python3 ../sub/x.py", &["sub/x.py"]),
            ("sh 'my script.sh'", &["my script.sh"]),
            ("bash --rcfile=deploy.sh", &["deploy.sh"]),
            ("sh -c 'cd sub; python3 x.py'", &["sub/x.py"]),
            ("x=$(sh deploy.sh); eval \"$x\"", &["deploy.sh"]),
            (&absolute, &["deploy.sh"]),
            ("timeout 5 bin/tool", &["bin/tool"]),
            ("cat data.csv", &[]),
            ("sh ../outside.sh", &[]),
            ("ls", &[]),
        ] {
            let found = Runs::of_line(line).find(&workspace);
            let paths: Vec<_> = found.iter().map(|script| script.path.as_str()).collect();
            assert_eq!(paths, expected, "{line}");
            assert!(found.iter().all(|script| script.hash.len() == 64));
        }
        let argv = ["python3", "my script.sh"].map(str::to_owned);
        let before = Runs::of_program(&argv, Path::new("")).find(&workspace);
        assert_eq!(before[0].path, "my script.sh");
        fs::write(dir.path().join("my script.sh"), "other").unwrap();
        assert_ne!(Runs::of_program(&argv, Path::new("")).find(&workspace), before);
    }

    #[test]
    fn a_huge_file_is_known_by_its_last_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("huge.sh")).unwrap();
        file.set_len(1 << 40).unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let runs = Runs::of_line("sh huge.sh");
        let before = runs.find(&workspace);
        assert_eq!(before.len(), 1);
        file.set_len((1 << 40) + 1).unwrap();
        assert_ne!(runs.find(&workspace), before);
    }
}
