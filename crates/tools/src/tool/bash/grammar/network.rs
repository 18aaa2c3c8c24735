//! Finds the commands of a line that are known to need the network.
//!
//! For a warning before a run: whoever gets one too many stops to read them, so whatever is not certain needs none.
//! It knows nothing of the sandbox and looks at nothing but the text.

mod programs;

use self::programs::{CONFIGURING, DAEMON, FETCHERS, LOCAL_SOCKETS, Operands, ROWS, Row, SHOWS};
use super::Reader;
use super::call::is_called;
use super::options::holds;
use super::words::Word;

/// A command that needs the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkNeed {
    /// The words that say so: `npm ci`, `curl`.
    pub command: String,
    /// What it reaches, in words for a person.
    pub reaches: &'static str,
    /// The host with its port that it asks as a rule, or that it names; `None` if neither is known.
    pub host: Option<String>,
    /// The option by which it does without; empty if there is none.
    pub offline: &'static str,
    /// True if another program does it, to whose socket the command must come.
    pub by_daemon: bool,
}

/// Parts of the names of variables, in lower case, by which programs find another server or do without one.
const REDIRECTING: [&str; 12] = [
    "offline",
    "proxy",
    "registry",
    "no_index",
    "index_url",
    "find_links",
    "goflags",
    "docker_host",
    "mirror",
    "disable_network",
    "replace_with",
    "git_config",
];

/// Returns true if a variable of this name may send programs to another server, or to none.
#[must_use]
pub fn redirects(variable: &str) -> bool {
    let name = variable.to_lowercase();
    REDIRECTING.iter().any(|part| name.contains(part))
}

/// Returns the commands of a line that need the network, each once, in their order.
#[must_use]
pub fn network_needs(line: &str) -> Vec<NetworkNeed> {
    let mut reader = Reader { calls: Some(Vec::new()), ..Reader::default() };
    reader.text(line, 0);
    needs_of(reader)
}

/// Does the same for a program with its arguments, which no shell reads. What stands in `{{ }}` is not known.
#[must_use]
pub fn network_needs_of(argv: &[String]) -> Vec<NetworkNeed> {
    let mut reader = Reader { calls: Some(Vec::new()), ..Reader::default() };
    let word = |word: &String| match word.contains("{{") {
        true => Word::unknown(word),
        false => Word::literal(word),
    };
    let words: Vec<Word> = argv.iter().map(word).collect();
    reader.command(&words, 0);
    needs_of(reader)
}

fn needs_of(reader: Reader) -> Vec<NetworkNeed> {
    let calls = reader.calls.unwrap_or_default();
    let calls: Vec<Call> = calls.iter().map(|words| Call::new(words)).collect();
    if calls.iter().any(Call::redirects) {
        return Vec::new();
    }
    let mut needs: Vec<NetworkNeed> = Vec::new();
    for call in &calls {
        let is_configured = calls.iter().any(|other| other.configures(call.name));
        let need = call.need().filter(|_| !is_configured);
        needs.extend(need.filter(|need| !needs.contains(need)));
    }
    needs
}

/// A simple command, without the variables before it.
struct Call<'w> {
    /// The variables that are set for it.
    variables: &'w [Word],
    /// The name of the program; empty if it is not that of an installed one.
    name: &'w str,
    arguments: &'w [Word],
}

impl<'w> Call<'w> {
    fn new(words: &'w [Word]) -> Self {
        let (variables, words) =
            words.split_at(words.iter().take_while(|word| assigns(word)).count());
        let [first, arguments @ ..] = words else {
            return Self { variables, name: "", arguments: &[] };
        };
        let name = match first.text.rsplit_once('/') {
            None => first.text.as_str(),
            // The wrapper of a build tool stands in the workspace, and so may scripts with the name of any program.
            Some((folder, name)) if folder.starts_with('/') || name.ends_with('w') => name,
            Some(_) => "",
        };
        let module = match arguments {
            [option, module, rest @ ..] if option.text == "-m" && is_called(name, "python") => {
                Some((module, rest))
            }
            _ => None,
        };
        match module {
            Some((module, arguments)) => Self { variables, name: &module.text, arguments },
            None => Self { variables, name, arguments },
        }
    }

    /// Returns true if it sets a variable that sends programs elsewhere.
    fn redirects(&self) -> bool {
        let sets = holds("export declare typeset readonly env set setenv", self.name);
        let others = self.arguments.iter().filter(|_| sets);
        let names = self.variables.iter().chain(others);
        names.filter_map(|word| word.text.split('=').next()).any(redirects)
    }

    /// Returns true if it may change where a program of this name goes.
    fn configures(&self, name: &str) -> bool {
        let is_row =
            |(names, _): &&(&str, &str)| is_called(name, names) && is_called(self.name, names);
        let row = CONFIGURING.iter().find(is_row);
        row.is_some_and(|(_, words)| self.subcommand(words, "-C -c").is_some())
    }

    fn need(&self) -> Option<NetworkNeed> {
        let says = |word: &Word| has_option(word, SHOWS) || is_loopback(&word.text);
        if self.name.is_empty() || self.arguments.iter().any(says) {
            return None;
        }
        if let Some((_, values)) = FETCHERS.iter().find(|(names, _)| is_called(self.name, names)) {
            return self.fetched(values);
        }
        ROWS.iter().filter(|row| is_called(self.name, row.names)).find_map(|row| self.of_row(row))
    }

    /// Returns the need of a program that fetches the URLs which it is given.
    fn fetched(&self, values: &str) -> Option<NetworkNeed> {
        if self.arguments.iter().any(|word| has_option(word, LOCAL_SOCKETS)) {
            return None;
        }
        let mut before = "";
        for word in self.arguments {
            if !holds(values, before)
                && let Some(host) = remote_host(&word.text)
            {
                return Some(NetworkNeed {
                    command: self.name.to_owned(),
                    reaches: "another machine",
                    host: Some(host),
                    offline: "",
                    by_daemon: false,
                });
            }
            before = &word.text;
        }
        None
    }

    fn of_row(&self, row: &Row) -> Option<NetworkNeed> {
        let (subcommand, operands) = self.subcommand(row.subcommands, row.values)?;
        if self.arguments.iter().any(|word| has_option(word, row.offline))
            || !fit(row.operands, operands)
        {
            return None;
        }
        let named = operands.iter().find_map(|word| remote_host(&word.text));
        let usual = Some(row.host.to_owned()).filter(|host| !host.is_empty());
        Some(NetworkNeed {
            command: format!("{} {subcommand}", self.name).trim_end().to_owned(),
            reaches: row.reaches,
            host: named.or(usual),
            offline: row.offline.split(' ').next().unwrap_or_default(),
            by_daemon: row.reaches == DAEMON,
        })
    }

    /// Returns the subcommand, if it is one of these, and the words after it. `values` are options with a value that may
    /// stand before it.
    fn subcommand(&self, subcommands: &str, values: &str) -> Option<(String, &'w [Word])> {
        let mut rest = self.arguments;
        let mut first: Option<&str> = None;
        loop {
            let [word, after @ ..] = rest else {
                return (first.is_none() && holds(subcommands, "-")).then(|| (String::new(), rest));
            };
            // What it stands for may be the subcommand, or an option with a value.
            if !word.literal {
                return None;
            }
            rest = after;
            let text = word.text.as_str();
            if holds(values, text) {
                rest = rest.get(1..).unwrap_or_default();
            } else if !text.starts_with(['-', '+']) {
                match first {
                    None if holds(subcommands, text) => return Some((text.to_owned(), rest)),
                    None => first = Some(text),
                    Some(first) => {
                        let both = format!("{first}:{text}");
                        return holds(subcommands, &both)
                            .then(|| (format!("{first} {text}"), rest));
                    }
                }
            }
        }
    }
}

/// Returns true if the words after a subcommand leave no doubt.
fn fit(wanted: Operands, words: &[Word]) -> bool {
    let mut operands = words.iter().filter(|word| !word.text.starts_with('-'));
    match wanted {
        Operands::Any => true,
        Operands::NotLocal => {
            !operands.any(|word| word.loose || word.splits || is_local(&word.text))
        }
        Operands::FirstNotLocal => {
            let first = words.iter().find(|word| !word.text.starts_with('-'));
            first.is_none_or(|word| word.literal) && !operands.any(|word| is_local(&word.text))
        }
        // An option with a value may stand before it: `git clone --depth 1 URL`.
        Operands::FirstRemote => {
            let is_remote = |word: &Word| remote_host(&word.text).is_some() || is_ssh(&word.text);
            operands.any(is_remote) && !words.iter().any(|word| is_local(&word.text))
        }
        Operands::Versioned => operands.any(|word| word.text.contains('@')),
    }
}

/// Returns true if a word sets a variable: `NAME=value`.
fn assigns(word: &Word) -> bool {
    let plain = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    word.text.split_once('=').is_some_and(|(name, _)| plain(name))
}

/// Returns true if a word is one of the options, also with a value.
fn has_option(word: &Word, options: &str) -> bool {
    let name = word.text.split('=').next().unwrap_or_default();
    word.text.starts_with('-') && (holds(options, &word.text) || holds(options, name))
}

/// Returns true for the path of a file or a folder, and for what names one.
fn is_local(text: &str) -> bool {
    text.starts_with(['.', '/', '~'])
        || ["file:", "link:", "portal:", "workspace:"].iter().any(|form| text.starts_with(form))
}

/// Returns true for an address like `git@example.com:team/x.git`.
fn is_ssh(text: &str) -> bool {
    let host = text.split_once('@').and_then(|(_, rest)| rest.split_once(':'));
    host.is_some_and(|(host, _)| is_host(host) && !is_own(host))
}

/// Returns the host and port of a URL of another machine.
fn remote_host(text: &str) -> Option<String> {
    let text = text.strip_prefix("git+").unwrap_or(text);
    let (scheme, rest) = text.split_once("://")?;
    let port = match scheme.to_lowercase().as_str() {
        "https" => 443,
        "http" => 80,
        "ftp" => 21,
        "ssh" => 22,
        "git" => 9418,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, written) = parted(authority.rsplit('@').next().unwrap_or_default());
    let port = written.map_or(Some(port), |port| port.parse().ok())?;
    (is_host(host) && !is_own(host)).then(|| format!("{host}:{port}"))
}

/// Parts the port from a host, which may be an address in brackets.
fn parted(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Returns true if a text can be the name or the address of a host, and holds nothing that is expanded.
fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    host.contains(['.', ':']) && host.chars().all(plain)
}

/// Returns true for the names and addresses by which this machine reaches itself.
fn is_own(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_lowercase();
    let is_name = host == "localhost" || host.ends_with(".localhost");
    is_name || host.starts_with("127.") || host == "0.0.0.0" || host == "::1" || host == "::"
}

/// Returns true if a word holds a URL of this machine, such as that of a mirror or a proxy.
fn is_loopback(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        is_own(parted(authority.rsplit('@').next().unwrap_or_default()).0)
    })
}

#[cfg(test)]
mod tests;
