//! What a turn machine knows of its summaries: who asked for one, and what came of it.

use crate::context::CompactionTrigger;
use crate::context::pipeline::Reaction;
use crate::message::{Json, Message};

/// The summaries of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Compacting {
    /// The summary that is asked for: why, and what to preserve.
    pub(super) asked: Option<(CompactionTrigger, Option<String>)>,
    /// What the user says after a summary that the model asked for; empty: nothing.
    pub(super) after: String,
    /// Whether the model asked for it.
    called: bool,
    in_turn: Option<u32>,
    /// A request was refused as too long, which asked for a summary, and none succeeded since.
    reacted: bool,
    reaction: Option<Reaction>,
}

impl Compacting {
    /// The model called `compact`.
    pub(super) fn call(&mut self, focus: Option<String>) {
        self.asked = Some((CompactionTrigger::Manual, focus));
        self.called = true;
    }

    /// A request was refused as too long. Says whether that is worth a summary: once, until a
    /// request succeeds.
    pub(super) fn refused(&mut self) -> bool {
        if std::mem::replace(&mut self.reacted, true) {
            return false;
        }
        self.asked = Some((CompactionTrigger::Reactive, None));
        true
    }

    /// A request succeeded.
    pub(super) fn succeeded(&mut self) {
        self.reacted = false;
        self.reaction = None;
    }

    /// The summary was tried in this turn. Gives what the user says next, if anything.
    pub(super) fn settle(&mut self, turn: u32, reaction: Reaction) -> Option<Json> {
        self.asked = None;
        self.in_turn = Some(turn);
        self.reaction = self.reacted.then_some(reaction);
        let called = std::mem::take(&mut self.called);
        let speaks = called && reaction == Reaction::Summarised && !self.after.is_empty();
        speaks.then(|| Json::encode(&Message::user(self.after.as_str())))
    }

    /// Whether one was tried in this turn.
    pub(super) fn tried_in(&self, turn: u32) -> bool {
        self.in_turn == Some(turn)
    }

    /// What came of the summary that a refused request asked for, until a request succeeds.
    pub(super) fn reaction(&self) -> Option<Reaction> {
        self.reaction
    }
}
