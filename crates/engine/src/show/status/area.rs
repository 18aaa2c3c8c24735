//! The agents at work in the status area: a line for each as long as there is space, and those that are left folded
//! by task.
//!
//! Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Status, long};
use crate::id::{AgentId, Name};
use crate::run_state::AgentStatus;
use crate::show::names::cut_middle;
use crate::show::why::column;
use crate::show::{agents_in_order, short};
use crate::why::{Subject, Why};

/// The most characters of the column of names: the names of most agents. A longer one is cut in the middle.
const WIDEST_NAME: usize = 32;

/// The most tasks that the line of the agents that are left names.
const FOLDED: usize = 6;

/// The part of a terminal that the area may take, as a fraction: the log lines above it keep the rest.
const PART: (usize, usize) = (2, 3);

/// The least lines above the area.
const ABOVE: usize = 4;

/// The least lines of the area: the tasks, the totals, and an agent.
const LEAST: usize = 3;

/// Returns how many lines the area may have on a terminal of this height.
#[must_use]
pub fn space(height: usize) -> usize {
    let part = height * PART.0 / PART.1;
    part.min(height.saturating_sub(ABOVE)).max(LEAST)
}

/// One line: an agent at work.
struct Row<'a> {
    name: Cow<'a, str>,
    task: &'a Name,
    is_slow: bool,
    rest: String,
}

impl Status {
    /// Returns the lines of the agents at work, at most `space`. Slow ones are marked and come first.
    pub(super) fn agents(&self, now_ms: i64, space: usize) -> Vec<String> {
        let rows = self.rows(now_ms);
        let shown = if rows.len() <= space { rows.len() } else { space.saturating_sub(1) };
        let width = rows.iter().take(shown).map(|row| row.name.chars().count()).max();
        let width = width.unwrap_or_default().min(WIDEST_NAME);
        let line = |row: &Row<'_>| {
            let mark = if row.is_slow { '!' } else { ' ' };
            format!("{mark} {:<width$} {}", cut_middle(&row.name, width), row.rest)
        };
        let mut lines: Vec<_> = rows.iter().take(shown).map(line).collect();
        if space > 0 && shown < rows.len() {
            lines.push(folded(&rows[shown..], shown > 0));
        }
        lines
    }

    fn rows(&self, now_ms: i64) -> Vec<Row<'_>> {
        // One for all rows: what it has to read of the whole run it reads once.
        let why = self.why(now_ms);
        let open = agents_in_order(&self.state).into_iter();
        let at_work =
            open.filter(|(_, agent)| agent.outcome.is_none() && agent.state() == "running");
        let mut rows: Vec<_> = at_work
            .map(|(id, agent)| Row {
                name: self.names.shown(id.as_str()),
                task: &agent.task,
                is_slow: self.is_slow(id, agent, now_ms),
                rest: self.rest(&why, id, agent, now_ms),
            })
            .collect();
        // The order of the others stays, so that the eye finds a line where it was.
        rows.sort_by_key(|row| !row.is_slow);
        rows
    }

    /// Returns what an agent does, since when, and what it took so far.
    fn rest(&self, why: &Why<'_>, id: &AgentId, agent: &AgentStatus, now_ms: i64) -> String {
        let mut text = String::new();
        if agent.turn > 0 {
            text.push_str(&format!("t{} ", agent.turn));
        }
        let subject = Subject::Agent(id.clone());
        if let Some(what) = column(why, &subject, &self.names, now_ms) {
            text.push_str(&format!("{what} "));
        }
        text.push_str(&long((now_ms - agent.last_ms).max(0)));
        let usage = agent.inclusive.usage;
        let tokens = usage.context() + usage.output;
        if tokens > 0 {
            text.push_str(&format!(" · {}", short(tokens)));
        }
        if let Some(cost) = agent.inclusive.cost_usd().filter(|cost| *cost > 0.0) {
            text.push_str(&format!(" · ${cost:.2}"));
        }
        if let Some(line) = self.printed.get(id) {
            text.push_str(&format!(" | {line}"));
        }
        text
    }
}

/// Returns the line of the agents that have none of their own: how many there are of which task.
fn folded(rows: &[Row<'_>], has_others: bool) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        let task = row.task.as_str();
        *counts.entry(task.split_once('[').map_or(task, |(base, _)| base)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = counts.iter().take(FOLDED).map(|(task, count)| format!("{task} {count}"));
    let mut text = named.collect::<Vec<_>>().join(", ");
    if counts.len() > FOLDED {
        text.push_str(", …");
    }
    let more = if has_others { " more" } else { "" };
    format!("  {}{more} running: {text}", rows.len())
}
