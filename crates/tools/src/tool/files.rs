//! The tools `read_file`, `write_file` and `edit_file`, which work on single files.
//!
//! Owns the specs and texts that a model reads. The workspace decides which files the tools can
//! reach.

mod edit;
mod read;
mod write;

use std::num::NonZeroU64;
use std::sync::Arc;

use serde::Deserialize;

use self::edit::EditFile;
use self::write::WriteFile;
use super::workspace::Workspace;
use super::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments, blocking};
use crate::id::Name;
use crate::message::Json;
use crate::message::media::{self, Attachment, Media};
use crate::tool::BoxFuture;
use crate::turn::{Effect, FileUse};

/// Largest file that `edit_file` accepts and makes, in bytes: it is held in memory three times.
const MAX_EDIT_BYTES: u64 = 64 << 20;

/// Returns the file tools.
#[must_use]
pub fn tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(ReadFile { spec: read_spec() }),
        Arc::new(WriteFile { spec: write_spec() }),
        Arc::new(EditFile { spec: edit_spec() }),
    ]
}

fn read_spec() -> ToolSpec {
    ToolSpec {
        name: Name::new("read_file").expect("a valid name"),
        description: format!(
            "Reads a text file, image or PDF. Gives at most {} lines and {} characters; when more \
             follows, the last line says how many lines, and `offset` reads on.",
            read::MAX_LINES,
            read::MAX_CHARS
        ),
        input_schema: Json::encode(&serde_json::json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the workspace or absolute."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, from 1."},
                "limit": {"type": "integer", "minimum": 1, "description": "The most lines to read."}
            },
            "required": ["path"],
            "additionalProperties": false
        })),
        effect: Effect::Pure,
        reads_only: true,
    }
}

fn write_spec() -> ToolSpec {
    ToolSpec {
        name: Name::new("write_file").expect("a valid name"),
        description:
            "Writes a file, replacing it if it exists and making the directories it needs."
                .to_owned(),
        input_schema: Json::encode(&serde_json::json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the workspace or absolute."},
                "content": {"type": "string", "description": "The whole new content."}
            },
            "required": ["path", "content"],
            "additionalProperties": false
        })),
        effect: Effect::Checked,
        reads_only: false,
    }
}

fn edit_spec() -> ToolSpec {
    ToolSpec {
        name: Name::new("edit_file").expect("a valid name"),
        description: "Replaces text in a file. `old_string` must match exactly, white space \
                      included, and exactly once unless `replace_all` is true."
            .to_owned(),
        input_schema: Json::encode(&serde_json::json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file, relative to the workspace or absolute."},
                "old_string": {"type": "string", "minLength": 1, "description": "The text to replace."},
                "new_string": {"type": "string", "description": "The text to put there."},
                "replace_all": {"type": "boolean", "description": "Replace every occurrence (default false)."}
            },
            "required": ["path", "old_string", "new_string"],
            "additionalProperties": false
        })),
        effect: Effect::Checked,
        reads_only: false,
    }
}

/// Returns the rule arguments of a call whose `path` may be missing or wrong.
pub(super) fn rule_paths(input: &Json, workspace: &Workspace) -> Vec<String> {
    let path = input.to_value();
    path["path"].as_str().map(|path| workspace.rule_arguments(path)).unwrap_or_default()
}

struct ReadFile {
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
    offset: Option<NonZeroU64>,
    limit: Option<NonZeroU64>,
}

impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn permission_arguments(&self, input: &Json, workspace: &Workspace) -> Vec<String> {
        rule_paths(input, workspace)
    }

    fn call(
        &self,
        input: Json,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked: ReadArguments = arguments(&input)?;
            let workspace = context.workspace.clone();
            let (known, basis) = (context.media.clone(), context.basis.clone());
            let read = move |stop: &_| {
                let place = workspace.place(&asked.path)?;
                let (file, size) = place.open()?;
                if basis.place.is_some() {
                    workspace.agree(&asked.path, &place.lies(&file)?, &basis)?;
                }
                let window = read::Window {
                    offset: asked.offset.map_or(1, NonZeroU64::get),
                    limit: asked.limit.map_or(read::MAX_LINES, NonZeroU64::get),
                };
                let lies = place.lies(&file).map(|path| path.display().to_string());
                let mut file = read::Hashed::new(blocking::Stoppable::new(file, stop));
                let text = read::read(&mut file, size, window);
                let text = text.map_err(|error| place.refused("read", error))?;
                let hash = file.hash();
                let later_part = window.offset > 1;
                let used = |(place, hash)| Box::new(FileUse::read(place, hash, later_part));
                let file = lies.ok().zip(hash).map(used);
                match text {
                    read::Text::Shown(text) => Ok(ToolOutput { file, ..ToolOutput::ok(text) }),
                    read::Text::Media(kind, bytes) => {
                        let output = attached(&asked.path, kind, &bytes, size, &known)?;
                        Ok(ToolOutput { file, ..output })
                    }
                    read::Text::Refused(reason) => {
                        Err(ToolError::Failed(format!("`{}` {reason}", asked.path)))
                    }
                }
            };
            blocking::run(&context, read).await
        })
    }
}

/// Returns an image or a PDF to a model that reads it. `bytes` holds the file, or too much of it.
fn attached(
    path: &str,
    kind: &'static str,
    bytes: &[u8],
    size: u64,
    known: &[Media],
) -> Result<ToolOutput, ToolError> {
    let medium = media::medium(kind);
    let refused = if !known.contains(&medium) {
        format!("which you cannot read: `media` of your model does not name `{}`", medium.name())
    } else if bytes.len() as u64 > read::MAX_MEDIA_BYTES {
        format!("more than the {} that a request takes", read::MAX_MEDIA_BYTES)
    } else {
        let output = ToolOutput::ok(format!("{path}: {kind}, {} bytes", bytes.len()));
        return Ok(ToolOutput { attached: Some(Attachment::of(kind, bytes).block()), ..output });
    };
    Err(ToolError::Failed(format!(
        "`{path}` is a file of type {kind} with {size} bytes, {refused}"
    )))
}

/// Refuses a change of a file to an agent that may change none.
fn refuse_if_read_only(context: &ToolContext) -> Result<(), ToolError> {
    let reason = "Permission denied: this agent may write no files (`sandbox` is read-only)";
    if context.read_only { Err(ToolError::Failed(reason.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::id::{AgentId, CallKey, RunId};
    use crate::store::Store;
    use crate::tool::environment::{self, Environment};
    use crate::tool::workspace::Workspace;

    /// A workspace and what a call in it gets, for the tests of all tools.
    pub(in crate::tool) struct Bench {
        pub(in crate::tool) dir: tempfile::TempDir,
        pub(in crate::tool) workspace: Arc<Workspace>,
        pub(in crate::tool) skills: Vec<String>,
    }

    impl Bench {
        pub(in crate::tool) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let workspace = Workspace::open(dir.path()).unwrap();
            let workspace = Arc::new(workspace.protect(".transcripts".as_ref()));
            Self { dir, workspace, skills: Vec::new() }
        }

        pub(in crate::tool) fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        pub(in crate::tool) fn file(&self, name: &str, content: impl AsRef<[u8]>) {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }

        pub(in crate::tool) fn context(&self) -> ToolContext {
            let run = self.path(".transcripts/run");
            let agent = AgentId::from_text("test");
            let mut environment = environment::passed(&[]);
            environment.insert("TOOL_TEST".to_owned(), "set".to_owned());
            ToolContext {
                workspace: self.workspace.clone(),
                store: Arc::new(Store::new(run.join("spool"), run.join("results"))),
                key: CallKey::derive(RunId::from(uuid::Uuid::now_v7()), &agent, 1, 0, "tool", "{}"),
                env: Environment::only(environment),
                sandbox: Default::default(),
                read_only: false,
                unseen: Default::default(),
                basis: Default::default(),
                skills: self.skills.clone().into(),
                media: [Media::Image].into(),
                timeout: Duration::from_secs(60),
                longest: Duration::from_secs(60),
                grace_period: Duration::from_secs(60),
                orphan_grace: Duration::ZERO,
                cancel: CancellationToken::new(),
                announce: Arc::new(()),
                printing: None,
                wrapper: None,
            }
        }

        pub(in crate::tool) async fn call(
            &self,
            tool: &str,
            input: serde_json::Value,
        ) -> Result<ToolOutput, ToolError> {
            let tools = crate::tool::Toolbox::built_in();
            let tool = tools.get(tool).unwrap();
            tool.call(Json::encode(&input), self.context()).await
        }

        /// Makes a call that must succeed; returns the text that the model reads.
        pub(in crate::tool) async fn text(&self, tool: &str, input: serde_json::Value) -> String {
            self.call(tool, input).await.unwrap().text
        }

        /// Makes a call that must fail; returns the text that the model reads.
        pub(in crate::tool) async fn error(&self, tool: &str, input: serde_json::Value) -> String {
            self.call(tool, input).await.unwrap_err().to_string()
        }
    }

    use serde_json::json;

    #[tokio::test]
    async fn an_image_is_attached_and_what_the_model_cannot_read_is_refused() {
        let bench = Bench::new();
        bench.file("shot.txt", b"\x89PNG\r\n\x1a\n\0\0pixels");
        let output = bench.call("read_file", json!({"path": "shot.txt"})).await.unwrap();
        assert_eq!(output.text, "shot.txt: image/png, 16 bytes");
        let attached = Attachment::read(&output.attached.unwrap()).unwrap();
        let bytes = std::fs::read(bench.path("shot.txt")).unwrap();
        assert_eq!(attached, Attachment::of("image/png", &bytes));
        bench.file("paper.pdf", b"%PDF-1.7 text");
        let error = bench.error("read_file", json!({"path": "paper.pdf"})).await;
        assert!(error.contains("application/pdf with 13 bytes, which you cannot read"), "{error}");
        let huge = [b"GIF89a".as_slice(), &vec![1; read::MAX_MEDIA_BYTES as usize]].concat();
        bench.file("huge.gif", &huge);
        let error = bench.error("read_file", json!({"path": "huge.gif"})).await;
        assert!(error.contains("more than the 3750000"), "{error}");
        bench.file("just.gif", &huge[..read::MAX_MEDIA_BYTES as usize]);
        assert!(
            bench.call("read_file", json!({"path": "just.gif"})).await.unwrap().attached.is_some()
        );
    }

    #[tokio::test]
    async fn a_file_is_written_edited_and_read() {
        let bench = Bench::new();
        let input = json!({"path": "new/dir/f.txt", "content": "one\ntwo\ntwo\n"});
        let text = bench.text("write_file", input).await;
        assert_eq!(text, "wrote 12 bytes, 3 lines to new/dir/f.txt");
        let path = bench.path("new/dir/f.txt");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let edit = |old: &str, all: bool| json!({"path": "new/dir/f.txt", "old_string": old, "new_string": "2", "replace_all": all});
        assert_eq!(
            bench.text("edit_file", edit("one\n", false)).await,
            "replaced 1 occurrence in new/dir/f.txt"
        );
        let error = bench.error("edit_file", edit("two", false)).await;
        assert!(error.starts_with("`old_string` occurs 2 times"), "{error}");
        let error = bench.error("edit_file", edit("three", true)).await;
        assert_eq!(error, "`old_string` occurs 0 times in `new/dir/f.txt`");
        assert_eq!(
            bench.text("edit_file", edit("two", true)).await,
            "replaced 2 occurrences in new/dir/f.txt"
        );
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(bench.text("read_file", json!({"path": "new/dir/f.txt"})).await, "22\n2\n");
    }

    #[tokio::test]
    async fn what_a_call_will_change_is_foreseen() {
        let bench = Bench::new();
        bench.file("old", "a b a");
        let hash = |name: &str| bench.workspace.fingerprint(name).unwrap();
        let write = |path: &str| json!({"path": path, "content": "new\n"});
        let edit =
            json!({"path": "old", "old_string": "a", "new_string": "c", "replace_all": true});
        for (tool, input, path) in [
            ("write_file", write("fresh"), "fresh"),
            ("edit_file", edit.clone(), "old"),
            ("write_file", write("old"), "old"),
        ] {
            let tools = crate::tool::Toolbox::built_in();
            let foreseen = tools.get(tool).unwrap();
            let foreseen = foreseen.foresee(&Json::encode(&input), &bench.workspace).unwrap();
            assert_eq!((foreseen.path.as_str(), foreseen.pre), (path, hash(path)));
            assert_eq!(bench.text(tool, input).await, foreseen.answer);
            assert_eq!(hash(path), Some(foreseen.post));
        }
        // A call that will fail changes nothing.
        let edit_file = EditFile { spec: edit_spec() };
        assert!(edit_file.foresee(&Json::encode(&edit), &bench.workspace).is_none());
        assert!(bench.workspace.fingerprint("../x").is_err());
    }

    #[tokio::test]
    async fn a_failed_edit_says_why() {
        let bench = Bench::new();
        bench.file("crlf", "a\r\nb\r\n");
        bench.file("latin", b"caf\xe9");
        let edit = |path: &str, old: &str, new: &str| json!({"path": path, "old_string": old, "new_string": new});
        let error = bench.error("edit_file", edit("crlf", "a\nb", "c")).await;
        assert!(error.contains("\\r\\n"), "{error}");
        let error = bench.error("edit_file", edit("latin", "caf", "c")).await;
        assert!(error.contains("not UTF-8"), "{error}");
        assert!(bench.error("edit_file", edit("crlf", "", "c")).await.contains("empty"));
        assert!(bench.error("edit_file", edit("crlf", "a", "a")).await.contains("the same"));
        assert!(bench.error("edit_file", edit("none", "a", "b")).await.contains("`none`"));
        assert_eq!(std::fs::read(bench.path("latin")).unwrap(), b"caf\xe9");
    }

    #[tokio::test]
    async fn an_edit_that_would_make_a_huge_file_changes_nothing() {
        let bench = Bench::new();
        let content = "a".repeat(20_000);
        bench.file("f", &content);
        let input = |new: usize| json!({"path": "f", "old_string": "a", "new_string": "b".repeat(new), "replace_all": true});
        let error = bench.error("edit_file", input(1 << 20)).await;
        assert!(error.contains("would have 20971520000 bytes, over 67108864"), "{error}");
        assert_eq!(std::fs::read_to_string(bench.path("f")).unwrap(), content);
        let edit_file = EditFile { spec: edit_spec() };
        let bomb = Json::encode(&input(1 << 20));
        assert!(edit_file.foresee(&bomb, &bench.workspace).is_none());
        assert!(edit_file.preview(&bomb, &bench.workspace).is_none());
        bench.text("edit_file", input(2)).await;
        assert_eq!(std::fs::metadata(bench.path("f")).unwrap().len(), 40_000);
    }

    #[tokio::test]
    async fn what_cannot_be_read_says_why() {
        let bench = Bench::new();
        bench.file("binary", [b'a', 0, b'b']);
        bench.file("dir/f", "x");
        let read = |path: &str| json!({"path": path});
        let error = bench.error("read_file", read("binary")).await;
        assert_eq!(error, "`binary` is binary (3 bytes)");
        let error = bench.error("read_file", read("dir")).await;
        assert_eq!(error, "`dir` is a directory; use glob to list it");
        let error = bench.error("read_file", read("../x")).await;
        assert_eq!(error, "`../x` is outside the workspace");
        assert!(bench.error("read_file", read("none")).await.starts_with("read `none`: "));
        let fifo = std::process::Command::new("mkfifo").arg(bench.path("fifo")).status();
        assert!(fifo.unwrap().success());
        let error = bench.error("read_file", read("fifo")).await;
        assert_eq!(error, "`fifo` is not a regular file");
    }

    #[tokio::test]
    async fn wrong_arguments_are_refused() {
        let bench = Bench::new();
        for (tool, input) in [
            ("read_file", json!({})),
            ("read_file", json!({"path": "a", "line": 3})),
            ("read_file", json!({"path": "a", "offset": 0})),
            ("write_file", json!({"path": "a", "content": 3})),
            ("edit_file", json!({"path": "a", "old_string": "x"})),
        ] {
            let outcome = bench.call(tool, input).await;
            assert!(matches!(outcome, Err(ToolError::Arguments(_))), "{tool}: {outcome:?}");
        }
    }

    #[test]
    fn rules_see_the_path_without_detours() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(dir.path()).unwrap();
        let tools = crate::tool::Toolbox::built_in();
        for tool in ["read_file", "write_file", "edit_file", "glob", "grep"] {
            let tool = tools.get(tool).unwrap();
            let input = Json::encode(&json!({"path": "./a/../.env"}));
            assert_eq!(tool.permission_arguments(&input, &workspace), [".env"]);
        }
    }
}
