//! What the agents of a run left undone, in words.
//!
//! Pure.

use std::collections::BTreeMap;

use crate::show::log_line;
use crate::turn::Shortfalls;

/// The most characters of a tool's name: a model may have written it.
const TOOL_NAME: usize = 64;

/// Returns what was left undone, in words; `None` if nothing was.
#[must_use]
pub fn undone(shortfalls: &Shortfalls) -> Option<String> {
    let counted = |counts: &BTreeMap<String, u32>, one: &str, what: &str| {
        let count: u32 = counts.values().sum();
        let tools: Vec<_> = counts.keys().map(|tool| log_line::cut(tool, TOOL_NAME)).collect();
        let noun = if count == 1 { one.to_owned() } else { format!("{one}s") };
        (count > 0).then(|| format!("{count} {noun} {what}: {}", tools.join(", ")))
    };
    let Shortfalls {
        denied,
        unknown,
        cut,
        refused,
        failed_children,
        children,
        failed_items,
        items,
    } = shortfalls;
    let some = |failed: &u32, all: &u32, what: &str| {
        (*failed > 0).then(|| format!("{failed} of {all} {what} failed"))
    };
    let parts = [
        counted(denied, "call", "denied"),
        counted(unknown, "call", "of unknown outcome"),
        counted(cut, "result", "cut"),
        counted(refused, "call", "refused by a limit"),
        some(failed_children, children, "children"),
        some(failed_items, items, "items"),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
