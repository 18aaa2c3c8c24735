//! The tool `load_skill`, which gives a model the text of a `SKILL.md` in a folder of
//! `.agents/skills/`.
//!
//! Owns the format of SKILL.md as far as callsheet uses it: the `name` and `description` of the
//! front matter. A skill is text for the model; callsheet runs nothing in it.

use std::io::Read;
use std::sync::Arc;

use serde::Deserialize;

use super::workspace::Workspace;
use super::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments, blocking};
use crate::id::Name;
use crate::message::Json;
use crate::tool::BoxFuture;
use crate::turn::Effect;

/// Folder of the skills in a workspace, as the Agent Skills format names it.
const FOLDER: &str = ".agents/skills";

/// Longest name of a skill in characters, and longest description: from the same format.
const MAX_NAME_CHARS: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 1024;

/// Largest SKILL.md in bytes: two hundred times what the format advises.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Returns the skill tool.
#[must_use]
pub fn tools() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(LoadSkill { spec: spec() })]
}

/// Returns the named skills with their descriptions, for an agent's system prompt. Leaves out and
/// logs a skill that cannot be used. Reads files, so it blocks.
#[must_use]
pub fn describe(workspace: &Workspace, names: &[String]) -> Vec<(String, String)> {
    let described = names.iter().filter_map(|name| match Skill::open(workspace, name) {
        Ok(skill) => Some((name.clone(), skill.description)),
        Err(error) => {
            tracing::warn!(skill = %name, %error, "skill left out");
            None
        }
    });
    described.collect()
}

/// A skill that was read and checked.
#[derive(Debug, PartialEq, Eq)]
struct Skill {
    description: String,
    body: String,
}

impl Skill {
    fn open(workspace: &Workspace, name: &str) -> Result<Self, ToolError> {
        if !is_name(name) {
            let reason = format!("`{name}` is not a skill's name: use a-z, 0-9 and single hyphens");
            return Err(ToolError::Failed(reason));
        }
        let path = format!("{FOLDER}/{name}/SKILL.md");
        let place = workspace.place(&path)?;
        let (file, size) = place.open()?;
        if size > MAX_FILE_BYTES {
            let reason = format!("`{path}` has {size} bytes, over {MAX_FILE_BYTES}");
            return Err(ToolError::Failed(reason));
        }
        let mut text = String::new();
        let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
        read.map_err(|error| place.refused("read", error))?;
        Self::parse(name, &text).map_err(|reason| ToolError::Failed(format!("`{path}` {reason}")))
    }

    fn parse(folder: &str, text: &str) -> Result<Self, String> {
        let (front, body) = split(text).ok_or("does not begin with front matter between `---`")?;
        let name = field(&front, "name").ok_or("has no `name`")?;
        if name != folder {
            return Err(format!("is named `{name}` but lies in `{folder}`"));
        }
        let description = field(&front, "description").filter(|text| !text.is_empty());
        let description = description.ok_or("has no `description`")?;
        if description.chars().count() > MAX_DESCRIPTION_CHARS {
            return Err(format!("has a `description` over {MAX_DESCRIPTION_CHARS} characters"));
        }
        Ok(Self { description, body: body.trim().to_owned() })
    }
}

fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    name.len() <= MAX_NAME_CHARS
        && name.bytes().all(fits)
        && name.split('-').all(|word| !word.is_empty())
}

/// Splits a file into the lines of its front matter and the text after it.
fn split(text: &str) -> Option<(Vec<&str>, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let mut used = lines.next().filter(|line| line.trim_end() == "---")?.len();
    let mut front = Vec::new();
    for line in lines {
        used += line.len();
        if line.trim_end() == "---" {
            return Some((front, &text[used..]));
        }
        front.push(line.trim_end());
    }
    None
}

/// Returns the text of a top-level key in the forms of YAML that people use for texts: plain,
/// quoted, folded (`>`) and literal (`|`), on one line or on indented lines.
fn field(front: &[&str], key: &str) -> Option<String> {
    let of_key = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
    let (at, first) = front.iter().enumerate().find_map(|(at, l)| Some((at, of_key(l)?)))?;
    let more = front[at + 1..].iter().take_while(|line| line.is_empty() || line.starts_with(' '));
    let more: Vec<&str> = more.map(|line| line.trim()).collect();
    if first.starts_with('|') {
        return Some(more.join("\n").trim().to_owned());
    }
    let first = if first.starts_with('>') { "" } else { first.as_str() };
    let words = std::iter::once(first).chain(more).filter(|line| !line.is_empty());
    let text = words.collect::<Vec<_>>().join(" ");
    if let Some(inner) = text.strip_prefix('"') {
        return inner.rsplit_once('"').map(|(inner, _)| unescaped(inner));
    }
    if let Some(inner) = text.strip_prefix('\'') {
        return inner.rsplit_once('\'').map(|(inner, _)| inner.replace("''", "'"));
    }
    let comment = text.find(" #").unwrap_or(text.len());
    Some(text[..comment].trim_end().to_owned())
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match (char, char == '\\') {
            (_, true) => match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                other => plain.extend(other),
            },
            (char, false) => plain.push(char),
        }
    }
    plain
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: Name::new("load_skill").expect("a valid name"),
        description: "Gives the instructions of a skill. Load a skill before work that its \
                      description fits."
            .to_owned(),
        input_schema: Json::encode(&serde_json::json!({
            "type": "object",
            "properties": {"name": {"type": "string", "description": "The skill's name."}},
            "required": ["name"],
            "additionalProperties": false
        })),
        effect: Effect::Pure,
        reads_only: true,
    }
}

struct LoadSkill {
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillArguments {
    name: String,
}

impl Tool for LoadSkill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permission_arguments(&self, input: &Json, _workspace: &Workspace) -> Vec<String> {
        let input = input.to_value();
        input["name"].as_str().map(|name| vec![name.to_owned()]).unwrap_or_default()
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let SkillArguments { name } = arguments(&input)?;
            let (workspace, store) = (context.workspace.clone(), context.store.clone());
            let skills = context.skills.clone();
            let load = move |_: &_| {
                if !skills.contains(&name) {
                    return Err(unknown(&name, &describe(&workspace, &skills)));
                }
                let body = Skill::open(&workspace, &name)?.body;
                ToolOutput::of_text(&store, &body)
            };
            blocking::run(&context, load).await
        })
    }
}

fn unknown(name: &str, known: &[(String, String)]) -> ToolError {
    if known.is_empty() {
        return ToolError::Failed(format!("there is no skill `{name}`, nor any other"));
    }
    let known = known.iter().map(|(name, description)| format!("\n- {name}: {description}"));
    let known: String = known.collect();
    ToolError::Failed(format!("there is no skill `{name}`; there are:{known}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::files::tests::Bench;

    fn bench() -> Bench {
        let mut bench = Bench::new();
        let skill = |front: &str| format!("---\n{front}\n---\n\n# Body\n\n---\nend\n");
        let path = |name: &str| format!(".agents/skills/{name}/SKILL.md");
        bench.file(&path("review"), skill("name: review\ndescription: Reviews code. # not told"));
        bench.file(&path("other"), skill("name: other\ndescription: Not for this agent"));
        bench.file(&path("wrong"), skill("name: right\ndescription: x"));
        bench.skills = ["review", "wrong", "absent", "../review"].map(str::to_owned).to_vec();
        bench
    }

    #[tokio::test]
    async fn a_skill_is_loaded_by_name() {
        let bench = bench();
        let text = bench.text("load_skill", json!({"name": "review"})).await;
        assert_eq!(text, "# Body\n\n---\nend");
    }

    #[tokio::test]
    async fn only_listed_and_sound_skills_are_loaded() {
        let bench = bench();
        let load = |name: &str| json!({"name": name});
        for name in ["other", "nothing"] {
            let error = bench.error("load_skill", load(name)).await;
            let told = format!("there is no skill `{name}`; there are:\n- review: Reviews code.");
            assert_eq!(error, told);
        }
        let error = bench.error("load_skill", load("wrong")).await;
        assert!(error.ends_with("is named `right` but lies in `wrong`"), "{error}");
        let error = bench.error("load_skill", load("../review")).await;
        assert!(error.contains("is not a skill's name"), "{error}");
        assert!(bench.error("load_skill", load("absent")).await.contains("SKILL.md"));
    }

    #[test]
    fn descriptions_are_given_for_the_prompt() {
        let bench = bench();
        let described = describe(&bench.workspace, &bench.skills);
        assert_eq!(described, [("review".to_owned(), "Reviews code.".to_owned())]);
    }

    #[test]
    fn texts_are_read_in_the_usual_forms() {
        let read = |front: &str| field(&front.lines().collect::<Vec<_>>(), "description");
        for front in [
            "description: one two",
            "description: \"one two\"",
            "description: 'one two'",
            "description: >-\n  one\n  two\nlicense: MIT",
            "description: one\n  two\nlicense: MIT",
            "license: MIT\ndescription:\n  one two",
            "metadata:\n  description: no\ndescription: one two",
        ] {
            assert_eq!(read(front).as_deref(), Some("one two"), "{front}");
        }
        assert_eq!(read("description: |\n  one\n  two").as_deref(), Some("one\ntwo"));
        assert_eq!(read(r#"description: "a \"b\"""#).as_deref(), Some("a \"b\""));
        assert_eq!(read("description: 'it''s'").as_deref(), Some("it's"));
        assert_eq!(read("descriptions: x"), None);
    }

    #[test]
    fn unsound_files_say_what_is_wrong() {
        let long = format!("---\nname: a\ndescription: {}\n---\n", "x".repeat(1025));
        for (text, reason) in [
            ("# Body", "front matter"),
            ("---\nname: a\n", "front matter"),
            ("---\ndescription: x\n---\n", "no `name`"),
            ("---\nname: a\n---\n", "no `description`"),
            ("---\nname: a\ndescription:\n---\n", "no `description`"),
            (&long, "over 1024"),
        ] {
            let error = Skill::parse("a", text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        for name in ["", "A", "a--b", "-a", "a_b", "a/b", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
