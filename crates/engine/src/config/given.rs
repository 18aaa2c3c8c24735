//! The keys that flags set for one run: `--set KEY=VALUE` and `--model NAME`.
//!
//! Owns the paths of these keys, and the checks that a file does not need: a file makes a new entry by naming it, but
//! in a flag a name that nothing else has is a typing mistake. Their values are judged as if the file held them, so
//! that a flag copied from somewhere loosens nothing without trust. It merges nothing: `layers` does.

use std::collections::BTreeMap;

use figment::value::{Dict, Value};

use super::diagnostic::{Giver, NO_HELP, Origin, Place, Problems};
use super::{Sources, names};

/// The tables of entries with names, with the codes of names that they lack.
const NAMED: [(&str, &str); 6] = [
    ("agents", "unknown_agent"),
    ("inputs", "unknown_input"),
    ("models", "unknown_model"),
    ("providers", "unknown_provider"),
    ("tasks", "unknown_task"),
    ("tools", "unknown_tool"),
];

/// The model of agents that name none, unless `defaults.model` names another one.
const DEFAULT: &str = "default";

/// A key that a flag sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// The keys that lead to it.
    pub(super) path: Vec<String>,
    /// Its value as it was typed.
    pub(super) text: String,
    /// The flag.
    pub(super) flag: &'static str,
}

impl Given {
    /// Returns the place of the value on the command line; `key` is the path as it was typed.
    pub(super) fn place(&self, key: &str) -> Place {
        let origin = Origin::new(self.flag, Giver::Project);
        Place::outside("command line", &format!("{key}="), &self.text, origin)
    }
}

/// Returns the keys that the flags of a run set, by their paths as they are typed. `below` holds the layers that the
/// flags change, the highest first.
pub(super) fn given(
    sources: &Sources,
    below: &[&Dict],
    problems: &Problems,
) -> BTreeMap<String, Given> {
    let mut all = BTreeMap::new();
    for (key, text) in &sources.set {
        let given =
            Given { path: path(key).unwrap_or_default(), text: text.clone(), flag: "--set" };
        if is_possible(&given, key, sources, below, problems) {
            all.insert(key.clone(), given);
        }
    }
    if let Some(name) = &sources.model {
        for (key, given) in of_model(name, &all, below, problems) {
            all.entry(key).or_insert(given);
        }
    }
    all
}

/// Returns the keys of a path with dots between them, as TOML writes it; `None` if it is none.
pub(super) fn path(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '\r']) {
        return None;
    }
    let mut value = toml::Value::Table(toml::from_str(&format!("{key} = 0")).ok()?);
    let mut path = Vec::new();
    while let toml::Value::Table(table) = value {
        let (key, inner) = table.into_iter().next()?;
        path.push(key);
        value = inner;
    }
    Some(path)
}

/// Reads a text as a TOML value; a text that is none becomes a string.
pub fn as_toml(text: &str) -> toml::Value {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}"));
    // A text that parses to more than one key only looks like TOML: it is a string. No key is a date.
    let value = parsed.ok().filter(|table| table.len() == 1).and_then(|mut t| t.remove("value"));
    value.filter(|value| !value.is_datetime()).unwrap_or_else(|| text.into())
}

/// Reports what no flag can set.
fn is_possible(
    given: &Given,
    key: &str,
    sources: &Sources,
    below: &[&Dict],
    problems: &Problems,
) -> bool {
    let place = given.place(key).name_only();
    match given.path.as_slice() {
        [] => {
            let message = format!("`{key}` is not the path of a key");
            let help = "write its keys with dots between them, like `limits.max_concurrency`";
            problems.error("unknown_key", &place, message, help);
            false
        }
        [state, dir] if state == "state" && dir == "dir" => {
            let help = "`--state-dir DIR` names the folder, for every verb";
            problems.error("bad_value", &place, "`state.dir` is no setting of one run", help);
            false
        }
        [profiles, ..] if profiles == "profiles" => {
            let help = "set the keys themselves: they win over a profile";
            problems.error("bad_value", &place, "a flag changes no profile", help);
            false
        }
        [table, name, _, ..] => {
            let Some((_, code)) = NAMED.iter().find(|(named, _)| named == table) else {
                return true;
            };
            let of_layers = below.iter().filter_map(|layer| layer.get(table)?.as_dict());
            let known = of_layers.flat_map(Dict::keys).map(String::as_str);
            let known = known.chain(sources.custom_models.iter().map(|name| name.as_str()));
            // A flag can hold a whole entry, which others then change.
            let is_new = || {
                let is_entry = |(key, _): &(String, String)| {
                    path(key).is_some_and(|path| path == [table.as_str(), name.as_str()])
                };
                sources.set.iter().any(is_entry)
            };
            if known.clone().any(|known| known == name) || is_new() {
                return true;
            }
            names::report_unknown(code, name, &place, known, problems);
            false
        }
        [_] | [_, _] => true,
    }
}

/// Returns the keys that `--model NAME` stands for. A model of the file takes the place of the default one; any
/// other name is what the provider of the default model calls a model.
fn of_model(
    name: &str,
    set: &BTreeMap<String, Given>,
    below: &[&Dict],
    problems: &Problems,
) -> Vec<(String, Given)> {
    let given = |path: &[&str]| {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        // A name of TOML needs no quotes, and a name in quotes is a string whatever it looks like.
        (path.join("."), Given { path, text: name.to_owned(), flag: "--model" })
    };
    let models: Vec<&str> = entries(below, "models").map(|(name, _)| name).collect();
    let default = set.get("defaults.model").map(|given| given.text.as_str());
    let default = default.or_else(|| text_at(below, &["defaults", "model"]));
    let usual = if let [only] = models.as_slice() { only } else { DEFAULT };
    let default = default.unwrap_or(usual);
    if models.contains(&name) {
        let of_default = |(_, agent): &(&str, &Value)| {
            agent.find_ref("model").and_then(Value::as_str) == Some(default)
        };
        let agents = entries(below, "agents").filter(of_default);
        let agents = agents.map(|(agent, _)| given(&["agents", agent, "model"]));
        return std::iter::once(given(&["defaults", "model"])).chain(agents).collect();
    }
    if let Some(near) = names::nearest(name, models) {
        let (key, given) = given(&["models", default, "model"]);
        let message =
            format!("there is no model `{name}` in the file: the provider gets this name");
        let help = format!("did you mean `{near}`?");
        problems.warning("unknown_model", &given.place(&key), message, help);
    }
    if name.trim().is_empty() {
        let (key, given) = given(&["models", default, "model"]);
        problems.error("bad_value", &given.place(&key).name_only(), "the name is empty", NO_HELP);
    }
    vec![given(&["models", default, "model"])]
}

/// Returns the entries of a table in all layers, each from the highest that has it.
fn entries<'a>(below: &[&'a Dict], table: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let mut all: BTreeMap<&str, &Value> = BTreeMap::new();
    for layer in below {
        let found = layer.get(table).and_then(Value::as_dict);
        for (name, entry) in found.into_iter().flatten() {
            all.entry(name).or_insert(entry);
        }
    }
    all.into_iter()
}

/// Returns the text of the highest layer that has one at a path.
fn text_at<'a>(below: &[&'a Dict], path: &[&str]) -> Option<&'a str> {
    let [table, rest @ ..] = path else { return None };
    let of = |layer: &&'a Dict| layer.get(*table)?.find_ref(&rest.join("."))?.as_str();
    below.iter().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{BASE, Workspace};

    /// The sources with these keys of `--set`, and this model of `--model`.
    fn sources(workspace: &Workspace, set: &[(&str, &str)], model: Option<&str>) -> Sources {
        let set = set.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        Sources { set: set.collect(), model: model.map(str::to_owned), ..workspace.sources() }
    }

    #[test]
    fn paths_are_written_as_in_toml() {
        let path = |key: &str| path(key).map(|path| path.join("|"));
        for (key, wanted) in [
            ("limits.max_concurrency", Some("limits|max_concurrency")),
            ("agents.fix-it.model", Some("agents|fix-it|model")),
            ("providers.p.headers.\"X.Y\"", Some("providers|p|headers|X.Y")),
            (" name ", Some("name")),
            ("", None),
            ("a..b", None),
            (".a", None),
            ("a.", None),
            ("a b", None),
            ("a#", None),
            ("[a]\nb", None),
            ("a = 1\nb", None),
            ("{a", None),
        ] {
            assert_eq!(path(key).as_deref(), wanted, "{key:?}");
        }
    }

    #[test]
    fn values_have_the_type_of_their_key() {
        let workspace = Workspace::new();
        let text = format!("{BASE}[profiles.ci.limits]\nmax_depth = 2\n");
        let set = [
            ("limits.max_concurrency", "2"),
            ("limits.max_depth", "4"),
            ("limits.timeout", "90s"),
            ("limits.fail_fast", "false"),
            ("tasks.t.prompt", "5"),
            ("agents.a.instructions", "2020-01-01"),
            ("agents.a.tools", "[\"glob\", \"grep\"]"),
            ("tasks.extra", "{ run = \"true\" }"),
            ("tasks.extra.timeout", "1m"),
            ("name", "\"in quotes\""),
        ];
        let mut given = sources(&workspace, &set, None);
        given.profile = Some("ci".to_owned());
        let config = workspace.good(&text, &given);
        assert_eq!((config.limits.max_concurrency, config.limits.max_depth), (2, 4));
        assert_eq!(config.limits.timeout.map(|time| time.as_secs()), Some(90));
        assert!(!config.limits.fail_fast);
        assert_eq!(config.name, "in quotes");
        let agent = &config.agents["a"];
        let tools: Vec<&str> = agent.tools.iter().map(|tool| tool.as_str()).collect();
        assert_eq!((agent.instructions.as_str(), tools), ("2020-01-01", vec!["glob", "grep"]));
        let prompt = format!("{:?}", config.tasks[0].work);
        assert!(prompt.contains("prompt: \"5\""), "{prompt}");
        assert_eq!(config.tasks[1].timeout.map(|time| time.as_secs()), Some(60));
        assert_eq!(config.set.len(), set.len());
        // What a run recorded means the same.
        let recorded_overrides = config.set.into_iter().collect();
        let again =
            workspace.good(&text, &Sources { recorded_overrides, set: Vec::new(), ..given });
        assert_eq!(format!("{:?}", again.tasks), format!("{:?}", config.tasks));
        assert_eq!(again.agents, config.agents);
    }

    #[test]
    fn mistakes_have_a_place_and_the_nearest_name() {
        let workspace = Workspace::new();
        for (key, text, wanted) in [
            (
                "limits.max_concurency",
                "2",
                "command line:1:1 unknown_key unknown key `max_concurency` in [limits] (from --set) | did you mean `max_concurrency`?",
            ),
            (
                "limits.max_concurrency",
                "many",
                "command line:1:24 wrong_type `limits.max_concurrency` must be an integer, not a string (from --set) | write it like `max_concurrency = 10`",
            ),
            (
                "limits.timeout",
                "5 minutes",
                "command line:1:16 bad_duration `5 minutes` is not a duration (from --set) | did you mean \"5m\"?",
            ),
            (
                "limits.fail_fast",
                "yes",
                "command line:1:18 wrong_type `limits.fail_fast` must be true or false, not a string (from --set) | write it like `fail_fast = true`",
            ),
            (
                "agents.b.max_turns",
                "2",
                "command line:1:1 unknown_agent there is no agent `b` (from --set) | did you mean `a`?",
            ),
            (
                "tasks.u.prompt",
                "x",
                "command line:1:1 unknown_task there is no task `u` (from --set) | did you mean `t`?",
            ),
            (
                "agents.a.model",
                "n",
                "command line:1:16 unknown_model there is no model `n` (from --set) | did you mean `m`?",
            ),
            (
                "limits..x",
                "2",
                "command line:1:1 unknown_key `limits..x` is not the path of a key (from --set) | write its keys with dots between them, like `limits.max_concurrency`",
            ),
            (
                "profiles.ci.name",
                "x",
                "command line:1:1 bad_value a flag changes no profile (from --set) | set the keys themselves: they win over a profile",
            ),
            (
                "state.dir",
                "x",
                "command line:1:1 bad_value `state.dir` is no setting of one run (from --set) | `--state-dir DIR` names the folder, for every verb",
            ),
            (
                "version",
                "2",
                "command line:1:1 bad_value `version` can only be set at the top of the file (from --set)",
            ),
        ] {
            let found = workspace.problems(BASE, &sources(&workspace, &[(key, text)], None));
            assert_eq!(found, [wanted], "{key}={text}");
        }
    }

    #[test]
    fn a_flag_loosens_nothing_that_the_file_could_not() {
        let (workspace, elsewhere) = (Workspace::new(), Workspace::new());
        let program = elsewhere.sources().file.with_file_name("s.toml");
        let command = format!("[\"{}\"]", program.display());
        let runs = format!("the program `{}` is run", program.display());
        for (key, text, wanted) in [
            ("sandbox.network", "true", "commands can use the network"),
            (
                "sandbox.network",
                "[\"registry.example:443\"]",
                "commands can reach `registry.example:443`",
            ),
            ("sandbox.readable_roots", "[\"/etc/ssl\"]", "commands can read `/etc/ssl`"),
            (
                "sandbox.env",
                "[\"GITHUB_TOKEN\"]",
                "commands get the variable `GITHUB_TOKEN`, which looks like a credential",
            ),
            ("hooks.on_exit", &command, &runs),
            ("compaction.hooks.pre_compact", &command, &runs),
        ] {
            let config = workspace.good(BASE, &sources(&workspace, &[(key, text)], None));
            let concerns: Vec<_> =
                config.concerns.iter().map(|found| (found.text.as_str(), found.is_own)).collect();
            assert_eq!(concerns, [(wanted, false)], "{key}={text}");
        }
        let set = [("notify.command", command.as_str()), ("notify.on", "[\"failed\"]")];
        let config = workspace.good(BASE, &sources(&workspace, &set, None));
        assert!(config.concerns.iter().any(|found| !found.is_own), "{:?}", config.concerns);
        for (key, text, code) in [
            ("sandbox.mode", "danger-full-access", "loose_sandbox"),
            ("providers.p.api_key", "sk-ant-api03-abcdefghijklmnopqrstuvwxyz", "literal_key"),
        ] {
            let found = workspace.problems(BASE, &sources(&workspace, &[(key, text)], None));
            assert!(found.iter().any(|line| line.contains(code)), "{found:?}");
            assert!(!found.iter().any(|line| line.contains("abcdefg")), "{found:?}");
        }
    }

    #[test]
    fn a_model_takes_the_place_of_the_default_one() {
        let workspace = Workspace::new();
        let model = |name: &str| format!("[models.{name}]\nprovider = \"p\"\nmodel = \"x\"\n");
        let agent = |name: &str, key: &str| format!("[agents.{name}]\ninstructions = 'I'\n{key}\n");
        let text = format!(
            "version = 1\n[providers.p]\nkind = \"scripted\"\nscript = \"s.toml\"\n{}{}{}{}{}{}\
             [tasks.t]\nagent = 'none'\nprompt = 'P'\n[tasks.u]\nagent = 'default'\nprompt = 'P'\n\
             [tasks.v]\nagent = 'other'\nprompt = 'P'\n",
            model("default"),
            model("fast"),
            model("strong"),
            agent("none", ""),
            agent("default", "model = 'default'"),
            agent("other", "model = 'strong'"),
        );
        let named = |set: &[(&str, &str)], name: &str| {
            let config = workspace.good(&text, &sources(&workspace, set, Some(name)));
            let of = |agent: &str| {
                let name = &config.agents[agent].model;
                format!("{name}:{}", config.models[name].model)
            };
            [of("none"), of("default"), of("other")]
        };
        assert_eq!(named(&[], "fast"), ["fast:x", "fast:x", "strong:x"]);
        assert_eq!(named(&[], "opus-9"), ["default:opus-9", "default:opus-9", "strong:x"]);
        // The more exact flag wins.
        let set = [("agents.none.model", "strong")];
        assert_eq!(named(&set, "fast"), ["strong:x", "fast:x", "strong:x"]);
        let set = [("defaults.model", "fast")];
        assert_eq!(named(&set, "9"), ["fast:9", "default:x", "strong:x"]);
        let warned = workspace.problems(&text, &sources(&workspace, &[], Some("fats")));
        assert!(warned[0].contains("did you mean `fast`?"), "{warned:?}");
        let refused = workspace.problems(&text, &sources(&workspace, &[], Some(" ")));
        assert!(refused[0].contains("the name is empty"), "{refused:?}");
    }
}
