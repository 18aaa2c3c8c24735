//! `context replay`: writes the views that a preset would have sent for a recorded conversation.

use std::path::Path;

use super::own::{self, Contender, Terms};
use super::shown::{self, Out};
use super::source::{Source, replaying};
use crate::cli::args;
use crate::cli::complain;
use crate::cli::locate::Project;
use crate::cli::paint::{self, Progress};
use crate::cli::stream::Stream;
use crate::context::laboratory::replay::{Replay, Turn};
use crate::context::layers::preset::Preset;
use crate::conversation::History;
use crate::exit::Exit;
use crate::message::{Json, Role};

pub(super) fn run(project: &Project, verb: &args::Replay) -> Result<(), Exit> {
    let (configured, terms) =
        own::read(project, &verb.own, verb.max_output_tokens, verb.price.as_ref())?;
    let contender = match configured {
        Some(configured) => configured,
        None => Contender::named(verb.preset.as_deref().unwrap_or_default())?,
    };
    let name = match verb.sources.as_slice() {
        [name] if Path::new(name).is_dir() => Err("a folder is no conversation"),
        [name] => Ok(name),
        _ => Err("one conversation at a time"),
    };
    let name = name.map_err(|reason| {
        complain(&format!("error: {reason}; --compare takes several, and folders"));
        Exit::Usage
    })?;
    let replayed = |progress: &Progress| replay(project, &terms, name, &contender.preset, progress);
    if Stream::Out.is_terminal() {
        // The views that scroll by show the progress.
        return replayed(&Progress::default());
    }
    paint::working(&replaying(name), replayed)
}

fn replay(
    project: &Project,
    terms: &Terms,
    name: &str,
    preset: &Preset,
    progress: &Progress,
) -> Result<(), Exit> {
    let mut source = Source::open(project, name, History::SinceCompaction, progress)?;
    let around = terms.around(name, &source);
    let mut replay = Replay::new(preset, around);
    let mut out = Out::new();
    let mut number = 0;
    loop {
        let next = source.next();
        let Ok(Some(message)) = next else {
            // The views before the end, or before an error, are printed in any case.
            out.flush()?;
            next?;
            source.tell_skipped();
            if number == 0 {
                return Err(source.unanswered());
            }
            return Ok(());
        };
        let upto = replay.view().next_message();
        if message.role == Role::Assistant {
            number += 1;
            let turn = replay.before_call();
            line(&mut out, &source, &replay, (number, upto), &turn)?;
        }
        replay.push(message.json).map_err(|error| source.unfit(upto, &error))?;
    }
}

/// Writes the view before one reply, as a line of JSON.
fn line(
    out: &mut Out,
    source: &Source,
    replay: &Replay<'_>,
    (number, upto): (u64, u64),
    turn: &Turn,
) -> Result<(), Exit> {
    let system = source.system.json(replay.view());
    let beginning = format!("{{\"turn\":{number},\"upto\":{upto},\"system\":");
    out.write(&[&beginning, system.as_str(), ",\"messages\":"])?;
    out.messages(replay.view())?;
    let (edits, calls) = (shown::edits(&turn.edits), Json::encode(&turn.summary_calls));
    out.write(&[",\"edits\":", edits.as_str(), ",\"summary_calls\":", calls.as_str(), "}\n"])
}
