//! The rules by which a loop is found: each a function of what is remembered. A new rule is a function and a line in
//! [`RULES`].
//!
//! Pure. A rule looks only for loops that the latest turn belongs to. What counts is that nothing is learned: other
//! calls in between change nothing, unless they bring news.

use super::memory::{Fact, HALF, Memory, News, Row, SHOWN, Written};
use super::{FULL, Found};
use crate::fingerprint::Fingerprint;
use crate::spec::loops::LoopSpec;
use crate::turn::LoopRule;

/// The most news between two equal calls with which the second still counts, for half: a status that is asked for
/// now and then beside other work is none.
const LITTLE_NEWS: usize = 3;

/// The longest cycle that is looked for.
const LONGEST_CYCLE: usize = 6;

/// The least different calls that fail with the same error.
const LEAST_CALLS: usize = 3;

type Rule = fn(&Memory, &LoopSpec, &mut Vec<Found>);

/// All rules, in the order in which they explain a loop: the first of several is the one that is told.
const RULES: [Rule; 9] = [spawn, edits, cycle, repeat, error, compaction, stall, rounds, text];

/// Returns the loops to which the latest turn belongs.
pub(super) fn find(memory: &Memory, spec: &LoopSpec) -> Vec<Found> {
    let mut found = Vec::new();
    RULES.iter().for_each(|rule| rule(memory, spec, &mut found));
    found
}

/// The same call gave the same result.
fn repeat(memory: &Memory, spec: &LoopSpec, found: &mut Vec<Found>) {
    for fact in memory.latest().filter(|fact| !fact.call.delegates) {
        let bounds = spec.repeat.map(|times| times * FULL);
        found.extend(repeated(memory, fact, LoopRule::Repeat, bounds));
    }
}

/// The same job was delegated with the same outcome.
fn spawn(memory: &Memory, spec: &LoopSpec, found: &mut Vec<Found>) {
    for fact in memory.latest().filter(|fact| fact.call.delegates) {
        let bounds = [1, 2, 3].map(|more| (spec.spawn + more) * FULL);
        found.extend(repeated(memory, fact, LoopRule::Spawn, bounds));
    }
}

/// Counts the equal calls with equal results up to the latest turn. A result that differed begins a new count.
fn repeated(memory: &Memory, last: &Fact, rule: LoopRule, bounds: [u32; 3]) -> Option<Found> {
    let mut counted = Counted::default();
    let mut facts = memory.facts.iter().rev();
    for fact in facts.by_ref() {
        if fact.repeats(last) {
            counted.add(fact);
        } else if fact.call.prints.fp == last.call.prints.fp {
            // A test that fails now and then gives one of a few results, and may well give one of them in a row.
            counted.is_fickle = facts.any(|fact| fact.repeats(last));
            break;
        } else {
            counted.pass(fact);
        }
    }
    let (fp, rp) = last.pair();
    counted.found(rule, Fingerprint::of_pair(fp, rp), vec![last.call.tool.to_string()], bounds)
}

/// Different calls failed with the same error.
fn error(memory: &Memory, spec: &LoopSpec, found: &mut Vec<Found>) {
    for last in memory.latest() {
        let Some(ep) = last.call.prints.ep else { continue };
        let (mut counted, mut calls) = (Counted::default(), Vec::new());
        for fact in memory.facts.iter().rev() {
            if fact.call.prints.ep != Some(ep) {
                counted.pass(fact);
                continue;
            }
            if !calls.contains(&fact.call.prints.fp) {
                calls.push(fact.call.prints.fp);
            }
            counted.add(fact);
        }
        if calls.len() < LEAST_CALLS {
            continue;
        }
        // Looking for something in many places is no loop yet.
        let bounds = spec.repeat.map(|times| 2 * times * FULL);
        let tools = vec![last.call.tool.to_string()];
        found.extend(counted.found(LoopRule::Error, ep, tools, bounds));
    }
}

/// Occurrences that are counted from the newest to the oldest, with what lies between them.
#[derive(Debug, Default)]
struct Counted {
    points: u32,
    /// True if the result had been the same before it was another one: an occurrence counts for half.
    is_fickle: bool,
    turns: Vec<u32>,
    /// The newest occurrence before which nothing was looked at yet.
    later: Option<Later>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Later {
    /// True if it failed, or is a command: the result depends on what other commands change.
    depends: bool,
    may_pass: bool,
    changed: bool,
    may_have_changed: bool,
    learned: usize,
}

impl Counted {
    /// Takes in an occurrence.
    fn add(&mut self, fact: &Fact) {
        self.points += self.later.map_or(0, Later::points);
        self.turns.push(fact.turn);
        let depends = fact.call.is_error || fact.call.may_change;
        let may_pass = fact.call.prints.passing;
        self.later = Some(Later { depends, may_pass, ..Later::default() });
    }

    /// Takes in another call.
    fn pass(&mut self, fact: &Fact) {
        let Some(later) = &mut self.later else { return };
        match fact.news {
            News::Changed => later.changed = true,
            News::Learned => {
                later.learned += 1;
                later.may_have_changed |= fact.call.may_change;
            }
            News::Tried | News::Nothing => {}
        }
    }

    fn found(
        mut self,
        rule: LoopRule,
        key: Fingerprint,
        tools: Vec<String>,
        bounds: [u32; 3],
    ) -> Option<Found> {
        // The first of all counts in full, whatever lies before it.
        let points = self.points + self.later.map_or(0, |_| FULL);
        let points = if self.is_fickle { points / 2 } else { points };
        if points < bounds[0] {
            return None;
        }
        let mut found = Found::new(rule, key, points, bounds);
        found.circle.times = u32::try_from(self.turns.len()).unwrap_or(u32::MAX);
        self.turns.truncate(SHOWN);
        self.turns.reverse();
        (found.circle.tools, found.circle.turns) = (tools, self.turns);
        Some(found)
    }
}

impl Later {
    /// Returns what an occurrence counts, by what lies between it and the one before. After a change of files, an
    /// equal result is no loop, nor is the same failed test or build after a new command that may have changed some.
    fn points(self) -> u32 {
        let points = match (self.changed, self.learned) {
            (true, _) => 0,
            (false, _) if self.depends && self.may_have_changed => 0,
            (false, 0) => FULL,
            (false, 1..=LITTLE_NEWS) => FULL / 2,
            (false, _) => 0,
        };
        // A network may be there again at the next try.
        if self.may_pass { points / 2 } else { points }
    }
}

/// The same few calls gave the same results in turn.
fn cycle(memory: &Memory, spec: &LoopSpec, found: &mut Vec<Found>) {
    if memory.latest == 0 {
        return;
    }
    let facts = &memory.facts;
    let back = |place: usize| &facts[facts.len() - 1 - place];
    for length in 2..=LONGEST_CYCLE {
        let repeats = |place: &usize| {
            back(*place).repeats(back(place + length)) && back(*place).news == News::Nothing
        };
        let equal = (0..facts.len().saturating_sub(length)).take_while(repeats).count();
        let rounds = u32::try_from(1 + equal / length).unwrap_or(u32::MAX);
        let calls: Vec<_> = (0..length.min(facts.len())).map(back).collect();
        let is_one_call = calls.iter().all(|fact| fact.call.prints.fp == calls[0].call.prints.fp);
        if rounds < spec.cycle || is_one_call {
            continue;
        }
        let pairs = calls.iter().map(|fact| Fingerprint::of_pair(fact.pair().0, fact.pair().1));
        let bounds = [0, 1, 2].map(|more| (spec.cycle + more) * FULL);
        let key = Fingerprint::of_all(pairs);
        let mut cycle = Found::new(LoopRule::Cycle, key, rounds * FULL, bounds);
        cycle.circle.tools = calls.iter().rev().map(|fact| fact.call.tool.to_string()).collect();
        cycle.circle.turns = calls.iter().rev().map(|fact| fact.turn).collect();
        found.push(cycle);
        return;
    }
}

/// A file was changed back to a content that it had before.
fn edits(memory: &Memory, spec: &LoopSpec, found: &mut Vec<Found>) {
    for Written { path, .. } in memory.latest().filter_map(|fact| fact.call.written) {
        let of_file = memory.facts.iter().filter_map(|fact| {
            fact.call.written.filter(|written| written.path == path).map(|w| (fact.turn, w))
        });
        let (mut contents, mut turns, mut returns) = (Vec::new(), Vec::new(), 0);
        for (turn, Written { pre, post, .. }) in of_file {
            if contents.is_empty() {
                contents.extend(pre);
            }
            if Some(post) == pre || contents.last() == Some(&post) {
                continue;
            }
            if contents.contains(&post) {
                returns += 1;
                turns.push(turn);
            }
            contents.push(post);
        }
        let is_return = turns.last() == memory.facts.back().map(|fact| &fact.turn);
        if returns < spec.edits || !is_return {
            continue;
        }
        let bounds = [0, 1, 3].map(|more| (spec.edits + more) * FULL);
        let mut back = Found::new(LoopRule::Edits, path, returns * FULL, bounds);
        back.circle.turns = newest(turns);
        found.push(back);
    }
}

/// Nothing new was learned and nothing changed.
fn stall(memory: &Memory, spec: &LoopSpec, found: &mut Vec<Found>) {
    let turns = memory.still / (2 * HALF);
    if memory.latest == 0 || turns < spec.stall {
        return;
    }
    let bounds = [0, 1, 2].map(|thirds| (spec.stall + thirds * spec.stall.div_ceil(3)) * FULL);
    let since = Fingerprint::of_text(&memory.news_in.to_string());
    found.push(Found::new(LoopRule::Stall, since, turns * FULL, bounds));
}

/// The context was compacted, and nothing new was learned before it was compacted again.
fn compaction(memory: &Memory, _: &LoopSpec, found: &mut Vec<Found>) {
    if memory.is_compacted && memory.compactions >= 2 {
        let (key, bounds) = (Fingerprint::of_text("compaction"), [2, 3, 4].map(|n| n * FULL));
        found.push(Found::new(LoopRule::Compaction, key, memory.compactions * FULL, bounds));
    }
}

/// An answer failed its check in the same way.
fn rounds(memory: &Memory, spec: &LoopSpec, found: &mut Vec<Found>) {
    let bounds = [0, 1, 2].map(|more| (spec.rounds + more) * FULL);
    found.extend(in_a_row(&memory.rounds, LoopRule::Rounds, bounds));
}

/// An answer repeated one text over and over.
fn text(memory: &Memory, _: &LoopSpec, found: &mut Vec<Found>) {
    found.extend(in_a_row(&memory.cuts, LoopRule::Text, [1, 2, 3].map(|n| n * FULL)));
}

fn in_a_row(row: &Row, rule: LoopRule, bounds: [u32; 3]) -> Option<Found> {
    let points = row.count.saturating_mul(FULL);
    if !row.is_last || points < bounds[0] {
        return None;
    }
    let mut found = Found::new(rule, row.print?, points, bounds);
    found.circle.turns.clone_from(&row.turns);
    Some(found)
}

fn newest(mut turns: Vec<u32>) -> Vec<u32> {
    turns.drain(..turns.len().saturating_sub(SHOWN));
    turns
}

impl Memory {
    /// Returns the calls of the latest turn.
    fn latest(&self) -> impl Iterator<Item = &Fact> {
        self.facts.range(self.facts.len() - self.latest.min(self.facts.len())..)
    }
}
