//! `check`: every mistake in one go, each at its place.

use std::process::Command;

use insta::assert_snapshot;

use crate::support::desk::{Desk, keys, lines};

const BAD: &str = r#"version = 1
nam = "x"

[providers.p]
kind = "scripted"
script = "scripts/s.toml"

[models.default]
provider = "q"
model = "m"

[agents.a]
model = "defalt"
instructions = "Größe"
tools = ["read_fil"]

[tasks.one]
agent = "a"
prompt = "Größe: {{ inputs.pat }}"
"#;

fn bad() -> Desk {
    let desk = Desk::empty();
    desk.write("agents.toml", BAD);
    desk.write("scripts/s.toml", "[[rules]]\nsay = \"x\"\n\n[[rules]]\nsya = \"x\"\n");
    desk
}

#[test]
fn people_see_each_mistake_with_its_line_and_a_suggestion() {
    let done = bad().call(&["check"]);
    assert_eq!((done.code, done.out.as_str()), (2, ""));
    done.assert_plain();
    assert_snapshot!(done.err, @r#"
    error[unknown_key]: unknown key `nam` at the top level
       ╭─[agents.toml:2:1]
     1 │ version = 1
     2 │ nam = "x"
       · ^^^
     3 │ 
       ╰────
      help: did you mean `name`?

    error[unknown_provider]: there is no provider `q`
        ╭─[agents.toml:9:12]
      8 │ [models.default]
      9 │ provider = "q"
        ·            ^^^
     10 │ model = "m"
        ╰────
      help: did you mean `p`?

    error[unknown_model]: there is no model `defalt`
        ╭─[agents.toml:13:9]
     12 │ [agents.a]
     13 │ model = "defalt"
        ·         ^^^^^^^^
     14 │ instructions = "Größe"
        ╰────
      help: did you mean `default`?

    error[unknown_tool]: there is no tool `read_fil`
        ╭─[agents.toml:15:10]
     14 │ instructions = "Größe"
     15 │ tools = ["read_fil"]
        ·          ^^^^^^^^^^
     16 │ 
        ╰────
      help: did you mean `read_file`?

    error[undefined_name]: `inputs.pat` is not defined
        ╭─[agents.toml:19:21]
     18 │ agent = "a"
     19 │ prompt = "Größe: {{ inputs.pat }}"
        ·                     ^^^^^^^^^^
        ╰────
      help: add [inputs.pat]

    error[bad_script]: a rule has no key `sya`: it knows agent, turn, last_tool, when, let, say, calls, stop, delay_ms
       ╭─[scripts/s.toml:5:1]
     4 │ [[rules]]
     5 │ sya = "x"
       · ^^^
       ╰────

    error: 6 mistakes in agents.toml
    "#);
}

#[test]
fn programs_see_one_object_a_line() {
    let desk = bad();
    let done = desk.call(&["check", "--json"]);
    assert_eq!((done.code, done.err.as_str()), (2, ""));
    let found = lines(&done.out);
    for found in &found {
        let wanted = ["code", "severity", "file", "line", "column", "message", "help"];
        assert_eq!(keys(found), wanted);
    }
    let places: Vec<_> = found
        .iter()
        .map(|found| {
            let part = |key: &str| found[key].to_string().replace('"', "");
            format!("{}:{}:{} {}", part("file"), part("line"), part("column"), part("code"))
        })
        .collect();
    assert_eq!(
        places,
        [
            "agents.toml:2:1 unknown_key",
            "agents.toml:9:12 unknown_provider",
            "agents.toml:13:9 unknown_model",
            "agents.toml:15:10 unknown_tool",
            "agents.toml:19:21 undefined_name",
            "scripts/s.toml:5:1 bad_script",
        ]
    );
    assert!(found.iter().all(|found| found["severity"] == "error"));
}

#[test]
fn run_finds_the_same_mistakes_and_spends_nothing() {
    let desk = bad();
    let (run, check) = (desk.call(&["run"]), desk.call(&["check"]));
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert_eq!(run.err, check.err);
    assert!(desk.runs().is_empty());
}

#[test]
fn a_good_file_is_summed_up_in_one_line() {
    let desk = Desk::offline(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n[tasks.t]\nagent = 'a'\nprompt = 'x'\n",
        "[[rules]]\nsay = 'x'\n",
    );
    let out = desk.good(&["check"]);
    assert_eq!(out, "agents.toml: 1 task, 1 agent, 1 model: no mistakes\n");
    assert_eq!(desk.good(&["check", "--json"]), "");
    assert!(desk.runs().is_empty());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let done = Desk::empty().call(&["check", "-f", "gone.toml"]);
    assert_eq!((done.code, done.out.as_str()), (2, ""));
    assert_snapshot!(done.err, @r"
    error[unreadable_file]: cannot read `gone.toml`: No such file or directory (os error 2)
      help: name another file with `-f FILE`, or write one with `callsheet init`

    error: 1 mistake in gone.toml
    ");
}

#[test]
fn a_file_of_another_tool_is_recognised() {
    let desk = Desk::empty();
    desk.write("agents.toml", "[[agents]]\nname = \"x\"\nrole = \"y\"\n");
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 2);
    assert_snapshot!(done.err, @r#"
    error[foreign_file]: this file belongs to another tool: its `agents` is an array
       ╭─[agents.toml:1:3]
     1 │ [[agents]]
       ·   ^^^^^^
     2 │ name = "x"
       ╰────
      help: name the file of callsheet with `-f FILE`

    error: 1 mistake in agents.toml
    "#);
}

#[test]
fn wrong_usage_is_two() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    for arguments in [
        &["nonsense"][..],
        &["run", "--no-such-flag"],
        &["run", "nosuch"],
        &["run", "--input", "x"],
        &["run", "--input", "x=1"],
        &["run", "--run-id", "x"],
        &["run", "--profile", "nosuch"],
        &["tail", "--agent", "{"],
        &["cost", "--by", "colour"],
        &["compact", "desk"],
    ] {
        if arguments == ["compact", "desk"] {
            desk.good(&["run"]);
        }
        let done = desk.call(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {}{}", done.out, done.err);
        assert_eq!(done.out, "", "{arguments:?}");
        assert_ne!(done.err, "", "{arguments:?}");
        done.assert_plain();
    }
    assert_eq!(desk.runs().len(), 1);
}

#[test]
fn all_rules_of_a_script_are_read_before_it_is_refused() {
    let desk = Desk::offline(
        "[agents.a]\nmodel = 'default'\ninstructions = 'x'\n[tasks.t]\nagent = 'a'\nprompt = 'x'\n",
        "[[rules]]\nsya = 'x'\n[[rules]]\nsay = 'good'\n[[rules]]\nturn = 'x'\n[[rules]]\nsay = '{{'\n",
    );
    let found = lines(&desk.call(&["check", "--json"]).out);
    let places: Vec<_> = found.iter().map(|found| found["line"].as_u64()).collect();
    assert_eq!(places, [Some(2), Some(6), Some(8)], "{found:?}");
    // The newcomer's slips of other programs, each with the word used here.
    let desk = Desk::commands(
        "[agents.a]\nsystem_prompt = 'x'\ntools = ['Read', 'Bash']\n[permissions]\n\
         deny = ['Bash(rm:*)']\n[tasks.t]\nstart = 'make'\n[tasks.u]\nagent = 'a'\nprompt = 'x'\n\
         temperature = 0.2\n[limits]\nmax_depth = 'two'\nbananas = 1\n",
    );
    let done = desk.call(&["check"]);
    assert_eq!(done.code, 2);
    for help in [
        "an agent's system prompt is written as `instructions`",
        "it is `read_file` here",
        "it is `bash` here",
        "write it as `bash(rm*)`",
        "a command is written as `run`",
        "a model's settings are keys of its `[models.NAME]`",
        "write it like `max_depth = 10`",
        "docs/agents-toml.md#limits lists the keys of [limits]",
    ] {
        let flat = done.err.replace('\n', " ").replace("  │ ", "");
        assert!(flat.contains(help), "{help}: {}", done.err);
    }
}

#[test]
fn a_configuration_is_read_from_regular_files_of_bounded_size() {
    let desk = Desk::empty();
    let made = Command::new("mkfifo").arg(desk.path().join("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let long = std::fs::File::create(desk.path().join("long.toml")).expect("a file");
    long.set_len(1 << 40).expect("a hole");
    for (file, says) in [
        ("pipe", "it is not a regular file"),
        ("/dev/zero", "it is not a regular file"),
        ("long.toml", "it has more than"),
        (".", "it is a directory"),
    ] {
        let refused = desk.call(&["check", "-f", file]);
        assert_eq!(refused.code, 2, "{file}: {}", refused.err);
        assert!(refused.err.contains(says), "{file}: {}", refused.err);
        // Named in the file.
        let agent = format!("[agents.a]\nmodel = 'm'\ninstructions_file = '{file}'\n");
        desk.write("agents.toml", &format!("version = 1\n{agent}[tasks.t]\nrun = 'true'\n"));
        if file.starts_with('/') {
            // A file outside is not touched before it is trusted.
            let untouched = desk.call(&["check"]);
            assert!(untouched.err.contains("warning[needs_trust]"), "{}", untouched.err);
            desk.call(&["trust"]);
        }
        let refused = desk.call(&["check"]);
        assert!(refused.err.contains(says), "{file}: {}", refused.err);
    }
}
