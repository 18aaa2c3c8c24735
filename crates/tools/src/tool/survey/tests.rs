//! Tests of the walk and of the watch.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::time::Instant;

use super::watch::Watch;
use std::fs;

use super::*;
use crate::id::AgentId;
use crate::output::Stored;
use crate::redaction::Secrets;
use crate::spec::run_by_others::ChangeOfFile;
use crate::store::Store;

fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// All paths that are protected, and what was left out.
fn all(found: Protected) -> (Vec<PathBuf>, Option<String>) {
    ([found.paths, found.unseen].concat(), found.left_out)
}

fn protected(root: &Path) -> Vec<String> {
    let inner = |path: PathBuf| path.strip_prefix(root).unwrap().display().to_string();
    all(find_protected(root)).0.into_iter().map(inner).collect()
}

#[test]
fn every_form_of_git_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for path in [
        ".git/HEAD",
        ".git/hooks/pre-commit",
        ".git/info/attributes",
        ".git/modules/libs/foo/config",
        ".git/modules/libs/foo/hooks/post-checkout",
        ".git/modules/refs/HEAD",
        ".git/modules/refs/config",
        "a/b/c/.git/config",
        "node_modules/p/.git/config",
        "bare/HEAD",
        "bare/refs/x",
        "bare/objects/x",
        "bare/config",
        "real/config",
        "real/hooks/x",
        "common/config",
        "scripts/clean.sh",
        "scripts/monitor",
        "hooks/config",
        ".jj/repo/config.toml",
        ".jj/repo/index/x",
        "a/.hg/sharedpath",
        ".pijul/config",
    ] {
        write(root, path, "");
    }
    write(
        root,
        ".git/config",
        "[core] fsmonitor = ./scripts/monitor\n  hooksPath = my/hooks\n[include]\n path = \"../more\"\n\
         [filter \"x\"]\n clean = sh scripts/clean.sh %f\n[includeIf \"gitdir:x\"] path = /etc/passwd\n",
    );
    write(root, "more", "[diff \"y\"]\n textconv = \\\n scripts/text\n[include]\npath = more\n");
    write(root, "scripts/text", "");
    write(root, "tree/.git", "gitdir: ../real\n");
    write(root, "real/commondir", "../common\n");
    let found = protected(root);
    for path in [
        ".git/config",
        ".git/hooks",
        ".git/info/attributes",
        ".git/modules/libs/foo/config",
        ".git/modules/libs/foo/hooks",
        ".git/modules/refs/config",
        "a/b/c/.git/config",
        "node_modules/p/.git/config",
        "bare/config",
        ".jj/repo/config.toml",
        "a/.hg/sharedpath",
        ".pijul/config",
        "tree/.git",
        "real/config",
        "real/hooks",
        "real/commondir",
        "common/config",
        "scripts/clean.sh",
        "scripts/monitor",
        "scripts/text",
        "my/hooks",
        "more",
    ] {
        assert!(found.iter().any(|other| other == path), "{path}: {found:?}");
    }
    assert!(!found.iter().any(|path| path.starts_with("hooks") || path.contains("passwd")));
}

#[test]
fn odd_files_neither_stop_nor_mislead_a_walk() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    symlink("/", root.join("all")).unwrap();
    symlink(".", root.join("loop")).unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    symlink("/dev/zero", root.join(".git/config")).unwrap();
    fs::create_dir_all(root.join("b/.git")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("b/.git/config"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    write(root, "c/.git", "gitdir: ../../../../../../etc\n");
    write(root, "d/.git/commondir", ".\n");
    let found = protected(root);
    let expected = ["b/.git/config", "c/.git", "d/.git/commondir", ".git/config"];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    assert!(expected.iter().all(|path| found.iter().any(|other| other == path)), "{found:?}");
    assert!(Survey::of(root).complete);
    let mut deep = root.join("deep");
    for _ in 0..DEPTH + 2 {
        deep = deep.join("d");
    }
    fs::create_dir_all(&deep).unwrap();
    assert!(!Survey::of(root).complete);
}

#[test]
fn no_name_hides_a_repository_from_a_walk() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let places = ["x/.transcripts/y", "x/objects/sub", "y/refs", ".transcripts/run/agents"];
    for place in places {
        write(root, &format!("{place}/.git/config"), "[core]\n");
    }
    // Decoys that make `x` and `y` look like folders of git.
    for decoy in ["x/HEAD", "x/refs/a", "y/HEAD", "y/objects/a"] {
        write(root, decoy, "");
    }
    let found = protected(root);
    for place in &places[..3] {
        assert!(found.contains(&format!("{place}/.git/config")), "{place}: {found:?}");
    }
    // The records are protected as a whole, here and in projects below.
    for records in [".transcripts", "x/.transcripts"] {
        assert!(found.contains(&records.to_owned()), "{found:?}");
    }
    assert!(!found.iter().any(|path| path.starts_with(".transcripts/")), "{found:?}");
}

#[test]
fn settings_that_include_each_other_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let all =
        |up: &str| -> String { (0..60).map(|n| format!("[include]\npath = {up}a{n}\n")).collect() };
    for n in 0..60 {
        write(root, &format!("a{n}"), &all(""));
    }
    write(root, ".git/config", &all("../"));
    let began = Instant::now();
    let found = protected(root);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert!(found.contains(&"a0".to_owned()), "{found:?}");
}

#[test]
fn a_folder_that_cannot_be_read_makes_a_walk_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o311)).unwrap();
    // Root reads it all the same.
    assert_eq!(Survey::of(dir.path()).complete, fs::read_dir(&closed).is_ok());
}

#[test]
fn decoys_lift_no_protection() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let mut survey = Survey { complete: true, ..Survey::default() };
    for at in 0..FOUND + 10 {
        let by = RunBy { program: "make", protected: false };
        survey.note(PathBuf::from(format!("a/{at}.mk")), by);
    }
    survey.note("pkg/.envrc".into(), RunBy { program: "direnv", protected: true });
    let (paths, left_out) = all(protected_in(root, survey));
    assert_eq!(paths, [root.join("pkg/.envrc")]);
    assert!(left_out.is_some());
    // More files than a walk looks at: what it did not look into is kept as a whole, and said.
    for at in 0..30 {
        write(root, &format!("a/{at}"), "");
    }
    write(root, "pkg/app/.envrc", "");
    write(root, "target/x", "");
    let survey = Survey::within(root, &mut Listings::default(), 20);
    let (paths, left_out) = all(protected_in(root, survey));
    assert!(paths.contains(&root.join("a")), "{paths:?}");
    assert!(["pkg", "pkg/app"].iter().any(|path| paths.contains(&root.join(path))), "{paths:?}");
    assert!(!paths.contains(&root.join("target")), "{paths:?}");
    assert!(left_out.is_some_and(|text| text.contains("\"a\"")));
    assert!(find_protected(root).left_out.is_none());
}

#[test]
fn names_in_packages_lift_no_protection_and_what_was_not_seen_of_packages_is_protected() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let mut survey = Survey { complete: true, ..Survey::default() };
    let by = RunBy { program: "direnv", protected: true };
    for at in 0..PROTECTED + 10 {
        survey.note(PathBuf::from(format!("target/{at}/.envrc")), by);
    }
    survey.note("pkg/.envrc".into(), by);
    survey.note("target/hooks".into(), git::BY);
    let (found, _) = all(protected_in(root, survey));
    assert_eq!(found, [root.join("pkg/.envrc"), root.join("target/hooks")]);
    // Packages have a bound of their own, and the outermost folder stands for what was left out.
    for at in 0..30 {
        write(root, &format!("node_modules/p/{at}"), "");
        write(root, &format!("vendor/p/{at}/x"), "");
    }
    write(root, "vendor/p/last/.git/config", "");
    write(root, "src/deep/.envrc", "");
    let paths = |most| {
        let survey = Survey::within(root, &mut Listings::default(), most);
        (survey.complete, all(protected_in(root, survey)).0)
    };
    let (complete, found) = paths(20);
    assert!(!complete && found.contains(&root.join("src/deep/.envrc")), "{found:?}");
    assert!(found.contains(&root.join("vendor")), "{found:?}");
    let (complete, found) = paths(60);
    assert!(complete && found.contains(&root.join("vendor/p/last/.git/config")), "{found:?}");
    assert!(!found.contains(&root.join("vendor")));
}

#[test]
fn settings_of_git_are_found_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let (root, out) = (dir.path().canonicalize().unwrap().join("ws"), dir.path().join("out"));
    let root = root.as_path();
    for file in ["m/one.py", "m/two/x.py", "top/run.sh", "own/run.sh", "tools/x.sh"] {
        write(root, file, "");
    }
    let tabs = "[includeIf\t\"gitdir:x\"]\n path = ../tabs\n[init]\n templateDir = t/emplate\n";
    write(root, ".git/config", tabs);
    write(root, ".git/sequencer/todo", "pick x\n");
    write(root, "tabs", &format!("{}[core]\n hooksPath = long\n", "# x\n".repeat(100_000)));
    write(&out, "repo/config", "[core]\n hooksPath = scripts/hooks\n[include]\n path = ../more\n");
    write(
        &out,
        "more",
        "[filter \"x\"]\n clean = python3 -m m.one\n smudge = python -m m.two x\n[diff \"x\"]\n \
         command = $(git rev-parse --show-toplevel)/top/run.sh\n textconv = \"${PWD}/own/run.sh\"\n",
    );
    write(&out, "linked/config", "[core]\n fsmonitor = tools/x.sh\n");
    write(root, "w/.git", &format!("gitdir: {}\n", out.join("repo").display()));
    for file in ["m/one.py", "m/two/x.py", "top/run.sh", "own/run.sh"] {
        write(root, &format!("w/{file}"), "");
    }
    symlink("../../out/linked", root.join("l.git")).unwrap();
    fs::create_dir(root.join("l")).unwrap();
    write(root, "l/tools/x.sh", "");
    symlink("../../out/linked", root.join("l/.git")).unwrap();
    let found = protected(root);
    for path in [
        "long",
        "t/emplate",
        ".git/sequencer",
        "w/scripts/hooks",
        "w/m/one.py",
        "w/m/two",
        "w/top/run.sh",
        "w/own/run.sh",
        "l/.git",
        "l/tools/x.sh",
    ] {
        assert!(found.iter().any(|other| other == path), "{path}: {found:?}");
    }
    assert!(found.iter().all(|path| !path.contains("out/")), "{found:?}");
}

#[test]
fn a_folder_that_cannot_be_read_is_protected_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(root, "pkg/app/.envrc", "");
    write(root, "sub/.git/config", "");
    for (path, mode) in [("pkg", 0o000), ("pkg", 0o300), ("pkg", 0o600), ("sub/.git", 0o000)] {
        let closed = root.join(path);
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        let (paths, left_out) = all(find_protected(root));
        let is_closed = is_closed(&closed);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        // Root reads it all the same.
        assert_eq!(paths.contains(&closed), is_closed, "{path} {mode:o}");
        assert_eq!(left_out.is_some(), is_closed, "{path} {mode:o}");
    }
}

#[test]
fn values_of_git_are_read_as_git_does() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for file in ["comment", "quotes in/x", "more", "tools/c.sh", "deep/er/d.sh", "hook.sh"] {
        write(root, file, "");
    }
    let beside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root, beside.path().join("proj")).unwrap();
    write(root, ".git/rebase-merge/git-rebase-todo", "exec ./x\n");
    write(
        root,
        ".git/config",
        "[core]\n hooksPath = scripts/h # mine\n attributesFile = \"quotes in\"/x ; it\n[include]\n path = \
         ../more # again\n[filter \"z\"]\n clean = cd tools && ./c.sh\n smudge = \"cd deep; cd er; sh ./d.sh\"\n\
         [hook \"x\"]\n command = ./hook.sh\n",
    );
    let linked = format!("[core]\n hooksPath = {}/proj/not/there\n", beside.path().display());
    write(root, "sub/.git/config", &linked);
    let found = protected(root);
    for path in [
        "scripts/h",
        "quotes in/x",
        "more",
        ".git/rebase-merge",
        "tools/c.sh",
        "deep/er/d.sh",
        "hook.sh",
        "not/there",
    ] {
        assert!(found.iter().any(|other| other == path), "{path}: {found:?}");
    }
}

#[test]
fn a_folder_whose_objects_lie_elsewhere_is_a_repository_too() {
    for (at, path) in [("", "config"), ("x/", "x/config")] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, &format!("{at}HEAD"), "ref: refs/heads/main\n");
        write(root, &format!("{at}config"), "");
        assert!(!protected(root).contains(&path.into()), "HEAD alone is a file");
        write(root, &format!("{at}commondir"), "y\n");
        write(root, &format!("{at}y/config"), "[core]\n hooksPath = h\n");
        let found = protected(root);
        for path in [path, &format!("{at}commondir"), &format!("{at}y/config")] {
            assert!(found.iter().any(|other| other == path), "{path}: {found:?}");
        }
    }
}

#[test]
fn a_watch_tells_what_was_made_changed_and_removed_and_by_whom() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("ws");
    let run = dir.path().join("run");
    for path in ["Makefile", "gone/package.json", "src/main.rs", ".git/config", "same/Makefile"] {
        write(&root, path, "before\n");
    }
    fs::create_dir_all(run.join("results")).unwrap();
    let store = Arc::new(Store::new(run.join("spool"), run.join("results")));
    let new = || Watch::new(root.clone(), run.clone(), store.clone(), Secrets::default());
    let (first, one, two) = (new(), AgentId::from_text("one"), AgentId::from_text("two"));
    assert!(first.ended(Some(&one)).is_empty(), "nothing was looked at yet");
    assert!(!first.note(Some(&one)));
    first.begin();
    assert!(first.note(Some(&two)));
    write(&root, "Makefile", "after\n");
    write(&root, "same/Makefile", "before\n");
    write(&root, "new/.git/hooks/pre-push", "evil\n");
    write(&root, "new/.git/hooks/pre-push.sample", "no\n");
    write(&root, "src/main.rs", "not run by others\n");
    fs::remove_file(root.join("gone/package.json")).unwrap();
    let changes = first.ended(Some(&one));
    let told: Vec<_> =
        changes.iter().map(|c| (c.path.as_str(), c.change, c.program.as_str())).collect();
    let expected = [
        ("Makefile", ChangeOfFile::Changed, "make"),
        ("new/.git/hooks/pre-push", ChangeOfFile::Made, "git"),
        ("gone/package.json", ChangeOfFile::Removed, "npm"),
    ];
    assert_eq!(told, expected);
    assert!(changes.iter().all(|change| change.or_by == [two.clone()]));
    let kept = |stored: &Option<Stored>| {
        fs::read_to_string(store.path_of(stored.as_ref().unwrap())).unwrap()
    };
    assert_eq!(
        (kept(&changes[0].before), kept(&changes[0].after)),
        ("before\n".into(), "after\n".into())
    );
    assert!(first.ended(Some(&two)).is_empty(), "each change is told once");
    // What was changed when a process died is told by the next one.
    fs::set_permissions(root.join(".git/config"), fs::Permissions::from_mode(0o755)).unwrap();
    let second = new();
    assert!(second.concerns(&two));
    let changes = second.ended(Some(&two));
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].path.as_str(), &changes[0].or_by[..]), (".git/config", &[][..]));
}

#[test]
#[ignore = "makes 100,000 files: about 10 s"]
fn a_walk_of_a_large_tree_is_fast() {
    let dir = tempfile::tempdir().unwrap();
    for folder in 0..1_000 {
        let folder = dir.path().join(format!("{}/{folder}", folder % 30));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..100 {
            fs::write(folder.join(format!("source_{file}.rs")), "").unwrap();
        }
    }
    let walk = |known: &mut Listings| {
        let began = Instant::now();
        assert!(Survey::again(dir.path(), known).complete);
        began.elapsed()
    };
    let mut known = Listings::default();
    walk(&mut known);
    // Folders that were made just now are read again: only time makes them known.
    std::thread::sleep(super::listings::AT_REST);
    let first = walk(&mut known);
    let again = (0..5).map(|_| walk(&mut known)).min().unwrap();
    println!("100,000 files in 1,031 folders: {first:?}, and again {again:?}");
    assert!(first.as_secs() < 5, "{first:?}");
    assert!(again * 5 < first, "{again:?} beside {first:?}");
}

#[test]
fn a_watch_tells_names_apart_and_keeps_room_for_what_is_protected() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let (root, run) = (dir.path().join("ws"), dir.path().join("run"));
    fs::create_dir_all(run.join("results")).unwrap();
    fs::create_dir_all(root.join(".vscode")).unwrap();
    for at in 0..FOUND + 5 {
        fs::write(root.join(format!("{at}.mk")), "").unwrap();
    }
    let named = |name: &[u8]| root.join(".vscode").join(OsStr::from_bytes(name));
    fs::write(named(b"a\xff"), "one").unwrap();
    fs::write(named(b"a\xfe"), "two").unwrap();
    let store = Arc::new(Store::new(run.join("spool"), run.join("results")));
    let watch = Watch::new(root.clone(), run, store, Secrets::default());
    watch.begin();
    fs::write(named(b"a\xff"), "new").unwrap();
    fs::write(named(b"x.sample"), "").unwrap();
    let changes = watch.ended(None);
    let told: Vec<_> = changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(told, [".vscode/a\\xff", ".vscode/x.sample"]);
    assert!(watch.is_incomplete());
}

#[test]
fn records_of_runs_are_protected_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let run = |last: u32| format!("01a216e9-9168-7131-9669-{last:012}");
    for (folder, last) in [("sub/runs/", 1), ("sub/runs/", 2), ("notes/", 3), ("", 4)] {
        write(root, &format!("{folder}{}/journal.jsonl", run(last)), "{}");
    }
    write(root, "notes/text.md", "");
    write(root, &format!("other/{}/file", run(5)), "");
    let found = protected(root);
    // Records of later runs will lie beside those where nothing else does.
    let wanted = ["sub/runs".to_owned(), format!("notes/{}", run(3)), run(4)];
    for path in &wanted {
        assert!(found.contains(path), "{path}: {found:?}");
    }
    assert!(
        !found.iter().any(|path| ["notes", "other", "sub", ""].contains(&path.as_str())),
        "{found:?}"
    );
    assert!(!found.iter().any(|path| path.starts_with("other/")), "{found:?}");
}
