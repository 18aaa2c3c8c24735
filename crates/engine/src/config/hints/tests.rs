//! Tests of the words of help: what a new user got wrong, and what should be said.

use super::*;
use crate::config::tests::{BASE, Workspace};
use crate::config::{Missing, Sources, load_text};

#[test]
fn values_that_were_meant() {
    for (text, meant) in [
        ("5 minutes", Some("5m")),
        ("5M", Some("5m")),
        ("5", Some("5s")),
        ("90 sec", Some("90s")),
        ("soon", None),
        ("5 parsecs", None),
    ] {
        assert_eq!(duration(text).as_deref(), meant, "{text}");
    }
    for (text, meant) in [
        ("20", Some("20")),
        ("200k", Some("200_000")),
        ("1M", Some("1_000_000")),
        ("many", None),
        ("", None),
        ("k", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(whole(text).as_deref(), meant, "{text}");
    }
    assert_eq!(snake("allowedTools"), "allowed_tools");
    assert_eq!(snake("dependsOn"), "depends_on");
}

#[test]
fn texts_of_other_languages() {
    for (text, at, says) in [
        ("{\"version\": 1}", 0, "this is JSON, and the file is TOML"),
        ("version: 1\n", 7, "this is YAML, and the file is TOML"),
        ("tasks:\n  a:\n", 5, "this is YAML, and the file is TOML"),
        ("name = \u{201c}x\u{201d}\n", 7, "curly quotes"),
        ("name = \"a\u{1}b\"\n", 9, "a control character, U+0001"),
        ("[[tasks]]\n", 2, "`tasks` is no array"),
    ] {
        assert_eq!(not_toml(text, at).map(|(message, _)| message).as_deref(), Some(says));
    }
    for (text, at) in [("name = \n", 7), ("name = 'a:b'x\n", 12), ("", 0)] {
        assert_eq!(not_toml(text, at), None, "{text}");
    }
}

/// Checks that each text has a problem with all these words, and none with the words after them.
fn say(text: &str, words: &[&str], not: &[&str]) {
    let workspace = Workspace::new();
    let found = workspace.problems(text, &workspace.sources());
    let is_said = found.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(is_said, "{text}\nwanted {words:?}\nin {found:#?}");
    for word in not {
        assert!(!found.iter().any(|line| line.contains(word)), "{word}\nin {found:#?}");
    }
}

/// A task of an agent with these lines below the base.
fn task(body: &str) -> String {
    format!("{BASE}[tasks.u]\nagent = 'a'\nprompt = 'P'\ndepends_on = ['t']\n{body}")
}

#[test]
fn expressions_of_other_languages() {
    for (body, words) in [
        (
            "foreach = '{{ tasks.t.output }}'",
            ["`foreach` is an expression: leave out the braces", "write `tasks.t.output`"],
        ),
        (
            "when = '{{ inputs.x }}'",
            ["`when` is an expression: leave out the braces", "write `inputs.x`"],
        ),
        ("when = 'run.id = 1'", ["`=` compares nothing", "comparison is written `==`"]),
        ("when = 'run.id && run.id'", ["`&&` is no operator", "write `and`"]),
        ("when = 'run.id || run.id'", ["`||` is no operator", "write `or`"]),
        ("when = '!run.id'", ["`!` is no operator", "write `not`"]),
        ("when = 'run.id | uper'", ["no filter `uper`", "did you mean `upper`?"]),
        ("when = 'run.id is defind'", ["no test `defind`", "did you mean `defined`?"]),
        ("output_file = '{{ run.id }'", ["bad_template", "close `{{` with `}}`"]),
        ("output_file = '{% if run.id }x{% endif %}'", ["bad_template", "close `{%` with `%}`"]),
        ("output_file = '{{ run.id | uper }}'", ["bad_template", "did you mean `upper`?"]),
    ] {
        say(&task(body), &words, &[]);
    }
}

#[test]
fn keys_and_words_of_other_tools() {
    let own = |body: &str| format!("{BASE}{body}");
    let variable = "env = { A = '{{ tasks.t.output }}' }";
    let cases: [(String, &[&str], &[&str]); 14] = [
        (
            own("[tasks.u]\nrun = 'x'\ndepends = ['t']\n"),
            &["unknown key `depends`", "`depends_on`"],
            &[],
        ),
        (
            own(&format!("[tasks.u]\nrun = 'x'\n{variable}\ndepends_on = ['x']\n")),
            &["missing_dependency", "add it: `depends_on = [\"t\"]`"],
            &[],
        ),
        (
            own(&format!("[tasks.u]\nrun = 'x'\n{variable}\ndepends_on = ['u']\n")),
            &["missing_dependency", "add it: `depends_on = [\"t\"]`"],
            &[],
        ),
        (
            own("[agents.b]\nmodel = 'm'\nallowedTools = ['Read']\n"),
            &["unknown key `allowedTools`", "`tools`", "`[permissions]`"],
            &[],
        ),
        (
            own("[agents.b]\nmodel = 'm'\ntools = ['Bash(git:*)']\n"),
            &[
                "`Bash(git:*)` is a rule",
                "write `bash` here, and \"bash(git*)\" in `allow` of [permissions]",
            ],
            &[],
        ),
        (task("on_failure = 'ignore'"), &["did you mean `continue`?"], &[]),
        (
            task("[tasks.u.retry]\nattempts = 3"),
            &["unknown key `attempts`", "did you mean `max_attempts`?"],
            &[],
        ),
        (
            own("[tasks.u.retry]\nmax_attempts = 2\nrun = 'x'\n"),
            &[
                "unknown key `run` in [tasks.u.retry]",
                "it belongs to [tasks.u]: write it above [tasks.u.retry]",
            ],
            &["does nothing"],
        ),
        (own("[tasks.u.x]\ny = 1\n"), &["unknown key `x` in [tasks.u]"], &["does nothing"]),
        (own("[budget]\nmax_cost_usd = 1\n"), &["did you mean `max_cost`?"], &[]),
        (own("[mcp_servers.x]\ncommand = 'y'\n"), &["`mcp_servers`", "`[tools.NAME]`"], &[]),
        (
            own("[providers.q]\nservice = 'openroute'\n"),
            &["did you mean `openrouter`?"],
            &["has no `kind`"],
        ),
        (
            own(
                "[permissions]\nallow = ['bash(git *']\n[agents.b]\nmodel = 'm'\ntools = ['bash']\n",
            ),
            &["bad_rule"],
            &["needs_person"],
        ),
        // The same words are read at a terminal and without one.
        (
            own(
                "[permissions]\ndefault = 'ask'\n[agents.b]\nmodel = 'm'\ntools = ['write_file']\n",
            ),
            &[
                "needs_person",
                "every call of `write_file` by agent `b` needs the answer of a person",
            ],
            &["without a terminal"],
        ),
    ];
    for (text, words, not) in cases {
        say(&text, words, not);
    }
}

#[test]
fn values_of_another_form() {
    let own = |body: &str| format!("{BASE}{body}");
    let model = |body: &str| own(&format!("[models.n]\nprovider = 'p'\nmodel = 'x'\n{body}\n"));
    let cases: [(String, &[&str]); 14] = [
        (
            BASE.replace("version = 1", "version = \"1\""),
            &["`version` must be the integer 1, not a string"],
        ),
        (task("timeout = '5 minutes'"), &["did you mean \"5m\"?"]),
        (task("timeout = '5M'"), &["did you mean \"5m\"?"]),
        (task("timeout = 5"), &["did you mean \"5s\"?"]),
        (task("timeout = '0s'"), &["must be above 0"]),
        (task("max_turns = '20'"), &["write `max_turns = 20`"]),
        (task("max_turns = -1"), &["`tasks.u.max_turns` must be at least 1"]),
        (model("context_window = '200k'"), &["write `context_window = 200_000`"]),
        (
            model("context_window = 200"),
            &[
                "`models.n.context_window` must be at least 256",
                "no request with a tool and a reply fits",
            ],
        ),
        (own("[tasks.u]\nrun = 'x'\nenv = { N = 3 }\n"), &["`N = \"3\"`"]),
        (task("retry = 3"), &["write `retry = { max_attempts = 3 }`"]),
        (model("cost_per_mtok = 3"), &["`cost_per_mtok = { input = 0.5, output = 0.5 }`"]),
        (
            task("output_schema = { type = 'objekt' }"),
            &["there is no JSON type `objekt`", "did you mean `object`?"],
        ),
        (
            task("[tasks.u.checks]\nrun = 'x'"),
            &["must be an array, not a table", "`[[tasks.u.checks]]`"],
        ),
    ];
    for (text, words) in cases {
        say(&text, words, &[]);
    }
}

#[test]
fn files_of_another_form() {
    let cases: [(String, &[&str]); 8] = [
        ("version = 1\n[[tasks]]\nname = 'x'\n".to_owned(), &["`[tasks.NAME]`"]),
        (format!("{BASE}[[tasks]]\nname = 'x'\n"), &["`tasks` is no array", "`[tasks.NAME]`"]),
        ("version: 1\ntasks:\n  a:\n    run: x\n".to_owned(), &["this is YAML"]),
        ("{\n  \"version\": 1\n}\n".to_owned(), &["this is JSON"]),
        ("version = 1\nname = \u{201c}x\u{201d}\n".to_owned(), &["curly quotes", "straight"]),
        ("version = 1\nname = \"a\u{1}b\"\n".to_owned(), &["a control character, U+0001"]),
        (
            BASE.replace("version = 1", "version = 1\nname = \"m\\u0000\""),
            &["`name` has a control character, U+0000"],
        ),
        (
            BASE.replace("model = \"x\"", "model = \"x\\u0007\""),
            &["`models.m.model` has a control character, U+0007"],
        ),
    ];
    for (text, words) in cases {
        say(&text, words, &[]);
    }
}

#[test]
fn many_keys_are_never_listed() {
    let workspace = Workspace::new();
    let page = crate::config::reference();
    for (table, says) in [
        ("", "lists the keys of the top level"),
        ("[limits]", "lists the keys of [limits]"),
        ("[compaction]", "lists the keys of [compaction]"),
        ("[tasks.u]", "lists the keys of [tasks.NAME]"),
        ("[agents.u]", "lists the keys of [agents.NAME]"),
        ("[models.u]", "lists the keys of [models.NAME]"),
        ("[providers.u]", "lists the keys of [providers.NAME]"),
        ("[profiles.n.limits]", "lists the keys of [limits]"),
    ] {
        let text = match table {
            "" => BASE.replace("version = 1\n", "version = 1\nbananas = 1\n"),
            table => format!("{BASE}{table}\nbananas = 1\n"),
        };
        let found = workspace.problems(&text, &workspace.sources());
        let line = found.iter().find(|line| line.contains("unknown key `bananas`"));
        let line = line.unwrap_or_else(|| panic!("{table}: {found:#?}"));
        assert!(line.contains(says) && line.matches('`').count() == 2, "{line}");
        let anchor = line.split("agents-toml.md#").nth(1).and_then(|rest| rest.split(' ').next());
        let link = format!("](#{})", anchor.expect("an anchor"));
        assert!(page.contains(&link), "{link}");
    }
    let text = format!("{BASE}[tasks.note.x]\na = 1\n");
    let found = workspace.problems(&text, &workspace.sources());
    assert_eq!(
        found,
        [
            "14:13 unknown_key unknown key `x` in [tasks.note] | there is no table `[tasks.note.x]`; \
          docs/agents-toml.md#tasksname lists the keys of [tasks.NAME]"
        ]
    );
}

#[test]
fn an_array_in_place_of_tables_is_told_once() {
    let workspace = Workspace::new();
    for (table, key) in
        [("[tasks.t]", "tasks"), ("[models.m]", "models"), ("[providers.p]", "providers")]
    {
        let text = BASE.replace(table, &format!("[[{key}]]"));
        let found = workspace.problems(&text, &workspace.sources());
        let [one] = &found[..] else { panic!("{key}: {found:#?}") };
        let at = text.lines().position(|line| line.starts_with("[[")).expect("a line") + 1;
        let says = format!("{at}:3 wrong_type `{key}` must be a table, not an array");
        assert!(one.starts_with(&says) && one.contains(&format!("`[{key}.NAME]`")), "{one}");
    }
}

#[test]
fn a_model_of_a_similar_name_is_suggested() {
    let text = "version = 1\n[defaults]\nprices = 'builtin'\n[providers.p]\nkind = 'anthropic'\n\
        [models.m]\nprovider = 'p'\nmodel = 'claude-sonet-4-5'\n[agents.a]\nmodel = 'm'\n\
        [tasks.t]\nagent = 'a'\nprompt = 'x'\n";
    let workspace = Workspace::new();
    let sources = Sources { missing_keys: Missing::Allow, ..workspace.sources() };
    let found = workspace.problems(text, &sources);
    let is_said = |line: &String| line.contains("did you mean `claude-sonnet-4-5`?");
    assert!(found.iter().any(is_said), "{found:#?}");
}

#[test]
fn mistakes_come_in_the_order_of_the_file() {
    let wrong = |n: usize| format!("[tasks.t{n}]\nrum = 'x'\n");
    let text = format!("{BASE}{}", (0..2_000).map(wrong).collect::<String>());
    let workspace = Workspace::new();
    let errors = load_text(&text, &workspace.sources()).expect_err("mistakes");
    let unknown: Vec<_> = errors.0.iter().filter(|found| found.code == "unknown_key").collect();
    for (n, found) in unknown.iter().take(50).enumerate() {
        assert!(found.message.contains(&format!("[tasks.t{n}]")), "{n}: {found}");
    }
    assert!(unknown.len() >= 50);
}
