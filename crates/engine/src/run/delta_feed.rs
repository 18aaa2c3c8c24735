//! The texts of models and the lines of commands, given to whoever follows while they arrive.
//!
//! Nothing here is recorded: a process that follows too slowly is told how many parts it missed,
//! and the run never waits for it.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::id::AgentId;
use crate::model::Delta;
use crate::person::Watcher;
use crate::tool::printing::Printed;

/// The most parts that wait for a slow process: some seconds of text of thirty agents.
const MOST_WAITING: usize = 4096;

/// One part of a reply, as a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DeltaLine {
    /// A piece of answer text.
    Text {
        /// The agent whose model writes it.
        agent: AgentId,
        /// The piece.
        text: String,
    },
    /// A tool call began.
    Tool {
        /// The agent.
        agent: AgentId,
        /// The tool.
        tool: String,
    },
    /// No more parts of the reply come.
    Ended {
        /// The agent.
        agent: AgentId,
    },
    /// A command printed lines.
    Printed {
        /// The agent whose call runs the command, or the one of the task that is a command.
        agent: AgentId,
        /// The lines.
        #[serde(flatten)]
        printed: Printed,
    },
    /// The reader was too slow.
    Missed {
        /// Number of parts that it missed.
        count: u64,
    },
}

/// The watcher of a run, which passes on what it sees to other processes and to another watcher.
#[derive(Debug)]
pub struct DeltaFeed {
    texts: broadcast::Sender<Arc<DeltaLine>>,
    /// Lines of commands go apart: those who follow them alone cost no text of a model anything.
    lines: broadcast::Sender<Arc<DeltaLine>>,
    also: Option<Arc<dyn Watcher>>,
}

impl DeltaFeed {
    /// Makes a feed that nobody follows yet.
    #[must_use]
    pub fn new(also: Option<Arc<dyn Watcher>>) -> Arc<Self> {
        let [texts, lines] = [(); 2].map(|()| broadcast::Sender::new(MOST_WAITING));
        Arc::new(Self { texts, lines, also })
    }

    /// Returns the parts that arrive from now on.
    pub(crate) fn follow(&self, which: Parts) -> Following {
        let texts = (which == Parts::All).then(|| self.texts.subscribe());
        let lines = (which != Parts::None).then(|| self.lines.subscribe());
        Following { texts, lines }
    }

    /// Writes the parts that arrive from now on to a stream, until its reader goes away.
    pub(super) async fn write_to(
        self: Arc<Self>,
        stream: UnixStream,
        which: Parts,
    ) -> io::Result<()> {
        let mut parts = self.follow(which);
        let (mut read, mut write) = stream.into_split();
        loop {
            let next = tokio::select! {
                next = parts.next() => next,
                // The reader sends nothing more: the stream ends when it goes away.
                () = ended(&mut read) => return Ok(()),
            };
            let Some(line) = next else { return Ok(()) };
            let mut line = serde_json::to_string(&*line)?;
            line.push('\n');
            write.write_all(line.as_bytes()).await?;
        }
    }
}

/// Sends a line if somebody follows, and makes it only then: usually nobody does.
fn send(to: &broadcast::Sender<Arc<DeltaLine>>, line: impl FnOnce() -> DeltaLine) {
    if to.receiver_count() > 0 {
        // The last receiver may have gone away just now.
        let _ = to.send(Arc::new(line()));
    }
}

/// What comes as updates besides records, from now on. None of it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parts {
    /// Nothing: nothing is sent for it.
    None,
    /// The lines that commands print while they run.
    Commands,
    /// These, and the texts of models.
    All,
}

/// The parts that arrive for one who follows.
#[derive(Debug)]
pub(crate) struct Following {
    texts: Option<broadcast::Receiver<Arc<DeltaLine>>>,
    lines: Option<broadcast::Receiver<Arc<DeltaLine>>>,
}

/// Returns the next part of a feed, if that is followed: else none comes.
async fn next_of(
    feed: &mut Option<broadcast::Receiver<Arc<DeltaLine>>>,
) -> Result<Arc<DeltaLine>, RecvError> {
    match feed {
        Some(feed) => feed.recv().await,
        None => std::future::pending().await,
    }
}

impl Following {
    /// Returns the next part, or how many were missed; `None` once no more can come. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Arc<DeltaLine>> {
        let next = tokio::select! {
            next = next_of(&mut self.texts) => next,
            next = next_of(&mut self.lines) => next,
        };
        match next {
            Ok(line) => Some(line),
            Err(RecvError::Lagged(count)) => Some(Arc::new(DeltaLine::Missed { count })),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Waits until the other end of a stream has gone away.
async fn ended(read: &mut tokio::net::unix::OwnedReadHalf) {
    use tokio::io::AsyncReadExt;
    let mut ignored = [0; 64];
    while read.read(&mut ignored).await.is_ok_and(|bytes| bytes > 0) {}
}

impl Watcher for DeltaFeed {
    fn arrived(&self, agent: &AgentId, delta: Delta<'_>) {
        match delta {
            Delta::Text(text) => {
                send(&self.texts, || DeltaLine::Text {
                    agent: agent.clone(),
                    text: text.to_owned(),
                });
            }
            Delta::Tool(tool) => {
                send(&self.texts, || DeltaLine::Tool {
                    agent: agent.clone(),
                    tool: tool.to_owned(),
                });
            }
            Delta::Taken(_) | Delta::Spent(_) | Delta::Alive => {}
        }
        if let Some(also) = &self.also {
            also.arrived(agent, delta);
        }
    }

    fn ended(&self, agent: &AgentId) {
        send(&self.texts, || DeltaLine::Ended { agent: agent.clone() });
        if let Some(also) = &self.also {
            also.ended(agent);
        }
    }

    fn watches_commands(&self) -> bool {
        let also = self.also.as_ref().is_some_and(|also| also.watches_commands());
        self.lines.receiver_count() > 0 || also
    }

    fn printed(&self, agent: &AgentId, printed: &Printed) {
        let line = || DeltaLine::Printed { agent: agent.clone(), printed: printed.clone() };
        send(&self.lines, line);
        if let Some(also) = &self.also {
            also.printed(agent, printed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;

    #[tokio::test]
    async fn a_slow_reader_is_told_what_it_missed_and_delays_nobody() {
        let feed = DeltaFeed::new(None);
        let agent = AgentId::from_text("a");
        // Nobody follows: nothing is kept.
        feed.arrived(&agent, Delta::Text("before"));
        let (here, there) = UnixStream::pair().unwrap();
        let serving = tokio::spawn(feed.clone().write_to(there, Parts::All));
        while feed.texts.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
        let mut stream = BufReader::new(here).lines();
        let parts = 3 * MOST_WAITING;
        for _ in 0..parts {
            feed.arrived(&agent, Delta::Text("x"));
        }
        feed.ended(&agent);
        let (mut texts, mut missed) = (0, 0);
        loop {
            match serde_json::from_str(&stream.next_line().await.unwrap().unwrap()).unwrap() {
                DeltaLine::Text { text, .. } => texts += text.len(),
                DeltaLine::Missed { count } => missed += usize::try_from(count).unwrap(),
                DeltaLine::Ended { .. } => break,
                DeltaLine::Tool { .. } | DeltaLine::Printed { .. } => panic!("no call was made"),
            }
        }
        assert!(missed > 0);
        assert_eq!(texts + missed, parts);
        // A reader that goes away ends its part, although nothing more arrives.
        drop(stream);
        serving.await.unwrap().unwrap();
    }
}
