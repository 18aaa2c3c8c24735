//! `run --set`, `run --model`, `run --dry-run` and `init DIR`.

use insta::assert_snapshot;
use serde_json::json;

use crate::support::desk::Desk;

/// A graph with an agent, a gate and a command that fails once.
const GRAPH: &str = r#"
[limits]
timeout = "10m"
[agents.reader]
instructions = "You read."
tools = ["read_file"]
[tasks.read]
agent = "reader"
prompt = "Read."
[tasks.gate]
depends_on = ["read"]
approval = { message = "Go on?" }
[tasks.write]
depends_on = ["gate"]
when = "true"
run = '''
test -e there
echo "$WORD"
'''
env = { WORD = "hello" }
"#;

const SCRIPT: &str = "[[rules]]\nsay = 'read'\n";

#[test]
fn a_key_is_set_for_one_run_and_for_its_resumes() {
    let desk =
        Desk::commands("[tasks.a]\nrun = 'test -e there && echo $WORD'\nenv = { WORD = 'file' }\n");
    let done = desk.call(&["run", "--set", "tasks.a.env.WORD=7", "--set", "name=other"]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let shown = desk.json(&["show", "--json"]).remove(0);
    assert_eq!(shown["set"], json!({"name": "other", "tasks.a.env.WORD": "7"}));
    let text = desk.good(&["show"]);
    assert!(text.contains("set for this run: tasks.a.env.WORD=7\n"), "{text}");
    assert!(
        desk.good(&["report"]).contains("with `tasks.a.env.WORD=7`"),
        "{}",
        desk.good(&["report"])
    );
    desk.write("there", "");
    desk.good(&["resume", "--retry-failed"]);
    assert_eq!(desk.good(&["show", "other/a", "--output"]).trim_end(), "7");
    // The next run is as the file says.
    desk.good(&["run"]);
    assert_eq!(desk.good(&["show", "desk/a", "--output"]).trim_end(), "file");
}

#[test]
fn what_needs_trust_in_the_file_needs_it_in_a_flag() {
    let desk = Desk::commands("[tasks.a]\nrun = 'true'\n");
    let set = ["run", "--set", "sandbox.readable_roots=[\"/etc/ssl\"]"];
    let done = desk.call(&set);
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains("command line:1:24: commands can read `/etc/ssl`"), "{}", done.err);
    assert!(desk.runs().is_empty());
    assert_eq!(desk.call(&[&set[..], &["--trust"]].concat()).code, 0);
    assert_eq!(desk.call(&set).code, 0, "it is remembered");
    let off = desk.call(&["run", "--set", "sandbox.mode=danger-full-access", "--trust"]);
    assert_eq!(off.code, 2, "{}", off.err);
    assert!(off.err.contains("callsheet run --sandbox danger-full-access"), "{}", off.err);
}

#[test]
fn a_mistake_in_a_flag_is_shown_with_its_place() {
    let desk = Desk::commands("[tasks.a]\nrun = 'true'\n");
    let done = desk.call(&["run", "--set", "limits.max_concurency=2"]);
    assert_eq!(done.code, 2);
    assert_snapshot!(done.err, @r"
    error[unknown_key]: unknown key `max_concurency` in [limits] (from --set)
       ╭─[command line:1:1]
     1 │ limits.max_concurency
       · ^^^^^^^^^^^^^^^^^^^^^
       ╰────
      help: did you mean `max_concurrency`?

    error: 1 mistake in agents.toml
    ");
    assert!(desk.runs().is_empty());
}

#[test]
fn a_model_is_named_for_one_run() {
    let desk = Desk::offline(GRAPH, SCRIPT);
    let done = desk.call(&["run", "read", "--model", "big-2"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("note: the context window"), "{}", done.err);
    let shown = desk.json(&["show", "--json"]).remove(0);
    assert_eq!(shown["set"], json!({"models.default.model": "big-2"}));
}

#[test]
fn a_dry_run_says_what_would_run_and_leaves_nothing() {
    let desk = Desk::offline(GRAPH, SCRIPT);
    let done = desk.call(&["run", "--dry-run", "--set", "limits.max_concurrency=2"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_snapshot!(done.out, @r"
    3 tasks of desk would run, at most 2 at the same time; tasks with the same number may run together:

    1  read   agent reader, model default (m of a script); tools: read_file
    2  gate   a person is asked, for as long as it takes
              after read
    3  write  command: test -e there …
              after gate
              only when true

    time         the run ends after 10m
    turns        at most reader 50
    on failure   the first failure starts no new task (`--keep-going` goes on)
    people       task gate asks
    sandbox      workspace-write, no network
    set          limits.max_concurrency=2

    nothing was started, and nothing was written
    ");
    let mut names: Vec<_> = std::fs::read_dir(desk.path())
        .expect("a folder")
        .map(|e| e.expect("one").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["agents.toml", "script.toml"]);
    // Only what is named, with what it needs.
    let some = desk.good(&["run", "read", "--dry-run"]);
    assert!(some.starts_with("1 task of desk would run") && !some.contains("gate"), "{some}");
    assert_eq!(desk.call(&["run", "nope", "--dry-run"]).code, 2);
    desk.write("agents.toml", "version = 1\n[tasks.a]\nrun = 1\n");
    assert_eq!(desk.call(&["run", "--dry-run"]).code, desk.call(&["check"]).code);
}

#[test]
fn a_graph_is_written_to_a_folder() {
    let desk = Desk::empty();
    let said = desk.good(&["init", "a folder/demo"]);
    assert!(said.starts_with("a folder/demo/agents.toml: "), "{said}");
    assert!(said.contains("\ngo there:     cd 'a folder/demo'\n"), "{said}");
    let done = desk.shell("cd 'a folder/demo' && callsheet check && callsheet run");
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let again = desk.call(&["init", "a folder/demo", "--template", "fix"]);
    assert_eq!(again.code, 2);
    assert!(
        again.err.contains("a folder/demo/agents.toml exists already: nothing was written"),
        "{}",
        again.err
    );
    assert!(!desk.path().join("a folder/demo/scripts/fix.toml").exists());
    desk.write("file", "");
    let file = desk.call(&["init", "file"]);
    assert_eq!(file.code, 2);
    assert!(file.err.contains("file is not a folder"), "{}", file.err);
    assert_eq!(desk.call(&["init", "/proc/nope"]).code, 74);
}
