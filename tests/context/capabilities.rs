//! Abilities of the pipeline beside its layers: stubs for repeated reads, hooks, and attachments
//! after a compaction.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use callsheet::actor::mail::AgentMsg;
use callsheet::context::Edit;
use callsheet::event::Event;
use callsheet::failure::FailureKind;
use callsheet::message::{Json, Message, ToolResult};
use callsheet::model::{ErrorClass, Request};
use callsheet::run::CancelTarget;
use callsheet::turn::ResultSource;
use serde_json::{Value, json};

use crate::support::faults::{
    Act, Ended, Fake, FakeTool, Rig, SOON, Setup, follows_tools, gate, id, open, transcript,
    unsendable, until, until_recorded,
};

fn graph(compaction: &str) -> String {
    let preset = if compaction.contains("preset") { "" } else { "preset = \"three-layer\"" };
    format!(
        r#"
[compaction]
{preset}
{compaction}
[agents.worker]
model = "main"
instructions = "Work."
tools = ["read_file", "write_file", "edit_file"]
[tasks.work]
agent = "worker"
prompt = "Work."
"#
    )
}

fn results(messages: &[Message]) -> Vec<String> {
    let texts = messages.iter().flat_map(|m| m.tool_results().map(ToolResult::text));
    texts.collect()
}

/// Runs these calls, one in each turn, and returns the results that the model read.
async fn read_of(
    setup: Setup,
    compaction: &str,
    calls: &[(&'static str, Value)],
) -> (Ended, Vec<String>) {
    let calls = calls.to_vec();
    let main = Fake::new(move |request| match calls.get(request.turn as usize - 1) {
        Some((tool, input)) => Act::tool(tool, input.clone()),
        None => Act::say("done"),
    });
    let ended = setup.model("main", &main).run(&graph(compaction)).await;
    assert_eq!(ended.output("work"), "done");
    for messages in main.sent_by("work") {
        assert_eq!(unsendable(&messages), None);
    }
    // Each as the request right after it showed it.
    let newest = main.sent_by("work").into_iter().filter_map(|sent| results(&sent).pop());
    let newest = newest.collect();
    (ended, newest)
}

fn content() -> String {
    (0..100).map(|n| format!("line {n}\n")).collect()
}

fn setup() -> Setup {
    let setup = Setup::new();
    std::fs::write(setup.root.path().join("a.txt"), content()).expect("writes");
    setup
}

fn is_stub(text: &str) -> bool {
    text.starts_with("File unchanged since it was last read")
}

#[tokio::test]
async fn a_repeated_read_gives_a_stub_until_something_changes() {
    let read = || ("read_file", json!({"path": "a.txt"}));
    let edit =
        |from, to| ("edit_file", json!({"path": "a.txt", "old_string": from, "new_string": to}));
    let calls = [
        read(),
        ("read_file", json!({"path": "./a.txt", "offset": 1})),
        read(),
        edit("line 7\n", "line seven\n"),
        read(),
        read(),
        edit("line seven\n", "line 7\n"),
        read(),
        ("read_file", json!({"path": "a.txt", "offset": 50})),
    ];
    let compaction = "preset = \"off\"\nunchanged_stub = true";
    let (ended, texts) = read_of(setup(), compaction, &calls).await;
    let stubs: Vec<_> = texts.iter().map(|text| is_stub(text)).collect();
    assert_eq!(stubs, [false, true, true, false, false, true, false, false, false], "{texts:#?}");
    assert_eq!(texts[0], content());
    // The first is the second message after the prompt; both stubs name it.
    assert!(texts[1].contains("call work.1.0 in message 2") && texts[2] == texts[1]);
    assert!(texts[4].contains("line seven") && texts[5].contains("call work.5.0"));
    assert_eq!(texts[7], content(), "what was read before it was edited is not referred to");
    let unchanged = ended.records.iter().filter(|record| {
        matches!(&record.event, Event::ToolFinished(f) if f.source == ResultSource::Unchanged)
    });
    assert_eq!(unchanged.count(), 3);
    // Every byte stands in the transcript.
    let whole = results(&transcript(&ended.dir.transcript(&id("work"))));
    assert_eq!(whole, texts);
}

#[tokio::test]
async fn a_change_from_elsewhere_is_always_seen() {
    let setup = setup();
    let (root, read) = (setup.root.clone(), json!({"path": "a.txt"}));
    let main = Fake::new(move |request| {
        let path = root.path().join("a.txt");
        match request.turn {
            1 | 2 | 4 => Act::tool("read_file", read.clone()),
            3 => {
                // The same length at the same moment: no clock would tell.
                let time = path.metadata().and_then(|m| m.modified()).expect("a time");
                std::fs::write(&path, content().replace('7', "8")).expect("writes");
                let file = std::fs::File::options().write(true).open(&path).expect("opens");
                file.set_modified(time).expect("sets");
                Act::tool("read_file", read.clone())
            }
            _ => Act::say("done"),
        }
    });
    let ended = setup.model("main", &main).run(&graph("unchanged_stub = true")).await;
    assert_eq!(ended.output("work"), "done");
    let texts = results(&main.sent_by("work").pop().expect("a request"));
    assert!(is_stub(&texts[1]) && !is_stub(&texts[2]) && is_stub(&texts[3]), "{texts:#?}");
    assert!(texts[2].contains("line 88") && texts[3].contains("work.3.0"));
}

#[tokio::test]
async fn what_was_cleared_is_read_in_full_again() {
    let setup = setup();
    for other in ["b", "c", "d", "e"] {
        std::fs::write(setup.root.path().join(other), other.repeat(200)).expect("writes");
    }
    let calls: Vec<_> = ["a.txt", "b", "a.txt", "c", "a.txt", "d", "e", "d", "a.txt"]
        .map(|path| ("read_file", json!({"path": path})))
        .into();
    let compaction = "preset = \"three-layer\"\nunchanged_stub = true";
    let (_, texts) = read_of(setup, compaction, &calls).await;
    let stubs: Vec<_> = texts.iter().map(|text| is_stub(text)).collect();
    // The third read renews the first, so the fifth still finds it; the last finds it cleared.
    let expected = [false, false, true, false, true, false, false, true, false];
    assert_eq!(stubs, expected, "{texts:#?}");
}

#[tokio::test]
async fn a_crash_does_not_forget_what_was_read() {
    let crashed = std::sync::atomic::AtomicBool::new(false);
    let main = Fake::new(move |request| match request.turn {
        1 => Act::tool("read_file", json!({"path": "a.txt"})),
        _ if !crashed.swap(true, std::sync::atomic::Ordering::SeqCst) => Act::Panic,
        2 | 3 if follows_tools(request) && results(&request.messages()).len() < 2 => {
            Act::tool("read_file", json!({"path": "a.txt"}))
        }
        _ => Act::say("done"),
    });
    let ended = setup().model("main", &main).run(&graph("unchanged_stub = true")).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(ended.count("work", "agent.restarted"), 1);
    let texts = results(&main.sent_by("work").pop().expect("a request"));
    assert!(texts.len() == 2 && is_stub(&texts[1]), "{texts:#?}");
}

#[tokio::test]
async fn without_the_capability_every_read_is_whole() {
    let calls = [("read_file", json!({"path": "a.txt"})), ("read_file", json!({"path": "a.txt"}))];
    let (_, texts) = read_of(setup(), "preset = \"three-layer\"", &calls).await;
    assert_eq!(texts, [content(), content()]);
}

/// A run of five long results, over the threshold twice, whose hooks are `sh` scripts of the root.
async fn run_with_hooks(scripts: &[(&str, &str)], main: &Arc<Fake>) -> Ended {
    let setup = Setup::new().model("main", main).tool(&FakeTool::dump());
    let mut hooks = String::from("[compaction.hooks]\n");
    for (hook, lines) in scripts {
        std::fs::write(setup.root.path().join(hook), lines).expect("writes");
        hooks.push_str(&format!("{hook} = [\"/bin/sh\", \"{hook}\"]\n"));
    }
    let text = graph(&format!("threshold = 2_000\n{hooks}"));
    setup.run(&text.replace("\"edit_file\"", "\"dump\"")).await
}

fn busy() -> Arc<Fake> {
    Fake::new(|request| match request.turn {
        _ if is_summary(request) => Act::say("so far so good"),
        1..=5 => Act::tool("dump", json!({"size": 4_000})),
        _ => Act::say("done"),
    })
}

fn is_summary(request: &Request) -> bool {
    request.agent.as_str() == "compactor"
}

fn of_kind<'a>(ended: &'a Ended, kind: &'a str) -> impl Iterator<Item = &'a Event> {
    ended.records.iter().map(|record| &record.event).filter(move |event| event.kind() == kind)
}

/// Reads the notes of a script in a file, one JSON document a line.
fn noted(ended: &Ended, file: &str) -> Vec<Value> {
    let root = ended.dir.path().parent().and_then(|runs| runs.parent()).expect("the root");
    let text = std::fs::read_to_string(root.join(file)).expect("noted");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn hooks_are_told_of_a_compaction_and_may_add_to_it() {
    let main = busy();
    let more = r#"echo '{"hookSpecificOutput":{"additionalContext":"It is Tuesday."}}'"#;
    let ended = run_with_hooks(
        &[
            ("pre_compact", "cat >> pre; echo >> pre; echo 'Keep all names.'"),
            ("post_compact", "cat >> post; echo >> post; exit 1"),
            ("after_compact_context", &format!("cat >> after; echo >> after; {more}")),
        ],
        &main,
    )
    .await;
    assert_eq!(ended.output("work"), "done");
    let count = of_kind(&ended, "compaction.finished").count();
    assert!(count >= 1);
    let (pre, after, post) = (noted(&ended, "pre"), noted(&ended, "after"), noted(&ended, "post"));
    assert_eq!((pre.len(), after.len(), post.len()), (count, count, count));
    let run = ended.dir.path().file_name().expect("a name").to_string_lossy().into_owned();
    for (noted, event) in [(&pre, "PreCompact"), (&after, "SessionStart"), (&post, "PostCompact")] {
        assert_eq!(noted[0]["hook_event_name"], event);
        assert_eq!(noted[0]["session_id"], run.as_str());
        assert_eq!(
            (&noted[0]["agent_id"], &noted[0]["agent_type"]),
            (&json!("work"), &json!("worker"))
        );
        let transcript = ended.dir.transcript(&id("work"));
        assert_eq!(noted[0]["transcript_path"], json!(transcript));
        assert!(Path::new(noted[0]["cwd"].as_str().expect("a path")).is_dir());
    }
    assert_eq!((&pre[0]["trigger"], &pre[0]["custom_instructions"]), (&json!("auto"), &json!("")));
    assert_eq!(post[0]["compact_summary"], "so far so good");
    assert_eq!(after[0]["source"], "compact");
    let sent = main.sent_by("work");
    let summaries = sent
        .iter()
        .filter(|messages| messages.len() == 1 && messages[0].text().starts_with("Summ"));
    for messages in summaries {
        assert!(messages[0].text().contains("\n\nAdditional instructions:\nKeep all names.\n\n"));
    }
    let last = sent.last().expect("a request")[0].text();
    assert!(
        last.contains("so far so good\n[Attached again") && last.contains("It is Tuesday."),
        "{last}"
    );
}

#[tokio::test]
async fn a_hook_that_blocks_skips_the_compaction_and_work_goes_on() {
    for script in
        ["echo 'too early' >&2; exit 2", r#"echo '{"decision":"block","reason":"too early"}'"#]
    {
        let main = busy();
        let ended = run_with_hooks(&[("pre_compact", script)], &main).await;
        assert_eq!(ended.output("work"), "done");
        assert_eq!(of_kind(&ended, "compaction.finished").count(), 0);
        let failed: Vec<_> = of_kind(&ended, "compaction.failed").collect();
        assert!(!failed.is_empty());
        for event in failed {
            let Event::CompactionFailed(failed) = event else { panic!("{event:?}") };
            assert_eq!(failed.reason, "blocked by the pre_compact hook: too early");
            assert!(failed.blocked && failed.spent.is_none());
        }
        assert!(
            main.sent_by("work").iter().all(|m| m[0].text() == "Work."),
            "no summary is asked for"
        );
    }
}

#[tokio::test]
async fn a_hook_that_fails_changes_nothing() {
    for script in ["exit 1", "kill -9 $$", "exec ./nothing"] {
        let main = busy();
        let ended = run_with_hooks(&[("pre_compact", script)], &main).await;
        assert_eq!(ended.output("work"), "done");
        assert!(of_kind(&ended, "compaction.finished").count() >= 1, "{script}");
    }
}

#[tokio::test]
async fn a_blocked_reactive_compaction_surfaces_the_refusal() {
    let main = Fake::new(|request| match request.turn {
        1 | 2 => Act::tool("dump", json!({"size": 3_000})),
        _ => Act::Fail(ErrorClass::ContextTokens { have: None, max: None }),
    });
    let ended = run_with_hooks(&[("pre_compact", "exit 2")], &main).await;
    let (state, _, kind) = ended.task("work");
    assert_eq!((state.as_str(), kind), ("failed", Some(FailureKind::ContextOverflow)));
    assert_eq!(main.count(), 3, "the request is not sent again");
}

#[tokio::test]
async fn an_agent_that_ends_takes_its_hook_along() {
    let setup = Setup::new().model("main", &busy()).tool(&FakeTool::dump());
    std::fs::write(setup.root.path().join("hang"), "echo $$ > pid.new; mv pid.new pid; sleep 300")
        .expect("writes");
    let text =
        graph("threshold = 2_000\n[compaction.hooks]\npre_compact = [\"/bin/sh\", \"hang\"]");
    let text = text.replace("\"edit_file\"", "\"dump\"");
    let run = setup.start(&text).await;
    let pid = setup.root.path().join("pid");
    until(|| pid.exists()).await;
    let number = std::fs::read_to_string(pid).expect("noted");
    let number = crate::support::number_outside(setup.root.path(), number.trim());
    let number = number.expect("the hook is at work");
    let (begun, stopper) = (Instant::now(), run.remote());
    assert!(stopper.cancel(CancelTarget::Run, "enough").await);
    let ended = Ended::of(run).await;
    assert!(begun.elapsed() < SOON && ended.task("work").0 == "cancelled");
    assert!(!crate::support::test_run::is_alive(&number));
}

/// Returns the attachments of a message after its summary.
fn attached(messages: &[Message]) -> Option<String> {
    let text = messages[0].text();
    text.find("[Attached again").map(|at| text[at..].to_owned())
}

#[tokio::test]
async fn files_and_skills_in_use_come_back_as_they_are_now() {
    let setup = Setup::new();
    let file = |name: &str, text: &str| {
        let path = setup.root.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("makes");
        std::fs::write(path, text).expect("writes");
    };
    file("old.txt", "before\n");
    file("gone.txt", "gone\n");
    file("large.txt", &"long line of text\n".repeat(2_000));
    file("secret.env", "x=1\n");
    file("rules.toml", "[permissions]\ndeny = [\"read_file(*.env)\"]");
    file(".agents/skills/careful/SKILL.md", "---\nname: careful\ndescription: d\n---\nBe careful.");
    let root = setup.root.clone();
    let main = Fake::new(move |request| match request.turn {
        _ if is_summary(request) => Act::say("so far so good"),
        1 => Act::Call(vec![
            ("load_skill", json!({"name": "careful"})),
            ("read_file", json!({"path": "old.txt"})),
            ("read_file", json!({"path": "gone.txt"})),
            ("read_file", json!({"path": "large.txt", "limit": 5})),
            ("write_file", json!({"path": "new.txt", "content": "made here\n"})),
            ("write_file", json!({"path": "secret.env", "content": "x=2\n"})),
        ]),
        2 => Act::tool("dump", json!({"size": 40_000})),
        3 => {
            // Neither does the agent know of this.
            std::fs::write(root.path().join("old.txt"), "after\n").expect("writes");
            std::fs::remove_file(root.path().join("gone.txt")).expect("removes");
            Act::tool("compact", json!({}))
        }
        4 => Act::tool("read_file", json!({"path": "new.txt"})),
        _ => Act::say("done"),
    });
    let text = graph("threshold = 90_000\n[compaction.recovery]").replace(
        "\"edit_file\"]",
        "\"dump\", \"load_skill\", \"compact\"]\nskills = [\"careful\"]",
    );
    let text = format!("include = [\"rules.toml\"]\n{text}");
    let ended = setup.model("main", &main).tool(&FakeTool::dump()).run(&text).await;
    assert_eq!(ended.output("work"), "done");
    let sent = main.sent_by("work");
    let back = attached(&sent[4]).expect("attached");
    for expected in [
        "\"new.txt\" as it is now",
        "\nmade here\n",
        "\"old.txt\" as it is now",
        "\nafter\n",
        "The file \"gone.txt\" was in use and cannot be read now",
        "The file \"large.txt\" was in use; read it again when it is needed.",
        "The file \"secret.env\" was in use and cannot be read now: \"it may not be read",
        "The skill \"careful\", which was loaded",
        "\nBe careful.\n",
    ] {
        assert!(back.contains(expected), "{expected}\n{back}");
    }
    assert!(!back.contains("before") && !back.contains("x=2"));
    let (new, old) = (back.find("new.txt"), back.find("old.txt"));
    assert!(new < old, "the newest first");
    assert!(sent.iter().all(|messages| unsendable(messages).is_none()));
    assert_eq!(attached(sent.last().expect("a request")).as_deref(), Some(back.as_str()));
    let finished = of_kind(&ended, "compaction.finished").next().expect("one");
    let Event::CompactionFinished(finished) = finished else { panic!("{finished:?}") };
    assert!(finished.after_tokens <= finished.before_tokens / 2);
}

#[tokio::test]
async fn what_comes_back_cannot_set_off_the_next_compaction() {
    let setup = Setup::new();
    for n in 0..5 {
        let text = format!("{n} is the number\n").repeat(150);
        std::fs::write(setup.root.path().join(format!("f{n}")), text).expect("writes");
    }
    let main = Fake::new(|request| match request.turn {
        _ if is_summary(request) => Act::say("so far so good"),
        turn @ 1..=20 => Act::tool("read_file", json!({"path": format!("f{}", turn % 5)})),
        _ => Act::say("done"),
    });
    // Micro-clearing would hold this down without any summary.
    let text = graph("threshold = 3_000\nkeep_recent = 100\n[compaction.recovery]");
    // It reads the same files in turn, as an agent does that goes in circles.
    let text = format!("{text}[loops]\nenabled = false\n");
    let ended = setup.model("main", &main).run(&text).await;
    assert_eq!(ended.output("work"), "done");
    let mut count = 0;
    for event in of_kind(&ended, "compaction.finished") {
        let Event::CompactionFinished(finished) = event else { panic!("{event:?}") };
        assert!(finished.after_tokens <= 1_500, "{finished:?}");
        count += 1;
    }
    assert!((2..=10).contains(&count), "{count} summaries in 20 turns");
    assert!(
        main.sent_by("work")
            .iter()
            .any(|m| attached(m).is_some_and(|a| a.contains("is the number")))
    );
}

#[tokio::test]
async fn a_rebuilt_view_has_what_came_back_without_the_disk() {
    let setup = Setup::new();
    let path = setup.root.path().join("a.txt");
    std::fs::write(&path, content()).expect("writes");
    let crashed = std::sync::atomic::AtomicBool::new(false);
    let main = Fake::new(move |request| match request.turn {
        _ if is_summary(request) => Act::say("so far so good"),
        1 => Act::tool("read_file", json!({"path": "a.txt"})),
        2 => Act::tool("dump", json!({"size": 30_000})),
        3 => Act::tool("compact", json!({})),
        _ if !crashed.swap(true, std::sync::atomic::Ordering::SeqCst) => {
            std::fs::remove_file(&path).expect("removes");
            Act::Panic
        }
        _ => Act::say("done"),
    });
    let text = graph("threshold = 90_000\n[compaction.recovery]");
    let text = text.replace("\"edit_file\"", "\"dump\", \"compact\"");
    let ended = setup.model("main", &main).tool(&FakeTool::dump()).run(&text).await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(ended.count("work", "agent.restarted"), 1);
    let sent = main.sent_by("work");
    let [before, after] = &sent[sent.len() - 2..] else { panic!("two requests") };
    assert!(attached(before).is_some_and(|text| text.contains(&content())));
    assert_eq!(before, after);
}

/// Rounds of the test below: the number of times that a parent is asked to compact.
const ROUNDS: u32 = 50;

/// A parent that delegates a job in each round and is asked to compact while the child works. It
/// crashes once while its children work.
#[tokio::test]
async fn fifty_compactions_with_children_at_work_lose_none() {
    let todos = json!({"todos": [{"content": "all \"fifty\"\nrounds", "status": "in_progress"}]});
    let gates: Vec<_> = (0..=ROUNDS).map(|_| gate()).collect();
    let (list, doors) = (todos.clone(), gates.clone());
    let main = Fake::new(move |request| {
        if request.agent_id.as_str() != "work" {
            // A child's job is its round; the compactor's prompts are the parent's.
            let job = request.messages()[0].text();
            let round: usize = job.trim_start_matches("round ").parse().expect("a number");
            return Act::say(format!("result {round}")).after(&doors[round]);
        }
        match request.turn {
            _ if is_summary(request) => Act::say("short"),
            1 => Act::Call(vec![("todo_write", list.clone()), ("dump", json!({"size": 2_000}))]),
            turn if turn <= ROUNDS + 1 => {
                let prompt = format!("round {}", turn - 1);
                Act::tool("delegate", json!({"agent": "helper", "prompt": prompt}))
            }
            _ => Act::say("done"),
        }
    });
    let setup = Setup::new().model("main", &main).tool(&FakeTool::dump());
    let text = r#"
[compaction.recovery]
[limits]
max_descendants = 100
[agents.helper]
description = "Helps"
model = "main"
instructions = "Help."
[agents.worker]
model = "main"
instructions = "Work."
tools = ["todo_write", "dump"]
sub_agents = ["helper"]
max_turns = 100
[tasks.work]
agent = "worker"
prompt = "Work."
"#;
    let rig = Rig::start(&setup, text).await;
    for round in 1..=ROUNDS {
        let child = format!("work/helper-{round}");
        until(|| main.sent_by(&child).len() == 1).await;
        if round == 3 {
            rig.crash("work");
            until_recorded(&rig.dir, |record| record.event.kind() == "agent.restarted").await;
            until(|| rig.services.addresses.agents.contains_key(&id("work"))).await;
        }
        rig.mail("work", AgentMsg::Compact { focus: None });
        open(&gates[round as usize]);
    }
    let ended = rig.ended().await;
    assert_eq!(ended.output("work"), "done");
    assert_eq!(ended.count("work", "agent.restarted"), 1);
    // As many as were asked for, each its own.
    let spawned = ended.agents();
    let distinct: BTreeSet<_> = spawned.iter().collect();
    assert_eq!((spawned.len(), distinct.len()), (ROUNDS as usize + 1, ROUNDS as usize + 1));
    let mut known = String::new();
    let mut count = 0;
    for event in of_kind(&ended, "compaction.finished") {
        let Event::CompactionFinished(finished) = event else { panic!("{event:?}") };
        let Edit::Replace { with, .. } = &finished.edit else { panic!("{finished:?}") };
        let messages: Vec<Message> = with.iter().map(|m| m.decode().expect("a message")).collect();
        let back = attached(&messages).expect("the state");
        let (_, state) = back.split_once("\n\n").expect("a heading");
        count += 1;
        assert!(state.starts_with(&known), "what stood there before changed:\n{known}\n\n{state}");
        let todo_line = format!("Your todo list: {}\n", Json::encode(&todos).as_str());
        assert!(state.starts_with(&todo_line), "{state}");
        let children: Vec<Value> =
            state.lines().skip(2).map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let expected: Vec<_> = (1..=count).map(|n| format!("work/helper-{n}")).collect();
        assert_eq!(
            children.iter().map(|c| c["agent"].as_str().expect("an id")).collect::<Vec<_>>(),
            expected
        );
        assert!(children.iter().all(|child| child["status"] == "completed"));
        known = state.to_owned();
    }
    assert_eq!(count, ROUNDS, "{:#?}", ended.kinds());
    // Each is told in two lines, whatever it covers.
    let told = ended.records.iter().filter(|r| r.event.kind().starts_with("compaction."));
    let edits = of_kind(&ended, "context.edited").count();
    assert_eq!((told.count(), edits), (2 * ROUNDS as usize, 0));
    let last = main.sent_by("work").pop().expect("a request");
    assert!(attached(&last).is_some_and(|back| back.ends_with(&format!("{known}\nWork."))));
    assert_eq!(unsendable(&last), None);
}

#[tokio::test]
async fn todos_and_children_stand_beside_the_newest_record() {
    let todos = json!({"todos": [{"content": "all of \"it\"", "status": "in_progress"}]});
    let list = todos.clone();
    let main = Fake::new(move |request| match (request.agent_id.as_str(), request.turn) {
        ("work/helper-1", _) => Act::say("helped"),
        (_, 1) => Act::tool("todo_write", list.clone()),
        (_, 2) => Act::tool("delegate", json!({"agent": "helper", "prompt": "Help with it."})),
        (_, 3..=60) => Act::tool("dump", json!({"size": 1_500})),
        _ => Act::say("done"),
    });
    let setup = Setup::new().model("main", &main).tool(&FakeTool::dump());
    let text = r#"
[models.main]
context_window = 12_000
max_output_tokens = 1_000
[agents.helper]
description = "Helps"
model = "main"
instructions = "Help."
[agents.worker]
model = "main"
instructions = "Work."
tools = ["todo_write", "dump"]
sub_agents = ["helper"]
max_turns = 100
[tasks.work]
agent = "worker"
prompt = "Work."
"#;
    let ended = setup.run(text).await;
    assert_eq!(ended.output("work"), "done");
    let todo_line = format!("Your todo list: {}", Json::encode(&todos).as_str());
    let mut with_records = 0;
    for messages in main.sent_by("work") {
        let texts: Vec<_> = messages.iter().map(Message::text).collect();
        let records = texts.iter().filter(|text| text.starts_with("<record ")).count();
        let states: Vec<_> = texts.iter().filter(|text| text.contains(&todo_line)).collect();
        assert_eq!(states.len(), records.min(1), "{texts:#?}");
        if let [state] = states[..] {
            with_records += 1;
            let child = state.lines().last().expect("a line");
            let child: Value = serde_json::from_str(child).expect("a child");
            assert_eq!(child["agent"], "work/helper-1");
            assert_eq!(child["job"], "Help with it.");
        }
        assert_eq!(unsendable(&messages), None);
    }
    assert!(with_records > 20, "{with_records}");
}
