//! Tests of the table of what other programs run.

use super::*;

#[test]
fn protected_paths_are_found_at_any_depth() {
    for (path, program) in [
        (".git", Some("git")),
        (".git/config", Some("git")),
        (".git/config.worktree", Some("git")),
        (".git/hooks/pre-commit", Some("git")),
        (".git/info/attributes", Some("git")),
        (".git/commondir", Some("git")),
        (".git/worktrees/a/gitdir", Some("git")),
        (".git/modules/a/config", Some("git")),
        (".git/modules/libs/foo/config", Some("git")),
        (".git/modules/libs/foo/modules/bar/hooks/post-checkout", Some("git")),
        (".git/modules/libs/foo/info/attributes", Some("git")),
        ("libs/x/.git/config", Some("git")),
        ("libs/x/.git", Some("git")),
        (".GIT/config", Some("git")),
        ("a/.vscode/tasks.json", Some("an editor")),
        ("a.code-workspace", Some("an editor")),
        (".Idea/workspace.xml", Some("an editor")),
        ("x/.claude/settings.json", Some("a coding agent")),
        (".mcp.json", Some("a coding agent")),
        (".github/workflows/x.yml", Some("the CI service")),
        ("sub/Jenkinsfile", Some("the CI service")),
        (".husky/pre-commit", Some("a hook of git")),
        (".lintstagedrc.cjs", Some("a hook of git")),
        (".envrc", Some("direnv")),
        ("a/.hg/hgrc", Some("hg")),
        ("a/.hg/sharedpath", Some("hg")),
        (".hg/dirstate", None),
        ("a/.jj/repo/config.toml", Some("jj")),
        (".jj/workspace-config.toml", Some("jj")),
        (".jj/repo/op_store/type", None),
        (".jj", None),
        (".jj/repo", Some("jj")),
        ("a/.jj/repo/x", None),
        (".git/sl/config", Some("git")),
        (".git/sl/store/x", None),
        (".sl/config", Some("sl")),
        (".pijul/config", Some("pijul")),
        (".pijul/pristine/db", None),
        ("_darcs/prefs/defaults", Some("darcs")),
        (".bzr/branch/branch.conf", Some("bzr")),
        ("x/.repo/repo/main.py", Some("repo")),
        (".fossil-settings/tcl-setup", Some("fossil")),
        (".git/rebase-merge/git-rebase-todo", Some("git")),
        // A commit writes these.
        (".git/index", None),
        (".git/HEAD", None),
        (".git/refs/heads/config", None),
        (".git/objects/aa/bb", None),
        (".git/info/exclude", None),
        (".git/modules/libs/foo/index", None),
        // Names that only look alike.
        (".gitignore", None),
        ("src/hooks/config", None),
        ("config", None),
        ("vscode/tasks.json", None),
        (".vscode2/tasks.json", None),
        ("code-workspace", None),
        ("Makefile", None),
        ("", None),
    ] {
        assert_eq!(protected(Path::new(path)), program, "{path}");
    }
}

#[test]
fn file_tools_write_nothing_of_git() {
    for path in [".git", ".git/index", "a/.git/refs/heads/x", ".Git/objects/x", "b/.vscode/x"] {
        assert!(kept_from_file_tools(Path::new(path)).is_some(), "{path}");
    }
    for path in
        [".jj/repo/x", "a/.hg/dirstate", ".pijul/x", "_darcs/x", ".bzr/x", ".sl/x", ".repo/x"]
    {
        assert!(kept_from_file_tools(Path::new(path)).is_some(), "{path}");
    }
    for path in [".gitignore", ".github.md", "git/config", "Makefile", ".gitattributes"] {
        assert_eq!(kept_from_file_tools(Path::new(path)), None, "{path}");
    }
}

#[test]
fn what_is_only_reported_names_its_program() {
    for (path, program) in [
        ("Makefile", Some("make")),
        ("makefile", Some("make")),
        ("sub/dir/GNUmakefile", Some("make")),
        ("rules.mk", Some("make")),
        ("build.rs", Some("cargo")),
        (".cargo/config.toml", Some("cargo")),
        ("package.json", Some("npm")),
        (".yarnrc.yml", Some("yarn")),
        ("vite.config.ts", Some("a tool of JavaScript")),
        ("conftest.py", Some("pytest")),
        ("build.gradle.kts", Some("gradle")),
        (".mvn/jvm.config", Some("maven")),
        ("Dockerfile.dev", Some("docker")),
        ("docker-compose.prod.yaml", Some("docker")),
        ("compose.yml", Some("docker")),
        ("CLAUDE.local.md", Some("a coding agent")),
        ("a/.cursorrules", Some("a coding agent")),
        ("libs/.gitattributes", Some("git")),
        (".gitmodules", Some("git")),
        ("main.rs", None),
        ("README.md", None),
        ("Makefile.d/x", None),
        (".env.d/x", None),
        ("rules", None),
        ("package.json.md", None),
    ] {
        let found = run_by(Path::new(path));
        assert_eq!(found.map(|found| found.program), program, "{path}");
        assert!(found.is_none_or(|found| !found.protected), "{path}");
    }
    let hook = RunBy { program: "git", protected: true };
    assert_eq!(run_by(Path::new("x/.git/hooks/a")), Some(hook));
}

#[test]
fn a_root_that_names_a_protected_path_or_holds_one_of_git_lifts_its_protection() {
    for path in [".git", ".git/hooks", ".git/info", ".git/modules/a", "x/.git/config", ".vscode/a"]
    {
        assert!(lifts(Path::new(path)), "{path}");
    }
    for path in ["src", ".git/objects", ".git/refs/heads", "Makefile", ""] {
        assert!(!lifts(Path::new(path)), "{path}");
    }
}

#[test]
fn names_that_are_not_text_are_compared_too() {
    use std::os::unix::ffi::OsStrExt;
    let odd = |bytes: &'static [u8]| Path::new(OsStr::from_bytes(bytes));
    assert_eq!(protected(odd(b"\xff/.git/hooks/\xfe")), Some("git"));
    assert_eq!(protected(odd(b".git/modules/\xff/config")), Some("git"));
    assert!(run_by(odd(b"Dockerfile\xff")).is_some());
    assert_eq!(run_by(odd(b"\xffDockerfile")), None);
}

#[test]
fn every_row_is_found_by_its_own_name_and_stands_once() {
    for named in PROTECTED {
        assert_eq!(protected(Path::new(named.path)), Some(named.program), "{}", named.path);
        assert_eq!(PROTECTED.iter().filter(|other| other.path == named.path).count(), 1);
    }
    for path in TRUSTED {
        assert!(protected(Path::new(path)).is_some(), "{path}");
    }
    for (pattern, _) in REPORTED {
        let name = pattern.replace('*', "x");
        assert!(run_by(Path::new(&name)).is_some(), "{name}");
    }
}

#[test]
fn what_is_not_protected_but_run_is_told() {
    for path in [
        "docs/agents.toml",
        "x/.junie/guidelines.md",
        "lefthook.toml",
        ".mise/config.toml",
        ".config/nextest.toml",
        "infra/main.tf",
        "AGENT.md",
        "a/.pdbrc",
        ".build.yml",
    ] {
        assert!(run_by(Path::new(path)).is_some_and(|by| !by.protected), "{path}");
    }
    assert_eq!(run_by(Path::new("build/x")), None);
}

#[test]
fn a_folder_becomes_a_repository_by_its_last_mark_in_any_order() {
    let find = |there: &[&str], path: &str| {
        let exists = |path: &Path| there.iter().any(|other| Path::new(other).starts_with(path));
        within_repository(Path::new(path), exists).map(|folder| folder.display().to_string())
    };
    let marks = ["a/HEAD", "a/objects/x", "a/refs/x"];
    for last in marks {
        let others: Vec<_> = marks.into_iter().filter(|mark| *mark != last).collect();
        assert_eq!(find(&others, last).as_deref(), Some("a"), "{last}");
        assert_eq!(find(&others[..1], last), None, "{last}");
    }
    assert_eq!(find(&["a/HEAD"], "a/commondir").as_deref(), Some("a"));
    assert_eq!(find(&["a/commondir"], "a/HEAD").as_deref(), Some("a"));
    // In one that is there, what decides is found, and nothing else.
    for path in ["a/config", "a/hooks/pre-commit", "a/info/attributes", "a/HEAD", "a/objects/y"] {
        assert_eq!(find(&marks, path).as_deref(), Some("a"), "{path}");
    }
    for path in ["a/README", "a/b/config", "config", "b/HEAD", "HEAD"] {
        assert_eq!(find(&marks, path), None, "{path}");
    }
    // The workspace itself may be one, and one may lie in another.
    assert_eq!(find(&["HEAD", "objects/x", "refs/x"], "config").as_deref(), Some(""));
    let inner = ["a/refs/HEAD", "a/refs/objects/x"];
    assert_eq!(find(&inner, "a/refs/refs/x").as_deref(), Some("a/refs"));
    assert_eq!(find(&["a/HEAD"], "a/Refs/x"), None);
}
