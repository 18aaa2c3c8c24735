//! Permission questions to a person at the terminal.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use super::complain;

/// Asks at the terminal, if there is one to ask at.
pub(super) fn asker() -> Option<Arc<dyn crate::actor::services::Asker>> {
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    terminal.then(|| Arc::new(Terminal::default()) as Arc<dyn crate::actor::services::Asker>)
}

/// One question at a time.
#[derive(Debug, Default)]
struct Terminal {
    turn: tokio::sync::Mutex<()>,
}

impl crate::actor::services::Asker for Terminal {
    fn ask(&self, agent: &crate::id::AgentId, what: &str) -> crate::model::BoxFuture<'_, bool> {
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
