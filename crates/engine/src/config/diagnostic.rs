//! Diagnostics: the problems of a configuration and their exact places.
//!
//! Owns the positions in configuration texts. It does not print: the command line renders a
//! [`Diagnostic`] with miette or as JSON.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{LabeledSpan, NamedSource, SourceCode};
use serde::Serialize;

use super::excerpt::Excerpt;

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration cannot be run.
    Error,
    /// The configuration can be run, but probably differs from the intention.
    Warning,
}

/// The kind of a problem: a stable word such as `unknown_key`.
pub(super) type Code = &'static str;

/// One problem of a configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnostic {
    /// The kind of the problem: a stable word such as `unknown_key`.
    pub code: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The path of the file, or `environment` or `command line`.
    pub file: String,
    /// The line of the wrong key or value, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Description of the problem: a lower-case fragment.
    pub message: String,
    /// Advice to the user; absent when there is none.
    pub help: Option<String>,
    /// The range of bytes of the text to which the diagnostic points.
    #[serde(skip)]
    pub span: Range<usize>,
    #[serde(skip)]
    source: Text,
}

impl Diagnostic {
    pub(super) fn error(
        code: Code,
        place: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let mut new = Self::new(code, Severity::Error, place, message.into(), help.into());
        (new.line, new.column) = place.line_column();
        new
    }

    /// Creates a diagnostic whose line and column are not counted yet: [`Problems::settle`] counts
    /// the lines of a text once for all its diagnostics.
    fn new(code: Code, severity: Severity, place: &Place, text: String, help: String) -> Self {
        let message = match &place.origin {
            Some(origin) => format!("{text} (from {})", origin.shown),
            None => text,
        };
        let (file, span) = (place.text.name().to_owned(), place.span.clone());
        let help = Some(help).filter(|help| !help.is_empty()).map(shortened);
        let (source, message) = (Arc::clone(&place.text), shortened(message));
        Self { code, severity, file, line: 0, column: 0, message, help, span, source }
    }

    /// Returns the lines of the place with one line before and after, for people; `None` if there is
    /// no text to show.
    pub fn excerpt(&self) -> Option<Excerpt> {
        Excerpt::of(self.source.inner(), &self.span, self.line)
    }
}

/// The most characters of a message or of advice: names and values in them may be of any length.
const MESSAGE: usize = 1_000;

/// Returns a text of which the middle is left out if it is long.
fn shortened(text: String) -> String {
    let count = text.chars().count();
    if count <= MESSAGE {
        return text;
    }
    let end = MESSAGE / 5;
    let start: String = text.chars().take(MESSAGE - end).collect();
    let rest: String = text.chars().skip(count - end).collect();
    format!("{start} [{} characters] {rest}", count - MESSAGE)
}

/// The help text of a diagnostic that has no advice.
pub(super) const NO_HELP: &str = "";

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl miette::Diagnostic for Diagnostic {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(Some("here".to_owned()), self.span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

/// Something that needs trust.
#[derive(Clone, Debug)]
pub struct Concern {
    /// What would be done, with the value: the same text in every run that would do the same.
    pub text: String,
    /// True if the person who runs the file asked for it, by a flag or a variable that the run
    /// records. Nobody is asked then, but a resume would have to ask: it cannot tell a record of its
    /// own from one that came with the project.
    pub is_own: bool,
    /// The warning with the place at which it is written.
    pub found: Diagnostic,
}

/// All problems of a configuration, errors and warnings, in the order of the text.
#[derive(Clone, Debug)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, d) in self.0.iter().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{}:{}: {}", d.file, d.line, d.column, d.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// A text in which values are written, with the name that diagnostics show for it.
pub(super) type Text = Arc<NamedSource<String>>;

/// The place in a text at which a key or a value is written.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) text: Text,
    pub(super) span: Range<usize>,
    /// The variable, flag or profile that the value came from; absent for a value of the file
    /// itself.
    pub(super) origin: Option<Origin>,
}

/// The variable, flag or profile that a value came from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The origin as diagnostics show it.
    pub(super) shown: Arc<str>,
    pub(super) giver: Giver,
}

impl Origin {
    pub(super) fn new(shown: impl Into<Arc<str>>, giver: Giver) -> Self {
        Self { shown: shown.into(), giver }
    }
}

/// The one who gave a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Giver {
    /// The file, or one of its profiles. Somebody else may have written it.
    Project,
    /// The record of a run. It may lie in a project that somebody else has made.
    Record,
    /// The person who runs the file, by a flag or a variable that the run records.
    PersonForRun,
    /// The person who runs the file, by a variable that no run records.
    Person,
}

impl Place {
    pub(super) fn new(text: &Text, span: Range<usize>) -> Self {
        Self { text: Arc::clone(text), span, origin: None }
    }

    /// Returns the place at the start of a text.
    pub(super) fn start(text: &Text) -> Self {
        Self::new(text, 0..0)
    }

    /// Returns the place of the word at a line and a column, both from 1.
    pub(super) fn at(text: &Text, line: usize, column: usize) -> Self {
        let content = text.inner();
        let lines = content.split_inclusive('\n').map(str::len);
        let start: usize = lines.take(line.saturating_sub(1)).sum();
        let rest = content.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        let before = rest.chars().take(column.saturating_sub(1)).map(char::len_utf8).sum::<usize>();
        let word = |c: &char| c.is_alphanumeric() || "_-".contains(*c);
        let from = rest.get(before..).unwrap_or_default();
        let word: usize = from.chars().take_while(word).map(char::len_utf8).sum();
        // At least one character, if there is one.
        let length = word.max(from.chars().next().map_or(0, char::len_utf8));
        Self::new(text, start + before..start + before + length)
    }

    /// Returns the place of a value that is in no file. Diagnostics show the text `prefix` +
    /// `value` and point to the value.
    pub(super) fn outside(name: &str, prefix: &str, value: &str, origin: Origin) -> Self {
        let text = Arc::new(NamedSource::new(name, format!("{prefix}{value}")));
        let span = prefix.len()..prefix.len() + value.len();
        Self { text, span, origin: Some(origin) }
    }

    /// Returns the one who gave the value.
    pub(super) fn giver(&self) -> Giver {
        self.origin.as_ref().map_or(Giver::Project, |origin| origin.giver)
    }

    /// Returns the place of the name before the `=` of a value that is in no file, without the
    /// value: a diagnostic about a mistyped name must not show the key that the variable holds.
    pub(super) fn name_only(&self) -> Self {
        let name = self.text.inner().get(..self.span.start.saturating_sub(1)).unwrap_or_default();
        let text = Arc::new(NamedSource::new(self.text.name(), name.to_owned()));
        Self { text, span: 0..name.len(), origin: self.origin.clone() }
    }

    /// Returns the text of the place as it was written, quotes included.
    pub(super) fn written(&self) -> &str {
        self.text.inner().get(self.span.clone()).unwrap_or_default()
    }

    /// Returns the part of this place at a range of bytes of [`Place::written`].
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        let start = self.span.start;
        Self { span: start + range.start..start + range.end, ..self.clone() }
    }

    pub(super) fn line_column(&self) -> (usize, usize) {
        let before = self.text.inner().get(..self.span.start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// The most errors, and the most warnings, that are kept: nobody reads more at once, and a hostile
/// file has one in every byte.
pub(super) const MOST_FOUND: usize = 200;

/// The problems found so far. It is shared: every check adds to the same list.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: RefCell<Vec<Diagnostic>>,
    errors: Cell<usize>,
    warnings: Cell<usize>,
    concerns: RefCell<Vec<Concern>>,
    /// The places of the concerns by their texts.
    concerned: RefCell<HashMap<String, usize>>,
    /// The places of values that may be keys.
    hidden: RefCell<Vec<Place>>,
}

impl Problems {
    /// Adds an error with a message and a piece of advice ([`NO_HELP`] if there is none).
    pub(super) fn error(
        &self,
        code: Code,
        place: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Diagnostic::new(code, Severity::Error, place, message.into(), help.into()));
    }

    /// Adds a warning; the arguments are those of [`Problems::error`].
    pub(super) fn warning(
        &self,
        code: Code,
        place: &Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Diagnostic::new(code, Severity::Warning, place, message.into(), help.into()));
    }

    /// Adds what needs trust, unless the person who runs the file gave it.
    pub(super) fn concern(&self, place: &Place, text: impl Into<String>) {
        let text = text.into();
        let whose = place.giver();
        if whose == Giver::Person {
            return;
        }
        let is_own = whose == Giver::PersonForRun;
        let (mut concerns, mut known) = (self.concerns.borrow_mut(), self.concerned.borrow_mut());
        // What both want, the project wants.
        let known_own = known.get(&text).map(|at| concerns[*at].is_own);
        if known_own.is_some_and(|known_own| is_own || !known_own) {
            return;
        }
        let found = Diagnostic::new(
            "needs_trust",
            Severity::Warning,
            place,
            text.clone(),
            "`callsheet trust` remembers that you have looked at it".to_owned(),
        );
        let concern = Concern { text: text.clone(), is_own, found };
        match known.get(&text) {
            Some(at) => concerns[*at] = concern,
            None => {
                known.insert(text, concerns.len());
                concerns.push(concern);
            }
        }
    }

    /// Returns true if anything needs trust.
    pub(super) fn has_concerns(&self) -> bool {
        !self.concerns.borrow().is_empty()
    }

    /// Keeps a value that may be a key out of sight, also where another diagnostic shows its line.
    pub(super) fn hide(&self, place: &Place) {
        self.hidden.borrow_mut().push(place.clone());
    }

    pub(super) fn add(&self, diagnostic: Diagnostic) {
        let counted = self.counted(diagnostic.severity);
        counted.set(counted.get() + 1);
        if counted.get() <= MOST_FOUND {
            self.found.borrow_mut().push(diagnostic);
        }
    }

    fn counted(&self, severity: Severity) -> &Cell<usize> {
        match severity {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        }
    }

    /// Counts an error and returns true if no more errors are kept. For a caller to whom the message
    /// is dear: with one search of all names for each mistake the work would grow with their square.
    pub(super) fn is_full(&self) -> bool {
        let is_full = self.errors.get() >= MOST_FOUND;
        if is_full {
            self.errors.set(self.errors.get() + 1);
        }
        is_full
    }

    /// Returns true if a problem of this code has such words in its message.
    pub(super) fn mentions(&self, code: Code, words: &str) -> bool {
        self.found.borrow().iter().any(|found| found.code == code && found.message.contains(words))
    }

    /// Returns the number of problems so far, those that are not kept included.
    pub(super) fn count(&self) -> usize {
        self.errors.get() + self.warnings.get()
    }

    /// Returns all problems and what needs trust, in the order of `files`, then of the text.
    pub(super) fn sorted(self, files: &[Text]) -> Sorted {
        let mut all = self.found.into_inner();
        let mut concerns = self.concerns.into_inner();
        // Lines are counted once for each text, not for each problem: a file can have as many
        // mistakes as lines, and the work would then grow with the square of its length.
        let mut lines: HashMap<*const NamedSource<String>, Vec<usize>> = HashMap::new();
        let masked = masked(self.hidden.into_inner());
        let of_concerns = concerns.iter_mut().map(|concern| &mut concern.found);
        for found in all.iter_mut().chain(of_concerns) {
            if let Some(masked) = masked.get(&Arc::as_ptr(&found.source)) {
                found.source = Arc::clone(masked);
            }
            if found.line > 0 {
                continue;
            }
            let starts = lines.entry(Arc::as_ptr(&found.source));
            let starts = starts.or_insert_with(|| line_starts(found.source.inner()));
            let line = starts.partition_point(|start| *start <= found.span.start);
            let from = starts.get(line - 1).copied().unwrap_or_default();
            let before = found.source.inner().get(from..found.span.start).unwrap_or_default();
            (found.line, found.column) = (line, before.chars().count() + 1);
        }
        let rank = |d: &Diagnostic| {
            let file = files.iter().position(|f| f.name() == d.file).unwrap_or(files.len());
            (file, d.file.clone(), d.line, d.column, d.severity)
        };
        all.sort_by_cached_key(rank);
        all.dedup_by(|a, b| a.code == b.code && rank(a) == rank(b) && a.message == b.message);
        concerns.sort_by_cached_key(|concern| rank(&concern.found));
        for severity in [Severity::Error, Severity::Warning] {
            let count = match severity {
                Severity::Error => self.errors.get(),
                Severity::Warning => self.warnings.get(),
            };
            all.extend(files.first().and_then(|file| more(severity, count, file)));
        }
        Sorted { has_errors: self.errors.get() > 0, found: all, concerns }
    }
}

/// Returns the texts with hidden places, by the text that they replace, with asterisks in these places.
fn masked(hidden: Vec<Place>) -> HashMap<*const NamedSource<String>, Text> {
    let mut spans: HashMap<_, (Text, Vec<Range<usize>>)> = HashMap::new();
    for Place { text, span, .. } in hidden {
        let of_text = spans.entry(Arc::as_ptr(&text)).or_insert((text, Vec::new()));
        of_text.1.push(span);
    }
    let mask = |(text, mut spans): (Text, Vec<Range<usize>>)| {
        spans.sort_unstable_by_key(|span| span.start);
        let (mut masked, mut done) = (String::new(), 0);
        for span in spans {
            let start = span.start.max(done);
            let hidden = text.inner().get(start..span.end).unwrap_or_default();
            masked.push_str(text.inner().get(done..start).unwrap_or_default());
            masked.extend(hidden.bytes().map(|byte| if byte == b'\n' { '\n' } else { '*' }));
            done = start + hidden.len();
        }
        masked.push_str(text.inner().get(done..).unwrap_or_default());
        Arc::new(NamedSource::new(text.name(), masked))
    };
    spans.into_iter().map(|(of, spans)| (of, mask(spans))).collect()
}

/// What was found in a configuration.
#[derive(Debug)]
pub(super) struct Sorted {
    pub(super) found: Vec<Diagnostic>,
    pub(super) concerns: Vec<Concern>,
    pub(super) has_errors: bool,
}

/// Returns the diagnostic that stands for those that are not listed.
fn more(severity: Severity, count: usize, file: &Text) -> Option<Diagnostic> {
    let rest = count.checked_sub(MOST_FOUND).filter(|rest| *rest > 0)?;
    let what = match severity {
        Severity::Error => "mistakes",
        Severity::Warning => "warnings",
    };
    let nowhere = Place::start(&Arc::new(NamedSource::new(file.name(), String::new())));
    let message = format!("{rest} more {what} are not listed");
    let more = Diagnostic::error("more_mistakes", &nowhere, message, NO_HELP);
    Some(Diagnostic { severity, ..more })
}

/// Returns the byte offsets at which the lines of a text begin.
pub(super) fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use miette::Diagnostic as _;

    use super::*;

    fn text(content: &str) -> Text {
        Arc::new(NamedSource::new("agents.toml", content.to_owned()))
    }

    #[test]
    fn columns_count_characters() {
        let place = Place::new(&text("a\nñü = 1\n"), 7..8);
        assert_eq!(place.line_column(), (2, 5 - 1));
    }

    #[test]
    fn miette_finds_the_line_and_the_label() {
        let place = Place::new(&text("version = 1\nnam = 'x'\n"), 12..15);
        let (message, help) = ("unknown key `nam`", "did you mean `name`?");
        let diagnostic = Diagnostic::error("unknown_key", &place, message, help);
        let labels: Vec<_> = diagnostic.labels().expect("labels").collect();
        assert_eq!((labels[0].offset(), labels[0].len()), (12, 3));
        let mut out = String::new();
        let handler = miette::NarratableReportHandler::new();
        handler.render_report(&mut out, &diagnostic).expect("renders");
        assert!(out.contains("unknown key `nam`"), "{out}");
        assert!(out.contains("snippet line 2: nam = 'x'"), "{out}");
        assert!(out.contains("label at line 2, columns 1 to 3"), "{out}");
        assert!(out.contains("did you mean `name`?"), "{out}");
    }

    #[test]
    fn json_has_the_documented_keys_in_order() {
        let place = Place::new(&text("x"), 0..1);
        let problems = Problems::default();
        problems.warning("c", &place, "m", NO_HELP);
        let d = &problems.sorted(&[]).found[0];
        assert_eq!(
            serde_json::to_string(d).expect("json"),
            r#"{"code":"c","severity":"warning","file":"agents.toml","line":1,"column":1,"message":"m","help":null}"#
        );
    }

    #[test]
    fn a_hidden_place_is_shown_by_no_diagnostic() {
        let text = text("key = 's\u{e9}cret'\nnot = 1\n");
        let (key, next) = (Place::new(&text, 6..15), Place::new(&text, 16..19));
        let problems = Problems::default();
        problems.hide(&key);
        problems.hide(&key);
        problems.error("c", &key, "m", NO_HELP);
        problems.error("d", &next, "m", NO_HELP);
        problems.concern(&next, "t");
        let Sorted { found, concerns, .. } = problems.sorted(&[]);
        for found in found.iter().chain(concerns.iter().map(|concern| &concern.found)) {
            assert_eq!(found.source.inner(), "key = *********\nnot = 1\n");
        }
        assert_eq!((found[1].line, found[1].column), (2, 1));
    }
}
