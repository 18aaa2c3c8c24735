//! The types that filters give, and the fields that they read of each item.

use minijinja::machinery::ast::{CallArg, Expr, Filter};

use super::{Missing, Walk};
use crate::template::value_type::Type;

/// Filters whose values are texts.
const TEXTS: [&str; 14] = [
    "capitalize",
    "e",
    "escape",
    "format",
    "indent",
    "join",
    "lower",
    "pprint",
    "replace",
    "string",
    "title",
    "tojson",
    "trim",
    "upper",
];

/// Filters that give a list of the items which they take.
const LISTS: [&str; 9] =
    ["list", "reject", "rejectattr", "reverse", "select", "selectattr", "slice", "sort", "unique"];

/// Filters that take the name of a field of each item first, and those that take it as `attribute`.
const FIELD_FIRST: [&str; 3] = ["groupby", "rejectattr", "selectattr"];
const BY_ATTRIBUTE: [&str; 6] = ["groupby", "join", "map", "sort", "sum", "unique"];

impl<'a> Walk<'a> {
    pub(super) fn filter(&mut self, filter: &Filter<'a>, missing: Missing) -> Type {
        let name = filter.name;
        let is_default = ["default", "d"].contains(&name);
        let missing = if is_default { Missing::IsForeseen } else { missing };
        let of = filter.expr.as_ref().map_or(Type::Unknown, |value| self.read(value, missing));
        if is_default {
            let other = match filter.args.first() {
                Some(CallArg::Pos(other)) => {
                    let mut of = Type::Unknown;
                    self.perhaps(true, |walk| of = walk.expression(other));
                    of
                }
                Some(_) => Type::Unknown,
                None => Type::Text,
            };
            return Type::one_of([of.but_none(), other]);
        }
        self.arguments(&filter.args);
        let item = of.item();
        let by_field = self.by_field(filter, &item, missing);
        let is_list = matches!(of, Type::List(_));
        match name {
            _ if TEXTS.contains(&name) => Type::Text,
            "length" | "count" | "int" | "float" | "abs" | "round" | "sum" => Type::Number,
            "bool" => Type::Bool,
            "lines" | "split" | "find_all" => Type::Text.list(),
            "find" => Type::one_of([Type::Text, Type::Null]),
            // What is selected may be what has a field.
            "select" | "reject" | "selectattr" | "rejectattr" => item.whole().list(),
            "map" => by_field.unwrap_or_default().list(),
            "slice" => Type::Unknown.list(),
            "reverse" | "sort" | "unique" if !is_list => Type::Unknown,
            _ if LISTS.contains(&name) => item.list(),
            "first" | "last" | "min" | "max" if is_list => item,
            _ => Type::Unknown,
        }
    }

    /// Reads the field that a filter names of each item, and returns its type.
    fn by_field(&mut self, filter: &Filter<'a>, item: &Type, missing: Missing) -> Option<Type> {
        let first = filter.args.first().filter(|_| FIELD_FIRST.contains(&filter.name));
        let named = |name: &str| {
            filter.args.iter().find_map(|argument| match argument {
                CallArg::Kwarg(key, value) if *key == name => Some(value),
                _ => None,
            })
        };
        let field = match first {
            Some(CallArg::Pos(field)) => Some(field),
            _ => named("attribute").filter(|_| BY_ATTRIBUTE.contains(&filter.name)),
        };
        let field = field?;
        let (Expr::Const(path), Some(list)) = (field, &filter.expr) else { return None };
        // `selectattr("x", "defined")` and its like say what they do without it.
        let asks = filter.args.len() > 1 && FIELD_FIRST.contains(&filter.name);
        let is_foreseen = asks || named("default").is_some();
        let missing = if is_foreseen { Missing::IsForeseen } else { missing };
        let mut of = item.clone();
        for name in path.value.as_str()?.split('.') {
            // A number is the place of an item.
            of = match name.parse::<usize>() {
                Ok(_) => of.item(),
                Err(_) => self.field(&of, name, field, list, missing),
            };
        }
        Some(of)
    }
}
