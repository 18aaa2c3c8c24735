//! `[compaction]`: its own keys, and the constants of the presets.

use std::time::Duration;

use serde_json::Value as Json;

use crate::config::shape::kinds::{
    CHARS, CHARS_OR_NONE, COMMAND, COUNT, MESSAGES, MINUTES, MODEL, PERCENT, PERCENT_OR_NONE,
    RESULTS, SHARE, SOME_MESSAGES, TEXT, TEXTS, TOKENS, TOKENS_OR_NONE, TURNS, words_of,
};
use crate::config::shape::{Kind, List, ListOr, constants, sections, words};
use crate::context::compaction::Hooks;
use crate::context::layers::micro::{KeepUnit, MicroTest};
use crate::context::layers::preset::{Preset, Variant};
use crate::context::layers::reactive::{ReactiveInput, ReactiveShed};
use crate::context::layers::snip::SnipCount;
use crate::context::layers::summary::{Form, OnRefill, Quote, SummaryInput};
use crate::context::provider::server::AfterSummary;
use crate::context::provider::strategy::{LEAST_TRIGGER_TOKENS, StrategySettings, Wanted};

/// The section: its own keys and the constants share its table.
pub(in crate::config) type Compaction = (CompactionKeys, Constants);

words! {
    Variant Wanted OnRefill SnipCount KeepUnit MicroTest Form SummaryInput Quote ReactiveInput ReactiveShed
}

/// A number of turns, or `"all"`.
const THINKING: Kind =
    Kind::Either(&[Kind::Whole(1, i64::MAX, "turns"), Kind::Words(|| &["all"], &[])]);

sections! {
    /// The keys that are no constants of a preset.
    CompactionKeys {
        /// The layers and their constants: `adaptive`, records of what was done, made without a
        /// model when the prices say that it pays; `production`, clearing in batches, notes, and
        /// summaries in nine sections on the warm prefix; `four-layer`, stored results, a cut
        /// middle, cleared results and a summary; `turn-window`, the last turns of the user in the
        /// system prompt; `three-layer`, cleared results and a summary; `off`, the conversation as
        /// it is. Every constant of a preset can be set by its name beside this key.
        preset: String = "adaptive".to_owned(), Kind::Words(|| &Preset::NAMES, &[]),
            gives "unused_key";
        /// The preset `four-layer` clears only when it must, stores the results that it clears, and
        /// quotes summaries as data.
        improved: bool = false, Kind::Truth, gives "unused_key";
        /// The form of `three-layer`: `annotated`, `short` or `typescript`.
        variant: Variant, words_of::<Variant>(&[]) => "annotated", gives "unused_key";
        /// The layers of the preset that run, in their order.
        layers: List<String>, TEXTS => "those of the preset", gives "bad_value";
        /// The model that writes summaries.
        model: String, MODEL => "the agent's own, on its warm prefix";
        /// The same as `keep_recent`.
        keep_recent_results: u64, RESULTS => "that of the preset", gives "conflict", "unused_key";
        /// The party that keeps a conversation within its window: `auto`, the one that the preset
        /// prefers, where the provider can do it; `client`, the client alone; `context_editing`,
        /// the provider clears old tool results; `server_threshold`, it summarises amid a reply;
        /// `server_on_demand`, it summarises when the client asks.
        strategy: Wanted = StrategySettings::default().wanted, words_of::<Wanted>(&[]);
        /// The clearing by the provider, under the strategy `context_editing`.
        context_editing: ContextEditing = ContextEditing::default(), ContextEditing::KIND;
        /// The summaries by the provider, under the strategies `server_threshold` and
        /// `server_on_demand`.
        server: Server = Server::default(), Server::KIND;
        /// The summaries that are written at once.
        max_concurrency: usize = 2, COUNT;
        /// The least time that a call for a summary may take; it grows with what is sent. A longer
        /// silence makes people ask what is wrong.
        summary_timeout: Duration = Duration::from_secs(60), Kind::Time;
        /// A repeated read is answered by a stub while the conversation still shows the result of
        /// the first.
        unchanged_stub: bool, Kind::Truth => "that of the preset";
        /// The files and skills that an agent gets back after a summary.
        recovery: Recovery, Recovery::KIND => "that of the preset", gives "unused_key";
        /// Commands that are asked before a compaction and told after it.
        hooks: CompactionHooks = CompactionHooks::default(), CompactionHooks::KIND,
            gives "unused_key";
        /// When summaries that fail are given up for a while.
        circuit_breaker: CircuitBreaker = CircuitBreaker::default(), CircuitBreaker::KIND;
    }
    later {
        /// The parts of a conversation that are never summarised away.
        pin;
        /// The file that holds the prompt for summaries.
        prompt_file;
    }

    /// The clearing of old tool results by the provider.
    ContextEditing {
        /// The input above which old tool results are cleared.
        trigger: u64 = StrategySettings::default().clear.trigger_tokens, TOKENS;
        /// The number of the newest tool uses that stay.
        keep: u64 = StrategySettings::default().clear.keep, RESULTS;
        /// The least that a clearing must free, so that it pays for the cache that it breaks; 0:
        /// any.
        clear_at_least: u64 = StrategySettings::default().clear.clear_at_least.unwrap_or_default(),
            TOKENS_OR_NONE;
        /// Tools whose results stay.
        exclude_tools: List<String> = Vec::new(), TEXTS;
        /// The calls whose arguments are cleared with their results: all, none, or those of the
        /// tools in a list.
        clear_tool_inputs: ListOr, Kind::Either(&[Kind::Truth, TEXTS]) => "false";
        /// The newest turns whose thinking stays, or `"all"`.
        keep_thinking: Json, THINKING => "the provider's rule";
    }

    /// The summaries by the provider.
    Server {
        /// The input above which it does.
        trigger: u64 = StrategySettings::default().compact.trigger_tokens,
            Kind::Whole(LEAST_TRIGGER_TOKENS.cast_signed(), 1 << 40, "tokens");
        /// The reply waits after a summary, so that the client puts back the parts that must stay
        /// word for word.
        pause: bool = StrategySettings::default().compact.after == AfterSummary::Pause, Kind::Truth;
        /// A prompt in place of the provider's own, of at most 16,384 characters.
        instructions: String, TEXT => "the provider's", gives "bad_value";
    }

    /// The files and skills that come back after a summary.
    Recovery {
        /// The number of files, of those last read or written.
        files: usize, Kind::Whole(0, 1_000, "");
        /// The most of one file; a longer one comes back as its path only.
        file_tokens: u64, TOKENS;
        /// The most of all files.
        all_files_tokens: u64, TOKENS;
        /// The most of one skill; of a longer one the beginning comes back.
        skill_tokens: u64, TOKENS;
        /// The most of all skills; the oldest are left out.
        all_skills_tokens: u64, TOKENS;
    }

    /// Commands: each a program and its arguments, like `["./hook", "--flag"]`.
    CompactionHooks {
        /// Asked before a summary is written; it may block that, or add instructions.
        pre_compact: List<String> = Vec::new(), COMMAND, gives "bad_value";
        /// Told of the summary that was written.
        post_compact: List<String> = Vec::new(), COMMAND, gives "bad_value";
        /// Asked for what the agent should read after a compaction.
        after_compact_context: List<String> = Vec::new(), COMMAND, gives "bad_value";
        /// The longest that each may take.
        timeout: Duration = Hooks::default().timeout, Kind::Time;
    }

    /// When summaries are given up for a while.
    CircuitBreaker {
        /// The failures in a row after which none is asked for.
        failure_threshold: u32 = 3, COUNT;
        /// The time for which none is asked for; then one is tried.
        cooldown: Duration = Duration::from_secs(300), Kind::Pause;
        /// The share of the size from which on a summary is due that it must free; one that frees
        /// less has failed.
        min_headroom_gain: f64, SHARE => "that of the preset", gives "unused_key";
    }
}

constants! {
    /// The constants that are set.
    Constants {
        // When something is done.
        /// The size from which on a summary is due.
        threshold: u64, TOKENS;
        /// The same, in characters.
        threshold_chars: u64, CHARS;
        /// The same, as a part of the limit that follows from the window.
        threshold_percent: u64, PERCENT;
        /// The most that is taken off the window for the reply.
        output_reserve: u64, TOKENS_OR_NONE;
        /// The number of tokens taken off the window beside that.
        safety_buffer: u64, TOKENS_OR_NONE;
        /// The largest size of a view after a clearing.
        target_chars: u64, CHARS_OR_NONE;
        /// The same, as a part of the limit.
        target_percent: u64, PERCENT_OR_NONE;
        /// The share of the room for messages from which on the view is edited whatever the prices
        /// say.
        trigger: f64, SHARE;
        /// The share of the room from which on a summary is written while the agent goes on.
        soft_trigger: f64, SHARE;
        /// The share of the room that an edit must reach.
        target: f64, SHARE;

        // Records.
        /// A conversation up to this size is left whole.
        whole: u64, TOKENS;
        /// The size of the newest messages that an edit leaves word for word.
        keep_tokens: u64, TOKENS;
        /// The share of their size that a record merged from two others has.
        merge_share: f64, SHARE;

        // The pace of summaries.
        /// The turns from one summary that nobody asked for to the next.
        summary_spacing: u64, TURNS;
        /// The times in a row that the view may be full again soon after a summary.
        refill_limit: u32, COUNT;
        /// The consequence of more: `digest`, the messages that the model has read become a record,
        /// or `stop`, the agent ends.
        on_refill: OnRefill, words_of::<OnRefill>(&[]);
        /// The times in a row that a request that was refused as too long is made smaller and sent
        /// again.
        reactive_retries: u32, Kind::Whole(0, 16, "");

        // Storing large results.
        /// The most that the results of one message may have together; the largest are stored.
        batch_budget_chars: u64, CHARS_OR_NONE;
        /// A result up to this size is never stored; with 0 the total is bounded whatever the
        /// sizes.
        persist_min_chars: u64, CHARS_OR_NONE;
        /// The beginning of a stored result that the model still reads.
        preview_chars: u64, CHARS_OR_NONE;
        /// The text in the place of a stored result: `{path}` is its file, `{preview}` its
        /// beginning.
        persisted_text: String, TEXT;

        // Dropping the middle.
        /// The most messages that a view may have.
        snip_max_messages: u64, MESSAGES;
        /// The number of the oldest messages that stay.
        snip_head: u64, MESSAGES;
        /// The number of the newest messages that stay.
        snip_tail: u64, SOME_MESSAGES;
        /// The marker in the place of the others: `{n}` is their number, `{path}` the transcript.
        snip_text: String, TEXT;
        /// The number in the marker: `removed`, the messages that this snip took out, or `covered`,
        /// all that it stands for.
        snip_count: SnipCount, words_of::<SnipCount>(&[]);

        // Clearing old results.
        /// The number of the newest results that are kept; of `turn-window`, the turns of the user
        /// that are shown.
        keep_recent: u64, RESULTS;
        /// The unit of `keep_recent`: `blocks`, one result, or `turns`, all results of one message.
        keep_unit: KeepUnit, words_of::<KeepUnit>(&[]);
        /// The content that may be cleared: `text`, a text with more characters than
        /// `micro_min_chars`; `length`, also a list with more blocks than that; `none`, any.
        micro_test: MicroTest, words_of::<MicroTest>(&[]);
        /// Content up to this size stays.
        micro_min_chars: u64, CHARS_OR_NONE;
        /// The text in the place of a cleared result: `{tool}` is the tool.
        micro_text: String, TEXT;
        /// Tools whose results are never cleared.
        preserve_tools: List<String>, TEXTS;
        /// The text in the place of a cleared result that was stored: `{path}` is its file,
        /// `{tool}` the tool.
        micro_saved_text: String, TEXT;
        /// A batch that frees a smaller part of the view does not pay for its cache.
        clear_min_gain_percent: u64, PERCENT_OR_NONE;
        /// After so long without a request, old results are cleared at once.
        idle_minutes: u64, MINUTES;
        /// The beginning of a result that the model still reads when the view is still too large.
        fit_preview_chars: u64, CHARS_OR_NONE;

        // The window of turns.
        /// The part of a turn that is shown; a summary is shown whole.
        turn_chars: u64, CHARS_OR_NONE;
        /// A turn in the window: `{role}` and `{text}`.
        turn_text: String, TEXT;
        /// The window: `{turns}`.
        window_text: String, TEXT;

        // Folding spans, and notes.
        /// Closed spans are folded; summaries are then written only on request.
        collapse: bool, Kind::Truth;
        /// The most messages of a span.
        collapse_span: u64, SOME_MESSAGES;
        /// The number of the newest messages that stay.
        collapse_keep: u64, SOME_MESSAGES;
        /// The text before the calls of a span: `{n}` is the number of its messages, `{path}` the
        /// transcript.
        collapse_text: String, TEXT;
        /// The file of the agent's own notes, as it names it; empty: none.
        notes_file: String, TEXT;
        /// The message in the place of what the notes cover: `{path}` is the transcript, `{notes}`
        /// the notes.
        notes_text: String, TEXT;

        // Summaries.
        /// The most of the messages that the summariser reads as text; of more the middle is left
        /// out.
        summary_input_chars: u64, CHARS;
        /// The part of that for the beginning, which holds the goal; at most a third.
        summary_head_chars: u64, CHARS_OR_NONE;
        /// The text in the place of the middle: `{n}` is the number of messages.
        summary_cut: String, TEXT;
        /// The longest that a summary may be.
        summary_max_tokens: u64, TOKENS;
        /// The summariser's system prompt, where it does not read what the agent's own requests
        /// hold.
        summary_system: String, TEXT;
        /// The prompt of the summariser: `{focus}` is the place of `summary_focus`, which is
        /// otherwise added.
        summary_prompt: String, TEXT;
        /// The addition for a request to preserve something: `{focus}` is the request.
        summary_focus: String, TEXT;
        /// The message in the place of what was summarised: `{path}` is the transcript, `{summary}`
        /// the summary, `{request}` the active request.
        summary_text: String, TEXT;
        /// The reply of the assistant to it; empty: none.
        summary_reply: String, TEXT;
        /// A summary is due by itself, and not only when somebody asks.
        summary_auto: bool, Kind::Truth;
        /// The task prompt stays before the summary when something else was asked since.
        summary_keeps_task: bool, Kind::Truth;
        /// The reading of the summariser's reply: `plain`, as it is, or `tagged`, the text in
        /// `<summary>`, or else the text after `<analysis>`.
        summary_form: Form, words_of::<Form>(&[]);
        /// The input of the summariser: `alone`, the prompt and the messages as text, or
        /// `same_prefix`, the content of the agent's last request, from the warm cache.
        summary_input: SummaryInput, words_of::<SummaryInput>(&[]);
        /// The quotation of the summary in the message: `bare`, none; `json`, as a JSON string;
        /// `lines`, line by line, each with a mark before it.
        summary_quote: Quote, words_of::<Quote>(&[]);

        // After a request that was refused as too long.
        /// The number of the newest messages that stay.
        reactive_tail: u64, MESSAGES;
        /// The input of the summariser: `all` messages, or those that are `replaced`.
        reactive_input: ReactiveInput, words_of::<ReactiveInput>(&[]);
        /// The message in the place of the others, as in `summary_text`.
        reactive_text: String, TEXT;
        /// The text in the place of the summary where there is none.
        reactive_fallback: String, TEXT;
        /// The results that are stored: the `largest`, when the view has no more messages than are
        /// kept, or one after the other until `half` of the room is free.
        reactive_shed: ReactiveShed, words_of::<ReactiveShed>(&[]);

        // The system prompt and the tools.
        /// The addition to an agent's system prompt.
        system_addition: String, TEXT;
        /// The description of the tool `snip`.
        snip_description: String, TEXT;
        /// The description of its `keep`.
        snip_keep: String, TEXT;
        /// The description of the tool `compact`.
        compact_description: String, TEXT;
        /// The description of its `focus`; empty: the tool takes no input.
        compact_focus: String, TEXT;
        /// The answer to a call of it.
        compact_answer: String, TEXT;
        /// The message of the user when the summary stands; empty: none.
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
