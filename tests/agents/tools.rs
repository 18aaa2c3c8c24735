//! Tools in a run: the order in which calls run and are answered, the calls that may run at all,
//! and the records and processes that are left after a call fails or is stopped.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use callsheet::context::CompactionTrigger;
use callsheet::event::{Event, RunStatus};
use callsheet::message::{Json, ToolResult};
use callsheet::model::BoxFuture;
use callsheet::person::{Asker, Question};
use callsheet::plan::TaskState;
use callsheet::run::CancelTarget;
use callsheet::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use callsheet::turn::{Outcome, ToolStatus};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use crate::support::answer::Part;
use crate::support::asked::Wire;
use crate::support::test_run::{
    Ended, Host, TestRun, agent, is_alive, name, reading, soon, writing,
};

/// One agent that may do everything.
const FREE: &str = r#"
[permissions]
default = "allow"
[agents.worker]
tools = ["bash", "read_file", "write_file", "edit_file", "glob", "grep", "todo_write", "compact"]
[tasks.job]
agent = "worker"
prompt = "go"
"#;

/// One agent with two tools of this test.
const OWN: &str = r#"
[permissions]
default = "allow"
[agents.worker]
tools = ["look", "change"]
[tasks.job]
agent = "worker"
prompt = "go"
"#;

/// A script that makes these calls in the first turn and then says `done`.
fn calling(calls: &[(&str, Value)]) -> String {
    let calls = calls.iter().map(|(tool, input)| {
        let input: toml::Value = serde_json::from_value(input.clone()).expect("a value of TOML");
        format!("{{ tool = \"{tool}\", input = {} }}", inline(&input))
    });
    let calls = calls.collect::<Vec<_>>().join(",\n");
    format!("[[rules]]\nturn = 1\ncalls = [\n{calls}\n]\n[[rules]]\nsay = \"done\"\n")
}

/// A value in one line of TOML.
fn inline(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| format!("{key} = {}", inline(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        toml::Value::Array(items) => {
            let items = items.iter().map(inline);
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        toml::Value::String(text) => serde_json::to_string(text).expect("a text"),
        other => other.to_string(),
    }
}

/// The text of an input's key.
fn key(input: &Json, key: &str) -> String {
    input.to_value()[key].as_str().unwrap_or_default().to_owned()
}

/// The results of the only agent, as texts; none of them an error.
fn texts(ended: &Ended) -> Vec<String> {
    let text = |result: &ToolResult| {
        assert!(!result.is_error, "{result:?}");
        result.text()
    };
    ended.results("job").iter().map(text).collect()
}

#[tokio::test]
async fn reading_calls_overlap_and_results_are_read_in_call_order() {
    // The first call ends only after the second has: they overlap, and finish in reverse.
    let second_ended = Arc::new(Notify::new());
    let look = reading("look", move |input, _| {
        let second_ended = second_ended.clone();
        async move {
            let which = key(&input, "which");
            match which.as_str() {
                "first" => second_ended.notified().await,
                _ => second_ended.notify_one(),
            }
            Ok(ToolOutput::ok(format!("saw {which}")))
        }
    });
    let script =
        calling(&[("look", json!({"which": "first"})), ("look", json!({"which": "second"}))]);
    for host in Host::ALL {
        let ended = TestRun::new(OWN)
            .script(&script)
            .on(host)
            .tool(look.clone())
            .tool(idle("change"))
            .run()
            .await;
        assert_eq!(texts(&ended), ["saw first", "saw second"], "{host:?}");
        let ids: Vec<_> =
            ended.results("job").into_iter().map(|result| result.tool_use_id).collect();
        assert_eq!(ids, ["call_1_1", "call_1_2"], "{host:?}");
        let finished: Vec<_> = ended.finished("job").iter().map(|result| result.index).collect();
        assert_eq!(finished, [1, 0], "{host:?}");
        if let Some(request) = ended.requests.get(1) {
            let sent = request.messages().pop().expect("a message");
            let sent: Vec<_> = sent.tool_results().map(ToolResult::text).collect();
            assert_eq!(sent, ["saw first", "saw second"], "{host:?}");
        }
    }
}

#[tokio::test]
async fn a_bounded_number_of_reading_calls_overlap() {
    // (at work, most at once): the calls come in whole waves, so that each has to be as large as it may.
    let seen = Arc::new(Mutex::new((0, 0)));
    let wave = Arc::new(Barrier::new(16));
    let look = {
        let seen = seen.clone();
        reading("look", move |input, _| {
            let (seen, wave) = (seen.clone(), wave.clone());
            async move {
                {
                    let (now, most) = &mut *seen.lock();
                    *now += 1;
                    *most = (*now).max(*most);
                }
                wave.wait().await;
                seen.lock().0 -= 1;
                Ok(ToolOutput::ok(format!("saw {}", key(&input, "which"))))
            }
        })
    };
    let which = |at: usize| ("look", json!({"which": at.to_string()}));
    let script = calling(&(0..64).map(which).collect::<Vec<_>>());
    let run = TestRun::new(OWN).script(&script).tool(look).tool(idle("change"));
    let ended = run.run().await;
    let expected: Vec<_> = (0..64).map(|at| format!("saw {at}")).collect();
    assert_eq!(texts(&ended), expected, "in call order");
    assert_eq!(*seen.lock(), (0, 16));
}

fn idle(name: &str) -> Arc<dyn Tool> {
    writing(name, |_, _| async { Ok(ToolOutput::ok("changed")) })
}

#[tokio::test]
async fn a_call_that_changes_something_runs_alone_and_in_its_place() {
    let log = Arc::new(Mutex::new(Vec::new()));
    // The reading calls of a group have to meet.
    let meet = Arc::new(Barrier::new(2));
    let noting = {
        let log = log.clone();
        move |what: &str, input: &Json| log.lock().push(format!("{what} {}", key(input, "n")))
    };
    let look = {
        let (noting, meet) = (noting.clone(), meet.clone());
        reading("look", move |input, _| {
            let (noting, meet) = (noting.clone(), meet.clone());
            async move {
                noting("begin", &input);
                meet.wait().await;
                noting("end", &input);
                Ok(ToolOutput::ok("seen"))
            }
        })
    };
    let change = writing("change", move |input, _| {
        let noting = noting.clone();
        async move {
            noting("begin", &input);
            tokio::task::yield_now().await;
            noting("end", &input);
            Ok(ToolOutput::ok("changed"))
        }
    });
    let call = |tool, n: &str| (tool, json!({"n": n}));
    let calls = [
        call("look", "1a"),
        call("look", "1b"),
        call("change", "2"),
        call("change", "3"),
        call("look", "4a"),
        call("look", "4b"),
    ];
    let ended = TestRun::new(OWN).script(&calling(&calls)).tool(look).tool(change).run().await;
    assert_eq!(texts(&ended), ["seen", "seen", "changed", "changed", "seen", "seen"]);
    let log = log.lock().clone();
    let place = |line: &str| log.iter().position(|l| l == line).expect("a line");
    assert_eq!(log.len(), 12);
    for (before, after) in [("end 1a", "begin 2"), ("end 1b", "begin 2"), ("end 2", "begin 3")] {
        assert!(place(before) < place(after), "{log:?}");
    }
    for after in ["begin 4a", "begin 4b"] {
        assert!(place("end 3") < place(after), "{log:?}");
    }
}

#[tokio::test]
async fn a_wrong_call_is_told_what_was_wrong_and_the_run_goes_on() {
    let change = writing("change", |input, _| async move {
        match key(&input, "how").as_str() {
            "panic" => panic!("the tool is broken"),
            "fail" => Err(ToolError::Failed("no luck".to_owned())),
            _ => Ok(ToolOutput::ok("changed")),
        }
    });
    let calls = [
        ("change", json!({"how": "panic"})),
        ("change", json!({"how": "fail"})),
        ("read_file", json!({})),
        ("read_file", json!({"path": "a", "lines": 3})),
        ("bash", json!({"command": "exit 3"})),
        ("nonsense", json!({"a": 1})),
        ("glob", json!({"pattern": "*"})),
        ("change", json!({})),
    ];
    let text = FREE.replace("\"grep\"", "\"change\"").replace("\"glob\", ", "");
    let ended = TestRun::new(&text).script(&calling(&calls)).tool(change).run().await;
    assert_eq!(ended.output("job"), "done");
    let results = ended.results("job");
    let words = [
        "Error: the tool crashed (panic: the tool is broken)",
        "Error: no luck",
        "missing field `path`",
        "unknown field `lines`",
        "exit code 3",
        "Unknown tool: nonsense",
        // There is such a tool, but not for this agent.
        "Unknown tool: glob",
    ];
    for (result, words) in results.iter().zip(words) {
        assert!(result.is_error && result.text().contains(words), "{result:?}");
    }
    assert_eq!((results[7].is_error, results[7].text()), (false, "changed".to_owned()));
    let statuses = ended.finished("job").iter().filter(|f| f.status == ToolStatus::Error).count();
    assert_eq!(statuses, 7);
}

#[tokio::test]
async fn arguments_that_are_no_object_are_answered() {
    for wire in Wire::BOTH {
        for wrong in [json!([1, 2]), json!("text"), json!(7)] {
            let input = wrong.clone();
            let ended = TestRun::new(FREE)
                .on(Host::Loopback(wire))
                .adapting(move |asked, mut answer| {
                    if asked.count == 1 {
                        let (name, input) = ("glob".to_owned(), input.clone());
                        answer.parts = vec![Part::Tool { id: None, name, input }];
                    }
                    answer
                })
                .run()
                .await;
            assert_eq!(ended.output("job"), "done");
            let result = ended.result("job");
            assert!(result.is_error && result.text().contains("a JSON object"), "{result:?}");
            let second = ended.requests[1].messages();
            let call = second[1].tool_calls().next().expect("the call").clone();
            assert!(call.input.as_str().starts_with('{'), "{wire:?} {wrong}: {call:?}");
        }
    }
}

#[tokio::test]
async fn rules_decide_what_may_run_and_the_agent_is_told_why_not() {
    let text = r#"
        [permissions]
        default = "ask"
        allow = ["read_file", "bash(echo *)"]
        ask = ["write_file"]
        deny = ["read_file(**/.env)", "bash(rm *)"]
        [agents.worker]
        tools = ["bash", "read_file", "write_file", "edit_file"]
        permissions = { allow = ["write_file(notes/*)", "bash(rm *)"] }
        [tasks.job]
        agent = "worker"
        prompt = "go"
        "#;
    let calls = [
        ("read_file", json!({"path": "a.txt"})),
        ("read_file", json!({"path": "sub/.env"})),
        ("read_file", json!({"path": "sub/../sub/./.env"})),
        ("bash", json!({"command": "echo hello"})),
        ("bash", json!({"command": "rm a.txt"})),
        ("bash", json!({"command": "echo hello; rm a.txt"})),
        ("bash", json!({"command": "touch b.txt"})),
        ("write_file", json!({"path": "notes/n.txt", "content": "x"})),
        ("write_file", json!({"path": "other.txt", "content": "x"})),
        ("edit_file", json!({"path": "a.txt", "old_string": "x", "new_string": "y"})),
    ];
    let ended = TestRun::new(text)
        .script(&calling(&calls))
        .file("a.txt", "x\n")
        .file("sub/.env", "KEY=secret\n")
        .run()
        .await;
    assert_eq!(ended.output("job"), "done");
    let results = ended.results("job");
    let allowed: Vec<_> = results.iter().map(|result| !result.is_error).collect();
    let expected = [true, false, false, true, false, false, false, true, false, false];
    assert_eq!(allowed, expected, "{results:#?}");
    assert_eq!(results[3].text(), "hello\n");
    for (at, why) in [(1, "read_file(**/.env)"), (2, "read_file(**/.env)"), (4, "bash(rm *)")] {
        let text = results[at].text();
        assert!(text.starts_with("Permission denied") && text.contains(why), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
    // What would have to be asked is denied, since nobody can be.
    for at in [6, 8, 9] {
        let text = results[at].text();
        assert!(text.contains("this run cannot ask one"), "{at}: {text}");
    }
    assert_eq!(ended.read("a.txt"), "x\n");
    assert!(ended.exists("notes/n.txt") && !ended.exists("other.txt") && !ended.exists("b.txt"));
}

/// Allows calls whose text contains a word, and notes the questions.
#[derive(Debug)]
struct Person {
    yes: &'static str,
    asked: Mutex<Vec<String>>,
}

impl Asker for Person {
    fn ask(&self, question: Question) -> BoxFuture<'_, bool> {
        let Question { agent, tool, texts, .. } = question;
        self.asked.lock().push(format!("{agent}: {tool} {}", texts[0]));
        let answer = texts[0].contains(self.yes);
        Box::pin(async move { answer })
    }
}

#[tokio::test]
async fn a_person_is_asked_where_there_is_one() {
    let calls = [
        ("bash", json!({"command": "echo good"})),
        ("bash", json!({"command": "echo bad"})),
        ("read_file", json!({"path": "a.txt"})),
    ];
    // Without the section, reading is allowed and everything else asks.
    let text = FREE.replace("[permissions]\ndefault = \"allow\"\n", "");
    let person = Arc::new(Person { yes: "good", asked: Mutex::default() });
    let ended = TestRun::new(&text)
        .script(&calling(&calls))
        .file("a.txt", "x\n")
        .asker(person.clone())
        .run()
        .await;
    assert_eq!(*person.asked.lock(), ["job: bash echo good", "job: bash echo bad"]);
    let results = ended.results("job");
    assert_eq!((results[0].is_error, results[0].text()), (false, "good\n".to_owned()));
    assert!(results[1].is_error && results[1].text().contains("said no"), "{results:?}");
    assert_eq!((results[2].is_error, results[2].text()), (false, "x\n".to_owned()));
}

#[tokio::test]
async fn a_huge_output_is_a_bounded_result_and_stored_whole() {
    const BYTES: u64 = 20_000_000;
    let command = format!("head -c {BYTES} /dev/zero | tr '\\0' x; echo; echo END");
    let script = r#"
        [[rules]]
        turn = 1
        calls = [{ tool = "bash", input = { command = "COMMAND" } }]
        [[rules]]
        turn = 2
        calls = [{ tool = "grep", input = { pattern = "^END$", path = "{{ last[0].text | find('is in ([^ ]+)') }}", output_mode = "count" } }]
        [[rules]]
        say = "done"
        "#;
    let script = script.replace("COMMAND", &command.replace('\\', "\\\\"));
    let ended = TestRun::new(FREE).script(&script).run().await;
    assert_eq!(ended.output("job"), "done");
    let finished = ended.finished("job");
    let stored = finished[0].stored.as_ref().expect("a stored whole");
    assert_eq!(stored.bytes, BYTES + 5);
    let whole = std::fs::read(ended.dir.results().join(&stored.hash)).expect("the stored whole");
    assert_eq!(whole.len() as u64, BYTES + 5);
    assert!(whole.ends_with(b"x\nEND\n"));
    let result = &ended.results("job")[0];
    let text = result.text();
    assert!(!result.is_error && text.len() < 35_000, "{} bytes", text.len());
    assert!(text.contains(&stored.hash) && text.ends_with("END\n"));
    // The agent can look into the whole.
    let found = &ended.results("job")[1];
    assert!(!found.is_error && found.text().contains('1'), "{found:?}");
    // The journal holds the preview only.
    let journal = std::fs::metadata(ended.dir.journal()).expect("the journal").len();
    assert!(journal < 200_000, "{journal} bytes");
}

#[tokio::test]
async fn files_outside_the_workspace_are_out_of_reach() {
    let script = calling(&[
        ("read_file", json!({"path": "../secret.txt"})),
        ("read_file", json!({"path": "/etc/passwd"})),
        ("read_file", json!({"path": "door/secret.txt"})),
        ("read_file", json!({"path": "window"})),
        ("write_file", json!({"path": "../written.txt", "content": "x"})),
        ("write_file", json!({"path": "door/written.txt", "content": "x"})),
        ("edit_file", json!({"path": "window", "old_string": "secret", "new_string": "x"})),
        ("glob", json!({"pattern": "*", "path": ".."})),
        ("grep", json!({"pattern": "secret", "path": "door"})),
        ("write_file", json!({"path": ".transcripts/x", "content": "x"})),
        ("read_file", json!({"path": "inside.txt"})),
    ]);
    // The first task makes what leads out.
    let text = format!(
        "{}\n[sandbox]\nwritable_roots = ['..']\n[tasks.prepare]\nrun = 'mkdir ../away && echo secret > ../away/secret.txt && \
         echo secret > ../secret.txt && ln -s ../away door && ln -s ../secret.txt window'\n",
        FREE.replace("agent = \"worker\"", "agent = \"worker\"\ndepends_on = [\"prepare\"]")
    );
    let ended = TestRun::new(&text).script(&script).file("inside.txt", "fine\n").run().await;
    assert_eq!(ended.output("job"), "done");
    let mut results = ended.results("job");
    let inside = results.pop().expect("the last result");
    assert_eq!(inside.text(), "fine\n");
    for result in &results {
        assert!(result.is_error, "{result:?}");
        assert!(!result.text().contains("secret\n"), "{result:?}");
    }
    assert_eq!(ended.read("../secret.txt"), "secret\n");
    assert!(!ended.exists("../written.txt") && !ended.exists("../away/written.txt"));
    assert!(!ended.exists(".transcripts/x"));
}

#[tokio::test]
async fn an_input_that_is_a_path_elsewhere_may_be_read_and_not_written() {
    let away = tempfile::tempdir().expect("a folder");
    let folder = away.path().canonicalize().expect("a path");
    std::fs::write(folder.join("there.txt"), "far\n").expect("a file");
    symlink("/etc", folder.join("etc")).expect("a link");
    let path = |name: &str| folder.join(name).display().to_string();
    let script = calling(&[
        ("read_file", json!({"path": path("there.txt")})),
        ("read_file", json!({"path": path("etc/passwd")})),
        ("write_file", json!({"path": path("there.txt"), "content": "x"})),
    ]);
    let text = format!("[inputs]\nplace = {{ type = \"path\" }}\n{FREE}");
    let ended = TestRun::new(&text)
        .script(&script)
        .input("place", &folder.display().to_string())
        .run()
        .await;
    let results = ended.results("job");
    assert_eq!((results[0].is_error, results[0].text()), (false, "far\n".to_owned()));
    assert!(results[1].is_error && results[2].is_error, "{results:?}");
    assert_eq!(std::fs::read_to_string(path("there.txt")).expect("a file"), "far\n");
}

#[tokio::test]
async fn skills_are_told_of_and_loaded_when_asked_for() {
    let text = r#"
        [agents.worker]
        skills = ["review", "cook"]
        [tasks.job]
        agent = "worker"
        prompt = "go"
        "#;
    let skill = |name: &str, what: &str, body: &str| {
        format!("---\nname: {name}\ndescription: {what}\n---\n{body}\n")
    };
    let calls = [
        ("load_skill", json!({"name": "cook"})),
        ("load_skill", json!({"name": "hidden"})),
        ("load_skill", json!({"name": "../review"})),
    ];
    let ended = TestRun::new(text)
        .script(&calling(&calls))
        .file(".agents/skills/review/SKILL.md", &skill("review", "Reads code", "Read twice."))
        .file(".agents/skills/cook/SKILL.md", &skill("cook", "Cooks soup", "Boil it."))
        .file(".agents/skills/hidden/SKILL.md", &skill("hidden", "Is not listed", "Psst."))
        .on(Host::Loopback(Wire::Anthropic))
        .run()
        .await;
    let first = &ended.requests[0];
    assert_eq!(first.tools(), ["load_skill", "recall"]);
    let system = first.system();
    assert!(system.starts_with("You are worker."), "{system}");
    assert!(system.contains("review: Reads code") && system.contains("cook: Cooks soup"));
    assert!(!system.contains("Is not listed") && !system.contains("Boil it"), "{system}");
    let results = ended.results("job");
    assert!(!results[0].is_error && results[0].text().contains("Boil it."), "{results:?}");
    for result in &results[1..] {
        assert!(result.is_error && !result.text().contains("Psst"), "{result:?}");
    }
}

#[tokio::test]
async fn a_todo_list_is_counted_and_checked() {
    let todo = |content: &str, status: &str| json!({"content": content, "status": status});
    let calls = [
        (
            "todo_write",
            json!({"todos": [todo("a", "completed"), todo("b", "in_progress"), todo("c", "pending")]}),
        ),
        ("todo_write", json!({"todos": [todo("a", "finished")]})),
    ];
    let ended = TestRun::new(FREE).script(&calling(&calls)).run().await;
    let results = ended.results("job");
    assert_eq!(results[0].text(), "1 pending, 1 in progress, 1 completed");
    assert!(results[1].is_error && results[1].text().contains("finished"), "{results:?}");
}

#[tokio::test]
async fn an_agent_can_have_its_conversation_compacted() {
    let script = r#"
        [[rules]]
        agent = "compactor"
        when = "'Preserve details about: the numbers' in (messages | last).text"
        say = "The summary: 42."
        [[rules]]
        turn = 1
        say = "{% for n in range(400) %}chatter {{ n }} {% endfor %}"
        calls = [{ tool = "glob", input = { pattern = "*" } }]
        [[rules]]
        turn = 2
        calls = [{ tool = "compact", input = { focus = "the numbers" } }]
        [[rules]]
        say = "{{ messages | length }} {{ messages[0].text }}"
        "#;
    let ended = TestRun::new(FREE).script(script).run().await;
    let said = ended.output("job");
    assert!(said.contains("The summary: 42."), "{said}");
    assert!(said.contains("[Conversation compressed. Transcript: "), "{said}");
    assert!(!said.contains("chatter"), "{said}");
    let asked: Vec<_> = ended
        .of_agent("job")
        .filter_map(|record| match &record.event {
            Event::CompactionRequested(asked) => Some((asked.trigger, asked.focus.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [(CompactionTrigger::Manual, Some("the numbers".to_owned()))]);
    let finished = ended.of_agent("job").find_map(|record| match &record.event {
        Event::CompactionFinished(finished) => Some(finished.clone()),
        _ => None,
    });
    let finished = finished.expect("a summary");
    assert!(finished.after_tokens < finished.before_tokens);
    // The transcript keeps every word, and the summary's tokens are the agent's.
    let transcript = ended.transcript("job");
    assert!(transcript[1].text().contains("chatter 399"));
    assert!(ended.state.agents()[&agent("job")].own.usage.total() > finished.usage.total());
    assert!(finished.usage.total() > 0);
}

#[tokio::test]
async fn a_command_ends_at_the_limit_that_its_call_sets() {
    let calls = [("bash", json!({"command": "echo begun; sleep 300", "timeout_s": 0.1}))];
    let ended = TestRun::new(&format!("[limits]\ngrace_period = \"1s\"\n{FREE}"))
        .script(&calling(&calls))
        .run()
        .await;
    let result = ended.result("job");
    assert!(result.is_error, "{result:?}");
    assert!(result.text().contains("Timeout (0.1s)") && result.text().contains("begun"));
    assert_eq!(ended.output("job"), "done");
}

/// A command whose child notes itself in `pid` and sleeps.
const SLEEPER: &str = "sh -c 'echo $$ > pid; exec sleep 300' & wait";

#[tokio::test]
async fn a_cancelled_task_leaves_no_process_and_the_run_goes_on() {
    let text = format!(
        "[limits]\ngrace_period = \"1s\"\n{FREE}\n[tasks.after]\ndepends_on = [\"job\"]\n\
         run = \"true\"\n[tasks.other]\nrun = \"while [ ! -e go ]; do sleep 0.01; done\"\n"
    );
    let script = calling(&[("bash", json!({"command": SLEEPER}))]);
    let mut live = TestRun::new(&text).script(&script).keep_going().start().await;
    let pid = live.until_process("pid").await;
    assert!(is_alive(&pid));
    assert!(!live.cancel(CancelTarget::Task(name("nothing"))).await, "there is no such task");
    assert!(live.cancel(CancelTarget::Task(name("job"))).await);
    live.until_task("job", TaskState::Cancelled).await;
    assert!(!is_alive(&pid), "process {pid} is still there");
    live.write("go", "");
    let ended = live.end().await;
    assert_eq!(ended.task("job").state, TaskState::Cancelled);
    assert_eq!(ended.task("job").reason.as_deref(), Some("not needed"));
    assert_eq!(ended.because("after"), Some("job"));
    assert_eq!(ended.task("other").state, TaskState::Completed);
    assert_eq!(ended.status(), RunStatus::Partial);
    let outcome = &ended.state.agents()[&agent("job")].outcome;
    assert!(matches!(outcome, Some(Outcome::Cancelled { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_cancelled_run_ends_with_all_its_processes() {
    let text = format!(
        "[limits]\ngrace_period = \"1s\"\nmax_concurrency = 1\n[tasks.job]\n\
         run = \"{SLEEPER}\"\n[tasks.queued]\nrun = \"true\"\n"
    );
    let live = TestRun::new(&text).start().await;
    let (pid, remote) = (live.until_process("pid").await, live.remote());
    assert!(live.cancel(CancelTarget::Run).await);
    let ended = live.end().await;
    assert!(!is_alive(&pid), "process {pid} is still there");
    assert_eq!(ended.status(), RunStatus::Cancelled);
    assert_eq!(ended.states(), ["job cancelled", "queued cancelled"]);
    assert!(!remote.cancel(CancelTarget::Run, "too late").await, "the run is over");
}

#[tokio::test]
async fn a_tool_hears_of_a_cancel_and_gets_its_grace() {
    let heard = Arc::new(Notify::new());
    let tell = heard.clone();
    let begun = Arc::new(Notify::new());
    let begin = begun.clone();
    let change = writing("change", move |_, context: ToolContext| {
        let (heard, begun) = (tell.clone(), begin.clone());
        async move {
            begun.notify_one();
            context.cancel.cancelled().await;
            heard.notify_one();
            Err(ToolError::Cancelled)
        }
    });
    let script = calling(&[("change", json!({})), ("look", json!({}))]);
    let look = reading("look", |_, _| async { Ok(ToolOutput::ok("")) });
    let live = TestRun::new(OWN).script(&script).tool(change).tool(look).start().await;
    soon("the call begins", begun.notified()).await;
    assert!(live.cancel(CancelTarget::Agent(agent("job"))).await);
    soon("the tool hears of it", heard.notified()).await;
    let ended = live.end().await;
    assert_eq!(ended.task("job").state, TaskState::Cancelled);
    // The conversation stays whole: the call that had not begun is answered too.
    let results = ended.results("job");
    assert_eq!(results.len(), 2);
    assert!(results.iter().all(|result| result.is_error));
    assert!(results[1].text().contains("told to end"), "{}", results[1].text());
}

/// A tool that never ends and ignores its cancellation.
struct Endless(ToolSpec);

impl Tool for Endless {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }

    fn call(&self, _: Json, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_tool_that_never_ends_is_cut_at_its_limit_and_the_run_goes_on() {
    let look = reading("look", |_, _| async { Ok(ToolOutput::ok("")) });
    let spec = ToolSpec { name: name("change"), ..look.spec().clone() };
    let script = calling(&[("change", json!({}))]);
    let run = TestRun::new(OWN).script(&script).tool(look).tool(Arc::new(Endless(spec)));
    let ended = run.run().await;
    assert_eq!(ended.task("job").state, TaskState::Completed);
    assert_eq!(ended.result("job").text(), "Error: timed out after 0.02 s");
}
