//! The layers of the configuration: built-in defaults, the file, a profile, `CALLSHEET_*`
//! variables, flags.
//!
//! figment decides which layer wins; the values that won keep the place where they were written.

use std::collections::BTreeMap;
use std::sync::Arc;

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use miette::NamedSource;

use super::diagnostic::Place;
use super::raw::{Entry, Node, Raw, Table};
use super::schema::{FILE_ONLY, ROOT};
use crate::spec::Limits;

/// The beginning of the variables that set configuration keys.
const PREFIX: &str = "CALLSHEET_";

/// Variables with that beginning that mean something else.
const NOT_KEYS: [&str; 2] = ["CALLSHEET_STATE_DIR", "CALLSHEET_LOG"];

/// One layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    name: &'static str,
    pub(super) tree: Table,
}

impl Layer {
    pub(super) fn new(name: &'static str, tree: Table) -> Self {
        Self { name, tree }
    }
}

impl Provider for &Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.tree.to_figment()))
    }
}

/// Lays the layers over each other, the lowest first.
pub(super) fn merge(layers: &[Layer]) -> Table {
    let figment = layers.iter().fold(Figment::new(), |figment, layer| figment.merge(layer));
    let merged = figment.data().ok().and_then(|mut data| data.remove(&Profile::Default));
    rebuild(&merged.unwrap_or_default(), &mut Vec::new(), layers, &figment)
}

fn rebuild(dict: &Dict, path: &mut Vec<String>, layers: &[Layer], figment: &Figment) -> Table {
    // Keys in the order in which they are first written, from the lowest layer up.
    let mut order: Vec<&Entry> = Vec::new();
    for table in layers.iter().filter_map(|layer| layer.tree.at(path)) {
        for entry in &table.0 {
            if !order.iter().any(|seen| seen.key == entry.key) {
                order.push(entry);
            }
        }
    }
    let mut entries = Vec::with_capacity(order.len());
    for key in order.iter().map(|entry| entry.key.clone()) {
        let Some(value) = dict.get(&key) else { continue };
        let Some(entry) = winner(&key, value, path, layers, figment) else { continue };
        let mut entry = entry.clone();
        if let Value::Dict(_, inner) = value {
            path.push(key);
            entry.node.raw = Raw::Table(rebuild(inner, path, layers, figment));
            path.pop();
        }
        entries.push(entry);
    }
    Table(entries)
}

/// The entry that a merged value comes from; for a table, whose parts may come from several
/// layers, the lowest one that somebody wrote.
fn winner<'a>(
    key: &str,
    value: &Value,
    path: &[String],
    layers: &'a [Layer],
    figment: &Figment,
) -> Option<&'a Entry> {
    let entry = |layer: &'a Layer| layer.tree.at(path)?.get(key);
    if let Value::Dict(..) = value {
        let tables = |layer: &'a Layer| entry(layer).filter(|e| e.node.table().is_some());
        let (built_in, written) = layers.split_first()?;
        return written.iter().find_map(tables).or_else(|| tables(built_in));
    }
    let name = &figment.get_metadata(value.tag())?.name;
    entry(layers.iter().find(|layer| *name == layer.name)?)
}

/// What holds where nobody says anything else.
pub(super) fn built_in() -> Layer {
    let text = Arc::new(NamedSource::new("built-in defaults", String::new()));
    let place = Place::start(&text);
    let entry = |key: &str, raw: Raw| Entry {
        key: key.to_owned(),
        key_place: place.clone(),
        node: Node::new(raw, place.clone()),
    };
    let count = |n: usize| Raw::Integer(i64::try_from(n).unwrap_or(i64::MAX));
    let word = |word: &str| Raw::Text(word.to_owned());
    let limits = Limits::default();
    let sections = [
        (
            "limits",
            vec![
                entry("max_concurrency", count(limits.max_concurrency)),
                entry("max_depth", Raw::Integer(i64::from(limits.max_depth))),
                entry("max_children", count(limits.max_children)),
                entry("max_descendants", count(limits.max_descendants)),
                entry("fail_fast", Raw::Truth(limits.fail_fast)),
                entry("cancel_running", Raw::Truth(limits.cancel_running)),
                entry("grace_period", word(&format!("{}ms", limits.grace_period.as_millis()))),
            ],
        ),
        // Silence for two minutes and 50 calls: above what a working agent needs, below what a
        // stuck one should cost.
        ("defaults", vec![entry("idle_timeout", word("2m")), entry("max_turns", count(50))]),
        ("compaction", vec![entry("preset", word("adaptive"))]),
        ("state", vec![entry("dir", word(".transcripts"))]),
        ("logs", vec![entry("level", word("info"))]),
    ];
    let section = |(key, entries): (&str, Vec<Entry>)| entry(key, Raw::Table(Table(entries)));
    Layer::new("built-in defaults", Table(sections.into_iter().map(section).collect()))
}

/// What a variable says of the key that it sets; nothing for any other variable.
pub(super) fn setting(variable: &str) -> Option<&str> {
    let rest = variable.strip_prefix(PREFIX)?;
    if rest.is_empty() || NOT_KEYS.contains(&variable) {
        return None;
    }
    // A variable of one word that is no key is somebody else's.
    let top = rest.to_ascii_lowercase();
    let is_key = ROOT.iter().any(|field| field.key == top) && !FILE_ONLY.contains(&&*top);
    (rest.contains("__") || is_key).then_some(rest)
}

/// The layer of the `CALLSHEET_*` variables: `__` stands between the levels. A name in capitals
/// finds the key of the file that it means, whatever its case.
pub(super) fn environment(variables: &BTreeMap<String, String>, file: &Table) -> Layer {
    let mut tree = Table::default();
    for (variable, text) in variables {
        let Some(rest) = setting(variable) else { continue };
        let place = Place::outside("environment", &format!("{variable}="), text, variable);
        let Ok(value) = text.parse::<Value>();
        let mut node = Node::from_figment(&value, &place);
        if !matches!(node.raw, Raw::Text(_)) {
            node.unquoted = Some(text.clone());
        }
        insert(&mut tree, &resolve(rest, file), node);
    }
    Layer::new("environment", tree)
}

/// The path of keys that a variable means.
fn resolve(variable: &str, file: &Table) -> Vec<String> {
    let mut table = Some(file);
    let mut path = Vec::new();
    for part in variable.split("__") {
        let alike = |key: &str| key.replace('-', "_").eq_ignore_ascii_case(part);
        let found = table.and_then(|table| table.0.iter().find(|entry| alike(&entry.key)));
        table = found.and_then(|entry| entry.node.table());
        path.push(found.map_or_else(|| part.to_ascii_lowercase(), |entry| entry.key.clone()));
    }
    path
}

/// The layer of the flags: dotted keys.
pub(super) fn flags(overrides: &[(String, toml::Value)]) -> Layer {
    let mut tree = Table::default();
    for (key, value) in overrides {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let place = Place::outside("command line", &format!("{key}="), &text, "the command line");
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        insert(&mut tree, &path, Node::from_toml(value, &place));
    }
    Layer::new("command line", tree)
}

fn insert(tree: &mut Table, path: &[String], node: Node) {
    let Some((key, rest)) = path.split_first() else { return };
    let key_place = node.place.name_only();
    let at = tree.0.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
        let raw = Raw::Table(Table::default());
        let empty = Node::new(raw, key_place.clone());
        tree.0.push(Entry { key: key.clone(), key_place, node: empty });
        tree.0.len() - 1
    });
    let slot = &mut tree.0[at].node;
    match &mut slot.raw {
        Raw::Table(inner) if !rest.is_empty() => insert(inner, rest, node),
        _ if rest.is_empty() => *slot = node,
        // A value was set where this one wants a table: the later variable wins.
        _ => {
            let mut inner = Table::default();
            insert(&mut inner, rest, node);
            slot.raw = Raw::Table(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::raw::parse;

    fn layer(name: &'static str, toml: &str) -> Layer {
        let text = Arc::new(NamedSource::new(name, toml.to_owned()));
        Layer::new(name, parse(&text).expect("valid TOML"))
    }

    #[test]
    fn the_higher_layer_wins_key_by_key_and_keeps_its_place() {
        let file = layer("file", "[a]\nx = 1\ny = [1, 2]\n[a.deep]\nz = 'low'\n[b]\nk = 1\n");
        let over = layer("over", "[a]\ny = [3]\n[a.deep]\nw = 2\n");
        let merged = merge(&[built_in(), file, over]);
        let a = merged.section("a");
        assert_eq!(a.whole::<u32>("x"), Some(1));
        let y = a.get("y").expect("y");
        assert!(matches!(&y.node.raw, Raw::List(items) if items.len() == 1));
        assert_eq!((y.key_place.text.name(), y.key_place.line_column()), ("over", (2, 1)));
        assert_eq!(a.section("deep").text("z"), Some("low"));
        assert_eq!(a.section("deep").whole::<u32>("w"), Some(2));
        assert_eq!(a.get("deep").expect("deep").key_place.text.name(), "file");
        assert_eq!(merged.section("limits").whole::<u32>("max_concurrency"), Some(8));
        assert_eq!(
            merged.section("limits").duration("grace_period"),
            Some(Limits::default().grace_period)
        );
    }

    #[test]
    fn variables_find_the_keys_that_they_mean() {
        let file = layer("file", "[agents.fix-it]\nmodel = 'a'\n[env]\nFOO = '1'\n");
        let variables = [
            ("CALLSHEET_AGENTS__FIX_IT__MODEL", "5"),
            ("CALLSHEET_ENV__FOO", "2"),
            ("CALLSHEET_LIMITS__MAX_CONCURRENCY", "2"),
            ("CALLSHEET_STATE_DIR", "x"),
            ("CALLSHEET_LOG", "debug"),
            ("CALLSHEET_WHATEVER", "x"),
            ("HOME", "/"),
        ];
        let variables = variables.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let tree = environment(&variables, &file.tree).tree;
        assert_eq!(tree.section("agents").section("fix-it").text("model"), Some("5"));
        assert_eq!(tree.section("env").text("FOO"), Some("2"));
        assert_eq!(tree.section("limits").whole::<u32>("max_concurrency"), Some(2));
        assert_eq!(tree.0.len(), 3);
    }
}
