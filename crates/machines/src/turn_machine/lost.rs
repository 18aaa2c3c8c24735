//! Calls of which the journal lost the records: what is known of them from elsewhere, and what follows for
//! a call that would be made again.
//!
//! Pure. A journal loses acknowledged records if it is cut at a damaged one, or if an older copy of it was
//! put back. What the records told happened all the same, so an effect that may not happen twice is not
//! repeated: its result is adopted if it is known, and otherwise the call is told as unknown.

use std::collections::{BTreeMap, BTreeSet};

use super::PendingCall;
use super::interrupted::{self, Known};
use crate::id::{AgentId, CallKey};
use crate::message::{Block, Json, ResultContent, ToolResult};
use crate::turn::{Effect, ResultSource, ToolFinished, ToolStatus};

/// Most characters of the arguments of a lost call that are quoted to a model.
const QUOTED_CHARS: usize = 400;

/// A call of which records were lost.
#[derive(Clone, Debug, PartialEq)]
pub struct LostCall {
    /// Key of the call.
    pub key: CallKey,
    /// Name of the tool.
    pub name: String,
    /// The arguments, as the model wrote them; empty if they are not known.
    pub input: String,
    /// Its result, if that is known.
    pub finished: Option<ToolFinished>,
}

/// The calls of which records were lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LostCalls {
    turns: BTreeMap<(AgentId, u32), Vec<LostCall>>,
    /// Those that began, or may have begun.
    began: BTreeSet<CallKey>,
    /// Numbers of the records from which on something was lost that nobody can read.
    gaps: Vec<u64>,
    /// Number of the last record that is shared with the run from which this one was forked.
    shared: Option<u64>,
}

impl LostCalls {
    /// Adds what is known of a call.
    pub fn add(&mut self, agent: &AgentId, turn: u32, call: LostCall) {
        let calls = self.turns.entry((agent.clone(), turn)).or_default();
        match calls.iter_mut().find(|known| known.key == call.key) {
            Some(known) => {
                known.finished = known.finished.take().or(call.finished);
                if known.input.is_empty() {
                    known.input = call.input;
                }
            }
            None => calls.push(call),
        }
    }

    /// Notes that a call began, or may have begun.
    pub fn add_beginning(&mut self, key: CallKey) {
        self.began.insert(key);
    }

    /// Notes that from this record on something was lost that nobody can read. So every call of which no
    /// more is known than that it was asked for may have begun.
    pub fn add_gap(&mut self, seq: u64) {
        self.gaps.push(seq);
        self.began.extend(self.turns.values().flatten().map(|call| call.key.clone()));
    }

    /// Notes that the records up to this one are those of the run from which this one was forked.
    pub fn share_until(&mut self, seq: u64) {
        self.shared = Some(seq);
    }

    /// Returns true if a call that began with this record runs in another run, whose processes are not ended.
    #[must_use]
    pub fn is_of_another_run(&self, seq: u64) -> bool {
        self.shared.is_some_and(|shared| seq <= shared)
    }

    /// Takes in all that another collection knows.
    pub fn extend(&mut self, other: Self) {
        for ((agent, turn), calls) in other.turns {
            calls.into_iter().for_each(|call| self.add(&agent, turn, call));
        }
        self.began.extend(other.began);
        self.gaps.extend(other.gaps);
        self.shared = self.shared.max(other.shared);
    }

    /// Returns true if a call began according to lost records, or if the record of its beginning may be
    /// one of those that nobody can read: `announced` is the number of the record that announced it.
    #[must_use]
    pub fn may_have_begun(&self, key: &CallKey, announced: u64) -> bool {
        self.began.contains(key) || self.gaps.iter().any(|gap| announced < *gap)
    }

    /// Returns the result of a call that would repeat what lost records told; `None` if it may run.
    #[must_use]
    pub fn answer(&self, agent: &AgentId, turn: u32, call: &PendingCall) -> Option<ToolFinished> {
        if (self.turns.is_empty() && self.began.is_empty()) || call.effect.is_repeatable() {
            return None;
        }
        let lost = self.turns.get(&(agent.clone(), turn)).map(Vec::as_slice).unwrap_or_default();
        let same = lost.iter().find(|lost| lost.key == call.key);
        if let Some(finished) = same.and_then(|same| same.finished.as_ref()) {
            return Some(adopted(turn, call, finished));
        }
        if self.began.contains(&call.key) {
            let known = Some("It began before records of it were lost.".to_owned());
            let known = Known { processes: known, ..Known::default() };
            return Some(interrupted::unknown(turn, call.clone(), &known));
        }
        // The model was asked again and answered with other words: it learns what its first answer did. A
        // change of a file says by itself what it does to the file as it is now.
        let first = lost.iter().find(|lost| self.began.contains(&lost.key))?;
        (same.is_none() && call.effect == Effect::Once).then(|| describe_lost(turn, call, first))
    }
}

/// Makes the result of a call from that of the same call before the loss. The model may have named the call
/// otherwise.
fn adopted(turn: u32, call: &PendingCall, finished: &ToolFinished) -> ToolFinished {
    let id = call.call.id.clone();
    let block = match finished.block.decode() {
        Ok(Block::ToolResult(result)) => {
            Block::ToolResult(ToolResult { tool_use_id: id, ..result })
        }
        _ => Block::ToolResult(ToolResult {
            tool_use_id: id,
            content: ResultContent::Text(String::new()),
            is_error: finished.status != ToolStatus::Ok,
        }),
    };
    ToolFinished {
        key: call.key.clone(),
        turn,
        index: call.index,
        source: ResultSource::Spool,
        block: Json::encode(&block),
        ..finished.clone()
    }
}

/// Describes what a lost call of the same turn did, in the place of another call.
fn describe_lost(turn: u32, call: &PendingCall, lost: &LostCall) -> ToolFinished {
    let arguments: String = lost.input.chars().take(QUOTED_CHARS).collect();
    let what = format!("called `{}` with {arguments}", lost.name);
    let ended = match &lost.finished {
        None => "how it ended is not known".to_owned(),
        Some(finished) => match finished.block.decode() {
            Ok(Block::ToolResult(result)) => {
                format!("it ended with:\n{}", result.text().chars().take(2_000).collect::<String>())
            }
            _ => "its result cannot be read".to_owned(),
        },
    };
    let said = format!(
        "Records of this turn were lost, and this call was not run: before the loss you had {what}; {ended}"
    );
    let known = Known { processes: Some(said), ..Known::default() };
    interrupted::unknown(turn, call.clone(), &known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;
    use crate::message::ToolCall;

    fn agent() -> AgentId {
        AgentId::from_text("a")
    }

    fn call(effect: Effect, command: &str) -> PendingCall {
        let input = Json::encode(&serde_json::json!({ "command": command }));
        let run = RunId::from(uuid::Uuid::nil());
        let key = CallKey::derive(run, &agent(), 3, 0, "bash", input.as_str());
        let call = ToolCall { id: "new".to_owned(), name: "bash".to_owned(), input };
        PendingCall::new(key, 0, call, effect)
    }

    fn lost(command: &str, began: bool, result: Option<&str>) -> LostCalls {
        let call = call(Effect::Once, command);
        let finished = result.map(|text| {
            let content = ResultContent::Text(text.to_owned());
            let result = ToolResult { tool_use_id: "old".to_owned(), content, is_error: false };
            ToolFinished {
                key: call.key.clone(),
                turn: 3,
                index: 0,
                name: "bash".to_owned(),
                status: ToolStatus::Ok,
                source: ResultSource::Live,
                block: Json::encode(&Block::ToolResult(result)),
                stored: None,
                printed: None,
                exit_code: Some(0),
                told_to_end: false,
                denied: false,
                refused: false,
                fails_agent: false,
                prints: None,
                file: None,
                took_ms: 5,
            }
        });
        let (key, input) = (call.key, call.call.input.as_str().to_owned());
        let mut all = LostCalls::default();
        all.began.extend(began.then(|| key.clone()));
        all.add(&agent(), 3, LostCall { key, name: "bash".to_owned(), input, finished });
        all
    }

    fn text(finished: &ToolFinished) -> (String, String) {
        let Ok(Block::ToolResult(result)) = finished.block.decode() else { panic!("a result") };
        (result.tool_use_id.clone(), result.text())
    }

    #[test]
    fn what_is_known_decides() {
        let same = call(Effect::Once, "make");
        let ended = lost("make", true, Some("built")).answer(&agent(), 3, &same).expect("adopted");
        assert_eq!(text(&ended), ("new".to_owned(), "built".to_owned()));
        assert_eq!((ended.status, ended.exit_code), (ToolStatus::Ok, Some(0)));
        let began = lost("make", true, None).answer(&agent(), 3, &same).expect("unknown");
        assert_eq!(began.status, ToolStatus::Unknown);
        assert!(text(&began).1.contains("It began before records"), "{:?}", text(&began));
        assert_eq!(lost("make", false, None).answer(&agent(), 3, &same), None);
        let mut doubtful = lost("make", false, None);
        doubtful.add_gap(7);
        assert!(doubtful.answer(&agent(), 3, &same).is_some());
    }

    #[test]
    fn a_model_that_says_it_otherwise_is_told_what_it_did() {
        let other = call(Effect::Once, "make all");
        let ended = lost("make", true, Some("built")).answer(&agent(), 3, &other).expect("told");
        assert_eq!(ended.status, ToolStatus::Unknown);
        let said = text(&ended).1;
        assert!(
            said.contains(r#"called `bash` with {"command":"make"}; it ended with:"#),
            "{said}"
        );
        assert!(said.contains("built") && said.contains("was not run"), "{said}");
        assert_eq!(lost("make", false, None).answer(&agent(), 3, &other), None);
        for harmless in [Effect::Pure, Effect::Keyed, Effect::Checked] {
            let other = call(harmless, "make all");
            assert_eq!(lost("make", true, None).answer(&agent(), 3, &other), None);
        }
        assert_eq!(lost("make", true, None).answer(&agent(), 4, &other), None, "another turn");
        let stranger = AgentId::from_text("b");
        assert_eq!(lost("make", true, None).answer(&stranger, 3, &other), None);
    }

    #[test]
    fn a_start_may_be_lost_only_behind_its_announcement() {
        let mut all = LostCalls::default();
        let key = call(Effect::Once, "make").key;
        assert!(!all.may_have_begun(&key, 1));
        all.add_gap(10);
        let may = |all: &LostCalls| [9, 10, 11].map(|seq| all.may_have_begun(&key, seq));
        assert_eq!(may(&all), [true, false, false]);
        all.add_beginning(key.clone());
        assert_eq!(may(&all), [true; 3]);
    }
}
