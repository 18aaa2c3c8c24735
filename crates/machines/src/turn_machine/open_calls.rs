//! The calls of an agent's turn that have no result yet.

use super::calls::{self, Interrupted, PendingCall};
use super::{IllegalEvent, Machine, Phase};
use crate::event::Event;
use crate::turn::{Program, ToolFinished, ToolIntended};

impl Machine {
    /// Returns the calls of the turn that have no result yet.
    #[must_use]
    pub fn open_calls(&self) -> Vec<PendingCall> {
        calls::open(&self.calls)
    }

    /// Returns the open calls that had begun. In an agent that was rebuilt, these are its lost
    /// calls; open calls that had not begun had no effect and run as usual.
    #[must_use]
    pub fn interrupted(&self) -> Vec<Interrupted> {
        calls::interrupted(&self.calls)
    }

    /// Returns results for all open calls of an agent that has to end, so that every call in its
    /// conversation has a result.
    #[must_use]
    pub fn closings(&self) -> Vec<ToolFinished> {
        calls::closings(self.turn, self.open_calls())
    }

    pub(super) fn intended(
        &mut self,
        intended: &ToolIntended,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        if let Program::Command(_) = self.spawned.program {
            self.turn = intended.turn;
            self.calls = vec![calls::announced(intended)];
            self.phase = Phase::Working;
        }
        let state = self.calls.get_mut(intended.index as usize).ok_or(IllegalEvent {
            event: event.kind(),
            reason: "the reply has no such call".to_owned(),
        })?;
        state.intended = Some((intended.key.clone(), intended.effect));
        Ok(())
    }
}
