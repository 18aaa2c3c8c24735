//! What a person is asked about a call: whether it may run.
//!
//! What a person is asked is kept, while an agent rests and in its records: a call goes on with that question and its
//! answer, whatever the rules or the plan say by then.

use std::collections::HashMap;
use std::sync::Arc;

use super::services::Proposed;
use crate::event::{Event, Record};
use crate::id::CallKey;
use crate::turn::question::ApprovalKind;

/// What a person is asked about a call: whether it may run.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The number of the question. There is another one if by the time of the answer the call would do something
    /// else than what was shown.
    pub(super) number: u32,
    /// The rule that wants it to be asked, if one does.
    pub(super) rule: Option<String>,
    /// The tasks that the call proposes, as they were read before the question.
    pub(super) plan: Option<Arc<Proposed>>,
}

impl Asked {
    /// Makes the first question about a call that a rule may want, or none.
    pub(super) fn of_rule(rule: Option<String>) -> Self {
        Self { number: 1, rule, plan: None }
    }

    /// Makes the first question about a call that proposes these tasks.
    pub(super) fn of_plan(plan: Arc<Proposed>) -> Self {
        Self { number: 1, rule: None, plan: Some(plan) }
    }

    /// Returns the id of the question.
    pub(super) fn id(&self, call: &CallKey) -> String {
        match self.number {
            1 => call.to_string(),
            number => format!("{call}-{number}"),
        }
    }

    /// Returns the call that a question with this id is about, and the number of the question.
    fn of_id(id: &str) -> (CallKey, u32) {
        let parts =
            id.split_once('-').and_then(|(call, number)| Some((call, number.parse().ok()?)));
        let (call, number) = parts.unwrap_or((id, 1));
        (CallKey::from_text(call), number)
    }
}

/// The last question about each call of an agent's last reply, as its records hold them. Its answer may be recorded
/// after them: it may have been left while no process drove the run.
#[derive(Debug, Default)]
pub(super) struct Recorded(HashMap<CallKey, Asked>);

impl Recorded {
    /// Takes in the agent's next record.
    pub(super) fn note(&mut self, record: &Record) {
        match &record.event {
            Event::ModelResponded(_) => self.0.clear(),
            Event::ApprovalAsked(asked) if asked.kind == ApprovalKind::Permission => {
                let (call, number) = Asked::of_id(&asked.id);
                let asked = Asked { number, ..Asked::of_rule(asked.rule.clone()) };
                self.0.insert(call, asked);
            }
            _ => {}
        }
    }

    /// Returns the calls about which a person was asked, with the question.
    pub(super) fn calls(self) -> impl Iterator<Item = (CallKey, Asked)> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::question::ApprovalAsked;

    #[test]
    fn the_last_question_about_a_call_is_kept() {
        use ApprovalKind::{Permission, Question};
        let mut recorded = Recorded::default();
        let asked = [("a", Permission), ("a-2", Permission), ("b", Permission), ("c", Question)];
        for (id, kind) in asked {
            let rule = Some(format!("rule of {id}"));
            let event = ApprovalAsked { rule, ..ApprovalAsked::new(id, kind, "may it?") }.into();
            let record = Record { seq: 1, epoch: 1, ts_ms: 0, task: None, agent: None, event };
            recorded.note(&record);
        }
        let calls: HashMap<_, _> = recorded.calls().collect();
        let asked = |key| calls.get(&CallKey::from_text(key)).cloned();
        let of_a = asked("a").expect("a question");
        assert_eq!((of_a.number, of_a.rule.as_deref()), (2, Some("rule of a-2")));
        assert_eq!(of_a.id(&CallKey::from_text("a")), "a-2");
        assert_eq!(asked("b").map(|asked| asked.number), Some(1));
        assert!(asked("c").is_none(), "it needs no permission");
    }
}
