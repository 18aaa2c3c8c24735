//! Finds keys of the configuration that a run no longer uses, and says why.
//!
//! Pure. Reports a key only if it is certain to be unused.

use crate::config::Config;
use crate::id::Name;
use crate::plan::TaskState;
use crate::run_state::{RunState, TaskStatus};
use crate::spec::{AgentSpec, TaskSpec, Work};

/// A key that a run no longer uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedKey {
    /// The key, as it was given.
    pub key: String,
    /// The reason, for people.
    pub why: String,
}

/// Keys of a task that an attempt reads when it begins, and never again.
const TAKEN_AT_THE_START: [&str; 7] =
    ["agent", "prompt", "run", "env", "when", "join", "depends_on"];

/// Returns those of `keys` that are unused in a run that continues from `state` with `config`,
/// in which they are set.
#[must_use]
pub fn unused_keys<'a>(
    state: &RunState,
    config: &Config,
    keys: impl IntoIterator<Item = &'a str>,
) -> Vec<UnusedKey> {
    let sight = Sight { state, config };
    let found = keys.into_iter().filter_map(|key| {
        let parts: Vec<_> = key.split('.').collect();
        Some(UnusedKey { key: key.to_owned(), why: sight.why(&parts)? })
    });
    found.collect()
}

struct Sight<'a> {
    state: &'a RunState,
    config: &'a Config,
}

impl<'a> Sight<'a> {
    fn why(&self, key: &[&str]) -> Option<String> {
        match key {
            ["name"] if !self.tells_its_name() => {
                Some("a run keeps the name with which it began".to_owned())
            }
            ["description"] | ["inputs", _, "description"] => {
                Some("it is only for people who read the file".to_owned())
            }
            ["state", ..] => {
                Some("a fork is stored beside the run from which it is made".to_owned())
            }
            ["entry"] => Some("the tasks of a run are chosen when it is started".to_owned()),
            ["profiles", ..] => Some("set the keys themselves: they override a profile".to_owned()),
            ["inputs", input, "default"] => Some(format!("input `{input}` has its value already")),
            ["tasks", task, rest @ ..] => self.of_task(task, rest),
            ["agents", agent, ..] => {
                let is_used = self.team().any(|(name, _)| name.as_str() == *agent);
                (!is_used).then(|| format!("no remaining task uses agent `{agent}`"))
            }
            ["models", model, ..] => {
                let is_used = self.models().any(|name| name.as_str() == *model);
                (!is_used).then(|| format!("no remaining task calls model `{model}`"))
            }
            ["providers", provider, ..] => {
                let serves = |model: &Name| {
                    let model = self.config.models.get(model);
                    model.is_some_and(|model| model.provider.as_str() == *provider)
                };
                let why = || format!("no remaining task calls a model of `{provider}`");
                (!self.models().any(serves)).then(why)
            }
            _ => None,
        }
    }

    fn of_task(&self, task: &str, rest: &[&str]) -> Option<String> {
        let Some((name, status)) = self.state.tasks().find(|(name, _)| name.as_str() == task)
        else {
            return Some(format!("this run has no task `{task}`"));
        };
        match status.state {
            TaskState::Running if rest.first().is_some_and(|f| TAKEN_AT_THE_START.contains(f)) => {
                let attempt = status.attempt;
                Some(format!(
                    "attempt {attempt} has begun with the earlier value: only a new attempt reads \
                     this one"
                ))
            }
            state if state.is_end() => {
                // Later tasks read its output in the format that is set now.
                let is_read = rest == ["output"]
                    && self.open().any(|(_, task)| task.depends_on.contains(name));
                (!is_read).then(|| format!("task `{task}` has ended: it is {}", state.as_str()))
            }
            _ => None,
        }
    }

    /// Returns the tasks that have not ended.
    fn open(&self) -> impl Iterator<Item = (&'a TaskStatus, &'a TaskSpec)> {
        let tasks = self.config.tasks.iter();
        let known = tasks.filter_map(|task| Some((self.state.task(&task.name)?, task)));
        known.filter(|(status, _)| !status.state.is_end())
    }

    /// Returns the agents that may work from here on.
    fn team(&self) -> impl Iterator<Item = (&'a Name, &'a AgentSpec)> {
        let of_tasks = self.open().flat_map(|(_, task)| task.agents());
        let at_work = self.state.agents().values().filter(|agent| agent.outcome.is_none());
        let at_work = at_work.filter_map(|agent| agent.definition.as_ref());
        self.config.team(of_tasks.chain(at_work)).into_iter()
    }

    /// Returns the models that may be called from here on.
    fn models(&self) -> impl Iterator<Item = &'a Name> {
        self.team().map(|(_, agent)| &agent.model).chain(&self.config.compaction.model)
    }

    /// Returns true if a template of a task that has not ended may show the run's name.
    fn tells_its_name(&self) -> bool {
        let tells = |text: &str| text.contains("run.name") || text.contains("run[");
        self.open().any(|(_, task)| {
            let of_work = match &task.work {
                Work::Agent { prompt, .. } => std::slice::from_ref(prompt),
                Work::Command { .. } | Work::Graph { .. } => &[],
                Work::Approval(approval) if tells(&approval.message) => return true,
                Work::Approval(approval) => &approval.show,
            };
            let texts = of_work.iter().chain(task.env.values());
            texts.chain(&task.when).chain(&task.output_file).any(|text| tells(text))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Missing, Sources, load_text};
    use crate::event::{Draft, Record};
    use crate::id::{AgentId, RunId};
    use crate::output::Output;
    use crate::plan::{TaskCompleted, TaskReady, TaskStarted};
    use crate::run::{Options, created, plan_of};
    use crate::turn::{AgentEnded, AgentSpawned, Outcome, Program};

    const FILE: &str = r#"
version = 1
[providers.p]
kind = "openai"
base_url = "http://127.0.0.1:1/v1"
api_key = { env = "KEY" }
[models.old]
provider = "p"
model = "x"
[models.new]
provider = "p"
model = "x"
[inputs.who]
default = "all"
[agents.a]
model = "old"
instructions = "x"
[agents.b]
model = "new"
instructions = "x"
sub_agents = ["c"]
[agents.c]
model = "new"
instructions = "x"
[tasks.done]
agent = "a"
prompt = "x"
[tasks.begun]
agent = "b"
prompt = "x"
[tasks.next]
run = "true"
depends_on = ["done"]
env = { OF = "{{ tasks.done.output }}" }
"#;

    /// `done` has ended, `begun` is at work, `next` is to come.
    fn state(config: &Config) -> RunState {
        let name = |text: &str| Name::new(text).expect("a name");
        let options = Options::default();
        let plan = plan_of(config, &options).expect("a plan");
        let created = created(config, &options, &plan, RunId::from(uuid::Uuid::nil()));
        let mut drafts = vec![Draft::run(created)];
        for (task, agent) in [("done", "a"), ("begun", "b")] {
            let (task, id) = (name(task), AgentId::main(&name(task), 1));
            let program = Program::Model { agent: name(agent), prompt: "x".into() };
            drafts.push(Draft::task(&task, TaskReady {}));
            drafts.push(Draft::task(
                &task,
                TaskStarted {
                    attempt: 1,
                    agent: Some(id.clone()),
                    instances: None,
                    key: None,
                    item: None,
                },
            ));
            let spawned = AgentSpawned::main(program);
            drafts.push(Draft::agent(&task, &id, spawned));
        }
        let id = AgentId::main(&name("done"), 1);
        let outcome = Outcome::Completed { output: Output::whole("x") };
        let ended = AgentEnded {
            outcome,
            turns: 1,
            usage: Default::default(),
            shortfalls: Default::default(),
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        };
        drafts.push(Draft::agent(&name("done"), &id, ended));
        let completed = TaskCompleted { attempt: 1, output: Output::whole("x") };
        drafts.push(Draft::task(&name("done"), completed));
        let mut state = RunState::default();
        for (seq, Draft { task, agent, event }) in (1..).zip(drafts) {
            let record = Record { seq, epoch: 1, ts_ms: 0, task, agent, event };
            state.apply(&record).expect("a legal record");
        }
        state
    }

    #[test]
    fn what_can_change_nothing_any_more_is_told_with_its_reason() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut sources = Sources::new(directory.path().join("agents.toml"));
        sources.missing_keys = Missing::Allow;
        let config = load_text(FILE, &sources).expect("a configuration");
        let state = state(&config);
        let rows = [
            ("name", "a run keeps the name with which it began"),
            ("state.dir", "a fork is stored beside the run from which it is made"),
            ("entry", "the tasks of a run are chosen when it is started"),
            ("profiles.p.name", "set the keys themselves: they override a profile"),
            ("inputs.who.default", "input `who` has its value already"),
            ("tasks.done.prompt", "task `done` has ended: it is completed"),
            ("tasks.done", "task `done` has ended: it is completed"),
            ("tasks.done.output", ""),
            (
                "tasks.begun.prompt",
                "attempt 1 has begun with the earlier value: only a new attempt reads this one",
            ),
            ("tasks.begun.timeout", ""),
            ("tasks.next.run", ""),
            ("tasks.other.run", "this run has no task `other`"),
            ("agents.a.instructions", "no remaining task uses agent `a`"),
            ("agents.b.instructions", ""),
            ("agents.c.instructions", ""),
            ("models.old.model", "no remaining task calls model `old`"),
            ("models.new.model", ""),
            ("providers.p.base_url", ""),
            ("limits.timeout", ""),
            ("compaction.preset", ""),
        ];
        for (key, wanted) in rows {
            let found = unused_keys(&state, &config, [key]);
            let why: Vec<_> = found.iter().map(|found| found.why.as_str()).collect();
            let wanted: Vec<_> = [wanted].into_iter().filter(|why| !why.is_empty()).collect();
            assert_eq!(why, wanted, "{key}");
        }
    }
}
