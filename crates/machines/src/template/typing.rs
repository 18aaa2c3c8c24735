//! The types of what a template reads: finds the fields that a value never has.
//!
//! Pure. Walks the syntax tree once, with the types of the names that the text may use. Where it cannot tell,
//! a value is unknown, and nothing that follows from it is a mistake.

pub(super) mod failing;
mod fault;
mod walk;

use std::collections::BTreeMap;
use std::ops::Range;

use minijinja::machinery::{parse, parse_expr};

use self::walk::Walk;
use super::value_type::{OBJECT, Type};
use super::{TemplateError, bounds, foreign, syntax};

/// The types of the values that a text may name.
pub type Roots = BTreeMap<String, Type>;

/// A place of a text that does not fit its types.
#[derive(Clone, Debug, PartialEq)]
pub struct Misfit {
    /// The range of bytes in the text.
    pub range: Range<usize>,
    /// The value that is read, as the text writes it.
    pub path: String,
    /// What is wrong with it.
    pub kind: MisfitKind,
    /// True if the text says what happens without it: `| default(...)`, `is defined`.
    pub is_foreseen: bool,
}

/// The ways in which a place does not fit.
#[derive(Clone, Debug, PartialEq)]
pub enum MisfitKind {
    /// A value never has this field.
    Never {
        /// The value, as the text writes it.
        owner: String,
        /// Its type.
        of: Type,
        /// The name of the field.
        field: String,
    },
    /// A value may be without this field.
    Perhaps {
        /// The value, as the text writes it.
        owner: String,
        /// Its type.
        of: Type,
        /// The name of the field.
        field: String,
    },
    /// A value may have this field, which is none of those that are known by name.
    Unlisted {
        /// The value, as the text writes it.
        owner: String,
        /// Its type.
        of: Type,
        /// The name of the field.
        field: String,
    },
    /// A text stands where truth is asked: it is true unless it is empty.
    Truth,
}

/// The types within one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// The type of an expression's value; text for a template.
    pub of: Type,
    /// What does not fit, in the order of the text.
    pub misfits: Vec<Misfit>,
}

/// Finds the types in a template.
///
/// # Errors
/// Returns an error if it cannot be parsed.
pub fn of_template(template: &str, known: &Roots) -> Result<Typed, TemplateError> {
    foreign(|| {
        bounds::check_depth(template, false)?;
        let parsed = parse(template, "", syntax())?;
        let mut walk = Walk::new(template, known);
        walk.assigned(std::slice::from_ref(&parsed));
        walk.statement(&parsed);
        Ok(Typed { of: Type::Text, misfits: walk.misfits })
    })
}

/// Finds the types in an expression.
///
/// # Errors
/// Returns an error if it cannot be parsed.
pub fn of_expression(expression: &str, known: &Roots) -> Result<Typed, TemplateError> {
    foreign(|| {
        bounds::check_depth(expression, true)?;
        let parsed = parse_expr(expression)?;
        let mut walk = Walk::new(expression, known);
        let of = walk.expression(&parsed);
        Ok(Typed { of, misfits: walk.misfits })
    })
}

/// Does the same with an expression that is asked whether it is true.
///
/// # Errors
/// Returns an error if it cannot be parsed.
pub fn of_condition(expression: &str, known: &Roots) -> Result<Typed, TemplateError> {
    foreign(|| {
        bounds::check_depth(expression, true)?;
        let parsed = parse_expr(expression)?;
        let mut walk = Walk::new(expression, known);
        let of = walk.expression(&parsed);
        walk.truth(&parsed);
        Ok(Typed { of, misfits: walk.misfits })
    })
}

/// The most names that are listed of what is there, and the most characters of one: a model may choose them.
const MOST_NAMES: usize = 10;
const NAME_CHARS: usize = 40;

impl Misfit {
    /// Returns what is wrong, as a fragment.
    #[must_use]
    pub fn message(&self) -> String {
        match &self.kind {
            MisfitKind::Never { owner, of: Type::Object(_), field } => {
                format!("`{owner}` has no `{field}`")
            }
            MisfitKind::Never { owner, of, field } => {
                format!("`{owner}` is {of} and has no `{field}`")
            }
            MisfitKind::Perhaps { owner, of, field } => match of {
                Type::OneOf(_) if of.to_string() != OBJECT => {
                    format!("`{owner}` may be {of}, and not each has `{field}`")
                }
                _ => format!("`{owner}` may be without `{field}`"),
            },
            MisfitKind::Unlisted { owner, field, .. } => {
                format!("`{owner}` does not list `{field}` among its fields")
            }
            MisfitKind::Truth => {
                format!("`{}` is text, which is true unless it is empty", self.path)
            }
        }
    }

    /// Returns the names that are there in place of the one that is missing.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match &self.kind {
            MisfitKind::Never { of, .. }
            | MisfitKind::Perhaps { of, .. }
            | MisfitKind::Unlisted { of, .. } => of.names(),
            MisfitKind::Truth => Vec::new(),
        }
    }

    /// Returns what is there in words, after the message: `it has a and b`.
    #[must_use]
    pub fn what_is_there(&self) -> Option<String> {
        let names = self.names();
        let short = |name: &&str| {
            let name: String = name.chars().take(NAME_CHARS).collect();
            format!("`{name}`")
        };
        let shown: Vec<String> = names.iter().take(MOST_NAMES).map(short).collect();
        let more = names.len().saturating_sub(MOST_NAMES);
        match (shown.split_last(), more) {
            (None, _) => None,
            (Some((last, [])), 0) => Some(format!("it has {last}")),
            (Some((last, others)), 0) => Some(format!("it has {} and {last}", others.join(", "))),
            (Some(_), more) => Some(format!("it has {} and {more} more", shown.join(", "))),
        }
    }
}

/// Returns what was missing when an evaluation failed, with what was there. The error has the place, or it names
/// the value that was not there.
fn missing(found: &Typed, error: &TemplateError) -> Option<String> {
    let is_here = |misfit: &&Misfit| match &error.range {
        _ if error.message.contains(&format!("`{}`", misfit.path)) => true,
        None => true,
        Some(range) => misfit.range.start < range.end && range.start < misfit.range.end,
    };
    let misfits = found.misfits.iter().filter(|misfit| !misfit.is_foreseen);
    let misfit = misfits.filter(is_here).find(|misfit| misfit.kind != MisfitKind::Truth)?;
    let there = misfit.what_is_there().map(|names| format!("; {names}")).unwrap_or_default();
    Some(misfit.message() + &there)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known() -> Roots {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["rows", "done"],
            "properties": {
                "done": {"type": "boolean"},
                "note": {"type": "string"},
                "rows": {"type": "array", "items": {
                    "type": "object", "additionalProperties": false, "required": ["file"],
                    "properties": {"file": {"type": "string"}, "line": {"type": "integer"}},
                }},
            },
        });
        let a = Type::object([("output", Type::of_schema(&schema))]);
        let t = Type::object([("output", Type::Text)]);
        let mut known = Roots::new();
        let open = json!({"type": "object", "properties": {"file": {"type": "string"}}});
        known.insert("open".to_owned(), Type::of_schema(&open));
        known.insert(
            "tasks".to_owned(),
            Type::object([("a", a), ("t", t), ("my-b", Type::Unknown)]),
        );
        known
    }

    /// The misfits as `path: kind`.
    fn misfits(typed: Typed) -> Vec<String> {
        let word = |misfit: &Misfit| match &misfit.kind {
            MisfitKind::Never { owner, field, .. } => format!("{owner} never has {field}"),
            MisfitKind::Perhaps { owner, field, .. } => format!("{owner} may lack {field}"),
            MisfitKind::Unlisted { owner, field, .. } => format!("{owner} does not list {field}"),
            MisfitKind::Truth => format!("{} is text", misfit.path),
        };
        let foreseen = |misfit: &Misfit| if misfit.is_foreseen { " (foreseen)" } else { "" };
        typed.misfits.iter().map(|one| word(one) + foreseen(one)).collect()
    }

    #[test]
    fn a_template_may_read_only_what_is_there() {
        for (template, want) in [
            (
                "{{ tasks.a.output.rows }}{{ tasks.a.output['done'] }}{{ tasks['a'].output.done }}",
                &[][..],
            ),
            ("{{ tasks.a.output.findngs }}", &["tasks.a.output never has findngs"]),
            ("{{ tasks.a.output['findngs'] }}", &["tasks.a.output never has findngs"]),
            ("{{ tasks.a.output.note }}", &["tasks.a.output may lack note"]),
            ("{{ tasks.a.output.note | default('') }}", &[]),
            ("{% if tasks.a.output.done %}{{ tasks.a.output.note }}{% endif %}", &[]),
            ("{{ tasks.a.output.note if tasks.a.output.note is defined }}", &[]),
            (
                "{{ tasks.a.output.nope | default('') }}",
                &["tasks.a.output never has nope (foreseen)"],
            ),
            ("{{ tasks.a.output.nope is defined }}", &["tasks.a.output never has nope (foreseen)"]),
            ("{% if x %}{{ tasks.a.output.nope }}{% endif %}", &["tasks.a.output never has nope"]),
            (
                "{% for r in tasks.a.output.rows %}{{ r.file }}{{ r.flie }}{{ r.line }}{{ loop.index }}{% endfor %}",
                &["r never has flie", "r may lack line"],
            ),
            (
                "{% for r in tasks.a.output.rows if r.line is defined %}{{ r.line }}{% endfor %}",
                &[],
            ),
            (
                "{% for r in tasks.a.output.rows | selectattr('line') | sort(attribute='fil') %}{{ r.line }}{% endfor %}",
                &[
                    "tasks.a.output.rows may lack line",
                    "tasks.a.output.rows | selectattr('line') never has fil",
                ],
            ),
            (
                "{{ tasks.a.output.rows | map(attribute='fiel') | join(', ') }}",
                &["tasks.a.output.rows never has fiel"],
            ),
            (
                "{{ (tasks.a.output.rows | first).x }}{{ tasks.a.output.rows[0].y }}",
                &["tasks.a.output.rows | first never has x", "tasks.a.output.rows[0] never has y"],
            ),
            (
                "{{ tasks.t.output.x }}{{ tasks.a.output.rows.file }}",
                &["tasks.t.output never has x", "tasks.a.output.rows never has file"],
            ),
            (
                "{% set o = tasks.a.output %}{{ o.x }}{% set p = 1 %}{% set p = o %}{{ p.x }}",
                &["o never has x"],
            ),
            ("{% set tasks = {'a': 1} %}{{ tasks.b }}", &[]),
            ("{% with o = tasks.a.output %}{{ o.x }}{% endwith %}{{ o.x }}", &["o never has x"]),
            ("{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m(tasks.a.output) }}{{ nobody.x.y }}", &[]),
            (
                "{{ tasks.a.output.rows | length }}{{ (tasks.t.output | lines | first).x }}",
                &["tasks.t.output | lines | first never has x"],
            ),
            (
                "{{ tasks.a.output.items() }}{{ tasks['my-b'].x.y }}{{ (tasks.t.output | from_json).x }}",
                &[],
            ),
            ("{{ {'a': 1}.b }}", &["{'a': 1} never has b"]),
            ("{{ open.fil }}{{ open.fil | default('') }}", &["open does not list fil"]),
        ] {
            let typed = of_template(template, &known()).expect(template);
            for misfit in &typed.misfits {
                assert!(template.get(misfit.range.clone()).is_some(), "{template}");
            }
            assert_eq!(misfits(typed), want, "{template}");
        }
    }

    #[test]
    fn an_expression_has_a_type() {
        for (expression, of) in [
            ("tasks.a.output.rows | map(attribute='file')", "a list"),
            ("tasks.a.output.rows[1:]", "a list"),
            ("tasks.t.output", "text"),
            ("tasks.t.output | lines", "a list"),
            ("tasks.a.output.done and tasks.t.output", "a boolean or text"),
            ("tasks.t.output == 'x'", "a boolean"),
            ("tasks.a.output.note | default([])", "text or a list"),
            ("nobody", "a value"),
            ("range(3)", "a list"),
            ("tasks.a.output", "an object"),
        ] {
            let typed = of_expression(expression, &known()).expect(expression);
            assert_eq!(typed.of.to_string(), of, "{expression}");
        }
    }

    #[test]
    fn a_text_is_no_answer_to_a_question() {
        for (expression, want) in [
            ("tasks.t.output", &["tasks.t.output is text"][..]),
            ("not tasks.t.output or tasks.a.output.done", &["tasks.t.output is text"]),
            ("tasks.a.output.done", &[]),
            ("tasks.t.output == 'yes'", &[]),
            ("tasks.t.output | trim", &[]),
            ("tasks['my-b'].output", &[]),
        ] {
            assert_eq!(
                misfits(of_condition(expression, &known()).expect("valid")),
                want,
                "{expression}"
            );
        }
    }
}
