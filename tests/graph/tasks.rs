//! The task graph as it runs: order, inputs, outputs, time limits, retries, and what happens to
//! the tasks that follow one which fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::message::{Json, Role};
use callsheet::model::{BoxFuture, DeltaSink, Model, ModelError, Reply, Request};
use callsheet::plan::TaskState;
use callsheet::run::CancelTarget;
use callsheet::tool::ToolOutput;
use tokio::sync::Barrier;

use crate::support::test_run::{Host, TestRun, is_alive, name, writing};

/// An agent that answers with its prompt.
const ECHO: &str = "[[rules]]\nsay = \"{{ prompt }}\"";

#[tokio::test]
async fn a_task_starts_when_its_dependencies_are_done_and_reads_their_outputs() {
    let ended = TestRun::new(
        r#"
        [agents.echo]
        [tasks.last]
        agent = "echo"
        depends_on = ["left", "right"]
        prompt = "{{ tasks.left.output }} and {{ tasks.right.output }}"
        [tasks.left]
        agent = "echo"
        depends_on = ["first"]
        prompt = "left of {{ tasks.first.output }}"
        [tasks.right]
        agent = "echo"
        depends_on = ["first"]
        prompt = "right of {{ tasks.first.output }}"
        [tasks.first]
        run = "printf root"
        "#,
    )
    .script(ECHO)
    .run()
    .await;
    assert_eq!(ended.status(), RunStatus::Completed);
    assert_eq!(ended.output("last"), "left of root and right of root");
    assert_eq!(ended.prompt("last"), "left of root and right of root");
    for (before, after) in
        [("first", "left"), ("first", "right"), ("left", "last"), ("right", "last")]
    {
        assert!(ended.ended(before) < ended.started(after), "{before} before {after}");
    }
    let output = ended.completed.tasks["last"].output.as_deref();
    assert_eq!(output, Some("left of root and right of root"));
}

#[tokio::test]
async fn a_task_does_not_wait_for_what_it_does_not_need() {
    // `slow` ends only once `after_fast` has run: with a barrier between the levels it never would.
    let ended = TestRun::new(
        r#"
        [tasks.slow]
        run = "while [ ! -e go ]; do sleep 0.01; done"
        timeout = "20s"
        [tasks.fast]
        run = "true"
        [tasks.after_fast]
        depends_on = ["fast"]
        run = "touch go"
        "#,
    )
    .run()
    .await;
    assert_eq!(ended.status(), RunStatus::Completed);
    assert!(ended.started("after_fast") < ended.ended("slow"));
}

#[tokio::test]
async fn no_more_tasks_are_at_work_than_max_concurrency() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // Two have to meet, so that fewer than two at work would never end.
    let meet = Arc::new(Barrier::new(2));
    let seen = most.clone();
    let work = writing("work", move |_, _| {
        let (now, most, meet) = (now.clone(), most.clone(), meet.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            meet.wait().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(ToolOutput::ok("worked"))
        }
    });
    let mut text = r#"
        [limits]
        max_concurrency = 2
        [permissions]
        default = "allow"
        [agents.worker]
        tools = ["work"]
        "#
    .to_owned();
    for number in 0..6 {
        text.push_str(&format!("[tasks.t{number}]\nagent = \"worker\"\nprompt = \"go\"\n"));
    }
    let script = r#"
        [[rules]]
        turn = 1
        calls = [{ tool = "work" }]
        [[rules]]
        say = "done"
        "#;
    let ended = TestRun::new(&text).script(script).tool(work).run().await;
    assert_eq!(ended.status(), RunStatus::Completed);
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    assert_eq!(ended.most_at_work(|_| true), 2);
}

#[tokio::test]
async fn an_exclusive_task_runs_beside_none_that_writes_the_same_files() {
    // `mkdir` fails while another one is at work, and none gets further without `docs`.
    let alone = r#"run = "mkdir held && until [ -e docs ]; do sleep 0.01; done && sleep 0.05 && rmdir held"
        timeout = "20s""#;
    let text = format!(
        r#"
        [limits]
        max_concurrency = 8
        [tasks.api]
        {alone}
        paths = ["src/api/**"]
        exclusive = true
        [tasks.all]
        {alone}
        paths = ["src"]
        [tasks.parts]
        foreach = "range(3)"
        {alone}
        paths = ["src/api/**"]
        exclusive = true
        [tasks.docs]
        run = "until [ -e held ]; do sleep 0.01; done && touch docs"
        timeout = "20s"
        paths = ["docs"]
        exclusive = true
        "#
    );
    let ended = TestRun::new(&text).run().await;
    assert_eq!(ended.status(), RunStatus::Completed, "{:?}", ended.completed.tasks);
    assert_eq!(ended.most_at_work(|agent| agent.to_string() != "docs"), 1);
}

#[tokio::test]
async fn inputs_keep_their_types_in_templates() {
    let ended = TestRun::new(
        r#"
        [inputs]
        count = { type = "integer" }
        share = { type = "number" }
        loud = { type = "boolean" }
        names = { type = "array", default = ["a", "b"] }
        who = { type = "object" }
        [agents.echo]
        [tasks.talk]
        agent = "echo"
        prompt = """
{{ inputs.count + 1 }} {{ inputs.share * 2 }} {% if not inputs.loud %}quiet{% endif %} \
{{ inputs.names | join("-") }} {{ inputs.who.first }}"""
        "#,
    )
    .script(ECHO)
    .input("count", "41")
    .input("share", "0.25")
    .input("loud", "false")
    .input("who", r#"{"first": "Ada"}"#)
    .run()
    .await;
    assert_eq!(ended.output("talk"), "42 0.5 quiet a-b Ada");
}

#[tokio::test]
async fn a_prompt_that_renders_blank_fails_the_task_as_a_template() {
    let ended = TestRun::new(
        r#"
        [inputs.what]
        type = "string"
        default = " "
        [agents.echo]
        [tasks.talk]
        agent = "echo"
        prompt = "{{ inputs.what }}"
        "#,
    )
    .run()
    .await;
    assert_eq!(ended.kind("talk"), FailureKind::Template);
    assert!(ended.failure("talk").message.contains("blank"), "{}", ended.failure("talk"));
    assert!(ended.agents().is_empty(), "no model was asked");
}

#[tokio::test]
async fn a_name_that_is_not_there_fails_the_task_as_a_template() {
    let ended = TestRun::new(
        r#"
        [agents.echo]
        [tasks.data]
        run = "echo '{\"a\": 1}'"
        output = "json"
        [tasks.talk]
        agent = "echo"
        depends_on = ["data"]
        prompt = "{{ tasks.data.output.b }}"
        [tasks.command]
        depends_on = ["data"]
        run = "true"
        env = { B = "{{ tasks.data.output.b.c }}" }
        [tasks.choice]
        depends_on = ["data"]
        when = "tasks.data.output.b.c"
        run = "true"
        [tasks.after]
        depends_on = ["talk"]
        run = "true"
        "#,
    )
    .keep_going()
    .run()
    .await;
    for (task, key) in [("talk", "prompt"), ("command", "env.B"), ("choice", "when")] {
        assert_eq!(ended.kind(task), FailureKind::Template);
        let message = &ended.failure(task).message;
        let is_placed = message.starts_with(&format!("`{key}`, agents.toml:"));
        let says = "`tasks.data.output` has no `b`; it has `a`";
        assert!(is_placed && message.ends_with(says), "{message}");
    }
    assert_eq!(ended.because("after"), Some("talk"));
    // Nothing was started for them.
    assert_eq!(ended.agents(), ["data"]);
}

#[tokio::test]
async fn inputs_reach_commands_as_variables_and_are_never_run() {
    let evil = "it's \"two  words\" $(touch pwned) `touch pwned`; touch pwned\n{{ 7 * 7 }} \\n é";
    let ended = TestRun::new(
        r#"
        [inputs]
        two-words = { type = "string" }
        count = { type = "integer", default = 3 }
        names = { type = "array", default = ["a b", "c"] }
        [tasks.show]
        run = 'printf "%s|%s|%s" "$INPUT_TWO_WORDS" "$INPUT_COUNT" "$INPUT_NAMES"'
        [tasks.pass]
        depends_on = ["show"]
        run = 'printf %s "$TEXT"'
        env = { TEXT = "<{{ tasks.show.output }}>" }
        "#,
    )
    .input("two-words", evil)
    .run()
    .await;
    let shown = format!(r#"{evil}|3|["a b","c"]"#);
    assert_eq!(ended.output("show"), shown);
    assert_eq!(ended.output("pass"), format!("<{shown}>"));
    assert!(!ended.exists("pwned"));
}

#[tokio::test]
async fn outputs_are_bound_as_json_and_written_to_files() {
    let ended = TestRun::new(
        r#"
        [inputs]
        folder = { type = "string", default = "out" }
        [agents.echo]
        [tasks.one]
        run = "echo '{\"list\": [1, 2, 3]}'"
        output = "json"
        output_file = "{{ inputs.folder }}/one.json"
        [tasks.lines]
        run = "printf '{\"n\": 4}\n\n{\"n\": 5}\n'"
        output = "jsonl"
        [tasks.sum]
        agent = "echo"
        depends_on = ["one", "lines"]
        prompt = "{{ tasks.one.output.list | sum + tasks.lines.output | map(attribute='n') | sum }}"
        output_file = "sum.txt"
        "#,
    )
    .script(ECHO)
    .run()
    .await;
    assert_eq!(ended.output("sum"), "15");
    assert_eq!(ended.read("sum.txt"), "15");
    assert_eq!(ended.read("out/one.json"), "{\"list\": [1, 2, 3]}\n");
}

#[tokio::test]
async fn a_large_output_reaches_the_next_task_whole() {
    let ended = TestRun::new(
        r#"
        [agents.echo]
        [tasks.large]
        run = "printf '{\"text\": \"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\"}'"
        output = "json"
        output_file = "large.json"
        [tasks.binary]
        run = "printf 'a\\377\\000b'"
        [tasks.size]
        agent = "echo"
        depends_on = ["large", "binary"]
        prompt = "{{ tasks.large.output.text | length }} {{ tasks.binary.output | length }}"
        [tasks.talk]
        agent = "echo"
        depends_on = ["large"]
        prompt = "{{ tasks.large.output.text }}"
        output_file = "talk.txt"
        "#,
    )
    .script(ECHO)
    .run()
    .await;
    assert_eq!(ended.output("size"), "300000 4");
    assert_eq!(ended.read("large.json").len(), 300_012);
    // An answer too: whole where it is wanted, its beginning in the record.
    assert_eq!(ended.read("talk.txt"), "x".repeat(300_000));
    assert!(ended.output("talk").len() <= 64 * 1024);
}

#[tokio::test]
async fn an_output_of_the_wrong_form_is_a_failure() {
    let ended = TestRun::new(
        r#"
        [agents.echo]
        [tasks.talk]
        agent = "echo"
        prompt = "Sure! Here is the JSON: {}"
        output = "json"
        output_file = "talk.json"
        [tasks.lines]
        run = "printf '{}\nnone\n'"
        output = "jsonl"
        [tasks.after]
        depends_on = ["talk"]
        run = "true"
        "#,
    )
    .script(ECHO)
    .keep_going()
    .run()
    .await;
    assert_eq!(ended.kind("talk"), FailureKind::OutputFormat);
    assert_eq!(ended.kind("lines"), FailureKind::OutputFormat);
    assert_eq!(ended.because("after"), Some("talk"));
    assert!(!ended.exists("talk.json"), "a wrong output is not written");
    assert_eq!(ended.status(), RunStatus::Failed);
}

#[tokio::test]
async fn an_output_file_does_not_leave_the_workspace() {
    let ended = TestRun::new(
        r#"
        [inputs]
        place = { type = "string", default = "../out.txt" }
        [tasks.write]
        run = "echo x"
        output_file = "{{ inputs.place }}"
        "#,
    )
    .run()
    .await;
    assert_eq!(ended.kind("write"), FailureKind::ToolError);
    assert!(!ended.exists("../out.txt"));
}

#[tokio::test]
async fn a_task_that_skips_itself_counts_as_done_with_no_output() {
    let ended = TestRun::new(
        r#"
        [inputs]
        deep = { type = "boolean", default = false }
        [agents.echo]
        [tasks.maybe]
        run = "touch ran"
        when = "inputs.deep"
        [tasks.after]
        agent = "echo"
        depends_on = ["maybe"]
        prompt = "{{ tasks.maybe.state }} {{ tasks.maybe.output is none }}"
        [tasks.chosen]
        agent = "echo"
        depends_on = ["maybe"]
        when = "tasks.maybe.output is none"
        prompt = "chosen"
        "#,
    )
    .script(ECHO)
    .run()
    .await;
    assert_eq!(ended.status(), RunStatus::Completed);
    assert_eq!(ended.states(), ["maybe skipped", "after completed", "chosen completed"]);
    assert_eq!(ended.because("maybe"), None);
    assert_eq!(ended.output("after").to_lowercase(), "skipped true");
    assert!(!ended.exists("ran"));
}

#[tokio::test]
async fn a_task_that_takes_too_long_ends_with_its_whole_process_group() {
    let mut live = TestRun::new(
        r#"
        [limits]
        grace_period = "1s"
        [tasks.endless]
        run = "sh -c 'echo $$ > pid; exec sleep 300' & wait"
        timeout = "150ms"
        [tasks.after]
        depends_on = ["endless"]
        run = "true"
        "#,
    )
    .start()
    .await;
    let pid = live.until_process("pid").await;
    live.until_task("endless", TaskState::Failed).await;
    assert!(!is_alive(&pid), "process {pid} is still there");
    let ended = live.end().await;
    assert_eq!(ended.kind("endless"), FailureKind::Timeout);
    assert!(ended.failure("endless").message.contains("0.15 s"), "{}", ended.failure("endless"));
    assert_eq!(ended.because("after"), Some("endless"));
    assert_eq!(ended.status(), RunStatus::Failed);
}

#[tokio::test]
async fn an_agent_that_takes_too_long_is_stopped_amid_its_call() {
    let ended = TestRun::new(
        r#"
        [agents.slow]
        [tasks.endless]
        agent = "slow"
        prompt = "go"
        timeout = "100ms"
        "#,
    )
    .script("[[rules]]\nsay = \"late\"\ndelay_ms = 300000")
    .run()
    .await;
    assert_eq!(ended.kind("endless"), FailureKind::Timeout);
}

#[tokio::test]
async fn the_run_that_takes_too_long_ends() {
    let ended = TestRun::new(
        r#"
        [limits]
        timeout = "150ms"
        max_concurrency = 1
        grace_period = "1s"
        [tasks.endless]
        run = "sleep 300"
        [tasks.other]
        run = "true"
        "#,
    )
    .run()
    .await;
    assert_eq!(ended.kind("endless"), FailureKind::Timeout);
    assert_eq!(ended.task("other").state, TaskState::Cancelled);
    let reason = ended.task("other").reason.as_deref().expect("a reason");
    assert!(reason.contains("took longer"), "{reason}");
}

#[tokio::test]
async fn a_failed_attempt_is_made_again_as_another_agent() {
    let ended = TestRun::new(
        r#"
        [tasks.flaky]
        run = "echo x >> tries; [ $(wc -l < tries) -ge 3 ] && echo third"
        retry = { max_attempts = 3, initial_interval = "1ms" }
        [tasks.after]
        depends_on = ["flaky"]
        run = "true"
        "#,
    )
    .run()
    .await;
    assert_eq!(ended.output("flaky"), "third\n");
    assert_eq!(ended.agents(), ["after", "flaky", "flaky~2", "flaky~3"]);
    let retried: Vec<_> = ended
        .records
        .iter()
        .filter_map(|record| match &record.event {
            Event::TaskRetrying(retrying) => Some((retrying.attempt, retrying.failure.kind)),
            _ => None,
        })
        .collect();
    assert_eq!(retried, [(1, FailureKind::CommandFailed), (2, FailureKind::CommandFailed)]);
    assert!(ended.ended("flaky") < ended.started("after"));
    assert_eq!(ended.status(), RunStatus::Completed);
}

#[tokio::test]
async fn the_last_attempt_counts_and_what_cannot_be_mended_is_not_tried_again() {
    let ended = TestRun::new(
        r#"
        [agents.empty]
        [agents.refusing]
        [tasks.empty]
        agent = "empty"
        prompt = "go"
        retry = { max_attempts = 2, initial_interval = "1ms" }
        [tasks.refused]
        agent = "refusing"
        prompt = "go"
        retry = { max_attempts = 5, initial_interval = "1ms" }
        "#,
    )
    .script(
        "[[rules]]\nagent = \"refusing\"\nsay = \"no\"\nstop = \"refusal\"\n[[rules]]\nsay = \"\"",
    )
    .keep_going()
    .run()
    .await;
    assert_eq!(ended.kind("empty"), FailureKind::EmptyAnswer);
    assert_eq!(ended.kind("refused"), FailureKind::Refusal);
    assert_eq!(ended.agents(), ["empty", "empty~2", "refused"]);
}

#[tokio::test]
async fn the_first_failure_lets_nothing_new_start_and_lets_what_runs_end() {
    let mut live = TestRun::new(
        r#"
        [limits]
        max_concurrency = 2
        [tasks.bad]
        run = "exit 3"
        [tasks.running]
        run = "while [ ! -e go ]; do sleep 0.01; done; echo finished"
        timeout = "20s"
        [tasks.waiting]
        depends_on = ["running"]
        run = "true"
        [tasks.queued]
        run = "true"
        depends_on = ["gate"]
        [tasks.gate]
        run = "while [ ! -e never ]; do sleep 0.01; done"
        [tasks.needs_bad]
        depends_on = ["bad"]
        run = "true"
        [tasks.cleanup]
        depends_on = ["bad"]
        join = "all_done"
        run = "echo cleaned"
        "#,
    )
    .start()
    .await;
    live.until_task("bad", TaskState::Failed).await;
    live.until_task("cleanup", TaskState::Completed).await;
    live.write("go", "");
    let ended = live.end().await;
    assert_eq!(ended.kind("bad"), FailureKind::CommandFailed);
    assert!(ended.failure("bad").message.contains("exit code 3"), "{}", ended.failure("bad"));
    assert_eq!(ended.output("running"), "finished\n");
    // It is meant for this very case.
    assert_eq!(ended.output("cleanup"), "cleaned\n");
    for task in ["waiting", "queued", "gate", "needs_bad"] {
        assert_eq!(ended.because(task), Some("bad"), "{task}");
        let reason = ended.task(task).reason.as_deref().expect("a reason");
        assert!(reason.contains("`bad`"), "{task}: {reason}");
    }
    assert_eq!(ended.status(), RunStatus::Failed);
}

#[tokio::test]
async fn the_first_failure_cancels_what_runs_if_the_file_says_so() {
    let ended = TestRun::new(
        r#"
        [limits]
        cancel_running = true
        grace_period = "1s"
        [tasks.endless]
        run = "touch up; sleep 300"
        [tasks.bad]
        run = "while [ ! -e up ]; do sleep 0.01; done; exit 1"
        "#,
    )
    .run()
    .await;
    assert_eq!(ended.kind("bad"), FailureKind::CommandFailed);
    assert_eq!(ended.task("endless").state, TaskState::Cancelled);
    assert_eq!(ended.task("endless").reason.as_deref(), Some("task `bad` failed"));
}

#[tokio::test]
async fn keep_going_runs_what_does_not_need_the_failed_task() {
    let ended = TestRun::new(
        r#"
        [limits]
        max_concurrency = 1
        [tasks.bad]
        run = "exit 1"
        [tasks.needs_bad]
        depends_on = ["bad"]
        run = "true"
        [tasks.needs_that]
        depends_on = ["needs_bad", "good"]
        run = "true"
        [tasks.good]
        run = "echo fine"
        [tasks.after_good]
        depends_on = ["good"]
        run = "echo fine too"
        "#,
    )
    .keep_going()
    .run()
    .await;
    assert_eq!(ended.status(), RunStatus::Partial);
    let states = [
        "bad failed",
        "needs_bad skipped",
        "needs_that skipped",
        "good completed",
        "after_good completed",
    ];
    assert_eq!(ended.states(), states);
    assert_eq!(ended.because("needs_bad"), Some("bad"));
    assert_eq!(ended.because("needs_that"), Some("needs_bad"));
}

#[tokio::test]
async fn a_join_says_which_ends_of_its_dependencies_it_takes() {
    let ended = TestRun::new(
        r#"
        [agents.echo]
        [tasks.good]
        run = "echo fine"
        [tasks.bad]
        run = "exit 1"
        [tasks.skipped]
        depends_on = ["bad"]
        run = "true"
        [tasks.all_done]
        agent = "echo"
        depends_on = ["good", "bad", "skipped"]
        join = "all_done"
        prompt = "{{ tasks.good.state }} {{ tasks.bad.state }} {{ tasks.skipped.state }} {{ tasks.bad.output is none }}"
        [tasks.any_success]
        depends_on = ["good", "bad"]
        join = "any_success"
        run = "true"
        [tasks.none_of_them]
        depends_on = ["bad", "skipped"]
        join = "any_success"
        run = "true"
        [tasks.none_failed]
        depends_on = ["good", "skipped"]
        join = "none_failed"
        run = "true"
        [tasks.one_failed]
        depends_on = ["good", "bad"]
        join = "none_failed"
        run = "true"
        "#,
    )
    .script(ECHO)
    .keep_going()
    .run()
    .await;
    assert_eq!(ended.output("all_done").to_lowercase(), "completed failed skipped true");
    for (task, state) in [
        ("any_success", TaskState::Completed),
        ("none_of_them", TaskState::Skipped),
        ("none_failed", TaskState::Completed),
        ("one_failed", TaskState::Skipped),
    ] {
        assert_eq!(ended.task(task).state, state, "{task}");
    }
    assert_eq!(ended.because("none_of_them"), Some("bad"));
    assert_eq!(ended.because("one_failed"), Some("bad"));
    assert!(ended.ended("good") < ended.started("any_success"), "it waits for a success");
}

#[tokio::test]
async fn a_task_can_read_why_another_failed() {
    let ended = TestRun::new(
        r#"
        [agents.echo]
        [tasks.good]
        run = "true"
        [tasks.bad]
        run = "exit 9"
        [tasks.report]
        agent = "echo"
        depends_on = ["good", "bad"]
        join = "all_done"
        prompt = "{{ tasks.bad.error }}, {{ tasks.good.error is none }}"
        "#,
    )
    .script(ECHO)
    .keep_going()
    .run()
    .await;
    let told = "command_failed: the command ended with exit code 9, true";
    assert_eq!(ended.output("report").to_lowercase(), told);
}

#[tokio::test]
async fn only_the_named_tasks_and_what_they_need_run() {
    let text = r#"
        [tasks.base]
        run = "echo base"
        [tasks.wanted]
        depends_on = ["base"]
        run = "echo wanted"
        [tasks.after]
        depends_on = ["wanted"]
        run = "echo after"
        [tasks.other]
        run = "echo other"
        "#;
    let ended = TestRun::new(text).only(["wanted"]).run().await;
    assert_eq!(ended.status(), RunStatus::Completed);
    assert_eq!(ended.states(), ["base completed", "wanted completed"]);
    assert_eq!(ended.agents(), ["base", "wanted"]);
    let with_entry = format!("entry = [\"base\"]\n{text}");
    let ended = TestRun::new(&with_entry).run().await;
    assert_eq!(ended.states(), ["base completed"]);
    let ended = TestRun::new(&with_entry).only(["other"]).run().await;
    assert_eq!(ended.states(), ["other completed"]);
}

#[tokio::test]
async fn what_is_no_answer_is_a_failure_of_its_own_kind_whoever_serves_the_model() {
    let script = r#"
        [[rules]]
        agent = "refusing"
        say = "I cannot help with that"
        stop = "refusal"
        [[rules]]
        agent = "empty"
        say = ""
        [[rules]]
        agent = "restless"
        say = "still looking"
        calls = [{ tool = "glob", input = { pattern = "*" } }]
        "#;
    let text = r#"
        [agents.refusing]
        [agents.empty]
        [agents.restless]
        tools = ["glob"]
        max_turns = 2
        [agents.unscripted]
        [tasks.refused]
        agent = "refusing"
        prompt = "go"
        [tasks.empty]
        agent = "empty"
        prompt = "go"
        [tasks.restless]
        agent = "restless"
        prompt = "go"
        [tasks.rejected]
        agent = "unscripted"
        prompt = "go"
        [tasks.after_refused]
        depends_on = ["refused"]
        run = "true"
        [tasks.after_empty]
        depends_on = ["empty"]
        run = "true"
        [tasks.after_restless]
        depends_on = ["restless"]
        run = "true"
        [tasks.after_rejected]
        depends_on = ["rejected"]
        run = "true"
        "#;
    for host in Host::ALL {
        let ended = TestRun::new(text).script(script).on(host).keep_going().run().await;
        assert_eq!(ended.kind("refused"), FailureKind::Refusal, "{host:?}");
        let message = &ended.failure("refused").message;
        assert!(message.contains("I cannot help with that"), "{host:?}: {message}");
        assert_eq!(ended.kind("empty"), FailureKind::EmptyAnswer, "{host:?}");
        assert_eq!(ended.kind("restless"), FailureKind::MaxTurns, "{host:?}");
        assert_eq!(ended.finished("restless").len(), 2, "{host:?}: two turns, two calls");
        assert_eq!(ended.kind("rejected"), FailureKind::InvalidRequest, "{host:?}");
        for task in ["refused", "empty", "restless", "rejected"] {
            assert_eq!(ended.because(&format!("after_{task}")), Some(task), "{host:?}");
        }
        assert_eq!(ended.status(), RunStatus::Failed, "{host:?}");
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_is_continued_and_joined() {
    let script = r#"
        [[rules]]
        turn = 1
        say = "The answer is forty"
        stop = "max_tokens"
        [[rules]]
        turn = 2
        say = "-two, and that"
        stop = "max_tokens"
        [[rules]]
        say = " is all."
        "#;
    let text = r#"
        [agents.talker]
        [tasks.talk]
        agent = "talker"
        prompt = "go"
        "#;
    for host in Host::ALL {
        let ended = TestRun::new(text).script(script).on(host).run().await;
        assert_eq!(ended.output("talk"), "The answer is forty-two, and that is all.", "{host:?}");
        for request in &ended.requests {
            let roles: Vec<_> = request.messages().iter().map(|m| m.role).collect();
            let alternate = roles.windows(2).all(|pair| pair[0] != pair[1]);
            assert!(alternate && roles.first() == Some(&Role::User), "{host:?}: {roles:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_for_ever_is_a_failure() {
    let ended = TestRun::new("[agents.talker]\n[tasks.talk]\nagent = \"talker\"\nprompt = \"go\"")
        .script("[[rules]]\nsay = \"and so on\"\nstop = \"max_tokens\"")
        .run()
        .await;
    assert_eq!(ended.kind("talk"), FailureKind::OutputTruncated);
}

/// A graph whose every kind of step can be met by a cancel.
const STEPS: &str = r#"
    [limits]
    grace_period = "1s"
    max_concurrency = 2
    [agents.lead]
    tools = ["glob"]
    sub_agents = ["helper"]
    [agents.helper]
    [tasks.first]
    run = "true"
    [tasks.job]
    agent = "lead"
    depends_on = ["first"]
    prompt = "go"
    [tasks.flaky]
    run = "exit 1"
    retry = { max_attempts = 2, initial_interval = "1ms" }
    [tasks.last]
    depends_on = ["job"]
    run = "true"
    "#;

const STEPS_SCRIPT: &str = r#"
    [[rules]]
    agent = "lead"
    turn = 1
    calls = [
        { tool = "glob", input = { pattern = "*" } },
        { tool = "delegate", for_each = "range(3) | list", as = "n", input = { agent = "helper", prompt = "part {{ n }}" } },
    ]
    [[rules]]
    say = "done"
    "#;

#[tokio::test]
async fn a_cancel_at_any_moment_ends_the_run() {
    let whole = TestRun::new(STEPS).script(STEPS_SCRIPT).keep_going().run().await;
    assert_eq!(whole.status(), RunStatus::Partial);
    let all = whole.records.len() as u64;
    assert!(all > 40, "{all}");
    let targets = [CancelTarget::Run, CancelTarget::Task(name("job"))];
    let moments = (1..all).step_by(3).zip(targets.iter().cycle());
    for (at, target) in moments {
        let mut live = TestRun::new(STEPS).script(STEPS_SCRIPT).keep_going().start().await;
        live.until("a record", |record| record.seq >= at).await;
        // It may have ended by then.
        live.cancel(target.clone()).await;
        let ended = live.end().await;
        let job = ended.task("job").state;
        assert!(matches!(job, TaskState::Cancelled | TaskState::Completed), "{at}: {job:?}");
        if job == TaskState::Cancelled {
            assert_ne!(ended.task("last").state, TaskState::Completed, "{at}");
        }
    }
}

/// A model that brings its agent down.
struct Panicking;

impl Model for Panicking {
    fn call<'a>(
        &'a self,
        _: Request,
        _: DeltaSink<'a>,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async { panic!("the model is broken") })
    }
}

#[tokio::test]
async fn a_crash_is_a_failure_of_its_own_kind() {
    let ended = TestRun::new(
        r#"
        [agents.broken]
        restart = { strategy = "temporary" }
        [agents.sound]
        [tasks.crash]
        agent = "broken"
        prompt = "go"
        [tasks.after]
        depends_on = ["crash"]
        run = "true"
        [tasks.other]
        agent = "sound"
        prompt = "go"
        "#,
    )
    .model("broken", Arc::new(Panicking))
    .keep_going()
    .run()
    .await;
    assert_eq!(ended.kind("crash"), FailureKind::Crashed);
    assert!(ended.failure("crash").message.contains("the model is broken"));
    assert_eq!(ended.because("after"), Some("crash"));
    assert_eq!(ended.output("other"), "done");
}

#[tokio::test]
async fn the_run_and_its_inputs_are_recorded_as_they_were() {
    let ended = TestRun::new("[inputs]\nn = { type = \"integer\" }\n[tasks.one]\nrun = \"true\"")
        .input("n", "7")
        .run()
        .await;
    let created = ended.state.created().expect("run.created");
    assert_eq!(created.inputs, Json::encode(&serde_json::json!({"n": 7})));
    assert!(created.config.contains("[tasks.one]"));
    assert_eq!(created.tasks.len(), 1);
}
