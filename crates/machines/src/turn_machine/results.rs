//! Takes the results of tool calls: those that the machine itself acts on, and the message that holds
//! the results of a whole turn.

use super::calls::{self, CallResult, results_message};
use super::facts::Facts;
use super::hand_over::HAND_OVER;
use super::{IllegalEvent, Machine, Phase};
use crate::event::Event;
use crate::message::{Block, Json};
use crate::own_tool::{Compact, OwnCall};
use crate::turn::{Program, ToolFinished, ToolStatus};

impl Machine {
    pub(super) fn finished(
        &mut self,
        finished: &ToolFinished,
        event: &Event,
    ) -> Result<(), IllegalEvent> {
        let illegal =
            |reason: &str| IllegalEvent { event: event.kind(), reason: reason.to_owned() };
        let state = self.calls.get_mut(finished.index as usize);
        let state = state.ok_or_else(|| illegal("the turn has no such call"))?;
        if state.intended.as_ref().is_none_or(|(key, _)| *key != finished.key) {
            return Err(illegal("the call was not intended"));
        }
        if state.result.is_some() {
            return Err(illegal("the call already has a result"));
        }
        let result = state.result.insert(CallResult::of(finished.block.clone()));
        let result = (finished.source, &result.block);
        state.facts = Facts::of(finished, state.callee.call());
        self.shortfalls.count(finished);
        if let Some(file) = &finished.file {
            self.files.note(file);
        }
        let (call, callee) = (&state.call, &state.callee);
        if finished.fails_agent {
            self.fails_for = Some(call.name.clone());
        }
        match (finished.status, callee.call()) {
            (ToolStatus::Ok, Some(OwnCall::Compact(Compact { focus }))) => {
                self.summaries.ask_by_model(focus.clone());
            }
            (ToolStatus::Ok, Some(OwnCall::Snip(snip))) => self.snip = Some(snip.keep),
            (ToolStatus::Ok, Some(OwnCall::GiveUp(why))) => {
                self.gave_up = why.reason().ok().map(str::to_owned);
            }
            _ => {}
        }
        calls::take_stock(&mut self.inventory, &mut self.view, (call, callee), result);
        if self.calls.iter().any(|call| call.result.is_none()) {
            return Ok(());
        }
        if let Program::Command(_) = self.spawned.program {
            self.phase = Phase::Ending(calls::command_outcome(finished));
            return Ok(());
        }
        let calls = std::mem::take(&mut self.calls);
        self.note_calls(&calls);
        let mut results: Vec<_> = calls.into_iter().filter_map(|call| call.result).collect();
        self.phase = match (self.fails_for.take(), self.gave_up.take()) {
            (Some(tool), _) => Phase::Ending(self.failed_for(&tool)),
            (None, Some(reason)) => Phase::Ending(self.given_up(&reason)),
            (None, None) => Phase::Ready,
        };
        if self.hands_over() && self.ends_for.is_none() {
            let block = Block::Text(HAND_OVER.to_owned());
            results.push(CallResult { json: Json::encode(&block), block });
        }
        let (json, message) = results_message(results);
        self.view.push_read(json, &message);
        Ok(())
    }
}
