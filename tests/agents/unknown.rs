//! Calls whose outcome nobody knows: told, asked about, or the end of their agent, as `on_unknown` says.

use serde_json::Value;

use crate::support::desk::{Desk, Done, wait};

/// Says that it has begun, and then takes a minute, unless it was let go before it began.
const COMMAND: &str = "test -e go; held=$?; echo x >> ledger; test $held = 0 || sleep 60";

/// A command, a call of `bash`, and a call of a tool of the configuration; each with the task's rule.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Task,
    Bash,
    Own,
}

const KINDS: [Kind; 3] = [Kind::Task, Kind::Bash, Kind::Own];

fn desk(kind: Kind, rule: &str) -> Desk {
    let rule = format!("on_unknown = '{rule}'\n");
    let (of_tool, of_task) = match kind {
        // The tool's own rule comes before the task's.
        Kind::Own => (rule.as_str(), "on_unknown = 'tell'\n"),
        Kind::Task | Kind::Bash => ("", rule.as_str()),
    };
    let limits = "[limits]\norphan_grace = '0s'\n";
    if kind == Kind::Task {
        return Desk::commands(&format!("{limits}[tasks.t]\nrun = '{COMMAND}'\n{of_task}"));
    }
    let tool = if kind == Kind::Bash { "bash" } else { "deploy" };
    let input = match kind {
        Kind::Bash => format!("{{ command = '{COMMAND}' }}"),
        Kind::Own | Kind::Task => "{}".to_owned(),
    };
    let file = format!(
        "{limits}[agents.a]\ninstructions = 'x'\ntools = ['{tool}']\n\
         [tools.deploy]\ndescription = 'deploys'\ncommand = ['sh', '-c', '{COMMAND}']\n{of_tool}\
         [tasks.t]\nagent = 'a'\nprompt = 'go'\n{of_task}"
    );
    let script = format!(
        "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = '{tool}'\ninput = {input}\n\
         [[rules]]\nsay = 'went on'\n"
    );
    Desk::offline(&file, &script)
}

/// Kills the program amid the command, in the run or in what resumes it.
fn kill(desk: &Desk, args: &[&str], begun: usize) {
    let live = desk.start(args);
    let ledger = desk.path().join("ledger");
    let lines = || std::fs::read_to_string(&ledger).is_ok_and(|t| t.lines().count() == begun);
    wait("the command", || lines().then_some(()));
    live.signal("KILL");
    live.end();
}

/// Resumes a run that asks, and answers.
fn answered(desk: &Desk, words: &[&str]) -> Done {
    let waiting = desk.call(&["resume"]);
    assert_eq!(waiting.code, 6, "{}{}", waiting.out, waiting.err);
    let [row] = &desk.json(&["pending", "--json"])[..] else { panic!("one question") };
    let shown = row["shown"].to_string();
    assert!(shown.contains("outcome unknown") && shown.contains("It began at"), "{row}");
    assert!(row["message"].as_str().is_some_and(|m| m.contains("not done")), "{row}");
    assert_eq!(desk.call(&["resume"]).code, 6, "the same question, once more");
    assert_eq!(desk.json(&["pending", "--json"]).len(), 1);
    let id = row["id"].as_str().expect("an id");
    let args: Vec<&str> = match words {
        ["reject", ..] => vec!["reject", id, "--reason", words[1]],
        _ => [&["answer", id], words].concat(),
    };
    let given = desk.call(&args);
    assert_eq!(given.code, 0, "{}", given.err);
    desk.call(&["resume"])
}

fn finished(desk: &Desk) -> Vec<Value> {
    let events = desk.json(&["tail", "--json"]);
    events.into_iter().filter(|event| event["type"] == "tool.finished").collect()
}

#[test]
fn a_person_says_what_happened() {
    for kind in KINDS {
        let is_task = kind == Kind::Task;
        for (words, code, status, text, ledger) in [
            (vec!["done"], 0, "ok", "", "x\n"),
            (vec!["done: version 3"], 0, "ok", "version 3", "x\n"),
            (vec!["not done"], 0, "ok", "", "x\nx\n"),
            (vec!["half", "of", "it"], if is_task { 1 } else { 0 }, "unknown", "half of it", "x\n"),
            (vec!["reject", "stop"], 1, "unknown", "stop", "x\n"),
        ] {
            let what = format!("{kind:?} {words:?}");
            let desk = desk(kind, "ask");
            kill(&desk, &["run"], 1);
            desk.write("go", "");
            if is_task {
                let told = desk.good(&["resume", "--explain"]);
                assert!(told.contains("a person is asked whether it took effect"), "{told}");
            }
            let done = answered(&desk, &words);
            assert_eq!(done.code, code, "{what}: {}{}", done.out, done.err);
            let [finished] = &finished(&desk)[..] else { panic!("{what}: one result") };
            assert_eq!(finished["data"]["status"], status, "{what}");
            assert!(finished["data"]["block"].to_string().contains(text), "{what}: {finished}");
            assert_eq!(desk.read("ledger"), ledger, "{what}");
        }
    }
}

#[test]
fn a_call_that_is_made_again_is_asked_about_again() {
    for kind in KINDS {
        let desk = desk(kind, "ask");
        kill(&desk, &["run"], 1);
        let waiting = desk.call(&["resume"]);
        assert_eq!(waiting.code, 6, "{}", waiting.err);
        let first = desk.json(&["pending", "--json"])[0]["id"].to_string();
        let id = first.trim_matches('"');
        assert_eq!(desk.call(&["answer", id, "not done"]).code, 0);
        // The first answer is about the first beginning only.
        kill(&desk, &["resume"], 2);
        desk.write("go", "");
        let done = answered(&desk, &["done"]);
        assert_eq!(done.code, 0, "{kind:?}: {}{}", done.out, done.err);
        assert_eq!(desk.read("ledger"), "x\nx\n");
    }
}

#[test]
fn an_agent_that_may_not_go_on_fails() {
    for kind in KINDS {
        let desk = desk(kind, "fail");
        kill(&desk, &["run"], 1);
        desk.write("go", "");
        let done = desk.call(&["resume"]);
        assert_eq!(done.code, 1, "{kind:?}: {}", done.err);
        assert!(done.out.contains("interrupted") && !done.out.contains("went on"), "{}", done.out);
        let requests = desk.json(&["tail", "--json"]);
        let asked = requests.iter().filter(|event| event["type"] == "model.requested").count();
        assert_eq!(asked, usize::from(kind != Kind::Task), "{kind:?}: no model call after it");
        assert_eq!(desk.read("ledger"), "x\n");
        // Nothing is in the way of another try.
        let again = desk.call(&["resume", "--retry-failed"]);
        assert_eq!(again.code, 0, "{kind:?}: {}{}", again.out, again.err);
        assert_eq!(desk.read("ledger"), "x\nx\n");
    }
}

#[test]
fn a_live_run_asks_too() {
    for kind in KINDS {
        let desk = desk(kind, "ask");
        let live = desk.start(&["run"]);
        let started = desk.wait_for_event("tool.started", |_| true);
        wait("the command", || desk.path().join("ledger").exists().then_some(()));
        desk.write("go", "");
        let wrapper = started["data"]["pgid"].to_string();
        let sent = std::process::Command::new("kill").args(["-s", "KILL", &wrapper]).status();
        assert!(sent.expect("sent").success());
        let waiting = live.end();
        assert_eq!(waiting.code, 6, "{kind:?}: {}{}", waiting.out, waiting.err);
        let id = desk.json(&["pending", "--json"])[0]["id"].to_string();
        assert_eq!(desk.call(&["answer", id.trim_matches('"'), "not done"]).code, 0);
        let done = desk.call(&["resume"]);
        assert_eq!(done.code, 0, "{kind:?}: {}{}", done.out, done.err);
        assert_eq!(desk.read("ledger"), "x\nx\n");
    }
}

#[test]
fn an_approval_has_no_such_rule() {
    let gate = "[tasks.t]\non_unknown = 'ask'\n[tasks.t.approval]\nmessage = 'go?'\n";
    let desk = Desk::commands(gate);
    let done = desk.call(&["check"]);
    assert!(done.code == 2 && done.err.contains("`on_unknown` has no meaning"), "{}", done.err);
    let desk = Desk::commands("[tasks.t]\nrun = 'true'\non_unknown = 'shrug'\n");
    let done = desk.call(&["check"]);
    assert!(done.code == 2 && done.err.contains("tell"), "{}", done.err);
}
