//! `check --cost`: what a run may cost, before it is started.

use serde_json::{Value, json};

use crate::support::desk::Desk;

const GRAPH: &str = r#"
[models.default.cost_per_mtok]
input = 1000.0
output = 2000.0
[agents.one]
model = "default"
instructions = "x"
max_turns = 3
[tasks.ask]
agent = "one"
prompt = "go"
[tasks.list]
run = "true"
"#;

fn rows(desk: &Desk) -> Vec<Value> {
    desk.json(&["check", "--cost", "--json"])
}

fn of<'a>(rows: &'a [Value], kind: &str) -> &'a Value {
    rows.iter().find(|row| row["forecast"] == kind).expect("a row")
}

#[test]
fn a_forecast_names_what_a_run_costs_and_what_bounds_it() {
    let desk = Desk::offline(GRAPH, "[[rules]]\nsay = \"done\"\n");
    let before = rows(&desk);
    let kinds: Vec<_> = before.iter().map(|row| (&row["forecast"], &row["name"])).collect();
    let wanted =
        [("task", "ask"), ("agent", "one"), ("run", "")].map(|(a, b)| (json!(a), json!(b)));
    assert_eq!(kinds, wanted.each_ref().map(|(a, b)| (a, b)));
    assert_eq!(of(&before, "run")["likely"], Value::Null);
    assert_eq!(of(&before, "run")["bound_by"], json!({ "scope": "limits" }));
    let text = desk.good(&["check", "--cost"]);
    assert!(text.contains("in all") && text.contains("unknown"), "{text}");
    assert!(text.contains("help: `max_cost` of [budget]"), "{text}");
    assert!(desk.runs().is_empty(), "nothing was run");

    // A run costs what was forecast, and the next forecast knows it.
    for _ in 0..3 {
        desk.good(&["run"]);
    }
    let spent = desk.json(&["cost", "--json"])[0]["own"]["cost_usd"].as_f64().expect("a price");
    let after = rows(&desk);
    let run = of(&after, "run");
    let dollars = |part: &str| run[part]["cost_usd"].as_f64().expect("an amount");
    assert!((dollars("likely") - spent).abs() < 1e-9, "{run} {spent}");
    assert!(dollars("least") <= spent && spent <= dollars("most"), "{run} {spent}");
    assert_eq!(
        (&run["likely"]["seen"], &of(&after, "agent")["likely"]["seen"]),
        (&json!(3), &json!(3))
    );
    assert!(
        desk.good(&["check", "--cost"]).contains("likely: the median of 3 runs of this content")
    );

    // A budget bounds it, and a price that is missing where money is limited is a mistake.
    let text = desk.read("agents.toml");
    desk.write("agents.toml", &format!("{text}[budget]\nmax_cost = 5.0\n"));
    let run = of(&rows(&desk), "run").clone();
    assert_eq!(
        (&run["most"]["cost_usd"], &run["bound_by"]),
        (&json!(5.0), &json!({ "scope": "run" }))
    );
    assert!(desk.good(&["check", "--cost"]).contains("3 runs, of which none had this content"));
    let free =
        text.replace("[models.default.cost_per_mtok]\ninput = 1000.0\noutput = 2000.0\n", "");
    desk.write("agents.toml", &format!("{free}[budget]\nmax_cost = 5.0\n"));
    let done = desk.call(&["check", "--cost"]);
    assert!(done.code == 2 && done.err.contains("missing_price"), "{}", done.err);
}
