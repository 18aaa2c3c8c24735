//! Delegation in a run: the answer that a parent receives, the limits of the tree, and the agent
//! that pays.

use std::collections::BTreeMap;
use std::sync::Arc;

use callsheet::event::{Event, Record, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::id::AgentId;
use callsheet::message::{Message, Usage};
use callsheet::plan::TaskState;
use callsheet::report;
use callsheet::run::CancelTarget;
use callsheet::turn::Outcome;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::support::asked::{Asked, Wire};
use crate::support::test_run::{Ended, Host, TestRun, agent, name};

const LOOPBACK: Host = Host::Loopback(Wire::Anthropic);

/// A lead with one kind of helper.
const LEAD: &str = r#"
[compaction]
preset = "off"
[agents.lead]
sub_agents = ["helper"]
[agents.helper]
description = "Helps"
[tasks.job]
agent = "lead"
prompt = "lead the work"
"#;

/// The results of an agent's `delegate` calls, as its model read them.
fn children(ended: &Ended, id: &str) -> Vec<Value> {
    let results = ended.results(id);
    let read = |text: String| serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    results.iter().map(|result| read(result.text())).collect()
}

fn is_child(id: &AgentId) -> bool {
    id.as_str().contains('/')
}

#[tokio::test]
async fn children_of_one_turn_work_at_the_same_time() {
    // No child is answered before all three have asked.
    let barrier = Arc::new(Barrier::new(3));
    let ended = TestRun::new(LEAD)
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = 1
            calls = [{ tool = "delegate", for_each = "['a', 'b', 'c']", as = "part", input = { agent = "helper", prompt = "part {{ part }}" } }]
            [[rules]]
            agent = "lead"
            say = "{% for result in last %}{{ (result.text | from_json).text }};{% endfor %}"
            [[rules]]
            agent = "helper"
            say = "did {{ prompt }}"
            "#,
        )
        .on(LOOPBACK)
        .adapting(move |asked, answer| match asked.model().as_str() {
            "helper" => answer.together(&barrier),
            _ => answer,
        })
        .run()
        .await;
    assert_eq!(ended.output("job"), "did part a;did part b;did part c;");
    assert_eq!(ended.agents(), ["job", "job/helper-1", "job/helper-2", "job/helper-3"]);
    assert_eq!(ended.most_at_work(is_child), 3);
    // Each begins with its own prompt and nothing else.
    let asked: Vec<_> = ended.requests.iter().filter(|asked| asked.model() == "helper").collect();
    let mut messages: Vec<_> = asked.iter().map(|asked| asked.messages()).collect();
    messages.sort_by_key(|messages| messages[0].text());
    let expected = ["part a", "part b", "part c"].map(|text| vec![Message::user(text)]);
    assert_eq!(messages, expected);
    assert!(asked.iter().all(|asked| asked.system().starts_with("You are helper.")));
}

#[tokio::test]
async fn the_parent_gets_a_typed_result() {
    for host in Host::ALL {
        let ended = TestRun::new(LEAD)
            .script(
                r#"
                [[rules]]
                agent = "lead"
                turn = 1
                calls = [{ tool = "delegate", input = { agent = "helper", prompt = "look", description = "a first look" } }]
                [[rules]]
                agent = "lead"
                say = "thanks"
                [[rules]]
                agent = "helper"
                say = "I saw \"it\""
                "#,
            )
            .on(host)
            .run()
            .await;
        let [child] = children(&ended, "job").try_into().expect("one child");
        let usage = ended.state.agents()[&agent("job/helper-1")].own.usage;
        assert!(usage.total() > 0);
        let transcript = ended.dir.transcript(&agent("job/helper-1"));
        let expected = json!({
            "status": "completed",
            "agent": "job/helper-1",
            "error": null,
            "text": "I saw \"it\"",
            "turns": 1,
            "usage": usage,
            "transcript": transcript,
        });
        assert_eq!(child, expected, "{host:?}");
        assert!(!ended.result("job").is_error);
        let whole = [Message::user("look"), Message::assistant("I saw \"it\"")];
        assert_eq!(ended.transcript("job/helper-1"), whole, "{host:?}");
    }
}

#[tokio::test]
async fn a_long_answer_is_cut_for_the_parent_and_whole_in_the_transcript() {
    // Once within a record, once beyond what a record holds.
    for lines in [4_000, 16_000] {
        let ended = TestRun::new(LEAD)
            .script(&format!(
                r#"
                [[rules]]
                agent = "lead"
                turn = 1
                calls = [{{ tool = "delegate", input = {{ agent = "helper", prompt = "count" }} }}]
                [[rules]]
                agent = "lead"
                say = "thanks"
                [[rules]]
                agent = "helper"
                say = "{{% for n in range({lines}) %}}line {{{{ n }}}}\n{{% endfor %}}END"
                "#,
            ))
            .run()
            .await;
        let [child] = children(&ended, "job").try_into().expect("one child");
        let text = child["text"].as_str().expect("a text");
        let all: String = (0..lines).map(|n| format!("line {n}\n")).collect();
        let all = format!("{all}END");
        let size = text.chars().count();
        assert!((30_000..33_000).contains(&size), "{lines}: {size}");
        assert!(text.starts_with("line 0\nline 1\n"), "{lines}");
        let last = lines - 1;
        assert!(text.ends_with(&format!("line {last}\nEND")), "{lines}: {}", &text[size - 60..]);
        let left_out = all.chars().count() - 32_000;
        assert!(text.contains(&format!("{left_out} characters left out")), "{lines}");
        let transcript = child["transcript"].as_str().expect("a path");
        assert!(std::fs::read_to_string(transcript).expect("the transcript").contains("END"));
        assert_eq!(ended.transcript("job/helper-1")[1].text(), all, "{lines}");
    }
}

#[tokio::test]
async fn the_failure_of_a_child_is_an_error_result_and_the_parent_goes_on() {
    let ended = TestRun::new(
        r#"
        [agents.lead]
        sub_agents = ["refusing", "restless", "empty"]
        [agents.refusing]
        [agents.empty]
        [agents.restless]
        tools = ["glob"]
        max_turns = 1
        [tasks.job]
        agent = "lead"
        prompt = "go"
        "#,
    )
    .script(
        r#"
        [[rules]]
        agent = "lead"
        turn = 1
        calls = [{ tool = "delegate", for_each = "['refusing', 'restless', 'empty']", as = "who", input = { agent = "{{ who }}", prompt = "x" } }]
        [[rules]]
        agent = "lead"
        say = "{% for result in last %}{{ result.is_error }} {% endfor %}"
        [[rules]]
        agent = "refusing"
        say = "I will not"
        stop = "refusal"
        [[rules]]
        agent = "empty"
        say = ""
        [[rules]]
        agent = "restless"
        say = "I saw half of it"
        calls = [{ tool = "glob", input = { pattern = "*" } }]
        "#,
    )
    .run()
    .await;
    assert_eq!(ended.status(), RunStatus::Completed);
    assert_eq!(ended.output("job").to_lowercase(), "true true true");
    let told = children(&ended, "job");
    for (child, kind) in told.iter().zip(["refusal", "max_turns", "empty_answer"]) {
        assert_eq!(child["status"], "failed");
        let error = child["error"].as_str().expect("an error");
        assert!(error.starts_with(kind), "{error}");
    }
    // What it had said is told as what it is: part of a failure.
    assert_eq!(told[1]["text"], "I saw half of it");
    assert!(ended.results("job").iter().all(|result| result.is_error));
    let failed = |id| match &ended.state.agents()[&agent(id)].outcome {
        Some(Outcome::Failed { failure, .. }) => failure.kind,
        other => panic!("{id}: {other:?}"),
    };
    assert_eq!(failed("job/refusing-1"), FailureKind::Refusal);
    assert_eq!(failed("job/restless-1"), FailureKind::MaxTurns);
}

/// Agents that delegate to each other as deep as they can.
const TOWER: &str = r#"
[agents.digger]
sub_agents = ["digger"]
[tasks.dig]
agent = "digger"
prompt = "level 0"
"#;

/// Delegates whenever the tool is there.
const DIG: &str = r#"
[[rules]]
turn = 1
when = "'delegate' in tools"
calls = [{ tool = "delegate", input = { agent = "digger", prompt = "below {{ agent_id }}" } }]
[[rules]]
turn = 1
say = "bottom"
[[rules]]
say = "{{ (last[0].text | from_json).text }}+"
"#;

#[tokio::test]
async fn at_the_depth_limit_the_tool_is_absent_from_the_request() {
    for (limit, levels) in [("max_depth = 0", 1), ("max_depth = 2", 3), ("", 4)] {
        for wire in Wire::BOTH {
            let text = format!("[limits]\n{limit}\n{TOWER}");
            let ended = TestRun::new(&text).script(DIG).on(Host::Loopback(wire)).run().await;
            assert_eq!(ended.agents().len(), levels, "{limit}");
            let first = |asked: &&Asked| asked.messages().len() == 1;
            let offered: Vec<_> = ended.requests.iter().filter(first).map(Asked::tools).collect();
            let offered_above = ["delegate", "recall"].map(str::to_owned).to_vec();
            let mut expected = vec![offered_above; levels - 1];
            expected.push(Vec::new());
            assert_eq!(offered, expected, "{limit}");
            assert_eq!(ended.output("dig"), format!("bottom{}", "+".repeat(levels - 1)));
            let deepest = format!("dig{}", "/digger-1".repeat(levels - 1));
            let depth = ended.state.agents()[&agent(&deepest)].depth;
            assert_eq!(depth as usize, levels - 1);
        }
    }
}

#[tokio::test]
async fn nested_children_go_on_when_only_one_may_be_at_work() {
    let script = r#"
        [[rules]]
        turn = 1
        when = "'delegate' in tools"
        calls = [{ tool = "delegate", for_each = "range(2) | list", as = "n", input = { agent = "digger", prompt = "part {{ n }}" } }]
        [[rules]]
        turn = 1
        say = "leaf"
        [[rules]]
        say = "({% for child in last %}{{ (child.text | from_json).text }}{% endfor %})"
        "#;
    let limits =
        ["max_concurrency = 1\n", "max_children = 1\n", "max_concurrency = 1\nmax_children = 1\n"];
    for limits in limits {
        let text = format!("[limits]\nmax_depth = 2\n{limits}{TOWER}");
        let ended = TestRun::new(&text).script(script).run().await;
        assert_eq!(ended.output("dig"), "((leafleaf)(leafleaf))", "{limits}");
        assert_eq!(ended.agents().len(), 7, "{limits}");
    }
}

#[tokio::test]
async fn no_more_children_are_at_work_than_max_children() {
    // Two have to meet, so that fewer than two at work would never end.
    let barrier = Arc::new(Barrier::new(2));
    let ended = TestRun::new(&format!("[limits]\nmax_children = 2\n{LEAD}"))
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = 1
            calls = [{ tool = "delegate", for_each = "range(6) | list", as = "n", input = { agent = "helper", prompt = "part {{ n }}" } }]
            [[rules]]
            agent = "lead"
            say = "{% for child in last %}{{ (child.text | from_json).text }}{% endfor %}"
            [[rules]]
            agent = "helper"
            say = "{{ prompt }}"
            "#,
        )
        .on(LOOPBACK)
        .adapting(move |asked, answer| match asked.model().as_str() {
            "helper" => answer.together(&barrier),
            _ => answer,
        })
        .run()
        .await;
    assert_eq!(ended.output("job"), "part 0part 1part 2part 3part 4part 5", "in call order");
    assert_eq!(ended.most_at_work(is_child), 2);
}

#[tokio::test]
async fn tasks_and_children_share_the_slots_and_who_waits_holds_none() {
    // The two children have to meet: with two slots they can only if their parent holds none.
    let barrier = Arc::new(Barrier::new(2));
    let ended = TestRun::new(&format!(
        "[limits]\nmax_concurrency = 2\n{LEAD}\n[tasks.other]\nrun = \"echo x\"\n"
    ))
    .script(
        r#"
        [[rules]]
        agent = "lead"
        turn = 1
        calls = [{ tool = "delegate", for_each = "range(4) | list", as = "n", input = { agent = "helper", prompt = "part {{ n }}" } }]
        [[rules]]
        agent = "lead"
        say = "done"
        [[rules]]
        agent = "helper"
        say = "{{ prompt }}"
        "#,
    )
    .on(LOOPBACK)
    .adapting(move |asked, answer| match asked.model().as_str() {
        "helper" => answer.together(&barrier),
        _ => answer,
    })
    .run()
    .await;
    assert_eq!(ended.status(), RunStatus::Completed);
    assert_eq!(ended.most_at_work(is_child), 2);
    // Main agents, commands and children together, without those that wait.
    let mut at_work: BTreeMap<String, bool> = BTreeMap::new();
    for record in &ended.records {
        let Some(id) = record.agent.as_ref().map(ToString::to_string) else { continue };
        match &record.event {
            Event::AgentSpawned(_) | Event::TurnStarted(_) => drop(at_work.insert(id, true)),
            Event::ToolIntended(call) if call.name == "delegate" => {
                at_work.insert(id, false);
            }
            Event::AgentEnded(_) => drop(at_work.remove(&id)),
            _ => {}
        }
        assert!(at_work.values().filter(|works| **works).count() <= 2, "{at_work:?}");
    }
}

#[tokio::test]
async fn past_the_descendants_limit_a_delegation_is_refused() {
    let ended = TestRun::new(&format!("[limits]\nmax_descendants = 3\n{LEAD}"))
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = "1..2"
            calls = [{ tool = "delegate", for_each = "range(3) | list", as = "n", input = { agent = "helper", prompt = "part {{ n }}" } }]
            [[rules]]
            agent = "lead"
            say = "{% for result in results %}{{ '-' if result.is_error else '+' }}{% endfor %}"
            [[rules]]
            agent = "helper"
            say = "{{ prompt }}"
            "#,
        )
        .run()
        .await;
    assert_eq!(ended.output("job"), "+++---");
    assert_eq!(ended.agents().len(), 4);
    let refused = ended.results("job").pop().expect("a result");
    assert!(refused.is_error && refused.text().contains("limit of 3 children"), "{refused:?}");
}

#[tokio::test]
async fn the_descendants_limit_holds_for_delegations_of_one_turn() {
    let ended = TestRun::new(&format!("[limits]\nmax_descendants = 2\n{LEAD}"))
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = 1
            calls = [{ tool = "delegate", for_each = "range(8) | list", as = "n", input = { agent = "helper", prompt = "part {{ n }}" } }]
            [[rules]]
            agent = "lead"
            say = "{{ last | selectattr('is_error') | list | length }}"
            [[rules]]
            agent = "helper"
            say = "{{ prompt }}"
            "#,
        )
        .run()
        .await;
    assert_eq!(ended.output("job"), "6");
    assert_eq!(ended.agents().len(), 3);
}

#[tokio::test]
async fn none_of_two_tasks_leaves_the_other_without_children() {
    // The greedy one asks for all of them before the other begins.
    let more = "[tasks.more]\nagent = 'lead'\nprompt = 'modest'\n";
    let ended = TestRun::new(&format!("[limits]\nmax_descendants = 8\nmax_concurrency = 1\n{LEAD}{more}"))
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = 1
            when = "'modest' in prompt"
            calls = [{ tool = "delegate", for_each = "range(3) | list", as = "n", input = { agent = "helper", prompt = "part {{ n }}" } }]
            [[rules]]
            agent = "lead"
            turn = 1
            calls = [{ tool = "delegate", for_each = "range(9) | list", as = "n", input = { agent = "helper", prompt = "part {{ n }}" } }]
            [[rules]]
            agent = "lead"
            say = "{% for result in results %}{{ '-' if result.is_error else '+' }}{% endfor %}"
            [[rules]]
            agent = "helper"
            say = "{{ prompt }}"
            "#,
        )
        .run()
        .await;
    assert_eq!(ended.output("job"), "++++-----");
    assert_eq!(ended.output("more"), "+++");
    let refused = ended.results("job").pop().expect("a result");
    assert!(refused.text().contains("kept for other tasks"), "{refused:?}");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_mended_and_a_late_child_is_ended() {
    let ended = TestRun::new(LEAD)
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = 1
            [[rules.calls]]
            tool = "delegate"
            input = { agent = "helper", prompt = "count", output_schema = { type = "object", required = ["n"] } }
            [[rules.calls]]
            tool = "delegate"
            input = { agent = "helper", prompt = "never", output_schema = { type = "integer" } }
            [[rules.calls]]
            tool = "delegate"
            input = { agent = "helper", prompt = "slow", timeout = "300ms" }
            [[rules]]
            agent = "lead"
            say = "done"
            [[rules]]
            agent = "helper"
            when = "'slow' in prompt"
            delay_ms = 600000
            say = "late"
            [[rules]]
            agent = "helper"
            when = "'never' in prompt"
            say = "no number"
            [[rules]]
            agent = "helper"
            turn = 1
            say = '{"m": 1}'
            [[rules]]
            agent = "helper"
            say = '{"n": 1}'
            "#,
        )
        .run()
        .await;
    let read = children(&ended, "job");
    let told: Vec<_> = read.iter().map(|child| (&child["status"], &child["turns"])).collect();
    assert_eq!(told[0], (&json!("completed"), &json!(2)), "{read:?}");
    assert_eq!(read[0]["text"], r#"{"n": 1}"#);
    assert_eq!(told[1], (&json!("failed"), &json!(3)), "{read:?}");
    assert!(read[1]["error"].as_str().expect("a text").contains("JSON"), "{read:?}");
    assert_eq!((told[2].0, read[2]["partial"].clone()), (&json!("failed"), json!(false)));
    assert!(read[2]["error"].as_str().expect("a text").contains("longer than 0.3 s"), "{read:?}");
}

#[tokio::test]
async fn the_schema_of_an_agent_holds_for_its_answers_to_another_agent() {
    let lead = LEAD.replace(
        "description = \"Helps\"",
        "description = \"Helps\"\noutput_schema = { type = \"integer\" }",
    );
    let ended = TestRun::new(&lead)
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = 1
            calls = [{ tool = "delegate", input = { agent = "helper", prompt = "count" } }]
            [[rules]]
            agent = "lead"
            say = "done"
            [[rules]]
            agent = "helper"
            say = "{{ 'seven' if turn == 1 else '7' }}"
            "#,
        )
        .run()
        .await;
    let read = children(&ended, "job");
    assert_eq!((&read[0]["status"], &read[0]["text"]), (&json!("completed"), &json!("7")));
}

#[tokio::test]
async fn wants_that_cannot_be_used_are_told_to_the_parent() {
    let ended = TestRun::new(LEAD)
        .script(
            r#"
            [[rules]]
            agent = "lead"
            turn = 1
            [[rules.calls]]
            tool = "delegate"
            input = { agent = "helper", prompt = "x", timeout = "soon" }
            [[rules.calls]]
            tool = "delegate"
            input = { agent = "helper", prompt = "x", timeout = "0s" }
            [[rules.calls]]
            tool = "delegate"
            input = { agent = "helper", prompt = "x", output_schema = { type = "list" } }
            [[rules]]
            agent = "lead"
            say = "done"
            "#,
        )
        .run()
        .await;
    let results = ended.results("job");
    for (result, word) in results.iter().zip(["`soon`", "`0s`", "`output_schema`"]) {
        assert!(result.is_error && result.text().contains(word), "{result:?}");
    }
    assert_eq!((results.len(), ended.agents().len()), (3, 1));
}

#[tokio::test]
async fn a_wrong_delegation_is_told_and_costs_no_slot() {
    for limits in ["", "[limits]\nmax_concurrency = 1\n"] {
        let ended = TestRun::new(&format!("{limits}{LEAD}\n[agents.stranger]\n"))
            .script(
                r#"
                [[rules]]
                agent = "lead"
                turn = 1
                calls = [
                    { tool = "delegate", input = { agent = "nobody", prompt = "x" } },
                    { tool = "delegate", input = { agent = "stranger", prompt = "x" } },
                    { tool = "delegate", input = { agent = "helper" } },
                    { tool = "delegate", input = { agent = "helper", prompt = "x", depth = 9 } },
                    { tool = "delegate", input = { agent = "helper", prompt = " " } },
                ]
                [[rules]]
                agent = "lead"
                turn = 2
                calls = [{ tool = "delegate", input = { agent = "helper", prompt = "now rightly" } }]
                [[rules]]
                agent = "lead"
                say = "{{ (last[0].text | from_json).text }}"
                [[rules]]
                agent = "helper"
                say = "{{ prompt }}"
                "#,
            )
            .run()
            .await;
        assert_eq!(ended.output("job"), "now rightly");
        assert_eq!(ended.agents(), ["job", "job/helper-1"]);
        let results = ended.results("job");
        for (result, word) in results.iter().zip(["nobody", "stranger", "prompt", "depth", "blank"])
        {
            let text = result.text();
            assert!(result.is_error && text.starts_with("Error: bad arguments"), "{text}");
            assert!(text.contains(word), "{text}");
        }
        assert!(results[0].text().contains("helper"), "it names whom there is");
    }
}

#[tokio::test]
async fn an_agent_without_the_tool_does_not_delegate() {
    let ended = TestRun::new("[limits]\nmax_concurrency = 1\n[agents.lone]\n[tasks.job]\nagent = \"lone\"\nprompt = \"go\"\n")
        .script(
            r#"
            [[rules]]
            turn = 1
            calls = [{ tool = "delegate", input = { agent = "lone", prompt = "x" } }]
            [[rules]]
            say = "{{ last[0].text }}"
            "#,
        )
        .run()
        .await;
    assert_eq!(ended.output("job"), "Unknown tool: delegate");
    assert_eq!(ended.agents(), ["job"]);
}

#[tokio::test]
async fn usage_rolls_up_from_children_to_parents_and_the_run() {
    let cost = Usage { input: 100, output: 10, cache_read: 7, cache_write: 0 };
    let ended = TestRun::new(&format!("{TOWER}[models.digger]\ncost_per_mtok = {{ input = 1.0, output = 2.0, cache_read = 0.5, cache_write = 0.0 }}\n"))
        .script(DIG)
        .on(Host::Loopback(Wire::OpenAi))
        .adapting(move |_, answer| answer.costing(cost))
        .run()
        .await;
    let calls = ended.requests.len();
    assert_eq!(calls, 7, "three levels ask twice, the deepest once");
    let times = |n: usize| std::iter::repeat_n(cost, n).sum::<Usage>();
    assert_eq!(ended.completed.usage, times(7));
    let expected = [("dig", 7), ("dig/digger-1", 5), ("dig/digger-1/digger-1", 3)];
    for (id, calls) in expected {
        let spending = ended.state.inclusive(&agent(id));
        let (usage, cost_usd) = (spending.usage, spending.cost_usd());
        assert_eq!(usage, times(calls), "{id}");
        let dollars = (100.0 + 20.0 + 3.5) / 1e6 * calls as f64;
        assert!((cost_usd.expect("a price") - dollars).abs() < 1e-12, "{id}: {cost_usd:?}");
    }
    // What the parent reads of its child holds the child's children.
    let [child] = children(&ended, "dig").try_into().expect("one child");
    assert_eq!(child["usage"], json!(times(5)));
    let rows = report::rows(&ended.state, false, 0);
    let row = |kind: &str, name: &str| {
        let found = rows.iter().find(|row| row.kind == kind && row.name == name);
        found.unwrap_or_else(|| panic!("no row {kind} {name}"))
    };
    assert_eq!(row("run", "test").spending.usage, times(7));
    assert_eq!(row("task", "dig").spending.usage, times(7));
    assert_eq!(row("agent", "dig").spending.usage, times(2), "an agent's own");
    let cost = report::cost_by_agent(&ended.state);
    let dig = cost.iter().find(|row| row.name == "dig").expect("a row");
    assert_eq!((dig.own.usage, dig.inclusive.usage), (times(2), times(7)));
}

#[tokio::test]
async fn cancelling_a_child_tells_its_parent_and_cancelling_a_task_ends_its_children() {
    let script = r#"
        [[rules]]
        agent = "lead"
        turn = 1
        calls = [{ tool = "delegate", for_each = "['short', 'endless']", as = "what", input = { agent = "helper", prompt = "{{ what }}" } }]
        [[rules]]
        agent = "lead"
        say = "{% for child in last %}{{ (child.text | from_json).status }} {% endfor %}"
        [[rules]]
        agent = "helper"
        when = "prompt == 'short'"
        say = "short"
        [[rules]]
        agent = "helper"
        say = "never"
        delay_ms = 300000
        "#;
    let asks = |record: &Record| {
        let of_child = record.agent.as_ref().is_some_and(|id| id.as_str() == "job/helper-2");
        of_child && matches!(record.event, Event::ModelRequested(_))
    };
    let mut live = TestRun::new(LEAD).script(script).start().await;
    live.until("the endless child asks", asks).await;
    assert!(live.cancel(CancelTarget::Agent(agent("job/helper-2"))).await);
    let ended = live.end().await;
    assert_eq!(ended.output("job"), "completed cancelled");
    assert!(ended.results("job")[1].is_error);

    let mut live = TestRun::new(LEAD).script(script).start().await;
    live.until("the endless child asks", asks).await;
    assert!(live.cancel(CancelTarget::Task(name("job"))).await);
    let ended = live.end().await;
    assert_eq!(ended.task("job").state, TaskState::Cancelled);
    let outcome = &ended.state.agents()[&agent("job/helper-2")].outcome;
    assert!(matches!(outcome, Some(Outcome::Cancelled { .. })), "{outcome:?}");
}

/// Returns the events of a run without ids, times and tokens.
fn story(ended: &Ended) -> String {
    let tokens = regex::Regex::new(r#"\\*"usage\\*":\{[^}]*\}"#).expect("a pattern");
    let plain = |text: &str| {
        let home = ended.dir.path().display().to_string();
        tokens.replace_all(&text.replace(&home, "RUN"), "TOKENS").into_owned()
    };
    let mut agents = BTreeMap::new();
    for id in ended.agents() {
        let mut calls = Vec::new();
        for record in ended.of_agent(id) {
            if let Event::ToolIntended(call) = &record.event {
                calls.push(json!([
                    call.turn,
                    call.index,
                    call.id,
                    call.name,
                    call.input.to_value()
                ]));
            }
        }
        let mut results: Vec<_> = ended
            .finished(id)
            .iter()
            .map(|result| {
                let text = plain(result.block.as_str());
                (result.turn, result.index, json!([result.name, result.status, text]))
            })
            .collect();
        results.sort_by_key(|(turn, index, _)| (*turn, *index));
        let is_model = ended.state.agents()[&agent(id)].definition.is_some();
        let transcript = if is_model { ended.transcript(id) } else { Vec::new() };
        let transcript: Vec<_> = transcript
            .iter()
            .map(|message| plain(&serde_json::to_string(message).expect("JSON")))
            .collect();
        agents.insert(id, json!({"calls": calls, "results": results, "transcript": transcript}));
    }
    let story = json!({"status": ended.status(), "tasks": ended.completed.tasks, "agents": agents});
    serde_json::to_string_pretty(&story).expect("JSON")
}

#[tokio::test]
async fn a_graph_does_the_same_on_the_scripted_model_and_on_both_wires() {
    let text = r#"
        [compaction]
        preserve_tools = ["delegate"]
        [permissions]
        default = "allow"
        deny = ["bash(rm *)"]
        [agents.lead]
        tools = ["glob"]
        sub_agents = ["counter", "faulty"]
        [agents.counter]
        tools = ["read_file", "bash", "todo_write"]
        [agents.faulty]
        [agents.writer]
        tools = ["write_file", "edit_file", "bash"]
        [tasks.survey]
        agent = "lead"
        prompt = "Count what is there."
        [tasks.report]
        agent = "writer"
        depends_on = ["survey"]
        prompt = "Write: {{ tasks.survey.output }}"
        [tasks.check]
        depends_on = ["report"]
        run = "cat report.txt"
        [tasks.refused]
        agent = "faulty"
        depends_on = ["check"]
        prompt = "go"
        [tasks.after]
        depends_on = ["refused"]
        run = "true"
        "#;
    let script = r#"
        [[rules]]
        agent = "lead"
        turn = 1
        say = "Let me see: \"quotes\", ünïcode\nand lines."
        calls = [{ tool = "glob", input = { pattern = "**/*.txt" } }]
        [[rules]]
        agent = "lead"
        last_tool = "glob"
        calls = [
            { tool = "delegate", for_each = "last[0].text | lines", as = "path", input = { agent = "counter", prompt = "{{ path }}" } },
            { tool = "delegate", input = { agent = "faulty", prompt = "x" } },
            { tool = "delegate", input = { agent = "nobody", prompt = "x" } },
            { tool = "no_such_tool", input = { deep = { list = [1, 2.5, true, "é\n"] } } },
        ]
        [[rules]]
        agent = "lead"
        say = "{% for result in last if not result.is_error %}{{ (result.text | from_json).text }}\n{% endfor %}"
        [[rules]]
        agent = "counter"
        turn = 1
        calls = [
            { tool = "read_file", input = { path = "{{ prompt }}" } },
            { tool = "read_file", input = { path = "../secret" } },
            { tool = "todo_write", input = { todos = [{ content = "count", status = "in_progress" }] } },
            { tool = "bash", input = { command = "wc -l < {{ prompt }}" } },
            { tool = "bash", input = { command = "rm {{ prompt }}" } },
        ]
        [[rules]]
        agent = "counter"
        say = "{{ prompt }} {{ last[3].text | trim }}"
        [[rules]]
        agent = "faulty"
        stop = "refusal"
        [[rules]]
        agent = "writer"
        turn = 1
        calls = [{ tool = "write_file", input = { path = "report.txt", content = "{{ prompt }}" } }]
        [[rules]]
        agent = "writer"
        turn = 2
        calls = [{ tool = "edit_file", input = { path = "report.txt", old_string = "Write: ", new_string = "" } }]
        [[rules]]
        agent = "writer"
        turn = 3
        say = "It is "
        stop = "max_tokens"
        [[rules]]
        agent = "writer"
        say = "written."
        "#;
    let mut stories = Vec::new();
    for host in Host::ALL {
        let ended = TestRun::new(text)
            .script(script)
            .file("a.txt", "1\n2\n3\n")
            .file("sub/b.txt", "1\n")
            .on(host)
            .keep_going()
            .run()
            .await;
        assert_eq!(ended.status(), RunStatus::Partial, "{host:?}");
        assert_eq!(ended.output("check"), "a.txt 3\nsub/b.txt 1", "{host:?}");
        assert_eq!(ended.output("report"), "It is written.", "{host:?}");
        assert_eq!(ended.kind("refused"), FailureKind::Refusal, "{host:?}");
        assert_eq!(ended.because("after"), Some("refused"), "{host:?}");
        assert!(ended.exists("a.txt"), "{host:?}: the denied command did not run");
        stories.push(story(&ended));
    }
    for (story, host) in stories.iter().zip(Host::ALL).skip(1) {
        let pairs = stories[0].lines().zip(story.lines());
        for (scripted, line) in pairs {
            assert_eq!(scripted, line, "{host:?}");
        }
        assert_eq!(stories[0].len(), story.len(), "{host:?}");
    }
}

#[tokio::test]
async fn what_a_lead_may_not_do_binds_its_helpers() {
    let run = async |own: &str| {
        let text = format!(
            "[permissions]\nallow = ['delegate', 'write_file']\n\
             [agents.middle]\ndescription = 'Passes on'\nsub_agents = ['helper']\n{LEAD}"
        )
        .replace(
            "sub_agents = [\"helper\"]\n[agents.helper]",
            &format!("sub_agents = ['middle']\n{own}\n[agents.helper]\ntools = ['write_file']"),
        );
        let script = r#"
            [[rules]]
            agent = "lead"
            turn = 1
            calls = [{ tool = "delegate", input = { agent = "middle", prompt = "go" } }]
            [[rules]]
            agent = "middle"
            turn = 1
            calls = [{ tool = "delegate", input = { agent = "helper", prompt = "go" } }]
            [[rules]]
            agent = "helper"
            turn = 1
            calls = [
                { tool = "write_file", input = { path = "free/a", content = "x" } },
                { tool = "write_file", input = { path = "kept/a", content = "x" } },
            ]
            [[rules]]
            agent = "helper"
            say = "done"
            [[rules]]
            say = "{{ last[0].text }}"
        "#;
        let ended = TestRun::new(&text).script(script).run().await;
        let results = ended.results("job/middle-1/helper-1");
        let made: Vec<_> = results.iter().map(|result| !result.is_error).collect();
        let text = results.iter().map(|result| result.text()).collect::<String>();
        (made, text)
    };
    assert_eq!(run("").await.0, [true, true]);
    let (made, told) = run("permissions = { deny = ['write_file'] }").await;
    assert_eq!(made, [false, false], "{told}");
    assert!(told.contains("the rule `write_file` says so"), "{told}");
    let granting = "permissions = { deny = ['write_file'], grants = ['write_file(free/*)'] }";
    let (made, told) = run(granting).await;
    assert_eq!(made, [true, false], "{told}");
}
