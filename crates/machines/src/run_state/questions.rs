//! The questions of a run to people: those that are open, and how the others were answered.
//!
//! Pure. A question belongs to a task, or to an agent; it is open until it is answered or whoever
//! asked it has ended, or no longer waits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RunState;
use crate::event::{Event, Record};
use crate::id::{AgentId, Name};
use crate::plan::TaskState;
use crate::turn::{ApprovalAnswered, ApprovalAsked};

/// The questions of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Questions {
    open: BTreeMap<String, Question>,
    answered: BTreeMap<String, Answered>,
}

/// A question that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The task that asks, or whose agent asks.
    pub task: Name,
    /// The agent that asks; absent if the task itself does.
    pub agent: Option<AgentId>,
    /// What is asked.
    pub asked: ApprovalAsked,
    /// Number of the record that asked it.
    pub seq: u64,
    /// Time at which it was asked, in milliseconds since the Unix epoch.
    pub since_ms: i64,
}

/// The answer of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The answer.
    pub answer: ApprovalAnswered,
    /// Time at which it was given, in milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// Hash of all that the call would do, as it was shown; absent for other kinds of questions.
    pub effect: Option<String>,
}

impl Questions {
    /// Returns the open question with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Question> {
        self.open.get(id)
    }

    /// Returns the answer of the question with this id, if it has one.
    #[must_use]
    pub fn answer(&self, id: &str) -> Option<&Answered> {
        self.answered.get(id)
    }

    /// Returns true if no question is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the ids of the answered questions.
    pub fn answered_ids(&self) -> impl Iterator<Item = &str> {
        self.answered.keys().map(String::as_str)
    }

    /// Returns the open questions, in the order in which they were asked.
    #[must_use]
    pub fn open(&self) -> Vec<&Question> {
        let mut open: Vec<_> = self.open.values().collect();
        open.sort_by_key(|question| question.seq);
        open
    }

    /// Returns the open questions by id.
    pub fn by_id(&self) -> impl Iterator<Item = (&str, &Question)> {
        self.open.iter().map(|(id, question)| (id.as_str(), question))
    }

    pub(super) fn close(&mut self, id: &str) {
        self.open.remove(id);
    }

    /// Closes the questions of all tasks, which are decided anew. Those of agents stay.
    pub(super) fn close_those_of_tasks(&mut self) {
        self.open.retain(|_, question| question.agent.is_some());
    }

    fn answer_with(&mut self, answer: &ApprovalAnswered, at_ms: i64) {
        // Of two answers, which an older version could record, the first one counts.
        if let Some(question) = self.open.remove(&answer.id) {
            let effect = question.asked.effect.map(|effect| effect.hash());
            self.answered
                .insert(answer.id.clone(), Answered { answer: answer.clone(), at_ms, effect });
        }
    }
}

impl RunState {
    /// Returns the questions of the run.
    #[must_use]
    pub fn questions(&self) -> &Questions {
        &self.questions
    }

    /// Returns the question that a task asks, if it is open.
    #[must_use]
    pub fn question_of_task(&self, name: &Name) -> Option<&Question> {
        self.questions.get(self.tasks.get(name)?.question.as_deref()?)
    }

    /// Returns an open question of an agent.
    #[must_use]
    pub fn question_of_agent(&self, id: &AgentId) -> Option<&Question> {
        self.questions.get(self.agents.get(id)?.asked.first()?)
    }

    /// Notes what a record that was applied means for the questions.
    pub(super) fn note_question(&mut self, record: &Record) {
        match (&record.task, &record.agent, &record.event) {
            (Some(task), agent, Event::ApprovalAsked(asked)) => {
                // The record may come after the end of whoever asked: then nobody waits.
                let waits = match agent {
                    Some(id) => self.agents.get(id).is_some_and(|agent| agent.outcome.is_none()),
                    None => self.tasks.get(task).is_some_and(|t| t.state == TaskState::Waiting),
                };
                if waits {
                    let (task, agent) = (task.clone(), agent.clone());
                    let (asked, seq, since_ms) = (asked.clone(), record.seq, record.ts_ms);
                    let question = Question { task, agent, asked, seq, since_ms };
                    self.questions.open.insert(question.asked.id.clone(), question);
                }
            }
            (_, _, Event::ApprovalAnswered(answer)) => {
                self.questions.answer_with(answer, record.ts_ms);
            }
            (Some(task), None, _) => {
                // An attempt may begin after the question in a journal that no machine wrote: then nobody waits.
                let left = self.tasks.get(task).filter(|task| task.state != TaskState::Waiting);
                if let Some(id) = left.and_then(|task| task.question.clone()) {
                    self.questions.close(&id);
                }
            }
            (_, Some(id), Event::AgentEnded(_)) => {
                let asked = self.agents.get_mut(id).map(|agent| std::mem::take(&mut agent.asked));
                for id in asked.unwrap_or_default() {
                    self.questions.close(&id);
                }
            }
            _ => {}
        }
    }
}
