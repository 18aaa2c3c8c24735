//! The documented format of the journal: a reader in another language agrees with callsheet about sound, torn
//! and damaged journals.

use std::process::Command;

use crate::support::desk::{Desk, Done, lines};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/read_journal.py");

/// Reads a journal with the other reader; `None` where there is no Python.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn read(desk: &Desk) -> Option<Done> {
    let found = Command::new("python3").arg("--version").output();
    if found.is_err() {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let mut command = Command::new("python3");
    desk.bare(command.arg(SCRIPT).arg(desk.runs()[0].join("journal.jsonl")));
    Some(Done::of(&mut command))
}

fn ran() -> Desk {
    let desk = Desk::offline(
        "[agents.a]\ninstructions = 'x'\ntools = ['glob']\n[tasks.one]\nagent = 'a'\nprompt = 'ä\\u2028\\u0085\\n'\n\
         [tasks.two]\nrun = 'echo two'\ndepends_on = ['one']\n",
        "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*' }\n[[rules]]\nsay = 'done'\n",
    );
    desk.good(&["run"]);
    desk
}

#[test]
fn a_reader_made_from_the_page_reads_the_same_records() {
    let desk = ran();
    let Some(done) = read(&desk) else { return };
    assert_eq!(done.code, 0, "{}", done.err);
    let events = lines(&desk.good(&["tail", "--json"]));
    let line = |event: &serde_json::Value| {
        format!("{} {}\n", event["seq"], event["type"].as_str().expect("a type"))
    };
    assert_eq!(done.out, events.iter().map(line).collect::<String>());
}

#[test]
fn it_tells_torn_from_damaged_at_the_same_places() {
    let desk = ran();
    let path = desk.runs()[0].join("journal.jsonl");
    let whole = std::fs::read(&path).expect("a journal");
    let mut random = fastrand::Rng::with_seed(16);
    for case in 0..40 {
        let mut bytes = whole.clone();
        let at = random.usize(bytes.len() / 4..bytes.len());
        match case % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << random.u8(0..8),
        }
        std::fs::write(&path, &bytes).expect("written");
        let Some(theirs) = read(&desk) else { return };
        let ours = desk.call(&["tail", "--json"]);
        let count = |text: &str| text.lines().count();
        assert_eq!(
            count(&theirs.out),
            count(&ours.out),
            "{case} {at}: {} {}",
            theirs.err,
            ours.err
        );
        match (theirs.code, theirs.err.split_once(": line ")) {
            (1, Some((_, place))) => {
                let (line, rest) = place.split_once(", byte ").expect("a place");
                let byte: String = rest.chars().take_while(char::is_ascii_digit).collect();
                let place = format!("line {line} of the journal, at byte {byte}");
                assert_eq!(ours.code, 74, "{case} {at}: {}", theirs.err);
                assert!(ours.err.contains(&place), "{case} {at}: {} {}", theirs.err, ours.err);
            }
            (0 | 3, _) => assert_eq!(ours.code, 0, "{case} {at}: {} {}", theirs.err, ours.err),
            _ => panic!("{case} {at}: {theirs:?}"),
        }
    }
}
