//! Rebuilds an agent from its records: the same fold for a new agent, after a crash and on a
//! resume.
//!
//! Reads records, and records nothing.

use std::sync::Arc;

use super::requested_ms;
use super::sending::Talk;
use crate::actor::asked::Recorded;
use crate::actor::lost_calls::{Begun, Lost};
use crate::actor::services::Services;
use crate::actor::step::Past;
use crate::actor::waits::{self, Waited};
use crate::context::layers::pipeline;
use crate::event::{Event, SharedRecord};
use crate::id::AgentId;
use crate::journal::JournalError;
use crate::journal::agent_records::AgentRecords;
use crate::journal::results;
use crate::turn::{Outcome, Program};
use crate::turn_machine::{IllegalEvent, Machine};

/// The fold of an agent's records: everything that its actor needs to begin or resume.
#[derive(Debug)]
pub struct Folded {
    pub(super) machine: Machine,
    pub(super) talk: Option<Talk>,
    pub(super) past: Past,
    pub(super) requested_ms: Option<i64>,
    /// The calls without a result.
    pub(super) lost: Vec<Lost>,
    /// The calls that waited for others when the last actor of the agent ended.
    pub(super) waited: Waited,
    /// True if its view was looked over.
    pub(super) looked_over: bool,
    /// How it ends, if it was told to before its actor has begun.
    pub(super) ending: Option<Outcome>,
}

/// The reason why the records of an agent could not be folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// They cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// They make no sense, or name a definition that is not there.
    #[error("{0}")]
    Records(String),
}

impl From<IllegalEvent> for FoldError {
    fn from(error: IllegalEvent) -> Self {
        Self::Records(error.to_string())
    }
}

/// The fold so far.
struct Fold {
    machine: Machine,
    talk: Option<Talk>,
    past: Past,
    requested_ms: Option<i64>,
    begun: Begun,
    asked: Recorded,
    /// The epoch of the last record.
    epoch: u64,
}

impl Folded {
    /// Folds all records of an agent; the first one must be its `agent.spawned`. Blocks if the
    /// records are read from the disk.
    ///
    /// # Errors
    /// Returns an error if the records cannot be read or contradict each other, or if they name a
    /// definition that does not exist.
    pub fn of(
        services: &Arc<Services>,
        id: &AgentId,
        records: &AgentRecords,
    ) -> Result<Self, FoldError> {
        let mut fold: Option<Fold> = None;
        records.for_each(|record| -> Result<(), FoldError> {
            match &mut fold {
                None => fold = Some(Fold::begin(services, id, record)?),
                Some(fold) => fold.apply(record)?,
            }
            Ok(())
        })?;
        let missing = || FoldError::Records(format!("agent `{id}` has no record"));
        let Fold { mut machine, talk, past, requested_ms, begun, asked, .. } =
            fold.ok_or_else(missing)?;
        if let Some(Talk { briefing, .. }) = &talk {
            machine.begin_with(&briefing.model.spec.name, briefing.head_tokens);
        }
        // A summary that the records announce was written beside the last actor and ended with it.
        machine.forget_lost_summary();
        let lost = begun.lost(&machine);
        let (waited, looked_over, ending) = (waits::of_asked(asked.calls()), false, None);
        Ok(Self { machine, talk, past, requested_ms, lost, waited, looked_over, ending })
    }
}

impl Fold {
    fn begin(services: &Services, id: &AgentId, first: &SharedRecord) -> Result<Self, FoldError> {
        let first = results::whole(services.store.results_dir(), first);
        let first = first.map_err(JournalError::from)?;
        let Event::AgentSpawned(spawned) = &first.event else {
            return Err(FoldError::Records(format!("agent `{id}` has no agent.spawned record")));
        };
        let talk = match &spawned.program {
            Program::Model { agent, .. } => {
                let briefing = services.briefing(agent, spawned.depth, &spawned.lineage);
                let briefing = briefing.map_err(FoldError::Records)?;
                Some(Talk::new(briefing))
            }
            Program::Command(_) => None,
        };
        let max_turns = talk.as_ref().map_or(1, |talk| talk.briefing.spec.max_turns);
        let layer = pipeline::summary(&services.compaction.preset);
        let pace = layer.map(|layer| layer.pace.clone()).unwrap_or_default();
        let machine = Machine::new(spawned.clone(), max_turns).paced(pace);
        let machine = match &talk {
            Some(talk) => machine.watched(talk.briefing.spec.loops.clone()),
            None => machine,
        };
        let (past, requested_ms, begun) = (Past::default(), None, Begun::default());
        let asked = Recorded::default();
        Ok(Self { machine, talk, past, requested_ms, begun, asked, epoch: first.epoch })
    }

    fn apply(&mut self, record: &SharedRecord) -> Result<(), IllegalEvent> {
        // Each process forgot what the one before it was writing, and goes on from there.
        if std::mem::replace(&mut self.epoch, record.epoch) != record.epoch {
            self.machine.forget_lost_summary();
        }
        self.begun.note(record);
        self.asked.note(record);
        self.past.note(&self.machine, record);
        self.requested_ms = requested_ms(record).or(self.requested_ms);
        self.machine.apply(&record.event)
    }
}
