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
