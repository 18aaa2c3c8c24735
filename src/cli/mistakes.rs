//! Formats and prints the diagnostics of a configuration for people.

use std::{fmt, io};

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents,
};

use super::{complain, paint};
use crate::config::{Config, Diagnostic, Diagnostics, Excerpt, Severity, Sources};
use crate::exit::Exit;

/// Width of a suggestion in columns, after which it is wrapped.
const WIDTH: usize = 100;

/// Prints the diagnostics of a loaded configuration. Returns the configuration if it has no errors.
pub(super) fn shown(
    loaded: Result<Config, Diagnostics>,
    sources: &Sources,
) -> Result<Config, Exit> {
    match loaded {
        Ok(config) => {
            config.warnings.iter().for_each(show);
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
    complain(&text(found, paint::is_on(&io::stderr())));
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
        .with_width(WIDTH)
        .with_break_words(false)
        .with_context_lines(1);
    let mut text = String::new();
    match handler.render_report(&mut text, &Shown::new(found)) {
        Ok(()) => format!("{}\n", text.trim()),
        Err(_) => format!("{}\n", plain(found)),
    }
}

/// Formats a diagnostic as one line, as compilers do.
pub(super) fn plain(found: &Diagnostic) -> String {
    let Diagnostic { file, line, column, message, .. } = found;
    format!("{file}:{line}:{column}: {message}")
}

/// A diagnostic for miette, with its code in the first line and a label without text.
#[derive(Debug)]
struct Shown<'a> {
    found: &'a Diagnostic,
    /// The lines to show; none if the file could not be read.
    excerpt: Option<Excerpt>,
}

impl<'a> Shown<'a> {
    fn new(found: &'a Diagnostic) -> Self {
        let has_text = found.code != "unreadable_file" || !found.span.is_empty();
        Self { found, excerpt: found.excerpt().filter(|_| has_text) }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.found.message)
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
        miette::Diagnostic::help(self.found)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.as_ref().map(|_| self as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(None, self.excerpt.as_ref()?.span.clone());
        Some(Box::new(std::iter::once(label)))
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
        let name = self.found.file.clone();
        Ok(Box::new(MietteSpanContents::new_named(name, data, span, line, column, count)))
    }
}
