//! Finds the conversations that the user named: files, the files in folders, and beside each the files of its
//! sub-agents.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::WalkBuilder;
use serde::Deserialize;

use crate::cli::complain;
use crate::conversation::{Conversation, ConversationErrorKind};
use crate::exit::Exit;

/// Most folders between a folder that the user named and a file in it.
const DEEPEST: usize = 16;

/// Most files that are looked at in one folder.
const MOST_FILES: usize = 20_000;

/// Most bytes of a recording that are read to find out which session it belongs to.
const HEAD_BYTES: u64 = 256 * 1024;

/// A conversation that the user named, or that was found in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// A path, `-`, or an agent of a run.
    pub name: String,
    /// The files of its sub-agents.
    pub sub_agents: Vec<PathBuf>,
}

/// The sub-agents' files in one folder, each with the session that it belongs to.
type Sessions = Rc<Vec<(String, PathBuf)>>;

/// Finds files, and remembers what it read of folders.
#[derive(Debug, Default)]
struct Finder {
    sessions: HashMap<PathBuf, Sessions>,
}

/// Returns the conversations that these names stand for, in order, and the exit code if some of them cannot
/// be had. A file of a sub-agent belongs to its session, if that is among them.
pub(super) fn find(names: &[String]) -> (Vec<Found>, Option<Exit>) {
    let (mut paths, mut wrong) = (Vec::new(), None);
    for name in names {
        match Path::new(name).is_dir() {
            false => paths.push(name.clone()),
            true => wrong = look_into(name, &mut paths).err().or(wrong),
        }
    }
    let mut finder = Finder::default();
    let found = paths.into_iter().map(|name| {
        let sub_agents = finder.sub_agents(Path::new(&name));
        Found { name, sub_agents }
    });
    let found: Vec<_> = found.collect();
    let owned: HashSet<_> =
        found.iter().flat_map(|found| &found.sub_agents).map(|path| whole(path)).collect();
    let is_own = |found: &Found| !owned.contains(&whole(Path::new(&found.name)));
    (found.into_iter().filter(is_own).collect(), wrong)
}

/// Returns the files of the sub-agents of a conversation.
pub(super) fn sub_agents_of(path: &Path) -> Vec<PathBuf> {
    Finder::default().sub_agents(path)
}

fn whole(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Adds the conversations in a folder, sorted by name. What is something else is only counted.
fn look_into(name: &str, paths: &mut Vec<String>) -> Result<(), Exit> {
    let before = paths.len();
    let (files, wrong) = files_in(Path::new(name));
    let mut others = 0;
    for file in files {
        match Conversation::format_of(&file) {
            Err(error)
                if matches!(error.kind, ConversationErrorKind::Unknown { is_json: true, .. }) =>
            {
                others += 1;
            }
            // What cannot be read is an error, which its own line tells.
            Ok(_) | Err(_) => paths.push(file.to_string_lossy().into_owned()),
        }
    }
    if others > 0 {
        complain(&format!(
            "note: {name}: files of JSON that are no conversations were left out: {others}"
        ));
    }
    if let Some(wrong) = wrong {
        complain(&format!("error: {name}: {wrong}"));
        return Err(Exit::Failed);
    }
    if paths.len() == before {
        complain(&format!(
            "error: {name}: no conversation is in the folder; name one with files `.json` or `.jsonl`"
        ));
        return Err(Exit::Failed);
    }
    Ok(())
}

/// Returns the files in a folder that may be conversations, and what prevents that all are found.
fn files_in(folder: &Path) -> (Vec<PathBuf>, Option<String>) {
    let mut walk = WalkBuilder::new(folder);
    walk.standard_filters(false).follow_links(false).max_depth(Some(DEEPEST));
    walk.sort_by_file_name(|a, b| a.cmp(b));
    let (mut files, mut wrong) = (Vec::new(), None);
    for entry in walk.build() {
        let path = match entry {
            Ok(entry) => entry.into_path(),
            Err(error) => {
                wrong = Some(error.to_string());
                continue;
            }
        };
        let may_be = path.extension().is_some_and(|ending| ending == "json" || ending == "jsonl");
        if !may_be || !path.is_file() {
            continue;
        }
        if files.len() == MOST_FILES {
            wrong = Some(format!("more than {MOST_FILES} files; name folders with fewer"));
            break;
        }
        files.push(path);
    }
    (files, wrong)
}

impl Finder {
    /// Returns the files of the sub-agents of a conversation: those in its session's folder `subagents`, those
    /// beside it that name its session, or the transcripts of child agents in the folder of a run.
    fn sub_agents(&mut self, path: &Path) -> Vec<PathBuf> {
        let (Some(stem), Some(folder)) = (path.file_stem(), path.parent()) else {
            return Vec::new();
        };
        if path.extension().is_none_or(|ending| ending != "jsonl") || !path.is_file() {
            return Vec::new();
        }
        let stem = stem.to_string_lossy();
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if folder.file_name().is_some_and(|name| name == "agents")
            && folder.with_file_name("journal.jsonl").is_file()
        {
            let below = format!("{stem}.");
            let is_child = |name: &str| {
                name.strip_suffix(".jsonl").is_some_and(|name| name.starts_with(&below))
            };
            return sorted(folder, is_child);
        }
        if is_sub_agent(&stem) {
            return Vec::new();
        }
        let inside = folder.join(stem.as_ref()).join("subagents");
        let mut found = if inside.is_dir() { files_in(&inside).0 } else { Vec::new() };
        found.retain(|file| file.extension().is_some_and(|ending| ending == "jsonl"));
        let beside = self.sessions.entry(folder.to_owned()).or_insert_with(|| sessions(folder));
        if !beside.is_empty() {
            let session = session_of(path).unwrap_or_else(|| stem.into_owned());
            let own = beside.iter().filter(|(of, _)| *of == session);
            found.extend(own.map(|(_, file)| file.clone()));
        }
        found
    }
}

fn is_sub_agent(stem: &str) -> bool {
    stem.starts_with("agent-")
}

/// Returns the files in a folder with such names, sorted.
fn sorted(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_FILES);
    let wanted = entries.filter(|entry| is_wanted(&entry.file_name().to_string_lossy()));
    let mut files: Vec<_> = wanted.map(|entry| entry.path()).collect();
    files.sort_unstable();
    files
}

fn sessions(folder: &Path) -> Sessions {
    let files = sorted(folder, |name| is_sub_agent(name) && name.ends_with(".jsonl"));
    let known = files.into_iter().filter_map(|file| Some((session_of(&file)?, file)));
    Rc::new(known.collect())
}

/// Returns the session that a recording names at its beginning.
fn session_of(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Line {
        session_id: String,
    }
    let head = BufReader::new(File::open(path).ok()?.take(HEAD_BYTES));
    let lines = head.split(b'\n').map_while(Result::ok);
    let mut named = lines.filter_map(|line| serde_json::from_slice::<Line>(&line).ok());
    named.next().map(|line| line.session_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    /// What is found, each with its sub-agents, by names within the folder.
    fn found(folder: &Path, names: &[&str]) -> (Vec<(String, Vec<String>)>, bool) {
        let names: Vec<_> =
            names.iter().map(|name| folder.join(name).to_string_lossy().into_owned()).collect();
        let within =
            |path: &Path| path.strip_prefix(folder).expect("within").to_string_lossy().into_owned();
        let (found, wrong) = find(&names);
        let found = found.iter().map(|found| {
            let below = found.sub_agents.iter().map(|path| within(path));
            (within(Path::new(&found.name)), below.collect())
        });
        (found.collect(), wrong.is_some())
    }

    fn row(name: &str, sub_agents: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), sub_agents.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn sub_agents_belong_to_their_session() {
        let entry = r#"{"type":"user","uuid":"u","sessionId":"s1","message":{}}"#;
        let of_other = entry.replace("s1", "s2");
        let folder = folder(&[
            ("p/s1.jsonl", entry),
            ("p/s1/subagents/agent-1.jsonl", entry),
            ("p/s1/subagents/agent-1.meta.json", r#"{"agentType":"x"}"#),
            ("p/s1/tool-results/a.txt", "x"),
            ("p/agent-2.jsonl", entry),
            ("p/agent-3.jsonl", &of_other),
            ("p/copy.jsonl", &of_other),
            ("q/list.json", "[]"),
            ("q/settings.json", r#"{"model":"x"}"#),
        ]);
        let expected = vec![
            row("p/copy.jsonl", &["p/agent-3.jsonl"]),
            row("p/s1.jsonl", &["p/s1/subagents/agent-1.jsonl", "p/agent-2.jsonl"]),
            row("q/list.json", &[]),
        ];
        assert_eq!(found(folder.path(), &["p", "q"]), (expected.clone(), false));
        let names = ["p/agent-3.jsonl", "p/copy.jsonl", "p/agent-2.jsonl"];
        let named = vec![row("p/copy.jsonl", &["p/agent-3.jsonl"]), row("p/agent-2.jsonl", &[])];
        assert_eq!(
            found(folder.path(), &names),
            (named, false),
            "without its session it is its own"
        );
    }

    #[test]
    fn child_agents_of_a_run_belong_to_their_parent() {
        let line = r#"{"seq":1,"ts":"","message":{"role":"user","content":"x"}}"#;
        let folder = folder(&[
            ("run/journal.jsonl", "{\"v\":1,\"seq\":1,\"type\":\"run.created\"}\n"),
            ("run/agents/a.jsonl", line),
            ("run/agents/a.h-1.jsonl", line),
            ("run/agents/a.h-1.h-1.jsonl", line),
            ("run/agents/ab.jsonl", line),
        ]);
        let below = ["run/agents/a.h-1.h-1.jsonl", "run/agents/a.h-1.jsonl"];
        let expected = vec![row("run/agents/a.jsonl", &below), row("run/agents/ab.jsonl", &[])];
        assert_eq!(found(folder.path(), &["run"]), (expected, false));
    }

    #[test]
    fn a_folder_without_conversations_is_an_error() {
        let folder = folder(&[("a/x.txt", "x"), ("b/x.json", "{}"), ("c/broken.json", "{\"mess")]);
        for (name, count) in [("a", 0), ("b", 0)] {
            let (found, is_wrong) = found(folder.path(), &[name]);
            assert_eq!((found.len(), is_wrong), (count, true), "{name}");
        }
        let (found, is_wrong) = found(folder.path(), &["c"]);
        assert_eq!(
            (found, is_wrong),
            (vec![row("c/broken.json", &[])], false),
            "its own line tells"
        );
    }
}
