//! Bounds on what one rendering may do: the bytes that it makes or looks at, and the depth of its
//! expressions.
//!
//! MiniJinja counts instructions, but one of them can double a text, and forty double it to a terabyte.
//! So the compiled instructions are rewritten: after each one that makes a value, and before each one that
//! walks through a value, the size of that value is charged to the rendering. A filter is called through
//! one of our own, which also judges the arguments that say how much it shall make.

use std::cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::machinery::{
    CodeGenerator, Instruction, Instructions, Token, eval, make_string_output, parse, parse_expr,
    tokenize,
};
use minijinja::value::{Rest, Value as Cell, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, escape_formatter};

use super::text;

/// The most bytes that one rendering may make or look at. A prompt of a tenth fits no model.
const MOST_BYTES: usize = 64 << 20;

/// The bytes that a value costs by itself: a list of empty texts costs too.
const EACH: usize = 64;

/// The deepest that values may be within each other.
const MOST_LEVELS: usize = 64;

/// The most operators of one tag. The parser calls itself for each, and a thread has 2 MiB of stack.
const MOST_OPERATORS: usize = 400;

/// Words that are operators.
const OPERATORS: [&str; 6] = ["not", "and", "or", "if", "is", "in"];

/// The filter that charges a value, and the ones by which filters and tests are called. No template can
/// name them, because of the dot.
const CHARGE: &str = "bounds.charge";
const SETTLE: &str = "bounds.settle";
const FILTER: &str = "bounds.filter";
const TEST: &str = "bounds.test";

/// The filter that stands for the operator `~`.
const CONCAT: &str = "bounds.concat";

/// The name of a template in errors, which callers do not show.
const NAME: &str = "<string>";

/// Marks a call of a filter or test that is looked up by its name each time.
const NOT_KEPT: u8 = !0;

thread_local! {
    static LEFT: cell::Cell<usize> = const { cell::Cell::new(0) };
    static STOP: cell::RefCell<Option<Stop>> = const { cell::RefCell::new(None) };
}

/// Tells the evaluations of a thread to stop. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Lets what is being evaluated end with an error at its next step.
    pub fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does work whose evaluations end when they are told to.
pub fn until<T>(stop: &Stop, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Stop>);
    impl Drop for Restore {
        fn drop(&mut self) {
            STOP.set(self.0.take());
        }
    }
    let _restore = Restore(STOP.replace(Some(stop.clone())));
    work()
}

/// Fails if the evaluations of this thread are to stop.
pub(super) fn go_on() -> Result<(), Error> {
    let is_stopped = |stop: &Stop| stop.0.load(Ordering::Relaxed);
    match STOP.with_borrow(|stop| stop.as_ref().is_some_and(is_stopped)) {
        true => Err(Error::new(ErrorKind::OutOfFuel, "the template takes too long")),
        false => Ok(()),
    }
}

/// Adds what rewritten instructions call.
pub(super) fn prepare(environment: &mut Environment<'static>) {
    environment.add_filter(CHARGE, charged);
    environment.add_filter(SETTLE, settled);
    environment.add_filter(FILTER, filter);
    environment.add_filter(TEST, test);
    environment.add_filter(CONCAT, text::concat);
    environment.set_formatter(|out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Cell| {
        charge(weight(value)?)?;
        // MiniJinja gives what an `if` without an `else` leaves undefined no text.
        if value.is_undefined() || value.as_str().is_some() {
            return escape_formatter(out, state, value);
        }
        let text = text::of(value)?;
        // Escapes make a text longer.
        charge(text.len())?;
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
    LEFT.set(MOST_BYTES);
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
    LEFT.set(MOST_BYTES);
    let (value, _) = eval(environment, &instructions, values, &blocks, &mut out, AutoEscape::None)?;
    Ok(value.unwrap_or(Cell::UNDEFINED))
}

/// Fails if a tag of a template, or an expression, has too many operators to be parsed. What is no
/// token is reported by the parser.
pub(super) fn check_depth(text: &str, is_expression: bool) -> Result<(), Error> {
    let mut operators = 0;
    for (token, _) in tokenize(text, is_expression, super::syntax()).map_while(Result::ok) {
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
        let charge = |filter| I::ApplyFilter(filter, Some(1), NOT_KEPT);
        let named = |filter, arguments: u16| I::ApplyFilter(filter, Some(arguments), NOT_KEPT);
        match instruction.clone() {
            I::EmitRaw(text) => {
                add(I::LoadConst(Cell::from(text)));
                add(I::Emit);
            }
            grows @ (I::Add | I::Mul) => {
                add(grows);
                add(charge(SETTLE));
            }
            I::StringConcat => {
                add(named(CONCAT, 2));
                add(charge(CHARGE));
            }
            makes @ (I::BuildList(_)
            | I::BuildTuple(_)
            | I::BuildMap(_)
            | I::Slice
            | I::EndCapture
            | I::CallFunction(..)
            | I::CallMethod(..)
            | I::CallObject(_)) => {
                add(makes);
                add(charge(CHARGE));
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
                add(charge(CHARGE));
                add(walks);
            }
            I::ApplyFilter(name, Some(count), _) if count < u16::MAX => {
                add(I::LoadConst(Cell::from(name)));
                add(named(FILTER, count + 1));
            }
            I::PerformTest(name, Some(count), _) if count < u16::MAX => {
                add(I::LoadConst(Cell::from(name)));
                add(named(TEST, count + 1));
            }
            unpacked @ I::ApplyFilter(..) => {
                add(unpacked);
                add(charge(CHARGE));
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

/// Takes bytes from what is left for the rendering.
fn charge(bytes: usize) -> Result<(), Error> {
    go_on()?;
    match LEFT.get().checked_sub(bytes) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => {
            LEFT.set(0);
            let message = format!("the template makes more than {} MiB", MOST_BYTES >> 20);
            Err(Error::new(ErrorKind::OutOfFuel, message))
        }
    }
}

/// Returns the size of a value in bytes. Stops at the bound.
fn weight(value: &Cell) -> Result<usize, Error> {
    fn add(value: &Cell, level: usize, sum: &mut usize) -> Result<(), Error> {
        *sum += EACH;
        if level > MOST_LEVELS {
            let message = format!("values are nested more than {MOST_LEVELS} levels deep");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        match value.kind() {
            ValueKind::String => *sum += value.as_str().map_or(0, str::len),
            ValueKind::Bytes => *sum += value.as_bytes().map_or(0, <[u8]>::len),
            ValueKind::Seq | ValueKind::Map => {
                let is_map = value.kind() == ValueKind::Map;
                for item in value.try_iter()? {
                    add(&item, level + 1, sum)?;
                    if is_map {
                        add(&value.get_item(&item)?, level + 1, sum)?;
                    }
                    if *sum > MOST_BYTES {
                        break;
                    }
                }
            }
            // An iterator may give its items only once.
            _ => {}
        }
        Ok(())
    }
    let mut sum = 0;
    add(value, 0, &mut sum)?;
    Ok(sum)
}

/// Charges a value, and returns it.
fn charged(value: Cell) -> Result<Cell, Error> {
    charge(weight(&value)?)?;
    Ok(value)
}

/// Does the same. A sum of lists is not a list but looks for its items in both: of forty of them,
/// each the double of the one before, even the length would take an age.
fn settled(value: Cell) -> Result<Cell, Error> {
    if value.kind() != ValueKind::Iterable {
        return charged(value);
    }
    let mut items = Vec::new();
    for item in value.try_iter()? {
        charge(EACH)?;
        items.push(item);
    }
    charged(Cell::from(items))
}

/// Applies the filter that the last argument names, and charges what it takes, makes and is told to
/// make.
fn filter(state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>) -> Result<Cell, Error> {
    let arguments = arguments.into_values();
    let (name, arguments) = called(&arguments)?;
    let taken: usize = arguments.iter().map(weight).sum::<Result<usize, Error>>()?;
    charge(taken)?;
    charge(asked(name, arguments, taken))?;
    charged(state.apply_filter(name, arguments)?)
}

/// Performs the test that the last argument names.
fn test(state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>) -> Result<bool, Error> {
    let arguments = arguments.into_values();
    let (name, arguments) = called(&arguments)?;
    charge(arguments.iter().map(weight).sum::<Result<usize, Error>>()?)?;
    state.perform_test(name, arguments)
}

fn called(arguments: &[Cell]) -> Result<(&str, &[Cell]), Error> {
    let called = arguments.split_last().and_then(|(name, rest)| Some((name.as_str()?, rest)));
    called.ok_or_else(|| Error::from(ErrorKind::UnknownFilter))
}

/// Returns the bytes that the arguments of a filter tell it to make, at the most.
fn asked(name: &str, arguments: &[Cell], taken: usize) -> usize {
    let given = arguments.get(1..).unwrap_or_default();
    let number = || given.iter().map(largest).max().unwrap_or(0);
    let length = |at: usize| arguments.get(at).and_then(|value| value.as_str()).map_or(0, str::len);
    match name {
        "replace" => length(0).saturating_mul(length(2)),
        "join" => (taken / EACH).saturating_mul(length(1)),
        "indent" | "tojson" => taken.saturating_mul(number()),
        "batch" | "slice" => number().saturating_mul(EACH),
        "format" => number().saturating_add(numbers(arguments.first())),
        _ => 0,
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
fn numbers(text: Option<&Cell>) -> usize {
    let text = text.and_then(|text| text.as_str()).unwrap_or_default();
    let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let number = |digits: &str| digits.parse::<usize>().unwrap_or(usize::MAX);
    digits.map(number).fold(0, usize::saturating_add)
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
            LEFT.set(MOST_BYTES);
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
    fn a_hundred_operators_fit_any_stack() {
        let nested = format!("{{{{ {}1 }}}}", "not ".repeat(super::MOST_OPERATORS - 1));
        assert!(render(&nested, &json!({})).is_ok());
        let sum = format!("{{{{ 1{} }}}}", " + 1".repeat(super::MOST_OPERATORS - 2));
        assert!(render(&sum, &json!({})).is_ok());
        assert!(render(&format!("{{{{ {}1 }}}}", "not ".repeat(1_000)), &json!({})).is_err());
    }
}
