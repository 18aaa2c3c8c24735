//! Finds the commands of a line whose programs lie where commands can write.
//!
//! A rule for `ls` is about the system's program. If `PATH` leads into the workspace first, an agent
//! may have put another program there: then only a rule that names its path allows it.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::NAME;
use crate::permission::{Deed, Subject};

/// Commands after which a relative folder of `PATH` is another one.
const MOVERS: [&str; 4] = ["cd", "chdir", "pushd", "popd"];

/// Names the programs that `PATH` finds in the workspace by their paths from `root`, and says so.
/// Blocks.
#[must_use]
pub fn locate(mut subject: Subject, path: &OsStr, root: &Path) -> Subject {
    let folders: Vec<PathBuf> = std::env::split_paths(path).collect();
    let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let is_mover = |deed: &Deed| MOVERS.iter().any(|mover| deed.program.as_deref() == Some(*mover));
    let moves = subject.deeds.iter().any(is_mover);
    for deed in subject.deeds.iter_mut().filter(|deed| deed.tool == NAME) {
        let Some(program) = deed.program.clone().filter(|program| !program.contains('/')) else {
            continue;
        };
        let Some(place) = place(&program, &folders, &real, moves && !is_mover(deed)) else {
            continue;
        };
        let rest = deed.texts.first().and_then(|text| text.strip_prefix(&program));
        deed.texts = vec![format!("{place}{}", rest.unwrap_or_default())];
        deed.spellings.clear();
        deed.reason.get_or_insert_with(|| {
            format!(
                "`{program}` is `{place}` here, where commands can write; a rule must name that"
            )
        });
        deed.program = Some(place);
    }
    subject
}

/// Returns the path of a program from the workspace if `PATH` may find it there.
fn place(program: &str, folders: &[PathBuf], root: &Path, moves: bool) -> Option<String> {
    for folder in folders {
        let is_relative = folder.is_relative();
        let file = root.join(folder).join(program);
        if !(file.is_file() || is_relative && moves) {
            continue;
        }
        let real = file.parent().and_then(|folder| folder.canonicalize().ok());
        let real = real.unwrap_or_else(|| root.join(folder));
        let inside = real.strip_prefix(root).ok();
        // The program of a relative folder may be found anywhere if the directory changes.
        let folder = inside.or_else(|| (is_relative && moves).then_some(folder.as_path()))?;
        let names = folder.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        let path: PathBuf = names.map(|name| name.into_owned()).collect();
        let path = path.join(program).to_string_lossy().into_owned();
        return Some(if path.contains('/') { path } else { format!("./{path}") });
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_in_the_workspace_is_named_by_its_path() {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, system) = (dir.path().join("work"), dir.path().join("system"));
        for file in ["work/.venv/bin/pytest", "work/bin/ls", "system/ls", "system/cat"] {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
            fs::write(file, "").expect("a file");
        }
        let venv = root.join(".venv/bin");
        let path = |folders: &[&Path]| std::env::join_paths(folders).expect("a path");
        let found = |commands: &[&str], path: &OsStr| {
            let deed = |text: &&str| Deed {
                tool: NAME.to_owned(),
                texts: vec![(*text).to_owned()],
                spellings: vec!["x".to_owned()],
                program: text.split(' ').next().map(str::to_owned),
                ..Deed::default()
            };
            let deeds = commands.iter().map(deed).collect();
            let subject = locate(Subject { deeds, ..Subject::default() }, path, &root);
            subject.deeds.last().expect("a deed").clone()
        };
        let both = path(&[&venv, &system]);
        let deed = found(&["pytest -q 'a b'"], &both);
        assert_eq!(deed.texts, [".venv/bin/pytest -q 'a b'"]);
        assert_eq!(deed.program.as_deref(), Some(".venv/bin/pytest"));
        assert!(deed.spellings.is_empty() && deed.reason.is_some());
        assert_eq!(found(&["ls -l"], &both).texts, ["ls -l"]);
        assert_eq!(found(&["./ls -l"], &both).texts, ["./ls -l"]);
        // The first folder counts, and a relative one is below the workspace.
        let relative = path(&[&system, Path::new("bin")]);
        assert_eq!(found(&["ls"], &relative).texts, ["ls"]);
        let relative = path(&[Path::new("bin"), &system]);
        assert_eq!(found(&["ls"], &relative).texts, ["bin/ls"]);
        assert_eq!(found(&["cat"], &relative).texts, ["cat"]);
        assert_eq!(found(&["cd x", "cat"], &relative).texts, ["bin/cat"]);
        fs::write(root.join("make"), "").expect("a file");
        assert_eq!(found(&["make all"], &path(&[Path::new("."), &system])).texts, ["./make all"]);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&venv, &link).expect("a link");
        assert_eq!(found(&["pytest"], &path(&[&link])).texts, [".venv/bin/pytest"]);
    }
}
