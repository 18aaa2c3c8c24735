//! `version`: prints the versions of the program and of what it reads and writes.

use serde_json::json;

use super::{args, say, say_json};
use crate::config;
use crate::exit::Exit;
use crate::journal::line;

/// Version of the program.
pub(super) const PROGRAM: &str = env!("CARGO_PKG_VERSION");

pub(super) fn run(verb: &args::Version) -> Exit {
    if !verb.json {
        return say(&format!("callsheet {PROGRAM}\n"));
    }
    let document = json!({
        "callsheet": PROGRAM,
        "agents_toml": config::VERSION,
        "journal": line::FORMAT,
        "rust": env!("CARGO_PKG_RUST_VERSION"),
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
    });
    say_json(&format!("{document}\n"))
}
