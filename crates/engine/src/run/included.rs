//! Finds the folders from which a configuration takes files by a pattern of `include`: whoever makes a
//! file there writes a part of the next run's configuration, with its permissions and hooks.
//!
//! Opens nothing.

use std::path::{Path, PathBuf};

use super::walked::walked;
use crate::config::Config;

/// The most alternatives of one pattern that are looked at by themselves.
const MOST: usize = 1_000;

/// Returns the folders, absolute, before the first wildcard of the patterns of `include` of the file and of
/// the files of its sub-graphs. The workspace itself is none of them.
pub(super) fn folders(config: &Config) -> Vec<PathBuf> {
    let own = (config.file.clone(), &config.text);
    let named = config.files.iter().map(|(path, text)| (config.root.join(path), text));
    let named = named.filter(|(path, _)| path.extension().is_some_and(|end| end == "toml"));
    let all = std::iter::once(own).chain(named);
    let found = all.flat_map(|(file, text)| before_wildcards(text, file.parent().unwrap_or(&file)));
    let holds_root =
        |folder: &Path| walked(folder).is_none_or(|to| config.root.starts_with(to.path));
    found.filter(|folder| !holds_root(folder)).collect()
}

/// Returns the folders of the patterns of one text, whose paths are relative to `base`.
fn before_wildcards(text: &str, base: &Path) -> Vec<PathBuf> {
    // A key may be written with escapes. Without them the file need not be read once more.
    if !text.contains("include") && !text.contains('\\') {
        return Vec::new();
    }
    let Ok(file) = text.parse::<toml::Table>() else { return Vec::new() };
    let patterns = match file.get("include") {
        Some(toml::Value::Array(patterns)) => patterns.clone(),
        Some(pattern) => vec![pattern.clone()],
        None => Vec::new(),
    };
    let all = patterns.iter().filter_map(toml::Value::as_str).flat_map(alternatives);
    all.filter_map(|pattern| before_wildcard(&pattern, base)).collect()
}

/// Returns what a pattern begins with, up to the first wildcard; the whole path if one of its alternatives
/// has none, and `None` if the pattern itself has none: such a file is named by the configuration.
fn before_wildcard(pattern: &Alternative, base: &Path) -> Option<PathBuf> {
    let parts: Vec<&str> = pattern.text.split('/').collect();
    let first = parts.iter().position(|part| part.contains(['*', '?', '[', '{']));
    if first.is_none() && !pattern.is_chosen {
        return None;
    }
    // An absolute path takes the place of the base.
    let path: PathBuf = match pattern.text.strip_prefix('/') {
        Some(_) => PathBuf::from("/"),
        None => base.to_owned(),
    };
    let fixed = &parts[..first.unwrap_or(parts.len())];
    Some(fixed.iter().fold(path, |path, part| path.join(part)))
}

/// A pattern without braces, as far as they were few.
struct Alternative {
    text: String,
    /// True if the pattern had braces.
    is_chosen: bool,
}

/// Returns the patterns that a pattern with braces stands for. One with too many stands for itself.
fn alternatives(pattern: &str) -> Vec<Alternative> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(text) = open.pop() {
        match braces(&text) {
            Some((before, inner, after)) if open.len() + done.len() < MOST => {
                open.extend(inner.iter().map(|one| format!("{before}{one}{after}")));
            }
            Some(_) | None => done.push(Alternative { is_chosen: text != pattern, text }),
        }
    }
    done
}

/// Splits a pattern at its first braces: what is before them, the alternatives, what is after them.
fn braces(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    let begin = text.find('{')?;
    let (mut depth, mut from, mut inner) = (0_usize, begin + 1, Vec::new());
    for (at, sign) in text[begin..].char_indices().map(|(at, sign)| (begin + at, sign)) {
        match sign {
            '{' => depth += 1,
            ',' if depth == 1 => {
                inner.push(&text[from..at]);
                from = at + 1;
            }
            '}' if depth == 1 => {
                inner.push(&text[from..at]);
                return Some((&text[..begin], inner, &text[at + 1..]));
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_before_the_first_wildcard_is_found() {
        let folders = |include: &str| -> Vec<PathBuf> {
            let found = before_wildcards(&format!("include = {include}"), Path::new("/w"));
            let mut found: Vec<_> =
                found.iter().filter_map(|path| walked(path)).map(|found| found.path).collect();
            found.sort();
            found
        };
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(folders("['/w/x/*.toml']"), paths(&["/w/x"]));
        assert_eq!(folders("['{a,b/{c,d}}/*.toml']"), paths(&["/w/a", "/w/b/c", "/w/b/d"]));
        assert_eq!(folders("['x/{a,b*}.toml']"), paths(&["/w/x", "/w/x/a.toml"]));
        assert_eq!(folders("['{a,b/*.toml']"), paths(&["/w"]));
        let many = format!("['x/{}/*.toml']", "{a,b}".repeat(40));
        let found = folders(&many);
        assert!(found.len() <= 2 * MOST && found.iter().all(|path| path.starts_with("/w/x")));
        assert_eq!(folders("['agents.d/*.toml']"), [PathBuf::from("/w/agents.d")]);
        assert_eq!(folders("['a/./b/../c/**/x.toml']"), [PathBuf::from("/w/a/c")]);
        assert_eq!(folders("['*.toml']"), [PathBuf::from("/w")]);
        assert!(folders("['agents.d/one.toml']").is_empty());
        assert!(before_wildcards("include = [", Path::new("/w")).is_empty());
    }
}
