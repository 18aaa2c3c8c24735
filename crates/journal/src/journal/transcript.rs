//! Turns the records of one agent into the lines of its transcript.
//!
//! Pure. Owns which records make a message and the form of its line. A transcript is complete and
//! never compacted; its messages have the same bytes as in the journal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, Record};
use crate::journal::stamp;
use crate::message::{Json, Message};
use crate::turn::{AgentSpawned, Program, ToolFinished, ToolIntended};

/// The state from which one agent's transcript continues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// True if the agent runs a command: it has a log, but no messages.
    is_command: bool,
    turn: u32,
    /// The calls of the turn by their place, each with its result once there is one.
    calls: BTreeMap<u32, Option<Json>>,
}

impl Transcript {
    /// Folds the agent's next record, and appends the line of the message that it completes, if
    /// any.
    pub fn fold(&mut self, record: &Record, out: &mut Vec<u8>) {
        if let Event::AgentSpawned(AgentSpawned { program, .. }) = &record.event {
            match program {
                Program::Model { prompt, .. } => {
                    let message = Json::encode(&Message::user(prompt.beginning()));
                    write_line(record, &[message.as_str()], out);
                }
                Program::Command(_) => self.is_command = true,
            }
        } else if let Event::TurnStarted(started) = &record.event {
            if let Some(message) = &started.message {
                write_line(record, &[message.as_str()], out);
            }
        } else if let Event::ModelResponded(responded) = &record.event {
            // A reply that was cut before its first whole block is not a message of the
            // conversation.
            if !responded.message.as_str().ends_with(r#""content":[]}"#) {
                write_line(record, &[responded.message.as_str()], out);
            }
        } else if let (Event::ToolIntended(intended), false) = (&record.event, self.is_command) {
            self.intend(intended);
        } else if let (Event::ToolFinished(finished), false) = (&record.event, self.is_command) {
            self.finish(finished);
            if self.calls.values().all(Option::is_some) {
                self.write_results(record, out);
            }
        }
    }

    fn intend(&mut self, intended: &ToolIntended) {
        self.enter(intended.turn);
        self.calls.entry(intended.index).or_default();
    }

    fn finish(&mut self, finished: &ToolFinished) {
        self.enter(finished.turn);
        self.calls.insert(finished.index, Some(finished.block.clone()));
    }

    /// Starts a new turn. Calls of an earlier turn that never finished are dropped: no message
    /// holds them.
    fn enter(&mut self, turn: u32) {
        if self.turn != turn {
            self.turn = turn;
            self.calls.clear();
        }
    }

    /// Writes the results of one turn as one user message, in the order of the calls.
    fn write_results(&mut self, record: &Record, out: &mut Vec<u8>) {
        let mut parts = vec![r#"{"role":"user","content":["#];
        for (place, block) in self.calls.values().flatten().enumerate() {
            if place > 0 {
                parts.push(",");
            }
            parts.push(block.as_str());
        }
        parts.push("]}");
        write_line(record, &parts, out);
        self.calls.clear();
    }
}

/// Appends the line `{"seq","ts","message"}`; the message is given in parts.
fn write_line(record: &Record, parts: &[&str], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{{\"seq\":{},\"ts\":\"", record.seq).as_bytes());
    stamp::write(record.ts_ms, out);
    out.extend_from_slice(b"\",\"message\":");
    let message = out.len();
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
    // Records of a journal in memory were never framed as lines, so they may hold newlines: see
    // `line::write_body`.
    out[message..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Draft;
    use crate::journal::samples::record;
    use crate::journal::samples::{REPLY, finished, intended, responded, spawned};
    use crate::turn::ToolStatus::Ok;

    fn lines(drafts: Vec<Draft>) -> String {
        let (mut transcript, mut out) = (Transcript::default(), Vec::new());
        for (seq, draft) in (1..).zip(drafts) {
            transcript.fold(&record(seq, draft), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    const TS: &str = "2026-11-18T02:04:05.123Z";

    #[test]
    fn a_transcript_is_exactly_this() {
        let made = lines(vec![
            spawned("Read \"a\"\nand b."),
            responded(1),
            intended(1, 0, "read_file", "{}"),
            intended(1, 1, "bash", "{}"),
            finished(1, 1, Ok, "one\ntwo"),
            finished(1, 0, Ok, "fn main"),
            responded(2),
        ]);
        let prompt = r#"{"role":"user","content":[{"type":"text","text":"Read \"a\"\nand b."}]}"#;
        let results = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t0","content":"fn main"},{"type":"tool_result","tool_use_id":"t1","content":"one\ntwo"}]}"#;
        let expected = [(1, prompt), (2, REPLY), (6, results), (7, REPLY)];
        let expected = expected.map(|(seq, message)| {
            format!("{{\"seq\":{seq},\"ts\":\"{TS}\",\"message\":{message}}}\n")
        });
        assert_eq!(made, expected.concat());
    }

    #[test]
    fn results_wait_for_each_other_and_do_not_leak_into_the_next_turn() {
        let half = vec![
            intended(1, 0, "read_file", "{}"),
            intended(1, 1, "bash", "{}"),
            finished(1, 0, Ok, "x"),
        ];
        assert_eq!(lines(half.clone()), "");
        let next = [intended(2, 0, "bash", "{}"), finished(2, 0, Ok, "y")];
        let made = lines(half.into_iter().chain(next).collect());
        assert_eq!(made.lines().count(), 1);
        assert!(made.contains("\"y\"") && !made.contains("\"x\""), "{made}");
    }
}
