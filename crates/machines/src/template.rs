//! The template language: MiniJinja, in which the use of an undefined value is an error.
//!
//! No other module may name `minijinja`, except those below this one: `argument`, the filters in `filters` and
//! `paths`, what an evaluation may cost in `meter`, the instructions that keep to that in `bounds`, the values
//! that it is given in `known`, the texts of values in `text`, and in `typing` what is known of all these before they
//! are there, by the `types`, and the words for what failed. A template sees only the values it is given: no files, no clock, no
//! environment.

pub mod argument;
mod bounds;
mod filters;
mod known;
mod meter;
mod paths;
mod text;
pub mod typing;
pub mod value_type;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use minijinja::machinery::{Instruction, Instructions, get_compiled_template};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value as Cell;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use serde_json::Value;

pub use self::known::{Known, Values};
pub use self::meter::{Stop, until};
use self::typing::failing::{self, Form};
use crate::foreign;

/// The most instructions that one rendering may take: it stops an endless loop in a template within
/// about a second.
const FUEL: u64 = 5_000_000;

/// The tests of templates that have names of their own.
const TESTS: [&str; 20] = [
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "even",
    "false",
    "float",
    "in",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
];

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // An error names the undefined value in every build.
    environment.set_debug(true);
    // Templates make prompts, paths and variables, which need no HTML escapes.
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    // MiniJinja would otherwise drop the newline at the end of a template.
    environment.set_syntax(syntax());
    environment.set_fuel(Some(FUEL));
    filters::add(&mut environment);
    bounds::prepare(&mut environment);
    environment
});

/// Returns the syntax of templates.
fn syntax() -> SyntaxConfig {
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    syntax.expect("the default delimiters are valid")
}

/// An error in a template or in an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// Description of the error, as a lower-case fragment.
    pub message: String,
    /// The line within the template, from 1.
    pub line: usize,
    /// The range of bytes in the template at which the error is; absent when the parser gives none.
    pub range: Option<std::ops::Range<usize>>,
}

impl From<minijinja::Error> for TemplateError {
    fn from(error: minijinja::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&minijinja::Error> for TemplateError {
    fn from(error: &minijinja::Error) -> Self {
        let message = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        Self { message, line: error.line().unwrap_or(1), range: error.range() }
    }
}

impl TemplateError {
    fn whole(message: String) -> Self {
        Self { message, line: 1, range: None }
    }
}

/// Calls MiniJinja, which panics over some expressions: `4 is divisibleby(0)`.
fn foreign<T>(code: impl FnOnce() -> Result<T, TemplateError>) -> Result<T, TemplateError> {
    foreign::call(code).unwrap_or_else(|panic| {
        Err(TemplateError::whole(format!("the template language crashed ({panic})")))
    })
}

/// Returns true if a text is a template without a tag, which renders to itself and reads no names: the tags of
/// the syntax all begin with a brace.
#[must_use]
pub fn is_plain(template: &str) -> bool {
    !template.contains('{')
}

/// Renders a template with the fields of the object `values`.
///
/// # Errors
/// Returns an error if the template cannot be parsed or uses a value that is not defined.
pub fn render(template: &str, values: impl Into<Known>) -> Result<String, TemplateError> {
    if is_plain(template) && template.len() <= meter::MOST_MADE {
        return Ok(template.to_owned());
    }
    let Known(values) = values.into();
    foreign(|| {
        let rendered = bounds::render(&ENVIRONMENT, template, values.clone());
        rendered.map_err(|error| explained(error, &values, Form::Template, template))
    })
}

/// Evaluates an expression (without braces) with the fields of the object `values`.
///
/// # Errors
/// Returns an error if the expression cannot be parsed or uses a value that is not defined.
pub fn evaluate(expression: &str, values: impl Into<Known>) -> Result<Value, TemplateError> {
    let Known(values) = values.into();
    foreign(|| {
        let value = defined(expression, values)?;
        serde_json::to_value(&value).map_err(|error| TemplateError::whole(error.to_string()))
    })
}

/// Returns true if an expression is true by the rules of the template language: empty texts, empty
/// lists, zero and none are false.
///
/// # Errors
/// Returns an error in the same cases as [`evaluate`].
pub fn is_true(expression: &str, values: impl Into<Known>) -> Result<bool, TemplateError> {
    let Known(values) = values.into();
    foreign(|| Ok(defined(expression, values)?.is_true()))
}

/// Evaluates an expression to a value of the language that is defined.
fn defined(expression: &str, values: Cell) -> Result<Cell, TemplateError> {
    let value = bounds::evaluate(&ENVIRONMENT, expression, values.clone());
    let value = value.and_then(|value| match value.is_undefined() {
        // An unknown name alone is no error for MiniJinja: it returns the undefined value.
        true => Err(Error::new(ErrorKind::UndefinedError, format!("`{}`", expression.trim()))),
        false => Ok(value),
    });
    value.map_err(|error| explained(error, &values, Form::Expression, expression))
}

/// Returns an error that names the expression at fault, and says what was missing and what was there.
fn explained(error: Error, values: &Cell, form: Form, text: &str) -> TemplateError {
    let names = values.try_iter().into_iter().flatten();
    let known = names.filter_map(|name| {
        Some((name.as_str()?.to_owned(), value_type::Type::of_cell(&values.get_item(&name).ok()?)))
    });
    let words = failing::words(form, text, &known.collect(), &error);
    let error = TemplateError::from(error);
    match words {
        Some(message) => TemplateError { message, ..error },
        None => error,
    }
}

/// Returns the names of the filters that a template can use.
pub fn filters() -> impl Iterator<Item = &'static str> {
    filters::names()
}

/// Returns the names of the tests that a template most often uses: `x is defined`.
pub fn tests() -> impl Iterator<Item = &'static str> {
    TESTS.into_iter()
}

/// Returns the dotted names that a template reads: `inputs.path`, `tasks.survey.output`.
///
/// # Errors
/// Returns an error if the template cannot be parsed, or if it uses a filter, a test or another
/// template that does not exist.
pub fn names_in_template(template: &str) -> Result<BTreeSet<String>, TemplateError> {
    if is_plain(template) {
        return Ok(BTreeSet::new());
    }
    foreign(|| {
        bounds::check_depth(template, false)?;
        let parsed = ENVIRONMENT.template_from_str(template)?;
        let compiled = get_compiled_template(&parsed);
        let blocks = compiled.blocks.values();
        blocks.chain([&compiled.instructions]).try_for_each(known)?;
        Ok(parsed.undeclared_variables(true).into_iter().collect())
    })
}

/// Returns the dotted names that an expression reads.
///
/// # Errors
/// Returns an error in the same cases as [`names_in_template`].
pub fn names_in_expression(expression: &str) -> Result<BTreeSet<String>, TemplateError> {
    // Errors of its syntax have their place in the expression itself.
    foreign(|| {
        bounds::check_depth(expression, true)?;
        ENVIRONMENT.compile_expression(expression)?;
        Ok(())
    })?;
    const BEFORE: &str = "{{ ";
    names_in_template(&format!("{BEFORE}{expression} }}}}")).map_err(|error| TemplateError {
        range: error.range.map(|range| {
            range.start.saturating_sub(BEFORE.len())..range.end.saturating_sub(BEFORE.len())
        }),
        ..error
    })
}

/// Fails if compiled instructions need what does not exist: MiniJinja would tell only when it
/// renders them.
fn known(instructions: &Instructions<'_>) -> Result<(), TemplateError> {
    for at in 0.. {
        let Some(instruction) = instructions.get(at) else { return Ok(()) };
        let message = match instruction {
            Instruction::ApplyFilter(name, ..) if lacks("x | ", name, ErrorKind::UnknownFilter) => {
                format!("there is no filter `{name}`")
            }
            Instruction::PerformTest(name, ..) if lacks("x is ", name, ErrorKind::UnknownTest) => {
                format!("there is no test `{name}`")
            }
            Instruction::Include(_) | Instruction::LoadBlocks => {
                "there are no other templates that could be included".to_owned()
            }
            _ => continue,
        };
        let span = instructions.get_span(at);
        return Err(TemplateError {
            message,
            line: instructions.get_line(at).unwrap_or(1),
            range: span.map(|span| span.start_offset as usize..span.end_offset as usize),
        });
    }
    Ok(())
}

/// Returns true if the language refuses a name after `before` because it does not know it.
fn lacks(before: &str, name: &str, refusal: ErrorKind) -> bool {
    let used = format!("{before}{name}");
    let tried = ENVIRONMENT.compile_expression(&used);
    let tried = tried.and_then(|tried| tried.eval(minijinja::context! { x => 1 }));
    tried.is_err_and(|error| error.kind() == refusal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn renders_and_refuses_what_is_not_there() {
        let values = json!({"inputs": {"path": "src"}, "n": 2});
        assert_eq!(render("Read {{ inputs.path }}\n", &values), Ok("Read src\n".to_owned()));
        assert!(render("{{ inputs.paht }}", &values).is_err());
        assert!(render("{{ nobody }}", &values).is_err());
        let error = render("a\n{{ x", &values).expect_err("not closed");
        assert_eq!(error.line, 2);
    }

    #[test]
    fn a_text_without_tags_is_what_it_is() {
        for text in ["", "a", "a\r\n\n", "# for x in y\n## b #}", "%} }} x \u{1f600}\n"] {
            assert!(is_plain(text));
            assert_eq!(render(text, &json!({})).as_deref(), Ok(text));
            let known = Known::from(&json!({})).0;
            let engine = bounds::render(&ENVIRONMENT, text, known);
            assert_eq!(engine.ok().as_deref(), Some(text), "it is what the engine makes of it");
            assert_eq!(names_in_template(text), Ok(BTreeSet::new()));
        }
    }

    #[test]
    fn values_print_as_json_and_none_does_not_print() {
        let values = json!({
            "yes": true, "n": 1.5, "list": ["a", true, null], "map": {"b": 1, "a": "x\"y"}, "nil": null,
            "text": "as it \"is\"", "rows": [{"ok": true}, {"ok": "no"}],
        });
        for (template, text) in [
            ("{{ yes }} {{ false }} {{ n }} {{ 2 }} {{ 2.0 }}", "true false 1.5 2 2.0"),
            ("{{ list }} {{ (1, 'b') }}", r#"["a",true,null] [1,"b"]"#),
            ("{{ map }}{{ text }}", r#"{"b":1,"a":"x\"y"}as it "is""#),
            ("{{ yes ~ '/' ~ map.b }} {{ yes | string }}", "true/1 true"),
            ("{{ [yes, 2] | join(', ') }} {{ rows | join('-', 'ok') }}", "true, 2 true-no"),
            ("{{ rows | join(attribute='ok', d='+') }}{{ 'ab' | join('.') }}", "true+noa.b"),
            ("{{ nil | default('d') }}{{ gone | default('e') }}{{ none | d }}", "de"),
            ("{{ false | default('d') }}{{ 0 | default('e', true) }}", "falsee"),
            ("{% set x %}{{ yes }}{% endset %}{{ x }}{{ 'a' if not yes }}", "true"),
            ("{{ list | map('upper') | list if false }}{{ list[:1] | map('upper') }}", r#"["A"]"#),
        ] {
            assert_eq!(render(template, &values), Ok(text.to_owned()), "{template}");
        }
        for none in [
            "{{ nil }}",
            "{{ none }}",
            "{{ 'a' ~ nil }}",
            "{{ list | join }}",
            "{{ nil | string }}",
        ] {
            let error = render(none, &values).expect_err(none);
            assert!(error.message.contains("default('...')"), "{none}: {error}");
        }
        assert_eq!(evaluate("nil", &values), Ok(json!(null)), "only a text needs a text");
        assert!(render("{{ gone ~ 'a' }}", &values).is_err());
    }

    #[test]
    fn expressions_keep_their_type() {
        let values = json!({"files": ["a", "b"], "text": "12 files, 7 lines"});
        assert_eq!(evaluate("files | length", &values), Ok(json!(2)));
        assert_eq!(evaluate("text | find('([0-9]+) lines')", &values), Ok(json!("7")));
        assert_eq!(evaluate("text | find_all('[0-9]+')", &values), Ok(json!(["12", "7"])));
        assert_eq!(is_true("files | length > 2", &values), Ok(false));
        assert!(evaluate("nobody", &values).is_err());
        for expression in [
            "values.nobody.deep",
            "files and nobody > 1",
            "not nobody",
            "values.nobody",
            "nobody.x.y",
        ] {
            let error = is_true(expression, &json!({"values": {}, "files": 1})).expect_err("none");
            assert!(error.message.contains("nobody"), "{expression}: {error}");
        }
        let error = render("a {{ values.nobody.deep | upper }}", &json!({"values": {}}));
        let error = error.expect_err("none");
        assert!(error.message.contains("nobody"), "{error}");
        for missing in ["nobody", "not nobody", "nobody > 1", "values.nobody"] {
            assert!(is_true(missing, &values).is_err(), "{missing}");
        }
    }

    #[test]
    fn an_error_says_what_was_there() {
        let values = json!({
            "tasks": {"j": {"output": {"a": 1}}, "t": {"output": "x"}},
            "rows": [{"file": "a", "line": 1}, {"file": "b"}],
        });
        for (template, says) in [
            ("{{ tasks.j.output.b }}", "`tasks.j.output` has no `b`; it has `a`"),
            ("x\n{{ tasks.j.output.b.c }}", "`tasks.j.output` has no `b`; it has `a`"),
            ("{{ tasks.j.output.b + [1] }}", "`tasks.j.output` has no `b`; it has `a`"),
            ("{{ tasks.j.output.b | upper }}", "`tasks.j.output` has no `b`; it has `a`"),
            ("{{ tasks.t.output.b }}", "`tasks.t.output` is text and has no `b`"),
            ("{{ tasks.k.output }}", "`tasks` has no `k`; it has `j` and `t`"),
            (
                "{% for r in rows %}{{ r.line }}{% endfor %}",
                "`r` may be without `line`; it has `file` and `line`",
            ),
            (
                "{% if tasks.j.output.c is defined %}{{ tasks.j.output.c }}{% endif %}{{ tasks.j.output.d }}",
                "`tasks.j.output` has no `d`; it has `a`",
            ),
        ] {
            let error = render(template, &values).expect_err(template);
            assert_eq!(error.message, says, "{template}");
        }
        let error = evaluate("tasks.j.output.b", &values).expect_err("nothing");
        assert_eq!(error.message, "`tasks.j.output` has no `b`; it has `a`");
        let names: serde_json::Map<_, _> =
            (0..1_000).map(|n| (format!("{n}{}", "x".repeat(100)), json!(1))).collect();
        let error = render("{{ v.y }}", &json!({"v": names})).expect_err("nothing");
        assert!(error.message.ends_with(" and 990 more") && error.message.len() < 600, "{error}");
    }

    #[test]
    fn an_operation_that_fails_is_named_with_what_it_was_given() {
        let values = json!({
            "t": "x", "n": 2, "zero": 0, "m": {"a": 1}, "list": [1, 2], "nil": null,
            "rows": [{"k": 1}, {"k": "a"}],
        });
        let sum = "; `| int` makes a number of a text, and `~` joins texts";
        for (template, says) in [
            ("{{ t + n }}", format!("`t + n` has no result: `t` is text and `n` is a number{sum}")),
            (
                "a\n{{ 'x' ~ (n - m) }}",
                "`n - m` has no result: `n` is a number and `m` is an object".into(),
            ),
            ("{{ list + t }}", "`list + t` has no result: `list` is a list and `t` is text".into()),
            (
                "{{ n / zero }}",
                "`n / zero`: unable to calculate 2 / 0; `n` is a number and `zero` is a number"
                    .into(),
            ),
            ("{{ -t }}", "`-t`: invalid operation; `t` is text".into()),
            (
                "{{ nil }}",
                "`nil`: the value is none, which has no text: `| default('...')` gives it one"
                    .into(),
            ),
            ("{% for x in n %}{% endfor %}", "`n` is a number, not a list".into()),
            (
                "{% for r in rows %}{{ r.k + 1 }}{% endfor %}",
                format!(
                    "`r.k + 1` has no result: `r.k` is a number or text and `1` is a number{sum}"
                ),
            ),
        ] {
            let error = render(template, &values).expect_err(template);
            assert_eq!(error.message, says, "{template}");
        }
        for (template, begins, ends) in [
            (
                "{{ (t ~ 'y') | from_json }}",
                "`(t ~ 'y') | from_json`: expected",
                "`t ~ 'y'` is text",
            ),
            ("{{ t | abs }}", "`t | abs`: ", "`t` is text"),
            ("{% if 'a' in n %}{% endif %}", "`'a' in n`: ", "`'a'` is text and `n` is a number"),
            ("{{ m | sum }}", "`m | sum`: ", "`m` is an object"),
        ] {
            let error = render(template, &values).expect_err(template);
            let is_told = error.message.starts_with(begins) && error.message.ends_with(ends);
            assert!(is_told, "{template}: {}", error.message);
        }
        let error = evaluate("t * list", &values).expect_err("no number");
        assert!(error.message.starts_with("`t * list`: "), "{error}");
        let long = format!("{{{{ t + n{} }}}}", " + n".repeat(100));
        assert!(render(&long, &values).expect_err("text").message.len() < 400);
        let error = render("{{ nobody + 1 }}", &values).expect_err("none");
        assert!(error.message.contains("`nobody` is undefined"), "{error}");
    }

    #[test]
    fn outside_names_are_listed() {
        let names =
            names_in_template("{% for x in tasks.a.outputs %}{{ x.k }}{{ inputs.b }}{% endfor %}");
        let want = ["inputs.b", "tasks.a.outputs"].map(str::to_owned);
        assert_eq!(names, Ok(BTreeSet::from(want)));
    }

    #[test]
    fn what_the_language_lacks_is_found_before_anything_is_rendered() {
        for (template, message, range) in [
            ("a {{ x | upcase }}", "there is no filter `upcase`", "upcase"),
            ("{% if false %}{{ x | nope }}{% endif %}", "there is no filter `nope`", "nope"),
            ("{{ x is containing('a') }}", "there is no test `containing`", "containing"),
            ("{% include 'b' %}", "there are no other templates that could be included", "'b'"),
        ] {
            let error = names_in_template(template).expect_err(template);
            assert_eq!(error.message, message);
            let range =
                error.range.and_then(|found| template.get(found)).map(|at| at.contains(range));
            assert_eq!(range, Some(true), "{template}");
        }
        let error = names_in_expression("x | upcase").expect_err("no filter");
        assert_eq!(error.range, Some(4..10));
        for whole in ["{{ x | upper | default('') }}", "{{ x is defined }}", "{{ x is in [1] }}"] {
            assert_eq!(names_in_template(whole), Ok(BTreeSet::from(["x".to_owned()])), "{whole}");
        }
    }

    #[test]
    fn what_is_suggested_exists() {
        for name in filters() {
            assert!(names_in_expression(&format!("x | {name}")).is_ok(), "{name}");
        }
        for name in TESTS {
            assert!(names_in_expression(&format!("x is {name}(1)")).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_endless_template_ends() {
        let endless =
            "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}";
        assert!(render(endless, &json!({})).is_err());
    }
}
