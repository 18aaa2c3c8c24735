//! `init`: writes an agents.toml that runs at once, with its script.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::args;
use super::locate::{DEFAULT_FILE, quoted};
use super::{complain, say};
use crate::exit::Exit;
use crate::printable;

/// Writes the files of a template into a folder. Nothing is written if one exists. It asks nothing.
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
    let is_here = verb.dir.as_os_str() == ".";
    let below = |path: &str| if is_here { path.into() } else { verb.dir.join(path) };
    let (file, script_path) = (below(DEFAULT_FILE), below(&format!("scripts/{name}.toml")));
    if verb.dir.exists() && !verb.dir.is_dir() {
        complain(&format!("error: {} is not a folder: nothing was written", shown(&verb.dir)));
        return Exit::Usage;
    }
    let files = [(&file, config), (&script_path, script)];
    // A link that leads nowhere is there too.
    if let Some((path, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        complain(&format!("error: {} exists already: nothing was written", shown(path)));
        complain("help: remove it, or name another folder: `callsheet init DIR`");
        return Exit::Usage;
    }
    for (path, text) in files {
        if let Err(error) = write(path, text) {
            complain(&format!("error: {}: {error}", shown(path)));
            return Exit::Disk;
        }
    }
    let go =
        if is_here { String::new() } else { format!("go there:     cd {}\n", quoted(&verb.dir)) };
    say(&format!(
        "{}: a graph that runs at once, with the answers of {} in place of a model\n\n\
         {go}\
         check it:     callsheet check\n\
         run it:       callsheet run\n\
         with a model: callsheet run --profile live   (needs ANTHROPIC_API_KEY, and costs money)\n\
         every key:    callsheet schema config\n",
        shown(&file),
        shown(&script_path)
    ))
}

fn shown(path: &Path) -> String {
    printable::line(&path.to_string_lossy()).into_owned()
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
