//! Views of generated conversations: what every preset must keep, whatever was said.

use callsheet::context::layer::{Surroundings, Window};
use callsheet::context::pipeline;
use callsheet::context::preset::Preset;
use proptest::prelude::*;

use crate::conversations::{Unread, conversation, play};

/// Enough to meet every kind of step next to every other in a test that takes seconds.
fn cases() -> ProptestConfig {
    ProptestConfig { cases: 64, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn clearing_keeps_every_property(messages in conversation(0..12)) {
        let preset = Preset::three_layer();
        let window = Window { tokens: 200_000, output: 8_000, overhead: 0 };
        let around = Surroundings::new("t.jsonl", "results", window);
        play(&messages, Unread::Whole, |view| {
            let changes = pipeline::run_cheap_layers(&mut view.clone(), &preset, &around);
            changes.into_iter().map(|change| change.edited.edit).collect()
        });
    }
}
