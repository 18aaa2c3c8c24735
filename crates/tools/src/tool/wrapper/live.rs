//! What a command prints while it runs, from the wrapper to its parent: lines of JSON on the pipe of the report, before
//! it. The report itself has no line break.
//!
//! The wrapper never waits for a parent that is slow: what does not fit into the pipe is missed, and counted.

use std::io::{self, Write};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::tool::printing::{Printed, Printing};

/// The most bytes that a pipe that can be written takes at once, without waiting: PIPE_BUF, see pipe(7).
const AT_ONCE: usize = 4096;

/// Passes on what the command of this wrapper prints.
#[derive(Debug, Default)]
pub(super) struct ToParent {
    /// Number of lines that did not fit into the pipe since the last that did.
    missed: Mutex<u64>,
}

impl Printing for ToParent {
    fn is_read(&self) -> bool {
        true
    }

    fn take(&self, printed: Printed) {
        let mut missed = self.missed.lock();
        *missed += printed.missed;
        for parcel in parcels(printed) {
            let count = parcel.lines.len() as u64;
            let parcel = Printed { missed: *missed, ..parcel };
            match write_at_once(&parcel) {
                true => *missed = 0,
                false => *missed += count,
            }
        }
    }
}

/// Divides lines into parcels of which each is written at once.
fn parcels(printed: Printed) -> Vec<Printed> {
    let mut parcels: Vec<Printed> = Vec::new();
    // Of a parcel without lines.
    let around = 64;
    let mut length = AT_ONCE;
    for line in printed.lines {
        let more = serde_json::to_string(&line).map_or(AT_ONCE, |text| text.len() + 1);
        if length + more > AT_ONCE - around {
            parcels.push(Printed::default());
            length = 0;
        }
        length += more;
        if let Some(parcel) = parcels.last_mut() {
            parcel.lines.push_back(line);
        }
    }
    parcels
}

/// Writes lines to stdout if that needs no waiting. Returns true if they are written.
fn write_at_once(parcel: &Printed) -> bool {
    let Ok(mut text) = serde_json::to_string(parcel) else { return false };
    text.push('\n');
    let stdout = io::stdout();
    let mut ends = [PollFd::new(&stdout, PollFlags::OUT)];
    let can_write = poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        && ends[0].revents().contains(PollFlags::OUT);
    let mut out = stdout.lock();
    can_write
        && text.len() <= AT_ONCE
        && out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Takes the whole lines out of what the wrapper wrote, and passes on what they hold to whoever reads it.
pub(super) fn take_lines(bytes: &mut Vec<u8>, printing: Option<&dyn Printing>) {
    let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') else { return };
    if let Some(printing) = printing.filter(|printing| printing.is_read()) {
        let lines = bytes[..last].split(|byte| *byte == b'\n');
        let parcels = lines.filter_map(|line| serde_json::from_slice(line).ok());
        parcels.for_each(|printed| printing.take(printed));
    }
    bytes.drain(..=last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::printing::tests::Reader;
    use crate::tool::printing::{LONGEST_LINE, PrintedLine};

    #[test]
    fn each_parcel_fits_into_a_pipe_whatever_the_lines_hold() {
        for text in ["a", "\u{1}", "\"", "\u{1f980}", "é"] {
            let line = PrintedLine { text: text.repeat(LONGEST_LINE), is_error: true };
            let printed = Printed { missed: 0, lines: std::iter::repeat_n(line, 100).collect() };
            let parcels = parcels(printed);
            assert_eq!(parcels.iter().map(|parcel| parcel.lines.len()).sum::<usize>(), 100);
            for parcel in parcels {
                let parcel = Printed { missed: u64::MAX, ..parcel };
                let length = serde_json::to_string(&parcel).expect("JSON").len() + 1;
                assert!(length <= AT_ONCE && !parcel.lines.is_empty(), "{length} for {text:?}");
            }
        }
    }

    #[test]
    fn the_report_stays_when_the_lines_are_taken_out() {
        let (reader, line) = (Reader::default(), |text: &str| {
            let line = PrintedLine { text: text.to_owned(), is_error: false };
            serde_json::to_string(&Printed { missed: 0, lines: [line].into() }).expect("JSON")
        });
        let all = format!("{}\n{}\n{{\"v\":2}}", line("one"), line("two"));
        let mut bytes = Vec::new();
        for part in all.as_bytes().chunks(7) {
            bytes.extend_from_slice(part);
            take_lines(&mut bytes, Some(&reader));
        }
        assert_eq!(String::from_utf8_lossy(&bytes), "{\"v\":2}");
        let parcels = reader.0.lock();
        let lines: Vec<_> =
            parcels.iter().flat_map(|p| &p.lines).map(|l| l.text.as_str()).collect();
        assert_eq!(lines, ["one", "two"]);
    }
}
