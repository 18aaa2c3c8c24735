//! The figures of a preset over several conversations: bill, what is kept, mean and worst.

use callsheet::context::laboratory::score::Share;
use callsheet::context::layers::preset::Preset;

use crate::race::Outcome;

/// Names of the shares that are kept, in the order of [`Figures::kept`].
pub(crate) const KEPT: [&str; 8] = [
    "recall_old",
    "lines_old",
    "constraints",
    "files",
    "files_whole",
    "outcomes",
    "values",
    "order",
];
/// The documented presets. A bill is a ratio to that of the cheaper of them.
const DOCUMENTED: [&str; 2] = ["three-layer", "four-layer"];

/// A mean and the worst of the conversations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) worst: f64,
}

/// The figures of a preset.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// Bill, as a ratio to that of the cheaper documented preset.
    pub(crate) bill: Option<Spread>,
    /// Bill, as a ratio to that of `off`.
    pub(crate) of_off: Option<Spread>,
    /// Shares that are kept; none where no conversation asked.
    pub(crate) kept: [Option<Spread>; 8],
    /// Number of views that break a rule.
    pub(crate) invalid: u64,
    /// Tokens of the largest view.
    pub(crate) largest: f64,
}

/// The bills to which others are compared, one for each conversation.
#[derive(Debug)]
pub(crate) struct Bases {
    documented: Vec<f64>,
    off: Vec<f64>,
}

/// Returns the presets that give the bases, in the order in which [`Bases::of`] wants them.
pub(crate) fn base_presets() -> Vec<Preset> {
    DOCUMENTED.into_iter().chain(["off"]).filter_map(Preset::named).collect()
}

impl Bases {
    /// Returns the bases from the outcomes of [`base_presets`], which begin at this place.
    pub(crate) fn of(outcomes: &[Vec<Outcome>], place: usize) -> Self {
        let billed = |row: &Vec<Outcome>, at: usize| row[place + at].score.billed;
        let documented = outcomes.iter().map(|row| billed(row, 0).min(billed(row, 1)));
        Self {
            documented: documented.collect(),
            off: outcomes.iter().map(|row| billed(row, 2)).collect(),
        }
    }
}

impl Figures {
    /// Returns the figures of the preset at this place in each row.
    pub(crate) fn of(outcomes: &[Vec<Outcome>], place: usize, bases: &Bases) -> Self {
        let all = || outcomes.iter().map(|row| &row[place]);
        let bill = |bases: &[f64]| {
            spread(all().zip(bases).map(|(outcome, base)| outcome.score.billed / base), f64::max)
        };
        let kept =
            |at: usize| spread(all().filter_map(|outcome| shares(outcome)[at].ratio()), f64::min);
        Self {
            bill: bill(&bases.documented),
            of_off: bill(&bases.off),
            kept: std::array::from_fn(kept),
            invalid: all().map(|outcome| outcome.invalid).sum(),
            largest: all().map(|outcome| outcome.score.largest).fold(0.0, f64::max),
        }
    }

    /// Returns the figures over several kinds: the means of their means, and the worst of all.
    pub(crate) fn over<'a>(kinds: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let over = |of: &dyn Fn(&Self) -> Option<Spread>, worst: fn(f64, f64) -> f64| {
            let worst = kinds.clone().filter_map(|one| Some(of(one)?.worst)).reduce(worst)?;
            let means = spread(kinds.clone().filter_map(|one| Some(of(one)?.mean)), f64::min)?;
            Some(Spread { worst, ..means })
        };
        Self {
            bill: over(&|one| one.bill, f64::max),
            of_off: over(&|one| one.of_off, f64::max),
            kept: std::array::from_fn(|at| over(&|one| one.kept[at], f64::min)),
            invalid: kinds.clone().map(|one| one.invalid).sum(),
            largest: kinds.clone().map(|one| one.largest).fold(0.0, f64::max),
        }
    }

    /// Returns the heads of the columns.
    pub(crate) fn heads() -> String {
        let kept = KEPT.map(|name| format!("{name:>12}")).concat();
        format!("{:>12}{:>12}{kept}{:>8}{:>9}", "bill", "of_off", "invalid", "largest")
    }

    /// Returns the columns: means, each with the worst behind it.
    pub(crate) fn row(&self) -> String {
        let bills = [self.bill, self.of_off].map(cell).concat();
        let kept = self.kept.map(cell).concat();
        format!("{bills}{kept}{:>8}{:>9.0}", self.invalid, self.largest)
    }
}

fn shares(Outcome { score, answers, .. }: &Outcome) -> [Share; 8] {
    let [constraints, files, files_whole, outcomes, values, order] =
        answers.all().map(|(_, share)| share);
    [score.names_old, score.lines_old, constraints, files, files_whole, outcomes, values, order]
}

#[expect(clippy::cast_precision_loss, reason = "there are few conversations")]
fn spread(all: impl Iterator<Item = f64>, worst: fn(f64, f64) -> f64) -> Option<Spread> {
    let all: Vec<_> = all.collect();
    let worst = all.iter().copied().reduce(worst)?;
    Some(Spread { mean: all.iter().sum::<f64>() / all.len() as f64, worst })
}

fn cell(spread: Option<Spread>) -> String {
    let text =
        spread.map_or("-".to_owned(), |Spread { mean, worst }| format!("{mean:.3} {worst:.2}"));
    format!("{text:>12}")
}
