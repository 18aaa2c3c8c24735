//! What is remembered of an agent's latest calls.
//!
//! Pure and bounded: a window of facts, and the fingerprints of a few times as many, by which news is told from what
//! was known.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::fingerprint::Fingerprint;
use crate::spec::loops::LoopSpec;
use crate::turn::Prints;

/// How many times more fingerprints are remembered than facts: what was seen before a compaction is no news after it.
pub(super) const REMEMBERED: usize = 4;

/// The same for contents of files.
pub(super) const CONTENTS: usize = 2;

/// The most turns that are named.
pub(super) const SHOWN: usize = 8;

/// The least turns between two compactions that count.
const LEAST_TURNS: u32 = 2;

/// Half a turn without news, in the measure of [`Memory::still`].
pub(super) const HALF: u32 = 1;

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Name of the tool.
    pub tool: Arc<str>,
    /// Its fingerprints.
    pub prints: Prints,
    /// True if it failed.
    pub is_error: bool,
    /// True if its tool may change something that no record tells of, as a command may.
    pub may_change: bool,
    /// True if it gave a job to a child agent.
    pub delegates: bool,
    /// The file that it wrote, if it wrote one.
    pub written: Option<Written>,
}

/// A file that a call wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its path.
    pub path: Fingerprint,
    /// Its content before; absent if there was no file.
    pub pre: Option<Fingerprint>,
    /// Its content after.
    pub post: Fingerprint,
}

/// What a call brought, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum News {
    /// Nothing.
    Nothing,
    /// A call that was not made before, which found nothing.
    Tried,
    /// A result that was not known.
    Learned,
    /// A file has a content that it has not had before, or a new command succeeded without a word, as `mv` does.
    Changed,
}

/// A call, as the rules see it.
#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub(super) turn: u32,
    pub(super) call: Ended,
    pub(super) news: News,
}

impl Fact {
    /// Returns true if both are the same call with the same result.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        self.pair() == other.pair()
    }

    pub(super) fn pair(&self) -> (Fingerprint, Fingerprint) {
        (self.call.prints.fp, self.call.prints.rp)
    }
}

/// Something that happened in the same way several times in a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) print: Option<Fingerprint>,
    /// The turns in which it happened; as many as matter.
    pub(super) turns: Vec<u32>,
    pub(super) count: u32,
    /// True if it happened last.
    pub(super) is_last: bool,
}

impl Row {
    fn note(&mut self, turn: u32, print: Fingerprint) {
        if self.print != Some(print) {
            *self = Self { print: Some(print), ..Self::default() };
        }
        self.count += 1;
        self.is_last = true;
        self.turns.push(turn);
        let surplus = self.turns.len().saturating_sub(SHOWN);
        self.turns.drain(..surplus);
    }
}

/// The memory of one agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) facts: VecDeque<Fact>,
    results: Known,
    calls: Known,
    contents: Known,
    /// Number of the newest facts that belong to the last turn.
    pub(super) latest: usize,
    /// Half turns in a row without news.
    pub(super) still: u32,
    /// The turns without news in a row began after this one.
    pub(super) news_in: u32,
    /// Compactions in a row without news in between.
    pub(super) compactions: u32,
    /// True if the last of them came before the last turn, which brought no news either.
    pub(super) is_compacted: bool,
    /// True if one came after the last turn.
    compacts: bool,
    /// Turns since the last compaction, and if they brought news.
    since_compaction: (u32, bool),
    pub(super) rounds: Row,
    pub(super) cuts: Row,
}

/// The newest of many fingerprints.
#[derive(Clone, Debug, Default)]
struct Known(VecDeque<Fingerprint>);

impl Known {
    /// Takes in a fingerprint; returns true if it was not known.
    fn is_new(&mut self, print: Fingerprint, most: usize) -> bool {
        if self.0.contains(&print) {
            return false;
        }
        if self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back(print);
        true
    }
}

impl Memory {
    pub(super) fn turn_ended(&mut self, turn: u32, calls: Vec<Ended>, spec: &LoopSpec) {
        (self.rounds.is_last, self.cuts.is_last) = (false, false);
        self.latest = 0;
        let mut brought: Option<News> = None;
        for call in calls {
            let news = self.news(&call, spec.window);
            brought = brought.max(Some(news));
            let fact = Fact { turn, call, news };
            // Equal calls of one turn, such as those of a vote, are made at once: none of them comes after a result.
            let is_twin =
                self.facts.range(self.facts.len() - self.latest..).any(|f| f.repeats(&fact));
            if !is_twin {
                self.facts.push_back(fact);
                self.latest += 1;
            }
        }
        let surplus = self.facts.len().saturating_sub(spec.window.max(self.latest));
        self.facts.drain(..surplus);
        match brought {
            // Its calls all waited for something, or have no result of their own.
            None => {}
            Some(News::Changed | News::Learned) => (self.still, self.news_in) = (0, turn),
            Some(News::Tried) => self.still += HALF,
            Some(News::Nothing) => self.still += 2 * HALF,
        }
        let is_news = matches!(brought, Some(News::Changed | News::Learned));
        self.is_compacted = std::mem::take(&mut self.compacts) && !is_news;
        if brought.is_some() {
            let (turns, had_news) = self.since_compaction;
            self.since_compaction = (turns + 1, had_news || is_news);
        }
    }

    fn news(&mut self, call: &Ended, window: usize) -> News {
        let Prints { fp, rp, ep, bare, .. } = call.prints;
        let most = window.saturating_mul(REMEMBERED);
        let call_is_new = self.calls.is_new(fp, most);
        let mut result_is_new = self.results.is_new(rp, most);
        if let (true, Some(ep)) = (call_is_new, ep) {
            // That another call failed with a known error is no news, whatever arguments the error names.
            result_is_new &= self.results.is_new(ep, most);
        }
        let content_is_new = call.written.is_some_and(|Written { path, pre, post }| {
            let most = window.saturating_mul(CONTENTS);
            if let Some(pre) = pre {
                self.contents.is_new(Fingerprint::of_pair(path, pre), most);
            }
            self.contents.is_new(Fingerprint::of_pair(path, post), most)
        });
        match (content_is_new, result_is_new, call_is_new) {
            (true, _, _) => News::Changed,
            (_, true, _) => News::Learned,
            (_, _, true) if !bare => News::Learned,
            (_, _, true) if call.may_change && !call.is_error && rp.is_of_silence() => {
                News::Changed
            }
            (_, _, true) => News::Tried,
            (_, _, false) => News::Nothing,
        }
    }

    pub(super) fn compacted(&mut self) {
        let (turns, had_news) = self.since_compaction;
        // Several layers may edit a view before one turn, and a small window is compacted before each.
        if turns < LEAST_TURNS && self.compactions > 0 {
            return;
        }
        self.since_compaction = (0, false);
        self.compactions = if had_news { 1 } else { self.compactions + 1 };
        self.compacts = true;
    }

    pub(super) fn refused(&mut self, turn: u32, reason: Fingerprint) {
        self.latest = 0;
        self.cuts.is_last = false;
        self.rounds.note(turn, reason);
    }

    pub(super) fn cut(&mut self, turn: u32, text: Fingerprint) {
        self.latest = 0;
        self.rounds.is_last = false;
        self.cuts.note(turn, text);
    }

    /// Forgets everything that counts towards a loop; what is known stays known.
    pub(super) fn forget_counts(&mut self) {
        self.facts.clear();
        (self.latest, self.still) = (0, 0);
        self.compactions = 0;
        (self.is_compacted, self.compacts) = (false, false);
        self.since_compaction = (0, true);
        (self.rounds, self.cuts) = Default::default();
    }
}
