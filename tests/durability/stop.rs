//! Ending a run before its time: signals, and `cancel` from another process.

use std::time::{Duration, Instant};

use crate::support::answer::Answer;
use crate::support::desk::{Desk, Live, is_alive, wait};
use crate::support::number_outside;
use crate::support::provider::Provider;

const BASH: &str = r#"
[agents.a]
model = "default"
instructions = "x"
tools = ["bash"]
sub_agents = ["b"]
[agents.b]
model = "default"
instructions = "x"
tools = ["bash"]
[tasks.one]
agent = "a"
prompt = "go"
[tasks.two]
run = "true"
depends_on = ["one"]
"#;

/// The agent runs a command that takes a minute.
const SLEEP: &str = r#"
[[rules]]
turn = 1
[[rules.calls]]
tool = "bash"
input = { command = "sleep 60 & echo $! > pid.new; mv pid.new pid; wait" }
[[rules]]
say = "done"
"#;

/// Its child does.
const CHILD_SLEEPS: &str = r#"
[[rules]]
agent = "a"
turn = 1
[[rules.calls]]
tool = "delegate"
input = { agent = "b", prompt = "go" }
[[rules]]
agent = "b"
turn = 1
[[rules.calls]]
tool = "bash"
input = { command = "sleep 60 & echo $! > pid.new; mv pid.new pid; wait" }
[[rules]]
say = "done"
"#;

/// A run whose tool is asleep, and the process that it waits for.
fn asleep(script: &str) -> (Desk, Live, String) {
    let desk = Desk::offline(BASH, script);
    let run = desk.start(&["run"]);
    let pid = sleeper(&desk);
    (desk, run, pid)
}

fn sleeper(desk: &Desk) -> String {
    let read = || std::fs::read_to_string(desk.path().join("pid")).ok();
    let number = wait("the tool's process", read).trim().to_owned();
    let pid = number_outside(desk.path(), &number).expect("the process lives");
    assert!(is_alive(&pid));
    pid
}

/// Whether this process, and so every one that it starts, was told to outlive its terminal.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("a number") & 1 == 1
}

/// The process group of the call that is at work.
fn group(desk: &Desk) -> i64 {
    let started = desk.wait_for_event("tool.started", |_| true);
    assert!(started["data"]["starttime"].is_u64());
    started["data"]["pgid"].as_i64().expect("a group")
}

/// The processes of a group that are at work.
pub(super) fn members(group: i64) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("the processes").filter_map(Result::ok);
    let stat = |process: std::fs::DirEntry| {
        let number: u32 = process.file_name().to_str()?.parse().ok()?;
        std::fs::read_to_string(format!("/proc/{number}/stat")).ok()
    };
    let is_member = |stat: &String| {
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        fields[3] == group.to_string() && !["Z", "X"].contains(&fields[1])
    };
    processes.filter_map(stat).filter(is_member).collect()
}

fn last_event(desk: &Desk) -> serde_json::Value {
    desk.json(&["tail", "--json"]).pop().expect("an event")
}

#[test]
fn ctrl_c_pauses_and_leaves_no_process_behind() {
    // A closed terminal sends HUP.
    let signals = [("INT", 130, "Ctrl-C"), ("TERM", 143, "SIGTERM"), ("HUP", 143, "SIGHUP")];
    for (signal, code, reason) in signals {
        // A suite that runs under nohup hands that down, and the program means to respect it.
        if signal == "HUP" && hangup_is_ignored() {
            continue;
        }
        let (desk, run, pid) = asleep(SLEEP);
        let group = group(&desk);
        run.signal(signal);
        let done = run.end();
        assert_eq!(done.code, code, "{}", done.err);
        assert!(done.err.contains("stopping"), "{}", done.err);
        assert!(!is_alive(&pid));
        assert_eq!(members(group), [""; 0]);
        let last = last_event(&desk);
        assert_eq!(
            (&last["type"], &last["data"]["reason"]),
            (&"run.paused".into(), &reason.into())
        );
        assert_eq!(desk.json(&["ps", "--json"])[0]["state"], "paused");
        assert!(desk.good(&["show"]).contains(&format!("paused: {reason}")));
    }
}

/// Returns the events of this type in the journal so far.
fn events(desk: &Desk, kind: &str) -> usize {
    let journal = desk.runs().pop().map(|run| run.join("journal.jsonl"));
    let text = journal.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    text.matches(&format!("\"type\":\"{kind}\"")).count()
}

/// Stops a run once the provider has its request: one that was recorded and has not left is not sent any more.
fn stopped_amid_reply(provider: &Provider, grace: &str) -> Desk {
    let desk = Desk::empty();
    desk.write(
        "agents.toml",
        &format!(
            "version = 1\nname = \"desk\"\n[limits]\ngrace_period = \"{grace}\"\n\
             [providers.main]\nkind = \"anthropic\"\nbase_url = \"{}\"\n\
             [models.main]\nprovider = \"main\"\nmodel = \"m\"\n\
             [agents.a]\nmodel = \"main\"\ninstructions = \"x\"\n\
             [tasks.one]\nagent = \"a\"\nprompt = \"go\"\n",
            provider.base_url()
        ),
    );
    let (run, before) = (desk.start(&["run"]), provider.count());
    wait("the request", || (provider.count() > before).then_some(()));
    run.signal("TERM");
    let done = run.end();
    assert_eq!(done.code, 143, "{}", done.err);
    desk
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_on_its_way_is_paid_for_once() {
    let after = |pause: u64| Answer::text("done").after(Duration::from_millis(pause));
    let provider = Provider::script(vec![after(1_500), Answer::text("again")]).await;
    let desk = stopped_amid_reply(&provider, "60s");
    assert_eq!(events(&desk, "model.responded"), 1, "the reply was waited for");
    // A second request would have another answer.
    let done = desk.call(&["resume"]);
    assert_eq!((done.code, provider.count()), (0, 1), "{}", done.err);
    assert!(done.out.contains("done") && !done.out.contains("again"), "{}", done.out);
    // A reply that takes longer than the grace is not waited for.
    let provider = Provider::script(vec![after(60_000)]).await;
    let begun = Instant::now();
    let desk = stopped_amid_reply(&provider, "100ms");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(events(&desk, "model.responded"), 0);
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    // The tool does not care about the first.
    let stubborn = SLEEP.replace("sleep 60 &", "trap '' TERM; sleep 60 &");
    let desk = Desk::offline(&format!("{BASH}[limits]\ngrace_period = '60s'\n"), &stubborn);
    let run = desk.start(&["run"]);
    let pid = sleeper(&desk);
    let group = group(&desk);
    run.signal("INT");
    // The same signal twice before it is taken counts once, so it is sent until it has had effect.
    let mut run = Some(run);
    let done = wait("the end", || {
        run.as_ref().unwrap().signal("INT");
        run.as_mut().unwrap().has_ended().then(|| run.take().unwrap().end())
    });
    assert_eq!(done.code, 130);
    wait_for_no_orphans(group);
    assert!(!is_alive(&pid));
}

#[test]
fn a_command_that_was_stopped_is_not_repeated() {
    let task = "[tasks.only]\nretry = { max_attempts = 3 }\n\
                run = 'echo >> begun; echo $$ > pid.new; mv pid.new pid; sleep 60'\n";
    let desk = Desk::commands(task);
    let run = desk.start(&["run"]);
    sleeper(&desk);
    run.signal("INT");
    assert_eq!(run.end().code, 130);
    let done = desk.call(&["resume"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("interrupted: the command was interrupted"), "{}", done.out);
    assert_eq!(desk.read("begun"), "\n");
}

/// A command that cleans up when it is told to end, and says with what it ends then.
fn tidy(code: u8) -> String {
    format!(
        "trap \"echo tidy; exit {code}\" TERM; echo x >> begun; echo $$ > pid.new; mv pid.new pid; \
         while :; do sleep 0.01; done 2> /dev/null"
    )
}

#[test]
fn what_ended_in_its_grace_is_known() {
    let script = format!(
        "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'bash'\ninput = {{ command = '{}' }}\n\
         [[rules]]\nsay = '{{{{ last[0].text }}}}'\n",
        tidy(3)
    );
    let (desk, run, _) = asleep(&script);
    run.signal("INT");
    assert_eq!(run.end().code, 130);
    let finished = desk.wait_for_event("tool.finished", |_| true);
    let data = &finished["data"];
    assert_eq!((&data["status"], &data["source"]), (&"error".into(), &"live".into()));
    assert_eq!((&data["exit_code"], &data["told_to_end"]), (&3.into(), &true.into()));
    desk.good(&["resume"]);
    assert_eq!(desk.read("begun"), "x\n");
    let completed = desk.wait_for_event("task.completed", |event| event["task"] == "one");
    let told = completed["data"]["output"]["text"].as_str().expect("a text");
    assert!(told.contains("tidy\nexit code 3\n(it was told to end while it was at work"), "{told}");
}

#[test]
fn of_what_had_to_be_killed_the_output_is_told() {
    let stubborn = SLEEP
        .replace("sleep 60 &", "trap '' TERM; echo half; sleep 60 &")
        .replace("say = \"done\"", "say = \"{{ last[0].text }}\"");
    let desk = Desk::offline(&format!("{BASH}[limits]\ngrace_period = '100ms'\n"), &stubborn);
    let run = desk.start(&["run"]);
    sleeper(&desk);
    run.signal("INT");
    assert_eq!(run.end().code, 130);
    let finished = desk.wait_for_event("tool.finished", |_| true);
    assert_eq!(finished["data"]["status"], "unknown");
    desk.good(&["resume"]);
    let completed = desk.wait_for_event("task.completed", |event| event["task"] == "one");
    let told = completed["data"]["output"]["text"].as_str().expect("a text");
    assert!(told.starts_with("outcome unknown: ") && told.contains("had to be killed."), "{told}");
    assert!(told.trim_end().ends_with("\nWhat it had printed by then:\nhalf"), "{told}");
}

#[test]
fn a_task_that_cleaned_up_in_its_grace_has_not_done_its_work() {
    let task = format!("[tasks.only]\nretry = {{ max_attempts = 3 }}\nrun = '''{}'''\n", tidy(0));
    let desk = Desk::commands(&task);
    let run = desk.start(&["run"]);
    sleeper(&desk);
    run.signal("INT");
    assert_eq!(run.end().code, 130);
    let done = desk.call(&["resume"]);
    assert_eq!(done.code, 1, "{}", done.err);
    let why = "interrupted: the command was interrupted and ended by itself with exit code 0";
    assert!(done.out.contains(why), "{}", done.out);
    assert_eq!(desk.read("begun"), "x\n");
    let ended = desk.wait_for_event("agent.ended", |_| true);
    let partial = ended["data"]["outcome"]["partial"]["text"].as_str().expect("a text");
    assert!(partial.contains("tidy\n"), "{partial}");
}

/// How long what a program had at work may live on after it and the grace.
const ORPHANS: Duration = Duration::from_secs(1);

fn wait_for_no_orphans(group: i64) {
    wait_for_the_end_of(group, Duration::ZERO);
}

/// Waits for the end of processes that have a grace.
fn wait_for_the_end_of(group: i64, grace: Duration) {
    let ended = Instant::now();
    wait("the end of the group", || members(group).is_empty().then_some(()));
    assert!(ended.elapsed() < grace + ORPHANS, "{:?}", ended.elapsed());
}

fn graced(seconds: u64) -> String {
    format!("[limits]\norphan_grace = '{seconds}s'\n")
}

#[test]
fn nothing_outlives_a_program_that_is_killed() {
    // The command does not care about polite signals, and has a child.
    let stubborn = SLEEP.replace("sleep 60 &", "trap '' TERM HUP INT; sleep 60 &");
    let task = "[tasks.only]\nrun = 'sleep 60 & echo $! > pid.new; mv pid.new pid; wait'\n";
    for (seconds, desk) in [
        (0, Desk::offline(&format!("{}{BASH}", graced(0)), &stubborn)),
        (1, Desk::offline(&format!("{}{BASH}", graced(1)), CHILD_SLEEPS)),
        (1, Desk::commands(&format!("{}{task}", graced(1)))),
    ] {
        let run = desk.start(&["run"]);
        let pid = sleeper(&desk);
        let group = group(&desk);
        assert!(members(group).len() >= 3, "the wrapper, the shell and its child");
        run.signal("KILL");
        wait_for_the_end_of(group, Duration::from_secs(seconds));
        assert!(!is_alive(&pid));
        assert_eq!(run.end().code, -1);
        let done = desk.call(&["resume"]);
        let of_task = desk.read("agents.toml").contains("tasks.only");
        assert_eq!(done.code, i32::from(of_task), "{}", done.err);
        let finished = desk.wait_for_event("tool.finished", |_| true);
        assert_eq!(finished["data"]["status"], "unknown");
        let told = finished["data"]["block"]["content"].as_str().expect("a text").to_owned();
        assert!(told.starts_with("outcome unknown: ") && told.contains("It began at"), "{told}");
    }
}

/// A command that says when it has begun, and ends when it is told to.
const TOLD: &str = "echo $$ > pid.new; mv pid.new pid; echo x >> ledger; \
    until test -e go; do sleep 0.02; done; echo it was done";

#[test]
fn a_command_that_ends_within_its_grace_is_adopted() {
    let script = format!(
        "[[rules]]\nturn = 1\n[[rules.calls]]\ntool = 'bash'\ninput = {{ command = '''{TOLD}''' }}\n\
         [[rules]]\nsay = 'done'\n"
    );
    let task = format!("[tasks.only]\nrun = '''{TOLD}'''\n");
    // The resume waits for the end, or finds what ended before it.
    for waits in [true, false] {
        for desk in [
            Desk::offline(&format!("{}{BASH}", graced(60)), &script),
            Desk::commands(&format!("{}{task}", graced(60))),
        ] {
            let run = desk.start(&["run"]);
            sleeper(&desk);
            let group = group(&desk);
            run.signal("KILL");
            assert_eq!(run.end().code, -1);
            assert!(!members(group).is_empty(), "it may still end");
            let explained = desk.good(&["resume", "--explain"]);
            let is_task = desk.read("agents.toml").contains("tasks.only");
            assert_eq!(explained.contains("its command is still at work"), is_task, "{explained}");
            let resumed = if waits {
                let resumed = desk.start(&["resume"]);
                desk.wait_for_event("run.opened", |event| event["ep"] == 2);
                desk.write("go", "");
                resumed.end()
            } else {
                desk.write("go", "");
                wait("the end of the group", || members(group).is_empty().then_some(()));
                desk.call(&["resume"])
            };
            assert_eq!(resumed.code, 0, "{}", resumed.err);
            let finished = desk.wait_for_event("tool.finished", |_| true);
            let data = &finished["data"];
            assert_eq!((&data["status"], &data["source"]), (&"ok".into(), &"spool".into()));
            assert!(data.to_string().contains("it was done"), "{data}");
            assert_eq!(desk.read("ledger"), "x\n");
        }
    }
}

#[test]
fn a_program_that_is_told_to_end_at_once_grants_no_grace() {
    let desk = Desk::offline(&format!("{}{BASH}", graced(60)), SLEEP);
    let run = desk.start(&["run"]);
    sleeper(&desk);
    let group = group(&desk);
    run.signal("INT");
    run.signal("INT");
    assert_eq!(run.end().code, 130);
    wait_for_no_orphans(group);
}

/// Kills the program and the wrapper of its command, so that what the command started lives on.
fn orphan(desk: &Desk, run: Live) {
    let wrapper = group(desk).to_string();
    // Neither may hear that the other is gone.
    run.halt();
    let sent = std::process::Command::new("kill").args(["-s", "KILL", &wrapper]).status();
    assert!(sent.expect("sent").success());
    run.signal("KILL");
    run.end();
}

#[test]
fn an_idempotent_command_whose_wrapper_dies_is_run_again_once() {
    // Each row: the number of tries at which it ends by itself, the exit code, the tries.
    for (ends_at, code, tries) in [(2, 0, 2), (9, 1, 2)] {
        let line = format!(
            "echo x >> tries; test $(wc -l < tries) -ge {ends_at} || {{ echo 1 > at; sleep 60; }}"
        );
        let text = format!("[tasks.one]\nidempotent = true\nrun = '{line}'\n");
        let desk = Desk::commands(&text);
        let run = desk.start(&["run"]);
        let mut killed = std::collections::BTreeSet::new();
        while killed.len() < tries.min(ends_at - 1) {
            let wrapper = wait("the wrapper", || {
                let journal = std::fs::read_to_string(desk.runs().pop()?.join("journal.jsonl"));
                let journal = journal.ok()?;
                let started = journal.lines().rfind(|line| line.contains("tool.started"))?;
                let started: serde_json::Value = serde_json::from_str(started).ok()?;
                let group = started["data"]["pgid"].as_i64()?;
                (!killed.contains(&group) && desk.path().join("at").exists()).then_some(group)
            });
            std::fs::remove_file(desk.path().join("at")).expect("removed");
            let mut kill = std::process::Command::new("kill");
            let sent = kill.args(["-s", "KILL", &wrapper.to_string()]).status();
            assert!(sent.expect("sent").success());
            killed.insert(wrapper);
        }
        let done = run.end();
        assert_eq!(done.code, code, "{ends_at}: {}{}", done.out, done.err);
        assert_eq!(desk.read("tries").lines().count(), tries, "{}", done.out);
    }
}

/// Keeps a result as the wrapper of the call would have.
fn keep(desk: &Desk) {
    let started = desk.wait_for_event("tool.started", |_| true);
    let key = started["data"]["key"].as_str().expect("a key");
    let report = serde_json::json!({
        "done": {"text": "it was done", "is_error": false, "exit_code": 0},
    });
    let kept = serde_json::json!({"v": 1, "key": key, "report": report, "took_ms": 7});
    let spool = desk.runs().pop().expect("a run").join("spool");
    std::fs::write(spool.join(format!("{key}.json")), kept.to_string()).expect("kept");
}

/// A way in which an agent ends that nobody brings back.
#[derive(Clone, Copy)]
enum Way {
    RunCancelled,
    TaskCancelled,
    OutOfTime,
    TaskGone,
}

impl Way {
    fn go(self, desk: &Desk) {
        let change = |from: &str, to: &str| {
            let text = desk.read("agents.toml");
            assert!(text.contains(from));
            desk.write("agents.toml", &text.replace(from, to));
        };
        match self {
            Self::RunCancelled => drop(desk.good(&["cancel", "desk"])),
            Self::TaskCancelled => drop(desk.good(&["cancel", "desk/one"])),
            Self::OutOfTime => {
                change("prompt = \"go\"\n", "prompt = \"go\"\ntimeout = \"1ms\"\n");
                let done = desk.call(&["resume", "--accept-changes"]);
                assert!(done.out.contains("took longer than 0.001 s"), "{}{}", done.out, done.err);
            }
            Self::TaskGone => {
                change("[tasks.one]\nagent = \"a\"\nprompt = \"go\"\n", "");
                change("depends_on = [\"one\"]\n", "");
                desk.good(&["resume", "--accept-changes"]);
            }
        }
    }
}

fn an_idle_agent_ends(way: Way, is_kept: bool) {
    let (desk, run, pid) = asleep(SLEEP);
    orphan(&desk, run);
    assert!(is_alive(&pid), "the wrapper cannot end it any more");
    if is_kept {
        keep(&desk);
    }
    way.go(&desk);
    assert!(!is_alive(&pid));
    let of_one = |event: &serde_json::Value| event["agent"] == "one";
    let finished = desk.wait_for_event("tool.finished", of_one);
    let data = &finished["data"];
    let told = data["block"]["content"].as_str().expect("a text");
    if is_kept {
        assert_eq!((&data["status"], &data["source"]), (&"ok".into(), &"spool".into()));
        assert_eq!(told, "it was done");
    } else {
        assert_eq!((&data["status"], &data["source"]), (&"unknown".into(), &"recovered".into()));
        assert!(
            told.starts_with("outcome unknown: ") && told.contains("have been ended"),
            "{told}"
        );
    }
    let responded = desk.wait_for_event("model.responded", of_one);
    let ended = desk.wait_for_event("agent.ended", of_one);
    assert!(finished["seq"].as_u64() < ended["seq"].as_u64());
    assert_eq!(ended["data"]["usage"], responded["data"]["usage"]);
    assert_eq!(ended["data"]["turns"], 1);
    let spool = desk.runs().pop().expect("a run").join("spool");
    if !matches!(way, Way::TaskCancelled) {
        assert_eq!(std::fs::read_dir(spool).expect("a folder").count(), 0, "nothing is kept");
    }
}

#[test]
fn an_agent_that_nobody_brings_back_leaves_no_call_open() {
    std::thread::scope(|scope| {
        for way in [Way::RunCancelled, Way::TaskCancelled, Way::OutOfTime, Way::TaskGone] {
            for is_kept in [false, true] {
                scope.spawn(move || an_idle_agent_ends(way, is_kept));
            }
        }
    });
}

#[test]
fn a_run_is_cancelled_from_elsewhere() {
    let (desk, run, pid) = asleep(SLEEP);
    assert_eq!(desk.good(&["cancel", "desk"]), "");
    assert!(!is_alive(&pid));
    let done = run.end();
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("run cancelled"), "{}", done.out);
    let last = last_event(&desk);
    assert_eq!(last["data"]["status"], "cancelled");
    assert_eq!(last["data"]["tasks"]["two"]["state"], "cancelled");
    // It is stopped already, and so are its parts.
    desk.good(&["cancel", "desk"]);
    desk.good(&["cancel", "desk/two"]);
    desk.good(&["cancel", "desk/@one"]);
}

#[test]
fn a_task_is_cancelled_from_elsewhere() {
    let (desk, run, pid) = asleep(SLEEP);
    desk.good(&["cancel", "desk/one"]);
    assert!(!is_alive(&pid));
    let done = run.end();
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.out.contains("one  cancelled"), "{}", done.out);
    assert!(done.out.contains("two  skipped"), "{}", done.out);
}

#[test]
fn a_child_is_cancelled_and_its_parent_goes_on() {
    let (desk, run, pid) = asleep(CHILD_SLEEPS);
    desk.good(&["cancel", "desk/@one/b-1"]);
    assert!(!is_alive(&pid));
    let done = run.end();
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let child = desk.json(&["show", "@one/b-1", "--json"]).pop().unwrap();
    assert_eq!(child["state"], "cancelled");
}

#[test]
fn what_does_not_exist_is_not_cancelled() {
    let desk = Desk::commands("[tasks.one]\nrun = 'true'\n");
    assert_eq!(desk.call(&["cancel", "nosuch"]).code, 1);
    desk.good(&["run"]);
    for what in ["nosuch", "desk/nosuch", "desk/NO SUCH", "desk/@nosuch", "desk/"] {
        let done = desk.call(&["cancel", what]);
        assert_eq!((done.code, done.out.as_str()), (1, ""), "{what}");
        assert!(done.err.starts_with("error: there is no "), "{what}: {}", done.err);
    }
}

#[test]
fn an_agent_that_is_not_at_work_cannot_compact() {
    let (desk, run, _) = asleep(SLEEP);
    assert_eq!(desk.call(&["compact", "desk/@nosuch"]).code, 1);
    desk.good(&["compact", "desk/@one", "--focus", "the plan"]);
    desk.good(&["cancel", "desk"]);
    run.end();
    let done = desk.call(&["compact", "desk/@one"]);
    assert_eq!(done.code, 1);
    assert!(done.err.contains("error: "), "{}", done.err);
}
