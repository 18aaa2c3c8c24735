//! Runs a program of the user outside of the sandbox, with the network: one that passes notices on.
//!
//! No model can name one, and nothing that it prints is read but the beginning of its stderr. Its environment is the
//! one that is given and nothing else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, Command};
use tokio_util::sync::CancellationToken;

use super::process::spawn_leader;

/// The most bytes of stderr that are kept: a sentence that says what went wrong.
const KEPT: usize = 500;

/// The size of the reads of what is not kept.
const BUFFER: usize = 16 * 1024;

/// The time that the processes of a program have to end when it has ended itself or its time is over.
const GRACE: Duration = Duration::from_secs(1);

/// The time for which stderr is still read when the program has ended.
const LINGER: Duration = Duration::from_millis(200);

/// The reason why a program did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDone {
    /// The reason, for people.
    pub message: String,
    /// True if there is no such program.
    pub is_missing: bool,
}

/// Runs a program in a folder with `input` on its stdin, for at most `deadline`. A path is relative to the folder; a
/// bare name is searched for in `PATH`. When this returns or is dropped, no process of its group is left.
///
/// # Errors
/// Returns an error if it could not be started, took too long, or ended with another exit code than 0.
pub async fn run(
    argv: &[String],
    folder: &Path,
    env: &BTreeMap<String, String>,
    input: String,
    deadline: Duration,
) -> Result<(), NotDone> {
    let (name, arguments) = argv.split_first().map_or(("", argv), |(name, rest)| (name, rest));
    let is_path = name.contains('/');
    let program: OsString = if is_path { folder.join(name).into() } else { name.into() };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(env).current_dir(folder).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let (mut child, mut group) = spawn_leader(&mut command).map_err(|error| NotDone {
        is_missing: error.kind() == io::ErrorKind::NotFound,
        message: format!("start `{name}`: {error}"),
    })?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let mut said = Vec::new();
    let has_ended = CancellationToken::new();
    let (ended, ()) = tokio::join!(
        async {
            let status = tokio::time::timeout(deadline, child.wait()).await;
            has_ended.cancel();
            status
        },
        async {
            tokio::select! {
                _all = async { tokio::join!(feed(stdin, input), read(stderr, &mut said)) } => {}
                // What it started may hold the pipes open.
                () = async {
                    has_ended.cancelled().await;
                    tokio::time::sleep(LINGER).await;
                } => {}
            }
        },
    );
    group.end(GRACE).await;
    let said = String::from_utf8_lossy(&said);
    let said = said.lines().next().unwrap_or_default().trim();
    let message = match ended {
        Ok(Ok(status)) if status.success() => return Ok(()),
        Ok(Ok(status)) => format!("`{name}` ended with {status}: {said}"),
        Ok(Err(error)) => format!("wait for `{name}`: {error}"),
        Err(_) => format!("`{name}` took longer than {} s", deadline.as_secs_f64()),
    };
    Err(NotDone { message, is_missing: false })
}

/// Writes the input, which the program need not read.
async fn feed(stdin: Option<ChildStdin>, input: String) {
    if let Some(mut stdin) = stdin {
        let _unread = stdin.write_all(input.as_bytes()).await;
    }
}

/// Reads a stream to its end, and keeps its beginning.
async fn read(stderr: Option<ChildStderr>, kept: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let left = KEPT.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(left)]);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    async fn shell(text: &str, deadline: Duration) -> Result<(), NotDone> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let env = BTreeMap::from([("PATH".to_owned(), path), ("ID".to_owned(), "7".to_owned())]);
        let argv = ["sh", "-c", text].map(str::to_owned);
        run(&argv, folder.path(), &env, "{\"a\":1}".to_owned(), deadline).await
    }

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_program_reads_its_input_and_has_its_environment_alone() {
        shell(
            "test \"$(cat)\" = '{\"a\":1}' && test $ID = 7 && test -z \"$CARGO_MANIFEST_DIR\"",
            LONG,
        )
        .await
        .expect("all as it should be");
        // Whoever does not read its input does its work too.
        shell("exec <&-; true", LONG).await.expect("done");
    }

    #[tokio::test]
    async fn a_failure_says_why_and_no_more() {
        let failed = shell("echo no such host >&2; echo more >&2; exit 3", LONG).await;
        let failed = failed.expect_err("failed");
        assert_eq!(failed.message, "`sh` ended with exit status: 3: no such host");
        let argv = ["callsheet-no-such-program".to_owned()];
        let none = run(&argv, Path::new("/"), &BTreeMap::new(), String::new(), LONG).await;
        assert!(none.expect_err("missing").is_missing);
    }

    #[tokio::test]
    async fn one_that_hangs_or_floods_is_ended_at_its_time_with_all_that_it_started() {
        for text in ["sleep 60 & sleep 60", "yes flood >&2", "yes flood", "trap '' TERM; sleep 60"]
        {
            let begun = Instant::now();
            let failed = shell(text, Duration::from_millis(300)).await.expect_err("too long");
            assert!(failed.message.contains("took longer than 0.3 s"), "{failed:?}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{text}");
        }
    }

    #[tokio::test]
    async fn what_it_leaves_behind_is_not_waited_for() {
        let begun = Instant::now();
        shell("sleep 60 >/dev/null & exit 0", LONG).await.expect("done");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
