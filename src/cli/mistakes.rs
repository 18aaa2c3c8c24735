//! Formats the diagnostics of a configuration for people. Prints nothing itself.

use std::fmt;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents,
};

use crate::config::{Diagnostic, Severity};

/// Width of a suggestion in columns, after which it is wrapped.
const WIDTH: usize = 100;

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
    match handler.render_report(&mut text, &Shown(found)) {
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
struct Shown<'a>(&'a Diagnostic);

impl Shown<'_> {
    /// Returns false if the file could not be read: then there is no line to show.
    fn has_text(&self) -> bool {
        self.0.code != "unreadable_file" || !self.0.span.is_empty()
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.0.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        miette::Diagnostic::help(self.0)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.has_text().then_some(self)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(None, self.0.span.clone());
        self.has_text().then(|| Box::new(std::iter::once(label)) as _)
    }
}

impl SourceCode for Shown<'_> {
    /// Reads the span from the source text, with the column in characters. Miette counts bytes, so
    /// an editor that jumps to its column would miss the place.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let source = miette::Diagnostic::source_code(self.0).ok_or(MietteError::OutOfBounds)?;
        let read = source.read_span(span, before, after)?;
        // Without context lines, miette asks for the position of the span itself.
        let column = match before + after {
            0 => self.0.column.saturating_sub(1),
            _ => read.column(),
        };
        let (data, span, line, count) = (read.data(), *read.span(), read.line(), read.line_count());
        let name = self.0.file.clone();
        Ok(Box::new(MietteSpanContents::new_named(name, data, span, line, column, count)))
    }
}
