//! `context`: runs the compaction pipeline on recorded conversations, and explains the next request
//! of an agent.

mod apply;
mod compare;
mod explain;
mod files;
mod own;
mod race;
mod replay;
mod score;
mod shown;
mod source;
mod table;

use super::args::{Context, ContextVerb};
use super::complain;
use super::locate::Project;
use crate::context::layers::preset::Preset;
use crate::exit::Exit;

pub(super) fn run(project: &Project, verb: &Context) -> Exit {
    let done = match &verb.verb {
        ContextVerb::Apply(verb) => apply::run(project, verb),
        ContextVerb::Replay(verb) if verb.compare => compare::run(project, verb),
        ContextVerb::Replay(verb) => replay::run(project, verb),
        ContextVerb::Score(verb) => score::run(project, verb),
        ContextVerb::Explain(verb) => return explain::run(project, verb),
    };
    done.err().unwrap_or(Exit::Done)
}

fn preset(name: &str) -> Result<Preset, Exit> {
    Preset::named(name).ok_or_else(|| {
        complain(&format!(
            "error: there is no preset `{name}`; the presets are {}",
            Preset::NAMES.join(", ")
        ));
        Exit::Usage
    })
}
