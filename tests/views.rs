//! Views of generated conversations: what every preset must keep, whatever was said.

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
        play(&messages, Unread::Whole, |view| {
            let edits = pipeline::run_cheap_layers(&mut view.clone(), &preset);
            edits.into_iter().map(|edited| edited.edit).collect()
        });
    }
}
