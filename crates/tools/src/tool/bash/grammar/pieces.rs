//! Cuts a command line into the words that may name a file, however little of the line is understood.
//!
//! For what is shown to a person and compared before the command starts: a word too many does no harm, a
//! word too few does.

use super::words::{self, Token};

/// Most levels of texts for a shell within each other.
const MOST_LEVELS: usize = 4;

/// A word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tool::bash) struct Piece {
    /// The word without quotes.
    pub(in crate::tool::bash) text: String,
    /// True if it may be the name of a command.
    pub(in crate::tool::bash) first: bool,
}

/// Returns the words of a line, and those of the texts in it that a shell may read.
pub(in crate::tool::bash) fn pieces(line: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    collect(line, MOST_LEVELS, &mut pieces);
    pieces
}

fn collect(line: &str, levels: usize, pieces: &mut Vec<Piece>) {
    let Ok(tokens) = words::tokens(line) else { return roughly(line, pieces) };
    let mut first = true;
    for token in tokens {
        match token {
            Token::Word(word) => {
                let assigns = first && word.text.split_once('=').is_some();
                let text = word.text.clone();
                // It may be a text for a shell, or hold expansions.
                if levels > 0 && (!word.literal || text.contains(char::is_whitespace)) {
                    collect_inner(&text, levels - 1, pieces);
                }
                pieces.push(Piece { text, first });
                first = first && assigns;
            }
            Token::Redirection(_) => {}
            _ => first = true,
        }
    }
}

/// Takes the words of a text that is one word of a line.
fn collect_inner(text: &str, levels: usize, pieces: &mut Vec<Piece>) {
    match text.contains(char::is_whitespace) {
        true => collect(text, levels, pieces),
        false => roughly(text, pieces),
    }
}

/// Cuts at everything that may end a word. Any piece may be the name of a command.
fn roughly(text: &str, pieces: &mut Vec<Piece>) {
    let ends = |c: char| c.is_whitespace() || "'\"`$(){}<>|&;=,".contains(c);
    let words = text.split(ends).filter(|word| !word.is_empty());
    pieces.extend(words.map(|word| Piece { text: word.to_owned(), first: true }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_that_may_name_a_file_is_found() {
        for (line, wanted) in [
            ("sh deploy.sh", vec![("sh", true), ("deploy.sh", false)]),
            ("cd a && ./x 'b c'", vec![("cd", true), ("./x", true), ("b c", false), ("c", false)]),
            ("A=1 ./x; y | z", vec![("A=1", true), ("./x", true), ("y", true), ("z", true)]),
            ("sh -c 'sh \"in ner.sh\"'", vec![("in ner.sh", false), ("sh", true)]),
            ("sh < in.sh", vec![("sh", true), ("in.sh", false)]),
            ("python3 \"$HOME/x.py\"", vec![("/x.py", false)]),
            // Not understood at all.
            ("x=$(sh a.sh); eval <<< b", vec![("sh", true), ("a.sh", true), ("b", true)]),
        ] {
            let found = pieces(line);
            for (text, first) in wanted {
                let fits = |piece: &&Piece| {
                    (piece.text == text || piece.text.ends_with(text)) && (piece.first || !first)
                };
                assert!(found.iter().any(|piece| fits(&piece)), "{line}: {text} in {found:?}");
            }
        }
    }
}
