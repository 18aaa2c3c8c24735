//! `context`: the pipeline that decides what agents are sent, as a tool of its own.

mod explain;

use super::args::{Context, ContextVerb};
use super::locate::Place;
use crate::exit::Exit;

pub(super) fn run(place: &Place, verb: &Context) -> Exit {
    match &verb.verb {
        ContextVerb::Explain(verb) => explain::run(place, verb),
    }
}
