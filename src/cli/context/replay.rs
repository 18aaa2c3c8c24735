//! `context replay`: writes the views that a preset would have sent for a recorded conversation.

use super::shown::{self, Out};
use super::source::{Source, replaying};
use crate::cli::args;
use crate::cli::complain;
use crate::cli::locate::Project;
use crate::cli::paint::{self, Progress};
use crate::cli::stream::Stream;
use crate::context::laboratory::replay::{Replay, Turn};
use crate::context::layers::preset::Preset;
use crate::context::layers::{Surroundings, Window};
use crate::conversation::History;
use crate::exit::Exit;
use crate::message::{Json, Role};

/// Name of the folder of results in markers. A replay does not make this folder.
pub(super) const RESULTS: &str = "results";

pub(super) fn run(project: &Project, verb: &args::Replay) -> Result<(), Exit> {
    let preset = super::preset(verb.preset.as_deref().unwrap_or_default())?;
    let [name] = verb.sources.as_slice() else {
        complain("error: one conversation at a time; --compare takes several");
        return Err(Exit::Usage);
    };
    if Stream::Out.is_terminal() {
        // The views that scroll by show the progress.
        return replay(project, verb, name, &preset, &Progress::default());
    }
    paint::working(&replaying(name), |progress| replay(project, verb, name, &preset, progress))
}

fn replay(
    project: &Project,
    verb: &args::Replay,
    name: &str,
    preset: &Preset,
    progress: &Progress,
) -> Result<(), Exit> {
    let mut source = Source::open(project, name, History::SinceCompaction, progress)?;
    let around = Surroundings::new(
        name,
        RESULTS,
        window(verb.context_window, verb.max_output_tokens, &source),
    );
    let mut replay = Replay::new(preset, around);
    let mut out = Out::new();
    let mut number = 0;
    loop {
        let next = source.next();
        let Ok(Some(message)) = next else {
            // The views before the end, or before an error, are printed in any case.
            out.flush()?;
            return next.map(|_| ());
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

/// Returns the window that the user gave, with the system prompt of this conversation as overhead.
pub(super) fn window(tokens: u64, output: u64, source: &Source) -> Window {
    Window { tokens, output, overhead: source.system.tokens() }
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
