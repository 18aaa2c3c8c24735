//! The table of programs that are known to need the network, and of the options by which they do not.
//!
//! Data only; `network` applies it. A program whose needs depend on files of the workspace stands here only with the
//! subcommands that fetch or send as a rule: `cargo fetch`, but not `cargo build`.

/// Programs that need the network with certain subcommands.
pub(super) struct Row {
    /// Names, with blanks between them.
    pub(super) names: &'static str,
    /// Subcommands, with blanks between them; two words are joined by `:`, and `-` stands for no word at all.
    pub(super) subcommands: &'static str,
    pub(super) reaches: &'static str,
    /// The host that is asked as a rule; may be empty.
    pub(super) host: &'static str,
    /// Options by which nothing is fetched, the one to advise first.
    pub(super) offline: &'static str,
    /// Options with a value that may stand before the subcommand.
    pub(super) values: &'static str,
    /// What the words after the subcommand must be.
    pub(super) operands: Operands,
}

/// What decides, besides the subcommand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operands {
    /// Nothing, as long as no word is a path or unknown.
    NotLocal,
    /// The first word after the subcommand, if there is one: it must be no path and known.
    FirstNotLocal,
    /// The first word after the subcommand, which must be there: a URL of another machine.
    FirstRemote,
    /// One of them must name a version: `go install example.com/x@latest`.
    Versioned,
    /// Nothing.
    Any,
}

const ROW: Row = Row {
    names: "",
    subcommands: "",
    reaches: "a registry of packages",
    host: "",
    offline: "",
    values: "",
    operands: Operands::NotLocal,
};

const NPM: &str = "registry.npmjs.org:443";
const PYPI: &str = "pypi.org:443";
const CRATES: &str = "index.crates.io:443";
const REPOSITORY: &str = "a repository on another machine";
pub(super) const DAEMON: &str = "the daemon of containers, which needs the network";

pub(super) const ROWS: &[Row] = &[
    Row {
        names: "npm",
        subcommands: "install i in add ci update up upgrade install-test it publish view info search audit \
            outdated ping login whoami",
        host: NPM,
        offline: "--offline --prefer-offline",
        values: "--prefix -C --registry --loglevel --workspace -w",
        ..ROW
    },
    Row {
        names: "pnpm",
        subcommands: "install i add update up upgrade fetch publish audit outdated dlx",
        host: NPM,
        offline: "--offline --prefer-offline",
        values: "--dir -C --filter -F --loglevel",
        ..ROW
    },
    Row {
        names: "yarn",
        subcommands: "install add up upgrade dlx global:add - npm:publish publish",
        host: NPM,
        offline: "--offline --immutable-cache --prefer-offline",
        values: "--cwd",
        ..ROW
    },
    Row { names: "bun", subcommands: "install i add update publish", host: NPM, ..ROW },
    Row {
        names: "pip",
        subcommands: "install download index search",
        host: PYPI,
        offline: "--no-index --no-deps",
        values: "--cache-dir --proxy --timeout --retries --log",
        ..ROW
    },
    Row {
        names: "uv",
        subcommands: "sync add lock pip:install pip:sync tool:install tool:upgrade python:install publish",
        host: PYPI,
        offline: "--offline --no-index --no-deps --check --no-sync",
        values: "--directory --project --cache-dir --config-file -p --python",
        ..ROW
    },
    Row {
        names: "poetry",
        subcommands: "install add update lock publish sync",
        host: PYPI,
        values: "-C --directory --project -P",
        ..ROW
    },
    Row { names: "pipenv pdm", subcommands: "install add update lock sync", host: PYPI, ..ROW },
    Row { names: "pipx", subcommands: "install upgrade run", host: PYPI, ..ROW },
    Row {
        names: "conda mamba micromamba",
        subcommands: "install create update env:create env:update",
        host: "conda.anaconda.org:443",
        offline: "--offline",
        ..ROW
    },
    Row {
        names: "cargo",
        subcommands: "fetch install update search publish login add",
        host: CRATES,
        offline: "--offline --frozen --path --list",
        values: "--manifest-path --config -C --color",
        ..ROW
    },
    Row {
        names: "rustup",
        subcommands: "update install toolchain:install component:add target:add self:update",
        reaches: "the server of the toolchains",
        host: "static.rust-lang.org:443",
        ..ROW
    },
    Row {
        names: "go",
        subcommands: "get mod:download",
        reaches: "a proxy of modules",
        host: "proxy.golang.org:443",
        values: "-C",
        ..ROW
    },
    Row {
        names: "go",
        subcommands: "install",
        reaches: "a proxy of modules",
        host: "proxy.golang.org:443",
        values: "-C",
        operands: Operands::Versioned,
        ..ROW
    },
    Row {
        names: "docker",
        subcommands: "pull push build login search image:pull image:push image:build buildx:build compose:pull \
            compose:push compose:build",
        reaches: DAEMON,
        values: "--context -c --config --host -H --log-level -l -f --file -p --project-name",
        operands: Operands::Any,
        ..ROW
    },
    Row {
        names: "podman buildah",
        subcommands: "pull push build bud login search image:pull image:push image:build",
        reaches: "a registry of images",
        offline: "--pull=never --network=none",
        values: "--connection -c --log-level",
        ..ROW
    },
    Row {
        names: "git",
        subcommands: "push pull fetch ls-remote remote:update lfs:pull lfs:push lfs:fetch",
        reaches: REPOSITORY,
        values: "-C -c --git-dir --work-tree --namespace",
        operands: Operands::FirstNotLocal,
        ..ROW
    },
    Row {
        names: "git",
        subcommands: "clone",
        reaches: REPOSITORY,
        values: "-C -c --git-dir --work-tree --namespace",
        operands: Operands::FirstRemote,
        ..ROW
    },
    Row {
        names: "apt apt-get aptitude",
        subcommands: "install update upgrade dist-upgrade full-upgrade build-dep",
        offline: "--no-download --simulate -s --print-uris",
        values: "-o -c -t",
        ..ROW
    },
    Row {
        names: "dnf yum microdnf",
        subcommands: "install update upgrade makecache",
        offline: "--cacheonly -C",
        ..ROW
    },
    Row { names: "apk", subcommands: "add update upgrade fetch", offline: "--no-network", ..ROW },
    Row { names: "brew", subcommands: "install update upgrade tap", ..ROW },
    Row {
        names: "gh",
        subcommands: "api pr issue release run workflow repo gist search secret variable label project",
        reaches: "GitHub",
        host: "api.github.com:443",
        operands: Operands::Any,
        ..ROW
    },
    Row {
        names: "glab",
        subcommands: "api mr issue ci release repo",
        reaches: "GitLab",
        operands: Operands::Any,
        ..ROW
    },
    Row {
        names: "bundle bundler",
        subcommands: "install update add outdated -",
        host: "rubygems.org:443",
        offline: "--local",
        ..ROW
    },
    Row {
        names: "gem",
        subcommands: "install update push fetch",
        host: "rubygems.org:443",
        offline: "--local -l",
        ..ROW
    },
    Row {
        names: "composer",
        subcommands: "install update require create-project global:require",
        host: "repo.packagist.org:443",
        values: "-d --working-dir",
        ..ROW
    },
    Row {
        names: "mvn mvnw",
        subcommands: "deploy dependency:go-offline dependency:resolve",
        reaches: "a repository of artifacts",
        host: "repo.maven.apache.org:443",
        offline: "-o --offline",
        values: "-f --file -s --settings -pl -P",
        operands: Operands::Any,
    },
    Row {
        names: "gradle gradlew",
        subcommands: "publish publishAllPublicationsToMavenRepository",
        reaches: "a repository of artifacts",
        offline: "--offline",
        values: "-p --project-dir -b -c",
        operands: Operands::Any,
        ..ROW
    },
];

/// Programs that fetch the URLs among their words, with their options whose value may be another URL.
pub(super) const FETCHERS: &[(&str, &str)] = &[
    (
        "curl",
        "-e --referer -d --data --data-raw --data-binary --data-ascii --data-urlencode --json -F --form -H --header -A \
            --user-agent -x --proxy --preproxy -o --output -w --write-out -b --cookie -u --user --resolve \
            --connect-to --form-string",
    ),
    (
        "wget aria2c",
        "--referer --post-data --body-data --header -O --output-document -U --user-agent",
    ),
    ("http https xh", "-o --output --proxy"),
];

/// Options of `curl` by which it connects to a socket of this machine.
pub(super) const LOCAL_SOCKETS: &str = "--unix-socket --abstract-unix-socket";

/// Options with which every program only says or shows something.
pub(super) const SHOWS: &str = "--help -h --version -V --dry-run";

/// Programs whose subcommands here change where their later calls go.
pub(super) const CONFIGURING: &[(&str, &str)] = &[
    ("git", "remote:add remote:set-url config init"),
    ("npm pnpm yarn pip composer bundle bundler conda", "config"),
    ("poetry", "config source:add"),
    ("go", "env"),
];
