//! `init`: writes an agents.toml that runs at once, with its script.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::args;
use super::locate::DEFAULT_FILE;
use super::{complain, say};
use crate::exit::Exit;

/// Writes the files of a template into the working directory. Nothing is written if one exists.
pub(super) fn run(verb: &args::Init) -> Exit {
    let (name, config, script) = match verb.template {
        args::Template::Review => {
            ("review", include_str!("init/review.toml"), include_str!("init/review.script.toml"))
        }
        args::Template::Fix => {
            ("fix", include_str!("init/fix.toml"), include_str!("init/fix.script.toml"))
        }
        args::Template::Research => (
            "research",
            include_str!("init/research.toml"),
            include_str!("init/research.script.toml"),
        ),
    };
    let script_path = format!("scripts/{name}.toml");
    let files = [(DEFAULT_FILE, config), (script_path.as_str(), script)];
    if let Some((path, _)) = files.iter().find(|(path, _)| Path::new(path).exists()) {
        complain(&format!("error: {path} exists already: nothing was written"));
        complain("help: remove it, or work in another folder");
        return Exit::Usage;
    }
    for (path, text) in files {
        if let Err(error) = write(Path::new(path), text) {
            complain(&format!("error: {path}: {error}"));
            return Exit::Disk;
        }
    }
    say(&format!(
        "{DEFAULT_FILE}: a graph that runs at once, with the answers of {script_path} in place of a \
         model\n\n\
         check it:     callsheet check\n\
         run it:       callsheet run\n\
         with a model: callsheet run --profile live   (needs ANTHROPIC_API_KEY, and costs money)\n\
         every key:    callsheet schema config\n"
    ))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    // Another process may have made the file in the meantime; it is not overwritten.
    let mut options = OpenOptions::new();
    // Nobody else says what runs, whatever the mask of new files says.
    options.write(true).create_new(true).mode(0o644).open(path)?.write_all(text.as_bytes())
}
