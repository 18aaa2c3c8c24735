//! The program at a terminal: the status area, and questions to a person.

use crate::support::desk::{Desk, wait};
use crate::support::pty::Terminal;

/// An agent that wants to run these commands one after the other, under rules that ask.
fn asking(commands: &[&str]) -> Desk {
    let mut script = String::new();
    for (turn, command) in (1..).zip(commands) {
        script.push_str(&format!(
            "[[rules]]\nturn = {turn}\n[[rules.calls]]\ntool = 'bash'\ninput = {{ command = {command:?} }}\n"
        ));
    }
    script.push_str("[[rules]]\nsay = 'all is done'\n");
    let desk = Desk::offline(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['bash']\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n",
        &script,
    );
    let text = desk.read("agents.toml").replace("default = \"allow\"", "default = 'ask'");
    desk.write("agents.toml", &text);
    desk
}

/// Waits until the question stands there for the `n`th time: what was typed before that does not count.
fn asked(terminal: &Terminal, n: usize) {
    let times = || terminal.written().matches("allow? [").count();
    wait("the question again", || (times() == n).then_some(()));
}

#[test]
fn a_question_takes_only_what_is_typed_after_it() {
    let desk = asking(&["touch first", "touch second", "touch third"]);
    let mut terminal = Terminal::start(&desk, 80, &["run"]);
    // Typed ahead: none of it is an answer.
    terminal.types("y\ny\ny\n");
    let shown = terminal.until("allow? [");
    assert!(shown.contains("one wants to use bash:\n  | touch first\n"), "{shown}");
    assert!(!desk.path().join("first").exists());
    terminal.types("perhaps\n");
    asked(&terminal, 2);
    terminal.types("w\n");
    terminal.until("no rule of [permissions] allows it");
    let ps = desk.json(&["ps", "--json"]);
    let agent = ps.iter().find(|row| row["kind"] == "agent").expect("an agent");
    assert_eq!(agent["waiting_for"], "you: bash touch first", "{agent}");
    asked(&terminal, 3);
    terminal.types("y\n");
    terminal.until("  | touch second\n");
    assert!(desk.path().join("first").exists());
    asked(&terminal, 4);
    terminal.types("n because one is enough\n");
    terminal.until("  | touch third\n");
    // Enter alone is no answer.
    asked(&terminal, 5);
    terminal.types("\n");
    asked(&terminal, 6);
    terminal.types("t\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(!desk.path().join("second").exists() && desk.path().join("third").exists());
    assert!(shown.contains("1 call denied: bash"), "{shown}");
    let answers = desk.json(&["tail", "--json"]);
    let answers = answers.iter().filter(|event| event["type"] == "approval.answered");
    let answers: Vec<_> = answers.map(|event| event["data"].clone()).collect();
    let allowed: Vec<_> = answers.iter().map(|answer| answer["allowed"].clone()).collect();
    assert_eq!(allowed, [true, false, true]);
    assert_eq!(answers[1]["text"], "one is enough");
    let read = desk.good(&["show", "@one", "--transcript"]);
    assert!(read.contains("said no. The reason: one is enough"), "{read}");
}

#[test]
fn an_interrupt_is_no_answer() {
    let desk = asking(&["touch first"]);
    let mut terminal = Terminal::start(&desk, 80, &["run"]);
    terminal.until("allow? [");
    terminal.types("\x03");
    let (code, shown) = terminal.end();
    assert_eq!(code, 130, "{shown}");
    let events = desk.json(&["tail", "--json"]);
    assert!(!events.iter().any(|event| event["type"] == "approval.answered"), "{events:?}");
    assert!(!events.iter().any(|event| event["data"]["denied"] == true), "{events:?}");
    // The resumed run asks again.
    let mut terminal = Terminal::start(&desk, 80, &["resume"]);
    terminal.until("allow? [");
    terminal.types("y\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(desk.path().join("first").exists());
}

#[test]
fn a_long_command_is_shown_to_its_end_before_it_can_be_allowed() {
    let long = (1..=120).map(|n| format!("echo {n} > /dev/null\n")).collect::<String>();
    let desk = asking(&[&format!("{long}touch first")]);
    let mut terminal = Terminal::start(&desk, 80, &["run"]);
    let (mut pages, mut shown_lines) = (0, 0);
    loop {
        // `line 36 of 242: enter for more`, until the question itself.
        let reached = wait("the next page", || {
            let text = terminal.text();
            if text.contains("allow? [") {
                return Some(None);
            }
            let last = text.rsplit("line ").find(|part| part.contains(": enter for more"))?;
            let reached: usize = last.split(' ').next()?.parse().ok()?;
            (reached > shown_lines).then_some(Some(reached))
        });
        let Some(reached) = reached else { break };
        shown_lines = reached;
        pages += 1;
        assert!(!desk.path().join("first").exists(), "a yes to a page is no answer");
        terminal.types("y\n");
    }
    assert!(pages > 3, "{pages}");
    terminal.types("y\n");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(desk.path().join("first").exists());
}

#[test]
fn the_status_area_follows_the_run_and_its_window() {
    let desk = Desk::commands(
        "[tasks.one]\nrun = 'until test -e go; do sleep 0.01; done'\n\
         [tasks.two]\nrun = 'true'\ndepends_on = ['one']\n",
    );
    let terminal = Terminal::start(&desk, 80, &["run"]);
    terminal.until("tasks 0/2 done, 1 running, 1 waiting");
    terminal.until("one run");
    terminal.resize(130);
    terminal.until("00:01");
    let shown = terminal.text();
    assert_eq!(shown.matches("  one run").count(), 1, "{shown}");
    desk.write("go", "");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("one run") && shown.contains("two  completed"), "{shown}");
}

#[test]
fn a_detached_run_is_attached_to_and_left_alone() {
    let desk = Desk::commands("[tasks.one]\nrun = 'until test -e go; do sleep 0.01; done'\n");
    let detached = desk.call(&["run", "-d"]);
    assert_eq!(detached.code, 0, "{}", detached.err);
    let id = detached.out.trim().to_owned();
    assert!(desk.runs().pop().expect("a run").ends_with(&id), "{id}");
    assert!(
        detached.err.contains(&format!("callsheet attach {}\n", &id[id.len() - 8..])),
        "{}",
        detached.err
    );
    let mut terminal = Terminal::start(&desk, 80, &["attach"]);
    terminal.until("tasks 0/1 done, 1 running");
    terminal.types("\x03");
    let shown = terminal.until("detached; the run goes on");
    assert!(!shown.contains("tasks 0/1"), "{shown}");
    assert_eq!(desk.json(&["ps", "--json"])[0]["state"], "running");
    let terminal = Terminal::start(&desk, 80, &["attach", &id]);
    terminal.until("tasks 0/1 done, 1 running");
    desk.write("go", "");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("one  completed"), "{shown}");
    // What has ended is told, with the same code.
    let over = desk.call(&["attach"]);
    assert!(over.code == 0 && over.out.contains("one  completed"), "{}", over.err);
    // A mistake is told at once, and nothing is left.
    desk.write("agents.toml", "version = 1\n[tasks.one]\nrn = 'true'\n");
    let wrong = desk.call(&["run", "-d"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (2, ""), "{}", wrong.err);
    assert!(wrong.err.contains("unknown_key"), "{}", wrong.err);
    assert_eq!(desk.runs().len(), 1);
}

#[test]
fn trust_is_asked_for_before_anything_begins() {
    let text = "[sandbox]\nnetwork = true\nwritable_roots = ['/none\\u001b[2K']\n\
                [tasks.t]\nrun = 'touch ran'\n";
    let desk = Desk::commands(&text.replace('\'', "\""));
    for (answer, code) in [("n\n", 2), ("y\n", 0)] {
        let mut terminal = Terminal::start(&desk, 120, &["run"]);
        // Typed ahead: none of it is an answer.
        terminal.types("y\nyes\n");
        let shown = terminal.until("trust it? [y yes, n no; enter asks again]");
        assert!(shown.contains("agents.toml wants more than a project usually needs"), "{shown}");
        assert!(shown.contains("commands can use the network"), "{shown}");
        assert!(shown.contains(r"commands can write `/none\u{1b}[2K`"), "{shown}");
        assert!(desk.runs().is_empty());
        terminal.types("perhaps\n");
        wait("the question again", || {
            (terminal.text().matches("trust it? [").count() == 2).then_some(())
        });
        terminal.types(answer);
        let ended = wait("its end", || terminal.child.try_wait().expect("a child"));
        assert_eq!(ended.exit_code(), code, "{}", terminal.text());
        assert_eq!(desk.path().join("ran").exists(), code == 0);
    }
    // It is remembered.
    let (code, shown) = Terminal::start(&desk, 120, &["run"]).end();
    assert!(code == 0 && !shown.contains("trust it?"), "{shown}");
}

#[test]
fn another_run_beside_one_that_is_running_is_asked_for() {
    let desk = Desk::commands("[tasks.one]\nrun = 'until test -e go; do sleep 0.01; done'\n");
    let first = desk.start(&["run"]);
    desk.wait_for_event("tool.started", |_| true);
    let id = desk.runs()[0].file_name().expect("a name").to_string_lossy().into_owned();
    let asks = "start another one? [y yes, n no; enter asks again]";
    let mut terminal = Terminal::start(&desk, 100, &["run"]);
    // Typed ahead: none of it is an answer.
    terminal.types("y\n");
    let shown = terminal.until(asks);
    let told = format!("`desk` is already running: run {}.", &id[id.len() - 8..]);
    assert!(shown.contains(&told) && shown.contains("in the same folder"), "{shown}");
    // Enter alone is no answer.
    terminal.types("\n");
    wait("the question again", || (terminal.text().matches(asks).count() == 2).then_some(()));
    terminal.types("n\n");
    let ended = wait("its end", || terminal.child.try_wait().expect("a child"));
    assert_eq!(ended.exit_code(), 75, "{}", terminal.text());
    terminal.until("`callsheet attach` follows it; `--also` does not ask");
    assert_eq!(desk.runs().len(), 1, "nothing began");

    let mut second = Terminal::start(&desk, 100, &["run"]);
    second.until(asks);
    assert_eq!(desk.runs().len(), 1, "nothing begins before the answer");
    second.types("y\n");
    second.until("tasks 0/1 done, 1 running");
    assert_eq!(desk.runs().len(), 2);
    let third = Terminal::start(&desk, 100, &["run", "--also"]);
    let shown = third.until("tasks 0/1 done, 1 running");
    assert!(!shown.contains("start another one?"), "{shown}");
    desk.write("go", "");
    for terminal in [second, third] {
        let (code, shown) = terminal.end();
        assert_eq!(code, 0, "{shown}");
    }
    assert_eq!(first.end().code, 0);
    let rows = desk.json(&["ps", "-a", "--json"]);
    let runs = rows.iter().filter(|row| row["kind"] == "run" && row["state"] == "completed");
    assert_eq!(runs.count(), 3);
}
