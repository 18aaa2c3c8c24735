//! Reads kept results of version 1, which an older version of the program may have left in a run
//! that is resumed now.

use serde::Deserialize;

use super::{Kept, VERSION};
use crate::id::CallKey;
use crate::output::{Output, Stored};
use crate::tool::{Ending, ToolOutput};

/// A kept result of any version that can be read.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum KeptAnyhow {
    Now(Kept),
    Before(KeptV1),
}

/// A kept result of version 1.
#[derive(Deserialize)]
pub(super) struct KeptV1 {
    v: u32,
    key: CallKey,
    report: Report,
    took_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Done(Done),
    Killed(Output),
    Failed(String),
}

#[derive(Deserialize)]
struct Done {
    text: String,
    is_error: bool,
    stored: Option<Stored>,
    exit_code: Option<i32>,
    #[serde(default)]
    told_to_end: bool,
}

impl From<KeptV1> for Kept {
    fn from(kept: KeptV1) -> Self {
        let KeptV1 { v, key, report, took_ms } = kept;
        let end = match report {
            Report::Done(done) => Ok(done.into()),
            Report::Killed(Output { text, stored }) => {
                Ok(ToolOutput { stored, ending: Ending::Cancelled(None), ..ToolOutput::ok(text) })
            }
            Report::Failed(reason) => Err(reason),
        };
        // Another version stays as it is, and `Kept::read` refuses it.
        let v = if v == 1 { VERSION } else { v };
        Self { v, key, end, took_ms }
    }
}

impl From<Done> for ToolOutput {
    fn from(done: Done) -> Self {
        let ending = match (done.exit_code, done.is_error) {
            (Some(code), true) if done.told_to_end => Ending::Cancelled(Some(code)),
            // Version 1 has no field for a timeout; an error without an exit code can be nothing
            // else.
            (None, true) => Ending::TimedOut(None),
            (Some(code), true) => Ending::Exited(code),
            (code, false) => Ending::Exited(code.unwrap_or(0)),
        };
        Self { stored: done.stored, ending, ..Self::ok(done.text) }
    }
}
