//! Prints views as a model gets them before a turn deep in a conversation, for a person to read.

use std::error::Error;

use callsheet::context::laboratory::replay::Replay;
use callsheet::context::view::{Standing, View};
use callsheet::message::Role;
use serde_json::Value;

use crate::asked::Asked;
use crate::made::Conversation;
use crate::race;

/// Number of views.
const VIEWS: usize = 10;
/// Depths of the turns in their conversations.
const DEPTHS: [f64; 3] = [0.55, 0.97, 0.8];
/// Most lines of a recorded block that are printed from each end: the view holds all of them.
const END_LINES: usize = 12;

/// Prints ten views of different kinds.
pub(crate) fn views(asked: &Asked) -> Result<(), Box<dyn Error>> {
    let window = asked.windows.first().copied().unwrap_or(50_000);
    let classes = asked.classes(window, 2)?;
    let mut shown = 0;
    for round in 0..VIEWS {
        // Long ones first, of each kind in turn.
        let mut classes: Vec<_> = classes.iter().collect();
        classes.sort_by_key(|class| class.name.ends_with("short"));
        for class in classes.iter().take(classes.len().div_ceil(2).max(1)) {
            let Some(conversation) = class.conversations.get(round) else { continue };
            if shown < VIEWS {
                view(asked, conversation, window, DEPTHS[shown % DEPTHS.len()], shown + 1);
                shown += 1;
            }
        }
    }
    Ok(())
}

fn view(asked: &Asked, conversation: &Conversation, window: u64, depth: f64, number: usize) {
    let messages = &conversation.messages;
    let replies =
        || messages.iter().filter(|json| json.to_value()["role"] == Role::Assistant.as_str());
    let wanted = (replies().count() as f64 * depth) as usize;
    let mut replay = Replay::new(&asked.preset, race::around(conversation, window));
    let (mut turn, mut upto) = (0, 0);
    for json in messages {
        if json.to_value()["role"] == Role::Assistant.as_str() {
            replay.before_call();
            turn += 1;
            if turn > wanted {
                break;
            }
        }
        replay.push(json.clone()).expect("what was made or read is a message");
        upto += 1;
    }
    let before: usize = messages[..upto].iter().map(|json| json.as_str().chars().count()).sum();
    println!("\n{}", "=".repeat(100));
    println!(
        "VIEW {number}: `{}`, conversation `{}`, before reply {turn} of {}",
        asked.preset.name,
        conversation.name,
        replies().count()
    );
    let view = replay.view();
    println!(
        "{} messages of {} tokens became {} messages of {} tokens; window {window}",
        upto,
        before / 4,
        view.slots().len(),
        view.chars() / 4
    );
    println!(
        "(of recorded blocks the first and last {END_LINES} lines are printed, of the rest everything)"
    );
    println!(
        "{}\n[system]\n{}{}",
        "=".repeat(100),
        conversation.system,
        view.system().unwrap_or_default()
    );
    slots(view);
}

fn slots(view: &View) {
    for slot in view.parts() {
        let standing = match slot.standing {
            Standing::Verbatim => "recorded",
            Standing::Cleared => "recorded, results cleared",
            Standing::Instead => "in the place of others",
        };
        let last = slot.to.saturating_sub(1).max(slot.from);
        println!("\n[{}] messages {} to {last}, {standing}", slot.entry.role.as_str(), slot.from);
        let message = slot.entry.json.to_value();
        if let Value::String(text) = &message["content"] {
            println!("{text}");
        }
        for block in message["content"].as_array().into_iter().flatten() {
            let text = match block["type"].as_str() {
                Some("text") => block["text"].as_str().unwrap_or_default().to_owned(),
                Some("tool_use") => format!(
                    "-- call {} {}\n{}",
                    block["id"].as_str().unwrap_or_default(),
                    block["name"].as_str().unwrap_or_default(),
                    arguments(&block["input"])
                ),
                Some("tool_result") => format!(
                    "-- result of {}\n{}",
                    block["tool_use_id"].as_str().unwrap_or_default(),
                    result(&block["content"])
                ),
                _ => block.to_string(),
            };
            if slot.standing == Standing::Instead {
                println!("{text}");
            } else {
                println!("{}", ends(&text));
            }
        }
    }
}

fn arguments(input: &Value) -> String {
    let Value::Object(members) = input else { return input.to_string() };
    let lines = members.iter().map(|(name, value)| match value {
        Value::String(text) if text.contains('\n') => format!("{name}:\n{text}"),
        Value::String(text) => format!("{name}: {text}"),
        value => format!("{name}: {value}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn result(content: &Value) -> String {
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}

/// Returns the first and last lines of a text, and how many stand between them.
fn ends(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let Some(left_out) = lines.len().checked_sub(2 * END_LINES + 1).filter(|left| *left > 0) else {
        return text.to_owned();
    };
    let (head, tail) = (&lines[..END_LINES], &lines[lines.len() - END_LINES..]);
    format!("{}\n      (not printed: {} lines)\n{}", head.join("\n"), left_out + 1, tail.join("\n"))
}
