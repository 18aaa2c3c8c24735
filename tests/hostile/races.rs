//! File tools against somebody who exchanges folders and links while they write.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use callsheet::tool::basis::Basis;
use callsheet::tool::workspace::Workspace;
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Where the links lead, from the workspace, and the file that is asked for there.
const TARGETS: [(&str, &str); 20] = [
    (".git", "config"),
    (".git/hooks", "pre-commit"),
    (".git/info", "attributes"),
    (".git/modules/a", "config"),
    (".git/worktrees/b", "gitdir"),
    ("sub/.git", "config"),
    (".", "agents.toml"),
    (".transcripts/run", "journal.jsonl"),
    (".transcripts/run/agents", "t.jsonl"),
    (".transcripts/run/answers", "1.json"),
    (".transcripts/run", "LOCK"),
    (".vscode", "tasks.json"),
    (".github/workflows", "ci.yml"),
    (".claude", "settings.json"),
    (".husky", "pre-push"),
    ("hooks", "judge.py"),
    ("../outside", "file"),
    ("../outside/deep", "file"),
    ("../outside/.ssh", "authorized_keys"),
    ("..", "notes"),
];

const BEFORE: &str = "as it was";

/// Exchanges folders and links for this time while others write. Returns how often a write was done and how
/// often it was refused.
fn race(time: Duration) -> (usize, usize) {
    let desk = tempfile::tempdir().expect("a folder");
    let ws = desk.path().join("ws");
    for (number, (folder, file)) in TARGETS.into_iter().enumerate() {
        fs::create_dir_all(ws.join(folder)).expect("made");
        fs::write(ws.join(folder).join(file), BEFORE).expect("written");
        fs::create_dir(ws.join(format!("w{number}"))).expect("made");
        let target = Path::new(folder);
        symlink(target, ws.join(format!("l{number}"))).expect("a link");
    }
    fs::create_dir_all(ws.join("free")).expect("made");
    fs::create_dir_all(ws.join("other")).expect("made");
    fs::write(ws.join("other/file"), BEFORE).expect("written");
    symlink("other", ws.join("freed")).expect("a link");
    let kept = ["agents.toml", "hooks"].map(|name| ws.join(name));
    let workspace = Workspace::open(&ws).expect("opened");
    let workspace = workspace.protect(&ws.join(".transcripts")).keep(&kept, &[]);
    let (stop, done, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for number in 0..TARGETS.len() {
                    let [w, l] = ["w", "l"].map(|name| ws.join(format!("{name}{number}")));
                    let _ = renameat_with(CWD, w, CWD, l, RenameFlags::EXCHANGE);
                }
            }
        });
        // A rule allowed to write in the folder, and not where the link leads.
        scope.spawn(|| {
            let basis = Basis { place: Some("free/file".to_owned()), ..Basis::default() };
            while !stop.load(Ordering::Relaxed) {
                let _ = workspace.write_on(&basis, "free/file", b"changed");
                let _ = workspace.edit(&basis, "free/file", 1_000, |_| Ok((b"x".to_vec(), ())));
                let [w, l] = ["free", "freed"].map(|name| ws.join(name));
                let _ = renameat_with(CWD, w, CWD, l, RenameFlags::EXCHANGE);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let [w, l] = ["free", "freed"].map(|name| ws.join(name));
                let _ = renameat_with(CWD, w, CWD, l, RenameFlags::EXCHANGE);
            }
        });
        for path in ["", "new/"] {
            let (ws, done, refused, stop) = (&workspace, &done, &refused, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for (number, (_, file)) in TARGETS.into_iter().enumerate() {
                        let text = format!("w{number}/{path}{file}");
                        match ws.write(&text, b"changed") {
                            Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                            Err(_) => refused.fetch_add(1, Ordering::Relaxed),
                        };
                        let _ = ws.edit(&Basis::default(), &text, 1_000, |_| {
                            Ok((b"changed".to_vec(), ()))
                        });
                    }
                }
            });
        }
        let end = Instant::now() + time;
        while Instant::now() < end {
            for (folder, file) in TARGETS.into_iter().chain([("other", "file")]) {
                // In a folder `..` of the workspace itself a write is as good as any, if it is inside.
                let found = fs::read_to_string(ws.join(folder).join(file));
                if found.as_deref().ok() != Some(BEFORE) {
                    stop.store(true, Ordering::Relaxed);
                    panic!("{folder}/{file}: {found:?}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let outside = ["outside/new", "outside/deep/new", "outside/.ssh/new", "new", ".git/hooks/new"];
    for name in outside {
        assert!(!desk.path().join(name).exists(), "{name}");
    }
    assert!(!ws.join(".transcripts/run/new").exists() && !ws.join(".git/hooks/new").exists());
    (done.into_inner(), refused.into_inner())
}

#[test]
fn an_exchange_of_folders_and_links_wins_nothing() {
    let (done, refused) = race(Duration::from_secs(2));
    assert!(done > 0 && refused > 0, "{done} written, {refused} refused");
}

#[test]
#[ignore = "60 seconds"]
fn a_long_exchange_of_folders_and_links_wins_nothing() {
    let (done, refused) = race(Duration::from_secs(60));
    assert!(done > 0 && refused > 0, "{done} written, {refused} refused");
}
