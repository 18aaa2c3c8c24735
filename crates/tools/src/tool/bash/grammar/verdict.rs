//! Tells what the exit code of a command line says about one of its commands.
//!
//! Only lists at the top of a line are read: where a group, a loop or a condition decides, the
//! verdict is open.

use super::words::{self, Token, Word};
use super::{RESERVED, Reader};

/// A command that a line runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its words with quotes removed, joined by one blank, without what launches it.
    pub command: String,
    /// What the exit code of the line says about it.
    pub says: Says,
}

/// The meaning of a line's exit code for one of its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// 0: it succeeded. Another one: it failed or was not reached.
    Both,
    /// 0: it succeeded. Another one: nothing.
    Success,
    /// 0: nothing. Another one: it failed.
    Failure,
    /// Nothing.
    Nothing,
}

impl Says {
    /// Returns true if the command succeeded, false if it did not, and `None` if the exit code does
    /// not tell.
    pub fn verdict(self, exit_code: i32) -> Option<bool> {
        match (self, exit_code) {
            (Self::Both | Self::Success, 0) => Some(true),
            (Self::Both | Self::Failure, 1..) => Some(false),
            _ => None,
        }
    }
}

/// The operator after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joint {
    And,
    Or,
    Pipe,
    Background,
    /// `;` or a new line.
    Next,
    End,
}

/// Returns the last command of the line that is wanted. `wanted` gets the words of a command.
pub fn last(line: &str, wanted: impl Fn(&[&str]) -> bool) -> Option<Found> {
    let tokens = words::tokens(line).ok()?;
    let mut open = tokens.iter().any(|token| matches!(token, Token::Open | Token::Close));
    let parts = parts(tokens);
    let mut last = None;
    for (at, (words, _)) in parts.iter().enumerate() {
        let reserved = |word: &&Word| word.bare && RESERVED.contains(&word.text.as_str());
        let before = words.iter().take_while(reserved).count();
        open |= before > 0;
        let words = &words[before..];
        let assigned = words.iter().take_while(|word| assigns(word)).count();
        if let Some(command) = started(&words[assigned..]).into_iter().rfind(|command| {
            let words: Vec<_> = command.split(' ').collect();
            wanted(&words)
        }) {
            last = Some((at, command));
        }
    }
    let (at, command) = last?;
    let joints: Vec<_> = parts.iter().map(|(_, joint)| *joint).collect();
    let says = if open { Says::Nothing } else { says(&joints, at) };
    Some(Found { command, says })
}

/// Cuts a line into its commands, each with the operator after it.
fn parts(tokens: Vec<Token>) -> Vec<(Vec<Word>, Joint)> {
    let mut parts = vec![(Vec::new(), Joint::End)];
    let mut is_file = false;
    for token in tokens {
        let joint = match token {
            Token::Word(word) => {
                if !std::mem::take(&mut is_file) {
                    parts.last_mut().into_iter().for_each(|part| part.0.push(word.clone()));
                }
                continue;
            }
            Token::Redirection(redirection) => {
                is_file = redirection != words::Redirection::Document;
                continue;
            }
            Token::Open | Token::Close => continue,
            Token::Newline | Token::Semicolon => Joint::Next,
            Token::Ampersand => Joint::Background,
            Token::And => Joint::And,
            Token::Or => Joint::Or,
            Token::Pipe => Joint::Pipe,
        };
        // A new line after an operator only continues the list.
        match parts.last_mut() {
            Some(part) if !part.0.is_empty() => {
                part.1 = joint;
                parts.push((Vec::new(), Joint::End));
            }
            _ => {}
        }
    }
    while parts.len() > 1 && parts.last().is_some_and(|part| part.0.is_empty()) {
        parts.pop();
    }
    // `a ;` ends like `a`.
    if let Some((_, joint)) = parts.last_mut()
        && *joint == Joint::Next
    {
        *joint = Joint::End;
    }
    parts
}

fn assigns(word: &Word) -> bool {
    let name = word.text.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Returns a command and the commands that it starts.
fn started(words: &[Word]) -> Vec<String> {
    let mut reader = Reader::default();
    reader.command(words, 0);
    reader.reading.commands
}

/// Returns what the exit code of a line says about the command at `at`.
fn says(joints: &[Joint], at: usize) -> Says {
    let or_before = joints[..at]
        .iter()
        .rev()
        .take_while(|joint| !matches!(joint, Joint::Next | Joint::Background))
        .any(|joint| *joint == Joint::Or);
    let (own, after) = (joints[at], &joints[at + 1..]);
    match own {
        Joint::End if or_before => Says::Failure,
        Joint::End => Says::Both,
        // What follows runs only if the command succeeded.
        Joint::And if !or_before && all_and(after) => Says::Success,
        Joint::And | Joint::Or | Joint::Pipe | Joint::Background | Joint::Next => Says::Nothing,
    }
}

fn all_and(joints: &[Joint]) -> bool {
    joints.iter().all(|joint| matches!(joint, Joint::And | Joint::End | Joint::Pipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_of_a_line_is_read_for_one_command() {
        use Says::{Both, Failure, Nothing, Success};
        for (line, command, says) in [
            ("t", "t", Both),
            ("t;", "t", Both),
            ("cd a && X=1 t -v > log 2>&1", "t -v", Both),
            ("a; timeout 5 t", "t", Both),
            ("a | t", "t", Both),
            ("env -i t x", "t x", Both),
            ("sh -c 't x'", "t x", Both),
            ("t && a", "t", Success),
            ("t &&\n a | b", "t", Success),
            ("t 1 && t 2 && a", "t 2", Success),
            ("a || t", "t", Failure),
            ("a || t && b", "t", Nothing),
            ("a || b; t", "t", Both),
            ("t | tail", "t", Nothing),
            ("t || true", "t", Nothing),
            ("t && a || b", "t", Nothing),
            ("t\na", "t", Nothing),
            ("t & a", "t", Nothing),
            ("! t", "t", Nothing),
            ("(t)", "t", Nothing),
            ("if t; then a; fi", "t", Nothing),
        ] {
            let found = last(line, |words| words.first() == Some(&"t"));
            assert_eq!(found, Some(Found { command: command.to_owned(), says }), "{line}");
        }
        for line in ["", "a t", "echo 'x; t'", "a > t", "t\u{202e}", "echo $(t", "\"t\"'"] {
            assert_eq!(last(line, |words| words.first() == Some(&"t")), None, "{line}");
        }
        let verdicts =
            [Both, Success, Failure, Nothing].map(|says| (says.verdict(0), says.verdict(1)));
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(verdicts, [(yes, no), (yes, None), (None, no), (None, None)]);
    }
}
