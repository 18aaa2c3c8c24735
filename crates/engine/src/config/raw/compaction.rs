//! Declares the keys of `[compaction]`: its own keys, and the constants of the presets.

use std::time::Duration;

use serde_json::Value as Json;

use crate::config::shape::kinds::{
    CHARS, CHARS_OR_NONE, COMMAND, COUNT, MESSAGES, MINUTES, MODEL, PERCENT, PERCENT_OR_NONE,
    RESULTS, SHARE, SOME_MESSAGES, TEXT, TEXTS, TOKENS, TOKENS_OR_NONE, TURNS, words_of,
};
use crate::config::shape::{Kind, List, ListOr, constants, sections, words};
use crate::context::compaction::Hooks;
use crate::context::layers::digest::Economy;
use crate::context::layers::micro::{KeepUnit, MicroTest};
use crate::context::layers::preset::{Preset, Variant};
use crate::context::layers::reactive::{ReactiveInput, ReactiveShed};
use crate::context::layers::snip::SnipCount;
use crate::context::layers::summary::{Form, OnRefill, Quote, SummaryInput};
use crate::context::provider::server::AfterSummary;
use crate::context::provider::strategy::{LEAST_TRIGGER_TOKENS, StrategySettings, Wanted};

/// The section `[compaction]`: its own keys and the constants are in the same table.
pub(in crate::config) type Compaction = (CompactionKeys, Constants);

words! {
    Economy Variant Wanted OnRefill SnipCount KeepUnit MicroTest Form SummaryInput Quote ReactiveInput ReactiveShed
}

/// A number of turns, or `"all"`.
const THINKING: Kind =
    Kind::Either(&[Kind::Whole(1, i64::MAX, "turns"), Kind::Words(|| &["all"], &[])]);

sections! {
    /// The keys of `[compaction]` that are not constants of a preset.
    CompactionKeys {
        /// The layers and their constants: `adaptive`, records of past work, made without a model
        /// when the prices show that it pays; `production`, clearing in batches, notes, and
        /// summaries in nine sections on the warm prefix; `four-layer`, stored results, a cut
        /// middle, cleared results and a summary; `turn-window`, the last turns of the user in the
        /// system prompt; `three-layer`, cleared results and a summary; `off`, the unchanged
        /// conversation. Each constant of a preset can be set by its name beside this key.
        preset: String = "adaptive".to_owned(), Kind::Words(|| &Preset::NAMES, &[]),
            gives "unused_key";
        /// The variant of the preset `four-layer` that clears only when it must, stores the results
        /// that it clears, and quotes summaries as data.
        improved: bool = false, Kind::Truth, gives "unused_key";
        /// The variant of the preset `three-layer`: `annotated`, `short` or `typescript`.
        variant: Variant, words_of::<Variant>(&[]) => "annotated", gives "unused_key";
        /// Names of the layers of the preset that run, in this order.
        layers: List<String>, TEXTS => "from the preset", gives "bad_value";
        /// The model that writes summaries.
        model: String, MODEL => "the agent's own, on its warm prefix";
        /// An older name of `keep_recent`.
        keep_recent_results: u64, RESULTS => "from the preset", gives "conflict", "unused_key";
        /// The method that keeps a conversation within its window: `auto`, the method that the
        /// preset prefers, if the provider supports it; `client`, only callsheet itself;
        /// `context_editing`, the provider clears old tool results; `server_threshold`, the
        /// provider summarises during a reply; `server_on_demand`, the provider summarises when
        /// callsheet asks.
        strategy: Wanted = StrategySettings::default().wanted, words_of::<Wanted>(&[]);
        /// Clearing by the provider, under the strategy `context_editing`.
        context_editing: ContextEditing = ContextEditing::default(), ContextEditing::KIND;
        /// Summaries by the provider, under the strategies `server_threshold` and
        /// `server_on_demand`.
        server: Server = Server::default(), Server::KIND;
        /// The most summaries that are written at the same time.
        max_concurrency: usize = 2, COUNT;
        /// The shortest time limit of a call for a summary; the limit grows with the size of the
        /// request. A longer silence would look like a fault.
        summary_timeout: Duration = Duration::from_secs(60), Kind::Time;
        /// If `true`, a repeated read of an unchanged file is answered by a stub while the
        /// conversation still shows the first result.
        unchanged_stub: bool, Kind::Truth => "from the preset";
        /// The files and skills that an agent gets back after a summary.
        recovery: Recovery, Recovery::KIND => "from the preset", gives "unused_key";
        /// Commands that run before and after a compaction.
        hooks: CompactionHooks = CompactionHooks::default(), CompactionHooks::KIND,
            gives "unused_key";
        /// The rules by which summaries are stopped for a while after failures.
        circuit_breaker: CircuitBreaker = CircuitBreaker::default(), CircuitBreaker::KIND;
    }
    later {
        /// The parts of a conversation that are never summarised.
        pin;
        /// The file with the prompt for summaries.
        prompt_file;
    }

    /// Clearing of old tool results by the provider.
    ContextEditing {
        /// The size of the input above which old tool results are cleared.
        trigger: u64 = StrategySettings::default().clear.trigger_tokens, TOKENS;
        /// The number of the newest tool uses that are kept.
        keep: u64 = StrategySettings::default().clear.keep, RESULTS;
        /// The fewest tokens that a clearing must free, so that it pays for the cache that it
        /// breaks; 0 means any number.
        clear_at_least: u64 = StrategySettings::default().clear.clear_at_least.unwrap_or_default(),
            TOKENS_OR_NONE;
        /// Tools whose results are kept.
        exclude_tools: List<String> = Vec::new(), TEXTS;
        /// The calls whose arguments are cleared together with their results: all (`true`), none
        /// (`false`), or the calls of the tools in a list.
        clear_tool_inputs: ListOr, Kind::Either(&[Kind::Truth, TEXTS]) => "false";
        /// The number of the newest turns whose thinking is kept, or `"all"`.
        keep_thinking: Json, THINKING => "the provider's rule";
    }

    /// Summaries by the provider.
    Server {
        /// The size of the input above which the provider summarises.
        trigger: u64 = StrategySettings::default().compact.trigger_tokens,
            Kind::Whole(LEAST_TRIGGER_TOKENS.cast_signed(), 1 << 40, "tokens");
        /// If `true`, the reply pauses after a summary, so that callsheet can put back the parts
        /// that must stay word for word.
        pause: bool = StrategySettings::default().compact.after == AfterSummary::Pause, Kind::Truth;
        /// The prompt for the summary in place of the provider's own; at most 16,384 characters.
        instructions: String, TEXT => "the provider's", gives "bad_value";
    }

    /// The files and skills that are put back after a summary.
    Recovery {
        /// The most files; those that were read or written last are taken.
        files: usize, Kind::Whole(0, 1_000, "");
        /// The most tokens of one file; of a longer file only the path is put back.
        file_tokens: u64, TOKENS;
        /// The most tokens of all files together.
        all_files_tokens: u64, TOKENS;
        /// The most tokens of one skill; of a longer skill the beginning is put back.
        skill_tokens: u64, TOKENS;
        /// The most tokens of all skills together; the oldest skills are left out.
        all_skills_tokens: u64, TOKENS;
    }

    /// Commands that run around a compaction, each a program and its arguments, like `["./hook",
    /// "--flag"]`.
    CompactionHooks {
        /// The command that runs before a summary is written; it can prevent the summary or add
        /// instructions.
        pre_compact: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that receives the finished summary.
        post_compact: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The command that returns text for the agent to read after a compaction.
        after_compact_context: List<String> = Vec::new(), COMMAND, gives "bad_value", "no_network";
        /// The time limit of each command.
        timeout: Duration = Hooks::default().timeout, Kind::Time;
    }

    /// The rules by which summaries are stopped for a while after failures.
    CircuitBreaker {
        /// The number of failures in a row after which no summary is requested.
        failure_threshold: u32 = 3, COUNT;
        /// The time during which no summary is requested; after it one is tried.
        cooldown: Duration = Duration::from_secs(300), Kind::Pause;
        /// The share of the threshold that a summary must free; a summary that frees less counts as
        /// a failure.
        min_headroom_gain: f64, SHARE => "from the preset", gives "unused_key";
    }
}

constants! {
    /// The constants of the preset that the file sets.
    Constants {
        // The sizes at which the view is edited.
        /// The size of a conversation, in tokens, above which a summary is due.
        threshold: u64, TOKENS;
        /// The size of a conversation, in characters, above which a summary is due.
        threshold_chars: u64, CHARS;
        /// The size of a conversation above which a summary is due, in percent of the limit that
        /// follows from the window.
        threshold_percent: u64, PERCENT;
        /// The most tokens of the window that are reserved for the reply.
        output_reserve: u64, TOKENS_OR_NONE;
        /// The number of tokens of the window that are left free beside the reserve for the reply.
        safety_buffer: u64, TOKENS_OR_NONE;
        /// The size of the view, in characters, down to which results are cleared.
        target_chars: u64, CHARS_OR_NONE;
        /// The size of the view down to which results are cleared, in percent of the limit.
        target_percent: u64, PERCENT_OR_NONE;
        /// The share of the tokens available for messages at which the view is edited, whatever the
        /// prices say.
        trigger: f64, SHARE;
        /// The share of the tokens available for messages at which a summary is written ahead,
        /// while the agent continues.
        soft_trigger: f64, SHARE;
        /// The share of the tokens available for messages that an edit must bring the view down to.
        target: f64, SHARE;

        // Records.
        /// The point between the bill and what stays in view, as a factor for the shares of the
        /// window that records may take: `cheap`, 0.7; `balanced`, 1; `keep`, 1.7.
        economy: Economy, words_of::<Economy>(&[]);
        /// The size up to which a conversation is sent whole, in place of `whole_share`.
        whole: u64, TOKENS;
        /// The least size of the newest messages that an edit leaves word for word.
        keep_tokens: u64, TOKENS;
        /// The share of the window up to which a conversation is sent whole, beside what the
        /// records of closed requests do not use of theirs.
        whole_share: f64, SHARE;
        /// The largest share of the window for the records of closed requests.
        closed_share: f64, SHARE;
        /// The largest share of the window for the records of the active request.
        open_share: f64, SHARE;
        /// The size of the records of the active request after they were rewritten, as a share of
        /// the largest.
        open_target: f64, SHARE;
        /// The size of records of closed requests after they were merged, as a share of the largest.
        merge_share: f64, SHARE;

        // The pace of summaries.
        /// The fewest turns from one summary that nobody requested to the next.
        summary_spacing: u64, TURNS;
        /// The number of the newest messages that stay beside a summary which nobody requested, as
        /// long as they take at most half of the limit; 0 for none.
        summary_tail: u64, SOME_MESSAGES;
        /// The number of times in a row that the view may be full again soon after a summary.
        refill_limit: u32, COUNT;
        /// The consequence when `refill_limit` is exceeded: `digest`, the messages that the model
        /// has read become a record, or `stop`, the agent ends.
        on_refill: OnRefill, words_of::<OnRefill>(&[]);
        /// The number of times in a row that a request is made smaller and sent again after the
        /// provider refused it as too long.
        reactive_retries: u32, Kind::Whole(0, 16, "");

        // Storing large results.
        /// The most characters of all results of one message together; above it the largest results
        /// are stored.
        batch_budget_chars: u64, CHARS_OR_NONE;
        /// The size up to which a result is never stored; with 0 even small results are stored to
        /// keep the total. The 30,000 of `four-layer` come from the code of its design; the text
        /// of the design has no such minimum, as with 0.
        persist_min_chars: u64, CHARS_OR_NONE;
        /// The length of the beginning of a stored result that stays in the view.
        preview_chars: u64, CHARS_OR_NONE;
        /// The text that replaces a stored result: `{path}` is its file, `{preview}` its beginning.
        persisted_text: String, TEXT;

        // Dropping the middle.
        /// The most messages of a view; above it the middle is dropped.
        snip_max_messages: u64, MESSAGES;
        /// The number of the oldest messages that are kept.
        snip_head: u64, MESSAGES;
        /// The number of the newest messages that are kept.
        snip_tail: u64, SOME_MESSAGES;
        /// The text that replaces the dropped messages: `{n}` is their number, `{path}` the
        /// transcript.
        snip_text: String, TEXT;
        /// The number that the text states: `removed`, the messages that this edit dropped, or
        /// `covered`, all messages that the text stands for.
        snip_count: SnipCount, words_of::<SnipCount>(&[]);

        // Clearing old results.
        /// The number of the newest results that are kept; under `turn-window`, the number of turns
        /// of the user that are shown.
        keep_recent: u64, RESULTS;
        /// The unit of `keep_recent`: `blocks`, single results, or `turns`, all results of one
        /// message.
        keep_unit: KeepUnit, words_of::<KeepUnit>(&[]);
        /// The content that may be cleared: `text`, a text of more than `micro_min_chars`
        /// characters; `length`, also a list of more than that many blocks; `none`, any content.
        micro_test: MicroTest, words_of::<MicroTest>(&[]);
        /// The size up to which content is kept.
        micro_min_chars: u64, CHARS_OR_NONE;
        /// The text that replaces a cleared result: `{tool}` is the tool.
        micro_text: String, TEXT;
        /// Tools whose results are never cleared.
        preserve_tools: List<String>, TEXTS;
        /// The text that replaces a cleared result that was stored: `{path}` is its file, `{tool}`
        /// the tool.
        micro_saved_text: String, TEXT;
        /// The smallest part of the view that a batch must free to be worth the loss of the cache.
        clear_min_gain_percent: u64, PERCENT_OR_NONE;
        /// The time without a request after which old results are cleared at once.
        idle_minutes: u64, MINUTES;
        /// The length of the beginning of a result that stays when the view is still too large.
        fit_preview_chars: u64, CHARS_OR_NONE;

        // The window of turns.
        /// The length of the part of a turn that is shown; a summary is shown whole.
        turn_chars: u64, CHARS_OR_NONE;
        /// The text of one turn in the window: `{role}` is the author, `{text}` the content.
        turn_text: String, TEXT;
        /// The text of the window: `{turns}` are the turns.
        window_text: String, TEXT;

        // Folding spans, and notes.
        /// If `true`, closed spans of messages are folded, and summaries are written only on
        /// request.
        collapse: bool, Kind::Truth;
        /// The most messages of a span.
        collapse_span: u64, SOME_MESSAGES;
        /// The number of the newest messages that are kept.
        collapse_keep: u64, SOME_MESSAGES;
        /// The text before the calls of a folded span: `{n}` is the number of its messages,
        /// `{path}` the transcript.
        collapse_text: String, TEXT;
        /// The file of the agent's own notes, by the path that the agent uses; empty for none.
        notes_file: String, TEXT;
        /// The text that replaces the messages that the notes cover: `{path}` is the transcript,
        /// `{notes}` are the notes.
        notes_text: String, TEXT;

        // Summaries.
        /// The most characters of messages that the summariser reads as text; of more messages the
        /// middle is left out.
        summary_input_chars: u64, CHARS;
        /// The part of `summary_input_chars` for the beginning, which states the goal; at most a
        /// third.
        summary_head_chars: u64, CHARS_OR_NONE;
        /// The text that replaces the middle: `{n}` is the number of messages.
        summary_cut: String, TEXT;
        /// The most tokens of a summary.
        summary_max_tokens: u64, TOKENS;
        /// The system prompt of the summariser, if it does not read the content of the agent's own
        /// requests.
        summary_system: String, TEXT;
        /// The prompt of the summariser: `{focus}` is replaced by `summary_focus`, which is
        /// otherwise added at the end.
        summary_prompt: String, TEXT;
        /// The text that is added when the summary shall preserve something: `{focus}` is the
        /// request.
        summary_focus: String, TEXT;
        /// The text that replaces the summarised messages: `{path}` is the transcript, `{summary}`
        /// the summary, `{request}` the active request.
        summary_text: String, TEXT;
        /// The reply of the assistant to this text; empty for none.
        summary_reply: String, TEXT;
        /// If `true`, a summary is written when it is due, and not only on request.
        summary_auto: bool, Kind::Truth;
        /// If `true`, the task prompt is kept before the summary when there was a later request.
        summary_keeps_task: bool, Kind::Truth;
        /// The form of the summariser's reply: `plain`, the reply is the summary, or `tagged`, the
        /// summary is the text in `<summary>`, or else the text after `<analysis>`.
        summary_form: Form, words_of::<Form>(&[]);
        /// The input of the summariser: `alone`, the prompt and the messages as text, or
        /// `same_prefix`, the content of the agent's last request, from the warm cache.
        summary_input: SummaryInput, words_of::<SummaryInput>(&[]);
        /// The way in which the summary is quoted: `bare`, not at all; `json`, as a JSON string;
        /// `lines`, line by line, each after a mark.
        summary_quote: Quote, words_of::<Quote>(&[]);

        // After a request that was refused as too long.
        /// The number of the newest messages that are kept.
        reactive_tail: u64, MESSAGES;
        /// The input of the summariser: `all` messages, or only the messages that are `replaced`.
        reactive_input: ReactiveInput, words_of::<ReactiveInput>(&[]);
        /// The text that replaces the other messages; it has the placeholders of `summary_text`.
        reactive_text: String, TEXT;
        /// The text that takes the place of the summary if there is none.
        reactive_fallback: String, TEXT;
        /// The results that are stored: `largest`, the largest ones, when the view has no more
        /// messages than are kept, or `half`, one after the other until half of the available
        /// tokens are free.
        reactive_shed: ReactiveShed, words_of::<ReactiveShed>(&[]);

        // The system prompt and the tools.
        /// The text that is added to an agent's system prompt.
        system_addition: String, TEXT;
        /// The description of the tool `snip`.
        snip_description: String, TEXT;
        /// The description of the argument `keep` of the tool `snip`.
        snip_keep: String, TEXT;
        /// The description of the tool `compact`.
        compact_description: String, TEXT;
        /// The description of the argument `focus` of the tool `compact`; empty if the tool takes
        /// no input.
        compact_focus: String, TEXT;
        /// The answer to a call of the tool `compact`.
        compact_answer: String, TEXT;
        /// The message of the user after a summary that `compact` requested; empty for none.
        compact_after: String, TEXT;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::shape::Section;
    use crate::config::{Sources, load_text};
    use crate::context::layers::preset::Preset;
    use crate::context::provider::server::{ClearInputs, ClearToolUses, Compact, KeepThinking};

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
                "10:11 `compaction.server.trigger` must be at least 50000",
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

    #[test]
    fn every_constant_of_a_preset_is_a_key_and_every_such_key_a_constant() {
        let presets = Preset::NAMES.iter().filter_map(|name| Preset::named(name));
        let constants: BTreeSet<String> = presets
            .chain([Preset::four_layer_improved()])
            .flat_map(|preset| preset.constants().into_iter().map(|(name, _)| name))
            .collect();
        let declared = Constants::KEYS[0];
        let keys = declared.iter().map(|key| key.name).chain(["min_headroom_gain"]);
        let keys: BTreeSet<String> = keys.map(str::to_owned).collect();
        assert_eq!(constants, keys);
        assert_eq!(keys.len(), declared.len() + 1, "each stands once");
    }

    #[test]
    fn the_presets_of_the_file_are_those_that_there_are() {
        assert!(
            Preset::NAMES.iter().all(|name| Preset::named(name).is_some_and(|p| p.name == *name))
        );
    }

    #[test]
    fn every_constant_can_be_overridden_by_its_own_value() {
        let presets = Preset::NAMES.iter().filter_map(|name| Preset::named(name));
        for preset in presets.chain([Preset::four_layer_improved()]) {
            let same = preset.clone().with_constants(&preset.constants());
            assert_eq!(same.as_ref(), Ok(&preset));
        }
    }
}
