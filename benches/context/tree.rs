//! A made-up source tree: its files, and the names in them.

use fastrand::Rng;

const AREAS: [&str; 9] = [
    "billing", "catalog", "delivery", "identity", "ledger", "messages", "reports", "search",
    "storage",
];
const MODULES: [&str; 8] =
    ["adapters", "commands", "helpers", "managers", "models", "queries", "signals", "validators"];
const VERBS: [&str; 16] = [
    "apply", "build", "check", "collect", "convert", "delete", "encode", "expand", "fetch",
    "filter", "load", "merge", "parse", "resolve", "split", "update",
];
const NOUNS: [&str; 24] = [
    "account", "address", "balance", "batch", "bucket", "column", "currency", "cursor", "document",
    "entry", "field", "header", "index", "invoice", "layout", "option", "parcel", "period",
    "record", "region", "schedule", "tariff", "token", "voucher",
];
const TROUBLES: [&str; 8] = [
    "is empty where a default is expected",
    "does not know the time zone of the other side",
    "is called twice when the cursor is reset",
    "keeps the old order after an update",
    "raises before the lock is released",
    "rounds down where the tariff says up",
    "ignores the limit of the surrounding query",
    "treats a missing value as zero",
];

/// A file of the tree.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) lines: Vec<String>,
    /// The functions that it defines.
    pub(crate) symbols: Vec<String>,
}

/// All files; the files of an area stand side by side.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    pub(crate) fn grown(rng: &mut Rng) -> Self {
        let mut files: Vec<File> = Vec::new();
        for area in AREAS {
            for module in MODULES {
                let path = format!("src/{area}/{module}.py");
                let symbols = (0..rng.usize(4..12)).map(|_| symbol(rng)).collect::<Vec<_>>();
                let mut lines = Vec::new();
                for _ in 0..rng.usize(1..5) {
                    let Some(other) = rng.choice(&files) else { break };
                    let from = other.path.trim_start_matches("src/").trim_end_matches(".py");
                    let name = &other.symbols[rng.usize(..other.symbols.len())];
                    lines.push(format!("from {} import {name}", from.replace('/', ".")));
                }
                for symbol in &symbols {
                    function(rng, symbol, &symbols, &mut lines);
                }
                files.push(File { path, lines, symbols });
            }
        }
        Self { files }
    }

    /// Chooses a function of a file.
    pub(crate) fn symbol(&self, rng: &mut Rng, file: usize) -> &str {
        let symbols = &self.files[file].symbols;
        &symbols[rng.usize(..symbols.len())]
    }

    /// Returns all lines of the tree that contain a name, as `grep -n` prints them.
    pub(crate) fn found(&self, name: &str) -> Vec<String> {
        let all = self.files.iter().flat_map(|file| {
            let lines = file.lines.iter().enumerate();
            let lines = lines.filter(|(_, line)| line.contains(name));
            lines.map(|(number, line)| format!("{}:{}:{line}", file.path, number + 1))
        });
        all.collect()
    }

    /// Makes a remark that a developer could make about a file.
    pub(crate) fn remark(&self, rng: &mut Rng, file: usize) -> String {
        let (path, name) = (&self.files[file].path, self.symbol(rng, file));
        let (other, noun, trouble) = (self.symbol(rng, file), noun(rng), trouble(rng));
        match rng.u8(..6) {
            0 => format!("It looks as if `{name}` {trouble}, so the {noun} comes out wrong."),
            1 => format!("Next I will look at how `{other}` in {path} hands over the {noun}."),
            2 => format!("The {noun} is set in `{name}` and read again in `{other}`."),
            3 => format!("That rules {path} out: `{name}` gets the {noun} as it should."),
            4 => format!("I keep the signature of `{name}`, because `{other}` relies on it."),
            _ => format!("A small change in `{name}` should do, and then the tests again."),
        }
    }
}

pub(crate) fn trouble(rng: &mut Rng) -> &'static str {
    TROUBLES[rng.usize(..TROUBLES.len())]
}

pub(crate) fn noun(rng: &mut Rng) -> &'static str {
    NOUNS[rng.usize(..NOUNS.len())]
}

/// Makes a name such as `resolve_voucher_period`.
pub(crate) fn symbol(rng: &mut Rng) -> String {
    format!("{}_{}_{}", VERBS[rng.usize(..VERBS.len())], noun(rng), noun(rng))
}

/// Makes a line of the body of a function.
pub(crate) fn statement(rng: &mut Rng, symbols: &[String]) -> String {
    let (one, two, three) = (noun(rng), noun(rng), noun(rng));
    let name = &symbols[rng.usize(..symbols.len())];
    match rng.u8(..6) {
        0 => format!("    {one} = {name}({two}, {three})"),
        1 => format!("    {one}_{two} = {one}.get(\"{two}\", {three})"),
        2 => format!("    if {one} is None or {two}.{three} != {one}:"),
        3 => format!("        raise ValueError(f\"{one} {} of {two}: {{{two}}}\")", trouble(rng)),
        4 => format!("    for {one} in {name}({two}):"),
        _ => format!("        {one}.{two} = {name}({one}, limit={})", rng.u16(2..400)),
    }
}

fn function(rng: &mut Rng, symbol: &str, symbols: &[String], lines: &mut Vec<String>) {
    let (one, two) = (noun(rng), noun(rng));
    lines.push(String::new());
    lines.push(format!("def {symbol}({one}, {two}=None):"));
    lines.push(format!("    \"\"\"The {one} that {}.\"\"\"", trouble(rng)));
    for _ in 0..rng.usize(3..22) {
        lines.push(statement(rng, symbols));
    }
    lines.push(format!("    return {one}"));
}
