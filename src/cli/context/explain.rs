//! `context explain`: prints what the next request of an agent would contain, in tokens, and the
//! edits that led to it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Value, json};

use crate::cli::args::Explain;
use crate::cli::locate::{self, Project};
use crate::cli::{complain, say, say_json, trust};
use crate::config::{self, Config, Missing, Sources};
use crate::context::Edit;
use crate::context::laboratory::explain::{RecordedEdit, RequestPart, parts};
use crate::context::measure::CHARS_PER_TOKEN;
use crate::event::RunCreated;
use crate::exit::Exit;
use crate::id::AgentId;
use crate::journal::stamp;
use crate::message::Json;
use crate::printable;
use crate::report::next_request::{NextRequest, edit_json};
use crate::report::short;
use crate::run;
use crate::run_state::AgentStatus;
use crate::show::names::Names;

/// An agent's next request, explained.
struct Explained<'a> {
    id: &'a AgentId,
    /// The agent by the name that people know.
    shown: String,
    next: NextRequest,
    /// Size of each part of the request, in characters.
    parts: BTreeMap<RequestPart, usize>,
    /// The size of the model's window in tokens, if the configuration could be read.
    window: Option<u64>,
}

pub(super) fn run(project: &Project, verb: &Explain) -> Exit {
    match explain(project, verb) {
        Ok(text) if verb.json => say_json(&text),
        Ok(text) => say(&text),
        Err(exit) => exit,
    }
}

fn explain(project: &Project, verb: &Explain) -> Result<String, Exit> {
    let (dir, part) = project.part(Some(&verb.what))?;
    let locate::Selector::Agent(name) = part else {
        complain("error: an agent is needed: RUN/@AGENT");
        return Err(Exit::Usage);
    };
    let state = project.state(&dir)?;
    let config = state.created().and_then(|created| configuration(project, created));
    let (mut all, names) = (String::new(), Names::of(&state));
    for (id, agent) in locate::agents(&state, &name)? {
        let next = project.view(&dir, id)?;
        let shown = names.shown(id.as_str()).into_owned();
        let mut explained =
            Explained { id, shown, parts: parts(&next.view, &next.history), next, window: None };
        if let Some(config) = &config {
            explained.add_front(config, agent);
        }
        all.push_str(&if verb.json { explained.json() } else { explained.text() });
    }
    Ok(all)
}

/// Loads the configuration that the run was started with. If that fails, prints a note and returns
/// `None`.
fn configuration(project: &Project, created: &RunCreated) -> Option<Config> {
    let sources = Sources {
        profile: created.profile.clone(),
        missing_keys: Missing::Allow,
        missing_inputs: Missing::Allow,
        ..project.sources()
    };
    let read =
        |outside| config::load_text(&created.config, &Sources { outside, ..sources.clone() });
    let config = trust::look(read).ok();
    if config.is_none() {
        complain(
            "note: the run's configuration cannot be read again: system prompt, tools and window \
             are left out",
        );
    }
    config
}

impl Explained<'_> {
    /// Adds the system prompt and the tools, which come before the messages of every request, and
    /// the model's window.
    fn add_front(&mut self, config: &Config, agent: &AgentStatus) {
        let Some(definition) = &agent.definition else { return };
        if let Some(front) = run::front(config, definition, agent.depth) {
            let tools = Json::encode(&front.tools);
            *self.parts.entry(RequestPart::System).or_insert(0) += front.system.chars().count();
            *self.parts.entry(RequestPart::Tools).or_insert(0) += tools.as_str().chars().count();
        }
        let model = config.agents.get(definition).and_then(|spec| config.models.get(&spec.model));
        self.window = model.map(|model| model.context_window);
    }

    fn tokens(&self) -> usize {
        self.parts.values().sum::<usize>() / CHARS_PER_TOKEN as usize
    }

    fn json(&self) -> String {
        let part = |(part, chars): (&RequestPart, &usize)| {
            let size = json!({"chars": chars, "tokens": chars / CHARS_PER_TOKEN as usize});
            (part.name().to_owned(), size)
        };
        let counted = self.next.counted;
        let document = json!({
            "agent": self.id,
            "turn": self.next.turn,
            "open_calls": self.next.open_calls,
            "conversation": self.next.view.next_message(),
            "messages": self.next.view.slots().len(),
            "tokens": self.tokens(),
            "context_window": self.window,
            "parts": self.parts.iter().map(part).collect::<serde_json::Map<_, _>>(),
            "counted": counted.map(|(turn, tokens)| json!({"turn": turn, "tokens": tokens})),
            "edits": self.next.history.edits().iter().map(edit_json).collect::<Vec<Value>>(),
        });
        format!("{document}\n")
    }

    fn text(&self) -> String {
        let next = &self.next;
        let mut text = format!(
            "agent {}, turn {}: {} messages in the view, {} in the conversation\n\n",
            self.shown,
            next.turn,
            next.view.slots().len(),
            next.view.next_message()
        );
        let mut line = |what: &str, chars: usize, rest: &str| {
            let tokens = short(chars as u64 / CHARS_PER_TOKEN);
            text.push_str(&format!("{what:14}  {tokens:>8}{rest}\n"));
        };
        self.parts.iter().for_each(|(part, chars)| {
            line(&part.name().replace('_', " "), *chars, "");
        });
        let of = self.window.map(|window| format!(" of {} tokens", short(window)));
        line("total", self.parts.values().sum(), &of.unwrap_or_else(|| " tokens".to_owned()));
        if let Some((turn, tokens)) = next.counted {
            text.push_str(&format!("the provider counted {} in turn {turn}\n", short(tokens)));
        }
        if next.open_calls > 0 {
            text.push_str(&format!(
                "{} calls have no result yet: their results will be added\n",
                next.open_calls
            ));
        }
        if !next.history.edits().is_empty() {
            text.push_str("\nwhat was changed, oldest first:\n");
        }
        // A layer may clear a little before every call: its edits in a row share one line.
        for edits in next.history.edits().chunk_by(|a, b| a.layer == b.layer) {
            text.push_str(&changes(edits));
        }
        text
    }
}

/// Formats consecutive edits of one layer as one line.
fn changes(edits: &[RecordedEdit]) -> String {
    let (Some(first), Some(last)) = (edits.first(), edits.last()) else { return String::new() };
    // Several edits may cover the same result or message: each counts once.
    let (mut results, mut messages) = (HashSet::new(), BTreeSet::new());
    for edit in edits {
        match &edit.edit {
            Edit::ClearResults { results: cleared } => {
                results.extend(cleared.iter().map(|c| (c.message, c.tool_use_id.as_str())));
            }
            Edit::Replace { from, to, .. } | Edit::DropThinking { from, to } => {
                messages.extend(*from..*to);
            }
            Edit::Record(record) => messages.extend(record.from..record.to),
            Edit::Window { to, .. } => messages.extend(0..*to),
        }
    }
    let (results, messages) = (results.len(), messages.len());
    let what = match (results, messages) {
        (0, messages) => format!("{messages} messages"),
        (results, 0) => format!("{results} results"),
        (results, messages) => format!("{results} results, {messages} messages"),
    };
    let covers = || edits.iter().flat_map(RecordedEdit::covers);
    let from = covers().map(|(from, _)| from).min().unwrap_or_default();
    let to = covers().map(|(_, to)| to).max().unwrap_or_default();
    let size = match edits {
        [only] => format!("{} -> {} tokens", short(only.before_tokens), short(only.after_tokens)),
        several => {
            let freed = |edit: &RecordedEdit| edit.before_tokens.saturating_sub(edit.after_tokens);
            format!("{} tokens less", short(several.iter().map(freed).sum()))
        }
    };
    let both = |a: String, b: String| if a == b { a } else { format!("{a} to {b}") };
    format!(
        "{}: {what} ({}), {size}, record {}, {}\n",
        printable::line(&first.layer),
        both(from.to_string(), to.saturating_sub(1).to_string()),
        both(first.seq.to_string(), last.seq.to_string()),
        both(stamp::text(first.ts_ms), stamp::text(last.ts_ms)),
    )
}
