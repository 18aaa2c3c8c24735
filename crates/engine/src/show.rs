//! What people see of a run, as text: the status of a run in lines, and the questions to a person.
//!
//! Pure, so that every screen can share it: it prints nothing and reads neither the clock nor the
//! width of a terminal.

pub mod question;
pub mod status;

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
