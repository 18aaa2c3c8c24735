//! Turns `[loops]`, `loops` of an agent and the keys of tools into the rules by which loops are noticed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Setting;
use super::diagnostic::NO_HELP;
use super::raw::{Agent, LoopKeys, Tool};
use super::shape::Entry;
use crate::id::Name;
use crate::spec::loops::{LoopSpec, LoopTool, OnLoop};

/// Returns the rules for an agent: its own keys beat those of the run.
pub(super) fn loops(setting: Setting<'_>, raw: &Agent) -> Arc<LoopSpec> {
    let of_run = with(
        setting,
        LoopSpec { tools: tools(setting), ..LoopSpec::default() },
        &setting.raw.loops,
    );
    let spec = with(setting, of_run, &raw.loops);
    warn_without_bound(setting, raw, &spec);
    Arc::new(spec)
}

/// Returns the rules with these keys.
fn with(setting: Setting<'_>, base: LoopSpec, keys: &LoopKeys) -> LoopSpec {
    let on_loop = keys.on_loop.unwrap_or(base.on_loop);
    let on_loop = match *keys.enabled {
        Some(false) => OnLoop::Off,
        Some(true) if keys.on_loop.is_none() && base.on_loop == OnLoop::Off => OnLoop::Steps,
        Some(true) | None => on_loop,
    };
    LoopSpec {
        on_loop,
        window: keys.window.unwrap_or(base.window),
        repeat: repeat(setting, keys).unwrap_or(base.repeat),
        cycle: keys.cycle.unwrap_or(base.cycle),
        edits: keys.edits.unwrap_or(base.edits),
        stall: keys.stall.unwrap_or(base.stall),
        spawn: keys.spawn.unwrap_or(base.spawn),
        rounds: keys.rounds.unwrap_or(base.rounds),
        text: keys.text.unwrap_or(base.text),
        tools: base.tools,
    }
}

fn repeat(setting: Setting<'_>, keys: &LoopKeys) -> Option<[u32; 3]> {
    let (list, place) = keys.repeat.placed()?;
    match list.iter().map(|item| item.value).collect::<Vec<_>>()[..] {
        [first, second, third] if first < second && second < third => Some([first, second, third]),
        _ => {
            let message = "`repeat` has three numbers, each larger than the one before";
            setting.problems.error("bad_value", place, message, "write `[4, 5, 7]`");
            None
        }
    }
}

/// Warns of an agent whose loops nobody would notice before it has spent all that it may.
fn warn_without_bound(setting: Setting<'_>, raw: &Agent, spec: &LoopSpec) {
    let at = raw.loops.enabled.at().or(raw.loops.on_loop.at());
    if let (false, Some(at), None) = (spec.is_on(), at, raw.max_turns.at()) {
        let message = "nothing ends this agent if it goes in circles, but the `max_turns` of all";
        setting.problems.warning("loops_off", &at.key, message, "set its `max_turns`");
    }
}

/// Returns how the calls of the configured tools are looked at, where that is set.
fn tools(setting: Setting<'_>) -> BTreeMap<Name, LoopTool> {
    let of = |(entry, raw): (&Entry<Tool>, &Tool)| {
        let key: Vec<_> = raw.loop_key.iter().map(|key| key.value.clone()).collect();
        let tool = LoopTool { poll: *raw.poll, key };
        let is_set = tool != LoopTool::default();
        is_set.then(|| Some((Name::new(&entry.name).ok()?, tool))).flatten()
    };
    setting.raw.tools.values().filter_map(of).collect()
}

/// Warns of `loop_key` of a tool whose calls are not looked at.
pub(super) fn check(setting: Setting<'_>) {
    for (entry, raw) in setting.raw.tools.values() {
        if let (true, Some(at)) = (*raw.poll, raw.loop_key.at()) {
            let message = format!("`{}` has `poll`, so its calls are not compared", entry.name);
            setting.problems.warning("unused_key", &at.key, message, NO_HELP);
        }
    }
}
