//! The report of a run: in three formats, for runs in every state, with hostile texts.

use serde_json::Value;

use crate::support::desk::{Desk, wait};

/// Text that would be markup, steer a terminal or end a fence.
const HOSTILE: &str = "</pre><script>alert(1)</script><img src=http://e/x>\\n```\\n# forged\\n\
                       [x](http://e/) \\u001b[31m \\u202e | `a`";

/// A task that succeeds after an edit with a test, one that fails, one that is skipped; all texts
/// are hostile.
fn desk() -> Desk {
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['write_file', 'bash']\n\
         [agents.bad]\nmodel = 'default'\ninstructions = 'x'\ntools = ['give_up']\n\
         [tasks.good]\nagent = 'a'\nprompt = \"go HOSTILE\"\n\
         [tasks.bad]\nagent = 'bad'\ndepends_on = ['good']\nprompt = 'go'\n\
         [tasks.never]\ndepends_on = ['bad']\nrun = 'true'\n";
    let script = r#"
[[rules]]
agent = "a"
turn = 1
[[rules.calls]]
tool = "write_file"
input = { path = "<b>`x`|.txt", content = "x\n" }
[[rules.calls]]
tool = "bash"
input = { command = "pytest '<i>HOSTILE' ; false" }
[[rules]]
agent = "bad"
[[rules.calls]]
tool = "give_up"
input = { reason = "HOSTILE" }
[[rules]]
say = "HOSTILE"
"#;
    Desk::offline(&rest.replace("HOSTILE", HOSTILE), &script.replace("HOSTILE", HOSTILE))
}

#[test]
fn a_report_is_complete_and_nothing_in_it_is_markup() {
    let desk = desk();
    assert_eq!(desk.call(&["run"]).code, 1);
    let page = desk.good(&["report"]);
    for wanted in [
        "# `desk`: **failed**\n",
        "- exit code: 1\n",
        "- tasks: 1 completed, 1 failed, 1 skipped\n",
        "## What to do next\n\n- what failed: `callsheet show ",
        " --retry-failed`\n",
        "### `bad`: **failed**\n\n- gave_up: ```` the agent gave up: </pre>",
        "- changed ``<b>`x`|.txt``: +1 -0 lines, new\n",
        "## Spending\n",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    // No line from outside begins a heading or a link: all of them are inside fences and spans.
    let mut fence: Option<&str> = None;
    for line in page.lines() {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) if line == open => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 && line.ends_with("text") => fence = Some(ticks),
            None => assert!(!line.contains("forged") || line.contains("\\u{a}"), "{line}"),
        }
    }
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'), "{page}");

    let html = desk.good(&["report", "--format", "html"]);
    for bad in ["<script", "<img", "<i>", "<b>`", "\u{1b}", "\u{202e}"] {
        assert!(!html.contains(bad), "{bad}: {html}");
    }
    assert!(html.contains("default-src 'none'") && html.contains("&lt;script&gt;"), "{html}");
    assert!(html.contains("<b class=\"failed\">failed</b>"), "{html}");

    let report = &desk.json(&["report", "desk", "--format", "json"])[0];
    assert_eq!(report["state"], "failed");
    assert_eq!(report["exit_code"], 1);
    assert_eq!(report["tasks"][0]["evidence"]["files"][0]["path"], "<b>`x`|.txt");
    assert_eq!(report["tasks"][1]["error"]["kind"], "gave_up");
    assert_eq!(report["tasks"][2]["state"], "skipped");
    // Every key of it is documented.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.md"));
    let page = page.expect("the page");
    let mut keys = Vec::new();
    gather(report, &mut keys);
    for key in keys {
        assert!(page.contains(&format!("`{key}`")), "docs/report.md does not name `{key}`");
    }
}

/// Gathers the keys of an object and of those in it, but for free texts: inputs, counts by name.
fn gather(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                keys.push(key.clone());
                if !["inputs", "counts", "overrides", "shortfalls"].contains(&key.as_str()) {
                    gather(value, keys);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| gather(value, keys)),
        _ => {}
    }
}

#[test]
fn live_stopped_and_damaged_runs_are_reported_too() {
    let desk = Desk::commands(
        "[tasks.one]\nrun = 'echo one'\n\
         [tasks.two]\ndepends_on = ['one']\nrun = 'touch begun; sleep 600'\n",
    );
    assert_eq!(desk.call(&["report"]).code, 1, "there is no run");
    let live = desk.start(&["run"]);
    wait("the command", || desk.path().join("begun").exists().then_some(()));
    let page = desk.good(&["report"]);
    assert!(page.starts_with("# `desk`: **running**\n"), "{page}");
    assert!(page.contains("- follow it: `callsheet attach "), "{page}");
    assert!(page.contains("- tasks: 1 completed, 1 running\n"), "{page}");
    drop(live);
    let page = desk.good(&["report"]);
    assert!(page.starts_with("# `desk`: **stopped**\n"), "{page}");
    assert!(page.contains("- go on: `callsheet resume "), "{page}");
    // One byte of an acknowledged record is not what was written.
    let journal = desk.runs()[0].join("journal.jsonl");
    let mut bytes = std::fs::read(&journal).expect("a journal");
    let place = bytes.windows(14).position(|at| at == b"task.completed").expect("a record");
    bytes[place] = b'X';
    std::fs::write(&journal, bytes).expect("written");
    let done = desk.call(&["report"]);
    assert_eq!(done.code, 74, "{}", done.err);
    assert!(done.out.contains("## The journal cannot be read to its end\n"), "{}", done.out);
    assert!(done.out.contains("- tasks: 1 pending, 1 running\n"), "{}", done.out);
    let done = desk.call(&["report", "--format", "json"]);
    let report: Value = serde_json::from_str(&done.out).expect("JSON");
    assert!(report["damage"].as_str().is_some_and(|why| why.contains("journal")), "{report}");
}
