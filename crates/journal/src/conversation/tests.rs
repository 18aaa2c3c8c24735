//! Every format, whole and broken.

use std::io::{Cursor, Write};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::message::Message;

const USER: &str = r#"{"role":"user","content":"Sum é 1 2"}"#;
const CALL: &str = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"x=="},{"type":"tool_use","id":"t1","name":"sum","input":{"of":[1,2.50,1e3]}}]}"#;
const RESULT: &str = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"3 é"},{"type":"later_kind","x":null}]}"#;
const ANSWER: &str = r#"{"role":"assistant","content":"It is \"3\"."}"#;
const MESSAGES: [&str; 4] = [USER, CALL, RESULT, ANSWER];

fn open(text: impl AsRef<[u8]>) -> Result<Conversation> {
    Conversation::read(Cursor::new(text.as_ref().to_vec()), History::SinceCompaction)
}

/// The messages up to the first error, and the error.
fn all(text: impl AsRef<[u8]>) -> (Vec<Recorded>, Option<ConversationError>) {
    let mut conversation = match open(text) {
        Ok(conversation) => conversation,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut messages, mut wrong) = (Vec::new(), None);
    for message in &mut conversation {
        match message {
            Ok(message) => messages.push(message),
            Err(error) => wrong = Some(error),
        }
    }
    assert!(conversation.next().is_none(), "nothing follows the end");
    (messages, wrong)
}

fn texts(text: impl AsRef<[u8]>) -> Vec<String> {
    let (messages, wrong) = all(text);
    assert!(wrong.is_none(), "{wrong:?}");
    for message in &messages {
        let read = Message::read(message.json.as_str()).expect("a message");
        assert_eq!(read.role, message.role);
    }
    messages.iter().map(|message| message.json.as_str().to_owned()).collect()
}

fn mistake(text: impl AsRef<[u8]>) -> String {
    all(text).1.expect("a mistake").to_string()
}

fn transcript(messages: &[&str]) -> String {
    let line = |(seq, message): (u64, &&str)| {
        format!("{{\"seq\":{seq},\"ts\":\"2026-11-18T02:04:05.123Z\",\"message\":{message}}}\n")
    };
    (7..).zip(messages).map(line).collect()
}

#[test]
fn documents_are_read_in_any_shape() {
    let list = format!("[{}]", MESSAGES.join(","));
    let system = r#""Be é brief.""#;
    let cases = [
        (list.clone(), None),
        (format!("\u{feff} \r\n{list}\n\n"), None),
        (format!(r#"{{"messages":{list}}}"#), None),
        (format!(r#"{{"system":null,"messages":{list}}}"#), None),
        (format!(r#"{{"system":{system},"messages":{list}}}"#), Some(system)),
        (format!(r#"{{"messages":{list},"system":{system}}}"#), Some(system)),
        (format!(r#"{{"mess\u0061ges":{list} , "system" : {system} }}"#), Some(system)),
        (
            format!(
                r#"{{"model":"m","tools":[{{"x":"]}}\""}}],"n":-1.5,"messages":{list},"max_tokens":9,"system":[{{"type":"text", "text":"a"}}]}}"#
            ),
            Some(r#"[{"type":"text","text":"a"}]"#),
        ),
    ];
    for (text, system) in cases {
        let conversation = open(&text).expect(&text);
        assert_eq!(conversation.system().map(Json::as_str), system, "{text}");
        assert_eq!(conversation.format(), Format::Document);
        assert_eq!(texts(&text), MESSAGES, "{text}");
    }
    assert!(texts("[]").is_empty());
    assert!(texts(r#"{"messages":[]}"#).is_empty());
}

#[test]
fn whitespace_goes_and_text_stays() {
    let pretty = "[ {\n  \"role\" : \"user\" ,\r\n\t\"content\" : [ { \"type\" : \"text\" , \
                  \"text\" : \" a \\\" b \\\\\" } ]\n} ]";
    let expected = r#"{"role":"user","content":[{"type":"text","text":" a \" b \\"}]}"#;
    assert_eq!(texts(pretty), [expected]);
}

#[test]
fn escapes_are_what_they_stand_for() {
    let table = [
        (r"\u00e9 \u76d1\/\ud83d\ude00", "é 监/😀"),
        (r"a half \ud83d, \ude00 \ud83d\u0041", "a half \u{fffd}, \u{fffd} \u{fffd}A"),
        (r"\u0022 \u005c \u000a \n \\u00e9 \\", r"\u0022 \u005c \u000a \n \\u00e9 \\"),
    ];
    for (written, kept) in table {
        let message = |text: &str| format!(r#"[{{"role":"user","content":"{text}"}}]"#);
        assert_eq!(format!("[{}]", texts(message(written))[0]), message(kept));
    }
}

#[test]
fn transcripts_are_read_with_their_numbers() {
    let text = transcript(&MESSAGES);
    assert_eq!(texts(&text), MESSAGES);
    assert_eq!(texts(text.trim_end()), MESSAGES);
    assert_eq!(texts(text.replace('\n', "\r\n\n")), MESSAGES);
    let numbers: Vec<_> = all(&text).0.iter().map(|message| message.seq).collect();
    assert_eq!(numbers, [Some(7), Some(8), Some(9), Some(10)]);
    let mut cut = open(&text[..text.len() - 9]).expect("opens");
    assert_eq!(cut.by_ref().filter(|message| message.is_ok()).count(), 3);
    assert_eq!((cut.format(), cut.skipped()), (Format::Transcript, 1));
}

#[test]
fn every_mistake_says_where_and_what_to_do() {
    let second = |message: &str| format!("[{USER},\n {message}]");
    let cases = [
        (String::new(), "line 1, byte 0: nothing is there"),
        (" \n".to_owned(), "nothing is there"),
        ("hello".to_owned(), r#"line 1, byte 0: "hello" is no conversation"#),
        ("3".to_owned(), "is no conversation"),
        (r#"{"role":"user","content":"x"}"#.to_owned(), "is no conversation"),
        (r#"{"system":"x"}"#.to_owned(), "line 1, byte 14: there is no `messages`"),
        (r#"{"messages":{}}"#.to_owned(), "line 1, byte 12: `messages` is not a list"),
        (r#"{"messages":[],"messages":[]}"#.to_owned(), "byte 26: `messages` is there a second"),
        (r#"{"system":"","system":"","messages":[]}"#.to_owned(), "`system` is there a second"),
        (r#"{"system":3,"messages":[]}"#.to_owned(), "line 1, byte 10: `system` is neither"),
        (r#"{"system":[{"type":"image"}],"messages":[]}"#.to_owned(), "`system` is neither"),
        ("[] []".to_owned(), "line 1, byte 3: something follows"),
        (r#"{"messages":[]}{"messages":[]}"#.to_owned(), "something follows"),
        ("[".to_owned(), "line 1, byte 0: the file ends inside"),
        (r#"{"messages":[1"#.to_owned(), "line 1, byte 12: the file ends inside"),
        (r#"{"messages":[],"#.to_owned(), "line 1, byte 0: the file ends inside"),
        (r#"{"a""#.to_owned(), "line 1, byte 0: the file ends inside"),
        (r#"{"messages":[] "system":""}"#.to_owned(), "byte 15: not JSON: `,` or `}` is expected"),
        (r#"{"a" 1}"#.to_owned(), "byte 5: not JSON: `:` is expected"),
        (r#"{"messages":[],3:4}"#.to_owned(), "a key in quotes is expected"),
        (r#"{"messages":}"#.to_owned(), "byte 12: not JSON: a value is expected"),
        (second(r#"{"role":"system","content":"x"}"#), "line 2, byte 42: a message of role `sys"),
        (
            second("7"),
            "line 2, byte 42: not a message: invalid type: integer `7`, expected an object",
        ),
        (second(r#"{"role":"user"}"#), "not a message: missing field `content`"),
        (second(r#"{"role":"user","content":null}"#), "its content is neither"),
        (second(r#"{"role":"user","content":[3]}"#), "not a message"),
        (second(r#"{"role":"user","content":[{}]}"#), "not a message: missing field `type`"),
        (second("{\"role\":\n\"user\" \"content\":\"x\"}"), "line 3, byte 58: not JSON: expected"),
        (second("{\"role\":\"user\",\"content\":\"\n\"}"), "line 2, byte 67: not JSON: control"),
        (second(r#"{"role":"user","content":1 2}"#), "byte 69: not JSON: expected `,` or `}`"),
        (second(&format!("{USER} 2")), "byte 81: not JSON: `,` or `]` is expected"),
        (second(""), "not JSON: a value is expected"),
        (format!("[{USER},]"), "not JSON: a value is expected"),
    ];
    for (text, expected) in cases {
        let found = mistake(&text);
        assert!(found.contains(expected), "{text}\n  gives {found}\n  not {expected}");
        assert!(!found.contains("at line 1 column"), "{found}");
    }
    let mut latin = format!("[{USER}]").into_bytes();
    latin[28] = 0xe9;
    assert_eq!(mistake(&latin), "line 1, byte 28: not UTF-8; convert the file first");
    let line = transcript(&[USER]).len();
    let broken = mistake(transcript(&MESSAGES).replacen("assistant", "tool", 1));
    assert!(
        broken.starts_with(&format!("line 2, byte {line}: a message of role `tool`")),
        "{broken}"
    );
    let broken = mistake(transcript(&MESSAGES).replacen("ant\"", "ant", 1));
    assert!(broken.starts_with("line 2, byte "), "{broken}");
}

#[test]
fn a_pipe_and_a_file_give_the_same() {
    let text = format!(r#"{{"messages":[{}],"system":"s"}}"#, MESSAGES.join(","));
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("writes");
    let file = Conversation::open(file.path(), History::Whole).expect("opens");
    let pipe = Conversation::copy(text.as_bytes(), History::Whole).expect("opens");
    assert_eq!(pipe.system().map(Json::as_str), Some("\"s\""));
    let read = |source: Conversation| source.map(|m| m.expect("a message")).collect::<Vec<_>>();
    assert_eq!(read(file), read(pipe));
    let nowhere = Conversation::open(Path::new("/nowhere/at/all"), History::Whole);
    assert!(nowhere.expect_err("no file").to_string().contains("not readable"));
}

#[test]
fn a_message_longer_than_any_is_refused_before_it_is_held() {
    /// `[{"role":"user","content":"xxx...` for as long as anyone reads, as a file of 1 TB.
    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let begin = br#"[{"role":"user","content":""#;
            for byte in into.iter_mut() {
                *byte = begin.get(self.0 as usize).copied().unwrap_or(b'x');
                // The end of a long message, so that the first pass ends.
                if self.0 > 2 * MOST_BYTES as u64 {
                    *byte = *b"\"}] ".get((self.0 as usize - 1) % 4).expect("one of four");
                }
                self.0 += 1;
            }
            let left = (2 * MOST_BYTES as u64 + 4).saturating_sub(self.0 - into.len() as u64);
            Ok(into.len().min(left as usize))
        }
    }
    impl Seek for Endless {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            match to {
                io::SeekFrom::Start(at) => self.0 = at,
                io::SeekFrom::Current(way) => self.0 = self.0.saturating_add_signed(way),
                io::SeekFrom::End(_) => return Err(io::ErrorKind::Unsupported.into()),
            }
            Ok(self.0)
        }
    }
    let conversation = Conversation::read(Endless(0), History::Whole);
    let found = conversation.map(|mut all| all.next().expect("an item").expect_err("too long"));
    let found = found.unwrap_or_else(|error| error);
    assert!(matches!(found.kind, ConversationErrorKind::TooLong), "{found}");
}

/// A JSON value of the kinds that tool inputs have.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[ -~]{0,6}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let block = prop_oneof![
        ".{0,20}".prop_map(|text| json!({"type": "text", "text": text})),
        ("[a-z]{1,4}", value()).prop_map(
            |(id, input)| json!({"type": "tool_use", "id": id, "name": "t", "input": input})
        ),
        ("[a-z]{1,4}", ".{0,20}").prop_map(
            |(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text})
        ),
        value().prop_map(|inside| json!({"type": "other", "inside": inside})),
    ];
    let content = prop_oneof![
        ".{0,20}".prop_map(Value::from),
        prop::collection::vec(block, 0..4).prop_map(Value::from),
    ];
    let role = prop_oneof![Just("user"), Just("assistant")];
    (role, content).prop_map(|(role, content)| json!({"role": role, "content": content}))
}

fn written(value: &Value, pretty: bool) -> String {
    if pretty { format!("{value:#}") } else { value.to_string() }
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        messages in prop::collection::vec(message(), 0..6),
        system in prop::option::of(".{0,20}"),
        extra in value(),
        order in any::<[u8; 3]>(),
        pretty in any::<bool>(),
    ) {
        let compact: Vec<_> = messages.iter().map(Value::to_string).collect();
        let mut members = vec![
            (order[0], "messages", Value::from(messages.clone())),
            (order[1], "extra", extra),
        ];
        members.extend(system.clone().map(|system| (order[2], "system", Value::from(system))));
        members.sort_by_key(|(place, ..)| *place);
        let members = members.into_iter().map(|(_, key, value)| (key.to_owned(), value));
        let document = written(&Value::Object(members.collect()), pretty);
        let read = open(&document).expect("opens");
        prop_assert_eq!(read.system().map(Json::to_value), system.map(Value::from));
        prop_assert_eq!(texts(&document), compact.clone());
        prop_assert_eq!(texts(written(&Value::from(messages), pretty)), compact.clone());
        if !compact.is_empty() {
            let lines = transcript(&compact.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(texts(lines), compact);
        }
    }

    #[test]
    fn a_wrong_byte_anywhere_is_no_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for text in samples() {
            let mut text = text.into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            all(text);
        }
    }
}

/// A file of each format.
fn samples() -> [String; 4] {
    let list = MESSAGES.join(", ");
    [
        format!("[{list}]"),
        format!(r#"{{"messages":[{list}],"x":[1],"system":"s"}}"#),
        transcript(&MESSAGES),
        claude_code::sample(),
    ]
}

#[test]
fn a_file_cut_anywhere_gives_what_is_whole_or_says_so() {
    for (kind, text) in samples().into_iter().enumerate() {
        let whole = texts(&text);
        for end in 0..text.len() {
            let (messages, wrong) = all(&text.as_bytes()[..end]);
            let messages: Vec<_> = messages.iter().map(|m| m.json.as_str()).collect();
            if kind < 2 {
                assert!(wrong.is_some(), "a document cut at {end}");
            }
            if kind < 3 {
                assert!(messages.iter().zip(&whole).all(|(a, b)| a == b), "cut at {end}");
            }
        }
    }
}

mod claude_code;
