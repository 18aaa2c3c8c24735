//! `scripts/release`: what its archives hold, and that the same program makes the same archive.

use std::path::Path;

use crate::support::desk::Desk;

#[test]
fn an_archive_holds_everything_and_is_made_the_same_again() {
    let desk = Desk::empty();
    let program = env!("CARGO_BIN_EXE_callsheet");
    // In the place of the program, which is large with its symbols.
    desk.write("program", &format!("#!/bin/sh\nexec '{program}' \"$@\"\n"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/release");
    let here = desk.path().display();
    let make = |out: &str, mask: &str| {
        let line = format!(
            "chmod +x program && umask {mask} && '{}' --built '{here}/program' --out '{here}/{out}'",
            script.display()
        );
        let done = desk.shell(&line);
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        done.out
    };
    let said = make("one", "022");
    make("two", "077");
    let sums = desk.read("one/SHA256SUMS");
    assert_eq!(sums, desk.read("two/SHA256SUMS"));
    let archive = sums.split_whitespace().nth(1).expect("a name");
    assert!(said.contains(&format!("made    {archive}\n")), "{said}");
    let name = format!("callsheet-{}-", env!("CARGO_PKG_VERSION"));
    assert!(archive.starts_with(&name) && archive.ends_with("-linux-gnu.tar.gz"), "{archive}");

    let checked = desk.shell(&format!("cd one && sha256sum -c SHA256SUMS && tar xzf {archive}"));
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    let folder = format!("one/{}", archive.trim_end_matches(".tar.gz"));
    for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(!desk.read(&format!("{folder}/{file}")).is_empty(), "{file}");
    }
    for (file, says) in [
        ("completions/callsheet.bash", "CALLSHEET_COMPLETE"),
        ("completions/_callsheet", "#compdef callsheet"),
        ("completions/callsheet.fish", "complete"),
        ("man/man1/callsheet.1", ".TH callsheet 1"),
        ("man/man1/callsheet-context-replay.1", "replay"),
    ] {
        assert!(desk.read(&format!("{folder}/{file}")).contains(says), "{file}");
    }
    let version = desk.shell(&format!("{folder}/callsheet version"));
    assert!(version.out.contains(env!("CARGO_PKG_VERSION")), "{}{}", version.out, version.err);
}

#[test]
fn a_wrong_call_is_refused() {
    let desk = Desk::empty();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/release");
    for arguments in ["--nope", "--out", "--built /nope"] {
        let done = desk.shell(&format!("'{}' {arguments}", script.display()));
        assert_eq!(done.code, 2, "{arguments}: {}", done.err);
        assert!(done.err.starts_with("error: "), "{arguments}: {}", done.err);
    }
}
