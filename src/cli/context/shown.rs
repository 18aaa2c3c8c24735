//! Writes views and edits as JSON.

use std::io;

use serde::Serialize;

use crate::cli::complain;
use crate::cli::stream::JsonWriter;
use crate::context::ContextEdited;
use crate::context::view::View;
use crate::exit::Exit;
use crate::message::{Block, Json};

/// Buffered stdout, for data that is written piece by piece.
pub(super) struct Out(JsonWriter);

impl Out {
    pub(super) fn new() -> Self {
        Self(JsonWriter::new())
    }

    /// Writes the parts in order. Returns `Err(Exit::Done)` if the reader has gone away: the
    /// program then ends as a success.
    pub(super) fn write(&mut self, parts: &[&str]) -> Result<(), Exit> {
        parts.iter().try_for_each(|part| self.0.write(part)).map_err(|e| ended(&e))
    }

    /// Writes a view's messages, `[` and `]` included.
    pub(super) fn messages(&mut self, view: &View) -> Result<(), Exit> {
        self.write(&["["])?;
        for (index, slot) in view.slots().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            self.write(&[comma, slot.entry.json.as_str()])?;
        }
        self.write(&["]"])
    }

    pub(super) fn flush(&mut self) -> Result<(), Exit> {
        self.0.flush().map_err(|error| ended(&error))
    }
}

fn ended(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Exit::Done;
    }
    complain(&format!("error: stdout: {error}"));
    Exit::Disk
}

/// Encodes the edits as a JSON list, each with the ranges of messages that it covers.
pub(super) fn edits(edits: &[ContextEdited]) -> Json {
    #[derive(Serialize)]
    struct Shown<'a> {
        layer: &'a str,
        before_tokens: u64,
        after_tokens: u64,
        covers: Vec<(u64, u64)>,
    }
    let shown = edits.iter().map(|edited| Shown {
        layer: &edited.layer,
        before_tokens: edited.before_tokens,
        after_tokens: edited.after_tokens,
        covers: edited.edit.covers(),
    });
    Json::encode(&shown.collect::<Vec<_>>())
}

/// A system prompt as it was recorded, and as text.
#[derive(Debug)]
pub(super) struct System {
    recorded: Option<Json>,
    text: String,
}

impl System {
    pub(super) fn new(recorded: Option<&Json>) -> Self {
        let blocks = recorded.map(|json| json.decode::<Vec<Block>>());
        let text = match blocks {
            None => String::new(),
            Some(Ok(blocks)) => {
                let texts = blocks.into_iter().filter_map(|block| match block {
                    Block::Text(text) => Some(text),
                    _ => None,
                });
                texts.collect::<Vec<_>>().join("\n")
            }
            Some(Err(_)) => recorded.and_then(|json| json.decode().ok()).unwrap_or_default(),
        };
        Self { recorded: recorded.cloned(), text }
    }

    /// Returns the prompt as text, with what the view adds to it.
    pub(super) fn text(&self, view: &View) -> String {
        format!("{}{}", self.text, view.system().unwrap_or_default())
    }

    /// Returns the prompt as JSON, in the form in which it was recorded, with what the view adds to
    /// it.
    pub(super) fn json(&self, view: &View) -> Json {
        match (&self.recorded, view.system()) {
            (Some(recorded), None) => recorded.clone(),
            (Some(recorded), Some(added)) if recorded.as_str().starts_with('[') => {
                let mut blocks = recorded.decode::<Vec<Block>>().unwrap_or_default();
                blocks.push(Block::Text(added.to_owned()));
                Json::encode(&blocks)
            }
            _ => Json::encode(&self.text(view)),
        }
    }

    /// Returns the estimated size of the recorded prompt in tokens, at four characters each.
    pub(super) fn tokens(&self) -> u64 {
        self.text.chars().count().div_ceil(4) as u64
    }
}
