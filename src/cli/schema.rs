//! `schema`: prints the JSON Schema of the configuration or of the events.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::{args, say_json};
use crate::config;
use crate::event::Event;
use crate::exit::Exit;

pub(super) fn run(verb: &args::Schema) -> Exit {
    let schema = match verb.of {
        args::SchemaOf::Config => config::json_schema(),
        args::SchemaOf::Events => events(),
    };
    say_json(&format!("{schema:#}\n"))
}

/// Returns the schema of one line of `run --json` and `tail --json`.
fn events() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let payloads = Event::schemas(&mut generator);
    let types = Event::TABLE.iter().zip(payloads).map(|((name, doc), payload)| {
        json!({
            "title": name,
            "description": doc.trim(),
            "properties": { "type": { "const": name }, "data": payload },
        })
    });
    let types: Vec<_> = types.collect();
    let name = json!({ "type": ["string", "null"] });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "callsheet event",
        "description": "One event of a run. Fields are only ever added.",
        "type": "object",
        "required": ["v", "seq", "ep", "ts", "task", "agent", "type", "data"],
        "properties": {
            "v": { "const": 1, "description": "Version of the format" },
            "seq": { "type": "integer", "minimum": 1, "description": "Number of the event in its run, without gaps" },
            "ep": { "type": "integer", "minimum": 1, "description": "Number of the opening of the run that recorded it" },
            "ts": { "type": "string", "format": "date-time", "description": "Time in UTC, in milliseconds" },
            "task": name,
            "agent": name,
            "type": { "type": "string" },
            "data": { "type": "object" },
        },
        "anyOf": types,
        "$defs": generator.take_definitions(true),
    })
}
