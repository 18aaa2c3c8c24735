//! Templates: texts with placeholders such as `{n}`, `{path}` and `{summary}`.
//!
//! Pure. A template is filled in one pass, so that no value is ever taken for a placeholder.

/// Returns the text with these values in their places. A placeholder without a value stays as it
/// is.
#[must_use]
pub fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        text.push_str(before);
        let name = from[1..].split('}').next().unwrap_or_default();
        let value = values.iter().find(|(known, _)| *known == name);
        match value.filter(|_| from.len() > name.len() + 1) {
            Some((_, value)) => {
                text.push_str(value);
                rest = &from[name.len() + 2..];
            }
            None => {
                text.push('{');
                rest = &from[1..];
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_and_values_are_not() {
        let values = [("a", "{b}"), ("b", "x")];
        assert_eq!(fill("{a} {b} {c} {b", &values), "{b} x {c} {b");
        assert_eq!(fill("{{b}} }{", &values), "{x} }{");
        assert_eq!(fill("", &values), "");
    }
}
