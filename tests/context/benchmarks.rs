//! The conversations that benchmarks make.

use crate::support::conversations::refusals;
use crate::support::made::{Kind, conversation};

#[test]
fn a_conversation_is_determined_by_its_kind_and_seed() {
    for kind in Kind::ALL {
        let made = conversation(kind, 7, 20_000);
        let tokens = made.tokens();
        assert!((20_000..28_000).contains(&tokens), "{}: {tokens} tokens", made.name);
        let (report, asked) = made.messages.split_last().expect("messages");
        assert_eq!(report.to_value()["role"], "assistant");
        assert_eq!(refusals(asked), Vec::<String>::new());
        let again = conversation(kind, 7, 20_000);
        assert_eq!((&made.system, &made.messages), (&again.system, &again.messages));
        assert_ne!(made.messages, conversation(kind, 8, 20_000).messages);
    }
}
