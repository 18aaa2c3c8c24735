//! What commands print: tests, builds, linters, scripts and version control.

use fastrand::Rng;

use super::grammar::{chance, pick, size};
use super::project::{File, Language, Project};

/// Tests that one command runs.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    pub(crate) command: String,
    pub(crate) path: String,
    cases: Vec<String>,
    is_verbose: bool,
}

/// What a command prints, and its exit code.
pub(crate) type Output = (String, u8);

impl Suite {
    /// Makes the tests of a file, and one of the commands that run them.
    pub(crate) fn new(rng: &mut Rng, project: &Project, file: &File) -> Self {
        let cases: Vec<_> = (0..size(rng, 9.0, 60.0)).map(|_| project.new_symbol(rng)).collect();
        let cases: Vec<_> = cases.into_iter().map(|case| format!("test_{case}")).collect();
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let stem = name.split('.').next().unwrap_or_default();
        let case = &cases[rng.usize(..cases.len())];
        let (path, commands) = match project.language {
            Language::Python => {
                let path = format!("tests/test_{stem}.py");
                let commands = [
                    format!("python -m pytest {path} -q"),
                    format!("pytest {path} -x -k \"{}\"", &case[5..]),
                    format!("python -m unittest tests.test_{stem}"),
                ];
                (path, commands)
            }
            Language::Rust => {
                let commands = [
                    format!("cargo test --lib {stem}"),
                    format!("cargo test {stem} -- --nocapture"),
                    format!("cargo test --test {stem} 2>&1 | tail -n 40"),
                ];
                (format!("tests/{stem}.rs"), commands)
            }
            Language::TypeScript => {
                let path = format!("src/{stem}.test.ts");
                let commands = [
                    format!("npx vitest run {path}"),
                    format!("npm test -- {path}"),
                    format!("npx jest {path} -t '{}'", &case[5..]),
                ];
                (path, commands)
            }
        };
        let command = commands[rng.usize(..commands.len())].clone();
        Self { command, path, cases, is_verbose: chance(rng, 40) }
    }

    /// Prints a run in which so many tests fail.
    pub(crate) fn run(
        &self,
        rng: &mut Rng,
        project: &Project,
        failing: usize,
        file: &File,
    ) -> Output {
        let failing = failing.min(self.cases.len());
        let (passed, time) = (self.cases.len() - failing, f64::from(rng.u16(5..4000)) / 100.0);
        let mut lines = Vec::new();
        let shown = if self.is_verbose { self.cases.len() } else { 0 };
        match project.language {
            Language::Python => {
                lines.push("============================= test session starts ==============================".to_owned());
                lines.push(format!("collected {} items", self.cases.len()));
                for (at, case) in self.cases.iter().take(shown).enumerate() {
                    let end = if at < failing { "FAILED" } else { "PASSED" };
                    lines.push(format!("{}::{case} {end}", self.path));
                }
                for case in &self.cases[..failing] {
                    lines.push(format!("________________ {case} ________________"));
                    lines.extend(traceback(rng, project, file));
                }
                if chance(rng, 30) {
                    lines.push(format!(
                        "  {}:{}: DeprecationWarning: {} is deprecated",
                        file.path,
                        rng.u16(5..300),
                        project.noun(rng)
                    ));
                }
                let warned = if chance(rng, 30) {
                    format!(", {} warnings", rng.u8(2..30))
                } else {
                    String::new()
                };
                lines.push(match failing {
                    0 => format!("{passed} passed{warned} in {time:.2}s"),
                    _ => format!("{failing} failed, {passed} passed{warned} in {time:.2}s"),
                });
            }
            Language::Rust => {
                lines.push(format!("   Compiling {} v0.{}.0", project.noun(rng), rng.u8(1..30)));
                if chance(rng, 35) {
                    lines.push(format!("warning: unused variable: `{}`", project.noun(rng)));
                    lines.push(format!("  --> {}:{}:9", file.path, rng.u16(5..300)));
                }
                lines.push(format!(
                    "    Finished `test` profile [unoptimized + debuginfo] target(s) in {time:.2}s"
                ));
                lines.push(format!("running {} tests", self.cases.len()));
                for (at, case) in self.cases.iter().enumerate() {
                    lines.push(format!(
                        "test {case} ... {}",
                        if at < failing { "FAILED" } else { "ok" }
                    ));
                }
                for case in &self.cases[..failing] {
                    lines.push(format!("---- {case} stdout ----"));
                    lines.push(format!(
                        "thread '{case}' panicked at {}:{}:5:",
                        file.path,
                        rng.u16(5..300)
                    ));
                    lines.push("assertion `left == right` failed".to_owned());
                    lines.push(format!("  left: {}", rng.u16(..)));
                    lines.push(format!(" right: {}", rng.u16(..)));
                }
                let end = if failing == 0 { "ok" } else { "FAILED" };
                lines.push(format!("test result: {end}. {passed} passed; {failing} failed; 0 ignored; 0 measured; {} filtered out; finished in {time:.2}s", rng.u8(..200)));
            }
            Language::TypeScript => {
                lines.push(format!(" RUN  v2.{}.{} {}", rng.u8(..9), rng.u8(..9), project.root));
                for (at, case) in self.cases.iter().take(shown.max(failing)).enumerate() {
                    let mark = if at < failing { "×" } else { "✓" };
                    lines.push(format!("   {mark} {} {}ms", case.replace('_', " "), rng.u8(1..80)));
                }
                for case in &self.cases[..failing] {
                    lines.push(format!(" FAIL  {} > {}", self.path, case.replace('_', " ")));
                    lines.push(format!(
                        "AssertionError: expected {} to be {}",
                        rng.u16(..),
                        rng.u16(..)
                    ));
                    lines.push(format!(" ❯ {}:{}:{}", file.path, rng.u16(5..300), rng.u8(3..40)));
                }
                let end = if failing == 0 { String::new() } else { format!("{failing} failed | ") };
                lines.push(format!("      Tests  {end}{passed} passed ({})", self.cases.len()));
                lines.push(format!("   Duration  {time:.2}s"));
            }
        }
        (lines.join("\n"), u8::from(failing > 0))
    }
}

/// Makes a trace of calls through the lines of a file, to an error.
pub(crate) fn traceback(rng: &mut Rng, project: &Project, file: &File) -> Vec<String> {
    let mut lines = vec!["Traceback (most recent call last):".to_owned()];
    for _ in 0..rng.usize(1..7) {
        let at = rng.usize(..file.lines.len());
        let name = project.symbol_in(rng, file);
        lines.push(format!(
            "  File \"{}/{}\", line {}, in {name}",
            project.root,
            file.path,
            at + 1
        ));
        lines.push(format!("    {}", file.lines[at].trim()));
    }
    let error =
        pick(rng, &["ValueError", "KeyError", "TypeError", "AssertionError", "TimeoutError"]);
    lines.push(format!("{error}: {} {}", project.noun(rng), rng.u32(100..99_999)));
    lines
}

/// Makes a command that builds or checks the whole, and what it prints.
pub(crate) fn lint(
    rng: &mut Rng,
    project: &Project,
    file: &File,
    is_broken: bool,
) -> (String, Output) {
    let (at, noun, time) = (rng.u16(3..400), project.noun(rng), rng.u16(1..90));
    let (commands, fine, broken) = match project.language {
        Language::Python => (
            ["make check", "tox -e lint", "python tools/check.py"],
            format!("All checks passed in {time}s ({} files)", project.files.len()),
            format!(
                "{}:{at}:5: F841 local variable '{noun}' is assigned to but never used\nFound 1 error.",
                file.path
            ),
        ),
        Language::Rust => (
            ["cargo clippy --all-targets", "cargo check", "cargo build --release"],
            format!(
                "warning: `{noun}` (lib) generated {} warnings\n    Finished `dev` profile in {time}.10s",
                rng.u8(1..9)
            ),
            format!(
                "error[E0308]: mismatched types\n  --> {}:{at}:17\n   |     expected `u64`, found `&str`\nerror: could not compile `{noun}` (lib) due to 1 previous error",
                file.path
            ),
        ),
        Language::TypeScript => (
            ["npm run build", "npx tsc --noEmit && npm run check", "yarn build"],
            format!(
                "vite v5.{}.1 building for production...\n✓ {} modules transformed.\n✓ built in {time}.{}s",
                rng.u8(..9),
                rng.u16(90..900),
                rng.u8(..99)
            ),
            format!(
                "{}({at},13): error TS2345: Argument of type 'string' is not assignable to '{noun}'.\nFound 1 error.",
                file.path
            ),
        ),
    };
    let command = pick(rng, &commands).to_owned();
    let output = if is_broken { (broken, 1) } else { (fine, 0) };
    (command, output)
}

/// Prints what a script prints: values that may be needed later, or an error.
pub(crate) fn script(rng: &mut Rng, project: &Project, file: &File, fails: bool) -> Output {
    let mut lines: Vec<_> = (0..size(rng, 3.0, 20.0))
        .map(|_| match rng.u8(..4) {
            0 => format!("{} {}: {}", project.noun(rng), rng.u16(..), project.noun(rng)),
            1 => format!("{}={} seed={}", project.noun(rng), rng.u16(..), rng.u32(1000..999_999)),
            2 => format!(
                "[{}] {} took {} ms",
                rng.u32(10_000..99_999),
                project.symbol_in(rng, file),
                rng.u16(1..4000)
            ),
            _ => format!("0x{:08x} {}", rng.u32(..), project.noun(rng)),
        })
        .collect();
    if fails {
        lines.extend(traceback(rng, project, file));
    }
    (lines.join("\n"), u8::from(fails))
}

/// Makes a command of version control, and what it prints.
pub(crate) fn history(
    rng: &mut Rng,
    project: &Project,
    changed: &[(String, Vec<String>)],
) -> (String, Output) {
    let paths = changed.iter().map(|(path, _)| path.as_str());
    let (command, lines) = match rng.u8(..3) {
        0 => ("git status --short".to_owned(), paths.map(|path| format!(" M {path}")).collect()),
        1 => {
            let lines = changed.iter().flat_map(|(path, lines)| {
                let head = format!("diff --git a/{path} b/{path}");
                std::iter::once(head).chain(lines.iter().map(|line| format!("+{line}")))
            });
            ("git diff".to_owned(), lines.collect::<Vec<_>>())
        }
        _ => {
            let lines = (0..rng.usize(3..16)).map(|_| {
                format!(
                    "{:07x} {}: {}",
                    rng.u32(..0xfff_ffff),
                    project.noun(rng),
                    project.new_symbol(rng)
                )
            });
            ("git log --oneline | head -n 15".to_owned(), lines.collect())
        }
    };
    (command, (lines.join("\n"), 0))
}
