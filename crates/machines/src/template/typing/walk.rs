//! The walk through the syntax tree of one text, with the types of the names that it may use.
//!
//! Pure. Keeps the variables of the scopes that are open, and whether a condition decides that a place is reached.

mod filters;
mod operands;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use minijinja::machinery::Span;
use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Macro, Stmt, UnaryOpKind};

use super::fault::Failing;
use super::{Misfit, MisfitKind, Roots};
use crate::template::value_type::{Found, Type};

/// The most misfits of one text that are kept.
const MOST_MISFITS: usize = 20;

/// The longest text in bytes whose brackets are counted.
const LONGEST: usize = 1_000;

/// Whether a value may be missing where it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is an error.
    IsError,
    /// The text says what happens then.
    IsForeseen,
}

/// The walk through one text.
pub(super) struct Walk<'a> {
    text: &'a str,
    known: &'a Roots,
    /// The variables of the scopes that are open.
    scopes: Vec<HashMap<&'a str, Type>>,
    /// Names that are set more than once, or that hide what is known.
    unsure: HashSet<&'a str>,
    /// How many conditions decide whether this place is reached.
    conditions: usize,
    pub(super) misfits: Vec<Misfit>,
    /// The bytes of an expression that is to be kept.
    sought: Option<Range<usize>>,
    /// That expression, once the walk has met it.
    pub(super) failing: Option<Failing>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(text: &'a str, known: &'a Roots) -> Self {
        let (scopes, unsure) = (vec![HashMap::new()], HashSet::new());
        let (misfits, sought, failing) = (Vec::new(), None, None);
        Self { text, known, scopes, unsure, conditions: 0, misfits, sought, failing }
    }

    /// Finds the names that are set at more than one place: which value they have where cannot be told.
    pub(super) fn assigned(&mut self, statements: &[Stmt<'a>]) {
        let mut seen = HashSet::new();
        targets(statements, &mut |name| {
            if self.known.contains_key(name) || !seen.insert(name) {
                self.unsure.insert(name);
            }
        });
    }

    fn statements(&mut self, all: &[Stmt<'a>]) {
        all.iter().for_each(|one| self.statement(one));
    }

    pub(super) fn statement(&mut self, statement: &Stmt<'a>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => drop(self.expression(&emit.expr)),
            Stmt::EmitRaw(_) => {}
            Stmt::ForLoop(each) => {
                let item = self.expression(&each.iter).item();
                self.within(|walk| {
                    walk.bind(&each.target, item);
                    walk.set("loop", Type::Unknown);
                    let filter = each.filter_expr.as_ref().map(|filter| walk.expression(filter));
                    walk.perhaps(filter.is_some(), |walk| walk.statements(&each.body));
                });
                self.within(|walk| walk.statements(&each.else_body));
            }
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr);
                self.perhaps(true, |walk| {
                    walk.statements(&condition.true_body);
                    walk.statements(&condition.false_body);
                });
            }
            Stmt::WithBlock(with) => self.within(|walk| {
                for (target, value) in &with.assignments {
                    let of = walk.expression(value);
                    walk.bind(target, of);
                }
                walk.statements(&with.body);
            }),
            Stmt::Set(set) => {
                let of = self.expression(&set.expr);
                self.bind(&set.target, of);
            }
            Stmt::SetBlock(set) => {
                self.statements(&set.body);
                let of = if set.filter.is_some() { Type::Unknown } else { Type::Text };
                self.bind(&set.target, of);
            }
            Stmt::AutoEscape(block) => self.statements(&block.body),
            Stmt::FilterBlock(block) => {
                self.expression(&block.filter);
                self.statements(&block.body);
            }
            Stmt::Block(block) => self.statements(&block.body),
            Stmt::Macro(one) => self.r#macro(one),
            Stmt::CallBlock(block) => {
                self.call(&block.call);
                self.r#macro(&block.macro_decl);
            }
            Stmt::Do(run) => drop(self.call(&run.call)),
            // No other templates, and nothing to read.
            _ => {}
        }
    }

    fn r#macro(&mut self, one: &Macro<'a>) {
        self.set(one.name, Type::Unknown);
        self.within(|walk| {
            one.defaults.iter().for_each(|value| drop(walk.expression(value)));
            one.args.iter().for_each(|argument| walk.bind(argument, Type::Unknown));
            walk.set("caller", Type::Unknown);
            // It may never be called.
            walk.perhaps(true, |walk| walk.statements(&one.body));
        });
    }

    pub(super) fn expression(&mut self, expression: &Expr<'a>) -> Type {
        self.read(expression, Missing::IsError)
    }

    /// Returns the type of an expression.
    fn read(&mut self, expression: &Expr<'a>, missing: Missing) -> Type {
        let of = self.type_of(expression, missing);
        self.meet(expression, &of);
        of
    }

    fn type_of(&mut self, expression: &Expr<'a>, missing: Missing) -> Type {
        match expression {
            Expr::Var(var) => self.variable(var.id),
            Expr::Const(value) => Type::of_cell(&value.value),
            Expr::GetAttr(get) => {
                let of = self.read(&get.expr, missing);
                self.field(&of, get.name, expression, &get.expr, missing)
            }
            Expr::GetItem(get) => {
                let of = self.read(&get.expr, missing);
                match &get.subscript_expr {
                    Expr::Const(key) => match key.value.as_str() {
                        Some(name) => self.field(&of, name, expression, &get.expr, missing),
                        None => of.at_index(),
                    },
                    other => {
                        self.expression(other);
                        of.at_index()
                    }
                }
            }
            Expr::Slice(slice) => {
                for part in [&slice.start, &slice.stop, &slice.step].into_iter().flatten() {
                    self.expression(part);
                }
                self.expression(&slice.expr)
            }
            Expr::UnaryOp(op) => {
                self.expression(&op.expr);
                match op.op {
                    UnaryOpKind::Not => Type::Bool,
                    UnaryOpKind::Neg => Type::Number,
                }
            }
            Expr::BinOp(op) => {
                let left = self.read(&op.left, missing);
                let mut right = Type::Unknown;
                let is_choice = matches!(op.op, BinOpKind::ScAnd | BinOpKind::ScOr);
                self.perhaps(is_choice, |walk| right = walk.read(&op.right, missing));
                match op.op {
                    BinOpKind::ScAnd | BinOpKind::ScOr => Type::one_of([left, right]),
                    BinOpKind::Concat => Type::Text,
                    BinOpKind::Add if left == right => left,
                    BinOpKind::Add | BinOpKind::Mul => Type::Unknown,
                    BinOpKind::Sub
                    | BinOpKind::Div
                    | BinOpKind::FloorDiv
                    | BinOpKind::Rem
                    | BinOpKind::Pow => Type::Number,
                    BinOpKind::Eq
                    | BinOpKind::Ne
                    | BinOpKind::Lt
                    | BinOpKind::Lte
                    | BinOpKind::Gt
                    | BinOpKind::Gte
                    | BinOpKind::In => Type::Bool,
                }
            }
            Expr::Compare(compare) => {
                self.expression(&compare.expr);
                compare.ops.iter().for_each(|op| drop(self.expression(&op.expr)));
                Type::Bool
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                let (mut yes, mut no) = (Type::Unknown, Type::Unknown);
                self.perhaps(true, |walk| {
                    yes = walk.read(&choice.true_expr, missing);
                    no = choice.false_expr.as_ref().map_or(Type::Null, |no| walk.read(no, missing));
                });
                Type::one_of([yes, no])
            }
            Expr::Filter(filter) => self.filter(filter, missing),
            Expr::Test(test) => {
                let asks = ["defined", "undefined"].contains(&test.name);
                let missing = if asks { Missing::IsForeseen } else { missing };
                self.read(&test.expr, missing);
                self.arguments(&test.args);
                Type::Bool
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items: Vec<Type> =
                    list.items.iter().map(|item| self.expression(item)).collect();
                Type::one_of(items).list()
            }
            Expr::Tuple(tuple) => {
                let items: Vec<Type> =
                    tuple.items.iter().map(|item| self.expression(item)).collect();
                Type::one_of(items).list()
            }
            Expr::Map(map) => {
                let values: Vec<Type> =
                    map.values.iter().map(|value| self.expression(value)).collect();
                let names = map.keys.iter().map(|key| match key {
                    Expr::Const(name) => name.value.as_str(),
                    _ => None,
                });
                match names.collect::<Option<Vec<&str>>>() {
                    Some(names) => Type::object(names.into_iter().zip(values)),
                    None => Type::any_object(),
                }
            }
        }
    }

    fn call(&mut self, call: &Call<'a>) -> Type {
        self.arguments(&call.args);
        match &call.expr {
            Expr::Var(function) if function.id == "range" => Type::Number.list(),
            Expr::Var(_) => Type::Unknown,
            // A method is no field.
            Expr::GetAttr(method) => {
                self.expression(&method.expr);
                Type::Unknown
            }
            other => {
                self.expression(other);
                Type::Unknown
            }
        }
    }

    fn arguments(&mut self, all: &[CallArg<'a>]) {
        for argument in all {
            let (CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value)) = argument;
            self.expression(value);
        }
    }

    /// Returns the type of the field `name`, which is read at `at`, and keeps what is missing.
    fn field(
        &mut self,
        of: &Type,
        name: &str,
        at: &Expr<'a>,
        owner: &Expr<'a>,
        missing: Missing,
    ) -> Type {
        let found = of.field(name);
        let is_foreseen = missing == Missing::IsForeseen;
        let is_sure = !is_foreseen && self.conditions == 0;
        let own = || (self.written(self.whole(owner)), of.clone(), name.to_owned());
        let kind = match &found {
            Found::Never => {
                let (owner, of, field) = own();
                Some(MisfitKind::Never { owner, of, field })
            }
            Found::Perhaps(_) if is_sure => {
                let (owner, of, field) = own();
                Some(MisfitKind::Perhaps { owner, of, field })
            }
            Found::Unlisted(_) if is_sure => {
                let (owner, of, field) = own();
                Some(MisfitKind::Unlisted { owner, of, field })
            }
            Found::Always(_) | Found::Perhaps(_) | Found::Unlisted(_) => None,
        };
        if let Some(kind) = kind {
            self.keep(at, kind, is_foreseen);
        }
        match found {
            Found::Always(of) | Found::Perhaps(of) | Found::Unlisted(of) => of,
            Found::Never => Type::Unknown,
        }
    }

    fn keep(&mut self, at: &Expr<'a>, kind: MisfitKind, is_foreseen: bool) {
        if self.misfits.len() < MOST_MISFITS {
            let range = self.whole(at);
            let path = self.written(range.clone());
            self.misfits.push(Misfit { range, path, kind, is_foreseen });
        }
    }

    /// Finds the texts whose truth is asked.
    pub(super) fn truth(&mut self, expression: &Expr<'a>) {
        match expression {
            Expr::BinOp(op) if matches!(op.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                self.truth(&op.left);
                self.truth(&op.right);
            }
            Expr::UnaryOp(op) if matches!(op.op, UnaryOpKind::Not) => self.truth(&op.expr),
            Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Var(_) => {
                let before = self.misfits.len();
                let of = self.expression(expression);
                self.misfits.truncate(before);
                if of == Type::Text {
                    self.keep(expression, MisfitKind::Truth, false);
                }
            }
            _ => {}
        }
    }

    /// Returns the range of an expression. The parser counts that of `a.b` from the dot.
    fn whole(&self, expression: &Expr<'a>) -> Range<usize> {
        let Range { start, end } = range(expression.span());
        let base = match expression {
            Expr::GetAttr(get) => Some(&get.expr),
            Expr::GetItem(get) => Some(&get.expr),
            Expr::Slice(slice) => Some(&slice.expr),
            Expr::Call(call) => Some(&call.expr),
            Expr::Test(test) => Some(&test.expr),
            Expr::Filter(filter) => filter.expr.as_ref(),
            _ => None,
        };
        self.balanced(base.map_or(start, |base| self.whole(base).start.min(start)), end)
    }

    /// Returns a range with the brackets around its beginning: they are no part of the expression in them.
    fn balanced(&self, mut start: usize, end: usize) -> Range<usize> {
        let count = |text: &str, c: char| text.matches(c).count();
        while let Some(text) = self.text.get(start..end)
            && text.len() <= LONGEST
            && count(text, ')') > count(text, '(')
            && let Some(before) = self.text[..start].trim_end().strip_suffix('(')
        {
            start = before.len();
        }
        start..end
    }

    fn written(&self, range: Range<usize>) -> String {
        self.text.get(range).unwrap_or_default().to_owned()
    }

    fn variable(&self, name: &str) -> Type {
        if self.unsure.contains(name) {
            return Type::Unknown;
        }
        let own = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        own.or_else(|| self.known.get(name)).cloned().unwrap_or_default()
    }

    fn set(&mut self, name: &'a str, of: Type) {
        self.scopes.last_mut().into_iter().for_each(|scope| drop(scope.insert(name, of.clone())));
    }

    /// Binds the names of a target. What they are a part of is not told.
    fn bind(&mut self, target: &Expr<'a>, of: Type) {
        match target {
            Expr::Var(var) => self.set(var.id, of),
            Expr::List(list) => list.items.iter().for_each(|one| self.bind(one, Type::Unknown)),
            Expr::Tuple(all) => all.items.iter().for_each(|one| self.bind(one, Type::Unknown)),
            _ => {}
        }
    }

    /// Walks through what has variables of its own.
    fn within(&mut self, walk: impl FnOnce(&mut Self)) {
        self.scopes.push(HashMap::new());
        walk(self);
        self.scopes.pop();
    }

    /// Walks through what may not be reached, if a condition decides so.
    fn perhaps(&mut self, is_condition: bool, walk: impl FnOnce(&mut Self)) {
        self.conditions += usize::from(is_condition);
        walk(self);
        self.conditions -= usize::from(is_condition);
    }
}

fn range(span: Span) -> Range<usize> {
    span.start_offset as usize..span.end_offset as usize
}

/// Calls `each` with the names that statements set, also those within them.
fn targets<'a>(statements: &[Stmt<'a>], each: &mut impl FnMut(&'a str)) {
    fn target<'a>(expression: &Expr<'a>, each: &mut impl FnMut(&'a str)) {
        match expression {
            Expr::Var(var) => each(var.id),
            Expr::List(list) => list.items.iter().for_each(|one| target(one, each)),
            Expr::Tuple(all) => all.items.iter().for_each(|one| target(one, each)),
            _ => {}
        }
    }
    for statement in statements {
        match statement {
            Stmt::Template(template) => targets(&template.children, each),
            Stmt::ForLoop(each_item) => {
                targets(&each_item.body, each);
                targets(&each_item.else_body, each);
            }
            Stmt::IfCond(condition) => {
                targets(&condition.true_body, each);
                targets(&condition.false_body, each);
            }
            Stmt::WithBlock(with) => targets(&with.body, each),
            Stmt::Set(set) => target(&set.target, each),
            Stmt::SetBlock(set) => {
                target(&set.target, each);
                targets(&set.body, each);
            }
            Stmt::AutoEscape(block) => targets(&block.body, each),
            Stmt::FilterBlock(block) => targets(&block.body, each),
            Stmt::Block(block) => targets(&block.body, each),
            Stmt::Macro(one) => {
                each(one.name);
                targets(&one.body, each);
            }
            Stmt::CallBlock(block) => targets(&block.macro_decl.body, each),
            _ => {}
        }
    }
}
