//! Conversations made from seeds, of five kinds; the same seed always gives the same conversation.

mod coder;
mod desk;
mod desk_sentences;
mod grammar;
mod hands;
mod outputs;
mod project;
mod requests;
mod sentences;
mod talk;

use fastrand::Rng;

use self::coder::Coder;
use self::grammar::chance;
use self::hands::Hands;
pub(crate) use self::talk::Conversation;

/// A kind of conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// An agent with a shell and nothing else; several requests.
    Shell,
    /// An agent with tools to read, edit, write and run; several calls in a turn.
    Tools,
    /// A person who asks and an agent that looks things up and acts for them; no files.
    Desk,
    /// One request that takes the whole conversation.
    Single,
    /// Many requests, some of a line, some that take back what an earlier one said.
    Requests,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Shell, Self::Tools, Self::Desk, Self::Single, Self::Requests];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Tools => "tools",
            Self::Desk => "desk",
            Self::Single => "single",
            Self::Requests => "requests",
        }
    }
}

/// Makes a conversation of about so many tokens, four characters each.
pub(crate) fn conversation(kind: Kind, seed: u64, tokens: usize) -> Conversation {
    let mut rng = Rng::with_seed(seed * 5 + kind as u64);
    let name = format!("{} {seed}", kind.name());
    if kind == Kind::Desk {
        return desk::conversation(rng, name, tokens);
    }
    let hands = match kind {
        Kind::Shell => Hands::Shell,
        Kind::Tools => Hands::Tools,
        Kind::Desk | Kind::Single | Kind::Requests if rng.bool() => Hands::Shell,
        Kind::Desk | Kind::Single | Kind::Requests => Hands::Tools,
    };
    let mut coder = Coder::new(rng, hands);
    let system = requests::system(&mut coder, hands);
    let of_each = match kind {
        Kind::Requests => tokens / coder.rng.usize(20..36),
        _ => tokens / coder.rng.usize(2..9),
    };
    let mut number = 0;
    while coder.talk.tokens() < tokens {
        let is_small = kind == Kind::Requests && number > 0 && chance(&mut coder.rng, 55);
        if !is_small {
            coder.aim();
        }
        requests::ask(&mut coder, number, is_small);
        let begun = coder.talk.tokens();
        let most = match kind {
            Kind::Single => tokens,
            _ => tokens.min(begun + grammar::size(&mut coder.rng, of_each as f64, tokens as f64)),
        };
        let turns = if is_small { coder.rng.usize(1..7) } else { 90 };
        coder.work(turns, most);
        // A long task goes on with its next part.
        while !is_small && kind != Kind::Requests && coder.talk.tokens() < most {
            coder.aim();
            if kind == Kind::Single || coder.rng.bool() {
                coder.plan();
            }
            coder.work(40, most);
        }
        coder.report();
        number += 1;
    }
    Conversation { name, system, messages: coder.talk.messages }
}
