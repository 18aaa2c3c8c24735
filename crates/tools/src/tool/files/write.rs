//! `write_file`: writes a whole file.

use serde::Deserialize;

use super::{MAX_EDIT_BYTES, rule_paths};
use crate::message::Json;
use crate::tool::workspace::Workspace;
use crate::tool::{
    BoxFuture, Change, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments, blocking,
};
use crate::turn::FileChange;

pub(super) struct WriteFile {
    pub(super) spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    content: String,
}

impl WriteArguments {
    fn answer(&self) -> String {
        let (bytes, lines) = (self.content.len(), self.content.lines().count());
        format!("wrote {bytes} bytes, {lines} lines to {}", self.path)
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn foresee(&self, input: &Json, workspace: &Workspace) -> Option<FileChange> {
        let asked: WriteArguments = arguments(input).ok()?;
        let pre = workspace.fingerprint(&asked.path).ok()?;
        let post = blake3::hash(asked.content.as_bytes()).to_hex().to_string();
        let place = workspace.lands(&asked.path).ok()?;
        let answer = asked.answer();
        Some(FileChange { pre, post, answer, place, path: asked.path, in_place: false })
    }

    fn preview(&self, input: &Json, workspace: &Workspace) -> Option<Change> {
        let asked: WriteArguments = arguments(input).ok()?;
        let before = workspace.read(&asked.path, MAX_EDIT_BYTES).ok();
        let before = before.and_then(|bytes| String::from_utf8(bytes).ok());
        Some(Change { path: asked.path, before, after: asked.content })
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
            let asked: WriteArguments = arguments(&input)?;
            super::refuse_if_read_only(&context)?;
            refuse_if_huge(&asked)?;
            let (workspace, basis) = (context.workspace.clone(), context.basis.clone());
            let write = move |_: &_| {
                workspace.write_on(&basis, &asked.path, asked.content.as_bytes())?;
                Ok(ToolOutput::ok(asked.answer()))
            };
            blocking::run(&context, write).await
        })
    }
}

/// Refuses a content that no other tool would read again.
fn refuse_if_huge(asked: &WriteArguments) -> Result<(), ToolError> {
    let bytes = asked.content.len() as u64;
    match bytes > MAX_EDIT_BYTES {
        true => Err(ToolError::Failed(format!(
            "`{}` would have {bytes} bytes, over {MAX_EDIT_BYTES}; nothing was written. Write less, or use \
             a command",
            asked.path
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::files::tests::Bench;

    #[tokio::test]
    async fn a_content_that_no_tool_would_read_is_not_written() {
        let bench = Bench::new();
        let content = "x".repeat(MAX_EDIT_BYTES as usize + 1);
        let told = bench.error("write_file", json!({"path": "f", "content": content})).await;
        assert!(told.contains("67108865 bytes, over 67108864; nothing was written"), "{told}");
        assert!(!bench.path("f").exists());
    }

    #[tokio::test]
    async fn a_write_makes_a_bounded_number_of_folders() {
        let bench = Bench::new();
        let path = |folders: usize| format!("{}f", "d/".repeat(folders));
        let told = bench.error("write_file", json!({"path": path(65), "content": "x"})).await;
        assert!(told.contains("it would make more than 64 folders"), "{told}");
        assert!(!bench.path("d").exists(), "nothing was made");
        // Deeper ones are made in steps.
        for folders in [64, 128] {
            bench.text("write_file", json!({"path": path(folders), "content": "x"})).await;
            assert!(bench.path(&path(folders)).exists());
        }
    }
}
