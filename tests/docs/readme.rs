//! The README: short, and every test, page and file that it names is there. `example_graphs` types its commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines: what a stranger reads in two minutes.
const LINES: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).expect(name)
}

/// The links of a page: their words and their targets.
fn links(page: &str) -> Vec<(String, String)> {
    let link = regex::Regex::new(r"\[([^\]]+)\]\(([^)\s]+)\)").expect("an expression");
    link.captures_iter(page).map(|found| (found[1].to_owned(), found[2].to_owned())).collect()
}

/// The name by which a heading is linked to.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn it_is_short() {
    let lines = page("README.md").lines().count();
    assert!(lines <= LINES, "{lines} lines");
}

#[test]
fn every_promise_names_a_test_that_runs() {
    let readme = page("README.md");
    let tests: Vec<_> =
        links(&readme).into_iter().filter(|(_, target)| target.ends_with(".rs")).collect();
    assert!(tests.len() >= 8, "{tests:?}");
    for (name, file) in tests {
        let name = name.trim_matches('`');
        let source = page(&file);
        let place = source.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{file}: {name}"));
        let before: Vec<&str> = source[..place].lines().rev().take(4).collect();
        let is_test = before
            .iter()
            .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
        let is_ignored = before.iter().any(|line| line.starts_with("#[ignore"));
        assert!(is_test && !is_ignored, "{file}: {name}: {before:?}");
    }
}

#[test]
fn pages_that_are_linked_are_there_and_all_are_listed() {
    let mut pages = vec![PathBuf::from("README.md")];
    let listed = page("docs/README.md");
    for entry in fs::read_dir(root().join("docs")).expect("the folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if name != "README.md" {
            assert!(listed.contains(&format!("]({name})")), "docs/README.md does not list {name}");
        }
        pages.push(Path::new("docs").join(name));
    }
    for from in pages {
        let text = page(&from.to_string_lossy());
        for (_, target) in links(&text) {
            if target.contains("://") {
                continue;
            }
            let (file, part) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => root().join(&from),
                file => root().join(from.parent().expect("a folder")).join(file),
            };
            assert!(path.exists(), "{}: {target}", from.display());
            if part.is_empty() {
                continue;
            }
            let there = fs::read_to_string(&path).expect("a page");
            let mut headings = there.lines().filter(|line| line.starts_with('#'));
            let is_there = headings.any(|line| anchor(line.trim_start_matches('#').trim()) == part);
            assert!(is_there, "{}: {target}", from.display());
        }
    }
}

/// The most lines of a page without a list of its sections: two screens.
const PAGE: usize = 80;

#[test]
fn a_long_page_lists_its_sections() {
    for entry in fs::read_dir(root().join("docs")).expect("the folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let text = page(&format!("docs/{name}"));
        if text.lines().count() < PAGE {
            continue;
        }
        let parts = text.split("\n```").step_by(2);
        for heading in parts.flat_map(str::lines).filter_map(|line| line.strip_prefix("## ")) {
            let target = format!("](#{})", anchor(heading));
            assert!(text.contains(&target), "docs/{name} does not list {heading:?}");
        }
    }
}

#[test]
fn what_it_says_of_rust_is_what_the_manifest_says() {
    let manifest: toml::Table = page("Cargo.toml").parse().expect("TOML");
    let rust = manifest["workspace"]["package"]["rust-version"].as_str().expect("a version");
    for name in ["README.md", "docs/install.md"] {
        assert!(page(name).contains(&format!("Rust {rust} or newer")), "{name}");
    }
}

#[test]
fn a_package_has_the_pages_that_are_compiled_in() {
    let manifest: toml::Table = page("Cargo.toml").parse().expect("TOML");
    let included = manifest["package"]["include"].as_array().expect("a list");
    let included = included.iter().filter_map(|path| path.as_str()?.strip_prefix("/docs/"));
    let compiled = regex::Regex::new(r#"include_str!\("(?:\.\./)+docs/([^"]+)"\)"#);
    let compiled = compiled.expect("an expression");
    let sources = page("src/lib.rs") + &page("src/cli/explain.rs");
    let compiled: BTreeSet<&str> =
        compiled.captures_iter(&sources).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    assert_eq!(included.collect::<BTreeSet<_>>(), compiled);
}
