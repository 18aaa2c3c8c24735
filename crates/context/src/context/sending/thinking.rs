//! Stale thinking: thinking that the provider refuses because something before it has changed.
//!
//! Pure. A model may bind its thinking to all text before it: once an edit has changed something
//! there, the provider refuses that thinking. All thinking from the first such block on is then
//! left out by an edit of its own, so that a rebuilt view has the same bytes.

use crate::context::Edit;
use crate::context::layers::pipeline;
use crate::context::layers::pipeline::AppliedEdit;
use crate::context::view::View;

/// Layer name under which left-out thinking is recorded.
pub const NAME: &str = "thinking";

/// Returns the edit that leaves out stale thinking, if there is any. A slot gets a new serial
/// whenever it changes, so a slot with a higher serial than a later one was changed after that
/// later one joined.
#[must_use]
pub fn stale(view: &View) -> Option<Edit> {
    let mut newest = 0;
    let stale = view.slots().find(|slot| {
        let is_stale = slot.entry.nature.thinks && slot.serial < newest;
        newest = newest.max(slot.serial);
        is_stale
    })?;
    Some(Edit::DropThinking { from: stale.from, to: view.next_message() })
}

/// Leaves stale thinking out of the view; returns the edit that is to be recorded.
pub fn leave_out_stale(view: &mut View) -> Option<AppliedEdit> {
    let edit = stale(view)?;
    pipeline::apply(view, NAME, edit.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::context::ClearedResult;
    use crate::context::testing::{conversation, refusals, sent, view_of};
    use crate::message::{Json, Message};

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).expect("JSON")
    }

    fn call(id: &str) -> Json {
        let thinking = r#"{"type":"thinking","thinking":"hm","signature":"s"}"#;
        let call = format!(r#"{{"type":"tool_use","id":"{id}","name":"bash","input":{{}}}}"#);
        json(&format!(r#"{{"role":"assistant","content":[{thinking},{call}]}}"#))
    }

    fn result(id: &str) -> Json {
        let result = format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"long"}}"#);
        json(&format!(r#"{{"role":"user","content":[{result}]}}"#))
    }

    fn view() -> View {
        let go = Json::encode(&Message::user("go"));
        view_of(&[go, call("0"), result("0"), call("1"), result("1"), call("2"), result("2")])
    }

    fn clear(message: u64, id: &str) -> Edit {
        let (tool_use_id, text) = (id.to_owned(), "[x]".to_owned());
        let cleared = ClearedResult { message, tool_use_id, text, stored: None, kept_chars: 0 };
        Edit::ClearResults { results: vec![cleared] }
    }

    fn thinks(view: &View) -> Vec<u64> {
        let thinking = view.slots().filter(|slot| slot.entry.nature.thinks);
        thinking.map(|slot| slot.from).collect()
    }

    #[test]
    fn an_edit_costs_the_thinking_behind_it_once() {
        let mut view = view();
        assert_eq!(stale(&view), None);
        view.apply(&clear(2, "0")).expect("applies");
        assert_eq!(stale(&view), Some(Edit::DropThinking { from: 3, to: 7 }));
        assert!(leave_out_stale(&mut view).is_some());
        assert_eq!((thinks(&view), stale(&view)), (vec![1], None));
        view.push(call("3")).expect("a message");
        view.push(result("3")).expect("a message");
        assert_eq!((thinks(&view), stale(&view)), (vec![1, 7], None), "new thinking stays");
        view.apply(&clear(8, "3")).expect("applies");
        assert_eq!(stale(&view), None, "nothing thinks behind it");
    }

    #[test]
    fn a_gap_is_a_change_too() {
        let mut view = view();
        view.apply(&Edit::Replace { from: 1, to: 3, with: Vec::new() }).expect("applies");
        assert_eq!(stale(&view), Some(Edit::DropThinking { from: 3, to: 7 }));
    }

    #[test]
    fn a_message_of_thinking_alone_stays_a_message() {
        let thought = r#"{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}"#;
        let ask = || Json::encode(&Message::user("go"));
        let mut view = view_of(&[ask(), json(thought), ask()]);
        view.apply(&Edit::DropThinking { from: 0, to: 3 }).expect("applies");
        assert_eq!(refusals(&sent(&view)), Vec::<String>::new());
        assert!(thinks(&view).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        /// Thinking that is kept stands behind exactly what it stood behind when it came.
        #[test]
        fn kept_thinking_has_its_beginning(
            messages in conversation(1..12),
            picks in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 12),
        ) {
            let mut view = View::default();
            let mut came_behind: Vec<Vec<Json>> = Vec::new();
            for (at, message) in messages.iter().enumerate() {
                came_behind.push(sent(&view));
                view.push(message.clone()).expect("a message");
                if at % 2 == 1 {
                    continue;
                }
                if let Some((true, pick)) = picks.get(at / 2)
                    && let all = view.results().cloned().collect::<Vec<_>>()
                    && let Some(result) = (!all.is_empty()).then(|| pick.get(&all).clone())
                {
                    view.apply(&clear(result.message, &result.tool_use_id)).expect("applies");
                }
                leave_out_stale(&mut view);
                let seen = sent(&view);
                for (place, slot) in view.slots().enumerate() {
                    if slot.entry.nature.thinks {
                        let number = usize::try_from(slot.from).expect("small");
                        prop_assert_eq!(&slot.entry.json, &messages[number]);
                        prop_assert_eq!(&seen[..place], came_behind[number].as_slice());
                    }
                }
                prop_assert!(stale(&view).is_none());
            }
        }
    }
}
