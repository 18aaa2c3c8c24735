//! The turns of a conversation: the messages of the user and the last reply to each, without the
//! tool calls between.
//!
//! Pure. Kept beside the slots of a view, because a preset that shows turns in the system prompt
//! removes their messages.

use std::sync::Arc;

use super::{Entry, View};
use crate::message::{Json, Message, Role};

/// Speaker of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The model, with its last words before the user speaks again.
    Assistant,
    /// Nobody: the turn is a summary of earlier turns.
    System,
}

impl Speaker {
    /// Returns the name of the speaker in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// One turn: a message of the user, a reply, or a summary.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Number of its message, or of the first message that it stands for.
    pub message: u64,
    /// Speaker of the turn.
    pub speaker: Speaker,
    /// Message of the turn; absent where a reply is missing.
    entry: Option<Arc<Entry>>,
}

impl Turn {
    /// Returns the text of the turn; empty for a missing reply.
    #[must_use]
    pub fn text(&self) -> String {
        let message = self.entry.as_ref().and_then(|entry| entry.json.decode::<Message>().ok());
        message.map(|message| message.text()).unwrap_or_default()
    }
}

impl View {
    /// Returns the turns before the user's last message, oldest first.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Turn> + ExactSizeIterator {
        let is_open = self.turns.back().is_some_and(|turn| turn.speaker == Speaker::User);
        self.turns.range(..self.turns.len() - usize::from(is_open))
    }

    /// Returns the characters of the view and of the turns whose messages are no longer in it.
    #[must_use]
    pub fn chars_with_history(&self) -> usize {
        let first = self.slots.front().map_or(self.next_message, |slot| slot.from);
        let gone = self.history().take_while(|turn| turn.message < first);
        self.chars + gone.map(|turn| turn.text().chars().count()).sum::<usize>()
    }

    /// Returns the size of the view and these turns in estimated tokens: characters / 4.
    #[must_use]
    pub fn tokens_with_history(&self) -> u64 {
        (self.chars_with_history() / 4) as u64
    }

    /// Adds the turn of a message that joins the view, if the message begins a turn of the user,
    /// and the reply before it.
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

    /// Replaces the turns of a range by one turn with the message that an edit put in their place.
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
