//! The words and the JSON of every relation, and the form of an answer.

mod agreement;
mod hostile;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::event::{Event, PauseCause, Record};
use crate::failure::FailureKind;
use crate::id::{AgentId, Name};
use crate::spec::budget::{Measure, Scope};
use crate::spec::hooks::Hook;
use crate::turn::{ApprovalKind, Shortfalls};
use crate::why::Relation;

fn name(text: &str) -> Name {
    Name::of_record(text).expect("a name")
}

fn agent(text: &str) -> AgentId {
    AgentId::from_text(text)
}

fn link(relation: Relation) -> Link {
    Link {
        subject: Subject::Task(name("report")),
        relation,
        since: Moment { seq: 911, ms: 911_000 },
    }
}

/// Each relation with its words for a column (`-` for none), as a sentence, and as JSON.
fn table() -> Vec<(Relation, &'static str, &'static str, &'static str)> {
    let fix = || name("fix");
    let coder = || agent("fix/coder-1");
    let message = || "cargo test said no".to_owned();
    let of = || Some(Subject::Agent(agent("fix")));
    let undone = || Shortfalls { failed_children: 1, children: 3, ..Shortfalls::default() };
    vec![
        (
            Relation::WaitsForDependency { of: fix() },
            "fix",
            "waits for task fix",
            r#"{"relation":"waits_for_dependency","of":"fix"}"#,
        ),
        (
            Relation::WaitsForJoin { done: 1, wanted: 2, all: 4, next: fix() },
            "fix: 1 of 2 completed",
            "waits until 2 of 4 tasks complete: 1 did, fix is next",
            r#"{"relation":"waits_for_join","done":1,"wanted":2,"all":4,"next":"fix"}"#,
        ),
        (
            Relation::WaitsForInstances { open: 3, all: 5, next: name("fix[2]") },
            "3 of 5 instances",
            "waits for 3 of 5 instances, longest for fix[2]",
            r#"{"relation":"waits_for_instances","open":3,"all":5,"next":"fix[2]"}"#,
        ),
        (
            Relation::WaitsForLock { lock: name("repo"), holder: fix(), ahead: 2 },
            "lock repo, held by fix",
            "waits for lock repo, held by fix, behind 2 others",
            r#"{"relation":"waits_for_lock","lock":"repo","holder":"fix","ahead":2}"#,
        ),
        (
            Relation::WaitsForTurn { of: fix(), next: name("fix[0]"), ahead: 0 },
            "its turn among the instances of fix",
            "waits for its turn: fix runs as many instances as it may, fix[0] among them",
            r#"{"relation":"waits_for_turn","of":"fix","next":"fix[0]","ahead":0}"#,
        ),
        (
            Relation::WaitsForSlot { ahead: 1, waiting: 3, running: vec![coder()], taken: 4 },
            "a slot",
            "waits for a slot, taken by @fix/coder-1 and 3 more, behind 1 other",
            r#"{"relation":"waits_for_slot","ahead":1,"waiting":3,"running":["fix/coder-1"],"taken":4}"#,
        ),
        (
            Relation::WaitsForStart { children: 1 },
            "the start of 1 child",
            "waits for the start of 1 child: no slot is free for it",
            r#"{"relation":"waits_for_start","children":1}"#,
        ),
        (
            Relation::WaitsForSpawnRate {
                children: 2,
                rate: "5/10s".parse().expect("a rate"),
                until_ms: 1_004_000,
            },
            "the start of 2 children: 5/10s may begin",
            "waits for the start of 2 children: 5/10s may begin (`max_spawn_rate`), the next in 4 s",
            r#"{"relation":"waits_for_spawn_rate","children":2,"rate":"5/10s","until_ms":1004000}"#,
        ),
        (
            Relation::WaitsForChild { child: coder(), calls: 2 },
            "2 children",
            "waits for 2 children, @fix/coder-1 among them",
            r#"{"relation":"waits_for_child","child":"fix/coder-1","calls":2}"#,
        ),
        (
            Relation::WaitsForCheck { check: agent("fix/check-1") },
            "a check of its answer",
            "waits for the check by @fix/check-1",
            r#"{"relation":"waits_for_check","check":"fix/check-1"}"#,
        ),
        (
            Relation::WaitsForPerson {
                id: "01jq".to_owned(),
                asked: ApprovalKind::Approval,
                message: "Publish?\nIt is final.".to_owned(),
            },
            "you: Publish?",
            "waits for you (approval): Publish?",
            r#"{"relation":"waits_for_person","id":"01jq","asked":"approval","message":"Publish?\nIt is final."}"#,
        ),
        (
            Relation::WaitsForRetry {
                failure: FailureKind::Overloaded,
                attempt: 6,
                until_ms: 1_040_000,
            },
            "retrying in 40 s (overloaded, attempt 6)",
            "tries again in 40 s: overloaded, attempt 6",
            r#"{"relation":"waits_for_retry","failure":"overloaded","attempt":6,"until_ms":1040000}"#,
        ),
        (
            Relation::WaitsForRateLimit { attempt: 2, until_ms: 1_300_000 },
            "retrying in 5 min (rate_limit, attempt 2)",
            "tries again in 5 min: the provider limits the rate of requests, attempt 2",
            r#"{"relation":"waits_for_rate_limit","attempt":2,"until_ms":1300000}"#,
        ),
        (
            Relation::WaitsForQuota {
                provider: name("main"),
                until_ms: 19_000_000,
                reason: "used up".to_owned(),
            },
            "the quota of provider main",
            "waits for the quota of provider main, tried again in 5 h",
            r#"{"relation":"waits_for_quota","provider":"main","until_ms":19000000,"reason":"used up"}"#,
        ),
        (
            Relation::WaitsForDisk { reason: "disk full".to_owned() },
            "disk space",
            "waits for disk space: disk full",
            r#"{"relation":"waits_for_disk","reason":"disk full"}"#,
        ),
        (
            Relation::WaitsForResume { failure: FailureKind::Auth },
            "a resume (auth)",
            "waits for a resume: auth",
            r#"{"relation":"waits_for_resume","failure":"auth"}"#,
        ),
        (
            Relation::WaitsForBudget {
                scope: Scope::Run,
                measure: Measure::Cost,
                message: "the run may cost $2.0000: $1.9000 is spent".to_owned(),
                most_by: vec![agent("fix"), coder()],
            },
            "the budget of the run",
            "waits for a higher budget: the run may cost $2.0000: $1.9000 is spent, most by @fix, @fix/coder-1",
            r#"{"relation":"waits_for_budget","scope":"/","measure":"cost","message":"the run may cost $2.0000: $1.9000 is spent","most_by":["fix","fix/coder-1"]}"#,
        ),
        (
            Relation::LimitedBy {
                failure: FailureKind::Budget,
                message: "task `fix` may make 2 calls: 2 are made".to_owned(),
                of: None,
                scope: Some(Scope::Task(fix())),
            },
            "-",
            "was ended by a limit: budget: task `fix` may make 2 calls: 2 are made",
            r#"{"relation":"limited_by","failure":"budget","message":"task `fix` may make 2 calls: 2 are made","of":null,"scope":"/fix"}"#,
        ),
        (
            Relation::PausedByPerson {
                scope: Scope::Agent(agent("fix")),
                by: "ada@desk/7".to_owned(),
                reason: Some("I look".to_owned()),
            },
            "you: paused by ada@desk/7",
            "rests: agent `fix` is paused by ada@desk/7: I look",
            r#"{"relation":"paused_by_person","scope":"/@fix","by":"ada@desk/7","reason":"I look"}"#,
        ),
        (
            Relation::WaitsForContent { of: fix() },
            "what its task rests on",
            "waits until the tasks before fix are decided anew: it goes on if their results stay the same",
            r#"{"relation":"waits_for_content","of":"fix"}"#,
        ),
        (
            Relation::WaitsForJudgement,
            "the judgement of its answer",
            "waits for the judgement of its answer",
            r#"{"relation":"waits_for_judgement"}"#,
        ),
        (
            Relation::BeingDecided,
            "-",
            "is being decided: nothing is missing",
            r#"{"relation":"being_decided"}"#,
        ),
        (Relation::AboutToAct, "-", "is about to act", r#"{"relation":"about_to_act"}"#),
        (
            Relation::InModelCall { model: Some(name("large")), turn: 3 },
            "model",
            "is in a call of model large (turn 3)",
            r#"{"relation":"in_model_call","model":"large","turn":3}"#,
        ),
        (
            Relation::InTool { tools: vec!["bash".to_owned(), "grep".to_owned()] },
            "bash, grep",
            "runs bash, grep",
            r#"{"relation":"in_tool","tools":["bash","grep"]}"#,
        ),
        (
            Relation::InCompaction,
            "summary",
            "waits for a summary of its context",
            r#"{"relation":"in_compaction"}"#,
        ),
        (
            Relation::InHook { hook: Hook::OnStart },
            "the hook on_start",
            "runs the hook on_start",
            r#"{"relation":"in_hook","hook":"on_start"}"#,
        ),
        (
            Relation::PausedBy { cause: PauseCause::Interrupted, reason: "Ctrl-C".to_owned() },
            "-",
            "is paused: Ctrl-C",
            r#"{"relation":"paused_by","cause":"interrupted","reason":"Ctrl-C"}"#,
        ),
        (
            Relation::NoProcessDrives { pid: 812, by: None },
            "-",
            "stands still: no process drives the run (pid 812 ended without a record)",
            r#"{"relation":"no_process_drives","pid":812,"by":null}"#,
        ),
        (
            Relation::SkippedBecause { reason: "`when` is false: 1 > 2".to_owned() },
            "-",
            "was skipped: `when` is false: 1 > 2",
            r#"{"relation":"skipped_because","reason":"`when` is false: 1 > 2"}"#,
        ),
        (
            Relation::BlockedByFailure { of: fix() },
            "-",
            "was skipped because task fix did not succeed",
            r#"{"relation":"blocked_by_failure","of":"fix"}"#,
        ),
        (
            Relation::FailedBecause {
                failure: FailureKind::CheckFailed,
                message: message(),
                of: of(),
            },
            "-",
            "failed: check_failed: cargo test said no",
            r#"{"relation":"failed_because","failure":"check_failed","message":"cargo test said no","of":{"kind":"agent","name":"fix"}}"#,
        ),
        (
            Relation::CancelledBy { reason: "by request".to_owned(), of: None },
            "-",
            "was cancelled: by request",
            r#"{"relation":"cancelled_by","reason":"by request","of":null}"#,
        ),
        (
            Relation::PartialBecause { undone: undone() },
            "-",
            "left work undone: 1 of 3 children failed",
            r#"{"relation":"partial_because","undone":{"failed_children":1,"children":3}}"#,
        ),
        (
            Relation::LimitedBy {
                failure: FailureKind::MaxTurns,
                message: message(),
                of: None,
                scope: None,
            },
            "-",
            "was ended by a limit: max_turns: cargo test said no",
            r#"{"relation":"limited_by","failure":"max_turns","message":"cargo test said no","of":null}"#,
        ),
        (
            Relation::LoopStopped { rule: "it went in circles: 7 equal calls".to_owned() },
            "-",
            "was ended: it went in circles: 7 equal calls",
            r#"{"relation":"loop_stopped","rule":"it went in circles: 7 equal calls"}"#,
        ),
    ]
}

#[test]
fn every_relation_has_words_and_json() {
    let names = Names::default();
    let mut seen = BTreeSet::new();
    for (relation, column, said, as_json) in table() {
        seen.insert(relation.as_str());
        let link = link(relation);
        let causes = std::slice::from_ref(&link);
        let short = crate::show::why::waits_for(causes, &names, 1_000_000);
        assert_eq!(short.as_deref().unwrap_or("-"), column);
        assert_eq!(sentence(&link, &names, 1_000_000), said);
        let document = link_json(&link);
        assert_eq!(document["relation"], link.relation.as_str());
        assert_eq!(json!(link.relation).to_string(), as_json);
        assert_eq!(document["subject"], json!({"kind": "task", "name": "report"}));
        assert_eq!(document["since"], json!({"seq": 911, "time": "1970-01-01T00:15:11.000Z"}));
        let outlook = outlook(&link, &link.subject);
        assert_eq!(outlook.ends_when.is_some(), outlook.by.is_some(), "{said}");
    }
    assert_eq!(seen.len(), 35, "a relation without a row: {seen:?}");
}

/// A run whose records are made one by one, each a second after the last.
#[derive(Default)]
struct Story(RunState);

impl Story {
    fn of(tasks: &[Value]) -> Self {
        let mut story = Self::default();
        story.says(
            "",
            "run.created",
            &json!({
                "run": "00000000-0000-7000-8000-000000000000", "workflow": "w", "program": "", "config": "",
                "config_hash": "", "inputs": {}, "tasks": tasks,
            }),
        );
        story.says("", "run.opened", &json!({"epoch": 1, "pid": 812}));
        story
    }

    fn tries(&mut self, who: &str, kind: &str, data: &Value) -> bool {
        let agent = who.strip_prefix('@').map(AgentId::from_text);
        let task = who.trim_start_matches('@').split(['/', '~']).next();
        let task = task.filter(|task| !task.is_empty()).map(name);
        let event = Event::decode(kind, &data.to_string()).expect(kind).expect("a known type");
        let seq = self.0.last_seq() + 1;
        let ts_ms = i64::try_from(seq).expect("few") * 1_000;
        let mut after = self.0.clone();
        let is_legal = after.apply(&Record { seq, epoch: 1, ts_ms, task, agent, event }).is_ok();
        if is_legal {
            self.0 = after;
        }
        is_legal
    }

    fn says(&mut self, who: &str, kind: &str, data: &Value) {
        assert!(self.tries(who, kind, data), "{who} {kind}");
    }

    fn lines(&self, about: &Subject, all: bool) -> Vec<String> {
        let answer = Answer::of(&self.0, about, true, self.0.last_ms());
        answer.lines(all, |ms| format!("{} s", ms / 1_000), Some("callsheet do it"))
    }
}

fn task(name: &str, depends_on: &[&str], locks: &[&str]) -> Value {
    json!({"name": name, "agent": "worker", "depends_on": depends_on, "locks": locks})
}

fn begin(story: &mut Story, task: &str) {
    story.says(task, "task.started", &json!({"attempt": 1, "agent": task}));
    let program = json!({"model": {"agent": "worker", "prompt": {"text": "x"}}});
    story.says(&format!("@{task}"), "agent.spawned", &json!({"program": program, "depth": 0}));
}

fn calls(story: &mut Story, agent: &str, tool: &str) -> bool {
    let data = json!({
        "key": "k", "turn": 1, "index": 0, "id": "c", "name": tool, "input": {}, "effect": "pure",
    });
    story.tries(agent, "tool.intended", &data)
}

#[test]
fn an_answer_names_the_chain_what_ends_it_and_the_command() {
    let tasks = [
        task("fix", &[], &["repo"]),
        task("review", &[], &["repo"]),
        task("lint", &[], &[]),
        task("report", &["lint", "review"], &[]),
    ];
    let mut story = Story::of(&tasks);
    for name in ["fix", "review"] {
        story.says(name, "task.ready", &json!({}));
    }
    begin(&mut story, "fix");
    calls(&mut story, "@fix", "bash");
    let report = Subject::Task(name("report"));
    assert_eq!(
        story.lines(&report, false),
        [
            "report  waits for task lint, since 1 s (seq 1) (and 1 other cause)",
            "lint    is being decided: nothing is missing, since 1 s (seq 1)",
            "ends when: the process that drives the run has gone on (by the run); 0 of 4 tasks are done",
            "help: callsheet do it",
        ]
    );
    let review = Subject::Task(name("review"));
    assert_eq!(
        story.lines(&review, false),
        [
            "review  waits for lock repo, held by fix, since 4 s (seq 4)",
            "@fix    runs bash, since 7 s (seq 7)",
            "ends when: the tool ends (by the tool); 0 of 4 tasks are done",
            "help: callsheet do it",
        ]
    );
    assert_eq!(
        story.lines(&report, true)[..2],
        [
            "report  waits for task lint, since 1 s (seq 1)",
            "        also waits for task review, since 1 s (seq 1)",
        ]
    );
    let answer = Answer::of(&story.0, &review, true, 7_000);
    assert_eq!(
        answer.json("R", Some("callsheet cancel R/@fix")),
        json!({
            "v": 1,
            "run": "R",
            "subject": {"kind": "task", "name": "review"},
            "state": "ready",
            "live": true,
            "at": {"seq": 7, "time": "1970-01-01T00:00:07.000Z"},
            "chain": [
                {
                    "relation": "waits_for_lock", "lock": "repo", "holder": "fix", "ahead": 0,
                    "subject": {"kind": "task", "name": "review"}, "object": {"kind": "task", "name": "fix"},
                    "since": {"seq": 4, "time": "1970-01-01T00:00:04.000Z"}, "others": [],
                },
                {
                    "relation": "in_tool", "tools": ["bash"],
                    "subject": {"kind": "agent", "name": "fix"}, "object": null,
                    "since": {"seq": 7, "time": "1970-01-01T00:00:07.000Z"}, "others": [],
                },
            ],
            "cycle": null,
            "ends_when": "the tool ends",
            "by": "the tool",
            "command": "callsheet cancel R/@fix",
        })
    );
}

#[test]
fn a_chain_of_two_hundred_fits_twenty_lines() {
    let names: Vec<String> = (0..200).map(|n| format!("t{n}")).collect();
    let tasks = names.iter().enumerate().map(|(n, name)| {
        let before = n.checked_sub(1).map(|before| names[before].as_str());
        task(name, before.as_slice(), &[])
    });
    let story = Story::of(&tasks.collect::<Vec<_>>());
    let lines = story.lines(&Subject::Task(name("t199")), false);
    assert!(lines.len() <= 20, "{}", lines.len());
    assert_eq!(lines[7], "… 184 more links: --all shows them");
    assert!(lines[16].starts_with("t0 "), "{lines:#?}");
    assert_eq!(story.lines(&Subject::Task(name("t199")), true).len(), 202);
}

#[test]
fn a_cycle_says_that_it_is_one() {
    let story = Story::of(&[task("a", &["b"], &[]), task("b", &["a"], &[])]);
    assert_eq!(
        story.lines(&Subject::Task(name("a")), false)[2..4],
        [
            "these wait for each other: a -> b -> a",
            "ends when: never without help; please report this"
        ]
    );
}
