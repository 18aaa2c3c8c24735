//! Reads a command line as the shells `dash` and `bash` both do, for the rules of permission.
//!
//! It finds every simple command of the text and every file that a redirection in it writes.
//! A text is unclear if the two shells may read it differently, or if it runs something that does
//! not stand in it; a rule for a certain command never allows an unclear text. It looks only at the
//! text: it runs nothing, opens no file and knows no variable. What programs do with their
//! arguments stands in `programs`.

mod builders;
mod call;
pub(super) mod network;
mod options;
pub(super) mod pieces;
mod programs;
mod risks;
mod row;
mod scripts;
pub mod verdict;
mod words;

use std::iter::Peekable;
use std::vec;

use words::{Redirection, Token, Word};

pub(super) use call::is_called as goes_by;
#[cfg(test)]
pub(super) use options::{ENDS, table};
pub(super) use options::{is_launcher, runs_any_word};
pub(super) use programs::is_known;

/// An argument by which a command can run another program or write anywhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Caution {
    /// The place of the command among those of the reading.
    pub(super) command: usize,
    /// The word that a rule must hold to allow it.
    pub(super) word: String,
    pub(super) reason: String,
}

/// What a command line does, as far as its text tells.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Each simple command, as its words with quotes removed, joined by one blank. Each needs a
    /// rule that allows it.
    pub(super) commands: Vec<String>,
    /// The files that redirections of output, `tee` and `dd` write, with quotes removed. Harmless
    /// devices are left out.
    pub(super) writes: Vec<String>,
    /// Why a rule for a certain command cannot allow this text; `None` if all of it is understood.
    /// The lists then hold only what was found.
    pub(super) unclear: Option<String>,
    /// Arguments that only a rule which spells them out allows.
    pub(super) cautions: Vec<Caution>,
}

/// Reads a command line as both dash and bash do.
pub(super) fn read(command: &str) -> Reading {
    let mut reader = Reader::default();
    reader.text(command, 0);
    if reader.reading.commands.is_empty() && reader.reading.writes.is_empty() {
        reader.doubt("it holds no command");
    }
    let relative = |file: &String| !file.starts_with('/');
    // A rule would judge another file. The order does not matter: a loop can come back to a write.
    if reader.moves && reader.reading.writes.iter().any(relative) {
        reader.doubt("a relative path is written, and the directory changes");
    }
    reader.reading
}

/// Most levels of groups, launchers and texts for a shell within each other: it bounds the stack.
const MOST_LEVELS: usize = 16;

/// Files whose writing changes no file.
const HARMLESS_FILES: [&str; 3] = ["/dev/null", "/dev/stdout", "/dev/stderr"];

/// Paths by which bash opens a connection to the network instead of a file.
const CONNECTIONS: [&str; 2] = ["/dev/tcp/", "/dev/udp/"];

/// Words that at least one of the shells reserves at the begin of a command. `time` is not among
/// them: `programs` reads it as a launcher.
const RESERVED: [&str; 20] = [
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "{", "}", "!",
    "case", "esac", "select", "function", "coproc", "[[", "]]",
];

/// A result whose error says why the text is unclear.
type Parsed<T> = Result<T, String>;

/// A reading in the making, shared by a text and the texts for a shell inside it.
#[derive(Default)]
struct Reader {
    reading: Reading,
    /// True if a command may change the working directory.
    moves: bool,
    /// The words of each command, if they are wanted.
    calls: Option<Vec<Vec<Word>>>,
}

impl Reader {
    /// Makes the reading unclear. The first reason stays.
    fn doubt(&mut self, reason: impl Into<String>) {
        self.reading.unclear.get_or_insert_with(|| reason.into());
    }

    /// Notes an argument that a rule must spell out.
    fn caution(&mut self, command: usize, word: &str, reason: String) {
        self.reading.cautions.push(Caution { command, word: word.to_owned(), reason });
    }

    /// Reads a text for a shell.
    fn text(&mut self, text: &str, depth: usize) {
        let parsed = words::tokens(text).and_then(|tokens| {
            let mut parser = Parser { tokens: tokens.into_iter().peekable(), reader: self };
            parser.list(&[""], depth)
        });
        if let Err(reason) = parsed {
            self.doubt(reason);
        }
    }

    /// Adds a simple command, and the commands that it starts.
    fn command(&mut self, words: &[Word], depth: usize) {
        let Some(first) = words.first() else { return };
        let shown: Vec<_> = words.iter().map(Word::shown).collect();
        self.reading.commands.push(shown.join(" "));
        if let Some(calls) = &mut self.calls {
            calls.push(words.to_vec());
        }
        let judged = match name_fault(first) {
            Some(fault) => Err(fault),
            None if depth > MOST_LEVELS => Err("it is nested too deeply".to_owned()),
            None => programs::inspect(self, words, depth),
        };
        if let Err(reason) = judged {
            self.doubt(reason);
        }
    }

    /// Adds a file that is written.
    fn write(&mut self, file: &Word) -> Parsed<()> {
        check_file(file)?;
        if !HARMLESS_FILES.contains(&file.text.as_str()) {
            self.reading.writes.push(file.text.clone());
        }
        Ok(())
    }
}

/// Returns why a word cannot be the name of a command, if so.
fn name_fault(word: &Word) -> Option<String> {
    let text = word.text.as_str();
    let plain = |c: char| c.is_alphanumeric() || "_./+-@%:".contains(c);
    if text == "[" && word.bare {
        None
    } else if RESERVED.contains(&text) {
        Some(format!("`{text}` is a reserved word of a shell"))
    } else if word.literal && text.contains('=') {
        Some(format!("`{text}` assigns a variable"))
    } else if !word.literal || text.is_empty() || text.starts_with('-') || !text.chars().all(plain)
    {
        Some(format!("the command `{text}` has no certain name"))
    } else {
        None
    }
}

/// Refuses a path that expansion decides, or that opens no file.
fn check_file(file: &Word) -> Parsed<()> {
    let connects = CONNECTIONS.iter().any(|path| file.text.starts_with(path));
    if !file.literal || file.text.is_empty() || connects {
        return Err(format!("the path `{}` is not certain", file.text));
    }
    Ok(())
}

/// Returns true if a text may set this variable. Programs and shells give a meaning to names in
/// capitals (`PATH`, `IFS`, `GIT_PAGER`), of proxies, and of the settings of npm.
fn may_set(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.ends_with("_proxy")
        && !name.starts_with("npm_")
        && !RESERVED.contains(&name)
}

/// A parser of the grammar that both shells share.
struct Parser<'r> {
    tokens: Peekable<vec::IntoIter<Token>>,
    reader: &'r mut Reader,
}

impl Parser<'_> {
    /// Reads commands up to one of `ends`, consumes that end and returns it.
    fn list(&mut self, ends: &[&str], depth: usize) -> Parsed<&'static str> {
        self.skip_newlines();
        loop {
            self.and_or(depth)?;
            let separated = match self.tokens.peek() {
                Some(Token::Semicolon | Token::Ampersand) => self.tokens.next().is_some(),
                token => matches!(token, Some(Token::Newline)),
            };
            self.skip_newlines();
            match self.mark() {
                // After a group the shells differ on reserved words that no separator precedes.
                Some(end) if ends.contains(&end) && (separated || matches!(end, "" | ")")) => {
                    self.tokens.next();
                    return Ok(end);
                }
                _ if separated => {}
                mark => return Err(misplaced(mark)),
            }
        }
    }

    /// Reads pipelines joined by `&&` and `||`.
    fn and_or(&mut self, depth: usize) -> Parsed<()> {
        loop {
            self.pipeline(depth)?;
            if !matches!(self.tokens.peek(), Some(Token::And | Token::Or)) {
                return Ok(());
            }
            self.tokens.next();
            self.skip_newlines();
        }
    }

    /// Reads commands joined by `|`, after an optional `!`.
    fn pipeline(&mut self, depth: usize) -> Parsed<()> {
        if self.mark() == Some("!") {
            self.tokens.next();
        }
        loop {
            self.command(depth)?;
            if !matches!(self.tokens.peek(), Some(Token::Pipe)) {
                return Ok(());
            }
            self.tokens.next();
            self.skip_newlines();
        }
    }

    /// Reads a simple command, or a compound one with the redirections after it.
    fn command(&mut self, depth: usize) -> Parsed<()> {
        let opening = match self.tokens.peek() {
            Some(Token::Open) => "(",
            _ => match self.mark() {
                Some(mark) if !matches!(mark, "" | ")") => mark,
                _ => return self.simple(depth),
            },
        };
        if depth >= MOST_LEVELS {
            return Err("it is nested too deeply".to_owned());
        }
        self.tokens.next();
        self.compound(opening, depth + 1)?;
        while self.redirection()? {}
        Ok(())
    }

    /// Reads a compound command after its first word.
    fn compound(&mut self, opening: &'static str, depth: usize) -> Parsed<()> {
        match opening {
            "(" => self.list(&[")"], depth)?,
            "{" => self.list(&["}"], depth)?,
            "while" | "until" => {
                self.list(&["do"], depth)?;
                self.list(&["done"], depth)?
            }
            "for" => {
                self.loop_words()?;
                self.list(&["done"], depth)?
            }
            "if" => loop {
                self.list(&["then"], depth)?;
                match self.list(&["elif", "else", "fi"], depth)? {
                    "elif" => {}
                    "else" => break self.list(&["fi"], depth)?,
                    end => break end,
                }
            },
            other => return Err(misplaced(Some(other))),
        };
        Ok(())
    }

    /// Reads `NAME in WORDS; do` of a `for`.
    fn loop_words(&mut self) -> Parsed<()> {
        let fault = || Err("the head of a `for` is not understood".to_owned());
        match (self.tokens.next(), self.tokens.next()) {
            (Some(Token::Word(name)), Some(Token::Word(word)))
                if name.bare && may_set(&name.text) && word.bare && word.text == "in" => {}
            _ => return fault(),
        }
        while matches!(self.tokens.peek(), Some(Token::Word(_))) {
            self.tokens.next();
        }
        if !matches!(self.tokens.next(), Some(Token::Semicolon | Token::Newline)) {
            return fault();
        }
        self.skip_newlines();
        if self.mark() != Some("do") {
            return fault();
        }
        self.tokens.next();
        Ok(())
    }

    /// Reads the words and redirections of a simple command.
    fn simple(&mut self, depth: usize) -> Parsed<()> {
        let (mut words, mut redirects) = (Vec::new(), false);
        loop {
            if self.redirection()? {
                redirects = true;
            } else if let Some(Token::Word(_)) = self.tokens.peek() {
                words.extend(self.tokens.next().and_then(Token::into_word));
            } else {
                break;
            }
        }
        match self.tokens.peek() {
            Some(Token::Open) => Err("`(` after a word begins a function or a list".to_owned()),
            token if words.is_empty() && !redirects => Err(token
                .map_or("a command is missing at the end", |_| "a command is missing")
                .into()),
            _ => {
                self.reader.command(&words, depth);
                Ok(())
            }
        }
    }

    /// Reads a redirection, if one is next. Returns true if so.
    fn redirection(&mut self) -> Parsed<bool> {
        let Some(&Token::Redirection(kind)) = self.tokens.peek() else { return Ok(false) };
        self.tokens.next();
        if kind == Redirection::Document {
            return Ok(true);
        }
        let Some(file) = self.tokens.next().and_then(Token::into_word) else {
            return Err("a redirection has no file".to_owned());
        };
        match kind {
            Redirection::Document => {}
            Redirection::Read => check_file(&file)?,
            Redirection::Write => self.reader.write(&file)?,
            // dash knows descriptors of one digit only.
            Redirection::Duplicate => match file.text.as_bytes() {
                [b'0'..=b'9' | b'-'] if file.bare => {}
                _ => return Err(format!("the shells differ on a redirection to `&{}`", file.text)),
            },
        }
        Ok(true)
    }

    fn skip_newlines(&mut self) {
        while self.tokens.next_if(|token| matches!(token, Token::Newline)).is_some() {}
    }

    /// Returns what can end a list or begin a compound command, if it is next: a reserved word,
    /// `)`, or the empty text for the end of the text.
    fn mark(&mut self) -> Option<&'static str> {
        match self.tokens.peek() {
            None => Some(""),
            Some(Token::Close) => Some(")"),
            Some(Token::Word(word)) if word.bare => {
                RESERVED.iter().find(|reserved| **reserved == word.text).copied()
            }
            Some(_) => None,
        }
    }
}

fn misplaced(mark: Option<&str>) -> String {
    match mark {
        None => "a separator is missing".to_owned(),
        Some("") => "a bracket or a reserved word is not closed".to_owned(),
        Some(mark) => format!("`{mark}` is not understood here"),
    }
}

#[cfg(test)]
mod tests;
