//! An agent as its records tell it: the same fold whether it is new, crashed, or taken up again.
//!
//! Owns where the records are read. Records nothing.

use ractor::ActorProcessingErr;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Agent, State, Talk, requested_ms};
use crate::actor::briefing;
use crate::actor::recovery::Begun;
use crate::actor::step::Past;
use crate::context::pipeline;
use crate::event::{Event, SharedRecord};
use crate::journal::agent_records::AgentRecords;
use crate::model::Rendering;
use crate::turn::Program;
use crate::turn_machine::{IllegalEvent, Machine};

/// What an agent's records fold to.
struct Folded {
    machine: Machine,
    talk: Option<Talk>,
    past: Past,
    requested_ms: Option<i64>,
    begun: Begun,
}

impl Folded {
    fn apply(&mut self, record: &SharedRecord) -> Result<(), IllegalEvent> {
        self.begun.note(record);
        self.past.note(&self.machine, record);
        self.requested_ms = requested_ms(record).or(self.requested_ms);
        self.machine.apply(&record.event)
    }
}

impl Agent {
    /// What it is after its records.
    pub(super) async fn rebuild(&self, records: AgentRecords) -> Result<State, ActorProcessingErr> {
        let folded = match records {
            AgentRecords::Held(_) => self.fold(&records)?,
            AgentRecords::Stored { .. } => {
                // It waits for the disk.
                let agent = self.clone();
                tokio::task::spawn_blocking(move || agent.fold(&records)).await??
            }
        };
        let Folded { mut machine, talk, past, requested_ms, begun } = folded;
        if let Some(Talk { briefing, .. }) = &talk {
            machine.begin_with(&briefing.model.spec.name, briefing.head_tokens);
        }
        machine.forget_lost_summary();
        let lost = begun.lost(&machine);
        Ok(State {
            machine,
            past,
            talk,
            step: 0,
            busy: false,
            finishing: false,
            gave_up: false,
            steps: JoinSet::new(),
            ahead: None,
            aheads: 0,
            beside: JoinSet::new(),
            cancel: CancellationToken::new(),
            ending: None,
            looked_over: false,
            requested_ms,
            lost,
        })
    }

    /// Folds the records; the same fold as while the agent works.
    fn fold(&self, records: &AgentRecords) -> Result<Folded, ActorProcessingErr> {
        let mut folded: Option<Folded> = None;
        records.for_each(|record| -> Result<(), ActorProcessingErr> {
            match &mut folded {
                None => folded = Some(self.begin(record)?),
                Some(folded) => folded.apply(record)?,
            }
            Ok(())
        })?;
        folded.ok_or_else(|| format!("agent `{}` has no record", self.id).into())
    }

    fn begin(&self, first: &SharedRecord) -> Result<Folded, ActorProcessingErr> {
        let Event::AgentSpawned(spawned) = &first.event else {
            return Err(format!("agent `{}` has no agent.spawned record", self.id).into());
        };
        let talk = match &spawned.program {
            Program::Model { agent, .. } => {
                let briefing = briefing::of(&self.services, agent, spawned.depth)?;
                Some(Talk { briefing, rendering: Rendering::default(), front: None })
            }
            Program::Command { .. } => None,
        };
        let max_turns = talk.as_ref().map_or(1, |talk| talk.briefing.spec.max_turns);
        let layer = pipeline::summary(&self.services.compaction.preset);
        let pace = layer.map(|layer| layer.pace.clone()).unwrap_or_default();
        let machine = Machine::new(spawned.clone(), max_turns).paced(pace);
        let (past, requested_ms, begun) = (Past::default(), None, Begun::default());
        Ok(Folded { machine, talk, past, requested_ms, begun })
    }
}
