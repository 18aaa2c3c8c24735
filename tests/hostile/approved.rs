//! What a person approved is what happens: the place and the bytes, through the real program.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::desk::Desk;

/// An agent that makes one call, about which a person is asked.
fn asking(rules: &str, tool: &str, input: &str) -> Desk {
    let script = format!(
        "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = '{tool}'\ninput = {input}\n[[rules]]\nsay = 'done'\n"
    );
    let desk = Desk::offline(
        &format!(
            "[agents.a]\ninstructions = 'x'\ntools = ['{tool}']\n[tasks.one]\nagent = 'a'\nprompt = 'go'\n"
        ),
        &script,
    );
    let rules = format!("default = 'ask'\nsandboxed = 'ask'\nnon_interactive = 'pause'\n{rules}");
    desk.write("agents.toml", &desk.read("agents.toml").replace("default = \"allow\"", &rules));
    desk
}

/// The id of the one question, and how it is shown.
fn pending(desk: &Desk) -> (String, String) {
    let rows = desk.json(&["pending", "--json"]);
    let [row] = rows.as_slice() else { panic!("one question: {rows:?}") };
    (row["id"].as_str().expect("an id").to_owned(), desk.good(&["pending"]))
}

/// Exchanges the folder `docs` for a link to `src`.
fn exchange(desk: &Desk) {
    fs::rename(desk.path().join("docs"), desk.path().join("before")).expect("renamed");
    symlink("src", desk.path().join("docs")).expect("a link");
}

const NEW: &str = "{ path = 'docs/new', content = 'x' }";

#[test]
fn a_yes_is_good_for_the_place_that_was_shown() {
    let desk = asking("", "write_file", NEW);
    desk.write("docs/old", "");
    desk.write("src/old", "");
    assert_eq!(desk.call(&["run"]).code, 6);
    let (first, shown) = pending(&desk);
    assert!(!shown.contains("which leads to"), "{shown}");
    assert_eq!(desk.call(&["approve", &first]).code, 0);
    exchange(&desk);
    assert_eq!(desk.call(&["resume"]).code, 6, "it would land elsewhere now");
    assert!(!desk.path().join("src/new").exists());
    let (second, shown) = pending(&desk);
    assert_ne!(first, second);
    assert!(shown.contains("which leads to src/new"), "{shown}");
    assert_eq!(desk.call(&["approve", &second]).code, 0);
    assert_eq!(desk.call(&["resume"]).code, 0);
    assert_eq!(desk.read("src/new"), "x");
}

#[test]
fn nobody_is_asked_again_about_what_is_denied_by_then() {
    let desk = asking("deny = ['write_file(src/*)']\n", "write_file", NEW);
    desk.write("docs/old", "");
    desk.write("src/old", "");
    assert_eq!(desk.call(&["run"]).code, 6);
    assert_eq!(desk.call(&["approve", &pending(&desk).0]).code, 0);
    exchange(&desk);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(!desk.path().join("src/new").exists());
    let told = desk.good(&["show", "/@one", "--transcript"]);
    assert!(told.contains("the rule `write_file(src/*)` says so"), "{told}");
}

#[test]
fn a_yes_is_good_for_the_script_that_was_shown() {
    let desk = asking("", "bash", "{ command = 'sh deploy.sh' }");
    desk.write("deploy.sh", "touch good");
    assert_eq!(desk.call(&["run"]).code, 6);
    let (first, shown) = pending(&desk);
    assert!(shown.contains("it runs these files, with the content that they have now:"), "{shown}");
    let hash = blake3::hash(b"touch good").to_hex();
    assert!(shown.contains(&format!("deploy.sh ({})", &hash[..12])), "{shown}");
    assert_eq!(desk.call(&["approve", &first]).code, 0);
    desk.write("deploy.sh", "touch evil");
    assert_eq!(desk.call(&["resume"]).code, 6, "it would run something else now");
    assert!(!desk.path().join("evil").exists());
    let (second, _) = pending(&desk);
    assert_ne!(first, second);
    desk.write("deploy.sh", "touch worse");
    assert_eq!(desk.call(&["approve", &second]).code, 0);
    assert_eq!(desk.call(&["resume"]).code, 6, "the answer was about the other content");
    assert!(!desk.path().join("worse").exists());
    // What was approved first is what it holds again, whatever the answer about the third.
    assert_eq!(desk.call(&["approve", &pending(&desk).0]).code, 0);
    desk.write("deploy.sh", "touch good");
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(desk.path().join("good").exists() && !desk.path().join("worse").exists());
}

#[test]
fn a_yes_is_good_for_what_a_program_reads_by_itself() {
    for (command, file, unbound) in [
        ("make all", "Makefile", None),
        ("make -C sub", "sub/Makefile", None),
        ("xargs -a list touch", "list", None),
        ("python3 -m tool.gen", "tool/gen.py", Some("python3 -m: modules of the workspace")),
        (
            "npm run x",
            "package.json",
            Some("npm: what the scripts and settings of packages in the workspace name"),
        ),
        ("pytest -q", "conftest.py", Some("pytest: the tests of the workspace and what they load")),
        (
            "cargo build",
            "build.rs",
            Some("cargo: what the workspace's build files and sources say"),
        ),
    ] {
        let desk = asking("", "bash", &format!("{{ command = '{command}' }}"));
        desk.write(file, "good");
        assert_eq!(desk.call(&["run"]).code, 6, "{command}");
        let (first, shown) = pending(&desk);
        let hash = blake3::hash(b"good").to_hex();
        assert!(shown.contains(&format!("{file} ({})", &hash[..12])), "{command}: {shown}");
        let said = shown.contains("not bound, so it may be different when the command runs:");
        assert_eq!(said, unbound.is_some(), "{shown}");
        assert!(unbound.is_none_or(|unbound| shown.contains(&format!("| {unbound}\n"))), "{shown}");
        assert_eq!(desk.call(&["approve", &first]).code, 0);
        desk.write(file, "evil");
        assert_eq!(desk.call(&["resume"]).code, 6, "{command} would run something else now");
        let (second, shown) = pending(&desk);
        let hash = blake3::hash(b"evil").to_hex();
        assert_ne!(first, second);
        assert!(shown.contains(&format!("{file} ({})", &hash[..12])), "{command}: {shown}");
    }
}

#[test]
fn a_makefile_that_appears_or_changes_is_not_what_was_approved() {
    let desk = asking("", "bash", "{ command = 'make' }");
    desk.write("Makefile", "all:\n\ttouch good\n");
    assert_eq!(desk.call(&["run"]).code, 6);
    assert_eq!(desk.call(&["approve", &pending(&desk).0]).code, 0);
    // make takes this one first.
    desk.write("GNUmakefile", "all:\n\ttouch evil\n");
    assert_eq!(desk.call(&["resume"]).code, 6);
    assert!(!desk.path().join("evil").exists() && !desk.path().join("good").exists());
    let (_, shown) = pending(&desk);
    assert!(shown.contains("GNUmakefile ("), "{shown}");
    fs::remove_file(desk.path().join("GNUmakefile")).expect("removed");
    assert_eq!(desk.call(&["approve", &pending(&desk).0]).code, 0);
    // What was approved first is what there is again.
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(desk.path().join("good").exists());
    assert!(!desk.path().join("evil").exists());
}
