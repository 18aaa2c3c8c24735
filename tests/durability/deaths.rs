//! Calls of which the program dies, and calls that would take more memory than there is.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use crate::support::desk::{Desk, Live, wait};

const AGENT: &str = "[agents.a]\ninstructions = 'x'\n\
    tools = ['read_file', 'write_file', 'edit_file', 'grep', 'glob']\n\
    [tasks.one]\nagent = 'a'\nprompt = 'go'\n";

/// Returns true if the program has a file with this name open.
fn has_open(run: &Live, name: &str) -> bool {
    let fds = fs::read_dir(format!("/proc/{}/fd", run.id())).into_iter().flatten().flatten();
    fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|path| path.ends_with(name))
}

#[test]
fn a_call_that_ended_the_program_twice_is_not_made_a_third_time() {
    let call = "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'read_file'\n\
        input = { path = 'huge', offset = 3 }\n[[rules]]\nsay = \"{{ last[0].text }}\"\n";
    let desk = Desk::offline(AGENT, call);
    desk.write("huge", &"a".repeat(16 << 10));
    // A line that takes minutes to read.
    let file = File::options().write(true).open(desk.path().join("huge")).expect("opened");
    file.set_len(1 << 40).expect("made long");
    for verb in ["run", "resume"] {
        let run = desk.start(&[verb]);
        wait("the call", || has_open(&run, "huge").then_some(()));
        run.signal("KILL");
        run.end();
    }
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    let told = desk.good(&["show", "/one", "--output"]);
    assert!(told.contains("the program ended 2 times while this call was under way"), "{told}");
}

/// The most memory of the program while a model asks for as much as it can, in KiB.
const MOST_KIB: u64 = 400 << 10;

/// The longest that all these calls may take.
const MOST_TIME: Duration = Duration::from_secs(60);

/// The most memory that a program at work has had so far, in KiB.
fn most_memory(run: &Live) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", run.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn no_call_of_a_built_in_tool_takes_more_memory_than_it_may() {
    let calls = [
        ("read_file", "{ path = 'line' }"),
        ("read_file", "{ path = 'line', offset = 9223372036854775807 }"),
        ("read_file", "{ path = 'lines', offset = 1, limit = 9223372036854775807 }"),
        ("read_file", "{ path = 'image.png' }"),
        ("grep", "{ pattern = 'a', path = 'line' }"),
        ("grep", "{ pattern = '.', path = 'lines', limit = 10000 }"),
        ("grep", "{ pattern = '.', path = 'lines', limit = 9223372036854775807 }"),
        ("grep", "{ pattern = '((a{1000}){1000}){1000}' }"),
        ("grep", "{ pattern = \"{{ 'a|' * 100000 }}\" }"),
        ("glob", "{ pattern = \"{{ '{a,b}' * 10000 }}\" }"),
        ("glob", "{ pattern = '**/{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}' }"),
        (
            "edit_file",
            "{ path = 'many', old_string = 'a', new_string = \"{{ 'b' * 100000 }}\", replace_all = true }",
        ),
        ("edit_file", "{ path = 'line', old_string = 'a', new_string = 'b', replace_all = true }"),
        ("edit_file", "{ path = 'image.png', old_string = 'a', new_string = 'b' }"),
    ];
    let call = |(tool, input): &(&str, &str)| {
        format!("[[rules.calls]]\ntool = '{tool}'\ninput = {input}\n")
    };
    let calls: String = calls.iter().map(call).collect();
    let script = format!("[[rules]]\nturn = 1\n{calls}[[rules]]\nsay = 'done'\n");
    let desk = Desk::offline(AGENT, &script);
    desk.write("many", &"a".repeat(1 << 20));
    let mut file = File::create(desk.path().join("line")).expect("made");
    let block = vec![b'a'; 1 << 20];
    (0..100).for_each(|_| file.write_all(&block).expect("written"));
    let mut file = File::create(desk.path().join("lines")).expect("made");
    let line = format!("{}\n", "b".repeat(3_000));
    (0..20_000).for_each(|_| file.write_all(line.as_bytes()).expect("written"));
    desk.write("image.png", "");
    fs::write(desk.path().join("image.png"), b"\x89PNG\r\n\x1a\n").expect("written");
    let file = File::options().write(true).open(desk.path().join("image.png")).expect("opened");
    file.set_len(1 << 40).expect("made long");
    let (began, mut most) = (Instant::now(), 0);
    let mut run = desk.start(&["run"]);
    while !run.has_ended() {
        most = most.max(most_memory(&run).unwrap_or_default());
        assert!(began.elapsed() < MOST_TIME, "it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
    let done = run.end();
    assert_eq!(done.code, 0, "{}", done.err);
    assert!((1..MOST_KIB).contains(&most), "{most} KiB");
    let results = desk.json(&["tail", "--json"]);
    let finished = results.iter().filter(|event| event["type"] == "tool.finished").count();
    assert_eq!(finished, 14);
}
