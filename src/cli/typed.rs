//! The line that a person types while a terminal gives each key at once, and echoes none of them.
//!
//! Pure. A line that the terminal gives whole is read the same way.

use std::borrow::Cow;

use crate::printable;

/// The most bytes of a line: what a terminal takes of one by itself.
const MOST: usize = 4096;

/// What a byte made of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Nothing that can be seen.
    Nothing,
    /// This was added at its end.
    Added(char),
    /// This was taken from its end.
    Erased(String),
    /// It is whole.
    Enter,
    /// The input has ended.
    End,
}

/// A line that is being typed.
#[derive(Debug, Default)]
pub(super) struct Typed {
    line: String,
    /// The bytes of a character that is not whole.
    open: Vec<u8>,
    code: Code,
}

/// The part of a code, such as that of an arrow, that the next byte belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Code {
    #[default]
    None,
    /// After the escape character.
    Begun,
    /// Until a letter or the like ends it.
    Long,
}

impl Typed {
    /// Returns the line.
    pub(super) fn line(self) -> String {
        self.line
    }

    /// Takes the next byte.
    pub(super) fn take(&mut self, byte: u8) -> Key {
        match (self.code, byte) {
            (Code::Begun, b'[' | b'O') => {
                self.code = Code::Long;
                return Key::Nothing;
            }
            (Code::Long, b' '..=b'?') => return Key::Nothing,
            (Code::Long, b'@'..=b'~') => {
                self.code = Code::None;
                return Key::Nothing;
            }
            (Code::None | Code::Begun | Code::Long, _) => self.code = Code::None,
        }
        match byte {
            b'\n' | b'\r' => Key::Enter,
            // Ctrl-D ends the input where nothing is typed.
            0x04 if self.line.is_empty() => Key::End,
            // Backspace, Ctrl-U and Ctrl-W.
            0x08 | 0x7f => {
                let last = self.line.char_indices().next_back();
                self.erase(last.map_or(0, |(at, _)| at))
            }
            0x15 => self.erase(0),
            0x17 => {
                let before = self.line.trim_end().rfind(' ');
                self.erase(before.map_or(0, |at| at + 1))
            }
            0x1b => {
                self.code = Code::Begun;
                Key::Nothing
            }
            0..b' ' => Key::Nothing,
            _ => self.add(byte),
        }
    }

    fn erase(&mut self, from: usize) -> Key {
        self.open.clear();
        match self.line.split_off(from) {
            erased if erased.is_empty() => Key::Nothing,
            erased => Key::Erased(erased),
        }
    }

    fn add(&mut self, byte: u8) -> Key {
        self.open.push(byte);
        let whole = match std::str::from_utf8(&self.open) {
            Ok(text) => text.chars().next(),
            Err(error) if error.error_len().is_none() => return Key::Nothing,
            Err(_) => None,
        };
        self.open.clear();
        let is_shown =
            |c: &char| matches!(printable::line(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_));
        let Some(added) = whole.filter(is_shown).filter(|_| self.line.len() < MOST) else {
            return Key::Nothing;
        };
        self.line.push(added);
        Key::Added(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> (String, Key) {
        let (mut typed, mut last) = (Typed::default(), Key::Nothing);
        for byte in keys.bytes() {
            last = typed.take(byte);
        }
        (typed.line(), last)
    }

    #[test]
    fn a_line_is_read_as_a_terminal_reads_it() {
        for (keys, line, last) in [
            ("yes\n", "yes", Key::Enter),
            ("y\r", "y", Key::Enter),
            ("né", "né", Key::Added('é')),
            ("né\x7f", "n", Key::Erased("é".to_owned())),
            ("n one two \x17", "n one ", Key::Erased("two ".to_owned())),
            ("n one\x15", "", Key::Erased("n one".to_owned())),
            ("\x7f", "", Key::Nothing),
            ("\x04", "", Key::End),
            ("n\x04", "n", Key::Nothing),
            ("n\x1b[A\x1b[1;5C\x1bOPo", "no", Key::Added('o')),
            ("\u{202e}\u{9b}\x07y", "y", Key::Added('y')),
        ] {
            assert_eq!(typed(keys), (line.to_owned(), last), "{keys:?}");
        }
        let mut broken = Typed::default();
        for byte in *b"a\xffb\xc3(c" {
            broken.take(byte);
        }
        assert_eq!(broken.line(), "abc");
    }
}
