//! Rewrites compiled templates so that their operators keep to the bounds of the evaluation (`meter`), and
//! bounds the depth of their expressions.
//!
//! MiniJinja counts instructions, but one of them can double a text, and forty double it to a terabyte.
//! Filters, tests and output can be bounded by what is public of it; fuel, a bounded writer and filters do
//! not see the operators `~`, `+` and `*`, lists and slices, comparisons, and raw text within `set`. So its
//! compiled instructions, which are not stable, are rewritten: after each one that makes a value, and before
//! each one that walks through a value, the size of that value is charged to the evaluation.

use std::collections::BTreeMap;

use minijinja::machinery::{
    CodeGenerator, Instruction, Instructions, Token, eval, make_string_output, parse, parse_expr,
    tokenize,
};
use minijinja::value::{Value as Cell, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, escape_formatter};

use super::{meter, text};

/// The most operators of one tag. The parser calls itself for each, and a thread has 2 MiB of stack.
const MOST_OPERATORS: usize = 400;

/// The most branches (`elif`) of the conditions that are open at one place. The parser calls itself for each,
/// and counts none of them.
const MOST_BRANCHES: usize = 200;

/// Words that are operators.
const OPERATORS: [&str; 6] = ["not", "and", "or", "if", "is", "in"];

/// The filters that charge for a value, as one that is looked at or was made. No template can name them,
/// because of the dot.
const LOOK: &str = "bounds.look";
const MADE: &str = "bounds.made";
const MATERIALIZE: &str = "bounds.materialize";

/// The filter that judges what is put into a namespace.
const HOLD: &str = "bounds.hold";

/// The filter that stands for the operator `~`.
const CONCAT: &str = "bounds.concat";

/// The name of a template in errors, which callers do not show.
const NAME: &str = "<string>";

/// Marks a call of a filter that is looked up by its name each time.
const NOT_KEPT: u8 = !0;

/// Adds what rewritten instructions call.
pub(super) fn prepare(environment: &mut Environment<'static>) {
    environment.add_filter(LOOK, looked);
    environment.add_filter(MADE, made);
    environment.add_filter(MATERIALIZE, |value: Cell| made(meter::materialized(value)?));
    environment.add_filter(CONCAT, text::concat);
    environment.add_filter(HOLD, held);
    environment.set_formatter(|out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Cell| {
        meter::look(std::slice::from_ref(value))?;
        // MiniJinja gives what an `if` without an `else` leaves undefined no text.
        if value.is_undefined() || value.as_str().is_some() {
            meter::make(value.as_str().map_or(0, str::len))?;
            return escape_formatter(out, state, value);
        }
        let text = text::of(value)?;
        meter::make(text.len())?;
        escape_formatter(out, state, &Cell::from_safe_string(text.into_owned()))
    });
}

/// Renders a template within the bounds.
pub(super) fn render<'e>(
    environment: &'e Environment<'e>,
    template: &'e str,
    values: Cell,
) -> Result<String, Error> {
    check_depth(template, false)?;
    let mut generator = CodeGenerator::new(NAME, template);
    generator.compile_stmt(&parse(template, NAME, super::syntax())?);
    let (instructions, blocks) = generator.finish();
    let blocks = blocks.iter().map(|(name, block)| (*name, bounded(block))).collect();
    let mut text = String::new();
    let mut out = make_string_output(&mut text);
    meter::begin();
    let instructions = bounded(&instructions);
    eval(environment, &instructions, values, &blocks, &mut out, AutoEscape::None)?;
    Ok(text)
}

/// Evaluates an expression within the bounds.
pub(super) fn evaluate<'e>(
    environment: &'e Environment<'e>,
    expression: &'e str,
    values: Cell,
) -> Result<Cell, Error> {
    check_depth(expression, true)?;
    let mut generator = CodeGenerator::new(NAME, expression);
    generator.compile_expr(&parse_expr(expression)?);
    let instructions = bounded(&generator.finish().0);
    let (mut nothing, blocks) = (String::new(), BTreeMap::new());
    let mut out = make_string_output(&mut nothing);
    meter::begin();
    let (value, _) = eval(environment, &instructions, values, &blocks, &mut out, AutoEscape::None)?;
    Ok(value.unwrap_or(Cell::UNDEFINED))
}

/// Fails if a tag of a template, or an expression, has too many operators to be parsed, or if conditions
/// have too many branches. What is no token is reported by the parser.
pub(super) fn check_depth(text: &str, is_expression: bool) -> Result<(), Error> {
    let mut operators = 0;
    // The branches of each condition that is open, and whether a tag has just begun.
    let (mut open, mut branches, mut begins) = (Vec::new(), 0, false);
    for (token, _) in tokenize(text, is_expression, super::syntax()).map_while(Result::ok) {
        match (begins, &token) {
            (true, Token::Ident("if")) => open.push(0),
            (true, Token::Ident("elif")) => {
                open.iter_mut().next_back().into_iter().for_each(|own| *own += 1);
                branches += 1;
            }
            (true, Token::Ident("endif")) => branches -= open.pop().unwrap_or(0),
            _ => {}
        }
        if branches > MOST_BRANCHES {
            let message = format!("more than {MOST_BRANCHES} branches in conditions");
            return Err(Error::new(ErrorKind::SyntaxError, message));
        }
        begins = matches!(token, Token::BlockStart);
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => operators = 0,
            Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) => {}
            Token::Float(_) | Token::Comma | Token::Colon => {}
            Token::Ident(word) if !OPERATORS.contains(&word) => {}
            _ => operators += 1,
        }
        if operators > MOST_OPERATORS {
            let message = format!("more than {MOST_OPERATORS} operators in one expression");
            return Err(Error::new(ErrorKind::SyntaxError, message));
        }
    }
    Ok(())
}

/// Returns instructions that do the same and charge for it.
fn bounded<'s>(from: &Instructions<'s>) -> Instructions<'s> {
    use Instruction as I;
    let mut to = Instructions::new(from.name(), from.source());
    // The new place of each instruction, for jumps.
    let (mut places, mut count) = (Vec::new(), 0);
    for at in 0.. {
        places.push(count);
        let Some(instruction) = from.get(at) else { break };
        let mut add = |new: I<'s>| {
            count += 1;
            match (from.get_span(at), from.get_line(at)) {
                (Some(span), _) => to.add_with_span(new, span),
                (None, Some(line)) => {
                    to.add_with_line(new, u16::try_from(line).unwrap_or(u16::MAX))
                }
                (None, None) => to.add(new),
            };
        };
        let call = |filter, arguments: u16| I::ApplyFilter(filter, Some(arguments), NOT_KEPT);
        match instruction.clone() {
            // As a value it is written, and so charged for, also where the text is kept by `set`.
            I::EmitRaw(text) => {
                add(I::LoadConst(Cell::from(text)));
                add(I::Emit);
            }
            grows @ (I::Add | I::Mul) => {
                add(grows);
                add(call(MATERIALIZE, 1));
            }
            I::StringConcat => {
                add(call(CONCAT, 2));
                add(call(MADE, 1));
            }
            makes @ (I::BuildList(_)
            | I::BuildTuple(_)
            | I::BuildMap(_)
            | I::Slice
            | I::CallFunction(..)
            | I::CallMethod(..)
            | I::CallObject(_)) => {
                add(makes);
                add(call(MADE, 1));
            }
            // The value lies below the namespace.
            sets @ I::SetAttr(_) => {
                add(I::Swap);
                add(call(HOLD, 1));
                add(I::Swap);
                add(sets);
            }
            walks @ (I::Eq
            | I::Ne
            | I::Gt
            | I::Gte
            | I::Lt
            | I::Lte
            | I::In
            | I::GetItem
            | I::CompareAndPreserve(_)) => {
                add(call(LOOK, 1));
                add(walks);
            }
            other => add(other),
        }
    }
    for at in 0.. {
        let Some(instruction) = to.get_mut(at) else { break };
        let place = |old: &mut u32| {
            let new = usize::try_from(*old).ok().and_then(|old| places.get(old));
            *old = new.copied().unwrap_or(*old);
        };
        match instruction {
            I::Iterate(target)
            | I::Jump(target)
            | I::JumpIfFalse(target)
            | I::JumpIfFalseOrPop(target)
            | I::JumpIfTrueOrPop(target)
            | I::BuildMacro(_, target, _) => place(target),
            _ => {}
        }
    }
    to
}

/// Charges for looking at a value, and returns it.
fn looked(value: Cell) -> Result<Cell, Error> {
    meter::look(std::slice::from_ref(&value))?;
    Ok(value)
}

/// Charges for a value that an operator made of others, which it holds, and returns it.
fn made(value: Cell) -> Result<Cell, Error> {
    let value = looked(value)?;
    meter::made(&value, 1)?;
    Ok(value)
}

/// Returns a value as a namespace may hold it: data, in which is no other namespace. So no value ever holds
/// itself: whoever compares or hashes such a one would never come to an end.
fn held(value: Cell) -> Result<Cell, Error> {
    let value = meter::materialized(value)?;
    meter::look(std::slice::from_ref(&value))?;
    match is_data(&value)? {
        true => Ok(value),
        false => {
            let message = "a namespace holds data: no other namespace, no macro and no loop";
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    }
}

fn is_data(value: &Cell) -> Result<bool, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map => {
            let is_map = value.kind() == ValueKind::Map;
            // Macros and loops hold the variables around them, though they do not show them.
            let is_of_engine = value.as_object().is_some_and(|object| {
                let name = object.type_name();
                name.ends_with("::Namespace") || name.starts_with("minijinja::vm::")
            });
            if is_of_engine {
                return Ok(false);
            }
            for item in value.try_iter()? {
                if !is_data(&item)? || (is_map && !is_data(&value.get_item(&item)?)?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::Number => Ok(true),
        ValueKind::String | ValueKind::Bytes => Ok(true),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use minijinja::value::Serde;
    use serde_json::json;

    use super::*;
    use crate::template::{ENVIRONMENT, evaluate, render};

    #[test]
    fn what_a_template_says_is_done_as_before() {
        let values = json!({"list": [1, 2, 3], "text": "a\nb", "map": {"k": "v"}, "none": null});
        for template in [
            "a{% for x in list if x > 1 %}{{ x }}{{ loop.index }}{% else %}no{% endfor %}\n",
            "{% for x in [] %}{% else %}none{% endfor %}",
            "{% if 1 in list and 9 not in list %}yes{% elif x %}{% else %}no{% endif %}",
            "{{ list | join(', ') }} {{ list + [4] }} {{ [0] * 3 }} {{ 'ab' * 2 }}",
            "{{ (1, 2) }} {{ map.k }} {{ map['k'] }} {{ {'a': 1} }}",
            "{% set x = 'a' ~ 1 %}{% set y %}<{{ x }}>{% endset %}{{ y | upper }}",
            "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}",
            "{% for x in [[1], [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
            "{{ text | indent(2) }} {{ map | tojson }} {{ '%05d' | format(7) }}",
            "{{ gone | default('d') }} {{ none is none }} {{ gone is defined }}",
            "{{ list | batch(2) | list }} {{ list | sum }} {{ list | map('string') | list }}",
            "{{ text | replace('a', 'x') | trim }} {{ list[1:] }} {{ list | length == 3 }}",
            "{% set ns = namespace(n=0) %}{% for x in list %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
            "{% filter upper %}a{{ 'b' }}{% endfilter %}{% block b %}c{% endblock %}",
            "{{ 1 < 2 < 3 }} {{ 'a' if list else 'b' }} {{ range(3) | list }} {{ range(*[3]) | list }}",
            "{{ dict(a=1) }} {{ list | sort(reverse=true) }} {{ map | dictsort }}",
        ] {
            meter::begin();
            let plain = ENVIRONMENT.render_str(template, Cell::from(Serde(&values)));
            let plain = plain.expect(template);
            assert_eq!(render(template, &values).as_ref(), Ok(&plain), "{template}");
            assert!(!plain.is_empty(), "{template}");
        }
        assert_eq!(evaluate("list | length + 1", &values), Ok(json!(4)));
        let undefined = "a\n{{ map.x.y }}";
        let error = render(undefined, &values).expect_err("undefined");
        let plain = ENVIRONMENT.render_str(undefined, Cell::from(Serde(&values)));
        let plain = plain.expect_err("undefined");
        assert_eq!((error.line, error.range), (2, plain.range()));
    }

    #[test]
    fn no_value_holds_itself() {
        for template in [
            "{% set n = namespace(x=1) %}{% set n.x = n %}{{ {n: 1} }}",
            "{% set n = namespace(x=1) %}{% set n.x = [n] %}{{ n ~ n }}",
            "{% set n = namespace(x=1) %}{% set n.x = {'a': [n]} %}{{ n in {'a': 1} }}",
            "{% set n = namespace(x=1) %}{% set n.x = {n: 1} %}{{ n }}",
            "{% set n = namespace(x=1) %}{% set n.x = [n] + [1] %}{{ n == n }}",
            "{% set n = namespace(x=1) %}{% set n.x = [n] | reverse %}{{ n == n }}",
            "{% set n = namespace(x=1) %}{% set n.x = [n] | map('string') %}{{ [n, n] | unique }}",
            "{% set a = namespace() %}{% set b = namespace(x=a) %}{% set a.x = b %}\
             {% for i in [1, 2] %}{{ loop.changed(a if i == 1 else b) }}{% endfor %}",
            "{% set n = namespace() %}{% macro m() %}{{ n }}{% endmacro %}{% set n.x = m %}{{ m() }}",
            "{% set n = namespace() %}{% for i in [1] %}{% set n.x = loop %}{{ n }}{% endfor %}",
        ] {
            // An iterator that gives texts is data; whatever holds the namespace is refused.
            let rendered = render(template, &json!({}));
            match template.contains("'string'") {
                true => drop(rendered),
                false => {
                    let error = rendered.expect_err(template);
                    assert!(
                        error.message.contains("a namespace holds data"),
                        "{template}: {error:?}"
                    );
                }
            }
        }
        let used =
            "{% set n = namespace(a=1) %}{% set n.a = [1, {'k': (2, 'x')}] %}{{ n.a | tojson }}";
        assert_eq!(render(used, &json!({})).as_deref(), Ok("[1, {\"k\": [2, \"x\"]}]"));
    }

    #[test]
    fn as_many_branches_as_a_stack_holds() {
        let chain = |branches: usize| {
            format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}x".repeat(branches))
        };
        // On a thread with the stack that renderings have, and with a margin.
        let tried = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
            assert!(render(&chain(super::MOST_BRANCHES), &json!({})).is_ok());
            assert!(render(&chain(100).repeat(50), &json!({})).is_ok());
            assert!(render(&chain(20_000), &json!({})).is_err());
            // Conditions within branches count together.
            let within = "{% if 0 %}{% elif 0 %}".repeat(140) + &"{% endif %}".repeat(140);
            assert!(render(&within, &json!({})).is_ok());
            let within = format!("{}{within}", "{% if 0 %}{% elif 0 %}".repeat(2_000));
            assert!(render(&within, &json!({})).is_err());
        });
        tried.expect("a thread").join().expect("it ends");
    }

    #[test]
    fn a_hundred_operators_fit_any_stack() {
        let nested = format!("{{{{ {}1 }}}}", "not ".repeat(super::MOST_OPERATORS - 1));
        assert!(render(&nested, &json!({})).is_ok());
        let sum = format!("{{{{ 1{} }}}}", " + 1".repeat(super::MOST_OPERATORS - 2));
        assert!(render(&sum, &json!({})).is_ok());
        assert!(render(&format!("{{{{ {}1 }}}}", "not ".repeat(1_000)), &json!({})).is_err());
    }
}
