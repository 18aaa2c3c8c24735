//! Checks of the generators behind the benchmarks: conversations of an agent at work.

use crate::conversations::refusals;
use crate::work::Conversation;

#[test]
fn conversations_are_whole_as_long_as_asked_and_the_same_for_a_seed() {
    let made = Conversation::at_work(7, 20_000);
    let (report, asked) = made.messages.split_last().expect("messages");
    assert_eq!(report.to_value()["role"], "assistant");
    assert_eq!(refusals(asked), Vec::<String>::new());
    assert!((20_000..30_000).contains(&made.tokens()), "{}", made.tokens());
    let again = Conversation::at_work(7, 20_000);
    assert_eq!((&made.system, &made.messages), (&again.system, &again.messages));
    assert_ne!(made.messages, Conversation::at_work(8, 20_000).messages);
}
