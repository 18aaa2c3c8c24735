//! A run that was stopped at any record resumes and comes to the same end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callsheet::event::{Event, RunStatus, SharedRecord};
use callsheet::failure::FailureKind;
use callsheet::journal::cut::{Cut, CutError};
use callsheet::journal::driving::Drivable;
use callsheet::journal::line::{Fault, Position, chain};
use callsheet::journal::projection::Projection;
use callsheet::journal::reader::{Reader, Tail, judge};
use callsheet::journal::refusal::{Refusal, Why};
use callsheet::journal::snapshot::{self, Snapshots};
use callsheet::journal::source::RecordedRun;
use callsheet::journal::track::Tracker;
use callsheet::journal::{Observer, stamp};
use callsheet::message::{Message, StopReason};
use callsheet::plan::TaskState;
use callsheet::run::{CancelTarget, RunEnd};
use callsheet::run::{Run, StoppedRun};
use callsheet::run_state::RunState;
use callsheet::tool::ToolOutput;
use callsheet::turn::{Cause, Effect, ToolStatus};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::faults::{
    Act, Ended, Fake, FakeTool, Setup, fold, gate, name, open, records, transcript, until,
};
use crate::support::test_run::RunFolder;

/// Two leads with helpers, a task that fails once, and tasks that use what these gave.
const TEAM: &str = r#"
[limits]
max_concurrency = 3
[agents.lead]
model = "main"
instructions = "Lead."
tools = ["echo", "todo_write"]
sub_agents = ["helper"]
[agents.helper]
model = "main"
description = "Helps."
instructions = "Help."
tools = ["echo"]
[agents.writer]
model = "main"
instructions = "Write."
[tasks.plan]
agent = "lead"
prompt = "Plan."
[tasks.more]
agent = "lead"
prompt = "More."
[tasks.flaky]
agent = "writer"
prompt = "Fail once."
retry = { max_attempts = 2, initial_interval = "1ms", retry_on = ["empty_answer"] }
[tasks.list]
agent = "writer"
prompt = "List {{ tasks.plan.output }}"
depends_on = ["plan", "flaky"]
output = "json"
output_file = "out/list.json"
[tasks.never]
agent = "writer"
prompt = "Never."
depends_on = ["list"]
when = "tasks.list.output.n > 5"
[tasks.last]
agent = "writer"
prompt = "Use {{ tasks.list.output.n }}, {{ tasks.more.output }} and {{ tasks.never.state }}."
depends_on = ["list", "more", "never"]
"#;

fn team() -> Arc<Fake> {
    Fake::new(|request| {
        let prompt = request.messages()[0].text();
        match (request.agent.as_str(), request.turn) {
            ("helper", 1 | 2) => Act::Call(vec![
                ("echo", json!({"text": format!("{} {}", request.agent_id, request.turn)})),
                ("echo", json!({"text": "again"})),
            ]),
            ("helper", _) => Act::say(format!("helped {}", request.agent_id)),
            ("lead", 1) => {
                let job =
                    |n| ("delegate", json!({"agent": "helper", "prompt": format!("Job {n}")}));
                Act::Call((1..=3).map(job).chain([("echo", json!({"text": "me"}))]).collect())
            }
            ("lead", 2) => Act::Reply(Message::assistant("All "), StopReason::MaxTokens),
            ("lead", 3) => Act::tool("todo_write", json!({"todos": []})),
            ("lead", _) => Act::say(format!("done: {prompt}")),
            _ if request.agent_id.as_str() == "flaky" => Act::say(""),
            _ if prompt.starts_with("List") => Act::say(r#"{"n": 3}"#),
            _ => Act::say(format!("wrote: {prompt}")),
        }
    })
}

fn echo() -> Arc<FakeTool> {
    FakeTool::new("echo", Effect::Pure, |_, input| async move {
        Ok(ToolOutput::ok(input["text"].as_str().unwrap_or("?")))
    })
}

fn crew(fake: &Arc<Fake>) -> Setup {
    Setup::new().model("main", fake).tool(&echo())
}

/// Returns the result of a run, which interruptions must not change: every task's end, and all
/// messages of every agent.
fn result(ended: &Ended) -> (BTreeMap<String, String>, BTreeMap<String, Vec<Message>>) {
    let tasks = &ended.completed().tasks;
    let tasks = tasks.iter().map(|(name, end)| (name.to_string(), format!("{end:?}"))).collect();
    let of = |id: callsheet::id::AgentId| (id.to_string(), transcript(&ended.dir.transcript(&id)));
    (tasks, ended.agents().into_iter().map(of).collect())
}

/// The files of a run directory, by their path in it.
pub(crate) fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                all.insert(path.strip_prefix(dir).expect("inside").to_owned(), bytes);
            }
        }
    }
    all
}

/// Where each batch of a journal ends.
pub(crate) fn batch_ends(dir: &RunFolder) -> Vec<usize> {
    let mut reader = Reader::open(&dir.journal()).expect("a journal");
    let mut ends = Vec::new();
    while reader.next_batch().expect("a sound journal").is_some() {
        ends.push(usize::try_from(reader.position().offset).expect("small"));
    }
    ends
}

/// Makes a run directory as it was when its journal had this many bytes; what else is in it may
/// be older or newer.
pub(crate) fn set_back(dir: &RunFolder, files: &BTreeMap<PathBuf, Vec<u8>>, length: usize) {
    std::fs::remove_dir_all(dir.path()).expect("removed");
    for folder in [dir.agents(), dir.results(), dir.spool(), dir.snapshots()] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    // As if no more had been acknowledged.
    let known = |path: &&PathBuf| path.as_os_str() != "acknowledged";
    for (path, bytes) in files.iter().filter(|(path, _)| known(path)) {
        let journal = path.as_os_str() == "journal.jsonl";
        let bytes = if journal { &bytes[..length] } else { bytes };
        std::fs::write(dir.path().join(path), bytes).expect("a file");
    }
}

fn count(records: &[SharedRecord], kind: &str) -> usize {
    records.iter().filter(|record| record.event.kind() == kind).count()
}

fn is_sound(dir: &RunFolder) {
    let file = std::fs::File::open(dir.journal()).expect("a journal");
    let (_, tail) = judge(std::io::BufReader::new(file), Position::START).expect("readable");
    assert_eq!(tail, Tail::Clean);
}

/// Leaves a snapshot taken after this many batches, and the agents' files as they were at that
/// time.
fn leave_snapshot(dir: &RunFolder, batches: usize) {
    std::fs::remove_dir_all(dir.agents()).expect("removed");
    std::fs::create_dir(dir.agents()).expect("a folder");
    let growth = batch_ends(dir)[batches - 1] as u64;
    let (files, tracker) = (
        Projection::new(dir, dir.agent_files(), callsheet::show::log_line::log_text),
        Tracker::default(),
    );
    let folds = dir.saved_folds();
    let mut snapshots = Snapshots::every(growth, folds.clone(), Position::START, tracker, files);
    let mut reader = Reader::open(&dir.journal()).expect("a journal");
    for _ in 0..batches {
        let from = reader.position();
        let records = reader.next_batch().expect("a sound journal").expect("a batch");
        snapshots.batch(from, reader.position());
        records.iter().for_each(|record| snapshots.committed(record));
        snapshots.batch_end();
    }
    drop(snapshots);
    assert_eq!(snapshot::newest(&*folds).expect("a snapshot").at.offset, growth);
}

/// Runs to the end, and then resumes from after each batch of the journal, every second time with
/// an older snapshot. Each time the run must come to the same end, and ask only for replies that it
/// had not received.
async fn sweep(text: &str, model: fn() -> Arc<Fake>) -> Ended {
    let undisturbed = model();
    let setup = crew(&undisturbed);
    let whole = setup.run(text).await;
    assert_eq!(whole.completed().status, RunStatus::Completed, "{:?}", whole.completed());
    let (wanted, calls) = (result(&whole), replies(&undisturbed));
    assert_eq!(calls, count(&whole.records, "model.responded"));
    let (dir, files) = (whole.dir.clone(), files(whole.dir.path()));
    let ends = batch_ends(&dir);
    // The last is that of `run.completed`.
    for (at, end) in ends[..ends.len() - 1].iter().enumerate() {
        set_back(&dir, &files, *end);
        if at % 2 == 1 {
            leave_snapshot(&dir, at.div_ceil(2));
        }
        let answered = count(&records(&dir), "model.responded");
        let fake = model();
        let setup = crew(&fake).at(&setup);
        let ended = Ended::of(setup.resume(&dir).await).await;
        assert_eq!(result(&ended), wanted, "cut after batch {}: {:#?}", at + 1, ended.kinds());
        assert_eq!(replies(&fake), calls - answered, "cut after batch {}", at + 1);
        assert_eq!(count(&ended.records, "model.responded"), calls, "nothing is paid twice");
        is_sound(&dir);
    }
    whole
}

/// Returns the number of an agent's model calls, without those for summaries.
fn replies(fake: &Fake) -> usize {
    fake.count() - fake.summaries()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_cut_after_any_batch_comes_to_the_same_end() {
    sweep(TEAM, team).await;
}

/// Two attempts of a task whose answers are asked for again: for their form, their schema, their checks
/// and their loop.
const JUDGED: &str = r#"
[limits]
max_concurrency = 2
[agents.writer]
model = "main"
instructions = "Write."
tools = ["echo"]
[agents.judge]
model = "main"
instructions = "Judge."
tools = ["echo"]
[tasks.text]
agent = "writer"
prompt = "Write."
output_schema = { type = "object", required = ["n"] }
output_retries = 3
retry = { max_attempts = 2, initial_interval = "1ms" }
[[tasks.text.checks]]
agent = "judge"
prompt = "Judge {{ output.n }}."
[[tasks.text.checks]]
run = 'test "$(cat "$OUTPUT_PATH")" != "{\"n\":5}"'
timeout = "30s"
[tasks.text.loop]
until = "output.n >= 6"
max_iterations = 7
[tasks.last]
agent = "writer"
prompt = "Use {{ tasks.text.output.n }}."
depends_on = ["text"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_judged_comes_to_the_same_end_and_is_asked_for_no_oftener() {
    fn model() -> Arc<Fake> {
        Fake::new(|request| {
            let id = request.agent_id.to_string();
            let last = request.messages().last().map(Message::text).unwrap_or_default();
            match (request.agent.as_str(), request.turn) {
                ("judge", 1) => Act::tool("echo", json!({"text": last})),
                ("judge", _) => {
                    let first = request.messages()[0].text();
                    Act::say(if first.contains("Judge 2.") { "fail\nMore." } else { "pass" })
                }
                // No round is left for the last of these.
                ("writer", _) if id == "text" => Act::say("none"),
                ("writer", 1) if id == "text~2" => Act::say("```json\n{}\n```"),
                ("writer", 4) if id == "text~2" => Act::tool("echo", json!({"text": "x"})),
                ("writer", turn) if id == "text~2" => Act::say(format!("{{\"n\":{turn}}}")),
                _ => Act::say(last),
            }
        })
    }
    let whole = sweep(JUDGED, model).await;
    let causes = |id: &str| -> Vec<Cause> {
        let of_agent =
            |record: &&SharedRecord| record.agent.as_ref().is_some_and(|a| a.as_str() == id);
        let rounds =
            whole.records.iter().filter(of_agent).filter_map(|record| match &record.event {
                Event::AgentRestarted(restarted) => restarted.feedback.as_ref(),
                _ => None,
            });
        rounds.map(|feedback| feedback.cause).collect()
    };
    assert_eq!(causes("text"), [Cause::Format; 3]);
    assert_eq!(causes("text~2"), [Cause::Schema, Cause::Check, Cause::Until, Cause::Check]);
    assert_eq!(whole.task("last").1.as_deref(), Some("Use 6."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_and_their_compactions_come_back() {
    fn model() -> Arc<Fake> {
        Fake::new(|request| {
            let text = format!("{} {}", request.turn, "look into it. ".repeat(250));
            match request.turn {
                _ if request.agent.as_str() == "compactor" => Act::say("short"),
                1..=9 => Act::tool("echo", json!({ "text": text })),
                _ => Act::say("done"),
            }
        })
    }
    for preset in ["three-layer", "adaptive"] {
        let text = format!(
            "[models.main]\ncontext_window = 8000\nmax_output_tokens = 1000\n\
             [compaction]\npreset = '{preset}'\nsummary_max_tokens = 500\n\
             [agents.a]\nmodel = 'main'\ninstructions = 'x'\ntools = ['echo']\n\
             [tasks.t]\nagent = 'a'\nprompt = 'go'\n"
        );
        let whole = sweep(&text, model).await;
        assert!(count(&whole.records, "context.edited") > 2, "{preset}");
    }
}

/// The agent `a` of the one task `t`, its tools and its helper.
fn one(limits: &str, rest: &str) -> String {
    format!(
        "[limits]\ngrace_period = '20ms'\n{limits}\n[agents.a]\nmodel = 'main'\ninstructions = 'x'\ntools = ['slow', 'echo']\n\
         sub_agents = ['b']\n[agents.b]\nmodel = 'main'\ninstructions = 'x'\ntools = ['slow']\n\
         [tasks.t]\nagent = 'a'\nprompt = 'go'\n{rest}"
    )
}

/// A tool that waits at a gate.
fn slow(effect: Effect, gate: &Arc<Semaphore>) -> Arc<FakeTool> {
    let gate = gate.clone();
    FakeTool::new("slow", effect, move |_, _| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.expect("open").forget();
            Ok(ToolOutput::ok("passed"))
        }
    })
}

async fn interrupted(run: Run) -> RunFolder {
    run.remote().interrupt("a test");
    let dir = RunFolder::of(&run);
    let end =
        tokio::time::timeout(crate::support::faults::SOON, run.wait()).await.expect("it ends");
    assert!(matches!(&end, RunEnd::Paused(paused) if paused.reason == "a test"), "{end:?}");
    dir
}

/// Stops the run as a crash does: nothing more is recorded.
async fn crashed(run: Run) -> RunFolder {
    let dir = RunFolder::of(&run);
    let files = files(dir.path());
    // What is written after this is not among them.
    let length = files[Path::new("journal.jsonl")].len();
    drop(interrupted(run).await);
    set_back(&dir, &files, length);
    dir
}

#[tokio::test]
async fn a_model_call_without_reply_is_made_again_in_its_turn_and_announced_each_time() {
    let (gate, closed) = (gate(), gate());
    let at = gate.clone();
    let fake = Fake::new(move |request| match request.turn {
        1 => Act::tool("echo", json!({"text": "x"})),
        _ => Act::say("done").after(&at),
    });
    let setup = Setup::new().model("main", &fake).tool(&echo()).tool(&slow(Effect::Pure, &closed));
    let run = setup.start(&one("", "")).await;
    until(|| fake.under_way() == 1 && fake.count() == 2).await;
    let dir = interrupted(run).await;
    let before = records(&dir).len();
    for round in 1..=20 {
        let run = setup.resume(&dir).await;
        until(|| fake.under_way() == 1).await;
        interrupted(run).await;
        // `run.opened`, `model.requested`, the `model.failed` of the cut and `run.paused`, and nothing else.
        assert_eq!(records(&dir).len(), before + 4 * round);
    }
    assert_eq!(fake.count(), 22, "the first reply is not asked for again");
    open(&gate);
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.output("t"), "done");
    assert_eq!((ended.count("t", "turn.started"), ended.count("t", "model.requested")), (2, 23));
    assert_eq!(fake.count(), 23, "each request has a record");
}

#[tokio::test]
async fn a_call_that_only_reads_is_made_again_and_any_other_is_told_as_unknown_once() {
    for (effect, calls) in [(Effect::Pure, 2), (Effect::Keyed, 2), (Effect::Once, 1)] {
        let gate = gate();
        let tool = slow(effect, &gate);
        let fake = Fake::new(|request| match request.turn {
            1 => Act::tool("slow", json!({})),
            _ => Act::say("done"),
        });
        let setup = Setup::new().model("main", &fake).tool(&echo()).tool(&tool);
        let run = setup.start(&one("", "")).await;
        until(|| tool.calls() == 1).await;
        let dir = crashed(run).await;
        open(&gate);
        let ended = Ended::of(setup.resume(&dir).await).await;
        assert_eq!(ended.output("t"), "done");
        assert_eq!((tool.calls(), fake.count()), (calls, 2), "{effect:?}");
        let finished = ended.of_agent("t").into_iter().filter_map(|event| match event {
            Event::ToolFinished(finished) => Some(finished.status),
            _ => None,
        });
        let wanted = if effect == Effect::Once { ToolStatus::Unknown } else { ToolStatus::Ok };
        assert_eq!(finished.collect::<Vec<_>>(), [wanted]);
    }
}

#[tokio::test]
async fn a_parent_finds_its_children_again_and_starts_none_twice() {
    let gate = gate();
    let at = gate.clone();
    let fake = Fake::new(move |request| match (request.agent.as_str(), request.turn) {
        ("a", 1) => {
            let job = |n: u32| ("delegate", json!({"agent": "b", "prompt": n.to_string()}));
            Act::Call([1, 2, 3].map(job).into())
        }
        ("b", _) if request.messages()[0].text() != "1" => Act::say("helped").after(&at),
        ("b", _) => Act::say("first"),
        _ => Act::say("done"),
    });
    let setup = Setup::new().model("main", &fake).tool(&echo()).tool(&slow(Effect::Pure, &gate));
    // The third has no slot yet.
    let run = setup.start(&one("max_children = 2", "")).await;
    until(|| fake.count() == 4 && fake.under_way() == 2).await;
    let dir = crashed(run).await;
    open(&gate);
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.output("t"), "done");
    let agents: Vec<_> = ended.agents().iter().map(ToString::to_string).collect();
    assert_eq!(agents, ["t", "t/b-1", "t/b-2", "t/b-3"]);
    assert_eq!(ended.count("t/b-1", "model.responded"), 1);
    // Before: the parent, the first and two that were cut off. After: those two and the parent.
    assert_eq!(fake.count(), 4 + 3);
}

/// Changes a journal so that its run began a day ago and had been at work for this many minutes by
/// record `at`.
pub(crate) fn set_to_yesterday(dir: &RunFolder, minutes: i64, at: u64) {
    let began = stamp::now_ms() - 86_400_000;
    let (text, mut out, mut crc) = (std::fs::read(dir.journal()).expect("read"), Vec::new(), 0);
    for (record, line) in records(dir).iter().zip(text.split_inclusive(|byte| *byte == b'\n')) {
        let now = if record.seq < at { began } else { began + minutes * 60_000 };
        let line = String::from_utf8_lossy(line);
        let line = line.replacen(&stamp::text(record.ts_ms), &stamp::text(now), 1);
        crc = chain(line.as_bytes(), crc, &mut out).expect("a line");
    }
    std::fs::write(dir.journal(), out).expect("written");
    // It names the record that was there.
    std::fs::remove_file(dir.path().join("acknowledged")).expect("removed");
}

#[tokio::test]
async fn a_limit_counts_the_time_for_which_the_run_was_open() {
    let limit = "timeout = '30m'\n";
    for (run, task, worked) in [(limit, "", 10), ("", limit, 10), (limit, "", 31), ("", limit, 31)]
    {
        let gate = gate();
        let at = gate.clone();
        let fake = Fake::new(move |_| Act::say("done").after(&at));
        let setup =
            Setup::new().model("main", &fake).tool(&echo()).tool(&slow(Effect::Pure, &gate));
        let run = setup.start(&one(run, task)).await;
        until(|| fake.under_way() == 1).await;
        let dir = interrupted(run).await;
        set_to_yesterday(&dir, worked, records(&dir).len() as u64);
        open(&gate);
        let calls = fake.count();
        let ended = Ended::of(setup.resume(&dir).await).await;
        let minutes = fold(&ended.records).spent().as_secs() / 60;
        assert_eq!(minutes, worked.unsigned_abs(), "the day in between does not count");
        if worked < 30 {
            assert_eq!(ended.output("t"), "done");
            continue;
        }
        assert_eq!(fake.count(), calls, "nothing is spent any more");
        assert_eq!(ended.task("t").2, Some(FailureKind::Timeout));
    }
}

#[tokio::test]
async fn a_pause_before_an_attempt_goes_on() {
    let fake = Fake::new(|_| Act::say(""));
    let never = gate();
    let setup = Setup::new().model("main", &fake).tool(&echo()).tool(&slow(Effect::Pure, &never));
    let retry = |pause: &str| {
        let retry = format!(
            "retry = {{ max_attempts = 2, initial_interval = '{pause}', jitter = false, \
             retry_on = ['empty_answer'] }}\n"
        );
        one("", &retry)
    };
    let run = setup.start(&retry("1h")).await;
    let is_resting = |run: RecordedRun| count(&records(run), "task.retrying") == 1;
    until(|| is_resting(run.recorded().clone())).await;
    let dir = interrupted(run).await;
    let run = setup.resume(&dir).await;
    let dir = interrupted(run).await;
    assert_eq!(count(&records(&dir), "task.started"), 1);

    let run = setup.start(&retry("200ms")).await;
    until(|| is_resting(run.recorded().clone())).await;
    let dir = interrupted(run).await;
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.completed().tasks["t"].state, TaskState::Failed);
    assert_eq!(ended.agents().len(), 2);
}

#[tokio::test]
async fn a_run_without_an_owner_is_cancelled_for_good() {
    let never = gate();
    let tool = slow(Effect::Pure, &never);
    let fake = Fake::new(move |request| match request.agent.as_str() {
        "a" => Act::tool("delegate", json!({"agent": "b", "prompt": "x"})),
        _ => Act::tool("slow", json!({})),
    });
    let setup = Setup::new().model("main", &fake).tool(&echo()).tool(&tool);
    let text = one(
        "",
        "[tasks.u]\nrun = 'true'\ndepends_on = ['t']\n[tasks.v]\nrun = 'true'\ndepends_on = ['u']\n",
    );
    let stopped = || async {
        let run = setup.start(&text).await;
        let calls = tool.calls();
        until(|| tool.calls() > calls).await;
        crashed(run).await
    };
    let open = |dir: &RunFolder| StoppedRun::open(dir, Cut::Torn).expect("taken up");
    let state = |dir: &RunFolder| fold(&records(dir));
    let word =
        |state: &RunState, task: &str| state.task(&name(task)).expect("a task").state.as_str();

    let dir = stopped().await;
    open(&dir).cancel(&CancelTarget::Run, "enough").await.expect("recorded");
    let now = state(&dir);
    assert_eq!(now.completed().expect("ended").status, RunStatus::Cancelled);
    assert!(now.agents().values().all(|agent| agent.outcome.is_some()));
    assert_eq!(["t", "u", "v"].map(|task| word(&now, task)), ["cancelled"; 3]);
    assert!(open(&dir).completed().is_some());
    // What was open has an answer, in the transcript too.
    let child = transcript(&dir.transcript(&crate::support::faults::id("t/b-1")));
    assert_eq!(crate::support::faults::defect(&child), None);
    is_sound(&dir);

    let dir = stopped().await;
    open(&dir).cancel(&CancelTarget::Task(name("u")), "enough").await.expect("recorded");
    let now = state(&dir);
    assert_eq!(["t", "u", "v"].map(|task| word(&now, task)), ["running", "cancelled", "pending"]);
    assert_eq!(now.paused_reason(), Some("enough"));

    open(&dir)
        .cancel(&CancelTarget::Agent(crate::support::faults::id("t")), "enough")
        .await
        .expect("recorded");
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.task("t").0, "cancelled");
    assert_eq!(ended.task("v").0, "skipped");
}

#[tokio::test]
async fn the_recorded_configuration_is_used() {
    let gate = gate();
    let at = gate.clone();
    let fake = Fake::new(move |request| Act::say(request.messages()[0].text()).after(&at));
    let setup = Setup::new().model("main", &fake);
    let text = |prompt: &str| {
        format!(
            "[limits]\ngrace_period = '20ms'\n[inputs.who]\ndefault = 'nobody'\n[agents.a]\nmodel = 'main'\ninstructions = 'x'\n\
             [tasks.t]\nagent = 'a'\nprompt = 'hello'\n\
             [tasks.u]\nagent = 'a'\ndepends_on = ['t']\nprompt = '{prompt} {{{{ inputs.who }}}}'\n"
        )
    };
    let run = setup.start(&text("old")).await;
    until(|| fake.under_way() == 1).await;
    let dir = interrupted(run).await;
    std::fs::write(setup.root.path().join("agents.toml"), text("new")).expect("written");
    open(&gate);
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.output("u"), "old nobody");
}

#[tokio::test]
async fn the_files_that_the_configuration_names_are_recorded_with_it() {
    let gate = gate();
    let at = gate.clone();
    let fake = Fake::new(move |request| {
        let head: serde_json::Value = serde_json::from_slice(&request.head.0).expect("JSON");
        Act::say(head["system"].as_str().expect("a text")).after(&at)
    });
    let setup = Setup::new().model("main", &fake);
    let write = |name: &str, text: &str| {
        std::fs::write(setup.root.path().join(name), text).expect("written");
    };
    write("a.md", "Be brief.");
    write("one.ctx", "one");
    write("more.toml", "[tasks.u]\nagent = 'a'\ndepends_on = ['t']\nprompt = 'go'\n");
    let text = "include = ['more.toml']\n[limits]\ngrace_period = '20ms'\n[agents.a]\nmodel = 'main'\ninstructions_file = 'a.md'\n\
                context_files = ['*.ctx']\n[tasks.t]\nagent = 'a'\nprompt = 'go'\n";
    let run = setup.start(text).await;
    until(|| fake.under_way() == 1).await;
    let dir = interrupted(run).await;
    for name in ["a.md", "one.ctx", "more.toml"] {
        std::fs::remove_file(setup.root.path().join(name)).expect("removed");
    }
    write("two.ctx", "two");
    open(&gate);
    let ended = Ended::of(setup.resume(&dir).await).await;
    assert_eq!(ended.output("u"), "Be brief.\n\n<file path=\"one.ctx\">\none\n</file>");
}

#[tokio::test]
async fn what_cannot_be_gone_on_with_is_refused() {
    let fake = Fake::new(|_| Act::say("done"));
    let setup = Setup::new().model("main", &fake);
    let text =
        "[agents.a]\nmodel = 'main'\ninstructions = 'x'\n[tasks.t]\nagent = 'a'\nprompt = 'go'\n";
    let ended = setup.run(text).await;
    let dir = ended.dir;
    let held = dir.own().expect("free");
    let refused =
        |dir: &RunFolder| StoppedRun::open(dir, Cut::Torn).expect_err("refused").to_string();
    assert_eq!(refused(&dir), format!("run is already running in process {}", std::process::id()));
    drop(held);

    let whole = std::fs::read(dir.journal()).expect("read");
    let front = r#"{"v":1,"seq":1,"bt":1,"be":true,"ep":1,"ts":"2026-11-18T02:14:05.123Z","type":"later.on","data":{},"crit":true"#;
    let crc = crc32c::crc32c(front.as_bytes());
    std::fs::write(dir.journal(), format!("{front},\"crc\":\"{crc:08x}\"}}\n")).expect("written");
    assert!(refused(&dir).contains("at byte 0, has the type `later.on`"), "{}", refused(&dir));

    let mut damaged = whole.clone();
    let second = whole.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    damaged[second + 30] ^= 4;
    std::fs::write(dir.journal(), &damaged).expect("written");
    let error = StoppedRun::open(&dir, Cut::Torn).expect_err("refused");
    let why = Why::Damaged(Fault::Checksum);
    let refusal = Refusal { offset: second as u64, line: 2, why };
    assert_eq!(error, CutError::Journal(refusal.into()));
    assert_eq!(std::fs::read(dir.journal()).expect("read"), damaged);
}

#[tokio::test]
async fn transcripts_and_logs_are_made_again_byte_for_byte() {
    let fake = team();
    let setup = crew(&fake);
    let ended = setup.run(TEAM).await;
    let wanted = files(&ended.dir.agents());
    assert!(wanted.len() > 10);
    for entry in std::fs::read_dir(ended.dir.agents()).expect("a folder") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    let files_of = ended.dir.agent_files();
    Projection::rebuild(
        &(&ended.dir).into(),
        &files_of,
        callsheet::show::log_line::log_text,
        |_| {},
    )
    .expect("made again");
    assert_eq!(files(&ended.dir.agents()), wanted);
}
