//! `edit_file`: replaces a text in a file.

use serde::Deserialize;

use super::{MAX_EDIT_BYTES, rule_paths};
use crate::message::Json;
use crate::tool::workspace::Workspace;
use crate::tool::{
    BoxFuture, Change, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, arguments, blocking,
};
use crate::turn::FileChange;

pub(super) struct EditFile {
    pub(super) spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArguments {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

impl EditArguments {
    fn answer(&self, count: usize) -> String {
        let what = if count == 1 { "occurrence" } else { "occurrences" };
        format!("replaced {count} {what} in {}", self.path)
    }
}

impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn foresee(&self, input: &Json, workspace: &Workspace) -> Option<FileChange> {
        let asked: EditArguments = arguments(input).ok()?;
        let content = workspace.read(&asked.path, MAX_EDIT_BYTES).ok()?;
        let hash = |content: &[u8]| blake3::hash(content).to_hex().to_string();
        let pre = Some(hash(&content));
        let (content, count) = replaced(&asked, content).ok()?;
        let (place, post) = (workspace.lands(&asked.path).ok()?, hash(&content));
        let (answer, in_place) = (asked.answer(count), count == 1);
        Some(FileChange { pre, post, answer, place, path: asked.path, in_place })
    }

    fn preview(&self, input: &Json, workspace: &Workspace) -> Option<Change> {
        let asked: EditArguments = arguments(input).ok()?;
        let before = workspace.read(&asked.path, MAX_EDIT_BYTES).ok()?;
        let (after, _) = replaced(&asked, before.clone()).ok()?;
        let text = |bytes| String::from_utf8(bytes).ok();
        Some(Change { path: asked.path, before: text(before), after: text(after)? })
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
            let asked: EditArguments = arguments(&input)?;
            super::refuse_if_read_only(&context)?;
            if asked.old_string.is_empty() {
                let reason = "`old_string` is empty; use write_file to make a file";
                return Err(ToolError::Arguments(reason.to_owned()));
            }
            if asked.old_string == asked.new_string {
                let reason = "`old_string` and `new_string` are the same";
                return Err(ToolError::Arguments(reason.to_owned()));
            }
            let (workspace, basis) = (context.workspace.clone(), context.basis.clone());
            let edit = move |_: &_| {
                let change = |content| replaced(&asked, content);
                let count = workspace.edit(&basis, &asked.path, MAX_EDIT_BYTES, change)?;
                Ok(ToolOutput::ok(asked.answer(count)))
            };
            blocking::run(&context, edit).await
        })
    }
}

/// Returns the new content and the number of occurrences that were replaced in it.
fn replaced(asked: &EditArguments, content: Vec<u8>) -> Result<(Vec<u8>, usize), ToolError> {
    let EditArguments { path, old_string, new_string, replace_all } = asked;
    let failed = |reason: String| Err(ToolError::Failed(reason));
    let Ok(content) = String::from_utf8(content) else {
        return failed(format!("`{path}` is not UTF-8 text; edit it with a command"));
    };
    let count = content.matches(old_string).count();
    if count == 0 {
        let crlf = content.contains("\r\n") && old_string.replace("\r\n", "").contains('\n');
        let hint = if crlf { "; the file's lines end with \\r\\n" } else { "" };
        return failed(format!("`old_string` occurs 0 times in `{path}`{hint}"));
    }
    if count > 1 && !replace_all {
        return failed(format!(
            "`old_string` occurs {count} times in `{path}`; give more of its surroundings, or set \
             `replace_all`"
        ));
    }
    // The result is made only if it fits: many occurrences and a long text make a huge one.
    let kept = (content.len() - count * old_string.len()) as u64;
    let size = (count as u64).saturating_mul(new_string.len() as u64).saturating_add(kept);
    if size > MAX_EDIT_BYTES {
        return failed(format!(
            "`{path}` would have {size} bytes, over {MAX_EDIT_BYTES}; nothing was changed. Replace \
             less at a time, or use a command"
        ));
    }
    Ok((content.replace(old_string, new_string).into_bytes(), count))
}
