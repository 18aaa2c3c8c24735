//! The program: arguments in, exit code out.

use std::process::ExitCode;

/// What one thread allocates here, another one often frees: runtime, journal, tools. The system's
/// allocator locks for that, which cost a fifth of a turn's processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    callsheet::tool::wrapper::serve_if_asked();
    callsheet::cli::main(std::env::args_os()).into()
}
