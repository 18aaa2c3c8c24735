//! Finds the folders from which a configuration takes files by a pattern of `include`: whoever makes a
//! file there writes a part of the next run's configuration, with its permissions and hooks.
//!
//! Pure.

use std::path::{Path, PathBuf};

use crate::config::Config;

/// Returns the folders, absolute, before the first wildcard of the patterns of `include` of the file and of
/// the files of its sub-graphs. The workspace itself is none of them.
pub(super) fn folders(config: &Config) -> Vec<PathBuf> {
    let own = (config.file.clone(), &config.text);
    let named = config.files.iter().map(|(path, text)| (config.root.join(path), text));
    let named = named.filter(|(path, _)| path.extension().is_some_and(|end| end == "toml"));
    let all = std::iter::once(own).chain(named);
    let found = all.flat_map(|(file, text)| before_wildcards(text, file.parent().unwrap_or(&file)));
    found.filter(|folder| !config.root.starts_with(folder)).collect()
}

/// Returns the folders of the patterns of one text, whose paths are relative to `base`.
fn before_wildcards(text: &str, base: &Path) -> Vec<PathBuf> {
    let Ok(file) = text.parse::<toml::Table>() else { return Vec::new() };
    let patterns = match file.get("include") {
        Some(toml::Value::Array(patterns)) => patterns.clone(),
        Some(pattern) => vec![pattern.clone()],
        None => Vec::new(),
    };
    let is_wild = |part: &&str| part.contains(['*', '?', '[', '{']);
    let folder = |pattern: &str| {
        let parts: Vec<&str> = pattern.split('/').collect();
        let first = parts.iter().position(is_wild)?;
        let mut folder = base.to_owned();
        for part in &parts[..first] {
            match *part {
                "" | "." => {}
                ".." => drop(folder.pop()),
                part => folder.push(part),
            }
        }
        (!pattern.starts_with('/')).then_some(folder)
    };
    patterns.iter().filter_map(|pattern| folder(pattern.as_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_before_the_first_wildcard_is_found() {
        let folders =
            |include: &str| before_wildcards(&format!("include = {include}"), Path::new("/w"));
        assert_eq!(folders("['agents.d/*.toml']"), [PathBuf::from("/w/agents.d")]);
        assert_eq!(folders("['a/./b/../c/**/x.toml']"), [PathBuf::from("/w/a/c")]);
        assert_eq!(folders("['*.toml']"), [PathBuf::from("/w")]);
        assert!(folders("['agents.d/one.toml']").is_empty());
        assert!(before_wildcards("include = [", Path::new("/w")).is_empty());
    }
}
