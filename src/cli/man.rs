//! `man`: prints the manual page of the program or of a verb, or writes all of them to a folder.

use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::args::{self, Arguments};
use super::{complain, say, version};
use crate::exit::Exit;
use crate::printable;

pub(super) fn run(verb: &args::Manual) -> Exit {
    let mut program = Arguments::command().disable_help_subcommand(true);
    // Only then the verbs know their whole names, such as `callsheet-context-replay`.
    program.build();
    match &verb.dir {
        Some(dir) => write_all(&program, dir),
        None => print(&program, &verb.verb),
    }
}

fn print(program: &Command, verb: &[String]) -> Exit {
    let mut found = program;
    for name in verb {
        let Some(part) = found.find_subcommand(name) else {
            complain(&format!("error: there is no verb `{}`", printable::line(&verb.join(" "))));
            complain("help: `callsheet --help` lists the verbs");
            return Exit::Usage;
        };
        found = part;
    }
    let mut text = Vec::new();
    match page(found).render(&mut text) {
        Ok(()) => say(&String::from_utf8_lossy(&text)),
        Err(_) => Exit::Disk,
    }
}

/// Returns the page of a verb; by itself each would name the verb as the program.
fn page(verb: &Command) -> Man {
    Man::new(verb.clone()).source(format!("callsheet {}", version::PROGRAM))
}

/// Writes `callsheet.1` and a page for each verb.
fn write_all(program: &Command, dir: &Path) -> Exit {
    match std::fs::create_dir_all(dir).and_then(|()| write(program, dir)) {
        Ok(()) => Exit::Done,
        Err(error) => {
            let dir = dir.display().to_string();
            complain(&format!("error: cannot write to {}: {error}", printable::line(&dir)));
            Exit::Disk
        }
    }
}

fn write(verb: &Command, dir: &Path) -> io::Result<()> {
    page(verb).generate_to(dir)?;
    verb.get_subcommands().try_for_each(|verb| write(verb, dir))
}
