//! Lists the commands that a line may run, for rules that ask or deny.
//!
//! A command can begin only at the start of a text, behind a separator, or behind the words of a
//! launcher. From each such place one command is read, as if no quote were open there: so nothing that
//! stands before it can hide it, and a command in quotes is found too. It finds more than what runs.

use super::grammar;

/// Most characters that are read for one line: eight times the longest text with which Linux starts a shell
/// (128 KiB). Each rule is compared with all of them.
const MOST_CHARS: usize = 1 << 20;

/// Most levels of texts within each other.
const MOST_LEVELS: usize = 16;

/// Commands behind a launcher that are listed with all their words, and the words that are listed of
/// further ones.
const WHOLE: usize = 16;

/// Words that stand before a command and are not part of it.
const LEADING: [&str; 12] =
    ["if", "then", "elif", "else", "while", "until", "do", "!", "{", "fi", "done", "esac"];

/// Launchers that give their command words which do not stand in the line.
const ADDING: [&str; 3] = ["xargs", "parallel", "alias"];

/// The commands that a line may run.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Each command with quotes removed, as its words with one blank between them.
    pub(super) texts: Vec<String>,
    /// True if the line is too long or too deep to be read.
    pub(super) unread: bool,
    read: usize,
}

/// Lists the commands that a line may run.
pub(super) fn suspects(command: &str) -> Suspects {
    let mut found = Suspects::default();
    found.text(command, 0);
    found.texts.sort();
    found.texts.dedup();
    found
}

impl Suspects {
    fn add(&mut self, text: &str) {
        self.read += text.len();
        self.unread |= self.read > MOST_CHARS;
        if !text.is_empty() && !self.unread {
            self.texts.push(text.to_owned());
        }
    }

    /// Reads the commands of a text for a shell.
    fn text(&mut self, text: &str, depth: usize) {
        if depth > MOST_LEVELS {
            self.unread = true;
            return;
        }
        let chars: Vec<char> = text.chars().collect();
        // An arm of a `case` ends with a bracket that nothing opens.
        let has_case = text.contains("case");
        let mut open = Vec::new();
        let mut begins = true;
        for (at, c) in chars.iter().enumerate() {
            if begins {
                let (words, read) = Words::read(&chars, at);
                self.read += read;
                self.command(&words, depth);
            }
            if self.is_over() {
                return;
            }
            begins = match c {
                ';' | '|' | '&' | '\n' | '`' => true,
                '(' => {
                    open.push(at.checked_sub(1).is_some_and(|before| chars[before] == '$'));
                    true
                }
                ')' => !open.pop().unwrap_or_default() || has_case,
                _ => false,
            };
        }
    }

    /// Adds a command, and what it may launch.
    fn command(&mut self, words: &[String], depth: usize) {
        let mut words = words;
        while let [first, rest @ ..] = words {
            self.program(words);
            if self.is_over() || !LEADING.contains(&first.as_str()) && !assigns(first) {
                break;
            }
            words = rest;
        }
        let Some(first) = words.first() else { return };
        let name = base(first);
        let runs = |word: &String| word.starts_with("-exec") || word.starts_with("-ok");
        let from = match name {
            "find" | "gfind" => words.iter().position(runs),
            name => grammar::is_launcher(name).then_some(0),
        };
        let Some(from) = from else { return };
        let words = &words[from + 1..];
        self.launched(name, words, depth);
        // `eval` and others join their words to one text.
        let joined = words.join(" ");
        if words.len() > 1
            && (joined.contains(|c| "'\"\\;|&()`\n".contains(c)) || holds_blank(words))
        {
            self.text(&joined, depth + 1);
        }
    }

    /// Reads a word of a launcher as a text for a shell: all of it, the value of an option, and what
    /// stands behind a `=`.
    fn inner(&mut self, word: &str, depth: usize) {
        let joined = word.strip_prefix('-').and_then(|option| option.get(1..));
        let value = word.split_once('=').map(|(_, value)| value);
        for text in [Some(word), joined, value].into_iter().flatten() {
            let is_plain = |c: char| c.is_alphanumeric() || "_./+-@%:,".contains(c);
            if value == Some(text) || text.contains(|c| !is_plain(c)) {
                self.text(text, depth + 1);
            }
        }
        if let Some(value) = value {
            self.add(&format!("{value} {{}}"));
        }
    }

    /// Adds the commands that a launcher may run: from each of its words on, up to the first that can
    /// be no option, no value of one and no launcher itself.
    fn launched(&mut self, name: &str, words: &[String], depth: usize) {
        let adds = ADDING.contains(&name);
        let (mut is_wide, mut is_value) = (grammar::runs_any_word(name), false);
        for (at, word) in words.iter().enumerate() {
            match at < WHOLE {
                true => self.program(&words[at..]),
                false => self.program(&words[at..words.len().min(at + WHOLE)]),
            }
            if adds && at < WHOLE {
                self.add(&format!("{} {{}}", words[at..].join(" ")));
            }
            self.inner(word, depth);
            is_wide |= grammar::runs_any_word(base(word));
            let is_option = word.starts_with('-');
            let goes_on = is_wide
                || is_option
                || is_value
                || assigns(word)
                || LEADING.contains(&word.as_str())
                || word.starts_with(|c: char| c.is_ascii_digit())
                || grammar::is_launcher(base(word));
            if self.is_over() || !goes_on {
                return;
            }
            is_value = is_option;
        }
    }

    /// Returns true if too much was read.
    fn is_over(&mut self) -> bool {
        self.unread |= self.read > MOST_CHARS;
        self.unread
    }

    /// Adds a command as it is written, and by the name of its program without a folder.
    fn program(&mut self, words: &[String]) {
        let [first, rest @ ..] = words else { return };
        self.add(&words.join(" "));
        if base(first) != first {
            let named: Vec<&str> =
                std::iter::once(base(first)).chain(rest.iter().map(String::as_str)).collect();
            self.add(&named.join(" "));
        }
    }
}

fn holds_blank(words: &[String]) -> bool {
    words.iter().any(|word| word.contains(' '))
}

/// Returns the name of a program without its folder.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

/// Returns true if a word assigns a variable: `A=x`, `A+=x`, `A[1]=x`.
fn assigns(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    let name = name.strip_suffix('+').unwrap_or(name);
    let name = name.split('[').next().unwrap_or_default();
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Reads the words of one command.
struct Words<'c> {
    chars: &'c [char],
    at: usize,
    words: Vec<String>,
    word: String,
    /// True if a word has begun, which may be empty.
    begun: bool,
    /// True if the next word is the file of a redirection.
    is_file: bool,
}

impl<'c> Words<'c> {
    /// Returns the words of the command that begins at a place, without quotes and redirections, and
    /// the number of characters that were read.
    fn read(chars: &'c [char], from: usize) -> (Vec<String>, usize) {
        let mut reader = Words {
            chars,
            at: from,
            words: Vec::new(),
            word: String::new(),
            begun: false,
            is_file: false,
        };
        while reader.step() {}
        reader.end_word();
        (reader.words, reader.at - from + 1)
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn push(&mut self, c: char) {
        self.begun = true;
        self.word.push(c);
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        if std::mem::take(&mut self.begun) && !std::mem::take(&mut self.is_file) {
            self.words.push(word);
        }
    }

    /// Reads on. Returns false at the end of the command.
    fn step(&mut self) -> bool {
        let Some(c) = self.peek(0) else { return false };
        match c {
            ' ' | '\t' => self.end_word(),
            '\n' | ';' | '|' | '&' | '(' | ')' | '`' => return false,
            '#' if !self.begun => return false,
            '\\' => {
                self.at += 1;
                match self.peek(0) {
                    Some('\n') => {}
                    Some('`') | None => return false,
                    Some(c) => self.push(c),
                }
            }
            '\'' => self.quoted(),
            '"' => self.double_quotes(),
            '$' => self.expansion(),
            '<' | '>' => self.redirection(),
            c => self.push(c),
        }
        self.at += 1;
        true
    }

    /// Reads to the last character of a text in single quotes.
    fn quoted(&mut self) {
        self.begun = true;
        self.at += 1;
        while let Some(c) = self.peek(0).filter(|c| *c != '\'') {
            self.push(c);
            self.at += 1;
        }
    }

    /// Reads to the last character of a text in double quotes.
    fn double_quotes(&mut self) {
        self.begun = true;
        self.at += 1;
        while let Some(c) = self.peek(0).filter(|c| *c != '"') {
            match (c, self.peek(1)) {
                ('\\', Some('\n')) => self.at += 1,
                ('\\', Some(next @ ('$' | '`' | '"' | '\\'))) => {
                    self.at += 1;
                    self.push(next);
                }
                ('$', Some('(')) => self.substitution(),
                _ => self.push(c),
            }
            self.at += 1;
        }
    }

    /// Reads to the last character of what a `$` begins.
    fn expansion(&mut self) {
        match self.peek(1) {
            Some('(') => self.substitution(),
            Some('\'') => {
                self.at += 1;
                self.escaped();
            }
            // `$"` is a quote that may be translated.
            Some('"') => {}
            _ => self.push('$'),
        }
    }

    /// Reads `'...'` with the escapes of C to its last character.
    fn escaped(&mut self) {
        self.begun = true;
        self.at += 1;
        while let Some(c) = self.peek(0).filter(|c| *c != '\'') {
            self.at += 1;
            if c != '\\' {
                self.push(c);
                continue;
            }
            let Some(kind) = self.peek(0) else { return };
            let (skip, most, base) = match kind {
                'x' => (1, 2, 16),
                'u' => (1, 4, 16),
                'U' => (1, 8, 16),
                '0'..='7' => (0, 3, 8),
                _ => {
                    self.at += 1;
                    self.push(if kind == 'n' { '\n' } else { kind });
                    continue;
                }
            };
            self.at += skip;
            let mut number = 0;
            for _ in 0..most {
                let Some(digit) = self.peek(0).and_then(|c| c.to_digit(base)) else { break };
                number = number * base + digit;
                self.at += 1;
            }
            self.push(char::from_u32(number).unwrap_or('?'));
        }
    }

    /// Skips `$(...)` to its last bracket, which stands in the word as `$()`.
    fn substitution(&mut self) {
        self.word.push_str("$()");
        self.begun = true;
        self.at += 1;
        let mut open = Vec::new();
        while let Some(c) = self.peek(0) {
            match (c, open.last()) {
                ('\\', _) => self.at += 1,
                ('"', Some('"')) => drop(open.pop()),
                ('"', _) => open.push('"'),
                ('(', Some('"')) if self.at == 0 || self.chars[self.at - 1] != '$' => {}
                ('(', _) => open.push('('),
                (')', Some('(')) => drop(open.pop()),
                ('\'', Some('(')) => {
                    self.at += 1;
                    while self.peek(0).is_some_and(|c| c != '\'') {
                        self.at += 1;
                    }
                }
                _ => {}
            }
            if open.is_empty() {
                return;
            }
            self.at += 1;
        }
    }

    /// Skips the operator of a redirection; a number before it is its descriptor.
    fn redirection(&mut self) {
        let is_descriptor = !self.word.is_empty()
            && (self.word.bytes().all(|b| b.is_ascii_digit())
                || self.word.starts_with('{') && self.word.ends_with('}'));
        if is_descriptor {
            self.word.clear();
            self.begun = false;
        }
        self.end_word();
        while matches!(self.peek(1), Some('<' | '>' | '&' | '|')) {
            self.at += 1;
        }
        self.is_file = true;
    }
}

#[cfg(test)]
mod tests;
