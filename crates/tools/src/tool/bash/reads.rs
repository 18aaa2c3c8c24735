//! The programs that run what files say, and the files that they read by themselves.
//!
//! Data, and the rules by which a command falls under it. `runs` looks for the files. A program that is not in
//! the table, and of which the grammar does not know what it does, is said to be unbound.

use std::collections::HashSet;

use super::grammar::pieces::Piece;
use super::grammar::{self, Reading, goes_by};

/// Programs, and what decides what they do besides the words of their command.
struct Reads {
    /// Names, with blanks between them.
    names: &'static str,
    /// Files that they read by themselves in the folder in which they work, or in one above it.
    files: &'static str,
    /// What else decides, and cannot be told; empty if nothing does.
    rest: &'static str,
}

const BUILD: &str = "what the workspace's build files and sources say";
const TESTS: &str = "the tests of the workspace and what they load";
const SCRIPTS: &str = "what the scripts and settings of packages in the workspace name";
const TASKS: &str = "what these tasks include and run";
const MODULES: &str = "modules of the workspace";

/// Digits and dots at the end of a program's name are its version.
const READS: &[Reads] = &[
    // These run a file that an argument names, and take no other by themselves.
    Reads {
        names: "sh bash dash zsh ksh fish ash busybox source . eval exec env python pypy node nodejs \
            tsx ts-node perl ruby php lua luajit Rscript julia pwsh osascript awk gawk mawk sed java \
            xargs parallel tclsh wish expect gnuplot octave guile racket sbcl clisp swipl ghci \
            runghc runhaskell elixir iex escript groovy kotlin scala dart crystal nim raku m4 bc dc \
            psql sqlite sqlite3 mysql mariadb gdb lldb vi vim nvim ed ex emacs tar rsync ssh",
        files: "",
        rest: "",
    },
    Reads {
        names: "make gmake bmake remake",
        files: "GNUmakefile makefile Makefile BSDmakefile .depend",
        rest: "",
    },
    Reads {
        names: "just",
        files: "justfile Justfile JUSTFILE .justfile .Justfile .JUSTFILE .env",
        rest: TASKS,
    },
    Reads {
        names: "task go-task",
        files: "Taskfile.yml taskfile.yml Taskfile.yaml taskfile.yaml Taskfile.dist.yml \
            taskfile.dist.yml Taskfile.dist.yaml taskfile.dist.yaml .taskrc.yml .taskrc.yaml .env",
        rest: TASKS,
    },
    Reads {
        names: "rake",
        files: "Rakefile rakefile Rakefile.rb rakefile.rb Gemfile",
        rest: TASKS,
    },
    Reads { names: "invoke inv fab", files: "tasks.py fabfile.py invoke.yaml", rest: TASKS },
    Reads { names: "doit", files: "dodo.py pyproject.toml", rest: TASKS },
    Reads { names: "pre-commit", files: ".pre-commit-config.yaml", rest: TASKS },
    Reads { names: "lefthook", files: "lefthook.yml lefthook.yaml .lefthook.yml", rest: TASKS },
    Reads {
        names: "mise direnv",
        files: ".envrc .env mise.toml .mise.toml .tool-versions",
        rest: TASKS,
    },
    Reads {
        names: "npm npx pnpm pnpx yarn corepack lerna nx turbo",
        files: "package.json .npmrc .yarnrc .yarnrc.yml .pnp.cjs .pnpmfile.cjs pnpm-workspace.yaml \
            nx.json turbo.json",
        rest: SCRIPTS,
    },
    Reads {
        names: "bun bunx deno",
        files: "package.json bunfig.toml .npmrc .env deno.json deno.jsonc",
        rest: SCRIPTS,
    },
    Reads { names: "composer", files: "composer.json composer.lock", rest: SCRIPTS },
    Reads { names: "bundle bundler", files: "Gemfile Gemfile.lock .bundle/config", rest: SCRIPTS },
    Reads {
        names: "uv uvx poetry pipenv hatch pdm rye pip pipx",
        files: "pyproject.toml uv.toml setup.py setup.cfg Pipfile requirements.txt .env",
        rest: SCRIPTS,
    },
    Reads {
        names: "cargo",
        files: "Cargo.toml Cargo.lock build.rs .cargo/config.toml .cargo/config rust-toolchain \
            rust-toolchain.toml rustfmt.toml clippy.toml",
        rest: BUILD,
    },
    Reads { names: "go", files: "go.mod go.sum go.work vendor/modules.txt", rest: BUILD },
    Reads {
        names: "mvn mvnw",
        files: "pom.xml .mvn/maven.config .mvn/jvm.config .mvn/extensions.xml \
            .mvn/wrapper/maven-wrapper.properties",
        rest: BUILD,
    },
    Reads {
        names: "gradle gradlew",
        files: "build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties \
            init.gradle gradle/wrapper/gradle-wrapper.properties gradle/wrapper/gradle-wrapper.jar",
        rest: BUILD,
    },
    Reads { names: "ant", files: "build.xml", rest: BUILD },
    Reads {
        names: "sbt",
        files: "build.sbt project/build.properties project/plugins.sbt",
        rest: BUILD,
    },
    Reads { names: "lein", files: "project.clj", rest: BUILD },
    Reads {
        names: "cmake ctest cpack",
        files: "CMakeLists.txt CMakePresets.json CMakeUserPresets.json CTestTestfile.cmake \
            CPackConfig.cmake CMakeCache.txt",
        rest: BUILD,
    },
    Reads { names: "ninja samu", files: "build.ninja", rest: BUILD },
    Reads { names: "meson", files: "meson.build meson_options.txt meson.options", rest: BUILD },
    Reads { names: "scons", files: "SConstruct Sconstruct sconstruct", rest: BUILD },
    Reads { names: "waf", files: "wscript", rest: BUILD },
    Reads {
        names: "bazel bazelisk buck2",
        files: "WORKSPACE MODULE.bazel BUILD BUILD.bazel .bazelrc",
        rest: BUILD,
    },
    Reads { names: "zig", files: "build.zig build.zig.zon", rest: BUILD },
    Reads { names: "swift", files: "Package.swift", rest: BUILD },
    Reads { names: "mix", files: "mix.exs mix.lock config/config.exs", rest: BUILD },
    Reads { names: "rebar3", files: "rebar.config rebar.config.script", rest: BUILD },
    Reads {
        names: "stack cabal",
        files: "stack.yaml package.yaml cabal.project Setup.hs",
        rest: BUILD,
    },
    Reads { names: "dune", files: "dune dune-project dune-workspace", rest: BUILD },
    Reads {
        names: "dotnet msbuild",
        files: "Directory.Build.props Directory.Build.targets global.json NuGet.config",
        rest: BUILD,
    },
    Reads {
        names: "nix nix-build nix-shell",
        files: "flake.nix flake.lock default.nix shell.nix",
        rest: BUILD,
    },
    Reads {
        names: "docker podman buildah docker-compose",
        files: "Dockerfile Containerfile compose.yaml compose.yml docker-compose.yaml \
            docker-compose.yml docker-compose.override.yml compose.override.yaml .env",
        rest: BUILD,
    },
    Reads { names: "vagrant", files: "Vagrantfile", rest: BUILD },
    Reads { names: "ansible ansible-playbook", files: "ansible.cfg", rest: TASKS },
    Reads {
        names: "terraform tofu",
        files: "main.tf terraform.tfvars .terraform.lock.hcl",
        rest: BUILD,
    },
    Reads {
        names: "pytest py.test",
        files: "conftest.py pytest.ini .pytest.ini pyproject.toml tox.ini setup.cfg",
        rest: TESTS,
    },
    Reads {
        names: "tox nox",
        files: "tox.ini noxfile.py pyproject.toml setup.cfg setup.py",
        rest: TESTS,
    },
    Reads {
        names: "jest vitest mocha ava",
        files: "package.json jest.config.js jest.config.cjs jest.config.mjs jest.config.ts \
            jest.config.json vitest.config.ts vitest.config.js vite.config.ts vite.config.js \
            .mocharc.js .mocharc.cjs .mocharc.json .mocharc.yml ava.config.js babel.config.js .babelrc",
        rest: TESTS,
    },
    Reads { names: "rspec", files: ".rspec spec/spec_helper.rb Gemfile", rest: TESTS },
    Reads { names: "phpunit", files: "phpunit.xml phpunit.xml.dist", rest: TESTS },
    Reads {
        names: "eslint prettier vite webpack rollup stylelint",
        files: "package.json eslint.config.js eslint.config.mjs eslint.config.cjs .eslintrc.js \
            .eslintrc.cjs .eslintrc.json .prettierrc .prettierrc.js prettier.config.js \
            vite.config.ts vite.config.js webpack.config.js rollup.config.js",
        rest: SCRIPTS,
    },
];

/// Programs that run another one which any of their words may name.
const CARRIERS: &str = "python pypy uv uvx poetry pipenv hatch pdm rye pipx bundle bundler npm npx pnpm pnpx yarn \
    bun bunx deno corepack conda docker podman nix mise direnv ssh rustup";

/// What a command runs besides the files that its words name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// True if it runs what a file says which a word of it names.
    pub(super) interprets: bool,
    /// True if a word may name a module of Python.
    pub(super) modules: bool,
    /// The names of the files that its programs read by themselves.
    pub(super) files: Vec<&'static str>,
    /// What decides as well and is not bound, each with its program.
    pub(super) rest: Vec<String>,
}

/// The programs that certainly are those of a command; `None` if any word may be one.
pub(super) type Programs = Option<Vec<String>>;

/// Returns the programs of a command line.
pub(super) fn programs_of_line(line: &str) -> Programs {
    let Reading { commands, unclear, cautions, .. } = grammar::read(line);
    let names = commands.iter().filter_map(|command| command.split(' ').next());
    let names: Vec<String> = each_once(names).map(str::to_owned).collect();
    (unclear.is_none() && cautions.is_empty()).then_some(names)
}

/// Returns the names without those that came before: each is looked up in every row of the tables, and a line may say
/// one a hundred thousand times.
fn each_once<'n>(names: impl Iterator<Item = &'n str>) -> impl Iterator<Item = &'n str> {
    let mut seen = HashSet::new();
    names.filter(move |name| seen.insert(*name))
}

/// Returns the program of a list of words that no shell reads.
pub(super) fn program_of_words(argv: &[String]) -> Programs {
    let name = argv.first()?;
    (!grammar::is_launcher(base(name))).then(|| vec![name.clone()])
}

/// Returns what a command runs. A word is a program if the command is not certain, or if one of its programs
/// may run another.
pub(super) fn read(words: &[Piece], programs: &Programs) -> Read {
    let mut read = Read::default();
    let may_carry = |name: &String| goes_by(base(name), CARRIERS) || is_unknown(name);
    let certain = programs.as_ref().filter(|names| !names.iter().any(may_carry));
    let names: Vec<&str> = match certain {
        Some(names) => names.iter().map(|name| base(name)).collect(),
        None => each_once(words.iter().flat_map(|word| spellings(&word.text)).map(base)).collect(),
    };
    for row in READS {
        let Some(name) = names.iter().find(|name| goes_by(name, row.names)) else { continue };
        read.interprets = true;
        read.files.extend(row.files.split(' ').filter(|file| !file.is_empty()));
        if !row.rest.is_empty() {
            read.rest.push(format!("{name}: {}", row.rest));
        }
    }
    if let Some(python) = names.iter().find(|name| goes_by(name, "python pypy"))
        && words.iter().any(|word| module_after(&word.text).is_some())
    {
        read.modules = true;
        read.rest.push(format!("{python} -m: {MODULES}"));
    }
    // A file of the workspace is bound itself, like a script that a shell runs.
    let is_ours = |name: &str| name.contains('/') && !name.starts_with('/');
    let unknown = programs.iter().flatten().filter(|name| is_unknown(name) && !is_ours(name));
    let unknown = unknown.map(|name| format!("{name}: files that it reads by itself, if it does"));
    read.rest.extend(unknown);
    read.rest.sort();
    read.rest.dedup();
    read
}

/// Returns true if neither table tells what a program does.
fn is_unknown(name: &str) -> bool {
    let name = base(name);
    !grammar::is_known(name) && !READS.iter().any(|row| goes_by(name, row.names))
}

/// Returns what stands behind the `m` of short options: `-m`, `-Im`, `-mjson`.
pub(super) fn module_after(word: &str) -> Option<&str> {
    let cluster = word.strip_prefix('-').filter(|cluster| !cluster.starts_with('-'))?;
    cluster.split_once('m').map(|(_, module)| module)
}

/// Returns the texts of a word that may name a file or a folder: `x`, `--file=x`, `-fx`, `@x`.
pub(super) fn spellings(word: &str) -> impl Iterator<Item = &str> {
    /// The most letters of short options before a value.
    const MOST_LETTERS: usize = 6;
    let value = word.split_once('=').map(|(_, value)| value);
    let response = word.strip_prefix('@');
    let cluster = word.strip_prefix('-').filter(|cluster| !cluster.starts_with('-')).unwrap_or("");
    let joined = cluster.char_indices().skip(1).take(MOST_LETTERS).map(|(at, _)| &cluster[at..]);
    std::iter::once(word).chain(value).chain(response).chain(joined)
}

/// Returns the name of a program without its folder.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}
