//! Replays a conversation and those of its sub-agents under several presets at once, so that each is read once.

use std::ops::AddAssign;

use super::files;
use super::own::{Contender, Terms};
use super::source::{Source, replaying};
use crate::cli::locate::Project;
use crate::cli::paint;
use crate::context::laboratory::asker::{Answers, Asker};
use crate::context::laboratory::facts::Facts;
use crate::context::laboratory::replay::Replay;
use crate::context::laboratory::score::{Said, Score, Scorer};
use crate::conversation::{Billed, History};
use crate::exit::Exit;
use crate::message::Role;

/// The cost of a preset and what it keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub score: Score,
    pub answers: Answers,
}

impl AddAssign for Kept {
    fn add_assign(&mut self, other: Self) {
        self.score += other.score;
        self.answers += other.answers;
    }
}

/// Costs that a recording reports of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recording {
    /// Number of replies that report their usage.
    pub replies: u64,
    pub billed: Billed,
    /// The largest request, in tokens.
    pub largest: u64,
}

impl AddAssign for Recording {
    fn add_assign(&mut self, other: Self) {
        self.replies += other.replies;
        self.billed += other.billed;
        self.largest = self.largest.max(other.largest);
    }
}

/// One conversation, or several.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Number of conversations.
    pub conversations: u64,
    /// Cost of each contender and what it keeps, in their order.
    pub kept: Vec<Kept>,
    pub recorded: Recording,
}

impl AddAssign<&Self> for Part {
    fn add_assign(&mut self, other: &Self) {
        self.conversations += other.conversations;
        self.kept.resize(self.kept.len().max(other.kept.len()), Kept::default());
        for (sum, kept) in self.kept.iter_mut().zip(&other.kept) {
            *sum += *kept;
        }
        self.recorded += other.recorded;
    }
}

impl Part {
    /// Returns the number of replies.
    pub(super) fn replies(&self) -> u64 {
        self.kept.first().map_or(0, |kept| kept.score.turns)
    }
}

/// The outcome for one source, or for several.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Everything, sub-agents included.
    pub all: Part,
    /// The sub-agents alone.
    pub sub_agents: Part,
}

impl AddAssign<&Self> for Outcome {
    fn add_assign(&mut self, other: &Self) {
        self.all += &other.all;
        self.sub_agents += &other.sub_agents;
    }
}

/// The outcome for all sources of a command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    /// Number of sources that were replayed.
    pub sources: usize,
    pub outcome: Outcome,
    /// The exit code, if something could not be read.
    pub wrong: Option<Exit>,
}

/// Replays each source that these names stand for and shows its outcome. One that cannot be read does not
/// prevent the others.
pub(super) fn each(
    project: &Project,
    names: &[String],
    terms: &Terms,
    contenders: &[Contender],
    mut show: impl FnMut(&str, &Outcome) -> Result<(), Exit>,
) -> Result<Total, Exit> {
    let (found, wrong) = files::find(names);
    let mut total = Total { wrong, ..Total::default() };
    for found in &found {
        let replayed = paint::working(&replaying(&found.name), |progress| {
            let mut source = Source::open_with(project, found, History::Whole, progress)?;
            run(&mut source, terms, contenders)
        });
        match replayed {
            Ok((outcome, incomplete)) => {
                show(&found.name, &outcome)?;
                total.sources += 1;
                total.outcome += &outcome;
                total.wrong = incomplete.or(total.wrong);
            }
            Err(exit) => total.wrong = Some(exit),
        }
    }
    Ok(total)
}

/// Replays the source with each contender. The exit code is set if the conversations of some sub-agents could
/// not be read: the others count.
fn run(
    source: &mut Source,
    terms: &Terms,
    contenders: &[Contender],
) -> Result<(Outcome, Option<Exit>), Exit> {
    let mut all = replay(source, terms, contenders)?;
    if all.replies() == 0 {
        return Err(source.unanswered());
    }
    let (mut sub_agents, mut wrong) = (Part::default(), None);
    while let Some(next) = source.next_sub_agent() {
        match next.and_then(|()| replay(source, terms, contenders)) {
            Ok(part) if part.replies() == 0 => {}
            Ok(part) => sub_agents += &part,
            Err(exit) => wrong = Some(exit),
        }
    }
    source.tell_skipped();
    all += &sub_agents;
    Ok((Outcome { all, sub_agents }, wrong))
}

fn replay(source: &mut Source, terms: &Terms, contenders: &[Contender]) -> Result<Part, Exit> {
    let name = source.name.clone();
    let around = terms.around(&name, source);
    let racer = |preset| (Replay::new(preset, around), Scorer::new(around.price), Asker::default());
    let mut races: Vec<_> = contenders.iter().map(|contender| racer(&contender.preset)).collect();
    let (mut said, mut facts, mut recorded) =
        (Said::default(), Facts::default(), Recording::default());
    let mut number = 0;
    while let Some(message) = source.next()? {
        if message.role == Role::Assistant {
            let used = said.used_by(&message.json);
            for (replay, scorer, asker) in &mut races {
                let turn = replay.before_call();
                let system = source.system.text(replay.view());
                let done = (turn.edits.len(), turn.summary_calls.as_slice());
                scorer.request(replay.view(), &system, done, &said, &used);
                asker.request(replay.view(), &system, &facts, &message.json);
            }
        }
        if let Some(billed) = message.billed {
            let largest = billed.usage.context();
            recorded += Recording { replies: 1, billed, largest };
        }
        said.push(&message.json);
        facts.push(&message.json);
        for (replay, ..) in &mut races {
            let pushed = replay.push(message.json.clone());
            pushed.map_err(|error| source.unfit(number, &error))?;
        }
        number += 1;
    }
    let kept = races.iter().map(|(_, scorer, asker)| {
        let (score, answers) = (scorer.score(), asker.answers());
        Kept { score, answers }
    });
    Ok(Part { conversations: 1, kept: kept.collect(), recorded })
}
