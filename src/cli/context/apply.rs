//! `context apply`: the layers that need no model, once.

use std::path::PathBuf;

use super::shown::{self, Out};
use super::source::Source;
use crate::cli::args::{Apply, LayerChoice};
use crate::cli::complain;
use crate::context::layer::{Surroundings, Window};
use crate::context::pipeline::{self, Change};
use crate::context::preset::Preset;
use crate::context::view::View;
use crate::conversation::History;
use crate::exit::Exit;
use crate::tool::spool::Spool;

/// The window of the layers that ask for one: that of `context replay`.
const WINDOW_TOKENS: u64 = 200_000;

pub(super) fn run(verb: &Apply) -> Result<(), Exit> {
    let preset = chosen(super::preset(&verb.preset)?, verb.layer);
    let mut source = Source::stdin(History::SinceCompaction)?;
    let mut view = View::default();
    while let Some(message) = source.next()? {
        let number = view.next_message();
        view.push(message.json).map_err(|error| source.unfit(number, &error))?;
    }
    let results = Results::new(verb.results_dir.clone())?;
    let folder = results.folder.to_string_lossy();
    let overhead = source.system.tokens();
    let window = Window { tokens: WINDOW_TOKENS, output: 0, overhead };
    let around = Surroundings::new("stdin", &folder, window);
    let changes = pipeline::run_cheap_layers(&mut view, &preset, &around);
    let edits: Vec<_> = changes.iter().map(|change| change.edited.clone()).collect();
    results.keep(changes)?;
    let mut out = Out::new();
    out.write(&["{\"messages\":"])?;
    out.messages(&view)?;
    out.write(&[",\"edits\":", shown::edits(&edits).as_str()])?;
    if view.system().is_some() {
        out.write(&[",\"system\":", source.system.json(&view).as_str()])?;
    }
    out.write(&["}\n"])?;
    out.flush()
}

/// The preset with that layer only.
fn chosen(mut preset: Preset, choice: LayerChoice) -> Preset {
    let name = match choice {
        LayerChoice::Budget => "budget",
        LayerChoice::Snip => "snip",
        LayerChoice::Micro => "micro",
        LayerChoice::All => return preset,
    };
    preset.layers.retain(|layer| layer.name() == name);
    if preset.layers.is_empty() {
        complain(&format!("note: the preset `{}` has no layer `{name}`", preset.name));
    }
    preset
}

/// Where what leaves the view is written.
struct Results {
    folder: PathBuf,
    /// A folder that nobody asked for goes again, unless something is in it.
    temporary: Option<tempfile::TempDir>,
}

impl Results {
    fn new(wanted: Option<PathBuf>) -> Result<Self, Exit> {
        if let Some(folder) = wanted {
            return Ok(Self { folder, temporary: None });
        }
        let made = tempfile::Builder::new().prefix("callsheet-results-").tempdir();
        let made = made.map_err(|error| {
            complain(&format!("error: no temporary folder: {error}; name one by --results-dir"));
            Exit::Disk
        })?;
        Ok(Self { folder: made.path().to_owned(), temporary: Some(made) })
    }

    fn keep(self, changes: Vec<Change>) -> Result<(), Exit> {
        let mut spills = changes.into_iter().flat_map(|change| change.spills).peekable();
        if spills.peek().is_some() {
            self.temporary.map(tempfile::TempDir::keep);
        }
        let spool = Spool::new(self.folder.clone(), self.folder.clone());
        for spill in spills {
            spool.store(spill.text).map_err(|error| {
                complain(&format!("error: {}: {error}", self.folder.display()));
                Exit::Disk
            })?;
        }
        Ok(())
    }
}
