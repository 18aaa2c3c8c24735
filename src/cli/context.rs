//! `context`: the compaction pipeline on files of messages, without a run or a network.

mod apply;
mod compare;
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
