//! The status area of runs that are made up, at 80 and 130 columns.

use insta::assert_snapshot;

use super::*;
use crate::event::{Draft, GatewayParked, PlannedTask, RunCreated, RunOpened};
use crate::failure::{Failure, FailureKind};
use crate::id::{CallKey, RunId};
use crate::message::{Json, StopReason, Usage};
use crate::plan::{TaskReady, TaskStarted};
use crate::tool::printing::{Printed, PrintedLine};
use crate::turn::{
    AgentSpawned, Effect, ModelFailed, ModelRequested, ModelResponded, Program, ToolIntended,
};

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A run whose records are made one by one, each a second after the last.
struct Story {
    status: Status,
    seq: u64,
    now_ms: i64,
}

impl Story {
    fn new(tasks: usize) -> Self {
        let planned = |number| PlannedTask::new(name(&format!("part-{number}")));
        let created = RunCreated {
            run: RunId::from(uuid::Uuid::nil()),
            workflow: "w".to_owned(),
            program: String::new(),
            file: Default::default(),
            config: Default::default(),
            files: BTreeMap::new(),
            config_hash: String::new(),
            profile: None,
            plan: None,
            proposed: Vec::new(),
            inputs: Json::encode(&serde_json::json!({})),
            settings: BTreeMap::new(),
            overrides: BTreeMap::new(),
            forked: None,
            keep_going: false,
            strict: false,
            earlier: Default::default(),
            tasks: (0..tasks).map(planned).collect(),
        };
        let mut story = Self { status: Status::default(), seq: 0, now_ms: 0 };
        story.happens(Draft::run(created));
        story.happens(Draft::run(RunOpened::by_this_process(1)));
        story
    }

    fn happens(&mut self, draft: Draft) {
        let Draft { task, agent, event } = draft;
        (self.seq, self.now_ms) = (self.seq + 1, self.now_ms + 1_000);
        let (seq, ts_ms) = (self.seq, self.now_ms);
        self.status.apply(&Record { seq, epoch: 1, ts_ms, task, agent, event });
        assert_eq!(self.status.state.last_seq(), seq, "a legal record");
    }

    fn starts(&mut self, number: usize) -> (Name, AgentId) {
        let task = name(&format!("part-{number}"));
        let agent = AgentId::main(&task, 1);
        self.happens(Draft::task(&task, TaskReady {}));
        let started = TaskStarted {
            attempt: 1,
            agent: Some(agent.clone()),
            instances: None,
            key: None,
            item: None,
        };
        self.happens(Draft::task(&task, started));
        self.spawned(&task, &agent, None);
        (task, agent)
    }

    fn spawned(&mut self, task: &Name, agent: &AgentId, parent: Option<AgentId>) {
        let program = Program::Model { agent: name("worker"), prompt: "x".into() };
        let depth = u32::from(parent.is_some());
        self.happens(Draft::agent(
            task,
            agent,
            AgentSpawned { depth, parent, ..AgentSpawned::main(program) },
        ));
    }

    fn turn(&mut self, task: &Name, agent: &AgentId, turn: u32) {
        let model = name("m");
        let (messages, bytes, head_tokens, expected_tokens) = (1, 1, 0, 0);
        let model_of = model.clone();
        let requested = ModelRequested {
            most_tokens: 0,
            turn,
            attempt: 1,
            model,
            stands_in_for: None,
            messages,
            bytes,
            head_tokens,
            expected_tokens,
            most_usd: None,
        };
        self.happens(Draft::agent(task, agent, requested));
        let usage = Usage { input: 20_000, output: 400, ..Usage::default() };
        let responded = ModelResponded {
            unsettled: None,
            turn,
            model: model_of,
            message: Json::encode(&serde_json::json!({"role": "assistant", "content": []})),
            stop: StopReason::EndTurn,
            usage,
            usage_source: Default::default(),
            cost_usd: Some(0.06),
            context: Default::default(),
            repeats: None,
        };
        self.happens(Draft::agent(task, agent, responded));
    }

    fn calls(&mut self, task: &Name, agent: &AgentId, turn: u32, tool: &str) {
        let run = RunId::from(uuid::Uuid::nil());
        let intended = ToolIntended {
            key: CallKey::derive(run, agent, turn, 0, tool, "{}"),
            turn,
            index: 0,
            id: "c".to_owned(),
            name: tool.to_owned(),
            input: Json::encode(&serde_json::json!({})),
            effect: Effect::Once,
        };
        self.happens(Draft::agent(task, agent, intended));
    }

    fn fails(&mut self, task: &Name, agent: &AgentId, retry_in_ms: u64) {
        let failure = Failure::new(FailureKind::Overloaded, "busy");
        let failed = ModelFailed {
            unsettled: None,
            turn: 1,
            attempt: 6,
            failure,
            retry_in_ms: Some(retry_in_ms),
            next_model: None,
            context_tokens: None,
            window_tokens: None,
            spent: None,
            usage_source: Default::default(),
            cut: false,
        };
        self.happens(Draft::agent(task, agent, failed));
    }

    fn shown(&self, later_ms: i64, width: usize, height: usize) -> String {
        let lines = self.status.lines(self.now_ms + later_ms, width, space(height));
        assert!(lines.len() <= space(height) && lines.len() < height, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
        lines.join("\n")
    }
}

#[test]
fn a_run_that_has_begun() {
    let mut story = Story::new(3);
    assert_snapshot!(story.shown(0, 80, 24), @r"
    [--------------------] tasks 0/3 done, 3 waiting · 00:01
    0 turns · 0 in, 0 out
    ");
    let (task, agent) = story.starts(0);
    story.turn(&task, &agent, 1);
    story.calls(&task, &agent, 1, "bash");
    assert_snapshot!(story.shown(500, 80, 24), @r"
    [--------------------] tasks 0/3 done, 1 running, 2 waiting · 00:07
    1 turn · 20.0k in, 400 out · $0.06
      part-0 t1 bash 0 s · 20.4k · $0.06
    ");
}

#[test]
fn thirty_agents_with_trouble() {
    let mut story = Story::new(40);
    for number in 0..6 {
        let (task, agent) = story.starts(number);
        for turn in 1..=3 {
            story.turn(&task, &agent, turn);
        }
        match number {
            0 => story.fails(&task, &agent, 900_000),
            1 => story.calls(&task, &agent, 3, "bash"),
            2 => {
                for child in 1..=25 {
                    let child = agent.child(&name("reader"), child);
                    story.spawned(&task, &child, Some(agent.clone()));
                    story.turn(&task, &child, 1);
                }
                story.calls(&task, &agent, 3, "delegate");
            }
            _ => {}
        }
    }
    let parked = GatewayParked {
        provider: name("main"),
        for_ms: 12_000,
        reason: "x".to_owned(),
        quota: None,
    };
    story.happens(Draft::run(parked));
    story.status.set_asking(vec![AgentId::from_text("part-4")]);
    assert_snapshot!(story.shown(2_000, 80, 24), @r"
    tasks 0/40 done, 6 running, 34 waiting · 25 children · 02:16
    43 turns · 860.0k in, 17.2k out · $2.58, $1.14/min
    waits for you: part-4
    retrying: provider main in 10 s, part-0 in 13 min (overloaded, attempt 7)
    ! part-1          t3 bash 115 s · 61.2k · $0.18
      part-0          t3 retrying in 13 min (overloaded, attempt 7) 2 min · 61.2k ·…
      part-2/reader-1 t1 103 s · 20.4k · $0.06
      part-2/reader-2 t1 100 s · 20.4k · $0.06
      part-2/reader-3 t1 97 s · 20.4k · $0.06
      part-2/reader-4 t1 94 s · 20.4k · $0.06
      part-2/reader-5 t1 91 s · 20.4k · $0.06
      part-2/reader-6 t1 88 s · 20.4k · $0.06
      part-2/reader-7 t1 85 s · 20.4k · $0.06
      part-2/reader-8 t1 82 s · 20.4k · $0.06
      part-2/reader-9 t1 79 s · 20.4k · $0.06
      19 more running: part-2 16, part-3 1, part-4 1, part-5 1
    ");
    assert_snapshot!(story.shown(2_000, 130, 50), @r"
    [--------------------] tasks 0/40 done, 6 running, 34 waiting · 25 children · 02:16
    43 turns · 860.0k in, 17.2k out · $2.58, $1.14/min
    waits for you: part-4
    retrying: provider main in 10 s, part-0 in 13 min (overloaded, attempt 7)
    ! part-1           t3 bash 115 s · 61.2k · $0.18
      part-0           t3 retrying in 13 min (overloaded, attempt 7) 2 min · 61.2k · $0.18
      part-2/reader-1  t1 103 s · 20.4k · $0.06
      part-2/reader-2  t1 100 s · 20.4k · $0.06
      part-2/reader-3  t1 97 s · 20.4k · $0.06
      part-2/reader-4  t1 94 s · 20.4k · $0.06
      part-2/reader-5  t1 91 s · 20.4k · $0.06
      part-2/reader-6  t1 88 s · 20.4k · $0.06
      part-2/reader-7  t1 85 s · 20.4k · $0.06
      part-2/reader-8  t1 82 s · 20.4k · $0.06
      part-2/reader-9  t1 79 s · 20.4k · $0.06
      part-2/reader-10 t1 76 s · 20.4k · $0.06
      part-2/reader-11 t1 73 s · 20.4k · $0.06
      part-2/reader-12 t1 70 s · 20.4k · $0.06
      part-2/reader-13 t1 67 s · 20.4k · $0.06
      part-2/reader-14 t1 64 s · 20.4k · $0.06
      part-2/reader-15 t1 61 s · 20.4k · $0.06
      part-2/reader-16 t1 58 s · 20.4k · $0.06
      part-2/reader-17 t1 55 s · 20.4k · $0.06
      part-2/reader-18 t1 52 s · 20.4k · $0.06
      part-2/reader-19 t1 49 s · 20.4k · $0.06
      part-2/reader-20 t1 46 s · 20.4k · $0.06
      part-2/reader-21 t1 43 s · 20.4k · $0.06
      part-2/reader-22 t1 40 s · 20.4k · $0.06
      part-2/reader-23 t1 37 s · 20.4k · $0.06
      part-2/reader-24 t1 34 s · 20.4k · $0.06
      part-2/reader-25 t1 31 s · 20.4k · $0.06
      part-3           t3 21 s · 61.2k · $0.18
      2 more running: part-4 1, part-5 1
    ");
}

#[test]
fn three_hundred_agents_on_a_small_and_on_a_large_terminal() {
    let mut story = Story::new(1);
    let (lead, lead_agent) = story.starts(0);
    for number in 1..=300 {
        let child = lead_agent.child(&name("reader"), number);
        story.spawned(&lead, &child, Some(lead_agent.clone()));
        story.turn(&lead, &child, 1);
    }
    let child = lead_agent.child(&name("reader"), 2);
    story.calls(&lead, &child, 1, "bash");
    let line = PrintedLine { text: "Compiling x v1.0".to_owned(), is_error: true };
    let printed = Printed { missed: 0, lines: [line].into() };
    story.status.note_printed(&child, &printed);
    assert_snapshot!(story.shown(0, 40, 8), @r"
    tasks 0/1 done, 1 running · 300 childre…
    300 turns · 6.0M in, 120.0k out · $18.0…
      part-0 300 children 15 min · 6.1M · $…
      300 more running: part-0 300
    ");
    assert_snapshot!(story.shown(0, 80, 24), @r"
    [--------------------] tasks 0/1 done, 1 running · 300 children · 15:05
    300 turns · 6.0M in, 120.0k out · $18.00, $1.19/min
      part-0           300 children 15 min · 6.1M · $18.00
      part-0/reader-1  t1 14 min · 20.4k · $0.06
      part-0/reader-2  t1 bash 0 s · 20.4k · $0.06 | Compiling x v1.0
      part-0/reader-3  t1 14 min · 20.4k · $0.06
      part-0/reader-4  t1 14 min · 20.4k · $0.06
      part-0/reader-5  t1 14 min · 20.4k · $0.06
      part-0/reader-6  t1 14 min · 20.4k · $0.06
      part-0/reader-7  t1 14 min · 20.4k · $0.06
      part-0/reader-8  t1 14 min · 20.4k · $0.06
      part-0/reader-9  t1 14 min · 20.4k · $0.06
      part-0/reader-10 t1 14 min · 20.4k · $0.06
      part-0/reader-11 t1 14 min · 20.4k · $0.06
      part-0/reader-12 t1 14 min · 20.4k · $0.06
      288 more running: part-0 288
    ");
    let large = story.shown(0, 130, 50);
    assert_eq!(large.lines().count(), space(50), "{large}");
}

/// The milestones about tasks that run long, so many milliseconds after the last record.
fn still(story: &mut Story, later_ms: i64) -> Option<(Option<String>, String)> {
    let milestone = story.status.take_still_running(story.now_ms + later_ms)?;
    Some((milestone.name, milestone.text))
}

#[test]
fn a_task_that_runs_long_is_named_at_growing_intervals() {
    let mut story = Story::new(6);
    let (task, agent) = story.starts(0);
    story.turn(&task, &agent, 1);
    story.calls(&task, &agent, 1, "bash");
    // It began 3 s before the last record.
    assert_eq!(still(&mut story, 296_000), None);
    let of = Some("part-0".to_owned());
    let text = "still running after 5 min: turn 1, waits for bash, $0.06, nothing new for 4 min";
    assert_eq!(still(&mut story, 297_000), Some((of, text.to_owned())));
    assert_eq!(still(&mut story, 596_000), None);
    let (_, text) = still(&mut story, 597_000).expect("after 10 minutes");
    assert!(text.starts_with("still running after 10 min"), "{text}");
    assert_eq!(still(&mut story, 1_196_000), None, "the next time is after 20 minutes");
    // Others that run long share a line, and a child is part of its task.
    for number in 1..6 {
        let (task, agent) = story.starts(number);
        story.spawned(&task, &agent.child(&name("reader"), 1), Some(agent.clone()));
    }
    let (of, text) = still(&mut story, 1_200_000).expect("all of them");
    assert_eq!(of, None);
    assert!(
        text.starts_with("6 tasks are still running, the longest for 20 min: part-0 ("),
        "{text}"
    );
    assert!(text.ends_with(", and 3 more"), "{text}");
    let ended = crate::turn::AgentEnded {
        outcome: crate::turn::Outcome::Cancelled { reason: "x".to_owned() },
        turns: 1,
        usage: Usage::default(),
        shortfalls: Default::default(),
        run_by_others: Vec::new(),
        run_by_others_incomplete: false,
    };
    story.happens(Draft::agent(&task, &agent, ended));
    let (_, text) = still(&mut story, 9_000_000).expect("the others");
    assert!(text.starts_with("5 tasks"), "{text}");
}

#[test]
fn a_large_fan_out_is_named_at_its_quarters() {
    for (count, expected) in [
        (
            40,
            &[
                "10 of 40 instances have ended (25 %)",
                "20 of 40 instances have ended (50 %)",
                "30 of 40 instances have ended (75 %)",
            ][..],
        ),
        (19, &[]),
    ] {
        let mut story = Story::new(2);
        let task = name("part-0");
        story.happens(Draft::task(&task, TaskReady {}));
        let keys = (0..count).map(|number| format!("f{number}")).collect();
        let instances = crate::plan::Instances { keys, hash: "h".to_owned(), seen: None };
        let instances = Some(instances);
        let started = TaskStarted { attempt: 1, agent: None, instances, key: None, item: None };
        story.happens(Draft::task(&task, started));
        let mut passed = Vec::new();
        for number in 0..count {
            let reason = "x".to_owned();
            let cancelled = crate::plan::TaskCancelled { reason };
            story.happens(Draft::task(&task.instance(number), cancelled));
            passed.extend(story.status.take_passed());
        }
        assert!(passed.iter().all(|one| one.name.as_deref() == Some("part-0")), "{passed:?}");
        let texts: Vec<_> = passed.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, expected);
    }
}
