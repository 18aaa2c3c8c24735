//! Calls about which a person was asked, in a run that goes on in another process: a call is not judged anew that
//! somebody has answered.

use std::os::unix::fs::symlink;

use crate::support::desk::Desk;

/// Returns a workspace whose agent is to write into `docs`, a link. It is asked about what it writes into `guarded`.
fn desk() -> Desk {
    let desk = Desk::offline(
        "[agents.worker]\ntools = ['write_file']\n[tasks.job]\nagent = 'worker'\nprompt = 'go'\n",
        "[[rules]]\nturn = 1\n\
         calls = [{ tool = 'write_file', input = { path = 'docs/new', content = 'x' } }]\n\
         [[rules]]\nsay = '{{ last[0].text }}'\n",
    );
    let asking = "default = \"allow\"\nnon_interactive = 'pause'\nask = ['write_file(guarded/*)']\n\
                  deny = ['write_file(closed/*)']";
    let text = desk.read("agents.toml").replace("default = \"allow\"", asking);
    desk.write("agents.toml", &text);
    for folder in ["guarded", "free", "closed"] {
        std::fs::create_dir(desk.path().join(folder)).expect("a folder");
    }
    symlink("guarded", desk.path().join("docs")).expect("a link");
    assert_eq!(desk.call(&["run"]).code, 6, "it waits for a person");
    desk
}

fn turn_docs(desk: &Desk, to: &str) {
    let docs = desk.path().join("docs");
    std::fs::remove_file(&docs).expect("a link");
    symlink(to, docs).expect("a link");
}

fn open(desk: &Desk) -> Vec<String> {
    let rows = desk.json(&["pending", "--json"]);
    rows.iter().map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
}

/// Resumes, and returns what the agent read.
fn resumed(desk: &Desk) -> String {
    assert_eq!(desk.call(&["resume"]).code, 0);
    assert_eq!(open(desk), Vec::<String>::new());
    desk.good(&["show", "/job", "--output"])
}

#[test]
fn an_answer_counts_whatever_the_rules_say_by_then() {
    for (answer, to, said, is_written) in [
        ("reject", "guarded", "said no", false),
        // The rules would not ask by now.
        ("reject", "free", "said no", false),
        ("approve", "guarded", "guarded", true),
        ("approve", "closed", "the rule `write_file(closed/*)` says so", false),
    ] {
        let desk = desk();
        assert_eq!(desk.call(&[answer, &open(&desk)[0]]).code, 0);
        turn_docs(&desk, to);
        let text = resumed(&desk);
        let is_there = desk.path().join(to).join("new").exists();
        assert!(is_there == is_written, "{answer} {to}: {text}");
        assert!(is_written || text.contains(said), "{answer} {to}: {text}");
    }
}

#[test]
fn a_yes_is_no_answer_to_another_question() {
    let desk = desk();
    let first = open(&desk);
    assert_eq!(desk.call(&["approve", &first[0]]).code, 0);
    // What was shown was a file in `guarded`.
    turn_docs(&desk, "free");
    assert_eq!(desk.call(&["resume"]).code, 6, "it asks again");
    let second = open(&desk);
    assert_ne!(first, second);
    assert_eq!(desk.call(&["reject", &second[0]]).code, 0);
    turn_docs(&desk, "guarded");
    let text = resumed(&desk);
    assert!(text.contains("said no"), "the first answer was about the same effect: {text}");
    assert!(!desk.path().join("guarded/new").exists());
}

#[test]
fn a_question_stays_until_somebody_answers_it() {
    let desk = desk();
    let first = open(&desk);
    turn_docs(&desk, "free");
    assert_eq!(desk.call(&["resume"]).code, 6, "the rules would not ask by now");
    assert_eq!(open(&desk), first);
    assert!(!desk.path().join("free/new").exists());
}
