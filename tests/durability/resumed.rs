//! Going on with a run: after kill -9, after Ctrl-C, by several processes at once, on a damaged
//! journal.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::desk::{Desk, Done, Live, is_alive, wait};
use crate::support::number_outside;

/// A lead with two helpers, then two tasks that use what it gave.
const TEAM: &str = r#"
[agents.lead]
model = "default"
instructions = "x"
tools = ["glob"]
sub_agents = ["helper"]
[agents.helper]
model = "default"
instructions = "x"
tools = ["glob"]
[tasks.plan]
agent = "lead"
prompt = "plan"
[tasks.more]
agent = "helper"
prompt = "more: {{ tasks.plan.output }}"
depends_on = ["plan"]
[tasks.last]
agent = "helper"
prompt = "{{ tasks.plan.output }}"
depends_on = ["plan"]
"#;

/// Every call takes so long.
fn script(delay_ms: u32) -> String {
    format!(
        r#"
[[rules]]
agent = "lead"
turn = 1
delay_ms = {delay_ms}
[[rules.calls]]
tool = "delegate"
input = {{ agent = "helper", prompt = "one" }}
[[rules.calls]]
tool = "delegate"
input = {{ agent = "helper", prompt = "two" }}
[[rules]]
agent = "helper"
turn = "1..3"
delay_ms = {delay_ms}
[[rules.calls]]
tool = "glob"
input = {{ pattern = "*.toml" }}
[[rules]]
say = "did {{{{ prompt }}}}"
delay_ms = {delay_ms}
"#
    )
}

/// One agent whose second call takes a minute, and a task after it.
fn long() -> Desk {
    let script = r#"
[[rules]]
turn = 1
[[rules.calls]]
tool = "glob"
input = { pattern = "*.toml" }
[[rules]]
delay_ms = 60000
say = "done"
"#;
    let rest = "[limits]\ngrace_period = '20ms'\n\
                [agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['glob']\n\
                [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
                [tasks.two]\nrun = 'true'\ndepends_on = ['one']\n";
    Desk::offline(rest, script)
}

/// Waits for the call that takes a minute.
fn until_long(desk: &Desk) {
    desk.wait_for_event("model.requested", |event| event["data"]["turn"] == 2);
}

fn journal(desk: &Desk) -> Vec<u8> {
    std::fs::read(desk.runs().pop().expect("a run").join("journal.jsonl")).expect("a journal")
}

/// Writes a journal as if no more had been acknowledged.
fn write_journal(desk: &Desk, bytes: &[u8]) {
    let run = desk.runs().pop().expect("a run");
    std::fs::write(run.join("journal.jsonl"), bytes).expect("written");
    let _ = std::fs::remove_file(run.join("acknowledged"));
}

/// Where each line begins.
fn lines(journal: &[u8]) -> Vec<usize> {
    let ends = journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).filter(|at| *at < journal.len()).collect()
}

fn events(desk: &Desk) -> Vec<Value> {
    desk.json(&["tail", "--json"])
}

fn count(desk: &Desk, kind: &str) -> usize {
    events(desk).iter().filter(|event| event["type"] == kind).count()
}

/// The tasks of the newest run as they ended.
fn ends(desk: &Desk) -> Value {
    events(desk).pop().expect("an event")["data"]["tasks"].clone()
}

#[test]
fn a_killed_run_goes_on_and_comes_to_the_same_end() {
    let undisturbed = Desk::offline(TEAM, &script(0));
    undisturbed.good(&["run"]);
    let (wanted, replies) = (ends(&undisturbed), count(&undisturbed, "model.responded"));
    let desk = Desk::offline(TEAM, &script(30));
    let mut live = desk.start(&["run"]);
    // It is killed after each step forward, however far it came.
    for kills in 1.. {
        let seen = journal_length(&desk);
        let ended = wait("a step or the end", || {
            if live.has_ended() {
                return Some(true);
            }
            (journal_length(&desk) > seen + 2_000).then_some(false)
        });
        if ended {
            let done = live.end();
            assert_eq!(done.code, 0, "{}{}", done.out, done.err);
            assert!(kills > 3, "it was killed a few times");
            break;
        }
        live.signal("KILL");
        live.end();
        let run = &desk.json(&["ps", "--json"])[0];
        if run["state"] == "stopped" {
            let command = run["waiting_for"].as_str().expect("a command").to_owned();
            assert_eq!(command, format!("callsheet resume {}", run["run"].as_str().unwrap()));
            // People read the end of the id.
            let id = command.rsplit(' ').next().expect("an id");
            let short = format!("callsheet resume {}", &id[id.len() - 8..]);
            assert!(desk.good(&["show"]).contains(&short));
            assert!(desk.good(&["ps"]).contains(&short));
        }
        live = desk.start(&["resume"]);
    }
    assert_eq!(ends(&desk), wanted);
    assert_eq!(count(&desk, "model.responded"), replies, "no reply is asked for twice");
    assert_eq!(count(&desk, "agent.spawned"), count(&undisturbed, "agent.spawned"));
}

fn journal_length(desk: &Desk) -> usize {
    let run = desk.runs().pop();
    run.and_then(|run| std::fs::metadata(run.join("journal.jsonl")).ok())
        .map_or(0, |file| usize::try_from(file.len()).expect("small"))
}

#[test]
fn after_a_signal_the_run_goes_on_and_tells_only_what_is_new() {
    let desk = long();
    for (at, (signal, code)) in [("INT", 130), ("TERM", 143)].into_iter().enumerate() {
        let run = desk.start(if at == 0 { &["run"] } else { &["resume"] });
        desk.wait_for_event("run.opened", |event| event["ep"] == at + 1);
        until_long(&desk);
        wait("signals are heard", || desk.call(&["ps"]).out.contains("running").then_some(()));
        run.signal(signal);
        let done = run.end();
        assert_eq!(done.code, code, "{}", done.err);
        assert!(done.err.contains("resume with:  callsheet resume "), "{}", done.err);
    }
    desk.write("script.toml", "[[rules]]\nsay = 'done'\n");
    let lines = events(&desk).len();
    let told = desk.json(&["resume", "--json"]);
    assert_eq!(told[0]["type"], "run.opened");
    assert_eq!(told[0]["seq"], lines + 1);
    assert_eq!(told.last().expect("an event")["data"]["status"], "completed");
}

#[test]
fn a_finished_run_is_left_alone_with_the_code_it_had() {
    let desk = Desk::commands("[tasks.good]\nrun = 'true'\n[tasks.bad]\nrun = 'exit 3'\n");
    let code = desk.call(&["run"]).code;
    assert_eq!(code, 1);
    let before = journal(&desk);
    let done = desk.call(&["resume"]);
    assert_eq!((done.code, journal(&desk)), (code, before.clone()));
    assert!(
        done.err.contains("--retry-failed` reruns what failed") && done.out.contains("bad"),
        "{}",
        done.err
    );
    let done = desk.call(&["resume", "--json"]);
    let last: Value = serde_json::from_str(&done.out).expect("one event");
    assert_eq!((done.code, &last["type"]), (code, &"run.completed".into()));
    assert_eq!(journal(&desk), before);
}

/// Starts so many processes that resume the newest run, and gives the one that did.
fn race(desk: &Desk, racers: usize) -> Live {
    let started: Vec<_> = (0..racers).map(|_| (Instant::now(), desk.start(&["resume"]))).collect();
    let mut left: Vec<_> = started.into_iter().map(Some).collect();
    let mut refused: Vec<(Duration, Done)> = Vec::new();
    wait("all but one to end", || {
        for racer in &mut left {
            if racer.as_mut().is_some_and(|(_, live)| live.has_ended())
                && let Some((began, live)) = racer.take()
            {
                refused.push((began.elapsed(), live.end()));
            }
        }
        (refused.len() == racers - 1).then_some(())
    });
    for (_, done) in &refused {
        assert_eq!(done.code, 75, "{}", done.err);
        assert!(done.err.starts_with("error: run is already running in "), "{}", done.err);
    }
    left.into_iter().flatten().next().expect("one goes on").1
}

#[test]
fn exactly_one_of_many_goes_on_with_a_run() {
    let desk = long();
    let mut owner = desk.start(&["run"]);
    until_long(&desk);
    for racers in [2, 20] {
        // The lock is free as soon as its holder is dead.
        owner.signal("KILL");
        owner.end();
        let opened = count(&desk, "run.opened");
        owner = race(&desk, racers);
        wait("the one to have opened it", || {
            (count(&desk, "run.opened") == opened + 1).then_some(())
        });
        assert_eq!(desk.call(&["resume"]).code, 75);
        assert_eq!(desk.call(&["rebuild", "desk"]).code, 75);
    }
    owner.signal("KILL");
    owner.end();
}

/// The lock file is only a name: without it the run still belongs to its owner, and so does its command.
#[test]
fn a_run_whose_lock_file_was_removed_still_has_its_owner() {
    let desk = Desk::commands(
        "[tasks.one]\nrun = 'echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done; echo done'\n",
    );
    let owner = desk.start(&["run"]);
    desk.wait_for_event("tool.started", |_| true);
    std::fs::remove_file(desk.runs()[0].join("LOCK")).expect("removed");
    for verb in [["resume"].as_slice(), &["rebuild", "desk"], &["resume", "--truncate-at", "3"]] {
        let done = desk.call(verb);
        assert_eq!(done.code, 75, "{verb:?}: {}", done.err);
    }
    assert_eq!(count(&desk, "run.opened"), 1);
    assert_eq!(desk.json(&["ps", "--json"])[0]["state"], "running");
    desk.write("go", "");
    let done = owner.end();
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(desk.good(&["show", "/one", "--output"]).contains("done"));
}

#[test]
fn a_stopped_owner_still_holds_its_run() {
    let desk = long();
    let owner = desk.start(&["run"]);
    until_long(&desk);
    owner.signal("STOP");
    let done = desk.call(&["resume"]);
    assert_eq!(done.code, 75, "{}", done.err);
    owner.signal("CONT");
    owner.signal("KILL");
    owner.end();
}

#[test]
fn a_torn_end_is_cut_and_kept() {
    let desk = Desk::offline(TEAM, &script(0));
    desk.good(&["run"]);
    let (whole, wanted) = (journal(&desk), ends(&desk));
    let last = lines(&whole).pop().expect("lines");
    let cuts =
        [last, last + 1, last + 20, (last + whole.len()) / 2, whole.len() - 2, whole.len() - 1];
    for cut in cuts {
        write_journal(&desk, &whole[..cut]);
        let done = desk.call(&["resume"]);
        assert_eq!(done.code, 0, "cut at {cut}: {}", done.err);
        assert_eq!(ends(&desk), wanted);
        let run = desk.runs().pop().expect("a run");
        let entries =
            std::fs::read_dir(run).expect("a folder").map(|e| e.expect("an entry").path());
        let is_torn = |path: &std::path::PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("torn-"))
        };
        let torn: Vec<_> = entries.filter(is_torn).collect();
        assert_eq!(torn.len(), usize::from(cut > last));
        for path in torn {
            assert!(done.err.contains(&format!("from byte {last} on are kept in")), "{}", done.err);
            assert_eq!(std::fs::read(&path).expect("kept"), whole[last..cut]);
            std::fs::remove_file(path).expect("removed");
        }
    }
}

#[test]
fn damage_in_the_middle_is_refused_with_a_way_out() {
    let desk = Desk::offline(TEAM, &script(0));
    desk.good(&["run"]);
    let (whole, wanted) = (journal(&desk), ends(&desk));
    let done = desk.call(&["resume", "--truncate-at", "9"]);
    assert_eq!(done.code, 2, "{}", done.err);
    let starts = lines(&whole);
    let (at, mut bytes) = (starts.len() / 2, whole.clone());
    bytes[starts[at] + 40] ^= 1;
    write_journal(&desk, &bytes);
    for arguments in [&["resume"][..], &["cancel", "desk"], &["rebuild", "desk"]] {
        let done = desk.call(arguments);
        assert_eq!(done.code, 74, "{arguments:?}: {}", done.err);
        let place = format!("line {} of the journal, at byte {}", at + 1, starts[at]);
        assert!(done.err.contains(&place) || arguments[0] == "cancel", "{}", done.err);
    }
    assert_eq!(journal(&desk), bytes, "nothing was touched");
    let option = format!("--truncate-at {}", at + 1);
    assert!(desk.call(&["resume"]).err.contains(&option));
    let done = desk.call(&["resume", "--truncate-at", &(at + 1).to_string()]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("the journal was cut as asked"), "{}", done.err);
    assert_eq!(ends(&desk), wanted);
}

#[test]
fn what_changed_in_the_file_is_said_and_not_used() {
    let desk = long();
    let run = desk.start(&["run"]);
    until_long(&desk);
    run.signal("KILL");
    run.end();
    let text = desk.read("agents.toml").replace("run = 'true'", "run = 'exit 1'");
    desk.write("agents.toml", &format!("{text}# a comment\n[tasks.three]\nrun = 'exit 1'\n"));
    desk.write("script.toml", "[[rules]]\nsay = 'done'\n");
    let done = desk.call(&["resume"]);
    assert_eq!(done.code, 0, "{}", done.err);
    for said in [
        "agents.toml has changed since the run began",
        "  ~ tasks.two.run: \"true\" -> \"exit 1\"",
        "  + tasks.three.run: \"exit 1\"",
    ] {
        assert!(done.err.contains(said), "{}", done.err);
    }
    assert!(!done.out.contains("three"), "{}", done.out);
}

#[test]
fn a_file_that_cannot_be_read_is_said_with_its_place() {
    let desk = long();
    let run = desk.start(&["run"]);
    until_long(&desk);
    run.signal("KILL");
    run.end();
    desk.write("script.toml", "[[rules]]\nsay = 'done'\n");
    let text = desk.read("agents.toml");
    let line = text.lines().count() + 1;
    desk.write("agents.toml", &format!("{text}broken = [\n"));
    let before = journal(&desk);
    for arguments in
        [&["resume", "--accept-changes"][..], &["resume", "--accept-changes", "--explain"]]
    {
        let done = desk.call(arguments);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains(&format!("agents.toml:{line}:")), "{}", done.err);
    }
    assert_eq!(journal(&desk), before, "nothing is appended");
    let done = desk.call(&["resume"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains(&format!("agents.toml:{line}:")), "{}", done.err);
    assert!(done.err.contains("the run resumes with the recorded configuration"), "{}", done.err);
    assert!(!done.err.contains("  - "), "no key is called gone: {}", done.err);
}

#[test]
fn a_stopped_run_is_cancelled_for_good() {
    let desk = long();
    let run = desk.start(&["run"]);
    until_long(&desk);
    run.signal("KILL");
    run.end();
    desk.good(&["cancel", "desk/two"]);
    assert_eq!(desk.json(&["show", "desk/two", "--json"])[0]["state"], "cancelled");
    assert_eq!(desk.json(&["ps", "--json"])[0]["state"], "paused");
    desk.good(&["cancel", "desk"]);
    let before = journal(&desk);
    assert_eq!(desk.json(&["ps", "--json"])[0]["state"], "cancelled");
    desk.good(&["cancel", "desk"]);
    assert_eq!(desk.call(&["resume"]).code, 1);
    assert_eq!(journal(&desk), before);
}

#[test]
fn transcripts_and_logs_can_be_made_again() {
    let desk = Desk::offline(TEAM, &script(0));
    desk.good(&["run"]);
    let agents = desk.runs().pop().expect("a run").join("agents");
    let read = || {
        let entries = std::fs::read_dir(&agents).expect("a folder").map(|e| e.expect("an entry"));
        let mut all: Vec<_> = entries
            .map(|entry| (entry.path(), std::fs::read(entry.path()).expect("a file")))
            .collect();
        all.sort();
        all
    };
    let wanted = read();
    for (path, _) in &wanted {
        std::fs::remove_file(path).expect("removed");
    }
    desk.good(&["rebuild", "desk"]);
    assert_eq!(read(), wanted);
    // The last lines of a run whose process died before it had written them.
    for (path, bytes) in &wanted {
        std::fs::write(path, &bytes[..bytes.len() / 2]).expect("written");
    }
    let before = journal(&desk);
    desk.good(&["resume"]);
    assert_eq!((read(), journal(&desk)), (wanted, before));
    assert_eq!(desk.call(&["rebuild", "nosuch"]).code, 1);
    assert_eq!(desk.call(&["resume", "nosuch"]).code, 1);
}

#[test]
fn a_run_is_forked_with_something_changed() {
    let desk = Desk::offline(TEAM, &script(0));
    desk.good(&["run"]);
    let wanted = ends(&desk);
    let event = desk.wait_for_event("task.completed", |event| event["task"] == "plan");
    let at = format!("desk@{}", event["seq"]);
    let old = desk.runs();
    let done = desk.call(&["fork", &at, "--set", "tasks.last.prompt=other", "--json"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(desk.runs().len(), old.len() + 1);
    let now = ends(&desk);
    assert_eq!((&now["plan"], &now["more"]), (&wanted["plan"], &wanted["more"]));
    assert_eq!(now["last"]["output"], "did other");
    assert!(!done.err.contains("has no effect"), "{}", done.err);
    let shown = desk.good(&["show"]);
    let id = old[0].file_name().expect("a name").to_string_lossy().into_owned();
    assert!(shown.contains(&format!("forked from {id}@{}", event["seq"])), "{shown}");
    for (what, code) in
        [("desk", 0), ("desk@x", 2), ("desk@0", 2), ("desk@9999", 2), ("nosuch@3", 1)]
    {
        assert_eq!(desk.call(&["fork", what]).code, code, "{what}");
    }
    assert_eq!(desk.call(&["fork", &at, "--set", "tasks.last.promt=x"]).code, 2);
    let done = desk.call(&["fork", &at, "--set", "tasks.plan.output=json"]);
    let why = "error: task `plan`: the output is not valid JSON";
    assert!(done.code == 2 && done.err.contains(why), "{}", done.err);
    assert_eq!(desk.runs().len(), old.len() + 1, "what is refused leaves nothing behind");
    let done = desk.call(&["fork", &at, "--set", "tasks.plan.prompt=x", "--set", "name=other"]);
    assert_eq!(done.code, 0, "{}", done.err);
    for said in [
        "note: `tasks.plan.prompt` has no effect here: task `plan` has ended: it is completed",
        "note: `name` has no effect here: a run keeps the name with which it began",
    ] {
        assert!(done.err.contains(said), "{}", done.err);
    }
}

#[test]
fn what_becomes_of_an_interrupted_command_is_foretold() {
    let tasks = |retry: &str| {
        format!(
            "[limits]\norphan_grace = '0s'\n[tasks.a]\nrun = 'echo a >> ledger; test -e go || {{ touch up; sleep 60; }}'\n{retry}\n\
             [tasks.b]\nrun = 'true'\ndepends_on = ['a']\n"
        )
    };
    let again =
        "retry = { max_attempts = 2, retry_on = ['interrupted'], initial_interval = '1ms' }";
    let fails = ["a  fails    interrupted: ", "b  depends  on `a`, which fails"];
    let begins =
        ["a  runs     attempt 2 is next: attempt 1 failed: ", "b  runs     it has not begun"];
    for (signal, retry, foretold, code, ledger) in [
        ("KILL", "", fails, 1, "a\n"),
        ("INT", "", fails, 1, "a\n"),
        ("KILL", again, begins, 0, "a\na\n"),
        ("INT", again, begins, 0, "a\na\n"),
    ] {
        let desk = Desk::commands(&tasks(retry));
        let run = desk.start(&["run"]);
        wait("the command", || desk.path().join("up").exists().then_some(()));
        run.signal(signal);
        run.end();
        desk.write("go", "");
        let said = desk.good(&["resume", "--explain"]);
        for (line, start) in said.lines().zip(foretold) {
            assert!(line.starts_with(start), "{signal} {retry}: {said}");
        }
        let done = desk.call(&["resume"]);
        assert_eq!((done.code, desk.read("ledger").as_str()), (code, ledger), "{}", done.err);
    }
}

#[test]
fn a_kept_result_counts_also_where_the_journal_lost_that_its_call_began() {
    let desk = Desk::commands(
        "[tasks.a]\nrun = 'echo a >> ledger; touch up; while ! test -e go; do sleep 0.02; done; echo A'\n",
    );
    let run = desk.start(&["run"]);
    wait("the command", || desk.path().join("up").exists().then_some(()));
    run.signal("STOP");
    desk.write("go", "");
    let spool = desk.runs()[0].join("spool");
    let is_result =
        |entry: std::fs::DirEntry| entry.path().extension().is_some_and(|suffix| suffix == "json");
    wait("the kept result", || {
        let mut entries = std::fs::read_dir(&spool).expect("a folder").flatten();
        entries.any(is_result).then_some(())
    });
    run.signal("KILL");
    run.end();
    let path = desk.runs()[0].join("journal.jsonl");
    let journal = std::fs::read_to_string(&path).expect("a journal");
    let begin = journal.rfind("\"tool.started\"").expect("it began");
    let line = journal[..begin].rfind('\n').expect("a line before") + 1;
    std::fs::write(&path, &journal[..line]).expect("written");
    // As if it had never been acknowledged.
    std::fs::remove_file(desk.runs()[0].join("acknowledged")).expect("removed");
    desk.good(&["resume"]);
    assert_eq!(desk.read("ledger"), "a\n");
    assert!(desk.good(&["show", "/a"]).contains('A'));
}

#[test]
fn changes_are_explained_and_accepted() {
    let rest = "[inputs.who]\ndefault = 'all'\n[inputs.what]\ndefault = 'x'\n\
                [tasks.one]\nrun = 'echo one $INPUT_WHAT >> ledger; echo one'\n\
                [tasks.two]\nrun = 'echo two >> ledger; exit 3'\ndepends_on = ['one']\n\
                [tasks.three]\nrun = 'echo three >> ledger'\ndepends_on = ['two']\n";
    let desk = Desk::commands(rest);
    assert_eq!(desk.call(&["run", "--input", "what=y"]).code, 1);
    let before = journal(&desk);
    let told = desk.good(&["resume", "--explain"]);
    assert!(
        told.contains("one    reused   attempt 1 completed\ntwo    stays    it failed"),
        "{told}"
    );
    assert_eq!(desk.call(&["resume", "--accept-changes"]).code, 1, "nothing has changed");
    assert_eq!(journal(&desk), before);

    desk.write("agents.toml", &desk.read("agents.toml").replace("exit 3", "exit 0"));
    let told = desk.json(&["resume", "--accept-changes", "--explain", "--json"]);
    let verdicts: Vec<_> =
        told.iter().map(|row| (row["task"].as_str(), row["verdict"].as_str())).collect();
    assert_eq!(
        verdicts,
        [(Some("one"), Some("reused")), (Some("two"), Some("runs")), (Some("three"), Some("runs"))]
    );
    assert_eq!(journal(&desk), before, "nothing is done yet");
    let done = desk.call(&["resume", "--accept-changes"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(done.out.contains("one    reused"), "{}", done.out);
    assert_eq!(desk.read("ledger"), "one y\ntwo\ntwo\nthree\n");

    // A default that changed is a change; what was given stays.
    desk.write("agents.toml", &desk.read("agents.toml").replace("'all'", "'some'"));
    let told = desk.good(&["resume", "--accept-changes", "--explain"]);
    assert!(told.contains("one    runs     changed: env.INPUT_WHO\n"), "{told}");
    desk.good(&["resume", "--accept-changes"]);
    assert!(desk.read("ledger").ends_with("three\none y\ntwo\nthree\n"), "{}", desk.read("ledger"));
    let after = journal(&desk);
    desk.good(&["resume", "--accept-changes"]);
    assert_eq!(journal(&desk), after);
}

#[test]
fn what_was_killed_half_way_goes_on_if_what_it_rests_on_gives_the_same() {
    let desk = long();
    let text = desk.read("agents.toml").replace(
        "[tasks.one]\nagent = 'a'\nprompt = 'go'\n",
        "[tasks.first]\nrun = 'echo made'\n\
         [tasks.one]\nagent = 'a'\nprompt = 'use {{ tasks.first.output }}'\ndepends_on = ['first']\n",
    );
    let gone = "[tasks.gone]\nagent = 'a'\nprompt = 'go'\n";
    desk.write("agents.toml", &format!("{text}{gone}"));
    let run = desk.start(&["run"]);
    for task in ["one", "gone"] {
        let second = |event: &Value| event["data"]["turn"] == 2 && event["task"] == task;
        desk.wait_for_event("model.requested", second);
    }
    run.signal("KILL");
    run.end();
    desk.write("script.toml", "[[rules]]\nsay = 'done'\n");
    desk.write("agents.toml", &text.replace("echo made", "echo made; true"));
    let told = desk.good(&["resume", "--accept-changes", "--explain"]);
    for said in [
        "first  runs     changed: run\n",
        "one    depends  on the output of `first`: if that is unchanged it continues (agent `one` \
         is in turn 2), else it begins anew\n",
        "gone   removed  it is no longer in the file: agent `gone` is cancelled\n",
    ] {
        assert!(told.contains(said), "{told}");
    }
    desk.good(&["resume", "--accept-changes"]);
    let agents: Vec<_> = events(&desk)
        .into_iter()
        .filter(|event| event["type"] == "agent.spawned")
        .map(|event| event["agent"].to_string())
        .collect();
    for agent in ["\"first~2\"", "\"one\""] {
        assert!(agents.iter().any(|id| id == agent), "{agents:?}");
    }
    assert!(!agents.iter().any(|id| id == "\"one~2\""), "{agents:?}");
    let end = desk.wait_for_event("agent.ended", |event| event["agent"] == "gone");
    let outcome = end["data"]["outcome"].to_string();
    assert!(outcome.contains("its task was removed from the configuration"), "{outcome}");
}

#[test]
fn a_run_is_resumed_where_it_belongs() {
    let rest = "[limits]\nfail_fast = false\n[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
                [tasks.one]\nagent = 'a'\nprompt = 'go'\n\
                [tasks.two]\nrun = 'pwd > here'\ndepends_on = ['one']\n";
    let slow = "[[rules]]\ndelay_ms = 60000\nsay = 'done'\n";
    let stopped = |arguments: &[&str]| {
        let desk = Desk::offline(rest, slow);
        let mut command = desk.command(&[&["run"][..], arguments].concat());
        command.env("CALLSHEET_LIMITS__MAX_CONCURRENCY", "1");
        let live = Live::starting(&mut command);
        let state = arguments.last().map(|folder| desk.path().join(folder));
        let runs = state.unwrap_or_else(|| desk.path().join(".transcripts"));
        wait("the call", || {
            let run = std::fs::read_dir(&runs).ok()?.next()?.ok()?.path();
            let journal = std::fs::read_to_string(run.join("journal.jsonl")).ok()?;
            journal.contains("model.requested").then_some(())
        });
        live.signal("KILL");
        live.end();
        desk.write("script.toml", "[[rules]]\nsay = 'done'\n");
        desk
    };
    // From elsewhere, by the folder of its runs.
    let (desk, elsewhere) = (stopped(&["--state-dir", "runs"]), Desk::empty());
    let runs = desk.path().join("runs").display().to_string();
    let done = elsewhere.call(&["resume", "--state-dir", &runs]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.err.contains("  - CALLSHEET_LIMITS__MAX_CONCURRENCY: 1\n"), "{}", done.err);
    let real = |desk: &Desk| desk.path().canonicalize().expect("there").display().to_string();
    assert_eq!(desk.read("here").trim(), real(&desk));

    // In a workspace that was moved, with its runs in it.
    let (desk, moved) = (stopped(&[]), Desk::empty());
    for name in ["agents.toml", "script.toml", ".transcripts"] {
        std::fs::rename(desk.path().join(name), moved.path().join(name)).expect("moved");
    }
    moved.good(&["resume"]);
    assert_eq!(moved.read("here").trim(), real(&moved));
}

/// Forks a run amid its only command, which has written the number of its process. That goes on meanwhile.
fn fork_amid_a_command(desk: &Desk) {
    let run = desk.start(&["run"]);
    let started = desk.wait_for_event("tool.started", |event| event["data"]["pgid"].is_number());
    let pid = wait("the command", || {
        let pid = std::fs::read_to_string(desk.path().join("pid")).ok()?;
        number_outside(desk.path(), pid.strip_suffix('\n')?)
    });
    let done = desk.call(&["fork", &format!("desk@{}", started["seq"])]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(is_alive(&pid), "it is the other run's");
    run.signal("INT");
    assert_eq!(run.end().code, 130);
}

#[test]
fn a_fork_leaves_the_processes_of_its_origin_alone() {
    let script = r#"
[[rules]]
turn = 1
[[rules.calls]]
tool = "bash"
input = { command = "echo begun >> ledger; sleep 60 & echo $! > pid; wait" }
[[rules]]
say = "{{ last[0].text }}"
"#;
    let rest = "[agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['bash']\n\
                [tasks.one]\nagent = 'a'\nprompt = 'go'\n";
    let desk = Desk::offline(rest, script);
    fork_amid_a_command(&desk);
    let last = ends(&desk)["one"]["output"].to_string();
    assert!(last.contains("outcome unknown") && last.contains("was forked"), "{last}");
    assert_eq!(desk.read("ledger"), "begun\n");
}

#[test]
fn a_fork_makes_an_idempotent_command_again_beside_that_of_its_origin() {
    let desk = Desk::commands(
        "[tasks.one]\nidempotent = true\nrun = 'echo begun >> ledger; test ! -e pid || exit 0; \
         sleep 60 & echo $! > pid; wait'\n",
    );
    fork_amid_a_command(&desk);
    assert_eq!(desk.read("ledger"), "begun\nbegun\n");
}
