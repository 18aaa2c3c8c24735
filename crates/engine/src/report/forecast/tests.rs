//! Forecasts of small configurations.

use super::*;
use crate::config::{Sources, load_text};

const BASE: &str = "version = 1
[providers.p]
kind = 'anthropic'
base_url = 'http://127.0.0.1:1'
[defaults.retry]
max_attempts = 2
[models.m]
provider = 'p'
model = 'x'
context_window = 10000
max_output_tokens = 1000
cost_per_mtok = { input = 10.0, output = 20.0, cache_read = 1.0, cache_write = 10.0 }
[compaction]
preset = 'off'
[agents.boss]
model = 'm'
instructions = 'Lead.'
max_turns = 4
sub_agents = ['hand']
[agents.hand]
model = 'm'
instructions = 'Work.'
max_turns = 1
[agents.lone]
model = 'm'
instructions = 'Work.'
max_turns = 4
[limits]
max_descendants = 3
";

/// What one request of the model can cost: a full window and a full reply.
const REQUEST: f64 = 0.12;

fn config(rest: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let sources = Sources::new(folder.path().join("agents.toml"));
    load_text(&format!("{BASE}{rest}"), &sources).unwrap()
}

fn rows(rest: &str, earlier: &[EarlierRun]) -> Vec<ForecastRow> {
    let config = config(rest);
    forecast(&config, &config.tasks, earlier)
}

fn row<'a>(rows: &'a [ForecastRow], of: &str, name: &str) -> &'a ForecastRow {
    rows.iter().find(|row| row.of == of && row.name == name).unwrap()
}

/// The most of a row in dollars and calls, and what bounds it.
fn most(rows: &[ForecastRow], of: &str, name: &str) -> (String, u64, Binder) {
    let Most { amount, by } = row(rows, of, name).most.clone();
    (format!("{:.4}", amount.cost.dollars()), amount.calls, by)
}

const LONE: &str = "[tasks.t]\nagent = 'lone'\nprompt = 'Go.'\n";
const LED: &str = "[tasks.t]\nagent = 'boss'\nprompt = 'Go.'\n";

#[test]
fn limits_bound_what_no_budget_bounds() {
    // Four turns and a last reply, each with two attempts.
    let all = rows(LONE, &[]);
    assert_eq!(most(&all, "task", "t"), ("1.2000".into(), 10, Binder::Limits));
    assert_eq!(most(&all, "run", ""), ("1.2000".into(), 10, Binder::Limits));
    // Three children with two calls of two attempts.
    let all = rows(LED, &[]);
    assert_eq!(most(&all, "agent", "hand"), ("0.4800".into(), 4, Binder::Limits));
    assert_eq!(most(&all, "task", "t"), ("2.6400".into(), 22, Binder::Limits));
    // Attempts and instances multiply, and the run has its children once.
    let two =
        format!("{LED}[tasks.u]\nagent = 'boss'\nprompt = 'Go.'\nretry = {{ max_attempts = 3 }}\n");
    let all = rows(&two, &[]);
    assert_eq!(most(&all, "task", "u"), ("5.0400".into(), 42, Binder::Limits));
    assert_eq!(most(&all, "run", ""), ("6.2400".into(), 52, Binder::Limits));
    let wide = LONE.replace("prompt", "foreach = '[1, 2]'\nprompt");
    let all = rows(&wide, &[]);
    assert_eq!(most(&all, "task", "t"), ("1200.0000".into(), 10_000, Binder::Limits));
}

#[test]
fn the_tightest_budget_binds() {
    let name = |name: &str| Name::new(name).unwrap();
    let run = "[budget]\nmax_cost = 0.5\n";
    let task = "[tasks.t.budget]\nmax_cost = 0.6\n";
    let agent = "[agents.boss.budget]\nmax_cost = 0.7\n";
    let agent = |text: &str| text.replace("[agents.hand]", &format!("{agent}[agents.hand]"));
    let forecast_of = |rest: &str| {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources::new(folder.path().join("agents.toml"));
        let config = load_text(&format!("{}{LED}{rest}", agent(BASE)), &sources).unwrap();
        forecast(&config, &config.tasks, &[])
    };
    let all = forecast_of("");
    assert_eq!(most(&all, "agent", "boss"), ("0.7000".into(), 22, Binder::Agent(name("boss"))));
    assert_eq!(most(&all, "task", "t"), ("0.7000".into(), 22, Binder::Agent(name("boss"))));
    let all = forecast_of(task);
    assert_eq!(most(&all, "task", "t"), ("0.6000".into(), 22, Binder::Task(name("t"))));
    assert_eq!(most(&all, "run", "").0, "0.6000");
    let all = forecast_of(&format!("{task}{run}"));
    assert_eq!(most(&all, "task", "t"), ("0.5000".into(), 22, Binder::Run));
    assert_eq!(most(&all, "run", ""), ("0.5000".into(), 22, Binder::Run));
    // What only warns bounds nothing.
    let all = forecast_of("[tasks.t.budget]\nmax_cost = 0.6\non_exceed = 'warn'\n");
    assert_eq!(most(&all, "task", "t").2, Binder::Agent(name("boss")));
    // Calls and tokens bound the cost too.
    let all = rows(&format!("{LONE}[budget]\nmax_calls = 3\n"), &[]);
    assert_eq!(most(&all, "run", ""), (format!("{:.4}", 3.0 * REQUEST), 3, Binder::Run));
    let all = rows(&format!("{LONE}[budget]\nmax_tokens = 1000\n"), &[]);
    assert_eq!(most(&all, "run", "").0, "0.0200");
}

#[test]
fn what_agents_add_to_the_plan_is_bounded_by_a_budget_alone() {
    let grows = BASE.replace("[agents.lone]\n", "[agents.lone]\ntools = ['propose_tasks']\n");
    let forecast_of = |rest: &str| {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources::new(folder.path().join("agents.toml"));
        let config = load_text(&format!("{grows}{LONE}{rest}"), &sources).unwrap();
        forecast(&config, &config.tasks, &[])
    };
    let all = forecast_of("");
    assert_eq!(row(&all, "run", "").most.by, Binder::Nothing);
    assert_eq!(row(&all, "run", "").json()["most"], Value::Null);
    let all = forecast_of("[budget]\nmax_cost = 9.0\n");
    assert_eq!((most(&all, "run", "").0, most(&all, "run", "").2), ("9.0000".into(), Binder::Run));
}

#[test]
fn the_least_is_a_call_for_what_must_run() {
    let all =
        rows(&format!("{LONE}[tasks.u]\nagent = 'lone'\nprompt = 'On.'\nwhen = 'true'\n"), &[]);
    let (t, u, run) = (row(&all, "task", "t"), row(&all, "task", "u"), row(&all, "run", ""));
    assert_eq!((t.least.calls, u.least.calls, run.least), (1, 0, t.least));
    assert!(t.least.cost > Usd::default() && t.least.cost < Usd::from_dollars(0.001), "{t:?}");
    // Without a price there are tokens and calls, and no money.
    let free = BASE.replace("cost_per_mtok", "# cost_per_mtok");
    let folder = tempfile::tempdir().unwrap();
    let sources = Sources::new(folder.path().join("agents.toml"));
    let config = load_text(&format!("{free}{LONE}"), &sources).unwrap();
    let all = forecast(&config, &config.tasks, &[]);
    let json = row(&all, "run", "").json();
    assert_eq!((&json["most"]["cost_usd"], &json["most"]["calls"]), (&Value::Null, &json!(10)));
    assert_eq!(json["least"]["cost_usd"], Value::Null);
}

#[test]
fn the_likely_is_the_median_of_runs_of_the_same_content() {
    let name = Name::new("t").unwrap();
    let run = |is_same: bool, dollars: f64| {
        let amount = Amount { cost: Usd::from_dollars(dollars), tokens: 10, calls: 2 };
        let agents = [(Name::new("lone").unwrap(), vec![amount, amount])].into();
        let tasks = [(name.clone(), amount)].into();
        EarlierRun { is_same, total: amount, tasks, agents }
    };
    let likely = |earlier: &[EarlierRun]| {
        let all = rows(LONE, earlier);
        let of = |row: &ForecastRow| {
            row.likely.map(|(a, seen)| (format!("{:.2}", a.cost.dollars()), seen))
        };
        [row(&all, "task", "t"), row(&all, "agent", "lone"), row(&all, "run", "")].map(of)
    };
    assert_eq!(likely(&[]), [None, None, None]);
    let seen = |dollars: &str, count| Some((dollars.to_owned(), count));
    let others = [run(false, 5.0), run(false, 1.0), run(false, 2.0)];
    assert_eq!(likely(&others), [seen("2.00", 3), seen("2.00", 6), seen("2.00", 3)]);
    let mixed = [run(false, 5.0), run(true, 1.0), run(true, 3.0)];
    assert_eq!(likely(&mixed), [seen("2.00", 2), seen("2.00", 4), seen("2.00", 2)]);
}
