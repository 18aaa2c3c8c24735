//! The step `recall`: finds the past messages and stored results that an agent asks to see again.
//!
//! It reads the agent's transcript first, because that is no longer than the conversation. The
//! transcript is a projection that may lag behind: if a message is missing from it, the journal is
//! read instead, which has them all. Files are read off the runtime's threads.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::step::{Past, StepContext};
use super::work::{self, Helper};
use crate::context::recall::{NotThere, Page, Query, Recall, Wanted};
use crate::disk;
use crate::event::SharedRecord;
use crate::journal::results;
use crate::journal::transcript::Transcript;
use crate::own_tool;
use crate::redaction::Secrets;
use crate::store::{self, StoreError, StoredResults};
use crate::tool::{ToolError, ToolOutput};

/// Bytes of a stored result that are read at once: 64 KiB.
const CHUNK: u64 = 64 * 1024;

/// Answers a call of `recall`.
///
/// # Errors
/// Returns an error if the arguments are wrong, or if what they name does not exist or cannot be
/// read.
pub(super) async fn recall(
    context: &StepContext,
    asked: &own_tool::Recall,
) -> Result<ToolOutput, ToolError> {
    let query = Query::of(asked).map_err(ToolError::Arguments)?;
    tokio::select! {
        () = context.cancel.cancelled() => Err(ToolError::Cancelled),
        answer = answer(context, query) => answer.map(ToolOutput::ok),
    }
}

async fn answer(context: &StepContext, query: Query) -> Result<String, ToolError> {
    let lost = match stored_result(context, &query).await? {
        Some(Ok(page)) => return page.finish().map_err(not_there),
        // The text looks like a hash, but it may also be the id of a call: look in the conversation
        // too.
        Some(Err(error)) => Some(error),
        None => None,
    };
    let recall = recall_of(context, query).await?;
    recall.finish().map_err(|error| match lost {
        Some(lost) => ToolError::Failed(format!("{lost}; {error}")),
        None => not_there(error),
    })
}

/// Searches the conversation for what the query names.
async fn recall_of(context: &StepContext, query: Query) -> Result<Recall, ToolError> {
    let (path, asked) = (context.services.transcript(&context.agent), query.clone());
    let past = context.past;
    let from_file = off_the_runtime(move || {
        let recall = disk::open(&path).and_then(|file| read(BufReader::new(file), asked, past));
        Ok(recall.ok().flatten())
    });
    if let Some(recall) = from_file.await? {
        return Ok(recall);
    }
    let records = context.services.journal.agent_records(&context.agent).await;
    let records = records.map_err(|error| ToolError::Failed(error.to_string()))?;
    let results_dir = context.services.store.results_dir().to_owned();
    let lost = |error: StoreError| ToolError::Failed(error.to_string());
    let from_journal = off_the_runtime(move || {
        let lines = transcript_of(&results_dir, &records).map_err(lost)?;
        let recall = read(lines.as_slice(), query, past).map_err(reading("the journal"))?;
        recall.ok_or_else(|| ToolError::Failed("the journal lacks a message".to_owned()))
    });
    from_journal.await
}

/// Makes the lines of the transcript again from the agent's records.
fn transcript_of(folder: &Path, records: &[SharedRecord]) -> Result<Vec<u8>, StoreError> {
    let (mut transcript, mut lines) = (Transcript::default(), Vec::new());
    for record in records {
        let record = results::whole(folder, record)?;
        transcript.fold(&record, &mut lines);
    }
    Ok(lines)
}

/// Reads the messages of a transcript that belong to the past. Returns `None` if not all of them
/// are there.
fn read(mut lines: impl BufRead, query: Query, past: Past) -> io::Result<Option<Recall>> {
    #[derive(Deserialize)]
    struct TranscriptLine<'a> {
        seq: u64,
        #[serde(borrow)]
        message: &'a RawValue,
    }
    let (mut recall, mut count) = (Recall::new(query), 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        disk::read_line(&mut lines, &mut bytes)?;
        let line = bytes.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
        let Some(line) = line.filter(|line: &TranscriptLine<'_>| line.seq < past.before) else {
            return Ok((count == past.messages).then_some(recall));
        };
        count += 1;
        if !recall.is_complete() && recall.take(line.message.get()).is_err() {
            return Ok(None);
        }
    }
}

/// Returns a page of the stored result with the query's hash, or why it cannot be read; `None` if
/// the query asks for something else.
async fn stored_result(
    context: &StepContext,
    query: &Query,
) -> Result<Option<Result<Page, StoreError>>, ToolError> {
    let Wanted::Result(hash) = &query.wanted else { return Ok(None) };
    if !store::is_hash(hash) {
        return Ok(None);
    }
    let (services, hash, offset) = (context.services.clone(), hash.clone(), query.offset);
    let page = off_the_runtime(move || {
        let result = services.store.results_dir().open(&hash);
        Ok(result.and_then(|result| stored_page(result, offset, &services.secrets)))
    });
    page.await.map(Some)
}

/// Makes one page of a stored result. An earlier version stored results without redaction, so the
/// text is redacted here, before it is cut into pages and a line at a time: a secret that is half
/// on one page and half on the next would not be recognised. The result is read to its end, because
/// only the whole can be compared with its hash.
fn stored_page(
    mut result: store::Checked,
    offset: usize,
    secrets: &Secrets,
) -> Result<Page, StoreError> {
    let (mut page, mut bytes) = (Page::at(offset), Vec::new());
    loop {
        let read = result.by_ref().take(CHUNK).read_to_end(&mut bytes);
        let is_end = read.map_err(|error| result.refused(&error))? == 0;
        let end = if is_end { bytes.len() } else { whole_end(&bytes) };
        let mut text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        secrets.redact(&mut text);
        page.push(&text);
        if is_end || page.is_full() {
            return result.finish().map(|()| page);
        }
        bytes.drain(..end);
    }
}

/// Returns the end of the last whole line; in text without a line end, the end of the last whole
/// character.
fn whole_end(bytes: &[u8]) -> usize {
    let line = bytes.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
    line.unwrap_or_else(|| {
        let torn = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
        bytes.len() - torn
    })
}

fn not_there(error: NotThere) -> ToolError {
    ToolError::Failed(error.to_string())
}

fn reading(what: &'static str) -> impl Fn(io::Error) -> ToolError {
    move |source| ToolError::Io { what: what.to_owned(), source }
}

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let crashed = |panic| Err(ToolError::Failed(format!("the tool crashed ({panic})")));
    work::blocking(Helper::Recall, work).await.unwrap_or_else(crashed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_result_comes_in_pages_that_are_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        let secrets = Secrets::new(["hunter22-and-more".to_owned()]);
        // Long lines, characters of two bytes across every cut, a byte that is no text, a secret.
        let mut bytes = "é".repeat(40_000).into_bytes();
        bytes.push(0xff);
        bytes.extend_from_slice(
            format!("\n{}\nhunter22-and-more\n", "xé".repeat(50_000)).as_bytes(),
        );
        let hash = blake3::hash(&bytes).to_hex();
        std::fs::write(dir.path().join(hash.as_str()), &bytes).unwrap();
        let open = || dir.path().open(&hash).unwrap();
        let mut whole = String::from_utf8_lossy(&bytes).into_owned();
        secrets.redact(&mut whole);
        let (mut joined, mut offset) = (String::new(), 0);
        while offset < whole.chars().count() {
            let page = stored_page(open(), offset, &secrets).unwrap().finish().unwrap();
            let (text, _) = page.rsplit_once("\n[characters ").unwrap();
            joined.push_str(text);
            offset += text.chars().count();
        }
        assert_eq!(joined, whole);
        let behind = stored_page(open(), offset, &secrets).unwrap().finish();
        assert_eq!(behind, Err(NotThere::Offset { offset, chars: offset }));
    }

    #[test]
    fn a_transcript_in_which_a_message_is_missing_is_no_source() {
        let query = Query { wanted: Wanted::Messages, from: 0, to: 1, offset: 0 };
        let line = |seq: u64| {
            let message = r#"{"role":"user","content":"x"}"#;
            format!("{{\"seq\":{seq},\"ts\":\"\",\"message\":{message}}}\n")
        };
        let [one, two, call] = [2, 5, 9].map(line);
        let past = Past { messages: 2, before: 9 };
        let is_whole = |text: &str| read(text.as_bytes(), query.clone(), past).unwrap().is_some();
        assert!(is_whole(&format!("{one}{two}")), "what makes the call may be on its way");
        assert!(is_whole(&format!("{one}{two}{call}")));
        assert!(is_whole(&format!("{one}{two}{}", &call[..20])));
        assert!(!is_whole(&one));
        assert!(!is_whole(&format!("{two}{call}")), "there are two lines, but not the right ones");
        assert!(!is_whole(&format!("{one}{}", &two[..20])));
        assert!(!is_whole(&format!("{one}{}", two.trim_end())), "it is being written");
    }
}
