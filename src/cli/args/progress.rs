//! The flag of the verbs that show a run while it works.

use std::sync::Arc;

use clap::Args;

use crate::cli::screen::Screen;

#[derive(Debug, Args)]
pub(in crate::cli) struct Progress {
    /// Draw no status area and print no lines of commands while they run
    #[arg(long)]
    pub plain: bool,
}

impl Progress {
    /// Takes over stderr for a run.
    pub(in crate::cli) fn screen(&self) -> Arc<Screen> {
        if self.plain { Screen::plain() } else { Screen::new() }
    }
}
