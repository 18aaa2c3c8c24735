//! The words of a question to a person and of its answer, in a line.

use std::fmt::Write;

use super::QUOTED;
use super::words::first_line;
use crate::event::Event;

/// Writes what a person was asked, or what somebody answered.
pub(super) fn describe_question(event: &Event, out: &mut String) -> std::fmt::Result {
    match event {
        Event::ApprovalAsked(e) => {
            write!(out, "waits for a person: {}", first_line(&e.message, QUOTED))
        }
        Event::ApprovalAnswered(e) => {
            let (said, by) = (if e.allowed { "allowed" } else { "denied" }, e.by.as_deref());
            write!(out, "{} {said} it", first_line(by.unwrap_or("a person"), QUOTED))?;
            match &e.text {
                Some(text) => write!(out, ": {}", first_line(text, QUOTED)),
                None => Ok(()),
            }
        }
        other => out.write_str(other.kind()),
    }
}
