//! The part of a text that a diagnostic shows: the lines of its place and those around it, cut where
//! they are long.

use std::ops::Range;

/// The most bytes of a line that are shown, and of those the most before the place.
const LINE: usize = 400;
const BEFORE: usize = 100;

/// The most lines of a place that are shown.
const LINES: usize = 20;

/// Lines of a text, with the place in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The lines.
    pub text: String,
    /// The bytes of `text` that are the place.
    pub span: Range<usize>,
    /// The number of the first line, from 1.
    pub line: usize,
}

impl Excerpt {
    /// Returns the lines of `span`, which begins in line `line`, with one before and one after.
    /// `None` if the text is empty. Takes time for these lines only, not for the text.
    pub(super) fn of(text: &str, span: &Range<usize>, line: usize) -> Option<Self> {
        let first = text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
        let mut from = first;
        let mut excerpt = Self { text: String::new(), span: 0..0, line };
        if text.is_empty() {
            return None;
        }
        if first > 0 {
            from = text[..first - 1].rfind('\n').map_or(0, |at| at + 1);
            excerpt.line = line.saturating_sub(1);
        }
        let end = span.end.clamp(span.start, text.len());
        let mut rest = LINES;
        for written in text[from..].split_inclusive('\n') {
            let range = from..from + written.len();
            // The line after the place is the last one.
            let is_after = range.start > end || (range.start == end && range.start > span.start);
            excerpt.add(written, &range, &(span.start..end));
            from = range.end;
            rest -= 1;
            if is_after || rest == 0 {
                break;
            }
        }
        Some(excerpt)
    }

    /// Adds the line at `range`, or the part of it that lies around the place.
    fn add(&mut self, written: &str, range: &Range<usize>, place: &Range<usize>) {
        let begins_here = range.contains(&place.start) || place.start == range.end;
        let at = place.start.saturating_sub(range.start).min(written.len());
        let content = written.trim_end_matches(['\n', '\r']);
        let (from, to) = match (content.len() > LINE, begins_here) {
            (false, _) => (0, written.len()),
            (true, true) => (at.saturating_sub(BEFORE), at.saturating_sub(BEFORE) + LINE),
            (true, false) => (0, LINE),
        };
        let from = written.floor_char_boundary(from.min(written.len()));
        let to = written.floor_char_boundary(to.min(written.len()));
        let start = self.text.len() + if from > 0 { 4 } else { 0 };
        if from > 0 {
            self.text.push_str("... ");
        }
        self.text.push_str(&written[from..to]);
        let shown = self.text.len();
        if to < content.len() {
            self.text.push_str(" ...");
        }
        if !self.text.ends_with('\n') && written.ends_with('\n') {
            self.text.push('\n');
        }
        let inside = |offset: usize| {
            (start + offset.saturating_sub(range.start).saturating_sub(from)).clamp(start, shown)
        };
        if begins_here && place.start >= range.start {
            self.span = inside(place.start)..inside(place.start);
        }
        if place.end > range.start || begins_here {
            self.span.end = inside(place.end).max(self.span.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, place: &str) -> (String, String, usize) {
        let start = text.find(place).expect("it is there");
        let line = text[..start].matches('\n').count() + 1;
        let excerpt = Excerpt::of(text, &(start..start + place.len()), line).expect("lines");
        let place = excerpt.text[excerpt.span.clone()].to_owned();
        (excerpt.text, place, excerpt.line)
    }

    #[test]
    fn the_lines_around_a_place_are_shown() {
        let text = "one\ntwo\nthree\nfour\nfive\n";
        assert_eq!(shown(text, "one"), ("one\ntwo\n".to_owned(), "one".to_owned(), 1));
        assert_eq!(shown(text, "thr"), ("two\nthree\nfour\n".to_owned(), "thr".to_owned(), 2));
        assert_eq!(shown(text, "five"), ("four\nfive\n".to_owned(), "five".to_owned(), 4));
        let both = shown(text, "two\nthree");
        assert_eq!(both, ("one\ntwo\nthree\nfour\n".to_owned(), "two\nthree".to_owned(), 1));
        assert_eq!(Excerpt::of("", &(0..0), 1), None);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}HERE{}\nnext", "ä".repeat(5_000), "b".repeat(5_000));
        let (lines, place, _) = shown(&text, "HERE");
        assert_eq!(place, "HERE");
        assert!(lines.starts_with("... ä") && lines.ends_with("b ...\nnext"), "{lines}");
        assert!(lines.len() < 2 * LINE);
        let (lines, place, _) = shown(&format!("x = '{}'", "y".repeat(9_000)), &"y".repeat(9_000));
        assert!(lines.len() < 2 * LINE && place.chars().all(|c| c == 'y'), "{lines}");
        let many = "z\n".repeat(5_000);
        let excerpt = Excerpt::of(&many, &(0..many.len()), 1).expect("lines");
        assert_eq!(excerpt.text.lines().count(), LINES);
    }
}
