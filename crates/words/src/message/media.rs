//! Images and PDFs in messages: their types, and the blocks that hold them.
//!
//! Owns the rule by which a file's type is known: its first bytes, never its name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Block, Json, Message, ResultContent, ToolResult};

/// What a model can read besides text.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Media {
    /// Images: PNG, JPEG, GIF and WebP.
    Image,
    /// PDF documents.
    Pdf,
}

impl Media {
    /// Returns the medium's name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Pdf => "pdf",
        }
    }
}

/// Media types (RFC 6838) that the services read, with the bytes with which their files begin.
const BEGINNINGS: [(&str, &[u8]); 6] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF87a"),
    ("image/gif", b"GIF89a"),
    ("image/webp", b"RIFF"),
    ("application/pdf", b"%PDF-"),
];

/// A file that is no text, as a message holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The media type, like `image/png`.
    pub media_type: String,
    /// The file's bytes in base64.
    pub data: String,
}

/// Returns the media type of a file that begins with these bytes, of those that models read.
#[must_use]
pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
    let (kind, _) = BEGINNINGS.iter().find(|(_, beginning)| bytes.starts_with(beginning))?;
    // Sounds and films begin as WebP does, and name themselves after the length.
    let is_webp = || bytes.get(8..12) == Some(b"WEBP");
    (*kind != "image/webp" || is_webp()).then_some(*kind)
}

/// Returns the medium of a media type.
#[must_use]
pub fn medium(media_type: &str) -> Media {
    if media_type == "application/pdf" { Media::Pdf } else { Media::Image }
}

impl Attachment {
    /// Takes the bytes of a file.
    #[must_use]
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) }
    }

    /// Returns the block, in the form of the Messages API.
    #[must_use]
    pub fn block(&self) -> Json {
        let kind = match medium(&self.media_type) {
            Media::Image => "image",
            Media::Pdf => "document",
        };
        let source = json!({ "type": "base64", "media_type": self.media_type, "data": self.data });
        Json::encode(&json!({ "type": kind, "source": source }))
    }

    /// Reads a block that holds an image or a PDF; `None` for any other.
    #[must_use]
    pub fn read(block: &Json) -> Option<Self> {
        let block = block.to_value();
        let is_media = ["image", "document"].iter().any(|kind| block["type"] == *kind);
        let source = block.get("source").filter(|_| is_media)?;
        let text = |key: &str| source[key].as_str().map(str::to_owned);
        (source["type"] == "base64").then_some(())?;
        Some(Self { media_type: text("media_type")?, data: text("data")? })
    }

    /// Returns the file as a `data:` address (RFC 2397).
    #[must_use]
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.data)
    }

    /// Returns the medium.
    #[must_use]
    pub fn medium(&self) -> Media {
        medium(&self.media_type)
    }
}

/// Returns the attachments of a message: those of its results, and its own.
#[must_use]
pub fn attachments(message: &Message) -> Vec<Attachment> {
    let mut all = Vec::new();
    for block in &message.content {
        match block {
            Block::Other(json) => all.extend(Attachment::read(json)),
            Block::ToolResult(result) => all.extend(result.attachments()),
            Block::Text(_) | Block::ToolUse(_) => {}
        }
    }
    all
}

impl ToolResult {
    /// Returns the images and PDFs of the content.
    #[must_use]
    pub fn attachments(&self) -> Vec<Attachment> {
        let ResultContent::Blocks(json) = &self.content else { return Vec::new() };
        if !has_data(json) {
            return Vec::new();
        }
        let blocks = json.decode::<Vec<Json>>().unwrap_or_default();
        blocks.iter().filter_map(Attachment::read).collect()
    }
}

/// Returns true if a text may hold an attachment, without reading it.
fn has_data(json: &Json) -> bool {
    json.as_str().contains("\"base64\"")
}

/// Returns a message as a model reads it that knows these media: a sentence stands in the place of an
/// attachment that it cannot read.
#[must_use]
pub fn readable(message: &Json, media: &[Media]) -> Json {
    if !has_data(message) || [Media::Image, Media::Pdf].iter().all(|one| media.contains(one)) {
        return message.clone();
    }
    let mut document = message.to_value();
    if !replace(&mut document, media) {
        return message.clone();
    }
    Json::encode(&document)
}

/// Replaces the attachments in a list of blocks, or in the lists below it; returns true if there was one.
fn replace(value: &mut Value, media: &[Media]) -> bool {
    match value {
        Value::Array(items) => {
            let mut changed = false;
            for item in items {
                changed |= replace(item, media);
            }
            changed
        }
        Value::Object(fields) => {
            let attachment = Attachment::read(&Json::encode(&*fields));
            if let Some(found) = attachment.filter(|found| !media.contains(&found.medium())) {
                let text = format!(
                    "[a file of type {} stands here, which this model cannot read]",
                    found.media_type.chars().take(40).collect::<String>()
                );
                *value = json!({ "type": "text", "text": text });
                return true;
            }
            fields.get_mut("content").is_some_and(|content| replace(content, media))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    #[test]
    fn a_file_is_known_by_its_first_bytes() {
        for (bytes, expected) in [
            (PNG, Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", None),
            (b"RIFF", None),
            (b"%PDF-1.7\n", Some("application/pdf")),
            (b"\x89PNG", None),
            (b"", None),
        ] {
            assert_eq!(media_type(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_block_is_read_back_and_others_are_not() {
        let attachment = Attachment::of("image/png", PNG);
        assert_eq!(Attachment::read(&attachment.block()), Some(attachment.clone()));
        assert!(attachment.data_url().starts_with("data:image/png;base64,iVBOR"));
        for other in [
            r#"{"type":"image","source":{"type":"url","url":"https://x"}}"#,
            r#"{"type":"image","source":{"type":"base64","media_type":7,"data":""}}"#,
            r#"{"type":"text","text":"base64"}"#,
            "7",
        ] {
            assert_eq!(Attachment::read(&Json::parse(other.to_owned()).expect("JSON")), None);
        }
    }

    #[test]
    fn what_a_model_cannot_read_is_a_sentence() {
        let image = Attachment::of("image/png", PNG).block();
        let pdf = Attachment::of("application/pdf", b"%PDF-").block();
        let message = format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c","content":[{{"type":"text","text":"x"}},{image}]}},{pdf}]}}"#,
            image = image.as_str(),
            pdf = pdf.as_str()
        );
        let message = Json::parse(message).expect("JSON");
        let shown = |media: &[Media]| readable(&message, media).as_str().to_owned();
        assert_eq!(shown(&[Media::Image, Media::Pdf]), message.as_str());
        let none = shown(&[]);
        assert!(!none.contains("base64") && none.matches("cannot read").count() == 2, "{none}");
        let images = shown(&[Media::Image]);
        assert!(images.contains("image/png\"") && images.contains("of type application/pdf"));
        let read = Message::read(&none).expect("a message");
        assert_eq!(read.tool_results().next().map(|result| result.tool_use_id.as_str()), Some("c"));
        assert_eq!(attachments(&Message::read(message.as_str()).expect("a message")).len(), 2);
        assert!(attachments(&read).is_empty());
    }
}
