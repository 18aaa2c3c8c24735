//! Checks of the views of a policy: what a provider would refuse, and what every view must hold word
//! for word.
//!
//! Pure. A view must hold the system prompt, the latest request, the results that the model has not
//! read, and the calls of the last six messages. A message of the conversation that stands as it was
//! needs no reading, so a check costs little.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::score::{blocks, result_text, text};
use crate::context::sending::validity::{self, Rules};
use crate::context::view::{Slot, Standing, View};
use crate::message::{Json, Role};

/// Number of the newest messages whose calls must stand.
const CALL_MESSAGES: usize = 6;
/// Most characters of an unread result that must stand whole.
const RESULT_CHARS: usize = 10_000;
/// Characters of a longer one that must stand.
const PREVIEW_CHARS: usize = 1_000;

/// Checks the views of one policy, one request after the other.
#[derive(Debug, Default)]
pub struct Checker {
    messages: u64,
    newest: VecDeque<Value>,
    /// The latest request: number of its message, and its texts.
    request: Option<(u64, Vec<String>)>,
    /// Whether the texts of the request stand in a slot, by its serial.
    known: HashMap<u64, Vec<bool>>,
    invalid: u64,
}

impl Checker {
    /// Adds the next message of the conversation.
    pub fn push(&mut self, message: &Json) {
        let value = message.to_value();
        if value["role"] == Role::User.as_str() {
            let texts: Vec<_> = match &value["content"] {
                Value::String(text) => vec![text.clone()],
                _ => {
                    let texts = blocks(&value).filter(|block| block["type"] == "text");
                    texts.filter_map(|block| block["text"].as_str()).map(str::to_owned).collect()
                }
            };
            if !texts.is_empty() {
                self.request = Some((self.messages, texts));
                self.known.clear();
            }
        }
        if self.newest.len() == CALL_MESSAGES {
            self.newest.pop_front();
        }
        self.newest.push_back(value);
        self.messages += 1;
    }

    /// Checks the view that is sent now, under a system prompt that must begin with `own_system`.
    pub fn request(&mut self, view: &View, system: &str, own_system: &str) {
        let is_valid = validity::check(view, None, &Rules::default()).is_ok()
            && system.starts_with(own_system)
            && self.holds_request(view)
            && self.holds_results(view)
            && self.holds_calls(view);
        self.invalid += u64::from(!is_valid);
    }

    /// Returns the number of views that broke a rule.
    #[must_use]
    pub fn invalid(&self) -> u64 {
        self.invalid
    }

    fn holds_request(&mut self, view: &View) -> bool {
        let Some((number, texts)) = &self.request else { return true };
        if stands(view, *number) {
            return true;
        }
        let mut held = vec![false; texts.len()];
        for slot in view.slots() {
            let found = self.known.entry(slot.serial).or_insert_with(|| {
                let whole = text(&slot.entry.json.to_value());
                texts.iter().map(|text| whole.contains(text)).collect()
            });
            held.iter_mut().zip(found).for_each(|(held, found)| *held |= *found);
        }
        held.into_iter().all(|held| held)
    }

    fn holds_results(&self, view: &View) -> bool {
        let Some(last) = self.newest.back() else { return true };
        if stands(view, self.messages - 1) {
            return true;
        }
        let results = blocks(last).filter(|block| block["type"] == "tool_result");
        let wanted = results.filter(|block| block["content"].is_string()).map(|block| {
            let result = result_text(block);
            let cut = result.char_indices().nth(PREVIEW_CHARS).map(|(at, _)| at);
            let is_long = result.chars().count() > RESULT_CHARS;
            cut.filter(|_| is_long).map_or(result.clone(), |at| result[..at].to_owned())
        });
        let wanted: Vec<_> = wanted.collect();
        let texts: Vec<_> = view.slots().map(|slot| text(&slot.entry.json.to_value())).collect();
        wanted.iter().all(|wanted| texts.iter().any(|text| text.contains(wanted)))
    }

    fn holds_calls(&self, view: &View) -> bool {
        let first = self.messages - self.newest.len() as u64;
        let mut wanted: HashMap<&str, &Value> = HashMap::new();
        for (number, message) in (first..).zip(&self.newest) {
            if !stands(view, number) {
                let calls = blocks(message).filter(|block| block["type"] == "tool_use");
                wanted.extend(
                    calls.filter_map(|block| Some((block["id"].as_str()?, &block["input"]))),
                );
            }
        }
        for slot in view.slots() {
            if slot.entry.calls.iter().any(|(id, _)| wanted.contains_key(id.as_str())) {
                let message = slot.entry.json.to_value();
                for block in blocks(&message).filter(|block| block["type"] == "tool_use") {
                    let id = block["id"].as_str().unwrap_or_default();
                    if wanted.get(id).is_some_and(|input| **input == block["input"]) {
                        wanted.remove(id);
                    }
                }
            }
        }
        wanted.is_empty()
    }
}

/// Returns true if this message of the conversation stands in the view as it was.
fn stands(view: &View, number: u64) -> bool {
    let is_it = |slot: &&Slot| slot.from == number && slot.to == number + 1;
    let mut found = view.parts().filter(is_it);
    found.any(|slot| slot.standing == Standing::Verbatim)
}

#[cfg(test)]
mod tests;
