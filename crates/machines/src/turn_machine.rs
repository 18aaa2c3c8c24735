//! The turn machine: the fold of one agent's events, and the step that follows from it.
//!
//! Pure: no clock, no I/O. The same fold runs while the agent works and when it is rebuilt from the
//! journal, so an agent that was interrupted resumes where its records end.

mod calls;
mod circles;
mod continuing;
mod counting;
mod facts;
mod hand_over;
mod inbox;
pub mod interrupted;
pub mod lost;
mod mailbox;
mod open_calls;
mod provider;
pub mod reply;
mod results;
mod size;
mod step;
mod summaries;
pub mod unknown;

use std::collections::HashSet;
use std::sync::Arc;

use self::calls::CallState;
pub use self::calls::{Interrupted, PendingCall, RUN, command_outcome};
pub use self::counting::Counted;
use self::counting::Counting;
use self::inbox::Inbox;
use self::mailbox::Mailbox;
pub use self::mailbox::{Mail, turn_chars};
pub use self::provider::ProviderWork;
use self::step::may_follow_the_end;
pub use self::step::{IllegalEvent, Step};
pub use self::summaries::Relief;
use self::summaries::Summaries;
use crate::context::layers::inventory::Inventory;
use crate::context::measure::Measure;
use crate::context::view::View;
use crate::context::{CompactionTrigger, Edit};
use crate::event::Event;
use crate::failure::Failure;
use crate::loops::{Loops, Step as LoopStep};
use crate::message::{Json, Message, StopReason, Usage, UsageSource};
use crate::output::Output;
use crate::turn::files::KnownFiles;
use crate::turn::{AgentSpawned, ModelResponded, Outcome, Program, Shortfalls};

#[derive(Clone, Debug)]
enum Phase {
    /// The history is complete: a model call is next.
    Ready,
    /// A model call was announced and has no reply.
    Calling,
    /// Tool calls of the last reply are open.
    Working,
    /// The outcome is known and not yet recorded.
    Ending(Outcome),
    /// The outcome is recorded.
    Ended,
}

/// State of one agent, folded from its events.
#[derive(Clone, Debug)]
pub struct Machine {
    spawned: AgentSpawned,
    max_turns: u32,
    view: View,
    measure: Measure,
    counting: Counting,
    phase: Phase,
    turn: u32,
    replies: u32,
    calls: Vec<CallState>,
    /// The ids of all calls so far.
    call_ids: Arc<HashSet<String>>,
    inbox: Inbox,
    mailbox: Mailbox,
    continuations: u32,
    /// Number of continuations in a row of answers that reached the output limit.
    truncations: u32,
    /// Number of replies in a row whose stream broke.
    breaks: u32,
    /// True if the model was asked once more because it answered nothing, and has called no tool since.
    nudged: bool,
    answer: String,
    summaries: Summaries,
    /// Number of the newest messages that stay when the middle is dropped, as the model asked.
    snip: Option<usize>,
    /// Failure of a request that was refused as too long, while a summary is to help and no reply
    /// has come since.
    refused: Option<Failure>,
    inventory: Inventory,
    files: KnownFiles,
    /// True if the last reply has to be sent back as it is, so that the provider continues it.
    paused: bool,
    usage: Usage,
    shortfalls: Shortfalls,
    /// The reason for which the agent gave up, if it did so in this turn.
    gave_up: Option<String>,
    /// The tool of a call without which the agent may not go on.
    fails_for: Option<String>,
    provider: ProviderWork,
    /// Number of requests that were announced in the turn.
    requests: u32,
    /// True from the beginning of the turn that hands over what there is.
    handing_over: bool,
    /// The failure for which the agent must end, if it is not that its turns are used up.
    ends_for: Option<Failure>,
    /// True in a turn without tools, which an agent has that goes in circles.
    held: bool,
    loops: Loops,
    /// The last text that the agent wrote beside its calls.
    last_text: String,
    /// The output of the last round of a command.
    last_output: Option<Output>,
}

impl Machine {
    /// Makes the state of the agent that `spawned` announces; it may call its model `max_turns`
    /// times. The view of an agent whose prompt is stored begins with a part of it, unless the
    /// prompt was read back.
    #[must_use]
    pub fn new(spawned: AgentSpawned, max_turns: u32) -> Self {
        let mut view = View::default();
        if let Program::Model { prompt, .. } = &spawned.program {
            let message = Message::user(prompt.beginning());
            view.push_task(Json::encode(&message), &message);
        }
        Self {
            spawned,
            max_turns,
            view,
            measure: Measure::default(),
            counting: Counting::default(),
            phase: Phase::Ready,
            turn: 0,
            replies: 0,
            calls: Vec::new(),
            call_ids: Arc::default(),
            inbox: Inbox::default(),
            mailbox: Mailbox::default(),
            continuations: 0,
            truncations: 0,
            breaks: 0,
            nudged: false,
            answer: String::new(),
            summaries: Summaries::default(),
            snip: None,
            refused: None,
            inventory: Inventory::default(),
            files: KnownFiles::default(),
            paused: false,
            usage: Usage::default(),
            shortfalls: Shortfalls::default(),
            gave_up: None,
            fails_for: None,
            provider: ProviderWork::default(),
            requests: 0,
            handing_over: false,
            ends_for: None,
            held: false,
            loops: Loops::default(),
            last_text: String::new(),
            last_output: None,
        }
    }

    /// Returns the event that started the agent.
    #[must_use]
    pub fn spawned(&self) -> &AgentSpawned {
        &self.spawned
    }

    /// Returns the view of the conversation.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the number of the current turn, from 1; 0 before the first.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Returns the number of replies in a row whose stream broke.
    #[must_use]
    pub fn breaks(&self) -> u32 {
        self.breaks
    }

    /// Returns true if a request was refused as too long since the newest reply.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.summaries.was_refused()
    }

    /// Returns the number of model calls that gave a reply.
    #[must_use]
    pub fn replies(&self) -> u32 {
        self.replies
    }

    /// Returns the tokens of the agent itself, without its child agents.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the agent's calls that did not do what it asked for.
    #[must_use]
    pub fn shortfalls(&self) -> &Shortfalls {
        &self.shortfalls
    }

    /// Returns the replies' report on the provider's work on the context.
    #[must_use]
    pub fn provider(&self) -> ProviderWork {
        self.provider
    }

    /// Returns the files, skills, child agents and todo list of the agent.
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Returns the contents of files that the agent knows.
    #[must_use]
    pub fn files(&self) -> &KnownFiles {
        &self.files
    }

    /// Returns the ids of all calls so far; a new call must not repeat any.
    #[must_use]
    pub fn call_ids(&self) -> Arc<HashSet<String>> {
        self.call_ids.clone()
    }

    /// Returns true if the provider asked to receive its last message back, to continue it.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the number of messages that stay when the middle is dropped, if the model asked for it.
    #[must_use]
    pub fn snip(&self) -> Option<usize> {
        self.snip
    }

    /// Returns the user message that joins the conversation with the next turn, if one is due.
    #[must_use]
    pub fn joining(&self) -> Option<&Json> {
        self.inbox.message()
    }

    /// Returns the output of the last round, if the agent is a command that had one.
    #[must_use]
    pub fn last_output(&self) -> Option<&Output> {
        self.last_output.as_ref()
    }

    /// Returns the number of requests that the turn has announced, if it has no reply: its call is made
    /// again in the same turn.
    #[must_use]
    pub fn announced(&self) -> Option<u32> {
        let hands_over_anew = self.ends_for.is_some() && !self.handing_over;
        let begins_anew = hands_over_anew || self.begins_anew();
        (matches!(self.phase, Phase::Calling) && !begins_anew).then_some(self.requests)
    }

    /// Returns true if the outcome is recorded.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Returns the step that follows from the records.
    #[must_use]
    pub fn next(&self) -> Step {
        match &self.phase {
            Phase::Ended => Step::Rest,
            Phase::Ending(_) if self.is_reopened() => self.next_model_step(),
            Phase::Ending(outcome) => Step::Finish(outcome.clone()),
            Phase::Ready | Phase::Calling | Phase::Working => {
                match (&self.spawned.program, &self.phase) {
                    (Program::Command(_), _) => Step::RunCommand(self.open_calls().pop()),
                    (_, Phase::Working) => Step::RunTools(self.open_calls()),
                    _ => self.next_model_step(),
                }
            }
        }
    }

    fn next_model_step(&self) -> Step {
        if let Some((trigger, focus)) = self.summaries.asked() {
            return Step::Compact { trigger: *trigger, focus: focus.clone() };
        }
        match self.phase {
            // The message of the announced turn has already joined the conversation.
            Phase::Calling if self.announced().is_some() => {
                Step::CallModel { turn: self.turn, message: None }
            }
            _ if self.hands_over() => {
                Step::CallModel { turn: self.turn + 1, message: self.hand_over_message() }
            }
            _ => Step::CallModel { turn: self.turn + 1, message: self.joining().cloned() },
        }
    }

    /// Applies a recorded event.
    ///
    /// # Errors
    /// Returns an error if the event cannot follow the records before it.
    pub fn apply(&mut self, event: &Event) -> Result<(), IllegalEvent> {
        let illegal =
            |reason: &str| IllegalEvent { event: event.kind(), reason: reason.to_owned() };
        if self.is_ended() && !may_follow_the_end(event) {
            return Err(illegal("the agent has ended"));
        }
        match event {
            Event::TurnStarted(started) => {
                if started.turn <= self.turn {
                    return Err(illegal("turn numbers only grow"));
                }
                self.turn = started.turn;
                self.mail_turn_started();
                self.ends_for.clone_from(&started.ends_for);
                (self.handing_over, self.held) = (started.hand_over, started.held);
                self.loops.turn_started();
                self.files.turn_started();
                self.requests = 0;
                self.summaries.turn_started();
                self.snip = None;
                self.phase = Phase::Calling;
                self.joined(started).map_err(|error| illegal(&error.to_string()))?;
            }
            Event::ModelRequested(requested) => {
                self.requests = self.requests.max(requested.attempt);
                let own = requested.stands_in_for.as_ref().unwrap_or(&requested.model);
                self.measure.begin_with(own, requested.head_tokens);
                self.measure.request(self.view.extent());
                self.counting.requested(requested);
            }
            Event::ModelResponded(responded) => self.responded(responded, event)?,
            Event::ModelFailed(failed) => {
                self.usage += failed.spent.as_ref().map(|spent| spent.usage).unwrap_or_default();
                if failed.retry_in_ms.is_none() {
                    match self.phase {
                        Phase::Calling => self.model_failed(failed),
                        // The stream broke after a part of the answer, which is recorded.
                        Phase::Ready => self.broken_for_good(failed),
                        Phase::Working | Phase::Ending(_) | Phase::Ended => {}
                    }
                }
            }
            Event::ToolIntended(intended) => self.intended(intended, event)?,
            Event::ToolStarted(started) => calls::note_start(&mut self.calls, started),
            Event::ToolFinished(finished) => self.finished(finished, event)?,
            Event::ContextEdited(edited) => {
                self.counting.edited();
                let applied = self.view.apply(&edited.edit);
                applied.map_err(|error| illegal(&error.to_string()))?;
                if let Edit::Record(_) = &edited.edit {
                    self.loops.compacted();
                }
                self.summaries.edited(self.turn, edited);
            }
            Event::CompactionRequested(requested) => {
                self.summaries.requested(self.turn, requested.trigger);
            }
            Event::CompactionFinished(finished) => {
                self.counting.edited();
                let applied = self.view.apply(&finished.edit);
                applied.map_err(|error| illegal(&error.to_string()))?;
                self.usage += finished.usage;
                self.loops.compacted();
                self.summaries.finished(self.turn);
            }
            Event::CompactionFailed(failed) => {
                self.usage += failed.spent.as_ref().map(|spent| spent.usage).unwrap_or_default();
                if failed.cut {
                    self.summaries.forget_lost();
                    return Ok(());
                }
                let reactive =
                    matches!(self.summaries.asked(), Some((CompactionTrigger::Reactive, _)));
                if let Some(refused) = self.refused.take_if(|_| failed.blocked && reactive) {
                    self.phase = Phase::Ending(self.failed(refused.kind, refused.message));
                }
                self.summaries.failed(self.turn, failed);
            }
            Event::AgentRestarted(restarted) => {
                self.summaries.forget_lost();
                if self.is_ended() {
                    self.mailbox.begins_again();
                    self.loops.begin_again();
                    self.phase = match &restarted.feedback {
                        Some(feedback) => {
                            self.note_refusal(feedback);
                            if restarted.asked.is_some() {
                                // It may have been stopped, or have handed over.
                                (self.handing_over, self.ends_for) = (false, None);
                            }
                            let begun = self.begin_round(&feedback.text);
                            begun.map_err(|full| illegal(&full.to_string()))?
                        }
                        None => self.continue_after_end(),
                    };
                }
            }
            Event::AgentEnded(ended) => {
                self.phase = Phase::Ended;
                if let (Program::Command { .. }, Outcome::Completed { output }) =
                    (&self.spawned.program, &ended.outcome)
                {
                    self.last_output = Some(output.clone());
                }
            }
            Event::MessageSent(sent) => drop(self.receive(sent)),
            Event::MessageDelivered(delivered) => self.mailbox.deliver(&delivered.ids),
            Event::MessageReturned(returned) => self.mailbox.take_out(&[returned.id]),
            Event::LoopNoticed(e) => self.take_loop_step(LoopStep::Notice, &e.circle),
            Event::LoopHeld(e) => self.take_loop_step(LoopStep::Hold, &e.circle),
            Event::LoopBroken(e) => self.take_loop_step(LoopStep::Break, &e.circle),
            // Other events are about other parts of the run, or only of interest to people.
            _ => {}
        }
        Ok(())
    }

    fn responded(&mut self, reply: &ModelResponded, event: &Event) -> Result<(), IllegalEvent> {
        let illegal = |reason: String| IllegalEvent { event: event.kind(), reason };
        if !matches!(self.phase, Phase::Calling) {
            return Err(illegal("no model call is under way".to_owned()));
        }
        let message = Message::read(reply.message.as_str()).map_err(|e| illegal(e.to_string()))?;
        // A usage that counts the provider's summaries too is not the size of the request.
        if reply.usage_source == UsageSource::Reported && reply.context.tokens.is_none() {
            let cleared = reply.context.cleared_tokens();
            self.measure.report(reply.usage.context().saturating_add(cleared));
        }
        self.counting.responded(reply);
        self.usage += reply.usage;
        let is_broken = matches!(reply.stop, StopReason::Interrupted(_));
        self.breaks = if is_broken { self.breaks.saturating_add(1) } else { 0 };
        // What a broken stream leaves undone takes no turn of the agent's.
        self.replies += u32::from(!is_broken || message.tool_calls().next().is_some());
        self.summaries.replied();
        self.refused = None;
        let was_paused = std::mem::replace(&mut self.paused, reply.stop == StopReason::PauseTurn);
        self.provider.take_note(reply);
        if !message.content.is_empty() {
            self.view.push_read(reply.message.clone(), &message);
        }
        if self.continuations == 0 {
            self.answer.clear();
        }
        self.answer.push_str(&message.text());
        if !self.answer.trim().is_empty() {
            self.last_text.clone_from(&self.answer);
        }
        let calls: Vec<_> = message.tool_calls().cloned().collect();
        if !calls.is_empty() {
            // No step holds the set at this time, so `make_mut` does not copy it.
            Arc::make_mut(&mut self.call_ids).extend(calls.iter().map(|call| call.id.clone()));
            self.calls = calls.into_iter().map(CallState::asked).collect();
            (self.continuations, self.truncations) = (0, 0);
            self.nudged = false;
            self.mailbox.forget_answer();
            self.phase = match (self.handing_over, was_paused) {
                (true, _) => Phase::Ending(self.handed_over()),
                (false, true) => self.pause_without_end(),
                (false, false) => Phase::Working,
            };
            return Ok(());
        }
        self.phase = match (self.handing_over, was_paused && self.paused) {
            (true, _) => Phase::Ending(self.handed_over()),
            (false, true) => self.pause_without_end(),
            (false, false) if let Some(text) = reply.repeats => self.after_repetition(text),
            (false, false) if self.held && reply.stop.ends_reply() => self.after_hold(),
            (false, false) => self.judge(&reply.stop, message.content.is_empty()),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::continuing::MAX_CONTINUATIONS;
    use super::*;
    use crate::failure::FailureKind;
    use crate::id::{CallKey, Name};
    use crate::message::{Block, ResultContent, ToolCall, ToolResult};
    use crate::output::Output;
    use crate::turn::ModelFailed;
    use crate::turn::TurnStarted;
    use crate::turn::{Effect, ToolFinished, ToolIntended, ToolStarted, ToolStatus};

    fn machine() -> Machine {
        let agent = Name::new("reader").expect("a name");
        let program = Program::Model { agent, prompt: "go".into() };
        Machine::new(AgentSpawned::main(program), 10)
    }

    fn reply(machine: &mut Machine, content: Vec<Block>, stop: StopReason) {
        let Step::CallModel { turn, message } = machine.next() else {
            panic!("{:?}", machine.next())
        };
        machine.apply(&TurnStarted::new(turn, message).into()).expect("legal");
        let message = Message { role: crate::message::Role::Assistant, content };
        let responded = ModelResponded {
            unsettled: None,
            turn,
            model: Name::new("m").expect("a name"),
            message: Json::encode(&message),
            stop,
            usage: Usage { input: 1, output: 1, ..Usage::default() },
            usage_source: UsageSource::Reported,
            cost_usd: None,
            context: crate::context::provider::server::ContextReport::default(),
            repeats: None,
        };
        machine.apply(&responded.into()).expect("legal");
    }

    fn text(text: &str) -> Vec<Block> {
        vec![Block::Text(text.to_owned())]
    }

    fn call(id: &str, name: &str) -> Block {
        let input = Json::encode(&serde_json::json!({"focus": "x"}));
        Block::ToolUse(ToolCall { id: id.to_owned(), name: name.to_owned(), input })
    }

    fn intend(machine: &mut Machine, index: u32, name: &str, effect: Effect) -> CallKey {
        let run = crate::id::RunId::from(uuid::Uuid::now_v7());
        let agent = crate::id::AgentId::from_text("a");
        let key = CallKey::derive(run, &agent, machine.turn(), index, name, "{}");
        let intended = ToolIntended {
            key: key.clone(),
            turn: machine.turn(),
            index,
            id: format!("c{index}"),
            name: name.to_owned(),
            input: Json::encode(&serde_json::json!({})),
            effect,
        };
        machine.apply(&intended.into()).expect("legal");
        key
    }

    fn finish(machine: &mut Machine, key: &CallKey, index: u32) -> Result<(), IllegalEvent> {
        let result = ToolResult {
            tool_use_id: format!("c{index}"),
            content: ResultContent::Text("done".to_owned()),
            is_error: false,
        };
        let finished = ToolFinished {
            took_ms: 1,
            ..ToolFinished::new(
                key.clone(),
                machine.turn(),
                index,
                "x",
                ToolStatus::Ok,
                Json::encode(&Block::ToolResult(result)),
            )
        };
        machine.apply(&finished.into())
    }

    fn restarted(feedback: Option<&str>) -> crate::turn::AgentRestarted {
        let feedback = feedback.map(|text| crate::turn::Feedback {
            cause: crate::turn::Cause::Check,
            text: text.to_owned(),
        });
        crate::turn::AgentRestarted::new(1, "asked again", feedback)
    }

    fn end(machine: &mut Machine, outcome: Outcome) {
        let (turns, usage, shortfalls) = Default::default();
        let ended = crate::turn::AgentEnded {
            outcome,
            turns,
            usage,
            shortfalls,
            run_by_others: Vec::new(),
            run_by_others_incomplete: false,
        };
        machine.apply(&ended.into()).expect("legal");
    }

    fn failure_kind(machine: &Machine) -> FailureKind {
        match machine.next() {
            Step::Finish(Outcome::Failed { failure, .. }) => failure.kind,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_ends_the_agent() {
        let mut machine = machine();
        reply(&mut machine, text("  the answer \n"), StopReason::EndTurn);
        let output = Output::whole("the answer");
        assert_eq!(machine.next(), Step::Finish(Outcome::Completed { output }));
    }

    #[test]
    fn refusal_silence_and_too_many_turns_are_failures_of_their_own_kind() {
        let mut refused = machine();
        reply(&mut refused, text("I cannot"), StopReason::Refusal(None));
        assert_eq!(failure_kind(&refused), FailureKind::Refusal);
        let mut endless = machine();
        for turn in 0..10 {
            reply(&mut endless, vec![call("c0", "bash")], StopReason::ToolUse);
            let key = intend(&mut endless, 0, "bash", Effect::Once);
            finish(&mut endless, &key, 0).expect("legal");
            assert_eq!(endless.turn(), turn + 1);
        }
        // Another turn hands over.
        assert!(endless.hands_over());
    }

    #[test]
    fn a_model_that_answers_nothing_is_asked_once_more() {
        let thinking = || {
            let block = serde_json::json!({"type": "thinking", "thinking": "hm", "signature": "s"});
            vec![Block::Other(Json::encode(&block))]
        };
        let asked = |machine: &Machine| match machine.next() {
            Step::CallModel { message, .. } => {
                message.map(|message| Message::read(message.as_str()).expect("a message").text())
            }
            other => panic!("{other:?}"),
        };
        // Nothing may follow the prompt but a reply; thinking is one.
        let mut silent = machine();
        reply(&mut silent, vec![], StopReason::EndTurn);
        assert_eq!(asked(&silent), None);
        reply(&mut silent, vec![], StopReason::EndTurn);
        assert_eq!(failure_kind(&silent), FailureKind::EmptyAnswer);
        let mut thinker = machine();
        reply(&mut thinker, thinking(), StopReason::EndTurn);
        assert!(asked(&thinker).expect("a message").contains("Go on"));
        let mut again = thinker.clone();
        reply(&mut again, thinking(), StopReason::EndTurn);
        assert_eq!(failure_kind(&again), FailureKind::EmptyAnswer);
        // A call or an answer ends the matter.
        reply(&mut thinker, vec![call("c0", "grep")], StopReason::ToolUse);
        let key = intend(&mut thinker, 0, "grep", Effect::Pure);
        finish(&mut thinker, &key, 0).expect("legal");
        reply(&mut thinker, thinking(), StopReason::EndTurn);
        assert!(asked(&thinker).is_some());
        reply(&mut thinker, text("done"), StopReason::EndTurn);
        assert!(matches!(thinker.next(), Step::Finish(Outcome::Completed { .. })));
        // The end of an agent that answered nothing, as older journals have it, still folds.
        let mut old = machine();
        reply(&mut old, thinking(), StopReason::EndTurn);
        let outcome = old.failed(FailureKind::EmptyAnswer, "the model answered nothing");
        end(&mut old, outcome);
        assert!(old.is_ended());
    }

    #[test]
    fn results_return_in_call_order_whatever_their_order_of_arrival() {
        let mut machine = machine();
        reply(&mut machine, vec![call("c0", "grep"), call("c1", "grep")], StopReason::ToolUse);
        let first = intend(&mut machine, 0, "grep", Effect::Pure);
        let second = intend(&mut machine, 1, "grep", Effect::Pure);
        finish(&mut machine, &second, 1).expect("legal");
        assert!(matches!(machine.next(), Step::RunTools(open) if open.len() == 1));
        assert!(finish(&mut machine, &second, 1).is_err(), "one result a call");
        finish(&mut machine, &first, 0).expect("legal");
        let last = machine.view().slots().last().expect("a message").entry.clone();
        assert_eq!(*last.answers, ["c0".to_owned(), "c1".to_owned()]);
        assert!(matches!(machine.next(), Step::CallModel { turn: 2, .. }));
    }

    #[test]
    fn a_cut_answer_is_continued_and_joined_a_bounded_number_of_times() {
        let mut machine = machine();
        reply(&mut machine, text("one "), StopReason::MaxTokens);
        reply(&mut machine, text("two"), StopReason::EndTurn);
        let output = Output::whole("one two");
        assert_eq!(machine.next(), Step::Finish(Outcome::Completed { output }));
        let mut endless = self::machine();
        for _ in 0..=MAX_CONTINUATIONS {
            reply(&mut endless, text("more"), StopReason::MaxTokens);
        }
        assert_eq!(failure_kind(&endless), FailureKind::OutputTruncated);
    }

    #[test]
    fn broken_streams_are_continued_until_the_retry_policy_gives_up() {
        let broke = |machine: &mut Machine, attempt, retry_in_ms| {
            reply(machine, text("more "), StopReason::Interrupted("cut".to_owned()));
            let failure = Failure::new(FailureKind::Connection, "cut");
            let (context_tokens, window_tokens, spent) = (None, None, None);
            let turn = machine.turn();
            let failed = ModelFailed {
                unsettled: None,
                turn,
                attempt,
                failure,
                retry_in_ms,
                next_model: None,
                context_tokens,
                window_tokens,
                spent,
                usage_source: Default::default(),
                cut: false,
            };
            machine.apply(&failed.into()).expect("legal");
        };
        let mut machine = machine();
        for attempt in 1..=9 {
            broke(&mut machine, attempt, Some(5));
            assert_eq!((machine.breaks(), machine.replies()), (attempt, 0));
        }
        let mut whole = machine.clone();
        broke(&mut machine, 10, None);
        let Step::Finish(Outcome::Failed { failure, partial }) = machine.next() else {
            panic!("{:?}", machine.next())
        };
        assert_eq!((failure.kind, failure.attempts), (FailureKind::Connection, Some(10)));
        assert_eq!(partial.map(|output| output.text), Some("more ".repeat(10)));
        reply(&mut whole, text("end"), StopReason::EndTurn);
        let output = Output::whole("more ".repeat(9)).text + "end";
        let output = Output::whole(&output);
        assert_eq!(whole.next(), Step::Finish(Outcome::Completed { output }));
        assert_eq!((whole.breaks(), whole.replies()), (0, 1));
    }

    #[test]
    fn interrupted_calls_are_answered_by_their_effect() {
        let mut machine = machine();
        reply(&mut machine, vec![call("c0", "bash"), call("c1", "grep")], StopReason::ToolUse);
        let once = intend(&mut machine, 0, "bash", Effect::Once);
        let pure = intend(&mut machine, 1, "grep", Effect::Pure);
        assert!(machine.interrupted().is_empty(), "nothing had begun");
        let started = ToolStarted { key: once, pgid: None, starttime: None, change: None };
        machine.apply(&started.into()).expect("legal");
        let interrupted = machine.interrupted();
        assert_eq!(interrupted.len(), 1);
        let known = interrupted::Known::default();
        let answer = interrupted::answer(1, interrupted[0].clone(), &known).expect("no second run");
        assert_eq!(answer.status, ToolStatus::Unknown);
        machine.apply(&answer.into()).expect("legal");
        assert!(machine.interrupted().is_empty(), "answered once");
        finish(&mut machine, &pure, 1).expect("legal");
        assert!(matches!(machine.next(), Step::CallModel { .. }));
    }

    #[test]
    fn a_command_that_was_announced_is_not_announced_again() {
        let program = Program::Command(Default::default());
        let spawned = AgentSpawned::main(program);
        let mut machine = Machine::new(spawned, 1);
        assert_eq!(machine.next(), Step::RunCommand(None));
        let key = intend(&mut machine, 0, "run", Effect::Once);
        assert!(matches!(machine.next(), Step::RunCommand(Some(call)) if call.key == key));
        finish(&mut machine, &key, 0).expect("legal");
        assert!(matches!(machine.next(), Step::Finish(Outcome::Completed { .. })));
    }

    #[test]
    fn a_request_that_is_too_long_is_summarised_once() {
        for kind in [FailureKind::ContextOverflow, FailureKind::RequestTooLarge] {
            let mut machine = machine();
            reply(&mut machine, vec![call("c0", "grep")], StopReason::ToolUse);
            let key = intend(&mut machine, 0, "grep", Effect::Pure);
            finish(&mut machine, &key, 0).expect("legal");
            machine.apply(&TurnStarted::new(2, None).into()).expect("legal");
            machine.apply(&too_long(2, kind)).expect("legal");
            assert!(matches!(machine.next(), Step::Compact { .. }));
            let failed = crate::context::CompactionFailed {
                unsettled: None,
                reason: "no".to_owned(),
                blocked: false,
                spent: None,
                cut: false,
            };
            machine.apply(&failed.into()).expect("legal");
            assert!(matches!(machine.next(), Step::CallModel { turn: 3, .. }));
            machine.apply(&TurnStarted::new(3, None).into()).expect("legal");
            machine.apply(&too_long(3, kind)).expect("legal");
            assert_eq!(failure_kind(&machine), kind);
        }
    }

    #[test]
    fn a_prompt_that_is_too_large_alone_fails_at_once() {
        for kind in [FailureKind::ContextOverflow, FailureKind::RequestTooLarge] {
            let mut machine = machine();
            machine.apply(&TurnStarted::new(1, None).into()).expect("legal");
            machine.apply(&too_long(1, kind)).expect("legal");
            assert_eq!(failure_kind(&machine), kind);
            let Step::Finish(Outcome::Failed { failure, .. }) = machine.next() else { panic!() };
            assert!(failure.message.starts_with("too long; the prompt alone"), "{failure:?}");
        }
    }

    fn too_long(turn: u32, kind: FailureKind) -> Event {
        Event::from(ModelFailed {
            unsettled: None,
            turn,
            attempt: 1,
            failure: Failure::new(kind, "too long"),
            retry_in_ms: None,
            next_model: None,
            context_tokens: None,
            window_tokens: None,
            spent: None,
            usage_source: Default::default(),
            cut: false,
        })
    }

    #[test]
    fn the_compact_tool_takes_effect_after_its_turn() {
        let mut machine = machine();
        reply(&mut machine, vec![call("c0", "compact"), call("c1", "grep")], StopReason::ToolUse);
        let first = intend(&mut machine, 0, "compact", Effect::Pure);
        let second = intend(&mut machine, 1, "grep", Effect::Pure);
        finish(&mut machine, &first, 0).expect("legal");
        assert!(matches!(machine.next(), Step::RunTools(_)));
        finish(&mut machine, &second, 1).expect("legal");
        assert!(matches!(machine.next(), Step::Compact { focus: Some(f), .. } if f == "x"));
    }

    #[test]
    fn a_pause_is_followed_by_an_answer_or_is_a_failure() {
        let mut answered = machine();
        reply(&mut answered, text("a"), StopReason::PauseTurn);
        reply(&mut answered, text("b"), StopReason::EndTurn);
        assert!(matches!(answered.next(), Step::Finish(Outcome::Completed { .. })));
        let mut again = machine();
        reply(&mut again, text("a"), StopReason::PauseTurn);
        reply(&mut again, text("b"), StopReason::PauseTurn);
        assert_eq!(failure_kind(&again), FailureKind::ServerError);
        let mut called = machine();
        reply(&mut called, text("a"), StopReason::PauseTurn);
        reply(&mut called, vec![call("c0", "bash")], StopReason::ToolUse);
        intend(&mut called, 0, "bash", Effect::Once);
        assert_eq!(failure_kind(&called), FailureKind::ServerError);
        assert_eq!(called.closings().len(), 1);
    }

    #[test]
    fn illegal_events_are_refused() {
        let mut machine = machine();
        let key = CallKey::derive(
            crate::id::RunId::from(uuid::Uuid::now_v7()),
            &crate::id::AgentId::from_text("a"),
            1,
            0,
            "x",
            "",
        );
        assert!(finish(&mut machine, &key, 0).is_err());
        let started = |turn| Event::from(TurnStarted::new(turn, None));
        machine.apply(&started(3)).expect("legal");
        assert!(machine.apply(&started(3)).is_err());
    }

    #[test]
    fn the_message_of_a_round_is_a_request_and_joins_the_conversation_once() {
        let mut machine = machine();
        reply(&mut machine, text("one "), StopReason::MaxTokens);
        reply(&mut machine, text("two"), StopReason::EndTurn);
        end(&mut machine, Outcome::Completed { output: Output::whole("one two") });
        machine.apply(&restarted(Some("mend it")).into()).expect("legal");
        let Step::CallModel { turn: 3, message: Some(message) } = machine.next() else {
            panic!("{:?}", machine.next())
        };
        assert!(message.as_str().contains("mend it"));
        // Cancelled before its first turn, it still has to hear it when its task is retried.
        end(&mut machine, Outcome::Cancelled { reason: "enough".to_owned() });
        machine.apply(&restarted(None).into()).expect("legal");
        reply(&mut machine, text("three"), StopReason::EndTurn);
        let requests = machine.view().slots().filter(|slot| slot.entry.is_request).count();
        assert_eq!(requests, 2, "the prompt and the message of the round");
        let output = Output::whole("three");
        assert_eq!(machine.next(), Step::Finish(Outcome::Completed { output }));
        assert!(machine.joining().is_none());
    }

    #[test]
    fn a_command_runs_again_in_its_next_round() {
        let program = Program::Command(Default::default());
        let mut machine = Machine::new(AgentSpawned::main(program), 1);
        let key = intend(&mut machine, 0, "run", Effect::Once);
        finish(&mut machine, &key, 0).expect("legal");
        let Step::Finish(outcome) = machine.next() else { panic!("{:?}", machine.next()) };
        end(&mut machine, outcome);
        machine.apply(&restarted(Some("")).into()).expect("legal");
        assert_eq!(machine.next(), Step::RunCommand(None));
        assert_eq!(machine.last_output().map(|output| output.text.as_str()), Some("done"));
    }

    #[test]
    fn a_fragment_is_no_answer_and_a_retry_does_not_repeat_an_earlier_text() {
        // The answer was cut, and the model has nothing to add.
        let mut cut = machine();
        reply(&mut cut, text("I will now"), StopReason::Interrupted("cut".to_owned()));
        reply(&mut cut, vec![], StopReason::EndTurn);
        reply(&mut cut, vec![], StopReason::EndTurn);
        assert_eq!(failure_kind(&cut), FailureKind::EmptyAnswer);
        // After its end it continues: the text of the earlier turn is no part of the answer.
        let mut ended = machine();
        reply(
            &mut ended,
            vec![Block::Text("one".to_owned()), call("c0", "grep")],
            StopReason::ToolUse,
        );
        let key = intend(&mut ended, 0, "grep", Effect::Pure);
        finish(&mut ended, &key, 0).expect("legal");
        let outcome = ended.failed(FailureKind::Timeout, "too slow");
        end(&mut ended, outcome);
        let restarted = restarted(None);
        ended.apply(&restarted.into()).expect("legal");
        reply(&mut ended, text("done"), StopReason::EndTurn);
        let Step::Finish(Outcome::Completed { output }) = ended.next() else {
            panic!("{:?}", ended.next())
        };
        assert_eq!(output.text, "done");
    }
}
