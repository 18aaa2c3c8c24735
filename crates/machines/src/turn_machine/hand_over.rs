//! The last turn of an agent that has used up its turns, and what can be salvaged of an agent that
//! ends without an answer.

use super::inbox::Taken;
use super::{Machine, Phase};
use crate::failure::{Failure, FailureKind};
use crate::message::{Block, Json, Message};
use crate::output::Output;
use crate::turn::{Outcome, Program, TurnStarted};

/// Text that a model reads when it has used up its turns, before its last reply.
pub(super) const HAND_OVER: &str = "You have used up your turns, and no tool can be called any more. Hand \
    over your work in one last message: what is done, what is open, and where things stand. It \
    does not count as an answer; do not call unfinished work done.";

/// Text that a model reads before its last reply when it must end for another reason, which stands before it.
const MUST_END: &str = "No tool can be called any more. Hand over your work in one last message: what is done, what \
    is open, and where things stand. It does not count as an answer; do not call unfinished work done.";

/// The most results of tools that are salvaged, the newest ones.
const RESULTS: usize = 5;

/// The most characters of a result that are salvaged.
const RESULT_CHARS: usize = 300;

impl Machine {
    /// Returns true if the turns are used up or the agent must end: the next reply, or the one that is under way, hands
    /// over what there is.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        match self.phase {
            _ if self.handing_over => true,
            Phase::Ready => self.replies >= self.max_turns || self.ends_for.is_some(),
            Phase::Calling => self.ends_for.is_some(),
            Phase::Working | Phase::Ending(_) | Phase::Ended => false,
        }
    }

    /// Returns a failure together with the text that the agent had written by then.
    ///
    /// An agent that had given its answer, and fails over what it read after that, ends with the answer, unless it
    /// has called a tool since.
    #[must_use]
    pub fn failed(&self, kind: FailureKind, message: impl Into<String>) -> Outcome {
        if let Some(answer) = self.mailbox.answer() {
            return answer.clone();
        }
        // A hand-over that fails changes nothing: the agent ends for the reason for which it hands over.
        let failure = match self.hands_over() {
            true => self.out_of_turns(),
            false => Failure::new(kind, message),
        };
        Outcome::Failed { failure, partial: self.salvage() }
    }

    /// Makes the agent end for this failure, with one last reply in which it hands over what there is. If that
    /// reply cannot be had, it ends at once. A call of its model must have been refused.
    pub fn must_end(&mut self, failure: Failure) {
        if self.hands_over() {
            self.ends_for.get_or_insert(failure);
            self.phase = Phase::Ending(self.handed_over());
        } else {
            self.ends_for = Some(failure);
        }
    }

    /// Returns the failure for which the agent must end, if it is not that its turns are used up.
    #[must_use]
    pub fn ends_for(&self) -> Option<&Failure> {
        self.ends_for.as_ref()
    }

    /// Returns the message that asks for a hand-over, if it cannot stand with results of tools.
    pub(super) fn hand_over_message(&self) -> Option<Json> {
        match &self.ends_for {
            Some(failure) => {
                let words = format!("{}. {MUST_END}", capitalised(&failure.message));
                Some(Json::encode(&Message::user(words)))
            }
            None => (!self.view.ends_with_user()).then(|| Json::encode(&Message::user(HAND_OVER))),
        }
    }

    /// Puts the user message of a turn into the view, and takes what it holds out of the inbox.
    pub(super) fn joined(&mut self, started: &TurnStarted) -> Result<(), serde_json::Error> {
        let delivery = self.takes_mail();
        if let Some(json) = &started.message {
            if let Some(delivery) = delivery {
                return self.joined_with_mail(json, delivery);
            }
            let message = Message::read(json.as_str())?;
            if started.hand_over && self.view.ends_with_user() {
                self.view.push_beside(json.clone(), &message);
                self.inbox.clear();
                return Ok(());
            }
            match self.inbox.take(&message) {
                Taken::Continuation => self.view.push_continuation(json.clone())?,
                Taken::Requests => {
                    self.view.push_read(json.clone(), &message);
                    self.summaries.user_spoke();
                }
            }
        }
        if started.hand_over {
            // After it nothing is read any more.
            self.inbox.clear();
        }
        Ok(())
    }

    /// Returns the outcome after the reply that hands over.
    pub(super) fn handed_over(&self) -> Outcome {
        if let Some(answer) = self.mailbox.answer() {
            return answer.clone();
        }
        Outcome::Failed { failure: self.out_of_turns(), partial: self.salvage() }
    }

    pub(super) fn out_of_turns(&self) -> Failure {
        if let Some(failure) = &self.ends_for {
            return failure.clone();
        }
        let limit = self.max_turns;
        Failure::new(FailureKind::MaxTurns, format!("no final answer within {limit} turns"))
    }

    /// Returns the outcome that ends the agent with what is left of its work: with a command that was ended, what the
    /// command had printed.
    #[must_use]
    pub fn salvaged(&self, outcome: Outcome) -> Outcome {
        let outcome = outcome.or_salvaged(|| self.salvage());
        match (outcome, &self.phase) {
            (
                Outcome::Failed { failure, partial },
                Phase::Ending(Outcome::Failed { failure: of_command, .. }),
            ) if failure.output.is_none() => {
                let output = of_command.output.clone();
                Outcome::Failed { failure: Failure { output, ..failure }, partial }
            }
            (outcome, _) => outcome,
        }
    }

    /// Returns what is left of the work of an agent that ends without an answer: the text that it
    /// wrote last, and the results in brief to which it has not replied. `None` if there is neither.
    #[must_use]
    pub fn salvage(&self) -> Option<Output> {
        if let Program::Command { .. } = self.spawned.program {
            return match &self.phase {
                Phase::Ending(Outcome::Completed { output }) => Some(output.clone()),
                Phase::Ending(Outcome::Failed { partial, .. }) => partial.clone(),
                _ => None,
            };
        }
        let mut parts = Vec::new();
        if !self.last_text.is_empty() {
            parts.push(self.last_text.clone());
        }
        let results = self.last_results();
        if !results.is_empty() {
            parts.push(format!("Last results of tools, in brief:\n{}", results.join("\n")));
        }
        (!parts.is_empty()).then(|| Output::whole(parts.join("\n\n")))
    }

    /// Returns the beginnings of the results in the newest message, a line for each; none if the
    /// newest message has no results.
    fn last_results(&self) -> Vec<String> {
        let last = self.view.slots().next_back().filter(|slot| !slot.entry.answers.is_empty());
        let message = last.and_then(|slot| slot.entry.json.decode::<Message>().ok());
        let blocks = message.into_iter().flat_map(|message| message.content);
        let brief = blocks.filter_map(|block| match block {
            Block::ToolResult(result) => {
                let text = result.text();
                let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
                Some(format!("- {}", line.chars().take(RESULT_CHARS).collect::<String>()))
            }
            Block::Text(_) | Block::ToolUse(_) | Block::Other(_) => None,
        });
        let mut brief: Vec<_> = brief.collect();
        brief.drain(..brief.len().saturating_sub(RESULTS));
        brief
    }
}

/// Returns a text with a capital first letter.
fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::id::{AgentId, CallKey, Name, RunId};
    use crate::message::{
        ResultContent, Role, StopReason, ToolCall, ToolResult, Usage, UsageSource,
    };
    use crate::turn::{
        AgentSpawned, Effect, ModelFailed, ModelResponded, ToolFinished, ToolIntended, ToolStatus,
        TurnStarted,
    };
    use crate::turn_machine::Step;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn machine(max_turns: u32) -> Machine {
        let program = Program::Model { agent: name("a"), prompt: "go".into() };
        Machine::new(AgentSpawned::main(program), max_turns)
    }

    fn call() -> Block {
        let (id, input) = ("c".to_owned(), Json::encode(&serde_json::json!({})));
        Block::ToolUse(ToolCall { id, name: "grep".to_owned(), input })
    }

    fn text(text: &str) -> Block {
        Block::Text(text.to_owned())
    }

    /// Begins the next turn. Returns true if it hands over.
    fn begin(machine: &mut Machine) -> bool {
        let Step::CallModel { turn, message } = machine.next() else {
            panic!("{:?}", machine.next())
        };
        let hand_over = machine.hands_over();
        let started = TurnStarted { hand_over, ..TurnStarted::new(turn, message) };
        machine.apply(&started.into()).expect("legal");
        hand_over
    }

    fn reply(machine: &mut Machine, content: Vec<Block>, stop: StopReason) {
        let responded = ModelResponded {
            turn: machine.turn(),
            model: name("m"),
            message: Json::encode(&Message { role: Role::Assistant, content }),
            stop,
            usage: Usage::default(),
            usage_source: UsageSource::Reported,
            cost_usd: None,
            unsettled: None,
            context: Default::default(),
            repeats: None,
        };
        machine.apply(&responded.into()).expect("legal");
    }

    /// Calls a tool in a turn and gets its result.
    fn works(machine: &mut Machine, words: &str) {
        begin(machine);
        reply(machine, vec![text(words), call()], StopReason::ToolUse);
        let run = RunId::from(uuid::Uuid::nil());
        let key = CallKey::derive(run, &AgentId::from_text("a"), 1, 0, "grep", "{}");
        let (id, input) = ("c".to_owned(), Json::encode(&serde_json::json!({})));
        let (turn, tool, effect) = (machine.turn(), "grep".to_owned(), Effect::Pure);
        let intended: Event =
            ToolIntended { key: key.clone(), turn, index: 0, id, name: tool, input, effect }.into();
        machine.apply(&intended).expect("legal");
        let content = ResultContent::Text("found\n it".to_owned());
        let result = ToolResult { tool_use_id: "c".to_owned(), content, is_error: false };
        let finished = ToolFinished {
            took_ms: 1,
            ..ToolFinished::new(
                key,
                turn,
                0,
                "grep",
                ToolStatus::Ok,
                Json::encode(&Block::ToolResult(result)),
            )
        };
        machine.apply(&finished.into()).expect("legal");
    }

    fn end(machine: &Machine) -> (FailureKind, String) {
        match machine.next() {
            Step::Finish(Outcome::Failed { failure, partial }) => {
                (failure.kind, partial.map(|partial| partial.text).unwrap_or_default())
            }
            step => panic!("{step:?}"),
        }
    }

    #[test]
    fn out_of_turns_hands_over_once_and_is_never_an_answer() {
        type Play = fn(&mut Machine);
        let salvaged = "I look.\n\nLast results of tools, in brief:\n- found it";
        let table: [(&str, Play, &str); 5] = [
            ("text", |m| reply(m, vec![text("half is done")], StopReason::EndTurn), "half is done"),
            ("calls again", |m| reply(m, vec![text("more"), call()], StopReason::ToolUse), "more"),
            ("nothing", |m| reply(m, vec![], StopReason::EndTurn), salvaged),
            ("cut", |m| reply(m, vec![text("hal")], StopReason::MaxTokens), "hal"),
            (
                "the call fails",
                |m| {
                    let failure = Failure::new(FailureKind::Overloaded, "x");
                    let (turn, attempt) = (m.turn(), 1);
                    let (retry_in_ms, context_tokens, window_tokens, spent) = Default::default();
                    let failed = ModelFailed {
                        turn,
                        attempt,
                        failure,
                        retry_in_ms,
                        next_model: None,
                        context_tokens,
                        window_tokens,
                        spent,
                        usage_source: Default::default(),
                        unsettled: None,
                        cut: false,
                    };
                    m.apply(&failed.into()).expect("legal");
                },
                salvaged,
            ),
        ];
        for (what, play, wanted) in table {
            let mut machine = machine(2);
            works(&mut machine, "I begin.");
            assert!(!machine.hands_over(), "{what}");
            works(&mut machine, "I look.");
            assert!(begin(&mut machine), "{what}: the third turn hands over");
            assert_eq!(machine.turn(), 3);
            let asked = machine.view().slots().next_back().expect("a message");
            assert!(asked.entry.json.as_str().contains(HAND_OVER), "{what}");
            assert_eq!(asked.entry.role, Role::User, "{what}: roles alternate");
            play(&mut machine);
            assert_eq!(end(&machine), (FailureKind::MaxTurns, wanted.to_owned()), "{what}");
        }
    }

    #[test]
    fn a_last_turn_that_ends_by_itself_hands_nothing_over() {
        let mut answered = machine(1);
        assert!(!begin(&mut answered));
        reply(&mut answered, vec![text("done")], StopReason::EndTurn);
        assert!(matches!(answered.next(), Step::Finish(Outcome::Completed { .. })));
        let mut refused = machine(1);
        begin(&mut refused);
        reply(&mut refused, vec![], StopReason::Refusal(None));
        assert_eq!(end(&refused).0, FailureKind::Refusal);
    }

    #[test]
    fn a_cut_answer_hands_over_by_a_message_of_its_own() {
        let mut machine = machine(1);
        begin(&mut machine);
        reply(&mut machine, vec![text("the first half")], StopReason::MaxTokens);
        assert!(begin(&mut machine));
        let asked = machine.view().slots().next_back().expect("a message");
        assert!(asked.entry.json.as_str().contains(HAND_OVER));
        reply(&mut machine, vec![text(" and a bit")], StopReason::EndTurn);
        assert_eq!(end(&machine), (FailureKind::MaxTurns, "the first half and a bit".to_owned()));
    }

    #[test]
    fn a_hand_over_stays_one_when_the_limit_is_raised() {
        let mut first = machine(1);
        works(&mut first, "I look.");
        let mut events = Vec::new();
        let Step::CallModel { turn, message } = first.next() else { panic!("{:?}", first.next()) };
        let hand_over = first.hands_over();
        events.push(TurnStarted { hand_over, ..TurnStarted::new(turn, message) });
        // The same records, folded with more turns.
        let mut more = machine(9);
        works(&mut more, "I look.");
        for event in events {
            more.apply(&event.into()).expect("legal");
        }
        reply(&mut more, vec![text("all is done")], StopReason::EndTurn);
        assert_eq!(end(&more).0, FailureKind::MaxTurns);
    }
}
