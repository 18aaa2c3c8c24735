//! The tools `glob` and `grep`, which list files and search their contents.
//!
//! Owns the specs and texts that a model reads. `search/walk.rs` walks a tree, and `search/grep.rs`
//! searches a file.

mod grep;
mod ignored;
mod walk;

use std::path::Path;
use std::sync::Arc;

use globset::GlobSet;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::basis::Basis;
use super::workspace::Workspace;
use super::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments, blocking, files};
use crate::glob::{self, Wildcards};
use crate::id::Name;
use crate::message::Json;
use crate::permission::Unseen;
use crate::tool::BoxFuture;
use crate::turn::Effect;

/// Longest pattern, in bytes: no person writes one as long.
const MAX_PATTERN_BYTES: usize = 16 << 10;

/// Largest text that a search makes, in bytes: of the longest paths it is reached before the largest number of
/// lines.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Largest number of paths that `glob` lists: a tree with more needs a narrower pattern to be of
/// use.
const MAX_FILES: u64 = 10_000;

/// Returns the search tools.
#[must_use]
pub fn tools() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Glob { spec: glob_spec() }), Arc::new(Grep { spec: grep_spec() })]
}

fn glob_spec() -> ToolSpec {
    ToolSpec {
        name: Name::new("glob").expect("a valid name"),
        description: "Lists the files that match a pattern, sorted, one path a line. `*` stays \
                      within a directory, `**/` crosses any number of them. Files that .gitignore \
                      names are left out, and hidden ones unless the pattern has the dot."
            .to_owned(),
        input_schema: Json::encode(&serde_json::json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "For example `**/*.rs` or `src/*.{ts,tsx}`."},
                "path": {"type": "string", "description": "The directory to search (default: the workspace)."}
            },
            "required": ["pattern"],
            "additionalProperties": false
        })),
        effect: Effect::Pure,
        reads_only: true,
    }
}

fn grep_spec() -> ToolSpec {
    ToolSpec {
        name: Name::new("grep").expect("a valid name"),
        description: "Searches the contents of files line by line with a regular expression (Rust \
                      syntax). Gives `path:line:text`. Hidden and binary files and those that \
                      .gitignore names are left out."
            .to_owned(),
        input_schema: Json::encode(&serde_json::json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The regular expression."},
                "path": {"type": "string", "description": "The file or directory to search (default: the workspace)."},
                "glob": {"type": "string", "description": "Search only files that match, for example `*.rs`."},
                "output_mode": {
                    "type": "string",
                    "enum": ["content", "files", "count"],
                    "description": "Matching lines (default), paths only, or `path:count`."
                },
                "ignore_case": {"type": "boolean", "description": "Ignore case (default false)."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": grep::MAX_LIMIT,
                    "description": format!("The most lines to give (default {}).", grep::LIMIT)
                }
            },
            "required": ["pattern"],
            "additionalProperties": false
        })),
        effect: Effect::Pure,
        reads_only: true,
    }
}

/// Refuses a pattern whose compilation would take much time and memory.
fn refuse_if_long(pattern: &str) -> Result<(), ToolError> {
    match pattern.len() > MAX_PATTERN_BYTES {
        true => Err(ToolError::Arguments(format!(
            "the pattern has {} bytes, over {MAX_PATTERN_BYTES}",
            pattern.len()
        ))),
        false => Ok(()),
    }
}

/// Reads a file pattern in which `*` stops at `/`.
fn pattern(text: &str) -> Result<GlobSet, ToolError> {
    refuse_if_long(text)?;
    glob::compile(text, Wildcards::WithinName).map_err(ToolError::Arguments)
}

/// Returns the line that tells how many files a rule kept from a search.
fn kept_line(kept: u64) -> String {
    match kept {
        0 => String::new(),
        1 => "(1 file is not shown: a permission rule denies to read it)\n".to_owned(),
        many => format!("({many} files are not shown: permission rules deny to read them)\n"),
    }
}

/// Returns the rule arguments of a search: its path, or the workspace if it names none.
fn rule_paths(input: &Json, workspace: &Workspace) -> Vec<String> {
    let paths = files::rule_paths(input, workspace);
    if paths.is_empty() { vec![".".to_owned()] } else { paths }
}

/// The files that a search may find.
#[derive(Clone, Debug)]
struct Searched {
    workspace: Arc<Workspace>,
    unseen: Unseen,
    basis: Basis,
}

impl Searched {
    fn of(context: &ToolContext) -> Self {
        Self {
            workspace: context.workspace.clone(),
            unseen: context.unseen.clone(),
            basis: context.basis.clone(),
        }
    }
}

struct Glob {
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobArguments {
    pattern: String,
    path: Option<String>,
}

impl GlobArguments {
    /// Returns the directory to search and the pattern in it. An absolute pattern names both.
    fn parts(&self) -> (&str, &str) {
        let (base, rest) = match self.pattern.strip_prefix('/') {
            None => (self.path.as_deref().unwrap_or("."), self.pattern.as_str()),
            Some(_) => {
                let special = self.pattern.find(['*', '?', '[', '{', '\\']);
                let fixed = &self.pattern[..special.unwrap_or(self.pattern.len())];
                self.pattern.split_at(fixed.rfind('/').map_or(0, |at| at + 1))
            }
        };
        (base, rest.trim_start_matches("./"))
    }
}

impl Tool for Glob {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permission_arguments(&self, input: &Json, workspace: &Workspace) -> Vec<String> {
        match arguments::<GlobArguments>(input) {
            Ok(asked) => workspace.rule_arguments(asked.parts().0),
            Err(_) => rule_paths(input, workspace),
        }
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked: GlobArguments = arguments(&input)?;
            let (place, store) = (Searched::of(&context), context.store.clone());
            let list = move |stop: &_| {
                ToolOutput::of_text(&store, &glob(&place, &asked, MAX_FILES, stop)?)
            };
            blocking::run(&context, list).await
        })
    }
}

/// Lists the files that match, at most `most`. Splits an absolute pattern into the directory that
/// it names and the rest.
fn glob(
    searched: &Searched,
    asked: &GlobArguments,
    most: u64,
    stop: &CancellationToken,
) -> Result<String, ToolError> {
    let (base, rest) = asked.parts();
    if rest.split('/').any(|part| part == "..") {
        let reason = "`..` cannot stand in a pattern; name the directory by `path`";
        return Err(ToolError::Arguments(reason.to_owned()));
    }
    let matcher = pattern(rest)?;
    let place = searched.workspace.place(base)?;
    if !place.metadata()?.is_dir() {
        return Err(ToolError::Failed(format!("`{base}` is not a directory")));
    }
    let hidden = rest.split('/').any(|part| part.starts_with('.'));
    let walk = walk::Walk::new(searched, &place, hidden, "glob")?;
    let (mut text, mut count, mut shown) = (String::new(), 0_u64, 0_u64);
    let kept = walk.files(stop, &mut |path: &Path, below: &Path| {
        if matcher.is_match(below) {
            count += 1;
            if shown < most && text.len() < MAX_TEXT_BYTES {
                shown += 1;
                text.push_str(&place.shown(path));
                text.push('\n');
            }
        }
        Ok(true)
    })?;
    match count.checked_sub(shown) {
        _ if count == 0 => text.push_str("(no files)"),
        None | Some(0) => {}
        Some(more) => text.push_str(&format!("... ({more} more files)")),
    }
    if kept > 0 && !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text + &kept_line(kept))
}

struct Grep {
    spec: ToolSpec,
}

impl Tool for Grep {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permission_arguments(&self, input: &Json, workspace: &Workspace) -> Vec<String> {
        rule_paths(input, workspace)
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked: grep::GrepArguments = arguments(&input)?;
            let (place, store) = (Searched::of(&context), context.store.clone());
            let search =
                move |stop: &_| ToolOutput::of_text(&store, &grep::grep(&place, &asked, stop)?);
            blocking::run(&context, search).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::tool::files::tests::Bench;

    fn bench() -> Bench {
        let bench = Bench::new();
        bench.file(".gitignore", "/target\n*.log\n!keep.log\n");
        bench.file("src/main.rs", "fn main() {\n    run();\n}\n");
        bench.file("src/deep/lib.rs", "pub fn run() {}\n");
        bench.file("src/deep/.gitignore", "generated.rs\n");
        bench.file("src/deep/generated.rs", "fn run() {}\n");
        bench.file("src/deep/keep.log", "run\n");
        bench.file("src/noise.log", "run\n");
        bench.file("target/out.rs", "fn run() {}\n");
        bench.file(".hidden/x.rs", "fn run() {}\n");
        bench.file(".git/config.rs", "fn run() {}\n");
        bench.file(".transcripts/run/results/abc", "fn run() {}\n");
        bench.file("data.bin", b"fn run() \0\n");
        bench
    }

    #[tokio::test]
    async fn glob_lists_what_is_not_ignored() {
        let bench = bench();
        let glob = |pattern: &str| json!({"pattern": pattern});
        let all = "src/deep/lib.rs\nsrc/main.rs\n";
        assert_eq!(bench.text("glob", glob("**/*.rs")).await, all);
        assert_eq!(bench.text("glob", glob("*.rs")).await, "(no files)");
        assert_eq!(bench.text("glob", glob("./src/*.rs")).await, "src/main.rs\n");
        assert_eq!(bench.text("glob", glob("**/*.log")).await, "src/deep/keep.log\n");
        assert_eq!(bench.text("glob", glob(".hidden/*")).await, ".hidden/x.rs\n");
        assert_eq!(bench.text("glob", glob(".transcripts/**")).await, "(no files)");
        assert_eq!(bench.text("glob", glob(".git/**")).await, "(no files)");
        let absolute = format!("{}/**/lib.*", bench.dir.path().display());
        assert_eq!(bench.text("glob", glob(&absolute)).await, "src/deep/lib.rs\n");
    }

    #[tokio::test]
    async fn a_rule_against_reading_holds_for_searches() {
        use crate::permission::{Permissions, Rule};
        let bench = bench();
        let deny = ["read_file(src/deep/**)", "grep(*.log)", "bash(x)", "write_file"];
        let deny = deny.map(|rule| Rule::parse(rule).unwrap()).to_vec();
        let context = || {
            let unseen = Permissions { deny: deny.clone(), ..Permissions::default() }.unseen();
            ToolContext { unseen, ..bench.context() }
        };
        let tools = tools();
        let tool =
            |name: &str| tools.iter().find(|tool| tool.spec().name.as_str() == name).unwrap();
        let found = tool("glob").call(Json::encode(&json!({"pattern": "src/**"})), context()).await;
        let told = "(2 files are not shown: permission rules deny to read them)\n";
        assert_eq!(found.unwrap().text, format!("src/main.rs\n{told}"));
        let found = tool("grep").call(Json::encode(&json!({"pattern": "run"})), context()).await;
        let found = found.unwrap().text;
        assert!(found.contains("src/main.rs") && found.ends_with(told), "{found}");
        assert!(!found.contains("deep"), "{found}");
    }

    #[tokio::test]
    async fn hostile_patterns_end_soon() {
        let bench = bench();
        bench.file("long.txt", "a".repeat(200_000));
        let began = std::time::Instant::now();
        let many = ["{a,b}".repeat(20_000), "[a-z]".repeat(100_000), "*a".repeat(50_000)];
        let nested = "{".repeat(5_000) + "a" + &"}".repeat(5_000);
        for pattern in many.iter().chain([&nested]) {
            // An answer or an error: no panic, and no end of patience.
            let _answered = bench.call("glob", json!({"pattern": pattern})).await;
        }
        for pattern in
            ["((((a{1,200}){1,200}){1,200}){1,200})", "(x+x+)+y", "(a|aa)+$", "(?:a?){500}a{500}"]
        {
            let _answered = bench.call("grep", json!({"pattern": pattern})).await;
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_path_narrows_the_search_and_may_name_what_is_ignored() {
        let bench = bench();
        let glob = |path: &str| json!({"pattern": "**/*", "path": path});
        assert_eq!(
            bench.text("glob", glob("src/deep")).await,
            "src/deep/keep.log\nsrc/deep/lib.rs\n"
        );
        assert_eq!(bench.text("glob", glob("target")).await, "target/out.rs\n");
        assert_eq!(
            bench.text("glob", glob(".transcripts/run")).await,
            ".transcripts/run/results/abc\n"
        );
        assert!(bench.error("glob", glob("src/main.rs")).await.contains("not a directory"));
    }

    #[tokio::test]
    async fn searches_do_not_leave_the_roots() {
        let bench = bench();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("secret.rs"), "fn run() {}\n").unwrap();
        symlink(other.path(), bench.path("src/link")).unwrap();
        symlink(other.path().join("secret.rs"), bench.path("src/secret.rs")).unwrap();
        assert!(!bench.text("glob", json!({"pattern": "**/*"})).await.contains("secret"));
        assert!(!bench.text("grep", json!({"pattern": "run"})).await.contains("secret"));
        for path in ["..", "src/link", "src/secret.rs", "/etc", &other.path().display().to_string()]
        {
            for tool in ["glob", "grep"] {
                let outcome = bench.call(tool, json!({"pattern": "*", "path": path})).await;
                let outside = matches!(outcome, Err(ToolError::Outside(_)));
                assert!(outside || (tool == "grep" && outcome.is_err()), "{tool} {path}");
            }
            let outcome = bench.call("grep", json!({"pattern": "run", "path": path})).await;
            assert!(matches!(outcome, Err(ToolError::Outside(_))), "{path}: {outcome:?}");
        }
        let outcome = bench.call("glob", json!({"pattern": "../*"})).await;
        assert!(matches!(outcome, Err(ToolError::Arguments(_))));
    }

    #[tokio::test]
    async fn a_read_only_root_is_shown_by_absolute_paths() {
        let mut bench = bench();
        let other = tempfile::tempdir().unwrap();
        let real = other.path().canonicalize().unwrap();
        std::fs::write(real.join("a.txt"), "run\n").unwrap();
        let workspace = Workspace::open(bench.dir.path()).unwrap();
        bench.workspace = Arc::new(workspace.with_read_only_root(other.path()).unwrap());
        let shown = real.join("a.txt").display().to_string();
        let input = json!({"pattern": "*", "path": other.path()});
        assert_eq!(bench.text("glob", input).await, format!("{shown}\n"));
        let input = json!({"pattern": "run", "path": other.path()});
        assert_eq!(bench.text("grep", input).await, format!("{shown}:1:run\n"));
    }

    #[test]
    fn the_number_of_paths_is_bounded() {
        let bench = Bench::new();
        for name in ["e", "d", "c/x", "b", "a.x"] {
            bench.file(name, "");
        }
        let asked = GlobArguments { pattern: "**".to_owned(), path: None };
        let list = |most| {
            glob(&Searched::of(&bench.context()), &asked, most, &CancellationToken::new()).unwrap()
        };
        assert_eq!(list(5), "a.x\nb\nc/x\nd\ne\n");
        assert_eq!(list(3), "a.x\nb\nc/x\n... (2 more files)");
    }

    #[tokio::test]
    async fn a_long_list_is_stored_and_previewed() {
        let bench = Bench::new();
        bench.file("f", "a line to be found\n".repeat(2_000));
        let input = json!({"pattern": "found", "limit": 2_000});
        let output = bench.call("grep", input).await.unwrap();
        let stored = output.stored.unwrap();
        let whole = std::fs::read_to_string(bench.context().store.path_of(&stored)).unwrap();
        assert_eq!(whole.lines().count(), 2_000);
        assert!(output.text.ends_with("f:2000:a line to be found\n"));
    }

    #[tokio::test]
    async fn grep_gives_lines_files_or_counts() {
        let bench = bench();
        assert_eq!(
            bench.text("grep", json!({"pattern": r"run\(\)"})).await,
            "src/deep/lib.rs:1:pub fn run() {}\nsrc/main.rs:2:    run();\n"
        );
        let input = json!({"pattern": "FN", "ignore_case": true, "output_mode": "files"});
        assert_eq!(bench.text("grep", input).await, "src/deep/lib.rs\nsrc/main.rs\n");
        let input = json!({"pattern": "[{}]", "glob": "*.rs", "output_mode": "count"});
        assert_eq!(bench.text("grep", input).await, "src/deep/lib.rs:1\nsrc/main.rs:2\n");
        let input = json!({"pattern": "run", "glob": "deep/*.rs", "path": "src"});
        assert_eq!(bench.text("grep", input).await, "src/deep/lib.rs:1:pub fn run() {}\n");
        let input = json!({"pattern": "run", "path": "src/noise.log"});
        assert_eq!(bench.text("grep", input).await, "src/noise.log:1:run\n");
        let input = json!({"pattern": "run", "path": ".transcripts/run/results/abc"});
        assert!(bench.text("grep", input).await.contains("results/abc:1:fn run"));
        assert_eq!(bench.text("grep", json!({"pattern": "absent"})).await, "(no matches)");
        let input = json!({"pattern": "run", "path": "data.bin"});
        assert_eq!(bench.text("grep", input).await, "(no matches)");
        let input = json!({"pattern": "fn", "limit": 1});
        let text = bench.text("grep", input).await;
        assert!(text.starts_with("src/deep/lib.rs:1:pub fn run() {}\n... (stopped after 1 line"));
        for input in [json!({"pattern": "("}), json!({"pattern": "a", "output_mode": "x"})] {
            assert!(matches!(bench.call("grep", input).await, Err(ToolError::Arguments(_))));
        }
    }

    #[tokio::test]
    async fn long_lines_are_cut_around_the_match() {
        let bench = Bench::new();
        bench.file("min.js", format!("{}needle{}\n", "é".repeat(9_000), "x".repeat(9_000)));
        let text = bench.text("grep", json!({"pattern": "needle"})).await;
        assert!(text.starts_with("min.js:1:...é") && text.contains("éneedlex"), "{text}");
        assert!(text.chars().count() < 700, "{text}");
        assert!(text.ends_with("... (line of 27006 bytes)\n"), "{text}");
    }

    #[test]
    fn a_stopped_search_is_not_an_answer() {
        let bench = bench();
        let stop = CancellationToken::new();
        stop.cancel();
        let asked = GlobArguments { pattern: "**".to_owned(), path: None };
        let outcome = glob(&Searched::of(&bench.context()), &asked, 9, &stop);
        assert!(matches!(outcome, Err(ToolError::Cancelled)));
        let asked = serde_json::from_value(json!({"pattern": "run", "path": "src/main.rs"}));
        let outcome = grep::grep(&Searched::of(&bench.context()), &asked.unwrap(), &stop);
        assert!(matches!(outcome, Err(ToolError::Cancelled)), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_file_is_read_only_where_it_was_judged() {
        let bench = Bench::new();
        bench.file("docs/a", "shown");
        bench.file("secret/a", "hidden");
        for (tool, input) in [
            ("read_file", json!({"path": "docs/a"})),
            ("grep", json!({"pattern": ".", "path": "docs"})),
            ("glob", json!({"pattern": "*", "path": "docs"})),
            ("glob", json!({"pattern": bench.path("docs/*")})),
        ] {
            let tools = crate::tool::Toolbox::built_in();
            let tool = tools.get(tool).unwrap();
            let input = Json::encode(&input);
            let place = tool.permission_arguments(&input, &bench.workspace).pop();
            let basis = crate::tool::basis::Basis { place, ..Default::default() };
            let context = || ToolContext { basis: basis.clone(), ..bench.context() };
            let found = tool.call(input.clone(), context()).await.unwrap().text;
            assert!(found.contains("shown") || found.contains("docs/a"), "{input:?}: {found}");
            std::fs::rename(bench.path("docs"), bench.path("before")).unwrap();
            std::os::unix::fs::symlink("secret", bench.path("docs")).unwrap();
            let told = tool.call(input.clone(), context()).await.unwrap_err().to_string();
            assert!(told.contains("leads to `secret"), "{input:?}: {told}");
            std::fs::remove_file(bench.path("docs")).unwrap();
            std::fs::rename(bench.path("before"), bench.path("docs")).unwrap();
        }
    }
}
