//! `context apply`: applies the layers of a preset that need no model, once.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::own::WINDOW_TOKENS;
use super::shown::{self, Out};
use super::source::Source;
use crate::cli::args::{Apply, LayerChoice};
use crate::cli::complain;
use crate::cli::locate::Project;
use crate::cli::paint::Progress;
use crate::context::layers::pipeline::{self, AppliedEdit};
use crate::context::layers::preset::Preset;
use crate::context::layers::{Surroundings, Window};
use crate::context::view::{Standing, View};
use crate::conversation::History;
use crate::disk;
use crate::exit::Exit;
use crate::message::Json;
use crate::store::Store;

pub(super) fn run(project: &Project, verb: &Apply) -> Result<(), Exit> {
    let preset = chosen(super::preset(&verb.preset)?, verb.layer);
    let mut source =
        Source::open(project, &verb.source, History::SinceCompaction, &Progress::default())?;
    let (mut view, mut messages) = (View::default(), Vec::new());
    while let Some(message) = source.next()? {
        messages.push(message.json.clone());
        let number = view.next_message();
        view.push(message.json).map_err(|error| source.unfit(number, &error))?;
    }
    source.tell_skipped();
    let results = Results::new(verb.results_dir.clone())?;
    let (folder, transcript) = (results.folder.to_string_lossy(), results.transcript());
    let overhead = source.system.tokens();
    let window = Window { tokens: WINDOW_TOKENS, output: 0, overhead };
    let around = Surroundings::new(&transcript, &folder, window);
    let changes = pipeline::run_cheap_layers(&mut view, &preset, &around);
    let edits: Vec<_> = changes.iter().map(|change| change.edited.clone()).collect();
    let markers = || view.slots().filter(|slot| slot.standing != Standing::Verbatim);
    if markers().any(|slot| slot.entry.json.as_str().contains(&transcript)) {
        results.keep_transcript(&messages)?;
    }
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

/// Returns the preset with only the chosen layer, or whole.
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

/// The folder for results that are removed from the view.
struct Results {
    folder: PathBuf,
    /// The temporary folder, if the user named none. It is removed if it stays empty.
    temporary: Option<tempfile::TempDir>,
}

impl Results {
    fn new(wanted: Option<PathBuf>) -> Result<Self, Exit> {
        if let Some(folder) = wanted {
            return Ok(Self { folder, temporary: None });
        }
        let made = tempfile::Builder::new()
            .prefix("callsheet-results-")
            // Whatever the mask of new files says: nobody else puts a link into it.
            .permissions(Permissions::from_mode(0o700))
            .tempdir();
        let made = made.map_err(|error| {
            complain(&format!(
                "error: no temporary folder: {error}; name a folder with --results-dir"
            ));
            Exit::Disk
        })?;
        Ok(Self { folder: made.path().to_owned(), temporary: Some(made) })
    }

    /// Returns the path by which markers name the conversation.
    fn transcript(&self) -> String {
        self.folder.join("transcript.jsonl").to_string_lossy().into_owned()
    }

    /// Writes the conversation to the path that markers name.
    fn keep_transcript(&self, messages: &[Json]) -> Result<(), Exit> {
        let write = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            let mut out = BufWriter::new(disk::make_anew(Path::new(&self.transcript()))?);
            for (seq, message) in messages.iter().enumerate() {
                writeln!(out, "{{\"seq\":{seq},\"message\":{}}}", message.as_str())?;
            }
            out.flush()
        };
        write().map_err(|error: io::Error| self.refused(&error))
    }

    /// Writes the texts that the changes removed from the view.
    fn keep(mut self, changes: Vec<AppliedEdit>) -> Result<(), Exit> {
        let spool = Store::new(self.folder.clone(), self.folder.clone());
        for spill in changes.into_iter().flat_map(|change| change.spills) {
            spool.store(spill.text).map_err(|error| self.refused(&error))?;
        }
        let is_empty = |folder: &mut fs::ReadDir| folder.next().is_none();
        if !fs::read_dir(&self.folder).is_ok_and(|mut folder| is_empty(&mut folder)) {
            self.temporary.take().map(tempfile::TempDir::keep);
        }
        Ok(())
    }

    fn refused(&self, error: &io::Error) -> Exit {
        complain(&format!("error: {}: {error}", self.folder.display()));
        Exit::Disk
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::context::layers::{Proposal, Spill};
    use crate::context::{ClearedResult, Edit};
    use crate::conversation::Conversation;
    use crate::message::Message;

    /// A change that took a text out of a view.
    fn change() -> AppliedEdit {
        let mut view = View::default();
        let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"whole"}]}"#;
        view.push(Json::parse(result.to_owned()).unwrap()).unwrap();
        let spill = Spill::of("whole".to_owned());
        let cleared = ClearedResult {
            message: 0,
            tool_use_id: "t".to_owned(),
            text: "short".to_owned(),
            stored: Some(spill.stored.clone()),
            kept_chars: 0,
        };
        let edit = Edit::ClearResults { results: vec![cleared] };
        pipeline::apply(&mut view, "budget", Proposal { edit, spills: vec![spill] }).unwrap()
    }

    #[test]
    fn what_left_the_view_stands_under_its_hash() {
        let root = tempfile::tempdir().unwrap();
        let wanted = root.path().join("a/b");
        Results::new(Some(wanted.clone())).unwrap().keep(vec![change()]).unwrap();
        let hash = Spill::of("whole".to_owned()).stored.hash;
        assert_eq!(fs::read_to_string(wanted.join(hash)).unwrap(), "whole");
    }

    #[test]
    fn a_temporary_folder_stays_only_with_something_in_it() {
        let results = Results::new(None).unwrap();
        let folder = results.folder.clone();
        results.keep(Vec::new()).unwrap();
        assert!(!folder.exists());
        let results = Results::new(None).unwrap();
        let folder = results.folder.clone();
        results.keep(vec![change()]).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_transcript_can_be_read_again() {
        let root = tempfile::tempdir().unwrap();
        let results = Results::new(Some(root.path().join("new"))).unwrap();
        let messages =
            vec![Json::encode(&Message::user("a")), Json::encode(&Message::assistant("b"))];
        results.keep_transcript(&messages).unwrap();
        let read = Conversation::open(Path::new(&results.transcript()), History::Whole).unwrap();
        let read: Vec<_> = read.map(|message| message.unwrap().json).collect();
        assert_eq!(read, messages);
    }
}
