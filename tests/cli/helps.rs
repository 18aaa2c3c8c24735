//! The examples of the help texts: each verb has one, each is one that the program reads, and those that need nothing
//! else work.

use std::collections::BTreeSet;

use crate::support::desk::Desk;

/// Examples that need a live run, a question, a key, a terminal or a service manager.
const ELSEWHERE: [&str; 12] = [
    "attach",
    "approve",
    "reject",
    "answer",
    "compact",
    "say",
    "pause",
    "unpause",
    "-f",
    "--profile",
    "SEQ",
    "RUN",
];

/// The names of the verbs in a help text.
fn verbs(help: &str) -> Vec<String> {
    let Some(verbs) = help.split("Commands:\n").nth(1) else { return Vec::new() };
    verbs
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

/// The command lines of the examples of a verb, without their comments.
fn examples(desk: &Desk, verb: &[&str]) -> Vec<String> {
    let help = desk.good(&[verb, &["--help"]].concat());
    let examples = help.split("\nExamples:\n").nth(1).unwrap_or_else(|| panic!("{verb:?}: {help}"));
    let lines = examples.lines().take_while(|line| !line.is_empty());
    lines.map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned()).collect()
}

/// All examples, each with its verb.
fn all(desk: &Desk) -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    let mut open: Vec<Vec<String>> =
        verbs(&desk.good(&["--help"])).into_iter().map(|v| vec![v]).collect();
    assert!(open.len() > 25, "{open:?}");
    while let Some(verb) = open.pop() {
        let words: Vec<&str> = verb.iter().map(String::as_str).collect();
        for line in examples(desk, &words) {
            all.push((verb.clone(), line));
        }
        let help = desk.good(&[words.as_slice(), &["--help"]].concat());
        open.extend(verbs(&help).into_iter().map(|inner| [verb.clone(), vec![inner]].concat()));
    }
    all
}

#[test]
fn every_verb_has_an_example_that_the_program_reads() {
    let desk = Desk::empty();
    for (verb, line) in all(&desk) {
        let begins = format!("callsheet {}", verb[0]);
        assert!(line.starts_with(&begins), "{verb:?}: {line}");
        // With a flag that no verb has, everything before it is read, and it alone is refused.
        let done = desk.shell(&format!("{line} --no-such-flag"));
        assert_eq!(done.code, 2, "{line}: {}", done.err);
        assert!(done.err.contains("unexpected argument '--no-such-flag'"), "{line}: {}", done.err);
    }
}

#[test]
fn the_examples_work_after_init_and_run() {
    let desk = Desk::empty();
    desk.good(&["init"]);
    desk.good(&["run"]);
    let all = all(&desk);
    let mut ran = BTreeSet::new();
    for (verb, line) in &all {
        let is_elsewhere = line.split_whitespace().any(|word| {
            ELSEWHERE.iter().any(|other| word == *other || word.ends_with(&format!("@{other}")))
        });
        // The graph is there already.
        if is_elsewhere || line == "callsheet init" {
            continue;
        }
        let done = desk.shell(line);
        assert_eq!(done.code, 0, "{line}: {}{}", done.out, done.err);
        ran.insert(verb.join(" "));
    }
    assert!(ran.len() >= 22, "{} of {}: {ran:?}", ran.len(), all.len());
}
