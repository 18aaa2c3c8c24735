//! Sub-graphs: files whose tasks become tasks of the plan.

use crate::support::desk::{Desk, Live, wait};

const MAIN: &str = r#"
[agents.reader]
instructions = "main"
[inputs.base]
default = "main"
[tasks.before]
run = "echo before > before"
[tasks.nightly]
workflow = "workflows/nightly.toml"
with = { base = "{{ inputs.base }}/x", count = 2 }
depends_on = ["before"]
[tasks.after]
depends_on = ["nightly"]
run = "cat"
stdin = "{{ tasks.nightly.output }} {{ tasks.nightly.output.say }}"
"#;

const NIGHTLY: &str = r#"
version = 1
[inputs.base]
[inputs.count]
type = "integer"
[inputs.more]
default = "m"
[agents.reader]
instructions = "inner"
[tasks.list]
run = "test -e before && printf '[\"%s\", %s, \"%s\"]' $INPUT_BASE $INPUT_COUNT $INPUT_MORE"
output = "json"
[tasks.say]
agent = "reader"
depends_on = ["list"]
prompt = "{{ tasks.list.output }} {{ inputs.base }}"
context = ["list"]
[tasks.each]
run = "test -e stop && sleep 60; echo $ITEM"
foreach = "tasks.list.output"
depends_on = ["list"]
env = { ITEM = "{{ item }}" }
[tasks.deep]
workflow = "workflows/deep.toml"
with = { file = "{{ inputs.base }}" }
depends_on = ["list"]
"#;

const DEEP: &str = "version = 1\n[inputs.file]\n[tasks.one]\nrun = 'echo $INPUT_FILE'\n[tasks.two]\nrun = 'cat'\n\
     depends_on = ['one']\nstdin = '{{ tasks.one.output }}'\n";

fn desk() -> Desk {
    let script = "[[rules]]\nagent = 'reader'\nsay = '{{ system }}: {{ prompt }}'\n";
    let desk = Desk::offline(MAIN, script);
    desk.write("workflows/nightly.toml", NIGHTLY);
    desk.write("workflows/deep.toml", DEEP);
    desk
}

/// The id of the newest run.
fn newest(desk: &Desk) -> String {
    let run = desk.runs().pop().expect("a run");
    run.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn the_tasks_of_a_sub_graph_run_in_the_place_of_the_task_that_names_it() {
    let desk = desk();
    let checked = desk.call(&["check"]);
    // The agent of the main file is none of the sub-graph's, though it has the name of one.
    let unused = "warning[unused_agent]: no task uses agent `reader`";
    assert!(checked.code == 0 && checked.err.starts_with(unused), "{}", checked.err);
    assert_eq!(checked.err.matches("warning[").count(), 1, "{}", checked.err);
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}", done.err);
    // The main agent of a task has no line of its own, also if the name of the task has a `/`.
    assert!(!done.err.contains("done after"), "{}", done.err);
    let id = newest(&desk);
    let said = "inner: [\"main/x\",2,\"m\"] main/x\n\n<output task=\"list\">\n\
                [\"main/x\",2,\"m\"]\n</output>";
    assert_eq!(desk.good(&["show", &format!("{id}/nightly/say"), "--output"]), said);
    let after = desk.good(&["show", &format!("{id}/after"), "--output"]);
    assert!(after.starts_with("{\"say\":\"inner: "), "{after}");
    assert!(after.contains("\"each\":[{\"index\":0,\"key\":\"main/x\""), "{after}");
    assert!(after.contains("\"deep\":{\"two\":\"main/x\"}"), "{after}");
    assert!(after.ends_with(said), "{after}");
    let graph = desk.good(&["graph", &id]);
    assert!(graph.contains("sub-graph") && graph.contains("nightly/deep/two"), "{graph}");
    // One of its tasks can be named, and what it needs runs too.
    desk.good(&["run", "nightly/deep/one"]);
    let (rows, id) = (desk.json(&["ps", "-a", "--tree", "--json"]), newest(&desk));
    let tasks = rows.iter().filter(|row| row["kind"] == "task" && row["run"] == *id);
    let mut names: Vec<_> = tasks.map(|row| row["name"].as_str().expect("a name")).collect();
    names.sort_unstable();
    assert_eq!(names, ["before", "nightly/deep/one", "nightly/list"]);
}

#[test]
fn a_run_resumes_without_the_files_of_its_sub_graphs() {
    let desk = desk();
    desk.write("stop", "");
    let run: Live = desk.start(&["run"]);
    wait("the fan-out", || {
        desk.runs().pop().and_then(|run| {
            let journal = std::fs::read_to_string(run.join("journal.jsonl")).ok()?;
            journal.contains("\"task\":\"nightly/each[2]\"").then_some(())
        })
    });
    run.signal("TERM");
    run.end();
    std::fs::remove_dir_all(desk.path().join("workflows")).expect("removed");
    std::fs::remove_file(desk.path().join("stop")).expect("removed");
    let done = desk.call(&["resume"]);
    // The commands of the fan-out were interrupted.
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let id = newest(&desk);
    desk.good(&["resume", &id, "--retry-failed"]);
    assert!(desk.good(&["show", &format!("{id}/after"), "--output"]).contains("\"each\":[{"));
}

#[test]
fn a_failure_within_a_sub_graph_skips_what_waits_for_it() {
    let desk = desk();
    desk.write("workflows/deep.toml", &DEEP.replace("echo $INPUT_FILE", "exit 3"));
    let done = desk.call(&["run", "--keep-going"]);
    assert_eq!(done.code, 8, "{}", done.err);
    let id = newest(&desk);
    for (task, state) in [
        ("nightly/deep/one", "failed"),
        ("nightly/deep/two", "skipped"),
        ("nightly/deep", "skipped"),
        ("nightly/say", "completed"),
        ("nightly", "skipped"),
        ("after", "skipped"),
    ] {
        let shown = desk.json(&["show", &format!("{id}/{task}"), "--json"]);
        assert_eq!(shown[0]["state"], state, "{task}");
    }
}

#[test]
fn mistakes_are_found_in_the_right_file() {
    for (file, from, to, said) in [
        ("deep", "[inputs.file]", "[inputs.fil]", "the sub-graph has no input `file`"),
        ("deep", "run = 'cat'", "rum = 'cat'", "workflows/deep.toml\",\"line\":6,\"column\":1"),
        (
            "deep",
            "[inputs.file]",
            "[models.m]\nmodel = 'x'\n[inputs.file]",
            "`models` cannot stand",
        ),
        (
            "deep",
            "run = 'cat'",
            "workflow = 'workflows/nightly.toml'",
            "agents.toml -> workflows/nightly.toml -> workflows/deep.toml -> workflows/nightly.toml",
        ),
        ("nightly", "context = [\"list\"]", "timeout = '5'", "workflows/nightly.toml\",\"line\":"),
        ("nightly", "with = { file =", "with = { fil =", "the sub-graph has no input `fil`"),
        (
            "nightly",
            "with = { file = \"{{ inputs.base }}\" }",
            "",
            "needs a value for its input `file`",
        ),
        (
            "nightly",
            "{{ inputs.base }}\" }",
            "{{ tasks.list.output }}\" }",
            "workflows/nightly.toml\",\"line\":",
        ),
        (
            "nightly",
            "workflow = \"workflows/deep.toml\"",
            "workflow = \"workflows/gone.toml\"",
            "cannot read",
        ),
        (
            "nightly",
            "[tasks.deep]",
            "[tasks.deep]\nwhen = 'true'",
            "`when` cannot stand beside `workflow`",
        ),
    ] {
        let desk = desk();
        let path = format!("workflows/{file}.toml");
        let text = desk.read(&path);
        assert!(text.contains(from), "{from}");
        desk.write(&path, &text.replace(from, to));
        let done = desk.call(&["check", "--json"]);
        assert!(done.code == 2, "{to}: {}", done.out);
        assert!(done.out.contains(said), "{said}: {}", done.out);
    }
    // Files that name ever more files end, and so does a deep one.
    let desk = desk();
    for depth in 0..5 {
        let task = format!("version = 1\n[tasks.t]\nworkflow = 'workflows/{}.toml'\n", depth + 1);
        desk.write(&format!("workflows/{depth}.toml"), &task);
    }
    desk.write("workflows/nightly.toml", "version = 1\n[tasks.t]\nworkflow = 'workflows/0.toml'\n");
    assert!(desk.call(&["check", "--json"]).out.contains("at most 3 deep"));
}
