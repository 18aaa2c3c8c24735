//! The lines of running commands where no status area shows the last of each: of one command at most one line a second.
//!
//! Pure: whoever asks tells the time.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::event::Event;
use crate::id::{AgentId, CallKey};
use crate::tool::printing::Printed;

/// The pause between two lines of one command, and before its first: one that ends sooner has none.
const PAUSE: Duration = Duration::from_secs(1);

/// What the running commands have printed last.
#[derive(Debug, Default)]
pub(super) struct Pace(HashMap<AgentId, Newest>);

#[derive(Debug, Default)]
struct Newest {
    /// The calls that are at work.
    calls: Vec<CallKey>,
    /// The last line, if it was not printed yet.
    line: Option<String>,
    /// When the next one may be printed; `None` before the first has come.
    due: Option<Instant>,
}

impl Pace {
    /// Takes the next event of an agent: what its commands print is taken only while a call of it is at work.
    pub(super) fn apply(&mut self, agent: &AgentId, event: &Event) {
        match event {
            Event::ToolIntended(intended) => self.begin(agent, &intended.key),
            Event::ToolStarted(started) => self.begin(agent, &started.key),
            Event::ToolFinished(finished) => self.end(agent, &finished.key),
            Event::AgentEnded(_) => drop(self.0.remove(agent)),
            _ => {}
        }
    }

    fn begin(&mut self, agent: &AgentId, call: &CallKey) {
        let calls = &mut self.0.entry(agent.clone()).or_default().calls;
        if !calls.contains(call) {
            calls.push(call.clone());
        }
    }

    /// Forgets a command: it has ended, and its result says more.
    fn end(&mut self, agent: &AgentId, call: &CallKey) {
        if let Some(newest) = self.0.get_mut(agent) {
            newest.calls.retain(|at_work| at_work != call);
            if newest.calls.is_empty() {
                self.0.remove(agent);
            }
        }
    }

    /// Takes what the command of an agent printed. The last of it may come after the record of its end, which says more.
    pub(super) fn note(&mut self, agent: &AgentId, printed: &Printed, now: Instant) {
        let last = printed.lines.iter().rev().find(|line| !line.text.is_empty());
        if let (Some(newest), Some(last)) = (self.0.get_mut(agent), last) {
            newest.line = Some(last.text.clone());
            newest.due.get_or_insert(now + PAUSE);
        }
    }

    /// Returns the lines that are to be printed now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<(AgentId, String)> {
        let mut lines = Vec::new();
        let is_due = |newest: &Newest| newest.due.is_some_and(|due| due <= now);
        for (agent, newest) in self.0.iter_mut().filter(|(_, newest)| is_due(newest)) {
            if let Some(line) = newest.line.take() {
                newest.due = Some(now + PAUSE);
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
        let calls = ["first", "second"].map(CallKey::from_text);
        ids.iter().for_each(|id| pace.begin(id, &calls[0]));
        pace.note(&ids[0], &printed(&["one", "two", ""]), at(0));
        pace.note(&ids[1], &printed(&["short"]), at(100));
        pace.end(&ids[1], &calls[0]);
        pace.note(&ids[1], &printed(&["after its end"]), at(150));
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
        pace.begin(&ids[0], &calls[1]);
        pace.end(&ids[0], &calls[0]);
        pace.note(&ids[0], &printed(&["of the second"]), at(7_000));
        assert_eq!(shown(pace.take(at(7_200))), ["a of the second"]);
        pace.end(&ids[0], &calls[1]);
        pace.note(&ids[0], &printed(&["after all"]), at(7_300));
        assert!(pace.take(at(20_000)).is_empty(), "both calls have ended");
        assert!(pace.0.is_empty(), "nothing stays of a command");
    }
}
