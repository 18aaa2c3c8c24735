//! Templates and expressions of tasks: what a machine wants to have evaluated, and the evaluation.
//!
//! An expression may take long, or call code that panics, so no decision evaluates one: the machine asks for
//! it by an action and decides about the task again when the result is there. An evaluation holds all that it
//! needs, and shares the outputs that it names. It sees the tasks whose ends are recorded, so that the number
//! of the last record says what it saw. Pure: a forecast makes the same evaluations at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::items::Items;
use super::scope::{self, Inputs, Item, Scope};

use crate::failure::{Failure, FailureKind};
use crate::id::{Name, RunId};
use crate::output::Text;
use crate::spec::acceptance::CheckWork;
use crate::spec::{TaskSpec, Work};
use crate::template::{self, Known};
use crate::turn::question::Shown;
use crate::turn::{CheckPlace, Command, Program};

/// Sentences after the prompt of an agent that makes a check.
const VERDICT: &str = "\n\nAnswer in this form: the first line is the single word `pass` or the single \
    word `fail`. After `fail`, the next lines say what is wrong and what would mend it.";

/// What is to be evaluated for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Its `when`.
    When,
    /// The program of its next attempt.
    Program,
    /// The question that it asks.
    Question,
    /// The items of its fan-out.
    Items,
    /// The condition of its loop, after this round.
    Until(u32),
    /// The program of a check of its answer, in this round of the attempt.
    Check(CheckPlace, u32),
    /// The path of its `output_file`.
    OutputFile,
}

impl Wanted {
    /// Returns true if there is nothing to evaluate: a program without templates.
    pub(super) fn is_plain(self, spec: &TaskSpec) -> bool {
        let prompt = match &spec.work {
            Work::Agent { prompt, .. } => Some(prompt),
            Work::Command { .. } | Work::Approval(_) | Work::Graph { .. } => None,
        };
        let own = [&spec.stdin, &spec.cwd, &spec.idempotency_key];
        let texts = spec.env.values().chain(prompt).chain(own.into_iter().flatten());
        let has_template = |text: &String| text.contains('{');
        self == Self::Program && spec.context.is_empty() && !texts.into_iter().any(has_template)
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
pub enum Evaluated {
    /// An expression is true, or not.
    Truth(bool),
    /// A program.
    Program(Program),
    /// The message of a question, and the values that it shows.
    Question(String, Vec<Shown>),
    /// The items of a fan-out.
    Items(Arc<Items>),
    /// A text.
    Text(String),
}

/// The templates of one task that are to be rendered, with the values that they name.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The task.
    pub task: Name,
    /// The number by which the machine knows it.
    pub number: u64,
    pub(super) wanted: Wanted,
    pub(super) spec: TaskSpec,
    pub(super) run: RunId,
    pub(super) workflow: String,
    pub(super) inputs: Inputs,
    pub(super) ended: BTreeMap<String, Known>,
    pub(super) item: Option<Item>,
    /// The answer that is judged.
    pub(super) answer: Option<Known>,
    pub(super) most_instances: usize,
    /// The number of the last record that it saw.
    pub(super) seen: u64,
}

impl Evaluation {
    /// Evaluates it. The same evaluation always gives the same result.
    ///
    /// # Errors
    /// Returns the failure of the task.
    pub fn evaluate(&self) -> Result<Evaluated, Failure> {
        let Self { spec, .. } = self;
        let failed = |(key, error): scope::Unrendered| scope::template_failure(spec, &key, &error);
        match self.wanted {
            Wanted::When => {
                let when = spec.when.as_deref().unwrap_or("true");
                let values = self.scope().values(spec).known();
                let truth =
                    template::is_true(when, &values).map_err(|error| ("when".into(), error));
                truth.map(Evaluated::Truth).map_err(failed)
            }
            Wanted::Program => self.scope().program(spec).map(Evaluated::Program).map_err(failed),
            Wanted::Question => {
                let Work::Approval(approval) = &spec.work else { return Err(mixed_up()) };
                let asked = self.scope().approval(spec, approval);
                asked.map(|(message, shown)| Evaluated::Question(message, shown)).map_err(failed)
            }
            Wanted::Items => {
                let values = self.scope().values(spec);
                let items = Items::read(spec, values.clone(), self.most_instances)?;
                items.write_apart(spec, values)?;
                Ok(Evaluated::Items(Arc::new(Items { seen: self.seen, ..items })))
            }
            Wanted::Until(round) => {
                let until = spec.acceptance.repeat.as_ref().map_or("true", |repeat| &repeat.until);
                let truth = template::is_true(until, self.values_of_answer(round));
                truth.map(Evaluated::Truth).map_err(|error| failed(("until".into(), error)))
            }
            Wanted::Check(at, round) => self.check(at, round),
            Wanted::OutputFile => {
                let path = spec.output_file.as_deref().unwrap_or_default();
                let path = template::render(path, self.scope().values(spec).known());
                path.map(Evaluated::Text).map_err(|error| failed(("output_file".into(), error)))
            }
        }
    }

    /// Returns the failure of the task if the evaluation came to no end of its own.
    pub fn failure(&self, reason: &str) -> Failure {
        Failure::new(FailureKind::Template, format!("`{}`: {reason}", self.what()))
    }

    /// Returns the key that is evaluated, or what holds it.
    pub fn what(&self) -> &'static str {
        match self.wanted {
            Wanted::When => "when",
            Wanted::Program => "the templates of its program",
            Wanted::Question => "approval",
            Wanted::Items => "foreach",
            Wanted::Until(_) => "until",
            Wanted::Check(..) => "checks",
            Wanted::OutputFile => "output_file",
        }
    }

    fn scope(&self) -> Scope<'_> {
        let Self { run, workflow, inputs, ended, item, .. } = self;
        Scope { run: *run, workflow, inputs, ended, item: item.as_ref() }
    }

    /// Renders the program of a check.
    fn check(&self, at: CheckPlace, round: u32) -> Result<Evaluated, Failure> {
        let Some(check) = self.spec.acceptance.checks.get(at.index as usize) else {
            return Err(mixed_up());
        };
        let values = self.values_of_answer(round);
        let program = match &check.work {
            CheckWork::Command { run, env } => {
                let key = format!("checks[{}].env", at.index);
                let env = self.scope().variables(&self.spec, &key, env, &values);
                let env =
                    env.map_err(|(key, error)| scope::template_failure(&self.spec, &key, &error))?;
                // What judges an answer changes nothing, so it may run again.
                let (run, idempotent) = (run.clone(), true);
                Program::Command(Command { run, env, idempotent, ..Command::default() })
            }
            CheckWork::Agent { agent, prompt } => {
                let prompt = template::render(prompt, &values).map_err(|error| {
                    let key = format!("checks[{}].prompt", at.index);
                    scope::template_failure(&self.spec, &key, &error)
                })?;
                let prompt = Text::from(format!("{prompt}{VERDICT}"));
                Program::Model { agent: agent.clone(), prompt }
            }
        };
        Ok(Evaluated::Program(program))
    }

    /// Returns the values that the templates of checks and `until` may name.
    fn values_of_answer(&self, round: u32) -> Known {
        let mut values = self.scope().values(&self.spec);
        values.set("output", self.answer.clone().unwrap_or_default());
        values.set("iteration", Known::of(&round));
        values.known()
    }
}

/// Returns the failure of a task whose evaluation gave the result of another one, which is a bug.
pub fn mixed_up() -> Failure {
    Failure::new(FailureKind::Internal, "an evaluation gave the result of another one")
}
