//! Checks the outputs of tasks and writes them to their `output_file`.
//!
//! Runs in tasks beside the supervisor's mailbox, because it reads and writes files.

use std::fmt::Display;
use std::sync::Arc;

use super::evaluations::{Evaluations, WAY_ON};
use super::written::WrittenFiles;
use crate::actor::services::Services;
use crate::actor::work::{self, Helper};
use crate::failure::{Failure, FailureKind};
use crate::foreign::Panicked;
use crate::id::{AgentId, Name};
use crate::journal::JournalError;
use crate::message::Json;
use crate::output::Output;
use crate::run_machine::Made;
pub(super) use crate::run_machine::evaluation::{Evaluated, Evaluation, mixed_up};
use crate::schema::Schema;
use crate::spec::acceptance::Acceptance;
use crate::spec::{OutputFormat, TaskSpec};
use crate::template::Known;

/// The check of a task's output.
pub(super) struct Check {
    pub(super) services: Arc<Services>,
    pub(super) evaluations: Evaluations,
    pub(super) written: WrittenFiles,
    /// The task, or the instance of a fan-out.
    pub(super) task: Name,
    pub(super) spec: TaskSpec,
    /// True if a later task reads the output as a file.
    pub(super) is_read: bool,
    /// True if the output is accepted when its form is right.
    pub(super) is_last: bool,
}

impl Check {
    /// Checks the form of an output, and if it is the last one, writes it to the task's `output_file` at
    /// `path` and stores it if a later task reads it as a file. Returns the value that templates see and
    /// the output as it is recorded, or the failure of the task if the output does not have the form that
    /// the task declares or cannot be written.
    ///
    /// # Errors
    /// Returns an error if the output is in the result store and cannot be read back.
    pub(super) async fn of(
        self,
        output: Made,
        path: Option<Box<Evaluation>>,
    ) -> Result<Result<(Known, Output), Failure>, JournalError> {
        let output = match output {
            Made::Whole(output) => output,
            Made::Parts(value) => return Ok(self.of_parts(value).await),
        };
        let whole = self.services.whole_text(&output).await?;
        Ok(self.of_whole(output, whole, path).await)
    }

    /// Returns the output that is put together from outputs which were checked and written one by one.
    async fn of_parts(self, value: Known) -> Result<(Known, Output), Failure> {
        let parts = value.clone();
        let text = work::blocking(Helper::OutputRead, move || Made::Parts(parts).output()).await;
        let output = self.services.bounded(text.map_err(|panic| crashed(&panic))?).await;
        self.store_if_read(&output).await?;
        Ok((value, output))
    }

    async fn of_whole(
        self,
        output: Output,
        whole: String,
        path: Option<Box<Evaluation>>,
    ) -> Result<(Known, Output), Failure> {
        let value = self.read(&whole).await?;
        let text = self.spec.output.body(&whole);
        if let Some(path) = path {
            self.write_output_file(path, text).await?;
        }
        // The code fence around an answer is no part of the output.
        let output = match self.is_last && text.len() < whole.trim().len() {
            true => self.services.bounded(Output::whole(text)).await,
            false => output,
        };
        if self.is_last {
            self.store_if_read(&output).await?;
        }
        Ok((value, output))
    }

    /// Stores an output whose file a later task names.
    ///
    /// # Errors
    /// Returns a failure if the disk refuses.
    async fn store_if_read(&self, output: &Output) -> Result<(), Failure> {
        if !self.is_read || output.stored.is_some() {
            return Ok(());
        }
        let (store, text) = (self.services.store.clone(), output.text.clone());
        let stored = work::blocking(Helper::OutputStore, move || store.store(text)).await;
        let failed = |reason: &dyn Display| {
            Failure::new(FailureKind::ToolError, format!("`output_path`: {reason}"))
        };
        stored.map_err(|panic| failed(&panic))?.map_err(|error| failed(&error))?;
        Ok(())
    }

    /// Reads an output: its value, or the failure if its form is wrong.
    async fn read(&self, text: &str) -> Result<Known, Failure> {
        let read = |spec: &TaskSpec, text: &str| spec.read(text).map(|value| Known::of(&value));
        let is_short = text.len() <= SHORT;
        if is_short && self.spec.acceptance.schema.is_none() {
            return read(&self.spec, text);
        }
        let of = self.task.to_string();
        let marked = self.services.under_way.work(&of, "its output").await;
        let (mark, _turn) = marked.map_err(|reason| not_judged(&reason))?;
        if is_short {
            return read(&self.spec, text);
        }
        let (spec, text) = (self.spec.clone(), text.to_owned());
        let read = work::blocking_for(Helper::OutputRead, of, move || {
            let _mark = mark;
            read(&spec, &text)
        });
        read.await.unwrap_or_else(|panic| Err(crashed(&panic)))
    }

    /// Writes an output into the workspace.
    ///
    /// # Errors
    /// Returns a failure if the path cannot be rendered, leads out of the workspace, is the file of another
    /// task or cannot be written.
    async fn write_output_file(&self, path: Box<Evaluation>, text: &str) -> Result<(), Failure> {
        let path = match self.evaluations.clone().evaluate(path).await? {
            Evaluated::Text(path) => path,
            _ => return Err(mixed_up()),
        };
        self.written.claim(&path, &self.task).map_err(|writer| {
            let message = format!(
                "`output_file`: `{path}` is the file of task `{writer}`: give each task a file of its own"
            );
            Failure::new(FailureKind::ToolError, message)
        })?;
        let (workspace, text) = (self.services.surroundings.workspace.clone(), text.to_owned());
        let write = move || workspace.write(&path, text.as_bytes());
        let written = work::blocking(Helper::OutputWrite, write).await;
        let failed = |reason: &dyn Display| {
            Failure::new(FailureKind::ToolError, format!("`output_file`: {reason}"))
        };
        written.map_err(|panic| failed(&panic))?.map_err(|error| failed(&error))?;
        Ok(())
    }
}

/// Compares the answer of a child with the schema that it must fit. Returns the failure if it does not.
///
/// # Errors
/// Returns an error if the answer is in the result store and cannot be read back.
pub(super) async fn compare(
    services: &Services,
    agent: &AgentId,
    answer: &Output,
    schema: Json,
) -> Result<Result<(), Failure>, JournalError> {
    let text = services.whole_text(answer).await?;
    let (mark, _turn) = match services.under_way.work(agent.as_str(), "its output").await {
        Ok(marked) => marked,
        Err(reason) => return Ok(Err(not_judged(&reason))),
    };
    // A schema that a model wrote is compiled here, which may take a while.
    let read = work::blocking_for(Helper::OutputRead, agent.to_string(), move || {
        let _mark = mark;
        let schema = Schema::new(schema.to_value()).map_err(|reason| {
            Failure::new(FailureKind::OutputSchema, format!("the schema cannot be used: {reason}"))
        })?;
        let rules = Acceptance { schema: Some(schema), ..Acceptance::default() };
        rules.read(OutputFormat::Json, &text).map(drop)
    });
    Ok(read.await.unwrap_or_else(|panic| Err(crashed(&panic))))
}

/// Returns the failure of a task whose output cannot be judged, because the program crashed over it.
pub(super) fn crashed(panic: &Panicked) -> Failure {
    Failure::new(FailureKind::Internal, format!("its output could not be judged: {panic}"))
}

/// Returns the failure of a task whose output is not judged once more, because callsheet ended while it was.
fn not_judged(reason: &str) -> Failure {
    Failure::new(
        FailureKind::Crashed,
        format!("its output could not be judged: {reason}: {WAY_ON}"),
    )
}

/// The most bytes of an output that is read beside other work: longer ones get a thread of their own.
const SHORT: usize = 16 * 1024;
