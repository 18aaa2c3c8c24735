//! Hooks of runs and of tool calls, through the real binary: what they read, what they decide, and
//! what becomes of those that hang, flood, crash or print garbage.

use callsheet::crash::Point;
use serde_json::Value;

use crate::support::desk::{Desk, Done, Live, lines, wait};

/// The records of the newest run.
fn journal(desk: &Desk) -> Vec<Value> {
    lines(
        &std::fs::read_to_string(desk.runs().pop().expect("a run").join("journal.jsonl"))
            .expect("text"),
    )
}

/// The results of tool calls as the model read them.
fn results(desk: &Desk) -> Vec<String> {
    let finished = journal(desk).into_iter().filter(|record| record["type"] == "tool.finished");
    finished.map(|r| r["data"]["block"]["content"].as_str().expect("text").to_owned()).collect()
}

const AGENT: &str = r#"
[agents.worker]
tools = ["bash", "todo_write"]
[tasks.job]
agent = "worker"
prompt = "Go."
"#;

/// A script with one call of `bash` in each turn.
fn calling(commands: &[&str]) -> String {
    let calls = commands.iter().enumerate().map(|(at, command)| {
        format!(
            "[[rules]]\nturn = {}\ncalls = [{{ tool = 'bash', input = {{ command = '{command}' }} }}]\n",
            at + 1
        )
    });
    calls.collect::<String>() + "[[rules]]\nsay = 'done'\n"
}

/// A hook that decides by the command of the call.
const POLICY: &str = r#"
input=$(cat)
printf '%s\n' "$input" >> .seen
case "$input" in
*'"command":"forbidden'*) echo "not on a Sunday" >&2; exit 2 ;;
*'"command":"blocked'*) echo '{"decision": "block", "reason": "blocked by JSON"}' ;;
*'"command":"denied'*) echo '{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "denied by JSON"}}' ;;
*'"command":"asked'*) echo '{"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "odd"}}' ;;
*'"command":"rule'*) echo '{"hookSpecificOutput": {"permissionDecision": "allow"}}' ;;
*'"command":"touch crashed'*) kill -9 $$ ;;
*'"command":"touch garbage'*) echo '{ garbage' ;;
*'"command":"touch hung'*) sleep 60 ;;
*'"command":"touch flooded'*) yes | head -c 5000000; exit 3 ;;
esac
"#;

#[test]
fn a_hook_can_forbid_a_call_and_never_allow_one() {
    let commands = [
        "forbidden",
        "blocked",
        "denied",
        "asked",
        "rule",
        "touch crashed",
        "touch garbage",
        "touch hung",
        "touch flooded",
        "echo key-of-a-test-1234",
    ];
    let hooks = "deny = ['bash(rule*)']\n[secrets]\nKEY = { env = 'HOOK_KEY' }\n\
                 [hooks]\npre_tool_use = ['sh', 'policy.sh']\ntimeout = '6s'\n\
                 on_error = 'allow'\npost_tool_use = ['sh', 'after.sh']\n";
    let desk = Desk::offline(&format!("{hooks}{AGENT}"), &calling(&commands));
    desk.write("policy.sh", POLICY);
    let after = "input=$(cat); case $input in *'PostToolUse'*'redacted'*) \
                 echo 'never show keys' >&2; exit 2 ;; esac\n";
    desk.write("after.sh", after);
    let mut command = desk.command(&["run"]);
    let done = Done::of(command.env("HOOK_KEY", "key-of-a-test-1234"));
    assert_eq!(done.code, 0, "{}", done.err);
    let results = results(&desk);
    for (result, expected) in results.iter().zip([
        "Denied by the hook pre_tool_use: not on a Sunday",
        "Denied by the hook pre_tool_use: blocked by JSON",
        "Denied by the hook pre_tool_use: denied by JSON",
        "Permission denied: the hook pre_tool_use wants a person to decide (odd), a person would \
         have to be asked, and this run cannot ask one.",
        "Permission denied: the rule `bash(rule*)` says so.",
        "(no output)",
        "(no output)",
        "(no output)",
        "(no output)",
        "[redacted]\nThe hook post_tool_use objects: never show keys",
    ]) {
        assert_eq!(result, expected);
    }
    assert_eq!(results.len(), commands.len());
    // What does not work changes nothing, and is told.
    for made in ["crashed", "garbage", "hung", "flooded"] {
        assert!(desk.path().join(made).exists(), "{made}");
    }
    let failed: Vec<String> = journal(&desk)
        .iter()
        .filter(|record| record["type"] == "hook.finished")
        .map(|record| record["data"]["error"].as_str().expect("an error").to_owned())
        .collect();
    for (error, says) in failed.iter().zip(["exit code 137", "is none", "timed out", "exit code 3"])
    {
        assert!(error.contains(says) && error.len() < 500, "{error}");
    }
    assert_eq!(failed.len(), 4, "{failed:?}");
    assert!(
        done.out.contains("hook failed:  pre_tool_use: 4 times, first: exit code 137"),
        "{}",
        done.out
    );
    // The hook saw no denied call, and no key.
    let seen = lines(&desk.read(".seen"));
    assert_eq!(seen.len(), commands.len() - 1);
    assert!(!desk.read(".seen").contains("key-of-a-test"));
    let first = &seen[0];
    assert_eq!(first["hook_event_name"], "PreToolUse");
    assert_eq!(first["tool_name"], "bash");
    assert_eq!(first["tool_input"]["command"], "forbidden");
    assert_eq!(first["agent_id"], "job");
    assert_eq!(first["cwd"].as_str(), desk.path().canonicalize().expect("it").to_str());
    for field in ["session_id", "transcript_path", "tool_use_id"] {
        assert!(first[field].is_string(), "{field}");
    }
}

#[test]
fn a_judge_that_does_not_work_denies() {
    let commands = ["touch crashed", "touch garbage", "touch hung", "touch flooded", "touch made"];
    let desk = Desk::offline(
        &format!("[hooks]\npre_tool_use = ['./hooks/policy.sh']\ntimeout = '6s'\n{AGENT}"),
        &calling(&commands),
    );
    desk.write("hooks/policy.sh", &format!("#!/bin/sh\n{}", POLICY.replace(".seen", "seen.txt")));
    let program = desk.path().join("hooks/policy.sh");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, open).expect("set");
    assert_eq!(desk.call(&["run"]).code, 0);
    for (result, says) in results(&desk).iter().zip(["137", "is none", "timed out", "exit code 3"])
    {
        assert!(result.starts_with("Denied by the hook pre_tool_use: it did not work"), "{result}");
        assert!(result.contains(says), "{says}: {result}");
    }
    for made in ["crashed", "garbage", "hung", "flooded"] {
        assert!(!desk.path().join(made).exists(), "{made}");
    }
    assert!(desk.path().join("made").exists());
    // One that cannot be started.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&program, open).expect("set");
    std::fs::remove_file(desk.path().join("made")).expect("removed");
    assert_eq!(desk.call(&["run"]).code, 0);
    assert_eq!(results(&desk).len(), commands.len());
    assert!(results(&desk).iter().all(|result| result.starts_with("Denied by the hook")));
    assert!(!desk.path().join("made").exists());
}

#[test]
fn nobody_changes_what_a_judge_loads() {
    let agent = AGENT.replace("tools = [\"bash\"", "tools = [\"write_file\", \"bash\"");
    let desk = Desk::offline(
        &format!("[hooks]\npre_tool_use = ['sh', 'hooks/policy.sh', 'conf/words']\n{agent}"),
        "[[rules]]\nturn = 1\n\
         [[rules.calls]]\ntool = 'write_file'\ninput = { path = 'hooks/lib.sh', content = '' }\n\
         [[rules.calls]]\ntool = 'write_file'\ninput = { path = 'hooks/new.sh', content = '' }\n\
         [[rules.calls]]\ntool = 'write_file'\ninput = { path = 'conf/words', content = '' }\n\
         [[rules.calls]]\ntool = 'bash'\ninput = { command = 'echo > hooks/lib.sh; echo > hooks/new.sh; \
         echo > conf/words; rm -r hooks; mv hooks h; mv conf c' }\n\
         [[rules]]\nturn = 2\n[[rules.calls]]\ntool = 'bash'\ninput = { command = 'touch bad' }\n\
         [[rules]]\nsay = 'done'\n",
    );
    desk.write("hooks/policy.sh", "input=$(cat)\n. ./hooks/lib.sh\n");
    desk.write("hooks/lib.sh", "case $input in *\"$(cat conf/words)\"*) exit 2 ;; esac\n");
    desk.write("conf/words", "touch bad");
    assert_eq!(desk.call(&["run"]).code, 0);
    let results = results(&desk);
    assert!(results.last().is_some_and(|last| last.contains("Denied by the hook")), "{results:?}");
    assert!(!desk.path().join("bad").exists());
    assert!(desk.read("hooks/lib.sh").contains("exit 2"), "{results:?}");
    assert!(!desk.path().join("hooks/new.sh").exists(), "{results:?}");
    assert_eq!(desk.read("conf/words"), "touch bad");
}

/// Hooks of a run that note when they run.
fn noting(task: &str) -> Desk {
    let hook = |name: &str| format!("{name} = ['sh', 'note.sh', '{name}']\n");
    let hooks: String = ["on_start", "on_success", "on_failure", "on_exit"].map(hook).concat();
    let desk = Desk::commands(&format!("[hooks]\n{hooks}\n[tasks.job]\nrun = '{task}'\n"));
    desk.write("note.sh", "cat >> .input; echo >> .input; echo $1 >> .noted; echo ran $1; test $1 != \"$(cat .bad)\"\n");
    desk.write(".bad", "none");
    desk
}

#[test]
fn the_hooks_of_a_run_know_how_it_ended_and_change_nothing() {
    for (task, bad, code, noted) in [
        ("true", "none", 0, "on_start\non_success\non_exit\n"),
        ("false", "none", 1, "on_start\non_failure\non_exit\n"),
        ("true", "on_exit", 0, "on_start\non_success\non_exit\n"),
        ("touch ran", "on_start", 1, "on_start\non_failure\non_exit\n"),
    ] {
        let desk = noting(task);
        desk.write(".bad", bad);
        let done = desk.call(&["run"]);
        assert_eq!(
            (done.code, desk.read(".noted").as_str()),
            (code, noted),
            "{task} {bad}: {}",
            done.err
        );
        assert!(!desk.path().join("ran").exists(), "nothing begins after a failed on_start");
        let inputs = lines(&desk.read(".input"));
        assert_eq!(inputs[0]["hook_event_name"], "OnStart");
        assert!(inputs[0].get("status").is_none());
        let last = inputs.last().expect("one");
        assert_eq!(last["hook_event_name"], "OnExit");
        assert_eq!(last["status"], if code == 0 { "completed" } else { "failed" });
        assert_eq!(last["tasks"]["job"]["state"], if code == 0 { "completed" } else { "failed" });
        assert_eq!(last["workflow"], "desk");
        let records = journal(&desk);
        let finished = records.iter().filter(|record| record["type"] == "hook.finished");
        let finished: Vec<&Value> = finished.collect();
        assert_eq!(finished.len(), 3);
        assert_eq!(finished[0]["data"]["output"], "ran on_start\n");
        assert_eq!(records.last().expect("one")["type"], "run.completed");
        let told = format!("hook failed:  {bad}: exit code 1");
        assert_eq!(done.out.contains(&told), bad != "none", "{}", done.out);
        if bad == "on_start" {
            assert!(done.out.contains("the hook on_start failed: exit code 1"), "{}", done.out);
            desk.write(".bad", "none");
            desk.good(&["resume", "--retry-failed"]);
            let again = "on_start\non_success\non_exit\n";
            assert_eq!(desk.read(".noted"), format!("{noted}{again}"));
        }
    }
}

#[test]
fn a_hook_runs_once_whenever_the_process_dies() {
    for number in 1..=10 {
        for point in [Point::BeforeWrite, Point::AfterSync] {
            let desk = noting("true");
            let mut command = desk.command(&["run"]);
            let died =
                Done::of(command.env("CALLSHEET_CRASH_AT", format!("{}:{number}", point.name())));
            if died.code == 0 {
                continue;
            }
            let has_run = desk.runs().pop().is_some_and(|run| {
                std::fs::read_to_string(run.join("journal.jsonl"))
                    .is_ok_and(|text| text.contains('\n'))
            });
            let done = desk.call(&[if has_run { "resume" } else { "run" }]);
            let noted = std::fs::read_to_string(desk.path().join(".noted")).unwrap_or_default();
            let what = format!("{point:?}:{number}: {noted} {}", done.err);
            let mut once: Vec<&str> = noted.lines().collect();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), noted.lines().count(), "{what}");
            // Each that did not run, or whose end nobody knows, is told.
            let records = journal(&desk);
            let began = records.iter().filter(|record| record["type"] == "hook.started").count();
            let ended = records.iter().filter(|record| record["type"] == "hook.finished").count();
            assert_eq!((began, ended), (3, 3), "{what}");
            assert_eq!(records.last().expect("one")["type"], "run.completed", "{what}");
        }
    }
}

/// A run with this hook, which notes its beginning and waits for a file.
fn waiting(hook: &str) -> (Desk, Live) {
    let desk = Desk::commands(&format!(
        "[hooks]\n{hook} = ['sh', '-c', 'echo began >> noted; test -e go || sleep 60']\n\
         [tasks.job]\nrun = 'true'\n"
    ));
    let run = desk.start(&["run"]);
    wait("the hook", || desk.path().join("noted").exists().then_some(()));
    (desk, run)
}

#[test]
fn a_cancel_ends_the_hook_at_work_also_once_all_tasks_have_ended() {
    for hook in ["on_success", "on_exit"] {
        let (desk, run) = waiting(hook);
        desk.good(&["cancel", "desk"]);
        let done = run.end();
        assert_eq!(done.code, 0, "{hook}: {}{}", done.out, done.err);
        let told = format!("hook failed:  {hook}: it was told to end");
        assert!(done.out.contains(&told), "{}", done.out);
    }
}

#[test]
fn a_hook_that_ctrl_c_has_ended_runs_again_when_the_run_goes_on() {
    for hook in ["on_start", "on_exit"] {
        let (desk, run) = waiting(hook);
        run.signal("INT");
        assert_eq!(run.end().code, 130, "{hook}");
        desk.write("go", "");
        let done = desk.call(&["resume"]);
        assert_eq!(done.code, 0, "{hook}: {}{}", done.out, done.err);
        assert!(!done.out.contains("hook failed"), "{}", done.out);
        assert_eq!(desk.read("noted"), "began\nbegan\n");
    }
}

#[test]
fn the_hooks_of_states_run_once_for_each_over_a_kill_and_a_resume() {
    let hook = |name: &str| format!("{name} = ['sh', 'note.sh', '{name}']\n");
    let hooks: String = ["run_paused", "run_resumed", "question", "on_exit"].map(hook).concat();
    let desk = Desk::commands(&format!(
        "[hooks]\n{hooks}\n[tasks.gate.approval]\nmessage = 'deploy?'\n\
         [tasks.long]\nidempotent = true\nrun = 'test -e go || {{ touch begun; sleep 60; }}'\n"
    ));
    desk.write("note.sh", "cat >> .input; echo >> .input; echo $1 >> .noted\n");
    // The process dies while the question is open: nothing paused.
    let live = desk.start(&["run"]);
    wait("the hook of the question", || {
        let noted = desk.path().join(".noted").exists() && desk.path().join("begun").exists();
        // Before that there may be no journal yet.
        let ended = || journal(&desk).iter().any(|record| record["type"] == "hook.finished");
        (noted && ended()).then_some(())
    });
    drop(live);
    assert_eq!(desk.read(".noted"), "question\n");
    desk.write("go", "");
    // It goes on and pauses for the same question.
    assert_eq!(desk.call(&["resume"]).code, 6);
    assert_eq!(desk.read(".noted"), "question\nrun_resumed\nrun_paused\n");
    let records = journal(&desk);
    let asked = records.iter().find(|record| record["type"] == "approval.asked").expect("one");
    let inputs = lines(&desk.read(".input"));
    assert_eq!(inputs[0]["hook_event_name"], "Question");
    assert_eq!(inputs[0]["question"]["id"], asked["data"]["id"]);
    assert_eq!(inputs[0]["question"]["kind"], "approval");
    assert_eq!(inputs[0]["question"]["text"], "deploy?");
    assert_eq!(inputs[1]["hook_event_name"], "RunResumed");
    assert_eq!(
        (&inputs[2]["hook_event_name"], &inputs[2]["cause"]),
        (&"RunPaused".into(), &"person".into())
    );
    assert_eq!(records.last().expect("one")["type"], "run.paused");
    let id = asked["data"]["id"].as_str().expect("an id");
    assert_eq!(desk.call(&["approve", id]).code, 0);
    desk.good(&["resume"]);
    assert_eq!(desk.read(".noted"), "question\nrun_resumed\nrun_paused\nrun_resumed\non_exit\n");
}
