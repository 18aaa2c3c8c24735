//! Notices a text that repeats itself while it is written.
//!
//! Pure. Keeps the last 16 KiB and looks at them after each KiB, so a byte costs little, however long the text is.

use crate::fingerprint::Fingerprint;

/// The bytes that are looked at: twelve times a paragraph of 1,300 bytes.
const WINDOW: usize = 16 << 10;

/// The bytes that come in between two looks.
const STRIDE: usize = 1 << 10;

/// The least repetitions.
const TIMES: usize = 12;

/// The shortest text that is one: shorter ones, such as the rules of a table or padding, are repeated on purpose.
const SHORTEST: usize = 20;

/// The least bytes of all repetitions. A table may well have a dozen equal lines.
const LEAST: usize = 1_500;

/// A text that was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// What is repeated: equal wherever the text was cut.
    pub print: Fingerprint,
    /// Number of bytes at the end of all that came that only repeat what stands twice before them.
    pub surplus: usize,
}

/// A text under way.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    text: Vec<u8>,
    fresh: usize,
}

impl Repetition {
    /// Takes in the next piece. Returns what is repeated, once it is enough.
    pub fn push(&mut self, piece: &str) -> Option<Repeated> {
        let mut rest = piece.as_bytes();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(STRIDE - self.fresh));
            self.text.extend_from_slice(now);
            self.fresh += now.len();
            rest = later;
            if self.fresh < STRIDE {
                break;
            }
            self.fresh = 0;
            // Cut rarely, so that the bytes are seldom moved.
            if self.text.len() > 2 * WINDOW {
                self.text.drain(..self.text.len() - WINDOW);
            }
            let latest = &self.text[self.text.len().saturating_sub(WINDOW)..];
            if let Some(Repeated { print, surplus }) = repeated(latest) {
                return Some(Repeated { print, surplus: surplus + rest.len() });
            }
        }
        None
    }
}

/// Returns what the end of this text repeats.
fn repeated(text: &[u8]) -> Option<Repeated> {
    if text.len() < LEAST {
        return None;
    }
    // From the end: what is repeated is a beginning then. `borders` has, for each beginning, the length of its
    // longest beginning that is also its end; the difference is its shortest period.
    let back = |at: usize| text[text.len() - 1 - at];
    let mut borders = vec![0; text.len()];
    let mut found = None;
    for at in 1..text.len() {
        let mut border: usize = borders[at - 1];
        while border > 0 && back(border) != back(at) {
            border = borders[border - 1];
        }
        border += usize::from(back(border) == back(at));
        borders[at] = border;
        let (length, period) = (at + 1, at + 1 - border);
        if period >= SHORTEST && length >= LEAST.max(TIMES * period) {
            found = Some((period, length));
        }
    }
    let (period, length) = found?;
    let surplus = length - 2 * period;
    let period = &text[text.len() - period..];
    // A stream is cut anywhere in the period: its least rotation is the same for all.
    let from = least_rotation(period);
    let whole = [&period[from..], &period[..from]].concat();
    Some(Repeated { print: Fingerprint::of_text(&String::from_utf8_lossy(&whole)), surplus })
}

/// Returns where the least of all rotations begins (Booth).
fn least_rotation(text: &[u8]) -> usize {
    let (mut one, mut other, mut same) = (0, 1, 0);
    let at = |place: usize| text[place % text.len()];
    while one < text.len() && other < text.len() && same < text.len() {
        let (a, b) = (at(one + same), at(other + same));
        if a == b {
            same += 1;
            continue;
        }
        if a > b {
            one += same + 1;
        } else {
            other += same + 1;
        }
        if one == other {
            other += 1;
        }
        same = 0;
    }
    one.min(other)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str, piece: usize) -> Option<Repeated> {
        let mut repetition = Repetition::default();
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(piece).find_map(|piece| {
            let found = repetition.push(&piece.iter().collect::<String>());
            assert!(repetition.text.len() <= 2 * WINDOW + STRIDE, "it stays bounded");
            found
        })
    }

    #[test]
    fn a_text_that_repeats_itself_is_noticed() {
        for (text, times) in [
            ("I will now read the file again. ", 100),
            ("ééééééééééäé", 900),
            (&*format!("{}\n", "a paragraph of words ".repeat(50).as_str().trim_end()), 16),
        ] {
            assert!(all(&text.repeat(times), 7).is_some(), "{text:.20}");
            let after = format!(
                "{}{}",
                (0..999).map(|n| n.to_string()).collect::<String>(),
                text.repeat(times + 2)
            );
            assert!(all(&after, 100).is_some(), "{text:.20}");
        }
    }

    #[test]
    fn plain_answers_are_not() {
        let numbered: String = (0..2_000).map(|n| format!("| {n} | pending |\n")).collect();
        let table =
            format!("{}{}", "-".repeat(400), "| pending | pending | pending |\n".repeat(30));
        let code: String =
            (0..400).map(|n| format!("    assert_eq!(f({n}), {});\n", n * n)).collect();
        for text in [&*numbered, &table, &code, &"word ".repeat(200), &"x".repeat(300_000)] {
            assert_eq!(all(text, 11), None, "{text:.20}");
        }
    }

    proptest! {
        /// However the stream is cut, the same text is the same finding.
        #[test]
        fn the_finding_does_not_depend_on_the_pieces(
            text in "[a-d ]{30,60}", before in 0..300_usize, one in 1..50_usize, other in 1..900_usize,
        ) {
            let whole = format!("{}{}", "x".repeat(before), text.repeat(200));
            let (a, b) = (all(&whole, one), all(&whole, other));
            prop_assert!(a.is_some());
            prop_assert_eq!(a.map(|found| found.print), b.map(|found| found.print));
        }
    }
}
