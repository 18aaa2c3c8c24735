//! The program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    callsheet::cli::main(std::env::args_os()).into()
}
