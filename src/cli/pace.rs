//! The lines of running commands where no status area shows the last of each: of one command at most one line a second.
//!
//! Pure: whoever asks tells the time.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::id::AgentId;
use crate::tool::printing::Printed;

/// The pause between two lines of one command, and before its first: one that ends sooner has none.
const PAUSE: Duration = Duration::from_secs(1);

/// What the running commands have printed last.
#[derive(Debug, Default)]
pub(super) struct Pace(HashMap<AgentId, Newest>);

#[derive(Debug)]
struct Newest {
    /// The last line, if it was not printed yet.
    line: Option<String>,
    /// When the next one may be printed.
    due: Instant,
}

impl Pace {
    /// Takes what the command of an agent printed.
    pub(super) fn note(&mut self, agent: &AgentId, printed: &Printed, now: Instant) {
        let Some(last) = printed.lines.iter().rev().find(|line| !line.text.is_empty()) else {
            return;
        };
        let line = Some(last.text.clone());
        match self.0.get_mut(agent) {
            Some(newest) => newest.line = line,
            None => drop(self.0.insert(agent.clone(), Newest { line, due: now + PAUSE })),
        }
    }

    /// Forgets the command of an agent: it has ended, and its result says more.
    pub(super) fn forget(&mut self, agent: &AgentId) {
        self.0.remove(agent);
    }

    /// Returns the lines that are to be printed now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<(AgentId, String)> {
        let mut lines = Vec::new();
        for (agent, newest) in self.0.iter_mut().filter(|(_, newest)| newest.due <= now) {
            if let Some(line) = newest.line.take() {
                newest.due = now + PAUSE;
                lines.push((agent.clone(), line));
            }
        }
        lines.sort();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::printing::PrintedLine;

    #[test]
    fn a_command_that_runs_has_a_line_a_second_and_a_short_one_has_none() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let ids = ["a", "b"].map(AgentId::from_text);
        let printed = |texts: &[&str]| {
            let line = |text: &&str| PrintedLine { text: (*text).to_owned(), is_error: false };
            Printed { missed: 0, lines: texts.iter().map(line).collect() }
        };
        let shown = |lines: Vec<(AgentId, String)>| {
            lines.into_iter().map(|(agent, line)| format!("{agent} {line}")).collect::<Vec<_>>()
        };
        pace.note(&ids[0], &printed(&["one", "two", ""]), at(0));
        pace.note(&ids[1], &printed(&["short"]), at(100));
        pace.forget(&ids[1]);
        assert!(pace.take(at(900)).is_empty());
        pace.note(&ids[0], &printed(&["three"]), at(950));
        assert_eq!(shown(pace.take(at(1_200))), ["a three"]);
        assert!(pace.take(at(5_000)).is_empty(), "nothing new");
        pace.note(&ids[0], &printed(&["four"]), at(5_100));
        pace.note(&ids[0], &printed(&[""]), at(5_150));
        assert_eq!(shown(pace.take(at(5_200))), ["a four"], "a pause is over at once");
        pace.note(&ids[0], &printed(&["five"]), at(5_300));
        assert!(pace.take(at(6_100)).is_empty());
        assert_eq!(shown(pace.take(at(6_200))), ["a five"]);
    }
}
