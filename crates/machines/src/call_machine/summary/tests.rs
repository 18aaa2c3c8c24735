//! Table tests of the writing of a summary.

use serde_json::json;

use super::*;
use crate::context::CompactionTrigger;
use crate::context::layers::summary::{Quote, Reading, SummaryInput, Urgency};
use crate::context::view::View;
use crate::message::Role;
use crate::spec::capability::Capability;

const ON_PREFIX: Means =
    Means { by_provider: false, on_prefix: true, window: 1_000_000, max_output_tokens: 100 };
const IN_PARTS: Means = Means { on_prefix: false, ..ON_PREFIX };
const BY_PROVIDER: Means = Means { by_provider: true, ..ON_PREFIX };

/// A summary of so many exchanges of about 1,000 characters each, which all must be freed but for 500.
fn due(exchanges: usize) -> SummaryRequest {
    let mut view = View::default();
    for n in 0..exchanges {
        for (role, text) in
            [("user", format!("{n}?")), ("assistant", format!("{n}:{}", "x".repeat(1_000)))]
        {
            view.push(Json::encode(&json!({"role": role, "content": text}))).expect("a message");
        }
    }
    let to = view.next_message();
    SummaryRequest {
        trigger: CompactionTrigger::Auto,
        from: 0,
        to,
        version: view.version_of(0, to),
        focus: None,
        urgency: Urgency::Now,
        fullness: 0,
        covers_chars: 600,
        least_gain: 100,
        limit: 0,
        prefix_tokens: 10_000,
        max_tokens: 100,
        input: SummaryInput::SamePrefix,
        system: String::new(),
        instruction: "Summarise".to_owned(),
        closing: " now.".to_owned(),
        form: Form::Plain,
        material: Material::of(&view, 0, to),
        reading: Reading {
            summary_input_chars: 1_000_000,
            summary_head_chars: 1_000,
            summary_cut: "... {n} left out ...".to_owned(),
        },
        quote: Quote::Bare,
    }
}

fn says(writing: &mut Writing, text: &str) -> Step {
    writing.replied(&Message::assistant(text), &StopReason::EndTurn)
}

fn breaks(writing: &mut Writing) -> Step {
    writing.replied(&Message::assistant("half"), &StopReason::Interrupted("gone".to_owned()))
}

fn fails(writing: &mut Writing, class: ErrorClass) -> Step {
    writing.failed(&ModelError::new(class, "no"))
}

fn text(text: &str) -> Step {
    Step::End(Ok(Written::Text(text.to_owned())))
}

/// The characters of the messages that are sent.
fn sent(step: &Step) -> usize {
    match step {
        Step::OnPrefix(messages) => messages.iter().map(|json| json.as_str().len()).sum(),
        Step::Alone(message) => message.as_str().len(),
        other => panic!("{other:?}"),
    }
}

const UNKNOWN: ErrorClass = ErrorClass::ContextTokens { have: None, max: None };

/// What says that a request is too long, and does not say by how much.
const TOO_LONG_BY: [ErrorClass; 3] = [
    UNKNOWN,
    ErrorClass::RequestBytes,
    ErrorClass::ContextPlusOutput { input: Some(1), limit: Some(2) },
];

const UNSUPPORTED: ErrorClass = ErrorClass::Unsupported(Capability::CompactOnDemand);

#[test]
fn on_the_prefix_the_messages_are_sent_with_the_instruction_at_their_end() {
    let (mut writing, step) = Writing::begin(due(3), ON_PREFIX);
    let Step::OnPrefix(messages) = step else { panic!("{step:?}") };
    assert_eq!(messages.len(), 7);
    let last = Message::read(messages[6].as_str()).expect("a message");
    assert_eq!((last.role, last.text()), (Role::User, "Summarise now.".to_owned()));
    assert_eq!(writing.max_tokens(), 100);
    assert_eq!(says(&mut writing, " short "), text("short"));
    // A model that may write less does.
    let means = Means { max_output_tokens: 7, ..ON_PREFIX };
    assert_eq!(Writing::begin(due(3), means).0.max_tokens(), 7);
}

#[test]
fn a_window_that_is_too_small_for_the_prefix_gets_less_at_once() {
    let sizes = [20_000, 10_100, 8_000, 6_000]
        .map(|window| sent(&Writing::begin(due(20), Means { window, ..ON_PREFIX }).1));
    assert_eq!(sizes[0], sent(&Writing::begin(due(20), ON_PREFIX).1), "it fits");
    assert!(sizes.is_sorted_by(|one, next| one > next), "{sizes:?}");
}

#[test]
fn what_is_too_long_is_made_smaller_five_times() {
    for (means, class) in
        [ON_PREFIX, IN_PARTS].into_iter().flat_map(|means| TOO_LONG_BY.map(|class| (means, class)))
    {
        let (mut writing, step) = Writing::begin(due(60), Means { window: 22_000, ..means });
        let mut sizes = vec![sent(&step)];
        let end = loop {
            match fails(&mut writing, class) {
                end @ Step::End(_) => break end,
                step => sizes.push(sent(&step)),
            }
        };
        assert_eq!(end, unusable(TOO_LONG));
        assert_eq!(sizes.len(), 6, "{class:?} {sizes:?}");
        assert!(sizes[5] < sizes[0] / 2, "{class:?} {sizes:?}");
        // On the way any size can be the right one.
        let (mut writing, _) = Writing::begin(due(3), means);
        fails(&mut writing, class);
        assert_eq!(says(&mut writing, "short"), text("short"));
    }
}

#[test]
fn a_provider_that_names_what_is_too_much_gets_as_much_less() {
    let little = ErrorClass::ContextTokens { have: Some(1_000), max: Some(990) };
    let much = ErrorClass::ContextTokens { have: Some(1_000), max: Some(300) };
    for means in [ON_PREFIX, IN_PARTS] {
        let after = |class| {
            let (mut writing, first) = Writing::begin(due(60), Means { window: 22_000, ..means });
            let next = fails(&mut writing, class);
            (sent(&first), sent(&next))
        };
        let (first, less) = after(little);
        let (_, least) = after(much);
        assert!(less > first / 5 * 4 && less < first, "{first} {less}");
        assert!(least < first / 3, "{first} {least}");
    }
}

#[test]
fn a_material_that_cannot_be_made_smaller_is_not_sent_again() {
    let (mut writing, _) =
        Writing::begin(SummaryRequest { material: Material::default(), ..due(0) }, ON_PREFIX);
    assert_eq!(fails(&mut writing, UNKNOWN), unusable(TOO_LONG));
}

#[test]
fn a_long_text_is_read_part_by_part_each_with_the_summary_of_those_before() {
    // 4,000 characters for a part: space for two summaries of 100 tokens is kept.
    let means = Means { window: 1_600, ..IN_PARTS };
    let (mut writing, mut step) = Writing::begin(due(10), means);
    let mut prompts = Vec::new();
    let end = loop {
        let Step::Alone(message) = &step else { break step };
        prompts.push(Message::read(message.as_str()).expect("a message").text());
        step = says(&mut writing, &format!("summary {}", prompts.len()));
    };
    assert!(prompts.len() > 2, "{}", prompts.len());
    assert!(prompts[0].starts_with("Summarise now.\n\n") && !prompts[0].contains("> summary"));
    for (before, prompt) in (1..).zip(&prompts[1..]) {
        assert!(prompt.contains(&format!("> summary {before}\n")), "{prompt}");
    }
    assert_eq!(end, text(&format!("summary {}", prompts.len())));
}

#[test]
fn parts_that_are_made_smaller_are_read_from_the_first_one() {
    let (mut writing, _) = Writing::begin(due(10), Means { window: 1_600, ..IN_PARTS });
    says(&mut writing, "first");
    let Step::Alone(message) = fails(&mut writing, UNKNOWN) else { panic!("it is asked again") };
    let prompt = Message::read(message.as_str()).expect("a message").text();
    assert!(prompt.contains("0:x") && !prompt.contains("> first"), "{prompt}");
}

#[test]
fn a_stream_that_breaks_is_asked_for_once_more() {
    for means in [ON_PREFIX, IN_PARTS] {
        let (mut writing, _) = Writing::begin(due(3), means);
        assert_eq!(breaks(&mut writing), Step::Again);
        assert_eq!(says(&mut writing, "short"), text("short"));
        let (mut writing, _) = Writing::begin(due(3), means);
        breaks(&mut writing);
        assert_eq!(breaks(&mut writing), unusable("the stream broke"));
    }
    // Each call has its own.
    let (mut writing, _) = Writing::begin(due(10), Means { window: 1_600, ..IN_PARTS });
    breaks(&mut writing);
    says(&mut writing, "first");
    assert_eq!(breaks(&mut writing), Step::Again);
}

#[test]
fn a_provider_writes_it_itself_or_a_model_is_asked() {
    let (mut writing, step) = Writing::begin(due(3), BY_PROVIDER);
    assert_eq!(step, Step::ByProvider(200), "three characters a token");
    assert!(matches!(fails(&mut writing, UNSUPPORTED), Step::OnPrefix(_)));
    assert_eq!(fails(&mut writing, UNSUPPORTED), unusable("the provider cannot do this"));
    let means = Means { on_prefix: false, ..BY_PROVIDER };
    let (mut writing, _) = Writing::begin(due(3), means);
    assert!(matches!(fails(&mut writing, UNSUPPORTED), Step::Alone(_)));

    let (mut writing, _) = Writing::begin(due(3), BY_PROVIDER);
    assert_eq!(fails(&mut writing, UNKNOWN), unusable(TOO_LONG), "it cannot be made smaller");

    let block = |text: &str| json!({"type": "compaction", "content": text});
    let reply = |content: serde_json::Value, stop: &StopReason| {
        let (mut writing, _) = Writing::begin(due(3), BY_PROVIDER);
        let message = json!({"role": "assistant", "content": [content]}).to_string();
        writing.replied(&Message::read(&message).expect("a message"), stop)
    };
    let said = reply(block("so"), &StopReason::Compaction);
    let Step::End(Ok(Written::Block { text, .. })) = said else { panic!("{said:?}") };
    assert_eq!(text, "so");
    let long = block(&"x".repeat(500));
    assert_eq!(reply(long, &StopReason::Compaction), Step::End(Err(NoText::FreesTooLittle)));
    for (stop, reason) in [
        (StopReason::MaxTokens, "it was cut"),
        (StopReason::Refusal(None), "the model refused"),
        (StopReason::ToolUse, "the model called a tool"),
        (StopReason::ContextWindowExceeded, "the context window had no room for it"),
        (StopReason::EndTurn, "it has no text"),
        (StopReason::Interrupted(String::new()), "it has no text"),
    ] {
        assert_eq!(reply(block("so"), &stop), unusable(reason));
    }
    let none = reply(json!({"type": "text", "text": "so"}), &StopReason::Compaction);
    assert_eq!(none, unusable("it has no text"));
}

#[test]
fn what_is_no_summary_or_frees_too_little_ends_it() {
    let end = |reply: &str, stop: StopReason, due: SummaryRequest| {
        Writing::begin(due, ON_PREFIX).0.replied(&Message::assistant(reply), &stop)
    };
    assert_eq!(end(" \n", StopReason::EndTurn, due(3)), unusable("it has no text"));
    assert_eq!(end("so", StopReason::Refusal(None), due(3)), unusable("the model refused"));
    let tagged = SummaryRequest { form: Form::Tagged, ..due(3) };
    let empty = "<summary></summary>";
    let none = unusable("nothing in it is a summary");
    assert_eq!(end(empty, StopReason::EndTurn, tagged), none);
    let long_range = SummaryRequest { covers_chars: 10_000, ..due(3) };
    let long = "x".repeat(801);
    let longer = unusable("it is longer than it may be");
    assert_eq!(end(&long, StopReason::EndTurn, long_range.clone()), longer);
    assert_eq!(end(&long[1..], StopReason::EndTurn, long_range), text(&long[1..]));
    // It covers 600 characters, of which it must free 100.
    assert_eq!(end(&long[..500], StopReason::MaxTokens, due(3)), text(&long[..500]));
    let too_little = Step::End(Err(NoText::FreesTooLittle));
    assert_eq!(end(&long[..501], StopReason::EndTurn, due(3)), too_little);
}

#[test]
fn an_error_that_is_not_about_the_length_ends_it_in_its_words() {
    for means in [ON_PREFIX, IN_PARTS, BY_PROVIDER] {
        for class in [ErrorClass::Overloaded, ErrorClass::Auth, ErrorClass::Fatal] {
            let (mut writing, _) = Writing::begin(due(3), means);
            let end = Step::End(Err(NoText::Model("no".to_owned())));
            assert_eq!(fails(&mut writing, class), end, "{class:?}");
        }
    }
}
