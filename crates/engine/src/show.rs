//! What people see of a run, as text: a line for each event, the status of a run, and the questions to a person.
//!
//! Pure, so that every screen can share it: it prints nothing and reads neither the clock nor the
//! width of a terminal.

pub mod drawing;
pub mod log_line;
pub mod names;
mod order;
pub mod question;
pub mod status;
mod undone;
pub mod why;

pub use self::order::agents_in_order;
pub use self::undone::undone;
use crate::printable::columns;

/// Returns what of a text without colours fits into so many columns, with `…` if it is longer: a line
/// that a terminal wraps would begin a row with text of others.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    let ends = text.char_indices().scan(0, |taken, (at, c)| {
        *taken += columns(c);
        Some((at + c.len_utf8(), *taken))
    });
    // The end of what fits beside the mark, and whether all fits.
    let (mut end, mut is_whole) = (0, true);
    for (after, taken) in ends {
        match taken {
            _ if taken < width => end = after,
            _ if taken > width => {
                is_whole = false;
                break;
            }
            _ => {}
        }
    }
    match is_whole {
        true => text.to_owned(),
        false if width == 0 => String::new(),
        false => format!("{}…", &text[..end]),
    }
}

/// Formats a number of tokens for people: `812`, `12.3k`, `4.1M`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn short(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..1_000_000 => format!("{:.1}k", tokens as f64 / 1e3),
        _ => format!("{:.1}M", tokens as f64 / 1e6),
    }
}
