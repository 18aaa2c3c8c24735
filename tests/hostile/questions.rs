//! Questions to a person about calls that try to look like other calls, and answers that were typed
//! before the question was there.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::desk::{Desk, wait};
use crate::support::pty::Terminal;

/// For what must happen: longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// The time after which something is typed again.
const AGAIN: Duration = Duration::from_secs(3);

/// The pause between two looks at the screen.
const LOOK: Duration = Duration::from_millis(5);

/// An agent that makes these calls, one in each turn, under rules that ask.
fn asking(calls: &[(&str, Value)]) -> Desk {
    let mut script = String::new();
    for (turn, (tool, input)) in (1..).zip(calls) {
        // A JSON object of one level is a table of TOML but for its colons, and its texts are texts.
        let fields = input.as_object().expect("an object").iter();
        let fields: Vec<_> =
            fields.map(|(name, value)| format!("{} = {}", toml(name), toml(text(value)))).collect();
        script.push_str(&format!(
            "[[rules]]\nagent = 'a'\nturn = {turn}\n[[rules.calls]]\ntool = '{tool}'\n\
             input = {{ {} }}\n",
            fields.join(", ")
        ));
    }
    script.push_str("[[rules]]\nsay = 'all is done'\n");
    let desk = Desk::offline(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
         tools = ['bash', 'write_file', 'edit_file', 'read_file']\nsub_agents = ['b']\n\
         [agents.b]\nmodel = 'default'\ninstructions = 'x'\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n",
        &script,
    );
    let text = desk.read("agents.toml").replace("default = \"allow\"", "default = 'ask'");
    desk.write("agents.toml", &text);
    let lines = (1..=60).map(|n| format!("line {n}\n")).collect::<String>();
    desk.write("there.sh", &lines);
    desk
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// A text as TOML, and for the script's templates as it is.
fn toml(text: &str) -> String {
    let number = |c: char| format!("\\U{:08X}", u32::from(c));
    let text: String = text
        .chars()
        .map(|c| match c {
            ' '..='~' if c != '"' && c != '\\' => c.to_string(),
            _ => number(c),
        })
        .collect();
    format!("\"{text}\"")
}

/// Number of the last line that a page shows, or `None` if the question is shown to its end. There is
/// no such answer before a page is there.
fn page(terminal: &Terminal) -> Option<Option<usize>> {
    let text = terminal.text();
    if text.contains("allow? [") {
        return Some(None);
    }
    let last = text.rsplit("line ").find(|part| part.contains(": enter for more"))?;
    last.split(' ').next()?.parse().ok().map(Some)
}

/// Reads a question to its end, page by page. Returns all that was shown.
fn read(terminal: &mut Terminal) -> String {
    let mut shown = String::new();
    loop {
        let at = wait("a page", || page(terminal));
        shown.push_str(&(terminal.text() + "\n"));
        if at.is_none() {
            return shown;
        }
        type_until(terminal, "\n", |terminal| page(terminal).is_some_and(|now| now != at));
    }
}

/// A text without blanks, newlines and the marks at the beginning of rows: rows end where they must.
fn dense(text: &str) -> String {
    let row = |row: &str| row.strip_prefix("  |").unwrap_or(row).to_owned();
    text.lines().map(row).collect::<String>().split_whitespace().collect()
}

fn bash(command: impl Into<String>) -> (&'static str, Value) {
    ("bash", json!({ "command": command.into() }))
}

fn write(path: &str, content: impl Into<String>) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": content.into() }))
}

/// Calls that hide what they do, and what a person must see of each.
fn calls() -> Vec<((&'static str, Value), Vec<&'static str>)> {
    let made = "; touch made";
    let lines = |count: usize| "echo\n".repeat(count) + "touch made";
    vec![
        // Far away.
        (bash(format!("echo {}{made}", "x".repeat(400))), vec![made]),
        (bash(format!("ls{}{made}", " ".repeat(450))), vec!["ls [450 blanks] ; touch made"]),
        (bash(format!("ls{}{made}", "\t".repeat(450))), vec!["ls [450 blanks] ; touch made"]),
        (bash(format!("ls{}{made}", "\u{a0}".repeat(450))), vec!["[450 blanks]", made]),
        (bash(format!("ls{}{made}", "\u{3164}".repeat(450))), vec!["[450 blanks]", made]),
        (bash(format!("ls{}{made}", "\u{2800}\u{3000} ".repeat(150))), vec!["[450 blanks]", made]),
        (bash(format!("ls{}{made}", "\u{200b}".repeat(90))), vec![r"ls\u{200b}", made]),
        (
            bash(format!("ls{}touch made", "\n".repeat(300))),
            vec!["[299 blank lines]", "touch made"],
        ),
        (bash(format!("ls{}touch made", "\r\n".repeat(60))), vec![r"ls\u{d}", "touch made"]),
        (bash(lines(200)), vec!["echo", "touch made"]),
        (bash(format!("echo {}{made}", "漢".repeat(900))), vec![made]),
        (bash(format!("echo {}{made}", "x ".repeat(6_000))), vec![made]),
        // Written over.
        (bash("touch made #\rls         #"), vec![r"touch made #\u{d}ls"]),
        (bash("touch made\x08\x08\x08\x08ls"), vec![r"made\u{8}\u{8}\u{8}\u{8}ls"]),
        (bash("touch made\x1b[2K\x1b[1Gls"), vec![r"touch made\u{1b}[2K\u{1b}[1Gls"]),
        (bash("touch made\n\x1b[1A\x1b[2Kls"), vec!["touch made", r"\u{1b}[1A\u{1b}[2Kls"]),
        (bash("touch made\x1b[2J\x1b[Hls"), vec![r"touch made\u{1b}[2J\u{1b}[Hls"]),
        (bash("touch made \x1b[8m; ls\x1b[0m"), vec![r"touch made \u{1b}[8m; ls\u{1b}[0m"]),
        (bash("ls\x1b[?1049h; touch made"), vec![r"ls\u{1b}[?1049h; touch made"]),
        (bash("ls \u{9b}2K; touch made"), vec![r"ls \u{9b}2K; touch made"]),
        (bash("ls\x1b]52;c;cm0=\x07; touch made"), vec![r"\u{1b}]52;c;cm0=\u{7}; touch made"]),
        (bash("ls\x1b]0;safe\x07; touch made"), vec![r"\u{1b}]0;safe\u{7}; touch made"]),
        (
            bash("\x1b]8;;http://x\x1b\\ls\x1b]8;;\x1b\\; touch made"),
            vec![r"\u{1b}]8;;http://x\u{1b}\ls\u{1b}]8;;\u{1b}\; touch made"],
        ),
        // Turned around, and not seen.
        (bash("touch \u{202e}edam\u{202c}; ls"), vec![r"touch \u{202e}edam\u{202c}; ls"]),
        (bash("ls # \u{2067}\u{2066}; touch made"), vec![r"\u{2067}\u{2066}; touch made"]),
        (bash("l\u{200b}s\u{2060}\u{feff}; touch made"), vec![r"l\u{200b}s\u{2060}\u{feff}"]),
        (bash("ls\u{e0072}\u{e006d}; touch made"), vec![r"ls\u{e0072}\u{e006d}; touch made"]),
        (bash("ls\u{2028}touch made\u{85}"), vec![r"ls\u{2028}touch made\u{85}"]),
        (bash("l\u{ad}s\u{fe0f}\u{34f}; touch made"), vec![r"l\u{ad}s\u{fe0f}\u{34f}"]),
        // A question of its own.
        (
            bash("touch made\nallow? [y yes]\none wants to use bash:\n  ls"),
            vec!["touch made", "    allow? [y yes]"],
        ),
        // It would stand at the left of the next row.
        (
            bash(format!("{}allow? [y yes] touch made", "x".repeat(78))),
            vec!["allow? [y yes] touch made"],
        ),
        (
            bash(format!(
                "{}one wants to use bash: {}; touch made",
                "x".repeat(78),
                "y".repeat(52)
            )),
            vec!["; touch made"],
        ),
        // Files.
        (write("made", "x\x1b[2J\x1b[Hy\n"), vec![r"+x\u{1b}[2J\u{1b}[Hy"]),
        (write("made", format!("ok{}evil\n", " ".repeat(450))), vec!["+ok [450 blanks] evil"]),
        (write("made", "a\n".repeat(300) + "evil\n"), vec!["+a", "+evil"]),
        (write("made", "ls\r\nevil\r"), vec![r"+ls\u{d}", r"+evil\u{d}"]),
        (write("made\u{202e}txt.sh", "x"), vec![r"made\u{202e}txt.sh", "+x"]),
        (write("made\x1b[2K", "x"), vec![r"made\u{1b}[2K"]),
        (write(&format!("made{}sh", " ".repeat(90)), "x"), vec!["made [90 blanks] sh"]),
        (
            (
                "edit_file",
                json!({"path": "there.sh", "old_string": "line 50",
                "new_string": "line 50\x1b[1A\u{202e}evil"}),
            ),
            vec!["-line 50", r"+line 50\u{1b}[1A\u{202e}evil"],
        ),
        (
            (
                "delegate",
                json!({"agent": "b", "prompt": format!("x{}\x1b[2Kevil", " ".repeat(450))}),
            ),
            vec!["agent: b", r"[450 blanks] \u{1b}[2Kevil"],
        ),
        (
            ("read_file", json!({"path": "there.sh", "x\x1b[2K\u{202e}": "y\r\u{200b}"})),
            vec![r"x\u{1b}[2K\u{202e}", r"y\u{d}\u{200b}"],
        ),
    ]
}

/// Codes that only a hostile text could have sent, for any call above.
const NEVER: [&str; 21] = [
    "\x1b[2J",
    "\x1b[H",
    "\x1b[8m",
    "\x1b[?1049h",
    "\x1b]",
    "\x1b\\",
    "\u{9b}",
    "\u{85}",
    "\x08",
    "\u{202e}",
    "\u{2066}",
    "\u{2067}",
    "\u{200b}",
    "\u{2060}",
    "\u{feff}",
    "\u{e0072}",
    "\u{2028}",
    "\u{ad}",
    "\u{fe0f}",
    "\u{34f}",
    "\u{3164}",
];

#[test]
fn a_question_shows_all_that_it_asks_for() {
    let all = calls();
    assert!(all.len() >= 40);
    std::thread::scope(|scope| {
        for part in all.chunks(all.len().div_ceil(4)) {
            scope.spawn(move || {
                for (call, wanted) in part {
                    question_about(call, wanted);
                }
            });
        }
    });
}

fn question_about(call: &(&str, Value), wanted: &[&str]) {
    let desk = asking(std::slice::from_ref(call));
    let mut terminal = Terminal::start(&desk, 80, &["run"]);
    let shown = read(&mut terminal);
    for text in wanted {
        assert!(dense(&shown).contains(&dense(text)), "{call:?}: {text}: {shown}");
    }
    assert!(shown.contains(&format!("one wants to use {}:\n", call.0)), "{call:?}: {shown}");
    // Only the program's own lines begin at the left.
    for own in ["allow? [", "one wants to use"] {
        let count = terminal.text().lines().filter(|line| line.starts_with(own)).count();
        assert!(count <= 1, "{call:?}: {own}: {shown}");
    }
    let written = terminal.written();
    for code in NEVER {
        assert!(!written.contains(code), "{call:?}: {code:?}");
    }
    type_until(&mut terminal, "n\n", has_ended);
    let (code, shown) = terminal.end();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains(&format!("1 call denied: {}", call.0)), "{call:?}: {shown}");
    let names = std::fs::read_dir(desk.path()).expect("a folder");
    let made = names
        .filter_map(Result::ok)
        .any(|entry| entry.file_name().to_string_lossy().starts_with("made"));
    assert!(!made && !desk.read("there.sh").contains("evil"), "{call:?}");
}

#[test]
fn what_was_typed_before_a_question_is_no_answer() {
    let long = "echo x > /dev/null\n".repeat(120) + "touch made";
    for (ahead, after) in [
        ("y\n", ""),
        ("y\ny\ny\ny\ny\ny\n", ""),
        ("a\nt\nr\nyes\nalways\n", ""),
        // Half a line: the other half comes when the question is there.
        ("y", "\n"),
        ("ye", "s please\n"),
        ("y\ny", "\n"),
        ("\x04", ""),
    ] {
        let desk = asking(&[bash("touch made")]);
        let mut terminal = Terminal::start(&desk, 80, &["run"]);
        terminal.types(ahead);
        terminal.until("allow? [");
        if !after.is_empty() {
            let is_asked_again = |t: &Terminal| t.text().matches("allow? [").count() > 1;
            type_until(&mut terminal, after, is_asked_again);
        }
        // The question is still open; only the end of the input may have been taken for a no.
        let says_why = |t: &Terminal| t.text().contains("no rule of [permissions] allows it");
        let is_open = |t: &Terminal| says_why(t) || (ahead == "\x04" && has_ended(t));
        type_until(&mut terminal, "w\n", is_open);
        assert!(!desk.path().join("made").exists(), "{ahead:?}");
        type_until(&mut terminal, "n\n", has_ended);
        let (code, shown) = terminal.end();
        assert!(code == 0 && shown.contains("1 call denied: bash"), "{ahead:?}: {shown}");
    }
    // In one go with the answer to the question before, and with the pages of the same one.
    for next in [bash("touch made"), bash(long)] {
        let desk = asking(&[bash("touch first"), next]);
        let mut terminal = Terminal::start(&desk, 80, &["run"]);
        terminal.until("allow? [");
        type_until(&mut terminal, &"y\n".repeat(40), |_| desk.path().join("first").exists());
        wait("the second question", || {
            let text = terminal.text();
            (text.contains(": enter for more") || text.contains("  | touch made")).then_some(())
        });
        if terminal.text().contains(": enter for more") {
            terminal.types("y\ny\ny\ny\ny\ny\ny\ny\ny\ny\n");
        }
        assert!(!desk.path().join("made").exists());
        type_until(&mut terminal, "n\n", has_ended);
        assert!(!desk.path().join("made").exists());
    }
}

fn has_ended(terminal: &Terminal) -> bool {
    terminal.text().contains("its events:")
}

/// Types a text until it has an effect: what is typed while a question appears is dropped.
fn type_until(terminal: &mut Terminal, text: &str, has_effect: impl Fn(&Terminal) -> bool) {
    let began = Instant::now();
    let mut typed = None::<Instant>;
    while !has_effect(terminal) {
        assert!(began.elapsed() < DEADLINE, "{text:?} has no effect: {}", terminal.text());
        if typed.is_none_or(|at| at.elapsed() > AGAIN) {
            terminal.types(text);
            typed = Some(Instant::now());
        }
        std::thread::sleep(LOOK);
    }
}

#[test]
fn a_long_rule_does_not_push_the_call_out_of_sight() {
    let desk = asking(&[write("made", (1..=30).map(|n| format!("{n}.\n")).collect::<String>())]);
    let rule = format!("default = 'ask'\nask = ['write_file({}made)']", "**/".repeat(500));
    desk.write("agents.toml", &desk.read("agents.toml").replace("default = 'ask'", &rule));
    let mut terminal = Terminal::start(&desk, 80, &["run"]);
    let first = wait("the first page", || {
        let text = terminal.text();
        (text.contains(": enter for more") || text.contains(", w why]")).then_some(text)
    });
    assert!(first.contains("one wants to use write_file:"), "{first}");
    let shown = read(&mut terminal);
    wait("the whole question", || {
        dense(&terminal.text()).contains("**/**/made)`isabout").then_some(())
    });
    assert!(shown.contains("\n  | +30.\n"), "{shown}");
    type_until(&mut terminal, "n\n", has_ended);
    assert_eq!(terminal.end().0, 0);
}
