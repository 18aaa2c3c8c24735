//! Tools of a configuration: a command of its own, called with arguments that a model gives.
//!
//! Owns the way from the arguments of a call to the arguments of the program. No shell reads them: a
//! value stays within its argument, and none becomes an option.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::bash::runs::{self, Runs};
use super::basis::Script;
use super::command::{Order, Reader};
use super::process::{Errors, Program};
use super::workspace::Workspace;
use super::wrapper;
use super::{BoxFuture, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use crate::message::Json;
use crate::permission::{Deed, Subject};
use crate::spec::OnUnknown;
use crate::spec::tool::CommandTool;
use crate::template::argument;
use crate::turn::Effect;

/// The most bytes of one argument: Linux takes 128 KiB with the NUL at its end (`MAX_ARG_STRLEN`).
const MOST_OF_ONE: usize = 128 * 1024 - 1;

/// The most bytes of all arguments together: half of what Linux takes with a stack of 8 MiB (a
/// quarter of the stack), since the environment and the policy of the sandbox need room too.
const MOST_OF_ALL: usize = 1024 * 1024;

/// Returns the tool for a command.
#[must_use]
pub fn tool(command: &CommandTool) -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: command.name.clone(),
        description: command.description.clone(),
        input_schema: Json::encode(command.input_schema.document()),
        effect: if command.idempotent { Effect::Keyed } else { Effect::Once },
        reads_only: false,
    };
    Arc::new(Own { spec, command: command.clone() })
}

struct Own {
    spec: ToolSpec,
    command: CommandTool,
}

/// The words of a command as a call makes them.
struct Words {
    /// The program with its arguments.
    all: Vec<String>,
    /// Those that depend on the call.
    given: Vec<String>,
}

impl Own {
    /// Returns the words of the command for these arguments.
    fn words(&self, input: &Json) -> Result<Words, ToolError> {
        let mut args: Value = super::arguments(input)?;
        self.command.input_schema.fill(&mut args);
        self.command.input_schema.check(&args).map_err(ToolError::Arguments)?;
        let values = json!({ "args": args });
        let mut words = Words { all: Vec::new(), given: Vec::new() };
        for template in &self.command.command {
            let rendered = argument::render(template, &values);
            let rendered = rendered.map_err(|error| ToolError::Arguments(error.to_string()))?;
            let Some(word) = rendered else { continue };
            if word.len() > MOST_OF_ONE {
                let bytes = word.len();
                return Err(ToolError::Arguments(format!(
                    "`{template}` has {bytes} bytes, and an argument of a program has at most \
                     {MOST_OF_ONE}"
                )));
            }
            if argument::is_template(template) {
                words.given.push(word.clone());
            }
            words.all.push(word);
        }
        let bytes: usize = words.all.iter().map(|word| word.len() + 1).sum();
        if bytes > MOST_OF_ALL {
            let most = format!("the arguments have {bytes} bytes; at most {MOST_OF_ALL}");
            return Err(ToolError::Arguments(most));
        }
        Ok(words)
    }
}

/// Returns words as a shell would need them, so that no two lists of words give the same text.
fn quoted(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

impl Tool for Own {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Has no limit of its own: it gives the processes of a call their grace period.
    fn time_limit(&self) -> Option<std::time::Duration> {
        None
    }

    fn on_unknown(&self) -> Option<OnUnknown> {
        self.command.on_unknown
    }

    /// Announces itself, because the announcement names the process group.
    fn announces_itself(&self) -> bool {
        true
    }

    fn check(&self, input: &Json) -> Result<(), ToolError> {
        self.words(input).map(drop)
    }

    /// A rule may name the whole command, or only the words that depend on the call.
    fn permission_arguments(&self, input: &Json, _workspace: &Workspace) -> Vec<String> {
        let Ok(words) = self.words(input) else { return Vec::new() };
        vec![quoted(&words.all), quoted(&words.given)]
    }

    fn subject(&self, input: &Json, _workspace: &Workspace) -> Subject {
        let Ok(Words { all, given }) = self.words(input) else { return Subject::default() };
        let (whole, values) = (quoted(&all), quoted(&given));
        let deed = Deed {
            tool: self.spec.name.to_string(),
            spellings: vec![whole.clone(), values],
            ..Deed::default()
        };
        // What is forbidden is forbidden in any quotes, and as one word of several.
        let suspects = [all.join(" "), given.join(" ")].into_iter().chain(given).collect();
        Subject { deeds: vec![deed], suspects, whole: Some(whole), ..Subject::default() }
    }

    fn scripts(&self, input: &Json, workspace: &Workspace) -> Vec<Script> {
        let Ok(words) = self.words(input) else { return Vec::new() };
        Runs::of_program(&words.all, &self.command.folder).find(workspace)
    }

    fn unbound(&self, input: &Json, workspace: &Workspace) -> Vec<String> {
        let Ok(words) = self.words(input) else { return Vec::new() };
        Runs::of_program(&words.all, &self.command.folder).unbound(workspace)
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let argv = self.words(&input)?.all;
            if let Some(denial) = context.sandbox.denial() {
                return Ok(ToolOutput::denied(denial));
            }
            let CommandTool { timeout, max_output_bytes, folder, env, .. } = &self.command;
            let mut context = runs::guarded(context, Runs::of_program(&argv, folder));
            context.env = context.env.with(env);
            let program = Program {
                argv,
                folder: folder.clone(),
                input: None,
                errors: Errors::Joined,
                timeout: *timeout,
                inline_chars: *max_output_bytes,
            };
            wrapper::perform(Order { program, reader: Reader::Model }, &context).await
        })
    }
}

/// Whether a program can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startable {
    /// It is there, and may be executed.
    Yes,
    /// There is a file that nobody may execute.
    NotExecutable,
    /// There is none.
    Missing,
}

/// Looks for a program: a path as a file of the workspace, a bare name in a folder of `path`. Blocks.
#[must_use]
pub fn startable(program: &str, root: &Path, path: &str) -> Startable {
    let look = |file: PathBuf| match file.metadata() {
        Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => Startable::Yes,
        Ok(found) if found.is_file() => Startable::NotExecutable,
        _ => Startable::Missing,
    };
    if program.contains('/') {
        return look(root.join(program));
    }
    let mut best = Startable::Missing;
    for folder in std::env::split_paths(path) {
        match look(folder.join(program)) {
            Startable::Yes => return Startable::Yes,
            Startable::NotExecutable => best = Startable::NotExecutable,
            Startable::Missing => {}
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::id::Name;
    use crate::permission::{PermissionDecision, Permissions, Rule};
    use crate::schema::Schema;
    use crate::tool::Ending;
    use crate::tool::files::tests::Bench;
    use crate::tool::sandbox::Sandbox;

    fn command(words: &[&str], properties: Value) -> CommandTool {
        let schema = json!({"type": "object", "properties": properties,
            "additionalProperties": false});
        CommandTool {
            name: Name::new("own").unwrap(),
            description: "x".to_owned(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            input_schema: Schema::new(schema).unwrap(),
            idempotent: false,
            on_unknown: None,
            timeout: Duration::from_secs(60),
            max_output_bytes: 30_000,
            folder: "".into(),
            env: BTreeMap::new(),
        }
    }

    /// A tool that prints each of its arguments in a line of its own, between brackets.
    fn printing() -> CommandTool {
        let words = ["printf", "[%s]\\n", "{{ args.x }}", "--flag={{ args.y }}"];
        command(&words, json!({"x": {}, "y": {"type": "string", "default": "d"}}))
    }

    async fn called(command: &CommandTool, args: Value) -> Result<ToolOutput, ToolError> {
        let bench = Bench::new();
        tool(command).call(Json::encode(&args), bench.context()).await
    }

    #[tokio::test]
    async fn hostile_values_stay_in_their_argument() {
        for (x, printed) in [
            (json!("; touch ran"), "[; touch ran]"),
            (
                json!("$(touch ran) `touch ran` && touch ran"),
                "[$(touch ran) `touch ran` && touch ran]",
            ),
            (json!("a\nb\r\tc"), "[a\nb\r\tc]"),
            (json!("'\"\\ *?"), "['\"\\ *?]"),
            (json!(""), "[]"),
            (json!({"a": [null, true]}), "[{\"a\":[null,true]}]"),
        ] {
            let output = called(&printing(), json!({"x": x, "y": "--z"})).await.unwrap();
            assert_eq!(output.text, format!("{printed}\n[--flag=--z]\n"), "{x}");
        }
        let output = called(&printing(), json!({"x": "y"})).await.unwrap();
        assert_eq!(output.text, "[y]\n[--flag=d]\n");
    }

    #[tokio::test]
    async fn a_call_with_bad_arguments_runs_nothing() {
        let command = CommandTool {
            command: ["touch", "ran", "{{ args.x }}"].map(str::to_owned).to_vec(),
            ..printing()
        };
        for (args, told) in [
            (json!({"x": "--reference=/etc/passwd"}), "begins with `-`"),
            (json!({"x": "a\u{0}b"}), "NUL"),
            (json!({"x": "y".repeat(1 << 20)}), "`{{ args.x }}` has 1048576 bytes"),
            (json!({"x": "y", "y": 1}), "`/y`: value is not of type \"string\""),
            (json!({"x": "y", "z": 1}), "'z' was unexpected"),
            (json!({"x": null}), "the value is none"),
            (json!({}), "has no `"),
            (json!([]), "not of type \"object\""),
        ] {
            let bench = Bench::new();
            let input = Json::encode(&args);
            let error = tool(&command).call(input, bench.context()).await.unwrap_err();
            assert!(matches!(error, ToolError::Arguments(_)), "{error}");
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.to_string().len() < 2_000 && !bench.path("ran").exists());
        }
        let many = ["echo", "{{ args.x }}"].into_iter().chain(["{{ args.x }}"; 8]);
        let many = CommandTool { command: many.map(str::to_owned).collect(), ..printing() };
        let error = called(&many, json!({"x": "y".repeat(MOST_OF_ONE)})).await.unwrap_err();
        assert!(error.to_string().contains("the arguments have"), "{error}");
    }

    #[tokio::test]
    async fn it_runs_where_and_as_it_is_told() {
        let bench = Bench::new();
        bench.file("in/here", "");
        bench.file("own", "pwd; echo \"$OWN $TOOL_TEST\"; yes | head -c 3000; exit 3\n");
        let command = CommandTool {
            folder: "in".into(),
            env: BTreeMap::from([("OWN".to_owned(), "1".to_owned())]),
            max_output_bytes: 2_000,
            ..command(&["sh", "../own"], json!({}))
        };
        let output = tool(&command).call(Json::encode(&json!({})), bench.context()).await.unwrap();
        let root = bench.workspace.root_path().display().to_string();
        assert!(output.text.starts_with(&format!("{root}/in\n1 set\ny\n")), "{}", output.text);
        assert_eq!(output.ending, Ending::Exited(3));
        assert!(output.text.len() < 2_300 && output.text.ends_with("exit code 3"));
        assert!(output.stored.unwrap().bytes > 3_000);
    }

    #[tokio::test]
    async fn it_runs_nowhere_without_the_sandbox_that_is_wanted() {
        let bench = Bench::new();
        let mut context = bench.context();
        context.sandbox = Sandbox::Missing("no kernel".into());
        let touching = command(&["touch", "ran"], json!({}));
        let output = tool(&touching).call(Json::encode(&json!({})), context).await.unwrap();
        assert_eq!(output.ending, Ending::Denied);
        assert!(output.text.contains("no kernel") && !bench.path("ran").exists());
    }

    #[test]
    fn rules_name_the_command_or_what_was_given() {
        let bench = Bench::new();
        let words =
            ["cargo", "test", "-p", "{{ args.package }}", "--quiet", "--", "{{ args.only }}"];
        let cargo = tool(&command(&words, json!({"package": {}, "only": {}})));
        let subject = |package: &str, only: &str| {
            let input = Json::encode(&json!({"package": package, "only": only}));
            cargo.subject(&input, &bench.workspace)
        };
        let rules = |texts: &[&str]| texts.iter().map(|text| Rule::parse(text).unwrap()).collect();
        let judged = |allow: &[&str], deny: &[&str], subject: &Subject| {
            let (allow, deny) = (rules(allow), rules(deny));
            let permissions = Permissions { allow, deny, ..Permissions::default() };
            permissions.judge("own", subject).0
        };
        let serde = subject("serde", "map");
        for allow in ["own", "own(serde*)", "own(serde map)", "own(cargo test -p serde*)"] {
            assert_eq!(judged(&[allow], &[], &serde), PermissionDecision::Allow, "{allow}");
        }
        for allow in ["own(serde)", "own(map*)", "own(tokio*)", "bash", "bash(cargo test*)"] {
            assert_eq!(judged(&[allow], &[], &serde), PermissionDecision::Ask, "{allow}");
        }
        // A value that looks like two is one.
        for package in ["serde map", "serde; rm", "serde\nmap", ""] {
            let decision =
                judged(&["own(serde map)", "own(serde*)"], &[], &subject(package, "map"));
            assert_eq!(decision, PermissionDecision::Ask, "{package}");
        }
        for (deny, decision) in [
            ("own(serde*)", PermissionDecision::Deny),
            ("own(map)", PermissionDecision::Deny),
            ("own(cargo*)", PermissionDecision::Deny),
            ("own(*--quiet*)", PermissionDecision::Deny),
            ("own(tokio*)", PermissionDecision::Allow),
        ] {
            assert_eq!(judged(&["own"], &[deny], &serde), decision, "{deny}");
        }
        assert_eq!(
            judged(&["own"], &["own(a b)"], &subject("a b", "map")),
            PermissionDecision::Deny
        );
        assert_eq!(
            judged(&["own"], &["own(rm *)"], &subject("x", "rm y")),
            PermissionDecision::Deny
        );
        assert_eq!(judged(&["own"], &["own(rm *)"], &serde), PermissionDecision::Allow);
    }
}
