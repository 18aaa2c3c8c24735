//! Finds the records that name stored results, and the call or task that made one, and reads stored
//! prompts back.
//!
//! Owns the list of the event fields that name a result. The module `store` writes stored results,
//! reads them and checks their content.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::context::{ClearedResult, CompactionFinished, ContextEdited, Edit};
use crate::event::{Event, Record, SharedRecord};
use crate::id::Name;
use crate::journal::JournalError;
use crate::journal::source::{Cursor, RunSource};
use crate::output::{Printed, Stored, Text};
use crate::spec::run_by_others::ChangedForOthers;
use crate::store::{self, StoreError, StoredResults};
use crate::turn::{AgentSpawned, Outcome};

/// The origin of a stored result in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Task whose agent made the result.
    pub task: Option<Name>,
    /// Number of the last record before the call that made the result began.
    pub before: u64,
    /// Number of the first record that names the result.
    pub named: u64,
}

/// Returns the origin of a stored result of the run, or `None` if no record names it. Reads the records of the run.
/// Blocks.
///
/// # Errors
/// Returns an error if the records cannot be read.
pub fn origin(run: &dyn RunSource, wanted: &str) -> Result<Option<Origin>, JournalError> {
    Ok(first(run, |hash| hash == wanted)?.map(|(_, origin)| origin))
}

/// Returns the hash and the origin of the first wanted result that a record names.
pub(in crate::journal) fn first(
    run: &dyn RunSource,
    wanted: impl Fn(&str) -> bool,
) -> Result<Option<(String, Origin)>, JournalError> {
    let mut batches = run.batches(Cursor::START)?;
    // The calls at work, each with the number of the record of its beginning.
    let mut begun = HashMap::new();
    while let Some(records) = batches.next_batch()? {
        for record in &records {
            let mut began = None;
            match &record.event {
                Event::ToolStarted(started) => drop(begun.insert(started.key.clone(), record.seq)),
                Event::ToolFinished(finished) => began = begun.remove(&finished.key),
                _ => {}
            }
            if let Some(stored) = named_by(&record.event).find(|stored| wanted(&stored.hash)) {
                let (task, before) = (record.task.clone(), began.unwrap_or(record.seq) - 1);
                return Ok(Some((stored.hash.clone(), Origin { task, before, named: record.seq })));
            }
        }
    }
    Ok(None)
}

/// Returns a record with the stored texts of its program read back. Blocks.
///
/// # Errors
/// Returns an error if a stored text is missing or damaged.
pub fn whole<'a, R: StoredResults + ?Sized>(
    results: &R,
    record: &'a SharedRecord,
) -> Result<Cow<'a, SharedRecord>, StoreError> {
    let Event::AgentSpawned(spawned) = &record.event else { return Ok(Cow::Borrowed(record)) };
    let Some(program) = store::whole_program(results, &spawned.program)? else {
        return Ok(Cow::Borrowed(record));
    };
    let event = AgentSpawned { program, ..spawned.clone() }.into();
    Ok(Cow::Owned(Arc::new(Record { event, ..Record::clone(record) })))
}

/// Returns the stored results that an event names in place of holding them. A text that merely
/// looks like such a name, such as a model's message, does not count.
pub fn named_by(event: &Event) -> impl Iterator<Item = &Stored> {
    let mut cleared: &[ClearedResult] = &[];
    let mut changed: &[ChangedForOthers] = &[];
    let mut printed: Option<&Printed> = None;
    let own = match event {
        Event::ToolFinished(finished) => {
            printed = finished.printed.as_deref();
            finished.stored.as_ref()
        }
        Event::TaskCompleted(completed) => completed.output.stored.as_ref(),
        Event::TaskReused(reused) => reused.output.stored.as_ref(),
        Event::AgentEnded(ended) => {
            changed = &ended.run_by_others;
            given(&ended.outcome)
        }
        Event::HookFinished(finished) => {
            changed = &finished.run_by_others;
            None
        }
        Event::AgentSpawned(spawned) => spawned.program.texts().find_map(Text::stored),
        Event::ApprovalAsked(asked) => {
            asked.effect.as_ref().and_then(|effect| effect.stored.as_ref())
        }
        Event::ContextEdited(ContextEdited { edit, .. })
        | Event::CompactionFinished(CompactionFinished { edit, .. }) => {
            cleared = cleared_by(edit);
            None
        }
        // This match has no wildcard: a new event must state here if it names a result.
        Event::RunCreated(_)
        | Event::RunOpened(_)
        | Event::RunPaused(_)
        | Event::RunCompleted(_)
        | Event::PlanExtended(_)
        | Event::HookStarted(_)
        | Event::NoticeIntended(_)
        | Event::NoticeDelivered(_)
        | Event::NoticeFailed(_)
        | Event::TaskReady(_)
        | Event::TaskStarted(_)
        | Event::TaskRetrying(_)
        | Event::TaskFailed(_)
        | Event::TaskSkipped(_)
        | Event::TaskCancelled(_)
        | Event::AgentRestarted(_)
        | Event::TurnStarted(_)
        | Event::ModelRequested(_)
        | Event::ModelResponded(_)
        | Event::ModelFailed(_)
        | Event::ToolIntended(_)
        | Event::ToolStarted(_)
        | Event::LoopNoticed(_)
        | Event::LoopHeld(_)
        | Event::LoopBroken(_)
        | Event::ApprovalAnswered(_)
        | Event::CompactionRequested(_)
        | Event::CompactionFailed(_)
        | Event::CompactionBreaker(_)
        | Event::MessageSent(_)
        | Event::MessageDelivered(_)
        | Event::MessageReturned(_)
        | Event::BudgetWarned(_)
        | Event::BudgetExceeded(_)
        | Event::BudgetChanged(_)
        | Event::ScopePaused(_)
        | Event::ScopeUnpaused(_)
        | Event::BudgetBoundBroken(_)
        | Event::GatewayParked(_)
        | Event::GatewayResumed(_)
        | Event::GatewayBreaker(_) => None,
    };
    let changed = changed.iter().flat_map(|change| change.before.iter().chain(&change.after));
    let cleared = cleared.iter().filter_map(|result| result.stored.as_ref());
    let streams = printed.into_iter().flat_map(|printed| [&printed.stdout, &printed.stderr]);
    let printed = streams.filter_map(|stream| stream.as_ref()?.stored.as_ref());
    own.into_iter().chain(printed).chain(cleared).chain(changed)
}

fn given(outcome: &Outcome) -> Option<&Stored> {
    match outcome {
        Outcome::Completed { output } => output.stored.as_ref(),
        Outcome::Failed { partial, .. } => partial.as_ref()?.stored.as_ref(),
        Outcome::Cancelled { .. } => None,
    }
}

fn cleared_by(edit: &Edit) -> &[ClearedResult] {
    match edit {
        Edit::ClearResults { results } => results,
        Edit::Replace { .. }
        | Edit::Record(_)
        | Edit::Window { .. }
        | Edit::DropThinking { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::samples;
    use crate::message::Json;
    use crate::output::Output;
    use crate::plan::{TaskCompleted, TaskReused};
    use crate::turn::{AgentEnded, Command, Program, ToolStatus, TurnStarted};
    use callsheet_words::failure::{Failure, FailureKind};

    fn named(event: &Event) -> Vec<&str> {
        named_by(event).map(|stored| stored.hash.as_str()).collect()
    }

    #[test]
    fn what_somebody_writes_of_a_result_names_none() {
        let talk = r#"{"stored":{"hash":"x","bytes":1}}"#;
        let json = || Json::parse(talk.to_owned()).unwrap();
        let mut replied = samples::responded(1).event;
        let Event::ModelResponded(reply) = &mut replied else { panic!("a reply") };
        reply.message = json();
        let mut done = samples::finished(1, 0, ToolStatus::Ok, talk).event;
        let Event::ToolFinished(tool) = &mut done else { panic!("a result") };
        tool.block = json();
        let with = vec![json()];
        let edit = Edit::Replace { from: 0, to: 1, with };
        let layer = "x".to_owned();
        let edited = ContextEdited { layer, edit, before_tokens: 1, after_tokens: 1 };
        let turn = TurnStarted::new(1, Some(json()));
        let output = Output::whole(talk);
        let events = [
            samples::intended(1, 0, "bash", talk).event,
            replied,
            done,
            edited.into(),
            turn.into(),
            TaskCompleted { attempt: 1, output }.into(),
        ];
        for event in &events {
            // The text alone looks like a result's name, so a search for the word would find it.
            assert!(event.data().as_str().contains("stored"), "{event:?}");
            assert_eq!(named(event), Vec::<&str>::new(), "{event:?}");
        }
    }

    #[test]
    fn every_field_that_names_a_result_is_found() {
        let stored = |digit: &str| Some(Stored { hash: digit.repeat(64), bytes: 7, dropped: 0 });
        let output = |digit: &str| Output { text: "x".to_owned(), stored: stored(digit) };
        let ended = |outcome| -> Event {
            AgentEnded {
                outcome,
                turns: 1,
                usage: Default::default(),
                shortfalls: Default::default(),
                run_by_others: Vec::new(),
                run_by_others_incomplete: false,
            }
            .into()
        };
        let name = Name::new("helper").expect("a name");
        let spawned = |program| -> Event { AgentSpawned::main(program).into() };
        let mut done = samples::finished(1, 0, ToolStatus::Ok, "x").event;
        let Event::ToolFinished(tool) = &mut done else { panic!("a result") };
        tool.stored = stored("a");
        let failure = Failure::new(FailureKind::Cancelled, "x");
        let cleared = |digit: &str| ClearedResult {
            message: 1,
            tool_use_id: "t".to_owned(),
            text: "x".to_owned(),
            stored: stored(digit),
            kept_chars: 0,
        };
        let edit = Edit::ClearResults { results: vec![cleared("a"), cleared("b")] };
        let layer = "x".to_owned();
        let edited = ContextEdited { layer, edit, before_tokens: 1, after_tokens: 1 };
        let one = [
            done,
            TaskCompleted { attempt: 1, output: output("a") }.into(),
            TaskReused { key: "x".to_owned(), output: output("a") }.into(),
            ended(Outcome::Completed { output: output("a") }),
            spawned(Program::Model { agent: name.clone(), prompt: Text::Stored(output("a")) }),
            spawned(Program::Command(Command {
                stdin: Some(Text::Stored(output("a"))),
                ..Command::default()
            })),
            ended(Outcome::Failed { failure, partial: Some(output("a")) }),
        ];
        for event in &one {
            assert_eq!(named(event), ["a".repeat(64)], "{event:?}");
        }
        assert_eq!(named(&edited.into()), ["a".repeat(64), "b".repeat(64)]);
    }
}
