//! The first hour: `init`, `explain`, `schema`, no verb at all, folders below the project, `ps` in 80
//! columns.

use insta::assert_snapshot;

use crate::support::desk::{Desk, lines};

/// A text with ids, times and durations replaced.
fn settled(desk: &Desk, text: &str) -> String {
    let mut text = text.to_owned();
    for run in desk.runs() {
        let id = run.file_name().expect("a name").to_string_lossy().into_owned();
        text = text.replace(&id, "RUN").replace(&id[id.len() - 8..], "RUN");
    }
    let varies = [
        (r"(?m)^[0-9a-f]{4} ", "beef "),
        (r" +(\d\d:\d\d|[A-Z][a-z]{2} \d\d) ", "      12:34 "),
        (r" +\d+s ", "    1s "),
    ];
    varies.iter().fold(text, |text, (what, word)| {
        let what = regex::Regex::new(what).expect("an expression");
        what.replace_all(&text, regex::NoExpand(word)).into_owned()
    })
}

#[test]
fn every_template_runs_at_once_and_again() {
    for template in ["review", "fix", "research"] {
        let desk = Desk::empty();
        let written = desk.good(&["init", "--template", template]);
        assert!(written.contains("callsheet run"), "{written}");
        let checked = desk.call(&["check"]);
        assert_eq!((checked.code, checked.err.as_str()), (0, ""), "{template}");
        for _ in 0..2 {
            let done = desk.call(&["run"]);
            assert_eq!(done.code, 0, "{template}: {}{}", done.out, done.err);
            assert!(!done.out.contains("left undone"), "{template}: {}", done.out);
        }
        // With files to work on, too.
        desk.write("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n");
        let done = desk.call(&["run"]);
        assert_eq!(done.code, 0, "{template}: {}{}", done.out, done.err);
        let again = desk.call(&["init", "--template", template]);
        assert_eq!((again.code, again.out.as_str()), (2, ""));
        assert!(again.err.contains("exists already: nothing was written"), "{}", again.err);
    }
}

#[test]
fn codes_are_explained() {
    let desk = Desk::empty();
    let text = desk.good(&["explain", "unknown_key"]);
    assert!(text.starts_with("unknown_key\n\n"), "{text}");
    assert_eq!(desk.good(&["explain", "error[unknown_key]"]), text);
    assert!(desk.good(&["explain", "8"]).starts_with("8\n"));
    assert!(desk.good(&["explain"]).lines().any(|line| line == "overloaded"));
    let unknown = desk.call(&["explain", "unknwn_key"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("did you mean `unknown_key`?"), "{}", unknown.err);
}

#[test]
fn schemas_describe_the_file_and_the_events() {
    let desk = Desk::empty();
    let config: serde_json::Value =
        serde_json::from_str(&desk.good(&["schema", "config"])).expect("JSON");
    assert!(config["properties"]["tasks"].is_object(), "{config}");
    let events: serde_json::Value =
        serde_json::from_str(&desk.good(&["schema", "events"])).expect("JSON");
    let types = events["anyOf"].as_array().expect("types");
    let known: Vec<_> = types.iter().map(|event| &event["properties"]["type"]["const"]).collect();
    // Every event of a run is one of them, and has the required fields.
    desk.good(&["init"]);
    for event in lines(&desk.good(&["run", "--json"])) {
        let at = known.iter().position(|known| **known == event["type"]);
        let at = at.unwrap_or_else(|| panic!("{event}"));
        let payload = types[at]["properties"]["data"]["$ref"].as_str().expect("a reference");
        let payload = &events["$defs"][payload.trim_start_matches("#/$defs/")];
        let data = event["data"].as_object().expect("a payload");
        for key in data.keys() {
            assert!(payload["properties"][key].is_object(), "{key}: {event}");
        }
        for key in payload["required"].as_array().into_iter().flatten() {
            assert!(data.contains_key(key.as_str().expect("a name")), "{key}: {event}");
        }
        for field in events["required"].as_array().expect("fields") {
            assert!(event.get(field.as_str().expect("a name")).is_some(), "{field}: {event}");
        }
    }
    assert!(desk.good(&["man"]).contains(".TH callsheet"));
}

#[test]
fn without_a_verb_it_says_what_can_be_done_here() {
    let desk = Desk::empty();
    let nothing = desk.call(&[]);
    assert_eq!(nothing.code, 0);
    assert!(nothing.out.contains("callsheet init"), "{}", nothing.out);
    desk.write("agents.toml", "version = 1\nname = 'desk'\n[tasks.one]\nrun = 'exit 3'\n");
    let before = desk.good(&[]);
    assert!(before.starts_with("agents.toml: desk: one\n"), "{before}");
    assert!(!before.contains("newest run"), "{before}");
    desk.call(&["run"]);
    let after = desk.good(&[]);
    assert!(after.contains("is failed\n"), "{after}");
}

#[test]
fn the_file_is_found_from_a_folder_below() {
    let desk = Desk::commands("[tasks.one]\nrun = 'pwd'\n");
    desk.write("src/deep/x", "");
    let mut below = desk.command(&["run"]);
    let done = crate::support::desk::Done::of(below.current_dir(desk.path().join("src/deep")));
    assert_eq!(done.code, 0, "{}", done.err);
    let root = desk.path().canonicalize().expect("it exists");
    assert!(
        done.err.contains(&format!("note: using {}/agents.toml", root.display())),
        "{}",
        done.err
    );
    assert!(
        done.out.contains(&format!("{}\n", root.display())),
        "it works in the root: {}",
        done.out
    );
    assert_eq!(desk.runs().len(), 1);
    let mut ps = desk.command(&["ps"]);
    let listed = crate::support::desk::Done::of(ps.current_dir(desk.path().join("src/deep")));
    assert!(listed.out.contains("desk  completed"), "{}", listed.out);
}

#[test]
fn ps_is_one_line_a_run_within_80_columns() {
    let desk = Desk::commands(
        "[limits]\nfail_fast = false\n[tasks.good]\nrun = 'true'\n[tasks.bad]\nrun = 'exit 1'\n\
         [tasks.after]\nrun = 'true'\ndepends_on = ['bad']\n",
    );
    desk.call(&["run"]);
    let listed = desk.good(&["ps", "--utc"]);
    assert_snapshot!(settled(&desk, &listed), @r"
    RUN   NAME   STATE      STARTED    TOOK  TASKS      COST  WAITS FOR
    beef  desk   partial      12:34    1s    1/3
    ");
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    let tree = desk.good(&["ps", "--tree", "--utc"]);
    assert_snapshot!(settled(&desk, &tree), @r"
    NAME       STATE      TURN      IN     OUT      COST  IDLE  WAITS FOR
    beef desk  partial               0       0
      good     completed             0       0
        @good  completed             0       0
      bad      failed                0       0
        @bad   failed                0       0
      after    skipped               0       0
    ");
    assert!(tree.lines().all(|line| line.chars().count() <= 80), "{tree}");
}

#[test]
fn a_miss_suggests() {
    let desk = Desk::commands("[tasks.build]\nrun = 'true'\n[tasks.test]\nrun = 'true'\n");
    let run = desk.call(&["run", "tst"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("test"), "{}", run.err);
    desk.good(&["run"]);
    for (arguments, says) in [
        (["show", "/biuld"], "did you mean `build`?"),
        (["show", "/xyz"], "there is `build` and `test`"),
        (["show", "@biuld"], "did you mean `build`?"),
    ] {
        let missed = desk.call(&arguments);
        assert_eq!(missed.code, 1);
        assert!(missed.err.contains(says), "{arguments:?}: {}", missed.err);
    }
}

/// A text with ids, event numbers and durations replaced.
fn without_ids(text: &str) -> String {
    let varies =
        [(r"\b[0-9a-f]{8}(-[0-9a-f-]{27})?\b", "RUN"), (r"@\d+", "@N"), (r"\d+\.\d s", "0.0 s")];
    varies.iter().fold(text.to_owned(), |text, (what, word)| {
        let what = regex::Regex::new(what).expect("an expression");
        what.replace_all(&text, regex::NoExpand(word)).into_owned()
    })
}

#[test]
fn the_failure_in_the_page_about_failures_is_real() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/failures.md"));
    let page = page.expect("the page");
    let section = page.split("## When something fails").nth(1).expect("the section");
    let block = |kind: &str| {
        let block = section.split(&format!("```{kind}\n")).nth(1).expect("a block");
        block.split("```").next().expect("its end").to_owned()
    };
    let desk = Desk::empty();
    desk.write("agents.toml", &block("toml"));
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert_eq!(without_ids(&done.out), without_ids(&block("text")));
    desk.write("mended", "");
    let mended = desk.good(&["resume", "--retry-failed"]);
    assert!(mended.contains("publish  completed     "), "{mended}");
}
