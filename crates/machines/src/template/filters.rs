//! The filters and tests of templates, those of MiniJinja and those that callsheet adds, each within the
//! bounds of the evaluation.
//!
//! They are registered within their bounds, so that a filter that applies others, such as `map`, keeps them
//! too. A filter is charged for looking at what it takes and for making what it makes. One that arranges
//! what it takes makes the lists alone. One that may make far more than it takes is asked first how much.

use std::collections::HashMap;
use std::sync::LazyLock;

use minijinja::value::{Rest, Serde, Value as Cell, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters, tests as judges};
use parking_lot::Mutex;
use regex::Regex;
use serde_json::Value;

use super::meter::{self, EACH, MOST_LEVELS, Size};
use super::{paths, text};

/// The filters that only arrange what they take, with the levels of lists that they make.
const ARRANGING: [(&str, usize); 23] = [
    ("attr", 0),
    ("batch", 2),
    ("chain", 1),
    ("d", 0),
    ("default", 0),
    ("dictsort", 2),
    ("first", 0),
    ("groupby", 3),
    ("items", 2),
    ("last", 0),
    ("list", 1),
    // What the filter that it applies makes is charged with that one.
    ("map", 1),
    ("max", 0),
    ("min", 0),
    ("reject", 1),
    ("rejectattr", 1),
    ("reverse", 1),
    ("select", 1),
    ("selectattr", 1),
    ("slice", 2),
    ("sort", 1),
    ("unique", 1),
    ("zip", 2),
];

/// Returns the filters by name.
fn all() -> Vec<(&'static str, Cell)> {
    let escape = Cell::from_function(filters::escape);
    let length = Cell::from_function(filters::length);
    let default = Cell::from_function(text::default);
    vec![
        ("abs", Cell::from_function(filters::abs)),
        ("attr", Cell::from_function(filters::attr)),
        ("batch", Cell::from_function(filters::batch)),
        ("bool", Cell::from_function(filters::bool)),
        ("capitalize", Cell::from_function(filters::capitalize)),
        ("chain", Cell::from_function(filters::chain)),
        ("cluster", Cell::from_function(paths::cluster)),
        ("count", length.clone()),
        ("d", default.clone()),
        ("default", default),
        ("dictsort", Cell::from_function(filters::dictsort)),
        ("e", escape.clone()),
        ("escape", escape),
        ("find", Cell::from_function(find)),
        ("find_all", Cell::from_function(find_all)),
        ("first", Cell::from_function(filters::first)),
        ("float", Cell::from_function(filters::float)),
        ("format", Cell::from_function(filters::format)),
        ("from_json", Cell::from_function(from_json)),
        ("groupby", Cell::from_function(filters::groupby)),
        ("indent", Cell::from_function(filters::indent)),
        ("int", Cell::from_function(filters::int)),
        ("items", Cell::from_function(filters::items)),
        ("join", Cell::from_function(text::join)),
        ("last", Cell::from_function(filters::last)),
        ("length", length),
        ("lines", Cell::from_function(filters::lines)),
        ("list", Cell::from_function(filters::list)),
        ("lower", Cell::from_function(filters::lower)),
        ("map", Cell::from_function(filters::map)),
        ("max", Cell::from_function(filters::max)),
        ("min", Cell::from_function(filters::min)),
        ("pprint", Cell::from_function(filters::pprint)),
        ("reject", Cell::from_function(filters::reject)),
        ("rejectattr", Cell::from_function(filters::rejectattr)),
        ("replace", Cell::from_function(filters::replace)),
        ("reverse", Cell::from_function(filters::reverse)),
        ("round", Cell::from_function(filters::round)),
        ("safe", Cell::from_function(filters::safe)),
        ("select", Cell::from_function(filters::select)),
        ("selectattr", Cell::from_function(filters::selectattr)),
        ("slice", Cell::from_function(filters::slice)),
        ("sort", Cell::from_function(filters::sort)),
        ("split", Cell::from_function(filters::split)),
        ("string", Cell::from_function(text::string)),
        ("sum", Cell::from_function(filters::sum)),
        ("title", Cell::from_function(filters::title)),
        ("tojson", Cell::from_function(filters::tojson)),
        ("trim", Cell::from_function(filters::trim)),
        ("unique", Cell::from_function(filters::unique)),
        ("upper", Cell::from_function(filters::upper)),
        ("zip", Cell::from_function(filters::zip)),
    ]
}

/// Returns the names of the filters.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    all().into_iter().map(|(name, _)| name)
}

/// Registers them.
pub(super) fn add(environment: &mut Environment<'static>) {
    for (name, filter) in all() {
        let arranging = ARRANGING.iter().find(|(arranging, _)| *arranging == name);
        let levels = arranging.map_or(MOST_LEVELS, |(_, levels)| *levels);
        let within = move |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
            let arguments = arguments.into_values();
            let taken = meter::look(&arguments)?;
            meter::fits(asked(name, levels, &arguments, taken)?)?;
            let made = meter::materialized(filter.call(state, &arguments)?)?;
            meter::made(&made, levels)?;
            Ok::<Cell, Error>(made)
        };
        environment.add_filter(name, within);
    }
    let (eq, ne) = (Cell::from_function(judges::is_eq), Cell::from_function(judges::is_ne));
    let (lt, le, gt, ge) = (
        Cell::from_function(judges::is_lt),
        Cell::from_function(judges::is_le),
        Cell::from_function(judges::is_gt),
        Cell::from_function(judges::is_ge),
    );
    for (name, test) in [
        ("!=", ne.clone()),
        ("<", lt.clone()),
        ("<=", le.clone()),
        ("==", eq.clone()),
        (">", gt.clone()),
        (">=", ge.clone()),
        ("endingwith", Cell::from_function(judges::is_endingwith)),
        ("eq", eq.clone()),
        ("equalto", eq),
        ("ge", ge),
        ("greaterthan", gt.clone()),
        ("gt", gt),
        ("in", Cell::from_function(judges::is_in)),
        ("le", le),
        ("lessthan", lt.clone()),
        ("lower", Cell::from_function(judges::is_lower)),
        ("lt", lt),
        ("ne", ne),
        ("sameas", Cell::from_function(judges::is_sameas)),
        ("startingwith", Cell::from_function(judges::is_startingwith)),
        ("upper", Cell::from_function(judges::is_upper)),
    ] {
        let within = move |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
            let arguments = arguments.into_values();
            meter::look(&arguments)?;
            Ok::<bool, Error>(test.call(state, &arguments)?.is_true())
        };
        environment.add_test(name, within);
    }
}

/// Returns the bytes that a filter would make at the most, as far as that is more than it takes.
fn asked(name: &str, levels: usize, arguments: &[Cell], taken: Size) -> Result<usize, Error> {
    let text = |at: usize| arguments.get(at).map(text_of).unwrap_or_default();
    let given = arguments.get(1..).unwrap_or_default();
    let number = || given.iter().map(largest).max().unwrap_or(0);
    let count = |of: &str, what: &[char]| of.matches(what).count() + 1;
    Ok(match name {
        "replace" => text(0).matches(&*text(1)).count().saturating_mul(text(2).len()),
        "indent" => count(&text(0), &['\n']).saturating_mul(number()),
        "tojson" => taken.values.saturating_mul(taken.levels + 1).saturating_mul(number()),
        "pprint" => taken.values.saturating_mul(taken.levels + 1).saturating_mul(EACH),
        "batch" | "slice" => number().saturating_mul(EACH),
        "format" => {
            let format = text(0);
            let values = count(&format, &['%']).saturating_mul(taken.bytes);
            number().saturating_add(numbers(&format)).saturating_add(values)
        }
        "lines" => count(&text(0), &['\n']).saturating_mul(EACH),
        "split" => {
            let (text, by) = (text(0), text(1));
            let pieces = match by.is_empty() || given.is_empty() {
                true => count(&text, &[' ', '\n', '\t', '\r']),
                false => text.matches(&*by).count() + 1,
            };
            pieces.saturating_mul(EACH)
        }
        "from_json" => count(&text(0), &[',', ':', '[', '{']).saturating_mul(EACH),
        "sum" => {
            // A sum of texts copies them again for each.
            meter::look_at(match number() {
                0 if !given.is_empty() => taken.values.saturating_mul(taken.bytes),
                _ => 0,
            })?;
            0
        }
        "reverse" => 0,
        // A list of the characters of a text.
        _ if (1..MOST_LEVELS).contains(&levels) => text(0).len().saturating_mul(EACH),
        _ => 0,
    })
}

/// Returns the text as which a filter takes a value, if it takes it as one.
fn text_of(value: &Cell) -> std::borrow::Cow<'_, str> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => text.into(),
        (None, ValueKind::Number | ValueKind::Bool) => value.to_string().into(),
        _ => "".into(),
    }
}

/// Returns the largest number in an argument, or in arguments that are given by name.
fn largest(value: &Cell) -> usize {
    if value.kind() == ValueKind::Map {
        let names = value.try_iter().into_iter().flatten();
        let inner = names.filter_map(|name| value.get_item(&name).ok());
        return inner.filter_map(|value| value.as_usize()).max().unwrap_or(0);
    }
    value.as_usize().unwrap_or(0)
}

/// Returns the sum of the numbers in a text: in a format they are widths.
fn numbers(text: &str) -> usize {
    let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let number = |digits: &str| digits.parse::<usize>().unwrap_or(usize::MAX);
    digits.map(number).fold(0, usize::saturating_add)
}

/// The most compiled patterns that are kept: far more than one file of templates has.
const PATTERNS_KEPT: usize = 256;

/// Compiled patterns by their text. Compiling a pattern takes far longer than using it, and the
/// same templates are rendered every turn.
static PATTERNS: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);

fn pattern(text: &str) -> Result<Regex, Error> {
    if let Some(known) = PATTERNS.lock().get(text) {
        return Ok(known.clone());
    }
    // Compiled without the lock, so that other templates need not wait.
    let regex = Regex::new(text)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
    let mut kept = PATTERNS.lock();
    if kept.len() >= PATTERNS_KEPT {
        kept.clear();
    }
    kept.insert(text.to_owned(), regex.clone());
    Ok(regex)
}

/// `text | find(regex)`: the first match (its first group, if it has one), or none.
fn find(text: &str, regex: &str) -> Result<Option<String>, Error> {
    let found = pattern(regex)?.captures(text);
    Ok(found.and_then(|c| c.get(1).or_else(|| c.get(0)).map(|m| m.as_str().to_owned())))
}

/// `text | find_all(regex)`: every match (its first group, if it has one), in order.
fn find_all(text: &str, regex: &str) -> Result<Vec<String>, Error> {
    let regex = pattern(regex)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    for captures in regex.captures_iter(text) {
        let matched = captures.get(1).or_else(|| captures.get(0));
        bytes += EACH + matched.map_or(0, |matched| matched.len());
        meter::fits(bytes)?;
        found.extend(matched.map(|matched| matched.as_str().to_owned()));
    }
    Ok(found)
}

/// `text | from_json`: the value of a JSON text.
fn from_json(text: &str) -> Result<Cell, Error> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Cell::from(Serde(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::template::{evaluate, render};

    #[test]
    fn a_filter_does_as_before() {
        let values = json!({"list": [3, 1, 2], "text": "b a\nc", "map": {"k": "v", "a": 1},
            "rows": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}], "texts": ["b", "a", "b"]});
        let plain = minijinja::Environment::new();
        for expression in [
            "-1 | abs",
            "map | attr('k')",
            "list | batch(2, 0)",
            "list | bool",
            "text | capitalize",
            "list | chain(texts) | list",
            "list | count",
            "map | dictsort",
            "text | e",
            "list | first",
            "'1.5' | float",
            "'%03d-%s' | format(7, text)",
            "rows | groupby('t')",
            "text | indent(2, true)",
            "'7' | int",
            "map | items",
            "list | last",
            "text | lines",
            "text | list",
            "'A' | lower",
            "texts | map('upper')",
            "rows | map(attribute='n')",
            "rows | map(attribute='q', default=0)",
            "list | max",
            "list | min",
            "list | reject('odd')",
            "rows | rejectattr('n', 'eq', 1)",
            "text | replace('a', 'xyz') | replace('', '-') | replace(1, 2)",
            "list | reverse",
            "text | reverse",
            "1.25 | round(1)",
            "text | safe",
            "list | select('gt', 1)",
            "rows | selectattr('n', '>', 1)",
            "list | slice(2)",
            "list | sort(reverse=true)",
            "text | split",
            "text | split(' ', 1)",
            "list | sum",
            "rows | sum(attribute='n')",
            "texts | sum(start='')",
            "text | title",
            "map | tojson(2)",
            "' a ' | trim",
            "texts | unique",
            "text | upper",
            "list | zip(texts) | list",
            "texts | join(', ')",
            "list | replace(*['1', '2'])",
            "'ab' is startingwith 'a' and 1 is in list and texts is eq(texts) and 'a' is lower",
        ] {
            let cell = minijinja::value::Value::from(minijinja::value::Serde(&values));
            let want = plain.compile_expression(expression).expect(expression).eval(cell);
            let want = want.map(|want| serde_json::to_value(want).expect("JSON"));
            assert_eq!(evaluate(expression, &values).ok(), want.ok(), "{expression}");
        }
    }

    #[test]
    fn what_a_report_reads_is_not_charged_as_if_it_made_it() {
        let of = |n: usize| format!("{n} {}", "finding, ".repeat(220));
        let texts: Vec<String> = (0..200).map(of).collect();
        let rows: Vec<_> = (0..200)
            .map(|n| json!({"ok": n % 2 == 0, "text": of(n), "files": vec!["a.rs"; 40]}))
            .collect();
        let values = json!({ "texts": texts, "rows": rows });
        for body in [
            "{{ loop.index }} of {{ texts | length }}",
            "{{ texts | first | length }}{{ texts | last | length }}{{ texts | max | length }}",
            "{{ texts | select('startingwith', x) | list | length }}",
            "{{ texts | sort | unique | reverse | length }}",
            "{{ texts | map('length') | sum }}",
            "{{ rows | selectattr('ok') | rejectattr('text', 'in', texts[:1]) | list | length }}",
            "{{ rows | map(attribute='files') | map('length') | sum }}",
            "{{ rows | groupby('ok') | length }}{{ rows | batch(3) | list | length }}",
            "{{ x | replace('finding', 'a longer word than it was') | indent(2) | trim | length }}",
            "{% if x in texts %}yes{% endif %}{% if texts == texts %}{{ [texts, rows] | length }}{% endif %}",
            "{{ texts[1:] | length }}{{ x | default('') | upper | lower | split(' ') | length }}",
        ] {
            let template = format!("{{% for x in texts %}}{body}\n{{% endfor %}}");
            let text = render(&template, &values);
            assert_eq!(text.map(|text| text.lines().count()), Ok(200), "{body}");
        }
        for whole in ["{{ rows | tojson(indent=2) }}", "{{ texts | join('\n\n') }}{{ rows }}"] {
            assert!(render(whole, &values).is_ok(), "{whole}");
        }
    }

    #[test]
    fn what_makes_or_looks_at_too_much_ends() {
        let values =
            json!({ "a": "a".repeat(1 << 20), "b": "b".repeat(300 << 10), "l": vec!["x"; 50_000] });
        for template in [
            "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
            "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x | length }}",
            "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x | chain(n.x) %}{% endfor %}{{ n.x | length }}",
            "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
            "{% set n = namespace(x=1) %}{% for i in range(90) %}{% set n.x = [n.x] %}{% endfor %}",
            "{{ (a * 1000) | length }}",
            "{{ [a] * 1000 | length }}",
            "{{ a | replace('a', b) }}",
            "{{ a | replace('', b) }}",
            "{{ a | replace(*['a', b]) }}",
            "{{ [a] | map('replace', 'a', b) | list }}",
            "{{ l | join(a) }}",
            "{{ l | join(d=a) }}",
            "{{ [l] | map('join', a) | list }}",
            "{{ a | replace('a', '\n') | indent(10000) }}",
            "{{ a | replace('a', '\n') | indent(width=10000) }}",
            "{{ l | tojson(100000) }}",
            "{{ l | batch(10000000000, 'x') | list }}",
            "{{ l | slice(10000000000) | list }}",
            "{{ '%999999999999d' | format(3) }}",
            "{{ ('%(k)s' * 10000) | format(k=a) }}",
            "{{ (a * 60) | list | length }}",
            "{{ (a * 60) | split('a') | length }}",
            "{{ ('[' ~ ('[],' * 3000000) ~ '1]') | from_json | length }}",
            "{{ (a * 60) | find_all('a') | length }}",
            "{{ l | sum(start='') }}{{ (l * 20) | sum(start='') }}",
            "{% for i in range(100000) %}{% if l == l %}{% endif %}{% endfor %}",
            "{% for i in range(100000) %}{% if 'y' is in l %}{% endif %}{% endfor %}",
            "{{ l | select('in', a) | list | length }}",
            "{% set x %}{% for i in range(100000) %}{{ b }}{% endfor %}{% endset %}",
            "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
        ] {
            let begun = std::time::Instant::now();
            let error = render(template, &values).expect_err(template);
            let took = begun.elapsed();
            assert!(took < std::time::Duration::from_secs(60), "{took:?} {template}: {error}");
        }
        let raw = "y".repeat(10_000);
        let raw =
            format!("{{% set x %}}{{% for i in range(100000) %}}{raw}{{% endfor %}}{{% endset %}}");
        assert!(render(&raw, &values).is_err());
    }
}
