//! `cargo bench --bench context [-- FLAGS] [FILE...]`: the cost of each preset, and how much it keeps.
//!
//! Conversations of five kinds are made from seeds, or read from files, and go through the presets in
//! the same way as in `callsheet context replay`. A table for each kind, form and window shows means
//! over the conversations, each with the worst behind it: the bill as a ratio to that of the cheaper
//! documented preset and to that of `off`, and the shares of `callsheet context score`. Costs are in
//! input tokens (written 1.25, read 0.1, output 5). No time is measured.
//!
//! `--sweep NAME=V1,V2,...` shows values of a constant instead, `--margin` changes each constant by a
//! tenth and fails if a figure gets worse, `--show` prints views, `--write DIR` writes the
//! conversations as files. `--preset NAME`, `--set NAME=VALUE`,
//! `--context-window N,...`, `--kind NAME,...`, `--form short|long` and `--seeds N` choose what is run.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

#[path = "context/asked.rs"]
mod asked;
#[path = "context/figures.rs"]
mod figures;
#[path = "context/made.rs"]
mod made;
#[path = "context/race.rs"]
mod race;
#[path = "context/show.rs"]
mod show;
#[path = "context/tables.rs"]
mod tables;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use self::asked::{Asked, Verb};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let began = Instant::now();
    let asked = Asked::read(std::env::args().skip(1))?;
    let mut code = ExitCode::SUCCESS;
    match &asked.verb {
        Verb::Table => tables::presets(&asked)?,
        Verb::Show => show::views(&asked)?,
        Verb::Margin if tables::margin(&asked)? => code = ExitCode::FAILURE,
        Verb::Margin => {}
        Verb::Sweep(name, values) => tables::sweep(&asked, name, values)?,
        Verb::Write(dir) => tables::write(&asked, dir)?,
    }
    println!("\ntook {:.0} s", began.elapsed().as_secs_f64());
    Ok(code)
}
