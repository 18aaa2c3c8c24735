//! The inbox of an agent: what joins its conversation with the next request, in the order in which it came.
//!
//! Pure. A letter comes in with the record that brings it, and goes out with the `turn.started` whose message
//! holds it. So each is read once: one that no such record holds still waits when the agent is rebuilt.

use std::collections::VecDeque;

use crate::message::{Block, Json, Message, Role};

/// The most letters that wait: more than a turn can attend to, and few enough to be looked at one by one.
pub(super) const MOST_LETTERS: usize = 64;

/// The most bytes of letters that wait, unless one alone has more: a part of a context that leaves space for the
/// work that they are about.
pub(super) const MOST_BYTES: usize = 256 << 10;

/// A letter does not fit: too many wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too much waits to be read")]
pub(super) struct Full;

/// A text that joins the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Letter {
    text: String,
    /// True if it asks for something, and not only for the rest of an answer.
    is_request: bool,
}

/// The letters that wait.
///
/// A letter that only asks for the rest of an answer waits alone, because any other is a reason to go on too.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox {
    letters: VecDeque<Letter>,
    /// The user message that holds them, a block for each; encoded here, as it is asked for again and again.
    message: Option<Json>,
    /// The wish for the rest of an answer whose place a request took. The turn that holds it may be on its way.
    replaced: Option<String>,
}

/// What a message has taken out of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing, or what asks for something.
    Requests,
    /// No more than the wish for the rest of an answer.
    Continuation,
}

impl Inbox {
    /// Returns true if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Returns the user message that holds all that waits, if anything does.
    pub(super) fn message(&self) -> Option<&Json> {
        self.message.as_ref()
    }

    /// Puts a request behind those that wait. It takes the place of a wish for the rest of an answer.
    ///
    /// # Errors
    /// Returns an error if there is no space for it. A letter always fits into an empty inbox.
    pub(super) fn ask(&mut self, text: &str) -> Result<(), Full> {
        if let Some(wish) = self.letters.pop_front_if(|letter| !letter.is_request) {
            self.replaced = Some(wish.text);
        }
        let bytes: usize = self.letters.iter().map(|letter| letter.text.len()).sum();
        let fits = self.letters.len() < MOST_LETTERS && bytes + text.len() <= MOST_BYTES;
        if !fits && !self.is_empty() {
            return Err(Full);
        }
        self.push(text, true);
        Ok(())
    }

    /// Asks for the rest of an answer, if nothing waits.
    pub(super) fn ask_for_rest(&mut self, text: &str) {
        if self.is_empty() {
            self.push(text, false);
        }
    }

    /// Adds a sentence that asks for nothing by itself, behind what waits.
    pub(super) fn add(&mut self, text: &str) {
        let is_request = self.letters.front().is_some_and(|letter| letter.is_request);
        self.push(text, is_request);
    }

    /// Asks no longer for the rest of an answer.
    pub(super) fn forget_continuation(&mut self) {
        if self.letters.front().is_some_and(|letter| !letter.is_request) {
            self.clear();
        }
    }

    /// Takes out what the message of a turn holds. What came after the message was made stays.
    pub(super) fn take(&mut self, message: &Message) -> Taken {
        let texts = message.content.iter().map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            Block::ToolUse(_) | Block::ToolResult(_) | Block::Other(_) => None,
        });
        let waiting = self.letters.iter().map(|letter| Some(letter.text.as_str()));
        let read = texts.clone().zip(waiting).take_while(|(read, waiting)| read == waiting).count();
        let is_request = self.letters.front().is_none_or(|letter| letter.is_request);
        let replaced = self.replaced.take();
        if read == 0 && replaced.is_some() && texts.flatten().next() == replaced.as_deref() {
            return Taken::Continuation;
        }
        match read {
            // A version before put it into other words.
            0 => self.clear(),
            read => {
                self.letters.drain(..read);
                self.encode();
            }
        }
        if is_request { Taken::Requests } else { Taken::Continuation }
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) {
        self.letters.clear();
        (self.message, self.replaced) = (None, None);
    }

    fn push(&mut self, text: &str, is_request: bool) {
        self.letters.push_back(Letter { text: text.to_owned(), is_request });
        self.encode();
    }

    fn encode(&mut self) {
        let block = |letter: &Letter| Block::Text(letter.text.clone());
        let content: Vec<_> = self.letters.iter().map(block).collect();
        let message = || Json::encode(&Message { role: Role::User, content });
        self.message = (!self.letters.is_empty()).then(message);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::Event;
    use crate::id::Name;
    use crate::message::{StopReason, Usage, UsageSource};
    use crate::output::Output;
    use crate::turn::{
        AgentEnded, AgentRestarted, AgentSpawned, Cause, Feedback, ModelResponded, Outcome,
        Program, TurnStarted,
    };
    use crate::turn_machine::{Machine, Step};

    fn texts(json: &Json) -> Vec<String> {
        let message = Message::read(json.as_str()).expect("a message");
        let text = |block| match block {
            Block::Text(text) => text,
            other => panic!("{other:?}"),
        };
        message.content.into_iter().map(text).collect()
    }

    fn waiting(inbox: &Inbox) -> Vec<String> {
        inbox.message().map(texts).unwrap_or_default()
    }

    fn holding(letters: &[&str]) -> Message {
        let content = letters.iter().map(|text| Block::Text((*text).to_owned())).collect();
        Message { role: Role::User, content }
    }

    fn of(letters: &[&str]) -> Inbox {
        let mut inbox = Inbox::default();
        letters.iter().for_each(|text| inbox.ask(text).expect("it fits"));
        inbox
    }

    #[test]
    fn one_letter_is_the_message_of_before() {
        let inbox = of(&["mend it"]);
        assert_eq!(inbox.message(), Some(&Json::encode(&Message::user("mend it"))));
        assert_eq!(Inbox::default().message(), None);
    }

    #[test]
    fn a_message_takes_out_what_it_holds() {
        type Row = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);
        let table: [Row; 6] = [
            (&["a", "b"], &["a", "b"], &[]),
            // The others came after the message was made.
            (&["a", "b", "c"], &["a"], &["b", "c"]),
            (&["a", "a", "b"], &["a"], &["a", "b"]),
            // It says more, at its end.
            (&["a"], &["a", "and this"], &[]),
            // Other words for what waits: an older version wrote it.
            (&["a", "b"], &["A and B"], &[]),
            (&[], &["a"], &[]),
        ];
        for (letters, message, left) in table {
            let mut inbox = of(letters);
            assert_eq!(inbox.take(&holding(message)), Taken::Requests, "{letters:?} {message:?}");
            assert_eq!(waiting(&inbox), left, "{letters:?} {message:?}");
        }
    }

    #[test]
    fn a_wish_for_the_rest_waits_alone() {
        let mut inbox = Inbox::default();
        inbox.ask_for_rest("go on");
        inbox.ask_for_rest("go on");
        assert_eq!(waiting(&inbox), ["go on"]);
        let mut answered = inbox.clone();
        assert_eq!(answered.take(&holding(&["go on"])), Taken::Continuation);
        assert!(answered.is_empty());
        let mut handed_over = inbox.clone();
        assert_eq!(handed_over.take(&holding(&["hand over"])), Taken::Continuation);
        assert!(handed_over.is_empty());
        inbox.ask("mend it").expect("it fits");
        inbox.ask_for_rest("go on");
        assert_eq!(waiting(&inbox), ["mend it"]);
        inbox.forget_continuation();
        assert_eq!(waiting(&inbox), ["mend it"], "it is none");
        inbox.clear();
        inbox.ask_for_rest("go on");
        inbox.forget_continuation();
        assert_eq!(waiting(&inbox), Vec::<String>::new());
    }

    #[test]
    fn what_came_after_a_wish_for_the_rest_was_sent_stays() {
        let mut inbox = Inbox::default();
        inbox.ask_for_rest("go on");
        let message = inbox.message().cloned().expect("a message");
        inbox.ask("mend it").expect("it fits");
        let message = Message::read(message.as_str()).expect("a message");
        assert_eq!(inbox.take(&message), Taken::Continuation);
        assert_eq!(waiting(&inbox), ["mend it"]);
        // Now it would be a message of a version before.
        assert_eq!(inbox.take(&message), Taken::Requests);
        assert_eq!(waiting(&inbox), Vec::<String>::new());
    }

    #[test]
    fn it_has_bounds_and_evicts_nothing() {
        let mut many = Inbox::default();
        (0..MOST_LETTERS).for_each(|_| many.ask("x").expect("it fits"));
        assert_eq!(many.ask("y"), Err(Full));
        assert_eq!(waiting(&many), vec!["x"; MOST_LETTERS]);
        let mut large = Inbox::default();
        large.ask(&"x".repeat(MOST_BYTES + 1)).expect("one alone always fits");
        assert_eq!(large.ask(""), Err(Full));
        let mut exact = of(&["x"]);
        assert_eq!(exact.ask(&"y".repeat(MOST_BYTES)), Err(Full));
        exact.ask(&"y".repeat(MOST_BYTES - 1)).expect("it fits");
    }

    proptest! {
        /// Letters come in, turns begin with the message as it was some letters ago, and processes die between
        /// any two records.
        #[test]
        fn each_is_read_once_in_order(
            turns in prop::collection::vec((0..5_usize, 0..5_usize), 1..20),
        ) {
            let (mut inbox, mut sent, mut read) = (Inbox::default(), 0_usize, Vec::new());
            for (before, between) in turns {
                let mut comes = |inbox: &mut Inbox| {
                    inbox.ask(&format!("letter {sent}")).expect("it fits");
                    sent += 1;
                };
                (0..before).for_each(|_| comes(&mut inbox));
                let message = inbox.message().cloned();
                (0..between).for_each(|_| comes(&mut inbox));
                if let Some(message) = message {
                    inbox.take(&Message::read(message.as_str()).expect("a message"));
                    read.extend(texts(&message));
                }
                let all: Vec<_> = read.iter().cloned().chain(waiting(&inbox)).collect();
                let wanted: Vec<_> = (0..sent).map(|number| format!("letter {number}")).collect();
                prop_assert_eq!(all, wanted);
            }
        }
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn born() -> Machine {
        let program = Program::Model { agent: name("a"), prompt: "go".into() };
        Machine::new(AgentSpawned::main(program), 1_000)
    }

    fn replied(machine: &Machine, text: &str, stop: StopReason) -> Event {
        let content = match text {
            "" => vec![],
            text => vec![Block::Text(text.to_owned())],
        };
        Event::from(ModelResponded {
            unsettled: None,
            turn: machine.turn(),
            model: name("m"),
            message: Json::encode(&Message { role: Role::Assistant, content }),
            stop,
            usage: Usage::default(),
            usage_source: UsageSource::Reported,
            cost_usd: None,
            context: Default::default(),
            repeats: None,
        })
    }

    /// Returns the next record of an agent, which is told something with each round. `chance` chooses among what
    /// may come.
    fn record(machine: &Machine, chance: u8, rounds: &mut usize) -> Event {
        let ended = |outcome| {
            let usage = Usage::default();
            let (turns, shortfalls) = (machine.replies(), machine.shortfalls().clone());
            let (run_by_others, run_by_others_incomplete) = Default::default();
            Event::from(AgentEnded {
                outcome,
                turns,
                usage,
                shortfalls,
                run_by_others,
                run_by_others_incomplete,
            })
        };
        let restarted = |feedback| Event::from(AgentRestarted::new(0, "again", feedback));
        match machine.next() {
            Step::CallModel { .. } if chance < 40 => {
                ended(Outcome::Cancelled { reason: "enough".to_owned() })
            }
            Step::CallModel { .. } if machine.announced().is_some() => match chance % 4 {
                0 => replied(machine, "half", StopReason::MaxTokens),
                1 => replied(machine, "whole", StopReason::EndTurn),
                2 => replied(machine, "", StopReason::EndTurn),
                _ => replied(machine, "cut", StopReason::Interrupted("cut".to_owned())),
            },
            Step::CallModel { turn, message } => TurnStarted::new(turn, message).into(),
            Step::Finish(_) => ended(Outcome::Completed { output: Output::whole("x") }),
            Step::Rest if chance < 100 => restarted(None),
            Step::Rest => {
                *rounds += 1;
                let text = format!("round {rounds}");
                restarted(Some(Feedback { cause: Cause::Format, text }))
            }
            step => panic!("{step:?}"),
        }
    }

    proptest! {
        /// Whatever an agent goes through, and wherever its records end: what it was told stands in its
        /// conversation once and in order, or waits to.
        #[test]
        fn what_an_agent_is_told_is_read_once(chances in prop::collection::vec(0..=255_u8, 1..60)) {
            let (mut machine, mut events, mut rounds) = (born(), Vec::new(), 0);
            for chance in chances {
                let event = record(&machine, chance, &mut rounds);
                machine.apply(&event).expect("legal");
                events.push(event);
                let mut again = born();
                events.iter().for_each(|event| again.apply(event).expect("legal"));
                prop_assert_eq!(again.joining(), machine.joining());
                let in_view = again.view().slots().flat_map(|slot| texts(&slot.entry.json));
                let seen = in_view.chain(waiting(&again.inbox));
                let seen: Vec<_> = seen.filter(|text| text.starts_with("round")).collect();
                let wanted: Vec<_> = (1..=rounds).map(|round| format!("round {round}")).collect();
                prop_assert_eq!(seen, wanted);
            }
        }
    }
}
