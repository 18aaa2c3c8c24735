//! Files that other programs run: a run tells who changed them, and a person can look at a repository
//! after a run without running what was planted in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::desk::Desk;

const SCRIPT: &str = r#"
[[rules]]
agent = "a"
turn = 1
[[rules.calls]]
tool = "bash"
input = { command = "printf 'all:\\n\\techo new\\n' > Makefile; mkdir -p lib/.git/hooks; echo evil > lib/.git/hooks/pre-push; echo x > notes.txt; echo KEY=secret-value-1 > .env" }
[[rules]]
say = "done"
"#;

#[test]
fn a_run_tells_which_files_that_other_programs_run_were_changed_and_by_whom() {
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['bash']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
         [tasks.two]\ndepends_on = ['one']\nrun = 'rm package.json'\n";
    let desk = Desk::offline(rest, SCRIPT);
    desk.write("Makefile", "all:\n\techo old\n");
    desk.write("package.json", "{}\n");
    let summary = desk.good(&["run", "--sandbox", "danger-full-access"]);
    let lines = [
        "Makefile  changed by one; run or trusted by make",
        "lib/.git/hooks/pre-push  made by one; run or trusted by git",
        ".env  made by one; run or trusted by a program that reads .env",
        "package.json  removed by two; run or trusted by npm",
    ];
    let report = desk.good(&["report"]);
    let page = desk.good(&["report", "--format", "html"]);
    let (shown, changes) = (desk.good(&["show"]), desk.good(&["show", "--changes"]));
    for line in lines {
        for text in [&summary, &shown, &changes, &page] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
    assert!(report.contains("Changed files that other programs run"), "{report}");
    for line in ["-\techo old", "+\techo new", "+evil", "-{}"] {
        assert!(changes.contains(&format!("\n{line}")), "{line}: {changes}");
    }
    assert!(!changes.contains("secret-value-1") && !summary.contains("notes.txt"), "{changes}");
    let document = &desk.json(&["report", "--format", "json"])[0]["run_by_others"];
    assert_eq!(document.as_array().map(Vec::len), Some(4), "{document}");
    assert_eq!(document[0]["by"], serde_json::json!(["one"]));
}

/// The commands that the documentation recommends for looking at a repository after a run. `$before` is
/// the commit that was looked up before the run.
const LOOK: &str = r#"
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
look=$(mktemp -d)
git -C "$look" init -q
echo "$PWD/.git/objects" > "$look/.git/objects/info/alternates"
clean="git --no-pager --git-dir=$look/.git --work-tree=$PWD"
$clean read-tree "$before"
$clean diff --no-ext-diff --no-textconv --ignore-submodules=all
$clean ls-files --others --directory
"#;

fn sh(dir: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .env("HOME", dir.parent().expect("a folder"))
        .env("GIT_PAGER_IN_USE", "false")
        .output()
        .expect("a shell");
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

/// Attacks on whoever looks at a repository: commands that plant one, and whether a plain look runs it.
/// `$evil` is a program that leaves a mark.
const PLANTS: [(&str, &str, bool); 12] = [
    ("fsmonitor", "git config core.fsmonitor $evil", true),
    ("filter", "git config filter.x.clean $evil; echo '* filter=x' > .gitattributes", true),
    ("process", "git config filter.x.process $evil; echo '* filter=x' > .gitattributes", true),
    ("external diff", "git config diff.external $evil", true),
    ("diff command", "git config diff.x.command $evil; echo '* diff=x' > .gitattributes", true),
    ("textconv", "git config diff.x.textconv $evil; echo '* diff=x' > .gitattributes", true),
    (
        "hooks in the workspace",
        "git config core.hooksPath hooks; mkdir hooks; cp $evil hooks/post-index-change",
        true,
    ),
    ("a hook", "mkdir -p .git/hooks; cp $evil .git/hooks/post-index-change", true),
    (
        "included settings",
        "git config include.path ../more; git config -f more core.fsmonitor $evil",
        true,
    ),
    (
        "commondir",
        "mkdir c; cp -r .git/objects .git/refs .git/config c/; echo ../c > .git/commondir; \
         git config -f c/config filter.x.clean $evil; echo '* filter=x' > .gitattributes",
        true,
    ),
    (
        "info/attributes",
        "git config filter.x.clean $evil; mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
        true,
    ),
    ("a nested repository", "git -C sub config core.fsmonitor $evil; echo y > sub/f", true),
];

#[test]
fn looking_at_a_repository_after_a_run_runs_nothing_that_was_planted() {
    for (name, plant, runs) in PLANTS {
        let dir = tempfile::tempdir().expect("a folder");
        let (work, evil) = (dir.path().join("work"), dir.path().join("evil"));
        fs::create_dir(&work).expect("a folder");
        let mark = dir.path().join("MARK");
        fs::write(&evil, format!("#!/bin/sh\ntouch {}\nexit 1\n", mark.display()))
            .expect("written");
        fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).expect("set");
        let settings = "git config user.name a; git config user.email a@b.example";
        sh(
            &work,
            &format!(
                "git init -q sub; cd sub; {settings}; echo x > f; git add f; git commit -qm s; cd ..; \
                 git init -q; {settings}; echo old > file; git add file sub; git commit -qm first"
            ),
        );
        let before = sh(&work, "git rev-parse HEAD");
        assert_eq!(before.trim().len(), 40, "{name}: {before}");
        sh(&work, &format!("evil={}; echo new > file; {plant}; echo made > made", evil.display()));
        let _ = fs::remove_file(&mark);
        let seen = sh(&work, &format!("before={}; {LOOK}", before.trim()));
        assert!(!mark.exists(), "{name}: a planted program ran: {seen}");
        assert!(seen.contains("+new") && seen.contains("-old"), "{name}: {seen}");
        assert!(seen.lines().any(|line| line == "made"), "{name}: {seen}");
        // The plant works: otherwise the test would show nothing.
        let plain = sh(&work, "git status; git --no-pager diff");
        assert_eq!(mark.exists(), runs, "{name}: {plain}");
    }
}
