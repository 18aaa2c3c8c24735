//! Permission questions to a person at the terminal.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use super::complain;

/// Returns an asker for the terminal, or `None` if stdin or stderr is not a terminal.
pub(super) fn asker() -> Option<Arc<dyn crate::actor::services::Asker>> {
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    terminal.then(|| Arc::new(Terminal::default()) as Arc<dyn crate::actor::services::Asker>)
}

/// Asks the person at the terminal, one question at a time.
#[derive(Debug, Default)]
struct Terminal {
    /// Held while a question is open: agents that ask at the same time wait for each other.
    turn: tokio::sync::Mutex<()>,
}

impl crate::actor::services::Asker for Terminal {
    fn ask(&self, agent: &crate::id::AgentId, what: &str) -> crate::model::BoxFuture<'_, bool> {
        // Control characters are escaped, so that a command cannot change how the terminal shows
        // it.
        let shown: String = what.chars().flat_map(char::escape_debug).take(400).collect();
        let question = format!("{agent} wants to run: {shown}\nallow? [y/N]");
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            complain(&question);
            let answer = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                io::stdin().read_line(&mut line).map(|_| line)
            });
            let answer = answer.await.ok().and_then(Result::ok).unwrap_or_default();
            matches!(answer.trim(), "y" | "Y" | "yes")
        })
    }
}
