//! The turns of a conversation: what a user said and what was answered, without the tools between.
//!
//! Pure. Kept beside the places of a view, because a preset that shows turns in the system prompt
//! takes their messages away.

use std::sync::Arc;

use super::{Entry, View};
use crate::message::{Json, Message, Role};

/// Who speaks in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The model, in its last words before the user speaks again.
    Assistant,
    /// Nobody: the turn is a summary of those before it.
    System,
}

impl Speaker {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// One turn.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The message of the conversation that it is, or the first that it stands for.
    pub message: u64,
    /// Who speaks.
    pub speaker: Speaker,
    /// What is said; absent where a reply is missing.
    entry: Option<Arc<Entry>>,
}

impl Turn {
    /// What is said; a missing reply is empty.
    #[must_use]
    pub fn text(&self) -> String {
        let message = self.entry.as_ref().and_then(|entry| entry.json.decode::<Message>().ok());
        message.map(|message| message.text()).unwrap_or_default()
    }
}

impl View {
    /// The turns before what the user said last, oldest first.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Turn> + ExactSizeIterator {
        let is_open = self.turns.back().is_some_and(|turn| turn.speaker == Speaker::User);
        self.turns.range(..self.turns.len() - usize::from(is_open))
    }

    /// The characters of the view, and of the turns whose messages stand in it no more.
    #[must_use]
    pub fn chars_with_history(&self) -> usize {
        let first = self.slots.front().map_or(self.next_message, |slot| slot.from);
        let gone = self.history().take_while(|turn| turn.message < first);
        self.chars + gone.map(|turn| turn.text().chars().count()).sum::<usize>()
    }

    /// The same in estimated tokens: characters / 4.
    #[must_use]
    pub fn tokens_with_history(&self) -> u64 {
        (self.chars_with_history() / 4) as u64
    }

    /// Takes in a message that joins the view, if it is one that a user begins a turn with.
    pub(super) fn note_turn(&mut self, entry: &Arc<Entry>) {
        if !entry.is_request || !entry.answers.is_empty() {
            return;
        }
        let message = self.next_message;
        if self.turns.back().is_some_and(|turn| turn.speaker == Speaker::User) {
            let reply = self.slots.back().filter(|slot| slot.entry.role == Role::Assistant);
            let (speaker, entry) = (Speaker::Assistant, reply.map(|slot| slot.entry.clone()));
            self.turns.push_back(Turn { message: message.saturating_sub(1), speaker, entry });
        }
        let (speaker, entry) = (Speaker::User, Some(entry.clone()));
        self.turns.push_back(Turn { message, speaker, entry });
    }

    /// Puts what an edit put in the place of a range in the place of its turns.
    pub(super) fn replace_turns(&mut self, from: u64, to: u64, with: Option<&Json>) {
        let is_gone = |turn: &Turn| turn.message >= from && turn.message < to;
        let Some(place) = self.turns.iter().position(is_gone) else { return };
        self.turns.retain(|turn| !is_gone(turn));
        let entry = with.and_then(|json| Entry::new(json.clone()).ok());
        if let Some(entry) = entry {
            let (speaker, entry) = (Speaker::System, Some(entry.into()));
            self.turns.insert(place, Turn { message: from, speaker, entry });
        }
    }
}
