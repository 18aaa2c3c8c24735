//! Finds the files that a command runs: programs and scripts that its words name, and those that its programs
//! read by themselves, such as the Makefile of `make`.
//!
//! A person who allows `sh deploy.sh` allows what `deploy.sh` holds then. So its hash is shown, and compared
//! right before the command starts; a file that was not there then is a difference too. What such a file loads
//! in turn is not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::grammar::pieces::{Piece, pieces};
use super::reads::{self, Programs, Read};
use crate::tool::basis::{Basis, Script};
use crate::tool::workspace::Workspace;
use crate::tool::{Announce, BoxFuture, ToolContext, ToolError};
use crate::turn::Process;

/// Words after which a folder is named to which the paths of the command are relative, or to which one is joined.
const INTO_FOLDER: [&str; 7] =
    ["cd", "pushd", "-C", "--chdir", "--directory", "--cwd", "--working-directory"];

/// The most folders that the paths of a command may be relative to.
const MOST_FOLDERS: usize = 16;

/// The most paths that are looked at for one command.
const MOST_PATHS: usize = 100_000;

/// The most bytes that are hashed for one command. Of a file beyond them its identity, its length and the time of
/// its last change count, which no program can set.
const MOST_BYTES: u64 = 256 << 20;

/// What stands in place of the hash of a pipe, a socket or a device.
const NOT_REGULAR: &str = "not regular";

/// What is said of a command with more folders or words than are looked at.
const TOO_MANY: &str = "files that it names: it names too many places to look at all of them";

/// The words of a command that may name files which it runs.
#[derive(Clone, Debug)]
pub(in crate::tool) struct Runs {
    words: Vec<Piece>,
    programs: Programs,
    /// The folder in which it runs; empty for the root of the workspace.
    folder: PathBuf,
}

impl Runs {
    /// Returns those of a command line.
    pub(in crate::tool) fn of_line(line: &str) -> Self {
        let programs = reads::programs_of_line(line);
        Self { words: pieces(line), programs, folder: PathBuf::new() }
    }

    /// Returns those of a program with its arguments, which no shell reads.
    pub(in crate::tool) fn of_program(argv: &[String], folder: &Path) -> Self {
        let of_words = |(at, word): (usize, &String)| {
            let itself = Piece { text: word.clone(), first: at == 0 };
            let inner = if word.contains(char::is_whitespace) { pieces(word) } else { Vec::new() };
            std::iter::once(itself).chain(inner)
        };
        let words = argv.iter().enumerate().flat_map(of_words).collect();
        Self { words, programs: reads::program_of_words(argv), folder: folder.to_owned() }
    }

    /// Returns the files as they are now, sorted. Blocks.
    pub(in crate::tool) fn find(&self, workspace: &Workspace) -> Vec<Script> {
        let read = reads::read(&self.words, &self.programs);
        let found = self.look(&read, workspace, MOST_BYTES).found;
        found.into_iter().map(|(path, hash)| Script { path, hash }).collect()
    }

    /// Returns what decides what the command does and is in no file that is found, in words for a person. Blocks.
    pub(in crate::tool) fn unbound(&self, workspace: &Workspace) -> Vec<String> {
        let read = reads::read(&self.words, &self.programs);
        let too_many = self.look(&read, workspace, 0).too_many.then(|| TOO_MANY.to_owned());
        read.rest.into_iter().chain(too_many).collect()
    }

    /// Looks for the files, and hashes at most so many bytes of them.
    fn look<'w>(&self, read: &Read, workspace: &'w Workspace, most_bytes: u64) -> Look<'w> {
        let mut look = Look::new(workspace, most_bytes);
        let mut folders = self.folders();
        look.named(self, read, &folders);
        if read.interprets {
            // A folder that a word names may be the one in which the command works: `make -kC sub -f x.mk`.
            folders = look.folders.iter().cloned().collect();
            look.named(self, read, &folders);
        }
        let works_in = self.folders().into_iter().chain(look.places.clone());
        let above: BTreeSet<PathBuf> = works_in
            .flat_map(|place| place.ancestors().map(Path::to_owned).collect::<Vec<_>>())
            .collect();
        let by_itself =
            above.iter().flat_map(|folder| read.files.iter().map(|file| folder.join(file)));
        for path in by_itself {
            look.at(&path, true);
        }
        look
    }

    /// Returns the paths from some folders that the words may name, each with whether it runs however its file is:
    /// one more than the most that are looked at, if there are more.
    fn named(&self, read: &Read, folders: &[PathBuf]) -> BTreeMap<PathBuf, bool> {
        let mut paths = BTreeMap::new();
        let mut add = |text: &str, runs: bool| {
            for folder in folders {
                if paths.len() <= MOST_PATHS {
                    *paths.entry(folder.join(text)).or_insert(false) |= runs;
                }
            }
        };
        for word in &self.words {
            let runs = read.interprets || word.first;
            match read.interprets {
                true => reads::spellings(&word.text).for_each(|text| add(text, runs)),
                false => {
                    // A value after `=` may be a path too: `--rcfile=x`.
                    let value = word.text.split_once('=').map(|(_, value)| value);
                    std::iter::once(word.text.as_str())
                        .chain(value)
                        .for_each(|text| add(text, runs));
                }
            }
            if read.modules {
                let joined = reads::module_after(&word.text).unwrap_or(&word.text);
                modules(joined).iter().for_each(|path| add(path, true));
            }
        }
        paths
    }

    /// Returns the folders to which paths of the command may be relative: one more than the most that are looked
    /// at, if there are more.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.folder.clone()];
        let mut before = "";
        for word in &self.words {
            let joined = INTO_FOLDER.iter().find_map(|option| {
                let value = word.text.strip_prefix(option).filter(|_| option.starts_with('-'))?;
                Some(value.strip_prefix('=').unwrap_or(value)).filter(|value| !value.is_empty())
            });
            let next = INTO_FOLDER.contains(&before).then_some(word.text.as_str());
            for folder in next.into_iter().chain(joined) {
                let folders_now = folders.clone();
                for base in folders_now {
                    // Without a `.`, so that a folder counts once.
                    let more: PathBuf = base
                        .join(folder)
                        .components()
                        .filter(|part| *part != Component::CurDir)
                        .collect();
                    if !folders.contains(&more) && folders.len() <= MOST_FOLDERS {
                        folders.push(more);
                    }
                }
            }
            before = &word.text;
        }
        folders
    }
}

/// Returns the files from which Python may load a module, or run it.
fn modules(name: &str) -> Vec<String> {
    let is_name =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !name.split('.').all(is_name) {
        return Vec::new();
    }
    let mut files = Vec::new();
    let mut package = String::new();
    for part in name.split('.') {
        package += part;
        files.push(format!("{package}.py"));
        files.push(format!("{package}/__init__.py"));
        files.push(format!("{package}/__main__.py"));
        package.push('/');
    }
    files
}

/// Looks at files of a workspace.
struct Look<'w> {
    workspace: &'w Workspace,
    /// The hashes of the files that were found, by their paths as rules name them.
    found: BTreeMap<String, String>,
    /// The folders that were found.
    folders: BTreeSet<PathBuf>,
    /// These, and the folders of the files.
    places: BTreeSet<PathBuf>,
    /// The bytes that may still be hashed.
    bytes: u64,
    /// The paths that may still be looked at.
    paths: usize,
    /// True if there was more to look at than may be.
    too_many: bool,
}

impl<'w> Look<'w> {
    fn new(workspace: &'w Workspace, bytes: u64) -> Self {
        let (found, folders, places) = Default::default();
        Self { workspace, found, folders, places, bytes, paths: MOST_PATHS, too_many: false }
    }

    /// Looks at what the words of a command name from some folders.
    fn named(&mut self, runs: &Runs, read: &Read, folders: &[PathBuf]) {
        self.too_many |= folders.len() > MOST_FOLDERS;
        let folders = folders.get(..MOST_FOLDERS).unwrap_or(folders);
        for (path, runs) in runs.named(read, folders) {
            self.at(&path, runs);
        }
    }

    /// Looks at one path. `runs` says that it runs whatever it is, and not only if it is a program.
    fn at(&mut self, path: &Path, runs: bool) {
        let Some(left) = self.paths.checked_sub(1) else {
            self.too_many = true;
            return;
        };
        self.paths = left;
        let Some(text) = path.to_str() else { return };
        let Ok(place) = self.workspace.place(text) else { return };
        let Ok(metadata) = place.metadata() else { return };
        if metadata.is_dir() {
            // Without a `.`, so that a folder counts once.
            let folder: PathBuf =
                path.components().filter(|part| *part != Component::CurDir).collect();
            self.folders.insert(folder.clone());
            self.places.insert(folder);
            return;
        }
        self.places.extend(path.parent().map(Path::to_owned));
        if runs && !metadata.is_file() {
            // Whoever fills a pipe decides what is read: a person is to see that it is one.
            self.found.insert(self.workspace.named(path), NOT_REGULAR.to_owned());
            return;
        }
        let is_program =
            |file: &std::fs::File| file.metadata().is_ok_and(|found| found.mode() & 0o111 != 0);
        let opened = place.open().ok().filter(|(file, _)| runs || is_program(file));
        let Some((file, _)) = opened else { return };
        let Ok(lies) = place.lies(&file) else { return };
        let name = self.workspace.named(&lies);
        if !self.found.contains_key(&name) {
            let hash = hash(file, &mut self.bytes).unwrap_or_default();
            self.found.insert(name, hash);
        }
    }
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

    /// A workspace with these files, each of which holds its own path.
    fn workspace_with(files: &[&str]) -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let workspace = Workspace::open(dir.path()).unwrap();
        (dir, workspace)
    }

    fn found(line: &str, workspace: &Workspace) -> Vec<String> {
        Runs::of_line(line).find(workspace).into_iter().map(|script| script.path).collect()
    }

    #[test]
    fn the_files_that_a_program_reads_by_itself_are_found() {
        let (_dir, workspace) = workspace_with(&[
            "Makefile",
            "sub/GNUmakefile",
            "sub/x.mk",
            "list",
            "package.json",
            "conftest.py",
            "pytest.ini",
            "tests/conftest.py",
            "tests/deep/test_a.py",
            "tool/__init__.py",
            "tool/gen.py",
            "data.csv",
            "gcc.args",
            "web/package.json",
        ]);
        for (line, expected) in [
            ("make", &["Makefile"] as &[&str]),
            ("gmake test", &["Makefile"]),
            ("make -j4 2>&1 | tail -n 5", &["Makefile"]),
            ("timeout 5 nice -n 1 make all", &["Makefile"]),
            ("cd sub && make", &["Makefile", "sub/GNUmakefile"]),
            ("make -C sub", &["Makefile", "sub/GNUmakefile"]),
            ("make -Csub", &["Makefile", "sub/GNUmakefile"]),
            ("make --directory=sub", &["Makefile", "sub/GNUmakefile"]),
            ("make -kC sub -fx.mk", &["Makefile", "sub/GNUmakefile", "sub/x.mk"]),
            ("make -C sub --file=x.mk", &["Makefile", "sub/GNUmakefile", "sub/x.mk"]),
            ("cd ./sub; cd .; make", &["Makefile", "sub/GNUmakefile"]),
            ("sh -c 'make'", &["Makefile"]),
            ("x=$(make)", &["Makefile"]),
            ("A=1 make", &["Makefile"]),
            ("xargs -a list rm", &["list"]),
            ("xargs -alist rm", &["list"]),
            ("xargs --arg-file=list rm", &["list"]),
            ("xargs rm < list", &["list"]),
            ("npm run x", &["package.json"]),
            ("npm --prefix web run x", &["package.json", "web/package.json"]),
            ("pytest", &["conftest.py", "pytest.ini"]),
            (
                "pytest -q tests/deep/test_a.py",
                &["conftest.py", "pytest.ini", "tests/conftest.py", "tests/deep/test_a.py"],
            ),
            ("python3 -m pytest tests", &["conftest.py", "pytest.ini", "tests/conftest.py"]),
            ("uv run pytest", &["conftest.py", "pytest.ini"]),
            ("python3 -m tool.gen", &["tool/__init__.py", "tool/gen.py"]),
            ("python3 -Im tool.gen", &["tool/__init__.py", "tool/gen.py"]),
            ("python3 -mtool", &["tool/__init__.py"]),
            ("tar -cf x.tar -T list", &["list"]),
            // What only names such a program runs nothing.
            ("git commit -m 'make and pytest work'", &[]),
            ("echo make", &[]),
            ("grep make data.csv", &[]),
        ] {
            assert_eq!(found(line, &workspace), expected, "{line}");
        }
        let argv = ["make", "-C", "sub"].map(str::to_owned);
        let of_tool = Runs::of_program(&argv, Path::new("")).find(&workspace);
        assert_eq!(of_tool.len(), 2, "{of_tool:?}");
        assert!(
            Runs::of_program(&["echo".to_owned(), "make".to_owned()], Path::new(""))
                .find(&workspace)
                .is_empty()
        );
    }

    #[test]
    fn a_file_that_appears_is_a_difference() {
        let (dir, workspace) = workspace_with(&["Makefile"]);
        let basis = |line: &str| {
            let scripts = Some(Runs::of_line(line).find(&workspace));
            Basis { scripts, ..Basis::default() }
        };
        for (line, file) in [
            ("make", "GNUmakefile"),
            ("pytest", "conftest.py"),
            ("pytest tests", "tests/conftest.py"),
            ("python3 -m json.tool", "json/tool.py"),
            ("just", "justfile"),
            ("npm test", ".npmrc"),
            ("cargo test", ".cargo/config.toml"),
        ] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let before = basis(line);
            fs::write(&path, "x").unwrap();
            let told = before.same_scripts(&Runs::of_line(line).find(&workspace)).unwrap_err();
            assert!(told.to_string().starts_with(&format!("`{file}` was changed")), "{told}");
            fs::remove_file(path).unwrap();
        }
        // A pipe is shown as what it is.
        let pipe = dir.path().join("sub");
        fs::create_dir_all(&pipe).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe.join("Makefile"), rustix::fs::Mode::RWXU)
            .unwrap();
        let scripts = Runs::of_line("make -C sub").find(&workspace);
        assert_eq!(
            (scripts[1].path.as_str(), scripts[1].short_hash()),
            ("sub/Makefile", NOT_REGULAR)
        );
    }

    #[test]
    fn what_cannot_be_bound_is_said() {
        let (_dir, workspace) = workspace_with(&["sub/x.sh", "sub/Makefile"]);
        for (line, expected) in [
            ("cargo test", &["cargo: what the workspace's build files and sources say"] as &[&str]),
            (
                "cd x && cargo test; npm t",
                &[
                    "cargo: what the workspace's build files and sources say",
                    "npm: what the scripts and settings of packages in the workspace name",
                ],
            ),
            ("python3 -m x", &["python3 -m: modules of the workspace"]),
            (
                "python3 -m pytest",
                &[
                    "pytest: the tests of the workspace and what they load",
                    "python3 -m: modules of the workspace",
                ],
            ),
            ("deploy now", &["deploy: files that it reads by itself, if it does"]),
            ("./deploy.sh now", &[]),
            ("sh deploy.sh; make; python3 x.py", &[]),
            ("ls -l | sort | xargs wc; git commit -m 'cargo test works'", &[]),
        ] {
            assert_eq!(Runs::of_line(line).unbound(&workspace), expected, "{line}");
        }
        let folders: String = (0..MOST_FOLDERS).map(|n| format!("cd a{n}; ")).collect();
        assert_eq!(Runs::of_line(&format!("{folders} make")).unbound(&workspace), [TOO_MANY]);
        // Steps that lead nowhere do not push a folder out of sight.
        let steps = "cd .; ".repeat(40);
        assert_eq!(found(&format!("{steps} cd sub; sh x.sh"), &workspace), ["sub/x.sh"]);
        assert_eq!(found(&format!("{steps} cd sub; make"), &workspace), ["sub/Makefile"]);
        let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let of_tool =
            |words: &[&str]| Runs::of_program(&argv(words), Path::new("")).unbound(&workspace);
        assert_eq!(of_tool(&["cargo", "test"]).len(), 1);
        assert_eq!(of_tool(&["timeout", "5", "cargo", "test"]).len(), 1);
        let many: String = (0..MOST_PATHS).map(|n| format!("a{n} ")).collect();
        assert_eq!(Runs::of_line(&format!("make {many}")).unbound(&workspace), [TOO_MANY]);
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
