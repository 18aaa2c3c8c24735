//! Finds the messages of the conversations in the index of a recording: it finds the last entry of each,
//! walks the chain to its root, and joins the entries of a message.

use std::collections::{HashMap, HashSet, VecDeque};

use super::index::{Entry, Index, Number, Preserved};
use crate::conversation::{Billed, History, Position};
use crate::message::Role;

/// A message, as the list of its entries.
#[derive(Debug)]
pub(super) struct Joined {
    pub role: Role,
    /// The positions of the entries, in their order.
    pub entries: Vec<Position>,
    pub billed: Option<Billed>,
}

/// The conversations of a recording, each with its oldest message first.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    /// The conversation with the person; if there is none, that of the latest child agent.
    pub main: VecDeque<Joined>,
    /// The conversations of child agents.
    pub sides: VecDeque<VecDeque<Joined>>,
    /// Number of entries that do not say which entry of the file comes before them, and were put behind the
    /// one before them in the file.
    pub relinked: u64,
}

/// Returns the conversations of a recording.
pub(super) fn conversations(index: &mut Index, history: History) -> Conversations {
    let relinked = resolve(index, history);
    let results_of = results_by_call(index);
    let chain = leaf(index).map(|leaf| walk(index, leaf)).unwrap_or_default();
    let sides = side_chains(index, &chain);
    let sides = sides.iter().map(|chain| join(index, chain, &results_of, history)).collect();
    Conversations { main: join(index, &chain, &results_of, history), sides, relinked }
}

/// Corrects the `parent` of each entry where the recorded one is missing or a compaction moved
/// entries. Returns the number of entries that follow the one before them in the file.
fn resolve(index: &mut Index, history: History) -> u64 {
    let is_there: Vec<_> = index.entries.iter().map(Option::is_some).collect();
    let there = |number: &Number| is_there.get(*number as usize) == Some(&true);
    let mut in_file: Vec<_> =
        index.all().map(|(number, entry)| (entry.place.byte, number)).collect();
    in_file.sort_unstable();
    let has_links = index.all().any(|(_, entry)| entry.parent.as_ref().is_some_and(there));
    // The last entry of the conversation with the person, and of each child agent.
    let mut last: HashMap<(bool, Option<usize>), Number> = HashMap::new();
    let mut relinked = 0;
    for (_, number) in in_file {
        let Some(Some(entry)) = index.entries.get_mut(number as usize) else { continue };
        let is_lost = entry.parent.is_some_and(|parent| !there(&parent));
        if is_lost {
            entry.parent = entry.before_broken;
        }
        if history == History::Whole {
            entry.parent = entry.parent.or(entry.logical_parent.filter(there));
        }
        if !speaks(entry) {
            continue;
        }
        let before = last.insert((entry.is_sidechain, entry.agent), number);
        let is_root = entry.can_begin && entry.is_linked && !is_lost && has_links;
        // A session that goes on after a compaction begins with its summary.
        let begins = is_root || (entry.is_summary && history == History::SinceCompaction);
        if entry.parent.is_none() && !begins && !(is_lost && entry.is_stray_result) {
            entry.parent = before;
            relinked += u64::from(before.is_some());
        }
    }
    if history == History::SinceCompaction {
        for preserved in std::mem::take(&mut index.preserved) {
            relink(index, preserved);
        }
    }
    relinked
}

/// Moves the messages that a compaction preserved behind their anchor, and the entries that
/// followed the anchor behind them.
fn relink(index: &mut Index, preserved: Preserved) {
    let (anchor, head, tail) = match preserved {
        Preserved::Messages { anchor, kept } => {
            let kept: Vec<_> = kept.into_iter().filter(|n| index.entry(*n).is_some()).collect();
            for pair in kept.windows(2) {
                set_parent(index, pair[1], pair[0]);
            }
            let (Some(head), Some(tail)) = (kept.first(), kept.last()) else { return };
            (anchor, *head, *tail)
        }
        Preserved::Segment { anchor, head, tail } => (anchor, head, tail),
    };
    if [anchor, head, tail].into_iter().any(|number| index.entry(number).is_none()) {
        return;
    }
    for entry in index.entries.iter_mut().flatten() {
        if entry.parent == Some(anchor) {
            entry.parent = Some(tail);
        }
    }
    set_parent(index, head, anchor);
}

fn set_parent(index: &mut Index, number: Number, parent: Number) {
    if let Some(Some(entry)) = index.entries.get_mut(number as usize) {
        entry.parent = Some(parent);
    }
}

/// Returns the last entry of the conversation: the latest entry of a user or an assistant that no
/// other such entry follows. Entries outside the main conversation count only if there is no other.
fn leaf(index: &Index) -> Option<Number> {
    let parents: HashSet<_> = index.all().filter_map(|(_, entry)| entry.parent).collect();
    let ends = || index.all().map(|(number, _)| number).filter(|number| !parents.contains(number));
    let place = |number: &Number| index.entry(*number).map(|entry| entry.place.byte);
    let latest = |is_wanted: fn(&Entry) -> bool| {
        // An end whose path joins that of an earlier end has the same leaf, so the walk stops
        // there.
        let mut seen = HashSet::new();
        ends().filter_map(|end| nearest(index, end, is_wanted, &mut seen)).max_by_key(place)
    };
    // If the entries follow each other in a circle, no entry is an end.
    let any = || index.all().filter(|(_, e)| speaks(e)).map(|(number, _)| number).max_by_key(place);
    latest(|entry| speaks(entry) && entry.is_main).or_else(|| latest(speaks)).or_else(any)
}

fn speaks(entry: &Entry) -> bool {
    entry.speaker.is_some()
}

/// Returns the nearest wanted entry on the way from `at` to the root; `None` if the way was walked
/// before.
fn nearest(
    index: &Index,
    mut at: Number,
    is_wanted: fn(&Entry) -> bool,
    seen: &mut HashSet<Number>,
) -> Option<Number> {
    while seen.insert(at) {
        let entry = index.entry(at)?;
        if is_wanted(entry) {
            return Some(at);
        }
        at = entry.parent?;
    }
    None
}

/// Returns the chains of child agents that are not `main`, each from its first entry to its last one.
fn side_chains(index: &Index, main: &[Number]) -> Vec<Vec<Number>> {
    let is_side = |number: &Number| index.entry(*number).is_some_and(|entry| entry.is_sidechain);
    let mut seen: HashSet<_> = main.iter().copied().collect();
    let parents: HashSet<_> = index.all().filter_map(|(_, entry)| entry.parent).collect();
    let ends =
        index.all().filter(|(number, entry)| entry.is_sidechain && !parents.contains(number));
    let mut ends: Vec<_> = ends.map(|(number, entry)| (entry.place.byte, number)).collect();
    // The latest end of a chain first: an earlier one is a branch that was left.
    ends.sort_unstable_by(|a, b| b.cmp(a));
    let mut chains: Vec<Vec<Number>> = Vec::new();
    for (_, end) in ends {
        let (mut chain, mut at, mut is_branch) = (Vec::new(), Some(end), false);
        while let Some(number) = at.filter(is_side) {
            if !seen.insert(number) {
                is_branch = true;
                break;
            }
            chain.push(number);
            at = index.entry(number).and_then(|entry| entry.parent);
        }
        chain.reverse();
        let has_reply = chain
            .iter()
            .filter_map(|number| index.entry(*number))
            .any(|entry| entry.reply.is_some());
        if has_reply && !is_branch {
            chains.push(chain);
        }
    }
    chains.reverse();
    chains
}

/// Returns the user entries with tool results, by the entry that they answer: the nearest parent of
/// a user or an assistant.
fn results_by_call(index: &Index) -> HashMap<Number, Vec<Number>> {
    let mut out: HashMap<_, Vec<_>> = HashMap::new();
    for result in &index.results {
        let parent = index.entry(*result).and_then(|entry| entry.parent);
        let call = parent.and_then(|parent| nearest(index, parent, speaks, &mut HashSet::new()));
        if let Some(call) = call {
            out.entry(call).or_default().push(*result);
        }
    }
    out
}

/// Returns the entries from the root to `leaf`.
fn walk(index: &Index, leaf: Number) -> Vec<Number> {
    let (mut chain, mut seen, mut at) = (Vec::new(), HashSet::new(), Some(leaf));
    while let Some(number) = at.filter(|number| seen.insert(*number)) {
        let Some(entry) = index.entry(number) else { break };
        chain.push(number);
        at = entry.parent;
    }
    chain.reverse();
    chain
}

/// Joins the entries of a chain to messages.
///
/// A chain has only one branch, but parallel calls of one reply are answered in several branches.
/// The other entries of a reply on the chain, and the results that follow them, therefore belong to
/// the conversation as well.
fn join(
    index: &Index,
    chain: &[Number],
    results_of: &HashMap<Number, Vec<Number>>,
    history: History,
) -> VecDeque<Joined> {
    let mut out = VecDeque::new();
    let mut done = HashSet::new();
    for number in chain {
        let Some(entry) = index.entry(*number) else { continue };
        let Some(role) = entry.speaker else { continue };
        if (entry.is_summary && history == History::Whole) || done.contains(number) {
            continue;
        }
        let Some(reply) = entry.reply.map(|place| &index.replies[place]) else {
            done.insert(*number);
            add(&mut out, role, entry.place, None);
            continue;
        };
        let beside = |number: &Number| {
            index.entry(*number).is_some_and(|other| other.is_sidechain == entry.is_sidechain)
        };
        let mut billed = reply.billed;
        let blocks: Vec<_> = reply.entries.iter().copied().filter(beside).collect();
        for block in blocks.iter().filter(|block| done.insert(**block)) {
            let place = index.entry(*block).map_or(entry.place, |entry| entry.place);
            add(&mut out, role, place, billed.take());
        }
        let results = blocks.iter().filter_map(|block| results_of.get(block)).flatten();
        for result in results.filter(|result| beside(result) && done.insert(**result)) {
            let place = index.entry(*result).map_or(entry.place, |entry| entry.place);
            add(&mut out, Role::User, place, None);
        }
    }
    out
}

/// Adds an entry to the last message if both have the same role, and else as a new message.
fn add(out: &mut VecDeque<Joined>, role: Role, place: Position, billed: Option<Billed>) {
    match out.back_mut().filter(|last| last.role == role) {
        Some(last) => {
            last.entries.push(place);
            if let Some(billed) = billed {
                *last.billed.get_or_insert_default() += billed;
            }
        }
        None => out.push_back(Joined { role, entries: vec![place], billed }),
    }
}
