//! The page about the tools in the documentation.

use super::{ToolSpec, bash, files, search, skills};
use crate::context::layers::preset::Preset;
use crate::own_tool::{OwnTool, Wording};

/// Returns the specs of all built-in tools as Markdown, for the documentation.
fn reference(tools: &[ToolSpec]) -> String {
    let mut page = String::from(
        "# Tools\n\nThe built-in tools, with their arguments as a script or a model writes them; \
         [your own](#tools-of-your-own) come last. An agent may call those that it lists in `tools`; `delegate` follows from `sub_agents`, \
         `load_skill` from `skills`, and `recall` and `compact` from the preset of compaction. The \
         effect tells what happens to a call that a crash cut short: a pure or a keyed one is made \
         again, the state of its file decides about a checked one, and the outcome of one that must \
         happen once is reported as unknown.\n\n",
    );
    let entry = |name: &str| format!("- [`{name}`](#{name})\n");
    page.extend(tools.iter().map(|tool| entry(tool.name.as_str())));
    page.push_str("- [Tools of your own](#tools-of-your-own)\n");
    for tool in tools {
        let schema = tool.input_schema.to_value();
        let effect = format!("{:?}", tool.effect).to_lowercase();
        page.push_str(&format!("\n## `{}`\n\n", tool.name));
        page.push_str(&format!("{}\n\nEffect: {effect}.\n\n", tool.description));
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty())
        else {
            page.push_str("No arguments.\n");
            continue;
        };
        page.push_str("| argument | type | needed | meaning |\n| --- | --- | --- | --- |\n");
        for (name, property) in properties {
            let kind = property["type"].as_str().unwrap_or("any");
            let is_needed = required.iter().any(|needed| needed == name);
            let meaning = property["description"].as_str().unwrap_or_default();
            let needed = if is_needed { "yes" } else { "no" };
            let meaning = meaning.replace('|', "\\|");
            page.push_str(&format!("| `{name}` | {kind} | {needed} | {meaning} |\n"));
        }
    }
    page
}

#[test]
fn the_page_in_the_documentation_is_this_one() {
    let preset = Preset::production();
    let own = bash::tools().into_iter().chain(files::tools());
    let own = own.chain(search::tools()).chain(skills::tools());
    let mut specs: Vec<ToolSpec> = own.map(|tool| tool.spec().clone()).collect();
    let wording = Wording {
        helpers: Some(&[("helper", "what its `description` says")]),
        background: true,
        compact: &preset.compact_tool,
        snip: preset.snip_tool.as_ref(),
    };
    specs.extend(OwnTool::ALL.iter().filter_map(|tool| tool.spec(&wording)));
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools.md");
    // The rest of the page is written by hand.
    const OWN: &str = "\n## Tools of your own\n";
    let page = std::fs::read_to_string(path).expect("a page");
    let own = page.find(OWN).map_or("", |at| &page[at..]);
    let whole = reference(&specs) + own;
    if std::env::var_os("CALLSHEET_WRITE_DOCS").is_some() {
        std::fs::write(path, &whole).expect("written");
    }
    let same = std::fs::read_to_string(path).is_ok_and(|page| page == whole);
    assert!(same, "stale: CALLSHEET_WRITE_DOCS=1 cargo test --lib tool::tests writes {path}");
}
