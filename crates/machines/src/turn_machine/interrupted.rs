//! Decides whether a lost call runs again or gets a result, by the rules of the effect classes.
//!
//! Pure: the caller checks the spool, the processes and the files, and passes its findings as
//! [`Known`].

use super::PendingCall;
use super::calls::{self, Interrupted};
use crate::output::{Output, Printed};
use crate::turn::{Effect, FileUse, ToolFinished, ToolStatus};

/// Text that a model reads for a call that was interrupted and may have taken effect.
pub const OUTCOME_UNKNOWN: &str = "outcome unknown: the call was interrupted and may have taken \
    effect; it was not run again.";

/// Last sentence of that text.
const INSPECT: &str = "Inspect the state before you repeat it.";

/// Findings about an interrupted call that left no result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Time at which the call began.
    pub began: Option<String>,
    /// Sentence about the processes of the call.
    pub processes: Option<String>,
    /// Present state of the file that the call was to change.
    pub content: Content,
    /// Output of the call up to its end.
    pub printed: Output,
    /// What its command printed beside it, if that was kept apart.
    pub beside: Option<Printed>,
}

/// Present state of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Nobody could check the file.
    #[default]
    Unknown,
    /// There is no such file.
    Absent,
    /// blake3 hash of the content in hexadecimal.
    Hash(String),
}

impl Content {
    fn is(&self, hash: Option<&str>) -> bool {
        match (self, hash) {
            (Self::Absent, None) => true,
            (Self::Hash(now), Some(hash)) => now == hash,
            (Self::Unknown | Self::Absent | Self::Hash(_), _) => false,
        }
    }
}

/// Returns the result for an interrupted call; `None` if the call runs again.
#[must_use]
pub fn answer(turn: u32, interrupted: Interrupted, known: &Known) -> Option<ToolFinished> {
    let Interrupted { call, started } = interrupted;
    match (call.effect, started.change) {
        (Effect::Pure | Effect::Keyed, _) => None,
        (Effect::Checked, Some(change)) if known.content.is(Some(&change.post)) => {
            let file = FileUse::changed(&change).map(Box::new);
            let answer = calls::answer(turn, call, ToolStatus::Ok, change.answer);
            Some(ToolFinished { file, ..answer })
        }
        (Effect::Checked, Some(change)) if known.content.is(change.pre.as_deref()) => None,
        (Effect::Checked, Some(change)) if known.content != Content::Unknown => {
            let path = change.path;
            let text = format!(
                "conflict: the call was interrupted, and `{path}` is now neither what it was \
                 before nor what the call would have made of it; it was not run again. Read the \
                 file before you change it."
            );
            Some(calls::answer(turn, call, ToolStatus::Unknown, text))
        }
        (Effect::Checked | Effect::Once, _) => Some(unknown(turn, call, known)),
    }
}

/// Returns the result of a call whose outcome nobody knows.
#[must_use]
pub fn unknown(turn: u32, call: PendingCall, known: &Known) -> ToolFinished {
    let mut text = OUTCOME_UNKNOWN.to_owned();
    if let Some(began) = &known.began {
        text.push_str(&format!(" It began at {began}."));
    }
    for sentence in known.processes.iter().map(String::as_str).chain([INSPECT]) {
        text.push(' ');
        text.push_str(sentence);
    }
    let Output { text: printed, stored } = &known.printed;
    if !printed.is_empty() {
        text.push_str(&format!("\nWhat it had printed by then:\n{printed}"));
    }
    let stored = stored.clone();
    // The text says more than the command did.
    let printed = known.beside.clone().map(|beside| {
        let stdout = Some(known.printed.clone()).filter(|output| !output.text.is_empty());
        Box::new(Printed { stdout, ..beside })
    });
    ToolFinished { stored, printed, ..calls::answer(turn, call, ToolStatus::Unknown, text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AgentId, CallKey, RunId};
    use crate::message::{Block, Json, ToolCall};
    use crate::turn::{FileChange, ToolStarted};

    fn interrupted(effect: Effect, change: Option<FileChange>) -> Interrupted {
        let key = CallKey::derive(
            RunId::from(uuid::Uuid::now_v7()),
            &AgentId::from_text("a"),
            1,
            0,
            "t",
            "{}",
        );
        let input = Json::encode(&serde_json::json!({}));
        let call = ToolCall { id: "c".to_owned(), name: "t".to_owned(), input };
        let started = ToolStarted { key: key.clone(), pgid: None, starttime: None, change };
        let call = PendingCall::new(key, 0, call, effect);
        Interrupted { call, started }
    }

    fn change(pre: Option<&str>) -> Option<FileChange> {
        let (path, post) = ("f".to_owned(), "new".to_owned());
        let (pre, answer) = (pre.map(str::to_owned), "wrote it".to_owned());
        Some(FileChange { path, pre, post, answer, ..FileChange::default() })
    }

    #[test]
    fn the_effect_and_the_file_decide() {
        use Content::{Absent, Unknown};
        let hash = |text: &str| Content::Hash(text.to_owned());
        let (done, lost) = (Some(ToolStatus::Ok), Some(ToolStatus::Unknown));
        for (effect, change, content, expected, says) in [
            (Effect::Pure, None, Unknown, None, ""),
            (Effect::Keyed, None, Unknown, None, ""),
            (Effect::Once, None, Unknown, lost, "outcome unknown"),
            (Effect::Checked, None, Unknown, lost, "outcome unknown"),
            (Effect::Checked, change(None), Absent, None, ""),
            (Effect::Checked, change(None), hash("new"), done, "wrote it"),
            (Effect::Checked, change(None), hash("x"), lost, "conflict"),
            (Effect::Checked, change(None), Unknown, lost, "outcome unknown"),
            (Effect::Checked, change(Some("old")), hash("old"), None, ""),
            (Effect::Checked, change(Some("old")), hash("new"), done, "wrote it"),
            (Effect::Checked, change(Some("new")), hash("new"), done, "wrote it"),
            (Effect::Checked, change(Some("old")), Absent, lost, "conflict"),
        ] {
            let known = Known { content: content.clone(), ..Known::default() };
            let answered = answer(1, interrupted(effect, change.clone()), &known);
            let status = answered.as_ref().map(|finished| finished.status);
            assert_eq!(status, expected, "{effect:?} {change:?} {content:?}");
            let text = answered.map(|finished| finished.block.as_str().to_owned());
            assert!(text.unwrap_or_default().contains(says));
        }
    }

    #[test]
    fn what_is_known_is_told() {
        let known = Known {
            began: Some("2026-01-01T00:00:00.000Z".to_owned()),
            processes: Some("Its processes are gone.".to_owned()),
            printed: Output::whole("half\n"),
            ..Known::default()
        };
        let finished = unknown(1, interrupted(Effect::Once, None).call, &known);
        let text = format!(
            "{OUTCOME_UNKNOWN} It began at 2026-01-01T00:00:00.000Z. Its processes are gone. \
             {INSPECT}\nWhat it had printed by then:\nhalf\n"
        );
        let Ok(Block::ToolResult(result)) = finished.block.decode() else { panic!("a result") };
        assert_eq!(result.text(), text);
    }
}
