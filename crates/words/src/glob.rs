//! Globs as people and models write them, compiled within bounds.
//!
//! A glob may be hostile: one that is too long, too deeply nested or too large to be compiled is an
//! error. The library would end the program for some of these.

pub mod overlap;

use globset::{GlobBuilder, GlobSet};

/// The most bytes of a glob: the longest path of Linux.
const MOST_BYTES: usize = 4096;

/// The most braces within each other.
const MOST_LEVELS: usize = 16;

/// What `*` and `?` match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcards {
    /// Anything.
    Any,
    /// Anything but a slash.
    WithinName,
}

/// Compiles a glob.
///
/// # Errors
/// Returns why it cannot be compiled, for a person.
pub fn compile(text: &str, wildcards: Wildcards) -> Result<GlobSet, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("the pattern has {} bytes, over {MOST_BYTES}", text.len()));
    }
    let mut level = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'{' => level += 1,
            b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        if level > MOST_LEVELS {
            return Err(format!(
                "the pattern has more than {MOST_LEVELS} braces within each other"
            ));
        }
    }
    let glob = GlobBuilder::new(text).literal_separator(wildcards == Wildcards::WithinName).build();
    // A matcher of one glob panics where its expression is too large; a set returns an error.
    glob.and_then(|glob| GlobSet::new([glob])).map_err(|error| error.kind().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_globs_are_errors() {
        let nested = "{".repeat(5_000) + &"}".repeat(5_000);
        let deep = "{a,".repeat(1_000) + &"}".repeat(1_000);
        for bad in [nested, deep, "a".repeat(5_000), "[".to_owned(), "{a".to_owned()] {
            assert!(compile(&bad, Wildcards::Any).is_err(), "{bad:.40}");
        }
        let large = ["{a,b}".repeat(800), "*a".repeat(2_000), "[a-z]".repeat(800)];
        for text in large {
            // Compiled or refused, but in no other way.
            let _either = compile(&text, Wildcards::WithinName);
        }
        let glob = compile("{src,docs}/*.rs", Wildcards::WithinName).expect("a glob");
        assert!(glob.is_match("src/a.rs") && !glob.is_match("src/b/a.rs"));
        assert!(compile("a*", Wildcards::Any).expect("a glob").is_match("a/b"));
    }
}
