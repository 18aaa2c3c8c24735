//! The table of exit codes, by runs that end so.

use std::process::Command;
use std::time::Duration;

use crate::support::answer::{Answer, Fault};
use crate::support::desk::{Desk, Done, OFFLINE, lines};
use crate::support::provider::Provider;

const ONE_AGENT: &str = r#"
[agents.a]
model = "default"
instructions = "x"
tools = ["bash", "glob"]
max_turns = 2
[tasks.one]
agent = "a"
prompt = "go"
"#;

/// Runs a graph whose agent gets this script; gives the exit code and the kind of the failure.
fn code_of(rest: &str, script: &str) -> (i32, String) {
    let desk = Desk::offline(rest, script);
    let done = desk.call(&["run", "--json"]);
    let events = lines(&done.out);
    let kind = events.last().expect("an event")["data"]["tasks"]["one"]["error"]["kind"].clone();
    (done.code, kind.as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_failed_task_is_one() {
    let desk = Desk::commands(
        "[tasks.one]\nrun = 'exit 3'\n[tasks.two]\nrun = 'true'\ndepends_on = ['one']\n",
    );
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("one  failed"), "{}", done.out);
    assert!(done.out.contains("two  skipped"), "{}", done.out);
    assert!(done.out.contains("run failed"), "{}", done.out);
    let refused = code_of(ONE_AGENT, "[[rules]]\nsay = 'no'\nstop = 'refusal'\n");
    assert_eq!(refused, (1, "refusal".to_owned()));
    assert_eq!(code_of(ONE_AGENT, "[[rules]]\nsay = ''\n"), (1, "empty_answer".to_owned()));
}

#[test]
fn a_call_that_no_rule_answers_is_three() {
    let unanswered = code_of(ONE_AGENT, "[[rules]]\nagent = 'b'\nsay = 'x'\n");
    assert_eq!(unanswered, (3, "invalid_request".to_owned()));
}

#[test]
fn used_up_turns_are_four() {
    let endless = "[[rules]]\n[[rules.calls]]\ntool = 'glob'\ninput = { pattern = '*' }\n";
    assert_eq!(code_of(ONE_AGENT, endless), (4, "max_turns".to_owned()));
}

#[test]
fn used_up_time_is_five() {
    let slow = "[[rules]]\nsay = 'x'\ndelay_ms = 60000\n";
    let timeout = format!("{ONE_AGENT}timeout = '100ms'\n");
    assert_eq!(code_of(&timeout, slow), (5, "timeout".to_owned()));
    let whole = format!("[limits]\ntimeout = '100ms'\n{ONE_AGENT}");
    assert_eq!(code_of(&whole, slow), (5, "timeout".to_owned()));
}

#[test]
fn partly_done_is_eight() {
    let desk = Desk::commands("[tasks.bad]\nrun = 'exit 3'\n[tasks.good]\nrun = 'true'\n");
    let done = desk.call(&["run", "--keep-going"]);
    assert_eq!(done.code, 8, "{}", done.err);
    assert!(done.out.contains("run partial"), "{}", done.out);
    // What failed decides, where it says more.
    let desk = Desk::commands(
        "[tasks.bad]\nrun = 'sleep 60'\ntimeout = '100ms'\n[tasks.good]\nrun = 'true'\n",
    );
    assert_eq!(desk.call(&["run", "--keep-going"]).code, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_is_three_and_is_not_tried_again() {
    let provider = Provider::script(vec![Answer::fault(Fault::BadKey)]).await;
    let desk = Desk::empty();
    let file = format!(
        "version = 1\n[providers.main]\nkind = 'anthropic'\nbase_url = '{}'\n\
         api_key = {{ env = 'KEY' }}\n[models.default]\nprovider = 'main'\nmodel = 'm'\n\
         [models.default.cost_per_mtok]\ninput = 1.0\noutput = 1.0\n{ONE_AGENT}",
        provider.base_url()
    );
    desk.write("agents.toml", &file);
    // Without the variable nothing is spent.
    let done = desk.call(&["run"]);
    assert_eq!((done.code, provider.count()), (2, 0), "{}", done.err);
    assert!(done.err.contains("KEY"), "{}", done.err);

    let done = Done::of(desk.command(&["run"]).env("KEY", "sk-wrong-key"));
    assert_eq!((done.code, provider.count()), (3, 1), "{}", done.err);
    assert!(done.out.contains("auth"), "{}", done.out);
    assert!(!format!("{done:?}").contains("sk-wrong-key"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_provider_is_three() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let desk = Desk::empty();
    let file = format!(
        "version = 1\n[providers.main]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:{port}/v1'\n\
         [models.default]\nprovider = 'main'\nmodel = 'm'\n[defaults.retry]\nmax_attempts = 2\n\
         initial_interval = '1ms'\n\n{ONE_AGENT}"
    );
    desk.write("agents.toml", &file);
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 3, "{}{}", done.out, done.err);
    assert!(done.out.contains("connection"), "{}", done.out);
}

#[test]
fn a_state_folder_that_cannot_be_made_is_the_disks_fault() {
    let desk = Desk::commands("[tasks.one]\nrun = 'touch ran'\n");
    let done = desk.call(&["run", "--state-dir", "agents.toml/below"]);
    assert_eq!((done.code, done.out.as_str()), (74, ""));
    assert!(done.err.contains("agents.toml/below"), "{}", done.err);
    assert!(!desk.path().join("ran").exists());
}

#[test]
fn a_full_disk_is_74_after_the_last_whole_batch() {
    let mut tasks = String::new();
    for number in 0..200 {
        tasks.push_str(&format!("[tasks.t{number}]\nrun = 'true'\n"));
    }
    let desk = Desk::commands(&tasks);
    // Without the signal, a write beyond the limit fails as one to a full disk does.
    let program = env!("CARGO_BIN_EXE_callsheet");
    let script = format!("trap '' XFSZ; ulimit -f 64; exec '{program}' run --json");
    let mut shell = Command::new("sh");
    desk.bare(shell.args(["-c", &script]));
    let done = Done::of(&mut shell);
    assert_eq!(done.code, 74, "{}", done.err);
    assert!(done.err.contains("the disk is full"), "{}", done.err);

    // What was printed is what was recorded, and the journal reads cleanly to its end.
    let printed = lines(&done.out);
    assert!(!printed.is_empty());
    assert_eq!(desk.json(&["tail", "--json"]), printed);
    assert!(printed.iter().all(|event| event["type"] != "run.completed"));
    let rows = desk.json(&["ps", "--json"]);
    assert_eq!(rows[0]["state"], "stopped");
}

#[test]
fn too_few_open_files_are_said_and_never_a_panic() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    let program = env!("CARGO_BIN_EXE_callsheet");
    let (mut refused, mut done_with) = (0, 0);
    for most in (4..20).chain((20..=100).step_by(8)).chain([600]) {
        let mut shell = Command::new("sh");
        desk.bare(shell.args(["-c", &format!("ulimit -n {most}; exec '{program}' run")]));
        let done = Done::of(&mut shell);
        assert!(!done.err.contains("panicked"), "{most}: {}", done.err);
        match done.code {
            0 => done_with += 1,
            // The program itself could not be loaded.
            127 => {}
            // Not even the configuration can be read, or there are too few for a sandbox.
            2 => assert!(done.err.contains("open files"), "{most}: {}", done.err),
            code => {
                assert_eq!(code, 74, "{most}: {}", done.err);
                assert!(done.err.contains("ulimit -n"), "{most}: {}", done.err);
                refused += 1;
            }
        }
    }
    assert!(refused > 5 && done_with > 0, "{refused} {done_with}");
    // What was refused left nothing behind that keeps the next one from running.
    desk.good(&["run"]);
}

#[test]
fn a_run_id_is_used_once() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    let id = "01890000-0000-7000-8000-000000000001";
    desk.good(&["run", "--run-id", id]);
    let done = desk.call(&["run", "--run-id", id]);
    assert_eq!(done.code, 2);
    assert!(done.err.contains("already exists"), "{}", done.err);
}

#[test]
fn a_program_that_hangs_in_a_provider_ends_with_its_run() {
    // The reply would come in a minute; the run is over before.
    let script = "[[rules]]\nagent = 'slow'\nsay = 'x'\ndelay_ms = 60000\n";
    let rest = "[agents.slow]\nmodel = 'default'\ninstructions = 'x'\n\
                [tasks.slow]\nagent = 'slow'\nprompt = 'x'\n\
                [tasks.bad]\nrun = 'exit 1'\n[limits]\ncancel_running = true\n";
    let desk = Desk::empty();
    desk.write("agents.toml", &format!("{OFFLINE}{rest}"));
    desk.write("script.toml", script);
    let begun = std::time::Instant::now();
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("slow  cancelled"), "{}", done.out);
    assert!(begun.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_prompt_that_no_window_holds_is_a_failure_and_not_a_bill() {
    let desk = Desk::offline(
        "context_window = 1000\nmax_output_tokens = 100\n",
        "[[rules]]\nsay = 'never asked'\n",
    );
    let text = desk.read("agents.toml").replace("[permissions]\ndefault = \"allow\"\n", "");
    let prompt = "x".repeat(20_000);
    let tasks = format!("[agents.a]\n[tasks.t]\nagent = 'a'\nprompt = '{prompt}'\n");
    desk.write("agents.toml", &format!("{text}{tasks}"));
    let done = desk.call(&["run", "--json"]);
    assert_eq!(done.code, 1, "{}", done.err);
    let events = crate::support::desk::lines(&done.out);
    assert!(events.iter().all(|event| event["type"] != "model.requested"));
    let last = events.last().expect("the end");
    assert_eq!(last["data"]["tasks"]["t"]["error"]["kind"], "context_overflow");
}

#[test]
fn a_full_stdout_is_no_success() {
    let desk = Desk::commands("[tasks.t]\nrun = 'true'\n");
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("the device");
    let mut run = desk.command(&["run", "--json"]);
    assert_eq!(run.stdout(full()).output().expect("runs").status.code(), Some(74));
    let mut tail = desk.command(&["tail"]);
    assert_eq!(tail.stdout(full()).output().expect("runs").status.code(), Some(74));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answered_is_given_up_within_seconds() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let desk = Desk::empty();
    // The default policy makes ten attempts, which take about a minute.
    let file = format!(
        "version = 1\n[providers.main]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:{port}/v1'\n\
         [models.default]\nprovider = 'main'\nmodel = 'm'\n{ONE_AGENT}"
    );
    desk.write("agents.toml", &file);
    let begun = std::time::Instant::now();
    let done = desk.call(&["run"]);
    assert_eq!(done.code, 3, "{}{}", done.out, done.err);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    let failures = desk.json(&["tail", "--json"]);
    let failures = failures.iter().filter(|event| event["type"] == "model.failed").count();
    assert_eq!(failures, 3);
}
