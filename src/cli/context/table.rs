//! The columns that the tables of `context replay --compare` and `context score` share.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::own::Contender;
use super::race::{Kept, Outcome};
use crate::context::laboratory::score::Share;
use crate::printable;

/// Least width of the names of presets.
const NAME_WIDTH: usize = 12;

/// The columns of what is kept.
const KEPT: [&str; 8] =
    ["CONSTRAINTS", "FILES", "WHOLE", "OUTCOMES", "VALUES", "ORDER", "NAMES", "LINES"];

/// Explains the columns of what is kept.
pub(super) const LEGEND: &str = "\
SUB-AGENTS: the part of the cost that is theirs. The rest: the share that the view answers before each reply,
asked for facts that stand more than 10 messages back (-: nothing was asked). CONSTRAINTS: binding sentences of
people, word for word. FILES: files changed for the open request. WHOLE: those whose newest text or edit stands.
OUTCOMES: last outcomes of tests and builds, with their command. VALUES: numbers that the reply cites. ORDER:
quoted lines that were neighbours. NAMES, LINES: those that the next tool call used.
";

/// A table that is written row by row.
#[derive(Debug)]
pub(super) struct Table {
    text: String,
    name_width: usize,
    has_sub_agents: bool,
}

impl Table {
    /// Begins a table with its title and its heads; `more` are columns behind the costs, with their widths.
    pub(super) fn new(
        title: &str,
        contenders: &[Contender],
        outcome: &Outcome,
        more: &[(&str, usize)],
    ) -> Self {
        let names = contenders.iter().map(|contender| contender.name.chars().count());
        let name_width = names.max().unwrap_or(0).max(NAME_WIDTH);
        let has_sub_agents = outcome.sub_agents.conversations > 0;
        let mut text = format!("{}: {} replies", printable::line(title), outcome.all.replies());
        if has_sub_agents {
            let (replies, of) = (outcome.sub_agents.replies(), outcome.sub_agents.conversations);
            let noun = if of == 1 { "sub-agent" } else { "sub-agents" };
            let _ = write!(text, ", {replies} of them of {of} {noun}");
        }
        text.push('\n');
        let mut table = Self { text, name_width, has_sub_agents };
        let heads: Vec<_> = more.iter().map(|(head, _)| (*head).to_owned()).collect();
        table.costs("PRESET", "COST", "SUB-AGENTS");
        table.cells(&heads, more);
        table.kept(KEPT.map(str::to_owned));
        table
    }

    /// Adds the row of a preset.
    pub(super) fn row(
        &mut self,
        name: &str,
        (cost, of_sub_agents): (&str, &str),
        (more, columns): (&[String], &[(&str, usize)]),
        kept: &Kept,
    ) {
        self.costs(name, cost, of_sub_agents);
        self.cells(more, columns);
        let shares = kept.answers.all().map(|(_, share)| share);
        let mut all = shares.into_iter().chain([kept.score.names_old, kept.score.lines_old]);
        self.kept(KEPT.map(|_| all.next().map_or_else(String::new, ratio)));
    }

    /// Adds a row that ends with words.
    pub(super) fn words(&mut self, name: &str, (cost, of_sub_agents): (&str, &str), words: &str) {
        self.costs(name, cost, of_sub_agents);
        let _ = writeln!(self.text, "  {words}");
    }

    /// Returns the text of the table.
    pub(super) fn text(mut self) -> String {
        self.text.push('\n');
        self.text
    }

    fn costs(&mut self, name: &str, cost: &str, of_sub_agents: &str) {
        let name = printable::padded(name, self.name_width);
        let _ = write!(self.text, "{name}  {cost:>9}");
        if self.has_sub_agents {
            let _ = write!(self.text, "  {of_sub_agents:>10}");
        }
    }

    fn cells(&mut self, cells: &[String], columns: &[(&str, usize)]) {
        for (cell, (_, width)) in cells.iter().zip(columns) {
            let _ = write!(self.text, "  {cell:>width$}");
        }
    }

    fn kept(&mut self, cells: [String; KEPT.len()]) {
        for (cell, head) in cells.iter().zip(KEPT) {
            let _ = write!(self.text, "  {cell:>width$}", width = head.len().max(5));
        }
        self.text.push('\n');
    }
}

/// Returns the members of a row of JSON that say whose it is and which part is that of the sub-agents.
pub(super) fn members(
    name: &str,
    contender: &Contender,
    of: (&Outcome, usize),
) -> Vec<(&'static str, Value)> {
    let (Outcome { all, sub_agents }, at) = of;
    let score = all.kept[at].score;
    let theirs = sub_agents.kept.get(at).map(|kept| kept.score).unwrap_or_default();
    let mut members = vec![("file", json!(name)), ("preset", json!(contender.preset.name))];
    if let Some(config) = &contender.config {
        members.push(("config", json!(config)));
    }
    members.extend([
        ("turns", json!(score.turns)),
        ("billed", json!(score.billed.round())),
        (
            "sub_agents",
            json!({
                "conversations": sub_agents.conversations,
                "turns": theirs.turns,
                "billed": theirs.billed.round(),
            }),
        ),
        ("largest", json!(score.largest.round())),
    ]);
    members
}

fn ratio(share: Share) -> String {
    share.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}
