//! What used to happen without a word, through the real program: a cancellation that cleaned nothing up,
//! work that was left out, files that were overwritten.

use serde_json::json;

use crate::support::desk::{Desk, wait};

/// A fan-out and a sub-graph that work until a file is there.
fn long() -> Desk {
    let work = "idempotent = true\nrun = 'until test -e go; do sleep 0.02; done'\n";
    let desk = Desk::commands(&format!(
        "[tasks.f]\nforeach = '[0, 1, 2]'\nmin_success = 0.3\n{work}\
         [tasks.s]\nworkflow = 's.toml'\n"
    ));
    desk.write("s.toml", &format!("version = 1\n[tasks.x]\n{work}[tasks.y]\n{work}"));
    desk
}

#[test]
fn an_item_and_a_task_of_a_sub_graph_are_cancelled_by_their_names() {
    let desk = long();
    let run = desk.start(&["run"]);
    for task in ["f[0]", "f[1]", "f[2]", "s/x", "s/y"] {
        desk.wait_for_event("task.started", |event| event["task"] == task);
    }
    let state =
        |task: &str| desk.json(&["show", &format!("desk/{task}"), "--json"])[0]["state"].clone();
    for task in ["f[1]", "s/x"] {
        desk.good(&["cancel", &format!("desk/{task}")]);
        assert_eq!(state(task), "cancelled", "{task}");
    }
    assert_eq!((state("f[0]"), state("s/y")), (json!("running"), json!("running")));
    for none in ["f[9]", "f[x]", "s/z", "s/", "f["] {
        let done = desk.call(&["cancel", &format!("desk/{none}")]);
        assert_eq!(done.code, 1, "{none}: {}", done.err);
        assert!(done.err.contains("there is no"), "{none}: {}", done.err);
    }
    // The same names, when no process drives the run; a whole takes its parts along.
    run.signal("KILL");
    run.end();
    desk.good(&["cancel", "desk/f[2]"]);
    assert_eq!((state("f[2]"), state("f[0]")), (json!("cancelled"), json!("running")));
    desk.good(&["cancel", "desk/s"]);
    assert_eq!(state("s/y"), "cancelled");
}

#[test]
fn a_run_that_no_process_drives_is_cleaned_up_by_whoever_cancels_it() {
    for signal in ["KILL", "INT"] {
        let desk = Desk::commands(
            "[hooks]\non_exit = ['touch', 'exited']\n\
             [tasks.work]\nrun = 'touch begun; sleep 60'\n\
             [tasks.after]\nrun = 'touch after'\ndepends_on = ['work']\n\
             [tasks.clean]\nrun = 'echo $PWD > cleaned'\nalways = true\ndepends_on = ['after']\n",
        );
        let run = desk.start(&["run"]);
        wait("the work to begin", || desk.path().join("begun").exists().then_some(()));
        run.signal(signal);
        run.end();
        let done = desk.call(&["cancel", "desk"]);
        assert_eq!(done.code, 0, "{signal}: {}", done.err);
        assert!(done.err.contains("runs what cleans up"), "{signal}: {}", done.err);
        let at = |name: &str| desk.path().join(name).exists();
        assert_eq!((at("cleaned"), at("exited"), at("after")), (true, true, false), "{signal}");
        let row = &desk.json(&["ps", "-a", "--json"])[0];
        assert_eq!(row["state"], "cancelled", "{row}");
        assert_eq!(desk.call(&["cancel", "desk"]).code, 0, "again");
        assert_eq!(desk.call(&["resume"]).code, 1);
    }
}

#[test]
fn a_condition_on_a_key_that_is_missing_is_a_failure() {
    let desk = Desk::commands(
        "[tasks.a]\nrun = 'echo {}'\noutput = 'json'\n\
         [tasks.b]\nrun = 'touch ran'\ndepends_on = ['a']\nwhen = 'tasks.a.output.need_fix'\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("`tasks.a.output` has no `need_fix`"), "{}", done.out);
    let text = desk.read("agents.toml").replace("need_fix", "need_fix | default(false)");
    desk.write("agents.toml", &text);
    assert_eq!(desk.call(&["run"]).code, 0);
}

#[test]
fn items_that_write_one_file_are_refused_before_any_of_them_starts() {
    let desk = Desk::commands(
        "[tasks.f]\nforeach = \"['a/b', 'c', 'a_b']\"\nrun = 'touch ran'\n\
         output_file = \"out/{{ item | replace('/', '_') }}.md\"\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("items 0 and 2 both write `out/a_b.md`"), "{}", done.out);
    assert!(!desk.path().join("ran").exists());
}

#[test]
fn what_a_failed_task_had_made_can_be_read_by_later_tasks() {
    let desk = Desk::commands(
        "[tasks.a]\nrun = 'echo half; exit 3'\non_failure = 'continue'\n\
         [tasks.gate]\napproval = { message = 'Go on?' }\ndepends_on = ['a']\n\
         [tasks.b]\ndepends_on = ['a', 'gate']\nrun = 'printf %s \"$HALF\"'\n\
         env = { HALF = '{{ tasks.a.partial }}' }\n",
    );
    assert_eq!(desk.call(&["run"]).code, 6);
    let question = desk.json(&["pending", "--json"]).remove(0);
    desk.good(&["approve", question["id"].as_str().expect("an id")]);
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 8, "{}", resumed.err);
    assert_eq!(desk.good(&["show", "desk/b", "--output"]), "half\n");
}

/// An agent whose turns are used up before it answers, and one that reads what it handed over.
#[test]
fn a_hand_over_is_read_by_the_next_agent() {
    let desk = Desk::offline(
        "[agents.a]\ninstructions = 'x'\ntools = ['glob']\nmax_turns = 2\n\
         [tasks.one]\nagent = 'a'\nprompt = 'begin'\non_failure = 'continue'\n\
         [tasks.two]\nagent = 'a'\ndepends_on = ['one']\n\
         prompt = 'goes on: {{ tasks.one.partial }}'\n",
        "[[rules]]\nwhen = \"'goes on' in prompt\"\nsay = 'I read: {{ prompt }}'\n\
         [[rules]]\nwhen = 'not tools'\nsay = 'half of it'\n\
         [[rules]]\nsay = 'I look.'\n[[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*' }\n",
    );
    let done = desk.call(&["run"]);
    assert!(done.code != 0, "{}", done.out);
    assert!(desk.good(&["show", "desk/two", "--output"]).contains("goes on: half of it"));
}

/// A worker whose answer is judged by an agent.
fn judged(judge: &str) -> Desk {
    Desk::offline(
        "[agents.worker]\ninstructions = 'x'\n[agents.judge]\ninstructions = 'x'\n\
         [tasks.t]\nagent = 'worker'\nprompt = 'Go.'\n\
         [[tasks.t.checks]]\nagent = 'judge'\nprompt = 'Well?'\n",
        &format!("[[rules]]\nagent = 'worker'\nsay = 'done'\n{judge}"),
    )
}

#[test]
fn a_judge_that_gives_no_verdict_is_asked_again_and_the_worker_is_not() {
    let says = |text: &str| format!("[[rules]]\nagent = 'judge'\nsay = '{text}'\n");
    let first = |text: &str| format!("[[rules]]\nagent = 'judge'\nturn = 1\nsay = '{text}'\n");
    for (judge, code, turns) in [
        (says("Pass."), 0, 1),
        (says("**PASS**"), 0, 1),
        (says("Verdict: pass"), 0, 1),
        (format!("{}{}", first("It looks good."), says("pass")), 0, 2),
        (says("It looks good."), 1, 2),
    ] {
        let desk = judged(&judge);
        let done = desk.call(&["run"]);
        assert_eq!(done.code, code, "{judge}: {}", done.out);
        let replies = |agent: &str| {
            let events = desk.json(&["tail", "--json"]);
            let is_reply = |e: &&serde_json::Value| e["type"] == "model.responded";
            events.iter().filter(is_reply).filter(|event| event["agent"] == agent).count()
        };
        assert_eq!((replies("t"), replies("t/check-1")), (1, turns), "{judge}");
        if code == 1 {
            assert!(done.out.contains("neither `pass` nor `fail`"), "{}", done.out);
        }
    }
}

#[test]
fn a_refused_delegation_and_a_failed_item_count_as_left_undone() {
    let desk = Desk::offline(
        "[limits]\nmax_descendants = 1\n\
         [agents.lead]\ninstructions = 'x'\nsub_agents = ['helper']\n\
         [agents.helper]\ninstructions = 'x'\n[tasks.t]\nagent = 'lead'\nprompt = 'Go.'\n",
        "[[rules]]\nagent = 'helper'\nsay = 'helped'\n\
         [[rules]]\nturn = 1\n\
         [[rules.calls]]\ntool = 'delegate'\ninput = { agent = 'helper', prompt = 'one' }\n\
         [[rules.calls]]\ntool = 'delegate'\ninput = { agent = 'helper', prompt = 'two' }\n\
         [[rules]]\nsay = 'done'\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("1 call refused by a limit: delegate"), "{}", done.out);
    assert_eq!(desk.call(&["run", "--strict"]).code, 8);
    let desk = Desk::commands(
        "[tasks.f]\nforeach = '[0, 1, 2, 3]'\nmin_success = 0.5\n\
         env = { N = '{{ item }}' }\nrun = 'test $N -gt 0'\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.contains("1 of 4 items failed"), "{}", done.out);
    assert_eq!(desk.call(&["run", "--strict"]).code, 8);
}

#[test]
fn a_gate_of_a_detached_run_is_answered_and_the_run_goes_on() {
    let desk = Desk::commands(
        "[tasks.gate]\napproval = { message = 'Go on?' }\n\
         [tasks.after]\nrun = 'touch after'\ndepends_on = ['gate']\n",
    );
    let detached = desk.call(&["run", "-d"]);
    assert_eq!(detached.code, 0, "{}", detached.err);
    let asked = wait("the question", || desk.json(&["pending", "--json"]).into_iter().next());
    let done = desk.call(&["approve", asked["id"].as_str().expect("an id")]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(!done.err.contains("no process drives"), "{}", done.err);
    desk.wait_for_event("run.completed", |event| event["data"]["status"] == "completed");
    assert!(desk.path().join("after").exists());
}

#[test]
fn no_task_overwrites_the_file_of_another_whose_name_nobody_knew_before() {
    let desk = Desk::commands(
        "[tasks.name]\nrun = 'echo -n page'\n\
         [tasks.one]\nrun = 'echo one'\ndepends_on = ['name']\n\
         output_file = 'out/{{ tasks.name.output }}.md'\n\
         [tasks.two]\nrun = 'echo two'\ndepends_on = ['one', 'name']\n\
         output_file = 'out/./{{ tasks.name.output }}.md'\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    assert_eq!(desk.read("out/page.md").trim(), "one");
    let shown = desk.json(&["show", "desk/two", "--json"])[0].to_string();
    assert!(shown.contains("is the file of task `one`"), "{shown}");
}
