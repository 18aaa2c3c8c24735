//! A made-up project: its language, files, functions and names.

use fastrand::Rng;

use super::grammar::{chance, pick, say, size};

const NOUNS: &str = "account address adjustment allocation archive article asset attribute balance \
    bracket branch bucket budget carrier catalog category channel charge claim column contact contract \
    coupon currency cursor deposit device digest discount document draft entry envelope event export \
    field filter folder forecast fragment gateway header holiday import index invoice item journal \
    label layout ledger lease limit listing locale location mailbox manifest margin matrix member \
    merchant message metric mirror node note offer option outlet package page parcel partner patch \
    payment period permit picture plan policy pool portion price profile project queue quota quote \
    rate reading receipt record refund region release report request reservation route sample schedule \
    schema segment sensor session shelf shift signal site slot snapshot source span station statement \
    stock stream subject supplier table tariff template tenant ticket tile token topic track trade \
    transfer unit vector vendor version visit voucher wallet warehouse window worker zone";
const VERBS: &str = "accept adjust align allocate apply assign attach build cancel check clear close collect \
    combine compare compute convert copy count decode deliver derive detach drain drop emit encode expand \
    expire export fetch fill filter find flush fold format freeze gather group hash hold import insert \
    issue join list load lock lookup map mark match measure merge move normalise notify open order pack \
    parse pick plan prune publish pull push read rebuild reduce refresh release render replace report \
    reset resolve restore retry round route save scan seal select send settle shift sort split start \
    store strip sum swap sync tally trace track trim unpack update validate verify weigh wrap write";
const ROOTS: [&str; 8] = ["core", "api", "store", "web", "jobs", "common", "engine", "service"];

/// The language of a project: the form of its code and of its tools' output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Rust,
    TypeScript,
}

/// A file of the project.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) lines: Vec<String>,
    /// The functions that it defines.
    pub(crate) symbols: Vec<String>,
}

/// Files, and the words from which their names are made.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) language: Language,
    /// The folder in which it lies.
    pub(crate) root: String,
    pub(crate) files: Vec<File>,
    nouns: Vec<&'static str>,
    verbs: Vec<&'static str>,
}

impl Project {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let language = [Language::Python, Language::Rust, Language::TypeScript][rng.usize(..3)];
        let mut nouns: Vec<_> = NOUNS.split_whitespace().collect();
        let mut verbs: Vec<_> = VERBS.split_whitespace().collect();
        rng.shuffle(&mut nouns);
        rng.shuffle(&mut verbs);
        nouns.truncate(36);
        verbs.truncate(24);
        let name = nouns[0];
        let root = match rng.u8(..4) {
            0 => format!("/home/{}/{name}", pick(rng, &["dev", "ana", "lee", "work"])),
            1 => format!("/srv/{name}-{}", nouns[1]),
            2 => "/testbed".to_owned(),
            _ => format!("/workspace/{name}s"),
        };
        let mut project = Self { language, root, files: Vec::new(), nouns, verbs };
        for _ in 0..rng.usize(18..44) {
            project.grow(rng);
        }
        project
    }

    /// Adds a file with functions that use those of other files.
    fn grow(&mut self, rng: &mut Rng) {
        let (folder, extension) = match self.language {
            Language::Python => ("", "py"),
            Language::Rust => ("src/", "rs"),
            Language::TypeScript => ("src/", "ts"),
        };
        let area = if chance(rng, 70) { pick(rng, &ROOTS) } else { self.noun(rng) };
        let stem = match rng.u8(..3) {
            0 => format!("{}_{}", self.noun(rng), self.noun(rng)),
            1 => format!("{}s", self.noun(rng)),
            _ => self.noun(rng).to_owned(),
        };
        let path = match self.language {
            Language::Python => format!("{}/{area}/{stem}.{extension}", self.nouns[0]),
            _ => format!("{folder}{area}/{stem}.{extension}"),
        };
        if self.files.iter().any(|file| file.path == path) {
            return;
        }
        let symbols: Vec<_> = (0..size(rng, 6.0, 24.0)).map(|_| self.new_symbol(rng)).collect();
        let mut file = File { path, lines: Vec::new(), symbols };
        for _ in 0..rng.usize(1..6) {
            let Some(other) = rng.choice(&self.files) else { break };
            let name = &other.symbols[rng.usize(..other.symbols.len())];
            file.lines.push(self.import(&other.path, name));
        }
        file.lines.push(String::new());
        for _ in 0..rng.usize(..3) {
            file.lines.push(self.constant(rng));
        }
        for symbol in file.symbols.clone() {
            let lines = self.function(rng, &symbol, &file);
            file.lines.extend(lines);
        }
        self.files.push(file);
    }

    pub(crate) fn import(&self, path: &str, name: &str) -> String {
        let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
        match self.language {
            Language::Python => format!("from {} import {name}", stem.replace('/', ".")),
            Language::Rust => {
                format!(
                    "use crate::{}::{name};",
                    stem.trim_start_matches("src/").replace('/', "::")
                )
            }
            Language::TypeScript => format!("import {{ {name} }} from \"@/{}\";", &stem[4..]),
        }
    }

    fn constant(&self, rng: &mut Rng) -> String {
        let name = format!("{}_{}", self.noun(rng), self.noun(rng)).to_uppercase();
        let value = rng.u32(3..90_000);
        match self.language {
            Language::Python => format!("{name} = {value}"),
            Language::Rust => format!("const {name}: u64 = {value};"),
            Language::TypeScript => format!("export const {name} = {value};"),
        }
    }

    /// Makes the lines of a function, with an empty line before it.
    pub(crate) fn function(&self, rng: &mut Rng, symbol: &str, file: &File) -> Vec<String> {
        let (one, two) = (self.noun(rng), self.noun(rng));
        let comment = self.sentence(rng, "comment", file);
        let mut lines = vec![String::new()];
        lines.extend(match self.language {
            Language::Python => vec![
                format!("def {symbol}({one}, {two}=None):"),
                format!("    \"\"\"{comment}.\"\"\""),
            ],
            Language::Rust => vec![
                format!("/// {comment}."),
                format!("pub fn {symbol}({one}: &str, {two}: u64) -> Result<u64, Error> {{"),
            ],
            Language::TypeScript => vec![
                format!("// {comment}"),
                format!("export function {symbol}({one}: string, {two} = {}) {{", rng.u16(2..900)),
            ],
        });
        for _ in 0..size(rng, 9.0, 40.0) {
            lines.push(self.statement(rng, file));
        }
        lines.extend(match self.language {
            Language::Python => vec![format!("    return {one}")],
            Language::Rust => vec![format!("    Ok({two})"), "}".to_owned()],
            Language::TypeScript => vec![format!("  return {one};"), "}".to_owned()],
        });
        lines
    }

    /// Makes a line of the body of a function.
    pub(crate) fn statement(&self, rng: &mut Rng, file: &File) -> String {
        let [one, two, three] = [(); 3].map(|()| self.noun(rng));
        let name = self.symbol_in(rng, file);
        let (number, kind) = (rng.u16(2..4000), rng.u8(..9));
        if kind == 8 {
            let comment = self.sentence(rng, "comment", file);
            let mark = if self.language == Language::Python { "#" } else { "//" };
            return format!("    {mark} {comment}");
        }
        match self.language {
            Language::Python => match kind {
                0 => format!("    {one} = {name}({two}, {three})"),
                1 => format!("    {one}_{two} = {one}.get(\"{two}\", {number})"),
                2 => format!("    if {one} is None or {two}.{three} != {one}:"),
                3 => format!("        raise ValueError(f\"{one} without {three}: {{{two}}}\")"),
                4 => format!("    for {one} in {name}({two}):"),
                5 => format!("        {one}.{two} = {name}({one}, limit={number})"),
                6 => format!(
                    "    {two} = [{one}.{three} for {one} in {two} if {one}.{two} > {number}]"
                ),
                _ => format!("    log.debug(\"{one} %s of %s\", {two}.{three}, {one})"),
            },
            Language::Rust => match kind {
                0 => format!("    let {one} = {name}({two}, {three})?;"),
                1 => format!("    let {one}_{two} = {one}.get(\"{two}\").unwrap_or({number});"),
                2 => format!("    if {one}.is_empty() || {two}.{three} != {number} {{"),
                3 => format!(
                    "        return Err(Error::new(format!(\"{one} without {three}: {{{two}}}\")));"
                ),
                4 => format!("    for {one} in {name}(&{two})? {{"),
                5 => format!("        {one}.{two} = {name}({one}, {number})?;"),
                6 => format!(
                    "    let {two}: Vec<_> = {two}.iter().filter(|{one}| {one}.{three} > {number}).collect();"
                ),
                _ => "    }".to_owned(),
            },
            Language::TypeScript => match kind {
                0 => format!("  const {one} = await {name}({two}, {three});"),
                1 => format!("  const {one}{two} = {one}?.{two} ?? {number};"),
                2 => format!("  if (!{one} || {two}.{three} !== {one}.id) {{"),
                3 => format!("    throw new Error(`{one} without {three}: ${{{two}}}`);"),
                4 => format!("  for (const {one} of {name}({two})) {{"),
                5 => format!("    {one}.{two} = {name}({one}, {{ limit: {number} }});"),
                6 => format!("  {two} = {two}.filter(({one}) => {one}.{three} > {number});"),
                _ => "  }".to_owned(),
            },
        }
    }

    pub(crate) fn noun(&self, rng: &mut Rng) -> &'static str {
        self.nouns[rng.usize(..self.nouns.len())]
    }

    /// Makes a name that nothing has yet.
    pub(crate) fn new_symbol(&self, rng: &mut Rng) -> String {
        let (verb, one) = (self.verbs[rng.usize(..self.verbs.len())], self.noun(rng));
        let name = match rng.u8(..3) {
            0 => format!("{verb}_{one}"),
            1 => format!("{verb}_{one}_{}", self.noun(rng)),
            _ => format!("{one}_{verb}_{}", self.noun(rng)),
        };
        if self.language != Language::TypeScript {
            return name;
        }
        let mut parts = name.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |name, part| name + &part[..1].to_uppercase() + &part[1..])
    }

    /// Chooses a function of a file.
    pub(crate) fn symbol_in<'a>(&self, rng: &mut Rng, file: &'a File) -> &'a str {
        &file.symbols[rng.usize(..file.symbols.len())]
    }

    /// Makes a sentence of this rule about a file.
    pub(crate) fn sentence(&self, rng: &mut Rng, rule: &str, file: &File) -> String {
        say(rng, rule, &|rng, place| self.place(rng, place, file))
    }

    /// Returns the value of a place in a sentence about a file.
    pub(crate) fn place(&self, rng: &mut Rng, place: &str, file: &File) -> Option<String> {
        Some(match place {
            "path" if chance(rng, 65) => file.path.clone(),
            "path" => match rng.choice(&self.files) {
                Some(file) => file.path.clone(),
                None => file.path.clone(),
            },
            "symbol" | "other" => self.symbol_in(rng, file).to_owned(),
            "noun" => self.noun(rng).to_owned(),
            "number" => rng.u16(3..700).to_string(),
            "big" => rng.u32(1000..99_999).to_string(),
            "value" => rng.u32(100..9999).to_string(),
            "id" => format!("{}-{}", self.nouns[1][..2].to_uppercase(), rng.u32(100..99_999)),
            "version" => format!("{}.{}.{}", rng.u8(0..9), rng.u8(0..20), rng.u8(0..20)),
            "test" => format!("test_{}", self.symbol_in(rng, file)),
            _ => return None,
        })
    }

    /// Returns all lines that contain a name, with their file and number.
    pub(crate) fn found(&self, name: &str) -> Vec<String> {
        let all = self.files.iter().flat_map(|file| {
            let lines = file.lines.iter().enumerate().filter(|(_, line)| line.contains(name));
            lines.map(|(number, line)| format!("{}:{}:{line}", file.path, number + 1))
        });
        all.collect()
    }
}
