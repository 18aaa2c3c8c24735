//! Colours, where a terminal shows them and nobody objects.

use std::io::IsTerminal;

/// Whether to colour what goes to this stream: a terminal that is not dumb, and no NO_COLOR;
/// CLICOLOR_FORCE overrides both.
pub(super) fn is_on(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if set("NO_COLOR") {
        return false;
    }
    let forced =
        std::env::var("CLICOLOR_FORCE").is_ok_and(|value| value != "0" && !value.is_empty());
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    forced || (stream.is_terminal() && !dumb)
}

/// The colours that tell agents apart: the six of every terminal that are neither black nor white.
const PALETTE: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// How text is coloured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    on: bool,
}

impl Paint {
    pub(super) fn new(on: bool) -> Self {
        Self { on }
    }

    fn wrap(self, code: u8, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A name in a colour of its own, the same each time.
    pub(super) fn name(self, name: &str) -> String {
        let sum = name.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        self.wrap(PALETTE[sum % PALETTE.len()], name)
    }

    /// A state's word in the colour of its kind.
    pub(super) fn state(self, word: &str, shown: &str) -> String {
        match word {
            "completed" | "reused" => self.wrap(32, shown),
            "failed" | "cancelled" => self.wrap(31, shown),
            "running" | "waiting" | "partial" => self.wrap(33, shown),
            _ => self.wrap(90, shown),
        }
    }

    /// Something of lesser weight.
    pub(super) fn faint(self, text: &str) -> String {
        self.wrap(90, text)
    }
}
