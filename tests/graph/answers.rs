//! How an answer is accepted, through the real program: its form, its checks, its loop, and what is
//! shown of them.

use serde_json::{Value, json};

use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, Done, wait};
use crate::support::provider::Provider;

/// Two agents, and a task whose answers are judged.
const FIX: &str = r#"
[agents.worker]
instructions = "Work."
[agents.judge]
instructions = "Judge."
[tasks.fix]
agent = "worker"
prompt = "Fix it."
output_schema = "schemas/fix.json"
output_file = "fix.json"
[[tasks.fix.checks]]
run = 'echo "saw $OUTPUT"; grep -q "$N" "$OUTPUT_PATH" && test "$N in $ROUND" != "2 in 2"'
env = { N = "{{ output.n }}", ROUND = "{{ iteration }}" }
[[tasks.fix.checks]]
agent = "judge"
prompt = "Is {{ output.n }} right in round {{ iteration }}?"
[tasks.fix.loop]
until = "output.n >= 4"
max_iterations = 4
[tasks.after]
run = 'echo "$N"; cat "$FILE"'
env = { N = "{{ tasks.fix.output.n }}", FILE = "{{ tasks.fix.output_path }}" }
depends_on = ["fix"]
"#;

const SCHEMA: &str =
    r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#;

#[test]
fn an_answer_is_asked_for_until_it_is_accepted() {
    let script = "[[rules]]\nagent = 'worker'\nturn = 1\nsay = 'Here it is.'\n\
                  [[rules]]\nagent = 'worker'\nturn = 4\nsay = \"```json\\n{\\\"n\\\": 4}\\n```\"\n\
                  [[rules]]\nagent = 'worker'\nsay = '{\"n\": {{ turn }}}'\n\
                  [[rules]]\nagent = 'judge'\nsay = 'pass'\n";
    let desk = Desk::offline(FIX, script);
    desk.write("schemas/fix.json", SCHEMA);
    desk.good(&["check"]);
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    for told in
        ["round 2: the answer had the wrong form", "round 3: a check failed", "round 4: `until`"]
    {
        assert!(done.err.contains(told), "{told}: {}", done.err);
    }
    assert!(done.err.contains("check 1 of round 2: $ echo"), "{}", done.err);
    assert_eq!(desk.read("fix.json"), "{\"n\": 4}");
    assert_eq!(desk.good(&["show", "desk/after", "--output"]), "4\n{\"n\": 4}");
    let shown = desk.good(&["show", "desk/fix"]);
    for line in [
        "round 3: a check failed",
        "check 1 of round 2, @fix/check-1 (command): failed: the command ended with exit code 1",
        "check 2 of round 4, @fix/check-5 (judge): passed",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let shown = &desk.json(&["show", "desk/fix", "--json"])[0];
    assert_eq!(shown["rounds"], json!(["format", "check", "until"]));
    let results: Vec<_> =
        shown["checks"].as_array().expect("checks").iter().map(|c| &c["result"]).collect();
    assert_eq!(results, ["failed", "passed", "passed", "passed", "passed"]);
    // What the agent was told stands in its conversation, word for word.
    let talk = desk.good(&["show", "desk/@fix", "--transcript"]);
    assert!(talk.contains("fits this JSON Schema"), "{talk}");
    assert!(talk.contains("saw {\"n\": 2}"), "{talk}");
    // The result is that of the same rules only.
    assert_eq!(desk.call(&["run", "--reuse"]).code, 0);
    assert_eq!(desk.json(&["show", "desk/fix", "--json"])[0]["state"], "reused");
    let text = desk.read("agents.toml").replace("output.n >= 4", "output.n >= 3");
    desk.write("agents.toml", &text);
    assert_eq!(desk.call(&["run", "--reuse"]).code, 0);
    assert_eq!(desk.json(&["show", "desk/fix", "--json"])[0]["state"], "completed");
}

#[test]
fn a_check_that_is_killed_is_made_again_and_is_no_verdict() {
    // The command that runs as process 1 of its namespace is not killed by itself: its child is.
    let once = "bash -c 'test -e once || { touch once; kill -9 $$; }'";
    let ever = "bash -c 'echo x >> tries; kill -9 $$'";
    let crashes = "bash -c 'ulimit -c 0; kill -SEGV $$'";
    for (command, code, asked, rounds) in [(once, 0, 1, 1), (ever, 1, 1, 1), (crashes, 1, 3, 3)] {
        let file = format!(
            "[agents.worker]\ninstructions = 'Work.'\n[tasks.t]\nagent = 'worker'\nprompt = 'Go.'\n\
             [[tasks.t.checks]]\nrun = \"{command}\"\n"
        );
        let desk = Desk::offline(&file, "[[rules]]\nsay = 'done'\n");
        let done = desk.call(&["run"]);
        assert_eq!(done.code, code, "{command}: {}{}", done.out, done.err);
        let shown = &desk.json(&["show", "desk/t", "--json"])[0];
        let events = desk.json(&["tail", "--json"]);
        let turns = events.iter().filter(|event| event["type"] == "model.requested").count();
        assert_eq!(turns, asked, "the agent was told that it is wrong: {shown}");
        assert_eq!(shown["rounds"].as_array().map_or(0, Vec::len) + 1, rounds, "{shown}");
        if command == ever {
            assert_eq!(desk.read("tries"), "x\nx\n", "once more, and no oftener");
            let failed = events.iter().find(|event| event["type"] == "task.failed");
            let message = failed.expect("it failed")["data"]["failure"]["message"].to_string();
            assert!(message.contains("exit code 137"), "{message}");
        }
    }
}

#[test]
fn an_attempt_has_so_many_rounds_and_fails_by_what_was_wrong_last() {
    let schema = "output_schema = { type = 'object' }";
    let check = "[[tasks.t.checks]]\nrun = 'echo why; false'";
    let judge = "[[tasks.t.checks]]\nagent = 'judge'\nprompt = 'Well?'";
    let agent = "agent = 'worker'\nprompt = 'Go.'";
    // Each row: the task, the kind of its failure, what its message holds, the rounds.
    let table = [
        (format!("{agent}\noutput = 'json'"), "output_format", "(in round 3)", 3),
        (
            format!("{agent}\noutput = 'json'\noutput_retries = 0"),
            "output_format",
            "not valid JSON",
            1,
        ),
        (format!("{agent}\n{schema}\noutput_retries = 1"), "output_format", "(in round 2)", 2),
        (format!("run = 'echo 3'\n{schema}"), "output_schema", "not of type \"object\"", 1),
        (format!("{agent}\n{check}"), "check_failed", "check 1, `echo why; false`: ", 3),
        (format!("run = 'echo 3'\n{check}"), "check_failed", "exit code 1", 1),
        (format!("{agent}\n{judge}"), "check_failed", "neither `pass` nor `fail`", 1),
        (
            format!("{agent}\n[tasks.t.loop]\nuntil = 'false'\nmax_iterations = 5"),
            "max_iterations",
            "after round 5",
            5,
        ),
        (
            "run = 'echo 3'\n[tasks.t.loop]\nuntil = 'iteration > 2'\nmax_iterations = 2"
                .to_owned(),
            "max_iterations",
            "after round 2",
            2,
        ),
        (
            format!("{agent}\n[tasks.t.loop]\nuntil = 'false'\nmax_iterations = 2\n{check}"),
            "check_failed",
            "(in round 2)",
            2,
        ),
        (
            format!("{agent}\n[[tasks.t.checks]]\nrun = 'sleep 60'\ntimeout = '50ms'\n"),
            "check_failed",
            "it took longer than 0.05 s",
            3,
        ),
        (
            format!("{agent}\ntimeout = '1s'\n[[tasks.t.checks]]\nrun = 'sleep 60'"),
            "timeout",
            "attempt 1 took longer than 1 s",
            1,
        ),
    ];
    for (task, kind, message, rounds) in table {
        let agents = "[agents.worker]\ninstructions = 'x'\n[agents.judge]\ninstructions = 'x'\n";
        let desk =
            Desk::offline(&format!("{agents}[tasks.t]\n{task}\n"), "[[rules]]\nsay = 'done'");
        let done = desk.call(&["run"]);
        let shown = &desk.json(&["show", "desk/t", "--json"])[0];
        assert_eq!(shown["error"]["kind"], kind, "{task}: {}{}", done.out, done.err);
        let told = shown["error"]["message"].as_str().expect("a message");
        assert!(told.contains(message), "{task}: {told}");
        assert_eq!(shown["rounds"].as_array().map(Vec::len), Some(rounds - 1), "{task}: {shown}");
        assert_eq!(
            done.code,
            match kind {
                "timeout" => 5,
                "max_iterations" => 4,
                _ => 1,
            },
            "{task}"
        );
        let output = shown["error"]["output"].as_str();
        assert_eq!(output == Some("why"), task.contains("echo why"), "{task}: {shown}");
    }
}

#[test]
fn mistakes_in_the_rules_for_an_answer_are_found_before_anything_runs() {
    let base = "[agents.a]\ninstructions = 'x'\n[tasks.t]\nagent = 'a'\nprompt = 'x'\n";
    let task = |keys: &str| format!("{base}{keys}\n");
    for (text, code, line, message) in [
        (task("output_schema = { type = 'objekt' }"), "bad_schema", 17, "objekt"),
        (task("output_schema = 'none.json'"), "unreadable_file", 17, "none.json"),
        (task("output_schema = 'list.json'"), "bad_schema", 17, "/properties/n/type"),
        (task("output_schema = 'torn.json'"), "bad_schema", 17, "see line 2"),
        (task("output_schema = 3"), "bad_schema", 17, "a table, or the path"),
        (
            task("output_schema = { '$ref' = 'https://example.com/s.json' }"),
            "bad_schema",
            17,
            "https://example.com/s.json",
        ),
        (task("output = 'text'\noutput_schema = {}"), "conflict", 17, "a text cannot fit"),
        (task("[tasks.t.loop]\nuntil = 'true'"), "missing_field", 17, "no `max_iterations`"),
        (task("[tasks.t.loop]\nmax_iterations = 2"), "missing_field", 17, "no `until`"),
        (
            task("[tasks.t.loop]\nuntil = 'outptu'\nmax_iterations = 2"),
            "undefined_name",
            18,
            "`outptu` is not defined",
        ),
        (
            task("[tasks.t.loop]\nuntil = 'output.x'\nmax_iterations = 2"),
            "undefined_name",
            18,
            "the output of the task is text",
        ),
        (task("[[tasks.t.checks]]\ntimeout = '1s'"), "missing_field", 17, "does nothing"),
        (task("[[tasks.t.checks]]\nagent = 'a'"), "missing_field", 17, "no `prompt`"),
        (task("[[tasks.t.checks]]\nagent = 'b'\nprompt = 'x'"), "unknown_agent", 18, "`b`"),
        (task("[[tasks.t.checks]]\nagent = 'a'\nrun = 'x'"), "conflict", 18, "either"),
        (
            task("[[tasks.t.checks]]\nrun = 'x {{ output }}'"),
            "template_in_run",
            18,
            "not a template",
        ),
        (
            task("[[tasks.t.checks]]\nagent = 'a'\nprompt = '{{ tasks.u.output }}'"),
            "unknown_task",
            19,
            "tasks.u",
        ),
    ] {
        let desk = Desk::offline(&text, "[[rules]]\nsay = 'x'");
        desk.write("list.json", r#"{"properties": {"n": {"type": []}}}"#);
        desk.write("torn.json", "{\n");
        let done = desk.call(&["check", "--json"]);
        let found: Vec<Value> = crate::support::desk::lines(&done.out);
        let fits = |found: &&Value| {
            found["code"] == code && found["message"].as_str().is_some_and(|m| m.contains(message))
        };
        let found = found.iter().find(fits).unwrap_or_else(|| panic!("{text}{}", done.out));
        assert_eq!(found["line"], line, "{text}{}", done.out);
    }
}

#[test]
fn a_check_that_is_cancelled_or_killed_leaves_nothing_half_judged() {
    let tasks = "[limits]\norphan_grace = '0s'\n[agents.a]\ninstructions = 'x'\n\
                 [tasks.t]\nagent = 'a'\nprompt = 'x'\n\
                 [[tasks.t.checks]]\nrun = 'echo x >> checks; until test -e go; do sleep 0.01; done'\n";
    let begin = || {
        let desk = Desk::offline(tasks, "[[rules]]\nsay = 'done'");
        let live = desk.start(&["run"]);
        desk.wait_for_event("tool.started", |event| event["agent"] == "t/check-1");
        wait("the check", || std::fs::read_to_string(desk.path().join("checks")).ok());
        (desk, live)
    };
    for target in ["desk/t", "desk/@t", "desk/@t/check-1", "desk"] {
        let (desk, live) = begin();
        assert_eq!(desk.call(&["cancel", target]).code, 0, "{target}");
        assert_eq!(live.end().code, 1, "{target}");
        assert_eq!(desk.json(&["show", "desk/t", "--json"])[0]["state"], "cancelled", "{target}");
    }
    // A check only looks, so it is made again.
    let (desk, live) = begin();
    live.signal("KILL");
    live.end();
    desk.write("go", "");
    let done = desk.call(&["resume"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(desk.read("checks"), "x\nx\n");
    let rows = desk.json(&["show", "desk/t", "--json"]);
    assert_eq!(rows[0]["checks"].as_array().map(Vec::len), Some(1), "{rows:?}");
}

/// A workspace with one agent at a provider.
fn at(provider: &Provider, wire: Wire, tasks: &str) -> Desk {
    let kind = match wire {
        Wire::Anthropic => "anthropic",
        Wire::OpenAi => "openai",
    };
    let desk = Desk::empty();
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = 'desk'\n[providers.main]\nkind = '{kind}'\nbase_url = '{}'\n\
             api_key = {{ env = 'KEY' }}\n[models.default]\nprovider = 'main'\nmodel = 'm'\n\
             [agents.a]\ninstructions = 'x'\n{tasks}",
            provider.url_for(wire)
        ),
    );
    desk
}

fn call(desk: &Desk, arguments: &[&str]) -> Done {
    Done::of(desk.command(arguments).env("KEY", "sk-test-key-of-some-length"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_continues_the_conversation_on_both_wires() {
    for wire in Wire::BOTH {
        let answers = ["no", "{}", "{\"n\": 1}"].map(Answer::text);
        let provider = Provider::script(answers.to_vec()).await;
        let schema = "output_schema = { type = 'object', required = ['n'] }";
        let desk =
            at(&provider, wire, &format!("[tasks.t]\nagent = 'a'\nprompt = 'go'\n{schema}\n"));
        let done = call(&desk, &["run"]);
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        let last = provider.requests().pop().expect("a request").messages();
        let texts: Vec<_> = last.iter().map(callsheet::message::Message::text).collect();
        assert_eq!((texts.len(), provider.count()), (5, 3), "{texts:?}");
        assert!(texts[0].contains("fits this JSON Schema"), "{texts:?}");
        assert!(texts[1] == "no" && texts[2].contains("not valid JSON"), "{texts:?}");
        assert!(texts[3] == "{}" && texts[4].contains("\"n\" is a required property"), "{texts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_does_not_try_again_what_its_model_calls_have_tried_out() {
    // Three attempts of a task, each with so many attempts of a call. After an empty answer a model is
    // asked once more in each.
    for (fault, calls, requests) in [
        (Fault::Overloaded, 3, 3),
        (Fault::ServerError, 3, 3),
        (Fault::RateLimited(None), 3, 3),
        (Fault::Cut(crate::support::answer::FaultAt::InFirstBlock), 3, 3),
        (Fault::Overloaded, 1, 3),
        (Fault::Empty, 3, 6),
    ] {
        let told = fault.clone();
        let provider =
            Provider::start(move |_: &Asked| Answer::text("x").with(fault.clone())).await;
        let retry = format!(
            "[defaults.retry]\nmax_attempts = {calls}\ninitial_interval = '1ms'\n\
             [tasks.t]\nagent = 'a'\nprompt = 'go'\n\
             retry = {{ max_attempts = 3, initial_interval = '1ms' }}\n"
        );
        let desk = at(&provider, Wire::Anthropic, &retry);
        let done = call(&desk, &["run"]);
        assert_ne!(done.code, 0, "{}", done.out);
        assert_eq!(provider.count(), requests, "{told:?}: {}", done.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_message_of_a_round_is_sent_once_whatever_is_killed() {
    let gate = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let (held, first) = (gate.clone(), std::sync::atomic::AtomicBool::new(true));
    let provider = Provider::start(move |asked: &Asked| match asked.messages().len() {
        1 => Answer::text("no"),
        _ if first.swap(false, std::sync::atomic::Ordering::SeqCst) => {
            Answer::text("{}").together(&held)
        }
        _ => Answer::text("{}"),
    })
    .await;
    let task = "[tasks.t]\nagent = 'a'\nprompt = 'go'\noutput_schema = { type = 'object' }\n";
    let desk = at(&provider, Wire::Anthropic, task);
    let live = crate::support::desk::Live::starting(
        desk.command(&["run"]).env("KEY", "sk-test-key-of-some-length"),
    );
    // The second request was received and is not answered.
    desk.wait_for_event("model.requested", |event| event["data"]["turn"] == 2);
    wait("the request", || (provider.count() == 2).then_some(()));
    live.signal("KILL");
    live.end();
    let done = call(&desk, &["resume"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let requests = provider.requests();
    let (before, after) = (requests[1].messages(), requests[2].messages());
    assert_eq!((before.len(), before), (3, after));
    assert_eq!(desk.json(&["show", "desk/t", "--json"])[0]["rounds"], json!(["format"]));
}
