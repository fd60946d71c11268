//! Conversion of a server's result into text, images and files.

use pirn_definition::message::Part;
use rmcp::model::{CallToolResult, ContentBlock, GetPromptResult, ReadResourceResult, ResourceContents, Role};
use serde_json::Value;

use crate::output::TruncatedOutput;
use pirn_models::headers::Secrets;

/// Text of an empty result. Providers refuse empty results.
const EMPTY: &str = "(no content)";

/// Text of a result, with its images and files.
pub(super) type ToolContent = (String, Vec<Part>);

/// Length limit and secrets for a server's text.
pub(super) struct TextFilter {
    /// Maximum length of the text in bytes; the rest is cut.
    pub(super) limit: usize,
    /// Secrets sent to the server, which it may repeat.
    pub(super) secrets: Secrets,
}

impl TextFilter {
    /// Returns the text with redacted secrets, cut to `limit` bytes.
    pub(super) fn text(&self, text: String) -> String {
        // Redacted before the cut, because the cut could leave a part of a secret, which would not be recognised.
        let text = self.secrets.redact(text);
        let mut head = TruncatedOutput::new(self.limit);
        head.push(text.as_bytes());
        head.into_text(true)
    }
}

/// Returns the text and the images of a tool result; `Err` if the server marks the result as an error.
///
/// Structured content is appended as text, unless the text already contains the equal JSON value.
pub(super) fn of(result: CallToolResult, shown: &TextFilter) -> Result<ToolContent, String> {
    let mut media = Media::default();
    let mut texts: Vec<String> = Vec::new();
    for content in result.content {
        texts.extend(said(content, &mut media));
    }
    if let Some(structured) = result.structured_content {
        let is_it = |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|value| value == structured);
        if !texts.iter().any(is_it) {
            texts.push(structured.to_string());
        }
    }
    let (text, media) = cut(&texts, media, shown);
    if result.is_error == Some(true) {
        Err(text)
    } else {
        Ok((text, media))
    }
}

/// Returns the text of a resource, with its images and files.
pub(super) fn of_resource(result: ReadResourceResult, shown: &TextFilter) -> ToolContent {
    let mut media = Media::default();
    let mut texts = Vec::new();
    for content in result.contents {
        match content {
            ResourceContents::TextResourceContents { text, .. } => texts.push(text),
            ResourceContents::BlobResourceContents {
                uri, mime_type, blob, ..
            } => {
                let kind = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                if !media.accepts(&kind, &blob, true) {
                    texts.push(left_out(&format!("resource {uri}"), &kind, blob.len()));
                }
            }
            _ => texts.push("[a resource of an unsupported kind]".to_owned()),
        }
    }
    cut(&texts, media, shown)
}

/// Returns the messages of a prompt, each prefixed by its role. A single message has no prefix.
pub(super) fn of_prompt(result: GetPromptResult, shown: &TextFilter) -> ToolContent {
    let mut media = Media::default();
    let is_one = result.messages.len() == 1;
    let texts: Vec<String> = result
        .messages
        .into_iter()
        .filter_map(|message| {
            let text = said(message.content, &mut media)?;
            Some(match message.role {
                Role::Assistant | Role::User if is_one => text,
                Role::Assistant => format!("assistant: {text}"),
                Role::User => format!("user: {text}"),
            })
        })
        .collect();
    cut(&texts, media, shown)
}

/// Returns the text of a content block. Returns `None` for an image that fits the limits, and adds it to `media`.
fn said(content: ContentBlock, media: &mut Media) -> Option<String> {
    match content {
        ContentBlock::Image(image) if media.accepts(&image.mime_type, &image.data, false) => None,
        other => Some(part(other)),
    }
}

fn cut(texts: &[String], media: Media, shown: &TextFilter) -> ToolContent {
    let media = media.parts;
    let text = shown.text(texts.join("\n"));
    if text.is_empty() && media.is_empty() {
        (EMPTY.to_owned(), media)
    } else {
        (text, media)
    }
}

/// Media types of the images that every provider accepts. Another type in a conversation would fail each of its later requests.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Media type of the files that providers accept.
const PDF: &str = "application/pdf";

/// Maximum length of an image's base64. Providers refuse larger images.
const MOST_IMAGE: usize = 8 << 20;

/// Maximum length of the base64 of all images and files of a result.
const MOST_MEDIA: usize = 16 << 20;

/// Images and files of a result.
#[derive(Default)]
struct Media {
    parts: Vec<Part>,
    bytes: usize,
}

impl Media {
    /// Adds an image, or a PDF if `with_files`. Returns false if its type or encoding is not accepted, or a limit is exceeded.
    fn accepts(&mut self, kind: &str, base64: &str, with_files: bool) -> bool {
        // Without parameters, as in `image/png; charset=binary`.
        let kind = kind.split(';').next().unwrap_or(kind).trim().to_ascii_lowercase();
        let kind = if kind == "image/jpg" {
            "image/jpeg"
        } else {
            kind.as_str()
        };
        let is_image = IMAGES.contains(&kind);
        let bytes = self.bytes + base64.len();
        let is_small = base64.len() <= MOST_IMAGE && bytes <= MOST_MEDIA;
        let is_accepted = (is_image || with_files && kind == PDF) && is_small && is_base64(base64);
        if is_accepted {
            let url = format!("data:{kind};base64,{base64}");
            self.parts
                .push(if is_image { Part::image(url) } else { Part::file(url) });
            self.bytes = bytes;
        }
        is_accepted
    }
}

/// Returns whether the text is base64 with padding, and not empty.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !digits.is_empty() && text.len() - digits.len() <= 2 && text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

/// Returns text unchanged, and a short description of any other content.
fn part(content: ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents {
                uri, mime_type, blob, ..
            } => {
                let kind = mime_type.unwrap_or_else(|| "unknown kind".to_owned());
                left_out(&format!("resource {uri}"), &kind, blob.len())
            }
            _ => "[a resource of an unsupported kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let about = link.description.map_or_else(String::new, |about| format!(": {about}"));
            format!("[resource {} at {}{about}]", link.name, link.uri)
        }
        _ => "[content of an unsupported kind]".to_owned(),
    }
}

fn left_out(what: &str, kind: &str, base64: usize) -> String {
    format!("[{what}: {kind}, {base64} characters of base64 left out]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(secrets: &Secrets, limit: usize) -> TextFilter {
        TextFilter {
            limit,
            secrets: secrets.clone(),
        }
    }

    fn text(result: Value) -> Result<String, String> {
        let secrets = Secrets::default();
        of(serde_json::from_value(result).expect("a result"), &shown(&secrets, 60)).map(|(text, _)| text)
    }

    #[test]
    fn an_image_becomes_a_separate_part() {
        let result = json!({"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]});
        let result = serde_json::from_value(result).expect("a result");
        let image = Part::image("data:image/png;base64,AAAA");
        let said = of(result, &shown(&Secrets::default(), 60));
        assert_eq!(said, Ok(("a".to_owned(), vec![image])));
    }

    #[test]
    fn only_media_that_every_provider_accepts_are_passed_on() {
        for (kind, data, is_image, is_resource) in [
            ("image/png", "AAAA", true, true),
            ("IMAGE/JPEG; q=1", "AAA=", true, true),
            ("image/jpg", "AA==", true, true),
            ("application/pdf", "AAAA", false, true),
            ("image/svg+xml", "AAAA", false, false),
            ("application/zip", "AAAA", false, false),
            ("audio/wav", "AAAA", false, false),
            ("image/png", "***", false, false),
            ("image/png", "AAA", false, false),
            ("image/png", "", false, false),
        ] {
            let result = json!({"content": [{"type": "image", "data": data, "mimeType": kind}]});
            let result = serde_json::from_value(result).expect("a result");
            let resource = json!({"contents": [{"uri": "x:y", "mimeType": kind, "blob": data}]});
            let resource = serde_json::from_value(resource).expect("a resource");
            let filter = shown(&Secrets::default(), 1_000);
            let image = of(result, &filter).expect("no error");
            let resource = of_resource(resource, &filter);
            for ((text, parts), is_passed) in [(image, is_image), (resource, is_resource)] {
                assert_eq!(parts.len(), usize::from(is_passed), "{kind}: {parts:?}");
                assert_eq!(text.contains("left out"), !is_passed, "{kind}: {text}");
            }
        }
    }

    #[test]
    fn the_images_of_a_result_share_one_limit() {
        let image = json!({"type": "image", "data": "A".repeat(MOST_IMAGE), "mimeType": "image/png"});
        let result = json!({"content": vec![image; 5]});
        let result = serde_json::from_value(result).expect("a result");
        let (text, images) = of(result, &shown(&Secrets::default(), 1_000)).expect("no error");
        assert_eq!(images.len(), MOST_MEDIA / MOST_IMAGE);
        assert_eq!(text.matches("characters of base64 left out").count(), 3);
    }

    #[test]
    fn text_is_returned_unchanged_and_other_content_is_described() {
        let result = json!({"content": [{"type": "text", "text": "a"}, {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]});
        assert_eq!(
            text(result),
            Ok("a\n[audio: audio/wav, 4 characters of base64 left out]".to_owned())
        );
        let resource = json!({"content": [{"type": "resource", "resource": {"uri": "x:y", "text": "t"}}]});
        assert_eq!(text(resource), Ok("[resource x:y]\nt".to_owned()));
        let link = json!({"content": [{"type": "resource_link", "uri": "x:y", "name": "n", "description": "d"}]});
        assert_eq!(text(link), Ok("[resource n at x:y: d]".to_owned()));
    }

    #[test]
    fn structured_content_is_included_once() {
        let said = |content: Value| text(json!({"content": content, "structuredContent": {"n": 1}}));
        assert_eq!(
            said(json!([{"type": "text", "text": "one row"}])),
            Ok("one row\n{\"n\":1}".to_owned())
        );
        assert_eq!(
            said(json!([{"type": "text", "text": "{ \"n\": 1 }"}])),
            Ok("{ \"n\": 1 }".to_owned())
        );
        assert_eq!(
            text(json!({"content": [], "structuredContent": {"n": 1}})),
            Ok(r#"{"n":1}"#.to_owned())
        );
        assert_eq!(text(json!({"content": []})), Ok(EMPTY.to_owned()));
    }

    #[test]
    fn a_secret_echoed_by_the_server_is_masked() {
        let value = reqwest::header::HeaderValue::from_static("Bearer s3cr3t-0123456789");
        let secrets = Secrets::of([&value].into_iter());
        for is_error in [true, false] {
            for limit in 1..40 {
                let said =
                    json!({"content": [{"type": "text", "text": "you sent s3cr3t-0123456789"}], "isError": is_error});
                let said = of(serde_json::from_value(said).expect("a result"), &shown(&secrets, limit));
                let text = said.map_or_else(|error| error, |(text, _)| text);
                assert!(!text.contains("s3c"), "{text}");
            }
        }
    }

    #[test]
    fn a_server_error_is_an_error_and_a_long_text_is_truncated() {
        let error = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
        assert_eq!(text(error), Err("no".to_owned()));
        let long = json!({"content": [{"type": "text", "text": "x".repeat(61)}]});
        assert!(text(long).expect("it is one").ends_with("first 60 bytes of 61]"));
    }
}
