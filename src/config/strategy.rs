//! `[compaction]`: what is left to providers, and how.

use super::diagnostic::Problems;
use super::raw::{Entry, Raw, Table};
use crate::context::server::{AfterSummary, ClearInputs, ClearToolUses, Compact, KeepThinking};
use crate::context::strategy::{MOST_INSTRUCTIONS_CHARS, StrategySettings, Wanted};

/// The names that `strategy` may have.
pub(super) const STRATEGIES: [&str; 5] = {
    let [auto, client, editing, threshold, on_demand] = Wanted::ALL;
    [auto.name(), client.name(), editing.name(), threshold.name(), on_demand.name()]
};

/// Reads `strategy`, `context_editing` and `server` of `[compaction]`.
pub(super) fn strategy(compaction: &Table, problems: &mut Problems) -> StrategySettings {
    let usual = StrategySettings::default();
    let wanted = compaction.text("strategy");
    let wanted = wanted.and_then(|name| Wanted::ALL.into_iter().find(|one| one.name() == name));
    let editing = compaction.section("context_editing");
    let exclude = editing.texts("exclude_tools").into_iter();
    StrategySettings {
        wanted: wanted.unwrap_or(usual.wanted),
        clear: ClearToolUses {
            trigger_tokens: editing.whole("trigger").unwrap_or(usual.clear.trigger_tokens),
            keep: editing.whole("keep").unwrap_or(usual.clear.keep),
            clear_at_least: match editing.whole("clear_at_least") {
                Some(0) => None,
                given => given.or(usual.clear.clear_at_least),
            },
            exclude_tools: exclude.map(|(tool, _)| tool.to_owned()).collect(),
            inputs: editing
                .get("clear_tool_inputs")
                .map_or(ClearInputs::Keep, |at| inputs(at, editing, problems)),
        },
        thinking: editing.get("keep_thinking").and_then(|at| thinking(at, problems)),
        compact: compact(compaction.section("server"), usual.compact, problems),
    }
}

fn compact(server: &Table, usual: Compact, problems: &mut Problems) -> Compact {
    if let Some(at) = server.get("instructions")
        && at.node.text().is_some_and(|text| text.chars().count() > MOST_INSTRUCTIONS_CHARS)
    {
        let message =
            format!("`instructions` may have {MOST_INSTRUCTIONS_CHARS} characters at most");
        problems.error("bad_value", &at.node.place, message);
    }
    Compact {
        trigger_tokens: server.whole("trigger").unwrap_or(usual.trigger_tokens),
        after: match server.truth("pause") {
            Some(true) => AfterSummary::Pause,
            Some(false) => AfterSummary::GoOn,
            None => usual.after,
        },
        instructions: server.text("instructions").map(str::to_owned),
    }
}

/// `true`, `false` or the tools whose arguments go.
fn inputs(at: &Entry, editing: &Table, problems: &mut Problems) -> ClearInputs {
    match &at.node.raw {
        Raw::Truth(true) => ClearInputs::All,
        Raw::Truth(false) => ClearInputs::Keep,
        Raw::List(items) if items.iter().all(|item| item.text().is_some()) => {
            let tools = editing.texts("clear_tool_inputs").into_iter();
            ClearInputs::Of(tools.map(|(tool, _)| tool.to_owned()).collect())
        }
        _ => {
            let message = "`clear_tool_inputs` must be true, false or an array of tools";
            problems.error("wrong_type", &at.node.place, message);
            ClearInputs::Keep
        }
    }
}

/// A number of turns, or `"all"`.
fn thinking(at: &Entry, problems: &mut Problems) -> Option<KeepThinking> {
    let turns = at.node.integer().and_then(|turns| u64::try_from(turns).ok());
    match (at.node.text(), turns) {
        (Some("all"), _) => Some(KeepThinking::All),
        (_, Some(turns @ 1..)) => Some(KeepThinking::Turns(turns)),
        _ => {
            let message = "`keep_thinking` must be a number of turns from 1, or `\"all\"`";
            problems.error("bad_value", &at.node.place, message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load_text};

    fn load(compaction: &str) -> Result<StrategySettings, Vec<String>> {
        let directory = tempfile::tempdir().expect("a directory");
        let text = format!(
            "version = 1\n[agents.a]\ninstructions = 'I'\nmodel = 'mine'\n\
             [tasks.t]\nagent = 'a'\nprompt = 'P'\n[compaction]\n{compaction}"
        );
        let mut sources = Sources::new(directory.path().join("agents.toml"));
        sources.custom_models = vec![crate::id::Name::new("mine").expect("a name")];
        let loaded = load_text(&text, &sources).map(|config| config.compaction.strategy);
        loaded.map_err(|found| {
            let found = found.0.into_iter();
            found.map(|d| format!("{}:{} {}", d.line, d.column, d.message)).collect()
        })
    }

    #[test]
    fn without_a_word_the_defaults_hold() {
        assert_eq!(load(""), Ok(StrategySettings::default()));
    }

    #[test]
    fn every_key_arrives() {
        let text = "strategy = 'context_editing'\n[compaction.context_editing]\ntrigger = 30_000\n\
                    keep = 5\nclear_at_least = 0\nexclude_tools = ['web']\nclear_tool_inputs = \
                    ['bash']\nkeep_thinking = 'all'\n[compaction.server]\ntrigger = 60_000\npause = \
                    false\ninstructions = 'Names.'\n";
        let expected = StrategySettings {
            wanted: Wanted::ContextEditing,
            clear: ClearToolUses {
                trigger_tokens: 30_000,
                keep: 5,
                clear_at_least: None,
                exclude_tools: vec!["web".to_owned()],
                inputs: ClearInputs::Of(vec!["bash".to_owned()]),
            },
            thinking: Some(KeepThinking::All),
            compact: Compact {
                trigger_tokens: 60_000,
                after: AfterSummary::GoOn,
                instructions: Some("Names.".to_owned()),
            },
        };
        assert_eq!(load(text), Ok(expected));
        let inputs = |written: &str| {
            let text = format!("[compaction.context_editing]\nclear_tool_inputs = {written}\n");
            load(&text).expect("no mistake").clear.inputs
        };
        assert_eq!((inputs("true"), inputs("false")), (ClearInputs::All, ClearInputs::Keep));
        let turns = load("[compaction.context_editing]\nkeep_thinking = 2\n").expect("no mistake");
        assert_eq!(turns.thinking, Some(KeepThinking::Turns(2)));
    }

    #[test]
    fn mistakes_are_told() {
        let cases = [
            ("strategy = 'server'\n", "9:12 `server` is not a value of `compaction.strategy`"),
            (
                "[compaction.server]\ntrigger = 49_999\n",
                "10:11 `compaction.server.trigger` must be from 50000 to 1099511627776",
            ),
            (
                "[compaction.context_editing]\nclear_tool_inputs = [1]\n",
                "10:21 `clear_tool_inputs` must be true, false or an array of tools",
            ),
            (
                "[compaction.context_editing]\nkeep_thinking = 0\n",
                "10:17 `keep_thinking` must be a number of turns from 1, or `\"all\"`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(load(text), Err(vec![expected.to_owned()]), "{text}");
        }
        let long = format!("[compaction.server]\ninstructions = '{}'\n", "x".repeat(16_385));
        assert_eq!(load(&long).expect_err("too long").len(), 1);
    }
}
