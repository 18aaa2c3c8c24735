//! Finds what a hook that judges the calls of models runs and reads in the workspace: a model that
//! could change it would be its own judge.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::spec::hooks::named_paths;

/// Returns what must not change for a judge with this command in the workspace `root`: each file and
/// folder that the command names, and the folder of its program with all that lies there, which it may
/// load.
///
/// For a program directly in `root`, that folder would be the whole workspace: only the program itself
/// is kept then.
pub(super) fn kept(argv: &[String], root: &Path) -> Vec<PathBuf> {
    // What a link leads to is what is loaded, from the folder in which it lies.
    let Ok(real_root) = root.canonicalize() else { return Vec::new() };
    let is_below = |path: &Path| path.starts_with(&real_root) && path != real_root;
    let (mut found, mut has_program) = (BTreeSet::new(), false);
    for named in named_paths(argv) {
        let written = root.join(&named.path);
        let Ok(real) = written.canonicalize() else { continue };
        // The place of the name counts too: another file could be put there.
        let place = written.parent().and_then(|parent| parent.canonicalize().ok());
        let own = place.iter().zip(written.file_name()).map(|(place, name)| place.join(name));
        let mut both: Vec<PathBuf> =
            own.chain([real.clone()]).filter(|path| is_below(path)).collect();
        if both.is_empty() {
            continue;
        }
        // The first file is the program: what stands before it are interpreters and their options.
        if real.is_file() && (named.in_shell_text || !has_program) {
            has_program = true;
            let folders = both.iter().filter_map(|path| path.parent()).map(Path::to_owned);
            let folders: Vec<_> = folders.filter(|folder| is_below(folder)).collect();
            both.extend(folders);
        }
        found.extend(both);
        // The folders before a `..` can be exchanged too.
        if Path::new(&named.path).iter().any(|part| part == "..") {
            found.insert(written);
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_judge_is_kept_with_all_that_it_loads() {
        let workspace = tempfile::tempdir().unwrap();
        let root = workspace.path().canonicalize().unwrap();
        for file in
            ["hooks/policy.py", "hooks/rules.json", "conf/rules.json", "top.py", "lib/real.py"]
        {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        fs::create_dir_all(root.join("lib/rules")).unwrap();
        symlink("../lib/real.py", root.join("hooks/link.py")).unwrap();
        symlink("/etc/passwd", root.join("out")).unwrap();
        let program = root.join("hooks/policy.py").display().to_string();
        for (argv, expected) in [
            (&["./hooks/policy.py"][..], &["hooks", "hooks/policy.py"][..]),
            (&[&program], &["hooks", "hooks/policy.py"]),
            (&["python3", "hooks/policy.py"], &["hooks", "hooks/policy.py"]),
            (&["python3", "-m", "hooks.policy"], &["hooks", "hooks/policy.py"]),
            (
                &["python3", "hooks/policy.py", "--rules=conf/rules.json", "lib/rules"],
                &["conf/rules.json", "hooks", "hooks/policy.py", "lib/rules"],
            ),
            (
                &["sh", "-c", "cat top.py | hooks/policy.py"],
                &["hooks", "hooks/policy.py", "top.py"],
            ),
            (&["python3", "hooks/link.py"], &["hooks", "hooks/link.py", "lib", "lib/real.py"]),
            (&["python3", "top.py"], &["top.py"]),
            (&["python3", "hooks/../top.py", "."], &["hooks/../top.py", "top.py"]),
            // The name can be put elsewhere, what it leads to cannot.
            (&["cat", "out"], &["out"]),
            (&["true", "/etc/passwd", "..", "gone"], &[]),
        ] {
            let argv: Vec<_> = argv.iter().map(ToString::to_string).collect();
            let expected: Vec<_> = expected.iter().map(|path| root.join(path)).collect();
            assert_eq!(kept(&argv, &root), expected, "{argv:?}");
        }
    }
}
