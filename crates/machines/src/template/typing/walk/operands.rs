//! The expression at a place of the text, with the values that it takes.

use std::ops::Range;

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr};

use super::{Walk, range};
use crate::template::typing::fault::Failing;
use crate::template::value_type::Type;

impl<'a> Walk<'a> {
    /// Lets the walk keep the expression that the parser puts at these bytes.
    pub(in crate::template::typing) fn seeking(self, sought: Option<Range<usize>>) -> Self {
        Self { sought, ..self }
    }

    /// Keeps an expression if it is the one that is sought. The innermost is the first that comes here.
    pub(super) fn meet(&mut self, expression: &Expr<'a>, of: &Type) {
        if self.sought.as_ref() != Some(&range(expression.span())) {
            return;
        }
        self.sought = None;
        let misfits = self.misfits.len();
        let takes = operands(expression).into_iter().map(|one| {
            let of = self.expression(one);
            (self.written(self.reach(one)), of)
        });
        let takes = takes.collect();
        self.misfits.truncate(misfits);
        let written = self.written(self.reach(expression));
        self.failing = Some(Failing { written, of: of.clone(), takes });
    }

    /// Returns the range of an expression. The parser counts a comparison from the token before it.
    fn reach(&self, expression: &Expr<'a>) -> Range<usize> {
        let Range { start, end } = self.whole(expression);
        let first = match expression {
            Expr::BinOp(op) if is_comparison(&op.op) => &op.left,
            Expr::Compare(compare) => &compare.expr,
            _ => return start..end,
        };
        self.balanced(self.reach(first).start, end)
    }
}

fn is_comparison(op: &BinOpKind) -> bool {
    use BinOpKind as B;
    matches!(op, B::Eq | B::Ne | B::Lt | B::Lte | B::Gt | B::Gte | B::In)
}

/// Returns the values that an expression takes: none if it reads one as it is.
fn operands<'e, 'a>(expression: &'e Expr<'a>) -> Vec<&'e Expr<'a>> {
    match expression {
        Expr::UnaryOp(op) => vec![&op.expr],
        Expr::BinOp(op) => vec![&op.left, &op.right],
        Expr::Compare(compare) => {
            let others = compare.ops.iter().map(|op| &op.expr);
            std::iter::once(&compare.expr).chain(others).collect()
        }
        Expr::Filter(filter) => filter.expr.iter().chain(values(&filter.args)).collect(),
        Expr::Test(test) => std::iter::once(&test.expr).chain(values(&test.args)).collect(),
        Expr::Call(call) => values(&call.args).collect(),
        Expr::Slice(slice) => vec![&slice.expr],
        _ => Vec::new(),
    }
}

/// Returns the arguments of a call that are no constants: those stand in the text.
fn values<'e, 'a>(all: &'e [CallArg<'a>]) -> impl Iterator<Item = &'e Expr<'a>> {
    all.iter().filter_map(|argument| match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) => {
            (!matches!(value, Expr::Const(_))).then_some(value)
        }
        CallArg::PosSplat(_) | CallArg::KwargSplat(_) => None,
    })
}
