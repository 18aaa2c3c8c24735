//! `context replay --compare`: prints what every preset would have cost and kept.

use serde_json::{Map, Value, json};

use super::own::{self, Contender, relative};
use super::race::{self, Kept, Outcome, Recording};
use super::score::done;
use super::table::{self, Table};
use crate::cli::locate::Project;
use crate::cli::{args, say, say_json};
use crate::exit::Exit;
use crate::report::short;
use crate::spec::{Price, RelativePrice};

/// Price of a token that is cached for an hour, relative to one that is cached for five minutes:
/// the published prices are 2 and 1.25 input tokens.
const HOUR: f64 = 2.0 / 1.25;

/// The columns between the costs and what is kept.
const COLUMNS: [(&str, usize); 3] = [("LARGEST", 8), ("EDITS", 6), ("SUMMARIES", 9)];

pub(super) fn run(project: &Project, verb: &args::Replay) -> Result<(), Exit> {
    let (configured, terms) =
        own::read(project, &verb.own, verb.max_output_tokens, verb.price.as_ref())?;
    let contenders: Vec<_> = configured.into_iter().chain(Contender::all()).collect();
    let price = terms.price.as_ref();
    let each = |name: &str, outcome: &Outcome| show(name, &contenders, outcome, price, verb.json);
    let total = race::each(project, &verb.sources, &terms, &contenders, each)?;
    if total.sources > 1 && !verb.json {
        each("all", &total.outcome)?;
    }
    if total.sources > 0 && !verb.json {
        done(say(&legend(price)))?;
    }
    total.wrong.map_or(Ok(()), Err)
}

impl Recording {
    /// Returns the cost of the input, in input tokens.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn input(&self, price: &RelativePrice) -> f64 {
        let usage = self.billed.usage;
        let hour = self.billed.cache_write_1h;
        let write = (usage.cache_write - hour) as f64 + hour as f64 * HOUR;
        usage.input as f64 + usage.cache_read as f64 * price.read + write * price.write
    }

    /// Returns the cost of the output, in input tokens.
    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn output(&self, price: &RelativePrice) -> f64 {
        self.billed.usage.output as f64 * price.output
    }
}

fn show(
    name: &str,
    contenders: &[Contender],
    outcome: &Outcome,
    price: Option<&Price>,
    as_json: bool,
) -> Result<(), Exit> {
    done(match as_json {
        true => say_json(&rows(name, contenders, outcome, price)),
        false => say(&table(name, contenders, outcome, price)),
    })
}

fn rows(name: &str, contenders: &[Contender], outcome: &Outcome, price: Option<&Price>) -> String {
    let rows = contenders.iter().enumerate();
    let mut rows: Vec<_> =
        rows.map(|(at, contender)| row(name, contender, outcome, at, price)).collect();
    let usd = |tokens: f64| price.map(|price| dollars(tokens, price));
    let recorded = &outcome.all.recorded;
    if recorded.replies > 0 {
        let ratios = relative(price);
        let (input, output) = (recorded.input(&ratios), recorded.output(&ratios));
        let theirs = &outcome.sub_agents.recorded;
        rows.push(json!({
            "kind": "recorded",
            "file": name,
            "turns": recorded.replies,
            "usage": recorded.billed.usage,
            "cache_write_1h": recorded.billed.cache_write_1h,
            "billed": input.round(),
            "billed_output": output.round(),
            "cost_usd": usd(input),
            "cost_usd_output": usd(output),
            "sub_agents": {
                "conversations": outcome.sub_agents.conversations,
                "turns": theirs.replies,
                "billed": theirs.input(&ratios).round(),
                "billed_output": theirs.output(&ratios).round(),
            },
            "largest": recorded.largest,
        }));
    }
    rows.iter().map(|row| format!("{row}\n")).collect()
}

fn row(
    name: &str,
    contender: &Contender,
    outcome: &Outcome,
    at: usize,
    price: Option<&Price>,
) -> Value {
    let Kept { score, answers } = &outcome.all.kept[at];
    let members = [("kind", json!("preset"))].into_iter();
    let members = members.chain(table::members(name, contender, (outcome, at))).chain([
        ("cost_usd", json!(price.map(|price| dollars(score.billed, price)))),
        ("edits", json!(score.edits)),
        ("summary_calls", json!(score.summary_calls)),
        ("names", json!(score.names)),
        ("names_old", json!(score.names_old)),
        ("lines", json!(score.lines)),
        ("lines_old", json!(score.lines_old)),
    ]);
    let mut row: Map<_, _> = members.map(|(key, value)| (key.to_owned(), value)).collect();
    row.extend(answers.all().map(|(name, share)| (name.to_owned(), json!(share))));
    row.into()
}

fn table(name: &str, contenders: &[Contender], outcome: &Outcome, price: Option<&Price>) -> String {
    let cost = |tokens: f64| match price {
        Some(price) => format!("${:.2}", dollars(tokens, price)),
        None => whole(tokens),
    };
    let mut table = Table::new(name, contenders, outcome, &COLUMNS);
    for (at, contender) in contenders.iter().enumerate() {
        let kept = &outcome.all.kept[at];
        let theirs = outcome.sub_agents.kept.get(at).map_or(0.0, |kept| kept.score.billed);
        let score = &kept.score;
        let more = [whole(score.largest), score.edits.to_string(), score.summary_calls.to_string()];
        let costs = (cost(score.billed), cost(theirs));
        table.row(&contender.name, (&costs.0, &costs.1), (&more, &COLUMNS), kept);
    }
    let recorded = &outcome.all.recorded;
    if recorded.replies > 0 {
        let ratios = relative(price);
        let words = format!(
            "{:>8}  as {} replies were billed, tools included; their output: {}",
            short(recorded.largest),
            recorded.replies,
            cost(recorded.output(&ratios)),
        );
        let theirs = cost(outcome.sub_agents.recorded.input(&ratios));
        table.words("recorded", (&cost(recorded.input(&ratios)), &theirs), &words);
    }
    table.text()
}

/// Explains the columns of the table.
fn legend(price: Option<&Price>) -> String {
    let RelativePrice { write, read, output } = relative(price);
    // Rounded, because 0.3 / 3 is not exactly 0.1.
    let [write, read, output] = [write, read, output].map(|ratio| (ratio * 1e4).round() / 1e4);
    let unit = match price {
        Some(price) => format!("in US dollars at {} a million input tokens", price.input),
        None => "in input tokens (--price gives dollars)".to_owned(),
    };
    format!(
        "COST: of the input and the summaries, {unit}; a token written to the cache costs {write} \
         input tokens,\none read from it {read}, one of a summary {output}. Estimated at 4 \
         characters a token, without tools. The replies cost the same under every preset.\n{}",
        table::LEGEND
    )
}

fn dollars(tokens: f64, price: &Price) -> f64 {
    tokens * price.input / 1e6
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are positive and far below 2^64"
)]
fn whole(tokens: f64) -> String {
    short(tokens.round() as u64)
}
