//! After a failure: the printed commands, and what a retry keeps, continues and does not buy again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::stop;
use crate::support::answer::{Answer, Fault};
use crate::support::asked::{Asked, Wire};
use crate::support::desk::{Desk, Done, wait};
use crate::support::provider::Provider;

/// A task that completes, one that fails until `mended` exists, and one after both. Each leaves a
/// line per start.
const COMMANDS: &str = "
[tasks.kept]
run = 'echo kept >> starts; echo kept'
[tasks.bad]
depends_on = ['kept']
join = 'all_done'
run = 'echo bad >> starts; echo before; test -e mended || { echo why >&2; exit 3; }; echo mended'
[tasks.after]
run = 'echo after >> starts; echo \"$FROM\"'
env = { FROM = '{{ tasks.kept.output }}{{ tasks.bad.output }}' }
depends_on = ['kept', 'bad']
";

/// Returns the arguments of a command that the output names after this label.
fn named(output: &str, label: &str) -> Vec<String> {
    let line = output.lines().find_map(|line| line.strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no `{label}` in {output}"));
    let mut words = line.split_whitespace().map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("callsheet"), "{line}");
    words.collect()
}

fn follow(desk: &Desk, output: &str, label: &str) -> Done {
    let arguments = named(output, label);
    desk.call(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_failed_command_begins_again_and_what_completed_is_kept() {
    let desk = Desk::commands(&format!("[limits]\nfail_fast = false\n{COMMANDS}"));
    let failed = desk.call(&["run"]);
    assert_eq!(failed.code, 8, "{}", failed.err);
    let why = follow(&desk, &failed.out, "what failed:");
    assert!(why.code == 0 && why.out.contains("why"), "{}", why.out);
    // Nothing is mended yet.
    let again = follow(&desk, &failed.out, "try again:");
    assert_eq!(again.code, 8, "{}", again.err);
    desk.write("mended", "");
    let forecast = desk.good(&["resume", "--explain", "--retry-failed"]);
    assert!(forecast.contains("kept   reused"), "{forecast}");
    assert!(forecast.contains("bad    runs     it failed: command_failed"), "{forecast}");
    assert!(forecast.contains("after  runs"), "{forecast}");
    let done = follow(&desk, &again.out, "try again:");
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(desk.read("starts"), "kept\nbad\nbad\nbad\nafter\n");
    assert!(done.out.contains("after  completed"), "{}", done.out);
    assert_eq!(desk.runs().len(), 1);
    // Nothing is left.
    let over = desk.call(&["resume", "--retry-failed"]);
    assert!(over.code == 0 && over.err.contains("nothing is left to do"), "{}", over.err);
    let refused = desk.call(&["resume", "--retry-failed", "x"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("no task `x`"), "{}", refused.err);
    // A task that completed can be named: it runs again, with all that follows.
    let named = desk.call(&["resume", "--retry-failed", "kept"]);
    assert_eq!(named.code, 0, "{}{}", named.out, named.err);
    assert_eq!(desk.read("starts"), "kept\nbad\nbad\nbad\nafter\nkept\nbad\nafter\n");
}

/// A report that is written whatever happens, about a task that fails until `mended` exists and a
/// fan-out of which one item does.
const NIGHT: &str = "
[tasks.build]
run = 'test -e mended && echo built'
[tasks.count]
foreach = '[1, 2, 3]'
min_success = 0.5
run = 'test $N != 2 -o -e mended && echo $N'
env = { N = '{{ item }}' }
[tasks.sum]
depends_on = ['count']
run = 'echo \"$OF\"'
env = { OF = '{{ tasks.count.outputs | map(attribute=\"state\") | join(\" \") }}' }
[tasks.page]
depends_on = ['build']
join = 'all_done'
output_file = 'page.md'
run = 'echo \"build is $STATE\"; echo page >> starts'
env = { STATE = '{{ tasks.build.state }}' }
[tasks.mail]
depends_on = ['page']
run = 'cat page.md; echo mail >> starts'
";

#[test]
fn a_report_that_saw_a_failure_is_made_again_when_it_is_mended() {
    let desk = Desk::commands(&format!("[limits]\nfail_fast = false\n{NIGHT}"));
    let failed = desk.call(&["run"]);
    assert_eq!(failed.code, 8, "{}{}", failed.out, failed.err);
    // Nothing is mended, so what follows is made from the same and is not made again.
    let again = follow(&desk, &failed.out, "try again:");
    assert_eq!(again.code, 8, "{}{}", again.out, again.err);
    assert!(again.out.contains("page      reused"), "{}", again.out);
    assert_eq!(desk.read("starts"), "page\nmail\n");
    desk.write("mended", "");
    let forecast = desk.good(&["resume", "--explain", "--retry-failed"]);
    for says in [
        "build     runs     it failed",
        "count     runs     it completed, and some of its instances run again",
        "count[0]  reused   attempt 1 completed",
        "count[1]  runs     it failed",
        "sum       depends  on the end of `count`: if what it was made from is unchanged",
        "page      depends  on the end of `build`",
        "mail      depends  on the end of `page`",
    ] {
        assert!(forecast.contains(says), "{says}\n{forecast}");
    }
    let done = follow(&desk, &again.out, "try again:");
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(desk.read("page.md"), "build is completed\n");
    assert_eq!(desk.good(&["show", "/sum", "--output"]), "completed completed completed\n");
    assert_eq!(desk.read("starts"), "page\nmail\npage\nmail\n");
}

#[test]
fn items_that_failed_begin_again_although_their_task_completed() {
    let desk = Desk::commands(&format!("[limits]\nfail_fast = false\n{NIGHT}"));
    desk.write("first", "");
    let partly = desk.call(&["run", "sum"]);
    assert_eq!(partly.code, 0, "{}{}", partly.out, partly.err);
    assert_eq!(desk.good(&["show", "/sum", "--output"]), "completed failed completed\n");
    desk.write("mended", "");
    let done = follow(&desk, &partly.out, "try again:");
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(desk.good(&["show", "/sum", "--output"]), "completed completed completed\n");
}

#[test]
fn a_gate_that_was_answered_after_a_failure_is_taken_up_by_a_resume() {
    let desk = Desk::commands(
        "[tasks.bad]\nrun = 'exit 3'\n\
         [tasks.report]\ndepends_on = ['bad']\njoin = 'all_done'\nrun = 'echo told'\n\
         [tasks.gate]\ndepends_on = ['report']\n[tasks.gate.approval]\nmessage = 'publish?'\n\
         [tasks.publish]\ndepends_on = ['gate']\nrun = 'echo publish >> starts'\n",
    );
    let asked = desk.call(&["run"]);
    assert_eq!(asked.code, 6, "{}{}", asked.out, asked.err);
    let id = desk.json(&["pending", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    desk.good(&["approve", &id]);
    let done = desk.call(&["resume"]);
    assert!(done.out.contains("gate     completed"), "{}{}", done.out, done.err);
    assert_eq!(desk.read("starts"), "publish\n");
}

#[test]
fn one_failed_task_of_several_begins_again_alone() {
    let desk = Desk::commands(
        "[limits]\nfail_fast = false\n[tasks.a]\nrun = 'echo a >> starts; test -e mended'\n\
         [tasks.b]\nrun = 'echo b >> starts; test -e mended'\n\
         [tasks.c]\nrun = 'echo c >> starts'\ndepends_on = ['b']\n",
    );
    assert_eq!(desk.call(&["run"]).code, 1);
    desk.write("mended", "");
    std::fs::remove_file(desk.path().join("starts")).expect("it was started");
    let one = desk.call(&["resume", "--retry-failed", "c"]);
    assert_eq!(one.code, 8, "{}", one.err);
    assert_eq!(desk.read("starts"), "b\nc\n");
    let rest = desk.call(&["resume", "--retry-failed"]);
    assert_eq!(rest.code, 0, "{}", rest.err);
    assert_eq!(desk.read("starts"), "b\nc\na\n");
}

#[test]
fn a_retry_that_is_killed_goes_on() {
    let desk = Desk::commands(
        "[limits]\norphan_grace = '0s'\n[tasks.kept]\nrun = 'echo kept >> starts'\n\
         [tasks.bad]\nrun = 'test -e mended && touch begun && until test -e go; do sleep 0.01; done'\n\
         depends_on = ['kept']\n[tasks.after]\nrun = 'true'\ndepends_on = ['bad']\n",
    );
    assert_eq!(desk.call(&["run"]).code, 1);
    desk.write("mended", "");
    let live = desk.start(&["resume", "--retry-failed"]);
    let started = desk.wait_for_event("tool.started", |event| event["agent"] == "bad~2");
    let group = started["data"]["pgid"].as_i64().expect("a group");
    // One that has not begun would be started by the resume.
    wait("the command", || desk.path().join("begun").exists().then_some(()));
    live.signal("KILL");
    live.end();
    // The command ends with the program, and must not see the file before.
    wait("the end of the command", || stop::members(group).is_empty().then_some(()));
    desk.write("go", "");
    // A command that was cut short is of an unknown outcome, which is a failure to retry too.
    let resumed = desk.call(&["resume"]);
    assert_eq!(resumed.code, 1, "{}", resumed.err);
    let done = follow(&desk, &resumed.out, "try again:");
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(desk.read("starts"), "kept\n");
}

/// An agent with one tool call, at a provider.
fn one_agent(provider: &Provider, wire: Wire, more: &str) -> Desk {
    let desk = Desk::empty();
    let kind = match wire {
        Wire::Anthropic => "anthropic",
        Wire::OpenAi => "openai",
    };
    let file = format!(
        "version = 1\n[providers.main]\nkind = '{kind}'\nbase_url = '{}'\n\
         api_key = {{ env = 'KEY' }}\n[models.default]\nprovider = 'main'\nmodel = 'm'\n\
         [models.default.cost_per_mtok]\ninput = 1.0\noutput = 1.0\n\
         [defaults.retry]\nmax_attempts = 1\n\
         [agents.a]\nmodel = 'default'\ninstructions = 'x'\ntools = ['glob']\n\
         [tasks.first]\nagent = 'a'\nprompt = 'first'\n\
         [tasks.one]\nagent = 'a'\nprompt = 'go'\ndepends_on = ['first']\n{more}\n\
         [tasks.two]\nrun = 'echo \"$ONE\"'\nenv = {{ ONE = '{{{{ tasks.one.output }}}}' }}\n\
         depends_on = ['one']\n",
        provider.url_for(wire)
    );
    desk.write("agents.toml", &file);
    desk
}

fn call(desk: &Desk, arguments: &[&str]) -> Done {
    Done::of(desk.command(arguments).env("KEY", "sk-test-key-of-some-length"))
}

/// Starts a provider that answers with the fault in the second turn of task `one`, until it is
/// mended.
async fn failing(fault: Fault, mended: Arc<AtomicBool>) -> Provider {
    Provider::start(move |asked: &Asked| {
        let first = asked.messages()[0].text();
        match asked.messages().len() {
            _ if first == "first" => Answer::text("first is done"),
            1 => Answer::tool("glob", json!({"pattern": "*.toml"})),
            _ if mended.load(Ordering::SeqCst) => Answer::text("all is done"),
            _ => Answer::fault(fault.clone()),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_that_the_provider_cut_short_continues_and_nothing_is_bought_twice() {
    let table = [
        (Fault::Overloaded, 3, "overloaded"),
        (Fault::BadKey, 3, "auth"),
        (Fault::RateLimited(None), 3, "rate_limit"),
        (Fault::ServerError, 3, "server_error"),
        (Fault::StallBeforeHead, 5, "timeout"),
        (Fault::Empty, 1, "empty_answer"),
    ];
    for wire in Wire::BOTH {
        for (fault, code, kind) in &table {
            let mended = Arc::new(AtomicBool::new(false));
            let provider = failing(fault.clone(), mended.clone()).await;
            let timeout = if *code == 5 { "timeout = '500ms'" } else { "" };
            let desk = one_agent(&provider, wire, timeout);
            let failed = call(&desk, &["run"]);
            assert_eq!(failed.code, *code, "{kind}: {}{}", failed.out, failed.err);
            assert!(failed.out.contains("one    failed"), "{}", failed.out);
            assert!(failed.out.contains(kind), "{kind}: {}", failed.out);
            mended.store(true, Ordering::SeqCst);
            let before = provider.count();
            let retry = named(&failed.out, "try again:");
            let done = call(&desk, &retry.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(done.code, 0, "{kind}: {}{}", done.out, done.err);
            assert!(done.out.contains("all is done"), "{}", done.out);
            // One call: the turn that failed. It sees the earlier one.
            assert_eq!(provider.count(), before + 1, "{kind} {wire:?}");
            let last = provider.requests().pop().expect("a request");
            assert!(last.messages().len() >= 3, "{kind}: {:?}", last.messages());
            let agents = desk.json(&["ps", "-a", "--json"]);
            assert!(!agents.iter().any(|row| row["name"] == "one~2"), "{agents:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mended_file_continues_the_conversation_too() {
    let mended = Arc::new(AtomicBool::new(false));
    let provider = failing(Fault::BadKey, mended.clone()).await;
    let desk = one_agent(&provider, Wire::Anthropic, "");
    let failed = call(&desk, &["run"]);
    assert_eq!(failed.code, 3, "{}", failed.err);
    mended.store(true, Ordering::SeqCst);
    let text = desk.read("agents.toml").replace("max_attempts = 1", "max_attempts = 2");
    desk.write("agents.toml", &text);
    let before = provider.count();
    let accept = named(&failed.out, "with changes:");
    let done = call(&desk, &accept.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(provider.count(), before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_pauses_where_the_file_says_so_and_a_plain_resume_goes_on() {
    let mended = Arc::new(AtomicBool::new(false));
    let provider = failing(Fault::Overloaded, mended.clone()).await;
    let desk = one_agent(&provider, Wire::Anthropic, "on_failure = 'pause'");
    for _ in 0..2 {
        let arguments: &[&str] = if desk.runs().is_empty() { &["run"] } else { &["resume"] };
        let paused = call(&desk, arguments);
        assert_eq!(paused.code, 3, "{}{}", paused.out, paused.err);
        assert!(paused.err.contains("paused: task `one` failed: overloaded"), "{}", paused.err);
        assert_eq!(desk.json(&["ps", "--json"])[0]["state"], "paused");
    }
    mended.store(true, Ordering::SeqCst);
    let before = provider.count();
    let done = call(&desk, &["resume"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(provider.count(), before + 1);
    // A refusal is nothing that heals.
    let refusing = failing(Fault::Refusal("no".to_owned()), Arc::default()).await;
    let desk = one_agent(&refusing, Wire::Anthropic, "on_failure = 'pause'");
    assert_eq!(call(&desk, &["run"]).code, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_begins_before_the_failure() {
    let mended = Arc::new(AtomicBool::new(false));
    let provider = failing(Fault::Refusal("no".to_owned()), mended.clone()).await;
    let desk = one_agent(&provider, Wire::Anthropic, "");
    let failed = call(&desk, &["run"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let fork = named(&failed.out, "rewind:");
    let (run, seq) = fork[1].rsplit_once('@').expect("a place");
    let listed = call(&desk, &["fork", run]);
    let line =
        listed.out.lines().find(|line| line.split_whitespace().next() == Some(&format!("@{seq}")));
    assert!(
        line.is_some_and(|line| line.ends_with("one has the results of turn 1")),
        "{}",
        listed.out
    );
    mended.store(true, Ordering::SeqCst);
    let before = provider.count();
    let done = call(&desk, &fork.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(provider.count(), before + 1);
    assert_eq!(desk.runs().len(), 2);
}

#[test]
fn all_runs_that_were_stopped_are_resumed() {
    let desk = Desk::commands("[tasks.one]\nrun = 'until test -e go; do sleep 0.01; done'\n");
    for count in 1..=2 {
        let live = desk.start(&["run"]);
        wait("the run", || (desk.runs().len() == count).then_some(()));
        desk.wait_for_event("tool.started", |_| true);
        live.signal("INT");
        let asked = std::time::Instant::now();
        assert_eq!(live.end().code, 130);
        // The command hears the signal, however early it comes: nobody waits for the grace period.
        assert!(asked.elapsed() < std::time::Duration::from_secs(9), "{:?}", asked.elapsed());
    }
    desk.write("go", "");
    let done = desk.call(&["resume", "--all"]);
    // Both commands were cut short, and are told so.
    assert!(done.code == 1 || done.code == 0, "{}", done.err);
    let rows = desk.json(&["ps", "-a", "--json"]);
    let is_open = |row: &&serde_json::Value| row["kind"] == "run" && row["state"] == "paused";
    assert_eq!(rows.iter().filter(is_open).count(), 0, "{rows:?}");
    let again = desk.call(&["resume", "--all"]);
    assert!(again.code == 0 && again.err.contains("no run in"), "{}", again.err);
}

/// Each command waits for the other, so neither run ends alone.
#[test]
fn runs_that_were_stopped_are_resumed_at_the_same_time() {
    let desk = Desk::commands(
        "[tasks.one]\nidempotent = true\n\
         run = 'echo x >> begun; until test $(wc -l < begun) -ge 4; do sleep 0.01; done; echo out'\n",
    );
    for count in 1..=2 {
        let live = desk.start(&["run"]);
        let begun = || std::fs::read_to_string(desk.path().join("begun")).unwrap_or_default();
        wait("its command", || (begun().lines().count() == count).then_some(()));
        live.signal("KILL");
        live.end();
    }
    // One that cannot be read does not hold the others up.
    let damaged = desk.path().join(".transcripts/019a0000-0000-7000-8000-000000000001");
    std::fs::create_dir_all(damaged.join("agents")).expect("made");
    let mut journal = std::fs::read(desk.runs()[1].join("journal.jsonl")).expect("a journal");
    let middle = journal.len() / 2;
    journal[middle] ^= 1;
    std::fs::write(damaged.join("journal.jsonl"), journal).expect("written");
    let done = desk.call(&["resume", "--all"]);
    assert_eq!(done.code, 74, "{}{}", done.out, done.err);
    let runs = crate::support::desk::lines(&desk.call(&["ps", "-a", "--json"]).out);
    assert_eq!(
        runs.iter().filter(|row| row["kind"] == "run" && row["state"] == "completed").count(),
        2
    );
    assert!(done.err.contains("019a0000"), "{}", done.err);
    // Each line says whose it is.
    assert_eq!(done.out.matches("  run completed after").count(), 2, "{}", done.out);
}

#[test]
fn a_signal_stops_all_runs_that_are_resumed() {
    let desk =
        Desk::commands("[tasks.one]\nidempotent = true\nrun = 'echo x >> begun; sleep 60'\n");
    let begun = || std::fs::read_to_string(desk.path().join("begun")).unwrap_or_default();
    for count in 1..=2 {
        let live = desk.start(&["run"]);
        wait("its command", || (begun().lines().count() == count).then_some(()));
        live.signal("KILL");
        live.end();
    }
    let live = desk.start(&["resume", "--all", "--json"]);
    wait("both commands", || (begun().lines().count() == 4).then_some(()));
    live.signal("TERM");
    let done = live.end();
    assert_eq!(done.code, 143, "{}", done.err);
    let paused = crate::support::desk::lines(&done.out);
    let of = |run: &serde_json::Value| {
        paused.iter().filter(|e| e["run"] == *run && e["type"] == "run.paused").count()
    };
    let rows = desk.json(&["ps", "-a", "--json"]);
    let runs: Vec<_> = rows.iter().filter(|row| row["kind"] == "run").collect();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|row| row["state"] == "paused" && of(&row["run"]) == 1), "{rows:?}");
}

#[test]
fn a_new_run_takes_the_results_of_the_last_one_where_nothing_changed() {
    let long = COMMANDS.replace("echo kept'", "seq 1 20000'");
    let desk = Desk::commands(&format!("[limits]\nfail_fast = false\n{long}"));
    assert_eq!(desk.call(&["run"]).code, 8);
    desk.write("mended", "");
    let noted = desk.call(&["run", "kept"]);
    assert!(noted.err.contains("holds 1 result: `--reuse` takes those"), "{}", noted.err);
    assert_eq!(desk.read("starts"), "kept\nbad\nkept\n");
    let reused = desk.call(&["run", "--reuse"]);
    assert_eq!(reused.code, 0, "{}{}", reused.out, reused.err);
    assert!(reused.out.contains("kept   reused"), "{}", reused.out);
    assert_eq!(desk.read("starts"), "kept\nbad\nkept\nbad\nafter\n");
    let whole: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(desk.good(&["show", "/kept", "--output"]), whole);
    // A task that has changed runs again, and what reads it or waits for it too.
    let text = desk.read("agents.toml").replace("seq 1 20000", "seq 1 20001");
    desk.write("agents.toml", &text);
    assert_eq!(desk.call(&["run", "--reuse"]).code, 0);
    assert_eq!(desk.read("starts"), "kept\nbad\nkept\nbad\nafter\nkept\nbad\nafter\n");
    // A run that completed is not mentioned.
    assert!(!desk.call(&["run"]).err.contains("--reuse"));
    let other = Desk::commands("[tasks.one]\nrun = 'true'\n");
    assert!(
        other.call(&["run", "--reuse"]).err.contains("no run of this workflow"),
        "nothing there"
    );
}

/// A way for a scripted agent to fail after its first turn.
struct Broken {
    kind: &'static str,
    code: i32,
    /// Keys of the task and of the agent, before and after the mending.
    task: [&'static str; 2],
    agent: [&'static str; 2],
    /// The rule for its second turn, until it is mended.
    rule: &'static str,
    /// Number of replies of the task that a retry asks for: 1 where the conversation continues.
    replies: usize,
}

/// Ways that a retry of the same configuration mends.
const BROKEN: [Broken; 8] = [
    Broken { kind: "refusal", rule: "say = 'no'\nstop = 'refusal'", ..PLAIN },
    Broken { kind: "empty_answer", rule: "say = ''", replies: 1, ..PLAIN },
    Broken { kind: "invalid_request", code: 3, rule: "say = '{{ last[5].text }}'", ..PLAIN },
    Broken {
        kind: "max_turns",
        code: 4,
        agent: ["max_turns = 2", "max_turns = 3"],
        rule: "[[rules.calls]]\ntool = 'glob'\ninput = { pattern = 'x' }",
        ..PLAIN
    },
    Broken {
        kind: "gave_up",
        rule: "[[rules.calls]]\ntool = 'give_up'\ninput = { reason = 'no' }",
        ..PLAIN
    },
    Broken {
        kind: "timeout",
        code: 5,
        task: ["timeout = '400ms'", "timeout = '20s'"],
        rule: "say = 'x'\ndelay_ms = 60000",
        replies: 1,
        ..PLAIN
    },
    Broken {
        kind: "output_format",
        task: ["output = 'json'", "output = 'json'"],
        rule: "say = 'no JSON'",
        ..PLAIN
    },
    Broken {
        kind: "denied",
        code: 7,
        rule: "[[rules.calls]]\ntool = 'bash'\ninput = { command = 'ls' }\n[[rules]]\nagent = 'a'\n\
               turn = 3\n[[rules.calls]]\ntool = 'give_up'\ninput = { reason = 'no' }",
        ..PLAIN
    },
];

const PLAIN: Broken =
    Broken { kind: "", code: 1, task: [""; 2], agent: [""; 2], rule: "", replies: 2 };

impl Broken {
    fn write(&self, desk: &Desk, is_mended: bool) {
        let (at, rule) = match is_mended {
            true => (1, "say = '\"all is done\"'"),
            false => (0, self.rule),
        };
        let file = format!(
            "{}deny = ['bash']\n[agents.a]\nmodel = 'default'\ninstructions = 'x'\n\
             tools = ['glob', 'bash', 'give_up']\n{}\n[agents.first]\nmodel = 'default'\ninstructions = 'x'\n\
             [tasks.first]\nagent = 'first'\nprompt = 'x'\n\
             [tasks.one]\nagent = 'a'\nprompt = 'go'\ndepends_on = ['first']\n{}\n\
             [tasks.two]\nrun = 'echo \"$ONE\"'\ndepends_on = ['one']\n\
             env = {{ ONE = '{{{{ tasks.one.output }}}}' }}\n",
            crate::support::desk::OFFLINE,
            self.agent[at],
            self.task[at]
        );
        desk.write("agents.toml", &file);
        let script = format!(
            "[[rules]]\nagent = 'first'\nsay = 'first is done'\n[[rules]]\nagent = 'a'\nturn = 1\n\
             [[rules.calls]]\ntool = 'glob'\ninput = {{ pattern = '*.toml' }}\n\
             [[rules]]\nagent = 'a'\n{}\n{rule}\n",
            if self.kind == "denied" && !is_mended { "turn = 2" } else { "turn = '2..'" }
        );
        desk.write("script.toml", &script);
    }
}

/// Returns the number of replies so far, of the task `first` and of the others.
fn replies(desk: &Desk) -> (usize, usize) {
    let events = desk.json(&["tail", "--json"]);
    let of = |event: &&serde_json::Value| event["type"] == "model.responded";
    let (first, others): (Vec<_>, Vec<_>) =
        events.iter().filter(of).partition(|event| event["task"] == "first");
    (first.len(), others.len())
}

#[test]
fn every_failure_of_a_script_is_mended_by_the_printed_command() {
    for broken in BROKEN {
        let kind = broken.kind;
        let desk = Desk::empty();
        broken.write(&desk, false);
        let failed = desk.call(&["run"]);
        assert_eq!(failed.code, broken.code, "{kind}: {}{}", failed.out, failed.err);
        assert!(failed.out.contains(&format!("  {kind}: ")), "{kind}: {}", failed.out);
        let why = follow(&desk, &failed.out, "what failed:");
        assert_eq!(why.code, 0, "{kind}: {}", why.err);
        let before = replies(&desk);
        let file = desk.read("agents.toml");
        broken.write(&desk, true);
        // Scripts are read when the run is opened; the file was recorded, and a new one has to be
        // accepted.
        let has_changed = desk.read("agents.toml") != file;
        let label = if has_changed { "with changes:" } else { "try again:" };
        let done = follow(&desk, &failed.out, label);
        assert_eq!(done.code, 0, "{kind}: {}{}", done.out, done.err);
        assert!(done.out.contains("all is done"), "{kind}: {}", done.out);
        let after = replies(&desk);
        assert_eq!((after.0, after.1 - before.1), (1, broken.replies), "{kind}: {}", done.err);
    }
}

#[test]
fn a_result_that_is_kept_is_written_where_the_file_says_now() {
    // Each row: more of the task, and what is in place of `KEY` in the name of its file.
    for (more, keys) in [("", &[""][..]), ("foreach = '[1, 2]'", &["1", "2"])] {
        let file = if more.is_empty() { "" } else { "{{ item }}" };
        let desk = Desk::commands(&format!(
            "[tasks.a]\nrun = 'echo ran >> starts; echo A'\noutput_file = 'old{file}.txt'\n{more}\n\
             [tasks.b]\nrun = 'echo ran >> starts'\n"
        ));
        desk.good(&["run"]);
        let starts = desk.read("starts");
        desk.write("agents.toml", &desk.read("agents.toml").replace("'old", "'new"));
        let told = desk.good(&["resume", "--accept-changes", "--explain"]);
        assert!(told.contains(&format!("; it is written to new{file}.txt")), "{told}");
        desk.good(&["resume", "--accept-changes"]);
        for key in keys {
            assert_eq!(desk.read(&format!("new{key}.txt")), "A\n");
        }
        assert_eq!(desk.read("starts"), starts);
    }
}
