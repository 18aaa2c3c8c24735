//! Formats and prints the diagnostics of a configuration for people.

use std::fmt;
use std::ops::Range;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents,
};

use super::complain;
use super::stream::{Stream, complain_in_lines, with_colours};
use crate::config::{Config, Diagnostic, Diagnostics, Excerpt, LOOSE_RULE, Severity, Sources};
use crate::exit::Exit;
use crate::printable;

/// Width of a suggestion in columns, after which it is wrapped, and that of what stands before it.
const WIDTH: usize = 100;
const HELP: usize = "  help: ".len();

/// A width that no line has. A reason stands in one line, so that a search finds its words.
const BOUNDLESS: usize = 100_000;

/// Prints the diagnostics of a loaded configuration. Returns the configuration if it has no errors.
pub(super) fn shown(
    loaded: Result<Config, Diagnostics>,
    sources: &Sources,
) -> Result<Config, Exit> {
    match loaded {
        Ok(config) => {
            // Rules that are loose are told where a file is checked, not with each run.
            let told = config.warnings.iter().filter(|found| found.code != LOOSE_RULE);
            told.for_each(show);
            Ok(config)
        }
        Err(problems) => {
            problems.0.iter().for_each(show);
            tally(&problems.0, sources);
            Err(Exit::Usage)
        }
    }
}

pub(super) fn show(found: &Diagnostic) {
    complain_in_lines(&text(found, Stream::Err.is_coloured()));
}

/// Prints the number of errors, for people.
pub(super) fn tally(found: &[Diagnostic], sources: &Sources) {
    let errors = found.iter().filter(|found| found.severity == Severity::Error).count();
    let is_all = found.iter().all(|found| found.code != "more_mistakes");
    let count = match (errors, is_all) {
        (1, true) => "1 mistake".to_owned(),
        (_, true) => format!("{errors} mistakes"),
        (_, false) => format!("more than {} mistakes", errors - 1),
    };
    complain(&format!("error: {count} in {}", sources.file.display()));
}

/// Formats a diagnostic: the reason, `file:line:column`, the line with carets, a suggestion.
pub(super) fn text(found: &Diagnostic, colour: bool) -> String {
    let mut theme = match colour {
        true => GraphicalTheme::unicode(),
        false => GraphicalTheme::unicode_nocolor(),
    };
    theme.characters.underline = '^';
    theme.characters.underbar = '^';
    theme.characters.error = format!("error[{}]:", found.code);
    theme.characters.warning = format!("warning[{}]:", found.code);
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_links(false)
        .with_width(BOUNDLESS)
        .with_break_words(false)
        .with_context_lines(1);
    let mut text = String::new();
    match handler.render_report(&mut text, &Shown::new(found)) {
        Ok(()) if colour => with_colours(&format!("{}\n", text.trim())),
        Ok(()) => format!("{}\n", text.trim()),
        Err(_) => format!("{}\n", plain(found)),
    }
}

/// Formats a diagnostic as one line, as compilers do.
pub(super) fn plain(found: &Diagnostic) -> String {
    let Diagnostic { file, line, column, message, .. } = found;
    format!("{file}:{line}:{column}: {message}")
}

/// A diagnostic for miette, safe to show: with its code in the first line and a label without text.
#[derive(Debug)]
struct Shown<'a> {
    found: &'a Diagnostic,
    message: String,
    help: Option<String>,
    file: String,
    /// The lines to show; none if the file could not be read.
    excerpt: Option<Excerpt>,
}

impl<'a> Shown<'a> {
    fn new(found: &'a Diagnostic) -> Self {
        let has_text = found.code != "unreadable_file" || !found.span.is_empty();
        let help = miette::Diagnostic::help(found);
        let excerpt = found.excerpt().filter(|_| has_text);
        Self {
            found,
            message: printable::block(&found.message).into_owned(),
            help: help.map(|help| wrapped(&printable::block(&help.to_string()))),
            file: printable::line(&found.file).into_owned(),
            excerpt: excerpt.and_then(printable_excerpt),
        }
    }
}

/// Returns a suggestion in lines, broken between words.
fn wrapped(help: &str) -> String {
    let mut lines = vec![String::new()];
    for word in help.split(' ') {
        let columns = |text: &str| text.chars().map(printable::columns).sum::<usize>();
        let last = lines.last_mut().expect("there is one");
        match last.is_empty() {
            true => last.push_str(word),
            false if columns(last) + 1 + columns(word) <= WIDTH - 2 - HELP => {
                last.push(' ');
                last.push_str(word);
            }
            false => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// Makes the lines safe to show, and the place with them, so that the carets stand under what is
/// shown.
fn printable_excerpt(excerpt: Excerpt) -> Option<Excerpt> {
    let Excerpt { text, span, line } = excerpt;
    let shown = |range: Range<usize>| text.get(range).map(printable::block);
    let (before, place) = (shown(0..span.start)?, shown(span.clone())?);
    let after = shown(span.end..text.len())?;
    let span = before.len()..before.len() + place.len();
    Some(Excerpt { text: [before, place, after].concat(), span, line })
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.found.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as _)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.is_some().then_some(self)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let excerpt = self.excerpt.as_ref()?;
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(None, excerpt.span.clone()))))
    }
}

impl SourceCode for Shown<'_> {
    /// Reads the span from the excerpt, with the line in the file and the column in characters. Miette counts bytes, so
    /// an editor that jumps to its column would miss the place.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let excerpt = self.excerpt.as_ref().ok_or(MietteError::OutOfBounds)?;
        let read = excerpt.text.read_span(span, before, after)?;
        // Without context lines, miette asks for the position of the span itself.
        let column = match before + after {
            0 => self.found.column.saturating_sub(1),
            _ => read.column(),
        };
        let (data, span, count) = (read.data(), *read.span(), read.line_count());
        let line = read.line() + excerpt.line - 1;
        let name = self.file.clone();
        Ok(Box::new(MietteSpanContents::new_named(name, data, span, line, column, count)))
    }
}
