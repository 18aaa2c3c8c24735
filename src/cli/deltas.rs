//! The text of models while it arrives: whole lines, each with the agent's name.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::complain;
use super::paint::Paint;
use super::rows::folded;
use super::screen::Screen;
use super::stream::Stream;
use crate::id::AgentId;
use crate::journal::log_line::cut;
use crate::journal::source::RecordedRun;
use crate::model::Delta;
use crate::person::Watcher;
use crate::printable;
use crate::run::control::DeltaStream;
use crate::run::delta_feed::DeltaLine;

/// The most characters of a line: models write paragraphs as one line.
const WIDEST: usize = 400;

/// The least width of the column of names: that of the log lines.
const NAME: usize = 16;

/// The pause between two tries to reach the owner of a run.
const LOOK: Duration = Duration::from_millis(200);

/// Prints the lines of text that models write, as they become whole.
#[derive(Debug)]
pub(super) struct Deltas {
    /// The terminal of the run; `None`: the lines go to stdout.
    screen: Option<Arc<Screen>>,
    paint: Paint,
    /// The beginning of the line that each agent is writing.
    open: Mutex<HashMap<AgentId, String>>,
}

impl Deltas {
    pub(super) fn new(screen: Option<Arc<Screen>>, paint: Paint) -> Arc<Self> {
        Arc::new(Self { screen, paint, open: Mutex::default() })
    }

    fn print(&self, agent: &AgentId, line: &str) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let name = &*printable::line(agent.as_str());
        let padding = " ".repeat(NAME.saturating_sub(name.len()));
        let text = format!("{}{padding} > {}", self.paint.name(name), cut(line, WIDEST));
        // An output that is closed is no error: the run goes on.
        let _ = match &self.screen {
            Some(screen) => screen.line(&text),
            None => Stream::Out.print(&format!("{}\n", folded(&text, Stream::Out))),
        };
    }

    /// Prints what the owner of a run sends, for the agents that `wants` selects, until the future
    /// is dropped: another process may take the run over.
    pub(super) async fn follow(&self, run: &RecordedRun, wants: impl Fn(&AgentId) -> bool) {
        let mut refused = false;
        loop {
            match DeltaStream::open(&**run).await {
                Ok(mut stream) => {
                    while let Ok(Some(line)) = stream.next().await {
                        self.take(line, &wants);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Other && !refused => {
                    refused = true;
                    complain(&format!("note: no text of models: {error}"));
                }
                // No process drives the run now.
                Err(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn take(&self, line: DeltaLine, wants: impl Fn(&AgentId) -> bool) {
        match &line {
            DeltaLine::Text { agent, text } if wants(agent) => {
                self.arrived(agent, Delta::Text(text));
            }
            DeltaLine::Tool { agent, tool } if wants(agent) => {
                self.arrived(agent, Delta::Tool(tool));
            }
            DeltaLine::Ended { agent } if wants(agent) => self.ended(agent),
            DeltaLine::Missed { count } => {
                complain(&format!("note: {count} pieces of text came too fast to be printed"));
            }
            DeltaLine::Text { .. } | DeltaLine::Tool { .. } | DeltaLine::Ended { .. } => {}
        }
    }
}

impl Watcher for Deltas {
    fn arrived(&self, agent: &AgentId, delta: Delta<'_>) {
        let mut lines = Vec::new();
        {
            let mut open = self.open.lock();
            let line = open.entry(agent.clone()).or_default();
            match delta {
                Delta::Text(text) => line.push_str(text),
                // The text before a call is whole.
                Delta::Tool(_) => line.push('\n'),
                Delta::Taken(_) | Delta::Spent(_) | Delta::Alive => return,
            }
            if let Some((whole, rest)) = line.rsplit_once('\n') {
                lines.extend(whole.split('\n').map(str::to_owned));
                *line = rest.to_owned();
            }
            if line.chars().count() > WIDEST {
                lines.push(std::mem::take(line));
            }
        }
        lines.iter().for_each(|line| self.print(agent, line));
    }

    fn ended(&self, agent: &AgentId) {
        let last = self.open.lock().remove(agent).unwrap_or_default();
        self.print(agent, &last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_printed() {
        let deltas = Deltas::new(Some(Screen::new()), Paint::new(false));
        let agent = AgentId::from_text("a");
        let open = || deltas.open.lock().get(&agent).cloned().unwrap_or_default();
        for (delta, left) in [
            (Delta::Text("Hello, "), "Hello, "),
            (Delta::Alive, "Hello, "),
            (Delta::Text("world.\nSo"), "So"),
            (Delta::Tool("bash"), ""),
        ] {
            deltas.arrived(&agent, delta);
            assert_eq!(open(), left);
        }
        deltas.arrived(&agent, Delta::Text("half"));
        deltas.ended(&agent);
        assert_eq!(open(), "", "the next reply begins anew");
        deltas.arrived(&agent, Delta::Text(&"x".repeat(WIDEST + 1)));
        assert_eq!(open(), "", "a paragraph is not kept for ever");
    }
}
