//! Tools of the configuration, through the real binary: hostile arguments, rules, the sandbox, and
//! crashes at each step of a call.

use callsheet::crash::Point;
use serde_json::Value;

use crate::support::desk::{Desk, Done};

/// The results of the calls of the newest run, in the order in which they ended: the tool, the
/// status, and the text that the model read.
pub(crate) fn results(desk: &Desk) -> Vec<(String, String, String)> {
    let journal = desk.runs().pop().expect("a run").join("journal.jsonl");
    let journal = std::fs::read_to_string(journal).expect("a journal");
    let records = journal.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let finished = records.filter(|record| record["type"] == "tool.finished");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    finished
        .map(|record| {
            let data = &record["data"];
            (text(&data["name"]), text(&data["status"]), text(&data["block"]["content"]))
        })
        .collect()
}

const TOOLS: &str = r#"
[tools.show]
description = "Shows its argument"
command = ["sh", "bin/show", "{{ args.text }}"]
max_output_bytes = 500
[tools.show.input_schema]
type = "object"
required = ["text"]
properties.text = { type = "string" }
[agents.worker]
tools = ["show", "bash"]
[tasks.job]
agent = "worker"
prompt = "Go."
"#;

const SHOW: &str = "printf '%s arguments: [%s]\\n' $# \"$1\"\n";

#[test]
fn a_hostile_argument_reaches_the_program_as_one_or_not_at_all() {
    let texts = [
        r"; touch ran",
        r"$(touch ran)`touch ran`",
        r"a\nb && touch ran",
        r"--version",
        r"a\u0000b",
        r"secret/plans",
    ];
    let calls = texts.map(|text| format!("{{ tool = 'show', input = {{ text = \"{text}\" }} }}"));
    let more = "{ tool = 'show', input = { text = 1 } }, { tool = 'show', input = { x = 'y' } }";
    let megabyte = "y".repeat(1 << 20);
    let large = format!("{{ tool = 'show', input = {{ text = '{megabyte}' }} }}");
    let long = format!("{{ tool = 'show', input = {{ text = '{}' }} }}", "z".repeat(100_000));
    let script = format!(
        "[[rules]]\nturn = 1\ncalls = [{}, {more}, {large}, {long}]\n[[rules]]\nsay = 'done'\n",
        calls.join(", ")
    );
    let desk = Desk::offline(&format!("deny = ['show(secret*)']\n{TOOLS}"), &script);
    desk.write("bin/show", SHOW);
    desk.good(&["check"]);
    desk.good(&["run"]);
    let results = results(&desk);
    for ((_, status, text), (wanted, begins)) in results.iter().zip([
        ("ok", "1 arguments: [; touch ran]\n"),
        ("ok", "1 arguments: [$(touch ran)`touch ran`]\n"),
        ("ok", "1 arguments: [a\nb && touch ran]\n"),
        ("error", "Error: bad arguments: `{{ args.text }}` begins with `-` here"),
        ("error", "Error: bad arguments: `{{ args.text }}` holds a NUL character"),
        ("error", "Permission denied: the rule `show(secret*)` says so."),
        ("error", "Error: bad arguments: `/text`: value is not of type \"string\""),
        ("error", "Error: bad arguments: "),
        ("error", "Error: bad arguments: `{{ args.text }}` has 1048576 bytes"),
        ("ok", "1 arguments: [zzz"),
    ]) {
        assert_eq!(status, wanted, "{text}");
        assert!(text.starts_with(begins) && text.len() < 1_000, "{text}");
    }
    assert_eq!(results.len(), 10);
    let stored = &results[9].2;
    assert!(stored.contains("bytes omitted; the full output is in "), "{stored}");
    assert!(!desk.path().join("ran").exists());
}

/// A tool of which a crash cuts calls short: it notes each beginning.
fn noting(idempotent: bool) -> String {
    format!(
        r#"
[tools.note]
description = "Notes that it ran"
command = ["sh", "-c", 'echo "$CALLSHEET_IDEMPOTENCY_KEY" >> "$LEDGER"; echo noted']
idempotent = {idempotent}
[sandbox]
env = ["LEDGER"]
[agents.worker]
tools = ["note"]
[tasks.job]
agent = "worker"
prompt = "Go."
"#
    )
}

#[test]
fn a_call_that_a_crash_cut_short_runs_again_only_if_it_may() {
    let script = "[[rules]]\nturn = 1\ncalls = [{ tool = 'note' }]\n[[rules]]\nsay = 'done'\n";
    // (point, times and status of a call that must happen once, the same of an idempotent one)
    for (point, once, idempotent) in [
        (Point::AfterIntent, (1, "ok"), (1, "ok")),
        (Point::AfterSpawn, (1, "ok"), (1, "ok")),
        (Point::AfterStart, (1, "ok"), (1, "ok")),
        (Point::ParentAfterSpool, (1, "ok"), (1, "ok")),
        (Point::AfterResult, (1, "ok"), (1, "ok")),
    ] {
        for (may_repeat, (times, status)) in [(false, once), (true, idempotent)] {
            let desk = Desk::offline(&noting(may_repeat), script);
            desk.good(&["trust"]);
            let ledger = desk.path().join(".ledger");
            let command = |verb: &str| {
                let mut command = desk.command(&[verb]);
                command.env("LEDGER", &ledger);
                command
            };
            let died =
                Done::of(command("run").env("CALLSHEET_CRASH_AT", format!("{}:1", point.name())));
            assert_eq!(died.code, -1, "{point:?}: {}", died.err);
            let done = Done::of(&mut command("resume"));
            assert_eq!(done.code, 0, "{point:?}: {}", done.err);
            let noted = std::fs::read_to_string(&ledger).unwrap_or_default();
            let found = results(&desk);
            let what = format!("{point:?} {may_repeat}: {found:?}");
            assert_eq!((noted.lines().count(), found[0].1.as_str()), (times, status), "{what}");
            assert_eq!(found.len(), 1, "{what}");
            // A repeated call has the same key.
            let mut keys: Vec<&str> = noted.lines().collect();
            keys.dedup();
            assert!(keys.len() <= 1, "{what}");
        }
    }
}

#[test]
fn a_tool_is_kept_by_the_sandbox_and_its_program_from_change() {
    // A folder that is seen, unlike those of temporary files, unless the sources themselves lie in one.
    let is_seen =
        !["/tmp", "/var/tmp"].iter().any(|tmp| env!("CARGO_TARGET_TMPDIR").starts_with(tmp));
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let calls = "[[rules]]\nturn = 1\ncalls = [{ tool = 'show', input = { text = 'x' } }, \
                 { tool = 'bash', input = { command = 'echo x >> bin/show; ls bin' } }, \
                 { tool = 'write_file', input = { path = 'bin/show', content = 'x' } }]\n\
                 [[rules]]\nsay = 'done'\n";
    let tools = TOOLS.replace("\"bash\"]", "\"bash\", \"write_file\"]");
    let desk = Desk::offline(&tools, calls);
    let there = outside.path().join("there");
    desk.write("bin/show", &format!("echo x > {} && echo GOT\n", there.display()));
    let mut command = desk.command(&["check"]);
    let said = Done::of(command.env_remove("CALLSHEET_SANDBOX__MODE"));
    assert!(said.out.contains("sandbox of commands: "), "{}{}", said.out, said.err);
    if !said.out.contains("sandbox of commands: workspace-write") {
        return;
    }
    let mut command = desk.command(&["run"]);
    let done = Done::of(command.env_remove("CALLSHEET_SANDBOX__MODE"));
    assert_eq!(done.code, 0, "{}", done.err);
    let found = results(&desk);
    assert_eq!(found.len(), 3);
    assert!(!is_seen || found[0].2.contains("the command ran in a sandbox"), "{found:?}");
    assert!(!there.exists() && !found[0].2.contains("GOT"), "{found:?}");
    assert!(
        found[1].2.contains("Read-only file system") || found[1].2.contains("Permission"),
        "{found:?}"
    );
    assert_eq!(found[2].1, "error", "{found:?}");
    assert!(desk.read("bin/show").starts_with("echo x > "));
}
