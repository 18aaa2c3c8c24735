//! `doctor`, `version --json` and `man`: the program and its machine.

use std::fs;

use serde_json::{Value, json};

use crate::support::desk::{Desk, Done, keys};
use crate::support::without_sandbox;

/// What `doctor --json` prints, with its exit code.
fn examined(desk: &Desk, arguments: &[&str], environment: &[(&str, &str)]) -> (i32, Value) {
    let arguments = [&["doctor", "--json"], arguments].concat();
    let done = Done::of(desk.command(&arguments).envs(environment.iter().copied()));
    (done.code, serde_json::from_str(&done.out).expect("one document"))
}

/// The state of a check, and what it says.
fn row(document: &Value, check: &str) -> (String, String) {
    let rows = document["checks"].as_array().expect("checks");
    let row = rows.iter().find(|row| row["check"] == check).expect(check);
    let text = |key: &str| row[key].as_str().expect("a text").to_owned();
    (text("state"), text("message"))
}

#[test]
fn a_doctor_names_what_the_machine_gives_and_leaves_nothing() {
    let desk = Desk::empty();
    let key = [("OPENAI_API_KEY", "sk-do-not-print"), ("GROQ_API_KEY", " ")];
    let done = Done::of(desk.command(&["doctor"]).envs(key));
    done.assert_plain();
    assert!(!format!("{}{}", done.out, done.err).contains("sk-do-not-print"), "{}", done.out);
    let (code, document) = examined(&desk, &[], &key);
    assert_eq!((code, keys(&document).as_slice()), (done.code, ["ok", "checks"].as_slice()));
    assert_eq!(document["ok"], code == 0);
    for row in document["checks"].as_array().expect("checks") {
        assert_eq!(keys(row), ["check", "state", "message", "help"]);
        assert_eq!(row["help"].is_null(), row["state"] == "ok", "{row}");
        assert!(done.out.contains(row["check"].as_str().expect("a name")), "{}", done.out);
    }
    assert_eq!(row(&document, "keys"), ("ok".to_owned(), "set: OPENAI_API_KEY".to_owned()));
    for check in ["versions", "kernel", "command wrapper", "limits", "disk of runs"] {
        assert_eq!(row(&document, check).0, "ok", "{document:#}");
    }
    if without_sandbox().is_none() {
        assert_eq!(code, 0, "{}", done.out);
        assert_eq!(row(&document, "sandbox").0, "ok");
        assert!(done.out.ends_with("nothing hinders runs on this machine\n"), "{}", done.out);
    }
    assert_eq!(fs::read_dir(desk.path()).expect("the folder").count(), 0, "nothing is left");
}

#[test]
fn what_hinders_a_run_is_an_error_of_the_doctor() {
    let desk = Desk::empty();
    // There is no space on this one, whoever asks.
    let (code, document) = examined(&desk, &["--state-dir", "/proc/runs"], &[]);
    assert_eq!((code, &document["ok"]), (1, &json!(false)));
    let (state, message) = row(&document, "disk of runs");
    assert_eq!((state.as_str(), message.as_str()), ("error", "0 MiB free at /proc"));
    // A shell takes the open files away.
    let done = desk.shell("ulimit -n 20; callsheet doctor");
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let line = done.out.lines().find(|line| line.contains("limits")).expect("a row");
    assert!(line.starts_with("error") && line.contains("too few open files"), "{}", done.out);
    assert!(done.out.ends_with("something hinders runs on this machine\n"), "{}", done.out);
}

#[test]
fn the_doctor_tries_the_sandbox_that_the_file_wants() {
    if without_sandbox().is_some() {
        return;
    }
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n[sandbox]\nmode = 'read-only'\n");
    let sandbox = |environment| row(&examined(&desk, &[], environment).1, "sandbox");
    assert!(sandbox(&[]).1.starts_with("read-only"), "{:?}", sandbox(&[]));
    let (state, message) = sandbox(&[("CALLSHEET_SANDBOX__MODE", "danger-full-access")]);
    assert_eq!((state.as_str(), message.as_str()), ("warning", "turned off by a person"));
    // A file with mistakes is a matter for `check`.
    desk.write("agents.toml", "version = 1\n[tasks.one\n");
    assert!(sandbox(&[]).1.starts_with("workspace-write"), "{:?}", sandbox(&[]));
}

#[test]
fn the_version_is_a_document_too() {
    let documents = Desk::empty().json(&["version", "--json"]);
    let [document] = documents.as_slice() else { panic!("one document: {documents:?}") };
    assert_eq!(keys(document), ["callsheet", "agents_toml", "journal", "rust", "os", "arch"]);
    let told = (&document["callsheet"], &document["agents_toml"], &document["journal"]);
    assert_eq!(told, (&json!(env!("CARGO_PKG_VERSION")), &json!(1), &json!(1)));
    assert_eq!(document["rust"], env!("CARGO_PKG_RUST_VERSION"));
}

#[test]
fn every_verb_has_a_manual_page() {
    let desk = Desk::empty();
    assert_eq!(desk.good(&["man", "--dir", "share/man1"]), "");
    let page = |name: &str| desk.read(&format!("share/man1/{name}.1"));
    let program = page("callsheet");
    assert_eq!(desk.good(&["man"]), program);
    let help = desk.good(&["--help"]);
    let verbs = help.split("Commands:\n").nth(1).expect("the verbs");
    let verbs = verbs.lines().take_while(|line| !line.is_empty());
    let verbs: Vec<&str> = verbs
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() > 25 && verbs.contains(&"doctor"), "{verbs:?}");
    for verb in verbs {
        let name = format!("callsheet-{verb}");
        let text = page(&name);
        assert!(text.contains(&format!(".TH {name} 1 ")), "{text}");
        assert!(text.contains(&format!("\"callsheet {}\"", env!("CARGO_PKG_VERSION"))), "{text}");
        assert_eq!(desk.good(&["man", verb]), text);
        // The pages that a page refers to are there.
        assert!(
            program.contains(&format!("callsheet\\-{}(1)", verb.replace('-', "\\-"))),
            "{verb}"
        );
    }
    assert_eq!(desk.good(&["man", "context", "replay"]), page("callsheet-context-replay"));
    let missed = desk.call(&["man", "nope"]);
    assert_eq!((missed.code, missed.out.as_str()), (2, ""));
    assert!(missed.err.contains("there is no verb `nope`"), "{}", missed.err);
    assert_eq!(desk.call(&["man", "--dir", "/proc/pages"]).code, 74);
}
