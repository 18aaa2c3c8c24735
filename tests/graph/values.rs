//! Values that tasks hand to each other: through stdin, files and variables, small and large.

use std::fs;

use crate::support::desk::{Desk, Done, Live, wait};

/// A reply of a model whatever it is asked.
const REPLY: &str = "[[rules]]\nsay = 'read'\n";

#[test]
fn a_command_gets_values_by_stdin_files_and_a_folder_of_its_own() {
    let desk = Desk::commands(
        r#"
[tasks.small]
run = "printf '[1, true]'"
output = "json"
[tasks.big]
run = "seq 1 200000; printf end"
[tasks.none]
run = "true"
when = "false"
[tasks.reads]
depends_on = ["small", "big", "none"]
run = """
test "$(cat)" = '[1,true] end' || exit 1
test "$(cat "$SMALL")" = '[1, true]' || exit 2
test "$(tail -n 1 "$BIG")" = end || exit 3
test "${PWD##*/} $IDEMPOTENCY_KEY" = "deep small-2" || exit 4
printf '%s' "$NONE"
"""
stdin = "{{ tasks.small.output }} {{ tasks.big.output | lines | last }}"
cwd = "in/{{ 'deep' }}"
idempotency_key = "small-{{ tasks.small.output | length }}"
[tasks.reads.env]
SMALL = "{{ tasks.small.output_path }}"
BIG = "{{ tasks.big.output_path }}"
NONE = "{{ tasks.none.output_path | default('none') }}"
"#,
    );
    desk.write("in/deep/x", "");
    desk.good(&["run"]);
    assert_eq!(desk.good(&["show", &format!("{}/reads", newest(&desk)), "--output"]), "none");
}

#[test]
fn what_a_command_cannot_take_fails_its_task_with_the_way_out() {
    let desk = Desk::commands(
        r#"
[limits]
fail_fast = false
[tasks.big]
run = "seq 1 25000"
[tasks.variable]
run = "true"
depends_on = ["big"]
env = { ALL = "{{ tasks.big.output }}" }
[tasks.key]
run = "true"
idempotency_key = "{{ '' }}"
[tasks.gone]
run = "true"
cwd = "nowhere"
[tasks.outside]
run = "true"
cwd = "link"
[tasks.not_a_folder]
run = "true"
cwd = "agents.toml"
"#,
    );
    std::os::unix::fs::symlink("/", desk.path().join("link")).expect("a link");
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 8, "{}", done.err);
    for (task, said) in [
        ("variable", "`$ALL` would have 138893 bytes, and a variable takes at most 122880"),
        ("variable", "`stdin`, or the path of the file that holds an output, `tasks.NAME.output_p"),
        ("key", "`idempotency_key`, agents.toml:14: the rendered text is blank"),
        ("gone", "`cwd`: "),
        ("outside", "link` is outside the workspace"),
        ("not_a_folder", "`cwd`: `agents.toml` is not a folder"),
    ] {
        let run = newest(&desk);
        let shown = desk.good(&["show", &format!("{run}/{task}"), "--json"]);
        assert!(shown.contains(said), "{task}: {said}: {shown}");
    }
    desk.write("agents.toml", "version = 1\n[tasks.a]\nrun = 'true'\ncwd = '../x'\n");
    assert!(desk.call(&["check"]).err.contains("leads out of the workspace"));
}

#[test]
fn an_idempotent_command_runs_again_after_a_crash_and_after_an_interruption() {
    for (idempotent, signal, code) in
        [("true", "KILL", 0), ("true", "TERM", 0), ("false", "KILL", 1), ("false", "TERM", 1)]
    {
        let desk = Desk::commands(&format!(
            "[limits]\norphan_grace = '0s'\n\
             [tasks.a]\nrun = 'echo $IDEMPOTENCY_KEY >> begun; test -e go || sleep 60'\n\
             idempotency_key = '{{{{ run.id }}}}:a'\nidempotent = {idempotent}\n"
        ));
        let run: Live = desk.start(&["run"]);
        // The shell makes the file before it writes the line.
        let begun = desk.path().join("begun");
        let has_line = || std::fs::read_to_string(&begun).is_ok_and(|text| text.ends_with('\n'));
        wait("the command", || has_line().then_some(()));
        run.signal(signal);
        run.end();
        desk.write("go", "");
        let told = desk.good(&["resume", "--explain"]);
        let says = if idempotent == "true" && signal == "KILL" { "runs again" } else { "a  " };
        assert!(told.contains(says), "{told}");
        let done = desk.call(&["resume"]);
        assert_eq!(done.code, code, "{idempotent} {signal}: {}{}", done.out, done.err);
        let keys = desk.read("begun");
        let (first, rest) = keys.split_once('\n').expect("a line");
        let again = if code == 0 { format!("{first}\n") } else { String::new() };
        assert_eq!(rest, again, "{idempotent} {signal}");
        assert!(first.ends_with(":a"), "{first}");
    }
}

#[test]
fn a_large_prompt_is_stored_once_and_read_back_everywhere() {
    let mut tasks =
        "[agents.a]\ninstructions = 'x'\n[tasks.big]\nrun = 'seq 1 100000'\noutput = 'raw'\n"
            .to_owned();
    for number in 0..5 {
        tasks += &format!(
            "[tasks.t{number}]\nagent = 'a'\nprompt = '{{{{ tasks.big.output }}}}'\n\
             depends_on = ['big']\n"
        );
    }
    tasks += "[tasks.count]\nrun = 'wc -l'\nstdin = '{{ tasks.big.output }}'\n\
              depends_on = ['big', 't0']\n";
    let desk = Desk::offline(&tasks, REPLY);
    desk.good(&["run"]);
    let run = desk.runs().pop().expect("a run");
    let size = |name: &str| fs::metadata(run.join(name)).expect(name).len();
    assert!(size("journal.jsonl") < 100_000, "{}", size("journal.jsonl"));
    assert_eq!(fs::read_dir(run.join("results")).expect("results").count(), 1);
    let transcript = fs::read(run.join("agents/t1.jsonl")).expect("a transcript");
    assert!(transcript.len() > 588_895, "the prompt is whole: {}", transcript.len());
    let id = newest(&desk);
    assert_eq!(desk.good(&["show", &format!("{id}/count"), "--output"]), "100000\n");
    desk.good(&["rebuild", &id]);
    assert_eq!(fs::read(run.join("agents/t1.jsonl")).expect("a transcript"), transcript);
    let explained = desk.good(&["context", "explain", &format!("{id}/@t1"), "--json"]);
    assert!(explained.len() > 100, "{explained}");

    // A run that is killed while its agents work goes on with the whole prompt.
    desk.write("script.toml", "[[rules]]\ndelay_ms = 60000\nsay = 'read'\n");
    let killed: Live = desk.start(&["run", "t1"]);
    wait("another run", || (desk.runs().len() == 2).then_some(()));
    desk.wait_for_event("model.requested", |_| true);
    killed.signal("KILL");
    killed.end();
    desk.write("script.toml", "[[rules]]\nsay = '{{ prompt | length }}'\n");
    desk.good(&["resume"]);
    let id = newest(&desk);
    assert_eq!(desk.good(&["show", &format!("{id}/t1"), "--output"]), "588895");
    // A stored prompt that is lost is the disk's fault, and not a shorter prompt.
    let run = desk.runs().pop().expect("a run");
    for entry in fs::read_dir(run.join("results")).expect("results") {
        fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    let lost: Done = desk.call(&["context", "explain", &format!("{id}/@t1")]);
    assert!(lost.code == 74 && lost.err.contains("it is missing"), "{}", lost.err);
}

#[test]
fn a_task_overrides_its_agent_and_gets_outputs_within_a_budget() {
    let script = r#"
[[rules]]
agent = "reader"
turn = 1
say = "{{ prompt }}"
"#;
    let desk = Desk::offline(
        r#"
[models.other]
provider = "offline"
model = "other"
[agents.reader]
instructions = "x"
model = "default"
[tasks.short]
run = "printf '{\"a\": [true]}'"
output = "json"
[tasks.long]
run = "seq 1 3000"
[tasks.skipped]
run = "true"
when = "false"
[tasks.off]
run = "exit 1"
enabled = false
[tasks.plain]
agent = "reader"
prompt = "plain"
[tasks.own]
agent = "reader"
model = "other"
max_turns = 1
prompt = "Look."
depends_on = ["short", "long", "skipped"]
context = ["long", "short", "skipped"]
context_budget = 100
"#,
        script,
    );
    desk.good(&["run"]);
    let id = newest(&desk);
    let said = desk.good(&["show", &format!("{id}/own"), "--output"]);
    let (before, rest) = said.split_once(" path=\"").expect(&said);
    let (path, rest) = rest.split_once('"').expect(&said);
    assert_eq!(before, "Look.\n\n<output task=\"long\"");
    assert_eq!(
        rest,
        " bytes=\"13892\"/>\n\n<output task=\"short\">\n{\"a\":[true]}\n</output>\n\n\
         <output task=\"skipped\" state=\"skipped\"/>"
    );
    assert!(fs::read_to_string(path).expect("a file").ends_with("\n3000\n"));
    let costs = desk.good(&["cost", &id, "--by", "model", "--json"]);
    assert!(costs.contains("\"other\"") && costs.contains("\"default\""), "{costs}");
    assert!(!desk.good(&["graph", &id]).contains("off"));
    // Only the task with overrides is another one when the agent of both changes its model.
    let agents = desk.read("agents.toml");
    desk.write("agents.toml", &agents.replace("model = \"default\"", "model = \"other\""));
    desk.good(&["run", "--reuse"]);
    let id = newest(&desk);
    let state =
        |task: &str| desk.json(&["show", &format!("{id}/{task}"), "--json"])[0]["state"].clone();
    assert_eq!((state("plain"), state("short")), ("completed".into(), "reused".into()));
}

/// The id of the newest run.
fn newest(desk: &Desk) -> String {
    let run = desk.runs().pop().expect("a run");
    run.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn a_reused_result_reads_like_one_that_was_made() {
    let tasks = "[tasks.a]\nrun = 'echo hi'\n\
                 [tasks.each]\nrun = 'true'\nforeach = '[1, 2]'\nenv = { N = '{{ item }}' }\n\
                 [tasks.then]\nrun = 'cat; date +%N'\ndepends_on = ['a', 'each']\n\
                 when = \"tasks.a.state == 'completed'\"\n\
                 stdin = \"{% for r in tasks.each.outputs %}{{ r.key }} {{ r.state }} {% endfor %}\"\n";
    let desk = Desk::commands(tasks);
    desk.good(&["run"]);
    desk.good(&["run", "--reuse"]);
    let id = newest(&desk);
    let state =
        |task: &str| desk.json(&["show", &format!("{id}/{task}"), "--json"])[0]["state"].clone();
    assert_eq!(["a", "each[1]", "then"].map(state), ["reused"; 3]);
}

#[test]
fn a_result_that_was_made_from_the_file_of_an_output_is_reused() {
    let tasks = |text: &str| {
        format!(
            "[tasks.a]\nrun = 'echo {text}'\n\
             [tasks.reads]\nrun = 'cat \"$FILE\"'\ndepends_on = ['a']\n\
             env = {{ FILE = '{{{{ tasks.a.output_path }}}}' }}\n\
             [tasks.each]\nrun = 'cat'\nforeach = '[1, 2]'\ndepends_on = ['a']\n\
             stdin = '{{{{ item }}}} {{{{ tasks.a.output_path }}}}'\n"
        )
    };
    let desk = Desk::commands(&tasks("hi"));
    desk.good(&["run"]);
    let states = |desk: &Desk| {
        let id = newest(desk);
        ["a", "reads", "each[1]"].map(|task| {
            let shown = desk.json(&["show", &format!("{id}/{task}"), "--json"]);
            shown[0]["state"].as_str().expect("a state").to_owned()
        })
    };
    desk.good(&["run", "--reuse"]);
    assert_eq!(states(&desk), ["reused"; 3]);
    let path = desk.good(&["show", &format!("{}/reads", newest(&desk)), "--output"]);
    assert_eq!(path, "hi\n");
    // Another output has another file.
    let text = desk.read("agents.toml").replace("echo hi", "echo ho");
    desk.write("agents.toml", &text);
    desk.good(&["run", "--reuse"]);
    assert_eq!(states(&desk), ["completed"; 3]);
}
