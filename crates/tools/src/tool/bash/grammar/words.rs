//! Cuts the text of a command line into words and operators, as both dash and bash do.
//!
//! It removes quotes and refuses what runs other commands inside a word, what the shells cut
//! differently, and characters that a reader cannot see. It knows no grammar.

/// A piece of a command line.
#[derive(Debug)]
pub(super) enum Token {
    Word(Word),
    /// A redirection with its descriptor; the word after it is the file, except for a document.
    Redirection(Redirection),
    Newline,
    Semicolon,
    Ampersand,
    And,
    Or,
    Pipe,
    Open,
    Close,
}

impl Token {
    pub(super) fn into_word(self) -> Option<Word> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// The purpose of a redirection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    Read,
    Write,
    /// Copies or closes a descriptor.
    Duplicate,
    /// Reads the lines after it, in which nothing is expanded.
    Document,
}

/// A word of a command line.
#[derive(Clone, Debug)]
pub(super) struct Word {
    /// The text without quotes. Expansions stay as written.
    pub(super) text: String,
    /// True if the shells pass on exactly this text: it holds no expansion, pattern, brace or `~`.
    pub(super) literal: bool,
    /// True if nothing in it is quoted or escaped: only such a word can be a reserved word.
    pub(super) bare: bool,
    /// True if expansion may make several arguments of it, or none.
    pub(super) splits: bool,
    /// True if expansion may decide how one of its arguments begins, for example with `-`.
    pub(super) loose: bool,
}

impl Word {
    /// Returns a word that the shells pass on as it is.
    pub(super) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), literal: true, bare: false, splits: false, loose: false }
    }

    /// Returns a word whose arguments another program makes.
    pub(super) fn unknown(text: &str) -> Self {
        Self { literal: false, splits: true, loose: true, ..Self::literal(text) }
    }

    /// Returns the text for a rule, quoted if it could be taken for several words, for none, or for
    /// a text in quotes.
    pub(super) fn shown(&self) -> String {
        match self.text.is_empty() || self.text.contains([' ', '\t', '\n', '\'']) {
            true => format!("'{}'", self.text.replace('\'', "'\\''")),
            false => self.text.clone(),
        }
    }

    /// Adds a character by which the shell may expand the word to several.
    fn push_pattern(&mut self, c: char) {
        self.loose |= self.text.is_empty();
        (self.literal, self.splits) = (false, true);
        self.text.push(c);
    }
}

/// Cuts a text into tokens.
///
/// # Errors
/// Returns why the text is unclear.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    if let Some(c) = text.chars().find(|c| is_unseen(*c)) {
        return Err(format!("it holds the character U+{:04X}", u32::from(c)));
    }
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, document: None };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.token()? {
        tokens.push(token);
    }
    match lexer.document {
        Some(_) => Err("a here-document does not end".to_owned()),
        None => Ok(tokens),
    }
}

/// Ranges of characters that change how a text looks and are not seen themselves: soft hyphen,
/// direction of writing, zero width, line and paragraph separator, tags.
const UNSEEN: [(char, char); 8] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{e0000}', '\u{e007f}'),
];

fn is_unseen(c: char) -> bool {
    let control = c.is_control() && c != '\t' && c != '\n';
    control || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// Operators with `<` and `>`, longest first; `None`: the shells differ, or text is run.
const REDIRECTIONS: [(&str, Option<Redirection>); 12] = [
    ("<<<", None),
    ("<<-", None),
    ("<<", Some(Redirection::Document)),
    ("<&", Some(Redirection::Duplicate)),
    ("<>", Some(Redirection::Write)),
    ("<(", None),
    ("<", Some(Redirection::Read)),
    (">>", Some(Redirection::Write)),
    (">&", Some(Redirection::Duplicate)),
    (">|", Some(Redirection::Write)),
    (">(", None),
    (">", Some(Redirection::Write)),
];

/// Where an expansion stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Bare,
    DoubleQuotes,
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    /// The last line of a here-document that begins after the next line end.
    document: Option<String>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek(0);
        self.at += usize::from(c.is_some());
        c
    }

    /// Consumes the text if it is next.
    fn take(&mut self, text: &str) -> bool {
        let found = text.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c));
        self.at += if found { text.len() } else { 0 };
        found
    }

    /// Consumes the longest run of such characters and returns it.
    fn run(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let run: String =
            self.chars[self.at..].iter().copied().take_while(|c| belongs(*c)).collect();
        self.at += run.chars().count();
        run
    }

    /// Returns the next token; `None` at the end of the text.
    fn token(&mut self) -> Result<Option<Token>, String> {
        self.skip_blanks()?;
        let Some(c) = self.peek(0) else { return Ok(None) };
        let unclear = ["&>", "|&", ";;", ";&", "(("];
        if let Some(operator) = unclear.into_iter().find(|operator| self.take(operator)) {
            return Err(format!("the shells differ on `{operator}`"));
        }
        let token = match c {
            '&' if self.take("&&") => Token::And,
            '|' if self.take("||") => Token::Or,
            '<' | '>' => return self.redirection().map(Some),
            '\n' | ';' | '&' | '|' | '(' | ')' => {
                self.bump();
                match c {
                    '\n' => self.end_line()?,
                    ';' => Token::Semicolon,
                    '&' => Token::Ampersand,
                    '|' => Token::Pipe,
                    '(' => Token::Open,
                    _ => Token::Close,
                }
            }
            _ => return self.word_or_descriptor().map(Some),
        };
        Ok(Some(token))
    }

    /// Skips blanks, continued lines and a comment.
    fn skip_blanks(&mut self) -> Result<(), String> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(' ' | '\t'), _) => self.at += 1,
                (Some('\\'), Some('\n')) => self.continue_line()?,
                (Some('#'), _) => {
                    let comment = self.run(|c| c != '\n');
                    if comment.ends_with('\\') || self.document.is_some() {
                        return Err("the end of a comment is not certain".to_owned());
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Consumes a backslash at the end of a line. Between two parts of an operator or of a word old
    /// shells differ, so only a whole token may stand before it.
    fn continue_line(&mut self) -> Result<(), String> {
        let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at)).copied();
        while self.take("\\\n") {}
        let plain = |c: char| c.is_alphabetic() || "_./'\"".contains(c);
        let apart = match before {
            None | Some(' ' | '\t' | '\n') => true,
            Some('&' | '|' | ';' | '(' | ')' | '<' | '>') => {
                self.peek(0).is_none_or(|c| is_blank(c) || plain(c))
            }
            Some(_) => self.peek(0).is_none_or(is_blank),
        };
        match apart && self.document.is_none() {
            true => Ok(()),
            false => Err("a line continues within a word or an operator".to_owned()),
        }
    }

    /// Reads the here-document that begins after this line end, if there is one.
    fn end_line(&mut self) -> Result<Token, String> {
        let Some(last) = self.document.take() else { return Ok(Token::Newline) };
        loop {
            let line = self.run(|c| c != '\n');
            let more = self.bump().is_some();
            if line == last {
                return Ok(Token::Newline);
            }
            if !more {
                return Err("a here-document does not end".to_owned());
            }
        }
    }

    fn redirection(&mut self) -> Result<Token, String> {
        let known = REDIRECTIONS.into_iter().find(|(operator, _)| self.take(operator));
        match known {
            Some((_, Some(Redirection::Document))) => self.document(),
            Some((_, Some(kind))) => Ok(Token::Redirection(kind)),
            Some((operator, None)) => Err(format!("`{operator}` is not understood")),
            None => Err("a redirection is not understood".to_owned()),
        }
    }

    /// Reads the quoted name of a here-document. Without quotes the lines would be expanded.
    fn document(&mut self) -> Result<Token, String> {
        self.run(|c| c == ' ' || c == '\t');
        let quote = self.bump();
        let name = self.run(|c| c.is_ascii_alphanumeric() || c == '_');
        let quoted = matches!(quote, Some('\'' | '"')) && self.bump() == quote;
        let ends = self.peek(0).is_some_and(|c| is_blank(c) || "&|;)>".contains(c));
        if !quoted || name.is_empty() || !ends || self.document.is_some() {
            return Err("a here-document is understood only with a quoted name".to_owned());
        }
        self.document = Some(name);
        Ok(Token::Redirection(Redirection::Document))
    }

    /// Reads a word, or the descriptor of a redirection and its operator.
    fn word_or_descriptor(&mut self) -> Result<Token, String> {
        let word = self.word()?;
        let text = word.text.as_str();
        if self.document.is_some() && text.contains('\n') {
            return Err("a line ends in a word before a here-document".to_owned());
        }
        if !matches!(self.peek(0), Some('<' | '>')) {
            return Ok(Token::Word(word));
        }
        if word.bare && text.bytes().all(|b| b.is_ascii_digit()) {
            // dash reads only one digit as a descriptor, and more as an argument.
            return match text.len() {
                1 => self.redirection(),
                _ => Err(format!("the shells differ on the descriptor {text}")),
            };
        }
        // bash stores a new descriptor in the variable, and dash passes an argument.
        match text.starts_with('{') && text.ends_with('}') {
            true => Err(format!("the shells differ on the descriptor {text}")),
            false => Ok(Token::Word(word)),
        }
    }

    fn word(&mut self) -> Result<Word, String> {
        let mut word = Word { bare: true, ..Word::literal("") };
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\n' | '&' | '|' | ';' | '<' | '>' | ')' => break,
                // With extended patterns `!(` begins a pattern.
                '(' if word.text == "!" => return Err("`!(` is not understood".to_owned()),
                '(' => break,
                '\\' if self.peek(1) == Some('\n') => {
                    self.continue_line()?;
                    break;
                }
                '\\' => {
                    self.at += 1;
                    let escaped = self.bump().ok_or("a backslash ends the text")?;
                    word.bare = false;
                    word.text.push(escaped);
                }
                '\'' => {
                    self.at += 1;
                    word.bare = false;
                    word.text += &self.run(|c| c != '\'');
                    self.bump().ok_or("a quote is not closed")?;
                }
                '"' => {
                    self.at += 1;
                    word.bare = false;
                    self.double_quotes(&mut word)?;
                }
                '`' => return Err("a backtick runs another command".to_owned()),
                '$' => self.expansion(&mut word, Place::Bare)?,
                _ => {
                    self.at += 1;
                    match c {
                        '*' | '?' | '[' => word.push_pattern(c),
                        '{' if !self.ends_empty_braces() => word.push_pattern(c),
                        '~' => {
                            word.literal = false;
                            word.text.push(c);
                        }
                        _ => word.text.push(c),
                    }
                }
            }
        }
        Ok(word)
    }

    /// Returns true if `}` and the end of the word are next: `{}` alone is never expanded.
    fn ends_empty_braces(&self) -> bool {
        let ends = |c: char| is_blank(c) || "&|;<>()".contains(c);
        self.peek(0) == Some('}') && self.peek(1).is_none_or(ends)
    }

    /// Reads up to the closing quote.
    fn double_quotes(&mut self, word: &mut Word) -> Result<(), String> {
        loop {
            match self.peek(0).ok_or("a quote is not closed")? {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '`' => return Err("a backtick runs another command".to_owned()),
                '$' => self.expansion(word, Place::DoubleQuotes)?,
                '\\' => {
                    self.at += 1;
                    match self.bump().ok_or("a quote is not closed")? {
                        '\n' if word.literal && self.document.is_none() => {}
                        '\n' => return Err("a line continues within a word".to_owned()),
                        c @ ('$' | '`' | '"' | '\\') => word.text.push(c),
                        c => word.text.extend(['\\', c]),
                    }
                }
                c => {
                    self.at += 1;
                    word.text.push(c);
                }
            }
        }
    }

    /// Reads `$` and the plain parameter after it, and adds it as written.
    fn expansion(&mut self, word: &mut Word, place: Place) -> Result<(), String> {
        let from = self.at;
        self.at += 1;
        let quoted = place == Place::DoubleQuotes;
        let next = self.peek(0);
        let many = matches!(next, Some('@' | '*'));
        // These are always a number.
        let counts = matches!(next, Some('?' | '#' | '$'));
        match next {
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                self.run(is_name);
            }
            Some('0'..='9' | '-' | '!' | '?' | '#' | '$' | '@' | '*') => self.at += 1,
            Some('{') => self.braced()?,
            Some('(' | '[') => return Err("`$(` and `$[` run or compute text".to_owned()),
            // The dollar sign itself, as in a regular expression.
            next if next.is_none_or(|c| is_blank(c) || quoted && !"'\\`".contains(c)) => {
                word.text.push('$');
                return Ok(());
            }
            _ => return Err("the shells may differ on a `$`".to_owned()),
        }
        if !counts {
            word.loose |= !quoted || many || word.text.is_empty();
            word.splits |= !quoted || many;
        }
        word.literal = false;
        word.text.extend(&self.chars[from..self.at]);
        Ok(())
    }

    /// Reads `{NAME}`, `{#NAME}`, or `{NAME` with `#`, `##`, `%` or `%%` and a plain pattern.
    fn braced(&mut self) -> Result<(), String> {
        self.at += 1;
        let counts = self.take("#");
        let name = self.run(is_name);
        let digits = name.bytes().all(|b| b.is_ascii_digit());
        let valid = !name.is_empty() && (digits || !name.starts_with(|c: char| c.is_ascii_digit()));
        let strips = ["##", "#", "%%", "%"].into_iter().any(|operator| self.take(operator));
        if strips {
            self.run(|c| c.is_ascii_alphanumeric() || "_./*?-,:@+".contains(c));
        }
        match valid && !(counts && strips) && self.bump() == Some('}') {
            true => Ok(()),
            false => Err("an expansion of `${` is more than a name".to_owned()),
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
