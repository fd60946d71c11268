//! Texts that lie where they are looked at.

/// How many bytes have their place in the text itself.
const SHORT: usize = 22;

/// A text; a short one is in place, so that to compare it reads no other memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShortText {
    Here(u8, [u8; SHORT]),
    Elsewhere(Box<str>),
}

impl ShortText {
    pub(super) fn is(&self, text: &str) -> bool {
        self.bytes() == text.as_bytes()
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            // They were a text.
            Self::Here(..) => std::str::from_utf8(self.bytes()).unwrap_or_default(),
            Self::Elsewhere(text) => text,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Here(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Elsewhere(text) => text.as_bytes(),
        }
    }
}

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        let mut here = [0; SHORT];
        match here.get_mut(..text.len()) {
            Some(bytes) => {
                bytes.copy_from_slice(text.as_bytes());
                Self::Here(text.len() as u8, here)
            }
            None => Self::Elsewhere(text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_itself_and_no_other(one in "[a\u{e9}\0]{0,30}", other in "[a\u{e9}\0]{0,30}") {
            let short = ShortText::from(one.as_str());
            prop_assert!(short.is(&one));
            prop_assert_eq!(short.as_str(), &one);
            prop_assert_eq!(short.is(&other), one == other);
            prop_assert_eq!(short == ShortText::from(other.as_str()), one == other);
        }
    }

    #[test]
    fn it_takes_no_more_room_than_a_text_that_lies_elsewhere() {
        assert_eq!(size_of::<ShortText>(), size_of::<String>());
    }
}
