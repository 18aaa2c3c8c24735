//! The words of a message to an agent, in a line.

use std::fmt::Write;

use super::QUOTED;
use super::words::first_line;
use crate::event::Event;

/// Writes what was sent to an agent, what its request holds, or what was returned.
pub(super) fn describe(event: &Event, out: &mut String) -> std::fmt::Result {
    match event {
        Event::MessageSent(e) => {
            let from = e.from.to_string();
            let (from, text) = (first_line(&from, QUOTED), first_line(&e.text, QUOTED));
            write!(out, "message {} from {from}: {text}", e.id)
        }
        Event::MessageDelivered(e) => {
            let ids: Vec<_> = e.ids.iter().map(ToString::to_string).collect();
            write!(out, "reads {} in turn {}", ids.join(", "), e.turn)
        }
        Event::MessageReturned(e) => {
            write!(out, "message {} returned: {}", e.id, first_line(&e.reason, QUOTED))
        }
        other => out.write_str(other.kind()),
    }
}
