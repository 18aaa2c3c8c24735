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
            // Version 1 has no field for a timeout; an error without an exit code, or with 0, can
            // be nothing else.
            (code @ (None | Some(0)), true) => Ending::TimedOut(code),
            (Some(code), true) => Ending::Exited(code),
            (code, false) => Ending::Exited(code.unwrap_or(0)),
        };
        Self { stored: done.stored, ending, ..Self::ok(done.text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AgentId, RunId};

    #[test]
    fn every_end_of_the_first_version_is_read() {
        use Ending::{Cancelled, Exited, TimedOut};
        let run = RunId::from(uuid::Uuid::nil());
        let key = CallKey::derive(run, &AgentId::from_text("a"), 1, 0, "bash", "{}");
        for (report, ending, is_error) in [
            (r#"{"done":{"text":"x","is_error":false,"exit_code":0}}"#, Exited(0), false),
            (r#"{"done":{"text":"x","is_error":true,"exit_code":3}}"#, Exited(3), true),
            (r#"{"done":{"text":"x","is_error":true}}"#, TimedOut(None), true),
            // It caught the signal and ended well when its time was over.
            (r#"{"done":{"text":"x","is_error":true,"exit_code":0}}"#, TimedOut(Some(0)), true),
            (
                r#"{"done":{"text":"x","is_error":true,"exit_code":0,"told_to_end":true}}"#,
                Cancelled(Some(0)),
                true,
            ),
            (r#"{"killed":{"text":"x"}}"#, Cancelled(None), true),
        ] {
            let text = format!(r#"{{"v":1,"key":"{key}","report":{report},"took_ms":7}}"#);
            let kept = Kept::read(text.as_bytes(), &key).expect("a kept result");
            let output = kept.result().expect("an output");
            assert_eq!((output.ending, output.is_error()), (ending, is_error), "{report}");
            assert_eq!(output.text, "x");
        }
        let text = format!(r#"{{"v":1,"key":"{key}","report":{{"failed":"no"}},"took_ms":7}}"#);
        let kept = Kept::read(text.as_bytes(), &key).expect("a kept result");
        assert_eq!(kept.result().expect_err("a failure").to_string(), "no");
    }
}
