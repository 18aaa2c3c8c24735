//! `context`: the compaction pipeline as a tool of its own, and what an agent is sent.

mod apply;
mod compare;
mod explain;
mod replay;
mod shown;
mod source;

use super::args::{Context, ContextVerb};
use super::complain;
use super::locate::Place;
use crate::context::preset::Preset;
use crate::exit::Exit;

pub(super) fn run(place: &Place, verb: &Context) -> Exit {
    let done = match &verb.verb {
        ContextVerb::Apply(verb) => apply::run(place, verb),
        ContextVerb::Replay(verb) if verb.compare => compare::run(place, verb),
        ContextVerb::Replay(verb) => replay::run(place, verb),
        ContextVerb::Explain(verb) => return explain::run(place, verb),
    };
    done.err().unwrap_or(Exit::Done)
}

fn preset(name: &str) -> Result<Preset, Exit> {
    Preset::named(name).ok_or_else(|| {
        complain(&format!(
            "error: there is no preset `{name}`; there are {}",
            Preset::NAMES.join(", ")
        ));
        Exit::Usage
    })
}
