//! Waiting for room on the disk: nothing new begins until there is some.
//!
//! The journal's writer finds out; here it becomes a recorded pause, and later a recorded going on.
//! Decides nothing about agents: they ask at the beginning of a step whether new work may begin.

use ractor::ActorRef;
use tokio::sync::watch;

use super::{RunEnd, State, Supervisor, SupervisorMsg};
use crate::event::{Draft, PauseCause, RunOpened, RunPaused};
use crate::journal::JournalError;
use crate::journal::room::{PATIENCE, Room};
use crate::run_state::RunPhase;

/// Why the run pauses, for people.
const WAITS: &str = "disk full: waiting for room, the run goes on by itself";

/// Tells the supervisor whenever the room changes.
pub(super) async fn tell(mut room: watch::Receiver<Room>, supervisor: ActorRef<SupervisorMsg>) {
    // The other end goes with the journal; a supervisor that is gone needs no news.
    while room.changed().await.is_ok() {
        let now = *room.borrow_and_update();
        let _ = supervisor.send_message(SupervisorMsg::Room(now));
    }
}

impl Supervisor {
    /// There is room for new work, or no more.
    pub(super) fn room_changed(
        &self,
        myself: &ActorRef<SupervisorMsg>,
        state: &mut State,
        room: Room,
    ) {
        state.room = room;
        if state.end.is_none() || state.finishing {
            return;
        }
        match room {
            Room::Scarce => {
                tracing::warn!("the disk is full: nothing new begins until there is room");
                self.services.room.send_replace(Room::Scarce);
                let (reason, cause) = (WAITS.to_owned(), PauseCause::DiskFull);
                self.propose(state, vec![Draft::run(RunPaused { reason, cause })]);
                self.later(myself, state, PATIENCE, SupervisorMsg::PauseOverdue);
            }
            Room::Enough => {
                let reason = Some("there is room on the disk again".to_owned());
                let opened = RunOpened {
                    epoch: state.run.epoch(),
                    pid: std::process::id(),
                    reason,
                    accepted: None,
                };
                self.propose(state, vec![Draft::run(opened)]);
            }
        }
    }

    /// The run was opened again: what waited may go on, unless the disk filled up meanwhile.
    pub(super) fn opened(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        self.start_clocks(myself, state);
        self.services.room.send_replace(state.room);
    }

    /// Ends the run for this process when not even its pause could be recorded.
    pub(super) fn pause_overdue(&self, myself: &ActorRef<SupervisorMsg>, state: &mut State) {
        if state.room == Room::Enough {
            return;
        }
        match (&state.interrupted, state.run.phase()) {
            // The journal says that the run is paused; who told it to stop need not wait for more.
            (Some(reason), RunPhase::Paused) => {
                let reason = reason.clone();
                self.finish(myself, state, RunEnd::Paused(reason));
            }
            (None, RunPhase::Paused) | (_, RunPhase::Completed(_)) => {}
            (_, RunPhase::Open) => {
                self.finish(myself, state, RunEnd::JournalFailed(JournalError::Full));
            }
        }
    }
}
