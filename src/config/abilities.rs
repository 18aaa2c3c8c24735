//! `capabilities` of a model: what its provider can do with a context by itself.

use super::diagnostic::{Place, Problems};
use super::names;
use super::raw::{Node, Raw, Table};
use crate::spec::capability::{Capability, Declared};

/// The word that stands for asking the provider.
const PROBE: &str = "probe";

/// Reads the key of a model's table.
pub(super) fn declared(model: &Table, problems: &mut Problems) -> Declared {
    let Some(at) = model.get("capabilities") else { return Declared::default() };
    match &at.node.raw {
        Raw::List(items) => {
            let listed = items.iter().filter_map(|item| one(item, problems));
            Declared::Listed(listed.collect())
        }
        _ if at.node.text() == Some(PROBE) => Declared::Probe,
        _ => {
            let message = "`capabilities` must be an array of names, or `\"probe\"`";
            problems.error_help("wrong_type", &at.node.place, message, Some(known()));
            Declared::default()
        }
    }
}

fn one(item: &Node, problems: &mut Problems) -> Option<Capability> {
    let Some(text) = item.text() else {
        let message = format!("a capability must be a string, not {}", item.kind());
        problems.error("wrong_type", &item.place, message);
        return None;
    };
    let found = Capability::named(text);
    if found.is_none() {
        let near = names::nearest(text, Capability::ALL.map(Capability::name));
        let help = near.map_or_else(known, |name| format!("did you mean `{name}`?"));
        let message = format!("there is no capability `{text}`");
        problems.error_help("bad_value", &item.place, message, Some(help));
    }
    found
}

fn known() -> String {
    format!("use some of {}", names::list(&Capability::ALL.map(Capability::name)))
}

/// Refuses capabilities where the wire, that of `kind`, has no place for them.
pub(super) fn refuse(model: &str, kind: &str, place: &Place, problems: &mut Problems) {
    let message = format!("the provider of model `{model}` is of kind `{kind}`, which has none");
    let help = Some("leave `capabilities` out".to_owned());
    problems.error_help("conflict", place, message, help);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, Diagnostics, Sources, load_text};
    use crate::spec::capability::Capabilities;

    fn load(provider: &str, capabilities: &str) -> Result<Config, Diagnostics> {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("s.toml"), "[[rules]]\nsay = 'x'\n").expect("written");
        let text = format!(
            "version = 1\n[providers.p]\n{provider}\n[models.m]\nprovider = 'p'\nmodel = 'x'\n\
             capabilities = {capabilities}\n[agents.a]\ninstructions = 'I'\nmodel = 'm'\n\
             [tasks.t]\nagent = 'a'\nprompt = 'P'\n"
        );
        load_text(&text, &Sources::new(Path::new(directory.path()).join("agents.toml")))
    }

    const ANTHROPIC: &str = "kind = 'anthropic'\nbase_url = 'http://127.0.0.1:9'";

    fn problems(provider: &str, capabilities: &str) -> Vec<String> {
        let found = load(provider, capabilities).expect_err("a mistake").0;
        let show = |d: crate::config::Diagnostic| {
            format!("{}:{} {} | {}", d.line, d.column, d.message, d.help.unwrap_or_default())
        };
        found.into_iter().map(show).collect()
    }

    #[test]
    fn what_is_listed_arrives() {
        let declared = |written: &str| {
            load(ANTHROPIC, written).expect("no mistake").models["m"].capabilities.clone()
        };
        let listed: Capabilities =
            [Capability::ContextEditing, Capability::CompactOnDemand].into_iter().collect();
        let written = "['compact_on_demand', 'context_editing']";
        assert_eq!(declared(written), Declared::Listed(listed));
        assert_eq!(declared("[]"), Declared::default());
        assert_eq!(declared("'probe'"), Declared::Probe);
    }

    #[test]
    fn other_words_and_other_wires_are_refused() {
        let known = "use some of `context_editing`, `compact_threshold` and `compact_on_demand`";
        assert_eq!(
            problems(ANTHROPIC, "['context-editin', 'magic', 7]"),
            [
                "8:17 there is no capability `context-editin` | did you mean `context_editing`?"
                    .to_owned(),
                format!("8:35 there is no capability `magic` | {known}"),
                "8:44 a capability must be a string, not an integer | ".to_owned(),
            ]
        );
        let shape = "8:16 `capabilities` must be an array of names, or `\"probe\"` | ";
        assert_eq!(problems(ANTHROPIC, "true"), [format!("{shape}{known}")]);
        assert_eq!(problems(ANTHROPIC, "'prob'"), [format!("{shape}{known}")]);
        let openai = "kind = 'openai'\nbase_url = 'http://127.0.0.1:9/v1'";
        for (kind, provider) in
            [("openai", openai), ("scripted", "kind = 'scripted'\nscript = 's.toml'")]
        {
            let refused = format!(
                "8:1 the provider of model `m` is of kind `{kind}`, which has none | leave \
                 `capabilities` out"
            );
            assert_eq!(problems(provider, "'probe'"), [refused]);
        }
    }
}
