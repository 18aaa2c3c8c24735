//! Arguments of programs: each is one template, which gives one argument whatever the values are.
//!
//! A value can neither become two arguments nor an option: an argument that begins with `-` must have
//! been written with it.

use minijinja::machinery::{Token, tokenize};

use super::{Known, TemplateError};

/// An argument that cannot be given to the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadArgument {
    /// The template cannot be rendered.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A value would become an option.
    #[error(
        "`{template}` begins with `-` here, which the program would read as an option; only text \
         that is written before `{{{{` may begin an option"
    )]
    Option {
        /// The template.
        template: String,
    },
    /// The argument holds a NUL character, with which no program can be called.
    #[error("`{template}` holds a NUL character")]
    Nul {
        /// The template.
        template: String,
    },
}

/// The parts of a template that tell what its rendering may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    /// It has a tag, so it is no plain text.
    has_tags: bool,
    /// It has a `{{ }}`.
    has_values: bool,
    /// It has a `{% %}`.
    has_blocks: bool,
    /// Text stands before the first tag.
    begins_with_text: bool,
}

fn form(template: &str) -> Form {
    let tokens = tokenize(template, false, super::syntax()).map_while(Result::ok);
    let mut form =
        Form { has_tags: false, has_values: false, has_blocks: false, begins_with_text: false };
    for (at, (token, _)) in tokens.enumerate() {
        match token {
            Token::TemplateData(_) if at == 0 => form.begins_with_text = true,
            Token::VariableStart => form.has_values = true,
            Token::BlockStart => form.has_blocks = true,
            _ => {}
        }
    }
    form.has_tags = form.has_values || form.has_blocks || template.contains("{#");
    form
}

/// Returns true if an argument is not the same in every call.
#[must_use]
pub fn is_template(template: &str) -> bool {
    form(template).has_tags
}

/// Renders one argument with the fields of the object `values`. Returns `None` if it is left out: a
/// template with `{% %}` of which nothing remains.
///
/// # Errors
/// Returns an error if the template cannot be rendered, or if a value would become an option.
pub fn render(template: &str, values: impl Into<Known>) -> Result<Option<String>, BadArgument> {
    let form = form(template);
    if !form.has_tags {
        return Ok(Some(template.to_owned()));
    }
    let text = super::render(template, values)?;
    let template = || template.to_owned();
    if text.contains('\0') {
        return Err(BadArgument::Nul { template: template() });
    }
    // Without `{{ }}` every character of it was written by whoever wrote the template.
    if text.starts_with('-') && form.has_values && !form.begins_with_text {
        return Err(BadArgument::Option { template: template() });
    }
    Ok((!text.is_empty() || !form.has_blocks).then_some(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_one_argument_and_no_option() {
        let hostile = "; rm -rf $HOME\n`id` 'x' \"y\"";
        for (template, args, expected) in [
            ("--quiet", json!({}), Some("--quiet")),
            ("plain } text", json!({}), Some("plain } text")),
            ("{{ args.x }}", json!({"x": hostile}), Some(hostile)),
            ("{{ args.x }}", json!({"x": ""}), Some("")),
            ("{{ args.x }}", json!({"x": true}), Some("true")),
            ("{{ args.x }}", json!({"x": 1.5}), Some("1.5")),
            ("{{ args.x | default('y') }}", json!({"x": null}), Some("y")),
            ("{{ args.x }}", json!({"x": [null, "a"]}), Some("[null,\"a\"]")),
            ("{{ args.x }}", json!({"x": {"b": 1, "a": true}}), Some("{\"b\":1,\"a\":true}")),
            ("{{ args.x }}", json!({"x": "{{ args.y }}"}), Some("{{ args.y }}")),
            ("--path={{ args.x }}", json!({"x": "--y"}), Some("--path=--y")),
            ("-{{ args.x }}", json!({"x": "n"}), Some("-n")),
            ("{% if args.x %}--fixed{% endif %}", json!({"x": true}), Some("--fixed")),
            ("{% if args.x %}--fixed{% endif %}", json!({"x": false}), None),
            ("{% if args.x %}{{ args.x }}{% endif %}", json!({"x": ""}), None),
            ("{# why #}x", json!({}), Some("x")),
        ] {
            let rendered = render(template, &json!({ "args": args }));
            assert_eq!(rendered, Ok(expected.map(str::to_owned)), "{template}");
        }
        for (template, args, message) in [
            ("{{ args.x }}", json!({"x": "--upload-pack=sh"}), "begins with `-`"),
            ("{{ args.x }}", json!({"x": -5}), "begins with `-`"),
            ("{{ args.x }}b", json!({"x": "-"}), "begins with `-`"),
            ("{{ args.x }}-rf", json!({"x": ""}), "begins with `-`"),
            ("{{ '' }}-rf", json!({}), "begins with `-`"),
            ("{% if true %}{{ args.x }}{% endif %}", json!({"x": "-x"}), "begins with `-`"),
            ("{%- set y = args.x %}{{ y }}", json!({"x": "-x"}), "begins with `-`"),
            ("{# a #}{{ args.x }}", json!({"x": "-x"}), "begins with `-`"),
            ("a{{ args.x }}", json!({"x": "\0"}), "NUL"),
            ("{{ args.x }}", json!({"x": null}), "default("),
            ("{{ args.gone }}", json!({}), "`args` has no `gone`"),
            ("{{ args.x ~ args.x }}", json!({"x": "y".repeat(40 << 20)}), "MiB"),
        ] {
            let error = render(template, &json!({ "args": args })).expect_err(template);
            assert!(error.to_string().contains(message), "{template}: {error}");
        }
    }
}
