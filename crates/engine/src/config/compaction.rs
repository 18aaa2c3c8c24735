//! Builds the compaction settings: the preset, and the keys that override its constants.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::concern::leads_outside;
use super::diagnostic::{NO_HELP, Problems};
use super::raw::{Compaction, CompactionHooks, CompactionKeys, ContextEditing};
use super::shape::{Constant, Field, Item, ListOr};
use super::tree::Written;
use super::{Setting, agents, env, network};
use crate::context::compaction::{CompactionSpec, Hooks};
use crate::context::layers::Layer;
use crate::context::layers::preset::Preset;
use crate::context::provider::server::{
    AfterSummary, ClearInputs, ClearToolUses, Compact, KeepThinking,
};
use crate::context::provider::strategy::{MOST_INSTRUCTIONS_CHARS, StrategySettings};
use crate::id::Name;
use crate::spec::ModelSpec;
use crate::spec::hooks::HookSpec;

/// The constant that has an older name, `keep_recent_results`, as well.
const KEEP_RECENT: &str = "keep_recent";

/// The one constant of a preset whose key is in `circuit_breaker` and not in `[compaction]` itself.
const HEADROOM_GAIN: &str = "min_headroom_gain";

/// Turns `[compaction]` into the settings of compaction.
pub(super) fn compaction(
    setting: Setting<'_>,
    models: &BTreeMap<Name, ModelSpec>,
) -> CompactionSpec {
    let (own, _) = &*setting.raw.compaction;
    agents::known_model(&own.model, models, setting);
    if let Some((text, place)) = own.server.instructions.placed()
        && text.chars().count() > MOST_INSTRUCTIONS_CHARS
    {
        let message =
            format!("`instructions` may have {MOST_INSTRUCTIONS_CHARS} characters at most");
        setting.problems.error("bad_value", place, message, NO_HELP);
    }
    CompactionSpec {
        preset: preset(&setting.raw.compaction, setting.problems),
        model: own.model.as_deref().and_then(|text| Name::new(text).ok()),
        failure_threshold: *own.circuit_breaker.failure_threshold,
        cooldown: *own.circuit_breaker.cooldown,
        max_concurrency: *own.max_concurrency,
        summary_timeout: *own.summary_timeout,
        hooks: hooks(&own.hooks, setting),
        strategy: StrategySettings {
            wanted: *own.strategy,
            clear: clear(&own.context_editing, setting.problems),
            thinking: thinking(&own.context_editing.keep_thinking, setting.problems),
            compact: Compact {
                trigger_tokens: *own.server.trigger,
                after: match *own.server.pause {
                    true => AfterSummary::Pause,
                    false => AfterSummary::GoOn,
                },
                instructions: own.server.instructions.clone(),
            },
        },
    }
}

fn clear(raw: &ContextEditing, problems: &Problems) -> ClearToolUses {
    ClearToolUses {
        trigger_tokens: *raw.trigger,
        keep: *raw.keep,
        clear_at_least: Some(*raw.clear_at_least).filter(|least| *least > 0),
        exclude_tools: texts(&raw.exclude_tools),
        inputs: clear_inputs(&raw.clear_tool_inputs, problems),
    }
}

/// Reads `true`, `false` or the names of the tools whose arguments are cleared.
fn clear_inputs(raw: &Field<Option<ListOr>>, problems: &Problems) -> ClearInputs {
    let tool = |item: &Item<Json>| item.value.as_str().map(str::to_owned);
    let (read, place) = match raw.placed() {
        None | Some((ListOr::Other(Json::Bool(false)), _)) => return ClearInputs::Keep,
        Some((ListOr::Other(Json::Bool(true)), _)) => return ClearInputs::All,
        Some((ListOr::List(items), place)) => (items.iter().map(tool).collect(), place),
        Some((ListOr::Other(_), place)) => (None, place),
    };
    read.map_or_else(
        || {
            let message = "`clear_tool_inputs` must be true, false or an array of tools";
            problems.error("wrong_type", place, message, NO_HELP);
            ClearInputs::Keep
        },
        ClearInputs::Of,
    )
}

/// Reads a number of turns, or `"all"`.
fn thinking(raw: &Field<Option<Json>>, problems: &Problems) -> Option<KeepThinking> {
    let (value, place) = raw.placed()?;
    match (value.as_str(), value.as_u64()) {
        (Some("all"), _) => Some(KeepThinking::All),
        (_, Some(turns @ 1..)) => Some(KeepThinking::Turns(turns)),
        _ => {
            let message = "`keep_thinking` must be a number of turns from 1, or `\"all\"`";
            problems.error("bad_value", place, message, NO_HELP);
            None
        }
    }
}

fn texts(items: &[Item<String>]) -> Vec<String> {
    items.iter().map(|item| item.value.clone()).collect()
}

/// Returns the preset with the constants, layers and abilities that the section changes.
fn preset((own, constants): &Compaction, problems: &Problems) -> Preset {
    // A preset that does not exist has its own diagnostic; its keys get none.
    let named = Preset::named(&own.preset).filter(|_| !own.preset.is_wrong());
    let Some(named) = named else { return Preset::three_layer() };
    let mut preset = in_form(named, own, problems);
    let older = own.keep_recent_results.as_constant(KEEP_RECENT);
    if let Some(again) = &older
        && constants.0.iter().any(|constant| constant.name == KEEP_RECENT)
    {
        let message = "`keep_recent` and `keep_recent_results` are the same";
        problems.error("conflict", &again.at.key, message, NO_HELP);
    }
    let gain = own.circuit_breaker.min_headroom_gain.as_constant(HEADROOM_GAIN);
    let set = constants.0.iter().chain(&gain).map(|constant| (constant.name, constant));
    for (key, constant) in set.chain(older.iter().map(|older| ("keep_recent_results", older))) {
        preset = with_constant(preset, key, constant, problems);
    }
    with_abilities(preset, own, problems)
}

fn with_constant(preset: Preset, key: &str, constant: &Constant, problems: &Problems) -> Preset {
    if !preset.constants().contains_key(constant.name) {
        unused(&preset, key, Some(&constant.at), problems);
        return preset;
    }
    let Some(value) = constant.value.clone() else { return preset };
    let own = [(constant.name.to_owned(), value)].into_iter().collect();
    preset.clone().with_constants(&own).unwrap_or_else(|unfit| {
        problems.error("bad_value", &constant.at.value, unfit.to_string(), NO_HELP);
        preset
    })
}

/// Warns of a key that has no effect under a preset.
fn unused(preset: &Preset, key: &str, at: Option<&Written>, problems: &Problems) {
    if let Some(at) = at {
        let message = format!("the preset `{}` has no `{key}`", preset.name);
        problems.warning("unused_key", &at.key, message, NO_HELP);
    }
}

/// Returns the preset in the variant that the section asks for, with the layers that it lists.
fn in_form(named: Preset, own: &CompactionKeys, problems: &Problems) -> Preset {
    let preset = match (named.name.as_str(), *own.improved, *own.variant) {
        ("four-layer", true, _) => Preset::four_layer_improved(),
        ("three-layer", _, Some(variant)) => Preset::three_layer_as(variant),
        _ => named,
    };
    if preset.name != "four-layer" {
        unused(&preset, "improved", own.improved.at(), problems);
    }
    if preset.name != "three-layer" {
        unused(&preset, "variant", own.variant.at(), problems);
    }
    let Some((layers, place)) = own.layers.placed() else { return preset };
    let names: Vec<&str> = layers.iter().map(|layer| layer.value.as_str()).collect();
    preset.clone().with_layers(&names).unwrap_or_else(|unfit| {
        problems.error("bad_value", place, unfit.to_string(), NO_HELP);
        preset
    })
}

/// Applies the settings that are not constants of the preset: the stub of unchanged files, and
/// recovery.
fn with_abilities(mut preset: Preset, own: &CompactionKeys, problems: &Problems) -> Preset {
    preset.unchanged_stub = own.unchanged_stub.unwrap_or(preset.unchanged_stub);
    if !preset.layers.iter().any(|layer| matches!(layer, Layer::Summary(_))) {
        unused(&preset, "recovery", own.recovery.at(), problems);
        unused(&preset, "hooks", own.hooks.at(), problems);
    }
    if let Some(raw) = own.recovery.as_ref() {
        let recovery = preset.recovery.get_or_insert_default();
        recovery.files = raw.files.unwrap_or(recovery.files);
        recovery.file_tokens = raw.file_tokens.unwrap_or(recovery.file_tokens);
        recovery.all_files_tokens = raw.all_files_tokens.unwrap_or(recovery.all_files_tokens);
        recovery.skill_tokens = raw.skill_tokens.unwrap_or(recovery.skill_tokens);
        recovery.all_skills_tokens = raw.all_skills_tokens.unwrap_or(recovery.all_skills_tokens);
    }
    preset
}

fn hooks(raw: &CompactionHooks, setting: Setting<'_>) -> Hooks {
    Hooks {
        pre_compact: argv("pre_compact", &raw.pre_compact, setting),
        post_compact: argv("post_compact", &raw.post_compact, setting),
        after_compact_context: argv("after_compact_context", &raw.after_compact_context, setting),
        timeout: *raw.timeout,
    }
}

/// Turns `[hooks]` into the hooks of a run.
pub(super) fn run_hooks(setting: Setting<'_>) -> HookSpec {
    let raw = &setting.raw.hooks;
    // The field's own examples write an empty list for a hook that is not set.
    let argv = |key: &str, field: &Field<Vec<Item<String>>>| match field.is_empty() {
        true => Vec::new(),
        false => argv(key, field, setting),
    };
    HookSpec {
        on_start: argv("on_start", &raw.on_start),
        on_success: argv("on_success", &raw.on_success),
        on_failure: argv("on_failure", &raw.on_failure),
        on_exit: argv("on_exit", &raw.on_exit),
        run_paused: argv("run_paused", &raw.run_paused),
        run_resumed: argv("run_resumed", &raw.run_resumed),
        question: argv("question", &raw.question),
        on_budget: argv("on_budget", &raw.on_budget),
        pre_tool_use: argv("pre_tool_use", &raw.pre_tool_use),
        post_tool_use: argv("post_tool_use", &raw.post_tool_use),
        on_error: *raw.on_error,
        timeout: *raw.timeout,
    }
}

fn argv(key: &str, field: &Field<Vec<Item<String>>>, setting: Setting<'_>) -> Vec<String> {
    if let Some(at) = field.at().filter(|_| !field.is_wrong()) {
        check_program(key, field, at, setting);
        network::of_hook(setting, field);
    }
    texts(field)
}

/// Reports a command of a hook or a notification whose program does not exist. Otherwise the error
/// would show only when it is run, hours into a run.
pub(super) fn check_program(
    key: &str,
    command: &[Item<String>],
    at: &Written,
    setting: Setting<'_>,
) {
    for word in command {
        env::check_nul(&word.value, &word.at.value, setting.problems);
    }
    let program = command.first().filter(|program| !program.value.is_empty());
    let Some(Item { value: program, at }) = program else {
        let help = "write a program and its arguments: [\"./hook\", \"--flag\"]";
        let message = format!("`{key}` names no command");
        return setting.problems.error("bad_value", &at.key, message, help);
    };
    let is_outside = leads_outside(setting.root, program).is_some();
    if program.contains('/')
        && (!is_outside || setting.shelf.touches(&at.value))
        && !setting.root.join(program).is_file()
    {
        let message = format!("there is no file `{program}`");
        setting.problems.error("unreadable_file", &at.value, message, NO_HELP);
    }
}
