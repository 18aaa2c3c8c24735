//! One record as one line of the journal: its format and its checksum chain.
//!
//! A line is `{"v","seq","bt","be","ep","ts","task","agent","type","data","crc"}`. The checksum is
//! crc32c over all bytes before `,"crc"`, seeded with the checksum of the line before, so a right
//! checksum also proves all earlier lines. Pure: it turns bytes into bytes and opens no file.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::event::{Draft, Event, Record};
use crate::id::{AgentId, Name};
use crate::journal::stamp;

/// The format version that is written. A line with a higher version is refused.
pub const FORMAT: u64 = 1;

/// Length in bytes of `,"crc":"xxxxxxxx"}` and the newline, which always end a line.
pub const TAIL: usize = 19;

const CRC_KEY: &[u8] = b",\"crc\":\"";

/// A place between two lines, with everything needed to read or write from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Number of the next record.
    pub seq: u64,
    /// Checksum of the line before.
    pub crc: u32,
    /// For a writer the epoch of the lines that it writes; for a reader the epoch of the line
    /// before.
    pub epoch: u64,
    /// Offset of the next line, in bytes.
    pub offset: u64,
}

impl Position {
    /// The beginning of a new journal.
    pub const START: Self = Self { seq: 1, crc: 0, epoch: 1, offset: 0 };
}

/// The fields that all lines of one batch share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of its first record.
    pub first: u64,
    /// Number of its last record.
    pub last: u64,
    /// The epoch that writes the batch.
    pub epoch: u64,
    /// Wall time in milliseconds since the Unix epoch.
    pub ts_ms: i64,
}

/// Appends the part of a line that does not depend on its place: task, agent, type and data.
///
/// JSON that is kept verbatim may hold a raw newline between two tokens, which would end the line.
/// Each such newline becomes a space, in the draft too, so that the record in memory equals the
/// record that a reader gets.
pub fn write_body(draft: &mut Draft, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"task\":");
    write_text(draft.task.as_ref().map(Name::as_str), out);
    out.extend_from_slice(b",\"agent\":");
    write_text(draft.agent.as_ref().map(AgentId::as_str), out);
    out.extend_from_slice(b",\"type\":\"");
    out.extend_from_slice(draft.event.kind().as_bytes());
    out.extend_from_slice(b"\",\"data\":");
    let data_at = out.len();
    draft.event.write_data(out);
    let data = &mut out[data_at..];
    if !data.contains(&b'\n') {
        return;
    }
    for byte in &mut *data {
        if *byte == b'\n' {
            *byte = b' ';
        }
    }
    let text = std::str::from_utf8(data).unwrap_or_default();
    if let Ok(Some(event)) = Event::decode(draft.event.kind(), text) {
        draft.event = event;
    }
}

fn write_text(text: Option<&str>, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &text).expect("a text always encodes into memory");
}

/// Writes the lines of one batch, one after the other.
#[derive(Debug)]
pub struct Framer {
    batch: Batch,
    seq: u64,
    crc: u32,
    stamp: Vec<u8>,
}

impl Framer {
    /// Starts a batch whose first line follows a line with the checksum `crc`.
    #[must_use]
    pub fn new(batch: Batch, crc: u32) -> Self {
        let mut stamp = Vec::with_capacity(stamp::LEN);
        stamp::write(batch.ts_ms, &mut stamp);
        Self { batch, seq: batch.first, crc, stamp }
    }

    /// Appends the next line around a body made by [`write_body`]. Returns the number of its
    /// record.
    pub fn write(&mut self, body: &[u8], out: &mut Vec<u8>) -> u64 {
        let seq = self.seq;
        let start = out.len();
        out.extend_from_slice(b"{\"v\":1,\"seq\":");
        write_number(seq, out);
        out.extend_from_slice(b",\"bt\":");
        write_number(self.batch.first, out);
        let end: &[u8] = if seq == self.batch.last { b"true" } else { b"false" };
        out.extend_from_slice(b",\"be\":");
        out.extend_from_slice(end);
        out.extend_from_slice(b",\"ep\":");
        write_number(self.batch.epoch, out);
        out.extend_from_slice(b",\"ts\":\"");
        out.extend_from_slice(&self.stamp);
        out.push(b'"');
        out.extend_from_slice(body);
        self.crc = crc32c::crc32c_append(self.crc, &out[start..]);
        write_tail(self.crc, out);
        self.seq += 1;
        seq
    }

    /// Returns the checksum of the last line written.
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.crc
    }
}

fn write_number(mut number: u64, out: &mut Vec<u8>) {
    // 20 digits hold every 64-bit number.
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A fault that makes a line unreadable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The line is cut off: it has no newline.
    #[error("it has no end")]
    Unended,
    /// The line does not end with a checksum.
    #[error("it carries no checksum")]
    Unsealed,
    /// The checksum does not match: the bytes were changed, or followed another line when written.
    #[error("its checksum does not match")]
    Checksum,
    /// The checksum is right, but the line is not a record that this program knows.
    #[error("{0}")]
    Shape(String),
    /// The checksum is right, but a later format wrote the line.
    #[error("it has format {0}")]
    Newer(u64),
}

impl Fault {
    /// Returns true if the checksum is right: the line was written whole, so an interrupted write
    /// cannot have left it.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Unended | Self::Unsealed | Self::Checksum => false,
            Self::Shape(_) | Self::Newer(_) => true,
        }
    }
}

/// A line that was read: its fields are parsed, its payload is still text.
#[derive(Debug)]
pub struct Line<'a> {
    /// Number of the record.
    pub seq: u64,
    /// Number of the first record of its batch.
    pub batch: u64,
    /// True if it is the last line of its batch.
    pub ends_batch: bool,
    /// The epoch that wrote the line.
    pub epoch: u64,
    /// Wall time in milliseconds since the Unix epoch.
    pub ts_ms: i64,
    /// The task, if any.
    pub task: Option<Cow<'a, str>>,
    /// The agent, if any.
    pub agent: Option<Cow<'a, str>>,
    /// The name of the event's type.
    pub kind: Cow<'a, str>,
    /// The payload, as JSON text.
    pub data: &'a str,
    /// True if a program that does not know the type must not continue the run.
    pub critical: bool,
    /// The checksum of the line, which seeds the checksum of the next one.
    pub crc: u32,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    v: u64,
    seq: u64,
    bt: u64,
    be: bool,
    ep: u64,
    #[serde(borrow)]
    ts: Cow<'a, str>,
    #[serde(default)]
    task: Option<Cow<'a, str>>,
    #[serde(default)]
    agent: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(default)]
    crit: bool,
}

/// Reads a line, its newline included. `crc` is the checksum of the line before.
///
/// # Errors
/// Returns an error if the line is cut, altered, not a record, or of a later format.
pub fn decode(line: &[u8], crc: u32) -> Result<Line<'_>, Fault> {
    let (front, recorded) = split_tail(line)?;
    let crc = crc32c::crc32c_append(crc, front);
    if recorded != crc {
        return Err(Fault::Checksum);
    }
    if let Some(line) = as_written(line, crc) {
        return Ok(line);
    }
    // A later format may have another shape, so look at the version before calling the line
    // unreadable.
    let shape = |reason: String| match newer(line) {
        Some(format) => Fault::Newer(format),
        None => Fault::Shape(reason),
    };
    let envelope: Envelope<'_> =
        serde_json::from_slice(line).map_err(|error| shape(error.to_string()))?;
    of_envelope(envelope, crc)
}

fn of_envelope(envelope: Envelope<'_>, crc: u32) -> Result<Line<'_>, Fault> {
    if envelope.v > FORMAT {
        return Err(Fault::Newer(envelope.v));
    }
    if envelope.v == 0 {
        return Err(Fault::Shape("it has format 0, which no program wrote".to_owned()));
    }
    let Some(ts_ms) = stamp::parse(&envelope.ts) else {
        return Err(Fault::Shape(format!("`{}` is not a time", envelope.ts)));
    };
    Ok(Line {
        seq: envelope.seq,
        batch: envelope.bt,
        ends_batch: envelope.be,
        epoch: envelope.ep,
        ts_ms,
        task: envelope.task,
        agent: envelope.agent,
        kind: envelope.kind,
        data: envelope.data.get(),
        critical: envelope.crit,
        crc,
    })
}

/// Reads a line in the very form in which [`Framer`] writes it, ten times as quickly as any JSON. Returns `None`
/// for every other line, sound or not.
fn as_written(line: &[u8], crc: u32) -> Option<Line<'_>> {
    let front = line.get(..line.len().checked_sub(TAIL)?)?;
    let mut rest = Rest(std::str::from_utf8(front).ok()?);
    rest.skip("{\"v\":1,\"seq\":")?;
    let seq = rest.number()?;
    rest.skip(",\"bt\":")?;
    let batch = rest.number()?;
    rest.skip(",\"be\":")?;
    let ends_batch = rest.skip("true").is_some();
    if !ends_batch {
        rest.skip("false")?;
    }
    rest.skip(",\"ep\":")?;
    let epoch = rest.number()?;
    rest.skip(",\"ts\":")?;
    let ts_ms = stamp::parse(rest.text()?)?;
    rest.skip(",\"task\":")?;
    let task = rest.text_or_null()?;
    rest.skip(",\"agent\":")?;
    let agent = rest.text_or_null()?;
    rest.skip(",\"type\":")?;
    let kind = rest.text()?;
    rest.skip(",\"data\":")?;
    // What follows must be one document and nothing else: another field may stand behind it.
    let data = serde_json::from_str::<&RawValue>(rest.0).ok()?.get();
    (data.len() == rest.0.len()).then_some(Line {
        seq,
        batch,
        ends_batch,
        epoch,
        ts_ms,
        task: task.map(Cow::Borrowed),
        agent: agent.map(Cow::Borrowed),
        kind: Cow::Borrowed(kind),
        data,
        critical: false,
        crc,
    })
}

/// What is left of a line.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.0.split_at(digits);
        // JSON has no other number with a zero in front.
        let number = number.parse().ok().filter(|_| digits == 1 || !number.starts_with('0'))?;
        self.0 = rest;
        Some(number)
    }

    /// Takes a text without escapes.
    fn text(&mut self) -> Option<&'a str> {
        let inner = self.0.strip_prefix('"')?;
        let end = inner.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20))?;
        let rest = inner[end..].strip_prefix('"')?;
        self.0 = rest;
        Some(&inner[..end])
    }

    fn text_or_null(&mut self) -> Option<Option<&'a str>> {
        match self.skip("null") {
            Some(()) => Some(None),
            None => self.text().map(Some),
        }
    }
}

/// Splits a line into the bytes that its checksum covers and the checksum.
fn split_tail(line: &[u8]) -> Result<(&[u8], u32), Fault> {
    if line.last() != Some(&b'\n') {
        return Err(Fault::Unended);
    }
    let (front, tail) = line.split_at(line.len().saturating_sub(TAIL));
    let hex = tail.strip_prefix(CRC_KEY).and_then(|rest| rest.strip_suffix(b"\"}\n"));
    let Some(hex) = hex else { return Err(Fault::Unsealed) };
    let crc = hex.iter().try_fold(0u32, |sum, byte| match byte {
        b'0'..=b'9' => Some(sum << 4 | u32::from(byte - b'0')),
        b'a'..=b'f' => Some(sum << 4 | u32::from(byte - b'a' + 10)),
        _ => None,
    });
    crc.map(|crc| (front, crc)).ok_or(Fault::Checksum)
}

/// The most values of a payload. What this program writes has thousands at most: long texts are one value, and
/// results and outputs beyond some kilobytes are stored. As a tree a value takes up to a hundred bytes, in the
/// line only two.
const MOST_VALUES: usize = 1_000_000;

/// Returns about the number of values of a JSON text: what separates them, outside of texts.
fn values(json: &str) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Returns the checksum in a line, or in its last [`TAIL`] bytes.
#[must_use]
pub fn recorded_crc(line: &[u8]) -> Option<u32> {
    split_tail(line).ok().map(|(_, crc)| crc)
}

/// Appends a copy of a line with the checksum that it has after a line with the checksum `crc`.
/// Returns the new checksum, or `None` if the line carries none.
pub fn chain(line: &[u8], crc: u32, out: &mut Vec<u8>) -> Option<u32> {
    let (front, _) = split_tail(line).ok()?;
    let crc = crc32c::crc32c_append(crc, front);
    out.extend_from_slice(front);
    write_tail(crc, out);
    Some(crc)
}

fn write_tail(crc: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(CRC_KEY);
    for shift in (0..8).rev() {
        out.push(b"0123456789abcdef"[(crc >> (shift * 4) & 15) as usize]);
    }
    out.extend_from_slice(b"\"}\n");
}

/// Returns the format version of a line if it is higher than [`FORMAT`].
#[must_use]
pub fn newer(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Version {
        v: u64,
    }
    let version: Version = serde_json::from_slice(line).ok()?;
    (version.v > FORMAT).then_some(version.v)
}

/// Returns the number of the first record of the line's batch, its `bt`, if the line has the shape
/// of a record. Does not verify the checksum: the torn-end rule needs the number of the lines after
/// a bad one.
#[must_use]
pub fn batch_of(line: &[u8]) -> Option<u64> {
    split_tail(line).ok()?;
    let envelope: Envelope<'_> = serde_json::from_slice(line).ok()?;
    Some(envelope.bt)
}

impl Line<'_> {
    /// Decodes the record. Returns `None` if this program does not know its type.
    ///
    /// # Errors
    /// Returns an error if the payload does not fit the type, or if the task is not a valid name.
    pub fn record(&self) -> Result<Option<Record>, Fault> {
        let bad = |error: String| Fault::Shape(format!("{}: {error}", self.kind));
        // Only a long line can hold so many; the others are not looked through.
        if self.data.len() > MOST_VALUES && values(self.data) > MOST_VALUES {
            return Err(bad(format!("it has more than {MOST_VALUES} values")));
        }
        let event = Event::decode(&self.kind, self.data).map_err(|error| bad(error.to_string()))?;
        let task = self.task.as_deref().map(Name::of_record).transpose();
        let task = task.map_err(|error| bad(error.to_string()))?;
        let agent = self.agent.as_deref().map(AgentId::from_text);
        let (seq, epoch, ts_ms) = (self.seq, self.epoch, self.ts_ms);
        Ok(event.map(|event| Record { seq, epoch, ts_ms, task, agent, event }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Event, PauseCause, RunPaused};
    use crate::journal::samples::turn;
    use crate::message::{Json, StopReason, Usage, UsageSource};
    use crate::turn::ModelResponded;

    fn frame(draft: &mut Draft, batch: Batch, crc: u32) -> (Vec<u8>, u32) {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        write_body(draft, &mut body);
        let mut framer = Framer::new(batch, crc);
        framer.write(&body, &mut out);
        (out, framer.crc())
    }

    const BATCH: Batch = Batch { first: 411, last: 411, epoch: 3, ts_ms: 1_794_967_445_123 };

    #[test]
    fn a_line_is_exactly_this() {
        let (line, crc) = frame(&mut turn("work/helper-2", 7), BATCH, 0);
        let front = r#"{"v":1,"seq":411,"bt":411,"be":true,"ep":3,"ts":"2026-11-18T02:04:05.123Z","task":"work","agent":"work/helper-2","type":"turn.started","data":{"turn":7}"#;
        assert_eq!(crc, crc32c::crc32c(front.as_bytes()));
        let whole = format!("{front},\"crc\":\"{crc:08x}\"}}\n");
        assert_eq!(String::from_utf8(line).unwrap(), whole);
        assert_eq!(whole.len() - front.len(), TAIL);
    }

    #[test]
    fn a_run_event_has_null_for_task_and_agent() {
        let mut draft = Draft::run(RunPaused { reason: "x".to_owned(), cause: Default::default() });
        let (line, _) = frame(&mut draft, BATCH, 9);
        let text = String::from_utf8(line.clone()).unwrap();
        assert!(text.contains(r#","task":null,"agent":null,"type":"run.paused","#), "{text}");
        let read = decode(&line, 9).unwrap().record().unwrap().unwrap();
        assert_eq!((read.task, read.agent, read.event), (None, None, draft.event));
    }

    #[test]
    fn raw_newlines_in_verbatim_json_become_spaces() {
        let message = Json::parse("{\n\"role\":\"assistant\", \"content\":[\n]}".to_owned());
        let responded = ModelResponded {
            unsettled: None,
            turn: 1,
            model: Name::new("m").unwrap(),
            message: message.unwrap(),
            stop: StopReason::EndTurn,
            usage: Usage::default(),
            usage_source: UsageSource::Reported,
            cost_usd: None,
            context: crate::context::provider::server::ContextReport::default(),
            repeats: None,
        };
        let mut draft = Draft::run(responded);
        let (line, _) = frame(&mut draft, BATCH, 0);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let read = decode(&line, 0).unwrap().record().unwrap().unwrap();
        assert_eq!(read.event, draft.event);
    }

    /// Gives what a line has, or why it is none.
    fn facts(read: Result<Line<'_>, Fault>) -> String {
        format!("{read:?}").replace("Borrowed(", "(").replace("Owned(", "(")
    }

    fn sealed(front: &str) -> Vec<u8> {
        format!("{front},\"crc\":\"{:08x}\"}}\n", crc32c::crc32c(front.as_bytes())).into_bytes()
    }

    #[test]
    fn a_line_is_read_alike_in_both_ways() {
        let (usual, crc) = frame(&mut turn("work/helper-2", 7), BATCH, 0);
        assert!(as_written(&usual, crc).is_some());
        let front = String::from_utf8(usual[..usual.len() - TAIL].to_vec()).unwrap();
        let alone = |from: &str, to: &str| front.replace(from, to);
        for front in [
            front.clone(),
            alone("\"task\":\"work\"", "\"task\":null"),
            alone("\"be\":true", "\"be\":false"),
            alone("\"be\":true", "\"be\":tru"),
            alone("\"seq\":411", "\"seq\":0411"),
            alone("\"seq\":411", "\"seq\":0"),
            alone("\"seq\":411", "\"seq\":18446744073709551616"),
            alone("\"seq\":411", "\"seq\":-1"),
            alone("\"seq\":411", "\"seq\": 411"),
            alone("\"v\":1", "\"v\":2"),
            alone("helper-2", "h\\u0065lper-2"),
            alone("helper-2", "hélper-2"),
            alone("helper-2", "helper\t2"),
            alone("2026-11-18", "2026-02-30"),
            alone("{\"turn\":7}", "{\"turn\":7},\"crit\":true"),
            alone("{\"turn\":7}", "{\"turn\":7},\"data\":{}"),
            alone("{\"turn\":7}", "{\"turn\":7} "),
            alone("{\"turn\":7}", "{\"turn\":7"),
            alone("{\"turn\":7}", "{\"turn\":\"\u{7f}é\"}"),
            alone("{\"turn\":7}", "\"}\""),
            alone("{\"turn\":7}", ""),
        ] {
            let line = sealed(&front);
            let crc = crc32c::crc32c(front.as_bytes());
            let plain = serde_json::from_slice::<Envelope<'_>>(&line);
            let plain = plain.map_err(|error| Fault::Shape(error.to_string()));
            let plain = plain.and_then(|envelope| of_envelope(envelope, crc));
            assert_eq!(facts(decode(&line, 0)), facts(plain), "{front}");
        }
    }

    #[test]
    fn a_later_format_is_named() {
        let mut line = br#"{"v":2,"what":1"#.to_vec();
        let crc = crc32c::crc32c(&line);
        line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
        assert_eq!(decode(&line, 0).unwrap_err(), Fault::Newer(2));
    }

    #[test]
    fn an_unknown_type_is_no_record_but_keeps_the_chain() {
        let mut line = br#"{"v":1,"seq":1,"bt":1,"be":true,"ep":1,"ts":"2026-11-18T02:14:05.123Z","type":"later.on","data":{},"crit":true"#.to_vec();
        let crc = crc32c::crc32c(&line);
        line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
        let read = decode(&line, 0).unwrap();
        assert_eq!((read.record().unwrap(), read.crc, read.critical), (None, crc, true));
    }

    #[test]
    fn an_unknown_key_is_passed_over_and_an_unknown_value_is_refused() {
        let read = |data: &str| {
            let head = r#"{"v":1,"seq":1,"bt":1,"be":true,"ep":1,"ts":"2026-11-18T02:14:05.123Z","type":"run.paused","data":"#;
            let mut line = format!("{head}{data}").into_bytes();
            let crc = crc32c::crc32c(&line);
            line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
            decode(&line, 0).unwrap().record()
        };
        let known = read(r#"{"reason":"r","cause":"disk_full","later":{"on":1}}"#);
        let paused = RunPaused { reason: "r".to_owned(), cause: PauseCause::DiskFull };
        assert_eq!(known.unwrap().unwrap().event, Event::RunPaused(paused));
        let fault = read(r#"{"reason":"r","cause":"weather"}"#).unwrap_err();
        assert!(fault.is_sound() && fault.to_string().contains("weather"), "{fault}");
    }

    proptest! {
        #[test]
        fn what_is_framed_is_read(
            reason in ".*", agent in "[ -~é]{1,20}", first in 1..u64::MAX / 2, more in 0..9u64,
            epoch: u64, crc: u32, ts_ms in 0..4_000_000_000_000i64,
        ) {
            let mut draft = Draft::run(RunPaused { reason, cause: Default::default() });
            draft.agent = Some(AgentId::from_text(&agent));
            let batch = Batch { first, last: first + more, epoch, ts_ms };
            let (bytes, next) = frame(&mut draft, batch, crc);
            let line = decode(&bytes, crc).unwrap();
            prop_assert_eq!((line.seq, line.batch, line.crc), (first, first, next));
            prop_assert_eq!(line.ends_batch, more == 0);
            prop_assert_eq!(batch_of(&bytes), Some(first));
            let record = line.record().unwrap().unwrap();
            let Draft { task, agent, event } = draft;
            prop_assert_eq!(record, Record { seq: first, epoch, ts_ms, task, agent, event });
        }

        #[test]
        fn any_flipped_bit_is_noticed(place: prop::sample::Index, bit in 0..8u8) {
            let (mut bytes, _) = frame(&mut turn("work", 1), BATCH, 5);
            let at = place.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&bytes, 5).is_err());
        }
    }

    #[test]
    fn a_payload_of_more_values_than_anybody_writes_is_no_record() {
        let line = |data: &str| {
            let mut out = format!("{{\"reason\":\"x\",\"more\":{data}}}");
            out.shrink_to_fit();
            let line = Line {
                seq: 1,
                batch: 1,
                ends_batch: true,
                epoch: 1,
                ts_ms: 0,
                task: None,
                agent: None,
                kind: "run.paused".into(),
                data: &out,
                critical: false,
                crc: 0,
            };
            line.record().map(|record| record.is_some())
        };
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count));
        assert_eq!(line(&zeros(MOST_VALUES - 10)), Ok(true));
        let fault = line(&zeros(MOST_VALUES + 10)).unwrap_err();
        assert!(
            fault.is_sound() && fault.to_string().contains("more than 1000000 values"),
            "{fault}"
        );
        // A text is one value, whatever stands in it.
        let text = format!("\"{}\"", ",[{\\\"".repeat(MOST_VALUES));
        assert_eq!(line(&text), Ok(true));
    }
}
