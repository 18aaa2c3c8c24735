//! Runs conversations through presets, two presets at a time.

use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use callsheet::context::laboratory::asker::{Answers, Asker};
use callsheet::context::laboratory::facts::Facts;
use callsheet::context::laboratory::replay::Replay;
use callsheet::context::laboratory::score::{Said, Score, Scorer};
use callsheet::context::layers::preset::Preset;
use callsheet::context::layers::{Surroundings, Window};
use callsheet::conversation::{self, History};
use callsheet::message::{Block, Json, Role};

use crate::work::Conversation;

/// The window that requests must fit, in tokens.
pub(crate) const WINDOW: u64 = 50_000;
/// Number of presets that run at the same time.
const THREADS: usize = 2;

/// The cost of a preset and the share that it kept, over all conversations of a class.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Its place among the presets that ran.
    pub(crate) place: usize,
    pub(crate) preset: String,
    pub(crate) score: Score,
    pub(crate) answers: Answers,
}

/// Returns the outcomes of these presets, in order. Presets that could not begin by `deadline` are
/// missing.
pub(crate) fn run(presets: &[Preset], class: &[Conversation], deadline: Instant) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        while Instant::now() < deadline {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(preset) = presets.get(place) else { break };
            let (mut score, mut answers) = (Score::default(), Answers::default());
            for conversation in class {
                let (scored, answered) = score_of(preset, conversation);
                score += scored;
                answers += answered;
            }
            let outcome = Outcome { place, preset: preset.name.clone(), score, answers };
            outcomes.lock().expect("no thread panicked").push(outcome);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let mut outcomes = outcomes.into_inner().expect("no thread panicked");
    outcomes.sort_by_key(|outcome| outcome.place);
    outcomes
}

fn score_of(preset: &Preset, conversation: &Conversation) -> (Score, Answers) {
    let overhead = conversation.system.chars().count().div_ceil(4) as u64;
    let window = Window { tokens: WINDOW, output: 0, overhead };
    let around = Surroundings::new("transcript", "results", window);
    let mut replay = Replay::new(preset, around);
    let (mut said, mut scorer) = (Said::default(), Scorer::new(around.price));
    let (mut facts, mut asker) = (Facts::default(), Asker::default());
    for json in &conversation.messages {
        if json.to_value()["role"] == Role::Assistant.as_str() {
            let used = said.used_by(json);
            let turn = replay.before_call();
            let added = replay.view().system().unwrap_or_default();
            let system = format!("{}{added}", conversation.system);
            let done = (turn.edits.len(), turn.summary_calls.as_slice());
            scorer.request(replay.view(), &system, done, &said, &used);
            asker.request(replay.view(), &system, &facts, json);
        }
        said.push(json);
        facts.push(json);
        replay.push(json.clone()).expect("what was made or read is a message");
    }
    (scorer.score(), asker.answers())
}

/// Reads a conversation from a file, whatever its format.
pub(crate) fn read(path: &Path) -> Result<Conversation, Box<dyn Error>> {
    let wrong = |error| format!("{}: {error}", path.display());
    let recorded = conversation::Conversation::open(path, History::Whole).map_err(wrong)?;
    let system = recorded.system().map(text).unwrap_or_default();
    let messages = recorded.map(|message| message.map(|message| message.json).map_err(wrong));
    Ok(Conversation { system, messages: messages.collect::<Result<_, _>>()? })
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
