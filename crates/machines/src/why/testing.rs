//! Runs that are told record by record, for the tests of `why`.

use serde_json::{Value, json};

use super::{Subject, Why};
use crate::event::{Event, Record};
use crate::id::{AgentId, Name};
use crate::run_state::RunState;

pub(super) fn name(text: &str) -> Name {
    Name::of_record(text).expect("a name")
}

/// A run whose records are made one by one, each a second after the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    pub(super) state: RunState,
    epoch: u64,
}

impl Story {
    /// Begins a run of these tasks, each as `run.created` lists it.
    pub(super) fn of(tasks: &[Value]) -> Self {
        let mut story = Self { epoch: 1, ..Self::default() };
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

    /// Lets a process take the run up again.
    pub(super) fn opens_again(&mut self) {
        self.epoch += 1;
        let epoch = self.epoch;
        self.says("", "run.opened", &json!({"epoch": epoch, "pid": 900}));
    }

    /// Adds a record of the run (``), of a task (`fix`) or of an agent (`@fix/coder-1`).
    pub(super) fn says(&mut self, who: &str, kind: &str, data: &Value) {
        let agent = who.strip_prefix('@').map(AgentId::from_text);
        let task =
            who.trim_start_matches('@').split(['/', '~']).next().filter(|task| !task.is_empty());
        let event = Event::decode(kind, &data.to_string()).expect(kind).expect("a known type");
        let seq = self.state.last_seq() + 1;
        let ts_ms = i64::try_from(seq).expect("few") * 1_000;
        let record = Record { seq, epoch: self.epoch, ts_ms, task: task.map(name), agent, event };
        self.state.apply(&record).expect("a legal record");
    }

    /// Makes a task ready.
    pub(super) fn ready(&mut self, tasks: &[&str]) {
        tasks.iter().for_each(|task| self.says(task, "task.ready", &json!({})));
    }

    /// Starts a task that is ready, with its agent.
    pub(super) fn starts(&mut self, task: &str) {
        let id = AgentId::main(&name(task), 1);
        self.says(task, "task.started", &json!({"attempt": 1, "agent": id}));
        self.spawns(&format!("@{id}"), None);
    }

    pub(super) fn spawns(&mut self, agent: &str, parent: Option<&str>) {
        let depth = u32::from(parent.is_some());
        let program = json!({"model": {"agent": "worker", "prompt": {"text": "x"}}});
        self.says(
            agent,
            "agent.spawned",
            &json!({"program": program, "depth": depth, "parent": parent}),
        );
    }

    pub(super) fn calls(&mut self, agent: &str, tool: &str, index: u32) {
        let data = json!({
            "key": format!("{agent}{tool}{index}"), "turn": 1, "index": index, "id": "c", "name": tool, "input": {},
            "effect": "pure",
        });
        self.says(agent, "tool.intended", &data);
    }

    pub(super) fn fails(&mut self, who: &str, kind: &str) {
        let failure = json!({"kind": kind, "message": "so"});
        match who.starts_with('@') {
            true => {
                let outcome = json!({"status": "failed", "failure": failure});
                self.says(
                    who,
                    "agent.ended",
                    &json!({"outcome": outcome, "turns": 1, "usage": {}}),
                );
            }
            false => self.says(who, "task.failed", &json!({"attempt": 1, "failure": failure})),
        }
    }

    pub(super) fn completes(&mut self, who: &str) {
        let output = json!({"text": "done"});
        match who.starts_with('@') {
            true => {
                let outcome = json!({"status": "completed", "output": output});
                self.says(
                    who,
                    "agent.ended",
                    &json!({"outcome": outcome, "turns": 1, "usage": {}}),
                );
            }
            false => self.says(who, "task.completed", &json!({"attempt": 1, "output": output})),
        }
    }

    /// Returns the chain of a subject in one line, at this many seconds after the last record.
    pub(super) fn why(&self, about: &str, is_live: bool, later_s: i64) -> String {
        let now_ms = self.state.last_ms() + later_s * 1_000;
        let why = Why::of(&self.state, is_live, now_ms);
        let chain = why.chain(&subject(about));
        let links = chain.steps.iter().map(|step| {
            let link = &step.link;
            let more = match step.others.len() {
                0 => String::new(),
                more => format!(" +{more}"),
            };
            let mut data = json!(link.relation);
            data.as_object_mut().expect("an object").shift_remove("relation");
            let values: Vec<_> = data.as_object().expect("an object").values().collect();
            let values = values.iter().map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string().replace('"', ""),
            });
            let values = values.collect::<Vec<_>>().join(" ");
            let values = if values.is_empty() { values } else { format!("({values})") };
            let relation = link.relation.as_str();
            format!("{} {relation}{values}{more} @{}", shown(&link.subject), link.since.seq)
        });
        let mut text = links.collect::<Vec<_>>().join(" > ");
        text.extend(chain.cycle.map(|place| format!(" > cycle {place}")));
        text
    }
}

pub(super) fn subject(text: &str) -> Subject {
    match text.strip_prefix('@') {
        _ if text.is_empty() => Subject::Run,
        Some(agent) => Subject::Agent(AgentId::from_text(agent)),
        None => Subject::Task(name(text)),
    }
}

fn shown(subject: &Subject) -> String {
    match subject {
        Subject::Run => "run".to_owned(),
        Subject::Task(name) => name.to_string(),
        Subject::Agent(id) => format!("@{id}"),
    }
}
