//! Reads the sources and checks the rules of ARCHITECTURE.md: imports point down, no cycles
//! between modules, a header in every file, sizes, and things that belong in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of each crate, from bottom to top; those of `src` are the last. A module may use those of the
/// crates before its own, which the compiler sees to, and those that stand before it in its own.
const CRATES: [(&str, &[&str]); 8] = [
    (
        "words",
        &[
            "duration",
            "failure",
            "foreign",
            "glob",
            "id",
            "message",
            "fingerprint",
            "output",
            "printable",
            "spending",
            "tool_spec",
            "schema",
            "own_tool",
            "permission",
            "policy",
            "redaction",
            "spec",
        ],
    ),
    ("context", &["context"]),
    (
        "machines",
        &[
            "template",
            "plan",
            "messages",
            "turn",
            "event",
            "loops",
            "turn_machine",
            "turn_boundary",
            "run_state",
            "admission",
            "call_machine",
            "run_machine",
            "why",
        ],
    ),
    ("journal", &["crash", "fault", "disk", "store", "journal", "conversation"]),
    ("tools", &["tool"]),
    ("models", &["model"]),
    ("engine", &["trust", "person", "actor", "config", "show", "report", "run", "client"]),
    ("callsheet", &["exit", "cli"]),
];

/// The crates that only decide.
const DECISIONS: usize = 3;

/// The most lines of a file without its tests.
const MOST_LINES: usize = 500;

struct Source {
    path: PathBuf,
    /// The path below the sources of its crate.
    within: PathBuf,
    text: String,
}

impl Source {
    /// The top-level module that the file belongs to.
    fn module(&self) -> String {
        let first = self.within.components().next().expect("a name");
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    }

    /// The text before the tests that stand in the file itself.
    fn before_tests(&self) -> &str {
        let is_body =
            |at: &usize| self.text[*at..].lines().nth(1).is_some_and(|l| l.ends_with('{'));
        let mut tests = self.text.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at);
        tests.find(is_body).map_or(&self.text, |at| &self.text[..at])
    }

    /// The code without tests, comments and documentation.
    fn code(&self) -> String {
        let lines = self.before_tests().lines();
        lines.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    }

    fn is_test(&self) -> bool {
        let names = ["tests.rs", "testing.rs", "makespan.rs"];
        self.path.file_name().is_some_and(|name| names.iter().any(|test| name == *test))
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The folders with the sources of the crates, in the order of [`CRATES`].
fn folders() -> Vec<PathBuf> {
    let folder = |name: &str| match name {
        "callsheet" => root().join("src"),
        name => root().join("crates").join(name).join("src"),
    };
    CRATES.iter().map(|(name, _)| folder(name)).collect()
}

fn sources() -> Vec<Source> {
    fn walk(top: &Path, folder: &Path, out: &mut Vec<Source>) {
        for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            if path.is_dir() {
                walk(top, &path, out);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                let within = path.strip_prefix(top).expect("below it").to_owned();
                out.push(Source { path, within, text });
            }
        }
    }
    let mut out = Vec::new();
    for folder in folders() {
        walk(&folder, &folder, &mut out);
    }
    assert!(out.len() > 300, "the sources are there");
    out
}

/// Returns the place of a module: its crate, and its position in the crate.
fn rank(module: &str) -> Option<(usize, usize)> {
    CRATES.iter().enumerate().find_map(|(layer, (_, modules))| {
        modules.iter().position(|name| *name == module).map(|place| (layer, place))
    })
}

/// The top-level modules that a text names by `crate::`.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        if let Some(group) = part.strip_prefix('{') {
            let group = group.split('}').next().unwrap_or_default();
            found.extend(group.split(',').map(|name| first_word(name.trim())));
        } else {
            found.insert(first_word(part));
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

#[test]
fn every_module_has_a_place() {
    let modules: BTreeSet<_> = sources().iter().map(Source::module).collect();
    let known: BTreeSet<_> = CRATES.iter().flat_map(|(_, modules)| modules.iter()).collect();
    for module in modules.iter().filter(|module| !["lib", "main"].contains(&module.as_str())) {
        assert!(known.contains(&module.as_str()), "`{module}` is in no list");
    }
    for module in known {
        assert!(modules.contains(*module), "there is no `{module}`");
    }
}

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let module = source.module();
        let Some(own) = rank(&module) else { continue };
        for import in imports(&source.code()) {
            let Some(other) = rank(&import) else { continue };
            if import != module && other > own {
                wrong.push(format!("{}: crate::{import}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports that point up:\n{}", wrong.join("\n"));
}

#[test]
fn modules_form_no_cycle() {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let module = source.module();
        let known = imports(&source.code()).into_iter().filter(|name| rank(name).is_some());
        let others: Vec<_> = known.filter(|name| *name != module).collect();
        edges.entry(module).or_default().extend(others);
    }
    let left = in_cycles(&edges);
    assert!(left.is_empty(), "modules in a cycle: {left:?}");
}

/// Returns the modules that are in an import cycle, or on a path between two cycles.
fn in_cycles(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reversed: BTreeMap<String, BTreeSet<String>> =
        edges.keys().map(|module| (module.clone(), BTreeSet::new())).collect();
    for (module, others) in edges {
        for other in others {
            reversed.entry(other.clone()).or_default().insert(module.clone());
        }
    }
    above_cycles(edges).intersection(&above_cycles(&reversed)).cloned().collect()
}

/// Returns the modules that are in an import cycle, or import one of those.
fn above_cycles(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut open: BTreeSet<_> = edges.keys().cloned().collect();
    loop {
        let free: Vec<_> = open
            .iter()
            .filter(|module| edges[*module].iter().all(|other| !open.contains(other)))
            .cloned()
            .collect();
        if free.is_empty() {
            return open;
        }
        open.retain(|module| !free.contains(module));
    }
}

/// The path of a file's module: `["context", "view"]` for `context/view.rs`.
fn module_path(source: &Source) -> Vec<String> {
    let relative = source.within.with_extension("");
    relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// Returns the paths of the modules that code in the module `own` names, with `super` resolved. A
/// path may end with an item of a module; it is then longer than the path of any file.
fn named_paths(own: &[String], code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let head_at = code[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let head = &code[head_at.map_or(0, |at| at + 1)..at];
        let is_first = head_at.is_none_or(|at| !code[..=at].ends_with(':'));
        let mut base = match head {
            "crate" if is_first => Vec::new(),
            "self" if is_first => own.to_vec(),
            "super" if is_first => own[..own.len() - 1].to_vec(),
            _ => continue,
        };
        let mut rest = &code[at + 2..];
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        tree(&base, rest, &mut found);
    }
    found
}

/// Adds the paths of a use tree such as `a::{b, c::D}` to `found`; returns the text that follows
/// the tree.
fn tree<'a>(base: &[String], text: &'a str, found: &mut Vec<Vec<String>>) -> &'a str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = tree(base, rest.trim_start(), found).trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let word = first_word(text);
    let rest = &text[word.len()..];
    let path: Vec<_> = base.iter().cloned().chain([word.clone()]).collect();
    match rest.strip_prefix("::") {
        Some(rest) if !word.is_empty() => tree(&path, rest, found),
        _ => {
            found.push(path);
            rest
        }
    }
}

/// A module, and the paths of the modules that its code names.
struct Named {
    path: Vec<String>,
    paths: Vec<Vec<String>>,
}

/// Returns the modules of one folder, each with its subfolders, and for each the others that it
/// names.
fn siblings(all: &[Named], folder: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let depth = folder.len();
    let within = |path: &[String]| path.len() > depth && path[..depth] == *folder;
    let inside = || all.iter().filter(|module| within(&module.path));
    let names: BTreeSet<_> = inside().map(|module| module.path[depth].clone()).collect();
    let mut edges: BTreeMap<_, BTreeSet<_>> =
        names.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for module in inside() {
        let others = module.paths.iter().filter(|named| within(named)).map(|named| &named[depth]);
        let own = &module.path[depth];
        edges
            .get_mut(own)
            .expect("it is a name")
            .extend(others.filter(|other| *other != own && names.contains(*other)).cloned());
    }
    edges
}

#[test]
fn modules_of_a_folder_form_no_circle() {
    // Each file is read once, and not again for each folder.
    let named = |source: &Source| {
        let path = module_path(source);
        Named { paths: named_paths(&path, &source.code()), path }
    };
    let all = sources();
    let all: Vec<_> = all.iter().filter(|source| !source.is_test()).map(named).collect();
    let folders: BTreeSet<_> = all
        .iter()
        .flat_map(|module| (0..module.path.len()).map(|depth| module.path[..depth].to_vec()))
        .collect();
    assert!(folders.len() > 20, "the folders are there");
    let mut circles = Vec::new();
    for folder in folders {
        let left = in_cycles(&siblings(&all, &folder));
        if !left.is_empty() {
            let edges = siblings(&all, &folder);
            for module in &left {
                let others: Vec<_> = edges[module].intersection(&left).collect();
                circles.push(format!("{}/{module} -> {others:?}", folder.join("/")));
            }
        }
    }
    assert!(circles.is_empty(), "modules in a circle:\n{}", circles.join("\n"));
}

#[test]
fn named_paths_are_resolved() {
    let own = ["a".to_owned(), "b".to_owned()];
    let code = "use super::{c, d::{E, self}}; use crate::x::Y; fn f() { self::g(); p::super_q() }";
    let named: Vec<_> = named_paths(&own, code).iter().map(|path| path.join("/")).collect();
    assert_eq!(named, ["a/c", "a/d/E", "a/d/self", "x/Y", "a/b/g"]);
}

#[test]
fn every_file_opens_with_a_header() {
    let bare: Vec<_> = sources().into_iter().filter(|s| !s.text.starts_with("//!")).collect();
    let bare: Vec<_> = bare.iter().map(|source| source.path.display().to_string()).collect();
    assert!(bare.is_empty(), "files without a `//!` header:\n{}", bare.join("\n"));
}

#[test]
fn files_stay_small() {
    for source in sources().iter().filter(|source| !source.is_test()) {
        let lines = source.before_tests().lines().count();
        assert!(lines <= MOST_LINES, "{}: {lines} lines without tests", source.path.display());
    }
}

#[test]
fn some_names_have_their_place() {
    let places: [(&str, &[&str]); 5] = [
        ("ractor::", &["actor", "run"]),
        ("figment::", &["config"]),
        ("dashmap::", &["actor"]),
        ("minijinja::", &["template"]),
        ("jsonschema::", &["schema"]),
    ];
    for source in sources().iter().filter(|source| !source.is_test()) {
        let (module, code) = (source.module(), source.code());
        for (name, allowed) in places {
            let fits = allowed.contains(&module.as_str()) || !code.contains(name);
            assert!(fits, "{}: `{name}` does not belong here", source.path.display());
        }
    }
}

/// The files that know that the records of a run are a folder of this machine. Above them are ports.
const KNOW_THE_FOLDER: [&str; 8] = [
    "journal/file.rs",
    "journal/local.rs",
    "journal/local/copy.rs",
    "journal/local/driven.rs",
    "journal/repair/cut_pieces.rs",
    "journal/repair/torn.rs",
    "journal/testing.rs",
    "journal/witness.rs",
];

/// The files above the journal that choose where runs are kept, or look at a folder that somebody named.
const CHOOSE_THE_PLACE: [&str; 6] =
    ["cli/locate.rs", "cli/refusal.rs", "cli/run.rs", "lib.rs", "run.rs", "run/simulation.rs"];

#[test]
fn few_files_know_where_a_run_is_kept() {
    let (mut know, mut choose) = (Vec::new(), Vec::new());
    for source in sources() {
        let place = source.within.display().to_string();
        // The tests in a file count too.
        if has_word(&source.text, "RunDir") {
            know.push(place.clone());
        }
        let is_above = !source.within.starts_with("journal");
        if is_above {
            let code = source.code();
            if ["LocalArchive", "run_at"].iter().any(|word| has_word(&code, word)) {
                choose.push(place);
            }
        }
    }
    know.sort();
    choose.sort();
    assert_eq!((know, choose), (strings(&KNOW_THE_FOLDER), strings(&CHOOSE_THE_PLACE)));
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn one_file_writes_to_the_terminal() {
    // The others speak with a process of this program through a pipe, or refuse to become one.
    let writers = [
        "cli/stream.rs",
        "tool/wrapper/serve.rs",
        "tool/wrapper/live.rs",
        "tool/sandbox.rs",
        "tool/sandbox/probe.rs",
    ];
    let streams = ["io::stdout", "io::stderr", "print!(", "println!(", "dev/tty"];
    for source in sources().iter().filter(|source| !source.is_test()) {
        if writers.iter().any(|writer| source.path.ends_with(writer)) {
            continue;
        }
        let code = source.code();
        for stream in streams {
            assert!(!code.contains(stream), "{}: `{stream}`", source.path.display());
        }
    }
}

#[test]
fn one_door_leads_to_stderr_while_an_area_is_drawn() {
    // The door itself, the area, and the question for which the area is hidden.
    let doors = ["cli/stream.rs", "cli/screen.rs", "cli/ask.rs"];
    // The area, and bars that are drawn while no run works.
    let painters = ["cli/screen.rs", "cli/paint.rs"];
    let hooks = ["foreign.rs", "tool/wrapper/serve.rs"];
    let places: [(&str, &[&str]); 3] =
        [("Stream::Err.print", &doors), ("ProgressBar", &painters), ("set_hook", &hooks)];
    let mut found = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let code = source.code();
        for (name, allowed) in places {
            if code.contains(name) {
                *found.entry(name).or_insert(0) += 1;
                let fits = allowed.iter().any(|file| source.path.ends_with(file));
                assert!(fits, "{}: `{name}` does not belong here", source.path.display());
            }
        }
    }
    assert_eq!(found.into_values().collect::<Vec<_>>(), [2, 3, 2], "each is found");
}

#[test]
fn decisions_neither_wait_nor_look_at_the_clock() {
    let lower: Vec<_> =
        CRATES[..DECISIONS].iter().flat_map(|(_, modules)| modules.iter()).collect();
    let banned = [
        "async fn",
        ".await",
        "tokio::",
        "std::fs",
        "Instant::now",
        "SystemTime",
        "Timestamp::now",
        "Zoned::now",
        "now_v7",
        "new_v4",
        "std::env",
    ];
    let is_lower = |source: &&Source| lower.contains(&&source.module().as_str());
    for source in sources().iter().filter(is_lower).filter(|source| !source.is_test()) {
        let code = source.code();
        for name in banned {
            assert!(!code.contains(name), "{}: `{name}`", source.path.display());
        }
    }
}

/// The words of a code: what is between spaces and signs.
fn words(code: &str) -> BTreeSet<&str> {
    code.split(is_no_letter).collect()
}

fn is_no_letter(c: char) -> bool {
    !c.is_ascii_alphanumeric() && c != '_'
}

/// True if the word is among those of a text.
fn has_word(text: &str, word: &str) -> bool {
    let is_whole = |at: usize| {
        !text[..at].ends_with(|c| !is_no_letter(c))
            && !text[at + word.len()..].starts_with(|c| !is_no_letter(c))
    };
    text.match_indices(word).any(|(at, _)| is_whole(at))
}

/// The desks of the run machine: the types in the table of `run_machine.rs`.
fn desks(files: &[(&Source, String)]) -> BTreeSet<String> {
    let is_machine = |source: &Source| source.path.ends_with("src/run_machine.rs");
    let (_, machine) = files.iter().find(|(source, _)| is_machine(source)).expect("the machine");
    let (_, table) = machine.split_once("\n    desks {\n").expect("a table of desks");
    let lines = table.lines().take_while(|line| *line != "    }");
    lines.filter_map(|line| Some(first_word(line.split_once(": ")?.1))).collect()
}

/// What the machine and its rules are made of: a rule that stands at a desk can change nothing else, as long as the
/// fields of desks are private, and nobody but the machine has the machine in his hand.
#[test]
fn rules_of_the_run_machine_stand_at_desks() {
    // They carry out what the rules decide. The forecast drives a machine from outside.
    let machine = ["run_machine.rs", "carrying.rs", "decision.rs", "desk.rs", "forecast.rs"];
    let all = sources();
    let of_machine = |source: &&Source| source.module() == "run_machine" && !source.is_test();
    let files: Vec<_> =
        all.iter().filter(of_machine).map(|source| (source, source.code())).collect();
    let desks = desks(&files);
    assert!(desks.len() >= 16 && desks.contains("Agents"), "the desks are found: {desks:?}");
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (source, code) in &files {
        let place = source.path.display();
        for desk in &desks {
            if let Some((_, rest)) = code.split_once(&format!("pub(super) struct {desk} {{")) {
                let fields = rest.split("\n}").next().unwrap_or_default();
                assert!(fields.contains(": "), "{place}: the fields of {desk} are found");
                assert!(!fields.contains("pub"), "{place}: a field of {desk} is not private");
                owners.entry(desk.clone()).or_default().insert(module_path(source)[1].clone());
            }
        }
        if machine.iter().any(|name| source.path.ends_with(name)) {
            continue;
        }
        let words = words(code);
        let banned = ["RunMachine", "facts", "unsafe", "Cell", "RefCell", "Mutex", "RwLock"];
        for name in banned {
            assert!(!words.contains(name), "{place}: `{name}`");
        }
        let at = code.split("Desk<'_, ").skip(1).map(first_word);
        let paths = named_paths(&module_path(source), code).into_iter();
        let paths = paths.filter(|path| path.first().is_some_and(|first| first == "run_machine"));
        let named: BTreeSet<_> = at.chain(paths.filter_map(|path| path.last().cloned())).collect();
        let named: Vec<_> = desks.intersection(&named).collect();
        assert!(named.len() <= 1, "{place} names {named:?}");
        if let Some(desk) = named.first() {
            let owner = module_path(source)[1].clone();
            owners.entry((*desk).clone()).or_default().insert(owner);
        }
    }
    for desk in &desks {
        // The timers are a data structure, with the rules of limits beside it.
        let expected = if desk == "Timers" { 2 } else { 1 };
        let of = owners.get(desk).cloned().unwrap_or_default();
        assert_eq!(of.len(), expected, "{desk} is in {of:?}");
    }
}

#[test]
fn one_file_starts_the_work_of_actors() {
    let starts = ["tokio::spawn(", "spawn_blocking(", "JoinSet", "catch_unwind", "thread::spawn"];
    let actors = sources().into_iter().filter(|source| source.module() == "actor");
    for source in actors.filter(|source| !source.is_test() && !source.path.ends_with("work.rs")) {
        let code = source.code();
        for name in starts {
            assert!(!code.contains(name), "{}: `{name}`", source.path.display());
        }
    }
}

#[test]
fn there_is_no_room_without_a_purpose() {
    for source in sources() {
        let stem = source.path.file_stem().expect("a name").to_string_lossy().into_owned();
        let vague = ["utils", "util", "common", "types", "errors", "helpers", "misc", "mod"];
        assert!(!vague.contains(&stem.as_str()), "{}", source.path.display());
    }
}

#[test]
fn the_face_is_small_and_modules_are_behind_it() {
    let text = fs::read_to_string(root().join("src/lib.rs")).expect("text");
    let lines: Vec<_> = text.lines().collect();
    for pair in lines.windows(2).filter(|pair| pair[1].starts_with("pub mod ")) {
        assert_eq!(pair[0], "#[doc(hidden)]", "{}", pair[1]);
    }
    let names = text.split("pub use crate::").skip(1).map(|rest| {
        let item = rest.split(';').next().unwrap_or_default();
        let group = item.split_once('{').map_or(item, |(_, group)| group.trim_end_matches('}'));
        group.split(',').filter(|name| !name.trim().is_empty()).count()
    });
    let count: usize = names.sum();
    assert!((25..=80).contains(&count), "{count} names at the root");
}

#[test]
fn the_map_is_short_and_names_files_that_exist() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("text");
    let words = map.split_whitespace().count();
    assert!(words <= 1_200, "ARCHITECTURE.md has {words} words");
    let named = map.split('`').skip(1).step_by(2);
    let paths: BTreeSet<_> =
        named.filter(|name| name.ends_with(".rs") || name.ends_with('/')).collect();
    assert!(paths.len() > 20, "it names files: {paths:?}");
    for path in paths.into_iter().filter(|path| *path != "assembly.rs") {
        let mut places = folders().into_iter().chain([root()]);
        let exists = places.any(|folder| folder.join(path).exists());
        assert!(exists, "ARCHITECTURE.md names `{path}`");
    }
}
