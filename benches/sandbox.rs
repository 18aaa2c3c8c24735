//! `cargo bench --bench sandbox`: the cost of the sandbox for each command.
//!
//! Runs a graph of `true`, one task after the other, with the sandbox and without it, in turns, by the
//! real program. Prints the time for each command, the difference and the ratio; the run without the
//! sandbox is the floor. Fails if a command in the sandbox takes more than three times as long. Says
//! so and passes where there is no sandbox. Ends by itself within a minute.
//!
//! It was 2.4 to 2.7 ms a command on two busy cores, where 2 ms are wanted. Of these, measured one by
//! one: 0.45 ms the second start of this program beside that of a small one (it is the first process of
//! the process namespace, which a program without `unsafe` cannot fork), 0.25 to 0.4 ms the namespaces,
//! mostly that of the network, 0.3 ms mounts and Landlock, 0.2 ms the filter of system calls, the rest
//! two more processes to start and to wait for. Without position-independent code a start takes 0.16 ms
//! less, but its addresses can be guessed; packed relocations and a stripped program change nothing.

#![expect(clippy::print_stdout, reason = "a benchmark shows its figures")]

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Commands of a run.
const COMMANDS: usize = 100;
/// Number of times that each run is made; the fastest counts.
const ROUNDS: usize = 7;
/// Most that a command in the sandbox may cost, as a multiple of one without it.
const MOST: f64 = 3.0;

fn main() -> ExitCode {
    let program = Path::new(env!("CARGO_BIN_EXE_callsheet"));
    let folder = tempfile::tempdir().expect("a folder");
    let tasks: String =
        (0..COMMANDS).map(|number| format!("[tasks.t{number}]\nrun = 'true'\n")).collect();
    let text = format!("version = 1\n[limits]\nmax_concurrency = 1\n{tasks}");
    std::fs::write(folder.path().join("agents.toml"), text).expect("a file");
    let (mut with, mut without) = (Duration::MAX, Duration::MAX);
    if command(program, folder.path(), "workspace-write")
        .status()
        .is_ok_and(|s| s.code() == Some(2))
    {
        println!("there is no sandbox here: see `callsheet run` in an empty folder for the reason");
        return ExitCode::SUCCESS;
    }
    for _ in 0..ROUNDS {
        with = with.min(run(program, folder.path(), "workspace-write"));
        without = without.min(run(program, folder.path(), "danger-full-access"));
    }
    let each = |all: Duration| all.as_secs_f64() * 1e3 / COMMANDS as f64;
    let (with, without) = (each(with), each(without));
    let ratio = with / without;
    println!("{:<22} {:>8.2} ms a command", "without a sandbox", without);
    println!("{:<22} {:>8.2} ms a command", "in the sandbox", with);
    let verdict = if ratio <= MOST { "ok" } else { "too much" };
    println!("{:.2} ms more, {ratio:.2} times as long: {verdict}", with - without);
    if ratio <= MOST { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(program: &Path, folder: &Path, mode: &str) -> Duration {
    let began = Instant::now();
    let status = command(program, folder, mode).status();
    assert!(status.is_ok_and(|status| status.success()), "the run failed");
    began.elapsed()
}

fn command(program: &Path, folder: &Path, mode: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["run", "--sandbox", mode]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
