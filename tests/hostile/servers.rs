//! Servers that answer with nonsense, floods and traps: whatever comes, the program ends, says why,
//! stays small, and sends its key nowhere else.

mod replies;
mod server;

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use self::replies::Case;
use self::server::{Kind, Part, Server};
use crate::support::desk::Desk;

/// The key that the server is sent, and that must stand nowhere else.
const KEY: &str = "sk-hostile-0123456789abcdef";

/// The value of a header that comes from a variable.
const TEAM: &str = "team-9f8e7d6c5b4a39281706";

/// The longest time that one run may take on a busy machine.
const LONGEST: Duration = Duration::from_secs(120);

/// The most memory in MiB that one run may use at any time: the bounds of a reply several times over,
/// as a debug build copies it.
const MOST_MIB: u64 = 300;

/// Length in bytes of a reply that is not waited for: sixteen times that of the longest that is read.
const LONG_REPLY: usize = 64 << 20;

/// A workspace whose only agent asks this server.
fn desk(server: &Server, kind: Kind, case: &Case) -> Desk {
    let desk = Desk::empty();
    // A reply that comes must be read to its end on a busy machine too; only one that never does, or
    // that is longer than anything read, is worth a short wait.
    let is_endless = (case.reply)(kind).iter().any(|part| match part {
        Part::Bytes(_) => false,
        Part::Repeat(bytes, times) => bytes.len() * times > LONG_REPLY,
        Part::Drip(_) | Part::Stall => true,
    });
    let is_read_out = !is_endless || !(case.says.is_empty() || case.says == "idle_timeout");
    let (request, idle) = if is_read_out { ("60s", "60s") } else { ("2s", "1s") };
    let base = server.base_url(kind, case.name);
    let kind = kind.word();
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = 'hostile'\n[providers.p]\nkind = '{kind}'\nbase_url = '{base}'\n\
             api_key = {{ env = 'HOSTILE_KEY' }}\nrequest_timeout = '{request}'\n\
             headers = {{ x-title = {{ env = 'HOSTILE_TEAM' }} }}\n\
             [defaults]\nidle_timeout = '{idle}'\n[defaults.retry]\nmax_attempts = 2\n\
             initial_interval = '1ms'\nmax_interval = '2ms'\n\
             [models.default]\nprovider = 'p'\nmodel = 'm'\n\
             cost_per_mtok = {{ input = 3.0, output = 15.0 }}\n\
             [agents.a]\ninstructions = 'x'\nmodel = 'default'\ntools = ['glob', 'read_file']\n\
             max_turns = 4\n[tasks.t]\nagent = 'a'\nprompt = 'go'\n[permissions]\ndefault = 'allow'\n"
        ),
    );
    desk
}

/// The program in such a workspace.
fn command(desk: &Desk, arguments: &[&str]) -> std::process::Command {
    let mut command = desk.command(arguments);
    command.env("HOSTILE_KEY", KEY).env("HOSTILE_TEAM", TEAM).stdin(Stdio::null());
    command
}

/// What came of one run.
struct Run {
    code: Option<i32>,
    err: String,
    out: String,
    took: Duration,
    most_mib: u64,
}

/// Runs the program to its end and watches its memory; kills it when it takes too long.
fn run(desk: &Desk) -> Run {
    let began = Instant::now();
    let mut command = command(desk, &["run", "-v"]);
    let (out, err) = (desk.path().join("out"), desk.path().join("err"));
    let file = |path| std::fs::File::create(path).expect("a file");
    let mut child = command.stdout(file(&out)).stderr(file(&err)).spawn().expect("started");
    let status = format!("/proc/{}/status", child.id());
    let mut most_mib = 0;
    let code = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        // For a moment after `spawn` the child still has the memory of this process, hundreds of MiB of
        // replies, and its name.
        let is_program = text.starts_with("Name:\tcallsheet\n");
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).filter(|_| is_program);
        let peak = peak.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most_mib = most_mib.max(peak.unwrap_or(0) / 1024);
        if let Some(status) = child.try_wait().expect("a child") {
            break status.code();
        }
        if began.elapsed() > LONGEST {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |path| String::from_utf8_lossy(&std::fs::read(path).expect("a file")).into_owned();
    Run { code, err: text(&err), out: text(&out), took: began.elapsed(), most_mib }
}

/// Returns what is wrong with a run against this case; empty if nothing is.
fn judge(case: &Case, desk: &Desk, measured: &AtomicUsize) -> Vec<String> {
    let run = run(desk);
    measured.fetch_add(usize::from(run.most_mib > 0), Ordering::Relaxed);
    let mut wrong = Vec::new();
    if !run.code.is_some_and(|code| case.codes.contains(&code)) {
        wrong.push(format!("exit code {:?}, not one of {:?}", run.code, case.codes));
    }
    if !run.out.contains(case.says) {
        wrong.push(format!("it does not say `{}`", case.says));
    }
    if run.err.contains("panicked") || run.out.contains("crashed") {
        wrong.push("it panicked".to_owned());
    }
    if run.most_mib > MOST_MIB {
        wrong.push(format!("it used {} MiB", run.most_mib));
    }
    wrong.extend(records(desk));
    if !wrong.is_empty() {
        let cut = |text: &str| text.chars().take(600).collect::<String>();
        wrong.push(format!("after {:?}\n{}\n{}", run.took, cut(&run.out), cut(&run.err)));
    }
    wrong
}

/// Returns what is wrong with the records of a run: every line of the journal is read by a JSON parser
/// with the usual limit of depth, and no file holds the key or the header's value.
fn records(desk: &Desk) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut paths = desk.runs();
    paths.extend(["out", "err"].map(|name| desk.path().join(name)));
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let text = std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.unwrap_or_default();
        if text.contains(KEY) || text.contains(TEAM) {
            wrong.push(format!("{} holds the key or a header's value", path.display()));
        }
        let is_lines = path.extension().is_some_and(|extension| extension == "jsonl");
        for line in text.lines().filter(|_| is_lines) {
            if let Err(error) = serde_json::from_str::<serde_json::Value>(line) {
                wrong.push(format!("{}: {error}", path.display()));
            }
        }
    }
    wrong
}

#[test]
fn no_reply_of_a_server_breaks_the_program() {
    let elsewhere = Server::start(HashMap::new());
    let cases = replies::cases(&elsewhere.base_url(Kind::Anthropic, "stolen"));
    let all: Vec<(&Case, Kind)> = cases
        .iter()
        .flat_map(|case| case.kinds().into_iter().map(move |kind| (case, kind)))
        .collect();
    assert!(cases.len() >= 60 && all.len() >= 120, "{} {}", cases.len(), all.len());
    let answers = all.iter().map(|(case, kind)| {
        let first = (case.reply)(*kind);
        (server::key(*kind, case.name), (first, case.then))
    });
    let server = Server::start(answers.collect());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let measured = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // Most of a run is waiting, so there are more of them than processors.
        for _ in 0..12 {
            scope.spawn(|| {
                while let Some((case, kind)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let desk = desk(&server, *kind, case);
                    for what in judge(case, &desk, &measured) {
                        let what = format!("{} ({}): {what}", case.name, kind.word());
                        wrong.lock().expect("no panic").push(what);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    assert!(measured.into_inner() > all.len() / 2, "the memory of most runs was measured");
    assert_eq!(elsewhere.requests(), [""; 0], "the key went to another host");
    let asked = server.requests();
    let is_known = |head: &&String| head.contains(KEY) && head.contains(TEAM);
    assert_eq!(asked.iter().filter(is_known).count(), asked.len(), "each request has both");
}

#[test]
fn what_a_server_repeats_of_its_request_is_recorded_nowhere() {
    let cases = replies::echoes();
    let answers = cases.iter().flat_map(|case| {
        case.kinds()
            .into_iter()
            .map(|kind| (server::key(kind, case.name), ((case.reply)(kind), case.then)))
    });
    let server = Server::start(answers.collect());
    for case in &cases {
        for kind in case.kinds() {
            let desk = desk(&server, kind, case);
            let mut wrong = judge(case, &desk, &AtomicUsize::new(0));
            let journal = desk.runs().remove(0).join("journal.jsonl");
            let journal = std::fs::read_to_string(journal).expect("a journal");
            if !journal.contains("[redacted]") {
                wrong.push(format!("nothing was redacted\n{journal}"));
            }
            assert!(wrong.is_empty(), "{} ({}): {}", case.name, kind.word(), wrong.join("\n"));
        }
    }
}
