//! What a new user does wrong at first, in a shell and in a run: the words that help.

use crate::support::desk::Desk;

/// A task with JSON, and one that reads a part of it that is not there.
const READERS: &str = r#"
[tasks.j]
run = "echo '{\"a\": 1}'"
output = "json"

[tasks.reader]
depends_on = ["j"]
run = "true"
env = { FIRST = "{{ tasks.j.output.a }}", X = """
one line

{{ tasks.j.output.b.c }}""" }
"#;

#[test]
fn a_template_that_fails_names_its_line_and_what_was_there() {
    let desk = Desk::commands(READERS);
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let file = desk.read("agents.toml");
    let line = file.lines().position(|line| line.contains("output.b.c")).expect("a line") + 1;
    let wanted = format!("`env.X`, agents.toml:{line}: `tasks.j.output` has no `b`; it has `a`");
    assert!(done.out.contains(&wanted), "{wanted}\n{}", done.out);
}

/// A task with JSON, and an agent.
const BEFORE: &str = r#"
[agents.a]
model = "default"
instructions = "x"

[tasks.j]
run = "echo '{\"text\": \"x\", \"n\": 2, \"list\": [1, 5, 1]}'"
output = "json"

[tasks.t]
depends_on = ["j"]
"#;

#[test]
fn what_fails_while_it_runs_names_its_key_and_its_line() {
    for (task, line, key, says) in [
        (
            "run = 'true'\nforeach = '''\n\ntasks.j.output.text'''",
            "foreach =",
            "foreach",
            "`tasks.j.output.text` is text, not a list; `| lines` or `| from_json`",
        ),
        (
            "run = 'true'\nforeach = 'tasks.j.output.list'",
            "foreach =",
            "foreach",
            "items 0 and 2 have the same key `1`: 1 and 1",
        ),
        (
            "run = 'true'\nforeach = '[1, 2]'\nforeach_key = '{{ item // 10 }}'",
            "foreach_key",
            "foreach_key",
            "items 0 and 1 have the same key `0`: 1 and 2",
        ),
        (
            "run = 'true'\nwhen = 'tasks.j.output.n + tasks.j.output.text > 1'",
            "when",
            "when",
            "`tasks.j.output.n + tasks.j.output.text` has no result: `tasks.j.output.n` is a number and \
             `tasks.j.output.text` is text",
        ),
        (
            "approval = { message = 'Go?', show = ['1',\n'-tasks.j.output.text'] }",
            "'-tasks",
            "show[1]",
            "`-tasks.j.output.text`: invalid operation; `tasks.j.output.text` is text",
        ),
        (
            "agent = 'a'\nprompt = 'x'\nchecks = [\n{ run = 'true' },\n\
             { run = 'true', env = { A = '{{ output - 1 }}' } }]",
            "env = { A",
            "checks[1].env.A",
            "`output - 1` has no result: `output` is text and `1` is a number",
        ),
    ] {
        let desk = Desk::offline(&format!("{BEFORE}{task}\n"), "[[rules]]\nsay = 'x'\n");
        let done = desk.call(&["run"]);
        assert_ne!(done.code, 0, "{task}: {}{}", done.out, done.err);
        let file = desk.read("agents.toml");
        let at = file.lines().position(|one| one.contains(line)).expect("a line") + 1;
        // A line break after three quotes is no part of a text.
        let at = at + usize::from(task.contains("'''\n"));
        let wanted = format!("`{key}`, agents.toml:{at}: {says}");
        assert!(done.out.contains(&wanted), "{wanted}\n{}{}", done.out, done.err);
    }
}

#[test]
fn a_reason_is_never_cut() {
    let long = "a reason of many words, ".repeat(20);
    let desk = Desk::commands(&format!(
        "[tasks.a]\nrun = 'true'\nforeach = '[1, 1]'\nforeach_key = '{{{{ item }}}}{long}'\n"
    ));
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    assert!(done.out.contains("have the same key"), "{}", done.out);
    let line = done.out.lines().find(|line| line.contains("have the same key")).expect("a line");
    assert!(line.contains(long.trim_end()) && line.ends_with("1 and 1"), "{line}");
}

#[test]
fn a_script_without_a_rule_is_named() {
    let task = "[agents.a]\nmodel = 'default'\n[tasks.a]\nagent = 'a'\nprompt = 'x'\n";
    let desk = Desk::offline(task, "[[rules]]\nturn = 7\nsay = 'x'\n");
    let done = desk.call(&["run"]);
    assert!(done.out.contains(".toml: line 1, column 1: no rule of the script"), "{}", done.out);
}

#[test]
fn names_that_fit_nothing_are_said() {
    let desk =
        Desk::commands("[tasks.first]\nrun = 'echo one'\n[tasks.second]\nrun = 'echo two'\n");
    assert_eq!(desk.call(&["run"]).code, 0);
    let none = desk.call(&["tail", "--agent", "nope*"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(none.err.contains("note: the run has no agent `nope*`"), "{}", none.err);
    assert!(none.err.contains("`first`"), "{}", none.err);
    let none = desk.call(&["tail", "--task", "frist"]);
    assert!(none.err.contains("did you mean `first`?"), "{}", none.err);
    let some = desk.call(&["tail", "--task", "f*"]);
    assert!(some.err.is_empty() && !some.out.is_empty(), "{}{}", some.out, some.err);
    // A task of the newest run needs no slash, where no run has its name.
    assert_eq!(desk.good(&["show", "second", "--output"]), "two\n");
    let none = desk.call(&["show", "third"]);
    assert_eq!(none.code, 1);
    assert!(none.err.contains("there is no run `third`"), "{}", none.err);
}

#[test]
fn a_cancel_says_what_it_did() {
    let desk = Desk::commands("[tasks.gate.approval]\nmessage = 'Go?'\n");
    assert_eq!(desk.call(&["run"]).code, 6);
    let run = desk.json(&["ps", "-a", "--json"])[0]["run"].as_str().expect("an id").to_owned();
    let done = desk.call(&["cancel", &run]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains(&format!("cancelled: {run}")), "{}", done.err);
    let again = desk.call(&["cancel", &run]);
    assert!(again.code == 0 && again.err.contains("nothing to stop"), "{}", again.err);
}

#[test]
fn a_flag_of_other_programs_has_an_answer() {
    let desk = Desk::commands("[tasks.a]\nrun = 'true'\n");
    let done = desk.call(&["resume", "--dry-run"]);
    assert_eq!(done.code, 2, "{}", done.err);
    for says in ["callsheet run --dry-run", "callsheet resume --explain"] {
        assert!(done.err.contains(says), "{}", done.err);
    }
    assert!(!done.err.contains("as a value"), "{}", done.err);
    for (arguments, says) in [
        (["run", "--explain"], "callsheet resume --explain"),
        (["check", "-d"], "callsheet run --detach"),
        (["check", "--keep-going"], "`--keep-going` is a flag of `callsheet run`"),
    ] {
        let done = desk.call(&arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}", done.err);
        assert!(done.err.contains(says) && !done.err.contains("similar"), "{}", done.err);
    }
}

#[test]
fn a_headline_is_one_line() {
    let desk = Desk::commands("[tasks.a]\nrun = 'x'\noutput_file = '{{ run.id }'\n");
    let done = desk.call(&["check"]);
    let line = done.err.lines().find(|line| line.starts_with("error[bad_template]"));
    let line = line.expect("a headline");
    assert!(line.ends_with("expected end of variable block"), "{}", done.err);
    assert!(done.err.contains("help: close `{{` with `}}`"), "{}", done.err);
}
