//! Runs conversations through presets: each conversation once, with all presets side by side.

use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use callsheet::context::laboratory::asker::{Answers, Asker};
use callsheet::context::laboratory::facts::Facts;
use callsheet::context::laboratory::replay::Replay;
use callsheet::context::laboratory::score::{Said, Score, Scorer};
use callsheet::context::laboratory::strict::Checker;
use callsheet::context::layers::preset::Preset;
use callsheet::context::layers::{Surroundings, Window};
use callsheet::conversation::{self, History};
use callsheet::message::{Block, Json, Role};

use crate::made::Conversation;

/// Number of conversations that run at the same time.
const THREADS: usize = 2;

/// Cost of a preset over a conversation, and what its views kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) score: Score,
    pub(crate) answers: Answers,
    /// Number of views that break a rule.
    pub(crate) invalid: u64,
}

/// Returns the outcomes of each conversation: one for each preset, in order.
pub(crate) fn run(
    presets: &[Preset],
    conversations: &[Conversation],
    window: u64,
) -> Vec<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Vec::new(); conversations.len()]);
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(conversation) = conversations.get(place) else { break };
            let of_this = race(presets, conversation, window);
            outcomes.lock().expect("no thread panicked")[place] = of_this;
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    outcomes.into_inner().expect("no thread panicked")
}

/// Returns where views go that are sent at this window.
pub(crate) fn around(conversation: &Conversation, window: u64) -> Surroundings<'static> {
    let overhead = conversation.system.chars().count().div_ceil(4) as u64;
    Surroundings::new("transcript", "results", Window { tokens: window, output: 0, overhead })
}

fn race(presets: &[Preset], conversation: &Conversation, window: u64) -> Vec<Outcome> {
    let around = around(conversation, window);
    let racer = |preset| (Replay::new(preset, around), Scorer::new(around.price), Asker::default());
    let mut races: Vec<_> =
        presets.iter().map(|preset| (racer(preset), Checker::default())).collect();
    let (mut said, mut facts) = (Said::default(), Facts::default());
    for json in &conversation.messages {
        let is_reply = json.to_value()["role"] == Role::Assistant.as_str();
        let used = if is_reply { said.used_by(json) } else { Default::default() };
        for ((replay, scorer, asker), checker) in &mut races {
            if is_reply {
                let turn = replay.before_call();
                let added = replay.view().system().unwrap_or_default();
                let system = format!("{}{added}", conversation.system);
                let done = (turn.edits.len(), turn.summary_calls.as_slice());
                scorer.request(replay.view(), &system, done, &said, &used);
                asker.request(replay.view(), &system, &facts, json);
                checker.request(replay.view(), &system, &conversation.system);
            }
            checker.push(json);
            replay.push(json.clone()).expect("what was made or read is a message");
        }
        said.push(json);
        facts.push(json);
    }
    let outcome = |((_, scorer, asker), checker): ((Replay<'_>, Scorer, Asker), Checker)| Outcome {
        score: scorer.score(),
        answers: asker.answers(),
        invalid: checker.invalid(),
    };
    races.into_iter().map(outcome).collect()
}

/// Reads a conversation from a file, whatever its format.
pub(crate) fn read(path: &Path) -> Result<Conversation, Box<dyn Error>> {
    let wrong = |error| format!("{}: {error}", path.display());
    let recorded = conversation::Conversation::open(path, History::Whole).map_err(wrong)?;
    let system = recorded.system().map(text).unwrap_or_default();
    let messages = recorded.map(|message| message.map(|message| message.json).map_err(wrong));
    let name = path.display().to_string();
    Ok(Conversation { name, system, messages: messages.collect::<Result<_, _>>()? })
}

/// Returns the text of a system prompt, which is a text or blocks of text.
fn text(system: &Json) -> String {
    let Ok(blocks) = system.decode::<Vec<Block>>() else {
        return system.decode().unwrap_or_default();
    };
    let texts = blocks.into_iter().filter_map(|block| match block {
        Block::Text(text) => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
