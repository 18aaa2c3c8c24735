//! Agents that go in circles: what they are told, how they end, and who learns of it.

use callsheet::event::{Event, RunStatus};
use callsheet::failure::FailureKind;
use callsheet::turn::{LoopRule, Outcome};

use crate::support::test_run::{Ended, Host, TestRun, agent};

/// One agent that looks at the same files again and again.
const LOOKER: &str = r#"
[agents.looker]
tools = ["glob", "read_file"]
max_turns = 60
[tasks.job]
agent = "looker"
prompt = "go"
"#;

const LOOKS: &str = r#"
[[rules]]
agent = "looker"
say = "I look again"
calls = [{ tool = "glob", input = { pattern = "*" } }]
"#;

fn kinds(ended: &Ended, id: &str) -> Vec<&'static str> {
    let steps = ended.of_agent(id).map(|record| record.event.kind());
    steps.filter(|kind| kind.starts_with("loop.")).collect()
}

fn replies(ended: &Ended, id: &str) -> usize {
    ended.of_agent(id).filter(|record| matches!(record.event, Event::ModelResponded(_))).count()
}

#[tokio::test]
async fn equal_calls_end_within_eight_model_calls_and_hand_over() {
    for host in Host::ALL {
        let ended = TestRun::new(LOOKER).script(LOOKS).file("a.txt", "x").on(host).run().await;
        assert_eq!(ended.kind("job"), FailureKind::NoProgress, "{host:?}");
        assert_eq!(replies(&ended, "job"), 8, "{host:?}");
        assert_eq!(kinds(&ended, "job"), ["loop.noticed", "loop.held", "loop.broken"]);
        let message = &ended.failure("job").message;
        assert!(
            message.contains("`glob`") && message.contains("turns 1, 2, 3, 4, 5, 7"),
            "{message}"
        );
        let partial = match &ended.state.agents()[&agent("job")].outcome {
            Some(Outcome::Failed { partial, .. }) => partial.clone().expect("a partial output"),
            other => panic!("{other:?}"),
        };
        assert_eq!(partial.text, "I look again");
        // No call is made in the turn without tools, nor in the last.
        assert_eq!(ended.finished("job").len(), 6, "{host:?}");
        let held = ended.of_agent("job").filter_map(|record| match &record.event {
            Event::TurnStarted(started) if started.held => Some(started.turn),
            _ => None,
        });
        assert_eq!(held.collect::<Vec<_>>(), [6], "{host:?}");
        if let Host::Loopback(_) = host {
            let told = ended.requests.iter().map(|asked| {
                let text = serde_json::to_string(&asked.messages()).expect("JSON");
                let end = "The agent went in circles: the same call of `glob`";
                (text.matches("You go in circles").count(), text.matches(end).count())
            });
            let wanted = [(0, 0), (0, 0), (0, 0), (0, 0), (1, 0), (2, 0), (2, 0), (2, 1)];
            assert_eq!(told.collect::<Vec<_>>(), wanted);
        }
    }
}

#[tokio::test]
async fn who_is_not_watched_uses_up_its_turns() {
    for off in ["[loops]\nenabled = false\n", "[agents.looker.loops]\non_loop = 'off'\n"] {
        let text = match off.starts_with("[loops]") {
            true => format!("{off}{}", LOOKER.replace("60", "12")),
            false => format!("{}{off}", LOOKER.replace("60", "12")),
        };
        let ended = TestRun::new(&text).script(LOOKS).run().await;
        assert_eq!(ended.kind("job"), FailureKind::MaxTurns);
        assert_eq!(kinds(&ended, "job"), [""; 0]);
        let prints = ended.finished("job").iter().any(|finished| finished.prints.is_some());
        assert!(!prints, "nothing is recorded for an agent that is not watched");
    }
}

#[tokio::test]
async fn an_agent_that_heeds_the_notice_completes() {
    let script = r#"
        [[rules]]
        agent = "looker"
        when = "turn > 4"
        say = "there is one file"
        [[rules]]
        agent = "looker"
        calls = [{ tool = "glob", input = { pattern = "*" } }]
        "#;
    let ended = TestRun::new(LOOKER).script(script).run().await;
    assert_eq!(ended.output("job"), "there is one file");
    assert_eq!(kinds(&ended, "job"), ["loop.noticed"]);
}

#[tokio::test]
async fn what_is_said_in_a_turn_without_tools_is_no_answer() {
    let script = r#"
        [[rules]]
        agent = "looker"
        turn = 6
        say = "I do not know what to do"
        [[rules]]
        agent = "looker"
        when = "turn > 6"
        say = "there is nothing"
        [[rules]]
        agent = "looker"
        calls = [{ tool = "glob", input = { pattern = "*" } }]
        "#;
    let ended = TestRun::new(LOOKER).script(script).run().await;
    assert_eq!(ended.output("job"), "there is nothing");
    assert_eq!(kinds(&ended, "job"), ["loop.noticed", "loop.held"]);
}

#[tokio::test]
async fn a_parent_learns_that_its_child_went_in_circles() {
    let text = r#"
        [agents.lead]
        sub_agents = ["looker"]
        [agents.looker]
        tools = ["glob"]
        max_turns = 60
        [tasks.job]
        agent = "lead"
        prompt = "go"
        "#;
    let script = format!(
        r#"
        [[rules]]
        agent = "lead"
        turn = 1
        calls = [{{ tool = "delegate", input = {{ agent = "looker", prompt = "look" }} }}]
        [[rules]]
        agent = "lead"
        say = "{{{{ (last[0].text | from_json).error }}}}"
        {LOOKS}"#
    );
    let ended = TestRun::new(text).script(&script).run().await;
    assert_eq!(ended.status(), RunStatus::Completed);
    let told = ended.output("job");
    assert!(
        told.starts_with("no_progress: the agent went in circles: the same call of `glob`"),
        "{told}"
    );
}

#[tokio::test]
async fn a_boss_that_gives_the_same_jobs_again_is_stopped() {
    let text = r#"
        [agents.boss]
        sub_agents = ["looker"]
        max_turns = 60
        [agents.looker]
        tools = ["glob"]
        max_turns = 60
        [tasks.job]
        agent = "boss"
        prompt = "go"
        "#;
    let script = format!(
        r#"
        [[rules]]
        agent = "boss"
        calls = [{{ tool = "delegate", for_each = "range(8) | list", as = "n", input = {{ agent = "looker", prompt = "part {{{{ n }}}}" }} }}]
        {LOOKS}"#
    );
    let ended = TestRun::new(text).script(&script).run().await;
    assert_eq!(ended.kind("job"), FailureKind::NoProgress);
    let steps = ended.of_agent("job").filter_map(|record| match &record.event {
        Event::LoopBroken(broken) => Some(broken.circle.rule),
        _ => None,
    });
    assert_eq!(steps.collect::<Vec<_>>(), [LoopRule::Spawn]);
    assert!(ended.agents().len() <= 1 + 5 * 8, "{}", ended.agents().len());
}

#[tokio::test]
async fn an_answer_that_repeats_itself_is_cut() {
    let script = r#"
        [[rules]]
        agent = "looker"
        turn = 1
        say = "{% for n in range(400) %}I will now look at the files once more. {% endfor %}"
        [[rules]]
        agent = "looker"
        say = "one file"
        "#;
    for host in Host::ALL {
        let ended = TestRun::new(LOOKER).script(script).on(host).run().await;
        assert_eq!(ended.output("job"), "one file", "{host:?}");
        assert_eq!(kinds(&ended, "job"), ["loop.noticed"], "{host:?}");
        let first = ended.of_agent("job").find_map(|record| match &record.event {
            Event::ModelResponded(reply) => Some(reply.clone()),
            _ => None,
        });
        let first = first.expect("a reply");
        assert!(first.repeats.is_some() && first.message.as_str().len() < 2_000, "{host:?}");
    }
}

#[tokio::test]
async fn checks_that_fail_alike_end_before_the_rounds_are_used_up() {
    let text = r#"
        [agents.looker]
        tools = ["glob"]
        max_turns = 60
        [tasks.job]
        agent = "looker"
        prompt = "go"
        output_retries = 20
        checks = [{ run = "echo two tests failed; exit 1" }]
        "#;
    let script = "[[rules]]\nagent = 'looker'\nsay = 'it is done'\n";
    let ended = TestRun::new(text).script(script).run().await;
    assert_eq!(ended.kind("job"), FailureKind::NoProgress);
    assert_eq!(kinds(&ended, "job"), ["loop.noticed", "loop.held", "loop.broken"]);
    assert!(replies(&ended, "job") <= 8, "{}", replies(&ended, "job"));
}
