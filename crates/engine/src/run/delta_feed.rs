//! The texts of models, given to other processes while they arrive.
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
    /// The reader was too slow.
    Missed {
        /// Number of parts that it missed.
        count: u64,
    },
}

/// The watcher of a run, which passes on what it sees to other processes and to another watcher.
#[derive(Debug)]
pub struct DeltaFeed {
    parts: broadcast::Sender<Arc<DeltaLine>>,
    also: Option<Arc<dyn Watcher>>,
}

impl DeltaFeed {
    /// Makes a feed that nobody follows yet.
    #[must_use]
    pub fn new(also: Option<Arc<dyn Watcher>>) -> Arc<Self> {
        Arc::new(Self { parts: broadcast::Sender::new(MOST_WAITING), also })
    }

    /// Makes the line only if somebody follows: usually nobody does.
    fn send(&self, line: impl FnOnce() -> DeltaLine) {
        if self.parts.receiver_count() > 0 {
            // The last receiver may have gone away just now.
            let _ = self.parts.send(Arc::new(line()));
        }
    }

    /// Returns the parts that arrive from now on.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Arc<DeltaLine>> {
        self.parts.subscribe()
    }

    /// Writes the parts that arrive from now on to a stream, until its reader goes away.
    pub(super) async fn write_to(self: Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let mut parts = self.parts.subscribe();
        let (mut read, mut write) = stream.into_split();
        loop {
            let next = tokio::select! {
                next = parts.recv() => next,
                // The reader sends nothing more: the stream ends when it goes away.
                () = ended(&mut read) => return Ok(()),
            };
            let mut line = match next {
                Ok(line) => serde_json::to_string(&*line)?,
                Err(RecvError::Lagged(count)) => {
                    serde_json::to_string(&DeltaLine::Missed { count })?
                }
                Err(RecvError::Closed) => return Ok(()),
            };
            line.push('\n');
            write.write_all(line.as_bytes()).await?;
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
                self.send(|| DeltaLine::Text { agent: agent.clone(), text: text.to_owned() });
            }
            Delta::Tool(tool) => {
                self.send(|| DeltaLine::Tool { agent: agent.clone(), tool: tool.to_owned() });
            }
            Delta::Taken(_) | Delta::Spent(_) | Delta::Alive => {}
        }
        if let Some(also) = &self.also {
            also.arrived(agent, delta);
        }
    }

    fn ended(&self, agent: &AgentId) {
        self.send(|| DeltaLine::Ended { agent: agent.clone() });
        if let Some(also) = &self.also {
            also.ended(agent);
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
        let serving = tokio::spawn(feed.clone().write_to(there));
        while feed.parts.receiver_count() == 0 {
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
                DeltaLine::Tool { .. } => panic!("no call was made"),
            }
        }
        assert!(missed > 0);
        assert_eq!(texts + missed, parts);
        // A reader that goes away ends its part, although nothing more arrives.
        drop(stream);
        serving.await.unwrap().unwrap();
    }
}
