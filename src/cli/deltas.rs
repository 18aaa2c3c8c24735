//! The text of models and the output of commands while they arrive: whole lines, each with the agent's name.

use std::collections::HashMap;
use std::sync::Arc;

use super::complain;
use super::paint::Paint;
use super::rows::folded;
use super::screen::Screen;
use super::stream::Stream;
use crate::id::AgentId;
use crate::run::delta_feed::DeltaLine;
use crate::show::log_line::cut;
use crate::show::names::Names;

/// The most characters of a line: models write paragraphs as one line.
const WIDEST: usize = 400;

/// Stands before the lines of models.
const MODEL: char = '>';

/// Stands before the lines of commands.
const COMMAND: char = ':';

/// The least width of the column of names: that of the log lines.
const NAME: usize = 16;

/// Prints the lines of text that models write, as they become whole.
#[derive(Debug)]
pub(super) struct Deltas {
    /// The terminal of the run; `None`: the lines go to stdout.
    screen: Option<Arc<Screen>>,
    paint: Paint,
    /// The beginning of the line that each agent is writing.
    open: HashMap<AgentId, String>,
}

impl Deltas {
    pub(super) fn new(screen: Option<Arc<Screen>>, paint: Paint) -> Self {
        Self { screen, paint, open: HashMap::new() }
    }

    /// Prints a line; `mark` says who wrote it.
    fn print(&self, agent: &AgentId, names: &Names, mark: char, line: &str) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let name = &*names.shown(agent.as_str());
        let padding = " ".repeat(NAME.saturating_sub(name.chars().count()));
        let text = format!("{}{padding} {mark} {}", self.paint.name(name), cut(line, WIDEST));
        // An output that is closed is no error: the run goes on.
        let _ = match &self.screen {
            Some(screen) => screen.line(&text),
            None => Stream::Out.print(&format!("{}\n", folded(&text, Stream::Out))),
        };
    }

    /// Prints a line of a command.
    pub(super) fn print_command(&self, agent: &AgentId, names: &Names, line: &str) {
        self.print(agent, names, COMMAND, line);
    }

    /// Prints the lines that a part of a reply makes whole, if its agent is one that `wants` selects.
    pub(super) fn take(
        &mut self,
        part: &DeltaLine,
        names: &Names,
        wants: impl Fn(&AgentId) -> bool,
    ) {
        match part {
            DeltaLine::Text { agent, text } if wants(agent) => self.write(agent, names, text),
            // The text before a call is whole.
            DeltaLine::Tool { agent, .. } if wants(agent) => self.write(agent, names, "\n"),
            DeltaLine::Ended { agent } if wants(agent) => {
                let last = self.open.remove(agent).unwrap_or_default();
                self.print(agent, names, MODEL, &last);
            }
            DeltaLine::Printed { agent, printed } if wants(agent) => {
                if printed.missed > 0 {
                    let missed = format!("[{} lines came too fast]", printed.missed);
                    self.print(agent, names, COMMAND, &missed);
                }
                for line in &printed.lines {
                    self.print(agent, names, COMMAND, &line.text);
                }
            }
            DeltaLine::Missed { count } => {
                complain(&format!("note: {count} pieces of text came too fast to be printed"));
            }
            DeltaLine::Text { .. }
            | DeltaLine::Tool { .. }
            | DeltaLine::Ended { .. }
            | DeltaLine::Printed { .. } => {}
        }
    }

    /// Prints why none come.
    pub(super) fn none_come(reason: &str) {
        complain(&format!("note: no text of models and no output of running commands: {reason}"));
    }

    fn write(&mut self, agent: &AgentId, names: &Names, text: &str) {
        let mut lines = Vec::new();
        let line = self.open.entry(agent.clone()).or_default();
        line.push_str(text);
        if let Some((whole, rest)) = line.rsplit_once('\n') {
            lines.extend(whole.split('\n').map(str::to_owned));
            *line = rest.to_owned();
        }
        if line.chars().count() > WIDEST {
            lines.push(std::mem::take(line));
        }
        lines.iter().for_each(|line| self.print(agent, names, MODEL, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_printed() {
        let mut deltas = Deltas::new(Some(Screen::new()), Paint::new(false));
        let (agent, names) = (AgentId::from_text("a"), Names::default());
        let text = |text: &str| DeltaLine::Text { agent: agent.clone(), text: text.to_owned() };
        let tool = DeltaLine::Tool { agent: agent.clone(), tool: "bash".to_owned() };
        let open = |deltas: &Deltas| deltas.open.get(&agent).cloned().unwrap_or_default();
        for (part, left) in [
            (text("Hello, "), "Hello, "),
            (DeltaLine::Missed { count: 0 }, "Hello, "),
            (text("world.\nSo"), "So"),
            (tool, ""),
        ] {
            deltas.take(&part, &names, |_| true);
            assert_eq!(open(&deltas), left);
        }
        deltas.take(&text("half"), &names, |_| true);
        deltas.take(&text("nobody wants it"), &names, |_| false);
        assert_eq!(open(&deltas), "half");
        deltas.take(&DeltaLine::Ended { agent: agent.clone() }, &names, |_| true);
        assert_eq!(open(&deltas), "", "the next reply begins anew");
        deltas.take(&text(&"x".repeat(WIDEST + 1)), &names, |_| true);
        assert_eq!(open(&deltas), "", "a paragraph is not kept for ever");
    }
}
