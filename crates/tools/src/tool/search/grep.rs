//! Searches files line by line, in bounded memory.

use std::io::{self, Read, Seek};
use std::path::Path;

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{MAX_TEXT_BYTES, Searched, pattern, refuse_if_long, walk};
use crate::tool::ToolError;
use crate::tool::blocking::Stoppable;
use crate::tool::workspace::WorkspacePath;

/// Largest number of lines that a call returns unless it names a number: several times as much text
/// as a preview holds.
pub(super) const LIMIT: u64 = 1_000;

/// Largest number of lines that a call may ask for: they are held in memory.
pub(super) const MAX_LIMIT: u64 = 10_000;

/// Longest line that is shown whole, in characters: longer lines are seldom written by hand.
const MAX_LINE_CHARS: usize = 500;

/// Part of a longer line that is shown before the match, in bytes.
const BEFORE_MATCH_BYTES: usize = 200;

/// Longest line that is searched, in bytes. A file with a longer line is named as not searched.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Bytes at the start of a file that are searched for a NUL, which marks a binary file; git's
/// number.
const BINARY_PROBE_BYTES: u64 = 8 * 1024;

/// Largest number of files that could not be searched and are named.
const MAX_NAMED: usize = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GrepArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    output_mode: Mode,
    #[serde(default)]
    ignore_case: bool,
    limit: Option<std::num::NonZeroU64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Content,
    Files,
    Count,
}

/// Most bytes of a compiled expression, and of the cache for its search: enough for any that a person
/// writes; a counted repetition of counted repetitions is refused.
const MOST_PATTERN_BYTES: usize = 8 << 20;

/// Searches the files and returns the text that the model reads.
pub(super) fn grep(
    searched: &Searched,
    asked: &GrepArguments,
    stop: &CancellationToken,
) -> Result<String, ToolError> {
    refuse_if_long(&asked.pattern)?;
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(asked.ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(MOST_PATTERN_BYTES)
        .dfa_size_limit(MOST_PATTERN_BYTES)
        .build(&asked.pattern);
    let matcher = matcher.map_err(|error| ToolError::Arguments(error.to_string()))?;
    let only = asked.glob.as_deref().map(|glob| match glob.contains('/') {
        true => pattern(glob.trim_start_matches("./")),
        // A pattern without a slash is a file name, in whatever directory the file is.
        false => pattern(&format!("**/{glob}")),
    });
    let only = only.transpose()?;
    let place = searched.workspace.place(asked.path.as_deref().unwrap_or("."))?;
    let walk = walk::Walk::new(searched, &place, false, "grep")?;
    let mut search = Search {
        place: &place,
        matcher,
        searcher: SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            .build(),
        mode: asked.output_mode,
        left: asked.limit.map_or(LIMIT, std::num::NonZeroU64::get).min(MAX_LIMIT),
        text: String::new(),
        cut: false,
        is_full: false,
        unsearched: Vec::new(),
        stop,
    };
    let limit = search.left;
    let kept = walk.files(stop, &mut |path: &Path, below: &Path| {
        // A file that the call names itself has no path below the start.
        let named = below.as_os_str().is_empty();
        if named || only.as_ref().is_none_or(|only| only.is_match(below)) {
            search.file(path)?;
        }
        search.cut |= search.is_full;
        Ok(!search.cut)
    })?;
    let told = search.into_text(limit);
    let line_break = if kept > 0 && !told.ends_with('\n') { "\n" } else { "" };
    Ok(told + line_break + &super::kept_line(kept))
}

/// State of a search under way.
struct Search<'a> {
    place: &'a WorkspacePath<'a>,
    matcher: RegexMatcher,
    searcher: Searcher,
    mode: Mode,
    /// Number of lines that may still be added.
    left: u64,
    text: String,
    /// True if there was more than the limit allows.
    cut: bool,
    /// True if the text has its largest size.
    is_full: bool,
    unsearched: Vec<String>,
    stop: &'a CancellationToken,
}

impl Search<'_> {
    fn file(&mut self, path: &Path) -> Result<(), ToolError> {
        let name = self.place.shown(path);
        let searched = self.search(path, &name);
        if self.stop.is_cancelled() {
            return Err(ToolError::Cancelled);
        }
        let Err(error) = searched else { return Ok(()) };
        if self.unsearched.len() < MAX_NAMED {
            self.unsearched.push(format!("(could not search {name}: {error})\n"));
        }
        Ok(())
    }

    fn search(&mut self, path: &Path, name: &str) -> io::Result<()> {
        let mut file = self.place.open_beside(path)?;
        let mut probe = Vec::new();
        file.by_ref().take(BINARY_PROBE_BYTES).read_to_end(&mut probe)?;
        if probe.contains(&0) {
            return Ok(());
        }
        file.rewind()?;
        let mut found = Found {
            name,
            matcher: &self.matcher,
            mode: self.mode,
            left: self.left,
            text: &mut self.text,
            count: 0,
            cut: false,
        };
        let file = Stoppable::new(file, self.stop);
        self.searcher.search_reader(&self.matcher, file, &mut found)?;
        let (count, cut) = (found.count, found.cut);
        self.is_full |= self.text.len() >= MAX_TEXT_BYTES;
        match self.mode {
            Mode::Content => {
                self.left -= count;
                self.cut |= cut;
            }
            Mode::Files | Mode::Count if count == 0 => {}
            Mode::Files | Mode::Count if self.left == 0 => self.cut = true,
            Mode::Files => {
                self.left -= 1;
                self.text.push_str(&format!("{name}\n"));
            }
            Mode::Count => {
                self.left -= 1;
                self.text.push_str(&format!("{name}:{count}\n"));
            }
        }
        Ok(())
    }

    fn into_text(mut self, limit: u64) -> String {
        if self.text.is_empty() {
            self.text.push_str("(no matches)");
            if !self.unsearched.is_empty() {
                self.text.push('\n');
            }
        }
        for file in &self.unsearched {
            self.text.push_str(file);
        }
        if self.cut {
            let lines = if limit == 1 { "line" } else { "lines" };
            let hint = if limit < MAX_LIMIT { " or raise `limit`" } else { "" };
            let cut = match self.is_full {
                true => format!("... (stopped after {MAX_TEXT_BYTES} bytes; narrow the search)"),
                false => format!("... (stopped after {limit} {lines}; narrow the search{hint})"),
            };
            self.text.push_str(&cut);
        }
        self.text
    }
}

/// Collector of the matches of one file.
struct Found<'a> {
    name: &'a str,
    matcher: &'a RegexMatcher,
    mode: Mode,
    left: u64,
    text: &'a mut String,
    count: u64,
    cut: bool,
}

impl Sink for Found<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        match self.mode {
            Mode::Content if self.count == self.left || self.text.len() >= MAX_TEXT_BYTES => {
                self.cut = true;
                return Ok(false);
            }
            Mode::Content => {
                let number = found.line_number().unwrap_or_default();
                self.text.push_str(&format!("{}:{number}:", self.name));
                self.push_line(found.bytes());
            }
            Mode::Files | Mode::Count => {}
        }
        self.count += 1;
        Ok(!matches!(self.mode, Mode::Files))
    }
}

impl Found<'_> {
    /// Adds a line; of a long line, the part around the match.
    fn push_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = String::from_utf8_lossy(&line[..line.len().min(4 * MAX_LINE_CHARS)]);
        if line.len() <= 4 * MAX_LINE_CHARS && text.chars().count() <= MAX_LINE_CHARS {
            self.text.push_str(&text);
            self.text.push('\n');
            return;
        }
        let at = self.matcher.find(line).ok().flatten().map_or(0, |found| found.start());
        let mut from = at.saturating_sub(BEFORE_MATCH_BYTES);
        while from > 0 && line[from] & 0xc0 == 0x80 {
            from -= 1;
        }
        let part = &line[from..line.len().min(from + 4 * MAX_LINE_CHARS)];
        let part: String = String::from_utf8_lossy(part).chars().take(MAX_LINE_CHARS).collect();
        let before = if from > 0 { "..." } else { "" };
        self.text.push_str(&format!("{before}{part}... (line of {} bytes)\n", line.len()));
    }
}
