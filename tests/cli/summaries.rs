//! What a run says of itself: outputs of failures, work that was denied or left undone, raw
//! outputs.

use serde_json::json;

use crate::support::desk::{Desk, lines};

/// An agent with `bash`, a child that may fail, and rules without a terminal.
fn desk(permissions: &str, script: &str) -> Desk {
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
         tools = ['bash', 'write_file', 'glob', 'give_up']\nsub_agents = ['b']\n\
         [agents.b]\nmodel = 'default'\ninstructions = 'x'\ntools = ['glob']\nmax_turns = 1\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\n";
    let desk = Desk::offline(rest, script);
    let text = desk.read("agents.toml").replace("default = \"allow\"", permissions);
    desk.write("agents.toml", &text);
    desk
}

/// It asks for two things that nobody allows, and says that it is done.
const DENIED: &str = r#"
[[rules]]
agent = "a"
turn = 1
[[rules.calls]]
tool = "bash"
input = { command = "touch made" }
[[rules.calls]]
tool = "write_file"
input = { path = "made", content = "x" }
[[rules.calls]]
tool = "write_file"
input = { path = "other", content = "x" }
[[rules]]
say = "all is done"
"#;

#[test]
fn denied_calls_are_told_and_strict_makes_them_count() {
    let desk = desk("default = 'ask'", DENIED);
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let told = "left undone:  3 calls denied: bash, write_file";
    assert!(done.out.contains(told), "{}", done.out);
    assert!(desk.good(&["show", "/one"]).contains("left undone: 3 calls denied"));
    let last = desk.json(&["tail", "--json"]).pop().expect("an event");
    let shortfalls = &last["data"]["shortfalls"];
    assert_eq!(*shortfalls, json!({"denied": {"bash": 1, "write_file": 2}}));
    for row in desk.json(&["ps", "-a", "--json"]) {
        assert_eq!(row["shortfalls"], *shortfalls, "{row}");
    }
    let strict = desk.call(&["run", "--strict"]);
    assert_eq!(strict.code, 8, "{}", strict.out);
    assert!(strict.out.contains("run partial"), "{}", strict.out);
    let text = desk.read("agents.toml");
    desk.write(
        "agents.toml",
        &text.replace("[permissions]", "[limits]\nstrict = true\n[permissions]"),
    );
    assert_eq!(desk.call(&["run"]).code, 8);
    // The tasks are as they were: nothing failed that could be retried.
    assert_eq!(desk.call(&["resume"]).code, 8);
}

#[test]
fn an_agent_can_give_up() {
    let gives_up = r#"
[[rules.calls]]
tool = "give_up"
input = { reason = "the file `x` is missing" }
"#;
    let table = [
        ("default = 'allow'", format!("[[rules]]\n{gives_up}"), 1, "gave_up"),
        (
            "default = 'ask'",
            DENIED.replace("[[rules]]\nsay = \"all is done\"\n", &format!("[[rules]]\n{gives_up}")),
            7,
            "denied",
        ),
    ];
    let seconds = regex::Regex::new(r"\d+\.\d s").expect("an expression");
    for (permissions, script, code, kind) in table {
        let desk = desk(permissions, &script);
        let done = desk.call(&["run"]);
        assert_eq!(done.code, code, "{}{}", done.out, done.err);
        let says =
            format!("one  failed        0.0 s  {kind}: the agent gave up: the file `x` is missing");
        let out = seconds.replace_all(&done.out, "0.0 s");
        assert!(out.contains(&says), "{out}");
    }
    // Without a reason the call is an error, and the agent goes on.
    let blank = "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'give_up'\ninput = { reason = ' ' }\n\
                 [[rules]]\nsay = 'then not'\n";
    assert!(desk("default = 'allow'", blank).good(&["run"]).contains("then not"));
}

#[test]
fn failed_children_are_counted() {
    let script = r#"
[[rules]]
agent = "a"
turn = 1
[[rules.calls]]
tool = "delegate"
input = { agent = "b", prompt = "fails" }
[[rules.calls]]
tool = "delegate"
input = { agent = "b", prompt = "works" }
[[rules]]
agent = "b"
when = "prompt == 'fails'"
[[rules.calls]]
tool = "glob"
input = { pattern = "*" }
[[rules]]
say = "done"
"#;
    let done = desk("default = 'allow'", script).call(&["run", "--strict"]);
    assert_eq!(done.code, 8, "{}{}", done.out, done.err);
    assert!(done.out.contains("left undone:  1 of 2 children failed"), "{}", done.out);
}

#[test]
fn a_failed_command_shows_the_end_of_its_output_everywhere() {
    let desk = Desk::commands(
        "[tasks.bad]\nrun = 'seq 1 30; printf \"\\033[2Jsteer\\n\" >&2; exit 4'\n\
         retry = { max_attempts = 2, initial_interval = '1ms', retry_on = ['command_failed'] }\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}", done.err);
    let below = |first: u32| {
        let numbers = (first..=30).map(|n| format!("    | {n}\n")).collect::<String>();
        numbers + "    | \\u{1b}[2Jsteer\n"
    };
    // Twenty lines, no more.
    assert!(done.out.contains(&format!("exit code 4\n{}", below(12))), "{}", done.out);
    assert!(!done.out.contains("    | 11\n"), "{}", done.out);
    // The lines of both attempts.
    assert_eq!(done.err.matches("    | 30\n").count(), 1, "said once while it is the same");
    let run = desk.runs().pop().expect("a run");
    let log = std::fs::read_to_string(run.join("agents/bad~2.log")).expect("a log");
    assert!(log.ends_with(&below(12)), "{log}");
    let whole = desk.good(&["show", "/bad"]);
    assert!(whole.contains("\n| 1\n| 2\n| 3\n") && whole.contains("exit code 4"), "{whole}");
    let raw = desk.good(&["show", "/bad", "--output"]);
    assert_eq!(raw, (1..=30).map(|n| format!("{n}\n")).collect::<String>());
    assert_eq!(desk.good(&["show", "/bad", "--stderr"]), "\x1b[2Jsteer\n");
    let failed = desk.json(&["tail", "--json"]);
    let error = &failed.last().expect("an event")["data"]["tasks"]["bad"]["error"];
    assert_eq!(error["message"], "the command ended with exit code 4");
    assert!(error["output"].as_str().is_some_and(|output| output.starts_with("12\n")), "{error}");
    // A log that was made again is the same.
    desk.good(&["rebuild", "desk"]);
    assert_eq!(std::fs::read_to_string(run.join("agents/bad~2.log")).expect("a log"), log);
    // So is one that was cut in the middle of these lines.
    let cut = log.find("    | 20").expect("a line");
    std::fs::write(run.join("agents/bad~2.log"), &log[..cut]).expect("written");
    desk.call(&["resume"]);
    assert_eq!(std::fs::read_to_string(run.join("agents/bad~2.log")).expect("a log"), log);
}

#[test]
fn raw_outputs_are_whole() {
    let desk = Desk::commands(
        "[tasks.long]\nrun = 'seq 1 100000'\n[tasks.bytes]\nrun = 'printf \"no newline\"'\n\
         [tasks.none]\nrun = 'true'\nwhen = 'false'\n[tasks.latin]\nrun = 'printf \"caf\\351\"'\n",
    );
    desk.good(&["run"]);
    let latin = desk.command(&["show", "/latin", "--output"]).output().expect("it runs");
    assert_eq!(latin.stdout, b"caf\xe9");
    let long = desk.good(&["show", "/long", "--output"]);
    assert_eq!(long, (1..=100_000).map(|n| format!("{n}\n")).collect::<String>());
    assert_eq!(desk.good(&["show", "/bytes", "--output"]), "no newline");
    assert_eq!(desk.good(&["show", "@bytes", "--output"]), "no newline");
    let none = desk.call(&["show", "/none", "--output"]);
    assert_eq!((none.code, none.out.as_str()), (1, ""));
    assert!(none.err.contains("task `none` has no output"), "{}", none.err);
    assert_eq!(desk.call(&["show", "--output"]).code, 2);
}

#[test]
fn json_says_the_same() {
    let desk = desk("default = 'ask'", DENIED);
    let done = desk.call(&["run", "--json", "--strict"]);
    assert_eq!(done.code, 8, "{}", done.err);
    let events = lines(&done.out);
    let denied: Vec<_> = events.iter().filter(|event| event["data"]["denied"] == true).collect();
    assert_eq!(denied.len(), 3);
    assert!(denied.iter().all(|event| event["data"]["status"] == "error"));
    assert_eq!(events.last().expect("an event")["data"]["status"], "partial");
}

#[test]
fn a_task_that_left_something_undone_can_be_named_and_begins_again() {
    // What is denied is allowed by a file later: the calls run only after the retry.
    let desk = desk("default = 'ask'", DENIED);
    let text = desk.read("agents.toml")
        + "[tasks.after]\nrun = 'echo after >> starts'\ndepends_on = ['one']\n\
           [tasks.other]\nrun = 'echo other >> starts'\n";
    desk.write("agents.toml", &text);
    let done = desk.call(&["run", "--strict"]);
    assert_eq!(done.code, 8, "{}", done.err);
    assert!(done.out.contains("by task:      one\n"), "{}", done.out);
    // The same rules deny again; an attempt that was followed by another one does not count.
    let again = desk.call(&["resume", "--retry-failed", "one"]);
    assert_eq!(again.code, 8, "{}", again.err);
    assert!(again.out.contains("left undone:  3 calls denied"), "{}", again.out);
    assert_eq!(desk.read("starts").matches("after").count(), 2, "what depends on it ran again");
    assert_eq!(desk.read("starts").matches("other").count(), 1);
    let unnamed = desk.call(&["resume", "--retry-failed"]);
    assert_eq!(unnamed.code, 8);
    assert!(unnamed.err.contains("nothing is left to do"), "{}", unnamed.err);
}

#[test]
fn a_run_without_a_model_names_no_money() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    let done = desk.call(&["run"]);
    let summary = done.out.lines().find(|line| line.starts_with("run completed after"));
    assert!(summary.is_some_and(|line| !line.contains('$')), "{}", done.out);
    let log = desk.good(&["tail"]);
    let end = log.lines().find(|line| line.contains("run completed:"));
    assert!(end.is_some_and(|line| !line.contains('$')), "{log}");
}
