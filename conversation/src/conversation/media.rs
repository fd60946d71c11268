//! Tokens of images and files, by the rules that providers publish.
//!
//! | rule | an image of `w` x `h` pixels |
//! |---|---|
//! | OpenAI | 85, and at high detail 170 for each tile of 512 x 512 once it is shrunk to 2048 x 2048 and its short side to 768 |
//! | Anthropic | `w * h / 750`, once its long side is shrunk to 1568 and the whole to 1,600 tokens |
//! | Gemini | 258 where both sides are at most 384; else 258 for each tile of `min(w, h) / 1.5`, at least 256 and at most 768 |
//!
//! An image of unknown size counts as 1024 x 1024. A file counts one page for each 50,000 bytes; a file given by URL counts as one
//! page.

use pirn_definition::message::Part;

/// A provider's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaRule {
    /// Tiles of 512 pixels.
    OpenAi,
    /// 750 pixels a token.
    Anthropic,
    /// Tiles of up to 768 pixels.
    Gemini,
}

/// Assumed pixels of an unknown side.
const SIDE: u32 = 1024;

/// Bytes that count as one page.
const PAGE: usize = 50_000;

impl MediaRule {
    const ALL: [Self; 3] = [Self::OpenAi, Self::Anthropic, Self::Gemini];

    /// Returns the tokens by the most expensive rule, for unknown providers.
    pub fn most(part: &Part) -> u64 {
        // Too high rather than too low: a request above the limit is rejected by the provider.
        Self::ALL.iter().map(|rule| rule.cost(part)).max().unwrap_or_default()
    }

    /// Returns the tokens of an image or a file. 0 for text, which the tokenizer counts.
    pub fn cost(self, part: &Part) -> u64 {
        match part {
            // Counting it here too would double its tokens.
            Part::Text { .. } => 0,
            Part::Image {
                width, height, detail, ..
            } => self.image(
                // A side of 0 would make the image free of charge.
                u64::from(width.unwrap_or(SIDE).max(1)),
                u64::from(height.unwrap_or(SIDE).max(1)),
                detail.as_deref(),
            ),
            Part::File { url, .. } => {
                // Base64 encodes three bytes in four characters.
                // The size of a file behind a URL is unknown without a download.
                let bytes = if url.starts_with("data:") { url.len() / 4 * 3 } else { 0 };
                (bytes.div_ceil(PAGE).max(1) as u64).saturating_mul(self.page())
            }
        }
    }

    /// Returns the tokens of a page: its text and its picture.
    fn page(self) -> u64 {
        match self {
            Self::OpenAi => 1_500,
            Self::Anthropic => 3_000,
            Self::Gemini => 258,
        }
    }

    fn image(self, width: u64, height: u64, detail: Option<&str>) -> u64 {
        match self {
            Self::OpenAi => {
                if detail == Some("low") {
                    return 85;
                }
                // In the provider's order: first into the square, then the short side.
                let (width, height) = shrunk(width, height, width.max(height), 2_048);
                let (width, height) = shrunk(width, height, width.min(height), 768);
                85 + 170 * width.div_ceil(512) * height.div_ceil(512)
            }
            Self::Anthropic => {
                let (width, height) = shrunk(width, height, width.max(height), 1_568);
                // The provider shrinks larger images, so that the cost has a maximum.
                width.saturating_mul(height).div_ceil(750).min(1_600)
            }
            Self::Gemini => {
                if width <= 384 && height <= 384 {
                    return 258;
                }
                // The short side divided by 1.5, in integers.
                let tile = (width.min(height) * 2 / 3).clamp(256, 768);
                258 * width.div_ceil(tile).saturating_mul(height.div_ceil(tile))
            }
        }
    }
}

/// Returns both sides, scaled down so that `side` is at most `most`.
fn shrunk(width: u64, height: u64, side: u64, most: u64) -> (u64, u64) {
    if side <= most {
        return (width, height);
    }
    // At least one pixel: a very long image would otherwise lose its short side.
    let scaled = |pixels: u64| (pixels.saturating_mul(most) / side).max(1);
    (scaled(width), scaled(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(width: u32, height: u32, detail: Option<&str>) -> Part {
        let mut image = Part::image("https://example.test/a.png");
        if let Part::Image {
            width: own_width,
            height: own_height,
            detail: own_detail,
            ..
        } = &mut image
        {
            (*own_width, *own_height) = (Some(width), Some(height));
            *own_detail = detail.map(str::to_owned);
        }
        image
    }

    /// Compares with the figures that the providers publish.
    #[test]
    fn the_cost_of_an_image_equals_the_published_figures() {
        for (rule, part, cost) in [
            (MediaRule::OpenAi, image(1024, 1024, Some("high")), 765),
            (MediaRule::OpenAi, image(2048, 4096, None), 1_105),
            (MediaRule::OpenAi, image(4096, 8192, Some("low")), 85),
            (MediaRule::Anthropic, image(200, 200, None), 54),
            (MediaRule::Anthropic, image(1000, 1000, None), 1_334),
            (MediaRule::Gemini, image(384, 384, None), 258),
            (MediaRule::Gemini, image(960, 540, None), 1_548),
        ] {
            assert_eq!(rule.cost(&part), cost, "{rule:?} {part:?}");
        }
    }

    #[test]
    fn image_costs_do_not_overflow_at_extreme_sizes() {
        for (width, height) in [(0, 0), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
            assert!(MediaRule::most(&image(width, height, None)) > 0);
        }
        let file = Part::file(format!("data:application/pdf;base64,{}", "A".repeat(200_000)));
        assert_eq!(MediaRule::Gemini.cost(&file), 4 * 258);
    }
}
