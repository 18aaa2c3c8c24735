//! The table of commands that run tests.
//!
//! Pure. A command that is not in it counts as no test, so that nothing is called tested by a guess.

/// Programs that run tests whatever their arguments are.
const RUNNERS: &[&str] = &[
    "pytest",
    "py.test",
    "ctest",
    "tox",
    "nox",
    "rspec",
    "phpunit",
    "jest",
    "vitest",
    "mocha",
    "ava",
    "bats",
    "busted",
    "prove",
    "cargo-nextest",
    "gotestsum",
    "unittest",
    "trial",
    "ginkgo",
];

/// Programs of which the first arguments that are no options name the work.
const VERBS: &[(&str, &[&str])] = &[
    ("cargo", &["test", "nextest run", "t", "miri test"]),
    ("go", &["test"]),
    ("npm", &["test", "t", "tst", "run test", "run-script test"]),
    ("yarn", &["test", "run test"]),
    ("pnpm", &["test", "t", "run test"]),
    ("bun", &["test", "run test"]),
    ("deno", &["test", "task test"]),
    ("dotnet", &["test"]),
    ("mix", &["test"]),
    ("swift", &["test"]),
    ("bazel", &["test"]),
    ("bazelisk", &["test"]),
    ("buck2", &["test"]),
    ("zig", &["build test", "test"]),
    ("cabal", &["test"]),
    ("stack", &["test"]),
    ("lein", &["test"]),
    ("dune", &["test", "runtest"]),
    ("composer", &["test", "run test"]),
    ("flutter", &["test"]),
    ("dart", &["test"]),
    ("meson", &["test"]),
    ("forge", &["test"]),
    ("nim", &["test"]),
    ("R", &["CMD check"]),
];

/// Programs of which any argument may name a target.
const BUILDERS: &[&str] = &[
    "make", "gmake", "just", "ninja", "task", "rake", "gradle", "gradlew", "mvn", "mvnw", "sbt",
    "ant",
];

/// The targets of builders that run tests.
const TARGETS: &[&str] = &["test", "tests", "check", "verify"];

/// Programs that start another one, which their first argument that is no option names.
const STARTERS: &[(&str, &[&str])] = &[
    ("npx", &[]),
    ("bunx", &[]),
    ("poetry", &["run"]),
    ("uv", &["run"]),
    ("pipenv", &["run"]),
    ("hatch", &["run"]),
    ("pdm", &["run"]),
    ("bundle", &["exec"]),
    ("yarn", &[]),
    ("pnpm", &["exec"]),
    ("npm", &["exec"]),
];

/// Arguments with which no test is run.
const HARMLESS: &[&str] =
    &["--no-run", "--help", "--version", "--collect-only", "--co", "--list", "--dry-run"];

/// Returns true if a command runs tests.
pub(super) fn runs_tests(words: &[&str]) -> bool {
    let [first, arguments @ ..] = words else { return false };
    let program = first.rsplit('/').next().unwrap_or_default();
    if arguments.iter().any(|word| HARMLESS.contains(word)) {
        return false;
    }
    if RUNNERS.contains(&program) {
        return true;
    }
    if BUILDERS.contains(&program) {
        let is_dry = arguments.contains(&"-n");
        return !is_dry && arguments.iter().any(|word| TARGETS.contains(word));
    }
    let plain: Vec<_> =
        arguments.iter().copied().filter(|word| !word.starts_with(['-', '+'])).collect();
    let begins = |phrase: &str| {
        let phrase: Vec<_> = phrase.split(' ').collect();
        plain.starts_with(&phrase)
    };
    if let Some((_, verbs)) = VERBS.iter().find(|(name, _)| *name == program)
        && verbs.iter().any(|verb| begins(verb))
    {
        return true;
    }
    if program.starts_with("python") || program == "py" {
        let module = arguments.iter().position(|word| *word == "-m").map(|at| &arguments[at + 1..]);
        return module.is_some_and(runs_tests);
    }
    let starter = STARTERS.iter().filter(|(name, _)| *name == program);
    starter.filter_map(|(_, before)| started(arguments, before)).any(runs_tests)
}

/// Returns the words of the command that a starter starts; `None` if `before` does not precede it.
fn started<'a, 'w>(arguments: &'a [&'w str], before: &[&str]) -> Option<&'a [&'w str]> {
    let mut words = without_options(arguments);
    for word in before {
        let (first, rest) = words.split_first()?;
        if first != word {
            return None;
        }
        words = without_options(rest);
    }
    Some(words)
}

fn without_options<'a, 'w>(words: &'a [&'w str]) -> &'a [&'w str] {
    let options = words.iter().take_while(|word| word.starts_with(['-', '+'])).count();
    &words[options..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_run_tests_are_known_and_others_are_not() {
        let runs = |line: &str| runs_tests(&line.split(' ').collect::<Vec<_>>());
        for line in [
            "cargo test",
            "cargo +nightly --locked test -p x",
            "cargo nextest run",
            "pytest -q",
            ".venv/bin/pytest",
            "python3 -m pytest tests",
            "python -m unittest",
            "npm test",
            "npm run test",
            "npx --yes jest",
            "yarn jest",
            "go test ./...",
            "make -C sub -j4 check",
            "./gradlew clean test",
            "mvn -q verify",
            "poetry run pytest",
            "uv run python -m pytest",
            "bundle exec rspec",
            "R CMD check .",
        ] {
            assert!(runs(line), "{line}");
        }
        for line in [
            "",
            "cargo check",
            "cargo test --no-run",
            "cargo build test",
            "make",
            "make -n test",
            "go vet test",
            "npm run build",
            "python test",
            "python -m",
            "echo test",
            "test -f x",
            "npx",
            "poetry pytest",
            "cat pytest",
        ] {
            assert!(!runs(line), "{line}");
        }
    }
}
