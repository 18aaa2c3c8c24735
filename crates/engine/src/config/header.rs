//! Checks the keys that decide how the file is read: `version` and `requires`.

use super::diagnostic::{NO_HELP, Place, Problems};
use super::raw::{Header, VERSION};

/// Checks the keys that decide how the file is read: `version` and `requires`.
pub(super) fn check(header: &Header, start: &Place, problems: &Problems) {
    match (header.version.at(), *header.version) {
        (None, _) => {
            let help = format!("add `version = {VERSION}` as the first line");
            problems.error("missing_version", start, "the file has no `version`", help);
        }
        (Some(_), Some(VERSION)) => {}
        (Some(at), None) => {
            let message = format!("`version` must be the integer {VERSION}, not {}", at.kind);
            let help = format!("write `version = {VERSION}`");
            problems.error("unknown_version", &at.value, message, help);
        }
        (Some(at), Some(_)) => {
            let message = format!("this program reads version {VERSION} of the configuration");
            problems.error("unknown_version", &at.value, message, NO_HELP);
        }
    }
    let Some((text, place)) = header.requires.placed() else { return };
    let own = env!("CARGO_PKG_VERSION");
    match numbers(text.trim_start_matches(">=").trim()) {
        None => {
            let message = format!("`{text}` is not a minimum version");
            problems.error("bad_value", place, message, "write it like `>=0.1`");
        }
        Some(least) if numbers(own).is_some_and(|own| own < least) => {
            let message = format!("the file asks for callsheet {text}; this is {own}");
            problems.error("requires", place, message, NO_HELP);
        }
        Some(_) => {}
    }
}

/// Returns the numbers of a version, or `None` if it has more than three or is not one.
fn numbers(version: &str) -> Option<Vec<u64>> {
    let numbers: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() <= 3)
}
