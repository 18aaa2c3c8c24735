//! How the mistakes in a configuration are shown to people. Prints nothing itself.

use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};

use crate::config::{Diagnostic, Severity};

/// The widest line of a suggestion before it is wrapped.
const WIDTH: usize = 100;

/// Shows a diagnostic: the reason, `file:line:column`, the line with carets, a suggestion.
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

/// One line, as compilers write it.
fn plain(found: &Diagnostic) -> String {
    let Diagnostic { file, line, column, message, .. } = found;
    format!("{file}:{line}:{column}: {message}")
}

/// A diagnostic whose code stands in the line of its reason, and whose place needs no words.
#[derive(Debug)]
struct Shown<'a>(&'a Diagnostic);

impl Shown<'_> {
    /// A file that could not be read has no line to show.
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
        miette::Diagnostic::source_code(self.0).filter(|_| self.has_text())
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(None, self.0.span.clone());
        self.has_text().then(|| Box::new(std::iter::once(label)) as _)
    }
}
