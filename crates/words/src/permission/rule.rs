//! One permission rule: the syntax `tool` and `tool(argument glob)`, and what a rule fits.

use std::fmt;

use globset::GlobSet;
use serde::{Deserialize, Serialize, Serializer};

use super::{Deed, Subject, allowing};
use crate::glob::{self, Wildcards};

/// One rule: a tool name glob and, in brackets, an optional glob over the call's argument.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Rule {
    pub(super) text: String,
    pub(super) tool: GlobSet,
    /// The globs of the argument, of which one must match; absent for every call of the tool.
    pub(super) argument: Option<Vec<GlobSet>>,
    /// The argument if it has no wildcards.
    pub(super) exact: Option<String>,
    /// The first word of the argument, for programs that are named by a path.
    program: Option<Program>,
    /// The words of the argument without wildcards.
    words: Vec<String>,
}

/// The programs that a rule names by a path.
#[derive(Clone)]
struct Program {
    glob: GlobSet,
    is_literal: bool,
}

impl Program {
    /// Reads the first word of an argument. A `*` at the end of a path stands for no other path.
    fn of(argument: &str) -> Option<Self> {
        let mut level = 0_usize;
        let end = argument.char_indices().find(|(_, c)| {
            match c {
                '{' | '[' => level += 1,
                '}' | ']' => level = level.saturating_sub(1),
                _ => {}
            }
            *c == ' '
        });
        // A blank in braces: the first word is not one.
        if level > 0 {
            return None;
        }
        let word = argument.get(..end.map_or(argument.len(), |(at, _)| at))?;
        let path = word.trim_end_matches('*');
        let word = if path.contains('/') && !path.ends_with('/') { path } else { word };
        let glob = glob::compile(word, Wildcards::WithinName).ok()?;
        Some(Self { glob, is_literal: !word.contains(WILD) })
    }

    /// Returns true if a path is meant. A wildcard does not stand for `..`.
    fn is(&self, path: &str) -> bool {
        let climbs = path.split('/').any(|part| part == "..");
        self.glob.is_match(path) && (self.is_literal || !climbs)
    }
}

/// Characters that have a meaning of their own in a glob.
const WILD: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// Ending of an argument that stands for a command with any arguments or none: `npm test:*`.
const WITH_ANY: &str = ":*";

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a permission rule: {reason}")]
pub struct BadRule {
    /// The rule as written.
    pub text: String,
    /// Description of the error in the rule.
    pub reason: String,
}

impl Rule {
    /// Reads `tool` or `tool(glob)`.
    ///
    /// # Errors
    /// Returns an error if no tool is named, the bracket is not closed or a glob cannot be read.
    pub fn parse(text: &str) -> Result<Self, BadRule> {
        let bad = |reason: String| BadRule { text: text.to_owned(), reason };
        let (tool, argument) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let inner = rest.strip_suffix(')');
                (tool, Some(inner.ok_or_else(|| bad("the bracket is not closed".to_owned()))?))
            }
        };
        if tool.trim().is_empty() {
            return Err(bad("it names no tool".to_owned()));
        }
        let glob = |pattern: &str| glob::compile(pattern, Wildcards::Any);
        // In an argument `*` also crosses `/`: a rule against `rm -rf *` must hold for paths.
        let tool = glob(tool.trim()).map_err(bad)?;
        let is_exact = |argument: &&str| !argument.contains(WILD) && !argument.ends_with(WITH_ANY);
        let exact = argument.filter(is_exact).map(str::to_owned);
        let globs = |argument: &str| -> Result<Vec<GlobSet>, String> {
            match argument.strip_suffix(WITH_ANY) {
                Some(command) => Ok(vec![glob(command)?, glob(&format!("{command} *"))?]),
                None => Ok(vec![glob(argument)?]),
            }
        };
        let command = argument.unwrap_or_default();
        let command = command.strip_suffix(WITH_ANY).unwrap_or(command);
        let literal = |word: &&str| !word.is_empty() && !word.contains(WILD);
        let words = command.split(' ').filter(literal).map(str::to_owned).collect();
        let program = (Program::of(command), words);
        let narrow = argument.filter(|argument| *argument != "*");
        let argument = narrow.map(globs).transpose().map_err(bad)?;
        let text = text.to_owned();
        Ok(Self { text, tool, argument, exact, program: program.0, words: program.1 })
    }

    /// Returns true if the rule is about this tool, whatever the arguments.
    #[must_use]
    pub fn names(&self, tool: &str) -> bool {
        self.tool.is_match(tool)
    }

    /// Returns true if the rule matches every call of this tool.
    pub(super) fn names_all(&self, tool: &str) -> bool {
        self.argument.is_none() && self.names(tool)
    }

    /// Returns true if the rule matches this text of a call of `tool`.
    pub(super) fn fits(&self, tool: &str, text: &str) -> bool {
        self.names(tool)
            && self.argument.as_ref().is_none_or(|globs| globs.iter().any(|g| g.is_match(text)))
    }

    /// Returns true if the rule matches any part of a call of `tool`. That is enough for a rule that
    /// asks or denies.
    #[must_use]
    pub fn touches(&self, tool: &str, subject: &Subject) -> bool {
        let of_deed = |deed: &Deed| {
            let mut texts = deed.texts.iter().chain(&deed.spellings);
            texts.any(|text| self.fits(&deed.tool, text)) || self.names_all(&deed.tool)
        };
        self.names_all(tool)
            || subject.unread && self.names(tool)
            || subject.suspects.iter().any(|text| self.fits(tool, text))
            || subject.deeds.iter().any(of_deed)
    }

    /// Returns true if the rule allows this deed.
    #[must_use]
    pub fn covers(&self, deed: &Deed) -> bool {
        let fits = |text: &String| self.fits(&deed.tool, text);
        let by_texts = || !deed.texts.is_empty() && deed.texts.iter().all(fits);
        self.names_all(&deed.tool)
            || (by_texts() || deed.spellings.iter().any(fits))
                && self.names_program(deed)
                && self.spells_out(&deed.cautions)
    }

    /// Returns true if the rule names the program of a command that is named by a path: `ls*` is not
    /// about `ls/../perl`.
    fn names_program(&self, deed: &Deed) -> bool {
        match deed.program.as_deref().filter(|program| program.contains('/')) {
            Some(path) => self.program.as_ref().is_some_and(|program| program.is(path)),
            None => true,
        }
    }

    /// Returns true if the rule holds each of the words, as often as they occur.
    fn spells_out(&self, words: &[String]) -> bool {
        let count = |among: &[String], word: &String| among.iter().filter(|w| *w == word).count();
        // A call can hold very many: then a rule holds fewer.
        words.len() <= self.words.len()
            && words.iter().all(|word| count(words, word) <= count(&self.words, word))
    }

    /// Returns the first word of a rule for commands which has wildcards, up to the first of them;
    /// `None` for a rule that matches every call of the tool, or one call.
    #[must_use]
    pub fn open_command(&self, tool: &str) -> Option<&str> {
        let is_open = self.names(tool) && self.argument.is_some() && self.exact.is_none();
        let (_, argument) = self.text.split_once('(').filter(|_| is_open)?;
        let argument = argument.strip_suffix(')').unwrap_or(argument);
        let argument = argument.strip_suffix(WITH_ANY).unwrap_or(argument);
        let word = argument.split(' ').next().unwrap_or_default();
        Some(word.split(WILD).next().unwrap_or_default())
    }

    /// Returns true if the rule alone allows all of a call: an allowed command must not carry
    /// another one along (`ls; rm -rf y`).
    #[must_use]
    pub fn covers_all(&self, tool: &str, subject: &Subject) -> bool {
        allowing(&[std::slice::from_ref(self)], tool, subject).is_some()
    }
}

impl TryFrom<String> for Rule {
    type Error = BadRule;
    fn try_from(text: String) -> Result<Self, BadRule> {
        Self::parse(&text)
    }
}

// By hand: `into` would copy the compiled globs for each text.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
