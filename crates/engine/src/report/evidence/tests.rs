//! Tests of the fold of evidence, on records of calls.

use serde_json::json;

use super::*;
use crate::failure::{Failure, FailureKind};
use crate::output::Stored;
use crate::plan::TaskCompleted;
use crate::turn::{AgentEnded, AgentSpawned, CheckPlace, Effect};

/// Makes records and folds them.
#[derive(Default)]
struct Journal {
    fold: EvidenceFold,
    seq: u64,
}

impl Journal {
    fn add(&mut self, task: &str, agent: Option<&str>, event: impl Into<Event>) {
        self.seq += 1;
        let task = Some(Name::of_record(task).expect("a name"));
        let agent = agent.map(AgentId::from_text);
        let (seq, event) = (self.seq, event.into());
        self.fold.apply(&Record { seq, epoch: 1, ts_ms: 0, task, agent, event });
    }

    /// Announces and begins a call. Returns its key.
    fn begin(
        &mut self,
        agent: &str,
        tool: &str,
        input: &serde_json::Value,
        change: Option<FileChange>,
    ) -> CallKey {
        let (input, index) = (Json::encode(input), u32::try_from(self.seq).expect("small"));
        let run = crate::id::RunId::from(uuid::Uuid::nil());
        let id = AgentId::from_text(agent);
        let key = CallKey::derive(run, &id, 1, index, tool, input.as_str());
        let (name, effect) = (tool.to_owned(), Effect::Once);
        let intended = ToolIntended {
            key: key.clone(),
            turn: 1,
            index,
            id: "x".to_owned(),
            name,
            input,
            effect,
        };
        let task = id.possible_tasks().next().expect("a task").to_owned();
        self.add(&task, Some(agent), intended);
        let started = ToolStarted { key: key.clone(), pgid: None, starttime: None, change };
        self.add(&task, Some(agent), started);
        key
    }

    fn end(
        &mut self,
        agent: &str,
        tool: &str,
        key: CallKey,
        status: ToolStatus,
        code: Option<i32>,
    ) {
        let finished = ToolFinished {
            exit_code: code,
            took_ms: 1,
            ..ToolFinished::new(key, 1, 0, tool.to_owned(), status, Json::encode(&json!({})))
        };
        let id = AgentId::from_text(agent);
        let task = id.possible_tasks().next().expect("a task").to_owned();
        self.add(&task, Some(agent), finished);
    }

    fn writes(&mut self, agent: &str, path: &str, status: ToolStatus) {
        let input = json!({"path": path, "content": "1\n2\n"});
        let answer = String::new();
        let change = FileChange {
            path: path.to_owned(),
            pre: None,
            post: "h".to_owned(),
            answer,
            ..FileChange::default()
        };
        let key = self.begin(agent, "write_file", &input, Some(change));
        self.end(agent, "write_file", key, status, None);
    }

    fn runs(&mut self, agent: &str, line: &str, code: i32) {
        let key = self.begin(agent, "bash", &json!({"command": line}), None);
        let status = if code == 0 { ToolStatus::Ok } else { ToolStatus::Error };
        self.end(agent, "bash", key, status, Some(code));
    }

    fn of(self, task: &str) -> TaskEvidence {
        let evidence = self.fold.finish();
        evidence.of(&Name::of_record(task).expect("a name")).cloned().unwrap_or_default()
    }
}

#[test]
fn changes_of_children_count_and_failed_ones_do_not() {
    let mut journal = Journal::default();
    journal.writes("fix", "./a.rs", ToolStatus::Ok);
    journal.writes("fix/helper-1", "b.rs", ToolStatus::Ok);
    journal.writes("fix", "c.rs", ToolStatus::Error);
    journal.writes("fix", "d.rs", ToolStatus::Unknown);
    journal.writes("other", "e.rs", ToolStatus::Ok);
    let found = journal.of("fix");
    let files: Vec<_> = found
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.added, file.removed, file.calls, file.unknown))
        .collect();
    assert_eq!(
        files,
        [
            ("a.rs", Some(2), Some(0), 1, 0),
            ("b.rs", Some(2), Some(0), 1, 0),
            ("d.rs", None, None, 0, 1)
        ]
    );
    assert!(found.files[0].created && found.files[0].hash.as_deref() == Some("h"));
    let codes: Vec<_> = found.warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, ["change_unknown"]);
}

#[test]
fn a_test_counts_if_it_began_after_the_last_edit() {
    /// What happens, how, if the last test of `fix` came after its last edit, and the warnings.
    type Row = (&'static str, fn(&mut Journal), Option<Option<bool>>, &'static [&'static str]);
    let table: [Row; 8] = [
        ("no test", |j| j.writes("fix", "a", ToolStatus::Ok), None, &[]),
        (
            "after",
            |j| {
                j.writes("fix", "a", ToolStatus::Ok);
                j.runs("fix", "cd x && cargo test", 0);
            },
            Some(Some(true)),
            &[],
        ),
        (
            "before",
            |j| {
                j.runs("fix/helper-1", "cargo test", 0);
                j.writes("fix", "a", ToolStatus::Ok);
            },
            Some(Some(false)),
            &["stale_test"],
        ),
        (
            "before, and another task tests later",
            |j| {
                j.runs("fix", "cargo test", 0);
                j.writes("fix", "a", ToolStatus::Ok);
                j.runs("verify", "make check", 0);
            },
            Some(Some(false)),
            &[],
        ),
        (
            "another task tested before",
            |j| {
                j.runs("baseline", "cargo test", 0);
                j.writes("fix", "a", ToolStatus::Ok);
            },
            None,
            &["stale_test"],
        ),
        (
            "it began while the edit was at work",
            |j| {
                let input = json!({"path": "a", "content": ""});
                let edit = j.begin("fix", "write_file", &input, None);
                let test = j.begin("fix", "bash", &json!({"command": "pytest"}), None);
                j.end("fix", "write_file", edit, ToolStatus::Ok, None);
                j.end("fix", "bash", test, ToolStatus::Ok, Some(0));
            },
            Some(Some(false)),
            &["stale_test"],
        ),
        (
            "an edit that may have happened",
            |j| {
                j.runs("fix", "pytest", 1);
                j.writes("fix", "a", ToolStatus::Unknown);
            },
            Some(Some(false)),
            &["stale_test", "test_failed", "change_unknown"],
        ),
        (
            "no edit",
            |j| {
                j.runs("fix", "pytest | tail", 0);
                j.runs("fix", "ls", 0);
            },
            Some(None),
            &[],
        ),
    ];
    for (what, play, after, warnings) in table {
        let mut journal = Journal::default();
        play(&mut journal);
        let found = journal.of("fix");
        assert_eq!(found.last_test.map(|test| test.after_last_edit), after, "{what}");
        let codes: Vec<_> = found.warnings.iter().map(|warning| warning.code).collect();
        assert_eq!(codes, warnings, "{what}");
    }
}

#[test]
fn an_exit_code_that_hides_the_tests_is_no_verdict() {
    let mut journal = Journal::default();
    journal.runs("a", "cargo test 2>&1 | tail -5", 0);
    journal.runs("b", "cargo test", 101);
    journal.runs("c", "cargo test && cargo clippy", 0);
    let evidence = journal.fold.finish();
    let passed = |task: &str| {
        let found = evidence.of(&Name::new(task).expect("a name")).expect("evidence");
        let test = found.last_test.as_ref().expect("a test");
        (test.exit_code, test.passed)
    };
    assert_eq!(passed("a"), (Some(0), None));
    assert_eq!(passed("b"), (Some(101), Some(false)));
    assert_eq!(passed("c"), (Some(0), Some(true)));
}

#[test]
fn outputs_have_their_hashes_and_a_new_one_replaces_the_old() {
    let mut journal = Journal::default();
    let stored = Stored { hash: "s".to_owned(), bytes: 9, dropped: 0 };
    let partial = Output { text: "p".to_owned(), stored: Some(stored) };
    let failure = Failure::new(FailureKind::MaxTurns, "x");
    let outcome = Outcome::Failed { failure, partial: Some(partial) };
    let (turns, usage, shortfalls) = Default::default();
    journal.add(
        "a",
        Some("a"),
        AgentEnded {
            outcome,
            turns,
            usage,
            shortfalls,
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        },
    );
    for output in ["one", "two"].map(Output::whole) {
        journal.add("a", None, TaskCompleted { attempt: 1, output });
    }
    let found = journal.of("a").artifacts;
    let hash = blake3::hash(b"two").to_hex().to_string();
    let agent = Some(AgentId::from_text("a"));
    let wanted = [
        Artifact { kind: "partial", agent, hash: "s".to_owned(), bytes: 9, stored: true },
        Artifact { kind: "output", agent: None, hash, bytes: 3, stored: false },
    ];
    assert_eq!(found, wanted);
}

#[test]
fn a_check_counts_by_its_verdict_and_the_last_one_speaks() {
    let spawned = |program, index| AgentSpawned {
        check: Some(CheckPlace { round: 1, index }),
        ..AgentSpawned::main(program)
    };
    let agent =
        || Program::Model { agent: Name::new("judge").expect("a name"), prompt: "x".into() };
    let ended = |text: &str| {
        let outcome = Outcome::Completed { output: Output::whole(text) };
        let (turns, usage, shortfalls) = Default::default();
        AgentEnded {
            outcome,
            turns,
            usage,
            shortfalls,
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        }
    };
    let mut journal = Journal::default();
    for (id, answer) in [("fix/check-1", "pass"), ("fix/check-2", "fail\nno tests")] {
        journal.add("fix", Some(id), spawned(agent(), 0));
        journal.add("fix", Some(id), ended(answer));
    }
    // A child of a definition that is called `check` is none.
    journal.add("fix", Some("fix/check-3"), AgentSpawned::main(agent()));
    journal.add("fix", Some("fix/check-3"), ended("pass"));
    let found = journal.of("fix");
    let passed: Vec<_> = found.checks.iter().map(|check| check.passed).collect();
    assert_eq!(passed, [Some(true), Some(false)]);
    assert_eq!(found.warnings[0].code, "check_failed");
    let brief = found.brief().expect("a line");
    assert_eq!(brief, "1 of 2 checks passed; warning: the check fix/check-2 failed");
}
