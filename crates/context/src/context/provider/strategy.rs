//! Strategies: the choice between the client and the provider for keeping a conversation within its
//! window.
//!
//! Pure. A strategy is chosen anew for each call from the configuration, the preference of the
//! preset and the known capabilities of the provider. So a strategy that the provider refuses is
//! followed by the client's own.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::context::layers::limit::Limit;
use crate::context::layers::preset::{Preference, Preset};
use crate::context::layers::{Layer, Summary};
use crate::context::provider::server::{
    AfterSummary, ClearInputs, ClearToolUses, Compact, ContextWork, KeepThinking, ServerEdit,
};
use crate::spec::capability::{Capabilities, Capability};

/// Least trigger that providers accept for a summary in the middle of a reply, in input tokens.
pub const LEAST_TRIGGER_TOKENS: u64 = 50_000;

/// Most characters that providers accept for a custom prompt.
pub const MOST_INSTRUCTIONS_CHARS: usize = 16_384;

/// Prompt in place of the provider's own when there is something to pay attention to: a custom
/// prompt replaces the provider's, so it has to say everything.
const INSTRUCTIONS: &str = "Summarize this conversation for continuity. Include: 1) What was \
     accomplished, 2) Current state, 3) Key decisions made. Be concise but preserve critical \
     details. Do not call tools; respond with the text of the summary only.";

/// Strategy that the configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// The preference of the preset, where the provider has the capability.
    #[default]
    Auto,
    /// The client alone.
    Client,
    /// Clearing by the provider.
    ContextEditing,
    /// Summaries by the provider, in the middle of a reply.
    ServerThreshold,
    /// Summaries by the provider, when the client asks for one.
    ServerOnDemand,
}

impl Wanted {
    /// All values.
    pub const ALL: [Self; 5] = [
        Self::Auto,
        Self::Client,
        Self::ContextEditing,
        Self::ServerThreshold,
        Self::ServerOnDemand,
    ];

    /// Returns the name in the configuration, which is also the name of the strategy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Client => "client",
            Self::ContextEditing => "context_editing",
            Self::ServerThreshold => "server_threshold",
            Self::ServerOnDemand => "server_on_demand",
        }
    }
}

/// Settings for the work that providers do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategySettings {
    /// Strategy that is wanted.
    pub wanted: Wanted,
    /// Settings for clearing tool results.
    pub clear: ClearToolUses,
    /// Amount of thinking that stays; absent: the provider's own rule.
    pub thinking: Option<KeepThinking>,
    /// Settings for summaries in the middle of a reply; their prompt also serves summaries on
    /// demand.
    pub compact: Compact,
}

impl Default for StrategySettings {
    /// Returns the providers' own defaults, with two exceptions: a clearing must free enough to pay
    /// for the cache that it breaks, and after a summary the client puts back what it must keep.
    fn default() -> Self {
        Self {
            wanted: Wanted::Auto,
            clear: ClearToolUses {
                trigger_tokens: 100_000,
                keep: 3,
                clear_at_least: Some(5_000),
                exclude_tools: Vec::new(),
                inputs: ClearInputs::Keep,
            },
            thinking: None,
            compact: Compact {
                trigger_tokens: 150_000,
                after: AfterSummary::Pause,
                instructions: None,
            },
        }
    }
}

/// Selection of a preset's layers that run in the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientLayers {
    /// All layers.
    All,
    /// All layers but those that clear results.
    NoClearing,
    /// None by itself: only the guard of the window, and summaries that somebody asks for.
    OnRequest,
    /// All layers but the digest and those that clear results, because a summary takes their place:
    /// the preset's own, or else one that is due when the view has more estimated tokens than this.
    SummaryAt(u64),
}

/// Kind of work of a layer, as far as a provider can do it instead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Clear,
    Digest,
    Summarise,
    /// Nothing that a provider can do.
    Nothing,
}

impl Does {
    fn of(layer: &Layer) -> Self {
        match layer {
            Layer::Micro(_) | Layer::Clear(_) | Layer::Idle(_) => Self::Clear,
            Layer::Digest(_) => Self::Digest,
            Layer::Summary(_) => Self::Summarise,
            Layer::Budget(_)
            | Layer::Snip(_)
            | Layer::Fit(_)
            | Layer::Collapse(_)
            | Layer::Notes(_)
            | Layer::Window(_) => Self::Nothing,
        }
    }
}

impl ClientLayers {
    /// Returns the preset with only the layers that run.
    #[must_use]
    pub fn of(self, preset: &Preset) -> Cow<'_, Preset> {
        let mut own = match self {
            Self::All => return Cow::Borrowed(preset),
            Self::NoClearing | Self::OnRequest | Self::SummaryAt(_) => preset.clone(),
        };
        own.layers.retain(|layer| match (self, Does::of(layer)) {
            (Self::All, _) | (_, Does::Summarise) => true,
            (Self::NoClearing, does) => does != Does::Clear,
            // The part that the provider is to summarise stays as it was sent, so that it is read
            // from the cache.
            (Self::SummaryAt(_), does) => !matches!(does, Does::Digest | Does::Clear),
            (Self::OnRequest, _) => false,
        });
        match self {
            Self::OnRequest => {
                own.layers.iter_mut().filter_map(summary_of).for_each(on_request);
            }
            Self::SummaryAt(tokens) => {
                if !own.layers.iter().any(is_summary) {
                    own.layers.extend(Preset::adaptive().layers.into_iter().filter(is_summary));
                }
                own.layers.iter_mut().filter_map(summary_of).for_each(|s| due_at(s, tokens));
            }
            Self::All | Self::NoClearing => {}
        }
        Cow::Owned(own)
    }
}

fn is_summary(layer: &Layer) -> bool {
    Does::of(layer) == Does::Summarise
}

fn summary_of(layer: &mut Layer) -> Option<&mut Summary> {
    match layer {
        Layer::Summary(summary) => Some(summary),
        _ => None,
    }
}

fn on_request(summary: &mut Summary) {
    summary.summary_auto = false;
    summary.pace.soft_trigger = None;
}

/// Makes a summary that is only written on request due when the view has more tokens than this.
fn due_at(summary: &mut Summary, tokens: u64) {
    if !summary.summary_auto {
        summary.summary_auto = true;
        summary.pace.trigger = None;
        summary.limit = Limit::Tokens { threshold: tokens };
    }
}

/// A way to keep a conversation within its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The client alone.
    Client,
    /// The provider clears; the client keeps the full conversation, and summarises it when it must.
    ContextEditing {
        /// Settings for clearing tool results.
        clear: ClearToolUses,
        /// Amount of thinking that stays; absent: the provider's own rule.
        thinking: Option<KeepThinking>,
    },
    /// The provider summarises in the middle of a reply, when the input is larger than a threshold.
    ServerThreshold(Compact),
    /// The client decides when, and the provider writes the summary.
    ServerOnDemand {
        /// Estimated tokens of the view above which it is summarised.
        trigger_tokens: u64,
        /// Custom prompt, if there is one.
        instructions: Option<String>,
    },
}

impl Strategy {
    /// Returns the capability that the provider must have.
    #[must_use]
    pub fn needs(&self) -> Option<Capability> {
        match self {
            Self::Client => None,
            Self::ContextEditing { .. } => Some(Capability::ContextEditing),
            Self::ServerThreshold(_) => Some(Capability::CompactThreshold),
            Self::ServerOnDemand { .. } => Some(Capability::CompactOnDemand),
        }
    }

    /// Returns the work that every request for a reply asks of the provider.
    #[must_use]
    pub fn work(&self) -> ContextWork {
        match self {
            Self::Client | Self::ServerOnDemand { .. } => ContextWork::Nothing,
            Self::ContextEditing { clear, thinking } => {
                // Providers require thinking to be the first edit of the list.
                let thinking = thinking.map(ServerEdit::ClearThinking).into_iter();
                let edits = thinking.chain([ServerEdit::ClearToolUses(clear.clone())]);
                ContextWork::Edit(edits.collect())
            }
            Self::ServerThreshold(compact) => {
                ContextWork::Edit([ServerEdit::Compact(compact.clone())].into())
            }
        }
    }

    /// Returns the selection of the preset's layers that run in the client.
    #[must_use]
    pub fn layers(&self) -> ClientLayers {
        match self {
            Self::Client => ClientLayers::All,
            Self::ContextEditing { .. } => ClientLayers::NoClearing,
            Self::ServerThreshold(_) => ClientLayers::OnRequest,
            Self::ServerOnDemand { trigger_tokens, .. } => ClientLayers::SummaryAt(*trigger_tokens),
        }
    }

    /// Returns the work that a request for a summary asks of the provider, with `focus` as the
    /// thing to preserve; `None` where the client writes its own prompt.
    #[must_use]
    pub fn summary(&self, focus: Option<&str>) -> Option<ContextWork> {
        let Self::ServerOnDemand { instructions: own, .. } = self else { return None };
        let own = own.as_deref();
        let instructions = match focus {
            None => own.map(str::to_owned),
            Some(focus) => Some(format!(
                "{} Pay special attention to preserving details about: {focus}.",
                own.unwrap_or(INSTRUCTIONS)
            )),
        };
        Some(ContextWork::Summarise { instructions: instructions.map(fitting) })
    }
}

/// Adds further instructions to a request for a summary.
pub fn instruct(work: &mut ContextWork, more: &str) {
    if let ContextWork::Summarise { instructions } = work {
        let own = instructions.as_deref().unwrap_or(INSTRUCTIONS);
        *instructions = Some(fitting(format!("{own}\n\nAdditional instructions:\n{more}")));
    }
}

fn fitting(instructions: String) -> Arc<str> {
    match instructions.char_indices().nth(MOST_INSTRUCTIONS_CHARS) {
        Some((end, _)) => instructions[..end].into(),
        None => instructions.into(),
    }
}

/// Returns the strategy for the next call: the wanted one if the provider has the capability, else
/// the client alone. `room_tokens` is the part of the window that is left for a request.
#[must_use]
pub fn choose(
    settings: &StrategySettings,
    preference: Preference,
    room_tokens: u64,
    capabilities: &Capabilities,
) -> Strategy {
    let wanted = wanted(settings, preference, room_tokens);
    match wanted.needs() {
        Some(capability) if !capabilities.has(capability) => Strategy::Client,
        Some(_) | None => wanted,
    }
}

fn wanted(settings: &StrategySettings, preference: Preference, room: u64) -> Strategy {
    match (settings.wanted, preference) {
        (Wanted::Auto, Preference::Client) | (Wanted::Client, _) => Strategy::Client,
        (Wanted::Auto, Preference::ContextEditing) | (Wanted::ContextEditing, _) => {
            // In a small window the trigger is at most half of the room, as the default is half of
            // a usual window.
            let trigger_tokens = settings.clear.trigger_tokens.min(room / 2);
            let clear = ClearToolUses { trigger_tokens, ..settings.clear.clone() };
            Strategy::ContextEditing { clear, thinking: settings.thinking }
        }
        (Wanted::ServerThreshold, _) => {
            // An eighth of the room is left for what one turn may add.
            let trigger_tokens = settings.compact.trigger_tokens.min(room - room / 8);
            if trigger_tokens < LEAST_TRIGGER_TOKENS {
                return Strategy::Client;
            }
            Strategy::ServerThreshold(Compact { trigger_tokens, ..settings.compact.clone() })
        }
        (Wanted::ServerOnDemand, _) => {
            let instructions = settings.compact.instructions.clone();
            let trigger_tokens = settings.compact.trigger_tokens.min(room - room / 8);
            Strategy::ServerOnDemand { trigger_tokens, instructions }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Capabilities {
        Capability::ALL.into_iter().collect()
    }

    fn settings(wanted: Wanted) -> StrategySettings {
        StrategySettings { wanted, ..StrategySettings::default() }
    }

    fn chosen(wanted: Wanted, preference: Preference, capabilities: &Capabilities) -> &'static str {
        let strategy = match choose(&settings(wanted), preference, 192_000, capabilities) {
            Strategy::Client => Wanted::Client,
            Strategy::ContextEditing { .. } => Wanted::ContextEditing,
            Strategy::ServerThreshold(_) => Wanted::ServerThreshold,
            Strategy::ServerOnDemand { .. } => Wanted::ServerOnDemand,
        };
        strategy.name()
    }

    #[test]
    fn what_is_wanted_is_chosen_where_the_provider_can_do_it() {
        for wanted in Wanted::ALL.into_iter().filter(|wanted| *wanted != Wanted::Auto) {
            assert_eq!(chosen(wanted, Preference::Client, &all()), wanted.name());
            let nothing = Capabilities::default();
            assert_eq!(chosen(wanted, Preference::ContextEditing, &nothing), "client");
            let strategy = choose(&settings(wanted), Preference::Client, 192_000, &all());
            let mut but_one = all();
            if let Some(capability) = strategy.needs() {
                but_one.lose(capability);
                assert_eq!(chosen(wanted, Preference::Client, &but_one), "client");
            }
        }
        assert_eq!(chosen(Wanted::Auto, Preference::Client, &all()), "client");
        assert_eq!(chosen(Wanted::Auto, Preference::ContextEditing, &all()), "context_editing");
        let nothing = Capabilities::default();
        assert_eq!(chosen(Wanted::Auto, Preference::ContextEditing, &nothing), "client");
    }

    #[test]
    fn what_the_provider_does_the_client_leaves() {
        let layers = |layers: ClientLayers, preset: &Preset| {
            let left = layers.of(preset);
            let shown = left.layers.iter().map(|layer| match layer {
                Layer::Summary(Summary { summary_auto: false, .. }) => "on request".to_owned(),
                Layer::Summary(Summary { limit: Limit::Tokens { threshold }, .. }) => {
                    format!("summary {threshold}")
                }
                layer => layer.name().to_owned(),
            });
            shown.collect::<Vec<_>>().join(", ")
        };
        let three = |which| layers(which, &Preset::three_layer());
        assert_eq!(three(ClientLayers::All), "micro, summary 50000");
        assert_eq!(three(ClientLayers::NoClearing), "summary 50000");
        assert_eq!(three(ClientLayers::OnRequest), "on request");
        assert_eq!(three(ClientLayers::SummaryAt(9)), "summary 50000");
        let adaptive = |which| layers(which, &Preset::adaptive());
        assert_eq!(adaptive(ClientLayers::NoClearing), adaptive(ClientLayers::All));
        assert_eq!(adaptive(ClientLayers::OnRequest), "on request");
        assert_eq!(adaptive(ClientLayers::SummaryAt(9)), "summary 9");
    }

    #[test]
    fn triggers_come_down_with_the_window() {
        let work =
            |wanted, room| choose(&settings(wanted), Preference::Client, room, &all()).work();
        let trigger = |work: &ContextWork| match work {
            ContextWork::Edit(edits) => match edits.last().expect("an edit") {
                ServerEdit::ClearToolUses(clear) => clear.trigger_tokens,
                ServerEdit::Compact(compact) => compact.trigger_tokens,
                ServerEdit::ClearThinking(_) => panic!("{edits:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(trigger(&work(Wanted::ContextEditing, 200_000)), 100_000);
        assert_eq!(trigger(&work(Wanted::ContextEditing, 30_000)), 15_000);
        assert_eq!(trigger(&work(Wanted::ServerThreshold, 192_000)), 150_000);
        assert_eq!(trigger(&work(Wanted::ServerThreshold, 80_000)), 70_000);
        assert_eq!(work(Wanted::ServerThreshold, 57_000), ContextWork::Nothing);
    }

    #[test]
    fn thinking_is_the_first_edit() {
        let settings = StrategySettings {
            thinking: Some(KeepThinking::Turns(2)),
            ..settings(Wanted::ContextEditing)
        };
        let strategy = choose(&settings, Preference::Client, 192_000, &all());
        let ContextWork::Edit(edits) = strategy.work() else { panic!("{strategy:?}") };
        assert_eq!(edits[0], ServerEdit::ClearThinking(KeepThinking::Turns(2)));
        assert_eq!(edits.len(), 2);
    }

    #[test]
    fn a_focus_stands_in_the_instructions_and_never_makes_them_too_long() {
        let asked = |instructions: Option<&str>, focus: Option<&str>| {
            let mut settings = settings(Wanted::ServerOnDemand);
            settings.compact.instructions = instructions.map(str::to_owned);
            let strategy = choose(&settings, Preference::Client, 192_000, &all());
            match strategy.summary(focus) {
                Some(ContextWork::Summarise { instructions }) => instructions,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(asked(None, None), None);
        assert_eq!(asked(Some("Mine."), None).as_deref(), Some("Mine."));
        let own = asked(Some("Mine."), Some("names")).expect("instructions");
        assert_eq!(&*own, "Mine. Pay special attention to preserving details about: names.");
        let mut work = ContextWork::Summarise { instructions: None };
        instruct(&mut work, "Keep dates.");
        let ContextWork::Summarise { instructions } = work else { panic!("{work:?}") };
        let expected = format!("{INSTRUCTIONS}\n\nAdditional instructions:\nKeep dates.");
        assert_eq!(instructions.as_deref(), Some(expected.as_str()));
        let long = asked(None, Some(&"é".repeat(20_000))).expect("instructions");
        assert!(long.starts_with(INSTRUCTIONS));
        assert_eq!(long.chars().count(), MOST_INSTRUCTIONS_CHARS);
    }
}
