//! A page as one HTML file, without scripts, that loads nothing.
//!
//! Pure. All text is escaped, and the policy in the head forbids everything but the page's own
//! style.

use super::page::{Block, Inline};
use crate::printable;

/// What the page may load: nothing but its own style.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;\
color:#1c1c1c;background:#fff}\
code,pre{font:13px/1.45 ui-monospace,monospace;background:#f3f3f0;border-radius:3px}\
code{padding:.1em .3em;overflow-wrap:anywhere}pre{padding:.7em;overflow-x:auto;white-space:pre-wrap}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em .25em 0;text-align:left;\
vertical-align:top;border-bottom:1px solid #ddd}h2{margin-top:2em}b{font-weight:600}\
b.completed,b.reused,b.ok{color:#1a7f37}b.failed,b.cancelled,b.mixed{color:#b3261e}\
b.running,b.waiting,b.paused,b.partial,b.stopped{color:#9a6700}\
@media (prefers-color-scheme:dark){body{color:#ddd;background:#181818}\
code,pre{background:#262626}td,th{border-color:#333}}";

/// Returns the page as text.
pub(super) fn text(title: &str, page: &[Block]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
        escaped(&printable::line(title))
    );
    for block in page {
        match block {
            Block::Heading(level, line) => {
                html.push_str(&format!("<h{level}>{}</h{level}>\n", of_line(line)));
            }
            Block::Paragraph(line) => html.push_str(&format!("<p>{}</p>\n", of_line(line))),
            Block::List(items) => {
                html.push_str("<ul>\n");
                for item in items {
                    html.push_str(&format!("<li>{}</li>\n", of_line(item)));
                }
                html.push_str("</ul>\n");
            }
            Block::Table(head, rows) => {
                let head: String = head.iter().map(|name| format!("<th>{name}</th>")).collect();
                html.push_str(&format!("<table>\n<tr>{head}</tr>\n"));
                for row in rows {
                    let cells: String =
                        row.iter().map(|cell| format!("<td>{}</td>", inline(cell))).collect();
                    html.push_str(&format!("<tr>{cells}</tr>\n"));
                }
                html.push_str("</table>\n");
            }
            Block::Verbatim(body) => {
                html.push_str(&format!("<pre>{}</pre>\n", escaped(&printable::block(body))));
            }
        }
    }
    html.push_str("</body>\n</html>\n");
    html
}

fn of_line(line: &[Inline]) -> String {
    line.iter().map(inline).collect()
}

fn inline(part: &Inline) -> String {
    match part {
        Inline::Plain(text) => escaped(text),
        Inline::State(text) => format!("<b class=\"{0}\">{0}</b>", escaped(text)),
        Inline::Foreign(text) => format!("<code>{}</code>", escaped(&printable::line(text))),
    }
}

/// Returns a text with the characters that mean something in HTML escaped.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_is_markup() {
        let hostile =
            "</title></pre><script>alert(1)</script><img src=x onerror='y'>\"&\u{202e}\u{0}";
        let line = vec![Inline::Foreign(hostile.to_owned()), Inline::State("'<&".to_owned())];
        let page = [
            Block::Heading(1, line.clone()),
            Block::Paragraph(line.clone()),
            Block::List(vec![line.clone()]),
            Block::Table(vec!["a", "b"], vec![line]),
            Block::Verbatim(hostile.to_owned()),
        ];
        let html = text(hostile, &page);
        for bad in ["<script", "<img", "</title></pre>", "'y'", "\u{202e}", "\u{0}"] {
            assert!(!html.contains(bad), "{bad}: {html}");
        }
        assert_eq!(html.matches("<title>").count(), 1);
        assert!(html.contains(POLICY));
        assert!(!html.contains("http:") && !html.contains("https:") && !html.contains("url("));
    }
}
