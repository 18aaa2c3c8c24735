//! Files that other programs run: a run tells who changed them, and a person can look at a repository
//! after a run without running what was planted in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::desk::Desk;

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
        "Makefile  changed while one worked; run or trusted by make",
        "lib/.git/hooks/pre-push  made while one worked; run or trusted by git",
        ".env  made while one worked; run or trusted by a program that reads .env",
        "package.json  removed while two worked; run or trusted by npm",
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

/// Two looks at a folder do not tell who changed it between them; a call that says so does.
#[test]
fn a_change_by_a_person_is_not_said_to_be_that_of_a_command() {
    const CALL: &str = "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'write_file'\n\
        input = { path = 'Makefile', content = 'all:\\n' }\n[[rules]]\nsay = 'done'\n";
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['write_file']\n\
        [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
        [tasks.two]\ndepends_on = ['one']\nrun = 'touch ready; while [ -e ready ]; do sleep 0.01; done'\n";
    let desk = Desk::offline(rest, CALL);
    let person = desk.path().to_owned();
    let person = std::thread::spawn(move || {
        let by = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while !person.join("ready").exists() && std::time::Instant::now() < by {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::fs::write(person.join("package.json"), "{}\n").expect("written");
        std::fs::remove_file(person.join("ready")).expect("removed");
    });
    let summary = desk.good(&["run", "--sandbox", "danger-full-access"]);
    person.join().expect("it ends");
    for line in [
        "Makefile  made by one; run or trusted by make",
        "package.json  made while two worked; run or trusted by npm",
        "by it, or by another process",
    ] {
        assert!(summary.contains(line), "{line}: {summary}");
    }
}

/// The commands that the documentation recommends for looking at a repository after a run. `$before` is
/// the commit that was looked up before the run.
const LOOK: &str = r#"
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
look=$(mktemp -d)
git -C "$look" init -q
echo "$PWD/.git/objects" > "$look/.git/objects/info/alternates"
clean="git --no-pager --git-dir=$look/.git --work-tree=$PWD"
$clean fsck --full --no-dangling --no-progress
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

/// The attack that makes what is there look like what was there: git does not compare the contents of an object
/// with its name when it reads one.
const FORGED: &str = "a forged object";

/// Attacks on whoever looks at a repository: commands that plant one, and whether a plain look runs it.
/// `$evil` is a program that leaves a mark.
const PLANTS: [(&str, &str, bool); 22] = [
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
    ("pager", "git config core.pager $evil; git config pager.diff $evil", false),
    ("ssh", "git config core.sshCommand $evil; git config remote.o.url ssh://x/y", false),
    ("gpg", "git config gpg.program $evil; git config log.showSignature true", false),
    (
        "another work tree",
        "git config core.worktree ../evil; git config core.fsmonitor $evil",
        false,
    ),
    ("an alias", "git config alias.status \"!$evil\"; git config alias.diff \"!$evil\"", false),
    (
        "a file .git",
        "mv .git real; echo 'gitdir: real' > .git; git config core.fsmonitor $evil",
        true,
    ),
    (
        "settings of one work tree",
        "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor $evil",
        true,
    ),
    (
        "a submodule with slashes in its name",
        "mkdir -p .git/modules/x; mv sub/.git .git/modules/x/y; echo 'gitdir: ../.git/modules/x/y' > sub/.git; \
         git config -f .git/modules/x/y/config core.worktree ../../../../sub; \
         git -C sub config core.fsmonitor $evil; echo y > sub/f",
        true,
    ),
    (
        FORGED,
        "old=$(git rev-parse HEAD:file | sed 's,^..,&/,'); rm -f .git/objects/$old; python3 -c \
         'import sys, zlib; open(sys.argv[1], \"wb\").write(zlib.compress(b\"blob 4\\0new\\n\"))' \
         .git/objects/$old",
        false,
    ),
    (
        "a repository at depth",
        "git init -q a/b/c; git -C a/b/c config core.fsmonitor $evil; echo x > a/b/c/f",
        false,
    ),
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
                 git init -q; {settings}; echo old > file; echo same > same; git add file same sub; git commit -qm first"
            ),
        );
        let before = sh(&work, "git rev-parse HEAD");
        assert_eq!(before.trim().len(), 40, "{name}: {before}");
        sh(&work, &format!("evil={}; echo new > file; {plant}; echo made > made", evil.display()));
        let _ = fs::remove_file(&mark);
        let seen = sh(&work, &format!("before={}; {LOOK}", before.trim()));
        assert!(!mark.exists(), "{name}: a planted program ran: {seen}");
        // Without the objects there is nothing to show, and git says so.
        if name == FORGED {
            assert!(seen.contains("mismatch"), "{name}: {seen}");
        } else if name != "a file .git" {
            assert!(!seen.contains("mismatch"), "{name}: {seen}");
            assert!(seen.contains("+new") && seen.contains("-old"), "{name}: {seen}");
            assert!(seen.lines().any(|line| line == "made"), "{name}: {seen}");
        }
        // The plant works: otherwise the test would show nothing.
        // A file that was only touched makes git write its index, whenever that is.
        let plain = sh(&work, "touch -d 2001-01-01 same; git status; git --no-pager diff");
        assert_eq!(mark.exists(), runs, "{name}: {plain}");
    }
}

/// What a command of a model plants, and the path that the records then name; absent if the sandbox refuses.
/// `$evil` is a program.
const PLANTED: [(&str, &str, Option<&str>); 28] = [
    ("pager", "git config core.pager $evil", None),
    ("ssh", "git config core.sshCommand $evil", None),
    ("gpg", "git config gpg.program $evil", None),
    ("work tree", "git config core.worktree ..", None),
    ("include", "git config include.path ../more", None),
    ("filter", "git config filter.x.clean $evil", None),
    ("fsmonitor", "git config core.fsmonitor $evil", None),
    ("hooksPath", "git config core.hooksPath evil", None),
    ("settings put in place", "cp .git/config c; echo '[core]' >> c; mv c .git/config", None),
    ("git as a file", "mv .git real; echo 'gitdir: real' > .git", None),
    ("a hook where none was", "mkdir -p .git/hooks; cp $evil .git/hooks/pre-commit", None),
    ("the folder of hooks", "rmdir .git/hooks; ln -s ../hooks .git/hooks", None),
    ("settings of a work tree", "git config -f .git/config.worktree core.fsmonitor $evil", None),
    ("attributes", "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes", None),
    ("a hook of a nested one", "mkdir lib/.git/hooks; cp $evil lib/.git/hooks/pre-commit", None),
    ("attributes in the tree", "echo '* filter=x' > .gitattributes", Some(".gitattributes")),
    ("submodules", "echo '[submodule]' > .gitmodules", Some(".gitmodules")),
    (
        "at depth",
        "git init -q a/b/c/d; git -C a/b/c/d config core.fsmonitor $evil",
        Some("a/b/c/d/.git/config"),
    ),
    ("a new file", "cp -r .git n; mkdir m; echo 'gitdir: ../n' > m/.git", Some("m/.git")),
    ("what it names", "git config -f n/config core.fsmonitor $evil", Some("n/config")),
    (
        "a submodule",
        "mkdir -p .git/modules/x; cp -r lib/.git .git/modules/x/y; git config -f .git/modules/x/y/config \
         core.fsmonitor $evil",
        Some(".git/modules/x/y/config"),
    ),
    (
        "a bare one",
        "mkdir objects refs; echo 'ref: x' > HEAD; echo '[core]' > config",
        Some("config"),
    ),
    ("an editor", "mkdir .vscode; echo '{}' > .vscode/tasks.json", Some(".vscode/tasks.json")),
    ("an agent", "mkdir .claude; echo '{}' > .claude/settings.json", Some(".claude/settings.json")),
    ("servers", "echo '{}' > .mcp.json", Some(".mcp.json")),
    ("hooks of husky", "mkdir .husky; cp $evil .husky/pre-commit", Some(".husky/pre-commit")),
    ("a shell", "echo $evil > .envrc", Some(".envrc")),
    ("commondir", "cp -r .git c2; echo ../c2 > .git/commondir", Some(".git/commondir")),
];

fn offline(command: &str) -> (String, String) {
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['bash']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n";
    let script = format!(
        "[[rules]]\nagent = \"a\"\nturn = 1\n[[rules.calls]]\ntool = \"bash\"\ninput = {{ command = \
         '''{command}''' }}\n[[rules]]\nsay = \"done\"\n"
    );
    (rest.to_owned(), script)
}

#[test]
fn what_a_command_plants_for_git_and_others_is_refused_or_told() {
    let lines: String =
        PLANTED.iter().map(|(_, plant, _)| format!("({plant}) 2> /dev/null\n")).collect();
    let (rest, script) = offline(&format!("evil=$PWD/evil\n{lines}exit 0"));
    let desk = Desk::offline(&rest, &script);
    desk.write("evil", "#!/bin/sh\ntouch MARK\n");
    let made = sh(
        desk.path(),
        "chmod 755 evil; for d in . lib; do git init -q --template= $d; git -C $d config user.name a; \
         git -C $d config user.email a@b.example; done; git add evil; git commit -qm first",
    );
    let before = sh(desk.path(), "git status --porcelain; cat .git/config lib/.git/config");
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{made}{}", done.err);
    if !done.err.contains("sandbox of commands: workspace-write") {
        return crate::support::users::skipped("what a command plants: there is no sandbox here");
    }
    let shown = &desk.json(&["show", "--json"])[0];
    let reported = &desk.json(&["report", "--format", "json"])[0];
    assert_eq!(shown["run_by_others"], reported["run_by_others"]);
    assert_eq!(shown["run_by_others_incomplete"], false);
    let told: Vec<_> = shown["run_by_others"].as_array().expect("a list").iter().collect();
    for (name, _, path) in PLANTED {
        let Some(path) = path else { continue };
        let found = told.iter().find(|change| change["path"] == path);
        let found = found.unwrap_or_else(|| panic!("{name}: {path} is not told: {told:#?}"));
        assert_eq!(found["by"], serde_json::json!(["one"]), "{name}");
        assert_eq!(found["change"], "made", "{name}");
    }
    // What was refused is as it was, and what was put there for that purpose is seen by nobody.
    let _ = fs::remove_file(desk.path().join(".git/commondir"));
    let after = sh(desk.path(), "cat .git/config lib/.git/config");
    assert!(before.ends_with(&after), "{before}{after}");
    for path in ["", "lib/"] {
        let is_empty = |name: &str| {
            let path = desk.path().join(format!("{path}.git/{name}"));
            match path.is_dir() {
                true => fs::read_dir(&path).expect("a folder").next().is_none(),
                false => fs::read(&path).expect("a file").is_empty(),
            }
        };
        for name in ["hooks", "config.worktree", "info/attributes"] {
            assert!(is_empty(name), "{path}.git/{name}");
        }
    }
    let status = sh(desk.path(), "rm -rf .git/modules; git status --porcelain");
    let is_same = |line: &&str| before.contains(*line);
    assert!(
        status.lines().filter(|line| line.ends_with("lib/")).all(|line| is_same(&line)),
        "{status}"
    );
    assert!(!desk.path().join("MARK").exists());
}

#[test]
fn a_list_of_changes_that_is_not_whole_says_so() {
    let (rest, script) =
        offline("for i in $(seq 210); do mkdir m$i; echo all: > m$i/Makefile; done");
    let desk = Desk::offline(&rest, &script);
    let summary = desk.good(&["run"]);
    let texts = [summary, desk.good(&["show"]), desk.good(&["report"])];
    for text in texts {
        assert!(text.contains("other files may have changed too"), "{text}");
    }
    assert!(desk.call(&["show", "--changes"]).err.contains("other files may have changed too"));
    for document in [desk.json(&["show", "--json"]), desk.json(&["report", "--format", "json"])] {
        assert_eq!(document[0]["run_by_others_incomplete"], true);
        assert_eq!(document[0]["run_by_others"].as_array().map(Vec::len), Some(200));
    }
}

/// Runs a command in the sandbox of a workspace. Returns what it printed.
fn planted(desk: &Desk, rest: &str, command: &str) -> String {
    let command = serde_json::to_string(command).expect("a text");
    desk.write(
        "agents.toml",
        &format!("version = 1\nname = \"desk\"\n{rest}[tasks.t]\nrun = {command}\n"),
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    desk.json(&["show", "desk/t", "--json"])[0]["output"]["text"]
        .as_str()
        .expect("a text")
        .to_owned()
}

/// Tries to write to each of the paths.
fn tries(paths: &[&str]) -> String {
    let one = |path: &&str| format!("(echo evil > '{path}') 2>&- && echo 'written: {path}'");
    format!("{}; true", paths.iter().map(one).collect::<Vec<_>>().join("; "))
}

#[test]
fn no_path_that_the_configuration_names_lifts_the_protection_of_others() {
    let desk = Desk::commands("[tasks.t]\nrun = 'true'\n");
    for file in ["a/x", "hook.sh", "deep/er/hook.sh", ".vscode/tasks.json", "zz/.envrc"] {
        desk.write(file, "");
    }
    let outside = "../".repeat(20) + "etc/hostname";
    let words = [
        outside.as_str(),
        "a/../hook.sh",
        "./a/.././a/../deep/er/hook.sh",
        "../desk/../desk/hook.sh",
        "a/..",
        "..",
        ".",
        "a/../../../x",
        "gone/../../hook.sh",
    ];
    let kept = ["agents.toml", ".vscode/tasks.json", "zz/.envrc", ".transcripts/x"];
    for word in words {
        let hook = format!("[hooks]\non_start = ['true', '{word}']\n");
        let written = planted(&desk, &hook, &tries(&kept));
        assert_eq!(written, "", "{word}");
    }
    // What such a word names is protected, and no folder on its way can be exchanged.
    let hook = "[hooks]\non_start = ['true', 'a/../hook.sh']\n";
    let script =
        format!("{}; mv a b 2>&- && echo moved; echo y > a/x; cat a/x", tries(&["hook.sh"]));
    assert_eq!(planted(&desk, hook, &script).trim(), "y");
    let include = format!("include = ['{}/{{own,a/../more}}/*.toml']\n", desk.path().display());
    desk.write("own/1.toml", "[tasks.own]\nrun = 'true'\n");
    desk.write("more/1.toml", "[tasks.more]\nrun = 'true'\n");
    let script = tries(&["own/2.toml", "more/2.toml", "own/1.toml"]);
    assert_eq!(planted(&desk, &include, &script), "");
}

#[test]
fn what_a_hook_of_git_leads_to_is_protected_in_each_repository() {
    let desk = Desk::commands("[tasks.t]\nrun = 'true'\n");
    let link = |to: &str, at: &str| {
        std::os::unix::fs::symlink(to, desk.path().join(at)).expect("a link");
    };
    desk.write(".git/config", "");
    desk.write(".git/hooks/x", "");
    desk.write("scripts/check.sh", "");
    desk.write("lib/real.sh", "");
    link("../../scripts/check.sh", ".git/hooks/pre-commit");
    link("../../way/real.sh", ".git/hooks/pre-push");
    link("lib", "way");
    // More than a walk once looked at.
    for at in 0..230 {
        desk.write(&format!("r/{at:03}/.git/config"), "");
    }
    let script = tries(&[
        "scripts/check.sh",
        "lib/real.sh",
        "r/000/.git/hooks/post-commit",
        "r/229/.git/hooks/post-commit",
        "r/229/.git/config",
    ]) + "; rm way 2>&- && echo 'removed'; echo x > scripts/other.sh; echo x > r/000/x && echo work";
    assert_eq!(planted(&desk, "", &script).trim(), "work");
    // Nobody writes the records, whoever names them.
    let roots = "[sandbox]\nwritable_roots = ['.transcripts', 'scripts']\n";
    assert_eq!(planted(&desk, roots, &tries(&[".transcripts/x", ".transcripts/.cache/../x"])), "");
}

#[test]
fn no_root_lifts_what_settings_and_links_name_nor_any_records() {
    let desk = Desk::commands("[tasks.t]\nrun = 'true'\n");
    desk.write(".git/config", "[core]\n hooksPath = tools\n fsmonitor = bin/watch\n");
    desk.write(".git/hooks/x", "");
    for file in
        ["tools/pre-commit", "bin/watch", "linked/hook", "linked/other", "sub/.transcripts/r/x"]
    {
        desk.write(file, "");
    }
    let at = desk.path().join(".git/hooks/pre-push");
    std::os::unix::fs::symlink("../../linked/hook", at).expect("a link");
    let roots = "[sandbox]\nwritable_roots = ['tools', 'bin', 'linked', 'sub', '.transcripts']\n";
    let kept = [
        "tools/pre-commit",
        "tools/new",
        "bin/watch",
        "linked/hook",
        "sub/.transcripts/r/x",
        "sub/.transcripts/y",
        ".transcripts/x",
    ];
    let script = tries(&kept) + "; echo x > linked/other && echo x > sub/new && echo work";
    assert_eq!(planted(&desk, roots, &script).trim(), "work");
    // Also if the records of this run lie elsewhere.
    let elsewhere = format!("[state]\ndir = 'runs'\n{roots}");
    desk.write(".transcripts/old/journal.jsonl", "");
    let kept = [".transcripts/old/journal.jsonl", ".transcripts/new", "runs/x"];
    assert_eq!(planted(&desk, &elsewhere, &tries(&kept)), "");
}

#[test]
fn no_command_changes_or_makes_records_of_other_runs() {
    let desk = Desk::commands("[tasks.t]\nrun = 'true'\n");
    let run = |last: u32| format!("01a216e9-9168-7131-9669-{last:012}");
    let (among, alone) = (format!("notes/{}", run(1)), format!("sub/runs/{}", run(2)));
    for run in [&among, &alone] {
        desk.write(&format!("{run}/journal.jsonl"), "{}");
        desk.write(&format!("{run}/answers/1.json"), "{}");
    }
    desk.write("notes/text.md", "");
    let new = format!("sub/runs/{}/journal.jsonl", run(3));
    let kept = [
        format!("{among}/journal.jsonl"),
        format!("{among}/answers/2.json"),
        format!("{alone}/answers/1.json"),
        format!("{alone}/new"),
        new,
    ];
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let elsewhere = "[state]\ndir = 'runs'\n[sandbox]\nwritable_roots = ['sub', 'notes']\n";
    let makes = format!("mkdir -p sub/runs/{} 2>&-; ", run(3));
    let moves =
        format!("rm -r {among}/answers 2>&- && echo removed; mv sub/runs x 2>&- && echo moved; ");
    let script = makes
        + &moves
        + &tries(&kept)
        + "; echo x > notes/text.md && echo x > sub/other && echo work";
    assert_eq!(planted(&desk, elsewhere, &script).trim(), "work");
}
