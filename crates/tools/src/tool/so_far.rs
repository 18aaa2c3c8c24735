//! What a command has printed while it runs, in files of the spool: for those who look at it, and for those who find
//! its call without a result, because whoever ran it was killed.
//!
//! Nothing of it is synced, and what came in the last moments before a death is not in it.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::printing::Lines;
use super::spool::{SoFar, Spool};
use super::{Ending, ToolContext, ToolOutput};
use crate::id::CallKey;
use crate::output::Output;
use crate::store::{
    INLINE_CHARS_FAILED, LAST_LINES_BYTES, MAX_STORED_BYTES, MEMORY_BYTES, Scratch, Store,
    StoreWriter,
};

/// The pause between two writes to a file: a command that ends sooner leaves the disk alone.
pub const PAUSE: Duration = Duration::from_millis(50);

/// Returns the writer of a stream of a command. Others may read what was written, unless nobody is given its lines: a
/// hook is no call of anybody.
pub(super) fn writer(context: &ToolContext, stream: SoFar) -> StoreWriter {
    let writer = context.store.writer();
    match context.printing {
        Some(_) => writer.named(stream.name(&context.key)),
        None => writer,
    }
}

/// Keeps the last lines of a command in a file until it has `ended`; then the file is gone. A disk that refuses them
/// keeps none.
pub(super) async fn keep_last_lines(
    lines: &Lines,
    context: &ToolContext,
    ended: &CancellationToken,
) {
    let mut kept = None;
    loop {
        tokio::select! {
            biased;
            () = ended.cancelled() => return,
            () = lines.came() => {}
        }
        tokio::select! {
            biased;
            () = ended.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
        let (store, name) = (context.store.without_patience(), SoFar::LastLines.name(&context.key));
        let text = lines.so_far();
        let work = move || write(kept, &store, &name, text.as_bytes());
        // Waited for also when the command has ended: the file must be gone before the result is kept.
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(scratch)) => kept = Some(scratch),
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

fn write(kept: Option<Scratch>, store: &Store, name: &str, text: &[u8]) -> io::Result<Scratch> {
    let scratch = match kept {
        Some(scratch) => scratch,
        None => Scratch::named(store, name)?,
    };
    scratch.file.write_all_at(text, 0)?;
    scratch.file.set_len(text.len() as u64)?;
    Ok(scratch)
}

/// Returns what the command of a call had printed when whoever ran it was killed; `None` if nothing of it is left.
/// Blocks.
#[must_use]
pub fn left(store: &Store, key: &CallKey) -> Option<ToolOutput> {
    let read = |what| {
        stream(store, key, what).unwrap_or_else(|error| {
            tracing::warn!(%key, %error, "what a command had printed cannot be read");
            None
        })
    };
    let (stdout, stderr) = (read(SoFar::Stdout), read(SoFar::Stderr));
    if stdout.is_none() && stderr.is_none() {
        return None;
    }
    let Output { text, stored } = stdout.unwrap_or_default();
    let Output { text: errors, stored: errors_stored } = stderr.unwrap_or_default();
    let last_lines = last_lines(store, key).unwrap_or_default();
    let ending = Ending::Cancelled(None);
    Some(ToolOutput { stored, ending, errors, errors_stored, last_lines, ..ToolOutput::ok(text) })
}

fn stream(store: &Store, key: &CallKey, what: SoFar) -> io::Result<Option<Output>> {
    let Some(file) = Spool::of(store).so_far(key, what)? else { return Ok(None) };
    let mut from = file.take(MAX_STORED_BYTES);
    let (mut writer, mut bytes) = (store.writer(), vec![0; MEMORY_BYTES]);
    loop {
        match from.read(&mut bytes)? {
            0 => return writer.finish(INLINE_CHARS_FAILED).map(Some),
            length => writer = writer.write(&bytes[..length])?,
        }
    }
}

fn last_lines(store: &Store, key: &CallKey) -> Option<String> {
    let file = Spool::of(store).so_far(key, SoFar::LastLines).ok()??;
    let mut bytes = Vec::new();
    file.take(LAST_LINES_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
