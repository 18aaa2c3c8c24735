//! What a cut took from a run: the pieces of the journal, the agents' files that reach beyond its end, and
//! the calls that they tell of.
//!
//! Owns the names of the pieces. `torn-cut-SEQ-CRC-TIME` holds the bytes of the journal from record SEQ on, which
//! follow a line with the checksum CRC; `lost-SEQ-TIME` is a folder with copies of transcripts and logs.
//! Everything in them is evidence and nothing more: what cannot be read is passed over.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;

use crate::disk;
use crate::event::Event;
use crate::id::{AgentId, CallKey, RunId};
use crate::journal::JournalError;
use crate::journal::acknowledged::{STARTED, Started};
use crate::journal::file::RunDir;
use crate::journal::line::{self, Position};
use crate::message::{Block, Json, Message, Role, ToolCall};
use crate::store;
use crate::turn::{ResultSource, ToolFinished, ToolIntended, ToolStatus};
use crate::turn_machine::interrupted::OUTCOME_UNKNOWN;
use crate::turn_machine::lost::{LostCall, LostCalls};

const PREFIX: &str = "torn-cut-";
const AGENTS: &str = "lost-";

/// Returns the name of the file with the bytes of a journal from `end` on.
#[must_use]
pub fn name(end: Position, time: &str) -> String {
    format!("{PREFIX}{}-{:08x}-{time}", end.seq, end.crc)
}

/// Copies the transcripts and logs that reach behind `end` to a folder of their own, so that nothing that
/// is written from now on takes their place. Returns the folder, if there is one. It is durable then.
///
/// # Errors
/// Returns an error if a file cannot be read or copied.
pub fn keep_agents(dir: &RunDir, end: Position, time: &str) -> io::Result<Option<PathBuf>> {
    let mut beyond = Vec::new();
    let started = dir.path().join(STARTED);
    for entry in fs::read_dir(dir.agents())? {
        let path = entry?.path();
        let is_transcript = path.extension().is_some_and(|extension| extension == "jsonl");
        // A command has no messages: its log tells that it began.
        if is_transcript && (last_seq(&path)? >= end.seq || fs::metadata(&path)?.len() == 0) {
            beyond.push(path);
        }
    }
    if beyond.is_empty() && fs::metadata(&started).is_ok_and(|started| started.len() == 0) {
        return Ok(None);
    }
    let folder = dir.path().join(format!("{AGENTS}{}-{time}", end.seq));
    DirBuilder::new().mode(0o700).create(&folder)?;
    for transcript in beyond {
        for path in [transcript.with_extension("log"), transcript] {
            let (Some(name), true) = (path.file_name(), path.exists()) else { continue };
            copy(&path, &folder.join(name))?;
        }
    }
    if started.exists() {
        copy(&started, &folder.join(STARTED))?;
        disk::sync(&File::open(&folder)?)?;
        // Its calls are evidence only for the records that are lost now.
        disk::open_to_write(&started, OFlags::empty())?.set_len(0)?;
    }
    disk::sync(&File::open(&folder)?)?;
    Ok(Some(folder))
}

/// Makes a durable copy of a file.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut copy = disk::make_anew(to)?;
    io::copy(&mut disk::open(from)?, &mut copy)?;
    disk::sync(&copy)
}

#[derive(Deserialize)]
struct Line {
    seq: u64,
    #[serde(default)]
    message: Option<Json>,
}

/// Returns the largest number in a transcript; 0 if it has no line that can be read.
fn last_seq(transcript: &Path) -> io::Result<u64> {
    let mut last = 0;
    each_line(transcript, |text| {
        if let Ok(line) = serde_json::from_slice::<Line>(text) {
            last = last.max(line.seq);
        }
    })?;
    Ok(last)
}

fn each_line(path: &Path, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut input, mut text) = (BufReader::new(disk::open(path)?), Vec::new());
    while disk::read_line(&mut input, &mut text)? > 0 {
        each(&text);
        text.clear();
    }
    Ok(())
}

/// Returns the calls that the pieces of a run tell of. Blocks.
///
/// # Errors
/// Returns an error if a piece cannot be read.
pub fn lost_calls(dir: &RunDir, run: RunId) -> Result<LostCalls, JournalError> {
    let read = || -> io::Result<LostCalls> {
        let mut lost = LostCalls::default();
        let mut pieces = Vec::new();
        for entry in fs::read_dir(dir.path())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let of_agents = name.strip_prefix(AGENTS).map(|rest| (true, rest.to_owned()));
            let of_journal = || name.strip_prefix(PREFIX).map(|rest| (false, rest.to_owned()));
            pieces.extend(of_agents.or_else(of_journal).map(|(agents, rest)| (agents, rest, path)));
        }
        // Those of the journal first: they tell more.
        pieces.sort();
        for (is_of_agents, name, path) in pieces {
            let mut parts = name.splitn(3, '-');
            let Some(seq) = parts.next().and_then(|seq| seq.parse().ok()) else { continue };
            match is_of_agents {
                true => read_agents(&path, run, seq, &mut lost)?,
                false => {
                    let crc = parts.next().and_then(|crc| u32::from_str_radix(crc, 16).ok());
                    read_journal(dir, run, &path, (seq, crc), &mut lost)?;
                }
            }
        }
        Ok(lost)
    };
    read().map_err(|error| JournalError::cannot("read", dir.path(), &error))
}

/// Takes in a piece of a journal.
fn read_journal(
    dir: &RunDir,
    run: RunId,
    piece: &Path,
    (seq, crc): (u64, Option<u32>),
    lost: &mut LostCalls,
) -> io::Result<()> {
    let (mut before, mut is_damaged) = (crc, false);
    let mut found = LostCalls::default();
    each_line(piece, |text| {
        let sound = before.and_then(|crc| line::decode(text, crc).ok());
        before = line::recorded_crc(text);
        is_damaged |= sound.is_none();
        let record = sound.and_then(|line| line.record().ok().flatten());
        let Some((agent, event)) = record.and_then(|r| Some((r.agent?, r.event))) else { return };
        match event {
            Event::ModelResponded(responded) => {
                add_reply(&mut found, run, &agent, responded.turn, &responded.message);
            }
            Event::ToolIntended(ToolIntended { key, turn, name, input, .. }) => {
                let input = input.as_str().to_owned();
                found.add(&agent, turn, LostCall { key, name, input, finished: None });
            }
            Event::ToolStarted(started) => found.add_beginning(started.key),
            Event::ToolFinished(finished) => {
                found.add_beginning(finished.key.clone());
                let stored = finished.stored.as_ref();
                let is_whole =
                    stored.is_none_or(|stored| store::check(&dir.results(), &stored.hash).is_ok());
                let is_known = finished.status != ToolStatus::Unknown && is_whole;
                let (key, name) = (finished.key.clone(), finished.name.clone());
                let (turn, input) = (finished.turn, String::new());
                let finished = is_known.then_some(finished);
                found.add(&agent, turn, LostCall { key, name, input, finished });
            }
            _ => {}
        }
    })?;
    if is_damaged {
        found.add_gap(seq);
    }
    lost.extend(found);
    Ok(())
}

/// Adds the calls of a reply, with the keys that they have.
fn add_reply(lost: &mut LostCalls, run: RunId, agent: &AgentId, turn: u32, message: &Json) {
    let Ok(message) = Message::read(message.as_str()) else { return };
    for (index, call) in (0..).zip(message.tool_calls()) {
        let (key, name) = (key_of(run, agent, turn, index, call), call.name.clone());
        let input = call.input.as_str().to_owned();
        lost.add(agent, turn, LostCall { key, name, input, finished: None });
    }
}

fn key_of(run: RunId, agent: &AgentId, turn: u32, index: u32, call: &ToolCall) -> CallKey {
    CallKey::derive(run, agent, turn, index, &call.name, call.input.as_str())
}

/// Takes in a folder with the files of agents that reach behind record `seq`.
fn read_agents(folder: &Path, run: RunId, seq: u64, lost: &mut LostCalls) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match path.extension().and_then(|extension| extension.to_str()) {
            None if stem == STARTED => read_started(&path, lost)?,
            Some("log") => read_log(&path, lost)?,
            Some("jsonl") => {
                let agent = AgentId::from_text(&stem.replace('.', "/"));
                read_transcript(&path, run, seq, &agent, lost)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes in the calls that began.
fn read_started(file: &Path, lost: &mut LostCalls) -> io::Result<()> {
    each_line(file, |text| {
        let Ok(Started { agent, turn, key, name }) = serde_json::from_slice(text) else { return };
        lost.add_beginning(key.clone());
        if turn > 0 {
            lost.add(&agent, turn, LostCall { key, name, input: String::new(), finished: None });
        }
    })
}

/// Takes in the lines of a log that say that a call began: `TIME call KEY started`.
fn read_log(log: &Path, lost: &mut LostCalls) -> io::Result<()> {
    each_line(log, |text| {
        let text = String::from_utf8_lossy(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        if let [_, "call", key, "started"] = words.as_slice() {
            lost.add_beginning(CallKey::from_text(key));
        }
    })
}

/// Takes in the replies and results of a transcript behind record `seq`. Each reply is that of a turn.
fn read_transcript(
    transcript: &Path,
    run: RunId,
    seq: u64,
    agent: &AgentId,
    lost: &mut LostCalls,
) -> io::Result<()> {
    let mut turn = 0;
    let mut asked: HashMap<String, (u32, CallKey, ToolCall)> = HashMap::new();
    each_line(transcript, |text| {
        let Ok(Line { seq: at, message: Some(message) }) = serde_json::from_slice(text) else {
            return;
        };
        let Ok(read) = Message::read(message.as_str()) else { return };
        if read.role == Role::Assistant {
            turn += 1;
            for (index, call) in (0..).zip(read.tool_calls()) {
                let key = key_of(run, agent, turn, index, call);
                asked.insert(call.id.clone(), (index, key, call.clone()));
            }
            if at >= seq {
                add_reply(lost, run, agent, turn, &message);
            }
            return;
        }
        for result in read.tool_results().filter(|_| at >= seq) {
            let Some((index, key, call)) = asked.get(&result.tool_use_id).cloned() else {
                continue;
            };
            let finished = ToolFinished {
                source: ResultSource::Spool,
                ..ToolFinished::new(
                    key.clone(),
                    turn,
                    index,
                    call.name.clone(),
                    if result.is_error { ToolStatus::Error } else { ToolStatus::Ok },
                    Json::encode(&Block::ToolResult(result.clone())),
                )
            };
            let is_known = !result.text().starts_with(OUTCOME_UNKNOWN);
            let (input, finished) = (call.input.as_str().to_owned(), is_known.then_some(finished));
            lost.add_beginning(key.clone());
            lost.add(agent, turn, LostCall { key, name: call.name, input, finished });
        }
    })
}
