//! Tests of the command lines that need the network.

use super::*;

/// Returns the commands of a line that need the network, each with the host that is known.
fn found(line: &str) -> Vec<String> {
    let shown = |need: NetworkNeed| match need.host {
        Some(host) => format!("{} @ {host}", need.command),
        None => need.command,
    };
    network_needs(line).into_iter().map(shown).collect()
}

#[test]
fn commands_that_need_the_network_are_found() {
    for (line, expected) in [
        ("npm ci", &["npm ci @ registry.npmjs.org:443"] as &[&str]),
        ("npm --prefix web install --no-audit", &["npm install @ registry.npmjs.org:443"]),
        ("cd web && npm i -D vitest && npm test", &["npm i @ registry.npmjs.org:443"]),
        ("CI=1 pnpm install --frozen-lockfile", &["pnpm install @ registry.npmjs.org:443"]),
        ("yarn", &["yarn @ registry.npmjs.org:443"]),
        ("yarn --immutable", &["yarn @ registry.npmjs.org:443"]),
        ("yarn global add serve", &["yarn global add @ registry.npmjs.org:443"]),
        ("pip3.12 install -r requirements.txt", &["pip3.12 install @ pypi.org:443"]),
        ("python3 -m pip install -U pip", &["pip install @ pypi.org:443"]),
        ("uv pip install ruff", &["uv pip install @ pypi.org:443"]),
        ("uv sync --frozen", &["uv sync @ pypi.org:443"]),
        ("poetry -C sub install", &["poetry install @ pypi.org:443"]),
        ("cargo +nightly fetch --locked", &["cargo fetch @ index.crates.io:443"]),
        ("cargo install ripgrep", &["cargo install @ index.crates.io:443"]),
        ("cargo update -p serde", &["cargo update @ index.crates.io:443"]),
        ("go mod download", &["go mod download @ proxy.golang.org:443"]),
        ("go install example.com/x@latest", &["go install @ proxy.golang.org:443"]),
        ("docker build -t x .", &["docker build"]),
        ("docker compose -f x.yml pull; podman pull x", &["docker compose pull", "podman pull"]),
        ("git -C sub push origin \"$BRANCH\"", &["git push"]),
        ("git fetch --all --prune && git pull", &["git fetch", "git pull"]),
        ("git clone --depth 1 https://example.com/a.git x", &["git clone @ example.com:443"]),
        ("git clone git@example.com:a/b.git", &["git clone"]),
        ("curl -fsSL https://example.com/x.sh | sh", &["curl @ example.com:443"]),
        (
            "curl -H \"Authorization: Bearer $TOKEN\" http://10.1.2.3:8080/x",
            &["curl @ 10.1.2.3:8080"],
        ),
        ("curl \"https://user:word@example.com/$NAME\" -o \"$OUT\"", &["curl @ example.com:443"]),
        ("wget -q https://example.com/$VERSION/x.tgz", &["wget @ example.com:443"]),
        (
            "sudo apt-get update && sudo apt-get install -y jq",
            &["apt-get update", "apt-get install"],
        ),
        ("brew install jq", &["brew install"]),
        ("gh pr create --fill", &["gh pr @ api.github.com:443"]),
        ("bundle install --jobs 4", &["bundle install @ rubygems.org:443"]),
        ("composer install --no-dev", &["composer install @ repo.packagist.org:443"]),
        ("./mvnw -B deploy", &["mvnw deploy @ repo.maven.apache.org:443"]),
        ("if ! timeout 60 npm ci; then exit 1; fi", &["npm ci @ registry.npmjs.org:443"]),
        ("sh -c 'git push'", &["git push"]),
        ("set -e\nnpm ci\nnpm ci\n", &["npm ci @ registry.npmjs.org:443"]),
        ("/usr/bin/git fetch", &["git fetch"]),
    ] {
        assert_eq!(found(line), expected, "{line}");
    }
}

#[test]
fn what_is_not_certain_gives_no_warning() {
    for line in [
        // Nothing is fetched.
        "npm ci --offline",
        "npm ci --prefer-offline --no-audit",
        "npm run ci",
        "npm test",
        "npm install --help",
        "npm publish --dry-run",
        "npx prettier --check .",
        "pnpm run install-hooks",
        "yarn build",
        "yarn install --immutable --immutable-cache",
        "pip install --no-index --find-links wheels x",
        "pip install -e .",
        "pip install ./dist/x.whl",
        "pip --version",
        "uv sync --offline",
        "uv run pytest",
        "poetry run pytest",
        "cargo fetch --offline",
        "cargo update --frozen --offline",
        "cargo build --release",
        "cargo install --path .",
        "cargo install --list",
        "go build ./... && go test ./...",
        "go install ./...",
        "go get ./...",
        "docker ps",
        "docker --version",
        "git status && git log --oneline",
        "git commit -m 'git push; npm ci; curl https://example.com'",
        "git fetch ../other",
        "git push /srv/git/x.git main",
        "git clone ../other copy",
        "git clone --depth 1 file:///srv/x.git",
        "git clone \"$URL\" x",
        "git remote add o ../other && git fetch o",
        "gh --version",
        "bundle exec rake",
        "bundle install --local",
        "composer dump-autoload",
        "mvn -o deploy",
        "mvn test",
        "./gradlew build",
        "apt-get install ./x.deb",
        // It does not leave the machine.
        "curl -s http://localhost:8080/health",
        "curl http://127.0.0.1:$PORT/",
        "curl --unix-socket x.sock http://example.com/",
        "curl -e https://example.com \"$URL\"",
        "curl -x http://127.0.0.1:3128 https://example.com",
        "curl file:///etc/hosts",
        "curl \"$URL\"",
        "curl \"https://$HOST/x\"",
        "wget http://[::1]:8000/x",
        "npm ci --registry http://localhost:4873",
        "npm config set offline true && npm ci",
        "npm_config_offline=true npm ci",
        "export CARGO_NET_OFFLINE=true; cargo fetch",
        "env GOPROXY=off go mod download",
        "GOFLAGS=-mod=vendor go get x",
        // The words are not those of a command.
        "echo npm ci",
        "echo 'git push' > todo",
        "grep -r 'curl https://example.com' docs",
        "command -v docker",
        "which npm",
        "# npm ci",
        "cat <<'EOF'\nnpm ci\nEOF",
        "./git push",
        "bin/curl https://example.com",
        "man git fetch",
        // It cannot be told.
        "npm $COMMAND",
        "npm ci $FLAGS",
        "npm install \"$PACKAGE\"",
        "git push \"$REMOTE\"",
        "$GIT push",
        "x=$(git fetch)",
        "for f in *; do echo \"$f\"; done",
        "",
    ] {
        assert_eq!(found(line), [""; 0], "{line}");
    }
}

#[test]
fn the_words_of_a_tool_are_judged_without_a_shell() {
    let of = |words: &[&str]| {
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        network_needs_of(&argv).into_iter().map(|need| need.command).collect::<Vec<_>>()
    };
    assert_eq!(of(&["git", "push", "origin", "{{ args.branch }}"]), ["git push"]);
    assert_eq!(of(&["sh", "-c", "curl https://example.com/$1", "sh", "{{ args.x }}"]), ["curl"]);
    assert_eq!(of(&["curl", "{{ args.url }}"]), [""; 0]);
    assert_eq!(of(&["git", "{{ args.verb }}"]), [""; 0]);
    assert_eq!(of(&["echo", "git push; npm ci"]), [""; 0]);
    assert_eq!(of(&[]), [""; 0]);
}

#[test]
fn a_need_names_the_option_that_does_without() {
    let offline = |line: &str| network_needs(line).remove(0).offline;
    assert_eq!(offline("npm ci"), "--offline");
    assert_eq!(offline("pip install x"), "--no-index");
    assert_eq!(offline("git push"), "");
    assert!(network_needs("docker pull x")[0].by_daemon);
}

#[test]
fn no_text_is_too_strange() {
    let parts = [
        "npm", "git", "curl", "ci", "push", "clone", "install", "-C", "-m", "python", "https://",
        "x.y", "@", ":", "[", "]", "'", "\"", "$", "$x", ";", "&&", "|", "(", ")", "{{", "=", "/",
        "\n", " ", " ", " ", " ", " ", "é",
    ];
    let mut random = fastrand::Rng::with_seed(32);
    for _ in 0..20_000 {
        let line: String = (0..random.usize(0..16)).filter_map(|_| random.choice(parts)).collect();
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = network_needs(&line).into_iter().chain(network_needs_of(&argv));
        found.for_each(|need| assert!(!need.command.is_empty(), "{line}"));
    }
}
