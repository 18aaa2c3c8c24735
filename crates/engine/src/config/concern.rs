//! What a configuration wants that nobody would expect of a project: keys sent elsewhere, files outside
//! the directory, a loosened sandbox, programs outside.
//!
//! Each is named before it is used, and a person trusts it once. To run the commands of a file inside
//! the sandbox needs no trust: whoever types `run` wants that, as with `make`. Decides from names and
//! paths; the only look at the disk is for where links lead.

use std::path::{Component, Path, PathBuf};

use serde_json::Value as Json;

use super::diagnostic::{Giver, Origin, Place};
use super::raw::{HeaderValue, KeySource, Provider, Settings, Wire, known};
use super::shape::{Item, ListOr};
use super::{Setting, Sources};
use crate::model::http::{HeaderRole, is_loopback};
use crate::redaction::{may_be_secret, without_keys};
use crate::spec::run_by_others;
use crate::spec::sandbox::{CommandLimits, SandboxMode};
use crate::spec::tool::code_files;
use crate::tool::{bash, environment};

/// The services whose keys are known by a word in the name of their variable, with their hosts.
const SERVICES: [(&str, &str); 13] = [
    ("ANTHROPIC", ANTHROPIC),
    ("OPENAI", OPENAI),
    ("CEREBRAS", "api.cerebras.ai"),
    ("DEEPSEEK", "api.deepseek.com"),
    ("FIREWORKS", "api.fireworks.ai"),
    ("GEMINI", "generativelanguage.googleapis.com"),
    ("GROQ", "api.groq.com"),
    ("MISTRAL", "api.mistral.ai"),
    ("MOONSHOT", "api.moonshot.ai"),
    ("NVIDIA", "integrate.api.nvidia.com"),
    ("OPENROUTER", "openrouter.ai"),
    ("TOGETHER", "api.together.xyz"),
    ("XAI", "api.x.ai"),
];
const ANTHROPIC: &str = "api.anthropic.com";
const OPENAI: &str = "api.openai.com";

/// Words in the name of a variable that holds a credential.
const CREDENTIALS: [&str; 22] = [
    "APIKEY",
    "AUTH",
    "BEARER",
    "COOKIE",
    "CRED",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "DSN",
    "JWT",
    "KEY",
    "KEYS",
    "PASS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PAT",
    "SECRET",
    "SECRETS",
    "SESSION",
    "TOKEN",
    "TOKENS",
];

/// Endings of such words where no underscore stands before them, as in `PGPASSWORD`.
const ENDINGS: [&str; 5] = ["KEY", "PASSWORD", "SECRET", "TOKEN", "PWD"];

/// Beginnings of the values of well-known credentials.
const PREFIXES: [&str; 12] = [
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "-----BEGIN",
];

/// Variables that hold no secret by what they are for: they tell a program where it runs and how to
/// print.
const HARMLESS: [&str; 17] = [
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LINES",
    "NODE_ENV",
    "NO_COLOR",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TZ",
    "VERBOSE",
];

/// Folders of the system, whose programs a project can expect on every machine.
const SYSTEM: [&str; 6] = ["/bin", "/sbin", "/usr", "/opt", "/nix/store", "/lib"];

/// Adds what the whole configuration wants and no other part has named while it read its values.
pub(super) fn concerns(setting: Setting<'_>) {
    for (entry, provider) in setting.raw.providers.values() {
        key_elsewhere(&entry.name, provider, setting);
        headers_of_address(&entry.name, provider, setting);
    }
    sandbox(setting);
    programs(setting);
    if setting.sources.recorded_elsewhere {
        let shown = setting.root.display();
        let origin = Origin::new("the record of the run", Giver::Record);
        let place = Place::outside("record", "workspace = ", &shown.to_string(), origin);
        setting.problems.concern(&place, format!("the run works in `{shown}`"));
    }
    if let Some((place, path)) = records_outside(setting.raw, setting.root, setting.sources) {
        let text = format!("the records of runs are written to `{}`", path.display());
        setting.problems.concern(place, text);
    }
}

/// Returns the folder of the run directories and the place of the key that names it, if the file chose a folder
/// outside of its own.
pub(super) fn records_outside<'a>(
    raw: &'a Settings,
    root: &Path,
    sources: &Sources,
) -> Option<(&'a Place, PathBuf)> {
    let dir = &raw.state.dir;
    let variable = sources.environment.get("CALLSHEET_STATE_DIR");
    let place = &dir.at().filter(|_| variable.is_none_or(String::is_empty))?.value;
    is_of_project(place).then(|| leads_outside(root, dir.as_str()))?.map(|path| (place, path))
}

/// Returns true if the file or a record holds a value, which somebody else may have written.
pub(super) fn is_of_project(place: &Place) -> bool {
    match place.giver() {
        Giver::Project | Giver::Record => true,
        Giver::PersonForRun | Giver::Person => false,
    }
}

/// The kinds of keys, as far as they tell where a key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key<'a> {
    Variable(&'a str),
    File(&'a str),
}

fn key_elsewhere(name: &str, provider: &Provider, setting: Setting<'_>) {
    let service = provider.service.and_then(|name| known(name).base_url);
    let public = match (service, *provider.kind) {
        (Some(address), _) => address.to_owned(),
        (None, Some(Wire::Anthropic)) => format!("https://{ANTHROPIC}"),
        (None, Some(Wire::OpenAi | Wire::OpenAiResponses)) => format!("https://{OPENAI}"),
        (None, Some(Wire::Scripted) | None) => return,
    };
    let api_key = provider.api_key.as_ref().zip(provider.api_key.at());
    let of_headers = provider.headers.values().filter_map(|(header, value)| match value {
        HeaderValue::Read(source) => Some((source, &*header.at)),
        HeaderValue::Written(_) => None,
    });
    for (source, at) in api_key.into_iter().chain(of_headers) {
        let (address, place) = match provider.base_url.placed() {
            Some((address, place)) => (address.clone(), place),
            None => (public.clone(), &at.value),
        };
        let key = key_of(source, setting).filter(|key| !belongs(*key, &address));
        if let Some(key) = key {
            sent_elsewhere(name, key, &address, place, setting);
        }
    }
}

/// Names the headers that take a request elsewhere than `base_url` says, with the key in it.
fn headers_of_address(name: &str, provider: &Provider, setting: Setting<'_>) {
    for (header, value) in provider.headers.values() {
        if HeaderRole::of(&header.name) != HeaderRole::Address {
            continue;
        }
        let value = match value {
            HeaderValue::Written(text) => format!(" as `{text}`"),
            HeaderValue::Read(_) => String::new(),
        };
        let text = format!(
            "requests of provider `{name}` have the header `{}`{value}, which may say where they go or \
             who sends them",
            header.name
        );
        setting.problems.concern(&header.at.value, text);
    }
}

fn sent_elsewhere(name: &str, key: Key<'_>, address: &str, place: &Place, setting: Setting<'_>) {
    let what = match key {
        Key::Variable(name) => format!("the variable `{name}`"),
        Key::File(path) => format!("the content of `{path}`"),
    };
    let own = match key {
        Key::Variable(variable) => service(variable).map(|host| format!(", not to https://{host}")),
        Key::File(_) => None,
    };
    let own = own.unwrap_or_default();
    let address = without_keys(address);
    let text = format!("{what} is sent to `{address}`{own}: it is the key of provider `{name}`");
    setting.problems.concern(place, text);
}

fn key_of<'a>(source: &'a KeySource, setting: Setting<'a>) -> Option<Key<'a>> {
    let variable = |name: &'a Option<String>| name.as_deref().map(Key::Variable);
    let file = |path: &'a Option<String>| path.as_deref().map(Key::File);
    if let Some(secret) = source.secret.as_deref() {
        let secret = setting.raw.secrets.get(secret)?.value.as_ref()?;
        return variable(&secret.env).or_else(|| file(&secret.file));
    }
    variable(&source.env).or_else(|| file(&source.file))
}

/// Returns true if a key belongs to an address, or if the address is on this machine: nothing leaves
/// it then, and no command of the file can listen there, because the sandbox has no network.
fn belongs(key: Key<'_>, address: &str) -> bool {
    if is_loopback(address) {
        return true;
    }
    let is_host = |host: &str| {
        let rest = address.strip_prefix("https://").and_then(|rest| rest.strip_prefix(host));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match key {
        Key::Variable(name) => service(name).is_some_and(is_host),
        // A file has no name that tells where it belongs; both services are what people expect.
        Key::File(_) => is_host(ANTHROPIC) || is_host(OPENAI),
    }
}

/// Returns the host of the service to which a variable belongs by its name.
fn service(variable: &str) -> Option<&'static str> {
    let words = || variable.split('_');
    let found = SERVICES.iter().find(|(word, _)| words().any(|own| own == *word));
    found.map(|(_, host)| *host)
}

/// Returns true if a variable looks as if it held a credential.
fn is_credential(name: &str, value: Option<&str>) -> bool {
    let upper = name.to_ascii_uppercase();
    let by_name = upper.split('_').any(|word| CREDENTIALS.contains(&word))
        || (ENDINGS.iter().any(|end| upper.ends_with(end)) && upper != "PWD" && upper != "OLDPWD");
    let by_value = value.map(str::trim).is_some_and(|value| {
        let authority = value.split_once("://").map(|(_, rest)| rest.split('/').next());
        let holds_user = authority.flatten().is_some_and(|authority| authority.contains('@'));
        holds_user || PREFIXES.iter().any(|start| value.starts_with(start))
    });
    by_name || by_value
}

/// Returns true if the value of such a variable is to be replaced in records. A path or a plain word is
/// not, as in `SSH_AUTH_SOCK` or `SORT_KEY`: it would be found in texts that have nothing to do with it.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || b"_-. ".contains(&byte);
    is_credential(name, Some(value)) && !value.starts_with('/') && !value.bytes().all(is_plain)
}

fn sandbox(setting: Setting<'_>) {
    let (raw, root, problems) = (&setting.raw.sandbox, setting.root, setting.problems);
    match raw.network.placed() {
        Some((ListOr::Other(Json::Bool(true)), place)) => {
            problems.concern(place, "commands can use the network");
        }
        Some((ListOr::List(hosts), _)) => {
            for Item { value: host, at } in hosts {
                let host = host.as_str().unwrap_or_default();
                problems.concern(&at.value, format!("commands can reach `{host}`"));
            }
        }
        Some((ListOr::Other(_), _)) | None => {}
    }
    if let (SandboxMode::DangerFullAccess, Some(at)) = (*raw.mode, raw.mode.at()) {
        problems.concern(&at.value, "commands run without a sandbox");
    }
    let (limits, usual) = (&raw.limits, CommandLimits::default());
    for (at, is_raised, what) in [
        (limits.file_size.at(), limits.file_size.0 > usual.file_size, "larger files"),
        (limits.cpu_time.at(), *limits.cpu_time > usual.cpu_time, "more processor time"),
        (limits.processes.at(), *limits.processes > usual.processes, "more processes"),
        (limits.open_files.at(), *limits.open_files > usual.open_files, "more open files"),
    ] {
        if let Some(at) = at.filter(|_| is_raised) {
            problems.concern(&at.value, format!("commands can have {what} than usual"));
        }
    }
    for Item { value: path, at } in raw.readable_roots.iter() {
        if let Some(path) = leads_outside(root, path) {
            problems.concern(&at.value, format!("commands can read `{}`", path.display()));
        }
    }
    for Item { value: path, at } in raw.writable_roots.iter() {
        match leads_outside(root, path) {
            Some(path) => {
                problems.concern(&at.value, format!("commands can write `{}`", path.display()));
            }
            None if lifts_protection(path, root) => {
                let text =
                    format!("commands can write `{path}`, which other programs run or trust");
                problems.concern(&at.value, text);
            }
            None => {}
        }
    }
    for Item { value: name, at } in raw.env.iter() {
        let value = setting.sources.environment.get(name).map(String::as_str);
        // The value is asked about as what it is now: one that becomes a secret is asked about again.
        let which = match value {
            _ if is_credential(name, value) => ", which looks like a credential",
            Some(value) if may_be_secret(value) => ", whose value may be a secret",
            _ if HARMLESS.contains(&name.as_str()) || environment::is_passed_to_all(name) => {
                continue;
            }
            _ => "",
        };
        problems.concern(&at.value, format!("commands get the variable `{name}`{which}"));
    }
}

/// Returns true if a writable root in the workspace makes something writable that other programs run.
fn lifts_protection(path: &str, root: &Path) -> bool {
    let written = root.join(path);
    let places = [Some(clean(&written)), real_place(&written)];
    let lifts = |place: &PathBuf| place.strip_prefix(root).is_ok_and(run_by_others::lifts);
    places.iter().flatten().any(lifts)
}

/// Names the programs outside the directory that hooks, tools and tasks begin with.
fn programs(setting: Setting<'_>) {
    let (own, _) = &*setting.raw.compaction;
    let hooks = &own.hooks;
    for hook in [&hooks.pre_compact, &hooks.post_compact, &hooks.after_compact_context] {
        let Some(Item { value: program, at }) = hook.first() else { continue };
        program_outside(program, &at.value, setting);
    }
    let raw = &setting.raw.hooks;
    let of_run = [&raw.on_start, &raw.on_success, &raw.on_failure, &raw.on_exit];
    let of_states = [&raw.run_paused, &raw.run_resumed, &raw.question, &raw.on_budget];
    let of_tools = [&raw.pre_tool_use, &raw.post_tool_use];
    for hook in of_run.into_iter().chain(of_states).chain(of_tools) {
        let Some(Item { value: program, at }) = hook.first() else { continue };
        program_outside(program, &at.value, setting);
    }
    for (_, tool) in setting.raw.tools.values() {
        let words: Vec<String> = tool.command.iter().map(|word| word.value.clone()).collect();
        let place = tool.command.first().map(|word| &word.at.value);
        for (program, place) in code_files(&words).zip(place.into_iter().cycle()) {
            program_outside(program, place, setting);
        }
    }
    for (_, task) in setting.raw.tasks.values() {
        let notify = task.approval.as_ref().and_then(|approval| approval.notify.command.first());
        if let Some(Item { value: program, at }) = notify {
            program_outside(program, &at.value, setting);
        }
        let Some((command, place)) = task.run.placed() else { continue };
        for program in bash::programs(command) {
            program_outside(&program, place, setting);
        }
    }
}

fn program_outside(program: &str, place: &Place, setting: Setting<'_>) {
    if !program.contains('/') {
        return;
    }
    let Some(path) = leads_outside(setting.root, program) else { return };
    if !SYSTEM.iter().any(|folder| path.starts_with(folder)) {
        setting.problems.concern(place, format!("the program `{}` is run", path.display()));
    }
}

/// Returns the place to which a path leads if that is outside `root`, which is canonical: the path
/// itself, or, if it leads out by a link, what the link names.
pub(super) fn leads_outside(root: &Path, path: &str) -> Option<PathBuf> {
    // `LINK/..` is the folder above the one to which the link leads, whatever the text says.
    if let Some(real) = real_place(&root.join(path)).filter(|real| !real.starts_with(root)) {
        return Some(real);
    }
    let path = clean(&root.join(path));
    if !path.starts_with(root) {
        return Some(path);
    }
    // What does not exist yet is judged by the folder in which it would be made.
    let real = path.ancestors().find_map(|path| path.canonicalize().ok())?;
    (!real.starts_with(root)).then_some(real)
}

/// Returns where a path leads, each of its parts resolved before the next: `..` counts from where a link before
/// it led. What does not exist is taken by its name. `None` if links go round in a circle.
fn real_place(path: &Path) -> Option<PathBuf> {
    let mut real = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(real.pop()),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                real.push(part);
                match real.canonicalize() {
                    Ok(found) => real = found,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(_) if real.is_symlink() => return None,
                    Err(_) => {}
                }
            }
        }
    }
    Some(real)
}

/// Returns a path without `.` and `..`, decided from the text alone.
pub(super) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_its_own_service_and_to_this_machine() {
        let (anthropic, openai) = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY");
        for (variable, address, fits) in [
            (anthropic, "https://api.anthropic.com", true),
            (anthropic, "https://api.anthropic.com/", true),
            (anthropic, "http://api.anthropic.com", false),
            (anthropic, "https://api.anthropic.com:444", false),
            (anthropic, "https://api.anthropic.com.evil.example", false),
            (anthropic, "https://api.anthropic.com@evil.example", false),
            (anthropic, "https://api.anthropic.comx/", false),
            (anthropic, "https://evil.example/api.anthropic.com", false),
            (anthropic, "https://api.openai.com/v1", false),
            (openai, "https://api.openai.com/v1", true),
            (openai, "https://api.anthropic.com", false),
            ("TEAM_ANTHROPIC_KEY", "https://api.anthropic.com", true),
            ("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", true),
            ("GITHUB_TOKEN", "https://api.anthropic.com", false),
            (anthropic, "http://127.0.0.1:4000", true),
            (anthropic, "http://localhost:4000/v1", true),
            (anthropic, "http://[::1]:4000", true),
            (anthropic, "http://127.1:80", true),
            (anthropic, "http://127.0.0.1@evil.example", false),
            (anthropic, "http://127.0.0.1.evil.example", false),
            (anthropic, "http://localhost.evil.example", false),
            (anthropic, "http://evil.localhost", false),
            (anthropic, "http://0.0.0.0:80", false),
            (anthropic, "http://10.0.0.1", false),
            (anthropic, "nonsense", false),
            (anthropic, "https://api.anthropic.com\\@evil.example", false),
        ] {
            assert_eq!(belongs(Key::Variable(variable), address), fits, "{variable} {address}");
        }
        assert!(belongs(Key::File("k"), "https://api.openai.com/v1"));
        assert!(!belongs(Key::File("k"), "https://evil.example"));
    }

    #[test]
    fn credentials_are_known_by_name_or_value() {
        for name in [
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWORD",
            "MYSQL_PWD",
            "NPM_AUTH",
            "github_token",
            "SSH_AUTH_SOCK",
            "SENTRY_DSN",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ] {
            assert!(is_credential(name, None), "{name}");
        }
        for name in ["CI", "RUST_LOG", "NODE_ENV", "PWD", "KEYBOARD", "MONKEY_BARS", "TOKENIZER"] {
            assert!(!is_credential(name, Some("plain")), "{name}");
        }
        for value in ["postgres://me:pw@db/x", "ghp_abc", " sk-ant-x", "-----BEGIN RSA"] {
            assert!(is_credential("DATABASE_URL", Some(value)), "{value}");
        }
        assert!(!is_credential("BASE_URL", Some("https://example.com/@me")));
        assert!(is_secret("TEAM_TOKEN", "hush-12345") && is_secret("PGPASSWORD", "Hush-hush"));
        for (name, value) in [
            ("SSH_AUTH_SOCK", "/run/user/1000/agent.7"),
            ("SORT_KEY", "created_at"),
            ("HOME", "A1b2c3d4"),
        ] {
            assert!(!is_secret(name, value), "{name}");
        }
    }

    #[test]
    fn paths_that_leave_are_found_by_text_and_by_link() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a path").join("project");
        std::fs::create_dir_all(root.join("sub")).expect("made");
        std::os::unix::fs::symlink("/etc", root.join("link")).expect("linked");
        std::os::unix::fs::symlink("sub", root.join("inner")).expect("linked");
        let outside = |path: &str| leads_outside(&root, path).map(|p| p.display().to_string());
        for inside in ["sub", "./sub/../sub", "none/yet", "inner/x", ".", "sub/../../project/x"] {
            assert_eq!(outside(inside), None, "{inside}");
        }
        assert_eq!(outside("/etc/passwd").as_deref(), Some("/etc/passwd"));
        assert_eq!(outside("link/passwd").as_deref(), Some("/etc/passwd"));
        assert_eq!(outside("sub/../../other"), Some(format!("{}/other", dir_of(&root))));
        assert!(outside("link/none/yet").is_some());
        // The folder above the one to which the link leads, not the project.
        assert_eq!(outside("link/..").as_deref(), Some("/"));
        assert_eq!(outside("link/../etc").as_deref(), Some("/etc"));
        assert_eq!(outside("inner/.."), None);
        assert_eq!(outside("inner/../../other"), Some(format!("{}/other", dir_of(&root))));
    }

    fn dir_of(root: &Path) -> String {
        root.parent().expect("a parent").display().to_string()
    }

    #[test]
    fn writable_roots_in_the_workspace_matter_where_others_run_what_is_there() {
        let root = Path::new("/w");
        for path in [".git", ".git/hooks", ".git/hooks/pre-commit", ".github", ".vscode/x.json"] {
            assert!(lifts_protection(path, root), "{path}");
        }
        for path in ["build", "src", ".", "agents.toml", ".gitignore"] {
            assert!(!lifts_protection(path, root), "{path}");
        }
    }
}
